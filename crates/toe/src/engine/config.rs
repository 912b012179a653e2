// SPDX-License-Identifier: Apache-2.0
//! Settings of the engine and of a guest, and what the engine reports.

use crate::inspect::StreamInfo;
use crate::layout::Layout;
use crate::reason::{RefusalCounts, StreamRefusal};
use bartizan_base::TenantId;
use std::net::IpAddr;
use std::time::Duration;

/// Most connections that wait for `accept`, whatever a program asks for (`net.core.somaxconn`).
pub(crate) const BACKLOG_MOST: usize = 4096;
/// Connections accepted at a guest's socket at once.
pub(crate) const STARTS: usize = 256;
/// Bytes of one direction that wait in the engine for room at the sink, at most.
pub(crate) const PENDING_MOST: usize = 64 << 10;
/// Bytes that a direction without any may always take in.
pub(crate) const LEAST: usize = 4096;

/// Limits of one guest.
#[derive(Clone, Debug)]
pub struct GuestLimits {
    /// Streams, listeners and connections that wait for `accept` included.
    pub streams: u32,
    /// Processes.
    pub processes: u32,
    /// Base-2 logarithm of the bytes of each stream's two shared buffers (12 to 24).
    pub buffer_shift: u32,
    /// Bytes in the engine's memory; beyond that 4 KiB for each direction of a stream.
    pub bytes: usize,
    /// Connections opened a second, a second's worth at once.
    pub connects_per_second: u32,
    /// Bytes of one direction that functions may hold.
    pub held_bytes: usize,
    /// Time for which functions may hold bytes.
    pub held_time: Duration,
    /// Bytes held for too long, or too many, leave uninspected; else the stream is blocked.
    pub hold_fails_open: bool,
    /// Time for which the last bytes of a closed stream are sent on.
    pub linger: Duration,
}

impl Default for GuestLimits {
    fn default() -> Self {
        GuestLimits {
            streams: 1024,
            processes: 64,
            buffer_shift: 16,
            bytes: 64 << 20,
            connects_per_second: 10_000,
            held_bytes: 1 << 20,
            held_time: Duration::from_secs(10),
            hold_fails_open: false,
            linger: Duration::from_secs(60),
        }
    }
}

/// The declaration of a guest: its owner and its rights.
#[derive(Clone, Debug, Default)]
pub struct GuestSpec {
    /// The guest's tenant.
    pub tenant: TenantId,
    /// The guest's addresses in the engine's namespace; empty: every address there.
    pub addresses: Vec<IpAddr>,
    /// Loopback addresses are those of the engine's namespace; else they are the guest's own, and only
    /// streams to its own listeners go through the engine.
    pub shares_loopback: bool,
    /// Connections to other guests of this engine go by TCP as well.
    pub always_tcp: bool,
    /// The guest's limits.
    pub limits: GuestLimits,
}

impl GuestSpec {
    /// Sizes of the guest's segments.
    #[must_use]
    pub fn layout(&self) -> Layout {
        let limits = &self.limits;
        Layout { slots: limits.streams, rings: limits.processes, buffer_shift: limits.buffer_shift }
    }
}

/// State of one guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestReport {
    /// Number of the guest.
    pub guest: u16,
    /// The guest's tenant.
    pub tenant: TenantId,
    /// Streams now.
    pub streams: usize,
    /// Processes now.
    pub processes: usize,
    /// Bytes in the engine's memory now.
    pub bytes: usize,
    /// Connections opened or accepted.
    pub connections: u64,
    /// Connections between guests of this engine, counted at both.
    pub local_connections: u64,
    /// Bytes that left the guest.
    pub sent: u64,
    /// Bytes that the guest got.
    pub received: u64,
    /// Refusals by reason.
    pub refused: RefusalCounts,
}

/// State of one stream that is, or was, connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamReport {
    /// The stream's properties.
    pub info: StreamInfo,
    /// Why it was blocked, if it was.
    pub refused: Option<StreamRefusal>,
    /// Bytes that left the guest.
    pub sent: u64,
    /// Bytes that the guest got.
    pub received: u64,
    /// Bytes that functions hold.
    pub held: u64,
}

/// State of the engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineReport {
    /// All guests.
    pub guests: Vec<GuestReport>,
}

/// The reason why the engine, or a guest, cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The kernel refuses something.
    #[error("the engine cannot {what}: {source}; check the limits of descriptors and memory")]
    System {
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        source: rustix::io::Errno,
    },
    /// A limit is not within its bounds.
    #[error(
        "the guest's limits are out of bounds: streams 1 to 1,048,576, processes 1 to 4,096, buffer shift 12 to 24"
    )]
    Limits,
    /// There are as many guests as there can be.
    #[error("the engine has 65,536 guests, which is the most; start another engine")]
    Guests,
    /// The engine's thread has ended.
    #[error("the engine has ended; start it again")]
    Ended,
}

/// Makes an [`EngineError::System`] of the kernel's error.
pub(crate) fn system(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> EngineError {
    move |source| EngineError::System { what, source }
}
