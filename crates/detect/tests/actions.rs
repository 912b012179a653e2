// SPDX-License-Identifier: Apache-2.0
//! Scope of a match's action: the packet, or the rest of the flow.

use crate::common;

use bartizan_base::{Direction, SettingsMap};
use bartizan_detect::signature::RuleAction;
use common::{Lab, NONE};

#[test]
fn a_pass_ends_evaluation_and_reports_only_when_told() {
    let mut lab = Lab::new(concat!(
        "alert udp any any -> any any (content:\"x\"; sid:1;)\n",
        "pass udp any any -> any any (content:\"x\"; sid:2;)\n",
    ));
    let hits = lab.hits(Direction::ToServer, b"x");
    assert_eq!(hits.len(), 1, "the pass is the only match");
    assert!(!hits[0].alert && !hits[0].for_flow);
    let mut lab = Lab::new("pass udp any any -> any any (content:\"x\"; alert; sid:2;)\n");
    assert!(lab.hits(Direction::ToServer, b"x")[0].alert);
}

/// As in Suricata, a match that the limit withholds is no pass.
#[test]
fn a_pass_beyond_its_limit_holds_no_longer() {
    let mut lab = Lab::new(concat!(
        "pass udp any any -> any any (content:\"x\"; threshold:type limit, track by_src, count 1, seconds 60; sid:1;)\n",
        "alert udp any any -> any any (content:\"x\"; sid:2;)\n",
    ));
    assert_eq!(lab.send(Direction::ToServer, b"x"), NONE);
    assert_eq!(lab.send(Direction::ToServer, b"x"), [2]);
}

#[test]
fn rules_on_addresses_match_once_per_direction_and_for_the_flow() {
    let mut lab = Lab::new("drop udp any any -> any any (sid:1;)\n");
    let hits = lab.hits(Direction::ToServer, b"x");
    assert!(hits[0].for_flow && hits[0].action == RuleAction::Drop);
    assert_eq!(lab.send(Direction::ToServer, b"x"), NONE, "the flow is decided");
    let mut lab = Lab::new("alert udp any any -> any any (sid:1;)\n");
    assert_eq!(lab.send(Direction::ToServer, b"x"), [1]);
    assert_eq!(lab.send(Direction::ToServer, b"x"), NONE);
    assert_eq!(lab.send(Direction::ToClient, b"x"), [1]);
    assert_eq!(lab.send(Direction::ToClient, b"x"), NONE);
}

#[test]
fn a_match_on_one_packet_decides_about_that_packet() {
    let mut lab = Lab::new("drop udp any any -> any any (content:\"x\"; sid:1;)\n");
    for _ in 0..2 {
        assert!(!lab.hits(Direction::ToServer, b"x")[0].for_flow);
    }
    assert_eq!(lab.send(Direction::ToServer, b"y"), NONE);
}

#[test]
fn the_order_of_actions_can_be_set() {
    let rules = concat!(
        "pass udp any any -> any any (content:\"x\"; sid:1;)\n",
        "drop udp any any -> any any (content:\"x\"; sid:2;)\n",
    );
    assert_eq!(Lab::new(rules).send(Direction::ToServer, b"x"), NONE);
    let mut settings = SettingsMap::new();
    settings.set("action-order.0", "drop");
    settings.set("action-order.1", "pass");
    assert_eq!(Lab::with(rules, &settings).send(Direction::ToServer, b"x"), [2]);
}
