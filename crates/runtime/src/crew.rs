// SPDX-License-Identifier: Apache-2.0
//! The workers of a live run. Each link has workers of its own, connected with each other and with no others.

use crate::error::Failure;
use bartizan_applayer::flow::Engine;
use bartizan_base::{LinkId, Timestamp};
use bartizan_dataplane::board::Board;
use bartizan_dataplane::driver::{
    Balance, Control, Driver, LiveCounters, LiveError, LiveOptions, PARCELS, WorkerNumbers, run_drivers,
    stations_of,
};
use bartizan_dataplane::driver::{add_stats, stats_of};
use bartizan_dataplane::eve::EveRecorder;
use bartizan_dataplane::event_ring::{
    EventReceiver, EventSender, RING_BYTES, RingCounters, RingFullPolicy, event_ring, write_all,
};
use bartizan_dataplane::handover::HandOverCounters;
use bartizan_dataplane::source::{Slot, Source};
use bartizan_dataplane::worker::{Worker, WorkerCounters};
use bartizan_offload::manager::LevelTaken;
use bartizan_offload::{Device, FlowManager};
use bartizan_ports::{PortStats, processors};
use bartizan_stages::chain::Chains;
use bartizan_stages::settings::EngineSettings;
use bartizan_stages::stats::{NamedCounters, Sum, visit_capture};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// Parts of a link's workers, besides their ports.
#[derive(Clone)]
pub struct Stack {
    /// Settings of the workers of all links together, with this link's mode.
    pub settings: EngineSettings,
    /// Application protocols.
    pub engine: Arc<Engine>,
}

/// One link with its workers' sources.
pub struct OfLink {
    /// The link's name.
    pub name: String,
    /// Parts of its workers.
    pub stack: Stack,
    /// The source of each worker.
    pub sources: Vec<Box<dyn Source>>,
    /// Suppliers of other sources, for each worker; empty if the end of a source ends the run, or if the
    /// source itself gets other ports.
    pub slots: Vec<Arc<Slot<Box<dyn Source>>>>,
    /// The devices of each worker, the nearest to the wire first; none if the link has no level below.
    pub devices: Vec<Vec<Box<dyn Device>>>,
}

/// Parts of a run's workers.
pub struct WorkerPoolParts<'p> {
    /// Links by number.
    pub links: Vec<OfLink>,
    /// The first generation.
    pub chains: Arc<Chains>,
    /// Options of the live loops.
    pub live: LiveOptions,
    /// Processors of workers, in their order; empty: one for each worker if one more is left.
    pub processors: &'p [usize],
    /// Control of the workers.
    pub control: &'p Control,
    /// Board of the workers' counters.
    pub board: Board,
}

/// Result of a run that has ended.
pub struct WorkerPoolReport {
    /// Failure that ended the run without a request to stop.
    pub failure: Option<Failure>,
    /// Results by number of the link.
    pub links: Vec<LinkEnded>,
    /// Counters of all parts together, by name.
    pub stats: NamedCounters,
    /// Counters of each worker.
    pub threads: Vec<NamedCounters>,
    /// The packet clock.
    pub clock: Timestamp,
}

/// Result of a link.
#[derive(Default)]
pub struct LinkEnded {
    /// The link's name.
    pub name: String,
    /// Counters of all workers together.
    counters: WorkerCounters,
    /// Counters of the live loops.
    live: LiveCounters,
    /// Counters of the hand-over between workers.
    hand_over: HandOverCounters,
    /// Counters of all parts together, by name.
    pub stats: NamedCounters,
    /// Ports by name, each summed over the workers.
    ports: BTreeMap<String, PortStats>,
    /// Balance of all frames.
    balance: Balance,
    /// Frames leave by the ports; otherwise they are only watched.
    forwards: bool,
    /// The link has workers of its own.
    is_served: bool,
}

/// Default time to poll for packets before sleeping: zero where workers need all processors.
pub fn spin(workers: u16) -> Duration {
    let free = workers == 1 || processors() > usize::from(workers);
    if free { LiveOptions::default().spin } else { Duration::ZERO }
}

