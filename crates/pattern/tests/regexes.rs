// SPDX-License-Identifier: Apache-2.0
//! Sets of regular expressions against the case file and against PCRE2 alone; single expressions with groups,
//! options and limits.

use crate::common;

use std::sync::OnceLock;

use bartizan_pattern::{
    Compiler, Config, FallbackReason, JitMode, LimitExceeded, Limits, MatchOptions, PatternEngine, Regex,
    RegexFlags, RegexPattern, RegexSet, Scratch,
};
use proptest::prelude::*;

fn flags(letters: &[u8]) -> RegexFlags {
    letters.iter().filter(|l| **l != b'-').map(|l| RegexFlags::from_letter(*l).unwrap()).collect()
}

fn scan(set: &RegexSet, scratch: &mut Scratch, haystack: &[u8]) -> Vec<u32> {
    let mut ids = Vec::new();
    let limited = set.scan(scratch, haystack, |id| {
        ids.push(id);
        true
    });
    assert_eq!(limited, Ok(0));
    ids.sort_unstable();
    ids
}

fn regex(pattern: &str, letters: &str) -> Regex {
    Regex::new(pattern.as_bytes(), flags(letters.as_bytes()), Limits::default(), JitMode::Lazy).unwrap()
}

#[test]
fn case_file() {
    let cases = common::cases(include_str!("regexes.cases"));
    assert!(cases.len() >= 11);
    let mut scratch = Scratch::new();
    for (engine, compiler) in common::compilers() {
        for case in &cases {
            let (mut patterns, mut haystack, mut expected) = (Vec::new(), None, Vec::new());
            for line in &case.lines {
                match (&line[0][..], &line[1..]) {
                    (b"regex", [id, letters, pattern]) => {
                        patterns.push(RegexPattern {
                            id: common::number(id),
                            pattern,
                            flags: flags(letters),
                        });
                    }
                    (b"in", [bytes]) => haystack = Some(bytes),
                    (b"ids", ids) => expected.extend(ids.iter().map(|id| common::number(id))),
                    _ => panic!("{}: {line:?}", case.name),
                }
            }
            let set = compiler.regex_set(&patterns).unwrap();
            assert_eq!(set.len(), patterns.len());
            let found = scan(&set, &mut scratch, haystack.unwrap());
            assert_eq!(found, expected, "{}, {engine}, {:?}", case.name, set.fallbacks());
        }
    }
}

fn hyperscan() -> Option<&'static Compiler> {
    static COMPILER: OnceLock<Option<Compiler>> = OnceLock::new();
    let build = || {
        let compiler = Compiler::new(Config { engine: PatternEngine::Hyperscan, ..Config::default() });
        compiler.inspect_err(|error| eprintln!("not tested: {error}")).ok()
    };
    COMPILER.get_or_init(build).as_ref()
}

#[test]
fn every_fallback_has_its_reason() {
    let list: [(&[u8], &str, Option<FallbackReason>); 8] = [
        (b"abc[0-9]+", "i", None),
        (b"(a)\\1", "-", Some(FallbackReason::Refused)),
        (b"a(?=b)", "-", Some(FallbackReason::Refused)),
        (b"abc$", "E", Some(FallbackReason::Flag)),
        (b"a*", "-", Some(FallbackReason::Empty)),
        (b"a\0b", "-", Some(FallbackReason::Nul)),
        (b"^x.*y", "s", None),
        (b"a{,3}b", "-", Some(FallbackReason::Differs)),
    ];
    let patterns: Vec<_> = (0..)
        .zip(&list)
        .map(|(id, (pattern, letters, _))| RegexPattern { id, pattern, flags: flags(letters.as_bytes()) })
        .collect();
    let small = Compiler::new(Config::default()).unwrap();
    let set = small.regex_set(&patterns[..7]).unwrap();
    assert!(set.fallbacks().iter().all(|f| f.reason == FallbackReason::Small));
    let forced = Compiler::new(Config { engine: PatternEngine::AhoCorasick, ..Config::default() }).unwrap();
    let set = forced.regex_set(&patterns).unwrap();
    assert_eq!((set.in_hyperscan(), set.fallbacks().len()), (0, patterns.len()));
    assert_eq!(forced.info().regex_fallbacks, [(FallbackReason::Forced, patterns.len() as u64)]);
    let Some(hyperscan) = hyperscan() else { return };
    let set = hyperscan.regex_set(&patterns).unwrap();
    let reasons: Vec<_> = set.fallbacks().iter().map(|f| (f.id, f.reason)).collect();
    let expected: Vec<_> = (0u32..).zip(&list).filter_map(|(id, (.., r))| r.map(|r| (id, r))).collect();
    assert_eq!(reasons, expected, "{:?}", set.fallbacks());
    let refused = &set.fallbacks()[0];
    assert!(refused.message.to_lowercase().contains("back-reference"), "{}", refused.message);
    assert!(set.memory_usage() > 0 && hyperscan.info().to_string().contains("left to pcre2"));
}

