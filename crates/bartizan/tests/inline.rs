// SPDX-License-Identifier: Apache-2.0
//! The running program inline between two hosts: generations that are swapped under traffic (invariant 2),
//! and the number of system calls (invariant 8).

use crate::inline_net;

use bartizan_ports::{InlineOptions, InlinePort, Port};
use bartizan_testkit::namespace::only;
use bartizan_testkit_worker::events;
use inline_net::{AtEnd, SERVER, in_namespace, link, role, run, wire};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bartizan-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file, whole at once.
    fn put(&self, name: &str, text: &str) {
        let fresh = self.file("fresh");
        std::fs::write(&fresh, text).unwrap();
        std::fs::rename(fresh, self.file(name)).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The program inline between `a1` and `b1`.
struct Program {
    child: Child,
    /// Its own process, where `child` is a tracer.
    pid: u32,
    said: Arc<Mutex<Vec<String>>>,
}

impl Program {
    fn start(before: &[&str], folder: &Folder, more: &[&str]) -> Self {
        let program = env!("CARGO_BIN_EXE_bartizan");
        let out = folder.file("out");
        let own = [program, "run", "--inline", "a1", "b1", "--spin", "0", "--out", out.to_str().unwrap()];
        let words: Vec<&str> = before.iter().chain(&own).chain(more).copied().collect();
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::new(Mutex::new(Vec::new()));
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let lines = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                lines.lock().unwrap().push(line);
            }
        });
        let mut pid = child.id();
        let this = Program { child, pid, said };
        this.wait_for(0, "running on", Duration::from_secs(20));
        if !before.is_empty() {
            let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
            pid = children.split_whitespace().next().unwrap().parse().unwrap();
        }
        Program { pid, ..this }
    }

    /// The first line from `from` on that contains `text`, and the number of the line after it.
    fn wait_for(&self, from: usize, text: &str, limit: Duration) -> (String, usize) {
        let begun = Instant::now();
        loop {
            let said = self.said.lock().unwrap();
            if let Some(at) = said.iter().skip(from).position(|line| line.contains(text)) {
                return (said[from + at].clone(), from + at + 1);
            }
            assert!(begun.elapsed() < limit, "the program does not say {text:?} but: {}", said.join("\n"));
            drop(said);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn signal(&self, signal: &str) {
        run(&format!("kill -{signal} {}", self.pid));
    }

    /// Stops the program; returns its summary.
    fn stop(mut self) -> String {
        self.signal("TERM");
        let mut summary = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut summary).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.said.lock().unwrap().join("\n"));
        summary
    }
}

/// The number before a word of the summary: `120 frames`.
fn number_before(text: &str, word: &str) -> u64 {
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words.iter().position(|w| w.trim_matches([',', ':']) == word);
    at.and_then(|at| words[at - 1].parse().ok()).unwrap_or_else(|| panic!("no number before {word}: {text}"))
}

/// Sum of the numbers before a word in the lines of the ports.
fn sum_of_ports(summary: &str, word: &str) -> u64 {
    let ports = summary.lines().filter(|l| l.starts_with("a1: ") || l.starts_with("b1: "));
    ports.map(|line| number_before(line, word)).sum()
}

const SWAPS: usize = 200;
/// The most datagrams under way: fewer than any socket's buffer holds.
const UNANSWERED: u64 = 100;
const STOP: &str = "BARTIZAN_TEST_STOP";

fn policy(rules: &str) -> String {
    format!(
        "policies:\n  - {{name: all, chain: [sfw, ids], sfw: {{}}, ids: {{rules: {rules}}}}}\ndefault: {{action: allow}}\n"
    )
}

/// Policies from which no generation can be built, each with the name that the message has to contain.
fn broken(turn: usize) -> (String, &'static str) {
    match turn % 4 {
        0 => (policy("a.rules").replace("chain", "chian"), "chain"),
        1 => ("policies:\n  - {name: all, chain: [sfw, idz]}\ndefault: {action: allow}\n".to_owned(), "idz"),
        2 => (policy("missing.rules"), "missing.rules"),
        _ => ("policies: [".to_owned(), "policy.yaml"),
    }
}

