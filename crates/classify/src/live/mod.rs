// SPDX-License-Identifier: Apache-2.0
//! The compiled structure with inserts and deletes during lookups: [`Live`] writes, [`Reader`]s look up.
//!
//! A delete clears an entry's fid, which the next batch sees. An insert revives the same entry if it was
//! deleted, or goes to the delta ([`delta`]); when that is full, or on request, [`Rebuild`] compiles tables
//! anew, during lookups and further changes, which are repeated on the new version before it is published.
//! Readers take a version by one atomic exchange of a pointer's debt (arc-swap): no lock. A result was right
//! at some moment between the beginning and the end of its lookup ([`version`]); `tests/model.rs` checks that
//! in every order of steps.

mod delta;
mod version;

pub use version::LiveVersion;
pub(crate) use version::{Meanings, Stored};

use crate::classifier::{Classifier, InsertError, Match, RankedRule, SETS_MAX};
use crate::flat::{FlatV4, FlatV6};
use crate::header::Header;
use crate::split::Options;
use crate::sync::{ArcSwap, AtomicBool, DELTA_MAX};
use bartizan_base::Fid;
use core::sync::atomic::Ordering;
use delta::Added;
use foldhash::fast::FixedState;
use std::collections::HashMap;
use std::sync::Arc;

/// The place of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LiveEntryPlace {
    Compiled { set: u8, rank: u32 },
    Added(usize),
}

/// A change that has to be repeated on a version that is being compiled.
#[derive(Clone, Copy, Debug)]
enum VersionChange {
    Insert { set: u8, entry: RankedRule, sequence: u64 },
    Delete(Fid),
}

/// The writer's index of a version.
#[derive(Debug)]
struct VersionIndex {
    by_fid: HashMap<Fid, Vec<LiveEntryPlace>, FixedState>,
    /// Compiled entries by set and priority.
    by_priority: HashMap<(u8, u32), Vec<u32>, FixedState>,
    live: usize,
}

impl VersionIndex {
    fn new(version: &LiveVersion) -> Self {
        let total = version.sets.iter().map(|s| s.stored.len()).sum();
        let mut index = VersionIndex {
            by_fid: HashMap::with_capacity_and_hasher(total, FixedState::default()),
            by_priority: HashMap::with_capacity_and_hasher(total, FixedState::default()),
            live: total,
        };
        for (set, s) in version.sets.iter().enumerate() {
            for (rank, stored) in s.stored.iter().enumerate() {
                let (set, rank) = (set as u8, rank as u32);
                index
                    .by_fid
                    .entry(stored.entry.fid)
                    .or_default()
                    .push(LiveEntryPlace::Compiled { set, rank });
                index.by_priority.entry((set, stored.entry.priority)).or_default().push(rank);
            }
        }
        index
    }

    /// Inserts an entry, if there is room; returns whether it did.
    fn insert(&mut self, version: &LiveVersion, set: u8, entry: RankedRule, sequence: u64) -> bool {
        let Some(of_set) = version.sets.get(usize::from(set)) else { return false };
        version.change();
        let same = self.by_priority.get(&(set, entry.priority)).map(Vec::as_slice).unwrap_or_default();
        let revived = match same {
            // The only one with its priority: its place among equals does not matter.
            [rank]
                if !of_set.is_valid(*rank)
                    && of_set.stored.get(*rank as usize).is_some_and(|s| s.entry.rule == entry.rule)
                    && !version.delta.iter().any(|a| a.set == set && a.entry.priority == entry.priority) =>
            {
                of_set.revive(*rank, entry.fid);
                Some(LiveEntryPlace::Compiled { set, rank: *rank })
            }
            _ => None,
        };
        let place = revived.or_else(|| {
            // Of equal priorities the entry inserted earlier comes first: the compiled ones.
            let before = of_set.stored.partition_point(|s| s.entry.priority <= entry.priority) as u32;
            let added = Added { set, entry, sequence, before, valid: AtomicBool::new(true) };
            version.delta.add(added).map(LiveEntryPlace::Added)
        });
        if let Some(place) = place {
            self.by_fid.entry(entry.fid).or_default().push(place);
            self.live += 1;
        }
        place.is_some()
    }

