// SPDX-License-Identifier: Apache-2.0
//! Shedding by the priority of policies under overload: verdicts of the flows' packets, inspected bytes, and
//! counters.

use bartizan_base::{Decision, Reason, Verdict};
use bartizan_config::suricata;
use bartizan_stages::settings::EngineSettings;
use bartizan_testkit::hosts::{address, ethernet, fragments, ip, tcp, udp};
use bartizan_testkit_worker::{Captured, Made, Stack, events};
use serde_json::Value;

const SYN: u8 = 2;
const ACK: u8 = 16;

/// Host 2 is served first, host 3 last.
const POLICIES: &str = "policies:\n\
    - {name: first, to: [10.0.0.2, \"2001:db8::2\"], chain: [pfw, ids], pfw: {default: allow}, ids: {}, overload: {priority: 200}}\n\
    - {name: last, to: [10.0.0.3, \"2001:db8::3\"], chain: [pfw, ids], pfw: {default: allow, rules: [{drop: udp, to-ports: 666}]}, ids: {}, overload: {priority: 50}}\n\
    default: {action: drop}\n";
const RULES: &str = "alert ip any any -> any any (msg:\"seen\"; content:\"good\"; sid:1;)";
/// A backlog in eighths of a ring.
const MUCH: u8 = 7;

/// Settings of a watched link.
fn detection(settings: &mut EngineSettings) {
    let (watched, _) = EngineSettings::from_settings(&suricata::shipped(), false, [1, 2]).unwrap();
    *settings = EngineSettings { checksums: settings.checksums, ..watched };
}

struct Bench {
    stack: Stack,
    v6: bool,
    sent: u64,
    /// Frames that may leave.
    left: u64,
}

impl Bench {
    fn new(name: &str, v6: bool, file: &str, tune: fn(&mut EngineSettings)) -> Self {
        let made = Made { name, policy: "chain: [ids]", set: &[], tune, rules: RULES, thresholds: "" };
        let mut stack = Stack::new(&made);
        stack.swap_file(file, RULES);
        Bench { stack, v6, sent: 0, left: 0 }
    }

    fn frame(&mut self, bytes: Vec<u8>) -> Decision {
        self.sent += 1;
        let captured = Captured::at_millis(self.sent, bytes);
        let decision = self.stack.worker.frame(&captured.frame(self.sent), &mut self.stack.recorder);
        let decision = decision.expect("nothing waits");
        self.left += u64::from(decision.verdict.forwards());
        decision
    }

    fn datagram(&mut self, host: u8, port: u16, payload: &[u8]) -> Decision {
        self.frame(ethernet(self.v6, &ip(self.v6, (1, host), 17, &udp((port, 53), payload))))
    }

    fn segment(&mut self, (from, to): (u8, u8), numbers: (u32, u32), flags: u8, payload: &[u8]) -> Decision {
        let ports = if from == 1 { (1000, 80) } else { (80, 1000) };
        self.frame(ethernet(
            self.v6,
            &ip(self.v6, (from, to), 6, &tcp(ports, numbers.0, numbers.1, flags, payload)),
        ))
    }

    fn handshake(&mut self, server: u8) {
        self.segment((1, server), (100, 0), SYN, b"");
        self.segment((server, 1), (500, 101), SYN | ACK, b"");
        self.segment((1, server), (101, 501), ACK, b"");
    }

    fn backlog(&mut self, eighths: u8) {
        self.stack.worker.shed_by(|| eighths);
    }

    fn stat(&self, name: &str) -> u64 {
        let mut found = None;
        self.stack.worker.visit_stats(|of, value| found = found.or((of == name).then_some(value)));
        found.unwrap_or_else(|| panic!("no counter {name}"))
    }

    /// Ends the flows: the events, with the sums held against each other.
    fn finish(self) -> Vec<Value> {
        let (worker, events) = self.stack.finish();
        let counters = worker.counters();
        assert_eq!((counters.packets, counters.forwarded + counters.let_go), (self.sent, self.left));
        assert_eq!(counters.packets, self.left + counters.refused.iter().sum::<u64>() - counters.let_go);
        events
    }
}

fn is_shed(decision: &Decision) -> bool {
    (decision.verdict, decision.reason) == (Verdict::Drop, Some(Reason::Overload))
}

