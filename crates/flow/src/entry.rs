// SPDX-License-Identifier: Apache-2.0
//! What the table remembers of one flow, as plain data. [`export`] has its form as bytes.

pub mod export;

use crate::key::{FlowHash, FlowKey};
use crate::level::Step;
use bartizan_base::{Direction, Fid, Generation, Level, Path, PerDirection, TenantId, Timestamp};
use core::net::IpAddr;

/// The state of a flow as EVE knows it. TCP's own states are the TCP module's.
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
    /// The packets stayed at a lower level until the flow was over. Before, a flow that has sunk keeps the
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

/// Why a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EndReason {
    /// It was silent for its timeout.
    Timeout = 0,
    /// It made room for another: the table was full.
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
    /// Marks of a flow. Exports hold them by number, so one that is no more leaves its place empty.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FlowFlags: u32 {
        /// A packet to the server was seen (ICMP errors about the flow do not count).
        const TO_SERVER_SEEN = 1;
        /// A packet to the client was seen.
        const TO_CLIENT_SEEN = 1 << 1;
        /// Picked up the wrong way round and turned: see [`FlowEntry::flip`].
        const FLIPPED = 1 << 2;
        /// A rule alerted on it: EVE's `flow.alerted`.
        const ALERTED = 1 << 3;
        /// Ended, or was created, in emergency mode.
        const EMERGENCY = 1 << 10;
        /// More came to the server within an interval than [`crate::rate::RateLimit`] says.
        const ELEPHANT_TO_SERVER = 1 << 13;
        /// The same of the client.
        const ELEPHANT_TO_CLIENT = 1 << 14;
        /// Every packet so far was refused by its headers: nobody has opened the flow. Set by
        /// `FlowTable::note_unopened`.
        const UNOPENED = 1 << 15;
    }
}

impl FlowFlags {
    /// The mark that a packet in a direction was seen.
    #[must_use]
    pub const fn seen(direction: Direction) -> Self {
        match direction {
            Direction::ToServer => Self::TO_SERVER_SEEN,
            Direction::ToClient => Self::TO_CLIENT_SEEN,
        }
    }

    /// The mark that more than a rate came in a direction.
    #[must_use]
    pub const fn elephant(direction: Direction) -> Self {
        match direction {
            Direction::ToServer => Self::ELEPHANT_TO_SERVER,
            Direction::ToClient => Self::ELEPHANT_TO_CLIENT,
        }
    }
}

/// One flow: what this crate keeps, and `ext`, what the data plane keeps.
///
/// The first cache line is the identity, the second what every packet writes.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct FlowEntry<E> {
    pub(crate) key: FlowKey,

    /// When the latest packet was seen, at any level.
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
    /// Marks.
    pub flags: FlowFlags,
    pub(crate) state: FlowState,
    pub(crate) level: Level,
    pub(crate) step: Step,

    /// When the first packet was seen.
    pub start: Timestamp,
    /// The generation that classified the flow.
    pub generation: Generation,
    /// Position in the order of creation, from 1; 0 marks an entry that holds no flow.
    pub(crate) serial: u64,
    /// What the data plane keeps for the flow.
    pub ext: E,
}

impl<E> FlowEntry<E> {
    /// Identity, as the opener of the flow sees it: `source()` is the client.
    #[must_use]
    pub const fn key(&self) -> &FlowKey {
        &self.key
    }

    /// Whether no level below the host holds an entry for it, or may.
    #[must_use]
    pub const fn is_at_host(&self) -> bool {
        self.step.at_host()
    }

    /// State. Changed through `FlowTable::set_state`, which also moves the timer.
    #[must_use]
    pub const fn state(&self) -> FlowState {
        self.state
    }

    /// Where the flow's packets are handled: the host, until a level says that it has the flow.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.level
    }

    /// How far it has come on its way to a level or back.
    #[must_use]
    pub const fn step(&self) -> Step {
        self.step
    }

    /// Keyed hash of the identity.
    #[must_use]
    pub const fn hash(&self) -> FlowHash {
        self.hash
    }

    /// Whose flow it is.
    #[must_use]
    pub const fn tenant(&self) -> TenantId {
        self.key.tenant()
    }

    /// Position in the order of creation within its table, from 1. With the entry's index it
    /// names the flow for good, also after the entry was used again.
    #[must_use]
    pub const fn serial(&self) -> u64 {
        self.serial
    }

    /// Whether packets of both directions were seen.
    #[must_use]
    pub const fn both_seen(&self) -> bool {
        self.flags.contains(FlowFlags::TO_SERVER_SEEN.union(FlowFlags::TO_CLIENT_SEEN))
    }

    /// Whether every packet so far was refused by its headers, so that nobody has opened the flow.
    #[inline]
    #[must_use]
    pub const fn is_unopened(&self) -> bool {
        self.flags.contains(FlowFlags::UNOPENED)
    }

    /// Whether more came in a direction within an interval than [`crate::rate::RateLimit`] says.
    #[must_use]
    pub const fn is_elephant(&self) -> bool {
        self.flags.intersects(FlowFlags::ELEPHANT_TO_SERVER.union(FlowFlags::ELEPHANT_TO_CLIENT))
    }

    /// Turns the flow round: it was picked up from the server's side. Everything of this crate
    /// is exchanged; `ext` is the caller's.
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

    /// The direction that an ICMP error about this flow is counted in: to the server only if the
    /// client itself sent it.
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
        // What levels need took spare bytes only: as large as it was when there was no level but the host.
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
