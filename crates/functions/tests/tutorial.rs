// SPDX-License-Identifier: Apache-2.0
//! The functions of the tutorial work, and the tutorial shows their real text.

use crate::common;
#[path = "../../../examples/function-ttlguard/src/lib.rs"]
mod ttlguard;
#[path = "../examples/wordguard.rs"]
mod wordguard;

use bartizan_base::Reason;
use common::*;
use ttlguard::TtlGuardKind;
use wordguard::WordGuardKind;

#[test]
fn drops_below_the_floor() {
    for (client, server) in PAIRS {
        let bytes = udp((ip(client), 1), (ip(server), 2), b"");
        let mut bench = Bench::new(&TtlGuardKind, r#"{"floor": 64}"#);
        assert_eq!(bench.refused(&bytes), None);
        let mut bench = Bench::new(&TtlGuardKind, r#"{"floor": 65}"#);
        assert_eq!(bench.refused(&bytes), Some(Reason::PfwRule));
        assert_eq!(bench.counter("dropped"), 1);
    }
}

#[test]
fn refuses_wrong_rules() {
    for (rules, place) in [
        ("{}", "classes/0/rules"),
        (r#"{"floor": 0}"#, "classes/0/rules/floor"),
        (r#"{"flor": 3}"#, "classes/0/rules/flor/"),
    ] {
        let errors = Bench::make(&TtlGuardKind, rules).err().expect(rules);
        assert_eq!(errors[0].place, place, "{}", errors[0].message);
    }
}

const RULES: &str = r#"{"words": ["forbidden", "secret"], "expressions": ["id=[0-9]{4}\\b"]}"#;

#[test]
fn words_and_expressions_are_found_in_datagrams() {
    for (client, server) in PAIRS {
        let mut bench = Bench::new(&WordGuardKind, RULES);
        let mut refused = |port, data: &[u8]| bench.refused(&udp((ip(client), port), (ip(server), 2), data));
        for (port, data) in [(1, &b"allowed"[..]), (2, b"id=123"), (3, b"id=12345"), (4, b"secre"), (5, b"")]
        {
            assert_eq!(refused(port, data), None, "{}", data.escape_ascii());
        }
        for (port, data) in [(6, &b"the SECRET"[..]), (7, b"forbidden"), (8, b"a id=1234 b")] {
            assert_eq!(refused(port, data), Some(Reason::PfwRule), "{}", data.escape_ascii());
        }
        assert_eq!((bench.counter("dropped"), bench.counter("undecided")), (3, 0));
    }
}

#[test]
fn words_are_found_wherever_segments_begin() {
    for (client, server) in PAIRS {
        let (c, s) = ((ip(client), 40_000), (ip(server), 80));
        for cut in 1..9 {
            for (text, ends) in [(&b"a ForBidden word"[..], true), (b"a forbiddem word", false)] {
                let mut bench = Bench::new(&WordGuardKind, RULES);
                bench.refused(&tcp(c, s, SYN, 100, 0, b""));
                bench.refused(&tcp(s, c, SYN | ACK, 500, 101, b""));
                bench.refused(&tcp(c, s, ACK, 101, 501, b""));
                let (first, second) = text.split_at(2 + cut);
                assert_eq!(bench.refused(&tcp(c, s, PSH | ACK, 101, 501, first)), None);
                let at = 101 + first.len() as u32;
                let refused = bench.refused(&tcp(c, s, PSH | ACK, at, 501, second));
                assert_eq!(refused.is_some(), ends, "{cut}: {}", text.escape_ascii());
            }
        }
    }
}

#[test]
fn wrong_patterns_are_refused_with_their_place() {
    for (rules, place) in [
        (r#"{"words": [""]}"#, "classes/0/rules/words"),
        (r#"{"expressions": ["a", "("]}"#, "classes/0/rules/expressions/1"),
        (r#"{"word": []}"#, "classes/0/rules/word/"),
    ] {
        let errors = Bench::make(&WordGuardKind, rules).err().expect(rules);
        assert_eq!(errors[0].place, place, "{}", errors[0].message);
    }
}

#[test]
fn the_tutorial_shows_this_very_code() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let page = std::fs::read_to_string(format!("{root}/docs/writing-a-function.md")).expect("the tutorial");
    let read = |file: &str| std::fs::read_to_string(format!("{root}/{file}")).expect(file);
    let code = read("examples/function-ttlguard/src/lib.rs");
    let manifest = read("examples/function-ttlguard/Cargo.toml");
    let (second, third) =
        (read("crates/functions/src/portscan.rs"), read("crates/functions/examples/wordguard.rs"));
    let (first_part, rest) = page.split_once("## 7. State beyond a flow").expect("the second example");
    let (second_part, third_part) = rest.split_once("## 8. Patterns").expect("the third example");
    for (part, code, least) in [(first_part, &code, 4), (second_part, &second, 5), (third_part, &third, 3)] {
        let blocks: Vec<&str> =
            part.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        assert!(blocks.len() >= least);
        for block in blocks {
            assert!(code.contains(block), "this is not in the example:\n{block}");
        }
    }
    let shown = first_part.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    assert!(
        shown.is_some_and(|shown| manifest.contains(shown)),
        "this is not the example's manifest: {shown:?}"
    );
    assert!(code.lines().count() < 150 && third.lines().count() < 180);
}
