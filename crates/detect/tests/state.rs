// SPDX-License-Identifier: Apache-2.0
//! Keywords with state: flow variables, marks on hosts, thresholds; and keywords on the flow.

use crate::common;

use bartizan_base::{Direction, SettingsMap, TenantId};
use bartizan_detect::keywords::apply_thresholds;
use bartizan_detect::signature::{RejectSide, RuleAction};
use bartizan_rules::{RuleVariables, parse_thresholds};
use common::{Lab, NONE, load_text, refusal};
use std::sync::Arc;

fn rule(sid: u32, options: &str) -> String {
    format!("alert udp any any -> any any ({options} sid:{sid};)\n")
}

#[test]
fn flow_direction_and_state() {
    use Direction::{ToClient, ToServer};
    let rows: &[(&str, Direction, bool, bool)] = &[
        ("to_server", ToServer, true, true),
        ("to_server", ToClient, true, false),
        ("from_client", ToServer, true, true),
        ("to_client", ToClient, true, true),
        ("from_server", ToServer, true, false),
        ("established", ToServer, true, true),
        ("established", ToServer, false, false),
        ("not_established", ToServer, false, true),
        ("not_established", ToServer, true, false),
        ("stateless", ToServer, false, true),
        ("established,to_client", ToClient, true, true),
        ("established,to_client", ToServer, true, false),
        ("no_frag", ToServer, true, true),
        ("only_frag", ToServer, true, false),
    ];
    for (options, direction, established, want) in rows {
        let mut lab = Lab::new(&rule(1, &format!("flow:{options}; content:\"a\";")));
        lab.established = *established;
        assert_eq!(!lab.send(*direction, b"a").is_empty(), *want, "{options} {direction:?} {established}");
    }
}

