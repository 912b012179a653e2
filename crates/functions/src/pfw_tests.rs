// SPDX-License-Identifier: Apache-2.0
//! The packet filter, interpreted from its tables alone.

use super::*;
use bartizan_base::LinkId;
use bartizan_classify::Header;
use bartizan_function::{HostTables, PatternSets, RulePart};
use bartizan_packet::tables::{MatchEntry, MatchEntryFlags};
use bartizan_testkit::random::Random;
use core::net::IpAddr;
use std::collections::HashSet;

/// A match entry of a rule, as a level below has it.
fn match_entry(fid: Fid, outcome: u32, rule: &HeaderRule) -> [u8; MatchEntry::LEN] {
    let mut flags = MatchEntryFlags::VALID;
    let halves = |net: Option<Net>| {
        let number = match net.map(|net| net.address) {
            Some(IpAddr::V4(v4)) => u128::from(u32::from(v4)),
            Some(IpAddr::V6(v6)) => u128::from(v6),
            None => 0,
        };
        ((number >> 64) as u64, number as u64)
    };
    flags.set(MatchEntryFlags::TENANT, rule.tenant.is_some());
    flags.set(MatchEntryFlags::LINK, rule.link.is_some());
    flags.set(MatchEntryFlags::SOURCE, rule.source.is_some());
    flags.set(MatchEntryFlags::DESTINATION, rule.destination.is_some());
    flags.set(MatchEntryFlags::PROTOCOL, rule.protocol.is_some());
    let v6 = |net: Option<Net>| net.is_some_and(|net| net.address.is_ipv6());
    flags.set(MatchEntryFlags::IPV6, v6(rule.source) || v6(rule.destination));
    MatchEntry {
        source_high: halves(rule.source).0,
        source_low: halves(rule.source).1,
        destination_high: halves(rule.destination).0,
        destination_low: halves(rule.destination).1,
        source_first: rule.source_ports.first,
        source_last: rule.source_ports.last,
        destination_first: rule.destination_ports.first,
        destination_last: rule.destination_ports.last,
        tenant: rule.tenant.map_or(0, |tenant| tenant.0),
        link: rule.link.map_or(0, |link| link.0),
        source_length: rule.source.map_or(0, |net| net.length),
        destination_length: rule.destination.map_or(0, |net| net.length),
        protocol: rule.protocol.unwrap_or(0),
        flags: flags.bits(),
        fid: fid.0,
        outcome,
        generation: 1,
    }
    .write()
}

/// Whether an entry's bytes match a header of a class, by numbers alone.
fn matches(entry: &[u8; MatchEntry::LEN], fid: Fid, header: &Header) -> bool {
    let entry = MatchEntry::read(entry);
    let flags = MatchEntryFlags::from_bits_retain(entry.flags);
    let counts = |flag| flags.contains(flag);
    let lies = |(high, low): (u64, u64), length: u8, address: IpAddr| {
        let (number, width) = match address {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)), 32),
            IpAddr::V6(v6) => (u128::from(v6), 128),
        };
        let differ = number ^ (u128::from(high) << 64 | u128::from(low));
        address.is_ipv6() == counts(MatchEntryFlags::IPV6)
            && differ.checked_shr(width - u32::from(length)).unwrap_or(0) == 0
    };
    let source = (entry.source_high, entry.source_low);
    let destination = (entry.destination_high, entry.destination_low);
    counts(MatchEntryFlags::VALID)
        && entry.fid == fid.0
        && (!counts(MatchEntryFlags::TENANT) || entry.tenant == header.tenant.0)
        && (!counts(MatchEntryFlags::LINK) || entry.link == header.link.0)
        && (!counts(MatchEntryFlags::PROTOCOL) || entry.protocol == header.protocol)
        && (entry.source_first..=entry.source_last).contains(&header.source_port)
        && (entry.destination_first..=entry.destination_last).contains(&header.destination_port)
        && (!counts(MatchEntryFlags::SOURCE) || lies(source, entry.source_length, header.source))
        && (!counts(MatchEntryFlags::DESTINATION)
            || lies(destination, entry.destination_length, header.destination))
}