#[test]
fn two_hundred_swaps_lose_no_packet() {
    const NAME: &str = "two_hundred_swaps_lose_no_packet";
    if role().as_deref() == Some("client") {
        return client();
    }
    in_namespace(NAME, || {
        let folder = Folder::new("swaps");
        for (name, first) in [("a.rules", 1), ("b.rules", 11)] {
            let rule = |sid| {
                format!(
                    "alert udp any any -> any 7000 (msg:\"probe {sid}\"; content:\"probe\"; sid:{sid};)\n"
                )
            };
            folder.put(name, &(rule(first) + &rule(first + 1)));
        }
        folder.put("policy.yaml", &policy("a.rules"));
        link(1..=1);
        let echo = UdpSocket::bind("[::]:7000").unwrap();
        let listener = TcpListener::bind("[::]:7001").unwrap();
        let stop = folder.file("stop");
        let mut other = Command::new("unshare")
            .arg("-n")
            .arg(std::env::current_exe().unwrap())
            .args(only(NAME))
            .env("BARTIZAN_TEST_NAMESPACE", "client")
            .env(STOP, &stop)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(other.stdout.take().unwrap());
        // Once it is in its namespace the interface can be moved there.
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let theirs = || std::fs::read_link(format!("/proc/{}/ns/net", other.id()));
        while theirs().unwrap() == own {
            std::thread::sleep(Duration::from_millis(2));
        }
        run("ip link set a0 down");
        run(&format!("ip link set a0 netns {}", other.id()));
        let policy_file = folder.file("policy.yaml");
        let payload = ["--set", "outputs.1.eve-log.types.0.alert.payload-printable=yes"];
        let more = [&["--policy", policy_file.to_str().unwrap()][..], &payload].concat();
        let program = Program::start(&[], &folder, &more);
        let done = AtomicBool::new(false);
        let (summary, generations, sent) = std::thread::scope(|scope| {
            scope.spawn(|| echo_all(&echo, &done));
            let receiving = scope.spawn(|| receive_all(&listener));
            let end = AtEnd(|| {
                let _ = std::fs::write(&stop, "");
                done.store(true, Ordering::Release);
            });
            std::thread::sleep(Duration::from_millis(800));
            let generations = swap(&program, &folder);
            std::fs::write(&stop, "").unwrap();
            let sent = report(&mut output);
            assert_eq!(receiving.join().unwrap(), sent["tcp"], "bytes of the TCP transfer");
            drop(end);
            let summary = program.stop();
            // With its end the link goes, which would end the program.
            drop(other.stdin.take());
            assert!(other.wait().unwrap().success());
            (summary, generations, sent)
        });
        println!("{sent:?}\n{summary}");
        assert_eq!(sent["echoed"], sent["sent"], "every datagram comes back");
        assert!(sent["sent"] > 1000 && sent["tcp"] > 1 << 20, "{sent:?}");
        sums_agree(&summary);
        one_generation_a_packet(&folder.file("out/eve.json"), &generations, sent["sent"]);
    });
}

/// Swaps generations and tries broken ones in between; returns the rules of each generation by its number.
fn swap(program: &Program, folder: &Folder) -> BTreeMap<u64, u64> {
    let mut generations = BTreeMap::from([(1, 1)]);
    // After the lines of the first generation.
    let (mut number, mut line) = (1, program.said.lock().unwrap().len());
    for turn in 0..SWAPS {
        if turn % 8 == 3 {
            let (text, named) = broken(turn / 8);
            folder.put("policy.yaml", &text);
            program.signal("USR2");
            let (said, next) = program.wait_for(line, "generation", Duration::from_secs(10));
            // The message can take several lines; all of it is before or after this one.
            std::thread::sleep(Duration::from_millis(30));
            let all = program.said.lock().unwrap()[line..].join("\n");
            assert!(
                said.contains("refused") && said.contains(&format!("generation {number} keeps running")),
                "{all}"
            );
            assert!(all.contains(named), "the message names {named}: {all}");
            line = next.max(program.said.lock().unwrap().len());
        }
        let first = if turn % 2 == 0 { 11 } else { 1 };
        folder.put("policy.yaml", &policy(if first == 11 { "b.rules" } else { "a.rules" }));
        program.signal("USR2");
        let (said, next) = program.wait_for(line, "generation", Duration::from_secs(10));
        number += 1;
        assert!(said.contains(&format!("generation {number}:")), "{said}");
        generations.insert(number, first);
        line = next;
    }
    generations
}

/// Each received frame was forwarded or refused, and each forwarded one was sent.
fn sums_agree(summary: &str) {
    let (frames, forwarded) = (number_before(summary, "frames"), number_before(summary, "forwarded"));
    assert_eq!(frames, forwarded + number_before(summary, "refused"), "{summary}");
    assert_eq!(number_before(summary, "refused"), 0, "{summary}");
    assert_eq!(sum_of_ports(summary, "received"), frames, "{summary}");
    assert_eq!(sum_of_ports(summary, "dropped"), 0, "{summary}");
    assert_eq!(sum_of_ports(summary, "sent"), forwarded, "{summary}");
}

