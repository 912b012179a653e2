// SPDX-License-Identifier: Apache-2.0
//! Every engine against the case file and against a naive search on made-up data.

use crate::common;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bartizan_pattern::{Compiler, Config, Matches, Pattern, PatternEngine, PatternSet, Scratch};
use proptest::prelude::*;

type Hits = Vec<(u32, usize)>;

fn scan(set: &PatternSet, scratch: &mut Scratch, haystack: &[u8]) -> Hits {
    let mut hits = Vec::new();
    set.scan(scratch, haystack, |id, end| {
        hits.push((id, end));
        true
    })
    .unwrap();
    hits
}

fn sorted(mut hits: Hits) -> Hits {
    hits.sort_unstable();
    hits
}

/// The first end of each id that has one.
fn firsts(hits: &Hits) -> Hits {
    let mut first = BTreeMap::new();
    for (id, end) in hits {
        let least = first.entry(*id).or_insert(*end);
        *least = (*least).min(*end);
    }
    first.into_iter().collect()
}

#[test]
fn case_file() {
    let compilers = common::compilers();
    let mut scratch = Scratch::new();
    let cases = common::cases(include_str!("literals.cases"));
    assert!(cases.len() >= 24);
    for case in &cases {
        let (mut patterns, mut haystack, mut expected) = (Vec::new(), None, Vec::new());
        for line in &case.lines {
            match (&line[0][..], &line[1..]) {
                (kind @ (b"exact" | b"nocase"), [id, bytes]) => {
                    patterns.push(Pattern { id: common::number(id), bytes, nocase: kind == b"nocase" });
                }
                (b"in", [bytes]) => haystack = Some(bytes),
                (b"all", hits) => expected.extend(hits.iter().map(|hit| {
                    let at = hit.iter().position(|b| *b == b'@').unwrap();
                    (common::number(&hit[..at]), common::number(&hit[at + 1..]) as usize)
                })),
                _ => panic!("{}: {line:?}", case.name),
            }
        }
        let haystack = haystack.unwrap();
        let expected = sorted(expected);
        for (engine, compiler) in &compilers {
            let all = compiler.pattern_set(&patterns, Matches::All).unwrap();
            assert_eq!(sorted(scan(&all, &mut scratch, haystack)), expected, "{}, {engine}", case.name);
            let first = compiler.pattern_set(&patterns, Matches::First).unwrap();
            let found = sorted(scan(&first, &mut scratch, haystack));
            // Two literals with one id are reported each.
            assert_eq!(firsts(&found), firsts(&expected), "{}, {engine}, first", case.name);
            assert!(found.len() <= patterns.len());
        }
    }
}

#[test]
fn an_answer_of_false_ends_the_scan() {
    for (engine, compiler) in common::compilers() {
        for matches in [Matches::First, Matches::All] {
            let patterns: Vec<_> =
                (0..5).map(|id| Pattern { id, bytes: &b"abcde"[id as usize..], nocase: false }).collect();
            let set = compiler.pattern_set(&patterns, matches).unwrap();
            let mut calls = 0;
            set.scan(&mut Scratch::new(), b"abcdeabcde", |_, _| {
                calls += 1;
                calls < 3
            })
            .unwrap();
            assert_eq!(calls, 3, "{engine}");
        }
    }
}

#[test]
fn a_panic_in_the_callback_comes_through() {
    for (engine, compiler) in common::compilers() {
        let set =
            compiler.pattern_set(&[Pattern { id: 1, bytes: b"ab", nocase: true }], Matches::All).unwrap();
        let mut scratch = Scratch::new();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            set.scan(&mut scratch, b"abab", |_, _| std::panic::resume_unwind(Box::new("stop")))
        }));
        assert!(result.is_err(), "{engine}");
        assert_eq!(
            scan(&set, &mut scratch, b"abab"),
            [(1, 2), (1, 4)],
            "{engine}: the scratch is usable afterwards"
        );
    }
}

