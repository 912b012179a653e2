// SPDX-License-Identifier: Apache-2.0
//! Explains one rule as the engine compiled it.

use super::{apps, kind_name, words};
use crate::compile::builder::Origin;
use crate::keywords;
use crate::model::basis::{Basis, Packets};
use crate::model::buffers::BufferRef;
use crate::model::condition::PrefilterKey;
use crate::model::content::{Item, Literal};
use crate::model::prefilter;
use crate::model::signature::{Absent, Family, FlowNeeds, Member, RejectSide, RuleAction, Signature};
use crate::ruleset::RuleSet;
use bartizan_applayer::protocol::BufferKind;
use bartizan_applayer::protocols;
use bartizan_base::{Direction, TenantId};
use bartizan_rules::{OptionRef, Rule};
use serde::Serialize;

/// Limit of an address or port expression in the output, in bytes; longer text is cut.
const TEXT_MAX: usize = 200;

/// One rule, explained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleExplanation {
    /// gid:sid:rev.
    pub rule: String,
    /// File and line.
    pub place: String,
    /// `msg`.
    pub message: String,
    /// The rule's action when it matches.
    pub action: &'static str,
    /// Scope of a refusal or pass: the packet or the rest of the flow.
    pub acts_on: &'static str,
    /// Severity: 1 is the most severe.
    pub priority: u32,
    /// The rule's subject: packet, stream, transaction...
    pub about: &'static str,
    /// Data on which the rule is evaluated.
    pub evaluated_on: Vec<String>,
    /// The head.
    pub head: ExplainedHead,
    /// The prefilter that makes the rule a candidate.
    pub prefilter: Prefilter,
    /// Conditions of the rule, in the order of evaluation.
    pub conditions: Vec<Condition>,
    /// Effects of a match, before the alert.
    pub effects: Vec<Condition>,
    /// Warnings for the author.
    pub warnings: Vec<String>,
}

/// The head of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedHead {
    /// Protocol as the rule writes it.
    pub protocol: String,
    /// IP protocols by number; empty for all.
    pub ip_protocols: Vec<u8>,
    /// IP version, where the rule concerns only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_version: Option<u8>,
    /// Application protocols, one of which the flow must have; empty for any.
    pub app_protocols: Vec<&'static str>,
    /// Source addresses, variables resolved.
    pub source: String,
    /// Source ports.
    pub source_ports: String,
    /// Destination addresses.
    pub destination: String,
    /// Destination ports.
    pub destination_ports: String,
    /// Source and destination may be exchanged (`<>`).
    pub bidirectional: bool,
    /// Directions of the packets that the rule inspects.
    pub directions: Vec<&'static str>,
    /// State that the flow must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'static str>,
}

/// The prefilter that makes a rule a candidate for evaluation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Prefilter {
    /// `pattern`: a literal is searched; `key`: a property of the packet is compared; `none`: the rule is
    /// always a candidate.
    pub engine: &'static str,
    /// Groups of rules that contain this rule.
    pub groups: Vec<String>,
    /// The buffer in which the literal is searched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<&'static str>,
    /// The literal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Letter case does not matter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nocase: Option<bool>,
    /// Reason for this choice.
    pub why: String,
    /// Literals that were not chosen, each with the reason.
    pub others: Vec<String>,
}

/// A condition or effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Condition {
    /// `head`, `packet`, `buffer`, `transaction`, `effect`, `threshold`.
    pub kind: &'static str,
    /// Keyword or buffer.
    pub name: String,
    /// In words.
    pub text: String,
    /// Transforms of the buffer before the condition is evaluated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub transforms: Vec<String>,
}

/// Explains a rule of a set; `origins`: the parts that each keyword added ([`crate::ruleset::origins`]).
#[must_use]
pub fn explain(rules: &RuleSet, signature: &Member, rule: &Rule, origins: &[Origin]) -> RuleExplanation {
    let mut explanation = RuleExplanation {
        rule: signature.id.to_string(),
        place: format!("{}:{}", rule.source.name(), rule.line),
        message: signature.info.message.clone(),
        action: action(signature.action),
        acts_on: if signature.kind.acts_on_flow(true) { "flow" } else { "packet" },
        priority: signature.priority,
        about: kind_name(signature.kind),
        evaluated_on: evaluated_on(rules, signature),
        head: head(rules, signature, rule),
        prefilter: prefilter(rules, signature),
        conditions: Vec::new(),
        effects: Vec::new(),
        warnings: Vec::new(),
    };
    options(&mut explanation, rule, origins);
    buffers(&mut explanation, rules, signature);
    explanation.warnings = warnings(rules, signature, &explanation);
    explanation
}

