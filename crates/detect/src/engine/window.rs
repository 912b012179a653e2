// SPDX-License-Identifier: Apache-2.0
//! Scanning a window that slides over a stream: each byte is looked at about once, however often it is shown.
//!
//! Inline, each packet shows the stream from some way back, so that a rule's contents may lie in several
//! packets. The literals that were found in what is shown again are remembered instead of looked for. A
//! literal that is remembered longer than its bytes are shown costs an evaluation in vain, never an answer: a
//! prefilter may name too many rules. What is remembered is found anew each time the window has moved on by
//! its own length, so nothing stays for good.

use crate::engine::candidates::Candidates;
use crate::model::prefilter::Set;
use bartizan_pattern::Scratch;
use smallvec::SmallVec;

/// New data of the packet's direction as the stream engine shows it: a window that reaches back over bytes
/// seen before, so that a match can span segments.
#[derive(Clone, Copy, Debug)]
pub struct StreamWindow<'a> {
    /// The bytes.
    pub data: &'a [u8],
    /// Offset of the first byte in the stream.
    pub offset: u64,
    /// How many bytes at the end are new.
    pub fresh: usize,
    /// Inline: a rule's contents may lie anywhere in the window, so its literal may, too.
    pub whole: bool,
}

/// Literals remembered; with more the window is scanned whole each time.
const REMEMBERED_MAX: usize = 16;

/// What is known of the window of one direction, for one set of literals.
#[derive(Clone, Debug, Default)]
pub struct WindowScan {
    /// Every literal that lies in `from..to` (stream offsets) is in `found`.
    from: u64,
    to: u64,
    /// A window that begins here or later is scanned whole: what was found before may lie behind it.
    stale_at: u64,
    found: SmallVec<[u32; 4]>,
}

impl WindowScan {
    /// Bytes of memory held beside its own place.
    pub(crate) fn held(&self) -> usize {
        bartizan_applayer::memory::Held::held(&self.found)
    }

    /// Adds the rules whose literal occurs in a window to `candidates`.
    ///
    /// The bytes at an offset must be the same each time they are shown; who exchanges the stream for another
    /// one (a flow that is turned round) forgets this.
    pub fn scan(
        &mut self,
        set: &Set,
        scratch: &mut Scratch,
        window: &StreamWindow<'_>,
        candidates: &mut Candidates,
    ) {
        let StreamWindow { data, offset, fresh, .. } = *window;
        let end = offset.saturating_add(data.len() as u64);
        // What was not scanned begins with the fresh bytes, or else this is not the window that was seen
        // last.
        let follows = self.from <= offset && self.to == end.saturating_sub(fresh as u64);
        if !follows || !self.found.is_empty() && offset >= self.stale_at {
            self.found.clear();
            self.to = offset;
        }
        self.from = offset;
        // A literal may have begun in what was scanned.
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
        /// However a stream is cut and shown, the window finds what a scan of all that is shown finds, and
        /// nothing that lies further back than one window before it.
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
                // Now and then bytes are left out, as behind a gap, or what was shown is shown once more.
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
