// SPDX-License-Identifier: Apache-2.0
//! An MTU that changes while `bartizan run` runs, in a network namespace of its own (needs root; without,
//! it prints so and returns): an inline link carries the larger packets of both IP versions unchanged, a
//! tap inspects them, and packets that no longer fit are refused with their reason. Each change is logged.

use crate::common;
use crate::level;
use crate::namespace;

use bartizan_ports::{Batch, InlineOptions, InlinePort, Port, wait_any};
use bartizan_testkit_worker::events;
use common::{Folder, PROGRAM, Running, get, udp, until, value};
use namespace::{in_namespace, ip, veth};
use std::process::Command;
use std::time::{Duration, Instant};

const POLICY: &str = "policies:\n  - {name: all, from: any, to: any, chain: [pfw, ids], pfw: {default: allow}, ids: {rules: [r.rules]}}\ndefault: {action: drop}\n";
const RULES: &str = "alert udp any any -> any 4000 (msg:\"large\"; dsize:>6000; content:\"end\"; sid:1;)\n";
const ENDS: [&str; 4] = ["a0", "a1", "b0", "b1"];

fn set(ends: &[&str], mtu: u32) {
    ends.iter().for_each(|end| ip(&format!("link set dev {end} mtu {mtu}")));
}

/// A datagram of so many bytes with a mark at its end.
fn datagram(v6: bool, port: u16, len: usize) -> Vec<u8> {
    udp(v6, port, 4_000, &[vec![b'x'; len - 3], b"end".to_vec()].concat())
}

fn port(name: &str) -> InlinePort {
    InlinePort::open(name, &InlineOptions { frames: 64, ..InlineOptions::default() }).unwrap()
}

/// Sends frames to the link until they have come out of it unchanged, or 10 seconds are over.
fn passes(frames: &[Vec<u8>]) -> bool {
    let (mut from, mut to) = (port("a0"), port("b0"));
    let mut batch = Batch::with_capacity(16);
    let end = Instant::now() + Duration::from_secs(10);
    let mut came: Vec<Vec<u8>> = Vec::new();
    while Instant::now() < end {
        for frame in frames {
            from.transmit_frame(frame).unwrap();
        }
        from.flush().unwrap();
        let _ = wait_any(&mut [&mut to], None, Duration::ZERO, Duration::from_millis(100));
        to.receive(&mut batch).unwrap();
        came.extend(batch.indices().filter_map(|at| batch.bytes(at)).map(<[u8]>::to_vec));
        batch.clear();
        if frames.iter().all(|frame| came.contains(frame)) {
            return true;
        }
    }
    false
}

#[test]
fn an_inline_link_follows_an_mtu_that_is_changed() {
    in_namespace(|| {
        ip("link set dev lo up");
        veth("a0", "a1", 1500);
        veth("b0", "b1", 1500);
        let folder = Folder::new();
        folder.write("p.yaml", POLICY);
        folder.write("r.rules", RULES);
        let line = ["run", "--cache", "none", "--inline", "a1", "b1", "--policy", "p.yaml", "--out", "o"];
        let running = Running::start(Command::new(PROGRAM).args(line).current_dir(&folder.0));
        running.until("running on a1-b1");
        let small = [datagram(false, 1, 1_000), datagram(true, 2, 1_000)];
        let large = [datagram(false, 3, 8_000), datagram(true, 4, 8_000)];
        assert!(passes(&small), "{}", running.stderr());
        set(&ENDS, 9000);
        running.until("note: the MTU of interface `b1` changed from 1500 to 9000");
        assert!(passes(&large), "{}", running.stderr());
        // One end alone: the log says that longer packets are refused.
        set(&["b1"], 1500);
        running.until(
            "warning: `b1` has MTU 1500 and `a1` has 9000: packets over 1500 bytes are dropped between them",
        );
        std::thread::sleep(Duration::from_secs(2));
        let mut from = port("a0");
        large.iter().for_each(|frame| from.transmit_frame(frame).unwrap());
        from.flush().unwrap();
        std::thread::sleep(Duration::from_secs(2));
        let ended = running.stop();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let events = events::parse(&folder.read("o/eve.json"));
        let ports: Vec<_> =
            events.iter().filter(|e| e["event_type"] == "alert").map(|e| e["src_port"].as_u64()).collect();
        assert!(ports.contains(&Some(3)) && ports.contains(&Some(4)), "{ports:?}");
        let refused: u64 = events
            .iter()
            .filter(|e| e["event_type"] == "drop" && e["bartizan"]["port"] == "b1")
            .map(|e| {
                assert_eq!(e["bartizan"]["reason"], "egress_mtu", "{e}");
                e["bartizan"]["frames"].as_u64().unwrap_or(1)
            })
            .sum();
        assert!(refused >= 2, "{refused}: {events:?}");
    });
}

