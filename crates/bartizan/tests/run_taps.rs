// SPDX-License-Identifier: Apache-2.0
//! `bartizan run` on taps of several interfaces (needs root; without, it prints so and returns): the two
//! directions of connections on two interfaces give the events of one interface, and a quiet or missing
//! interface does not stop the watch of the others.

use crate::inline_net;

use crate::common;

use bartizan_ports::{
    Batch, InlineOptions, InlinePort, PassiveOptions, PassivePort, Port, stay_on_processor, wait_any,
};
use bartizan_testkit::namespace::only;
use bartizan_testkit_worker::events;
use common::{Folder, PROGRAM, Running, udp, until};
use inline_net::{in_namespace, role, run, sysctl};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const LARGE: usize = 60_000;
const SERVERS: [&str; 2] = ["10.68.0.2", "fd68::2"];

/// Another host: this test in a namespace of its own. It ends with its standard input.
struct Host(Child);

impl Host {
    fn start(test: &str) -> Self {
        let child = Command::new("unshare")
            .arg("-n")
            .arg(std::env::current_exe().unwrap())
            .args(only(test))
            .env("BARTIZAN_TEST_NAMESPACE", "server")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let host = Host(child);
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        until("the host's namespace", || {
            std::fs::read_link(format!("/proc/{}/ns/net", host.0.id())).is_ok_and(|its| its != own)
        });
        host
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn configure(device: &str, host: u8) {
    sysctl("net.ipv6.conf.default.accept_dad", "0");
    sysctl("net.ipv6.conf.default.router_solicitations", "0");
    until("the interface", || std::path::Path::new(&format!("/proc/sys/net/ipv4/conf/{device}")).exists());
    // Frames sent from here leave unchanged.
    run(&format!("ethtool -K {device} rx off tx off sg off tso off gso off gro off"));
    run(&format!("ip address add 10.68.0.{host}/24 dev {device}"));
    run(&format!("ip address add fd68::{host}/64 dev {device} nodad"));
    run(&format!("ip link set {device} up"));
}

/// A veth pair with one end watched.
fn mirror(far: &str, near: &str) {
    run(&format!("ip link add {far} mtu 1500 type veth peer name {near} mtu 1500"));
    for end in [far, near] {
        sysctl(&format!("net.ipv6.conf.{end}.disable_ipv6"), "1");
        run(&format!("ip link set dev {end} arp off multicast off up"));
    }
}

fn server() {
    run("ip link set lo up");
    configure("v1", 2);
    let listener = TcpListener::bind("[::]:80").unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer(stream));
        }
    });
    // Until the test ends.
    let _ = std::io::stdin().read(&mut [0]);
}

/// Answers the requests of a connection, one after another.
fn answer(mut stream: TcpStream) {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    loop {
        match stream.read(&mut piece) {
            Ok(length) if length > 0 => request.extend_from_slice(&piece[..length]),
            _ => return,
        }
        if request.ends_with(b"\r\n\r\n") {
            let body = vec![b'x'; if request.starts_with(b"GET /large") { LARGE } else { 10 }];
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = stream.write_all(&[head.as_bytes(), &body].concat());
            request.clear();
        }
    }
}

