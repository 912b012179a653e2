// SPDX-License-Identifier: Apache-2.0
//! Inspects a packet: candidates, evaluation, alerts.
//!
//! One call per packet evaluates, in this order: rules on the packet and on new stream data; rules on the
//! transactions of the packet's direction; and once more those rules on payloads that require a flowbit which
//! a rule on a transaction has set. Matches come out in the order of evaluation; a pass rule ends the list.

use crate::compile::groups::HeadGroup;
use crate::engine::candidates::Candidates;
use crate::engine::composed::ComposedValues;
use crate::engine::evaluate::{Evaluation, ProgramOutcome, evaluate};
use crate::engine::head_answers::HeadAnswers;
use crate::engine::header;
use crate::engine::prefilter::PrefilterKeys;
use crate::engine::request::{PendingRequest, carry_out, mark_files};
use crate::engine::txstate::FlowDetect;
pub use crate::engine::window::StreamWindow;
use crate::model::basis::{Basis, Packets, payload_programs};
use crate::model::buffers::{BufferRef, PacketBufferValue, packet_buffer};
use crate::model::condition::{ConditionContext, Limited, Measure};
use crate::model::content::{Capture, VARIABLES_MAX};
use crate::model::ends::Ends;
use crate::model::firewall::Gate;
use crate::model::left::{AlertContext, LeftKind};
use crate::model::prefilter::{Always, ProtocolClass};
use crate::model::request::Request;
use crate::model::signature::{Absent, Kind, Member, RuleAction, Signature, ValueCheck};
use crate::model::visibility::Visibility;
use crate::ruleset::RuleSet;
use crate::state::refused::RefusedBytes;
use bartizan_applayer::transaction::{Transaction, TxId};
use bartizan_base::{Generation, RuleId};
use bartizan_function::AppView;
use bartizan_function::view::FlowView;
use bartizan_packet::{PacketView, TcpFlags};
use bartizan_rules::ActionScope;

mod frames;
mod gate;
mod transactions;

pub(crate) use transactions::is_read;

/// IP protocol numbers.
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Flag beside the number of scanned values: the values were complete.
const WHOLE: u32 = 1 << 31;

/// The parameters of one inspection, beside the facts about the packet.
pub struct InspectionInput<'a> {
    /// The heads that packets of the flow in this direction can meet, from the flow's lookup; `None`:
    /// unknown.
    pub group: Option<HeadGroup<'a>>,
    /// The running generation, which may share rules of an earlier one.
    pub generation: Generation,
    /// The rules that the flow's policy sees; `None`: all.
    pub visible: Option<&'a Visibility>,
    /// The firewall does not judge this fragment, but the datagram that it belongs to.
    pub waits: bool,
    /// The TCP session ignores the packet (a wrong checksum), as its receiver does. Transactions are
    /// inspected with the next packet.
    pub stray: bool,
    /// The flow's application layer.
    pub app: Option<AppView<'a>>,
}

/// A rule that matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Position in [`RuleSet::signatures`].
    pub rule: u32,
    /// The transaction that the rule matched.
    pub tx: Option<TxId>,
    /// For a rule on packets or streams: the transaction that the match probably belongs to.
    pub guess: Option<TxId>,
    /// The protocol frame that the rule matched, by its number in the packet's direction.
    pub frame: Option<u64>,
    /// The rule matched stream data, not the packet's own bytes.
    pub stream: bool,
    /// The match gives an alert (else only its action counts).
    pub alert: bool,
    /// The action that applies: the rule's own, unless a rate filter replaces it.
    pub action: RuleAction,
    /// The action applies to the rest of the flow.
    pub for_flow: bool,
    /// The action comes from a rate filter, not from the rule.
    pub by_limit: bool,
}

