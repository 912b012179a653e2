// SPDX-License-Identifier: Apache-2.0
//! `bartizan explain rule SID`: what the engine made of a rule, and with captures why it matched or did not.

use super::flow::{frames, print_json};
use super::trace_text;
use crate::say;
use bartizan_api::content::Contents;
use bartizan_base::{FunctionId, Generation, LinkId, Settings};
use bartizan_dataplane::explain::first::Nobody;
use bartizan_dataplane::worker::{Frame, Worker};
use bartizan_detect::builder::Origin;
use bartizan_detect::explain::rule::{Condition, RuleExplanation, explain};
use bartizan_detect::explain::trace::{
    ATTEMPTS, ATTEMPTS_MAX, AppliedRule, Attempt, PacketTrace, Session, Summary, Trace, Traced, TracedRule,
};
use bartizan_detect::ruleset::{self, RuleSet};
use bartizan_function::PacketContext;
use bartizan_function::contain::Panicked;
use bartizan_functions::ids::{ALERTS_PER_PACKET, Ids};
use bartizan_rules::{Diagnostic, Rule, RuleFile, Severity};
use bartizan_runtime::error::{Exit, Failure};
use bartizan_runtime::load;
use bartizan_runtime::traces::parse_sid;
use bartizan_runtime::view::lock;
use bartizan_stages::chain::Chains;
use bartizan_stages::settings::EngineSettings;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Shown below `--help`.
pub const EXAMPLES: &str = "\
Examples:
  bartizan explain rule 2019284 --rules emerging.rules.gz
  bartizan explain rule 1000001 --rules my.rules --set vars.address-groups.HOME_NET=10.0.0.0/8
  bartizan explain rule 1000001 --rules my.rules capture.pcap           # why it matched, or did not
  bartizan explain rule 1000001 --rules my.rules --json";

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The rule: its sid, or gid:sid.
    #[arg(value_name = "SID", value_parser = parse_sid)]
    sid: (Option<u32>, u32),
    /// Rule file (may be repeated); plain, gzip or zstd.
    #[arg(long, value_name = "FILE", required = true)]
    rules: Vec<PathBuf>,
    /// A suricata.yaml with the variables that the rules use.
    #[arg(long, value_name = "FILE")]
    suricata_config: Option<PathBuf>,
    /// Override one setting.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
    /// With captures: so many of the attempts that got furthest are shown.
    #[arg(long, value_name = "N", default_value_t = ATTEMPTS, value_parser = attempts)]
    attempts: usize,
    /// Captures: asks each condition on every packet, stream and transaction, and shows the first that did not hold.
    #[arg(value_name = "CAPTURE")]
    captures: Vec<PathBuf>,
}

/// A number of attempts to be shown.
pub fn attempts(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number <= ATTEMPTS_MAX);
    number.ok_or_else(|| format!("`{text}` is no number from 0 to {ATTEMPTS_MAX}"))
}

/// Explains a rule. Exit code 1 when the engine refuses it.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let settings = load::settings(args.suricata_config.as_deref(), &args.overrides)?;
    let mut warnings = Vec::new();
    let base = load::Base::new(&settings, &mut warnings)?;
    let files = load::rule_files(&args.rules, &mut Contents::default())?;
    let (gid, sid) = args.sid;
    let is_it = |rule: &&Rule| rule.id().sid == sid && gid.is_none_or(|gid| rule.id().gid == gid);
    let mut found: Vec<(&RuleFile, &Rule)> =
        files.iter().flat_map(|f| f.rules.iter().map(move |r| (f, r))).filter(|(_, r)| is_it(r)).collect();
    found.sort_by_key(|(_, rule)| rule.id().rev);
    let Some((file, rule)) = found.pop() else { return Err(missing(args, &files)) };
    for (_, other) in &found {
        let (this, place) = (rule.id().rev, format!("{}:{}", other.source.name(), other.line));
        warnings.push(format!(
            "sid {sid} stands at {place} as well, with rev {}; the one with the highest rev, {this}, is shown",
            other.id().rev
        ));
    }
    let mut related = related(rule, file, &files, &args.captures);
    let mut notes = Vec::new();
    let loaded = base.rules(&mut related, &settings, &[], &mut notes);
    say::notes(&notes);
    let loaded = loaded?;
    for warning in &warnings {
        eprintln!("warning: {warning}");
    }
    let Some(signature) = loaded.rules.signatures.iter().find(|s| s.id == rule.id()) else {
        let leaves_out =
            |d: &&Diagnostic| d.severity == Severity::Error || d.code == ruleset::WRITER_LEFT_OUT;
        let error = loaded.diagnostics.iter().filter(leaves_out).find(|d| is_about(d, rule));
        let text = match error {
            Some(error) => error.render(false),
            None => "what it `requires` is not there, so it is skipped".to_owned(),
        };
        return Err(Failure::input(format!(
            "{}:{}: the engine does not load sid {sid}:\n{text}",
            rule.source.name(),
            rule.line
        )));
    };
    let origins = ruleset::origins(rule, &base.input(&settings, &[]));
    let mut told = explain(&loaded.rules, signature, rule, &origins);
    told.warnings.extend(unset_bits(rule, &files));
    // Which bits nobody sets all files say, not those rules that run along.
    let mine = loaded.diagnostics.iter().filter(|d| d.code != ruleset::NEVER_WRITTEN && is_about(d, rule));
    told.warnings.extend(mine.map(|d| d.message.clone()));
    let trace = match args.captures.as_slice() {
        [] => None,
        _ => Some(trace(args, &settings, loaded.rules, rule, origins)?),
    };
    if args.json {
        let mut json = serde_json::to_value(&told).map_err(Failure::stopped)?;
        if let (Some(json), Some(trace)) = (json.as_object_mut(), &trace) {
            json.insert("trace".to_owned(), serde_json::to_value(trace).map_err(Failure::stopped)?);
        }
        print_json(&json)?;
    } else {
        print(&told, &String::from_utf8_lossy(rule.raw()));
        if let Some(trace) = &trace {
            let mut text = String::new();
            let nothing =
                "the captures have nothing that the rule is evaluated on (see `about` and `on` above)";
            trace_text::write(trace, nothing, &mut text);
            print!("\n{text}");
        }
    }
    Ok(Exit::Done)
}

