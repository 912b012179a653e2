// SPDX-License-Identifier: Apache-2.0
//! `bartizan ctl replay`: a policy over traffic that was, before it goes out. Captures go through the engine; flow records are asked by their
//! headers, and what needs payload or state is said to be undecided.

use super::access::Whom;
use super::candidate::{Candidate, Folder};
use super::show;
use crate::arguments::BuildArgs;
use crate::commands::explain::flow::frames;
use bartizan_agent::explain::Subject;
use bartizan_agent::replay::record::RECORD_BYTES;
use bartizan_agent::replay::report::Row;
use bartizan_agent::replay::{Case, Fates, FlowName, Headers, NotRead, Outcome, Record, Report, Seen};
use bartizan_applayer::flow::Engine;
use bartizan_base::{Generation, LinkId, TenantId};
use bartizan_dataplane::worker::Worker;
use bartizan_events::harmless_line;
use bartizan_packet::capture::Decompressed;
use bartizan_runtime::error::{Exit, Failure};
use bartizan_runtime::generation::{
    BuildOptions, Builder, Built, BuiltPolicy, find_link, find_tenant, reported, unnamed_link,
};
use bartizan_runtime::tuple::{end_text, protocol_name};
use bartizan_runtime::{input, load};
use bartizan_stages::settings::EngineSettings;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The name of the command.
pub const NAME: &str = "replay";

/// Say what a policy would make of traffic that was: captures, or flow records of eve.json, beside what became of it.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Captures (pcap, pcapng) or flow records (eve.json); plain, gzip or zstd.
    #[arg(required = true, value_name = "FILE")]
    traffic: Vec<PathBuf>,
    /// The policy of a device of the controller, instead of --policy.
    #[arg(long, value_name = "NAME", conflicts_with = "policy")]
    device: Option<String>,
    /// That of this generation; the newest unless given.
    #[arg(long, value_name = "NUMBER", requires = "device")]
    generation: Option<u64>,
    /// With these documents in it that are not put yet, as for `apply`; may be repeated.
    #[arg(long, value_name = "PATH", requires = "device", conflicts_with = "generation")]
    with: Vec<PathBuf>,
    /// Compare with another policy: a policy file, or with --device a generation's number or `running`. Else flow records are compared
    /// with what became of the flows, captures with what the device runs.
    #[arg(long, value_name = "FILE|NUMBER|running")]
    against: Option<String>,
    /// Tenant of all traffic; else the policy's selectors decide.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Link that the traffic came in by, where it does not say so itself.
    #[arg(long, value_name = "NAME")]
    link: Option<String>,
    /// So many of the flows whose verdict changes are shown.
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

/// A generation, and what it runs on.
struct Stage {
    built: Built,
    policy: BuiltPolicy,
    settings: EngineSettings,
    engine: Arc<Engine>,
}

impl Stage {
    fn new(options: &BuildOptions, policy: &Path) -> Result<Self, Failure> {
        let options = BuildOptions { policy: Some(policy.to_owned()), ..options.clone() };
        let mut builder = Builder::for_captures(&options, Path::new(""))?;
        let mut built = reported(&mut builder, |builder| builder.build(Generation(1)))?;
        // What would become of traffic is what prevention does.
        let (settings, _) = EngineSettings::from_settings(builder.settings(), true, [1, 2])
            .map_err(Failure::setting(builder.settings()))?;
        let mode = load::Mode::over_captures(true);
        let engine = Arc::new(load::app_layer(builder.settings(), &built.needs, mode)?);
        let policy =
            built.policy.take().ok_or_else(|| Failure::usage("give --policy FILE or --device NAME"))?;
        Ok(Stage { built, policy, settings, engine })
    }

    fn link(&self, args: &Args) -> Result<LinkId, Failure> {
        match &args.link {
            Some(name) => find_link(&self.policy.links, name),
            None => Ok(unnamed_link(&self.policy.links)),
        }
    }

