// SPDX-License-Identifier: Apache-2.0
//! Packets by their fields, right ones and wrong ones, as frames; and the kernel's answers.
//!
//! Made without the decoder under test. Fields that are not set by hand (lengths, checksums, offsets) are
//! computed when the frame is made. [`tcp`], [`udp`] and [`icmp`] make plain packets; their public fields can
//! then be changed.

mod answer;
mod ip;
mod tcp;
mod udp;

pub use answer::{Answer, parse};
pub use ip::{
    CLIENT_MAC, Extension, ICMP, ICMPV6, Ip, IpFixed, Piece, SERVER_MAC, TCP, UDP, address, sum,
    sum_ipv4_header,
};
pub use tcp::{ACK, FIN, PSH, RST, SYN, Segment, URG};
pub use udp::Datagram;

use std::net::IpAddr;

/// An address and a port.
pub type End = (IpAddr, u16);

/// A packet.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The IP header.
    pub ip: Ip,
    /// The payload of the IP header.
    pub layer: Layer,
    /// The part of a datagram that it is, if a fragment.
    pub piece: Option<Piece>,
}

/// The payload of a packet.
#[derive(Clone, Debug)]
pub enum Layer {
    /// A segment.
    Tcp(Segment),
    /// A datagram.
    Udp(Datagram),
    /// A part of either, or other bytes.
    Part(Vec<u8>),
}

impl Packet {
    /// A segment.
    #[must_use]
    pub fn tcp(ip: &Ip, segment: Segment) -> Self {
        Packet { ip: ip.clone(), layer: Layer::Tcp(segment), piece: None }
    }

    /// Transport header and payload.
    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        match &self.layer {
            Layer::Tcp(segment) => segment.bytes(&self.ip),
            Layer::Udp(datagram) => datagram.bytes(&self.ip),
            Layer::Part(bytes) => bytes.clone(),
        }
    }

    /// The packet without a frame.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.ip.packet(&self.payload(), self.piece)
    }

    /// The frame.
    #[must_use]
    pub fn frame(&self) -> Vec<u8> {
        self.ip.frame(&self.payload(), self.piece)
    }
}

/// A TCP segment; `numbers`: sequence and acknowledgment.
#[must_use]
pub fn tcp(from: End, to: End, numbers: (u32, u32), flags: u8, load: &[u8]) -> Packet {
    let segment = Segment::new((from.1, to.1), numbers, u16::from(flags), load);
    Packet::tcp(&Ip::new(from.0, to.0, TCP), segment)
}

/// A UDP datagram.
#[must_use]
pub fn udp(from: End, to: End, load: &[u8]) -> Packet {
    let layer = Layer::Udp(Datagram::new((from.1, to.1), load));
    Packet { ip: Ip::new(from.0, to.0, UDP), layer, piece: None }
}

/// An ICMP message of the version of its addresses. `kind`: types of ICMP and of ICMPv6; `rest`: all bytes
/// after the checksum.
#[must_use]
pub fn icmp(from: IpAddr, to: IpAddr, kind: (u8, u8), code: u8, rest: &[u8]) -> Packet {
    let (protocol, kind) = if from.is_ipv4() { (ICMP, kind.0) } else { (ICMPV6, kind.1) };
    let ip = Ip::new(from, to, protocol);
    let bytes = ip.summed(&[&[kind, code, 0, 0], rest].concat());
    Packet { ip, layer: Layer::Part(bytes), piece: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_read_and_its_checksums_are_right() {
        for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let ip = Ip::new(src.parse().unwrap(), dst.parse().unwrap(), TCP);
            let segment = Segment {
                sport: 1,
                dport: 2,
                seq: 3,
                ack: 4,
                flags: SYN | ACK,
                options: vec![(2, vec![5, 180]), (1, vec![]), (3, vec![7])],
                load: b"odd".to_vec(),
                ..Segment::default()
            };
            let bytes = segment.bytes(&ip);
            assert_eq!(ip.transport_sum(TCP, &bytes), 0, "a sum over the right checksum is 0");
            let answer = parse(&ip.frame(&bytes, None)).unwrap();
            assert_eq!((answer.src.to_string(), answer.dst.to_string()), (src.into(), dst.into()));
            let read = answer.segment;
            assert_eq!((read.sport, read.dport, read.seq, read.ack, read.flags), (1, 2, 3, 4, SYN | ACK));
            assert_eq!((read.options, read.load), (vec![(2, vec![5, 180]), (3, vec![7])], b"odd".to_vec()));
            let datagram = Datagram::new((5, 6), b"load");
            assert_eq!(ip.transport_sum(UDP, &datagram.bytes(&ip)), 0);
            let ip = Ip { protocol: UDP, ..ip };
            assert_eq!(ip.summed(&datagram.unsummed()), datagram.bytes(&ip));
        }
    }

    #[test]
    fn sums_are_those_of_rfc_1071_whatever_the_length() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(sum(0, &bytes), 0xddf2);
        for length in 0..bytes.len() {
            let pairs = bytes[..length].chunks(2);
            let slow: u32 =
                pairs.map(|p| u32::from(p[0]) << 8 | u32::from(p.get(1).copied().unwrap_or(0))).sum();
            assert_eq!(u32::from(sum(0, &bytes[..length])), (slow & 0xffff) + (slow >> 16), "{length}");
        }
        assert_eq!(sum(0xffff_ffff, &[0xff; 9]), 0xff00);
    }

    #[test]
    fn pieces_and_extension_headers_stand_where_they_belong() {
        let mut ip = Ip::new("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap(), UDP);
        ip.extensions.push((60, vec![0, 1, 4, 0, 0, 0, 0]));
        ip.id = 0x0102_0304;
        let frame = ip.frame(&[9; 8], Some(Piece { offset: 16, more: true }));
        assert_eq!(frame[20], 60, "the destination header first");
        assert_eq!(frame[54..70], [44, 0, 1, 4, 0, 0, 0, 0, 17, 0, 0, 17, 1, 2, 3, 4]);
        let mut ip = Ip::new("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap(), UDP);
        ip.options = vec![1, 1, 1];
        let frame = ip.frame(&[9; 8], Some(Piece { offset: 16, more: false }));
        assert_eq!((frame[14], &frame[20..22]), (0x46, &[0, 2][..]));
        assert_eq!(sum(0, &frame[14..38]), 0xffff);
    }
}
