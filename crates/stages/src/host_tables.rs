// SPDX-License-Identifier: Apache-2.0
//! Maintenance of the tables that functions keep per host: values expire by the packet clock, in small steps,
//! and the counters are exported.
//!
//! All workers share the tables, and each expires a part. Over captures, where workers are at different
//! places, one worker expires all values, in its turn: values then expire at the same frame as with a single
//! worker.

use crate::chain::Chains;
use bartizan_base::{PacketDuration, Timestamp, turns};
use bartizan_flow::host::HostCounters;

/// Time between two steps while values expire. `IDLE`: after a step in which none did.
pub const EVERY: PacketDuration = PacketDuration::from_millis(50);
const IDLE: PacketDuration = PacketDuration::from_millis(1_000);
/// Timers of a table that one step checks.
pub const TIMERS: u32 = 256;

/// A worker's part of the maintenance.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostCare {
    /// Time of the worker's next step.
    due: Timestamp,
}

impl HostCare {
    /// The part of a worker that leaves all maintenance to another one.
    #[must_use]
    pub const fn of_another() -> Self {
        HostCare { due: Timestamp::from_nanos(u64::MAX) }
    }

    /// Lets some values per host expire if a step is due. Called for each packet; costs a comparison.
    #[inline]
    pub fn expire(&mut self, chains: &Chains, now: Timestamp) {
        if now >= self.due {
            self.expire_due(chains, now);
        }
    }

    #[cold]
    fn expire_due(&mut self, chains: &Chains, now: Timestamp) {
        if !chains.host_tables.is_empty() {
            turns::wait_for_turn();
        }
        let gone = chains.host_tables.iter().map(|(_, table)| table.expire(now, TIMERS)).sum::<u32>();
        self.due = now + if gone > 0 { EVERY } else { IDLE };
    }
}

/// Counters of the tables, by function. Workers share the tables, so all report the same.
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