/// The number of this test's frames at the far end, until none comes for a moment.
fn arrive(to: &mut InlinePort, frames: &[Vec<u8>]) -> u64 {
    let (mut batch, mut came, mut last) = (Batch::with_capacity(16), 0, Instant::now());
    while last.elapsed() < Duration::from_secs(1) {
        to.receive(&mut batch).unwrap();
        let ours = batch.indices().filter_map(|at| batch.bytes(at)).filter(|b| frames.iter().any(|f| f == b));
        let more = ours.count() as u64;
        came += more;
        if more > 0 {
            last = Instant::now();
        } else {
            let _ = wait_any(&mut [&mut *to], None, Duration::ZERO, Duration::from_millis(50));
        }
    }
    came
}

/// Flows that the level handles: larger frames pass once both ends have the MTU for them, and each frame
/// that does not pass is counted, from the moment of the change on.
#[test]
fn with_a_level_below_it_larger_frames_pass_or_are_counted() {
    level::beside_each_other(["auto", "generic"], |mode| {
        let folder = Folder::new();
        drop(level::network(1500));
        folder.write("p.yaml", "default: {action: allow}\n");
        folder.write(
            "bartizan.yaml",
            format!(
                "links: [{{name: wan, inline: {{a: a1, b: b1, offload: {{level: xdp, mode: {mode}, entries: 1024}}}}}}]\n\
                 policy: p.yaml\ncache: none\noutputs: {{eve: {{dir: o}}}}\nmetrics: {{listen: '127.0.0.1:9100'}}\n"
            ),
        );
        // The far ends poll for as long as ports are open on them.
        let [mut from, mut to] = [port("a0"), port("b0")];
        let mut command = Command::new(PROGRAM);
        let running = Running::start(command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
        running.until("running on");
        let of = |len| [datagram(false, 1, len), datagram(true, 2, len)];
        let [small, large] = [of(1_000), of(2_500)];
        let below = || value(&get("/metrics"), "bartizan_port_level_total", &["port=\"a1\"", "forwarded"]);
        let lost = || value(&get("/metrics"), "bartizan_port_dropped_total", &["port=\"b1\""]);
        let mut send = |frames: &[Vec<u8>]| {
            frames.iter().for_each(|frame| from.transmit_frame(frame).unwrap());
            from.flush().unwrap();
        };
        until("the flows are below", || {
            send(&small);
            arrive(&mut to, &small);
            below() > 0
        });
        // From the change on each frame passes, or is counted.
        let before = lost();
        set(&ENDS, 3000);
        [from, to] = [port("a0"), port("b0")];
        let mut send = |frames: &[Vec<u8>]| {
            frames.iter().for_each(|frame| from.transmit_frame(frame).unwrap());
            from.flush().unwrap();
        };
        let (mut sent, mut came) = (0, 0);
        until("large frames pass", || {
            send(&large);
            let passed = arrive(&mut to, &large);
            (sent, came) = (sent + 2, came + passed);
            passed == 2
        });
        until("all that did not pass is counted", || came + lost() - before == sent);
        let handled = below();
        until("large frames pass below", || {
            send(&large);
            arrive(&mut to, &large);
            below() > handled
        });
        // One end alone: what does not pass from then on is counted.
        let (before, mut sent, mut came) = (lost(), 0, 0);
        set(&["b1"], 1500);
        until("large frames are refused", || {
            send(&large);
            let passed = arrive(&mut to, &large);
            (sent, came) = (sent + 2, came + passed);
            passed == 0
        });
        until("all that did not pass is counted", || came + lost() - before == sent);
        running.until("packets over 1500 bytes are dropped between them");
        let reason = ["port=\"b1\"", "reason=\"too_large\""];
        let before = value(&get("/metrics"), "bartizan_port_dropped_total", &reason);
        until("the level leaves them to the host, which refuses them", || {
            send(&large);
            arrive(&mut to, &large);
            value(&get("/metrics"), "bartizan_port_dropped_total", &reason) > before
        });
        let ended = running.stop();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let events = events::parse(&folder.read("o/eve.json"));
        let told = |e: &&serde_json::Value| e["event_type"] == "drop" && e["bartizan"]["port"] == "b1";
        assert!(events.iter().any(|e| told(&e)), "{events:?}");
    });
}
