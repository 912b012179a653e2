// SPDX-License-Identifier: Apache-2.0
//! Traces why a rule matched, or did not: every condition on every packet, stream and transaction of a
//! capture or of live traffic.
//!
//! A [`Traced`] wraps detection and, after each packet, evaluates the rule's conditions one by one, in the
//! order of evaluation, on the data that detection saw. The prefilter takes no part: a rule whose fast
//! pattern is missing fails at that very `content`. Conditions are evaluated after the packet's own matches,
//! so flow variables are as later rules see them. A [`TraceSession`] selects the packets that are traced and
//! receives the outcome; `bartizan explain rule` and `bartizan ctl trace` differ in their sessions only.
//!
//! Memory is bounded: a fixed number of attempts, those that got furthest, is kept; all are counted. Attempts
//! that fail at the rule's head are described only while they could be among those that are kept.

use super::words;
use crate::compile::builder::Origin;
use crate::engine::evaluate::{Evaluation, ProgramOutcome, evaluate};
use crate::engine::header;
use crate::engine::inspect::is_read;
use crate::engine::txstate::FlowDetect;
use crate::model::basis::{Basis, Packets};
use crate::model::buffers::{BufferRef, PacketBufferValue, packet_buffer};
use crate::model::condition::{Answer, ConditionContext, inspected_payload};
use crate::model::content::{Item, Number, Program, VARIABLES_MAX};
use crate::model::prefilter::check_directions;
use crate::model::signature::{Absent, Member, ValueCheck};
use crate::ruleset::RuleSet;
use bartizan_applayer::protocol::{BufferSpec, ProtocolId};
use bartizan_applayer::protocols;
use bartizan_applayer::transaction::{BufferQuery, Transaction, TxId};
use bartizan_base::{Decision, Direction, FunctionId, RuleId};
use bartizan_function::contain::{Panicked, contained};
use bartizan_function::{AppView, Function, FunctionSpec, PacketContext, PacketFacts, Together, slot_as};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Default number of attempts that are kept.
pub const ATTEMPTS: usize = 5;
/// Limit of attempts that can be kept.
pub const ATTEMPTS_MAX: usize = 10_000;
/// Limit of packets of alerts that are named.
const ALERT_PACKETS_MAX: usize = 100;
/// Limit of a buffer's bytes in the output.
const BYTES_SHOWN: usize = 64;
/// Conditions of a rule's head, in the order of evaluation: keyword, and the condition in words.
const HEAD: [(&str, &str); 3] =
    [("head", "protocol"), ("flow", "direction and state"), ("head", "addresses and ports")];

/// A condition and its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceStep {
    /// Keyword or buffer.
    pub name: String,
    /// The condition in words.
    pub text: String,
    /// Whether the condition held.
    pub holds: bool,
    /// Offset in the buffer, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<usize>,
    /// The value found instead, or the buffer's first bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
}

/// The rule's conditions on one packet, piece of a stream, or transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Number of the packet in the capture, or among the packets that a live trace has inspected.
    pub packet: u64,
    /// The origin of the packet in a live trace.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub live: Option<LiveOrigin>,
    /// Direction of the packet in its flow.
    pub direction: Cow<'static, str>,
    /// `packet`, `stream`, `http transaction 0`.
    pub on: String,
    /// Conditions up to the first that did not hold.
    pub steps: Vec<TraceStep>,
    /// Number of conditions after the first that did not hold.
    pub not_asked: usize,
    /// All conditions held.
    pub matched: bool,
}

/// The origin of a packet in a live trace: time, worker, generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveOrigin {
    /// Time of the packet, as in events.
    pub timestamp: String,
    /// The worker.
    pub worker: u16,
    /// The generation of rules.
    pub generation: u64,
    /// Number of the flow in events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_id: Option<u64>,
    /// gid:sid:rev of the traced rule.
    pub rule: String,
}

