// SPDX-License-Identifier: Apache-2.0
//! A level below the host under random traffic: each packet is handled and counted in one place, and the
//! records of flows have the sums.

#[path = "level/bypassed.rs"]
mod bypassed;

use bartizan_base::{LinkId, PacketDuration, Timestamp};
use bartizan_dataplane::driver::LiveOptions;
use bartizan_dataplane::worker::Frame;
use bartizan_flow::{FlowKey, FlowScope};
use bartizan_offload::{Action, DeviceKey, FlowManager};
use bartizan_packet::windows::WindowSegment;
use bartizan_packet::{LinkType, TunnelKind, TunnelTag};
use bartizan_stages::settings::EngineSettings;
use bartizan_testkit::hosts::{address, ethernet, ip, tcp, udp};
use bartizan_testkit::layers::vxlan;
use bartizan_testkit::random::Random;
use bartizan_testkit_device::{Habits, MockCounters, MockDevice, MockPacket, MockWire};
use bartizan_testkit_worker::{Made, Stack};
use serde_json::Value;

#[path = "level/filter.rs"]
mod filter;
#[path = "level/spill.rs"]
mod spill;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// States of a connection.
const CLOSED: u8 = 0;
const SYN_SENT: u8 = 1;
const SYN_RECEIVED: u8 = 2;
const OPEN: u8 = 3;
/// The client has closed its side; one more: the server has.
const HALF: u8 = 4;
const HALF_BY_SERVER: u8 = HALF + 1;
/// The client has closed as the second; one more: the server has.
const LAST: u8 = 6;
const LAST_OF_CLIENT: u8 = LAST + 1;

/// The packet filter allows for good what its rules do not match.
const POLICY: &str = "chain: [pfw, ids], pfw: {default: allow}, ids: {}";
const RULES: &str = "\
    drop tcp any any -> any 666 (sid:1;)\ndrop udp any any -> any 666 (sid:2;)\n\
    reject udp any any -> any 667 (sid:3;)\n\
    pass tcp any any -> any [53,80,443] (flow:established; bypass; sid:4;)\npass udp any any -> any [53,80,443] (bypass; sid:5;)\n\
    pass udp any any -> any 4789 (bypass; sid:6;)\n";
/// Everything is inspected, and one port refused by the packet filter.
const OTHER: &str = "chain: [pfw, ids], pfw: {default: allow, rules: [{drop: udp, to-ports: 668}, {drop: udp, from-ports: 668}]}, ids: {}";

/// A flow of the generator.
#[derive(Clone, Copy, Default)]
struct Flow {
    v6: bool,
    tcp: bool,
    client: (u8, u16),
    server: (u8, u16),
    seq: [u32; 2],
    opened: u8,
    /// Its packets are in a tunnel of this VNI; each side sends those around from a port of its own.
    vni: Option<u32>,
    around: u16,
}

/// Packets and bytes by direction.
type Sums = ([u64; 2], [u64; 2]);

struct Bench {
    stack: Stack,
    wire: MockWire,
    /// A second level (XDP), which receives the packets that `wire` passes up.
    next: Option<MockWire>,
    random: Random,
    flows: Vec<Flow>,
    nanos: u64,
    sent: Sums,
    /// Packets by verdict: forwarded, dropped.
    fate: [u64; 2],
    /// Whether each packet was forwarded.
    fates: Vec<bool>,
    /// Packets of one generation.
    swaps: usize,
    /// Long silences occur between packets.
    pauses: bool,
    /// Packets of a flow come several at a time, and turns of the level between.
    bursts: bool,
}

fn tune(settings: &mut EngineSettings) {
    settings.flow_capacity = 1_000;
}

/// A packet as the device sees it.
fn as_seen(key: &FlowKey, frame: &[u8]) -> MockPacket {
    let tcp =
        frame.get(if key.is_ipv6() { 54 } else { 34 }..).filter(|tcp| key.protocol() == 6 && tcp.len() >= 20);
    let segment = tcp.map(|tcp| {
        let number = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap());
        let options = usize::from(tcp[12] >> 4) * 4;
        let data = tcp.len() - options;
        WindowSegment {
            sequence: number(4),
            end: number(4).wrapping_add(data as u32 + u32::from(tcp[13] & FIN)),
            acknowledged: number(8),
            window: u16::from_be_bytes([tcp[14], tcp[15]]),
            timestamp: (options == 32).then(|| number(24)),
            urgent: tcp[13] & 0x20 != 0,
        }
    });
    MockPacket { from_low: !key.is_reversed(), bytes: frame.len() as u64, segment }
}

