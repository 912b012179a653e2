// SPDX-License-Identifier: Apache-2.0
//! Literals of one or two bytes that a rule demands at one offset: found by looking there, not by a search.

use crate::compile::literals::RuleAndHead;
use crate::model::places::{FixedPlace, FixedPlaces, KEY_MAX};
use std::collections::BTreeMap;

/// Most forms of a caseless key: two letters, each in both cases.
const FORMS_MAX: usize = 4;

/// Collects literals at fixed offsets.
#[derive(Clone, Default)]
pub(crate) struct PlaceCollector {
    /// Offset and length of the key, to the key's forms with their rules.
    places: BTreeMap<(usize, usize), BTreeMap<u16, Vec<RuleAndHead>>>,
}

impl PlaceCollector {
    /// Adds a rule by bytes that must lie at an offset; of longer ones the first two are the key.
    pub fn add(&mut self, offset: usize, bytes: &[u8], nocase: bool, rule: RuleAndHead) {
        let key = bytes.get(..KEY_MAX).unwrap_or(bytes);
        let place = self.places.entry((offset, key.len())).or_default();
        for form in forms(key, nocase) {
            place.entry(form).or_default().push(rule);
        }
    }

    /// Makes the table.
    pub fn build(self) -> FixedPlaces {
        let places = self.places.into_iter().map(|((offset, length), keys)| {
            let mut place = FixedPlace { offset, length, ..FixedPlace::default() };
            for (key, rules) in keys {
                place.heads.extend(rules.iter().map(|(_, head)| *head));
                let begin = place.rules.len();
                place.rules.extend(rules.iter().map(|(rule, _)| *rule));
                place.keys.push((key, begin..place.rules.len()));
            }
            place.heads.sort_unstable();
            place.heads.dedup();
            place
        });
        FixedPlaces(places.collect())
    }
}

/// The values of a key: one, or those of all its cases.
fn forms(key: &[u8], nocase: bool) -> smallvec::SmallVec<[u16; FORMS_MAX]> {
    let mut forms = smallvec::smallvec![0u16];
    for byte in key {
        let cases = [byte.to_ascii_lowercase(), byte.to_ascii_uppercase()];
        let cases = match nocase && byte.is_ascii_alphabetic() {
            true => &cases[..],
            false => core::slice::from_ref(byte),
        };
        forms = forms
            .iter()
            .flat_map(|form| cases.iter().map(move |case| form << 8 | u16::from(*case)))
            .collect();
    }
    forms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::candidates::Candidates;

    fn found(places: &FixedPlaces, data: &[u8]) -> Vec<u32> {
        let mut candidates = Candidates::default();
        candidates.reserve(64);
        places.add_to(data, None, &mut candidates);
        candidates.sorted(|_| true).collect()
    }

    #[test]
    fn rules_are_found_where_their_bytes_lie_and_nowhere_else() {
        let mut collector = PlaceCollector::default();
        collector.add(0, b"\x01", false, (1, 0));
        collector.add(0, b"\x01\x02", false, (2, 0));
        collector.add(3, b"aZ", true, (3, 0));
        collector.add(3, b"aZ", false, (4, 0));
        collector.add(0, b"\x01\x02\x03", false, (5, 0));
        collector.add(2, b"1", true, (6, 0));
        let places = collector.build();
        assert_eq!(found(&places, b"\x01"), [1]);
        assert_eq!(found(&places, b"\x01\x02"), [1, 2, 5]);
        assert_eq!(found(&places, b"\x02\x01\x31Az"), [3, 6]);
        assert_eq!(found(&places, b"\x02\x01\x30aZ"), [3, 4]);
        assert_eq!(found(&places, b"\x00\x01\x02az"), [3]);
        assert_eq!(found(&places, b""), [0u32; 0]);
    }

    #[test]
    fn a_caseless_key_has_each_case_once() {
        assert_eq!(forms(b"aB", true).len(), 4);
        assert_eq!(forms(b"1a", true).len(), 2);
        assert_eq!(forms(b"12", true).len(), 1);
        assert_eq!(forms(b"aB", false).len(), 1);
    }
}
