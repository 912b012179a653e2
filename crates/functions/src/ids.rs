// SPDX-License-Identifier: Apache-2.0
//! `ids`: intrusion detection and prevention with Suricata's rules. Thin: the engine is crate `detect`.

use bartizan_base::{
    Decision, Direction, FunctionId, Generation, Reason, RuleId, TenantId, Timestamp, Verdict,
};
use bartizan_detect::condition::{ConditionContext, inspected_payload};
use bartizan_detect::firewall::{FirewallDropCause, Gate};
use bartizan_detect::groups::{Groups, RULES_MAX};
use bartizan_detect::inspect::{DetectWorker, Hit, InspectionInput, inspect};
use bartizan_detect::left::{AlertContext, LeftKind};
use bartizan_detect::ruleset::{RuleSet, VisibleRules};
use bartizan_detect::signature::{RejectSide, RuleAction, Signature};
use bartizan_detect::txstate::FlowDetect;
use bartizan_events::JsonWriter;
use bartizan_flow::host::HostKey;
use bartizan_function::{
    AppView, Edit, Finding, FindingAction, Function, FunctionCounter, FunctionModel, FunctionSpec,
    HeaderRules, HostKeeper, PacketContext, PacketFacts, RejectTo, RuleInfo, Together, VariableNames,
    WorkerState, state_in,
};
use bartizan_packet::PacketView;
use core::any::Any;
use core::net::IpAddr;
use core::num::NonZeroU32;
use std::sync::Arc;

/// The specification of the function.
pub static SPEC: FunctionSpec = FunctionSpec {
    name: "ids",
    summary: "Matches packets, streams and transactions with detection rules; in prevention it applies their actions.",
    model: FunctionModel::Payload,
    runs_after: &["pfw", "sfw", "ddos"],
    runs_before: &[],
    header_half: None,
    host_slot: None,
    counters: &[
        FunctionCounter { name: "alerts", help: "Alerts reported." },
        FunctionCounter {
            name: "alerts_discarded",
            help: "Alerts beyond the limit of one packet; their actions still apply.",
        },
        FunctionCounter {
            name: "firewall_alerts_discarded",
            help: "Alerts of firewall rules beyond the limit of one packet; their actions still apply.",
        },
        FunctionCounter {
            name: "alerts_suppressed",
            help: "Matches without an alert: `noalert`, thresholds (also those that are not reached yet) and suppressions.",
        },
        FunctionCounter {
            name: "states_replaced",
            help: "Flows whose detection state was created again because the slot held the state of another function.",
        },
        FunctionCounter {
            name: "pcre_limits",
            help: "Searches of regular expressions that reached the match limit.",
        },
    ],
};

/// The term for a header rule in explanations: a part of the header space whose flows share a signature
/// group.
pub(crate) const HEADER_RULE: &str = "signature group of headers";

/// Most alerts of one packet that are reported; further ones are counted (Suricata's `packet-alert-max`).
pub const ALERTS_PER_PACKET: usize = 15;

/// The function with the rules of one generation.
pub struct Ids {
    id: FunctionId,
    seen: VisibleRules,
    generation: Generation,
    alerts_max: usize,
    /// Signature groups of this and other rule sets, and the index of this set among them.
    groups: (Arc<Groups>, usize),
    header_rules: Vec<HeaderRules>,
    /// The rule of findings for packets that are only recorded.
    tag: Arc<RuleInfo>,
}

struct IdsState {
    worker: DetectWorker,
    /// Alerts of the current packet.
    reported: usize,
    alerts: u64,
    discarded: u64,
    gate_discarded: u64,
    suppressed: u64,
    replaced: u64,
}

impl Ids {
    /// The function with one rule set for all flows.
    #[must_use]
    pub fn new(id: FunctionId, generation: Generation, rules: Arc<RuleSet>, alerts_max: usize) -> Self {
        let groups = Arc::new(Groups::new(&[&rules.heads], RULES_MAX));
        let all = HeaderRules {
            called: HEADER_RULE,
            fids: Arc::default(),
            rules: Arc::clone(groups.header_rules()),
        };
        Ids {
            header_rules: vec![all],
            ..Ids::one_of(id, generation, VisibleRules::all(rules), alerts_max, (groups, 0))
        }
    }