/// Detection state of one worker; reused from packet to packet.
#[derive(Default)]
pub struct DetectWorker {
    scratch: bartizan_pattern::Scratch,
    candidates: Candidates,
    variables: [u64; VARIABLES_MAX],
    decoded: Vec<u8>,
    captured: Vec<(Capture, Vec<u8>)>,
    measured: Vec<Measure>,
    /// Answers of rule heads for the current packet.
    heads: HeadAnswers,
    /// Values of the inspected transaction that its parser composes.
    values: ComposedValues,
    transformed: [Vec<u8>; 2],
    /// Numbers of the inspected remote call are little endian.
    little_endian: bool,
    /// Matches of the current packet.
    pub hits: Vec<Hit>,
    /// Matches of firewall rules, and of policies that report, in their order.
    pub gate_hits: Vec<Hit>,
    /// The firewall's decision on the current packet.
    pub gate: Gate,
    /// Whether the current flow has no firewall to pass: none is configured, or it has accepted all of the
    /// flow.
    pub ungated: bool,
    /// Decisions on the current packet may apply to its flow; false for an ICMP error about the flow.
    pub decides_flow: bool,
    /// Rules that have already matched on the current packet.
    matched: Vec<u32>,
    /// The effects of a rule were applied for the current packet.
    acted: bool,
    /// The flow was refused before the current packet.
    refused_before: bool,
    /// Rules on payloads that read flowbits and whose packet conditions did not hold for the current packet.
    asking: Vec<u32>,
    /// Values of the current packet's matches for their alerts.
    pub left: Vec<AlertContext>,
    /// Replacements in the packet's payload that rules require: offset and bytes, in the order of the
    /// matches.
    pub edits: Vec<(u32, Vec<u8>)>,
    /// Requests that are carried out with their transaction.
    requests: Vec<PendingRequest>,
    /// Number of expressions that reached their match limit.
    pub limits_hit: u64,
    /// Number of matches that do not count yet, since a threshold is not reached.
    pub withheld: u64,
}

impl DetectWorker {
    /// Makes a worker for a rule set.
    #[must_use]
    pub fn new(rules: &RuleSet) -> Self {
        let mut worker = DetectWorker::default();
        worker.candidates.reserve(rules.signatures.len());
        worker
    }

    /// Prepares the worker for another rule set.
    pub fn fit(&mut self, rules: &RuleSet) {
        self.candidates.clear();
        self.candidates.reserve(rules.signatures.len());
    }

    /// Whether the conditions of a rule held for the current packet, so that its effects may have changed the
    /// flow's state.
    #[must_use]
    pub const fn has_acted(&self) -> bool {
        self.acted
    }

    /// Drops the results of the inspection before. `again`: it was of the same packet, which comes with its
    /// next piece of the stream.
    fn begin(&mut self, again: bool) {
        self.heads.reset();
        self.hits.clear();
        self.gate_hits.clear();
        self.left.clear();
        self.edits.clear();
        self.requests.clear();
        self.asking.clear();
        if !again {
            self.acted = false;
            self.matched.clear();
        }
    }
}

/// Inspects one packet. Afterwards [`DetectWorker::hits`] has the matches, in the order of evaluation.
///
/// A packet that was inspected before (`facts.again`) brings a new piece of the stream only: rules that
/// matched do not match again. In prevention no inspected byte has left yet, so all data is inspected now.
pub fn inspect(
    rules: &RuleSet,
    worker: &mut DetectWorker,
    flow: Option<&mut FlowDetect>,
    scene: &ConditionContext<'_>,
    work: InspectionInput<'_>,
) {
    let facts = scene.facts;
    worker.begin(facts.again);
    let has_flow = flow.is_some();
    // Anybody can send an ICMP error about a flow, so it decides nothing about the flow.
    let error = is_error(scene);
    worker.decides_flow = has_flow && !error;
    let mut none;
    let flow = match flow {
        Some(flow) => flow,
        None => {
            none = FlowDetect::default();
            &mut none
        }
    };
    flow.enter_generation(rules, work.visible, work.generation);
    flow.turn(facts.flow.is_some_and(|f| f.turned));
    if !facts.again {
        flow.forget_over();
    }
    let InspectionInput { waits, stray, app, .. } = work;
    let stream = facts.stream.map(|news| StreamWindow::of(&news, facts.prevention));
    let group = work.group.filter(|_| is_of_flow(scene));
    let guesses = has_flow && (rules.guess_tx || facts.flow.is_some_and(|f| f.protocol == UDP));
    let guess = app
        .as_ref()
        .filter(|_| guesses)
        .and_then(|app| app.layer().first_open(facts.direction, scene.function));
    let mut pass = InspectionRun {
        rules,
        worker,
        flow,
        has_flow,
        again: facts.again,
        group,
        visible: work.visible,
        fresh: false,
        last_look: false,
        varying: false,
        prevention: facts.prevention,
        guess,
        stream: stream.map(|w| w.data),
        new_bytes: stream.map_or(0, |window| window.fresh),
        stored: facts.payload_in_stream,
        scene,
        passes: false,
    };
    pass.inspect(stream, app, PacketExemptions { waits, stray, error });
}

