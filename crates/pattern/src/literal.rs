// SPDX-License-Identifier: Apache-2.0
//! The literals of a set in canonical form: each distinct literal once, sorted, with all of its ids.
//!
//! Canonical order makes a compiled database independent of ids and of the order of rules, so that the cache
//! finds it again when rules were renumbered. An engine knows a literal by its *slot*, its index in that
//! order.

use std::collections::BTreeMap;

/// One literal as given by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern<'a> {
    /// Id that a match reports. It need not be unique: two literals may share an id, and a literal may have
    /// several ids; each pair is reported on its own.
    pub id: u32,
    /// The bytes to find; at least one.
    pub bytes: &'a [u8],
    /// ASCII letters match in either case.
    pub nocase: bool,
}

/// The distinct literals of a set, sorted, in one block of memory.
#[derive(Debug, Default)]
pub(crate) struct Literals {
    bytes: Box<[u8]>,
    slots: Box<[LiteralSlot]>,
    ids: Box<[u32]>,
    longest: usize,
    any_nocase: bool,
    any_exact: bool,
}

#[derive(Clone, Copy, Debug)]
struct LiteralSlot {
    start: u32,
    end: u32,
    ids_start: u32,
    ids_end: u32,
    nocase: bool,
}

/// The reason why a list of literals is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LiteralError {
    /// The pattern with this id has no bytes.
    Empty(u32),
    /// More than 4 GiB of literals, or as many ids.
    TooLarge,
}

impl Literals {
    /// Converts `patterns` to canonical form. A caseless literal is kept in lower case; one without letters
    /// is kept as case-sensitive, which gives the same matches at lower cost.
    pub(crate) fn new(patterns: &[Pattern<'_>]) -> Result<Self, LiteralError> {
        let mut distinct: BTreeMap<(Vec<u8>, bool), Vec<u32>> = BTreeMap::new();
        for pattern in patterns {
            if pattern.bytes.is_empty() {
                return Err(LiteralError::Empty(pattern.id));
            }
            let nocase = pattern.nocase && pattern.bytes.iter().any(u8::is_ascii_alphabetic);
            let bytes = if nocase { pattern.bytes.to_ascii_lowercase() } else { pattern.bytes.to_vec() };
            distinct.entry((bytes, nocase)).or_default().push(pattern.id);
        }
        let mut out = Self::default();
        let (mut bytes, mut slots, mut ids) = (Vec::new(), Vec::with_capacity(distinct.len()), Vec::new());
        for ((literal, nocase), mut of_literal) in distinct {
            of_literal.sort_unstable();
            of_literal.dedup();
            let (start, ids_start) = (to_u32(bytes.len())?, to_u32(ids.len())?);
            bytes.extend_from_slice(&literal);
            ids.extend_from_slice(&of_literal);
            let (end, ids_end) = (to_u32(bytes.len())?, to_u32(ids.len())?);
            slots.push(LiteralSlot { start, end, ids_start, ids_end, nocase });
            out.longest = out.longest.max(literal.len());
            out.any_nocase |= nocase;
            out.any_exact |= !nocase;
        }
        to_u32(slots.len())?;
        out.bytes = bytes.into_boxed_slice();
        out.slots = slots.into_boxed_slice();
        out.ids = ids.into_boxed_slice();
        Ok(out)
    }

    /// Number of distinct literals.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of all distinct literals together.
    pub(crate) fn total_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Length of the longest literal in bytes.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// Whether a literal is caseless.
    pub(crate) fn any_nocase(&self) -> bool {
        self.any_nocase
    }

    /// Whether both kinds occur, so that an engine with one case rule needs confirmation.
    pub(crate) fn mixed(&self) -> bool {
        self.any_nocase && self.any_exact
    }

    /// The literals in slot order with their caseless flag.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], bool)> {
        self.slots.iter().map(|slot| (self.bytes_of(slot), slot.nocase))
    }

    /// The ids that a match of `slot` reports.
    #[inline]
    pub(crate) fn ids(&self, slot: u32) -> &[u32] {
        self.slots
            .get(slot as usize)
            .and_then(|s| self.ids.get(s.ids_start as usize..s.ids_end as usize))
            .unwrap_or_default()
    }

    /// Whether a caseless hit of `slot` that ends at `end` also matches the literal's case.
    #[inline]
    pub(crate) fn confirm_case(&self, slot: u32, haystack: &[u8], end: usize) -> bool {
        let Some(entry) = self.slots.get(slot as usize) else { return false };
        if entry.nocase {
            return true;
        }
        let literal = self.bytes_of(entry);
        haystack.get(..end).is_some_and(|head| head.ends_with(literal))
    }

    /// Bytes of memory held.
    pub(crate) fn memory_usage(&self) -> usize {
        self.bytes.len() + self.slots.len() * size_of::<LiteralSlot>() + self.ids.len() * size_of::<u32>()
    }

    fn bytes_of(&self, slot: &LiteralSlot) -> &[u8] {
        self.bytes.get(slot.start as usize..slot.end as usize).unwrap_or_default()
    }
}

fn to_u32(value: usize) -> Result<u32, LiteralError> {
    u32::try_from(value).map_err(|_| LiteralError::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_literals_share_a_slot_and_order_does_not_matter() {
        let a = Pattern { id: 3, bytes: b"Abc", nocase: true };
        let b = Pattern { id: 1, bytes: b"aBC", nocase: true };
        let c = Pattern { id: 2, bytes: b"abc", nocase: false };
        let d = Pattern { id: 4, bytes: b"12", nocase: true };
        let one = Literals::new(&[a, b, c, d]).unwrap();
        let two = Literals::new(&[d, c, b, a, a]).unwrap();
        let list = |l: &Literals| l.iter().map(|(b, n)| (b.to_vec(), n)).collect::<Vec<_>>();
        assert_eq!(
            list(&one),
            [(b"12".to_vec(), false), (b"abc".to_vec(), false), (b"abc".to_vec(), true)],
            "a caseless literal without letters is a case-sensitive one"
        );
        assert_eq!(list(&one), list(&two));
        assert_eq!(one.ids(2), [1, 3]);
        assert_eq!(two.ids(2), [1, 3]);
        assert_eq!((one.len(), one.longest(), one.mixed()), (3, 3, true));
    }

    #[test]
    fn an_empty_literal_is_refused_by_id() {
        let patterns =
            [Pattern { id: 1, bytes: b"a", nocase: false }, Pattern { id: 9, bytes: b"", nocase: false }];
        assert_eq!(Literals::new(&patterns).unwrap_err(), LiteralError::Empty(9));
    }
}
