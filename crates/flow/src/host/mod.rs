// SPDX-License-Identifier: Apache-2.0
//! The host table: state that belongs to no flow.
//!
//! Thresholds, bits, connection counts and tags are kept per host, per pair of hosts, per network or per
//! rule. All workers share the table: it consists of shards, selected by the keyed hash of tenant and
//! address, each with its own lock, and only rules and limits that need it access it, never every packet. Its
//! memory is bounded; an entry without room is refused or evicts another one, of the tenant that holds most,
//! and both are counted. Entries expire by timer wheels on the packet clock.
//!
//! [`HostTable`] holds any [`HostValue`]; [`HostState`] has the typed slots of rules and limits. Keys hold
//! the tenant: equal addresses of two tenants are two entries.

mod export;
mod shard;
mod slots;
mod tags;
mod value;

pub use export::{HostImportError, export_host, export_key, import_host, import_key};
pub use slots::{
    Bit, BitScope, HostState, MAX_BITS, MAX_TAGS, MAX_THRESHOLDS, RuleKey, SlotRefused, Threshold,
};
pub use tags::{Tag, Tags};
pub use value::HostValue;

use crate::key::FlowHasher;
use bartizan_base::{TenantId, Timestamp};
use core::net::IpAddr;
use shard::Shard;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The subject of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostKind {
    /// One address.
    Host(IpAddr),
    /// Two addresses, the lower first: see [`HostKey::pair`].
    Pair(IpAddr, IpAddr),
    /// A network, host bits zero: see [`HostKey::net`].
    Net(IpAddr, u8),
    /// A rule as a whole.
    Rule(RuleKey),
}

/// The key of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostKey {
    /// The tenant.
    pub tenant: TenantId,
    /// The subject.
    pub kind: HostKind,
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

impl HostKey {
    /// The key of one address.
    #[must_use]
    pub const fn host(tenant: TenantId, address: IpAddr) -> Self {
        Self { tenant, kind: HostKind::Host(address) }
    }

    /// The key of two addresses, in either order.
    #[must_use]
    pub fn pair(tenant: TenantId, a: IpAddr, b: IpAddr) -> Self {
        let (low, high) = if a <= b { (a, b) } else { (b, a) };
        Self { tenant, kind: HostKind::Pair(low, high) }
    }

    /// The key of the network of `length` leading bits that contains an address.
    #[must_use]
    pub fn net(tenant: TenantId, address: IpAddr, length: u8) -> Self {
        let (address, length) = match address {
            IpAddr::V4(v4) => {
                let length = length.min(32);
                let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
                (IpAddr::V4((u32::from(v4) & mask).into()), length)
            }
            IpAddr::V6(v6) => {
                let length = length.min(128);
                let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
                (IpAddr::V6((u128::from(v6) & mask).into()), length)
            }
        };
        Self { tenant, kind: HostKind::Net(address, length) }
    }

    /// The key of a rule as a whole.
    #[must_use]
    pub const fn rule(tenant: TenantId, rule: RuleKey) -> Self {
        Self { tenant, kind: HostKind::Rule(rule) }
    }

    /// Seven words that are equal exactly for equal keys.
    fn words(&self) -> [u64; 7] {
        let (kind, first, second, extra) = match self.kind {
            HostKind::Host(a) => (1 + u64::from(a.is_ipv6()), number(a), 0, 0),
            HostKind::Pair(a, b) => {
                (3 + u64::from(a.is_ipv6()) + 2 * u64::from(b.is_ipv6()), number(a), number(b), 0)
            }
            HostKind::Net(a, length) => (7 + u64::from(a.is_ipv6()), number(a), 0, u64::from(length)),
            HostKind::Rule(rule) => (9, 0, 0, u64::from(rule.gid) << 32 | u64::from(rule.sid)),
        };
        let parts = [first >> 64, first, second >> 64, second].map(|part| part as u64);
        let [a, b, c, d] = parts;
        [a, b, c, d, extra, u64::from(self.tenant.0), kind]
    }
}

/// The policy for a new entry when its shard is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenHostsFull {
    /// The new entry is refused.
    Refuse,
    /// The new entry evicts one of the tenant that holds most of the shard: the one nearest to its expiry.
    Evict,
}

/// Size and policy of a host table.
#[derive(Clone, Copy, Debug)]
pub struct HostTableConfig {
    /// Number of entries, shared out evenly among the shards.
    pub capacity: u32,
    /// Number of locks; rounded up to a power of two, 1 to 1024.
    pub shards: u16,
    /// The instance's secret hash.
    pub hasher: FlowHasher,
    /// The policy when a shard is full.
    pub when_full: WhenHostsFull,
}

/// The error for a table without room for another entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("host table: full; raise its capacity, or shorten the timeouts of its entries")]
pub struct HostRefused;

