// SPDX-License-Identifier: Apache-2.0
//! The descriptor of a decoded packet: plain values and offsets, no borrow.
//!
//! Offsets count from the first byte of the decoder's input, also for tunnelled packets, and stay inside
//! the captured bytes: a slice by them never fails. In a cut frame ([`crate::DecoderConfig::cut_frames`])
//! this holds for headers only, and payloads may end beyond; slices of [`crate::PacketView`] end with the
//! captured bytes.

use crate::decode::proto;
use crate::{
    DecodeEvent, DecodeEvents, Ipv4, Ipv6, Ipv6ExtHeaders, LinkType, Network, PacketSource, QuotedPacket,
    TransportLayer,
};
use bitflags::bitflags;
use core::net::IpAddr;

/// The port's knowledge about a frame's transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Checksums {
    /// Unknown: the bytes decide.
    #[default]
    Unknown,
    /// A sender on this host left the checksum to hardware that does not exist: the field holds the sum of
    /// the pseudo header, which is no fault.
    Pending,
    /// A sender on this host left the checksum to hardware that does not exist, and it was filled in: the
    /// bytes decide the rest.
    Filled,
    /// Device or kernel has verified the outer packet's checksum.
    Valid,
}

bitflags! {
    /// Marks of a packet.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PacketFlags: u16 {
        /// A header is broken so that the packet must not reach flow state; rules see only its events.
        const INVALID = 1 << 0;
        /// A fragment that has to be reassembled; its transport header is not decoded.
        const FRAGMENT = 1 << 1;
        /// Reassembled from fragments.
        const REBUILT = 1 << 2;
        /// Belongs to a flow: addresses, ports or ICMP types are set.
        const WANTS_FLOW = 1 << 3;
        /// Carries a tunnelled packet: its payload is inspected as that packet, not as bytes of this one.
        const HAS_INNER = 1 << 4;
        /// PPP's protocol is Van Jacobson uncompressed: IP protocol 0 is TCP.
        const VJ_UNCOMPRESSED = 1 << 5;
        /// Headers are broken so that the packet's content was not found, though a receiver with fewer checks
        /// may find it: it was not inspected.
        const UNREADABLE = 1 << 6;
        /// A transport checksum of the frame has to be filled in before it is sent on (see
        /// [`Checksums::Pending`]).
        const CHECKSUM_PENDING = 1 << 7;
        /// Device or kernel has verified the transport checksum (see [`Checksums::Valid`]).
        const CHECKSUM_VALID = 1 << 8;
        /// A checksum of the frame was filled in on this host (see [`Checksums::Filled`]).
        const CHECKSUM_FILLED = 1 << 9;
        /// In a tunnel whose outer packet was reassembled from fragments: its bytes lie in several frames.
        const IN_REBUILT = 1 << 10;
        /// In a tunnel, and an outer header cannot take another length (see [`Decoded::may_be_resized`]).
        const FIXED_LENGTH = 1 << 11;
    }
}

/// VLAN ids, outermost first, at most three.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VlanIds {
    ids: [u16; 3],
    len: u8,
}

impl VlanIds {
    /// The number of tags kept.
    pub const CAPACITY: usize = 3;

    /// Adds the next inner tag's id; `false` when there are three already.
    pub fn push(&mut self, id: u16) -> bool {
        match self.ids.get_mut(usize::from(self.len)) {
            Some(slot) => {
                *slot = id;
                self.len += 1;
                true
            }
            None => false,
        }
    }

    /// The ids, outermost first.
    #[must_use]
    pub fn as_slice(&self) -> &[u16] {
        self.ids.get(..usize::from(self.len)).unwrap_or(&[])
    }

    /// All three places, 0 where there is no tag: what flow keys compare.
    #[must_use]
    pub const fn padded(&self) -> [u16; 3] {
        self.ids
    }

