// SPDX-License-Identifier: Apache-2.0
//! Packets that leave with another length than they came with: whether their headers, and those around them,
//! allow it, and the correction of these headers.
//!
//! Supported is IP in an Ethernet frame, and in tunnels whose header has no length and no checksum of its
//! own: IP in IP, GRE without checksum and sequence (RFC 2784, RFC 2890), VXLAN (RFC 7348), GENEVE (RFC
//! 8926).

use crate::{
    Decoded, InternetChecksum, LinkType, Network, PacketFlags, PacketSource, TransportLayer, pseudo_header,
};

impl Decoded {
    /// Whether the packet was reassembled from fragments, or lies in a tunnel whose outer packet was: no
    /// single frame holds its bytes.
    #[must_use]
    pub const fn is_in_several_frames(&self) -> bool {
        self.flags.intersects(PacketFlags::REBUILT.union(PacketFlags::IN_REBUILT))
    }

    /// Whether the packet may leave with another length. `frame`: the bytes that its offsets count in.
    #[must_use]
    pub fn may_be_resized(&self, frame: &[u8]) -> bool {
        use PacketSource::{Geneve, Gre, Ipv4, Ipv6, Vxlan, Wire};
        let fixed = PacketFlags::IN_REBUILT.union(PacketFlags::FIXED_LENGTH);
        let not_whole = PacketFlags::REBUILT.union(PacketFlags::FRAGMENT).union(PacketFlags::INVALID);
        matches!(self.source, Wire | Gre | Ipv4 | Ipv6 | Vxlan | Geneve)
            && matches!(self.network, Network::Ipv4(_) | Network::Ipv6(_))
            && !self.flags.intersects(fixed.union(not_whole))
            && self.follows_an_ether_type(frame)
    }

    /// Whether the bytes directly before the network header name it, as Ethernet and VLAN tags do: what other
    /// protocols have there (802.2, PPPoE) counts bytes. In a tunnel without an Ethernet header nothing is
    /// there.
    fn follows_an_ether_type(&self, frame: &[u8]) -> bool {
        let two = |at: usize| {
            let bytes = frame.get(at..at.checked_add(2)?)?;
            bytes.try_into().ok().map(u16::from_be_bytes)
        };
        if self.recursion > 0 && self.ethernet.is_none() {
            return true;
        }
        // Below 0x600 it is a length (IEEE 802.3).
        let begins = self.recursion > 0
            || self.link_type == LinkType::ETHERNET && two(12).is_some_and(|kind| kind >= 0x600);
        let named = (self.l3 as usize).checked_sub(2).and_then(two);
        begins && matches!(named, Some(0x0800 | 0x86dd))
    }

    /// Whether the headers of an outer packet may be sent again before a packet of another length.
    #[must_use]
    pub fn may_be_repeated(&self, frame: &[u8]) -> bool {
        match &self.transport {
            // IP in IP.
            TransportLayer::None | TransportLayer::Udp(_) => true,
            // Neither checksum nor sequence number (RFC 2784, RFC 2890); version 1 has a length (RFC 2637).
            TransportLayer::Gre(_) => {
                let l4 = self.l4 as usize;
                let flags = l4.checked_add(2).and_then(|end| frame.get(l4..end));
                matches!(flags, Some([flags, version]) if flags & 0x90 == 0 && version & 7 == 0)
            }
            _ => false,
        }
    }

    /// Updates length and checksum of the packet's IP header, in a frame that ends with the packet. `number`
    /// is added to IPv4's identification. `None`: the frame does not hold the header, or the packet is too
    /// long.
    pub fn renew_network(&self, frame: &mut [u8], number: u16) -> Option<()> {
        let l3 = self.l3 as usize;
        let length = frame.len().checked_sub(l3)?;
        let ip = frame.get_mut(l3..)?;
        match &self.network {
            Network::Ipv4(header) => {
                let ip = ip.get_mut(..usize::from(header.header_len))?;
                ip.get_mut(2..4)?.copy_from_slice(&u16::try_from(length).ok()?.to_be_bytes());
                let id = header.id.wrapping_add(number);
                ip.get_mut(4..6)?.copy_from_slice(&id.to_be_bytes());
                ip.get_mut(10..12)?.fill(0);
                let sum = InternetChecksum::new().with(ip).finish();
                ip.get_mut(10..12)?.copy_from_slice(&sum.to_be_bytes());
            }
            Network::Ipv6(_) => {
                let length = u16::try_from(length.checked_sub(40)?).ok()?;
                ip.get_mut(4..6)?.copy_from_slice(&length.to_be_bytes());
            }
            _ => return None,
        }
        Some(())
    }

    /// Updates length and checksum of the packet's UDP header, in a frame that ends with the packet. `None`:
    /// the frame does not hold the header, or the datagram is too long.
    pub fn renew_udp(&self, frame: &mut [u8]) -> Option<()> {
        let udp = frame.get_mut(self.l4 as usize..)?;
        let length = u16::try_from(udp.len()).ok()?;
        udp.get_mut(4..6)?.copy_from_slice(&length.to_be_bytes());
        // A header without a checksum stays without (RFC 768, RFC 6935). A checksum left to a device is not
        // 0: the field holds the pseudo-header sum.
        if udp.get(6..8)? != [0, 0] {
            self.renew_sum(17, udp, 6)?;
        }
        Some(())
    }

    /// Recomputes the checksum at `field` of a transport header, over `segment`: the header and everything
    /// after it. `None`: the segment does not hold the field.
    pub fn renew_sum(&self, protocol: u8, segment: &mut [u8], field: usize) -> Option<()> {
        let place = field..field.checked_add(2)?;
        segment.get_mut(place.clone())?.fill(0);
        let length = u32::try_from(segment.len()).ok()?;
        let sum = pseudo_header(self.src()?, self.dst()?, protocol, length)?.with(segment).finish();
        // In UDP zero means "no checksum".
        let sum = if protocol == 17 && sum == 0 { 0xffff } else { sum };
        segment.get_mut(place)?.copy_from_slice(&sum.to_be_bytes());
        Some(())
    }
}

/// Updates the headers around a packet of a frame, which ends with the packet: innermost first, since outer
/// checksums cover inner headers. `outer`: the packets around it, outermost first; `number` is added to
/// IPv4's identifications. `None`: a header does not allow it.
pub fn renew_around(outer: &[Decoded], frame: &mut [u8], number: u16) -> Option<()> {
    for packet in outer.iter().rev() {
        packet.renew_network(frame, number)?;
        if let TransportLayer::Udp(_) = &packet.transport {
            packet.renew_udp(frame)?;
        }
    }
    Some(())
}
