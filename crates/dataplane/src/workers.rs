// SPDX-License-Identifier: Apache-2.0
//! Several workers for one reader of captures.
//!
//! The reader decodes each frame once and reassembles fragments, so the order of the capture holds for all
//! packets of a flow, whether they arrive alone, in a tunnel or as fragments. It distributes its results in
//! `Round`s: a round holds some hundred frames, their bytes (copied once), and the owner of each of their
//! packets. Every worker gets every round by a ring of its own, handles the packets that it owns, and
//! advances its clock with *all* frames. So flows end at the same packet clock as with one worker, and the
//! flow records are the same.
//!
//! A round carries its generation: all workers swap between the same two frames, and a round without frames
//! brings a swap to idle workers. [`PoolControl::running`] returns a worker's generation.
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
//! Thread parking carries no data, it only shortens waits, and each wait has a time limit.
//!
//! Bounded: at most [`PoolOptions::rounds`] rounds exist; when all are in use, the reader waits.
//!
//! Flows can move between workers, at the beginning of a round (`moves`).
//!
//! Not done: several readers (live ports hand over between workers: `handover`).

mod moves;
mod patience;
mod round;

use crate::handover::Owners;
use crate::worker::{Frame, Worker, WorkerCounters};
use bartizan_applayer::flow::Engine;
use bartizan_base::turns::CaptureTurns;
use bartizan_base::{Decision, Generation, Timestamp, WorkerId};
use bartizan_flow::{FlowKey, TableError};
use bartizan_stages::chain::Chains;
use bartizan_stages::frame::{Inside, PacketPosition, next_frame};
use bartizan_stages::guests::{Guest, NotMoved};
use bartizan_stages::lifecycle::FunctionEvent;
use bartizan_stages::record::Recorder;
use bartizan_stages::settings::EngineSettings;
use bartizan_stages::stats::{NamedCounters, Sum};
use moves::FlowLocations;
use patience::wait_until;
use round::{Front, Round, RoundFrame, RoundPacket, pack};
use rtrb::{Consumer, Producer, RingBuffer};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

/// Longest sleep of reader and workers between two checks.
const NAP: Duration = Duration::from_millis(20);

/// Size of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// Most rounds in use.
    pub rounds: usize,
    /// Most frames of a round.
    pub frames: usize,
    /// Bytes after which a round is full, whatever its number of frames.
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
    #[error("cannot start worker {worker}: {source}; ask for fewer threads with --threads")]
    Thread {
        /// Worker.
        worker: u16,
        /// The system's error.
        source: std::io::Error,
    },
    /// A flow is not moved.
    #[error(transparent)]
    NotMoved(#[from] NotMoved),
    /// A worker ended early.
    #[error(
        "worker {worker} failed: this is a defect of the program; please report it with the capture, and run \
         with --threads 1 meanwhile"
    )]
    Lost {
        /// Worker.
        worker: u16,
    },
}

/// A recorder of one of several workers.
pub trait WorkerRecorder: Recorder + Send + 'static {
    /// Sets the capture that the following packets come from.
    fn enter_capture(&mut self, name: &str) {
        let _ = name;
    }
}

/// Steers a pool from any thread, and returns the generations that it runs.
#[derive(Debug)]
pub struct PoolControl {
    pending: Mutex<Option<PendingChains>>,
    /// Whether `pending` is set, to be checked without a lock.
    has_pending: AtomicBool,
    running: Box<[AtomicU64]>,
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

    /// The generation that a worker runs (not the requested one). `None`: no worker has the number.
    #[must_use]
    pub fn running(&self, worker: WorkerId) -> Option<Generation> {
        self.running.get(usize::from(worker.0)).map(|number| Generation(number.load(Ordering::Acquire)))
    }

