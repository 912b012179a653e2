// SPDX-License-Identifier: Apache-2.0
//! The engine that is always there: an Aho-Corasick automaton (Aho, Corasick 1975) of the crate `aho-corasick`.
//!
//! One automaton for both kinds of literals: if any is caseless the automaton is, and a hit of a case-sensitive literal
//! is compared with the haystack, so answers are exact. Small sets become a DFA (one load per byte), larger ones a contiguous
//! NFA, which stays in the caches where a DFA would not.
//!
//! Not done: streaming (the state would be four bytes per stream; block scans with an overlap do).

use aho_corasick::automaton::{Automaton as Walk, Prefilter};
use aho_corasick::{Anchored, BuildError, Span, dfa, nfa};

use crate::literal::Literals;

/// Up to so many bytes of literals the automaton is a DFA. A byte of literal costs it about 450 bytes of table, so 4 MiB at most; twice as
/// fast as the NFA there (example `scan`), no faster at 20 MiB.
const DFA_MAX_BYTES: usize = 8192;

#[derive(Debug)]
pub(crate) enum Automaton {
    Dfa(Box<dfa::DFA>),
    Nfa(Box<nfa::contiguous::NFA>),
}

impl Automaton {
    /// Builds the automaton over all literals, pattern number = slot.
    pub(crate) fn new(literals: &Literals) -> Result<Self, BuildError> {
        let base = nfa::noncontiguous::Builder::new()
            .ascii_case_insensitive(literals.any_nocase())
            .build(literals.iter().map(|(bytes, _)| bytes))?;
        if literals.total_bytes() <= DFA_MAX_BYTES {
            return Ok(Self::Dfa(Box::new(dfa::Builder::new().build_from_noncontiguous(&base)?)));
        }
        Ok(Self::Nfa(Box::new(nfa::contiguous::Builder::new().build_from_noncontiguous(&base)?)))
    }

    /// Calls `on_hit(slot, end)` for every occurrence (overlapping ones too), ends ascending, until it answers false.
    #[inline]
    pub(crate) fn scan(
        &self,
        literals: &Literals,
        haystack: &[u8],
        mut on_hit: impl FnMut(u32, usize) -> bool,
    ) {
        if literals.mixed() {
            let confirmed = |slot, end| !literals.confirm_case(slot, haystack, end) || on_hit(slot, end);
            self.walk_any(haystack, confirmed);
        } else {
            self.walk_any(haystack, on_hit);
        }
    }

    fn walk_any(&self, haystack: &[u8], on_hit: impl FnMut(u32, usize) -> bool) {
        match self {
            Self::Dfa(dfa) => walk(&**dfa, haystack, on_hit),
            Self::Nfa(nfa) => walk(&**nfa, haystack, on_hit),
        }
    }

    /// Name of the form, for reports.
    pub(crate) fn form(&self) -> &'static str {
        match self {
            Self::Dfa(_) => "dfa",
            Self::Nfa(_) => "contiguous nfa",
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory_usage(&self) -> usize {
        match self {
            Self::Dfa(dfa) => dfa.memory_usage(),
            Self::Nfa(nfa) => nfa.memory_usage(),
        }
    }
}

/// The automaton's own loop rather than the crate's overlapping iterator, which stores and reloads its state for every hit.
fn walk<A: Walk>(automaton: &A, haystack: &[u8], mut on_hit: impl FnMut(u32, usize) -> bool) {
    // An unanchored start always exists in automata built without an anchored-only option.
    let Ok(start) = automaton.start_state(Anchored::No) else { return };
    let prefilter = automaton.prefilter();
    let mut at = 0;
    let mut state = start;
    if let Some(prefilter) = prefilter {
        let Some(first) = skip_to(prefilter, haystack, 0) else { return };
        at = first;
    }
    while let Some(byte) = haystack.get(at) {
        state = automaton.next_state(Anchored::No, state, *byte);
        at += 1;
        if !automaton.is_special(state) {
            continue;
        }
        if automaton.is_match(state) {
            for index in 0..automaton.match_len(state) {
                if !on_hit(automaton.match_pattern(state, index).as_u32(), at) {
                    return;
                }
            }
        } else if automaton.is_dead(state) {
            return;
        } else if let Some(prefilter) = prefilter {
            // The start state: nothing seen so far can become a hit, so the prefilter may jump.
            let Some(next) = skip_to(prefilter, haystack, at) else { return };
            at = next;
        }
    }
}

fn skip_to(prefilter: &Prefilter, haystack: &[u8], at: usize) -> Option<usize> {
    prefilter.find_in(haystack, Span { start: at, end: haystack.len() }).into_option()
}