/// Number of attempts in which a condition was the first that did not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstFalse {
    /// Position of the condition in the order of evaluation, from 1.
    pub step: usize,
    /// Keyword or buffer.
    pub name: String,
    /// The condition in words.
    pub text: String,
    /// Number of attempts.
    pub count: u64,
}

/// The outcome of a rule in a capture, or in the packets of a live trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// Packets, pieces of streams and transactions on which the rule was evaluated.
    pub attempts: u64,
    /// Attempts in which all conditions held.
    pub matched: u64,
    /// Alerts that detection reported.
    pub alerts: u64,
    /// Packets of these alerts, the first hundred.
    pub alert_packets: Vec<u64>,
    /// The attempts that got furthest.
    pub best: Vec<Attempt>,
    /// Failures of the other attempts, by condition.
    pub first_false: Vec<FirstFalse>,
}

/// Accumulates attempts.
#[derive(Debug)]
pub struct AttemptSummary {
    trace: Trace,
    kept: usize,
    failed: BTreeMap<(usize, String, String), u64>,
}

impl AttemptSummary {
    /// Makes a summary that keeps `attempts` attempts, at most [`ATTEMPTS_MAX`].
    #[must_use]
    pub fn keeping(attempts: usize) -> Self {
        AttemptSummary { trace: Trace::default(), kept: attempts.min(ATTEMPTS_MAX), failed: BTreeMap::new() }
    }

    /// Adds an attempt.
    pub fn add(&mut self, attempt: Attempt) {
        self.trace.attempts += 1;
        self.trace.matched += u64::from(attempt.matched);
        if !attempt.matched
            && let Some(step) = attempt.steps.last()
        {
            let key = (attempt.steps.len(), step.name.clone(), step.text.clone());
            *self.failed.entry(key).or_default() += 1;
        }
        // Attempts that got furthest come first; of equals, the earliest.
        let place = |a: &Attempt| (core::cmp::Reverse((a.matched, a.steps.len())), a.packet);
        let at = self.trace.best.partition_point(|other| place(other) <= place(&attempt));
        if at < self.kept {
            self.trace.best.insert(at, attempt);
            self.trace.best.truncate(self.kept);
        }
    }

    /// Adds attempts that failed at each condition of the head and were only counted.
    pub fn add_head_failures(&mut self, counts: [u64; HEAD.len()]) {
        for (at, (count, (name, text))) in counts.into_iter().zip(HEAD).enumerate() {
            if count > 0 {
                self.trace.attempts += count;
                *self.failed.entry((at + 1, name.to_owned(), text.to_owned())).or_default() += count;
            }
        }
    }

    /// Adds the alerts of a packet.
    pub fn add_alerts(&mut self, packet: u64, alerts: u64) {
        self.trace.alerts += alerts;
        if alerts > 0 && self.trace.alert_packets.len() < ALERT_PACKETS_MAX {
            self.trace.alert_packets.push(packet);
        }
    }

    /// The finished trace.
    #[must_use]
    pub fn finish(self) -> Trace {
        let count = |((step, name, text), count): ((usize, String, String), u64)| FirstFalse {
            step,
            name,
            text,
            count,
        };
        Trace { first_false: self.failed.into_iter().map(count).collect(), ..self.trace }
    }
}

/// A rule of a set, ready to be traced.
pub struct TracedRule {
    rules: Arc<RuleSet>,
    index: usize,
    origins: Vec<Origin>,
}

impl TracedRule {
    /// Finds a rule in a set by its number; `origins`: the keywords of its conditions. `None`: the set does
    /// not have the rule.
    #[must_use]
    pub fn find(rules: Arc<RuleSet>, rule: RuleId, origins: Vec<Origin>) -> Option<Self> {
        let index = rules.signatures.iter().position(|s| s.id == rule)?;
        Some(TracedRule { rules, index, origins })
    }

    /// The rule at a position of a set.
    #[must_use]
    pub const fn at(rules: Arc<RuleSet>, index: usize, origins: Vec<Origin>) -> Self {
        TracedRule { rules, index, origins }
    }

