// SPDX-License-Identifier: Apache-2.0
//! `bartizan check FILE...`: are these rules and policies right?

use crate::arguments::{CacheArgs, FirewallArgs};
use crate::say;
use bartizan_api::content::Contents;
use bartizan_base::{Generation, Settings};
use bartizan_detect::needs::Needs;
use bartizan_detect::ruleset::Loaded;
use bartizan_events::output::Rights;
use bartizan_events::{EveOutputs, TlsStoreOptions};
use bartizan_rules::{Diagnostic, RuleSetReport, Severity};
use bartizan_runtime::error::{Exit, Failure};
use bartizan_runtime::generation::{BuildOptions, Builder, is_policy, reported};
use bartizan_runtime::log::Report;
use bartizan_runtime::reload::Inventory;
use bartizan_runtime::{control, findings, firewall, load, rule_files, stats, unused};
use bartizan_stages::settings::EngineSettings;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// Shown below `--help`.
pub const EXAMPLES: &str = "\
Examples:
  bartizan check my.rules policy.yaml
  bartizan check emerging.rules.gz --json
  bartizan explain rule 1000001 --rules my.rules        # what the engine made of one of them";

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Rule files and policy files (`.yaml`, `.yml`), plain, gzip or zstd.
    #[arg(required_unless_present_any = ["suricata_config", "firewall_rules_exclusive"])]
    files: Vec<PathBuf>,
    /// A suricata.yaml with the variables that the rules use; it is checked as well, with its `rule-files` if no rule file is given.
    #[arg(long, value_name = "FILE")]
    suricata_config: Option<PathBuf>,
    /// Override one setting.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Rules that cannot be evaluated here, and settings that are misspelt, whose loss weakens, or whose
    /// events are not written, are errors, too.
    #[arg(long)]
    strict: bool,
    /// Show each rule that cannot be evaluated here, and each setting without effect, also when they are many.
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    firewall: FirewallArgs,
    /// Where compiled patterns are kept.
    #[command(flatten)]
    cache: CacheArgs,
    /// Print findings and counts as JSON.
    #[arg(long)]
    json: bool,
}

/// What is checked, by `check` and by `-T` alike.
pub struct Job {
    /// Settings, and where compiled patterns are kept.
    pub options: BuildOptions,
    /// Rule files.
    pub rules: Vec<PathBuf>,
    /// The rule files that the settings name are checked as well.
    pub of_settings: bool,
    /// Policy files. They are built with the rule files of the options, as a run builds them; `rules` are checked by themselves.
    pub policies: Vec<PathBuf>,
    /// Each rule and each setting by its name.
    pub verbose: bool,
    /// As JSON.
    pub json: bool,
}

/// Checks. Exit code 1 when there is an error.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let (policies, rules): (Vec<_>, Vec<_>) = args.files.iter().cloned().partition(|p| is_policy(p));
    let options = BuildOptions {
        suricata_config: args.suricata_config.clone(),
        overrides: args.overrides.clone(),
        cache: args.cache.cache.clone(),
        firewall: args.firewall.options(),
        strict: args.strict,
        report: Report::to(say::notes),
        ..BuildOptions::default()
    };
    let of_settings = rules.is_empty();
    check(&Job { options, rules, of_settings, policies, verbose: args.verbose, json: args.json })
}

/// Checks settings, rules and policies as a run would read them. Malformed rules, settings and policies are errors; rules that are right and
/// cannot be evaluated here are warnings, and errors only with `--strict`.
pub fn check(job: &Job) -> Result<Exit, Failure> {
    let mut contents = Contents::default();
    let mut settings = job.options.settings(&mut contents)?;
    load::data_folder(&mut settings, Path::new(""));
    let mut warnings = Vec::new();
    let cache = bartizan_runtime::cache::open(job.options.cache.as_deref(), &mut warnings)?;
    let base = load::Base::with(&settings, cache, load::HOSTS, &mut warnings)?;
    contents.absorb(base.contents());
    let per_policy =
        job.policies.iter().map(|p| of_policy(&job.options, p)).collect::<Result<Vec<_>, _>>()?;
    let mut problems: Vec<String> = per_policy.iter().flat_map(|policy| policy.problems.clone()).collect();
    let mut rules = job.rules.clone();
    if job.of_settings {
        // A start goes on without them; a test fails, as Suricata's does.
        rules.extend(rule_files::of(&settings, &mut problems));
    }
    let mut files = load::rule_files(&rules, &mut contents)?;
    let of_firewall = job.options.firewall.files(&settings, &mut contents, &mut warnings)?;
    let has_rules = !rules.is_empty() || !of_firewall.is_empty();
    files.extend(of_firewall);
    let mut notes = Vec::new();
    let loaded = base.rules(&mut files, &settings, &[], &mut notes);
    say::notes(&notes);
    let loaded = loaded?;
    load::add_lists(&mut contents, &loaded);
    per_policy.iter().for_each(|policy| contents.absorb(&policy.contents));
    let mut inventory = Inventory::default();
    inventory.add(&files, &loaded);
    let empty = per_policy.iter().flat_map(|policy| policy.empty.clone()).chain(inventory.empty_files());
    warnings.extend(empty);
    warnings.extend(load::unseen_http2(&settings, &Needs::of(&loaded.rules)));
    let faulty = settings_problems(job, &settings, &loaded, &mut warnings)?;
    for warning in &warnings {
        eprintln!("warning: {warning}");
    }
    let strict = job.options.strict;
    // A rule of the firewall that is missing is an error, whatever the reason.
    let missing = loaded.firewall_refused;
    let mut found = findings::graded(&loaded.diagnostics, strict);
    found.extend(base.unused_thresholds(inventory.running()));
    let errors = found.iter().filter(|d| d.severity == Severity::Error).count()
        + problems.len()
        + usize::from(missing > 0);
    // Of what a start would take: what is not right would not be in force.
    let content = (errors == 0).then(|| contents.hashes());
    let report = &loaded.rules.report;
    if job.json {
        let of_policies: Vec<_> = per_policy.iter().map(|policy| &policy.report).collect();
        let result = serde_json::json!({
            "diagnostics": found, "rules": report, "policies": problems, "rules_of_policies": of_policies, "warnings": warnings,
            "content": content,
        });
        println!("{result}");
    } else {
        for problem in &problems {
            println!("{problem}");
        }
        for (path, policy) in job.policies.iter().zip(&per_policy) {
            if policy.problems.is_empty() {
                println!("{}: policy is valid", path.display());
            }
            if let Some(report) = policy.report.as_ref().filter(|report| has_some(report)) {
                print_counts(&format!("rules of {}: ", path.display()), report);
            }
        }
        print_rules(&found, report, job.verbose || strict || findings::are_few(report));
        if missing > 0 {
            println!("error: {}", firewall::missing(missing));
        }
        if job.policies.is_empty() || has_rules {
            print_counts("", report);
        }
        content.iter().for_each(|content| println!("{content}"));
    }
    Ok(if errors > 0 || (strict && faulty) { Exit::Input } else { Exit::Done })
}

