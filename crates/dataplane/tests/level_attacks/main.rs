// SPDX-License-Identifier: Apache-2.0
//! Frames of an attacker who has read the XDP program, and wants a packet of a refused or inspected flow to
//! pass it: families of odd frames, each between plain packets of flows that are below. Each frame gets the
//! verdict that it gets without a level, and frames that only the host may judge are never handled below.
//!
//! The kernel runs the real program on each frame (BPF_PROG_TEST_RUN), in a network namespace that ends with
//! the test; a real worker has made the entries.

mod families;
mod ways;

use crate::xdp_program;

use bartizan_base::{LinkId, Timestamp};
use bartizan_dataplane::worker::Frame;
use bartizan_offload::FlowManager;
use bartizan_packet::LinkType;
use bartizan_stages::settings::EngineSettings;
use bartizan_testkit::namespace::{inside, number, ports};
use bartizan_testkit::packet::{ACK, Datagram, End, FIN, Ip, Layer, PSH, Packet, SYN, Segment, TCP, UDP};
use bartizan_testkit::tunnels::Tunnel;
use bartizan_testkit_worker::{Made, Stack};
use bartizan_xdp::XdpDevice;
use bartizan_xdp::{ModeChoice, PortSetup, PortSide, XdpOptions, XdpProgram};
use families::{EITHER, Family, UP};
use serde_json::Value;
use std::time::SystemTime;
use ways::{carries, other_ways};
use xdp_program::{DROP, PASS, REDIRECT};

/// Flows that the level has room for.
const ENTRIES: u32 = 8_192;
const POLICY: &str = "chain: [pfw, ids], pfw: {default: allow}, ids: {}";
/// Flows are bypassed, refused, or inspected to their end, by their port; those around others are bypassed.
const RULES: &str = "\
    drop tcp any any -> any 666 (sid:1;)\ndrop udp any any -> any 666 (sid:2;)\n\
    pass tcp any any -> any 443 (flow:established; bypass; sid:3;)\npass udp any any -> any 5300 (bypass; sid:4;)\n\
    pass ip [10.9.0.0/16,fd09::/16] any -> any any (bypass; sid:5;)\n\
    drop tcp any any -> any 700 (content:\"evil\"; sid:6;)\ndrop udp any any -> any 700 (content:\"evil\"; sid:7;)\n";

fn tune(settings: &mut EngineSettings) {
    settings.flow_capacity = 20_000;
}

/// Disposition of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bypassed,
    Refused,
    Inspected,
}

/// Encapsulation of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrap {
    Nothing,
    /// VLAN tags.
    Tags(&'static [u16]),
    /// A tunnel over IPv4 or IPv6.
    Tunnel(Tunnel, bool),
}

const WRAPS: [Wrap; 9] = [
    Wrap::Nothing,
    Wrap::Tags(&[7]),
    Wrap::Tags(&[7, 8]),
    Wrap::Tunnel(Tunnel::Vxlan(5), false),
    Wrap::Tunnel(Tunnel::Vxlan(5), true),
    Wrap::Tunnel(Tunnel::Geneve(5, 1), false),
    Wrap::Tunnel(Tunnel::GeneveBridge(5), true),
    Wrap::Tunnel(Tunnel::Gtp(5, true, 0), false),
    Wrap::Tunnel(Tunnel::Ip, false),
];

/// Hosts and ports of a tunnel's ends.
fn around(v6: bool, side: usize) -> [End; 2] {
    let address = |host: u8| xdp_address(v6, 9, host);
    let (from, to) = if side == 0 { (1, 2) } else { (2, 1) };
    [(address(from), 20_000 + side as u16), (address(to), 0)]
}

fn xdp_address(v6: bool, network: u8, host: u8) -> std::net::IpAddr {
    let text = if v6 { format!("fd0{network}::{host}") } else { format!("10.{network}.0.{host}") };
    text.parse().expect("an address")
}

impl Wrap {
    /// The frame of a packet of a side, with its encapsulation.
    fn frame(self, packet: &Packet, side: usize) -> Vec<u8> {
        match self {
            Wrap::Nothing => packet.frame(),
            Wrap::Tags(tags) => {
                let mut packet = packet.clone();
                packet.ip.tags.extend(tags);
                packet.frame()
            }
            Wrap::Tunnel(tunnel, v6) => {
                let [from, to] = around(v6, side);
                tunnel.around((from, to), packet.ip.src.is_ipv6(), &packet.bytes()).frame()
            }
        }
    }
}

/// A flow, and where it is.
#[derive(Clone, Debug)]
struct Flow {
    kind: Kind,
    wrap: Wrap,
    protocol: u8,
    /// Client and server.
    ends: [End; 2],
    /// The next sequence numbers of a connection.
    next: [u32; 2],
}

