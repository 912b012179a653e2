// SPDX-License-Identifier: Apache-2.0
//! Answers of a worker to queries about its flows and functions: part by part, between two batches
//! ([`crate::inquiry`]).

use crate::inquiry::{FLOWS_TOLD, FlowsWanted, Inquiry, PART, Question};
use crate::views::history::{AllowedBy, HistoryEndpoints};
use crate::views::live::{Counted, DeviceNow, LevelsNow, LiveFlow, RefusedBy, StaysBy};
use crate::worker::Worker;
use bartizan_applayer::flow::{AppLayer, DetectedProtocol};
use bartizan_applayer::protocols;
use bartizan_base::{Decision, FlowId, FunctionId, Level, Path, Timestamp, WorkerId};
use bartizan_flow::level::Step;
use bartizan_function::header::header_of_flow;
use bartizan_offload::FlowManager;
use bartizan_stages::chain::Chains;
use bartizan_stages::lifecycle::FunctionNow;
use bartizan_stages::record::Entry;
use bartizan_stages::standing::PacketDisposition;
use std::collections::BTreeMap;

/// Handles the next part of a query. `None`: the query is answered.
pub(super) fn continue_query(
    worker: &mut Worker,
    me: WorkerId,
    mut inquiry: Box<Inquiry>,
) -> Option<Box<Inquiry>> {
    let of_me = |now: FunctionNow| (me, now);
    match &inquiry.pending.question {
        Question::Functions => inquiry.answer.functions.extend(worker.functions_now().map(of_me)),
        Question::Order(name, act) => inquiry.answer.functions.extend(worker.order(name, *act).map(of_me)),
        Question::Observe(observers) => worker.observe(observers.clone(), me),
        Question::Levels | Question::Flows(_) => return scan_next(worker, me, inquiry),
    }
    send_answer(me, *inquiry);
    None
}

/// Visits the next flows of the table.
fn scan_next(worker: &Worker, me: WorkerId, mut inquiry: Box<Inquiry>) -> Option<Box<Inquiry>> {
    if let Some(at) = scan_part(worker, me, &mut inquiry) {
        inquiry.at = at;
        return Some(inquiry);
    }
    if matches!(inquiry.pending.question, Question::Levels) {
        let levels = worker.flow_manager().into_iter().flat_map(FlowManager::levels);
        let devices = levels.map(|facts| (facts.capabilities.level.name(), DeviceNow::of(&facts)));
        inquiry.answer.levels.devices = devices.collect();
    }
    send_answer(me, *inquiry);
    None
}

/// Sends the answer; the querying thread may be gone.
fn send_answer(me: WorkerId, Inquiry { pending: asked, answer, .. }: Inquiry) {
    let _ = asked.to.send((me, answer));
}

fn scan_part(worker: &Worker, me: WorkerId, inquiry: &mut Inquiry) -> Option<u32> {
    let (flows, next) = worker.flows().part(inquiry.at, PART);
    let answer = &mut inquiry.answer;
    for (id, entry) in flows {
        match &inquiry.pending.question {
            Question::Levels => count(&mut answer.levels, entry, worker),
            Question::Flows(wanted) if fits(wanted, entry) => {
                if answer.flows.len() < FLOWS_TOLD {
                    answer.flows.push(describe_flow(worker, me, id, entry));
                } else {
                    answer.omitted += 1;
                }
            }
            Question::Flows(_) | Question::Functions | Question::Order(..) | Question::Observe(_) => {}
        }
    }
    next
}

/// Whether a query selects a flow.
fn fits(wanted: &FlowsWanted, entry: &Entry) -> bool {
    wanted.fits_key(entry.key()) && wanted.number.is_none_or(|number| number == entry.ext.event_id)
}

/// Counts a flow at its level, with the reason why it is not lower.
fn count(levels: &mut LevelsNow, entry: &Entry, worker: &Worker) {
    levels.flows += 1;
    *levels.levels.entry(entry.level().name()).or_default() += 1;
    if entry.is_at_host() {
        *levels.stays.entry(worker.offload_denial(entry).name()).or_default() += 1;
    } else if entry.step() != Step::Active {
        levels.moving += 1;
    }
}

