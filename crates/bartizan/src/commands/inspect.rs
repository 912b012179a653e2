// SPDX-License-Identifier: Apache-2.0
//! `bartizan inspect`: what is in these captures?

use super::captures::{self, Capture, Filter, Reading, Taker};
use crate::error::{Exit, Failure};
use crate::generation::{Builder, BuiltPolicy, Options, find_link, said_by};
use crate::steer::tell;
use crate::stores::Stores;
use crate::{firewall, load, machine_code, plan, signals, stats, unused};
use bartizan_base::{Generation, LinkId, Settings, Timestamp};
use bartizan_dataplane::eve::{EveRecorder, RunInfo, StatsNow};
use bartizan_dataplane::event_ring::{
    EventReceiver, RING_BYTES, RingCounters, WhenFull, event_ring, write_all,
};
use bartizan_dataplane::worker::{Frame, Worker, WorkerCounters};
use bartizan_dataplane::workers::{Finished, Pool, PoolError, PoolOptions, stats_of};
use bartizan_events::EveOutputs;
use bartizan_events::config::{Destination, EveOutput};
use bartizan_events::file_store::WhenBehind;
use bartizan_events::output::{Rights, Unfit};
use bartizan_events::sink::{Incident, Patience, SinkProblem};
use bartizan_pattern::jit_support;
use bartizan_rules::RuleSetReport;
use bartizan_stages::settings::EngineSettings;
use bartizan_stages::stats::Counters;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Shown below `--help`.
pub const EXAMPLES: &str = "\
Examples:
  bartizan inspect --rules my.rules capture.pcap
  bartizan inspect --policy policy.yaml --ips --out out capture.pcap    # drops with reasons in out/eve.json
  bartizan inspect --policy policy.yaml --link wan --threads 4 a.pcapng.zst
  bartizan inspect --rules my.rules captures/                           # all captures of a folder, the oldest file first
  tcpdump -i eth0 -w - | bartizan inspect --rules my.rules -
  bartizan explain flow capture.pcap --policy policy.yaml               # what happened to each flow, and why";

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    options: Options,
    /// Name of the link that the capture comes from, for policies that name links; repeated for further captures.
    #[arg(long, value_name = "NAME")]
    link: Vec<String>,
    /// Inspect only what this lets through, in tcpdump's language (pcap-filter(7)): `--filter 'not port 22'`. Needs libpcap.
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// Prevention over captures: drop, reject and pass act as they would inline.
    #[arg(long)]
    ips: bool,
    /// Folder for eve.json, stats.json and files; made if it is not there.
    /// [default: bartizan-out, or the `default-log-dir` of a suricata.yaml]
    #[arg(long, value_name = "DIR", verbatim_doc_comment)]
    out: Option<PathBuf>,
    /// Workers that inspect side by side; the results are the same.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// For tests: flows move between workers at random, by this seed; the results are the same.
    #[arg(long, value_name = "SEED", hide = true)]
    move_flows: Option<u64>,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
    /// Capture files: pcap or pcapng, plain, gzip or zstd; a folder stands for those in it, the oldest first; `-` for standard input.
    #[arg(required = true, value_name = "CAPTURE")]
    captures: Vec<PathBuf>,
}

/// What is printed at the end.
#[derive(Serialize)]
struct Summary {
    packets: u64,
    bytes: u64,
    flows: u64,
    /// Alerts by sid.
    alerts: BTreeMap<u32, u64>,
    /// With a policy: packets that were refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<Refused>,
    rules: Rules,
    seconds: Seconds,
    threads: u16,
    /// Packets that `--filter` left out; they are not among `packets`.
    #[serde(skip_serializing_if = "is_zero")]
    filtered: u64,
    /// Captures that could not be read to their end, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    incomplete: Vec<String>,
    /// Files of folders that are no captures, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<String>,
    /// The engine that searches patterns.
    patterns: String,
    eve: PathBuf,
    /// Events that outputs could not take.
    #[serde(skip_serializing_if = "is_zero")]
    events_lost: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The shape that serde wants.
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Packets that were refused, by what refused them.
#[derive(Serialize)]
struct Refused {
    packets: u64,
    /// They were dropped (prevention); else they would have been.
    dropped: bool,
    by: Vec<RefusedBy>,
}

#[derive(Serialize)]
struct RefusedBy {
    /// Absent for packets without a flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    function: &'static str,
    reason: &'static str,
    packets: u64,
}

impl Refused {
    fn of(recorder: &EveRecorder, prevention: bool) -> Self {
        let by: Vec<RefusedBy> = (recorder.refusals().iter())
            .map(|((policy, function, reason), packets)| RefusedBy {
                policy: policy.as_deref().map(str::to_owned),
                function,
                reason: reason.name(),
                packets: *packets,
            })
            .collect();
        Refused { packets: by.iter().map(|b| b.packets).sum(), dropped: prevention, by }
    }

