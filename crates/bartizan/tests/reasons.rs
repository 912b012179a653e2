// SPDX-License-Identifier: Apache-2.0
//! Invariant 3: every reason is reached by a packet, its EVE drop record has it, and the reasons add up to
//! the drops.
//!
//! [`row`] has one row for each variant of `Reason`: a new one does not compile without a row.

use crate::worker_bench as common;

use bartizan_base::{Reason, Timestamp};
use bartizan_dataplane::driver::{Control, LiveOptions};
use bartizan_dataplane::eve::{EveRecorder, RunInfo};
use bartizan_dataplane::handover::{Handled, connect};
use bartizan_dataplane::worker::Worker;
use bartizan_flow::WhenFull;
use bartizan_flow::tcp::{ExceptionPolicy, OverlapAction};
use bartizan_function::{FunctionKind, FunctionModel, FunctionSpec};
use bartizan_ports::{InlinePair, PortStats, TestClock, TestPort};
use bartizan_stages::lifecycle::LifecycleCommand;
use bartizan_stages::settings::{EngineSettings, UnparsedPolicy};
use bartizan_testkit::hosts::{Shape, ethernet, fragments, ip, marked, tcp, udp};
use bartizan_testkit_worker::{Captured, Made, Nothing, Stack, events, header_function, live};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const PSH: u8 = 8;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// The way to reach a reason.
enum Row {
    /// Frames through a worker with a policy.
    Packets(Packets),
    /// Frames through the inline loop to a port that cannot send them.
    Egress { mtu: u32, capacity: usize },
    /// Frames for another worker whose ring is full.
    HandOver,
}

struct Packets {
    chain: &'static str,
    /// Suricata's settings.
    set: &'static [(&'static str, &'static str)],
    /// Other settings of the engine.
    tune: fn(&mut EngineSettings),
    rules: &'static str,
    frames: fn(bool) -> Vec<Vec<u8>>,
    /// The frame's own reason, if it differs from that of its inner or outer packet.
    counted_as: Option<Reason>,
    /// A function that is stopped before.
    stopped: Option<&'static str>,
    /// Backlog of the worker, in eighths of a ring.
    backlog: u8,
}

static FRAGILE: FunctionSpec = FunctionSpec {
    name: "fragile",
    summary: "Panics.",
    model: FunctionModel::StatelessHeaders,
    runs_after: &[],
    runs_before: &[],
    header_half: None,
    host_slot: None,
    counters: &[],
};

/// A function that panics with every packet.
fn fragile() -> Arc<dyn FunctionKind> {
    header_function(&FRAGILE, |_| panic!("made by the test"))
}

fn packets(chain: &'static str, frames: fn(bool) -> Vec<Vec<u8>>) -> Packets {
    Packets { chain, set: &[], tune: |_| (), rules: "", frames, counted_as: None, stopped: None, backlog: 0 }
}

fn datagram(v6: bool, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    ethernet(v6, &ip(v6, (1, 2), 17, &udp(ports, payload)))
}

fn segment(v6: bool, ports: (u16, u16), seq: u32, ack: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    ethernet(v6, &ip(v6, (1, 2), 6, &tcp(ports, seq, ack, flags, payload)))
}

/// A connection from 1:1000 to 2:80 and more segments of the client (number, flags, payload), whose next
/// number is 101.
fn connection(v6: bool, more: &[(u32, u8, &[u8])]) -> Vec<Vec<u8>> {
    let answer = ethernet(v6, &ip(v6, (2, 1), 6, &tcp((80, 1000), 500, 101, SYN | ACK, b"")));
    let seen = ethernet(v6, &ip(v6, (2, 1), 6, &tcp((80, 1000), 501, 101, ACK, b"")));
    let client = |seq, flags, payload: &[u8]| {
        segment(v6, (1000, 80), seq, if flags & ACK > 0 { 501 } else { 0 }, flags, payload)
    };
    let mut frames = vec![client(100, SYN, b""), answer, client(101, ACK, b""), seen];
    frames.extend(more.iter().map(|(seq, flags, payload)| client(*seq, *flags, payload)));
    frames
}

