// SPDX-License-Identifier: Apache-2.0
//! Batched lookups of headers: the matching rules, and the speed.

use bartizan_classify::{Classifier, Flat, FlatV4, FlatV6, Header, Match};
use std::time::Instant;

/// Headers of a batch.
const BATCH: usize = 64;
/// Number of passes, of which the fastest counts.
const PASSES: usize = 5;

/// Headers in the forms that a classifier takes, each with its index in the input.
#[derive(Default)]
struct Headers {
    v4: (Vec<FlatV4>, Vec<usize>),
    v6: (Vec<FlatV6>, Vec<usize>),
    /// Headers without a flat form, which are looked up one by one.
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

    /// Looks all headers up. `found` receives the indices of a batch, and the matches.
    fn lookup(&self, classifier: &dyn Classifier, mut found: impl FnMut(&[usize], &[Option<Match>])) {
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

/// The number of the rule that each header matches, -1 for none.
pub fn answers(classifier: &dyn Classifier, headers: &[Header]) -> Vec<i64> {
    let mut out = vec![-1; headers.len()];
    Headers::new(headers).lookup(classifier, |places, results| {
        for (place, result) in places.iter().zip(results) {
            if let Some(answer) = out.get_mut(*place) {
                *answer = result.map_or(-1, |m| i64::from(m.priority));
            }
        }
    });
    out
}

/// Lookups of these headers per second, in the fastest pass. 0 without headers.
pub fn speed(classifier: &dyn Classifier, headers: &[Header]) -> f64 {
    let all = Headers::new(headers);
    let mut best = f64::MAX;
    for _ in 0..PASSES {
        let start = Instant::now();
        all.lookup(classifier, |_, _| {});
        best = best.min(start.elapsed().as_secs_f64());
    }
    if headers.is_empty() { 0.0 } else { headers.len() as f64 / best }
}
