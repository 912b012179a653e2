// SPDX-License-Identifier: Apache-2.0
//! Bounded IP defragmentation, for IPv4 and IPv6 alike, with the overlap policies of hosts.
//!
//! Sources: RFC 791, RFC 8200 section 4.5, RFC 815; the policies in [`OverlapPolicy`]. All state is bounded
//! by [`DefragConfig`]; when a bound is met, a datagram of the tenant and source that hold most is evicted
//! and counted (`shares`). A datagram's identity includes tenant, link, VLANs and tunnel, is hashed with a
//! secret seed, and ends with its completion: a later fragment with the same id belongs to another
//! datagram.
//!
//! In prevention the engine's view of a datagram has to be the receiver's, whatever receiver that is
//! (docs/design/0011-what-the-receiver-reads.md). With [`DefragConfig::strict`]
//!
//! * every fragment is refused that receivers treat differently, or that differs from its datagram's first
//!   in a field by which a receiver decides whether to accept it: see [`DropReason`] and `likeness`;
//! * a datagram that is whole waits for a decision: [`Defragmenter::pass`] or [`Defragmenter::refuse`]; the
//!   id of one that passed is not accepted again for a while (`remembered`);
//! * the id of an evicted datagram is not accepted again either, unless its frames were held: a part of it
//!   may have left.
//!
//! With [`DefragConfig::hold`] the frames of a datagram wait here as well ([`Defragmenter::attach`]), and
//! come out together when it has passed ([`Defragmenter::pop_outgoing`]); frames of a datagram that does
//! not become whole, or is refused, come out by [`Defragmenter::pop_discarded`] and are not sent. Frame and
//! note are opaque here.
//!
//! Not done: ICMP "time exceeded" of reassembly, the event `ipv6.frag_invalid_length` (the decoder's),
//! cutting fragments to multiples of eight bytes (as Suricata does not either), and the unconditional refusal
//! of overlapping IPv6 fragments by RFC 5722 (in detection the event and the policy decide; strict mode
//! refuses them).

mod config;
mod counters;
mod datagram;
mod fragment;
mod holding;
mod likeness;
mod outcome;
mod policy;
mod remembered;
mod room;
mod shares;
#[cfg(test)]
mod shares_tests;
mod store;
#[cfg(test)]
mod strict_tests;
#[cfg(test)]
mod tests;

pub use config::{DefragConfig, HostSettings};
pub use counters::{DefragCounters, DefragEvent, DefragEvents, DropReason, VersionCounters};
pub use datagram::DatagramId;
pub use fragment::{Fragment, FragmentKey};
pub use holding::Attached;
pub use outcome::{DefragOutcome, DefragResult};
pub use policy::OverlapPolicy;

use bartizan_base::Timestamp;
use core::hash::BuildHasher;
use core::mem::size_of;
use datagram::{Assembly, Datagram, DatagramState};
use foldhash::quality::FixedState;
use fragment::check;
use hashbrown::HashTable;
use remembered::Remembered;
use shares::{FragmentBudget, RecencyList, RecencyOrder};
use store::{CHUNK, FragmentQueue, FragmentStore, Full, NIL};

/// Collects fragments and returns datagrams. One per worker; no locks.
pub struct Defragmenter {
    config: DefragConfig,
    hasher: FixedState,
    table: HashTable<u32>,
    datagrams: Vec<Datagram>,
    free: Vec<u32>,
    /// All datagrams by their last use.
    order: RecencyOrder,
    /// The usage of each tenant and source.
    budget: FragmentBudget,
    store: FragmentStore,
    remembered: Remembered,
    serial: u32,
    /// Frames of datagrams that passed, of those refused, and of evicted ones.
    outgoing: FragmentQueue,
    discarded: FragmentQueue,
    evicted: FragmentQueue,
    counters: DefragCounters,
    /// The most bytes ever allocated.
    peak: usize,
}

