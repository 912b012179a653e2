// SPDX-License-Identifier: Apache-2.0
//! `bartizan run --workers 2` between network namespaces (needs root; without, it prints so and returns): TCP
//! arrives whole, a numbered UDP stream in order, sums are exact, reloads under traffic lose nothing.
//!
//! Programs in other namespaces are this test again, with a role in the environment.

use bartizan_ports::OffloadGuard;
use bartizan_testkit::namespace::only;
use bartizan_testkit_worker::events;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "BARTIZAN_TEST_ROLE";
const TCP_STREAMS: usize = 6;
/// Bytes of a TCP connection, each way.
const TCP_BYTES: usize = 3 << 20;
const UDP_STREAMS: u16 = 6;
const UDP_PACKETS: u32 = 4_000;
const PORT: u16 = 5_000;
const LIMIT: Duration = Duration::from_secs(60);

/// Byte `at` of connection `index`'s data.
fn byte(index: usize, at: usize) -> u8 {
    (at.wrapping_mul(31).wrapping_add(at >> 8).wrapping_add(index * 7)) as u8
}

fn server_address(v6: bool, port: u16) -> SocketAddr {
    let v4 = IpAddr::from([10, 77, 0, 2]);
    SocketAddr::new(if v6 { IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2)) } else { v4 }, port)
}

/// Echoes data that arrives by TCP and UDP until standard input ends.
fn server() {
    let _offloads = OffloadGuard::switch_off("inside");
    for v6 in [false, true] {
        let listener = TcpListener::bind(server_address(v6, PORT)).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                std::thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    let mut buffer = vec![0; 64 << 10];
                    while let Ok(got @ 1..) = stream.read(&mut buffer) {
                        stream.write_all(&buffer[..got]).unwrap();
                    }
                });
            }
        });
        let socket = UdpSocket::bind(server_address(v6, PORT)).unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok((got, from)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(&buffer[..got], from);
            }
        });
    }
    println!("ready");
    let _ = std::io::stdin().read(&mut [0]);
}

fn tcp(index: usize) {
    let mut stream = TcpStream::connect(server_address(index % 2 == 1, PORT)).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut reader = stream.try_clone().unwrap();
    let back = std::thread::spawn(move || {
        let mut got = Vec::with_capacity(TCP_BYTES);
        reader.read_to_end(&mut got).unwrap();
        got
    });
    let data: Vec<u8> = (0..TCP_BYTES).map(|at| byte(index, at)).collect();
    for piece in data.chunks(10_000) {
        stream.write_all(piece).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(back.join().unwrap() == data, "connection {index}: other bytes than were sent");
}

/// Bytes of a stream's packet; the last two streams travel in fragments.
fn size(index: u16, number: u32) -> usize {
    let more = if index + 2 < UDP_STREAMS { 0 } else { 2000 };
    60 + more + number as usize % 1000
}

/// Sends a numbered stream; its echoes must be in order. Returns the number of packets that came back.
fn udp(index: u16) -> u32 {
    let v6 = index % 2 == 1;
    let any = if v6 { IpAddr::from(Ipv6Addr::UNSPECIFIED) } else { IpAddr::from([0, 0, 0, 0]) };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).unwrap();
    socket.connect(server_address(v6, PORT)).unwrap();
    // Only a lost packet takes so long: a shorter time would open the window on a busy machine.
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut next = 0u32;
    let mut received = 0;
    let mut buffer = [0; 4096];
    let mut take = |socket: &UdpSocket| {
        let Ok(got) = socket.recv(&mut buffer) else { return false };
        let number = u32::from_be_bytes(buffer[..4].try_into().unwrap());
        assert!(number >= next, "stream {index}: {number} after {}", next.wrapping_sub(1));
        assert_eq!(got, size(index, number));
        next = number + 1;
        received += 1;
        next < UDP_PACKETS
    };
    for number in 0..UDP_PACKETS {
        let mut packet = vec![7; size(index, number)];
        packet[..4].copy_from_slice(&number.to_be_bytes());
        socket.send(&packet).unwrap();
        // A small window: three streams meet at one socket of the server, whose buffer holds some 90 packets.
        if number >= 8 {
            take(&socket);
        }
    }
    while take(&socket) {}
    received
}

fn client() {
    let _offloads = OffloadGuard::switch_off("inside");
    // Hosts know each other before the streams begin: the kernel reorders packets that wait for a hardware
    // address.
    for index in [0, 1] {
        let mut stream = TcpStream::connect(server_address(index % 2 == 1, PORT)).unwrap();
        stream.write_all(b"x").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 1);
    }
    let tcp: Vec<_> = (0..TCP_STREAMS).map(|index| std::thread::spawn(move || tcp(index))).collect();
    let udp: Vec<_> = (0..UDP_STREAMS).map(|index| std::thread::spawn(move || udp(index))).collect();
    let received: u32 = udp.into_iter().map(|thread| thread.join().unwrap()).sum();
    tcp.into_iter().for_each(|thread| thread.join().unwrap());
    println!("udp {received} of {}", UDP_PACKETS * u32::from(UDP_STREAMS));
}

