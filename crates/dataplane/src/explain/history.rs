// SPDX-License-Identifier: Apache-2.0
//! The history of flows in a capture: what each function said, alerts, refusals, states, the end.
//!
//! Bounded: so many flows, so many moments of each; what is left out is counted.

use super::observe::{Call, Calls, FlowSeen, Half, How, observed, take};
use crate::chain::Chains;
use crate::record::{Anomaly, Entry, Fate, Occasion, Recorder, TxRecord};
use crate::settings::EngineSettings;
use crate::worker::{Frame, Worker};
use bartizan_applayer::flow::Engine;
use bartizan_base::{Decision, Direction, PerDirection, Timestamp};
use bartizan_flow::{EndReason, TableError};
use bartizan_function::{Finding, FindingAction};
use bartizan_packet::{DecodeOutput, Decoder, Transport};
use core::net::IpAddr;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Flows whose history is kept.
pub const FLOWS_MAX: usize = 1_000;
/// Moments of a flow that are kept.
pub const MOMENTS_MAX: usize = 500;

/// Which flows are asked about: those between two ends, whoever opened them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Select {
    /// IP protocol; any unless given.
    pub protocol: Option<u8>,
    /// Both ends; without a port, any port.
    pub ends: [(IpAddr, Option<u16>); 2],
}

impl Select {
    /// Whether a flow is meant.
    #[must_use]
    pub fn fits(&self, flow: &FlowSeen) -> bool {
        let end = |wanted: (IpAddr, Option<u16>), is: (IpAddr, u16)| {
            wanted.0 == is.0 && wanted.1.is_none_or(|port| port == is.1)
        };
        let [a, b] = self.ends;
        self.protocol.is_none_or(|p| p == flow.protocol)
            && (end(a, flow.client) && end(b, flow.server) || end(a, flow.server) && end(b, flow.client))
    }
}

/// Why a packet has no flow that could be asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoFlow {
    /// Fragments have no ports.
    #[error("it is a fragment, which has no ports; give the flow by addresses and ports instead")]
    Fragment,
    /// ARP and the like, or broken.
    #[error("it is no IP packet with a readable header; `inspect` shows decode events of such packets")]
    NotIp,
}

/// The flow of a frame's innermost packet.
///
/// # Errors
/// There is none.
pub fn flow_of(settings: &EngineSettings, frame: &Frame<'_>) -> Result<Select, NoFlow> {
    let mut output = DecodeOutput::default();
    Decoder::new(settings.decoder).decode(frame.link_type, frame.bytes, frame.wire_len, &mut output);
    let packet = output.packets().last().ok_or(NoFlow::NotIp)?;
    if packet.is_fragment() {
        return Err(NoFlow::Fragment);
    }
    let (source, destination) = packet.src().zip(packet.dst()).ok_or(NoFlow::NotIp)?;
    let quoted = match &packet.transport {
        Transport::Icmp(icmp) if icmp.kind == 3 => icmp.quoted.as_ref(),
        _ => None,
    };
    // An ICMP error belongs to the flow that it is about.
    if let Some(quoted) = quoted {
        let ports = quoted.ports;
        let ends = [(quoted.src, ports.map(|p| p.0)), (quoted.dst, ports.map(|p| p.1))];
        return Ok(Select { protocol: Some(quoted.proto), ends });
    }
    let ports = packet.ports();
    let ends = [(source, ports.map(|p| p.0)), (destination, ports.map(|p| p.1))];
    Ok(Select { protocol: packet.proto(), ends })
}

/// Both ends of a flow, from the side that opened it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ends {
    /// IP protocol number.
    pub protocol: u8,
    /// Address of the side that opened the flow.
    pub src_ip: IpAddr,
    /// Its port, 0 where the protocol has none.
    pub src_port: u16,
    /// Address of the other side.
    pub dest_ip: IpAddr,
    /// Its port.
    pub dest_port: u16,
}

/// What a function contributed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Part {
    /// The function.
    pub function: &'static str,
    /// Times that its header half was asked.
    pub header_calls: u64,
    /// Times that its payload half was asked.
    pub payload_calls: u64,
    /// Answers by verdict.
    pub verdicts: BTreeMap<&'static str, u64>,
    /// Refusals by reason.
    pub reasons: BTreeMap<&'static str, u64>,
    /// Findings that it reported.
    pub alerts: u64,
    /// Number of the packet with which it was done with the flow and left the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done_at: Option<u64>,
}

