// SPDX-License-Identifier: Apache-2.0
//! `bartizan run`: the stack on live traffic, inline between two interfaces or passive on one.

use crate::crew::{self, Parts};
use crate::error::{Exit, Failure};
use crate::generation::{Builder, Built};
use crate::interfaces::InterfaceWatch;
use crate::metrics::{self, Source};
use crate::plan::{self, Given, Plan};
use crate::reload::Inventory;
use crate::stats::Statistics;
use crate::{firewall, load, lock, signals, stats, unused};
use bartizan_applayer::flow::Engine;
use bartizan_base::{Generation, Spread};
use bartizan_config::suricata;
use bartizan_dataplane::board::Board;
use bartizan_dataplane::eve::{EveRecorder, RunInfo};
use bartizan_dataplane::live::together::Ports;
use bartizan_dataplane::live::{Control, LiveOptions};
use bartizan_dataplane::settings::EngineSettings;
use bartizan_events::file_store::{FileStore, WhenBehind};
use bartizan_events::harmless;
use bartizan_events::output::Rights;
use bartizan_events::sink::{SinkProblem, SinkWatch};
use bartizan_events::tls_store::TlsStore;
use bartizan_ports::{
    AWAKE_DEVICE, Awake, InlineOptions, InlinePair, Interface, PassiveOptions, PassivePort,
};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    given: Given,
}

/// Runs until a signal.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    signals::install();
    let plan = plan::plan(&args.given)?;
    // What can be refused at once is looked at before rules are loaded, which takes its time.
    let mut interfaces = InterfaceWatch::new(interfaces(&plan)?);
    // Without a folder no output is a file with a relative name.
    let folder = plan.out.as_deref().unwrap_or(Path::new(""));
    let mut builder = Builder::new(&plan.options, folder)?;
    let rights = Rights::from_settings(builder.settings()).map_err(Failure::setting(builder.settings()))?;
    firewall::needs_prevention(builder.settings(), plan.prevention)?;
    let _locks = locks(&plan, &rights)?;
    let listener = plan.metrics.map(metrics::listen).transpose()?;
    let built = builder.build(Generation(1))?;
    let (settings, warnings) =
        EngineSettings::from_settings(builder.settings(), plan.prevention, crate::load::seed())
            .map_err(Failure::setting(builder.settings()))?;
    let settings = settings.for_live_links();
    let settings = if plan.prevention {
        settings.for_real_receivers(plan.options.leaves_urgent_bytes_to_us())
    } else {
        settings
    };
    let is_inline = matches!(plan.ports, plan::Ports::Inline { .. });
    let settings = if is_inline { settings.between_two_sides() } else { settings };
    let mut warnings: Vec<String> = builder.warnings().iter().cloned().chain(warnings).collect();
    let run = RunInfo {
        own_fields: true,
        functions: built.function_names.clone(),
        interface: Some(plan.ports.interfaces().join("-")),
    };
    let mut recorder = EveRecorder::new(
        builder.settings(),
        folder,
        builder.shared(),
        plan.prevention,
        run.clone(),
        &mut warnings,
    )
    .map_err(Failure::outputs(builder.settings()))?;
    let app =
        Arc::new(load::app_layer(builder.settings(), &built.needs, load::Mode::on_links(plan.prevention))?);
    let mut store =
        load::file_store(builder.settings(), &built.needs, folder, WhenBehind::GiveUp, &mut warnings)?;
    let handle = || store.as_ref().and_then(FileStore::handle);
    recorder.keep_files(handle());
    let mut certificates =
        load::tls_store(builder.settings(), &built.needs, folder, WhenBehind::GiveUp, &mut warnings)?;
    let certificates_handle = || certificates.as_ref().and_then(TlsStore::handle);
    recorder.store_certificates_in(certificates_handle());
    let every = stats::interval(builder.settings())?;
    check_unread(&plan, &builder)?;
    let ports = open_ports(&plan.ports, &Spread::new(settings.seed, plan.workers), &mut warnings)?;
    for warning in &warnings {
        eprintln!("warning: {warning}");
    }
    let Built { chains, report, inventory, function_names, .. } = built;
    for note in inventory.notes() {
        eprintln!("warning: {note}");
    }
    let board = Board::new(plan.workers);
    let source = Arc::new(Source::new(board.clone(), recorder.watches(), function_names));
    source.loaded(&report, builder.cache());
    let server = listener.map(|listener| metrics::serve(listener, Arc::clone(&source))).transpose()?;
    if let Some(server) = &server {
        eprintln!("metrics: http://{}/metrics", server.address());
    }
    let control = Control::for_workers(plan.workers).map_err(Failure::stopped)?;
    if plan.prevention && settings.stream.midstream_policy.refuses() {
        eprintln!(
            "note: TCP connections that are open already are refused until they open anew (stream_midstream); to reset them set stream.midstream-policy to reject, to pick them up set stream.midstream to yes"
        );
    }
    eprintln!(
        "running on {} (patterns: {}); SIGUSR2 loads rules and policy anew, SIGHUP opens outputs again, SIGINT or SIGTERM ends it",
        plan.ports.interfaces().join("-"),
        builder.patterns()
    );
    let spin = plan.spin.unwrap_or_else(|| crew::spin(plan.workers));
    if plan.awake
        && let Err(error) = Awake::open()
    {
        eprintln!(
            "note: {AWAKE_DEVICE}: {error}: processors may sleep between packets (--save-power says that they shall)"
        );
    }
    let live = LiveOptions { spin, awake: plan.awake, ..LiveOptions::default() };
    let statistics_board = board.clone();
    let parts = Parts { settings, engine: Arc::clone(&app), chains, ports, live, control: &control, board };
    let (yaml, shared) = (builder.settings().clone(), Arc::clone(builder.shared()));
    let (keep, keep_certificates) = (handle(), certificates_handle());
    let for_worker = |ring| {
        let half = EveRecorder::for_worker(&yaml, &shared, plan.prevention, run.clone(), ring);
        let mut half = half.map_err(Failure::outputs(&yaml))?;
        half.keep_files(keep.clone());
        half.store_certificates_in(keep_certificates.clone());
        Ok(half)
    };
    let mut statistics = Statistics::new(
        recorder.stats_writer(every.is_some()),
        statistics_board,
        every,
        stats::rules_of(&report),
        &plan.ports.interfaces().join("-"),
    );
    let steer = |finished: &dyn Fn() -> bool| {
        let steering = Steering { control: &control, source: &source, app: &app, given: &args.given };
        steering.run(&mut builder, inventory, &mut statistics, &mut interfaces, finished);
    };
    let mut ended = crew::run(parts, &mut recorder, for_worker, steer)?;
    drop(server);
    let threads = std::mem::take(&mut ended.threads);
    statistics.warn(&ended.stats);
    let counters = statistics.write(ended.clock, &ended.stats, threads);
    recorder.finish().iter().for_each(tell);
    let mut problems: Vec<String> = Vec::new();
    problems.extend(store.as_mut().and_then(FileStore::finish));
    problems.extend(certificates.as_mut().and_then(TlsStore::finish));
    problems.extend(load::save_datasets(&shared, &rights));
    problems.iter().for_each(|problem| eprintln!("error: {problem}"));
    let mut text = String::new();
    if ended.failure.is_none() {
        ended.print(&mut text);
    }
    let failed = events_summary(&mut text, &recorder.watches());
    say(&plan, &text);
    if let Some(out) = &plan.out {
        super::inspect::write_stats(out, &counters, &rights)?;
    }
    match ended.failure.or_else(|| interfaces.gone().map(Failure::stopped)) {
        Some(failure) => Err(failure),
        None if failed > 0 || !problems.is_empty() => Ok(Exit::Stopped),
        None => Ok(Exit::Done),
    }
}

