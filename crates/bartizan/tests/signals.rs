// SPDX-License-Identifier: Apache-2.0
//! Signals with Suricata's meanings, both ways of logrotate, the pid file (the live part needs root; without,
//! it prints so and returns).

use crate::common;
use crate::namespace;

use bartizan_ports::{InlineOptions, InlinePort, Port};
use bartizan_testkit_worker::events;
use common::{Folder, PROGRAM, Running, capture, udp, until};
use namespace::{in_namespace, ip, veth};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

const RULES: &str = "alert udp any any -> any 4000 (msg:\"seen\"; content:\"secret\"; sid:1;)\n";

fn alerts(text: &str) -> usize {
    text.lines().filter(|line| line.contains("\"event_type\":\"alert\"")).count()
}

#[test]
fn a_live_run_obeys_signals_as_suricata_does() {
    for workers in ["1", "2"] {
        in_namespace(move || live(workers));
    }
}

fn live(workers: &str) {
    let folder = Folder::new();
    folder.write("local.rules", RULES);
    ip("link set dev lo up");
    veth("a0", "a1", 1500);
    let mut sender = InlinePort::open("a0", &InlineOptions::default()).unwrap();
    let arguments = [
        "run",
        "--tap",
        "a1",
        "--rules",
        "local.rules",
        "--cache",
        "none",
        "--pidfile",
        "b.pid",
        "--workers",
        workers,
        "--set",
        "capture.checksum-validation=none",
    ];
    let start = |more: &[&str]| {
        Running::start(Command::new(PROGRAM).args(arguments).args(more).current_dir(&folder.0))
    };
    // One that broke off has left its file.
    folder.write("b.pid", "999999\n");
    let running = start(&["--out", "out"]);
    running.until("running on");
    assert_eq!(folder.read("b.pid"), format!("{}\n", running.id()));
    let second = start(&["--out", "other"]).wait();
    let said = format!("another bartizan (process {}) holds the pid file b.pid; stop it", running.id());
    assert!(second.code == Some(3) && second.stderr.contains(&said), "{second:?}");
    let mut port = 50_000;
    let mut send = |file: &str, expected: usize| {
        port += 1;
        for v6 in [false, true] {
            sender.transmit_frame(&udp(v6, port, 4000, b"a secret")).unwrap();
        }
        sender.flush().unwrap();
        until(&format!("{expected} alerts in {file}"), || alerts(&folder.read(file)) == expected);
    };
    send("out/eve.json", 2);
    // logrotate's `create`: the file is renamed, and what still comes goes into it, until the signal.
    std::fs::rename(folder.path("out/eve.json"), folder.path("out/eve.json.1")).unwrap();
    send("out/eve.json.1", 4);
    assert!(!folder.path("out/eve.json").exists());
    running.signal("HUP");
    // Also while nothing happens.
    until("a new file", || folder.path("out/eve.json").exists());
    running.until("outputs are reopened (SIGHUP)");
    send("out/eve.json", 2);
    assert_eq!(alerts(&folder.read("out/eve.json.1")), 4);
    // logrotate's `copytruncate`: the file is copied and cut.
    std::fs::copy(folder.path("out/eve.json"), folder.path("out/eve.json.2")).unwrap();
    std::fs::OpenOptions::new().write(true).open(folder.path("out/eve.json")).unwrap().set_len(0).unwrap();
    send("out/eve.json", 2);
    assert!(folder.read("out/eve.json").starts_with("{\"timestamp\""), "no hole");
    // SIGHUP did not load anything; SIGUSR2 does.
    assert!(!running.stderr().contains("generation 2"), "{}", running.stderr());
    running.signal("USR2");
    running.until("generation 2: 1 rules loaded, 0 refused");
    let ended = running.stop();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("8 frames, 8 inspected, 0 lost"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("forwarded") && !ended.stdout.contains(" sent"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("do not agree"), "{}", ended.stdout);
    assert!(!folder.path("b.pid").exists());
    let all: String =
        ["out/eve.json", "out/eve.json.1", "out/eve.json.2"].map(|file| folder.read(file)).concat();
    let count =
        |kind: &str| all.lines().filter(|l| l.contains(&format!("\"event_type\":\"{kind}\""))).count();
    assert_eq!(count("alert"), 8);
    // Flows and counters are written at the end.
    assert!(count("flow") == 8 && count("stats") >= 1, "{} flows, {} stats", count("flow"), count("stats"));
    assert!(folder.path("out/stats.json").exists());
}

/// Three packets of three flows, the first two with an alert.
fn frames() -> Vec<Vec<u8>> {
    vec![
        udp(false, 1000, 4000, b"secret"),
        udp(true, 1001, 4000, b"secret"),
        udp(false, 1002, 4000, b"other"),
    ]
}

#[test]
fn captures_end_in_order_by_a_signal() {
    for threads in ["1", "2"] {
        let folder = Folder::new();
        folder.write("local.rules", RULES);
        let arguments = [
            "inspect",
            "--rules",
            "local.rules",
            "--out",
            "out",
            "--cache",
            "none",
            "--threads",
            threads,
            "-",
        ];
        let mut child = Command::new(PROGRAM)
            .args(arguments)
            .current_dir(&folder.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let whole = capture(&frames());
        // The last packet is under way when the signal comes.
        input.write_all(&whole[..whole.len() - 5]).unwrap();
        input.flush().unwrap();
        until("the outputs", || folder.path("out/eve.json").exists());
        for signal in ["HUP", "USR2"] {
            assert!(
                Command::new("kill")
                    .args([&format!("-{signal}"), &child.id().to_string()])
                    .status()
                    .unwrap()
                    .success()
            );
        }
        std::thread::sleep(Duration::from_millis(150));
        assert!(child.try_wait().unwrap().is_none(), "it goes on");
        assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
        let ended = child.wait_with_output().unwrap();
        drop(input);
        let (said, shown) = (String::from_utf8_lossy(&ended.stderr), String::from_utf8_lossy(&ended.stdout));
        assert_eq!(ended.status.code(), Some(3), "{said}");
        assert!(said.contains("stopped by a signal; the remaining packets were not read"), "{said}");
        assert!(shown.contains("2 packets") && shown.contains("incomplete: "), "{shown}");
        let eve = folder.read("out/eve.json");
        let count =
            |kind: &str| eve.lines().filter(|l| l.contains(&format!("\"event_type\":\"{kind}\""))).count();
        assert_eq!((count("alert"), count("flow"), count("stats")), (2, 2, 1), "{eve}");
    }
}

#[test]
fn standard_input_and_folders_are_read_like_files() {
    let folder = Folder::new();
    folder.write("local.rules", RULES);
    let frames = frames();
    folder.write("whole.pcap", capture(&frames));
    let inspect = |out: &str, name: &str, stdin: Stdio| {
        let ended = Command::new(PROGRAM)
            .args(["inspect", "--rules", "local.rules", "--cache", "none", "--json", "--out", out, name])
            .current_dir(&folder.0)
            .stdin(stdin)
            .output()
            .unwrap();
        (
            ended.status.code(),
            String::from_utf8_lossy(&ended.stdout).into_owned(),
            String::from_utf8_lossy(&ended.stderr).into_owned(),
        )
    };
    let events = |out: &str| -> Vec<String> {
        let all = events::read(&folder.path(&format!("{out}/eve.json")));
        events::of_type(&all, "alert").map(events::without_flow_id).collect()
    };
    assert_eq!(inspect("file", "whole.pcap", Stdio::null()).0, Some(0));
    let stdin = std::fs::File::open(folder.path("whole.pcap")).unwrap();
    let read = inspect("stdin", "-", stdin.into());
    assert_eq!(read.0, Some(0), "{}", read.2);
    assert_eq!(events("file").len(), 2);
    assert_eq!(events("stdin"), events("file"));
    // A folder: in the order in which the files were written last, whatever they are called; flows go on from
    // file to file.
    let whole = capture(&frames);
    let second = 24 + 16 + frames[0].len();
    let write = |name: &str, packets: &[u8], second: u64| {
        let path = folder.write(name, [&whole[..24], packets].concat());
        let time = std::time::UNIX_EPOCH + Duration::from_secs(second);
        std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    };
    std::fs::create_dir_all(folder.path("d/deeper")).unwrap();
    write("d/b.pcap", &whole[24..second], 1000);
    write("d/a.pcap", &whole[second..], 2000);
    folder.write("d/README", "no capture\n");
    let (code, shown, said) = inspect("folder", "d", Stdio::null());
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("d/README")
            && said.contains("skipped")
            && said.contains("1 subfolders are not searched"),
        "{said}"
    );
    let summary: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(
        (&summary["packets"], summary["skipped"].as_array().map(Vec::len)),
        (&3.into(), Some(1)),
        "{shown}"
    );
    assert_eq!(events("folder"), events("file"));
    // Nothing to read is no success.
    for (name, says) in [("d/deeper", "the folder d/deeper contains no capture"), ("none", "no such file")] {
        let (code, _, said) = inspect("nothing", name, Stdio::null());
        assert!(code == Some(1) && said.contains(says), "{said}");
    }
    let (code, _, said) = inspect("nothing", "-", Stdio::null());
    assert!(code == Some(1) && said.starts_with("bartizan: -: "), "{said}");
}

#[test]
fn events_of_an_earlier_run_are_told_of() {
    let folder = Folder::new();
    folder.write("whole.pcap", capture(&frames()));
    let inspect = |more: &[&str]| {
        common::run(&folder.0, &[&["inspect", "--cache", "none", "--out", "o", "whole.pcap"], more].concat())
    };
    let first = inspect(&[]);
    assert!(first.code == Some(0) && !first.stderr.contains("earlier run"), "{first:?}");
    let bytes = folder.read("o/eve.json").len();
    // Events differ in length: numbers of flows do.
    let events = || folder.read("o/eve.json").lines().count();
    let once = events();
    let again = inspect(&[]);
    let said = format!("o/eve.json has events of an earlier run ({bytes} bytes)");
    assert!(again.stderr.contains(&said), "{again:?}");
    assert_eq!(events(), 2 * once);
    let anew = inspect(&["--set", "outputs.1.eve-log.append=no"]);
    assert!(!anew.stderr.contains("earlier run"), "{anew:?}");
    assert_eq!(events(), once);
}
