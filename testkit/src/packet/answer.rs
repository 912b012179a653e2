// SPDX-License-Identifier: Apache-2.0
//! Frames that a kernel sent, read without the decoder under test.

use super::ip::{TCP, UDP};
use super::tcp::Segment;
use std::net::IpAddr;

/// A transport packet that the kernel sent.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Whether it is a UDP datagram, with `seq`, `ack` and `flags` 0; else TCP.
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