/// Each datagram with `probe` makes two alerts: both of one generation, by its rules.
fn one_generation_a_packet(eve: &Path, rules: &BTreeMap<u64, u64>, sent: u64) {
    let mut alerts: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
    for event in events::of_type(&events::read(eve), "alert") {
        let generation = event["bartizan"]["generation"].as_u64().unwrap_or_else(|| panic!("{event}"));
        let payload = event["payload_printable"].as_str().unwrap_or_else(|| panic!("{event}"));
        let sid = event["alert"]["signature_id"].as_u64().unwrap();
        let packet = format!("{} {payload}", event["src_ip"]);
        alerts.entry(packet).or_default().push((generation, sid));
    }
    let mut seen = BTreeSet::new();
    for (packet, alerts) in &alerts {
        let [(one, first), (two, second)] = alerts[..] else { panic!("{packet}: {alerts:?}") };
        let expected = rules[&one];
        assert_eq!(one, two, "{packet}: one generation");
        assert_eq!(BTreeSet::from([first, second]), BTreeSet::from([expected, expected + 1]), "{packet}");
        seen.insert(one);
    }
    assert_eq!(alerts.len() as u64, sent.div_ceil(10), "every probe is alerted on");
    assert!(seen.len() > SWAPS / 3, "alerts of {} generations only", seen.len());
}

fn echo_all(socket: &UdpSocket, done: &AtomicBool) {
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut buffer = [0; 2048];
    while !done.load(Ordering::Acquire) {
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            // Echoed in capitals, so that the echo is no probe.
            let echo = buffer[..length].to_ascii_uppercase();
            socket.send_to(&echo, from).unwrap();
        }
    }
}

/// Receives the transfer, whose content has to be right; returns the number of bytes to the client.
fn receive_all(listener: &TcpListener) -> u64 {
    let (mut stream, _) = listener.accept().unwrap();
    let mut buffer = vec![0; 1 << 16];
    let mut count = 0u64;
    loop {
        let length = stream.read(&mut buffer).unwrap();
        if length == 0 {
            break;
        }
        for (at, byte) in (count..).zip(&buffer[..length]) {
            assert_eq!(*byte, pattern(at), "byte {at}");
        }
        count += length as u64;
    }
    stream.write_all(&count.to_be_bytes()).unwrap();
    count
}

fn pattern(at: u64) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16)) as u8
}

/// The names and numbers that the client printed.
fn report(output: &mut impl BufRead) -> BTreeMap<String, u64> {
    let mut said = Vec::new();
    let mut lines = output.lines().map_while(Result::ok);
    let line = lines.by_ref().inspect(|line| said.push(line.clone())).find(|line| line.contains("report:"));
    let line = line.unwrap_or_else(|| panic!("{}", said.join("\n")));
    let words = line.split_whitespace().filter_map(|word| word.split_once('='));
    words.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
}