#[test]
fn bits_of_the_flow() {
    let mut lab = Lab::new(
        &[
            rule(1, r#"content:"set"; flowbits:set,a; flowbits:noalert;"#),
            rule(2, r#"content:"unset"; flowbits:unset,a; noalert;"#),
            rule(3, r#"content:"toggle"; flowbits:toggle,a; noalert;"#),
            rule(4, r#"content:"?"; flowbits:isset,a;"#),
            rule(5, r#"content:"?"; flowbits:isnotset,a;"#),
            rule(6, r#"content:"?"; flowbits:isset,b|a;"#),
            rule(7, r#"content:"?"; flowbits:isnotset,a | b;"#),
        ]
        .concat(),
    );
    assert_eq!(lab.send_to_server(b"?"), [5, 7]);
    assert_eq!(lab.send_to_server(b"set"), NONE);
    assert_eq!(lab.send_to_server(b"?"), [4, 6, 7]);
    lab.send_to_server(b"unset");
    // `set` matched as well, and its rule comes first among equals.
    assert_eq!(lab.send_to_server(b"?"), [5, 7]);
    lab.send_to_server(b"toggle");
    assert_eq!(lab.send_to_server(b"?"), [4, 6, 7]);
    lab.send_to_client(b"toggle");
    assert_eq!(lab.send_to_server(b"?"), [5, 7]);
    lab.send_to_server(b"set");
    lab.new_flow();
    assert_eq!(lab.send_to_server(b"?"), [5, 7]);
    lab.flowless = true;
    assert_eq!(lab.send_to_server(b"?"), NONE, "no flow, no answer");
}

#[test]
fn a_bit_set_by_a_packet_is_seen_by_readers_of_the_same_packet() {
    let mut lab = Lab::new(
        &[rule(1, r#"content:"x"; flowbits:isset,a;"#), rule(2, r#"content:"x"; flowbits:set,a;"#)].concat(),
    );
    assert_eq!(lab.send_to_server(b"x"), [2, 1]);
}

/// Unlike `flowbits` and `hostbits`, and whatever the order of the file.
#[test]
fn an_xbit_set_by_a_packet_is_not_seen_by_readers_of_the_same_packet() {
    let reader = rule(1, r#"content:"x"; xbits:isset,a,track ip_src;"#);
    let writer = rule(2, r#"content:"x"; xbits:set,a,track ip_src;"#);
    for rules in [[reader.clone(), writer.clone()], [writer, reader]] {
        let mut lab = Lab::new(&rules.concat());
        assert_eq!(lab.send_to_server(b"x"), [2]);
        assert_eq!(lab.send_to_server(b"x"), [1, 2]);
    }
}

/// As in Suricata: rules that write `hostbits` and those that read `xbits` come before the others, reading
/// `hostbits` does not affect the order, and equal rules follow their numbers.
#[test]
fn marks_and_numbers_give_rules_their_order() {
    let rules = [
        rule(9, r#"content:"x"; hostbits:set,y;"#),
        rule(8, r#"content:"x"; hostbits:set,y; xbits:isnotset,q,track ip_src;"#),
        rule(7, r#"content:"x"; hostbits:set,y; hostbits:isnotset,q;"#),
        rule(6, r#"content:"x"; hostbits:isnotset,q;"#),
        rule(5, r#"content:"x";"#),
        rule(4, r#"content:"x"; xbits:set,z,track ip_src;"#),
        rule(3, r#"content:"x"; xbits:isnotset,q,track ip_pair;"#),
        rule(2, r#"content:"x"; xbits:isnotset,q,track ip_src; xbits:isnotset,q,track ip_pair;"#),
        rule(1, r#"content:"x"; xbits:isnotset,q,track ip_src;"#),
    ];
    let mut lab = Lab::new(&rules.concat());
    assert_eq!(lab.send_to_server(b"x"), [7, 9, 8, 2, 1, 3, 4, 5, 6]);
}

/// As in Suricata, a packet without a flow counts as the client's if `flow` names only the direction.
#[test]
fn packets_without_a_flow_go_to_the_server() {
    for (options, holds) in [
        ("to_server", true),
        ("to_client", false),
        ("to_server,no_frag", false),
        ("to_server,established", false),
        ("stateless", false),
    ] {
        let mut lab = Lab::new(&rule(1, &format!("flow:{options}; content:\"a\";")));
        lab.flowless = true;
        assert_eq!(!lab.send_to_server(b"a").is_empty(), holds, "{options}");
    }
}

/// Rules that count or toggle apply to each packet; a rule that only sets a mark is a rule on addresses,
/// evaluated once for each direction.
#[test]
fn rules_that_only_change_state_act_on_each_packet() {
    let rules = [
        rule(1, "flowint:n,+,1; noalert;"),
        rule(2, r#"content:"a"; flowint:n,>,3;"#),
        rule(3, "flowbits:toggle,t;"),
        rule(4, "flowbits:unset,u;"),
        rule(5, "flowbits:set,c;"),
        rule(6, "flowbits:set,c; flowbits:unset,d;"),
        rule(7, "xbits:set,x,track ip_src;"),
        rule(8, "hostbits:toggle,h;"),
        rule(9, r#"content:"a"; flowbits:isset,t;"#),
        rule(10, "flowint:m,=,7;"),
        rule(11, "flowint:m,-,1;"),
        rule(12, "xbits:isnotset,y,track ip_src;"),
        rule(13, "hostbits:isset,z;"),
    ];
    for v6 in [false, true] {
        let mut lab = Lab::new(&rules.concat());
        lab.v6 = v6;
        let mut send = |direction| {
            let mut sids = lab.send(direction, b"a");
            sids.sort_unstable();
            sids
        };
        assert_eq!(send(Direction::ToServer), [3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(send(Direction::ToServer), [3, 4, 6, 10, 11]);
        assert_eq!(send(Direction::ToServer), [3, 4, 6, 9, 10, 11]);
        assert_eq!(send(Direction::ToServer), [2, 3, 4, 6, 10, 11]);
        assert_eq!(send(Direction::ToClient), [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(send(Direction::ToClient), [2, 3, 4, 6, 10, 11]);
    }
}

/// Rules on addresses come before all others on the packet, whatever marks they set.
#[test]
fn marks_of_rules_on_addresses_are_seen_by_other_rules_on_the_packet() {
    for (set, ask) in [
        ("xbits:set,m,track ip_src;", "m,track ip_src;"),
        ("xbits:set,m,track ip_dst;", "m,track ip_dst;"),
        ("xbits:set,m,track ip_pair;", "m,track ip_pair;"),
        ("hostbits:set,m;", "m;"),
        ("flowbits:set,m;", "m;"),
    ] {
        let keyword = set.split(':').next().unwrap_or_default();
        let writers = [
            format!("alert udp [192.0.2.0/24,2001:db8::/32] any -> any any ({set} noalert; sid:1;)\n"),
            rule(1, &format!("{set} noalert;")),
        ];
        let readers = [
            rule(2, &format!("content:\"x\"; {keyword}:isset,{ask}")),
            rule(3, &format!("content:\"x\"; {keyword}:isnotset,{ask}")),
            rule(4, &format!("{keyword}:isset,{ask} dsize:1;")),
        ];
        for writer in &writers {
            let readers = readers.concat();
            for rules in [format!("{readers}{writer}"), format!("{writer}{readers}")] {
                for v6 in [false, true] {
                    let mut lab = Lab::new(&rules);
                    lab.v6 = v6;
                    assert_eq!(lab.send_to_server(b"x"), [2, 4], "{rules}");
                    assert_eq!(lab.send_to_server(b"x"), [2, 4], "{rules}");
                }
            }
        }
    }
}

#[test]
fn numbers_of_the_flow() {
    let mut lab = Lab::new(
        &[
            rule(1, r#"content:"+"; flowint:n,+,2; noalert;"#),
            rule(2, r#"content:"-"; flowint:n,-,1; noalert;"#),
            rule(3, r#"content:"="; flowint:n,=,7; flowint:m,=,7; noalert;"#),
            rule(4, r#"content:"?"; flowint:n,>,3;"#),
            rule(5, r#"content:"?"; flowint:n,==,m;"#),
            rule(6, r#"content:"?"; flowint:n,isset;"#),
            rule(7, r#"content:"?"; flowint:n,notset;"#),
            rule(8, r#"content:"?"; flowint:n,<=,3;"#),
            rule(9, r#"content:"?"; flowint:n,!=,2;"#),
        ]
        .concat(),
    );
    assert_eq!(lab.send_to_server(b"?"), [7]);
    lab.send_to_server(b"-");
    assert_eq!(lab.send_to_server(b"?"), [7], "nothing to take from");
    lab.send_to_server(b"+");
    assert_eq!(lab.send_to_server(b"?"), [6, 8]);
    lab.send_to_server(b"+");
    assert_eq!(lab.send_to_server(b"?"), [4, 6, 9]);
    lab.send_to_server(b"-");
    assert_eq!(lab.send_to_server(b"?"), [6, 8, 9]);
    lab.send_to_server(b"=");
    assert_eq!(lab.send_to_server(b"?"), [4, 5, 6, 9]);
}

#[test]
fn bits_of_hosts_and_pairs() {
    for v6 in [false, true] {
        let mut lab = Lab::new(
            &[
                rule(1, r#"content:"src"; xbits:set,a,track ip_src,expire 10; noalert;"#),
                rule(2, r#"content:"pair"; xbits:set,p,track ip_pair; noalert;"#),
                rule(3, r#"content:"?"; xbits:isset,a,track ip_src;"#),
                rule(4, r#"content:"?"; xbits:isset,a,track ip_dst;"#),
                rule(5, r#"content:"?"; xbits:isset,p,track ip_pair;"#),
                rule(6, r#"content:"host"; hostbits:set,a; noalert;"#),
                rule(7, r#"content:"?"; hostbits:isset,a;"#),
                rule(8, r#"content:"?"; hostbits:isset,a,dst;"#),
                rule(9, r#"content:"off"; xbits:unset,a,track ip_src; noalert;"#),
                rule(10, r#"content:"!"; xbits:isnotset,a,track ip_src;"#),
            ]
            .concat(),
        );
        lab.v6 = v6;
        assert_eq!(lab.send_to_server(b"?"), NONE);
        assert_eq!(lab.send_to_server(b"!"), [10]);
        lab.send_to_server(b"src pair host");
        // Readers of `xbits` come before readers of `hostbits`.
        assert_eq!(lab.send_to_server(b"?"), [3, 5, 7]);
        assert_eq!(lab.send_to_client(b"?"), [4, 5, 8]);
        lab.new_flow();
        lab.hosts = (1, 9);
        assert_eq!(lab.send_to_server(b"?"), [3, 7], "another peer");
        lab.tenant = TenantId(3);
        assert_eq!(lab.send_to_server(b"?"), NONE, "another tenant");
        lab.tenant = TenantId(0);
        lab.wait(10);
        assert_eq!(lab.send_to_server(b"?"), [3, 7], "to the last");
        lab.wait(1);
        assert_eq!(lab.send_to_server(b"?"), [7], "over");
        lab.wait(290);
        assert_eq!(lab.send_to_server(b"?"), NONE);
        lab.send_to_server(b"src");
        lab.send_to_server(b"off");
        assert_eq!(lab.send_to_server(b"?"), NONE);
    }
}

/// Alerts (`a`), actions without alert (`s`) and nothing (`.`) for matches at seconds after the first one.
fn pattern(lab: &mut Lab, seconds: &[u64]) -> String {
    let start = lab.now;
    let mut out = String::new();
    for second in seconds {
        lab.now = start;
        lab.wait(*second);
        let hits = lab.hits(Direction::ToServer, b"x");
        out.push(match hits.first() {
            None => '.',
            Some(hit) if !hit.alert => 's',
            Some(hit) => match hit.action {
                RuleAction::Alert => 'a',
                RuleAction::Drop => 'D',
                RuleAction::Reject(RejectSide::Source) => 'R',
                RuleAction::Pass => 'P',
                _ => 'A',
            },
        });
    }
    out
}

#[test]
fn thresholds_count_as_suricata_does() {
    let rows: &[(&str, &[u64], &str)] = &[
        ("threshold:type limit,track by_src,count 2,seconds 10;", &[0, 1, 2, 10, 11, 12, 13], "aassaas"),
        (
            "threshold:type threshold,track by_src,count 3,seconds 10;",
            &[0, 1, 2, 3, 4, 5, 16, 17],
            "..a..a..",
        ),
        ("threshold:type threshold,track by_src,count 1,seconds 10;", &[0, 1, 2], "aaa"),
        ("threshold:type both,track by_src,count 2,seconds 10;", &[0, 1, 2, 10, 11, 12, 13], ".ass.as"),
        ("threshold:type both,track by_src,count 1,seconds 10;", &[0, 1, 11], "asa"),
        (
            "threshold:type backoff,track by_flow,count 1,multiplier 3;",
            &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
            "asasssssas",
        ),
        ("threshold:type limit,track by_flow,count 1,seconds 10;", &[0, 1, 11], "asa"),
        ("threshold:type limit,track by_rule,count 1,seconds 10;", &[0, 10, 11], "asa"),
        ("threshold:type limit,track by_both,count 1,seconds 10;", &[0, 1, 11], "asa"),
        ("threshold:type limit,track by_dst,count 1,seconds 10;", &[0, 1, 11], "asa"),
        ("detection_filter:track by_src,count 2,seconds 10;", &[0, 1, 2, 3, 10, 11, 12], "..aaa.."),
        ("detection_filter:track by_flow,count 1,seconds 10;", &[0, 1, 2], ".aa"),
    ];
    for (options, seconds, want) in rows {
        for v6 in [false, true] {
            let mut lab = Lab::new(&rule(1, &format!("content:\"x\"; {options}")));
            lab.v6 = v6;
            assert_eq!(pattern(&mut lab, seconds), *want, "{options}");
        }
    }
}

#[test]
fn thresholds_tell_their_subjects_apart() {
    let of = |track: &str| {
        Lab::new(&rule(1, &format!("content:\"x\"; threshold:type limit,track {track},count 1,seconds 60;")))
    };
    let go = |lab: &mut Lab, hosts, direction| {
        lab.hosts = hosts;
        lab.new_flow();
        !lab.send(direction, b"x").is_empty()
    };
    use Direction::{ToClient, ToServer};
    for (track, same, other) in [
        ("by_src", ((1, 3), ToServer), ((3, 2), ToServer)),
        ("by_dst", ((3, 2), ToServer), ((1, 3), ToServer)),
        ("by_both", ((1, 2), ToClient), ((1, 3), ToServer)),
    ] {
        let mut lab = of(track);
        assert!(go(&mut lab, (1, 2), ToServer));
        assert!(!go(&mut lab, same.0, same.1), "{track}");
        assert!(go(&mut lab, other.0, other.1), "{track}");
    }
    let mut lab = of("by_rule");
    assert!(go(&mut lab, (1, 2), ToServer));
    assert!(!go(&mut lab, (5, 6), ToClient));
    let mut lab = of("by_flow");
    assert!(go(&mut lab, (1, 2), ToServer));
    assert!(lab.send_to_server(b"x").is_empty());
    assert!(go(&mut lab, (1, 2), ToServer));
    lab.flowless = true;
    assert!(lab.send_to_server(b"x").is_empty(), "no flow to count by");
}

#[test]
fn what_flow_asks_for_beside_a_direction_needs_a_flow() {
    for needs in ["stateless", "no_frag", "to_server,no_frag", "stateless,no_frag"] {
        let mut lab = Lab::new(&rule(1, &format!("flow:{needs};")));
        assert_eq!(lab.send_to_server(b"x"), [1], "{needs}");
        lab.flowless = true;
        assert_eq!(lab.send_to_server(b"x"), NONE, "{needs}");
    }
}

fn with_file(rule: &str, file: &str) -> Lab {
    let mut lab = Lab::new(rule);
    let thresholds = parse_thresholds(file.as_bytes(), "threshold.config");
    assert!(thresholds.diagnostics.is_empty());
    let findings = apply_thresholds(&mut lab.rules.signatures, &thresholds, &RuleVariables::new());
    assert!(findings.is_empty());
    lab
}

#[test]
fn entries_of_threshold_files() {
    let plain = rule(1, r#"content:"x";"#);
    let limited = rule(1, r#"content:"x"; threshold:type limit,track by_src,count 1,seconds 60;"#);
    let filtered = rule(1, r#"content:"x"; detection_filter:track by_src,count 2,seconds 60;"#);
    let rows: &[(&str, &str, &str)] = &[
        (&plain, "suppress gen_id 1, sig_id 1", "ssss"),
        (&plain, "suppress gen_id 1, sig_id 2", "aaaa"),
        (&plain, "suppress gen_id 0, sig_id 0", "ssss"),
        (&plain, "suppress gen_id 1, sig_id 1, track by_src, ip 192.0.2.0/24", "ssss"),
        (&plain, "suppress gen_id 1, sig_id 1, track by_dst, ip 192.0.2.1", "aaaa"),
        (&plain, "suppress gen_id 1, sig_id 1, track by_either, ip 192.0.2.2", "ssss"),
        (&plain, "threshold gen_id 1, sig_id 1, type limit, track by_src, count 2, seconds 60", "aass"),
        (&plain, "threshold gen_id 1, sig_id 0, type limit, track by_src, count 2, seconds 60", "aass"),
        (&limited, "event_filter gen_id 1, sig_id 1, type limit, track by_src, count 2, seconds 60", "aass"),
        (&limited, "event_filter gen_id 1, sig_id 0, type limit, track by_src, count 2, seconds 60", "asss"),
        (
            &plain,
            "rate_filter gen_id 1, sig_id 1, track by_src, count 2, seconds 60, new_action drop, timeout 9",
            "aaDD",
        ),
        (
            &plain,
            "rate_filter gen_id 1, sig_id 1, track by_rule, count 1, seconds 60, new_action reject, timeout 9",
            "aRRR",
        ),
        (
            &limited,
            "rate_filter gen_id 1, sig_id 1, track by_rule, count 1, seconds 60, new_action pass, timeout 9",
            "asss",
        ),
        // With two entries that count, Suricata keeps one: an `event_filter` for the rule, else the first.
        (
            &plain,
            "rate_filter gen_id 1, sig_id 1, track by_src, count 1, seconds 60, new_action drop, timeout 9\n\
             rate_filter gen_id 1, sig_id 1, track by_src, count 3, seconds 60, new_action pass, timeout 9",
            "aDDD",
        ),
        (
            &plain,
            "rate_filter gen_id 1, sig_id 1, track by_src, count 1, seconds 60, new_action drop, timeout 9\n\
             event_filter gen_id 1, sig_id 1, type limit, track by_src, count 3, seconds 60",
            "aaas",
        ),
        (
            &plain,
            "rate_filter gen_id 1, sig_id 1, track by_src, count 1, seconds 60, new_action drop, timeout 9\n\
             event_filter gen_id 1, sig_id 0, type limit, track by_src, count 1, seconds 60",
            "aDDD",
        ),
        (
            &plain,
            "event_filter gen_id 1, sig_id 0, type limit, track by_src, count 3, seconds 60\n\
             rate_filter gen_id 1, sig_id 1, track by_src, count 1, seconds 60, new_action drop, timeout 9",
            "aaas",
        ),
        (&filtered, "event_filter gen_id 1, sig_id 1, type limit, track by_src, count 2, seconds 60", "aass"),
        (&filtered, "event_filter gen_id 1, sig_id 0, type limit, track by_src, count 2, seconds 60", "..aa"),
        (
            &filtered,
            "rate_filter gen_id 1, sig_id 1, track by_src, count 1, seconds 60, new_action drop, timeout 9",
            "..aa",
        ),
    ];
    for (rule, file, want) in rows {
        assert_eq!(pattern(&mut with_file(rule, file), &[0, 1, 2, 3]), *want, "{file}");
    }
    // The action ends after the timeout; then counting begins again.
    let file = "rate_filter gen_id 1, sig_id 1, track by_src, count 1, seconds 3, new_action drop, timeout 5";
    let got = pattern(&mut with_file(&plain, file), &[0, 1, 2, 6, 7, 8, 9, 10]);
    assert_eq!(got, "aDDDaaDD");
}

#[test]
fn counts_of_the_flow() {
    let mut lab = Lab::new(
        &[
            rule(1, r#"content:"x"; flow.pkts:toserver,=2;"#),
            rule(2, r#"content:"x"; flow.pkts_toclient:1;"#),
            rule(3, r#"content:"x"; flow.age:>5;"#),
            rule(4, r#"content:"x"; flow.bytes:either,>40;"#),
            rule(5, r#"content:"x"; flow.bytes:both,>40;"#),
            rule(6, r#"content:"x"; flow.bytes_toserver:>80;"#),
        ]
        .concat(),
    );
    assert_eq!(lab.send_to_server(b"x"), [4]);
    assert_eq!(lab.send_to_server(b"x"), [1, 4, 6]);
    lab.wait(5);
    assert_eq!(lab.send_to_client(b"x"), [1, 2, 4, 5, 6]);
    lab.wait(1);
    assert_eq!(lab.send_to_client(b"x"), [1, 3, 4, 5, 6]);
}

#[test]
fn tags_are_kept() {
    let mut lab = Lab::new(&[rule(1, "content:\"a\"; tag:session,10,packets;")].concat());
    lab.send_to_server(b"a");
    assert_eq!(lab.flow.state.tags.iter().map(|t| t.packets).collect::<Vec<_>>(), [10]);
    let mut lab = Lab::new(&[rule(1, "content:\"a\"; tag:host,10,seconds,src;")].concat());
    lab.send_to_server(b"a");
    let mut tags = Vec::new();
    lab.shared.hosts.for_each(|_, host| tags.extend(host.tags_mut().iter().map(|t| t.rule.sid)));
    assert_eq!(tags, [1]);
}

#[test]
fn what_a_rule_requires() {
    let text = [
        rule(1, "requires:version >= 8.0.0;"),
        rule(2, "new_keyword:1; requires:version >= 9;"),
        rule(3, "requires:foo bar;"),
        rule(4, "requires:keyword content, version >= 7 < 9;"),
        rule(5, "requires:keyword no_such_keyword;"),
        rule(6, "requires:feature no_such_feature;"),
    ]
    .concat();
    let loaded = load_text(&text, &SettingsMap::new(), &Arc::default());
    let mut sids: Vec<u32> = loaded.rules.signatures.iter().map(|s| s.id.sid).collect();
    sids.sort_unstable();
    assert_eq!(sids, [1, 4]);
    assert_eq!((loaded.rules.report.loaded, loaded.rules.report.skipped), (2, 4));
    assert!(loaded.diagnostics.is_empty());
}

#[test]
fn refusals() {
    let rows: &[(&str, &str)] = &[
        ("flow:sideways;", "D105"),
        ("flow:established,established;", "D105"),
        ("flow:established,stateless;", "D105"),
        ("flow:established,not_established;", "D105"),
        ("flow:to_server,from_server;", "D105"),
        ("flow:only_stream,no_stream;", "D105"),
        ("flow:no_frag,only_frag;", "D105"),
        ("flow:established; flow:to_server;", "D106"),
        ("flowbits:set;", "D105"),
        ("flowbits:set,a b;", "D105"),
        ("flowbits:set,a|b;", "D105"),
        ("flowbits:isset,a|;", "D105"),
        ("flowbits:raise,a;", "D105"),
        ("flowbits:noalert,a;", "D105"),
        ("flowint:n;", "D105"),
        ("flowint:1n,+,1;", "D105"),
        ("flowint:n,+;", "D105"),
        ("flowint:n,%,1;", "D105"),
        ("flowint:n,+,4294967296;", "D105"),
        ("xbits:set,a;", "D105"),
        ("xbits:set,a,track ip_src,expire 0;", "D105"),
        ("xbits:set,a,track host;", "D105"),
        ("xbits:set,a,track tx;", "D102"),
        ("xbits:raise,a,track ip_src;", "D105"),
        ("hostbits:set;", "D105"),
        ("hostbits:set,a,both;", "D105"),
        ("threshold:type limit,track by_src,count 1;", "D105"),
        ("threshold:type limit,track by_src,count 0,seconds 1;", "D105"),
        ("threshold:type often,track by_src,count 1,seconds 1;", "D105"),
        ("threshold:type limit,track by_name,count 1,seconds 1;", "D105"),
        ("threshold:type limit,track by_src,count 1,count 2,seconds 1;", "D105"),
        ("threshold:type backoff,track by_src,count 1,multiplier 2;", "D105"),
        ("threshold:type backoff,track by_flow,count 1,seconds 2;", "D105"),
        ("detection_filter:track by_src,count 1;", "D105"),
        (
            "threshold:type limit,track by_src,count 1,seconds 1; detection_filter:track by_src,count 1,seconds 1;",
            "D106",
        ),
        ("tag:host,1,packets,both;", "D105"),
        ("tag:session,1,parsecs;", "D105"),
        ("flow.age:old;", "D105"),
        ("flow.pkts:sideways,1;", "D105"),
        ("flow.elephant:to_server;", "D105"),
        ("flow.elephant;", "D105"),
        ("tcp.session:setup;", "D106"),
        ("rpc:*,1,1;", "D105"),
        ("rpc:1,;", "D105"),
        ("rpc:1,2,3,4;", "D105"),
        ("rpc:4294967296;", "D105"),
        ("pktvar:user;", "D105"),
        ("pktvar:user,\"\";", "D105"),
        ("pktvar:user,!\"a\";", "D105"),
        ("stream_size:server,~,1;", "D105"),
        ("stream_size:server,<;", "D105"),
        ("to_lowercase;", "D106"),
        ("xor:\"0\";", "D105"),
        ("pcrexform:\"a(\";", "D108"),
        ("pcrexform:\"a\";", "D105"),
        ("gunzip:min-size 3;", "D105"),
        ("from_base64:mode loose;", "D105"),
        ("requires:version 8;", "D105"),
        ("noalert:1;", "D105"),
        ("lua:script;", "D102"),
        ("geoip:src,DE;", "D102"),
        ("no_such_keyword;", "D101"),
        ("js_data;", "D103"),
    ];
    for (options, code) in rows {
        match refusal(options) {
            Some((got, message)) => assert_eq!(got, *code, "{options}: {message}"),
            None => panic!("not refused: {options}"),
        }
    }
}

#[test]
fn hooks_of_packets() {
    let mut lab = Lab::new(
        "alert udp:flow_start any any -> any any (sid:1;)\nalert udp:all any any -> any any (content:\"x\"; sid:2;)",
    );
    assert_eq!(lab.send_to_server(b"x"), [1, 2]);
    assert_eq!(lab.send_to_server(b"x"), [2]);
    assert_eq!(lab.send_to_client(b"y"), [1]);
    assert_eq!(lab.send_to_client(b"y"), NONE);
}

#[test]
fn countries_of_addresses() {
    let mut settings = SettingsMap::new();
    settings.set("geoip-database", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/countries.mmdb"));
    // The client 192.0.2.1 is in DE, the server 192.0.2.200 in FR.
    let options = [
        "geoip:src,DE;",
        "geoip:DE;",
        "geoip:any,FR,US;",
        "geoip:both,DE,FR;",
        "geoip:dst,!DE;",
        "geoip:dst,!US,DE;",
        "geoip:dst,DE;",
        "geoip:both,DE;",
        "geoip:src,!DE;",
    ];
    let rules: Vec<_> =
        (1..).zip(options).map(|(sid, o)| format!("alert udp any any -> any any ({o} sid:{sid};)")).collect();
    let mut lab = Lab::with(&rules.join("\n"), &settings);
    lab.hosts = (1, 200);
    assert_eq!(lab.send_to_server(b"x"), [1, 2, 3, 4, 5, 6]);
    assert_eq!(lab.send_to_client(b"x"), [2, 3, 4, 7, 9]);
    // 2001:db8::/48 is in no country that the database knows.
    lab.v6 = true;
    assert_eq!(lab.send_to_server(b"x"), NONE);
    let (code, said) = refusal("geoip:src,DE;").unwrap();
    assert_eq!(code, "D102");
    assert!(said.contains("geoip-database"), "{said}");
    assert_eq!(refusal("geoip:src,de;").unwrap().0, "D105");
    assert_eq!(refusal("geoip:src;").unwrap().0, "D105");
}

#[test]
fn variables_of_a_packet_are_seen_by_other_rules_on_it() {
    let mut lab = Lab::new(
        "alert udp any any -> any any (pktvar:user,oo; sid:1;)\n\
         alert udp any any -> any any (pktvar:user,\"|72 6f|ot\"; sid:2;)\n\
         alert udp any any -> any any (pktvar:other,\"root\"; sid:3;)\n\
         alert udp any any -> any any (pktvar:user,\"bob\"; content:\"user\"; sid:4;)\n\
         alert udp any any -> any any (pcre:\"/user=(?P<pkt_user>\\w+)/\"; sid:5;)",
    );
    assert_eq!(lab.send_to_server(b"user=root"), [5, 1, 2]);
    assert_eq!(lab.send_to_server(b"root"), NONE, "it was of another packet");
    assert_eq!(lab.send_to_server(b"user=bob"), [5, 4]);
}

#[test]
fn calls_of_rpc() {
    let mut lab = Lab::new(
        &[
            rule(1, "rpc:100000,2,3;"),
            rule(2, "rpc:100000;"),
            rule(3, "rpc:100000, * ,3;"),
            rule(4, "rpc:100000,2,*; content:\"x\";"),
        ]
        .concat(),
    );
    let call = |words: [u32; 6]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    assert_eq!(lab.send_to_server(&call([7, 0, 2, 100_000, 2, 3])), [1, 2, 3]);
    // The version of RPC itself is not compared.
    assert_eq!(lab.send_to_server(&[&call([7, 0, 1, 100_000, 2, 4])[..], b"x"].concat()), [2, 4]);
    assert_eq!(lab.send_to_server(&call([7, 0, 2, 100_000, 3, 3])), [2, 3]);
    for other in [[7, 1, 2, 100_000, 2, 3], [7, 0, 2, 100_001, 2, 3]] {
        assert_eq!(lab.send_to_server(&call(other)), NONE);
    }
    assert_eq!(lab.send_to_server(&call([7, 0, 2, 100_000, 2, 3])[..23]), NONE);
}

#[test]
fn entropies_and_variables_are_kept() {
    let mut lab = Lab::new(
        "alert udp any any -> any any (entropy:value > 7; sid:1;)\n\
         alert udp any any -> any any (pcre:\"/user=(\\w+)/, flow:user\"; noalert; sid:2;)\n\
         alert udp any any -> any any (flowvar:user,\"oo\"; sid:3;)\n\
         alert udp any any -> any any (flowvar:other,!\"oo\"; sid:4;)",
    );
    assert_eq!(lab.send_to_server(b"abab"), NONE);
    // Computed, though the rule did not match.
    let name = lab.shared.names.intern("content");
    assert_eq!(lab.flow.state.measures(), [(name, 1.0)]);
    assert_eq!(lab.send_to_server(b"user=root"), [3]);
    assert_eq!(lab.send_to_client(&(0..=255).collect::<Vec<u8>>()), [3, 1]);
}

#[test]
fn a_refusal_ends_no_look_at_the_packet_that_brings_it() {
    let on = |action, what, sid| format!("{action} ip any any -> any any (content:\"{what}\"; sid:{sid};)\n");
    let mut lab = Lab::new(&[on("drop", "one", 1), on("alert", "two", 2), on("pass", "pass", 3)].concat());
    assert_eq!(lab.show_piece(b"one", false), [1]);
    assert_eq!(lab.show_piece(b"two", true), [2], "shown with the same packet");
    assert_eq!(lab.show_piece(b"two", false), NONE, "the flow is refused");
    assert_eq!(lab.show_piece(b"two", true), NONE);
    lab.new_flow();
    assert_eq!(lab.show_piece(b"pass", false), NONE);
    assert_eq!(lab.show_piece(b"two", true), NONE, "what passes its flow ends the packet, too");
}
