// SPDX-License-Identifier: Apache-2.0
//! Redirected flows of all kinds: connections of both directions, fragments, flows that are bypassed as well,
//! hosts in namespaces of their own, and packets that come back from the port, with the XDP level below and
//! without (needs root; without, it prints so and returns).

use crate::command_socket;
use crate::common;
use crate::level;
use crate::namespace;
use crate::windows::own_network;

use bartizan_ports::{InlinePort, stay_on_processor};
use bartizan_testkit::packet::{self, Datagram, Ip};
use bartizan_testkit_worker::events;
use command_socket::{Client, ready};
use common::{Folder, PROGRAM, Running, address};
use level::{beside_each_other, counter, datagrams, ends, ends_well, network, number, quiet, send, take};
use namespace::ip;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
const OFFLOAD: &str = ", offload: {level: xdp, entries: 1024, stale: 30s}";
const REDIRECT: &str = "{redirect: [tcp, udp], to-ports: 4000, egress: trap}";

fn policy(chain: &str, rule: &str) -> String {
    let ids = if chain.contains("ids") { ", ids: {rules: [local.rules]}" } else { "" };
    format!(
        "policies: [{{name: all, from: any, to: any, chain: {chain}, pfw: {{default: allow, rules: [{rule}]}}{ids}}}]\n\
         default: {{action: drop}}\n"
    )
}