impl Bench {
    fn new(seed: u64, habits: Option<Habits>, name: &str) -> Self {
        let mut stack =
            Stack::new(&Made { name, policy: POLICY, set: &[], tune, rules: RULES, thresholds: "" });
        let (device, wire) = MockDevice::new(Habits { seed, ..habits.unwrap_or_default() });
        if habits.is_some() {
            let manager = FlowManager::new(Box::new(device), stack.worker.generation());
            stack.worker.set_level(manager);
        }
        let mut random = Random::new(seed);
        let flows = (0..120).map(|number| Bench::flow(&mut random, number)).collect();
        Bench {
            stack,
            wire,
            next: None,
            random,
            flows,
            nanos: 1_000_000_000,
            sent: Default::default(),
            fate: [0; 2],
            fates: Vec::new(),
            swaps: 400,
            pauses: true,
            bursts: false,
        }
    }

    fn flow(random: &mut Random, number: u16) -> Flow {
        let port = *random.pick(&[80, 443, 53, 666, 667, 668]);
        // Either side may have the lower address.
        let (a, b) = (1 + random.below(20) as u8, 30 + random.below(20) as u8);
        let (client, server) = if random.percent(50) { (a, b) } else { (b, a) };
        Flow {
            v6: random.percent(40),
            tcp: random.percent(60),
            client: (client, 10_000 + number),
            server: (server, port),
            vni: random.percent(40).then(|| random.below(3) as u32),
            // Tunnels carry several flows, some of which are refused.
            around: 20_000 + number % 30,
            ..Flow::default()
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.nanos)
    }

    /// The next packet of a flow, in a direction (0: of the client).
    fn packet(&mut self, number: usize) {
        let mut flow = self.flows[number];
        let mut side = usize::from(self.random.percent(50));
        let payload = vec![b'x'; self.random.below(400)];
        let (mut flags, mut last_ack) = (0, false);
        let message = if flow.tcp {
            flags = match flow.opened {
                CLOSED => {
                    flow.seq = [self.random.draw() as u32, self.random.draw() as u32];
                    (side, flow.opened) = (0, SYN_SENT);
                    SYN
                }
                SYN_SENT => {
                    (side, flow.opened) = (1, SYN_RECEIVED);
                    SYN | ACK
                }
                SYN_RECEIVED => {
                    (side, flow.opened) = (0, OPEN);
                    ACK
                }
                OPEN if self.random.below(300) == 0 => {
                    flow.opened = CLOSED;
                    RST | ACK
                }
                OPEN if self.random.percent(2) => {
                    flow.opened = HALF + side as u8;
                    FIN | ACK
                }
                half @ (HALF | HALF_BY_SERVER) => {
                    side = usize::from(half == HALF);
                    if self.random.percent(20) {
                        flow.opened = LAST + side as u8;
                        FIN | ACK
                    } else {
                        ACK
                    }
                }
                last @ (LAST | LAST_OF_CLIENT) => {
                    (side, flow.opened) = (usize::from(last == LAST), CLOSED);
                    last_ack = true;
                    ACK
                }
                _ => ACK,
            };
            let bare = flags & (SYN | FIN | RST) > 0 || last_ack;
            let data: &[u8] = if bare { b"" } else { &payload };
            let (from, to) = if side == 0 { (flow.client, flow.server) } else { (flow.server, flow.client) };
            let ack = if flags & ACK > 0 { flow.seq[1 - side] } else { 0 };
            let segment = tcp((from.1, to.1), flow.seq[side], ack, flags, data);
            flow.seq[side] =
                flow.seq[side].wrapping_add(data.len() as u32 + u32::from(flags & (SYN | FIN) > 0));
            segment
        } else {
            let (from, to) = if side == 0 { (flow.client, flow.server) } else { (flow.server, flow.client) };
            udp((from.1, to.1), &payload)
        };
        self.flows[number] = flow;
        let (from, to) = if side == 0 { (flow.client, flow.server) } else { (flow.server, flow.client) };
        let protocol = if flow.tcp { 6 } else { 17 };
        let bytes = ethernet(flow.v6, &ip(flow.v6, (from.0, to.0), protocol, &message));
        let ends = |(host, port): (u8, u16)| (address(flow.v6, host), port);
        let tunnel = flow.vni.map_or(TunnelTag::NONE, |vni| TunnelTag::new(TunnelKind::Vxlan, vni));
        let scope =
            FlowScope { tunnel: tunnel.key(), level: flow.vni.is_some().into(), ..FlowScope::default() };
        let key = FlowKey::ported(&scope, protocol, ends(from), ends(to));
        match flow.vni {
            None => self.arrives(&bytes, &key, side, flags),
            Some(vni) => {
                self.arrives_in_tunnel((vni, flow.around), &bytes, &key, side, flags & (SYN | FIN | RST) > 0);
            }
        }
    }

    /// The devices that a packet comes to before the host, in order.
    fn wires(&self) -> impl Iterator<Item = &MockWire> {
        core::iter::once(&self.wire).chain(&self.next)
    }