const fn action(action: RuleAction) -> &'static str {
    match action {
        RuleAction::Alert => "alert",
        RuleAction::Drop => "drop",
        RuleAction::Reject(RejectSide::Source) => "reject",
        RuleAction::Reject(RejectSide::Destination) => "rejectdst",
        RuleAction::Reject(RejectSide::Both) => "rejectboth",
        RuleAction::Pass => "pass",
        RuleAction::Config => "config",
        RuleAction::Accept => "accept",
    }
}

const fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::ToServer => "to_server",
        Direction::ToClient => "to_client",
    }
}

fn cut(text: String) -> String {
    match text.char_indices().nth(TEXT_MAX) {
        Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
        None => text,
    }
}

fn head(rules: &RuleSet, signature: &Member, rule: &Rule) -> ExplainedHead {
    let ends = rules.heads.get(TenantId::default(), signature.head).cloned().unwrap_or_default();
    let protocol = &signature.protocol;
    let any = || "any".to_owned();
    let flow = signature.flow;
    let state = [
        (FlowNeeds::ESTABLISHED, "established"),
        (FlowNeeds::NOT_ESTABLISHED, "not_established"),
        (FlowNeeds::STATELESS, "stateless"),
    ];
    ExplainedHead {
        protocol: rule.text(rule.protocol).to_owned(),
        ip_protocols: protocol.ip.clone(),
        ip_version: match protocol.family {
            Family::Any => None,
            Family::V4 => Some(4),
            Family::V6 => Some(6),
        },
        app_protocols: apps(signature),
        source: ends.source.as_ref().map_or_else(any, |s| cut(s.to_string())),
        source_ports: ends.source_ports.as_ref().map_or_else(any, |s| cut(s.to_string())),
        destination: ends.destination.as_ref().map_or_else(any, |s| cut(s.to_string())),
        destination_ports: ends.destination_ports.as_ref().map_or_else(any, |s| cut(s.to_string())),
        bidirectional: ends.bidirectional,
        directions: prefilter::directions(signature).into_iter().map(direction_name).collect(),
        state: state.into_iter().find(|(flag, _)| flow.contains(*flag)).map(|(_, name)| name),
    }
}

fn evaluated_on(rules: &RuleSet, signature: &Signature) -> Vec<String> {
    if signature.is_detection_only() {
        return vec!["the end of protocol detection in a direction".to_owned()];
    }
    if signature.is_ip_only() {
        return vec!["the first packet of each direction of a flow".to_owned()];
    }
    if !signature.inspects_tx() {
        let basis = Basis::of(signature);
        let packets = match basis.packets {
            Packets::None => None,
            Packets::OutsideStream => Some("each packet whose payload is not in the stream"),
            Packets::All => Some("each packet"),
        };
        let stream = basis.stream.then_some("new data of the reassembled stream");
        return stream.into_iter().chain(packets).map(str::to_owned).collect();
    }
    let mut on = Vec::new();
    for value in &signature.values {
        let BufferRef::Tx(index) = value.buffer else { continue };
        let Some(buffer) = rules.buffers.tx(index) else { continue };
        for (protocol, spec) in &buffer.providers {
            if !signature.protocol.app.is_empty() && !signature.protocol.app.contains(protocol) {
                continue;
            }
            let Some(protocol) = protocols::spec(*protocol) else { continue };
            let directions = prefilter::check_directions(value, spec);
            for direction in Direction::BOTH.into_iter().filter(|d| directions[*d]) {
                let states = protocol.states[direction];
                let state = states.get(usize::from(spec.early)).or(states.last()).copied().unwrap_or("?");
                let when = match spec.kind {
                    BufferKind::Streaming | BufferKind::Files => "as its data comes".to_owned(),
                    _ => format!("from state {state}"),
                };
                let text = format!("{} transactions, {}, {when}", protocol.name, buffer.name);
                if !on.contains(&text) {
                    on.push(text);
                }
            }
        }
    }
    if on.is_empty() {
        on.push("transactions as they advance".to_owned());
    }
    on
}