impl Flow {
    /// A packet of a side.
    fn packet(&self, side: usize, flags: u16, load: &[u8]) -> Packet {
        let [from, to] = [self.ends[side], self.ends[1 - side]];
        let ip = Ip::new(from.0, to.0, self.protocol);
        let layer = if self.protocol == TCP {
            let numbers = (self.next[side], if flags & ACK > 0 { self.next[1 - side] } else { 0 });
            Layer::Tcp(Segment::new((from.1, to.1), numbers, flags, load))
        } else {
            Layer::Udp(Datagram::new((from.1, to.1), load))
        };
        Packet { ip, layer, piece: None }
    }

    /// One that went on.
    fn sent(&mut self, side: usize, flags: u16, load: &[u8]) -> Packet {
        let packet = self.packet(side, flags, load);
        let more = load.len() as u32 + u32::from(flags & (SYN | FIN) > 0);
        self.next[side] = self.next[side].wrapping_add(more);
        packet
    }
}

/// Two stacks that receive the same frames, with the level and without one.
struct Twins {
    with: Stack,
    without: Stack,
    program: XdpProgram,
    interface: u32,
    nanos: u64,
    frames: u64,
    /// Handled below: forwarded, dropped.
    below: [u64; 2],
    next_port: u16,
}

impl Twins {
    fn new(name: &str, policy: &str, rules: &str) -> Self {
        let made = |name: &str| Stack::new(&Made { name, policy, set: &SET, tune, rules, thresholds: "" });
        // No frames of this machine among those that are counted.
        for which in ["all", "default"] {
            let path = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
            std::fs::write(path, "1").expect("this namespace is the test's");
        }
        let (mut with, without) = (made(name), made(&format!("{name}-alone")));
        ports(["lan", "wan"]);
        let tunnels = *with.worker.decoder_config();
        let options =
            XdpOptions { flows: ENTRIES, mode: ModeChoice::Auto, tunnels, workers: 1, early: None, seed: 77 };
        let mut program = XdpProgram::load(&options).expect("a program");
        for (name, index) in [("lan", 0), ("wan", 1)] {
            let port = PortSetup {
                ifindex: number(name),
                link: LinkId(0),
                side: PortSide::Unknown,
                index,
                pair: 1 - index,
                vlans_in_key: true,
                drop_samples: None,
                early: None,
                watch: None,
            };
            program.attach(&port).expect("a port");
        }
        let device = XdpDevice::new(program.tables(), 0, ENTRIES);
        with.worker.set_level(FlowManager::new(Box::new(device), with.worker.generation()));
        // The program stamps packets by the kernel's clock.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock that is set");
        let interface = number("lan");
        let (nanos, next_port) = (now.as_nanos() as u64, 1_024);
        Twins { with, without, program, interface, nanos, frames: 0, below: [0; 2], next_port }
    }

    fn swap(&mut self, policy: &str, rules: &str) {
        self.with.swap(policy, rules);
        self.without.swap(policy, rules);
    }

    fn turn(&mut self) {
        let now = Timestamp::from_nanos(self.nanos);
        self.with.worker.drive_level(now, &mut self.with.recorder);
    }

    /// Passes a frame in. Returns whether it was forwarded (`None`: it waits for other fragments), and
    /// whether the level handled it.
    fn arrives(&mut self, bytes: &[u8], what: &str) -> (Option<bool>, bool) {
        self.nanos += 20_000;
        self.frames += 1;
        let now = Timestamp::from_nanos(self.nanos);
        let hand_in = |stack: &mut Stack| {
            let (link, link_type) = (LinkId(0), LinkType::ETHERNET);
            let frame = Frame { now, bytes, wire_len: bytes.len() as u32, link_type, link, number: None };
            let decision = stack.worker.frame(&frame, &mut stack.recorder);
            decision.map(|decision| decision.verdict.forwards())
        };
        let below = match self.program.run_on(bytes, self.interface, 1).expect("a run").result {
            PASS => None,
            REDIRECT => Some(true),
            DROP => Some(false),
            other => panic!("{what}: the program returned {other}"),
        };
        if let Some(forwards) = below {
            self.below[usize::from(!forwards)] += 1;
        }
        let with = below.or_else(|| hand_in(&mut self.with));
        let without = hand_in(&mut self.without);
        assert!(with == without, "{what}: {with:?}, not {without:?}; below {below:?}\n{bytes:02x?}");
        (with, below.is_some())
    }

