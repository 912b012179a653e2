// SPDX-License-Identifier: Apache-2.0
//! Each of several tenants that share a rule set sees its part, as if the other rules did not exist.

use crate::common::{Lab, NONE};
use bartizan_base::Direction;
use bartizan_detect::visibility::Visibility;
use proptest::prelude::*;
use proptest::sample::subsequence;

/// Rules that depend on each other: by passes and drops, by bits, by counts and by their order.
const RULES: &[&str] = &[
    r#"alert udp any any -> any any (msg:"a"; content:"a"; sid:1;)"#,
    r#"alert udp any any -> any any (msg:"b"; content:"b"; sid:2;)"#,
    r#"pass udp any any -> any any (content:"p"; sid:3;)"#,
    r#"drop udp any any -> any any (content:"d"; sid:4;)"#,
    r#"alert udp any any -> any any (content:"s"; flowbits:set,one; sid:5;)"#,
    r#"alert udp any any -> any any (content:"u"; flowbits:unset,one; sid:6;)"#,
    r#"alert udp any any -> any any (flowbits:isset,one; dsize:>0; sid:7;)"#,
    r#"alert udp any any -> any any (content:"t"; threshold:type limit, track by_src, count 1, seconds 60; sid:8;)"#,
    r#"alert udp any any -> any 53 (flow:to_server; dsize:2; sid:9;)"#,
    r#"alert udp any 53 -> any any (flow:to_client; content:!"a"; sid:10;)"#,
    r#"pass udp any any -> any any (flowbits:isset,one; content:"q"; sid:11;)"#,
    r#"alert ip any any -> any any (sid:12;)"#,
    r#"alert udp any any -> any any (content:"x"; xbits:set,seen,track ip_src,expire 60; sid:13;)"#,
    r#"alert udp any any -> any any (xbits:isset,seen,track ip_src; sid:14;)"#,
];

fn sees(lab: &Lab, sids: &[u32]) -> Visibility {
    Visibility::of(&lab.rules.signatures, |rule| sids.contains(&rule.id.sid))
}

fn sid_of(rule: &str) -> u32 {
    rule.rsplit_once("sid:").and_then(|(_, rest)| rest.split(';').next()?.parse().ok()).unwrap()
}

proptest! {
    #[test]
    fn what_is_seen_of_a_set_says_what_a_set_of_its_own_would(
        own in subsequence(RULES, 0..=RULES.len()),
        packets in prop::collection::vec((any::<bool>(), "[abpdsutqx.]{0,3}"), 1..12),
    ) {
        let sids: Vec<u32> = own.iter().map(|rule| sid_of(rule)).collect();
        let (mut alone, mut shared) = (Lab::new(&own.join("\n")), Lab::new(&RULES.join("\n")));
        shared.visible = Some(sees(&shared, &sids));
        prop_assert_eq!(shared.visible.as_ref().map(Visibility::count), Some(sids.len()));
        for (number, (back, payload)) in packets.iter().enumerate() {
            let direction = if *back { Direction::ToClient } else { Direction::ToServer };
            let of = |lab: &mut Lab| {
                let hits = lab.hits(direction, payload.as_bytes());
                let said = hits.iter().map(|hit| {
                    let sid = lab.rules.signatures[hit.rule as usize].id.sid;
                    (sid, hit.alert, hit.action, hit.for_flow)
                });
                said.collect::<Vec<_>>()
            };
            prop_assert_eq!(of(&mut alone), of(&mut shared), "packet {} {:?}", number, payload);
        }
    }
}

/// Rules that decide about the flow, with its first packet.
const OF_FLOW: [&str; 2] = ["pass ip any any -> any any (sid:1;)", "drop ip any any -> any any (sid:1;)"];
const OF_PACKET: &str = r#"alert udp any any -> any any (content:"a"; sid:2;)"#;

#[test]
fn what_a_rule_decided_of_a_flow_stands_while_it_is_seen() {
    for rule in OF_FLOW {
        for stays in [true, false] {
            let mut lab = Lab::new(&[rule, OF_PACKET].join("\n"));
            lab.visible = Some(sees(&lab, &[1, 2]));
            assert!(lab.hits(Direction::ToServer, b"x")[0].for_flow, "{rule}");
            // The tenant chooses other rules.
            lab.generation.0 += 1;
            lab.visible = Some(sees(&lab, if stays { &[1, 2] } else { &[2] }));
            let alerts = lab.send_to_server(b"a");
            assert_eq!(alerts, if stays { NONE.to_vec() } else { vec![2] }, "{rule}");
        }
    }
}

#[test]
fn a_flow_that_comes_to_other_rules_begins_with_them_anew() {
    for rule in OF_FLOW {
        let mut lab = Lab::new(rule);
        assert!(lab.hits(Direction::ToServer, b"x")[0].for_flow, "{rule}");
        lab.enter(OF_PACKET);
        assert_eq!(lab.send_to_server(b"a"), [2], "{rule}");
        assert_eq!((lab.flow.state.passed, lab.flow.state.dropped), (None, None), "that rule is not there");
    }
}
