// SPDX-License-Identifier: Apache-2.0
//! Why a rule matched, or did not: every condition on every packet, stream and transaction of a capture.
//!
//! A [`Traced`] stands around detection and, after each packet, asks the rule's conditions one by one, in the order of
//! evaluation, on what detection saw. The prefilter is not asked: a rule whose fast pattern is missing fails at that
//! very `content`. Conditions are looked at after the packet's own matches, so flow variables are as later rules see
//! them.
//!
//! Bounded: so many attempts are kept, the ones that got furthest; all are counted.

use super::words;
use crate::compile::builder::Origin;
use crate::engine::evaluate::{Evaluation, Outcome, evaluate};
use crate::engine::header;
use crate::engine::txstate::FlowDetect;
use crate::model::basis::{Basis, Packets};
use crate::model::buffers::{BufferRef, PacketBytes, packet_buffer};
use crate::model::condition::{Answer, Scene, shown_payload};
use crate::model::content::{Item, Number, Program, VARIABLES_MAX};
use crate::model::prefilter::check_directions;
use crate::model::signature::{Absent, Member, ValueCheck};
use crate::ruleset::RuleSet;
use bartizan_applayer::protocol::ProtocolId;
use bartizan_applayer::protocols;
use bartizan_applayer::transaction::{BufferQuery, Transaction, TxId};
use bartizan_base::{Decision, Direction, FunctionId, RuleId};
use bartizan_function::{AppView, Function, FunctionSpec, PacketContext, slot_as};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Attempts that are kept.
pub const ATTEMPTS_MAX: usize = 5;
/// Bytes of a buffer that are shown.
const BYTES_SHOWN: usize = 64;

/// A condition, and whether it held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Keyword or buffer.
    pub name: String,
    /// The condition in words.
    pub text: String,
    /// Whether it held.
    pub holds: bool,
    /// Where in the buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<usize>,
    /// What was there instead, or the buffer's first bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
}

/// The rule's conditions on one packet, piece of a stream, or transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attempt {
    /// Number of the packet in the capture.
    pub packet: u64,
    /// Direction of the packet in its flow.
    pub direction: &'static str,
    /// `packet`, `stream`, `http transaction 0`.
    pub on: String,
    /// Conditions up to the first that did not hold.
    pub steps: Vec<Step>,
    /// Conditions behind that.
    pub not_asked: usize,
    /// All held.
    pub matched: bool,
}

/// How often a condition was the first that did not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FirstFalse {
    /// Its place in the order of evaluation, from 1.
    pub step: usize,
    /// Keyword or buffer.
    pub name: String,
    /// In words.
    pub text: String,
    /// How often.
    pub count: u64,
}

/// What became of a rule in a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Trace {
    /// Packets, pieces of streams and transactions on which the rule was asked.
    pub attempts: u64,
    /// Attempts in which all conditions held.
    pub matched: u64,
    /// Alerts that detection reported.
    pub alerts: u64,
    /// Packets of these alerts, the first hundred.
    pub alert_packets: Vec<u64>,
    /// The attempts that got furthest.
    pub best: Vec<Attempt>,
    /// Where the others failed, by condition.
    pub first_false: Vec<FirstFalse>,
}

/// Collects what becomes of a rule.
pub struct Tracer {
    rules: Arc<RuleSet>,
    index: usize,
    origins: Vec<Origin>,
    scratch: bartizan_pattern::Scratch,
    /// Number of the packet in hand; set by who reads the capture.
    pub packet: u64,
    trace: Trace,
    failed: BTreeMap<(usize, String, String), u64>,
}

impl Tracer {
    /// Of a rule of a set; `origins`: which keywords its conditions come from. `None`: the set does not have it.
    #[must_use]
    pub fn new(rules: Arc<RuleSet>, rule: RuleId, origins: Vec<Origin>) -> Option<Self> {
        let index = rules.signatures.iter().position(|s| s.id == rule)?;
        Some(Tracer {
            rules,
            index,
            origins,
            scratch: bartizan_pattern::Scratch::default(),
            packet: 0,
            trace: Trace::default(),
            failed: BTreeMap::new(),
        })
    }

    /// What was collected.
    #[must_use]
    pub fn finish(&mut self) -> Trace {
        let mut trace = core::mem::take(&mut self.trace);
        let failed = core::mem::take(&mut self.failed);
        trace.first_false = failed
            .into_iter()
            .map(|((step, name, text), count)| FirstFalse { step, name, text, count })
            .collect();
        trace
    }

