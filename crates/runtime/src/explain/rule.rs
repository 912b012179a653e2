// SPDX-License-Identifier: Apache-2.0
//! Explanations of rules: the engine's form of a rule, and, over captures, why it matched or did not.

use crate::captures::frames;
use crate::error::Failure;
use crate::load;
use crate::log::{Note, Report};
use crate::queries::lock;
use bartizan_api::content::Contents;
use bartizan_base::{FunctionId, Generation, LinkId, SettingsMap};
use bartizan_dataplane::explain::first::Nobody;
use bartizan_dataplane::worker::{Frame, Worker};
use bartizan_detect::builder::Origin;
use bartizan_detect::explain::rule::{RuleExplanation, explain};
use bartizan_detect::explain::trace::{
    AppliedRule, Attempt, AttemptSummary, PacketTrace, Trace, TraceSession, Traced, TracedRule,
};
use bartizan_detect::needs::Needs;
use bartizan_detect::ruleset::{self, Loaded, RuleSet};
use bartizan_function::PacketContext;
use bartizan_function::contain::Panicked;
use bartizan_functions::ids::{ALERTS_PER_PACKET, Ids};
use bartizan_rules::{Diagnostic, Rule, RuleFile, Severity};
use bartizan_stages::chain::Chains;
use bartizan_stages::settings::EngineSettings;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Options of a rule's explanation.
#[derive(Clone, Default)]
pub struct RuleOptions {
    /// Group and number of the rule; without a group, any group.
    pub sid: (Option<u32>, u32),
    /// Rule files.
    pub rules: Vec<PathBuf>,
    /// A suricata.yaml.
    pub suricata_config: Option<PathBuf>,
    /// Settings, `key=value`.
    pub overrides: Vec<String>,
    /// Captures on which the rule's conditions are evaluated.
    pub captures: Vec<PathBuf>,
    /// Number of attempts to keep: those that matched most conditions.
    pub attempts: usize,
    /// Receiver of diagnostics.
    pub report: Report,
}

/// Explanation of a rule.
pub struct ExplainedRule {
    /// Text of the rule.
    pub text: String,
    /// The engine's form of it.
    pub explanation: RuleExplanation,
    /// The rule's conditions over the captures, if captures are given.
    pub trace: Option<Trace>,
}

/// Explains a rule.
///
/// # Errors
/// No file has the rule, the engine does not load it, or a file or capture cannot be read.
pub fn explained(options: &RuleOptions) -> Result<ExplainedRule, Failure> {
    let settings = load::settings(options.suricata_config.as_deref(), &options.overrides)?;
    let mut warnings = Vec::new();
    let base = load::Base::new(&settings, &mut warnings)?;
    let files = load::rule_files(&options.rules, &mut Contents::default())?;
    let (file, rule) = find(options, &files, &mut warnings)?;
    let mut related = related(rule, file, &files, &options.captures);
    let mut notes = Vec::new();
    let loaded = base.rules(&mut related, &settings, &[], &mut notes);
    options.report.notes(&notes);
    let loaded = loaded?;
    let warnings = warnings.into_iter().map(|warning| Note::Line(format!("warning: {warning}")));
    options.report.notes(&warnings.collect::<Vec<_>>());
    let Some(signature) = loaded.rules.signatures.iter().find(|s| s.id == rule.id()) else {
        return Err(not_loaded(rule, &loaded));
    };
    let origins = ruleset::origins(rule, &base.input(&settings, &[]));
    let mut explanation = explain(&loaded.rules, signature, rule, &origins);
    explanation.warnings.extend(unset_bits(rule, &files));
    // All files determine which bits are never set, not only the rules that are loaded along.
    let mine = loaded.diagnostics.iter().filter(|d| d.code != ruleset::NEVER_WRITTEN && is_about(d, rule));
    explanation.warnings.extend(mine.map(|d| d.message.clone()));
    let trace = match options.captures.as_slice() {
        [] => None,
        _ => Some(trace(options, &settings, loaded.rules, rule, origins)?),
    };
    Ok(ExplainedRule { text: String::from_utf8_lossy(rule.raw()).into_owned(), explanation, trace })
}

