// SPDX-License-Identifier: Apache-2.0
//! The index by which the program finds a flow's slot from its key: buckets of places, in memory that it
//! shares with the host (`ebpf/index.h` is the other half).
//!
//! The host writes a place and a key; the program only reads. The kernel's own hash table would cost a
//! system call for each entry, and each packet one more dependent access to memory.
//!
//! ```text
//! key --hash--> bucket: 16 places       place: tag | slot + 1  ---> key of the slot: 64 bytes, compared
//!               (two cache lines)       0: free                     line of the slot: what to do, counters
//! ```
//!
//! A place is one 64-bit number, so it is always read whole: the slot plus one, and above it the *tag*, the
//! upper half of the key's hash. A place without a slot is being taken, and the program skips it. If the
//! table is full, a bucket has two flows on average and room for sixteen. A flow whose bucket has no room
//! (by chance once in ten thousand million, or when a sender chooses flows by their hash) is refused as if
//! the table were full; its packets go up.

use crate::error::FlowInsertError;
use bartizan_offload::marks::hash;
use bartizan_packet::slots::INDEX_PLACES;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Places of a bucket.
pub(crate) const PLACES: usize = INDEX_PLACES as usize;
/// 64-bit numbers of a key.
pub(crate) const KEY_WORDS: usize = 7;

/// The slot's half of a place.
const SLOT: u64 = 0xffff_ffff;

/// The number of buckets of a table for so many flows: a power of two.
pub(crate) const fn buckets_of(flows: u32) -> u32 {
    flows.div_ceil(2).next_power_of_two()
}

/// Buckets and slots, borrowed from their mappings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotIndex<'a> {
    /// Places, bucket by bucket; a power of two of buckets.
    pub buckets: &'a [AtomicU64],
    /// Slots; each begins with its key.
    pub slots: &'a [AtomicU64],
    /// 64-bit numbers from one slot to the next.
    pub slot_words: usize,
    /// The seed of hashes.
    pub seed: u64,
}

impl<'a> SlotIndex<'a> {
    /// The bucket of a key, and its tag as it appears in a place.
    fn bucket(self, key: &[u64; KEY_WORDS]) -> (&'a [AtomicU64], u64) {
        let hash = hash(self.seed, key);
        let last = (self.buckets.len() / PLACES).saturating_sub(1);
        let at = (hash & SLOT) as usize & last;
        let places = self.buckets.chunks_exact(PLACES).nth(at).unwrap_or_default();
        // Never 0: a place that is being taken is not free.
        (places, (hash >> 32 | 1) << 32)
    }

