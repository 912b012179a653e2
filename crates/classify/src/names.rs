// SPDX-License-Identifier: Apache-2.0
//! The DNS names that addresses have at present: the condition of rules with names on a header's addresses.
//!
//! A name of a policy (`api.example.com`, `*.example.com`) has a number ([`NameId`]) as long as some
//! generation holds it ([`Lease`]), so the number stays the same from one generation to the next. The
//! number of a released name is reused only after all other numbers, because flows keep the numbers of
//! their lookup. An address is a member of a name for a tenant from the DNS answer until a time of the
//! packet clock. All workers share the table. A flow's lookup reads it, never each packet, and a DNS answer
//! writes it: an entry written before a packet left holds for every packet that is sent because of that
//! one.
//!
//! Bounds: addresses of a tenant ([`NameTable::set_bounds`]), [`NAMES_MAX`] names of an address, [`IDS_MAX`]
//! names at a time. A refusal at a bound is reported ([`Learned`]), and no member is evicted for a
//! newcomer: a flood of answers ends no membership.

use crate::header::{NameId, NameIds};
use bartizan_base::{TenantId, Timestamp};
use core::net::IpAddr;
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicUsize, Ordering};
use foldhash::quality::FixedState;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The most names of an address at a time.
pub const NAMES_MAX: usize = 16;
/// The most names of policies at a time, over all generations in use: a policy file may have a quarter of
/// that.
pub const IDS_MAX: usize = 1 << 22;
/// The default for the most addresses of a tenant.
pub const ADDRESSES: usize = 16_384;
/// Parts of the table, each with a lock of its own.
const PARTS: usize = 64;
/// Nanoseconds between two sweeps of a part for expired memberships.
const SWEEP_EVERY: u64 = 1_000_000_000;

/// The reason why an address has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The name of a policy.
    pub id: NameId,
    /// The end of the membership, on the packet clock.
    pub until: Timestamp,
    /// The name of the DNS query whose answer had the address.
    pub queried_name: Arc<str>,
}

/// The result of learning an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// The address is new for this name.
    Added,
    /// The address was a member; it stays one until the later of both times.
    Renewed,
    /// The tenant has its most addresses: the address is no member.
    Full,
    /// The address has its most names: it does not get this one.
    Crowded,
}

/// An address of a tenant.
type TenantAddress = (TenantId, IpAddr);

#[derive(Debug, Default)]
struct NameShard {
    members: HashMap<TenantAddress, SmallVec<[Membership; 1]>>,
    swept: Timestamp,
}

/// State of the writer alone.
#[derive(Debug)]
struct NameTableWriter {
    /// Addresses by tenant.
    counts: HashMap<TenantId, usize>,
    /// The part to sweep next.
    next: usize,
    bound: usize,
    expired: u64,
}

/// A name in use.
#[derive(Debug)]
struct NameLeases {
    id: NameId,
    leases: usize,
}

/// The numbers of names in use.
#[derive(Debug)]
struct Ids {
    by_name: HashMap<Arc<str>, NameLeases>,
    texts: HashMap<NameId, Arc<str>>,
    /// The number to try next.
    next: NonZeroU32,
}

impl Ids {
    /// Adds a use of a name. `None`: there are [`IDS_MAX`] others.
    fn hold(&mut self, name: &str) -> Option<(Arc<str>, NameId)> {
        if let Some((text, held)) =
            self.by_name.get_key_value(name).map(|(text, held)| (Arc::clone(text), held.id))
        {
            self.by_name.get_mut(name).into_iter().for_each(|held| held.leases += 1);
            return Some((text, held));
        }
        if self.by_name.len() >= IDS_MAX {
            return None;
        }
        // One after the other, around all numbers: few are in use, so a free one is near.
        while self.texts.contains_key(&NameId(self.next)) {
            self.next = self.next.checked_add(1).unwrap_or(NonZeroU32::MIN);
        }
        let (id, text) = (NameId(self.next), Arc::<str>::from(name));
        self.next = self.next.checked_add(1).unwrap_or(NonZeroU32::MIN);
        self.texts.insert(id, Arc::clone(&text));
        self.by_name.insert(Arc::clone(&text), NameLeases { id, leases: 1 });
        Some((text, id))
    }

