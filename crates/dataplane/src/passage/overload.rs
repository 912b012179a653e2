// SPDX-License-Identifier: Apache-2.0
//! Shedding of state when the memory for application layers is used up, or that for streams nearly so.
//!
//! The flows of the tenant that holds most are visited in turn (`bartizan_stages::victims`), and one of them
//! is closed: first flows that are not inspected any more (bypassed, passed, refused) and connections that
//! are over; then those whose policy has the lower priority; then the flow that holds much memory for long:
//! memory beyond that of an idle connection, times the time since its last packet. Flows that rank as low as
//! the first one of a whole round are closed one after the other, and whole pages with them. So an idle flood
//! is closed before a request in progress, and a flow that holds 400 KB before flows that hold 4.
//!
//! For streams, among connections of one priority, one that is silent for longer than it had lived is closed
//! before one that is not: connections that send now and then rest for longer than a fast flood needs to fill
//! the pool. Memory that waits for missing bytes, as a flood leaves it after gaps, counts in full; inspected
//! bytes that are kept to look back, which each connection has, count for a small part. A few flows are
//! closed per packet; if that is not enough, the flows that the current packet made larger are closed, so the
//! bound holds in any case. (Not so for streams: a round continues with the next packet while there is room,
//! and data that finds none is refused by the streams' budget.)
//!
//! Closing a flow: open transactions count as ended and are inspected as far as they go and recorded; then
//! the parser, the transactions and the state that functions keep for later data are freed, and, where memory
//! of streams is short, the streams' buffers too. The flow continues by the overload action of its policy, or
//! else by `app-layer.memcap-policy` or `stream.reassembly.memcap-policy`; unless these settings say so,
//! prevention forwards nothing unparsed that would have been parsed (docs/limits.md).

use super::Passage;
use bartizan_applayer::flow::Disruption;
use bartizan_applayer::protocol::Transport as AppTransport;
use bartizan_base::{Direction, FlowId, Timestamp};
use bartizan_flow::EndReason;
use bartizan_flow::stream::StreamPair;
use bartizan_flow::tcp::{ExceptionPolicy, ExceptionTarget, Segment, TcpFlags, TcpState};
use bartizan_stages::app_memory::{MemoryPool, Passed};
use bartizan_stages::chain::Chains;
use bartizan_stages::flow_ext::FunctionSlot;
use bartizan_stages::notice::QuotaKind;
use bartizan_stages::overload::OverloadAction;
use bartizan_stages::record::Entry;
use bartizan_stages::runner::{Effects, apply_policy, info_of};
use bartizan_stages::victims::Rank;

/// Most flows that are closed for a packet, beside those that it made larger.
pub(crate) const CLOSINGS: usize = 4;
/// Flows visited to choose one.
pub(crate) const LOOKED_AT: usize = 128;
/// Typical application-layer memory of an idle connection, in bytes.
const IDLE: u64 = 6 << 10;
/// Divisor of stream memory that readers have seen, against memory that waits.
const SEEN_PART: u64 = 1024;

/// Whether a flow's application layer is not inspected any more: the flow is decided, or its policy wants no
/// more payload inspected.
fn is_settled(entry: &Entry, chains: &Chains) -> bool {
    !entry.ext.standing.is_read(entry.state()) || !chains.wants_payload(entry.path)
}

/// Whether a flow is a connection that is over: its memory serves rules that look back, and no data follows.
/// (The receiver of a reset may think otherwise.)
fn is_over(entry: &Entry) -> bool {
    entry.ext.session.state() == TcpState::Closed
}

/// Milliseconds between two timestamps.
const fn millis(later: Timestamp, earlier: Timestamp) -> u64 {
    later.since(earlier).as_nanos() / 1_000_000
}

/// Memory of a flow's streams, weighted by its use; see the module.
fn weight_of_streams(entry: &Entry) -> u64 {
    let waiting = entry.ext.streams.as_deref().map_or(0, StreamPair::waiting);
    let seen = entry.ext.memory.held.streams.saturating_sub(waiting);
    waiting.saturating_add(seen / SEEN_PART)
}

