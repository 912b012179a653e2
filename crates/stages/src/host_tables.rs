// SPDX-License-Identifier: Apache-2.0
//! Care for what functions keep per host: values expire by the packet clock, in small steps, and their
//! counters are shown.
//!
//! The tables are those of all workers; each of them does a part. Over captures, where workers are at
//! different places, one of them does all of it, in its turn: so values expire at the same frame as with a
//! single worker.

use crate::chain::Chains;
use bartizan_base::{PacketDuration, Timestamp, turns};
use bartizan_flow::host::HostCounters;

/// Time between two looks at the tables while values expire, and when none did at the last one.
pub const EVERY: PacketDuration = PacketDuration::from_millis(50);
const IDLE: PacketDuration = PacketDuration::from_millis(1_000);
/// Timers of a table that are looked at each time.
pub const TIMERS: u32 = 256;

/// A worker's part of the care.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostCare {
    /// When the tables are looked through next.
    due: Timestamp,
}

impl HostCare {
    /// That of a worker for which another one does it.
    #[must_use]
    pub const fn of_another() -> Self {
        HostCare { due: Timestamp::from_nanos(u64::MAX) }
    }

    /// Lets values per host expire, some of them. To be called for each packet, which costs a comparison.
    #[inline]
    pub fn expire(&mut self, chains: &Chains, now: Timestamp) {
        if now >= self.due {
            self.look_through(chains, now);
        }
    }

    #[cold]
    fn look_through(&mut self, chains: &Chains, now: Timestamp) {
        if !chains.host_tables.is_empty() {
            turns::wait_for_turn();
        }
        let gone = chains.host_tables.iter().map(|(_, table)| table.expire(now, TIMERS)).sum::<u32>();
        self.due = now + if gone > 0 { EVERY } else { IDLE };
    }
}

/// Counters of the tables, by function. The tables are shared: those of other workers are the same.
pub fn host_counters(chains: &Chains) -> impl Iterator<Item = (&'static str, HostCounters)> {
    chains.host_tables.iter().map(|(function, table)| (*function, table.counters()))
}

/// The counters of all tables together, by their names in EVE's `stats`.
pub fn visit_hosts(chains: &Chains, each: &mut impl FnMut(&'static str, u64)) {
    if chains.host_tables.is_empty() {
        return;
    }
    let mut sum = HostCounters::default();
    host_counters(chains).for_each(|(_, counters)| sum.add(&counters));
    sum.visit(each);
}
