// SPDX-License-Identifier: Apache-2.0
//! `bartizan run` with the XDP level below it, in a network namespace of its own (needs root; without, it
//! prints so and returns): the kernel handles decided flows, records and counters have every packet, a reload
//! takes flows up, and if the level cannot be used the run says what to do.

use crate::common;
use crate::level;
use crate::namespace;

use bartizan_ports::{Batch, InlinePort, Port, stay_on_processor, wait_any};
use bartizan_testkit::packet;
use bartizan_testkit_worker::events;
use common::{Folder, PROGRAM, Running, address, get, until, value};
use level::{counter, datagrams, ends, ends_well, gone_below, network, number, quiet, send, take, tool};
use namespace::{in_namespace, ip};
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};

const ALLOW: &str = "policies: [{name: all, from: any, to: any, chain: [pfw, ids], pfw: {default: allow}, ids: {rules: [local.rules]}}]\ndefault: {action: drop}\n";
const BLOCK: &str = "policies: [{name: all, from: any, to: any, chain: [pfw, ids], pfw: {default: allow, rules: [{drop: udp, to-ports: 4000, name: closed}]}, ids: {rules: [local.rules]}}]\ndefault: {action: drop}\n";
const RULES: &str = "drop udp any any -> any 666 (msg:\"no\"; sid:1;)\npass udp any any -> any 4000 (msg:\"known\"; bypass; sid:2;)\npass tcp any any -> any 4000 (msg:\"known\"; bypass; sid:3;)\n";

