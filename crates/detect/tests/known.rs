// SPDX-License-Identifier: Apache-2.0
//! Generations share the rules that they have in common.

use bartizan_base::{SettingsMap, TenantId};
use bartizan_detect::keywords::apply_thresholds;
use bartizan_detect::known::RuleCache;
use bartizan_detect::ruleset::{LoadInput, Loaded, load};
use bartizan_detect::shared::Shared;
use bartizan_pattern::{Compiler, Config};
use bartizan_rules::{Classifications, RuleVariables, parse_classifications, parse_thresholds};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

/// Loads one after the other.
struct Loads {
    settings: SettingsMap,
    variables: RuleVariables,
    classes: Classifications,
    shared: Arc<Shared>,
    compiler: Compiler,
    known: RuleCache,
}

impl Loads {
    fn new() -> Self {
        let mut settings = SettingsMap::new();
        settings.set("default-data-dir", env!("CARGO_TARGET_TMPDIR"));
        Loads {
            settings,
            variables: RuleVariables::new(),
            classes: parse_classifications(b"config classification: bad,Bad,2\n".to_vec(), "classes"),
            shared: Arc::default(),
            compiler: Compiler::new(Config::default()).unwrap(),
            known: RuleCache::default(),
        }
    }

    fn load(&self, text: &str, tenants: &[(TenantId, RuleVariables)]) -> Loaded {
        let input = LoadInput {
            settings: &self.settings,
            variables: &self.variables,
            classifications: Some(&self.classes),
            references: None,
            shared: &self.shared,
            compiler: &self.compiler,
            tenants,
            known: Some(&self.known),
        };
        let file = bartizan_rules::parse_file(text.as_bytes(), "test.rules");
        load(&mut [file], &input).unwrap()
    }
}

/// Sids of the rules that both have, each the same piece of memory.
fn shared(a: &Loaded, b: &Loaded) -> Vec<u32> {
    let both = a
        .rules
        .signatures
        .iter()
        .filter(|s| b.rules.signatures.iter().any(|other| Arc::ptr_eq(&s.signature, &other.signature)));
    let mut sids: Vec<u32> = both.map(|s| s.id.sid).collect();
    sids.sort_unstable();
    sids
}

fn rule(sid: u32, options: &str) -> String {
    format!("alert tcp any any -> any any (msg:\"m\"; {options} sid:{sid};)\n")
}

#[test]
fn a_rule_that_is_as_it_was_is_shared() {
    let loads = Loads::new();
    let first = loads
        .load(&[rule(1, "content:\"one\";"), rule(2, "content:\"two\"; pcre:\"/t+wo/\";")].concat(), &[]);
    assert_eq!(shared(&first, &first), [1, 2]);
    // A rule at another place among other rules is the same; a rule that differs in one letter is another.
    let other = [
        rule(3, "content:\"three\";"),
        rule(2, "content:\"two\"; pcre:\"/t+wo/\";"),
        rule(1, "content:\"One\";"),
    ];
    let second = loads.load(&other.concat(), &[]);
    assert_eq!(shared(&first, &second), [2]);
    // The order of evaluation follows the numbers, whichever rule was loaded first.
    let sids: Vec<u32> = second.rules.signatures.iter().map(|s| s.id.sid).collect();
    assert_eq!(sids, [1, 2, 3]);
    // Rules that no generation has are not kept.
    drop(first);
    let gone =
        second.rules.signatures.iter().find(|s| s.id.sid == 1).map(|s| Arc::downgrade(&s.signature)).unwrap();
    drop(second);
    assert!(gone.upgrade().is_none());
    let third = loads.load(&rule(2, "content:\"two\";"), &[]);
    assert_eq!(third.rules.signatures.len(), 1);
}

