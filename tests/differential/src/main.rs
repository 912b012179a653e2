// SPDX-License-Identifier: Apache-2.0
//! `differential`: makes pairs, runs programs on them, compares. Exit status: 0 all differences are
//! explained, 1 some are not, 2 it could not run.

use bartizan_differential::answer::{Answer, File};
use bartizan_differential::applications::Grammar;
use bartizan_differential::compare::{Comparison, Difference, MODES, compare, known, pairs};
use bartizan_differential::engine::{Program, write};
use bartizan_differential::explained::explain;
use bartizan_differential::faults::FAULTS;
use bartizan_differential::pair::Pair;
use bartizan_differential::reasons::Kind;
use bartizan_differential::shrink::shrink;
use clap::{Parser, Subcommand};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Tests that generated rules and conversations give the same alerts, records and rejected rules as Suricata.
#[derive(Parser)]
#[command(name = "differential")]
struct Args {
    #[command(subcommand)]
    command: Task,
    /// Number of pairs in one run of a program.
    #[arg(long, global = true, default_value_t = 100)]
    batch: usize,
    /// Root directory of a system that has Suricata; default: `SURICATA_ROOT` of the environment, else this
    /// system.
    #[arg(long, global = true, value_name = "DIR")]
    suricata_root: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Task {
    /// Compare a program with the answers in a file.
    Check {
        /// The program under test.
        #[arg(long, value_name = "FILE")]
        program: PathBuf,
        /// File of known open differences: any other difference is an error.
        #[arg(long, value_name = "FILE")]
        open: Option<PathBuf>,
        /// Write the file of open differences.
        #[arg(long, requires = "open")]
        write_open: bool,
        /// Print each explained line, and its reason.
        #[arg(long)]
        why: bool,
        /// File of answers.
        #[arg(value_name = "ANSWERS")]
        answers: PathBuf,
    },
    /// Plant faults of several kinds and check that each is found.
    Planted {
        /// The program under test.
        #[arg(long, value_name = "FILE")]
        program: PathBuf,
        /// File of answers.
        #[arg(value_name = "ANSWERS")]
        answers: PathBuf,
    },
    /// Run Suricata, and write its answers.
    Answers {
        /// Seed of all pairs.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Number of pairs.
        #[arg(long, default_value_t = 5_000)]
        pairs: u32,
        /// Protocols of the grammar of application protocols, separated by commas; none: the other grammars.
        #[arg(long, default_value = "", value_name = "NAMES")]
        protocols: String,
        /// File to write.
        #[arg(value_name = "ANSWERS")]
        answers: PathBuf,
    },
    /// Print the rules of pairs.
    Rules {
        /// Seed of all pairs.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Protocols of the grammar of application protocols.
        #[arg(long, default_value = "", value_name = "NAMES")]
        protocols: String,
        /// Numbers of the pairs.
        numbers: Vec<u32>,
    },
    /// Write the files of a single pair, and the answers of both programs.
    Show {
        /// The program under test.
        #[arg(long, value_name = "FILE")]
        program: PathBuf,
        /// Seed of all pairs.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Protocols of the grammar of application protocols.
        #[arg(long, default_value = "", value_name = "NAMES")]
        protocols: String,
        /// Number of the pair.
        number: u32,
        /// Remove everything that the difference does not need.
        #[arg(long)]
        shrink: bool,
        /// Folder to write to.
        #[arg(long, value_name = "DIR", default_value = "target/differential")]
        out: PathBuf,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    let peer = Program::Suricata(
        args.suricata_root.clone().or_else(|| std::env::var_os("SURICATA_ROOT").map(PathBuf::from)),
    );
    let done = match &args.command {
        Task::Check { program, open, write_open, why, answers } => {
            let program = Program::Bartizan(program.clone());
            check(&program, answers, open.as_deref(), *write_open, *why, args.batch)
        }
        Task::Planted { program, answers } => {
            planted(&Program::Bartizan(program.clone()), answers, args.batch)
        }
        Task::Answers { seed, pairs, protocols, answers } => Grammar::read(protocols)
            .and_then(|grammar| make(*seed, &grammar, *pairs, answers, &peer, args.batch))
            .map(|()| true),
        Task::Rules { seed, protocols, numbers } => Grammar::read(protocols).map(|grammar| {
            let rules = numbers.iter().flat_map(|number| grammar.pair(*seed, *number).rules());
            rules.for_each(|rule| println!("{rule}"));
            true
        }),
        Task::Show { program, seed, protocols, number, shrink, out } => {
            Grammar::read(protocols).and_then(|grammar| {
                let pair = grammar.pair(*seed, *number);
                show(&Program::Bartizan(program.clone()), &peer, &pair, *shrink, out)
            })
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(problem) => {
            eprintln!("differential: {problem}");
            ExitCode::from(2)
        }
    }
}

fn make(
    seed: u64,
    grammar: &Grammar,
    count: u32,
    to: &Path,
    peer: &Program,
    batch: usize,
) -> Result<(), String> {
    let pairs: Vec<Pair> = (0..count).map(|number| grammar.pair(seed, number)).collect();
    let mut file = File { seed, grammar: grammar.clone(), ..File::default() };
    let mut answers = [peer.run(&pairs, false, batch)?, peer.run(&pairs, true, batch)?];
    for pair in &pairs {
        let both = answers.each_mut().map(|answers| answers.remove(&pair.number).unwrap_or_default());
        file.answers.insert(pair.number, (pair.digest(), both));
    }
    std::fs::write(to, file.text()).map_err(|error| format!("{}: {error}", to.display()))
}

fn read(from: &Path) -> Result<File, String> {
    let text = std::fs::read_to_string(from).map_err(|error| format!("{}: {error}", from.display()))?;
    File::read(&text).map_err(|problem| format!("{}: {problem}", from.display()))
}

fn check(
    ours: &Program,
    from: &Path,
    open: Option<&Path>,
    write: bool,
    why: bool,
    batch: usize,
) -> Result<bool, String> {
    let file = read(from)?;
    let pairs = pairs(&file).map_err(|problem| format!("{}: {problem}", from.display()))?;
    let found = compare(ours, &pairs, &file, batch)?;
    let text = match open {
        Some(open) if !write => {
            std::fs::read_to_string(open).map_err(|error| format!("{}: {error}", open.display()))?
        }
        _ => String::new(),
    };
    let known = known(&text);
    // Of application protocols the list has the pairs that differ, not how.
    let is_short = file.grammar != Grammar::default();
    let line = |difference: &Difference| match is_short {
        true => format!("{} {}", difference.number, MODES[difference.mode]),
        false => difference.to_string(),
    };
    let lines: BTreeSet<String> = found.differences.iter().map(line).collect();
    let mut fresh = 0;
    for difference in &found.differences {
        if !known.contains(line(difference).as_str()) {
            fresh += 1;
            let pair = file.grammar.pair(file.seed, difference.number);
            println!("{difference}\n    {} (setting {})", pair.name, pair.setting);
        }
    }
    for line in known.iter().filter(|line| !lines.contains(**line)) {
        println!("no longer so, take it off the list: {line}");
    }
    for line in found.lines.iter().filter(|_| why) {
        println!("{line}");
    }
    print_explained(&found);
    if let (Some(open), true) = (open, write) {
        let mut text = String::from(
            "# What differs from answers.txt and is still to be mended; docs/differential.md.\n",
        );
        lines.iter().for_each(|line| text.extend([line.as_str(), "\n"]));
        std::fs::write(open, text).map_err(|error| format!("{}: {error}", open.display()))?;
    }
    println!(
        "{} pairs of seed {}, passive and in prevention: {fresh} differences, and {} that are known to be open",
        pairs.len(),
        file.seed,
        found.differences.len() - fresh
    );
    Ok(fresh == 0)
}

/// Prints the explained differences: each explanation with its number, then its causes with theirs.
fn print_explained(found: &Comparison) {
    let mut kinds: BTreeMap<Kind, Vec<(&str, u32)>> = BTreeMap::new();
    for (reason, count) in &found.explained {
        kinds.entry(reason.kind).or_default().push((reason.cause, *count));
    }
    for (kind, causes) in kinds {
        let total: u32 = causes.iter().map(|(_, count)| count).sum();
        println!("{total} differ on purpose: {}", kind.summary());
        causes.iter().for_each(|(cause, count)| println!("    {count} {cause}"));
    }
}

/// The largest number of pairs run with one fault, of all that it affects.
const MOST: usize = 80;

/// Whether each planted fault is found: more pairs differ with the fault than without.
fn planted(ours: &Program, from: &Path, batch: usize) -> Result<bool, String> {
    let file = read(from)?;
    let pairs = pairs(&file).map_err(|problem| format!("{}: {problem}", from.display()))?;
    let mut all = true;
    for fault in FAULTS {
        let mut touched = Vec::new();
        for pair in &pairs {
            let mut other = pair.clone();
            (fault.plant)(&mut other);
            if other.digest() != pair.digest() {
                touched.push((pair.clone(), other));
            }
        }
        let step = touched.len().div_ceil(MOST).max(1);
        let (sound, faulty): (Vec<_>, Vec<_>) = touched.into_iter().step_by(step).unzip();
        let known: BTreeSet<_> = compare(ours, &sound, &file, batch)?.differences.into_iter().collect();
        let with = compare(ours, &faulty, &file, batch)?.differences;
        let found = with.iter().filter(|difference| !known.contains(difference)).count();
        println!("{}: {found} in {} pairs that it touches, twice each", fault.name, faulty.len());
        all &= found > 0;
    }
    Ok(all)
}

fn show(ours: &Program, peer: &Program, pair: &Pair, less: bool, out: &Path) -> Result<bool, String> {
    let mut same = true;
    for (mode, name) in MODES.iter().enumerate() {
        let ask = |pair: &Pair| -> Result<(Answer, Answer), String> {
            let one = |program: &Program| {
                Ok::<_, String>(
                    program
                        .run(std::slice::from_ref(pair), mode == 1, 1)?
                        .remove(&pair.number)
                        .unwrap_or_default(),
                )
            };
            Ok((one(ours)?, one(peer)?))
        };
        let mut pair = pair.clone();
        let (mut got, mut want) = ask(&pair)?;
        let open = !explain(&pair, mode == 1, &got, &want).0.is_empty();
        same &= !open;
        if less && !open {
            continue;
        }
        if less {
            pair = shrink(&pair, mode == 1, ours, peer)?;
            (got, want) = ask(&pair)?;
        }
        let (left, reasons) = explain(&pair, mode == 1, &got, &want);
        println!("{name}\n  here:     {got}\n  Suricata: {want}\n  open:     {}", left.join(" "));
        for reason in reasons {
            println!("  on purpose: {} ({})", reason.kind.summary(), reason.cause);
        }
        println!("{} (setting {})", pair.name, pair.setting);
        for rule in pair.rules() {
            println!("{rule}");
        }
        for (at, packet) in pair.packets.iter().enumerate() {
            println!("{} {}", at + 1, packet.describe());
        }
        let out = out.join(name);
        write(&pair, &out)?;
        println!("files in {}", out.display());
    }
    Ok(same)
}