/// Whether a packet has its flow's header; an ICMP error about a flow has another.
fn is_of_flow(scene: &ConditionContext<'_>) -> bool {
    let same = |flow: &FlowView<'_>| {
        scene.facts.packet.is_none_or(|packet| packet.decoded().proto() == Some(flow.protocol))
    };
    scene.facts.flow.is_some_and(same) && !is_error(scene)
}

/// Whether a packet is an ICMP error about its flow.
fn is_error(scene: &ConditionContext<'_>) -> bool {
    scene.facts.flow.is_some() && scene.facts.packet.is_some_and(|packet| packet.decoded().about().is_some())
}

/// Decides by a rule's number, without access to the rule, whether it is to be evaluated.
#[derive(Clone, Copy)]
struct Due<'p, 'a> {
    group: Option<HeadGroup<'a>>,
    visible: Option<&'a Visibility>,
    head_of: &'p [u32],
}

impl Due<'_, '_> {
    /// Whether the flow's policy sees the rule, and packets of the flow's group can meet its head.
    #[inline]
    fn has(self, rule: u32) -> bool {
        let head = |group: HeadGroup<'_>| self.head_of.get(rule as usize).is_none_or(|head| group.has(*head));
        self.group.is_none_or(head) && self.visible.is_none_or(|visible| visible.has(rule))
    }
}

/// Parts of a packet's inspection that are left out.
#[derive(Clone, Copy)]
struct PacketExemptions {
    /// As in [`InspectionInput`].
    waits: bool,
    /// As in [`InspectionInput`].
    stray: bool,
    /// The packet is an ICMP error about its flow.
    error: bool,
}

struct InspectionRun<'p, 'a> {
    rules: &'p RuleSet,
    worker: &'p mut DetectWorker,
    flow: &'p mut FlowDetect,
    has_flow: bool,
    again: bool,
    group: Option<HeadGroup<'a>>,
    visible: Option<&'a Visibility>,
    /// Something of the packet's direction was parsed since its last inspection.
    fresh: bool,
    /// The transaction's direction is complete: the function is done with it after this inspection.
    last_look: bool,
    /// Some rule gives another answer for the transactions as they are when packets, the stream or state
    /// beside them change.
    varying: bool,
    /// No inspected byte has left yet.
    prevention: bool,
    /// The transaction that a match on a packet or the stream probably belongs to.
    guess: Option<TxId>,
    /// The piece of the stream that is inspected now.
    stream: Option<&'a [u8]>,
    /// Number of bytes at the end of `stream` that are inspected for the first time.
    new_bytes: usize,
    /// The packet's payload went into the stream.
    stored: bool,
    scene: &'p ConditionContext<'a>,
    /// The firewall exempts the packet from detection.
    passes: bool,
}

