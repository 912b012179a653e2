// SPDX-License-Identifier: Apache-2.0
//! TCP segments as frames, right ones and wrong ones, and the kernel's answers.

use super::{CLIENT_MAC, SERVER, SERVER_MAC};
use bartizan_packet::InternetChecksum;
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

impl Segment {
    /// The frame.
    pub fn frame(&self) -> Vec<u8> {
        let mut tcp = Vec::with_capacity(60 + self.payload.len());
        tcp.extend_from_slice(&self.ports.0.to_be_bytes());
        tcp.extend_from_slice(&self.ports.1.to_be_bytes());
        tcp.extend_from_slice(&self.seq.to_be_bytes());
        tcp.extend_from_slice(&self.ack.to_be_bytes());
        let mut options = self.options.clone();
        options.resize(options.len().next_multiple_of(4), 0);
        tcp.extend_from_slice(&[((5 + options.len() / 4) << 4) as u8, self.flags]);
        tcp.extend_from_slice(&self.window.to_be_bytes());
        tcp.extend_from_slice(&[0, 0]);
        tcp.extend_from_slice(&self.urgent.to_be_bytes());
        tcp.extend_from_slice(&options);
        tcp.extend_from_slice(&self.payload);
        let (src, dst) = (client_address(self.v6, self.client), server_address(self.v6));
        let sum = bartizan_packet::pseudo_header(src, dst, 6, tcp.len() as u32).unwrap().with(&tcp).finish();
        tcp[16..18].copy_from_slice(&sum.wrapping_add(self.checksum_error).to_be_bytes());

        let mac = if self.to_server { SERVER_MAC } else { [2, 9, 9, 9, 9, 9] };
        let mut frame = [mac, CLIENT_MAC].concat();
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                frame.extend_from_slice(&[8, 0]);
                let words = 5 + self.ip_options.len() / 4;
                let total = (words * 4 + tcp.len()) as u16;
                let mut header = vec![0x40 | words as u8, 0];
                header.extend_from_slice(&total.to_be_bytes());
                header.extend_from_slice(&[0, 0, 0x40, 0, self.ttl, 6, 0, 0]);
                header.extend_from_slice(&src.octets());
                header.extend_from_slice(&dst.octets());
                header.extend_from_slice(&self.ip_options);
                let sum = InternetChecksum::new().with(&header).finish();
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                frame.extend_from_slice(&header);
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
                let extension = if self.ip_options.is_empty() { 0 } else { 8 };
                frame.extend_from_slice(&((tcp.len() + extension) as u16).to_be_bytes());
                frame.extend_from_slice(&[if extension > 0 { 60 } else { 6 }, self.ttl]);
                frame.extend_from_slice(&src.octets());
                frame.extend_from_slice(&dst.octets());
                if extension > 0 {
                    frame.extend_from_slice(&[6, 0, 1, 4, 0, 0, 0, 0]);
                }
            }
            _ => unreachable!(),
        }
        frame.extend_from_slice(&tcp);
        frame.resize(frame.len() + self.trailer, b'T');
        frame
    }
}

/// A datagram of a client with `length` bytes, without a UDP checksum over IPv4.
pub fn datagram(v6: bool, client: u8, ports: (u16, u16), length: usize) -> Vec<u8> {
    let mut udp =
        [ports.0.to_be_bytes(), ports.1.to_be_bytes(), ((8 + length) as u16).to_be_bytes(), [0, 0]].concat();
    udp.extend((0..length).map(|n| b'a' + (n % 26) as u8));
    let mut frame = [SERVER_MAC, CLIENT_MAC].concat();
    match (client_address(v6, client), server_address(v6)) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let total = (20 + udp.len() as u16).to_be_bytes();
            let mut header = vec![0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 17, 0, 0];
            header.extend_from_slice(&src.octets());
            header.extend_from_slice(&dst.octets());
            let sum = InternetChecksum::new().with(&header).finish();
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend_from_slice(&[8, 0]);
            frame.extend_from_slice(&header);
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let sum = bartizan_packet::pseudo_header(src.into(), dst.into(), 17, udp.len() as u32).unwrap();
            let sum = sum.with(&udp).finish();
            udp[6..8].copy_from_slice(&sum.to_be_bytes());
            frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend_from_slice(&(udp.len() as u16).to_be_bytes());
            frame.extend_from_slice(&[17, 64]);
            frame.extend_from_slice(&src.octets());
            frame.extend_from_slice(&dst.octets());
        }
        _ => unreachable!(),
    }
    frame.extend_from_slice(&udp);
    frame
}

/// What the kernel sent.
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
    let (v6, client, tcp) = match frame.get(12..14)? {
        [8, 0] if *frame.get(23)? == 6 => {
            let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
            (false, frame[33], frame.get(14 + usize::from(frame[14] & 15) * 4..14 + total)?)
        }
        [0x86, 0xdd] if *frame.get(20)? == 6 => {
            let length = usize::from(u16::from_be_bytes([frame[18], frame[19]]));
            (true, frame[53], frame.get(54..54 + length)?)
        }
        _ => return None,
    };
    let number = |at: usize| Some(u32::from_be_bytes(tcp.get(at..at + 4)?.try_into().ok()?));
    let header = usize::from(*tcp.get(12)? >> 4) * 4;
    let mut options = tcp.get(20..header)?;
    let mut timestamp = None;
    while let [kind, rest @ ..] = options {
        match (kind, rest) {
            (0, _) => break,
            (1, _) => options = rest,
            (8, [10, a, b, c, d, ..]) => {
                timestamp = Some(u32::from_be_bytes([*a, *b, *c, *d]));
                options = options.get(10..)?;
            }
            (_, [length, ..]) => options = options.get(usize::from((*length).max(2))..)?,
            _ => break,
        }
    }
    Some(Answer {
        v6,
        client,
        port: u16::from_be_bytes([tcp[2], tcp[3]]),
        seq: number(4)?,
        ack: number(8)?,
        flags: tcp[13],
        window: u16::from_be_bytes([tcp[14], tcp[15]]),
        timestamp,
        payload: (tcp.len() - header) as u32,
    })
}