impl Defragmenter {
    /// Reserves the table; everything else grows with its use.
    #[must_use]
    pub fn new(config: DefragConfig) -> Self {
        let max_trackers = config.max_trackers.clamp(1, NIL - 1);
        let config = DefragConfig { max_trackers, strict: config.strict || config.hold, ..config };
        let remember = if config.strict { config.remember } else { 0 };
        // A held fragment has its frame as well.
        let nodes = config.max_fragments.saturating_mul(if config.hold { 2 } else { 1 });
        // An empty table must not use up a small memory limit.
        let affordable = config.memory / size_of::<Datagram>().saturating_add(FragmentBudget::PER_DATAGRAM);
        let room = (max_trackers as usize).min(affordable);
        let bounds = [u64::from(max_trackers), u64::from(nodes), (config.memory / CHUNK) as u64];
        Self {
            hasher: FixedState::with_seed(config.hash_seed),
            table: HashTable::with_capacity(room),
            datagrams: Vec::new(),
            free: Vec::new(),
            order: RecencyOrder::EMPTY,
            budget: FragmentBudget::new(room, bounds),
            store: FragmentStore::new(nodes),
            remembered: Remembered::new(remember, config.memory),
            serial: 0,
            outgoing: FragmentQueue::EMPTY,
            discarded: FragmentQueue::EMPTY,
            evicted: FragmentQueue::EMPTY,
            counters: DefragCounters::default(),
            peak: 0,
            config,
        }
    }

    /// Counts a fragment whose end was not captured: it cannot be part of a datagram.
    pub fn leave_out_cut(&mut self, is_ipv4: bool) {
        let counters = if is_ipv4 { &mut self.counters.ipv4 } else { &mut self.counters.ipv6 };
        counters.fragments = counters.fragments.saturating_add(1);
        self.counters.drop(DropReason::Cut);
    }

