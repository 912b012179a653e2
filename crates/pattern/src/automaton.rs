// SPDX-License-Identifier: Apache-2.0
//! The engine that needs no library: an Aho-Corasick automaton (Aho, Corasick 1975) of the crate
//! `aho-corasick`.
//!
//! One automaton serves both kinds of literals: if any literal is caseless, the automaton is, and a hit of a
//! case-sensitive literal is compared with the haystack, so answers are exact. Small sets become a DFA (one
//! load per byte), larger ones a contiguous NFA, which stays in the caches where a DFA would not.
//!
//! Streaming is not supported: block scans with an overlap take its place.

use aho_corasick::automaton::{Automaton as Walk, Prefilter};
use aho_corasick::{Anchored, BuildError, Span, dfa, nfa};

use crate::literal::Literals;

/// Limit of a set's literals, in bytes, up to which the automaton is a DFA. A byte of literal costs about 450
/// bytes of table, so 4 MiB at most; the DFA is faster than the NFA at this size, and no faster at several
/// times the size (example `scan`).
const DFA_MAX_BYTES: usize = 8192;

/// Limit of failure links (`failure_links`) up to which the automaton is a DFA. The builder of the DFA
/// follows the whole chain of links of a state for each class of bytes: ordinary literals have few links, one
/// literal of equal bytes has a number that is quadratic in its length, which would take minutes. The NFA is
/// built in linear time for any literals.
pub const DFA_MAX_LINKS: usize = 65_536;

#[derive(Debug)]
pub(crate) enum Automaton {
    Dfa(Box<dfa::DFA>),
    Nfa(Box<nfa::contiguous::NFA>),
}

impl Automaton {
    /// Builds the automaton over all literals; pattern number = slot.
    pub(crate) fn new(literals: &Literals) -> Result<Self, BuildError> {
        let base = nfa::noncontiguous::Builder::new()
            .ascii_case_insensitive(literals.any_nocase())
            .build(literals.iter().map(|(bytes, _)| bytes))?;
        if literals.total_bytes() <= DFA_MAX_BYTES && failure_links(literals, DFA_MAX_LINKS) <= DFA_MAX_LINKS
        {
            return Ok(Self::Dfa(Box::new(dfa::Builder::new().build_from_noncontiguous(&base)?)));
        }
        Ok(Self::Nfa(Box::new(nfa::contiguous::Builder::new().build_from_noncontiguous(&base)?)))
    }

    /// Calls `on_hit(slot, end)` for every occurrence, also overlapping ones, with ascending ends, until it
    /// returns false.
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

/// The sum, over the automaton's states, of the lengths of their chains of failure links; counting ends
/// beyond `most`.
///
/// A link leads from a state (a prefix of a literal) to a proper suffix of it that is a prefix of a literal.
/// So if the text of a literal from an offset on has a prefix of some literal, of `common` bytes, it adds a
/// link to each of the `common` states that end in it; states shared with the previous literal in sorted
/// order are counted there. The longest common prefix is with a neighbour in sorted order.
fn failure_links(literals: &Literals, most: usize) -> usize {
    let fold = literals.any_nocase();
    let folded = |bytes: &[u8]| if fold { bytes.to_ascii_lowercase() } else { bytes.to_vec() };
    let mut sorted: Vec<Vec<u8>> = literals.iter().map(|(bytes, _)| folded(bytes)).collect();
    sorted.sort_unstable();
    let mut links = 0;
    let mut before: &[u8] = &[];
    for literal in &sorted {
        let known = common(before, literal);
        before = literal;
        for start in 1..literal.len() {
            let rest = literal.get(start..).unwrap_or_default();
            let place = sorted.partition_point(|other| other.as_slice() < rest);
            let near = [place.checked_sub(1), Some(place)].into_iter().flatten();
            let longest = near.filter_map(|at| sorted.get(at)).map(|other| common(other, rest)).max();
            links += (start + longest.unwrap_or(0)).saturating_sub(known.max(start));
            if links > most {
                return links;
            }
        }
    }
    links
}

/// Length of the common prefix, in bytes.
fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// Walks the automaton in a loop of its own instead of the crate's overlapping iterator, which stores and
/// reloads its state for every hit.
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
            // The start state: no earlier byte can belong to a hit, so the prefilter may jump.
            let Some(next) = skip_to(prefilter, haystack, at) else { return };
            at = next;
        }
    }
}

