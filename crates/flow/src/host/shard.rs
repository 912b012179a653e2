// SPDX-License-Identifier: Apache-2.0
//! One shard of the host table: entries, index and timers behind one lock.
//!
//! Built as the flow table is: arrays reserved once, touched as they fill, and the same timer wheel.

use super::value::HostValue;
use super::{HostCounters, HostKey, WhenHostsFull};
use crate::index::Index;
use crate::key::FlowHash;
use crate::wheel::{Tick, TimerLink, TimerWheel};
use bartizan_base::Timestamp;

/// Entries looked at, at most, to find one that makes room.
const EVICTION_SCAN: u32 = 8;

struct Slot<V> {
    hash: u64,
    /// `None`: free.
    key: Option<HostKey>,
    value: V,
}

pub(super) struct Shard<V> {
    slots: Vec<Slot<V>>,
    links: Vec<TimerLink>,
    free: Vec<u32>,
    index: Index,
    wheel: TimerWheel,
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
        // What has expired must not be seen, whether or not its timer has run.
        slot.value.keep_until(now);
        let result = f(&mut slot.value);
        self.counters.slot_refused += slot.value.take_refused();
        let until = slot.value.keep_until(now);
        if until <= now {
            self.end(id);
            self.counters.ended += 1;
        } else {
            let tick = Tick::after(until);
            let armed =
                self.links.get(id as usize).is_some_and(|link| link.is_armed() && link.tick() <= tick);
            // Later than armed is left to the timer, which then arms itself again.
            if !armed {
                self.wheel.disarm(&mut self.links, id);
                self.wheel.arm(&mut self.links, id, tick, Tick::passed(now));
            }
        }
        Some(result)
    }

    fn make(&mut self, hash: u64, key: &HostKey, now: Timestamp) -> Option<u32> {
        if self.counters.active >= u64::from(self.capacity) {
            let id = self.victim(now)?;
            self.end(id);
        }
        let slot = Slot { hash, key: Some(*key), value: V::default() };
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
        self.counters.created += 1;
        self.counters.active += 1;
        Some(id)
    }

    /// An entry that may leave: one that has ended, else, by policy, one near its end.
    fn victim(&mut self, now: Timestamp) -> Option<u32> {
        for _ in 0..EVICTION_SCAN {
            let id = self.wheel.peek(&self.links)?;
            let until = self.slots.get_mut(id as usize)?.value.keep_until(now);
            if until <= now {
                self.counters.ended += 1;
                return Some(id);
            }
            let tick = Tick::after(until);
            if self.links.get(id as usize).is_some_and(|link| link.tick() >= tick) {
                break;
            }
            self.wheel.disarm(&mut self.links, id);
            self.wheel.arm(&mut self.links, id, tick, Tick::passed(now));
        }
        if self.when_full == WhenHostsFull::Refuse {
            return None;
        }
        self.counters.evicted += 1;
        self.wheel.peek(&self.links)
    }

    fn end(&mut self, id: u32) {
        self.wheel.disarm(&mut self.links, id);
        if let Some(slot) = self.slots.get_mut(id as usize) {
            self.index.remove(FlowHash(slot.hash), id);
            *slot = Slot { hash: 0, key: None, value: V::default() };
            self.free.push(id);
            self.counters.active = self.counters.active.saturating_sub(1);
        }
    }

    pub(super) fn expire(&mut self, now: Timestamp, budget: &mut u32) -> u32 {
        let mut count = 0;
        while let Some(id) = self.wheel.next(&mut self.links, Tick::passed(now), budget) {
            let Some(slot) = self.slots.get_mut(id as usize) else { continue };
            let until = slot.value.keep_until(now);
            if until <= now {
                self.end(id);
                self.counters.ended += 1;
                count += 1;
            } else {
                self.wheel.arm(&mut self.links, id, Tick::after(until), Tick::passed(now));
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
        let each = (size_of::<Slot<V>>() + size_of::<TimerLink>() + size_of::<u32>()) as u64;
        let fixed = (self.index.bytes() + size_of::<Self>()) as u64;
        HostCounters {
            memuse: fixed + each * self.slots.len() as u64,
            memcap: fixed + each * u64::from(self.capacity),
            ..self.counters
        }
    }
}
