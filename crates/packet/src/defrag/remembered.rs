// SPDX-License-Identifier: Apache-2.0
//! Ids of datagrams that have left recently, or, where frames are not held, were evicted: no other datagram
//! may use such an id until its time is over, or so many others have left since.
//!
//! A receiver that lost a part of such a datagram still waits for it, and would take it from the next one
//! with the same id. The number remembered is a compromise: a sender of 65,536 IPv4 datagrams returns to the
//! same ids, and must not be refused (RFC 6864 section 4.3 describes such senders). Hosts that draw ids of 16
//! bits avoid repeating one of their last 8,192; of those drawn from 32 bits (Linux, IPv6) one in 524,288 is
//! among the last 8,192 and its datagram is refused.

use bartizan_base::Timestamp;
use core::mem::size_of;
use hashbrown::HashTable;
use std::collections::VecDeque;

/// The most bytes that one entry takes: its place in the table, which is kept half empty so that it never
/// grows, and in the order of arrival.
const ENTRY: usize = 128;
/// A table for fewer is not worth its fixed size.
const FEWEST: usize = 8;

/// A keyed hash of the datagram's identity, and the time when it may be used again. Keeping hashes is
/// enough: two identities with one hash of 64 bits, which no sender can compute, cost one datagram.
type IdentityExpiry = (u64, Timestamp);

pub(super) struct Remembered {
    table: HashTable<IdentityExpiry>,
    order: VecDeque<IdentityExpiry>,
    most: usize,
}

impl Remembered {
    /// A table with room for `most`, within an eighth of `memory` bytes, all allocated here.
    pub(super) fn new(most: u32, memory: usize) -> Self {
        let most = Some((most as usize).min(memory / 8 / ENTRY)).filter(|most| *most >= FEWEST).unwrap_or(0);
        Remembered {
            table: HashTable::with_capacity(most.saturating_mul(2)),
            order: VecDeque::with_capacity(most),
            most,
        }
    }

    pub(super) fn contains(&self, hash: u64, now: Timestamp) -> bool {
        self.table.find(hash, |entry| entry.0 == hash).is_some_and(|entry| entry.1 >= now)
    }

    /// Remembers an identity; if need be, the oldest one is forgotten.
    pub(super) fn insert(&mut self, hash: u64, expires: Timestamp) {
        if self.most == 0 {
            return;
        }
        while self.order.len() >= self.most {
            self.forget_oldest();
        }
        match self.table.find_mut(hash, |entry| entry.0 == hash) {
            Some(entry) => entry.1 = expires,
            None => {
                self.table.insert_unique(hash, (hash, expires), |entry| entry.0);
            }
        }
        self.order.push_back((hash, expires));
    }

    fn forget_oldest(&mut self) {
        let Some(oldest) = self.order.pop_front() else { return };
        // Unless it was remembered again since.
        if let Ok(entry) = self.table.find_entry(oldest.0, |entry| *entry == oldest) {
            entry.remove();
        }
    }

    /// Bytes allocated.
    pub(super) fn memory(&self) -> usize {
        let order = self.order.capacity().saturating_mul(size_of::<IdentityExpiry>());
        self.table.allocation_size().saturating_add(order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_remembered_until_their_time_is_over() {
        let at = |seconds| Timestamp::from_parts(seconds, 0);
        let mut ids = Remembered::new(8, 1 << 20);
        for hash in 1..=9 {
            ids.insert(hash, at(10));
        }
        assert!(!ids.contains(1, at(5)), "the oldest made room");
        assert!((2..=9).all(|hash| ids.contains(hash, at(10))) && !ids.contains(9, at(11)));
        // Remembered again: the first entry's end does not remove it.
        ids.insert(2, at(20));
        ids.insert(10, at(20));
        assert!(ids.contains(2, at(15)) && !ids.contains(3, at(5)));
    }

    #[test]
    fn memory_is_bounded_whatever_comes() {
        for memory in [0, 1_000, 64 << 10, 1 << 20] {
            let mut ids = Remembered::new(8_192, memory);
            let before = ids.memory();
            for n in 0..20_000_u64 {
                ids.insert(n.wrapping_mul(0x9e37_79b9_7f4a_7c15), Timestamp::from_parts(n, 0));
            }
            assert_eq!(ids.memory(), before);
            assert!(before <= memory / 8, "{before} of {memory}");
        }
    }
}
