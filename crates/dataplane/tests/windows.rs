// SPDX-License-Identifier: Apache-2.0
//! The stateful firewall over a level below: segments that the level checks against a connection's windows
//! get the verdict that they get at the host, whoever sends them; and the host continues at the level's
//! state.

use bartizan_base::{LinkId, Timestamp};
use bartizan_dataplane::worker::Frame;
use bartizan_flow::{FlowKey, FlowScope};
use bartizan_offload::{DeviceKey, FlowManager};
use bartizan_packet::LinkType;
use bartizan_packet::windows as rule;
use bartizan_stages::lifecycle::LifecycleCommand;
use bartizan_stages::settings::EngineSettings;
use bartizan_testkit::hosts::{address, ethernet, ip, udp, unreachable};
use bartizan_testkit::packet::{ACK, FIN, PSH, RST, SYN, Segment, URG};
use bartizan_testkit::random::Random;
use bartizan_testkit_device::{Habits, MockCounters, MockDevice, MockPacket, MockWire};
use bartizan_testkit_worker::{Made, Stack};
use serde_json::Value;

const SFW: &str = "chain: [sfw]";
const IDS: &str = "chain: [sfw, ids], ids: {}";
const RULES: &str = "drop tcp any any -> any any (content:\"attack\"; sid:1;)\n";

const CLIENT: (u8, u16) = (1, 40_000);
const SERVER: (u8, u16) = (2, 80);

fn tune(settings: &mut EngineSettings) {
    settings.flow_capacity = 100;
    settings.stream.strict = true;
}

fn stack(name: &str, policy: &str, set: &[(&str, &str)]) -> Stack {
    Stack::new(&Made { name, policy, set, tune, rules: RULES, thresholds: "" })
}

/// Two stacks that receive the same packets, with a level below and without one.
struct Twins {
    with: Stack,
    without: Stack,
    wire: MockWire,
    nanos: u64,
    /// Which side has the higher address.
    ends: [(u8, u16); 2],
    frames: u32,
}

impl Twins {
    fn new(name: &str, policy: &str, set: &[(&str, &str)], habits: Habits) -> Self {
        let mut with = stack(name, policy, set);
        let (device, wire) = MockDevice::new(habits);
        with.worker.set_level(FlowManager::new(Box::new(device), with.worker.generation()));
        let without = stack(&format!("{name}-alone"), policy, set);
        Twins { with, without, wire, nanos: 1_000_000_000, ends: [CLIENT, SERVER], frames: 0 }
    }

    fn turn(&mut self) {
        let now = Timestamp::from_nanos(self.nanos);
        self.with.worker.drive_level(now, &mut self.with.recorder);
    }

    /// Sends a packet of a side. Returns whether it was forwarded, which is equal with the level and without,
    /// and whether the level handled it.
    fn packet(&mut self, side: usize, protocol: u8, body: &[u8], segment: Option<&Segment>) -> (bool, bool) {
        self.nanos += 1_000_000;
        self.frames += 1;
        let (from, to) = (self.ends[side], self.ends[1 - side]);
        let bytes = ethernet(false, &ip(false, (from.0, to.0), protocol, body));
        let ends = |(host, port): (u8, u16)| (address(false, host), port);
        let key = FlowKey::ported(&FlowScope::default(), protocol, ends(from), ends(to));
        let now = Timestamp::from_nanos(self.nanos);
        let told = segment.map_or(ACK, |segment| segment.flags & (SYN | FIN | RST | ACK));
        let seen = MockPacket {
            from_low: !key.is_reversed(),
            bytes: bytes.len() as u64,
            segment: segment.map(|segment| rule::WindowSegment {
                sequence: segment.seq,
                end: segment.seq.wrapping_add(segment.load.len() as u32),
                acknowledged: segment.ack,
                window: segment.window,
                timestamp: segment
                    .raw_options
                    .get(4..8)
                    .map(|own| u32::from_be_bytes(own.try_into().unwrap())),
                urgent: segment.flags & URG != 0,
            }),
        };
        let handled = (told == ACK && protocol != 1)
            .then(|| self.wire.packet(&DeviceKey::of(&key), seen, now))
            .flatten();
        let frame = Frame {
            now,
            bytes: &bytes,
            wire_len: bytes.len() as u32,
            link_type: LinkType::ETHERNET,
            link: LinkId(0),
            number: None,
        };
        let run = |stack: &mut Stack| {
            let decision = stack.worker.frame(&frame, &mut stack.recorder).expect("no fragment");
            (decision.verdict.forwards(), decision.reason)
        };
        let alone = run(&mut self.without);
        match handled {
            Some(_) => {
                assert!(alone.0, "frame {}: goes on below, not without: {alone:?} {segment:?}", self.frames)
            }
            None => assert_eq!(run(&mut self.with), alone, "frame {}: {segment:?}", self.frames),
        }
        (alone.0, handled.is_some())
    }

