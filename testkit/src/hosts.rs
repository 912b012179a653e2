// SPDX-License-Identifier: Apache-2.0
//! Plain packets between numbered hosts, layer by layer: `ethernet(v6, &ip(v6, (1, 2), UDP, &udp(ports,
//! b"?")))`.
//!
//! Lengths and checksums are right: [`ip`] knows the addresses and fills in the checksum of its payload.

use crate::packet::{Datagram, Ip, IpFixed, Segment, UDP};

pub use crate::layers::{ethernet_ip as ethernet, gre};
pub use crate::packet::address;

/// The numbers of two hosts, or of two ports: from and to.
pub type Ends<N> = (N, N);

/// The IP header between two hosts; its datagrams may be fragmented.
#[must_use]
pub fn header(v6: bool, ends: Ends<u8>, protocol: u8) -> Ip {
    let fixed = IpFixed { flags: Some(0), ..IpFixed::default() };
    Ip { id: 7, fixed, ..Ip::new(address(v6, ends.0), address(v6, ends.1), protocol) }
}

/// An IP packet around a transport header and payload, whose checksum is corrected.
#[must_use]
pub fn ip(v6: bool, ends: Ends<u8>, protocol: u8, body: &[u8]) -> Vec<u8> {
    let header = header(v6, ends, protocol);
    header.packet(&header.summed(body), None)
}

/// An IP packet with the body's checksum unchanged.
#[must_use]
pub fn ip_as_is(v6: bool, ends: Ends<u8>, protocol: u8, body: &[u8]) -> Vec<u8> {
    header(v6, ends, protocol).packet(body, None)
}

/// The fragments of a datagram, `size` bytes each (a multiple of 8).
#[must_use]
pub fn fragments(v6: bool, ends: Ends<u8>, protocol: u8, id: u32, body: &[u8], size: usize) -> Vec<Vec<u8>> {
    let header = Ip { id, fixed: IpFixed::default(), ..header(v6, ends, protocol) };
    header.fragments(&header.summed(body), size)
}

/// A datagram, for [`ip`].
#[must_use]
pub fn udp(ports: Ends<u16>, load: &[u8]) -> Vec<u8> {
    Datagram::new(ports, load).unsummed()
}

/// A segment, for [`ip`].
#[must_use]
pub fn tcp(ports: Ends<u16>, seq: u32, ack: u32, flags: u8, load: &[u8]) -> Vec<u8> {
    Segment::new(ports, (seq, ack), u16::from(flags), load).unsummed()
}

/// ICMP (IPv4) port unreachable about a packet, for [`ip`].
#[must_use]
pub fn unreachable(quoted: &[u8]) -> Vec<u8> {
    [&[3, 3, 0, 0, 0, 0, 0, 0], &quoted[..quoted.len().min(28)]].concat()
}

/// The form of a marked packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A plain packet.
    Plain,
    /// The packet in fragments.
    Fragmented,
    /// The packet in GRE over the other version of IP.
    Tunnel,
    /// A tunnel packet in fragments.
    FragmentedTunnel,
}

const MARK: &[u8; 4] = b"mark";

/// A payload with the numbers of its flow and packet; [`read_mark`] reads it.
#[must_use]
pub fn mark(flow: u32, number: u32, size: usize) -> Vec<u8> {
    let mut payload = MARK.to_vec();
    payload.extend_from_slice(&flow.to_be_bytes());
    payload.extend_from_slice(&number.to_be_bytes());
    payload.resize(size.max(12), b'.');
    payload
}

/// Flow and number that [`mark`] put into a payload.
#[must_use]
pub fn read_mark(payload: &[u8]) -> Option<(u32, u32)> {
    let rest = payload.strip_prefix(MARK)?;
    let (flow, rest) = rest.split_first_chunk()?;
    let (number, _) = rest.split_first_chunk()?;
    Some((u32::from_be_bytes(*flow), u32::from_be_bytes(*number)))
}

/// The frames of one marked UDP packet of a flow.
#[must_use]
pub fn marked(v6: bool, flow: u32, number: u32, shape: Shape) -> Vec<Vec<u8>> {
    marked_saying(v6, flow, number, shape, b"")
}

/// As [`marked`], with a word in the payload.
#[must_use]
pub fn marked_saying(v6: bool, flow: u32, number: u32, shape: Shape, word: &[u8]) -> Vec<Vec<u8>> {
    let (ends, body) = marked_datagram(v6, flow, number, word);
    shaped(v6, ends, flow << 8 | number, shape, &body)
}

/// As [`marked`], with a checksum of UDP that is wrong.
#[must_use]
pub fn marked_wrong(v6: bool, flow: u32, number: u32, shape: Shape) -> Vec<Vec<u8>> {
    let (ends, mut body) = marked_datagram(v6, flow, number, b"");
    body[7] ^= 1;
    shaped(v6, ends, flow << 8 | number, shape, &body)
}

fn marked_datagram(v6: bool, flow: u32, number: u32, word: &[u8]) -> (Ends<u8>, Vec<u8>) {
    let (mut ends, mut ports) = (((flow % 5) as u8 + 1, (flow % 3) as u8 + 100), (1000 + flow as u16, 2000));
    if number % 3 == 2 {
        ends = (ends.1, ends.0);
        ports = (ports.1, ports.0);
    }
    let mut payload = mark(flow, number, 64);
    payload[12..12 + word.len()].copy_from_slice(word);
    (ends, header(v6, ends, UDP).summed(&udp(ports, &payload)))
}

/// The frames of a whole datagram.
fn shaped(v6: bool, ends: Ends<u8>, id: u32, shape: Shape, datagram: &[u8]) -> Vec<Vec<u8>> {
    let plain = || ip_as_is(v6, ends, UDP, datagram);
    // Outer and inner version differ, so each version is tunnelled in the other.
    let outside = header(!v6, (200, 201), 47);
    let pieces = |header: &Ip, body: &[u8], size: usize| {
        Ip { id, fixed: IpFixed::default(), ..header.clone() }.fragments(body, size)
    };
    match shape {
        Shape::Plain => vec![ethernet(v6, &plain())],
        Shape::Fragmented => {
            let all = pieces(&header(v6, ends, UDP), datagram, 24);
            all.iter().map(|piece| ethernet(v6, piece)).collect()
        }
        Shape::Tunnel => vec![ethernet(!v6, &outside.packet(&gre(v6, &plain()), None))],
        Shape::FragmentedTunnel => {
            let all = pieces(&outside, &gre(v6, &plain()), 40);
            all.iter().map(|piece| ethernet(!v6, piece)).collect()
        }
    }
}
