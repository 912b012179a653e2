// SPDX-License-Identifier: Apache-2.0
//! Conservation of counters with the XDP level while packets arrive as fast as the link takes them (needs
//! root; without, it prints so and returns): reloads, busier flows and the ends of connections remove
//! entries while packets of exactly those flows arrive. The packets sent equal the sum of the levels'
//! counts and of the records, and each packet that did not arrive was refused for a reason: no difference.
//! `make conservation` removes ten thousand entries.

use crate::common;
use crate::level;
use crate::namespace;

use bartizan_testkit_worker::events;
use common::{Folder, PROGRAM, Running, get, until, value};
use level::traffic::{FIRST_PORT, Fate, Flows, Kind, Sum, Traffic};
use level::{counter, ends_well, network, number, pin_of, pins};
use namespace::{detach_pinned, in_namespace_for, own_bpf_file_system};
use serde_json::Value;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The port that every second policy refuses.
const TOGGLED: u16 = 668;
/// The number of the first flows, which a rule bypasses.
const BYPASSED: usize = 192;
/// The number of flows that send most packets while reloads remove entries.
const BUSY: usize = 6;

/// Flows of all kinds: bypassed, refused, one or the other, inspected, compared with their windows, and
/// connections that end.
fn kinds() -> Vec<Flows> {
    let of = |kind, fate, client, port, count| Flows { kind, fate, client, port, count };
    vec![
        of(Kind::Datagrams, Fate::Passes, 1, 4000, BYPASSED as u16),
        of(Kind::Connection, Fate::Passes, 3, 4001, 48),
        of(Kind::Datagrams, Fate::Refused, 1, 666, 48),
        of(Kind::Datagrams, Fate::Depends, 1, TOGGLED, 32),
        of(Kind::Datagrams, Fate::Passes, 1, 5000, 16),
        of(Kind::Connections, Fate::Depends, 1, 4000, 32),
    ]
}

/// Rules of a generation: every second one has none that lets flows go, which takes all of them away from the
/// level.
fn rules(generation: u64) -> String {
    let bypass = if generation.is_multiple_of(2) { "" } else { "bypass; " };
    format!(
        "drop udp any any -> any 666 (msg:\"no\"; sid:1;)\n\
         drop udp any 666 -> any any (msg:\"no\"; sid:2;)\n\
         pass ip any any -> any 4000 (msg:\"known\"; {bypass}sid:3;)\n"
    )
}

/// Policies of a generation: connections of host 3 are the stateful firewall's alone.
fn policy(generation: u64) -> String {
    let refused = if generation.is_multiple_of(2) { TOGGLED } else { TOGGLED + 1 };
    format!(
        "policies:\n\
         - {{name: windows, from: [192.0.2.3, \"2001:db8::3\"], to: any, chain: [pfw, sfw], pfw: {{default: allow}}}}\n\
         - {{name: all, from: any, to: any, chain: [pfw, ids], pfw: {{default: allow, rules: [{{drop: udp, to-ports: {refused}}}]}}, ids: {{rules: [local.rules]}}}}\n\
         default: {{action: drop}}\n"
    )
}