#[test]
fn what_comes_from_outside_is_compiled_anew() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("known");
    std::fs::create_dir_all(&folder).unwrap();
    let (set, sums) = (folder.join("set.list"), folder.join("sums.list"));
    std::fs::write(&set, "YWJj\n").unwrap();
    std::fs::write(&sums, "900150983cd24fb0d6963f7d28e17f72\n").unwrap();
    let loads = Loads::new();
    let text = [
        format!(
            "alert http any any -> any any (http.uri; dataset:isset,known,type string,load {}; sid:1;)\n",
            set.display()
        ),
        format!("alert http any any -> any any (filemd5:{}; sid:2;)\n", sums.display()),
        "alert tcp any any -> any any (content:\"x\"; classtype:nobody-knows; sid:3;)\n".to_owned(),
        rule(4, "content:\"plain\"; classtype:bad;"),
    ]
    .concat();
    let (first, second) = (loads.load(&text, &[]), loads.load(&text, &[]));
    let complaints: Vec<_> = first.diagnostics.iter().map(|d| d.message.clone()).collect();
    assert_eq!(first.rules.report.loaded, 4, "{complaints:?}");
    assert_eq!(shared(&first, &second), [4]);
    // The warning about the undefined class comes with each load.
    assert_eq!((first.diagnostics.len(), second.diagnostics.len()), (1, 1));
    // A missing file is noticed although the rule is the same.
    std::fs::remove_file(&sums).unwrap();
    let third = loads.load(&text, &[]);
    assert_eq!(third.rules.report.loaded, 3);
}

#[test]
fn what_belongs_to_a_set_is_not_shared() {
    let loads = Loads::new();
    let text = rule(1, "content:\"x\"; threshold:type limit,track by_src,count 1,seconds 60;")
        + &rule(2, "content:\"y\";");
    let mut first = loads.load(&text, &[]);
    let thresholds = parse_thresholds(&b"suppress gen_id 1, sig_id 2\nevent_filter gen_id 1, sig_id 1, type both, track by_src, count 3, seconds 9\n"[..], "t");
    assert!(thresholds.diagnostics.is_empty());
    assert!(apply_thresholds(&mut first.rules.signatures, &thresholds, &RuleVariables::new()).is_empty());
    let second = loads.load(&text, &[]);
    assert_eq!(shared(&first, &second), [1, 2]);
    let of = |loaded: &Loaded, sid| {
        let member = loaded.rules.signatures.iter().find(|s| s.id.sid == sid).unwrap();
        (member.reports(), member.thresholds.len())
    };
    assert_eq!((of(&first, 2), of(&second, 2)), ((false, 0), (true, 0)));
    assert_eq!(of(&second, 1), (true, 1));
    let own = |loaded: &Loaded| {
        let member = loaded.rules.signatures.iter().find(|s| s.id.sid == 1).unwrap();
        Arc::ptr_eq(&member.thresholds[0], &member.signature.thresholds[0])
    };
    assert_eq!((own(&first), own(&second)), (false, true));
}

#[test]
fn heads_are_those_of_the_set_over_ipv4_and_ipv6() {
    let mut loads = Loads::new();
    loads.variables.set_address("HOME_NET", "[192.0.2.0/24,2001:db8::/32]").unwrap();
    let of = |net: &str, sid| format!("alert ip {net} any -> any any (content:\"x\"; sid:{sid};)\n");
    let first = loads.load(&of("$HOME_NET", 1), &[]);
    let mut own = RuleVariables::new();
    own.set_address("HOME_NET", "[198.51.100.0/24,2001:db8:1::/48]").unwrap();
    // Another head stands first now, and a tenant has a network of its own.
    let second = loads.load(&(of("203.0.113.0/24", 2) + &of("$HOME_NET", 1)), &[(TenantId(3), own)]);
    assert_eq!(shared(&first, &second), [1]);
    let contains = |loaded: &Loaded, tenant, address: IpAddr| {
        let member = loaded.rules.signatures.iter().find(|s| s.id.sid == 1).unwrap();
        let head = loaded.rules.heads.get(tenant, member.head).unwrap();
        head.source.as_ref().unwrap().contains(address)
    };
    let v4 = |a, b, c| IpAddr::V4(Ipv4Addr::new(a, b, c, 9));
    let v6 = |third| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, third, 0, 0, 0, 0, 9));
    for (tenant, address, expected) in [
        (0, v4(192, 0, 2), [true, true]),
        (0, v6(0), [true, true]),
        (0, v4(203, 0, 113), [false, false]),
        (3, v4(192, 0, 2), [true, false]),
        (3, v4(198, 51, 100), [false, true]),
        (3, v6(0), [true, false]),
        (3, v6(1), [true, true]),
    ] {
        let holds = [&first, &second].map(|loaded| contains(loaded, TenantId(tenant), address));
        assert_eq!(holds, expected, "tenant {tenant}, {address}");
    }
}