    fn print(&self) {
        let word = if self.dropped { "dropped" } else { "would be dropped (--ips drops)" };
        println!("{} packets {word}", self.packets);
        for by in &self.by {
            let policy = by.policy.as_deref().map_or("no flow".to_owned(), |p| format!("policy {p}"));
            println!("    {} {} by {}, {policy}", by.packets, by.reason, by.function);
        }
    }
}

/// The links of the captures, in their order. Those that no `--link` names have one that no policy names.
fn links_of(args: &Args, policy: Option<&BuiltPolicy>) -> Result<Vec<LinkId>, Failure> {
    if args.link.len() > args.captures.len() {
        return Err(Failure::usage(
            "more --link than captures: each names the link of one capture, in order",
        ));
    }
    let known = policy.map(|p| p.links.as_slice()).unwrap_or_default();
    let mut links = Vec::new();
    for index in 0..args.captures.len() {
        links.push(match args.link.get(index) {
            Some(name) => find_link(known, name)?,
            None => LinkId(u16::try_from(known.len() + index).unwrap_or(u16::MAX)),
        });
    }
    Ok(links)
}

#[derive(Serialize)]
struct Rules {
    loaded: u64,
    refused: BTreeMap<String, u64>,
    /// Of those refused: they are right, and their protocol has no parser here.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    unsupported_protocols: BTreeMap<String, u64>,
    /// Of those refused: they are right, and have a keyword that is not evaluated here.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    unsupported_keywords: BTreeMap<String, u64>,
    skipped: u64,
}

#[derive(Serialize)]
struct Seconds {
    load: f64,
    inspect: f64,
}

/// The recorders of so many workers, and where their events come out.
fn halves(
    threads: u16,
    builder: &Builder,
    stores: &Stores,
    (ips, run): (bool, &RunInfo),
) -> Result<(Vec<EveRecorder>, Vec<EventReceiver>), Failure> {
    let settings = builder.settings();
    let mut rings = Vec::new();
    let mut halves = Vec::new();
    for _ in 0..threads {
        let (sender, receiver) = event_ring(RING_BYTES, WhenFull::Wait);
        let half = EveRecorder::for_worker(settings, ips, run.clone(), sender);
        let mut half = half.map_err(Failure::outputs(settings))?;
        stores.handles().give(&mut half);
        halves.push(half);
        rings.push(receiver);
    }
    Ok((halves, rings))
}

fn not_made(out: &Path, error: &dyn core::fmt::Display) -> Failure {
    let out = out.display();
    Failure::stopped(format!("cannot make the output folder {out}: {error}; choose another with --out"))
}

/// Inspects.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let begun = Instant::now();
    signals::install();
    let out = match &args.out {
        Some(out) => out.clone(),
        None => args.options.log_folder()?.unwrap_or_else(|| PathBuf::from(plan::OUT)),
    };
    let mut builder = Builder::for_captures(&args.options, &out)?;
    let built = said_by(&mut builder, |builder| builder.build(Generation(1)))?;
    let links = links_of(args, built.policy.as_ref())?;
    let settings = builder.settings();
    // Firewall mode is prevention.
    let ips = args.ips || firewall::is_on(settings)?;
    let mut warnings = builder.warnings().to_vec();
    let app = Arc::new(load::app_layer(settings, &built.needs, load::Mode::over_captures(ips))?);
    let (engine_settings, more) =
        EngineSettings::from_settings(settings, ips, load::seed()).map_err(Failure::setting(settings))?;
    warnings.extend(more);
    let filter = Filter::new(args.filter.as_deref())?;
    // Captures are opened before anything is written: a wrong path costs nothing.
    let found = captures::open(&args.captures, &links)?;
    let rights = Rights::from_settings(settings).map_err(Failure::setting(settings))?;
    rights.make_folder(&out).map_err(|error| not_made(&out, &error))?;
    let _lock = crate::lock::folder(&out)?;
    let run = RunInfo {
        own_fields: built.policy.is_some(),
        functions: built.function_names.clone(),
        interface: None,
        link: None,
    };
    warnings.extend(continued(settings, &out)?);
    let mut recorder = EveRecorder::new(settings, &out, ips, run.clone(), &mut warnings)
        .map_err(Failure::outputs(settings))?;
    tell_absent_readers(&recorder);
    recorder.wait_for_readers(Patience::over_captures(signals::stop_flag()));
    let mut stores = Stores::open(settings, &built.needs, &out, WhenBehind::Wait, &mut warnings)?;
    stores.handles().give(&mut recorder);
    for warning in &warnings {
        eprintln!("warning: {warning}");
    }
    tell_of_machine_code(built.report.loaded);
    let with_stats = stats::interval(settings)?.is_some();
    unused::tell(&args.options, settings)?;
    let rules = stats::rules_of(&built.report);
    let load_seconds = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let done = if args.threads == 1 {
        let worker =
            Worker::new(engine_settings, app, Arc::clone(&built.chains)).map_err(Failure::stopped)?;
        inspect_alone(worker, &mut recorder, found.captures, filter)?
    } else {
        let (halves, rings) = halves(args.threads, &builder, &stores, (ips, &run))?;
        let pool_options = PoolOptions { moves: args.move_flows, ..PoolOptions::default() };
        let pool = Pool::start(&engine_settings, &app, &built.chains, halves, pool_options)
            .map_err(Failure::stopped)?;
        inspect_together(pool, rings, &mut recorder, found.captures, filter)?
    };
    let Inspected { counters: totals, stats, threads, clock, incomplete, filtered } = done;
    let kept = stores.finish();
    let report = &built.report;
    if let Some(warning) = stats::checksum_warning(&stats, None) {
        eprintln!("warning: {warning}");
    }
    let threads: Vec<_> =
        threads.into_iter().enumerate().map(|(index, own)| (stats::thread_name(index, None), own)).collect();
    let uptime = begun.elapsed().as_secs();
    let now = StatsNow { clock, uptime, totals: &stats, threads: &threads, links: &[], ports: &[], rules };
    let (counters, incidents) = last_events(&mut recorder, with_stats, &now);
    let mut problems = kept;
    problems.extend(load::save_datasets(builder.shared(), &rights));
    let written = write_stats(&out, &counters, &StatsParts::default(), &rights);
    let flows = stats.iter().find(|(name, _)| *name == "flow.total").map_or(0, |(_, value)| *value);
    let summary = Summary {
        packets: totals.packets,
        bytes: totals.bytes,
        flows,
        alerts: recorder.alerts().clone(),
        refused: args.options.policy.as_ref().map(|_| Refused::of(&recorder, ips)),
        rules: rules_of(report),
        seconds: Seconds { load: load_seconds, inspect: begun.elapsed().as_secs_f64() },
        threads: args.threads,
        filtered,
        incomplete,
        skipped: found.skipped,
        patterns: builder.patterns(),
        eve: recorder.watches().first().map_or_else(|| out.join("eve.json"), |watch| watch.path().to_owned()),
        events_lost: recorder.watches().iter().map(|watch| watch.lost()).sum(),
    };
    incidents.iter().for_each(tell);
    for problem in &problems {
        eprintln!("error: {problem}");
    }
    print_summary(&summary, args.json)?;
    written?;
    let all = problems.is_empty() && summary.events_lost == 0 && !signals::stop_asked();
    Ok(if all { Exit::Done } else { Exit::Stopped })
}

