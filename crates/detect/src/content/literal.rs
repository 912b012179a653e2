// SPDX-License-Identifier: Apache-2.0
//! `content` with its modifiers.

use super::{Number, VARIABLES_MAX};
use bartizan_pattern::Finder;
use std::sync::Arc;

/// Where a literal may lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// `offset`: first position from the start of the buffer.
    pub offset: Option<Number>,
    /// `depth`: bytes from `offset` in which it must lie.
    pub depth: Option<Number>,
    /// `distance`: first position from the cursor.
    pub distance: Option<Number>,
    /// `within`: bytes from the cursor (plus distance) in which it must lie.
    pub within: Option<Number>,
}

/// A literal to find.
#[derive(Clone)]
pub struct Literal {
    /// The bytes.
    pub bytes: Arc<[u8]>,
    /// Compiled search for them.
    pub finder: Arc<Finder>,
    /// Letter case does not matter.
    pub nocase: bool,
    /// Must not occur.
    pub negated: bool,
    /// Where it may lie.
    pub place: Placement,
    /// Must end where the buffer ends.
    pub endswith: bool,
    /// `startswith` was given (the placement says so too).
    pub startswith: bool,
    /// `fast_pattern` was given.
    pub fast_pattern: bool,
    /// `fast_pattern:only`: found by the prefilter is found.
    pub fast_pattern_only: bool,
    /// `fast_pattern:offset,length`: this part of it.
    pub fast_pattern_chop: Option<(u16, u16)>,
    /// `replace`: bytes of the same length to put in its place, inline.
    pub replace: Option<Arc<[u8]>>,
}

impl Literal {
    /// A literal without modifiers.
    #[must_use]
    pub fn new(bytes: &[u8], negated: bool) -> Self {
        Literal {
            bytes: bytes.into(),
            finder: Arc::new(Finder::new(bytes, false)),
            nocase: false,
            negated,
            place: Placement::default(),
            endswith: false,
            startswith: false,
            fast_pattern: false,
            fast_pattern_only: false,
            fast_pattern_chop: None,
            replace: None,
        }
    }

    /// Makes letter case not matter.
    pub fn set_nocase(&mut self) {
        self.nocase = true;
        self.finder = Arc::new(Finder::new(&self.bytes, true));
    }

    /// Whether it starts from the cursor.
    #[must_use]
    pub fn is_relative(&self) -> bool {
        self.place.distance.is_some() || self.place.within.is_some()
    }

    /// The part of a buffer of `length` bytes in which it may lie, given the cursor. `None`: nowhere.
    #[must_use]
    pub fn window(
        &self,
        cursor: usize,
        length: usize,
        variables: &[u64; VARIABLES_MAX],
    ) -> Option<(usize, usize)> {
        let length = i64::try_from(length).ok()?;
        let cursor = i64::try_from(cursor).ok()?;
        let value = |n: Option<Number>| n.map(|n| n.value(variables));
        let (mut start, mut end) = (0, length);
        if self.is_relative() {
            let distance = value(self.place.distance).unwrap_or(0);
            start = cursor.saturating_add(distance).max(0);
            if let Some(within) = value(self.place.within) {
                end = end.min(cursor.saturating_add(distance).saturating_add(within));
            }
            if let Some(offset) = value(self.place.offset) {
                start = start.max(offset);
            }
            if let Some(depth) = value(self.place.depth) {
                end = end.min(depth.saturating_add(value(self.place.offset).unwrap_or(0)));
            }
        } else {
            if let Some(offset) = value(self.place.offset) {
                start = offset.max(0);
            }
            if let Some(depth) = value(self.place.depth) {
                end = end.min(start.saturating_add(depth));
            }
        }
        if start > end {
            return None;
        }
        Some((usize::try_from(start).ok()?, usize::try_from(end).ok()?))
    }

    /// Finds the next occurrence that ends in the window and starts at `from` or later. Gives its start.
    #[must_use]
    pub fn find(&self, buffer: &[u8], from: usize, end: usize) -> Option<usize> {
        let window = buffer.get(from..end)?;
        if self.endswith {
            // Only the last position counts, which saves a search.
            let start = buffer.len().checked_sub(self.bytes.len())?;
            let tail = buffer.get(start..)?;
            let equal =
                if self.nocase { tail.eq_ignore_ascii_case(&self.bytes) } else { *tail == *self.bytes };
            return (equal && start >= from && buffer.len() <= end).then_some(start);
        }
        self.finder.find(window).map(|at| from.saturating_add(at))
    }
}
