// SPDX-License-Identifier: Apache-2.0
//! What lookups see: compiled tables, validity and fid of each compiled entry, and entries added since.
//!
//! Shared by one writer and many readers. Deleting clears a bit and is seen by the next batch; adding appends; everything
//! else needs another version.
//!
//! A lookup that looks at several flags one after the other may see the first as it was before two changes and the second as
//! it is after them: what takes the place of an entry not yet, the entry not any more. So the writer counts changes, each
//! before it is done. A result that rests on one flag is right at the moment of that flag; one that rests on several is
//! found again while the count moves. Such headers are few (their best rule was deleted, or an added entry matches),
//! and to be found again means that the writer has gone on.

use super::delta::{Delta, Found};
use crate::classifier::{Entry, Match, NO_FID, SETS_MAX};
use crate::flat::{FlatV4, FlatV6};
use crate::header::Header;
use crate::split::{Compiled, Options};
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, DELTA_MAX, spin_loop};
use bartizan_base::Fid;
use core::sync::atomic::Ordering;

/// Headers of which the ranks are kept before they become results.
const BATCH: usize = 64;

/// An entry with its place among equals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    pub entry: Entry,
    pub sequence: u64,
}

/// The compiled entries of a set, by rank.
#[derive(Debug)]
pub(crate) struct Set {
    pub stored: Vec<Stored>,
    priorities: Vec<u32>,
    /// An entry may be given a new fid when it comes back.
    fids: Vec<AtomicU32>,
    valid: Vec<AtomicU64>,
    dead: AtomicUsize,
}

/// What a lookup gives.
trait Answer: Copy {
    fn compiled(set: &Set, rank: u32) -> Self;
    fn added(entry: &Entry) -> Self;
}

impl Answer for Option<Match> {
    #[inline(always)]
    fn compiled(set: &Set, rank: u32) -> Self {
        let priority = *set.priorities.get(rank as usize)?;
        Some(Match { fid: set.fid(rank), priority })
    }

    fn added(entry: &Entry) -> Self {
        Some(Match { fid: entry.fid, priority: entry.priority })
    }
}

impl Answer for Fid {
    #[inline(always)]
    fn compiled(set: &Set, rank: u32) -> Self {
        set.fid(rank)
    }

    fn added(entry: &Entry) -> Self {
        entry.fid
    }
}

impl Set {
    fn new(stored: Vec<Stored>) -> Self {
        Set {
            priorities: stored.iter().map(|s| s.entry.priority).collect(),
            fids: stored.iter().map(|s| AtomicU32::new(s.entry.fid.0)).collect(),
            valid: (0..stored.len().div_ceil(64)).map(|_| AtomicU64::new(u64::MAX)).collect(),
            dead: AtomicUsize::new(0),
            stored,
        }
    }

    #[inline]
    pub fn is_valid(&self, rank: u32) -> bool {
        // Acquire: a fid that came before the flag is seen.
        self.valid.get(rank as usize / 64).is_some_and(|w| w.load(Ordering::Acquire) >> (rank % 64) & 1 == 1)
    }

    #[inline]
    fn fid(&self, rank: u32) -> Fid {
        // Acquire: what is asked for after it (whether anything changed) is not read before it.
        self.fids.get(rank as usize).map_or(NO_FID, |f| Fid(f.load(Ordering::Acquire)))
    }

    /// Clears the flag; whether it was set.
    pub fn kill(&self, rank: u32) -> bool {
        let Some(word) = self.valid.get(rank as usize / 64) else { return false };
        let bit = 1 << (rank % 64);
        // Before the flag: a reader that still sees the flag set may miss this, one that sees it clear may not.
        self.dead.fetch_add(1, Ordering::Release);
        let was = word.fetch_and(!bit, Ordering::AcqRel) & bit != 0;
        if !was {
            self.dead.fetch_sub(1, Ordering::Release);
        }
        was
    }

    /// Sets the flag of an entry that was deleted and comes back.
    pub fn revive(&self, rank: u32, fid: Fid) {
        let (Some(word), Some(place)) = (self.valid.get(rank as usize / 64), self.fids.get(rank as usize))
        else {
            return;
        };
        place.store(fid.0, Ordering::Relaxed);
        word.fetch_or(1 << (rank % 64), Ordering::AcqRel);
        self.dead.fetch_sub(1, Ordering::Release);
    }

    /// Entries that are not deleted, with their present fids.
    pub fn live(&self) -> impl Iterator<Item = Stored> {
        self.stored.iter().enumerate().filter(|(rank, _)| self.is_valid(*rank as u32)).map(|(rank, s)| {
            let fid = self.fid(rank as u32);
            Stored { entry: Entry { fid, ..s.entry }, ..*s }
        })
    }
}

