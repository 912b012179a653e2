// SPDX-License-Identifier: Apache-2.0
//! Runs the stack on live traffic, on links that are inline between two interfaces or watch interfaces.

use crate::channel::RunningGeneration;
use crate::crew::{self, Stack, WorkerPoolParts};
use crate::engines::Engines;
use crate::error::Failure;
use crate::functions::Functions;
use crate::generation::{Builder, Built};
use crate::links::Links;
use crate::metrics::{self, MetricsSource};
use crate::notify::Notifier;
use crate::offload::{Below, LevelPortCounters};
use crate::plan::{self, LinkPlan, RunOptions, RunPlan};
use crate::queries::{self, View};
use crate::reload::Inventory;
use crate::requests::Requests;
use crate::southbound::{InForce, Workers};
use crate::stats::{Named, Statistics, StatsLink};
use crate::stats_file::{StatsParts, write_stats};
use crate::stores::{StoreHandles, Stores};
use crate::supervisor::{Steering, log_problem};
use crate::traces::Traces;
use crate::{channel, confine, control, firewall, load, lock, machine_code, southbound, stats, unused};
use bartizan_api::content::Contents;
use bartizan_base::{Generation, SettingsMap};
use bartizan_config::suricata;
use bartizan_dataplane::board::Board;
use bartizan_dataplane::driver::{Control, LiveOptions};
use bartizan_dataplane::eve::{AlertTap, EveRecorder, RunInfo};
use bartizan_dataplane::event_ring::EventSender;
use bartizan_detect::shared::Shared;
use bartizan_events::file_store::WhenBehind;
use bartizan_events::output::Rights;
use bartizan_events::sink::SinkWatch;
use bartizan_pattern::jit_support;
use bartizan_ports::{AWAKE_DEVICE, Awake, Interface};
use bartizan_rules::RuleSetReport;
use bartizan_stages::record::Recorder as _;
use bartizan_stages::settings::EngineSettings;
use bartizan_stages::stats::NamedCounters;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tracing::{error, info, warn};

/// Result of a run.
pub struct RunOutcome {
    /// Readable lines about frames, losses and events.
    pub summary: String,
    /// Whether events go to standard output.
    pub stdout_taken: bool,
    /// Failure that ended the run early, or a failure to write counters.
    pub failure: Option<Failure>,
    /// Whether nothing was lost: every event was written, and state kept between runs was stored.
    pub is_complete: bool,
}