    /// The set.
    #[must_use]
    pub const fn rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }

    /// The rule.
    #[must_use]
    pub fn signature(&self) -> Option<&Member> {
        self.rules.signatures.get(self.index)
    }
}

/// The rule that is traced on a packet.
pub struct AppliedRule<'s> {
    /// The rule.
    pub rule: &'s TracedRule,
    /// Refusals of its set act on the packet.
    pub prevention: bool,
}

/// The outcome of one call of detection.
#[derive(Debug, Default)]
pub struct PacketTrace {
    /// The attempts.
    pub attempts: Vec<Attempt>,
    /// Attempts that failed at each condition of the head and are not described, since enough others of their
    /// kind are.
    pub head_failures: [u64; HEAD.len()],
    /// Alerts of the rule that detection reported.
    pub alerts: u64,
    /// The rule's head held.
    pub head_held: bool,
}

/// Selects the packets that are traced, and receives the outcome.
pub trait TraceSession: Send + Sync {
    /// The rule to trace on the current packet, if any.
    fn rule(&self, context: &PacketContext<'_>) -> Option<AppliedRule<'_>>;

    /// Limit of described attempts that fail at the same condition of the head.
    fn kept(&self) -> usize;

    /// Receives the outcome of a call; the packets of its attempts have no number yet.
    fn take(&self, context: &PacketContext<'_>, rule: &AppliedRule<'_>, outcome: PacketTrace);

    /// Ends tracing after a panic; detection continues.
    fn fail(&self, panicked: &Panicked);
}

/// Evaluates a rule's conditions for a trace. One per worker.
#[derive(Default)]
pub struct Tracer {
    scratch: bartizan_pattern::Scratch,
    /// Number of described attempts that failed at each condition of the head.
    described: [usize; HEAD.len()],
    kept: usize,
    outcome: PacketTrace,
}

impl Tracer {
    /// Evaluates a rule's conditions on the data that detection saw. `findings`: findings of earlier
    /// functions.
    fn packet(
        &mut self,
        rule: &AppliedRule<'_>,
        context: &PacketContext<'_>,
        findings: usize,
    ) -> PacketTrace {
        self.outcome = PacketTrace::default();
        let (rules, Some(signature)) = (&rule.rule.rules, rule.rule.signature()) else {
            return PacketTrace::default();
        };
        let own = context.findings.iter().skip(findings).filter(|f| f.rule.id == signature.id);
        self.outcome.alerts = own.count() as u64;
        let flow = slot_as::<FlowDetect>(context.slot);
        let facts = PacketFacts { prevention: rule.prevention, ..*context.facts };
        let scene = ConditionContext {
            facts: &facts,
            payload: inspected_payload(&facts),
            state: flow.map(|f| &f.state),
            left: &[],
            function: context.app.as_ref().map(AppView::function).unwrap_or_default(),
            tenant: context.notes.tenant,
            shared: &rules.shared,
        };
        let mut run = TraceEvaluation {
            rules,
            signature,
            scene: &scene,
            origins: &rule.rule.origins,
            tracer: self,
            steps: Vec::new(),
            variables: [0; VARIABLES_MAX],
            little_endian: false,
        };
        if signature.inspects_tx() {
            run.transactions(context);
        } else {
            run.data_of(context);
        }
        core::mem::take(&mut self.outcome)
    }
}

/// One pass over the conditions.
struct TraceEvaluation<'r, 'a> {
    rules: &'r RuleSet,
    signature: &'r Member,
    scene: &'r ConditionContext<'a>,
    origins: &'r [Origin],
    tracer: &'r mut Tracer,
    steps: Vec<TraceStep>,
    variables: [u64; VARIABLES_MAX],
    /// Numbers of the inspected remote call are little endian (`dce` of `byte_test` and its kin).
    little_endian: bool,
}

impl TraceEvaluation<'_, '_> {
    /// Evaluates the rule on each transaction of the flow.
    fn transactions(&mut self, context: &PacketContext<'_>) {
        let Some(app) = context.app.as_ref().filter(|_| !context.facts.again) else { return };
        let app = app.layer();
        let Some(protocol) = app.protocol().protocol().or(app.original()) else { return };
        let Some(parser) = app.parser() else { return };
        for id in parser.tx_range() {
            if let Some(tx) = parser.tx(id) {
                self.transaction(protocol, tx, id);
            }
        }
    }

