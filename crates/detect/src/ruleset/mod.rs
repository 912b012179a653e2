// SPDX-License-Identifier: Apache-2.0
//! A compiled set of rules: one generation of detection.

use crate::compile::builder::{Environment, Origin, SignatureBuilder};
use crate::compile::fast_pattern;
use crate::compile::firewall::{self, Act, Firewall, Policies};
use crate::compile::keyword::{Argument, KeywordError, RefusalCode};
use crate::compile::known::Known;
use crate::compile::prefilter::{self, Prefilters};
use crate::compile::protocol;
pub use crate::compile::unknown_classes::UNKNOWN_CLASS;
use crate::compile::unknown_classes::UnknownClasses;
use crate::keywords;
use crate::model::buffers::{BufferRef, Buffers};
use crate::model::content::Item;
use crate::model::heads::{BadHead, Collector, Heads};
use crate::model::signature::{AlertTarget, FlowNeeds, Kind, Member, RejectSide, RuleAction, Signature};
use crate::state::shared::Shared;
use bartizan_base::{Generation, RuleId, Settings, TenantId};
use bartizan_function::{RuleInfo, Together};
use bartizan_pattern::Compiler;
use bartizan_rules::{
    AddressExpr, Classifications, Diagnostic, Duplicate, Duplicates, ReferenceSystems, Resolver, Rule,
    RuleFile, RuleSetReport, Severity, Variables, dialect_of, suggest,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub mod needs;

/// What loading needs beside the rules.
pub struct LoadInput<'l> {
    /// Settings of the engine.
    pub settings: &'l Settings,
    /// Address and port groups.
    pub variables: &'l Variables,
    /// Classes of `classtype`.
    pub classifications: Option<&'l Classifications>,
    /// Systems of `reference`.
    pub references: Option<&'l ReferenceSystems>,
    /// What outlives generations.
    pub shared: &'l Arc<Shared>,
    /// Compiles pattern sets.
    pub compiler: &'l Compiler,
    /// Number of the generation that is built.
    pub generation: Generation,
    /// Address and port groups of tenants that have some of their own: those and, for other names, the settings'.
    pub tenants: &'l [(TenantId, Variables)],
    /// Rules that were compiled before with all the same beside the rules and tenants; those that still live are shared.
    pub known: Option<&'l Known>,
}

/// A compiled set of rules.
pub struct RuleSet {
    /// Number of the generation.
    pub generation: Generation,
    /// The rules in the order of evaluation.
    pub signatures: Vec<Member>,
    /// Addresses and ports of their heads, and which is whose.
    pub heads: Heads,
    pub(crate) head_of: Vec<u32>,
    /// Buffers by number.
    pub buffers: Buffers,
    /// Which rules are worth evaluating.
    pub prefilters: Prefilters,
    /// What became of the rules that were given.
    pub report: RuleSetReport,
    /// What belongs to no generation.
    pub shared: Arc<Shared>,
    /// Alerts of rules on packets and streams show the transaction that they are probably about.
    pub guess_tx: bool,
    /// Some rule tags packets: hosts are asked about every packet.
    pub tags: bool,
    /// For one transaction so often.
    pub guess_limit: u8,
    /// Rules that say more than alert, by generator and number: what they decided of flows stands with them.
    pub(crate) deciding: HashMap<(u32, u32), Says>,
    /// Firewall mode is on: the tables of its rules, which stand behind those of detection in `signatures`.
    pub firewall: Option<Firewall>,
    /// Rules of the firewall that accept flows, by generator and number: a flow stays accepted as long as there is such a rule.
    accepting: HashSet<(u32, u32)>,
}

/// What a rule can decide of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// It passes.
    Pass,
    /// It is dropped or rejected.
    Refuse,
}

impl Says {
    const fn of(action: RuleAction) -> Option<Self> {
        match action {
            RuleAction::Pass => Some(Says::Pass),
            RuleAction::Drop | RuleAction::Reject(_) => Some(Says::Refuse),
            RuleAction::Alert | RuleAction::Config | RuleAction::Accept => None,
        }
    }