/// Runs links until the end is requested: by `requests`, a command, or a failure.
///
/// # Errors
/// The run cannot begin, or a defect has ended it.
pub fn run(options: &RunOptions, requests: &'static Requests) -> Result<RunOutcome, Failure> {
    let (mut plan, confinement) = confine::begin(plan::plan(options)?)?;
    // Conditions that need no rules are checked before rules are loaded, which takes time.
    let interfaces = interfaces(&plan)?;
    let mut links = Links::new(&plan, interfaces.clone())?;
    // Without a folder no output has a relative path.
    let folder = plan.out.as_deref().unwrap_or(Path::new(""));
    let mut builder = Builder::new(&plan.options, folder)?;
    let rights = Rights::from_settings(builder.settings()).map_err(Failure::setting(builder.settings()))?;
    fits_firewall(&plan, &builder)?;
    let _locks = locks(&plan, &rights)?;
    let listener = plan.metrics.map(metrics::listen).transpose()?;
    let socket = control::open(&plan.control, builder.settings())?;
    let plane = southbound::here::start(plan.controller.as_mut())?;
    let mut controller = plan.controller.as_ref().map(southbound::SouthboundSetup::open).transpose()?;
    let built = southbound::first(controller.as_mut(), &mut builder)?;
    let mut warnings: Vec<String> = builder.warnings().to_vec();
    let settings = settings_of(&plan, &builder, load::seed(), &mut warnings)?;
    let runs = runs_of(&plan, &built.function_names);
    let mut recorder = recorder_of(&plan, &builder, &runs, &mut warnings)?;
    let engines = Engines::new(&plan, &builder, &built)?;
    let stores = Stores::open(builder.settings(), &built.needs, folder, WhenBehind::GiveUp, &mut warnings)?;
    stores.handles().attach(&mut recorder);
    let every = stats::interval(builder.settings())?;
    check_unread(&plan, &builder)?;
    let refuses_midstream = refuses_midstream(&plan, &settings) && built.chains.enforces_something();
    let mut of_links = links.open(stacks_of(&plan, settings, &engines), &built, &mut warnings)?;
    let mut below = Below::open(&plan, &interfaces, &mut of_links, &built.chains, &built.function_names)?;
    confine::drop_capabilities(confinement.as_ref())?;
    warnings.append(&mut below.notes);
    let Built { chains, report, inventory, function_names, contents, .. } = built;
    warnings.iter().chain(&inventory.notes()).for_each(|warning| warn!("{warning}"));
    let board = Board::new(plan.workers());
    let source = source_of(&plan, &board, &recorder, function_names, below.counters());
    source.loaded(&report, builder.cache());
    let server = listener.map(|listener| metrics::serve(listener, Arc::clone(&source))).transpose()?;
    let control = Arc::new(Control::for_workers(plan.workers()).map_err(Failure::stopped)?);
    let statistics = statistics_of(&plan, &recorder, every, &report, board.clone());
    let statistics = Arc::new(Mutex::new(statistics.with_levels(below.counters())));
    let (channel, inbox) = channel::open(requests);
    let in_force = in_force_of(&builder, &inventory, &contents);
    links.guests().into_iter().for_each(|guests| source.set_guests(guests));
    let view = view_of(&plan, &control, &source, &statistics, &in_force).of_guests(links.guests());
    let (tap, alerts) = southbound::tap(plan.controller.as_ref());
    recorder.tap_alerts(tap.as_ref().map(AlertTap::another));
    let functions = Functions::new(channel.clone(), view.clone());
    let way = (channel.clone(), Workers::new(&control, &in_force, &plan, below.stand.clone()), functions);
    let running = southbound::start(controller, alerts, way, &source, &statistics)?;
    let traces = Arc::new(Traces::new(&control, builder.keywords(), &chains, builder.tenants()));
    let commands = commands_of(socket, channel, view, &traces, &plan)?;
    log_links(&plan, &builder, refuses_midstream);
    log_first_generation(&in_force, &report);
    let (below, live, processors) = (Mutex::new(below), live_options(&plan), plan.processors.as_slice());
    let parts = WorkerPoolParts { links: of_links, chains, live, processors, control: &control, board };
    let (yaml, shared) = (builder.settings().clone(), Arc::clone(builder.shared()));
    let for_worker = |link: usize, ring| {
        let prevention = plan.links.get(link).is_some_and(|link| link.prevention);
        let run = runs.get(link).cloned().unwrap_or_default();
        recorder_of_worker(&yaml, prevention, run, ring, stores.handles(), tap.as_ref())
    };
    let steer = |finished: &dyn Fn() -> bool| {
        let (control, source, engines, given) = (&*control, &*source, &engines, options);
        let (rights, statistics, in_force, traces) = (&rights, &*statistics, &*in_force, &*traces);
        let notifier = Notifier::from_environment();
        let steering =
            Steering { control, source, engines, given, rights, statistics, in_force, traces, notifier };
        steering.run(&mut builder, inventory, inbox, &mut links, &below, finished);
    };
    let mut ended = crew::run(parts, &mut recorder, for_worker, steer)?;
    drop((server, commands, running, plane));
    queries::lock(&statistics).counted_beside(close(below, ended.failure.is_some()));
    let written = write_last(&plan, &rights, &mut queries::lock(&statistics), &mut ended, &mut recorder);
    let (summary, events_lost) = sum_up(&ended, &recorder);
    Ok(RunOutcome {
        summary,
        stdout_taken: plan.stdout_taken,
        failure: written.err().or(ended.failure).or_else(|| links.end().map(Failure::stopped)),
        is_complete: keep(stores, &shared, &rights) && events_lost == 0,
    })
}

/// Closes the levels below. Returns their last counters.
fn close(below: Mutex<Below>, failed: bool) -> Vec<NamedCounters> {
    below.into_inner().unwrap_or_else(PoisonError::into_inner).close(failed)
}

/// The settings and the engine of each link.
fn stacks_of(plan: &RunPlan, settings: Vec<EngineSettings>, engines: &Engines) -> Vec<Stack> {
    let stack =
        |(link, settings): (&LinkPlan, _)| Some(Stack { settings, engine: engines.of(link.prevention)? });
    plan.links.iter().zip(settings).filter_map(stack).collect()
}

/// The recorder of a worker, whose events go by a ring.
fn recorder_of_worker(
    yaml: &SettingsMap,
    prevention: bool,
    run: RunInfo,
    ring: EventSender,
    handles: StoreHandles,
    tap: Option<&AlertTap>,
) -> Result<EveRecorder, Failure> {
    let half = EveRecorder::for_worker(yaml, prevention, run, ring);
    let mut half = half.map_err(Failure::outputs(yaml))?;
    handles.attach(&mut half);
    half.tap_alerts(tap.map(AlertTap::another));
    Ok(half)
}

