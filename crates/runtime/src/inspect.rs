// SPDX-License-Identifier: Apache-2.0
//! Inspection of captures: writes their events and counters.

mod below;
mod summary;

pub use below::LevelSummary;
pub use summary::{InspectTimings, PolicyDropCount, Refused, Rules, Summary};

use crate::captures::{self, CaptureSource, Filter, ReadResults, Reading};
use crate::error::Failure;
use crate::generation::{BuildOptions, Builder, BuiltPolicy, find_link, reported};
use crate::levels::Levels;
use crate::requests::Requests;
use crate::stats_file::{StatsParts, write_stats};
use crate::stores::Stores;
use crate::supervisor::log_problem;
use crate::{firewall, load, machine_code, plan, stats, unused};
use bartizan_base::{Generation, LinkId, SettingsMap, Timestamp};
use bartizan_dataplane::captures::{Finished, Pool, PoolError, PoolOptions};
use bartizan_dataplane::driver::{Control, Driver, LiveOptions, stats_of};
use bartizan_dataplane::eve::{EveRecorder, RunInfo, StatsNow};
use bartizan_dataplane::event_ring::{
    EventReceiver, RING_BYTES, RingCounters, RingFullPolicy, event_ring, write_all,
};
use bartizan_dataplane::handover::Station;
use bartizan_dataplane::worker::{Worker, WorkerCounters};
use bartizan_events::EveOutputs;
use bartizan_events::config::{Destination, EveOutput};
use bartizan_events::file_store::WhenBehind;
use bartizan_events::output::Rights;
use bartizan_events::sink::{Incident, Patience, SinkProblem};
use bartizan_pattern::jit_support;
use bartizan_stages::settings::EngineSettings;
use bartizan_stages::stats::NamedCounters;
use below::CaptureLevel;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tracing::{error, info, warn};

/// Options of an inspection.
#[derive(Clone, Default)]
pub struct InspectOptions {
    /// Inputs of the generation.
    pub build: BuildOptions,
    /// Names of the links of the captures, in their order, for policies that name links.
    pub links: Vec<String>,
    /// Filter of the packets to be inspected, in tcpdump's language.
    pub filter: Option<String>,
    /// Drop, reject and pass act as they do inline.
    pub prevention: bool,
    /// Folder for events, counters and files.
    pub out: Option<PathBuf>,
    /// Workers.
    pub threads: u16,
    /// For tests: the seed of random moves of flows between workers.
    pub move_flows: Option<u64>,
    /// Capture files, folders of them, `-` for standard input.
    pub captures: Vec<PathBuf>,
    /// A level below the worker that sees the frames first, by name.
    pub offload: Option<String>,
    /// Kinds of level that may be named.
    pub levels: Levels,
}

/// Result of an inspection.
pub struct Inspection {
    /// Summary of the captures and findings.
    pub summary: Summary,
    /// Failure to write counters.
    pub failure: Option<Failure>,
    /// Whether all packets were read, and nothing was lost.
    pub is_complete: bool,
}

/// The links of the captures, in their order. A capture without a `--link` has a link that no policy names.
fn links_of(options: &InspectOptions, policy: Option<&BuiltPolicy>) -> Result<Vec<LinkId>, Failure> {
    if options.links.len() > options.captures.len() {
        return Err(Failure::usage(
            "there are more --link options than captures: each names the link of one capture, in order",
        ));
    }
    let known = policy.map(|p| p.links.as_slice()).unwrap_or_default();
    let mut links = Vec::new();
    for index in 0..options.captures.len() {
        links.push(match options.links.get(index) {
            Some(name) => find_link(known, name)?,
            None => LinkId(u16::try_from(known.len() + index).unwrap_or(u16::MAX)),
        });
    }
    Ok(links)
}

/// The recorders of the workers, and the receiving ends of their events.
fn halves(
    threads: u16,
    builder: &Builder,
    stores: &Stores,
    ips: bool,
    run: &RunInfo,
) -> Result<(Vec<EveRecorder>, Vec<EventReceiver>), Failure> {
    let settings = builder.settings();
    let mut rings = Vec::new();
    let mut halves = Vec::new();
    for _ in 0..threads {
        let (sender, receiver) = event_ring(RING_BYTES, RingFullPolicy::Wait);
        let half = EveRecorder::for_worker(settings, ips, run.clone(), sender);
        let mut half = half.map_err(Failure::outputs(settings))?;
        stores.handles().attach(&mut half);
        halves.push(half);
        rings.push(receiver);
    }
    Ok((halves, rings))
}

fn not_made(out: &Path, error: &dyn core::fmt::Display) -> Failure {
    let out = out.display();
    Failure::stopped(format!("cannot create the output folder {out}: {error}; choose another with --out"))
}