    /// Evaluates the rule on the packet and the stream, as far as the rule inspects them.
    fn data_of(&mut self, context: &PacketContext<'_>) {
        let basis = Basis::of(self.signature);
        if let (true, Some(news)) = (basis.stream, context.facts.stream) {
            self.data("stream", Some(news.bytes));
        }
        let packets = match basis.packets {
            Packets::None => false,
            Packets::OutsideStream => !context.facts.payload_in_stream,
            Packets::All => true,
        };
        if packets && !context.facts.again {
            self.data("packet", None);
        }
    }

    /// Records a condition; returns whether it held.
    fn step(
        &mut self,
        name: impl Into<String>,
        text: impl Into<String>,
        holds: bool,
        found: Option<String>,
    ) -> bool {
        self.steps.push(TraceStep { name: name.into(), text: text.into(), holds, offset: None, found });
        holds
    }

    fn end(&mut self, on: impl FnOnce() -> String, matched: bool) {
        let steps = core::mem::take(&mut self.steps);
        let items: usize = self.signature.values.iter().map(|v| v.program.items.len().max(1)).sum();
        let all = HEAD.len() + self.signature.packet.len() + items + self.signature.tx.len();
        let not_asked = all.saturating_sub(steps.len());
        let direction = Cow::Borrowed(direction_name(self.scene.facts.direction));
        let attempt = Attempt { packet: 0, live: None, direction, on: on(), steps, not_asked, matched };
        self.tracer.outcome.attempts.push(attempt);
    }

    /// Records a condition of the head, by its index. `false`: the condition did not hold.
    fn head_step(&mut self, at: usize, holds: bool, found: impl FnOnce() -> String) -> bool {
        let (name, text) = HEAD.get(at).copied().unwrap_or_default();
        self.step(name, text, holds, Some(found()))
    }

    /// Index of the condition of the head that does not hold.
    fn failing_head(&self) -> Option<usize> {
        let (signature, scene) = (self.signature, self.scene);
        if !header::protocol_holds(&signature.protocol, scene) {
            return Some(0);
        }
        if !header::flow_holds(signature.flow, scene) {
            return Some(1);
        }
        (!header::ends_hold(signature, &self.rules.heads, scene)).then_some(2)
    }

    /// Counts an attempt whose head does not hold if enough of its kind are described. `false`: the attempt
    /// is to be described.
    fn only_counted(&mut self, failing: Option<usize>) -> bool {
        let Some(at) = failing else {
            self.tracer.outcome.head_held = true;
            return false;
        };
        let described = self.tracer.described.get_mut(at);
        let (Some(described), Some(count)) = (described, self.tracer.outcome.head_failures.get_mut(at))
        else {
            return false;
        };
        if *described < self.tracer.kept {
            *described += 1;
            return false;
        }
        *count += 1;
        true
    }

    /// Evaluates a rule on packets and streams; `data`: bytes of the stream, else the packet's own payload.
    fn data(&mut self, on: &str, data: Option<&[u8]>) {
        let failing = self.failing_head();
        if self.only_counted(failing) {
            return;
        }
        self.variables = [0; VARIABLES_MAX];
        let mut holds = self.head(failing);
        if holds {
            for value in &self.signature.values {
                let bytes = match value.buffer {
                    BufferRef::Payload => Some(PacketBufferValue::Bytes(data.unwrap_or(self.scene.payload))),
                    BufferRef::Packet(buffer) => packet_buffer(buffer, self.scene),
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
        self.end(|| on.to_owned(), holds);
    }

    fn transaction(&mut self, protocol: ProtocolId, tx: &dyn Transaction, id: TxId) {
        let failing = self.failing_head();
        if self.only_counted(failing) {
            return;
        }
        self.variables = [0; VARIABLES_MAX];
        let spec = protocols::spec(protocol);
        let name = spec.map_or("?", |s| s.name);
        let direction = self.scene.facts.direction;
        let mut holds = self.head(failing);
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
                    (true, true) => check.condition.matches(tx, direction, self.scene),
                };
                let keyword = origin(self.origins, index, |o| o.tx);
                let found = (answer == Answer::NotYet).then(|| "not yet known".to_owned());
                holds = self.step(keyword, "condition on the transaction", answer == Answer::Yes, found);
                if !holds {
                    break;
                }
            }
        }
        self.end(|| format!("{name} transaction {id}"), holds);
    }

