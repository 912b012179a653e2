// SPDX-License-Identifier: Apache-2.0
//! `portscan` in real workers with a policy: scans of each kind are reported once, normal clients never, over
//! reloads and with any number of workers, in both IP versions.

use crate::functions_bench as common;

use bartizan_base::{Decision, Reason, Timestamp};
use bartizan_dataplane::handover::{Handled, Station};
use bartizan_flow::FlowState;
use bartizan_functions::portscan::PortscanKind;
use bartizan_stages::record::{Recorder, RecorderEvent};
use bartizan_stages::settings::EngineSettings;
use bartizan_testkit::packet;
use bartizan_testkit_worker::{Captured, Made, Stack};
use common::{ACK, Bench, FIN, PSH, RST, SYN};
use core::net::IpAddr;
use serde_json::{Value, json};

/// Alerts: number of the rule, and details of the scan.
#[derive(Default)]
struct Alerts(Vec<(u32, Value)>);

impl Recorder for Alerts {
    fn record(&mut self, event: RecorderEvent<'_>) {
        if let RecorderEvent::Alert { finding, .. } = event {
            // Skips alerts of staged policies and of detection's rules.
            if finding.rule.category == "staged" || finding.rule.id.gid == 1 {
                return;
            }
            assert_eq!(finding.rule.id.gid, 122);
            let said: Value = serde_json::from_slice(finding.context.as_deref().unwrap()).unwrap();
            self.0.push((finding.rule.id.sid, said["portscan"].clone()));
        }
    }
}

/// Workers that get frames in turn.
struct Net {
    stack: Stack,
    stations: Vec<Station>,
    alerts: Alerts,
    millis: u64,
    frames: usize,
}

fn tuned(section: &str, workers: usize, tune: fn(&mut EngineSettings)) -> Net {
    let name = std::thread::current().name().unwrap_or("net").replace("::", "-");
    let policy = format!("chain: [portscan], portscan: {section}");
    let made = Made { name: &name, policy: &policy, set: &[], tune, rules: "", thresholds: "" };
    let stack = Stack::new(&made);
    let stations = if workers > 1 { stack.stations(workers) } else { Vec::new() };
    Net { stack, stations, alerts: Alerts::default(), millis: 0, frames: 0 }
}

fn net(section: &str) -> Net {
    tuned(section, 1, |_| ())
}

type End = (IpAddr, u16);

fn host(v6: bool, n: u8) -> IpAddr {
    packet::address(v6, n)
}

impl Net {
    /// Sends a packet, ten milliseconds after the previous one.
    fn send(&mut self, bytes: Vec<u8>) -> Decision {
        self.millis += 10;
        self.frames += 1;
        let frame = Captured::at_millis(self.millis, bytes);
        if self.stations.is_empty() {
            return self.stack.worker.frame(&frame.frame(1), &mut self.alerts).expect("no fragment");
        }
        let arrival = self.frames % self.stations.len();
        match self.stations[arrival].frame(&frame.frame(1), 0, &mut self.alerts) {
            Handled::Here(decision) => return decision,
            Handled::Away(_) => {}
            Handled::Held => panic!("no fragment"),
        }
        let mut decided = None;
        while decided.is_none() {
            for station in &mut self.stations {
                station.handed_over(8, &mut self.alerts, |_, _, decision, _| decided = Some(decision));
            }
        }
        decided.unwrap()
    }

    fn wait(&mut self, millis: u64) {
        self.millis += millis;
    }

    fn tcp(&mut self, from: End, to: End, numbers: (u32, u32), flags: u8) -> Decision {
        self.send(packet::tcp(from, to, numbers, flags, b"").frame())
    }

    fn syn(&mut self, from: End, to: End) -> Decision {
        self.tcp(from, to, (100, 0), SYN)
    }

    fn refused(&mut self, from: End, to: End) {
        self.syn(from, to);
        self.tcp(to, from, (0, 101), RST | ACK);
    }