    /// What a rule can decide of what detection does with a flow.
    fn of_rule(signature: &Signature) -> Option<Self> {
        match &signature.firewall {
            // What the firewall refuses is its own matter.
            Some(rule) => rule.pass.then_some(Says::Pass),
            None => Says::of(signature.action),
        }
    }
}

impl RuleSet {
    /// Whether there is such a rule, of whatever revision, and that is what it says.
    #[must_use]
    pub fn says(&self, rule: &RuleId, what: Says) -> bool {
        self.deciding.get(&(rule.gid, rule.sid)) == Some(&what)
    }

    /// Whether the firewall has a rule of this number, of whatever revision, that accepts flows.
    #[must_use]
    pub fn accepts(&self, rule: &RuleId) -> bool {
        self.accepting.contains(&(rule.gid, rule.sid))
    }

    /// Whether some rule refuses what speaks another protocol than it says (`app-layer-protocol:!tls`).
    #[must_use]
    pub fn waits_for_protocol(&self) -> bool {
        let refuses = |s: &Member| matches!(s.action, RuleAction::Drop | RuleAction::Reject(_));
        self.signatures.iter().any(|s| refuses(s) && s.packet.iter().any(|c| c.is_detection()))
    }

    /// Whether there is no rule at all: flows are only recorded.
    #[must_use]
    pub fn watches_nothing(&self) -> bool {
        self.signatures.is_empty() && self.firewall.is_none()
    }

    /// How segments of a stream that came together may be shown.
    #[must_use]
    pub fn together(&self) -> Together {
        let replaces = |s: &Member| {
            s.values.iter().any(|v| v.program.literals().any(|(_, literal)| literal.replace.is_some()))
        };
        if self.tags || self.firewall.is_some() || self.signatures.iter().any(replaces) {
            // What is tagged or changed is the packet, and each is judged by the firewall.
            Together::Apart
        } else if self.prefilters.looks_at_segments() {
            Together::StreamJoined
        } else {
            Together::Joined
        }
    }
}

/// Nothing of the generation can be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A pattern engine could not build the sets.
    #[error("the pattern sets of the rules cannot be built: {0}")]
    Patterns(#[from] bartizan_pattern::BuildError),
    /// The firewall's settings cannot be understood.
    #[error("{0}")]
    Firewall(#[from] bartizan_base::SettingError),
}

/// Outcome of loading: the set, and what is to be said about single rules.
pub struct Loaded {
    /// The set.
    pub rules: RuleSet,
    /// One finding per refused rule, and warnings.
    pub diagnostics: Vec<Diagnostic>,
    /// Rules of the firewall that are not there, whatever the reason: what they accept or refuse is decided by others.
    pub firewall_refused: u64,
    /// The refused rules, by file.
    pub refused: Vec<RefusedRule>,
}

/// A rule that is not there, or a line that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRule {
    /// Gid and sid, as far as they could be read.
    pub id: Option<(u32, u32)>,
    /// It is no rule, or one that Suricata refuses as well; else it is right and cannot be evaluated here.
    pub malformed: bool,
    /// The file, as it was named to the parser.
    pub file: Arc<str>,
    /// Line and character of what is wrong, from 1.
    pub place: (u32, u32),
    /// What is wrong.
    pub message: String,
}

impl RefusedRule {
    fn of(rule: &Rule, code: RefusalCode, finding: &Diagnostic) -> Self {
        RefusedRule {
            id: Some((rule.id().gid, rule.id().sid)),
            malformed: !code.is_unsupported(),
            file: Arc::clone(&finding.file),
            place: (finding.line, finding.column),
            message: finding.message.clone(),
        }
    }

    /// The lines of a file that are no rules, each with its first error.
    fn lines(file: &RuleFile) -> impl Iterator<Item = Self> {
        let mut errors = file.diagnostics.iter().filter(|d| d.severity == Severity::Error).peekable();
        file.refused.iter().map(move |line| {
            // Both are in the order of the file.
            while errors.next_if(|error| error.line < line.line).is_some() {}
            let error = errors.peek();
            RefusedRule {
                id: line.sid.map(|sid| (1, sid)),
                malformed: true,
                file: Arc::clone(file.source.name()),
                place: error.map_or((line.line, 1), |error| (error.line, error.column)),
                message: error.map_or_else(|| line.code.to_owned(), |error| error.message.clone()),
            }
        })
    }
}

