// SPDX-License-Identifier: Apache-2.0
//! `bartizan classify RULES [TRACE]`: the header rules of a ClassBench file, and which of them headers match.
//!
//! Rules are numbered from 0 in their order. Not done: policies as RULES.

use crate::error::{Exit, Failure};
use crate::input;
use bartizan_base::Fid;
use bartizan_classify::generate::{GenerateError, Statistics};
use bartizan_classify::trace::{Draw, draw_seeded};
use bartizan_classify::{
    Auto, Classifier, Entry, Flat, FlatV4, FlatV6, Header, HeaderRule, Match, classbench,
};
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;

/// Headers that are looked up at a time.
const BATCH: usize = 64;
/// Rules that are drawn at most.
const GENERATE_MAX: i64 = 10_000_000;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Rules in ClassBench's form, plain, gzip or zstd; the first that matches wins.
    rules: PathBuf,
    /// Headers, one a line: SIP DIP SPORT DPORT PROTO; more columns are ignored. Prints one rule number a line, -1 for none.
    trace: Option<PathBuf>,
    /// Memory that tables may take, in MiB; what goes beyond is searched linearly.
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    budget: usize,
    /// Print a trace of this many headers drawn from the rules instead (Pareto's law, as ClassBench does).
    #[arg(long, value_name = "COUNT", conflicts_with = "trace")]
    draw: Option<usize>,
    /// How --draw draws: U uniform, C corners, P Pareto, Z Zipf, X crossed rules.
    #[arg(long, value_name = "LETTER", default_value = "P", value_parser = letter)]
    how: Draw,
    /// Print a rule set of this many rules instead, drawn from the statistics of the rules (lengths and nesting of
    /// prefixes, ports, protocols); the last one matches everything.
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["trace", "draw", "json"], value_parser = clap::value_parser!(u32).range(1..=GENERATE_MAX))]
    generate: Option<u32>,
    /// IP version of --generate: IPv6 rules from IPv4 statistics have their prefixes widened (/8 to /32, /16 to /48, /24 to
    /// /64, /32 to /128). That of the rules unless given.
    #[arg(long, value_name = "VERSION", requires = "generate", value_parser = ["4", "6"])]
    ip_version: Option<String>,
    /// Seed of --draw and --generate.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn letter(text: &str) -> Result<Draw, String> {
    let mut letters = text.chars();
    let draw = letters.next().and_then(|l| Draw::from_letter(l.to_ascii_uppercase()));
    match (draw, letters.next()) {
        (Some(draw), None) => Ok(draw),
        _ => Err("give one of U, C, P, Z, X".into()),
    }
}

/// Classifies.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let text = read(&args.rules)?;
    let rules =
        classbench::rules(&text).map_err(|e| Failure::input(format!("{}: {e}", args.rules.display())))?;
    let out = std::io::stdout().lock();
    let mut out = BufWriter::new(out);
    if let Some(count) = args.generate {
        let text = generate(&rules, count as usize, args.ip_version.as_deref(), args.seed)
            .map_err(|e| Failure::input(format!("{}: {e}", args.rules.display())))?;
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::stopped)?;
        return Ok(Exit::Done);
    }
    if let Some(count) = args.draw {
        for h in draw_seeded(&rules, args.how, count, args.seed) {
            let (ports, protocol) = ((h.source_port, h.destination_port), h.protocol);
            writeln!(out, "{}\t{}\t{}\t{}\t{protocol}", h.source, h.destination, ports.0, ports.1)
                .map_err(Failure::stopped)?;
        }
        out.flush().map_err(Failure::stopped)?;
        return Ok(Exit::Done);
    }
    let start = Instant::now();
    let entries = rules.iter().enumerate().map(entry).collect();
    let auto = Auto::new(&[entries], args.budget << 20).map_err(Failure::input)?;
    let seconds = start.elapsed().as_secs_f64();
    match &args.trace {
        Some(path) => {
            let headers = classbench::trace(&read(path)?)
                .map_err(|e| Failure::input(format!("{}: {e}", path.display())))?;
            let numbers = answers(auto.classifier.as_ref(), &headers);
            if args.json {
                writeln!(out, "{}", serde_json::json!({ "rules": rules.len(), "answers": numbers }))
            } else {
                numbers.iter().try_for_each(|n| writeln!(out, "{n}"))
            }
        }
        None => {
            let speed = speed(auto.classifier.as_ref(), &rules);
            let memory = auto.classifier.memory();
            if args.json {
                let value = serde_json::json!({
                    "rules": rules.len(), "structure": auto.why, "build_seconds": seconds, "memory_bytes": memory,
                    "lookups_per_second": speed,
                });
                writeln!(out, "{value}")
            } else {
                writeln!(out, "rules       {}", rules.len())
                    .and_then(|()| writeln!(out, "structure   {}", auto.why))
                    .and_then(|()| writeln!(out, "build       {seconds:.4} s"))
                    .and_then(|()| writeln!(out, "memory      {:.2} MiB", memory as f64 / f64::from(1 << 20)))
                    .and_then(|()| writeln!(out, "throughput  {:.1} million lookups/s, one core", speed / 1e6))
            }
        }
    }
    .and_then(|()| out.flush())
    .map_err(Failure::stopped)?;
    Ok(Exit::Done)
}