    fn connect(&mut self, from: End, to: End) -> Decision {
        self.syn(from, to);
        self.tcp(to, from, (500, 101), SYN | ACK);
        self.tcp(from, to, (101, 501), ACK)
    }

    fn datagram(&mut self, from: End, to: End) -> Decision {
        self.send(packet::udp(from, to, b"?").frame())
    }

    /// ICMP port unreachable about a datagram.
    fn unreachable(&mut self, from: End, to: End) {
        let quoted = packet::udp(from, to, b"?").bytes();
        let code = if from.0.is_ipv4() { 3 } else { 4 };
        let rest = [&[0; 4], &quoted[..]].concat();
        self.send(packet::icmp(to.0, from.0, (3, 1), code, &rest).frame());
    }

    /// The alerts so far: kind and count.
    fn told(&self) -> Vec<(u32, u64)> {
        let count = |said: &Value| said["ports"].as_u64().or_else(|| said["hosts"].as_u64()).unwrap();
        self.alerts.0.iter().map(|(sid, said)| (*sid, count(said))).collect()
    }

    fn stat(&self, wanted: &str) -> u64 {
        let mut found = None;
        self.stack.worker.visit_stats(|name, value| found = found.or((name == wanted).then_some(value)));
        found.unwrap_or_else(|| panic!("no counter {wanted}"))
    }
}

#[test]
fn a_syn_scan_is_told_once_a_window() {
    for v6 in [false, true] {
        let mut net = net("{}");
        let (a, b) = (host(v6, 1), host(v6, 2));
        for port in 1..=19 {
            net.refused((a, 40_000), (b, port));
        }
        assert_eq!(net.told(), []);
        for port in 20..=60 {
            net.refused((a, 40_000), (b, port));
        }
        let said = json!({"source": a.to_string(), "host": b.to_string(), "ports": 20, "window": 60});
        assert_eq!(net.alerts.0, [(1, said)]);
        // Three minutes more, two ports a second.
        for port in 100..460 {
            net.refused((a, 40_000), (b, port));
            net.wait(480);
        }
        assert_eq!(net.told().len(), 4, "{:?}", net.told());
    }
}

#[test]
fn a_connect_scan_is_found_among_open_ports() {
    for v6 in [false, true] {
        let mut net = net("{}");
        let (a, b) = (host(v6, 1), host(v6, 2));
        for port in 1..=24 {
            let from = (a, 40_000 + port);
            if port % 6 == 0 {
                net.connect(from, (b, port));
                net.tcp(from, (b, port), (101, 501), RST | ACK);
            } else {
                net.refused(from, (b, port));
            }
        }
        assert_eq!(net.told(), [(1, 20)]);
    }
}

#[test]
fn ports_that_do_not_answer_count_after_some_seconds() {
    for v6 in [false, true] {
        let mut net = net("{}");
        let (a, b) = (host(v6, 1), host(v6, 2));
        for port in 1..=30 {
            net.syn((a, 40_000), (b, port));
        }
        assert_eq!(net.told(), [], "answers may come");
        net.wait(3_000);
        // Sent again, from another port as nmap does.
        net.syn((a, 40_001), (b, 1));
        assert_eq!(net.told(), [(1, 30)]);
    }
}

#[test]
fn a_udp_scan_is_found_by_what_refuses_it() {
    for v6 in [false, true] {
        let mut net = net("{}");
        let (a, b) = (host(v6, 1), host(v6, 2));
        for port in 1..=19 {
            net.datagram((a, 40_000), (b, port));
            net.unreachable((a, 40_000), (b, port));
        }
        // The quoted packets were never sent.
        for port in 100..150 {
            net.unreachable((a, 40_000), (b, port));
        }
        assert_eq!(net.told(), []);
        net.datagram((a, 40_000), (b, 20));
        net.unreachable((a, 40_000), (b, 20));
        assert_eq!(net.told(), [(17, 20)]);
    }
}