/// A compiled rule.
struct Built {
    signature: Signature,
    head: u32,
    origins: Vec<Origin>,
    /// It is what it is because of its text and what is the same at all loads.
    lasts: bool,
}

/// Compiles rules. Single rules that cannot be loaded are refused with a diagnostic; the others make up the set.
///
/// The rules are taken out of their files: a large set's syntax trees hold as much memory as what is made of them, and pattern sets,
/// which come last, need theirs for a while.
///
/// # Errors
/// The pattern sets cannot be built, or a policy of the firewall cannot be understood.
pub fn load(files: &mut [RuleFile], input: &LoadInput<'_>) -> Result<Loaded, LoadError> {
    input.shared.begin_load();
    input.known.into_iter().for_each(Known::tidy);
    let buffers = Buffers::new();
    let mut report = RuleSetReport::new();
    let mut diagnostics = Vec::new();
    let mut heads = Collector::default();
    let mut resolver = input.variables.resolver();
    let mut duplicates = Duplicates::default();
    let mut built: Vec<Option<Member>> = Vec::new();
    let mut words = HashSet::new();
    let mut classes = UnknownClasses::default();
    let firewall = firewall::is_enabled(input.settings)?;
    let mut firewall_refused = 0u64;
    let mut refused = Vec::new();
    for file in files {
        report.add_file(file);
        if file.firewall {
            firewall_refused += file.refused.len() as u64;
        }
        diagnostics.extend(file.diagnostics.iter().cloned());
        refused.extend(RefusedRule::lines(file));
        let name = file.source.name().to_string();
        let folder = std::path::Path::new(&name).parent().unwrap_or(std::path::Path::new("")).to_owned();
        let environment = Environment::new(&buffers, input.settings, input.shared, &folder);
        let mut rest =
            Rest { heads: &mut heads, resolver: &mut resolver, classes: &mut classes, words: &mut words };
        for rule in core::mem::take(&mut file.rules) {
            let rule = &rule;
            let whose = Whose { own: file.firewall, mode: firewall };
            match member(rule, whose, &environment, input, &mut rest) {
                Ok(None) => report.skip("requires"),
                Ok(Some(one)) => match judge(&mut duplicates, rule, &built, file.firewall) {
                    Duplicate::New => {
                        report.load();
                        built.push(Some(one));
                    }
                    Duplicate::Replaces(before) => {
                        report.skip("older revision");
                        if let Some(slot) = built.get_mut(before) {
                            *slot = None;
                        }
                        built.push(Some(one));
                    }
                    Duplicate::Refused(_) => {
                        // Nobody has this place: a rule that is refused as the firewall's or not may have been given it.
                        built.push(None);
                        report.refuse(RefusalCode::Duplicate.name());
                        firewall_refused += u64::from(file.firewall);
                        let message = format!(
                            "a rule with gid {} and sid {} stands earlier",
                            rule.id().gid,
                            rule.id().sid
                        );
                        let code = RefusalCode::Duplicate;
                        let finding = rule.diagnostic(rule.span, Severity::Error, code.code(), message);
                        refused.push(RefusedRule::of(rule, code, &finding));
                        diagnostics.push(finding);
                    }
                },
                Err((code, finding)) => {
                    firewall_refused += u64::from(file.firewall);
                    count(&mut report, rule, code, &finding);
                    refused.push(RefusedRule::of(rule, code, &finding));
                    diagnostics.push(*finding);
                }
            }
        }
    }
    diagnostics.extend(classes.finish(input.classifications));
    let built = built.into_iter().flatten();
    let (of_firewall, mut signatures): (Vec<Member>, Vec<Member>) =
        built.partition(|member| member.firewall.is_some());
    sort(&mut signatures, &action_order(input.settings));
    let detecting = signatures.len();
    // Those of the firewall keep the order of their files; no prefilter leads to them.
    signatures.extend(of_firewall);
    let policies = firewall.then(|| Policies::from_settings(input.settings)).transpose()?;
    if let Some(policies) = &policies {
        let mut classes = UnknownClasses::default();
        let mut rest =
            Rest { heads: &mut heads, resolver: &mut resolver, classes: &mut classes, words: &mut words };
        signatures.extend(reporting(policies, &buffers, input, &mut rest));
    }
    let prefilters =
        prefilter::build(signatures.get(..detecting).unwrap_or_default(), &buffers, input.compiler)?;
    let rules = RuleSet {
        tags: signatures.iter().any(|s| s.tags),
        generation: input.generation,
        head_of: signatures.iter().map(|s| s.head).collect(),
        deciding: signatures.iter().filter_map(|s| Some(((s.id.gid, s.id.sid), Says::of_rule(s)?))).collect(),
        accepting: signatures
            .iter()
            .filter(|s| s.firewall.as_ref().is_some_and(|f| f.act.accepts_flow()))
            .filter(|s| !firewall::POLICY_SIDS.contains(&s.id.sid))
            .map(|s| (s.id.gid, s.id.sid))
            .collect(),
        firewall: policies.map(|policies| Firewall::new(&signatures, &policies)),
        signatures,
        heads: heads.finish(input.tenants),
        buffers,
        prefilters,
        report,
        shared: Arc::clone(input.shared),
        guess_tx: input.settings.bool("detect.guess-applayer-tx", false).unwrap_or(false),
        guess_limit: input.settings.number("detect.stream-tx-log-limit", 4).unwrap_or(4),
    };
    Ok(Loaded { rules, diagnostics, firewall_refused, refused })
}