    /// The number of tags.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the packet is untagged.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Kind of the tunnel around a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum TunnelKind {
    /// No tunnel.
    #[default]
    None = 0,
    /// IP in IP, any pair of versions.
    Ip,
    /// GRE; the id is the key, 0 without one.
    Gre,
    /// NVGRE; the id is the virtual subnet.
    Nvgre,
    /// PPTP; the id is the call.
    Pptp,
    /// ERSPAN; the id is the session.
    Erspan,
    /// Teredo.
    Teredo,
    /// VXLAN; the id is the VNI.
    Vxlan,
    /// GENEVE; the id is the VNI.
    Geneve,
    /// GTP-U; the id is the tunnel endpoint.
    Gtp,
}

impl TunnelKind {
    /// The name for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            TunnelKind::None => "none",
            TunnelKind::Ip => "ip",
            TunnelKind::Gre => "gre",
            TunnelKind::Nvgre => "nvgre",
            TunnelKind::Pptp => "pptp",
            TunnelKind::Erspan => "erspan",
            TunnelKind::Teredo => "teredo",
            TunnelKind::Vxlan => "vxlan",
            TunnelKind::Geneve => "geneve",
            TunnelKind::Gtp => "gtp",
        }
    }
}

/// The innermost tunnel around a packet: part of tenant selection and of flow keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TunnelTag {
    /// The tunnel protocol.
    pub kind: TunnelKind,
    /// The tunnel's identifier (VNI, key, ...), 0 where the protocol has none.
    pub id: u32,
}

impl TunnelTag {
    /// The tag of a packet outside of tunnels.
    pub const NONE: TunnelTag = TunnelTag { kind: TunnelKind::None, id: 0 };

    /// Makes a tag.
    #[must_use]
    pub const fn new(kind: TunnelKind, id: u32) -> Self {
        TunnelTag { kind, id }
    }

    /// Kind and id as one number, for keys of flows: the same for both directions. Ids that name one
    /// direction only are left out: in a PPTP tunnel each side numbers the other's call (RFC 2637 section
    /// 4.1), in GTP-U each side its own end (3GPP TS 29.281).
    #[must_use]
    pub const fn key(self) -> u64 {
        let id = match self.kind {
            TunnelKind::Pptp | TunnelKind::Gtp => 0,
            _ => self.id,
        };
        (self.kind as u64) << 32 | id as u64
    }
}

/// The descriptor of one packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Link type of its first byte; tunnelled and reassembled packets are raw IP.
    pub link_type: LinkType,
    /// The source of its bytes.
    pub source: PacketSource,
    /// Tunnel depth: 0 on the wire, one more inside each tunnel.
    pub recursion: u8,
    /// Layers decoded so far, those of outer packets included.
    pub layers: u8,
    /// Marks.
    pub flags: PacketFlags,
    /// First byte of this packet (not 0 for tunnelled packets).
    pub start: u32,
    /// Byte after the last one of this packet, in a cut frame as on the wire.
    pub end: u32,
    /// Length on the wire of the outer frame, which may exceed the captured length.
    pub wire_len: u32,
    /// VLAN ids.
    pub vlan: VlanIds,
    /// The offset of the Ethernet header (the last one where several follow each other).
    pub ethernet: Option<u32>,
    /// EtherType (or what link types have in its place) that names the network layer, 0 if none does.
    pub ether_type: u16,
    /// Network layer.
    pub network: Network,
    /// Transport layer.
    pub transport: TransportLayer,
    /// The offset of the network header.
    pub l3: u32,
    /// The offset of the transport header, after IPv6's extension headers.
    pub l4: u32,
    /// The offset of the payload.
    pub payload: u32,
    /// The length of the payload in bytes, in a cut frame as on the wire.
    pub payload_len: u32,
    /// The innermost tunnel around this packet.
    pub tunnel: TunnelTag,
    /// The faults found.
    pub events: DecodeEvents,
}

/// Whether an extension header of IPv6 is a message of its own if no header follows it.
pub(crate) const fn is_message(header: u8) -> bool {
    matches!(header, proto::MOBILITY | proto::HIP | proto::SHIM6)
}