/// The summary is the result, unless events have standard output.
fn say(plan: &Plan, text: &str) {
    // Nobody reads it any more: no reason to fail.
    let _ = if plan.stdout_taken {
        std::io::stderr().write_all(harmless(text).as_bytes())
    } else {
        std::io::stdout().write_all(harmless(text).as_bytes())
    };
}

/// The interfaces, each another one, however they are named.
fn interfaces(plan: &Plan) -> Result<Vec<Interface>, Failure> {
    let names = plan.ports.interfaces();
    let found: Vec<Interface> = names
        .iter()
        .map(|name| Interface::look_up(name))
        .collect::<Result<_, _>>()
        .map_err(Failure::input)?;
    if let [a, b] = found.as_slice()
        && a.index == b.index
    {
        let what = if a.name == b.name {
            "is given twice".to_owned()
        } else {
            format!("and `{}` are one interface", b.name)
        };
        return Err(Failure::input(format!(
            "`{}` {what}: inline, packets come in by one interface and leave by another; give two, or watch one with --tap",
            a.name
        )));
    }
    Ok(found)
}

/// Says what happened to an output.
fn tell(problem: &SinkProblem) {
    let kind = if problem.is_error() { "error" } else { "note" };
    eprintln!("{kind}: {problem}");
}

/// One instance per output folder and per inline interface.
fn locks(plan: &Plan, rights: &Rights) -> Result<Vec<lock::Lock>, Failure> {
    let mut locks = Vec::new();
    locks.extend(plan.pid_file.as_deref().map(lock::pid_file).transpose()?);
    if let plan::Ports::Inline { .. } = plan.ports {
        for name in plan.ports.interfaces() {
            locks.extend(lock::interface(name)?);
        }
    }
    if let Some(out) = &plan.out {
        rights.make_folder(out).map_err(|error| {
            let folder = out.display();
            Failure::stopped(format!(
                "cannot make the output folder {folder}: {error}; choose another with --out"
            ))
        })?;
        locks.push(lock::folder(out)?);
    }
    Ok(locks)
}

