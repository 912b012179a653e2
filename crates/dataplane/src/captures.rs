// SPDX-License-Identifier: Apache-2.0
//! Captures for several workers: one reader, and a source of its own for each worker (`RoundSource`), whose
//! loop is that of live workers ([`crate::driver`]).
//!
//! The reader decodes each frame once and reassembles fragments, so the order of the capture holds for all
//! packets of a flow, whether they arrive alone, in a tunnel or as fragments. It distributes its results in
//! `Round`s: a round holds some hundred frames, their bytes (copied once), and the owner of each of their
//! packets. Every worker gets every round by a ring of its own, handles the packets that it owns, and
//! advances its clock with *all* frames. So flows end at the same packet clock as with one worker, and the
//! flow records are the same.
//!
//! A round carries its generation: all workers swap between the same two frames, and a round without frames
//! brings a swap to idle workers. [`Control::running_in`] returns a worker's generation.
//!
//! Results equal those of one worker for everything that depends on one flow, and for state that flows of
//! different workers change together (thresholds, `xbits`, `hostbits`, data sets, quotas of flows, values per
//! host and their expiry, numbers of stored files): a worker that changes it waits until all others have
//! passed the packets before its own ([`bartizan_base::turns`]). They are also equal where one part of a
//! frame depends on another: a packet waits for the decisions on the packets that it carries, and in
//! prevention the next fragment waits for the decision on the datagram before. The reader counts a frame and
//! its decision: the strictest one of its packets.
//!
//! Results may differ where they depend on a share of a limit, since each worker has its part of flow table
//! and stream memory; in the flow that is closed for a tenant's quota, since it is one of the same worker;
//! and after a function has failed: it is missing, until its restart, on the worker where that happened,
//! while the other workers' flows continue with it.
//!
//! Memory ordering: a round is written by the reader alone, while no other thread has it, and published to
//! each worker by a ring (`rtrb`: tail stored with `Release`, loaded with `Acquire`). Workers only read it,
//! except for the decision on a packet, an atomic that the packet's owner stores once, with `Relaxed`: a
//! waiting thread reads the decision and no data that it would guard. The decision reaches the reader with
//! the worker's drop of its `Arc` (`Release`), which `Arc::try_unwrap` acquires when it returns the round.
//! Wake-ups carry no data, they only shorten waits, and each wait has a time limit.
//!
//! Bounded: at most [`PoolOptions::rounds`] rounds exist; when all are in use, the reader waits.
//!
//! Flows can move between workers, at the beginning of a round (`moves`).
//!
//! Not done: several readers (live ports hand over between workers: `handover`).

mod moves;
mod patience;
mod round;
mod source;

use crate::driver::{Control, Driver, LiveOptions, add_stats, share_of, stats_of};
use crate::handover::{Owners, Station};
use crate::worker::{Frame, Worker, WorkerCounters};
use bartizan_applayer::flow::Engine;
use bartizan_base::turns::CaptureTurns;
use bartizan_base::{Timestamp, WorkerId};
use bartizan_flow::{FlowKey, TableError};
use bartizan_stages::chain::Chains;
use bartizan_stages::guests::NotMoved;
use bartizan_stages::lifecycle::FunctionEvent;
use bartizan_stages::record::Recorder;
use bartizan_stages::settings::EngineSettings;
use bartizan_stages::stats::{NamedCounters, Sum};
use moves::FlowLocations;
use round::{Front, Round};
use rtrb::{Producer, RingBuffer};
use source::RoundSource;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest sleep of the reader and of workers between two checks.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Size of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// Most rounds in use.
    pub rounds: usize,
    /// Most frames of a round.
    pub frames: usize,
    /// Bytes after which a round is full, independent of its number of frames.
    pub bytes: usize,
    /// For tests: the seed of random moves of flows between workers, at each round.
    pub moves: Option<u64>,
}

impl Default for PoolOptions {
    fn default() -> Self {
        PoolOptions { rounds: 16, frames: 256, bytes: 256 << 10, moves: None }
    }
}

