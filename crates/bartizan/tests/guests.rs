// SPDX-License-Identifier: Apache-2.0
//! Guests: programs on the stream path, in a network namespace of its own (needs root; without, it prints so
//! and returns). The programs are those of Python's library, with the socket library loaded.

use crate::common;
use crate::namespace;

use bartizan_testkit_worker::events;
use common::{Ended, Folder, PROGRAM, Running, until};
use namespace::{in_namespace, ip, veth};
use serde_json::Value;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::Command;

const HOST: &str = "\
links:
  - {name: client, guest: {addresses: [192.0.2.1, '2001:db8::1'], socket: client.socket}}
  - {name: server, guest: {addresses: [192.0.2.2, '2001:db8::2'], socket: server.socket}}
policy: policy.yaml
cache: none
outputs: {eve: {dir: out}}
control: {socket: control.socket}
";

const POLICY: &str = "\
policies:
  - name: web
    from: any
    to: any
    chain: [pfw, ids]
    pfw: {default: allow, rules: [{drop: tcp, to-ports: 25}]}
    ids: {rules: [web.rules]}
default: {action: drop}
";

const RULES: &str = "\
drop http any any -> any any (msg:\"attack\"; http.uri; content:\"/attack\"; sid:1;)
drop dns any any -> any any (msg:\"name\"; dns.query; content:\"bad.example\"; sid:2;)\n";

/// Tries to get each URL, and prints its status, or the error's number.
const CLIENT: &str = "\
import sys, urllib.request, urllib.error
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
for url in sys.argv[1:]:
    try:
        with opener.open(url, timeout=60) as answer:
            print(answer.status, len(answer.read()), flush=True)
    except OSError as error:
        reason = getattr(error, 'reason', error)
        print('error', getattr(reason, 'errno', reason), flush=True)
";

/// The socket library as cargo built it beside this test program.
pub fn library() -> PathBuf {
    let folder = std::env::current_exe().unwrap();
    let library = folder.parent().unwrap().join("libbartizan_sock.so");
    assert!(library.exists(), "{}: cargo builds it with this test", library.display());
    library
}

pub fn network() {
    for which in ["all", "default"] {
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "0").unwrap();
    }
    ip("link set dev lo up");
    veth("g0", "g1", 1500);
    for host in 1..=3 {
        ip(&format!("addr add 192.0.2.{host}/24 dev g0"));
        ip(&format!("addr add 2001:db8::{host}/64 dev g0 nodad"));
    }
}

pub fn begin(folder: &Folder) -> Running {
    folder.write("policy.yaml", POLICY);
    folder.write("web.rules", RULES);
    folder.write("bartizan.yaml", HOST);
    folder.write("good.txt", "good words\n");
    folder.write("attack.txt", "never to be read\n");
    let running =
        Running::start(Command::new(PROGRAM).args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
    running.until("running on client, server");
    running
}

/// A command of a guest.
fn guest(folder: &Folder, name: &str, words: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["guest", "run", "--socket"]).arg(folder.path(&format!("{name}.socket")));
    command.arg("--library").arg(library()).arg("--").args(words).current_dir(&folder.0);
    command
}

pub fn web_server(folder: &Folder, guest_name: Option<&str>, address: &str) -> Running {
    let words = ["python3", "-u", "-m", "http.server", "8000", "--bind", address];
    let mut command = match guest_name {
        Some(name) => guest(folder, name, &words),
        None => {
            let mut plain = Command::new(words[0]);
            plain.args(&words[1..]).current_dir(&folder.0);
            plain
        }
    };
    let server = Running::start(&mut command);
    server.until_on_stdout("Serving HTTP on");
    server
}

fn get(folder: &Folder, urls: &[&str]) -> Ended {
    let words = [&["python3", "-c", CLIENT], urls].concat();
    Running::start(&mut guest(folder, "client", &words)).wait()
}

/// An answer to a query about guests.
fn query(folder: &Folder, words: &[&str]) -> Value {
    let socket = folder.path("control.socket");
    let asked =
        Command::new(PROGRAM).arg("guest").args(words).arg("--json").arg("--socket").arg(socket).output();
    let asked = asked.unwrap();
    let text = String::from_utf8_lossy(&asked.stdout);
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{asked:?}"))
}

pub fn of_type<'e>(all: &'e [Value], kind: &str) -> Vec<&'e Value> {
    all.iter().filter(|event| event["event_type"] == kind).collect()
}

pub fn eve(folder: &Folder) -> Vec<Value> {
    events::parse(&folder.read("out/eve.json"))
}

