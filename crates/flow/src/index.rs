// SPDX-License-Identifier: Apache-2.0
//! Maps hashes to entry numbers: buckets of one cache line, reserved once, never rehashed.
//!
//! A bucket holds ten entry numbers, ten 16-bit tags and a count of the entries that overflowed from it or
//! past it (the scheme of F14: Bronson and Shi, "Open-sourcing F14", 2019). A search ends at the first bucket
//! whose count is zero, so that there are no tombstones and the table does not slow down with age. The system
//! provides zeroed memory, whose pages are touched only as buckets are used.

use crate::key::FlowHash;
use crate::prefetch::prefetch;

const WORDS: usize = 16;
const SLOTS: usize = 10;
/// Mean load for sizing: below the 10 slots, so that few entries overflow their first bucket.
const PER_BUCKET: u32 = 7;

/// 0-9 entry number + 1 (0: free), 10-14 two tags each, 15 overflow count.
type Bucket = [u32; WORDS];

pub(crate) struct Index {
    words: Vec<u32>,
    /// Words to skip so that buckets start at cache lines.
    skip: usize,
    mask: u32,
}

fn tag(hash: FlowHash) -> u32 {
    (hash.0 >> 32) as u32 & 0xffff
}

/// Distance between the buckets of one search: odd, so it visits all of them.
fn step(hash: FlowHash) -> u32 {
    tag(hash) << 1 | 1
}

/// Free or foreign slots may have an equal tag: the caller compares keys anyway.
fn slots_with_tag(bucket: &Bucket, tag: u32) -> u32 {
    let [.., a, b, c, d, e, _] = *bucket;
    let mut found = 0;
    for (pair, word) in [a, b, c, d, e].into_iter().enumerate() {
        let differs = word ^ (tag | tag << 16);
        found |= u32::from(differs & 0xffff == 0) << (2 * pair);
        found |= u32::from(differs >> 16 == 0) << (2 * pair + 1);
    }
    found
}

impl Index {
    /// An index for at most `capacity` entries.
    pub(crate) fn new(capacity: u32) -> Self {
        let buckets = capacity.div_ceil(PER_BUCKET).max(1).next_power_of_two();
        let words = vec![0_u32; (buckets as usize).saturating_add(1).saturating_mul(WORDS)];
        let skip = match words.as_ptr().align_offset(64) {
            skip if skip < WORDS => skip,
            _ => 0,
        };
        Self { words, skip, mask: buckets - 1 }
    }

    fn bucket(&self, number: u32) -> Option<&Bucket> {
        self.words.get(self.skip..)?.as_chunks::<WORDS>().0.get((number & self.mask) as usize)
    }

    fn bucket_mut(&mut self, number: u32) -> Option<&mut Bucket> {
        self.words.get_mut(self.skip..)?.as_chunks_mut::<WORDS>().0.get_mut((number & self.mask) as usize)
    }

    /// Prefetches the first bucket's cache line.
    #[inline]
    pub(crate) fn prefetch(&self, hash: FlowHash) {
        if let Some(bucket) = self.bucket(hash.0 as u32) {
            prefetch(bucket);
        }
    }

    /// The first entry whose tag matches, without following overflows: for prefetching only.
    #[inline]
    pub(crate) fn guess(&self, hash: FlowHash) -> Option<u32> {
        let bucket = self.bucket(hash.0 as u32)?;
        let fits = slots_with_tag(bucket, tag(hash));
        bucket.get(fits.trailing_zeros() as usize)?.checked_sub(1)
    }

    /// Number of the entry with this hash that `is_it` accepts.
    #[inline]
    pub(crate) fn find(&self, hash: FlowHash, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let (tag, step) = (tag(hash), step(hash));
        let mut number = hash.0 as u32;
        for _ in 0..=self.mask {
            let bucket = self.bucket(number)?;
            let mut fits = slots_with_tag(bucket, tag);
            while fits != 0 {
                let slot = fits.trailing_zeros() as usize;
                fits &= fits - 1;
                if let Some(id) = bucket.get(slot).and_then(|word| word.checked_sub(1))
                    && is_it(id)
                {
                    return Some(id);
                }
            }
            let [.., overflow] = *bucket;
            if overflow == 0 {
                return None;
            }
            number = number.wrapping_add(step);
        }
        None
    }