/// Errors that prevent a pool from starting or continuing.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// A worker's flow table cannot be reserved.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The system cannot start a thread.
    #[error("cannot start worker {worker}: {source}; use fewer threads with --threads")]
    Thread {
        /// Worker.
        worker: u16,
        /// The system's error.
        source: std::io::Error,
    },
    /// The system has no event descriptor left.
    #[error(
        "cannot create event descriptors for the workers: {0}; raise the limit of open files (ulimit -n)"
    )]
    Descriptors(#[from] std::io::Error),
    /// A flow is not moved.
    #[error(transparent)]
    NotMoved(#[from] NotMoved),
    /// A worker ended early.
    #[error(
        "worker {worker} failed because of a defect in the program; please report it with the capture; \
         until it is fixed, use --threads 1"
    )]
    Lost {
        /// Worker.
        worker: u16,
    },
}

/// Swaps the generation of a pool, from any thread. [`Pool::control`] has the generation of each worker.
#[derive(Debug, Default)]
pub struct PoolControl {
    pending: Mutex<Option<PendingChains>>,
    /// Whether `pending` is set, to be checked without a lock.
    has_pending: AtomicBool,
}

struct PendingChains(Arc<Chains>);

impl core::fmt::Debug for PendingChains {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "generation {}", self.0.generation)
    }
}

impl PoolControl {
    /// Requests another generation: it runs from the next round on, in all workers. A later call replaces one
    /// that is still pending.
    pub fn swap(&self, chains: Arc<Chains>) {
        if let Ok(mut pending) = self.pending.lock() {
            *pending = Some(PendingChains(chains));
        }
        // Release, after the lock is released: a thread that sees the flag finds the generation.
        self.has_pending.store(true, Ordering::Release);
    }

    fn take(&self) -> Option<Arc<Chains>> {
        if !self.has_pending.swap(false, Ordering::AcqRel) {
            return None;
        }
        self.pending.lock().ok()?.take().map(|pending| pending.0)
    }
}

/// A worker's thread, from the reader's point of view.
struct PoolThread<R> {
    ring: Producer<Arc<Round>>,
    thread: JoinHandle<Driver<Box<R>>>,
}

/// The reader's side of the pool; see the module.
pub struct Pool<R> {
    front: Front,
    seats: Vec<PoolThread<R>>,
    /// Rounds in use, oldest first.
    under_way: VecDeque<Arc<Round>>,
    /// The round that is being filled.
    round: Round,
    spare: Vec<Round>,
    made: usize,
    options: PoolOptions,
    steering: Arc<PoolControl>,
    control: Arc<Control>,
}

/// Results of a pool that has ended.
pub struct Finished<R> {
    /// Counters of reader and workers together.
    pub counters: WorkerCounters,
    /// Counters of all parts by name, summed, in the order of a single worker's.
    pub stats: NamedCounters,
    /// Counters of the reader and of each worker.
    pub threads: Vec<NamedCounters>,
    /// The packet clock.
    pub clock: Timestamp,
    /// Each worker's recorder.
    pub recorders: Vec<R>,
    /// Number of moves of flows between workers.
    pub moved: u64,
    /// Lifecycle events of functions, worker by worker.
    pub events: Vec<FunctionEvent>,
}

