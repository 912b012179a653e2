// SPDX-License-Identifier: Apache-2.0
//! `bartizan run` inline under a staged policy and under an empty chain, in a network namespace of its own
//! (needs root; without, it prints so and returns): connections that were open before the start, fragments
//! without the rest, packets that cannot be read, frames that are not IP. All frames leave unchanged,
//! without a level below and with XDP; and the reported would-be drops are the drops of the same policy
//! where it is enforced.

use crate::common::{Folder, PROGRAM, Running, get, until, value};
use crate::inline_pair::network;
use crate::level::exchange::Exchange;
use crate::level::{beside_each_other, counter, ends_well};
use crate::namespace::in_namespace;

use bartizan_ports::{Batch, InlinePort, Port, wait_any};
use bartizan_testkit::hosts::{ethernet, fragments, ip, tcp, udp};
use bartizan_testkit::layers;
use bartizan_testkit_worker::events;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

const HOST: &str = "\
links: [{name: wan, inline: {a: a1, b: b1}}]
policy: policy.yaml
cache: none
outputs: {eve: {dir: out}}
";
const STAGED: &str =
    "policies: [{name: watched, chain: [sfw, ids], staged: true}]\ndefault: {action: drop}\n";
const ENFORCED: &str = "policies: [{name: watched, chain: [sfw, ids]}]\ndefault: {action: drop}\n";
const EMPTY: &str = "default: {action: allow}\n";
/// The time without a frame after which none is on its way.
const PATIENCE: Duration = Duration::from_millis(1_500);

fn start(folder: &Folder, policy: &str) -> Running {
    folder.write("bartizan.yaml", HOST);
    folder.write("policy.yaml", policy);
    let running =
        Running::start(Command::new(PROGRAM).args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
    running.until("running on a1-b1");
    running
}

/// Segments of a connection whose beginning was not captured, from a number on.
fn midstream(v6: bool, first: u32) -> Vec<Vec<u8>> {
    let segment = |n: u32| tcp((1000, 80), first + 4 * n, 501, 24, b"good");
    (0..4).map(|n| ethernet(v6, &ip(v6, (1, 2), 6, &segment(n)))).collect()
}

/// Frames that are incomplete, cannot be read, or are not IP.
fn strange() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for v6 in [false, true] {
        let parts = fragments(v6, (1, 2), 17, 9, &udp((1000, 53), &[1; 64]), 24);
        frames.extend(parts[1..].iter().map(|part| ethernet(v6, part)));
        // An option, or a header, that reaches beyond its place.
        let mut packet = ip(v6, (1, 2), if v6 { 60 } else { 17 }, &udp((17, 9999), b"x"));
        if v6 {
            packet[41] = 9;
        } else {
            packet[0] = 0x46;
            packet[20..22].copy_from_slice(&[7, 99]);
        }
        frames.push(ethernet(v6, &packet));
    }
    // EAPOL, PPPoE discovery, MACsec, IPX, an unknown type.
    frames.extend([0x888e, 0x8863, 0x88e5, 0x8137, 0x9999].map(|kind| layers::ethernet(kind, &[1; 50])));
    frames
}

/// Sends frames; returns those that come out unchanged at the other end. Workers keep the order within a flow
/// only.
fn passed([from, to]: &mut [InlinePort; 2], frames: &[Vec<u8>]) -> Vec<usize> {
    let mut batch = Batch::with_capacity(256);
    let (mut came, mut end) = (Vec::new(), Instant::now() + PATIENCE);
    for frame in frames {
        from.transmit_frame(frame).unwrap();
        from.flush().unwrap();
    }
    while Instant::now() < end && came.len() < frames.len() {
        to.receive(&mut batch).unwrap();
        for bytes in batch.indices().filter_map(|at| batch.bytes(at)) {
            // The kernel sends frames of its own here.
            if let Some(at) = frames.iter().position(|frame| frame == bytes) {
                came.push(at);
                end = Instant::now() + PATIENCE;
            }
        }
        if batch.is_empty() {
            wait_any(&mut [&mut *to], None, Duration::ZERO, Duration::from_millis(20)).unwrap();
        }
    }
    came.sort_unstable();
    came
}

