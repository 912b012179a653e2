// SPDX-License-Identifier: Apache-2.0
//! Configuration and result types of a flow table.

use crate::key::FlowHasher;
use crate::level::LevelWaits;
use crate::timeouts::FlowTimeouts;
use bartizan_base::{Direction, FlowId, PacketDuration};

/// Most entries visited in search of one that makes room.
pub const EVICTION_SCAN: u32 = 16;
/// Largest capacity: an entry number and "none" fit 32 bits.
pub const MAX_CAPACITY: u32 = 1 << 30;

/// The policy for a packet that opens a flow while the table is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// The packet gets no flow.
    Refuse,
    /// A flow that was silent for at least `quiet` ends; if there is none, the packet gets no flow.
    Evict {
        /// Least silence of a flow that may end; zero lets any flow end.
        quiet: PacketDuration,
    },
}

/// Size and policy of a table.
#[derive(Clone, Copy, Debug)]
pub struct FlowTableConfig {
    /// Maximum number of flows, 1 to [`MAX_CAPACITY`].
    pub capacity: u32,
    /// The instance's secret hash.
    pub hasher: FlowHasher,
    /// Timeouts of flows.
    pub timeouts: FlowTimeouts,
    /// The policy when the table is full.
    pub when_full: WhenFull,
    /// Emergency mode ends when this share of the capacity is free, in percent.
    pub emergency_recovery: u8,
    /// Time limits for answers of levels.
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

/// The reason why a table cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The capacity is out of range.
    #[error("flow table: capacity {capacity} is out of range; use 1 to {MAX_CAPACITY}")]
    Capacity {
        /// The requested capacity.
        capacity: u32,
    },
    /// The address space is exhausted.
    #[error(
        "flow table: cannot reserve {bytes} bytes for {capacity} flows; lower the number of flows or raise the \
         limit on address space (ulimit -v)"
    )]
    Memory {
        /// Requested number of flows.
        capacity: u32,
        /// Bytes needed.
        bytes: usize,
    },
}

/// Result of [`super::FlowTable::find`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// The packet belongs to this flow.
    Found {
        /// The flow.
        id: FlowId,
        /// Direction of the packet in the flow.
        direction: Direction,
    },
    /// The key has a flow, which has timed out: finish it, remove it, insert anew.
    Stale {
        /// The flow to finish.
        id: FlowId,
    },
    /// The key has no flow.
    Missing,
}

/// Result of [`super::FlowTable::insert`].
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

/// Result of [`super::FlowTable::find_or_insert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The packet belongs to this flow.
    Found {
        /// The flow.
        id: FlowId,
        /// Direction of the packet in the flow.
        direction: Direction,
    },
    /// The packet opened this flow (its direction is to the server).
    Created {
        /// The flow.
        id: FlowId,
    },
    /// The table is full.
    Full,
}

/// Result of [`super::FlowTable::account`]: a packet's position in its flow.
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
    /// Upper bound of the bytes that flows have touched so far.
    pub touched: usize,
}