#[test]
fn sweeps_are_found() {
    for v6 in [false, true] {
        let mut net = net("{hosts: 10}");
        let a = host(v6, 1);
        for n in 2..=30 {
            net.refused((a, 40_000), (host(v6, n), 22));
        }
        for n in 2..=30 {
            net.datagram((a, 40_000), (host(v6, n), 161));
            net.unreachable((a, 40_000), (host(v6, n), 161));
        }
        let said = json!({"source": a.to_string(), "port": 22, "hosts": 10, "window": 60});
        assert_eq!(net.alerts.0[0], (3, said));
        assert_eq!(net.told(), [(3, 10), (19, 10)]);
        // Addresses without hosts.
        let other = host(v6, 99);
        for n in 2..=20 {
            net.syn((other, 40_000), (host(v6, n), 445));
        }
        net.wait(3_000);
        net.syn((other, 40_000), (host(v6, 21), 445));
        assert_eq!(net.told().len(), 3);
    }
}

#[test]
fn a_slow_scan_below_the_threshold_is_not_told() {
    for v6 in [false, true] {
        let mut net = net("{}");
        for port in 1..=60 {
            net.refused((host(v6, 1), 40_000), (host(v6, 2), port));
            net.wait(4_000);
        }
        assert_eq!(net.told(), []);
    }
}

#[test]
fn probes_that_open_nothing_count_at_once() {
    for v6 in [false, true] {
        for flags in [0, FIN, FIN | PSH | 0x20] {
            // Inline, the engine drops them before functions run.
            let mut net = tuned("{}", 1, |settings| settings.prevention = false);
            for port in 1..=30 {
                net.tcp((host(v6, 1), 40_000), (host(v6, 2), port), (1, 0), flags);
            }
            assert_eq!(net.told(), [(1, 20)], "flags {flags:#x}");
        }
    }
}

#[test]
fn good_clients_are_never_told() {
    for v6 in [false, true] {
        let mut net = net("{}");
        let b = host(v6, 250);
        // A browser: many existing servers, some connections reset later.
        let browser = host(v6, 1);
        for n in 2..=200 {
            let (from, to) = ((browser, 40_000 + u16::from(n)), (host(v6, n), 443));
            net.connect(from, to);
            if n % 4 == 0 {
                net.tcp(to, from, (501, 101), RST | ACK);
            }
        }
        // A client whose other IP version is unreachable, and which falls back.
        for n in 2..=100 {
            net.syn((host(v6, 201), 40_000), (host(v6, n), 443));
            net.wait(100);
        }
        // A resolver: each third server refuses.
        let resolver = host(v6, 202);
        for n in 2..=120 {
            let (from, to) = ((resolver, 30_000 + u16::from(n)), (host(v6, n), 53));
            net.datagram(from, to);
            if n % 3 == 0 {
                net.unreachable(from, to);
            } else {
                net.datagram(to, from);
            }
        }
        // A client that retries an absent server; a client that uses many ports of a host.
        for n in 0..100 {
            net.refused((host(v6, 203), 40_000 + n), (b, 8080));
            net.connect((host(v6, 204), 40_000 + n), (b, 5_000 + n));
            net.datagram((host(v6, 205), 514), (b, 6_000 + n));
        }
        // Connections that both sides had and the server forgot.
        for n in 0..100 {
            net.tcp((host(v6, 206), 40_000 + n), (b, 7_000 + n), (9, 9), ACK);
            net.tcp((b, 7_000 + n), (host(v6, 206), 40_000 + n), (9, 0), RST);
        }
        // A server whose clients are gone before its answers.
        for n in 0..100 {
            net.datagram((host(v6, 207), 40_000 + n), (b, 53));
            net.datagram((b, 53), (host(v6, 207), 40_000 + n));
            net.unreachable((b, 53), (host(v6, 207), 40_000 + n));
        }
        assert_eq!(net.alerts.0, []);
    }
}