impl<R: Recorder + Send + 'static> Pool<R> {
    /// Starts one worker per recorder. Limits of `settings` are those of all workers together.
    ///
    /// # Errors
    /// A flow table cannot be reserved, or a thread not started.
    pub fn start(
        settings: &EngineSettings,
        engine: &Arc<Engine>,
        chains: &Arc<Chains>,
        recorders: Vec<R>,
        options: PoolOptions,
    ) -> Result<Self, PoolError> {
        let count = u16::try_from(recorders.len()).unwrap_or(u16::MAX).max(1);
        let share = share_of(settings, count);
        let control = Arc::new(Control::for_workers(count)?);
        let live = LiveOptions { spin: Duration::ZERO, tick: POLL_INTERVAL, ..LiveOptions::default() };
        let reader = std::thread::current();
        let mut seats = Vec::with_capacity(usize::from(count));
        let turns = CaptureTurns::new(usize::from(count));
        for (index, recorder) in (0..count).zip(recorders) {
            let mut worker = Worker::new(share.clone(), Arc::clone(engine), Arc::clone(chains))?;
            worker.number_flows(WorkerId(index));
            let (ring, rounds) = RingBuffer::new(options.rounds.max(2));
            let source = RoundSource::new(WorkerId(index), rounds, reader.clone(), Arc::clone(&turns));
            // Nothing is handed over: each worker gets all frames.
            let station = Station::alone(worker);
            let mut driver = Driver::new(station, Box::new(source), Box::new(recorder));
            driver.first = index;
            let control = Arc::clone(&control);
            let body = move || {
                // A source of rounds has no port that could fail.
                let _ = driver.run(&live, &control);
                driver
            };
            let thread = std::thread::Builder::new()
                .name(format!("worker-{index}"))
                .spawn(body)
                .map_err(|source| PoolError::Thread { worker: index, source })?;
            seats.push(PoolThread { ring, thread });
        }
        // The reader tracks no flow.
        let alone = EngineSettings { flow_capacity: 1, ..settings.clone() };
        let front = Worker::new(alone, Arc::clone(engine), Arc::clone(chains))?;
        Ok(Pool {
            front: Front::new(
                front,
                Owners::new(settings.spread(count)),
                FlowLocations::by_chance(options.moves),
            ),
            seats,
            under_way: VecDeque::with_capacity(options.rounds),
            round: Round::new(Arc::clone(chains)),
            spare: Vec::new(),
            made: 1,
            options: PoolOptions { rounds: options.rounds.max(2), ..options },
            steering: Arc::default(),
            control,
        })
    }

    /// The control of the workers, with the generation that each one runs.
    #[must_use]
    pub fn control(&self) -> Arc<Control> {
        Arc::clone(&self.control)
    }

    /// The handle to swap generations.
    #[must_use]
    pub fn steering(&self) -> Arc<PoolControl> {
        Arc::clone(&self.steering)
    }

    /// Sets the capture that the following frames come from.
    ///
    /// # Errors
    /// A worker is gone.
    pub fn enter_capture(&mut self, name: &str) -> Result<(), PoolError> {
        self.flush()?;
        self.round.capture = Some(name.into());
        Ok(())
    }

    /// Adds a frame to the round, for the owners of its packets.
    ///
    /// # Errors
    /// A worker is gone.
    pub fn frame(&mut self, frame: &Frame<'_>) -> Result<(), PoolError> {
        if self.steering.has_pending.load(Ordering::Acquire) {
            self.flush()?;
        }
        let output = self.front.read(frame);
        if self.front.waits_for_decision(&output) {
            self.decide_datagram()?;
        }
        self.front.split(frame, output, &mut self.round);
        if self.round.frames.len() >= self.options.frames || self.round.bytes.len() >= self.options.bytes {
            self.send()?;
        }
        Ok(())
    }

    /// Advances time without frames: flows whose timeout has passed end.
    ///
    /// # Errors
    /// A worker is gone.
    pub fn tick(&mut self, now: Timestamp) -> Result<(), PoolError> {
        self.decide_datagram()?;
        self.front.tick(now, &mut self.round);
        self.flush()
    }

    /// Sends the round that is being filled, and a pending generation, even in an empty round.
    ///
    /// # Errors
    /// A worker is gone.
    pub fn flush(&mut self) -> Result<(), PoolError> {
        if !self.round.frames.is_empty() {
            self.send()?;
        }
        if let Some(chains) = self.steering.take() {
            self.front.worker.enter_generation(Arc::clone(&chains));
            self.round.chains = chains;
            self.send()?;
        }
        Ok(())
    }

    /// Moves a flow to another worker, between the last frame and the next one. A flow that has ended
    /// meanwhile does not move; the next one with its key begins at that worker.
    ///
    /// # Errors
    /// A worker is gone, or the flow cannot be moved.
    pub fn move_flow(&mut self, key: &FlowKey, to: WorkerId) -> Result<(), PoolError> {
        if !self.round.frames.is_empty() {
            self.send()?;
        }
        Ok(self.begin_move(key, to)?)
    }

    /// Adds a move to the round, which is empty, so the move precedes its frames.
    fn begin_move(&mut self, key: &FlowKey, to: WorkerId) -> Result<(), NotMoved> {
        if self.round.moves.iter().any(|crossing| crossing.key == *key) {
            return Err(NotMoved::UnderWay);
        }
        let crossing = self.front.places.move_flow(&self.front.owners, key, to)?;
        self.round.moves.push(crossing);
        Ok(())
    }

    /// Sends the round and begins the next one.
    fn send(&mut self) -> Result<(), PoolError> {
        let mut next = self.empty_round()?;
        next.number = self.round.number + 1;
        self.front.places.begin_round(next.number);
        let round = Arc::new(core::mem::replace(&mut self.round, next));
        for (index, seat) in (0u16..).zip(&mut self.seats) {
            // A ring has as many places as there are rounds, so it has room.
            if seat.ring.is_abandoned() || seat.ring.push(Arc::clone(&round)).is_err() {
                return Err(PoolError::Lost { worker: index });
            }
        }
        self.control.wake(0, u64::MAX);
        self.under_way.push_back(round);
        for (key, to) in self.front.places.draw(self.front.owners.workers()) {
            // A randomly chosen flow may be at that worker already.
            let _ = self.begin_move(&key, to);
        }
        Ok(())
    }

    /// A round to fill: a new one, or the oldest in use once all workers have finished it.
    fn empty_round(&mut self) -> Result<Round, PoolError> {
        self.complete_ready();
        let mut round = match self.spare.pop() {
            Some(round) => round,
            None if self.made < self.options.rounds => {
                self.made += 1;
                Round::new(Arc::clone(&self.round.chains))
            }
            None => self.oldest()?,
        };
        round.clear();
        round.chains = Arc::clone(&self.round.chains);
        round.capture.clone_from(&self.round.capture);
        Ok(round)
    }

    /// Takes back the rounds that all workers have finished.
    fn complete_ready(&mut self) {
        while let Some(oldest) = self.under_way.pop_front() {
            match Arc::try_unwrap(oldest) {
                Ok(mut round) => {
                    self.front.complete_round(&mut round);
                    self.spare.push(round);
                }
                Err(oldest) => {
                    self.under_way.push_front(oldest);
                    break;
                }
            }
        }
    }

    /// Waits until all workers have finished the oldest round.
    fn oldest(&mut self) -> Result<Round, PoolError> {
        loop {
            self.complete_ready();
            if let Some(round) = self.spare.pop() {
                return Ok(round);
            }
            self.park()?;
        }
    }

    /// Waits for the decision on the last completed datagram. Only prevention waits for such datagrams, and
    /// only the next fragment, or the passing of time without frames, depends on it.
    fn decide_datagram(&mut self) -> Result<(), PoolError> {
        if self.front.undecided() == Some(self.round.number) {
            self.send()?;
        }
        loop {
            self.complete_ready();
            if self.front.undecided().is_none() {
                return Ok(());
            }
            self.park()?;
        }
    }

    /// Sleeps until a worker has finished a round, for at most the poll interval.
    fn park(&self) -> Result<(), PoolError> {
        let lost = (0u16..).zip(&self.seats).find(|(_, seat)| seat.ring.is_abandoned());
        if let Some((worker, _)) = lost {
            return Err(PoolError::Lost { worker });
        }
        std::thread::park_timeout(POLL_INTERVAL);
        Ok(())
    }

    /// Ends all workers: pending frames are handled, all flows end and are recorded, counters are summed.
    ///
    /// # Errors
    /// A worker is gone.
    pub fn finish(mut self) -> Result<Finished<R>, PoolError> {
        self.flush()?;
        self.decide_datagram()?;
        let mut ended = Vec::with_capacity(self.seats.len());
        for (index, PoolThread { ring, thread }) in (0u16..).zip(self.seats.drain(..)) {
            // The end of the ring ends the worker.
            drop(ring);
            ended.push((index, thread));
        }
        self.control.wake(0, u64::MAX);
        let mut workers = Vec::with_capacity(ended.len());
        let mut recorders = Vec::with_capacity(ended.len());
        for (index, thread) in ended {
            let Driver { station, recorder, .. } =
                thread.join().map_err(|_| PoolError::Lost { worker: index })?;
            workers.push(station.into_worker());
            recorders.push(*recorder);
        }
        self.complete_ready();
        let front = &self.front.worker;
        let mut counters = *front.counters();
        let mut stats = Sum::default();
        add_stats(&mut stats, front);
        for worker in &workers {
            counters = counters.plus(worker.counters());
            add_stats(&mut stats, worker);
        }
        let clock = workers.iter().map(Worker::clock).fold(front.clock(), Timestamp::max);
        let threads = core::iter::once(front).chain(&workers).map(stats_of).collect();
        let moved = workers.iter().map(|worker| worker.guests().taken_in).sum();
        let mut news: Vec<_> = self.control.take_events().into_iter().map(|(_, event)| event).collect();
        news.extend(workers.iter_mut().flat_map(Worker::take_events));
        Ok(Finished { counters, stats: stats.finish(), threads, clock, recorders, moved, events: news })
    }
}
