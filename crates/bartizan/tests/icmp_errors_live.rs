// SPDX-License-Identifier: Apache-2.0
//! An ICMP error decides for itself, never for the flow that it quotes: `bartizan run` inline, without a
//! level below and with XDP, in network namespaces of their own (needs root; without, it prints so and
//! returns). Rules and packet filters pass and drop errors about flows of UDP and TCP over both IP versions;
//! the flows go on, are inspected, and are not handed to the level.

use crate::common::{Folder, PROGRAM, Running, get, value};
use crate::level::exchange::Exchange;
use crate::level::{beside_each_other, ends_well, gone_below};

use bartizan_testkit::hosts::{ethernet, ip, tcp, udp};
use bartizan_testkit_worker::events;
use serde_json::Value;
use std::process::Command;

const EVIL: &str = "drop ip any any -> any any (msg:\"evil\"; content:\"evil\"; sid:1;)\n\
    pass udp any any -> any 4000 (msg:\"known\"; bypass; sid:2;)\n";

/// The function that judges errors, and whether they pass.
struct Way {
    chain: &'static str,
    rule: &'static str,
    passes: bool,
}

const WAYS: [Way; 4] = [
    Way { chain: "[ids]", rule: "pass icmp any any -> any any (sid:9;)\n", passes: true },
    Way { chain: "[ids]", rule: "drop icmp any any -> any any (sid:9;)\n", passes: false },
    Way {
        chain: "[pfw, ids], pfw: {default: allow, rules: [{allow: [icmp, icmpv6]}]}",
        rule: "",
        passes: true,
    },
    Way {
        chain: "[pfw, ids], pfw: {default: allow, rules: [{drop: [icmp, icmpv6]}]}",
        rule: "",
        // A packet filter judges an error as a packet of the flow that it quotes.
        passes: true,
    },
];

/// Type and code of errors that quote the flow.
const KINDS: [[(u8, u8); 2]; 2] = [[(3, 3), (11, 0)], [(1, 4), (3, 0)]];
const CLIENT: u8 = 1;
const SERVER: u8 = 2;
const ROUTER: u8 = 9;

/// A flow and the error about it.
#[derive(Clone, Copy)]
struct Flow {
    v6: bool,
    tcp: bool,
    port: u16,
    kind: (u8, u8),
}

impl Flow {
    /// All flows of a run.
    fn all() -> Vec<Flow> {
        let mut flows = Vec::new();
        for v6 in [false, true] {
            for tcp in [false, true] {
                for kind in KINDS[usize::from(v6)] {
                    flows.push(Flow { v6, tcp, port: 10_000 + flows.len() as u16, kind });
                }
            }
        }
        flows
    }

    /// A packet of the client or the server. `numbers`: of TCP.
    fn packet(&self, by_client: bool, numbers: (u32, u32), flags: u8, load: &[u8]) -> Vec<u8> {
        let (ends, ports) = match by_client {
            true => ((CLIENT, SERVER), (self.port, 80)),
            false => ((SERVER, CLIENT), (80, self.port)),
        };
        match self.tcp {
            true => ip(self.v6, ends, 6, &tcp(ports, numbers.0, numbers.1, flags, load)),
            false => ip(self.v6, ends, 17, &udp(ports, load)),
        }
    }

    /// An error of a router about a packet of the client.
    fn error(&self, about: &[u8]) -> Vec<u8> {
        let quoted = &about[..about.len().min(64)];
        let message = [&[self.kind.0, self.kind.1, 0, 0, 0, 0, 0, 0], quoted].concat();
        ethernet(self.v6, &ip(self.v6, (ROUTER, CLIENT), if self.v6 { 58 } else { 1 }, &message))
    }

