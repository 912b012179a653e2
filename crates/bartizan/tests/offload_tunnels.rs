// SPDX-License-Identifier: Apache-2.0
//! `bartizan run` with the XDP level below it, and packets in tunnels: decided inner flows go below with the
//! outer packets, and records have the packets that the sender has sent (needs root; without, it prints so
//! and returns).

use crate::common;
use crate::level;
use crate::namespace;

use bartizan_ports::InlinePort;
use bartizan_testkit::packet;
use bartizan_testkit::tunnels::Tunnel;
use bartizan_testkit_worker::events;
use common::{Folder, PROGRAM, Running, address, get, until, value};
use level::{beside_each_other, counter, ends_well, gone_below, network, number, quiet, send, take};
use namespace::in_namespace;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

/// Two tenants with equal addresses and ports inside: red's flows are bypassed once decided, blue's are
/// inspected. The outer packets are not inspected.
const TENANTS: &str = "\
    tenants: [{name: red, select: {vni: [5]}}, {name: blue, select: {vni: [6]}}]\n\
    policies:\n\
    - {name: red, tenant: [red], from: any, to: any, chain: [ids], ids: {rules: [red.rules]}}\n\
    - {name: blue, tenant: [blue], from: any, to: any, chain: [ids], ids: {rules: [blue.rules]}}\n\
    - {name: around, from: any, to: any, chain: []}\n\
    default: {action: drop}\n";
const ALLOW: &str = "\
    policies: [{name: all, from: any, to: any, chain: [pfw], pfw: {default: allow}}]\n\
    default: {action: drop}\n";
const ALERT: &str = "alert udp any any -> any 4000 (msg:\"seen\"; content:\"evil\"; sid:3;)\n";
const BYPASS: &str = "pass udp any any -> any 4000 (msg:\"known\"; bypass; sid:2;)\n";

/// The level of a link that handles bypassed flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Xdp,
    /// No level below: bypassed flows stay with this program.
    Host,
}

fn start(folder: &Folder, workers: u16, policy: &str) -> Running {
    start_at(folder, At::Xdp, workers, policy)
}