/// Rules in whose name the firewall's policies report.
fn reporting(
    policies: &Policies,
    buffers: &Buffers,
    input: &LoadInput<'_>,
    rest: &mut Rest<'_, '_>,
) -> Vec<Member> {
    let environment = Environment::new(buffers, input.settings, input.shared, std::path::Path::new(""));
    let mut made = Vec::new();
    for (sid, hook, policy, act, pass) in policies.reported() {
        let layer = if sid == firewall::POLICY_SIDS[0] { "packet" } else { "app" };
        let text = format!(
            "accept:hook,alert ip:all any any -> any any (msg:\"SURICATA FW default {layer} policy\"; sid:{sid}; rev:1;)"
        );
        let file = bartizan_rules::parse_file(text.into_bytes(), "firewall.policies");
        let whose = Whose { own: true, mode: true };
        for rule in &file.rules {
            let Ok(Some(Built { mut signature, head, .. })) = compile(rule, whose, &environment, input, rest)
            else {
                continue;
            };
            if let Some(own) = &mut signature.firewall {
                (own.hook, own.policy, own.act, own.pass) = (hook.clone(), policy.clone(), act, pass);
            }
            signature.action = firewall_action(act);
            let mut info = (*signature.info).clone();
            info.firewall = Some((hook.clone(), policy.clone()));
            signature.info = Arc::new(info);
            made.push(Member::new(Arc::new(signature), head));
        }
    }
    made
}

/// What detection calls the firewall's actions.
const fn firewall_action(act: Act) -> RuleAction {
    match act {
        Act::Accept(_) => RuleAction::Accept,
        Act::Refuse { reject: Some(side), .. } => RuleAction::Reject(side),
        Act::Refuse { reject: None, .. } => RuleAction::Drop,
        Act::Nothing => RuleAction::Config,
    }
}

/// Whose rule it is.
#[derive(Clone, Copy)]
struct Whose {
    /// The firewall's.
    own: bool,
    /// Firewall mode is on.
    mode: bool,
}