    /// A flow that is established as far as its kind allows.
    fn flow(&mut self, kind: Kind, wrap: Wrap, v6: bool, protocol: u8) -> Flow {
        self.next_port += 1;
        let port = match (kind, protocol) {
            (Kind::Bypassed, TCP) => 443,
            (Kind::Bypassed, _) => 5_300,
            (Kind::Refused, _) => 666,
            (Kind::Inspected, _) => 700,
        };
        let ends = [(xdp_address(v6, 1, 1), self.next_port), (xdp_address(v6, 1, 2), port)];
        let mut flow = Flow { kind, wrap, protocol, ends, next: [100, 500] };
        if protocol == TCP {
            for (side, flags) in [(0, SYN), (1, SYN | ACK), (0, ACK)] {
                let packet = flow.sent(side, flags, b"");
                self.arrives(&wrap.frame(&packet, side), "a handshake");
            }
        }
        for number in 0..8 {
            let packet = flow.sent(number % 2, ACK, b"load");
            self.arrives(&wrap.frame(&packet, number % 2), "a plain packet");
            self.turn();
        }
        flow
    }

    /// Sends a plain packet of a flow: decided flows are handled below, if the flow is there, inspected ones
    /// never.
    fn plain(&mut self, flow: &mut Flow, what: &str) -> bool {
        let packet = flow.sent(0, ACK, b"load");
        let (forwards, below) = self.arrives(&flow.wrap.frame(&packet, 0), what);
        let expected = flow.kind != Kind::Refused;
        if below {
            assert!(flow.kind != Kind::Inspected && forwards == Some(expected), "{what}: {flow:?}");
        }
        below
    }

    /// All flows end: records are equal but for levels, and each frame was counted once.
    fn check(mut self) {
        self.turn();
        let up = self.frames - self.below[0] - self.below[1];
        let line = self.program.tables().port_counters(0).expect("a port");
        assert_eq!((line.frames, line.up), (self.frames, up));
        assert_eq!([line.forwarded, line.dropped], self.below);
        let flows = |events: Vec<Value>| {
            let mut flows: Vec<String> = events
                .into_iter()
                .filter(|event| event["event_type"] == "flow")
                .map(|event| {
                    let of = |key: &str| event["flow"][key].as_u64().unwrap_or(0);
                    let counts =
                        ["pkts_toserver", "pkts_toclient", "bytes_toserver", "bytes_toclient"].map(of);
                    format!(
                        "{} {} {} {} {} {counts:?}",
                        event["src_ip"],
                        event["src_port"],
                        event["dest_ip"],
                        event["dest_port"],
                        event["proto"]
                    )
                })
                .collect();
            flows.sort();
            flows
        };
        let ((with, events), (without, others)) = (self.with.finish(), self.without.finish());
        assert_eq!(flows(events), flows(others));
        let level = with.level_counters().expect("a level");
        let dropped: u64 = level.dropped.iter().map(|dropped| dropped.packets).sum();
        assert_eq!(dropped, self.below[1], "what was dropped below was dropped for a reason");
        let refused =
            |worker: &bartizan_dataplane::worker::Worker| worker.counters().refused.iter().sum::<u64>();
        assert_eq!(refused(&with) + dropped, refused(&without));
    }
}

/// GTP-U is looked for, and checksums are looked at.
const SET: [(&str, &str); 2] = [("decoder.gtp.enabled", "yes"), ("pcap-file.checksum-checks", "yes")];

/// A payload that detection refuses.
const EVIL: &[u8] = b"this is evil, and long enough to be cut into fragments of some bytes";

/// Each family between plain packets of each kind of flow, in each wrap.
fn attack(twins: &mut Twins, families: &[Family], may_be_below: bool) -> (u32, u32) {
    let (mut tried, mut were_below) = (0, 0);
    for (family, make) in families {
        for wrap in WRAPS {
            for (v6, protocol) in [(false, TCP), (false, UDP), (true, TCP), (true, UDP)] {
                for kind in [Kind::Bypassed, Kind::Refused, Kind::Inspected] {
                    let what = format!("{family}, {kind:?}, {wrap:?}, IPv6 {v6}, protocol {protocol}");
                    let mut flow = twins.flow(kind, wrap, v6, protocol);
                    were_below += u32::from(twins.plain(&mut flow, &what));
                    for frame in make(&flow) {
                        let (_, below) = twins.arrives(&frame, &what);
                        assert!(
                            !below || may_be_below && kind != Kind::Inspected,
                            "{what}: it is handled below"
                        );
                        tried += 1;
                    }
                    for _ in 0..2 {
                        twins.plain(&mut flow, &what);
                    }
                    twins.turn();
                }
            }
        }
    }
    (tried, were_below)
}

