// SPDX-License-Identifier: Apache-2.0
//! Scans a window that slides over a stream: each byte is scanned about once, however often it is in a
//! window.
//!
//! Inline, the window of each packet reaches some way back, so that a rule's contents may lie in several
//! packets. The literals found in bytes of earlier windows are remembered instead of searched again. A
//! literal that is remembered longer than its bytes stay in the window costs a needless evaluation, never a
//! wrong answer: a prefilter may name too many rules. The memory is built again each time the window has
//! moved on by its own length, so no literal stays for good.

use crate::engine::candidates::Candidates;
use crate::model::prefilter::Set;
use bartizan_function::StreamNews;
use bartizan_pattern::Scratch;
use smallvec::SmallVec;

/// New data of the packet's direction from the stream engine: a window that reaches back over bytes of
/// earlier packets, so that a match can span segments.
#[derive(Clone, Copy, Debug)]
pub struct StreamWindow<'a> {
    /// The bytes.
    pub data: &'a [u8],
    /// Offset of the first byte in the stream.
    pub offset: u64,
    /// Number of bytes at the end that are new.
    pub fresh: usize,
    /// Inline: a rule's contents, and so its literal, may lie anywhere in the window.
    pub whole: bool,
}

impl<'a> StreamWindow<'a> {
    /// The part of a stream that rules see. `whole`: in prevention rules see it as a whole.
    pub fn of(news: &StreamNews<'a>, whole: bool) -> Self {
        let fresh = news.bytes.len().saturating_sub(news.seen);
        StreamWindow { data: news.bytes, offset: news.offset, fresh, whole }
    }
}

/// Limit of remembered literals; with more, each window is scanned whole.
const REMEMBERED_MAX: usize = 16;

/// Scan state of one direction's window, for one set of literals.
#[derive(Clone, Debug, Default)]
pub struct WindowScan {
    /// Every literal that lies in `from..to` (stream offsets) is in `found`.
    from: u64,
    to: u64,
    /// A window that begins here or later is scanned whole, since remembered literals may lie before it.
    stale_at: u64,
    found: SmallVec<[u32; 4]>,
}

impl WindowScan {
    /// Bytes of memory held outside of the structure itself.
    pub(crate) fn held(&self) -> usize {
        bartizan_applayer::memory::Held::held(&self.found)
    }

    /// Adds the rules whose literal occurs in a window to `candidates`.
    ///
    /// The bytes at an offset must be the same in each window; a caller that exchanges the stream (a flow
    /// whose directions are exchanged) must drop this state.
    pub fn scan(
        &mut self,
        set: &Set,
        scratch: &mut Scratch,
        window: &StreamWindow<'_>,
        candidates: &mut Candidates,
    ) {
        let StreamWindow { data, offset, fresh, .. } = *window;
        let end = offset.saturating_add(data.len() as u64);
        // Unscanned bytes begin with the fresh ones; otherwise this window does not follow the last one.
        let follows = self.from <= offset && self.to == end.saturating_sub(fresh as u64);
        if !follows || !self.found.is_empty() && offset >= self.stale_at {
            self.found.clear();
            self.to = offset;
        }
        self.from = offset;
        // A literal may begin in bytes that were scanned.
        let from = self.to.saturating_sub(set.longest().saturating_sub(1) as u64).max(offset);
        let unseen = usize::try_from(from - offset).ok().and_then(|skip| data.get(skip..)).unwrap_or(data);
        if self.found.is_empty() {
            self.stale_at = end;
        }
        self.to = end;
        let found = &mut self.found;
        let scanned = set.literals_in(scratch, unseen, |literal| {
            if !found.contains(&literal) {
                found.push(literal);
            }
        });
        if !scanned {
            set.every_rule(candidates);
            *self = WindowScan::default();
            return;
        }
        self.found.iter().for_each(|literal| candidates.extend(set.rules_of(*literal)));
        if self.found.len() > REMEMBERED_MAX {
            *self = WindowScan::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_pattern::{Compiler, Config};
    use proptest::prelude::*;

    fn rules(candidates: &mut Candidates) -> Vec<u32> {
        let rules = candidates.sorted(|_| true).collect();
        candidates.clear();
        rules
    }

    fn letters(most: usize) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(b"aabcd".to_vec()), 1..most)
    }

    proptest! {
        /// However a stream is cut into windows, the scan finds what a scan of each whole window finds, and
        /// nothing that lies more than one window further back.
        #[test]
        fn finds_what_a_whole_scan_finds(
            stream in letters(600),
            literals in prop::collection::btree_map((letters(7), any::<bool>()), 0u32..40, 1..24),
            cuts in prop::collection::vec((1usize..40, 0usize..60, prop::num::u8::ANY), 1..60),
        ) {
            let compiler = Compiler::new(Config::default()).unwrap();
            let sets = literals.into_iter().map(|(literal, rule)| (literal, vec![rule])).collect();
            let set = Set::new(sets, &compiler).unwrap();
            let (mut scratch, mut candidates) = (Scratch::default(), Candidates::default());
            candidates.reserve(40);
            let mut known = WindowScan::default();
            let (mut end, mut largest) = (0, 0);
            for (fresh, back, odd) in cuts {
                // Some bytes are left out, as after a gap, or repeated.
                let skip = if odd < 16 { usize::from(odd) } else { 0 };
                let begin = (end + skip).min(stream.len());
                end = if odd > 250 { begin } else { (begin + fresh).min(stream.len()) };
                let start = if skip > 0 { begin } else { begin.saturating_sub(back) };
                let data = &stream[start..end];
                largest = largest.max(data.len());
                let window = StreamWindow { data, offset: start as u64, fresh: end - begin, whole: true };
                known.scan(&set, &mut scratch, &window, &mut candidates);
                let found = rules(&mut candidates);
                set.scan(&mut scratch, data, &mut candidates);
                let whole = rules(&mut candidates);
                prop_assert!(whole.iter().all(|rule| found.contains(rule)), "{found:?} of {whole:?}");
                let recent = &stream[start.saturating_sub(largest)..end];
                set.scan(&mut scratch, recent, &mut candidates);
                let recent = rules(&mut candidates);
                prop_assert!(found.iter().all(|rule| recent.contains(rule)), "{found:?}, not {recent:?}");
            }
        }
    }
}
