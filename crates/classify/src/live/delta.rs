// SPDX-License-Identifier: Apache-2.0
//! Entries inserted since the tables were compiled: few, found by bit vectors over address roots.
//!
//! One thread writes and many read at once: a place is filled before its bits and the length include it, and
//! only then published (release and acquire); places are not reused, a deleted entry loses its valid flag.

use crate::classifier::RankedRule;
use crate::flat::{FlatV4, FlatV6};
use crate::header::{Header, Net};
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, DELTA_MAX, OnceLock, ROOT_BITS};
use core::sync::atomic::Ordering;

const WORDS: usize = DELTA_MAX.div_ceil(64);
const ROOTS: usize = 1 << ROOT_BITS;

/// An entry with its position among the compiled ones.
#[derive(Debug)]
pub(crate) struct Added {
    pub set: u8,
    pub entry: RankedRule,
    pub sequence: u64,
    /// Compiled entries of its set with a rank below this one come first.
    pub before: u32,
    pub valid: AtomicBool,
}

/// For each root the entries whose prefix covers it.
#[derive(Debug)]
struct Roots(Vec<AtomicU64>);

impl Roots {
    fn new() -> Self {
        Roots((0..WORDS * ROOTS).map(|_| AtomicU64::new(0)).collect())
    }

    fn add(&self, first: usize, last: usize, place: usize) {
        let word = place / 64 * ROOTS;
        for bits in self.0.get(word + first..=word + last).unwrap_or_default() {
            bits.fetch_or(1 << (place % 64), Ordering::Relaxed);
        }
    }

    #[inline]
    fn bits(&self, word: usize, root: usize) -> u64 {
        self.0.get(word * ROOTS + root).map_or(0, |bits| bits.load(Ordering::Relaxed))
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Delta {
    places: Vec<OnceLock<Added>>,
    length: AtomicUsize,
    /// IPv4 source and destination, IPv6 source and destination.
    roots: [Roots; 4],
}

fn root_v6(high: u64) -> usize {
    ((high >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - ROOT_BITS)) as usize
}

/// The first and last root that a prefix covers, for each IP version.
fn roots(net: Option<Net>) -> [Option<(usize, usize)>; 2] {
    let all = Some((0, ROOTS - 1));
    let Some(net) = net else { return [all, all] };
    let (v6, first, last) = net.range();
    if !v6 {
        let root = |address: u128| (address >> (32 - ROOT_BITS)) as usize;
        return [Some((root(first), root(last))), None];
    }
    let root = root_v6((first >> 64) as u64);
    [None, if net.length >= 32 { Some((root, root)) } else { all }]
}

impl Delta {
    pub fn new() -> Self {
        Delta {
            places: (0..DELTA_MAX).map(|_| OnceLock::new()).collect(),
            length: AtomicUsize::new(0),
            roots: [Roots::new(), Roots::new(), Roots::new(), Roots::new()],
        }
    }

    pub fn len(&self) -> usize {
        self.length.load(Ordering::Acquire)
    }

    pub fn get(&self, place: usize) -> Option<&Added> {
        self.places.get(place)?.get()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Added> {
        self.places.iter().take(self.len()).filter_map(OnceLock::get)
    }

    /// Adds an entry; returns its place, `None` when full. Only one thread may add.
    pub fn add(&self, added: Added) -> Option<usize> {
        let place = self.length.load(Ordering::Relaxed);
        let rule = added.entry.rule;
        self.places.get(place)?.set(added).ok()?;
        let [source, destination] = [roots(rule.source), roots(rule.destination)];
        let versions = source.into_iter().zip(destination);
        for (version, pair) in self.roots.as_chunks::<2>().0.iter().zip(versions) {
            if let ([a, b], (Some(source), Some(destination))) = (version, pair) {
                a.add(source.0, source.1, place);
                b.add(destination.0, destination.1, place);
            }
        }
        // Release: a reader that sees the length sees the place and its bits.
        self.length.store(place + 1, Ordering::Release);
        Some(place)
    }

    /// The best entry of a set that matches and that comes before the compiled entry `rank`.
    fn best(
        &self,
        bits: impl Fn(usize) -> u64,
        words: usize,
        header: impl Fn() -> Header,
        sets: &mut [DeltaLookup],
    ) {
        for word in 0..words {
            let mut left = bits(word);
            if left == 0 {
                continue;
            }
            let header = header();
            while left != 0 {
                let place = word * 64 + left.trailing_zeros() as usize;
                left &= left - 1;
                let Some(added) = self.get(place) else { continue };
                let Some(found) = sets.get_mut(usize::from(added.set)) else { continue };
                if added.before <= found.rank
                    && found.added.is_none_or(|(p, s, _)| (added.entry.priority, added.sequence) < (p, s))
                    && added.entry.rule.matches(&header)
                {
                    found.met = true;
                    if added.valid.load(Ordering::Acquire) {
                        found.added = Some((added.entry.priority, added.sequence, place));
                    }
                }
            }
        }
    }

    /// Looks a header up; `found` has the rank of each set's compiled match.
    #[inline]
    pub fn find_v4(&self, header: &FlatV4, found: &mut [DeltaLookup]) {
        let [a, b, ..] = &self.roots;
        let root = |address: u32| (address >> (32 - ROOT_BITS)) as usize;
        let (source, destination) = (root(header.source), root(header.destination));
        let bits = |word| a.bits(word, source) & b.bits(word, destination);
        self.best(bits, self.len().div_ceil(64), || header.into(), found);
    }

    /// As [`Delta::find_v4`].
    #[inline]
    pub fn find_v6(&self, header: &FlatV6, found: &mut [DeltaLookup]) {
        let [_, _, a, b] = &self.roots;
        let (source, destination) = (root_v6(header.source[0]), root_v6(header.destination[0]));
        let bits = |word| a.bits(word, source) & b.bits(word, destination);
        self.best(bits, self.len().div_ceil(64), || header.into(), found);
    }
}

/// The result of a lookup in one set so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeltaLookup {
    /// Rank of a compiled entry, `u32::MAX` for none.
    pub rank: u32,
    /// Priority, sequence and place of an added entry that comes before it.
    pub added: Option<(u32, u64, usize)>,
    /// Whether an added entry that would come before it matches, valid or not.
    pub met: bool,
}