    fn delete(&mut self, version: &LiveVersion, fid: Fid) -> usize {
        let places = self.by_fid.remove(&fid).unwrap_or_default();
        let mut gone = 0;
        for place in places {
            version.change();
            let was = match place {
                LiveEntryPlace::Compiled { set, rank } => {
                    version.sets.get(usize::from(set)).is_some_and(|s| s.kill(rank))
                }
                LiveEntryPlace::Added(place) => {
                    version.delta.get(place).is_some_and(|a| a.valid.swap(false, Ordering::AcqRel))
                }
            };
            gone += usize::from(was);
        }
        self.live -= gone;
        gone
    }
}

/// Looks up in the version that [`Live`] published last.
#[derive(Clone, Debug)]
pub struct Reader(Arc<ArcSwap<LiveVersion>>);

impl Reader {
    /// The present version, for lookups of a batch. Keep it for the batch, not longer.
    #[must_use]
    pub fn version(&self) -> impl std::ops::Deref<Target = Arc<LiveVersion>> + use<> {
        self.0.load()
    }
}

/// The input of a compilation, which another thread may run.
#[derive(Debug)]
pub struct Rebuild {
    sets: Vec<Vec<Stored>>,
    options: Options,
    number: u64,
}

/// Compiled tables.
#[derive(Debug)]
pub struct Rebuilt {
    version: LiveVersion,
    number: u64,
}

impl Rebuild {
    /// Compiles for at most this instruction set, for comparisons.
    #[must_use]
    pub fn run_at(self, level: crate::InstructionSet) -> Rebuilt {
        let mut rebuilt = self.run();
        rebuilt.version.set_level(level);
        rebuilt
    }

    /// Compiles the tables.
    #[must_use]
    pub fn run(self) -> Rebuilt {
        Rebuilt { version: LiveVersion::new(self.sets, self.options), number: self.number }
    }
}

/// The writer of a compiled structure: inserts and deletes rules while readers look up.
#[derive(Debug)]
pub struct Live {
    published: Arc<ArcSwap<LiveVersion>>,
    index: VersionIndex,
    options: Options,
    sequence: u64,
    /// The number of the running rebuild, and the changes since it began.
    rebuild: u64,
    log: Option<Vec<VersionChange>>,
    changed: bool,
}

impl Live {
    /// A classifier of this number of rule sets, at most [`SETS_MAX`], whose tables take about `budget`
    /// bytes at most; rules beyond are searched linearly.
    #[must_use]
    pub fn new(sets: u8, budget: usize) -> Self {
        let options = Options { budget, fast: false };
        let version = LiveVersion::new(vec![Vec::new(); usize::from(sets.min(SETS_MAX))], options);
        Live {
            index: VersionIndex::new(&version),
            published: Arc::new(ArcSwap::from_pointee(version)),
            options,
            sequence: 0,
            rebuild: 0,
            log: None,
            changed: false,
        }
    }

