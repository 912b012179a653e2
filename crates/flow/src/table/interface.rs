// SPDX-License-Identifier: Apache-2.0
//! What a flow table is asked for and what it answers.

use crate::key::FlowHasher;
use crate::level::LevelWaits;
use crate::timeouts::FlowTimeouts;
use bartizan_base::{Direction, FlowId, PacketDuration};

/// Entries looked at, at most, to find one that makes room.
pub const EVICTION_SCAN: u32 = 16;
/// Largest capacity: an entry number and "none" fit 32 bits.
pub const MAX_CAPACITY: u32 = 1 << 30;

/// What happens to a packet that opens a flow while the table is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It gets none.
    Refuse,
    /// A flow ends that was silent for at least `quiet`; if there is none, it gets none.
    Evict {
        /// Shortest silence of a flow that may end; zero lets any flow end.
        quiet: PacketDuration,
    },
}

/// Size and behaviour of a table.
#[derive(Clone, Copy, Debug)]
pub struct FlowTableConfig {
    /// Flows that it can hold, 1 to [`MAX_CAPACITY`].
    pub capacity: u32,
    /// The instance's secret hash.
    pub hasher: FlowHasher,
    /// When flows end.
    pub timeouts: FlowTimeouts,
    /// What happens when it is full.
    pub when_full: WhenFull,
    /// Emergency mode ends when this share of the capacity is free, in percent.
    pub emergency_recovery: u8,
    /// How long levels are waited for.
    pub waits: LevelWaits,
}

impl FlowTableConfig {
    /// The defaults for a capacity: shipped timeouts, evict, recovery at 30 %.
    #[must_use]
    pub fn new(capacity: u32, hasher: FlowHasher) -> Self {
        Self {
            capacity,
            hasher,
            timeouts: FlowTimeouts::SHIPPED,
            when_full: WhenFull::Evict { quiet: PacketDuration::ZERO },
            emergency_recovery: 30,
            waits: LevelWaits::default(),
        }
    }
}

/// Why a table cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// No such capacity.
    #[error("flow table: capacity {capacity} is not between 1 and {MAX_CAPACITY}; choose one that is")]
    Capacity {
        /// What was asked for.
        capacity: u32,
    },
    /// The system has no address space left.
    #[error(
        "flow table: cannot reserve {bytes} bytes for {capacity} flows; lower the number of flows or raise the \
         limit on address space (ulimit -v)"
    )]
    Memory {
        /// Flows asked for.
        capacity: u32,
        /// Bytes that they take.
        bytes: usize,
    },
}

/// Answer of [`super::FlowTable::find`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// The packet belongs to this flow.
    Found {
        /// The flow.
        id: FlowId,
        /// Which way the packet goes in it.
        direction: Direction,
    },
    /// There is a flow of this key, but its timeout has passed: finish it, remove it, insert anew.
    Stale {
        /// The flow to finish.
        id: FlowId,
    },
    /// There is none.
    Missing,
}

/// Answer of [`super::FlowTable::insert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insert {
    /// The new flow.
    Created {
        /// Its entry.
        id: FlowId,
    },
    /// The table is full: finish this flow, remove it with
    /// [`EndReason::Forced`](crate::entry::EndReason::Forced), insert again.
    Evict {
        /// The flow to finish.
        id: FlowId,
    },
    /// The table is full and no flow may make room; counted.
    Full,
}

/// Answer of [`super::FlowTable::find_or_insert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The packet belongs to this flow.
    Found {
        /// The flow.
        id: FlowId,
        /// Which way the packet goes in it.
        direction: Direction,
    },
    /// The packet opened this flow (its direction is to the server).
    Created {
        /// The flow.
        id: FlowId,
    },
    /// There is no room.
    Full,
}

/// What [`super::FlowTable::account`] says about a packet's place in its flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounted {
    /// The first packet in this direction.
    pub first_in_direction: bool,
    /// The flow is established, this packet included.
    pub established: bool,
}

/// Bytes of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableMemory {
    /// Address space reserved at start.
    pub reserved: usize,
    /// Upper bound of what flows have touched so far.
    pub touched: usize,
}
