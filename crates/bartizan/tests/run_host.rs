// SPDX-License-Identifier: Apache-2.0
//! `bartizan run` by a host file in a network namespace of its own (needs root; without, it prints so and
//! returns): the file's settings take effect, metrics agree with the packets sent, second instances and
//! full disks are reported.

use crate::common;
use crate::namespace;

use bartizan_ports::{Batch, InlineOptions, InlinePort, Port, wait_any};
use common::{Ended, Folder, PROGRAM, Running, get, udp, until, value};
use namespace::{in_namespace, ip, veth};
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::{Duration, Instant};

const POLICY: &str = "\
policies:
  - name: web \"1\"
    from: [192.0.2.0/24, '2001:db8::/32']
    to: any
    chain: [pfw, ids]
    pfw: {default: allow, rules: [{drop: udp, to-ports: 53, name: no-dns}]}
    ids: {rules: [local.rules]}
default: {action: allow, chain: []}
";
const RULES: &str = "alert udp any any -> any 4000 (msg:\"seen\"; content:\"secret\"; sid:1;)\n";

fn host_file(more: &str) -> String {
    format!(
        "links: [{{name: wan, inline: {{a: a1, b: b1}}}}]\npolicy: policy.yaml\ncache: none\nsettings: {{capture.checksum-validation: none}}\n{more}"
    )
}

/// Client a0 and server b0, with the program between a1 and b1.
fn network() -> (InlinePort, InlinePort) {
    ip("link set dev lo up");
    veth("a0", "a1", 1500);
    veth("b0", "b1", 1500);
    let options = InlineOptions { frames: 1024, ..InlineOptions::default() };
    (InlinePort::open("a0", &options).unwrap(), InlinePort::open("b0", &options).unwrap())
}

fn start(folder: &Folder, arguments: &[&str]) -> Running {
    let running = Running::start(Command::new(PROGRAM).arg("run").args(arguments).current_dir(&folder.0));
    running.until("running on");
    running
}

/// Sends frames from one side and receives at the other. Returns the number of UDP frames that came.
fn exchange(from: &mut InlinePort, to: &mut InlinePort, frames: &[Vec<u8>], expected: usize) -> usize {
    for frame in frames {
        from.transmit_frame(frame).unwrap();
        from.flush().unwrap();
    }
    let mut batch = Batch::with_capacity(256);
    let end = Instant::now() + Duration::from_secs(3);
    let mut came = 0;
    while Instant::now() < end && came < expected {
        to.receive(&mut batch).unwrap();
        came += batch
            .indices()
            .filter(|i| batch.bytes(*i).is_some_and(|b| b.starts_with(&[2, 0, 0, 0, 0, 2])))
            .count();
        if batch.is_empty() {
            wait_any(&mut [&mut *to], None, Duration::ZERO, Duration::from_millis(20)).unwrap();
        }
    }
    came
}

#[test]
fn the_host_file_drives_a_run_and_metrics_agree_with_it() {
    in_namespace(|| the_host_file(1));
}

#[test]
fn detection_counts_what_would_be_and_refuses_nothing() {
    for workers in [1, 2] {
        in_namespace(move || detection(workers));
    }
}

