// SPDX-License-Identifier: Apache-2.0
//! Decode events: the names of faults in a packet's headers.
//!
//! Names and order are those of Suricata 8 (`decode-event` rules, EVE `anomaly` and `stats`); one table makes
//! the enum, its names and its counters. Stream events are none of these: they belong to the flow crate.

use core::fmt;

macro_rules! decode_events {
    ($($variant:ident => $name:literal, $counted:literal, $doc:literal,)+) => {
        /// A fault of a packet's headers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DecodeEvent { $(#[doc = $doc] $variant,)+ }

        impl DecodeEvent {
            /// Every event, in the order of the counters.
            pub const ALL: &'static [DecodeEvent] = &[$(DecodeEvent::$variant,)+];

            /// Name in `decode-event` rules: `ipv4.trunc_pkt`.
            #[must_use]
            pub const fn rule_name(self) -> &'static str {
                match self { $(DecodeEvent::$variant => $name,)+ }
            }

            /// Name in EVE's `anomaly.event`: `decoder.ipv4.trunc_pkt`.
            #[must_use]
            pub const fn eve_name(self) -> &'static str {
                match self { $(DecodeEvent::$variant => concat!("decoder.", $name),)+ }
            }

            /// The event's meaning, in one sentence.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(DecodeEvent::$variant => $doc,)+ }
            }

            const fn counted(self) -> bool {
                match self { $(DecodeEvent::$variant => $counted,)+ }
            }

            const fn counter_name(self) -> &'static str {
                match self { $(DecodeEvent::$variant => concat!("decoder.event.", $name),)+ }
            }
        }
    };
}