/// The folder of the outputs.
fn out_folder(options: &InspectOptions) -> Result<PathBuf, Failure> {
    Ok(match &options.out {
        Some(out) => out.clone(),
        None => options.build.log_folder()?.unwrap_or_else(|| PathBuf::from(plan::OUT)),
    })
}

/// The recorder of all events, which waits for the readers of its outputs.
fn recorder_of(
    settings: &SettingsMap,
    out: &Path,
    ips: bool,
    run: &RunInfo,
    requests: &'static Requests,
    warnings: &mut Vec<String>,
) -> Result<EveRecorder, Failure> {
    warnings.extend(continued(settings, out)?);
    let recorder = EveRecorder::new(settings, out, ips, run.clone(), warnings);
    let mut recorder = recorder.map_err(Failure::outputs(settings))?;
    log_absent_readers(&recorder);
    recorder.wait_for_readers(Patience::over_captures(requests.stop_flag()));
    Ok(recorder)
}

/// Inspects captures and writes their events. `requests`: a request to end stops between two packets; packets
/// read so far are inspected and written.
///
/// # Errors
/// Rules, settings, a policy or a capture cannot be used; an output cannot be made.
pub fn run(options: &InspectOptions, requests: &'static Requests) -> Result<Inspection, Failure> {
    let begun = Instant::now();
    let out = out_folder(options)?;
    captures::check(&options.captures)?;
    let mut builder = Builder::for_captures(&options.build, &out)?;
    let built = reported(&mut builder, |builder| builder.build(Generation(1)))?;
    let links = links_of(options, built.policy.as_ref())?;
    let settings = builder.settings();
    // Firewall mode is prevention.
    let ips = options.prevention || firewall::is_on(settings)?;
    let mut warnings = builder.warnings().to_vec();
    let app = Arc::new(load::app_layer(settings, &built.needs, load::EnforcementMode::over_captures(ips))?);
    let (engine_settings, more) =
        EngineSettings::from_settings(settings, ips, load::seed()).map_err(Failure::setting(settings))?;
    warnings.extend(more);
    let filter = Filter::new(options.filter.as_deref())?;
    let below = CaptureLevel::open(options, &engine_settings, &links)?;
    // Captures are opened before any output is written: a wrong path has no effect.
    let found = captures::open(&options.captures, &links, requests)?;
    let rights = Rights::from_settings(settings).map_err(Failure::setting(settings))?;
    rights.make_folder(&out).map_err(|error| not_made(&out, &error))?;
    let _lock = crate::lock::folder(&out)?;
    let (own_fields, functions) = (built.policy.is_some(), built.function_names.clone());
    let run = RunInfo { own_fields, functions, interface: None, link: None };
    let mut recorder = recorder_of(settings, &out, ips, &run, requests, &mut warnings)?;
    let mut stores = Stores::open(settings, &built.needs, &out, WhenBehind::Wait, &mut warnings)?;
    stores.handles().attach(&mut recorder);
    warnings.iter().for_each(|warning| warn!("{warning}"));
    log_machine_code(built.report.loaded);
    let with_stats = stats::interval(settings)?.is_some();
    unused::report(&options.build, settings, false)?;
    let rules = stats::rules_of(&built.report);
    let load_seconds = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let reading = Reading::new(found.captures, recorder.watches(), filter, requests);
    let done = if options.threads == 1 {
        let worker = Worker::new(engine_settings, app, Arc::clone(&built.chains));
        inspect_alone(worker.map_err(Failure::stopped)?, below.as_ref(), &mut recorder, reading)?
    } else {
        let (halves, rings) = halves(options.threads, &builder, &stores, ips, &run)?;
        let pool_options = PoolOptions { moves: options.move_flows, ..PoolOptions::default() };
        let pool = Pool::start(&engine_settings, &app, &built.chains, halves, pool_options);
        inspect_together(pool.map_err(Failure::stopped)?, rings, &mut recorder, reading)?
    };
    let Inspected { counters: totals, stats, threads, clock, incomplete, filtered } = done;
    let kept = stores.finish();
    let report = &built.report;
    stats::checksum_warning(&stats, None).into_iter().for_each(|warning| warn!("{warning}"));
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
        refused: options.build.policy.as_ref().map(|_| Refused::of(&recorder, ips)),
        level: below.as_ref().map(CaptureLevel::summary),
        rules: Rules::of(report),
        seconds: InspectTimings { load: load_seconds, inspect: begun.elapsed().as_secs_f64() },
        threads: options.threads,
        filtered,
        incomplete,
        skipped: found.skipped,
        patterns: builder.patterns(),
        eve: recorder.watches().first().map_or_else(|| out.join("eve.json"), |watch| watch.path().to_owned()),
        events_lost: recorder.watches().iter().map(|watch| watch.lost()).sum(),
    };
    incidents.iter().for_each(log_problem);
    problems.iter().for_each(|problem| error!("{problem}"));
    let all = problems.is_empty() && summary.events_lost == 0 && !requests.is_stopped();
    Ok(Inspection { summary, failure: written.err(), is_complete: all })
}