fn start_at(folder: &Folder, at: At, workers: u16, policy: &str) -> Running {
    let offload = match at {
        At::Xdp => ", offload: {level: xdp, entries: 1024, stale: 30s}",
        At::Host => "",
    };
    folder.write("policy.yaml", policy);
    folder.write("red.rules", format!("{BYPASS}{ALERT}"));
    folder.write("blue.rules", ALERT);
    folder.write(
        "bartizan.yaml",
        format!(
            "links: [{{name: wan, inline: {{a: a1, b: b1{offload}}}, workers: {workers}}}]\n\
             policy: policy.yaml\ncache: none\noutputs: {{eve: {{dir: out}}}}\nsettings: {{decoder.gtp.enabled: 'yes'}}\n\
             metrics: {{listen: '127.0.0.1:9100'}}\n"
        ),
    );
    let mut command = Command::new(PROGRAM);
    let running = Running::start(command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
    running.until("running on");
    running
}

/// A frame of a datagram inside of a tunnel between two hosts; `back`: the answer's. The outer packets come
/// from a port of each side's own.
fn frame(tunnel: Tunnel, (v6, v6_inside): (bool, bool), back: bool, load: &[u8]) -> Vec<u8> {
    let turned = |ends: [packet::End; 2]| if back { (ends[1], ends[0]) } else { (ends[0], ends[1]) };
    let (from, to) = turned([(address(v6_inside, 11), 40_000), (address(v6_inside, 12), 4_000)]);
    let inner = packet::udp(from, to, load).bytes();
    let port = 50_000 + u16::from(back);
    let around = turned([(address(v6, 1), port), (address(v6, 2), port)]);
    tunnel.around(around, v6_inside, &inner).frame()
}

fn flows(folder: &Folder) -> Vec<Value> {
    let mut events = events::read(&folder.path("out/eve.json"));
    events.retain(|event| event["event_type"] == "flow");
    events
}

/// Packets and bytes of a flow's record, to the server and to the client.
fn sums(flow: &Value) -> [u64; 4] {
    ["pkts_toserver", "bytes_toserver", "pkts_toclient", "bytes_toclient"]
        .map(|name| number(&flow["flow"][name]))
}

/// The frames until all flows are decided, each with time for a turn of the worker.
fn begin([client, server]: &mut [InlinePort; 2], frame: &[u8]) {
    for _ in 0..3 {
        send(client, &[frame.to_vec()]);
        assert_eq!(take(server, 1), 1);
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Over IPv4 and IPv6, and with either inside.
#[test]
fn of_two_tunnels_with_equal_flows_inside_one_is_bypassed_and_the_other_is_inspected() {
    for at in [At::Xdp, At::Host] {
        for v6 in [(false, false), (false, true), (true, false), (true, true)] {
            let kinds = [(Tunnel::Vxlan(5), Tunnel::Vxlan(6)), (Tunnel::Geneve(5, 1), Tunnel::Geneve(6, 1))];
            let ways = [1, 2].into_iter().flat_map(|workers| kinds.map(|tunnels| (workers, tunnels)));
            beside_each_other(ways, move |(workers, tunnels)| two(at, workers, tunnels, v6));
        }
    }
}

fn two(at: At, workers: u16, (here, there): (Tunnel, Tunnel), v6: (bool, bool)) {
    const ROUNDS: u64 = 60;
    const FIRST: u64 = 3;
    let name = format!("{at:?}, {workers} workers, {here:?}, IPv6 {v6:?}");
    let folder = Folder::new();
    let mut ports = network(1500);
    let running = start_at(&folder, at, workers, TENANTS);
    let red = frame(here, v6, false, b"something good");
    let [evil_red, evil_blue] = [here, there].map(|of| frame(of, v6, false, b"something evil"));
    let [client, server] = &mut ports;
    for _ in 0..FIRST {
        send(client, std::slice::from_ref(&red));
        assert_eq!(take(server, 1), 1, "{name}");
    }
    if at == At::Xdp {
        // Red's inner flow, and the outer one, which is not inspected.
        gone_below(2);
    }
    for _ in 0..ROUNDS {
        send(client, &[evil_red.clone(), evil_blue.clone()]);
        assert_eq!(take(server, 2), 2, "{name}");
    }
    ends_well(running);
    let all = events::read(&folder.path("out/eve.json"));
    let alerts: Vec<_> = events::of_type(&all, "alert").collect();
    assert_eq!(alerts.len() as u64, ROUNDS, "{name}: blue's packets are inspected, each of them");
    let flows = flows(&folder);
    let of = |port: u64| flows.iter().filter(move |flow| number(&flow["src_port"]) == port);
    let length = red.len() as u64;
    // After the outer headers: Ethernet, IP, UDP, and the tunnel's.
    let inside = if v6.1 { 40 } else { 20 } + 8 + b"something good".len() as u64;
    let mut packets: Vec<[u64; 4]> = of(40_000).map(sums).collect();
    packets.sort_unstable();
    let expected = |packets: u64, each: u64| [packets, packets * each, 0, 0];
    assert_eq!(packets, [expected(ROUNDS, inside), expected(ROUNDS + FIRST, inside)], "{name}: {flows:?}");
    let below = |flow: &Value| number(&flow["bartizan"]["levels"]["xdp"]["pkts_toserver"]);
    let mut handled = 0;
    for flow in of(40_000) {
        let is_red = number(&flow["flow"]["pkts_toserver"]) == ROUNDS + FIRST;
        let seen = alerts.iter().filter(|alert| alert["flow_id"] == flow["flow_id"]).count() as u64;
        assert_eq!(seen, if is_red { 0 } else { ROUNDS }, "{name}: {flow}");
        handled += below(flow);
        let goes_below = is_red && at == At::Xdp;
        assert_eq!(below(flow) >= ROUNDS / 2, goes_below, "{name}: {flow}");
        assert!(goes_below || below(flow) == 0, "{name}: {flow}");
        assert_eq!(flow["flow"]["state"] == "bypassed", is_red, "{name}: {flow}");
        let by = match at {
            At::Xdp => "capture",
            At::Host => "local",
        };
        assert_eq!(flow["flow"]["bypass"] == by, is_red, "{name}: {flow}");
    }
    let around: Vec<_> = of(50_000).collect();
    assert_eq!(around.len(), 1, "{name}: {flows:?}");
    assert_eq!(sums(around[0]), expected(2 * ROUNDS + FIRST, length), "{name}: {around:?}");
    // Both packets of a frame are counted.
    assert_eq!(below(around[0]), handled, "{name}: {around:?}");
    assert_eq!(counter(&folder, "offload.forwarded_pkts"), 2 * handled, "{name}");
    let left = ["offload.entries", "offload.orphan_pkts"].map(|of| counter(&folder, of));
    assert_eq!(left, [0, 0], "{name}");
}

#[test]
fn flows_in_all_kinds_of_tunnels_go_below_in_both_directions() {
    for (tunnel, v6) in [
        (Tunnel::Ip, (false, true)),
        (Tunnel::Vxlan(9), (true, false)),
        (Tunnel::GeneveBridge(9), (false, true)),
        (Tunnel::Gtp(9, false, 1), (true, true)),
    ] {
        in_namespace(move || both_ways(tunnel, v6));
    }
}

fn both_ways(tunnel: Tunnel, v6: (bool, bool)) {
    const ROUNDS: u64 = 40;
    let folder = Folder::new();
    let mut ports = network(1500);
    let running = start(&folder, 1, ALLOW);
    let [there, back] = [false, true].map(|back| frame(tunnel, v6, back, &[7; 300]));
    begin(&mut ports, &there);
    let [client, server] = &mut ports;
    for _ in 0..3 {
        send(server, std::slice::from_ref(&back));
        assert_eq!(take(client, 1), 1);
        std::thread::sleep(Duration::from_millis(300));
    }
    for _ in 0..ROUNDS {
        send(client, std::slice::from_ref(&there));
        assert_eq!(take(server, 1), 1);
        send(server, std::slice::from_ref(&back));
        assert_eq!(take(client, 1), 1);
    }
    ends_well(running);
    let name = format!("{tunnel:?} {v6:?}");
    let flows = flows(&folder);
    let (packets, length) = (ROUNDS + 3, there.len() as u64);
    let inside: Vec<_> = flows.iter().filter(|flow| number(&flow["src_port"]) == 40_000).collect();
    // Where the packet inside begins for the host: GENEVE has the Ethernet header with it.
    let link = if matches!(tunnel, Tunnel::GeneveBridge(_)) { 14 } else { 0 };
    let each = link + if v6.1 { 40 } else { 20 } + 8 + 300;
    assert_eq!(inside.len(), 1, "{name}: {flows:?}");
    assert_eq!(sums(inside[0]), [packets, packets * each, packets, packets * each], "{name}");
    let around: Vec<_> = flows.iter().filter(|flow| number(&flow["src_port"]) != 40_000).collect();
    // IP in IP is one flow, which knows one direction.
    let expected = if tunnel == Tunnel::Ip {
        vec![[2 * packets, 2 * packets * length, 0, 0]]
    } else {
        vec![[packets, packets * length, 0, 0]; 2]
    };
    assert_eq!(around.iter().map(|flow| sums(flow)).collect::<Vec<_>>(), expected, "{name}");
    for flow in &flows {
        let xdp = &flow["bartizan"]["levels"]["xdp"];
        let below = number(&xdp["pkts_toserver"]) + number(&xdp["pkts_toclient"]);
        let at_most = sums(flow)[0] + sums(flow)[2];
        assert!(below >= ROUNDS / 2 && below < at_most, "{name}: {flow}");
    }
}

/// The content of one tunnel decides nothing of another one with the same inner flow where the key does not
/// separate the two: the flow stays at the host. Decisions by headers go down.
#[test]
fn what_is_decided_by_content_stays_up_where_tunnels_are_not_told_apart() {
    const AROUND: &str = "policies:\n\
        - {name: around, from: [192.0.2.1, 192.0.2.2], to: [192.0.2.1, 192.0.2.2], chain: []}\n\
        - {name: all, from: any, to: any, chain: [ids], ids: {rules: [red.rules]}}\n\
        default: {action: drop}\n";
    for (tunnel, goes_down) in
        [(Tunnel::Ip, false), (Tunnel::Gtp(9, false, 1), false), (Tunnel::Vxlan(9), true)]
    {
        in_namespace(move || {
            let folder = Folder::new();
            let mut ports = network(1500);
            let running = start(&folder, 1, AROUND);
            let frame = frame(tunnel, (false, false), false, b"something good");
            begin(&mut ports, &frame);
            let [client, server] = &mut ports;
            for _ in 0..20 {
                send(client, std::slice::from_ref(&frame));
                assert_eq!(take(server, 1), 1);
            }
            ends_well(running);
            let flows = flows(&folder);
            let inside: Vec<_> = flows.iter().filter(|flow| number(&flow["src_port"]) == 40_000).collect();
            let [inside] = inside.as_slice() else { panic!("{tunnel:?}: {flows:?}") };
            let own = &inside["bartizan"];
            assert_eq!(
                number(&own["levels"]["xdp"]["pkts_toserver"]) > 10,
                goes_down,
                "{tunnel:?}: {inside}"
            );
            assert_eq!(own["stays"] == "carrier", !goes_down, "{tunnel:?}: {inside}");
        });
    }
}

/// Packets in both tunnels are refused by the inner port; a policy of their own lets the outer packets
/// pass, or no function judges them.
const REFUSE: &str = "\
    policies:\n\
    - {name: around, from: AROUND, to: AROUND, chain: CHAIN}\n\
    - {name: inside, from: any, to: any, chain: [pfw], pfw: {default: allow, rules: [{drop: udp, to-ports: 4000, name: there}, {drop: udp, from-ports: 4000}]}}\n\
    default: {action: drop}\n";

/// A tunnel whose traffic is all refused, and one with some that is not; all sums are equal with the level
/// and without it.
#[test]
fn what_is_refused_in_a_tunnel_is_dropped_below_and_all_sums_are_those_without_a_level() {
    for (kind, around) in [
        (Tunnel::Vxlan(5), "[pfw]"),
        (Tunnel::Gtp(5, false, 1), "[]"),
        (Tunnel::Ip, "[pfw]"),
        (Tunnel::Geneve(5, 1), "[]"),
    ] {
        let (say, hear) = std::sync::mpsc::channel();
        let ways = [true, false].map(|level| (level, say.clone()));
        beside_each_other(ways, move |(level, say)| {
            say.send((level, refused_inside(kind, around, level))).unwrap();
        });
        let mut told: Vec<_> = hear.try_iter().collect();
        told.sort_unstable();
        // Where it may not be run there is nothing to compare.
        if let [(false, without), (true, with)] = &told[..] {
            assert_eq!(with, without, "{kind:?} {around}");
        }
    }
}

/// Sums by policy, rule and reason, frames by reason, and each flow's packets.
fn refused_inside(kind: Tunnel, around: &str, level: bool) -> (Vec<String>, Vec<[u64; 5]>) {
    const ROUNDS: u64 = 60;
    let folder = Folder::new();
    let [mut client, mut server] = network(1500);
    let policy = REFUSE
        .replace("AROUND", "[192.0.2.1, 192.0.2.2]")
        .replace("CHAIN", if around == "[]" { around } else { "[pfw], pfw: {default: allow}" });
    folder.write("policy.yaml", policy);
    folder.write(
        "bartizan.yaml",
        format!(
            "links: [{{name: wan, inline: {{a: a1, b: b1{}}}, workers: 1}}]\n\
             policy: policy.yaml\ncache: none\noutputs: {{eve: {{dir: out}}}}\nsettings: {{decoder.gtp.enabled: 'yes'}}\nmetrics: {{listen: '127.0.0.1:9100'}}\n",
            if level { ", offload: {level: xdp, entries: 1024, stale: 30s, drop-samples: 8}" } else { "" }
        ),
    );
    let mut command = Command::new(PROGRAM);
    let running = Running::start(command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
    running.until("running on");
    let within = |port: u16, to: u16, load: &[u8]| {
        let inner = packet::udp((address(false, 11), 40_000), (address(false, 12), to), load).bytes();
        kind.around(((address(false, 1), port), (address(false, 2), port)), false, &inner).frame()
    };
    // Of the first one nothing ever passes; IP in IP is one flow.
    let (refused, also, passes) = (
        within(50_000, 4000, b"refused"),
        within(50_001, 4000, b"refused as well"),
        within(50_001, 5000, b"passes"),
    );
    for round in 0..ROUNDS {
        send(&mut client, &[refused.clone(), also.clone(), passes.clone()]);
        assert_eq!(take(&mut server, 1), 1, "{round}");
        if round < 4 {
            std::thread::sleep(Duration::from_millis(300));
        }
    }
    assert!(quiet(&mut server), "what is refused does not arrive");
    let lines = || {
        let page = get("/metrics");
        let of = [
            "bartizan_decisions_total",
            "bartizan_packets_total",
            "bartizan_bytes_total",
            "bartizan_filter_rule_packets_total",
        ];
        let mut lines: Vec<String> = page
            .lines()
            .filter(|line| of.iter().any(|name| line.starts_with(name)))
            .map(str::to_owned)
            .collect();
        lines.sort_unstable();
        lines
    };
    let refusals = || {
        value(
            &get("/metrics"),
            "bartizan_filter_rule_packets_total",
            &["policy=\"inside\"", "rule=\"there\""],
        )
    };
    until("all are counted", || refusals() == 2 * ROUNDS);
    // The flow around is read within a second as well.
    std::thread::sleep(Duration::from_millis(1_500));
    let mut lines = lines();
    ends_well(running);
    let stats: Value = serde_json::from_str(&folder.read("out/stats.json")).unwrap();
    let frames = stats
        .as_object()
        .unwrap()
        .iter()
        .filter(|(name, _)| name.starts_with("ips.") && *name != "ips.accepted");
    lines.extend(frames.map(|(name, value)| format!("{name} {value}")));
    assert_eq!(counter(&folder, "ips.blocked"), 2 * ROUNDS, "a frame is one");
    let flows = flows(&folder);
    let mut told: Vec<[u64; 5]> = flows
        .iter()
        .map(|flow| {
            let [a, b, c, d] = sums(flow);
            [number(&flow["src_port"]), a, b, c, d]
        })
        .collect();
    told.sort_unstable();
    let below = counter(&folder, "offload.dropped_pkts");
    if level {
        // Both packets of a frame are dropped below; those of a tunnel through which nothing passes, only
        // where no function judges the outer packets.
        let tunnels = if around == "[]" || kind == Tunnel::Ip { 2 } else { 1 };
        assert!(
            below >= tunnels * 2 * (ROUNDS / 2) && below < 4 * ROUNDS,
            "{kind:?} {around}: {below} {flows:?}"
        );
        let of_flows: u64 = flows.iter().map(|flow| number(&flow["flow"]["bypassed"]["pkts_toserver"])).sum();
        assert_eq!(of_flows, counter(&folder, "flow_bypassed.pkts"));
        assert_eq!(counter(&folder, "offload.orphan_pkts"), 0);
    } else {
        assert_eq!(below, 0);
    }
    (lines, told)
}