    /// The function with one of several rule sets, given by its index in the signature groups.
    pub(crate) fn one_of(
        id: FunctionId,
        generation: Generation,
        seen: VisibleRules,
        alerts_max: usize,
        groups: (Arc<Groups>, usize),
    ) -> Self {
        Ids { id, seen, generation, alerts_max, groups, header_rules: Vec::new(), tag: Arc::default() }
    }

    /// The rules that this function evaluates.
    #[must_use]
    pub const fn seen(&self) -> &VisibleRules {
        &self.seen
    }
}

/// The finding of a rule that refuses without an alert: the record of the refused packet still names it.
fn silent_refusal(hit: &Hit, signature: &Signature) -> Finding {
    let tx = hit.tx.or(hit.guess).filter(|_| signature.firewall.is_none());
    let silent = Finding::new(Arc::clone(&signature.info), FindingAction::Refusing);
    Finding { tx, guessed: tx.is_some() && hit.tx.is_none(), ..silent }
}

/// The verdict that a match asks for, and the action that its event names.
fn outcome_of(hit: &Hit, prevention: bool) -> (Verdict, FindingAction) {
    match hit.action {
        RuleAction::Alert | RuleAction::Config | RuleAction::Accept => {
            (Verdict::Continue, FindingAction::Allowed)
        }
        RuleAction::Pass => (Verdict::Pass, FindingAction::Allowed),
        RuleAction::Drop if prevention => (Verdict::Drop, FindingAction::Blocked),
        // As in Suricata: what a rate filter turned into a drop is `blocked`, refused or not.
        RuleAction::Drop if hit.by_limit => (Verdict::Continue, FindingAction::Blocked),
        RuleAction::Drop => (Verdict::Continue, FindingAction::Allowed),
        RuleAction::Reject(_) if prevention => (Verdict::Reject, FindingAction::Blocked),
        RuleAction::Reject(_) => (Verdict::Continue, FindingAction::Blocked),
    }
}

const fn reject_to(side: RejectSide) -> RejectTo {
    match side {
        RejectSide::Source => RejectTo::Source,
        RejectSide::Destination => RejectTo::Destination,
        RejectSide::Both => RejectTo::Both,
    }
}