/// The flow to a host.
fn flow_to(events: &[Value], v6: bool, host: u8) -> &Value {
    let to = address(v6, host).to_string();
    let mut flows = events::of_type(events, "flow").filter(|event| {
        event["dest_ip"].as_str().and_then(|text| text.parse().ok()) == Some(address(v6, host))
    });
    flows.next().unwrap_or_else(|| panic!("no flow to {to}"))
}

#[test]
fn the_higher_priority_loses_nothing_and_what_gives_way_is_counted() {
    for v6 in [false, true] {
        let mut bench = Bench::new("shed", v6, POLICIES, |_| ());
        assert!(
            bench.datagram(2, 1, b"good").verdict.forwards()
                && bench.datagram(3, 1, b"good").verdict.forwards()
        );
        bench.backlog(MUCH);
        for _ in 0..10 {
            assert!(bench.datagram(2, 1, b"good").verdict.forwards());
            assert!(is_shed(&bench.datagram(3, 1, b"good")), "v6 {v6}");
        }
        bench.backlog(0);
        assert!(bench.datagram(3, 1, b"good").verdict.forwards());
        let numbers = ["begun", "shed_pkts", "uninspected_pkts", "passed_flows"];
        assert_eq!(numbers.map(|name| bench.stat(&format!("overload.{name}"))), [1, 10, 0, 0]);
        assert_eq!(bench.stack.worker.counters().refused[Reason::Overload as usize], 10);
        let events = bench.finish();
        assert_eq!(events::of_type(&events, "alert").count(), 11 + 2);
        // A record for the flow, not for each packet.
        let drops: Vec<_> = events::of_type(&events, "drop").collect();
        assert_eq!(drops.len(), 1);
        assert_eq!(
            (&drops[0]["bartizan"]["reason"], &drops[0]["bartizan"]["policy"]),
            (&"overload".into(), &"last".into())
        );
        for (host, reason) in [(2, None), (3, Some("overload"))] {
            let flow = flow_to(&events, v6, host);
            assert_eq!(flow["flow"]["pkts_toserver"], if host == 2 { 11 } else { 12 }, "{flow}");
            assert_eq!(flow["bartizan"]["reason"].as_str(), reason, "{flow}");
        }
    }
}

#[test]
fn a_connection_goes_on_when_what_gave_way_is_sent_again() {
    for v6 in [false, true] {
        let mut bench = Bench::new("shed-tcp", v6, POLICIES, |_| ());
        bench.handshake(3);
        assert!(bench.segment((1, 3), (101, 501), ACK, b"go").verdict.forwards());
        bench.backlog(MUCH);
        assert!(is_shed(&bench.segment((1, 3), (103, 501), ACK, b"od")));
        bench.backlog(0);
        // Sent again, it is inspected in its place; the rule sees the whole word.
        assert!(bench.segment((1, 3), (103, 501), ACK, b"od").verdict.forwards());
        assert!(bench.segment((3, 1), (501, 105), ACK, b"").verdict.forwards());
        let events = bench.finish();
        assert_eq!(events::of_type(&events, "alert").count(), 1, "v6 {v6}");
        assert_eq!(flow_to(&events, v6, 3)["tcp"].get("ts_gap"), None);
    }
}

#[test]
fn what_would_open_a_flow_opens_none_and_one_of_a_batch_is_recorded() {
    for v6 in [false, true] {
        let mut bench = Bench::new("shed-opening", v6, POLICIES, |_| ());
        for _ in 0..2 {
            bench.backlog(MUCH);
            for port in 1..20 {
                assert!(is_shed(&bench.datagram(3, port, b"good")));
            }
        }
        // Nothing of it stays.
        assert_eq!(bench.stack.worker.flows().len(), 0);
        assert!(bench.datagram(2, 1, b"good").verdict.forwards(), "of a higher priority one is opened");
        let events = bench.finish();
        assert_eq!(events::of_type(&events, "drop").count(), 2);
        assert_eq!(events::of_type(&events, "flow").count(), 1);
    }
}

