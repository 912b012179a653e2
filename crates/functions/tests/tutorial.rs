// SPDX-License-Identifier: Apache-2.0
//! The function of the tutorial works, and the tutorial shows its real text.

use crate::common;
#[path = "../examples/ttlguard.rs"]
mod ttlguard;

use bartizan_base::Reason;
use common::*;
use ttlguard::TtlGuardKind;

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

#[test]
fn the_tutorial_shows_this_very_code() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let page = std::fs::read_to_string(format!("{root}/docs/writing-a-function.md")).expect("the tutorial");
    let read = |file: &str| std::fs::read_to_string(format!("{root}/crates/functions/{file}")).expect(file);
    let (code, second) = (read("examples/ttlguard.rs"), read("src/portscan.rs"));
    let (first_part, second_part) = page.split_once("## 7. State beyond a flow").expect("the second example");
    for (part, code, least) in [(first_part, &code, 4), (second_part, &second, 5)] {
        let blocks: Vec<&str> =
            part.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        assert!(blocks.len() >= least);
        for block in blocks {
            assert!(code.contains(block), "this is not in the example:\n{block}");
        }
    }
    assert!(code.lines().count() < 150);
}
