// SPDX-License-Identifier: Apache-2.0
//! Every kind of record against lines that Suricata 8.0.8 wrote: the record is rebuilt from the line,
//! written, and must give the same bytes; this compares names, types, presence, order and escapes.
//!
//! `EVE_REFERENCE=DIR` compares all lines of all `eve.json` files below DIR as well.

use crate::rebuild;

use rebuild::rewrite;
use std::collections::BTreeMap;
use std::path::Path;

/// Rewrites lines; returns the number of equal ones by type, and the differences.
fn compare(lines: &str) -> (BTreeMap<String, usize>, Vec<String>) {
    let (mut same, mut faults) = (BTreeMap::new(), Vec::new());
    // Two kinds of lines are left out: those with more than a second's worth of microseconds, which a broken
    // capture has (here the clock carries over), and those with a memory counter below zero.
    let wanted =
        |line: &&str| !line.is_empty() && !line.contains(".1011041+0000") && !line.contains(r#""memuse":-"#);
    for line in lines.lines().filter(wanted) {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        let kind = event["event_type"].as_str().unwrap().to_owned();
        let text = rewrite(&event);
        let written: serde_json::Value = serde_json::from_str(&text).unwrap();
        if let Err(wrong) = bartizan_events::schema::check(&written) {
            faults.push(format!("{kind}: {wrong:?}"));
        }
        if written != event {
            faults.push(format!("{kind}: other values\n  is     {text}\n  wanted {line}"));
        } else if text != line {
            faults.push(format!("{kind}: other order or escapes\n  is     {text}\n  wanted {line}"));
        } else {
            *same.entry(kind).or_default() += 1;
        }
    }
    (same, faults)
}

#[test]
fn reference_lines_are_reproduced() {
    let (same, faults) = compare(include_str!("data/reference.jsonl"));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    for (kind, least) in [
        ("flow", 20),
        ("anomaly", 10),
        ("alert", 10),
        ("drop", 5),
        ("fileinfo", 5),
        ("netflow", 5),
        ("packet", 3),
        ("arp", 2),
        ("metadata", 1),
        ("frame", 4),
        ("http", 3),
        ("stats", 1),
    ] {
        assert!(same.get(kind).is_some_and(|count| *count >= least), "{kind}: {same:?}");
    }
}

#[test]
fn own_fields_are_an_object_at_the_end_and_in_the_schema() {
    use bartizan_base::{Fid, Generation, Level, PerDirection, Reason, TenantId, Verdict};
    use bartizan_events::record::{
        BartizanFields, Common, FlowRecord, LevelAmounts, StreamPathFields, WouldBe,
    };
    use bartizan_events::{HeaderOptions, JsonWriter};

    let (mut w, options) = (JsonWriter::new(), HeaderOptions::default());
    let own = BartizanFields {
        tenant: Some(TenantId(7)),
        fid: Some(Fid(12)),
        path: &["pfw", "ids"],
        policy: Some("office"),
        function: Some("pfw"),
        verdict: Some(Verdict::Drop),
        reason: Some(Reason::PfwRule),
        rule: Some(3),
        allowed_by: Some("sfw"),
        allowed_rule: Some(9),
        staged: true,
        generation: Some(Generation(5_000_000_000)),
        level: Some(Level::Host),
        link: Some("uplink"),
        port: Some("eth1"),
        cause: Some("ring_full"),
        frames: Some(42),
        levels: &[LevelAmounts {
            level: Level::Xdp,
            packets: PerDirection::new(5, 6),
            bytes: PerDirection::new(700, 800),
        }],
        stays: Some("full"),
        egress: Some("trap"),
        stream_path: Some(StreamPathFields {
            peer_guest: Some("db"),
            process: 4711,
            executable: Some("/usr/bin/curl"),
            cgroup: Some("/web"),
        }),
        would_be: Some(WouldBe {
            function: Some("ids"),
            verdict: Verdict::Reject,
            reason: Reason::IdsRule,
            rule: Some(4),
        }),
    };
    FlowRecord::default().write(&mut w, &options, &Common { own, ..Common::default() });
    let text = std::str::from_utf8(w.bytes()).unwrap();
    assert!(
        text.ends_with(
            r#","bartizan":{"version":1,"tenant":7,"fid":12,"path":["pfw","ids"],"policy":"office","function":"pfw","verdict":"drop","reason":"pfw_rule","rule":3,"allowed_by":"sfw","allowed_rule":9,"staged":true,"generation":5000000000,"level":"host","link":"uplink","port":"eth1","cause":"ring_full","frames":42,"levels":{"xdp":{"pkts_toserver":5,"pkts_toclient":6,"bytes_toserver":700,"bytes_toclient":800}},"stays":"full","egress":"trap","stream_path":{"pid":4711,"executable":"/usr/bin/curl","cgroup":"/web","peer_guest":"db"},"would_be":{"function":"ids","verdict":"reject","reason":"ids_rule","rule":4}}}"#
        ),
        "{text}"
    );
    bartizan_events::schema::check(&serde_json::from_str(text).unwrap()).unwrap();
    FlowRecord::default().write(&mut w, &options, &Common::default());
    assert!(!std::str::from_utf8(w.bytes()).unwrap().contains("bartizan"));
}

#[test]
fn a_folder_of_references_is_reproduced_when_given() {
    let Some(folder) = std::env::var_os("EVE_REFERENCE") else { return };
    let (mut total, mut all_faults) = (BTreeMap::new(), Vec::new());
    let mut folders = vec![Path::new(&folder).to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else if entry.path().extension().is_some_and(|extension| extension == "json") {
                let (same, faults) = compare(&std::fs::read_to_string(entry.path()).unwrap());
                for (kind, count) in same {
                    *total.entry(kind).or_insert(0usize) += count;
                }
                all_faults.extend(faults);
            }
        }
    }
    println!("the same: {total:?}; not the same: {}", all_faults.len());
    assert!(all_faults.is_empty(), "{}", all_faults[..all_faults.len().min(20)].join("\n"));
}
