// SPDX-License-Identifier: Apache-2.0
//! Which addresses have which names now: what rules about names ask of a header beside its fields.
//!
//! A name of a policy (`api.example.com`, `*.example.com`) has a number ([`NameId`]) that it keeps over generations. An address is a member
//! of a name for a tenant, from when an answer said so until a time of the packet clock. The table is shared by all workers. It is
//! read when a flow is looked up, never for each packet, and written when an answer is seen: what was written before a packet left holds for
//! every packet that is sent because of it.
//!
//! Bounds: so many addresses of a tenant ([`Names::set_bounds`]), [`NAMES_MAX`] names of an address, [`IDS_MAX`] names in all. Who is refused at a bound
//! is told ([`Learned`]), and nobody who is in is put out for one who comes: a flood of answers ends no membership.

use crate::header::{NameId, NameIds};
use bartizan_base::{TenantId, Timestamp};
use core::net::IpAddr;
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicUsize, Ordering};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Names that an address may have at a time.
pub const NAMES_MAX: usize = 16;
/// Names of policies in the life of a program.
pub const IDS_MAX: u32 = 1 << 20;
/// Addresses of a tenant unless a policy file says otherwise.
pub const ADDRESSES: usize = 16_384;
/// Parts of the table, each with a lock of its own.
const PARTS: usize = 64;
/// Nanoseconds between two looks for what has expired in a part.
const SWEEP_EVERY: u64 = 1_000_000_000;

/// Why an address has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The name of a policy.
    pub id: NameId,
    /// Until when, on the packet clock.
    pub until: Timestamp,
    /// The name that was asked for when the address was answered.
    pub asked: Arc<str>,
}

/// What became of an address that was learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// It is new for this name.
    Added,
    /// It was a member; now it is one until the later of both times.
    Renewed,
    /// The tenant has as many addresses as it may: it is no member.
    Full,
    /// The address has as many names as it may: it is none of this one.
    Crowded,
}

/// An address of a tenant.
type Key = (TenantId, IpAddr);

#[derive(Debug, Default)]
struct Part {
    members: HashMap<Key, SmallVec<[Membership; 1]>>,
    swept: Timestamp,
}

/// What only who writes needs.
#[derive(Debug)]
struct Writer {
    /// Addresses by tenant.
    counts: HashMap<TenantId, usize>,
    /// The part that is looked through next.
    next: usize,
    bound: usize,
    expired: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Names {
    ids: Mutex<HashMap<Arc<str>, NameId>>,
    texts: RwLock<Vec<Arc<str>>>,
    parts: Vec<RwLock<Part>>,
    writer: Mutex<Writer>,
    hasher: RandomState,
    addresses: AtomicUsize,
}

impl Default for Names {
    fn default() -> Self {
        Names {
            ids: Mutex::default(),
            texts: RwLock::default(),
            parts: (0..PARTS).map(|_| RwLock::default()).collect(),
            writer: Mutex::new(Writer { counts: HashMap::new(), next: 0, bound: ADDRESSES, expired: 0 }),
            hasher: RandomState::new(),
            addresses: AtomicUsize::new(0),
        }
    }
}

// A thread that failed while it held a lock has left whole entries: each is written by one call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

impl Names {
    /// The number of a name of a policy. `None`: there were [`IDS_MAX`] others.
    #[must_use]
    pub fn id(&self, name: &str) -> Option<NameId> {
        let mut ids = lock(&self.ids);
        if let Some(known) = ids.get(name) {
            return Some(*known);
        }
        let mut texts = write(&self.texts);
        let number = u32::try_from(texts.len()).ok()?.checked_add(1).filter(|n| *n <= IDS_MAX)?;
        let id = NameId(NonZeroU32::new(number)?);
        let text: Arc<str> = Arc::from(name);
        texts.push(Arc::clone(&text));
        ids.insert(text, id);
        Some(id)
    }

    /// The name of a number.
    #[must_use]
    pub fn text(&self, id: NameId) -> Option<Arc<str>> {
        let at = usize::try_from(id.0.get()).ok()?.checked_sub(1)?;
        read(&self.texts).get(at).cloned()
    }

    /// How many addresses a tenant may have from here on. Those that are there stay.
    pub fn set_bounds(&self, addresses: usize) {
        lock(&self.writer).bound = addresses;
    }

    /// Addresses that are in the table, of all tenants; some may have expired.
    #[must_use]
    pub fn len(&self) -> usize {
        self.addresses.load(Ordering::Acquire)
    }