/// An error about a packet that was never sent.
fn stray_error(v6: bool) -> Vec<Vec<u8>> {
    let quoted = ip(v6, (2, 9), 17, &udp((5, 6), b"nothing"));
    let mut body = if v6 { vec![1, 4, 0, 0, 0, 0, 0, 0] } else { vec![3, 3, 0, 0, 0, 0, 0, 0] };
    body.extend_from_slice(&quoted);
    vec![ethernet(v6, &ip(v6, (1, 2), if v6 { 58 } else { 1 }, &body))]
}

const DROP_EVIL: &str = "drop udp any any -> any any (msg:\"evil\"; content:\"evil\"; sid:1;)";
/// The rate filter for the rule of sid 1, for all rows.
const RATE: &str =
    "rate_filter gen_id 1, sig_id 1, track by_src, count 1, seconds 60, new_action drop, timeout 60\n";
const FIREWALL: &[(&str, &str)] = &[("firewall.enabled", "yes")];
const KEEP_MIDSTREAM: &[(&str, &str)] = &[("stream.midstream-policy", "ignore")];
const LENIENT: &[(&str, &str)] = &[("stream.drop-invalid", "no"), ("stream.midstream-policy", "ignore")];

#[rustfmt::skip]
fn row(reason: Reason) -> Row {
    let said = match reason {
        Reason::PfwRule => packets("chain: [pfw], pfw: {default: allow, rules: [{drop: udp, to-ports: 53}]}",
            |v6| vec![datagram(v6, (1000, 53), b"x"), datagram(v6, (1000, 54), b"x")]),
        Reason::PfwDefault => packets("chain: [pfw], pfw: {default: drop, rules: [{allow: udp, to-ports: 53}]}",
            |v6| vec![datagram(v6, (1000, 54), b"x"), datagram(v6, (1000, 53), b"x")]),
        Reason::SfwNoConnection => Packets { set: KEEP_MIDSTREAM, ..packets("chain: [sfw]",
            |v6| vec![segment(v6, (1000, 80), 1, 1, ACK, b"x")]) },
        Reason::SfwState => Packets { set: LENIENT, ..packets("chain: [sfw]",
            |v6| vec![segment(v6, (1000, 80), 1, 0, PSH, b"")]) },
        // Beyond the window of 16,384, not so far that tracking refuses it.
        Reason::SfwWindow => packets("chain: [sfw]", |v6| connection(v6, &[(101 + 40_000, ACK, b"x"), (101, ACK, b"x")])),
        Reason::SfwInitiator => packets("from: [10.0.0.2, '2001:db8::2'], to: [10.0.0.1, '2001:db8::1'], chain: [sfw]",
            |v6| vec![datagram(v6, (1000, 53), b"x")]),
        Reason::SfwUnrelatedIcmp => packets("chain: [sfw]", stray_error),
        Reason::SfwSynLimit => packets("chain: [sfw], sfw: {max-half-open: 1}",
            |v6| vec![segment(v6, (1000, 80), 1, 0, SYN, b""), segment(v6, (1001, 80), 1, 0, SYN, b"")]),
        Reason::SfwConnectionLimit => packets("chain: [sfw], sfw: {max-connections: 1}",
            |v6| vec![datagram(v6, (1000, 53), b"x"), datagram(v6, (1001, 53), b"x")]),
        Reason::IdsRule => Packets { rules: DROP_EVIL, ..packets("chain: [ids], ids: {rules: r}",
            |v6| vec![datagram(v6, (1000, 53), b"good"), datagram(v6, (1000, 53), b"evil")]) },
        // A rule that matched in a stream decided for all of it.
        Reason::IdsFlow => Packets { rules: "drop tcp any any -> any any (msg:\"evil\"; flow:established; content:\"evil\"; sid:1;)",
            ..packets("chain: [ids], ids: {rules: r}", |v6| connection(v6, &[(101, ACK, b"evil"), (105, ACK, b"good")])) },
        // A rate filter that drops from the second match on.
        Reason::IdsThreshold => Packets { rules: "alert udp any any -> any any (msg:\"evil\"; content:\"evil\"; sid:1;)", ..packets("chain: [ids], ids: {rules: r}",
            |v6| (0..4).map(|_| datagram(v6, (1000, 53), b"evil")).collect()) },
        Reason::FirewallRule => Packets { set: FIREWALL, rules: "# firewall\ndrop:packet udp:all any any -> any 53 (sid:1;)\naccept:packet ip:all any any -> any any (sid:2;)",
            ..packets("chain: [ids], ids: {rules: r}", |v6| vec![datagram(v6, (1000, 53), b"x"), datagram(v6, (1000, 54), b"x")]) },
        Reason::FirewallPacketPolicy => Packets { set: FIREWALL, rules: "# firewall\naccept:packet udp:all any any -> any 54 (sid:1;)",
            ..packets("chain: [ids], ids: {rules: r}", |v6| vec![datagram(v6, (1000, 53), b"x"), datagram(v6, (1000, 54), b"x")]) },
        // HTTP, which no rule accepts.
        Reason::FirewallAppPolicy | Reason::FirewallFlow => Packets { set: FIREWALL, rules: "# firewall\naccept:hook ip:all any any -> any any (sid:1;)",
            ..packets("chain: [ids], ids: {rules: r}", |v6| connection(v6, &[(101, ACK, b"GET / HTTP/1.1\r\n\r\n"), (119, ACK, b"GET")])) },
        Reason::FirewallPreFlow => Packets { set: FIREWALL, rules: "# firewall\ndrop:packet udp:pre_flow any any -> any 53 (sid:1;)\naccept:packet ip:all any any -> any any (sid:2;)",
            ..packets("chain: [ids], ids: {rules: r}", |v6| vec![datagram(v6, (1000, 53), b"x"), datagram(v6, (1000, 54), b"x")]) },
        Reason::FirewallPreStream => Packets { set: FIREWALL, rules: "# firewall\ndrop:flow udp:pre_stream any any -> any 53 (sid:1;)\naccept:packet ip:all any any -> any any (sid:2;)",
            ..packets("chain: [ids], ids: {rules: r}", |v6| vec![datagram(v6, (1000, 53), b"x"), datagram(v6, (1000, 54), b"x")]) },
        Reason::StreamMidstream | Reason::ExceptionFlow => packets("chain: [ids]",
            |v6| vec![segment(v6, (1000, 80), 1, 1, ACK, b"x"), segment(v6, (1000, 80), 2, 1, ACK, b"y")]),
        Reason::TunnelInner => Packets { rules: DROP_EVIL, counted_as: Some(Reason::IdsRule), ..packets("chain: [ids], ids: {rules: r}",
            |v6| {
                let vxlan = [&[8, 0, 0, 0, 0, 0, 7, 0][..], &datagram(v6, (1000, 53), b"evil")].concat();
                vec![ethernet(v6, &ip(v6, (3, 4), 17, &udp((5000, 4789), &vxlan)))]
            }) },
        // Two fragments that lie over each other.
        Reason::Defrag => packets("chain: [ids]", |v6| {
            let mut all: Vec<_> = fragments(v6, (1, 2), 17, 9, &udp((1000, 53), &[1; 64]), 24);
            all.insert(1, fragments(v6, (1, 2), 17, 9, &udp((1000, 53), &[2; 64]), 32)[0].clone());
            all.iter().map(|f| ethernet(v6, f)).collect()
        }),
        // An option, or a header, that reaches beyond its place.
        Reason::Unreadable => packets("chain: [pfw], pfw: {default: allow}", |v6| {
            let mut packet = ip(v6, (1, 2), if v6 { 60 } else { 17 }, &udp((17, 9999), b"x"));
            if v6 {
                packet[41] = 9;
            } else {
                packet[0] = 0x46;
                packet[20..22].copy_from_slice(&[7, 99]);
            }
            vec![ethernet(v6, &packet), datagram(v6, (1000, 53), b"x")]
        }),
        Reason::DefragMemory => Packets { tune: |settings| settings.defrag.memory = 1, ..packets("chain: [ids]",
            |v6| fragments(v6, (1, 2), 17, 9, &udp((1000, 53), &[1; 64]), 24).iter().map(|f| ethernet(v6, f)).collect()) },
        // Data without an ACK.
        Reason::StreamError => packets("chain: [ids]", |v6| connection(v6, &[(101, 8, b"x"), (101, ACK, b"y")])),
        Reason::StreamOverlap => Packets { tune: |settings| settings.stream.reassembly.overlap_action = OverlapAction::Drop,
            ..packets("chain: [ids]", |v6| connection(v6, &[(101, ACK, b"good"), (101, ACK, b"evil")])) },
        Reason::StreamMemory => Packets { tune: |settings| settings.stream.memcap = 1,
            ..packets("chain: [ids]", |v6| connection(v6, &[])) },
        Reason::StreamReassembly => Packets { tune: |settings| settings.stream.reassembly.memcap = 1,
            ..packets("chain: [ids]", |v6| connection(v6, &[(101, ACK, b"good")])) },
        // A record of TLS 1.2 whose type does not exist, after a handshake.
        Reason::AppLayerError => packets("chain: [ids]",
            |v6| connection(v6, &[(101, ACK, b"\x16\x03\x03\0\x04\x10\0\0\0"), (110, ACK, b"\x19\x03\x03\0\x01\0")])),
        Reason::Http2 => Packets { tune: |settings| settings.unparsed = UnparsedPolicy::for_all(ExceptionPolicy::DropFlow),
            ..packets("chain: [ids]", |v6| connection(v6, &[(101, ACK, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")])) },
        Reason::ProtocolOpen => Packets { rules: "drop tcp any any -> any any (msg:\"no TLS\"; app-layer-protocol:!tls; sid:1;)",
            ..packets("chain: [ids], ids: {rules: r}", |v6| connection(v6, &[(101, ACK, b"\x16\x03")])) },
        Reason::AppLayerMemory => Packets { tune: |settings| settings.app_memory.total = 1,
            ..packets("chain: [ids]", |v6| connection(v6, &[(101, ACK, b"GET / HTTP/1.1\r\n"), (117, ACK, b"\r\n")])) },
        Reason::FlowMemory => Packets {
            tune: |settings| (settings.flow_capacity, settings.flows_when_full) = (1, WhenFull::Refuse),
            ..packets("chain: [pfw], pfw: {default: allow}", |v6| vec![datagram(v6, (1000, 53), b"x"), datagram(v6, (1001, 53), b"x")]) },
        Reason::PolicyDefault => packets("to: [192.0.2.1], chain: [ids]", |v6| vec![datagram(v6, (1000, 53), b"x")]),
        Reason::OneSided => packets("chain: [ids], one-sided: drop",
            |v6| (0..10).map(|_| segment(v6, (1000, 80), 1, 0, SYN, b"")).collect()),
        Reason::FunctionFailed => packets("chain: [fragile]",
            |v6| vec![datagram(v6, (1000, 53), b"x"), datagram(v6, (1001, 53), b"x")]),
        Reason::FunctionStopped => Packets { stopped: Some("pfw"), ..packets("chain: [pfw], pfw: {default: allow}",
            |v6| vec![datagram(v6, (1000, 53), b"x")]) },
        Reason::Overload => Packets { backlog: 7,
            ..packets("to: [10.0.0.2, \"2001:db8::2\"], chain: [ids], overload: {priority: 1}", |v6| vec![datagram(v6, (1000, 53), b"x")]) },
        Reason::EgressMtu => return Row::Egress { mtu: 100, capacity: 100 },
        Reason::EgressRing => return Row::Egress { mtu: 1500, capacity: 1 },
        Reason::HandOverRing => return Row::HandOver,
        // Two closed ports, and the source's next connection after them.
        Reason::Portscan => packets("chain: [portscan], portscan: {ports: 2, action: drop}", |v6| {
            let probe = |port| {
                let refused = ethernet(v6, &ip(v6, (2, 1), 6, &tcp((port, 1000), 0, 2, RST | ACK, b"")));
                [segment(v6, (1000, port), 1, 0, SYN, b""), refused]
            };
            [probe(80), probe(81)].concat().into_iter().chain([segment(v6, (1000, 82), 1, 0, SYN, b"")]).collect()
        }),
    };
    Row::Packets(said)
}

struct Result_ {
    refused: BTreeMap<Reason, u64>,
    packets: u64,
    forwarded: u64,
    recorded: BTreeMap<String, u64>,
}

/// Runs a row's frames; IPv4 or IPv6.
fn play(row: &Packets, v6: bool, name: &str) -> Result_ {
    let name_of_run = format!("{name}-{v6}");
    let made = Made {
        name: &name_of_run,
        policy: row.chain,
        set: row.set,
        tune: row.tune,
        rules: row.rules,
        thresholds: if row.rules.starts_with("alert") { RATE } else { "" },
    };
    let mut stack = Stack::with_functions(&made, vec![fragile()]);
    if let Some(function) = row.stopped {
        stack.worker.order(function, LifecycleCommand::Stop).expect("the chain has it");
    }
    stack.worker.shed_by(|| row.backlog);
    let mut refused = BTreeMap::new();
    for (n, bytes) in (0u64..).zip((row.frames)(v6)) {
        let frame = Captured { now: Timestamp::from_nanos(1_000_000_000 + n * 1_000_000), bytes };
        let decision = stack.worker.frame(&frame.frame(n + 1), &mut stack.recorder);
        // Held fragments leave with the one that makes their datagram whole.
        if let Some(decision) = decision.filter(|decision| !decision.verdict.forwards()) {
            *refused.entry(decision.reason.expect("no refusal without a reason")).or_default() += 1;
        }
    }
    let (worker, events) = stack.finish();
    let c = *worker.counters();
    for (reason, count) in Reason::ALL.iter().zip(c.refused) {
        assert_eq!(refused.get(reason).copied().unwrap_or(0), count, "{name}: {}", reason.name());
    }
    let mut recorded = BTreeMap::new();
    for event in events::of_type(&events, "drop") {
        let reason =
            event["bartizan"]["reason"].as_str().unwrap_or_else(|| panic!("{name}: no reason: {event}"));
        *recorded.entry(reason.to_owned()).or_default() += 1;
    }
    Result_ { refused, packets: c.packets, forwarded: c.forwarded, recorded }
}

/// Runs a row's frames under a staged policy with a staged default: the would-be drops, by reason, and the
/// number of alerts.
fn play_staged(row: &Packets, v6: bool, name: &str) -> (BTreeMap<String, u64>, usize) {
    let file = format!(
        "policies:\n  - {{name: p, {}, staged: true}}\ndefault: {{action: drop, staged: true}}\n",
        row.chain
    );
    let name_of_run = format!("{name}-{v6}-staged");
    let made = Made {
        name: &name_of_run,
        policy: row.chain,
        set: row.set,
        tune: row.tune,
        rules: row.rules,
        thresholds: if row.rules.starts_with("alert") { RATE } else { "" },
    };
    let mut stack = Stack::with_functions(&made, vec![fragile()]);
    stack.swap_file(&file, row.rules);
    if let Some(function) = row.stopped {
        stack.worker.order(function, LifecycleCommand::Stop).expect("the chain has it");
    }
    stack.worker.shed_by(|| row.backlog);
    let frames = (row.frames)(v6);
    let sent = frames.len() as u64;
    for (n, bytes) in (0u64..).zip(frames) {
        let frame = Captured { now: Timestamp::from_nanos(1_000_000_000 + n * 1_000_000), bytes };
        let decision = stack.worker.frame(&frame.frame(n + 1), &mut stack.recorder);
        let decision = decision.unwrap_or_else(|| panic!("{name}, v6 {v6}: frame {n} is held"));
        assert_eq!(
            (decision.verdict.forwards(), decision.reason),
            (true, None),
            "{name}, v6 {v6}: frame {n}"
        );
        assert!(stack.worker.take_rewrite().is_none(), "{name}, v6 {v6}: frame {n} is changed");
    }
    let (worker, events) = stack.finish();
    assert_eq!((worker.counters().packets, worker.counters().forwarded), (sent, sent), "{name}");
    for event in &events {
        let own = &event["bartizan"];
        assert!(event["event_type"] != "drop" && own["verdict"] != "drop", "{name}: {event}");
        assert!(event["flow"]["action"] != "drop", "{name}: {event}");
        assert!(event["event_type"] != "flow" || own.get("allowed_by").is_some(), "{name}: {event}");
    }
    let mut would = BTreeMap::new();
    let alerts: Vec<_> = events::of_type(&events, "alert").collect();
    for alert in alerts.iter().filter(|alert| alert["alert"]["gid"] == 9_000) {
        let number = alert["alert"]["signature_id"].as_u64().unwrap() as usize - 1;
        *would.entry(Reason::ALL[number].name().to_owned()).or_default() += 1;
    }
    (would, alerts.len())
}

/// The functions, the engine itself, and packets that cannot be kept or read: no packet is dropped, held or
/// changed, and each would-be verdict is an event.
#[test]
fn a_staged_policy_drops_nothing_whoever_would_have() {
    let mut wrong = Vec::new();
    for reason in Reason::ALL {
        let Row::Packets(row) = row(*reason) else { continue };
        for v6 in [false, true] {
            let (would, alerts) = play_staged(&row, v6, reason.name());
            let is_told = match reason {
                // A function that is not running is reported once for all policies.
                Reason::FunctionFailed | Reason::FunctionStopped => true,
                // The first refusal of the flow.
                Reason::FirewallFlow => would.contains_key(Reason::FirewallAppPolicy.name()),
                // The alert of the rule that would have refused.
                Reason::IdsRule | Reason::IdsThreshold => alerts > 0,
                _ => would.contains_key(reason.name()),
            };
            if !is_told {
                wrong.push(format!("{}, v6 {v6}: {would:?}, {alerts} alerts", reason.name()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("bartizan-reasons-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn every_reason_is_reached_by_a_packet_and_the_reasons_sum_up() {
    let mut wrong = Vec::new();
    for reason in Reason::ALL {
        let Row::Packets(row) = row(*reason) else { continue };
        for v6 in [false, true] {
            let name = reason.name();
            let got = play(&row, v6, name);
            let counted = row.counted_as.unwrap_or(*reason);
            let sum: u64 = got.refused.values().sum();
            if !got.refused.contains_key(&counted) || !got.recorded.contains_key(name) {
                wrong
                    .push(format!("{name}, v6 {v6}: refused {:?}, recorded {:?}", got.refused, got.recorded));
            }
            assert_eq!(got.packets, got.forwarded + sum, "{name}: what is not forwarded has a reason");
            let recorded: u64 = got.recorded.values().sum();
            if recorded < sum {
                wrong
                    .push(format!("{name}, v6 {v6}: {sum} refused, {recorded} recorded: {:?}", got.recorded));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn frames_that_a_port_cannot_send_have_their_reason() {
    for reason in Reason::ALL {
        let Row::Egress { mtu, capacity } = row(*reason) else { continue };
        for v6 in [false, true] {
            let clock = TestClock::starting_at(Timestamp::ZERO);
            let (_client, a) = TestPort::pair(["c", "a"], 1500, 100, &clock).unwrap();
            let (b, mut server) = TestPort::pair(["b", "s"], mtu, capacity, &clock).unwrap();
            for length in [200, 10, 200, 10] {
                a.inject(&datagram(v6, (1, 2), &vec![1; length]), Timestamp::ZERO);
            }
            let pair = InlinePair::new(Box::new(a), Box::new(b), true).unwrap();
            let bench = common::bench(true, "no");
            let worker = Worker::new(
                bench.engine_settings.clone(),
                Arc::clone(&bench.engine),
                Arc::clone(&bench.chains),
            )
            .unwrap();
            let control = Control::new().unwrap();
            let options = LiveOptions { spin: Duration::ZERO, ..LiveOptions::default() };
            let folder = folder(&format!("egress-{}-{v6}", reason.name()));
            let mut settings = bartizan_config::suricata::shipped();
            settings.set("outputs.1.eve-log.types.34", "drop");
            let run = RunInfo { own_fields: true, functions: vec!["pfw"; 32], interface: None, link: None };
            let mut told = EveRecorder::new(&settings, &folder, true, run, &mut Vec::new()).unwrap();
            let (_, mut driver) = live::inline(worker, pair, &mut told, &options, &control, |_| {
                while server.take().is_none() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let mut stats = PortStats::default();
            driver.each_port(|name, port, _| stats = if name == "b" { *port } else { stats });
            let worker = driver.station.into_worker();
            let refused: u64 =
                stats.send_failures.iter().filter(|(why, _)| why.reason() == *reason).map(|(_, n)| n).sum();
            assert!(refused > 0, "{}: {stats:?}", reason.name());
            assert_eq!(worker.counters().forwarded, stats.sent + stats.send_failures.total());
            // The sum of the recorded drops equals the port's count, reason by reason.
            assert!(told.finish().is_empty());
            let mut recorded: BTreeMap<String, u64> = BTreeMap::new();
            for event in events::read(&folder.join("eve.json")) {
                if event["event_type"] == "drop" {
                    let own = &event["bartizan"];
                    assert_eq!(
                        (&own["port"], &own["reason"]),
                        (&"b".into(), &reason.name().into()),
                        "{event}"
                    );
                    assert!(own.get("function").is_none() && event["src_port"] == 1, "{event}");
                    *recorded.entry(own["cause"].as_str().unwrap().to_owned()).or_default() +=
                        own["frames"].as_u64().unwrap();
                }
            }
            for (why, frames) in stats.send_failures.iter() {
                assert_eq!(recorded.get(why.name()).copied().unwrap_or(0), frames, "{}", why.name());
            }
            std::fs::remove_dir_all(&folder).unwrap();
        }
    }
}

#[test]
fn frames_for_a_full_ring_have_their_reason() {
    assert!(matches!(row(Reason::HandOverRing), Row::HandOver));
    let bench = common::bench(true, "no");
    let workers = (0..2)
        .map(|_| {
            Worker::new(bench.engine_settings.clone(), Arc::clone(&bench.engine), Arc::clone(&bench.chains))
                .unwrap()
        })
        .collect();
    let mut stations = connect(workers, &bench.engine_settings, 1);
    let mut refused = 0;
    for (flow, v6) in (0..40).flat_map(|flow| [(flow, false), (flow, true)]) {
        for bytes in marked(v6, flow, 0, Shape::Plain) {
            let frame = Captured { now: Timestamp::from_nanos(1_000_000_000), bytes };
            if let Handled::Here(decision) = stations[0].frame(&frame.frame(1), 0, &mut Nothing) {
                refused += u64::from(decision.reason == Some(Reason::HandOverRing));
            }
        }
    }
    let counted = stations[0].worker().counters().refused[Reason::HandOverRing as usize];
    assert!(refused > 0);
    assert_eq!(counted, refused);
}