/// Counters of a host table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounters {
    /// Entries now.
    pub active: u64,
    /// Entries made.
    pub created: u64,
    /// Entries that expired.
    pub ended: u64,
    /// Entries evicted.
    pub evicted: u64,
    /// Evicted entries whose place went to another tenant, since their own held most.
    pub evicted_for_others: u64,
    /// Entries refused.
    pub refused: u64,
    /// Bits, thresholds and tags that did not fit into an entry.
    pub slot_refused: u64,
    /// Upper bound of the bytes touched, without the allocations of values.
    pub memuse: u64,
    /// Upper bound of the bytes that the table may touch, without the allocations of values.
    pub memcap: u64,
}

impl HostCounters {
    /// Visits every counter by its name.
    pub fn visit(&self, mut each: impl FnMut(&'static str, u64)) {
        for (name, value) in [
            ("host.memuse", self.memuse),
            ("host.memcap", self.memcap),
            ("host.active", self.active),
            ("host.created", self.created),
            ("host.ended", self.ended),
            ("host.evicted", self.evicted),
            ("host.evicted_for_others", self.evicted_for_others),
            ("host.refused", self.refused),
            ("host.slot_refused", self.slot_refused),
        ] {
            each(name, value);
        }
    }

    /// Adds the counters of another table.
    pub fn add(&mut self, other: &HostCounters) {
        self.active += other.active;
        self.created += other.created;
        self.ended += other.ended;
        self.evicted += other.evicted;
        self.evicted_for_others += other.evicted_for_others;
        self.refused += other.refused;
        self.slot_refused += other.slot_refused;
        self.memuse += other.memuse;
        self.memcap += other.memcap;
    }
}

/// State by tenant and host, pair, network or rule, shared by all workers.
pub struct HostTable<V> {
    shards: Vec<Mutex<Shard<V>>>,
    hasher: FlowHasher,
    mask: usize,
    /// The shard with which the next round of expiry begins.
    next: AtomicUsize,
}

impl<V> core::fmt::Debug for HostTable<V> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("HostTable").field("shards", &self.shards.len()).finish_non_exhaustive()
    }
}

impl<V: HostValue> HostTable<V> {
    /// Reserves the table; every shard holds at least one entry.
    #[must_use]
    pub fn new(config: &HostTableConfig) -> Self {
        let count = config.shards.clamp(1, 1024).next_power_of_two();
        let each = config.capacity.div_ceil(u32::from(count)).max(1);
        Self {
            shards: (0..count).map(|_| Mutex::new(Shard::new(each, config.when_full))).collect(),
            hasher: config.hasher,
            mask: usize::from(count - 1),
            next: AtomicUsize::new(0),
        }
    }

    fn shard(&self, hash: u64) -> Option<MutexGuard<'_, Shard<V>>> {
        // Low bits select the bucket within a shard, so other bits select the shard. A worker that panicked
        // while it held the lock left plain data, which stays usable.
        let shard = self.shards.get((hash >> 40) as usize & self.mask)?;
        Some(shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs `f` on the entry of `key`, which is made if it does not exist. Afterwards the entry is removed if
    /// nothing in it needs to be kept.
    ///
    /// # Errors
    /// [`HostRefused`], counted, when there is no room; `f` was not run.
    pub fn with<R>(
        &self,
        key: &HostKey,
        now: Timestamp,
        f: impl FnOnce(&mut V) -> R,
    ) -> Result<R, HostRefused> {
        bartizan_base::turns::wait_for_turn();
        let hash = self.hasher.hash_words(&key.words());
        self.shard(hash).and_then(|mut shard| shard.with(hash, key, now, f)).ok_or(HostRefused)
    }

    /// Runs `f` on the entry of `key` if it exists.
    pub fn if_there<R>(&self, key: &HostKey, now: Timestamp, f: impl FnOnce(&mut V) -> R) -> Option<R> {
        bartizan_base::turns::wait_for_turn();
        let hash = self.hasher.hash_words(&key.words());
        self.shard(hash)?.if_there(hash, key, now, f)
    }

    /// Removes expired entries, checking at most `budget` timers. Returns the number of removed entries. Any
    /// worker may call this, between packets; each call continues with the shard at which the previous one
    /// stopped.
    pub fn expire(&self, now: Timestamp, mut budget: u32) -> u32 {
        let (from, mut count) = (self.next.load(Ordering::Relaxed), 0);
        for at in from..from.saturating_add(self.shards.len()) {
            if budget == 0 {
                self.next.store(at & self.mask, Ordering::Relaxed);
                break;
            }
            let Some(shard) = self.shards.get(at & self.mask) else { break };
            count += shard.lock().unwrap_or_else(PoisonError::into_inner).expire(now, &mut budget);
        }
        count
    }

    /// Runs `f` on every entry: for exports and inspection, one shard's lock at a time.
    pub fn for_each(&self, mut f: impl FnMut(&HostKey, &mut V)) {
        for shard in &self.shards {
            shard.lock().unwrap_or_else(PoisonError::into_inner).for_each(&mut f);
        }
    }

    /// Maximum number of entries.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).capacity()).sum()
    }

    /// Sum of all shards' counters.
    #[must_use]
    pub fn counters(&self) -> HostCounters {
        let mut sum = HostCounters::default();
        for shard in &self.shards {
            sum.add(&shard.lock().unwrap_or_else(PoisonError::into_inner).counters());
        }
        sum
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
