// SPDX-License-Identifier: Apache-2.0
//! Shedding: flows give way while the load exceeds a worker's capacity, before its receive ring is full and
//! the kernel drops at random.
//!
//! Flows give way by the priority of their policies, the lowest first ([`crate::overload`]); flows of the
//! highest priority never do. From half of a ring on the lowest priority gives way, from three quarters on
//! all but the highest, and a proportional number in between. Each step ends only when the backlog has fallen
//! by a quarter of the ring, so that it does not alternate with each batch. If all flows have one priority,
//! nothing gives way.

/// The backlog, in eighths of a ring, from which the lowest priority is shed.
pub const BEGINS: u8 = 4;
/// The backlog, in eighths of a ring, from which all priorities but the highest are shed.
pub const ALL: u8 = 6;
/// A step ends when the backlog is this much smaller than at its beginning.
pub const HYSTERESIS: u8 = 2;

/// The number of priorities that give way at a backlog, of `lower` that may.
fn level_of(backlog: u8, lower: usize) -> usize {
    let steps = usize::from(ALL - BEGINS) + 1;
    match backlog.min(ALL).checked_sub(BEGINS) {
        Some(step) => (lower * (usize::from(step) + 1)).div_ceil(steps),
        None => 0,
    }
}

/// The priorities whose flows a worker sheds at present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shedding {
    /// The number of priorities that give way.
    level: usize,
    /// The priority below which flows give way.
    below: u8,
    /// A packet that would have opened a flow was recorded in this batch.
    is_told: bool,
}

impl Shedding {
    /// Takes the backlog before a batch, in eighths of a ring, and the priorities that flows have, in
    /// ascending order. Returns whether shedding begins.
    pub fn update(&mut self, backlog: u8, priorities: &[u8]) -> bool {
        let lower = priorities.len().saturating_sub(1);
        let was_on = self.is_on();
        let (least, most) = (level_of(backlog, lower), level_of(backlog + HYSTERESIS - 1, lower));
        self.level = self.level.clamp(least, most);
        // Nothing is below the lowest priority.
        self.below = if self.level > 0 { priorities.get(self.level).copied().unwrap_or(0) } else { 0 };
        self.is_told = false;
        self.is_on() && !was_on
    }

    /// Whether flows are shed.
    #[inline]
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.below > 0
    }

    /// The priority below which flows are shed; 0 for none.
    #[must_use]
    pub const fn below(&self) -> u8 {
        self.below
    }

    /// Whether to record a packet that would have opened a flow: the first of each batch.
    pub const fn take_opening_record(&mut self) -> bool {
        !core::mem::replace(&mut self.is_told, true)
    }
}

/// Counters of shedding, which only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShedCounters {
    /// Number of times that shedding began.
    pub begun: u64,
    /// Packets shed.
    pub packets: u64,
    /// Shed packets forwarded uninspected: in detection, and of staged policies.
    pub uninspected: u64,
    /// Flows that pass uninspected from then on, by their policies.
    pub flows: u64,
}

impl ShedCounters {
    /// The counters of two workers together.
    #[must_use]
    pub fn plus(self, other: &ShedCounters) -> ShedCounters {
        // Every field by name, so that a new one is not forgotten here.
        let ShedCounters { begun, packets, uninspected, flows } = *other;
        ShedCounters {
            begun: self.begun + begun,
            packets: self.packets + packets,
            uninspected: self.uninspected + uninspected,
            flows: self.flows + flows,
        }
    }

    /// Visits each counter by its name in `stats`.
    pub fn visit(&self, mut each: impl FnMut(&'static str, u64)) {
        each("overload.begun", self.begun);
        each("overload.shed_pkts", self.packets);
        each("overload.uninspected_pkts", self.uninspected);
        each("overload.passed_flows", self.flows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn below(shedding: &mut Shedding, backlogs: &[u8], priorities: &[u8]) -> Vec<u8> {
        let mut below = |backlog: &u8| {
            shedding.update(*backlog, priorities);
            shedding.below()
        };
        backlogs.iter().map(&mut below).collect()
    }

    #[test]
    fn the_lowest_gives_way_from_half_of_a_ring_on_and_until_a_quarter_less_waits() {
        let mut shedding = Shedding::default();
        assert_eq!(
            below(&mut shedding, &[0, 3, 4, 7, 3, 2, 3, 4], &[100, 200]),
            [0, 0, 200, 200, 200, 0, 0, 200]
        );
    }

    #[test]
    fn priorities_give_way_one_after_the_other_and_the_highest_never() {
        let mut shedding = Shedding::default();
        let all = [10, 20, 30, 40];
        assert_eq!(below(&mut shedding, &[4, 5, 6, 7], &all), [20, 30, 40, 40]);
        assert_eq!(below(&mut shedding, &[6, 5, 4, 3, 2, 1], &all), [40, 40, 30, 20, 0, 0]);
        // More priorities than steps.
        let many: Vec<u8> = (1..=200).collect();
        let at = below(&mut shedding, &[4, 5, 6], &many);
        assert!(at.is_sorted() && at[0] > 1 && at[2] == 200, "{at:?}");
    }

    #[test]
    fn where_all_have_one_priority_nothing_gives_way() {
        let mut shedding = Shedding::default();
        assert_eq!(below(&mut shedding, &[7, 7], &[100]), [0, 0]);
        assert_eq!(below(&mut shedding, &[7], &[]), [0]);
        // A generation without priorities arrives while one gives way.
        assert_eq!(below(&mut shedding, &[7], &[1, 2]), [2]);
        assert_eq!(below(&mut shedding, &[7], &[1]), [0]);
    }

    #[test]
    fn each_time_that_it_begins_counts_and_a_batch_records_one_packet_without_a_flow() {
        let mut shedding = Shedding::default();
        let begun: Vec<bool> =
            [4, 7, 1, 5].iter().map(|backlog| shedding.update(*backlog, &[0, 1])).collect();
        assert_eq!(begun, [true, false, false, true]);
        assert!(shedding.take_opening_record() && !shedding.take_opening_record());
        shedding.update(4, &[0, 1]);
        assert!(shedding.take_opening_record());
    }
}
