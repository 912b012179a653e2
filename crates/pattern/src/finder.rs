// SPDX-License-Identifier: Apache-2.0
//! Searches one literal in a haystack, case-sensitive or caseless.
//!
//! The case-sensitive search is `memchr::memmem` (a vectorised search for the rarest pair of bytes, with
//! Two-Way as the bound). The caseless one is a vectorised search for the rarest byte of the literal in both
//! cases, a check of the second rarest, and a comparison of the rest. If that keeps failing (traffic made for
//! it), the search continues with Knuth-Morris-Pratt over folded bytes, so it is linear in the haystack for
//! any traffic.
//!
//! Not supported: letters outside of ASCII, searching backwards.

use memchr::arch::all::packedpair::Pair;
use memchr::memmem;

/// A literal prepared for searching. A search neither allocates nor needs scratch memory.
#[derive(Debug)]
pub struct Finder {
    kind: FinderKind,
}

#[derive(Debug)]
enum FinderKind {
    Exact(Box<memmem::Finder<'static>>),
    Nocase(Nocase),
}

impl Finder {
    /// Prepares `needle`; with `nocase` ASCII letters match in either case. An empty needle is found at the
    /// start of every haystack.
    #[must_use]
    pub fn new(needle: &[u8], nocase: bool) -> Self {
        let kind = if nocase && needle.iter().any(u8::is_ascii_alphabetic) {
            FinderKind::Nocase(Nocase::new(needle))
        } else {
            FinderKind::Exact(Box::new(memmem::Finder::new(needle).into_owned()))
        };
        Self { kind }
    }

    /// The offset of the first occurrence in `haystack`.
    #[inline]
    #[must_use]
    pub fn find(&self, haystack: &[u8]) -> Option<usize> {
        match &self.kind {
            FinderKind::Exact(finder) => finder.find(haystack),
            FinderKind::Nocase(finder) => finder.find(haystack),
        }
    }

    /// The offset (in `haystack`) of the first occurrence that starts at `start` or later.
    #[inline]
    #[must_use]
    pub fn find_at(&self, haystack: &[u8], start: usize) -> Option<usize> {
        let offset = self.find(haystack.get(start..)?)?;
        start.checked_add(offset)
    }

    /// The literal; in lower case if it is caseless.
    #[must_use]
    pub fn needle(&self) -> &[u8] {
        match &self.kind {
            FinderKind::Exact(finder) => finder.needle(),
            FinderKind::Nocase(finder) => &finder.needle,
        }
    }

    /// Whether letters match in either case. `false` for a literal without letters.
    #[must_use]
    pub fn is_nocase(&self) -> bool {
        matches!(self.kind, FinderKind::Nocase(_))
    }

    /// Bytes of memory held.
    #[must_use]
    pub fn memory_usage(&self) -> usize {
        size_of::<Self>()
            + match &self.kind {
                FinderKind::Exact(finder) => size_of::<memmem::Finder<'_>>() + finder.needle().len(),
                FinderKind::Nocase(finder) => finder.needle.len() + size_of_val(&*finder.border),
            }
    }
}

/// Limit of bytes compared in vain, per byte of progress, beyond which the search switches to its linear
/// form.
const WASTE_PER_BYTE: usize = 4;
/// Number of wasted comparisons before the ratio is checked, so that a short unlucky start does not switch
/// the search.
const WASTE_FREE: usize = 256;

#[derive(Debug)]
struct Nocase {
    /// The literal in lower case, at least one byte.
    needle: Box<[u8]>,
    /// The rarest byte: its offset in the needle, and the byte in both cases.
    rare: (usize, u8, u8),
    /// The second rarest byte: its offset, and the byte in lower case.
    second: (usize, u8),
    /// By prefix of the needle: the length of its longest proper border (Knuth-Morris-Pratt).
    border: Box<[u32]>,
}

impl Nocase {
    fn new(needle: &[u8]) -> Self {
        let needle = needle.to_ascii_lowercase().into_boxed_slice();
        // A needle of one byte has no pair; that byte is the rarest.
        let (first, second) = Pair::new(&needle)
            .map_or((0, 0), |pair| (usize::from(pair.index1()), usize::from(pair.index2())));
        let at = |offset: usize| needle.get(offset).copied().unwrap_or_default();
        let rare = (first, at(first), at(first).to_ascii_uppercase());
        let second = (second, at(second));
        let border = borders(&needle);
        Self { needle, rare, second, border }
    }

    fn find(&self, haystack: &[u8]) -> Option<usize> {
        let (rare_offset, lower, upper) = self.rare;
        let last_start = haystack.len().checked_sub(self.needle.len())?;
        let mut start = 0;
        let mut wasted = 0;
        while start <= last_start {
            // Only where the needle still fits: the last byte to inspect is the rare byte of the last
            // possible start.
            let window = haystack.get(start + rare_offset..=last_start + rare_offset)?;
            let skip = if lower == upper {
                memchr::memchr(lower, window)?
            } else {
                memchr::memchr2(lower, upper, window)?
            };
            start += skip;
            let candidate = haystack.get(start..start + self.needle.len())?;
            match self.mismatch(candidate) {
                None => return Some(start),
                Some(compared) => wasted += compared,
            }
            start += 1;
            if wasted > WASTE_FREE + start * WASTE_PER_BYTE {
                return self.find_linear(haystack, start);
            }
        }
        None
    }

