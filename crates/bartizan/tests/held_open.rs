// SPDX-License-Identifier: Apache-2.0
//! Transfers that are open while the policy changes: curl fetches through `bartizan run` inline, in both IP
//! versions, from a server that sends a line now and then and never ends. One port's flows are bypassed by a
//! rule, the other's are passed by one. A policy that blocks stops both, one that inspects matches their
//! content from then on, and the connections themselves stay whole all the time. At the host and with the XDP
//! level below (needs root and curl; without, it prints so and returns).

use crate::command_socket;
use crate::common;
use crate::level;
use crate::namespace;
use crate::windows::own_network;

use bartizan_testkit_worker::events;
use command_socket::{Client, ready};
use common::{Folder, PROGRAM, Running, until};
use level::{counter, ends_well, network, number};
use namespace::{in_namespace_for, ip};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// The time limit of a test on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);
const OFFLOAD: &str = ", offload: {level: xdp, entries: 1024, stale: 30s}";
/// The line that the server sends at its pace, and the one that a rule matches.
const LINE: &[u8] = b"a line of a long story, as good as any other one of it, which nobody minds at all\n";
const EVIL: &[u8] = b"now the line that a rule of detection knows: forbidden-bytes, and the story goes on\n";
const PACE: Duration = Duration::from_millis(10);
/// After so long without a byte a transfer has stopped: the server sends a line a hundred times as often, and
/// its kernel retransmits meanwhile.
const SILENCE: Duration = Duration::from_secs(2);

/// Ports of the server: its flows are bypassed, or passed.
const PORTS: [u16; 2] = [4000, 4001];
const SERVERS: [&str; 2] = ["192.0.2.2", "2001:db8::2"];

const LET_GO: &str = "pass tcp any any -> any 4000 (msg:\"known\"; flow:established; bypass; sid:1;)\n\
    pass tcp any any <> any 4001 (msg:\"known\"; flow:established; sid:2;)\n";
const LOOKS: &str = "alert tcp any any -> any any (msg:\"seen\"; flow:established,to_client; content:\"forbidden-bytes\"; sid:3;)\n";

/// A policy with the packet filter's default and the file of detection's rules.
fn policy(default: &str, rules: &str) -> String {
    format!(
        "policies: [{{name: all, from: any, to: any, chain: [pfw, ids], pfw: {{default: {default}}}, ids: {{rules: [{rules}]}}}}]\n\
         default: {{action: drop}}\n"
    )
}

fn start(folder: &Folder, workers: u16, offload: &str) -> Running {
    folder.write("let-go.rules", [LET_GO, LOOKS].concat());
    folder.write("looks.rules", LOOKS);
    folder.write("policy.yaml", policy("allow", "let-go.rules"));
    folder.write(
        "bartizan.yaml",
        format!(
            "links: [{{name: wan, inline: {{a: a1, b: b1{offload}}}, workers: {workers}}}]\n\
             policy: policy.yaml\ncache: none\noutputs: {{eve: {{dir: out}}}}\ncontrol: {{socket: c.socket}}\nreload: {{max-loss: 100%}}\n"
        ),
    );
    let mut command = Command::new(PROGRAM);
    let running = Running::start(command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
    ready(folder, &running);
    running
}

/// Reloads with a policy, and waits until it is in force.
fn reload(folder: &Folder, running: &Running, generation: u32, policy: &str) {
    folder.write("policy.yaml", policy);
    running.signal("USR2");
    running.until(&format!("generation {generation}: "));
}

/// The state shared by the test and the server.
#[derive(Default)]
struct Server {
    /// The number of times that each connection has to send the forbidden line.
    evil: AtomicU64,
    /// Set when the server has to end.
    over: AtomicBool,
    /// Bytes that its kernel accepted, of all connections.
    sent: AtomicU64,
}

impl Server {
    /// An answer without an end.
    fn serve(&self, mut stream: TcpStream) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        // No delay: each line leaves at once.
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
        let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n";
        stream.write_all(head).unwrap();
        let (mut evil, mut rest) = (0, &b""[..]);
        while !self.over.load(Ordering::Acquire) {
            if rest.is_empty() {
                let wanted = self.evil.load(Ordering::Acquire);
                rest = if evil < wanted { EVIL } else { LINE };
                evil = wanted;
            }
            // While nothing is acknowledged its buffer fills, and then it takes no more.
            if let Ok(taken) = stream.write(rest) {
                rest = &rest[taken..];
                self.sent.fetch_add(taken as u64, Ordering::AcqRel);
            }
            std::thread::sleep(PACE);
        }
        let _ = stream.shutdown(Shutdown::Both);
    }
}

/// The server's host, in a network namespace that lives as long as the returned sender.
fn server(state: &Arc<Server>) -> mpsc::Sender<()> {
    let state = Arc::clone(state);
    let (say, hear) = mpsc::channel();
    let (there, wait) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        say.send(own_network()).unwrap();
        wait.recv().unwrap();
        host("b0", (2, 1));
        for port in PORTS {
            let listener = TcpListener::bind(("::", port)).unwrap();
            let state = Arc::clone(&state);
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    let state = Arc::clone(&state);
                    std::thread::spawn(move || state.serve(stream.unwrap()));
                }
            });
        }
        say.send(0).unwrap();
        let _ = wait.recv();
    });
    let thread = hear.recv().unwrap();
    ip(&format!("link set b0 netns {thread}"));
    there.send(()).unwrap();
    hear.recv().unwrap();
    there
}