    /// Evaluates head, flow and conditions on the packet. `failing`: index of the condition of the head that
    /// does not hold.
    fn head(&mut self, failing: Option<usize>) -> bool {
        let scene = self.scene;
        let holds = |at| failing != Some(at);
        let protocol = || {
            let flow = scene.facts.flow.and_then(|f| f.app.current()).and_then(protocols::spec);
            let ip = scene.ip_protocol().map_or("none".to_owned(), |p| p.to_string());
            format!("IP protocol {ip}, application protocol {}", flow.map_or("unknown", |s| s.name))
        };
        let state = || match scene.facts.flow {
            None => "no flow".to_owned(),
            Some(flow) if flow.established => {
                format!("{}, established", direction_name(scene.facts.direction))
            }
            Some(_) => format!("{}, not established", direction_name(scene.facts.direction)),
        };
        let ends = || header::Ends::of(scene).to_string();
        if !self.head_step(0, holds(0), protocol)
            || !self.head_step(1, holds(1), state)
            || !self.head_step(2, holds(2), ends)
        {
            return false;
        }
        for (index, condition) in self.signature.packet.iter().enumerate() {
            let keyword = origin(self.origins, index, |o| o.packet);
            if !self.step(keyword, "condition on packet or flow", condition.matches(scene), None) {
                return false;
            }
        }
        true
    }

    fn missing(&mut self, value: &ValueCheck) -> bool {
        let name = self.rules.buffers.name(value.buffer);
        self.step(name, "is there", value.absent != Absent::No, Some("the buffer is missing".to_owned()))
    }

    /// Records a buffer that is missing without `absent`.
    fn empty(&mut self, value: &ValueCheck) -> bool {
        let name = self.rules.buffers.name(value.buffer);
        self.step(name, "has something to match", false, Some("the buffer is present and empty".to_owned()))
    }