impl<'p, 'a> InspectionRun<'p, 'a> {
    /// Inspects the packet: first the firewall, then rules on packets and streams, then transactions.
    fn inspect(
        &mut self,
        stream: Option<StreamWindow<'a>>,
        mut app: Option<AppView<'a>>,
        exempt: PacketExemptions,
    ) {
        let scene = self.scene;
        if !self.again {
            self.worker.refused_before = self.flow.state.dropped.is_some();
            let judged = scene.facts.packet.filter(|_| !exempt.waits);
            let gate = judged.map_or(Gate::Open, |packet| self.gate_packet(packet));
            self.worker.gate = gate;
        }
        let unjudged = scene.facts.packet.is_none()
            && self.rules.firewall.is_some()
            && self.flow.withheld(scene.facts.direction);
        // Transaction data was decided with the packet's first piece of the stream.
        let beside = app.as_ref().is_some_and(|app| app.transactions_again().next().is_some());
        if self.worker.gate.refuses() || unjudged {
            // Its transaction data is judged when the packet comes again: not at the end of a flow.
            if let Some(app) = app.as_mut().filter(|_| !beside) {
                app.later();
            }
            return;
        }
        // Transactions of a decided flow count as inspected, so that they can be freed. A refusal applies to
        // later packets: of the refused packet itself all pieces of the stream are inspected.
        let decided = self.flow.state.passed.is_some() || self.worker.refused_before;
        let detects = !decided && !self.passes;
        if detects {
            self.packet_rules(stream, self.stored);
        }
        if let Some(app) = &mut app {
            match self.worker.gate {
                _ if beside => {
                    if detects {
                        self.beside_transactions(app);
                    }
                }
                _ if self.again && !decided || exempt.stray || exempt.error => app.later(),
                Gate::Packet => self.accept_transactions(app),
                Gate::Open | Gate::Refused(_) => {
                    let before = self.worker.hits.len();
                    if detects {
                        self.frames(app);
                    }
                    self.transactions(app, detects);
                    if self.has_set_bits(before) {
                        self.reevaluate_payload_rules(stream, self.stored);
                    }
                }
            }
        }
        self.worker.ungated = self.rules.firewall.is_none() || self.flow.state.accepted.is_some();
        if !decided {
            self.finish();
        }
    }

    const fn due(&self) -> Due<'p, 'a> {
        Due { group: self.group, visible: self.visible, head_of: self.rules.head_of.as_slice() }
    }
}

impl InspectionRun<'_, '_> {
    fn packet_rules(&mut self, stream: Option<StreamWindow<'_>>, payload_in_stream: bool) {
        let mut candidates = core::mem::take(&mut self.worker.candidates);
        let direction = self.scene.facts.direction;
        let filters = &self.rules.prefilters;
        let class = ProtocolClass::of(self.scene.ip_protocol());
        let payload = self.scene.payload;
        if !self.again {
            let always = &filters.packet_always.get(class)[direction];
            always.add_to(self.group, &mut candidates);
            if !always.by_address.is_empty() {
                self.rules_by_address(always, &mut candidates);
            }
            if let Some(packet) = self.scene.facts.packet {
                self.packet_keys(packet, &mut candidates);
            }
            for (buffer, set) in &filters.packet_buffers {
                if let Some(data) = packet_buffer(*buffer, self.scene) {
                    set.scan(&mut self.worker.scratch, &data, &mut candidates);
                }
            }
            let sets = &filters.payloads.get(class)[direction];
            let (scratch, group) = (&mut self.worker.scratch, self.group);
            sets.scan(scratch, payload, payload_in_stream, group, &mut candidates);
        }
        if let Some(window) = stream {
            filters.stream_always[direction].add_to(self.group, &mut candidates);
            // As in Suricata, behind encryption only rules without a literal see what is left of the stream.
            let sets = Some(&filters.stream[direction]).filter(|_| !self.scene.facts.payload_hidden);
            let (head, whole) = sets.map_or((None, None), |sets| (sets.head.as_ref(), sets.whole.as_ref()));
            if let Some(head) = head {
                head.scan(&mut self.worker.scratch, window.data, self.group, &mut candidates);
            }
            if let Some(set) = whole.filter(|set| set.is_met(self.group)) {
                if window.whole {
                    let known = self.flow.window(direction);
                    known.scan(set, &mut self.worker.scratch, &window, &mut candidates);
                } else {
                    let back =
                        window.fresh.saturating_add(set.longest().saturating_sub(1)).min(window.data.len());
                    let fresh = window.data.get(window.data.len() - back..).unwrap_or(window.data);
                    set.scan(&mut self.worker.scratch, fresh, &mut candidates);
                }
            }
        }
        self.rules_on_addresses(&mut candidates, payload);
        let due = self.due();
        for rule in candidates.sorted(|rule| due.has(rule)) {
            self.packet_rule(rule, payload, stream, payload_in_stream);
        }
        candidates.clear();
        self.worker.candidates = candidates;
        if self.worker.decides_flow {
            self.flow.set_ip_only_done(direction);
        }
    }

