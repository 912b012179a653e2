// SPDX-License-Identifier: Apache-2.0
//! `bartizan ctl replay`: a policy's verdicts for captures and flow records, beside the recorded ones.

use crate::common;

use common::{Ended, Folder, run};
use serde_json::Value;
use std::io::Write;

const OLD: &str = "policies:\n  - {name: web, from: 10.0.0.0/8, to: any, chain: [pfw], pfw: {default: drop, rules: [{allow: udp, to-ports: [53, 80]}]}}\ndefault: {action: drop}\n";
const NEW: &str = "policies:\n  - {name: web, from: 10.0.0.0/8, to: any, chain: [pfw], pfw: {default: drop, rules: [{allow: udp, to-ports: [80, 99]}]}}\ndefault: {action: drop}\n";

/// Three flows of each IP version: to ports 53, 80 and 99.
fn folder() -> Folder {
    let folder = Folder::new();
    let frames: Vec<Vec<u8>> = [(1000, 53), (1001, 80), (1002, 99)]
        .into_iter()
        .map(|(source, destination)| common::udp(false, source, destination, b"hello"))
        .collect();
    folder.write("c.pcap", common::capture(&frames));
    let from = common::address(false, 1).to_string();
    let network = |policy: &str| policy.replace("10.0.0.0/8", &from);
    folder.write("old.yaml", network(OLD));
    folder.write("new.yaml", network(NEW));
    folder.write("staged.yaml", network(NEW).replace("{name: web,", "{name: web, staged: true,"));
    folder.write("deep.yaml", network(NEW).replace("chain: [pfw]", "chain: [pfw, sfw]"));
    folder
}

fn replay(folder: &Folder, arguments: &[&str]) -> Ended {
    run(&folder.0, &[&["ctl", "replay"], arguments].concat())
}

