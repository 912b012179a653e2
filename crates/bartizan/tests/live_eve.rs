// SPDX-License-Identifier: Apache-2.0
//! The running program beside a host with its interfaces' default settings: senders leave checksums and
//! segmentation to a device that does not exist. No byte is missed, the sums agree, and statistics come at
//! their interval.

use crate::inline_net;

use crate::common;

use bartizan_testkit::namespace::only;
use bartizan_testkit_worker::events;
use common::{Folder, PROGRAM, Running, until};
use inline_net::{in_namespace, role, run, sysctl};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Bytes of the large answer: some tens of segments, which arrive as a few frames.
const LARGE: usize = 90_000;

/// The variable with the path of the file that a host writes when it has done its part.
const DONE: &str = "BARTIZAN_TEST_DONE";

/// Another host: this test in a namespace of its own. It ends with its standard input.
struct Host(Child);

impl Host {
    fn start(test: &str, what: &str, done: &Path) -> Self {
        let child = Command::new("unshare")
            .arg("-n")
            .arg(std::env::current_exe().unwrap())
            .args(only(test))
            .env("BARTIZAN_TEST_NAMESPACE", what)
            .env(DONE, done)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let host = Host(child);
        // Once it is in its namespace interfaces can be moved there.
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
    until("the interface", || std::path::Path::new(&format!("/proc/sys/net/ipv4/conf/{device}")).exists());
    run(&format!("ip address add 10.67.0.{host}/24 dev {device}"));
    run(&format!("ip address add fd67::{host}/64 dev {device} nodad"));
    run(&format!("ip link set {device} up"));
}

/// Answers HTTP requests, `/large` with much, and one kind of DNS query, over IPv4 and IPv6.
fn server(device: &str) {
    run("ip link set lo up");
    configure(device, 2);
    let names = UdpSocket::bind("[::]:53").unwrap();
    std::thread::spawn(move || {
        let mut message = [0; 512];
        while let Ok((length, from)) = names.recv_from(&mut message) {
            message[2] |= 0x80;
            let _ = names.send_to(&message[..length], from);
        }
    });
    let listener = TcpListener::bind("[::]:80").unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer(stream));
        }
    });
    // Until the test ends.
    let _ = std::io::stdin().read(&mut [0]);
}

fn answer(mut stream: TcpStream) {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut piece) {
            Ok(length) if length > 0 => request.extend_from_slice(&piece[..length]),
            _ => return,
        }
    }
    let body = if request.starts_with(b"GET /large") { vec![b'x'; LARGE] } else { b"no".to_vec() };
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let _ = stream.write_all(&[head.as_bytes(), &body].concat());
}