/// Runs this test again in a role in a namespace.
#[test]
fn role() {
    match std::env::var(ROLE).as_deref() {
        Ok("server") => server(),
        Ok("client") => client(),
        _ => {}
    }
}

/// Three namespaces in a row; removed when dropped, with their programs.
struct Net {
    prefix: String,
    folder: PathBuf,
    children: Vec<Child>,
}

impl Net {
    fn name(&self, which: &str) -> String {
        format!("{}-{which}", self.prefix)
    }

    fn ip(&self, arguments: &str) {
        let arguments = arguments.replace('@', &self.prefix);
        let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
        assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// A program in a namespace.
    fn command(&self, which: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(which), program]);
        command
    }

    fn role(&self, which: &str) -> Command {
        let mut command = self.command(which, std::env::current_exe().unwrap().to_str().unwrap());
        command.args(only("role")).env(ROLE, which);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        command
    }

    fn new() -> Self {
        let prefix = format!("btzw{}", std::process::id());
        let folder = std::env::temp_dir().join(&prefix);
        fs::create_dir_all(&folder).unwrap();
        let net = Net { prefix, folder, children: Vec::new() };
        for which in ["client", "middle", "server"] {
            net.ip(&format!("netns add @-{which}"));
        }
        for (which, port, host) in [("client", "left", 1), ("server", "right", 2)] {
            net.ip(&format!(
                "-n @-{which} link add inside type veth peer name {port} netns {}",
                net.name("middle")
            ));
            net.ip(&format!("-n @-{which} addr add 10.77.0.{host}/24 dev inside"));
            net.ip(&format!("-n @-{which} addr add fd77::{host}/64 dev inside nodad"));
            net.ip(&format!("-n @-{which} link set inside up"));
            net.ip(&format!("-n @-middle link set {port} up"));
        }
        net
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        for which in ["client", "middle", "server"] {
            let _ = Command::new("ip").args(["netns", "del", &self.name(which)]).output();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn can_run() -> bool {
    let root = Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout.trim_ascii() == b"0");
    if !root {
        eprintln!("needs root: not run (network namespaces and packet sockets)");
        return false;
    }
    let probe = format!("btzp{}", std::process::id());
    let there = Command::new("ip").args(["netns", "add", &probe]).output();
    let _ = Command::new("ip").args(["netns", "del", &probe]).output();
    let there = there.is_ok_and(|output| output.status.success());
    if !there {
        eprintln!("needs `ip netns`: not run (apt-get install iproute2)");
    }
    there
}

/// The process itself; the `ip` before it executes it.
fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

fn wait(mut child: Child, what: &str) -> Output {
    let end = Instant::now() + LIMIT;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            eprintln!("{what}: not within {LIMIT:?}");
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

/// A number of the summary, before the word `what`.
fn number(summary: &str, what: &str) -> u64 {
    let at = summary.find(what).unwrap_or_else(|| panic!("no `{what}` in {summary}"));
    summary[..at].split_whitespace().last().unwrap().trim_end_matches(',').parse().unwrap()
}

#[test]
fn two_workers_share_a_link_and_lose_and_reorder_nothing() {
    if !can_run() {
        return;
    }
    let mut net = Net::new();
    let rules = net.folder.join("test.rules");
    fs::write(
        &rules,
        "alert udp any any -> any 5000 (msg:\"stream\"; content:\"|00 00 0f 9f|\"; startswith; sid:1;)\n",
    )
    .unwrap();
    let out = net.folder.join("out");
    let program = net
        .command("middle", env!("CARGO_BIN_EXE_bartizan"))
        .args(["run", "--inline", "left", "right", "--workers", "2", "--fix-offloads"])
        .arg("--rules")
        .arg(&rules)
        .arg("--out")
        .arg(&out)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    net.children.push(program);
    let mut told = BufReader::new(net.children[0].stderr.take().unwrap()).lines();
    let mut log = Vec::new();
    while !log.last().is_some_and(|line: &String| line.starts_with("running on")) {
        log.push(told.next().unwrap_or_else(|| panic!("it did not begin: {log:?}")).unwrap());
    }
    let rest = std::thread::spawn(move || told.map_while(Result::ok).collect::<Vec<_>>());
    let mut server = net.role("server").spawn().unwrap();
    let ready = BufReader::new(server.stdout.take().unwrap())
        .lines()
        .find(|l| l.as_ref().is_ok_and(|l| l.ends_with("ready")));
    net.children.push(server);
    assert!(ready.is_some());
    let client = net.role("client").spawn().unwrap();
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(100));
        signal(&net.children[0], "USR2");
    }
    let client = wait(client, "the client");
    let program = net.children.remove(0);
    signal(&program, "TERM");
    let ended = wait(program, "the program");
    let summary = String::from_utf8_lossy(&ended.stdout).into_owned();
    let log = rest.join().unwrap();
    assert!(ended.status.success(), "{summary} {log:?}");
    eprintln!("{summary}");
    let said = String::from_utf8_lossy(&client.stdout).into_owned();
    assert!(client.status.success(), "{said}");
    let line = said.lines().find_map(|l| l.split("udp ").nth(1)).unwrap().to_owned();
    let (got, sent) = line.split_once(" of ").unwrap();
    let stats = fs::read_to_string(out.join("stats.json")).unwrap();
    check_streams(got.parse().unwrap(), sent.parse().unwrap(), &stats);
    check_sums(&summary, &stats);
    assert!(log.iter().filter(|l| l.starts_with("generation")).count() >= 5, "{log:?}");
    check_events(&fs::read_to_string(out.join("eve.json")).unwrap());
}