// variant => name in rules, whether EVE's stats have it, meaning.
decode_events! {
    AfpacketTruncPkt => "afpacket.trunc_pkt", true, "The port's ring cut the frame off.",
    Ipv4PktTooSmall => "ipv4.pkt_too_small", true, "IPv4: fewer bytes than an IPv4 header.",
    Ipv4HlenTooSmall => "ipv4.hlen_too_small", true, "IPv4: header length field below 20 bytes.",
    Ipv4IplenSmallerThanHlen => "ipv4.iplen_smaller_than_hlen", true, "IPv4: total length below the header length.",
    Ipv4TruncPkt => "ipv4.trunc_pkt", true, "IPv4: total length beyond the captured bytes.",
    Ipv4OptInvalid => "ipv4.opt_invalid", true, "IPv4: unknown option.",
    Ipv4OptInvalidLen => "ipv4.opt_invalid_len", true, "IPv4: option with a length that cannot be.",
    Ipv4OptMalformed => "ipv4.opt_malformed", true, "IPv4: option with impossible contents.",
    Ipv4OptPadRequired => "ipv4.opt_pad_required", true, "IPv4: options do not fill a multiple of 8 bytes.",
    Ipv4OptEolRequired => "ipv4.opt_eol_required", true, "IPv4: options end in the middle of one.",
    Ipv4OptDuplicate => "ipv4.opt_duplicate", true, "IPv4: option that may occur once occurs twice.",
    Ipv4OptUnknown => "ipv4.opt_unknown", true, "IPv4: option without a validation.",
    Ipv4WrongIpVersion => "ipv4.wrong_ip_version", true, "IPv4: version field is not 4.",
    Ipv4Icmpv6 => "ipv4.icmpv6", true, "IPv4: ICMPv6 inside IPv4.",
    Icmpv4PktTooSmall => "icmpv4.pkt_too_small", true, "ICMP: fewer bytes than an ICMP header.",
    Icmpv4UnknownType => "icmpv4.unknown_type", true, "ICMP: type that is not known.",
    Icmpv4UnknownCode => "icmpv4.unknown_code", true, "ICMP: code that the type does not have.",
    Icmpv4Ipv4TruncPkt => "icmpv4.ipv4_trunc_pkt", true, "ICMP: quoted packet or body cut off.",
    Icmpv4Ipv4UnknownVer => "icmpv4.ipv4_unknown_ver", true, "ICMP: quoted packet is not IPv4.",
    Icmpv6UnknownType => "icmpv6.unknown_type", true, "ICMPv6: type that is not known.",
    Icmpv6UnknownCode => "icmpv6.unknown_code", true, "ICMPv6: code that the type does not have.",
    Icmpv6PktTooSmall => "icmpv6.pkt_too_small", true, "ICMPv6: fewer bytes than an ICMPv6 header.",
    Icmpv6Ipv6UnknownVersion => "icmpv6.ipv6_unknown_version", true, "ICMPv6: quoted packet is not IPv6.",
    Icmpv6Ipv6TruncPkt => "icmpv6.ipv6_trunc_pkt", true, "ICMPv6: quoted packet cut off.",
    Icmpv6MldMessageWithInvalidHl => "icmpv6.mld_message_with_invalid_hl", true, "ICMPv6: multicast listener message with a hop limit other than 1.",
    Icmpv6UnassignedType => "icmpv6.unassigned_type", true, "ICMPv6: type that IANA has not assigned.",
    Icmpv6ExperimentationType => "icmpv6.experimentation_type", true, "ICMPv6: type kept for private experiments.",
    Ipv6PktTooSmall => "ipv6.pkt_too_small", true, "IPv6: fewer bytes than an IPv6 header.",
    Ipv6TruncPkt => "ipv6.trunc_pkt", true, "IPv6: payload length beyond the captured bytes.",
    Ipv6TruncExthdr => "ipv6.trunc_exthdr", true, "IPv6: extension header cut off.",
    Ipv6ExthdrDuplFh => "ipv6.exthdr_dupl_fh", true, "IPv6: second fragment header.",
    Ipv6ExthdrUselessFh => "ipv6.exthdr_useless_fh", true, "IPv6: fragment header on a whole packet.",
    Ipv6ExthdrDuplRh => "ipv6.exthdr_dupl_rh", true, "IPv6: second routing header.",
    Ipv6ExthdrDuplHh => "ipv6.exthdr_dupl_hh", true, "IPv6: second hop-by-hop header.",
    Ipv6ExthdrDuplDh => "ipv6.exthdr_dupl_dh", true, "IPv6: third destination options header.",
    Ipv6ExthdrDuplAh => "ipv6.exthdr_dupl_ah", true, "IPv6: second authentication header.",
    Ipv6ExthdrDuplEh => "ipv6.exthdr_dupl_eh", true, "IPv6: second ESP header.",
    Ipv6ExthdrInvalidOptlen => "ipv6.exthdr_invalid_optlen", true, "IPv6: option longer than its header.",
    Ipv6WrongIpVersion => "ipv6.wrong_ip_version", true, "IPv6: version field is not 6.",
    Ipv6ExthdrAhResNotNull => "ipv6.exthdr_ah_res_not_null", true, "IPv6: reserved field of the authentication header is not 0.",
    Ipv6HopoptsUnknownOpt => "ipv6.hopopts_unknown_opt", true, "IPv6: unknown hop-by-hop option.",
    Ipv6HopoptsOnlyPadding => "ipv6.hopopts_only_padding", true, "IPv6: hop-by-hop header with nothing but padding.",
    Ipv6DstoptsUnknownOpt => "ipv6.dstopts_unknown_opt", true, "IPv6: unknown destination option.",
    Ipv6DstoptsOnlyPadding => "ipv6.dstopts_only_padding", true, "IPv6: destination options header with nothing but padding.",
    Ipv6RhType0 => "ipv6.rh_type_0", true, "IPv6: routing header of the deprecated type 0.",
    Ipv6ZeroLenPadn => "ipv6.zero_len_padn", true, "IPv6: PadN option of length 0.",
    Ipv6FhNonZeroReservedField => "ipv6.fh_non_zero_reserved_field", true, "IPv6: reserved field of the fragment header is not 0.",
    Ipv6DataAfterNoneHeader => "ipv6.data_after_none_header", true, "IPv6: data after the header that says there is none.",
    Ipv6UnknownNextHeader => "ipv6.unknown_next_header", true, "IPv6: next header that is not known.",
    Ipv6Icmpv4 => "ipv6.icmpv4", true, "IPv6: ICMPv4 inside IPv6.",
    TcpPktTooSmall => "tcp.pkt_too_small", true, "TCP: fewer bytes than a TCP header.",
    TcpHlenTooSmall => "tcp.hlen_too_small", true, "TCP: header length beyond the captured bytes.",
    TcpInvalidOptlen => "tcp.invalid_optlen", true, "TCP: header length below 20 bytes.",
    TcpOptInvalidLen => "tcp.opt_invalid_len", true, "TCP: option with a length that cannot be.",
    TcpOptDuplicate => "tcp.opt_duplicate", true, "TCP: option that may occur once occurs twice.",
    TcpOptWscaleOverMax => "tcp.opt_wscale_over_max", true, "TCP: window scale above 14.",
    UdpPktTooSmall => "udp.pkt_too_small", true, "UDP: UDP length beyond the captured bytes.",
    UdpHlenTooSmall => "udp.hlen_too_small", true, "UDP: fewer bytes than a UDP header.",
    UdpHlenInvalid => "udp.hlen_invalid", true, "UDP: length differs from that of IP (not raised).",
    UdpLenInvalid => "udp.len_invalid", true, "UDP: UDP length below 8.",
    SllPktTooSmall => "sll.pkt_too_small", true, "SLL: fewer bytes than a cooked header.",
    Sll2PktTooSmall => "sll2.pkt_too_small", true, "SLL2: fewer bytes than a cooked header.",
    EthernetPktTooSmall => "ethernet.pkt_too_small", true, "Ethernet: fewer bytes than an Ethernet header.",
    EthernetUnknownEthertype => "ethernet.unknown_ethertype", true, "Ethernet: EtherType that is not known (also 802.3 lengths).",
    PppPktTooSmall => "ppp.pkt_too_small", true, "PPP: fewer bytes than a PPP header.",
    PppVjuPktTooSmall => "ppp.vju_pkt_too_small", true, "PPP: Van Jacobson packet without room for IPv4.",
    PppIp4PktTooSmall => "ppp.ip4_pkt_too_small", true, "PPP: no room for IPv4.",
    PppIp6PktTooSmall => "ppp.ip6_pkt_too_small", true, "PPP: no room for IPv6.",
    PppWrongType => "ppp.wrong_type", true, "PPP: protocol that is not known.",
    PppUnsupProto => "ppp.unsup_proto", true, "PPP: protocol that is known and not decoded.",
    PppoePktTooSmall => "pppoe.pkt_too_small", true, "PPPoE: fewer bytes than a PPPoE header.",
    PppoeWrongCode => "pppoe.wrong_code", true, "PPPoE: discovery code that is not known.",
    PppoeMalformedTags => "pppoe.malformed_tags", true, "PPPoE: tags longer than the packet.",
    GrePktTooSmall => "gre.pkt_too_small", true, "GRE: fewer bytes than a GRE header.",
    GreWrongVersion => "gre.wrong_version", true, "GRE: version above 1.",
    GreVersion0Recur => "gre.version0_recur", true, "GRE: version 0 with recursion control.",
    GreVersion0Flags => "gre.version0_flags", true, "GRE: version 0 with reserved flags.",
    GreVersion0HdrTooBig => "gre.version0_hdr_too_big", true, "GRE: version 0: optional fields cut off.",
    GreVersion0MalformedSreHdr => "gre.version0_malformed_sre_hdr", true, "GRE: version 0: source route entry cut off.",
    GreVersion1Chksum => "gre.version1_chksum", true, "GRE: version 1 with a checksum.",
    GreVersion1Route => "gre.version1_route", true, "GRE: version 1 with routing.",
    GreVersion1Ssr => "gre.version1_ssr", true, "GRE: version 1 with a strict source route.",
    GreVersion1Recur => "gre.version1_recur", true, "GRE: version 1 with recursion control.",
    GreVersion1Flags => "gre.version1_flags", true, "GRE: version 1 with reserved flags.",
    GreVersion1NoKey => "gre.version1_no_key", true, "GRE: version 1 without a key.",
    GreVersion1WrongProtocol => "gre.version1_wrong_protocol", true, "GRE: version 1 with something else than PPP.",
    GreVersion1MalformedSreHdr => "gre.version1_malformed_sre_hdr", true, "GRE: version 1: source route entry cut off (not raised).",
    GreVersion1HdrTooBig => "gre.version1_hdr_too_big", true, "GRE: version 1: optional fields cut off.",
    VlanHeaderTooSmall => "vlan.header_too_small", true, "VLAN: fewer bytes than a VLAN tag.",
    VlanUnknownType => "vlan.unknown_type", true, "VLAN: unknown EtherType after a VLAN tag.",
    VlanTooManyLayers => "vlan.too_many_layers", true, "VLAN: more than three VLAN tags.",
    Ieee8021ahHeaderTooSmall => "ieee8021ah.header_too_small", true, "802.1ah: fewer bytes than an 802.1ah tag.",
    VntagHeaderTooSmall => "vntag.header_too_small", true, "VN-Tag: fewer bytes than a VN-Tag.",
    VntagUnknownType => "vntag.unknown_type", true, "VN-Tag: unknown EtherType after a VN-Tag.",
    IprawInvalidIpVersion => "ipraw.invalid_ip_version", true, "Raw link: raw IP that is neither version 4 nor 6.",
    LtnullPktTooSmall => "ltnull.pkt_too_small", true, "Loopback link: fewer bytes than the address family.",
    LtnullUnsupportedType => "ltnull.unsupported_type", true, "Loopback link: address family that is neither IPv4 nor IPv6.",
    SctpPktTooSmall => "sctp.pkt_too_small", true, "SCTP: fewer bytes than an SCTP header.",
    EspPktTooSmall => "esp.pkt_too_small", true, "ESP: fewer bytes than an ESP header.",
    Ipv4FragPktTooLarge => "ipv4.frag_pkt_too_large", true, "IPv4: fragments make a datagram above 65,535 bytes.",
    Ipv6FragPktTooLarge => "ipv6.frag_pkt_too_large", true, "IPv6: fragments make a datagram above 65,535 bytes.",
    Ipv4FragOverlap => "ipv4.frag_overlap", true, "IPv4: fragments overlap with different data.",
    Ipv6FragOverlap => "ipv6.frag_overlap", true, "IPv6: fragments overlap with different data.",
    Ipv6FragInvalidLength => "ipv6.frag_invalid_length", true, "IPv6: fragment that is not the last and not a multiple of 8 bytes.",
    Ipv4FragIgnored => "ipv4.frag_ignored", true, "IPv4: fragment that could not be kept.",
    Ipv6FragIgnored => "ipv6.frag_ignored", true, "IPv6: fragment that could not be kept.",
    Ipv6Ipv4InIpv6TooSmall => "ipv6.ipv4_in_ipv6_too_small", true, "IPv6: no room for the inner IPv4 header.",
    Ipv6Ipv4InIpv6WrongVersion => "ipv6.ipv4_in_ipv6_wrong_version", true, "IPv6: inner packet is not IPv4.",
    Ipv6Ipv6InIpv6TooSmall => "ipv6.ipv6_in_ipv6_too_small", true, "IPv6: no room for the inner IPv6 header.",
    Ipv6Ipv6InIpv6WrongVersion => "ipv6.ipv6_in_ipv6_wrong_version", true, "IPv6: inner packet is not IPv6.",
    MplsHeaderTooSmall => "mpls.header_too_small", true, "MPLS: label stack cut off.",
    MplsPktTooSmall => "mpls.pkt_too_small", true, "MPLS: too few bytes after the label stack to guess what follows.",
    MplsBadLabelRouterAlert => "mpls.bad_label_router_alert", true, "MPLS: router alert label at the bottom of the stack.",
    MplsBadLabelImplicitNull => "mpls.bad_label_implicit_null", true, "MPLS: implicit null label on the wire.",
    MplsBadLabelReserved => "mpls.bad_label_reserved", true, "MPLS: reserved label.",
    MplsUnknownPayloadType => "mpls.unknown_payload_type", true, "MPLS: neither IPv4, IPv6 nor Ethernet after the labels.",
    VxlanUnknownPayloadType => "vxlan.unknown_payload_type", true, "VXLAN: unknown EtherType inside.",
    GeneveUnknownPayloadType => "geneve.unknown_payload_type", true, "GENEVE: unknown protocol type inside.",
    ErspanHeaderTooSmall => "erspan.header_too_small", true, "ERSPAN: fewer bytes than an ERSPAN header.",
    ErspanUnsupportedVersion => "erspan.unsupported_version", true, "ERSPAN: version other than that of type II.",
    ErspanTooManyVlanLayers => "erspan.too_many_vlan_layers", true, "ERSPAN: more than three VLAN tags.",
    DcePktTooSmall => "dce.pkt_too_small", true, "FabricPath: fewer bytes than a FabricPath header and an Ethernet header.",
    ChdlcPktTooSmall => "chdlc.pkt_too_small", true, "Cisco HDLC: fewer bytes than a Cisco HDLC header.",
    NshHeaderTooSmall => "nsh.header_too_small", true, "NSH: fewer bytes than a network service header.",
    NshUnsupportedVersion => "nsh.unsupported_version", true, "NSH: version other than 0.",
    NshBadHeaderLength => "nsh.bad_header_length", true, "NSH: length that leaves no payload or does not fit the type.",
    NshReservedType => "nsh.reserved_type", true, "NSH: reserved metadata type.",
    NshUnsupportedType => "nsh.unsupported_type", true, "NSH: metadata type that is not known.",
    NshUnknownPayload => "nsh.unknown_payload", true, "NSH: next protocol that is not decoded.",
    TooManyLayers => "too_many_layers", true, "More layers than `decoder.max-layers` allows.",
    ArpPktTooSmall => "arp.pkt_too_small", false, "ARP: fewer bytes than an ARP header.",
    ArpUnsupportedHardware => "arp.unsupported_hardware", false, "ARP: hardware type other than Ethernet.",
    ArpUnsupportedProtocol => "arp.unsupported_protocol", false, "ARP: protocol type other than IPv4.",
    ArpInvalidPkt => "arp.invalid_pkt", false, "ARP: fewer bytes than ARP for Ethernet and IPv4 needs.",
    ArpInvalidHardwareSize => "arp.invalid_hardware_size", false, "ARP: hardware address size other than 6.",
    ArpInvalidProtocolSize => "arp.invalid_protocol_size", false, "ARP: protocol address size other than 4.",
    ArpUnsupportedOpcode => "arp.unsupported_opcode", false, "ARP: operation that is not known.",
}

