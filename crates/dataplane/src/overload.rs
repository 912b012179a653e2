// SPDX-License-Identifier: Apache-2.0
//! What gives way when memory for application layers is used up, or nearly that for streams.
//!
//! Of the flows of the tenant that holds most some are looked at in turn, and one of them is closed: first such as nobody inspects any
//! more (bypassed, passed, refused), then those whose policy has the lower priority, then the one that holds much for long: memory beyond
//! that of an idle connection, times the time since its last packet. One that goes about as soon as the one that went last is taken at
//! once: so neighbours in a flood go one after the other, and whole pages with them. So an idle flood goes before a request that is under way, and one that
//! holds 400 KB before ones that hold 4. A few are closed per packet; if that is not enough, the flows that the packet in hand made
//! larger are closed, and the bound holds whatever comes. (Not so for streams: what finds no room there is refused by their budget.)
//!
//! Closed means: what is open counts as ended, is inspected with what is there and recorded, then parser, transactions and what functions
//! remember for data to come go; where memory of streams is short, their buffers, too. The flow goes on by the overload action of its policy,
//! or else by `app-layer.memcap-policy` or `stream.reassembly.memcap-policy`; unless that says so nothing that would have been parsed
//! passes prevention without (docs/limits.md).

use crate::app_memory::{Charge, Held, Passed, Pool, Rank};
use crate::flow_ext::{FlowExt, FunctionSlot};
use crate::record::{Entry, Recorder};
use crate::streams;
use crate::worker::Worker;
use bartizan_applayer::flow::{AppLayer, Disruption};
use bartizan_applayer::protocol::Transport as AppTransport;
use bartizan_base::{Direction, FlowId, TenantId};
use bartizan_flow::stream::StreamPair;
use bartizan_flow::tcp::{ExceptionPolicy, ExceptionTarget};
use smallvec::SmallVec;

/// Flows that are closed for a packet at most, beside those that it made larger.
pub(crate) const CLOSINGS: usize = 4;
/// Flows looked at to close one.
pub(crate) const LOOKED_AT: usize = 16;
/// As many again are looked at so many times when all of them are needed more than the flow that went last, or hold nothing of what is short.
pub(crate) const DRAWS: usize = 8;
/// An idle connection holds about this much of the application layer's memory.
const IDLE: u64 = 6 << 10;
/// The same of streams: a window for rules in each direction.
const IDLE_STREAMS: u64 = 8 << 10;

/// What is done with a flow that gives way under overload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverloadAction {
    /// As `app-layer.memcap-policy` says.
    #[default]
    Settings,
    /// The flow goes on; its packets and streams are inspected, its protocol is not parsed any more.
    Inspect,
    /// The flow passes uninspected.
    Pass,
    /// The flow is refused.
    Drop,
}

/// How a class of flows stands under overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overload {
    /// Flows of lower priority give way first.
    pub priority: u8,
    /// What is done with a flow that gives way.
    pub action: OverloadAction,
}

impl Overload {
    /// What holds where a policy says nothing.
    pub const DEFAULT: Overload = Overload { priority: 100, action: OverloadAction::Settings };
}

impl Default for Overload {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Whether everything about a flow is decided, so that nobody looks at its application layer any more.
fn is_settled(entry: &Entry) -> bool {
    !entry.ext.standing.is_read(entry.state())
}

impl Worker {
    /// Counts what a flow holds now.
    pub(crate) fn account(&mut self, id: FlowId) {
        let Some(entry) = self.flows.get_mut(id) else { return };
        let of_tenant = entry.tenant();
        let FlowExt { app, streams, slots, memory, .. } = &mut entry.ext;
        let (parsed, protocol) = match app.as_deref_mut() {
            Some(app) => (app.held(), app.summary().current()),
            None => (0, None),
        };
        let remembered = slots.iter().fold(0usize, |sum, slot| sum.saturating_add(slot.held()));
        let held = Held {
            app: parsed.saturating_add(remembered) as u64,
            streams: streams.as_deref().map_or(0, StreamPair::held),
        };
        let moved = self.app_memory.set(id, memory, held, (of_tenant, protocol));
        self.note_moved(moved);
    }

