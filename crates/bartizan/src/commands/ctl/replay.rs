// SPDX-License-Identifier: Apache-2.0
//! `bartizan ctl replay`: tests a policy against recorded traffic before it is deployed. Captures go
//! through the engine; flow records are looked up by their headers, and a flow whose verdict needs payload
//! or state is reported as undecided.

use super::access::Whom;
use super::show;
use crate::arguments::BuildArgs;
use bartizan_agent::replay::report::Row;
use bartizan_agent::replay::{FlowName, ReplayOutcome, ReplayReport};
use bartizan_events::harmless_line;
use bartizan_runtime::client::candidate::{self, Choice, Folder};
use bartizan_runtime::error::{Exit, Failure};
use bartizan_runtime::replay::{self, ReplayOptions, Traffic};
use bartizan_runtime::tuple::{end_text, protocol_name};
use serde_json::{Value, json};
use std::path::PathBuf;

/// The name of the command.
pub const NAME: &str = "replay";

/// Show the verdicts that a policy gives recorded traffic: captures, or flow records of eve.json, beside the
/// recorded ones.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ReplayArgs {
    /// Captures (pcap, pcapng) or flow records (eve.json); plain, gzip or zstd.
    #[arg(required = true, value_name = "FILE")]
    traffic: Vec<PathBuf>,
    /// The policy of a device of the controller, instead of --policy.
    #[arg(long, value_name = "NAME", conflicts_with = "policy")]
    device: Option<String>,
    /// The policy of this generation; the newest by default.
    #[arg(long, value_name = "NUMBER", requires = "device")]
    generation: Option<u64>,
    /// Documents to add to it that are not put yet, as for `apply`; may be repeated.
    #[arg(long, value_name = "PATH", requires = "device", conflicts_with = "generation")]
    with: Vec<PathBuf>,
    /// Compare with another policy: a policy file, or with --device a generation's number or `running`. By
    /// default flow records are compared with their recorded verdicts, captures with the running policy of
    /// the device.
    #[arg(long, value_name = "FILE|NUMBER|running")]
    against: Option<String>,
    /// Tenant of all traffic; else the policy's selectors decide.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Link that the traffic arrived by, if the records do not have it.
    #[arg(long, value_name = "NAME")]
    link: Option<String>,
    /// The most flows with a changed verdict to show.
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    shown: usize,
    #[command(flatten)]
    build: BuildArgs,
}

const EXAMPLES: &str = "\
Examples:
  bartizan ctl replay --policy new.yaml eve.json.gz
  bartizan ctl replay --policy new.yaml --against old.yaml capture.pcap
  bartizan ctl replay --device edge --with web.yaml capture.pcap      # a change that is not put yet
  bartizan ctl replay --device edge --generation 17 --against running eve.json";

/// Runs the command.
pub fn run(args: &ReplayArgs, whom: &Whom, json: bool) -> Result<Exit, Failure> {
    let traffic = Traffic::of(&args.traffic)?;
    let folder = Folder::new()?;
    let (policy, base) = policies(args, whom, &folder, !traffic.captures.is_empty())?;
    let options =
        ReplayOptions { build: args.build.options(), tenant: args.tenant.clone(), link: args.link.clone() };
    let replayed = replay::run(&options, &traffic, &policy, base.as_deref())?;
    if json {
        println!("{:#}", as_json(&replayed.report, replayed.left_out));
    } else {
        print(&replayed.report, args, replayed.left_out);
    }
    Ok(Exit::Done)
}

/// The policy file under test, and the one that it is compared with.
fn policies(
    args: &ReplayArgs,
    whom: &Whom,
    folder: &Folder,
    captures: bool,
) -> Result<(PathBuf, Option<PathBuf>), Failure> {
    let against = args.against.as_deref();
    let Some(device) = &args.device else {
        let policy = args.build.policy.clone();
        let policy = policy
            .ok_or_else(|| Failure::usage("name the policy to evaluate: --policy FILE or --device NAME"))?;
        return Ok((policy, against.map(PathBuf::from)));
    };
    let (generation, with) = (args.generation, args.with.as_slice());
    let choice = Choice { device, generation, with, against, needs_base: captures };
    candidate::policies(whom.client()?, &choice, folder)
}

fn as_json(report: &ReplayReport, left_out: u64) -> Value {
    let rows: Vec<Row> = report.rows().collect();
    json!({
        "all": report.all,
        "changing": report.changing,
        "undecided": report.undecided,
        "rows": rows,
        "changed": report.changed,
        "unread": report.unread,
        "unmatched": report.unmatched,
        "left_out": left_out,
    })
}

fn flow_text(flow: &FlowName) -> String {
    format!(
        "{} {} -> {} {}",
        protocol_name(flow.protocol),
        end_text(flow.src_ip, flow.src_port),
        end_text(flow.dest_ip, flow.dest_port),
        harmless_line(&flow.start),
    )
}

fn outcome_text(outcome: &ReplayOutcome, beside: Option<&ReplayOutcome>) -> String {
    let fate = outcome.verdict.to_string();
    match beside {
        // The name of another policy is the difference to show.
        Some(beside) if beside.policy != outcome.policy && !outcome.policy.is_empty() => {
            harmless_line(&format!("{fate} (policy {})", outcome.policy)).into_owned()
        }
        _ => harmless_line(&fate).into_owned(),
    }
}

fn print(report: &ReplayReport, args: &ReplayArgs, left_out: u64) {
    let heads = ["POLICY", "WOULD", "WAS", "FLOWS", "PACKETS", "BYTES"].map(str::to_owned).to_vec();
    let row = |row: Row| {
        let policy = if row.after.policy.is_empty() { "-".to_owned() } else { row.after.policy.clone() };
        let before = row.before.as_ref();
        vec![
            harmless_line(&policy).into_owned(),
            outcome_text(&row.after, None),
            before.map_or_else(|| "-".to_owned(), |before| outcome_text(before, Some(&row.after))),
            row.amounts.flows.to_string(),
            row.amounts.packets.to_string(),
            row.amounts.bytes.to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = std::iter::once(heads).chain(report.rows().map(row)).collect();
    println!("{}", show::aligned(&rows).trim_end());
    println!("{} flows, {} change their verdict", report.all.flows, report.changing.flows);
    for case in report.changed.iter().take(args.shown) {
        let before = case.before.as_ref().map(|before| outcome_text(before, None)).unwrap_or_default();
        let after = outcome_text(&case.after, None);
        println!("  {}: {before}; would: {after} (policy {})", flow_text(&case.flow), case.after.policy);
    }
    let more = report.changing.flows.saturating_sub(args.shown.min(report.changed.len()) as u64);
    if more > 0 {
        println!("  ... and {more} more; --shown NUMBER and --json have up to {}", report.changed.len());
    }
    if report.undecided.flows > 0 {
        let flows = report.undecided.flows;
        println!(
            "{flows} flows are undecided: flow records do not contain the data that those functions inspect; replay captures for them"
        );
    }
    if report.unmatched > 0 {
        println!(
            "{} flows are in one of the two runs only: the end of a flow depends on which packets are \
             dropped",
            report.unmatched
        );
    }
    if left_out > 0 {
        println!("{left_out} flows beyond the limit are omitted");
    }
    for (why, lines) in &report.unread {
        println!("{lines} lines are omitted: {}", harmless_line(why));
    }
}
