// SPDX-License-Identifier: Apache-2.0
//! The packet filter, packet by packet.

use crate::common;

use bartizan_base::{Reason, Verdict};
use bartizan_functions::pfw::PfwKind;
use common::*;

/// Reason, verdict, number of the rule; `None`: it is forwarded.
type Refusal = Option<(Reason, Verdict, u32)>;

const RULES: &str = r#"{"default": "drop", "rules": [
    {"drop": "tcp", "from": "bad"},
    {"allow": "tcp", "to-ports": [80, 443, "8000-8010"]},
    {"reject": ["tcp", "udp"], "to-ports": 23},
    {"allow": "udp", "from-ports": 53, "to-ports": "1024-65535"},
    {"allow": ["icmp", "icmpv6"], "type": [8, 128]},
    {"allow": 47},
    {"allow": "any", "from": "any", "to": ["192.0.2.0/24", "2001:db8:2::/64"], "tenant": "a"}
]}"#;

#[test]
fn the_first_rule_that_matches_decides() {
    for (client, server) in PAIRS {
        let bad = if client.contains(':') { "2001:db8:9::1" } else { "10.9.0.1" };
        let (c, s, bad) = (ip(client), ip(server), ip(bad));
        let cases: &[(Vec<u8>, Refusal)] = &[
            (tcp((c, 40_000), (s, 80), SYN, 1, 0, b""), None),
            (tcp((c, 40_000), (s, 8_010), SYN, 1, 0, b""), None),
            (tcp((c, 40_000), (s, 8_011), SYN, 1, 0, b""), Some((Reason::PfwDefault, Verdict::Drop, 0))),
            (tcp((bad, 40_000), (s, 80), SYN, 1, 0, b""), Some((Reason::PfwRule, Verdict::Drop, 1))),
            (tcp((c, 40_001), (s, 23), SYN, 1, 0, b""), Some((Reason::PfwRule, Verdict::Reject, 3))),
            (udp((c, 40_001), (s, 23), b"x"), Some((Reason::PfwRule, Verdict::Reject, 3))),
            (udp((c, 53), (s, 40_001), b"x"), None),
            (udp((c, 54), (s, 40_001), b"x"), Some((Reason::PfwDefault, Verdict::Drop, 0))),
            (icmp(c, s, (8, 128), 0, &[0, 1, 0, 1]), None),
            (icmp(c, s, (13, 139), 0, &[0; 16]), Some((Reason::PfwDefault, Verdict::Drop, 0))),
            (other(c, s, 47, &[0, 0, 0x88, 0xb5, 1, 2, 3, 4]), None),
            (other(c, s, 89, &[2; 24]), Some((Reason::PfwDefault, Verdict::Drop, 0))),
            // The rules apply to flows that `from` opens.
            (tcp((s, 40_000), (c, 80), SYN, 1, 0, b""), Some((Reason::PfwDefault, Verdict::Drop, 0))),
        ];
        let kind = PfwKind;
        let mut bench = Bench::new(&kind, RULES);
        for (bytes, expected) in cases {
            let decision = bench.run(bytes).expect("first packet");
            let got = (!decision.verdict.forwards())
                .then(|| (decision.reason.unwrap(), decision.verdict, decision.rule.map_or(0, |r| r.get())));
            assert_eq!(got, *expected, "{client} {bytes:?}");
            assert_eq!(decision.done, expected.is_none(), "{client} {bytes:?}");
        }
        assert_eq!(
            (bench.counter("allowed"), bench.counter("dropped"), bench.counter("rejected")),
            (5, 6, 2)
        );
        assert_eq!((bench.rule_counter(2), bench.rule_counter(3), bench.rule_counter(0)), (2, 2, 5));
    }
}

#[test]
fn a_refused_flow_stays_refused_and_an_allowed_one_is_not_looked_at_again() {
    for (client, server) in PAIRS {
        let (c, s) = ((ip(client), 40_000), (ip(server), 25));
        let kind = PfwKind;
        let mut bench = Bench::new(&kind, RULES);
        for _ in 0..3 {
            assert_eq!(bench.refused(&tcp(c, s, SYN, 1, 0, b"")), Some(Reason::PfwDefault));
        }
        assert_eq!(bench.refused(&tcp(s, c, SYN | ACK, 1, 2, b"")), Some(Reason::PfwDefault));
        assert_eq!(bench.rule_counter(0), 4);
        let s = (s.0, 443);
        assert!(bench.run(&tcp(c, s, SYN, 1, 0, b"")).expect("first").done);
        assert!(bench.run(&tcp(s, c, SYN | ACK, 1, 2, b"")).is_none());
    }
}