#[test]
fn a_reload_in_the_middle_of_a_scan_keeps_the_count() {
    for v6 in [false, true] {
        let mut net = net("{}");
        let (a, b) = (host(v6, 1), host(v6, 2));
        for port in 1..=12 {
            net.refused((a, 40_000), (b, port));
        }
        net.stack.swap("chain: [portscan, pfw], portscan: {ports: 20}, pfw: {default: allow}", "");
        // A policy without it, too.
        net.stack.swap("chain: [pfw], pfw: {default: allow}", "");
        net.stack.swap("chain: [portscan], portscan: {}", "");
        for port in 13..=19 {
            net.refused((a, 40_000), (b, port));
        }
        assert_eq!(net.told(), []);
        net.refused((a, 40_000), (b, 20));
        assert_eq!(net.told(), [(1, 20)]);
        // The scan is not reported again.
        net.stack.swap("chain: [portscan], portscan: {ports: 10}", "");
        for port in 21..=40 {
            net.refused((a, 40_000), (b, port));
        }
        assert_eq!(net.told().len(), 1);
    }
}

/// Attempts of a source to open ports, before a policy has the function.
fn opened(net: &mut Net, (a, b): (IpAddr, IpAddr), ports: core::ops::RangeInclusive<u16>) {
    for port in ports {
        assert_eq!(net.syn((a, 40_000), (b, port)).reason, None, "{port}");
    }
}

/// Forwarded flows that no function wanted to see any more are inspected again, count, and are dropped.
#[test]
fn a_policy_that_drops_scans_judges_flows_that_were_let_go() {
    let passed = "chain: [pfw], pfw: {default: allow}";
    let drops = "chain: [portscan, pfw], portscan: {ports: 4, action: drop}, pfw: {default: allow}";
    for v6 in [false, true] {
        let mut net = net("{}");
        net.stack.swap(passed, "");
        let (a, b) = (host(v6, 1), host(v6, 2));
        net.connect((a, 1_000), (b, 80));
        opened(&mut net, (a, b), 1..=6);
        net.stack.swap(drops, "");
        let refusal = |net: &mut Net, port| net.tcp((b, port), (a, 40_000), (0, 101), RST | ACK).reason;
        for port in 1..=3 {
            assert_eq!(refusal(&mut net, port), None);
        }
        assert_eq!(refusal(&mut net, 4), Some(Reason::Portscan), "it makes the scan");
        assert_eq!(net.told(), [(1, 4)]);
        // An unanswered flow that was forwarded: its repeated opening is dropped.
        for _ in 0..2 {
            assert_eq!(net.syn((a, 40_000), (b, 6)).reason, Some(Reason::Portscan));
        }
        // An earlier connection is not one that the source opens now.
        assert_eq!(net.tcp((a, 1_000), (b, 80), (101, 501), ACK).reason, None);
    }
}

/// A policy that drops scans also judges flows that detection had bypassed: detection inspects them again.
#[test]
fn a_policy_that_drops_scans_judges_bypassed_flows() {
    let bypass = "alert ip any any -> any any (msg:\"all\"; bypass; sid:1;)\n";
    let evil = "drop ip any any -> any any (msg:\"evil\"; content:\"evil\"; sid:2;)\n";
    for v6 in [false, true] {
        let mut net = net("{}");
        net.stack.swap("chain: [ids], ids: {rules: r}", bypass);
        let (a, b) = (host(v6, 1), host(v6, 2));
        for port in 1..=6 {
            assert_eq!(net.datagram((a, 40_000), (b, port)).reason, None);
        }
        let states =
            |net: &Net| net.stack.worker.flows().iter().map(|(_, flow)| flow.state()).collect::<Vec<_>>();
        assert_eq!(states(&net), [FlowState::LocalBypassed; 6]);
        let drops = "chain: [portscan, ids], portscan: {ports: 4, action: drop}, ids: {rules: r}";
        net.stack.swap(drops, evil);
        for port in 1..=4 {
            net.unreachable((a, 40_000), (b, port));
        }
        assert_eq!(net.told(), [(17, 4)]);
        assert_eq!(net.datagram((a, 40_001), (b, 1)).reason, Some(Reason::Portscan), "it opens");
        // It was open before.
        let of_old = packet::udp((a, 40_000), (b, 6), b"evil").frame();
        assert_eq!(net.send(of_old).reason, Some(Reason::IdsRule), "it is inspected again");
    }
}

