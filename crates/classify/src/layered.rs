// SPDX-License-Identifier: Apache-2.0
//! Rule sets that differ little from those of the generation before: both generations share compiled
//! tables, and each has its own differences. Where tables would leave many rules to a linear search, bit
//! vectors replace them ([`Patched`]).
//!
//! [`Live`](crate::Live) changes its own rules; this makes a new structure for the next generation, and the
//! one before stays as it is. Tables know the order of their rules, not their fids: so a list with the same
//! rules in the same order has the same tables, whatever fids it gives them. Rules that a list lacks are
//! deleted in its own flags, rules that it has in addition are added ([`LiveVersion::over`]). Callers need
//! not report changes: lists are compared with those before.
//!
//! Added rules cost each lookup a little. [`Layered::compact`] compiles the whole list, and running lookups
//! switch to it; callers run it in the background, when changes pause.

use crate::auto::REST_MAX;
use crate::classifier::{InsertError, Match, RankedRule};
use crate::header::{Header, HeaderRule};
use crate::list::{List, Placed};
use crate::live::{LiveVersion, Meanings};
use crate::patched::Patched;
use crate::split::{NONE, Options};
use crate::sync::{ArcSwap, DELTA_MAX};
use core::ops::Range;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Lists are compiled anew when they lack more than a half of the tables' entries, plus this number.
const DELETED_MAX: usize = 1_024;

/// Rule sets of a generation that share compiled tables with the previous generation and hold only the
/// differences.
#[derive(Debug)]
pub struct Layered {
    lists: Vec<List>,
    budget: usize,
    published: ArcSwap<Base>,
    tables: Mutex<LayeredState>,
}

/// The structure that lookups run on: compiled rules, and the rules that the lists have in addition or
/// lack.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "one for each generation; a box would be one more read of each lookup"
)]
enum Base {
    Tables(LiveVersion),
    Bits(Patched),
}

impl Base {
    /// The number of compiled entries of a set, deleted or not.
    fn count(&self, set: usize) -> usize {
        match self {
            Base::Tables(version) => version.sets.get(set).map_or(0, |set| set.stored.len()),
            Base::Bits(bits) => bits.count(set),
        }
    }

    /// The rule of a compiled entry.
    fn rule(&self, set: usize, rank: u32) -> Option<&HeaderRule> {
        match self {
            Base::Tables(version) => Some(&version.sets.get(set)?.stored.get(rank as usize)?.entry.rule),
            Base::Bits(bits) => bits.rule(set, rank),
        }
    }

    /// The structure for the next lists. `None`: too many rules would have to be added.
    fn behind(&self, lists: &[List], ranks: &[Arc<[u32]>], changes: &[Meanings]) -> Option<Self> {
        Some(match self {
            Base::Tables(version) => Base::Tables(LiveVersion::behind(version, lists, ranks, changes)?),
            Base::Bits(bits) => Base::Bits(Patched::behind(bits, lists, ranks)),
        })
    }

    fn added(&self) -> usize {
        match self {
            Base::Tables(version) => version.delta.len(),
            Base::Bits(bits) => bits.added(),
        }
    }

    fn rest(&self) -> usize {
        match self {
            Base::Tables(version) => version.rest(),
            Base::Bits(_) => 0,
        }
    }

    fn memory(&self) -> usize {
        match self {
            Base::Tables(version) => version.memory(),
            Base::Bits(bits) => bits.memory(),
        }
    }
}

/// The state that the next generation starts from.
#[derive(Debug)]
struct LayeredState {
    /// The compiled structure of the tables.
    base: Arc<Base>,
    /// By set, the rank of each entry of the list among the compiled ones, or [`NONE`].
    ranks: Vec<Arc<[u32]>>,
    /// Whether the lists have other rules than the tables.
    differ: bool,
    /// The number of rules with which tables left too many to a linear search.
    unfit: Option<usize>,
}

impl Layered {
    /// Compiles lists, in the order of their priorities; tables take about `budget` bytes at most.
    ///
    /// # Errors
    /// An entry that no classifier accepts.
    pub fn new(lists: Vec<List>, budget: usize) -> Result<Self, InsertError> {
        Layered::compiled(lists, budget, None)
    }