#[test]
fn a_level_that_has_only_the_tables_decides_alike() {
    let all = ["0.0.0.0/0", "::/0"];
    let rules = serde_json::json!({
        "tenants": {"a": 1},
        "classes": [
            {"policy": "web", "fids": [1, 2], "from": all, "to": all, "rules": {"default": "drop", "rules": [
                {"drop": "tcp", "from": ["10.9.0.0/16", "2001:db8:9::/48"]},
                {"allow": "tcp", "to-ports": [80, 443, "8000-8010"]},
                {"reject": ["tcp", "udp"], "to-ports": 23},
                {"allow": "udp", "from-ports": 53, "to-ports": "1024-65535", "tenant": "a"},
                {"allow": ["icmp", "icmpv6"], "type": [8, 128], "code": 0},
            ]}},
            {"policy": "rest", "fids": [3], "from": all, "to": all, "rules": {"default": "reject", "rules": [
                {"allow": "any", "to": ["10.1.2.3", "2001:db8:1::3"]},
            ]}},
        ],
    });
    let id = FunctionId(0);
    let hosts = HostTables::default();
    let (common, classes) = RulePart::split(rules);
    let source = RuleSource {
        common: &Arc::new(common),
        classes: &classes,
        place: "",
        generation: Generation(1),
        id,
        hosts: &hosts,
        patterns: &PatternSets::default(),
        names: &std::sync::Arc::default(),
    };
    let mut pfw = Pfw::of(&source).expect("rules");
    // The host's lookup, and the action of each rule by its policy.
    let host: Vec<HeaderRules> = pfw.take_header_rules();
    let (allow, drop, reject) = (Verdict::Continue, Verdict::Drop, Verdict::Reject);
    let said: [&[Verdict]; 2] = [&[drop, allow, reject, allow, allow, drop], &[allow, reject]];
    let mut entries = Vec::new();
    for (list, span) in host.iter().zip(&pfw.filters) {
        for fid in list.fids.iter() {
            let rule = |(number, rule): &(u32, HeaderRule)| match_entry(*fid, span.first + number, rule);
            entries.extend(list.rules.iter().map(rule));
            entries.push(match_entry(*fid, span.first + span.rules, &HeaderRule::default()));
        }
    }
    let addresses = ["10.9.1.1", "10.1.2.3", "10.1.2.4", "2001:db8:9::1", "2001:db8:1::3", "2001:db8:1::4"];
    let addresses = addresses.map(|text| text.parse::<IpAddr>().expect("an address"));
    let mut random = Random::new(19);
    let mut met = HashSet::new();
    for _ in 0..4000 {
        let fid = Fid(1 + random.below(3) as u32);
        let v6 = random.below(2) * 3;
        let port = |random: &mut Random| {
            *random.pick(&[0u16, 8, 23, 53, 80, 128, 443, 1023, 1024, 7999, 8000, 8010, 8011, 65_535])
        };
        let header = Header {
            tenant: TenantId(random.below(2) as u16),
            source: addresses[v6 + random.below(3)],
            destination: addresses[v6 + random.below(3)],
            protocol: *random.pick(&[1, 6, 17, 47, 58]),
            source_port: port(&mut random),
            destination_port: port(&mut random),
            link: LinkId(0),
        };
        let policy = usize::from(fid == Fid(3));
        let first =
            host[policy].rules.iter().filter(|(_, rule)| rule.matches(&header)).map(|(n, _)| *n).min();
        let number = first.map_or(said[policy].len() - 1, |number| number as usize);
        let found = entries.iter().find(|entry| matches(entry, fid, &header)).expect("the default");
        let outcome =
            pfw_table::interpret(&pfw.table[MatchEntry::read(found).outcome as usize], Some(header.protocol));
        assert_eq!(outcome.verdict, said[policy][number], "{header:?}");
        assert_eq!(outcome.rule as usize, first.map_or(0, |_| number + 1), "{header:?}");
        let name = &pfw.counters[outcome.counter as usize];
        assert_eq!(name.policy, ["web", "rest"][policy]);
        let rule = &pfw.counters[pfw.filters[policy].first as usize + number];
        assert_eq!((name.rule == "default", &name.rule), (first.is_none(), &rule.rule));
        met.insert(name);
    }
    assert_eq!(met.len(), 8, "{met:?}");
}

