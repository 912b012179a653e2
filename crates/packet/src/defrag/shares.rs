// SPDX-License-Identifier: Apache-2.0
//! Shares of the bounds of defragmentation: the usage of each tenant and each source, and the choice whose
//! datagram is evicted when a bound is met.
//!
//! A share weighs datagrams, fragments and bytes as parts of their bounds, so that whichever bound is met,
//! the tenant or source that fills it weighs most. The tenant that holds most loses a datagram. Within it,
//! so does the source that holds most, if that is more than a [`CROWDING`]th. If no source holds so much (a
//! flood of invented addresses, or many hosts), the datagram that has waited longest is evicted, whoever
//! sent it: one whose fragments arrive together is whole long before its turn. A source is an IPv4 address
//! or an IPv6 /64, all of whose addresses one host may have.
//!
//! Source: the idea of max-min fairness (Demers, Keshav and Shenker, "Analysis and Simulation of a Fair
//! Queueing Algorithm", 1989).

use super::datagram::Datagram;
use super::fragment::FragmentKey;
use super::store::NIL;
use bartizan_base::TenantId;
use core::hash::{BuildHasher, Hash};
use core::mem::size_of;
use core::net::{IpAddr, Ipv6Addr};
use hashbrown::HashTable;

/// A source that holds more than this part of the bounds loses datagrams before others of its tenant.
pub(super) const CROWDING: u64 = 32;
/// The whole of each bound.
const WHOLE: u64 = 1 << 32;
/// The most sources that can each hold more than a part of [`CROWDING`] of the three bounds together.
const CROWDING_MOST: usize = 3 * CROWDING as usize;

/// The lists that order datagrams by last use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum RecencyList {
    /// All datagrams.
    All,
    /// Those of a tenant.
    Tenant,
    /// Those of a source.
    Source,
}

/// Number of [`RecencyList`]s.
pub(super) const LISTS: usize = 3;

/// A datagram's neighbours in a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct DatagramLink {
    pub(super) older: u32,
    pub(super) newer: u32,
}

impl DatagramLink {
    pub(super) const NONE: DatagramLink = DatagramLink { older: NIL, newer: NIL };
}

/// Datagrams from the one that has waited longest to the one touched last.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecencyOrder {
    pub(super) oldest: u32,
    pub(super) newest: u32,
}

impl RecencyOrder {
    pub(super) const EMPTY: RecencyOrder = RecencyOrder { oldest: NIL, newest: NIL };

    pub(super) fn push(&mut self, datagrams: &mut [Datagram], list: RecencyList, index: u32) {
        let older = self.newest;
        if let Some(link) = link_mut(datagrams, list, index) {
            *link = DatagramLink { older, newer: NIL };
        }
        match link_mut(datagrams, list, older) {
            Some(link) => link.newer = index,
            None => self.oldest = index,
        }
        self.newest = index;
    }

    pub(super) fn remove(&mut self, datagrams: &mut [Datagram], list: RecencyList, index: u32) {
        let Some(DatagramLink { older, newer }) = link_mut(datagrams, list, index).copied() else { return };
        match link_mut(datagrams, list, older) {
            Some(link) => link.newer = newer,
            None => self.oldest = newer,
        }
        match link_mut(datagrams, list, newer) {
            Some(link) => link.older = older,
            None => self.newest = older,
        }
    }
}

fn link_mut(datagrams: &mut [Datagram], list: RecencyList, index: u32) -> Option<&mut DatagramLink> {
    datagrams.get_mut(index as usize)?.links.get_mut(list as usize)
}

/// The source of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct DatagramSource {
    tenant: TenantId,
    /// An IPv4 address, or the first address of a /64.
    address: IpAddr,
}

impl DatagramSource {
    pub(super) const fn of(key: &FragmentKey) -> Self {
        let address = match key.src {
            IpAddr::V4(_) => key.src,
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
        };
        DatagramSource { tenant: key.tenant, address }
    }
}

/// The share of a tenant or a source.
struct DefragShare<K> {
    key: K,
    weight: u64,
    datagrams: u32,
    order: RecencyOrder,
}

/// Tenants, or sources, with usage.
struct Shares<K> {
    slots: Vec<DefragShare<K>>,
    free: Vec<u32>,
    table: HashTable<u32>,
}

impl<K: Copy + Eq + Hash> Shares<K> {
    fn with_capacity(room: usize) -> Self {
        Shares { slots: Vec::new(), free: Vec::new(), table: HashTable::with_capacity(room) }
    }

    fn find(&self, hasher: &impl BuildHasher, key: &K) -> Option<u32> {
        let is_it = |at: &u32| self.slots.get(*at as usize).is_some_and(|share| share.key == *key);
        self.table.find(hasher.hash_one(key), is_it).copied()
    }