/// Runs the workers. The only worker of a run writes its events itself, with `recorder`. Several write into
/// rings, each by a recorder that `for_worker` makes from the number of its link, and a further thread writes
/// the events of the rings. `steer` runs beside them; its argument reports whether they have ended.
///
/// # Errors
/// A flow table cannot be reserved, or a recorder cannot be made.
pub fn run(
    parts: WorkerPoolParts<'_>,
    recorder: &mut EveRecorder,
    for_worker: impl Fn(usize, EventSender) -> Result<EveRecorder, Failure>,
    steer: impl FnOnce(&dyn Fn() -> bool),
) -> Result<WorkerPoolReport, Failure> {
    let WorkerPoolParts { links, chains, live, processors, control, board } = parts;
    let names: Vec<String> = links.iter().map(|link| link.name.clone()).collect();
    let of_workers = links.iter().enumerate().flat_map(|(number, link)| vec![number; link.sources.len()]);
    let (mut rings, mut own): (Vec<EventReceiver>, Vec<EveRecorder>) = (Vec::new(), Vec::new());
    match of_workers.collect::<Vec<_>>().as_slice() {
        [_] => {
            let mut drivers = drivers_of(links, chains, &board, vec![recorder], processors)?;
            let result = run_drivers(&mut drivers, &live, control, steer);
            return Ok(WorkerPoolReport::of(names, result, &mut drivers, None));
        }
        several => {
            for link in several {
                let (sender, receiver) = event_ring(RING_BYTES, RingFullPolicy::Lose);
                rings.push(receiver);
                own.push(for_worker(*link, sender)?);
            }
        }
    }
    let mut drivers = drivers_of(links, chains, &board, own.iter_mut().collect(), processors)?;
    let (result, events) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_all(rings, recorder));
        let result = run_drivers(&mut drivers, &live, control, steer);
        let mut events = RingCounters::default();
        for driver in &mut drivers {
            events = events.plus(driver.recorder.close_ring());
        }
        // A failure of the writer is one of the outputs, whose problems are reported later.
        let _ = writer.join();
        (result, events)
    });
    let ended = WorkerPoolReport::of(names, result, &mut drivers, Some(events));
    own.iter().for_each(|own| recorder.absorb(own));
    Ok(ended)
}

/// The workers of all links, in order, each with its recorder. The control has the generations from here on.
fn drivers_of<'r>(
    links: Vec<OfLink>,
    chains: Arc<Chains>,
    board: &Board,
    recorders: Vec<&'r mut EveRecorder>,
    processors: &[usize],
) -> Result<Vec<Driver<&'r mut EveRecorder>>, Failure> {
    let all = u16::try_from(recorders.len()).unwrap_or(u16::MAX);
    // One processor is left for everything else: the kernel's work, the writer, the supervisor.
    let pinned = all > 1 && bartizan_ports::processors() > usize::from(all);
    let mut recorders = recorders.into_iter();
    let mut drivers: Vec<Driver<&mut EveRecorder>> = Vec::new();
    for (number, link) in (0u16..).zip(links) {
        let OfLink { stack: Stack { settings, engine }, sources, slots, devices, .. } = link;
        let first = u16::try_from(drivers.len()).unwrap_or(u16::MAX);
        if sources.is_empty() {
            // A guest, which another guest's worker serves.
            continue;
        }
        let numbers = WorkerNumbers { first, count: u16::try_from(sources.len()).unwrap_or(u16::MAX), all };
        let stations =
            stations_of(&settings, &engine, &chains, numbers, PARCELS).map_err(Failure::stopped)?;
        let (mut slots, mut devices) = (slots.into_iter(), devices.into_iter());
        for ((mut station, source), recorder) in stations.into_iter().zip(sources).zip(&mut recorders) {
            let index = drivers.len();
            if let Some(presenter) = u16::try_from(index).ok().and_then(|at| board.presenter(at)) {
                station.worker_mut().set_presenter(presenter);
            }
            attach_levels(station.worker_mut(), devices.next().unwrap_or_default())
                .map_err(Failure::stopped)?;
            let mut driver = Driver::new(station, source, recorder);
            (driver.link, driver.first) = (LinkId(number), first);
            driver.slot = slots.next();
            driver.processor = match processors {
                [] => pinned.then_some(index + 1),
                chosen => chosen.get(index % chosen.len()).copied(),
            };
            drivers.push(driver);
        }
    }
    Ok(drivers)
}

/// Gives a worker its levels below, the nearest to the wire first.
fn attach_levels(worker: &mut Worker, devices: Vec<Box<dyn Device>>) -> Result<(), LevelTaken> {
    let mut devices = devices.into_iter();
    let Some(nearest) = devices.next() else { return Ok(()) };
    let mut manager = FlowManager::new(nearest, worker.generation());
    for device in devices {
        manager = manager.spilling_to(device)?;
    }
    worker.set_level(manager);
    Ok(())
}

impl WorkerPoolReport {
    /// The result of a run from its workers. `rings`: counters of the rings between several workers and the
    /// writer of events.
    fn of(
        names: Vec<String>,
        result: Result<(), LiveError>,
        drivers: &mut [Driver<&mut EveRecorder>],
        rings: Option<RingCounters>,
    ) -> Self {
        let mut ended = WorkerPoolReport {
            failure: result.err().map(Failure::stopped),
            links: Vec::new(),
            stats: NamedCounters::new(),
            threads: Vec::new(),
            clock: Timestamp::ZERO,
        };
        let mut sum = Sum::default();
        for (number, name) in (0..).zip(names) {
            let mut link = LinkEnded { name, ..LinkEnded::default() };
            let mut own = Sum::default();
            for driver in drivers.iter_mut().filter(|driver| driver.link == LinkId(number)) {
                ended.clock = ended.clock.max(driver.station.worker().clock());
                ended.threads.push(stats_of(driver.station.worker()));
                link.add_driver(driver, &mut own);
            }
            if rings.is_some() {
                link.hand_over.for_each(|name, value| own.add(name, value));
            }
            link.finish(&mut own);
            link.stats = own.finish();
            sum.next_worker();
            link.stats.iter().for_each(|(name, value)| sum.add(name, *value));
            ended.links.push(link);
        }
        rings.into_iter().for_each(|rings| rings.for_each(|name, value| sum.add(name, value)));
        ended.stats = sum.finish();
        ended
    }

