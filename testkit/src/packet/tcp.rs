// SPDX-License-Identifier: Apache-2.0
//! TCP segments (RFC 9293).

use super::ip::{Ip, TCP};

/// The flag of a connection's end; the other TCP flags follow.
pub const FIN: u16 = 1;
/// The flag of a connection's first segments.
pub const SYN: u16 = 2;
/// The flag of a reset.
pub const RST: u16 = 4;
/// The push flag.
pub const PSH: u16 = 8;
/// The acknowledgment number is valid.
pub const ACK: u16 = 16;
/// The urgent pointer is valid.
pub const URG: u16 = 32;

/// A TCP segment.
#[derive(Clone, Debug, Default)]
pub struct Segment {
    /// Source port.
    pub sport: u16,
    /// Destination port.
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
    /// Bytes after the options that need not be an option.
    pub raw_options: Vec<u8>,
    /// Payload.
    pub load: Vec<u8>,
    /// Header length in words, set by hand.
    pub dataofs: Option<u8>,
    /// Checksum, set by hand.
    pub chksum: Option<u16>,
    /// A value to add to the right checksum.
    pub chksum_error: u16,
}

impl Segment {
    /// A plain segment.
    #[must_use]
    pub fn new(ports: (u16, u16), (seq, ack): (u32, u32), flags: u16, load: &[u8]) -> Self {
        let (sport, dport) = ports;
        Segment { sport, dport, seq, ack, flags, window: 0x4000, load: load.to_vec(), ..Segment::default() }
    }

    /// Header and payload with the right checksum, unless it is set by hand.
    #[must_use]
    pub fn bytes(&self, ip: &Ip) -> Vec<u8> {
        let mut bytes = self.unsummed();
        if self.chksum.is_none() {
            let right = ip.transport_sum(TCP, &bytes).wrapping_add(self.chksum_error);
            bytes[16..18].copy_from_slice(&right.to_be_bytes());
        }
        bytes
    }

    /// Header and payload without known addresses: the checksum is the one set by hand, or 0.
    #[must_use]
    pub fn unsummed(&self) -> Vec<u8> {
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
        bytes.extend_from_slice(&self.chksum.unwrap_or(0).to_be_bytes());
        bytes.extend_from_slice(&self.urgptr.to_be_bytes());
        bytes.extend_from_slice(&options);
        bytes.extend_from_slice(&self.load);
        bytes
    }
}