    fn key(self, slot: u64) -> &'a [AtomicU64] {
        let words = self.slots.chunks_exact(self.slot_words).nth(slot as usize);
        words.and_then(|words| words.get(..KEY_WORDS)).unwrap_or_default()
    }

    /// Whether a place has this key, or is being taken for a key with its tag.
    fn is_of(self, place: &AtomicU64, tag: u64, key: &[u64; KEY_WORDS]) -> bool {
        let place = place.load(Ordering::Acquire);
        let same =
            |slot| self.key(slot).iter().zip(key).all(|(had, word)| had.load(Ordering::Relaxed) == *word);
        place & !SLOT == tag && (place & SLOT).checked_sub(1).is_none_or(same)
    }

    /// Adds a key; a processor that finds it finds the slot, which has to be ready. Several threads may do
    /// this at once, each with slots of its own.
    ///
    /// # Errors
    /// The key is present, or is being added; its bucket is full.
    pub(crate) fn insert(self, key: &[u64; KEY_WORDS], slot: u32) -> Result<(), FlowInsertError> {
        let (places, tag) = self.bucket(key);
        if places.iter().any(|place| self.is_of(place, tag, key)) {
            return Err(FlowInsertError::Exists);
        }
        let take =
            |place: &AtomicU64| place.compare_exchange(0, tag, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        let at = places.iter().position(take).ok_or(FlowInsertError::Full)?;
        let (before, own_and_behind) = places.split_at(at);
        let Some((own, behind)) = own_and_behind.split_first() else { return Err(FlowInsertError::Full) };
        // If two threads take places for one key at the same time, at least one sees the other's.
        fence(Ordering::SeqCst);
        if before.iter().chain(behind).any(|place| self.is_of(place, tag, key)) {
            own.store(0, Ordering::Release);
            return Err(FlowInsertError::Exists);
        }
        for (had, word) in self.key(slot.into()).iter().zip(key) {
            had.store(*word, Ordering::Relaxed);
        }
        own.store(tag | (u64::from(slot) + 1), Ordering::Release);
        Ok(())
    }

    /// Removes a key; `false`: it was not present.
    pub(crate) fn remove(self, key: &[u64; KEY_WORDS]) -> bool {
        let (places, tag) = self.bucket(key);
        let is_own =
            |place: &&AtomicU64| place.load(Ordering::Relaxed) & SLOT != 0 && self.is_of(place, tag, key);
        places.iter().find(is_own).map(|place| place.store(0, Ordering::Release)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::words_of_slot;
    use bartizan_testkit::random::Random;
    use std::collections::HashMap;
    use std::sync::Barrier;

    /// As on a machine with two processors.
    const SLOT_WORDS: usize = words_of_slot(2);

    /// Memory of an index, as the program's arrays are.
    struct Memory(Vec<AtomicU64>, Vec<AtomicU64>);

    impl Memory {
        fn new(flows: u32) -> Self {
            let words = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
            Memory(words(buckets_of(flows) as usize * PLACES), words(flows as usize * SLOT_WORDS))
        }

        fn index(&self) -> SlotIndex<'_> {
            SlotIndex {
                buckets: &self.0,
                slots: &self.1,
                slot_words: SLOT_WORDS,
                seed: 0x1234_5678_9abc_def0,
            }
        }

        /// The slot of a key, from its place.
        fn find(&self, key: &[u64; 7]) -> Option<u32> {
            let index = self.index();
            let (places, tag) = index.bucket(key);
            let own = places.iter().find(|place| index.is_of(place, tag, key))?;
            u32::try_from((own.load(Ordering::Relaxed) & SLOT).checked_sub(1)?).ok()
        }
    }

    fn key(number: u64) -> [u64; 7] {
        [0, 0x0a00_0000 | number, 0, 0xc000_0201, 0, 1024 | 9001 << 16, 6]
    }

    #[test]
    fn random_entries_come_and_go_as_in_a_map() {
        let (memory, slots) = (Memory::new(500), 500_u32);
        let (mut model, mut free): (HashMap<u64, u32>, Vec<u32>) = (HashMap::new(), (0..slots).collect());
        let mut random = Random::new(7);
        for _ in 0..50_000 {
            let number = random.below(900) as u64;
            match model.get(&number).copied() {
                Some(slot) if random.percent(50) => {
                    assert!(memory.index().remove(&key(number)) && !memory.index().remove(&key(number)));
                    model.remove(&number);
                    free.push(slot);
                }
                Some(slot) => {
                    let result = memory.index().insert(&key(number), free.last().copied().unwrap_or(0));
                    assert!(matches!(result, Err(FlowInsertError::Exists)), "{result:?}");
                    assert_eq!(memory.find(&key(number)), Some(slot));
                }
                None => {
                    assert_eq!(memory.find(&key(number)), None);
                    let Some(slot) = free.pop() else { continue };
                    memory.index().insert(&key(number), slot).unwrap();
                    model.insert(number, slot);
                    assert_eq!(memory.find(&key(number)), Some(slot));
                }
            }
        }
        assert!(model.len() > 300, "{}", model.len());
        assert!(model.iter().all(|(number, slot)| memory.find(&key(*number)) == Some(*slot)));
    }

    #[test]
    fn a_full_table_has_room_for_each_of_its_flows() {
        const FLOWS: u32 = 1 << 18;
        let memory = Memory::new(FLOWS);
        for number in 0..FLOWS {
            memory.index().insert(&key(number.into()), number).unwrap();
        }
        let taken =
            |bucket: &[AtomicU64]| bucket.iter().filter(|place| place.load(Ordering::Relaxed) != 0).count();
        let most = memory.0.chunks_exact(PLACES).map(taken).max().unwrap_or(0);
        // Of random numbers with a mean of 2 the greatest of 131,072 is 11 or 12.
        assert!((8..=14).contains(&most), "{most}");
    }

    #[test]
    fn a_bucket_without_room_is_a_full_table_and_recovers() {
        // One bucket.
        let memory = Memory(
            (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
            (0..SLOT_WORDS * 32).map(|_| AtomicU64::new(0)).collect(),
        );
        for number in 0..PLACES as u32 {
            memory.index().insert(&key(number.into()), number).unwrap();
        }
        assert!(matches!(memory.index().insert(&key(99), 31), Err(FlowInsertError::Full)));
        assert!(memory.index().remove(&key(5)));
        memory.index().insert(&key(99), 31).unwrap();
        assert_eq!(
            (memory.find(&key(99)), memory.find(&key(5)), memory.find(&key(6))),
            (Some(31), None, Some(6))
        );
    }

    #[test]
    fn of_several_that_put_one_key_there_one_at_most_has_it() {
        const THREADS: u32 = 4;
        const KEYS: u32 = 2_000;
        let memory = Memory::new(THREADS * KEYS);
        let together = Barrier::new(THREADS as usize);
        let won: Vec<Vec<bool>> = std::thread::scope(|scope| {
            let run = |thread: u32| {
                let (memory, together) = (&memory, &together);
                scope.spawn(move || {
                    let insert = |number: u32| {
                        together.wait();
                        memory.index().insert(&key(number.into()), thread * KEYS + number).is_ok()
                    };
                    (0..KEYS).map(insert).collect::<Vec<_>>()
                })
            };
            let threads: Vec<_> = (0..THREADS).map(run).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for number in 0..KEYS {
            let winners: Vec<u32> =
                (0..THREADS).filter(|thread| won[*thread as usize][number as usize]).collect();
            assert!(winners.len() <= 1, "{number}: {winners:?}");
            let slot = winners.first().map(|thread| thread * KEYS + number);
            assert_eq!(memory.find(&key(number.into())), slot, "nothing is left of who withdrew");
        }
    }
}
