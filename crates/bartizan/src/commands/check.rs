// SPDX-License-Identifier: Apache-2.0
//! `bartizan check FILE...`: are these rules right?

use crate::error::{Exit, Failure};
use crate::load;
use bartizan_base::Generation;
use bartizan_rules::Severity;
use std::io::IsTerminal;
use std::path::PathBuf;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Rule files, plain, gzip or zstd.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// A suricata.yaml with the variables that the rules use.
    #[arg(long, value_name = "FILE")]
    suricata_config: Option<PathBuf>,
    /// Override one setting.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Print findings and counts as JSON.
    #[arg(long)]
    json: bool,
}

/// Checks. Exit code 1 when there is an error.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let settings = load::settings(args.suricata_config.as_deref(), &args.overrides)?;
    let mut warnings = Vec::new();
    let base = load::Base::new(&settings, &mut warnings)?;
    let files = load::rule_files(&args.files)?;
    let loaded = base.rules(&files, &settings, Generation(1))?;
    for warning in &warnings {
        eprintln!("warning: {warning}");
    }
    let errors = loaded.diagnostics.iter().filter(|d| d.severity == Severity::Error).count();
    let report = &loaded.rules.report;
    if args.json {
        let result = serde_json::json!({ "diagnostics": loaded.diagnostics, "rules": report });
        println!("{result}");
    } else {
        let color = std::io::stdout().is_terminal();
        for diagnostic in &loaded.diagnostics {
            let file = files.iter().find(|f| f.source.name().as_ref() == diagnostic.file.as_ref());
            match file {
                Some(file) => println!("{}\n", diagnostic.render(&file.source, color)),
                None => println!("{}: {}\n", diagnostic.file, diagnostic.message),
            }
        }
        println!("{} loaded, {} refused, {} skipped", report.loaded, report.refused_total(), report.skipped);
        for (reason, count) in &report.refused {
            println!("  {count:>6} refused: {reason}");
        }
    }
    Ok(if errors > 0 { Exit::Input } else { Exit::Done })
}
