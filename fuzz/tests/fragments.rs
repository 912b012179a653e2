// SPDX-License-Identifier: Apache-2.0
//! Random fragments, dirty ones and good ones, to models of receivers. `BARTIZAN_RUNS=n` plays as many of each.

use bartizan_fuzz::fragments;

/// Numbers that follow from a seed alone (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn runs(default: u64) -> u64 {
    std::env::var("BARTIZAN_RUNS").map_or(default, |runs| runs.parse().expect("a number"))
}

#[test]
fn receivers_build_only_what_was_inspected() {
    for seed in 0..runs(3_000) {
        let mut random = Random(seed);
        let length = 20 + random.next() as usize % 300;
        let bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        let result = std::panic::catch_unwind(|| fragments::run(&bytes));
        assert!(result.is_ok(), "seed {seed}");
    }
}

#[test]
fn good_datagrams_arrive_whole() {
    for seed in 0..runs(150) {
        let mut random = Random(seed);
        fragments::good(|below| (random.next() % below.max(1) as u64) as usize);
    }
}