fn told(folder: &Folder, arguments: &[&str]) -> Value {
    let ended = replay(folder, &[arguments, &["--json"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {}", ended.stdout))
}

/// Destination port, verdict before and after, of the flows whose verdict changes.
fn changed(report: &Value) -> Vec<(u64, String, String)> {
    let text = |case: &Value, key: &str| case[key]["verdict"].as_str().unwrap().to_owned();
    let mut all: Vec<_> = report["changed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|case| (case["dest_port"].as_u64().unwrap(), text(case, "before"), text(case, "after")))
        .collect();
    all.sort();
    all
}

/// The flow to port 53 passed and would be refused, that to 99 the other way round.
fn both() -> Vec<(u64, String, String)> {
    let (on, refused) = ("forwarded".to_owned(), "refused".to_owned());
    vec![(53, on.clone(), refused.clone()), (99, refused, on)]
}

#[test]
fn captures_go_through_both_generations() {
    let folder = folder();
    let report = told(&folder, &["--policy", "new.yaml", "--against", "old.yaml", "c.pcap"]);
    assert_eq!(changed(&report), both());
    assert_eq!((&report["all"]["flows"], &report["undecided"]["flows"]), (&3.into(), &0.into()));
    assert_eq!(report["unmatched"], 0);
    let text = replay(&folder, &["--policy", "new.yaml", "--against", "old.yaml", "c.pcap"]).stdout;
    assert!(text.contains("3 flows, 2 change their verdict"), "{text}");
    assert!(text.contains("goes on; would: refused by pfw: pfw_default (policy web)"), "{text}");
    // Nothing to compare with.
    let report = told(&folder, &["--policy", "new.yaml", "c.pcap"]);
    assert_eq!((changed(&report).len(), &report["rows"][0]["before"]), (0, &Value::Null));
    // A staged policy lets everything go on, and says why it would not.
    let report = told(&folder, &["--policy", "staged.yaml", "--against", "old.yaml", "c.pcap"]);
    assert_eq!(changed(&report), [(99, "refused".to_owned(), "forwarded".to_owned())]);
    let staged = report["rows"].as_array().unwrap().iter().find(|row| row["after"]["verdict"] == "staged");
    assert_eq!(staged.unwrap()["after"]["reason"], "pfw_default");
    // The engine decides what records could not.
    let report = told(&folder, &["--policy", "deep.yaml", "--against", "old.yaml", "c.pcap"]);
    assert_eq!(changed(&report), both());
}

#[test]
fn flow_records_are_asked_by_their_headers() {
    let folder = folder();
    let inspected = run(&folder.0, &["inspect", "--policy", "old.yaml", "--ips", "--out", "o", "c.pcap"]);
    assert_eq!(inspected.code, Some(0), "{inspected:?}");
    let report = told(&folder, &["--policy", "new.yaml", "o/eve.json"]);
    assert_eq!(changed(&report), both());
    assert_eq!((&report["all"]["flows"], &report["all"]["packets"]), (&3.into(), &3.into()));
    // Also with compressed records, and with verdicts of the old policy instead of the records'.
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(folder.read("o/eve.json").as_bytes()).unwrap();
    folder.write("eve.json.gz", packed.finish().unwrap());
    let report = told(&folder, &["--policy", "new.yaml", "--against", "old.yaml", "eve.json.gz"]);
    assert_eq!(changed(&report), both());
    // What needs state is not guessed: only what pfw refuses is known.
    let report = told(&folder, &["--policy", "deep.yaml", "o/eve.json"]);
    assert_eq!(changed(&report), [(53, "forwarded".to_owned(), "refused".to_owned())]);
    assert_eq!(report["undecided"]["flows"], 2);
    let by = report["rows"].as_array().unwrap().iter().find_map(|row| row["after"]["by"].as_array());
    assert_eq!(by.unwrap(), &["sfw"]);
    let report = told(&folder, &["--policy", "staged.yaml", "o/eve.json"]);
    assert_eq!(changed(&report), [(99, "refused".to_owned(), "forwarded".to_owned())]);
}

#[test]
fn records_that_cannot_be_read_are_counted_and_policies_that_cannot_be_are_told() {
    let folder = folder();
    let good = r#"{"event_type":"flow","src_ip":"192.0.2.1","src_port":1000,"dest_ip":"192.0.2.2","dest_port":53,"proto":"UDP","flow":{"start":"x","pkts_toserver":1}}"#;
    let long = format!("{{\"event_type\":\"flow\",\"x\":\"{}\"}}", "y".repeat(70_000));
    let lines = [
        good,
        "{\"event_type\":\"alert\"}",
        "{\"event_type\":\"flow\"",
        "",
        &long,
        &good.replace("UDP", "none"),
        &good.replace("192.0.2.2", "2001:db8::1"),
        &good.replace("\"src_port\":1000,", ""),
        &good.replace("\"dest_port\":53", "\"dest_port\":65536"),
        &good.replace("\"proto\"", "\"vlan\":[1,2,3,4],\"proto\""),
        good,
    ];
    folder.write("eve.json", lines.join("\n"));
    let report = told(&folder, &["--policy", "new.yaml", "eve.json"]);
    assert_eq!(report["all"]["flows"], 2, "{report}");
    let unread: u64 =
        report["unread"].as_object().unwrap().values().map(|lines| lines.as_u64().unwrap()).sum();
    assert_eq!((unread, report["unread"].as_object().unwrap().len()), (7, 7), "{report}");
    // A network is in no record.
    let tenants = "tenants: [{name: acme, select: {vni: 7}}]\n";
    folder.write("tenants.yaml", format!("{tenants}{}", folder.read("new.yaml")));
    let report = told(&folder, &["--policy", "tenants.yaml", "eve.json"]);
    assert_eq!(report["undecided"]["flows"], 2);
    let report = told(&folder, &["--policy", "tenants.yaml", "--tenant", "default", "eve.json"]);
    assert_eq!(report["undecided"]["flows"], 0, "{report}");
    for (arguments, code, says) in [
        (&["--policy", "none.yaml", "eve.json"][..], 1, "none.yaml"),
        (&["--policy", "new.yaml", "none.json"], 1, "none.json"),
        (&["eve.json"], 2, "--policy FILE or --device NAME"),
        (&["--policy", "new.yaml", "--device", "edge", "eve.json"], 2, "cannot be used with"),
        (&["--policy", "new.yaml", "--tenant", "none", "eve.json"], 1, "no tenant `none`"),
    ] {
        let ended = replay(&folder, arguments);
        assert!(ended.code == Some(code) && ended.stderr.contains(says), "{arguments:?}: {ended:?}");
    }
}