/// Tunnels and tags that lead to the same packet inside, of flows that are below, by another way: what is
/// inside is another flow, or one whose entry may act as well.
#[test]
fn the_same_packet_by_another_way_has_the_fate_that_it_has_at_the_host() {
    if !inside("the_same_packet_by_another_way_has_the_fate_that_it_has_at_the_host") {
        return;
    }
    let mut twins = Twins::new("ways", POLICY, RULES);
    let mut tried = 0;
    for wrap in WRAPS {
        for (v6, protocol) in [(false, TCP), (false, UDP), (true, TCP), (true, UDP)] {
            for kind in [Kind::Bypassed, Kind::Refused, Kind::Inspected] {
                let what = format!("{kind:?}, {wrap:?}, IPv6 {v6}, protocol {protocol}");
                let mut flow = twins.flow(kind, wrap, v6, protocol);
                twins.plain(&mut flow, &what);
                let packet = flow.packet(0, ACK | PSH, EVIL);
                for (other, frame) in other_ways(&packet) {
                    let (_, below) = twins.arrives(&frame, &format!("{other}: {what}"));
                    assert!(!below || kind != Kind::Inspected || !carries(&frame, &flow), "{other}: {what}");
                    tried += 1;
                }
                twins.plain(&mut flow, &what);
                twins.turn();
            }
        }
    }
    println!("{tried} frames by other ways; {:?}", twins.below);
    assert!(twins.below.iter().all(|below| *below > 500), "{:?}", twins.below);
    twins.check();
}

/// A sender whose flow is bypassed, and who expects it to be inspected soon, prepares with odd frames: later
/// data is inspected at its true position after the reload.
#[test]
fn flows_with_odd_frames_are_inspected_after_a_reload() {
    if !inside("flows_with_odd_frames_are_inspected_after_a_reload") {
        return;
    }
    const INSPECTED: &str = "pass ip [10.9.0.0/16,fd09::/16] any -> any any (bypass; sid:5;)\n\
        drop tcp any any -> any 443 (content:\"evil\"; sid:6;)\ndrop udp any any -> any 5300 (content:\"evil\"; sid:7;)\n";
    let mut twins = Twins::new("reload", POLICY, RULES);
    let mut flows = Vec::new();
    for (family, make) in UP.iter().chain(EITHER) {
        for wrap in [Wrap::Nothing, Wrap::Tunnel(Tunnel::Vxlan(5), false), Wrap::Tunnel(Tunnel::Ip, false)] {
            for (v6, protocol) in [(false, TCP), (true, UDP), (true, TCP)] {
                let what = format!("{family}, {wrap:?}, IPv6 {v6}, protocol {protocol}");
                let mut flow = twins.flow(Kind::Bypassed, wrap, v6, protocol);
                for frame in make(&flow) {
                    twins.arrives(&frame, &what);
                }
                twins.plain(&mut flow, &what);
                // All of it has come to its receiver.
                let answer = flow.sent(1, ACK, b"load");
                twins.arrives(&flow.wrap.frame(&answer, 1), &what);
                flows.push((what, flow));
            }
        }
    }
    twins.turn();
    assert!(twins.below[0] > 1_000, "{:?}", twins.below);
    twins.swap(POLICY, INSPECTED);
    for (what, flow) in &mut flows {
        let [first, second]: [&[u8]; 2] =
            if flow.protocol == TCP { [b"this is ev", b"il"] } else { [b"evil", b"evil"] };
        let mut pass = |load| {
            let packet = flow.sent(0, ACK | PSH, load);
            twins.arrives(&flow.wrap.frame(&packet, 0), what)
        };
        let fates = [pass(first), pass(second)];
        assert!(fates.iter().all(|(_, below)| !below), "{what}: {fates:?}");
        assert!(fates.iter().any(|(forwards, _)| *forwards == Some(false)), "{what}: {fates:?}");
    }
    twins.check();
}

#[test]
fn odd_frames_of_flows_below_are_judged_by_the_host() {
    if !inside("odd_frames_of_flows_below_are_judged_by_the_host") {
        return;
    }
    let mut twins = Twins::new("up", POLICY, RULES);
    let (tried, below) = attack(&mut twins, UP, false);
    assert!(tried > 8_000 && below > 3_100, "{tried} {below}");
    println!("{tried} odd frames, between those of {below} flows that were below; {:?}", twins.below);
    twins.check();
}

#[test]
fn what_is_odd_and_handled_below_is_what_the_host_makes_of_it() {
    if !inside("what_is_odd_and_handled_below_is_what_the_host_makes_of_it") {
        return;
    }
    let mut twins = Twins::new("either", POLICY, RULES);
    let (tried, below) = attack(&mut twins, EITHER, true);
    assert!(tried > 1_400 && below > 1_300, "{tried} {below}");
    println!("{tried} odd frames, between those of {below} flows that were below; {:?}", twins.below);
    twins.check();
}