    fn segment(&mut self, side: usize, segment: &Segment) -> (bool, bool) {
        let (from, to) = (self.ends[side], self.ends[1 - side]);
        let segment = Segment { sport: from.1, dport: to.1, ..segment.clone() };
        self.packet(side, 6, &segment.unsummed(), Some(&segment))
    }

    fn plain(&mut self, side: usize, (seq, ack): (u32, u32), flags: u16, load: &[u8]) -> (bool, bool) {
        self.segment(side, &Segment::new((0, 0), (seq, ack), flags, load))
    }

    /// A connection that is below: client and server are at 101 and 501.
    fn below(name: &str, policy: &str) -> Self {
        let mut twins = Twins::new(name, policy, &[], Habits::default());
        twins.open((100, 500));
        twins
    }

    fn open(&mut self, (client, server): (u32, u32)) {
        assert!(self.plain(0, (client, 0), SYN, b"").0);
        assert!(self.plain(1, (server, client + 1), SYN | ACK, b"").0);
        assert!(self.plain(0, (client + 1, server + 1), ACK, b"").0);
        self.turn();
        let sink = self.plain(1, (server + 1, client + 1), ACK, b"");
        self.turn();
        assert_eq!(self.plain(0, (client + 1, server + 1), ACK, b""), (true, true), "it is below: {sink:?}");
    }

    /// Ends both stacks; returns the records of flows with the level, and its counters.
    fn finish(self) -> (Vec<Value>, MockCounters) {
        let counters = self.wire.counters();
        self.without.finish();
        let (worker, events) = self.with.finish();
        assert_eq!(worker.counters().packets + counters.forwarded, u64::from(self.frames));
        (events.into_iter().filter(|event| event["event_type"] == "flow").collect(), counters)
    }
}

/// One endpoint of a simulated connection, as an honest host behaves.
#[derive(Clone, Copy, Default)]
struct Host {
    /// Bytes sent, bytes of them that were acknowledged, and the known window edge.
    sent: u32,
    acknowledged: u32,
    edge: u32,
    /// Bytes received, and the advertised window edge.
    received: u32,
    shown: u32,
    scale: u8,
    clock: u32,
    /// The latest timestamp that it has received.
    echo: u32,
    closed: bool,
}

struct Simulation {
    twins: Twins,
    random: Random,
    hosts: [Host; 2],
    timestamps: bool,
    below: u64,
    over: bool,
}

impl Simulation {
    fn new(seed: u64, policy: &str) -> Self {
        let mut random = Random::new(seed);
        let mut twins =
            Twins::new(&format!("windows-{seed}"), policy, &[], Habits { seed, ..Habits::default() });
        if random.percent(50) {
            twins.ends = [(9, 40_000), (2, 80)];
        }
        let timestamps = random.percent(60);
        let mut host = |scale: u8| {
            let near_end = u32::MAX - random.below(100_000) as u32;
            let sent = if random.percent(50) { near_end } else { random.draw() as u32 };
            Host { sent, scale, clock: random.draw() as u32 | 1, ..Host::default() }
        };
        let hosts = [host((seed % 15) as u8), host((seed / 15 % 15) as u8)];
        Simulation { twins, random, hosts, timestamps, below: 0, over: false }
    }

