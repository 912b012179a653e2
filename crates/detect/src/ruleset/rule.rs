// SPDX-License-Identifier: Apache-2.0
//! One rule, from its syntax tree through its keywords to the model.

use crate::compile::builder::{Origin, SignatureBuilder};
use crate::compile::environment::Environment;
use crate::compile::heads::{BadHead, HeadCollector};
use crate::compile::keyword::Argument;
use crate::compile::known::RuleCache;
use crate::compile::refusal::{KeywordError, RefusalCode};
use crate::compile::unknown_classes::UnknownClasses;
use crate::compile::{conflicts, fast_pattern, firewall, hook, protocol};
use crate::keywords;
use crate::model::buffers::{BufferRef, Buffers};
use crate::model::hook::Hook;
use crate::model::signature::{AlertTarget, FlowNeeds, Kind, Member, RejectSide, RuleAction, Signature};
use crate::state::shared::Shared;
use bartizan_base::{SettingsMap, TenantId};
use bartizan_function::RuleInfo;
use bartizan_pattern::Compiler;
use bartizan_rules::{
    AddressExpr, Classifications, Diagnostic, ReferenceSystems, Resolver, Rule, RuleVariables, Severity,
    dialect_of, suggest,
};
use std::collections::HashSet;
use std::sync::Arc;

/// Inputs of loading beside the rules.
pub struct LoadInput<'l> {
    /// Settings of the engine.
    pub settings: &'l SettingsMap,
    /// Address and port groups.
    pub variables: &'l RuleVariables,
    /// Classes of `classtype`.
    pub classifications: Option<&'l Classifications>,
    /// Systems of `reference`.
    pub references: Option<&'l ReferenceSystems>,
    /// State that outlives generations.
    pub shared: &'l Arc<Shared>,
    /// Compiles pattern sets.
    pub compiler: &'l Compiler,
    /// Address and port groups of tenants that have their own: these and, for other names, those of the
    /// settings.
    pub tenants: &'l [(TenantId, RuleVariables)],
    /// Cache of rules compiled with the same inputs except rules and tenants; rules that still exist are
    /// shared.
    pub known: Option<&'l RuleCache>,
}

/// A compiled rule.
pub(super) struct CompiledRule {
    pub(super) signature: Signature,
    pub(super) head: u32,
    pub(super) origins: Vec<Origin>,
    /// The rule depends only on its text and on inputs that are the same at all loads.
    pub(super) lasts: bool,
}

/// Whether a rule belongs to the firewall or to detection.
#[derive(Clone, Copy)]
pub(super) struct Whose {
    /// The rule is a firewall rule.
    pub(super) own: bool,
    /// Firewall mode is on.
    pub(super) mode: bool,
}

pub(super) type RuleRefusal = (RefusalCode, Box<Diagnostic>);

/// State that the rules of a set share while they are compiled.
pub(super) struct Rest<'r, 'v> {
    pub(super) heads: &'r mut HeadCollector,
    pub(super) resolver: &'r mut Resolver<'v>,
    pub(super) classes: &'r mut UnknownClasses,
    /// Texts that several rules have, each once.
    pub(super) words: &'r mut HashSet<Arc<str>>,
}

/// A text that other rules may have as well, shared between them.
fn shared_text(words: &mut HashSet<Arc<str>>, text: &[u8]) -> Arc<str> {
    let text = String::from_utf8_lossy(text);
    if let Some(known) = words.get(&*text) {
        return Arc::clone(known);
    }
    let new: Arc<str> = text.into();
    words.insert(Arc::clone(&new));
    new
}

/// A rule from the cache, or compiled now. `None`: a condition of its `requires` is not met.
pub(super) fn member(
    rule: &Rule,
    whose: Whose,
    environment: &Environment<'_>,
    input: &LoadInput<'_>,
    rest: &mut Rest<'_, '_>,
) -> Result<Option<Member>, RuleRefusal> {
    if let Some(known) = input.known.and_then(|known| known.find(rule.raw()))
        && known.firewall.is_some() == whose.own
        && let Ok(head) = rest.heads.add(rule, &known.protocol, rest.resolver)
    {
        return Ok(Some(Member::new(known, head)));
    }
    let Some(built) = compile(rule, whose, environment, input, rest)? else { return Ok(None) };
    let signature = Arc::new(built.signature);
    if let Some(known) = input.known.filter(|_| built.lasts) {
        known.add(rule.raw(), &signature);
    }
    Ok(Some(Member::new(signature, built.head)))
}