fn print_rules(found: &[Diagnostic], report: &RuleSetReport, each: bool) {
    let color = std::io::stdout().is_terminal();
    let mut out = say::out();
    for finding in found.iter().filter(|finding| each || !findings::is_unsupported(finding)) {
        say::diagnostic(&mut out, finding, color);
        say::line(&mut out, format_args!(""));
    }
    if !each {
        findings::sums(report, found).iter().for_each(|line| say::line(&mut out, format_args!("{line}")));
    }
}

/// `of`: what stands before them.
fn print_counts(of: &str, report: &RuleSetReport) {
    println!(
        "{of}{} loaded, {} refused ({} malformed, {} not supported), {} skipped",
        report.loaded,
        report.refused_total(),
        report.malformed_total(),
        report.unsupported_total(),
        report.skipped
    );
    for (reason, count) in &report.refused {
        println!("  {count:>6} refused: {reason}");
    }
}

/// Reads settings as a run does, down to its outputs. True: some are errors with `--strict`.
fn settings_problems(
    job: &Job,
    settings: &Settings,
    loaded: &Loaded,
    warnings: &mut Vec<String>,
) -> Result<bool, Failure> {
    if job.options.suricata_config.is_none() && job.options.overrides.is_empty() {
        return Ok(false);
    }
    let wrong = Failure::setting(settings);
    load::app_layer(settings, &Needs::of(&loaded.rules), load::Mode::Passive)?;
    let (_, more) = EngineSettings::from_settings(settings, false, load::seed()).map_err(&wrong)?;
    warnings.extend(more);
    warnings.extend(EveOutputs::from_settings(settings).map_err(&wrong)?.warnings);
    TlsStoreOptions::from_settings(settings).map_err(&wrong)?;
    Rights::from_settings(settings).map_err(&wrong)?;
    // What only a run asks for.
    control::of_settings(settings).map_err(&wrong)?;
    stats::interval(settings)?;
    let _ = settings.get("default-log-dir");
    settings.mark_read("rule-files");
    let _ = settings.get("default-rule-path");
    warnings.extend(load::alerts_max(settings).map_err(&wrong)?.1);
    Ok(unused::check(settings, job.verbose))
}

/// What became of a policy file.
struct OfPolicy {
    /// Everything that is wrong, with its place where it has one.
    problems: Vec<String>,
    /// What became of the rules.
    report: Option<RuleSetReport>,
    /// Its rule files without rules.
    empty: Vec<String>,
    /// The contents that it was built from; none if it was not built.
    contents: Contents,
}

/// Whether there was a rule at all.
fn has_some(report: &RuleSetReport) -> bool {
    report.loaded + report.refused_total() + report.skipped > 0
}

/// A policy file is built as a run would build it, with its rule files. Links may have any names, unless the options name those that
/// there are.
fn of_policy(of: &BuildOptions, path: &Path) -> Result<OfPolicy, Failure> {
    // What cannot be read is no finding in the file.
    bartizan_runtime::input::read_text(path, "policy file")?;
    let options = BuildOptions { policy: Some(path.to_owned()), ..of.clone() };
    let folder = Path::new("");
    let mut builder = if options.links.is_empty() {
        Builder::for_captures(&options, folder)?
    } else {
        Builder::new(&options, folder)?
    };
    match reported(&mut builder, |builder| builder.build(Generation(1))) {
        Ok(built) => {
            let mut problems = Vec::new();
            let malformed = built.report.malformed_total();
            if malformed > 0 {
                problems.push(format!(
                    "{}: {malformed} malformed {} in the rule files of this policy (see above): a start would leave {} out, a reload would be \
                     refused",
                    path.display(),
                    if malformed == 1 { "line is" } else { "lines are" },
                    if malformed == 1 { "it" } else { "them" },
                ));
            }
            let (report, empty) = (Some(built.report), built.inventory.empty_files());
            Ok(OfPolicy { problems, report, empty, contents: built.contents })
        }
        Err(error) => {
            let problems = error.to_string().lines().map(str::to_owned).collect();
            Ok(OfPolicy { problems, report: None, empty: Vec::new(), contents: Contents::default() })
        }
    }
}
