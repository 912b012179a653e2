// SPDX-License-Identifier: Apache-2.0
//! `bartizan run` that is killed or hangs, with the XDP level below it, in a network namespace and with a bpf
//! file system of its own (needs root; without, it prints so and returns): the link fails open or closed as
//! the host file says, refused flows stay refused, and the next run takes over.

use crate::common;
use crate::level;
use crate::namespace;

use bartizan_ports::{Batch, InlinePort, Port, wait_any};
use bartizan_testkit::packet::{Ip, Packet, SYN, Segment, TCP};
use bartizan_testkit::random::Random;
use common::{Folder, PROGRAM, Running, until};
use level::{
    beside_each_other, counter, datagrams, ends_well, gone_below, network, quiet, send, take, take_what_comes,
};
use namespace::{Still, in_namespace, in_namespace_for, own_bpf_file_system};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const POLICY: &str = "policies: [{name: all, from: any, to: any, chain: [pfw, ids], pfw: {default: allow, rules: [{drop: [tcp, udp], to-ports: 777}]}, ids: {rules: [local.rules]}}]\ndefault: {action: drop}\n";
const RULES: &str = "drop udp any any -> any 666 (msg:\"no\"; sid:1;)\npass udp any any -> any 4000 (msg:\"known\"; bypass; sid:2;)\n";
/// Destination ports: refused by the packet filter, refused by detection, forwarded below, and never
/// finally decided.
const BLOCKED: u16 = 777;
const REFUSED: u16 = 666;
const FORWARDED: u16 = 4000;
const OTHERS: u16 = 5000;
/// The time after which a worker has failed (`stale`), and the longest time until that is noticed.
const STALE: Duration = Duration::from_secs(1);
const SURELY_STALE: Duration = Duration::from_millis(1_500);
/// The folder where attachments are pinned.
const PINS: &str = "/sys/fs/bpf/bartizan";

fn start(folder: &Folder, workers: u16, fail: &str) -> Running {
    folder.write("policy.yaml", POLICY);
    folder.write("local.rules", RULES);
    folder.write(
        "bartizan.yaml",
        format!(
            "links: [{{name: wan, inline: {{a: a1, b: b1, offload: {{level: xdp, entries: 1024, fail: {fail}, stale: {}s}}}}, workers: {workers}}}]\n\
             policy: policy.yaml\nmetrics: {{listen: '127.0.0.1:9100'}}\ncache: none\noutputs: {{eve: {{dir: out}}}}\n",
            STALE.as_secs()
        ),
    );
    let mut command = Command::new(PROGRAM);
    Running::start(command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0))
}

/// A segment that opens a connection.
fn opening(v6: bool, from: u16, to: u16) -> Packet {
    let hosts = if v6 { ["fd00::1", "fd00::2"] } else { ["10.0.0.1", "10.0.0.2"] };
    let [source, destination] = hosts.map(|host| host.parse().unwrap());
    Packet::tcp(&Ip::new(source, destination, TCP), Segment::new((from, to), (1, 0), SYN, &[]))
}

/// Packets to a port, each of a flow of its own, as any host may send them.
fn strangers(from: u16, to: u16) -> Vec<Vec<u8>> {
    let mut frames: Vec<Vec<u8>> = [false, true]
        .iter()
        .flat_map(|v6| [opening(*v6, from, to).frame(), common::udp(*v6, from, to, b"new")])
        .collect();
    let mut options = opening(false, from + 1, to);
    options.ip.options = vec![1; 4];
    let mut extensions = opening(true, from + 1, to);
    extensions.ip.extensions = vec![(60, vec![0, 1, 4, 0, 0, 0, 0])];
    frames.extend([options.frame(), extensions.frame()]);
    frames
}

/// The number of [`strangers`].
const STRANGERS: usize = 6;

/// Sends [`strangers`]; returns the number that arrive.
fn strangers_arrive(ports: &mut [InlinePort; 2], from: u16, to: u16) -> usize {
    let [client, server] = ports;
    send(client, &strangers(from, to));
    take(server, STRANGERS)
}

/// Attachments that are pinned.
fn pinned() -> usize {
    std::fs::read_dir(PINS).map_or(0, Iterator::count)
}

fn kill(running: Running) {
    running.signal("KILL");
    assert_eq!(running.wait().code, None);
}

/// Sends so many rounds of datagrams of 8 flows; returns the number that arrive.
fn arrive(ports: &mut [InlinePort; 2], port: u16, rounds: usize) -> usize {
    let [client, server] = ports;
    let mut came = 0;
    for _ in 0..rounds {
        send(client, &datagrams(port, b"load"));
        came += take(server, 8);
    }
    came
}

