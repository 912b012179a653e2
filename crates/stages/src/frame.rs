// SPDX-License-Identifier: Apache-2.0
//! A frame as it is handed in, its place in the run, and the data of an outer packet that inner packets
//! report.

use bartizan_base::{Decision, LinkId, Reason, Timestamp, Verdict};
use bartizan_packet::{Decoded, LinkType, PacketSource, TransportLayer};
use core::net::IpAddr;

/// A frame as a port or capture hands it over.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Time of the packet clock.
    pub now: Timestamp,
    /// Captured bytes.
    pub bytes: &'a [u8],
    /// Length on the wire.
    pub wire_len: u32,
    /// Type of the first header.
    pub link_type: LinkType,
    /// The link on which the frame arrived.
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

/// Maximum nesting of reassembled datagrams in reassembled datagrams.
pub const MAX_DEPTH: u8 = 4;

/// The outer packet of a tunnel or of fragments.
#[derive(Clone, Copy, Debug)]
pub struct OuterHeader {
    /// Source and destination.
    pub addresses: (IpAddr, IpAddr),
    /// Ports, if its protocol has ports.
    pub ports: Option<(u16, u16)>,
    /// IP protocol.
    pub protocol: u8,
    /// Number of its frame.
    pub number: Option<u64>,
    /// Source of the packet.
    pub source: PacketSource,
}

impl OuterHeader {
    /// The outer packet's data for the records of its inner packets. `None`: it has no addresses.
    pub fn of(packet: &Decoded, number: Option<u64>) -> Option<OuterHeader> {
        let ports = match &packet.transport {
            TransportLayer::Tcp(tcp) => Some((tcp.sport, tcp.dport)),
            TransportLayer::Udp(udp) => Some((udp.sport, udp.dport)),
            _ => None,
        };
        let addresses = (packet.src()?, packet.dst()?);
        Some(OuterHeader { addresses, ports, protocol: packet.proto()?, number, source: packet.source })
    }
}

/// The decision on the packets that a packet carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inside {
    /// All are forwarded, or there are none.
    #[default]
    Passed,
    /// A staged policy would refuse one of them.
    WouldBeRefused,
    /// One of them was refused; it is dropped, and the outer packet with it.
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

/// The position of a packet in its frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketPosition<'a> {
    /// Whether the packet was found in a tunnel or reassembled from fragments, and is thus not a frame of
    /// the capture.
    pub made: bool,
    /// The outer packet.
    pub around: Option<&'a OuterHeader>,
    /// The packet carries other packets, which were handled first.
    pub carries: bool,
    /// The decision on the packets that the packet carries.
    pub inside: Inside,
    /// The reason to drop a fragment, or what may be one.
    pub refused: Option<Reason>,
}

impl From<bool> for PacketPosition<'_> {
    fn from(made: bool) -> Self {
        PacketPosition { made, ..PacketPosition::default() }
    }
}