    /// A structure for lists that differ little, with the tables of this one; compiled again if they differ
    /// too much.
    ///
    /// # Errors
    /// As [`Layered::new`].
    pub fn after(&self, lists: Vec<List>, budget: usize) -> Result<Self, InsertError> {
        let unfit = self.tables().unfit;
        match self.next(&lists, budget)? {
            Some(next) => Ok(next),
            None => Layered::compiled(lists, budget, unfit),
        }
    }

    fn compiled(lists: Vec<List>, budget: usize, unfit: Option<usize>) -> Result<Self, InsertError> {
        check(&lists)?;
        let ranks = whole(&lists);
        let (base, unfit) = compiled(&lists, &ranks, budget, unfit);
        let base = Arc::new(base);
        let tables = LayeredState { base: Arc::clone(&base), ranks, differ: false, unfit };
        Ok(Layered { lists, budget, published: ArcSwap::from(base), tables: Mutex::new(tables) })
    }

    /// A structure for lists that differ little, with the tables of this one. `None`: they differ too much,
    /// or need other tables.
    ///
    /// # Errors
    /// As [`Layered::new`].
    pub fn next(&self, lists: &[List], budget: usize) -> Result<Option<Self>, InsertError> {
        check(lists)?;
        let before = self.tables();
        if lists.len() != self.lists.len() || budget != self.budget {
            return Ok(None);
        }
        let (base, unfit) = (Arc::clone(&before.base), before.unfit);
        // The structure that lookups of these lists run on has the same tables as their ranks.
        let published = self.published.load_full();
        let both = self.lists.iter().zip(&before.ranks).zip(lists).enumerate();
        let followed: Vec<Followed> = both
            .map(|(set, ((old, ranks), new))| {
                follow(old, ranks, new, CompiledSet { base: &base, number: set })
            })
            .collect();
        drop(before);
        let ranks: Vec<Arc<[u32]>> = followed.iter().map(|followed| Arc::clone(&followed.ranks)).collect();
        let count = |list: &[u32]| list.iter().filter(|rank| **rank == NONE).count();
        let added: usize = ranks.iter().map(|ranks| count(ranks)).sum();
        let listed: usize = lists.iter().map(|list| list.len()).sum();
        let there: usize = (0..lists.len()).map(|set| base.count(set)).sum();
        let deleted = there.saturating_sub(listed - added);
        if added > DELTA_MAX || deleted > there / 2 + DELETED_MAX {
            return Ok(None);
        }
        let changes: Vec<Meanings> = followed.into_iter().map(|followed| followed.meanings).collect();
        let Some(next) = published.behind(lists, &ranks, &changes) else { return Ok(None) };
        let tables = LayeredState { base, ranks, differ: added + deleted > 0, unfit };
        Ok(Some(Layered {
            lists: lists.to_vec(),
            budget,
            published: ArcSwap::from_pointee(next),
            tables: Mutex::new(tables),
        }))
    }

    fn tables(&self) -> MutexGuard<'_, LayeredState> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of entries that are in no table yet.
    #[must_use]
    pub fn added(&self) -> usize {
        self.published.load().added()
    }

    /// Whether all rules are in tables of its own, with none added and none deleted.
    #[must_use]
    pub fn is_compact(&self) -> bool {
        !self.tables().differ
    }

    /// Compiles the whole list, for lookups from now on and for the next generation. This takes as long as
    /// [`Layered::new`].
    pub fn compact(&self) {
        if self.is_compact() {
            return;
        }
        let (ranks, unfit) = (whole(&self.lists), self.tables().unfit);
        let (base, unfit) = compiled(&self.lists, &ranks, self.budget, unfit);
        let base = Arc::new(base);
        let mut tables = self.tables();
        *tables = LayeredState { base: Arc::clone(&base), ranks, differ: false, unfit };
        self.published.store(base);
    }

    /// Whether the structure is bit vectors.
    #[must_use]
    pub fn has_bit_vectors(&self) -> bool {
        matches!(**self.published.load(), Base::Bits(_))
    }

    /// Whether both share their tables, which take memory once.
    #[must_use]
    pub fn shares_tables(&self, other: &Layered) -> bool {
        match (&**self.published.load(), &**other.published.load()) {
            (Base::Tables(a), Base::Tables(b)) => a.shares_tables(b),
            (Base::Bits(a), Base::Bits(b)) => a.shares(b),
            _ => false,
        }
    }