#[test]
fn what_libhs_finds_too_large_only_when_compiling_leaves_the_rest_in() {
    let Some(hyperscan) = hyperscan() else { return };
    let large = format!("a.{{{}}}b[^c]{{3000}}d", 9000);
    let patterns = [
        RegexPattern { id: 1, pattern: b"ab+c", flags: RegexFlags::empty() },
        RegexPattern { id: 2, pattern: large.as_bytes(), flags: RegexFlags::empty() },
        RegexPattern { id: 3, pattern: b"x[yz]", flags: RegexFlags::empty() },
    ];
    let set = hyperscan.regex_set(&patterns).unwrap();
    assert_eq!(scan(&set, &mut Scratch::new(), b"abbc xz"), [1, 3]);
    assert_eq!(set.in_hyperscan() + set.fallbacks().len(), 3);
    assert!(set.in_hyperscan() >= 2, "{:?}", set.fallbacks());
}

#[test]
fn an_invalid_expression_is_refused_with_its_place() {
    for (_, compiler) in common::compilers() {
        // With a group around it libhs would accept this.
        let patterns = [RegexPattern { id: 9, pattern: b"a)(?:b", flags: RegexFlags::ANCHORED }];
        let error = compiler.regex_set(&patterns).unwrap_err();
        assert_eq!((error.id, error.error.offset), (9, 1));
        assert!(error.to_string().contains("byte 1"), "{error}");
    }
    assert!(Regex::new(b"(*UTF)a", RegexFlags::empty(), Limits::default(), JitMode::Off).is_err());
}

#[test]
fn groups_names_and_offsets() {
    let regex = regex(r"(?P<key>\w+)=(?:(\d+)|(x))(y)?", "");
    let mut scratch = Scratch::new();
    let found = regex.find_at(&mut scratch, b"?id=42&", 0, MatchOptions::empty()).unwrap().unwrap();
    assert_eq!((found.start(), found.end()), (1, 6));
    assert_eq!(found.group(0), Some((1, 6)));
    assert_eq!(found.group(1), Some((1, 3)));
    assert_eq!(found.group(2), Some((4, 6)));
    assert_eq!((found.group(3), found.group(4), found.group(5)), (None, None, None));
    assert_eq!(regex.group_count(), 4);
    assert_eq!(regex.group_names(), [("key".to_owned(), 1)]);
    assert!(regex.memory_usage() > 100 && scratch.memory_usage() > 0);
    // More groups than a fresh scratch has room for.
    let many = self::regex(&"(a)".repeat(100), "");
    let haystack = [b'a'; 100];
    let found = many.find_at(&mut scratch, &haystack, 0, MatchOptions::empty()).unwrap().unwrap();
    assert_eq!((found.group_len(), found.group(100)), (101, Some((99, 100))));
    let plain =
        Regex::new(b"(a)(?<n>b)", RegexFlags::NO_AUTO_CAPTURE, Limits::default(), JitMode::Off).unwrap();
    assert_eq!(plain.group_names(), [("n".to_owned(), 1)]);
}

