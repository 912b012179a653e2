// SPDX-License-Identifier: Apache-2.0
//! Records of flows.

use super::head::{FlowClass, VariableNames, app_protocols, flow_tuple};
use super::{EveRecorder, RunInfo};
use bartizan_base::{Direction, Level, PerDirection};
use bartizan_events::Common;
use bartizan_events::record::{
    Ether, EveFlowState as State, FlowAction, FlowCounters, FlowRecord, FlowRecordReason as Reason,
    LevelAmounts, NetflowRecord, TcpRecord, TcpSessionInfo, WouldBe,
};
use bartizan_flow::level::FlowLevelCounts;
use bartizan_flow::{EndReason, FlowFlags, FlowState};
use bartizan_function::OfFlow;
use bartizan_offload::OffloadDenied;
use bartizan_stages::record::{EndOfFlow, Entry};
use smallvec::SmallVec;

const fn reason_of(reason: EndReason) -> Reason {
    match reason {
        EndReason::Timeout => Reason::Timeout,
        EndReason::Forced => Reason::Forced,
        EndReason::Shutdown => Reason::Shutdown,
        EndReason::TcpReuse => Reason::TcpReuse,
    }
}

const fn state_of(state: FlowState) -> State {
    match state {
        FlowState::New => State::New,
        FlowState::Established => State::Established,
        FlowState::Closed => State::Closed,
        FlowState::LocalBypassed => State::LocalBypassed,
        FlowState::CaptureBypassed => State::CaptureBypassed,
    }
}

/// Packets and bytes of a flow.
pub(super) fn counters(flow: &Entry, below: Option<&[FlowLevelCounts; 2]>) -> FlowCounters {
    let bypassed = matches!(flow.state(), FlowState::LocalBypassed | FlowState::CaptureBypassed);
    let none = || bypassed.then(Default::default);
    FlowCounters { packets: flow.packets, bytes: flow.bytes, bypassed: below.map(sum_of).or_else(none) }
}

/// The counters of each level: of the host, and of every lower level that has counted a packet.
fn levels_of(flow: &Entry, below: &[FlowLevelCounts; 2]) -> SmallVec<[LevelAmounts; 3]> {
    let mut host = LevelAmounts { level: Level::Host, packets: flow.packets, bytes: flow.bytes };
    let mut levels = SmallVec::new();
    for (level, amounts) in [Level::Xdp, Level::Rtl].into_iter().zip(below) {
        let (packets, bytes) = (amounts.packets, amounts.bytes);
        for direction in Direction::BOTH {
            host.packets[direction] = host.packets[direction].saturating_sub(packets[direction]);
            host.bytes[direction] = host.bytes[direction].saturating_sub(bytes[direction]);
        }
        if Direction::BOTH.iter().any(|direction| packets[*direction] > 0) {
            levels.push(LevelAmounts { level, packets, bytes });
        }
    }
    levels.insert(0, host);
    levels
}

/// Packets and bytes that levels below the host have counted.
fn sum_of(below: &[FlowLevelCounts; 2]) -> (PerDirection<u64>, PerDirection<u64>) {
    let sum = |of: fn(&FlowLevelCounts) -> &PerDirection<u64>, direction| {
        below.iter().fold(0u64, |sum, level| sum.saturating_add(of(level)[direction]))
    };
    let both = |of: fn(&FlowLevelCounts) -> &PerDirection<u64>| {
        PerDirection::new(sum(of, Direction::ToServer), sum(of, Direction::ToClient))
    };
    (both(|level| &level.packets), both(|level| &level.bytes))
}

