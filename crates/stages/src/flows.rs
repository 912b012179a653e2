// SPDX-License-Identifier: Apache-2.0
//! The second stage: finds or makes the flow of a packet, counts the packet for it, and renews the part of
//! the flow that rests on a generation.

use crate::chain::Chains;
use crate::class::classify_flow;
use crate::early::Credit;
use crate::flow_ext::FlowExt;
use crate::guests::{ForeignFlows, Guest};
use crate::identity::icmp_of;
use crate::quotas::{Gives, IDLE, QuotaFlows, QuotaReservation};
use crate::record::Entry;
use crate::settings::EngineSettings;
use bartizan_base::{Direction, Fid, FlowId, Level, Path, TenantId, Timestamp, WorkerId};
use bartizan_flow::counters::Elephants;
use bartizan_flow::level::FlowLevelCounts;
use bartizan_flow::rate::{FlowRate, RateLimit};
use bartizan_flow::tcp::Checkpoint;
use bartizan_flow::{
    Accounted, Find, FlowFlags, FlowHasher, FlowKey, FlowState, FlowTable, FlowTableConfig, Insert,
    TableError,
};
use bartizan_function::header::icmp_numbers;
use bartizan_offload::FlowManager;
use bartizan_packet::Decoded;

/// A worker's flows: the table, and the state beside it that the second stage needs.
pub struct Flows {
    table: FlowTable<FlowExt>,
    /// Number of the next flow in events.
    next: u64,
    /// The rate above which a flow counts as an elephant flow.
    rate: Option<RateLimit>,
    /// Flows that other workers have moved here.
    pub guests: ForeignFlows,
    /// Buffer for flows that are due to end: the place where each began, and its id.
    due: Vec<(u64, FlowId)>,
    /// Offloads decided flows to a lower level, if there is one.
    pub manager: Option<Box<FlowManager>>,
    /// Flows of tenants with quotas, in the order of their opening.
    opened: QuotaFlows,
    /// The credit for packets that a lower level refused without a flow.
    pub early: Credit,
    /// The checkpoint of the worker's sessions; `None` while a segment uses it.
    pub checkpoint: Option<Box<Checkpoint>>,
    /// The end of the time in which packets were forwarded without passing this worker.
    pub missed: Option<Timestamp>,
}

/// The state of a flow before the current packet.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    /// Time of the previous packet.
    pub last_seen: Timestamp,
    /// The previous packet was judged by another generation.
    pub renewed: bool,
}

/// The result of making a flow.
pub enum FlowAdmission {
    /// The flow is made.
    Flow(FlowId),
    /// This flow has to end first, to make room.
    Evict(FlowId),
    /// The table is full.
    Full,
    /// The tenant has reached its quota; the flow that has to end first, if one may.
    OverQuota {
        /// The flow that has to end first, if one may.
        gives_way: Option<FlowId>,
    },
}

impl Flows {
    /// Reserves the table.
    ///
    /// # Errors The memory cannot be reserved.
    pub fn new(settings: &EngineSettings) -> Result<Self, TableError> {
        let mut config = FlowTableConfig::new(settings.flow_capacity, FlowHasher::new(settings.seed));
        config.timeouts = settings.timeouts;
        config.when_full = settings.flows_when_full;
        let mut table = FlowTable::new(&config)?;
        table.counters_mut().elephants = settings.flow_rate.map(|_| Elephants::default());
        Ok(Flows {
            table,
            next: 1,
            rate: settings.flow_rate,
            guests: ForeignFlows::default(),
            due: Vec::new(),
            manager: None,
            opened: QuotaFlows::default(),
            early: Credit::default(),
            checkpoint: None,
            missed: None,
        })
    }

    /// The table.
    pub const fn table(&self) -> &FlowTable<FlowExt> {
        &self.table
    }

    /// The table, for code that ends flows.
    pub const fn table_mut(&mut self) -> &mut FlowTable<FlowExt> {
        &mut self.table
    }

    /// The entry of a flow, if the flow exists.
    #[inline]
    pub fn get(&self, id: FlowId) -> Option<&Entry> {
        self.table.get(id)
    }

    /// The entry of a flow, to change it.
    #[inline]
    pub fn get_mut(&mut self, id: FlowId) -> Option<&mut Entry> {
        self.table.get_mut(id)
    }

    /// Starts the worker's own range of flow numbers, which keeps numbers unique in a run.
    pub const fn number(&mut self, me: WorkerId) {
        self.next = ((me.0 as u64) << 40) + 1;
    }

    /// The flow of a key, if it exists and has not timed out.
    #[inline]
    pub fn find(&self, key: &FlowKey, now: Timestamp) -> Find {
        self.table.find(key, now)
    }

    /// The flow of a key, whether it has timed out or not.
    pub fn of_key(&self, key: &FlowKey) -> Option<FlowId> {
        // Time zero lies before all timeouts.
        match self.table.find(key, Timestamp::ZERO) {
            Find::Found { id, .. } | Find::Stale { id } => Some(id),
            Find::Missing => None,
        }
    }

