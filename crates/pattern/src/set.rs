// SPDX-License-Identifier: Apache-2.0
//! Sets of literals: one scan finds every literal that occurs, exact in case.

use std::sync::Arc;

use crate::automaton::Automaton;
use crate::engine::{PatternCounters, Used};
use crate::ffi_hs::Database;
use crate::finder::Finder;
use crate::literal::Literals;
use crate::scratch::Scratch;

/// The occurrences that a scan reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Matches {
    /// Every literal that occurs once, at its first end, as a prefilter needs it.
    #[default]
    First,
    /// Every occurrence of every literal, overlapping ones too.
    All,
}

/// The reason why a scan could not be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// The scratch could not grow.
    #[error("no memory for the scratch space of a pattern set: lower the number of workers or rules")]
    Memory,
    /// libhs aborted with this internal error code.
    #[error(
        "libhs broke off a scan with its internal error {0}: BARTIZAN_PATTERN_ENGINE=aho-corasick does without libhs"
    )]
    Internal(i32),
    /// The haystack of a [`crate::RegexSet`] is longer than 4 GiB.
    #[error("a haystack of {0} bytes is longer than a set of regular expressions can scan: scan it in parts")]
    TooLong(usize),
}

/// Many literals, compiled. Shared between threads; each thread has its own [`Scratch`].
#[derive(Debug)]
pub struct PatternSet {
    literals: Literals,
    matches: Matches,
    engine: SetEngine,
    counters: Arc<PatternCounters>,
}

#[derive(Debug)]
pub(crate) enum SetEngine {
    Finders(Box<[Finder]>),
    Automaton(Automaton),
    Hyperscan(Arc<Database>),
}

/// libhs takes the length of a block as u32. Longer haystacks are scanned in windows that overlap.
const LARGEST_BLOCK: usize = 1 << 31;

impl PatternSet {
    pub(crate) fn new(
        literals: Literals,
        matches: Matches,
        engine: SetEngine,
        counters: Arc<PatternCounters>,
    ) -> Self {
        Self { literals, matches, engine, counters }
    }

    /// Calls `on_match(id, end)` for the occurrences selected by [`Matches`], until it returns false. `end`
    /// is the offset after the last byte of the occurrence. Answers are exact, case included. The order of
    /// reports is that of `end` for each literal; between literals it is not specified.
    ///
    /// If libhs aborts with an internal error (known of 5.4.0 for some sets, not with this way of compiling),
    /// the scan is repeated without it and counted ([`crate::EngineInfo::rescans`]); with [`Matches::All`]
    /// earlier matches are then reported twice.
    ///
    /// # Errors
    /// [`ScanError::Memory`], at the first scan with a scratch that was not prepared.
    pub fn scan(
        &self,
        scratch: &mut Scratch,
        haystack: &[u8],
        mut on_match: impl FnMut(u32, usize) -> bool,
    ) -> Result<(), ScanError> {
        if let SetEngine::Hyperscan(database) = &self.engine {
            scratch.fit_database(database).map_err(|_| ScanError::Memory)?;
        }
        let report = |slot: u32, end: usize| self.literals.ids(slot).iter().all(|id| on_match(*id, end));
        match self.matches {
            Matches::All => self.run(scratch, haystack, LARGEST_BLOCK, report),
            Matches::First => self.run_first(scratch, haystack, LARGEST_BLOCK, report),
        }
        Ok(())
    }

    fn run_first(
        &self,
        scratch: &mut Scratch,
        haystack: &[u8],
        block: usize,
        mut report: impl FnMut(u32, usize) -> bool,
    ) {
        if scratch.seen.begin(self.literals.len()) {
            scratch.count_growth();
        }
        let mut seen = std::mem::take(&mut scratch.seen);
        let mut left = self.literals.len();
        self.run(scratch, haystack, block, |slot, end| {
            if !seen.first(slot) {
                return true;
            }
            left -= 1;
            // After every literal was found the scan can end.
            report(slot, end) && left > 0
        });
        scratch.seen = seen;
    }

    fn run(
        &self,
        scratch: &mut Scratch,
        haystack: &[u8],
        block: usize,
        mut on_hit: impl FnMut(u32, usize) -> bool,
    ) {
        match &self.engine {
            SetEngine::Finders(finders) => self.run_finders(finders, haystack, &mut on_hit),
            SetEngine::Automaton(automaton) => automaton.scan(&self.literals, haystack, on_hit),
            SetEngine::Hyperscan(database) => {
                if !self.run_hyperscan(database, scratch, haystack, block, &mut on_hit) {
                    PatternCounters::add(&self.counters.rescans);
                    self.run_slowly(haystack, &mut on_hit);
                }
            }
        }
    }

    fn run_finders(&self, finders: &[Finder], haystack: &[u8], on_hit: &mut impl FnMut(u32, usize) -> bool) {
        for (slot, finder) in (0u32..).zip(finders) {
            let mut from = 0;
            while let Some(start) = finder.find_at(haystack, from) {
                if !on_hit(slot, start + finder.needle().len()) {
                    return;
                }
                if self.matches == Matches::First {
                    break;
                }
                from = start + 1;
            }
        }
    }