fn detection(workers: u16) {
    let folder = Folder::new();
    folder.write("policy.yaml", POLICY);
    folder.write("local.rules", RULES);
    let more = format!("workers: {workers}\ndetect: true\nmetrics: {{listen: '127.0.0.1:9100'}}\n");
    folder.write("bartizan.yaml", host_file(&more));
    let (mut client, mut server) = network();
    let running = start(&folder, &["-c", "bartizan.yaml"]);
    let frames: Vec<_> = (0..6u16).map(|n| udp(n % 2 == 0, 40_000 + n, 53, b"query")).collect();
    assert_eq!(exchange(&mut client, &mut server, &frames, 6), 6);
    let page = get("/metrics");
    assert_eq!(value(&page, "bartizan_packets_total", &["verdict=\"pass\""]), 6);
    assert_eq!(value(&page, "bartizan_packets_total", &["verdict=\"drop\""]), 0);
    let decision = ["function=\"pfw\"", "reason=\"pfw_rule\"", "verdict=\"drop\""];
    assert_eq!(value(&page, "bartizan_staged_decisions_total", &decision), 6);
    assert_eq!(value(&page, "bartizan_decisions_total", &decision), 0);
    let ended = running.stop();
    assert_eq!(ended.code, Some(0));
    assert!(ended.stdout.contains("6 frames, 6 forwarded, 0 refused"), "{}", ended.stdout);
    assert!(ended.stdout.contains("6 would be refused: pfw_rule"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("do not agree"), "{}", ended.stdout);
}

#[test]
fn metrics_of_several_workers_add_up() {
    in_namespace(|| the_host_file(2));
}

fn the_host_file(workers: u16) {
    let folder = Folder::new();
    folder.write("policy.yaml", POLICY);
    folder.write("local.rules", RULES);
    let more = format!(
        "workers: {workers}\nmetrics: {{listen: '127.0.0.1:9100'}}\noutputs: {{eve: {{dir: events}}, socket: eve.sock}}\nmemory: {{flows: 2048, reassembly: 1MiB, defrag: 2MiB}}\n"
    );
    folder.write("bartizan.yaml", host_file(&more));
    let listener = UnixListener::bind(folder.path("eve.sock")).unwrap();
    let socket = std::thread::spawn(move || {
        BufReader::new(listener.accept().unwrap().0).lines().map_while(Result::ok).collect::<Vec<_>>()
    });
    let (mut client, mut server) = network();
    let running = start(&folder, &["-c", "bartizan.yaml"]);
    running.until("metrics: http://127.0.0.1:9100/metrics");
    // Both versions: ten flows of four packets are allowed, five of them with an alert; three packets are
    // dropped.
    let mut frames = Vec::new();
    for port in 0..10u16 {
        let payload: &[u8] = if port < 5 { b"secret" } else { b"hello" };
        frames.extend((0..4).map(|_| udp(port % 2 == 0, 50_000 + port, 4_000, payload)));
    }
    frames.extend((0..3u16).map(|n| udp(n % 2 == 0, 40_000 + n, 53, b"query")));
    assert_eq!(exchange(&mut client, &mut server, &frames, 40), 40);
    let page = get("/metrics");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    let policy = "policy=\"web \\\"1\\\"\"";
    assert_eq!(value(&page, "bartizan_packets_total", &[policy, "verdict=\"pass\""]), 40);
    assert_eq!(value(&page, "bartizan_packets_total", &[policy, "verdict=\"drop\""]), 3);
    let decision = [policy, "function=\"pfw\"", "reason=\"pfw_rule\"", "verdict=\"drop\""];
    assert_eq!(value(&page, "bartizan_decisions_total", &decision), 3);
    assert_eq!(value(&page, "bartizan_filter_rule_packets_total", &[policy, "rule=\"no-dns\""]), 3);
    assert_eq!(value(&page, "bartizan_alerts_total", &[policy, "action=\"allowed\""]), 20);
    assert_eq!(value(&page, "bartizan_flows_total", &["proto=\"udp\""]), 13);
    assert_eq!(value(&page, "bartizan_flows_active", &[]), 13);
    assert_eq!(value(&page, "bartizan_port_packets_total", &["port=\"a1\"", "direction=\"in\""]), 43);
    assert_eq!(value(&page, "bartizan_port_packets_total", &["port=\"b1\"", "direction=\"out\""]), 40);
    assert_eq!(value(&page, "bartizan_worker_late", &[]), 0);
    assert_eq!(value(&page, "bartizan_generation", &["worker=\"0\""]), 1);
    assert_eq!(value(&page, "bartizan_rules", &["state=\"loaded\""]), 1);
    assert_eq!(value(&page, "bartizan_memory_limit_bytes", &["part=\"reassembly\""]), 1 << 20);
    assert_eq!(value(&page, "bartizan_memory_limit_bytes", &["part=\"defrag\""]), 2 << 20);
    let taken: u64 =
        (0..workers).map(|w| value(&page, "bartizan_packets_total", &[&format!("worker=\"{w}\"")])).sum();
    assert_eq!(taken, 43);
    if let Ok(curl) = Command::new("curl").args(["-sS", "-D", "-", "http://127.0.0.1:9100/metrics"]).output()
    {
        let text = String::from_utf8_lossy(&curl.stdout);
        assert!(curl.status.success() && text.contains("text/plain; version=0.0.4"), "{text}");
        assert!(text.contains("# TYPE bartizan_packets_total counter\n"), "{text}");
    }
    reloads(&folder, &running);
    let ended = running.stop();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("43 frames, 40 forwarded, 3 refused, 20 alerts"), "{}", ended.stdout);
    let eve = folder.read("events/eve.json");
    let count =
        |kind: &str| eve.lines().filter(|line| line.contains(&format!("\"event_type\":\"{kind}\""))).count();
    assert_eq!((count("alert"), count("drop"), count("flow")), (20, 3, 13));
    assert!(folder.path("events/stats.json").exists() && !folder.path("events/bartizan.lock").exists());
    // The socket got the same events; events of different workers may stand in another order there.
    let (mut got, mut wanted) = (socket.join().unwrap(), eve.lines().collect::<Vec<_>>());
    if workers > 1 {
        got.sort_unstable();
        wanted.sort_unstable();
    }
    assert!(got == wanted, "{} events in the socket, {} in the file", got.len(), wanted.len());
}

