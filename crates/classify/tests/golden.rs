// SPDX-License-Identifier: Apache-2.0
//! ClassBench sets: every structure gives the golden answers. The data is not part of the project; the tests say so
//! where it is missing.

mod common;

use bartizan_classify::{Compiled, Flat, FlatV4, Level, Options, trace};
use common::{SETS, load};

fn flat(headers: &[bartizan_classify::Header]) -> Vec<FlatV4> {
    headers
        .iter()
        .map(|h| match Flat::new(h) {
            Some(Flat::V4(flat)) => flat,
            _ => panic!("the sets are IPv4"),
        })
        .collect()
}

#[test]
fn compiled_sets_give_the_golden_answers_at_every_level() {
    for set in SETS {
        let Some((rules, golden)) = load(set) else { continue };
        let headers: Vec<_> = golden.iter().map(|(h, _)| *h).collect();
        let flat = flat(&headers);
        for fast in [false, true] {
            let mut compiled = Compiled::new(&[rules.clone()], Options { budget: 64 << 20, fast });
            for level in [Level::Avx512, Level::Avx2, Level::Portable] {
                compiled.set_level(level);
                let mut answers = vec![0; flat.len()];
                compiled.lookup_v4(&flat, &mut answers);
                let wrong = golden
                    .iter()
                    .zip(&answers)
                    .filter(|((_, right), a)| right.unwrap_or(u32::MAX) != **a)
                    .count();
                assert_eq!(wrong, 0, "{set} fast={fast} {level:?}");
            }
        }
    }
}

#[test]
fn without_the_last_rule_there_are_misses() {
    let Some((mut rules, golden)) = load("fw1_1k") else { return };
    rules.pop();
    let last = rules.len() as u32;
    let headers: Vec<_> = golden.iter().map(|(h, _)| *h).collect();
    let compiled = Compiled::new(&[rules], Options { budget: 64 << 20, fast: true });
    let mut answers = vec![0; headers.len()];
    compiled.lookup_v4(&flat(&headers), &mut answers);
    let right = golden.iter().map(|(_, r)| r.filter(|r| *r != last).unwrap_or(u32::MAX));
    assert!(answers.iter().copied().eq(right));
    assert!(answers.contains(&u32::MAX));
}

#[test]
fn traces_are_as_asked_for() {
    let Some((rules, _)) = load("acl1_1k") else { return };
    for how in "UCPZX".chars().filter_map(trace::Draw::from_letter) {
        let trace = trace::draw(&rules, how, 1000);
        assert_eq!(trace.len(), 1000);
        assert_eq!(trace, trace::draw(&rules, how, 1000));
        if how != trace::Draw::Cross {
            assert!(trace.iter().all(|h| rules.iter().any(|r| r.matches(h))));
        }
    }
}
