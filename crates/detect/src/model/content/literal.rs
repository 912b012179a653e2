// SPDX-License-Identifier: Apache-2.0
//! `content` with its modifiers.

use super::number::{Number, VARIABLES_MAX};
use bartizan_pattern::Finder;
use std::sync::Arc;

/// The allowed position of a literal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// `offset`: first position from the start of the buffer.
    pub offset: Option<Number>,
    /// `depth`: number of bytes from `offset` that must contain the literal.
    pub depth: Option<Number>,
    /// `distance`: first position from the cursor.
    pub distance: Option<Number>,
    /// `within`: number of bytes from the cursor (plus distance) that must contain the literal.
    pub within: Option<Number>,
}

/// A literal to find.
#[derive(Clone)]
pub struct Literal {
    /// The bytes.
    pub bytes: Arc<[u8]>,
    /// Compiled search for the bytes.
    pub finder: Arc<Finder>,
    /// Letter case does not matter.
    pub nocase: bool,
    /// The literal must not occur.
    pub negated: bool,
    /// The allowed position.
    pub place: Placement,
    /// The literal must end where the buffer ends.
    pub endswith: bool,
    /// The rule has `startswith` (`place` expresses it, too).
    pub startswith: bool,
    /// The rule has `fast_pattern` for this literal.
    pub fast_pattern: bool,
    /// `fast_pattern:only`: the inspection does not search the literal again after the prefilter.
    pub fast_pattern_only: bool,
    /// `fast_pattern:offset,length`: the part that the prefilter searches.
    pub fast_pattern_chop: Option<(u16, u16)>,
    /// A later item starts from the end of this one (set by [`super::Program::link`]).
    pub anchors: bool,
    /// The item after this one can fail at one occurrence of the literal and match at a later one: it is
    /// negated, or has more than a `distance`.
    pub retried: bool,
    /// `replace`: bytes of the same length that replace the literal, inline.
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
            anchors: false,
            retried: false,
            replace: None,
        }
    }

    /// Number of modifiers.
    #[must_use]
    pub fn modifiers(&self) -> usize {
        let Placement { offset, depth, distance, within } = self.place;
        let places = [offset, depth, distance, within].iter().flatten().count();
        let flags = [self.nocase, self.endswith, self.startswith, self.fast_pattern, self.fast_pattern_only];
        places + flags.iter().filter(|f| **f).count() + usize::from(self.replace.is_some())
    }

    /// Makes the literal ignore letter case.
    pub fn set_nocase(&mut self) {
        self.nocase = true;
        self.finder = Arc::new(Finder::new(&self.bytes, true));
    }

    /// Whether the literal starts from the cursor.
    #[must_use]
    pub fn is_relative(&self) -> bool {
        self.place.distance.is_some() || self.place.within.is_some()
    }

    /// Whether the literal has no place and no relative neighbours: when it fails, no other attempt can help.
    #[must_use]
    pub fn is_single(&self) -> bool {
        !self.is_relative() && !self.anchors && self.place.depth.is_none() && self.place.offset.is_none()
    }

    /// The part of a buffer of `length` bytes in which the literal may lie, given the cursor. `None`:
    /// nowhere.
    ///
    /// Corner cases are Suricata's: a `within` that ends before the buffer starts is no limit.
    #[must_use]
    pub fn window(
        &self,
        cursor: usize,
        length: usize,
        variables: &[u64; VARIABLES_MAX],
    ) -> Option<(usize, usize)> {
        let length = i64::try_from(length).ok()?;
        let cursor = i64::try_from(cursor).ok()?;
        let place = |n: Option<Number>| n.map(|n| n.place(variables));
        let step = |n: Option<Number>| n.map(|n| n.step(variables));
        let offset = place(self.place.offset);
        let depth = place(self.place.depth);
        let (mut start, mut end) = (0, length);
        if self.is_relative() {
            let distance = step(self.place.distance).unwrap_or(0);
            start = cursor.saturating_add(distance).max(0);
            if let Some(within) = step(self.place.within) {
                // Suricata counts in 32 bits: a sum that wraps is no limit.
                let limit = cursor.saturating_add(distance).saturating_add(within);
                let limit = i64::from((limit as u32).cast_signed());
                if limit >= 0 {
                    end = end.min(limit);
                }
            }
            if let Some(depth) = depth {
                end = end.min(cursor.saturating_add(offset.unwrap_or(0)).saturating_add(depth));
            }
            if let Some(offset) = offset {
                start = start.max(offset);
            }
        } else {
            if let Some(offset) = offset {
                start = offset.max(0);
            }
            if let Some(depth) = depth {
                end = end.min(start.saturating_add(depth));
            }
        }
        if start > end || end <= 0 {
            return None;
        }
        Some((usize::try_from(start).ok()?, usize::try_from(end).ok()?))
    }

    /// Finds the next occurrence that starts at `from` or later and ends in the window; with `endswith`, the
    /// occurrence at the buffer's end. Returns its start.
    #[must_use]
    pub fn find(&self, buffer: &[u8], from: usize, end: usize) -> Option<usize> {
        if !self.endswith {
            return self.find_first(buffer, from, end);
        }
        if end < buffer.len() {
            return None;
        }
        // Only the last position counts, so no search is needed.
        let start = buffer.len().checked_sub(self.bytes.len())?;
        let tail = buffer.get(start..)?;
        let equal = if self.nocase { tail.eq_ignore_ascii_case(&self.bytes) } else { *tail == *self.bytes };
        (equal && start >= from).then_some(start)
    }

    fn find_first(&self, buffer: &[u8], from: usize, end: usize) -> Option<usize> {
        self.finder.find(buffer.get(from..end)?).map(|at| from.saturating_add(at))
    }

    /// Whether a negated literal fails in the window.
    ///
    /// With `endswith` Suricata compares only the end of the first occurrence with the length of the window:
    /// an earlier occurrence hides the one at the end. Rules rely on that.
    #[must_use]
    pub fn forbidden_in(&self, buffer: &[u8], start: usize, end: usize) -> bool {
        if self.endswith && end < buffer.len() {
            return false;
        }
        match self.find_first(buffer, start, end) {
            None => false,
            Some(at) => !self.endswith || at.checked_add(self.bytes.len()) == end.checked_sub(start),
        }
    }
}
