// SPDX-License-Identifier: Apache-2.0
//! Scanning a window that slides over a stream: each byte is looked at about once, however often it is shown.
//!
//! Inline, each packet shows the stream from some way back, so that a rule's contents may lie in several packets. The
//! literals that were found in what is shown again are remembered instead of looked for. A literal that is remembered
//! longer than its bytes are shown costs an evaluation in vain, never an answer: a prefilter may name too many rules. What is
//! remembered is found anew each time the window has moved on by its own length, so nothing stays for good.

use crate::inspect::StreamWindow;
use crate::prefilter::{Candidates, Set};
use bartizan_pattern::Scratch;
use smallvec::SmallVec;

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
    /// Adds the rules whose literal occurs in a window to `candidates`.
    ///
    /// The bytes at an offset must be the same each time they are shown; who exchanges the stream for another one (a flow that is
    /// turned round) forgets this.
    pub fn scan(
        &mut self,
        set: &Set,
        scratch: &mut Scratch,
        window: &StreamWindow<'_>,
        candidates: &mut Candidates,
    ) {
        let StreamWindow { data, offset, fresh, .. } = *window;
        let end = offset.saturating_add(data.len() as u64);
        // What was not scanned begins with the fresh bytes, or else this is not the window that was seen last.
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