/// Whether a finding is about a rule.
fn is_about(finding: &Diagnostic, rule: &Rule) -> bool {
    finding.file == *rule.source.name()
        && finding.span.start >= rule.span.start
        && finding.span.end <= rule.span.end
}

/// A file with some of its rules.
fn beside(file: &RuleFile, keep: impl Fn(&Rule) -> bool) -> RuleFile {
    RuleFile {
        rules: file.rules.iter().filter(|r| keep(r)).cloned().collect(),
        refused: Vec::new(),
        diagnostics: Vec::new(),
        diagnostics_dropped: 0,
        ..file.clone()
    }
}

/// Whether a rule sets or asks for variables that outlive a packet.
fn uses_variables(rule: &Rule) -> bool {
    let names = ["flowbits", "flowint", "flowvar", "xbits", "hostbits", "dataset"];
    rule.iter().any(|o| names.iter().any(|n| o.keyword().eq_ignore_ascii_case(n)))
}

/// Whether a rule asks whether a variable is not set: it is skipped where a rule that sets it is left out.
fn asks_unset(rule: &Rule) -> bool {
    let asks = |value: &[u8]| value.windows(6).any(|six| six.eq_ignore_ascii_case(b"notset"));
    uses_variables(rule) && rule.iter().any(|option| option.value().is_some_and(asks))
}

/// The rule, and those that share variables with it where it matters: with captures, as it would not match
/// without them, and where it may be
/// skipped for one that is left out.
fn related(rule: &Rule, file: &RuleFile, files: &[RuleFile], captures: &[PathBuf]) -> Vec<RuleFile> {
    let is_it = |other: &Rule| other.id() == rule.id() && other.span == rule.span;
    if captures.is_empty() && !asks_unset(rule) || !uses_variables(rule) {
        return vec![beside(file, is_it)];
    }
    let others = |r: &Rule| uses_variables(r) && (r.id().gid, r.id().sid) != (rule.id().gid, rule.id().sid);
    files
        .iter()
        .map(|f| beside(f, |r| others(r) || f.source.name() == file.source.name() && is_it(r)))
        .collect()
}

/// A trace over captures: all packets are asked about.
struct CaptureSession {
    rule: TracedRule,
    kept: usize,
    /// Number of the packet in hand.
    packet: AtomicU64,
    summary: Mutex<Summary>,
    panicked: Mutex<Option<Panicked>>,
}