    /// As [`crate::Classifier::lookup`].
    pub fn lookup(&self, header: &Header, results: &mut [Option<Match>]) {
        results.fill(None);
        match &**self.published.load() {
            Base::Tables(version) => version.lookup_one(header, results),
            Base::Bits(bits) => bits.lookup(header, results),
        }
    }

    /// The lists.
    #[must_use]
    pub fn lists(&self) -> &[List] {
        &self.lists
    }

    /// The number of rules that are in no table.
    #[must_use]
    pub fn rest(&self) -> usize {
        self.published.load().rest()
    }

    /// Upper bound of the bytes in use, shared ones included.
    #[must_use]
    pub fn memory(&self) -> usize {
        let lists: usize = self.lists.iter().map(|list| list.len() * (size_of::<RankedRule>() + 8)).sum();
        self.published.load().memory() + lists
    }
}

fn check(lists: &[List]) -> Result<(), InsertError> {
    (0u8..).zip(lists).try_for_each(|(set, list)| list.check(set, lists.len()))
}

/// Compiles lists; returns the structure, and the number of rules with which tables left too many to a
/// linear search. Finding that out takes longer than building bit vectors: where it is known (`unfit`),
/// tables are tried again only with clearly fewer rules.
fn compiled(
    lists: &[List],
    ranks: &[Arc<[u32]>],
    budget: usize,
    unfit: Option<usize>,
) -> (Base, Option<usize>) {
    let rules: usize = lists.iter().map(List::len).sum();
    let bits = || Patched::whole(lists, ranks, budget).map(Base::Bits);
    if unfit.is_some_and(|unfit| rules >= unfit - unfit / 4)
        && let Some(bits) = bits()
    {
        return (bits, unfit);
    }
    let options = Options { budget, fast: true };
    match LiveVersion::within(lists, options, REST_MAX) {
        Some(tables) => (Base::Tables(tables), None),
        None => (bits().unwrap_or_else(|| Base::Tables(LiveVersion::whole(lists, options))), Some(rules)),
    }
}

/// The ranks of lists that are compiled themselves.
fn whole(lists: &[List]) -> Vec<Arc<[u32]>> {
    lists.iter().map(|list| (0u32..).take(list.len()).collect()).collect()
}

/// The changes from a list to the next one.
struct Followed {
    /// The ranks of its rules among the compiled ones, rising.
    ranks: Arc<[u32]>,
    /// Fids and priorities of compiled entries that have changed.
    meanings: Meanings,
}

/// A set of a compiled structure.
#[derive(Clone, Copy)]
struct CompiledSet<'b> {
    base: &'b Base,
    /// The set's number.
    number: usize,
}

/// Two versions of a list, and the pieces in which they differ.
struct ListChange<'l> {
    old: &'l List,
    /// The ranks of the old list's rules among the compiled ones.
    old_ranks: &'l Arc<[u32]>,
    old_between: Range<usize>,
    new: &'l List,
    between: Range<usize>,
}

/// Compares a list with the next one.
fn follow(old: &List, old_ranks: &Arc<[u32]>, new: &List, compiled: CompiledSet<'_>) -> Followed {
    let (was, is) = (old.pieces(), new.pieces());
    // Pieces of both lists are recognised by address.
    let same = |a: &Placed, b: &Placed| Arc::ptr_eq(&a.piece, &b.piece);
    let (old_between, between) = bartizan_base::between(was, is, same);
    let change =
        ListChange { old, old_ranks, old_between: old_between.clone(), new, between: between.clone() };
    let ranks = ranks(change, compiled);
    let mut meanings = Meanings::default();
    let gone = old_ranks.get(old.start(old_between.start)..old.start(old_between.end)).unwrap_or_default();
    meanings.gone.extend(gone.iter().filter(|rank| **rank != NONE));
    for (number, placed) in is.iter().enumerate() {
        let before = match number {
            number if number < between.start => was.get(number),
            number if number >= between.end => was.get(number + was.len() - is.len()),
            _ => None,
        };
        if before.is_none_or(|before| before.numbers != placed.numbers) {
            let own = ranks.get(new.start(number)..new.start(number + 1)).unwrap_or_default();
            let now = own.iter().zip(placed.meanings()).filter(|(rank, _)| **rank != NONE);
            meanings.now.extend(now.map(|(rank, (fid, priority))| (*rank, fid, priority)));
        }
    }
    Followed { ranks, meanings }
}

