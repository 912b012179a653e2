// SPDX-License-Identifier: Apache-2.0
//! The structure that lookups read: compiled tables, validity and fid of each compiled entry, and entries
//! added since.
//!
//! Shared by one writer and many readers. Deleting clears a bit and is seen by the next batch; adding
//! appends; everything else needs another version.
//!
//! A lookup that reads several flags one after the other may see the first as it was before two changes and
//! the second as it is after them: the entry that replaces another is not visible yet, and the replaced one
//! no longer. So the writer counts changes, each before it is made. A result from one flag is right at the
//! moment of that flag; one from several is settled separately, again while the count moves. Such headers
//! are few (their best rule was deleted, or an added entry matches), the tables' results for them stay
//! valid, and settling again means that the writer has made progress.

use super::delta::{Added, Delta, DeltaLookup};
use crate::classifier::{Match, NO_FID, RankedRule, SETS_MAX};
use crate::flat::{Flat, FlatV4, FlatV6};
use crate::header::Header;
use crate::list::List;
use crate::split::{BLOCK, Compiled, NONE, Options};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, DELTA_MAX, spin_loop};
use bartizan_base::Fid;
use core::sync::atomic::Ordering;
use std::sync::Arc;

/// An entry with its place among equals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    pub entry: RankedRule,
    pub sequence: u64,
}

/// The new fids and priorities of a set's compiled entries in the next list, by their ranks.
#[derive(Debug, Default)]
pub(crate) struct Meanings {
    /// Ranks of entries that the list may lack.
    pub gone: Vec<u32>,
    /// Rank, fid and priority of entries that the list has; applied after `gone`.
    pub now: Vec<(u32, u32, u32)>,
}

/// The compiled entries of a set, by rank.
#[derive(Debug)]
pub(crate) struct LiveSet {
    pub stored: Arc<[Stored]>,
    priorities: Vec<u32>,
    /// The fid of each entry now, [`NO_FID`] while it is deleted. This is its valid flag: one load reads
    /// both. The length is a power of two; the last element, which no entry has, is read for a rank of
    /// [`NONE`]: the load needs neither branch nor check.
    fids: Vec<AtomicU32>,
}

/// A set as lookups read it, by value: writing results does not force a reload of it.
#[derive(Clone, Copy)]
struct LiveSetView<'a> {
    fids: &'a [AtomicU32],
    priorities: &'a [u32],
}

impl LiveSetView<'_> {
    #[inline(always)]
    fn fid(self, rank: u32) -> Fid {
        // The rank [`NONE`] selects the last element.
        let place = rank as usize & self.fids.len().wrapping_sub(1);
        // Acquire: the count of changes is not read before this load.
        self.fids.get(place).map_or(NO_FID, |f| Fid(f.load(Ordering::Acquire)))
    }
}

/// The result of a lookup.
trait LookupResult: Copy {
    /// The result for a compiled entry; none if it is deleted, or if no entry has this rank.
    fn compiled(flags: LiveSetView<'_>, rank: u32) -> Self;
    fn is_none(&self) -> bool;
    fn added(entry: &RankedRule) -> Self;
}

impl LookupResult for Option<Match> {
    #[inline(always)]
    fn compiled(flags: LiveSetView<'_>, rank: u32) -> Self {
        let priority = *flags.priorities.get(rank as usize)?;
        let fid = flags.fid(rank);
        (fid != NO_FID).then_some(Match { fid, priority })
    }

    #[inline(always)]
    fn is_none(&self) -> bool {
        Option::is_none(self)
    }

    fn added(entry: &RankedRule) -> Self {
        Some(Match { fid: entry.fid, priority: entry.priority })
    }
}

impl LookupResult for Fid {
    #[inline(always)]
    fn compiled(flags: LiveSetView<'_>, rank: u32) -> Self {
        flags.fid(rank)
    }

    #[inline(always)]
    fn is_none(&self) -> bool {
        *self == NO_FID
    }

