// SPDX-License-Identifier: Apache-2.0
//! A map of a bounded number of entries: the oldest is forgotten for a new one.

use crate::memory::{Held, allocated};
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// A bounded map.
#[derive(Debug)]
pub(super) struct Cache<K, V> {
    entries: HashMap<K, (u64, V)>,
    /// Keys with the numbers of their insertions; entries that were removed since may stand here.
    order: VecDeque<(u64, K)>,
    next: u64,
    most: usize,
    /// Bytes that the values hold outside of themselves.
    bytes: usize,
}

impl<K: Copy + Eq + Hash, V: Held> Cache<K, V> {
    /// An empty map of at most so many entries.
    pub(super) fn new(most: usize) -> Self {
        Cache { entries: HashMap::new(), order: VecDeque::new(), next: 0, most: most.max(1), bytes: 0 }
    }

    /// Raises the number of entries.
    pub(super) fn allow(&mut self, most: usize) {
        self.most = self.most.max(most);
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|entry| &entry.1)
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let (_, value) = self.entries.remove(key)?;
        self.bytes = self.bytes.saturating_sub(value.held());
        Some(value)
    }

    /// Adds or replaces an entry.
    pub(super) fn insert(&mut self, key: K, value: V) {
        self.remove(&key);
        while self.entries.len() >= self.most {
            let Some((number, oldest)) = self.order.pop_front() else { break };
            if self.entries.get(&oldest).is_some_and(|entry| entry.0 == number) {
                self.remove(&oldest);
            }
        }
        if self.order.len() >= self.most.saturating_mul(2) {
            let entries = &self.entries;
            self.order.retain(|(number, key)| entries.get(key).is_some_and(|entry| entry.0 == *number));
        }
        self.bytes = self.bytes.saturating_add(value.held());
        self.order.push_back((self.next, key));
        self.entries.insert(key, (self.next, value));
        self.next = self.next.wrapping_add(1);
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> usize {
        let entry = size_of::<(K, (u64, V))>().saturating_add(1);
        let table = allocated(self.entries.capacity().saturating_mul(entry));
        table.saturating_add(self.order.held()).saturating_add(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_gives_way() {
        let mut cache: Cache<u32, Vec<u8>> = Cache::new(3);
        for number in 0..100u32 {
            cache.insert(number, vec![0; 100]);
            cache.remove(&number);
        }
        assert!(cache.order.len() <= 6 && cache.bytes == 0);
        for number in 0..5u32 {
            cache.insert(number, vec![0; 100]);
        }
        assert_eq!([1, 2, 4].map(|number| cache.get(&number).is_some()), [false, true, true]);
        cache.insert(2, vec![1]);
        cache.insert(9, Vec::new());
        // 3 is the oldest now: 2 was written again.
        assert_eq!([2, 3, 4, 9].map(|number| cache.get(&number).is_some()), [true, false, true, true]);
        assert!(cache.held() > 100);
    }
}
