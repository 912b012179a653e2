// SPDX-License-Identifier: Apache-2.0
//! Lookup of an address's longest prefix: a multi-way trie for IPv4, a search among intervals for IPv6.

use super::prefix::{AddressPrefix, Prefixes};
use bartizan_base::at::IndexOrDefault;

/// An entry that points to a node.
pub(crate) const NODE: u32 = 1 << 31;

/// Bits per node on a path, after the 16 of the root: fewest reads.
const WIDE: &[u8] = &[8, 8];
/// Bits per node for least memory, with one read more: a single /32 takes 64 bytes in its last node, not
/// 1,024.
const NARROW: &[u8] = &[8, 4, 4];
/// The most nodes on a path.
const LEVELS: usize = 3;

/// The bits of an address that select an entry of a node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Level4 {
    pub shift: u32,
    pub mask: u32,
}

/// 64 Ki roots, then nodes for the bits from 16 on.
#[derive(Clone, Debug)]
pub(crate) struct Search4 {
    /// A leaf, or [`NODE`] with the index of the node's first entry.
    pub nodes: Vec<u32>,
    /// The number of nodes on the longest path.
    pub depth: u8,
    levels: [Level4; LEVELS],
}

impl Search4 {
    /// Builds the trie. `narrow`: least memory rather than fewest reads.
    pub fn new(prefixes: &Prefixes, leaves: &[u32], narrow: bool) -> Self {
        let mut levels = [Level4::default(); LEVELS];
        let mut rest = 16;
        for (level, bits) in levels.iter_mut().zip(if narrow { NARROW } else { WIDE }) {
            rest -= u32::from(*bits);
            *level = Level4 { shift: rest, mask: (1 << bits) - 1 };
        }
        let mut new = Search4 { nodes: vec![0; 1 << 16], depth: 0, levels };
        // Preorder: a nested prefix comes later and overwrites the outer one's entries.
        for (prefix, leaf) in prefixes.list.iter().zip(leaves) {
            new.paint(*prefix, *leaf);
        }
        new
    }

    fn paint(&mut self, prefix: AddressPrefix, leaf: u32) {
        let address = (prefix.value >> 96) as u32;
        let length = u32::from(prefix.length);
        let (mut start, mut index, mut bits) = (0, address as usize >> 16, 16);
        for (level, depth) in self.levels.into_iter().zip(1..) {
            if length <= bits {
                break;
            }
            let at = start + index;
            let entry = self.nodes.at(at);
            start = if entry & NODE == 0 {
                let node = self.nodes.len();
                self.nodes.resize(node + level.mask as usize + 1, entry);
                if let Some(at) = self.nodes.get_mut(at) {
                    *at = NODE | node as u32;
                }
                node
            } else {
                (entry & !NODE) as usize
            };
            bits = 32 - level.shift;
            index = (address >> level.shift & level.mask) as usize;
            self.depth = self.depth.max(depth);
        }
        let wide = 1usize << (bits - length);
        if let Some(entries) = self.nodes.get_mut(start + index..start + index + wide) {
            entries.fill(leaf);
        }
    }

    /// The levels of the longest path, from the root on.
    #[inline(always)]
    pub fn levels(&self) -> &[Level4] {
        self.levels.get(..usize::from(self.depth)).unwrap_or_default()
    }

    /// The root's index and entry.
    #[inline(always)]
    pub fn root(&self, address: u32) -> (u32, u32) {
        let place = address >> 16;
        (place, self.nodes.at(place as usize))
    }

    /// Advances an entry and its index by one node, if it is a node: without a branch.
    #[inline(always)]
    pub fn step(&self, level: Level4, address: u32, (place, entry): (u32, u32)) -> (u32, u32) {
        let place =
            if entry & NODE == 0 { place } else { (entry & !NODE) + (address >> level.shift & level.mask) };
        (place, self.nodes.at(place as usize))
    }

    #[inline]
    pub fn find(&self, address: u32) -> u32 {
        let mut entry = self.nodes.at((address >> 16) as usize);
        for level in &self.levels {
            if entry & NODE == 0 {
                break;
            }
            entry = self.nodes.at(((entry & !NODE) + (address >> level.shift & level.mask)) as usize);
        }
        entry
    }

    pub fn bytes(&self) -> usize {
        self.nodes.len() * 4
    }
}

/// IPv6: intervals of the high half; if prefixes are longer than 64 bits, intervals of the low half below
/// one.
///
/// All prefixes but the empty one have some bits in common (`skip`); the 16 bits after these select the range
/// of the search.
#[derive(Clone, Debug)]
pub(crate) struct Search6 {
    pub keys: Vec<u64>,
    /// A leaf, or [`NODE`] with the index of a range of `low`.
    pub values: Vec<u32>,
    /// First and last high half that has the common bits.
    pub common: (u64, u64),
    /// The number of these bits, 48 at most.
    pub skip: u32,
    /// The number of steps of a search between two roots.
    pub steps: u32,
    /// For each deep high half the beginning of its intervals; one more at the end.
    deep: Vec<u32>,
    low_keys: Vec<u64>,
    low_values: Vec<u32>,
    /// For each value of the 16 bits after the common ones the first interval to search; one more at the end.
    pub roots: Vec<u32>,
}