    fn find_or_make(&mut self, hasher: &impl BuildHasher, key: K) -> u32 {
        if let Some(at) = self.find(hasher, &key) {
            return at;
        }
        let share = DefragShare { key, weight: 0, datagrams: 0, order: RecencyOrder::EMPTY };
        let at = match self.free.pop() {
            Some(at) => {
                if let Some(slot) = self.slots.get_mut(at as usize) {
                    *slot = share;
                }
                at
            }
            None => {
                self.slots.push(share);
                self.slots.len().saturating_sub(1) as u32
            }
        };
        let slots = &self.slots;
        self.table.insert_unique(hasher.hash_one(key), at, |at| {
            slots.get(*at as usize).map_or(0, |share| hasher.hash_one(share.key))
        });
        at
    }

    fn get_mut(&mut self, at: u32) -> Option<&mut DefragShare<K>> {
        self.slots.get_mut(at as usize)
    }

    /// Removes a share without usage.
    fn release_if_empty(&mut self, hasher: &impl BuildHasher, at: u32) {
        let Some(share) = self.slots.get(at as usize).filter(|share| share.datagrams == 0) else { return };
        if let Ok(entry) = self.table.find_entry(hasher.hash_one(share.key), |found| *found == at) {
            entry.remove();
            self.free.push(at);
        }
    }

    fn memory(&self) -> usize {
        let slots = self.slots.capacity().saturating_mul(size_of::<DefragShare<K>>());
        let free = self.free.capacity().saturating_mul(size_of::<u32>());
        self.table.allocation_size().saturating_add(slots).saturating_add(free)
    }
}

/// The memory of a datagram beside its own place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) nodes: u32,
    pub(super) chunks: u32,
}

impl Usage {
    pub(super) fn add(&mut self, other: Usage) {
        self.nodes = self.nodes.saturating_add(other.nodes);
        self.chunks = self.chunks.saturating_add(other.chunks);
    }

    pub(super) fn subtract(&mut self, other: Usage) {
        self.nodes = self.nodes.saturating_sub(other.nodes);
        self.chunks = self.chunks.saturating_sub(other.chunks);
    }
}

/// See the module.
pub(super) struct FragmentBudget {
    tenants: Shares<TenantId>,
    sources: Shares<DatagramSource>,
    /// Sources that exceed their part.
    crowding: Vec<u32>,
    /// Weights of a datagram, a node and a chunk.
    units: [u64; 3],
}

impl FragmentBudget {
    /// `room`: the most datagrams; `bounds`: those of datagrams, nodes and chunks.
    pub(super) fn new(room: usize, bounds: [u64; 3]) -> Self {
        FragmentBudget {
            tenants: Shares::with_capacity(0),
            sources: Shares::with_capacity(room),
            crowding: Vec::with_capacity(CROWDING_MOST),
            units: bounds.map(|bound| WHOLE / bound.max(1)),
        }
    }

    /// The most bytes that one more datagram takes here.
    pub(super) const PER_DATAGRAM: usize = size_of::<DefragShare<DatagramSource>>() + size_of::<u32>();

    /// Reserves memory for the sources of so many datagrams in all.
    pub(super) fn reserve(&mut self, datagrams: usize) {
        let Shares { slots, free, .. } = &mut self.sources;
        slots.reserve_exact(datagrams.saturating_sub(slots.len()));
        free.reserve_exact(datagrams.saturating_sub(free.len()));
    }

    /// Adds a new datagram, as the one touched last.
    pub(super) fn enter(&mut self, hasher: &impl BuildHasher, datagrams: &mut [Datagram], index: u32) {
        let Some(datagram) = datagrams.get_mut(index as usize) else { return };
        let source = self.sources.find_or_make(hasher, DatagramSource::of(&datagram.key));
        let tenant = self.tenants.find_or_make(hasher, datagram.key.tenant);
        (datagram.source, datagram.tenant) = (source, tenant);
        if let Some(share) = self.sources.get_mut(source) {
            share.datagrams = share.datagrams.saturating_add(1);
        }
        if let Some(share) = self.tenants.get_mut(tenant) {
            share.datagrams = share.datagrams.saturating_add(1);
        }
        self.push(datagrams, index);
        self.weigh(datagrams, index);
    }

    /// Removes a datagram that ends.
    pub(super) fn leave(&mut self, hasher: &impl BuildHasher, datagrams: &mut [Datagram], index: u32) {
        self.remove(datagrams, index);
        let Some(datagram) = datagrams.get_mut(index as usize) else { return };
        let (tenant, source) = (datagram.tenant, datagram.source);
        let weight = core::mem::take(&mut datagram.weight);
        self.change(tenant, source, weight, 0);
        if let Some(share) = self.tenants.get_mut(tenant) {
            share.datagrams = share.datagrams.saturating_sub(1);
        }
        if let Some(share) = self.sources.get_mut(source) {
            share.datagrams = share.datagrams.saturating_sub(1);
        }
        self.tenants.release_if_empty(hasher, tenant);
        self.sources.release_if_empty(hasher, source);
    }

    /// Makes a datagram the one touched last.
    pub(super) fn touch(&mut self, datagrams: &mut [Datagram], index: u32) {
        self.remove(datagrams, index);
        self.push(datagrams, index);
    }

