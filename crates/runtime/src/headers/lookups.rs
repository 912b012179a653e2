// SPDX-License-Identifier: Apache-2.0
//! Headers looked up in batches: which rule each finds, and how fast.

use bartizan_classify::{Classifier, Flat, FlatV4, FlatV6, Header, Match};
use std::time::Instant;

/// Headers of a batch.
const BATCH: usize = 64;
/// Passes of which the fastest counts.
const PASSES: usize = 5;

/// Headers in the forms that a classifier takes, each with its place among those that were given.
#[derive(Default)]
struct Headers {
    v4: (Vec<FlatV4>, Vec<usize>),
    v6: (Vec<FlatV6>, Vec<usize>),
    /// Those that have no flat form are looked up one by one.
    others: (Vec<Header>, Vec<usize>),
}

impl Headers {
    fn new(headers: &[Header]) -> Self {
        let mut out = Headers::default();
        for (number, header) in headers.iter().enumerate() {
            match Flat::new(header) {
                Some(Flat::V4(flat)) => {
                    out.v4.0.push(flat);
                    out.v4.1.push(number);
                }
                Some(Flat::V6(flat)) => {
                    out.v6.0.push(flat);
                    out.v6.1.push(number);
                }
                None => {
                    out.others.0.push(*header);
                    out.others.1.push(number);
                }
            }
        }
        out
    }

    /// Looks all of them up. `found` gets the places of a batch, and what was found there.
    fn look_up(&self, classifier: &dyn Classifier, mut found: impl FnMut(&[usize], &[Option<Match>])) {
        let mut results = vec![None; BATCH];
        for (headers, places) in self.v4.0.chunks(BATCH).zip(self.v4.1.chunks(BATCH)) {
            let results = results.get_mut(..headers.len()).unwrap_or_default();
            classifier.lookup_v4(headers, results);
            found(places, results);
        }
        for (headers, places) in self.v6.0.chunks(BATCH).zip(self.v6.1.chunks(BATCH)) {
            let results = results.get_mut(..headers.len()).unwrap_or_default();
            classifier.lookup_v6(headers, results);
            found(places, results);
        }
        for (header, place) in self.others.0.iter().zip(self.others.1.chunks(1)) {
            let mut result = [None];
            classifier.lookup(header, &mut result);
            found(place, &result);
        }
    }
}

/// The number of the rule that each header finds, -1 for none.
pub fn answers(classifier: &dyn Classifier, headers: &[Header]) -> Vec<i64> {
    let mut out = vec![-1; headers.len()];
    Headers::new(headers).look_up(classifier, |places, results| {
        for (place, result) in places.iter().zip(results) {
            if let Some(answer) = out.get_mut(*place) {
                *answer = result.map_or(-1, |m| i64::from(m.priority));
            }
        }
    });
    out
}

/// Lookups per second of these headers: the best of a few passes. 0 without headers.
pub fn speed(classifier: &dyn Classifier, headers: &[Header]) -> f64 {
    let all = Headers::new(headers);
    let mut best = f64::MAX;
    for _ in 0..PASSES {
        let start = Instant::now();
        all.look_up(classifier, |_, _| {});
        best = best.min(start.elapsed().as_secs_f64());
    }
    if headers.is_empty() { 0.0 } else { headers.len() as f64 / best }
}