/// A successful reload, then one that is refused and changes nothing.
fn reloads(folder: &Folder, running: &Running) {
    running.signal("USR2");
    running.until("generation 2: 1 rules loaded, 0 refused");
    until("generation 2 at the workers", || {
        value(&get("/metrics"), "bartizan_generation", &["worker=\"0\""]) == 2
    });
    folder.write("policy.yaml", POLICY.replace("pfw, ids", "pfw, idss, ids"));
    running.signal("USR2");
    running.until("reload refused, generation 2 keeps running (content ");
    running.until("policy.yaml:5:18: there is no function `idss`; did you mean `ids`?");
    let page = get("/metrics");
    assert_eq!(value(&page, "bartizan_reloads_total", &["result=\"done\""]), 1);
    assert_eq!(value(&page, "bartizan_reloads_total", &["result=\"refused\""]), 1);
    assert_eq!(value(&page, "bartizan_generation", &["worker=\"0\""]), 2);
    folder.write("policy.yaml", POLICY);
    // A rule file that is cut, emptied, or has lost a rule does not replace the running rules, unless
    // settings allow it.
    let cut = RULES.len() - 8;
    for (rules, said) in [
        (RULES.get(..cut).unwrap(), "local.rules:1:"),
        ("", "local.rules: this file has no rules; it had 1"),
        (
            "alert udp any any -> any 1 (asn1:bitstring_overflow; sid:1;)\n",
            "1 rules would be removed, more than 10%",
        ),
        ("alert udp any any -> any 1 (contnt:\"x\"; sid:1;)\n", "(1 malformed line in this file, 0 rules)"),
    ] {
        folder.write("local.rules", rules);
        let before = running.stderr().matches(")): 1 rules are running, 0 would").count();
        running.signal("USR2");
        until("another refusal", || {
            running.stderr().matches(")): 1 rules are running, 0 would").count() > before
        });
        running.until(said);
    }
    assert_eq!(value(&get("/metrics"), "bartizan_generation", &["worker=\"0\""]), 2);
    let host = folder.read("bartizan.yaml");
    folder.write("bartizan.yaml", format!("{host}\nreload: {{max-loss: 100%, accept-malformed: true}}\n"));
    folder.write("local.rules", RULES.get(..cut).unwrap());
    running.signal("USR2");
    running.until("generation 3: 0 rules loaded, 1 refused, 1 of them malformed lines");
    folder.write("bartizan.yaml", host);
    folder.write("local.rules", RULES);
    running.signal("USR2");
    running.until("generation 4: 1 rules loaded, 0 refused");
    let page = get("/metrics");
    // Earlier counts are kept.
    assert_eq!(value(&page, "bartizan_filter_rule_packets_total", &["rule=\"no-dns\""]), 3);
}

/// Runs the program until it ends by itself.
fn ends(folder: &Folder, arguments: &[&str]) -> Ended {
    Running::start(Command::new(PROGRAM).arg("run").args(arguments).current_dir(&folder.0)).wait()
}