    /// Evaluates rules on addresses alone, once for each direction of a flow. They precede all other rules,
    /// which see the marks that they set, as in Suricata.
    fn rules_on_addresses(&mut self, candidates: &mut Candidates, payload: &[u8]) {
        let done =
            self.has_flow && self.worker.decides_flow && self.flow.ip_only_done(self.scene.facts.direction);
        if done || !self.has_own_payload() {
            return;
        }
        let (due, rules) = (self.due(), self.rules);
        let is_ip_only = |rule: u32| rules.signatures.get(rule as usize).is_some_and(|s| s.is_ip_only());
        for rule in candidates.sorted(|rule| due.has(rule) && is_ip_only(rule)) {
            let Some(signature) = rules.signatures.get(rule as usize) else { continue };
            if self.header_holds(signature) && self.values_hold(signature, payload) {
                self.hit(rule, signature, None, false);
            }
        }
    }

    /// Whether a packet is inspected, or bytes that arrived in order and without one: rules inspect these as
    /// a packet's payload, and conditions on headers do not hold.
    const fn has_own_payload(&self) -> bool {
        self.scene.facts.packet.is_some() || self.scene.facts.bytes.is_some()
    }

    /// Adds rules that name an address of the packet. Most flows have no address that any rule names; the
    /// flow's state remembers this.
    fn rules_by_address(&mut self, always: &Always, candidates: &mut Candidates) {
        let direction = self.scene.facts.direction;
        // Packets of other protocols (ICMP errors) have other addresses than their flow.
        let of_flow = self.has_flow
            && is_of_flow(self.scene)
            && self.scene.facts.flow.is_some_and(|flow| matches!(flow.protocol, TCP | UDP));
        if of_flow && self.flow.is_unnamed(direction) {
            return;
        }
        let found = self.rules.prefilters.by_address.find(self.scene.tenant, Ends::of(self.scene));
        for heads in found {
            always.add_heads(heads, candidates);
        }
        if of_flow && found.iter().all(|heads| heads.is_empty()) {
            self.flow.set_unnamed(direction);
        }
    }

    /// Adds rules whose prefilter key is a property of the packet's headers.
    fn packet_keys(&self, packet: &PacketView<'_>, candidates: &mut Candidates) {
        let filters = &self.rules.prefilters;
        for key in PrefilterKeys::of(packet, self.scene.facts.stream_events) {
            if let Some(rules) = filters.by_key.get(&key) {
                candidates.extend(rules);
            }
        }
    }

