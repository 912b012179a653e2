// SPDX-License-Identifier: Apache-2.0
//! Connections under the stateful firewall with the XDP level below `bartizan run`: real hosts in namespaces
//! of their own, large transfers both ways, ends, resets, reused ports, and an attacker on the path who
//! forges segments (needs root; without, it prints so and returns).

use crate::common;
use crate::level;
use crate::namespace;

use bartizan_ports::{Batch, InlinePort, Port};
use bartizan_testkit::packet::{ACK, FIN, RST, SYN, tcp};
use bartizan_testkit_worker::events;
use common::{Folder, PROGRAM, Running};
use level::{counter, ends_well, network, number, send};
use namespace::{in_namespace_for, ip};
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::sync::{LazyLock, mpsc};
use std::time::Duration;

const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const PORT: u16 = 7_000;
/// Bytes of a connection, in each direction.
const AMOUNT: usize = 24 << 20;
/// The time limit of a test on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// The server's behaviour on a connection, chosen by the client's first byte.
const ECHO: u8 = b'e';
const RESET: u8 = b'r';

fn start(folder: &Folder, policy: &str) -> Running {
    folder.write("policy.yaml", policy);
    folder.write("local.rules", "");
    folder.write(
        "bartizan.yaml",
        "links: [{name: wan, inline: {a: a1, b: b1, offload: {level: xdp, entries: 1024, stale: 30s}}, workers: 2}]\n\
         policy: policy.yaml\ncache: none\noutputs: {eve: {dir: out}}\n",
    );
    let mut command = Command::new(PROGRAM);
    let running = Running::start(command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
    running.until("running on");
    running
}

#[allow(unsafe_code)]
pub fn own_network() -> i32 {
    // SAFETY: no pointers; both are about the calling thread only.
    unsafe {
        assert_eq!(libc::unshare(libc::CLONE_NEWNET), 0, "{}", std::io::Error::last_os_error());
        libc::gettid()
    }
}

/// Closing it resets the connection.
#[allow(unsafe_code)]
fn reset_at_end(stream: &TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: pointer and length describe `linger`, which lives through the call.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of_val(&linger) as libc::socklen_t,
        )
    };
    assert_eq!(set, 0);
}

/// The bytes sent, made once, because making them is slow.
static PATTERN: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..AMOUNT).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect());

/// Writes the pattern and reads it at the same time, to the end of both directions.
fn exchange(stream: &TcpStream) {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut sender = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            sender.write_all(&PATTERN).unwrap();
            sender.shutdown(Shutdown::Write).unwrap();
        });
        let (mut stream, mut at, mut buffer) = (stream, 0, vec![0; 1 << 16]);
        loop {
            let length = stream.read(&mut buffer).unwrap();
            if length == 0 {
                break;
            }
            assert!(PATTERN.get(at..at + length) == Some(&buffer[..length]), "near {at}");
            at += length;
        }
        assert_eq!(at, AMOUNT);
    });
}

fn serve(listener: &TcpListener, done: &mpsc::Sender<()>) {
    while let Ok((mut stream, _)) = listener.accept() {
        let mut what = [0];
        if stream.read_exact(&mut what).is_err() {
            continue;
        }
        match what[0] {
            ECHO => {
                let done = done.clone();
                drop(std::thread::spawn(move || {
                    exchange(&stream);
                    done.send(()).unwrap();
                }));
            }
            RESET => {
                stream.write_all(&vec![1; 300_000]).unwrap();
                reset_at_end(&stream);
            }
            _ => return,
        }
    }
}

/// The server's host, in a namespace of its own; signals when it has received and sent all data of a
/// connection.
fn server() -> mpsc::Receiver<()> {
    let (served, done) = mpsc::channel();
    let (say, hear) = mpsc::channel();
    let (there, wait) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        say.send(own_network()).unwrap();
        wait.recv().unwrap();
        ip(&format!("addr add {SERVER}/24 dev b0"));
        ip("link set b0 address 02:00:00:00:00:02 up");
        ip(&format!("neigh replace {CLIENT} lladdr 02:00:00:00:00:01 dev b0 nud permanent"));
        let listener = TcpListener::bind((SERVER, PORT)).unwrap();
        say.send(0).unwrap();
        serve(&listener, &served);
    });
    let thread = hear.recv().unwrap();
    ip(&format!("link set b0 netns {thread}"));
    there.send(()).unwrap();
    hear.recv().unwrap();
    done
}

/// Both hosts: the attacker's socket, and the channel that signals the end of a connection at the server.
fn hosts() -> (InlinePort, mpsc::Receiver<()>) {
    let [attacker, other] = network(1500);
    drop(other);
    let done = server();
    ip(&format!("addr add {CLIENT}/24 dev a0"));
    ip("link set a0 address 02:00:00:00:00:01");
    ip(&format!("neigh replace {SERVER} lladdr 02:00:00:00:00:02 dev a0 nud permanent"));
    // Few ports, so that they are used again.
    std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40003").unwrap();
    std::fs::write("/proc/sys/net/ipv4/tcp_tw_reuse", "1").unwrap();
    (attacker, done)
}

