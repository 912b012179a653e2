// SPDX-License-Identifier: Apache-2.0
//! What a level below may refuse of packets without a flow ([0022](../../../docs/design/0022-early.md)): the
//! list of a generation, and the credit for what was refused.
//!
//! The list says what the first function on the path of a new flow refuses, whatever else is known of the
//! packet. A level has it as a table, and tells by the numbers of its outcomes what was refused; here that is
//! counted as if the function had been asked.

use bartizan_base::{Decision, Fid, FunctionId, Generation, PacketDuration, Timestamp};
use bartizan_classify::early::EarlyRules;
use bartizan_function::HandsUp;
use std::sync::Arc;

/// The list of a generation.
#[derive(Debug, Default)]
pub struct Early {
    /// What is matched, from the first policy's first rule to the default's default.
    pub rules: EarlyRules,
    /// By number of the outcome: the class of the flow that the packet would have opened, and what is decided
    /// of it.
    pub outcomes: Vec<(Fid, Decision)>,
    /// By number of the rule in the list: where it comes from.
    pub origins: Vec<Origin>,
}

/// Where a rule of the list comes from, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// A class of its policy.
    pub fid: Fid,
    /// The function that it is a rule of, the first of its policy; `None`: the policy has none, and lets all
    /// go on.
    pub function: Option<FunctionId>,
    /// Its number among the function's rules for the policy, from 0; `None`: what becomes of what none of
    /// them matches.
    pub rule: Option<u32>,
    /// Why it refuses nothing below, if it does not.
    pub up: Option<NotBelow>,
}

/// Why a rule of the list refuses nothing below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotBelow {
    /// The function says so.
    Function(HandsUp),
    /// Packets go on while the function is away, which nobody knows below.
    GoesOnWithout,
    /// More outcomes than are counted.
    NoRoom,
}

/// How often is asked what was refused.
const EVERY: PacketDuration = PacketDuration::from_secs(1);

/// What of it was credited.
#[derive(Debug, Default)]
pub struct Credit {
    /// The generation before: packets may have been refused by its list while the worker left it.
    before: Option<(Generation, Arc<Early>)>,
    /// When it is asked next.
    due: Timestamp,
}

impl Credit {
    /// Another generation follows.
    pub fn leave(&mut self, generation: Generation, early: Option<&Arc<Early>>) {
        self.before = early.map(|early| (generation, Arc::clone(early)));
        self.due = Timestamp::ZERO;
    }

    /// Whether it is time to ask again.
    pub fn is_due(&mut self, now: Timestamp) -> bool {
        let due = now >= self.due;
        if due {
            self.due = Timestamp::from_nanos(now.as_nanos().saturating_add(EVERY.as_nanos()));
        }
        due
    }

    /// The list of the generation before, once.
    pub fn before(&mut self) -> Option<(Generation, Arc<Early>)> {
        self.before.take()
    }
}