    fn release(&mut self, name: &str) {
        let Some(held) = self.by_name.get_mut(name) else { return };
        held.leases = held.leases.saturating_sub(1);
        if held.leases == 0 {
            let id = held.id;
            self.by_name.remove(name);
            self.texts.remove(&id);
        }
    }
}

/// The names of a generation, with their numbers. Dropping it releases them.
#[derive(Debug)]
pub struct Lease {
    names: Arc<NameTable>,
    ids: HashMap<Arc<str>, NameId>,
}

impl Lease {
    /// The number of one of its names.
    #[must_use]
    pub fn id(&self, name: &str) -> Option<NameId> {
        self.ids.get(name).copied()
    }

    /// The lease's names and their numbers, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, NameId)> {
        self.ids.iter().map(|(name, id)| (name.as_ref(), *id))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The lock is taken for each name: there may be many, and workers look numbers up.
        self.ids.keys().for_each(|name| lock(&self.names.ids).release(name));
    }
}

/// The table of the DNS names that addresses have at present, by tenant; shared by all workers.
#[derive(Debug)]
pub struct NameTable {
    ids: Mutex<Ids>,
    parts: Vec<RwLock<NameShard>>,
    writer: Mutex<NameTableWriter>,
    hasher: FixedState,
    addresses: AtomicUsize,
}

impl Default for NameTable {
    /// With a known key: for captures and tests, which need the same behaviour at a bound in each run.
    fn default() -> Self {
        NameTable::keyed(0x6e61_6d65_7300_0001)
    }
}

// A thread that panicked while it held a lock has left whole entries: each is written by one call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

impl NameTable {
    /// An empty table. `key` determines the part of the table for an address; a table for live traffic gets a
    /// secret one.
    #[must_use]
    pub fn keyed(key: u64) -> Self {
        let ids = Ids { by_name: HashMap::new(), texts: HashMap::new(), next: NonZeroU32::MIN };
        NameTable {
            ids: Mutex::new(ids),
            parts: (0..PARTS).map(|_| RwLock::default()).collect(),
            writer: Mutex::new(NameTableWriter {
                counts: HashMap::new(),
                next: 0,
                bound: ADDRESSES,
                expired: 0,
            }),
            hasher: FixedState::with_seed(key),
            addresses: AtomicUsize::new(0),
        }
    }

