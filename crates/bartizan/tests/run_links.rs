// SPDX-License-Identifier: Apache-2.0
//! `bartizan run` with several links in one process, in a network namespace of its own (needs root; without,
//! it prints so and returns): equal packets on two links never meet, each link has its events and counters,
//! and a link that goes and comes back disturbs no other.

use crate::common;
use crate::namespace;

use bartizan_ports::{Batch, InlineOptions, InlinePort, Port, wait_any};
use bartizan_testkit_worker::events;
use common::{Folder, PROGRAM, Running, get, udp, until, value};
use namespace::{in_namespace, ip, veth};
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};

/// Two tenants, separated by their links alone; each refuses a packet that the other allows.
const POLICY: &str = "\
tenants:
  - {name: red, select: {link: one}}
  - {name: blue, select: {link: two}}
policies:
  - name: red's
    tenant: red
    from: any
    to: any
    chain: [pfw, ids]
    pfw: {default: allow, rules: [{drop: udp, to-ports: 53}]}
    ids: {rules: [red.rules]}
  - name: blue's
    tenant: blue
    from: any
    to: any
    chain: [ids]
    ids: {rules: [blue.rules]}
  - {name: mirrored, link: [mirror], chain: [ids], ids: {rules: [mirror.rules]}}
default: {action: drop}
";

const HOST: &str = "\
links:
  - {name: one, inline: {a: a1, b: b1}, workers: 2}
  - {name: two, inline: {a: c1, b: d1}}
  - {name: mirror, tap: {interface: m1}}
policy: policy.yaml
cache: none
outputs: {eve: {dir: out}}
metrics: {listen: '127.0.0.1:9100'}
settings: {capture.checksum-validation: none, stats.interval: 1}
";

/// The far ends of the links' interfaces.
struct Outside {
    one: [InlinePort; 2],
    two: [InlinePort; 2],
    mirror: InlinePort,
}

fn port(name: &str) -> InlinePort {
    InlinePort::open(name, &InlineOptions { frames: 1024, ..InlineOptions::default() }).unwrap()
}

fn network() -> Outside {
    ip("link set dev lo up");
    for name in ["a", "b", "c", "d", "m"] {
        veth(&format!("{name}0"), &format!("{name}1"), 1500);
    }
    Outside { one: [port("a0"), port("b0")], two: [port("c0"), port("d0")], mirror: port("m0") }
}

fn rule(sid: u32) -> String {
    format!("alert udp any any -> any any (msg:\"seen\"; content:\"secret\"; sid:{sid};)\n")
}

