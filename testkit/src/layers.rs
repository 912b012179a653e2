// SPDX-License-Identifier: Apache-2.0
//! Headers around bytes, one function for each; the bytes are not interpreted. For IP, TCP and UDP see
//! [`crate::packet`].

use crate::packet::{CLIENT_MAC, SERVER_MAC};

/// Ethernet.
#[must_use]
pub fn ethernet(kind: u16, rest: &[u8]) -> Vec<u8> {
    [&SERVER_MAC[..], &CLIENT_MAC, &kind.to_be_bytes(), rest].concat()
}

/// Ethernet with the type of an IP version.
#[must_use]
pub fn ethernet_ip(v6: bool, packet: &[u8]) -> Vec<u8> {
    ethernet(ip_kind(v6), packet)
}

const fn ip_kind(v6: bool) -> u16 {
    if v6 { 0x86dd } else { 0x0800 }
}

/// The bytes after the type 0x8100 of a frame: a VLAN tag, and the type of the rest.
#[must_use]
pub fn vlan(tag: u16, kind: u16, rest: &[u8]) -> Vec<u8> {
    [&tag.to_be_bytes(), &kind.to_be_bytes(), rest].concat()
}

/// A frame with one more tag, outermost.
#[must_use]
pub fn tagged(tag: u16, mut frame: Vec<u8>) -> Vec<u8> {
    let [high, low] = tag.to_be_bytes();
    frame.splice(12..12, [0x81, 0, high, low]);
    frame
}

/// GRE, with its flags and the fields that they announce (RFC 2784, 2890).
#[must_use]
pub fn gre_with(flags: [u8; 2], kind: u16, optional: &[u8], rest: &[u8]) -> Vec<u8> {
    [&flags, &kind.to_be_bytes()[..], optional, rest].concat()
}

/// Plain GRE around an IP packet.
#[must_use]
pub fn gre(v6_inside: bool, packet: &[u8]) -> Vec<u8> {
    gre_with([0, 0], ip_kind(v6_inside), &[], packet)
}

/// VXLAN (RFC 7348): the payload of a datagram to port 4789.
#[must_use]
pub fn vxlan(vni: u32, frame: &[u8]) -> Vec<u8> {
    [&[8, 0, 0, 0], &(vni << 8).to_be_bytes()[..], frame].concat()
}

/// Geneve (RFC 8926): the payload of a datagram to port 6081.
#[must_use]
pub fn geneve(vni: u32, kind: u16, options: &[u8], rest: &[u8]) -> Vec<u8> {
    let words = (options.len() / 4) as u8;
    [&[words, 0], &kind.to_be_bytes()[..], &(vni << 8).to_be_bytes(), options, rest].concat()
}

/// GTP-U (3GPP TS 29.281) around an IP packet: the payload of a datagram to port 2152. `flags`: the lowest
/// three; `optional`: the fields that they announce.
#[must_use]
pub fn gtp(end: u32, flags: u8, optional: &[u8], packet: &[u8]) -> Vec<u8> {
    let length = (optional.len() + packet.len()) as u16;
    [&[0x30 | flags, 0xff], &length.to_be_bytes()[..], &end.to_be_bytes(), optional, packet].concat()
}
