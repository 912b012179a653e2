// SPDX-License-Identifier: Apache-2.0
//! What the table remembers of one flow, as plain data with a versioned export.
//!
//! Export format, little endian: version u8, length u16 of what follows, then the fields in the
//! order of [`FlowEntry::export`]. A later version may only append, so an older reader skips what it
//! does not know; the extension of the data plane is exported by the data plane.

use crate::key::{FlowHash, FlowKey};
use bartizan_base::{Cursor, Direction, Fid, Generation, Level, Path, PerDirection, TenantId, Timestamp};
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
    /// No function is left; the packets stay at a lower level.
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
    /// Marks of a flow.
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
        /// All further packets are dropped.
        const DROPPED = 1 << 4;
        /// A rule passed the whole flow.
        const PASSED = 1 << 5;
        /// No further inspection of payloads.
        const NO_PAYLOAD_INSPECTION = 1 << 6;
        /// No further inspection of packets.
        const NO_PACKET_INSPECTION = 1 << 7;
        /// One direction stays unseen: asymmetric routing.
        const ONE_SIDED = 1 << 8;
        /// Arrived at a worker that does not own it and was handed over.
        const HANDED_OVER = 1 << 9;
        /// Ended, or was created, in emergency mode.
        const EMERGENCY = 1 << 10;
        /// Since all its packets are dropped, a refusal of one to the server was told.
        const DROP_TOLD_TO_SERVER = 1 << 11;
        /// The same of one to the client.
        const DROP_TOLD_TO_CLIENT = 1 << 12;
    }
}

impl FlowFlags {
    /// The mark that a refusal in a direction was told since all packets are dropped.
    #[must_use]
    pub const fn drop_told(direction: Direction) -> Self {
        match direction {
            Direction::ToServer => Self::DROP_TOLD_TO_SERVER,
            Direction::ToClient => Self::DROP_TOLD_TO_CLIENT,
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

    /// When the latest packet was seen.
    pub last_seen: Timestamp,
    /// Packets by direction.
    pub packets: PerDirection<u64>,
    /// Bytes by direction, as counted by the caller (EVE: whole frames).
    pub bytes: PerDirection<u64>,
    pub(crate) hash: FlowHash,
    /// The functions that the flow's packets still visit.
    pub path: Path,
    /// Class of the flow; 0 until it was classified.
    pub fid: Fid,
    /// Marks.
    pub flags: FlowFlags,
    pub(crate) state: FlowState,
    /// Where the flow's packets are handled.
    pub level: Level,

    /// When the first packet was seen.
    pub start: Timestamp,
    /// The generation that classified the flow.
    pub generation: Generation,
    /// Position in the order of creation, from 1; 0 marks an entry that holds no flow.
    pub(crate) serial: u64,
    /// What the data plane keeps for the flow.
    pub ext: E,
}

/// Why an exported flow cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// Fewer bytes than the record says it has.
    #[error("flow record: cut off; export it again")]
    Short,
    /// Written by a format that this program cannot read.
    #[error(
        "flow record: version {found} is not readable, this program reads version 1 and later that only append"
    )]
    Version {
        /// The version byte found.
        found: u8,
    },
    /// A field holds a value that no flow can have.
    #[error("flow record: field {field} holds an impossible value; the record is damaged")]
    Field {
        /// The field's name.
        field: &'static str,
    },
}

const VERSION: u8 = 1;
/// Bytes of version 1 after version and length.
const LENGTH_V1: u16 = 7 * 8 + 1 + 6 * 8 + 3 * 4 + 2 + 8 + 8;

impl<E> FlowEntry<E> {
    /// Identity, as the opener of the flow sees it: `source()` is the client.
    #[must_use]
    pub const fn key(&self) -> &FlowKey {
        &self.key
    }