    /// A datagram of IPv4 with a few bytes.
    fn datagram(&mut self, side: usize, from: (u8, u16), to: (u8, u16)) {
        self.nanos += 1_000_000;
        let bytes = ethernet(false, &ip(false, (from.0, to.0), 17, &udp((from.1, to.1), b"some")));
        let ends = |(host, port): (u8, u16)| (address(false, host), port);
        let key = FlowKey::ported(&FlowScope::default(), 17, ends(from), ends(to));
        self.arrives(&bytes, &key, side, 0);
    }

    fn arrives(&mut self, bytes: &[u8], key: &FlowKey, side: usize, flags: u8) {
        self.sent.0[side] += 1;
        self.sent.1[side] += bytes.len() as u64;
        let now = self.now();
        let below = self.wires().find_map(|wire| {
            if flags & (SYN | RST) > 0 {
                wire.went_up();
                None
            } else if flags & FIN > 0 {
                wire.fin(&DeviceKey::of(key), as_seen(key, bytes), now)
            } else {
                wire.packet(&DeviceKey::of(key), as_seen(key, bytes), now)
            }
        });
        self.goes_on(bytes, below);
    }

    /// A frame of VXLAN. The host counts both packets: the one inside without its Ethernet header.
    fn arrives_in_tunnel(
        &mut self,
        (vni, port): (u32, u16),
        inner: &[u8],
        key: &FlowKey,
        side: usize,
        hands_up: bool,
    ) {
        let hosts = if side == 0 { (60, 61) } else { (61, 60) };
        let bytes = ethernet(false, &ip(false, hosts, 17, &udp((port, 4789), &vxlan(vni, inner))));
        let (from, to) = ((address(false, hosts.0), port), (address(false, hosts.1), 4789));
        let around = FlowKey::ported(&FlowScope::default(), 17, from, to);
        let inside = MockPacket { bytes: inner.len() as u64 - 14, ..as_seen(key, inner) };
        self.sent.0[side] += 2;
        self.sent.1[side] += bytes.len() as u64 + inside.bytes;
        let now = self.now();
        let below = self.wires().find_map(|wire| {
            if hands_up {
                wire.went_up();
                return None;
            }
            let around = (&DeviceKey::of(&around), as_seen(&around, &bytes));
            wire.in_tunnel([around, (&DeviceKey::of(key), inside)], now)
        });
        self.goes_on(&bytes, below);
    }

    /// A frame was handled below, or comes up.
    fn goes_on(&mut self, bytes: &[u8], below: Option<Action>) {
        let now = self.now();
        let forwarded = match below {
            Some(action) => action == Action::Forward,
            None => {
                let length = bytes.len() as u32;
                let frame = Frame {
                    now,
                    bytes,
                    wire_len: length,
                    link_type: LinkType::ETHERNET,
                    link: LinkId(0),
                    number: None,
                };
                let decision = self.stack.worker.frame(&frame, &mut self.stack.recorder);
                decision.expect("no fragment").verdict.forwards()
            }
        };
        self.fate[usize::from(!forwarded)] += 1;
        self.fates.push(forwarded);
    }

    fn turn(&mut self) {
        let now = self.now();
        self.stack.worker.drive_level(now, &mut self.stack.recorder);
    }

    /// So many packets; generations, pauses and new flows come between them.
    fn run(&mut self, packets: usize) {
        for number in 0..packets {
            self.nanos += 100_000 + self.random.below(1_500_000) as u64;
            // Some send much, most little.
            let most = if self.random.percent(80) { 60 } else { self.flows.len() };
            let which = self.random.below(most);
            let burst = if self.bursts { self.random.within(1, 6) } else { 1 };
            for _ in 0..burst {
                self.packet(which);
                self.nanos += 50_000 * u64::from(self.bursts);
            }
            if self.bursts || self.random.percent(25) {
                self.turn();
            }
            if self.random.below(self.swaps) == 0 {
                let (policy, rules) = if self.random.percent(70) { (POLICY, RULES) } else { (OTHER, "") };
                self.stack.swap(policy, rules);
            }
            if self.pauses && self.random.below(3_000) == 0 {
                // Longer than some timeouts. A live worker has turns meanwhile: who has been silent for too
                // long is forgotten at all levels.
                for _ in 0..40 {
                    self.nanos += 1_000_000_000;
                    self.turn();
                    let now = self.now();
                    self.stack.worker.idle(now, &mut self.stack.recorder);
                }
            }
            if self.random.percent(1) {
                self.flows[which] = Bench::flow(&mut self.random, number as u16);
            }
        }
    }