/// The packet filter of one policy with these rules; `ports`: the host's ports, `null` without a host.
fn filter(ports: &serde_json::Value, rules: &serde_json::Value) -> Result<Pfw, Vec<String>> {
    let all = ["0.0.0.0/0", "::/0"];
    let rules = serde_json::json!({
        "ports": ports,
        "classes": [{"policy": "web", "fids": [1], "from": all, "to": all, "rules": {"default": "drop", "rules": rules}}],
    });
    let hosts = HostTables::default();
    let (common, classes) = RulePart::split(rules);
    let source = RuleSource {
        common: &Arc::new(common),
        classes: &classes,
        place: "",
        generation: Generation(1),
        id: FunctionId(0),
        hosts: &hosts,
        patterns: &PatternSets::default(),
        names: &std::sync::Arc::default(),
    };
    let errors = |errors: Vec<RulesError>| errors.into_iter().map(|e| format!("{}: {}", e.place, e.message));
    Pfw::of(&source).map_err(|found| errors(found).collect())
}

#[test]
fn a_rule_redirects_flows_to_a_port_of_the_host() {
    let ports = serde_json::json!({"spare": 0, "trap": 1});
    let rules =
        serde_json::json!([{"redirect": ["tcp", "udp"], "to-ports": 23, "egress": "trap"}, {"allow": "tcp"}]);
    let pfw = filter(&ports, &rules).expect("rules");
    let said = |rule| {
        let place = pfw.filters[0].place(rule);
        pfw.decision(&pfw_table::interpret(&pfw.table[place], Some(6)))
    };
    let redirected = said(Some(0));
    assert_eq!((redirected.verdict, redirected.done), (Verdict::Continue, true));
    assert_eq!(redirected.egress, Some(bartizan_base::PortIndex(1)));
    assert_eq!((said(Some(1)).egress, said(None).egress), (None, None));
    assert_eq!(said(None).verdict, Verdict::Drop);
    let mut counts = PfwCounts { rules: vec![0; pfw.counters.len()], ..PfwCounts::default() };
    counts.count(&pfw_table::interpret(&pfw.table[0], Some(6)), 3);
    counts.count(&pfw_table::interpret(&pfw.table[1], Some(6)), 2);
    assert_eq!((counts.allowed, counts.redirected, &counts.rules[..2]), (5, 3, &[3, 2][..]));
    // A level below refuses none of its packets without a flow.
    assert_eq!(pfw.refuses(Fid(1), Some(0)).err(), Some(HandsUp::LetsGo));
    assert!(pfw.refuses(Fid(1), None).is_ok());
}

#[test]
fn what_is_wrong_with_a_redirect_is_told_where_it_stands() {
    let host = serde_json::json!({"trap": 0});
    let none = serde_json::json!({});
    let without_host = serde_json::Value::Null;
    for (ports, rule, place, said) in [
        (&host, serde_json::json!({"redirect": "tcp"}), "/redirect", "egress: NAME"),
        (&without_host, serde_json::json!({"redirect": "tcp", "egress": ""}), "/redirect", "egress: NAME"),
        (&host, serde_json::json!({"redirect": "tcp", "egress": "tarp"}), "/egress", "did you mean `trap`"),
        (&none, serde_json::json!({"redirect": "tcp", "egress": "trap"}), "/egress", "it has none"),
        (&host, serde_json::json!({"allow": "tcp", "egress": "trap"}), "/egress", "write `redirect`"),
        (&host, serde_json::json!({"allow": "tcp", "redirect": "udp", "egress": "trap"}), "", "exactly one"),
    ] {
        let errors = filter(ports, &serde_json::json!([rule])).expect_err("it is wrong");
        let [error] = errors.as_slice() else { panic!("{errors:?}") };
        assert!(error.starts_with(&format!("classes/0/rules/rules/0{place}: ")), "{error}");
        assert!(error.contains(said), "{error}");
    }
    let rule = serde_json::json!([{"redirect": "tcp", "egress": "any name"}]);
    assert!(filter(&without_host, &rule).is_ok(), "nobody knows what the host will have");
}