fn begin(folder: &Folder) -> Running {
    folder.write("policy.yaml", POLICY);
    for (file, sid) in [("red.rules", 1), ("blue.rules", 2), ("mirror.rules", 3)] {
        folder.write(file, rule(sid));
    }
    folder.write("bartizan.yaml", HOST);
    let running =
        Running::start(Command::new(PROGRAM).args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
    running.until("running on a1-b1, c1-d1, m1");
    running
}

fn send(from: &mut InlinePort, frames: &[Vec<u8>]) {
    for frame in frames {
        from.transmit_frame(frame).unwrap();
        from.flush().unwrap();
    }
}

/// Receives frames of the test until so many came, or no more come; returns them.
fn take(to: &mut InlinePort, expected: usize) -> Vec<Vec<u8>> {
    let mut batch = Batch::with_capacity(256);
    let end = Instant::now() + Duration::from_secs(5);
    let mut came = Vec::new();
    while Instant::now() < end && came.len() < expected {
        to.receive(&mut batch).unwrap();
        let frames = batch.indices().filter_map(|at| batch.bytes(at));
        came.extend(frames.filter(|bytes| bytes.starts_with(&[2, 0, 0, 0, 0, 2])).map(<[u8]>::to_vec));
        if batch.is_empty() {
            wait_any(&mut [&mut *to], None, Duration::ZERO, Duration::from_millis(20)).unwrap();
        }
    }
    came
}

/// Eight conversations of both IP versions with an alert each, three packets to a port that red refuses, and
/// two datagrams in fragments. Equal for every link.
fn frames() -> Vec<Vec<u8>> {
    let mut frames: Vec<_> = (0..8u16).map(|n| udp(n % 2 == 0, 50_000 + n, 4_000, b"secret")).collect();
    frames.extend((0..3u16).map(|n| udp(n % 2 == 0, 40_000 + n, 53, b"query")));
    for v6 in [false, true] {
        let whole = bartizan_testkit::packet::udp(
            (common::address(v6, 1), 60_000),
            (common::address(v6, 2), 4_001),
            &[b"0123456789abcdef".repeat(80), b"secret".to_vec()].concat(),
        );
        frames.extend(whole.ip.fragment_frames(&whole.payload(), 640));
    }
    frames
}

#[test]
fn equal_packets_of_two_links_never_meet() {
    in_namespace(|| {
        let folder = Folder::new();
        let mut outside = network();
        let running = begin(&folder);
        let frames = frames();
        let all = frames.len();
        send(&mut outside.one[0], &frames);
        send(&mut outside.two[0], &frames);
        send(&mut outside.mirror, &frames);
        // What leaves is what came, by its own link; fragments as they were.
        let mut one = take(&mut outside.one[1], all - 3);
        let mut two = take(&mut outside.two[1], all);
        let mut expected = frames.clone();
        for frames in [&mut one, &mut two, &mut expected] {
            frames.sort_unstable();
        }
        assert!(two == expected, "{} of {all} frames", two.len());
        expected.retain(|frame| !frame.windows(5).any(|bytes| bytes == b"query"));
        assert!(one == expected, "{} of {} frames", one.len(), all - 3);
        // Answers belong to their link's flows.
        let answer = bartizan_testkit::packet::udp(
            (common::address(false, 2), 4_000),
            (common::address(false, 1), 50_001),
            b"fine",
        );
        send(&mut outside.two[1], &[answer.frame()]);
        until("the answer", || {
            outside.two[0].ready() && {
                let mut batch = Batch::with_capacity(64);
                outside.two[0].receive(&mut batch).unwrap() > 0
            }
        });
        // A tap gets its frames in blocks.
        until("the mirror's frames", || {
            value(&get("/metrics"), "bartizan_packets_total", &["link=\"mirror\""]) == (all + 2) as u64
        });
        let page = &get("/metrics");
        let total = |name: &str, labels: &[&str]| value(page, name, labels);
        for (link, passed, dropped) in [("one", all - 3, 3), ("two", all + 1, 0), ("mirror", all, 0)] {
            let link = &format!("link=\"{link}\"");
            let reassembled = 2;
            assert_eq!(
                (
                    total("bartizan_packets_total", &[link, "verdict=\"pass\""]),
                    total("bartizan_packets_total", &[link, "verdict=\"drop\""]),
                    total("bartizan_alerts_total", &[link]),
                    total("bartizan_flows_total", &[link, "proto=\"udp\""])
                ),
                ((passed + reassembled) as u64, dropped, 10, 13),
                "{link}\n{page}"
            );
        }
        assert_eq!(
            total("bartizan_port_packets_total", &["port=\"c1\"", "link=\"two\"", "\"in\""]),
            all as u64
        );
        assert_eq!(total("bartizan_worker_late", &["worker=\"3\"", "link=\"mirror\""]), 0);
        until("a stats event", || {
            folder.read("out/eve.json").lines().any(|line| {
                serde_json::from_str::<Value>(line).is_ok_and(|event| {
                    event["bartizan"]["stats"]["links"]["mirror"]["decoder"]["pkts"] == all
                })
            })
        });
        let ended = running.stop();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        for line in [
            format!("link one: {all} frames, {} forwarded, 3 refused, 10 alerts", all - 3),
            format!("link two: {} frames, {} forwarded, 0 refused, 10 alerts", all + 1, all + 1),
            format!("link mirror: {all} frames, {all} inspected, 0 lost, 10 alerts"),
        ] {
            assert!(ended.stdout.contains(&line), "{line}: {}", ended.stdout);
        }
        assert!(!ended.stdout.contains("do not agree"), "{}", ended.stdout);
        check_events(&folder.read("out/eve.json"));
        let stats: Value = serde_json::from_str(&folder.read("out/stats.json")).unwrap();
        assert_eq!(stats["decoder.pkts"], 3 * all + 1, "{stats}");
        assert_eq!(stats["links"]["two"]["decoder.pkts"], all + 1, "{stats}");
        assert_eq!(stats["links"]["one"]["ips.blocked"], 3, "{stats}");
        assert_eq!(stats["links"]["mirror"]["flow.udp"], 13, "{stats}");
    });
}

/// Each link's events are its own: its rule, its policy, its interface, flows with the numbers of its
/// packets.
fn check_events(eve: &str) {
    let events = events::parse(eve);
    for (link, interface, policy, sid) in
        [("one", "a1-b1", "red's", 1), ("two", "c1-d1", "blue's", 2), ("mirror", "m1", "mirrored", 3)]
    {
        let own: Vec<_> = events.iter().filter(|e| e["bartizan"]["link"] == link).collect();
        assert!(own.iter().all(|e| e["in_iface"] == interface && e["bartizan"]["policy"] == policy));
        let alerts: Vec<_> = own.iter().filter(|e| e["event_type"] == "alert").collect();
        assert_eq!(alerts.len(), 10, "{link}");
        assert!(alerts.iter().all(|e| e["alert"]["signature_id"] == sid), "{link}");
        assert_eq!(own.iter().filter(|e| e["event_type"] == "drop").count(), if sid == 1 { 3 } else { 0 });
        let flows: Vec<_> = own.iter().filter(|e| e["event_type"] == "flow").collect();
        assert_eq!(flows.len(), 13, "{link}");
        for flow in flows {
            let answered = link == "two" && flow["src_port"] == 50_001;
            let packets = (&flow["flow"]["pkts_toserver"], &flow["flow"]["pkts_toclient"]);
            assert_eq!(packets, (&Value::from(1), &Value::from(u8::from(answered))), "{flow}");
        }
    }
    let named = events.iter().filter(|e| e["event_type"] != "stats");
    assert!(named.into_iter().all(|e| e["bartizan"]["link"].is_string()));
    // Flows of all links have numbers of their own.
    let ids: std::collections::HashSet<_> =
        events.iter().filter(|e| e["event_type"] == "flow").map(|e| e["flow_id"].as_u64()).collect();
    assert_eq!(ids.len(), 3 * 13);
}

#[test]
fn a_link_that_goes_and_comes_back_disturbs_no_other() {
    in_namespace(|| {
        let folder = Folder::new();
        let mut outside = network();
        let running = begin(&folder);
        let packet = |n: u16| vec![udp(false, 50_000 + n, 4_000, b"secret")];
        let [a, b] = &mut outside.one;
        send(a, &packet(1));
        assert_eq!(take(b, 1).len(), 1);
        ip("link del dev b1");
        running.until("warning: link `one`: the interface `b1` is gone: it was removed or moved");
        // A generation reaches all workers, with ports or without.
        running.signal("USR2");
        running.until("generation 2: 3 rules loaded");
        until("generation 2 everywhere", || {
            let page = get("/metrics");
            (0..4).all(|worker| value(&page, "bartizan_generation", &[&format!("worker=\"{worker}\"")]) == 2)
        });
        let [c, d] = &mut outside.two;
        send(c, &packet(1));
        assert_eq!(take(d, 1).len(), 1);
        // Not up yet: logged once, however often the program checks.
        ip("link add b0 type veth peer name b1");
        running.until("warning: link `one` is not in use again yet: interface `b1` is down");
        for end in ["b0", "b1"] {
            ip(&format!("link set dev {end} arp off up"));
        }
        running.until("note: link `one` is in use again");
        let mut b = port("b0");
        // The flow of before goes on, and the counters too.
        let [a, _] = &mut outside.one;
        send(a, &packet(1));
        assert_eq!(take(&mut b, 1).len(), 1);
        let page = get("/metrics");
        assert_eq!(value(&page, "bartizan_port_packets_total", &["port=\"a1\"", "\"in\""]), 2);
        assert_eq!(value(&page, "bartizan_packets_total", &["link=\"one\"", "\"pass\""]), 2);
        let ended = running.stop();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stdout.contains("link one: 2 frames, 2 forwarded, 0 refused"), "{}", ended.stdout);
        assert!(ended.stdout.contains("link two: 1 frames, 1 forwarded"), "{}", ended.stdout);
        assert!(!ended.stdout.contains("do not agree"), "{}", ended.stdout);
        for said in ["`b1` is gone", "not in use again yet", "is in use again"] {
            assert_eq!(ended.stderr.matches(said).count(), 1, "{said}: {}", ended.stderr);
        }
        let events = events::parse(&folder.read("out/eve.json"));
        let flows: Vec<_> = events::of_type(&events, "flow").collect();
        assert_eq!(flows.len(), 2);
        let of_one = flows.iter().find(|e| e["bartizan"]["link"] == "one").unwrap();
        assert_eq!(of_one["flow"]["pkts_toserver"], 2, "{of_one}");
    });
}

