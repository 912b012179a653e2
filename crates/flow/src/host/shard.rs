// SPDX-License-Identifier: Apache-2.0
//! One shard of the host table: entries, index and timers behind one lock.
//!
//! Built like the flow table: arrays reserved once, touched as they fill, and the same timer wheel. Since the
//! wheel does not distinguish tenants, a set orders the entries of each tenant by their expiry: when the
//! shard is full, an entry of the tenant that holds most of it is evicted.

use super::value::HostValue;
use super::{HostCounters, HostKey, WhenHostsFull};
use crate::index::Index;
use crate::key::FlowHash;
use crate::wheel::{Tick, TimerLink, TimerWheel};
use bartizan_base::{TenantId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Most timers checked in search of an entry to evict.
const EVICTION_SCAN: u32 = 8;
/// Upper bound of the bytes that the order and the count of a tenant's entries take per entry: a node of a
/// B-tree is at least half full.
const ORDER_BYTES: usize = 64;

struct ShardSlot<V> {
    hash: u64,
    /// `None`: the slot is free.
    key: Option<HostKey>,
    value: V,
    /// Time at which its timer fires; `None`: the timer is not armed.
    due: Option<Tick>,
}

/// The expiry of an entry, compared with its timer.
enum Expiry {
    Over,
    /// The timer was early.
    Later,
    OnTime,
}

pub(super) struct Shard<V> {
    slots: Vec<ShardSlot<V>>,
    links: Vec<TimerLink>,
    free: Vec<u32>,
    index: Index,
    wheel: TimerWheel,
    /// Entries with an armed timer, by tenant and then by expiry.
    order: BTreeSet<(TenantId, Tick, u32)>,
    /// Number of entries of each tenant that has any.
    of_tenant: BTreeMap<TenantId, u32>,
    capacity: u32,
    when_full: WhenHostsFull,
    counters: HostCounters,
}

impl<V: HostValue> Shard<V> {
    pub(super) fn new(capacity: u32, when_full: WhenHostsFull) -> Self {
        let room = capacity as usize;
        Self {
            slots: Vec::with_capacity(room),
            links: Vec::with_capacity(room),
            free: Vec::with_capacity(room),
            index: Index::new(capacity),
            wheel: TimerWheel::default(),
            order: BTreeSet::new(),
            of_tenant: BTreeMap::new(),
            capacity,
            when_full,
            counters: HostCounters::default(),
        }
    }

    fn find(&self, hash: u64, key: &HostKey) -> Option<u32> {
        self.index.find(FlowHash(hash), |id| {
            self.slots.get(id as usize).is_some_and(|slot| slot.key.as_ref() == Some(key))
        })
    }

    pub(super) fn with<R>(
        &mut self,
        hash: u64,
        key: &HostKey,
        now: Timestamp,
        f: impl FnOnce(&mut V) -> R,
    ) -> Option<R> {
        let id = match self.find(hash, key) {
            Some(id) => id,
            None => {
                let Some(id) = self.make(hash, key, now) else {
                    self.counters.refused += 1;
                    return None;
                };
                id
            }
        };
        self.run(id, now, f)
    }

    pub(super) fn if_there<R>(
        &mut self,
        hash: u64,
        key: &HostKey,
        now: Timestamp,
        f: impl FnOnce(&mut V) -> R,
    ) -> Option<R> {
        let id = self.find(hash, key)?;
        self.run(id, now, f)
    }

    fn run<R>(&mut self, id: u32, now: Timestamp, f: impl FnOnce(&mut V) -> R) -> Option<R> {
        let slot = self.slots.get_mut(id as usize)?;
        // Expired parts must not be visible, whether or not the timer has fired.
        slot.value.keep_until(now);
        let result = f(&mut slot.value);
        self.counters.slot_refused += slot.value.take_refused();
        let until = slot.value.keep_until(now);
        if until <= now {
            self.end(id);
            self.counters.ended += 1;
        } else {
            let tick = Tick::after(until);
            let armed = self.slots.get(id as usize).and_then(|slot| slot.due).is_some_and(|due| due <= tick);
            // A timer that is early arms itself again when it fires.
            if !armed {
                self.arm(id, tick, now);
            }
        }
        Some(result)
    }

    /// Arms the timer of an entry, or moves it.
    fn arm(&mut self, id: u32, tick: Tick, now: Timestamp) {
        self.disarm(id);
        self.wheel.arm(&mut self.links, id, tick, Tick::passed(now));
        if let Some(slot) = self.slots.get_mut(id as usize)
            && let Some(key) = &slot.key
        {
            slot.due = Some(tick);
            self.order.insert((key.tenant, tick, id));
        }
    }

    fn disarm(&mut self, id: u32) {
        self.wheel.disarm(&mut self.links, id);
        if let Some(slot) = self.slots.get_mut(id as usize)
            && let (Some(key), Some(due)) = (&slot.key, slot.due.take())
        {
            self.order.remove(&(key.tenant, due, id));
        }
    }

    fn make(&mut self, hash: u64, key: &HostKey, now: Timestamp) -> Option<u32> {
        if self.counters.active >= u64::from(self.capacity) {
            let id = self.victim(key.tenant, now)?;
            self.end(id);
        }
        let slot = ShardSlot { hash, key: Some(*key), value: V::default(), due: None };
        let id = match self.free.pop() {
            Some(id) => {
                *self.slots.get_mut(id as usize)? = slot;
                id
            }
            None => {
                self.slots.push(slot);
                self.links.push(TimerLink::default());
                (self.slots.len() - 1) as u32
            }
        };
        self.index.insert(FlowHash(hash), id);
        *self.of_tenant.entry(key.tenant).or_default() += 1;
        self.counters.created += 1;
        self.counters.active += 1;
        Some(id)
    }

    /// The entry to evict for a newcomer of `tenant`: one that has expired, else, by policy, the one nearest
    /// to its expiry among the entries of the tenant that holds most. So no tenant loses entries to one that
    /// holds more, however many hosts that one invents.
    fn victim(&mut self, tenant: TenantId, now: Timestamp) -> Option<u32> {
        for _ in 0..EVICTION_SCAN {
            let id = self.wheel.peek(&self.links)?;
            match self.check_expiry(id, now)? {
                Expiry::Over => return Some(id),
                Expiry::Later => {}
                Expiry::OnTime => break,
            }
        }
        if self.when_full == WhenHostsFull::Refuse {
            return None;
        }
        let giving = self.holds_most(tenant);
        let mut first = self.first_of(giving)?;
        for _ in 0..EVICTION_SCAN {
            match self.check_expiry(first, now)? {
                Expiry::Over => return Some(first),
                Expiry::Later => first = self.first_of(giving)?,
                Expiry::OnTime => break,
            }
        }
        self.counters.evicted += 1;
        self.counters.evicted_for_others += u64::from(giving != tenant);
        Some(first)
    }

    /// Compares the expiry of an entry with its timer, and moves a timer that is early. Counts an expired
    /// entry.
    fn check_expiry(&mut self, id: u32, now: Timestamp) -> Option<Expiry> {
        let slot = self.slots.get_mut(id as usize)?;
        let until = slot.value.keep_until(now);
        if until <= now {
            self.counters.ended += 1;
            return Some(Expiry::Over);
        }
        let tick = Tick::after(until);
        if slot.due.is_some_and(|due| due >= tick) {
            return Some(Expiry::OnTime);
        }
        self.arm(id, tick, now);
        Some(Expiry::Later)
    }

    /// The tenant that holds most entries; the newcomer's own if no other holds more.
    fn holds_most(&self, newcomer: TenantId) -> TenantId {
        let own = self.of_tenant.get(&newcomer).copied().unwrap_or(0);
        let most = self.of_tenant.iter().max_by_key(|(_, entries)| **entries);
        most.filter(|(_, entries)| **entries > own).map_or(newcomer, |(tenant, _)| *tenant)
    }

    /// The entry of a tenant whose timer fires next.
    fn first_of(&self, tenant: TenantId) -> Option<u32> {
        let (of, _, id) = self.order.range((tenant, Tick::default(), 0)..).next()?;
        (*of == tenant).then_some(*id)
    }

    fn end(&mut self, id: u32) {
        self.disarm(id);
        let Some(slot) = self.slots.get_mut(id as usize) else { return };
        self.index.remove(FlowHash(slot.hash), id);
        let key = slot.key.take();
        *slot = ShardSlot { hash: 0, key: None, value: V::default(), due: None };
        self.free.push(id);
        self.counters.active = self.counters.active.saturating_sub(1);
        let Some(HostKey { tenant, .. }) = key else { return };
        if let Some(entries) = self.of_tenant.get_mut(&tenant) {
            *entries = entries.saturating_sub(1);
            if *entries == 0 {
                self.of_tenant.remove(&tenant);
            }
        }
    }

    pub(super) fn expire(&mut self, now: Timestamp, budget: &mut u32) -> u32 {
        let mut count = 0;
        while let Some(id) = self.wheel.next(&mut self.links, Tick::passed(now), budget) {
            self.disarm(id);
            let Some(slot) = self.slots.get_mut(id as usize) else { continue };
            let until = slot.value.keep_until(now);
            if until <= now {
                self.end(id);
                self.counters.ended += 1;
                count += 1;
            } else {
                self.arm(id, Tick::after(until), now);
            }
        }
        count
    }

    pub(super) fn for_each(&mut self, f: &mut impl FnMut(&HostKey, &mut V)) {
        for slot in &mut self.slots {
            if let Some(key) = &slot.key {
                f(key, &mut slot.value);
            }
        }
    }

    pub(super) fn capacity(&self) -> u64 {
        u64::from(self.capacity)
    }

    pub(super) fn counters(&self) -> HostCounters {
        let each =
            (size_of::<ShardSlot<V>>() + size_of::<TimerLink>() + size_of::<u32>() + ORDER_BYTES) as u64;
        let fixed = (self.index.bytes() + size_of::<Self>()) as u64;
        HostCounters {
            memuse: fixed + each * self.slots.len() as u64,
            memcap: fixed + each * u64::from(self.capacity),
            ..self.counters
        }
    }
}