#[test]
fn start_and_options() {
    let mut scratch = Scratch::new();
    let mut at = |regex: &Regex, haystack: &[u8], start, options| {
        regex.find_at(&mut scratch, haystack, start, options).unwrap().map(|m| (m.start(), m.end()))
    };
    let none = MatchOptions::empty();
    assert_eq!(at(&regex("a", ""), b"aba", 1, none), Some((2, 3)));
    assert_eq!(at(&regex("a", ""), b"aba", 3, none), None);
    assert_eq!(at(&regex("a", ""), b"aba", 4, none), None, "a start beyond the end finds nothing");
    assert_eq!(at(&regex("^a", ""), b"aba", 2, none), None, "what lies before the start is seen");
    assert_eq!(at(&regex("(?<=b)a", ""), b"aba", 2, none), Some((2, 3)));
    assert_eq!(at(&regex("^a", ""), b"a", 0, MatchOptions::NOT_BOL), None);
    assert_eq!(at(&regex("a$", ""), b"a", 0, MatchOptions::NOT_EOL), None);
    assert_eq!(at(&regex("a*", ""), b"ba", 0, MatchOptions::NOT_EMPTY), Some((1, 2)));
    assert_eq!(at(&regex("a*", ""), b"b", 0, MatchOptions::NOT_EMPTY_AT_START), Some((1, 1)));
    assert_eq!(at(&regex("a", ""), b"ba", 0, MatchOptions::ANCHORED), None);
    assert_eq!(at(&regex("a", "A"), b"ba", 1, none), Some((1, 2)), "anchored where the search starts");
    assert_eq!(at(&regex("a.+b", "G"), b"axbxb", 0, none), Some((0, 3)));
    assert_eq!(at(&regex("a$", ""), b"a\n", 0, none), Some((0, 1)));
    assert_eq!(at(&regex("a$", "E"), b"a\n", 0, none), None);
    assert_eq!(at(&regex("a\\Kb", ""), b"ab", 0, none), Some((1, 2)));
    assert_eq!(at(&regex("", ""), b"", 0, none), Some((0, 0)));
    assert_eq!(at(&regex("\\xff.", "s"), b"\xff\n", 0, none), Some((0, 2)));
    assert_eq!(at(&regex("\\w", ""), b"\xe9", 0, none), None, "bytes over 0x7f are no letters");
}

#[test]
fn limits_end_a_match_with_their_name() {
    let hard = b"(?:a+)+$";
    let haystack = [&[b'a'; 200][..], b"b"].concat();
    let mut scratch = Scratch::new();
    for jit in [JitMode::Off, JitMode::Eager] {
        let regex = Regex::new(hard, RegexFlags::empty(), Limits::default(), jit).unwrap();
        assert_eq!(regex.is_match(&mut scratch, &haystack), Err(LimitExceeded::Matches), "{jit:?}");
        assert_eq!(regex.is_match(&mut scratch, b"aaa"), Ok(true));
    }
    let new = |limits| Regex::new(b"(?:a|b)*c$", RegexFlags::empty(), limits, JitMode::Off).unwrap();
    // The haystack contains the c, or PCRE2 would know without trying.
    let long = [&[b'a'; 20_000][..], b"cd"].concat();
    let depth = new(Limits { matches: 1_000_000, depth: 50, heap_kib: 100_000 });
    assert_eq!(depth.is_match(&mut scratch, &long), Err(LimitExceeded::Depth));
    let heap = new(Limits { matches: 1_000_000, depth: 1_000_000, heap_kib: 64 });
    let mut fresh = Scratch::new();
    assert_eq!(heap.is_match(&mut fresh, &long), Err(LimitExceeded::Heap));
    // Limits belong to the expression, not to the scratch.
    assert_eq!(new(Limits::default()).is_match(&mut scratch, b"abc"), Ok(true));
    // A set continues with the next expression and counts those that ended so.
    let compiler = Compiler::new(Config { engine: PatternEngine::AhoCorasick, ..Config::default() }).unwrap();
    let patterns = [
        RegexPattern { id: 1, pattern: hard, flags: RegexFlags::empty() },
        RegexPattern { id: 2, pattern: b"ab", flags: RegexFlags::empty() },
    ];
    let set = compiler.regex_set(&patterns).unwrap();
    let mut ids = Vec::new();
    let limited = set.scan(&mut scratch, &haystack, |id| {
        ids.push(id);
        true
    });
    assert_eq!((limited, ids), (Ok(1), vec![2]));
}

