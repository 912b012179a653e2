// SPDX-License-Identifier: Apache-2.0
//! The packets without a flow that a level below may refuse ([0022](../../../docs/design/0022-early.md)): the
//! list of a generation, and the credit for the packets refused.
//!
//! The list holds the refusals by the first function on a new flow's path that depend on nothing but the
//! packet's header. A level has the list as a table and reports refused packets by the number of the outcome;
//! the host counts them as if the function had refused them.

use bartizan_base::{Decision, Fid, FunctionId, Generation, PacketDuration, Timestamp};
use bartizan_classify::early::EarlyRules;
use bartizan_function::HandsUp;
use std::sync::Arc;

/// The list of a generation: the refusals that a level below may carry out for packets without a flow.
#[derive(Debug, Default)]
pub struct Early {
    /// The rules, from the first policy's first rule to the default verdict of the default policy.
    pub rules: EarlyRules,
    /// By number of the outcome: the class of the flow that the packet would have opened, and the decision on
    /// it.
    pub outcomes: Vec<(Fid, Decision)>,
    /// The source of each rule, by its number in the list.
    pub origins: Vec<EarlyOrigin>,
}

/// The source of a rule of the list, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlyOrigin {
    /// A class of the rule's policy.
    pub fid: Fid,
    /// The function that has the rule, the first of its policy; `None`: the policy has no function and
    /// forwards everything.
    pub function: Option<FunctionId>,
    /// Number of the rule among the function's rules for the policy, from 0; `None`: the function's default.
    pub rule: Option<u32>,
    /// The reason why the rule refuses nothing below, if it does not.
    pub up: Option<NotBelow>,
}

/// The reason why a rule of the list refuses nothing below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotBelow {
    /// The function cannot decide below.
    Function(HandsUp),
    /// Packets are forwarded while the function has failed or is stopped; the level below does not know its
    /// state.
    FailOpen,
    /// There are more outcomes than counters.
    NoRoom,
}

/// Period of reading the counts of refused packets from the level.
const EVERY: PacketDuration = PacketDuration::from_secs(1);

/// The state of crediting packets refused below to the policies that refuse them.
#[derive(Debug, Default)]
pub struct Credit {
    /// The previous generation with its list, by which packets may have been refused while the worker
    /// swapped.
    before: Option<(Generation, Arc<Early>)>,
    /// Time of the next reading.
    due: Timestamp,
}

impl Credit {
    /// Notes that another generation follows the given one.
    pub fn leave(&mut self, generation: Generation, early: Option<&Arc<Early>>) {
        self.before = early.map(|early| (generation, Arc::clone(early)));
        self.due = Timestamp::ZERO;
    }

    /// Whether the next reading is due; if so, schedules the one after.
    pub fn is_due(&mut self, now: Timestamp) -> bool {
        let due = now >= self.due;
        if due {
            self.due = Timestamp::from_nanos(now.as_nanos().saturating_add(EVERY.as_nanos()));
        }
        due
    }

    /// Takes the previous generation with its list.
    pub fn before(&mut self) -> Option<(Generation, Arc<Early>)> {
        self.before.take()
    }
}
