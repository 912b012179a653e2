// SPDX-License-Identifier: Apache-2.0
//! TCP segments as frames, right ones and wrong ones, and the kernel's answers.

use super::{CLIENT_MAC, SERVER, SERVER_MAC};
use bartizan_testkit::packet::{self, Datagram, Ip, TCP, UDP};
use std::net::IpAddr;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;
pub const URG: u8 = 32;

/// A segment from the client (host number `client`) to the server.
#[derive(Clone, Debug)]
pub struct Segment {
    pub v6: bool,
    pub client: u8,
    pub ports: (u16, u16),
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub urgent: u16,
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
    pub ttl: u8,
    /// Added to the right TCP checksum.
    pub checksum_error: u16,
    /// IPv4 options, or an IPv6 destination header of so many bytes (a multiple of 4, or of 8).
    pub ip_options: Vec<u8>,
    /// Bytes behind the IP packet.
    pub trailer: usize,
    /// To the server's MAC address, not to another one.
    pub to_server: bool,
}

/// Address of a client.
pub fn client_address(v6: bool, client: u8) -> IpAddr {
    if v6 { format!("fd66::{client:x}") } else { format!("10.66.0.{client}") }.parse().unwrap()
}

/// Address of the server.
pub fn server_address(v6: bool) -> IpAddr {
    if v6 { SERVER.1 } else { SERVER.0 }.parse().unwrap()
}

/// The IP header of a client's packets.
pub fn header(v6: bool, client: u8, protocol: u8) -> Ip {
    let ip = Ip::new(client_address(v6, client), server_address(v6), protocol);
    Ip { mac: SERVER_MAC, from_mac: CLIENT_MAC, ..ip }
}

impl Segment {
    /// The frame.
    pub fn frame(&self) -> Vec<u8> {
        let mut ip = Ip { ttl: self.ttl, trailer: self.trailer, ..header(self.v6, self.client, TCP) };
        if !self.to_server {
            ip.mac = [2, 9, 9, 9, 9, 9];
        }
        if !self.v6 {
            ip.options.clone_from(&self.ip_options);
        } else if !self.ip_options.is_empty() {
            ip.extensions.push((60, vec![0, 1, 4, 0, 0, 0, 0]));
        }
        let segment = packet::Segment {
            window: self.window,
            urgptr: self.urgent,
            raw_options: self.options.clone(),
            chksum_error: self.checksum_error,
            ..packet::Segment::new(self.ports, (self.seq, self.ack), u16::from(self.flags), &self.payload)
        };
        ip.frame(&segment.bytes(&ip), None)
    }
}

/// A datagram of a client with `length` bytes, without a UDP checksum over IPv4.
pub fn datagram(v6: bool, client: u8, ports: (u16, u16), length: usize) -> Vec<u8> {
    let load: Vec<u8> = (0..length).map(|n| b'a' + (n % 26) as u8).collect();
    let ip = header(v6, client, UDP);
    let chksum = (!v6).then_some(0);
    ip.frame(&Datagram { chksum, ..Datagram::new(ports, &load) }.bytes(&ip), None)
}

/// A segment that the kernel sent.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub v6: bool,
    /// Last byte of the client's address.
    pub client: u8,
    /// The client's port.
    pub port: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub timestamp: Option<u32>,
    pub payload: u32,
}

/// Reads a frame of the kernel; none when it is no TCP segment.
pub fn parse(frame: &[u8]) -> Option<Answer> {
    let packet::Answer { dst, udp: false, segment, .. } = packet::parse(frame)? else { return None };
    let client = match dst {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    };
    let timestamp = segment.options.iter().find(|(kind, _)| *kind == 8).map(|(_, value)| value);
    Some(Answer {
        v6: dst.is_ipv6(),
        client,
        port: segment.dport,
        seq: segment.seq,
        ack: segment.ack,
        flags: segment.flags as u8,
        window: segment.window,
        timestamp: timestamp.and_then(|value| Some(u32::from_be_bytes(*value.first_chunk()?))),
        payload: segment.load.len() as u32,
    })
}
