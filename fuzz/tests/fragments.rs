// SPDX-License-Identifier: Apache-2.0
//! Random fragments, dirty ones and good ones, to models of receivers. `BARTIZAN_RUNS=n` plays as many of
//! each.

use bartizan_fuzz::fragments;
use bartizan_testkit::random::Random;

fn runs(default: u64) -> u64 {
    std::env::var("BARTIZAN_RUNS").map_or(default, |runs| runs.parse().expect("a number"))
}

#[test]
fn receivers_build_only_what_was_inspected() {
    for seed in 0..runs(3_000) {
        let mut random = Random::new(seed);
        let length = 20 + random.draw() as usize % 300;
        let bytes = random.bytes(length);
        let result = std::panic::catch_unwind(|| fragments::run(&bytes));
        assert!(result.is_ok(), "seed {seed}");
    }
}

#[test]
fn good_datagrams_arrive_whole() {
    for seed in 0..runs(150) {
        let mut random = Random::new(seed);
        fragments::good(|below| random.below(below));
    }
}
