// SPDX-License-Identifier: Apache-2.0
//! The table's state of one flow, as plain data. [`export`] has its serialised form.

pub mod export;

use crate::key::{FlowHash, FlowKey};
use crate::level::Step;
use bartizan_base::{Direction, Fid, Generation, Level, Path, PerDirection, TenantId, Timestamp};
use core::net::IpAddr;

/// The state of a flow in EVE's terms. The TCP module has TCP's own states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FlowState {
    /// One direction seen, or handshake not finished.
    #[default]
    New = 0,
    /// Both directions seen, or handshake finished.
    Established = 1,
    /// The TCP connection has ended.
    Closed = 2,
    /// No function is left; packets still pass through this program.
    LocalBypassed = 3,
    /// A lower level handled the packets until the flow was over. Until then, an offloaded flow keeps the
    /// state that it has at the host.
    CaptureBypassed = 4,
}

impl FlowState {
    /// Number of states.
    pub const COUNT: usize = 5;
    /// All, in the order of their numbers.
    pub const ALL: [FlowState; Self::COUNT] = [
        FlowState::New,
        FlowState::Established,
        FlowState::Closed,
        FlowState::LocalBypassed,
        FlowState::CaptureBypassed,
    ];

    /// EVE's `flow.state`.
    #[must_use]
    pub const fn eve_name(self) -> &'static str {
        match self {
            FlowState::New => "new",
            FlowState::Established => "established",
            FlowState::Closed => "closed",
            FlowState::LocalBypassed | FlowState::CaptureBypassed => "bypassed",
        }
    }

    /// EVE's `flow.bypass`, where the flow is bypassed.
    #[must_use]
    pub const fn eve_bypass(self) -> Option<&'static str> {
        match self {
            FlowState::LocalBypassed => Some("local"),
            FlowState::CaptureBypassed => Some("capture"),
            _ => None,
        }
    }
}

/// The reason of a flow's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EndReason {
    /// The flow was silent for its timeout.
    Timeout = 0,
    /// The flow made room for another: the table was full.
    Forced = 1,
    /// The program ends.
    Shutdown = 2,
    /// A new TCP connection uses the same ports.
    TcpReuse = 3,
}

impl EndReason {
    /// Number of reasons.
    pub const COUNT: usize = 4;

    /// EVE's `flow.reason`.
    #[must_use]
    pub const fn eve_name(self) -> &'static str {
        match self {
            EndReason::Timeout => "timeout",
            EndReason::Forced => "forced",
            EndReason::Shutdown => "shutdown",
            EndReason::TcpReuse => "tcp_reuse",
        }
    }
}

bitflags::bitflags! {
    /// Flags of a flow. Exports hold them by number, so a removed flag leaves its bit unused.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FlowFlags: u32 {
        /// A packet to the server was seen (ICMP errors about the flow do not count).
        const TO_SERVER_SEEN = 1;
        /// A packet to the client was seen.
        const TO_CLIENT_SEEN = 1 << 1;
        /// The flow was picked up in the wrong direction and reversed: see [`FlowEntry::flip`].
        const FLIPPED = 1 << 2;
        /// A rule raised an alert on the flow: EVE's `flow.alerted`.
        const ALERTED = 1 << 3;
        /// The flow ended, or was created, in emergency mode.
        const EMERGENCY = 1 << 10;
        /// More bytes to the server within an interval than [`crate::rate::RateLimit`] allows.
        const ELEPHANT_TO_SERVER = 1 << 13;
        /// More bytes to the client within an interval than the limit.
        const ELEPHANT_TO_CLIENT = 1 << 14;
        /// Every packet so far was refused by its headers, so the flow is unopened. Set by
        /// `FlowTable::note_unopened`.
        const UNOPENED = 1 << 15;
    }
}

impl FlowFlags {
    /// The flag for packets seen in a direction.
    #[must_use]
    pub const fn seen(direction: Direction) -> Self {
        match direction {
            Direction::ToServer => Self::TO_SERVER_SEEN,
            Direction::ToClient => Self::TO_CLIENT_SEEN,
        }
    }

    /// The flag for an elephant flow in a direction.
    #[must_use]
    pub const fn elephant(direction: Direction) -> Self {
        match direction {
            Direction::ToServer => Self::ELEPHANT_TO_SERVER,
            Direction::ToClient => Self::ELEPHANT_TO_CLIENT,
        }
    }
}

/// One flow: the state of this crate, and `ext`, the state of the data plane.
///
/// The first cache line is the identity, the second the fields that every packet writes.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct FlowEntry<E> {
    pub(crate) key: FlowKey,

    /// Time of the latest packet at any level.
    pub last_seen: Timestamp,
    /// Packets by direction, of all levels together; `FlowTable::amounts` has them by level.
    pub packets: PerDirection<u64>,
    /// Bytes by direction, of all levels together, as counted by the caller (EVE: whole frames).
    pub bytes: PerDirection<u64>,
    pub(crate) hash: FlowHash,
    /// The functions that the flow's packets still visit.
    pub path: Path,
    /// Class of the flow; 0 until it was classified.
    pub fid: Fid,
    /// Flags of the flow.
    pub flags: FlowFlags,
    pub(crate) state: FlowState,
    pub(crate) level: Level,
    pub(crate) step: Step,

    /// Time of the first packet.
    pub start: Timestamp,
    /// The generation that classified the flow.
    pub generation: Generation,
    /// Position in the order of creation, from 1; 0 marks an entry that holds no flow.
    pub(crate) serial: u64,
    /// The data plane's state for the flow.
    pub ext: E,
}

