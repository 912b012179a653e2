// SPDX-License-Identifier: Apache-2.0
//! The loop of a live worker, and the threads of several: on one link or on many, each worker with a source
//! of its own. Frames of flows that another worker of the link owns are handed over between them
//! ([`crate::handover`]) and leave by the owner's ports.
//!
//! A turn of a worker: swap the generation if another one is there, answer questions, take the frames that
//! its source has ([`Source::take`]), then the frames that other workers handed over. A turn takes what is
//! there and never waits for more; an idle worker sleeps, and is woken for a swap. When one worker ends (a
//! port is gone, a defect), all end: each takes what was handed over to it, until nothing is on its way.
//! Workers with a [`Slot`] do not end with their source: they wait for another one.
//!
//! Each frame is counted in one place, and [`Balance`] holds the sums against each other.
//!
//! Flows move to other workers of their link when somebody asks for it ([`Control::move_flow`]).
//!
//! Not done: moves of flows from a worker that has much to do to one that has little.

mod answering;
mod balance;
mod control;
mod last_turns;

use crate::handover::{Station, connect};
use crate::source::{Arrivals, HandedOver, Slot, Source, Taken};
use crate::worker::Worker;
use crate::workers::share_of;
use bartizan_applayer::flow::Engine;
use bartizan_base::{Decision, LinkId, PacketDuration, Timestamp, WorkerId};
use bartizan_flow::TableError;
use bartizan_ports::{Awake, PortError, PortStats, Woke, packet_clock, stay_on_processor, wait_any};
use bartizan_stages::chain::Chains;
use bartizan_stages::moving::Chance;
use bartizan_stages::record::Recorder;
use bartizan_stages::settings::EngineSettings;
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

/// Frames that a worker can have under way to others at one time.
pub const PARCELS: usize = 2048;

/// Sleep of a worker that owes its level something. A turn takes a millisecond or some, so not all of the
/// processor's time goes there.
const OWED: Duration = Duration::from_millis(1);

/// Parameters of a worker's loop.
#[derive(Clone, Copy, Debug)]
pub struct LiveOptions {
    /// Frames of one turn at most.
    pub batch: usize,
    /// How long to look before sleeping, where a core is free.
    pub spin: Duration,
    /// Inline: idle processors are asked to wait awake while packets come ([`bartizan_ports::Awake`]).
    pub awake: bool,
    /// Longest sleep: timeouts of flows are looked at that often on an idle link.
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
    /// The longest sleep of a worker: shorter while its level has more to do than fits into a turn.
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
    /// The worker and its rings to the others of its link.
    pub station: Station,
    /// The source of its packets; none: it is gone, and may come back.
    pub source: Option<Box<dyn Source>>,
    /// The recorder of its events: a box with it, or a reference to it.
    pub recorder: R,
    /// What it counted besides.
    pub counters: LiveCounters,
    /// The processor that its thread stays on, as one of those that the process may use.
    pub processor: Option<usize>,
    /// What its packets come in by.
    pub link: LinkId,
    /// Number of its link's first worker among those of all links.
    pub first: u16,
    /// Where it gets another source when its own is gone. None: the end of its source is the end of all.
    pub slot: Option<Arc<Slot<Box<dyn Source>>>>,
    /// For tests: moves one of its flows at random at each turn.
    pub chance: Option<Chance>,
    /// Frames leave by its ports; else they are only watched.
    forwards: bool,
    retired: Vec<Retired>,
    /// Its flows have ended and are recorded.
    has_ended: bool,
}

impl<R> Driver<R> {
    /// A worker of the only link.
    pub fn new(station: Station, source: Box<dyn Source>, recorder: R) -> Self {
        Driver {
            station,
            forwards: source.forwards(),
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

    /// Whether frames leave by its ports; else they are only watched.
    pub const fn forwards(&self) -> bool {
        self.forwards
    }

    /// Its number among the workers of all links.
    fn number(&self) -> WorkerId {
        WorkerId(self.first.saturating_add(self.station.id().0))
    }

    /// Each of its ports: name, the counters of the port and of those before it, frames that wait in its
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

/// Counters of ports that are gone.
#[derive(Clone, Debug, Default)]
struct Retired {
    name: String,
    stats: PortStats,
    /// Frames that waited in its transmit ring, and did not leave.
    waiting: u64,
}

/// Adds the counters of a source's ports to those of the ports before them.
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

/// Why workers ended that nobody stopped.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// A port failed for good.
    #[error(transparent)]
    Port(#[from] PortError),
    /// There is no thread.
    #[error("cannot start worker {worker}: {source}; ask for fewer with --workers")]
    Thread {
        /// Worker.
        worker: u16,
        /// What the system said.
        source: std::io::Error,
    },
    /// A worker ended by a defect.
    #[error(
        "worker {worker} ended by a defect in the program ({lost} frames were on their way between workers and are \
         lost); please report it"
    )]
    Defect {
        /// Worker.
        worker: u16,
        /// Frames that were on their way between workers.
        lost: u64,
    },
}

/// Makes the stations of so many workers. Limits of `settings` are those of all together; `parcels` frames of
/// each can be under way to others.
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

/// [`stations`] of one of several links: connected with each other, not with those of other links. Limits of
/// `settings` are those of the workers of all links.
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

/// Runs all workers until the control says stop or one of them fails; their flows are ended then. `steer`
/// runs in this thread meanwhile; it gets a question to ask, whether the workers have ended, and returns when
/// they have.
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
                    // Its station never opens, so the others must not wait for it.
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
            // A defect says more than the ports that may have failed with it.
            if failure.is_none() || matches!(error, LiveError::Defect { .. }) {
                failure = Some(error);
            }
        }
    });
    if matches!(failure, Some(LiveError::Defect { .. })) {
        drivers.iter_mut().for_each(Driver::end_after_defect);
    }
    let mut under_way = 0;
    // The first worker of each link speaks for all of that link.
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

