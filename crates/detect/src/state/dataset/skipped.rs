// SPDX-License-Identifier: Apache-2.0
//! Entries of lists (sets of data, reputations) that cannot be understood: they are left out and reported,
//! the others count.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Entries of one list that are reported one by one; of further ones there is a number.
pub const ENTRIES_SHOWN: usize = 1_000;

/// An entry that is left out of its list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedEntry {
    /// The list.
    pub path: PathBuf,
    /// Line from 1.
    pub line: usize,
    /// The line, or nothing where the format has no lines.
    pub text: Vec<u8>,
    /// The error in the entry.
    pub what: String,
}

/// The entries that were left out of the lists that were read.
#[derive(Debug, Default)]
pub struct SkippedEntries {
    entries: Vec<SkippedEntry>,
    /// Number of entries of each list.
    counts: BTreeMap<PathBuf, usize>,
}

impl SkippedEntries {
    /// One more entry is left out.
    pub fn add(&mut self, path: &Path, line: usize, text: &[u8], what: impl Into<String>) {
        let count = self.counts.entry(path.to_owned()).or_default();
        *count += 1;
        if *count <= ENTRIES_SHOWN {
            let text = text.trim_ascii_end().to_vec();
            self.entries.push(SkippedEntry { path: path.to_owned(), line, text, what: what.into() });
        }
    }

    /// Adds what was left out of other lists. A list that was read again is reported once.
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

    /// Lists with more entries than are reported one by one: how many more.
    pub fn further(&self) -> impl Iterator<Item = (&Path, usize)> {
        self.counts
            .iter()
            .filter(|(_, count)| **count > ENTRIES_SHOWN)
            .map(|(path, count)| (path.as_path(), count - ENTRIES_SHOWN))
    }
}