    /// All flows in the order in which they began in the run: a flow that came from another worker is last in
    /// the table and may have begun first.
    pub fn as_they_began(&self) -> Vec<FlowId> {
        let mut ids = self.table.ids();
        ids.sort_by_key(|id| self.get(*id).map_or(0, |flow| flow.ext.began));
        ids
    }

    /// Notes a handled packet whose flow is a guest here.
    pub fn note_guest(&mut self, key: &FlowKey, guest: Guest) {
        self.guests.insert(*key, guest);
        // The packet has opened no flow, or has ended its flow.
        if self.of_key(key).is_none() {
            self.guests.may_have_ended(*key);
        }
    }

    /// Notes that a flow is about to be removed. Runs for every flow, so it first checks whether there are
    /// guests.
    #[inline]
    pub fn note_end(&mut self, id: FlowId) {
        if !self.guests.is_empty()
            && let Some(key) = self.get(id).map(|entry| *entry.key())
            && self.guests.contains(&key)
        {
            self.guests.may_have_ended(key);
        }
    }

    /// The next guest whose flow no longer exists here.
    pub fn next_ended_guest(&mut self) -> Option<(FlowKey, Guest)> {
        while let Some(key) = self.guests.next_that_may_have_ended() {
            if self.guests.contains(&key)
                && self.of_key(&key).is_none()
                && let Some(guest) = self.guests.remove(&key)
            {
                return Some((key, guest));
            }
        }
        None
    }

    /// Returns flows to the host that these functions let pass on a lower level and no longer watch.
    #[inline]
    pub fn leave_below(&mut self, functions: Path) {
        if !functions.is_empty()
            && let Some(manager) = self.manager.as_deref_mut()
        {
            manager.leave(functions);
        }
    }

    /// The table and the flow manager, if there is one.
    pub fn with_manager(&mut self) -> Option<(&mut FlowTable<FlowExt>, &mut FlowManager)> {
        Some((&mut self.table, self.manager.as_deref_mut()?))
    }

    /// Amounts that the levels below the host have counted for a flow: XDP, and RTL. `None`: no level below
    /// ever had it.
    pub fn below(&self, id: FlowId) -> Option<[FlowLevelCounts; 2]> {
        if !self.table.was_below(id) {
            return None;
        }
        let of = |level| self.table.amounts(id, level).unwrap_or_default();
        Some([of(Level::Xdp), of(Level::Rtl)])
    }

    /// Marks a bypassed flow that ends as bypassed in capture if a level below has handled packets of it: its
    /// record reports this even if the host handled the last packets.
    pub fn note_bypassed_below(&mut self, id: FlowId, below: Option<&[FlowLevelCounts; 2]>) {
        let handled = |amounts: &FlowLevelCounts| {
            Direction::BOTH.iter().any(|direction| amounts.packets[*direction] > 0)
        };
        if below.is_some_and(|below| below.iter().any(handled))
            && self.get(id).is_some_and(|entry| entry.state() == FlowState::LocalBypassed)
        {
            self.table.set_state(id, FlowState::CaptureBypassed);
        }
    }

    /// Takes the buffer for flows that are due.
    pub fn take_due(&mut self) -> Vec<(u64, FlowId)> {
        core::mem::take(&mut self.due)
    }

    /// Returns that buffer for reuse.
    pub fn recycle_due(&mut self, due: Vec<(u64, FlowId)>) {
        self.due = due;
    }

    /// Makes the flow that a packet opens; `began`: the packet's place in the run.
    pub fn open(
        &mut self,
        key: &FlowKey,
        chains: &Chains,
        packet: &Decoded,
        now: Timestamp,
        began: u64,
    ) -> FlowAdmission {
        let Ok(place) = chains.quotas.place(key.tenant()) else {
            return FlowAdmission::OverQuota { gives_way: self.eviction_victim(key.tenant(), now) };
        };
        let id = match self.table.insert(key, now) {
            Insert::Created { id } => id,
            Insert::Evict { id } => return FlowAdmission::Evict(id),
            Insert::Full => return FlowAdmission::Full,
        };
        let number = self.next;
        self.next += 1;
        let hash = self.table.hash(key);
        if let Some(entry) = self.table.get_mut(id) {
            entry.ext.matched_icmp = icmp_numbers(packet, Direction::ToServer);
            let class = classify_flow(chains, entry);
            (entry.fid, entry.path, entry.generation) = (class.fid, class.path, chains.generation);
            entry.ext.by_content = chains.wants_payload(class.path);
            entry.ext.quota = place;
            entry.ext.event_id = event_id(number, hash.0);
            entry.ext.began = began;
            entry.ext.vlan = packet.vlan;
            entry.ext.icmp = icmp_of(packet);
        }
        self.note_counted(id);
        FlowAdmission::Flow(id)
    }