fn all(frames: &[Vec<u8>]) -> Vec<usize> {
    (0..frames.len()).collect()
}

#[test]
fn nothing_is_dropped_by_a_staged_policy_and_connections_are_refused_once_it_is_enforced() {
    in_namespace(|| {
        let folder = Folder::new();
        let mut net = network();
        let running = start(&folder, STAGED);
        let (strange, open) = (strange(), [midstream(false, 101), midstream(true, 101)].concat());
        assert_eq!(passed(&mut net, &open), all(&open));
        assert_eq!(passed(&mut net, &strange), all(&strange));
        folder.write("policy.yaml", ENFORCED);
        running.signal("USR2");
        running.until("generation 2:");
        let later = [midstream(false, 117), midstream(true, 117)].concat();
        assert_eq!(passed(&mut net, &later), Vec::<usize>::new());
        // Frames that are not IP are never dropped; all others are.
        assert_eq!(passed(&mut net, &strange), all(&strange)[strange.len() - 5..]);
        folder.write("policy.yaml", STAGED);
        running.signal("USR2");
        running.until("generation 3:");
        assert_eq!(passed(&mut net, &later), all(&later));
        let ended = running.stop();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert_eq!(ended.stderr.matches("inline links forward frames").count(), 1, "{}", ended.stderr);
        let events = events::read(&folder.path("out/eve.json"));
        let would = |sid: u64| {
            let is_it =
                |e: &&serde_json::Value| e["alert"]["gid"] == 9_000 && e["alert"]["signature_id"] == sid;
            events.iter().filter(is_it).count()
        };
        let number = |reason: bartizan_base::Reason| reason as u64 + 1;
        assert_eq!(would(number(bartizan_base::Reason::StreamMidstream)), 2, "one for each connection");
        assert_eq!(would(number(bartizan_base::Reason::Unreadable)), 2);
    });
}

#[test]
fn an_empty_chain_forwards_whatever_comes() {
    in_namespace(|| {
        let folder = Folder::new();
        let mut net = network();
        let running = start(&folder, EMPTY);
        let frames = [midstream(false, 101), midstream(true, 101), strange()].concat();
        assert_eq!(passed(&mut net, &frames), all(&frames));
        let ended = running.stop();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(!ended.stderr.contains("inline links forward frames"), "{}", ended.stderr);
        let said = events::read(&folder.path("out/eve.json"));
        assert!(said.iter().all(|event| !["alert", "drop"].contains(&event["event_type"].as_str().unwrap())));
    });
}

/// The first verdict reported for each flow, by the client's port and the IP version.
type First = BTreeMap<(u64, u64), String>;

/// The frames of some flows, and the end that they enter by: refused by functions, the engine and rules, and
/// not refused.
fn flows(v6: bool) -> Vec<(bool, Vec<u8>)> {
    let mut frames = Vec::new();
    let mut packet = |by_client: bool, server: u8, protocol: u8, body: &[u8]| {
        let ends = if by_client { (1, server) } else { (server, 1) };
        frames.push((by_client, ethernet(v6, &ip(v6, ends, protocol, body))));
    };
    for n in 0..4 {
        packet(true, 2, 6, &tcp((1000, 80), 101 + 4 * n, 501, 24, b"good"));
    }
    for port in [2000, 2001] {
        packet(true, 2, 6, &tcp((port, 80), 100, 0, 2, b""));
        packet(false, 2, 6, &tcp((80, port), 500, 101, 18, b""));
        packet(true, 2, 6, &tcp((port, 80), 101, 501, 16, b""));
        packet(true, 2, 6, &tcp((port, 80), 101, 501, 24, b"good"));
    }
    packet(true, 2, 6, &tcp((2000, 80), 105, 501, 24, b"bad"));
    packet(true, 2, 6, &tcp((2000, 80), 108, 501, 24, b"more"));
    // Far beyond the window.
    packet(true, 2, 6, &tcp((2001, 80), 9_000_105, 501, 24, b"far"));
    packet(true, 2, 6, &tcp((2001, 80), 105, 501, 24, b"good"));
    for (port, to, load) in [
        (3000, 777, b"good"),
        (4000, 53, b"good"),
        (4001, 53, b"bad!"),
        (4001, 53, b"good"),
        (3000, 777, b"good"),
    ] {
        packet(true, 2, 17, &udp((port, to), load));
    }
    packet(true, 2, 6, &tcp((3001, 777), 100, 0, 2, b""));
    packet(true, 2, 6, &tcp((6000, 80), 100, 0, 4, b""));
    frames
}