/// Where the results of a batch go: behind those of so many headers, of so many in all.
#[derive(Clone, Copy)]
struct Place {
    first: usize,
    total: usize,
}

/// See the module.
#[derive(Debug)]
pub struct Version {
    pub(crate) sets: Vec<Set>,
    pub(crate) compiled: Compiled,
    pub(crate) delta: Delta,
    /// Changes begun.
    changes: AtomicU64,
}

impl Version {
    /// Compiles entries; each set in the order of (priority, sequence).
    pub(crate) fn new(sets: Vec<Vec<Stored>>, options: Options) -> Self {
        let rules: Vec<_> = sets.iter().map(|s| s.iter().map(|s| s.entry.rule).collect()).collect();
        Version {
            compiled: Compiled::new(&rules, options),
            sets: sets.into_iter().map(Set::new).collect(),
            delta: Delta::new(),
            changes: AtomicU64::new(0),
        }
    }

    /// Says that a flag is about to be set or cleared.
    pub(crate) fn change(&self) {
        // With the flag's own ordering: who sees the flag sees the count.
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Lowers what lookups run on, to compare: see [`Compiled::set_level`].
    pub(crate) fn set_level(&mut self, level: crate::Level) {
        self.compiled.set_level(level);
    }

    /// Rule sets.
    #[must_use]
    pub fn sets(&self) -> usize {
        self.sets.len()
    }

    /// Looks IPv4 headers up: for each set, in their order, one result for each header.
    pub fn lookup_v4(&self, headers: &[FlatV4], results: &mut [Option<Match>]) {
        self.lookup(
            headers,
            results,
            |headers, ranks| self.compiled.lookup_v4(headers, ranks),
            |h, set, rank, valid| self.compiled.next_v4(h, set, rank, valid),
            |h, found| self.delta.find_v4(h, found),
        );
    }

    /// As [`Version::lookup_v4`], for IPv6.
    pub fn lookup_v6(&self, headers: &[FlatV6], results: &mut [Option<Match>]) {
        self.lookup(
            headers,
            results,
            |headers, ranks| self.compiled.lookup_v6(headers, ranks),
            |h, set, rank, valid| self.compiled.next_v6(h, set, rank, valid),
            |h, found| self.delta.find_v6(h, found),
        );
    }

    /// As [`Version::lookup_v4`], with nothing but the fid of each match, or [`NO_FID`].
    pub fn fids_v4(&self, headers: &[FlatV4], fids: &mut [Fid]) {
        self.lookup(
            headers,
            fids,
            |headers, ranks| self.compiled.lookup_v4(headers, ranks),
            |h, set, rank, valid| self.compiled.next_v4(h, set, rank, valid),
            |h, found| self.delta.find_v4(h, found),
        );
    }

    /// As [`Version::fids_v4`], for IPv6.
    pub fn fids_v6(&self, headers: &[FlatV6], fids: &mut [Fid]) {
        self.lookup(
            headers,
            fids,
            |headers, ranks| self.compiled.lookup_v6(headers, ranks),
            |h, set, rank, valid| self.compiled.next_v6(h, set, rank, valid),
            |h, found| self.delta.find_v6(h, found),
        );
    }

    #[inline(always)]
    fn lookup<H, A: Answer>(
        &self,
        headers: &[H],
        results: &mut [A],
        find: impl Fn(&[H], &mut [u32]),
        next: impl Fn(&H, u8, u32, &dyn Fn(u32) -> bool) -> u32,
        added: impl Fn(&H, &mut [Found]),
    ) {
        // As much to clear as there are sets.
        match self.sets.len() {
            0 => {}
            1 => self.lookup_in::<H, A, BATCH>(headers, results, find, next, added),
            2..=4 => self.lookup_in::<H, A, { BATCH * 4 }>(headers, results, find, next, added),
            _ => self.lookup_in::<H, A, { BATCH * SETS_MAX as usize }>(headers, results, find, next, added),
        }
    }

    #[inline(always)]
    fn lookup_in<H, A: Answer, const RANKS: usize>(
        &self,
        headers: &[H],
        results: &mut [A],
        find: impl Fn(&[H], &mut [u32]),
        next: impl Fn(&H, u8, u32, &dyn Fn(u32) -> bool) -> u32,
        added: impl Fn(&H, &mut [Found]),
    ) {
        let mut ranks = [0u32; RANKS];
        let total = headers.len();
        for (number, batch) in headers.chunks(BATCH).enumerate() {
            let Some(ranks) = ranks.get_mut(..batch.len() * self.sets.len()) else { return };
            let mut at = Place { first: number * BATCH, total };
            if self.lookup_batch(batch, ranks, results, at, &find, &next, &added) {
                continue;
            }
            for header in batch.chunks(1) {
                let Some(ranks) = ranks.get_mut(..self.sets.len()) else { return };
                while !self.lookup_batch(header, ranks, results, at, &find, &next, &added) {
                    spin_loop();
                }
                at.first += 1;
            }
        }
    }

    /// Looks a batch up; false if results rest on flags of which some may have changed meanwhile.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "one body for both IP versions and what is answered")]
    fn lookup_batch<H, A: Answer>(
        &self,
        batch: &[H],
        ranks: &mut [u32],
        results: &mut [A],
        at: Place,
        find: &impl Fn(&[H], &mut [u32]),
        next: &impl Fn(&H, u8, u32, &dyn Fn(u32) -> bool) -> u32,
        added: &impl Fn(&H, &mut [Found]),
    ) -> bool {
        let before = self.changes.load(Ordering::Acquire);
        let mut several = false;
        find(batch, ranks);
        let rows = ranks.chunks_exact_mut(batch.len());
        for (index, (set, ranks)) in self.sets.iter().zip(rows).enumerate() {
            if set.dead.load(Ordering::Acquire) > 0 {
                for (header, rank) in batch.iter().zip(ranks.iter_mut()) {
                    if *rank != u32::MAX && !set.is_valid(*rank) {
                        *rank = next(header, index as u8, *rank, &|r| set.is_valid(r));
                        several = true;
                    }
                }
            }
            let results = results.get_mut(index * at.total + at.first..).unwrap_or_default();
            for (rank, result) in ranks.iter().zip(results) {
                *result = A::compiled(set, *rank);
            }
        }
        // After the flags: entries are only ever appended, so none now means that there was none then.
        if self.delta.len() > 0 {
            several |= self.merge_delta(batch, ranks, added, |set, i, found| {
                if let Some(result) = results.get_mut(set * at.total + at.first + i) {
                    *result = A::added(found);
                }
            });
        }
        !several || self.changes.load(Ordering::Acquire) == before
    }

    /// Results that added entries change; whether any was met, be it valid or not.
    #[inline(always)]
    fn merge_delta<H>(
        &self,
        batch: &[H],
        ranks: &[u32],
        added: &impl Fn(&H, &mut [Found]),
        mut change: impl FnMut(usize, usize, &Entry),
    ) -> bool {
        let mut met = false;
        let mut found = [Found { rank: u32::MAX, added: None, met: false }; SETS_MAX as usize];
        for (i, header) in batch.iter().enumerate() {
            let found = found.get_mut(..self.sets.len()).unwrap_or_default();
            for (found, ranks) in found.iter_mut().zip(ranks.chunks_exact(batch.len())) {
                *found = Found { rank: ranks.get(i).copied().unwrap_or(u32::MAX), added: None, met: false };
            }
            added(header, found);
            for (set, found) in found.iter().enumerate() {
                met |= found.met;
                if let Some(added) = found.added.and_then(|(_, _, place)| self.delta.get(place)) {
                    change(set, i, &added.entry);
                }
            }
        }
        met
    }

    /// Looks any header up, one entry after the other: for those that have no flat form.
    pub(crate) fn search(&self, header: &Header, results: &mut [Option<Match>]) {
        loop {
            let before = self.changes.load(Ordering::Acquire);
            self.search_once(header, results);
            if self.changes.load(Ordering::Acquire) == before {
                return;
            }
            spin_loop();
        }
    }

    fn search_once(&self, header: &Header, results: &mut [Option<Match>]) {
        for (index, (set, result)) in self.sets.iter().zip(results).enumerate() {
            let compiled = set.live().find(|s| s.entry.rule.matches(header));
            let added = self.delta.iter().filter(|a| {
                usize::from(a.set) == index && a.valid.load(Ordering::Acquire) && a.entry.rule.matches(header)
            });
            let added = added.map(|a| Stored { entry: a.entry, sequence: a.sequence });
            let best = compiled.into_iter().chain(added).min_by_key(|s| (s.entry.priority, s.sequence));
            *result = best.map(|s| Match { fid: s.entry.fid, priority: s.entry.priority });
        }
    }

    /// Bytes in use.
    #[must_use]
    pub fn memory(&self) -> usize {
        let per_entry = size_of::<Stored>() + 8;
        self.compiled.memory()
            + self.sets.iter().map(|s| s.stored.len() * per_entry + s.valid.len() * 8).sum::<usize>()
            + size_of::<super::delta::Added>() * DELTA_MAX
            + (128 << 10)
    }
}