    /// Ends the run, and holds all sums against each other.
    fn check(self) -> (u64, u64) {
        let wires: Vec<MockWire> = self.wires().cloned().collect();
        let Bench { stack, sent, fate, .. } = self;
        let (worker, events) = stack.finish();
        let mut recorded: Sums = Default::default();
        let (mut below, mut by_level) = (0, [0; 2]);
        let names = ["rtl", "xdp"];
        for event in events.iter().filter(|event| event["event_type"] == "flow") {
            let flow = &event["flow"];
            let of = |object: &Value, key: &str| object[key].as_u64().unwrap_or(0);
            for (side, name) in ["toserver", "toclient"].into_iter().enumerate() {
                recorded.0[side] += of(flow, &format!("pkts_{name}"));
                recorded.1[side] += of(flow, &format!("bytes_{name}"));
                for (sum, level) in by_level.iter_mut().zip(names) {
                    *sum += of(&event["bartizan"]["levels"][level], &format!("pkts_{name}"));
                }
            }
            let bypassed = &flow["bypassed"];
            below += of(bypassed, "pkts_toserver") + of(bypassed, "pkts_toclient");
        }
        let devices: Vec<MockCounters> = wires.iter().map(MockWire::counters).collect();
        let all_of = |of: fn(&MockCounters) -> u64| devices.iter().map(of).sum::<u64>();
        let counters = worker.level_counters().expect("a level");
        // Each packet is in one record; which side began a flow may be told otherwise after a pause.
        let all = |sums: &Sums| (sums.0.iter().sum::<u64>(), sums.1.iter().sum::<u64>());
        assert_eq!(all(&recorded), all(&sent), "{devices:?} {counters:?}");
        // What a device has handled is what it has said, and what the records say of it.
        let dropped: u64 = counters.dropped.iter().map(|dropped| dropped.packets).sum();
        let handled = |device: &MockCounters| {
            device.forwarded + device.in_tunnels + device.dropped + device.dropped_in_tunnels
        };
        let forwarded = all_of(|device| device.forwarded + device.in_tunnels);
        assert_eq!((forwarded, all_of(|device| device.dropped)), (counters.forwarded.packets, dropped));
        assert_eq!(all_of(|device| device.dropped_in_tunnels), counters.around.packets);
        assert_eq!(below, devices.iter().map(handled).sum::<u64>());
        for (device, recorded) in devices.iter().zip(by_level) {
            assert_eq!(handled(device), recorded, "{device:?}");
        }
        // What none has, the host has.
        assert_eq!(Some(worker.counters().packets), devices.last().map(|device| device.up));
        assert_eq!(worker.counters().refused.iter().sum::<u64>() + dropped, fate[1]);
        assert_eq!(worker.counters().forwarded + all_of(|device| device.forwarded), fate[0]);
        let entries: usize = wires.iter().map(MockWire::entries).sum();
        assert_eq!((all_of(|device| device.lost), entries, counters.entries), (0, 0, 0));
        assert_eq!(worker.flows().level_counters().orphan_packets, 0);
        (all_of(|device| device.deleted), all_of(|device| device.in_flight))
    }
}

fn slow() -> Habits {
    Habits { entries: 64, late: 3, flight: PacketDuration::from_millis(8), refuses: 20, ..Habits::default() }
}

/// Checks that each packet of some traffic gets the same verdict with a level and without one.
fn run_beside_none(seed: u64, packets: usize, name: &str) -> Bench {
    let mut bench = Bench::new(seed, Some(slow()), &format!("{name}-{seed}"));
    bench.run(packets);
    let mut alone = Bench::new(seed, None, &format!("{name}-alone-{seed}"));
    alone.run(packets);
    let differs = bench.fates.iter().zip(&alone.fates).position(|(with, without)| with != without);
    assert_eq!(differs, None, "seed {seed}");
    alone.stack.finish();
    bench
}

/// A connection of which the level forwards all packets.
struct Connection {
    bench: Bench,
    key: Option<FlowKey>,
}

impl Connection {
    /// Both sides have sent four bytes that were acknowledged; the next numbers are 105 and 505.
    fn below(name: &str) -> Self {
        let connection = Connection::open(name, Some(Habits::default()));
        assert_eq!(connection.bench.wire.counters().forwarded, 6, "it is below");
        connection
    }

    /// An established connection, with a level or without one.
    fn open(name: &str, habits: Option<Habits>) -> Self {
        let mut connection = Connection { bench: Bench::new(1, habits, name), key: None };
        connection.send(0, 100, 0, SYN, b"");
        connection.send(1, 500, 101, SYN | ACK, b"");
        connection.send(0, 101, 501, ACK, b"");
        for number in 0..4 {
            connection.send(0, 101 + number, 501 + number, ACK, b"x");
            connection.bench.turn();
            connection.send(1, 501 + number, 102 + number, ACK, b"x");
        }
        connection.send(0, 105, 505, ACK, b"");
        connection
    }