    fn options(&mut self, side: usize) -> Vec<u8> {
        let host = &mut self.hosts[side];
        host.clock = host.clock.wrapping_add(1).max(1);
        let mut options = vec![1, 1, 8, 10];
        options.extend(host.clock.to_be_bytes());
        options.extend(host.echo.to_be_bytes());
        options
    }

    /// A segment of a side from sequence number `seq` on, at the present state.
    fn made(&mut self, side: usize, seq: u32, flags: u16, length: usize) -> Segment {
        let raw_options = if self.timestamps { self.options(side) } else { Vec::new() };
        let most = u32::from(u16::MAX) << self.hosts[side].scale;
        let room = [1_000, 30_000, 65_535, 1_000_000, 8_000_000];
        let window = (*self.random.pick(&room)).min(most);
        let host = &mut self.hosts[side];
        // An honest receiver does not take back what it has shown, but for what a scale cannot say.
        let shown = host.received.wrapping_add(window);
        if shown.wrapping_sub(host.shown).cast_signed() > 0 {
            host.shown = shown;
        }
        let left = host.shown.wrapping_sub(host.received).min(most);
        let window = left.div_ceil(1 << host.scale).min(u16::MAX.into()) as u16;
        Segment {
            window,
            raw_options,
            ..Segment::new((0, 0), (seq, host.received), flags, &vec![b'x'; length])
        }
    }

    fn arrives(&mut self, side: usize, segment: &Segment) {
        let to = &mut self.hosts[1 - side];
        let end = segment.seq.wrapping_add(segment.load.len() as u32);
        if let Some(own) = segment.raw_options.get(4..8) {
            to.echo = u32::from_be_bytes(own.try_into().unwrap());
        }
        if segment.seq == to.received {
            to.received = end;
        }
        if segment.ack.wrapping_sub(to.acknowledged).cast_signed() > 0 {
            to.acknowledged = segment.ack;
        }
        let edge = segment.ack.wrapping_add(u32::from(segment.window) << self.hosts[side].scale);
        let to = &mut self.hosts[1 - side];
        if edge.wrapping_sub(to.edge).cast_signed() > 0 {
            to.edge = edge;
        }
    }

    /// An honest segment: it has to go on.
    fn send(&mut self, side: usize, segment: &Segment) {
        let (goes, below) = self.twins.segment(side, segment);
        assert!(goes || self.over, "{segment:?}");
        self.below += u64::from(below);
        // What the firewall let go on may be lost behind it.
        if !self.random.percent(3) {
            self.arrives(side, segment);
        }
    }

    fn open(&mut self) {
        for (side, flags) in [(0, SYN), (1, SYN | ACK), (0, ACK)] {
            let mut segment = self.made(side, self.hosts[side].sent, flags, 0);
            if flags & SYN != 0 {
                let mut options = vec![1, 3, 3, self.hosts[side].scale];
                options.extend(&segment.raw_options);
                segment.raw_options = options;
                segment.window = u16::MAX;
                if side == 0 {
                    segment.ack = 0;
                }
            }
            assert!(self.twins.segment(side, &segment).0);
            let host = &mut self.hosts[side];
            host.sent = host.sent.wrapping_add(u32::from(flags & SYN != 0));
            let (sent, shown) = (host.sent, segment.ack.wrapping_add(segment.window.into()));
            if flags & ACK != 0 && flags & SYN != 0 {
                host.shown = shown;
            }
            let scale = self.hosts[side].scale;
            let to = &mut self.hosts[1 - side];
            to.received = sent;
            if flags & ACK != 0 {
                to.acknowledged = segment.ack;
                to.edge = if flags & SYN != 0 {
                    shown
                } else {
                    segment.ack.wrapping_add(u32::from(segment.window) << scale)
                };
            }
        }
        self.hosts[0].acknowledged = self.hosts[0].sent;
        self.hosts[1].acknowledged = self.hosts[1].sent;
        self.twins.turn();
    }