#[test]
fn a_rule_that_no_packet_matches_is_an_error_where_it_stands() {
    use serde_json::json;
    let (v4, v6) = ("10.0.0.0/8", "2001:db8::/32");
    for (rule, place, words) in [
        (
            json!({"allow": "icmp", "type": 256}),
            "/type",
            "`256` is out of range for ICMP types; use numbers from 0 to 255",
        ),
        (json!({"drop": "icmpv6", "type": [1, "128-256"]}), "/type", "`128-256` is out of range"),
        (json!({"allow": "icmp", "code": "300-400"}), "/code", "`300-400` is out of range for ICMP codes"),
        (json!({"allow": "icmpv6", "type": 1, "code": 1000}), "/code", "`1000` is out of range"),
        (
            json!({"drop": "icmpv6", "from": v4}),
            "/drop",
            "icmpv6 belongs to IPv6, and the rule has only IPv4 addresses",
        ),
        (json!({"allow": 58, "to": [v4, "192.0.2.1"]}), "/allow", "write `icmp`, or use addresses of IPv6"),
        (
            json!({"reject": "icmp", "to": v6}),
            "/reject",
            "icmp belongs to IPv4, and the rule has only IPv6 addresses",
        ),
        (json!({"redirect": "icmp", "egress": "x", "from": v6}), "/redirect", "write `icmpv6`"),
        (json!({"drop": "icmp", "from": [v4, v6], "to": v6}), "/drop", "icmp belongs to IPv4"),
        (
            json!({"drop": "tcp", "from": v4, "to": v6}),
            "/to",
            "`from` has addresses of IPv4 only and `to` of IPv6 only",
        ),
        (
            json!({"drop": "any", "from": "::/0", "to": "0.0.0.0/0"}),
            "/to",
            "`from` has addresses of IPv6 only",
        ),
    ] {
        let errors = filter(&serde_json::Value::Null, &json!([rule])).expect_err("no packet matches it");
        let [error] = errors.as_slice() else { panic!("{errors:?}") };
        assert!(error.starts_with(&format!("classes/0/rules/rules/0{place}: ")), "{error}");
        assert!(error.contains(words), "{error}");
    }
    for rule in [
        json!({"allow": "icmp", "type": "0-255", "code": 255}),
        json!({"allow": "icmpv6", "type": "any", "code": "any"}),
        json!({"allow": ["icmp", "icmpv6"], "from": v4}),
        json!({"allow": "any", "from": v6}),
        json!({"drop": "icmpv6", "from": [v4, v6]}),
        json!({"drop": "tcp", "from": [v4, v6], "to": v6}),
    ] {
        assert!(filter(&serde_json::Value::Null, &json!([rule])).is_ok(), "{rule}");
    }
}