#[test]
fn a_link_that_goes_under_traffic_leaves_no_frame_uncounted() {
    in_namespace(|| {
        let folder = Folder::new();
        let mut outside = network();
        let running = begin(&folder);
        // Fragments go from worker to worker.
        let round = frames();
        for _ in 0..3 {
            let mut going = Command::new("ip").args(["link", "del", "dev", "b1"]).spawn().unwrap();
            while going.try_wait().unwrap().is_none() {
                send(&mut outside.one[0], &round);
            }
            let gone = "the interface `b1` is gone";
            let taken_up = running.stderr().matches("is in use again").count();
            until(gone, || running.stderr().matches(gone).count() == taken_up + 1);
            // What comes meanwhile is not seen.
            send(&mut outside.one[0], &round);
            veth("b0", "b1", 1500);
            until("taken up", || running.stderr().matches("is in use again").count() == taken_up + 1);
            outside.one[1] = port("b0");
        }
        let one = &mut outside.one;
        send(&mut one[0], &[udp(false, 33_333, 4_000, b"last")]);
        let mut came = Vec::new();
        while !came.iter().any(|frame: &Vec<u8>| frame.ends_with(b"last")) {
            came = take(&mut one[1], 1);
            assert!(!came.is_empty(), "the last frame does not come");
        }
        let ended = running.stop();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(!ended.stdout.contains("do not agree"), "{}", ended.stdout);
    });
}

