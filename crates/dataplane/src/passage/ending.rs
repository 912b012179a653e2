// SPDX-License-Identifier: Apache-2.0
//! The end of a flow: held data is inspected and recorded, then the flow's own record is written.

use super::Passage;
use bartizan_base::{Direction, FlowId, Timestamp};
use bartizan_flow::EndReason;
use bartizan_stages::record::EndOfFlow;
use bartizan_stages::settings::ENDS_REPLAYED;

/// Most timers that are checked per packet, so that no packet waits for a long list.
pub(crate) const TIMERS_PER_PACKET: u32 = 256;
/// Flows that an idle worker ends by timeout before it checks for packets again.
pub(crate) const ENDS_WHEN_IDLE: u32 = 32;

/// The frame number after all others, for [`bartizan_base::turns::CaptureTurn::at`].
const AT_THE_END: u64 = u64::MAX - 1;

impl Passage<'_> {
    /// Ends a flow. A flow below the host leaves its level first, and ends when all its packets are counted;
    /// a new connection with its key may begin at once.
    pub(crate) fn end_flow(&mut self, id: FlowId, reason: EndReason) {
        let clock = self.cx.position.clock;
        if !self.flows.table_mut().begin_end(id, reason, clock) {
            return;
        }
        if let Some(entry) = self.flows.get_mut(id) {
            let effects = self.runner.finish_inspection(&mut self.cx, entry);
            self.apply(id, effects);
        }
        self.cx.account.discharge(self.flows, id);
        self.count_end(id);
        self.note_why_not_below(id);
        let below = self.flows.below(id);
        self.flows.note_bypassed_below(id, below.as_ref());
        if let Some(entry) = self.flows.get_mut(id) {
            // Before the release: the record shows gaps, regions and urgent bytes of the streams.
            self.cx.recorder.flow(entry, &EndOfFlow { reason, now: clock, below });
            if let Some(pair) = entry.ext.streams.as_deref_mut() {
                pair.release(self.runner.budget_mut());
            }
        }
        self.flows.note_end(id);
        if let Some(mut ext) = self.flows.table_mut().remove(id, reason) {
            ext.session.release(self.runner.stream_counters_mut());
        }
    }

    /// Ends a flow whose timeout has passed, when a packet finds it.
    pub(super) fn end_stale(&mut self, id: FlowId) {
        self.flows.table_mut().counters_mut().wrk_evicted += 1;
        self.end_flow(id, EndReason::Timeout);
    }

    /// Counts the end of a flow by facts that only its extension has.
    fn count_end(&mut self, id: FlowId) {
        let Some(entry) = self.flows.get_mut(id) else { return };
        let protocol = entry.key().protocol();
        self.cx.account.app_stats.note(protocol, &mut entry.ext);
        let [sources, destinations] = Direction::BOTH.map(|side| entry.ext.macs_of(side).len() as u64);
        let session = &entry.ext.session;
        if let Some(state) = session.exists().then(|| session.state()) {
            self.flows.table_mut().counters_mut().ended_tcp(state);
        }
        self.intake.note_macs(sources, destinations);
    }

    /// Ends some of the flows whose timeout has passed: called for each packet.
    pub(crate) fn expire(&mut self, now: Timestamp) {
        let most = self.cx.settings.ends_per_packet;
        if most == ENDS_REPLAYED {
            self.end_all_due(now);
        } else {
            self.end_due(now, most);
        }
    }

    /// Ends all flows whose timeout has passed, in the order in which they began.
    fn end_all_due(&mut self, now: Timestamp) {
        self.announce();
        let mut budget = u32::MAX;
        let Some(first) = self.flows.table_mut().next_due(now, &mut budget) else { return };
        let mut due = self.flows.take_due();
        due.push((self.flows.get(first).map_or(0, |flow| flow.ext.began), first));
        while let Some(id) = self.flows.table_mut().next_due(now, &mut budget) {
            due.push((self.flows.get(id).map_or(0, |flow| flow.ext.began), id));
        }
        due.sort_unstable_by_key(|(began, id)| (*began, id.0));
        for (began, id) in due.drain(..) {
            self.cx.position.wait_for(self.cx.position.place >> 8, began);
            self.end_flow(id, EndReason::Timeout);
        }
        self.flows.recycle_due(due);
    }

    /// Ends at most `most` flows whose timeout has passed. Returns whether more may be due.
    pub(crate) fn end_due(&mut self, now: Timestamp, most: u32) -> bool {
        self.announce();
        let mut budget = TIMERS_PER_PACKET;
        for _ in 0..most {
            let Some(id) = self.flows.table_mut().next_due(now, &mut budget) else { return budget == 0 };
            self.end_flow(id, EndReason::Timeout);
        }
        true
    }

    /// Gives up held fragments, and ends all flows, in the order of their creation.
    pub(crate) fn end_all(&mut self) {
        self.intake.discard_all(&mut self.cx, self.runner.chains());
        self.leave_level();
        for id in self.flows.as_they_began() {
            let began = self.flows.get(id).map_or(0, |flow| flow.ext.began);
            self.cx.position.wait_for(AT_THE_END, began);
            // A flow that is over and waits only for its level's counters keeps its own end reason.
            let reason = self.flows.table().over_for(id).unwrap_or(EndReason::Shutdown);
            self.end_flow(id, reason);
        }
    }
}