#[test]
fn a_rule_behind_one_that_matches_all_of_it_is_warned_of() {
    use serde_json::json;
    for (first, second, expected) in [
        (json!({"allow": "any"}), json!({"drop": "tcp", "to-ports": 80}), true),
        (json!({"drop": "tcp"}), json!({"drop": "tcp"}), true),
        (json!({"drop": "tcp"}), json!({"drop": "any"}), false),
        (json!({"drop": ["tcp", "udp"]}), json!({"allow": "udp", "from-ports": 53}), true),
        (json!({"drop": "tcp", "to-ports": "1-1024"}), json!({"allow": "tcp", "to-ports": [80, 443]}), true),
        (json!({"drop": "tcp", "to-ports": [80]}), json!({"allow": "tcp", "to-ports": [80, 443]}), false),
        (json!({"drop": "tcp", "to-ports": 80}), json!({"allow": "tcp"}), false),
        (json!({"drop": "icmp", "type": "0-255"}), json!({"allow": "icmp", "type": 8, "code": 0}), true),
        (json!({"drop": "icmp", "type": 8}), json!({"allow": "icmp"}), false),
        (json!({"drop": "any", "from": "10.0.0.0/8"}), json!({"allow": "tcp", "from": "10.1.0.0/16"}), true),
        (json!({"drop": "any", "to": "2001:db8::/32"}), json!({"allow": "tcp", "to": "2001:db8::1"}), true),
        (json!({"drop": "any", "from": "10.0.0.0/8"}), json!({"allow": "tcp", "to": "10.1.0.0/16"}), false),
        (json!({"drop": "any", "from": "10.1.0.0/16"}), json!({"allow": "tcp", "from": "10.0.0.0/8"}), false),
        (
            json!({"drop": "any", "from": ["10.0.0.0/8", "::/0"]}),
            json!({"allow": "tcp", "from": ["10.1.0.0/16", "::1"]}),
            true,
        ),
        // Which side opens the flow matters.
        (
            json!({"drop": "any", "from": "10.0.0.1", "to": "10.0.0.2"}),
            json!({"drop": "any", "from": "10.0.0.2", "to": "10.0.0.1"}),
            false,
        ),
    ] {
        let mut pfw = filter(&serde_json::Value::Null, &json!([first, second])).expect("rules");
        let warnings = pfw.take_warnings();
        assert_eq!(warnings.len(), usize::from(expected), "{first} before {second}: {warnings:?}");
        if let [warning] = warnings.as_slice() {
            assert_eq!(warning.place, "classes/0/rules/rules/1");
            assert!(
                warning.message.starts_with("this rule is never reached: rule 1 of this policy"),
                "{warning}"
            );
        }
        assert!(pfw.take_warnings().is_empty(), "they are taken once");
    }
}

#[test]
fn what_was_warned_of_is_not_warned_of_again_while_the_policy_stays() {
    let all = ["0.0.0.0/0", "::/0"];
    let rules = serde_json::json!({"default": "drop", "rules": [{"allow": "any"}, {"drop": "tcp"}]});
    let classes = [serde_json::json!({"policy": "web", "fids": [1], "from": all, "to": all, "rules": rules})];
    let (common, classes) = RulePart::split(serde_json::json!({"classes": classes}));
    let common = Arc::new(common);
    let warnings = || {
        let source = RuleSource {
            common: &common,
            classes: &classes,
            place: "",
            generation: Generation(1),
            id: FunctionId(0),
            hosts: &HostTables::default(),
            patterns: &PatternSets::default(),
            names: &Arc::default(),
        };
        Pfw::of(&source).expect("rules").take_warnings().len()
    };
    assert_eq!([warnings(), warnings()], [1, 0]);
}

/// Sections of one policy, `web`, for the class 1.
fn built(rules: serde_json::Value) -> Pfw {
    let all = ["0.0.0.0/0", "::/0"];
    let classes = [serde_json::json!({"policy": "web", "fids": [1], "from": all, "to": all, "rules": rules})];
    let (common, classes) = RulePart::split(serde_json::json!({"classes": classes}));
    let source = RuleSource {
        common: &Arc::new(common),
        classes: &classes,
        place: "",
        generation: Generation(1),
        id: FunctionId(0),
        hosts: &HostTables::default(),
        patterns: &PatternSets::default(),
        names: &Arc::default(),
    };
    Pfw::of(&source).expect("rules")
}

/// Names and places of the counters of a filter with these rules.
fn counters(rules: &serde_json::Value) -> Result<Vec<(String, u32)>, Vec<String>> {
    let pfw = filter(&serde_json::Value::Null, rules)?;
    let mut all = Vec::new();
    pfw.log_rules(&pfw.worker(), &mut |rule| all.push((rule.name.rule.clone(), rule.place)));
    Ok(all)
}

