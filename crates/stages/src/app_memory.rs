// SPDX-License-Identifier: Apache-2.0
//! Memory that a worker's flows hold, in two pools with fair shares by tenant: application layers, with
//! bounds by protocol, and buffers of streams.
//!
//! After each packet, a flow's application layer ([`bartizan_applayer::flow::AppLayer::held`]), the state of
//! functions ([`bartizan_function::SlotState::held`]) and its streams
//! ([`bartizan_flow::stream::StreamPair::held`]) are measured, and the difference is charged here. When a
//! bound is passed, flows give way until the bound holds again ([`crate::overload`]). Memory of application
//! layers is never refused beforehand, and the current flow gives way last: the bound is passed by at most
//! one packet's state. Buffers of streams have a hard bound, which their budget keeps
//! ([`bartizan_flow::stream::MemoryBudget`]): flows give way a little before the bound is reached, so that
//! new flows find room.
//!
//! A tenant with a quota of bytes ([`crate::quotas`]) has a bound of its own, over both pools and all
//! workers: each change here changes the tenant's sum over all workers, and when that sum is too large, only
//! flows of this tenant on this worker give way.
//!
//! Flows that hold memory are listed by tenant; the search for flows that may give way goes through the list
//! in turn. The list costs nothing per packet: a flow enters with its first byte and leaves with its last.

use crate::quotas::{Quotas, StateCharge};
use crate::victims::{Rank, VictimBounds, VictimSearch};
use bartizan_applayer::protocol::ProtocolId;
use bartizan_base::{FlowId, TenantId};
use smallvec::SmallVec;

/// The pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryPool {
    /// Application layers.
    App,
    /// Streams.
    Streams,
}

/// One value per pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerPool<T> {
    /// The value of application layers.
    pub app: T,
    /// The value of streams.
    pub streams: T,
}

impl<T> core::ops::Index<MemoryPool> for PerPool<T> {
    type Output = T;

    fn index(&self, pool: MemoryPool) -> &T {
        match pool {
            MemoryPool::App => &self.app,
            MemoryPool::Streams => &self.streams,
        }
    }
}

impl<T> core::ops::IndexMut<MemoryPool> for PerPool<T> {
    fn index_mut(&mut self, pool: MemoryPool) -> &mut T {
        match pool {
            MemoryPool::App => &mut self.app,
            MemoryPool::Streams => &mut self.streams,
        }
    }
}

/// Bytes by pool.
pub type PoolBytes = PerPool<u64>;

impl PoolBytes {
    const fn is_nothing(&self) -> bool {
        self.app == 0 && self.streams == 0
    }

    fn change(&mut self, before: &PoolBytes, after: &PoolBytes) {
        self.app = self.app.saturating_add(after.app).saturating_sub(before.app);
        self.streams = self.streams.saturating_add(after.streams).saturating_sub(before.streams);
    }
}

/// The memory that a flow is charged with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// Bytes.
    pub held: PoolBytes,
    /// The protocol whose bound counts the bytes of the application layer.
    protocol: Option<ProtocolId>,
    /// The tenant whose list holds the flow.
    tenant: TenantId,
    /// Place in the tenant's list.
    place: u32,
}

/// Bounds of the application layer's memory, in bytes; 0 for none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppMemoryLimits {
    /// Bound of all flows together.
    pub total: u64,
    /// Bounds by protocol, in the order of the table of protocols.
    pub by_protocol: Vec<u64>,
}

impl AppMemoryLimits {
    /// The bounds of one of `workers` workers.
    #[must_use]
    pub fn share(&self, workers: u16) -> Self {
        let part = |limit: u64| limit.div_ceil(u64::from(workers.max(1)));
        AppMemoryLimits {
            total: part(self.total),
            by_protocol: self.by_protocol.iter().map(|l| part(*l)).collect(),
        }
    }
}

/// Divisor of the part of stream memory that is kept free by closing flows.
pub const STREAM_ROOM: u64 = 16;

/// The flows of a tenant that hold memory.
#[derive(Debug, Default)]
struct Tenant {
    used: PoolBytes,
    flows: Vec<FlowId>,
    /// Search for the flow that gives way next, by pool.
    searches: PerPool<VictimSearch>,
    /// The tenant's use of its quota, if it has one.
    charge: Option<StateCharge>,
}

impl Tenant {
    fn note(&mut self) {
        let used = self.used.app.saturating_add(self.used.streams);
        if let Some(charge) = &mut self.charge {
            charge.set(used);
        }
    }

