// SPDX-License-Identifier: Apache-2.0
//! The common head of events, from packets and flows.

use super::{EveRecorder, RunInfo};
use bartizan_applayer::flow::{AppLayer, DetectedProtocol};
use bartizan_applayer::protocols;
use bartizan_base::{Decision, Direction, Generation};
use bartizan_events::Common;
use bartizan_events::record::{
    AppProtocols, BartizanFields, Ether, EventPacketSource, StreamPathFields, Tuple,
};
use bartizan_packet::{PacketView, TransportLayer};
use bartizan_stages::chain::ClassName;
use bartizan_stages::flow_ext::StreamOrigin;
use bartizan_stages::record::{Cause, Entry, EventContext};
use smallvec::SmallVec;
use std::sync::Arc;

/// Orientation of an event's addresses and ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Orientation {
    /// As in the packet.
    Packet,
    /// From client to server.
    Flow,
    /// As a packet of this direction has them.
    Direction(Direction),
}

/// Names of variables, held while a record is written.
#[derive(Default)]
pub(super) struct VariableNames<'o> {
    bits: Vec<String>,
    integers: Vec<(String, u64)>,
    variables: Vec<(String, Vec<u8>)>,
    entropies: Vec<(String, f64)>,
    packet: &'o [(String, Vec<u8>)],
}

impl<'o> VariableNames<'o> {
    /// The variables of a packet and its flow.
    pub(super) fn of(recorder: &EveRecorder, occasion: &EventContext<'o>, flow: Option<&Entry>) -> Self {
        VariableNames { packet: occasion.variables, ..Self::of_flow(recorder, flow) }
    }

    /// The variables of a flow.
    pub(super) fn of_flow(recorder: &EveRecorder, flow: Option<&Entry>) -> Self {
        let mut names = VariableNames::default();
        for (bit, said) in flow.iter().flat_map(|flow| flow.ext.descriptions()) {
            let name = |number| recorder.variable(bit, number);
            names.bits.extend(said.bits.iter().map(|b| name(*b)));
            names.integers.extend(said.integers.iter().map(|(n, v)| (name(*n), u64::from(*v))));
            names.variables.extend(said.variables.iter().map(|(n, v)| (name(*n), v.clone())));
            names.entropies.extend(said.measures.iter().map(|(n, v)| (name(*n), *v)));
        }
        names
    }

    /// The names as borrowed lists, the form that records take.
    pub(super) fn lists(&self) -> VariableLists<'_> {
        VariableLists {
            bits: self.bits.iter().map(String::as_str).collect(),
            integers: self.integers.iter().map(|(n, v)| (n.as_str(), *v)).collect(),
            variables: self.variables.iter().map(|(n, v)| (n.as_str(), v.as_slice())).collect(),
            entropies: self.entropies.iter().map(|(n, v)| (n.as_str(), *v)).collect(),
            packet: self.packet.iter().map(|(n, v)| (n.as_str(), v.as_slice())).collect(),
        }
    }
}

/// See [`VariableNames::lists`].
pub(super) struct VariableLists<'v> {
    bits: Vec<&'v str>,
    integers: Vec<(&'v str, u64)>,
    variables: Vec<(&'v str, &'v [u8])>,
    entropies: Vec<(&'v str, f64)>,
    packet: Vec<(&'v str, &'v [u8])>,
}

impl VariableLists<'_> {
    pub(super) fn get(&self) -> bartizan_events::record::Variables<'_> {
        bartizan_events::record::Variables {
            flowbits: &self.bits,
            flowints: &self.integers,
            flowvars: &self.variables,
            entropy: &self.entropies,
            pktvars: &self.packet,
            ..Default::default()
        }
    }
}

