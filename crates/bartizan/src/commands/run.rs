// SPDX-License-Identifier: Apache-2.0
//! `bartizan run`: the stack on live traffic, inline between two interfaces or passive on one.

use crate::error::{Exit, Failure};
use crate::generation::{Builder, Built};
use crate::metrics::{self, Source};
use crate::plan::{self, Given, Plan};
use crate::{lock, signals};
use bartizan_base::{Generation, LinkId};
use bartizan_dataplane::board::Board;
use bartizan_dataplane::eve::{EveRecorder, RunInfo};
use bartizan_dataplane::live::{Control, LiveCounters, LiveOptions, run_inline, run_passive};
use bartizan_dataplane::settings::EngineSettings;
use bartizan_dataplane::worker::Worker;
use bartizan_events::sink::SinkWatch;
use bartizan_ports::{
    InlineOptions, InlinePair, Interface, PassiveOptions, PassivePort, Port, PortStats, Side,
};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    given: Given,
}

/// The ports of the run.
enum Ports {
    Inline(InlinePair),
    Tap(Box<PassivePort>),
}

/// Runs until a signal.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    signals::install();
    let plan = plan::plan(&args.given)?;
    // What can be refused at once is looked at before rules are loaded, which takes its time.
    for name in plan.ports.interfaces() {
        Interface::look_up(name).map_err(Failure::input)?;
    }
    if let Some(workers) = plan.workers.filter(|workers| *workers > 1) {
        return Err(Failure::input(format!("{workers} workers are asked for, and a live run has one; write `workers: 1`")));
    }
    let _locks = locks(&plan)?;
    let listener = plan.metrics.map(metrics::listen).transpose()?;
    let mut builder = Builder::new(&plan.options)?;
    let built = builder.build(Generation(1))?;
    let (settings, warnings) =
        EngineSettings::from_settings(builder.settings(), plan.prevention, crate::load::seed())
            .map_err(Failure::input)?;
    let mut warnings: Vec<String> = builder.warnings().iter().cloned().chain(warnings).collect();
    let mut ports = open_ports(&plan.ports, &mut warnings)?;
    let name = plan.ports.interfaces().join("-");
    let mut recorder = recorder(&plan, &builder, &built, name.clone(), &mut warnings)?;
    for warning in &warnings {
        eprintln!("warning: {warning}");
    }
    if plan.options.suricata_config.is_some() {
        for key in builder.settings().unread() {
            eprintln!("note: the setting `{key}` is not used");
        }
    }
    let board = Board::new(1);
    let source = Arc::new(Source::new(board.clone(), recorder.watches(), built.function_names.clone()));
    source.loaded(&built.report, builder.cache());
    let server = listener.map(|listener| metrics::serve(listener, Arc::clone(&source))).transpose()?;
    if let Some(server) = &server {
        eprintln!("metrics: http://{}/metrics", server.address());
    }
    let app = Arc::new(crate::load::app_layer(builder.settings(), built.file_hashes)?);
    let mut worker = Worker::new(settings, app, Arc::clone(&built.chains)).map_err(Failure::stopped)?;
    board.presenter(0).into_iter().for_each(|presenter| worker.set_presenter(presenter));
    let control = Arc::new(Control::new().map_err(Failure::stopped)?);
    eprintln!("running on {name} ({}); stop with SIGINT or SIGTERM", builder.patterns());
    let live = LiveOptions { spin: plan.spin, ..LiveOptions::default() };
    let result = std::thread::scope(|scope| {
        let working = scope.spawn(|| match &mut ports {
            Ports::Inline(pair) => run_inline(&mut worker, pair, LinkId(0), &live, &control, &mut recorder),
            Ports::Tap(port) => run_passive(&mut worker, port, LinkId(0), &live, &control, &mut recorder),
        });
        steer(&mut builder, &control, &source, || working.is_finished());
        working.join()
    });
    worker.shutdown(&mut recorder);
    drop(server);
    let outcome = match result {
        Ok(Ok(counters)) => Ok(counters),
        Ok(Err(error)) => Err(Failure::stopped(error)),
        Err(_) => Err(Failure::stopped("the worker ended by a defect in the program; please report it")),
    };
    let report = &built.report;
    let counters =
        recorder.stats(&worker, worker.clock(), (report.loaded, report.refused_total(), report.skipped));
    recorder.finish().iter().for_each(|problem| eprintln!("error: {problem}"));
    let mut text = String::new();
    if let Ok(counters) = &outcome {
        summary(&mut text, &worker, counters, &mut ports);
    }
    let lost = events_summary(&mut text, &recorder.watches());
    if plan.stdout_taken {
        eprint!("{text}");
    } else {
        print!("{text}");
    }
    if let Some(out) = &plan.out {
        super::inspect::write_stats(out, &counters)?;
    }
    outcome.map(|_| if lost > 0 { Exit::Stopped } else { Exit::Done })
}

