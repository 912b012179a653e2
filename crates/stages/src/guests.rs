// SPDX-License-Identifier: Apache-2.0
//! Types for flows that move between workers: guests of a worker, the reasons why a flow is not moved, and
//! random numbers for tests. [`crate::moving`] moves the flows.

use bartizan_base::WorkerId;
use bartizan_flow::FlowKey;
use bartizan_flow::table::moving::TakeError;
use std::collections::HashMap;

/// The reason why a flow is not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotMoved {
    /// The flow does not exist.
    #[error("move: there is no flow with this key, or it has just ended; no action is needed")]
    NoFlow,
    /// The worker does not exist.
    #[error("move: there is no such worker; use a worker of the flow's link, numbered from 0")]
    NoWorker,
    /// Another worker is its home.
    #[error("move: the flow is owned by worker {}; ask that worker", .0.0)]
    NotHome(WorkerId),
    /// Packets of such flows have several home workers.
    #[error(
        "move: the flow belongs to an ICMPv6 error, or has no ports although its protocol has them; such \
         flows are handled where their packets arrive and cannot move"
    )]
    Kind,
    /// Levels below the host refer to it by its index in this worker's table.
    #[error(
        "move: the flow is or was handled by a level below the host; it stays at its worker until it \
         ends"
    )]
    Below,
    /// Segments of the flow are queued in a train.
    #[error("move: segments of the flow wait for inspection; retry after the batch")]
    Waits,
    /// A move of the flow is under way.
    #[error("move: the flow is already being moved; retry when it has arrived")]
    UnderWay,
    /// The flow is already at the destination.
    #[error("move: the flow is already at that worker; no action is needed")]
    There,
    /// The number of flows away from home has reached its bound.
    #[error("move: this worker has reached its limit of flows at other workers; move one of them back first")]
    Full,
    /// The ring to the other worker is full.
    #[error("move: the ring to the other worker is full; retry later")]
    Ring,
    /// The workers are stopping.
    #[error("move: the workers are stopping; flows no longer move")]
    Ending,
}

impl From<TakeError> for NotMoved {
    fn from(why: TakeError) -> Self {
        match why {
            TakeError::NoFlow => NotMoved::NoFlow,
            TakeError::Below => NotMoved::Below,
        }
    }
}

/// A random number generator for moves of flows: SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Copy, Debug)]
pub struct Chance(pub u64);

impl Chance {
    /// The next number.
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// A flow handled by a worker that is not its home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guest {
    /// The worker that forwards the flow's packets here.
    pub home: WorkerId,
    /// The number of the latest of these packets.
    pub number: u64,
}

/// The flows of other workers that this worker handles for a time, and those that may have ended. Bounded by
/// the number of flows that a worker may lend (`handover::away::AWAY_MAX` each).
#[derive(Default)]
pub struct ForeignFlows {
    known: HashMap<FlowKey, Guest>,
    /// Keys whose flow ended; a packet may have opened a new flow since.
    ended: Vec<FlowKey>,
    /// Number of flows moved here from other workers.
    pub taken_in: u64,
}

impl ForeignFlows {
    /// Adds a guest, or notes its latest packet.
    pub fn insert(&mut self, key: FlowKey, guest: Guest) {
        self.known.insert(key, guest);
    }

    /// Removes a guest.
    pub fn remove(&mut self, key: &FlowKey) -> Option<Guest> {
        self.known.remove(key)
    }

    /// Notes that a guest's flow may have ended.
    pub fn may_have_ended(&mut self, key: FlowKey) {
        self.ended.push(key);
    }

    /// Takes one of the guests that may have ended.
    pub fn next_that_may_have_ended(&mut self) -> Option<FlowKey> {
        self.ended.pop()
    }

    /// Whether a flow is a guest.
    pub fn contains(&self, key: &FlowKey) -> bool {
        self.known.contains_key(key)
    }

    /// Whether the worker has no such flow.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether the home workers have to be notified of ended flows.
    pub const fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }
}
