// SPDX-License-Identifier: Apache-2.0
//! A packet counts: for its flow, and for the flow's rate where rates are tracked (`flow.rate-tracking`).

use crate::worker::Worker;
use bartizan_base::{Direction, FlowId, Timestamp};
use bartizan_flow::rate::{Rate, RateLimit};
use bartizan_flow::{Accounted, FlowFlags};

impl Worker {
    /// Counts a packet of a flow, as `FlowTable::account` does.
    pub(crate) fn count_packet(
        &mut self,
        id: FlowId,
        direction: Direction,
        length: u32,
        now: Timestamp,
        proves: bool,
    ) -> Accounted {
        let accounted = self.flows.account(id, direction, length, now, proves);
        if let Some(limit) = self.settings.flow_rate {
            self.count_rate(id, direction, length, now, limit);
        }
        accounted
    }

    fn count_rate(
        &mut self,
        id: FlowId,
        direction: Direction,
        length: u32,
        now: Timestamp,
        limit: RateLimit,
    ) {
        let Some(entry) = self.flows.get_mut(id) else { return };
        let rate = entry.ext.rate.get_or_insert_with(|| Box::new(Rate::new(limit)));
        let mark = FlowFlags::elephant(direction);
        if rate.add(direction, length, now) < limit.bytes || entry.flags.contains(mark) {
            return;
        }
        let first = !entry.is_elephant();
        entry.flags.insert(mark);
        let elephants = self.flows.counters_mut().elephants.get_or_insert_default();
        elephants.flows += u64::from(first);
        elephants.by_direction[direction] += 1;
    }
}
