// SPDX-License-Identifier: Apache-2.0
//! Link types and sources of packets.
//!
//! Source: the DLT registry of tcpdump.org; the spelling of names is EVE's (`packet_info.linktype_name`,
//! `pkt_src`).

use core::fmt;

/// Data link type of a capture, as a DLT number.
///
/// Files store the LINKTYPE number, which differs from the DLT number for raw IP only (101 in files, 12 in
/// memory): [`LinkType::from_capture`] unifies them, as events show 12.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback: address family in the byte order of the capturing machine, then IP.
    pub const NULL: LinkType = LinkType(0);
    /// Ethernet.
    pub const ETHERNET: LinkType = LinkType(1);
    /// PPP, with or without HDLC framing.
    pub const PPP: LinkType = LinkType(9);
    /// Raw IPv4 or IPv6.
    pub const RAW: LinkType = LinkType(12);
    /// PPP in HDLC-like framing (RFC 1662).
    pub const PPP_SERIAL: LinkType = LinkType(50);
    /// PPP over Ethernet session, without the Ethernet header.
    pub const PPP_ETHER: LinkType = LinkType(51);
    /// Cisco HDLC.
    pub const C_HDLC: LinkType = LinkType(104);
    /// OpenBSD loopback: address family in network byte order, then IP.
    pub const LOOP: LinkType = LinkType(108);
    /// Linux cooked capture, version 1.
    pub const LINUX_SLL: LinkType = LinkType(113);
    /// Raw IPv4.
    pub const IPV4: LinkType = LinkType(228);
    /// Raw IPv6.
    pub const IPV6: LinkType = LinkType(229);
    /// Linux cooked capture, version 2.
    pub const LINUX_SLL2: LinkType = LinkType(276);

    /// Every link type that [`crate::Decoder`] knows.
    pub const SUPPORTED: &'static [LinkType] = &[
        Self::NULL,
        Self::ETHERNET,
        Self::PPP,
        Self::RAW,
        Self::PPP_SERIAL,
        Self::PPP_ETHER,
        Self::C_HDLC,
        Self::LOOP,
        Self::LINUX_SLL,
        Self::IPV4,
        Self::IPV6,
        Self::LINUX_SLL2,
    ];

    /// The link type of the number in a capture file's header; 12, 14 and 101 all become raw IP (12).
    #[must_use]
    pub const fn from_capture(number: u16) -> Self {
        match number {
            14 | 101 => Self::RAW,
            other => LinkType(other),
        }
    }

    /// Whether the decoder supports this link type.
    #[must_use]
    pub fn is_supported(self) -> bool {
        Self::SUPPORTED.contains(&Self::from_capture(self.0))
    }

    /// Name as EVE's `packet_info.linktype_name` spells it; others are shown by their decimal number.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match Self::from_capture(self.0) {
            Self::NULL => "NULL",
            Self::ETHERNET => "EN10MB",
            Self::PPP => "PPP",
            Self::RAW => "RAW",
            Self::PPP_SERIAL => "PPP_SERIAL",
            Self::PPP_ETHER => "PPP_ETHER",
            Self::C_HDLC => "C_HDLC",
            Self::LOOP => "LOOP",
            Self::LINUX_SLL => "LINUX_SLL",
            Self::IPV4 => "IPV4",
            Self::IPV6 => "IPV6",
            Self::LINUX_SLL2 => "LINUX_SLL2",
            _ => return None,
        })
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

/// The source of a packet: a port or capture, a tunnel, or fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketSource {
    /// A port or a capture file.
    #[default]
    Wire,
    /// Inside GRE (also NVGRE and ERSPAN).
    Gre,
    /// Inside IPv4.
    Ipv4,
    /// Inside IPv6.
    Ipv6,
    /// Inside Teredo.
    Teredo,
    /// Reassembled from fragments.
    Defrag,
    /// Inside VXLAN.
    Vxlan,
    /// Inside GENEVE.
    Geneve,
    /// Inside GTP-U (no counterpart in Suricata).
    Gtp,
    /// No packet: bytes of a connection in order, as a source without packets has them.
    Ordered,
}

impl PacketSource {
    /// EVE's `pkt_src`.
    #[must_use]
    pub const fn eve_name(self) -> &'static str {
        match self {
            PacketSource::Wire => "wire/pcap",
            PacketSource::Gre => "gre tunnel",
            PacketSource::Ipv4 => "ipv4 tunnel",
            PacketSource::Ipv6 => "ipv6 tunnel",
            PacketSource::Teredo => "teredo tunnel",
            PacketSource::Defrag => "defrag",
            PacketSource::Vxlan => "vxlan encapsulation",
            PacketSource::Geneve => "geneve encapsulation",
            PacketSource::Gtp => "gtp tunnel",
            PacketSource::Ordered => "stream (detect/log)",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_ip_has_one_number() {
        for number in [12, 14, 101] {
            assert_eq!(LinkType::from_capture(number), LinkType::RAW);
            assert!(LinkType(number).is_supported());
        }
        assert_eq!(LinkType(1).to_string(), "EN10MB");
        assert_eq!(LinkType(147).to_string(), "147");
        assert!(!LinkType(147).is_supported());
        for link in LinkType::SUPPORTED {
            assert!(link.name().is_some(), "{link:?} has no name");
        }
    }
}
