// SPDX-License-Identifier: Apache-2.0
//! `bartizan run`: the stack on live traffic, inline between two interfaces or passive on one.

use crate::crew::{self, Parts};
use crate::error::{Exit, Failure};
use crate::generation::{Builder, Built, Options};
use crate::signals;
use bartizan_base::{Generation, Spread};
use bartizan_dataplane::eve::{EveRecorder, RunInfo};
use bartizan_dataplane::live::together::Ports;
use bartizan_dataplane::live::{Control, LiveOptions};
use bartizan_dataplane::settings::EngineSettings;
use bartizan_ports::{InlineOptions, InlinePair, PassiveOptions, PassivePort};
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
    /// Workers that share the traffic, each flow to one of them. Each stays on a processor of its own where one more is left
    /// for all else.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: u16,
    /// How long to look for packets before sleeping, in microseconds; 50 unless the workers need all processors, then 0.
    #[arg(long, value_name = "MICROSECONDS")]
    spin: Option<u64>,
    /// Folder for eve.json and stats.json; made if it is not there.
    #[arg(long, value_name = "DIR", default_value = "bartizan-out")]
    out: PathBuf,
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
    let settings = if prevention && args.options.leaves_urgent_bytes_to_us() {
        settings.with_urgent_bytes_in_place()
    } else {
        settings
    };
    let mut warnings: Vec<String> = builder.warnings().iter().cloned().chain(warnings).collect();
    let ports = open_ports(args, &Spread::new(settings.seed, args.workers), &mut warnings)?;
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
    let mut recorder = EveRecorder::new(
        builder.settings(),
        &args.out,
        builder.shared(),
        prevention,
        run.clone(),
        &mut warnings,
    )
    .map_err(Failure::stopped)?;
    for warning in &warnings {
        eprintln!("warning: {warning}");
    }
    let app = Arc::new(crate::load::app_layer(builder.settings(), built.file_hashes)?);
    let control = Control::for_workers(args.workers).map_err(Failure::stopped)?;
    eprintln!("running on {} ({}); stop with SIGINT or SIGTERM", ports_name(args), builder.patterns());
    let spin = args.spin.map_or_else(|| crew::spin(args.workers), Duration::from_micros);
    let live = LiveOptions { spin, ..LiveOptions::default() };
    let Built { chains, report, .. } = built;
    let parts = Parts { settings, engine: app, chains, ports, live, control: &control };
    let (yaml, shared) = (builder.settings().clone(), Arc::clone(builder.shared()));
    let for_worker = |ring| {
        EveRecorder::for_worker(&yaml, &shared, prevention, run.clone(), ring).map_err(Failure::stopped)
    };
    let steer = |finished: &dyn Fn() -> bool| steer(&mut builder, &control, finished);
    let ended = crew::run(parts, &mut recorder, for_worker, steer)?;
    let rules = (report.loaded, report.refused_total(), report.skipped);
    let counters = recorder.stats_of(&ended.stats, ended.clock, rules);
    if ended.failure.is_none() {
        ended.print();
    }
    super::inspect::write_stats(&args.out, &counters)?;
    for problem in recorder.finish() {
        eprintln!("error: {problem}");
    }
    ended.failure.map_or(Ok(Exit::Done), Err)
}

/// Waits for signals; a reload builds a generation beside the running one and swaps it when it is whole.
fn steer(builder: &mut Builder, control: &Control, finished: &dyn Fn() -> bool) {
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
        control.free_left();
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

/// Ports for each worker.
fn open_ports(args: &Args, spread: &Spread, warnings: &mut Vec<String>) -> Result<Vec<Ports>, Failure> {
    match (&args.inline, &args.tap) {
        (Some(pair), _) => {
            let [a, b] = pair.as_slice() else { return Err(Failure::usage("--inline wants two interfaces")) };
            let options = InlineOptions { fix_offloads: args.fix_offloads, ..InlineOptions::default() };
            let (pairs, more) =
                InlinePair::open_group(a, b, &options, spread, false).map_err(Failure::input)?;
            warnings.extend(more.iter().map(ToString::to_string));
            Ok(pairs.into_iter().map(Ports::Inline).collect())
        }
        (None, Some(tap)) => {
            let options = PassiveOptions::default();
            let ports = PassivePort::open_group(tap, &options, spread).map_err(Failure::input)?;
            let first = ports.first().into_iter().flat_map(PassivePort::warnings);
            warnings.extend(first.map(ToString::to_string));
            Ok(ports.into_iter().map(|port| Ports::Passive(Box::new(port))).collect())
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
