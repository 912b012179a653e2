// SPDX-License-Identifier: Apache-2.0
//! The network layer of a decoded packet, as plain values: ARP, IPv4, IPv6.

use bitflags::bitflags;
use core::net::{Ipv4Addr, Ipv6Addr};

bitflags! {
    /// IPv4 options that a packet carries (well-formed ones).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct IpOptions: u16 {
        /// End of list.
        const EOL = 1 << 0;
        /// No operation.
        const NOP = 1 << 1;
        /// Record route.
        const RECORD_ROUTE = 1 << 2;
        /// Timestamp.
        const TIMESTAMP = 1 << 3;
        /// Quick start (RFC 4782).
        const QUICK_START = 1 << 4;
        /// Loose source route.
        const LOOSE_SOURCE_ROUTE = 1 << 5;
        /// Strict source route.
        const STRICT_SOURCE_ROUTE = 1 << 6;
        /// Stream identifier.
        const STREAM_ID = 1 << 7;
        /// Basic security (RFC 1108).
        const SECURITY = 1 << 8;
        /// Commercial IP security.
        const CIPSO = 1 << 9;
        /// Router alert (RFC 2113).
        const ROUTER_ALERT = 1 << 10;
        /// Extended security (RFC 1108).
        const EXTENDED_SECURITY = 1 << 11;
    }
}

impl IpOptions {
    /// The option that the rule keyword `ipopts` names (`any` is none of these: it matches a packet with any
    /// option).
    #[must_use]
    pub fn from_rule_name(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "eol" => Self::EOL,
            "nop" => Self::NOP,
            "rr" => Self::RECORD_ROUTE,
            "ts" => Self::TIMESTAMP,
            "qs" => Self::QUICK_START,
            "lsrr" => Self::LOOSE_SOURCE_ROUTE,
            "ssrr" => Self::STRICT_SOURCE_ROUTE,
            "satid" => Self::STREAM_ID,
            "sec" => Self::SECURITY,
            "esec" => Self::EXTENDED_SECURITY,
            "cipso" => Self::CIPSO,
            "rtralt" => Self::ROUTER_ALERT,
            _ => return None,
        })
    }
}

bitflags! {
    /// IPv6 extension headers that a packet carries.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Ipv6ExtHeaders: u16 {
        /// Hop-by-hop options.
        const HOP_BY_HOP = 1 << 0;
        /// Routing.
        const ROUTING = 1 << 1;
        /// Fragment.
        const FRAGMENT = 1 << 2;
        /// Destination options.
        const DESTINATION = 1 << 3;
        /// Authentication.
        const AUTHENTICATION = 1 << 4;
        /// Encapsulating security payload.
        const ESP = 1 << 5;
        /// Mobility.
        const MOBILITY = 1 << 6;
        /// Host identity protocol.
        const HIP = 1 << 7;
        /// Shim6.
        const SHIM6 = 1 << 8;
        /// "No next header".
        const NONE = 1 << 9;
        /// A second fragment header, after one of an unfragmented datagram.
        const FRAGMENT_AGAIN = 1 << 10;
    }
}

/// ARP for Ethernet and IPv4 (RFC 826).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// 1 request, 2 reply, 3 reverse request, 4 reverse reply.
    pub operation: u16,
    /// Sender's hardware address.
    pub sender_mac: [u8; 6],
    /// Sender's address.
    pub sender: Ipv4Addr,
    /// Target's hardware address.
    pub target_mac: [u8; 6],
    /// Target's address.
    pub target: Ipv4Addr,
}

/// IPv4's fragment field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fragment {
    /// Offset of this fragment's data, in bytes.
    pub offset: u16,
    /// More fragments follow.
    pub more: bool,
    /// Must not be fragmented.
    pub dont: bool,
    /// The reserved bit.
    pub reserved: bool,
}

/// IPv4 header fields (RFC 791).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4 {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Protocol.
    pub proto: u8,
    /// Time to live.
    pub ttl: u8,
    /// Type of service.
    pub tos: u8,
    /// Header length with options, in bytes (20 to 60).
    pub header_len: u8,
    /// Total length in the header, in bytes.
    pub total_len: u16,
    /// Identification.
    pub id: u16,
    /// Fragment field.
    pub fragment: Fragment,
    /// The options present.
    pub options: IpOptions,
    /// The number of options, repeated, unknown and broken ones included.
    pub option_count: u8,
}

impl Ipv4 {
    /// The header of a connection whose packets are not seen: addresses and protocol alone.
    #[must_use]
    pub fn between(src: Ipv4Addr, dst: Ipv4Addr, proto: u8) -> Self {
        Ipv4 {
            src,
            dst,
            proto,
            ttl: 0,
            tos: 0,
            header_len: 20,
            total_len: 0,
            id: 0,
            fragment: Fragment::default(),
            options: IpOptions::default(),
            option_count: 0,
        }
    }
}

impl Ipv6 {
    /// The header of a connection whose packets are not seen: addresses and protocol alone.
    #[must_use]
    pub fn between(src: Ipv6Addr, dst: Ipv6Addr, proto: u8) -> Self {
        Ipv6 {
            src,
            dst,
            proto,
            next_header: proto,
            hop_limit: 0,
            traffic_class: 0,
            flow_label: 0,
            payload_len: 0,
            ext_headers: Ipv6ExtHeaders::default(),
            ext_len: 0,
            routing_type: None,
            fragment: None,
        }
    }
}

/// IPv6 fragment header (RFC 8200, 4.5) and the offsets of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Fragment {
    /// Offset of this fragment's data, in bytes.
    pub offset: u16,
    /// More fragments follow.
    pub more: bool,
    /// Identification.
    pub id: u32,
    /// The protocol after the fragment header.
    pub next_header: u8,
    /// The offset of the fragment header.
    pub header: u32,
    /// The offset of the byte that names the fragment header as the next one.
    pub next_header_field: u32,
    /// The offset of the fragment's data.
    pub data: u32,
    /// The length of the data in bytes.
    pub data_len: u32,
}

/// IPv6 header fields (RFC 8200).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6 {
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// Protocol after the extension headers; 0 when they end without one.
    pub proto: u8,
    /// Next header field of the fixed header.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label.
    pub flow_label: u32,
    /// Payload length in the header, in bytes.
    pub payload_len: u16,
    /// The extension headers present.
    pub ext_headers: Ipv6ExtHeaders,
    /// Length of the extension headers in bytes.
    pub ext_len: u16,
    /// Type of the (first) routing header.
    pub routing_type: Option<u8>,
    /// The fragment header, also that of an unfragmented packet.
    pub fragment: Option<Ipv6Fragment>,
}

/// The network layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// None that could be decoded.
    #[default]
    None,
    /// ARP.
    Arp(Arp),
    /// IPv4.
    Ipv4(Ipv4),
    /// IPv6.
    Ipv6(Ipv6),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_names_of_options_are_distinct() {
        let names =
            ["eol", "nop", "rr", "ts", "qs", "lsrr", "ssrr", "satid", "sec", "esec", "cipso", "rtralt"];
        let all = names.iter().fold(IpOptions::empty(), |all, name| {
            let option = IpOptions::from_rule_name(name).unwrap();
            assert!(!all.intersects(option), "{name}");
            all | option
        });
        assert_eq!(all, IpOptions::all());
        assert_eq!(IpOptions::from_rule_name("any"), None);
    }
}