    fn added(entry: &RankedRule) -> Self {
        entry.fid
    }
}

impl LiveSet {
    fn new(stored: Vec<Stored>) -> Self {
        let mut fids: Vec<AtomicU32> = stored.iter().map(|s| AtomicU32::new(s.entry.fid.0)).collect();
        fids.resize_with((stored.len() + 1).next_power_of_two(), || AtomicU32::new(NO_FID.0));
        LiveSet { priorities: stored.iter().map(|s| s.entry.priority).collect(), fids, stored: stored.into() }
    }

    /// Copies the entries, with other fids and priorities.
    fn behind(&self, changed: &Meanings) -> Self {
        let mut fids: Vec<u32> = self.fids.iter().map(|fid| fid.load(Ordering::Relaxed)).collect();
        let mut priorities = self.priorities.clone();
        for rank in &changed.gone {
            fids.get_mut(*rank as usize).into_iter().for_each(|fid| *fid = NO_FID.0);
        }
        for (rank, fid, priority) in &changed.now {
            let place = *rank as usize;
            if let (Some(own), Some(at)) = (fids.get_mut(place), priorities.get_mut(place)) {
                (*own, *at) = (*fid, *priority);
            }
        }
        let fids = fids.into_iter().map(AtomicU32::new).collect();
        LiveSet { priorities, fids, stored: Arc::clone(&self.stored) }
    }

    #[inline]
    pub fn is_valid(&self, rank: u32) -> bool {
        self.fid(rank) != NO_FID
    }

    #[inline]
    fn fid(&self, rank: u32) -> Fid {
        self.flags().fid(rank)
    }

    /// Computes results of a batch, from the ranks of the tables; returns, by bit, the headers whose entry is
    /// deleted.
    #[inline(always)]
    fn results<A: LookupResult>(&self, ranks: &[u32], results: &mut [A]) -> u64 {
        let flags = self.flags();
        for (rank, result) in ranks.iter().zip(&mut *results) {
            *result = A::compiled(flags, *rank);
        }
        // Two passes: plain comparisons are vectorised, loads of flags are not.
        let deleted = |(rank, result): (&u32, &mut A)| result.is_none() & (*rank != NONE);
        if !ranks.iter().zip(&mut *results).map(deleted).fold(false, |any, deleted| any | deleted) {
            return 0;
        }
        let each = ranks.iter().zip(results).map(deleted).enumerate();
        each.fold(0, |bits, (i, deleted)| bits | u64::from(deleted) << i)
    }

    /// The arrays that results are read from.
    #[inline(always)]
    fn flags(&self) -> LiveSetView<'_> {
        LiveSetView { fids: &self.fids, priorities: &self.priorities }
    }

    /// Deletes an entry; returns whether it existed.
    pub fn kill(&self, rank: u32) -> bool {
        let was = self.fids.get(rank as usize).map(|f| f.swap(NO_FID.0, Ordering::AcqRel));
        was.is_some_and(|was| was != NO_FID.0)
    }

    /// Restores the fid of a deleted entry.
    pub fn revive(&self, rank: u32, fid: Fid) {
        if let Some(place) = self.fids.get(rank as usize) {
            place.swap(fid.0, Ordering::AcqRel);
        }
    }

    /// Entries that are not deleted, with their present fids.
    pub fn live(&self) -> impl Iterator<Item = Stored> {
        self.ranked().map(|(_, stored)| stored)
    }

    /// As [`LiveSet::live`], with their ranks.
    fn ranked(&self) -> impl Iterator<Item = (u32, Stored)> {
        (0u32..).zip(self.stored.iter()).zip(&self.priorities).filter_map(|((rank, s), priority)| {
            let fid = self.fid(rank);
            let entry = RankedRule { fid, priority: *priority, ..s.entry };
            (fid != NO_FID).then_some((rank, Stored { entry, ..*s }))
        })
    }
}