    /// Adds an entry number. `false` if there is no room, which the sizing rules out.
    pub(crate) fn insert(&mut self, hash: FlowHash, id: u32) -> bool {
        let mut number = hash.0 as u32;
        for _ in 0..=self.mask {
            let Some(bucket) = self.bucket_mut(number) else { return false };
            if let Some(slot) = bucket.iter().take(SLOTS).position(|word| *word == 0) {
                if let Some(word) = bucket.get_mut(slot) {
                    *word = id.saturating_add(1);
                }
                if let Some(pair) = bucket.get_mut(SLOTS + slot / 2) {
                    let shift = (slot % 2) * 16;
                    *pair = *pair & !(0xffff << shift) | tag(hash) << shift;
                }
                return true;
            }
            let [.., overflow] = bucket;
            *overflow = overflow.saturating_add(1);
            number = number.wrapping_add(step(hash));
        }
        false
    }

    /// Removes an entry number. `false` if the index does not have it.
    pub(crate) fn remove(&mut self, hash: FlowHash, id: u32) -> bool {
        let word = id.saturating_add(1);
        let mut number = hash.0 as u32;
        let mut passed = 0;
        while passed <= self.mask {
            let Some(bucket) = self.bucket_mut(number) else { return false };
            if let Some(slot) = bucket.iter_mut().take(SLOTS).find(|slot| **slot == word) {
                *slot = 0;
                break;
            }
            passed += 1;
            number = number.wrapping_add(step(hash));
        }
        if passed > self.mask {
            return false;
        }
        // The buckets that the entry overflowed have one overflow less.
        let mut number = hash.0 as u32;
        for _ in 0..passed {
            if let Some([.., overflow]) = self.bucket_mut(number) {
                *overflow = overflow.saturating_sub(1);
            }
            number = number.wrapping_add(step(hash));
        }
        true
    }

    /// Reserved bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.words.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn buckets_start_at_cache_lines() {
        for capacity in [1, 100, 100_000] {
            let index = Index::new(capacity);
            assert_eq!(core::ptr::from_ref(index.bucket(0).unwrap()) as usize % 64, 0);
            assert!(index.bucket(index.mask).is_some());
        }
    }

    #[test]
    fn one_bucket_for_all_still_finds_everything_and_recovers() {
        let mut index = Index::new(700);
        let hash = |n: u64| FlowHash(n << 40);
        for n in 0..700 {
            assert!(index.insert(hash(n), n as u32));
        }
        for n in 0..700 {
            assert_eq!(index.find(hash(n), |id| u64::from(id) == n), Some(n as u32));
        }
        for n in 0..700 {
            assert!(index.remove(hash(n), n as u32));
            assert!(!index.remove(hash(n), n as u32));
        }
        let used: Vec<u32> = (0..=index.mask).filter_map(|b| index.bucket(b)).map(|b| b[15]).collect();
        assert!(used.iter().all(|overflow| *overflow == 0), "overflow counts go back to zero");
    }

    proptest! {
        #[test]
        fn behaves_like_a_map(steps in prop::collection::vec((0_u32..48, any::<bool>()), 1..400)) {
            // Few distinct buckets and tags, so that they collide.
            let hash = |id: u32| FlowHash(u64::from(id % 5) | u64::from(id % 3) << 32);
            let mut index = Index::new(48);
            let mut model = HashMap::new();
            for (id, add) in steps {
                if add && !model.contains_key(&id) {
                    prop_assert!(index.insert(hash(id), id));
                    model.insert(id, ());
                } else if !add {
                    prop_assert_eq!(index.remove(hash(id), id), model.remove(&id).is_some());
                }
                for id in 0..48 {
                    let expected = model.contains_key(&id).then_some(id);
                    prop_assert_eq!(index.find(hash(id), |found| found == id), expected);
                }
            }
        }
    }
}