/// Describes a flow.
pub(super) fn describe_flow(worker: &Worker, me: WorkerId, id: FlowId, entry: &Entry) -> LiveFlow {
    let (chains, key) = (worker.chains(), entry.key());
    let class = chains.classifier.policies().class_name(entry.fid);
    let standing = &entry.ext.standing;
    let course = standing.course(entry.state());
    LiveFlow {
        flow_id: entry.ext.event_id,
        worker: me.0,
        link: key.scope().link.0,
        tenant: key.tenant().0,
        ends: HistoryEndpoints {
            protocol: key.protocol(),
            src_ip: key.source(),
            src_port: key.source_port(),
            dest_ip: key.destination(),
            dest_port: key.destination_port(),
        },
        vlans: entry.ext.vlan.as_slice().to_vec(),
        names: chains.classifier.names(&header_of_flow(key, entry.ext.matched_icmp), worker.clock()),
        fid: entry.fid.0,
        staged: class.as_ref().is_some_and(|class| class.staged),
        policy: class.map_or_else(|| "default".to_owned(), |class| class.policy.to_string()),
        generation: entry.generation.0,
        running: chains.generation.0,
        chain: names(chains, chain_of(chains, entry)),
        path: names(chains, entry.path),
        state: entry.state().eve_name(),
        tcp: entry.ext.session.exists().then(|| entry.ext.session.state().eve_name()).flatten(),
        app_proto: app_protocol(entry.ext.app.as_deref()),
        course: match course {
            PacketDisposition::Judged => "judged",
            PacketDisposition::Uninspected => "uninspected",
            PacketDisposition::Bypassed => "bypassed",
            PacketDisposition::Refused(_) => "refused",
        },
        refused: match course {
            PacketDisposition::Refused(decision) => refused_by(chains, &decision),
            // Judged packet by packet, and each is refused alike.
            PacketDisposition::Judged => {
                standing.repeated_refusal().and_then(|each| refused_by(chains, &each))
            }
            PacketDisposition::Uninspected | PacketDisposition::Bypassed => None,
        },
        allowed: standing.allowed(!entry.path.is_empty()).map(|allowed| AllowedBy {
            function: allowed.function.map(|id| name(chains, id)),
            rule: allowed.rule.map(core::num::NonZeroU32::get),
        }),
        egress: standing.egress().map(|port| match chains.ports.get(usize::from(port.0)) {
            Some(name) => name.clone(),
            None => port.to_string(),
        }),
        level: entry.level().name(),
        step: step_name(entry.step()),
        since: worker.flows().since(id).map(seconds),
        stays: entry.is_at_host().then(|| {
            let why = worker.offload_denial(entry);
            StaysBy { code: why.name(), meaning: why.explained() }
        }),
        levels: counted(worker, id),
        start: seconds(entry.start),
        last: seconds(entry.last_seen),
        now: seconds(worker.clock()),
    }
}

fn seconds(time: Timestamp) -> f64 {
    // The value is for display: microseconds are enough.
    (time.as_nanos() / 1_000) as f64 / 1e6
}

/// The counters of each level: of the host, and of every lower level that has seen a packet.
fn counted(worker: &Worker, id: FlowId) -> BTreeMap<&'static str, Counted> {
    let of = |level: Level| {
        let amounts = worker.flows().amounts(id, level)?;
        let counted = Counted::of(&amounts.packets, &amounts.bytes);
        (level == Level::Host || counted != Counted::default()).then_some((level.name(), counted))
    };
    [Level::Host, Level::Xdp, Level::Rtl].into_iter().filter_map(of).collect()
}

/// The functions that the running generation puts on a flow's path.
fn chain_of(chains: &Chains, entry: &Entry) -> Path {
    let header = header_of_flow(entry.key(), entry.ext.matched_icmp);
    chains.classifier.classify(&header, entry.last_seen, &mut entry.ext.matches.clone()).path
}

fn names(chains: &Chains, path: Path) -> Vec<&'static str> {
    path.functions().map(|id| name(chains, id)).collect()
}

fn name(chains: &Chains, id: FunctionId) -> &'static str {
    if id == FunctionId::ENGINE {
        return "engine";
    }
    chains.function(id).map_or("unknown", |function| function.spec().name)
}

fn refused_by(chains: &Chains, decision: &Decision) -> Option<RefusedBy> {
    let reason = decision.reason?;
    Some(RefusedBy {
        function: name(chains, decision.function),
        verdict: decision.verdict.name(),
        reason: reason.name(),
        meaning: reason.meaning(),
        rule: decision.rule.map(core::num::NonZeroU32::get),
    })
}

fn app_protocol(app: Option<&AppLayer>) -> Option<&'static str> {
    match app?.protocol() {
        DetectedProtocol::Protocol(id) => protocols::spec(id).map(|spec| spec.eve_name),
        DetectedProtocol::Failed => Some("failed"),
        DetectedProtocol::Pending => None,
    }
}

const fn step_name(step: Step) -> &'static str {
    match step {
        Step::Host => "host",
        Step::Back => "back",
        Step::Installing => "installing",
        Step::Active => "active",
        Step::Withdrawing => "withdrawing",
        Step::Marking => "marking",
        Step::Grace => "grace",
        Step::Reading => "reading",
        Step::Deleting => "deleting",
        Step::Left => "left",
    }
}