/// No packet of the streams is lost, except those whose id their host chose twice within the time that ids
/// are remembered. Linux draws ids of IPv6 at random from 32 bits: two of 4,000 are equal in one run of 500.
/// Each such packet came in two or three fragments.
fn check_streams(got: u64, sent: u64, stats: &str) {
    let stats: serde_json::Value = serde_json::from_str(stats).unwrap();
    let reused = stats["defrag.dropped.reused"].as_u64().unwrap();
    let lost = sent - got;
    assert!(
        (2 * lost..=3 * lost).contains(&reused),
        "{lost} of {sent} lost, {reused} fragments of reused ids"
    );
}

fn check_sums(summary: &str, stats: &str) {
    assert!(!summary.contains("do not agree"), "{summary}");
    let (frames, forwarded) = (number(summary, " frames,"), number(summary, " forwarded,"));
    assert_eq!(frames, forwarded + number(summary, " refused, "), "{summary}");
    assert!(frames > u64::from(UDP_PACKETS) * u64::from(UDP_STREAMS) * 2, "{summary}");
    for port in ["left", "right"] {
        let line = summary.lines().find(|l| l.starts_with(port)).unwrap();
        assert_eq!(number(line, " dropped in the ring"), 0, "{summary}");
        assert!(number(line, " received") > 10_000, "{summary}");
    }
    let stats: serde_json::Value = serde_json::from_str(stats).unwrap();
    let value = |name: &str| stats[name].as_u64().unwrap_or_else(|| panic!("no {name} in {stats}"));
    assert_eq!(value("decoder.pkts"), frames);
    assert_eq!(value("flow.handed_over"), value("flow.hand_over_taken"));
    assert_eq!((value("flow.hand_over_refused"), value("hand_over.under_way")), (0, 0));
    assert_eq!(value("events.ring.lost"), 0);
    // Whole packets arrive at their owner; only fragments are handed over.
    let fragments = value("defrag.ipv4.fragments") + value("defrag.ipv6.fragments");
    assert!(fragments > u64::from(UDP_PACKETS) * 2 * 2 * 2, "{fragments}");
    assert!(value("flow.handed_over") <= fragments, "{} of {fragments}", value("flow.handed_over"));
}

fn check_events(eve: &str) {
    let events = events::parse(eve);
    // TCP may see a refusal: where the kernel moves a program to another processor, segments overtake each
    // other with an older timestamp (RFC 7323, PAWS).
    let refused = events::of_type(&events, "drop").filter(|e| e["proto"] != "TCP").count();
    assert_eq!(refused, 0, "nothing gives reason to refuse anything else");
    let flows = |proto: &'static str| {
        events::of_type(&events, "flow").filter(move |e| e["proto"] == proto && e["dest_port"] == PORT)
    };
    assert_eq!((flows("TCP").count(), flows("UDP").count()), (TCP_STREAMS + 2, usize::from(UDP_STREAMS)));
    let alerts = events::of_type(&events, "alert").count();
    assert_eq!(alerts, usize::from(UDP_STREAMS), "the last packet of each stream");
    let packets: u64 = flows("UDP").map(|e| e["flow"]["pkts_toserver"].as_u64().unwrap()).sum();
    assert_eq!(packets, u64::from(UDP_PACKETS) * u64::from(UDP_STREAMS));
}
