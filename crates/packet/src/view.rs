// SPDX-License-Identifier: Apache-2.0
//! A descriptor together with its bytes: slices of headers and payload, and checksums on demand.

use crate::{Decoded, InternetChecksum, Network, PacketFlags, TransportLayer, pseudo_header};

/// A decoded packet and the bytes it was decoded from.
#[derive(Clone, Copy, Debug)]
pub struct PacketView<'a> {
    bytes: &'a [u8],
    decoded: &'a Decoded,
}

impl<'a> PacketView<'a> {
    /// Joins both; `bytes` are the decoder's input, the whole frame also for tunnelled packets.
    #[must_use]
    pub const fn new(bytes: &'a [u8], decoded: &'a Decoded) -> Self {
        PacketView { bytes, decoded }
    }

    /// The descriptor.
    #[must_use]
    pub const fn decoded(&self) -> &'a Decoded {
        self.decoded
    }

    /// The whole frame.
    #[must_use]
    pub const fn frame(&self) -> &'a [u8] {
        self.bytes
    }

    /// This packet's own bytes: for a tunnelled packet from its first header on.
    #[must_use]
    pub fn packet(&self) -> &'a [u8] {
        self.range(self.decoded.start, self.decoded.length())
    }

    /// The Ethernet header.
    #[must_use]
    pub fn ethernet(&self) -> Option<&'a [u8; 14]> {
        self.from(self.decoded.ethernet?).first_chunk()
    }

    /// Source and destination address of the Ethernet header.
    #[must_use]
    pub fn mac_addresses(&self) -> Option<([u8; 6], [u8; 6])> {
        let header = self.ethernet()?;
        let (destination, rest) = header.split_first_chunk::<6>()?;
        Some((*rest.first_chunk::<6>()?, *destination))
    }

    /// EtherType of the Ethernet header itself (a VLAN tag's if it has one).
    #[must_use]
    pub fn ethernet_type(&self) -> Option<u16> {
        self.ethernet()?.last_chunk::<2>().map(|kind| u16::from_be_bytes(*kind))
    }

    /// The IP header: IPv4's with options, IPv6's fixed header (see [`PacketView::ip_extensions`]).
    #[must_use]
    pub fn ip_header(&self) -> Option<&'a [u8]> {
        let len = match &self.decoded.network {
            Network::Ipv4(ip) => u32::from(ip.header_len),
            Network::Ipv6(_) => 40,
            _ => return None,
        };
        Some(self.range(self.decoded.l3, len))
    }

    /// IPv6's extension headers, empty without any; `None` when this is no IPv6.
    #[must_use]
    pub fn ip_extensions(&self) -> Option<&'a [u8]> {
        let ip = self.decoded.ipv6()?;
        Some(self.range(self.decoded.l3.saturating_add(40), u32::from(ip.ext_len)))
    }

    /// The data of an IP fragment.
    #[must_use]
    pub fn fragment_data(&self) -> Option<&'a [u8]> {
        if !self.decoded.is_fragment() {
            return None;
        }
        self.fragment_place().map(|(start, len)| self.range(start, len))
    }

    /// Whether the end of the data of an IP fragment was not captured.
    #[must_use]
    pub fn is_fragment_cut(&self) -> bool {
        let whole = |(start, len): (u32, u32)| self.range(start, len).len() >= len as usize;
        self.decoded.is_fragment() && !self.fragment_place().is_none_or(whole)
    }

    /// The offset and the length of an IP fragment's data.
    fn fragment_place(&self) -> Option<(u32, u32)> {
        match &self.decoded.network {
            Network::Ipv4(ip) => {
                Some((self.decoded.l4, u32::from(ip.total_len).saturating_sub(u32::from(ip.header_len))))
            }
            Network::Ipv6(ip) => ip.fragment.map(|fragment| (fragment.data, fragment.data_len)),
            _ => None,
        }
    }

    /// The transport header with its options, as far as it was decoded.
    #[must_use]
    pub fn l4_header(&self) -> Option<&'a [u8]> {
        let len = match self.decoded.transport {
            TransportLayer::None => return None,
            // The payload of most messages starts inside the eight bytes of the nominal header.
            TransportLayer::Icmpv6(_) => 8,
            _ => self.decoded.payload.saturating_sub(self.decoded.l4),
        };
        Some(self.range(self.decoded.l4, len))
    }

    /// The payload: after the header of TCP, UDP, SCTP, ICMP or ESP.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.range(self.decoded.payload, self.decoded.payload_len)
    }

    /// Whether the end of the payload was not captured.
    #[must_use]
    pub fn is_payload_cut(&self) -> bool {
        self.payload().len() < self.decoded.payload_len as usize
    }

    /// The TCP options, one by one; none when this is no TCP.
    #[must_use]
    pub fn tcp_options(&self) -> TcpOptionIter<'a> {
        let options = match (&self.decoded.transport, self.l4_header()) {
            (TransportLayer::Tcp(_), Some(header)) => header.get(20..).unwrap_or(&[]),
            _ => &[],
        };
        TcpOptionIter { rest: options }
    }

    /// Selective acknowledgement blocks: left and right edge.
    pub fn sack_blocks(&self) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        let blocks = match &self.decoded.transport {
            TransportLayer::Tcp(tcp) if tcp.options.sack_blocks > 0 => self.range(
                self.decoded.l4.saturating_add(u32::from(tcp.options.sack_offset)),
                u32::from(tcp.options.sack_blocks) * 8,
            ),
            _ => &[],
        };
        blocks.chunks_exact(8).filter_map(|block| {
            let (left, right) = block.split_first_chunk::<4>()?;
            Some((u32::from_be_bytes(*left), u32::from_be_bytes(*right.first_chunk::<4>()?)))
        })
    }

    /// Whether the IPv4 header's checksum is right; `None` when this is no IPv4.
    #[must_use]
    pub fn ip_checksum_ok(&self) -> Option<bool> {
        self.decoded.ipv4()?;
        Some(InternetChecksum::new().with(self.ip_header()?).is_valid())
    }

    /// Whether the checksum of TCP, UDP, ICMP or ICMPv6 is right; `None` for other protocols, and where
    /// some of its bytes were not captured. A UDP datagram over IPv4 without a checksum is right (RFC 768).
    /// A checksum that a device still has to fill in, and one that the port has verified, count as right
    /// ([`crate::Checksums`]).
    #[must_use]
    pub fn l4_checksum_ok(&self) -> Option<bool> {
        let is_verified = self.decoded.flags.contains(PacketFlags::CHECKSUM_VALID);
        if is_verified && matches!(self.decoded.transport, TransportLayer::Tcp(_) | TransportLayer::Udp(_)) {
            return Some(true);
        }
        Some(self.l4_sum_ok()? || self.l4_checksum_is_due())
    }

    /// Whether the checksum still has to be filled in: the bytes are wrong, which is no fault, but they have
    /// to be corrected before the frame is sent on.
    #[must_use]
    pub fn l4_checksum_is_due(&self) -> bool {
        self.decoded.flags.contains(PacketFlags::CHECKSUM_PENDING) && self.has_partial_sum() == Some(true)
    }

    /// Whether the field holds the partial sum that a sender leaves for hardware to complete: the sum of
    /// the pseudo header, not inverted (Linux `CHECKSUM_PARTIAL`).
    fn has_partial_sum(&self) -> Option<bool> {
        let (proto, field, len) = match &self.decoded.transport {
            TransportLayer::Tcp(_) => (6, 16, self.decoded.l4_len()),
            TransportLayer::Udp(_) => (17, 6, self.decoded.l4_len()),
            TransportLayer::Icmpv6(_) => (58, 2, self.icmp_len()),
            _ => return None,
        };
        let segment = self.range(self.decoded.l4, len);
        let sum = pseudo_header(self.decoded.src()?, self.decoded.dst()?, proto, len)?;
        let found = segment.get(field..)?.first_chunk::<2>()?;
        Some(u16::from_be_bytes(*found) == !sum.finish())
    }

    /// Whether the bytes of the checksum are right. `None`: some were not captured.
    fn l4_sum_ok(&self) -> Option<bool> {
        let proto = match &self.decoded.transport {
            TransportLayer::Tcp(_) => 6,
            TransportLayer::Udp(_) => 17,
            TransportLayer::Icmpv6(_) => 58,
            // No pseudo header.
            TransportLayer::Icmp(_) => 1,
            _ => return None,
        };
        let is_icmp = matches!(proto, 1 | 58);
        let len = if is_icmp { self.icmp_len() } else { self.decoded.l4_len() };
        let segment = self.range(self.decoded.l4, len);
        if proto == 17 && segment.get(6..8) == Some(&[0, 0]) {
            return Some(self.decoded.ipv4().is_some());
        }
        if segment.len() < len as usize {
            return None;
        }
        let sum = match proto {
            1 => InternetChecksum::new(),
            _ => pseudo_header(self.decoded.src()?, self.decoded.dst()?, proto, len)?,
        };
        Some(sum.with(segment).is_valid())
    }

    /// Length of ICMP's header and body: its payload starts at different offsets, but its checksum covers all
    /// bytes to the end.
    fn icmp_len(&self) -> u32 {
        let end = match &self.decoded.network {
            Network::Ipv4(ip) => self.decoded.l3.saturating_add(u32::from(ip.total_len)),
            Network::Ipv6(ip) => self.decoded.l3.saturating_add(40).saturating_add(u32::from(ip.payload_len)),
            _ => self.decoded.l4,
        };
        end.saturating_sub(self.decoded.l4)
    }

    fn from(&self, start: u32) -> &'a [u8] {
        self.bytes.get(start as usize..).unwrap_or(&[])
    }

    fn range(&self, start: u32, len: u32) -> &'a [u8] {
        let rest = self.from(start);
        rest.get(..len as usize).unwrap_or(rest)
    }
}

/// One TCP option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOption<'a> {
    /// Kind; 1 is "no operation".
    pub kind: u8,
    /// The bytes after kind and length.
    pub value: &'a [u8],
}

/// The TCP options of a packet; ends at the end of the list or where it is broken.
#[derive(Clone, Debug)]
pub struct TcpOptionIter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for TcpOptionIter<'a> {
    type Item = TcpOption<'a>;

    fn next(&mut self) -> Option<TcpOption<'a>> {
        let (kind, tail) = self.rest.split_first()?;
        match kind {
            0 => {
                self.rest = &[];
                None
            }
            1 => {
                self.rest = tail;
                Some(TcpOption { kind: 1, value: &[] })
            }
            _ => {
                let len = usize::from(*tail.first().unwrap_or(&0));
                match (self.rest.get(2..len), self.rest.get(len..)) {
                    (Some(value), Some(after)) => {
                        self.rest = after;
                        Some(TcpOption { kind: *kind, value })
                    }
                    _ => {
                        self.rest = &[];
                        None
                    }
                }
            }
        }
    }
}
