// SPDX-License-Identifier: Apache-2.0
//! Packets for one function in a real worker, without frames around them.
#![allow(dead_code, unused_imports)] // Each test uses a part.

pub use bartizan_testkit_worker::Alone as Bench;

use bartizan_testkit::packet::{self, Ip, Packet};
use core::net::IpAddr;

pub const SYN: u8 = 0x02;
pub const ACK: u8 = 0x10;
pub const PSH: u8 = 0x08;
pub const RST: u8 = 0x04;
pub const FIN: u8 = 0x01;

/// A pair of addresses; both versions go through every test.
pub const PAIRS: [(&str, &str); 2] = [("10.0.0.1", "192.168.1.2"), ("2001:db8::1", "fd00::2")];

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// An IP packet of a protocol other than TCP, UDP or ICMP.
pub fn other(source: IpAddr, destination: IpAddr, protocol: u8, body: &[u8]) -> Vec<u8> {
    Ip::new(source, destination, protocol).packet(body, None)
}

pub fn udp(from: packet::End, to: packet::End, data: &[u8]) -> Vec<u8> {
    packet::udp(from, to, data).bytes()
}

pub fn tcp(from: packet::End, to: packet::End, flags: u8, seq: u32, ack: u32, data: &[u8]) -> Vec<u8> {
    packet::tcp(from, to, (seq, ack), flags, data).bytes()
}

/// An ICMP message of the version of the addresses; `kind` is (ICMP type, ICMPv6 type).
pub fn icmp(from: IpAddr, to: IpAddr, kind: (u8, u8), code: u8, rest: &[u8]) -> Vec<u8> {
    packet::icmp(from, to, kind, code, rest).bytes()
}

/// An ICMP error that quotes a packet.
pub fn icmp_error(from: IpAddr, to: IpAddr, kind: (u8, u8), quoted: &[u8]) -> Vec<u8> {
    icmp(from, to, kind, 0, &[&[0; 4], quoted].concat())
}