impl DecodeEvent {
    /// Number of events.
    pub const COUNT: usize = Self::ALL.len();

    /// Dotted key in EVE's `stats`, if the event has one there.
    #[must_use]
    pub const fn stats_name(self) -> Option<&'static str> {
        match self {
            DecodeEvent::TooManyLayers => Some("decoder.too_many_layers"),
            event if event.counted() => Some(event.counter_name()),
            _ => None,
        }
    }

    /// The event a `decode-event` rule names; letters match in either case.
    #[must_use]
    pub fn from_rule_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|event| event.rule_name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for DecodeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.rule_name())
    }
}

/// The events of one packet, at most [`DecodeEvents::CAPACITY`]; further ones are only counted.
#[derive(Clone, Copy)]
pub struct DecodeEvents {
    list: [DecodeEvent; Self::CAPACITY],
    len: u8,
    lost: u8,
}

impl DecodeEvents {
    /// Events kept per packet.
    pub const CAPACITY: usize = 15;

    /// No events.
    pub const NONE: DecodeEvents =
        DecodeEvents { list: [DecodeEvent::AfpacketTruncPkt; Self::CAPACITY], len: 0, lost: 0 };

    /// Adds an event (also a repeated one); `false` when the list is full.
    pub fn push(&mut self, event: DecodeEvent) -> bool {
        match self.list.get_mut(usize::from(self.len)) {
            Some(slot) => {
                *slot = event;
                self.len += 1;
                true
            }
            None => {
                self.lost = self.lost.saturating_add(1);
                false
            }
        }
    }