    /// Counters of each worker, which are returned once, and of each link.
    pub fn take_counters(&mut self) -> (Vec<NamedCounters>, Vec<NamedCounters>) {
        let of_links = self.links.iter().map(|link| link.stats.clone()).collect();
        (std::mem::take(&mut self.threads), of_links)
    }

    /// Counters of ports at the host, by name. A port that several links send by has the sum.
    pub fn ports(&self) -> BTreeMap<String, PortStats> {
        let mut ports: BTreeMap<String, PortStats> = BTreeMap::new();
        for (name, stats) in self.links.iter().flat_map(|link| &link.ports) {
            let sum = ports.entry(name.clone()).or_default();
            *sum = sum.plus(stats);
        }
        ports
    }

    /// Appends a readable summary of the frames.
    pub fn print(&self, text: &mut String) {
        for link in self.links.iter().filter(|link| link.is_served) {
            if self.links.len() > 1 {
                let _ = write!(text, "link {}: ", link.name);
            }
            link.print(self.failure.is_none(), text);
        }
    }
}

impl LinkEnded {
    fn add_driver(&mut self, driver: &mut Driver<&mut EveRecorder>, sum: &mut Sum) {
        self.forwards = driver.forwards();
        self.is_served = true;
        self.live = self.live.plus(&driver.counters);
        self.hand_over = self.hand_over.plus(driver.station.counters());
        self.counters = self.counters.plus(driver.station.worker().counters());
        self.balance.add(driver.station.worker().counters(), &driver.counters);
        add_stats(sum, driver.station.worker());
        driver.each_port(|name, stats, waiting| self.add_port(name, stats, waiting, sum));
    }

    /// Adds the counters that workers do not have.
    fn finish(&self, sum: &mut Sum) {
        self.live.normaliser.for_each(|name, value| sum.add(name, value));
        self.live.for_each_loss(|name, value| sum.add(name, value));
    }

    fn add_port(&mut self, name: &str, stats: &PortStats, waiting: u64, counters: &mut Sum) {
        self.balance.add_port(stats, waiting);
        visit_capture(stats, |name, value| counters.add(name, value));
        let sum = self.ports.entry(name.to_owned()).or_default();
        *sum = sum.plus(stats);
    }

    fn print(&self, whole: bool, text: &mut String) {
        let c = &self.counters;
        let refused = c.refused.iter().sum::<u64>() - c.let_go;
        let went_on = c.forwarded + c.let_go;
        // Where no frame is forwarded, none can be refused.
        let (on, off) = if self.forwards { ("forwarded", "refused") } else { ("inspected", "lost") };
        let _ = writeln!(text, "{} frames, {went_on} {on}, {refused} {off}, {} alerts", c.packets, c.alerts);
        let lost = bartizan_base::Reason::HandOverRing;
        for (reason, count) in bartizan_base::Reason::ALL.iter().zip(c.refused) {
            // In detection only frames that no worker could take are not forwarded.
            let would = !self.forwards || c.let_go > 0;
            let word = if *reason == lost || !would { off } else { "would be refused" };
            if count > 0 {
                let _ = writeln!(text, "    {count} {word}: {}", reason.name());
            }
        }
        let mut tell = |name: &str, value: u64| {
            if value > 0 {
                let _ = writeln!(text, "    {value} {name}");
            }
        };
        self.live.normaliser.for_each(&mut tell);
        self.live.for_each_loss(&mut tell);
        tell("forwarded by the level in this process", self.live.level_forwarded);
        tell("dropped by the level in this process", self.live.level_dropped);
        self.hand_over.for_each(&mut tell);
        for (name, stats) in &self.ports {
            let _ = write!(
                text,
                "{name}: {} received, {} dropped in the ring",
                stats.received, stats.ring_dropped
            );
            if self.forwards {
                let _ = write!(text, ", {} sent", stats.sent);
            }
            let cut = ("cut", stats.cut());
            for (what, frames) in stats.merged().into_iter().chain([cut]) {
                let _ = match frames {
                    0 => Ok(()),
                    some => write!(text, ", {some} {what}"),
                };
            }
            let _ = writeln!(text);
            for (refusal, frames) in stats.send_failures.iter().filter(|(_, frames)| *frames > 0) {
                let _ = writeln!(text, "    {frames} not sent: {}", refusal.name());
            }
        }
        let exact = if self.forwards { self.balance.is_exact() } else { self.balance.is_taken() };
        if whole && !exact {
            let _ = writeln!(text, "the sums do not agree; please report this defect: {:?}", self.balance);
        }
    }
}