    /// State. Changed through `FlowTable::set_state`, which also moves the timer.
    #[must_use]
    pub const fn state(&self) -> FlowState {
        self.state
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

    /// Turns the flow round: it was picked up from the server's side. Everything of this crate
    /// is exchanged; `ext` is the caller's.
    pub fn flip(&mut self) {
        self.key = self.key.flipped();
        self.packets.swap();
        self.bytes.swap();
        let (server, client) = (FlowFlags::TO_SERVER_SEEN, FlowFlags::TO_CLIENT_SEEN);
        let (had_server, had_client) = (self.flags.contains(server), self.flags.contains(client));
        self.flags.set(server, had_client);
        self.flags.set(client, had_server);
        self.flags.toggle(FlowFlags::FLIPPED);
    }

    /// The direction that an ICMP error about this flow is counted in: to the server only if the
    /// client itself sent it.
    #[must_use]
    pub fn icmp_error_direction(&self, sender: IpAddr) -> Direction {
        if self.key.source() == sender { Direction::ToServer } else { Direction::ToClient }
    }

    /// Appends this crate's part of the flow in the current version.
    pub fn export(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        out.extend(LENGTH_V1.to_le_bytes());
        for word in self.key.words() {
            out.extend(word.to_le_bytes());
        }
        out.push(u8::from(self.key.is_reversed()));
        for number in [
            self.last_seen.as_nanos(),
            self.packets.to_server,
            self.packets.to_client,
            self.bytes.to_server,
            self.bytes.to_client,
            self.start.as_nanos(),
        ] {
            out.extend(number.to_le_bytes());
        }
        for number in [self.path.0, self.fid.0, self.flags.bits()] {
            out.extend(number.to_le_bytes());
        }
        out.extend([self.state as u8, self.level as u8]);
        out.extend(self.generation.0.to_le_bytes());
        out.extend(self.serial.to_le_bytes());
    }

    /// Reads one exported flow and says how many bytes it took. Its hash is computed when a
    /// table adopts it, since another instance has another secret.
    ///
    /// # Errors
    /// [`ImportError`] when the bytes are cut off, of another format, or damaged.
    pub fn import(bytes: &[u8], ext: E) -> Result<(Self, usize), ImportError> {
        let mut outer = Cursor::new(bytes);
        let version = outer.u8().ok_or(ImportError::Short)?;
        if version < VERSION {
            return Err(ImportError::Version { found: version });
        }
        let length = outer.u16_le().ok_or(ImportError::Short)?;
        let mut body = Cursor::new(outer.take(usize::from(length)).ok_or(ImportError::Short)?);
        let u64_le = |body: &mut Cursor<'_>| body.array().map(u64::from_le_bytes).ok_or(ImportError::Short);
        let mut words = [0; 7];
        for word in &mut words {
            *word = u64_le(&mut body)?;
        }
        let reversed = match body.u8().ok_or(ImportError::Short)? {
            0 => false,
            1 => true,
            _ => return Err(ImportError::Field { field: "reversed" }),
        };
        let key = FlowKey::from_words(words, reversed).ok_or(ImportError::Field { field: "key" })?;
        let last_seen = Timestamp::from_nanos(u64_le(&mut body)?);
        let packets = PerDirection::new(u64_le(&mut body)?, u64_le(&mut body)?);
        let bytes_seen = PerDirection::new(u64_le(&mut body)?, u64_le(&mut body)?);
        let start = Timestamp::from_nanos(u64_le(&mut body)?);
        let path = Path(body.u32_le().ok_or(ImportError::Short)?);
        let fid = Fid(body.u32_le().ok_or(ImportError::Short)?);
        let flags = FlowFlags::from_bits_truncate(body.u32_le().ok_or(ImportError::Short)?);
        let state = body.u8().ok_or(ImportError::Short)?;
        let state = FlowState::ALL.get(usize::from(state)).copied();
        let level = match body.u8().ok_or(ImportError::Short)? {
            0 => Level::Host,
            1 => Level::Xdp,
            2 => Level::Rtl,
            _ => return Err(ImportError::Field { field: "level" }),
        };
        let entry = Self {
            key,
            last_seen,
            packets,
            bytes: bytes_seen,
            hash: FlowHash(0),
            path,
            fid,
            flags,
            state: state.ok_or(ImportError::Field { field: "state" })?,
            level,
            start,
            generation: Generation(u64_le(&mut body)?),
            serial: u64_le(&mut body)?,
            ext,
        };
        Ok((entry, outer.position()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::FlowScope;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    fn sample(v6: bool) -> FlowEntry<()> {
        let address = |n: u8| -> IpAddr {
            if v6 { Ipv6Addr::from(u128::from(n)).into() } else { Ipv4Addr::new(10, 0, 0, n).into() }
        };
        FlowEntry {
            key: FlowKey::ported(
                &FlowScope { tenant: TenantId(3), tunnel: 7, ..FlowScope::default() },
                6,
                (address(9), 1000),
                (address(1), 80),
            ),
            last_seen: Timestamp::from_parts(20, 5),
            packets: PerDirection::new(3, 2),
            bytes: PerDirection::new(300, 200),
            hash: FlowHash(0),
            path: Path(5),
            fid: Fid(17),
            flags: FlowFlags::TO_SERVER_SEEN | FlowFlags::ALERTED,
            state: FlowState::Closed,
            level: Level::Xdp,
            start: Timestamp::from_parts(10, 1),
            generation: Generation(258),
            serial: 42,
            ext: (),
        }
    }

    fn text(entry: &FlowEntry<()>) -> String {
        format!("{entry:?}")
    }

    #[test]
    fn layout_keeps_the_fast_path_in_two_lines() {
        assert_eq!(core::mem::offset_of!(FlowEntry<()>, last_seen), 64);
        assert_eq!(core::mem::offset_of!(FlowEntry<()>, start), 128);
    }

    #[test]
    fn export_and_import_round_trip() {
        for v6 in [false, true] {
            let entry = sample(v6);
            let mut bytes = Vec::new();
            entry.export(&mut bytes);
            let length = bytes.len();
            assert_eq!(length, usize::from(LENGTH_V1) + 3);
            entry.export(&mut bytes);
            let (again, used) = FlowEntry::import(&bytes, ()).unwrap();
            assert_eq!(used, length);
            assert_eq!(text(&again), text(&entry));
            for cut in 0..length {
                assert!(FlowEntry::import(&bytes[..cut], ()).is_err(), "{cut}");
            }
        }
    }

    #[test]
    fn a_later_version_that_appends_is_read() {
        let mut bytes = Vec::new();
        sample(true).export(&mut bytes);
        bytes[0] = 2;
        bytes[1..3].copy_from_slice(&(LENGTH_V1 + 4).to_le_bytes());
        bytes.extend([1, 2, 3, 4, 99]);
        let (entry, used) = FlowEntry::import(&bytes, ()).unwrap();
        assert_eq!(used, bytes.len() - 1);
        assert_eq!(entry.serial(), 42);
        bytes[0] = 0;
        assert_eq!(FlowEntry::import(&bytes, ()).err(), Some(ImportError::Version { found: 0 }));
    }

    #[test]
    fn turning_a_flow_round_exchanges_its_sides() {
        let mut entry = sample(false);
        let (client, server) = (entry.key().source(), entry.key().destination());
        entry.flip();
        assert_eq!((entry.key().source(), entry.key().destination()), (server, client));
        assert_eq!(entry.packets, PerDirection::new(2, 3));
        assert!(entry.flags.contains(FlowFlags::TO_CLIENT_SEEN | FlowFlags::FLIPPED));
        assert!(!entry.flags.contains(FlowFlags::TO_SERVER_SEEN));
        assert_eq!(entry.icmp_error_direction(client), Direction::ToClient);
        assert_eq!(entry.icmp_error_direction(server), Direction::ToServer);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok((_, used)) = FlowEntry::import(&bytes, ()) {
                prop_assert!(used <= bytes.len());
            }
        }
    }
}