/// A continuing scan is dropped at its next packet, not when the window of an alert ends.
#[test]
fn a_scan_that_goes_on_is_dropped_once_the_policy_drops() {
    for v6 in [false, true] {
        // The scan was reported before, or not.
        for (before, told) in [("{ports: 20}", vec![(1, 5)]), ("{ports: 4}", vec![(1, 4), (1, 5)])] {
            let mut net = net(before);
            let (a, b) = (host(v6, 1), host(v6, 2));
            opened(&mut net, (a, b), 1..=6);
            for port in 1..=4 {
                net.refused((a, 40_001), (b, port));
            }
            net.stack.swap("chain: [portscan], portscan: {ports: 5, action: drop}", "");
            let refusal = net.tcp((b, 5), (a, 40_000), (0, 101), RST | ACK);
            assert_eq!((refusal.reason, net.told()), (Some(Reason::Portscan), told.clone()), "{before}");
            let again = net.syn((a, 40_000), (b, 6));
            assert_eq!(again.reason, Some(Reason::Portscan), "{before}: it was opened before");
            // Once, as without the policy before.
            net.wait(30_000);
            net.refused((a, 40_001), (b, 7));
            assert_eq!(net.told(), told, "{before}");
        }
    }
}

/// A packet that lets unanswered connections time out and also refuses one shows a single scan, reported
/// once.
#[test]
fn a_scan_that_a_packet_shows_twice_is_told_once_where_it_is_dropped() {
    for (v6, action) in [false, true].into_iter().flat_map(|v6| [(v6, "drop"), (v6, "alert")]) {
        let mut net = net(&format!("{{ports: 5, action: {action}}}"));
        let (a, b) = (host(v6, 1), host(v6, 2));
        opened(&mut net, (a, b), 1..=6);
        net.wait(4_000);
        net.tcp((b, 1), (a, 40_000), (0, 101), RST | ACK);
        assert_eq!(net.told(), [(1, 6)], "{action}");
    }
}

#[test]
fn any_number_of_workers_tells_the_same() {
    for v6 in [false, true] {
        let runs = [1, 2, 4].map(|workers| {
            let mut net = tuned("{ports: 30, hosts: 25}", workers, |_| ());
            for n in 1..=60 {
                net.refused((host(v6, 1), 40_000 + n), (host(v6, 2), n));
                net.refused((host(v6, 3), 40_000 + n), (host(v6, 10 + n as u8), 22));
                net.connect((host(v6, 4), 40_000 + n), (host(v6, 10 + n as u8), 22));
                net.datagram((host(v6, 5), 40_000 + n), (host(v6, 2), n));
                net.unreachable((host(v6, 5), 40_000 + n), (host(v6, 2), n));
            }
            net.alerts.0
        });
        let told = |sid| runs[0].iter().filter(|(told, _)| *told == sid).count();
        assert_eq!((runs[0].len(), told(1), told(3), told(17)), (3, 1, 1, 1), "{:?}", runs[0]);
        assert_eq!(runs[0], runs[1]);
        assert_eq!(runs[0], runs[2]);
    }
}

#[test]
fn what_is_known_expires_while_packets_come_and_while_none_do() {
    for v6 in [false, true] {
        let mut net = net("{}");
        for n in 10..60 {
            net.refused((host(v6, n), 40_000), (host(v6, 2), 23));
        }
        assert_eq!((net.stat("host.active"), net.stat("host.evicted")), (50, 0));
        net.wait(70_000);
        net.datagram((host(v6, 200), 1), (host(v6, 2), 2));
        assert_eq!((net.stat("host.active"), net.stat("host.ended")), (0, 50));
        net.refused((host(v6, 1), 40_000), (host(v6, 2), 23));
        assert_eq!(net.stat("host.active"), 1);
        let later = Timestamp::from_nanos((net.millis + 70_000) * 1_000_000 + 1_000_000_000);
        net.stack.worker.idle(later, &mut net.alerts);
        assert_eq!(net.stat("host.active"), 0);
    }
}

