// SPDX-License-Identifier: Apache-2.0
//! Counters of the decoder, with the keys of EVE's `stats` event.

use crate::DecodeEvent;

macro_rules! counters {
    ($($field:ident => $doc:literal,)+) => {
        /// The counts of a decoder. Keys are `decoder.` and the field's name.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct DecoderCounters {
            $(#[doc = $doc] pub $field: u64,)+
            /// Events that a packet had no room for; no key in EVE's `stats`.
            pub events_lost: u64,
            events: [u64; DecodeEvent::COUNT],
        }

        impl Default for DecoderCounters {
            fn default() -> Self {
                DecoderCounters { $($field: 0,)+ events_lost: 0, events: [0; DecodeEvent::COUNT] }
            }
        }

        impl DecoderCounters {
            fn visit_fields(&self, visit: &mut dyn FnMut(&'static str, u64)) {
                $(visit(concat!("decoder.", stringify!($field)), self.$field);)+
            }

            fn add_fields(&mut self, other: &Self) {
                $(self.$field = self.$field.saturating_add(other.$field);)+
            }
        }
    };
}

counters! {
    pkts => "Frames from a port or capture.",
    bytes => "Their captured bytes.",
    invalid => "Frames whose outer packet is invalid.",
    ipv4 => "IPv4 headers.",
    ipv6 => "IPv6 headers.",
    ethernet => "Ethernet headers.",
    arp => "ARP packets.",
    unknown_ethertype => "EtherTypes that are not known.",
    chdlc => "Cisco HDLC headers.",
    raw => "Raw IP frames.",
    null => "Loopback frames.",
    sll => "Linux cooked frames.",
    sll2 => "Linux cooked frames, version 2.",
    tcp => "TCP headers.",
    udp => "UDP headers.",
    sctp => "SCTP headers.",
    esp => "ESP headers.",
    icmpv4 => "ICMP headers.",
    icmpv6 => "ICMPv6 headers.",
    ppp => "PPP headers.",
    pppoe => "PPPoE headers.",
    geneve => "GENEVE headers.",
    gre => "GRE headers.",
    vlan => "First VLAN tags.",
    vlan_qinq => "Second VLAN tags.",
    vlan_qinqinq => "Third VLAN tags.",
    vxlan => "VXLAN headers.",
    vntag => "VN-Tags.",
    ieee8021ah => "802.1ah tags.",
    teredo => "Teredo packets.",
    ipv4_in_ipv4 => "IPv4 in IPv4.",
    ipv6_in_ipv4 => "IPv6 in IPv4.",
    ipv4_in_ipv6 => "IPv4 in IPv6.",
    ipv6_in_ipv6 => "IPv6 in IPv6.",
    mpls => "MPLS label stacks.",
    avg_pkt_size => "Not counted: the mean is computed from `bytes` and `pkts` when counters are visited.",
    max_pkt_size => "Largest frame.",
    max_mac_addrs_src => "Most source MAC addresses of a flow (set by the flow table).",
    max_mac_addrs_dst => "Most destination MAC addresses of a flow (set by the flow table).",
    erspan => "ERSPAN headers.",
    nsh => "Network service headers.",
}

impl DecoderCounters {
    /// Calls `visit` with the dotted key and value of each counter, in the order of EVE's `stats` event.
    pub fn visit(&self, mut visit: impl FnMut(&'static str, u64)) {
        let mean = self.bytes.checked_div(self.pkts).unwrap_or(0);
        self.visit_fields(&mut |name, value| {
            visit(name, if name == "decoder.avg_pkt_size" { mean } else { value });
        });
        for (event, count) in DecodeEvent::ALL.iter().zip(self.events.iter()) {
            if let Some(name) = event.stats_name() {
                visit(name, *count);
            }
        }
    }

    /// Counts an event.
    pub fn event(&mut self, event: DecodeEvent) {
        if let Some(count) = self.events.get_mut(event as usize) {
            *count += 1;
        }
    }

    /// The count of an event.
    #[must_use]
    pub fn events(&self, event: DecodeEvent) -> u64 {
        self.events.get(event as usize).copied().unwrap_or(0)
    }

    pub(crate) fn frame(&mut self, len: usize) {
        let len = len as u64;
        self.pkts += 1;
        self.bytes += len;
        self.max_pkt_size = self.max_pkt_size.max(len);
    }

    /// Adds the counters of another worker; maxima stay maxima.
    pub fn merge(&mut self, other: &Self) {
        let maxima = (
            self.max_pkt_size.max(other.max_pkt_size),
            self.max_mac_addrs_src.max(other.max_mac_addrs_src),
            self.max_mac_addrs_dst.max(other.max_mac_addrs_dst),
        );
        self.add_fields(other);
        self.events_lost += other.events_lost;
        (self.max_pkt_size, self.max_mac_addrs_src, self.max_mac_addrs_dst) = maxima;
        for (mine, theirs) in self.events.iter_mut().zip(other.events.iter()) {
            *mine += theirs;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_dotted_and_the_mean_is_computed() {
        let mut counters = DecoderCounters::default();
        counters.frame(60);
        counters.frame(101);
        counters.event(DecodeEvent::TooManyLayers);
        let mut seen = std::collections::BTreeMap::new();
        counters.visit(|name, value| assert!(seen.insert(name, value).is_none(), "{name} twice"));
        assert_eq!(seen.get("decoder.pkts"), Some(&2));
        assert_eq!(seen.get("decoder.avg_pkt_size"), Some(&80));
        assert_eq!(seen.get("decoder.max_pkt_size"), Some(&101));
        assert_eq!(seen.get("decoder.too_many_layers"), Some(&1));
        assert_eq!(seen.get("decoder.event.ipv4.trunc_pkt"), Some(&0));
        assert!(seen.keys().all(|name| name.starts_with("decoder.")));
    }

    #[test]
    fn merging_adds_and_keeps_maxima() {
        let (mut a, mut b) = (DecoderCounters::default(), DecoderCounters::default());
        a.frame(10);
        b.frame(30);
        b.event(DecodeEvent::TcpPktTooSmall);
        a.merge(&b);
        assert_eq!((a.pkts, a.bytes, a.max_pkt_size), (2, 40, 30));
        assert_eq!(a.events(DecodeEvent::TcpPktTooSmall), 1);
    }
}