#[test]
fn an_attack_between_two_guests_is_blocked_and_a_good_request_passes() {
    in_namespace(|| {
        for (v6, address, host) in [(false, "192.0.2.2", "192.0.2.2"), (true, "2001:db8::2", "[2001:db8::2]")]
        {
            network_once(v6);
            let folder = Folder::new();
            let running = begin(&folder);
            let server = web_server(&folder, Some("server"), address);
            let (good, attack) =
                (format!("http://{host}:8000/good.txt"), format!("http://{host}:8000/attack.txt"));
            let ended = get(&folder, &[&good, &attack, &good]);
            let lines: Vec<&str> = ended.stdout.lines().collect();
            // 13: EACCES.
            assert_eq!(lines, ["200 11", "error 13", "200 11"], "{ended:?} {}", running.stderr());
            let listed = query(&folder, &["list"]);
            let client = &listed["message"]["guests"][0];
            assert_eq!(client["connections_without_tcp"], 3, "{listed}");
            assert!(client["bytes"]["sent"].as_u64() > Some(100), "{listed}");
            let status = query(&folder, &["status", "client"]);
            let blocked = &status["message"]["blocked"][0];
            assert_eq!(
                (&blocked["function"], &blocked["rule"], &blocked["reason"], &blocked["peer_guest"]),
                (&"ids".into(), &1.into(), &"ids_rule".into(), &"server".into()),
                "{status}"
            );
            let server = server.stop();
            assert!(server.stderr.contains("/good.txt") && !server.stderr.contains("/attack"), "{server:?}");
            let stopped = running.stop();
            assert_eq!(stopped.code, Some(0), "{stopped:?}");
            assert!(!stopped.stdout.contains("do not agree"), "{stopped:?}");
            check_records(&folder, address);
        }
    });
}

fn network_once(already: bool) {
    if !already {
        network();
    }
}

fn check_records(folder: &Folder, server: &str) {
    let all = eve(folder);
    let alerts = of_type(&all, "alert");
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    assert_eq!(
        (&alerts[0]["alert"]["action"], &alerts[0]["http"]["url"]),
        (&"blocked".into(), &"/attack.txt".into())
    );
    let (flows, http) = (of_type(&all, "flow"), of_type(&all, "http"));
    // One flow for both ends.
    assert_eq!((flows.len(), http.len() >= 2), (3, true), "{flows:?} {http:?}");
    for event in alerts.iter().chain(&flows).chain(&http) {
        let own = &event["bartizan"];
        let program = &own["stream_path"];
        let executable = program["executable"].as_str().unwrap_or_default();
        assert!(executable.contains("python"), "{event}");
        assert!(program["pid"].as_u64() > Some(1) && program["cgroup"].as_str().is_some(), "{event}");
        assert_eq!((&own["link"], &program["peer_guest"]), (&"client".into(), &"server".into()), "{event}");
    }
    let server: std::net::IpAddr = server.parse().unwrap();
    for flow in flows {
        let to: std::net::IpAddr = flow["dest_ip"].as_str().unwrap().parse().unwrap();
        assert_eq!((to, &flow["dest_port"], &flow["app_proto"]), (server, &8000.into(), &"http".into()));
    }
}

#[test]
fn what_a_policy_refuses_of_a_guest_is_refused_before_the_first_packet() {
    in_namespace(|| {
        network();
        let folder = Folder::new();
        let running = begin(&folder);
        // A server without the library: the engine connects to it by TCP.
        let server = web_server(&folder, None, "192.0.2.3");
        let [good, attack, mail] = ["192.0.2.3:8000/good.txt", "192.0.2.3:8000/attack.txt", "192.0.2.3:25/"]
            .map(|rest| format!("http://{rest}"));
        let ended = get(&folder, &[&good, &attack, &mail]);
        assert_eq!(ended.stdout.lines().collect::<Vec<_>>(), ["200 11", "error 13", "error 13"], "{ended:?}");
        let server = server.stop();
        assert!(!server.stderr.contains("/attack"), "{server:?}");
        let stopped = running.stop();
        assert_eq!(stopped.code, Some(0), "{stopped:?}");
        let all = eve(&folder);
        let flows = of_type(&all, "flow");
        assert_eq!(flows.len(), 3, "{flows:?}");
        // The addresses are those that the server sees.
        assert!(
            flows.iter().all(|flow| flow["src_ip"] == "192.0.2.1" && flow["src_port"].as_u64() > Some(1))
        );
        let drops = of_type(&all, "drop");
        assert!(
            drops.iter().any(|drop| drop["dest_port"] == 25 && drop["bartizan"]["function"] == "pfw"),
            "{drops:?}"
        );
    });
}

