// SPDX-License-Identifier: Apache-2.0
//! The search for the flow that gives way next: a clock hand over the list of the flows that hold memory.
//!
//! The first in rank of a whole round is the reference. Flows of about the same rank give way one after the
//! other, as the hand reaches them; a round without such a flow sets the reference anew. So a few small flows
//! that are adjacent in the list do not give way while others hold more elsewhere. A call visits a bounded
//! number of flows, and the round continues with the next call.

use bartizan_base::FlowId;

/// The order in which flows are evicted: the lowest rank first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rank {
    /// A function inspects the flow, or closing it gains nothing.
    pub needed: bool,
    /// The flow's policy's priority.
    pub priority: u8,
    /// The flow has not been silent for longer than it had lived before (streams).
    pub goes_on: bool,
    /// Memory beyond the usual, times idle time.
    pub weight: u64,
    /// Time since its last packet, in milliseconds.
    pub idle: u64,
}

impl Rank {
    fn key(&self) -> impl Ord {
        (self.needed, self.priority, self.goes_on, core::cmp::Reverse((self.weight, self.idle)))
    }

    /// Whether flows of both ranks are evicted at about the same time.
    pub const fn is_about(&self, other: &Rank) -> bool {
        let alike =
            if other.weight > 0 { self.weight >= other.weight / 2 } else { self.idle >= other.idle / 2 };
        alike
            && self.priority <= other.priority
            && (!self.needed || other.needed)
            && (!self.goes_on || other.goes_on)
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// The bounds of a search in one call.
#[derive(Clone, Copy, Debug)]
pub struct VictimBounds {
    /// Most flows that the call visits.
    pub flows: usize,
    /// Whether the first in rank of the visited flows is evicted even if the round is not over.
    pub at_once: bool,
}

/// A search in one list of flows; see the module.
#[derive(Debug, Default)]
pub struct VictimSearch {
    /// Index of the next flow.
    hand: usize,
    /// Number of flows visited in this round.
    visited: usize,
    /// The first in rank of the visited flows.
    best: Option<(Rank, FlowId)>,
    /// The first in rank of the last round, or one found since that ranks before it.
    reference: Option<Rank>,
}

impl VictimSearch {
    /// The next flow of the list to evict. `rank`: none for a flow that does not qualify. `None`: no flow
    /// qualifies, or the round is not over.
    pub fn next(
        &mut self,
        flows: &[FlowId],
        reach: VictimBounds,
        rank: impl Fn(FlowId) -> Option<Rank>,
    ) -> Option<FlowId> {
        for _ in 0..reach.flows.min(flows.len()) {
            if self.hand >= flows.len() {
                self.hand = 0;
            }
            let Some(&id) = flows.get(self.hand) else { break };
            (self.hand, self.visited) = (self.hand + 1, self.visited + 1);
            if let Some(found) = rank(id) {
                match self.reference {
                    Some(reference) if found < reference => return Some(self.take(id, found)),
                    Some(reference) if found.is_about(&reference) => return Some(self.take(id, reference)),
                    _ => {}
                }
                if self.best.is_none_or(|(best, _)| found < best) {
                    self.best = Some((found, id));
                }
            }
            if self.visited >= flows.len() {
                return self.end_round(rank);
            }
        }
        if reach.at_once { self.take_best(rank).map(|(_, id)| id) } else { None }
    }

    fn take(&mut self, id: FlowId, reference: Rank) -> FlowId {
        *self = VictimSearch { hand: self.hand, reference: Some(reference), ..VictimSearch::default() };
        id
    }

    /// The first in rank of the round so far, unless it has changed since.
    fn take_best(&mut self, rank: impl Fn(FlowId) -> Option<Rank>) -> Option<(Rank, FlowId)> {
        let (best, id) = self.best.take()?;
        let now = rank(id).filter(|now| now.is_about(&best))?;
        Some((now, id))
    }

    fn end_round(&mut self, rank: impl Fn(FlowId) -> Option<Rank>) -> Option<FlowId> {
        let best = self.take_best(rank);
        self.visited = 0;
        self.reference = best.map(|(rank, _)| rank);
        best.map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENT: VictimBounds = VictimBounds { flows: 16, at_once: false };
    const URGENT: VictimBounds = VictimBounds { flows: 16, at_once: true };

    /// Flows by number, with their memory.
    struct Flows {
        ids: Vec<FlowId>,
        held: Vec<u64>,
        search: VictimSearch,
    }

    impl Flows {
        fn new(held: impl IntoIterator<Item = u64>) -> Self {
            let held: Vec<u64> = held.into_iter().collect();
            let ids = (0..held.len() as u32).map(FlowId).collect();
            Flows { ids, held, search: VictimSearch::default() }
        }

        fn next(&mut self, reach: VictimBounds) -> Option<usize> {
            let held = &self.held;
            let rank = |id: FlowId| {
                let weight = *held.get(id.0 as usize)?;
                (weight > 0).then_some(Rank { needed: true, priority: 100, weight, ..Rank::default() })
            };
            let id = self.search.next(&self.ids, reach, rank)?;
            self.held[id.0 as usize] = 0;
            self.ids.retain(|other| *other != id);
            Some(id.0 as usize)
        }

        /// The flows that give way in `calls` calls.
        fn run(&mut self, calls: usize, reach: VictimBounds) -> Vec<usize> {
            (0..calls).filter_map(|_| self.next(reach)).collect()
        }
    }

    #[test]
    fn ranks_go_by_need_priority_memory_and_time() {
        let rank =
            |needed, priority, weight, idle| Rank { needed, priority, weight, idle, ..Rank::default() };
        let order = [
            rank(false, 200, 0, 0),
            rank(true, 1, 0, 5),
            rank(true, 100, 9000, 1),
            rank(true, 100, 4000, 90),
            rank(true, 100, 0, 90),
            rank(true, 100, 0, 10),
        ];
        assert!(order.is_sorted());
        let last = rank(true, 100, 8000, 1);
        assert!(rank(true, 100, 4000, 0).is_about(&last) && rank(false, 1, 4000, 0).is_about(&last));
        for other in [rank(true, 100, 3999, 99), rank(true, 101, 9000, 9)] {
            assert!(!other.is_about(&last), "{other:?}");
        }
        assert!(!rank(true, 1, 8000, 1).is_about(&rank(false, 100, 8000, 1)));
        // Among flows of a priority those that go on are the last.
        let on = Rank { goes_on: true, ..rank(true, 100, 9000, 90) };
        assert!(rank(true, 100, 1, 0) < on && on < rank(true, 101, 9000, 90));
        assert!(!on.is_about(&last) && last.is_about(&on));
    }

    #[test]
    fn flows_that_hold_little_side_by_side_stay_while_others_hold_more() {
        // At any position in the list, and for any number of the others.
        for (few, before, after) in
            [(50, 0, 200), (50, 100, 100), (50, 200, 0), (1_000, 500, 500), (5_000, 0, 20)]
        {
            let flood = |count: usize| (0..count).map(|n| 9_000 - 30 * (n as u64 % 100));
            let mut flows =
                Flows::new(flood(before).chain((0..few).map(|n| 170 + n % 60)).chain(flood(after)));
            let gone = flows.run(few as usize + before + after, PATIENT);
            let good = before..before + few as usize;
            let first_good = gone.iter().position(|n| good.contains(n)).unwrap_or(gone.len());
            assert_eq!(first_good, before + after, "{few} behind {before}: {:?}", gone.get(..9));
        }
    }

    #[test]
    fn a_chain_of_neighbours_does_not_lead_down_to_those_that_hold_little() {
        // Each holds three quarters of what the one before it holds.
        let flood = core::iter::successors(Some(1u64 << 30), |held| Some(held / 4 * 3)).take(60);
        let mut flows = Flows::new(flood.chain([900; 60]).chain([1 << 29; 60]));
        let gone = flows.run(90, VictimBounds { flows: 512, at_once: false });
        assert!(gone.iter().filter(|n| **n >= 120).count() == 60, "{gone:?}");
        assert!(!gone.iter().any(|n| (60..120).contains(n)), "{gone:?}");
    }

    #[test]
    fn what_is_urgent_takes_the_first_of_those_that_were_looked_at() {
        let mut flows = Flows::new((0..40).chain([9_000; 10]).chain([30; 40]));
        assert_eq!((flows.next(PATIENT), flows.next(URGENT)), (None, Some(31)));
        // A complete round has visited all.
        assert!(flows.run(4, PATIENT).iter().all(|n| (40..50).contains(n)));
        assert_eq!(Flows::new([]).next(URGENT), None);
        assert_eq!(Flows::new([0; 9]).next(URGENT), None);
    }

    #[test]
    fn a_flow_that_has_changed_since_it_was_seen_does_not_go() {
        let mut flows = Flows::new([9_000].into_iter().chain([100; 30]));
        assert_eq!(flows.next(PATIENT), None);
        flows.held[0] = 10;
        assert_eq!(flows.next(PATIENT), None, "the round is over, and its first is not what it was");
        assert_eq!(flows.run(2, PATIENT).len(), 1);
        assert_eq!(flows.held[0], 10);
    }
}