/// The ranks of a list, some pieces of which differ from those of the list before.
fn ranks(change: ListChange<'_>, compiled: CompiledSet<'_>) -> Arc<[u32]> {
    let ListChange { old, old_ranks, old_between, new, between } = change;
    if old_between.is_empty() && between.is_empty() {
        return Arc::clone(old_ranks);
    }
    let (heads, tails) = (new.start(between.start), new.len() - new.start(between.end));
    let (was, is): (Vec<&HeaderRule>, Vec<&HeaderRule>) =
        (old.rules(old_between).collect(), new.rules(between).collect());
    let (_, others) = bartizan_base::between(&was, &is, |a, b| a == b);
    let (head_ranks, rest) = old_ranks.split_at(heads + others.start);
    let tail_ranks = rest.get(rest.len() - tails - (is.len() - others.end)..).unwrap_or_default();
    // Between the last rank of the head and the first of the tail.
    let ranked = |rank: &&u32| **rank != NONE;
    let first = head_ranks.iter().rev().find(ranked).map_or(0, |rank| rank + 1);
    let CompiledSet { base, number: set } = compiled;
    let end = tail_ranks.iter().find(ranked).map_or(base.count(set) as u32, |rank| *rank);
    let middle = is.get(others).unwrap_or_default();
    let between = rising(&matched(middle, first..end, |rank| base.rule(set, rank)));
    head_ranks.iter().chain(&between).chain(tail_ranks).copied().collect()
}

/// For each rule of `list` a compiled entry with it, each at most once, or [`NONE`]; in any order. `ranks`
/// are the candidates, `rule` returns their rules.
fn matched<'r>(
    list: &[&HeaderRule],
    ranks: Range<u32>,
    rule: impl Fn(u32) -> Option<&'r HeaderRule>,
) -> Vec<u32> {
    let mut places: HashMap<HeaderRule, Vec<u32>, foldhash::fast::FixedState> = HashMap::default();
    if !list.is_empty() {
        for rank in ranks.rev() {
            rule(rank).into_iter().for_each(|rule| places.entry(*rule).or_default().push(rank));
        }
    }
    let take = |rule: &&HeaderRule| places.get_mut(*rule).and_then(Vec::pop).unwrap_or(NONE);
    list.iter().map(take).collect()
}

/// The longest rising subsequence of some ranks; every other place has [`NONE`].
fn rising(ranks: &[u32]) -> Vec<u32> {
    // By the length of a subsequence less one: the place of the lowest end of such a subsequence.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = vec![None; ranks.len()];
    let rank = |place: usize| ranks.get(place).copied().unwrap_or(NONE);
    for (place, of_place) in ranks.iter().enumerate().filter(|(_, rank)| **rank != NONE) {
        let length = ends.partition_point(|end| rank(*end) < *of_place);
        if let (Some(slot), Some(end)) = (before.get_mut(place), length.checked_sub(1).map(|l| ends.get(l))) {
            *slot = end.copied();
        }
        match ends.get_mut(length) {
            Some(end) => *end = place,
            None => ends.push(place),
        }
    }
    let mut kept = vec![NONE; ranks.len()];
    let mut next = ends.last().copied();
    while let Some(place) = next {
        if let Some(slot) = kept.get_mut(place) {
            *slot = rank(place);
        }
        next = before.get(place).copied().flatten();
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_longest_rising_part(ranks in proptest::collection::vec(prop_oneof![Just(NONE), 0u32..12], 0..10)) {
            let kept = rising(&ranks);
            let is_part = |mask: u32| {
                let some: Vec<u32> = ranks.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1).map(|(_, r)| *r).collect();
                (!some.contains(&NONE) && some.is_sorted_by(|a, b| a < b)).then_some(some.len())
            };
            let longest = (0..1u32 << ranks.len()).filter_map(is_part).max().unwrap_or(0);
            let got: Vec<u32> = kept.iter().copied().filter(|r| *r != NONE).collect();
            prop_assert!(got.is_sorted_by(|a, b| a < b));
            prop_assert_eq!(got.len(), longest);
            prop_assert!(kept.iter().zip(&ranks).all(|(kept, rank)| [NONE, *rank].contains(kept)));
        }
    }
}