/// Writes what stores and data sets keep beyond the run. Returns whether all of it is written.
fn keep(mut stores: Stores, shared: &Shared, rights: &Rights) -> bool {
    let mut problems = stores.finish();
    problems.extend(load::save_datasets(shared, rights));
    problems.iter().for_each(|problem| error!("{problem}"));
    problems.is_empty()
}

/// Writes the last `stats` event, and the counters to their file.
fn write_last(
    plan: &RunPlan,
    rights: &Rights,
    statistics: &mut Statistics,
    ended: &mut crew::WorkerPoolReport,
    recorder: &mut EveRecorder,
) -> Result<(), Failure> {
    let (threads, of_links) = ended.take_counters();
    statistics.warn(&of_links);
    let ports = statistics.ports(&ended.ports());
    let last = CounterBaseline { threads, of_links, ports: &ports };
    let (counters, of_links) = last_events(recorder, statistics, ended, last);
    let parts = StatsParts { links: &of_links, ports: &ports };
    plan.out.as_deref().map_or(Ok(()), |out| write_stats(out, &counters, &parts, rights))
}

fn live_options(plan: &RunPlan) -> LiveOptions {
    let spin = plan.spin.unwrap_or_else(|| crew::spin(plan.workers()));
    LiveOptions { spin, awake: plan.awake, ..LiveOptions::default() }
}

/// Counters of the last `stats` event, beside the sums.
struct CounterBaseline<'p> {
    threads: Vec<NamedCounters>,
    of_links: Vec<NamedCounters>,
    ports: &'p Named,
}

/// Writes the last `stats` event, with the losses before it, and flushes the outputs. Returns the counters at
/// that time.
fn last_events(
    recorder: &mut EveRecorder,
    statistics: &mut Statistics,
    ended: &crew::WorkerPoolReport,
    last: CounterBaseline<'_>,
) -> (NamedCounters, Named) {
    recorder.ending();
    recorder.finish_outputs();
    let CounterBaseline { threads, of_links, ports } = last;
    let (mut counters, of_links) = statistics.write(ended.clock, &ended.stats, threads, of_links, ports);
    recorder.finish().iter().for_each(log_problem);
    statistics.refresh(&mut counters);
    (counters, of_links)
}

/// The numbers and rules of the first generation, as a controller knows them.
fn in_force_of(builder: &Builder, inventory: &Inventory, contents: &Contents) -> Arc<InForce> {
    let in_force = Arc::new(InForce::default());
    let controller = builder.held().map_or(0, |held| held.generation);
    let first = RunningGeneration { generation: Generation(1), controller, content: contents.hashes() };
    in_force.note(first, builder.held(), &builder.tenants(), inventory.left_out_report());
    in_force
}

/// The recorder of a run with one worker on one link; with several workers, it writes the events of their
/// recorders.
fn recorder_of(
    plan: &RunPlan,
    builder: &Builder,
    runs: &[RunInfo],
    warnings: &mut Vec<String>,
) -> Result<EveRecorder, Failure> {
    let folder = plan.out.as_deref().unwrap_or(Path::new(""));
    let prevention = plan.links.iter().any(|link| link.prevention);
    let run = runs.first().cloned().unwrap_or_default();
    EveRecorder::new(builder.settings(), folder, prevention, run, warnings)
        .map_err(Failure::outputs(builder.settings()))
}

/// Readable lines about frames and events, and the number of lost events.
fn sum_up(ended: &crew::WorkerPoolReport, recorder: &EveRecorder) -> (String, u64) {
    let mut text = String::new();
    if ended.failure.is_none() {
        ended.print(&mut text);
    }
    let lost = events_summary(&mut text, &recorder.watches());
    (text, lost)
}

/// Checks that all links prevent in firewall mode.
fn fits_firewall(plan: &RunPlan, builder: &Builder) -> Result<(), Failure> {
    for link in &plan.links {
        let which = if plan.links.len() > 1 { format!("link `{}`: ", link.name) } else { String::new() };
        firewall::needs_prevention(builder.settings(), link.prevention, &which)?;
        if matches!(link.ports, plan::LinkPorts::Guest(_)) && firewall::is_on(builder.settings())? {
            return Err(Failure::input(format!(
                "{which}firewall mode accepts packets, and a guest's connections have none: switch `firewall.enabled` off, or write \
                 the firewall's rules as `pfw` rules of a policy"
            )));
        }
    }
    Ok(())
}