/// Sends datagrams that must be refused.
fn nothing_arrives([client, server]: &mut [InlinePort; 2], frames: &[Vec<u8>]) -> bool {
    send(client, frames);
    quiet(server)
}

/// Flows of all three kinds; the first two go below.
fn begin(ports: &mut [InlinePort; 2]) {
    for _ in 0..3 {
        let [client, server] = &mut *ports;
        send(client, &datagrams(REFUSED, b"first"));
        send(client, &datagrams(FORWARDED, b"first"));
        assert_eq!(take(server, 8), 8);
    }
    gone_below(16);
    assert_eq!(arrive(ports, OTHERS, 1), 8);
}

#[test]
fn a_killed_run_fails_open_and_the_next_one_takes_over() {
    in_namespace(|| {
        own_bpf_file_system();
        let folder = Folder::new();
        let mut ports = network(1500);
        let running = start(&folder, 2, "open");
        running.until("running on");
        begin(&mut ports);
        kill(running);
        std::thread::sleep(SURELY_STALE);
        assert_eq!(arrive(&mut ports, OTHERS, 10), 80, "what nobody decides passes");
        assert_eq!(arrive(&mut ports, FORWARDED, 10), 80);
        assert!(nothing_arrives(&mut ports, &datagrams(REFUSED, b"load")), "what was refused does not");
        assert_eq!(strangers_arrive(&mut ports, 30_000, OTHERS), STRANGERS, "so do new flows");
        assert!(nothing_arrives(&mut ports, &strangers(30_000, BLOCKED)), "but what rules refuse does not");
        assert_eq!(pinned(), 2);
        let running = start(&folder, 2, "open");
        running.until("its 16 flows are evaluated again");
        running.until(&format!("{} packets passed uninspected", 80 + STRANGERS));
        // From here on all goes up again, and is judged.
        assert!(nothing_arrives(&mut ports, &datagrams(REFUSED, b"load")));
        assert_eq!(arrive(&mut ports, OTHERS, 2), 16);
        begin(&mut ports);
        ends_well(running);
        let left = |name| counter(&folder, &format!("offload.left.{name}"));
        assert_eq!(
            (left("programs"), left("entries"), left("open_pkts"), left("closed_pkts")),
            (1, 16, 80 + STRANGERS as u64, STRANGERS as u64)
        );
        assert!(left("forwarded_pkts") >= 80 && left("dropped_pkts") >= 8);
        assert_eq!((counter(&folder, "offload.open_pkts"), counter(&folder, "offload.closed_pkts")), (0, 0));
        // An end that was wanted closes the link.
        assert!(pinned() == 0);
        let [client, server] = &mut ports;
        send(client, &datagrams(OTHERS, b"load"));
        assert!(quiet(server));
    });
}

#[test]
fn a_killed_run_fails_closed_and_the_next_one_works() {
    in_namespace(|| {
        own_bpf_file_system();
        let folder = Folder::new();
        let mut ports = network(1500);
        let running = start(&folder, 1, "closed");
        running.until("running on");
        begin(&mut ports);
        assert!(pinned() == 0);
        kill(running);
        let [client, server] = &mut ports;
        for port in [OTHERS, FORWARDED, REFUSED] {
            send(client, &datagrams(port, b"load"));
        }
        std::thread::sleep(SURELY_STALE);
        for port in [OTHERS, FORWARDED, REFUSED] {
            send(client, &datagrams(port, b"load"));
        }
        assert!(quiet(server));
        let running = start(&folder, 1, "closed");
        running.until("running on");
        begin(&mut ports);
        let ended = ends_well(running);
        assert!(!ended.stderr.contains("killed run"), "{}", ended.stderr);
    });
}

/// A host file that fails closed, after a kill: no program that fails open is left.
#[test]
fn what_was_left_open_is_closed_by_a_run_that_wants_it_closed() {
    beside_each_other([true, false], |offload| {
        own_bpf_file_system();
        let folder = Folder::new();
        let mut ports = network(1500);
        let running = start(&folder, 1, "open");
        // Its workers live.
        until("pins", || pinned() == 2);
        kill(running);
        std::thread::sleep(SURELY_STALE);
        assert_eq!(arrive(&mut ports, REFUSED, 1), 8, "detection had not refused it yet");
        assert!(nothing_arrives(&mut ports, &strangers(31_000, BLOCKED)), "the packet filter refuses it");
        let running = if offload {
            start(&folder, 1, "closed")
        } else {
            let mut command = Command::new(PROGRAM);
            let arguments = ["run", "--inline", "a1", "b1", "--policy", "policy.yaml", "--out", "out"];
            Running::start(command.args(arguments).current_dir(&folder.0))
        };
        running.until("that a killed run left");
        running.until("running on");
        assert!(nothing_arrives(&mut ports, &datagrams(REFUSED, b"load")));
        assert_eq!(arrive(&mut ports, OTHERS, 1), 8);
        assert!(pinned() == 0);
        ends_well(running);
    });
}

