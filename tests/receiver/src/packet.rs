// SPDX-License-Identifier: Apache-2.0
//! Packets by their fields, right ones and wrong ones, as frames; and the kernel's answers.
//!
//! Made without the decoder under test. Fields that are not set by hand (lengths, checksums, offsets) are computed
//! when the frame is made (RFC 791, 8200, 9293, 768).

use std::net::IpAddr;

/// TCP flags.
pub const FIN: u16 = 1;
/// Of a beginning.
pub const SYN: u16 = 2;
/// Of a reset.
pub const RST: u16 = 4;
/// Push.
pub const PSH: u16 = 8;
/// The acknowledgment holds.
pub const ACK: u16 = 16;
/// The urgent pointer holds.
pub const URG: u16 = 32;

/// Protocol numbers.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;

/// MAC address of the receivers.
pub const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// MAC address of the hosts that exist only here.
pub const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];

/// An IPv6 extension header before the fragment header: its number, and its bytes behind the next header field.
pub type Extension = (u8, Vec<u8>);

/// Which part of a datagram a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins, in bytes.
    pub offset: usize,
    /// More follows.
    pub more: bool,
}

/// What is set by hand in the IP header.
#[derive(Clone, Debug, Default)]
pub struct IpFixed {
    /// The IP version.
    pub version: Option<u8>,
    /// Header length in words, IPv4.
    pub ihl: Option<u8>,
    /// Total length (IPv4) or payload length.
    pub len: Option<u16>,
    /// Header checksum, IPv4.
    pub chksum: Option<u16>,
    /// The three flag bits, IPv4.
    pub flags: Option<u8>,
    /// Fragment offset in units of 8.
    pub frag: Option<u16>,
    /// The protocol, or the last next header.
    pub proto: Option<u8>,
}

/// An IP header.
#[derive(Clone, Debug)]
pub struct Ip {
    /// From.
    pub src: IpAddr,
    /// To.
    pub dst: IpAddr,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Type of service, or traffic class.
    pub tos: u8,
    /// Identification; 16 bits of it in IPv4.
    pub id: u32,
    /// IPv4 options, padded here.
    pub options: Vec<u8>,
    /// IPv6 extension headers.
    pub extensions: Vec<Extension>,
    /// Of the payload.
    pub protocol: u8,
    /// The frame's destination.
    pub mac: [u8; 6],
    /// Bytes behind the packet.
    pub trailer: usize,
    /// VLAN tags before it, outermost first: priority, "drop eligible" and id.
    pub tags: Vec<u16>,
    /// By hand.
    pub fixed: IpFixed,
}

impl Ip {
    /// A plain one.
    #[must_use]
    pub fn new(src: IpAddr, dst: IpAddr, protocol: u8) -> Self {
        Ip {
            src,
            dst,
            ttl: 64,
            tos: 0,
            id: 0,
            options: Vec::new(),
            extensions: Vec::new(),
            protocol,
            mac: SERVER_MAC,
            trailer: 0,
            tags: Vec::new(),
            fixed: IpFixed::default(),
        }
    }

