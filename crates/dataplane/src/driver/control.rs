// SPDX-License-Identifier: Apache-2.0
//! Control of live workers by other threads: stop, swap generations, move flows, query functions and flows,
//! wake sleeping workers.
//!
//! Memory ordering: a generation is stored under a lock and then flagged (`Release`); a worker that sees the
//! flag (`Acquire`) finds the generation. A worker that hands a frame over and a receiver that may be about
//! to sleep agree by a fence on each side (sequentially consistent): either the sender sees that the receiver
//! sleeps, or the receiver sees the frame.

use super::answering;
use crate::inquiry::{self, Collector, Question, Waiting};
use crate::worker::Worker;
use bartizan_base::{Generation, WorkerId};
use bartizan_flow::FlowKey;
use bartizan_ports::Waker;
use bartizan_stages::chain::Chains;
use bartizan_stages::lifecycle::{FunctionEvent, NEWS_MAX};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The control of all workers of a run.
pub struct Control {
    stop: AtomicBool,
    broken: AtomicBool,
    seats: Box<[Seat]>,
    /// Notified when a worker has begun to run another generation.
    entered: (Mutex<()>, Condvar),
    /// Generations that a worker has left. The supervisor frees them, since that takes longer than a worker
    /// may pause.
    left: Mutex<Vec<Arc<Chains>>>,
    /// Lifecycle events of functions, for the supervisor.
    events: Mutex<Vec<(WorkerId, FunctionEvent)>>,
}

/// One worker's part, on cache lines of its own.
#[repr(align(128))]
struct Seat {
    pending: Mutex<Option<Arc<Chains>>>,
    has_pending: AtomicBool,
    running: AtomicU64,
    /// Requested moves of flows.
    moves: Mutex<Vec<(FlowKey, WorkerId)>>,
    has_moves: AtomicBool,
    /// Queries about the worker's flows and functions.
    questions: Mutex<Waiting>,
    has_questions: AtomicBool,
    asleep: AtomicBool,
    waker: Waker,
}

/// Most pending moves per worker.
pub const MOVES_ASKED: usize = 256;

impl Control {
    /// A control for one worker.
    ///
    /// # Errors
    /// The system has no event descriptor left.
    pub fn new() -> std::io::Result<Self> {
        Self::for_workers(1)
    }

    /// A control for `count` workers.
    ///
    /// # Errors
    /// The system has no event descriptor left.
    pub fn for_workers(count: u16) -> std::io::Result<Self> {
        let seat = |_| {
            Ok(Seat {
                pending: Mutex::new(None),
                has_pending: AtomicBool::new(false),
                running: AtomicU64::new(0),
                moves: Mutex::default(),
                has_moves: AtomicBool::new(false),
                questions: Mutex::default(),
                has_questions: AtomicBool::new(false),
                asleep: AtomicBool::new(false),
                waker: Waker::new()?,
            })
        };
        Ok(Control {
            stop: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            seats: (0..count.max(1)).map(seat).collect::<std::io::Result<_>>()?,
            entered: Default::default(),
            left: Mutex::new(Vec::new()),
            events: Mutex::default(),
        })
    }