    fn add(&mut self, attempt: Attempt) {
        self.trace.attempts += 1;
        self.trace.matched += u64::from(attempt.matched);
        if !attempt.matched
            && let Some(step) = attempt.steps.last()
        {
            let key = (attempt.steps.len(), step.name.clone(), step.text.clone());
            *self.failed.entry(key).or_default() += 1;
        }
        let best = &mut self.trace.best;
        best.push(attempt);
        // The furthest first; of equals the earliest.
        best.sort_by_key(|a| (core::cmp::Reverse((a.matched, a.steps.len())), a.packet));
        best.truncate(ATTEMPTS_MAX);
    }

    fn packet(&mut self, context: &mut PacketContext<'_>, findings: usize) {
        let rules = Arc::clone(&self.rules);
        let Some(signature) = rules.signatures.get(self.index) else { return };
        let alerted =
            context.findings.iter().skip(findings).filter(|f| f.rule.id == signature.id).count() as u64;
        self.trace.alerts += alerted;
        if alerted > 0 && self.trace.alert_packets.len() < 100 {
            self.trace.alert_packets.push(self.packet);
        }
        let flow = slot_as::<FlowDetect>(context.slot);
        let scene = Scene {
            now: context.now,
            packet: context.packet,
            payload: shown_payload(context.packet, context.prevention),
            direction: context.direction,
            flow: context.flow,
            state: flow.map(|f| &f.state),
            left: &[],
            stream_events: context.stream_events,
            app_events: context.app_events,
            shows_stream: context.stream.is_some(),
            detection_done: context.detection_done,
            function: context.app.as_ref().map(AppView::function).unwrap_or_default(),
            tenant: context.notes.tenant,
            shared: &rules.shared,
        };
        let mut run = Run {
            rules: &rules,
            signature,
            scene,
            tracer: self,
            steps: Vec::new(),
            variables: [0; VARIABLES_MAX],
        };
        if signature.inspects_tx() {
            let Some(app) = context.app.as_ref().filter(|_| !context.again) else { return };
            let app = app.layer();
            let Some(protocol) = app.protocol().protocol().or(app.original()) else { return };
            let Some(parser) = app.parser() else { return };
            let ids: Vec<TxId> = parser.tx_range().collect();
            for id in ids {
                if let Some(tx) = parser.tx(id) {
                    run.transaction(protocol, tx, id);
                }
            }
            return;
        }
        let basis = Basis::of(signature);
        if let (true, Some(news)) = (basis.stream, context.stream) {
            run.data("stream", Some(news.bytes));
        }
        let packets = match basis.packets {
            Packets::None => false,
            Packets::OutsideStream => !context.payload_in_stream,
            Packets::All => true,
        };
        if packets && !context.again {
            run.data("packet", None);
        }
    }
}

/// One pass over the conditions.
struct Run<'r, 'a> {
    rules: &'r RuleSet,
    signature: &'r Member,
    scene: Scene<'a>,
    tracer: &'r mut Tracer,
    steps: Vec<Step>,
    variables: [u64; VARIABLES_MAX],
}

impl Run<'_, '_> {
    /// Notes a condition; gives back whether it held.
    fn step(
        &mut self,
        name: impl Into<String>,
        text: impl Into<String>,
        holds: bool,
        found: Option<String>,
    ) -> bool {
        self.steps.push(Step { name: name.into(), text: text.into(), holds, offset: None, found });
        holds
    }

    fn end(&mut self, on: String, matched: bool) {
        let steps = core::mem::take(&mut self.steps);
        let items: usize = self.signature.values.iter().map(|v| v.program.items.len().max(1)).sum();
        let all = 3 + self.signature.packet.len() + items + self.signature.tx.len();
        let direction = match self.scene.direction {
            Direction::ToServer => "to_server",
            Direction::ToClient => "to_client",
        };
        let not_asked = all.saturating_sub(steps.len());
        let packet = self.tracer.packet;
        self.tracer.add(Attempt { packet, direction, on, steps, not_asked, matched });
    }

    /// A rule on packets and streams; `data`: of the stream, else the packet's own.
    fn data(&mut self, on: &str, data: Option<&[u8]>) {
        self.variables = [0; VARIABLES_MAX];
        let mut holds = self.head();
        if holds {
            for value in &self.signature.values {
                let bytes = match value.buffer {
                    BufferRef::Payload => Some(PacketBytes::Bytes(data.unwrap_or(self.scene.payload))),
                    BufferRef::Packet(buffer) => packet_buffer(buffer, &self.scene),
                    BufferRef::Tx(_) | BufferRef::Frame(_) => None,
                };
                holds = match bytes {
                    Some(bytes) => self.value(value, &bytes, true) == Answer::Yes,
                    None => self.missing(value),
                };
                if !holds {
                    break;
                }
            }
        }
        self.end(on.to_owned(), holds);
    }