#[test]
fn a_second_instance_says_what_to_do() {
    in_namespace(|| {
        let folder = Folder::new();
        let _ports = network();
        let first = start(
            &folder,
            &["--inline", "a1", "b1", "--out", "one", "--cache", "none", "--metrics", "127.0.0.1:9100"],
        );
        let process = format!("another bartizan (process {})", first.id());
        let cases: [(&[&str], &[&str]); 4] = [
            (
                &["--tap", "lo", "--out", "one"],
                &[&process, "writes to one", "stop it or choose another folder with --out"],
            ),
            (
                &["--inline", "b1", "a1", "--out", "two"],
                &[&process, "is inline on interface `b1`", "stop it or choose another interface"],
            ),
            (
                &["--tap", "lo", "--out", "two", "--metrics", "127.0.0.1:9100"],
                &[
                    "cannot listen on 127.0.0.1:9100 for metrics",
                    "another program (or another bartizan) listens there; use another port",
                ],
            ),
            (
                &["--tap", "lo", "--out", "two", "--metrics", "127.0.0.1:9101", "--rules", "no"],
                &["cannot open rule file no"],
            ),
        ];
        for (arguments, says) in cases {
            let ended = ends(&folder, &[arguments, &["--cache", "none"]].concat());
            assert!(matches!(ended.code, Some(1 | 3)), "{arguments:?} {ended:?}");
            assert_eq!(ended.stderr.lines().count(), 1, "one message: {}", ended.stderr);
            for part in says {
                assert!(ended.stderr.contains(part), "{arguments:?}: `{part}` is not said: {}", ended.stderr);
            }
        }
        // Listening beside an inline instance is allowed.
        let tap = start(&folder, &["--tap", "a1", "--out", "three", "--cache", "none"]);
        assert_eq!(tap.stop().code, Some(0));
        assert_eq!(first.stop().code, Some(0));
        // Both are free again.
        let again = start(&folder, &["--inline", "a1", "b1", "--out", "one", "--cache", "none"]);
        assert_eq!(again.stop().code, Some(0));
    });
}

#[test]
fn interfaces_that_cannot_be_used() {
    in_namespace(|| {
        let folder = Folder::new();
        veth("a0", "a1", 1500);
        ip("link set dev a0 down");
        let says = |ended: &Ended, parts: &[&str]| {
            assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{ended:?}");
            parts.iter().for_each(|part| assert!(ended.stderr.contains(part), "{ended:?}"));
        };
        let rest = ["--out", "o", "--cache", "none"];
        says(
            &ends(&folder, &[&["--inline", "a0", "a1"][..], &rest].concat()),
            &["interface `a0` is down", "ip link set dev a0 up"],
        );
        says(
            &ends(&folder, &[&["--tap", "a00"][..], &rest].concat()),
            &["interface `a00` does not exist", "did you mean `a0`"],
        );
        ip("link set dev a0 up");
        says(
            &ends(&folder, &[&["--inline", "a1", "a1"][..], &rest].concat()),
            &["`a1` is given twice", "name another one, or watch this one with --tap"],
        );
        // Without the right: root, and the right taken away.
        let mut without = Command::new("setpriv");
        without.args([
            "--bounding-set",
            "-net_raw,-net_admin",
            "--inh-caps",
            "-net_raw,-net_admin",
            "--",
            PROGRAM,
            "run",
            "--tap",
            "a1",
        ]);
        let ended = Running::start(without.args(rest).current_dir(&folder.0)).wait();
        says(&ended, &["no permission to open a packet socket on `a1`", "setcap cap_net_raw"]);
    });
}

/// Waits until the system reports that an interface works. On a busy machine this takes up to a second
/// after it was switched on, and the system may report in between that there is no carrier; messages about
/// that are not those that a test waits for.
fn until_settled(name: &str) {
    until("an interface that works", || {
        let shown = Command::new("ip").args(["link", "show", "dev", name]).output().unwrap();
        String::from_utf8_lossy(&shown.stdout).contains("state UP")
    });
}

