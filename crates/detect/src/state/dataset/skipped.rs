// SPDX-License-Identifier: Apache-2.0
//! Entries of lists (datasets, reputations) that cannot be understood: they are left out and reported, and
//! all other entries count.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Limit of entries of one list that are reported one by one; further entries are only counted.
pub const ENTRIES_SHOWN: usize = 1_000;

/// An entry that is left out of its list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedEntry {
    /// The list.
    pub path: PathBuf,
    /// Line from 1.
    pub line: usize,
    /// The line; empty if the format has no lines.
    pub text: Vec<u8>,
    /// The error in the entry.
    pub what: String,
}

/// The entries that were left out of lists.
#[derive(Debug, Default)]
pub struct SkippedEntries {
    entries: Vec<SkippedEntry>,
    /// Number of entries of each list.
    counts: BTreeMap<PathBuf, usize>,
}

impl SkippedEntries {
    /// Adds an entry that was left out.
    pub fn add(&mut self, path: &Path, line: usize, text: &[u8], what: impl Into<String>) {
        let count = self.counts.entry(path.to_owned()).or_default();
        *count += 1;
        if *count <= ENTRIES_SHOWN {
            let text = text.trim_ascii_end().to_vec();
            self.entries.push(SkippedEntry { path: path.to_owned(), line, text, what: what.into() });
        }
    }

    /// Adds the entries of other lists. A list that was read again is reported once.
    pub fn append(&mut self, other: Self) {
        let new = |path: &PathBuf| !self.counts.contains_key(path);
        let entries: Vec<_> = other.entries.into_iter().filter(|entry| new(&entry.path)).collect();
        let counts: Vec<_> = other.counts.into_iter().filter(|(path, _)| new(path)).collect();
        self.entries.extend(entries);
        self.counts.extend(counts);
    }

    /// The entries, in the order in which they were read.
    #[must_use]
    pub fn entries(&self) -> &[SkippedEntry] {
        &self.entries
    }

    /// Lists with more entries than are reported one by one, each with the number of further entries.
    pub fn further(&self) -> impl Iterator<Item = (&Path, usize)> {
        self.counts
            .iter()
            .filter(|(_, count)| **count > ENTRIES_SHOWN)
            .map(|(path, count)| (path.as_path(), count - ENTRIES_SHOWN))
    }
}