    fn tenant(&self, args: &Args) -> Result<Option<TenantId>, Failure> {
        let find = |name: &String| find_tenant(&self.policy.file.name, &self.policy.tenant_ids, name);
        args.tenant.as_ref().map(find).transpose()
    }

    fn subject(&self) -> Subject<'_> {
        Subject {
            file: &self.policy.file,
            classes: &self.policy.classes,
            tenants: &self.policy.tenants,
            tenant_ids: &self.policy.tenant_ids,
            links: &self.policy.links,
            chains: &self.built.chains,
            functions: &self.built.function_names,
            settings: &self.settings,
            engine: &self.engine,
        }
    }

    /// The flows of captures, with what becomes of them.
    fn run(&self, args: &Args, captures: &[&PathBuf]) -> Result<Fates, Failure> {
        let link = self.link(args)?;
        let mut worker =
            Worker::new(self.settings.clone(), Arc::clone(&self.engine), Arc::clone(&self.built.chains))
                .map_err(Failure::stopped)?;
        let mut fates = Fates::new(&self.policy.classes, &self.built.function_names);
        for path in captures {
            frames(path, link, |frame| {
                worker.frame(frame, &mut fates);
                true
            })?;
        }
        worker.shutdown(&mut fates);
        Ok(fates)
    }
}

/// Replays.
pub fn run(args: &Args, whom: &Whom, json: bool) -> Result<Exit, Failure> {
    let mut captures = Vec::new();
    let mut records = Vec::new();
    for path in &args.traffic {
        if is_events(path)? { records.push(path) } else { captures.push(path) }
    }
    let folder = Folder::new()?;
    let (candidate, base) = policies(args, whom, &folder, !captures.is_empty())?;
    let after = Stage::new(&args.build.options(), &candidate)?;
    let before = base.map(|base| Stage::new(&args.build.options(), &base)).transpose()?;
    let mut report = Report::default();
    let mut left_out = 0;
    if !captures.is_empty() {
        if args.tenant.is_some() {
            return Err(Failure::usage(
                "--tenant is for flow records; a capture's packets say it themselves",
            ));
        }
        let mut seen = |stage: &Stage| -> Result<Vec<Seen>, Failure> {
            let fates = stage.run(args, &captures)?;
            left_out += fates.left_out;
            Ok(fates.seen)
        };
        let before = before.as_ref().map(&mut seen).transpose()?;
        report.add_runs(before, seen(&after)?);
    }
    for path in records {
        replay_records(args, path, &after, before.as_ref(), &mut report)?;
    }
    if json {
        println!("{:#}", as_json(&report, left_out));
    } else {
        print(&report, args, left_out);
    }
    Ok(Exit::Done)
}

/// The policy file that is asked, and the one that it is compared with.
fn policies(
    args: &Args,
    whom: &Whom,
    folder: &Folder,
    captures: bool,
) -> Result<(PathBuf, Option<PathBuf>), Failure> {
    let Some(device) = &args.device else {
        let policy = args.build.policy.clone();
        let policy = policy
            .ok_or_else(|| Failure::usage("say which policy is asked: --policy FILE or --device NAME"))?;
        return Ok((policy, args.against.as_ref().map(PathBuf::from)));
    };
    let mut candidate = Candidate::new(whom.client()?, device)?;
    let policy = match (args.generation, args.with.as_slice()) {
        (Some(generation), _) => candidate.of_generation(generation)?,
        (None, []) => candidate.newest()?,
        (None, documents) => candidate.with(documents)?,
    };
    let path = folder.put(&mut candidate, "after", &policy)?;
    let running = candidate.running();
    let against = match args.against.as_deref() {
        None if !captures || running == 0 => return Ok((path, None)),
        None | Some("running") if running > 0 => running,
        Some("running") | None => {
            return Err(Failure::input(format!(
                "device `{device}` has not said yet that it runs a generation"
            )));
        }
        Some(text) => match text.parse() {
            Ok(number) => number,
            Err(_) => return Ok((path, Some(PathBuf::from(text)))),
        },
    };
    let policy = candidate.of_generation(against)?;
    let base = folder.put(&mut candidate, "before", &policy)?;
    Ok((path, Some(base)))
}

