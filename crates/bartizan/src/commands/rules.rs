// SPDX-License-Identifier: Apache-2.0
//! `bartizan rules`: what the engine makes of a rule feed, its rules as drop rules, what an update changes.

use crate::console;
use bartizan_api::content::Contents;
use bartizan_rules::feed::{self, DropChoice, FeedDiff, RuleChange};
use bartizan_runtime::coverage::{self, FeedCoverage, RuleCounts};
use bartizan_runtime::error::{Exit, Failure};
use bartizan_runtime::generation::BuildOptions;
use bartizan_runtime::load;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Shown below `--help`.
pub const EXAMPLES: &str = "\
Examples:
  bartizan rules coverage emerging.rules.gz                     # what is refused, and for what
  bartizan rules to-drop emerging.rules.gz > drop.rules         # its rules as drop rules
  bartizan rules to-drop et/*.rules --out drop/ --except 2024897,2027390
  bartizan rules diff old/emerging.rules new/emerging.rules     # what an update changes";

/// Arguments.
#[derive(clap::Args)]
pub struct RulesArgs {
    #[command(subcommand)]
    command: RulesCommand,
}

#[derive(clap::Subcommand)]
enum RulesCommand {
    /// Count the rules of a feed by dialect, protocol and keyword, and what is missing for refused ones.
    Coverage(CoverageArgs),
    /// Print a feed with its alert rules as drop rules. Rules that report nothing, rules whose flowbits or
    /// flowints others read, and rules on events of the engine stay as they are.
    ToDrop(ToDropArgs),
    /// Compare two states of a feed by signature: added, removed, enabled, disabled and changed rules. Exit
    /// code 1 if they differ.
    Diff(DiffArgs),
}

#[derive(clap::Args)]
struct CoverageArgs {
    /// Rule files, plain, gzip or zstd.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// A suricata.yaml with the variables and settings that the rules use.
    #[arg(long, value_name = "FILE")]
    suricata_config: Option<PathBuf>,
    /// Show the counts of every keyword, too.
    #[arg(long)]
    all: bool,
    /// Print the counts as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct ToDropArgs {
    /// Rule files, plain, gzip or zstd.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Only rules of these classes (`classtype`), with commas between them.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    classtype: Vec<String>,
    /// Not these signatures.
    #[arg(long, value_name = "SIDS", value_delimiter = ',')]
    except: Vec<u32>,
    /// Rules on events of the engine (`stream-event`, `app-layer-event`) as well.
    #[arg(long)]
    events: bool,
    /// Write each file into this folder, under its own name, instead of all to standard output.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(clap::Args)]
struct DiffArgs {
    /// The earlier state: a rule file or a folder of `.rules` files.
    before: PathBuf,
    /// The later state.
    after: PathBuf,
    /// Print the differences as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs a subcommand.
pub fn run(args: &RulesArgs) -> Result<Exit, Failure> {
    match &args.command {
        RulesCommand::Coverage(args) => coverage(args),
        RulesCommand::ToDrop(args) => to_drop(args),
        RulesCommand::Diff(args) => diff(args),
    }
}

fn coverage(args: &CoverageArgs) -> Result<Exit, Failure> {
    let options = BuildOptions { suricata_config: args.suricata_config.clone(), ..BuildOptions::default() };
    let found = coverage::of_feed(&options, &args.files)?;
    if args.json {
        println!("{}", serde_json::json!(found));
    } else {
        print_coverage(&found, args.all);
    }
    Ok(Exit::Done)
}

fn print_coverage(found: &FeedCoverage, all: bool) {
    let mut out = console::out();
    let report = &found.report;
    console::line(
        &mut out,
        format_args!(
            "{} loaded, {} refused ({} malformed, {} not supported), {} skipped, {} disabled",
            report.loaded,
            report.refused_total(),
            report.malformed_total(),
            report.unsupported_total(),
            report.skipped,
            report.disabled
        ),
    );
    let missing = [("protocol", &report.unsupported_protocols), ("keyword", &report.unsupported_keywords)];
    for (kind, names) in missing {
        let mut names: Vec<_> = names.iter().collect();
        names.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), *name));
        for (name, count) in names {
            console::line(&mut out, format_args!("missing {kind} {name}: {count} rules"));
        }
    }
    for (reason, count) in &report.refused {
        console::line(&mut out, format_args!("refused, {reason}: {count} rules"));
    }
    let mut tables = vec![("dialect", &found.dialects), ("protocol", &found.protocols)];
    if all {
        tables.push(("keyword", &found.keywords));
    }
    for (kind, counts) in tables {
        console::line(&mut out, format_args!("\n{kind:<32} {:>8} {:>8}", "rules", "refused"));
        for (name, counts) in ordered(counts) {
            console::line(&mut out, format_args!("{name:<32} {:>8} {:>8}", counts.rules, counts.refused));
        }
    }
}

/// The entries with most rules first.
fn ordered(counts: &BTreeMap<String, RuleCounts>) -> Vec<(&str, RuleCounts)> {
    let mut entries: Vec<_> = counts.iter().map(|(name, counts)| (name.as_str(), *counts)).collect();
    entries.sort_by_key(|(name, counts)| (std::cmp::Reverse(counts.rules), *name));
    entries
}

fn to_drop(args: &ToDropArgs) -> Result<Exit, Failure> {
    let files = load::rule_files(&args.files, &mut Contents::default())?;
    let choice = DropChoice {
        classes: args.classtype.iter().cloned().collect(),
        except: args.except.iter().copied().collect(),
        events: args.events,
    };
    let converted = feed::to_drop(&files, &choice);
    match &args.out {
        Some(folder) => write_texts(folder, &args.files, &converted.texts)?,
        None => {
            let mut out = console::out();
            for text in &converted.texts {
                out.write_all(text)
                    .map_err(|error| Failure::stopped(format!("cannot write the rules: {error}")))?;
            }
        }
    }
    let unread: usize = files.iter().map(|file| file.refused.len()).sum();
    let mut parts = vec![format!("{} rules drop", converted.dropping)];
    parts.extend(converted.kept.iter().map(|(reason, count)| format!("{count} stay: {}", reason.text())));
    if unread > 0 {
        parts.push(format!("{unread} lines are no valid rules and stay (`bartizan check` names them)"));
    }
    eprintln!("{}", parts.join("; "));
    Ok(Exit::Done)
}

fn write_texts(folder: &Path, files: &[PathBuf], texts: &[Vec<u8>]) -> Result<(), Failure> {
    let mut names = BTreeSet::new();
    for (path, text) in files.iter().zip(texts) {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let name = name.trim_end_matches(".gz").trim_end_matches(".zst").to_owned();
        if !names.insert(name.clone()) {
            return Err(Failure::input(format!("two files are named {name}; convert them one by one")));
        }
        let target = folder.join(&name);
        if target
            .canonicalize()
            .ok()
            .is_some_and(|target| path.canonicalize().is_ok_and(|path| path == target))
        {
            return Err(Failure::input(format!(
                "{} would be overwritten; choose another folder",
                path.display()
            )));
        }
        let write = || {
            std::fs::create_dir_all(folder)?;
            std::fs::write(&target, text)
        };
        write().map_err(|error| Failure::stopped(format!("cannot write {}: {error}", target.display())))?;
    }
    Ok(())
}

fn diff(args: &DiffArgs) -> Result<Exit, Failure> {
    let read = |path: &Path| load::rule_files(&rule_paths(path)?, &mut Contents::default());
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    for file in before.iter().chain(&after) {
        if !file.refused.is_empty() {
            let name = file.source.name();
            eprintln!(
                "warning: {name}: {} lines are no valid rules and are not compared",
                file.refused.len()
            );
        }
    }
    let found = feed::diff(&before, &after);
    if args.json {
        println!("{}", serde_json::json!(found));
    } else {
        print_diff(&found);
    }
    let differ = [&found.added, &found.removed, &found.enabled, &found.disabled, &found.changed];
    Ok(if differ.iter().all(|list| list.is_empty()) { Exit::Done } else { Exit::Input })
}

/// The rule files that a path names.
fn rule_paths(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let failed =
        |error: std::io::Error| Failure::input(format!("cannot read folder {}: {error}", path.display()));
    let entries = std::fs::read_dir(path).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let is_rules = |path: &PathBuf| {
        let name = path.to_string_lossy();
        name.trim_end_matches(".gz").trim_end_matches(".zst").ends_with(".rules")
    };
    let mut paths: Vec<PathBuf> = entries.iter().map(std::fs::DirEntry::path).filter(is_rules).collect();
    paths.sort();
    if paths.is_empty() {
        return Err(Failure::input(format!("{} has no `.rules` files", path.display())));
    }
    Ok(paths)
}

fn print_diff(found: &FeedDiff) {
    let mut out = console::out();
    let lists = [
        ("added", &found.added),
        ("removed", &found.removed),
        ("enabled", &found.enabled),
        ("disabled", &found.disabled),
        ("changed", &found.changed),
    ];
    for (name, list) in lists {
        for change in list {
            console::line(&mut out, format_args!("{}", line_of(name, change)));
        }
    }
    let counts: Vec<String> = lists.iter().map(|(name, list)| format!("{} {name}", list.len())).collect();
    console::line(&mut out, format_args!("{}, {} the same", counts.join(", "), found.same));
}

fn line_of(kind: &str, change: &RuleChange) -> String {
    let gid = if change.gid == 1 { String::new() } else { format!("{}:", change.gid) };
    let revision = match change.revisions {
        (Some(old), Some(new)) if old != new => format!(" rev {old} to {new}"),
        (_, Some(new)) => format!(" rev {new}"),
        (Some(old), None) => format!(" rev {old}"),
        (None, None) => String::new(),
    };
    let off = if kind == "added" && !change.enabled.1 { " (disabled)" } else { "" };
    let parts: Vec<&str> = change.parts.iter().map(String::as_str).filter(|part| *part != "rev").collect();
    let parts = if parts.is_empty() { String::new() } else { format!(" [{}]", parts.join(", ")) };
    format!("{kind:<9} {gid}{}{revision}{off} {}{parts}", change.sid, change.msg)
}