#[test]
fn a_command_runs_under_a_policy_of_its_own() {
    in_namespace(|| {
        network();
        let folder = Folder::new();
        folder.write("policy.yaml", POLICY);
        folder.write("web.rules", RULES);
        folder.write("good.txt", "good words\n");
        let server = web_server(&folder, None, "192.0.2.3");
        let mut command = Command::new(PROGRAM);
        command.args(["guest", "run", "--policy", "policy.yaml", "--out", "out", "--library"]).arg(library());
        command.args([
            "--",
            "python3",
            "-c",
            CLIENT,
            "http://192.0.2.3:8000/good.txt",
            "http://192.0.2.3:8000/attack",
        ]);
        let ended = Running::start(command.current_dir(&folder.0)).wait();
        assert_eq!(ended.stdout.lines().collect::<Vec<_>>(), ["200 11", "error 13"], "{ended:?}");
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let all = eve(&folder);
        assert_eq!(of_type(&all, "alert").len(), 1, "{all:?}");
        drop(server);
    });
}

#[test]
fn a_guest_that_cannot_be_is_refused_with_what_to_do() {
    let folder = Folder::new();
    let socket = folder.path("none.socket");
    let mut command = guest(&folder, "none", &["true"]);
    let ended = Running::start(&mut command).wait();
    assert!(ended.code == Some(3) && ended.stderr.contains(&*socket.to_string_lossy()), "{ended:?}");
    assert!(ended.stderr.contains("is bartizan running"), "{ended:?}");
    let ended =
        common::run(&folder.0, &["guest", "run", "--library", &library().to_string_lossy(), "--", "true"]);
    assert!(ended.code == Some(2) && ended.stderr.contains("--link NAME"), "{ended:?}");
}

/// Attempts to go round the library, each with the error's number or `OK`.
const ATTEMPTS: &str = "\
import os, socket, sys
def attempt(name, work):
    try: print(name, 'OK', work() or '', flush=True)
    except OSError as error: print(name, error.errno, flush=True)
def exchange(family, address, request, connect=None):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        if connect: connect(s)
        s.settimeout(60)
        if not connect: s.connect((address, 8000))
        assert s.getpeername()[:2] == (address, 8000), s.getpeername()
        s.sendall(request)
        text = b''
        while True:
            part = s.recv(65536)
            if not part: return text.split(b' ')[1].decode()
            text += part
import ctypes, mmap, struct
libc = ctypes.CDLL(None, use_errno=True)
to = ctypes.create_string_buffer(struct.pack('=H', socket.AF_INET) + struct.pack('!H4s8x', 8000, bytes([192, 0, 2, 3])))
def called(result):
    if result < 0: raise OSError(ctypes.get_errno(), 'a call')
    return result
# connect by io_uring: setup, two maps, one entry, enter.
def uring(s):
    parameters = ctypes.create_string_buffer(120)
    ring = called(libc.syscall(425, 4, parameters))
    entries, done = struct.unpack_from('2I', parameters.raw)
    asked, answered = struct.unpack_from('8I', parameters.raw, 40), struct.unpack_from('8I', parameters.raw, 80)
    rings = mmap.mmap(ring, max(asked[6] + entries * 4, answered[5] + done * 16))
    table = mmap.mmap(ring, entries * 64, offset=0x10000000)
    table[:64] = struct.pack('=BBHiQQI36x', 16, 0, 0, s.fileno(), 16, ctypes.addressof(to), 0)
    rings[asked[6]:asked[6] + 4] = struct.pack('=I', 0)
    rings[asked[1]:asked[1] + 4] = struct.pack('=I', 1)
    entered = libc.syscall(426, ring, 1, 1, 1, 0, 0)
    os.close(ring)
    called(entered)
    result = struct.unpack_from('=Qi', rings, answered[5])[1]
    if result < 0: raise OSError(-result, 'io_uring')