fn start(folder: &Folder, workers: u16, offload: &str, policy: &str) -> Running {
    folder.write("policy.yaml", policy);
    folder.write("local.rules", "pass udp any any -> any 4000 (msg:\"known\"; bypass; sid:1;)\n");
    folder.write(
        "bartizan.yaml",
        format!(
            "links: [{{name: wan, inline: {{a: a1, b: b1{offload}}}, workers: {workers}}}]\n\
             ports: [{{name: trap, interface: x1}}]\n\
             policy: policy.yaml\ncache: none\noutputs: {{eve: {{dir: out}}}}\ncontrol: {{socket: c.socket}}\n"
        ),
    );
    let mut command = Command::new(PROGRAM);
    let running = Running::start(command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
    ready(folder, &running);
    running
}

fn flows(folder: &Folder) -> Vec<Value> {
    let mut events = events::read(&folder.path("out/eve.json"));
    events.retain(|event| event["event_type"] == "flow");
    events
}

/// Time for a turn of a worker, also of a sleeping one.
fn turn() {
    std::thread::sleep(Duration::from_millis(300));
}

/// Runs a test at the host and with the level below.
fn everywhere(test: fn(u16, &str)) {
    beside_each_other([(1, ""), (2, OFFLOAD)], move |(workers, offload)| test(workers, offload));
}

fn segment(v6: bool, side: usize, numbers: (u32, u32), flags: u8, size: usize) -> Vec<u8> {
    let (client, server) = ((address(v6, 1), 40_000), (address(v6, 2), 4000));
    let (from, to) = if side == 0 { (client, server) } else { (server, client) };
    packet::tcp(from, to, numbers, flags, &vec![7; size]).frame()
}

/// Two connections, one that ends by FINs and one by a reset: all segments of both sides leave by the port,
/// and none crosses the link.
#[test]
fn connections_leave_by_their_port_from_their_first_segment_to_their_last() {
    everywhere(connections);
}

fn connections(workers: u16, offload: &str) {
    let folder = Folder::new();
    let [mut client, mut server] = network(1500);
    let [mut trap, _spare] = ends(["x", "y"], 1500);
    let running = start(&folder, workers, offload, &policy("[pfw]", REDIRECT));
    assert!(stay_on_processor(0));
    let mut asks = Client::greeted(&folder.path("c.socket"));
    let mut at = [101, 501];
    let mut sent = [[0; 2]; 2];
    let mut go =
        |client: &mut InlinePort, server: &mut InlinePort, v6: bool, side: usize, numbers, flags, size| {
            let port = if side == 0 { client } else { server };
            send(port, &[segment(v6, side, numbers, flags, size)]);
            assert_eq!(take(&mut trap, 1), 1, "{side} {numbers:?} {flags}");
            sent[usize::from(v6)][side] += 1;
        };
    for v6 in [false, true] {
        go(&mut client, &mut server, v6, 0, (100, 0), SYN, 0);
        go(&mut client, &mut server, v6, 1, (500, 101), SYN | ACK, 0);
        go(&mut client, &mut server, v6, 0, (101, 501), ACK, 0);
        turn();
    }
    for round in 0..20u32 {
        for v6 in [false, true] {
            go(&mut client, &mut server, v6, 0, (at[0], at[1]), ACK, 100);
            go(&mut client, &mut server, v6, 1, (at[1], at[0] + 100), ACK, 900);
        }
        (at[0], at[1]) = (at[0] + 100, at[1] + 900);
        if round < 2 {
            turn();
        }
    }
    for flow in ["192.0.2.1:40000 192.0.2.2:4000", "[2001:db8::1]:40000"] {
        let told = asks.ok("explain-flow", json!({ "flow": flow }));
        let told = &told["flows"][0];
        assert_eq!(told["egress"], "trap", "{told}");
        assert_eq!(told["level"], if offload.is_empty() { "host" } else { "xdp" }, "{told}");
    }
    go(&mut client, &mut server, false, 1, (at[1], at[0]), FIN | ACK, 10);
    go(&mut client, &mut server, false, 0, (at[0], at[1] + 11), ACK, 0);
    go(&mut client, &mut server, false, 0, (at[0], at[1] + 11), FIN | ACK, 0);
    go(&mut client, &mut server, false, 1, (at[1] + 11, at[0] + 1), ACK, 0);
    go(&mut client, &mut server, true, 0, (at[0], at[1]), RST | ACK, 0);
    for other in [&mut client, &mut server, &mut trap] {
        assert!(quiet(other), "nothing went elsewhere");
    }
    ends_well(running);
    let flows = flows(&folder);
    assert_eq!(flows.len(), 2, "{flows:?}");
    for flow in &flows {
        let v6 = flow["src_ip"].as_str().is_some_and(|address| address.contains(':'));
        let packets = ["pkts_toserver", "pkts_toclient"].map(|key| number(&flow["flow"][key]));
        assert_eq!(packets, sent[usize::from(v6)], "{flow}");
        assert_eq!(
            (&flow["bartizan"]["egress"], &flow["tcp"]["state"]),
            (&json!("trap"), &json!("closed")),
            "{flow}"
        );
        assert_eq!(
            (&flow["tcp"]["fin"], &flow["tcp"]["rst"]),
            if v6 { (&Value::Null, &json!(true)) } else { (&json!(true), &Value::Null) },
            "{flow}"
        );
        let below = &flow["bartizan"]["levels"]["xdp"];
        let below = number(&below["pkts_toserver"]) + number(&below["pkts_toclient"]);
        assert_eq!(below >= 34, !offload.is_empty(), "{flow}");
    }
    assert_eq!((counter(&folder, "ips.blocked"), counter(&folder, "offload.orphan_pkts")), (0, 0));
}

/// A datagram in fragments, in order and reversed; the level passes them up, and they leave unchanged.
#[test]
fn fragments_leave_by_the_port_of_their_datagram() {
    everywhere(fragments);
}

fn fragments(workers: u16, offload: &str) {
    let folder = Folder::new();
    let [mut client, mut server] = network(1500);
    let [mut trap, _spare] = ends(["x", "y"], 1500);
    let running = start(&folder, workers, offload, &policy("[pfw]", REDIRECT));
    let mut datagrams = 0;
    for round in 0..6u32 {
        for v6 in [false, true] {
            let mut header = Ip::new(address(v6, 1), address(v6, 2), packet::UDP);
            header.id = 77 + round;
            let whole = Datagram::new((40_000, 4000), &[7; 2_000]).bytes(&header);
            let mut parts = header.fragment_frames(&whole, 800);
            if round % 2 == 1 {
                parts.reverse();
            }
            send(&mut client, &parts[..parts.len() - 1]);
            send(&mut client, &parts[parts.len() - 1..]);
            assert_eq!(take(&mut trap, parts.len()), parts.len(), "{round} {v6}");
            // And whole ones of the same flow, which go below.
            let one = packet::udp((address(v6, 1), 40_000), (address(v6, 2), 4000), b"whole").frame();
            send(&mut client, &[one]);
            assert_eq!(take(&mut trap, 1), 1, "{round} {v6}");
        }
        datagrams += 2;
        turn();
    }
    for other in [&mut client, &mut server, &mut trap] {
        assert!(quiet(other));
    }
    ends_well(running);
    let flows = flows(&folder);
    assert_eq!(flows.len(), 2, "{flows:?}");
    for flow in &flows {
        assert_eq!(number(&flow["flow"]["pkts_toserver"]), datagrams, "{flow}");
        assert_eq!(flow["bartizan"]["egress"], "trap", "{flow}");
        assert_eq!(
            number(&flow["bartizan"]["levels"]["xdp"]["pkts_toserver"]) > 2,
            !offload.is_empty(),
            "{flow}"
        );
    }
}

/// A flow that is bypassed as well is redirected all the same, also after a reload; only a reload without its
/// rule ends the redirect.
#[test]
fn a_bypassed_flow_is_redirected_until_a_reload_takes_its_rule_away() {
    everywhere(bypassed);
}

fn bypassed(workers: u16, offload: &str) {
    let folder = Folder::new();
    let [mut client, mut server] = network(1500);
    let [mut trap, _spare] = ends(["x", "y"], 1500);
    let running = start(&folder, workers, offload, &policy("[pfw, ids]", REDIRECT));
    let mut rounds = 0;
    for (generation, rule) in [(1, REDIRECT), (2, REDIRECT), (3, "{allow: udp}"), (4, REDIRECT)] {
        if generation > 1 {
            folder.write("policy.yaml", policy("[pfw, ids]", rule));
            running.signal("USR2");
            running.until(&format!("generation {generation}"));
        }
        for round in 0..6 {
            send(&mut client, &datagrams(4000, &[7; 400]));
            let (to, other) =
                if rule == REDIRECT { (&mut trap, &mut server) } else { (&mut server, &mut trap) };
            assert_eq!(take(to, 8), 8, "{generation} {round}");
            if round < 3 {
                turn();
            }
            if round == 5 {
                assert!(quiet(other), "{generation}");
            }
            rounds += 1;
        }
    }
    ends_well(running);
    let flows = flows(&folder);
    assert_eq!(flows.len(), 8, "{flows:?}");
    for flow in &flows {
        assert_eq!(number(&flow["flow"]["pkts_toserver"]), rounds, "{flow}");
        assert_eq!(flow["bartizan"]["egress"], "trap", "{flow}");
        assert_eq!(
            number(&flow["bartizan"]["levels"]["xdp"]["pkts_toserver"]) >= 3,
            !offload.is_empty(),
            "{flow}"
        );
    }
}

/// A host in a network namespace of its own, which lives until this is dropped: its end of a pair goes with
/// it.
struct Host<T> {
    gives: mpsc::Receiver<T>,
    _stays: mpsc::Sender<()>,
}

impl<T> Host<T> {
    /// The result of the host's task.
    fn given(&self) -> T {
        self.gives.recv().expect("what the host was to do")
    }
}

/// A host with this end of a pair, address and hardware address, and with its neighbour's in its tables;
/// `task` runs in a thread of its namespace.
fn host<T: Send + 'static>(
    device: &'static str,
    (own, other): (u8, u8),
    act: impl FnOnce(&dyn Fn()) -> T + Send + 'static,
) -> Host<T> {
    let (say, hear) = mpsc::channel();
    let (there, wait) = mpsc::channel::<()>();
    let (give, gives) = mpsc::channel();
    let (stays, goes) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        say.send(own_network()).unwrap();
        wait.recv().unwrap();
        ip("link set dev lo up");
        ip(&format!("addr add 192.0.2.{own}/24 dev {device}"));
        ip(&format!("link set {device} address 02:00:00:00:00:0{own} up"));
        ip(&format!(
            "neigh replace 192.0.2.{other} lladdr 02:00:00:00:00:0{other} dev {device} nud permanent"
        ));
        give.send(act(&|| say.send(0).unwrap())).unwrap();
        let _ = goes.recv();
    });
    let id = hear.recv().unwrap();
    ip(&format!("link set {device} netns {id}"));
    there.send(()).unwrap();
    hear.recv().unwrap();
    Host { gives, _stays: stays }
}

