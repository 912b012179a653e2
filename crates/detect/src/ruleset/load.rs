// SPDX-License-Identifier: Apache-2.0
//! Loads files of rules into a set.

use super::rule::{CompiledRule, LoadInput, Rest, RuleRefusal, Whose, compile, member};
use super::writers::{self, Writers};
use super::{RuleDecision, RuleSet};
use crate::compile::environment::Environment;
use crate::compile::firewall::{self, Act, Firewall, Policies};
use crate::compile::heads::HeadCollector;
use crate::compile::known::RuleCache;
use crate::compile::prefilter;
use crate::compile::refusal::RefusalCode;
use crate::compile::skipped_entries;
use crate::compile::unknown_classes::UnknownClasses;
use crate::model::buffers::Buffers;
use crate::model::signature::{Member, RuleAction};
use crate::model::visibility;
use crate::state::dataset::ListFile;
use bartizan_base::SettingsMap;
use bartizan_rules::{Diagnostic, Duplicate, Duplicates, Rule, RuleFile, RuleSetReport, Severity};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

/// A failure after which nothing of the generation can be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A pattern engine could not build the sets.
    #[error("the pattern sets of the rules cannot be built: {0}")]
    Patterns(#[from] bartizan_pattern::BuildError),
    /// The firewall's settings cannot be understood.
    #[error("{0}")]
    Firewall(#[from] bartizan_base::SettingError),
}

/// Outcome of loading: the set, and findings about single rules.
pub struct Loaded {
    /// The set.
    pub rules: RuleSet,
    /// One finding per refused rule, and warnings.
    pub diagnostics: Vec<Diagnostic>,
    /// Number of missing firewall rules, for any reason: other rules or policies decide in their place.
    pub firewall_refused: u64,
    /// The refused rules, by file.
    pub refused: Vec<RefusedRule>,
    /// Lists that were read for the rules: of data sets, files, reputations, locations.
    pub lists: Vec<ListFile>,
}

/// A rule that was not loaded, or a line that is no rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRule {
    /// Gid and sid, as far as they could be read.
    pub id: Option<(u32, u32)>,
    /// The line is no rule, or one that Suricata refuses as well; otherwise the rule is valid and cannot be
    /// evaluated here, or not without another rule.
    pub malformed: bool,
    /// The file, as it was named to the parser.
    pub file: Arc<str>,
    /// Line and character of the defect, from 1.
    pub place: (u32, u32),
    /// Description of the defect.
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

/// Compiles rules. Single rules that cannot be loaded are refused with a diagnostic; the others form the set.
///
/// The rules and their text are moved out of the files: the syntax trees of a large set hold as much memory
/// as the compiled rules, and the pattern sets, which are built last, need memory of their own for a while.
///
/// # Errors
/// The pattern sets cannot be built, or a policy of the firewall cannot be understood.
pub fn load(files: &mut [RuleFile], input: &LoadInput<'_>) -> Result<Loaded, LoadError> {
    input.shared.begin_load();
    input.known.into_iter().for_each(RuleCache::tidy);
    let buffers = Buffers::new();
    let mut outcome = RuleLoadState::default();
    let mut heads = HeadCollector::default();
    let mut resolver = input.variables.resolver();
    let mut words = HashSet::new();
    let mut classes = UnknownClasses::default();
    let firewall = firewall::is_enabled(input.settings)?;
    for file in files {
        outcome.add_file(file);
        let name = file.source.name().to_string();
        let folder = std::path::Path::new(&name).parent().unwrap_or(std::path::Path::new("")).to_owned();
        let environment = Environment::new(&buffers, input.settings, input.shared, &folder);
        let mut rest =
            Rest { heads: &mut heads, resolver: &mut resolver, classes: &mut classes, words: &mut words };
        for rule in core::mem::take(&mut file.rules) {
            let rule = &rule;
            let whose = Whose { own: file.firewall, mode: firewall };
            outcome.add_rule(rule, member(rule, whose, &environment, input, &mut rest), file.firewall);
        }
        file.forget_text();
    }
    outcome.diagnostics.extend(findings_beside_rules(classes, input));
    outcome.skip_readers();
    let (of_firewall, mut signatures): (Vec<Member>, Vec<Member>) = core::mem::take(&mut outcome.built)
        .into_iter()
        .flatten()
        .partition(|member| member.firewall.is_some());
    sort(&mut signatures, &action_order(input.settings));
    let detecting = signatures.len();
    // Firewall rules keep the order of their files; no prefilter leads to them.
    signatures.extend(of_firewall);
    let policies = firewall.then(|| Policies::from_settings(input.settings)).transpose()?;
    if let Some(policies) = &policies {
        let mut classes = UnknownClasses::default();
        let mut rest =
            Rest { heads: &mut heads, resolver: &mut resolver, classes: &mut classes, words: &mut words };
        signatures.extend(reporting(policies, &buffers, input, &mut rest));
    }
    let heads = heads.finish(input.tenants);
    let detecting = signatures.get(..detecting).unwrap_or_default();
    let prefilters = prefilter::build(detecting, &heads, &buffers, input.compiler)?;
    let RuleLoadState { report, diagnostics, firewall_refused, refused, .. } = outcome;
    let rules = RuleSet {
        tags: signatures.iter().any(|s| s.tags),
        reads_hosts_once: signatures.iter().any(|s| s.is_ip_only() && !s.packet.is_empty()),
        number: visibility::number(),
        head_of: signatures.iter().map(|s| s.head).collect(),
        deciding: deciding(&signatures),
        accepting: accepting(&signatures),
        summary: OnceLock::new(),
        firewall: policies.map(|policies| Firewall::new(&signatures, &policies)),
        signatures,
        heads,
        buffers,
        prefilters,
        report,
        shared: Arc::clone(input.shared),
        guess_tx: input.settings.bool("detect.guess-applayer-tx", false).unwrap_or(false),
        guess_limit: input.settings.number("detect.stream-tx-log-limit", 4).unwrap_or(4),
    };
    Ok(Loaded { rules, diagnostics, firewall_refused, refused, lists: input.shared.take_read() })
}

/// Findings that concern no single rule: undefined classes, wrong entries of lists.
fn findings_beside_rules(classes: UnknownClasses, input: &LoadInput<'_>) -> Vec<Diagnostic> {
    let skipped = input.shared.take_skipped();
    classes.finish(input.classifications).chain(skipped_entries::findings(&skipped)).collect()
}

/// The state of loading: results for the rules so far, and findings.
#[derive(Default)]
struct RuleLoadState {
    report: RuleSetReport,
    diagnostics: Vec<Diagnostic>,
    /// As in [`Loaded`].
    firewall_refused: u64,
    refused: Vec<RefusedRule>,
    writers: Writers,
    duplicates: Duplicates,
    /// Compiled rules. A place is empty whose rule was replaced or refused as a duplicate.
    built: Vec<Option<Member>>,
}

impl RuleLoadState {
    /// Adds the results of a file that was parsed.
    fn add_file(&mut self, file: &RuleFile) {
        self.report.add_file(file);
        if file.firewall {
            self.firewall_refused += file.refused.len() as u64;
        }
        self.diagnostics.extend(file.diagnostics.iter().cloned());
        self.refused.extend(RefusedRule::lines(file));
        self.writers.lines_left_out(file);
    }

    /// Adds a rule's result; `compiled` is `None` for a rule whose `requires` does not hold.
    fn add_rule(&mut self, rule: &Rule, compiled: Result<Option<Member>, RuleRefusal>, of_firewall: bool) {
        let one = match compiled {
            Ok(Some(one)) => one,
            Ok(None) => return self.report.skip("requires"),
            Err((code, finding)) => {
                count(&mut self.report, rule, code, &finding);
                self.writers.left_out(rule);
                return self.refuse(rule, code, *finding, of_firewall);
            }
        };
        match judge(&mut self.duplicates, rule, &self.built, of_firewall) {
            Duplicate::New => self.report.load(),
            Duplicate::Replaces(before) => {
                self.report.skip("older revision");
                if let Some(slot) = self.built.get_mut(before) {
                    *slot = None;
                }
            }
            Duplicate::Refused(_) => {
                // The place stays empty: a rule that is refused as the firewall's or not may have it.
                self.built.push(None);
                self.report.refuse(RefusalCode::Duplicate.name());
                let (code, finding) = duplicate_refusal(rule);
                return self.refuse(rule, code, finding, of_firewall);
            }
        }
        self.writers.compiled(rule, self.built.len());
        self.built.push(Some(one));
    }

    /// Records and counts a refused rule.
    fn refuse(&mut self, rule: &Rule, code: RefusalCode, finding: Diagnostic, of_firewall: bool) {
        self.firewall_refused += u64::from(of_firewall);
        self.refused.push(RefusedRule::of(rule, code, &finding));
        self.diagnostics.push(finding);
    }

    /// Skips rules that test whether a variable is not set when a rule that sets the variable was left out.
    fn skip_readers(&mut self) {
        let (skipped, vain) = core::mem::take(&mut self.writers).finish(&mut self.built);
        for one in skipped {
            self.report.skip_loaded(writers::SKIPPED);
            self.firewall_refused += u64::from(one.of_firewall);
            self.refused.push(one.refused);
            self.diagnostics.push(one.finding);
        }
        self.diagnostics.extend(vain);
    }
}

/// Rules that decide about flows, by gid and sid: decision and position.
fn deciding(signatures: &[Member]) -> HashMap<(u32, u32), (RuleDecision, u32)> {
    let said = |(index, s): (u32, &Member)| Some(((s.id.gid, s.id.sid), (RuleDecision::of_rule(s)?, index)));
    (0..).zip(signatures).filter_map(said).collect()
}

/// Rules under which the firewall's policies report.
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
            let Ok(Some(CompiledRule { mut signature, head, .. })) =
                compile(rule, whose, &environment, input, rest)
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

/// The action in detection's terms for an act of the firewall.
const fn firewall_action(act: Act) -> RuleAction {
    match act {
        Act::Accept(_) => RuleAction::Accept,
        Act::Refuse { reject: Some(side), .. } => RuleAction::Reject(side),
        Act::Refuse { reject: None, .. } => RuleAction::Drop,
        Act::Nothing => RuleAction::Config,
    }
}

/// The refusal of a rule whose gid and sid an earlier rule has.
fn duplicate_refusal(rule: &Rule) -> (RefusalCode, Diagnostic) {
    let code = RefusalCode::Duplicate;
    let message = format!("an earlier rule has the same gid {} and sid {}", rule.id().gid, rule.id().sid);
    (code, rule.diagnostic(rule.span, Severity::Error, code.code(), message))
}

/// The firewall rules that accept whole flows, without those under which its policies report.
fn accepting(signatures: &[Member]) -> HashSet<(u32, u32)> {
    let accepts = |s: &&Member| s.firewall.as_ref().is_some_and(|f| f.act.accepts_flow());
    let own = |s: &&Member| !firewall::POLICY_SIDS.contains(&s.id.sid);
    signatures.iter().filter(accepts).filter(own).map(|s| (s.id.gid, s.id.sid)).collect()
}

/// Whether the rule duplicates an earlier one. A detection rule never replaces a firewall rule, nor a
/// firewall rule a detection rule, since the replaced rule would be missing.
fn judge(duplicates: &mut Duplicates, rule: &Rule, built: &[Option<Member>], firewall: bool) -> Duplicate {
    let is_other = |before: usize| {
        built.get(before).and_then(Option::as_ref).is_some_and(|known| known.firewall.is_some() != firewall)
    };
    match duplicates.judge(rule, built.len()) {
        Duplicate::Replaces(before) if is_other(before) => Duplicate::Refused(before),
        judged => judged,
    }
}

/// Counts a refused rule, by its protocol or keyword if this build lacks that.
fn count(report: &mut RuleSetReport, rule: &Rule, code: RefusalCode, finding: &Diagnostic) {
    if !code.is_unsupported() {
        return report.refuse(code.name());
    }
    let of_option = rule.iter().find(|o| {
        let span = o.option.span;
        (span.start..span.end).contains(&finding.span.start)
    });
    match of_option {
        // The name in the option, if the finding points to it rather than to the whole option.
        Some(option) if code == RefusalCode::UnsupportedProtocol && finding.span != option.option.span => {
            report.refuse_protocol(code.name(), &rule.text(finding.span).to_ascii_lowercase());
        }
        Some(option) => report.refuse_keyword(code.name(), &option.keyword().to_ascii_lowercase()),
        None => report.refuse_protocol(code.name(), &rule.text(rule.protocol).to_ascii_lowercase()),
    }
}

/// Suricata's names of actions, in the default order of evaluation (see `action-order`).
const ACTIONS: [&str; 4] = ["pass", "drop", "reject", "alert"];

/// The order of actions in the settings. Actions without a place in the settings stay at the end.
fn action_order(settings: &SettingsMap) -> Vec<&'static str> {
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

/// Order of evaluation, as Suricata's: action, then writers of variables before readers, then priority, then
/// the number of the rule. Rules of the firewall keep the order of the files.
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
            std::cmp::Reverse((o.flowbits, o.flowints, o.flowvars, o.pktvars, o.hosts, o.pairs))
        };
        let number = |x: &Member| if x.firewall.is_some() { 0 } else { x.id.sid };
        action(a.action)
            .cmp(&action(b.action))
            .then_with(|| o(a).cmp(&o(b)))
            .then_with(|| a.priority.cmp(&b.priority))
            .then_with(|| number(a).cmp(&number(b)))
    });
}