/// The entries of lists, by set.
fn stored(lists: &[List]) -> Vec<Vec<Stored>> {
    let of = |list: &List| -> Vec<Stored> {
        (0u64..).zip(list.iter()).map(|(sequence, entry)| Stored { entry, sequence }).collect()
    };
    lists.iter().map(of).collect()
}

/// The rules of entries, by set.
fn rules_of(sets: &[Vec<Stored>]) -> Vec<Vec<crate::header::HeaderRule>> {
    sets.iter().map(|set| set.iter().map(|stored| stored.entry.rule).collect()).collect()
}

/// One version of the structure that lookups read: compiled tables, the validity and fid of each entry, and
/// the entries added since.
#[derive(Debug)]
pub struct LiveVersion {
    pub(crate) sets: Vec<LiveSet>,
    /// Shared with other generations of the rule sets.
    pub(crate) compiled: Arc<Compiled>,
    pub(crate) delta: Delta,
    /// Changes begun.
    changes: Apart,
}

/// A count in cache lines of its own: the writer takes them with each change, and lookups read neighbouring
/// data.
#[derive(Debug)]
#[repr(align(128))]
struct Apart(AtomicU64);

impl LiveVersion {
    /// Compiles entries; each set in the order of (priority, sequence).
    pub(crate) fn new(sets: Vec<Vec<Stored>>, options: Options) -> Self {
        let compiled = Compiled::new(&rules_of(&sets), options);
        LiveVersion::of(compiled, sets)
    }

    /// As [`LiveVersion::whole`], unless tables would leave more than `rest_max` rules to a linear search.
    pub(crate) fn within(lists: &[List], options: Options, rest_max: usize) -> Option<Self> {
        let rules = lists.iter().flat_map(|list| list.rules(0..list.pieces().len()));
        if Compiled::leaves(rules, rest_max) {
            return None;
        }
        let sets = stored(lists);
        Some(LiveVersion::of(Compiled::within(&rules_of(&sets), options, rest_max)?, sets))
    }

    /// As [`LiveVersion::new`], for lists.
    pub(crate) fn whole(lists: &[List], options: Options) -> Self {
        LiveVersion::new(stored(lists), options)
    }

    fn of(compiled: Compiled, sets: Vec<Vec<Stored>>) -> Self {
        LiveVersion {
            compiled: Arc::new(compiled),
            sets: sets.into_iter().map(LiveSet::new).collect(),
            delta: Delta::new(),
            changes: Apart(AtomicU64::new(0)),
        }
    }

    /// Makes the version of the next lists over the tables of `before`: `ranks` has the entries in the
    /// tables, by set; the others are added. `changes`: entries with other fids or priorities than in
    /// `before`. `None`: too many would have to be added.
    pub(crate) fn behind(
        before: &LiveVersion,
        lists: &[List],
        ranks: &[Arc<[u32]>],
        changed: &[Meanings],
    ) -> Option<Self> {
        let version = LiveVersion {
            compiled: Arc::clone(&before.compiled),
            sets: before.sets.iter().zip(changed).map(|(set, changed)| set.behind(changed)).collect(),
            delta: Delta::new(),
            changes: Apart(AtomicU64::new(0)),
        };
        for (set, (list, ranks)) in (0u8..).zip(lists.iter().zip(ranks)) {
            let mut before = 0;
            for (place, rank) in ranks.iter().enumerate() {
                if *rank != NONE {
                    before = *rank + 1;
                    continue;
                }
                let (entry, valid) = (list.get(place)?, AtomicBool::new(true));
                version.delta.add(Added { set, entry, sequence: place as u64, before, valid })?;
            }
        }
        Some(version)
    }

    /// The number of rules that are in no table.
    pub(crate) fn rest(&self) -> usize {
        self.compiled.rest()
    }