impl Function for Ids {
    fn spec(&self) -> &'static FunctionSpec {
        &SPEC
    }

    fn id(&self) -> FunctionId {
        self.id
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }

    fn worker(&self) -> WorkerState {
        Box::new(IdsState {
            worker: DetectWorker::new(&self.seen.rules),
            reported: 0,
            alerts: 0,
            discarded: 0,
            gate_discarded: 0,
            suppressed: 0,
            replaced: 0,
        })
    }

    fn hosts(&self) -> Option<Arc<dyn HostKeeper>> {
        Some(Arc::clone(&self.seen.rules.shared) as Arc<dyn HostKeeper>)
    }

    fn variable_names(&self) -> Option<Arc<dyn VariableNames>> {
        Some(Arc::clone(&self.seen.rules.shared) as Arc<dyn VariableNames>)
    }

    fn take_header_rules(&mut self) -> Vec<HeaderRules> {
        core::mem::take(&mut self.header_rules)
    }

    fn payload(&self, context: &mut PacketContext<'_>) -> Decision {
        // One of several rule sets may be empty.
        if self.seen.watches_nothing() {
            let stray = context.notes.tcp.is_some_and(|tcp| tcp.checksum_invalid);
            if let Some(app) = context.app.as_mut().filter(|_| stray) {
                app.later();
            }
            return Decision::CONTINUE;
        }
        let facts = context.facts;
        let scene = self.condition_context(context);
        let Some(state) = context.worker.downcast_mut::<IdsState>() else { return Decision::CONTINUE };
        let brings_nothing = context.slot.is_none() && self.brings_nothing(&scene);
        let mut unkept = FlowDetect::default();
        let mut flow = match facts.flow {
            None => None,
            Some(_) if brings_nothing => Some(&mut unkept),
            Some(_) => state_in::<FlowDetect>(context.slot).map(|(flow, replaced)| {
                state.replaced += u64::from(replaced);
                flow
            }),
        };
        let refused = flow.as_deref_mut().filter(|_| facts.prevention && !facts.flow_ends);
        let refused = refused.and_then(|flow| self.refused_before(flow, facts.packet, facts.direction));
        // No packet of a flow that rules pass or refuse as a whole is inspected or marked.
        let stood = flow.as_deref_mut().filter(|_| self.seen.rules.tags).is_some_and(|flow| {
            flow.enter_generation(&self.seen.rules, self.seen.visible.as_deref(), self.generation);
            flow.state.passed.is_some() || flow.state.dropped.is_some()
        });
        let (groups, set) = &self.groups;
        let work = InspectionInput {
            generation: self.generation,
            visible: self.seen.visible.as_deref(),
            waits: context.notes.waits,
            stray: context.notes.tcp.is_some_and(|tcp| tcp.checksum_invalid),
            group: context
                .notes
                .matched(self.id)
                .zip(facts.flow)
                .and_then(|(number, flow)| groups.find(number, *set, flow.client.1, facts.direction)),
            app: context.app.as_mut().map(AppView::reborrow),
        };
        let bytes = facts.packet.map(|packet| u64::from(packet.decoded().wire_len));
        let tagging = bytes.filter(|_| self.seen.rules.tags && !stood);
        let hosts = scene.addresses().filter(|_| tagging.is_some());
        inspect(&self.seen.rules, &mut state.worker, flow.as_deref_mut(), &scene, work);
        // Rules may have passed the flow in another generation: they are not evaluated again, and a bypassed
        // flow stays bypassed.
        let ungated = |flow: &FlowDetect| self.seen.rules.firewall.is_none() || flow.state.accepted.is_some();
        let bypassed = flow
            .as_deref()
            .filter(|flow| !facts.flow_ends && ungated(flow))
            .is_some_and(|flow| flow.state.passed.is_some_and(|rule| self.seen.rules.bypasses(&rule)));
        // After the rules: the packet that starts a tag counts.
        let recorded = tagging.is_some_and(|bytes| {
            let own = flow.is_some_and(|f| f.state.tags.count(bytes, facts.now, facts.again));
            let (tenant, now, again) = (context.notes.tenant, facts.now, facts.again);
            own | hosts.is_some_and(|(source, destination)| {
                self.host_tagged(tenant, source, destination, bytes, now, again)
            })
        });
        if brings_nothing && state.worker.has_acted() {
            *context.slot = Some(Box::new(unkept));
        }
        let edits = state.worker.edits.drain(..).map(|(offset, bytes)| Edit { offset, bytes });
        context.edits.extend(edits);
        let decision = self.conclude(state, facts, context.reject, context.findings);
        if recorded {
            context.findings.push(Finding::new(Arc::clone(&self.tag), FindingAction::Tagged));
        }
        match refused {
            Some((rule, reason)) if !facts.again => decision.strictest(Decision {
                rule: NonZeroU32::new(rule.sid),
                rule_id: Some(rule),
                done: reason == Reason::IdsFlow,
                ..Decision::refuse(Verdict::Drop, reason, self.id)
            }),
            _ => Decision { done: decision.done || bypassed && decision.verdict.forwards(), ..decision },
        }
    }

    fn is_idle(&self) -> bool {
        self.seen.watches_nothing()
    }

    fn together(&self) -> Together {
        self.seen.rules.together()
    }

    fn waits_for_protocol(&self) -> bool {
        self.seen.rules.waits_for_protocol()
    }

    fn explain(&self, context: &PacketContext<'_>) -> serde_json::Map<String, serde_json::Value> {
        let mut said = serde_json::Map::new();
        said.insert("rules".to_owned(), self.seen.count().into());
        if let Some(flow) = context.facts.flow {
            let groups = bartizan_detect::explain::groups_of(&self.seen, flow);
            said.insert("rules_for_this_flow".to_owned(), groups);
        }
        said
    }

    fn log(&self, worker: &WorkerState, each: &mut dyn FnMut(&'static str, u64)) {
        if let Some(state) = worker.downcast_ref::<IdsState>() {
            each("alerts", state.alerts);
            each("alerts_discarded", state.discarded);
            each("firewall_alerts_discarded", state.gate_discarded);
            each("alerts_suppressed", state.suppressed.saturating_add(state.worker.withheld));
            each("states_replaced", state.replaced);
            each("pcre_limits", state.worker.limits_hit);
        }
    }
}

