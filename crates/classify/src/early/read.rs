// SPDX-License-Identifier: Apache-2.0
//! Lookups in a table, as `ebpf/early.h` does them.

use super::rows::PROTOCOLS;
use bartizan_packet::VlanIds;
use bartizan_packet::slots::{EARLY_STEPS, EARLY_TENANTS, EARLY_TUNNELS, EarlyHeader};
use core::net::IpAddr;

/// The lookup key of a packet without a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlyKey {
    /// The number of its link among those whose packets are judged.
    pub link: u32,
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// The protocol.
    pub protocol: Protocol,
    /// The ports; for ICMP its type and code.
    pub ports: (u16, u16),
    /// The VLAN ids; none in a tunnel.
    pub vlans: VlanIds,
    /// The number of its tunnel, 0 if tunnels of its kind have none. `None`: it is in none.
    pub tunnel: Option<u32>,
}

/// Protocols that are judged, in the order of their numbers in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP of IPv4.
    Icmp,
    /// ICMP of IPv6.
    Icmpv6,
    /// Another protocol, or one of these with unknown ports or type, as in a later fragment: such packets
    /// are refused if they are refused with any protocol and ports. The key's ports do not count.
    Whatever,
}

/// The number of kinds of packets that a table distinguishes.
pub(super) const KINDS: usize = PROTOCOLS.len() + 1;

impl Protocol {
    /// The protocol of an IP protocol number; `None`: it is not judged.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        let all = [Protocol::Tcp, Protocol::Udp, Protocol::Icmp, Protocol::Icmpv6];
        PROTOCOLS.iter().zip(all).find(|(known, _)| **known == number).map(|(_, protocol)| protocol)
    }
}

fn word(words: &[u64], at: u32) -> u64 {
    words.get(at as usize).copied().unwrap_or(0)
}

fn half(words: &[u64], first: u32, index: u32) -> u32 {
    (word(words, first + index / 2) >> (index % 2 * 32)) as u32
}

fn quarter(words: &[u64], first: u32, index: u32) -> u32 {
    u32::from((word(words, first + index / 4) >> (index % 4 * 16)) as u16)
}

fn class_of_ipv4(words: &[u64], mut first: u32, mut count: u32, address: u32) -> u32 {
    for _ in 0..EARLY_STEPS {
        if count <= 1 {
            break;
        }
        let left = count / 2;
        if word(words, first + left) >> 32 <= u64::from(address) {
            first += left;
            count -= left;
        } else {
            count = left;
        }
    }
    word(words, first) as u32
}

fn class_of_ipv6(words: &[u64], mut first: u32, mut count: u32, address: u128) -> u32 {
    for _ in 0..EARLY_STEPS {
        if count <= 1 {
            break;
        }
        let left = count / 2;
        let at = first + left * 3;
        if u128::from(word(words, at)) << 64 | u128::from(word(words, at + 1)) <= address {
            first = at;
            count -= left;
        } else {
            count = left;
        }
    }
    word(words, first + 2) as u32
}

/// The classes of both addresses among those of selectors.
fn hosts(words: &[u64], header: &EarlyHeader, question: &EarlyKey) -> [u32; 2] {
    match (question.source, question.destination) {
        (IpAddr::V4(from), IpAddr::V4(to)) => [from, to]
            .map(|address| class_of_ipv4(words, header.v4_hosts, header.v4_host_count, address.into())),
        (IpAddr::V6(from), IpAddr::V6(to)) => [from, to]
            .map(|address| class_of_ipv6(words, header.v6_hosts, header.v6_host_count, address.into())),
        _ => [0, 0],
    }
}

/// The scope of rules for a packet's link and tenant.
fn scope(words: &[u64], header: &EarlyHeader, question: &EarlyKey) -> u32 {
    let link = question.link;
    if header.generation & u64::from(EARLY_TENANTS) == 0 {
        return link;
    }
    let hosts = if header.host_classes > 1 { hosts(words, header, question) } else { [0, 0] };
    let first = |tag: u32| {
        let row = (link * header.tag_classes + tag) * header.host_classes;
        hosts.iter().map(|host| half(words, header.selected, row + host)).min().unwrap_or_default()
    };
    let place = match (question.tunnel, question.vlans.as_slice()) {
        (Some(number), _) => first(class_of_ipv4(words, header.tunnels, header.tunnel_count, number)),
        (None, []) => first(header.untagged),
        (None, vlans) => {
            let tags = vlans.iter().map(|vlan| quarter(words, header.vlans, (*vlan & 0xfff).into()));
            tags.map(first).min().unwrap_or_default()
        }
    };
    half(words, header.scopes, link * header.selectors + place)
}

/// The number of the outcome that decides a packet; `None`: it goes up.
#[must_use]
pub fn outcome(words: &[u64], question: &EarlyKey) -> Option<u32> {
    let mut bytes = [0; EarlyHeader::LEN];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let header = EarlyHeader::read(&bytes);
    let EarlyKey { source, destination, protocol, ports, .. } = *question;
    if question.tunnel.is_some() && header.generation & u64::from(EARLY_TUNNELS) == 0 {
        return None;
    }
    let mut service = scope(words, &header, question) * KINDS as u32 + protocol as u32;
    service = service * header.source_port_classes + quarter(words, header.source_ports, ports.0.into());
    service =
        service * header.destination_port_classes + quarter(words, header.destination_ports, ports.1.into());
    let service = half(words, header.services, service);
    let (pair, outcomes) = match (source, destination) {
        (IpAddr::V4(from), IpAddr::V4(to)) if header.v4_source_count > 0 => {
            let source = class_of_ipv4(words, header.v4_sources, header.v4_source_count, from.into());
            let destination =
                class_of_ipv4(words, header.v4_destinations, header.v4_destination_count, to.into());
            let cell = source * header.v4_destination_classes + destination;
            (half(words, header.v4_pairs, cell), header.v4_outcomes)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) if header.v6_source_count > 0 => {
            let source = class_of_ipv6(words, header.v6_sources, header.v6_source_count, from.into());
            let destination =
                class_of_ipv6(words, header.v6_destinations, header.v6_destination_count, to.into());
            let cell = source * header.v6_destination_classes + destination;
            (half(words, header.v6_pairs, cell), header.v6_outcomes)
        }
        _ => return None,
    };
    half(words, outcomes, pair * header.service_classes + service).checked_sub(1)
}