/// Sends several requests in one connection.
fn fetch(address: &str, number: usize) {
    let mut stream = TcpStream::connect((address, 80)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    for path in ["evil", "large", "small"] {
        write!(stream, "GET /{path}/{number} HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        let (mut got, mut piece) = (0, vec![0; 1 << 16]);
        let wanted = if path == "large" { LARGE } else { 10 };
        while got < wanted {
            let length = stream.read(&mut piece).unwrap();
            assert!(length > 0, "{address} {path}: {got} bytes");
            got += length;
        }
    }
}

fn port(name: &str) -> InlinePort {
    InlinePort::open(name, &InlineOptions { frames: 1024, ..InlineOptions::default() }).unwrap()
}

/// A network tap: `t0` gets copies of the frames of `v0` in one direction, `u0` in the other, and `w0` in
/// both, until `end` is set.
///
/// On one processor: each has a queue of its own for frames that virtual interfaces deliver, so frames sent
/// from two of them may arrive, and be stamped, the other way round. No network tap does that. (Two sockets
/// on `v0` would not see the same order either: two processors deliver the two directions.)
fn copy_directions(ready: &AtomicBool, end: &AtomicBool) {
    assert!(stay_on_processor(0));
    let options = PassiveOptions { retire: Duration::from_millis(1), ..PassiveOptions::default() };
    let mut from = PassivePort::open("v0", &options).unwrap();
    let own = from.mac();
    let (mut sides, mut both) = ([port("t0"), port("u0")], port("w0"));
    let mut batch = Batch::with_capacity(256);
    ready.store(true, Ordering::Release);
    while !end.load(Ordering::Relaxed) {
        from.receive(&mut batch).unwrap();
        for bytes in batch.indices().filter_map(|index| batch.bytes(index)) {
            for to in [&mut both, &mut sides[usize::from(bytes[6..12] != own)]] {
                to.transmit_frame(bytes).unwrap();
                to.flush().unwrap();
            }
        }
        if batch.is_empty() {
            wait_any(&mut [&mut from], None, Duration::ZERO, Duration::from_millis(20)).unwrap();
        }
    }
}

/// The events of a link, sorted, without members that are its own or depend on the time of writing.
fn said(events: &[Value], link: &str) -> Vec<String> {
    let wanted = events.iter().filter(|e| {
        e["bartizan"]["link"] == link
            && ["alert", "http", "fileinfo", "flow", "anomaly"].map(Value::from).contains(&e["event_type"])
            && e["proto"] != "IPv6-ICMP"
    });
    let mut said: Vec<String> = wanted
        .map(|event| {
            let mut event = event.clone();
            let fields = event.as_object_mut().unwrap();
            for own in ["timestamp", "flow_id", "in_iface", "bartizan"] {
                fields.remove(own);
            }
            if let Some(flow) = fields.get_mut("flow").and_then(Value::as_object_mut) {
                for time in ["start", "end", "age"] {
                    flow.remove(time);
                }
            }
            event.to_string()
        })
        .collect();
    said.sort_unstable();
    said
}

#[test]
fn two_directions_by_two_interfaces_are_one_flow() {
    let name = "two_directions_by_two_interfaces_are_one_flow";
    if role().as_deref() == Some("server") {
        return server();
    }
    in_namespace(name, || {
        for workers in [1, 2] {
            directions(name, workers);
        }
    });
}

fn directions(name: &str, workers: u16) {
    let folder = Folder::new();
    let host = Host::start(name);
    run("ip link add v0 type veth peer name v1");
    run(&format!("ip link set v1 netns {}", host.0.id()));
    configure("v0", 1);
    mirror("t0", "t1");
    mirror("u0", "u1");
    mirror("w0", "w1");
    folder.write(
        "r.rules",
        "alert http any any -> any any (msg:\"path\"; http.uri; content:\"/evil\"; sid:1;)\n\
         alert http any any -> any any (msg:\"answer\"; flow:to_client; http.stat_code; content:\"200\"; sid:2;)\n\
         alert tcp any 80 -> any any (msg:\"stream\"; flow:established,to_client; content:\"xxxxxxxxxxxx\"; sid:3;)\n",
    );
    folder.write(
        "bartizan.yaml",
        format!(
            "links:\n  - {{name: whole, tap: {{interface: w1}}, workers: {workers}}}\n  - {{name: sides, tap: {{interface: [t1, u1], merge-wait: 1000}}, workers: {workers}}}\n\
             rules: r.rules\ncache: none\noutputs: {{eve: {{dir: out}}}}\n"
        ),
    );
    let (ready, end) = (AtomicBool::new(false), AtomicBool::new(false));
    let ended = std::thread::scope(|scope| {
        // Before anything passes.
        let program =
            Running::start(Command::new(PROGRAM).args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
        program.until("running on w1, t1-u1");
        scope.spawn(|| copy_directions(&ready, &end));
        until("the network tap", || ready.load(Ordering::Acquire));
        until("the server", || TcpStream::connect((SERVERS[1], 80)).is_ok());
        let clients: Vec<_> = (0..12).map(|n| scope.spawn(move || fetch(SERVERS[n % 2], n))).collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        let records = |link: &str| {
            let events = events::parse(&whole_lines(&folder.read("out/eve.json")));
            events.iter().filter(|e| e["event_type"] == "http" && e["bartizan"]["link"] == link).count()
        };
        until("all records", || records("whole") == 36 && records("sides") == 36);
        let ended = program.stop();
        end.store(true, Ordering::Relaxed);
        ended
    });
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!ended.stdout.contains("do not agree"), "{}", ended.stdout);
    let events = events::parse(&folder.read("out/eve.json"));
    let (whole, sides) = (said(&events, "whole"), said(&events, "sides"));
    assert!(whole.iter().filter(|e| e.contains("\"event_type\":\"http\"")).count() == 36, "{}", whole.len());
    for (one, other) in whole.iter().zip(&sides) {
        assert_eq!(one, other, "{}", ended.stdout);
    }
    assert_eq!(whole.len(), sides.len());
    let ports: Vec<&str> = ended.stdout.lines().filter(|line| line.contains("waited")).collect();
    assert!(!ports.is_empty() && !ended.stdout.contains("late"), "{}", ended.stdout);
    run("ip link delete v0");
    run("ip link delete t0");
    run("ip link delete u0");
    run("ip link delete w0");
}

/// The whole lines of a growing file.
fn whole_lines(text: &str) -> String {
    text.rfind('\n').map_or(String::new(), |end| text[..=end].to_owned())
}

fn send(to: &mut InlinePort, frames: &[Vec<u8>]) {
    for frame in frames {
        to.transmit_frame(frame).unwrap();
        to.flush().unwrap();
    }
}

#[test]
fn one_of_two_interfaces_that_goes_and_comes_back() {
    in_namespace("one_of_two_interfaces_that_goes_and_comes_back", || {
        let folder = Folder::new();
        mirror("t0", "t1");
        mirror("u0", "u1");
        let mut t = port("t0");
        let packet = |n: u16| [udp(n.is_multiple_of(2), 50_000 + n, 4_000, b"secret")];
        folder.write("r.rules", "alert udp any any -> any any (msg:\"seen\"; content:\"secret\"; sid:1;)\n");
        let link = "{name: m, tap: {interface: [t1, u1]}, workers: 2}";
        folder.write(
            "bartizan.yaml",
            format!("links: [{link}]\nrules: r.rules\ncache: none\noutputs: {{eve: {{dir: out}}}}\n"),
        );
        let program =
            Running::start(Command::new(PROGRAM).args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
        program.until("running on t1-u1");
        let alerts = |count: usize| {
            until(&format!("{count} alerts"), || {
                folder.read("out/eve.json").matches("\"event_type\":\"alert\"").count() == count
            });
        };
        // The other one is quiet.
        send(&mut t, &packet(1));
        alerts(1);
        run("ip link set dev u1 down");
        program.until("warning: interface `u1` is down");
        send(&mut t, &packet(2));
        alerts(2);
        run("ip link delete u0");
        program.until("warning: interface `u1`: the interface `u1` is gone: it was removed or moved");
        send(&mut t, &packet(3));
        alerts(3);
        mirror("u0", "u1");
        program.until("note: interface `u1` is in use again");
        let mut u = port("u0");
        send(&mut u, &packet(4));
        alerts(4);
        send(&mut t, &packet(5));
        alerts(5);
        // Now the first one, and then none is left.
        run("ip link delete t0");
        program.until("warning: interface `t1`: the interface `t1` is gone");
        send(&mut u, &packet(6));
        alerts(6);
        run("ip link delete u0");
        let ended = program.wait();
        assert_eq!(ended.code, Some(3), "{ended:?}");
        assert!(ended.stderr.contains("`t1` is gone") && ended.stderr.contains("`u1` is gone"), "{ended:?}");
        assert!(ended.stdout.starts_with("6 frames, 6 inspected, 0 lost, 6 alerts"), "{}", ended.stdout);
        assert!(
            ended.stdout.contains("t1: 4 received") && ended.stdout.contains("u1: 2 received"),
            "{ended:?}"
        );
        assert!(!ended.stdout.contains("do not agree"), "{}", ended.stdout);
    });
}

#[test]
fn taps_that_cannot_be_are_named() {
    in_namespace("taps_that_cannot_be_are_named", || {
        let folder = Folder::new();
        mirror("t0", "t1");
        run("ip link property add dev t1 altname uplink");
        for (tap, says) in [
            (
                "interface: [t1, t1]",
                "bartizan.yaml:1:9: interface `t1` is used twice; give each interface to one link, and once",
            ),
            (
                "interface: [t1, uplink]",
                "link `m`: `t1` and `uplink` are one interface: name each interface of a tap once",
            ),
            ("interface: [t1, t9]", "interface `t9` does not exist"),
            (
                "interface: []",
                "bartizan.yaml:1:25: link `m`: a tap has 1 to 8 interfaces, and this one has 0",
            ),
            (
                "interface: t1, merge-wait: 5",
                "bartizan.yaml:1:52: link `m`: `merge-wait` needs several interfaces",
            ),
            (
                "interface: [t1, t0], merge-wait: 0",
                "link `m`: 0 milliseconds are out of range; give 1 to 1000",
            ),
            (
                "interface: [t1, t0], merge_wait: 5",
                "the key `merge_wait` is not known; did you mean `merge-wait`?",
            ),
        ] {
            folder.write("bartizan.yaml", format!("links: [{{name: m, tap: {{{tap}}}}}]\ncache: none\n"));
            let ended = common::run(&folder.0, &["run", "-c", "bartizan.yaml"]);
            assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{tap}: {ended:?}");
            assert!(ended.stderr.contains(says), "{tap}: {}", ended.stderr);
        }
    });
}

#[test]
fn without_hardware_timestamps_the_kernels_are_taken_where_that_is_allowed() {
    in_namespace("without_hardware_timestamps_the_kernels_are_taken_where_that_is_allowed", || {
        mirror("t0", "t1");
        mirror("u0", "u1");
        let mut t = port("t0");
        for (interfaces, timestamps, says) in [
            (
                "t1",
                "auto",
                "warning: interface `t1` has software timestamps: its driver stamps no received packets",
            ),
            (
                "[t1, u1]",
                "auto",
                "warning: link `m` uses software timestamps on all its interfaces, since interface `t1` has no hardware timestamps: its driver stamps no",
            ),
            ("t1", "software", ""),
        ] {
            let folder = Folder::new();
            let link = format!("{{name: m, tap: {{interface: {interfaces}, timestamps: {timestamps}}}}}");
            folder.write(
                "r.rules",
                "alert udp any any -> any any (msg:\"seen\"; content:\"secret\"; sid:1;)\n",
            );
            folder.write("bartizan.yaml", format!("links: [{link}]\nworkers: 2\nrules: r.rules\ncache: none\noutputs: {{eve: {{dir: out}}}}\n"));
            let program = Running::start(
                Command::new(PROGRAM).args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0),
            );
            program.until("running on t1");
            send(&mut t, &[udp(false, 50_000, 4_000, b"secret")]);
            until("the alert", || folder.read("out/eve.json").contains("\"event_type\":\"alert\""));
            let ended = program.stop();
            assert_eq!(ended.code, Some(0), "{ended:?}");
            assert!(ended.stdout.starts_with("1 frames, 1 inspected"), "{}", ended.stdout);
            assert_eq!(
                ended.stderr.matches("software timestamps").count(),
                usize::from(!says.is_empty()),
                "{ended:?}"
            );
            assert!(ended.stderr.contains(says), "{}", ended.stderr);
        }
    });
}