impl Ids {
    /// Whether a packet of a flow without a state of detection leaves none unless a rule matches: a segment
    /// of a handshake without data. In a flood of such flows their states would be most of the memory.
    fn brings_nothing(&self, scene: &ConditionContext<'_>) -> bool {
        let facts = scene.facts;
        facts.flow.is_some_and(|flow| flow.tcp.is_some() && !flow.established)
            && scene.payload.is_empty()
            && facts.stream.is_none()
            && !facts.flow_ends
            && self.seen.rules.firewall.is_none()
            && !self.seen.rules.reads_hosts_once
    }

    /// The earlier decision of a rule on all of a flow, or on retransmitted bytes, if it still applies with
    /// these rules.
    fn refused_before(
        &self,
        flow: &mut FlowDetect,
        packet: Option<&PacketView<'_>>,
        direction: Direction,
    ) -> Option<(RuleId, Reason)> {
        flow.enter_generation(&self.seen.rules, self.seen.visible.as_deref(), self.generation);
        if let Some(rule) = flow.state.dropped {
            return Some((rule, Reason::IdsFlow));
        }
        let first = packet?.decoded().transport.tcp()?.seq;
        let length = u32::try_from(packet?.payload().len()).ok()?;
        flow.refuses_again(direction, first, length).map(|rule| (rule, Reason::IdsRule))
    }

    /// Whether an active tag of one of the packet's hosts requires to record it; the tuple holds the packet's
    /// bytes, its time and whether it was counted before.
    fn host_tagged(
        &self,
        tenant: TenantId,
        source: IpAddr,
        destination: IpAddr,
        bytes: u64,
        now: Timestamp,
        again: bool,
    ) -> bool {
        if !self.seen.rules.shared.has_host_tags() {
            return false;
        }
        let tagged = |host| {
            let key = HostKey::host(tenant, host);
            let ask = self
                .seen
                .rules
                .shared
                .hosts
                .if_there(&key, now, |host| host.tags_mut().count(bytes, now, again));
            ask.unwrap_or(false)
        };
        tagged(source) | tagged(destination)
    }

    /// Variables set by the packet's matches.
    fn packet_variables(&self, left: &[AlertContext]) -> Arc<[(String, Vec<u8>)]> {
        let of_packet = left.iter().filter(|l| l.kind == LeftKind::PacketVariable);
        of_packet.map(|l| (self.name(l.name), l.value.clone())).collect()
    }

    fn name(&self, number: u32) -> String {
        self.seen.rules.shared.names.name(number).unwrap_or_default()
    }

    /// Data that a match left for its alert, as the members of a JSON object.
    fn context_of(&self, hit: &Hit, left: &[AlertContext]) -> Option<Box<[u8]>> {
        let mut own = left.iter().filter(|l| l.rule == hit.rule && l.tx == hit.tx).peekable();
        own.peek()?;
        let mut json = JsonWriter::new();
        json.begin_object();
        let mut written: Vec<u32> = Vec::new();
        for one in own.filter(|l| l.kind != LeftKind::PacketVariable) {
            if written.contains(&one.name) {
                continue;
            }
            written.push(one.name);
            match one.kind {
                LeftKind::PacketVariable => {}
                LeftKind::Text => json.text(&self.name(one.name), &one.value),
                // As in the operator's file: complete JSON, for which a harmless form is written.
                LeftKind::Json => {
                    let text = String::from_utf8_lossy(&one.value);
                    json.raw(&self.name(one.name), bartizan_events::harmless_line(&text).as_bytes());
                }
            }
        }
        json.end_object();
        (!written.is_empty()).then(|| json.bytes().into())
    }

    /// The decision of the firewall.
    fn of_gate(&self, gate: Gate, prevention: bool, reject: &mut Option<RejectTo>) -> Decision {
        let Gate::Refused(refusal) = gate else { return Decision::CONTINUE };
        if !prevention {
            return Decision::CONTINUE;
        }
        let reason = match refusal.cause {
            FirewallDropCause::Rule => Reason::FirewallRule,
            FirewallDropCause::PacketPolicy => Reason::FirewallPacketPolicy,
            FirewallDropCause::AppPolicy => Reason::FirewallAppPolicy,
            FirewallDropCause::PreFlow => Reason::FirewallPreFlow,
            FirewallDropCause::PreStream => Reason::FirewallPreStream,
        };
        if let Some(side) = refusal.reject {
            reject.get_or_insert(reject_to(side));
        }
        let verdict = if refusal.reject.is_some() { Verdict::Reject } else { Verdict::Drop };
        Decision {
            rule: refusal.rule.and_then(|rule| NonZeroU32::new(rule.sid)),
            rule_id: refusal.rule,
            done: refusal.flow,
            ..Decision::refuse(verdict, reason, self.id)
        }
    }