    /// The frame around a payload.
    #[must_use]
    pub fn frame(&self, payload: &[u8], piece: Option<Piece>) -> Vec<u8> {
        let mut frame = Vec::with_capacity(payload.len() + 100);
        frame.extend_from_slice(&self.mac);
        frame.extend_from_slice(&CLIENT_MAC);
        for tag in &self.tags {
            frame.extend_from_slice(&[0x81, 0]);
            frame.extend_from_slice(&tag.to_be_bytes());
        }
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                frame.extend_from_slice(&[8, 0]);
                let header = self.v4(src.octets(), dst.octets(), payload.len(), piece);
                frame.extend_from_slice(&header);
                frame.extend_from_slice(payload);
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                frame.extend_from_slice(&[0x86, 0xdd]);
                let (first, chain) = self.chain(piece);
                let length = self.fixed.len.unwrap_or((chain.len() + payload.len()) as u16);
                let version = self.fixed.version.unwrap_or(6);
                frame.extend_from_slice(&[version << 4 | self.tos >> 4, self.tos << 4, 0, 0]);
                frame.extend_from_slice(&length.to_be_bytes());
                frame.extend_from_slice(&[first, self.ttl]);
                frame.extend_from_slice(&src.octets());
                frame.extend_from_slice(&dst.octets());
                frame.extend_from_slice(&chain);
                frame.extend_from_slice(payload);
            }
            // Addresses of two versions do not make a packet.
            _ => {}
        }
        frame.resize(frame.len() + self.trailer, b'T');
        frame
    }

    fn v4(&self, src: [u8; 4], dst: [u8; 4], payload: usize, piece: Option<Piece>) -> Vec<u8> {
        let fixed = &self.fixed;
        let mut options = self.options.clone();
        options.resize(options.len().next_multiple_of(4).min(40), 0);
        let words = 5 + options.len() / 4;
        let mut header =
            vec![fixed.version.unwrap_or(4) << 4 | fixed.ihl.unwrap_or(words as u8) & 15, self.tos];
        header.extend_from_slice(&fixed.len.unwrap_or((words * 4 + payload) as u16).to_be_bytes());
        header.extend_from_slice(&(self.id as u16).to_be_bytes());
        let (flags, offset) = match piece {
            Some(piece) => (u8::from(piece.more), (piece.offset / 8) as u16),
            None => (2, 0),
        };
        let place = u16::from(fixed.flags.unwrap_or(flags)) << 13 | fixed.frag.unwrap_or(offset) & 0x1fff;
        header.extend_from_slice(&place.to_be_bytes());
        header.extend_from_slice(&[self.ttl, fixed.proto.unwrap_or(self.protocol), 0, 0]);
        header.extend_from_slice(&src);
        header.extend_from_slice(&dst);
        header.extend_from_slice(&options);
        let sum = fixed.chksum.unwrap_or_else(|| !sum(0, &header));
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    }

    /// The first next header, and the extension headers.
    fn chain(&self, piece: Option<Piece>) -> (u8, Vec<u8>) {
        let mut headers = self.extensions.clone();
        let fixed = &self.fixed;
        if piece.is_some() || fixed.frag.is_some() || fixed.flags.is_some_and(|flags| flags & 1 != 0) {
            let piece = piece.unwrap_or(Piece { offset: 0, more: false });
            let offset = fixed.frag.map_or(piece.offset as u16 & !7, |units| units << 3);
            let more = fixed.flags.map_or(piece.more, |flags| flags & 1 != 0);
            let mut bytes = vec![0];
            bytes.extend_from_slice(&(offset | u16::from(more)).to_be_bytes());
            bytes.extend_from_slice(&self.id.to_be_bytes());
            headers.push((44, bytes));
        }
        let last = fixed.proto.unwrap_or(self.protocol);
        let first = headers.first().map_or(last, |(kind, _)| *kind);
        let mut chain = Vec::new();
        for (at, (_, bytes)) in headers.iter().enumerate() {
            chain.push(headers.get(at + 1).map_or(last, |(kind, _)| *kind));
            chain.extend_from_slice(bytes);
        }
        (first, chain)
    }

    /// The checksum of a transport header and its payload, whose own checksum field is 0.
    #[must_use]
    pub fn transport_sum(&self, protocol: u8, bytes: &[u8]) -> u16 {
        let mut pseudo = Vec::with_capacity(40);
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                pseudo.extend_from_slice(&src.octets());
                pseudo.extend_from_slice(&dst.octets());
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                pseudo.extend_from_slice(&src.octets());
                pseudo.extend_from_slice(&dst.octets());
            }
            _ => {}
        }
        pseudo.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
        pseudo.extend_from_slice(&[0, 0, 0, protocol]);
        !sum(u32::from(sum(0, &pseudo)), bytes)
    }
}