/// An alert of a flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Alert {
    /// gid:sid:rev.
    pub rule: String,
    /// Message.
    pub message: String,
    /// `allowed` or `blocked`.
    pub action: &'static str,
    /// How often.
    pub count: u64,
    /// Packet of the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet: Option<u64>,
}

/// Packets of a flow that were refused for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Who refused: a function, or the engine.
    pub function: String,
    /// Verdict.
    pub verdict: &'static str,
    /// Reason.
    pub reason: &'static str,
    /// What the reason means.
    pub meaning: &'static str,
    /// Rule of the function: number of a packet-filter rule, sid of a detection rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<u32>,
    /// Packets.
    pub count: u64,
    /// The first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet: Option<u64>,
}

/// Something that happened to a flow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moment {
    /// Number of the packet in the capture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet: Option<u64>,
    /// Seconds since the flow's first packet.
    pub seconds: f64,
    /// Direction of the packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<&'static str>,
    /// `opened`, `said`, `tcp`, `protocol`, `done`, `alert`, `anomaly`, `transaction`, `file`, `refused`, `ended`.
    pub what: &'static str,
    /// The function that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<&'static str>,
    /// In words.
    pub text: String,
}

/// A flow's history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowHistory {
    /// Number in events of a run, unique there.
    pub number: u64,
    /// Both ends.
    pub ends: Ends,
    /// Whose traffic: number of the tenant.
    pub tenant: u16,
    /// Number of the link.
    pub link: u16,
    /// VLAN ids of the first packet.
    pub vlans: Vec<u16>,
    /// Its class.
    pub fid: u32,
    /// Generation of policies and rules.
    pub generation: u64,
    /// Where its packets are handled.
    pub level: &'static str,
    /// State at the end.
    pub state: &'static str,
    /// State of the TCP connection at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<&'static str>,
    /// Application protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_proto: Option<&'static str>,
    /// Why it ended.
    pub end: &'static str,
    /// First packet, seconds since 1970.
    pub start: f64,
    /// Seconds from first to last packet.
    pub seconds: f64,
    /// Packets to the server.
    pub pkts_toserver: u64,
    /// Packets to the client.
    pub pkts_toclient: u64,
    /// Bytes to the server.
    pub bytes_toserver: u64,
    /// Bytes to the client.
    pub bytes_toclient: u64,
    /// First and last packet of the capture in which it was seen.
    pub frames: (u64, u64),
    /// Functions that are still on its path.
    pub path: Vec<&'static str>,
    /// What each function contributed.
    pub functions: Vec<Part>,
    /// Alerts, in the order of the first of each rule.
    pub alerts: Vec<Alert>,
    /// Packets that were refused (in detection: would have been), by reason.
    pub refused: Vec<Refusal>,
    /// What happened, in order.
    pub moments: Vec<Moment>,
    /// Moments that are left out.
    pub omitted: u64,
}

/// The histories of a capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Histories {
    /// Refusals acted.
    pub prevention: bool,
    /// Frames that were read.
    pub frames: u64,
    /// The flows that were asked about, in the order of their first packets.
    pub flows: Vec<FlowHistory>,
    /// Flows that were asked about and are left out.
    pub omitted: u64,
}