/// One instance per output folder and per inline interface.
fn locks(plan: &Plan) -> Result<Vec<lock::Lock>, Failure> {
    let mut locks = Vec::new();
    if let plan::Ports::Inline { .. } = plan.ports {
        for name in plan.ports.interfaces() {
            locks.extend(lock::interface(name)?);
        }
    }
    if let Some(out) = &plan.out {
        make_folder(out)?;
        locks.push(lock::folder(out)?);
    }
    Ok(locks)
}

fn make_folder(out: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(out).map_err(|error| {
        let folder = out.display();
        Failure::stopped(format!(
            "cannot make the output folder {folder}: {error}; choose another with --out"
        ))
    })
}

fn recorder(
    plan: &Plan,
    builder: &Builder,
    built: &Built,
    interface: String,
    warnings: &mut Vec<String>,
) -> Result<EveRecorder, Failure> {
    let run =
        RunInfo { own_fields: true, functions: built.function_names.clone(), interface: Some(interface) };
    // Without a folder no output is a file with a relative name.
    let folder = plan.out.as_deref().unwrap_or(Path::new(""));
    EveRecorder::new(builder.settings(), folder, builder.shared(), plan.prevention, run, warnings)
        .map_err(Failure::stopped)
}

/// Waits for signals; a reload builds a generation beside the running one and swaps it when it is whole. Says what
/// outputs have to say, once.
fn steer(builder: &mut Builder, control: &Control, source: &Source, finished: impl Fn() -> bool) {
    let mut number = 1;
    while !finished() {
        if signals::stop_asked() {
            control.stop();
        }
        if signals::reload_asked() {
            let built = builder.build(Generation(number + 1));
            source.reloaded(built.is_ok());
            match built {
                Ok(built) => {
                    number += 1;
                    control.swap(built.chains);
                    source.loaded(&built.report, builder.cache());
                    let (loaded, refused) = (built.report.loaded, built.report.refused_total());
                    eprintln!("generation {number}: {loaded} rules loaded, {refused} refused");
                }
                Err(error) => eprintln!("reload refused, generation {number} goes on: {error}"),
            }
        }
        source.problems().for_each(|problem| eprintln!("error: {problem}"));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn open_ports(ports: &plan::Ports, warnings: &mut Vec<String>) -> Result<Ports, Failure> {
    match ports {
        plan::Ports::Inline { a, b, fix_offloads } => {
            let options = InlineOptions { fix_offloads: *fix_offloads, ..InlineOptions::default() };
            let (pair, more) = InlinePair::open(a, b, &options, false).map_err(Failure::input)?;
            warnings.extend(more.iter().map(ToString::to_string));
            Ok(Ports::Inline(pair))
        }
        plan::Ports::Tap(tap) => {
            let port = PassivePort::open(tap, &PassiveOptions::default()).map_err(Failure::input)?;
            warnings.extend(port.warnings().iter().map(ToString::to_string));
            Ok(Ports::Tap(Box::new(port)))
        }
    }
}

/// Says what was lost on the way out. Gives the number.
fn events_summary(text: &mut String, watches: &[Arc<SinkWatch>]) -> u64 {
    let mut lost = 0;
    for watch in watches {
        let path = watch.path().display();
        let _ = match watch.lost() {
            0 => writeln!(text, "events: {} in {path}", watch.written()),
            some => writeln!(text, "events: {} in {path}, {some} lost", watch.written()),
        };
        lost += watch.lost();
    }
    lost
}

fn summary(text: &mut String, worker: &Worker, counters: &LiveCounters, ports: &mut Ports) {
    let c = worker.counters();
    let refused: u64 = c.refused.iter().sum();
    let _ = writeln!(text, "{} frames, {} forwarded, {refused} refused, {} alerts", c.packets, c.forwarded, c.alerts);
    for (reason, count) in bartizan_base::Reason::ALL.iter().zip(c.refused) {
        if count > 0 {
            let _ = writeln!(text, "    {count} refused: {}", reason.name());
        }
    }
    counters.normaliser.for_each(|name, value| {
        if value > 0 {
            let _ = writeln!(text, "    {value} {name}");
        }
    });
    match ports {
        Ports::Inline(pair) => {
            for side in Side::BOTH {
                let port = pair.port(side);
                let stats = port.stats();
                port_summary(text, port.name(), &stats);
            }
        }
        Ports::Tap(port) => {
            let stats = port.stats();
            port_summary(text, port.name(), &stats);
        }
    }
}

fn port_summary(text: &mut String, name: &str, stats: &PortStats) {
    let _ = writeln!(
        text,
        "{name}: {} received, {} dropped in the ring, {} sent",
        stats.received, stats.ring_dropped, stats.sent
    );
    for (refusal, frames) in stats.send_failures.iter().filter(|(_, frames)| *frames > 0) {
        let _ = writeln!(text, "    {frames} not sent: {}", refusal.name());
    }
}