    /// Ends the workers at their next batch boundary.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        for seat in &self.seats {
            seat.waker.wake();
        }
    }

    /// Whether a stop was requested.
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Sets the next generation; each worker runs it from its next batch boundary on. A later call replaces a
    /// generation that is still pending.
    pub fn swap(&self, chains: Arc<Chains>) {
        for seat in &self.seats {
            if let Ok(mut pending) = seat.pending.lock() {
                *pending = Some(Arc::clone(&chains));
            }
            seat.has_pending.store(true, Ordering::Release);
            seat.waker.wake();
        }
    }

    /// Requests the move of a flow to worker `to` of its link. `home`: number of the flow's home among the
    /// workers of all links, that is, the number of its link's first worker plus `Owners::home`. The home
    /// moves the flow at its next batch boundary, or counts a refusal in `flow.moves_refused`
    /// (`Station::move_flow`). `false`: no worker has the number, or [`MOVES_ASKED`] moves are pending.
    #[must_use]
    pub fn move_flow(&self, home: WorkerId, key: &FlowKey, to: WorkerId) -> bool {
        let Some(seat) = self.seats.get(usize::from(home.0)) else { return false };
        let Ok(mut moves) = seat.moves.lock() else { return false };
        if moves.len() >= MOVES_ASKED {
            return false;
        }
        moves.push((*key, to));
        drop(moves);
        seat.has_moves.store(true, Ordering::Release);
        seat.waker.wake();
        true
    }

    /// Sends a query to all workers. Each answers between two batches, without blocking another thread
    /// ([`inquiry`]). `None`: [`inquiry::QUESTIONS`] queries are pending already.
    #[must_use]
    pub fn query(&self, question: Question) -> Option<Collector> {
        let count = u16::try_from(self.seats.len()).unwrap_or(u16::MAX);
        let (asked, collector) = inquiry::prepare(question, count);
        let mut all = true;
        for (seat, asked) in self.seats.iter().zip(asked) {
            if let Ok(mut questions) = seat.questions.lock() {
                all &= questions.put(asked);
                // Under the lock, as in `answer`, which clears the flag with the last query.
                seat.has_questions.store(true, Ordering::Release);
            }
            seat.waker.wake();
        }
        all.then_some(collector)
    }

    /// At a batch boundary: handles the next part of a worker's current query.
    fn answer(seat: &Seat, me: WorkerId, worker: &mut Worker) {
        if worker.inquiry.is_none() {
            if !seat.has_questions.load(Ordering::Acquire) {
                return;
            }
            if let Ok(mut questions) = seat.questions.lock() {
                let (next, more) = questions.take();
                worker.inquiry = next.map(Box::new);
                seat.has_questions.store(more, Ordering::Release);
            }
        }
        let inquiry = worker.inquiry.take();
        worker.inquiry = inquiry.and_then(|inquiry| answering::continue_query(worker, me, inquiry));
        if worker.inquiry.is_some() || seat.has_questions.load(Ordering::Relaxed) {
            // The worker does not sleep before the query is answered.
            seat.waker.wake();
        }
    }

    /// At a batch boundary: takes the requested moves of a worker's flows.
    pub(super) fn take_moves(&self, me: WorkerId, mut each: impl FnMut(&FlowKey, WorkerId)) {
        let Some(seat) = self.seats.get(usize::from(me.0)) else { return };
        if !seat.has_moves.load(Ordering::Acquire) || !seat.has_moves.swap(false, Ordering::AcqRel) {
            return;
        }
        let moves = seat.moves.lock().map(|mut moves| core::mem::take(&mut *moves)).unwrap_or_default();
        moves.iter().for_each(|(key, to)| each(key, *to));
    }

    /// The oldest generation that any worker runs (not the requested one). 0 until all workers have begun.
    #[must_use]
    pub fn running(&self) -> Generation {
        let numbers = self.seats.iter().map(|seat| seat.running.load(Ordering::Acquire));
        Generation(numbers.min().unwrap_or(0))
    }

    /// Waits at most `most` until all workers run `generation` or a later one; returns whether they do.
    #[must_use]
    pub fn wait_running(&self, generation: Generation, most: Duration) -> bool {
        let (lock, entered) = &self.entered;
        let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        drop(entered.wait_timeout_while(guard, most, |()| self.running() < generation));
        self.running() >= generation
    }

    /// The generation that one worker runs. `None`: no worker has the number.
    #[must_use]
    pub fn running_in(&self, worker: WorkerId) -> Option<Generation> {
        self.seats.get(usize::from(worker.0)).map(|seat| Generation(seat.running.load(Ordering::Acquire)))
    }

    /// Frees generations that no worker runs any more; returns whether there were any. For the supervisor: it
    /// takes longer than a worker may pause.
    pub fn free_left(&self) -> bool {
        let free: Vec<Arc<Chains>> = match self.left.lock() {
            Ok(mut left) => left.extract_if(.., |chains| Arc::strong_count(chains) == 1).collect(),
            Err(_) => Vec::new(),
        };
        // Freed outside of the lock.
        !free.is_empty()
    }

    /// At a batch boundary: takes a pending generation, and answers queries.
    pub(super) fn take(&self, me: WorkerId, worker: &mut Worker) {
        let Some(seat) = self.seats.get(usize::from(me.0)) else { return };
        worker.forget_generation();
        if seat.has_pending.load(Ordering::Acquire)
            && seat.has_pending.swap(false, Ordering::AcqRel)
            && let Ok(mut pending) = seat.pending.lock()
            && let Some(chains) = pending.take()
        {
            worker.pause_observation();
            if let Ok(mut left) = self.left.lock()
                && !left.iter().any(|known| Arc::ptr_eq(known, worker.chains()))
            {
                left.push(Arc::clone(worker.chains()));
            }
            worker.enter_generation(chains);
        }
        let now = worker.generation().0;
        // Only this worker writes the value.
        if seat.running.load(Ordering::Relaxed) != now {
            seat.running.store(now, Ordering::Release);
            self.notify_entered();
        }
        Self::answer(seat, me, worker);
        if worker.has_news() {
            self.publish_events(me, worker);
        }
    }

    /// Wakes the threads in [`Control::wait_running`].
    #[cold]
    fn notify_entered(&self) {
        // A waiting thread holds the lock while it checks: it has seen this worker's generation, or waits for
        // the notification.
        drop(self.entered.0.lock());
        self.entered.1.notify_all();
    }

    /// Passes lifecycle events of functions to the supervisor. Events beyond the bound are discarded: health
    /// and counters report the state anyway.
    #[cold]
    fn publish_events(&self, me: WorkerId, worker: &mut Worker) {
        let Ok(mut news) = self.events.lock() else { return };
        let room = NEWS_MAX.saturating_sub(news.len());
        news.extend(worker.take_events().into_iter().take(room).map(|what| (me, what)));
    }

    /// Lifecycle events of functions since the last call.
    #[must_use]
    pub fn take_events(&self) -> Vec<(WorkerId, FunctionEvent)> {
        self.events.lock().map(|mut news| core::mem::take(&mut *news)).unwrap_or_default()
    }

    /// The waker that a worker sleeps on.
    pub(super) fn waker(&self, me: WorkerId) -> Option<&Waker> {
        self.seats.get(usize::from(me.0)).map(|seat| &seat.waker)
    }

    /// Wakes those of the given workers that sleep. `workers`: one bit each from `first` on, the last bit for
    /// all beyond.
    pub(crate) fn wake(&self, first: u16, workers: u64) {
        if workers == 0 {
            return;
        }
        fence(Ordering::SeqCst);
        for (index, seat) in self.seats.iter().skip(first.into()).enumerate() {
            if workers >> index.min(63) & 1 == 1 && seat.asleep.load(Ordering::Relaxed) {
                seat.waker.wake();
            }
        }
    }

    /// Lets a worker sleep, unless `has_work` holds once the worker is marked as asleep.
    pub(super) fn sleeping<T>(
        &self,
        me: WorkerId,
        has_work: impl Fn() -> bool,
        sleep: impl FnOnce() -> T,
    ) -> Option<T> {
        let seat = self.seats.get(usize::from(me.0))?;
        seat.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let slept = if has_work() { None } else { Some(sleep()) };
        seat.asleep.store(false, Ordering::Relaxed);
        slept
    }

    /// Marks that a worker ended by a defect: other workers do not wait for the frames that it holds.
    pub(super) fn set_broken(&self) {
        self.broken.store(true, Ordering::Release);
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }
}