/// Runs the frames of a capture and writes down what happens to the flows that are asked about.
pub struct Watcher {
    worker: Worker,
    calls: Calls,
    notes: Notes,
    wanted: Option<Select>,
    open: BTreeMap<u64, Story>,
    histories: Histories,
    names: Arc<[&'static str]>,
}

/// A history in the making.
struct Story {
    begun: Timestamp,
    frames: (u64, u64),
    tcp: Option<&'static str>,
    app: Option<&'static str>,
    parts: Vec<Part>,
    alerts: Vec<Alert>,
    refused: Vec<Refusal>,
    moments: Vec<Moment>,
    omitted: u64,
}

impl Watcher {
    /// A watcher; `wanted`: the flows that are asked about, all unless given; `names`: of the functions, by their bit.
    ///
    /// # Errors
    /// There is no memory for the flow table.
    pub fn new(
        chains: &Arc<Chains>,
        settings: &EngineSettings,
        engine: &Arc<Engine>,
        wanted: Option<Select>,
        names: &[&'static str],
    ) -> Result<Self, TableError> {
        let (watched, calls) = observed(chains, None, How::default());
        Ok(Watcher {
            worker: Worker::new(settings.clone(), Arc::clone(engine), watched)?,
            calls,
            notes: Notes::default(),
            wanted,
            open: BTreeMap::new(),
            histories: Histories { prevention: settings.prevention, ..Histories::default() },
            names: names.into(),
        })
    }

    /// Runs a frame.
    pub fn frame(&mut self, frame: &Frame<'_>) {
        self.histories.frames += 1;
        self.worker.frame(frame, &mut self.notes);
        self.settle(frame.now, frame.number);
    }

    /// Ends all flows.
    #[must_use]
    pub fn finish(mut self) -> Histories {
        let now = self.worker.clock();
        self.worker.shutdown(&mut self.notes);
        self.settle(now, None);
        self.histories.flows.sort_by_key(|flow| flow.number & 0xffff_ffff_ffff);
        self.histories
    }

    /// Takes what was written down during a frame.
    fn settle(&mut self, now: Timestamp, number: Option<u64>) {
        for call in take(&self.calls) {
            let Some(flow) = call.flow.clone() else { continue };
            if self.wanted.is_none_or(|wanted| wanted.fits(&flow))
                && let Some((story, new)) = self.story(&flow, now, number)
            {
                story.call(&call, &flow, new, now, number);
            }
        }
        let names = Arc::clone(&self.names);
        for note in core::mem::take(&mut self.notes.list) {
            if !self.wanted.is_none_or(|wanted| wanted.fits(&note.flow)) {
                continue;
            }
            if let Some((story, _)) = self.story(&note.flow, now, number.or(note.number)) {
                story.note(&note, &names, now);
            }
            if let What::Ended(end) = note.what {
                self.end(note.flow, *end);
            }
        }
    }

    /// The story of a flow, and whether it begins now. `None`: there is no room for one more.
    fn story(&mut self, flow: &FlowSeen, now: Timestamp, number: Option<u64>) -> Option<(&mut Story, bool)> {
        let known = self.open.contains_key(&flow.id);
        if !known && self.open.len() + self.histories.flows.len() >= FLOWS_MAX {
            return None;
        }
        let story = self.open.entry(flow.id).or_insert_with(|| Story::new(now, number));
        if let Some(number) = number {
            story.frames.1 = story.frames.1.max(number);
        }
        Some((story, !known))
    }

    fn end(&mut self, flow: FlowSeen, end: Ended) {
        let Some(story) = self.open.remove(&flow.id) else {
            self.histories.omitted += 1;
            return;
        };
        let path = end.path.functions();
        let path = path.filter_map(|id| self.names.get(usize::from(id.0)).copied()).collect();
        self.histories.flows.push(FlowHistory {
            number: flow.id,
            ends: Ends {
                protocol: flow.protocol,
                src_ip: flow.client.0,
                src_port: flow.client.1,
                dest_ip: flow.server.0,
                dest_port: flow.server.1,
            },
            tenant: flow.tenant.0,
            link: end.link,
            vlans: end.vlans,
            fid: end.fid,
            generation: end.generation,
            level: end.level,
            state: end.state,
            tcp: flow.tcp,
            app_proto: flow.app,
            end: end.reason,
            start: seconds(end.start.as_nanos()),
            seconds: seconds(end.last.since(end.start).as_nanos()),
            pkts_toserver: end.packets.to_server,
            pkts_toclient: end.packets.to_client,
            bytes_toserver: end.bytes.to_server,
            bytes_toclient: end.bytes.to_client,
            frames: story.frames,
            path,
            functions: story.parts,
            alerts: story.alerts,
            refused: story.refused,
            moments: story.moments,
            omitted: story.omitted,
        });
    }
}

/// Nanoseconds as seconds, to the microsecond.
fn seconds(nanos: u64) -> f64 {
    (nanos / 1_000) as f64 / 1e6
}

const fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::ToServer => "to_server",
        Direction::ToClient => "to_client",
    }
}

impl Story {
    fn new(now: Timestamp, number: Option<u64>) -> Self {
        let number = number.unwrap_or(0);
        Story {
            begun: now,
            frames: (number, number),
            tcp: None,
            app: None,
            parts: Vec::new(),
            alerts: Vec::new(),
            refused: Vec::new(),
            moments: Vec::new(),
            omitted: 0,
        }
    }

    fn moment(&mut self, now: Timestamp, moment: Moment) {
        if self.moments.len() < MOMENTS_MAX {
            let seconds = seconds(now.since(self.begun).as_nanos());
            self.moments.push(Moment { seconds, ..moment });
        } else {
            self.omitted += 1;
        }
    }

