// SPDX-License-Identifier: Apache-2.0
//! `bartizan run`: the stack on live traffic, inline between two interfaces or passive on one.

use crate::error::{Exit, Failure};
use crate::generation::{Builder, Options};
use crate::signals;
use bartizan_base::{Generation, LinkId};
use bartizan_dataplane::eve::{EveRecorder, RunInfo};
use bartizan_dataplane::live::{Control, LiveCounters, LiveOptions, run_inline, run_passive};
use bartizan_dataplane::settings::EngineSettings;
use bartizan_dataplane::worker::Worker;
use bartizan_ports::{InlineOptions, InlinePair, PassiveOptions, PassivePort, Port, PortStats, Side};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Forward between two interfaces: `--inline eth0 eth1`. What the chain refuses does not pass.
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "tap", required_unless_present = "tap")]
    inline: Option<Vec<String>>,
    /// Watch one interface; nothing is forwarded or refused.
    #[arg(long, value_name = "INTERFACE")]
    tap: Option<String>,
    #[command(flatten)]
    options: Options,
    /// Only report what would be refused, also inline.
    #[arg(long)]
    detect: bool,
    /// Switch off the interfaces' offloads while running, and on again at the end.
    #[arg(long)]
    fix_offloads: bool,
    /// How long to look for packets before sleeping, in microseconds; 0 where no core is free.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 50)]
    spin: u64,
    /// Folder for eve.json and stats.json; made if it is not there.
    #[arg(long, value_name = "DIR", default_value = "bartizan-out")]
    out: PathBuf,
}

/// The ports of the run.
enum Ports {
    Inline(InlinePair),
    Tap(Box<PassivePort>),
}

/// Runs until a signal.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    signals::install();
    let mut builder = Builder::new(&args.options)?;
    let built = builder.build(Generation(1))?;
    let prevention = args.inline.is_some() && !args.detect;
    let (settings, warnings) =
        EngineSettings::from_settings(builder.settings(), prevention, crate::load::seed())
            .map_err(Failure::input)?;
    let settings = if prevention {
        settings.for_real_receivers(args.options.leaves_urgent_bytes_to_us())
    } else {
        settings
    };
    let mut warnings: Vec<String> = builder.warnings().iter().cloned().chain(warnings).collect();
    let mut ports = open_ports(args, &mut warnings)?;
    std::fs::create_dir_all(&args.out).map_err(|error| {
        let folder = args.out.display();
        Failure::stopped(format!(
            "cannot make the output folder {folder}: {error}; choose another with --out"
        ))
    })?;
    let _lock = lock(&args.out)?;
    let run = RunInfo {
        own_fields: true,
        functions: built.function_names.clone(),
        interface: Some(ports_name(args)),
    };
    let mut recorder =
        EveRecorder::new(builder.settings(), &args.out, builder.shared(), prevention, run, &mut warnings)
            .map_err(Failure::stopped)?;
    for warning in &warnings {
        eprintln!("warning: {warning}");
    }
    let app = Arc::new(crate::load::app_layer(builder.settings(), built.file_hashes)?);
    let mut worker = Worker::new(settings, app, Arc::clone(&built.chains)).map_err(Failure::stopped)?;
    let control = Arc::new(Control::new().map_err(Failure::stopped)?);
    eprintln!("running on {} ({}); stop with SIGINT or SIGTERM", ports_name(args), builder.patterns());
    let live = LiveOptions { spin: Duration::from_micros(args.spin), ..LiveOptions::default() };
    let result = std::thread::scope(|scope| {
        let working = scope.spawn(|| match &mut ports {
            Ports::Inline(pair) => run_inline(&mut worker, pair, LinkId(0), &live, &control, &mut recorder),
            Ports::Tap(port) => run_passive(&mut worker, port, LinkId(0), &live, &control, &mut recorder),
        });
        steer(&mut builder, &control, || working.is_finished());
        working.join()
    });
    worker.shutdown(&mut recorder);
    let outcome = match result {
        Ok(Ok(counters)) => {
            summary(&worker, &counters, &mut ports);
            Ok(())
        }
        Ok(Err(error)) => Err(Failure::stopped(error)),
        Err(_) => Err(Failure::stopped("the worker ended by a defect in the program; please report it")),
    };
    let report = &built.report;
    let counters =
        recorder.stats(&worker, worker.clock(), (report.loaded, report.refused_total(), report.skipped));
    super::inspect::write_stats(&args.out, &counters)?;
    for problem in recorder.finish() {
        eprintln!("error: {problem}");
    }
    outcome.map(|()| Exit::Done)
}