fn connect() -> TcpStream {
    let address = SocketAddr::from((SERVER, PORT));
    let end = std::time::Instant::now() + Duration::from_secs(30);
    loop {
        match TcpStream::connect_timeout(&address, Duration::from_secs(20)) {
            Ok(stream) => return stream,
            // All ports wait.
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable && std::time::Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Receives all frames that wait at a port.
fn waiting(port: &mut InlinePort) -> Vec<Vec<u8>> {
    let mut batch = Batch::with_capacity(256);
    let mut all = Vec::new();
    loop {
        port.receive(&mut batch).unwrap();
        let before = all.len();
        all.extend(batch.indices().filter_map(|at| batch.bytes(at)).map(<[u8]>::to_vec));
        if all.len() == before {
            return all;
        }
    }
}

/// The initial sequence numbers of both streams of a client's connection, from the server's answer to its
/// SYN.
fn beginnings(seen: &[Vec<u8>], client: u16) -> (u32, u32) {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
    let ports = [PORT.to_be_bytes(), client.to_be_bytes()].concat();
    let mut answers = seen.iter().filter_map(|frame| frame.get(34..)).filter(|tcp| {
        tcp.get(..4) == Some(&ports[..]) && tcp.get(13).is_some_and(|flags| u16::from(*flags) == SYN | ACK)
    });
    let answer = answers.next_back().expect("the answer to the SYN has come");
    (number(&answer[8..12]), number(&answer[4..8]).wrapping_add(1))
}

/// Forged segments in the client's name that their receiver does not accept: number and acknowledgement are
/// not both in its windows (256 MiB away at least; the windows stay far below that). A true receiver
/// answers a SYN at whatever number.
fn forged(client: u16, beginnings: (u32, u32), seed: u32) -> Vec<Vec<u8>> {
    let ends = ((CLIENT.into(), client), (SERVER.into(), PORT));
    let away = |from: u32, parts: u32| from.wrapping_add((parts & 15) << 28).wrapping_add(seed * 4_099);
    (0..16u32)
        .flat_map(|part| {
            let acknowledged = if part == 0 { 8 } else { part * 7 + seed };
            let numbers = (away(beginnings.0, part), away(beginnings.1, acknowledged));
            [RST, RST | ACK, ACK, FIN | ACK, SYN].map(|flags| {
                let load: &[u8] = if flags == ACK { b"forged" } else { b"" };
                tcp(ends.0, ends.1, numbers, flags as u8, load).frame()
            })
        })
        .collect()
}

fn flows(folder: &Folder) -> Vec<Value> {
    let mut events = events::read(&folder.path("out/eve.json"));
    events.retain(|event| event["event_type"] == "flow" && event["proto"] == "TCP");
    events
}

fn transfers(policy: &str) {
    let folder = Folder::new();
    let (mut attacker, done) = hosts();
    let running = start(&folder, policy);
    // One after the other, ports again and again; each ends by itself.
    for round in 0..6u32 {
        waiting(&mut attacker);
        let mut stream = connect();
        let port = stream.local_addr().unwrap().port();
        let beginnings = beginnings(&waiting(&mut attacker), port);
        stream.write_all(&[ECHO]).unwrap();
        std::thread::scope(|scope| {
            let transfer = scope.spawn(|| exchange(&stream));
            let mut seed = round * 1_000;
            while !transfer.is_finished() && seed < round * 1_000 + 20 {
                send(&mut attacker, &forged(port, beginnings, seed));
                seed += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        done.recv_timeout(PATIENCE).unwrap();
    }
    // Several at once; the server resets each second one in the middle.
    for _ in 0..4 {
        let mut pair = [connect(), connect()];
        pair[0].write_all(&[ECHO]).unwrap();
        pair[1].write_all(&[RESET]).unwrap();
        let [echo, mut reset] = pair;
        exchange(&echo);
        done.recv_timeout(PATIENCE).unwrap();
        let mut all = Vec::new();
        let end = reset.read_to_end(&mut all);
        assert!(end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset), "after {}", all.len());
    }
    // The last acknowledgements.
    std::thread::sleep(Duration::from_millis(300));
    ends_well(running);
    let flows = flows(&folder);
    let large: Vec<_> =
        flows.iter().filter(|flow| number(&flow["flow"]["bytes_toserver"]) > AMOUNT as u64).collect();
    assert_eq!(large.len(), 10, "{flows:?}");
    let (mut below, mut all) = (0, 0);
    for flow in &large {
        let own = &flow["bartizan"]["levels"]["xdp"];
        below += number(&own["pkts_toserver"]) + number(&own["pkts_toclient"]);
        all += number(&flow["flow"]["pkts_toserver"]) + number(&flow["flow"]["pkts_toclient"]);
        // The last acknowledgement may be missing; both FINs were taken.
        let over = ["closed", "last_ack", "time_wait"].iter().any(|state| flow["tcp"]["state"] == *state);
        assert!(over, "{flow}");
    }
    // A forged SYN brings its flow up until the server has sent something: on a busy machine for longer.
    assert!(below * 3 > all, "{below} of {all}");
    let refused = counter(&folder, "ips.blocked");
    println!("{policy}: {below} of {all} packets of large connections below, {refused} refused");
    // Of each burst the four kinds that no receiver would take.
    assert!(refused > 1_000, "{refused}");
}

#[test]
fn big_transfers_go_below_a_stateful_firewall_and_nobody_cuts_them() {
    in_namespace_for(PATIENCE, || {
        transfers("policies: [{name: all, from: any, to: any, chain: [sfw]}]\ndefault: {action: drop}\n");
    });
}

#[test]
fn so_do_those_whose_inspection_has_ended() {
    in_namespace_for(PATIENCE, || {
        transfers(
            "policies: [{name: all, from: any, to: any, chain: [pfw, sfw, ids], pfw: {default: allow}, ids: {rules: [local.rules]}, bypass: {bytes: 200KiB}}]\ndefault: {action: drop}\n",
        );
    });
}