    /// The flow begins, an error about it comes, and it goes on.
    fn play(&self, link: &mut Exchange, error_passes: bool) {
        let what = format!("IPv6 {}, TCP {}, error {:?}", self.v6, self.tcp, self.kind);
        let mut pass = |by_client: bool, numbers, flags, load: &[u8]| {
            let packet = self.packet(by_client, numbers, flags, load);
            assert!(link.passes(by_client, &ethernet(self.v6, &packet)), "{what}: {load:?}");
            packet
        };
        let first = match self.tcp {
            // Before the answer of the server.
            true => pass(true, (100, 0), 2, b""),
            false => pass(true, (0, 0), 0, b"good"),
        };
        assert_eq!(link.passes(false, &self.error(&first)), error_passes, "{what}: the error");
        let mut pass = |by_client: bool, numbers, flags, load: &[u8]| {
            let packet = self.packet(by_client, numbers, flags, load);
            assert!(link.passes(by_client, &ethernet(self.v6, &packet)), "{what}: {load:?}");
        };
        if self.tcp {
            pass(false, (500, 101), 18, b"");
            pass(true, (101, 501), 16, b"");
        }
        for n in 0..4 {
            pass(true, (101 + 4 * n, 501 + 4 * n), 24, b"good");
            pass(false, (501 + 4 * n, 105 + 4 * n), 24, b"good");
        }
    }
}

fn run(folder: &Folder, way: &Way, xdp: bool) -> Running {
    let level = if xdp { ", offload: {level: xdp, entries: 1024}" } else { "" };
    folder.write(
        "bartizan.yaml",
        format!(
            "links: [{{name: wan, inline: {{a: a1, b: b1{level}}}, workers: 1}}]\npolicy: policy.yaml\ncache: none\n\
             outputs: {{eve: {{dir: out}}}}\nmetrics: {{listen: '127.0.0.1:9100'}}\n"
        ),
    );
    folder.write(
        "policy.yaml",
        format!(
            "policies: [{{name: all, from: any, to: any, chain: {}, ids: {{rules: [local.rules]}}}}]\ndefault: {{action: drop}}\n",
            way.chain
        ),
    );
    folder.write("local.rules", format!("{EVIL}{}", way.rule));
    let mut command = Command::new(PROGRAM);
    let running = Running::start(command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
    running.until("running on");
    running
}

#[test]
fn an_icmp_error_decides_for_itself_and_not_for_the_flow_that_it_quotes() {
    let ways = WAYS.iter().flat_map(|way| [(way, false), (way, true)]);
    beside_each_other(ways, |(way, xdp)| {
        let folder = Folder::new();
        let mut link = Exchange::new();
        let running = run(&folder, way, xdp);
        let flows = Flow::all();
        flows.iter().for_each(|flow| flow.play(&mut link, way.passes));
        if xdp {
            // One that is decided goes down; none of those that errors quote has.
            let known = ethernet(false, &ip(false, (CLIENT, SERVER), 17, &udp((9_000, 4_000), b"known")));
            (0..2).for_each(|_| assert!(link.passes(true, &known)));
            gone_below(1);
            assert_eq!(value(&get("/metrics"), "bartizan_stats", &["name=\"offload.entries\""]), 1);
        }
        for flow in &flows {
            let evil = flow.packet(true, (117, 517), 24, b"evil");
            assert!(!link.passes(true, &ethernet(flow.v6, &evil)), "{}: port {}", way.chain, flow.port);
        }
        ends_well(running);
        let events = events::read(&folder.path("out/eve.json"));
        for flow in flows {
            let is_of = |e: &&Value| {
                e["event_type"] == "alert" && e["alert"]["signature_id"] == 1 && e["src_port"] == flow.port
            };
            let alerts: Vec<_> = events.iter().filter(is_of).collect();
            assert_eq!(alerts.len(), 1, "{}: port {}", way.chain, flow.port);
            let record =
                events.iter().find(|e| e["event_type"] == "flow" && e["src_port"] == flow.port).unwrap();
            assert_eq!(record["flow_id"], alerts[0]["flow_id"]);
            assert_ne!(record["flow"]["action"], "pass", "{record}");
        }
    });
}