    /// Takes a fragment. If it completes its datagram, `out` has the datagram: for IPv4 with corrected total
    /// length, fragment fields and checksum; for IPv6 without the fragment header, with corrected payload
    /// length and next header. Otherwise the contents of `out` are undefined.
    ///
    /// `host` is the destination's treatment of overlaps; it applies to the datagram from its first fragment
    /// on. `now` is the packet clock.
    pub fn insert(
        &mut self,
        key: &FragmentKey,
        fragment: &Fragment<'_>,
        host: impl Into<HostSettings>,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> DefragOutcome {
        let mut events = DefragEvents::NONE;
        let taken = self.take(key, fragment, host.into(), now, out, &mut events);
        let (result, datagram) = match taken {
            Ok((result, datagram)) => (result, datagram),
            Err(reason) => (DefragResult::Dropped(reason), None),
        };
        if let DefragResult::Dropped(reason) = result {
            self.counters.drop(reason);
            if matches!(reason, DropReason::Memory | DropReason::DatagramFragments) {
                events.add(pick(key, DefragEvent::Ipv4FragIgnored, DefragEvent::Ipv6FragIgnored));
            }
            if reason == DropReason::TooLarge {
                events.add(pick(key, DefragEvent::Ipv4FragPktTooLarge, DefragEvent::Ipv6FragPktTooLarge));
            }
        }
        DefragOutcome { result, events, datagram }
    }

    fn take(
        &mut self,
        key: &FragmentKey,
        fragment: &Fragment<'_>,
        host: HostSettings,
        now: Timestamp,
        out: &mut Vec<u8>,
        events: &mut DefragEvents,
    ) -> Result<(DefragResult, Option<DatagramId>), DropReason> {
        if fragment.offset == 0 && !fragment.more {
            return Err(DropReason::NotAFragment);
        }
        let counters = if key.is_ipv4() { &mut self.counters.ipv4 } else { &mut self.counters.ipv6 };
        counters.fragments = counters.fragments.saturating_add(1);
        let end = check(key, fragment)?;
        self.expire_some(now, 2);
        let key = key.normal();
        if self.config.strict {
            if !likeness::is_sound(&key, fragment) {
                return Err(DropReason::Unsound);
            }
            if self.remembered.contains(self.hasher.hash_one(key), now) {
                return Err(DropReason::Reused);
            }
        }
        let index = self.find_or_make(&key, host, now).ok_or(DropReason::Memory)?;
        let timeout = host.timeout.unwrap_or(self.config.timeout);
        let kept = self.admit(index, fragment, &key, end).and_then(|()| {
            self.touch(index, now + timeout);
            self.keep(index, fragment, end, now, events)
        });
        self.budget.weigh(&mut self.datagrams, index);
        if let Err(reason) = kept {
            let datagram = self.datagrams.get(index as usize);
            if datagram
                .is_some_and(|datagram| datagram.fragments == 0 && datagram.state == DatagramState::Open)
            {
                self.release(index);
            }
            return Err(reason);
        }
        let Some(datagram) = self.datagrams.get(index as usize) else { return Err(DropReason::Memory) };
        let assembly = datagram.assemble(&self.store, out);
        if assembly == Assembly::TooLarge {
            if self.config.strict {
                self.stop(index);
            } else {
                self.release(index);
            }
            return Err(DropReason::TooLarge);
        }
        if assembly == Assembly::Done {
            let counters = if key.is_ipv4() { &mut self.counters.ipv4 } else { &mut self.counters.ipv6 };
            counters.reassembled = counters.reassembled.saturating_add(1);
        }
        Ok(self.taken(index, assembly == Assembly::Done))
    }

    /// Notes an accepted fragment; with it, its datagram may be `whole`.
    fn taken(&mut self, index: u32, whole: bool) -> (DefragResult, Option<DatagramId>) {
        let result = if whole { DefragResult::Complete } else { DefragResult::Held };
        if !self.config.strict {
            if whole {
                self.release(index);
            }
            return (result, None);
        }
        let Some(datagram) = self.datagrams.get_mut(index as usize) else { return (result, None) };
        // If frames are not held, a fragment that waits for others has left.
        datagram.unsettled = datagram.unsettled.saturating_add(u32::from(whole || self.config.hold));
        let id = DatagramId { index, serial: datagram.serial };
        if whole {
            datagram.clear(&mut self.store);
            datagram.state = DatagramState::Judged;
            self.budget.weigh(&mut self.datagrams, index);
        }
        (result, Some(id))
    }

    fn admit(
        &mut self,
        index: u32,
        fragment: &Fragment<'_>,
        key: &FragmentKey,
        end: u32,
    ) -> Result<(), DropReason> {
        if !self.config.strict {
            return Ok(());
        }
        let likeness = likeness::likeness(&self.hasher, key, fragment);
        let datagram = self.datagrams.get_mut(index as usize).ok_or(DropReason::Memory)?;
        datagram.admit(fragment, likeness, end)
    }

    /// Stores the fragment, then lets the policy decide: no held fragment is trimmed for one that finds no
    /// room.
    fn keep(
        &mut self,
        index: u32,
        fragment: &Fragment<'_>,
        end: u32,
        now: Timestamp,
        events: &mut DefragEvents,
    ) -> Result<(), DropReason> {
        let held = self.datagrams.get(index as usize).map_or(0, |datagram| datagram.fragments);
        if held >= self.config.max_datagram_fragments {
            self.counters.max_frags_reached = self.counters.max_frags_reached.saturating_add(1);
            return Err(DropReason::DatagramFragments);
        }
        if self.config.strict
            && let Some(datagram) = self.datagrams.get(index as usize)
            && datagram.overlaps(&self.store, u32::from(fragment.offset), end)
        {
            events.add(pick(&datagram.key, DefragEvent::Ipv4FragOverlap, DefragEvent::Ipv6FragOverlap));
            return Err(DropReason::Overlapped);
        }
        let header = if fragment.offset == 0 { fragment.header } else { &[] };
        let node = self.store_fragment(index, header, fragment.payload, now)?;
        let Some(datagram) = self.datagrams.get_mut(index as usize) else { return Err(DropReason::Memory) };
        let offset = u32::from(fragment.offset);
        let resolved = datagram.resolve(&mut self.store, offset, end);
        if resolved.overlap {
            events.add(pick(&datagram.key, DefragEvent::Ipv4FragOverlap, DefragEvent::Ipv6FragOverlap));
        }
        let Some(trim) = resolved.trim else {
            self.store.free(node);
            return Err(DropReason::Overlapped);
        };
        if let Some(node) = self.store.node_mut(node) {
            node.more = fragment.more;
            node.next_header = fragment.next_header;
        }
        datagram.link(&mut self.store, node, offset, trim);
        Ok(())
    }

    /// Finds room for a fragment, by evicting other datagrams if need be.
    fn store_fragment(
        &mut self,
        index: u32,
        header: &[u8],
        payload: &[u8],
        now: Timestamp,
    ) -> Result<u32, DropReason> {
        let Some(key) = self.datagrams.get(index as usize).map(|datagram| datagram.key) else {
            return Err(DropReason::Memory);
        };
        loop {
            let room = self.config.memory.saturating_sub(self.memory_used());
            match self.store.put(header, payload, room) {
                Ok(node) => {
                    self.peak = self.peak.max(self.memory_used());
                    return Ok(node);
                }
                Err(Full::Fragments | Full::Memory) => {
                    self.counters.max_frags_reached = self.counters.max_frags_reached.saturating_add(1);
                    // Its present usage counts as well.
                    self.budget.weigh(&mut self.datagrams, index);
                    if !self.make_room(&key, index, now) {
                        return Err(DropReason::Memory);
                    }
                }
            }
        }
    }

    fn find_or_make(&mut self, key: &FragmentKey, host: HostSettings, now: Timestamp) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        let datagrams = &self.datagrams;
        let found = self
            .table
            .find(hash, |index| datagrams.get(*index as usize).is_some_and(|datagram| datagram.key == *key))
            .copied();
        if let Some(index) = found {
            if self.datagrams.get(index as usize).is_some_and(|datagram| datagram.expires >= now) {
                return Some(index);
            }
            self.counters.worker_timeouts = self.counters.worker_timeouts.saturating_add(1);
            self.release(index);
        }
        let index = self.free_slot(key, now)?;
        self.serial = self.serial.wrapping_add(1).max(1);
        let mut datagram = Datagram::new(*key, host.policy);
        datagram.serial = self.serial;
        match self.datagrams.get_mut(index as usize) {
            Some(slot) => *slot = datagram,
            None => self.datagrams.push(datagram),
        }
        let (datagrams, hasher) = (&self.datagrams, &self.hasher);
        self.table.insert_unique(hash, index, |index| {
            datagrams.get(*index as usize).map_or(0, |datagram| hasher.hash_one(datagram.key))
        });
        self.order.push(&mut self.datagrams, RecencyList::All, index);
        self.budget.enter(&self.hasher, &mut self.datagrams, index);
        Some(index)
    }

