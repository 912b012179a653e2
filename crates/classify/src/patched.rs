// SPDX-License-Identifier: Apache-2.0
//! Bit vectors of lists, for lists that differ little from those: entries that a list lacks are not valid
//! in it, entries that it has in addition are searched linearly.
//!
//! Bit vectors know ranks, not fids: so lists with the same rules share them, whatever fids they give to
//! these.

use crate::bitvector::BitVector;
use crate::classifier::{Match, RankedRule, SETS_MAX};
use crate::header::{Header, HeaderRule};
use crate::list::List;
use crate::split::NONE;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(crate) struct Patched {
    bits: Arc<BitVector>,
    /// The entries of the bit vectors that the lists have, a bit each.
    valid: Vec<u64>,
    sets: Vec<Patch>,
}

/// The fids of a list for the entries of its set.
#[derive(Debug)]
struct Patch {
    /// The fids and priorities by rank.
    meanings: Box<[Meaning]>,
    /// Entries that are in no bit vector, with their places in the list, rising.
    added: Vec<(u32, RankedRule)>,
}

/// Place, fid and priority of an entry of the bit vectors in a list.
#[derive(Clone, Copy, Debug)]
struct Meaning {
    /// Its place in the list.
    place: u32,
    found: Match,
}

impl Patched {
    /// Builds bit vectors of these lists. `None`: they take more than about `limit` bytes.
    pub fn whole(lists: &[List], ranks: &[Arc<[u32]>], limit: usize) -> Option<Self> {
        Some(Patched::over(Arc::new(BitVector::ranked(lists, limit)?), lists, ranks))
    }

    /// Reuses the bit vectors of `before`: `ranks` has the entries that are in them, by set; the others are
    /// added.
    pub fn behind(before: &Patched, lists: &[List], ranks: &[Arc<[u32]>]) -> Self {
        Patched::over(Arc::clone(&before.bits), lists, ranks)
    }

    fn over(bits: Arc<BitVector>, lists: &[List], ranks: &[Arc<[u32]>]) -> Self {
        let mut valid = bits.no_valid();
        let of_set = |(set, (list, ranks)): (usize, (&List, &Arc<[u32]>))| {
            let nothing =
                Meaning { place: NONE, found: Match { fid: crate::classifier::NO_FID, priority: 0 } };
            let mut meanings = vec![nothing; bits.count(set)].into_boxed_slice();
            let mut added = Vec::new();
            for (place, (rank, found)) in (0u32..).zip(ranks.iter().zip(list.meanings())) {
                if *rank == NONE {
                    added.extend(list.get(place as usize).map(|entry| (place, entry)));
                } else if let Some(meaning) = meanings.get_mut(*rank as usize) {
                    *meaning = Meaning { place, found };
                    bits.set_valid(&mut valid, set, *rank);
                }
            }
            Patch { meanings, added }
        };
        let sets = lists.iter().zip(ranks).enumerate().map(of_set).collect();
        Patched { bits, valid, sets }
    }

    /// Entries that are in no bit vector.
    pub fn added(&self) -> usize {
        self.sets.iter().map(|patch| patch.added.len()).sum()
    }

    /// Entries of a set in the bit vectors, valid or not.
    pub fn count(&self, set: usize) -> usize {
        self.bits.count(set)
    }

    /// The rule of an entry in the bit vectors.
    pub fn rule(&self, set: usize, rank: u32) -> Option<&HeaderRule> {
        self.bits.rule(set, rank)
    }

    /// Whether both have the same bit vectors.
    pub fn shares(&self, other: &Patched) -> bool {
        Arc::ptr_eq(&self.bits, &other.bits)
    }

    /// As [`crate::Classifier::lookup`].
    pub fn lookup(&self, header: &Header, results: &mut [Option<Match>]) {
        let mut ranks = [None; SETS_MAX as usize];
        let Some(ranks) = ranks.get_mut(..self.sets.len()) else { return };
        self.bits.ranks(header, &self.valid, ranks);
        for ((patch, rank), result) in self.sets.iter().zip(&*ranks).zip(results) {
            let known = rank.and_then(|rank| patch.meanings.get(rank as usize));
            let end = known.map_or(NONE, |meaning| meaning.place);
            let before = patch.added.iter().take_while(|(place, _)| *place < end);
            let added = before.map(|(_, entry)| entry).find(|entry| entry.rule.matches(header));
            let added = added.map(|entry| Match { fid: entry.fid, priority: entry.priority });
            *result = added.or(known.map(|meaning| meaning.found));
        }
    }

    /// Upper bound of the bytes in use, shared ones included.
    pub fn memory(&self) -> usize {
        use crate::Classifier;
        let of_set = |patch: &Patch| {
            size_of_val(&*patch.meanings) + patch.added.capacity() * size_of::<(u32, RankedRule)>()
        };
        self.bits.memory() + self.valid.len() * 8 + self.sets.iter().map(of_set).sum::<usize>()
    }
}
