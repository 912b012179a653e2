// SPDX-License-Identifier: Apache-2.0
//! The loop of every worker, and the threads of live ones: on one link or on several, each worker with a
//! source of its own; captures are sources too ([`crate::captures`]). Frames of flows that another worker of
//! the link owns are handed over ([`crate::handover`]) and leave by the owner's ports.
//!
//! A turn of a worker: swap the generation if a new one is pending, answer queries, take the frames that the
//! source has ([`Source::take`]), then the frames that other workers handed over. A turn takes what is
//! available and never waits for more; an idle worker sleeps and is woken for a swap. When one worker ends (a
//! port failed, a defect), all end: each drains its rings until no frame is in transit. Workers with a
//! [`Slot`] do not end with their source: they wait for another one.
//!
//! Each frame is counted in one place, and [`Balance`] holds the sums against each other.
//!
//! Flows move to other workers of their link on request ([`Control::move_flow`]).
//!
//! Not done: moving flows from busy workers to idle ones.

mod answering;
mod balance;
mod control;
mod last_turns;

use crate::handover::{Station, connect};
use crate::source::{Arrivals, HandedOver, Slot, Source, Taken};
use crate::worker::Worker;
use bartizan_applayer::flow::Engine;
use bartizan_base::{Decision, LinkId, PacketDuration, Timestamp, WorkerId};
use bartizan_flow::TableError;
use bartizan_ports::{Awake, PortError, PortStats, Woke, packet_clock, stay_on_processor, wait_any};
use bartizan_stages::chain::Chains;
use bartizan_stages::moving::Chance;
use bartizan_stages::record::Recorder;
use bartizan_stages::settings::EngineSettings;
use bartizan_stages::stats::{NamedCounters, Sum};
use last_turns::LastTurns;
use std::ops::DerefMut;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

pub use crate::counters::LiveCounters;
pub use crate::inquiry;
pub use crate::views::live::{Counted, LevelsNow, LiveFlow, RefusedBy, StaysBy};
pub use balance::Balance;
pub use control::{Control, MOVES_ASKED};

/// Frames that one worker can have in transit to others at a time.
pub const PARCELS: usize = 2048;

/// Sleep of a worker whose level has work left. A turn of such work takes about a millisecond, so at most
/// part of the processor's time goes there.
const OWED: Duration = Duration::from_millis(1);

/// Parameters of a worker's loop.
#[derive(Clone, Copy, Debug)]
pub struct LiveOptions {
    /// Most frames of one turn.
    pub batch: usize,
    /// Time to poll before sleeping, where a core is free.
    pub spin: Duration,
    /// Inline: keeps idle processors out of deep sleep while packets arrive ([`bartizan_ports::Awake`]).
    pub awake: bool,
    /// Longest sleep, hence the interval in which timeouts of flows are checked on an idle link.
    pub tick: Duration,
}

impl Default for LiveOptions {
    fn default() -> Self {
        LiveOptions {
            batch: 256,
            spin: Duration::from_micros(50),
            awake: false,
            tick: Duration::from_millis(100),
        }
    }
}

impl LiveOptions {
    /// The longest sleep of a worker; shorter while its level has more work than fits into a turn.
    #[must_use]
    pub fn sleep_of(&self, worker: &Worker) -> Duration {
        if worker.level_owes() { self.tick.min(OWED) } else { self.tick }
    }

    /// The request that keeps processors awake; an empty one where the kernel does not offer it.
    fn awake(&self) -> Awake {
        if self.awake { Awake::open().unwrap_or_default() } else { Awake::default() }
    }
}

/// One worker with its source, recorder and counters.
pub struct Driver<R> {
    /// The worker and its rings to the other workers of its link.
    pub station: Station,
    /// The source of packets; `None` while it does not exist.
    pub source: Option<Box<dyn Source>>,
    /// The recorder of events: owned in a box, or borrowed.
    pub recorder: R,
    /// Counters of the loop.
    pub counters: LiveCounters,
    /// The processor that the thread is pinned to, as an index into those that the process may use.
    pub processor: Option<usize>,
    /// The link that packets enter by.
    pub link: LinkId,
    /// Number of the link's first worker among the workers of all links.
    pub first: u16,
    /// Supplies another source when the present one is gone. `None`: the end of the source ends all workers.
    pub slot: Option<Arc<Slot<Box<dyn Source>>>>,
    /// For tests: moves a random flow of the worker at each turn.
    pub chance: Option<Chance>,
    /// Frames leave by the worker's ports; otherwise they are only watched.
    forwards: bool,
    /// The source replays recorded packets ([`Source::replays`]).
    replays: bool,
    retired: Vec<Retired>,
    /// The worker's flows have ended and are recorded.
    has_ended: bool,
}