    /// A flow ends: what it held is free.
    pub(crate) fn discharge(&mut self, id: FlowId) {
        let Some(entry) = self.flows.get_mut(id) else { return };
        let of = (entry.tenant(), None);
        let moved = self.app_memory.set(id, &mut entry.ext.memory, Held::default(), of);
        self.note_moved(moved);
    }

    /// A flow goes to another worker: what it held is no matter of this one's any more.
    pub(crate) fn discharge_moved(&mut self, id: FlowId, of: TenantId, memory: &mut Charge) {
        let moved = self.app_memory.set(id, memory, Held::default(), (of, None));
        self.note_moved(moved);
    }

    fn note_moved(&mut self, moved: Option<(FlowId, u32)>) {
        if let Some((other, place)) = moved
            && let Some(entry) = self.flows.get_mut(other)
        {
            entry.ext.memory.moved(place);
        }
    }

    /// Closes flows until the bounds hold. To be called between packets.
    #[inline]
    pub(crate) fn relieve(&mut self, recorder: &mut dyn Recorder) {
        // The flows whose segments wait for the next one must not be closed under them.
        if self.train.is_waiting() {
            return;
        }
        if self.app_memory.passed().is_some() {
            self.close_until_bounds_hold(recorder);
        }
        self.app_memory.forget_grown();
    }

    #[cold]
    fn close_until_bounds_hold(&mut self, recorder: &mut dyn Recorder) {
        let kept = (self.fid, self.rewrite.take());
        let grown = self.app_memory.take_grown();
        for _ in 0..CLOSINGS {
            let Some(passed) = self.app_memory.passed() else { break };
            let Some(id) = self.next_to_give_way(passed, &grown) else { break };
            self.close(id, passed.pool(), recorder);
        }
        for id in grown {
            if self.app_memory.passed().is_none_or(|passed| passed.pool() == Pool::Streams) {
                break;
            }
            if self.flows.get(id).is_some_and(|entry| entry.ext.memory.held.app > 0) {
                self.app_memory.counters.in_hand += 1;
                self.close(id, Pool::App, recorder);
            }
        }
        (self.fid, self.rewrite) = kept;
    }

    /// The flow that is closed next. `grown`: those that the packet in hand made larger.
    fn next_to_give_way(&mut self, passed: Passed, grown: &[FlowId]) -> Option<FlowId> {
        let pool = passed.pool();
        let mut drawn = SmallVec::new();
        let mut first: Option<(Rank, FlowId)> = None;
        for _ in 0..DRAWS {
            self.app_memory.draw(pool, LOOKED_AT, &mut drawn);
            let rank = |id: &FlowId| {
                let entry = self.flows.get(*id)?;
                let charge = &entry.ext.memory;
                let counts = match passed {
                    Passed::Total => charge.held.app > 0,
                    Passed::Protocol(protocol) => charge.protocol() == Some(protocol),
                    // There still is room for what came just now.
                    Passed::Streams => charge.held.streams > 0 && !grown.contains(id),
                };
                let (held, usual) = match pool {
                    Pool::App => (charge.held.app, IDLE),
                    Pool::Streams => (charge.held.streams, IDLE_STREAMS),
                };
                let idle = self.clock.since(entry.last_seen).as_nanos() / 1_000_000;
                let weight = held.saturating_sub(usual).saturating_mul(idle.saturating_add(1));
                // What nobody looks at any more goes first, if it is worth it.
                let needed = !is_settled(entry) || pool == Pool::App && held <= IDLE;
                let priority = self.chains.overload(entry.fid).priority;
                counts.then_some(Rank { needed, priority, weight, idle })
            };
            let last = *self.app_memory.last_rank(pool);
            let ranked: SmallVec<[Option<Rank>; LOOKED_AT]> = drawn.iter().map(rank).collect();
            // The first that is like the one before it, so that neighbours go together.
            let alike = ranked.iter().position(|rank| rank.is_some_and(|rank| rank.is_about(&last)));
            self.app_memory.pass_over(pool, alike.unwrap_or(drawn.len()));
            let among = alike.map_or(0..ranked.len(), |at| at..at + 1);
            for (rank, id) in among.filter_map(|at| Some(((*ranked.get(at)?)?, *drawn.get(at)?))) {
                if first.is_none_or(|(known, _)| rank < known) {
                    first = Some((rank, id));
                }
            }
            // Else the first of all in rank; one that is worth more than the one before it only if there is no other.
            if alike.is_some() || first.is_some_and(|(rank, _)| !rank.is_worth_more(&last)) {
                break;
            }
        }
        let (rank, id) = first?;
        *self.app_memory.last_rank(pool) = rank;
        Some(id)
    }