    fn is_over(&self) -> bool {
        self.charge.as_ref().is_some_and(StateCharge::is_over) && !self.flows.is_empty()
    }
}

/// The bound and the use of a protocol.
#[derive(Clone, Copy, Debug, Default)]
struct ProtocolMemory {
    limit: u64,
    used: u64,
    peak: u64,
}

impl ProtocolMemory {
    const fn is_passed(&self) -> bool {
        self.limit > 0 && self.used > self.limit
    }
}

/// The bound that is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// The bound of all application layers.
    Total,
    /// The bound of a protocol.
    Protocol(ProtocolId),
    /// The bound of streams, less the room that is kept free.
    Streams,
    /// The quota of a tenant, with the pool in which the tenant holds more.
    Tenant(TenantId, MemoryPool),
}

impl Passed {
    /// The memory pool in which flows have to be closed.
    pub const fn pool(self) -> MemoryPool {
        match self {
            Passed::Total | Passed::Protocol(_) => MemoryPool::App,
            Passed::Streams => MemoryPool::Streams,
            Passed::Tenant(_, pool) => pool,
        }
    }
}

/// Counters of the measures that keep the bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppMemoryCounters {
    /// Flows whose application layer was closed.
    pub closed: u64,
    /// Number of closed flows that the current packet belonged to, since closing others did not suffice.
    pub in_hand: u64,
    /// Bytes freed.
    pub freed: u64,
    /// Flows closed because stream memory was nearly exhausted.
    pub streams: u64,
    /// Holds of functions on transactions that were refused, or ended since the transaction lay too far back.
    pub holds_refused: u64,
}

/// The memory that a worker's flows hold, by pool, protocol and tenant, with its bounds.
#[derive(Debug, Default)]
pub struct AppMemory {
    total: ProtocolMemory,
    streams: ProtocolMemory,
    peak: u64,
    protocols: Vec<ProtocolMemory>,
    tenants: Vec<Tenant>,
    /// Tenants that hold something.
    active: u64,
    /// The tenant that holds most of each pool, as far as changes have shown.
    heaviest: PerPool<usize>,
    /// A tenant that may hold more than its quota.
    over: Option<usize>,
    /// The tenant whose flows give way; the heaviest one's if `None`.
    aimed: Option<usize>,
    /// Flows that hold more since the last packet.
    grown: SmallVec<[FlowId; 4]>,
    /// Whether a protocol's bound may be passed.
    checks_protocols: bool,
    /// Counters of the measures that keep the bounds, for the statistics.
    pub counters: AppMemoryCounters,
}

impl AppMemory {
    /// An empty account with these bounds. `streams`: bytes that buffers of streams may take, 0 for no bound.
    #[must_use]
    pub fn new(limits: &AppMemoryLimits, streams: u64) -> Self {
        let bound = |limit: u64| ProtocolMemory { limit, ..ProtocolMemory::default() };
        AppMemory {
            total: bound(limits.total),
            streams: bound(streams - streams / STREAM_ROOM),
            protocols: limits.by_protocol.iter().map(|l| bound(*l)).collect(),
            checks_protocols: limits.by_protocol.iter().any(|l| *l > 0),
            ..AppMemory::default()
        }
    }

