// SPDX-License-Identifier: Apache-2.0
//! Working memory of scans: one [`Scratch`] per thread, for all sets and expressions of any generation.
//!
//! The size depends on the compiled sets, never on traffic. The parts are made on demand; a thread that must
//! not allocate while packets pass prepares its scratch when a generation is installed.

use crate::ffi_hs::{Database, HsError, HsScratch};
use crate::ffi_pcre2::MatchState;

/// Number of groups for which a new match state has room, the whole match included.
const PAIRS: u32 = 16;

/// The working memory of one thread's scans.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) hyperscan: Option<HsScratch>,
    pub(crate) seen: ScanMarks,
    pub(crate) pcre2: Option<MatchState>,
    grown: u64,
}

/// Marks the slots that one scan has reported, so that [`crate::Matches::First`] reports each once. A mark is
/// the scan's number, so that marks need not be cleared between scans.
#[derive(Debug, Default)]
pub(crate) struct ScanMarks {
    marks: Vec<u32>,
    scan: u32,
}

impl ScanMarks {
    /// Begins a scan over `slots` slots; returns whether memory had to grow.
    pub(crate) fn begin(&mut self, slots: usize) -> bool {
        self.scan = self.scan.wrapping_add(1);
        if self.scan == 0 {
            self.marks.fill(0);
            self.scan = 1;
        }
        let grow = self.marks.len() < slots;
        if grow {
            self.marks.resize(slots, 0);
        }
        grow
    }

    /// Marks a slot; returns whether this is the first time in this scan.
    #[inline]
    pub(crate) fn first(&mut self, slot: u32) -> bool {
        match self.marks.get_mut(slot as usize) {
            Some(mark) if *mark != self.scan => {
                *mark = self.scan;
                true
            }
            _ => false,
        }
    }
}

impl Scratch {
    /// An empty scratch; allocates nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of times that a part was made or grew, preparation included: reveals whether a scan allocated.
    #[must_use]
    pub fn grown(&self) -> u64 {
        self.grown
    }

    /// Bytes of memory held, without the heap that PCRE2's interpreter keeps (bounded by
    /// [`crate::Limits::heap_kib`]).
    #[must_use]
    pub fn memory_usage(&self) -> usize {
        size_of::<Self>()
            + self.seen.marks.capacity() * size_of::<u32>()
            + self.hyperscan.as_ref().map_or(0, HsScratch::memory_usage)
            + self.pcre2.as_ref().map_or(0, MatchState::memory_usage)
    }

    pub(crate) fn count_growth(&mut self) {
        self.grown += 1;
    }

    /// Makes the libhs part fit `database`.
    #[inline]
    pub(crate) fn fit_database(&mut self, database: &Database) -> Result<(), HsError> {
        match &self.hyperscan {
            Some(scratch) if scratch.fits(database) => Ok(()),
            _ => {
                self.grown += 1;
                // The old one is freed first, since both at once could be megabytes.
                self.hyperscan = None;
                self.hyperscan = Some(HsScratch::for_database(database)?);
                Ok(())
            }
        }
    }

    /// The PCRE2 part with room for `pairs` groups. `None` without memory.
    #[inline]
    pub(crate) fn match_state(&mut self, pairs: u32) -> Option<&mut MatchState> {
        if self.pcre2.as_ref().is_none_or(|state| state.pairs() < pairs) {
            self.grown += 1;
            self.pcre2 = MatchState::new(pairs.max(PAIRS));
        }
        self.pcre2.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_last_one_scan_even_when_the_number_wraps() {
        let mut seen = ScanMarks::default();
        assert!(seen.begin(2));
        assert!(seen.first(1) && !seen.first(1) && !seen.first(2));
        assert!(!seen.begin(2));
        assert!(seen.first(1));
        seen.scan = u32::MAX;
        seen.marks.fill(1);
        assert!(!seen.begin(2));
        assert!(seen.first(0) && seen.first(1), "marks of 2^32 scans ago do not count");
    }
}