    /// Weighs a datagram anew, after its usage has changed.
    pub(super) fn weigh(&mut self, datagrams: &mut [Datagram], index: u32) {
        let Some(datagram) = datagrams.get_mut(index as usize) else { return };
        let [each, node, chunk] = self.units;
        let mut held = datagram.held;
        held.add(datagram.frames_held);
        let nodes = node.saturating_mul(u64::from(held.nodes));
        let weight = each.saturating_add(nodes).saturating_add(chunk.saturating_mul(u64::from(held.chunks)));
        let before = core::mem::replace(&mut datagram.weight, weight);
        let (tenant, source) = (datagram.tenant, datagram.source);
        self.change(tenant, source, before, weight);
    }

    fn change(&mut self, tenant: u32, source: u32, before: u64, now: u64) {
        let change = |weight: u64| weight.saturating_sub(before).saturating_add(now);
        if let Some(share) = self.tenants.get_mut(tenant) {
            share.weight = change(share.weight);
        }
        let Some(share) = self.sources.get_mut(source) else { return };
        let crowds = |weight: u64| weight > WHOLE / CROWDING;
        let was = share.weight;
        share.weight = change(was);
        match (crowds(was), crowds(share.weight)) {
            (false, true) if self.crowding.len() < CROWDING_MOST => self.crowding.push(source),
            (true, false) => self.crowding.retain(|at| *at != source),
            _ => {}
        }
    }

    fn push(&mut self, datagrams: &mut [Datagram], index: u32) {
        let Some((tenant, source)) = datagrams.get(index as usize).map(|d| (d.tenant, d.source)) else {
            return;
        };
        if let Some(share) = self.tenants.get_mut(tenant) {
            share.order.push(datagrams, RecencyList::Tenant, index);
        }
        if let Some(share) = self.sources.get_mut(source) {
            share.order.push(datagrams, RecencyList::Source, index);
        }
    }

    fn remove(&mut self, datagrams: &mut [Datagram], index: u32) {
        let Some((tenant, source)) = datagrams.get(index as usize).map(|d| (d.tenant, d.source)) else {
            return;
        };
        if let Some(share) = self.tenants.get_mut(tenant) {
            share.order.remove(datagrams, RecencyList::Tenant, index);
        }
        if let Some(share) = self.sources.get_mut(source) {
            share.order.remove(datagrams, RecencyList::Source, index);
        }
    }

    /// The candidates for eviction in favour of a fragment with this key.
    pub(super) fn eviction_candidates(
        &self,
        hasher: &impl BuildHasher,
        newcomer: &FragmentKey,
    ) -> Option<EvictionCandidates> {
        let own = self.tenants.find(hasher, &newcomer.tenant);
        let own_weight = own.and_then(|at| self.tenants.slots.get(at as usize)).map_or(0, |own| own.weight);
        let most = (0..).zip(&self.tenants.slots).filter(|(_, share)| share.datagrams > 0);
        let most = most.max_by_key(|(_, share)| share.weight).filter(|(_, share)| share.weight > own_weight);
        let tenant = self.tenants.slots.get(most.map(|(at, _)| at).or(own)? as usize)?;
        let crowding = self.crowding.iter().filter_map(|at| self.sources.slots.get(*at as usize));
        let source =
            crowding.filter(|source| source.key.tenant == tenant.key).max_by_key(|source| source.weight);
        Some(EvictionCandidates {
            oldest_of_tenant: tenant.order.oldest,
            oldest_of_source: source.map(|share| share.order.oldest),
            is_newcomer: source.is_some_and(|share| share.key == DatagramSource::of(newcomer)),
        })
    }

    /// Whether no share holds anything.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let free = |slots: usize, free: usize, held: usize| slots == free && held == 0;
        free(self.sources.slots.len(), self.sources.free.len(), self.sources.table.len())
            && free(self.tenants.slots.len(), self.tenants.free.len(), self.tenants.table.len())
            && self.crowding.is_empty()
            && self.tenants.slots.iter().all(|share| share.weight == 0)
            && self.sources.slots.iter().all(|share| share.weight == 0 && share.order.newest == NIL)
    }

    /// Bytes allocated.
    pub(super) fn memory(&self) -> usize {
        let crowding = self.crowding.capacity().saturating_mul(size_of::<u32>());
        self.tenants.memory().saturating_add(self.sources.memory()).saturating_add(crowding)
    }
}

/// The lists in which to look for a datagram to evict.
#[derive(Clone, Copy, Debug)]
pub(super) struct EvictionCandidates {
    /// The oldest datagram of the tenant that holds most.
    pub(super) oldest_of_tenant: u32,
    /// The oldest datagram of that tenant's source that holds most, if that exceeds its part.
    pub(super) oldest_of_source: Option<u32>,
    /// Whether that source is the newcomer's own: no other source loses a datagram for it.
    pub(super) is_newcomer: bool,
}
