// SPDX-License-Identifier: Apache-2.0
//! `bartizan classify RULES [TRACE]`: matches headers against the header rules of a ClassBench file or the
//! policies of a policy file.
//!
//! Rules and policies are numbered from 0 in their order. Of a policy file only the choice of the policy is
//! evaluated; `bartizan explain flow` shows service levels and the rules of packet filters.

use crate::console::{self, Harmless};
use bartizan_classify::trace::Draw;
use bartizan_classify::{Auto, Header};
use bartizan_runtime::error::{Exit, Failure};
use bartizan_runtime::generation::is_policy;
use bartizan_runtime::headers::{HeaderRuleSet, lookups};
use bartizan_runtime::log::Report;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;

/// The most rules to draw.
const GENERATE_MAX: i64 = 10_000_000;
/// The number of headers for measuring the throughput: drawn uniformly, from a fixed seed.
const SPEED_HEADERS: usize = 400_000;
const SPEED_SEED: u64 = 0x5eed_0000 + 'U' as u64;

/// Shown below `--help`.
pub const EXAMPLES: &str = "\
Examples:
  bartizan classify acl.rules headers.txt                 # the rule of each header
  bartizan classify policy.yaml headers.txt --link wan    # the policy of each flow
  bartizan classify policy.yaml                           # structure, memory, lookups per second
  bartizan classify acl.rules --generate 100000 > larger.rules";

/// Arguments.
#[derive(clap::Args)]
pub struct ClassifyArgs {
    /// Rules in ClassBench's form, or a policy file (`.yaml`, `.yml`), plain, gzip or zstd; the first that
    /// matches wins.
    rules: PathBuf,
    /// Headers, one a line: SIP DIP SPORT DPORT PROTO, as the opener of the flow sends them; more columns are
    /// ignored. Prints one number a line: that of the rule or policy, from 0; -1 for none (with policies: the
    /// default applies).
    trace: Option<PathBuf>,
    /// Tenant of the headers, for a policy file [default: the default tenant].
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Link of the headers: a name of the policy file [default: one that no policy names].
    #[arg(long, value_name = "NAME")]
    link: Option<String>,
    /// Memory that tables may take, in MiB; rules beyond it are searched linearly.
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    budget: usize,
    /// Print a trace of this many headers drawn from the rules instead (Pareto's law, as ClassBench does).
    #[arg(long, value_name = "COUNT", conflicts_with = "trace")]
    draw: Option<usize>,
    /// The distribution that --draw draws by: U uniform, C corners, P Pareto, Z Zipf, X crossed rules.
    #[arg(long, value_name = "LETTER", default_value = "P", value_parser = letter)]
    how: Draw,
    /// Print a rule set of this many rules instead, drawn from the statistics of ClassBench rules (lengths
    /// and nesting of prefixes, ports, protocols); the last one matches everything.
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["trace", "draw", "json"], value_parser = clap::value_parser!(u32).range(1..=GENERATE_MAX))]
    generate: Option<u32>,
    /// IP version of --generate: IPv6 rules from IPv4 statistics have their prefixes widened (/8 to /32, /16
    /// to /48, /24 to /64, /32 to /128). That of the rules unless given.
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

/// Runs the command.
pub fn run(args: &ClassifyArgs) -> Result<Exit, Failure> {
    if args.generate.is_some() && is_policy(&args.rules) {
        return Err(Failure::usage(format!(
            "--generate draws from the statistics of a ClassBench file, and policies have no ports and protocols to measure; \
             give ClassBench rules instead of {}, or draw headers with --draw",
            args.rules.display()
        )));
    }
    let source = HeaderRuleSet::read(
        &args.rules,
        args.tenant.as_deref(),
        args.link.as_deref(),
        Report::to(console::notes),
    )?;
    let mut out = Harmless::new(BufWriter::new(console::out()));
    let printed = match (args.generate, args.draw) {
        (Some(count), _) => {
            let text = source
                .generate(count as usize, args.ip_version.as_deref(), args.seed)
                .map_err(|e| Failure::input(format!("{}: {e}", args.rules.display())))?;
            out.write_all(text.as_bytes())
        }
        (None, Some(count)) => print_trace(&mut out, &source.draw(args.how, count, args.seed)),
        (None, None) => {
            let start = Instant::now();
            let auto = Auto::new(core::slice::from_ref(&source.entries), args.budget << 20)
                .map_err(Failure::input)?;
            let seconds = start.elapsed().as_secs_f64();
            match &args.trace {
                Some(path) => print_answers(&mut out, args, &source, &auto, &source.trace(path)?),
                None => print_report(&mut out, args, &source, &auto, seconds),
            }
        }
    };
    // `console::out` notes a failure, and the program reports it at its end.
    let _ = printed.and_then(|()| out.flush());
    Ok(Exit::Done)
}

fn print_trace(out: &mut impl Write, headers: &[Header]) -> std::io::Result<()> {
    headers.iter().try_for_each(|h| {
        let (ports, protocol) = ((h.source_port, h.destination_port), h.protocol);
        writeln!(out, "{}\t{}\t{}\t{}\t{protocol}", h.source, h.destination, ports.0, ports.1)
    })
}

fn print_answers(
    out: &mut impl Write,
    args: &ClassifyArgs,
    source: &HeaderRuleSet,
    auto: &Auto,
    headers: &[Header],
) -> std::io::Result<()> {
    let numbers = lookups::answers(auto.classifier.as_ref(), headers);
    if args.json {
        return writeln!(out, "{}", serde_json::json!({ "rules": source.count, "answers": numbers }));
    }
    numbers.iter().try_for_each(|n| writeln!(out, "{n}"))
}

/// Prints a description of the structure and its throughput. `seconds`: the time of building it.
fn print_report(
    out: &mut impl Write,
    args: &ClassifyArgs,
    source: &HeaderRuleSet,
    auto: &Auto,
    seconds: f64,
) -> std::io::Result<()> {
    let headers = source.draw(Draw::Uniform, SPEED_HEADERS, SPEED_SEED);
    let speed = lookups::speed(auto.classifier.as_ref(), &headers);
    let (memory, entries) = (auto.classifier.memory(), source.entries.len());
    if args.json {
        let value = serde_json::json!({
            "rules": source.count, "entries": entries, "structure": auto.why, "build_seconds": seconds,
            "memory_bytes": memory, "lookups_per_second": speed,
        });
        return writeln!(out, "{value}");
    }
    writeln!(out, "rules       {}", source.count)?;
    writeln!(out, "entries     {entries}")?;
    writeln!(out, "structure   {}", auto.why)?;
    writeln!(out, "build       {seconds:.4} s")?;
    writeln!(out, "memory      {:.2} MiB", memory as f64 / f64::from(1 << 20))?;
    writeln!(out, "throughput  {:.1} million lookups/s, one core", speed / 1e6)
}