    /// A free place for a datagram, made by the eviction of another one when a bound is met.
    fn free_slot(&mut self, key: &FragmentKey, now: Timestamp) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            return Some(index);
        }
        let used = self.datagrams.len();
        if used >= self.config.max_trackers as usize {
            self.counters.max_trackers_reached = self.counters.max_trackers_reached.saturating_add(1);
            self.make_room(key, NIL, now);
            return self.free.pop();
        }
        if used == self.datagrams.capacity() {
            let more = used.clamp(16, 1024);
            // The list of free places never outgrows that of the datagrams.
            let each = size_of::<Datagram>()
                .saturating_add(size_of::<u32>())
                .saturating_add(FragmentBudget::PER_DATAGRAM);
            let bytes = more.saturating_mul(each);
            if self.config.memory.saturating_sub(self.memory_used()) < bytes {
                self.counters.max_trackers_reached = self.counters.max_trackers_reached.saturating_add(1);
                self.make_room(key, NIL, now);
                return self.free.pop();
            }
            self.budget.reserve(used.saturating_add(more));
            self.datagrams.reserve_exact(more);
            self.free.reserve_exact(used.saturating_add(more));
        }
        Some(used as u32)
    }

    /// Frees up to `budget` timed-out datagrams; returns their number. [`Self::insert`] does a little of
    /// this; call it with the clock when no fragments come.
    pub fn expire_some(&mut self, now: Timestamp, budget: usize) -> usize {
        let mut freed = 0;
        while freed < budget
            && self.datagrams.get(self.order.oldest as usize).is_some_and(|datagram| datagram.expires < now)
        {
            self.release(self.order.oldest);
            self.counters.manager_timeouts = self.counters.manager_timeouts.saturating_add(1);
            freed = freed.saturating_add(1);
        }
        freed
    }

    /// Ends a datagram: removes it from table and order and frees its fragments.
    fn release(&mut self, index: u32) {
        self.order.remove(&mut self.datagrams, RecencyList::All, index);
        self.budget.leave(&self.hasher, &mut self.datagrams, index);
        let Some(datagram) = self.datagrams.get_mut(index as usize) else { return };
        datagram.clear(&mut self.store);
        let (frames, _) = datagram.take_frames();
        // No id finds this datagram any more.
        datagram.serial = 0;
        self.discarded.append(&mut self.store, frames);
        self.counters.drop_some(DropReason::Incomplete, frames.len);
        let hash = self.hasher.hash_one(datagram.key);
        if let Ok(entry) = self.table.find_entry(hash, |entry| *entry == index) {
            entry.remove();
        }
        self.free.push(index);
    }

    /// Refuses a datagram: no frame of it leaves.
    fn stop(&mut self, index: u32) {
        let Some(datagram) = self.datagrams.get_mut(index as usize) else { return };
        datagram.clear(&mut self.store);
        datagram.state = DatagramState::Refused;
        let (frames, _) = datagram.take_frames();
        self.counters.drop_some(DropReason::Refused, frames.len);
        self.discarded.append(&mut self.store, frames);
        self.budget.weigh(&mut self.datagrams, index);
        self.end_if_settled(index);
    }

    fn end_if_settled(&mut self, index: u32) {
        let Some(datagram) = self.datagrams.get(index as usize) else { return };
        let over = match datagram.state {
            DatagramState::Open | DatagramState::Judged => false,
            DatagramState::Passed => datagram.unsettled == 0,
            DatagramState::Refused => datagram.unsettled == 0 && self.config.hold,
        };
        if over {
            self.release(index);
        }
    }

    fn touch(&mut self, index: u32, expires: Timestamp) {
        if let Some(datagram) = self.datagrams.get_mut(index as usize) {
            datagram.expires = expires;
        }
        if self.order.newest != index {
            self.order.remove(&mut self.datagrams, RecencyList::All, index);
            self.order.push(&mut self.datagrams, RecencyList::All, index);
            self.budget.touch(&mut self.datagrams, index);
        }
    }

    /// Datagrams that wait for fragments.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.datagrams.len().saturating_sub(self.free.len())
    }

    /// Fragments held, and frames.
    #[must_use]
    pub fn fragments(&self) -> u32 {
        self.store.fragments()
    }

    /// Bytes allocated (`defrag.memuse`): never more than [`DefragConfig::memory`] and the empty table.
    #[must_use]
    pub fn memory_used(&self) -> usize {
        let datagrams = self.datagrams.capacity().saturating_mul(size_of::<Datagram>());
        let free = self.free.capacity().saturating_mul(size_of::<u32>());
        self.table
            .allocation_size()
            .saturating_add(datagrams)
            .saturating_add(free)
            .saturating_add(self.budget.memory())
            .saturating_add(self.remembered.memory())
            .saturating_add(self.store.memory())
    }

    /// The most bytes ever allocated.
    #[must_use]
    pub fn memory_peak(&self) -> usize {
        self.peak.max(self.memory_used())
    }

    /// The counts so far.
    #[must_use]
    pub fn counters(&self) -> &DefragCounters {
        &self.counters
    }
}

const fn pick(key: &FragmentKey, ipv4: DefragEvent, ipv6: DefragEvent) -> DefragEvent {
    if key.is_ipv4() { ipv4 } else { ipv6 }
}
