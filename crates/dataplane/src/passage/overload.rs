// SPDX-License-Identifier: Apache-2.0
//! What gives way when memory for application layers is used up, or nearly that for streams.
//!
//! Of the flows of the tenant that holds most some are looked at in turn, and one of them is closed: first such as nobody inspects any
//! more (bypassed, passed, refused) and connections that are over, then those whose policy has the lower priority, then the one that holds much for long: memory beyond
//! that of an idle connection, times the time since its last packet. One that goes about as soon as the one that went last is taken at
//! once: so neighbours in a flood go one after the other, and whole pages with them. So an idle flood goes before a request that is under way, and one that
//! holds 400 KB before ones that hold 4. A few are closed per packet; if that is not enough, the flows that the packet in hand made
//! larger are closed, and the bound holds whatever comes. (Not so for streams: what finds no room there is refused by their budget.)
//!
//! Closed means: what is open counts as ended, is inspected with what is there and recorded, then parser, transactions and what functions
//! remember for data to come go; where memory of streams is short, their buffers, too. The flow goes on by the overload action of its policy,
//! or else by `app-layer.memcap-policy` or `stream.reassembly.memcap-policy`; unless that says so nothing that would have been parsed
//! passes prevention without (docs/limits.md).

use super::Passage;
use bartizan_applayer::flow::Disruption;
use bartizan_applayer::protocol::Transport as AppTransport;
use bartizan_base::{Direction, FlowId};
use bartizan_flow::tcp::{ExceptionPolicy, ExceptionTarget, TcpState};
use bartizan_stages::app_memory::{Passed, Pool, Rank};
use bartizan_stages::chain::Chains;
use bartizan_stages::flow_ext::FunctionSlot;
use bartizan_stages::notice::QuotaKind;
use bartizan_stages::overload::OverloadAction;
use bartizan_stages::record::Entry;
use bartizan_stages::runner::{apply_policy, info_of};
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

/// Whether nobody looks at a flow's application layer any more: everything about it is decided, or its policy wants no more of it inspected.
fn is_settled(entry: &Entry, chains: &Chains) -> bool {
    !entry.ext.standing.is_read(entry.state()) || !chains.wants_payload(entry.path)
}

/// Whether a flow is a connection that is over: what it holds is for rules that look back, and nothing is to come. (Of one that was reset its receiver may think otherwise.)
fn is_over(entry: &Entry) -> bool {
    entry.ext.session.state() == TcpState::Closed
}