    /// Holds names of policies: each has its number, the same one as for other holders, as long as the lease
    /// lasts. `None`: there would be more than [`IDS_MAX`] names.
    #[must_use]
    pub fn lease<'n>(self: &Arc<Self>, names: impl IntoIterator<Item = &'n str>) -> Option<Lease> {
        let mut lease = Lease { names: Arc::clone(self), ids: HashMap::new() };
        for name in names {
            if !lease.ids.contains_key(name) {
                let (text, id) = lock(&self.ids).hold(name)?;
                lease.ids.insert(text, id);
            }
        }
        Some(lease)
    }

    /// The number of names held.
    #[must_use]
    pub fn held(&self) -> usize {
        lock(&self.ids).by_name.len()
    }

    /// The number of a name in use.
    #[must_use]
    pub fn id(&self, name: &str) -> Option<NameId> {
        lock(&self.ids).by_name.get(name).map(|held| held.id)
    }

    /// The name of a number in use.
    #[must_use]
    pub fn text(&self, id: NameId) -> Option<Arc<str>> {
        lock(&self.ids).texts.get(&id).cloned()
    }

    /// Sets the most addresses that a tenant may have from now on. Present ones stay.
    pub fn set_bounds(&self, addresses: usize) {
        lock(&self.writer).bound = addresses;
    }

    /// The number of addresses in the table, of all tenants; some may have expired.
    #[must_use]
    pub fn len(&self) -> usize {
        self.addresses.load(Ordering::Acquire)
    }

    /// Whether no address is in the table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of memberships that have expired so far.
    #[must_use]
    pub fn expired(&self) -> u64 {
        lock(&self.writer).expired
    }

    fn part(&self, key: &TenantAddress) -> Option<&RwLock<NameShard>> {
        self.parts.get(self.hasher.hash_one(key) as usize % PARTS)
    }

    /// Makes an address a member of a name. `queried_name` is the name of the DNS query.
    pub fn learn(
        &self,
        tenant: TenantId,
        address: IpAddr,
        id: NameId,
        queried_name: &Arc<str>,
        until: Timestamp,
        now: Timestamp,
    ) -> Learned {
        let mut writer = lock(&self.writer);
        self.sweep_next(&mut writer, now);
        let key = (tenant, address);
        let Some(part) = self.part(&key) else { return Learned::Full };
        let mut part = write(part);
        let (bound, count) = (writer.bound, writer.counts.entry(tenant).or_default());
        if let Some(own) = part.members.get_mut(&key) {
            if let Some(known) = own.iter_mut().find(|m| m.id == id) {
                let renewed = known.until > now;
                if until >= known.until {
                    *known = Membership { id, until, queried_name: Arc::clone(queried_name) };
                }
                return if renewed { Learned::Renewed } else { Learned::Added };
            }
            let before = own.len();
            own.retain(|m| m.until > now);
            writer.expired += before.saturating_sub(own.len()) as u64;
            if own.len() >= NAMES_MAX {
                return Learned::Crowded;
            }
            own.push(Membership { id, until, queried_name: Arc::clone(queried_name) });
            return Learned::Added;
        }
        if *count >= bound {
            return Learned::Full;
        }
        *count += 1;
        let member = Membership { id, until, queried_name: Arc::clone(queried_name) };
        part.members.insert(key, SmallVec::from_buf([member]));
        self.addresses.fetch_add(1, Ordering::AcqRel);
        Learned::Added
    }

    /// Removes expired memberships, and those of released names, from the next part, if that was not done
    /// for a second: a step whose time does not grow with the number of addresses.
    fn sweep_next(&self, writer: &mut NameTableWriter, now: Timestamp) {
        let at = writer.next;
        let Some(part) = self.parts.get(at) else { return };
        if now.as_nanos() < read(part).swept.as_nanos().saturating_add(SWEEP_EVERY) {
            return;
        }
        writer.next = (at + 1) % PARTS;
        let mut part = write(part);
        part.swept = now;
        let ids = lock(&self.ids);
        let (counts, mut expired, mut gone) = (&mut writer.counts, 0u64, 0usize);
        part.members.retain(|(tenant, _), own| {
            let before = own.len();
            own.retain(|m| m.until > now && ids.texts.contains_key(&m.id));
            expired += before.saturating_sub(own.len()) as u64;
            if own.is_empty() {
                gone += 1;
                if let Some(count) = counts.get_mut(tenant) {
                    *count = count.saturating_sub(1);
                }
            }
            !own.is_empty()
        });
        writer.expired += expired;
        self.addresses.fetch_sub(gone, Ordering::AcqRel);
    }

    /// The names that an address of a tenant has now.
    #[must_use]
    pub fn of(&self, tenant: TenantId, address: IpAddr, now: Timestamp) -> NameIds {
        if self.is_empty() {
            return NameIds::new();
        }
        let key = (tenant, address);
        let Some(part) = self.part(&key) else { return NameIds::new() };
        let part = read(part);
        let own = part.members.get(&key).map(SmallVec::as_slice).unwrap_or_default();
        own.iter().filter(|m| m.until > now).map(|m| m.id).collect()
    }

    /// The memberships of a tenant's address at present, with their reasons.
    #[must_use]
    pub fn memberships(&self, tenant: TenantId, address: IpAddr, now: Timestamp) -> Vec<Membership> {
        let key = (tenant, address);
        let Some(part) = self.part(&key) else { return Vec::new() };
        let part = read(part);
        let own = part.members.get(&key).map(SmallVec::as_slice).unwrap_or_default();
        own.iter().filter(|m| m.until > now).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_parts(seconds, 0)
    }

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(number))
    }

    #[test]
    fn a_name_keeps_its_number() {
        let names = Arc::new(NameTable::default());
        let first = names.lease(["a.example", "*.example", "a.example"]).unwrap();
        let (a, b) = (first.id("a.example").unwrap(), first.id("*.example").unwrap());
        assert_ne!(a, b);
        assert_eq!(names.text(b).as_deref(), Some("*.example"));
        // The next generation has one of them and a new one.
        let second = names.lease(["a.example", "b.example"]).unwrap();
        drop(first);
        assert_eq!((second.id("a.example"), names.id("a.example")), (Some(a), Some(a)));
        assert_eq!((names.id("*.example"), names.text(b)), (None, None));
        // A released name that is leased again gets another number: flows know the old one by its number.
        let third = names.lease(["*.example"]).unwrap();
        assert!(![a, b, second.id("b.example").unwrap()].contains(&third.id("*.example").unwrap()));
        assert_eq!(third.iter().count(), 1);
    }

    #[test]
    fn names_that_nobody_holds_leave_room_for_others_and_numbers_go_round() {
        let names = Arc::new(NameTable::default());
        for generation in 0..200 {
            let all: Vec<String> = (0..100).map(|n| format!("n{n}.g{generation}.example")).collect();
            let lease = names.lease(all.iter().map(String::as_str)).unwrap();
            assert_eq!(lease.iter().count(), 100);
        }
        let ids = lock(&names.ids);
        assert_eq!((ids.by_name.len(), ids.texts.len(), ids.next.get()), (0, 0, 20_001));
        drop(ids);
        let kept = names.lease(["kept"]).unwrap();
        lock(&names.ids).next = NonZeroU32::MAX;
        let more = names.lease(["last", "first"]).unwrap();
        assert_eq!([more.id("last"), more.id("first")].map(|id| id.unwrap().0.get()), [u32::MAX, 1]);
        // A number in use is skipped.
        lock(&names.ids).next = kept.id("kept").unwrap().0;
        assert_eq!(names.lease(["x"]).unwrap().id("x").unwrap().0.get(), 20_002);
    }

    #[test]
    fn members_of_a_name_that_nobody_holds_are_gone_after_one_look_at_each_part() {
        let names = Arc::new(NameTable::default());
        let (lease, kept) = (names.lease(["x"]).unwrap(), names.lease(["kept"]).unwrap());
        let asked = Arc::from("x");
        let learn = |id, n| names.learn(TenantId(0), address(n), id, &asked, at(90_000), at(1_000));
        (0..100).for_each(|n| assert_eq!(learn(lease.id("x").unwrap(), n), Learned::Added));
        let kept = kept.id("kept").unwrap();
        learn(kept, 500);
        drop(lease);
        for n in 0..PARTS as u64 {
            names.learn(TenantId(0), address(500), kept, &asked, at(90_000), at(2_000 + n));
        }
        assert_eq!(names.len(), 1);
    }

    #[test]
    fn with_one_key_the_same_happens_in_each_run() {
        let run = |key: u64| {
            let names = Arc::new(NameTable::keyed(key));
            names.set_bounds(50);
            let lease = names.lease(["x"]).unwrap();
            let (id, asked) = (lease.id("x").unwrap(), Arc::from("x"));
            // They expire one after the other, and the sweep's order decides which address gets the room.
            let learn = |n: u32| {
                let now = 1_000 + u64::from(n);
                names.learn(TenantId(0), address(n), id, &asked, at(now + 20), at(now))
            };
            (0..500).map(learn).collect::<Vec<_>>()
        };
        let (first, again) = (run(7), run(7));
        assert!(first.contains(&Learned::Full) && first == again);
        assert_ne!(first, run(8), "where the key is secret nobody knows which part an address is in");
    }

    #[test]
    fn a_full_tenant_keeps_what_it_has_and_leaves_others_alone() {
        let names = Arc::new(NameTable::default());
        names.set_bounds(100);
        let lease = names.lease(["x"]).unwrap();
        let (id, asked) = (lease.id("x").unwrap(), Arc::from("x"));
        let learn = |tenant, n: u32, now, until| {
            names.learn(TenantId(tenant), address(n), id, &asked, at(until), at(now))
        };
        (0..100).for_each(|n| assert_eq!(learn(0, n, 1_000, 2_000), Learned::Added));
        assert_eq!(learn(0, 100, 1_000, 9_000), Learned::Full);
        assert_eq!(learn(0, 7, 1_000, 3_000), Learned::Renewed);
        assert_eq!(learn(1, 100, 1_000, 2_000), Learned::Added);
        assert_eq!(names.len(), 101);
        // Expired ones leave room, after one sweep of each part.
        for n in 0..PARTS as u32 {
            learn(2, n, 2_500, 4_000);
        }
        assert_eq!(names.len(), 1 + PARTS);
        assert_eq!(names.expired(), 100);
        assert_eq!(names.of(TenantId(0), address(7), at(2_999)).as_slice(), [id]);
        assert!(names.of(TenantId(0), address(7), at(3_000)).is_empty());
        assert!(names.of(TenantId(1), address(7), at(2_500)).is_empty());
        assert_eq!(learn(0, 100, 2_500, 9_000), Learned::Added);
    }

    #[test]
    fn an_address_has_a_bounded_number_of_names() {
        let names = Arc::new(NameTable::default());
        let asked = Arc::from("x");
        let texts: Vec<String> = (0..=NAMES_MAX).map(|n| format!("n{n}")).collect();
        let lease = names.lease(texts.iter().map(String::as_str)).unwrap();
        let mut learned = texts.iter().map(|name| {
            let id = lease.id(name).unwrap();
            names.learn(TenantId(0), address(1), id, &asked, at(50), at(1))
        });
        assert!(learned.by_ref().take(NAMES_MAX).all(|l| l == Learned::Added));
        assert_eq!(learned.next(), Some(Learned::Crowded));
        assert_eq!(names.of(TenantId(0), address(1), at(2)).len(), NAMES_MAX);
    }

    proptest! {
        /// Compared with a list of all answers: an address has a name if some answer gave it and has not
        /// expired.
        #[test]
        fn the_same_as_a_list_of_answers(
            steps in proptest::collection::vec((0u16..3, 0u32..6, 0usize..5, 1u64..100, 0u64..40), 1..120),
        ) {
            let names = Arc::new(NameTable::default());
            let texts = ["0", "1", "2", "3", "4"];
            let lease = names.lease(texts).unwrap();
            let ids: Vec<NameId> = texts.iter().map(|name| lease.id(name).unwrap()).collect();
            let asked = Arc::from("x");
            let mut list = Vec::new();
            let mut now = 1_000;
            for (tenant, number, id, lives, later) in steps {
                now += later;
                let key = (TenantId(tenant), address(number));
                names.learn(key.0, key.1, ids[id], &asked, at(now + lives), at(now));
                list.push((key, ids[id], now + lives));
                for tenant in 0..3 {
                    for number in 0..6 {
                        let key = (TenantId(tenant), address(number));
                        let mut want: Vec<NameId> =
                            list.iter().filter(|(k, _, until)| *k == key && *until > now).map(|(_, id, _)| *id).collect();
                        want.sort_unstable();
                        want.dedup();
                        let mut got = names.of(key.0, key.1, at(now)).to_vec();
                        got.sort_unstable();
                        prop_assert_eq!(got, want);
                    }
                }
            }
        }
    }
}
