// SPDX-License-Identifier: Apache-2.0
//! The board: snapshots of the workers' counters for other threads.
//!
//! A reader (the metrics endpoint) sets a flag per worker. A live worker that sees its flag, between two
//! batches or in an idle turn, copies its counters into its place on the board; the price is one relaxed load
//! per batch. A worker never waits: while a reader holds its place, the worker tries again after the next
//! batch. A worker that does not answer in time (it sleeps longer, or hangs) is shown with its previous
//! counters, marked as late.
//!
//! Not done: histograms, counters per flow class (they are per policy).

use crate::counters::{HandOverCounters, LiveCounters};
use bartizan_base::{FunctionId, Generation, Timestamp};
use bartizan_flow::host::HostCounters;
use bartizan_function::{RuleName, WorkerState};
use bartizan_ports::PortStats;
use bartizan_stages::chain::{Chains, PolicyMap};
use bartizan_stages::counts::WorkerCounters;
use bartizan_stages::lifecycle::FunctionNow;
use bartizan_stages::quotas::{Quota, QuotaUsage};
use bartizan_stages::tally::{Tally, staged_of};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

pub use bartizan_stages::tally::{Amount, DecisionKey};

/// A worker's counters at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Time of the worker's packet clock.
    pub clock: Timestamp,
    /// The generation that the worker runs.
    pub generation: Generation,
    /// The worker's own counters.
    pub counters: WorkerCounters,
    /// Priority below which flows are shed under overload; 0 while none are.
    pub sheds_below: u8,
    /// Counters of the worker's parts, by their names in EVE's `stats`.
    pub stats: Vec<(&'static str, u64)>,
    /// Names of policies by number.
    pub policies: Arc<PolicyMap>,
    /// Names of functions by their bit.
    pub functions: Vec<(FunctionId, &'static str)>,
    /// Health of each function.
    pub standing: Vec<FunctionNow>,
    /// Forwarded packets, by the policy's number.
    pub passed: Vec<Amount>,
    /// Alerts by the policy's number: on packets that were allowed, and on packets that were blocked.
    pub alerts: Vec<[u64; 2]>,
    /// Flows that began, by the policy's number.
    pub flows: Vec<u64>,
    /// Packets that were not forwarded, by decision.
    pub refused: Vec<(DecisionKey, Amount)>,
    /// In detection: packets that prevention would not have forwarded.
    pub would: Vec<(DecisionKey, Amount)>,
    /// Packets of staged policies that enforced policies would not have forwarded.
    pub staged: Vec<(&'static str, DecisionKey, u64)>,
    /// Counters that functions declare themselves: function, counter, value.
    pub own: Vec<(&'static str, &'static str, u64)>,
    /// Packets counted for the rules of the running generation: function, rule, packets.
    pub rules: Vec<(&'static str, Arc<RuleName>, u64)>,
    /// Memory that traffic can grow: part, in use, bound.
    pub memory: Vec<(&'static str, u64, u64)>,
    /// State that functions keep per host: counters of the tables of all workers, by function.
    pub hosts: Vec<(&'static str, HostCounters)>,
    /// Tenants with quotas: name, quota and what all workers use of it.
    pub tenants: Vec<(Arc<str>, Quota, QuotaUsage)>,
    /// Ports of the worker, by their interfaces.
    pub ports: Vec<(String, PortStats)>,
    /// Counters of the live loop.
    pub live: LiveCounters,
    /// Counters of the hand-over to and from other workers.
    pub hand_over: HandOverCounters,
}

impl Snapshot {
    /// Copies a worker's counters; reuses the memory of an earlier copy.
    pub(crate) fn fill(&mut self, chains: &Chains, states: &[WorkerState], tally: &Tally) {
        self.generation = chains.generation;
        self.policies = Arc::clone(&tally.policies);
        self.tenants.clear();
        self.tenants.extend(chains.quotas.used().map(|(name, quota, used)| (Arc::clone(name), quota, used)));
        self.functions.clear();
        self.functions.extend(chains.functions.iter().map(|f| (f.id(), f.spec().name)));
        self.passed.clone_from(&tally.passed);
        self.alerts.clone_from(&tally.alerts);
        self.flows.clone_from(&tally.flows);
        self.refused.clear();
        self.refused.extend(tally.refused.iter().map(|(key, amount)| (*key, *amount)));
        self.would.clear();
        self.would.extend(tally.would.iter().map(|(key, amount)| (*key, *amount)));
        self.staged.clear();
        self.staged.extend(tally.staged.iter().map(|((function, key), value)| (*function, *key, *value)));
        let staged = &mut self.staged;
        staged_of(chains, states, &tally.policies, |function, key, value| {
            staged.push((function, key, value))
        });
    }
}

/// A worker's place on the board.
#[derive(Debug, Default)]
pub(crate) struct BoardSlot {
    wanted: AtomicBool,
    snapshot: Mutex<Snapshot>,
}

impl BoardSlot {
    /// Whether a reader waits for this worker's counters.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Fills the place with `fill`, unless a reader holds it.
    pub(crate) fn show(&self, fill: impl FnOnce(&mut Snapshot)) {
        if let Ok(mut shown) = self.snapshot.try_lock() {
            fill(&mut shown);
            self.wanted.store(false, Ordering::Release);
        }
    }
}

/// The places of all workers.
#[derive(Clone, Debug, Default)]
pub struct Board {
    places: Vec<Arc<BoardSlot>>,
}

/// A worker's handle of its place.
#[derive(Clone, Debug)]
pub struct Presenter(pub(crate) Arc<BoardSlot>);

impl Board {
    /// A board for `workers` workers.
    #[must_use]
    pub fn new(workers: u16) -> Self {
        Board { places: (0..workers).map(|_| Arc::default()).collect() }
    }

    /// The handle that the worker with this number writes to.
    #[must_use]
    pub fn presenter(&self, worker: u16) -> Option<Presenter> {
        self.places.get(usize::from(worker)).map(|place| Presenter(Arc::clone(place)))
    }

    /// Asks every worker for its counters.
    pub fn request_counters(&self) {
        for place in &self.places {
            place.wanted.store(true, Ordering::Release);
        }
    }

    /// Whether every worker has answered since [`Board::request_counters`].
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.places.iter().all(|place| !place.wanted.load(Ordering::Acquire))
    }

    /// The snapshot of every worker, in the order of the workers, and whether it is late.
    #[must_use]
    pub fn read(&self) -> Vec<(Snapshot, bool)> {
        let read = |place: &Arc<BoardSlot>| {
            let late = place.wanted.load(Ordering::Acquire);
            (place.snapshot.lock().map(|shown| shown.clone()).unwrap_or_default(), late)
        };
        self.places.iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_answers_when_it_is_asked_and_never_waits() {
        let board = Board::new(2);
        let (first, second) = (board.presenter(0).unwrap().0, board.presenter(1).unwrap().0);
        assert!(!first.is_wanted() && board.is_answered() && board.presenter(2).is_none());
        board.request_counters();
        assert!(first.is_wanted() && second.is_wanted());
        first.show(|snapshot| snapshot.generation = Generation(7));
        {
            let _reader = second.snapshot.lock().unwrap();
            second.show(|_| panic!("the place is being read"));
        }
        assert!(!board.is_answered());
        let seen: Vec<_> = board.read().iter().map(|(s, late)| (s.generation.0, *late)).collect();
        assert_eq!(seen, [(7, false), (0, true)]);
    }
}