    /// Enters a flow that was opened, or came from another worker, in the list from which its tenant's quota
    /// chooses.
    #[inline]
    pub fn note_counted(&mut self, id: FlowId) {
        let Some(entry) = self.table.get(id) else { return };
        if entry.ext.quota.as_ref().is_some_and(QuotaReservation::may_give_way) {
            let (tenant, flow, table) = (entry.tenant(), (id, entry.serial()), &self.table);
            let is_there = |id, serial| table.get(id).is_some_and(|entry| entry.serial() == serial);
            self.opened.push(tenant, flow, is_there);
        }
    }

    /// The flow of a tenant that gives way to a new flow of the same tenant.
    #[cold]
    fn eviction_victim(&mut self, tenant: TenantId, now: Timestamp) -> Option<FlowId> {
        let table = &self.table;
        self.opened.victim(tenant, |id, serial| {
            let entry = table.get(id).filter(|entry| entry.serial() == serial)?;
            let (last, idle) = (entry.last_seen, now.since(entry.last_seen) >= IDLE);
            Some(match entry.state() {
                _ if !entry.is_at_host() => None,
                FlowState::New if entry.is_unopened() => Some(Gives::HalfOpen(Timestamp::ZERO)),
                FlowState::New => Some(Gives::HalfOpen(last)),
                FlowState::Closed => Some(Gives::HalfOpen(Timestamp::ZERO)),
                _ => idle.then_some(Gives::Idle(last)),
            })
        })
    }

    /// Sets the state of a flow, and with it its timeout.
    pub fn set_state(&mut self, id: FlowId, state: FlowState) {
        self.table.set_state(id, state);
    }

    /// See [`FlowTable::note_answer`].
    pub fn note_answer(&mut self, id: FlowId) -> bool {
        self.table.note_answer(id)
    }

    /// Notes a forwarded packet: its sender has opened the flow if it was unopened.
    #[inline]
    pub fn note_opened(&mut self, id: FlowId, now: Timestamp) {
        if self.get(id).is_some_and(Entry::is_unopened) {
            self.table.note_opened(id, now);
        }
    }

    /// Notes a packet refused by its headers, which neither extends the flow's life nor opens the flow. A
    /// flow whose first packet, ever or in this generation, was refused counts as unopened. (A connection
    /// stays open where a generation refuses one of its segments.)
    pub fn note_refused(&mut self, id: FlowId, before: Option<Before>) {
        let Some(entry) = self.get(id) else { return };
        let is_first = entry.packets.to_server.saturating_add(entry.packets.to_client) == 1;
        let begins_anew = before.is_some_and(|before| before.renewed) && entry.key().protocol() != 6;
        if let Some(before) = before.filter(|_| !is_first) {
            self.table.revert_last_seen(id, before.last_seen);
        }
        if is_first || begins_anew {
            self.table.note_unopened(id);
        }
    }

    /// Marks a flow with no function left on its path as bypassed. Returns whether it was not bypassed
    /// before.
    pub fn bypass(&mut self, id: FlowId) -> bool {
        let bypasses = self.get(id).is_some_and(|entry| entry.state() != FlowState::LocalBypassed);
        if bypasses {
            self.table.set_state(id, FlowState::LocalBypassed);
        }
        bypasses
    }

    /// Renews the class and disposition of a flow from another generation. Returns the class.
    pub fn renew(&mut self, id: FlowId, chains: &Chains) -> Fid {
        let Some(entry) = self.table.get_mut(id) else { return Fid(0) };
        let state = crate::settled::renew(entry, chains);
        let fid = entry.fid;
        if let Some(state) = state {
            self.table.set_state(id, state);
        }
        fid
    }

    /// Counts a packet of a flow, as [`FlowTable::account`] does, and for the flow's rate where rates are
    /// tracked (`flow.rate-tracking`).
    pub fn count(
        &mut self,
        id: FlowId,
        direction: Direction,
        length: u32,
        now: Timestamp,
        proves: bool,
    ) -> Accounted {
        let accounted = self.table.account(id, direction, length, now, proves);
        if let Some(limit) = self.rate {
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
        let Some(entry) = self.table.get_mut(id) else { return };
        let rate = entry.ext.rate.get_or_insert_with(|| Box::new(FlowRate::new(limit)));
        let mark = FlowFlags::elephant(direction);
        if rate.add(direction, length, now) < limit.bytes || entry.flags.contains(mark) {
            return;
        }
        let first = !entry.is_elephant();
        entry.flags.insert(mark);
        let elephants = self.table.counters_mut().elephants.get_or_insert_default();
        elephants.flows += u64::from(first);
        elephants.by_direction[direction] += 1;
    }
}

/// Number of a flow in events: below 2^53, so that every JSON reader keeps it whole.
fn event_id(number: u64, hash: u64) -> u64 {
    (hash & 0x1f) << 48 | number & 0xffff_ffff_ffff
}