/// The longest prefix that contains an address.
fn longest(prefixes: &Prefixes, address: u128) -> usize {
    let mut at = prefixes.list.partition_point(|p| p.value <= address).saturating_sub(1);
    while at != 0 && !prefixes.list.get(at).is_some_and(|p| p.contains(address)) {
        at = prefixes.parent.at(at) as usize;
    }
    at
}

impl Search6 {
    pub fn new(prefixes: &Prefixes, leaves: &[u32]) -> Self {
        let leaf = |address: u128| leaves.at(longest(prefixes, address));
        let mut starts = vec![0u64];
        let mut deep_starts: Vec<u128> = Vec::new();
        for prefix in &prefixes.list {
            let first = (prefix.value >> 64) as u64;
            let last = (prefix.last() >> 64) as u64;
            starts.push(first);
            starts.extend(last.checked_add(1));
            if prefix.length > 64 {
                deep_starts.push(prefix.value);
                deep_starts.push(prefix.value & !u128::from(u64::MAX));
                let next = prefix.last().wrapping_add(1);
                if (next >> 64) as u64 == first {
                    deep_starts.push(next);
                }
            }
        }
        starts.sort_unstable();
        starts.dedup();
        deep_starts.sort_unstable();
        deep_starts.dedup();
        let mut new = Search6 {
            values: Vec::with_capacity(starts.len()),
            deep: Vec::new(),
            low_keys: Vec::with_capacity(deep_starts.len()),
            low_values: Vec::with_capacity(deep_starts.len()),
            roots: Vec::with_capacity((1 << 16) + 1),
            common: (0, u64::MAX),
            skip: 0,
            steps: 0,
            keys: starts,
        };
        let mut rest = deep_starts.into_iter().peekable();
        for key in &new.keys {
            let mut is_deep = false;
            while let Some(start) = rest.next_if(|s| (*s >> 64) as u64 == *key) {
                if !is_deep {
                    new.values.push(NODE | new.deep.len() as u32);
                    new.deep.push(new.low_keys.len() as u32);
                    is_deep = true;
                }
                new.low_keys.push(start as u64);
                new.low_values.push(leaf(start));
            }
            if !is_deep {
                new.values.push(leaf(u128::from(*key) << 64));
            }
        }
        new.deep.push(new.low_keys.len() as u32);
        new.set_roots(prefixes);
        new
    }

    fn set_roots(&mut self, prefixes: &Prefixes) {
        let mut highs = prefixes.list.iter().skip(1).map(|p| ((p.value >> 64) as u64, p.length));
        if let Some((first, length)) = highs.next() {
            let differ = |skip: u32, (high, length): (u64, u8)| {
                skip.min((high ^ first).leading_zeros()).min(u32::from(length))
            };
            self.skip = highs.fold(48.min(u32::from(length)), differ);
            let rest = u64::MAX.checked_shr(self.skip).unwrap_or(0);
            self.common = (first & !rest, first | rest);
        }
        let mut at = 0;
        let mut largest = 0;
        for root in 0..=1u64 << 16 {
            let first = self.common.0 | (root & 0xffff) << 48 >> self.skip;
            let before = at;
            while at < self.keys.len()
                && if root == 1 << 16 { self.keys.at(at) <= self.common.1 } else { self.keys.at(at) < first }
            {
                at += 1;
            }
            if root > 0 {
                largest = largest.max(at - before);
            }
            self.roots.push(at as u32);
        }
        self.steps = usize::BITS - largest.leading_zeros();
    }

    /// Index of the root of a high half that has the common bits.
    #[inline]
    pub fn root(&self, high: u64) -> usize {
        (high << self.skip >> 48) as usize
    }

    #[inline]
    pub fn find(&self, [high, low]: [u64; 2]) -> u32 {
        let rank = if high < self.common.0 {
            // Only the first interval begins below.
            1
        } else if high > self.common.1 {
            self.keys.len()
        } else {
            let root = self.root(high);
            // The interval before the root's first may reach into the root.
            let (from, to) = (self.roots.at(root) as usize, self.roots.at(root + 1) as usize);
            from + count_up_to(self.keys.get(from..to).unwrap_or_default(), high)
        };
        self.leaf(self.values.at(rank.saturating_sub(1)), low)
    }

    /// The leaf from the value of an interval of the high half.
    #[inline]
    pub fn leaf(&self, value: u32, low: u64) -> u32 {
        if value & NODE == 0 {
            return value;
        }
        let deep = (value & !NODE) as usize;
        let (from, to) = (self.deep.at(deep) as usize, self.deep.at(deep + 1) as usize);
        let rank = from + count_up_to(self.low_keys.get(from..to).unwrap_or_default(), low);
        self.low_values.at(rank.saturating_sub(1))
    }

    /// Every leaf that a search can return.
    pub fn leaves(&self) -> impl Iterator<Item = u32> {
        self.values.iter().filter(|v| **v & NODE == 0).chain(&self.low_values).copied().chain([0])
    }

    pub fn bytes(&self) -> usize {
        (self.keys.len() + self.low_keys.len()) * 8
            + (self.values.len() + self.low_values.len() + self.deep.len() + self.roots.len()) * 4
    }
}

/// The number of sorted keys that are at most `x`: binary search without branches.
#[inline]
fn count_up_to(keys: &[u64], x: u64) -> usize {
    let mut base = 0;
    let mut length = keys.len();
    while length > 1 {
        let half = length / 2;
        base += if keys.at(base + half - 1) <= x { half } else { 0 };
        length -= half;
    }
    base + usize::from(length == 1 && keys.at(base) <= x)
}