impl Passage<'_> {
    /// Closes flows until the bounds hold. To be called between packets.
    #[inline]
    pub(super) fn relieve(&mut self) {
        // The flows whose segments wait for the next one must not be closed under them.
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
            let Some(id) = self.next_to_give_way(passed, &grown) else { break };
            self.close(id, passed.pool());
        }
        for id in grown {
            let passed = self.cx.account.memory.passed();
            if passed.is_none_or(|passed| passed.pool() == Pool::Streams) {
                break;
            }
            let counts = |entry: &Entry| match passed {
                Some(Passed::Tenant(tenant, _)) => entry.tenant() == tenant && entry.ext.memory.held.app > 0,
                _ => entry.ext.memory.held.app > 0,
            };
            if self.flows.get(id).is_some_and(counts) {
                self.cx.account.memory.counters.in_hand += 1;
                self.close(id, Pool::App);
            }
        }
        self.cx.account.memory.note_relieved();
        (self.cx.account.fid, self.cx.leaving.change) = kept;
    }

    /// The flow that is closed next. `grown`: those that the packet in hand made larger.
    fn next_to_give_way(&mut self, passed: Passed, grown: &[FlowId]) -> Option<FlowId> {
        let pool = passed.pool();
        self.cx.account.memory.aim(passed);
        let mut drawn = SmallVec::new();
        let mut first: Option<(Rank, FlowId)> = None;
        for _ in 0..DRAWS {
            self.cx.account.memory.draw(pool, LOOKED_AT, &mut drawn);
            let rank = |id: &FlowId| {
                let entry = self.flows.get(*id)?;
                let charge = &entry.ext.memory;
                let counts = match passed {
                    Passed::Total => charge.held.app > 0,
                    Passed::Protocol(protocol) => charge.protocol() == Some(protocol),
                    // There still is room for what came just now.
                    Passed::Streams | Passed::Tenant(_, Pool::Streams) => {
                        charge.held.streams > 0 && !grown.contains(id)
                    }
                    Passed::Tenant(_, Pool::App) => charge.held.app > 0,
                };
                let (held, usual) = match pool {
                    Pool::App => (charge.held.app, IDLE),
                    Pool::Streams => (charge.held.streams, IDLE_STREAMS),
                };
                let idle = self.cx.position.clock.since(entry.last_seen).as_nanos() / 1_000_000;
                let weight = held.saturating_sub(usual).saturating_mul(idle.saturating_add(1));
                // What nobody looks at any more goes first, if it is worth it.
                let needed = !is_settled(entry, self.runner.chains()) && !is_over(entry)
                    || pool == Pool::App && held <= IDLE;
                let priority = self.runner.chains().overload(entry.fid).priority;
                counts.then_some(Rank { needed, priority, weight, idle })
            };
            let last = *self.cx.account.memory.last_rank(pool);
            let ranked: SmallVec<[Option<Rank>; LOOKED_AT]> = drawn.iter().map(rank).collect();
            // The first that is like the one before it, so that neighbours go together.
            let alike = ranked.iter().position(|rank| rank.is_some_and(|rank| rank.is_about(&last)));
            self.cx.account.memory.pass_over(pool, alike.unwrap_or(drawn.len()));
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
        *self.cx.account.memory.last_rank(pool) = rank;
        Some(id)
    }

    /// Closes a flow; see the module.
    fn close(&mut self, id: FlowId, pool: Pool) {
        let Some(entry) = self.flows.get_mut(id) else { return };
        let held = entry.ext.memory.held.app;
        let settled = is_settled(entry, self.runner.chains());
        let is_done = settled || is_over(entry) && entry.ext.session.ends_are_acknowledged();
        let tcp = entry.key().protocol() == 6;
        let transport = if tcp { AppTransport::Tcp } else { AppTransport::Udp };
        let info = info_of(self.cx.settings, entry, self.cx.position.clock, transport);
        if !settled {
            if let Some(app) = entry.ext.app.as_deref_mut() {
                for direction in Direction::BOTH {
                    app.disrupt(self.runner.engine(), direction, Disruption::Memory, &info);
                }
            }
            self.runner.inspect_what_is_there(&mut self.cx, entry);
        }
        if let Some(app) = entry.ext.app.as_deref_mut() {
            entry.ext.earlier_tx += app.parser().map_or(0, |p| p.tx_range().end);
            app.close(self.runner.engine(), &info);
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
            self.runner.stop_reading(entry);
        }
        self.apply_effects(id);
        self.cx.account.measure(self.flows, id);
        if let Some(tenant) = self.cx.account.memory.note_closed() {
            self.runner.tell_exceeded(&mut self.cx, tenant, QuotaKind::State);
        }
        let counters = &mut self.cx.account.memory.counters;
        match pool {
            Pool::App => counters.closed += 1,
            Pool::Streams => counters.streams += 1,
        }
        counters.freed = counters.freed.saturating_add(held);
        if !is_done {
            self.overload_action(id, pool);
        }
    }

    /// What becomes of a flow that gave way.
    fn overload_action(&mut self, id: FlowId, pool: Pool) {
        let Some(entry) = self.flows.get_mut(id) else { return };
        let (target, general) = match pool {
            Pool::App => (ExceptionTarget::AppLayerMemory, self.cx.settings.app_memory_policy),
            Pool::Streams => {
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
        // Also where a policy speaks about the packet in hand only: that one has gone, and what follows cannot be parsed.
        if let Some(refused) = refused {
            entry.ext.standing.refuse(refused);
            self.runner.stop_reading(entry);
        }
        self.apply_effects(id);
        self.raise_if_refused(id);
        if policy == ExceptionPolicy::Bypass && self.flows.bypass(id) {
            self.cx.account.counters.bypassed_flows += 1;
        }
    }
}