    /// Closes a flow; see the module.
    fn close(&mut self, id: FlowId, pool: Pool, recorder: &mut dyn Recorder) {
        let Some(entry) = self.flows.get(id) else { return };
        let held = entry.ext.memory.held.app;
        let settled = is_settled(entry);
        let tcp = entry.key().protocol() == 6;
        let transport = if tcp { AppTransport::Tcp } else { AppTransport::Udp };
        let Some(info) = streams::info_of(self, id, self.clock, transport) else { return };
        if !settled {
            if let Some(app) = self.flows.get_mut(id).and_then(|e| e.ext.app.as_deref_mut()) {
                for direction in Direction::BOTH {
                    app.disrupt(&self.engine, direction, Disruption::Memory, &info);
                }
            }
            self.inspect_what_is_there(id, recorder);
        }
        let Some(entry) = self.flows.get_mut(id) else { return };
        if let Some(app) = entry.ext.app.as_deref_mut() {
            entry.ext.earlier_tx += app.parser().map_or(0, |p| p.tx_range().end);
            app.close(&self.engine, &info);
        }
        // Another generation may judge a flow without a connection anew: its next datagram begins anew, too.
        if settled && !tcp {
            entry.ext.app = None;
        }
        entry.ext.slots.iter_mut().for_each(FunctionSlot::let_go);
        if let Some(pair) = entry.ext.streams.as_deref_mut() {
            Direction::BOTH.into_iter().for_each(|direction| pair.stream_mut(direction).app_stop());
        }
        if pool == Pool::Streams {
            self.stop_reading(id);
        }
        self.account(id);
        let counters = &mut self.app_memory.counters;
        match pool {
            Pool::App => counters.closed += 1,
            Pool::Streams => counters.streams += 1,
        }
        counters.freed = counters.freed.saturating_add(held);
        if !settled {
            self.overload_action(id, pool);
        }
    }

    /// What becomes of a flow that gave way.
    fn overload_action(&mut self, id: FlowId, pool: Pool) {
        let Some(entry) = self.flows.get_mut(id) else { return };
        let (target, general) = match pool {
            Pool::App => (ExceptionTarget::AppLayerMemory, self.settings.app_memory_policy),
            Pool::Streams => {
                (ExceptionTarget::ReassemblyMemory, self.settings.stream.reassembly.memcap_policy)
            }
        };
        let policy = match self.chains.overload(entry.fid).action {
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
        let refused = self.apply_policy(id, target, policy);
        if policy == ExceptionPolicy::Bypass {
            self.bypass(id);
        }
        // Also where a policy speaks about the packet in hand only: that one has gone, and what follows cannot be parsed.
        if let Some(refused) = refused
            && let Some(entry) = self.flows.get_mut(id)
        {
            entry.ext.standing.refuse(refused);
            self.stop_reading(id);
        }
    }
}

/// Whether an application layer was closed because memory was used up.
#[must_use]
pub fn is_closed(app: &AppLayer) -> bool {
    app.disrupted(Direction::ToServer) == Some(Disruption::Memory)
        || app.disrupted(Direction::ToClient) == Some(Disruption::Memory)
}