    fn packet_rule(
        &mut self,
        index: u32,
        payload: &[u8],
        stream: Option<StreamWindow<'_>>,
        payload_in_stream: bool,
    ) {
        let rules = self.rules;
        let Some(signature) = rules.signatures.get(index as usize) else { return };
        let rest = !self.has_own_payload();
        if signature.is_ip_only() || self.again && self.worker.matched.contains(&index) {
            return;
        }
        if signature.is_detection_only() && !self.scene.facts.detection_done {
            return;
        }
        if !self.header_holds(signature) {
            if signature.reads_flowbits() && payload_programs(signature).next().is_some() {
                self.worker.asking.push(index);
            }
            return;
        }
        let basis = Basis::of(signature);
        // Alternatives in the order of preference: stream data, then the packet's own payload.
        let from_stream = basis.stream.then_some(stream).flatten().map(|w| w.data);
        // Stream data is inspected in the stream, once it is in order, unless the rule inspects each packet,
        // too. Without a packet, only the remaining stream is inspected; rules on the protocol alone match
        // it, too. Without any data no content is evaluated: a negated content also needs a payload that
        // lacks it. As in Suricata, a packet that brings a piece of the stream has a payload.
        let nothing = payload.is_empty() && stream.is_none() && payload_programs(signature).next().is_some();
        let own = !self.again
            && !nothing
            && (!rest || signature.kind == Kind::App)
            && match basis.packets {
                Packets::None => false,
                Packets::OutsideStream => !payload_in_stream,
                Packets::All => true,
            };
        let matched_stream = from_stream.is_some_and(|data| self.values_hold(signature, data));
        let matched = matched_stream || own && self.values_hold(signature, payload);
        if matched {
            self.hit(index, signature, None, matched_stream);
        }
    }

    /// Whether the matches from index `from` on have set flowbits. As in Suricata, rules that toggle a
    /// flowbit do not count.
    fn has_set_bits(&self, from: usize) -> bool {
        let hits = self.worker.hits.get(from..).unwrap_or_default();
        hits.iter().any(|hit| {
            self.rules.signatures.get(hit.rule as usize).is_some_and(|rule| rule.ordering.sets_flowbit)
        })
    }

    /// Evaluates rules on payloads that read flowbits once more, since a rule on a transaction may have set
    /// one after them. Suricata evaluates such rules together with the transactions.
    fn reevaluate_payload_rules(&mut self, stream: Option<StreamWindow<'_>>, payload_in_stream: bool) {
        let payload = self.scene.payload;
        for rule in core::mem::take(&mut self.worker.asking) {
            self.packet_rule(rule, payload, stream, payload_in_stream);
        }
    }

    /// Evaluates header, flow and packet conditions: all but values and transactions.
    fn header_holds(&mut self, signature: &Member) -> bool {
        if !self.head_holds(signature) {
            return false;
        }
        if signature.packet.is_empty() {
            return true;
        }
        let scene =
            ConditionContext { state: Some(&self.flow.state), left: &self.worker.left, ..*self.scene };
        let rest = self.scene.facts.packet.is_none();
        signature.packet.iter().all(|c| !(rest && c.needs_real_packet()) && c.matches(&scene))
    }

    /// Whether protocol, addresses, ports and flow conditions of a rule hold.
    fn head_holds(&mut self, signature: &Member) -> bool {
        if !header::flow_and_protocol_hold(signature, self.scene) {
            return false;
        }
        let (heads, scene) = (&self.rules.heads, self.scene);
        self.worker.heads.holds(signature.head, || header::ends_hold(signature, heads, scene))
    }

    fn values_hold(&mut self, signature: &Signature, payload: &[u8]) -> bool {
        let scene = self.scene;
        self.worker.variables = [0; VARIABLES_MAX];
        self.worker.captured.clear();
        signature.values.iter().all(|check| {
            let data = match check.buffer {
                BufferRef::Payload => Some(PacketBufferValue::Bytes(payload)),
                BufferRef::Packet(buffer) => packet_buffer(buffer, scene),
                BufferRef::Tx(_) | BufferRef::Frame(_) => None,
            };
            match data {
                Some(data) => self.run(check, &data, true) == ProgramOutcome::Match,
                None => check.absent != Absent::No,
            }
        })
    }

    /// Transforms a value and runs the program on it.
    fn run(&mut self, check: &ValueCheck, data: &[u8], complete: bool) -> ProgramOutcome {
        if check.transforms.is_empty() {
            return self.run_program(check, data, complete);
        }
        let [mut value, mut next] = core::mem::take(&mut self.worker.transformed);
        value.clear();
        value.extend_from_slice(data);
        for transform in &check.transforms {
            next.clear();
            transform.apply(&value, &mut next);
            core::mem::swap(&mut value, &mut next);
        }
        let outcome = self.run_program(check, &value, complete);
        self.worker.transformed = [value, next];
        outcome
    }

