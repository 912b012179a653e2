// SPDX-License-Identifier: Apache-2.0
//! Header rules, which a generation looks up for its functions, and the headers of the lookup.

use bartizan_base::{Direction, Fid, FunctionId, LinkId, TenantId};
use bartizan_classify::{Header, HeaderNames, HeaderRule, NameId};
use bartizan_flow::FlowKey;
use bartizan_packet::{Decoded, TransportLayer, icmpv4_counterpart, icmpv6_counterpart};
use core::num::NonZeroU32;
use std::sync::Arc;

/// Numbers, used by no function, for the DNS names among the results of a lookup: those of the address of the
/// side that opened the flow, and of the other side. They are part of the flow's results, so that the flow
/// keeps them when its addresses lose them.
pub const CLIENT_NAME: FunctionId = FunctionId(253);
/// See [`CLIENT_NAME`].
pub const SERVER_NAME: FunctionId = FunctionId(254);

/// The names of a flow's addresses among the results of its lookup; the client is the source.
#[must_use]
pub fn names_among(matches: &[(FunctionId, u32)]) -> HeaderNames {
    let of = |side| {
        let own = matches.iter().filter(move |(of, _)| *of == side);
        own.filter_map(|(_, number)| NonZeroU32::new(*number).map(NameId)).collect()
    };
    HeaderNames { source: of(CLIENT_NAME), destination: of(SERVER_NAME) }
}

/// A function's rules on the headers of some classes of flows. Each class is in at most one of these. One for
/// all classes is best: the rules of several have to be kept apart.
#[derive(Clone, Debug, Default)]
pub struct HeaderRules {
    /// The term for a rule in explanations: `rule`.
    pub called: &'static str,
    /// The classes; empty for all.
    pub fids: Arc<[Fid]>,
    /// Number of each rule, from 0, and its condition; a rule may occur several times. The lookup returns the
    /// lowest number among the matching rules. An equal address as in the previous generation means equal
    /// rules.
    pub rules: Arc<[(u32, HeaderRule)]>,
}

/// The header of a flow for the lookup: as sent by the side that opened the flow, with type and code of ICMP
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

/// The header of a packet without a flow for the lookup; `None`: the packet is not IP.
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

/// Type and code of an ICMP packet of a flow, as its opener would have sent them: a reply has those of its
/// query. Zeros for other packets.
#[must_use]
pub fn icmp_numbers(packet: &Decoded, direction: Direction) -> (u16, u16) {
    let (icmp, counterpart) = match &packet.transport {
        TransportLayer::Icmp(icmp) => (icmp, icmpv4_counterpart(icmp.kind)),
        TransportLayer::Icmpv6(icmp) => (icmp, icmpv6_counterpart(icmp.kind)),
        _ => return (0, 0),
    };
    match (direction, counterpart) {
        (Direction::ToClient, Some(question)) => (u16::from(question), 0),
        _ => (u16::from(icmp.kind), u16::from(icmp.code)),
    }
}