    /// Returns `false` if libhs aborted.
    fn run_hyperscan(
        &self,
        database: &Database,
        scratch: &mut Scratch,
        haystack: &[u8],
        block: usize,
        on_hit: &mut impl FnMut(u32, usize) -> bool,
    ) -> bool {
        // `scan` has made it fit.
        let Some(scratch) = &mut scratch.hyperscan else { return false };
        if haystack.len() <= block {
            return database.scan(scratch, haystack, on_hit).is_ok();
        }
        let overlap = self.literals.longest().saturating_sub(1);
        let mut from = 0;
        let mut go_on = true;
        while go_on && from < haystack.len() {
            let end = haystack.len().min(from + block + overlap);
            let Some(window) = haystack.get(from..end) else { break };
            // Hits that end in the overlap with the previous window were reported there, as far as they
            // fitted.
            let known = if from == 0 { 0 } else { from + overlap };
            let result = database.scan(scratch, window, |slot, end| {
                go_on = from + end <= known || on_hit(slot, from + end);
                go_on
            });
            if result.is_err() {
                return false;
            }
            from += block;
        }
        true
    }

    /// One plain search per literal, in case libhs aborts. Does not allocate.
    #[cold]
    fn run_slowly(&self, haystack: &[u8], on_hit: &mut impl FnMut(u32, usize) -> bool) {
        for (slot, (needle, nocase)) in (0u32..).zip(self.literals.iter()) {
            for (start, window) in haystack.windows(needle.len()).enumerate() {
                let hit = if nocase { window.eq_ignore_ascii_case(needle) } else { window == needle };
                if hit && !on_hit(slot, start + needle.len()) {
                    return;
                }
            }
        }
    }

    pub(crate) fn prepare(&self, scratch: &mut Scratch) -> Result<(), ScanError> {
        if let SetEngine::Hyperscan(database) = &self.engine {
            scratch.fit_database(database).map_err(|_| ScanError::Memory)?;
        }
        if self.matches == Matches::First && scratch.seen.begin(self.literals.len()) {
            scratch.count_growth();
        }
        Ok(())
    }

    /// Number of distinct literals.
    #[must_use]
    pub fn len(&self) -> usize {
        self.literals.len()
    }

    /// Whether there is nothing to find.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.literals.len() == 0
    }

    /// Length of the longest literal in bytes: block scans over a stream overlap by one less.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.literals.longest()
    }

    /// The occurrences that a scan reports.
    #[must_use]
    pub fn matches(&self) -> Matches {
        self.matches
    }

    /// The engine that was chosen.
    #[must_use]
    pub fn engine(&self) -> Used {
        match &self.engine {
            SetEngine::Finders(_) => Used::Finders,
            SetEngine::Automaton(_) => Used::AhoCorasick,
            SetEngine::Hyperscan(_) => Used::Hyperscan,
        }
    }

    /// The form of the engine, for reports: for the automaton, whether it is a DFA.
    #[must_use]
    pub fn form(&self) -> &'static str {
        match &self.engine {
            SetEngine::Finders(_) => "one search per literal",
            SetEngine::Automaton(automaton) => automaton.form(),
            SetEngine::Hyperscan(_) => "block database",
        }
    }

    /// Bytes of memory held.
    #[must_use]
    pub fn memory_usage(&self) -> usize {
        size_of::<Self>()
            + self.literals.memory_usage()
            + match &self.engine {
                SetEngine::Finders(finders) => finders.iter().map(Finder::memory_usage).sum(),
                SetEngine::Automaton(automaton) => automaton.memory_usage(),
                SetEngine::Hyperscan(database) => database.memory_usage(),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Compiler, Config, Pattern, PatternEngine};

    const LITERALS: [Pattern<'static>; 4] = [
        Pattern { id: 1, bytes: b"aaa", nocase: false },
        Pattern { id: 2, bytes: b"AbA", nocase: true },
        Pattern { id: 3, bytes: b"b", nocase: false },
        Pattern { id: 4, bytes: b"aaabaaab", nocase: false },
    ];

    fn build(engine: PatternEngine, matches: Matches) -> Option<PatternSet> {
        Compiler::new(Config { engine, ..Config::default() }).ok()?.pattern_set(&LITERALS, matches).ok()
    }

    fn sorted(mut list: Vec<(u32, usize)>) -> Vec<(u32, usize)> {
        list.sort_unstable();
        list
    }

    #[test]
    fn windows_and_the_slow_path_give_what_one_block_gives() {
        let haystack = b"aaabaaabAAABaaaaabbaaabaaab";
        let slow = build(PatternEngine::AhoCorasick, Matches::All).unwrap();
        let mut expected = Vec::new();
        slow.run_slowly(haystack, &mut |slot, end| {
            expected.push((slot, end));
            true
        });
        let expected = sorted(expected);
        let Some(set) = build(PatternEngine::Hyperscan, Matches::All) else {
            eprintln!("libhs is not installed: windows not tested");
            return;
        };
        let first = build(PatternEngine::Hyperscan, Matches::First).unwrap();
        let mut scratch = Scratch::new();
        scratch.prepare_patterns(&set).unwrap();
        scratch.prepare_patterns(&first).unwrap();
        for block in 1..haystack.len() + 2 {
            let mut found = Vec::new();
            set.run(&mut scratch, haystack, block, |slot, end| {
                found.push((slot, end));
                true
            });
            assert_eq!(sorted(found), expected, "block {block}");
            let mut found = Vec::new();
            first.run_first(&mut scratch, haystack, block, |slot, end| {
                found.push((slot, end));
                true
            });
            let mut of_slot = expected.clone();
            of_slot.dedup_by_key(|(slot, _)| *slot);
            assert_eq!(sorted(found), of_slot, "block {block}");
            // A return value of false ends the scan, in any window.
            let mut calls = 0;
            set.run(&mut scratch, haystack, block, |_, _| {
                calls += 1;
                calls < 5
            });
            assert_eq!(calls, 5);
        }
    }
}