/// Compiles one rule. `None`: a condition of its `requires` is not met.
pub(super) fn compile(
    rule: &Rule,
    whose: Whose,
    environment: &Environment<'_>,
    input: &LoadInput<'_>,
    rest: &mut Rest<'_, '_>,
) -> Result<Option<CompiledRule>, RuleRefusal> {
    environment.take_outside();
    if !whose.own {
        firewall::check_detection(rule, whose.mode).map_err(|e| refuse(rule, e, rule.actions))?;
    }
    let protocol = protocol::parse(rule.protocol()).map_err(|e| refuse(rule, e, rule.protocol))?;
    let mut builder = SignatureBuilder::new(environment, rule.id(), protocol);
    if let Some(hook) = rule.hook() {
        hook::apply(&mut builder, rule.protocol(), hook).map_err(|e| refuse(rule, e, rule.protocol))?;
    }
    builder.note_origin("head");
    // `requires` comes first: a rule for newer engines may have any other keyword.
    let required = |o: &bartizan_rules::OptionRef<'_>| o.keyword().eq_ignore_ascii_case("requires");
    for option in rule.iter().filter(required).chain(rule.iter().filter(|o| !required(o))) {
        let name = option.keyword();
        let value = option.value().unwrap_or_default();
        let Some(keyword) = keywords::find(name) else {
            // Every buffer of a protocol is a keyword.
            let sticky = keywords::sticky::find(name, environment.buffers);
            let sticky = sticky.ok_or_else(|| unknown(rule, name, &option))?;
            sticky.apply(&mut builder, value).map_err(|e| refuse(rule, e, option.option.span))?;
            builder.note(sticky.name);
            continue;
        };
        let fits = match keyword.argument {
            Argument::None => value.is_empty(),
            Argument::Required => !value.is_empty(),
            Argument::Optional => true,
        };
        if !fits {
            let what = if value.is_empty() { "needs a value" } else { "takes no value" };
            let error = KeywordError::argument(format!("`{name}` {what}"));
            return Err(refuse(rule, error, option.option.span));
        }
        let before = builder.weight();
        match keyword.apply(&mut builder, value) {
            Ok(()) if keyword.role.must_weigh() && builder.weight() == before => {
                let error = KeywordError::new(
                    RefusalCode::NoEffect,
                    format!("`{name}` would have no effect in this rule"),
                );
                return Err(refuse(rule, error.help("please report the rule"), option.option.span));
            }
            Ok(()) => builder.note(keyword.name),
            Err(error) if error.code == RefusalCode::RequirementUnmet => return Ok(None),
            Err(error) => {
                let place = match &error.range {
                    Some(range) => option.place(range.start, range.end),
                    None => place_of(&option, &error.message),
                };
                return Err(refuse(rule, error, place));
            }
        }
    }
    finish(rule, whose, builder, input, rest).map(Some)
}

/// The part of an option that a message's first word in back quotes names: its keyword, or a word that its
/// value has exactly once. Otherwise the whole option.
fn place_of(option: &bartizan_rules::OptionRef<'_>, message: &str) -> bartizan_rules::Span {
    let whole = option.option.span;
    let value = option.value().unwrap_or_default();
    let Some(word) = message.split('`').nth(1).filter(|word| !word.is_empty()) else { return whole };
    if word.eq_ignore_ascii_case(option.keyword()) {
        return option.option.keyword;
    }
    let mut found =
        (0..value.len()).filter(|at| value.get(*at..).is_some_and(|v| v.starts_with(word.as_bytes())));
    match (found.next(), found.next()) {
        (Some(at), None) => option.place(at, at + word.len()),
        _ => whole,
    }
}