/// Writes the `stats` event, with the losses before it, and flushes the outputs. Returns the counters at that
/// time, and the problems of outputs.
fn last_events(
    recorder: &mut EveRecorder,
    with_stats: bool,
    now: &StatsNow<'_>,
) -> (NamedCounters, Vec<SinkProblem>) {
    recorder.finish_outputs();
    let mut statistics = recorder.stats_writer(with_stats);
    let mut counters = statistics.write(now);
    let incidents = recorder.finish();
    statistics.refresh(&mut counters);
    (counters, incidents)
}

/// Logs the cost of interpreted regular expressions, if rules have some.
fn log_machine_code(rules: u64) {
    if let Some(note) = machine_code::note(jit_support()).filter(|_| rules > 0) {
        info!("note: {note}");
    }
}

/// Logs the outputs without a reader.
fn log_absent_readers(recorder: &EveRecorder) {
    for watch in recorder.watches() {
        if let Some(SinkProblem { path, what: Incident::Lost { error, advice } }) = watch.take_problem() {
            let path = path.display();
            info!("note: no program reads events from {path} yet ({error}); waiting for it; {advice}");
        }
    }
}

/// Logs the files that have events already: those of this run are appended.
fn continued(settings: &SettingsMap, folder: &Path) -> Result<Vec<String>, Failure> {
    let outputs = EveOutputs::from_settings(settings).map_err(Failure::setting(settings))?.outputs;
    let of_output = |output: EveOutput| {
        let Destination::File(file) = output.destination else { return None };
        let path = folder.join(&file.path);
        let about = std::fs::metadata(&path)
            .ok()
            .filter(|about| file.append && about.is_file() && about.len() > 0)?;
        Some(format!(
            "{} has events of an earlier run ({} bytes), and this run appends to them; choose another folder with --out, or overwrite the file with --set outputs.{}.eve-log.append=no",
            path.display(),
            about.len(),
            output.index
        ))
    };
    Ok(outputs.into_iter().filter_map(of_output).collect())
}

/// Counters of inspected captures.
struct Inspected {
    counters: WorkerCounters,
    stats: NamedCounters,
    threads: Vec<NamedCounters>,
    clock: Timestamp,
    incomplete: Vec<String>,
    filtered: u64,
}

/// Inspects with one worker, in this thread.
fn inspect_alone(
    mut worker: Worker,
    below: Option<&CaptureLevel>,
    recorder: &mut EveRecorder,
    reading: Reading,
) -> Result<Inspected, Failure> {
    if let Some(below) = below {
        worker.set_level(below.manager(worker.generation()));
    }
    let (source, results) = CaptureSource::new(reading, below.map(CaptureLevel::path));
    let control = Control::new().map_err(Failure::stopped)?;
    let mut driver = Driver::new(Station::alone(worker), Box::new(source), recorder);
    driver.run(&LiveOptions::default(), &control).map_err(Failure::stopped)?;
    let ReadResults { incomplete, filtered } = results.try_recv().unwrap_or_default();
    let mut worker = driver.station.into_worker();
    let news = control.take_events().into_iter().map(|(_, news)| news);
    news.chain(worker.take_events()).for_each(|news| warn!("{news}"));
    let stats = stats_of(&worker);
    let threads = vec![stats.clone()];
    let (counters, clock) = (*worker.counters(), worker.clock());
    Ok(Inspected { counters, stats, threads, clock, incomplete, filtered })
}

/// Inspects with several workers; this thread reads, another one writes the events.
fn inspect_together(
    mut pool: Pool<EveRecorder>,
    rings: Vec<EventReceiver>,
    recorder: &mut EveRecorder,
    reading: Reading,
) -> Result<Inspected, Failure> {
    let outcome = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_all(rings, recorder));
        // On failure the workers end by themselves, and the writer with the last of them.
        let read = reading.read_all(&mut pool)?;
        let mut finished = pool.finish()?;
        let mut sent = RingCounters::default();
        for half in &mut finished.recorders {
            sent = sent.plus(half.close_ring());
        }
        sent.for_each(|name, value| finished.stats.push((name, value)));
        // A failure of the writer is one of the outputs, whose problems are reported later.
        let _ = writer.join();
        Ok::<_, PoolError>((finished, read))
    });
    let (finished, ReadResults { incomplete, filtered }) = outcome.map_err(Failure::stopped)?;
    for half in &finished.recorders {
        recorder.absorb(half);
    }
    let Finished { counters, mut stats, threads, clock, moved, events: news, .. } = finished;
    news.iter().for_each(|news| warn!("{news}"));
    if moved > 0 {
        stats.push(("flow.moved", moved));
    }
    Ok(Inspected { counters, stats, threads, clock, incomplete, filtered })
}