/// Writes the event of statistics, with what was lost before it, and settles the outputs. Gives the counters
/// as they are then, and what happened to the outputs.
fn last_events(
    recorder: &mut EveRecorder,
    with_stats: bool,
    now: &StatsNow<'_>,
) -> (Counters, Vec<SinkProblem>) {
    recorder.settle();
    let mut statistics = recorder.stats_writer(with_stats);
    let mut counters = statistics.write(now);
    let incidents = recorder.finish();
    statistics.refresh(&mut counters);
    (counters, incidents)
}

/// Says what it costs that rules' expressions are interpreted, if they are.
fn tell_of_machine_code(rules: u64) {
    if let Some(note) = machine_code::note(jit_support()).filter(|_| rules > 0) {
        eprintln!("note: {note}");
    }
}

/// Says which outputs nobody reads yet.
fn tell_absent_readers(recorder: &EveRecorder) {
    for watch in recorder.watches() {
        if let Some(SinkProblem { path, what: Incident::Lost { error, advice } }) = watch.take_problem() {
            let path = path.display();
            eprintln!(
                "note: nobody reads events from {path} yet ({error}): its reader is waited for; {advice}"
            );
        }
    }
}

/// Says which files have events already: those of this run come behind them.
fn continued(settings: &Settings, folder: &Path) -> Result<Vec<String>, Failure> {
    let outputs = EveOutputs::from_settings(settings).map_err(Failure::setting(settings))?.outputs;
    let of_output = |output: EveOutput| {
        let Destination::File(file) = output.destination else { return None };
        let path = folder.join(&file.path);
        let about = std::fs::metadata(&path)
            .ok()
            .filter(|about| file.append && about.is_file() && about.len() > 0)?;
        Some(format!(
            "{} has events of an earlier run ({} bytes); those of this run come behind them: choose another folder with --out, or begin anew with --set outputs.{}.eve-log.append=no",
            path.display(),
            about.len(),
            output.index
        ))
    };
    Ok(outputs.into_iter().filter_map(of_output).collect())
}

