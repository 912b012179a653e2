// SPDX-License-Identifier: Apache-2.0
//! The history of flows in a capture: decisions of each function, alerts, refusals, states, the end.
//!
//! Bounded: [`FLOWS_MAX`] flows with [`MOMENTS_MAX`] moments each; the rest is counted.

use super::notes::{FlowEndNote, FlowNote, FlowNotes, NoteContent};
use super::observe::{Calls, FlowSeen, FunctionCall, Half, How, observed, take};
pub use crate::views::history::{
    AllowedBy, FlowHistory, Histories, HistoryAlert, HistoryEndpoints, HistoryRefusal, Moment, Part,
};
use crate::worker::{Frame, Worker};
use bartizan_applayer::flow::Engine;
use bartizan_base::{Decision, Direction, Timestamp};
use bartizan_flow::TableError;
use bartizan_packet::{DecodeOutput, Decoder};
use bartizan_stages::chain::Chains;
use bartizan_stages::settings::EngineSettings;
use core::net::IpAddr;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most flows with a history.
pub const FLOWS_MAX: usize = 1_000;
/// Most moments of a flow.
pub const MOMENTS_MAX: usize = 500;

/// Selection of the flows to be explained: those between two ends, whichever side opened them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryFilter {
    /// IP protocol; any unless given.
    pub protocol: Option<u8>,
    /// Both ends; without a port, any port.
    pub ends: [(IpAddr, Option<u16>); 2],
}

impl HistoryFilter {
    /// Whether a flow is selected.
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

/// Reasons why a packet has no flow that could be explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoFlow {
    /// Fragments have no ports.
    #[error("the packet is a fragment and has no ports; name the flow by addresses and ports instead")]
    Fragment,
    /// ARP and the like, or broken.
    #[error("the packet has no readable IP header; `inspect` shows the decode events of such packets")]
    NotIp,
}

/// The flow of a frame's innermost packet.
///
/// # Errors
/// The frame has none.
pub fn flow_of(settings: &EngineSettings, frame: &Frame<'_>) -> Result<HistoryFilter, NoFlow> {
    let mut output = DecodeOutput::default();
    Decoder::new(settings.decoder).decode(frame.link_type, frame.bytes, frame.wire_len, &mut output);
    let packet = output.packets().last().ok_or(NoFlow::NotIp)?;
    if packet.is_fragment() {
        return Err(NoFlow::Fragment);
    }
    let (source, destination) = packet.src().zip(packet.dst()).ok_or(NoFlow::NotIp)?;
    // An ICMP error belongs to the flow that it quotes.
    if let Some(quoted) = packet.about() {
        let ports = quoted.ports;
        let ends = [(quoted.src, ports.map(|p| p.0)), (quoted.dst, ports.map(|p| p.1))];
        return Ok(HistoryFilter { protocol: Some(quoted.proto), ends });
    }
    let ports = packet.ports();
    let ends = [(source, ports.map(|p| p.0)), (destination, ports.map(|p| p.1))];
    Ok(HistoryFilter { protocol: packet.carried_protocol(), ends })
}