#[test]
fn one_scratch_serves_sets_of_any_compiler_in_any_order_and_settles() {
    let words: Vec<String> = (0..400).map(|n| format!("word{n}x")).collect();
    let patterns: Vec<_> = (0..)
        .zip(&words)
        .map(|(id, word)| Pattern { id, bytes: word.as_bytes(), nocase: id % 2 == 0 })
        .collect();
    let mut sets = Vec::new();
    for (_, compiler) in common::compilers() {
        for count in [1, 2, 7, 40, 400] {
            sets.push((count, compiler.pattern_set(&patterns[..count], Matches::First).unwrap()));
        }
    }
    let haystack = words.join("-").into_bytes();
    let mut scratch = Scratch::new();
    for (count, set) in sets.iter().rev().chain(&sets) {
        assert_eq!(scan(set, &mut scratch, &haystack).len(), *count);
    }
    assert!(scratch.memory_usage() > 1600);
    // Sets of one compiler settle: after one round no memory grows.
    let (_, compiler) = common::compilers().pop().unwrap();
    let sets: Vec<_> = [3, 50, 400]
        .map(|n| compiler.pattern_set(&patterns[..n], Matches::First).unwrap())
        .into_iter()
        .collect();
    for set in &sets {
        scratch.prepare_patterns(set).unwrap();
    }
    let grown = scratch.grown();
    for set in sets.iter().rev() {
        scan(set, &mut scratch, &haystack);
    }
    assert_eq!(scratch.grown(), grown);
}

#[test]
fn sets_are_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    fn moved<T: Send>(_: &T) {}
    moved(&Scratch::new());
    let words: Vec<String> = (0..200).map(|n| format!("needle-{n:03}")).collect();
    let patterns: Vec<_> =
        (0..).zip(&words).map(|(id, word)| Pattern { id, bytes: word.as_bytes(), nocase: true }).collect();
    for (_, compiler) in common::compilers() {
        let set = compiler.pattern_set(&patterns, Matches::All).unwrap();
        shared(&set);
        let haystack = words.join(" ").to_uppercase().into_bytes();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut scratch = Scratch::new();
                    for _ in 0..50 {
                        assert_eq!(scan(&set, &mut scratch, &haystack).len(), 200);
                    }
                });
            }
        });
    }
}

#[test]
fn automatic_choice_follows_the_size() {
    let compiler = Compiler::new(Config::default()).unwrap();
    let config = Config::default();
    let words: Vec<String> = (0..1000).map(|n| format!("w{n}")).collect();
    let patterns: Vec<_> =
        (0..).zip(&words).map(|(id, w)| Pattern { id, bytes: w.as_bytes(), nocase: false }).collect();
    let build = |count: usize| compiler.pattern_set(&patterns[..count], Matches::First).unwrap();
    let name = |count| build(count).engine().name();
    assert_eq!(name(config.finders_max), "finders");
    assert_eq!(name(config.finders_max + 1), "aho-corasick");
    assert_eq!(name(config.hyperscan_min - 1), "aho-corasick");
    assert!(compiler.info().hyperscan.is_none(), "nothing large enough yet: libhs is not loaded");
    assert!(compiler.info().to_string().contains("no set has"));
    let large = build(1000);
    assert!(large.memory_usage() > words.len());
    let info = compiler.info();
    match info.hyperscan {
        Some(_) => assert_eq!(large.engine().name(), "hyperscan"),
        None => assert!(info.why.contains("libhs"), "{}", info.why),
    }
    assert_eq!(info.sets.iter().map(|(_, n)| n).sum::<u64>(), 4);
    assert!(build(0).is_empty());
    assert!(scan(&build(0), &mut Scratch::new(), b"anything").is_empty());
}

#[test]
fn refusals_say_which() {
    let compiler = Compiler::new(Config { engine: PatternEngine::AhoCorasick, ..Config::default() }).unwrap();
    let error =
        compiler.pattern_set(&[Pattern { id: 42, bytes: b"", nocase: false }], Matches::All).unwrap_err();
    assert!(error.to_string().contains("42"), "{error}");
}

