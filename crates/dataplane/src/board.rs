// SPDX-License-Identifier: Apache-2.0
//! What workers show of their counters to other threads.
//!
//! Who wants to know (the metrics endpoint) sets a flag per worker; a live worker that sees its flag, between
//! two batches or in an idle turn, copies its counters into its place on the board. The price is one relaxed
//! load per batch. A worker never waits: while its place is being read it tries again after the next batch. A
//! worker that does not answer in time (it waits for packets longer than that, or hangs) is shown as it was,
//! and as late.
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
use bartizan_stages::quotas::{Quota, Used};
use bartizan_stages::tally::{Tally, staged_of};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

pub use bartizan_stages::tally::{Amount, DecisionKey};

/// A worker's counters at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Packet clock.
    pub clock: Timestamp,
    /// The running generation.
    pub generation: Generation,
    /// The worker's own.
    pub counters: WorkerCounters,
    /// The priority below which flows give way; 0 while none does.
    pub sheds_below: u8,
    /// Those of its parts, by their names in EVE's `stats`.
    pub stats: Vec<(&'static str, u64)>,
    /// Names of policies by number.
    pub policies: Arc<PolicyMap>,
    /// Names of functions by their bit.
    pub functions: Vec<(FunctionId, &'static str)>,
    /// How the functions stand.
    pub standing: Vec<FunctionNow>,
    /// Packets that went on, by the policy's number.
    pub passed: Vec<Amount>,
    /// Alerts by the policy's number: of packets that were allowed, and that were blocked.
    pub alerts: Vec<[u64; 2]>,
    /// Flows that began, by the policy's number.
    pub flows: Vec<u64>,
    /// Packets that did not.
    pub refused: Vec<(DecisionKey, Amount)>,
    /// Packets that would not have, where nothing is refused.
    pub would: Vec<(DecisionKey, Amount)>,
    /// What would not have, in staged policies.
    pub staged: Vec<(&'static str, DecisionKey, u64)>,
    /// What functions count of their own: function, counter, value.
    pub own: Vec<(&'static str, &'static str, u64)>,
    /// Packets counted for the rules of the running generation: function, rule, packets.
    pub rules: Vec<(&'static str, Arc<RuleName>, u64)>,
    /// Memory that traffic can grow: part, in use, bound.
    pub memory: Vec<(&'static str, u64, u64)>,
    /// What functions keep per host: the tables of all workers, by function.
    pub hosts: Vec<(&'static str, HostCounters)>,
    /// Tenants with quotas: name, quota and what all workers use of it.
    pub tenants: Vec<(Arc<str>, Quota, Used)>,
    /// Its ports, by their interfaces.
    pub ports: Vec<(String, PortStats)>,
    /// What a live worker counts besides.
    pub live: LiveCounters,
    /// Frames that went to other workers and came from them.
    pub hand_over: HandOverCounters,
}

impl Snapshot {
    /// Copies what a worker counted; memory of an earlier copy is used again.
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
pub(crate) struct Place {
    wanted: AtomicBool,
    shown: Mutex<Snapshot>,
}

impl Place {
    /// Whether somebody waits for this worker.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Shows what `fill` writes, unless the place is being read.
    pub(crate) fn show(&self, fill: impl FnOnce(&mut Snapshot)) {
        if let Ok(mut shown) = self.shown.try_lock() {
            fill(&mut shown);
            self.wanted.store(false, Ordering::Release);
        }
    }
}

/// The places of all workers.
#[derive(Clone, Debug, Default)]
pub struct Board {
    places: Vec<Arc<Place>>,
}

/// A worker's way to its place.
#[derive(Clone, Debug)]
pub struct Presenter(pub(crate) Arc<Place>);

impl Board {
    /// A board for so many workers.
    #[must_use]
    pub fn new(workers: u16) -> Self {
        Board { places: (0..workers).map(|_| Arc::default()).collect() }
    }

    /// What the worker of a number is given.
    #[must_use]
    pub fn presenter(&self, worker: u16) -> Option<Presenter> {
        self.places.get(usize::from(worker)).map(|place| Presenter(Arc::clone(place)))
    }

    /// Asks every worker for its counters.
    pub fn ask(&self) {
        for place in &self.places {
            place.wanted.store(true, Ordering::Release);
        }
    }

    /// Whether every worker has answered since [`Board::ask`].
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.places.iter().all(|place| !place.wanted.load(Ordering::Acquire))
    }

    /// What every worker shows, in their order, and whether it is late with its answer.
    #[must_use]
    pub fn read(&self) -> Vec<(Snapshot, bool)> {
        let read = |place: &Arc<Place>| {
            let late = place.wanted.load(Ordering::Acquire);
            (place.shown.lock().map(|shown| shown.clone()).unwrap_or_default(), late)
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
        board.ask();
        assert!(first.is_wanted() && second.is_wanted());
        first.show(|snapshot| snapshot.generation = Generation(7));
        {
            let _reader = second.shown.lock().unwrap();
            second.show(|_| panic!("the place is being read"));
        }
        assert!(!board.is_answered());
        let seen: Vec<_> = board.read().iter().map(|(s, late)| (s.generation.0, *late)).collect();
        assert_eq!(seen, [(7, false), (0, true)]);
    }
}