    fn value_of(&mut self, value: &ValueCheck, protocol: ProtocolId, tx: &dyn Transaction) -> bool {
        let direction = self.scene.facts.direction;
        let rules = self.rules;
        let BufferRef::Tx(buffer) = value.buffer else {
            let bytes = match value.buffer {
                BufferRef::Packet(buffer) => packet_buffer(buffer, self.scene),
                _ => Some(PacketBufferValue::Bytes(self.scene.payload)),
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
        self.little_endian = tx.rpc().is_some_and(|call| call.is_little);
        let holds = self.tx_value(value, protocol, tx, spec);
        self.little_endian = false;
        holds
    }

    /// Evaluates a value of a transaction in the packet's direction.
    fn tx_value(
        &mut self,
        value: &ValueCheck,
        protocol: ProtocolId,
        tx: &dyn Transaction,
        spec: &BufferSpec,
    ) -> bool {
        let direction = self.scene.facts.direction;
        let complete = tx.common().ended[direction] || tx.progress(direction) >= spec.ready;
        let before = self.steps.len();
        let mut scratch = Vec::new();
        for index in 0.. {
            scratch.clear();
            let query = BufferQuery { id: spec.id, direction, index };
            let Some(view) = tx.buffer(query, &mut scratch) else {
                if index != 0 {
                    return false;
                }
                if tx.is_present(query) {
                    return self.empty(value);
                }
                if value.absent != Absent::No && !is_read(tx, protocol, spec, direction) {
                    let name = self.rules.buffers.name(value.buffer);
                    return self.step(name, "is absent", false, Some("not yet known".to_owned()));
                }
                return self.missing(value);
            };
            // Of several values the trace shows the last that was tried.
            self.steps.truncate(before);
            let answer = self.value(value, view.data, view.complete || complete);
            if answer == Answer::Yes || !spec.kind.is_multi() {
                return answer == Answer::Yes;
            }
        }
        false
    }

    /// Evaluates the items of a buffer, one after the other.
    fn value(&mut self, check: &ValueCheck, data: &[u8], complete: bool) -> Answer {
        let name = self.rules.buffers.name(check.buffer);
        let mut bytes = data.to_vec();
        let mut next = Vec::new();
        for transform in &check.transforms {
            next.clear();
            transform.apply(&bytes, &mut next);
            core::mem::swap(&mut bytes, &mut next);
        }
        let shown = preview(&bytes);
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
            let holds = outcome == ProgramOutcome::Match;
            let offset = if holds { self.offset(items, item, &bytes) } else { None };
            let found = match (holds, outcome, count) {
                (true, _, 1) => Some(shown.clone()),
                (true, ..) => None,
                (false, ProgramOutcome::NotYet, _) => Some(format!("not yet known: {shown}")),
                (false, ..) => Some(shown.clone()),
            };
            self.steps.push(TraceStep {
                name: name.to_owned(),
                text: words::item(item),
                holds,
                offset,
                found,
            });
            if !holds {
                return if outcome == ProgramOutcome::NotYet { Answer::NotYet } else { Answer::No };
            }
        }
        Answer::Yes
    }

    fn outcome(&mut self, items: &[Item], data: &[u8], complete: bool) -> ProgramOutcome {
        let program = Program { items: items.to_vec() };
        let mut run = Evaluation {
            scene: self.scene,
            state: self.scene.state,
            scratch: &mut self.tracer.scratch,
            variables: &mut self.variables,
            decoded: &mut Vec::new(),
            captured: &mut Vec::new(),
            measured: &mut Vec::new(),
            little_endian: self.little_endian,
            complete,
            steps: 0,
            limit_hit: false,
        };
        evaluate(&program, data, &mut run)
    }

    /// Offset of a literal or expression in the value. The cursor after it is found by probing how much data
    /// is left.
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
            let enough = self.outcome(&probe, data, true) == ProgramOutcome::Match;
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
fn preview(data: &[u8]) -> String {
    let first = data.get(..BYTES_SHOWN).unwrap_or(data);
    let more = if first.len() < data.len() { "..." } else { "" };
    format!("{} bytes: {}{more}", data.len(), words::pattern(first))
}

/// Detection with a traced rule; see the module.
pub struct Traced {
    inner: Arc<dyn Function>,
    session: Arc<dyn TraceSession>,
    tracer: Mutex<Tracer>,
}

impl Traced {
    /// Wraps detection, for one worker.
    #[must_use]
    pub fn new(inner: Arc<dyn Function>, session: Arc<dyn TraceSession>) -> Self {
        let tracer = Tracer { kept: session.kept(), ..Tracer::default() };
        Traced { inner, session, tracer: Mutex::new(tracer) }
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

    fn together(&self) -> Together {
        // Each packet is traced by itself, as in a capture.
        Together::Apart
    }

    fn payload(&self, context: &mut PacketContext<'_>) -> Decision {
        let before = context.findings.len();
        let decision = self.inner.payload(context);
        if let Some(asked) = self.session.rule(context) {
            let traced = contained(|| {
                let mut tracer = self.tracer.lock().unwrap_or_else(PoisonError::into_inner);
                tracer.packet(&asked, context, before)
            });
            match traced {
                Ok(outcome) => self.session.take(context, &asked, outcome),
                Err(panicked) => self.session.fail(&panicked),
            }
        }
        decision
    }
}