    /// Whether both have the same tables.
    pub(crate) fn shares_tables(&self, other: &LiveVersion) -> bool {
        Arc::ptr_eq(&self.compiled, &other.compiled)
    }

    /// Counts a change, before a flag is set or cleared.
    pub(crate) fn change(&self) {
        // With the flag's own ordering: a reader that sees the flag sees the count.
        self.changes.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Lowers the instruction set of lookups, for comparisons: see [`Compiled::set_level`].
    pub(crate) fn set_level(&mut self, level: crate::InstructionSet) {
        // No other thread has the tables yet.
        if let Some(compiled) = Arc::get_mut(&mut self.compiled) {
            compiled.set_level(level);
        }
    }

    /// The number of rule sets.
    #[must_use]
    pub fn sets(&self) -> usize {
        self.sets.len()
    }

    /// Looks IPv4 headers up: for each set, in their order, one result for each header.
    pub fn lookup_v4(&self, headers: &[FlatV4], results: &mut [Option<Match>]) {
        self.batch_v4(headers, results);
    }

    /// As [`LiveVersion::lookup_v4`], for IPv6.
    pub fn lookup_v6(&self, headers: &[FlatV6], results: &mut [Option<Match>]) {
        self.batch_v6(headers, results);
    }

    /// As [`LiveVersion::lookup_v4`], but returns only the fid of each match, or [`NO_FID`].
    pub fn fids_v4(&self, headers: &[FlatV4], fids: &mut [Fid]) {
        self.batch_v4(headers, fids);
    }

    /// As [`LiveVersion::fids_v4`], for IPv6.
    pub fn fids_v6(&self, headers: &[FlatV6], fids: &mut [Fid]) {
        self.batch_v6(headers, fids);
    }

    /// Looks one header up, without the overhead of a batch: a result for each set, as far as there are
    /// places.
    pub(crate) fn lookup_one(&self, header: &Header, results: &mut [Option<Match>]) {
        match Flat::new(header) {
            Some(Flat::V4(flat)) => self.one_v4(&flat, results),
            Some(Flat::V6(flat)) => self.one_v6(&flat, results),
            None => self.search(header, results),
        }
    }

    fn one_v4<A: LookupResult>(&self, header: &FlatV4, results: &mut [A]) {
        self.one(
            header,
            results,
            |ranks| self.compiled.first_v4(header, ranks),
            |h, set, rank, valid| self.compiled.next_v4(h, set, rank, valid),
            |h, found| self.delta.find_v4(h, found),
        );
    }

    fn one_v6<A: LookupResult>(&self, header: &FlatV6, results: &mut [A]) {
        self.one(
            header,
            results,
            |ranks| self.compiled.first_v6(header, ranks),
            |h, set, rank, valid| self.compiled.next_v6(h, set, rank, valid),
            |h, found| self.delta.find_v6(h, found),
        );
    }

    #[inline(always)]
    fn batch_v4<A: LookupResult>(&self, headers: &[FlatV4], results: &mut [A]) {
        if let [header] = headers {
            return self.one_v4(header, results);
        }
        self.batches(
            headers,
            results,
            |headers, ranks| self.compiled.block_v4(headers, ranks),
            |h, set, rank, valid| self.compiled.next_v4(h, set, rank, valid),
            |h, found| self.delta.find_v4(h, found),
        );
    }

    #[inline(always)]
    fn batch_v6<A: LookupResult>(&self, headers: &[FlatV6], results: &mut [A]) {
        if let [header] = headers {
            return self.one_v6(header, results);
        }
        self.batches(
            headers,
            results,
            |headers, ranks| self.compiled.block_v6(headers, ranks),
            |h, set, rank, valid| self.compiled.next_v6(h, set, rank, valid),
            |h, found| self.delta.find_v6(h, found),
        );
    }

    /// Looks a header up without a batch.
    #[inline(always)]
    fn one<H, A: LookupResult>(
        &self,
        header: &H,
        results: &mut [A],
        find: impl Fn(&mut [u32]),
        next: impl Fn(&H, u8, u32, &dyn Fn(u32) -> bool) -> u32,
        added: impl Fn(&H, &mut [DeltaLookup]),
    ) {
        let mut ranks = [NONE; SETS_MAX as usize];
        let Some(ranks) = ranks.get_mut(..self.sets.len()) else { return };
        find(ranks);
        let mut open = false;
        for ((set, rank), result) in self.sets.iter().zip(&*ranks).zip(&mut *results) {
            *result = A::compiled(set.flags(), *rank);
            open |= result.is_none() && *rank != NONE;
        }
        // After the flags, as in a batch.
        if open || self.delta.len() > 0 && self.is_added(header, ranks.iter(), &added) {
            self.resolve(header, ranks.iter(), results.iter_mut(), &next, &added);
        }
    }

    #[inline(always)]
    fn batches<H, A: LookupResult>(
        &self,
        headers: &[H],
        results: &mut [A],
        find: impl Fn(&[H], &mut [[u32; BLOCK]]),
        next: impl Fn(&H, u8, u32, &dyn Fn(u32) -> bool) -> u32,
        added: impl Fn(&H, &mut [DeltaLookup]),
    ) {
        // Clears only as many as there are sets.
        match self.sets.len() {
            0 => {}
            1 => self.batches_in::<H, A, 1>(headers, results, find, next, added),
            2 => self.batches_in::<H, A, 2>(headers, results, find, next, added),
            3..=4 => self.batches_in::<H, A, 4>(headers, results, find, next, added),
            _ => self.batches_in::<H, A, { SETS_MAX as usize }>(headers, results, find, next, added),
        }
    }

    #[inline(always)]
    fn batches_in<H, A: LookupResult, const SETS: usize>(
        &self,
        headers: &[H],
        results: &mut [A],
        find: impl Fn(&[H], &mut [[u32; BLOCK]]),
        next: impl Fn(&H, u8, u32, &dyn Fn(u32) -> bool) -> u32,
        added: impl Fn(&H, &mut [DeltaLookup]),
    ) {
        for (number, batch) in headers.chunks(BLOCK).enumerate() {
            let first = number * BLOCK;
            let mut ranks = [[NONE; BLOCK]; SETS];
            let Some(ranks) = ranks.get_mut(..self.sets.len()) else { return };
            find(batch, ranks);
            // Headers, by bit, with results from several flags.
            let mut open = 0u64;
            for (index, (set, ranks)) in self.sets.iter().zip(&*ranks).enumerate() {
                let results = results.get_mut(index * headers.len() + first..).unwrap_or_default();
                open |= set.results(ranks.get(..batch.len()).unwrap_or_default(), results);
            }
            // After the flags: entries are only ever appended, so if there is none now, there was none then.
            if self.delta.len() > 0 {
                for (i, header) in batch.iter().enumerate() {
                    let ranks = ranks.iter().filter_map(|of_set| of_set.get(i));
                    open |= u64::from(self.is_added(header, ranks, &added)) << i;
                }
            }
            while open != 0 {
                let i = open.trailing_zeros() as usize;
                open &= open - 1;
                if let Some(header) = batch.get(i) {
                    let ranks = ranks.iter().filter_map(|of_set| of_set.get(i));
                    let results = results.iter_mut().skip(first + i).step_by(headers.len());
                    self.resolve(header, ranks, results, &next, &added);
                }
            }
        }
    }

    /// Whether an added entry matches that would come before the tables' result.
    #[inline(always)]
    fn is_added<'a, H>(
        &self,
        header: &H,
        ranks: impl Iterator<Item = &'a u32>,
        added: &impl Fn(&H, &mut [DeltaLookup]),
    ) -> bool {
        let mut found = self.found(ranks);
        let found = found.get_mut(..self.sets.len()).unwrap_or_default();
        added(header, found);
        found.iter().any(|f| f.met)
    }