    /// Bytes of application layers held now.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.total.used
    }

    /// Most bytes ever held.
    #[must_use]
    pub const fn peak(&self) -> u64 {
        self.peak
    }

    /// The bound of everything; 0 for none.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.total.limit
    }

    /// Bytes that flows of a protocol hold, and their bound (0 for none).
    #[must_use]
    pub fn of_protocol(&self, protocol: ProtocolId) -> (u64, u64) {
        self.protocols.get(usize::from(protocol.0)).map_or((0, 0), |b| (b.used, b.limit))
    }

    /// Bytes held, most bytes ever held and bound (0 for none), of all application layers together and of
    /// each protocol.
    pub fn bounds(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let all = (self.total.used, self.peak, self.total.limit);
        core::iter::once(all).chain(self.protocols.iter().map(|b| (b.used, b.peak, b.limit)))
    }

    /// Counters of the measures that keep the bounds.
    #[must_use]
    pub const fn counters(&self) -> &AppMemoryCounters {
        &self.counters
    }

    /// Charges a flow with `held` bytes. Returns the flow that took its place in the list, with that place:
    /// the caller notes the place in that flow's charge ([`Charge::moved`]).
    pub fn set(
        &mut self,
        id: FlowId,
        charge: &mut Charge,
        held: PoolBytes,
        tenant: TenantId,
        protocol: Option<ProtocolId>,
    ) -> Option<(FlowId, u32)> {
        if charge.held == held && charge.protocol == protocol {
            return None;
        }
        if held.app > charge.held.app || held.streams > charge.held.streams {
            self.grown.push(id);
        }
        if charge.held.is_nothing() {
            (charge.tenant, charge.place) = (tenant, self.enter(id, tenant));
        }
        let before = core::mem::replace(&mut charge.held, held);
        let old = core::mem::replace(&mut charge.protocol, protocol);
        self.count(old, 0, before.app);
        self.count(protocol, held.app, 0);
        let at = usize::from(charge.tenant.0);
        let tenant = self.tenants.get_mut(at)?;
        tenant.used.change(&before, &held);
        tenant.note();
        if tenant.charge.is_some() && tenant.is_over() {
            self.over = Some(at);
        }
        let used = tenant.used;
        for pool in [MemoryPool::App, MemoryPool::Streams] {
            if self.heaviest(pool).is_none_or(|t| t.used[pool] < used[pool]) {
                self.heaviest[pool] = at;
            }
        }
        let mut all = PoolBytes { app: self.total.used, streams: self.streams.used };
        all.change(&before, &held);
        (self.total.used, self.streams.used) = (all.app, all.streams);
        self.peak = self.peak.max(self.total.used);
        if held.is_nothing() { self.leave(charge) } else { None }
    }

    /// The tenant that holds most of a pool, as far as changes have shown.
    fn heaviest(&self, pool: MemoryPool) -> Option<&Tenant> {
        self.tenants.get(self.heaviest[pool])
    }

    fn count(&mut self, protocol: Option<ProtocolId>, more: u64, less: u64) {
        if let Some(bound) = protocol.and_then(|p| self.protocols.get_mut(usize::from(p.0))) {
            bound.used = bound.used.saturating_add(more).saturating_sub(less);
            bound.peak = bound.peak.max(bound.used);
        }
    }

    fn enter(&mut self, id: FlowId, tenant: TenantId) -> u32 {
        let at = usize::from(tenant.0);
        if self.tenants.len() <= at {
            self.tenants.resize_with(at + 1, Tenant::default);
        }
        let Some(tenant) = self.tenants.get_mut(at) else { return 0 };
        self.active += u64::from(tenant.flows.is_empty());
        tenant.flows.push(id);
        u32::try_from(tenant.flows.len() - 1).unwrap_or(u32::MAX)
    }

    fn leave(&mut self, charge: &Charge) -> Option<(FlowId, u32)> {
        let tenant = self.tenants.get_mut(usize::from(charge.tenant.0))?;
        let place = charge.place as usize;
        if place < tenant.flows.len() {
            tenant.flows.swap_remove(place);
        }
        self.active -= u64::from(tenant.flows.is_empty()).min(self.active);
        tenant.flows.get(place).map(|moved| (*moved, charge.place))
    }

    /// The first bound that is passed.
    #[inline]
    pub fn passed(&self) -> Option<Passed> {
        if self.total.is_passed() {
            return Some(Passed::Total);
        }
        if self.streams.is_passed() {
            return Some(Passed::Streams);
        }
        if self.over.is_some() {
            let passed = self.tenant_passed();
            if passed.is_some() {
                return passed;
            }
        }
        if !self.checks_protocols {
            return None;
        }
        let at = self.protocols.iter().position(ProtocolMemory::is_passed)?;
        Some(Passed::Protocol(ProtocolId(u8::try_from(at).ok()?)))
    }

    #[cold]
    fn tenant_passed(&self) -> Option<Passed> {
        let at = self.over?;
        let tenant = self.tenants.get(at).filter(|tenant| tenant.is_over())?;
        let pool = if tenant.used.app >= tenant.used.streams { MemoryPool::App } else { MemoryPool::Streams };
        Some(Passed::Tenant(TenantId(u16::try_from(at).ok()?), pool))
    }

    /// Takes the quotas of bytes of a new generation.
    pub fn set_quotas(&mut self, quotas: &Quotas) {
        let most = self.tenants.len().max(quotas.len());
        if !quotas.is_empty() {
            self.tenants.resize_with(most, Tenant::default);
        }
        for (tenant, at) in self.tenants.iter_mut().zip(0u16..) {
            // The old charge ends first, so that nothing counts twice.
            tenant.charge = None;
            tenant.charge = quotas.state_charge(TenantId(at));
            tenant.note();
        }
        self.over = None;
    }

    /// Chooses the tenant whose flows are closed: the one that exceeds its quota, else the one that holds
    /// most.
    pub fn aim(&mut self, passed: Passed) {
        self.aimed = match passed {
            Passed::Tenant(tenant, _) => Some(usize::from(tenant.0)),
            _ => None,
        };
    }

    /// Counts a closed flow of the chosen tenant. Returns that tenant if its quota is the bound.
    pub fn note_closed(&mut self) -> Option<TenantId> {
        let at = self.aimed?;
        self.tenants.get(at)?.charge.as_ref()?.note_closed();
        u16::try_from(at).ok().map(TenantId)
    }

    /// Ends the search for a tenant whose use is no longer above its quota.
    pub fn note_relieved(&mut self) {
        if self.over.is_some() && self.tenant_passed().is_none() {
            self.over = None;
        }
    }

    /// The next flow to close: one of the tenant that holds most of a pool and thus exceeds its fair share
    /// when the bound of the whole pool is exceeded. `flows`: the maximum number of flows that the search
    /// visits. `None`: no flow qualifies, or the search may continue with the next packet.
    ///
    /// The search visits flows in the order of their arrival: memory of neighbours often lies on the same
    /// pages, which return to the system when all of it is freed.
    pub fn next_to_give_way(
        &mut self,
        pool: MemoryPool,
        flows: usize,
        rank: impl Fn(FlowId) -> Option<Rank>,
    ) -> Option<FlowId> {
        let whole = match pool {
            MemoryPool::App => self.total,
            MemoryPool::Streams => self.streams,
        };
        // If the bound of everything is passed, some tenant holds more than its share.
        let aimed = self.aimed;
        let share = if whole.is_passed() { whole.limit / self.active.max(1) } else { 0 };
        if aimed.is_none() && self.heaviest(pool).is_none_or(|t| t.flows.is_empty() || t.used[pool] <= share)
        {
            // The tenant that was heaviest has freed its memory. Few tenants have flows of their own, and
            // this search is not done per packet.
            let heaviest = self.tenants.iter().enumerate().max_by_key(|(_, t)| t.used[pool]);
            self.heaviest[pool] = heaviest.map_or(0, |(at, _)| at);
        }
        let at = aimed.unwrap_or(self.heaviest[pool]);
        let reach = VictimBounds { flows, at_once: aimed.is_some() || !self.is_there_time(pool) };
        let tenant = self.tenants.get_mut(at)?;
        tenant.searches[pool].next(&tenant.flows, reach, rank)
    }

    /// Whether the search may continue with the next packet: half of the room kept free is still free.
    const fn is_there_time(&self, pool: MemoryPool) -> bool {
        let half = self.streams.limit / (STREAM_ROOM - 1) / 2;
        matches!(pool, MemoryPool::Streams) && self.streams.used <= self.streams.limit.saturating_add(half)
    }

    /// Takes the list of flows whose memory grew since the last call.
    pub fn take_grown(&mut self) -> SmallVec<[FlowId; 4]> {
        core::mem::take(&mut self.grown)
    }

    /// Clears that list where no bound is passed.
    #[inline]
    pub fn forget_grown(&mut self) {
        self.grown.clear();
    }
}

