// SPDX-License-Identifier: Apache-2.0
//! `differential`: makes pairs, runs programs on them, compares. Exit status: 0 no difference without a reason, 1 some, 2 it
//! could not run.

use bartizan_differential::answer::{Answer, File};
use bartizan_differential::engine::{Program, write};
use bartizan_differential::explained::reason;
use bartizan_differential::make::pair;
use bartizan_differential::pair::Pair;
use bartizan_differential::shrink::shrink;
use clap::{Parser, Subcommand};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

/// Generated rules and conversations: the same alerts, records and refusals as Suricata.
#[derive(Parser)]
#[command(name = "differential")]
struct Args {
    #[command(subcommand)]
    command: Task,
    /// Pairs of one run of a program.
    #[arg(long, global = true, default_value_t = 100)]
    batch: usize,
    /// The root of a system that has Suricata; without it that of the environment's
    /// `SURICATA_ROOT`, else this one's.
    #[arg(long, global = true, value_name = "DIR")]
    suricata_root: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Task {
    /// Compare a program with answers that stand in a file.
    Check {
        /// The program.
        #[arg(long, value_name = "FILE")]
        program: PathBuf,
        /// The answers.
        #[arg(value_name = "ANSWERS")]
        answers: PathBuf,
    },
    /// Ask Suricata, and write its answers.
    Answers {
        /// Everything follows from it.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How many pairs.
        #[arg(long, default_value_t = 2_400)]
        pairs: u32,
        /// Where to.
        #[arg(value_name = "ANSWERS")]
        answers: PathBuf,
    },
    /// Print the rules of pairs.
    Rules {
        /// Everything follows from it.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The pairs.
        numbers: Vec<u32>,
    },
    /// Write a pair alone as files, and what both programs answer.
    Show {
        /// The program.
        #[arg(long, value_name = "FILE")]
        program: PathBuf,
        /// Everything follows from it.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The pair.
        number: u32,
        /// Cut away what the difference does not need.
        #[arg(long)]
        shrink: bool,
        /// Where to.
        #[arg(long, value_name = "DIR", default_value = "target/differential")]
        out: PathBuf,
    },
}

const MODES: [&str; 2] = ["passive", "prevention"];

fn main() -> ExitCode {
    let args = Args::parse();
    let peer = Program::Suricata(args.suricata_root.clone().or_else(|| std::env::var_os("SURICATA_ROOT").map(PathBuf::from)));
    let done = match &args.command {
        Task::Check { program, answers } => check(&Program::Bartizan(program.clone()), answers, args.batch),
        Task::Answers { seed, pairs, answers } => make(*seed, *pairs, answers, &peer, args.batch).map(|()| true),
        Task::Rules { seed, numbers } => {
            numbers.iter().flat_map(|number| pair(*seed, *number).rules()).for_each(|rule| println!("{rule}"));
            Ok(true)
        }
        Task::Show { program, seed, number, shrink, out } => {
            show(&Program::Bartizan(program.clone()), &peer, &pair(*seed, *number), *shrink, out)
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

fn make(seed: u64, count: u32, to: &PathBuf, peer: &Program, batch: usize) -> Result<(), String> {
    let pairs: Vec<Pair> = (0..count).map(|number| pair(seed, number)).collect();
    let mut file = File { seed, ..File::default() };
    let mut answers = [peer.run(&pairs, false, batch)?, peer.run(&pairs, true, batch)?];
    for pair in &pairs {
        let both = answers.each_mut().map(|answers| answers.remove(&pair.number).unwrap_or_default());
        file.answers.insert(pair.number, (pair.digest(), both));
    }
    std::fs::write(to, file.text()).map_err(|error| format!("{}: {error}", to.display()))
}

fn check(ours: &Program, from: &PathBuf, batch: usize) -> Result<bool, String> {
    let text = std::fs::read_to_string(from).map_err(|error| format!("{}: {error}", from.display()))?;
    let file = File::read(&text).map_err(|problem| format!("{}: {problem}", from.display()))?;
    let pairs: Vec<Pair> = file.answers.keys().map(|number| pair(file.seed, *number)).collect();
    if let Some(pair) = pairs.iter().find(|pair| file.answers[&pair.number].0 != pair.digest()) {
        return Err(format!(
            "{}: pair {} is not the one that was asked about: the generator has changed. Make the answers anew: differential answers --seed {} --pairs {} {}",
            from.display(), pair.number, file.seed, pairs.len(), from.display()
        ));
    }
    let (mut open, mut explained) = (0, BTreeMap::<&str, u32>::new());
    for (mode, name) in MODES.iter().enumerate() {
        let got = ours.run(&pairs, mode == 1, batch)?;
        for pair in &pairs {
            let expected = &file.answers[&pair.number].1[mode];
            let none = Answer::default();
            let got = got.get(&pair.number).unwrap_or(&none);
            let lines = got.differences(expected);
            if lines.is_empty() {
                continue;
            }
            match reason(pair, mode == 1, got, expected) {
                Some(reason) => *explained.entry(reason).or_default() += 1,
                None => {
                    open += 1;
                    println!("{} {name} {} (setting {}): {}", pair.number, pair.name, pair.setting, lines.join(" "));
                }
            }
        }
    }
    for (reason, count) in &explained {
        println!("{count} differ on purpose: {reason}");
    }
    println!("{} pairs of seed {}, passive and in prevention: {open} differences", pairs.len(), file.seed);
    Ok(open == 0)
}

fn show(ours: &Program, peer: &Program, pair: &Pair, less: bool, out: &PathBuf) -> Result<bool, String> {
    let mut same = true;
    let mut pair = pair.clone();
    for (mode, name) in MODES.iter().enumerate() {
        let ask = |pair: &Pair| -> Result<(Answer, Answer), String> {
            let one = |program: &Program| Ok::<_, String>(program.run(&[pair.clone()], mode == 1, 1)?.remove(&pair.number).unwrap_or_default());
            Ok((one(ours)?, one(peer)?))
        };
        let (mut got, mut want) = ask(&pair)?;
        if less && got != want {
            pair = shrink(&pair, mode == 1, ours, peer)?;
            (got, want) = ask(&pair)?;
        }
        println!("{name}\n  here:     {got}\n  Suricata: {want}");
        same &= got == want;
    }
    println!("{} (setting {})", pair.name, pair.setting);
    for rule in pair.rules() {
        println!("{rule}");
    }
    for (at, packet) in pair.packets.iter().enumerate() {
        println!("{} {}", at + 1, packet.describe());
    }
    write(&pair, out)?;
    println!("files in {}", out.display());
    Ok(same)
}