/// The literals with their position: value and item.
fn literals(signature: &Signature) -> Vec<(usize, usize, &Literal)> {
    let values = signature.values.iter().enumerate();
    values
        .flat_map(|(value, check)| check.program.literals().map(move |(item, l)| (value, item, l)))
        .collect()
}

fn prefilter(rules: &RuleSet, signature: &Signature) -> Prefilter {
    let directions: Vec<&str> = prefilter::directions(signature).into_iter().map(direction_name).collect();
    let mut out = Prefilter {
        engine: "none",
        groups: Vec::new(),
        buffer: None,
        pattern: None,
        nocase: None,
        why: String::new(),
        others: Vec::new(),
    };
    let all = literals(signature);
    if let Some(fast) = &signature.fast_pattern {
        let chosen = all.iter().find(|(value, item, _)| *value == fast.value && *item == fast.item);
        let named = chosen.is_some_and(|(_, _, l)| l.fast_pattern || l.fast_pattern_only);
        let buffer = signature.values.get(fast.value).map(|v| v.buffer).unwrap_or(BufferRef::Payload);
        let usable = all.iter().filter(|(_, _, l)| !l.negated).count();
        out.engine = "pattern";
        out.buffer = Some(rules.buffers.name(buffer));
        out.pattern = Some(words::pattern(&fast.bytes));
        out.nocase = Some(fast.nocase);
        out.why = match (named, usable) {
            (true, _) => "the rule names it with `fast_pattern`".to_owned(),
            (false, 1) => "the only literal that must occur".to_owned(),
            (false, _) => "the longest and most varied literal that must occur; literals in buffers of transactions are preferred to those in payload"
                .to_owned(),
        };
        for (value, item, literal) in &all {
            if *value == fast.value && *item == fast.item {
                continue;
            }
            let name = signature.values.get(*value).map_or("?", |v| rules.buffers.name(v.buffer));
            let why = if literal.negated { "must not occur" } else { "weaker, or not named" };
            out.others.push(format!("{} in {name}: {why}", words::pattern(&literal.bytes)));
        }
    } else if let Some(key) = signature.packet.iter().find_map(|c| c.prefilter()) {
        out.engine = "key";
        out.why = match key {
            PrefilterKey::DecodeEvent(_) => "the rule is evaluated on packets with this decode event only",
            PrefilterKey::StreamEvent(_) => "the rule is evaluated on packets with this stream event only",
            PrefilterKey::IcmpType(_) => "the rule is evaluated on packets of this ICMP type only",
        }
        .to_owned();
    } else {
        out.why = if all.is_empty() {
            "the rule has no `content`".to_owned()
        } else {
            "every `content` of the rule is negated, or its buffer may be absent".to_owned()
        };
    }
    let place = if signature.inspects_tx() {
        let apps = apps(signature);
        format!(
            "transactions of {}",
            if apps.is_empty() { "any protocol".to_owned() } else { apps.join(", ") }
        )
    } else {
        evaluated_group(signature)
    };
    out.groups = directions.iter().map(|d| format!("{place}, {d}")).collect();
    out
}

fn evaluated_group(signature: &Signature) -> String {
    let basis = Basis::of(signature);
    let names: Vec<&str> = (signature.protocol.ip.iter())
        .map(|p| match p {
            1 => "ICMP",
            6 => "TCP",
            17 => "UDP",
            58 => "ICMPv6",
            _ => "other",
        })
        .collect();
    let protocols = if names.is_empty() { "all".to_owned() } else { names.join(", ") };
    match basis {
        Basis { stream: false, .. } => format!("packets of {protocols}"),
        Basis { packets: Packets::None, .. } => format!("streams of {protocols}"),
        _ => format!("packets and streams of {protocols}"),
    }
}