impl Charge {
    /// Notes the flow's new place in its tenant's list.
    pub fn moved(&mut self, place: u32) {
        self.place = place;
    }

    /// The protocol whose bound counts the flow's application layer.
    pub fn protocol(&self) -> Option<ProtocolId> {
        self.protocol
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// A budget with the charges of its flows.
    struct Rig {
        memory: AppMemory,
        charges: HashMap<u32, Charge>,
    }

    impl Rig {
        fn new(total: u64, by_protocol: &[u64]) -> Self {
            let limits = AppMemoryLimits { total, by_protocol: by_protocol.to_vec() };
            Rig { memory: AppMemory::new(&limits, 0), charges: HashMap::new() }
        }

        fn set(&mut self, id: u32, tenant: u16, protocol: u8, bytes: u64) {
            let charge = self.charges.entry(id).or_default();
            let flow = FlowId(id);
            let (tenant, protocol) = (TenantId(tenant), Some(ProtocolId(protocol)));
            let held = PoolBytes { app: bytes, ..charge.held };
            if let Some((moved, place)) = self.memory.set(flow, charge, held, tenant, protocol) {
                self.charges.get_mut(&moved.0).unwrap().moved(place);
            }
        }

        /// The flow with an even number that gives way next.
        fn next(&mut self) -> Option<u32> {
            let charges = &self.charges;
            let rank = |id: FlowId| {
                let weight = charges.get(&id.0)?.held.app;
                id.0.is_multiple_of(2).then_some(Rank { weight, ..Rank::default() })
            };
            self.memory.next_to_give_way(MemoryPool::App, 128, rank).map(|id| id.0)
        }
    }

    #[test]
    fn sums_hold_whatever_changes() {
        let mut rig = Rig::new(0, &[0, 0]);
        let mut state = 1u32;
        for _ in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (id, bytes) = (state >> 8 & 63, u64::from(state >> 20 & 7) * 100);
            rig.set(id, (id % 3) as u16, (id % 2) as u8, bytes);
        }
        let all: u64 = rig.charges.values().map(|c| c.held.app).sum();
        assert_eq!(rig.memory.used(), all);
        for protocol in 0..2 {
            let part = rig.charges.iter().filter(|(id, _)| *id % 2 == u32::from(protocol));
            assert_eq!(
                rig.memory.of_protocol(ProtocolId(protocol)).0,
                part.map(|(_, c)| c.held.app).sum::<u64>()
            );
        }
        for id in 0..64 {
            rig.set(id, 0, 0, 0);
        }
        assert_eq!((rig.memory.used(), rig.memory.active), (0, 0));
        assert!(rig.memory.tenants.iter().all(|t| t.used.is_nothing() && t.flows.is_empty()));
    }

