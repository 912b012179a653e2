// SPDX-License-Identifier: Apache-2.0
//! IP headers, in Ethernet frames or without (RFC 791, 8200); Internet checksums (RFC 1071).

use std::net::IpAddr;

/// ICMP's protocol number.
pub const ICMP: u8 = 1;
/// TCP's protocol number.
pub const TCP: u8 = 6;
/// UDP's protocol number.
pub const UDP: u8 = 17;
/// ICMPv6's protocol number.
pub const ICMPV6: u8 = 58;

/// MAC address of the receivers.
pub const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// MAC address of the hosts that only tests simulate.
pub const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];

/// Address of a host by its number: 10.0.0.N, 2001:db8::N.
#[must_use]
pub fn address(v6: bool, host: u8) -> IpAddr {
    if v6 { [0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(host)].into() } else { [10, 0, 0, host].into() }
}

/// An IPv6 extension header before the fragment header: its number, and its bytes after the next header
/// field.
pub type Extension = (u8, Vec<u8>);

/// The part of a datagram that a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its offset, in bytes.
    pub offset: usize,
    /// Whether more follows.
    pub more: bool,
}

/// The fields of the IP header that are set by hand.
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
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Type of service, or traffic class.
    pub tos: u8,
    /// Identification; 16 bits of it in IPv4.
    pub id: u32,
    /// Flow label, IPv6.
    pub label: u32,
    /// IPv4 options, padded here.
    pub options: Vec<u8>,
    /// IPv6 extension headers.
    pub extensions: Vec<Extension>,
    /// The protocol of the payload.
    pub protocol: u8,
    /// The frame's destination.
    pub mac: [u8; 6],
    /// The frame's source.
    pub from_mac: [u8; 6],
    /// The number of bytes after the packet.
    pub trailer: usize,
    /// VLAN tags before it, outermost first: priority, "drop eligible" and id.
    pub tags: Vec<u16>,
    /// The fields set by hand.
    pub fixed: IpFixed,
}

impl Ip {
    /// A plain header.
    #[must_use]
    pub fn new(src: IpAddr, dst: IpAddr, protocol: u8) -> Self {
        Ip {
            src,
            dst,
            ttl: 64,
            tos: 0,
            id: 0,
            label: 0,
            options: Vec::new(),
            extensions: Vec::new(),
            protocol,
            mac: SERVER_MAC,
            from_mac: CLIENT_MAC,
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
        frame.extend_from_slice(&self.from_mac);
        for tag in &self.tags {
            frame.extend_from_slice(&[0x81, 0]);
            frame.extend_from_slice(&tag.to_be_bytes());
        }
        frame.extend_from_slice(if self.src.is_ipv4() { &[8, 0] } else { &[0x86, 0xdd] });
        self.put(&mut frame, payload, piece);
        frame.resize(frame.len() + self.trailer, b'T');
        frame
    }

    /// The packet around a payload, without a frame.
    #[must_use]
    pub fn packet(&self, payload: &[u8], piece: Option<Piece>) -> Vec<u8> {
        let mut packet = Vec::with_capacity(payload.len() + 80);
        self.put(&mut packet, payload, piece);
        packet
    }

    /// The pieces of a payload, `size` bytes each (a multiple of 8), without frames.
    #[must_use]
    pub fn fragments(&self, payload: &[u8], size: usize) -> Vec<Vec<u8>> {
        pieces(payload, size).map(|(piece, bytes)| self.packet(bytes, Some(piece))).collect()
    }

    /// The fragments as frames.
    #[must_use]
    pub fn fragment_frames(&self, payload: &[u8], size: usize) -> Vec<Vec<u8>> {
        pieces(payload, size).map(|(piece, bytes)| self.frame(bytes, Some(piece))).collect()
    }

    fn put(&self, out: &mut Vec<u8>, payload: &[u8], piece: Option<Piece>) {
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                out.extend_from_slice(&self.v4(src.octets(), dst.octets(), payload.len(), piece));
                out.extend_from_slice(payload);
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let (first, chain) = self.chain(piece);
                let length = self.fixed.len.unwrap_or((chain.len() + payload.len()) as u16);
                let version = self.fixed.version.unwrap_or(6);
                let [_, high, middle, low] = self.label.to_be_bytes();
                out.extend_from_slice(&[version << 4 | self.tos >> 4, self.tos << 4 | high, middle, low]);
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(&[first, self.ttl]);
                out.extend_from_slice(&src.octets());
                out.extend_from_slice(&dst.octets());
                out.extend_from_slice(&chain);
                out.extend_from_slice(payload);
            }
            _ => panic!("addresses of two versions do not make a packet: {} and {}", self.src, self.dst),
        }
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
        !sum(u32::from(self.pseudo_sum(protocol, bytes.len())), bytes)
    }

    /// The sum of the pseudo-header for so many bytes.
    #[must_use]
    pub fn pseudo_sum(&self, protocol: u8, length: usize) -> u16 {
        let of = |address: IpAddr, begin: u16| match address {
            IpAddr::V4(address) => sum(u32::from(begin), &address.octets()),
            IpAddr::V6(address) => sum(u32::from(begin), &address.octets()),
        };
        let [a, b, c, d] = (length as u32).to_be_bytes();
        sum(u32::from(of(self.dst, of(self.src, 0))), &[a, b, c, d, 0, 0, 0, protocol])
    }

    /// A payload that is a whole transport packet, with the right checksum for this header; a payload that is
    /// no TCP, UDP or ICMP, or too short for one, is unchanged.
    #[must_use]
    pub fn summed(&self, payload: &[u8]) -> Vec<u8> {
        let mut bytes = payload.to_vec();
        let place = match self.protocol {
            TCP => 16,
            UDP => 6,
            ICMP | ICMPV6 => 2,
            _ => return bytes,
        };
        if let Some(field) = bytes.get_mut(place..place + 2) {
            field.fill(0);
            let right = match self.protocol {
                ICMP => !sum(0, &bytes),
                UDP => udp_sum(self, &bytes),
                protocol => self.transport_sum(protocol, &bytes),
            };
            bytes[place..place + 2].copy_from_slice(&right.to_be_bytes());
        }
        bytes
    }
}

fn pieces(payload: &[u8], size: usize) -> impl Iterator<Item = (Piece, &[u8])> {
    payload.chunks(size).enumerate().map(move |(number, bytes)| {
        let offset = number * size;
        (Piece { offset, more: offset + bytes.len() < payload.len() }, bytes)
    })
}

/// The checksum of a datagram; 0xffff instead of 0, which would mean that there is none.
pub(super) fn udp_sum(ip: &Ip, bytes: &[u8]) -> u16 {
    match ip.transport_sum(UDP, bytes) {
        0 => 0xffff,
        sum => sum,
    }
}

/// The ones' complement sum of bytes.
#[must_use]
pub fn sum(begin: u32, bytes: &[u8]) -> u16 {
    // Four bytes at a time: in the end the upper half of a word is added to the lower one.
    let (words, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&last]).map(|word| u64::from(u32::from_be_bytes(*word)));
    let mut sum = u64::from(begin) + words.sum::<u64>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Corrects the checksum of the IPv4 header at the beginning of these bytes.
pub fn sum_ipv4_header(packet: &mut [u8]) {
    let length = usize::from(packet[0] & 15) * 4;
    packet[10..12].fill(0);
    let right = !sum(0, &packet[..length]);
    packet[10..12].copy_from_slice(&right.to_be_bytes());
}