#[test]
fn a_run_that_hangs_fails_as_the_policy_says_and_goes_on() {
    beside_each_other(["open", "closed"], |fail| {
        own_bpf_file_system();
        let folder = Folder::new();
        let mut ports = network(1500);
        let running = start(&folder, 1, fail);
        running.until("running on");
        begin(&mut ports);
        running.signal("STOP");
        std::thread::sleep(SURELY_STALE);
        let open = fail == "open";
        assert_eq!(arrive(&mut ports, FORWARDED, 5), 40, "what is decided stays so");
        assert!(nothing_arrives(&mut ports, &datagrams(REFUSED, b"load")));
        let [client, server] = &mut ports;
        for _ in 0..5 {
            send(client, &datagrams(OTHERS, b"load"));
        }
        assert!(if open { take(server, 40) == 40 } else { quiet(server) });
        running.signal("CONT");
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(arrive(&mut ports, OTHERS, 5), 40);
        ends_well(running);
        let failed = (counter(&folder, "offload.open_pkts"), counter(&folder, "offload.closed_pkts"));
        let (failed, not) = if open { failed } else { (failed.1, failed.0) };
        assert_eq!(not, 0);
        assert_eq!(counter(&folder, "offload.missed") > 0, open);
        // Each packet was counted once: below, as failed open or closed, or here.
        let flows = bartizan_testkit_worker::events::read(&folder.path("out/eve.json"));
        let seen = |port: u16| -> u64 {
            let of_port = flows.iter().filter(|event| {
                event["event_type"] == "flow" && event["proto"] == "UDP" && event["dest_port"] == port
            });
            of_port.map(|flow| level::number(&flow["flow"]["pkts_toserver"])).sum()
        };
        assert_eq!(seen(OTHERS), 8 + 40);
        // If the worker got no processor for a second before, the link failed then as well, for frames that
        // this test does not wait for.
        assert_eq!(seen(REFUSED) + failed, 4 * 8 + 40);
    });
}

/// One worker of two hangs for two seconds: its flows fail, those of the other one do not.
#[test]
fn a_worker_that_hangs_fails_and_the_others_do_not() {
    beside_each_other(["open", "closed"], |fail| {
        own_bpf_file_system();
        let folder = Folder::new();
        let mut ports = network(1500);
        let running = start(&folder, 2, fail);
        running.until("running on");
        begin(&mut ports);
        let begun = Instant::now();
        let still = Still::hold(running.id(), "worker-1");
        std::thread::sleep(SURELY_STALE);
        // 64 flows, which no packet was seen of before: about half of them are each worker's.
        let flows: Vec<Vec<u8>> =
            (0..64u16).map(|flow| common::udp(flow % 2 == 0, 30_000 + flow, OTHERS, b"load")).collect();
        let [client, server] = &mut ports;
        send(client, &flows);
        let came = if fail == "open" { take(server, 64) } else { take_what_comes(server) };
        while begun.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(still);
        std::thread::sleep(Duration::from_millis(300));
        // It serves its flows again.
        send(client, &flows);
        assert_eq!(take(server, 64), 64);
        ends_well(running);
        let open = counter(&folder, "offload.open_pkts") as usize;
        let closed = counter(&folder, "offload.closed_pkts") as usize;
        if fail == "open" {
            assert_eq!((came, closed), (64, 0));
        } else {
            assert_eq!((came, open), (64 - closed, 0));
        }
        let failed = open + closed;
        assert!((8..=56).contains(&failed), "{failed} of 64");
    });
}

/// Packets that arrive meanwhile, by destination port.
#[derive(Default)]
struct Arrived {
    blocked: AtomicU64,
    refused: AtomicU64,
    forwarded: AtomicU64,
    others: AtomicU64,
}

