// SPDX-License-Identifier: Apache-2.0
//! Packets for the decoder's tests, each field with a different value: each function adds one header around
//! bytes.
#![allow(dead_code, unused_imports)]

pub use bartizan_testkit::layers::{ethernet as eth, geneve, gre_with as gre, vlan, vxlan};

use bartizan_packet::{DecodeEvent, DecodeOutput, Decoded, Decoder, DecoderConfig, LinkType};
use bartizan_testkit::packet::{ACK, Datagram, Ip, IpFixed, PSH, Segment};

pub const SRC4: [u8; 4] = [10, 0, 0, 1];
pub const DST4: [u8; 4] = [192, 168, 3, 4];
pub const SRC6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
pub const DST6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

pub fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// IPv4 with options (a multiple of four bytes) and the fragment field as given.
pub fn ipv4_with(proto: u8, options: &[u8], fragment: u16, rest: &[u8]) -> Vec<u8> {
    let fixed =
        IpFixed { flags: Some((fragment >> 13) as u8), frag: Some(fragment & 0x1fff), ..IpFixed::default() };
    let ip = Ip::new(SRC4.into(), DST4.into(), proto);
    Ip { tos: 0x10, id: 0x1234, options: options.to_vec(), fixed, ..ip }.packet(rest, None)
}

pub fn ipv4(proto: u8, rest: &[u8]) -> Vec<u8> {
    ipv4_with(proto, &[], 0x4000, rest)
}

pub fn ipv6_hops(next: u8, hop_limit: u8, rest: &[u8]) -> Vec<u8> {
    let ip = Ip::new(SRC6.into(), DST6.into(), next);
    Ip { tos: 0x12, label: 0x3_4567, ttl: hop_limit, ..ip }.packet(rest, None)
}

pub fn ipv6(next: u8, rest: &[u8]) -> Vec<u8> {
    ipv6_hops(next, 64, rest)
}

pub fn tcp(options: &[u8], rest: &[u8]) -> Vec<u8> {
    let segment = Segment::new((0xc001, 80), (0x0102_0304, 0x0506_0708), PSH | ACK, rest);
    Segment { window: 0x2000, urgptr: 9, raw_options: options.to_vec(), ..segment }.unsummed()
}

pub fn udp(sport: u16, dport: u16, rest: &[u8]) -> Vec<u8> {
    Datagram::new((sport, dport), rest).unsummed()
}

/// Decodes with a configuration; the packets, the outer one first.
pub fn decode_with(config: DecoderConfig, link: LinkType, bytes: &[u8]) -> Vec<Decoded> {
    let mut out = DecodeOutput::new();
    Decoder::new(config).decode(link, bytes, bytes.len() as u32, &mut out);
    out.packets().to_vec()
}

pub fn decode(bytes: &[u8]) -> Vec<Decoded> {
    decode_with(DecoderConfig::default(), LinkType::ETHERNET, bytes)
}

/// Decodes an Ethernet frame that is one packet.
pub fn one(bytes: &[u8]) -> Decoded {
    let mut packets = decode(bytes);
    assert_eq!(packets.len(), 1, "{packets:#?}");
    packets.remove(0)
}

pub fn events(packet: &Decoded) -> Vec<DecodeEvent> {
    packet.events.as_slice().to_vec()
}