fn skip_to(prefilter: &Prefilter, haystack: &[u8], at: usize) -> Option<usize> {
    prefilter.find_in(haystack, Span { start: at, end: haystack.len() }).into_option()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pattern;

    fn literals(of: &[(&[u8], bool)]) -> Literals {
        let patterns: Vec<Pattern<'_>> =
            of.iter().zip(0..).map(|(&(bytes, nocase), id)| Pattern { id, bytes, nocase }).collect();
        Literals::new(&patterns).unwrap()
    }

    /// The definition, word by word.
    fn counted(of: &[(&[u8], bool)]) -> usize {
        let fold = of.iter().any(|(bytes, nocase)| *nocase && bytes.iter().any(u8::is_ascii_alphabetic));
        let all: Vec<Vec<u8>> =
            of.iter().map(|(b, _)| if fold { b.to_ascii_lowercase() } else { b.to_vec() }).collect();
        let prefixes: std::collections::BTreeSet<&[u8]> =
            all.iter().flat_map(|l| (1..=l.len()).map(|n| &l[..n])).collect();
        prefixes.iter().map(|p| (1..p.len()).filter(|from| prefixes.contains(&p[*from..])).count()).sum()
    }

    #[test]
    fn links_are_counted_as_they_are_defined() {
        let sets: [&[(&[u8], bool)]; 6] = [
            &[(b"a", false)],
            &[(b"aaaa", false), (b"aaab", false), (b"baaaa", false)],
            &[(b"he", false), (b"she", false), (b"his", false), (b"hers", false)],
            &[(b"AbaBA", true), (b"babab", false), (b"BAB", false)],
            &[(b"abcabcabc", false), (b"bcabd", false), (b"cab", false), (b"ab", false)],
            &[(b"AAAA", false), (b"aaaa", true), (b"AaAaB", false)],
        ];
        for set in sets {
            assert_eq!(failure_links(&literals(set), usize::MAX), counted(set), "{set:?}");
        }
    }

    #[test]
    fn a_dfa_is_built_only_where_that_is_quick() {
        let short: Vec<String> = (0..40).map(|n| format!("short-{n:02}")).collect();
        let form = |long: &[Vec<u8>], nocase| {
            let mut set: Vec<(&[u8], bool)> = short.iter().map(|s| (s.as_bytes(), false)).collect();
            set.extend(long.iter().map(|l| (l.as_slice(), nocase)));
            let literals = literals(&set);
            assert!(literals.total_bytes() <= DFA_MAX_BYTES);
            (Automaton::new(&literals).unwrap().form(), failure_links(&literals, DFA_MAX_LINKS))
        };
        let equal = |n: usize| vec![b'x'; n];
        let period = |n: usize| b"ab".iter().copied().cycle().take(n).collect::<Vec<u8>>();
        let after = |byte: u8, n: usize| [vec![byte], equal(n)].concat();
        // One literal of equal bytes, of two in turn, caseless; many with a common beginning or end.
        let ends: Vec<_> =
            std::iter::once(equal(600)).chain((b'0'..=b'9').map(|byte| after(byte, 600))).collect();
        let beginnings: Vec<_> = (b'0'..=b'9').map(|byte| [equal(600), vec![byte]].concat()).collect();
        let hard = [vec![equal(7_600)], vec![equal(4_500)], vec![period(7_600)], ends, beginnings];
        for (long, nocase) in hard.iter().flat_map(|l| [(l, false), (l, true)]) {
            let (form, links) = form(long, nocase);
            assert_eq!(form, "contiguous nfa", "{links} links");
            // Counting ends soon beyond the limit.
            assert!(links <= DFA_MAX_LINKS + DFA_MAX_BYTES, "{links}");
        }
        // Literals of rules: texts, also long ones, and sleds of a few hundred equal bytes.
        let text: Vec<u8> = (0..7_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for easy in [vec![], vec![text], vec![equal(250)], vec![period(300)]] {
            let (form, links) = form(&easy, false);
            assert_eq!(form, "dfa", "{links} links");
        }
    }
}