fn unknown(rule: &Rule, name: &str, option: &bartizan_rules::OptionRef<'_>) -> RuleRefusal {
    let place = option.option.keyword;
    if let Some(dialect) = dialect_of(name) {
        let error = KeywordError::new(
            RefusalCode::OtherDialect,
            format!("`{name}` is a keyword of {dialect}, not of Suricata"),
        );
        return refuse(rule, error, place);
    }
    if let Some(reason) = keywords::refusal(name) {
        let reason = reason.trim_end_matches('.').to_ascii_lowercase();
        let error = KeywordError::new(
            RefusalCode::UnsupportedKeyword,
            format!("`{name}` is not evaluated: {reason}"),
        );
        return refuse(rule, error, place);
    }
    let mut error = KeywordError::new(RefusalCode::UnknownKeyword, format!("unknown keyword `{name}`"));
    if let Some(near) = suggest(name, keywords::all().map(|k| k.name)) {
        error = error.help(format!("did you mean `{near}`?"));
    }
    refuse(rule, error, place)
}

fn refuse(rule: &Rule, error: KeywordError, place: bartizan_rules::Span) -> RuleRefusal {
    let mut diagnostic = rule.diagnostic(place, Severity::Error, error.code.code(), error.message);
    if let Some(help) = error.help {
        diagnostic = diagnostic.help(help);
    }
    (error.code, Box::new(diagnostic))
}

/// A rule's description for events: `category` and `severity` of its class, `target` from its keyword.
fn info(
    rule: &Rule,
    input: &LoadInput<'_>,
    words: &mut HashSet<Arc<str>>,
    category: Option<String>,
    severity: u32,
    target: Option<AlertTarget>,
) -> RuleInfo {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut references: Vec<String> = rule
        .references()
        .map(|(system, id)| {
            let prefix = input.references.and_then(|r| r.get(system)).map_or("", |r| r.prefix.as_str());
            format!("{prefix}{id}")
        })
        .collect();
    let target = target.or(rule.meta.target.map(|t| match t {
        bartizan_rules::RuleTarget::Source => AlertTarget::Source,
        bartizan_rules::RuleTarget::Destination => AlertTarget::Destination,
    }));
    let mut metadata: Vec<_> =
        rule.metadata().map(|(k, v)| (shared_text(words, k), shared_text(words, v))).collect();
    metadata.shrink_to_fit();
    references.shrink_to_fit();
    RuleInfo {
        id: rule.id(),
        message: text(&rule.msg()),
        category: category.unwrap_or_default(),
        severity,
        references,
        metadata,
        target_is_source: target.map(|t| t == AlertTarget::Source),
        text: text(rule.raw()),
        firewall: None,
    }
}