    fn honest(&mut self) {
        let side = usize::from(self.random.percent(50));
        let host = self.hosts[side];
        let room = host.edge.wrapping_sub(host.sent).cast_signed().max(0) as usize;
        match self.random.below(20) {
            0 => {
                // Again, from what is acknowledged.
                let length = host.sent.wrapping_sub(host.acknowledged).min(1_400) as usize;
                let segment = self.made(side, host.acknowledged, ACK | PSH, length);
                self.send(side, &segment);
            }
            1 => {
                let segment = self.made(side, host.sent.wrapping_sub(1), ACK, 0);
                self.send(side, &segment);
            }
            2..=7 => {
                let segment = self.made(side, host.sent, ACK, 0);
                self.send(side, &segment);
            }
            _ => {
                let length = (1 + self.random.below(1_400)).min(room);
                let segment = self.made(side, host.sent, ACK | PSH, length);
                self.hosts[side].sent = host.sent.wrapping_add(length as u32);
                self.send(side, &segment);
            }
        }
    }

    /// Forges a segment. Its verdict is equal with the level and without.
    fn forged(&mut self) {
        let side = usize::from(self.random.percent(50));
        let length = if self.random.percent(50) { 0 } else { self.random.below(1_400) };
        let mut segment = self.made(side, self.hosts[side].sent, ACK, length);
        let far = [100_000u32, 1 << 20, 17 << 20, 1 << 26, 1 << 30, 1 << 31, 3 << 30];
        let before = |number: u32, far: u32| number.wrapping_sub(far);
        let distance = *self.random.pick(&far) + self.random.below(10_000) as u32;
        match self.random.below(9) {
            0 => segment.seq = segment.seq.wrapping_add(distance),
            1 => segment.seq = before(segment.seq, distance),
            2 => segment.ack = segment.ack.wrapping_add(distance.max(17 << 20)),
            3 => segment.ack = before(segment.ack, distance.max(17 << 20)),
            4 if self.timestamps => {
                let clock =
                    before(self.hosts[side].clock, *self.random.pick(&[1, 2, 1_000, 1 << 30, 1 << 31]));
                segment.raw_options[4..8].copy_from_slice(&clock.to_be_bytes());
            }
            5 => segment.raw_options.clear(),
            6 => segment.flags = *self.random.pick(&[0, SYN, SYN | ACK, FIN, URG, SYN | FIN, RST | SYN]),
            7 => {
                segment.flags = *self.random.pick(&[RST, RST | ACK, FIN | ACK]);
                segment.seq = segment.seq.wrapping_add(distance);
            }
            _ => (segment.seq, segment.ack) = (self.random.draw() as u32, self.random.draw() as u32),
        }
        let (_, below) = self.twins.segment(side, &segment);
        self.below += u64::from(below);
    }

    /// Lost data is sent again and acknowledged; then both sides end.
    fn close(&mut self) {
        for side in [0, 1] {
            while self.hosts[1 - side].received != self.hosts[side].sent {
                let (from, to) = (self.hosts[1 - side].received, self.hosts[side].sent);
                let segment = self.made(side, from, ACK, to.wrapping_sub(from).min(1_400) as usize);
                assert!(self.twins.segment(side, &segment).0);
                self.arrives(side, &segment);
            }
            let answer = self.made(1 - side, self.hosts[1 - side].sent, ACK, 0);
            assert!(self.twins.segment(1 - side, &answer).0);
            self.arrives(1 - side, &answer);
        }
        for side in [0, 1] {
            let segment = self.made(side, self.hosts[side].sent, FIN | ACK, 0);
            let (goes, below) = self.twins.segment(side, &segment);
            assert!(goes && !below, "a FIN is the host's, and is where it expects it: {segment:?}");
            self.hosts[side].closed = true;
            let to = &mut self.hosts[1 - side];
            to.received = segment.seq.wrapping_add(1);
            self.hosts[side].sent = segment.seq.wrapping_add(1);
        }
        let segment = self.made(0, self.hosts[0].sent, ACK, 0);
        assert!(self.twins.segment(0, &segment).0);
    }
}