/// The other host, in a namespace of its own: sends numbered datagrams and a TCP transfer until it is
/// stopped.
fn client() {
    run("ip link set dev lo up");
    let there =
        |_: &u32| Command::new("ip").args(["link", "show", "a0"]).output().is_ok_and(|o| o.status.success());
    assert!(
        (0..500).inspect(|_| std::thread::sleep(Duration::from_millis(20))).any(|n| there(&n)),
        "no link"
    );
    run("ip link set dev a0 address 02:00:00:00:00:01 arp on up");
    run("ip address add 10.66.0.1/24 dev a0");
    run("ip address add fd66::1/64 dev a0 nodad");
    for server in [SERVER.0, SERVER.1] {
        run(&format!("ip neighbour replace {server} lladdr 02:00:00:00:00:02 dev a0 nud permanent"));
    }
    let stop = PathBuf::from(std::env::var_os(STOP).unwrap());
    let transfer = {
        let stop = stop.clone();
        std::thread::spawn(move || send_all(&stop))
    };
    let echoed = AtomicU64::new(0);
    let (answered, quiet) = ([const { AtomicBool::new(false) }; 2], AtomicBool::new(false));
    let sockets = ["10.66.0.1:5000", "[fd66::1]:5000"].map(|local| UdpSocket::bind(local).unwrap());
    sockets[0].connect((SERVER.0, 7000)).unwrap();
    sockets[1].connect((SERVER.1, 7000)).unwrap();
    let sent = std::thread::scope(|scope| {
        for (socket, answered) in sockets.iter().zip(&answered) {
            socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            let (echoed, quiet) = (&echoed, &quiet);
            scope.spawn(move || {
                let mut buffer = [0; 2048];
                while !quiet.load(Ordering::Acquire) {
                    match socket.recv(&mut buffer).map(|length| &buffer[..length]) {
                        Ok(b"ANYBODY THERE?") => answered.store(true, Ordering::Release),
                        Ok(_) => _ = echoed.fetch_add(1, Ordering::AcqRel),
                        Err(_) => {}
                    }
                }
            });
        }
        let waits = |limit: u64, holds: &dyn Fn() -> bool| {
            let begun = Instant::now();
            while !holds() && begun.elapsed() < Duration::from_secs(limit) {
                std::thread::sleep(Duration::from_millis(2));
            }
        };
        // No host answers before the program forwards; on a busy machine the server's kernel answers in one
        // IP version before the other.
        let begun = Instant::now();
        for (socket, answered) in sockets.iter().zip(&answered) {
            while !answered.load(Ordering::Acquire) && begun.elapsed() < Duration::from_secs(20) {
                socket.send(b"anybody there?").unwrap();
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        let mut sent = 0u64;
        while !stop.exists() {
            for _ in 0..2 {
                let word = if sent.is_multiple_of(10) { "probe" } else { "plain" };
                sockets[(sent / 10) as usize % 2].send(format!("{word} {sent:08}").as_bytes()).unwrap();
                sent += 1;
            }
            std::thread::sleep(Duration::from_millis(2));
            // Otherwise sockets overflow on a busy machine, a loss that is not the program's.
            waits(1, &|| sent - echoed.load(Ordering::Acquire) < UNANSWERED);
        }
        waits(10, &|| echoed.load(Ordering::Acquire) >= sent);
        quiet.store(true, Ordering::Release);
        sent
    });
    let tcp = transfer.join().unwrap();
    println!("report: sent={sent} echoed={} tcp={tcp}", echoed.load(Ordering::Relaxed));
    // The link stays until the other side is done with it.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// A TCP transfer of about 5 MB/s at most, until it is stopped; returns the number of bytes that the server
/// reports.
fn send_all(stop: &Path) -> u64 {
    let begun = Instant::now();
    let mut stream = loop {
        match TcpStream::connect((SERVER.0, 7001)) {
            Ok(stream) => break stream,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let mut sent = 0u64;
    while !stop.exists() {
        let chunk: Vec<u8> = (sent..sent + 20_000).map(pattern).collect();
        stream.write_all(&chunk).unwrap();
        sent += chunk.len() as u64;
        std::thread::sleep(Duration::from_millis(4));
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(u64::from_be_bytes(answer), sent);
    sent
}

#[test]
fn system_calls_are_for_batches_of_packets() {
    const NAME: &str = "system_calls_are_for_batches_of_packets";
    if Command::new("strace").arg("-V").output().is_err() {
        let why = format!("{NAME}: not run, needs the program strace\n");
        let _ = std::io::stderr().write_all(why.as_bytes());
        return;
    }
    in_namespace(NAME, || {
        let folder = Folder::new("strace");
        folder.put(
            "a.rules",
            "drop udp any any -> any any (msg:\"never\"; content:\"nothing says this\"; sid:1;)\n",
        );
        folder.put("policy.yaml", &policy("a.rules"));
        link(1..=8);
        // A socket that is never read takes the datagrams, so that the kernel answers none.
        let _deaf = UdpSocket::bind("[::]:7000").unwrap();
        let trace = folder.file("trace");
        let before = ["strace", "-f", "-c", "-o", trace.to_str().unwrap()];
        let policy_file = folder.file("policy.yaml");
        let program = Program::start(&before, &folder, &["--policy", policy_file.to_str().unwrap()]);
        let mut port = InlinePort::open("a0", &InlineOptions::default()).unwrap();
        let frames: Vec<Vec<u8>> =
            (0..16).map(|n| wire::datagram(n % 2 == 1, 1 + n / 2, (5000, 7000), 300)).collect();
        let begun = Instant::now();
        let mut sent = 0u64;
        // On a busy machine the program needs longer for as many.
        while begun.elapsed() < Duration::from_secs(3)
            || sent < 200_000 && begun.elapsed() < Duration::from_secs(20)
        {
            for frame in frames.iter().cycle().take(64) {
                sent += u64::from(port.transmit_frame(frame).is_ok());
            }
            port.flush().unwrap();
        }
        std::thread::sleep(Duration::from_millis(300));
        let summary = program.stop();
        let table = std::fs::read_to_string(trace).unwrap();
        let handled = number_before(&summary, "frames");
        let calls = total_of(&table);
        // Starting, and looking around now and then, takes some whatever comes: on a busy machine they are
        // many for few packets.
        let by_time = 2_000 + 300 * begun.elapsed().as_secs();
        let share = calls.saturating_sub(by_time) as f64 / handled as f64;
        println!(
            "{sent} frames sent, {handled} handled, {calls} system calls: {share:.4} a packet\n{summary}{table}"
        );
        assert!(handled > 20_000, "only {handled} frames");
        assert!(share < 0.1, "{share:.3} system calls a packet");
    });
}

/// Calls in the last line of strace's table: share, seconds, microseconds a call, calls, perhaps errors,
/// `total`.
fn total_of(table: &str) -> u64 {
    let line = table.lines().find(|line| line.ends_with("total")).unwrap_or_else(|| panic!("{table}"));
    line.split_whitespace().nth(3).and_then(|calls| calls.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}
