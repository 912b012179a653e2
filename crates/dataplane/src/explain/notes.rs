// SPDX-License-Identifier: Apache-2.0
//! The recorder of histories: notes the recorder events of the data plane, flow by flow.

use super::observe::FlowSeen;
use bartizan_base::{Decision, Direction, PerDirection, Timestamp};
use bartizan_function::FindingAction;
use bartizan_stages::record::{Anomaly, EndOfFlow, Entry, EventContext, Recorder, RecorderEvent};
use bartizan_stages::standing::Allowed;

/// The notes, in order.
#[derive(Default)]
pub(super) struct FlowNotes {
    pub(super) list: Vec<FlowNote>,
}

/// One record about a flow.
pub(super) struct FlowNote {
    pub(super) flow: FlowSeen,
    pub(super) number: Option<u64>,
    pub(super) direction: Option<Direction>,
    pub(super) what: NoteContent,
}

/// Content of a note.
pub(super) enum NoteContent {
    Alert { rule: String, message: String, action: &'static str },
    Refused(Decision),
    Anomaly(String),
    Transaction(String),
    File(String),
    Ended(Box<FlowEndNote>),
}

/// A flow at its end.
pub(super) struct FlowEndNote {
    pub(super) reason: &'static str,
    pub(super) state: &'static str,
    pub(super) link: u16,
    pub(super) icmp: Option<(u8, u8)>,
    pub(super) vlans: Vec<u16>,
    pub(super) fid: u32,
    pub(super) generation: u64,
    pub(super) level: &'static str,
    pub(super) path: bartizan_base::Path,
    pub(super) allowed: Option<Allowed>,
    pub(super) start: Timestamp,
    pub(super) last: Timestamp,
    pub(super) packets: PerDirection<u64>,
    pub(super) bytes: PerDirection<u64>,
}

impl FlowNotes {
    fn add(&mut self, occasion: &EventContext<'_>, flow: Option<&Entry>, what: NoteContent) {
        let Some(flow) = flow else { return };
        let number = occasion.number.or(occasion.around.and_then(|a| a.number));
        self.list.push(FlowNote {
            flow: FlowSeen::of_entry(flow),
            number,
            direction: Some(occasion.direction),
            what,
        });
    }
}

impl Recorder for FlowNotes {
    fn record(&mut self, event: RecorderEvent<'_>) {
        match event {
            RecorderEvent::Alert { occasion, flow, finding, .. } => {
                let action = if finding.action == FindingAction::Blocked { "blocked" } else { "allowed" };
                let (rule, message) = (finding.rule.id.to_string(), finding.rule.message.clone());
                self.add(occasion, flow, NoteContent::Alert { rule, message, action });
            }
            RecorderEvent::Anomaly { occasion, flow, anomaly } => {
                self.add(occasion, flow, NoteContent::Anomaly(text_of(anomaly)));
            }
            RecorderEvent::Refused { occasion, flow, verdict: fate, .. } => {
                self.add(occasion, flow, NoteContent::Refused(fate.decision));
            }
            RecorderEvent::Transaction { occasion, flow, tx } => {
                let text = format!("{} transaction {}", tx.spec.eve_name, tx.id);
                self.add(occasion, Some(flow), NoteContent::Transaction(text));
            }
            RecorderEvent::File { occasion, flow, tx, direction, index } => {
                let file = tx.tx.files_of(direction).get(index).map(|file| {
                    let name = String::from_utf8_lossy(&file.name);
                    // The name becomes part of one line of a table: line ends in it are replaced.
                    let name = bartizan_events::harmless_line(&name);
                    format!("{name} of {} bytes in {} transaction {}", file.size, tx.spec.eve_name, tx.id)
                });
                self.add(occasion, Some(flow), NoteContent::File(file.unwrap_or_default()));
            }
            RecorderEvent::Flow { flow, ended } => self.add_end(flow, ended),
            RecorderEvent::Tagged { .. }
            | RecorderEvent::Variables { .. }
            | RecorderEvent::Frame { .. }
            | RecorderEvent::Declared { .. }
            | RecorderEvent::Notice { .. }
            | RecorderEvent::Unsent { .. }
            | RecorderEvent::Certificates { .. } => {}
        }
    }
}

impl FlowNotes {
    fn add_end(&mut self, flow: &Entry, &EndOfFlow { reason, .. }: &EndOfFlow) {
        let ended = FlowEndNote {
            reason: reason.eve_name(),
            state: flow.state().eve_name(),
            link: flow.key().scope().link.0,
            icmp: flow.ext.icmp,
            vlans: flow.ext.vlan.as_slice().to_vec(),
            fid: flow.fid.0,
            generation: flow.generation.0,
            level: flow.level().name(),
            path: flow.path,
            allowed: flow.ext.standing.allowed(false),
            start: flow.start,
            last: flow.last_seen,
            packets: flow.packets,
            bytes: flow.bytes,
        };
        let what = NoteContent::Ended(Box::new(ended));
        self.list.push(FlowNote { flow: FlowSeen::of_entry(flow), number: None, direction: None, what });
    }
}

fn text_of(anomaly: Anomaly<'_>) -> String {
    match anomaly {
        Anomaly::Decode(event) => event.eve_name().to_owned(),
        Anomaly::Stream(event) => event.eve_name().to_owned(),
        Anomaly::App { protocol, event, .. } => {
            format!("{} {event}", protocol.map_or("protocol", |p| p.eve_name))
        }
    }
}