call = lambda s: called(libc.syscall(42, s.fileno(), to, 16))
good = b'GET /good.txt HTTP/1.0\\r\\n\\r\\n'
bad = b'GET /attack.txt HTTP/1.0\\r\\n\\r\\n'
four, six = socket.AF_INET, socket.AF_INET6
attempt('good', lambda: exchange(four, '192.0.2.3', good))
attempt('good6', lambda: exchange(six, '2001:db8::3', good))
attempt('mapped', lambda: exchange(six, '::ffff:192.0.2.3', good))
attempt('attack', lambda: exchange(four, '192.0.2.3', bad))
attempt('attack6', lambda: exchange(six, '2001:db8::3', bad))
attempt('call', lambda: exchange(four, '192.0.2.3', good, call))
attempt('call-attack', lambda: exchange(four, '192.0.2.3', bad, call))
attempt('uring', lambda: exchange(four, '192.0.2.3', good, uring))
attempt('uring-attack', lambda: exchange(four, '192.0.2.3', bad, uring))
attempt('uring-udp', lambda: uring(socket.socket(four, socket.SOCK_DGRAM)))
attempt('udp', lambda: socket.socket(four, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.3', 9)) and None)
attempt('udp6', lambda: socket.socket(six, socket.SOCK_DGRAM).sendto(b'x', ('2001:db8::3', 9)) and None)
attempt('udp-connect', lambda: socket.socket(four, socket.SOCK_DGRAM).connect(('192.0.2.3', 9)))
attempt('raw', lambda: socket.socket(four, socket.SOCK_RAW, 1) and None)
attempt('packet', lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) and None)
attempt('inherited', lambda: os.fstat(int(sys.argv[1])) and None)
def leave():
    for line in open('/proc/mounts'):
        at, kind = line.split(' ')[1:3]
        if kind == 'cgroup2': open(at + '/cgroup.procs', 'w').write('0')
    socket.create_connection(('192.0.2.3', 8000), 60)
attempt('leave', leave)
def enter():
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    # The starter is in the namespace too, its parent is not.
    starter = open('/proc/%d/stat' % os.getppid()).read().split(') ')[1].split(' ')[1]
    there = os.open('/proc/%s/ns/net' % starter, os.O_RDONLY)
    if libc.setns(there, 0): raise OSError(ctypes.get_errno(), 'setns')
attempt('namespace', enter)
";

#[test]
fn programs_that_go_round_the_library_reach_nothing_but_the_engine() {
    in_namespace(|| {
        network();
        let folder = Folder::new();
        let running = begin(&folder);
        let servers = [web_server(&folder, None, "192.0.2.3"), web_server(&folder, None, "2001:db8::3")];
        let mut command = Command::new(PROGRAM);
        command.args(["guest", "run", "--confine", "--socket"]).arg(folder.path("client.socket"));
        command.arg("--library").arg(library()).args([
            "--",
            "env",
            "-u",
            "LD_PRELOAD",
            "python3",
            "-c",
            ATTEMPTS,
        ]);
        // A socket of the outer namespace, open over exec.
        let outer = std::net::UdpSocket::bind("192.0.2.1:0").unwrap();
        rustix::io::fcntl_setfd(&outer, rustix::io::FdFlags::empty()).unwrap();
        command.arg(std::os::fd::AsRawFd::as_raw_fd(&outer).to_string());
        let ended = Running::start(command.current_dir(&folder.0)).wait();
        let lines: Vec<&str> = ended.stdout.lines().map(str::trim_end).collect();
        // 104: ECONNRESET, 1: EPERM, 9: EBADF, 101: ENETUNREACH.
        let expected = [
            "good OK 200",
            "good6 OK 200",
            "mapped OK 200",
            "attack 104",
            "attack6 104",
            "call OK 200",
            "call-attack 104",
            "uring OK 200",
            "uring-attack 104",
            "uring-udp OK",
            "udp OK",
            "udp6 OK",
            "udp-connect OK",
            "raw 1",
            "packet 1",
            "inherited 9",
        ];
        assert_eq!(lines.get(..expected.len()), Some(&expected[..]), "{ended:?}");
        // Who leaves the control group has no route; who may not, is where he was.
        assert!(["leave 101", "leave 13", "leave 1"].contains(&lines[expected.len()]), "{ended:?}");
        assert!(["namespace 1", "namespace 13"].contains(&lines[expected.len() + 1]), "{ended:?}");
        assert!(ended.stderr.contains("9 connects and "), "{ended:?}");
        let refused = "0 connects and 0 datagrams were refused";
        assert!(ended.stderr.contains(refused), "{ended:?}");
        drop(outer);
        for server in servers {
            let server = server.stop();
            assert!(server.stderr.contains("/good.txt") && !server.stderr.contains("/attack"), "{server:?}");
        }
        assert_eq!(running.stop().code, Some(0));
    });
}

/// Connects, sends some bytes, prints what it gets or the error's number.
const WAITER: &str = "\
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 60)
s.settimeout(None)
s.sendall(b'it is harmless')
print('sent', flush=True)
try:
    while True:
        part = s.recv(100)
        print('got', part.decode(), flush=True)
        if not part: break
except OSError as error: print('error', error.errno, flush=True)
";

#[test]
fn an_engine_that_is_killed_resets_its_streams_and_new_ones_flow() {
    in_namespace(|| {
        network();
        let folder = Folder::new();
        let running = begin(&folder);
        let listener = std::net::TcpListener::bind("192.0.2.3:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let words = ["python3", "-c", WAITER, "192.0.2.3", &port];
        let waiter = Running::start(&mut guest(&folder, "client", &words));
        let (mut connection, _) = listener.accept().unwrap();
        let mut text = [0; 14];
        connection.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"it is harmless");
        waiter.until_on_stdout("sent");
        running.signal("KILL");
        let ended = waiter.wait();
        assert!(ended.stdout.contains("error 104"), "{ended:?}");
        assert!(connection.read(&mut text).map_or(true, |count| count == 0), "the peer sees the end");
        drop(running);
        // The sockets of the killed run are replaced.
        let running = begin(&folder);
        let waiter = Running::start(&mut guest(&folder, "client", &words));
        let (mut connection, _) = listener.accept().unwrap();
        connection.read_exact(&mut text).unwrap();
        waiter.until_on_stdout("sent");
        // A guest that is ended leaves nothing, and its peer sees it. 143: 128 and SIGTERM.
        assert_eq!(waiter.stop().code, Some(143));
        assert!(connection.read(&mut text).map_or(true, |count| count == 0));
        until("the streams are gone", || {
            let client = query(&folder, &["list"])["message"]["guests"][0].clone();
            client["streams"] == 0 && client["processes"] == 0 && client["bytes"]["held"] == 0
        });
        assert_eq!(running.stop().code, Some(0));
    });
}

/// Sends a part, waits for a file, sends another part, and prints what becomes of it.
const TWO_PARTS: &str = "\
import os, socket, sys, time
address, port, go, one, two = sys.argv[1:6]
s = socket.create_connection((address, int(port)), 60)
try:
    s.sendall(one.encode('latin-1').decode('unicode_escape').encode('latin-1'))
    print('sent', flush=True)
    while not os.path.exists(go): time.sleep(0.01)
    s.sendall(two.encode('latin-1').decode('unicode_escape').encode('latin-1'))
    print('got', s.recv(100).decode(), flush=True)
except OSError as error: print('error', error.errno, flush=True)
";

const VERDICT_RULES: &str = "\
alert tcp any any -> any 7001 (msg:\"r\"; content:\"secret\"; replace:\"******\"; sid:11;)
drop tcp any any -> any 7002 (msg:\"n\"; app-layer-protocol:!tls; sid:12;)
pass tcp any any -> any 7003 (msg:\"k\"; content:\"well known\"; flow:established; bypass; sid:13;)
drop tcp any any -> any 7003 (msg:\"f\"; content:\"forbidden\"; sid:14;)
alert tcp any any -> any any (msg:\"p\"; ttl:1; content:\"x\"; sid:15;)
";

/// A start of a client's hello, in two parts.
const HELLO: [&str; 2] = [
    "\\x16\\x03",
    "\\x01\\x00\\x2d\\x01\\x00\\x00\\x29\\x03\\x03................................\\x00\\x00\\x02\\x13\\x01\\x01\\x00",
];

/// Starts a client of two parts, and returns it with the connection that it made.
fn two_parts(
    folder: &Folder,
    listener: &std::net::TcpListener,
    parts: [&str; 2],
) -> (Running, std::net::TcpStream) {
    let at = listener.local_addr().unwrap();
    let port = at.port().to_string();
    let (host, go) = (at.ip().to_string(), folder.path(&format!("go-{port}")));
    let words = ["python3", "-c", TWO_PARTS, &host, &port, &go.to_string_lossy(), parts[0], parts[1]];
    let client = Running::start(&mut guest(folder, "client", &words));
    let (connection, _) = listener.accept().unwrap();
    client.until_on_stdout("sent");
    (client, connection)
}

fn go_on(folder: &Folder, port: u16) {
    folder.write(&format!("go-{port}"), "");
}

/// The verdict on the only stream that is open to a port.
fn verdict(folder: &Folder, port: u16) -> String {
    let status = query(folder, &["status", "client"]);
    let all = status["message"]["streams"].as_array().unwrap().clone();
    let to = format!(":{port}");
    let of_port = all.iter().find(|stream| stream["server"].as_str().unwrap().ends_with(&to));
    of_port.map(|stream| stream["verdict"].as_str().unwrap().to_owned()).unwrap_or_default()
}

fn read_exactly(connection: &mut std::net::TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    connection.read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn streams_are_held_replaced_and_bypassed_as_policies_say() {
    use std::io::Write as _;
    in_namespace(|| {
        network();
        let folder = Folder::new();
        for (v6, host) in [(false, "192.0.2.3"), (true, "[2001:db8::3]")] {
            let out = format!("out-{v6}");
            folder.write("policy.yaml", POLICY);
            folder.write("web.rules", VERDICT_RULES);
            folder.write("bartizan.yaml", HOST.replace("dir: out", &format!("dir: {out}")));
            let mut command = Command::new(PROGRAM);
            command.args(["run", "-c", "bartizan.yaml", "--set", "app-layer.hold.milliseconds=60000"]);
            let running = Running::start(command.current_dir(&folder.0));
            running.until("1 rule has a condition on packets' headers or sizes (sid 15)");
            running.until("running on client, server");
            let listen = |port: u16| std::net::TcpListener::bind(format!("{host}:{port}")).unwrap();
            // Replaced: as many bytes, in their place.
            let listener = listen(7001);
            let (client, mut connection) = two_parts(&folder, &listener, ["a secret, ", "and no secret"]);
            go_on(&folder, 7001);
            assert_eq!(read_exactly(&mut connection, 23), b"a ******, and no ******");
            connection.write_all(b"thanks").unwrap();
            assert!(client.wait().stdout.contains("got thanks"));
            // Held while they may begin what the rule wants, then passed in one piece.
            let listener = listen(7002);
            let (client, mut connection) = two_parts(&folder, &listener, HELLO);
            until("the beginning is held", || verdict(&folder, 7002) == "hold");
            connection.set_nonblocking(true).unwrap();
            assert!(connection.read(&mut [0; 8]).is_err(), "nothing has left");
            connection.set_nonblocking(false).unwrap();
            go_on(&folder, 7002);
            assert_eq!(read_exactly(&mut connection, 50)[..4], *b"\x16\x03\x01\0");
            connection.write_all(b"hello").unwrap();
            assert!(client.wait().stdout.contains("got hello"));
            // Bypassed, until a policy without that rule is loaded.
            let listener = listen(7003);
            let (client, mut connection) = two_parts(&folder, &listener, ["well known\\n", "forbidden\\n"]);
            assert_eq!(read_exactly(&mut connection, 11), b"well known\n");
            connection.write_all(b"forbidden too\n").unwrap();
            until("it is bypassed", || verdict(&folder, 7003) == "bypass");
            folder.write("web.rules", VERDICT_RULES.replace("pass tcp", "alert tcp").replace("; bypass", ""));
            running.signal("USR2");
            running.until("generation 2: ");
            go_on(&folder, 7003);
            let ended = client.wait();
            assert!(ended.stdout.contains("got forbidden") || ended.stdout.contains("error 13"), "{ended:?}");
            let mut rest = Vec::new();
            assert!(connection.read_to_end(&mut rest).is_err() && rest.is_empty(), "{rest:?}");
            assert_eq!(running.stop().code, Some(0));
            let all = events::parse(&folder.read(&format!("{out}/eve.json")));
            let signatures: Vec<_> = of_type(&all, "alert")
                .iter()
                .filter_map(|alert| alert["alert"]["signature_id"].as_u64())
                .collect();
            assert!(signatures.contains(&11) && signatures.contains(&14), "{signatures:?}");
            for port in [7001, 7002, 7003] {
                std::fs::remove_file(folder.path(&format!("go-{port}"))).unwrap();
            }
        }
    });
}

const TENANT_POLICY: &str = "\
tenants:
  - {name: red, select: {link: client}}
  - {name: blue, select: {link: server}}
policies:
  - {name: reds, tenant: red, from: any, to: any, chain: [ids], ids: {rules: [red.rules]}}
  - {name: blues, tenant: blue, from: any, to: any, chain: [ids], ids: {rules: [blue.rules]}}
default: {action: drop}
";

#[test]
fn a_tenants_policy_sees_its_own_guests_streams_alone() {
    in_namespace(|| {
        network();
        let folder = Folder::new();
        let rule = |sid: u32| {
            format!(
                "alert http any any -> any any (msg:\"s\"; http.uri; content:\"/good\"; sid:{sid};)\n\
                 drop http any any -> any any (msg:\"d\"; http.uri; content:\"/{}\"; sid:{};)\n",
                if sid == 21 { "not-of-red" } else { "not-to-blue" },
                sid + 10
            )
        };
        folder.write("red.rules", rule(21));
        folder.write("blue.rules", rule(22));
        folder.write("policy.yaml", TENANT_POLICY);
        folder.write("bartizan.yaml", HOST);
        folder.write("good.txt", "good words\n");
        let mut command = Command::new(PROGRAM);
        let running = Running::start(command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
        running.until("running on client, server");
        for (address, host) in [("192.0.2.2", "192.0.2.2"), ("2001:db8::2", "[2001:db8::2]")] {
            let server = web_server(&folder, Some("server"), address);
            let urls =
                ["good.txt", "not-of-red", "not-to-blue"].map(|path| format!("http://{host}:8000/{path}"));
            let ended = get(&folder, &urls.each_ref().map(String::as_str));
            // 13: the client's own policy; 104: the server's, of which the client learns nothing else.
            assert_eq!(
                ended.stdout.lines().collect::<Vec<_>>(),
                ["200 11", "error 13", "error 104"],
                "{ended:?}"
            );
            let server = server.stop();
            assert!(!server.stderr.contains("/not"), "{server:?}");
        }
        let of = |name: &str| query(&folder, &["status", name])["message"]["blocked"].clone();
        for (name, sid) in [("client", 31), ("server", 32)] {
            let blocked = of(name);
            let rules: Vec<_> =
                blocked.as_array().unwrap().iter().map(|stream| stream["rule"].clone()).collect();
            assert_eq!(rules, [sid, sid], "{blocked}");
        }
        assert_eq!(running.stop().code, Some(0));
        let all = eve(&folder);
        for alert in of_type(&all, "alert") {
            let tenant = match alert["alert"]["signature_id"].as_u64() {
                Some(21 | 31) => ("client", "reds", 1),
                Some(22 | 32) => ("server", "blues", 2),
                other => panic!("{other:?}"),
            };
            let own = &alert["bartizan"];
            let (link, policy) = (own["link"].as_str().unwrap(), own["policy"].as_str().unwrap());
            assert_eq!((link, policy, own["tenant"].as_u64().unwrap()), tenant, "{alert}");
        }
        assert_eq!(of_type(&all, "alert").len(), 8, "{all:?}");
    });
}

const NAME_RULES: &str = "\
drop dns any any -> any 53 (msg:\"n\"; dns.query; content:\"evil.example\"; sid:41;)
";

/// Asks for names without a connection and with one; prints the last byte of each answer.
const ASKER: &str = "\
import socket, sys
def query(name):
    labels = b''.join(bytes([len(part)]) + part.encode() for part in name.split('.'))
    return b'\\0\\7\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0' + labels + b'\\0\\0\\1\\0\\1'
address, port, time = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
family = socket.AF_INET6 if ':' in address else socket.AF_INET
for connected in [False, True]:
    for name in sys.argv[4:]:
        with socket.socket(family, socket.SOCK_DGRAM) as s:
            s.settimeout(time if name.startswith('evil') else 60)
            try:
                if connected:
                    s.connect((address, port))
                    s.send(query(name))
                    assert s.getpeername()[:2] == (address, port)
                    answer = s.recv(600)
                else:
                    s.sendto(query(name), (address, port))
                    answer, sender = s.recvfrom(600)
                    assert sender[:2] == (address, port), sender
                print(name, answer[-1], flush=True)
            except OSError as error: print(name, 'error', error.errno, flush=True)
";

/// Answers each query with one address, until it is ended; prints the queries.
const NAME_SERVER: &str = "\
import socket, sys
address = sys.argv[1]
s = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, socket.SOCK_DGRAM)
s.bind((address, 53))
print('ready', flush=True)
while True:
    query, sender = s.recvfrom(600)
    print(query, flush=True)
    head = query[:2] + b'\\x81\\x80\\0\\1\\0\\1\\0\\0\\0\\0'
    s.sendto(head + query[12:] + b'\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\5\\0\\4' + bytes([192, 0, 2, 88]), sender)
";

fn begin_names(folder: &Folder, out: &str) -> Running {
    folder.write("policy.yaml", POLICY);
    folder.write("web.rules", NAME_RULES);
    folder.write("bartizan.yaml", HOST.replace("dir: out", &format!("dir: {out}")));
    let mut command = Command::new(PROGRAM);
    let running = Running::start(command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
    running.until("running on client, server");
    running
}

fn ask(folder: &Folder, address: &str, names: &[&str]) -> Vec<String> {
    let words = [&["python3", "-c", ASKER, address, "53", "1"], names].concat();
    let ended = Running::start(&mut guest(folder, "client", &words)).wait();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.stdout.lines().map(str::to_owned).collect()
}

/// The answers that [`ASKER`] has to get: a socket without a connection hears nothing, one with a connection
/// EACCES.
fn answers(last: u8) -> [String; 4] {
    let good = format!("good.example {last}");
    [good.clone(), "evil.example error None".to_owned(), good, "evil.example error 13".to_owned()]
}

#[test]
fn names_are_asked_of_a_server_outside_and_a_bad_one_does_not_get_there() {
    if Command::new("dnsmasq").arg("--version").output().is_err() {
        println!("dnsmasq is not installed: skipped");
        return;
    }
    in_namespace(|| {
        network();
        let folder = Folder::new();
        let running = begin_names(&folder, "out");
        let mut command = Command::new("dnsmasq");
        command.args([
            "--keep-in-foreground",
            "--no-resolv",
            "--no-hosts",
            "--conf-file=/dev/null",
            "--pid-file=",
        ]);
        command.args(["--user=root", "--listen-address=192.0.2.3,2001:db8::3", "--bind-interfaces"]);
        command.args(["--log-queries", "--log-facility=-", "--address=/example/192.0.2.77"]);
        let server = Running::start(command.current_dir(&folder.0));
        server.until("started");
        for address in ["192.0.2.3", "2001:db8::3"] {
            assert_eq!(ask(&folder, address, &["good.example", "evil.example"]), answers(77));
            if Command::new("dig").arg("-v").output().is_err() {
                println!("dig is not installed: left out");
                continue;
            }
            let at = format!("@{address}");
            for (name, expected) in [("good.example", "192.0.2.77"), ("evil.example", "")] {
                let words = ["dig", "+short", "+tries=1", "+time=2", &at, name];
                let ended = Running::start(&mut guest(&folder, "client", &words)).wait();
                let found = ended.stdout.lines().filter(|line| !line.starts_with(';')).collect::<String>();
                assert_eq!(found, expected, "{name}: {ended:?}");
            }
        }
        let server = server.stop();
        assert!(server.stderr.contains("good.example") && !server.stderr.contains("evil"), "{server:?}");
        assert_eq!(running.stop().code, Some(0));
        check_names(&eve(&folder), &["client"]);
    });
}

#[test]
fn names_are_asked_of_a_guest() {
    in_namespace(|| {
        network();
        let folder = Folder::new();
        for (number, address) in ["192.0.2.2", "2001:db8::2"].into_iter().enumerate() {
            let out = format!("out-{number}");
            let running = begin_names(&folder, &out);
            let words = ["python3", "-c", NAME_SERVER, address];
            let server = Running::start(&mut guest(&folder, "server", &words));
            server.until_on_stdout("ready");
            assert_eq!(ask(&folder, address, &["good.example", "evil.example"]), answers(88));
            let server = server.stop();
            assert!(server.stdout.contains("good") && !server.stdout.contains("evil"), "{server:?}");
            let listed = query(&folder, &["list"]);
            let client = &listed["message"]["guests"][0];
            assert_eq!(client["refused"], serde_json::json!({"function": 2}), "{listed}");
            assert_eq!(running.stop().code, Some(0));
            // Both guests' policies judge what leaves by one and comes in by the other.
            check_names(&events::parse(&folder.read(&format!("{out}/eve.json"))), &["client", "server"]);
        }
    });
}

fn check_names(all: &[Value], links: &[&str]) {
    let alerts = of_type(all, "alert");
    assert!(alerts.len() >= 2, "{alerts:?}");
    for alert in alerts {
        assert_eq!(
            (&alert["alert"]["action"], &alert["bartizan"]["link"]),
            (&"blocked".into(), &"client".into())
        );
        assert_eq!(alert["proto"], "UDP", "{alert}");
        let program = alert["bartizan"]["stream_path"]["executable"].as_str().unwrap_or_default();
        assert!(program.contains("python") || program.contains("dig"), "{alert}");
    }
    for link in links {
        let dns = of_type(all, "dns");
        let own = dns.iter().filter(|event| event["bartizan"]["link"] == **link);
        assert!(own.count() >= 4, "{link}: {dns:?}");
    }
}