/// Fetches a page; returns the length of the answer.
fn fetch(address: &str, path: &str) -> usize {
    let mut stream = TcpStream::connect((address, 80)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all.len()
}

/// Sends a DNS query for a name.
fn ask(address: &str) {
    let socket = UdpSocket::bind(if address.contains(':') { "[::]:0" } else { "0.0.0.0:0" }).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x05query\x07example\0\0\x01\0\x01";
    socket.send_to(query, (address, 53)).unwrap();
    socket.recv_from(&mut [0; 512]).unwrap();
}

const SERVERS: [&str; 2] = ["10.67.0.2", "fd67::2"];

const RULES: &str = "\
alert http any any -> any any (msg:\"request\"; http.uri; content:\"/evil\"; sid:1;)
alert http any any -> any any (msg:\"answer\"; flow:to_client; http.stat_code; content:\"200\"; sid:2;)
alert tcp any any -> any any (msg:\"wrong\"; tcpv4-csum:invalid; sid:3;)
";

/// The whole events of a type in the file: the program may be writing the next line.
fn whole_events(folder: &Folder, kind: &str) -> Vec<Value> {
    let text = folder.read("o/eve.json");
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let all = events::parse(&text[..whole]);
    events::of_type(&all, kind).cloned().collect()
}

/// Two plain requests and a large answer over each IP version: checks their events.
fn check(folder: &Folder, ended: &common::Ended) {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!ended.stdout.contains("the sums do not agree"), "{}", ended.stdout);
    assert!(!ended.stderr.contains("wrong checksum"), "{}", ended.stderr);
    let count = |sid: u64| {
        whole_events(folder, "alert").iter().filter(|alert| alert["alert"]["signature_id"] == sid).count()
    };
    assert_eq!((count(1), count(2), count(3)), (2, 4, 0), "{}", ended.stdout);
    assert_eq!(whole_events(folder, "http").len(), 4);
    let files = whole_events(folder, "fileinfo");
    let large: Vec<&Value> = files.iter().filter(|f| f["fileinfo"]["size"] == LARGE as u64).collect();
    assert_eq!(large.len(), 2, "{files:?}");
    assert!(large.iter().all(|f| f["fileinfo"]["state"] == "CLOSED"), "{large:?}");
    for flow in whole_events(folder, "flow") {
        assert!(flow["tcp"].get("tc_gap").is_none() && flow["tcp"].get("ts_gap").is_none(), "{flow}");
    }
    let stats = whole_events(folder, "stats");
    let last = &stats.last().unwrap()["stats"];
    assert_eq!(last["tcp"]["invalid_checksum"], 0, "{last}");
}

#[test]
fn a_tap_beside_a_host_with_offloads_misses_nothing() {
    const NAME: &str = "a_tap_beside_a_host_with_offloads_misses_nothing";
    if role().as_deref() == Some("server") {
        return server("v1");
    }
    in_namespace(NAME, || {
        for workers in ["1", "2"] {
            tap(NAME, workers);
        }
    });
}

#[test]
fn a_tap_with_a_snap_length_counts_what_was_on_the_wire() {
    const NAME: &str = "a_tap_with_a_snap_length_counts_what_was_on_the_wire";
    if role().as_deref() == Some("server") {
        return server("v1");
    }
    in_namespace(NAME, || {
        let has_pcap = bartizan_ports::PacketFilter::compile("ip", 1).is_ok();
        let filters = [None, Some("tcp port 80")];
        for filter in filters.into_iter().filter(|filter| filter.is_none() || has_pcap) {
            for (workers, snap) in [
                ("1", ("128", "128 bytes of each frame")),
                ("2", ("layer4+64", "the headers up to layer4 and 64 bytes after them of each frame")),
            ] {
                snap_length(NAME, workers, snap, filter);
            }
        }
    });
}

/// The counts and states in the records of TCP flows, in order.
fn flows_of(folder: &Folder) -> Vec<String> {
    let flows = whole_events(folder, "flow");
    let keys = ["src_ip", "src_port", "dest_ip", "dest_port"];
    let counts = ["pkts_toserver", "pkts_toclient", "bytes_toserver", "bytes_toclient", "state"];
    let of = |flow: &Value| {
        let counted = counts.map(|key| flow["flow"][key].clone());
        format!("{:?} {counted:?} {}", keys.map(|key| flow[key].clone()), flow["tcp"]["state"])
    };
    let mut flows: Vec<_> = flows.iter().filter(|flow| flow["proto"] == "TCP").map(of).collect();
    flows.sort_unstable();
    flows
}

/// Two programs on one interface, one of them with a snap length: their flow records are the same.
fn snap_length(name: &str, workers: &str, (snap, said): (&str, &str), filter: Option<&str>) {
    let (whole, cut) = (Folder::new(), Folder::new());
    let host = Host::start(name, "server", &whole.path("done"));
    run("ip link add v0 type veth peer name v1");
    run(&format!("ip link set v1 netns {}", host.0.id()));
    configure("v0", 1);
    let start = |folder: &Folder, more: &[&str]| {
        folder.write("r.rules", RULES);
        let usual = ["run", "--tap", "v0", "--rules", "r.rules", "--out", "o", "--workers", workers];
        let mut command = Command::new(PROGRAM);
        command.current_dir(&folder.0).args(usual).args(["--control", "none", "--cache", "none"]);
        command.args(filter.iter().flat_map(|filter| ["--filter", *filter])).args(more);
        let program = Running::start(&mut command);
        program.until("running on v0");
        program
    };
    let programs = [start(&whole, &[]), start(&cut, &["--snap-length", snap])];
    until("the server", || TcpStream::connect((SERVERS[1], 80)).is_ok());
    for server in SERVERS {
        ask(server);
        assert!(fetch(server, "/evil") > 2 && fetch(server, "/large") > LARGE);
    }
    // The kernel shows what came last up to two retire times later (10 ms each).
    std::thread::sleep(Duration::from_millis(200));
    let [of_whole, of_cut] = programs.map(Running::stop);
    assert_eq!((of_whole.code, of_cut.code), (Some(0), Some(0)), "{of_whole:?} {of_cut:?}");
    let note = format!("note: {said} are inspected (snap-length)");
    assert!(of_cut.stderr.contains(&note), "{}", of_cut.stderr);
    let flows = flows_of(&cut);
    assert_eq!(flows, flows_of(&whole));
    let large = |flow: &Value| flow["flow"]["bytes_toclient"].as_u64() > Some(LARGE as u64);
    let large: Vec<_> = whole_events(&cut, "flow").into_iter().filter(large).collect();
    assert!(large.len() == 2 && large.iter().all(|flow| flow["tcp"]["state"] == "closed"), "{flows:#?}");
    // Requests are whole; of answers headers are there, and their bodies are gaps.
    let requests = whole_events(&cut, "alert");
    assert_eq!(requests.iter().filter(|alert| alert["alert"]["signature_id"] == 1).count(), 2);
    assert!(requests.iter().all(|alert| alert["alert"]["signature_id"] != 3), "{requests:?}");
    let last = whole_events(&cut, "stats").pop().unwrap();
    // Of ports that were cut as well, octets are those of the wire.
    let of_port = |folder: &Folder| {
        whole_events(folder, "stats").pop().unwrap()["bartizan"]["stats"]["ports"]["v0"].clone()
    };
    assert_eq!(of_port(&cut)["in"]["unicast"], of_port(&whole)["in"]["unicast"]);
    assert!(of_port(&cut)["in"]["octets"].as_u64() > Some(2 * LARGE as u64), "{}", of_port(&cut));
    let (stats, own) = (&last["stats"], &last["bartizan"]["stats"]["capture"]);
    let counted = own["cut"].as_u64().unwrap();
    assert!(counted >= 4, "{own}");
    assert!(of_cut.stdout.contains(&format!(", {counted} cut\n")), "{}", of_cut.stdout);
    assert_eq!((&stats["decoder"]["invalid"], &stats["tcp"]["invalid_checksum"]), (&0.into(), &0.into()));
    assert_eq!(whole_events(&whole, "stats").pop().unwrap()["bartizan"]["stats"]["capture"]["cut"], 0);
    assert!(!of_whole.stdout.contains(" cut"), "{}", of_whole.stdout);
    run("ip link delete v0");
}

#[test]
fn inline_between_hosts_with_offloads_all_arrives_and_is_seen() {
    const NAME: &str = "inline_between_hosts_with_offloads_all_arrives_and_is_seen";
    match role().as_deref() {
        Some("server") => return server("b0"),
        Some("client") => return client("a0"),
        _ => {}
    }
    in_namespace(NAME, || {
        for workers in ["1", "2"] {
            inline(NAME, workers);
        }
    });
}

/// Fetches all pages over both IP versions.
fn client(device: &str) {
    configure(device, 1);
    until("the server", || TcpStream::connect((SERVERS[1], 80)).is_ok());
    for server in SERVERS {
        ask(server);
        assert!(fetch(server, "/evil") > 2 && fetch(server, "/large") > LARGE);
    }
    std::fs::write(std::env::var_os(DONE).unwrap(), "").unwrap();
    // Its interface goes with it: not before the program has ended.
    let _ = std::io::stdin().read(&mut [0]);
}

fn inline(name: &str, workers: &str) {
    let folder = Folder::new();
    let done = folder.path("done");
    let server = Host::start(name, "server", &done);
    let client = Host::start(name, "client", &done);
    for (side, host) in [("a", &client), ("b", &server)] {
        run(&format!("ip link add {side}0 type veth peer name {side}1"));
        sysctl(&format!("net.ipv6.conf.{side}1.disable_ipv6"), "1");
        run(&format!("ip link set {side}1 up"));
        run(&format!("ip link set {side}0 netns {}", host.0.id()));
    }
    folder.write("r.rules", RULES);
    let program = Running::start(Command::new(PROGRAM).current_dir(&folder.0).args([
        "run",
        "--inline",
        "a1",
        "b1",
        "--rules",
        "r.rules",
        "--out",
        "o",
        "--workers",
        workers,
        "--set",
        "stats.interval=1",
    ]));
    program.until("running on a1-b1");
    until("the client", || done.exists());
    let ended = program.stop();
    check(&folder, &ended);
    let stats = whole_events(&folder, "stats");
    let own = &stats.last().unwrap()["bartizan"]["stats"]["normaliser"];
    // What senders left to their devices was done here.
    assert!(own["checksums"].as_u64() > Some(10) && own["cut"].as_u64() > Some(0), "{own}");
    assert!(own["pieces"].as_u64() > own["cut"].as_u64(), "{own}");
    for end in ["a1", "b1"] {
        run(&format!("ip link delete {end}"));
    }
}

fn tap(name: &str, workers: &str) {
    let folder = Folder::new();
    let host = Host::start(name, "server", &folder.path("done"));
    run("ip link add v0 type veth peer name v1");
    run(&format!("ip link set v1 netns {}", host.0.id()));
    configure("v0", 1);
    folder.write("r.rules", RULES);
    let program = Running::start(Command::new(PROGRAM).current_dir(&folder.0).args([
        "run",
        "--tap",
        "v0",
        "--rules",
        "r.rules",
        "--out",
        "o",
        "--workers",
        workers,
        "--set",
        "stats.interval=1",
    ]));
    program.until("running on v0");
    until("the server", || TcpStream::connect((SERVERS[1], 80)).is_ok());
    for server in SERVERS {
        ask(server);
        assert!(fetch(server, "/evil") > 2 && fetch(server, "/large") > LARGE);
    }
    until("two events of type stats", || whole_events(&folder, "stats").len() >= 2);
    let ended = program.stop();
    check(&folder, &ended);
    // The senders left checksums to their device, and frames larger than the MTU came whole.
    let stats = whole_events(&folder, "stats");
    let last = stats.last().unwrap();
    assert!(last["bartizan"]["stats"]["capture"]["checksum_pending"].as_u64() > Some(10), "{last}");
    assert!(last["stats"]["decoder"]["max_pkt_size"].as_u64() > Some(1_514), "{last}");
    let capture = &last["stats"]["capture"];
    assert!(capture["kernel_packets"].as_u64() >= last["stats"]["decoder"]["pkts"].as_u64(), "{last}");
    assert_eq!(capture["kernel_drops"], 0);
    // Each event is later than the one before, on the packet clock and by its uptime.
    let uptimes: Vec<u64> = stats.iter().map(|e| e["stats"]["uptime"].as_u64().unwrap()).collect();
    assert!(uptimes.is_sorted() && uptimes[1] >= 1, "{uptimes:?}");
    assert!(stats.is_sorted_by_key(|e| e["timestamp"].as_str().unwrap().to_owned()));
    assert!(stats[0]["stats"]["detect"]["engines"][0]["rules_loaded"] == 3, "{}", stats[0]);
    // An answer comes from the server: live packets have no number, and are packets all the same.
    let messages = whole_events(&folder, "dns");
    assert_eq!(messages.len(), 4, "{messages:?}");
    for message in messages {
        let from_server = message["src_port"] == 53;
        assert_eq!(message["dns"]["type"] == "response", from_server, "{message}");
    }
    run("ip link delete v0");
}