fn read(path: &std::path::Path) -> Result<String, Failure> {
    let bytes = input::read_text(path, "rules or headers")?;
    String::from_utf8(bytes).map_err(|_| Failure::input(format!("{}: not a text file", path.display())))
}

/// The lines of a rule set that is drawn from the statistics of another.
fn generate(
    rules: &[HeaderRule],
    count: usize,
    version: Option<&str>,
    seed: u64,
) -> Result<String, GenerateError> {
    let statistics = Statistics::measure(rules)?;
    let v6 = version.map_or(statistics.is_v6(), |version| version == "6");
    // Rules of the version itself say more than widened ones.
    let statistics =
        if v6 { Statistics::measure_version(rules, true).unwrap_or(statistics) } else { statistics };
    Ok(classbench::write(&statistics.draw(count, v6, seed)?))
}

fn entry((number, rule): (usize, &HeaderRule)) -> Entry {
    Entry { fid: Fid(number as u32), priority: number as u32, rule: *rule }
}

/// The rule's number for each header, -1 for none.
fn answers(classifier: &dyn Classifier, headers: &[Header]) -> Vec<i64> {
    let mut out = vec![-1; headers.len()];
    let mut v4: (Vec<FlatV4>, Vec<usize>) = Default::default();
    let mut v6: (Vec<FlatV6>, Vec<usize>) = Default::default();
    for (number, header) in headers.iter().enumerate() {
        match Flat::new(header) {
            Some(Flat::V4(flat)) => {
                v4.0.push(flat);
                v4.1.push(number);
            }
            Some(Flat::V6(flat)) => {
                v6.0.push(flat);
                v6.1.push(number);
            }
            None => {
                let mut result = [None];
                classifier.lookup(header, &mut result);
                out[number] = result[0].map_or(-1, |m| i64::from(m.priority));
            }
        }
    }
    let mut results = vec![None; BATCH];
    for (headers, places) in v4.0.chunks(BATCH).zip(v4.1.chunks(BATCH)) {
        let results = &mut results[..headers.len()];
        classifier.lookup_v4(headers, results);
        place(&mut out, places, results);
    }
    for (headers, places) in v6.0.chunks(BATCH).zip(v6.1.chunks(BATCH)) {
        let results = &mut results[..headers.len()];
        classifier.lookup_v6(headers, results);
        place(&mut out, places, results);
    }
    out
}

fn place(out: &mut [i64], places: &[usize], results: &[Option<Match>]) {
    for (place, result) in places.iter().zip(results) {
        out[*place] = result.map_or(-1, |m| i64::from(m.priority));
    }
}

/// Lookups per second, of headers drawn uniformly from the rules; the best of five passes.
fn speed(classifier: &dyn Classifier, rules: &[HeaderRule]) -> f64 {
    let headers = draw_seeded(rules, Draw::Uniform, 400_000, 0x5eed_0000 + u64::from(b'U'));
    let flat: Vec<Flat> = headers.iter().filter_map(Flat::new).collect();
    let v4: Vec<FlatV4> =
        flat.iter().filter_map(|f| if let Flat::V4(f) = f { Some(*f) } else { None }).collect();
    let v6: Vec<FlatV6> =
        flat.iter().filter_map(|f| if let Flat::V6(f) = f { Some(*f) } else { None }).collect();
    let mut results = vec![None; BATCH];
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        for headers in v4.chunks(BATCH) {
            classifier.lookup_v4(headers, &mut results[..headers.len()]);
        }
        for headers in v6.chunks(BATCH) {
            classifier.lookup_v6(headers, &mut results[..headers.len()]);
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    if flat.is_empty() { 0.0 } else { flat.len() as f64 / best }
}