/// Whether some link refuses connections that are open already.
fn refuses_midstream(plan: &RunPlan, settings: &[EngineSettings]) -> bool {
    let mut links = plan.links.iter().zip(settings);
    links.any(|(link, own)| link.prevention && own.stream.midstream_policy.refuses())
}

/// Statistics of the links, at the interval of the settings.
fn statistics_of(
    plan: &RunPlan,
    recorder: &EveRecorder,
    every: Option<Duration>,
    report: &RuleSetReport,
    board: Board,
) -> Statistics {
    let links = plan.links.iter().map(|link| StatsLink::new(&link.name, link.interface(), link.workers));
    let writer = recorder.stats_writer(every.is_some());
    Statistics::new(writer, board, every, stats::rules_of(report), links.collect())
}

/// The view of the run that answers queries at any time.
fn view_of(
    plan: &RunPlan,
    control: &Arc<Control>,
    source: &Arc<MetricsSource>,
    statistics: &Arc<Mutex<Statistics>>,
    in_force: &Arc<InForce>,
) -> View {
    let interfaces = plan.links.iter().flat_map(|link| link.ports.interfaces());
    View {
        control: Arc::clone(control),
        source: Arc::clone(source),
        statistics: Arc::clone(statistics),
        in_force: Arc::clone(in_force),
        guests: None,
        interfaces: interfaces.map(str::to_owned).collect(),
    }
}

/// Starts to accept commands by a socket, and logs its path.
fn commands_of(
    socket: control::Opened,
    channel: channel::Channel,
    view: View,
    traces: &Arc<Traces>,
    plan: &RunPlan,
) -> Result<Option<control::ControlServer>, Failure> {
    let place = match socket {
        control::Opened::Place(place) => place,
        control::Opened::None => return Ok(None),
        control::Opened::Without(note) => {
            info!("note: {note}");
            return Ok(None);
        }
    };
    let links = plan.links.iter().map(|link| link.name.clone()).collect();
    let desk = control::Desk::new(channel, view, Arc::clone(traces), links);
    let server = control::ControlServer::start(place, desk).map_err(|error| {
        Failure::stopped(format!(
            "cannot serve commands: {error}; --control none runs without the command \
             socket"
        ))
    })?;
    info!("commands: {} (`bartizan ctl`)", server.path().display());
    Ok(Some(server))
}