    /// Whether all workers run this generation.
    #[must_use]
    pub fn all_run(&self, generation: Generation) -> bool {
        self.running.iter().all(|number| number.load(Ordering::Acquire) == generation.0)
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
    thread: JoinHandle<(Worker, R)>,
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
    pub news: Vec<FunctionEvent>,
}

impl<R: WorkerRecorder> Pool<R> {
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
        let steering = Arc::new(PoolControl {
            pending: Mutex::new(None),
            has_pending: AtomicBool::new(false),
            running: (0..count).map(|_| AtomicU64::new(chains.generation.0)).collect(),
        });
        let reader = std::thread::current();
        let mut seats = Vec::with_capacity(usize::from(count));
        let turns = CaptureTurns::new(usize::from(count));
        for (index, recorder) in (0..count).zip(recorders) {
            let mut worker = Worker::new(share.clone(), Arc::clone(engine), Arc::clone(chains))?;
            worker.number_flows(WorkerId(index));
            let (ring, rounds) = RingBuffer::new(options.rounds.max(2));
            let post = PoolWorker {
                me: WorkerId(index),
                rounds,
                steering: Arc::clone(&steering),
                reader: reader.clone(),
                worker,
                recorder,
                capture: None,
                turns: Arc::clone(&turns),
            };
            let thread = std::thread::Builder::new()
                .name(format!("worker-{index}"))
                .spawn(move || post.run())
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
            steering,
        })
    }

    /// The handle to swap generations and to query them.
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
        let crossing = self.front.places.go(&self.front.owners, key, to)?;
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
            seat.thread.thread().unpark();
        }
        self.under_way.push_back(round);
        for (key, to) in self.front.places.draw(self.front.owners.workers()) {
            // A randomly chosen flow may be at that worker already.
            let _ = self.begin_move(&key, to);
        }
        Ok(())
    }

    /// A round to fill: a new one, or the oldest in use once all workers have finished it.
    fn empty_round(&mut self) -> Result<Round, PoolError> {
        self.settle_ready();
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
    fn settle_ready(&mut self) {
        while let Some(oldest) = self.under_way.pop_front() {
            match Arc::try_unwrap(oldest) {
                Ok(mut round) => {
                    self.front.settle(&mut round);
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
            self.settle_ready();
            if let Some(round) = self.spare.pop() {
                return Ok(round);
            }
            self.nap()?;
        }
    }

    /// Waits for the decision on the last completed datagram. Only prevention waits for such datagrams, and
    /// only the next fragment, or the passing of time without frames, depends on it.
    fn decide_datagram(&mut self) -> Result<(), PoolError> {
        if self.front.undecided() == Some(self.round.number) {
            self.send()?;
        }
        loop {
            self.settle_ready();
            if self.front.undecided().is_none() {
                return Ok(());
            }
            self.nap()?;
        }
    }

    /// Sleeps until a worker has finished a round, for at most the poll interval.
    fn nap(&self) -> Result<(), PoolError> {
        let lost = (0u16..).zip(&self.seats).find(|(_, seat)| seat.ring.is_abandoned());
        if let Some((worker, _)) = lost {
            return Err(PoolError::Lost { worker });
        }
        std::thread::park_timeout(NAP);
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
            thread.thread().unpark();
            ended.push((index, thread));
        }
        let mut workers = Vec::with_capacity(ended.len());
        let mut recorders = Vec::with_capacity(ended.len());
        for (index, thread) in ended {
            let (worker, recorder) = thread.join().map_err(|_| PoolError::Lost { worker: index })?;
            workers.push(worker);
            recorders.push(recorder);
        }
        self.settle_ready();
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
        let news = workers.iter_mut().flat_map(Worker::take_news).collect();
        Ok(Finished { counters, stats: stats.finish(), threads, clock, recorders, moved, news })
    }
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

/// The loop of a worker in its thread.
struct PoolWorker<R> {
    me: WorkerId,
    rounds: Consumer<Arc<Round>>,
    steering: Arc<PoolControl>,
    reader: Thread,
    worker: Worker,
    recorder: R,
    capture: Option<Arc<str>>,
    turns: Arc<CaptureTurns>,
}

/// Steps of a frame, in order. Before the first frame of a round a worker enters the round's generation,
/// gives flows away, then adopts others.
const GIVES: u64 = 0;
const TAKES: u64 = 1;
/// The clock advances.
const BEGINS: u64 = 2;
/// First step of packets. Flows that end with a frame end before its packets, each at the step of its
/// beginning (beyond 255).
const PACKETS: u64 = 1 << 63;

impl<R: WorkerRecorder> PoolWorker<R> {
    fn run(mut self) -> (Worker, R) {
        self.worker.set_turn(Some(self.turns.take_part(usize::from(self.me.0))));
        if self.me != WorkerId(0) {
            self.worker.leave_hosts_to_another();
        }
        loop {
            // The end first: earlier rounds are then taken in any case.
            let ended = self.rounds.is_abandoned();
            match self.rounds.pop() {
                Ok(round) => {
                    self.round(&round);
                    drop(round);
                    self.reader.unpark();
                }
                Err(_) if ended => break,
                Err(_) => std::thread::park_timeout(NAP),
            }
        }
        self.worker.shutdown(&mut self.recorder);
        self.worker.set_turn(None);
        (self.worker, self.recorder)
    }

    fn round(&mut self, round: &Round) {
        if round.chains.generation != self.worker.generation() {
            self.worker.enter_generation(Arc::clone(&round.chains));
            if let Some(running) = self.steering.running.get(usize::from(self.me.0)) {
                running.store(round.chains.generation.0, Ordering::Release);
            }
        }
        if round.capture != self.capture {
            self.capture.clone_from(&round.capture);
            self.recorder.enter_capture(self.capture.as_deref().unwrap_or_default());
        }
        self.moves(round);
        let mut first = 0;
        for head in &round.frames {
            let place = next_frame(self.worker.position.place);
            self.worker.position.place = place;
            let frame = place >> 8;
            self.at(frame, BEGINS);
            self.worker.pass_frame(head.now, &mut self.recorder);
            let parts = round.parts.get(first..head.parts).unwrap_or_default();
            first = head.parts;
            let me = self.me;
            for (step, part) in (0u64..).zip(parts).filter(|(_, part)| part.owner == me) {
                self.worker.position.place = frame << 8 | step.min(0xff);
                self.at(frame, PACKETS | step);
                let inside = self.decided_inside(parts.iter().take(step as usize));
                self.part(round, head, part, inside);
            }
        }
        // The next frame is not available yet, and comes after all present work of the others.
        self.at((self.worker.position.place >> 8) + 1, GIVES);
        while let Some((key, _)) = self.worker.next_ended_guest() {
            if let Ok(mut ended) = round.ended.lock() {
                ended.push(key);
            }
        }
    }

    /// Gives flows away, then adopts others: all flows are given first, since other workers may wait for
    /// them.
    fn moves(&mut self, round: &Round) {
        for crossing in round.moves.iter().filter(|crossing| crossing.from == self.me) {
            self.worker.guests_mut().remove(&crossing.key);
            let id = self.worker.flow_of_key(&crossing.key);
            crossing.give(id.and_then(|id| self.worker.give(id, false).ok()));
        }
        if !round.moves.is_empty() {
            self.at((self.worker.position.place >> 8) + 1, TAKES);
        }
        for crossing in round.moves.iter().filter(|crossing| crossing.to == self.me) {
            let from = usize::from(crossing.from.0);
            let flow = crossing.take(|| self.turns.has_ended(from));
            let is_there = flow.is_some();
            if let Some(flow) = flow {
                self.worker.take_in_for_good(flow, &mut self.recorder);
            }
            if !crossing.is_home {
                self.worker.guests_mut().insert(crossing.key, Guest { home: self.me, number: 0 });
                if !is_there {
                    self.worker.guests_mut().may_have_ended(crossing.key);
                }
            }
        }
    }

    fn at(&self, frame: u64, step: u64) {
        self.worker.position.wait_for(frame, step);
    }

    /// The joint decision on these packets, which the packet in hand carries. Waits for the packets of other
    /// workers: inner packets do not depend on outer ones, so no cycle of waits is possible.
    fn decided_inside<'p>(&self, inner: impl Iterator<Item = &'p RoundPacket>) -> Inside {
        let mut decision = Decision::CONTINUE;
        for part in inner {
            let owner = usize::from(part.owner.0);
            wait_until(|| part.decided().is_some() || self.turns.has_ended(owner));
            decision = decision.strictest(part.decided().unwrap_or_default());
            if !decision.verdict.forwards() {
                break;
            }
        }
        decision.into()
    }

    fn part(&mut self, round: &Round, head: &RoundFrame, part: &RoundPacket, inside: Inside) {
        let frame = Frame {
            now: head.now,
            bytes: round.bytes.get(head.begin..head.end).unwrap_or_default(),
            wire_len: head.wire_len,
            link_type: head.link_type,
            link: head.link,
            number: head.number,
        };
        let bytes = round.bytes.get(part.begin..part.end).unwrap_or_default();
        self.worker.set_checksums(head.checksums);
        let place = PacketPosition { around: part.around.as_ref(), inside, ..part.place };
        let decision = self.worker.packet(&frame, bytes, &part.packet, &place, &mut self.recorder);
        part.decision.store(pack(&decision), Ordering::Relaxed);
        if let Some(key) = &part.guest {
            self.worker.note_guest(key, Guest { home: self.me, number: 0 });
        }
    }
}