/// Runs the frames of a capture and collects the history of selected flows.
pub struct Watcher {
    worker: Worker,
    calls: Calls,
    notes: FlowNotes,
    wanted: Option<HistoryFilter>,
    open: BTreeMap<u64, Story>,
    histories: Histories,
    names: Arc<[&'static str]>,
}

/// A history that is being collected.
struct Story {
    begun: Timestamp,
    frames: (u64, u64),
    tcp: Option<&'static str>,
    app: Option<&'static str>,
    parts: Vec<Part>,
    alerts: Vec<HistoryAlert>,
    refused: Vec<HistoryRefusal>,
    moments: Vec<Moment>,
    omitted: u64,
}

impl Watcher {
    /// A watcher. `wanted`: the selected flows, all if `None`; `names`: the names of functions, by their
    /// bits.
    ///
    /// # Errors
    /// There is no memory for the flow table.
    pub fn new(
        chains: &Arc<Chains>,
        settings: &EngineSettings,
        engine: &Arc<Engine>,
        wanted: Option<HistoryFilter>,
        names: &[&'static str],
    ) -> Result<Self, TableError> {
        let (watched, calls) = observed(chains, None, How::default());
        Ok(Watcher {
            worker: Worker::new(settings.clone(), Arc::clone(engine), watched)?,
            calls,
            notes: FlowNotes::default(),
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
        self.record_notes(frame.now, frame.number);
    }

    /// Ends all flows.
    #[must_use]
    pub fn finish(mut self) -> Histories {
        let now = self.worker.clock();
        self.worker.shutdown(&mut self.notes);
        self.record_notes(now, None);
        self.histories.flows.sort_by_key(|flow| flow.number & 0xffff_ffff_ffff);
        self.histories
    }

    /// Moves the notes of a frame into the histories.
    fn record_notes(&mut self, now: Timestamp, number: Option<u64>) {
        for call in take(&self.calls) {
            let Some(flow) = call.flow.clone() else { continue };
            if self.wanted.is_none_or(|wanted| wanted.fits(&flow))
                && let Some((story, new)) = self.open_history(&flow, now, number)
            {
                story.call(&call, &flow, new, now, number);
            }
        }
        let names = Arc::clone(&self.names);
        for note in core::mem::take(&mut self.notes.list) {
            if !self.wanted.is_none_or(|wanted| wanted.fits(&note.flow)) {
                continue;
            }
            if let Some((story, _)) = self.open_history(&note.flow, now, number.or(note.number)) {
                story.note(&note, &names, now);
            }
            if let NoteContent::Ended(end) = note.what {
                self.end(note.flow, *end);
            }
        }
    }

    /// The story of a flow, and whether it is new. `None`: no room for another one.
    fn open_history(
        &mut self,
        flow: &FlowSeen,
        now: Timestamp,
        number: Option<u64>,
    ) -> Option<(&mut Story, bool)> {
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

    fn end(&mut self, flow: FlowSeen, end: FlowEndNote) {
        let Some(story) = self.open.remove(&flow.id) else {
            self.histories.omitted += 1;
            return;
        };
        let path = end.path.functions();
        let path = path.filter_map(|id| self.names.get(usize::from(id.0)).copied()).collect();
        let allowed = end.allowed.map(|allowed| AllowedBy {
            function: allowed.function.and_then(|id| self.names.get(usize::from(id.0)).copied()),
            rule: allowed.rule.map(core::num::NonZeroU32::get),
        });
        self.histories.flows.push(FlowHistory {
            number: flow.id,
            ends: HistoryEndpoints {
                protocol: flow.protocol,
                src_ip: flow.client.0,
                src_port: flow.client.1,
                dest_ip: flow.server.0,
                dest_port: flow.server.1,
            },
            icmp: end.icmp,
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
            allowed,
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

    fn call(&mut self, call: &FunctionCall, flow: &FlowSeen, new: bool, now: Timestamp, number: Option<u64>) {
        let direction = Some(direction_name(call.direction));
        let base =
            Moment { packet: number, seconds: 0.0, direction, what: "", function: None, text: String::new() };
        if new {
            let text = format!(
                "first packet, {} to {}",
                end_text(flow.client.0, flow.client.1),
                end_text(flow.server.0, flow.server.1)
            );
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
            let text = "has finished with the flow and leaves its path".to_owned();
            self.moment(now, Moment { what: "done", function, text, ..base });
        }
    }

    fn note(&mut self, note: &FlowNote, names: &[&'static str], now: Timestamp) {
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
            NoteContent::Alert { rule, message, action } => {
                match self.alerts.iter_mut().find(|a| a.rule == *rule && a.action == *action) {
                    Some(known) => known.count += 1,
                    None => self.alerts.push(HistoryAlert {
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
            NoteContent::Refused(decision) => {
                let function = names.get(usize::from(decision.function.0)).copied().unwrap_or("engine");
                self.refuse(decision, function, note.number);
                let text = decision_text(decision);
                self.moment(now, Moment { what: "refused", function: Some(function), text, ..base });
            }
            NoteContent::Anomaly(text) => {
                self.moment(now, Moment { what: "anomaly", text: text.clone(), ..base })
            }
            NoteContent::Transaction(text) => {
                self.moment(now, Moment { what: "transaction", text: text.clone(), ..base })
            }
            NoteContent::File(text) => self.moment(now, Moment { what: "file", text: text.clone(), ..base }),
            NoteContent::Ended(end) => {
                let text = format!("{}, state {}", end.reason, end.state);
                self.moment(now, Moment { what: "ended", text, ..base });
            }
        }
    }

    fn refuse(&mut self, decision: &Decision, function: &str, number: Option<u64>) {
        let Some(reason) = decision.reason else { return };
        let rule = decision.rule.map(core::num::NonZeroU32::get);
        let same =
            |r: &&mut HistoryRefusal| r.reason == reason.name() && r.function == function && r.rule == rule;
        match self.refused.iter_mut().find(same) {
            Some(known) => known.count += 1,
            None => self.refused.push(HistoryRefusal {
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

fn end_text(address: IpAddr, port: u16) -> String {
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