#[test]
fn connections_and_who_forges_their_segments_have_the_fate_that_they_have_without_a_level() {
    let (mut below, mut frames) = (0, 0);
    for seed in 0..120 {
        for attacked in [false, true] {
            let mut simulation = Simulation::new(seed, SFW);
            simulation.open();
            for _ in 0..400 {
                if attacked && simulation.random.percent(15) {
                    simulation.forged();
                } else {
                    // What a forged segment has moved may make honest ones look odd: then without a level as
                    // well.
                    simulation.over = attacked;
                    simulation.honest();
                }
                if simulation.random.percent(20) {
                    simulation.twins.turn();
                }
            }
            if !attacked {
                simulation.close();
            }
            (below, frames) = (below + simulation.below, frames + u64::from(simulation.twins.frames));
            simulation.twins.finish();
        }
    }
    assert!(below * 10 > frames * 6, "{below} of {frames}");
}

/// Half the circle of numbers and more passes below between two segments that come up.
#[test]
fn the_host_goes_on_where_the_level_is() {
    for (chunk, chunks) in [(60_000u32, 100), (60_000, 4_000)] {
        let mut twins = Twins::below("goes-on", SFW);
        let (mut client, mut server) = (101u32, 501u32);
        let load = vec![b'x'; 1_000];
        let window = |seq, ack| Segment { window: 0xffff, ..Segment::new((0, 0), (seq, ack), ACK, &load) };
        for number in 0..chunks * (chunk / 1_000) {
            let segment = window(client, server);
            assert_eq!(twins.segment(0, &segment), (true, true), "{number}");
            client = client.wrapping_add(1_000);
            let segment = Segment { load: b"ok".to_vec(), ..window(server, client) };
            assert_eq!(twins.segment(1, &segment), (true, true), "{number}");
            server = server.wrapping_add(2);
        }
        // Out of window, by the numbers of now.
        assert!(!twins.plain(0, (client.wrapping_add(100_000), server), RST, b"").0);
        assert!(!twins.plain(1, (server.wrapping_add(100_000), client), ACK, b"forged").0);
        assert!(twins.plain(0, (client, server), ACK, b"").1, "who makes up a RST takes nothing up");
        assert_eq!(twins.plain(0, (client, server), FIN | ACK, b""), (true, false));
        assert_eq!(twins.plain(1, (server, client + 1), ACK, b"the rest"), (true, false));
        assert_eq!(twins.plain(1, (server + 8, client + 1), FIN | ACK, b""), (true, false));
        assert_eq!(twins.plain(0, (client + 1, server + 9), ACK, b""), (true, false));
        twins.turn();
        // The ports again.
        twins.nanos += 2_000_000_000;
        twins.turn();
        twins.open((3_000_000_000, 7_000));
        let (records, _) = twins.finish();
        assert_eq!(records.len(), 2, "{records:?}");
        assert!(records[0]["bartizan"]["levels"].is_object(), "{}", records[0]);
    }
}

#[test]
fn a_rst_that_its_receiver_takes_ends_the_connection_and_one_that_it_does_not_changes_nothing() {
    let mut twins = Twins::below("rst", SFW);
    // In the window its receiver answers it (RFC 5961 section 3.2), beyond that it does not leave.
    for (forged, leaves) in
        [(50u32, true), (1_000, true), (100_000, false), (1 << 25, false), (1 << 31, false)]
    {
        assert_eq!(twins.plain(0, (101u32.wrapping_add(forged), 501), RST, b"").0, leaves, "{forged}");
        assert_eq!(twins.plain(1, (501u32.wrapping_add(forged), 101), RST | ACK, b"").0, leaves, "{forged}");
        assert_eq!(twins.plain(0, (101, 501), ACK, b""), (true, true), "{forged}");
    }
    assert_eq!(twins.plain(0, (101, 501), RST, b""), (true, false));
    assert!(!twins.plain(1, (501, 101), ACK, b"late").1, "the host has it");
    twins.finish();
}