/// Facts about each link's run that events contain.
fn runs_of(plan: &RunPlan, functions: &[&'static str]) -> Vec<RunInfo> {
    let run = |link: &LinkPlan| RunInfo {
        own_fields: true,
        functions: functions.to_vec(),
        interface: (!link.is_guest()).then(|| link.interface()),
        // A guest's flows name it themselves: its worker may be that of another guest.
        link: (plan.named && !link.is_guest()).then(|| link.name.clone()),
    };
    plan.links.iter().map(run).collect()
}

/// Source of the metrics.
fn source_of(
    plan: &RunPlan,
    board: &Board,
    recorder: &EveRecorder,
    functions: Vec<&'static str>,
    levels: Vec<LevelPortCounters>,
) -> Arc<MetricsSource> {
    let names = plan.links.iter().flat_map(|link| vec![link.name.clone(); link.workers.into()]);
    Arc::new(MetricsSource::new(board.clone(), names.collect(), recorder.watches(), functions, levels))
}

/// Logs the first generation, in the form of a reload.
fn log_first_generation(in_force: &InForce, report: &RuleSetReport) {
    let RunningGeneration { generation, content, .. } = in_force.newest();
    info!(
        "generation {}: {} rules loaded, {} refused; {content}",
        generation.0,
        report.loaded,
        report.refused_total()
    );
}

/// Logs the links, and notes about them.
fn log_links(plan: &RunPlan, builder: &Builder, refuses_midstream: bool) {
    if refuses_midstream {
        info!(
            "note: TCP connections that are already open are dropped until they are opened again (stream_midstream); to reset them set stream.midstream-policy to reject, to pick them up set stream.midstream to yes"
        );
    }
    for link in &plan.links {
        let which = if plan.links.len() > 1 { format!("link `{}`: ", link.name) } else { String::new() };
        if let Some(snap) = link.receive.snap_length {
            info!(
                "note: {which}{snap} are inspected (snap-length); parsers treat the bytes after them as lost"
            );
        }
    }
    if let Some(note) = machine_code::note(jit_support()) {
        info!("note: {note}");
    }
    info!(
        "running on {} (patterns: {}); SIGUSR2 reloads rules and policy, SIGHUP reopens outputs, SIGINT or SIGTERM stops the program",
        plan.links.iter().map(LinkPlan::interface).collect::<Vec<_>>().join(", "),
        builder.patterns()
    );
    if plan.awake
        && let Err(error) = Awake::open()
    {
        info!(
            "note: {AWAKE_DEVICE}: {error}: processors may sleep between packets, which adds delay (--save-power allows it without this note)"
        );
    }
}

/// The interfaces of each link, all different, whatever names they are given by.
fn interfaces(plan: &RunPlan) -> Result<Vec<Vec<Interface>>, Failure> {
    let several = plan.links.len() > 1;
    let mut known: Vec<(u32, String, &str)> = Vec::new();
    let mut of_links = Vec::new();
    for link in &plan.links {
        let which = if several { format!("link `{}`: ", link.name) } else { String::new() };
        let mut found = Vec::new();
        for name in link.ports.interfaces() {
            let looked_up =
                Interface::lookup(name).map_err(|error| Failure::input(format!("{which}{error}")))?;
            if let Some((_, other, of)) = known.iter().find(|(index, ..)| *index == looked_up.index) {
                return Err(Failure::input(twice(link, name, other, of)));
            }
            known.push((looked_up.index, name.to_owned(), &link.name));
            found.push(looked_up);
        }
        of_links.push(found);
    }
    Ok(of_links)
}

/// The message that an interface is given twice.
fn twice(link: &LinkPlan, name: &str, other: &str, of: &str) -> String {
    let what =
        if name == other { "is given twice".to_owned() } else { format!("and `{name}` are one interface") };
    if of != link.name {
        return format!(
            "links `{of}` and `{}`: `{other}` {what}: a link is one pair of ports or one tap; remove one",
            link.name
        );
    }
    if !link.is_inline() {
        return format!("link `{}`: `{other}` {what}: name each interface of a tap once", link.name);
    }
    format!(
        "`{other}` {what}: an inline link needs two interfaces; name another one, or watch this one with --tap"
    )
}

/// Settings of the workers of each link.
fn settings_of(
    plan: &RunPlan,
    builder: &Builder,
    seed: [u64; 2],
    warnings: &mut Vec<String>,
) -> Result<Vec<EngineSettings>, Failure> {
    plan.links.iter().map(|link| engine_settings(builder, plan, link, seed, warnings)).collect()
}

/// Settings of a link's workers.
fn engine_settings(
    builder: &Builder,
    plan: &RunPlan,
    link: &LinkPlan,
    seed: [u64; 2],
    warnings: &mut Vec<String>,
) -> Result<EngineSettings, Failure> {
    let (settings, said) = EngineSettings::from_settings(builder.settings(), link.prevention, seed)
        .map_err(Failure::setting(builder.settings()))?;
    for warning in said {
        // Links mostly have the same warnings.
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    let mut settings = settings.for_live_links();
    settings.decoder.cut_frames = link.receive.snap_length.is_some();
    let settings = if link.prevention {
        settings.for_real_receivers(plan.options.leaves_urgent_bytes_to_us())
    } else {
        settings
    };
    Ok(if link.is_inline() { settings.between_two_sides() } else { settings })
}

/// One instance per output folder and per inline interface.
fn locks(plan: &RunPlan, rights: &Rights) -> Result<Vec<lock::Lock>, Failure> {
    let mut locks = Vec::new();
    locks.extend(plan.pid_file.as_deref().map(lock::pid_file).transpose()?);
    for link in plan.links.iter().filter(|link| link.is_inline()) {
        for name in link.ports.interfaces() {
            locks.extend(lock::interface(name)?);
        }
    }
    if let Some(out) = &plan.out {
        rights.make_folder(out).map_err(|error| {
            let folder = out.display();
            Failure::stopped(format!(
                "cannot create the output folder {folder}: {error}; choose another with --out"
            ))
        })?;
        locks.push(lock::folder(out)?);
    }
    Ok(locks)
}

/// Reports settings without an effect: those that nothing has read by now. For settings of the host file this
/// is an error.
fn check_unread(plan: &RunPlan, builder: &Builder) -> Result<(), Failure> {
    let settings = builder.settings();
    // The plan and the confinement have read some in a copy.
    settings.mark_read_as(&plan.settings);
    if let Some(key) = settings.unread().iter().find(|key| plan.options.below.iter().any(|(k, _)| &k == key))
    {
        let near = suricata::nearest_known(key).filter(|near| near != key);
        let hint = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        return Err(Failure::input(format!(
            "the host file sets `{key}`, which is not a known setting{hint}; correct or remove it"
        )));
    }
    unused::report(&plan.options, settings, true)
}

/// Appends lines about written and lost events. Returns the number of events lost anywhere.
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