    fn call(&mut self, call: &Call, flow: &FlowSeen, new: bool, now: Timestamp, number: Option<u64>) {
        let direction = Some(direction_name(call.direction));
        let base =
            Moment { packet: number, seconds: 0.0, direction, what: "", function: None, text: String::new() };
        if new {
            let text = format!("first packet, {} to {}", end_text(flow.client), end_text(flow.server));
            self.moment(now, Moment { what: "opened", text, ..base.clone() });
        }
        if flow.tcp != self.tcp {
            let text = format!("{} -> {}", self.tcp.unwrap_or("none"), flow.tcp.unwrap_or("none"));
            self.tcp = flow.tcp;
            self.moment(now, Moment { what: "tcp", text, ..base.clone() });
        }
        if flow.app != self.app {
            self.app = flow.app;
            let text = flow.app.unwrap_or("none").to_owned();
            self.moment(now, Moment { what: "protocol", text, ..base.clone() });
        }
        let index = self.parts.iter().position(|p| p.function == call.name).unwrap_or_else(|| {
            self.parts.push(Part { function: call.name, ..Part::default() });
            self.parts.len() - 1
        });
        let Some(part) = self.parts.get_mut(index) else { return };
        let first = part.header_calls + part.payload_calls == 0;
        match call.half {
            Half::Header => part.header_calls += 1,
            Half::Payload => part.payload_calls += 1,
        }
        let decision = &call.decision;
        *part.verdicts.entry(decision.verdict.name()).or_default() += 1;
        if let Some(reason) = decision.reason {
            *part.reasons.entry(reason.name()).or_default() += 1;
        }
        part.alerts += call.findings.len() as u64;
        let leaves = decision.done && decision.verdict.forwards() && part.done_at.is_none();
        if leaves {
            part.done_at = number;
        }
        let function = Some(call.name);
        if first {
            let text = decision_text(decision);
            self.moment(now, Moment { what: "said", function, text, ..base.clone() });
        }
        if leaves {
            let text = "is done with the flow and leaves its path".to_owned();
            self.moment(now, Moment { what: "done", function, text, ..base });
        }
    }

    fn note(&mut self, note: &Note, names: &[&'static str], now: Timestamp) {
        let direction = note.direction.map(direction_name);
        let base = Moment {
            packet: note.number,
            seconds: 0.0,
            direction,
            what: "",
            function: None,
            text: String::new(),
        };
        match &note.what {
            What::Alert { rule, message, action } => {
                match self.alerts.iter_mut().find(|a| a.rule == *rule && a.action == *action) {
                    Some(known) => known.count += 1,
                    None => self.alerts.push(Alert {
                        rule: rule.clone(),
                        message: message.clone(),
                        action,
                        count: 1,
                        packet: note.number,
                    }),
                }
                let text = format!("[{rule}] {message} ({action})");
                self.moment(now, Moment { what: "alert", text, ..base });
            }
            What::Refused(decision) => {
                let function = names.get(usize::from(decision.function.0)).copied().unwrap_or("engine");
                self.refuse(decision, function, note.number);
                let text = decision_text(decision);
                self.moment(now, Moment { what: "refused", function: Some(function), text, ..base });
            }
            What::Anomaly(text) => self.moment(now, Moment { what: "anomaly", text: text.clone(), ..base }),
            What::Transaction(text) => {
                self.moment(now, Moment { what: "transaction", text: text.clone(), ..base })
            }
            What::File(text) => self.moment(now, Moment { what: "file", text: text.clone(), ..base }),
            What::Ended(end) => {
                let text = format!("{}, state {}", end.reason, end.state);
                self.moment(now, Moment { what: "ended", text, ..base });
            }
        }
    }

    fn refuse(&mut self, decision: &Decision, function: &str, number: Option<u64>) {
        let Some(reason) = decision.reason else { return };
        let rule = decision.rule.map(core::num::NonZeroU32::get);
        let same = |r: &&mut Refusal| r.reason == reason.name() && r.function == function && r.rule == rule;
        match self.refused.iter_mut().find(same) {
            Some(known) => known.count += 1,
            None => self.refused.push(Refusal {
                function: function.to_owned(),
                verdict: decision.verdict.name(),
                reason: reason.name(),
                meaning: reason.meaning(),
                rule,
                count: 1,
                packet: number,
            }),
        }
    }
}

fn end_text((address, port): (IpAddr, u16)) -> String {
    match (address, port) {
        (address, 0) => address.to_string(),
        (IpAddr::V6(address), port) => format!("[{address}]:{port}"),
        (address, port) => format!("{address}:{port}"),
    }
}

/// A decision in words: `drop (pfw_rule 3)`.
#[must_use]
pub fn decision_text(decision: &Decision) -> String {
    let verdict = decision.verdict.name();
    match (decision.reason, decision.rule) {
        (Some(reason), Some(rule)) => format!("{verdict}, {} {rule}: {}", reason.name(), reason.meaning()),
        (Some(reason), None) => format!("{verdict}, {}: {}", reason.name(), reason.meaning()),
        (None, Some(rule)) => format!("{verdict}, rule {rule}"),
        (None, None) => verdict.to_owned(),
    }
}

/// Writes down what the data plane records.
#[derive(Default)]
struct Notes {
    list: Vec<Note>,
}

struct Note {
    flow: FlowSeen,
    number: Option<u64>,
    direction: Option<Direction>,
    what: What,
}

enum What {
    Alert { rule: String, message: String, action: &'static str },
    Refused(Decision),
    Anomaly(String),
    Transaction(String),
    File(String),
    Ended(Box<Ended>),
}

/// A flow at its end.
struct Ended {
    reason: &'static str,
    state: &'static str,
    link: u16,
    vlans: Vec<u16>,
    fid: u32,
    generation: u64,
    level: &'static str,
    path: bartizan_base::Path,
    start: Timestamp,
    last: Timestamp,
    packets: PerDirection<u64>,
    bytes: PerDirection<u64>,
}

impl Notes {
    fn add(&mut self, occasion: &Occasion<'_>, flow: Option<&Entry>, what: What) {
        let Some(flow) = flow else { return };
        let number = occasion.number.or(occasion.around.and_then(|a| a.number));
        self.list.push(Note {
            flow: FlowSeen::of_entry(flow),
            number,
            direction: Some(occasion.direction),
            what,
        });
    }
}

impl Recorder for Notes {
    fn alert(
        &mut self,
        occasion: &Occasion<'_>,
        flow: Option<&Entry>,
        finding: &Finding,
        _: &Fate,
        _: Option<TxRecord<'_>>,
    ) {
        let action = if finding.action == FindingAction::Blocked { "blocked" } else { "allowed" };
        let (rule, message) = (finding.rule.id.to_string(), finding.rule.message.clone());
        self.add(occasion, flow, What::Alert { rule, message, action });
    }