#[test]
fn another_generation_decides_again() {
    for (client, server) in PAIRS {
        let (c, s) = ((ip(client), 40_000), (ip(server), 25));
        let kind = PfwKind;
        let mut bench = Bench::new(&kind, RULES);
        assert_eq!(bench.refused(&udp(c, s, b"x")), Some(Reason::PfwDefault));
        bench.generation(&kind, r#"{"default": "allow"}"#, 2);
        assert_eq!(bench.refused(&udp(c, s, b"x")), None);
        bench.generation(&kind, RULES, 3);
        assert_eq!(bench.refused(&udp(s, c, b"x")), Some(Reason::PfwDefault));
    }
}

#[test]
fn other_classes_are_none_of_its_business() {
    let mut bench = Bench::new(&PfwKind, RULES);
    bench.set_class(bartizan_base::Fid(7));
    assert_eq!(bench.refused(&udp((ip("10.0.0.1"), 1), (ip("10.0.0.2"), 2), b"")), None);
}

#[test]
fn tenants_are_told_apart() {
    let bytes = udp((ip("2001:db8::1"), 1), (ip("2001:db8:2::1"), 2), b"");
    let mut bench = Bench::new(&PfwKind, RULES);
    assert_eq!(bench.refused(&bytes), Some(Reason::PfwDefault));
    let mut bench = Bench::new(&PfwKind, RULES);
    bench.set_tenant(bartizan_base::TenantId(1));
    assert_eq!(bench.refused(&bytes), None);
}

#[test]
fn icmp_codes_are_decided_packet_by_packet_and_answers_as_their_question() {
    let rules =
        r#"{"default": "drop", "rules": [{"allow": ["icmp", "icmpv6"], "type": [8, 128], "code": 0}]}"#;
    for (client, server) in PAIRS {
        let (c, s) = (ip(client), ip(server));
        let mut bench = Bench::new(&PfwKind, rules);
        assert_eq!(bench.refused(&icmp(c, s, (8, 128), 0, &[0; 4])), None);
        assert_eq!(bench.refused(&icmp(s, c, (0, 129), 0, &[0; 4])), None);
        assert_eq!(bench.refused(&icmp(c, s, (8, 128), 1, &[0; 4])), Some(Reason::PfwDefault));
    }
}

#[test]
fn many_rules_are_answered_as_few() {
    let mut rules = vec![];
    for n in 0..1000u32 {
        rules.push(format!(r#"{{"drop": "tcp", "from": "any", "to-ports": {}}}"#, 1 + n));
    }
    let json = format!(r#"{{"default": "allow", "rules": [{}]}}"#, rules.join(","));
    let mut bench = Bench::new(&PfwKind, &json);
    for port in [1u16, 500, 1000, 1001] {
        let decision = bench.run(&tcp((ip("10.0.0.1"), 5), (ip("10.0.0.2"), port), SYN, 1, 0, b"")).unwrap();
        let expected = (port <= 1000).then_some(u32::from(port));
        assert_eq!(decision.rule.map(|r| r.get()), expected);
    }
}

#[test]
fn wrong_rules_are_refused_with_their_place() {
    let cases = [
        (r#"{}"#, "classes/0/rules", "the key `default` is missing; add it"),
        (
            r#"{"default": "drop", "rules": [{"allow": "tcp", "drop": "udp"}]}"#,
            "classes/0/rules/rules/0",
            "a rule needs exactly one of `allow`, `drop`, `reject` and `redirect`, with protocols: `allow: tcp`",
        ),
        (
            r#"{"default": "drop", "rules": [{"allow": "any", "to-ports": 80}]}"#,
            "classes/0/rules/rules/0/to-ports",
            "only tcp, udp and sctp have ports; split the rule",
        ),
        (
            r#"{"default": "drop", "rules": [{"allow": "tcp", "type": 8}]}"#,
            "classes/0/rules/rules/0/type",
            "only icmp and icmpv6 have types and codes; split the rule",
        ),
        (
            r#"{"default": "drop", "rules": [{"allow": "tcp", "from": "bat"}]}"#,
            "classes/0/rules/rules/0/from",
            "there is no group `bat`; did you mean `bad`?",
        ),
        (
            r#"{"default": "drop", "rules": [{"allow": "tcp", "tenant": "b"}]}"#,
            "classes/0/rules/rules/0/tenant",
            "there is no tenant `b`; did you mean `a`?",
        ),
        (
            r#"{"default": "drop", "ruls": []}"#,
            "classes/0/rules/ruls/",
            "the key `ruls` is not known; did you mean `rules`?",
        ),
    ];
    for (rules, place, message) in cases {
        let errors = Bench::make(&PfwKind, rules).err().expect(rules);
        assert_eq!((errors[0].place.as_str(), errors[0].message.as_str()), (place, message));
    }
    let list: Vec<String> = (0..300).map(|n| n.to_string()).collect();
    let many = format!(
        r#"{{"default": "drop", "rules": [{{"allow": "tcp", "from-ports": [{0}], "to-ports": [{0}]}}]}}"#,
        list.join(",")
    );
    let errors = Bench::make(&PfwKind, &many).err().expect("too many");
    assert!(errors[0].message.contains("have more than 65536 combinations"), "{}", errors[0].message);
}