    /// Runs the program on a transformed value.
    fn run_program(&mut self, check: &ValueCheck, data: &[u8], complete: bool) -> ProgramOutcome {
        let mut run = Evaluation {
            scene: self.scene,
            state: Some(&self.flow.state),
            scratch: &mut self.worker.scratch,
            variables: &mut self.worker.variables,
            decoded: &mut self.worker.decoded,
            captured: &mut self.worker.captured,
            measured: &mut self.worker.measured,
            little_endian: self.worker.little_endian,
            complete,
            steps: 0,
            limit_hit: false,
        };
        let outcome = evaluate(&check.program, data, &mut run);
        let limit_hit = run.limit_hit;
        self.worker.limits_hit += u64::from(limit_hit);
        if !self.worker.measured.is_empty() {
            for measure in self.worker.measured.drain(..) {
                self.flow.state.set_measure(measure.name, measure.value);
            }
        }
        outcome
    }

    /// Stores the values that the conditions of a match captured.
    fn take_captured(&mut self, rule: u32, tx: Option<TxId>) {
        let mut captured = core::mem::take(&mut self.worker.captured);
        for (capture, value) in captured.drain(..) {
            let (name, kind) = match capture {
                Capture::Flow(name) => {
                    self.flow.state.set_variable(name, &value);
                    continue;
                }
                Capture::Replace(at) => {
                    self.worker.edits.push((at, value));
                    continue;
                }
                Capture::Packet(name) => (name, LeftKind::PacketVariable),
                Capture::Alert(name) => (name, LeftKind::Text),
                Capture::Context(name) => (name, LeftKind::Json),
            };
            self.worker.left.push(AlertContext { rule, tx, name, kind, value });
        }
        self.worker.captured = captured;
    }

    /// Carries out the requests of matches on a transaction and its files.
    fn carry_out(&mut self, app: &mut AppView<'_>, tx: &dyn Transaction, id: TxId) {
        let rules = self.rules;
        let asked = core::mem::take(&mut self.worker.requests);
        for one in asked.iter().filter(|a| a.tx == id) {
            let checks = rules.signatures.get(one.rule as usize).map_or(&[][..], |s| &s.tx);
            let matched = |file: &_| checks.iter().all(|c| c.condition.holds_for(file) != Some(false));
            carry_out(one, tx, &mut self.flow.state, app, matched);
        }
        self.worker.requests = asked;
        mark_files(tx, id, &self.flow.state, app);
    }

    /// Records a match: effects apply now; thresholds and actions apply when all matches of the packet are
    /// known.
    fn hit(&mut self, index: u32, signature: &Member, tx: Option<TxId>, stream: bool) {
        let scene = *self.scene;
        self.worker.acted = true;
        self.take_captured(index, tx);
        for effect in &signature.effects {
            let state = self.has_flow.then_some(&mut self.flow.state);
            if !effect.apply(signature.id, &scene, state) {
                return;
            }
        }
        self.record_requests(index, signature, tx);
        self.worker.matched.push(index);
        let action = signature.action;
        let alert = signature.reports();
        let guess = if tx.is_none() { self.guess_tx(signature) } else { None };
        self.worker.hits.push(Hit {
            rule: index,
            tx,
            guess,
            frame: None,
            stream,
            alert,
            action,
            for_flow: false,
            by_limit: false,
        });
    }

    /// Records a match's requests about the records and files of its transaction.
    fn record_requests(&mut self, index: u32, signature: &Signature, tx: Option<TxId>) {
        let direction = self.scene.facts.direction;
        if signature.requests.contains(&Request::StoreCertificates) {
            self.flow.state.certificates[direction] = true;
        }
        let Some(tx) = tx.or(self.guess) else { return };
        let asked = |request: &Request| PendingRequest {
            tx,
            rule: index,
            sid: signature.id.sid,
            direction,
            request: *request,
        };
        self.worker.requests.extend(signature.requests.iter().map(asked));
    }