#[test]
fn the_lowest_priority_gives_way_first() {
    let mut bench = Bench::new(
        "shed-order",
        false,
        &POLICIES.replace("action: drop", "action: allow, chain: [ids]"),
        |_| (),
    );
    let mut round = |eighths| {
        bench.backlog(eighths);
        [2, 4, 3].map(|host| is_shed(&bench.datagram(host, 1, b"x")))
    };
    assert_eq!(round(3), [false; 3]);
    assert_eq!(round(4), [false, false, true]);
    assert_eq!(round(5), [false, true, true]);
    assert_eq!(round(3), [false, false, true]);
    assert_eq!(round(2), [false; 3]);
}

#[test]
fn inspection_gives_way_where_the_policy_says_pass_and_header_functions_judge_on() {
    let file = POLICIES.replace("priority: 50", "priority: 50, action: pass");
    for v6 in [false, true] {
        let mut bench = Bench::new("shed-pass", v6, &file, |_| ());
        bench.backlog(MUCH);
        assert!(bench.datagram(3, 1, b"good").verdict.forwards());
        bench.backlog(0);
        assert!(bench.datagram(3, 1, b"good").verdict.forwards());
        bench.backlog(MUCH);
        let refused = bench.frame(ethernet(v6, &ip(v6, (1, 3), 17, &udp((2, 666), b"good"))));
        assert_eq!(refused.reason, Some(Reason::PfwRule));
        assert_eq!(["shed_pkts", "passed_flows"].map(|name| bench.stat(&format!("overload.{name}"))), [0, 2]);
        let events = bench.finish();
        assert_eq!(events::of_type(&events, "alert").count(), 0);
        let exception = &flow_to(&events, v6, 3)["flow"]["exception_policy"][0];
        assert_eq!((&exception["target"], &exception["policy"]), (&"overload".into(), &"pass_flow".into()));
    }
}

#[test]
fn of_a_staged_policy_it_goes_on_uninspected_and_what_would_be_is_reported_once() {
    let file = POLICIES.replace("name: last,", "name: last, staged: true,");
    for v6 in [false, true] {
        let mut bench = Bench::new("shed-staged", v6, &file, |_| ());
        assert!(bench.datagram(3, 1, b"x").verdict.forwards());
        bench.backlog(MUCH);
        for _ in 0..5 {
            assert!(bench.datagram(3, 1, b"good").verdict.forwards());
        }
        assert_eq!(
            ["shed_pkts", "uninspected_pkts"].map(|name| bench.stat(&format!("overload.{name}"))),
            [5, 5]
        );
        let events = bench.finish();
        assert_eq!(events::of_type(&events, "drop").count(), 0);
        let alerts: Vec<_> = events::of_type(&events, "alert").collect();
        assert_eq!(alerts.len(), 1, "{alerts:?}");
        assert_eq!(alerts[0]["alert"]["signature_id"], Reason::Overload as u64 + 1);
    }
}

#[test]
fn in_detection_it_goes_on_uninspected() {
    for v6 in [false, true] {
        let mut bench = Bench::new("shed-detection", v6, POLICIES, detection);
        bench.datagram(3, 1, b"good");
        bench.backlog(MUCH);
        for port in [1, 1, 2] {
            assert_eq!(bench.datagram(3, port, b"good").verdict, Verdict::Continue);
        }
        bench.datagram(2, 1, b"good");
        assert_eq!(
            ["shed_pkts", "uninspected_pkts"].map(|name| bench.stat(&format!("overload.{name}"))),
            [3, 3]
        );
        let events = bench.finish();
        assert_eq!(events::of_type(&events, "alert").count(), 2);
        assert_eq!(flow_to(&events, v6, 3)["flow"]["pkts_toserver"], 3);
    }
}

#[test]
fn in_detection_a_stream_has_a_gap_where_packets_gave_way() {
    for v6 in [false, true] {
        let mut bench = Bench::new("shed-gap", v6, POLICIES, detection);
        bench.handshake(3);
        bench.backlog(MUCH);
        bench.segment((1, 3), (101, 501), ACK, b"not seen, good");
        bench.backlog(0);
        bench.segment((1, 3), (115, 501), ACK, b"good");
        bench.segment((3, 1), (501, 119), ACK, b"");
        bench.segment((1, 3), (119, 501), ACK, b"x");
        bench.segment((3, 1), (501, 120), ACK, b"");
        assert_eq!([bench.stat("tcp.reassembly_gap"), bench.stat("overload.shed_pkts")], [1, 1], "v6 {v6}");
        let events = bench.finish();
        assert_eq!(events::of_type(&events, "alert").count(), 1, "what is behind the gap is inspected");
        assert_eq!(flow_to(&events, v6, 3)["flow"]["pkts_toserver"], 5);
    }
}