/// Waits for signals; a reload builds a generation beside the running one and swaps it when it is whole.
fn steer(builder: &mut Builder, control: &Control, finished: impl Fn() -> bool) {
    let mut number = 1;
    while !finished() {
        if signals::stop_asked() {
            control.stop();
        }
        if signals::reload_asked() {
            match builder.build(Generation(number + 1)) {
                Ok(built) => {
                    number += 1;
                    control.swap(built.chains);
                    let (loaded, refused) = (built.report.loaded, built.report.refused_total());
                    eprintln!("generation {number}: {loaded} rules loaded, {refused} refused");
                }
                Err(error) => eprintln!("reload refused, generation {number} goes on: {error}"),
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn ports_name(args: &Args) -> String {
    match (&args.inline, &args.tap) {
        (Some(pair), _) => pair.join("-"),
        (None, Some(tap)) => tap.clone(),
        (None, None) => String::new(),
    }
}

fn open_ports(args: &Args, warnings: &mut Vec<String>) -> Result<Ports, Failure> {
    match (&args.inline, &args.tap) {
        (Some(pair), _) => {
            let [a, b] = pair.as_slice() else { return Err(Failure::usage("--inline wants two interfaces")) };
            let options = InlineOptions { fix_offloads: args.fix_offloads, ..InlineOptions::default() };
            let (pair, more) = InlinePair::open(a, b, &options, false).map_err(Failure::input)?;
            warnings.extend(more.iter().map(ToString::to_string));
            Ok(Ports::Inline(pair))
        }
        (None, Some(tap)) => {
            let port = PassivePort::open(tap, &PassiveOptions::default()).map_err(Failure::input)?;
            warnings.extend(port.warnings().iter().map(ToString::to_string));
            Ok(Ports::Tap(Box::new(port)))
        }
        (None, None) => Err(Failure::usage("give --inline A B or --tap INTERFACE")),
    }
}

/// One instance per output folder: two would mix their events.
fn lock(folder: &Path) -> Result<File, Failure> {
    let path = folder.join("bartizan.lock");
    let file = File::create(&path)
        .map_err(|error| Failure::stopped(format!("cannot write {}: {error}", path.display())))?;
    file.try_lock().map_err(|_| {
        let folder = folder.display();
        Failure::stopped(format!(
            "another bartizan writes to {folder} (it holds {}); stop it or choose another folder with --out",
            path.display()
        ))
    })?;
    Ok(file)
}

fn summary(worker: &Worker, counters: &LiveCounters, ports: &mut Ports) {
    let c = worker.counters();
    let refused: u64 = c.refused.iter().sum();
    println!("{} frames, {} forwarded, {refused} refused, {} alerts", c.packets, c.forwarded, c.alerts);
    for (reason, count) in bartizan_base::Reason::ALL.iter().zip(c.refused) {
        if count > 0 {
            println!("    {count} refused: {}", reason.name());
        }
    }
    counters.normaliser.for_each(|name, value| {
        if value > 0 {
            println!("    {value} {name}");
        }
    });
    match ports {
        Ports::Inline(pair) => {
            for side in Side::BOTH {
                let port = pair.port(side);
                let stats = port.stats();
                port_summary(port.name(), &stats);
            }
        }
        Ports::Tap(port) => {
            let stats = port.stats();
            port_summary(port.name(), &stats);
        }
    }
}

fn port_summary(name: &str, stats: &PortStats) {
    println!(
        "{name}: {} received, {} dropped in the ring, {} sent",
        stats.received, stats.ring_dropped, stats.sent
    );
    for (refusal, frames) in stats.send_failures.iter().filter(|(_, frames)| *frames > 0) {
        println!("    {frames} not sent: {}", refusal.name());
    }
}