fn tcp_record(flow: &Entry) -> Option<TcpRecord<'static>> {
    if flow.key().protocol() != 6 {
        return None;
    }
    let session = &flow.ext.session;
    let flags = |d| (session.tcp_flags(d) | flow.ext.refused_flags[d]).bits();
    let streams = flow.ext.streams.as_deref();
    let per = |get: &dyn Fn(&bartizan_flow::stream::Stream) -> u32| {
        PerDirection::new(
            streams.map_or(0, |s| get(s.stream(Direction::ToServer))),
            streams.map_or(0, |s| get(s.stream(Direction::ToClient))),
        )
    };
    let gap = per(&|s| u32::from(s.has_gap()));
    let regions = |d| streams.map_or(1, |s| u32::from(s.stream(d).max_regions()));
    Some(TcpRecord {
        flags: flags(Direction::ToServer) | flags(Direction::ToClient),
        flags_to_server: flags(Direction::ToServer),
        flags_to_client: flags(Direction::ToClient),
        session: session.exists().then(|| TcpSessionInfo {
            state: session.state().eve_name(),
            gap: PerDirection::new(gap.to_server != 0, gap.to_client != 0),
            // Without data each side is one region.
            max_regions: PerDirection::new(regions(Direction::ToServer), regions(Direction::ToClient)),
            urgent_oob_data: per(&|s| u32::from(s.urgent_out_of_band())),
        }),
    })
}

/// The Ethernet addresses of a flow's sides, as a packet of a direction has them.
fn ethers(flow: &Entry, direction: Direction) -> Ether<'_> {
    let (src, dest) = (flow.ext.macs_of(direction), flow.ext.macs_of(direction.flip()));
    if src.is_empty() && dest.is_empty() {
        return Ether::None;
    }
    Ether::Flow { src, dest }
}

fn action_of(flow: &Entry, staged: bool) -> Option<FlowAction> {
    let standing = &flow.ext.standing;
    // The functions' decisions, the strictest of them.
    let said = flow.ext.descriptions().filter_map(|(_, said)| said.decided).min();
    match said {
        _ if staged && standing.is_refused() => None,
        Some(OfFlow::Refuses) if staged => None,
        _ if standing.is_refused() => Some(FlowAction::Drop),
        Some(OfFlow::Refuses) => Some(FlowAction::Drop),
        Some(OfFlow::Accepts) => Some(FlowAction::Accept),
        Some(OfFlow::Passes) => Some(FlowAction::Pass),
        None => standing.is_passed().then_some(FlowAction::Pass),
    }
}

/// The first refusal of a flow that a staged policy reported and did not enforce.
fn would_be_of<'a>(flow: &Entry, run: &'a RunInfo) -> Option<WouldBe<'a>> {
    let would_be = flow.ext.standing.would_be()?;
    Some(WouldBe {
        function: run.function(would_be.function),
        verdict: would_be.verdict,
        reason: would_be.reason,
        rule: would_be.rule.map(core::num::NonZeroU32::get),
    })
}

/// The function and rule that allowed a flow for good, once no function judges it any more.
fn allowed_of<'a>(flow: &Entry, run: &'a RunInfo, staged: bool) -> Option<(Option<&'a str>, Option<u32>)> {
    let allowed = flow.ext.standing.allowed(false).or_else(|| staged.then(Default::default))?;
    let by = allowed.function.map_or(Some("default"), |id| run.function(id));
    Some((by, allowed.rule.map(core::num::NonZeroU32::get)))
}