fn finish(
    rule: &Rule,
    whose: Whose,
    mut builder: SignatureBuilder<'_>,
    input: &LoadInput<'_>,
    rest: &mut Rest<'_, '_>,
) -> Result<CompiledRule, RuleRefusal> {
    let Rest { heads, resolver, classes, words } = rest;
    let buffers = builder.environment.buffers;
    let values = builder.finish_values().map_err(|e| refuse(rule, e, rule.span))?;
    let firewall = if whose.own {
        Some(firewall::check_firewall(rule, &builder).map_err(|e| refuse(rule, e, rule.actions))?)
    } else {
        None
    };
    let (firewall, reports) = firewall.map_or((None, false), |(own, reports)| (Some(Box::new(own)), reports));
    let head = heads.add(rule, &builder.protocol, resolver).map_err(|BadHead { error, place }| {
        let place = place.slice(error.span.start as usize, error.span.end as usize);
        refuse(rule, KeywordError::new(RefusalCode::BadAddress, error.kind.to_string()), place)
    })?;
    let mut unknown = false;
    let mut category = None;
    let mut class_priority = None;
    if let Some(name) = rule.classtype() {
        let found = input.classifications.and_then(|c| c.get(name));
        unknown = found.is_none();
        category = Some(found.map_or_else(|| classes.add(rule, name), |c| c.description.clone()));
        class_priority = Some(found.map_or(3, |c| c.priority));
    }
    let priority = builder.priority.or(rule.meta.priority).or(class_priority).unwrap_or(3);
    let info = info(rule, input, words, category, priority, builder.target);
    let info =
        RuleInfo { firewall: firewall.as_ref().map(|own| (own.hook.clone(), own.policy.clone())), ..info };
    let mut signature = Signature {
        id: rule.id(),
        action: action(rule.action),
        scope: rule.scope,
        firewall,
        info: Arc::new(info),
        priority,
        alert: if whose.own { reports } else { builder.alert },
        kind: Kind::default(),
        noalert: builder.noalert || rule.action == bartizan_rules::ParsedRuleAction::Config,
        protocol: builder.protocol,
        flow: builder.flow,
        packet: builder.packet,
        values,
        tx: core::mem::take(&mut builder.tx),
        hooked: builder.hooked || builder.hook.is_some(),
        repeats: false,
        spans_directions: false,
        varies: true,
        effects: builder.effects,
        requests: builder.requests,
        thresholds: builder.thresholds,
        fast_pattern: None,
        bypass: builder.bypass,
        tags: builder.seen.contains(&"tag"),
        file_hashes: builder.file_hashes,
        ordering: builder.ordering,
    };
    if signature.inspects_frames() {
        frames_alone(&signature).map_err(|e| refuse(rule, e, rule.span))?;
    }
    apply_hook(rule, whose, builder.hook, buffers, &mut signature)?;
    plan_inspection(rule, buffers, &mut signature)?;
    let negated =
        is_negated(&rule.src.expr, input.variables, 0) || is_negated(&rule.dst.expr, input.variables, 0);
    signature.kind = Kind::of(&signature, negated);
    let lasts = !builder.environment.take_outside() && !unknown;
    Ok(CompiledRule { signature, head, origins: builder.origins, lasts })
}

/// Completes a rule with a hook; refuses a firewall rule whose conditions do not fit its hook.
fn apply_hook(
    rule: &Rule,
    whose: Whose,
    hook: Option<Hook>,
    buffers: &Buffers,
    signature: &mut Signature,
) -> Result<(), RuleRefusal> {
    let is_on_packets = hook.is_none();
    hook::finish(hook, buffers, signature, whose.own).map_err(|e| refuse(rule, e, rule.protocol))?;
    if whose.own && is_on_packets && (signature.inspects_tx() || signature.inspects_frames()) {
        let error =
            KeywordError::context("the rule has conditions on transactions, and its hook is one of packets")
                .help("hook it to a state of the protocol: `http1:request_line`");
        return Err(refuse(rule, error, rule.protocol));
    }
    Ok(())
}

/// Decides in which order and direction a rule's conditions are evaluated, and by which literal it is found;
/// refuses conditions that exclude each other.
fn plan_inspection(rule: &Rule, buffers: &Buffers, signature: &mut Signature) -> Result<(), RuleRefusal> {
    let refused = |error| refuse(rule, error, rule.span);
    conflicts::check(signature, buffers).map_err(refused)?;
    payload_first(signature);
    narrow_direction(signature, buffers);
    signature.spans_directions = spans_directions(signature, buffers);
    conflicts::check_direction(signature, rule.direction, |d| has_all(signature, buffers, d))
        .map_err(refused)?;
    signature.fast_pattern = fast_pattern::choose(signature, buffers);
    signature.note_whether_it_varies();
    Ok(())
}

/// Refuses conditions on transactions or single packets in a rule on protocol frames, which are pieces of the
/// stream.
fn frames_alone(signature: &Signature) -> Result<(), KeywordError> {
    let tx =
        !signature.tx.is_empty() || signature.values.iter().any(|v| matches!(v.buffer, BufferRef::Tx(_)));
    if tx {
        return Err(KeywordError::context(
            "one rule cannot have conditions on protocol frames and on transactions",
        ));
    }
    let of_packet = signature.packet.iter().any(|c| c.needs_packet())
        || signature.values.iter().any(|v| matches!(v.buffer, BufferRef::Packet(_)));
    if of_packet {
        return Err(KeywordError::context(
            "one rule cannot have conditions on protocol frames and on single packets",
        ));
    }
    Ok(())
}

