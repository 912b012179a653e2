// SPDX-License-Identifier: Apache-2.0
//! Flows that move at random between four workers under mixed traffic and captures: the same events as with
//! one worker. The captures stand beside the repository; nothing is done without them.

use bartizan_testkit_worker::events;
use flate2::read::GzDecoder;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

fn beside(name: &str) -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    ["../../../shared", "../../../../shared"].iter().map(|p| here.join(p).join(name)).find(|p| p.exists())
}

fn unpacked(path: &Path) -> String {
    let mut text = String::new();
    GzDecoder::new(File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text
}

fn sid_of(rule: &str) -> Option<&str> {
    let (_, rest) = rule.split_once("sid:")?;
    rest.split(';').next().map(str::trim)
}

/// Rules of ET Open: those that match in the capture, those with bits of flows and hosts, and each tenth of
/// the others.
fn some_rules(rules: &str, alerts: &str) -> String {
    let wanted: BTreeSet<String> =
        events::parse(alerts).iter().map(|alert| alert["sid"].to_string()).collect();
    let active = rules.lines().filter(|line| line.starts_with("alert "));
    let chosen = active.enumerate().filter(|(number, line)| {
        number % 10 == 0
            || line.contains("flowbits:")
            || line.contains("xbits:")
            || sid_of(line).is_some_and(|sid| wanted.contains(sid))
    });
    chosen.map(|(_, line)| format!("{line}\n")).collect()
}

struct Run {
    lines: Vec<String>,
    alerts: usize,
    moved: u64,
}

fn inspect(folder: &Path, capture: &Path, more: &[&str], out: &str) -> Run {
    let ran = Command::new(env!("CARGO_BIN_EXE_bartizan"))
        .current_dir(folder)
        .args(["inspect", "--rules", "some.rules", "--set", "capture.checksum-validation=none", "--out", out])
        .args(more)
        .arg(capture)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let all = events::read(&folder.join(out).join("eve.json"));
    let mut lines: Vec<String> =
        all.iter().filter(|event| event["event_type"] != "stats").map(events::without_flow_id).collect();
    lines.sort_unstable();
    let stats = std::fs::read_to_string(folder.join(out).join("stats.json")).unwrap();
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    std::fs::remove_dir_all(folder.join(out)).unwrap();
    Run {
        lines,
        alerts: events::of_type(&all, "alert").count(),
        moved: stats["flow.moved"].as_u64().unwrap_or(0),
    }
}

#[test]
fn events_do_not_depend_on_where_flows_move() {
    let (Some(captures), Some(rules)) = (beside("data/captures"), beside("data/rules/etopen.rules.gz"))
    else {
        println!("shared captures are not here: not tested");
        return;
    };
    let folder = std::env::temp_dir().join(format!("bartizan-moving-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let alerts = unpacked(&captures.join("expected/mix-etopen.alerts.jsonl.gz"));
    std::fs::write(folder.join("some.rules"), some_rules(&unpacked(&rules), &alerts)).unwrap();
    let capture = captures.join("mix.pcap.gz");
    let one = inspect(&folder, &capture, &[], "one");
    assert!(one.alerts >= 900, "{} alerts", one.alerts);
    for seed in ["1", "2", "3"] {
        let many = inspect(&folder, &capture, &["--threads", "4", "--move-flows", seed], "many");
        assert!(many.moved >= 400, "seed {seed}: {} moves", many.moved);
        let only = |a: &Run, b: &Run| -> Vec<String> {
            let others: BTreeSet<&String> = b.lines.iter().collect();
            a.lines.iter().filter(|line| !others.contains(line)).take(3).cloned().collect()
        };
        assert_eq!((only(&one, &many), only(&many, &one)), (vec![], vec![]), "seed {seed}");
        assert_eq!(one.lines.len(), many.lines.len(), "seed {seed}");
        println!("seed {seed}: {} events, {} alerts, {} moves", many.lines.len(), many.alerts, many.moved);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