/// Addresses, ports and protocol of a packet.
pub(super) fn packet_tuple(packet: &PacketView<'_>) -> Option<Tuple> {
    let decoded = packet.decoded();
    let proto = decoded.proto()?;
    let ports = match &decoded.transport {
        TransportLayer::Tcp(tcp) => Some((tcp.sport, tcp.dport)),
        TransportLayer::Udp(udp) => Some((udp.sport, udp.dport)),
        TransportLayer::Sctp(sctp) => Some((sctp.sport, sctp.dport)),
        // The header was not readable, but the protocol has ports.
        _ if matches!(proto, 6 | 17 | 132) => Some((0, 0)),
        _ => None,
    };
    Some(Tuple { src: decoded.src()?, dest: decoded.dst()?, ports, proto })
}

/// Addresses, ports and protocol of a flow, from client to server.
pub(super) fn flow_tuple(flow: &Entry) -> Tuple {
    let key = flow.key();
    let ports = key.has_ports().then(|| (key.source_port(), key.destination_port()));
    Tuple { src: key.source(), dest: key.destination(), ports, proto: key.protocol() }
}

const fn turned(tuple: Tuple) -> Tuple {
    let ports = match tuple.ports {
        Some((a, b)) => Some((b, a)),
        None => None,
    };
    Tuple { src: tuple.dest, dest: tuple.src, ports, proto: tuple.proto }
}

/// Type and code of an ICMP packet.
fn icmp(packet: &PacketView<'_>) -> Option<(u8, u8)> {
    match &packet.decoded().transport {
        TransportLayer::Icmp(icmp) | TransportLayer::Icmpv6(icmp) => Some((icmp.kind, icmp.code)),
        _ => None,
    }
}

/// The origin of a packet in EVE's words, or the cause of an event without a packet.
fn source(cause: Cause<'_>) -> Option<EventPacketSource> {
    match cause {
        Cause::Packet(packet) => {
            let name = packet.decoded().source.eve_name();
            EventPacketSource::ALL.into_iter().find(|s| s.name() == name)
        }
        Cause::Bytes(_) | Cause::Flush => Some(EventPacketSource::StreamFlush),
        Cause::FlowEnd => Some(EventPacketSource::FlowTimeout),
    }
}

/// Addresses, ports and protocol of an event in its own direction: those of its packet, or those of its flow
/// turned to the event's direction.
pub(super) fn own_tuple(occasion: &EventContext<'_>, flow: Option<&Entry>) -> Option<Tuple> {
    match (occasion.packet(), flow) {
        (Some(packet), _) => packet_tuple(packet),
        (None, Some(flow)) => Some(directed(flow, occasion.direction)),
        (None, None) => None,
    }
}

/// A flow's tuple as a packet of a direction has it.
fn directed(flow: &Entry, direction: Direction) -> Tuple {
    match direction {
        Direction::ToServer => flow_tuple(flow),
        Direction::ToClient => turned(flow_tuple(flow)),
    }
}

/// The head of an event about a packet.
pub(super) fn head<'a>(
    run: &'a RunInfo,
    capture: Option<&'a str>,
    occasion: &EventContext<'a>,
    flow: Option<&'a Entry>,
    orientation: Orientation,
) -> Common<'a> {
    let packet = occasion.packet();
    // The event shows the sides in the opposite order of the packet.
    let turned_round = flow.is_some()
        && match orientation {
            Orientation::Packet => false,
            Orientation::Flow => occasion.direction == Direction::ToClient,
            Orientation::Direction(direction) => occasion.direction != direction,
        };
    let tuple = match (orientation, flow) {
        (Orientation::Flow, Some(flow)) => Some(flow_tuple(flow)),
        (Orientation::Direction(direction), Some(flow)) => Some(directed(flow, direction)),
        _ => own_tuple(occasion, flow),
    };
    Common {
        timestamp: occasion.now,
        flow_id: flow.map(|f| f.ext.event_id),
        parent_id: flow.and_then(|f| f.ext.parent()),
        in_iface: run.interface.as_deref(),
        pcap_cnt: occasion.number,
        vlan: match (packet, flow) {
            (Some(packet), _) => packet.decoded().vlan.as_slice(),
            (None, Some(flow)) => flow.ext.vlan.as_slice(),
            (None, None) => &[],
        },
        tuple,
        icmp: packet.and_then(icmp),
        packet_source: source(occasion.cause),
        ether: match packet.and_then(|packet| Some((packet, packet.mac_addresses()?))) {
            Some((packet, (src, dest))) => {
                let (src, dest) = if turned_round { (dest, src) } else { (src, dest) };
                Ether::Packet { ether_type: packet.ethernet_type(), src, dest }
            }
            None => flow_ether(flow),
        },
        community: flow.map(|f| (flow_tuple(f), f.ext.icmp)),
        tx_id: None,
        pcap_filename: capture,
        ..Common::default()
    }
}

