// SPDX-License-Identifier: Apache-2.0
//! Every counter of Suricata 8.0.8 is in an event of type `stats`, or on the page that says why it is
//! absent; and all members of `stats` are Suricata's.

use crate::sample;

use bartizan_applayer::protocols::TABLE;
use sample::stage;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// The counters of Suricata 8.0.8, from its own events: over a capture, with and without prevention, and
/// live, with all protocols.
const SURICATA: &str = include_str!("statistics/suricata-8.0.8.txt");

/// Counters that appear with ports, with a setting, or with their first count.
const ELSEWHERE: [&str; 6] = [
    "capture.kernel_packets",
    "capture.kernel_drops",
    "capture.afpacket.send_errors",
    "flow.elephant",
    "flow.elephant_toclient",
    "flow.elephant_toserver",
];

fn names(value: &Value, before: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            let dot = if before.is_empty() { "" } else { "." };
            object.iter().for_each(|(key, value)| names(value, &format!("{before}{dot}{key}"), into));
        }
        _ => _ = into.insert(before.to_owned()),
    }
}

/// The names of the table's first column.
fn on_the_page() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/statistics.md");
    let text = std::fs::read_to_string(page).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|line| line.split('|').nth(1).unwrap());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned)).collect()
}

fn fits(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((before, after)) => {
            let rest = name.strip_prefix(before);
            rest.is_some_and(|rest| {
                (0..=rest.len()).any(|at| rest.get(at..).is_some_and(|end| fits(end, after)))
            })
        }
    }
}

/// A counter of a protocol without a parser, under the common name of all such.
fn of_unparsed(name: &str) -> Option<String> {
    let mut parts: Vec<&str> = name.split('.').collect();
    let ["app_layer", "flow" | "tx" | "error", protocol, ..] = parts.as_slice() else { return None };
    let plain = protocol.strip_suffix("_tcp").or_else(|| protocol.strip_suffix("_udp")).unwrap_or(protocol);
    let parsed = TABLE.iter().any(|spec| spec.name == plain);
    parts[2] = "PROTO";
    (!parsed).then(|| parts.join("."))
}

#[test]
fn every_counter_of_suricata_is_there_or_named() {
    let folder = stage("statistics");
    folder.write("all.rules", "alert tcp any any -> any any (msg:\"a\"; sid:1;)\n");
    let ran = folder.run(&[
        "inspect",
        "--ips",
        "--rules",
        "all.rules",
        "--set",
        "stats.stream-events=yes",
        "--set",
        "outputs.1.eve-log.enabled=yes",
        "--set",
        "outputs.1.eve-log.filename=eve.json",
        "--set",
        "outputs.1.eve-log.types.0=stats",
        "--out",
        "o",
        "c.pcap",
    ]);
    assert!(ran.stderr().is_empty() || ran.code() == 0, "{}", ran.stderr());
    let event = folder.events("o", "stats").pop().expect("an event of statistics");
    let (mut ours, theirs) = (BTreeSet::new(), SURICATA.lines().collect::<BTreeSet<_>>());
    names(&event["stats"], "", &mut ours);
    let foreign: Vec<_> = ours.iter().filter(|name| !theirs.contains(name.as_str())).collect();
    assert!(foreign.is_empty(), "Suricata has no such counters: {foreign:?}");

    let patterns = on_the_page();
    let mut used = BTreeSet::new();
    let mut unnamed = Vec::new();
    for name in theirs.iter().filter(|name| !ours.contains(**name) && !ELSEWHERE.contains(name)) {
        let found: Vec<_> = match of_unparsed(name) {
            Some(name) => patterns.iter().filter(|p| p.contains("PROTO") && fits(&name, p)).collect(),
            None => patterns.iter().filter(|p| fits(name, p)).collect(),
        };
        if found.is_empty() {
            unnamed.push(*name);
        }
        used.extend(found);
    }
    assert!(unnamed.is_empty(), "neither counted nor on docs/statistics.md: {unnamed:?}");
    let idle: Vec<_> = patterns.iter().filter(|pattern| !used.contains(pattern)).collect();
    assert!(idle.is_empty(), "docs/statistics.md names what is counted, or what is no counter: {idle:?}");
}

#[test]
fn the_fullest_bound_is_told() {
    let folder = stage("pressure");
    // The first bytes of a stream fill most of a small memory.
    let ran =
        folder.run(&["inspect", "--rules", "web.rules", "--set", "flow.memcap=64kb", "--out", "o", "c.pcap"]);
    assert!(matches!(ran.code(), 0 | 3), "{}", ran.stderr());
    let stats: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("o/stats.json")).unwrap()).unwrap();
    let (now, most) = (&stats["memcap.pressure"], &stats["memcap.pressure_max"]);
    let (now, most) = (now.as_u64().expect("a number"), most.as_u64().expect("a number"));
    assert!(most >= now && most > 0 && most <= 100, "{now} {most}");
}