/// The reference: every pattern at every position.
fn naive(patterns: &[(Vec<u8>, bool)], haystack: &[u8]) -> Hits {
    let mut hits = Vec::new();
    for (id, (needle, nocase)) in (0u32..).zip(patterns) {
        for (start, window) in haystack.windows(needle.len()).enumerate() {
            if if *nocase { window.eq_ignore_ascii_case(needle) } else { window == needle } {
                hits.push((id, start + needle.len()));
            }
        }
    }
    hits
}

fn as_patterns(list: &[(Vec<u8>, bool)]) -> Vec<Pattern<'_>> {
    (0..).zip(list).map(|(id, (bytes, nocase))| Pattern { id, bytes, nocase: *nocase }).collect()
}

fn compilers() -> &'static [(PatternEngine, Compiler)] {
    static COMPILERS: OnceLock<Vec<(PatternEngine, Compiler)>> = OnceLock::new();
    COMPILERS.get_or_init(common::compilers)
}

fn byte() -> impl Strategy<Value = u8> {
    prop::sample::select(b"aaabbABZ\0\0\xff\n@`".to_vec())
}

fn literal(longest: usize) -> impl Strategy<Value = (Vec<u8>, bool)> {
    (prop::collection::vec(byte(), 1..=longest), any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(384))]

    #[test]
    fn every_engine_equals_naive(
        list in prop::collection::vec(literal(6), 1..12),
        haystack in prop::collection::vec(byte(), 0..120),
        split in 0usize..12,
    ) {
        let expected = naive(&list, &haystack);
        let patterns = as_patterns(&list);
        let mut scratch = Scratch::new();
        for (engine, compiler) in compilers() {
            let all = compiler.pattern_set(&patterns, Matches::All).unwrap();
            prop_assert_eq!(&sorted(scan(&all, &mut scratch, &haystack)), &expected, "{}", engine);
            let first = compiler.pattern_set(&patterns, Matches::First).unwrap();
            prop_assert_eq!(&sorted(scan(&first, &mut scratch, &haystack)), &firsts(&expected), "{}", engine);
            // The same literals in two sets give the same hits.
            let (one, two) = patterns.split_at(split.min(patterns.len()));
            let mut parts = Vec::new();
            for part in [one, two] {
                let set = compiler.pattern_set(part, Matches::All).unwrap();
                parts.extend(scan(&set, &mut scratch, &haystack));
            }
            prop_assert_eq!(&sorted(parts), &expected, "{}, split", engine);
        }
    }

    #[test]
    fn blocks_that_overlap_by_the_longest_give_the_same(
        list in prop::collection::vec(literal(9), 1..8),
        haystack in prop::collection::vec(byte(), 1..100),
        cut in 0usize..100,
    ) {
        let expected = naive(&list, &haystack);
        let patterns = as_patterns(&list);
        let mut scratch = Scratch::new();
        let cut = cut.min(haystack.len());
        for (engine, compiler) in compilers() {
            let set = compiler.pattern_set(&patterns, Matches::All).unwrap();
            let mut hits = scan(&set, &mut scratch, &haystack[..cut]);
            let from = cut.saturating_sub(set.longest() - 1);
            for (id, end) in scan(&set, &mut scratch, &haystack[from..]) {
                if from + end > cut {
                    hits.push((id, from + end));
                }
            }
            prop_assert_eq!(&sorted(hits), &expected, "{}", engine);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Sets and literals as large as real ones, so that each engine takes its large form.
    #[test]
    fn large_sets_equal_naive(
        list in prop::collection::vec(literal(40), 60..300),
        haystack in prop::collection::vec(byte(), 0..1500),
        planted in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..40),
    ) {
        let mut haystack = haystack;
        for (which, place) in planted {
            let (bytes, nocase) = which.get(&list);
            let at = place.index(haystack.len() + 1);
            let bytes = if *nocase { bytes.to_ascii_uppercase() } else { bytes.clone() };
            haystack.splice(at..at, bytes);
        }
        let expected = naive(&list, &haystack);
        let mut scratch = Scratch::new();
        for (engine, compiler) in compilers() {
            let set = compiler.pattern_set(&as_patterns(&list), Matches::All).unwrap();
            prop_assert_eq!(&sorted(scan(&set, &mut scratch, &haystack)), &expected, "{}", engine);
        }
    }
}