    /// Whether no address is in the table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memberships that have expired so far.
    #[must_use]
    pub fn expired(&self) -> u64 {
        lock(&self.writer).expired
    }

    fn part(&self, key: &Key) -> Option<&RwLock<Part>> {
        self.parts.get(self.hasher.hash_one(key) as usize % PARTS)
    }

    /// Makes an address a member of a name. `asked`: the name that was asked for.
    pub fn learn(
        &self,
        (tenant, address): (TenantId, IpAddr),
        id: NameId,
        asked: &Arc<str>,
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
                    *known = Membership { id, until, asked: Arc::clone(asked) };
                }
                return if renewed { Learned::Renewed } else { Learned::Added };
            }
            let before = own.len();
            own.retain(|m| m.until > now);
            writer.expired += before.saturating_sub(own.len()) as u64;
            if own.len() >= NAMES_MAX {
                return Learned::Crowded;
            }
            own.push(Membership { id, until, asked: Arc::clone(asked) });
            return Learned::Added;
        }
        if *count >= bound {
            return Learned::Full;
        }
        *count += 1;
        let member = Membership { id, until, asked: Arc::clone(asked) };
        part.members.insert(key, SmallVec::from_buf([member]));
        self.addresses.fetch_add(1, Ordering::AcqRel);
        Learned::Added
    }

    /// Looks for what has expired in the next part, if that was not done for a second: a step that no number of addresses makes long.
    fn sweep_next(&self, writer: &mut Writer, now: Timestamp) {
        let at = writer.next;
        let Some(part) = self.parts.get(at) else { return };
        if now.as_nanos() < read(part).swept.as_nanos().saturating_add(SWEEP_EVERY) {
            return;
        }
        writer.next = (at + 1) % PARTS;
        let mut part = write(part);
        part.swept = now;
        let (counts, mut expired, mut gone) = (&mut writer.counts, 0u64, 0usize);
        part.members.retain(|(tenant, _), own| {
            let before = own.len();
            own.retain(|m| m.until > now);
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

    /// Why an address of a tenant has the names that it has now.
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
        let names = Names::default();
        let (a, b) = (names.id("a.example"), names.id("*.example"));
        assert_ne!(a, b);
        assert_eq!(names.id("a.example"), a);
        assert_eq!(names.text(b.unwrap()).as_deref(), Some("*.example"));
    }

    #[test]
    fn a_full_tenant_keeps_what_it_has_and_leaves_others_alone() {
        let names = Names::default();
        names.set_bounds(100);
        let (id, asked) = (names.id("x").unwrap(), Arc::from("x"));
        let learn = |tenant, n: u32, now, until| {
            names.learn((TenantId(tenant), address(n)), id, &asked, at(until), at(now))
        };
        (0..100).for_each(|n| assert_eq!(learn(0, n, 1_000, 2_000), Learned::Added));
        assert_eq!(learn(0, 100, 1_000, 9_000), Learned::Full);
        assert_eq!(learn(0, 7, 1_000, 3_000), Learned::Renewed);
        assert_eq!(learn(1, 100, 1_000, 2_000), Learned::Added);
        assert_eq!(names.len(), 101);
        // What has expired leaves room, after one look at each part.
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
        let names = Names::default();
        let asked = Arc::from("x");
        let mut learned = (0..=NAMES_MAX).map(|n| {
            let id = names.id(&format!("n{n}")).unwrap();
            names.learn((TenantId(0), address(1)), id, &asked, at(50), at(1))
        });
        assert!(learned.by_ref().take(NAMES_MAX).all(|l| l == Learned::Added));
        assert_eq!(learned.next(), Some(Learned::Crowded));
        assert_eq!(names.of(TenantId(0), address(1), at(2)).len(), NAMES_MAX);
    }

    proptest! {
        /// Against a list of all answers: an address has a name if some answer gave it and holds yet.
        #[test]
        fn the_same_as_a_list_of_answers(
            steps in proptest::collection::vec((0u16..3, 0u32..6, 0usize..5, 1u64..100, 0u64..40), 1..120),
        ) {
            let names = Names::default();
            let ids: Vec<NameId> = (0..5).map(|n| names.id(&n.to_string()).unwrap()).collect();
            let asked = Arc::from("x");
            let mut list = Vec::new();
            let mut now = 1_000;
            for (tenant, number, id, lives, later) in steps {
                now += later;
                let key = (TenantId(tenant), address(number));
                names.learn(key, ids[id], &asked, at(now + lives), at(now));
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
