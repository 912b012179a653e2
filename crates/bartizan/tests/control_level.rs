// SPDX-License-Identifier: Apache-2.0
//! Explanations of live flows on a link with the XDP level: for flows below, since when and by which
//! function's verdict; for others, the reason that keeps them at the host; also while the answer takes many
//! parts of the flow table (needs root; without, it prints so and returns).

use crate::command_socket;
use crate::common;
use crate::level;
use crate::namespace;

use bartizan_testkit::packet;
use command_socket::{Client, ctl, ready};
use common::{Folder, PROGRAM, Running, address, udp};
use level::{datagrams, ends_well, network, send, take};
use namespace::in_namespace;
use serde_json::{Value, json};
use std::process::Command;
use std::time::{Duration, Instant};

const SYN: u8 = 2;
const PSH: u8 = 8;
const ACK: u8 = 16;
const POLICY: &str = "policies: [{name: all, from: any, to: any, chain: [pfw, ids], pfw: {default: allow}, ids: {rules: [local.rules]}}]\ndefault: {action: drop}\n";
const RULES: &str = "\
drop udp any any -> any 666 (msg:\"no\"; sid:1;)
pass udp any any -> any 4000 (msg:\"known\"; bypass; sid:2;)
pass tcp any any -> any 8080 (msg:\"known\"; content:\"trusted\"; bypass; sid:3;)
";

fn start(folder: &Folder, workers: u16) -> Running {
    folder.write("policy.yaml", POLICY);
    folder.write("local.rules", RULES);
    folder.write(
        "bartizan.yaml",
        format!(
            "links: [{{name: wan, inline: {{a: a1, b: b1, offload: {{level: xdp, entries: 1024, stale: 30s}}}}, workers: {workers}}}]\n\
             policy: policy.yaml\ncache: none\noutputs: {{eve: {{dir: out}}}}\ncontrol: {{socket: c.socket}}\n"
        ),
    );
    let mut command = Command::new(PROGRAM);
    let running = Running::start(command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
    ready(folder, &running);
    running
}

/// The flow of a port, once `holds` is true of its explanation.
fn explained(client: &mut Client, flow: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let mut answer = client.ok("explain-flow", json!({"flow": flow}));
        let flow = answer["flows"][0].take();
        if holds(&flow) {
            return flow;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{flow} {answer}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn live_flows_say_where_they_are_and_why_not_lower() {
    for workers in [1, 2] {
        in_namespace(move || levels(workers));
    }
}

fn levels(workers: u16) {
    let folder = Folder::new();
    let [mut client, mut server] = network(1500);
    let running = start(&folder, workers);
    let mut asks = Client::greeted(&folder.path("c.socket"));
    // Bypassed by a rule, refused by one, and judged by functions that are still there.
    for (port, arrives) in [(4000, 8), (666, 0), (53, 8)] {
        for _ in 0..3 {
            send(&mut client, &datagrams(port, b"first"));
            assert_eq!(take(&mut server, arrives), arrives, "{port}");
            std::thread::sleep(Duration::from_millis(150));
        }
    }
    let below = explained(&mut asks, "192.0.2.1:40001 192.0.2.2:4000", |flow| flow["level"] == "xdp");
    send(&mut client, &datagrams(4000, b"more"));
    assert_eq!(take(&mut server, 8), 8);
    let of = |flow: &Value, level: &str| flow["levels"][level]["pkts_toserver"].as_u64().unwrap_or(0);
    // What the level has counted the worker reads some time later.
    let all = |flow: &Value| of(flow, "host") + of(flow, "xdp") == 4;
    let below_now = explained(&mut asks, "192.0.2.1:40001 192.0.2.2:4000", all);
    assert!(of(&below_now, "xdp") >= 1, "{below_now}");
    assert_eq!(
        (&below["link"], &below["policy"], &below["course"]),
        (&json!("wan"), &json!("all"), &json!("bypassed"))
    );
    assert_eq!((&below["chain"], &below["path"]), (&json!(["pfw", "ids"]), &json!([])), "{below}");
    assert_eq!((&below["allowed"]["function"], &below["step"]), (&json!("ids"), &json!("active")));
    assert!(
        below["since"].as_f64() > below["start"].as_f64() && below["since"].as_f64() <= below["now"].as_f64()
    );
    assert_eq!((&below["since"], &below["stays"]), (&below_now["since"], &Value::Null));
    let refused =
        explained(&mut asks, "udp [2001:db8::1]:40000 [2001:db8::2]:666", |flow| flow["level"] == "xdp");
    let by = &refused["refused"];
    assert_eq!(
        (&refused["course"], &by["function"], &by["verdict"]),
        (&json!("refused"), &json!("ids"), &json!("drop"))
    );
    assert!(by["rule"] == 1 && !by["meaning"].as_str().unwrap().is_empty(), "{refused}");

    let judged = explained(&mut asks, "udp 192.0.2.1:40001 192.0.2.2:53", |flow| flow["level"] == "host");
    assert_eq!(
        (&judged["stays"]["code"], &judged["course"]),
        (&json!("judged"), &json!("judged")),
        "{judged}"
    );
    assert_eq!(judged["path"], json!(["ids"]));

    let now = asks.ok("levels", Value::Null);
    assert_eq!((&now["flows"], &now["levels"]), (&json!(24), &json!({"host": 8, "xdp": 16})), "{now}");
    assert_eq!((&now["stays"]["judged"]["flows"], &now["moving"]), (&json!(8), &json!(0)), "{now}");
    let stat = asks.ok("iface-stat", json!({"iface": "a1"}));
    assert!(stat["bypassed"].as_u64() >= Some(8), "{stat}");
    let shown = ctl(&folder, &["explain-flow", "192.0.2.1:40001", "192.0.2.2:4000"]).stdout;
    assert!(shown.contains("\nlevel     xdp for ") && shown.contains("allowed by ids, rule 2"), "{shown}");

    // Another generation takes it up, and says so.
    asks.ok("reload-rules", Value::Null);
    let at_once = asks.ok("explain-flow", json!({"flow": "192.0.2.1:40001 192.0.2.2:4000"}));
    assert_eq!(at_once["flows"][0]["running"], 2, "it runs when it is said to be done");
    let up = explained(&mut asks, "192.0.2.1:40001 192.0.2.2:4000", |flow| flow["step"] == "back");
    assert_eq!(
        (&up["running"], &up["generation"], &up["level"]),
        (&json!(2), &json!(1), &json!("host")),
        "{up}"
    );
    assert!(up["since"].as_f64() > below["since"].as_f64(), "{up}");
    ends_well(running);
}

/// Traffic and requests at the same time: each request has its answer, each packet arrives.
#[test]
fn many_flows_are_told_of_while_traffic_goes_on() {
    in_namespace(|| {
        let folder = Folder::new();
        let [mut client, mut server] = network(1500);
        let running = start(&folder, 2);
        let path = folder.path("c.socket");
        let (first, last) = (10_000u16, 13_000u16);
        let mut flows = (first..last).map(|port| udp(false, port, 53, b"x")).peekable();
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let mut client = Client::greeted(&path);
                (0..20).map(|_| client.ok("levels", Value::Null)["flows"].as_u64().unwrap()).max()
            });
            while flows.peek().is_some() {
                let some: Vec<_> = flows.by_ref().take(50).collect();
                send(&mut client, &some);
                assert_eq!(take(&mut server, some.len()), some.len());
            }
            assert!(asking.join().unwrap() <= Some((last - first).into()));
        });
        let mut asks = Client::greeted(&path);
        let now = asks.ok("levels", Value::Null);
        assert_eq!((&now["flows"], &now["late_workers"]), (&json!(last - first), &json!([])), "{now}");
        let all = asks.ok("explain-flow", json!({"flow": "udp 192.0.2.2:53"}));
        let told = all["flows"].as_array().unwrap().len() as u64;
        assert!((32..=64).contains(&told) && all["count"] == last - first, "{told} {}", all["count"]);
        assert_eq!(all["omitted"].as_u64(), Some(u64::from(last - first) - told));
        assert_eq!(asks.ok("explain-flow", json!({"flow": "192.0.2.1:12999"}))["count"], 1);
        ends_well(running);
    });
}

/// A connection that a rule lets pass after some payload: explained at the host, and then below, with the
/// counts of both levels.
#[test]
fn a_connection_is_told_of_at_the_host_and_below() {
    in_namespace(|| {
        let folder = Folder::new();
        let [mut client, mut server] = network(1500);
        let running = start(&folder, 1);
        let mut asks = Client::greeted(&folder.path("c.socket"));
        let (from, to) = ((address(false, 1), 40_000), (address(false, 2), 8080));
        let mut goes = |to_server: bool, numbers: (u32, u32), flags: u8, load: &[u8]| {
            let (a, b) = if to_server { (from, to) } else { (to, from) };
            let (out, into) = if to_server { (&mut client, &mut server) } else { (&mut server, &mut client) };
            send(out, &[packet::tcp(a, b, numbers, flags, load).frame()]);
            assert_eq!(take(into, 1), 1, "{numbers:?} {flags}");
        };
        let flow = "tcp 192.0.2.1:40000 192.0.2.2:8080";
        goes(true, (100, 0), SYN, b"");
        goes(false, (900, 101), SYN | ACK, b"");
        goes(true, (101, 901), ACK, b"");
        let open = explained(&mut asks, flow, |flow| flow["tcp"] == "established");
        assert_eq!((&open["level"], &open["stays"]["code"]), (&json!("host"), &json!("judged")), "{open}");
        goes(true, (101, 901), PSH | ACK, b"trusted");
        goes(false, (901, 108), ACK, b"");
        for number in 0..4 {
            goes(true, (108 + 4 * number, 901), PSH | ACK, b"more");
            goes(false, (901, 112 + 4 * number), ACK, b"");
        }
        let below = explained(&mut asks, flow, |flow| flow["level"] == "xdp");
        assert_eq!((&below["course"], &below["allowed"]["rule"]), (&json!("bypassed"), &json!(3)), "{below}");
        goes(true, (124, 901), PSH | ACK, b"more");
        goes(false, (901, 128), ACK, b"");
        let of = |flow: &Value, level: &str, direction: &str| {
            flow["levels"][level][format!("pkts_{direction}")].as_u64().unwrap_or(0)
        };
        let all = |flow: &Value, direction: &str| of(flow, "host", direction) + of(flow, "xdp", direction);
        let told =
            explained(&mut asks, flow, |flow| all(flow, "toserver") == 8 && all(flow, "toclient") == 7);
        assert!(of(&told, "xdp", "toserver") >= 1 && of(&told, "xdp", "toclient") >= 1, "{told}");
        let stats = asks.ok("get-flow-stats-by-id", json!({"flow_id": told["flow_id"]}));
        assert_eq!((&stats["pkts_toserver"], &stats["pkts_toclient"]), (&json!(8), &json!(7)), "{stats}");
        ends_well(running);
    });
}