    /// The records of the flow, without levels, and of another flow with the same ports.
    fn records(self) -> Vec<Value> {
        let (_, events) = self.bench.stack.finish();
        let flows = events.into_iter().filter(|event| event["event_type"] == "flow");
        flows
            .map(|event| {
                let mut flow = event["flow"].clone();
                ["bypassed", "bypass"]
                    .iter()
                    .for_each(|key| drop(flow.as_object_mut().unwrap().remove(*key)));
                serde_json::json!({"flow": flow, "tcp": event["tcp"]})
            })
            .collect()
    }

    /// A segment of a side. Whether it went on.
    fn send(&mut self, side: usize, seq: u32, ack: u32, flags: u8, data: &[u8]) -> bool {
        self.bench.nanos += 1_000_000;
        let (client, server) = ((1, 10_000), (40, 80));
        let (from, to) = if side == 0 { (client, server) } else { (server, client) };
        let message = tcp((from.1, to.1), seq, ack, flags, data);
        let bytes = ethernet(false, &ip(false, (from.0, to.0), 6, &message));
        let ends = |(host, port): (u8, u16)| (address(false, host), port);
        let key = FlowKey::ported(&FlowScope::default(), 6, ends(from), ends(to));
        self.bench.arrives(&bytes, &key, side, flags);
        self.key = Some(key);
        self.bench.fates.last().copied().unwrap()
    }

    /// From now on everything is inspected.
    fn inspect(&mut self) {
        let rules = "drop tcp any any -> any 80 (content:\"attack\"; sid:8;)\n\
            drop tcp any 80 -> any any (content:\"answer\"; sid:9;)\n";
        self.bench.stack.swap("chain: [ids]", rules);
    }
}

/// The next turn is not to wait for packets while old entries are still there.
#[test]
fn a_worker_that_owes_its_level_something_sleeps_short() {
    let mut connection = Connection::below("owes");
    let options = LiveOptions::default();
    let sleep = |connection: &Connection| options.sleep_of(&connection.bench.stack.worker);
    assert_eq!(sleep(&connection), options.tick);
    connection.inspect();
    assert!(sleep(&connection) <= options.tick / 50);
    connection.bench.turn();
    assert_eq!(sleep(&connection), options.tick);
    connection.bench.stack.finish();
}

/// A sender whose flow is bypassed, and who opens another connection with the same ports, must not find the
/// old flow's entry: the new connection would not be inspected.
#[test]
fn another_connection_of_the_same_ports_finds_no_entry() {
    for flags in [SYN, SYN | ACK, FIN | ACK, RST | ACK, RST] {
        let mut connection = Connection::below("reopen");
        connection.send(usize::from(flags == SYN | ACK), 9_000, 105, flags, b"");
        // No turn of the level has come yet.
        let Connection { bench, key } = connection;
        let (now, before, key) = (bench.now(), bench.wire.counters().up, key.unwrap());
        assert_eq!(bench.wire.packet(&DeviceKey::of(&key), as_seen(&key, &[0; 60]), now), None, "{flags}");
        assert_eq!(bench.wire.counters().up, before + 1);
        bench.stack.finish();
    }
}