    /// The state that conditions of rules see.
    fn condition_context<'c>(&'c self, context: &PacketContext<'c>) -> ConditionContext<'c> {
        let facts = context.facts;
        ConditionContext {
            facts,
            payload: inspected_payload(facts),
            state: None,
            left: &[],
            function: self.id,
            tenant: context.notes.tenant,
            shared: &self.seen.rules.shared,
        }
    }

    /// Turns matches into findings and one decision.
    fn conclude(
        &self,
        state: &mut IdsState,
        facts: &PacketFacts<'_>,
        reject: &mut Option<RejectTo>,
        findings: &mut Vec<Finding>,
    ) -> Decision {
        let prevention = facts.prevention;
        if !facts.again {
            state.reported = 0;
        }
        let gate = self.of_gate(state.worker.gate, prevention, reject);
        if state.worker.hits.is_empty() && state.worker.gate_hits.is_empty() {
            return gate;
        }
        let (mut decision, mut bypass, mut whole) = (Decision::CONTINUE, false, false);
        let variables = self.packet_variables(&state.worker.left);
        if !variables.is_empty() {
            let found = Finding::new(Arc::clone(&self.tag), FindingAction::Variables);
            findings.push(Finding { variables: Arc::clone(&variables), ..found });
        }
        let refuses = |hit: &Hit| matches!(hit.action, RuleAction::Drop | RuleAction::Reject(_));
        let refused = state.worker.hits.iter().any(refuses);
        for hit in state.worker.gate_hits.iter().chain(&state.worker.hits) {
            let index = hit.rule as usize;
            let Some(signature) = self.seen.rules.signatures.get(index) else { continue };
            if let RuleAction::Reject(side) = hit.action {
                reject.get_or_insert(reject_to(side));
            }
            let (verdict, action) = outcome_of(hit, prevention);
            let of_firewall = signature.firewall.is_some();
            if verdict != Verdict::Continue && !of_firewall {
                let reason = if hit.by_limit { Reason::IdsThreshold } else { Reason::IdsRule };
                decision = decision.strictest(Decision {
                    verdict,
                    reason: (verdict > Verdict::Pass).then_some(reason),
                    function: self.id,
                    rule: NonZeroU32::new(signature.id.sid),
                    rule_id: Some(signature.id),
                    ..Decision::CONTINUE
                });
                whole |= hit.for_flow && verdict > Verdict::Pass;
            }
            // In firewall mode, only the firewall bypasses a flow.
            bypass |= signature.bypass && (of_firewall || state.worker.ungated);
            if !hit.alert {
                findings.extend((verdict > Verdict::Pass).then(|| silent_refusal(hit, signature)));
                state.suppressed += u64::from(hit.action != RuleAction::Pass && !of_firewall);
                continue;
            }
            if state.reported >= self.alerts_max {
                state.discarded += u64::from(!of_firewall);
                state.gate_discarded += u64::from(of_firewall);
                continue;
            }
            state.alerts += 1;
            state.reported += 1;
            findings.push(Finding {
                rule: Arc::clone(&signature.info),
                action,
                frame: hit.frame,
                tx: hit.tx.or(hit.guess),
                guessed: hit.tx.is_none() && hit.guess.is_some(),
                stream: hit.stream || hit.tx.is_some(),
                refused_beside: hit.by_limit && hit.action == RuleAction::Alert && refused,
                context: self.context_of(hit, &state.worker.left),
                variables: Arc::clone(&variables),
            });
        }
        // A refusal by the firewall stands, whatever detection decided on the packet before.
        if !gate.verdict.forwards() {
            return gate;
        }
        // A bypassed flow needs this function no more; for a refused one, bypass does not matter. A flow
        // refused as a whole needs no further inspection, whichever rule's refusal is the strictest. An ICMP
        // error about the flow ends nothing.
        let ends = if decision.verdict.forwards() { bypass } else { whole };
        decision.done = ends && state.worker.decides_flow;
        decision
    }
}