fn start(folder: &Folder, workers: u16, policy: &str) -> Running {
    folder.write("policy.yaml", policy);
    folder.write("local.rules", RULES);
    folder.write(
        "bartizan.yaml",
        format!(
            "links: [{{name: wan, inline: {{a: a1, b: b1, offload: {{level: xdp, entries: 1024, stale: 30s}}}}, workers: {workers}}}]\n\
             policy: policy.yaml\ncache: none\noutputs: {{eve: {{dir: out}}}}\nmetrics: {{listen: '127.0.0.1:9100'}}\nreload: {{max-loss: 100%}}\n"
        ),
    );
    let mut command = Command::new(PROGRAM);
    let running = Running::start(command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
    running.until("running on");
    running
}

/// Two datagrams of each flow, which the host decides; then the test waits for the installation below.
fn begin(ports: &mut [InlinePort; 2], port: u16, arrives: bool) {
    let [client, server] = ports;
    for _ in 0..2 {
        send(client, &datagrams(port, b"first"));
        if arrives {
            assert_eq!(take(server, 8), 8);
        }
    }
    gone_below(8);
}

fn flows(folder: &Folder) -> Vec<Value> {
    let mut events = events::read(&folder.path("out/eve.json"));
    events.retain(|event| event["event_type"] == "flow" && event["proto"] == "UDP");
    events
}

#[test]
fn decided_flows_are_forwarded_below_and_records_have_every_packet() {
    for workers in [1, 2] {
        in_namespace(move || forwarded(workers));
    }
}

fn forwarded(workers: u16) {
    let folder = Folder::new();
    let mut ports = network(1500);
    let running = start(&folder, workers, ALLOW);
    begin(&mut ports, 4000, true);
    let [client, server] = &mut ports;
    for _ in 0..50 {
        send(client, &datagrams(4000, &[7; 900]));
        assert_eq!(take(server, 8), 8);
        // Answers go the other way through the same entries.
        let answers: Vec<_> = (0..8u16).map(|flow| answer(flow % 2 == 0, 40_000 + flow)).collect();
        send(server, &answers);
        assert_eq!(take(client, 8), 8);
    }
    let page = get("/metrics");
    ends_well(running);
    // All that came by a port and left by it is counted once, by the level and by the host.
    for (port, came, left) in [("a1", 8 * 52, 8 * 50), ("b1", 8 * 50, 8 * 52)] {
        let is = format!("port=\"{port}\"");
        for (direction, frames) in [("in", came), ("out", left)] {
            let of = |name, cast| value(&page, name, &[&is, &format!("direction=\"{direction}\""), cast]);
            let casts =
                ["unicast", "multicast", "broadcast"].map(|cast| of("bartizan_port_casts_total", cast));
            assert_eq!(casts, [frames, 0, 0], "{port} {direction}\n{page}");
            assert_eq!(level::casts(&folder, port, direction), casts, "{port} {direction}");
            let octets = of("bartizan_port_octets_total", direction);
            let (first, rest) = if frames == 8 * 50 { (0, 300) } else { (16, 900) };
            let headers = (42 + 62) / 2;
            assert_eq!(
                octets,
                first * (headers + 5) + (frames - first) * (headers + rest),
                "{port} {direction}"
            );
        }
    }
    // All that came by a port is counted by what became of it, and by size.
    for (port, frames, what) in [("a1", 8 * 52, "forwarded"), ("b1", 8 * 50, "forwarded"), ("b1", 0, "up")] {
        let is = format!("port=\"{port}\"");
        let here = value(&page, "bartizan_port_level_total", &[&is, what]);
        assert!(here <= frames && here + 32 >= frames, "{port} {what}: {here}\n{page}");
        let bytes = value(&page, "bartizan_port_level_bytes_total", &[&is, what]);
        assert_eq!(bytes > 0, here > 0, "{port} {what}: {bytes}\n{page}");
        // Of the first frames, which are small, some are the host's.
        assert!(what != "forwarded" || bytes / here > 250, "{port}: {bytes} of {here}\n{page}");
        assert_eq!(value(&page, "bartizan_port_level_total", &[&is, "dropped"]), 0);
        assert_eq!(value(&page, "bartizan_port_level_bytes_total", &[&is, "dropped"]), 0);
    }
    for (port, size, frames) in
        [("a1", "512-1023", 8 * 50), ("a1", "64", 8), ("a1", "65-127", 8), ("b1", "256-511", 8 * 50)]
    {
        let labels = [&format!("port=\"{port}\"")[..], &format!("size=\"{size}\"")];
        assert_eq!(value(&page, "bartizan_port_frames_total", &labels), frames, "{port} {size}\n{page}");
    }
    let flows = flows(&folder);
    assert_eq!(flows.len(), 8);
    for flow in &flows {
        let own = &flow["bartizan"]["levels"];
        assert_eq!(number(&flow["flow"]["pkts_toserver"]), 52, "{flow}");
        assert_eq!(number(&flow["flow"]["pkts_toclient"]), 50, "{flow}");
        assert!(number(&own["xdp"]["pkts_toserver"]) >= 48, "{flow}");
        assert_eq!(number(&own["xdp"]["pkts_toclient"]), 50, "{flow}");
        assert_eq!(number(&own["host"]["pkts_toserver"]) + number(&own["xdp"]["pkts_toserver"]), 52);
        assert_eq!(flow["flow"]["state"], "bypassed", "{flow}");
        assert_eq!(flow["flow"]["bypass"], "capture", "{flow}");
        let bytes = number(&own["xdp"]["bytes_toserver"]);
        assert_eq!(flow["flow"]["bypassed"]["bytes_toserver"], bytes);
    }
    let below: u64 = flows
        .iter()
        .map(|flow| {
            number(&flow["flow"]["bypassed"]["pkts_toserver"])
                + number(&flow["flow"]["bypassed"]["pkts_toclient"])
        })
        .sum();
    assert_eq!(counter(&folder, "offload.forwarded_pkts"), below);
    let port =
        |name| value(&page, "bartizan_port_level_bytes_total", &[&format!("port=\"{name}\""), "forwarded"]);
    assert_eq!(counter(&folder, "offload.forwarded_bytes"), port("a1") + port("b1"));
    assert_eq!(counter(&folder, "flow_bypassed.pkts"), below);
    assert_eq!((counter(&folder, "offload.entries"), counter(&folder, "offload.orphan_pkts")), (0, 0));
}

/// The far end stops polling: one frame of a batch is lost, and counted; later ones go through the host until
/// the far end is as before.
#[test]
fn a_port_that_takes_nothing_any_more_is_told_and_its_flows_go_on_through_the_host() {
    in_namespace(|| {
        let folder = Folder::new();
        let mut ports = network(1500);
        let running = start(&folder, 1, ALLOW);
        begin(&mut ports, 4000, true);
        tool("ethtool", "-K b0 gro off");
        let [client, server] = &mut ports;
        let frames = datagrams(4000, b"more");
        send(client, &frames[..1]);
        until("the loss is counted", || {
            value(&get("/metrics"), "bartizan_port_dropped_total", &["port=\"b1\"", "reason=\"level\""]) == 1
        });
        for _ in 0..5 {
            send(client, &frames);
            assert_eq!(take(server, 8), 8);
        }
        running.until("the XDP level cannot send on `b1`, and 1 frames were lost: interface `b1` does not take redirected frames");
        running.until("`ethtool -K OTHER_END gro on`");
        tool("ethtool", "-K b0 gro on");
        running.until("`b1` accepts frames of the XDP level again");
        let forwarded =
            || value(&get("/metrics"), "bartizan_port_level_total", &["port=\"a1\"", "forwarded"]);
        let before = forwarded();
        for _ in 0..5 {
            send(client, &frames);
            assert_eq!(take(server, 8), 8);
        }
        assert_eq!(forwarded(), before + 40);
        ends_well(running);
        assert_eq!(counter(&folder, "offload.lost_pkts"), 1);
        // Each packet was seen once, the lost one as well.
        let flows = flows(&folder);
        let packets: u64 = flows.iter().map(|flow| number(&flow["flow"]["pkts_toserver"])).sum();
        assert_eq!(packets, 16 + 1 + 80, "{flows:?}");
    });
}

/// A connection that is bypassed with its SYN goes below with the SYN/ACK, and all later packets are handled
/// there, its end as well: the record has it.
#[test]
fn connections_end_below_and_their_records_say_so() {
    const SYN: u8 = 2;
    const FIN: u8 = 1;
    const ACK: u8 = 16;
    in_namespace(|| {
        let folder = Folder::new();
        let mut ports = network(1500);
        let running = start(&folder, 1, ALLOW);
        // Where a side's segments have ended is known to the processor that had them.
        assert!(stay_on_processor(0));
        let segments = [
            (0, 100, 0, SYN, 0),
            (1, 500, 101, SYN | ACK, 0),
            (0, 101, 501, ACK, 0),
            (0, 101, 501, ACK, 300),
            (1, 501, 401, ACK, 900),
            (0, 401, 1401, ACK, 0),
            (1, 1401, 401, FIN | ACK, 70),
            (0, 401, 1472, ACK, 0),
            (0, 401, 1472, FIN | ACK, 0),
            (1, 1472, 402, ACK, 0),
        ];
        for (number, (side, seq, ack, flags, size)) in segments.into_iter().enumerate() {
            for v6 in [false, true] {
                let (client, server) = ((address(v6, 1), 40_000), (address(v6, 2), 4000));
                let (from, to) = if side == 0 { (client, server) } else { (server, client) };
                let frame = packet::tcp(from, to, (seq, ack), flags, &vec![7; size]).frame();
                send(&mut ports[side], &[frame]);
                assert_eq!(take(&mut ports[1 - side], 1), 1, "segment {number}");
            }
            // A turn of the worker, also of one that sleeps.
            std::thread::sleep(Duration::from_millis(if number < 2 { 300 } else { 10 }));
        }
        until("entries of connections that are over go", || {
            value(&get("/metrics"), "bartizan_port_level_total", &["port=\"a1\"", "forwarded"]) == 10
        });
        ends_well(running);
        let mut flows = events::read(&folder.path("out/eve.json"));
        flows.retain(|event| event["event_type"] == "flow" && event["proto"] == "TCP");
        assert_eq!(flows.len(), 2);
        for flow in &flows {
            let (own, tcp) = (&flow["bartizan"]["levels"], &flow["tcp"]);
            let of = |level: &str| ["pkts_toserver", "pkts_toclient"].map(|key| number(&own[level][key]));
            assert_eq!((of("host"), of("xdp")), ([1, 1], [5, 3]), "{flow}");
            assert_eq!((&tcp["state"], &tcp["fin"]), (&"closed".into(), &true.into()), "{flow}");
            assert_eq!((&tcp["tcp_flags_ts"], &tcp["tcp_flags_tc"]), (&"13".into(), &"13".into()), "{flow}");
        }
    });
}

fn answer(v6: bool, port: u16) -> Vec<u8> {
    packet::udp((address(v6, 2), 4000), (address(v6, 1), port), &[9; 300]).frame()
}

#[test]
fn refused_flows_are_dropped_below_and_counted_by_their_reason() {
    in_namespace(|| {
        let folder = Folder::new();
        let mut ports = network(1500);
        let running = start(&folder, 1, ALLOW);
        begin(&mut ports, 666, false);
        let [client, server] = &mut ports;
        for _ in 0..100 {
            send(client, &datagrams(666, b"again"));
        }
        assert!(quiet(server), "what is refused does not arrive");
        ends_well(running);
        let flows = flows(&folder);
        let all: u64 = flows.iter().map(|flow| number(&flow["flow"]["pkts_toserver"])).sum();
        assert_eq!((flows.len(), all), (8, 816));
        let below = counter(&folder, "offload.dropped_pkts");
        assert!(below >= 784, "{below}");
        // The sum over all levels, and by reason.
        assert_eq!(counter(&folder, "ips.blocked"), 816);
        let by_reason =
            ["rules", "flow_drop"].map(|name| counter(&folder, &format!("ips.drop_reason.{name}")));
        assert_eq!(by_reason.iter().sum::<u64>(), 816, "{by_reason:?}");
        assert!(flows.iter().all(|flow| flow["flow"]["action"] == "drop"), "{flows:?}");
    });
}

#[test]
fn a_reload_ends_flows_of_what_is_blocked_now() {
    in_namespace(|| {
        let folder = Folder::new();
        let mut ports = network(1500);
        let running = start(&folder, 1, ALLOW);
        begin(&mut ports, 4000, true);
        let [client, server] = &mut ports;
        send(client, &datagrams(4000, b"goes on"));
        assert_eq!(take(server, 8), 8);
        folder.write("policy.yaml", BLOCK);
        running.signal("USR2");
        running.until("generation 2");
        // The worker takes it with its next turn.
        std::thread::sleep(Duration::from_millis(300));
        for round in 0..40 {
            send(client, &datagrams(4000, b"is blocked"));
            match round {
                // By then the entries decided before are removed.
                10 => std::thread::sleep(Duration::from_millis(1_500)),
                11 => gone_below(8),
                _ => {}
            }
        }
        assert!(quiet(server));
        // Entries are read once a second.
        let counted = || {
            value(
                &get("/metrics"),
                "bartizan_filter_rule_packets_total",
                &["policy=\"all\"", "rule=\"closed\""],
            )
        };
        until("320 packets of the rule", || counted() == 320);
        ends_well(running);
        let all: u64 = flows(&folder).iter().map(|flow| number(&flow["flow"]["pkts_toserver"])).sum();
        assert_eq!(all, 16 + 8 + 320);
        assert_eq!((counter(&folder, "offload.outdated"), counter(&folder, "ips.blocked")), (8, 320));
        // What the packet filter refuses is refused below as well, and counted for its rule.
        let below = counter(&folder, "offload.dropped_pkts");
        assert!(below >= 160, "{below}");
    });
}

/// A flow that no policy names goes below while the default allows it; once the default drops, no packet of
/// it arrives, from any level.
#[test]
fn a_default_that_drops_ends_flows_that_the_one_before_let_go_below() {
    let default_of = |action: &str| {
        format!(
            "policies: [{{name: elsewhere, to: 198.51.100.9, chain: [ids], ids: {{rules: [local.rules]}}}}]\ndefault: {{action: {action}}}\n"
        )
    };
    in_namespace(move || {
        const ROUNDS: u64 = 40;
        let folder = Folder::new();
        let mut ports = network(1500);
        let running = start(&folder, 1, &default_of("allow"));
        begin(&mut ports, 4000, true);
        let [client, server] = &mut ports;
        send(client, &datagrams(4000, b"goes on"));
        assert_eq!(take(server, 8), 8);
        folder.write("policy.yaml", default_of("drop"));
        running.signal("USR2");
        until("the worker has it", || value(&get("/metrics"), "bartizan_generation", &["worker=\"0\""]) == 2);
        for _ in 0..ROUNDS {
            send(client, &datagrams(4000, b"is blocked"));
        }
        assert!(quiet(server));
        let blocked = || value(&get("/metrics"), "bartizan_decisions_total", &["reason=\"policy_default\""]);
        until("all are counted", || blocked() >= 8 * ROUNDS);
        ends_well(running);
        let flows = flows(&folder);
        let all: u64 = flows.iter().map(|flow| number(&flow["flow"]["pkts_toserver"])).sum();
        assert_eq!((flows.len(), all), (8, 16 + 8 + 8 * ROUNDS));
        assert_eq!(counter(&folder, "ips.blocked"), 8 * ROUNDS);
        let below = |flow: &Value| number(&flow["bartizan"]["levels"]["xdp"]["pkts_toserver"]) >= 1;
        assert!(flows.iter().all(below), "each was below before: {flows:?}");
    });
}

#[test]
fn large_frames_go_below_as_well() {
    in_namespace(|| {
        let folder = Folder::new();
        let mut ports = network(9000);
        let running = start(&folder, 1, ALLOW);
        begin(&mut ports, 4000, true);
        let [client, server] = &mut ports;
        for _ in 0..10 {
            send(client, &datagrams(4000, &[3; 8_900]));
            assert_eq!(take(server, 8), 8);
        }
        ends_well(running);
        assert!(counter(&folder, "offload.forwarded_bytes") > 8 * 9 * 8_900);
    });
}

/// Whether the checksum of an IPv4 UDP datagram and its pseudo header is right.
fn is_right(frame: &[u8]) -> bool {
    let (addresses, datagram) = (&frame[26..34], &frame[34..]);
    let length = u16::from_be_bytes([datagram[4], datagram[5]]);
    let words = |bytes: &[u8]| -> u32 {
        let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
        bytes.chunks(2).map(word).sum()
    };
    let sum = words(addresses) + words(&datagram[..length.into()]) + 17 + u32::from(length);
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

/// A sender on this machine leaves checksums to a device, and the far side of the level has none: the host
/// fills them in.
#[test]
fn checksums_that_the_far_end_leaves_open_are_filled_in() {
    in_namespace(|| {
        let folder = Folder::new();
        let [_, mut server] = network(1500);
        tool("ethtool", "-K a0 tx on");
        ip("addr add 192.0.2.1/24 dev a0");
        let running = start(&folder, 1, ALLOW);
        let socket = std::net::UdpSocket::bind("192.0.2.1:40000").unwrap();
        let mut batch = Batch::with_capacity(256);
        for number in 0..60u8 {
            socket.send_to(&[number; 333], "192.0.2.2:4000").unwrap();
            let mut came = 0;
            let end = Instant::now() + Duration::from_secs(5);
            while came == 0 && Instant::now() < end {
                server.receive(&mut batch).unwrap();
                for frame in batch.indices().filter_map(|at| batch.bytes(at)).filter(|f| f.len() == 375) {
                    assert!(is_right(frame), "{number}");
                    came += 1;
                }
                if came == 0 {
                    wait_any(&mut [&mut server], None, Duration::ZERO, Duration::from_millis(20)).unwrap();
                }
            }
            assert_eq!(came, 1, "{number}");
        }
        ends_well(running);
        let flows = flows(&folder);
        let all: u64 = flows.iter().map(|flow| number(&flow["flow"]["pkts_toserver"])).sum();
        // One that is open inside of a datagram the level would not see.
        assert_eq!((all, counter(&folder, "offload.offered")), (60, 0));
        assert_eq!(flows[0]["bartizan"]["stays"], "checksums", "{flows:?}");
    });
}

/// Starts the program where it cannot work; returns its message.
fn refused(prepare: impl FnOnce(&Folder)) -> String {
    let folder = Folder::new();
    drop(network(1500));
    folder.write("policy.yaml", ALLOW);
    folder.write("local.rules", RULES);
    prepare(&folder);
    let arguments =
        ["run", "--inline", "a1", "b1", "--offload", "xdp", "--policy", "policy.yaml", "--out", "out"];
    let ended = common::run(&folder.0, &arguments);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    ended.stderr
}

#[test]
fn where_the_level_cannot_be_used_the_run_says_what_to_do() {
    in_namespace(|| {
        let said = refused(|_| tool("ethtool", "-K a1 tx on"));
        assert!(said.contains("`a1` has offloads on") && said.contains("ethtool -K a1 tx off"), "{said}");
        for name in ["a0", "b0"] {
            ip(&format!("link del {name}"));
        }
        let said = refused(|_| tool("ethtool", "-K b0 gro off"));
        assert!(said.contains("`b1` does not take redirected frames") && said.contains("gro on"), "{said}");
    });
}

#[test]
fn drops_below_are_told_of_by_samples() {
    in_namespace(|| {
        let folder = Folder::new();
        let mut ports = network(1500);
        folder.write("policy.yaml", BLOCK);
        folder.write("local.rules", "");
        folder.write("s.yaml", "%YAML 1.1\n---\noutputs:\n  - eve-log:\n      enabled: yes\n      types: [drop: {flows: all}, flow]\n");
        folder.write(
            "bartizan.yaml",
            "links: [{name: wan, inline: {a: a1, b: b1, offload: {level: xdp, entries: 1024, drop-samples: 8}}}]\n\
             policy: policy.yaml\ncache: none\noutputs: {eve: {dir: out}}\nsuricata-config: s.yaml\n\
             metrics: {listen: '127.0.0.1:9100'}\n",
        );
        let mut command = Command::new(PROGRAM);
        let running = Running::start(command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
        running.until("running on");
        begin(&mut ports, 4000, false);
        for _ in 0..100 {
            send(&mut ports[0], &datagrams(4000, b"is refused"));
        }
        assert!(quiet(&mut ports[1]));
        ends_well(running);
        let all: u64 = flows(&folder).iter().map(|flow| number(&flow["flow"]["pkts_toserver"])).sum();
        assert_eq!((all, counter(&folder, "ips.blocked")), (816, 816));
        let below = counter(&folder, "offload.dropped_pkts");
        let events = events::read(&folder.path("out/eve.json"));
        let told: Vec<_> = events.iter().filter(|event| event["event_type"] == "drop").collect();
        // Each packet that the host has dropped has an event, whether it is one of the first or a sample: 16
        // and some 100.
        assert_eq!(told.len() as u64, 816 - below);
        assert!((16 + 40..16 + 200).contains(&told.len()), "{}", told.len());
        assert!(
            told.iter().all(|event| event["dest_port"] == 4000 && event["drop"]["reason"].is_string()),
            "{told:?}"
        );
    });
}

/// Rounds of datagrams of the decided flows; returns the number of their frames that went below, by the
/// metrics.
fn below(ports: &mut [InlinePort; 2], rounds: usize) -> u64 {
    let [client, server] = ports;
    let before = forwarded_by("a1");
    for _ in 0..rounds {
        send(client, &datagrams(4000, &[7; 900]));
        assert_eq!(take(server, 8), 8);
    }
    forwarded_by("a1") - before
}

fn forwarded_by(port: &str) -> u64 {
    value(&get("/metrics"), "bartizan_port_level_total", &[&format!("port=\"{port}\""), "forwarded"])
}

#[test]
fn a_link_that_comes_back_has_its_level_again() {
    in_namespace(|| {
        let folder = Folder::new();
        let mut ports = network(1500);
        let _others = ends(["c", "d"], 1500);
        folder.write("policy.yaml", ALLOW);
        folder.write("local.rules", RULES);
        folder.write(
            "bartizan.yaml",
            "links:\n  - {name: wan, inline: {a: a1, b: b1, offload: {level: xdp, entries: 1024}}}\n  - {name: other, inline: {a: c1, b: d1}}\n\
             policy: policy.yaml\ncache: none\noutputs: {eve: {dir: out}}\nmetrics: {listen: '127.0.0.1:9100'}\n",
        );
        let mut command = Command::new(PROGRAM);
        let running = Running::start(command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
        running.until("running on");
        begin(&mut ports, 4000, true);
        assert_eq!(below(&mut ports, 20), 8 * 20);
        drop(ports);
        ip("link del dev a0");
        running.until("it carries no packets until it exists");
        ip("link del dev b0");
        // The interface comes back first in a state that the level cannot use, then as it was.
        let [client, server] = ends(["a", "b"], 1500);
        tool("ethtool", "-K a1 gro on");
        running.until("note: link `wan` is in use again");
        running.until("warning: link `wan` runs without its XDP level until the level can be used again");
        let mut ports = [client, server];
        assert_eq!(below(&mut ports, 5), 0, "the host has them meanwhile");
        tool("ethtool", "-K a1 gro off");
        running.until("note: link `wan` uses its XDP level again");
        // The flows have kept their entries.
        assert_eq!(below(&mut ports, 20), 8 * 20);
        // Once more, without a reason to wait.
        drop(ports);
        ip("link del dev b0");
        ip("link del dev a0");
        // On a busy machine both are gone before the program looks, and it names either.
        let gone = "it carries no packets until it exists";
        until("both gone", || running.stderr().matches(gone).count() == 2);
        let mut ports = ends(["a", "b"], 1500);
        let again = "note: link `wan` uses its XDP level again";
        until("the level, once more", || running.stderr().matches(again).count() == 2);
        assert_eq!(below(&mut ports, 20), 8 * 20);
        let ended = ends_well(running);
        // Between the ends of two interfaces the program may find one of them left, and say so.
        assert_eq!(ended.stderr.matches("has offloads on").count(), 1, "{}", ended.stderr);
        let flows = flows(&folder);
        assert_eq!(flows.len(), 8);
        let all: u64 = flows.iter().map(|flow| number(&flow["flow"]["pkts_toserver"])).sum();
        assert_eq!(all, 8 * (2 + 20 + 5 + 20 + 20));
    });
}