#[test]
fn an_interface_that_is_down_is_told_with_its_link() {
    in_namespace(|| {
        let folder = Folder::new();
        let mut outside = network();
        let running = begin(&folder);
        ip("link set dev d1 down");
        running.until("warning: link `two`: interface `d1` is down");
        ip("link set dev d1 up");
        running.until("note: link `two`: interface `d1` works again");
        let [c, d] = &mut outside.two;
        send(c, &[udp(false, 50_000, 4_000, b"hello")]);
        assert_eq!(take(d, 1).len(), 1);
        let ended = running.stop();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(!ended.stderr.contains("is gone") && !ended.stdout.contains("do not agree"), "{ended:?}");
    });
}

#[test]
fn the_run_ends_when_no_link_is_left() {
    in_namespace(|| {
        let folder = Folder::new();
        let _outside = network();
        let running = begin(&folder);
        for name in ["a1", "c1"] {
            ip(&format!("link del dev {name}"));
            running.until(&format!("the interface `{name}` is gone"));
        }
        ip("link del dev m1");
        let ended = running.wait();
        assert_eq!(ended.code, Some(3), "{ended:?}");
        assert!(ended.stdout.contains("link mirror: 0 frames"), "{}", ended.stdout);
    });
}

#[test]
fn links_that_cannot_be_are_named() {
    in_namespace(|| {
        let folder = Folder::new();
        veth("a0", "a1", 1500);
        ip("link property add dev a1 altname uplink");
        for (links, says) in [
            (
                "{name: x, tap: {interface: a0}}, {name: y, tap: {interface: a00}}",
                "link `y`: interface `a00` does not",
            ),
            (
                "{name: x, tap: {interface: a1}}, {name: y, tap: {interface: uplink}}",
                "links `x` and `y`: `a1` and `uplink` are one interface",
            ),
            (
                "{name: x, inline: {a: a0, b: a1}}, {name: y, tap: {interface: lo}}",
                "link `y`: interface `lo` is down",
            ),
        ] {
            folder.write("bartizan.yaml", format!("links: [{links}]\ncache: none\n"));
            let ended = common::run(&folder.0, &["run", "-c", "bartizan.yaml"]);
            assert_eq!(ended.code, Some(1), "{ended:?}");
            assert!(ended.stderr.contains(says) && ended.stderr.lines().count() == 1, "{says}: {ended:?}");
        }
        ip("link set dev lo up");
        folder.write(
            "bartizan.yaml",
            "links: [{name: x, inline: {a: a0, b: a1}}, {name: y, tap: {interface: lo}}]\ncache: none\nsettings: {firewall.enabled: yes}\n",
        );
        let ended = common::run(&folder.0, &["run", "-c", "bartizan.yaml"]);
        assert!(
            ended.stderr.contains("link `y`: firewall mode drops packets that no rule accepts"),
            "{ended:?}"
        );
    });
}