/// An entry with its parts borrowed each by itself: the path and the state of the data plane change while the
/// rest is read.
pub struct FlowEntryParts<'f, E> {
    /// Identity from the view of the flow's opener.
    pub key: &'f FlowKey,
    /// As in [`FlowEntry::last_seen`].
    pub last_seen: Timestamp,
    /// Time of the first packet.
    pub start: Timestamp,
    /// As in [`FlowEntry::packets`].
    pub packets: &'f PerDirection<u64>,
    /// As in [`FlowEntry::bytes`].
    pub bytes: &'f PerDirection<u64>,
    /// Class of the flow.
    pub fid: Fid,
    /// Flags of the flow.
    pub flags: FlowFlags,
    /// The functions that the flow's packets still visit.
    pub path: &'f mut Path,
    /// The data plane's state for the flow.
    pub ext: &'f mut E,
}

impl<E> FlowEntry<E> {
    /// Borrows the parts.
    #[inline]
    pub const fn parts(&mut self) -> FlowEntryParts<'_, E> {
        let FlowEntry { key, last_seen, start, packets, bytes, fid, flags, path, ext, .. } = self;
        FlowEntryParts {
            key,
            last_seen: *last_seen,
            start: *start,
            packets,
            bytes,
            fid: *fid,
            flags: *flags,
            path,
            ext,
        }
    }

    /// Identity from the view of the flow's opener: `source()` is the client.
    #[must_use]
    pub const fn key(&self) -> &FlowKey {
        &self.key
    }

    /// Whether no level below the host has an entry for the flow, or may have one.
    #[must_use]
    pub const fn is_at_host(&self) -> bool {
        self.step.at_host()
    }

    /// The state. `FlowTable::set_state` changes it together with the timer.
    #[must_use]
    pub const fn state(&self) -> FlowState {
        self.state
    }

    /// The level that handles the flow's packets: the host, until a level confirms that it has the flow.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.level
    }

    /// The step of the flow's offload or its removal.
    #[must_use]
    pub const fn step(&self) -> Step {
        self.step
    }

    /// Keyed hash of the identity.
    #[must_use]
    pub const fn hash(&self) -> FlowHash {
        self.hash
    }

    /// The tenant of the flow.
    #[must_use]
    pub const fn tenant(&self) -> TenantId {
        self.key.tenant()
    }

    /// Position in the order of creation within the table, from 1. Together with the entry's index it names
    /// the flow uniquely, even after the entry is reused.
    #[must_use]
    pub const fn serial(&self) -> u64 {
        self.serial
    }

    /// Whether packets of both directions were seen.
    #[must_use]
    pub const fn both_seen(&self) -> bool {
        self.flags.contains(FlowFlags::TO_SERVER_SEEN.union(FlowFlags::TO_CLIENT_SEEN))
    }

    /// Whether every packet so far was refused by its headers, so that the flow is unopened.
    #[inline]
    #[must_use]
    pub const fn is_unopened(&self) -> bool {
        self.flags.contains(FlowFlags::UNOPENED)
    }

    /// Whether a direction had more bytes within an interval than [`crate::rate::RateLimit`] allows.
    #[must_use]
    pub const fn is_elephant(&self) -> bool {
        self.flags.intersects(FlowFlags::ELEPHANT_TO_SERVER.union(FlowFlags::ELEPHANT_TO_CLIENT))
    }

    /// Reverses a flow that was picked up from the server's side. Swaps everything of this crate; `ext` is up
    /// to the caller.
    pub fn flip(&mut self) {
        self.key = self.key.flipped();
        self.packets.swap();
        self.bytes.swap();
        for mark in [FlowFlags::seen, FlowFlags::elephant] {
            let (server, client) = (mark(Direction::ToServer), mark(Direction::ToClient));
            let (had_server, had_client) = (self.flags.contains(server), self.flags.contains(client));
            self.flags.set(server, had_client);
            self.flags.set(client, had_server);
        }
        self.flags.toggle(FlowFlags::FLIPPED);
    }

    /// The direction in which an ICMP error about this flow is counted: to the server only if the client
    /// itself sent it.
    #[must_use]
    pub fn icmp_error_direction(&self, sender: IpAddr) -> Direction {
        if self.key.source() == sender { Direction::ToServer } else { Direction::ToClient }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_keeps_the_fast_path_in_two_lines() {
        assert_eq!(core::mem::offset_of!(FlowEntry<()>, last_seen), 64);
        assert_eq!(core::mem::offset_of!(FlowEntry<()>, start), 128);
        // The state of levels uses spare bytes only: the entry is as large as without levels.
        assert_eq!(core::mem::offset_of!(FlowEntry<u64>, ext), 152);
        assert_eq!(size_of::<FlowEntry<[u64; 5]>>(), 192);
    }

    #[test]
    fn turning_a_flow_round_exchanges_its_sides() {
        let mut entry = export::tests::sample(false);
        let (client, server) = (entry.key().source(), entry.key().destination());
        entry.flip();
        assert_eq!((entry.key().source(), entry.key().destination()), (server, client));
        assert_eq!(entry.packets, PerDirection::new(2, 3));
        assert!(entry.flags.contains(FlowFlags::TO_CLIENT_SEEN | FlowFlags::FLIPPED));
        assert!(!entry.flags.contains(FlowFlags::TO_SERVER_SEEN));
        assert_eq!(entry.icmp_error_direction(client), Direction::ToClient);
        assert_eq!(entry.icmp_error_direction(server), Direction::ToServer);
    }
}