/// Whether a rule stands already. A rule of detection takes the place of none of the firewall, nor the other way round: that one would be
/// missing.
fn judge(duplicates: &mut Duplicates, rule: &Rule, built: &[Option<Member>], firewall: bool) -> Duplicate {
    let is_other = |before: usize| {
        built.get(before).and_then(Option::as_ref).is_some_and(|known| known.firewall.is_some() != firewall)
    };
    match duplicates.judge(rule, built.len()) {
        Duplicate::Replaces(before) if is_other(before) => Duplicate::Refused(before),
        judged => judged,
    }
}

/// Counts a refused rule, by the protocol or keyword if it is one that is not there.
fn count(report: &mut RuleSetReport, rule: &Rule, code: RefusalCode, finding: &Diagnostic) {
    if !code.is_unsupported() {
        return report.refuse(code.name());
    }
    let of_option = rule.iter().find(|o| {
        let span = o.option.span;
        (span.start..span.end).contains(&finding.span.start)
    });
    match of_option {
        Some(option) => report.refuse_keyword(code.name(), &option.keyword().to_ascii_lowercase()),
        None => report.refuse_protocol(code.name(), &rule.text(rule.protocol).to_ascii_lowercase()),
    }
}

/// Suricata's names of actions, in the order in which rules are evaluated unless `action-order` says otherwise.
const ACTIONS: [&str; 4] = ["pass", "drop", "reject", "alert"];

/// The order of actions that the settings ask for. Actions that are not named keep their places at the end.
fn action_order(settings: &Settings) -> Vec<&'static str> {
    let named = settings.children("action-order").filter_map(|item| {
        let name = settings.get(&format!("action-order.{item}"))?.trim();
        ACTIONS.into_iter().find(|a| a.eq_ignore_ascii_case(name))
    });
    let mut order: Vec<&'static str> = Vec::new();
    for action in named.chain(ACTIONS) {
        if !order.contains(&action) {
            order.push(action);
        }
    }
    order
}

/// Order of evaluation, as Suricata's: action, then writers of variables before readers (of `xbits` readers first), then priority, then the
/// order of the files.
fn sort(members: &mut [Member], order: &[&str]) {
    let place = |name: &str| order.iter().position(|a| *a == name).unwrap_or(order.len());
    let action = |a: RuleAction| match a {
        RuleAction::Pass => place("pass"),
        RuleAction::Drop => place("drop"),
        RuleAction::Reject(_) => place("reject"),
        RuleAction::Alert => place("alert"),
        RuleAction::Config | RuleAction::Accept => order.len(),
    };
    members.sort_by(|a, b| {
        let o = |x: &Member| {
            let o = x.ordering;
            // Writers first: the larger use comes first.
            let writers = std::cmp::Reverse((o.flowbits, o.flowints, o.flowvars, o.pktvars, o.hostbits));
            // A packet sees the marks on hosts and pairs as they were before it.
            (writers, o.xbits)
        };
        action(a.action)
            .cmp(&action(b.action))
            .then_with(|| o(a).cmp(&o(b)))
            .then_with(|| a.priority.cmp(&b.priority))
    });
}

type Refusal = (RefusalCode, Box<Diagnostic>);

/// What rules of a set have in common while they are compiled.
struct Rest<'r, 'v> {
    heads: &'r mut Collector,
    resolver: &'r mut Resolver<'v>,
    classes: &'r mut UnknownClasses,
    /// Texts that many rules have.
    words: &'r mut HashSet<Arc<str>>,
}

/// A text that other rules may have as well, once.
fn shared_text(words: &mut HashSet<Arc<str>>, text: &[u8]) -> Arc<str> {
    let text = String::from_utf8_lossy(text);
    if let Some(known) = words.get(&*text) {
        return Arc::clone(known);
    }
    let new: Arc<str> = text.into();
    words.insert(Arc::clone(&new));
    new
}

