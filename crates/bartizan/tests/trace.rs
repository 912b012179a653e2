// SPDX-License-Identifier: Apache-2.0
//! `ctl trace` on running workers: it reports what `explain rule` reports for the same packets, ends as it
//! should, and is refused with the reason (needs root; without, it prints so and returns).

use crate::command_socket;
use crate::common;
use crate::namespace;
use crate::sample;

use bartizan_ports::{InlineOptions, InlinePort, Port};
use bartizan_testkit::capture::read;
use command_socket::{Client, ctl, ready};
use common::{Folder, PROGRAM, Running, run, udp, until};
use namespace::{in_namespace, ip, veth};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Command;
use std::thread::JoinHandle;

/// A rule that shares a sid, one that is left out, and the rule for `explain rule`.
const MORE: &str = "\
alert udp any any -> any 4000 (msg:\"seen\"; content:\"secret\"; sid:6;)
alert udp any any -> any 4001 (msg:\"other\"; gid:5; sid:6;)
alert udp any any -> any any (msg:\"left out\"; asn1:oversize_length 10; sid:8;)
";

/// A tap on one end of a pair; the other end.
fn tap(folder: &Folder, more: &[&str]) -> (Running, InlinePort) {
    ip("link set dev lo up");
    veth("a0", "a1", 1500);
    let port = InlinePort::open("a0", &InlineOptions::default()).unwrap();
    let unchecked = ["--control", "c.socket", "--set", "capture.checksum-validation=none"];
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--tap", "a1", "--cache", "none", "--out", "out"]).args(unchecked).args(more);
    let running = Running::start(command.current_dir(&folder.0));
    ready(folder, &running);
    (running, port)
}

fn send(to: &mut InlinePort, frames: &[Vec<u8>]) {
    frames.iter().for_each(|frame| to.transmit_frame(frame).unwrap());
    to.flush().unwrap();
}

/// Begins a trace.
fn begin(folder: &Folder, arguments: Value) -> JoinHandle<(bool, Value)> {
    let path = folder.path("c.socket");
    std::thread::spawn(move || Client::greeted(&path).ask("trace", arguments))
}

/// Waits until workers have begun with so many traces.
fn begun(client: &mut Client, traces: u64) {
    until("the traces", || client.ok("control-stats", Value::Null)["traces_now"] == traces);
    // Workers answer one question after the other.
    assert_eq!(client.ok("function-list", Value::Null)["late_workers"], json!([]));
}

/// Attempts without the members that differ between captures and live traffic.
fn attempts(trace: &Value) -> Vec<String> {
    let strip = |attempt: &Value| {
        let own = ["packet", "timestamp", "worker", "generation", "flow_id", "rule"];
        let members = attempt.as_object().unwrap().iter().filter(|(name, _)| !own.contains(&name.as_str()));
        json!(members.collect::<BTreeMap<_, _>>()).to_string()
    };
    let mut all: Vec<String> = trace["best"].as_array().unwrap().iter().map(strip).collect();
    all.sort();
    all
}

#[test]
fn a_trace_says_what_explain_rule_says_of_the_same_packets() {
    for workers in ["1", "2"] {
        in_namespace(move || {
            let folder = Folder::new();
            // One that drops would end the alerts of others, which `explain rule` runs alone.
            folder.write("web.rules", sample::RULES.replace("drop http", "alert http"));
            folder.write("c.pcap", sample::sample());
            let (running, mut port) = tap(&folder, &["--rules", "web.rules", "--workers", workers]);
            let mut client = Client::greeted(&folder.path("c.socket"));
            let sids = ["1", "3", "4", "5"];
            let traces = sids.map(|sid| {
                begin(&folder, json!({"rule": sid, "seconds": 3, "packets": 10_000, "attempts": 10_000}))
            });
            begun(&mut client, 4);
            let why = client.refused("trace", json!({"rule": 2}));
            assert!(why.contains("4 rules are already traced"), "{why}");
            send(&mut port, &read(&sample::sample()).into_iter().map(|(_, frame)| frame).collect::<Vec<_>>());
            for (sid, trace) in sids.iter().zip(traces) {
                let (is_ok, answer) = trace.join().unwrap();
                assert!(is_ok, "{answer}");
                let explained = run(
                    &folder.0,
                    &[
                        "explain",
                        "rule",
                        sid,
                        "--rules",
                        "web.rules",
                        "--attempts",
                        "10000",
                        "--json",
                        "c.pcap",
                    ],
                );
                let explained: Value = serde_json::from_str(&explained.stdout).unwrap();
                let (live, over) = (&answer["trace"], &explained["trace"]);
                for count in ["attempts", "matched", "alerts", "first_false"] {
                    assert_eq!(live[count], over[count], "sid {sid}, {count}: {answer}");
                }
                assert!(live["attempts"].as_u64().unwrap() > 5, "{answer}");
                assert_eq!(attempts(live), attempts(over), "sid {sid}");
                assert_eq!((&answer["ended"], &answer["lost"]), (&json!("time"), &json!(0)));
                assert_eq!((&answer["generations"], &answer["late_workers"]), (&json!([1]), &json!([])));
            }
            let counted = client.ok("control-stats", Value::Null);
            assert_eq!((&counted["traces"], &counted["traces_refused"]), (&json!(4), &json!(1)), "{counted}");
            // Detection goes on as ever.
            let alerts = client.ok("dump-counters", Value::Null)["detect"]["alert"].clone();
            send(&mut port, &read(&sample::sample()).into_iter().map(|(_, f)| f).take(1).collect::<Vec<_>>());
            until("one more alert", || client.ok("dump-counters", Value::Null)["detect"]["alert"] != alerts);
            assert_eq!(running.stop().code, Some(0));
        });
    }
}

#[test]
fn a_trace_ends_with_its_packets_its_client_or_its_rule() {
    in_namespace(|| {
        let folder = Folder::new();
        folder.write("local.rules", MORE);
        let (running, mut port) = tap(&folder, &["--rules", "local.rules", "--workers", "2"]);
        let mut client = Client::greeted(&folder.path("c.socket"));
        let frames: Vec<Vec<u8>> = (0..8u16).map(|n| udp(false, 1000 + n, 4000, b"secret")).collect();

        let trace =
            begin(&folder, json!({"rule": "1:6", "packets": 3, "flow": "udp 192.0.2.1:1004 192.0.2.2"}));
        begun(&mut client, 1);
        send(&mut port, &frames);
        // Only the fifth belongs to the flow.
        send(&mut port, &[frames[4].clone(), frames[4].clone(), frames[4].clone()]);
        let (is_ok, answer) = trace.join().unwrap();
        assert!(is_ok && answer["ended"] == "packets", "{answer}");
        let counts = ["packets", "fitting"].map(|count| answer[count].as_u64().unwrap());
        assert_eq!((counts, &answer["trace"]["alerts"]), ([3, 3], &json!(3)), "{answer}");
        assert_eq!(answer["trace"]["best"][0]["rule"], "1:6:0");
        assert_eq!(answer["trace"]["best"].as_array().unwrap().len(), 3);

        // A client that goes, with others that stay.
        let mut leaves = Client::greeted(&folder.path("c.socket"));
        leaves.send(b"{\"command\": \"trace\", \"arguments\": {\"rule\": \"1:6\"}}\n");
        begun(&mut client, 1);
        drop(leaves);
        until("the end of its trace", || client.ok("control-stats", Value::Null)["traces_now"] == 0);

        // The rule stays in a new generation, and goes in the next one.
        let stays = begin(&folder, json!({"rule": "1:6", "packets": 2}));
        let goes = begin(&folder, json!({"rule": "5:6", "packets": 2}));
        begun(&mut client, 2);
        send(&mut port, &frames[..1]);
        until("a packet", || client.ok("iface-stat", json!({"iface": "a1"}))["pkts"] == 12);
        folder.write("local.rules", MORE.lines().next().unwrap());
        assert_eq!(client.refused("reload-rules", Value::Null).matches("would be removed").count(), 1);
        folder.write("local.rules", MORE.replace("gid:5; sid:6", "gid:5; sid:7"));
        assert_eq!(client.ok("reload-rules", Value::Null), "done");
        let (is_ok, answer) = goes.join().unwrap();
        assert!(is_ok && answer["ended"] == "rule_gone", "{answer}");
        let reason = answer["reason"].as_str().unwrap();
        assert_eq!(
            reason,
            "generation 2 does not have the rule: no rule with sid 5:6 among the 2 in force; the nearest is 6"
        );
        send(&mut port, &frames[..1]);
        let (is_ok, answer) = stays.join().unwrap();
        assert!(is_ok && answer["ended"] == "packets", "{answer}");
        assert_eq!(answer["generations"], json!([1, 2]));
        let seen = |n: usize| answer["trace"]["best"][n]["generation"].clone();
        assert_eq!([seen(0), seen(1)], [1, 2], "{answer}");

        // The end of the program is the end of the trace.
        let last = begin(&folder, json!({"rule": "1:6", "seconds": 600}));
        begun(&mut client, 1);
        assert_eq!(running.stop().code, Some(0));
        let (_, answer) = last.join().unwrap();
        assert_eq!(answer["ended"], "shutdown", "{answer}");
    });
}

#[test]
fn what_cannot_be_traced_is_refused_with_the_reason() {
    in_namespace(|| {
        let folder = Folder::new();
        folder.write("local.rules", MORE);
        let (running, mut port) = tap(&folder, &["--rules", "local.rules"]);
        let mut client = Client::greeted(&folder.path("c.socket"));
        for (rule, says) in [
            (json!("9"), "no rule with sid 9 among the 2 in force; the nearest is 6"),
            (json!("6"), "several rules have this sid: 1:6, 5:6; name one of them as gid:sid"),
            (json!("5:8"), "no rule with sid 5:8 among the 2 in force"),
            (json!(8), "rule 8 is not in force, because it was skipped when it was loaded: local.rules:3:"),
        ] {
            let why = client.refused("trace", json!({"rule": rule}));
            assert!(why.contains(says), "{why}");
        }
        let why = client.refused("trace", json!({"rule": "1:6", "tenant": "red"}));
        assert!(why.contains("there is no tenant `red`: this run has no policy with tenants"), "{why}");

        let ended = ctl(&folder, &["trace", "9"]);
        assert!(ended.code == Some(1) && ended.stderr.contains("the nearest is 6"), "{ended:?}");
        let ended = ctl(&folder, &["trace", "6", "--packets", "0"]);
        assert!(ended.code == Some(2) && ended.stderr.contains("--packets"), "{ended:?}");
        let ended = ctl(&folder, &["trace", "1:6", "--seconds", "1"]);
        assert!(
            ended.code == Some(0)
                && ended.stdout.contains("ended: 1 seconds are over")
                && ended.stdout.contains("the rule was evaluated on no packet"),
            "{ended:?}"
        );
        // As text for people, with the values found.
        let shown = std::thread::scope(|scope| {
            let folder = &folder;
            let shown = scope.spawn(|| ctl(folder, &["trace", "1:6", "--packets", "1"]));
            begun(&mut client, 1);
            send(&mut port, &[udp(true, 1000, 4002, b"secret"), udp(true, 1000, 4000, b"public")]);
            shown.join().unwrap()
        });
        for part in [
            "[1:6:0] seen\n",
            "1 of them match the rule's header; ended: the requested number of packets has matched the rule's header\n",
            "       1 times the first false condition: 3 head: addresses and ports\n",
            "FALSE payload: contains \"secret\" [6 bytes: \"public\"]\n",
        ] {
            assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
        }
        assert_eq!(running.stop().code, Some(0));
    });
}

#[test]
fn a_trace_follows_the_rule_sets_of_policies_and_the_tenant() {
    in_namespace(|| {
        let folder = Folder::new();
        folder.write(
            "a.rules",
            "alert udp any any -> any any (msg:\"of a\"; content:\"secret\"; sid:6; rev:1;)\n",
        );
        folder.write(
            "b.rules",
            "alert udp any any -> any any (msg:\"of b\"; content:\"public\"; sid:6; rev:2;)\n",
        );
        folder.write(
            "p.yaml",
            "tenants: [{name: red, select: {prefixes: [192.0.2.0/24]}}, {name: blue, select: {prefixes: [\"2001:db8::/32\"]}}]\n\
             policies:\n\
             - {name: a, tenant: red, chain: [ids], ids: {rules: [a.rules]}}\n\
             - {name: b, tenant: blue, staged: true, chain: [ids], ids: {rules: [b.rules], mode: detect}}\n\
             default: {action: allow}\n",
        );
        let (running, mut port) = tap(&folder, &["--policy", "p.yaml"]);
        let mut client = Client::greeted(&folder.path("c.socket"));
        let frames = [udp(false, 1000, 4000, b"secret"), udp(true, 1000, 4000, b"secret")];
        let both = begin(&folder, json!({"rule": 6, "packets": 2}));
        let red = begin(&folder, json!({"rule": 6, "packets": 1, "tenant": "red"}));
        begun(&mut client, 2);
        send(&mut port, &[frames[1].clone(), frames[0].clone()]);
        let (_, answer) = both.join().unwrap();
        assert_eq!(
            answer["rules"],
            json!([{"rule": "1:6:1", "message": "of a"}, {"rule": "1:6:2", "message": "of b"}])
        );
        let best = answer["trace"]["best"].as_array().unwrap();
        let seen: Vec<_> =
            best.iter().map(|a| (a["rule"].as_str().unwrap(), a["matched"].as_bool().unwrap())).collect();
        assert_eq!(seen, [("1:6:1", true), ("1:6:2", false)], "{answer}");
        let (_, answer) = red.join().unwrap();
        assert_eq!((&answer["packets"], &answer["trace"]["matched"]), (&json!(1), &json!(1)), "{answer}");
        let why = client.refused("trace", json!({"rule": 6, "tenant": "rad"}));
        assert!(why.contains("there is no tenant `rad`; did you mean `red`?"), "{why}");
        assert_eq!(running.stop().code, Some(0));
    });
}