/// Who steers ended by a defect: nobody else would end the workers.
struct StopOnPanic<'c>(&'c Control);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

/// The end of one worker is the end of all, however it comes.
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
    /// Runs the worker in this thread until the control says stop, and ends its flows.
    ///
    /// # Errors
    /// A port fails for good, and there is no [`Slot`] to get another source from.
    pub fn run(&mut self, options: &LiveOptions, control: &Control) -> Result<(), PortError> {
        if let Some(processor) = self.processor {
            // Where the kernel refuses, it goes without.
            let _ = stay_on_processor(processor);
        }
        let me = self.number();
        if let Some(source) = &mut self.source {
            source.begin(self.station.worker(), options.batch);
        }
        // Who only watches delays nobody.
        let mut awake = if self.forwards { options.awake() } else { Awake::default() };
        let mut result = Ok(());
        let mut last = LastTurns::default();
        while last.goes_on(control, || self.visible_until()) && result.is_ok() {
            control.take(me, self.station.worker_mut());
            self.recorder.turn();
            // What is refused is counted.
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
            last.saw(turn.as_ref().copied().unwrap_or_default());
            result = match turn {
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
                result = self.let_go(error);
            }
            self.report_unsent(true);
        }
        control.stop();
        self.station.close();
        while !self.station.is_over() && !control.is_broken() {
            match self.parcels(options, control) {
                Ok(0) => std::thread::sleep(Duration::from_micros(50)),
                Ok(_) => {}
                Err(error) => result = result.and(self.let_go(error)),
            }
        }
        self.report_unsent(false);
        self.recorder.ending();
        self.station.worker_mut().shutdown(&mut *self.recorder);
        self.has_ended = true;
        result
    }

    /// Ends the flows of a worker that a defect ended before it could: their records are written as far as
    /// its state allows.
    fn end_after_defect(&mut self) {
        if !self.has_ended {
            let _ = catch_unwind(AssertUnwindSafe(|| {
                self.recorder.ending();
                self.station.worker_mut().shutdown(&mut *self.recorder);
            }));
        }
    }

    /// Ports failed: their worker goes on without them where it may get others.
    fn let_go(&mut self, error: PortError) -> Result<(), PortError> {
        let Some(slot) = self.slot.clone() else { return Err(error) };
        self.leave_source();
        slot.left(Some(error));
        Ok(())
    }

    /// Lets go of the source if that is asked for, and takes another one if it is offered.
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
            source.begin(self.station.worker(), options.batch);
            self.source = Some(source);
        }
    }

    fn leave_source(&mut self) {
        self.report_unsent(false);
        if let Some(mut source) = self.source.take() {
            retire(&mut *source, &mut self.retired);
        }
    }

    /// Records frames that ports did not take: those that are due, or all.
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

    /// The clock that stamps frames, and how late the source shows them.
    fn visible_until(&mut self) -> (Timestamp, PacketDuration) {
        match &mut self.source {
            Some(source) => source.visible_until(),
            None => (packet_clock(), PacketDuration::ZERO),
        }
    }

    /// Shows the counters to whoever asked for them.
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

    /// Takes what is there: from the source, then from other workers.
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

    /// Handles what others handed over, and sends what may leave. Returns the number of frames.
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

    /// Nothing was there: time passes, then sleeps until something is. Returns why a sleep ended.
    fn rest(&mut self, options: &LiveOptions, control: &Control) -> Result<Option<Woke>, PortError> {
        let (me, now) = (self.number(), self.now());
        let Driver { station, source, recorder, .. } = self;
        let more = station.worker_mut().idle(now, &mut **recorder);
        let has_parcels = || station.has_parcels();
        let is_ready = match source {
            Some(source) => source.look(&has_parcels, options.spin),
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
        // After a short sleep nobody knows yet whether it is silent.
        Ok(woke.filter(|_| tick == options.tick))
    }
}

/// Counts a frame that another worker handed over and whose link is gone: if it was to leave, it and the
/// fragments that were held for it are lost.
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