    /// The number of events that did not fit.
    #[must_use]
    pub const fn lost(&self) -> u8 {
        self.lost
    }

    /// The events in the order in which they were found.
    #[must_use]
    pub fn as_slice(&self) -> &[DecodeEvent] {
        self.list.get(..usize::from(self.len)).unwrap_or(&[])
    }

    /// Whether the packet has no event.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the packet has `event`.
    #[must_use]
    pub fn contains(&self, event: DecodeEvent) -> bool {
        self.as_slice().contains(&event)
    }
}

impl Default for DecodeEvents {
    fn default() -> Self {
        Self::NONE
    }
}

impl PartialEq for DecodeEvents {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for DecodeEvents {}

impl fmt::Debug for DecodeEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_distinct_and_found_again() {
        let names: HashSet<_> = DecodeEvent::ALL.iter().map(|e| e.rule_name()).collect();
        assert_eq!(names.len(), DecodeEvent::COUNT);
        for (index, event) in DecodeEvent::ALL.iter().enumerate() {
            assert_eq!(*event as usize, index);
            assert_eq!(DecodeEvent::from_rule_name(event.rule_name()), Some(*event));
            assert_eq!(event.eve_name().strip_prefix("decoder."), Some(event.rule_name()));
            assert!(event.meaning().ends_with('.'));
        }
        assert_eq!(DecodeEvent::from_rule_name("IPv4.Trunc_Pkt"), Some(DecodeEvent::Ipv4TruncPkt));
        assert_eq!(DecodeEvent::from_rule_name("ipv4"), None);
    }

    #[test]
    fn stats_keys_are_those_of_eve() {
        assert_eq!(DecodeEvent::TooManyLayers.stats_name(), Some("decoder.too_many_layers"));
        assert_eq!(DecodeEvent::UdpLenInvalid.stats_name(), Some("decoder.event.udp.len_invalid"));
        assert_eq!(DecodeEvent::ArpPktTooSmall.stats_name(), None);
    }

    #[test]
    fn the_list_is_bounded() {
        let mut events = DecodeEvents::default();
        for n in 0..40 {
            assert_eq!(events.push(DecodeEvent::TcpOptDuplicate), n < DecodeEvents::CAPACITY);
        }
        assert_eq!(events.as_slice().len(), DecodeEvents::CAPACITY);
        assert_eq!(usize::from(events.lost()), 40 - DecodeEvents::CAPACITY);
        assert!(!events.contains(DecodeEvent::TcpPktTooSmall));
    }
}
