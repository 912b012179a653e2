// SPDX-License-Identifier: Apache-2.0
//! The common head and tail of two lists, so that only the part between has to be compared.

use core::ops::Range;

/// The ranges of `before` and `now` between the longest common head and the longest common tail of the rest;
/// `same`: whether two items are equal.
///
/// Both ranges are within their lists and begin at the same index; equal numbers of items follow the two
/// ranges. Costs one comparison for each common item, and at most two more.
pub fn between<A, B>(before: &[A], now: &[B], same: impl Fn(&A, &B) -> bool) -> (Range<usize>, Range<usize>) {
    let head = before.iter().zip(now).take_while(|(a, b)| same(a, b)).count();
    // No item belongs to both ends.
    let most = before.len().min(now.len()) - head;
    let ends = before.iter().rev().zip(now.iter().rev()).take(most);
    let tail = ends.take_while(|(a, b)| same(a, b)).count();
    (head..before.len() - tail, head..now.len() - tail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn letters(before: &str, now: &str) -> (Range<usize>, Range<usize>) {
        between(before.as_bytes(), now.as_bytes(), |a, b| a == b)
    }

    #[test]
    fn what_differs_stands_between() {
        assert_eq!(letters("abcde", "abXYde"), (2..3, 2..4));
        assert_eq!(letters("abcde", "abcde"), (5..5, 5..5));
        assert_eq!(letters("abde", "abcde"), (2..2, 2..3));
        assert_eq!(letters("abcde", "abde"), (2..3, 2..2));
        assert_eq!(letters("", "ab"), (0..0, 0..2));
        assert_eq!(letters("ab", ""), (0..2, 0..0));
        assert_eq!(letters("", ""), (0..0, 0..0));
        // No item is in both ends, whichever list is longer.
        assert_eq!(letters("aaa", "aa"), (2..3, 2..2));
        assert_eq!(letters("aba", "abababa"), (3..3, 3..7));
    }

    #[test]
    fn lists_of_different_items_are_compared_as_said() {
        let (before, now) = between(&[1u32, 2, 3], &["1", "x", "3"], |a, b| a.to_string() == *b);
        assert_eq!((before, now), (1..2, 1..2));
    }

    proptest! {
        #[test]
        fn ends_are_the_same_and_could_not_be_longer(
            before in prop::collection::vec(0u8..3, 0..12),
            now in prop::collection::vec(0u8..3, 0..12),
        ) {
            let compared = core::cell::Cell::new(0);
            let (was, is) = between(&before, &now, |a, b| {
                compared.set(compared.get() + 1);
                a == b
            });
            // The common parts and the rest are the whole lists.
            prop_assert!(was.start <= was.end && is.start <= is.end);
            prop_assert_eq!(was.start, is.start);
            prop_assert_eq!(&before[..was.start], &now[..is.start]);
            prop_assert_eq!(&before[was.end..], &now[is.end..]);
            // The rest begins and ends with different items, unless the rest of one list is empty.
            let (left, new) = (&before[was.clone()], &now[is.clone()]);
            if let (Some(a), Some(b)) = (left.first(), new.first()) {
                prop_assert_ne!(a, b);
                prop_assert_ne!(left.last(), new.last());
            }
            prop_assert!(compared.get() <= was.start + before.len() - was.end + 2);
        }
    }
}