/// The rule of the options with its file; among several, the one with the highest revision.
fn find<'f>(
    options: &RuleOptions,
    files: &'f [RuleFile],
    warnings: &mut Vec<String>,
) -> Result<(&'f RuleFile, &'f Rule), Failure> {
    let (gid, sid) = options.sid;
    let is_it = |rule: &&Rule| rule.id().sid == sid && gid.is_none_or(|gid| rule.id().gid == gid);
    let mut found: Vec<(&RuleFile, &Rule)> =
        files.iter().flat_map(|f| f.rules.iter().map(move |r| (f, r))).filter(|(_, r)| is_it(r)).collect();
    found.sort_by_key(|(_, rule)| rule.id().rev);
    let Some((file, rule)) = found.pop() else { return Err(missing(options, files)) };
    for (_, other) in &found {
        let (this, place) = (rule.id().rev, format!("{}:{}", other.source.name(), other.line));
        warnings.push(format!(
            "sid {sid} is also at {place}, with rev {}; the rule with the highest rev, {this}, is explained",
            other.id().rev
        ));
    }
    Ok((file, rule))
}

/// The reason why the engine does not load a rule.
fn not_loaded(rule: &Rule, loaded: &Loaded) -> Failure {
    let leaves_out = |d: &&Diagnostic| d.severity == Severity::Error || d.code == ruleset::WRITER_LEFT_OUT;
    let error = loaded.diagnostics.iter().filter(leaves_out).find(|d| is_about(d, rule));
    let text = match error {
        Some(error) => error.render(false),
        None => "its `requires` is not met, so it is skipped".to_owned(),
    };
    let (name, line, sid) = (rule.source.name(), rule.line, rule.id().sid);
    Failure::input(format!("{name}:{line}: the engine does not load sid {sid}:\n{text}"))
}

/// Whether a finding is about a rule.
fn is_about(finding: &Diagnostic, rule: &Rule) -> bool {
    finding.file == *rule.source.name()
        && finding.span.start >= rule.span.start
        && finding.span.end <= rule.span.end
}

/// A copy of a file with some of its rules.
fn beside(file: &RuleFile, keep: impl Fn(&Rule) -> bool) -> RuleFile {
    RuleFile {
        rules: file.rules.iter().filter(|r| keep(r)).cloned().collect(),
        refused: Vec::new(),
        diagnostics: Vec::new(),
        diagnostics_dropped: 0,
        ..file.clone()
    }
}

/// Whether a rule sets or reads variables that outlive a packet.
fn uses_variables(rule: &Rule) -> bool {
    let names = ["flowbits", "flowint", "flowvar", "xbits", "hostbits", "dataset"];
    rule.iter().any(|o| names.iter().any(|n| o.keyword().eq_ignore_ascii_case(n)))
}

/// Whether a rule tests that a variable is not set: such a rule is skipped when a rule that sets the variable
/// is left out.
fn tests_unset(rule: &Rule) -> bool {
    let asks = |value: &[u8]| value.windows(6).any(|six| six.eq_ignore_ascii_case(b"notset"));
    uses_variables(rule) && rule.iter().any(|option| option.value().is_some_and(asks))
}

/// The rule, and the rules that share variables with it where they matter: with captures, where it would not
/// match without them; and where it may be skipped because another rule is left out.
fn related(rule: &Rule, file: &RuleFile, files: &[RuleFile], captures: &[PathBuf]) -> Vec<RuleFile> {
    let is_it = |other: &Rule| other.id() == rule.id() && other.span == rule.span;
    if captures.is_empty() && !tests_unset(rule) || !uses_variables(rule) {
        return vec![beside(file, is_it)];
    }
    let others = |r: &Rule| uses_variables(r) && (r.id().gid, r.id().sid) != (rule.id().gid, rule.id().sid);
    files
        .iter()
        .map(|f| beside(f, |r| others(r) || f.source.name() == file.source.name() && is_it(r)))
        .collect()
}

/// A trace over captures, of all packets.
struct CaptureSession {
    rule: TracedRule,
    kept: usize,
    /// Number of the current packet.
    packet: AtomicU64,
    summary: Mutex<AttemptSummary>,
    panicked: Mutex<Option<Panicked>>,
}