    /// The results so far: for each set the rank from the tables.
    #[inline(always)]
    fn found<'a>(&self, ranks: impl Iterator<Item = &'a u32>) -> [DeltaLookup; SETS_MAX as usize] {
        let mut found = [DeltaLookup { rank: NONE, added: None, met: false }; SETS_MAX as usize];
        for (found, rank) in found.iter_mut().zip(ranks) {
            found.rank = *rank;
        }
        found
    }

    /// Finds a header's results from the ranks that the tables gave (one for each set), at one moment for all
    /// flags.
    #[inline(never)]
    fn resolve<'a, H, A: LookupResult + 'a>(
        &self,
        header: &H,
        ranks: impl Iterator<Item = &'a u32>,
        results: impl Iterator<Item = &'a mut A>,
        next: &impl Fn(&H, u8, u32, &dyn Fn(u32) -> bool) -> u32,
        added: &impl Fn(&H, &mut [DeltaLookup]),
    ) {
        let tables = self.found(ranks);
        let mut answers: [Option<A>; SETS_MAX as usize] = [None; SETS_MAX as usize];
        loop {
            let before = self.changes.0.load(Ordering::Acquire);
            let mut found = tables;
            let found = found.get_mut(..self.sets.len()).unwrap_or_default();
            for (index, ((set, found), answer)) in
                self.sets.iter().zip(&mut *found).zip(&mut answers).enumerate()
            {
                // A valid entry may be deleted before its fid is read: then the next one is tried.
                *answer = loop {
                    let answer = A::compiled(set.flags(), found.rank);
                    if found.rank == NONE || !answer.is_none() {
                        break Some(answer);
                    }
                    found.rank = next(header, index as u8, found.rank, &|r| set.is_valid(r));
                };
            }
            added(header, found);
            for (found, answer) in found.iter().zip(&mut answers) {
                if let Some(added) = found.added.and_then(|(_, _, place)| self.delta.get(place)) {
                    *answer = Some(A::added(&added.entry));
                }
            }
            if self.changes.0.load(Ordering::Acquire) == before {
                break;
            }
            spin_loop();
        }
        for (result, answer) in results.zip(answers) {
            *result = answer.unwrap_or(*result);
        }
    }

    /// Looks any header up, one entry after the other: for headers without a flat form.
    pub(crate) fn search(&self, header: &Header, results: &mut [Option<Match>]) {
        loop {
            let before = self.changes.0.load(Ordering::Acquire);
            self.search_once(header, results);
            if self.changes.0.load(Ordering::Acquire) == before {
                return;
            }
            spin_loop();
        }
    }

    fn search_once(&self, header: &Header, results: &mut [Option<Match>]) {
        for (index, (set, result)) in self.sets.iter().zip(results).enumerate() {
            let compiled = set.ranked().find(|(_, s)| s.entry.rule.matches(header));
            let rank = compiled.map_or(NONE, |(rank, _)| rank);
            let added = self.delta.iter().filter(|a| {
                usize::from(a.set) == index
                    && a.before <= rank
                    && a.valid.load(Ordering::Acquire)
                    && a.entry.rule.matches(header)
            });
            let added = added.min_by_key(|a| (a.entry.priority, a.sequence)).map(|a| a.entry);
            let best = added.or(compiled.map(|(_, stored)| stored.entry));
            *result = best.map(|entry| Match { fid: entry.fid, priority: entry.priority });
        }
    }

    /// Bytes in use.
    #[must_use]
    pub fn memory(&self) -> usize {
        let of_set =
            |s: &LiveSet| s.stored.len() * (size_of::<Stored>() + 4) + s.fids.len() * size_of::<AtomicU32>();
        self.compiled.memory()
            + self.sets.iter().map(of_set).sum::<usize>()
            + size_of::<Added>() * DELTA_MAX
            + (128 << 10)
    }
}