#[test]
fn machine_code_comes_when_the_mode_says() {
    let new = |jit| Regex::new(b"a+b", RegexFlags::empty(), Limits::default(), jit).unwrap();
    let mut scratch = Scratch::new();
    assert_eq!(new(JitMode::Off).jitted(), Some(false));
    let (eager, lazy) = (new(JitMode::Eager), new(JitMode::Lazy));
    assert_eq!((eager.jitted().is_some(), lazy.jitted()), (true, None));
    scratch.prepare_regex(&lazy).unwrap();
    assert_eq!(lazy.jitted(), eager.jitted());
    let grown = scratch.grown();
    assert_eq!(lazy.is_match(&mut scratch, b"xaab"), Ok(true));
    assert_eq!(scratch.grown(), grown);
}

#[test]
fn threads_may_race_to_the_first_match() {
    for _ in 0..20 {
        let regex = regex("(a|b)+c", "");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut scratch = Scratch::new();
                    for _ in 0..20 {
                        assert_eq!(regex.is_match(&mut scratch, b"xxabababc"), Ok(true));
                    }
                });
            }
        });
    }
}

/// Each class against each byte: libhs must agree with PCRE2.
#[test]
fn classes_mean_the_same_in_both_engines() {
    let Some(hyperscan) = hyperscan() else { return };
    let alone = Compiler::new(Config { engine: PatternEngine::AhoCorasick, ..Config::default() }).unwrap();
    let classes = [
        r"\s",
        r"\S",
        r"\w",
        r"\W",
        r"\d",
        r"\D",
        r"\h",
        r"\H",
        r"\v",
        r"\V",
        r"\N",
        ".",
        r"[\s]",
        r"[^\s]",
        r"[\w-]",
        "[[:space:]]",
        "[[:alnum:]]",
        "[[:alpha:]]",
        "[[:ascii:]]",
        "[[:blank:]]",
        "[[:cntrl:]]",
        "[[:digit:]]",
        "[[:graph:]]",
        "[[:lower:]]",
        "[[:print:]]",
        "[[:punct:]]",
        "[[:upper:]]",
        "[[:word:]]",
        "[[:xdigit:]]",
        "[[:^alpha:]]",
        r"[\x80-\xff]",
        "[^a]",
        "[a-z]",
        "[^a-z]",
        r"\x41",
        r"\e",
        r"\a",
        r"\f",
        r"\t",
        r"\r",
        r"\n",
        r"\101",
        r"\o{101}",
        r"\cA",
        r"[\b]",
        r"[]a]",
        r"[^]a]",
        r"[a\]]",
        "(?i)[a-f]",
        "(?i)[^a-f]",
        "(?s).",
        "(?-s).",
        r"\x{41}",
        r"\Q.\E",
        r"a{,3}",
        r"a{1",
        r"x{0}a",
        "[a-]",
        "[--a]",
        r"[\d-z]",
        "[[:LOWER:]]",
        "[a[:digit:]b]",
        r"\8",
        r"\0",
        r"\00",
        r"\81",
        "(?x)a # b",
        "(?x)[a b]",
        r"(?x)\ ",
        "(?#c)a",
    ];
    for letters in ["", "i", "s", "x", "m"] {
        let (mut one, mut two) = (Vec::new(), Vec::new());
        for (id, class) in (0u32..).zip(classes) {
            let patterns = [RegexPattern { id, pattern: class.as_bytes(), flags: flags(letters.as_bytes()) }];
            let Ok(judge) = alone.regex_set(&patterns) else { continue };
            let set = hyperscan.regex_set(&patterns).unwrap();
            if set.in_hyperscan() == 1 {
                one.push((class, set));
                two.push(judge);
            }
        }
        assert!(one.len() > 40, "{}", one.len());
        let mut scratch = Scratch::new();
        let mut wrong = Vec::new();
        for ((class, set), judge) in one.iter().zip(&two) {
            for byte in 0..=255u8 {
                for haystack in [&[byte][..], &[byte, b'a'], &[b'a', byte, byte], b"a{,3}", b"a{1"] {
                    let expected = scan(judge, &mut scratch, haystack);
                    if scan(set, &mut scratch, haystack) != expected {
                        wrong.push((*class, haystack.to_vec()));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "flags {letters}: {wrong:?}");
    }
}

/// Generated expressions from constructs of both engines and of rules.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "a", "b", "A", "ab", ".", "\\n", "[ab]", "[^a]", "\\w", "\\W", "\\s", "^", "$", "\\b", "\\B", "\\A",
        "\\z", "\\Z", "\\x00", "\\xff", "\\d", " ", "#", "(?i)a", "(?m)^", "(?s).",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| parts.concat()),
            prop::collection::vec(inner.clone(), 2..4).prop_map(|parts| format!("(?:{})", parts.join("|"))),
            (inner.clone(), prop::sample::select(vec!["*", "+", "?", "{2}", "{1,3}", "{0,2}", "*?", "+?"]))
                .prop_map(|(part, times)| format!("(?:{part}){times}")),
            inner.prop_map(|part| format!("({part})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn libhs_equals_pcre2(
        list in prop::collection::vec((expression(), prop::sample::select(vec!["", "i", "s", "m", "x", "A", "E", "G", "im", "sm", "Ax", "Am"])), 1..4),
        haystack in prop::collection::vec(prop::sample::select(b"aaabbABZ\0\xff\n\n 1#".to_vec()), 0..14),
    ) {
        let Some(hyperscan) = hyperscan() else { return Ok(()) };
        let limits = Limits { matches: 1_000_000, depth: 1_000_000, heap_kib: 1 << 20 };
        let patterns: Vec<_> = (0..)
            .zip(&list)
            .map(|(id, (text, letters))| RegexPattern { id, pattern: text.as_bytes(), flags: flags(letters.as_bytes()) })
            .collect();
        let Ok(set) = hyperscan.regex_set(&patterns) else { return Ok(()) };
        let mut scratch = Scratch::new();
        let mut expected = Vec::new();
        for pattern in &patterns {
            let regex = Regex::new(pattern.pattern, pattern.flags, limits, JitMode::Off).unwrap();
            if regex.is_match(&mut scratch, &haystack).unwrap() {
                expected.push(pattern.id);
            }
        }
        let mut ids = Vec::new();
        set.scan(&mut scratch, &haystack, |id| { ids.push(id); true }).unwrap();
        ids.sort_unstable();
        prop_assert_eq!(ids, expected, "{:?}", set.fallbacks());
    }

    /// Never panics, for any expression and haystack.
    #[test]
    fn any_bytes_as_expression(pattern in prop::collection::vec(any::<u8>(), 0..24), haystack in prop::collection::vec(any::<u8>(), 0..64), bits in 0u32..256, start in 0usize..70) {
        let flags = RegexFlags::from_bits_truncate(bits);
        if let Ok(regex) = Regex::new(&pattern, flags, Limits::default(), JitMode::Lazy) {
            let mut scratch = Scratch::new();
            if let Ok(Some(found)) = regex.find_at(&mut scratch, &haystack, start, MatchOptions::empty()) {
                prop_assert!(found.start() >= start || pattern.windows(2).any(|w| w == b"\\K") || found.start() <= found.end());
                prop_assert!(found.end() <= haystack.len());
                for number in 0..found.group_len() {
                    prop_assert!(found.group(number).is_none_or(|(start, end)| start <= end && end <= haystack.len()));
                }
            }
        }
    }
}

/// An empty slice may have address 1, and machine code for a look-behind steps back from it.
#[test]
fn a_look_behind_has_nothing_behind_an_empty_haystack() {
    let mut scratch = Scratch::new();
    for jit in [JitMode::Lazy, JitMode::Off] {
        let regex =
            Regex::new(b"$(?<!!!!!!!!!!!!!_u>\nt;)", RegexFlags::empty(), Limits::default(), jit).unwrap();
        for _ in 0..100 {
            assert_eq!(regex.is_match(&mut scratch, &Vec::new()), Ok(true));
        }
    }
}
