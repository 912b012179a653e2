// SPDX-License-Identifier: Apache-2.0
//! A frame as it is handed in, its place in the run, and what is told of a packet around another one.

use bartizan_base::{Decision, LinkId, Reason, Timestamp, Verdict};
use bartizan_packet::{Decoded, LinkType, PacketSource, Transport};
use core::net::IpAddr;

/// A frame as a port or capture hands it over.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Packet clock.
    pub now: Timestamp,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Length on the wire.
    pub wire_len: u32,
    /// What it starts with.
    pub link_type: LinkType,
    /// What it came in by.
    pub link: LinkId,
    /// Number in the capture, from 1.
    pub number: Option<u64>,
}

/// The place of a frame's next packet. The lowest byte counts packets.
pub const fn next_packet(place: u64) -> u64 {
    if place & 0xff == 0xff { place } else { place + 1 }
}

/// The place after a frame's last packet. The lowest byte counts packets.
pub const fn next_frame(place: u64) -> u64 {
    ((place >> 8) + 1) << 8
}

/// Datagrams inside datagrams that are put together at most.
pub const MAX_DEPTH: u8 = 4;

/// A packet around another one.
#[derive(Clone, Copy, Debug)]
pub struct Around {
    /// Source and destination.
    pub addresses: (IpAddr, IpAddr),
    /// Ports, where its protocol has some.
    pub ports: Option<(u16, u16)>,
    /// IP protocol.
    pub protocol: u8,
    /// Number of its frame.
    pub number: Option<u64>,
    /// Where it came from.
    pub source: PacketSource,
}

impl Around {
    /// What is told of a packet around another one. `None`: it has no addresses.
    pub fn of(packet: &Decoded, number: Option<u64>) -> Option<Around> {
        let ports = match &packet.transport {
            Transport::Tcp(tcp) => Some((tcp.sport, tcp.dport)),
            Transport::Udp(udp) => Some((udp.sport, udp.dport)),
            _ => None,
        };
        let addresses = (packet.src()?, packet.dst()?);
        Some(Around { addresses, ports, protocol: packet.proto()?, number, source: packet.source })
    }
}

/// The decision on the packets that a packet carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inside {
    /// They go on, or there are none.
    #[default]
    Passed,
    /// A staged policy would refuse one of them.
    WouldBeRefused,
    /// One of them was refused: it does not go on, and neither does the packet around it.
    Refused,
}

impl From<Decision> for Inside {
    fn from(decision: Decision) -> Self {
        match (decision.verdict, decision.reason) {
            (Verdict::Drop | Verdict::Reject, _) => Inside::Refused,
            (Verdict::Continue, Some(_)) => Inside::WouldBeRefused,
            _ => Inside::Passed,
        }
    }
}

/// Where a packet was found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place<'a> {
    /// It is no packet of the capture: it was found in a tunnel or put together from fragments.
    pub made: bool,
    /// The packet around it.
    pub around: Option<&'a Around>,
    /// It carries other packets, which were handled before it.
    pub carries: bool,
    /// The decision on the packets that it carries.
    pub inside: Inside,
    /// A fragment, or what may be one, that must not go on.
    pub refused: Option<Reason>,
}

impl From<bool> for Place<'_> {
    fn from(made: bool) -> Self {
        Place { made, ..Place::default() }
    }
}