    fn transaction(&mut self, protocol: ProtocolId, tx: &dyn Transaction, id: TxId) {
        self.variables = [0; VARIABLES_MAX];
        let spec = protocols::spec(protocol);
        let name = spec.map_or("?", |s| s.name);
        let direction = self.scene.direction;
        let mut holds = self.head();
        if holds {
            for value in &self.signature.values {
                holds = self.value_of(value, protocol, tx);
                if !holds {
                    break;
                }
            }
        }
        if holds {
            for (index, check) in self.signature.tx.iter().enumerate() {
                let ready = check.directions[direction];
                let fits = check.protocols.is_empty() || check.protocols.contains(&protocol);
                let answer = match (fits, ready) {
                    (false, _) => Answer::No,
                    (true, false) => Answer::NotYet,
                    (true, true) => check.condition.matches(tx, direction, &self.scene),
                };
                let keyword = origin(&self.tracer.origins, index, |o| o.tx);
                let found = (answer == Answer::NotYet).then(|| "not yet known".to_owned());
                holds = self.step(keyword, "condition on the transaction", answer == Answer::Yes, found);
                if !holds {
                    break;
                }
            }
        }
        self.end(format!("{name} transaction {id}"), holds);
    }

    /// Head, flow, conditions on the packet.
    fn head(&mut self) -> bool {
        let (signature, scene) = (self.signature, self.scene);
        let flow = scene.flow;
        let app = flow.and_then(|f| f.app.current()).and_then(protocols::spec).map_or("unknown", |s| s.name);
        let proto = scene.ip_protocol().map_or("none".to_owned(), |p| p.to_string());
        let found = format!("IP protocol {proto}, application protocol {app}");
        if !self.step("head", "protocol", header::protocol_holds(&signature.protocol, &scene), Some(found)) {
            return false;
        }
        let state = match flow {
            None => "no flow".to_owned(),
            Some(flow) if flow.established => format!("{}, established", direction_name(scene.direction)),
            Some(_) => format!("{}, not established", direction_name(scene.direction)),
        };
        if !self.step("flow", "direction and state", header::flow_holds(signature.flow, &scene), Some(state))
        {
            return false;
        }
        let ends = header::Ends::of(&scene).to_string();
        let held = header::ends_hold(signature, &self.rules.heads, &scene);
        if !self.step("head", "addresses and ports", held, Some(ends)) {
            return false;
        }
        for (index, condition) in signature.packet.iter().enumerate() {
            let keyword = origin(&self.tracer.origins, index, |o| o.packet);
            if !self.step(keyword, "condition on packet or flow", condition.matches(&scene), None) {
                return false;
            }
        }
        true
    }

    fn missing(&mut self, value: &ValueCheck) -> bool {
        let name = self.rules.buffers.name(value.buffer);
        self.step(name, "is there", value.absent != Absent::No, Some("the buffer is not there".to_owned()))
    }

    fn value_of(&mut self, value: &ValueCheck, protocol: ProtocolId, tx: &dyn Transaction) -> bool {
        let direction = self.scene.direction;
        let rules = self.rules;
        let BufferRef::Tx(buffer) = value.buffer else {
            let bytes = match value.buffer {
                BufferRef::Packet(buffer) => packet_buffer(buffer, &self.scene),
                _ => Some(PacketBytes::Bytes(self.scene.payload)),
            };
            return match bytes {
                Some(bytes) => self.value(value, &bytes, true) == Answer::Yes,
                None => self.missing(value),
            };
        };
        let spec = rules.buffers.tx(buffer).and_then(|b| b.of(protocol));
        let Some(spec) = spec.filter(|spec| check_directions(value, spec)[direction]) else {
            return self.missing(value);
        };
        let complete = tx.common().ended[direction] || tx.progress(direction) >= spec.ready;
        let before = self.steps.len();
        let mut scratch = Vec::new();
        for index in 0.. {
            scratch.clear();
            let view = tx.buffer(BufferQuery { id: spec.id, direction, index }, &mut scratch);
            let Some(view) = view else {
                return if index == 0 { self.missing(value) } else { false };
            };
            // Of several values the last that was tried is shown.
            self.steps.truncate(before);
            let answer = self.value(value, view.data, view.complete || complete);
            if answer == Answer::Yes || !spec.kind.is_multi() {
                return answer == Answer::Yes;
            }
        }
        false
    }