#[test]
fn an_interface_that_fails_is_told_of_once() {
    in_namespace(|| {
        for workers in ["1", "2"] {
            let folder = Folder::new();
            veth("a0", "a1", 1500);
            until_settled("a1");
            let running =
                start(&folder, &["--tap", "a1", "--out", "o", "--cache", "none", "--workers", workers]);
            for _ in 0..2 {
                // The other end, then this one.
                for (name, said) in
                    [("a0", "interface `a1` has no carrier"), ("a1", "interface `a1` is down")]
                {
                    let count = |text: &str| running.stderr().matches(text).count();
                    // An interface that is switched on has no carrier for a moment, which may be logged:
                    // each message is counted from here.
                    let (told, works) = (count(said), count("note: interface `a1` works again"));
                    ip(&format!("link set dev {name} down"));
                    until(said, || count(said) > told);
                    ip(&format!("link set dev {name} up"));
                    until("works again", || count("note: interface `a1` works again") > works);
                    until_settled("a1");
                }
            }
            ip("link del dev a1");
            let ended = running.wait();
            assert_eq!(ended.code, Some(3), "{ended:?}");
            assert!(ended.stderr.contains("interface `a1` is gone"), "{ended:?}");
            assert_eq!(ended.stderr.matches("works again").count(), 4, "{ended:?}");
            assert_eq!(ended.stderr.matches("`a1` is down").count(), 2, "{ended:?}");
        }
    });
}

#[test]
fn folders_that_were_removed_are_named() {
    let folder = Folder::new();
    let inside = folder.path("gone");
    std::fs::create_dir_all(&inside).unwrap();
    for (arguments, parts) in [
        (&["--out", "."][..], &["cannot write to the output folder .", "the current folder was removed"][..]),
        (&["--out", "o"], &["cannot create the output folder o", "choose another with --out"]),
        (&["--out", "/tmp", "--pidfile", "b.pid"], &["cannot write the pid file b.pid", "create its folder"]),
    ] {
        // The shell's folder goes while it is in it.
        std::fs::create_dir_all(&inside).unwrap();
        let line = format!("rmdir \"$PWD\" && exec \"$0\" run --tap lo --cache none {}", arguments.join(" "));
        let ended =
            Running::start(Command::new("sh").args(["-c", &line, PROGRAM]).current_dir(&inside)).wait();
        assert_eq!(ended.code, Some(3), "{ended:?}");
        parts.iter().for_each(|part| assert!(ended.stderr.contains(part), "{part}: {ended:?}"));
    }
}

#[test]
fn a_full_disk_costs_events_and_nothing_else() {
    in_namespace(|| {
        let folder = Folder::new();
        let (mut client, mut server) = network();
        std::fs::create_dir(folder.path("small")).unwrap();
        // The mount lives in a mount namespace that ends with the program.
        let script = format!(
            "mount -t tmpfs -o size=64k none small && exec {PROGRAM} run --inline a1 b1 --out small --cache none --metrics 127.0.0.1:9100 --set capture.checksum-validation=none"
        );
        let running =
            Running::start(Command::new("unshare").args(["-m", "sh", "-c", &script]).current_dir(&folder.0));
        running.until("running on");
        let mut sent = 0;
        let mut round = |client: &mut InlinePort, server: &mut InlinePort| {
            let frames: Vec<_> = (0..50u16).map(|n| dns_query(40_000 + sent as u16 + n, n)).collect();
            assert_eq!(exchange(client, server, &frames, 50), 50, "traffic goes on");
            sent += 50;
        };
        for _ in 0..8 {
            round(&mut client, &mut server);
        }
        running.until("error: events are lost: cannot write to small/eve.json: No space left on device");
        round(&mut client, &mut server);
        until("lost events on the metrics page", || {
            value(&get("/metrics"), "bartizan_events_lost_total", &["eve.json"]) > 0
        });
        assert_eq!(value(&get("/metrics"), "bartizan_packets_total", &["verdict=\"pass\""]), 450);
        let ended = running.stop();
        assert_eq!(ended.stderr.matches("events are lost").count(), 1, "said once: {}", ended.stderr);
        assert_eq!(ended.code, Some(3), "{ended:?}");
        assert!(ended.stdout.contains("450 frames, 450 forwarded"), "{}", ended.stdout);
        assert!(
            ended.stdout.contains(" in small/eve.json, ") && ended.stdout.contains(" lost"),
            "{}",
            ended.stdout
        );
    });
}

/// A DNS query, which leaves a record.
fn dns_query(port: u16, id: u16) -> Vec<u8> {
    let mut message = id.to_be_bytes().to_vec();
    message.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in ["a-rather-long-label-so-that-records-take-room", "example"] {
        message.push(label.len() as u8);
        message.extend_from_slice(label.as_bytes());
    }
    message.extend_from_slice(&[0, 0, 1, 0, 1]);
    udp(id.is_multiple_of(2), port, 53, &message)
}