impl Arrived {
    fn count(&self, frame: &[u8]) {
        // Where its ports are that it goes to, and its protocol.
        let (at, protocol) = match (frame.get(12..14), frame.get(14), frame.get(20)) {
            (Some([0x86, 0xdd]), _, Some(60)) => (64, frame.get(54)),
            (Some([0x86, 0xdd]), _, next) => (56, next),
            (_, Some(first), _) => (16 + usize::from(first & 15) * 4, frame.get(23)),
            _ => return,
        };
        let Some(port) = frame.get(at..at + 2) else { return };
        let count = match u16::from_be_bytes([port[0], port[1]]) {
            // A datagram may be taken for an answer by chance, where another flow's mark has its hash; what
            // opens a connection never is.
            BLOCKED if protocol == Some(&6) => &self.blocked,
            REFUSED => &self.refused,
            FORWARDED => &self.forwarded,
            OTHERS => &self.others,
            _ => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn passed(&self) -> [u64; 2] {
        [&self.forwarded, &self.others].map(|count| count.load(Ordering::Relaxed))
    }

    /// More packets of both kinds arrive than before.
    fn go_on(&self, what: &str) {
        let before = self.passed();
        until(what, || self.passed().iter().zip(before).all(|(now, before)| *now > before + 8));
    }
}

/// Runs `test` while datagrams of 8 flows of each kind are sent, a round of them every few milliseconds.
fn under_traffic(ports: &mut [InlinePort; 2], arrived: &Arrived, test: impl FnOnce()) {
    let ends = AtomicBool::new(false);
    let [client, server] = ports;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0;
            while !ends.load(Ordering::Relaxed) {
                for port in [REFUSED, FORWARDED, OTHERS] {
                    send(client, &datagrams(port, b"load"));
                }
                // Each round others.
                round = (round + 2) % 20_000;
                for port in [BLOCKED, OTHERS] {
                    send(client, &strangers(10_000 + round, port));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        scope.spawn(|| {
            let mut batch = Batch::with_capacity(256);
            while !ends.load(Ordering::Relaxed) {
                server.receive(&mut batch).unwrap();
                batch.indices().filter_map(|at| batch.bytes(at)).for_each(|frame| arrived.count(frame));
                if batch.is_empty() {
                    wait_any(&mut [&mut *server], None, Duration::ZERO, Duration::from_millis(20)).unwrap();
                }
            }
        });
        let over = Over(&ends);
        test();
        drop(over);
    });
}

/// Ends the background threads of a test, however it ends.
struct Over<'e>(&'e AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A number from the environment, for longer runs (tests/kills/run).
fn asked(name: &str, usual: u64) -> u64 {
    std::env::var(name)
        .map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

fn kills() -> u64 {
    asked("BARTIZAN_KILLS", 5)
}

fn limit() -> Duration {
    Duration::from_secs(60 + 15 * kills())
}

#[test]
fn kills_at_random_moments_leave_the_link_open() {
    in_namespace_for(limit(), || killed_at_random("open"));
}

#[test]
fn kills_at_random_moments_leave_the_link_closed() {
    in_namespace_for(limit(), || killed_at_random("closed"));
}

fn killed_at_random(fail: &'static str) {
    own_bpf_file_system();
    let seed = asked("BARTIZAN_SEED", 1);
    let (folder, mut ports, arrived) = (Folder::new(), network(1500), Arrived::default());
    let mut random = Random::new(seed);
    let mut draw = |below: usize| random.below(below) as u64;
    under_traffic(&mut ports, &arrived, || {
        // What a run refuses below has got there by then.
        const SETTLED: Duration = Duration::from_millis(1_000);
        for number in 0..kills() {
            let what = format!("kill {number} of seed {seed}, {fail}");
            let was_left = pinned() > 0;
            let running = start(&folder, 1 + (number % 2) as u16, fail);
            // From the middle of its start on.
            let early = draw(3) == 0;
            let settled = if early {
                std::thread::sleep(Duration::from_millis(draw(800)));
                false
            } else {
                running.until("running on");
                if was_left {
                    running.until("that a killed run left is replaced");
                }
                arrived.go_on(&format!("{what}: the path works"));
                std::thread::sleep(SETTLED + Duration::from_millis(draw(1_000)));
                true
            };
            if !was_left {
                assert!(!running.stderr().contains("killed run"), "{what}: {}", running.stderr());
            }
            let refused = arrived.refused();
            kill(running);
            // In the pairs' queues.
            std::thread::sleep(Duration::from_millis(100));
            if fail == "closed" {
                let before = arrived.passed();
                std::thread::sleep(Duration::from_millis(draw(2_500)));
                assert_eq!(arrived.passed(), before, "{what}: nothing passes");
                assert_eq!(arrived.refused(), 0, "{what}");
                assert!(pinned() == 0, "{what}");
                continue;
            }
            std::thread::sleep(Duration::from_millis(draw(1_500)));
            if pinned() > 0 && draw(2) == 0 {
                std::thread::sleep(SURELY_STALE);
                arrived.go_on(&format!("{what}: the link is open"));
            }
            if settled {
                assert_eq!(arrived.refused(), refused, "{what}: what was refused stays so");
            }
            assert_eq!(arrived.blocked.load(Ordering::Relaxed), 0, "{what}: what rules refuse never passes");
        }
        let running = start(&folder, 2, fail);
        running.until("running on");
        arrived.go_on("the last run works");
        ends_well(running);
        assert!(pinned() == 0);
        std::thread::sleep(Duration::from_millis(200));
        let before = arrived.passed();
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(arrived.passed(), before, "the link is closed");
    });
}