/// Counters that stand beside those of all together, by the name of what has them.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatsParts<'s> {
    /// Links, where there are several.
    pub links: &'s [(String, Counters)],
    /// Ports.
    pub ports: &'s [(String, Counters)],
}

/// Writes `stats.json`: every counter by its dotted name, where there are several links those of each under
/// `links`, and those of ports under `ports`.
pub fn write_stats(
    folder: &Path,
    counters: &[(&'static str, u64)],
    parts: &StatsParts<'_>,
    rights: &Rights,
) -> Result<(), Failure> {
    let object = |counters: &[(&'static str, u64)]| -> serde_json::Map<String, serde_json::Value> {
        // By name.
        let sorted: BTreeMap<&str, u64> = counters.iter().copied().collect();
        sorted.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
    };
    let mut map = object(counters);
    for (key, all) in [("links", parts.links), ("ports", parts.ports)] {
        let of = |(name, counters): &(String, Counters)| (name.clone(), object(counters).into());
        if !all.is_empty() {
            map.insert(key.to_owned(), serde_json::Value::Object(all.iter().map(of).collect()));
        }
    }
    let path = folder.join("stats.json");
    let failed =
        |error: &dyn std::fmt::Display| Failure::stopped(format!("cannot write {}: {error}", path.display()));
    let text = serde_json::to_vec_pretty(&map).map_err(|e| failed(&e))?;
    rights.write(&path, &text).map_err(|e| match Unfit::of(&e) {
        Some(unfit) => failed(&format!("{unfit}; {}", unfit.advice())),
        None => failed(&e),
    })
}

/// What came of the captures.
struct Inspected {
    counters: WorkerCounters,
    stats: Counters,
    threads: Vec<Counters>,
    clock: Timestamp,
    incomplete: Vec<String>,
    filtered: u64,
}

struct Alone<'r> {
    worker: Worker,
    recorder: &'r mut EveRecorder,
}

impl Taker for Alone<'_> {
    fn enter_capture(&mut self, name: &str) -> Result<(), PoolError> {
        self.recorder.enter_capture(name);
        Ok(())
    }

    fn frame(&mut self, frame: &Frame<'_>) -> Result<(), PoolError> {
        self.worker.frame(frame, self.recorder);
        Ok(())
    }
}

impl Taker for Pool<EveRecorder> {
    fn enter_capture(&mut self, name: &str) -> Result<(), PoolError> {
        Pool::enter_capture(self, name)
    }

    fn frame(&mut self, frame: &Frame<'_>) -> Result<(), PoolError> {
        Pool::frame(self, frame)
    }
}

/// One worker, in this thread.
fn inspect_alone(
    worker: Worker,
    recorder: &mut EveRecorder,
    captures: Vec<Capture>,
    filter: Filter,
) -> Result<Inspected, Failure> {
    let mut alone = Alone { worker, recorder };
    let watches = alone.recorder.watches();
    let reading = Reading::new(&mut alone, watches, filter);
    let (incomplete, filtered) = reading.all(captures).map_err(Failure::stopped)?;
    let Alone { mut worker, recorder } = alone;
    worker.shutdown(recorder);
    worker.take_news().iter().for_each(|news| eprintln!("warning: {news}"));
    let stats = stats_of(&worker);
    let threads = vec![stats.clone()];
    let (counters, clock) = (*worker.counters(), worker.clock());
    Ok(Inspected { counters, stats, threads, clock, incomplete, filtered })
}

/// Several workers; this thread reads, another writes the events.
fn inspect_together(
    mut pool: Pool<EveRecorder>,
    rings: Vec<EventReceiver>,
    recorder: &mut EveRecorder,
    captures: Vec<Capture>,
    filter: Filter,
) -> Result<Inspected, Failure> {
    let watches = recorder.watches();
    let outcome = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_all(rings, recorder));
        // When this fails, the workers end by themselves, and the writer with the last of them.
        let (incomplete, filtered) = Reading::new(&mut pool, watches, filter).all(captures)?;
        let mut finished = pool.finish()?;
        let mut sent = RingCounters::default();
        for half in &mut finished.recorders {
            sent = sent.plus(half.close_ring());
        }
        sent.for_each(|name, value| finished.stats.push((name, value)));
        // A failure of the writer is one of the outputs, which are asked for their problems later.
        let _ = writer.join();
        Ok::<_, PoolError>((finished, incomplete, filtered))
    });
    let (finished, incomplete, filtered) = outcome.map_err(Failure::stopped)?;
    for half in &finished.recorders {
        recorder.absorb(half);
    }
    let Finished { counters, mut stats, threads, clock, moved, news, .. } = finished;
    news.iter().for_each(|news| eprintln!("warning: {news}"));
    if moved > 0 {
        stats.push(("flow.moved", moved));
    }
    Ok(Inspected { counters, stats, threads, clock, incomplete, filtered })
}

