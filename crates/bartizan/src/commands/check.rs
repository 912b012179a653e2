// SPDX-License-Identifier: Apache-2.0
//! `bartizan check FILE...`: checks rules and policies.

use crate::arguments::{CacheArgs, FirewallArgs};
use crate::console;
use bartizan_rules::{Diagnostic, RuleSetReport};
use bartizan_runtime::check::{self, CheckOptions};
use bartizan_runtime::error::{Exit, Failure};
use bartizan_runtime::findings;
use bartizan_runtime::generation::{BuildOptions, is_policy};
use bartizan_runtime::log::Report;
use std::io::IsTerminal;
use std::path::PathBuf;

/// Shown below `--help`.
pub const EXAMPLES: &str = "\
Examples:
  bartizan check my.rules policy.yaml
  bartizan check emerging.rules.gz --json
  bartizan explain rule 1000001 --rules my.rules        # what the engine made of one of them";

/// Arguments.
#[derive(clap::Args)]
pub struct CheckArgs {
    /// Rule files and policy files (`.yaml`, `.yml`), plain, gzip or zstd.
    #[arg(required_unless_present_any = ["suricata_config", "firewall_rules_exclusive"])]
    files: Vec<PathBuf>,
    /// A suricata.yaml with the variables that the rules use; it is checked as well, with its `rule-files` if
    /// no rule file is given.
    #[arg(long, value_name = "FILE")]
    suricata_config: Option<PathBuf>,
    /// Override one setting.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Treat as errors, too: rules that cannot be evaluated here, and settings that are misspelt, whose loss
    /// weakens, or whose events are not written.
    #[arg(long)]
    strict: bool,
    /// Show each rule that cannot be evaluated here, and each setting without effect, even if there are many.
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    firewall: FirewallArgs,
    /// The cache of compiled patterns.
    #[command(flatten)]
    cache: CacheArgs,
    /// Print findings and counts as JSON.
    #[arg(long)]
    json: bool,
}

/// Checks. Exit code 1 when there is an error.
pub fn run(args: &CheckArgs) -> Result<Exit, Failure> {
    let (policies, rules): (Vec<_>, Vec<_>) = args.files.iter().cloned().partition(|p| is_policy(p));
    let build = BuildOptions {
        suricata_config: args.suricata_config.clone(),
        overrides: args.overrides.clone(),
        cache: args.cache.cache.clone(),
        firewall: args.firewall.options(),
        strict: args.strict,
        report: Report::to(console::notes),
        ..BuildOptions::default()
    };
    let of_settings = rules.is_empty();
    check(&CheckOptions { build, rules, of_settings, policies, verbose: args.verbose }, args.json)
}

/// Runs the checks and prints their result.
pub fn check(options: &CheckOptions, json: bool) -> Result<Exit, Failure> {
    let checked = check::run(options)?;
    for warning in &checked.warnings {
        eprintln!("warning: {warning}");
    }
    let (report, content) = (&checked.rules, &checked.content);
    if json {
        let of_policies: Vec<_> = checked.policies.iter().map(|policy| &policy.report).collect();
        let result = serde_json::json!({
            "diagnostics": checked.findings, "rules": report, "policies": checked.problems, "rules_of_policies": of_policies,
            "warnings": checked.warnings, "content": content,
        });
        println!("{result}");
    } else {
        for problem in &checked.problems {
            println!("{problem}");
        }
        for (path, policy) in options.policies.iter().zip(&checked.policies) {
            if policy.problems.is_empty() {
                println!("{}: policy is valid", path.display());
            }
            if let Some(report) = policy.report.as_ref().filter(|report| has_some(report)) {
                print_counts(&format!("rules of {}: ", path.display()), report);
            }
        }
        let each = options.verbose || options.build.strict || findings::are_few(report);
        print_rules(&checked.findings, report, each);
        checked.missing.iter().for_each(|missing| println!("error: {missing}"));
        if options.policies.is_empty() || checked.has_rules {
            print_counts("", report);
        }
        content.iter().for_each(|content| println!("{content}"));
    }
    Ok(if checked.is_valid { Exit::Done } else { Exit::Input })
}

fn print_rules(found: &[Diagnostic], report: &RuleSetReport, each: bool) {
    let color = std::io::stdout().is_terminal();
    let mut out = console::out();
    for finding in found.iter().filter(|finding| each || !findings::is_unsupported(finding)) {
        console::diagnostic(&mut out, finding, color);
        console::line(&mut out, format_args!(""));
    }
    if !each {
        findings::sums(report, found).iter().for_each(|line| console::line(&mut out, format_args!("{line}")));
    }
}

/// Prints the counts of a rule set after the label `of`.
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

/// Whether the report has any rule.
fn has_some(report: &RuleSetReport) -> bool {
    report.loaded + report.refused_total() + report.skipped > 0
}