impl<R> Driver<R> {
    /// A worker of the only link.
    pub fn new(station: Station, source: Box<dyn Source>, recorder: R) -> Self {
        Driver {
            station,
            forwards: source.forwards(),
            replays: source.replays(),
            source: Some(source),
            recorder,
            counters: LiveCounters::default(),
            processor: None,
            link: LinkId(0),
            first: 0,
            slot: None,
            chance: None,
            retired: Vec::new(),
            has_ended: false,
        }
    }

    /// Whether frames leave by the worker's ports; otherwise they are only watched.
    pub const fn forwards(&self) -> bool {
        self.forwards
    }

    /// The worker's number among the workers of all links.
    fn number(&self) -> WorkerId {
        WorkerId(self.first.saturating_add(self.station.id().0))
    }

    /// Visits each port: name, counters including those of earlier ports with the name, frames waiting in its
    /// transmit ring.
    pub fn each_port(&mut self, mut each: impl FnMut(&str, &PortStats, u64)) {
        let Driver { source, retired, .. } = self;
        let Some(source) = source else {
            retired.iter().for_each(|port| each(&port.name, &port.stats, port.waiting));
            return;
        };
        let mut before = retired.iter();
        source.each_port(&mut |name, stats, waiting| match before.next() {
            Some(known) => each(name, &known.stats.plus(stats), known.waiting + waiting),
            None => each(name, stats, waiting),
        });
    }
}

/// Counters of closed ports.
#[derive(Clone, Debug, Default)]
struct Retired {
    name: String,
    stats: PortStats,
    /// Frames left in the transmit ring, which were not sent.
    waiting: u64,
}

/// Adds the counters of a source's ports to those of earlier ports with the same names.
fn retire(source: &mut dyn Source, retired: &mut Vec<Retired>) {
    let mut at = 0;
    source.each_port(&mut |name, stats, waiting| {
        if retired.len() <= at {
            retired.push(Retired { name: name.to_owned(), ..Retired::default() });
        }
        if let Some(known) = retired.get_mut(at) {
            known.stats = known.stats.plus(stats);
            known.waiting += waiting;
        }
        at += 1;
    });
}

/// The numbers of a link's workers among those of all links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerNumbers {
    /// Number of the link's first worker.
    pub first: u16,
    /// Workers of the link.
    pub count: u16,
    /// Workers of all links.
    pub all: u16,
}

/// Errors that end a run whose stop was not requested.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// A port failed for good.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The system cannot start a thread.
    #[error("cannot start worker {worker}: {source}; use fewer workers with --workers")]
    Thread {
        /// Worker.
        worker: u16,
        /// The system's error.
        source: std::io::Error,
    },
    /// A worker ended by a defect.
    #[error(
        "worker {worker} failed because of a defect in the program, and {lost} frames between workers were \
         lost; please report it"
    )]
    Defect {
        /// Worker.
        worker: u16,
        /// Frames that were on their way between workers.
        lost: u64,
    },
}

/// Limits of one of `count` workers.
pub(crate) fn share_of(settings: &EngineSettings, count: u16) -> EngineSettings {
    let mut share = settings.clone();
    let parts = u64::from(count.max(1));
    share.flow_capacity = settings.flow_capacity.div_ceil(u32::from(count.max(1)));
    share.stream.memcap = settings.stream.memcap.div_ceil(parts);
    share.stream.reassembly.memcap = settings.stream.reassembly.memcap.div_ceil(parts);
    share.app_memory = settings.app_memory.share(count);
    share
}

/// Adds a worker's counters.
pub fn add_stats(sum: &mut Sum, worker: &Worker) {
    sum.next_worker();
    worker.visit_stats(|name, value| sum.add(name, value));
}

/// A worker's counters.
#[must_use]
pub fn stats_of(worker: &Worker) -> NamedCounters {
    let mut stats = NamedCounters::new();
    worker.visit_stats(|name, value| stats.push((name, value)));
    stats
}

