// SPDX-License-Identifier: Apache-2.0
//! `bartizan run` with a policy that redirects flows to a named port: packets of both sides leave by it, with
//! the XDP level below and without; packets that the port refuses are dropped, and counted; a reload sends
//! the flows across the link again (needs root; without, it prints so and returns).

use crate::common;
use crate::level;
use crate::namespace;

use bartizan_ports::InlinePort;
use bartizan_testkit::packet;
use bartizan_testkit_worker::events;
use common::{Folder, PROGRAM, Running, address};
use level::{
    beside_each_other, casts, counter, datagrams, ends, ends_well, gone_below, network, number, quiet, send,
    take, tool,
};
use namespace::{in_namespace, ip};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

const REDIRECT: &str = "\
    policies:\n\
    - name: all\n\
    \x20 from: any\n\
    \x20 to: any\n\
    \x20 chain: [pfw]\n\
    \x20 pfw: {default: allow, rules: [{allow: udp, to-ports: 5000}, {redirect: udp, to-ports: 4000, egress: trap}]}\n\
    default: {action: drop}\n";
const ALLOW: &str = "\
    policies: [{name: all, from: any, to: any, chain: [pfw], pfw: {default: allow}}]\n\
    default: {action: drop}\n";

fn start(folder: &Folder, workers: u16, offload: &str) -> Running {
    folder.write("policy.yaml", REDIRECT);
    folder.write(
        "bartizan.yaml",
        format!(
            "links: [{{name: wan, inline: {{a: a1, b: b1{offload}}}, workers: {workers}}}]\n\
             ports: [{{name: spare, interface: y1}}, {{name: trap, interface: x1}}]\n\
             policy: policy.yaml\nmetrics: {{listen: '127.0.0.1:9100'}}\ncache: none\noutputs: {{eve: {{dir: out}}}}\n"
        ),
    );
    let mut command = Command::new(PROGRAM);
    let running = Running::start(command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
    running.until("running on");
    running
}

/// Whether answers to datagrams of flows to a port arrive.
fn answers(port: u16) -> Vec<Vec<u8>> {
    let answer = |flow: u16| {
        let v6 = flow.is_multiple_of(2);
        packet::udp((address(v6, 2), port), (address(v6, 1), 40_000 + flow), &[9; 300]).frame()
    };
    (0..8).map(answer).collect()
}

fn flows(folder: &Folder) -> Vec<Value> {
    let mut events = events::read(&folder.path("out/eve.json"));
    events.retain(|event| event["event_type"] == "flow");
    events
}

#[test]
fn redirected_flows_leave_by_their_port_with_a_level_below_and_without() {
    const OFFLOAD: &str = ", offload: {level: xdp, entries: 1024, stale: 30s}";
    let ways = [(1, ""), (2, ""), (1, OFFLOAD), (2, OFFLOAD)];
    beside_each_other(ways, |(workers, offload)| redirected(workers, offload));
}

fn redirected(workers: u16, offload: &str) {
    const ROUNDS: usize = 20;
    let folder = Folder::new();
    let [mut client, mut server] = network(1500);
    let [mut trap, mut spare] = ends(["x", "y"], 1500);
    let running = start(&folder, workers, offload);
    let both = |client: &mut InlinePort, server: &mut InlinePort, trap: &mut InlinePort| {
        send(client, &datagrams(4000, &[7; 400]));
        assert_eq!(take(trap, 8), 8, "what the client sends leaves by the port");
        send(server, &answers(4000));
        assert_eq!(take(trap, 8), 8, "and what the server answers");
    };
    for round in 0..ROUNDS {
        both(&mut client, &mut server, &mut trap);
        send(&mut client, &datagrams(5000, &[7; 400]));
        assert_eq!(take(&mut server, 8), 8, "others go across");
        if round == 2 && !offload.is_empty() {
            gone_below(16);
        }
    }
    let sent = ROUNDS;
    // The port is away: what it does not take goes nowhere. The level looks once a second.
    ip("link set dev x1 down");
    std::thread::sleep(Duration::from_millis(2_500));
    send(&mut client, &datagrams(4000, &[7; 400]));
    std::thread::sleep(Duration::from_millis(1_500));
    ip("link set dev x1 up");
    std::thread::sleep(Duration::from_millis(2_500));
    both(&mut client, &mut server, &mut trap);
    assert!(quiet(&mut trap));
    // Another policy judges them anew.
    folder.write("policy.yaml", ALLOW);
    running.signal("USR2");
    running.until("generation 2");
    send(&mut client, &datagrams(4000, &[7; 400]));
    assert_eq!(take(&mut server, 8), 8, "after the reload they go across");
    for other in [&mut client, &mut trap, &mut spare] {
        assert!(quiet(other));
    }
    ends_well(running);
    // A device that is down says so when it has taken the frames already: its port counts them.
    assert_eq!(counter(&folder, "capture.afpacket.send_errors"), 8);
    // What it took is counted where it left, at whatever level.
    assert_eq!(casts(&folder, "x1", "out"), [16 * (sent as u64 + 1), 0, 0]);
    let flows = flows(&folder);
    let of = |port: u64| flows.iter().filter(move |flow| number(&flow["dest_port"]) == port);
    assert_eq!((of(4000).count(), of(5000).count(), flows.len()), (8, 8, 16));
    for flow in of(4000) {
        let there = number(&flow["flow"]["pkts_toserver"]);
        let back = number(&flow["flow"]["pkts_toclient"]);
        assert_eq!((there, back), (sent as u64 + 3, sent as u64 + 1), "{flow}");
        let below = number(&flow["bartizan"]["levels"]["xdp"]["pkts_toserver"]);
        assert_eq!(below >= sent as u64 - 4, !offload.is_empty(), "{flow}");
    }
    assert_eq!(counter(&folder, "offload.orphan_pkts"), 0);
}

#[test]
fn records_and_explain_name_the_port() {
    in_namespace(|| {
        let folder = Folder::new();
        let [mut client, _server] = network(1500);
        let [mut trap, _spare] = ends(["x", "y"], 1500);
        let running = start(&folder, 1, "");
        send(&mut client, &datagrams(4000, b"first"));
        assert_eq!(take(&mut trap, 8), 8);
        ends_well(running);
        for flow in flows(&folder) {
            assert_eq!(flow["bartizan"]["egress"], "trap", "{flow}");
            assert_eq!(flow["bartizan"]["allowed_by"], "pfw", "{flow}");
            assert_eq!(flow["bartizan"]["allowed_rule"], 2, "{flow}");
        }
        assert_eq!(flows(&folder).len(), 8);
    });
}

#[test]
fn ports_that_cannot_be_are_refused_with_what_to_do() {
    in_namespace(|| {
        let folder = Folder::new();
        let _ends = network(1500);
        let _others = ends(["x", "y"], 1500);
        folder.write("policy.yaml", REDIRECT.replace("egress: trap", "egress: tarp"));
        let refused = |ports: &str, said: &[&str]| {
            let file = format!(
                "links: [{{name: wan, inline: {{a: a1, b: b1}}}}]\n{ports}policy: policy.yaml\ncache: none\noutputs: {{eve: {{dir: out}}}}\n"
            );
            folder.write("bartizan.yaml", file);
            let mut command = Command::new(PROGRAM);
            let output =
                command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0).output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{text}");
            said.iter().for_each(|part| assert!(text.contains(part), "{part} is not in {text}"));
        };
        refused("ports: [{name: trap, interface: x1}]\n", &["policy.yaml:6", "no port `tarp`", "`trap`"]);
        refused("", &["no port `tarp`", "ports: [{name"]);
        refused("ports: [{name: tarp, interface: b1}]\n", &["bartizan.yaml:2", "`b1` belongs to a link"]);
        refused("ports: [{name: tarp, interface: nothing0}]\n", &["nothing0"]);
        tool("ip", "link set dev x1 mtu 1400");
        refused("ports: [{name: tarp, interface: x1}]\n", &["x1", "1400", "1500"]);
    });
}