/// Datagrams of flows that only the packet filter judges: the first would be refused.
fn filtered(v6: bool) -> [Vec<u8>; 2] {
    [(5000, 777), (5001, 53)].map(|ports| ethernet(v6, &ip(v6, (1, 3), 17, &udp(ports, b"good"))))
}

/// Starts the program, with or without a level below; `more` is the rest of the policy, which stages or
/// enforces it.
fn start_with(folder: &Folder, xdp: bool, more: &str) -> Running {
    let filter = "pfw: {default: allow, rules: [{drop: [tcp, udp], to-ports: 777}]}";
    folder.write(
        "policy.yaml",
        format!(
            "policies:\n  - {{name: filtered, to: [10.0.0.3, '2001:db8::3'], chain: [pfw], {filter}{more}}}\n  \
             - {{name: watched, chain: [pfw, sfw, ids], {filter}, ids: {{rules: [r.rules]}}{more}}}\ndefault: {{action: drop}}\n"
        ),
    );
    start_file(folder, xdp)
}

fn start_file(folder: &Folder, xdp: bool) -> Running {
    let level = if xdp { ", offload: {level: xdp, entries: 1024}" } else { "" };
    folder.write("bartizan.yaml", HOST.replace("b: b1}", &format!("b: b1{level}}}, workers: 1")) + METRICS);
    folder.write(
        "r.rules",
        "drop tcp any any -> any 80 (content:\"bad\"; sid:1;)\nreject udp any any -> any 53 (content:\"bad\"; sid:2;)\n",
    );
    let mut command = Command::new(PROGRAM);
    let running = Running::start(command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
    running.until("running on");
    running
}

const METRICS: &str = "metrics: {listen: '127.0.0.1:9100'}\n";

/// The flow of an event.
fn flow_of(event: &Value) -> (u64, u64) {
    let port = |key: &str| event[key].as_u64().unwrap_or(0);
    (port("src_port").max(port("dest_port")), event["ip_v"].as_u64().unwrap())
}

/// Sends all frames through a run; returns the number that did not pass, and its events.
fn play(xdp: bool, more: &str) -> (usize, Vec<Value>) {
    let folder = Folder::new();
    let mut link = Exchange::new();
    let running = start_with(&folder, xdp, more);
    let mut refused = 0;
    let mut send = |by_client: bool, frame: &[u8]| refused += usize::from(!link.passes(by_client, frame));
    for v6 in [false, true] {
        flows(v6).iter().for_each(|(by_client, frame)| send(*by_client, frame));
    }
    // Until the level has what it is to have.
    until("flows are handled where they are to be", || {
        [false, true].map(filtered).iter().flatten().for_each(|frame| send(true, frame));
        let here = |what| value(&get("/metrics"), "bartizan_port_level_total", &[what]) > 0;
        !xdp || here("forwarded") && (!more.is_empty() || here("dropped"))
    });
    ends_well(running);
    let below = ["offload.forwarded_pkts", "offload.dropped_pkts"].map(|name| counter(&folder, name));
    let drops = usize::from(xdp && more.is_empty());
    assert_eq!(below.map(|packets| packets > 0), [xdp, drops > 0], "{more}: {below:?}");
    (refused, events::read(&folder.path("out/eve.json")))
}

/// The first refusal of each flow, actual or would-be.
fn first_refusals(events: &[Value]) -> First {
    let mut first = First::new();
    for event in events {
        let reason = match (event["event_type"].as_str().unwrap(), event["alert"]["gid"].as_u64()) {
            ("drop", _) => event["bartizan"]["reason"].as_str().unwrap().to_owned(),
            ("alert", Some(9_000)) => {
                let number = event["alert"]["signature_id"].as_u64().unwrap() as usize - 1;
                bartizan_base::Reason::ALL[number].name().to_owned()
            }
            ("alert", Some(1)) => "ids_rule".to_owned(),
            _ => continue,
        };
        first.entry(flow_of(event)).or_insert(reason);
    }
    first
}

#[test]
fn a_staged_policy_reports_what_the_enforced_one_refuses_first() {
    beside_each_other([false, true], |xdp| {
        let (refused, enforced) = play(xdp, "");
        let expected = first_refusals(&enforced);
        assert!(refused > 12 && expected.len() >= 2 * 7, "{refused}: {expected:#?}");
        let ports: std::collections::BTreeSet<_> = expected.keys().map(|(port, _)| *port).collect();
        assert!([4000, 5001].iter().all(|port| !ports.contains(port)), "{expected:#?}");
        in_namespace(move || {
            let (refused, events) = play(xdp, ", staged: true");
            assert_eq!(refused, 0, "a staged policy drops nothing");
            assert!(events.iter().all(|event| event["event_type"] != "drop"));
            assert_eq!(first_refusals(&events), expected);
            // Each is an event with its flow, whose record says it, too.
            for flow in events::of_type(&events, "flow") {
                let is_its = |e: &&Value| e["event_type"] == "alert" && e["flow_id"] == flow["flow_id"];
                let told = events.iter().find(is_its).map(flow_of);
                let would_be = &flow["bartizan"]["would_be"];
                let reason = told.and_then(|of| expected.get(&of)).map(String::as_str);
                assert_eq!(would_be["reason"].as_str(), reason, "{flow}");
                assert!(told.is_none_or(|of| of == flow_of(flow)), "{flow}");
                let verdict = reason.map(|_| if flow_of(flow).0 == 4001 { "reject" } else { "drop" });
                assert_eq!(would_be["verdict"].as_str(), verdict, "{flow}");
                assert!(flow["bartizan"]["verdict"].is_null() && !flow["bartizan"]["allowed_by"].is_null());
            }
        });
    });
}

#[test]
fn what_only_forwards_drops_nothing_with_a_level_below() {
    for policy in [EMPTY, "policies: [{name: all, chain: []}]\ndefault: {action: drop}\n"] {
        beside_each_other([false, true], move |xdp| {
            let folder = Folder::new();
            let mut link = Exchange::new();
            folder.write("policy.yaml", policy);
            let running = start_file(&folder, xdp);
            let mut send = |by_client, frame: &[u8]| assert!(link.passes(by_client, frame), "{frame:?}");
            for v6 in [false, true] {
                midstream(v6, 101).iter().chain(&strange()).for_each(|frame| send(true, frame));
            }
            until("flows are handled where they are to be", || {
                for v6 in [false, true] {
                    flows(v6).iter().for_each(|(by_client, frame)| send(*by_client, frame));
                }
                !xdp || value(&get("/metrics"), "bartizan_port_level_total", &["forwarded"]) > 0
            });
            ends_well(running);
            let said = events::read(&folder.path("out/eve.json"));
            assert!(
                said.iter().all(|event| !["alert", "drop"].contains(&event["event_type"].as_str().unwrap()))
            );
        });
    }
}
