// SPDX-License-Identifier: Apache-2.0
//! Marks of flows that the host knows: while a flow has one, its level refuses no packet of it for want of an
//! entry.
//!
//! A mark is a counter, found by the hash of the flow's key: packets of all flows that share one go up. A
//! level that reads marks itself provides their memory ([`MarkMemory`]) and the seed of the hash.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Fewest and most marks.
const MARKS: (u32, u32) = (1 << 12, 1 << 24);
/// Marks for each flow: with so many, few packets go up because of another flow's mark.
const MARKS_PER_FLOW: u64 = 4;
/// 64-bit numbers of a key.
const KEY_WORDS: usize = 7;

/// One step of the hash.
const fn mix(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 29)
}

/// The hash of a flow's key, for all tables of a level that use one (`hash_of` of `ebpf/index.h` is the
/// same). A sender who knows the seed can choose flows that share a mark.
#[must_use]
pub fn hash(seed: u64, key: &[u64; KEY_WORDS]) -> u64 {
    let hash = key.iter().fold(seed, |hash, word| mix(hash, *word));
    mix(hash, hash >> 32)
}

/// The memory of the marks: 32 bits each, two in a word; a power of two of words.
pub trait MarkMemory: fmt::Debug + Send + Sync {
    /// All words.
    fn words(&self) -> &[AtomicU64];
}

impl MarkMemory for Box<[AtomicU64]> {
    fn words(&self) -> &[AtomicU64] {
        self
    }
}

/// Marks by the hash of keys.
#[derive(Debug)]
pub struct FlowMarks {
    memory: Box<dyn MarkMemory>,
    mask: u32,
    seed: u64,
}

impl FlowMarks {
    /// Marks for this number of flows, in memory of this process.
    #[must_use]
    pub fn new(flows: u64, seed: u64) -> Arc<Self> {
        let words: Box<[AtomicU64]> = (0..Self::needed(flows) / 2).map(|_| AtomicU64::new(0)).collect();
        Self::in_memory(Box::new(words), seed)
    }

    /// Marks in memory that a level reads.
    #[must_use]
    pub fn in_memory(memory: Box<dyn MarkMemory>, seed: u64) -> Arc<Self> {
        let marks = memory.words().len().saturating_mul(2).max(1);
        let mask = u32::try_from(marks - 1).unwrap_or(u32::MAX);
        Arc::new(FlowMarks { memory, mask, seed })
    }

    /// The number of marks for a number of flows: a power of two.
    #[must_use]
    pub fn needed(flows: u64) -> u32 {
        let marks = flows.saturating_mul(MARKS_PER_FLOW).checked_next_power_of_two().unwrap_or(u64::MAX);
        u32::try_from(marks).unwrap_or(MARKS.1).clamp(MARKS.0, MARKS.1)
    }

    /// The mark of a key.
    fn of(&self, key: &[u64; KEY_WORDS]) -> u32 {
        (hash(self.seed, key) >> 32) as u32 & self.mask
    }

    fn word(&self, mark: u32) -> Option<&AtomicU64> {
        self.memory.words().get(mark as usize / 2)
    }

    /// Whether some flow with the hash of a key is marked.
    #[must_use]
    pub fn has(&self, key: &[u64; KEY_WORDS]) -> bool {
        let at = self.of(key);
        self.word(at).is_none_or(|word| (word.load(Ordering::SeqCst) >> (at % 2 * 32)) as u32 != 0)
    }
}

/// The mark of a flow that the host knows: while it exists, rules of the level do not apply to packets of the
/// flow, which go up. The key has no tenant.
#[derive(Debug)]
pub struct Mark {
    marks: Arc<FlowMarks>,
    at: u32,
}

/// The addend for one more flow in a mark's word.
const fn one(at: u32) -> u64 {
    1 << (at % 2 * 32)
}

impl Mark {
    /// Marks a flow. The answer to a packet that leaves after this call is not refused for want of the mark.
    #[must_use]
    pub fn new(marks: &Arc<FlowMarks>, key: &[u64; KEY_WORDS]) -> Option<Self> {
        let at = marks.of(key);
        marks.word(at)?.fetch_add(one(at), Ordering::SeqCst);
        Some(Mark { marks: Arc::clone(marks), at })
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if let Some(word) = self.marks.word(self.at) {
            word.fetch_sub(one(self.at), Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_has_its_mark_as_long_as_somebody_holds_it() {
        let marks = FlowMarks::new(1, 7);
        let key = |n: u64| [n, 2, 3, 4, 5, 6, 7];
        assert!(!marks.has(&key(1)));
        let first = Mark::new(&marks, &key(1)).unwrap();
        let second = Mark::new(&marks, &key(1)).unwrap();
        drop(first);
        assert!(marks.has(&key(1)));
        let others = (2..100).filter(|n| marks.has(&key(*n))).count();
        assert!(others <= 2, "few share a mark: {others}");
        drop(second);
        assert!(!marks.has(&key(1)));
    }

    #[test]
    fn marks_grow_with_flows_between_bounds() {
        assert_eq!([0, 1_025, u64::MAX].map(FlowMarks::needed), [1 << 12, 1 << 13, 1 << 24]);
    }
}