impl Default for Decoded {
    fn default() -> Self {
        Decoded {
            link_type: LinkType::RAW,
            source: PacketSource::Wire,
            recursion: 0,
            layers: 0,
            flags: PacketFlags::empty(),
            start: 0,
            end: 0,
            wire_len: 0,
            vlan: VlanIds::default(),
            ethernet: None,
            ether_type: 0,
            network: Network::None,
            transport: TransportLayer::None,
            l3: 0,
            l4: 0,
            payload: 0,
            payload_len: 0,
            tunnel: TunnelTag::NONE,
            events: DecodeEvents::NONE,
        }
    }
}

impl Decoded {
    /// Adds an event that leaves the packet usable.
    pub fn event(&mut self, event: DecodeEvent) {
        self.events.push(event);
    }

    /// Adds an event that makes the packet invalid.
    pub fn invalid(&mut self, event: DecodeEvent) {
        self.flags |= PacketFlags::INVALID;
        self.events.push(event);
    }

    /// Adds an event that makes the packet invalid and unreadable.
    pub fn unreadable(&mut self, event: DecodeEvent) {
        self.flags |= PacketFlags::UNREADABLE;
        self.invalid(event);
    }

    /// Whether the packet's content could not be located, so that no function can inspect it.
    #[must_use]
    pub const fn is_unreadable(&self) -> bool {
        self.flags.contains(PacketFlags::UNREADABLE)
    }

    /// Whether a header is broken so that the packet must not reach flow state.
    #[must_use]
    pub const fn is_invalid(&self) -> bool {
        self.flags.contains(PacketFlags::INVALID)
    }

    /// Whether this is a fragment to be reassembled.
    #[must_use]
    pub const fn is_fragment(&self) -> bool {
        self.flags.contains(PacketFlags::FRAGMENT)
    }

    /// Whether the packet belongs to a flow: its transport header could be read, also if other parts are
    /// invalid. Receivers differ in their treatment of wrong options.
    #[must_use]
    pub const fn wants_flow(&self) -> bool {
        self.flags.contains(PacketFlags::WANTS_FLOW)
    }

    /// The IPv4 header.
    #[must_use]
    pub const fn ipv4(&self) -> Option<&Ipv4> {
        match &self.network {
            Network::Ipv4(ip) => Some(ip),
            _ => None,
        }
    }

    /// The IPv6 header.
    #[must_use]
    pub const fn ipv6(&self) -> Option<&Ipv6> {
        match &self.network {
            Network::Ipv6(ip) => Some(ip),
            _ => None,
        }
    }

    /// Source address of IP.
    #[must_use]
    pub const fn src(&self) -> Option<IpAddr> {
        match &self.network {
            Network::Ipv4(ip) => Some(IpAddr::V4(ip.src)),
            Network::Ipv6(ip) => Some(IpAddr::V6(ip.src)),
            _ => None,
        }
    }

    /// Destination address of IP.
    #[must_use]
    pub const fn dst(&self) -> Option<IpAddr> {
        match &self.network {
            Network::Ipv4(ip) => Some(IpAddr::V4(ip.dst)),
            Network::Ipv6(ip) => Some(IpAddr::V6(ip.dst)),
            _ => None,
        }
    }

    /// IP protocol; for IPv6 the one after the extension headers.
    #[must_use]
    pub const fn proto(&self) -> Option<u8> {
        match &self.network {
            Network::Ipv4(ip) => Some(ip.proto),
            Network::Ipv6(ip) => Some(ip.proto),
            _ => None,
        }
    }

    /// The IP protocol as policies and flows number it: extension headers count as the protocol after them.
    /// It differs from [`Decoded::proto`], which records show as Suricata does, where IPv6 carries nothing
    /// (59) or ICMP of IPv4 (1). Mobility, HIP and shim messages that carry nothing count as themselves.
    #[must_use]
    pub fn carried_protocol(&self) -> Option<u8> {
        match &self.network {
            Network::Ipv6(ip) if ip.ext_headers.contains(Ipv6ExtHeaders::NONE) && !is_message(ip.proto) => {
                Some(proto::NONE)
            }
            Network::Ipv6(_) if self.events.contains(DecodeEvent::Ipv6Icmpv4) => Some(1),
            _ => self.proto(),
        }
    }

