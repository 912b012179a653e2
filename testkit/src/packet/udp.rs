// SPDX-License-Identifier: Apache-2.0
//! UDP datagrams (RFC 768).

use super::ip::{Ip, UDP, udp_sum};

/// A UDP datagram.
#[derive(Clone, Debug, Default)]
pub struct Datagram {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Payload.
    pub load: Vec<u8>,
    /// Checksum, set by hand; 0 means none.
    pub chksum: Option<u16>,
    /// Length, set by hand.
    pub len: Option<u16>,
}

impl Datagram {
    /// A plain datagram.
    #[must_use]
    pub fn new(ports: (u16, u16), load: &[u8]) -> Self {
        Datagram { sport: ports.0, dport: ports.1, load: load.to_vec(), ..Datagram::default() }
    }

    /// Header and payload with the right checksum, unless it is set by hand.
    #[must_use]
    pub fn bytes(&self, ip: &Ip) -> Vec<u8> {
        let mut bytes = self.unsummed();
        if self.chksum.is_none() {
            let right = udp_sum(ip, &bytes);
            bytes[6..8].copy_from_slice(&right.to_be_bytes());
        }
        bytes
    }

    /// Header and payload as a host hands them to a device that computes checksums: the sum of the
    /// pseudo-header alone.
    #[must_use]
    pub fn left_to_device(&self, ip: &Ip) -> Vec<u8> {
        let mut bytes = self.unsummed();
        let begun = ip.pseudo_sum(UDP, bytes.len());
        bytes[6..8].copy_from_slice(&begun.to_be_bytes());
        bytes
    }

    /// Header and payload without known addresses: the checksum is the one set by hand, or none.
    #[must_use]
    pub fn unsummed(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(8 + self.load.len());
        bytes.extend_from_slice(&self.sport.to_be_bytes());
        bytes.extend_from_slice(&self.dport.to_be_bytes());
        bytes.extend_from_slice(&self.len.unwrap_or(8 + self.load.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&self.chksum.unwrap_or(0).to_be_bytes());
        bytes.extend_from_slice(&self.load);
        bytes
    }
}
