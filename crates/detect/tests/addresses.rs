// SPDX-License-Identifier: Apache-2.0
//! Many rules that name addresses, each with a list of its own, match together as each matches alone.

use crate::common;

use bartizan_base::{Direction, SettingsMap};
use common::{Lab, NONE, load_text};
use proptest::prelude::*;
use std::sync::Arc;

/// Fewer rules are not found by address, so each rule alone is the reference for all together.
const RULES: usize = 40;

/// A list of some hosts of the laboratory's networks, of one IP version or both.
fn list() -> impl Strategy<Value = String> {
    let entry = (1u8..12, 0u8..3, any::<bool>()).prop_map(|(low, more, six)| match (six, more) {
        (false, 0) => format!("192.0.2.{low}"),
        (false, more) => format!("192.0.2.{low}-192.0.2.{}", low + more),
        (true, _) => format!("2001:db8::{low:x}"),
    });
    proptest::collection::vec(entry, 1..4).prop_map(|list| format!("[{}]", list.join(",")))
}

/// The head and the options of a rule: on addresses alone (evaluated once for each direction of a flow), or
/// on each packet.
fn rule() -> impl Strategy<Value = (String, String)> {
    let protocol = prop_oneof![Just("ip"), Just("udp")];
    let options = prop_oneof![Just(""), Just("dsize:1; "), Just("flow:to_server; ")];
    (protocol, list(), list(), 0u8..4, any::<bool>(), options).prop_map(
        |(protocol, one, other, ends, both, options)| {
            let (source, destination) = match ends {
                0 => (one, "any".to_owned()),
                1 => ("any".to_owned(), one),
                2 => (one, other),
                _ => (one, "!192.0.2.3".to_owned()),
            };
            let arrow = if both { "<>" } else { "->" };
            (format!("alert {protocol} {source} any {arrow} {destination} any"), options.to_owned())
        },
    )
}

/// The alerts on each of three packets of a flow between two hosts.
fn alerts(lab: &mut Lab, hosts: (u8, u8), v6: bool) -> Vec<Vec<u32>> {
    lab.new_flow();
    (lab.hosts, lab.v6) = (hosts, v6);
    let packets =
        [(Direction::ToServer, b"a".as_slice()), (Direction::ToClient, b"bc"), (Direction::ToServer, b"d")];
    packets.into_iter().map(|(direction, payload)| lab.send(direction, payload)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn rules_on_addresses_match_as_each_does_alone(rules in proptest::collection::vec(rule(), RULES)) {
        let text = |(sid, (head, options)): (usize, &(String, String))| format!("{head} ({options}sid:{};)\n", sid + 1);
        let all: Vec<String> = rules.iter().enumerate().map(text).collect();
        let mut together = Lab::new(&all.concat());
        let by_address = (0..together.rules.heads.len() as u32).filter(|head| together.rules.prefilters.by_address.has(*head));
        prop_assert!(by_address.count() > RULES / 2);
        let mut alone: Vec<Lab> = all.iter().map(|rule| Lab::new(rule)).collect();
        for hosts in [(1, 2), (2, 1), (3, 9), (5, 11), (13, 200), (7, 7)] {
            for v6 in [false, true] {
                let mut wanted = vec![Vec::new(); 3];
                for lab in &mut alone {
                    wanted.iter_mut().zip(alerts(lab, hosts, v6)).for_each(|(all, one)| all.extend(one));
                }
                let mut found = alerts(&mut together, hosts, v6);
                found.iter_mut().chain(&mut wanted).for_each(|list| list.sort_unstable());
                prop_assert_eq!(&found, &wanted, "{:?} v6 {}\n{}", hosts, v6, all.concat());
            }
        }
    }
}

/// A flow whose ends no rule names is not searched again until other rules run.
#[test]
fn a_flow_that_nobody_named_is_found_by_new_rules() {
    let listed = |host: u8| -> String {
        (0..RULES)
            .map(|n| format!("alert udp [192.0.{n}.{host}] any -> any any (dsize:1; sid:{};)\n", n + 1))
            .collect()
    };
    let mut lab = Lab::new(&listed(77));
    assert_eq!(lab.send_to_server(b"a"), NONE);
    assert_eq!(lab.send_to_server(b"a"), NONE);
    lab.enter(&listed(1));
    assert_eq!((lab.send_to_server(b"a"), lab.send_to_client(b"a")), (vec![3], vec![]));
}

/// A few heads are compared with each flow, without a search by address.
#[test]
fn few_rules_are_not_worth_a_search() {
    let rules: String =
        (0..3).map(|n| format!("alert ip [192.0.2.{n}] any -> any any (sid:{};)\n", n + 1)).collect();
    let loaded = load_text(&rules, &SettingsMap::new(), &Arc::default());
    assert!(!(0..3).any(|head| loaded.rules.prefilters.by_address.has(head)));
    assert_eq!(Lab::new(&rules).send_to_server(b"a"), [2]);
}