/// An event without a packet shows the flow's Ethernet addresses, from the client's side.
fn flow_ether(flow: Option<&Entry>) -> Ether<'_> {
    let sides = flow
        .and_then(|f| f.ext.rare.as_deref())
        .and_then(|rare| Some((*rare.macs.to_server.first()?, *rare.macs.to_client.first()?)));
    match sides {
        Some((src, dest)) => Ether::Packet { ether_type: None, src, dest },
        None => Ether::None,
    }
}

/// The flow's class as own fields show it, held while a record is written.
#[derive(Default)]
pub(super) struct FlowClass {
    name: Option<ClassName>,
    origin: Option<Arc<StreamOrigin>>,
    path: SmallVec<[&'static str; 8]>,
}

impl FlowClass {
    /// The class of a flow, when the run writes own fields.
    pub(super) fn of(recorder: &EveRecorder, flow: Option<&Entry>) -> Self {
        let Some(flow) = flow.filter(|_| recorder.run.own_fields) else { return FlowClass::default() };
        FlowClass {
            name: recorder.class_name(flow),
            origin: flow.ext.origin().cloned(),
            path: flow.path.functions().filter_map(|id| recorder.run.function(id)).collect(),
        }
    }

    /// The own fields, when the run writes them.
    pub(super) fn own<'a>(
        &'a self,
        run: &'a RunInfo,
        generation: Generation,
        flow: Option<&Entry>,
        decision: Option<&Decision>,
    ) -> BartizanFields<'a> {
        if !run.own_fields {
            return BartizanFields::default();
        }
        let origin = self.origin.as_deref();
        BartizanFields {
            tenant: flow.map(Entry::tenant),
            fid: flow.map(|f| f.fid),
            path: &self.path,
            policy: self.name.as_ref().map(|n| &*n.policy),
            staged: self.name.as_ref().is_some_and(|n| n.staged),
            function: decision.and_then(|d| run.function(d.function)),
            verdict: decision.map(|d| d.verdict),
            reason: decision.and_then(|d| d.reason),
            rule: decision.and_then(|d| d.rule).map(core::num::NonZeroU32::get),
            generation: Some(generation),
            level: flow.map(|f| f.level()),
            link: origin.map(|origin| &*origin.guest).or(run.link.as_deref()),
            stream_path: origin.map(|origin| StreamPathFields {
                peer_guest: origin.peer_guest.as_deref(),
                process: origin.process,
                executable: origin.executable.as_deref(),
                cgroup: origin.cgroup.as_deref(),
            }),
            ..BartizanFields::default()
        }
    }
}

/// EVE's names of a flow's application protocols.
pub(super) fn app_protocols(app: Option<&AppLayer>) -> AppProtocols<'static> {
    let Some(app) = app else { return AppProtocols::default() };
    let name = |id| protocols::spec(id).map(|s| s.eve_name);
    let known = |known: DetectedProtocol| match known {
        DetectedProtocol::Protocol(id) => name(id),
        DetectedProtocol::Failed => Some("failed"),
        DetectedProtocol::Pending => None,
    };
    let by = app.by_direction();
    // One side's failure says nothing while the other side may still identify the protocol.
    let pending = app.protocol() == DetectedProtocol::Pending;
    let side = |side| if pending && side == DetectedProtocol::Failed { None } else { known(side) };
    AppProtocols {
        flow: known(app.protocol()),
        to_server: side(by.to_server),
        to_client: side(by.to_client),
        original: app.original().and_then(name),
        expected: app.expected().and_then(name),
    }
}