    /// `None` if `candidate` equals the needle, otherwise the number of bytes compared.
    #[inline]
    fn mismatch(&self, candidate: &[u8]) -> Option<usize> {
        let (offset, byte) = self.second;
        if candidate.get(offset).is_none_or(|b| b.to_ascii_lowercase() != byte) {
            return Some(1);
        }
        candidate
            .iter()
            .zip(&self.needle)
            .position(|(have, want)| have.to_ascii_lowercase() != *want)
            .map(|at| at + 2)
    }

    /// Knuth-Morris-Pratt from `from`: at most two comparisons per byte of the haystack.
    #[cold]
    fn find_linear(&self, haystack: &[u8], from: usize) -> Option<usize> {
        let mut matched = 0;
        for (offset, byte) in haystack.get(from..)?.iter().enumerate() {
            let byte = byte.to_ascii_lowercase();
            while matched > 0 && self.needle.get(matched) != Some(&byte) {
                matched = self.border.get(matched - 1).map_or(0, |b| *b as usize);
            }
            if self.needle.get(matched) == Some(&byte) {
                matched += 1;
            }
            if matched == self.needle.len() {
                return Some(from + offset + 1 - matched);
            }
        }
        None
    }
}

fn borders(needle: &[u8]) -> Box<[u32]> {
    let mut border: Vec<u32> = Vec::with_capacity(needle.len());
    let mut matched = 0usize;
    for (at, byte) in needle.iter().enumerate() {
        if at > 0 {
            while matched > 0 && needle.get(matched) != Some(byte) {
                matched = border.get(matched - 1).map_or(0, |b| *b as usize);
            }
            if needle.get(matched) == Some(byte) {
                matched += 1;
            }
        }
        // Literals over 4 GiB do not occur; a border that is cut would only cost time.
        border.push(u32::try_from(matched).unwrap_or(0));
    }
    border.into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn naive(haystack: &[u8], needle: &[u8], nocase: bool) -> Option<usize> {
        if needle.is_empty() {
            return Some(0);
        }
        haystack
            .windows(needle.len())
            .position(|w| if nocase { w.eq_ignore_ascii_case(needle) } else { w == needle })
    }

    #[test]
    fn edges() {
        assert_eq!(Finder::new(b"", true).find(b""), Some(0));
        assert_eq!(Finder::new(b"a", true).find(b""), None);
        assert_eq!(Finder::new(b"a", true).find(b"xA"), Some(1));
        assert_eq!(Finder::new(b"\0A\xff", true).find(b"..\0a\xff"), Some(2));
        assert_eq!(Finder::new(b"AbC", false).find(b"abcABCAbC"), Some(6));
        assert_eq!(Finder::new(b"AbC", true).find_at(b"abcABCAbC", 1), Some(3));
        assert_eq!(Finder::new(b"AbC", true).find_at(b"abc", 4), None);
        assert_eq!(Finder::new(b"abc", true).find(b"ab"), None);
    }

    #[test]
    fn bytes_beside_the_letters_do_not_fold() {
        // '@' and '`', '[' and '{', and bytes over 0x7f differ in the bit that folds letters.
        for (needle, haystack) in [(b"a@", b"a`"), (b"a[", b"a{"), (b"a\xc1", b"a\xe1"), (b"a\0", b"a ")] {
            assert_eq!(Finder::new(needle, true).find(haystack), None);
        }
    }

    #[test]
    fn made_up_traffic_turns_to_the_linear_search() {
        let needle = [&[b'a'; 200][..], b"B"].concat();
        let mut haystack = vec![b'A'; 50_000];
        assert_eq!(Finder::new(&needle, true).find(&haystack), None);
        haystack.extend_from_slice(b"b...");
        assert_eq!(Finder::new(&needle, true).find(&haystack), Some(50_000 - 200));
        // Here each byte of the haystack is a candidate and fails late.
        let needle = [&[b'a'; 100][..], b"b", &[b'a'; 100]].concat();
        let haystack = [[b'A'; 100].as_slice(), b"B", &[b'A'; 99], b"B"].concat().repeat(50);
        assert_eq!(Finder::new(&needle, true).find(&haystack), naive(&haystack, &needle, true));
    }

    fn byte() -> impl Strategy<Value = u8> {
        prop::sample::select(b"aAbB@`\0\xff".to_vec())
    }

    proptest! {
        #[test]
        fn equals_naive(
            haystack in prop::collection::vec(byte(), 0..200),
            needle in prop::collection::vec(byte(), 0..6),
            nocase: bool,
        ) {
            let finder = Finder::new(&needle, nocase);
            prop_assert_eq!(finder.find(&haystack), naive(&haystack, &needle, nocase));
            if let FinderKind::Nocase(inner) = &finder.kind {
                prop_assert_eq!(inner.find_linear(&haystack, 0), naive(&haystack, &needle, true));
            }
        }

        #[test]
        fn equals_naive_on_long_needles(
            repeat in 1usize..40,
            unit in prop::collection::vec(byte(), 1..4),
            noise in prop::collection::vec(byte(), 0..300),
        ) {
            let needle = unit.repeat(repeat);
            let haystack = [&needle.to_ascii_uppercase()[..repeat.min(needle.len())], &noise, &needle].concat();
            prop_assert_eq!(Finder::new(&needle, true).find(&haystack), naive(&haystack, &needle, true));
        }
    }
}