/// Makes `count` stations. Limits of `settings` are those of all workers together; each station can have
/// `parcels` frames in transit to others.
///
/// # Errors
/// A flow table cannot be reserved.
pub fn stations(
    settings: &EngineSettings,
    engine: &Arc<Engine>,
    chains: &Arc<Chains>,
    count: u16,
    parcels: usize,
) -> Result<Vec<Station>, TableError> {
    let count = count.max(1);
    stations_of(settings, engine, chains, WorkerNumbers { first: 0, count, all: count }, parcels)
}

/// [`stations`] for one of several links: connected with each other, not with those of other links. Limits of
/// `settings` are those of the workers of all links together.
///
/// # Errors
/// A flow table cannot be reserved.
pub fn stations_of(
    settings: &EngineSettings,
    engine: &Arc<Engine>,
    chains: &Arc<Chains>,
    numbers: WorkerNumbers,
    parcels: usize,
) -> Result<Vec<Station>, TableError> {
    let all = numbers.all.max(1);
    let mut share = share_of(settings, all);
    share.defrag.memory = settings.defrag.memory.div_ceil(all.into());
    share.defrag.max_trackers = settings.defrag.max_trackers.div_ceil(all.into());
    share.defrag.max_fragments = settings.defrag.max_fragments.div_ceil(all.into());
    let workers = (0..numbers.count.max(1))
        .map(|index| {
            let mut worker = Worker::new(share.clone(), Arc::clone(engine), Arc::clone(chains))?;
            worker.number_flows(WorkerId(numbers.first.saturating_add(index)));
            Ok(worker)
        })
        .collect::<Result<Vec<_>, TableError>>()?;
    Ok(connect(workers, settings, parcels))
}

/// Runs all workers until the control stops them or one fails; then ends their flows. `steer` runs in the
/// calling thread meanwhile: it receives a closure that reports whether the workers have ended, and returns
/// when they have.
///
/// # Errors
/// The first failure of a worker, by its number.
pub fn run_drivers<R: DerefMut<Target: Recorder + Sized> + Send>(
    drivers: &mut [Driver<R>],
    options: &LiveOptions,
    control: &Control,
    steer: impl FnOnce(&dyn Fn() -> bool),
) -> Result<(), LiveError> {
    let mut failure = None;
    std::thread::scope(|scope| {
        let mut threads = Vec::with_capacity(drivers.len());
        for driver in drivers.iter_mut() {
            let worker = driver.number().0;
            let builder = std::thread::Builder::new().name(format!("worker-{worker}"));
            let body = move || {
                let _all = Ender(control);
                driver.run(options, control)
            };
            match builder.spawn_scoped(scope, body) {
                Ok(thread) => threads.push((worker, thread)),
                Err(source) => {
                    failure = Some(LiveError::Thread { worker, source });
                    // The worker's station never opens, so the others must not wait for it.
                    control.set_broken();
                    control.stop();
                    break;
                }
            }
        }
        let fallen = StopOnPanic(control);
        steer(&|| threads.iter().all(|(_, thread)| thread.is_finished()));
        drop(fallen);
        for (worker, thread) in threads {
            let error = match thread.join() {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => LiveError::Port(error),
                Err(_) => LiveError::Defect { worker, lost: 0 },
            };
            // A defect explains more than the port failures that may follow from it.
            if failure.is_none() || matches!(error, LiveError::Defect { .. }) {
                failure = Some(error);
            }
        }
    });
    if matches!(failure, Some(LiveError::Defect { .. })) {
        drivers.iter_mut().for_each(Driver::end_after_defect);
    }
    let mut under_way = 0;
    // The ledger is shared by a link's workers, so the first worker of each link counts for the link.
    for driver in drivers.iter_mut().filter(|driver| driver.station.id() == WorkerId(0)) {
        driver.counters.under_way = driver.station.under_way();
        under_way += driver.counters.under_way;
    }
    match failure {
        None => Ok(()),
        Some(LiveError::Defect { worker, .. }) => Err(LiveError::Defect { worker, lost: under_way }),
        Some(error) => Err(error),
    }
}

/// Stops the workers when the supervisor ends by a defect, since no other thread would.
struct StopOnPanic<'c>(&'c Control);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

/// Stops all workers when one worker ends, for whatever reason.
struct Ender<'c>(&'c Control);

impl Drop for Ender<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set_broken();
        }
        self.0.stop();
    }
}