/// Segments with which a connection ends whose next numbers are 105 and 505: of a side (0: the client),
/// number, acknowledgement, flags, data.
type Ending = (&'static str, &'static [(usize, u32, u32, u8, &'static [u8])]);

const FA: u8 = FIN | ACK;
const ENDINGS: [Ending; 10] = [
    (
        "the client first",
        &[(0, 105, 505, FA, b""), (1, 505, 106, ACK, b""), (1, 505, 106, FA, b""), (0, 106, 506, ACK, b"")],
    ),
    (
        "the server first",
        &[(1, 505, 105, FA, b""), (0, 105, 506, ACK, b""), (0, 105, 506, FA, b""), (1, 506, 106, ACK, b"")],
    ),
    ("answered at once", &[(0, 105, 505, FA, b""), (1, 505, 106, FA, b""), (0, 106, 506, ACK, b"")]),
    (
        "answered by the client at once",
        &[(1, 505, 105, FA, b""), (0, 105, 506, FA, b""), (1, 506, 106, ACK, b"")],
    ),
    ("with data", &[(0, 105, 505, FA, b"bye"), (1, 505, 109, FA, b"well"), (0, 109, 510, ACK, b"")]),
    (
        "sent again",
        &[
            (0, 105, 505, FA, b""),
            (0, 105, 505, FA, b""),
            (1, 505, 106, FA, b""),
            (1, 505, 106, FA, b""),
            (0, 106, 506, ACK, b""),
        ],
    ),
    (
        "half of it",
        &[
            (0, 105, 505, FA, b""),
            (1, 505, 106, ACK, b"more"),
            (0, 106, 509, ACK, b""),
            (1, 509, 106, ACK, b"more"),
            (0, 106, 513, ACK, b""),
        ],
    ),
    (
        "half of it by the server",
        &[(1, 505, 105, FA, b""), (0, 105, 506, ACK, b"more"), (1, 506, 109, ACK, b"")],
    ),
    (
        "half of it, then all",
        &[
            (0, 105, 505, FA, b""),
            (1, 505, 106, ACK, b"more"),
            (0, 106, 509, ACK, b""),
            (1, 509, 106, FA, b""),
            (0, 106, 510, ACK, b""),
        ],
    ),
    ("nobody answers", &[(0, 105, 505, FA, b"")]),
];

/// If the level has all of a connection it sees the end as well, and the record equals the one without a
/// level, whenever the host checks.
#[test]
fn a_connection_that_ends_below_has_the_record_that_it_has_without_a_level() {
    for (name, ending) in ENDINGS {
        for looks in [0, 1, 2] {
            let run = |habits: Option<Habits>| {
                let mut connection = Connection::open("ends", habits);
                for (side, seq, ack, flags, data) in ending.iter().copied() {
                    assert!(connection.send(side, seq, ack, flags, data), "{name}");
                    if looks == 1 {
                        connection.bench.nanos += 1_100_000_000;
                        connection.bench.turn();
                    }
                }
                // Who looks in between finds that it is over, and has the rest of it come up.
                if habits.is_some() && looks != 1 {
                    assert_eq!(connection.bench.wire.counters().forwarded, 6 + ending.len() as u64, "{name}");
                }
                // Over a second the host has read all, and what is over has no entry any more.
                for _ in 0..if looks == 2 { 40 } else { 0 } {
                    connection.bench.nanos += 50_000_000;
                    connection.bench.turn();
                }
                let over = ending.iter().filter(|segment| segment.3 & FIN > 0).map(|segment| segment.0);
                let over = over.clone().any(|side| side == 0) && over.clone().any(|side| side == 1);
                if habits.is_some() && looks == 2 {
                    assert_eq!(connection.bench.wire.entries(), usize::from(!over), "{name}");
                }
                connection.records()
            };
            assert_eq!(run(Some(Habits::default())), run(None), "{name}, {looks}");
        }
    }
}

/// Segments that do not plainly end the connection come up, and so do all later ones.
#[test]
fn an_end_that_is_not_plain_comes_up() {
    for (side, seq, ack, data) in
        [(0, 104, 505, b"".as_slice()), (0, 106, 505, b""), (1, 500, 105, b"xxx"), (1, 5_000, 105, b"")]
    {
        let mut connection = Connection::below("not-plain");
        let before = connection.bench.wire.counters();
        connection.send(side, seq, ack, FA, data);
        connection.send(0, 105, 505, ACK, b"");
        let after = connection.bench.wire.counters();
        assert_eq!((after.forwarded, after.up), (before.forwarded, before.up + 2), "{seq}");
        connection.bench.stack.finish();
    }
}

/// Both sides have ended below, before the host has checked: a SYN with the same ports finds the end, and
/// opens another flow, whose packets do not find the entry of the old one.
#[test]
fn ports_are_used_again_right_after_an_end_below() {
    let run = |habits: Option<Habits>| {
        let mut connection = Connection::open("again", habits);
        for (side, seq, ack, flags, data) in ENDINGS[0].1.iter().copied() {
            connection.send(side, seq, ack, flags, data);
        }
        let before = connection.bench.wire.counters();
        connection.send(0, 9_000_000, 0, SYN, b"");
        connection.send(1, 7_000_000, 9_000_001, SYN | ACK, b"");
        connection.send(0, 9_000_001, 7_000_001, ACK, b"");
        connection.send(0, 9_000_001, 7_000_001, ACK, b"hello");
        if habits.is_some() {
            let after = connection.bench.wire.counters();
            assert_eq!((after.forwarded, after.up), (before.forwarded, before.up + 4));
        }
        let mut records = connection.records();
        records.sort_by_key(|record| record["flow"]["start"].to_string());
        records
    };
    let (with, without) = (run(Some(Habits::default())), run(None));
    assert_eq!(with.len(), 2);
    assert_eq!(with, without);
}

/// The link was open while a worker hung: a connection is far ahead of its last tracked state, and is
/// inspected from there on. A sender who is ahead without such a reason is refused.
#[test]
fn a_connection_that_went_on_while_the_host_hung_is_taken_up_where_it_is() {
    const JUDGED: &str = "drop tcp any any -> any 8080 (content:\"evil\"; sid:9;)";
    for missed in [false, true] {
        let name = format!("missed-{missed}");
        let mut bench = Bench::new(1, None, &name);
        let made = Made { name: &name, policy: POLICY, set: &[], tune, rules: JUDGED, thresholds: "" };
        let (device, wire) = MockDevice::new(Habits::default());
        bench.stack = Stack::new(&made);
        let manager = FlowManager::new(Box::new(device), bench.stack.worker.generation());
        bench.stack.worker.set_level(manager);
        bench.wire = wire;
        let (client, server) = ((1, 10_000), (40, 8080));
        let send = |bench: &mut Bench, side: usize, (seq, ack): (u32, u32), flags: u8, data: &[u8]| {
            bench.nanos += 1_000_000;
            let (from, to) = if side == 0 { (client, server) } else { (server, client) };
            let bytes =
                ethernet(false, &ip(false, (from.0, to.0), 6, &tcp((from.1, to.1), seq, ack, flags, data)));
            let ends = |(host, port): (u8, u16)| (address(false, host), port);
            let key = FlowKey::ported(&FlowScope::default(), 6, ends(from), ends(to));
            bench.arrives(&bytes, &key, side, 0);
            bench.fates.pop().unwrap()
        };
        assert!(send(&mut bench, 0, (100, 0), SYN, b""));
        assert!(send(&mut bench, 1, (500, 101), SYN | ACK, b""));
        assert!(send(&mut bench, 0, (101, 501), ACK, b"good"));
        assert!(send(&mut bench, 1, (501, 105), ACK, b"good"));
        if missed {
            bench.wire.miss();
        }
        // What has waited in the ring came before.
        let waits = bench.nanos;
        bench.nanos += 2_000_000_000;
        bench.turn();
        let far = 5_000_000;
        let turned = std::mem::replace(&mut bench.nanos, waits);
        assert!(send(&mut bench, 0, (105, 505), ACK, b"good"));
        assert!(!send(&mut bench, 0, (105 + far, 505 + far), ACK, b"good"), "it is no gap's end");
        bench.nanos = turned;
        assert_eq!(send(&mut bench, 0, (105 + far, 505 + far), ACK, b"good"), missed);
        assert_eq!(send(&mut bench, 1, (505 + far, 109 + far), ACK, b"good"), missed);
        assert_eq!(send(&mut bench, 0, (109 + far, 509 + far), ACK, b"good"), missed);
        // One gap is one.
        assert!(!send(&mut bench, 0, (113 + 2 * far, 509 + far), ACK, b"good"));
        assert_eq!(send(&mut bench, 0, (113 + far, 509 + far), ACK, b"good"), missed);
        assert!(!send(&mut bench, 0, (117 + far, 509 + far), ACK, b"evil"), "it is inspected");
        bench.stack.finish();
    }
}

/// A sender who knows that a bypassed connection is about to be inspected sends or acknowledges data far
/// ahead: later data at the true position must not be taken for retransmissions.
#[test]
fn a_connection_that_comes_up_is_inspected_from_where_its_receivers_are() {
    for (far_ahead, when) in
        [("sent", "below"), ("sent", "up"), ("read", "below"), ("read", "up"), ("none", "")]
    {
        // The rest of a window, or less.
        for distance in [10, 100, 2_000, 60_000] {
            let mut connection = Connection::below("prepared");
            let is = |what: &str, at: &str| far_ahead == what && when == at;
            if is("sent", "below") {
                connection.send(0, 105 + distance, 505, ACK, b"y");
            }
            if is("read", "below") {
                connection.send(0, 105, 505 + distance, ACK, b"");
            }
            connection.inspect();
            if is("sent", "up") {
                connection.send(0, 105 + distance, 505, ACK, b"y");
            }
            if is("read", "up") {
                connection.send(0, 105, 505 + distance, ACK, b"");
            }
            let case = format!("{far_ahead} {when} {distance}");
            if far_ahead == "read" {
                assert!(connection.send(1, 505, 105, ACK, b"ans"), "{case}");
                assert!(!connection.send(1, 508, 105, ACK, b"wer"), "{case}");
            } else {
                assert!(connection.send(0, 105, 505, ACK, b"att"), "{case}");
                assert!(!connection.send(0, 108, 505, ACK, b"ack me"), "{case}");
            }
            connection.bench.stack.finish();
        }
    }
}

/// Data dropped below has not reached its receiver: a connection that is forwarded afterwards is at its old
/// position, and is inspected from there.
#[test]
fn what_was_dropped_below_has_moved_no_connection_on() {
    const BLOCKED: &str =
        "chain: [pfw, ids], pfw: {default: allow, rules: [{drop: tcp, to-ports: 80}]}, ids: {}";
    type Sent = &'static [(usize, u32, u32, &'static [u8])];
    let dropped: [Sent; 5] = [
        &[(0, 105, 505, b"lost")],
        &[(0, 105, 505, b"lost"), (1, 505, 105, b"lost"), (0, 109, 505, b"more")],
        &[(0, 105 + 30_000, 505, b"y"), (0, 105 + 60_000, 505, b"y")],
        &[(0, 105, 505 + 1_000, b""), (1, 505, 105 + 1_000, b"")],
        &[(0, 105, 505, b"attack me"), (1, 505, 114, b"")],
    ];
    type After = (&'static [(usize, u32, u32, u8, &'static [u8])], &'static [bool]);
    let after: [After; 3] = [
        (&[(0, 105, 505, ACK, b"att"), (0, 108, 505, ACK, b"ack me")], &[true, false]),
        (
            &[(0, 105, 505, ACK, b"lost"), (1, 505, 109, ACK, b"ans"), (1, 508, 109, ACK, b"wer")],
            &[true, true, false],
        ),
        (&[(0, 105, 505, FA, b""), (1, 505, 106, ACK, b"good"), (0, 106, 509, ACK, b"")], &[true; 3]),
    ];
    for (dropped, (after, expected)) in dropped.iter().flat_map(|dropped| after.map(|after| (dropped, after)))
    {
        let mut connection = Connection::below("dropped");
        connection.bench.stack.swap(BLOCKED, "");
        // The entry of the generation before is gone by then.
        for _ in 0..20 {
            connection.bench.nanos += 100_000_000;
            connection.bench.turn();
        }
        let before = connection.bench.wire.counters().dropped;
        for _ in 0..2 {
            assert!(!connection.send(0, 105, 505, ACK, b""));
            connection.bench.turn();
        }
        for (side, seq, ack, data) in dropped.iter().copied() {
            assert!(!connection.send(side, seq, ack, ACK, data));
        }
        assert_eq!(connection.bench.wire.counters().dropped - before, 1 + dropped.len() as u64);
        // The counts are read.
        connection.bench.nanos += 1_100_000_000;
        connection.bench.turn();
        connection.inspect();
        let send = |&(side, seq, ack, flags, data): &_| connection.send(side, seq, ack, flags, data);
        let fates: Vec<bool> = after.iter().map(send).collect();
        assert_eq!(fates, expected, "{dropped:?} {after:?}");
        connection.bench.stack.finish();
    }
}