fn start(folder: &Folder, workers: u16, entries: u32) -> Running {
    folder.write("policy.yaml", policy(1));
    folder.write("local.rules", rules(1));
    folder.write(
        "bartizan.yaml",
        format!(
            "links: [{{name: wan, inline: {{a: a1, b: b1, offload: {{level: xdp, entries: {entries}, fail: open, stale: 30s}}}}, workers: {workers}}}]\n\
             policy: policy.yaml\ncache: none\noutputs: {{eve: {{dir: out}}}}\nmetrics: {{listen: '127.0.0.1:9100'}}\nreload: {{max-loss: 100%}}\n"
        ),
    );
    let mut command = Command::new(PROGRAM);
    let running = Running::start(command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
    running.until("running on");
    running
}

/// Traffic for some time.
fn go_on_for(traffic: &mut Traffic, time: Duration) {
    let end = Instant::now() + time;
    traffic.until("some time", || Instant::now() > end);
}

/// Another generation under traffic.
fn reload(folder: &Folder, running: &Running, traffic: &mut Traffic, generation: u64) {
    folder.write("policy.yaml", policy(generation));
    folder.write("local.rules", rules(generation));
    running.signal("USR2");
    let said = format!("generation {generation}: ");
    traffic.until(&said, || running.stderr().contains(&said));
}

/// The sums of all flow records, and those of the XDP level alone.
#[derive(Debug, Default)]
struct Recorded {
    all: Sum,
    below: Sum,
    host: Sum,
    /// The sums of each flow of the test.
    flows: Vec<Sum>,
}

fn recorded(folder: &Folder, flows: usize) -> Recorded {
    let mut recorded = Recorded { flows: vec![Sum::default(); flows], ..Recorded::default() };
    let sum = |object: &Value| {
        let of = |key: &str| ["toserver", "toclient"].map(|way| number(&object[format!("{key}_{way}")]));
        Sum { packets: of("pkts").iter().sum(), bytes: of("bytes").iter().sum() }
    };
    for event in events::read(&folder.path("out/eve.json")) {
        if event["event_type"] != "flow" {
            continue;
        }
        let all = sum(&event["flow"]);
        recorded.all.add(all);
        recorded.below.add(sum(&event["bartizan"]["levels"]["xdp"]));
        // One that was never below does not say where it was.
        let levels = &event["bartizan"]["levels"];
        recorded.host.add(if levels.is_null() { all } else { sum(&levels["host"]) });
        let own = |end: &str| (number(&event[end]) as u16).checked_sub(FIRST_PORT).map(usize::from);
        let at = own("src_port").or(own("dest_port")).expect("a flow of the test");
        recorded.flows[at].add(all);
    }
    recorded
}

/// Frames that came by both ports, by what became of them there.
fn at_level(page: &str, what: &str) -> u64 {
    value(page, "bartizan_port_level_total", &[&format!("what=\"{what}\"")])
}

/// Waits until the page has all frames: it is made anew once a second. `away`: some came while no program was
/// there to count them, so until it has no more.
fn page_with(frames: u64, away: bool) -> String {
    let begun = Instant::now();
    let mut last = (0, begun);
    loop {
        let page = get("/metrics");
        let all = ["up", "forwarded", "dropped"].iter().map(|what| at_level(&page, what)).sum::<u64>();
        if all != last.0 {
            last = (all, Instant::now());
        }
        if all == frames || away && all < frames && last.1.elapsed() > Duration::from_secs(3) {
            return page;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{all} of {frames} came to the level\n{page}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Ends the run and holds all sums against each other. Gives how many entries were taken away. `away`: the
/// program was, for some time.
fn check(folder: &Folder, running: Running, mut traffic: Traffic, away: bool) -> u64 {
    traffic.settle();
    let (sent, arrived) = (traffic.sent(), traffic.arrived());
    // What has not arrived was refused, for a reason.
    let refused = sent.packets - arrived.packets;
    let by_reason = || value(&get("/metrics"), "bartizan_decisions_total", &["verdict=\"drop\""]);
    until(&format!("reasons of {refused} refused packets"), || by_reason() == refused);
    let page = page_with(sent.packets, away);
    ends_well(running);
    let of = |name: &str| counter(folder, name);
    let recorded = recorded(folder, traffic.flows.len());
    // Sent, recorded, and counted at each level, packets and bytes.
    for (flow, (own, told)) in traffic.flows.iter().zip(&recorded.flows).enumerate() {
        let mut all = flow_sum(own.sent);
        assert_eq!(*told, all, "flow {flow}, {:?}, {:?}", own.kind, own.fate);
        all = flow_sum(own.arrived);
        match own.fate {
            Fate::Passes => assert_eq!(all, flow_sum(own.sent), "flow {flow}"),
            Fate::Refused => assert_eq!(all, Sum::default(), "flow {flow}"),
            Fate::Depends => {}
        }
    }
    assert_eq!(recorded.all, sent);
    let mut levels = recorded.host;
    levels.add(recorded.below);
    assert_eq!(levels, sent);
    let (forwarded, dropped) = (of("offload.forwarded_pkts"), of("offload.dropped_pkts"));
    let bytes = of("offload.forwarded_bytes") + of("offload.dropped_bytes");
    assert_eq!(recorded.below, Sum { packets: forwarded + dropped, bytes });
    assert_eq!((at_level(&page, "forwarded"), at_level(&page, "dropped")), (forwarded, dropped));
    let up = at_level(&page, "up");
    assert!(if away { up < recorded.host.packets } else { up == recorded.host.packets }, "{up} {recorded:?}");
    assert_eq!(of("ips.blocked"), refused);
    for none in ["offload.entries", "offload.orphan_pkts", "offload.lost_pkts", "offload.unanswered"] {
        assert_eq!(of(none), 0, "{none}");
    }
    assert!(forwarded > sent.packets / 4 && dropped > 200, "{forwarded} {dropped}");
    // Entries are taken away from flows that go on at the host, and from those that are over.
    of("offload.back") + of("flow_bypassed.closed")
}

fn flow_sum(sides: [Sum; 2]) -> Sum {
    let [mut all, other] = sides;
    all.add(other);
    all
}

/// Prints the number of removed entries, and the traffic meanwhile.
fn tell(what: &str, removed: u64, frames: u64, took: Duration) {
    let rate = frames as f64 / took.as_secs_f64();
    eprintln!(
        "{what}: {removed} entries taken away under {frames} frames, {rate:.0} a second; no difference"
    );
}

/// Reloads under traffic, so many; in the middle of them somebody takes the program away. Gives how many
/// entries were taken away.
fn reloads(workers: u16, reloads: u64, away: bool, seed: u64) -> u64 {
    let folder = Folder::new();
    let mut traffic = Traffic::new(network(1500), seed, &kinds());
    let running = start(&folder, workers, 1024);
    traffic.go_on(20);
    let (begun, before) = (Instant::now(), traffic.sent().packets);
    for generation in 2..2 + reloads {
        // A few flows send most while entries are taken away, so that none goes without a packet under way.
        traffic.favour(generation as usize * BUSY % BYPASSED, BUSY);
        reload(&folder, &running, &mut traffic, generation);
        go_on_for(&mut traffic, Duration::from_millis(100));
        // Flows have time to go down again.
        traffic.favour_none();
        go_on_for(&mut traffic, Duration::from_millis(200));
        traffic.go_on(20);
        if away && generation == 2 + reloads / 2 {
            until("pins", || pins().len() == 2);
            detach_pinned(&pin_of("a1"));
            traffic.until("the level, again", || running.stderr().contains("uses its XDP level again"));
        }
    }
    let (took, frames) = (begun.elapsed(), traffic.sent().packets - before);
    let removed = check(&folder, running, traffic, away);
    tell(&format!("seed {seed}, {workers} workers, {reloads} reloads"), removed, frames, took);
    removed
}

/// Other flows are busy each second than before, and there is room for few.
fn busier_flows(seconds: u64, seed: u64) -> u64 {
    let folder = Folder::new();
    let mut traffic = Traffic::new(network(1500), seed, &kinds());
    let running = start(&folder, 1, 64);
    traffic.go_on(20);
    let (begun, before) = (Instant::now(), traffic.sent().packets);
    while begun.elapsed() < Duration::from_secs(seconds) {
        traffic.favour(traffic.sent().packets as usize % BYPASSED, 48);
        go_on_for(&mut traffic, Duration::from_millis(1_200));
    }
    let (took, frames) = (begun.elapsed(), traffic.sent().packets - before);
    let removed = check(&folder, running, traffic, false);
    assert!(counter(&folder, "offload.gave_way") > 8 * seconds, "{}", folder.read("out/stats.json"));
    tell(&format!("seed {seed}, busier flows"), removed, frames, took);
    removed
}

/// The number of entries to remove in the long form.
fn asked() -> Option<u64> {
    let text = std::env::var("BARTIZAN_REMOVALS").ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("BARTIZAN_REMOVALS is not a number: {text}")))
}

#[test]
fn reloads_take_entries_away_under_full_rate_and_every_packet_is_counted_once() {
    in_namespace_for(Duration::from_secs(120), || {
        own_bpf_file_system();
        let removed = reloads(2, 8, false, 1);
        assert!(removed > 1_000, "{removed}");
    });
}

#[test]
fn busier_flows_take_entries_away_under_full_rate_and_every_packet_is_counted_once() {
    in_namespace_for(Duration::from_secs(120), || {
        own_bpf_file_system();
        busier_flows(3, 2);
    });
}

/// The whole: `make conservation`.
#[test]
fn thousands_of_entries_are_taken_away_under_full_rate_and_every_packet_is_counted_once() {
    let Some(asked) = asked() else { return };
    let (mut removed, mut seed) = (0, 10);
    while removed < asked {
        let own = Arc::new(AtomicU64::new(0));
        let of_test = Arc::clone(&own);
        in_namespace_for(Duration::from_secs(300), move || {
            own_bpf_file_system();
            let more = match seed % 4 {
                0 => busier_flows(8, seed),
                rest => reloads(1 + (seed % 2) as u16, 24, rest == 3, seed),
            };
            of_test.store(more, Ordering::Relaxed);
        });
        removed += own.load(Ordering::Relaxed);
        seed += 1;
    }
    eprintln!("{removed} entries taken away, no difference");
}