/// The ones' complement sum of bytes.
#[must_use]
pub fn sum(begin: u32, bytes: &[u8]) -> u16 {
    let mut sum = begin;
    for pair in bytes.chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// A TCP segment.
#[derive(Clone, Debug, Default)]
pub struct Segment {
    /// From.
    pub sport: u16,
    /// To.
    pub dport: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Nine flags.
    pub flags: u16,
    /// Three reserved bits.
    pub reserved: u8,
    /// Window.
    pub window: u16,
    /// Urgent pointer.
    pub urgptr: u16,
    /// Options: kind and value; kinds 0 and 1 have none.
    pub options: Vec<(u8, Vec<u8>)>,
    /// Bytes behind the options that need not be an option.
    pub raw_options: Vec<u8>,
    /// Payload.
    pub load: Vec<u8>,
    /// Header length in words, set by hand.
    pub dataofs: Option<u8>,
    /// Checksum, set by hand.
    pub chksum: Option<u16>,
    /// Added to the right checksum.
    pub chksum_error: u16,
}

impl Segment {
    /// Header and payload.
    #[must_use]
    pub fn bytes(&self, ip: &Ip) -> Vec<u8> {
        let mut options = Vec::new();
        for (kind, value) in &self.options {
            options.push(*kind);
            if *kind > 1 {
                options.push(value.len() as u8 + 2);
                options.extend_from_slice(value);
            }
        }
        options.extend_from_slice(&self.raw_options);
        options.truncate(40);
        options.resize(options.len().next_multiple_of(4), 0);
        let mut bytes = Vec::with_capacity(60 + self.load.len());
        bytes.extend_from_slice(&self.sport.to_be_bytes());
        bytes.extend_from_slice(&self.dport.to_be_bytes());
        bytes.extend_from_slice(&self.seq.to_be_bytes());
        bytes.extend_from_slice(&self.ack.to_be_bytes());
        let words = self.dataofs.unwrap_or(5 + (options.len() / 4) as u8);
        bytes.push(words << 4 | (self.reserved & 7) << 1 | (self.flags >> 8 & 1) as u8);
        bytes.push(self.flags as u8);
        bytes.extend_from_slice(&self.window.to_be_bytes());
        bytes.extend_from_slice(&[0, 0]);
        bytes.extend_from_slice(&self.urgptr.to_be_bytes());
        bytes.extend_from_slice(&options);
        bytes.extend_from_slice(&self.load);
        let right = ip.transport_sum(TCP, &bytes).wrapping_add(self.chksum_error);
        bytes[16..18].copy_from_slice(&self.chksum.unwrap_or(right).to_be_bytes());
        bytes
    }
}

/// A UDP datagram; its checksum is right unless set by hand.
#[must_use]
pub fn udp(ip: &Ip, ports: (u16, u16), load: &[u8], chksum: Option<u16>, len: Option<u16>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 + load.len());
    bytes.extend_from_slice(&ports.0.to_be_bytes());
    bytes.extend_from_slice(&ports.1.to_be_bytes());
    bytes.extend_from_slice(&len.unwrap_or(8 + load.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&[0, 0]);
    bytes.extend_from_slice(load);
    let right = match ip.transport_sum(UDP, &bytes) {
        0 => 0xffff,
        sum => sum,
    };
    bytes[6..8].copy_from_slice(&chksum.unwrap_or(right).to_be_bytes());
    bytes
}

/// A transport packet that the kernel sent.
#[derive(Clone, Debug)]
pub struct Answer {
    /// From.
    pub src: IpAddr,
    /// To.
    pub dst: IpAddr,
    /// TCP, or a UDP datagram with `seq`, `ack` and `flags` 0.
    pub udp: bool,
    /// The segment.
    pub segment: Segment,
    /// Time to live.
    pub ttl: u8,
}

/// Reads a frame; none when it is neither a whole TCP segment nor a UDP datagram.
#[must_use]
pub fn parse(frame: &[u8]) -> Option<Answer> {
    let (src, dst, protocol, ttl, bytes) = match frame.get(12..14)? {
        [8, 0] => {
            let ip = frame.get(14..)?;
            let total = usize::from(u16::from_be_bytes([*ip.get(2)?, *ip.get(3)?]));
            let words = usize::from(ip[0] & 15);
            let address = |at: usize| Some(IpAddr::from(<[u8; 4]>::try_from(ip.get(at..at + 4)?).ok()?));
            (address(12)?, address(16)?, *ip.get(9)?, *ip.get(8)?, ip.get(words * 4..total)?)
        }
        [0x86, 0xdd] => {
            let ip = frame.get(14..)?;
            let length = usize::from(u16::from_be_bytes([*ip.get(4)?, *ip.get(5)?]));
            let address = |at: usize| Some(IpAddr::from(<[u8; 16]>::try_from(ip.get(at..at + 16)?).ok()?));
            (address(8)?, address(24)?, *ip.get(6)?, *ip.get(7)?, ip.get(40..40 + length)?)
        }
        _ => return None,
    };
    let half = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let mut segment = Segment { sport: half(0)?, dport: half(2)?, ..Segment::default() };
    match protocol {
        UDP => segment.load = bytes.get(8..)?.to_vec(),
        TCP => {
            let header = usize::from(*bytes.get(12)? >> 4) * 4;
            segment.seq = word(4)?;
            segment.ack = word(8)?;
            segment.flags = u16::from(*bytes.get(13)?) | u16::from(bytes[12] & 1) << 8;
            segment.window = half(14)?;
            segment.options = options(bytes.get(20..header)?);
            segment.load = bytes.get(header..)?.to_vec();
        }
        _ => return None,
    }
    Some(Answer { src, dst, udp: protocol == UDP, segment, ttl })
}

fn options(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut found = Vec::new();
    while let [kind, rest @ ..] = bytes {
        match (kind, rest) {
            (0, _) => break,
            (1, _) => bytes = rest,
            (_, [length, ..]) if *length >= 2 && usize::from(*length) <= bytes.len() => {
                found.push((*kind, bytes[2..usize::from(*length)].to_vec()));
                bytes = &bytes[usize::from(*length)..];
            }
            _ => break,
        }
    }
    found
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
            let datagram = udp(&ip, (5, 6), b"load", None, None);
            assert_eq!(ip.transport_sum(UDP, &datagram), 0);
        }
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