/// Events are lines of JSON; captures begin with a number.
fn is_events(path: &Path) -> Result<bool, Failure> {
    let mut first = [0u8; 64];
    let mut reader = reader(path)?;
    let mut length = 0;
    while length < first.len() {
        match reader.read(first.get_mut(length..).unwrap_or_default()) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) => return Err(Failure::input(format!("cannot read {}: {error}", path.display()))),
        }
    }
    let begin = first.iter().take(length).find(|byte| !byte.is_ascii_whitespace());
    Ok(begin == Some(&b'{'))
}

fn reader(path: &Path) -> Result<impl BufRead, Failure> {
    let file = input::open(path, "traffic")?;
    let opened = Decompressed::new(Box::new(file));
    let opened =
        opened.map_err(|error| Failure::input(format!("cannot read {}: {error}", path.display())))?;
    Ok(BufReader::new(opened))
}

/// Asks about each flow record of a file.
fn replay_records(
    args: &Args,
    path: &Path,
    after: &Stage,
    before: Option<&Stage>,
    report: &mut Report,
) -> Result<(), Failure> {
    let subject = after.subject();
    let now = Headers::new(&subject, after.link(args)?, after.tenant(args)?);
    let other = before.map(Stage::subject);
    let then = match (before, &other) {
        (Some(stage), Some(subject)) => Some(Headers::new(subject, stage.link(args)?, stage.tenant(args)?)),
        _ => None,
    };
    let mut reader = reader(path)?;
    let mut line = Vec::new();
    while next_line(&mut reader, &mut line)
        .map_err(|error| Failure::input(format!("cannot read {} to its end: {error}", path.display())))?
    {
        let record = match Record::parse(&line) {
            Ok(record) => record,
            Err(NotRead::Other) => continue,
            Err(why) => {
                report.not_read(&why.to_string());
                continue;
            }
        };
        let before = match &then {
            Some(then) => then.judge(&record).map_err(Failure::stopped)?,
            None => record.was.clone(),
        };
        let outcome = now.judge(&record).map_err(Failure::stopped)?;
        report.add(Case { flow: record.flow, before: Some(before), after: outcome }, &record.amounts);
    }
    Ok(())
}

/// The next line that is not empty; of one that is too long for a record a bit more than a record may have.
fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<bool> {
    loop {
        line.clear();
        let read = reader.by_ref().take(RECORD_BYTES as u64 + 1).read_until(b'\n', line)?;
        if read == 0 {
            return Ok(false);
        }
        if !line.ends_with(b"\n") && read > RECORD_BYTES {
            reader.skip_until(b'\n')?;
        }
        if !line.trim_ascii().is_empty() {
            return Ok(true);
        }
    }
}

fn as_json(report: &Report, left_out: u64) -> Value {
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

fn outcome_text(outcome: &Outcome, beside: Option<&Outcome>) -> String {
    let fate = outcome.fate.to_string();
    match beside {
        // A policy of another name says it.
        Some(beside) if beside.policy != outcome.policy && !outcome.policy.is_empty() => {
            harmless_line(&format!("{fate} (policy {})", outcome.policy)).into_owned()
        }
        _ => harmless_line(&fate).into_owned(),
    }
}

fn print(report: &Report, args: &Args, left_out: u64) {
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
            "{flows} flows are undecided: records do not have what those functions look at; replay captures for them"
        );
    }
    if report.unmatched > 0 {
        println!(
            "{} flows are in one of the two runs only: their ends depend on what is refused",
            report.unmatched
        );
    }
    if left_out > 0 {
        println!("{left_out} flows beyond those that are kept are left out");
    }
    for (why, lines) in &report.unread {
        println!("{lines} lines are left out: {}", harmless_line(why));
    }
}