    #[test]
    fn the_tenant_that_holds_most_gives_way() {
        let mut rig = Rig::new(1000, &[]);
        (0..50).for_each(|id| rig.set(id, 1, 0, 5));
        (50..53).for_each(|id| rig.set(id, 2, 0, 300));
        assert_eq!(rig.memory.passed(), Some(Passed::Total));
        assert!((0..9).all(|_| rig.next().is_some_and(|id| id >= 50)));
        // The first tenant holds less than the second now.
        (50..53).for_each(|id| rig.set(id, 2, 0, 1));
        assert_eq!(rig.memory.passed(), None);
        (0..50).for_each(|id| rig.set(id, 1, 0, 20));
        assert_eq!(rig.memory.passed(), Some(Passed::Total));
        let gone: Vec<_> = (0..9).filter_map(|_| rig.next()).collect();
        assert!(gone.len() == 9 && gone.iter().all(|id| *id < 50), "{gone:?}");
        assert_ne!(gone.first(), gone.last(), "they are looked at in turn");
    }

    #[test]
    fn streams_have_a_pool_of_their_own() {
        let limits = AppMemoryLimits { total: 1000, by_protocol: Vec::new() };
        let mut memory = AppMemory::new(&limits, 1600);
        let mut charges = [Charge::default(); 2];
        let mut set = |memory: &mut AppMemory, n: usize, app, streams| {
            memory.set(
                FlowId(n as u32),
                &mut charges[n],
                PoolBytes { app, streams },
                TenantId(n as u16),
                None,
            );
        };
        set(&mut memory, 0, 900, 0);
        set(&mut memory, 1, 10, 1500);
        assert_eq!((memory.used(), memory.passed()), (910, None));
        // New flows have room when the first gives way.
        set(&mut memory, 1, 10, 1501);
        assert_eq!(memory.passed(), Some(Passed::Streams));
        for (pool, id) in [(MemoryPool::Streams, 1), (MemoryPool::App, 0)] {
            let next = memory.next_to_give_way(pool, 9, |_| Some(Rank::default()));
            assert_eq!(next, Some(FlowId(id)), "{pool:?}");
        }
        set(&mut memory, 1, 10, 0);
        assert_eq!((memory.passed(), memory.active), (None, 2));
        set(&mut memory, 1, 0, 0);
        set(&mut memory, 0, 0, 0);
        assert_eq!((memory.used(), memory.streams.used, memory.active), (0, 0, 0));
    }

    #[test]
    fn a_protocol_has_its_own_bound() {
        let mut rig = Rig::new(0, &[0, 100]);
        rig.set(1, 0, 0, 5000);
        rig.set(2, 0, 1, 100);
        assert_eq!(rig.memory.passed(), None);
        rig.set(2, 0, 1, 101);
        assert_eq!(rig.memory.passed(), Some(Passed::Protocol(ProtocolId(1))));
        // A flow is charged to the protocol that it speaks now.
        rig.set(2, 0, 0, 101);
        assert_eq!(rig.memory.passed(), None);
        assert_eq!(rig.memory.take_grown().len(), 3);
    }
}
