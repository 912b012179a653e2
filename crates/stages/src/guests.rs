// SPDX-License-Identifier: Apache-2.0
//! Words for flows that move between workers: guests of a worker, why a flow is not moved, and chance for
//! tests. What is done with them stands in [`crate::moving`].

use bartizan_base::WorkerId;
use bartizan_flow::FlowKey;
use bartizan_flow::table::moving::TakeError;
use std::collections::HashMap;

/// Why a flow is not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotMoved {
    /// There is no such flow.
    #[error("move: there is no flow of this key, or it has just ended; nothing needs to be done")]
    NoFlow,
    /// There is no such worker.
    #[error("move: there is no such worker; name one of the workers of the flow's link, from 0 on")]
    NoWorker,
    /// Another worker is its home.
    #[error("move: the flow's home is worker {}; ask that one", .0.0)]
    NotHome(WorkerId),
    /// Flows of this kind are at home at several workers.
    #[error(
        "move: an ICMPv6 error's own flow, or one without ports of a protocol that has them, is at home with whatever \
         worker its packets are; such flows stay"
    )]
    Kind,
    /// Levels below the host know it by its place.
    #[error("move: the flow is, or was, at a level below the host; it stays at its worker until it ends")]
    Below,
    /// Segments wait in a train.
    #[error("move: segments wait to be inspected together; ask again after the batch")]
    Waits,
    /// It is being moved.
    #[error("move: the flow is under way; ask again when it has arrived")]
    UnderWay,
    /// It is where it is to go.
    #[error("move: the flow is with that worker; nothing needs to be done")]
    There,
    /// As many flows as may be are away from home.
    #[error("move: as many flows of this worker's are with others as may be; move one of them home first")]
    Full,
    /// No room in a ring to the other worker.
    #[error("move: the ring to the other worker is full; ask again later")]
    Ring,
    /// The workers end.
    #[error("move: the workers are about to end; nothing is moved any more")]
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

/// A source of chance for moves of flows: SplitMix64 (Steele, Lea, Flood 2014).
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

/// A flow that is with a worker which is not its home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Who sends its packets here.
    pub home: WorkerId,
    /// The number of the latest of them.
    pub number: u64,
}

/// Guests of a worker, and which of them may have ended. Bounded by what homes have away
/// (`handover::away::AWAY_MAX` each).
#[derive(Default)]
pub struct Guests {
    known: HashMap<FlowKey, Guest>,
    /// Their flows ended; a packet may have opened another one since.
    ended: Vec<FlowKey>,
    /// Flows that have come from other workers.
    pub taken_in: u64,
}

impl Guests {
    /// A flow has come.
    pub fn insert(&mut self, key: FlowKey, guest: Guest) {
        self.known.insert(key, guest);
    }

    /// A flow is no guest any more.
    pub fn remove(&mut self, key: &FlowKey) -> Option<Guest> {
        self.known.remove(key)
    }

    /// A guest may not be there any more.
    pub fn may_have_ended(&mut self, key: FlowKey) {
        self.ended.push(key);
    }

    /// One of those, each once.
    pub fn next_that_may_have_ended(&mut self) -> Option<FlowKey> {
        self.ended.pop()
    }

    /// Whether a flow is a guest.
    pub fn contains(&self, key: &FlowKey) -> bool {
        self.known.contains_key(key)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether home is to be told of ends.
    pub const fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }
}
