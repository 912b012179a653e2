// SPDX-License-Identifier: Apache-2.0
//! `bartizan check FILE...`: are these rules and policies right?

use crate::cache::CacheOption;
use crate::error::{Exit, Failure};
use crate::generation::{Builder, Options, is_policy};
use crate::{load, say};
use bartizan_base::Generation;
use bartizan_rules::Severity;
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
pub struct Args {
    /// Rule files and policy files (`.yaml`, `.yml`), plain, gzip or zstd.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// A suricata.yaml with the variables that the rules use.
    #[arg(long, value_name = "FILE")]
    suricata_config: Option<PathBuf>,
    /// Override one setting.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Where compiled patterns are kept.
    #[command(flatten)]
    cache: CacheOption,
    /// Print findings and counts as JSON.
    #[arg(long)]
    json: bool,
}

/// Checks. Exit code 1 when there is an error.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let settings = load::settings(args.suricata_config.as_deref(), &args.overrides)?;
    let mut warnings = Vec::new();
    let cache = crate::cache::open(args.cache.cache.as_deref(), &mut warnings)?;
    let base = load::Base::with(&settings, cache, load::HOSTS, &mut warnings)?;
    let (policies, rules): (Vec<_>, Vec<_>) = args.files.iter().cloned().partition(|p| is_policy(p));
    let per_policy = policies.iter().map(|p| policy_problems(args, p)).collect::<Result<Vec<_>, _>>()?;
    let problems = per_policy.concat();
    let files = load::rule_files(&rules)?;
    let loaded = base.rules(&files, &settings, Generation(1), &[])?;
    for warning in &warnings {
        eprintln!("warning: {warning}");
    }
    let errors = loaded.diagnostics.iter().filter(|d| d.severity == Severity::Error).count() + problems.len();
    let report = &loaded.rules.report;
    if args.json {
        let result =
            serde_json::json!({ "diagnostics": loaded.diagnostics, "rules": report, "policies": problems });
        println!("{result}");
    } else {
        let color = std::io::stdout().is_terminal();
        for problem in &problems {
            println!("{problem}");
        }
        for (path, _) in policies.iter().zip(&per_policy).filter(|(_, problems)| problems.is_empty()) {
            println!("{}: policy is valid", path.display());
        }
        for diagnostic in &loaded.diagnostics {
            let file = files.iter().find(|f| f.source.name().as_ref() == diagnostic.file.as_ref());
            match file {
                Some(file) => {
                    say::diagnostic(&mut std::io::stdout().lock(), diagnostic, &file.source, color);
                    println!();
                }
                None => println!(
                    "{}:{}:{}: {}\n",
                    diagnostic.file, diagnostic.line, diagnostic.column, diagnostic.message
                ),
            }
        }
        if policies.is_empty() || !rules.is_empty() {
            println!(
                "{} loaded, {} refused, {} skipped",
                report.loaded,
                report.refused_total(),
                report.skipped
            );
        }
        for (reason, count) in &report.refused {
            println!("  {count:>6} refused: {reason}");
        }
    }
    Ok(if errors > 0 { Exit::Input } else { Exit::Done })
}

/// Everything that is wrong with a policy file, each with file, line and column: it is built as a run would build it, with its
/// rule files. Links may have any names.
fn policy_problems(args: &Args, path: &std::path::Path) -> Result<Vec<String>, Failure> {
    // What cannot be read is no finding in the file.
    crate::input::read_text(path, "policy file")?;
    let options = Options {
        policy: Some(path.to_owned()),
        suricata_config: args.suricata_config.clone(),
        overrides: args.overrides.clone(),
        cache: args.cache.clone(),
        ..Options::default()
    };
    match Builder::for_captures(&options, std::path::Path::new(""))?.build(Generation(1)) {
        Ok(_) => Ok(Vec::new()),
        Err(error) => Ok(error.to_string().lines().map(str::to_owned).collect()),
    }
}