/// One rule, as it was compiled before or compiled now. `None`: what it `requires` is not there.
fn member(
    rule: &Rule,
    whose: Whose,
    environment: &Environment<'_>,
    input: &LoadInput<'_>,
    rest: &mut Rest<'_, '_>,
) -> Result<Option<Member>, Refusal> {
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

/// Compiles one rule. `None`: what it `requires` is not there.
fn compile(
    rule: &Rule,
    whose: Whose,
    environment: &Environment<'_>,
    input: &LoadInput<'_>,
    rest: &mut Rest<'_, '_>,
) -> Result<Option<Built>, Refusal> {
    environment.take_outside();
    if !whose.own {
        firewall::check_detection(rule, whose.mode).map_err(|e| refuse(rule, e, rule.actions))?;
    }
    let protocol = protocol::parse(rule.protocol()).map_err(|e| refuse(rule, e, rule.protocol))?;
    let mut builder = SignatureBuilder::new(environment, rule.id(), protocol);
    if let Some(hook) = rule.hook() {
        crate::compile::hook::apply(&mut builder, rule.protocol(), hook)
            .map_err(|e| refuse(rule, e, rule.protocol))?;
    }
    builder.note_origin("head");
    // What a rule requires comes first: a rule for newer engines may hold anything.
    let required = |o: &bartizan_rules::OptionRef<'_>| o.keyword().eq_ignore_ascii_case("requires");
    for option in rule.iter().filter(required).chain(rule.iter().filter(|o| !required(o))) {
        let name = option.keyword();
        let value = option.value().unwrap_or_default();
        let Some(keyword) = keywords::find(name) else {
            // Every buffer that a protocol offers is a keyword.
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

/// What a message about an option names first in back quotes: its keyword, or a word that its value has once. Else the whole option.
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

fn unknown(rule: &Rule, name: &str, option: &bartizan_rules::OptionRef<'_>) -> Refusal {
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

fn refuse(rule: &Rule, error: KeywordError, place: bartizan_rules::Span) -> Refusal {
    let mut diagnostic = rule.diagnostic(place, Severity::Error, error.code.code(), error.message);
    if let Some(help) = error.help {
        diagnostic = diagnostic.help(help);
    }
    (error.code, Box::new(diagnostic))
}

fn finish(
    rule: &Rule,
    whose: Whose,
    mut builder: SignatureBuilder<'_>,
    input: &LoadInput<'_>,
    rest: &mut Rest<'_, '_>,
) -> Result<Built, Refusal> {
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
    let class = rule.classtype().map(|name| {
        let found = input.classifications.and_then(|c| c.get(name));
        unknown = found.is_none();
        (
            found.map_or_else(|| classes.add(rule, name), |c| c.description.clone()),
            found.map_or(3, |c| c.priority),
        )
    });
    let priority = builder.priority.or(rule.meta.priority).or(class.as_ref().map(|c| c.1)).unwrap_or(3);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut references: Vec<String> = rule
        .references()
        .map(|(system, id)| {
            let prefix = input.references.and_then(|r| r.get(system)).map_or("", |r| r.prefix.as_str());
            format!("{prefix}{id}")
        })
        .collect();
    let target = builder.target.or(rule.meta.target.map(|t| match t {
        bartizan_rules::Target::Source => AlertTarget::Source,
        bartizan_rules::Target::Destination => AlertTarget::Destination,
    }));
    let mut metadata: Vec<_> =
        rule.metadata().map(|(k, v)| (shared_text(words, k), shared_text(words, v))).collect();
    metadata.shrink_to_fit();
    references.shrink_to_fit();
    let info = RuleInfo {
        id: rule.id(),
        message: text(&rule.msg()),
        category: class.map(|(description, _)| description).unwrap_or_default(),
        severity: priority,
        references,
        metadata,
        target_is_source: target.map(|t| t == AlertTarget::Source),
        text: text(rule.raw()),
        firewall: firewall.as_ref().map(|own| (own.hook.clone(), own.policy.clone())),
    };
    let mut signature = Signature {
        id: rule.id(),
        action: action(rule.action),
        scope: rule.scope,
        firewall,
        info: Arc::new(info),
        priority,
        alert: if whose.own { reports } else { builder.alert },
        kind: Kind::default(),
        noalert: builder.noalert || rule.action == bartizan_rules::RuleAction::Config,
        protocol: builder.protocol,
        flow: builder.flow,
        packet: builder.packet,
        values,
        tx: core::mem::take(&mut builder.tx),
        hooked: builder.hooked || builder.hook.is_some(),
        repeats: false,
        spans_directions: false,
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
    let hook = builder.hook;
    crate::compile::hook::finish(hook, buffers, &mut signature, whose.own)
        .map_err(|e| refuse(rule, e, rule.protocol))?;
    if whose.own && hook.is_none() && (signature.inspects_tx() || signature.inspects_frames()) {
        let error = KeywordError::context(
            "the rule asks for something of transactions, and its hook is one of packets",
        )
        .help("hook it to a state of the protocol: `http1:request_line`");
        return Err(refuse(rule, error, rule.protocol));
    }
    let whole = rule.span;
    crate::compile::conflicts::check(&signature, buffers).map_err(|e| refuse(rule, e, whole))?;
    payload_first(&mut signature);
    narrow_direction(&mut signature, buffers);
    signature.spans_directions = spans_directions(&signature, buffers);
    crate::compile::conflicts::check_direction(&signature, rule.direction, |d| {
        has_all(&signature, buffers, d)
    })
    .map_err(|e| refuse(rule, e, whole))?;
    signature.fast_pattern = fast_pattern::choose(&signature);
    let negated =
        is_negated(&rule.src.expr, input.variables, 0) || is_negated(&rule.dst.expr, input.variables, 0);
    signature.kind = Kind::of(&signature, negated);
    let lasts = !builder.environment.take_outside() && !unknown;
    Ok(Built { signature, head, origins: builder.origins, lasts })
}

/// Frames are pieces of the stream: a rule about them cannot be about transactions or single packets as well.
fn frames_alone(signature: &Signature) -> Result<(), KeywordError> {
    let tx =
        !signature.tx.is_empty() || signature.values.iter().any(|v| matches!(v.buffer, BufferRef::Tx(_)));
    if tx {
        return Err(KeywordError::context(
            "frames and what belongs to transactions cannot be asked of in one rule",
        ));
    }
    if signature.packet.iter().any(|c| c.needs_packet()) {
        return Err(KeywordError::context(
            "frames and what belongs to single packets cannot be asked of in one rule",
        ));
    }
    Ok(())
}

/// Whether addresses are given, at least in part, by what they are not; groups are followed.
fn is_negated(expr: &AddressExpr, variables: &Variables, depth: u8) -> bool {
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

/// The payload is inspected first, as Suricata does: variables that it extracts are used by later buffers.
fn payload_first(signature: &mut Signature) {
    signature.values.sort_by_key(|v| v.buffer != BufferRef::Payload);
}

/// Whether what a rule asks of transactions lies partly in one direction, partly in the other.
fn spans_directions(signature: &Signature, buffers: &Buffers) -> bool {
    !bartizan_base::Direction::BOTH.into_iter().any(|direction| has_all(signature, buffers, direction))
}

/// Whether a direction has all that a rule asks of transactions.
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

/// A rule whose buffers all lie in one direction is about that direction, though it does not say so.
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

const fn action(action: bartizan_rules::RuleAction) -> RuleAction {
    use bartizan_rules::RuleAction as Written;
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

/// Which keywords of a rule its conditions come from; nothing of a rule that does not load. For `explain`.
#[must_use]
pub fn origins(rule: &Rule, input: &LoadInput<'_>) -> Vec<Origin> {
    let buffers = Buffers::new();
    let environment = Environment::new(&buffers, input.settings, input.shared, std::path::Path::new(""));
    let mut rest = Rest {
        heads: &mut Collector::default(),
        resolver: &mut input.variables.resolver(),
        classes: &mut UnknownClasses::default(),
        words: &mut HashSet::new(),
    };
    match compile(rule, Whose { own: false, mode: false }, &environment, input, &mut rest) {
        Ok(Some(built)) => built.origins,
        _ => Vec::new(),
    }
}

/// Items of a rule, over all buffers; for `explain`.
pub fn items(signature: &Signature) -> impl Iterator<Item = &Item> {
    signature.values.iter().flat_map(|v| v.program.items.iter())
}