#[test]
fn a_counter_goes_with_its_rule_wherever_that_stands() {
    let named = serde_json::json!({"drop": "udp", "to-ports": 53, "name": "no-dns", "comment": "a"});
    let (web, telnet) = (
        serde_json::json!({"allow": "tcp", "to-ports": [80]}),
        serde_json::json!({"reject": "tcp", "to-ports": 23}),
    );
    let before = counters(&serde_json::json!([named, web, telnet])).unwrap();
    let after = counters(&serde_json::json!([{"drop": "sctp"}, telnet, named, web])).unwrap();
    let place =
        |of: &[(String, u32)], name: &str| of.iter().find(|(n, _)| n == name).map(|(_, place)| *place);
    let names: Vec<&str> = before.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((names[0], names[3], before[3].1), ("no-dns", "default", 0));
    assert!(names[1].starts_with("allow:") && names[2].starts_with("reject:"), "{names:?}");
    assert_eq!([1, 2, 3, 0].to_vec(), before.iter().map(|(_, place)| *place).collect::<Vec<_>>());
    let moved: Vec<_> = names.iter().map(|name| place(&after, name)).collect();
    assert_eq!(moved, [Some(3), Some(4), Some(2), Some(0)]);
    // A remark is not part of a rule's content; a port is. A named rule keeps its name.
    let remark = counters(&serde_json::json!([{"allow": "tcp", "to-ports": 80, "comment": "x"}])).unwrap();
    assert_eq!(remark[0].0, names[1], "also without brackets");
    let other =
        counters(&serde_json::json!([{"allow": "tcp", "to-ports": 81}, {"allow": "tcp", "name": "no-dns"}]))
            .unwrap();
    assert!(other[0].0 != names[1] && other[1].0 == "no-dns");
    // Equal rules are numbered.
    let twice = counters(&serde_json::json!([web, web, web])).unwrap();
    let expected =
        [names[1].to_owned(), format!("{}~2", names[1]), format!("{}~3", names[1]), "default".to_owned()];
    assert_eq!(twice.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), expected);
}

#[test]
fn names_of_rules_are_plain_and_one_within_the_policy() {
    let rule = |name: &str| serde_json::json!({"allow": "tcp", "name": name});
    for wrong in ["", "default", "a b", "a.b", "allow:1", "\u{e9}", &"x".repeat(65)] {
        let errors = counters(&serde_json::json!([{"drop": "udp"}, rule(wrong)])).expect_err(wrong);
        assert!(
            errors[0].starts_with("classes/0/rules/rules/1/name: the name of a rule has 1 to 64"),
            "{errors:?}"
        );
    }
    let errors =
        counters(&serde_json::json!([rule("web"), {"drop": "udp"}, rule("web")])).expect_err("twice");
    assert!(
        errors[0].starts_with("classes/0/rules/rules/2/name: rule 1 of this policy has this name"),
        "{errors:?}"
    );
    assert!(counters(&serde_json::json!([rule(&"x".repeat(64)), rule("A-z_9")])).is_ok());
}

#[test]
fn long_lists_of_one_version_are_not_compared_with_those_of_the_other() {
    let v4: Vec<String> = (0..40_000u32).map(|n| core::net::Ipv4Addr::from(n << 8).to_string()).collect();
    let mut v6: Vec<String> =
        (0..40_000u32).map(|n| format!("2001:db8::{:x}:{:x}", n >> 16, n & 0xffff)).collect();
    v6.push("192.0.2.1".to_owned());
    let rules = serde_json::json!({"default": "drop", "rules": [
        {"allow": "tcp", "from": v4, "to": v6},
        {"allow": "tcp", "from": ["10.0.0.1", "2001:db8::1"], "to": ["10.0.0.2", "2001:db8::2", "2001:db8::3"]},
    ]});
    let mut pfw = built(rules);
    let lists = pfw.take_header_rules();
    let pairs: Vec<_> =
        lists[0].rules.iter().map(|(number, rule)| (*number, rule.source, rule.destination)).collect();
    assert_eq!(pairs.iter().filter(|(number, ..)| *number == 1).count(), 3);
    assert_eq!(pairs.len(), 40_000 + 3);
    assert!(pairs.iter().all(|(_, a, b)| { a.unwrap().address.is_ipv4() == b.unwrap().address.is_ipv4() }));
}