#[test]
fn what_a_scanner_opens_is_dropped_for_some_time() {
    for v6 in [false, true] {
        let mut net = net("{ports: 5, action: drop, block: 30s}");
        let (a, b) = (host(v6, 1), host(v6, 2));
        let dropped = |decision: Decision| {
            let refused = !decision.verdict.forwards();
            assert_eq!(refused.then_some(Reason::Portscan), decision.reason);
            refused
        };
        net.connect((a, 1_000), (b, 80));
        for port in 1..=5 {
            net.refused((a, 40_000), (b, port));
        }
        assert_eq!(net.told(), [(1, 5)]);
        // Everything that the source opens is dropped, with later packets; not earlier connections, nor those
        // of others.
        assert!(dropped(net.syn((a, 2_000), (b, 443))));
        assert!(dropped(net.syn((a, 2_000), (b, 443))));
        assert!(dropped(net.datagram((a, 2_000), (host(v6, 3), 53))));
        assert!(dropped(net.datagram((a, 2_000), (host(v6, 3), 53))));
        assert!(!dropped(net.tcp((a, 1_000), (b, 80), (101, 501), ACK)));
        assert!(!dropped(net.syn((b, 2_000), (a, 443))));
        assert!(!dropped(net.connect((host(v6, 4), 2_000), (b, 443))));
        net.wait(30_000);
        assert!(!dropped(net.syn((a, 2_000), (b, 443))));
        assert!(!dropped(net.datagram((a, 2_000), (host(v6, 3), 53))));
        // A dropped packet has no answer because of the drop: it is not counted as an attempt.
        assert_eq!(net.told().len(), 1);
    }
}

#[test]
fn it_runs_before_what_would_hide_a_scan_from_it() {
    for v6 in [false, true] {
        let mut net = net("{}");
        net.stack.swap("chain: [portscan, pfw], portscan: {}, pfw: {default: drop}", "");
        for port in 1..=20 {
            let decision = net.syn((host(v6, 1), 40_000), (host(v6, 2), port));
            assert_eq!(decision.reason, Some(Reason::PfwDefault));
        }
        net.wait(3_000);
        net.syn((host(v6, 1), 40_000), (host(v6, 2), 21));
        assert_eq!(net.told(), [(1, 20)]);
    }
}

#[test]
fn a_staged_policy_tells_and_drops_nothing() {
    let mut net = net("{}");
    net.stack.swap("staged: true, chain: [portscan], portscan: {ports: 5, action: drop}", "");
    for port in 1..=10 {
        let decision = net.syn((host(false, 1), 40_000), (host(false, 2), port));
        assert!(decision.verdict.forwards());
        net.tcp((host(false, 2), port), (host(false, 1), 40_000), (0, 101), RST | ACK);
    }
    assert_eq!(net.told()[0], (1, 5));
}

#[test]
fn wrong_rules_are_refused_with_their_place() {
    for (rules, place) in [
        (r#"{"ports": 1}"#, "classes/0/rules/ports"),
        (r#"{"hosts": 101}"#, "classes/0/rules/hosts"),
        (r#"{"window": "0s"}"#, "classes/0/rules/window"),
        (r#"{"window": "2h"}"#, "classes/0/rules/window"),
        (r#"{"action": "shout"}"#, "classes/0/rules/action"),
        (r#"{"port": 3}"#, "classes/0/rules/port/"),
    ] {
        let errors = Bench::make(&PortscanKind, rules).err().expect(rules);
        assert_eq!(errors[0].place, place, "{}", errors[0].message);
    }
}