impl<R: DerefMut<Target: Recorder + Sized>> Driver<R> {
    /// Runs the worker in this thread until the control stops it, then ends its flows.
    ///
    /// # Errors
    /// A port fails for good, and there is no [`Slot`] to get another source from.
    pub fn run(&mut self, options: &LiveOptions, control: &Control) -> Result<(), PortError> {
        if let Some(processor) = self.processor {
            // Where the kernel refuses, the thread is not pinned.
            let _ = stay_on_processor(processor);
        }
        let me = self.number();
        if let Some(source) = &mut self.source {
            source.begin(self.station.worker_mut(), options.batch);
        }
        // A watching worker delays no traffic, so it lets the processor sleep.
        let mut awake = if self.forwards { options.awake() } else { Awake::default() };
        let mut result = Ok(());
        let mut last = LastTurns::default();
        let mut has_ended = false;
        while !has_ended && last.has_next(control, || self.visible_until()) && result.is_ok() {
            control.take(me, self.station.worker_mut());
            self.recorder.turn();
            // Refusals are counted by the station.
            control.take_moves(me, |key, to| {
                let _ = self.station.move_flow(key, to);
            });
            if let Some(random) = self.chance.as_mut().map(Chance::draw) {
                // As above.
                let _ = self.station.move_at_random(random);
            }
            if self.station.worker().is_asked() {
                self.show();
            }
            self.change_source(options);
            if self.station.worker().has_level() {
                let now = self.now();
                self.station.worker_mut().drive_level(now, &mut *self.recorder);
            }
            let turn = self.turn(options, control);
            let taken = turn.as_ref().copied().unwrap_or_default();
            last.note_taken(taken);
            has_ended = taken.has_ended;
            result = match turn {
                _ if has_ended => Ok(()),
                Ok(Taken { frames: 0, .. }) if control.stopping() => Ok(()),
                Ok(Taken { frames: 0, .. }) => self.rest(options, control).map(|woke| {
                    if woke == Some(Woke::Timeout) {
                        awake.silence();
                    }
                }),
                Ok(_) => {
                    awake.packets();
                    Ok(())
                }
                Err(error) => Err(error),
            };
            if let Err(error) = std::mem::replace(&mut result, Ok(())) {
                result = self.handle_port_failure(error);
            }
            self.report_unsent(true);
        }
        // Each worker over captures has all frames, and ends when it has handled them.
        if !self.replays {
            control.stop();
        }
        self.station.close();
        while !self.station.is_over() && !control.is_broken() {
            match self.parcels(options, control) {
                Ok(0) => std::thread::sleep(Duration::from_micros(50)),
                Ok(_) => {}
                Err(error) => result = result.and(self.handle_port_failure(error)),
            }
        }
        self.report_unsent(false);
        if !self.replays {
            self.recorder.ending();
        }
        self.station.worker_mut().shutdown(&mut *self.recorder);
        self.has_ended = true;
        if let Some(source) = &mut self.source {
            source.end(self.station.worker_mut());
        }
        result
    }

    /// Ends the flows of a worker that ended by a defect: their records are written as far as the worker's
    /// state allows.
    fn end_after_defect(&mut self) {
        if !self.has_ended {
            let _ = catch_unwind(AssertUnwindSafe(|| {
                self.recorder.ending();
                self.station.worker_mut().shutdown(&mut *self.recorder);
            }));
        }
    }

    /// Handles the failure of ports: the worker continues without a source where it has a [`Slot`].
    fn handle_port_failure(&mut self, error: PortError) -> Result<(), PortError> {
        let Some(slot) = self.slot.clone() else { return Err(error) };
        self.leave_source();
        slot.left(Some(error));
        Ok(())
    }

    /// Releases the source when the supervisor requests it, and takes a new one when it is offered.
    fn change_source(&mut self, options: &LiveOptions) {
        if let Some(source) = &mut self.source {
            source.change_ports();
        }
        let Some(slot) = &self.slot else { return };
        if self.source.is_some() {
            if slot.is_to_be_left() {
                let slot = Arc::clone(slot);
                self.leave_source();
                slot.left(None);
            }
        } else if let Some(mut source) = slot.take() {
            source.begin(self.station.worker_mut(), options.batch);
            self.source = Some(source);
        }
    }

    fn leave_source(&mut self) {
        self.report_unsent(false);
        if let Some(mut source) = self.source.take() {
            retire(&mut *source, &mut self.retired);
        }
    }

