// SPDX-License-Identifier: Apache-2.0
//! The interface of every classifier, and the reference that defines its results: linear search.

use crate::flat::{FlatV4, FlatV6};
use crate::header::{Header, HeaderRule};
use bartizan_base::Fid;
use core::fmt::Debug;

/// The most rule sets of one classifier.
pub const SETS_MAX: u8 = 16;

/// The result for no match where a lookup returns only fids; no entry may have it.
pub const NO_FID: Fid = Fid(u32::MAX);

/// A rule of a set with its priority and its fid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankedRule {
    /// The result of a match, and the key for deleting the entry; entries with the same result share it.
    pub fid: Fid,
    /// The lowest priority that matches wins; of two equal ones the entry inserted first.
    pub priority: u32,
    /// The headers that it matches.
    pub rule: HeaderRule,
}

/// The result of a lookup in one rule set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// The entry's fid.
    pub fid: Fid,
    /// The entry's priority.
    pub priority: u32,
}

/// The reason why an entry cannot be inserted; the classifier is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsertError {
    /// There is no such rule set.
    #[error("classifier: rule set {set} does not exist; it was made with {sets}")]
    NoSuchSet {
        /// The set given.
        set: u8,
        /// The number of sets.
        sets: u8,
    },
    /// An entry has [`NO_FID`].
    #[error("classifier: fid {} means no match, so no entry can have it; give the entry another", NO_FID.0)]
    ReservedFid,
    /// An entry has a condition on names, which headers do not have.
    #[error(
        "classifier: a rule has a name, and headers have none; separate rules with names before they are inserted"
    )]
    Named,
    /// More conditions on names than a lookup can distinguish.
    #[error("classifier: rules ask for {0} different pairs of names and links, of {max} at most; use fewer names, or `*.` in their place", max = u16::MAX)]
    Names(usize),
    /// The structure would grow beyond its bound.
    #[error(
        "classifier: {rules} rules need more than {limit} bytes; use fewer or coarser rules, or raise the limit"
    )]
    Memory {
        /// The number of rules, with the new ones.
        rules: usize,
        /// The bound, in bytes.
        limit: usize,
    },
}

impl InsertError {
    /// Checks whether entries can be inserted into set `set` of `sets`.
    ///
    /// # Errors
    /// There is no such set, or an entry has [`NO_FID`], or a DNS name.
    pub fn check(set: u8, sets: usize, entries: &[RankedRule]) -> Result<(), Self> {
        if usize::from(set) >= sets {
            return Err(InsertError::NoSuchSet { set, sets: sets as u8 });
        }
        if entries.iter().any(|e| e.fid == NO_FID) {
            return Err(InsertError::ReservedFid);
        }
        if entries.iter().any(|e| e.rule.is_named()) {
            return Err(InsertError::Named);
        }
        Ok(())
    }
}

/// Finds the first match of a header in each of several rule sets, by one lookup.
pub trait Classifier: Debug + Send + Sync {
    /// Inserts entries into a set.
    ///
    /// # Errors
    /// Then no entry is inserted.
    fn insert(&mut self, set: u8, entries: &[RankedRule]) -> Result<(), InsertError>;

    /// Deletes the entries of a fid in all sets; returns their number.
    fn delete(&mut self, fid: Fid) -> usize;

    /// Looks a header up: one result for each set, in their order; if `results` is longer than the number
    /// of sets, the rest becomes `None`.
    fn lookup(&self, header: &Header, results: &mut [Option<Match>]);

    /// Looks IPv4 headers up. `results` has a place for each set and header: those of the first set come
    /// first.
    fn lookup_v4(&self, headers: &[FlatV4], results: &mut [Option<Match>]) {
        one_by_one(self, headers, results);
    }

    /// Looks IPv6 headers up, as [`Classifier::lookup_v4`].
    fn lookup_v6(&self, headers: &[FlatV6], results: &mut [Option<Match>]) {
        one_by_one(self, headers, results);
    }

    /// As [`Classifier::lookup_v4`], but returns only the fid of each match, or [`NO_FID`].
    fn fids_v4(&self, headers: &[FlatV4], fids: &mut [Fid]) {
        let mut results = vec![None; fids.len()];
        self.lookup_v4(headers, &mut results);
        fids.iter_mut().zip(results).for_each(|(fid, result)| *fid = result.map_or(NO_FID, |m| m.fid));
    }

    /// As [`Classifier::fids_v4`], for IPv6.
    fn fids_v6(&self, headers: &[FlatV6], fids: &mut [Fid]) {
        let mut results = vec![None; fids.len()];
        self.lookup_v6(headers, &mut results);
        fids.iter_mut().zip(results).for_each(|(fid, result)| *fid = result.map_or(NO_FID, |m| m.fid));
    }

    /// Copies all entries, each set in its order. For explanations and tests.
    fn all_entries(&self) -> Vec<Vec<RankedRule>>;

    /// The number of rule sets.
    fn sets(&self) -> usize;

    /// The number of entries in all sets.
    fn len(&self) -> usize;

    /// Whether there are no entries.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Upper bound of the bytes in use.
    fn memory(&self) -> usize;
}

/// Looks a batch up header by header.
fn one_by_one<H, C: Classifier + ?Sized>(classifier: &C, headers: &[H], results: &mut [Option<Match>])
where
    Header: for<'a> From<&'a H>,
{
    let mut found = [None; SETS_MAX as usize];
    let Some(found) = found.get_mut(..classifier.sets()) else { return };
    for (number, header) in headers.iter().enumerate() {
        classifier.lookup(&header.into(), found);
        for (set, found) in found.iter().enumerate() {
            if let Some(result) = results.get_mut(set * headers.len() + number) {
                *result = *found;
            }
        }
    }
}

/// The reference: the entries of each set in their order, one after the other. Suitable for a few dozen
/// rules.
#[derive(Clone, Debug)]
pub struct Linear {
    sets: Vec<Vec<RankedRule>>,
}

impl Linear {
    /// A classifier of this number of rule sets, at most [`SETS_MAX`].
    #[must_use]
    pub fn new(sets: u8) -> Self {
        Linear { sets: vec![Vec::new(); usize::from(sets.min(SETS_MAX))] }
    }
}

impl Classifier for Linear {
    fn insert(&mut self, set: u8, entries: &[RankedRule]) -> Result<(), InsertError> {
        InsertError::check(set, self.sets.len(), entries)?;
        if let Some(list) = self.sets.get_mut(usize::from(set)) {
            list.extend_from_slice(entries);
            // Stable: of equal priorities the earlier entry stays first.
            list.sort_by_key(|e| e.priority);
        }
        Ok(())
    }

    fn delete(&mut self, fid: Fid) -> usize {
        let before = self.len();
        for list in &mut self.sets {
            list.retain(|e| e.fid != fid);
        }
        before - self.len()
    }

    fn lookup(&self, header: &Header, results: &mut [Option<Match>]) {
        results.fill(None);
        for (list, result) in self.sets.iter().zip(results) {
            *result = list
                .iter()
                .find(|e| e.rule.matches(header))
                .map(|e| Match { fid: e.fid, priority: e.priority });
        }
    }

    fn all_entries(&self) -> Vec<Vec<RankedRule>> {
        self.sets.clone()
    }

    fn sets(&self) -> usize {
        self.sets.len()
    }

    fn len(&self) -> usize {
        self.sets.iter().map(Vec::len).sum()
    }

    fn memory(&self) -> usize {
        self.sets.iter().map(|l| l.capacity() * size_of::<RankedRule>()).sum()
    }
}