impl EveRecorder {
    pub(super) fn write_flow(&mut self, flow: &Entry, &EndOfFlow { reason, now, below }: &EndOfFlow) {
        if !self.wants(|types| types.flow || types.netflow) {
            return;
        }
        let names = VariableNames::of_flow(self, Some(flow));
        let lists = names.lists();
        let exceptions: Vec<(&str, &str)> =
            flow.ext.exceptions.iter().map(|(target, policy)| (target.eve_name(), policy.name())).collect();
        let tuple = flow_tuple(flow);
        let capture = self.capture.clone();
        let run = std::sync::Arc::clone(&self.run);
        let mut common = Common {
            timestamp: now,
            flow_id: Some(flow.ext.event_id),
            parent_id: flow.ext.parent(),
            in_iface: run.interface.as_deref(),
            vlan: flow.ext.vlan.as_slice(),
            tuple: Some(tuple),
            icmp: flow.ext.icmp,
            variables: lists.get(),
            ether: ethers(flow, Direction::ToServer),
            community: Some((tuple, flow.ext.icmp)),
            pcap_filename: capture.as_deref(),
            ..Common::default()
        };
        let class = FlowClass::of(self, Some(flow));
        // Staged: the refused packets were forwarded.
        let (staged, standing) = (self.is_staged(flow), &flow.ext.standing);
        let refusal = standing.last_refusal().filter(|_| !staged);
        common.own = class.own(&run, flow.generation, Some(flow), refusal.as_ref());
        if let Some(allowed) = allowed_of(flow, &run, staged).filter(|_| run.own_fields) {
            (common.own.allowed_by, common.own.allowed_rule) = allowed;
        }
        let levels = below.as_ref().map(|below| levels_of(flow, below));
        let ports = std::sync::Arc::clone(&self.ports);
        if run.own_fields {
            let egress = flow.ext.standing.egress();
            common.own.egress = egress.and_then(|port| ports.get(usize::from(port.0))).map(String::as_str);
            common.own.levels = levels.as_deref().unwrap_or_default();
            common.own.stays = flow.ext.stays.map(OffloadDenied::name);
            common.own.would_be = would_be_of(flow, &run);
        }
        let app = app_protocols(flow.ext.app.as_deref());
        let record = FlowRecord {
            response_icmp: flow.ext.icmp_response,
            spi: flow.key().spi(),
            app,
            counters: counters(flow, below.as_ref()),
            start: flow.start,
            end: flow.last_seen,
            emergency: flow.flags.contains(FlowFlags::EMERGENCY),
            state: state_of(flow.state()),
            reason: reason_of(reason),
            alerted: flow.flags.contains(FlowFlags::ALERTED),
            elephant: flow.is_elephant(),
            action: action_of(flow, staged),
            exception_policy: &exceptions,
            tx_cnt: flow.ext.tx_count(),
            tcp: tcp_record(flow),
        };
        self.each(|types| types.flow, |writer, options, _| record.write(writer, &options.header, &common));
        self.write_netflow(flow, &common, &record);
    }

    /// Writes the record of each direction of a flow.
    fn write_netflow(&mut self, flow: &Entry, of_flow: &Common<'_>, record: &FlowRecord<'_>) {
        let (tuple, app) = (flow_tuple(flow), record.app);
        for direction in Direction::BOTH {
            if flow.packets[direction] == 0 {
                continue;
            }
            let netflow = NetflowRecord {
                spi: flow.key().spi(),
                app_proto: match direction {
                    Direction::ToServer => app.to_server.or(app.flow),
                    Direction::ToClient => app.to_client.or(app.flow),
                },
                packets: flow.packets[direction],
                bytes: flow.bytes[direction],
                start: flow.start,
                end: flow.last_seen,
                ttl: flow.ext.ttl[direction],
                tx_cnt: flow.ext.tx_count(),
                tcp_flags: record.tcp.map(|t| match direction {
                    Direction::ToServer => t.flags_to_server,
                    Direction::ToClient => t.flags_to_client,
                }),
            };
            let mut common = *of_flow;
            if direction == Direction::ToClient {
                common.tuple = Some(bartizan_events::Tuple {
                    src: tuple.dest,
                    dest: tuple.src,
                    ports: tuple.ports.map(|(a, b)| (b, a)),
                    proto: tuple.proto,
                });
                common.icmp = flow.ext.icmp_response;
                common.ether = ethers(flow, Direction::ToClient);
            }
            self.each(
                |types| types.netflow,
                |writer, options, _| netflow.write(writer, &options.header, &common),
            );
        }
    }
}