/// Data in transit below when the connection comes up is acknowledged, and later data is forwarded and
/// inspected.
#[test]
fn a_connection_with_data_under_way_goes_on_and_is_inspected() {
    for length in [1usize, 1_000, 30_000] {
        let mut connection = Connection::below("under-way");
        let end = 105 + length as u32;
        for (number, part) in vec![b'y'; length].chunks(1_000).enumerate() {
            assert!(connection.send(0, 105 + number as u32 * 1_000, 505, ACK, part));
        }
        connection.inspect();
        // Sent before any of it is acknowledged.
        assert!(connection.send(0, end, 505, ACK, b"more"), "{length}");
        assert!(connection.send(1, 505, 105 + length as u32 / 2, ACK, b""), "{length}");
        // The last part was lost behind this level, and is sent again.
        let lost = length.min(1_000);
        assert!(connection.send(0, end - lost as u32, 505, ACK, &vec![b'y'; lost]), "{length}");
        assert!(connection.send(1, 505, end + 4, ACK, b""), "{length}");
        assert!(connection.send(0, end + 4, 505, ACK, b"att"), "{length}");
        assert!(!connection.send(0, end + 7, 505, ACK, b"ack me"), "{length}");
        connection.bench.stack.finish();
    }
}

#[test]
fn packets_are_counted_once_at_whatever_level_and_records_have_the_sums() {
    for seed in 1..=3 {
        let bench = run_beside_none(seed, 20_000, "level");
        let counters = bench.wire.counters();
        assert!(counters.forwarded > 500 && counters.dropped > 400 && counters.up > 1_000, "{counters:?}");
        assert!(counters.in_tunnels > 50 && counters.forwarded > counters.in_tunnels + 300, "{counters:?}");
        assert!(
            counters.dropped_in_tunnels > 10 && counters.dropped > counters.dropped_in_tunnels + 200,
            "{counters:?}"
        );
        let (removed, _) = bench.check();
        assert!(removed > 300, "{removed}");
    }
}

#[test]
fn ten_thousand_entries_are_taken_away_under_packets_and_none_is_lost() {
    let (mut removed, mut in_flight) = (0, 0);
    for seed in 10.. {
        // Where entries go on in place fewer are taken away.
        let habits = Habits { updates: seed % 4 == 0, ..slow() };
        let mut bench = Bench::new(seed, Some(habits), "removals");
        (bench.swaps, bench.pauses) = (250, false);
        // Packets that come one by one are seldom under way when their entry is marked: one entry of 160 met
        // one, and one of 280 since flows sink that are refused in tunnels (a third more entries a run, which
        // handle little). In bursts, as packets come, one of 20 does.
        bench.bursts = true;
        bench.run(10_000);
        let (more, flying) = bench.check();
        (removed, in_flight) = (removed + more, in_flight + flying);
        if removed >= 10_000 {
            break;
        }
    }
    assert!(in_flight > 400, "{in_flight} with a packet under way that had found them");
}