/// Errors about what went below belong to the connection: without, the path's MTU would never be found.
#[test]
fn icmp_errors_about_what_went_below_are_let_through() {
    let mut twins = Twins::below("icmp", SFW);
    let mut seq = 101u32;
    for _ in 0..3_000 {
        assert_eq!(twins.plain(0, (seq, 501), ACK, &[7; 1_000]), (true, true));
        seq += 1_000;
        assert_eq!(twins.plain(1, (501, seq), ACK, b""), (true, true));
    }
    let quote = |seq: u32| {
        let segment = Segment::new((CLIENT.1, SERVER.1), (seq, 501), ACK, b"12345678");
        unreachable(&ip(false, (CLIENT.0, SERVER.0), 6, &segment.unsummed()))
    };
    assert_eq!(twins.packet(1, 1, &quote(seq - 1_000), None), (true, false));
    assert!(!twins.packet(1, 1, &quote(seq + 1), None).0, "nobody has sent that");
    twins.finish();
}

#[test]
fn datagrams_go_below_once_both_sides_have_spoken() {
    for (policy, below) in [
        (SFW, true),
        ("chain: [sfw], sfw: {max-connections: 3}", true),
        ("chain: [sfw], sfw: {initiate: both}", true),
    ] {
        let mut twins = Twins::new("udp", policy, &[], Habits::default());
        let datagram = |side: usize| {
            if side == 0 { udp((CLIENT.1, SERVER.1), b"?") } else { udp((SERVER.1, CLIENT.1), b"!") }
        };
        for side in [0, 0, 1] {
            assert_eq!(twins.packet(side, 17, &datagram(side), None), (true, false));
            twins.turn();
        }
        for side in [0, 1] {
            twins.packet(side, 17, &datagram(side), None);
            twins.turn();
        }
        assert_eq!(twins.packet(0, 17, &datagram(0), None), (true, below), "{policy}");
        twins.finish();
    }
}

#[test]
fn limits_count_connections_that_are_below() {
    let mut twins = Twins::new(
        "limits",
        "chain: [sfw], sfw: {max-connections: 2, max-half-open: 2}",
        &[],
        Habits::default(),
    );
    for port in [1_000, 2_000] {
        twins.ends[0].1 = port;
        twins.open((100, 500));
    }
    twins.ends[0].1 = 3_000;
    assert!(!twins.plain(0, (100, 0), SYN, b"").0, "there are two");
    twins.ends[0].1 = 1_000;
    assert_eq!(twins.plain(0, (101, 501), RST | ACK, b""), (true, false));
    twins.ends[0].1 = 3_000;
    twins.nanos += 1_000_000;
    twins.open((100, 500));
    twins.finish();
}

/// A connection goes down that is checked less as well: what goes on below goes on at the host.
#[test]
fn a_policy_that_checks_no_windows_goes_below_and_what_is_out_of_them_still_goes_on() {
    let mut twins = Twins::below("unchecked", "chain: [sfw], sfw: {window-check: false}");
    assert_eq!(twins.plain(0, (101 + 20_000, 501), ACK, b"odd"), (true, false));
    assert!(twins.plain(0, (101, 501), ACK, b"even").0);
    twins.finish();
}

#[test]
fn what_numbers_do_not_tell_stays_and_says_why() {
    let kept = |name: &str, policy: &str, set: &[(&str, &str)], habits: Habits, handshake: bool| {
        let mut twins = Twins::new(name, policy, set, habits);
        if handshake {
            twins.plain(0, (100, 0), SYN, b"");
            twins.plain(1, (500, 101), SYN | ACK, b"");
        }
        for number in 0..4 {
            assert_eq!(twins.plain(0, (101 + number, 501 + number), ACK, b"x"), (true, false), "{name}");
            twins.turn();
            assert_eq!(twins.plain(1, (501 + number, 102 + number), ACK, b"x"), (true, false), "{name}");
            twins.turn();
        }
        let (records, _) = twins.finish();
        records[0]["bartizan"]["stays"].as_str().unwrap_or("none").to_owned()
    };
    let none = Habits { windows: false, ..Habits::default() };
    assert_eq!(kept("no-windows", SFW, &[], none, true), "window");
    let midstream = [("stream.midstream", "true"), ("stream.midstream-policy", "ignore")];
    let policy = "chain: [sfw], sfw: {midstream: allow}";
    assert_eq!(kept("midstream", policy, &midstream, Habits::default(), false), "window");
}