/// A run on a tap with a filter. Returns the inspected packets when `expected` frames had come.
fn filtered(outside: &mut InlinePort, frames: &[Vec<u8>], link: &str, expected: u64) -> common::Ended {
    let folder = Folder::new();
    let file = format!("links: [{link}]\ncache: none\nmetrics: {{listen: '127.0.0.1:9100'}}\n");
    folder.write("bartizan.yaml", file);
    let running =
        Running::start(Command::new(PROGRAM).args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
    running.until("running on m1");
    send(outside, frames);
    let begun = Instant::now();
    loop {
        let page = get("/metrics");
        if value(&page, "bartizan_port_packets_total", &["\"m1\"", "\"in\""]) >= expected {
            break;
        }
        if begun.elapsed() > Duration::from_secs(30) {
            let devices = Command::new("ip").args(["-s", "link"]).output().unwrap();
            panic!("{}{page}{:?}", String::from_utf8_lossy(&devices.stdout), running.stop());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    running.stop()
}

#[test]
fn a_tap_looks_only_at_what_its_filter_lets_through() {
    in_namespace(|| {
        if bartizan_ports::PacketFilter::compile("ip", 1).is_err() {
            eprintln!("needs libpcap: not run (apt-get install libpcap0.8)");
            return;
        }
        ip("link set dev lo up");
        veth("m0", "m1", 1500);
        let mut outside = port("m0");
        // Eight to port 22 and four to others, of both IP versions; the last two of each have a VLAN tag.
        let mut frames: Vec<_> = (0..12u16)
            .map(|n| udp(n % 2 == 0, 50_000 + n, if n < 8 { 22 } else { 23 + n }, b"secret"))
            .collect();
        for at in [6, 7, 10, 11] {
            frames[at].splice(12..12, [0x81, 0, 0, 42]);
        }
        for (filter, expected) in [
            ("not port 22", 4),
            ("port 22", 8),
            ("vlan 42", 4),
            ("vlan 42 and not port 22", 2),
            ("ip6 and udp", 6),
            ("vlan 43 or port 33", 1),
        ] {
            for workers in [1, 2] {
                let link =
                    format!("{{name: m, tap: {{interface: m1}}, workers: {workers}, filter: {filter}}}");
                let ended = filtered(&mut outside, &frames, &link, expected);
                assert_eq!(ended.code, Some(0), "{ended:?}");
                let line = format!("{expected} frames, {expected} inspected, 0 lost");
                assert!(ended.stdout.starts_with(&line), "{filter}, {workers} workers: {}", ended.stdout);
            }
        }
        let folder = Folder::new();
        folder.write("bartizan.yaml", "links:\n  - {name: m, tap: {interface: m1}, filter: porrt 22}\n");
        let ended = common::run(&folder.0, &["run", "-c", "bartizan.yaml"]);
        assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{ended:?}");
        let says = "bartizan.yaml:2:45: the filter `porrt 22` cannot be used: ";
        assert!(ended.stderr.contains(says), "{ended:?}");
    });
}

/// The events about packets, without the members that differ between a link and a capture of it.
fn said(folder: &Folder, eve: &str) -> Vec<String> {
    let events = events::parse(&folder.read(eve));
    let wanted = events.iter().filter(|e| e["event_type"] == "alert" || e["event_type"] == "flow");
    let mut said: Vec<String> = wanted
        .map(|e| {
            let of = ["event_type", "src_ip", "src_port", "dest_ip", "dest_port", "proto", "vlan", "alert"];
            let packets = [&e["flow"]["pkts_toserver"], &e["flow"]["bytes_toserver"]];
            format!("{:?} {packets:?}", of.map(|key| e[key].to_string()))
        })
        .collect();
    said.sort_unstable();
    said
}

#[test]
fn tcpdump_beside_a_tap_sees_the_same_frames() {
    in_namespace(|| {
        let there = Command::new("tcpdump").arg("--version").output().is_ok_and(|o| o.status.success());
        if !there || bartizan_ports::PacketFilter::compile("ip", 1).is_err() {
            eprintln!("needs tcpdump and libpcap: not run (apt-get install tcpdump)");
            return;
        }
        ip("link set dev lo up");
        veth("m0", "m1", 1500);
        let mut outside = port("m0");
        let mut all: Vec<_> =
            (0..40u16).map(|n| udp(n % 2 == 0, 50_000 + n, 4_000 + n % 3, b"secret")).collect();
        for frame in all.iter_mut().step_by(3) {
            frame.splice(12..12, [0x81, 0, 0, 42]);
        }
        for (filter, count) in [("port 4001", 13), ("vlan 42 and ip6", 7)] {
            let folder = Folder::new();
            folder.write("a.rules", rule(1));
            let tcpdump = Running::start(
                Command::new("tcpdump")
                    .args(["-i", "m1", "-w", "seen.pcap", "-Z", "root", "-c", &count.to_string(), filter])
                    .current_dir(&folder.0),
            );
            tcpdump.until("listening on m1");
            let arguments =
                ["run", "--tap", "m1", "--workers", "2", "--filter", filter, "--rules", "a.rules"];
            let live = Running::start(
                Command::new(PROGRAM)
                    .args(arguments)
                    .args(["--out", "live", "--cache", "none", "--metrics", "127.0.0.1:9100"])
                    .current_dir(&folder.0),
            );
            live.until("running on m1");
            send(&mut outside, &all);
            until("the frames", || {
                value(&get("/metrics"), "bartizan_port_packets_total", &["\"m1\"", "\"in\""]) == count
            });
            assert_eq!(live.stop().code, Some(0));
            // It ends with the last of them.
            let ended = tcpdump.wait();
            assert!(ended.stderr.contains(&format!("{count} packets captured")), "{ended:?}");
            let arguments =
                ["inspect", "--rules", "a.rules", "--out", "read", "--cache", "none", "seen.pcap"];
            assert_eq!(common::run(&folder.0, &arguments).code, Some(0));
            let (live, read) = (said(&folder, "live/eve.json"), said(&folder, "read/eve.json"));
            assert_eq!(live.len() as u64, count * 2, "an alert and a flow each: {live:?}");
            assert_eq!(live, read, "{filter}");
        }
    });
}

#[test]
fn what_a_mirror_shows_twice_is_looked_at_once() {
    in_namespace(|| {
        ip("link set dev lo up");
        veth("m0", "m1", 1500);
        let mut outside = port("m0");
        // Each frame comes twice, once directly after itself and once after all others; host 1 really sends
        // the first one twice.
        let frames: Vec<_> = (0..10u16).map(|n| udp(n % 2 == 0, 50_000 + n, 4_000, b"secret")).collect();
        let mut all: Vec<_> = frames[..5].iter().flat_map(|frame| [frame.clone(), frame.clone()]).collect();
        all.extend_from_slice(&frames[5..]);
        all.extend_from_slice(&frames[5..]);
        all.extend([frames[0].clone(), frames[0].clone()]);
        for workers in [1, 2] {
            let tap = "tap: {interface: m1, ring: 2MiB, duplicate-window: 1000}";
            let link = format!("{{name: m, {tap}, workers: {workers}}}");
            let ended = filtered(&mut outside, &all, &link, all.len() as u64);
            assert_eq!(ended.code, Some(0), "{ended:?}");
            assert!(ended.stdout.starts_with("11 frames, 11 inspected, 0 lost"), "{}", ended.stdout);
            assert!(ended.stdout.contains("    11 capture.duplicates\n"), "{}", ended.stdout);
            assert!(ended.stdout.contains("m1: 22 received, 0 dropped"), "{}", ended.stdout);
            assert!(!ended.stdout.contains("do not agree"), "{}", ended.stdout);
        }
        let ended = filtered(&mut outside, &all, "{name: m, tap: {interface: m1}, workers: 1}", 22);
        assert!(ended.stdout.starts_with("22 frames, 22 inspected"), "{}", ended.stdout);
    });
}

#[test]
fn a_snap_length_counts_from_the_link_header_without_the_tag_that_the_kernel_takes_out() {
    in_namespace(|| {
        ip("link set dev lo up");
        veth("m0", "m1", 1500);
        veth("n0", "n1", 1500);
        let mut outside = port("m0");
        let with_tag = |mut frame: Vec<u8>| {
            frame.splice(12..12, [0x81, 0, 0, 42]);
            frame
        };
        // 128 bytes and no more, beside a tag; 129; many more. Each twice, and one whose first bytes are
        // another one's.
        let longer = |length: usize| udp(false, 50_000, 4_000, &vec![7; length - 42]);
        let frames = [128, 129, 342].map(|length| [longer(length), with_tag(longer(length))]).concat();
        let mut all: Vec<_> = frames.iter().flat_map(|frame| [frame.clone(), frame.clone()]).collect();
        // The headers are those of the one before: only their lengths on the wire differ.
        all.push([&with_tag(longer(342))[..], &[0; 60]].concat());
        let has_pcap = bartizan_ports::PacketFilter::compile("ip", 1).is_ok();
        for workers in [1, 2] {
            for (interfaces, filter, seen, cut) in [
                ("m1", "", 13, 9),
                ("[m1, n1]", "", 13, 9),
                ("m1", ", filter: vlan 42", 7, 5),
                ("[m1, n1]", ", filter: ip or vlan 42", 13, 9),
            ] {
                if !filter.is_empty() && !has_pcap {
                    eprintln!("needs libpcap: not run (apt-get install libpcap0.8)");
                    continue;
                }
                let tap =
                    format!("tap: {{interface: {interfaces}, snap-length: 128, duplicate-window: 1000}}");
                let link = format!("{{name: m, {tap}, workers: {workers}{filter}}}");
                let ended = filtered(&mut outside, &all, &link, seen);
                assert_eq!(ended.code, Some(0), "{ended:?}");
                let (first, second) = (seen / 2 + 1, seen / 2);
                assert!(
                    ended.stdout.starts_with(&format!("{first} frames, {first} inspected, 0 lost")),
                    "{}",
                    ended.stdout
                );
                assert!(
                    ended.stdout.contains(&format!("    {second} capture.duplicates\n")),
                    "{}",
                    ended.stdout
                );
                let port = format!("m1: {seen} received, 0 dropped in the ring, ");
                let counted = format!("{cut} cut\n");
                let line =
                    ended.stdout.lines().find(|line| line.starts_with(&port)).map(|line| format!("{line}\n"));
                assert!(line.is_some_and(|line| line.ends_with(&counted)), "{}", ended.stdout);
                assert!(!ended.stdout.contains("do not agree"), "{}", ended.stdout);
            }
        }
    });
}

/// Blocks of the ring are handed over by time as well: a worker that pauses must not lose frames that come
/// slowly meanwhile.
#[test]
fn a_small_ring_holds_what_trickles_in_while_nobody_looks() {
    in_namespace(|| {
        ip("link set dev lo up");
        veth("m0", "m1", 1500);
        let mut outside = port("m0");
        let folder = Folder::new();
        let file = "links: [{name: m, tap: {interface: m1, ring: 2MiB}, workers: 1}]\ncache: none\nmetrics: {listen: '127.0.0.1:9100'}\n";
        folder.write("bartizan.yaml", file);
        let running =
            Running::start(Command::new(PROGRAM).args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
        running.until("running on m1");
        running.signal("STOP");
        for number in 0..12 {
            send(&mut outside, &[udp(number % 2 == 0, 50_000 + number, 4_000, b"secret")]);
            std::thread::sleep(Duration::from_millis(25));
        }
        running.signal("CONT");
        until("the frames", || {
            value(&get("/metrics"), "bartizan_port_packets_total", &["\"m1\"", "\"in\""]) == 12
        });
        let ended = running.stop();
        assert!(ended.stdout.contains("m1: 12 received, 0 dropped"), "{}", ended.stdout);
    });
}

#[test]
fn captures_have_filters_too() {
    if bartizan_ports::PacketFilter::compile("ip", 1).is_err() {
        eprintln!("needs libpcap: not run (apt-get install libpcap0.8)");
        return;
    }
    let folder = Folder::new();
    let frames: Vec<_> =
        (0..6u16).map(|n| udp(n % 2 == 0, 50_000, if n < 4 { 22 } else { 53 }, b"secret")).collect();
    folder.write("x.pcap", common::capture(&frames));
    folder.write("a.rules", rule(1));
    for threads in ["1", "2"] {
        let arguments = [
            "inspect",
            "--rules",
            "a.rules",
            "--cache",
            "none",
            "--threads",
            threads,
            "--filter",
            "not port 22",
            "x.pcap",
        ];
        let ended = common::run(&folder.0, &arguments);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stdout.contains("4 packets excluded by --filter"), "{}", ended.stdout);
        let events = events::parse(&folder.read("bartizan-out/eve.json"));
        let numbers: Vec<_> = events::of_type(&events, "alert").map(|e| e["pcap_cnt"].as_u64()).collect();
        assert_eq!(numbers.len(), 2, "{numbers:?}");
        assert!(
            numbers.contains(&Some(5)) && numbers.contains(&Some(6)),
            "the numbers of the file: {numbers:?}"
        );
        std::fs::remove_dir_all(folder.path("bartizan-out")).unwrap();
    }
    let ended =
        common::run(&folder.0, &["inspect", "--cache", "none", "--filter", "nonsense nonsense", "x.pcap"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.stderr.contains("--filter, for packets of link type 1: the filter `nonsense nonsense` cannot"),
        "{ended:?}"
    );
    assert!(!folder.path("bartizan-out").exists(), "nothing is written");
}
