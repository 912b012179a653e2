// SPDX-License-Identifier: Apache-2.0
//! Rules on headers, which a generation looks up for its functions, and the headers that are looked up.

use bartizan_base::{Direction, Fid, FunctionId, LinkId, TenantId};
use bartizan_classify::{Header, HeaderNames, HeaderRule, NameId};
use bartizan_flow::FlowKey;
use bartizan_packet::{Decoded, Transport, icmpv4_counterpart, icmpv6_counterpart};
use core::num::NonZeroU32;
use std::sync::Arc;

/// Under these numbers, which no function has, the names stand among what a lookup found by which it was
/// found: those of the address of the side that opened the flow, and of the other side. They go along with
/// the flow, so that it keeps them when its addresses have lost them.
pub const CLIENT_NAME: FunctionId = FunctionId(253);
/// See [`CLIENT_NAME`].
pub const SERVER_NAME: FunctionId = FunctionId(254);

/// The names of a flow's addresses among what its lookup found; its client is the source.
#[must_use]
pub fn names_among(matches: &[(FunctionId, u32)]) -> HeaderNames {
    let of = |side| {
        let own = matches.iter().filter(move |(of, _)| *of == side);
        own.filter_map(|(_, number)| NonZeroU32::new(*number).map(NameId)).collect()
    };
    HeaderNames { source: of(CLIENT_NAME), destination: of(SERVER_NAME) }
}

/// A function's rules on the headers of some classes of flows. Each class is in one of these at most. Best is
/// one for all classes: the rules of several have to be kept apart.
#[derive(Clone, Debug, Default)]
pub struct HeaderRules {
    /// What explanations call one of them: `rule`.
    pub called: &'static str,
    /// The classes; empty for all.
    pub fids: Arc<[Fid]>,
    /// Number of a rule, from 0, and what it matches; a rule may stand there several times. Of the rules that
    /// match that with the lowest number is found. The same by address as in the generation before: the same
    /// rules.
    pub rules: Arc<[(u32, HeaderRule)]>,
}

/// What is looked up of a flow: its header as the side that opened it sends it, with type and code of ICMP
/// ([`icmp_numbers`]) in place of ports.
#[must_use]
pub fn header_of_flow(key: &FlowKey, icmp: (u16, u16)) -> Header {
    let (source_port, destination_port) =
        if key.is_icmp() { icmp } else { (key.source_port(), key.destination_port()) };
    Header {
        tenant: key.tenant(),
        link: key.scope().link,
        source: key.source(),
        destination: key.destination(),
        protocol: key.protocol(),
        source_port,
        destination_port,
    }
}

/// What is looked up of a packet without a flow; `None`: it is not IP.
#[must_use]
pub fn header_of_packet(packet: &Decoded, tenant: TenantId, link: LinkId) -> Option<Header> {
    let (source_port, destination_port) = match packet.transport.icmp() {
        Some(icmp) => (u16::from(icmp.kind), u16::from(icmp.code)),
        None => packet.ports().unwrap_or((0, 0)),
    };
    Some(Header {
        tenant,
        link,
        source: packet.src()?,
        destination: packet.dst()?,
        protocol: packet.carried_protocol()?,
        source_port,
        destination_port,
    })
}

/// Type and code of an ICMP packet of a flow, as its opener would have sent them: an answer has those of its
/// question. Zeros for other packets.
#[must_use]
pub fn icmp_numbers(packet: &Decoded, direction: Direction) -> (u16, u16) {
    let (icmp, counterpart) = match &packet.transport {
        Transport::Icmp(icmp) => (icmp, icmpv4_counterpart(icmp.kind)),
        Transport::Icmpv6(icmp) => (icmp, icmpv6_counterpart(icmp.kind)),
        _ => return (0, 0),
    };
    match (direction, counterpart) {
        (Direction::ToClient, Some(question)) => (u16::from(question), 0),
        _ => (u16::from(icmp.kind), u16::from(icmp.code)),
    }
}