impl TraceSession for CaptureSession {
    fn rule(&self, _: &PacketContext<'_>) -> Option<AppliedRule<'_>> {
        Some(AppliedRule { rule: &self.rule, prevention: false })
    }

    fn kept(&self) -> usize {
        self.kept
    }

    fn take(&self, _: &PacketContext<'_>, _: &AppliedRule<'_>, outcome: PacketTrace) {
        let packet = self.packet.load(Ordering::Relaxed);
        let mut summary = lock(&self.summary);
        summary.add_alerts(packet, outcome.alerts);
        summary.add_head_failures(outcome.head_failures);
        outcome.attempts.into_iter().for_each(|attempt| summary.add(Attempt { packet, ..attempt }));
    }

    fn fail(&self, panicked: &Panicked) {
        *lock(&self.panicked) = Some(panicked.clone());
    }
}

/// Runs captures through detection, and evaluates the rule's conditions on every packet.
fn trace(
    options: &RuleOptions,
    settings: &SettingsMap,
    rules: RuleSet,
    rule: &Rule,
    origins: Vec<Origin>,
) -> Result<Trace, Failure> {
    let rules = Arc::new(rules);
    let engine = Arc::new(load::app_layer(settings, &Needs::of(&rules), load::EnforcementMode::Passive)?);
    let (engine_settings, _) =
        EngineSettings::from_settings(settings, false, [1, 2]).map_err(Failure::setting(settings))?;
    let Some(rule) = TracedRule::find(Arc::clone(&rules), rule.id(), origins) else {
        return Err(Failure::stopped(
            "the rule is not in its own set; please report this defect with the rule",
        ));
    };
    let session = Arc::new(CaptureSession {
        rule,
        kept: options.attempts,
        packet: AtomicU64::new(0),
        summary: Mutex::new(AttemptSummary::keeping(options.attempts)),
        panicked: Mutex::default(),
    });
    let ids = Arc::new(Ids::new(FunctionId(0), Generation(1), rules, ALERTS_PER_PACKET));
    let traced = Arc::new(Traced::new(ids, Arc::clone(&session) as Arc<dyn TraceSession>));
    let chains = Arc::new(Chains::one(Generation(1), vec![traced]));
    let mut worker = Worker::new(engine_settings, engine, chains).map_err(Failure::stopped)?;
    for path in &options.captures {
        frames(path, LinkId(0), |frame| {
            let number = session.packet.fetch_add(1, Ordering::Relaxed) + 1;
            worker.frame(&Frame { number: Some(number), ..*frame }, &mut Nobody);
            true
        })?;
    }
    worker.shutdown(&mut Nobody);
    if let Some(panicked) = lock(&session.panicked).take() {
        return Err(Failure::stopped(format!("tracing failed, {panicked}; please report this defect")));
    }
    let summary = core::mem::replace(&mut *lock(&session.summary), AttemptSummary::keeping(0));
    Ok(summary.finish())
}

/// The failure that no rule has the sid; names the nearest one.
fn missing(options: &RuleOptions, files: &[RuleFile]) -> Failure {
    let (_, sid) = options.sid;
    for file in files {
        if let Some(refused) = file.refused.iter().find(|r| r.sid == Some(sid)) {
            let name = file.source.name();
            return Failure::input(format!(
                "{name}:{}: sid {sid} cannot be read ({}); `bartizan check {name}` says why",
                refused.line, refused.code
            ));
        }
    }
    let rules: usize = files.iter().map(|f| f.rules.len()).sum();
    let names: Vec<String> = options.rules.iter().map(|p| p.display().to_string()).collect();
    let near = files.iter().flat_map(|f| &f.rules).map(|r| r.id().sid).min_by_key(|s| s.abs_diff(sid));
    let near = near.map(|s| format!("; the nearest is {s}")).unwrap_or_default();
    let unread: Vec<String> = (files.iter().filter(|f| !f.refused.is_empty()))
        .map(|f| {
            let (count, name) = (f.refused.len(), f.source.name());
            format!(". {count} of {name} cannot be read, and it may be among them: `bartizan check {name}`")
        })
        .collect();
    Failure::input(format!(
        "no rule with sid {sid} among the {rules} rules of {}{near}. Check the number, or name its file with --rules{}",
        names.join(", "),
        unread.concat()
    ))
}

/// Flow bits that the rule tests and no rule of the files sets.
fn unset_bits(rule: &Rule, files: &[RuleFile]) -> Vec<String> {
    let bits = |rule: &Rule, wanted: &[&str]| -> Vec<String> {
        let mut names = Vec::new();
        for option in rule.iter().filter(|o| o.keyword().eq_ignore_ascii_case("flowbits")) {
            let value = String::from_utf8_lossy(option.value().unwrap_or_default()).into_owned();
            if let Some((command, name)) = value.split_once(',')
                && wanted.contains(&command.trim())
            {
                names.extend(name.split('|').map(|n| n.trim().to_owned()));
            }
        }
        names
    };
    let mut asked = bits(rule, &["isset"]);
    asked.retain(|name| {
        let sets = |other: &Rule| bits(other, &["set", "toggle"]).contains(name);
        !files.iter().flat_map(|f| &f.rules).any(sets)
    });
    let text = |name: &String| {
        format!(
            "no rule of these files sets the flowbit `{name}`, so the rule cannot match; add the file with the rule that sets it"
        )
    };
    asked.iter().map(text).collect()
}
