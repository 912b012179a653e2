// SPDX-License-Identifier: Apache-2.0
//! Hand-made packets for the decoder's tests: each function wraps bytes into one more header.
#![allow(dead_code)]

use bartizan_packet::{
    DecodeEvent, DecodeOutput, Decoded, Decoder, DecoderConfig, InternetChecksum, LinkType,
};

pub const SRC4: [u8; 4] = [10, 0, 0, 1];
pub const DST4: [u8; 4] = [192, 168, 3, 4];
pub const SRC6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
pub const DST6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

pub fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

pub fn eth(kind: u16, rest: &[u8]) -> Vec<u8> {
    join(&[&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1], &kind.to_be_bytes(), rest])
}

pub fn vlan(id: u16, kind: u16, rest: &[u8]) -> Vec<u8> {
    join(&[&id.to_be_bytes(), &kind.to_be_bytes(), rest])
}

/// IPv4 with options (a multiple of four bytes) and the fragment field as given.
pub fn ipv4_with(proto: u8, options: &[u8], fragment: u16, rest: &[u8]) -> Vec<u8> {
    let header_len = 20 + options.len();
    let total = (header_len + rest.len()) as u16;
    let mut header = join(&[
        &[0x40 | (header_len / 4) as u8, 0x10],
        &total.to_be_bytes(),
        &[0x12, 0x34],
        &fragment.to_be_bytes(),
        &[64, proto, 0, 0],
        &SRC4,
        &DST4,
        options,
    ]);
    let sum = InternetChecksum::new().with(&header).finish();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    join(&[&header, rest])
}

pub fn ipv4(proto: u8, rest: &[u8]) -> Vec<u8> {
    ipv4_with(proto, &[], 0x4000, rest)
}

pub fn ipv6_hops(next: u8, hop_limit: u8, rest: &[u8]) -> Vec<u8> {
    let len = (rest.len() as u16).to_be_bytes();
    join(&[&[0x61, 0x23, 0x45, 0x67], &len, &[next, hop_limit], &SRC6, &DST6, rest])
}

pub fn ipv6(next: u8, rest: &[u8]) -> Vec<u8> {
    ipv6_hops(next, 64, rest)
}

pub fn tcp(options: &[u8], rest: &[u8]) -> Vec<u8> {
    let offset = ((20 + options.len()) / 4) as u8;
    join(&[
        &[0xc0, 1, 0, 80, 1, 2, 3, 4, 5, 6, 7, 8],
        &[offset << 4, 0x18, 0x20, 0, 0, 0, 0, 9],
        options,
        rest,
    ])
}

pub fn udp(sport: u16, dport: u16, rest: &[u8]) -> Vec<u8> {
    let len = (8 + rest.len()) as u16;
    join(&[&sport.to_be_bytes(), &dport.to_be_bytes(), &len.to_be_bytes(), &[0, 0], rest])
}

pub fn gre(flags: [u8; 2], kind: u16, optional: &[u8], rest: &[u8]) -> Vec<u8> {
    join(&[&flags, &kind.to_be_bytes(), optional, rest])
}

pub fn vxlan(vni: u32, frame: &[u8]) -> Vec<u8> {
    join(&[&[8, 0, 0, 0], &(vni << 8).to_be_bytes(), frame])
}

pub fn geneve(vni: u32, kind: u16, options: &[u8], rest: &[u8]) -> Vec<u8> {
    let words = (options.len() / 4) as u8;
    join(&[&[words, 0], &kind.to_be_bytes(), &(vni << 8).to_be_bytes(), options, rest])
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
