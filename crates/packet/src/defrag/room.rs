// SPDX-License-Identifier: Apache-2.0
//! Eviction when a bound is met: the choice of the datagram within a tenant and source, which `shares`
//! chooses, and the eviction itself.

use super::datagram::DatagramState;
use super::fragment::FragmentKey;
use super::shares::RecencyList;
use super::{Defragmenter, DropReason};
use bartizan_base::Timestamp;
use core::hash::BuildHasher;

/// The most datagrams to examine for one that may be evicted.
const EVICTION_SCAN: usize = 16;

impl Defragmenter {
    /// Evicts a datagram for a fragment with this key, except the one at `sparing`: a timed-out one, else one
    /// of the tenant and source that hold most. False when none may be evicted.
    pub(super) fn make_room(&mut self, key: &FragmentKey, sparing: u32, now: Timestamp) -> bool {
        let oldest = self.order.oldest;
        if oldest != sparing && self.datagrams.get(oldest as usize).is_some_and(|oldest| oldest.expires < now)
        {
            self.counters.tracker_soft_reuse = self.counters.tracker_soft_reuse.saturating_add(1);
            self.release(oldest);
            return true;
        }
        let Some(candidates) = self.budget.eviction_candidates(&self.hasher, key) else { return false };
        let of_source = candidates
            .oldest_of_source
            .and_then(|from| self.may_be_evicted(RecencyList::Source, from, sparing));
        let of_tenant = || self.may_be_evicted(RecencyList::Tenant, candidates.oldest_of_tenant, sparing);
        let found = if candidates.is_newcomer { of_source } else { of_source.or_else(of_tenant) };
        let Some(index) = found else { return false };
        self.counters.tracker_hard_reuse = self.counters.tracker_hard_reuse.saturating_add(1);
        self.evict(index, now);
        true
    }

    /// The first datagram of a list, from this one on, that may be evicted.
    fn may_be_evicted(&self, list: RecencyList, from: u32, sparing: u32) -> Option<u32> {
        let mut index = from;
        for _ in 0..EVICTION_SCAN {
            let datagram = self.datagrams.get(index as usize)?;
            // A whole one is being decided, and a passed one is leaving.
            let refused = datagram.state == DatagramState::Refused && !self.config.hold;
            if index != sparing && (datagram.state == DatagramState::Open || refused) {
                return Some(index);
            }
            index = datagram.links.get(list as usize)?.newer;
        }
        None
    }

    /// Evicts a datagram. If frames are not held, a part of it may have left: its later fragments are
    /// refused.
    fn evict(&mut self, index: u32, now: Timestamp) {
        let Some(datagram) = self.datagrams.get_mut(index as usize) else { return };
        let fragments = if self.config.hold { datagram.frames.len } else { datagram.fragments };
        self.counters.drop_some(DropReason::Evicted, fragments);
        let (frames, _) = datagram.take_frames();
        self.evicted.append(&mut self.store, frames);
        if self.config.strict && !self.config.hold {
            let hash = self.hasher.hash_one(datagram.key);
            self.remembered.insert(hash, datagram.expires.max(now));
        }
        self.release(index);
    }
}