/// Most flows that end to make room for a session: some of them have none.
pub(crate) const SESSIONS_ENDED: u32 = 4;

impl Passage<'_> {
    /// Prevention: where `stream.memcap` has no room for the session that a SYN opens, closed and half-open
    /// sessions are evicted, the oldest first, as in a full flow table; otherwise a flood of SYNs would cause
    /// all others to be refused.
    pub(super) fn make_session_room(&mut self, id: FlowId, segment: &Segment<'_>) {
        for _ in 0..SESSIONS_ENDED {
            let opens = segment.has(TcpFlags::SYN)
                && self.flows.get(id).is_some_and(|entry| !entry.ext.session.exists());
            let settings = self.cx.settings;
            if !opens || !settings.prevention || self.runner.has_session_room(settings) {
                return;
            }
            match self.flows.table_mut().session_to_end(self.cx.position.clock) {
                Some(other) if other != id => self.end_flow(other, EndReason::Forced),
                _ => return,
            }
        }
    }

    /// Closes flows until the bounds hold. Called between packets.
    #[inline]
    pub(super) fn relieve(&mut self) {
        // A flow whose segments wait for the next one must not be closed before they are inspected.
        if self.runner.train.is_waiting() {
            return;
        }
        if self.cx.account.memory.passed().is_some() {
            self.close_until_bounds_hold();
        }
        self.cx.account.memory.forget_grown();
    }

    #[cold]
    fn close_until_bounds_hold(&mut self) {
        let kept = (self.cx.account.fid, self.cx.leaving.change.take());
        let grown = self.cx.account.memory.take_grown();
        for _ in 0..CLOSINGS {
            let Some(passed) = self.cx.account.memory.passed() else { break };
            if let Some(id) = self.next_to_give_way(passed, &grown) {
                self.close(id, passed.pool());
            }
        }
        for id in grown {
            let passed = self.cx.account.memory.passed();
            if passed.is_none_or(|passed| passed.pool() == MemoryPool::Streams) {
                break;
            }
            let counts = |entry: &Entry| match passed {
                Some(Passed::Tenant(tenant, _)) => entry.tenant() == tenant && entry.ext.memory.held.app > 0,
                _ => entry.ext.memory.held.app > 0,
            };
            if self.flows.get(id).is_some_and(counts) {
                self.cx.account.memory.counters.in_hand += 1;
                self.close(id, MemoryPool::App);
            }
        }
        self.cx.account.memory.note_relieved();
        (self.cx.account.fid, self.cx.leaving.change) = kept;
    }

    /// The flow that is closed next. `grown`: the flows that the current packet made larger.
    fn next_to_give_way(&mut self, passed: Passed, grown: &[FlowId]) -> Option<FlowId> {
        let pool = passed.pool();
        self.cx.account.memory.aim(passed);
        let (flows, clock) = (&*self.flows, self.cx.position.clock);
        let chains = self.runner.chains();
        let rank = |id: FlowId| {
            let entry = flows.get(id)?;
            let charge = &entry.ext.memory;
            let counts = match passed {
                Passed::Total => charge.held.app > 0,
                Passed::Protocol(protocol) => charge.protocol() == Some(protocol),
                // The new data still has room.
                Passed::Streams | Passed::Tenant(_, MemoryPool::Streams) => {
                    charge.held.streams > 0 && !grown.contains(&id)
                }
                Passed::Tenant(_, MemoryPool::App) => charge.held.app > 0,
            };
            if !counts {
                return None;
            }
            let idle = millis(clock, entry.last_seen);
            let (held, goes_on) = match pool {
                MemoryPool::App => (charge.held.app.saturating_sub(IDLE), true),
                MemoryPool::Streams => {
                    (weight_of_streams(entry), idle <= millis(entry.last_seen, entry.start))
                }
            };
            let weight = held.saturating_mul(idle.saturating_add(1));
            // Flows that are not inspected any more are closed first, if they hold enough.
            let needed = !is_settled(entry, chains) && !is_over(entry)
                || pool == MemoryPool::App && charge.held.app <= IDLE;
            let priority = chains.overload(entry.fid).priority;
            Some(Rank { needed, priority, goes_on, weight, idle })
        };
        self.cx.account.memory.next_to_give_way(pool, LOOKED_AT, rank)
    }

    /// Closes a flow; see the module.
    fn close(&mut self, id: FlowId, pool: MemoryPool) {
        let Some(entry) = self.flows.get_mut(id) else { return };
        let held = entry.ext.memory.held.app;
        let settled = is_settled(entry, self.runner.chains());
        let is_done = settled || is_over(entry) && entry.ext.session.ends_are_acknowledged();
        let tcp = entry.key().protocol() == 6;
        let transport = if tcp { AppTransport::Tcp } else { AppTransport::Udp };
        let info = info_of(self.cx.settings, entry, self.cx.position.clock, transport);
        let mut effects = Effects::NONE;
        if !settled {
            if let Some(app) = entry.ext.app.as_deref_mut() {
                for direction in Direction::BOTH {
                    app.disrupt(self.runner.engine(), direction, Disruption::Memory, &info);
                }
            }
            effects |= self.runner.inspect_what_is_there(&mut self.cx, entry).effects;
        }
        if let Some(app) = entry.ext.app.as_deref_mut() {
            entry.ext.earlier_tx += app.parser().map_or(0, |p| p.tx_range().end);
            app.close(self.runner.engine(), &info);
        }
        // Another generation may judge a flow without a connection anew: detection of its protocol begins
        // again.
        if settled && !tcp {
            entry.ext.app = None;
        }
        entry.ext.slots.iter_mut().for_each(FunctionSlot::release_state);
        if let Some(pair) = entry.ext.streams.as_deref_mut() {
            Direction::BOTH.into_iter().for_each(|direction| pair.stream_mut(direction).app_stop());
        }
        if pool == MemoryPool::Streams {
            effects |= self.runner.stop_reading(entry);
        }
        self.apply(id, effects);
        self.cx.account.measure(self.flows, id);
        if let Some(tenant) = self.cx.account.memory.note_closed() {
            self.runner.report_exceeded(&mut self.cx, tenant, QuotaKind::State);
        }
        let counters = &mut self.cx.account.memory.counters;
        match pool {
            MemoryPool::App => counters.closed += 1,
            MemoryPool::Streams => counters.streams += 1,
        }
        counters.freed = counters.freed.saturating_add(held);
        if !is_done {
            self.overload_action(id, pool);
        }
    }

    /// The action on a flow that was closed.
    fn overload_action(&mut self, id: FlowId, pool: MemoryPool) {
        let Some(entry) = self.flows.get_mut(id) else { return };
        let (target, general) = match pool {
            MemoryPool::App => (ExceptionTarget::AppLayerMemory, self.cx.settings.app_memory_policy),
            MemoryPool::Streams => {
                (ExceptionTarget::ReassemblyMemory, self.cx.settings.stream.reassembly.memcap_policy)
            }
        };
        let policy = match self.runner.chains().overload(entry.fid).action {
            OverloadAction::Settings => general,
            OverloadAction::Inspect => ExceptionPolicy::Ignore,
            OverloadAction::Pass => ExceptionPolicy::PassFlow,
            OverloadAction::Drop => ExceptionPolicy::DropFlow,
        };
        if policy == ExceptionPolicy::Ignore {
            return;
        }
        let exception = (target, policy);
        if !entry.ext.exceptions.contains(&exception) {
            entry.ext.exceptions.push(exception);
        }
        let refused = apply_policy(self.cx.settings, entry, target, policy);
        // Also where the policy concerns the current packet only: that one is gone, and the data that follows
        // cannot be parsed.
        if let Some(refused) = refused {
            entry.ext.standing.refuse(refused);
            let effects = self.runner.stop_reading(entry);
            self.apply(id, effects);
        }
        self.raise_if_refused(id);
        if policy == ExceptionPolicy::Bypass && self.flows.bypass(id) {
            self.cx.account.counters.bypassed_flows += 1;
        }
    }
}