    /// The items of a buffer, one after the other.
    fn value(&mut self, check: &ValueCheck, data: &[u8], complete: bool) -> Answer {
        let name = self.rules.buffers.name(check.buffer);
        let mut bytes = data.to_vec();
        let mut next = Vec::new();
        for transform in &check.transforms {
            next.clear();
            transform.apply(&bytes, &mut next);
            core::mem::swap(&mut bytes, &mut next);
        }
        let shown = shown(&bytes);
        if check.absent == Absent::Only {
            self.step(name, "is absent", false, Some(shown));
            return Answer::No;
        }
        if check.program.items.is_empty() {
            self.step(name, "is there", true, Some(shown));
            return Answer::Yes;
        }
        for count in 1..=check.program.items.len() {
            let items = check.program.items.get(..count).unwrap_or_default();
            let Some(item) = items.last() else { break };
            let outcome = self.outcome(items, &bytes, complete);
            let holds = outcome == Outcome::Match;
            let offset = if holds { self.offset(items, item, &bytes) } else { None };
            let found = match (holds, outcome, count) {
                (true, _, 1) => Some(shown.clone()),
                (true, ..) => None,
                (false, Outcome::NotYet, _) => Some(format!("not yet known: {shown}")),
                (false, ..) => Some(shown.clone()),
            };
            self.steps.push(Step { name: name.to_owned(), text: words::item(item), holds, offset, found });
            if !holds {
                return if outcome == Outcome::NotYet { Answer::NotYet } else { Answer::No };
            }
        }
        Answer::Yes
    }

    fn outcome(&mut self, items: &[Item], data: &[u8], complete: bool) -> Outcome {
        let program = Program { items: items.to_vec() };
        let mut run = Evaluation {
            scene: self.scene,
            scratch: &mut self.tracer.scratch,
            variables: &mut self.variables,
            decoded: &mut Vec::new(),
            captured: &mut Vec::new(),
            measured: &mut Vec::new(),
            little_endian: false,
            complete,
            steps: 0,
            limit_hit: false,
        };
        evaluate(&program, data, &mut run)
    }

    /// Where a literal or expression was found: the cursor behind it is looked for by asking how much data is left.
    fn offset(&mut self, items: &[Item], item: &Item, data: &[u8]) -> Option<usize> {
        let length = match item {
            Item::Literal(literal) if !literal.negated => literal.bytes.len(),
            Item::Regex(regex) if !regex.negated => 0,
            _ => return None,
        };
        let mut probe = items.to_vec();
        let (mut low, mut high) = (0, data.len());
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            let at = Number::Constant(i64::try_from(middle).ok()?);
            probe.push(Item::DataAt { at, relative: true, negated: false });
            let enough = self.outcome(&probe, data, true) == Outcome::Match;
            probe.pop();
            if enough { low = middle } else { high = middle - 1 }
        }
        data.len().checked_sub(low)?.checked_sub(length)
    }
}

const fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::ToServer => "to_server",
        Direction::ToClient => "to_client",
    }
}

/// The keyword that a condition comes from.
fn origin(origins: &[Origin], index: usize, count: impl Fn(&Origin) -> usize) -> &'static str {
    origins.iter().find(|o| count(o) > index).map_or("head", |o| o.keyword)
}

/// The first bytes of a buffer.
fn shown(data: &[u8]) -> String {
    let first = data.get(..BYTES_SHOWN).unwrap_or(data);
    let more = if first.len() < data.len() { "..." } else { "" };
    format!("{} bytes: {}{more}", data.len(), words::pattern(first))
}

/// Detection with a rule that is traced. See the module.
pub struct Traced {
    inner: Arc<dyn Function>,
    tracer: Arc<Mutex<Tracer>>,
}

impl Traced {
    /// Around detection, whose rules are those of the tracer.
    #[must_use]
    pub fn new(inner: Arc<dyn Function>, tracer: Arc<Mutex<Tracer>>) -> Self {
        Traced { inner, tracer }
    }
}

impl Function for Traced {
    fn spec(&self) -> &'static FunctionSpec {
        self.inner.spec()
    }

    fn id(&self) -> FunctionId {
        self.inner.id()
    }

    fn inner(&self) -> Option<&dyn Function> {
        Some(self.inner.as_ref())
    }

    fn is_idle(&self) -> bool {
        // It is asked about each packet.
        false
    }

    fn payload(&self, context: &mut PacketContext<'_>) -> Decision {
        let before = context.findings.len();
        let decision = self.inner.payload(context);
        self.tracer.lock().unwrap_or_else(PoisonError::into_inner).packet(context, before);
        decision
    }
}