    /// Whether the packet can have a flow by its addresses and protocol, independent of its transport header:
    /// it is a whole IP packet with readable headers.
    #[must_use]
    pub const fn is_whole_ip(&self) -> bool {
        matches!(self.network, Network::Ipv4(_) | Network::Ipv6(_))
            && !self.is_fragment()
            && !self.is_unreadable()
    }

    /// Whether the packet can have a flow, by its transport header or by its addresses and protocol.
    #[must_use]
    pub const fn can_have_flow(&self) -> bool {
        self.wants_flow() || self.is_whole_ip()
    }

    /// Time to live or hop limit.
    #[must_use]
    pub const fn ttl(&self) -> Option<u8> {
        match &self.network {
            Network::Ipv4(ip) => Some(ip.ttl),
            Network::Ipv6(ip) => Some(ip.hop_limit),
            _ => None,
        }
    }

    /// Source and destination port of TCP, UDP or SCTP.
    #[must_use]
    pub const fn ports(&self) -> Option<(u16, u16)> {
        match &self.transport {
            TransportLayer::Tcp(tcp) => Some((tcp.sport, tcp.dport)),
            TransportLayer::Udp(udp) => Some((udp.sport, udp.dport)),
            TransportLayer::Sctp(sctp) => Some((sctp.sport, sctp.dport)),
            _ => None,
        }
    }

    /// The packet that an ICMP error of either version quotes. Every lookup of a packet's flow, worker or
    /// tenant uses this first: an error belongs to the flow of the packet that it quotes. `None`: no error,
    /// or one that quotes nothing readable or no packet of its receiver's (RFC 1122 section 3.2.2: an error
    /// goes to the source of the quoted packet).
    #[must_use]
    pub fn about(&self) -> Option<&QuotedPacket> {
        // The decoder reads quotes of errors only: ICMP types 3, 4, 5, 11, 12 and ICMPv6 types 1 to 4.
        let quoted = self.transport.icmp()?.quoted.as_ref()?;
        (self.dst() == Some(quoted.src)).then_some(quoted)
    }

    /// Whether this is an ICMP error of IPv4, which belongs to the flow of the packet that it quotes, or to
    /// none.
    #[must_use]
    pub fn is_icmpv4_error(&self) -> bool {
        matches!(&self.transport, TransportLayer::Icmp(icmp) if matches!(icmp.kind, 3 | 4 | 5 | 11 | 12))
    }

    /// The captured length of this packet in bytes; in a cut frame its length on the wire.
    #[must_use]
    pub const fn length(&self) -> u32 {
        self.end.saturating_sub(self.start)
    }

    /// Length of transport header and payload, in bytes.
    #[must_use]
    pub const fn l4_len(&self) -> u32 {
        self.payload.saturating_add(self.payload_len).saturating_sub(self.l4)
    }

    pub(crate) fn clear_network(&mut self) {
        self.network = Network::None;
        self.l3 = 0;
        self.clear_transport();
    }

    pub(crate) fn clear_transport(&mut self) {
        self.transport = TransportLayer::None;
        self.l4 = 0;
        self.payload = 0;
        self.payload_len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_stays_small() {
        // Copied once per packet, so it has to fit into five cache lines.
        assert!(size_of::<Decoded>() <= 320, "Decoded has {} bytes", size_of::<Decoded>());
    }

    #[test]
    fn vlan_ids_are_bounded_and_padded() {
        let mut vlan = VlanIds::default();
        assert!(vlan.push(7) && vlan.push(8));
        assert_eq!(vlan.padded(), [7, 8, 0]);
        assert!(vlan.push(9) && !vlan.push(10));
        assert_eq!(vlan.as_slice(), [7, 8, 9]);
    }

    #[test]
    fn tunnel_keys_keep_kinds_apart() {
        assert_ne!(TunnelTag::new(TunnelKind::Vxlan, 5).key(), TunnelTag::new(TunnelKind::Geneve, 5).key());
        assert_eq!(TunnelTag::NONE.key(), 0);
    }
}