fn rules_of(report: &RuleSetReport) -> Rules {
    Rules {
        loaded: report.loaded,
        refused: report.refused.clone(),
        unsupported_protocols: report.unsupported_protocols.clone(),
        unsupported_keywords: report.unsupported_keywords.clone(),
        skipped: report.skipped,
    }
}

fn print_summary(summary: &Summary, json: bool) -> Result<(), Failure> {
    // Events are written by now; who reads the summary may stop doing so.
    crate::signals::end_with_the_pipe();
    if json {
        let text = serde_json::to_string_pretty(summary).map_err(Failure::stopped)?;
        println!("{text}");
        return Ok(());
    }
    println!("{} packets, {} bytes, {} flows", summary.packets, summary.bytes, summary.flows);
    let alerts: u64 = summary.alerts.values().sum();
    println!("{alerts} alerts of {} rules", summary.alerts.len());
    if let Some(refused) = &summary.refused {
        refused.print();
    }
    let refused: u64 = summary.rules.refused.values().sum();
    println!("rules: {} loaded, {refused} refused, {} skipped", summary.rules.loaded, summary.rules.skipped);
    for (reason, count) in &summary.rules.refused {
        println!("    {count} refused: {reason}");
    }
    for (name, count) in &summary.rules.unsupported_protocols {
        println!("        {count} of the protocol {name}");
    }
    for (name, count) in &summary.rules.unsupported_keywords {
        println!("        {count} with {name}");
    }
    println!("patterns: {}", summary.patterns);
    println!(
        "{:.3} s to load, {:.3} s to inspect, {} {}",
        summary.seconds.load,
        summary.seconds.inspect,
        summary.threads,
        if summary.threads == 1 { "thread" } else { "threads" }
    );
    if summary.filtered > 0 {
        println!("{} packets left out by --filter", summary.filtered);
    }
    for why in &summary.incomplete {
        println!("incomplete: {why}");
    }
    if !summary.skipped.is_empty() {
        println!("{} files of the folders were skipped", summary.skipped.len());
    }
    match summary.events_lost {
        0 => println!("events: {}", summary.eve.display()),
        lost => println!("events: {}, {lost} lost", summary.eve.display()),
    }
    Ok(())
}