/// Adds what keywords contributed beside buffers: head, conditions on packets, effects, conditions on
/// transactions.
fn options(explanation: &mut RuleExplanation, rule: &Rule, origins: &[Origin]) {
    let required = |o: &OptionRef<'_>| o.keyword().eq_ignore_ascii_case("requires");
    // Options in the order of parsing: `requires` comes first.
    let options = rule.iter().filter(required).chain(rule.iter().filter(|o| !required(o)));
    let Some((head, origins)) = origins.split_first() else { return };
    let mut before = *head;
    for (option, origin) in options.zip(origins) {
        let kind = match () {
            () if origin.packet > before.packet => "packet",
            () if origin.tx > before.tx => "transaction",
            () if origin.effects > before.effects => "effect",
            () if origin.thresholds > before.thresholds => "threshold",
            () if origin.keyword == "flow" => "head",
            () => "",
        };
        before = *origin;
        if kind.is_empty() {
            continue;
        }
        let summary = keywords::find(origin.keyword).map_or("", |k| k.summary);
        let value = option.value().map(|v| String::from_utf8_lossy(v).into_owned()).unwrap_or_default();
        let text = if value.is_empty() { summary.to_owned() } else { format!("{}: {summary}", cut(value)) };
        let condition = Condition { kind, name: origin.keyword.to_owned(), text, transforms: Vec::new() };
        match kind {
            "threshold" | "effect" => explanation.effects.push(condition),
            _ => explanation.conditions.push(condition),
        }
    }
}

/// Adds conditions on buffers at their place in the order of evaluation: after head and packet, before
/// transactions.
fn buffers(explanation: &mut RuleExplanation, rules: &RuleSet, signature: &Signature) {
    let place = |c: &Condition| match c.kind {
        "head" => 0,
        "packet" => 1,
        _ => 2,
    };
    explanation.conditions.sort_by_key(place);
    let transactions = explanation.conditions.iter().position(|c| place(c) == 2);
    let transactions = explanation.conditions.split_off(transactions.unwrap_or(explanation.conditions.len()));
    for value in &signature.values {
        let name = rules.buffers.name(value.buffer);
        let texts: Vec<String> = value.program.items.iter().map(words::item).collect();
        let mut text = match (texts.is_empty(), value.absent) {
            (true, Absent::Only) => "is absent".to_owned(),
            (true, _) => "is there".to_owned(),
            (false, _) => texts.join("; then "),
        };
        if value.absent == Absent::OrElse {
            text = format!("is absent, or: {text}");
        }
        explanation.conditions.push(Condition {
            kind: "buffer",
            name: name.to_owned(),
            text,
            transforms: value.transforms.iter().map(|t| t.key()).collect(),
        });
    }
    explanation.conditions.extend(transactions);
    if signature.bypass {
        explanation.effects.push(Condition {
            kind: "effect",
            name: "bypass".to_owned(),
            text: "ids has finished with the flow and leaves its path".to_owned(),
            transforms: Vec::new(),
        });
    }
}

fn warnings(rules: &RuleSet, signature: &Member, explanation: &RuleExplanation) -> Vec<String> {
    let mut warnings = Vec::new();
    if explanation.prefilter.engine == "none" && !signature.is_ip_only() && !signature.is_detection_only() {
        let on = explanation.evaluated_on.join(" and ");
        warnings.push(format!(
            "no fast pattern: {}; the rule is evaluated on {on} that match its head. Add a `content` that must occur",
            explanation.prefilter.why
        ));
    }
    if let Some(fast) = &signature.fast_pattern
        && fast.bytes.len() < 4
    {
        warnings.push(format!(
            "a short fast pattern ({} bytes) occurs often, and the rule is evaluated each time; use a longer `content`",
            fast.bytes.len()
        ));
    }
    let anywhere = signature.protocol.app.is_empty()
        && rules.heads.get(TenantId::default(), signature.head).is_some_and(|head| head.is_any());
    if anywhere && explanation.prefilter.engine == "none" {
        warnings
            .push("the head matches all traffic: add addresses, ports or an application protocol".to_owned());
    }
    let stream = !signature.values.is_empty() && !signature.inspects_tx() && Basis::of(signature).stream;
    if stream && !signature.flow.intersects(FlowNeeds::TO_SERVER | FlowNeeds::TO_CLIENT) {
        warnings.push(
            "the rule is evaluated on both directions of streams; `flow:to_server` or `flow:to_client` halves the work"
                .to_owned(),
        );
    }
    if !signature.reports() && signature.action == RuleAction::Alert && explanation.effects.is_empty() {
        warnings.push("`noalert` in a rule without another effect: a match does nothing".to_owned());
    }
    let slow = |item: &Item| matches!(item, Item::Regex(_));
    if explanation.prefilter.engine == "none"
        && signature.values.iter().any(|v| v.program.items.iter().any(slow))
    {
        warnings.push("a `pcre` without a literal `content` runs on every value".to_owned());
    }
    warnings
}