/// From a reload on everything is inspected, from where each receiver is; and what the next policy lets alone
/// goes down again.
#[test]
fn a_reload_takes_connections_up_and_both_functions_go_on_exactly() {
    let mut twins = Twins::below("reload", SFW);
    let (mut client, mut server) = (101, 501);
    for _ in 0..200 {
        assert_eq!(twins.plain(0, (client, server), ACK, &[7; 1_000]), (true, true));
        client += 1_000;
        assert_eq!(twins.plain(1, (server, client), ACK, &[8; 100]), (true, true));
        server += 100;
    }
    let swap = |twins: &mut Twins, policy: &str| {
        twins.with.swap(policy, RULES);
        twins.without.swap(policy, RULES);
    };
    swap(&mut twins, IDS);
    assert_eq!(twins.plain(0, (client, server), ACK, b"att"), (true, false));
    assert!(!twins.plain(0, (client + 3, server), ACK, b"ack me").0, "it is inspected");
    // Far ahead: neither inspected nor let through.
    assert!(!twins.plain(0, (client + 200_000, server), ACK, b"k").0);
    twins.finish();

    let mut twins = Twins::below("again", SFW);
    assert_eq!(twins.plain(0, (101, 501), ACK, &[7; 1_000]), (true, true));
    swap(&mut twins, "chain: [sfw], sfw: {window-check: false}");
    assert_eq!(twins.plain(1, (501, 1_101), ACK, b"answer"), (true, false));
    twins.nanos += 2_000_000_000;
    for _ in 0..30 {
        twins.turn();
        twins.nanos += 100_000_000;
    }
    assert_eq!(twins.plain(0, (1_101, 507), ACK, b""), (true, false));
    twins.turn();
    assert_eq!(twins.plain(0, (1_101, 507), ACK, b"more"), (true, true), "it is below again");
    twins.finish();
}

/// A slow device, which begins with numbers that are old by then.
#[test]
fn a_device_that_is_late_changes_nothing() {
    for seed in 0..20 {
        let mut simulation = Simulation::new(seed, SFW);
        let habits = Habits { late: 4, seed, ..Habits::default() };
        simulation.twins = Twins::new(&format!("late-{seed}"), SFW, &[], habits);
        simulation.open();
        for _ in 0..600 {
            simulation.honest();
            if simulation.random.percent(30) {
                simulation.twins.turn();
            }
        }
        simulation.close();
        assert!(simulation.below > 100, "{}", simulation.below);
        simulation.twins.finish();
    }
}

#[test]
fn connections_below_come_up_when_their_firewall_is_stopped_and_go_down_again() {
    for (policy, goes_on) in [(SFW, false), ("chain: [sfw], on-failure: {sfw: pass}", true)] {
        let mut twins = Twins::below("stopped", policy);
        let order = |twins: &mut Twins, act| {
            for stack in [&mut twins.with, &mut twins.without] {
                stack.worker.order("sfw", act).expect("the chain has it");
            }
        };
        let turns = |twins: &mut Twins| {
            for _ in 0..20 {
                twins.nanos += 10_000_000;
                twins.turn();
            }
        };
        order(&mut twins, LifecycleCommand::Stop);
        turns(&mut twins);
        for _ in 0..3 {
            assert_eq!(twins.plain(0, (101, 501), ACK, b"data"), (goes_on, false));
            assert_eq!(twins.plain(1, (501, 101), ACK, b""), (goes_on, false));
            turns(&mut twins);
        }
        order(&mut twins, LifecycleCommand::Start);
        // The connection is one that its sender goes on with: what was refused is sent again.
        assert_eq!(twins.plain(0, (101, 501), ACK, b"data"), (true, false));
        let is_below = (0..20).any(|_| {
            turns(&mut twins);
            twins.plain(1, (501, 105), ACK, b"").1
        });
        assert!(is_below, "it goes down again");
        assert_eq!(twins.plain(0, (105, 501), ACK | FIN, b""), (true, false));
        twins.finish();
    }
}
