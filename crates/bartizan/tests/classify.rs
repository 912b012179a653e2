// SPDX-License-Identifier: Apache-2.0
//! `bartizan classify`: its output for rule files and policy files, and the rule sets and traces that it
//! draws.

use crate::common;

use common::{Folder, run};
use std::io::Write;
use std::net::IpAddr;

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

const POLICIES: &str = "\
groups:
  lan: [10.0.0.0/8, \"2001:db8::/32\"]
  servers: [192.0.2.0/24, \"fd00:aaaa::/48\"]
tenants:
  - {name: red, select: {vlan: 102}}
policies:
  - {name: branch, link: branch, from: lan, chain: []}
  - {name: red-only, tenant: red, to: servers, chain: []}
  - {name: web, from: lan, to: servers, chain: []}
  - {name: dns, tenant: any, to: [192.0.2.53, \"fd00:aaaa::53\"], chain: []}
default: {action: drop}
";

/// Each IP version: source, destination, and the policies of the default tenant, of `red`, and of the default
/// tenant on the link `branch`; chosen by hand. Policies apply both ways.
const CHOSEN: [([&str; 2], [&str; 2], [&str; 3]); 6] = [
    (["10.1.2.3", "2001:db8::1"], ["192.0.2.7", "fd00:aaaa::7"], ["2", "1", "0"]),
    (["192.0.2.7", "fd00:aaaa::7"], ["10.1.2.3", "2001:db8::1"], ["2", "1", "0"]),
    (["10.1.2.3", "2001:db8::1"], ["203.0.113.1", "fe80::1"], ["-1", "-1", "0"]),
    (["203.0.113.1", "fe80::1"], ["192.0.2.53", "fd00:aaaa::53"], ["3", "1", "3"]),
    (["192.0.2.54", "fd00:aaaa::54"], ["203.0.113.1", "fe80::1"], ["-1", "1", "-1"]),
    (["203.0.113.1", "fe80::1"], ["203.0.113.2", "fe80::2"], ["-1", "-1", "-1"]),
];

/// A header line.
fn line(source: &str, destination: &str) -> String {
    format!("{source} {destination} 40000 443 6\n")
}

#[test]
fn policies_are_chosen_as_by_hand() {
    let folder = Folder::new();
    folder.write("p.yaml", POLICIES);
    let mut zipped = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    zipped.write_all(POLICIES.as_bytes()).unwrap();
    folder.write("p.YML.gz", zipped.finish().unwrap());
    let lines = |n: usize| CHOSEN.iter().map(|(from, to, _)| line(from[n], to[n])).collect::<String>();
    folder.write("trace", lines(0) + &lines(1));
    let asked = ["", "--tenant red", "--link branch"];
    for (column, options) in asked.iter().enumerate() {
        let expected: Vec<&str> =
            CHOSEN.iter().chain(&CHOSEN).map(|(_, _, numbers)| numbers[column]).collect();
        for file in ["p.yaml", "p.YML.gz"] {
            let arguments = ["classify", file, "trace"].into_iter().chain(options.split_whitespace());
            let found = run(&folder.0, &arguments.collect::<Vec<_>>());
            assert_eq!((found.code, found.stderr.as_str()), (Some(0), ""), "{file} {options}");
            assert_eq!(found.stdout.lines().collect::<Vec<_>>(), expected, "{file} {options}");
        }
    }
    // The default tenant may be named as well.
    let found = run(&folder.0, &["classify", "p.yaml", "trace", "--tenant", "default", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&found.stdout).unwrap();
    let numbers = [2, 2, -1, 3, -1, -1].repeat(2);
    assert_eq!(found, serde_json::json!({ "rules": 4, "answers": numbers }));
}

#[test]
fn many_policies_are_chosen_as_by_a_search_through_the_file() {
    // Of both versions, some of the second tenant, some on a link; more than a linear search is chosen for.
    let mut text = "tenants: [{name: red, select: {vlan: 7}}]\npolicies:\n".to_owned();
    let mut policies = Vec::new();
    for n in 0..300u16 {
        let v6 = n % 2 == 1;
        let net = |a: u16, long: bool| match (v6, long) {
            (false, true) => (format!("10.{}.{a}.0/24", a % 5), 24),
            (false, false) => (format!("10.{}.0.0/16", a % 5), 16),
            (true, true) => (format!("2001:db8:{:x}:{a:x}::/64", a % 5), 64),
            (true, false) => (format!("2001:db8:{:x}::/48", a % 5), 48),
        };
        let (from, to) = (net(n % 90, n % 3 > 0), net(n * 7 % 80, n % 5 > 0));
        let (red, dmz) = (n % 4 > 1, n % 11 == 0);
        let tenant = if red { "red" } else { "default" };
        let link = if dmz { ", link: dmz" } else { "" };
        text += &format!(
            "  - {{name: p{n}, from: \"{}\", to: \"{}\", tenant: {tenant}{link}, chain: []}}\n",
            from.0, to.0
        );
        policies.push((from, to, red, dmz));
    }
    text += "default: {action: allow}\n";
    let folder = Folder::new();
    folder.write("p.yaml", text);
    let lies = |address: IpAddr, (net, length): &(String, u32)| {
        let first: IpAddr = net.split('/').next().unwrap().parse().unwrap();
        match (address, first) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (u32::from(a) ^ u32::from(b)) >> (32 - length) == 0,
            (IpAddr::V6(a), IpAddr::V6(b)) => (u128::from(a) ^ u128::from(b)) >> (128 - length) == 0,
            _ => false,
        }
    };
    for (options, red, dmz) in
        [("", false, false), ("--tenant red", true, false), ("--link dmz", false, true)]
    {
        let options: Vec<&str> = options.split_whitespace().collect();
        let with = |more: &[&str]| {
            let ran = run(&folder.0, &[&["classify", "p.yaml"], more, &options].concat());
            assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{more:?} {options:?}");
            ran.stdout
        };
        for how in ["U", "C", "P", "Z", "X"] {
            let trace = with(&["--draw", "600", "--how", how, "--seed", "5"]);
            folder.write("trace", &trace);
            let found: Vec<i64> = with(&["trace"]).lines().map(|n| n.parse().unwrap()).collect();
            let mut seen = [false; 2];
            let mut expected = Vec::new();
            for header in trace.lines() {
                let words: Vec<&str> = header.split('\t').collect();
                let ends: [IpAddr; 2] = [words[0].parse().unwrap(), words[1].parse().unwrap()];
                seen[usize::from(ends[0].is_ipv6())] = true;
                let fits = |(from, to, of_red, on_dmz): &((String, u32), (String, u32), bool, bool)| {
                    let way = |a, b| lies(a, from) && lies(b, to);
                    *of_red == red && (!on_dmz || dmz) && (way(ends[0], ends[1]) || way(ends[1], ends[0]))
                };
                expected.push(policies.iter().position(fits).map_or(-1, |n| n as i64));
            }
            assert_eq!(found, expected, "{how} {options:?}");
            assert_eq!((found.len(), seen), (600, [true; 2]), "{how}: both versions are drawn");
            let distinct: std::collections::BTreeSet<i64> = found.iter().copied().collect();
            assert!(
                distinct.len() > 40 && (how == "Z" || distinct.contains(&-1)),
                "{how}: {} numbers",
                distinct.len()
            );
        }
    }
}

#[test]
fn policies_have_the_same_report_as_rules() {
    let folder = Folder::new();
    folder.write("rules", rules());
    folder.write("p.yaml", POLICIES);
    // Of a policy file: two versions, both ways; `dns` for two tenants; between `any` and a prefix no other
    // pair.
    for (file, rules, entries) in [("rules", 61, 61), ("p.yaml", 4, 20)] {
        let told = run(&folder.0, &["classify", file]);
        assert_eq!((told.code, told.stderr.as_str()), (Some(0), ""), "{file}");
        let names = ["rules", "entries", "structure", "build", "memory", "throughput"];
        let of = |name: &str| {
            let line = told.stdout.lines().find(|line| line.starts_with(name)).unwrap();
            line[name.len()..].trim().to_owned()
        };
        assert!(names.iter().all(|name| !of(name).is_empty()), "{}", told.stdout);
        assert_eq!((of("rules"), of("entries")), (rules.to_string(), entries.to_string()), "{file}");
        let told = run(&folder.0, &["classify", file, "--json"]);
        let told: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
        assert_eq!((&told["rules"], &told["entries"]), (&rules.into(), &entries.into()), "{file}");
        assert!(told["lookups_per_second"].as_f64() > Some(1000.0), "{told}");
        assert!(told["memory_bytes"].as_u64() > Some(0) && told["build_seconds"].is_f64(), "{told}");
        assert!(told["structure"].as_str().unwrap().contains(&format!("{entries} rules")), "{told}");
    }
    // Where no policy holds, the default does: there is something to look up.
    folder.write("none.yaml", "policies: []\ndefault: {action: drop}\n");
    let told = run(&folder.0, &["classify", "none.yaml", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
    assert!(told["rules"] == 0 && told["lookups_per_second"].as_f64() > Some(1000.0), "{told}");
}

#[test]
fn what_is_wrong_with_policies_is_said_with_what_to_do() {
    let folder = Folder::new();
    folder.write("rules", rules());
    folder.write("p.yaml", POLICIES);
    folder.write("p", POLICIES);
    folder.write("damaged.yaml.gz", b"\x1f\x8bxxxxxxxxxxxxxxxxx");
    folder.write("latin.yaml", b"policies: []\n# \xe4\ndefault: {action: drop}\n");
    folder.write("broken.yaml", "policies:\n  - {name: a, chain: []\ndefault: {action: drop}\n");
    folder.write("key.yaml", POLICIES.replace("tenant: red, to", "tenant: red, too"));
    folder.write("tenant.yaml", POLICIES.replace("tenant: red, to", "tenant: rde, to"));
    folder.write("chain.yaml", POLICIES.replace("to: servers, chain: []", "to: servers, chain: [pwf]"));
    folder.write("trace", line("10.0.0.1", "10.0.0.2"));
    folder.write("short", "10.0.0.1 10.0.0.2 1\n");
    for (arguments, code, says) in [
        ("p.yaml trace --tenant rad", 1, "p.yaml has no tenant `rad`; did you mean `red`?"),
        ("p.yaml trace --link branhc", 1, "no policy names a link `branhc`; did you mean `branch`?"),
        ("p.yaml short", 1, "short: line 1, `destination port`"),
        ("p.yaml --generate 10", 2, "give ClassBench rules instead of p.yaml, or draw headers with --draw"),
        ("rules trace --tenant red", 2, "--tenant applies to policy files (`.yaml`, `.yml`)"),
        ("rules --link branch", 2, "--link applies to policy files (`.yaml`, `.yml`)"),
        ("p trace", 1, "`groups:` is not `@`; the name of a policy file ends in .yaml or .yml"),
        ("nowhere.yaml trace", 1, "cannot open policy file nowhere.yaml: no such file; check the path"),
        ("damaged.yaml.gz", 1, "`gzip -t`"),
        ("latin.yaml", 1, "latin.yaml:2:3: the policy file is not UTF-8 here"),
        ("broken.yaml", 1, "broken.yaml:3:1: not YAML: invalid indentation"),
        ("key.yaml", 1, "key.yaml:8:35: the key `too` is not known; did you mean `to`?"),
        ("tenant.yaml", 1, "tenant.yaml:8:30: there is no tenant `rde`; did you mean `red`?"),
        ("chain.yaml", 1, "chain.yaml:8:56: there is no function `pwf`; did you mean `pfw`?"),
    ] {
        let arguments: Vec<&str> = ["classify"].into_iter().chain(arguments.split(' ')).collect();
        let ended = run(&folder.0, &arguments);
        assert_eq!(ended.code, Some(code), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(says) && ended.stdout.is_empty(), "{arguments:?}: {}", ended.stderr);
    }
}