/// Settings that nothing has read by now have no effect: those of the host file are mistakes, the others are told of.
fn check_unread(plan: &Plan, builder: &Builder) -> Result<(), Failure> {
    let settings = builder.settings();
    if let Some(key) = settings.unread().iter().find(|key| plan.options.below.iter().any(|(k, _)| &k == key))
    {
        let near = suricata::nearest_known(key).filter(|near| near != key);
        let hint = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        return Err(Failure::input(format!(
            "the host file sets `{key}`, which nothing reads{hint}; correct or remove it"
        )));
    }
    unused::tell(&plan.options, settings)
}

/// What signals act upon.
struct Steering<'r> {
    control: &'r Control,
    source: &'r Source,
    app: &'r Engine,
    given: &'r Given,
}

impl Steering<'_> {
    /// Waits for signals; a reload builds a generation beside the running one and swaps it when it is whole and does not weaken.
    /// Says what outputs have to say, once.
    fn run(
        &self,
        builder: &mut Builder,
        mut running: Inventory,
        statistics: &mut Statistics,
        interfaces: &mut InterfaceWatch,
        finished: &dyn Fn() -> bool,
    ) {
        let mut number = 1;
        while !finished() {
            if signals::stop_asked() {
                self.control.stop();
            }
            if signals::reload_asked() {
                let built = self.build(builder, Generation(number + 1), &running);
                self.source.reloaded(built.is_ok());
                match built {
                    Ok(built) => {
                        number += 1;
                        // Hashes that only the new rules ask for are computed from here on.
                        self.app.ask_hashes(built.needs.hashes);
                        self.app.ask_frames(built.needs.frames, built.needs.stream_frames);
                        if built.needs.magic {
                            self.app.ask_magic();
                        }
                        self.control.swap(built.chains);
                        self.source.loaded(&built.report, builder.cache());
                        statistics.loaded(stats::rules_of(&built.report));
                        let (loaded, refused) = (built.report.loaded, built.report.refused_total());
                        for left_out in running.left_out(&built.inventory) {
                            eprintln!("warning: {left_out}");
                        }
                        running = built.inventory;
                        let malformed = match running.malformed() {
                            0 => String::new(),
                            some => format!(", {some} of them malformed lines"),
                        };
                        eprintln!("generation {number}: {loaded} rules loaded, {refused} refused{malformed}");
                    }
                    Err(error) => eprintln!("reload refused, generation {number} goes on: {error}"),
                }
            }
            if signals::reopen_asked() {
                self.source.ask_reopen();
                eprintln!("outputs are opened again (SIGHUP); SIGUSR2 loads rules and policy anew");
            }
            self.source.problems().for_each(|problem| tell(&problem));
            if self.control.free_left() {
                builder.generation_freed();
            }
            statistics.look();
            interfaces.look().iter().for_each(|said| eprintln!("{said}"));
            if interfaces.gone().is_some() {
                self.control.stop();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The next generation, if it may take the place of the running one.
    fn build(
        &self,
        builder: &mut Builder,
        number: Generation,
        running: &Inventory,
    ) -> Result<Built, Failure> {
        let terms = plan::terms(self.given)?;
        let built = builder.build(number)?;
        running.may_become(&built.inventory, &terms).map_err(Failure::input)?;
        Ok(built)
    }
}

/// Ports for each worker.
fn open_ports(
    ports: &plan::Ports,
    spread: &Spread,
    warnings: &mut Vec<String>,
) -> Result<Vec<Ports>, Failure> {
    match ports {
        plan::Ports::Inline { a, b, fix_offloads } => {
            let options = InlineOptions { fix_offloads: *fix_offloads, ..InlineOptions::default() };
            let (pairs, more) =
                InlinePair::open_group(a, b, &options, spread, false).map_err(Failure::input)?;
            warnings.extend(more.iter().map(ToString::to_string));
            Ok(pairs.into_iter().map(Ports::Inline).collect())
        }
        plan::Ports::Tap { interface, fix_offloads } => {
            let options = PassiveOptions { fix_offloads: *fix_offloads, ..PassiveOptions::default() };
            let ports = PassivePort::open_group(interface, &options, spread).map_err(Failure::input)?;
            let first = ports.first().into_iter().flat_map(PassivePort::warnings);
            warnings.extend(first.map(ToString::to_string));
            Ok(ports.into_iter().map(|port| Ports::Passive(Box::new(port))).collect())
        }
    }
}

/// Says what was written and what was lost on the way out. Gives the number that outputs did not take.
fn events_summary(text: &mut String, watches: &[Arc<SinkWatch>]) -> u64 {
    let mut failed = 0;
    for watch in watches {
        let path = watch.path().display();
        let _ = match watch.lost() {
            0 => writeln!(text, "events: {} in {path}", watch.written()),
            some => writeln!(text, "events: {} in {path}, {some} lost", watch.written()),
        };
        failed += watch.failed();
    }
    failed
}