/// Real hosts: a client, the gateway, and a sinkhole at the port that has the server's addresses. The
/// sinkhole gets all datagrams and the client's SYNs; its answers are dropped, since a named port receives
/// nothing, and the server sees no packet.
#[test]
fn a_sinkhole_has_the_traffic_and_its_answers_go_nowhere() {
    everywhere(sinkhole);
}

fn sinkhole(workers: u16, offload: &str) {
    const DATAGRAMS: u32 = 200;
    const PATIENCE: Duration = Duration::from_secs(20);
    let folder = Folder::new();
    let [client, mut server] = network(1500);
    let [trap, _spare] = ends(["x", "y"], 1500);
    drop((client, trap));
    let sinkhole = host("x0", (2, 1), |ready| {
        let socket = UdpSocket::bind((Ipv4Addr::new(192, 0, 2, 2), 4000)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        ready();
        let mut buffer = [0; 2_000];
        let mut came = Vec::new();
        while came.len() < DATAGRAMS as usize {
            let (length, from) = socket.recv_from(&mut buffer).expect("the next datagram");
            came.push(u32::from_be_bytes(buffer[..4].try_into().unwrap()));
            socket.send_to(&buffer[..length], from).unwrap();
        }
        // TCP segments that this host received.
        let snmp = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
        let tcp: Vec<&str> = snmp.lines().filter(|line| line.starts_with("Tcp:")).collect();
        let at = tcp[0].split(' ').position(|name| name == "InSegs").unwrap();
        (came, tcp[1].split(' ').nth(at).unwrap().parse::<u64>().unwrap())
    });
    let (go, begins) = mpsc::channel();
    let client = host("a0", (1, 2), move |ready| {
        ready();
        begins.recv().unwrap();
        let address = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 2), 4000));
        // The sinkhole refuses the connection; the client gets no notice.
        let refused = TcpStream::connect_timeout(&address, Duration::from_millis(1_500)).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::TimedOut, "{refused}");
        let socket = UdpSocket::bind((Ipv4Addr::new(192, 0, 2, 1), 40_000)).unwrap();
        for number in 0..DATAGRAMS {
            let mut load = vec![9; 500];
            load[..4].copy_from_slice(&number.to_be_bytes());
            socket.send_to(&load, address).unwrap();
            std::thread::sleep(Duration::from_millis(if number < 4 { 300 } else { 3 }));
        }
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        socket.recv_from(&mut [0; 2_000]).map_err(|error| error.kind()).map(|(length, _)| length)
    });
    let running = start(&folder, workers, offload, &policy("[pfw]", REDIRECT));
    go.send(()).unwrap();
    let answered = client.given();
    assert_eq!(answered, Err(std::io::ErrorKind::WouldBlock), "no answer comes back");
    let (came, segments) = sinkhole.given();
    assert_eq!(came, (0..DATAGRAMS).collect::<Vec<_>>(), "all have come, in their order");
    assert!(segments >= 1, "and a SYN at least");
    assert!(quiet(&mut server), "the server has seen nothing");
    ends_well(running);
    let flows = flows(&folder);
    let of =
        |protocol: &str| flows.iter().filter(|flow| flow["proto"] == protocol).cloned().collect::<Vec<_>>();
    let (datagrams, connections) = (of("UDP"), of("TCP"));
    assert_eq!((datagrams.len(), connections.len()), (1, 1), "{flows:?}");
    let packets = ["pkts_toserver", "pkts_toclient"].map(|key| number(&datagrams[0]["flow"][key]));
    assert_eq!(packets, [DATAGRAMS.into(), 0], "{datagrams:?}");
    let below = number(&datagrams[0]["bartizan"]["levels"]["xdp"]["pkts_toserver"]);
    assert_eq!(below >= 150, !offload.is_empty(), "{datagrams:?}");
    assert_eq!(connections[0]["tcp"]["state"], "syn_sent", "{connections:?}");
    // Others are what a host's own system says when a link comes.
    for flow in datagrams.iter().chain(&connections) {
        assert_eq!(flow["bartizan"]["egress"], "trap", "{flow}");
    }
}