    fn tagged(&mut self, _: &Occasion<'_>, _: Option<&Entry>) {}

    fn anomaly(&mut self, occasion: &Occasion<'_>, flow: Option<&Entry>, anomaly: Anomaly<'_>) {
        let text = match anomaly {
            Anomaly::Decode(event) => event.eve_name().to_owned(),
            Anomaly::Stream(event) => event.eve_name().to_owned(),
            Anomaly::App { protocol, event, .. } => {
                format!("{} {event}", protocol.map_or("protocol", |p| p.eve_name))
            }
        };
        self.add(occasion, flow, What::Anomaly(text));
    }

    fn refused(&mut self, occasion: &Occasion<'_>, flow: Option<&Entry>, fate: &Fate, _: &[Finding]) {
        self.add(occasion, flow, What::Refused(fate.decision));
    }

    fn transaction(&mut self, occasion: &Occasion<'_>, flow: &Entry, tx: TxRecord<'_>) {
        let text = format!("{} transaction {}", tx.spec.eve_name, tx.id);
        self.add(occasion, Some(flow), What::Transaction(text));
    }

    fn file(
        &mut self,
        occasion: &Occasion<'_>,
        flow: &Entry,
        tx: TxRecord<'_>,
        direction: Direction,
        index: usize,
    ) {
        let file = tx.tx.files(direction).get(index).map(|f| {
            let name = String::from_utf8_lossy(&f.name).into_owned();
            format!("{name} of {} bytes in {} transaction {}", f.size, tx.spec.eve_name, tx.id)
        });
        self.add(occasion, Some(flow), What::File(file.unwrap_or_default()));
    }

    fn flow(&mut self, flow: &Entry, reason: EndReason, _: Timestamp) {
        let ended = Ended {
            reason: reason.eve_name(),
            state: flow.state().eve_name(),
            link: flow.key().scope().link.0,
            vlans: flow.ext.vlan.as_slice().to_vec(),
            fid: flow.fid.0,
            generation: flow.generation.0,
            level: flow.level.name(),
            path: flow.path,
            start: flow.start,
            last: flow.last_seen,
            packets: flow.packets,
            bytes: flow.bytes,
        };
        let what = What::Ended(Box::new(ended));
        self.list.push(Note { flow: FlowSeen::of_entry(flow), number: None, direction: None, what });
    }
}