    /// Writes the drop records of frames that ports did not take: those that are due, or all.
    fn report_unsent(&mut self, only_due: bool) {
        let Driver { station, source: Some(source), recorder, .. } = self else { return };
        if source.has_unsent() {
            let now = only_due.then(|| source.now());
            source.report_unsent(now, station.worker().generation(), &mut **recorder);
        }
    }

    /// The clock that stamps frames.
    fn now(&mut self) -> Timestamp {
        self.source.as_mut().map_or_else(packet_clock, |source| source.now())
    }

    /// The clock that stamps frames, and the source's delay in showing them.
    fn visible_until(&mut self) -> (Timestamp, PacketDuration) {
        match &mut self.source {
            Some(source) => source.visible_until(),
            None => (packet_clock(), PacketDuration::ZERO),
        }
    }

    /// Copies the counters to the board, for a reader that waits for them.
    fn show(&mut self) {
        let mut ports = Vec::new();
        self.each_port(|name, stats, _| ports.push((name.to_owned(), *stats)));
        let Driver { station, counters, .. } = self;
        station.worker().show(|snapshot| {
            snapshot.live = *counters;
            snapshot.hand_over = station.counters();
            snapshot.ports = ports;
        });
    }

    /// Takes the frames that are available: from the source, then from other workers.
    fn turn(&mut self, options: &LiveOptions, control: &Control) -> Result<Taken, PortError> {
        let Driver { station, source, recorder, counters, link, first, .. } = self;
        station.shed_by(|| source.as_ref().map_or(0, |source| source.backlog()));
        let mut taken = Taken::default();
        if let Some(source) = source {
            let recorder = &mut **recorder;
            let (link, stopping) = (*link, control.stopping());
            taken = source.take(&mut Arrivals { station, recorder, counters, link, stopping })?;
        }
        counters.turns += u64::from(taken.frames > 0);
        control.wake(*first, station.take_touched());
        taken.frames += self.parcels(options, control)?;
        Ok(taken)
    }

    /// Handles frames that other workers handed over, and sends those that may leave. Returns the number of
    /// frames.
    fn parcels(&mut self, options: &LiveOptions, control: &Control) -> Result<usize, PortError> {
        if !self.station.has_parcels() {
            return Ok(0);
        }
        let Driver { station, source, recorder, counters, first, forwards, .. } = self;
        let (recorder, forwards) = (&mut **recorder, *forwards);
        let taken =
            station.handed_over(options.batch, recorder, |worker, frame, decision, tag| match source {
                Some(source) => source.deliver(worker, &HandedOver { frame, decision, tag }, counters),
                None if forwards => lose(worker, decision, counters),
                None => {}
            });
        if let Some(source) = source {
            source.flush()?;
        }
        control.wake(*first, station.take_touched());
        Ok(taken)
    }

    /// An idle turn: advances the clock, then sleeps until there is work. Returns why a sleep ended.
    fn rest(&mut self, options: &LiveOptions, control: &Control) -> Result<Option<Woke>, PortError> {
        let (me, now) = (self.number(), self.now());
        let Driver { station, source, recorder, replays, .. } = self;
        let more = !*replays && station.worker_mut().idle(now, &mut **recorder);
        let has_parcels = || station.has_parcels();
        let is_ready = match source {
            Some(source) => source.busy_poll(&has_parcels, options.spin),
            None => has_parcels(),
        };
        if more || is_ready {
            return Ok(None);
        }
        let waker = control.waker(me);
        let tick = options.sleep_of(station.worker());
        let sleep = || match source {
            Some(source) => source.wait(waker, tick),
            None => wait_any(&mut [], waker, Duration::ZERO, tick),
        };
        let woke = control.sleeping(me, has_parcels, sleep).transpose()?;
        // A short sleep does not show that the link is silent.
        Ok(woke.filter(|_| tick == options.tick))
    }
}

/// Counts a frame that another worker handed over and whose link is gone: if it had to leave, the frame and
/// the fragments held for it are lost.
fn lose(worker: &mut Worker, decision: Decision, counters: &mut LiveCounters) {
    counters.normaliser = counters.normaliser.plus(worker.take_normalised());
    let mut room = Vec::new();
    while worker.take_released(&mut room).is_some() {
        counters.gone += 1;
    }
    if let Some(change) = worker.take_rewrite() {
        worker.reuse_rewrite(change);
    }
    counters.gone += u64::from(decision.verdict.forwards());
}
