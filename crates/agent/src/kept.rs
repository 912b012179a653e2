// SPDX-License-Identifier: Apache-2.0
//! Finds the items of a list in its predecessor.

use std::collections::HashMap;
use std::hash::Hash;

/// A list, with the function that gives its items' keys.
type KeyedList<'l, T, K> = (&'l [T], K);

/// For each item, the place of an item with the same key in the predecessor. Two lists mostly share a head
/// and a tail, which cost one comparison per item; only the part between them is searched.
pub(crate) fn places<A, B, K: Eq + Hash>(
    (before, known): KeyedList<'_, A, impl Fn(&A) -> K>,
    (now, is): KeyedList<'_, B, impl Fn(&B) -> K>,
) -> Vec<Option<usize>> {
    let (left, new) = bartizan_base::between(before, now, |a, b| known(a) == is(b));
    let searched = before.iter().enumerate().take(left.end).skip(left.start);
    let searched: HashMap<K, usize> = searched.map(|(place, item)| (known(item), place)).collect();
    let place = |(place, item): (usize, &B)| match place {
        place if place < new.start => Some(place),
        place if place >= new.end => Some(place + before.len() - now.len()),
        _ => searched.get(&is(item)).copied(),
    };
    now.iter().enumerate().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_is_found_where_it_was(before in prop::collection::vec(0u8..20, 0..12), now in prop::collection::vec(0u8..20, 0..12)) {
            let found = places((before.as_slice(), |a: &u8| *a), (now.as_slice(), |b: &u8| *b));
            prop_assert_eq!(found.len(), now.len());
            for (item, place) in now.iter().zip(found) {
                match place {
                    Some(place) => prop_assert_eq!(before[place], *item),
                    // An item that the predecessor has is found, unless it is a second one of its kind in
                    // head or tail.
                    None => prop_assert!(!before.contains(item) || now.iter().filter(|n| *n == item).count() > 1),
                }
            }
        }
    }
}