#[test]
fn a_packet_around_another_one_goes_as_that_one_does() {
    // The tunnel's own flow is of the policy that gives way first.
    for v6 in [false, true] {
        let mut bench = Bench::new("shed-tunnel", v6, POLICIES, |_| ());
        let tunnel = |host| {
            let inner = ip(v6, (1, host), 17, &udp((1, 53), b"good"));
            ethernet(v6, &ip(v6, (1, 3), if v6 { 41 } else { 4 }, &inner))
        };
        bench.backlog(MUCH);
        assert!(bench.frame(tunnel(2)).verdict.forwards());
        assert!(is_shed(&bench.frame(tunnel(3))));
        bench.finish();
    }
}

#[test]
fn fragments_give_way_as_the_datagram_that_they_make() {
    for v6 in [false, true] {
        let mut bench = Bench::new("shed-fragments", v6, POLICIES, |_| ());
        bench.backlog(MUCH);
        for (id, host, goes) in [(1, 2, true), (2, 3, false)] {
            let parts = fragments(v6, (1, host), 17, id, &udp((1, 53), &[b'x'; 64]), 40);
            let mut decisions = Vec::new();
            for (n, part) in parts.iter().enumerate() {
                let captured = Captured::at_millis(u64::from(id) * 10 + n as u64, ethernet(v6, part));
                decisions.push(bench.stack.worker.frame(&captured.frame(1), &mut bench.stack.recorder));
            }
            let last = decisions.pop().flatten().expect("the last one makes it whole");
            assert_eq!((last.verdict.forwards(), is_shed(&last)), (goes, !goes), "v6 {v6}, host {host}");
        }
    }
}

#[test]
fn neighbours_are_found_whatever_gives_way() {
    let file = POLICIES.replace("action: drop", "action: allow, chain: [ids]");
    let mut bench = Bench::new("shed-neighbours", true, &file, |_| ());
    bench.backlog(MUCH);
    // A solicitation, and an echo request beside it.
    for (kind, goes) in [(135, true), (128, false)] {
        let mut body = vec![kind, 0, 0, 0, 0, 0, 0, 0];
        body.extend_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
        let decision = bench.frame(ethernet(true, &ip(true, (1, 9), 58, &body)));
        assert_eq!(decision.verdict.forwards(), goes, "{kind}: {decision:?}");
    }
}

#[test]
fn where_all_have_one_priority_nothing_gives_way_and_nobody_looks() {
    let file = POLICIES.replace("priority: 200", "priority: 100").replace("priority: 50", "priority: 100");
    let mut bench = Bench::new("shed-equal", false, &file, |_| ());
    bench.stack.worker.shed_by(|| panic!("the ring is not looked at"));
    bench.backlog(MUCH);
    assert!(bench.datagram(3, 1, b"x").verdict.forwards() && bench.datagram(2, 1, b"x").verdict.forwards());
    // A policy behind one that takes all is no policy of any traffic.
    let file = "policies: [{name: all, chain: [ids], ids: {}}, {name: none, chain: [ids], ids: {}, overload: {priority: 1}}]\ndefault: {action: drop}";
    bench.stack.swap_file(file, RULES);
    bench.stack.worker.shed_by(|| panic!("the ring is not looked at"));
}

#[test]
fn a_generation_without_priorities_ends_it() {
    let mut bench = Bench::new("shed-swap", false, POLICIES, |_| ());
    bench.backlog(MUCH);
    assert!(is_shed(&bench.datagram(3, 1, b"x")));
    bench.stack.swap_file(
        &POLICIES.replace("priority: 200", "priority: 100").replace("priority: 50", "priority: 100"),
        RULES,
    );
    bench.backlog(MUCH);
    assert!(bench.datagram(3, 1, b"x").verdict.forwards());
    assert_eq!(bench.stack.worker.sheds_below(), 0);
}