/// Whether an address expression contains a negation; groups are followed.
fn is_negated(expr: &AddressExpr, variables: &RuleVariables, depth: u8) -> bool {
    if expr.has_negation() {
        return true;
    }
    let mut negated = false;
    expr.each_variable(&mut |name| {
        let group = variables.addresses().find(|(n, _)| *n == name);
        negated |= depth < 16 && group.is_some_and(|(_, e)| is_negated(e, variables, depth + 1));
    });
    negated
}

/// Moves the payload to the front, as Suricata does: later buffers use the variables that it extracts.
fn payload_first(signature: &mut Signature) {
    signature.values.sort_by_key(|v| v.buffer != BufferRef::Payload);
}

/// Whether the rule's conditions on transactions lie partly in one direction and partly in the other.
fn spans_directions(signature: &Signature, buffers: &Buffers) -> bool {
    !bartizan_base::Direction::BOTH.into_iter().any(|direction| has_all(signature, buffers, direction))
}

/// Whether one direction has all data for the rule's conditions on transactions.
fn has_all(signature: &Signature, buffers: &Buffers, direction: bartizan_base::Direction) -> bool {
    signature.tx.iter().all(|check| check.directions[direction])
        && signature.values.iter().all(|value| match value.buffer {
            BufferRef::Tx(index) => {
                buffers.tx(index).is_some_and(|b| b.directions()[direction])
                    && value.direction.is_none_or(|only| only == direction)
            }
            _ => true,
        })
}

/// Sets the direction of a rule whose buffers all lie in one direction and that names none.
fn narrow_direction(signature: &mut Signature, buffers: &Buffers) {
    use bartizan_base::{Direction, PerDirection};
    if signature.flow.intersects(FlowNeeds::TO_SERVER | FlowNeeds::TO_CLIENT) {
        return;
    }
    let mut union = PerDirection::new(false, false);
    let mut any = false;
    for value in &signature.values {
        if let BufferRef::Tx(index) = value.buffer
            && let Some(buffer) = buffers.tx(index)
        {
            any = true;
            let has = buffer.directions();
            union.to_server |= has.to_server && value.direction != Some(Direction::ToClient);
            union.to_client |= has.to_client && value.direction != Some(Direction::ToServer);
        }
    }
    for check in &signature.tx {
        any = true;
        union.to_server |= check.directions.to_server;
        union.to_client |= check.directions.to_client;
    }
    if any && union.to_server != union.to_client {
        signature.flow |= if union.to_server { FlowNeeds::TO_SERVER } else { FlowNeeds::TO_CLIENT };
    }
}

const fn action(action: bartizan_rules::ParsedRuleAction) -> RuleAction {
    use bartizan_rules::ParsedRuleAction as Written;
    match action {
        Written::Alert => RuleAction::Alert,
        Written::Pass => RuleAction::Pass,
        Written::Drop => RuleAction::Drop,
        Written::Reject => RuleAction::Reject(RejectSide::Source),
        Written::RejectDst => RuleAction::Reject(RejectSide::Destination),
        Written::RejectBoth => RuleAction::Reject(RejectSide::Both),
        Written::Config => RuleAction::Config,
        Written::Accept => RuleAction::Accept,
    }
}

/// The size of a rule's signature after each of its keywords; empty for a rule that does not load. For
/// `explain`.
#[must_use]
pub fn origins(rule: &Rule, input: &LoadInput<'_>) -> Vec<Origin> {
    let buffers = Buffers::new();
    let environment = Environment::new(&buffers, input.settings, input.shared, std::path::Path::new(""));
    let mut rest = Rest {
        heads: &mut HeadCollector::default(),
        resolver: &mut input.variables.resolver(),
        classes: &mut UnknownClasses::default(),
        words: &mut HashSet::new(),
    };
    match compile(rule, Whose { own: false, mode: false }, &environment, input, &mut rest) {
        Ok(Some(built)) => built.origins,
        _ => Vec::new(),
    }
}