/// Addresses of this namespace's host at its interface, and its neighbour's.
pub fn host(device: &str, (own, other): (u8, u8)) {
    ip("link set dev lo up");
    for setting in ["all", "default", device] {
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{setting}/disable_ipv6"), "0").unwrap();
    }
    ip(&format!("link set {device} address 02:00:00:00:00:0{own} up"));
    ip(&format!("addr add 192.0.2.{own}/24 dev {device}"));
    ip(&format!("addr add 2001:db8::{own}/64 dev {device} nodad"));
    for neighbour in [format!("192.0.2.{other}"), format!("2001:db8::{other}")] {
        ip(&format!("neigh replace {neighbour} lladdr 02:00:00:00:00:0{other} dev {device} nud permanent"));
    }
}

/// A transfer by curl, into a file.
struct Transfer {
    curl: Child,
    name: String,
    port: u16,
    /// The flow as `explain-flow` of the command socket takes it.
    flow: String,
}

impl Transfer {
    fn begin(folder: &Folder, version: usize, port: u16) -> Self {
        let name = format!("got-{version}-{port}");
        let server = if version == 0 { SERVERS[0].to_owned() } else { format!("[{}]", SERVERS[1]) };
        let curl = Command::new("curl")
            // Unbuffered, without a proxy, and without a time limit.
            .args([
                "--silent",
                "--show-error",
                "--no-buffer",
                "--noproxy",
                "*",
                "--globoff",
                "--output",
                &name,
            ])
            .arg(format!("http://{server}:{port}/story"))
            .current_dir(&folder.0)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Transfer { curl, name, port, flow: format!("tcp {server}:{port}") }
    }

    fn got(&self, folder: &Folder) -> u64 {
        std::fs::metadata(folder.path(&self.name)).map_or(0, |file| file.len())
    }

    fn is_open(&mut self) -> bool {
        self.curl.try_wait().unwrap().is_none()
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        let _ = self.curl.kill();
        let _ = self.curl.wait();
    }
}

/// The state of a case.
struct Case {
    folder: Folder,
    running: Running,
    asks: Client,
    server: Arc<Server>,
    transfers: Vec<Transfer>,
    below: bool,
    _host: mpsc::Sender<()>,
}

impl Case {
    /// Open transfers on both ports and in both IP versions whose inspection has ended.
    fn open(workers: u16, offload: &str) -> Self {
        let folder = Folder::new();
        drop(network(1500));
        let server = Arc::new(Server::default());
        let host_stays = self::server(&server);
        host("a0", (1, 2));
        let running = start(&folder, workers, offload);
        let asks = Client::greeted(&folder.path("c.socket"));
        let transfers =
            [0, 1].iter().flat_map(|version| PORTS.map(|port| Transfer::begin(&folder, *version, port)));
        let transfers = transfers.collect();
        let below = !offload.is_empty();
        let mut case = Case { folder, running, asks, server, transfers, below, _host: host_stays };
        case.goes_on(20);
        // A flow that a function's verdict passed stays with that function.
        case.stand(1, |port| if port == PORTS[0] { "bypassed" } else { "judged" });
        case.server.evil.fetch_add(1, Ordering::AcqRel);
        // So many that no window of a stream holds the line any more.
        case.goes_on(200);
        assert_eq!(case.alerts(), [], "what is let go is not looked at");
        case
    }

    /// Waits until the flows of all transfers have this disposition under a generation, by their ports.
    fn stand(&mut self, generation: u64, course: impl Fn(u16) -> &'static str) {
        let Case { asks, transfers, below, .. } = self;
        for Transfer { flow, port, .. } in transfers {
            let course = course(*port);
            let is_there = |last: &Value| {
                let level = if *below && course == "bypassed" { last["level"] == "xdp" } else { true };
                last["course"] == course && last["generation"] == generation && level
            };
            let (begun, mut last) = (Instant::now(), Value::Null);
            while !is_there(&last) {
                assert!(begun.elapsed() < Duration::from_secs(30), "{flow} is not {course}: {last}");
                std::thread::sleep(Duration::from_millis(30));
                let answer = asks.ok("explain-flow", json!({ "flow": flow }));
                assert_eq!(answer["count"], 1, "{answer}");
                last = answer["flows"][0].clone();
            }
        }
    }

    fn got(&self) -> Vec<u64> {
        self.transfers.iter().map(|transfer| transfer.got(&self.folder)).collect()
    }

    /// Waits until each transfer has received so many more lines.
    fn goes_on(&mut self, lines: u64) {
        let before = self.got();
        until("more bytes of each transfer", || {
            self.got().iter().zip(&before).all(|(now, then)| *now > then + lines * LINE.len() as u64)
        });
        assert!(self.transfers.iter_mut().all(Transfer::is_open));
    }