    /// The transaction that an alert of a packet or stream shows: always for rules on datagrams of a
    /// protocol; for other rules when the settings enable guesses. The number of alerts per transaction is
    /// limited.
    fn guess_tx(&mut self, signature: &Signature) -> Option<TxId> {
        let datagram = self.scene.facts.flow.is_some_and(|f| f.protocol == UDP);
        let certain = datagram && !signature.protocol.app.is_empty();
        let id = self.guess.filter(|_| certain || self.rules.guess_tx)?;
        self.flow.guess(id, self.rules.guess_limit).then_some(id)
    }

    /// Applies the thresholds of a rule. `None`: the match does not count.
    fn limit(&mut self, signature: &Member, mut hit: Hit) -> Option<Hit> {
        let scene = *self.scene;
        for threshold in &signature.thresholds {
            let state = self.has_flow.then_some(&mut self.flow.state);
            match threshold.judge(signature.id, &scene, state) {
                Limited::Alert => {}
                Limited::Act(other) => {
                    hit.action = other;
                    hit.by_limit = true;
                    // A match that a rate filter turns into a pass is not reported.
                    hit.alert &= other != RuleAction::Pass;
                }
                // A pass beyond its limit has no effect; other actions apply without an alert.
                Limited::Silent if hit.action == RuleAction::Pass => return None,
                Limited::Silent => {
                    hit.alert = false;
                    break;
                }
                Limited::Nothing => return None,
            }
        }
        Some(hit)
    }

    /// Remembers the stream bytes of a packet that is refused while its flow continues: retransmissions of
    /// these bytes do not leave either.
    fn refuse_bytes(&mut self, rule: RuleId) {
        let Some(packet) = self.scene.facts.packet.filter(|_| self.prevention) else { return };
        let Some(tcp) = packet.decoded().transport.tcp() else { return };
        let own = self.scene.payload.len();
        // Data of a SYN begins after its sequence number. Segments that were inspected together are refused
        // together.
        let first = tcp.seq.wrapping_add(u32::from(tcp.flags.contains(TcpFlags::SYN)));
        let lengths = (u32::try_from(own), u32::try_from(own.max(self.new_bytes)));
        if let (Ok(own), Ok(all)) = lengths {
            self.flow.refuse_bytes(
                self.scene.facts.direction,
                RefusedBytes::new(rule, first.wrapping_add(own), all),
            );
        }
    }

    /// Processes the matches in the order of evaluation: thresholds, then actions. A pass rule ends the list,
    /// and a later pass does not lift an earlier refusal.
    fn finish(&mut self) {
        let rules = self.rules;
        let mut hits = core::mem::take(&mut self.worker.hits);
        hits.sort_by_key(|h| (h.rule, core::cmp::Reverse(h.tx)));
        let mut refused = false;
        let mut passed = false;
        hits.retain_mut(|hit| {
            let Some(signature) = rules.signatures.get(hit.rule as usize) else { return false };
            if passed {
                return false;
            }
            let Some(limited) = self.limit(signature, *hit) else {
                self.worker.withheld += 1;
                return false;
            };
            *hit = limited;
            self.flow.state.alerted |= hit.alert;
            let refuses = matches!(hit.action, RuleAction::Drop | RuleAction::Reject(_));
            let of_stream = hit.stream || hit.tx.is_some();
            let passes = hit.action == RuleAction::Pass;
            if refuses || passes && !refused {
                hit.for_flow = self.worker.decides_flow
                    && match signature.scope {
                        Some(scope) => scope == ActionScope::Flow,
                        None => signature.kind.acts_on_flow(of_stream),
                    };
                if refuses && of_stream && !hit.for_flow {
                    self.refuse_bytes(signature.id);
                }
                let state = &mut self.flow.state;
                // The first decision about a flow holds.
                if hit.for_flow && state.passed.is_none() && state.dropped.is_none() {
                    state.passed = passes.then_some(signature.id);
                    state.dropped = refuses.then_some(signature.id);
                }
            }
            refused |= refuses;
            passed = passes;
            true
        });
        self.worker.hits = hits;
    }
}
