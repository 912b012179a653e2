// SPDX-License-Identifier: Apache-2.0
//! `bartizan classify`: what it prints for rule files, and rule sets that it draws.

mod common;

use common::{Folder, run};

/// Networks of one site to services anywhere, and a last rule for everything.
fn rules() -> String {
    let mut text = String::new();
    for n in 0..60 {
        let port = [53, 80, 443][n % 3];
        text += &format!("@10.{}.{n}.0/24\t192.0.2.{n}/32\t0 : 65535\t{port} : {port}\t0x06/0xFF\t\n", n % 4);
    }
    text + "@0.0.0.0/0\t0.0.0.0/0\t0 : 65535\t0 : 65535\t0x00/0x00\t\n"
}

#[test]
fn generated_rules_are_classified_like_any_other() {
    let folder = Folder::new();
    folder.write("rules", rules());
    for (version, any) in [("4", "0.0.0.0/0"), ("6", "::/0")] {
        let arguments = ["classify", "rules", "--generate", "500", "--ip-version", version, "--seed", "3"];
        let drawn = run(&folder.0, &arguments);
        assert_eq!((drawn.code, drawn.stderr.as_str()), (Some(0), ""));
        assert_eq!(drawn.stdout, run(&folder.0, &arguments).stdout, "the same seed gives the same set");
        let lines: Vec<&str> = drawn.stdout.lines().collect();
        assert_eq!(lines.len(), 500);
        let last = format!("@{any}\t{any}\t0 : 65535\t0 : 65535\t0x00/0x00\t0x0000/0x0000\t");
        assert_eq!(lines[499], last);
        folder.write("drawn", &drawn.stdout);
        let trace = run(&folder.0, &["classify", "drawn", "--draw", "200"]);
        folder.write("trace", &trace.stdout);
        let found = run(&folder.0, &["classify", "drawn", "trace"]);
        let numbers: Vec<i64> = found.stdout.lines().map(|n| n.parse().unwrap()).collect();
        assert_eq!(numbers.len(), 200);
        assert!(numbers.iter().all(|n| (0..500).contains(n)) && numbers.iter().any(|n| *n < 499));
    }
    // Without a version, that of the rules.
    let drawn = run(&folder.0, &["classify", "drawn", "--generate", "20"]);
    assert!(drawn.stdout.ends_with("@::/0\t::/0\t0 : 65535\t0 : 65535\t0x00/0x00\t0x0000/0x0000\t\n"));
}

#[test]
fn what_cannot_be_generated_is_refused_with_what_to_do() {
    let folder = Folder::new();
    folder.write("rules", rules());
    folder.write("empty", "");
    folder.write("all", rules().lines().last().unwrap());
    folder.write("six", "@2001:db8::/32 ::/0 0 : 65535 80 : 80 0x06/0xFF\n");
    folder.write("broken", "@10.0.0.0/8 ::/0 0 : 65535 80 : 80 0x06/0xFF\n");
    for (arguments, code, says) in [
        ("classify empty --generate 10", 1, "empty: no rule besides a last one that matches everything"),
        ("classify all --generate 10", 1, "give a set of at least a few dozen rules"),
        ("classify nowhere --generate 10", 1, "no such file; check the path"),
        ("classify six --generate 10 --ip-version 4", 1, "IPv4 rules cannot be drawn from them"),
        (
            "classify broken --generate 10",
            1,
            "line 1, `destination`: `::/0` is not a prefix of the source's IP version",
        ),
        ("classify rules --generate 0", 2, "0 is not in 1..=10000000"),
        ("classify rules --generate 10 --draw 10", 2, "cannot be used with"),
        ("classify rules --ip-version 6", 2, "--generate"),
    ] {
        let ended = run(&folder.0, &arguments.split(' ').collect::<Vec<_>>());
        assert_eq!(ended.code, Some(code), "{arguments}: {}", ended.stderr);
        assert!(ended.stderr.contains(says) && ended.stdout.is_empty(), "{arguments}: {}", ended.stderr);
    }
}