    /// A handle for lookups by other threads.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader(Arc::clone(&self.published))
    }

    /// Whether a rebuild would make lookups faster.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.changed
    }

    /// Starts a compilation; `fast` looks for the fastest form. A running rebuild is abandoned.
    #[must_use]
    pub fn begin(&mut self, fast: bool) -> Rebuild {
        self.rebuild += 1;
        self.log = Some(Vec::new());
        self.changed = false;
        let options = Options { fast, ..self.options };
        Rebuild { sets: self.stored(), options, number: self.rebuild }
    }

    /// Publishes a compiled version, with all changes since its compilation began. False if it was
    /// abandoned, or if too much changed meanwhile: begin again.
    pub fn finish(&mut self, rebuilt: Rebuilt) -> bool {
        if rebuilt.number != self.rebuild {
            return false;
        }
        let Some(log) = self.log.take() else { return false };
        let version = rebuilt.version;
        let mut index = VersionIndex::new(&version);
        for change in log {
            match change {
                VersionChange::Insert { set, entry, sequence } => {
                    if !index.insert(&version, set, entry, sequence) {
                        self.changed = true;
                        return false;
                    }
                    self.changed = true;
                }
                VersionChange::Delete(fid) => {
                    index.delete(&version, fid);
                    self.changed = true;
                }
            }
        }
        self.index = index;
        self.published.store(Arc::new(version));
        true
    }

    /// All entries, each set in its order.
    fn stored(&self) -> Vec<Vec<Stored>> {
        let version = self.published.load();
        let mut sets: Vec<Vec<Stored>> = version.sets.iter().map(|s| s.live().collect()).collect();
        for added in version.delta.iter().filter(|a| a.valid.load(Ordering::Acquire)) {
            if let Some(set) = sets.get_mut(usize::from(added.set)) {
                set.push(Stored { entry: added.entry, sequence: added.sequence });
            }
        }
        for set in &mut sets {
            set.sort_by_key(|s| (s.entry.priority, s.sequence));
        }
        sets
    }

    /// Compiles with new entries, at once.
    fn rebuild_with(&mut self, set: u8, entries: &[RankedRule]) {
        let mut sets = self.stored();
        if let Some(list) = sets.get_mut(usize::from(set)) {
            for entry in entries {
                list.push(Stored { entry: *entry, sequence: self.sequence });
                self.sequence += 1;
            }
            list.sort_by_key(|s| (s.entry.priority, s.sequence));
        }
        let version = LiveVersion::new(sets, self.options);
        self.index = VersionIndex::new(&version);
        self.published.store(Arc::new(version));
        // A running rebuild would lack these.
        self.log = None;
        self.changed = true;
    }

    /// The number of rules that are in no table.
    #[must_use]
    pub fn rest(&self) -> usize {
        self.published.load().compiled.rest()
    }

    /// A description of the tables, a line for each group.
    #[must_use]
    pub fn summary(&self) -> Vec<String> {
        self.published.load().compiled.summary().map(str::to_owned).collect()
    }
}

impl Classifier for Live {
    fn insert(&mut self, set: u8, entries: &[RankedRule]) -> Result<(), InsertError> {
        let version = self.published.load_full();
        InsertError::check(set, version.sets(), entries)?;
        if entries.len() > DELTA_MAX {
            self.rebuild_with(set, entries);
            return Ok(());
        }
        for (number, entry) in entries.iter().enumerate() {
            let sequence = self.sequence;
            if !self.index.insert(&version, set, *entry, sequence) {
                self.rebuild_with(set, entries.get(number..).unwrap_or_default());
                return Ok(());
            }
            self.sequence += 1;
            self.changed = true;
            if let Some(log) = &mut self.log {
                log.push(VersionChange::Insert { set, entry: *entry, sequence });
            }
        }
        Ok(())
    }

    fn delete(&mut self, fid: Fid) -> usize {
        let gone = self.index.delete(&self.published.load(), fid);
        if gone > 0 {
            self.changed = true;
            if let Some(log) = &mut self.log {
                log.push(VersionChange::Delete(fid));
            }
        }
        gone
    }

    fn lookup(&self, header: &Header, results: &mut [Option<Match>]) {
        results.fill(None);
        self.published.load().lookup_one(header, results);
    }

    fn lookup_v4(&self, headers: &[FlatV4], results: &mut [Option<Match>]) {
        self.published.load().lookup_v4(headers, results);
    }

    fn lookup_v6(&self, headers: &[FlatV6], results: &mut [Option<Match>]) {
        self.published.load().lookup_v6(headers, results);
    }

    fn fids_v4(&self, headers: &[FlatV4], fids: &mut [Fid]) {
        self.published.load().fids_v4(headers, fids);
    }

    fn fids_v6(&self, headers: &[FlatV6], fids: &mut [Fid]) {
        self.published.load().fids_v6(headers, fids);
    }

    fn all_entries(&self) -> Vec<Vec<RankedRule>> {
        self.stored().into_iter().map(|set| set.into_iter().map(|s| s.entry).collect()).collect()
    }

    fn sets(&self) -> usize {
        self.published.load().sets()
    }

    fn len(&self) -> usize {
        self.index.live
    }

    fn memory(&self) -> usize {
        let writer = (self.index.by_fid.capacity() + self.index.by_priority.capacity()) * 48;
        self.published.load().memory() + writer
    }
}
