// SPDX-License-Identifier: Apache-2.0
//! The runtime as a library: an embedding program inspects captures and runs links without a command line,
//! takes diagnostics as values and log lines by a subscriber of its own.

use bartizan_function::FunctionKind;
use bartizan_runtime::generation::BuildOptions;
use bartizan_runtime::inspect::{self, InspectOptions};
use bartizan_runtime::log::{Note, Report};
use bartizan_runtime::plan::RunOptions;
use bartizan_runtime::requests::Requests;
use bartizan_runtime::run;
use bartizan_testkit::capture::paced;
use bartizan_testkit::{namespace, packet};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[path = "../../../examples/function-ttlguard/src/lib.rs"]
mod ttlguard;

const RULES: &str = "\
alert udp any any -> any 5300 (msg:\"query\"; content:\"ask\"; sid:1;)
alert udp any any -> any any (msg:\"no such keyword\"; nokeyword:1; sid:2;)
";

/// Longest wait for a run to see a datagram.
const PATIENCE: Duration = Duration::from_secs(60);

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("bartizan-embed-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn build(folder: &Path, report: Report) -> BuildOptions {
    let rules = folder.join("r.rules");
    std::fs::write(&rules, RULES).unwrap();
    BuildOptions { rules: vec![rules], cache: Some("none".into()), report, ..BuildOptions::default() }
}

fn capture(folder: &Path) -> PathBuf {
    let client = (Ipv4Addr::new(192, 0, 2, 1).into(), 4000);
    let server = (Ipv4Addr::new(192, 0, 2, 2).into(), 5300);
    let frames: Vec<Vec<u8>> = (0..3).map(|_| packet::udp(client, server, b"ask").frame()).collect();
    let path = folder.join("c.pcap");
    std::fs::write(&path, paced(1000, frames)).unwrap();
    path
}

#[test]
fn captures_are_inspected_and_diagnostics_are_values() {
    static REQUESTS: Requests = Requests::new();
    static FOUND: Mutex<Vec<String>> = Mutex::new(Vec::new());
    fn take(notes: &[Note]) {
        let texts = notes.iter().map(|note| match note {
            Note::Line(text) => text.clone(),
            Note::Finding(finding) => format!("{}:{}: {}", finding.file, finding.line, finding.message),
        });
        FOUND.lock().unwrap().extend(texts);
    }
    let folder = folder("inspect");
    let options = InspectOptions {
        build: build(&folder, Report::to(take)),
        out: Some(folder.join("out")),
        threads: 2,
        captures: vec![capture(&folder)],
        ..InspectOptions::default()
    };
    let done = inspect::run(&options, &REQUESTS).unwrap();
    assert!(done.is_complete && done.failure.is_none());
    let summary = done.summary;
    assert_eq!((summary.packets, summary.flows, summary.alerts.get(&1)), (3, 1, Some(&3)));
    assert_eq!((summary.rules.loaded, summary.rules.refused.values().sum::<u64>()), (1, 1));
    let found = FOUND.lock().unwrap();
    assert!(found.iter().any(|text| text.contains("r.rules:2: ") && text.contains("nokeyword")), "{found:?}");
    let events = std::fs::read_to_string(summary.eve).unwrap();
    assert_eq!(events.lines().filter(|line| line.contains("\"event_type\":\"alert\"")).count(), 3);
    assert!(folder.join("out/stats.json").is_file());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_request_to_end_stops_an_inspection_between_two_packets() {
    static REQUESTS: Requests = Requests::new();
    let folder = folder("stop");
    let options = InspectOptions {
        build: build(&folder, Report::default()),
        out: Some(folder.join("out")),
        threads: 1,
        captures: vec![capture(&folder)],
        ..InspectOptions::default()
    };
    REQUESTS.stop();
    let done = inspect::run(&options, &REQUESTS).unwrap();
    assert!(!done.is_complete);
    assert_eq!((done.summary.packets, done.summary.incomplete.len()), (0, 1));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_function_of_another_crate_decides_where_policies_name_it() {
    static REQUESTS: Requests = Requests::new();
    let folder = folder("function");
    let policy = folder.join("policy.yaml");
    let inspected = |floor: &str| {
        let text = format!("default: {{action: allow, chain: [ttlguard], ttlguard: {{floor: {floor}}}}}\n");
        std::fs::write(&policy, text).unwrap();
        let functions: Vec<Arc<dyn FunctionKind>> = vec![Arc::new(ttlguard::TtlGuardKind)];
        let cache = Some("none".into());
        let build =
            BuildOptions { policy: Some(policy.clone()), functions, cache, ..BuildOptions::default() };
        let (out, captures) = (Some(folder.join("out")), vec![capture(&folder)]);
        let options = InspectOptions {
            build,
            out,
            threads: 1,
            prevention: true,
            captures,
            ..InspectOptions::default()
        };
        inspect::run(&options, &REQUESTS)
    };
    // The packets have 64 hops to live.
    for (floor, refused) in [("64", 0), ("65", 3)] {
        let done = inspected(floor).unwrap();
        assert_eq!(done.summary.packets, 3);
        let stats = std::fs::read_to_string(folder.join("out/stats.json")).unwrap();
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        assert_eq!(stats["ips.blocked"], refused, "floor {floor}: {stats}");
    }
    let error = inspected("none").err().unwrap();
    assert!(error.message.contains("policy.yaml:1:") && error.message.contains("ttlguard"), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_cannot_be_used_is_an_error_of_the_caller() {
    static REQUESTS: Requests = Requests::new();
    let folder = folder("error");
    let options = InspectOptions {
        build: build(&folder, Report::default()),
        out: Some(folder.join("out")),
        threads: 1,
        captures: vec![folder.join("none.pcap")],
        ..InspectOptions::default()
    };
    let error = inspect::run(&options, &REQUESTS).err().unwrap();
    assert!(error.message.contains("none.pcap: no such file"), "{error}");
    assert!(!folder.join("out").exists(), "nothing is written before captures are opened");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_link_runs_until_the_end_is_requested() {
    static REQUESTS: Requests = Requests::new();
    if !namespace::inside("a_link_runs_until_the_end_is_requested") {
        return;
    }
    namespace::run("ip", "link set lo up");
    let folder = folder("run");
    let options = RunOptions {
        tap: Some("lo".to_owned()),
        options: build(&folder, Report::default()),
        out: Some(folder.join("out")),
        control: Some("none".into()),
        save_power: true,
        ..RunOptions::default()
    };
    let running = std::thread::spawn(move || run::run(&options, &REQUESTS));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let begun = Instant::now();
    let events = folder.join("out/eve.json");
    let is_seen = || std::fs::read_to_string(&events).is_ok_and(|text| text.contains("\"signature_id\":1,"));
    while !is_seen() {
        assert!(!running.is_finished() && begun.elapsed() < PATIENCE, "no alert");
        // Nobody listens on the port: the kernel's answer is an error of the next call.
        let _ = socket.send_to(b"ask", "127.0.0.1:5300");
        std::thread::sleep(Duration::from_millis(50));
    }
    REQUESTS.stop();
    let outcome = running.join().unwrap().unwrap();
    assert!(outcome.failure.is_none() && outcome.is_complete, "{}", outcome.summary);
    assert!(outcome.summary.contains(" alerts") && !outcome.stdout_taken, "{}", outcome.summary);
    std::fs::remove_dir_all(folder).unwrap();
}