impl Session for CaptureSession {
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

/// Runs captures through detection and asks the rule's conditions on every packet.
fn trace(
    args: &Args,
    settings: &Settings,
    rules: RuleSet,
    rule: &Rule,
    origins: Vec<Origin>,
) -> Result<Trace, Failure> {
    let rules = Arc::new(rules);
    let engine =
        Arc::new(load::app_layer(settings, &bartizan_detect::needs::Needs::of(&rules), load::Mode::Passive)?);
    let (engine_settings, _) =
        EngineSettings::from_settings(settings, false, [1, 2]).map_err(Failure::setting(settings))?;
    let Some(rule) = TracedRule::find(Arc::clone(&rules), rule.id(), origins) else {
        return Err(Failure::stopped("the rule is not in its own set: please report this with the rule"));
    };
    let session = Arc::new(CaptureSession {
        rule,
        kept: args.attempts,
        packet: AtomicU64::new(0),
        summary: Mutex::new(Summary::keeping(args.attempts)),
        panicked: Mutex::default(),
    });
    let ids = Arc::new(Ids::new(FunctionId(0), Generation(1), rules, ALERTS_PER_PACKET));
    let traced = Arc::new(Traced::new(ids, Arc::clone(&session) as Arc<dyn Session>));
    let chains = Arc::new(Chains::one(Generation(1), vec![traced]));
    let mut worker = Worker::new(engine_settings, engine, chains).map_err(Failure::stopped)?;
    for path in &args.captures {
        frames(path, LinkId(0), |frame| {
            let number = session.packet.fetch_add(1, Ordering::Relaxed) + 1;
            worker.frame(&Frame { number: Some(number), ..*frame }, &mut Nobody);
            true
        })?;
    }
    worker.shutdown(&mut Nobody);
    if let Some(panicked) = lock(&session.panicked).take() {
        return Err(Failure::stopped(format!("tracing broke off, {panicked}: please report this")));
    }
    let summary = core::mem::replace(&mut *lock(&session.summary), Summary::keeping(0));
    Ok(summary.finish())
}

/// No rule has the sid: say what there is.
fn missing(args: &Args, files: &[RuleFile]) -> Failure {
    let (_, sid) = args.sid;
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
    let names: Vec<String> = args.rules.iter().map(|p| p.display().to_string()).collect();
    let near = files.iter().flat_map(|f| &f.rules).map(|r| r.id().sid).min_by_key(|s| s.abs_diff(sid));
    let near = near.map(|s| format!("; the nearest is {s}")).unwrap_or_default();
    let unread: Vec<String> = (files.iter().filter(|f| !f.refused.is_empty()))
        .map(|f| {
            let (count, name) = (f.refused.len(), f.source.name());
            format!(". {count} of {name} cannot be read, and it may be among them: `bartizan check {name}`")
        })
        .collect();
    Failure::input(format!(
        "no rule with sid {sid} among the {rules} of {}{near}. Check the number, or name the file that has it with --rules{}",
        names.join(", "),
        unread.concat()
    ))
}

/// Flow bits that the rule asks for and no rule of the files sets.
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
            "flowbit `{name}` is set by no rule of these files: the rule cannot match; add the file that sets it"
        )
    };
    asked.iter().map(text).collect()
}

fn print(told: &RuleExplanation, text: &str) {
    println!("[{}] {}", told.rule, told.message);
    println!("  {text}");
    println!("place      {}", told.place);
    println!("action     {}, priority {}; a match acts on the {}", told.action, told.priority, told.acts_on);
    println!("about      {}", told.about);
    for on in &told.evaluated_on {
        println!("  on       {on}");
    }
    let head = &told.head;
    let way = if head.bidirectional { "<>" } else { "->" };
    println!(
        "head       {} {} {} {way} {} {}",
        head.protocol, head.source, head.source_ports, head.destination, head.destination_ports
    );
    let mut needs = vec![head.directions.join(" and ")];
    needs.extend(head.state.map(str::to_owned));
    if !head.app_protocols.is_empty() {
        needs.push(format!("application protocol {}", head.app_protocols.join(" or ")));
    }
    if let Some(version) = head.ip_version {
        needs.push(format!("IPv{version}"));
    }
    println!("  needs    {}", needs.join("; "));
    let prefilter = &told.prefilter;
    match (&prefilter.pattern, prefilter.buffer) {
        (Some(pattern), Some(buffer)) => {
            let nocase = if prefilter.nocase == Some(true) { ", in any letter case" } else { "" };
            println!("prefilter  {pattern} in {buffer}{nocase}: {}", prefilter.why);
        }
        _ => println!("prefilter  {}: {}", prefilter.engine, prefilter.why),
    }
    for other in &prefilter.others {
        println!("  not      {other}");
    }
    println!("  group    {}", prefilter.groups.join("; "));
    println!("conditions, in the order of evaluation");
    for (number, condition) in told.conditions.iter().enumerate() {
        print_condition(number + 1, condition);
    }
    if !told.effects.is_empty() {
        println!("when all hold");
        for (number, effect) in told.effects.iter().enumerate() {
            print_condition(number + 1, effect);
        }
    }
    for warning in &told.warnings {
        println!("warning    {warning}");
    }
}

fn print_condition(number: usize, condition: &Condition) {
    let transforms = if condition.transforms.is_empty() {
        String::new()
    } else {
        format!(" after {}", condition.transforms.join(", "))
    };
    println!("  {number:>2} {:<11} {}{transforms}: {}", condition.kind, condition.name, condition.text);
}