    /// The addresses and ports of the servers with an alert.
    fn alerts(&self) -> Vec<(String, u64)> {
        // The last line may be under way.
        let text = self.folder.read("out/eve.json");
        let events = events::parse(text.rsplit_once('\n').map_or("", |(whole, _)| whole));
        let mut ends: Vec<_> = events::of_type(&events, "alert")
            .filter(|alert| alert["alert"]["signature_id"] == 3)
            .map(|alert| (alert["src_ip"].as_str().unwrap().to_owned(), number(&alert["src_port"])))
            .collect();
        ends.sort();
        // As long as the line is in the window, each packet alerts.
        ends.dedup();
        ends
    }

    /// Stops all; checks that each byte received is the one sent at its position.
    fn end(self) {
        let Case { folder, running, server, mut transfers, .. } = self;
        server.over.store(true, Ordering::Release);
        until("the ends of the transfers", || transfers.iter_mut().all(|transfer| !transfer.is_open()));
        for transfer in &transfers {
            let text = std::fs::read(folder.path(&transfer.name)).unwrap();
            for line in text.split_inclusive(|byte| *byte == b'\n') {
                assert!(
                    LINE.starts_with(line) || EVIL.starts_with(line),
                    "{}",
                    String::from_utf8_lossy(line)
                );
            }
        }
        ends_well(running);
        assert_eq!(counter(&folder, "ips.drop_reason.stream_error"), 0);
        let events = events::read(&folder.path("out/eve.json"));
        let flows: Vec<_> = events::of_type(&events, "flow").filter(|flow| flow["proto"] == "TCP").collect();
        assert_eq!(flows.len(), transfers.len(), "one flow each: {flows:?}");
    }
}

/// Runs a case at the host and with the level below.
fn everywhere(test: fn(Case)) {
    if Command::new("curl").arg("--version").output().is_err() {
        let _ =
            std::io::stderr().write_all(b"transfers that are held open: not run, needs the program curl\n");
        return;
    }
    for (workers, offload) in [(1, ""), (2, OFFLOAD)] {
        in_namespace_for(PATIENCE, move || test(Case::open(workers, offload)));
    }
}

/// A bypassed flow is refused at its next packet, and passes again when the next policy allows it, with all
/// bytes not acknowledged meanwhile.
#[test]
fn a_policy_that_blocks_stops_what_was_let_go() {
    everywhere(|mut case| {
        reload(&case.folder, &case.running, 2, &policy("drop", "let-go.rules"));
        let (mut got, mut since) = (case.got(), Instant::now());
        let mut sent = case.server.sent.load(Ordering::Acquire);
        let begun = Instant::now();
        // The transfers are silent though the server goes on: it has sent some lines of each transfer
        // meanwhile.
        while since.elapsed() < SILENCE
            || case.server.sent.load(Ordering::Acquire) < sent + 20 * 4 * LINE.len() as u64
        {
            assert!(begun.elapsed() < Duration::from_secs(40), "it goes on: {got:?} {:?}", case.got());
            std::thread::sleep(Duration::from_millis(20));
            if case.got() != got {
                (got, since) = (case.got(), Instant::now());
                sent = case.server.sent.load(Ordering::Acquire);
            }
        }
        // The packet filter judges each packet, from the first one of this generation on.
        case.stand(2, |_| "judged");
        for Transfer { flow, .. } in &case.transfers {
            let told = case.asks.ok("explain-flow", json!({ "flow": flow }));
            let told = &told["flows"][0];
            assert_eq!(
                (&told["refused"]["function"], &told["refused"]["reason"], &told["allowed"]),
                (&json!("pfw"), &json!("pfw_default"), &Value::Null),
                "{told}"
            );
        }
        assert_eq!(case.got(), got);
        reload(&case.folder, &case.running, 3, &policy("allow", "let-go.rules"));
        case.goes_on(20);
        assert_eq!(case.alerts(), [], "nobody looked");
        case.end();
    });
}

/// Detection starts again in the middle of a transfer, and finds what is sent from then on, nothing sent
/// before.
#[test]
fn a_policy_that_inspects_looks_at_the_rest_of_what_was_let_go() {
    everywhere(|mut case| {
        reload(&case.folder, &case.running, 2, &policy("allow", "looks.rules"));
        case.stand(2, |_| "judged");
        case.goes_on(20);
        assert_eq!(case.alerts(), [], "it looks at what comes, not at what came");
        case.server.evil.fetch_add(1, Ordering::AcqRel);
        let mut all: Vec<_> =
            SERVERS.iter().flat_map(|ip| PORTS.map(|port| ((*ip).to_owned(), u64::from(port)))).collect();
        // As EVE writes it.
        for (address, _) in &mut all {
            if address.contains(':') {
                *address = "2001:0db8:0000:0000:0000:0000:0000:0002".to_owned();
            }
        }
        all.sort();
        until("an alert of each transfer", || case.alerts() == all);
        case.goes_on(20);
        case.end();
    });
}
