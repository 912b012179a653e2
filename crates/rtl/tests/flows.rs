// SPDX-License-Identifier: Apache-2.0
//! The flow cache and the stateful firewall: entries decide, segments are compared and counted as the rule
//! that host and XDP share says, whatever the pace; entries come and go under traffic without a lost count.

use crate::common::{Device, GENERATION};
use crate::frames::{Ledger, PACES};
use crate::reference::{CachedFlow, End, PFW, Policy, PolicyRule, Reference, SFW, VXLAN_PORT};
use bartizan_base::{LinkId, Path, Reason, Verdict};
use bartizan_classify::HeaderRule;
use bartizan_flow::tcp::TcpState;
use bartizan_packet::windows::{WindowSide, Windows};
use bartizan_rtl::model::Configuration;
use bartizan_rtl::registers::FrameDisposition;
use bartizan_rtl::simulation::{FrameOut, StreamPace};
use bartizan_rtl::{
    CacheKey, CacheNumbers, DriverError, EntryAction, EntryControl, EntryCounts, SegmentCheck,
};
use bartizan_testkit::layers;
use bartizan_testkit::packet::{self, Datagram, Ip, Layer, Packet, Segment};
use bartizan_testkit::random::Random;
use core::net::IpAddr;
use std::collections::HashMap;

/// A conversation of a small world.
#[derive(Clone, Copy, Debug)]
struct Talk {
    client: (IpAddr, u16),
    server: (IpAddr, u16),
    tcp: bool,
    vlan: Option<u16>,
    vni: Option<u32>,
}

impl Talk {
    fn new(random: &mut Random, v6: bool) -> Self {
        let v6 = v6 && random.percent(40);
        let address = |number| packet::address(v6, number);
        Talk {
            client: (address(1 + random.below(3) as u8), *random.pick(&[1000, 1001, 80])),
            server: (address(1 + random.below(4) as u8), *random.pick(&[80, 81])),
            tcp: random.percent(75),
            vlan: random.percent(25).then(|| *random.pick(&[9, 10])),
            vni: random.percent(25).then(|| *random.pick(&[7, 8])),
        }
    }

    /// A frame with a packet of one side, numbered in its first bytes.
    fn frame(&self, segment: Option<&Spec>, to_client: bool, number: u64) -> Vec<u8> {
        let (from, to) = if to_client { (self.server, self.client) } else { (self.client, self.server) };
        let load;
        let (protocol, layer) = match segment {
            Some(spec) => {
                load = vec![7; spec.length];
                let numbers = (spec.sequence, spec.acknowledged);
                let mut segment = Segment::new((from.1, to.1), numbers, spec.flags, &load);
                segment.window = spec.window;
                if let Some(stamp) = spec.stamp {
                    let [a, b, c, d] = stamp.to_be_bytes();
                    segment.raw_options = vec![1, 1, 8, 10, a, b, c, d, 0, 0, 0, 1];
                }
                (6, Layer::Tcp(segment))
            }
            None => (17, Layer::Udp(Datagram::new((from.1, to.1), b"datagram"))),
        };
        let mut frame = Packet { ip: Ip::new(from.0, to.0, protocol), layer, piece: None }.frame();
        if let Some(vni) = self.vni {
            frame = around(vni, &frame);
        }
        if let Some(vlan) = self.vlan {
            frame = layers::tagged(vlan, frame);
        }
        for (place, byte) in frame.iter_mut().zip(number.to_le_bytes()).take(6) {
            *place = byte;
        }
        frame
    }
}

/// A frame in a tunnel between two hosts.
fn around(vni: u32, inside: &[u8]) -> Vec<u8> {
    let load = layers::vxlan(vni, inside);
    let ip = Ip::new(packet::address(false, 201), packet::address(false, 202), 17);
    Packet { ip, layer: Layer::Udp(Datagram::new((40_000, VXLAN_PORT), &load)), piece: None }.frame()
}

/// The fields of a segment.
#[derive(Clone, Copy, Debug)]
struct Spec {
    sequence: u32,
    acknowledged: u32,
    window: u16,
    flags: u16,
    stamp: Option<u32>,
    length: usize,
}

/// A segment about where a connection is, plain most of the time.
fn segment(random: &mut Random, numbers: &CacheNumbers, end: usize) -> Spec {
    let own = numbers.windows.sides[end];
    let other = numbers.windows.sides[1 - end];
    let near = |random: &mut Random, number: u32| {
        let by = *random.pick(&[0, 0, 0, 0, 0, 0, 0, 0, 1, u32::MAX, 500, 0u32.wrapping_sub(500)]);
        let far = *random.pick(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16 << 20, 1 << 31, 1 << 29, (16 << 20) + 1]);
        let number = number.wrapping_add(by);
        if random.percent(50) { number.wrapping_add(far) } else { number.wrapping_sub(far) }
    };
    let stamps = numbers.windows.timestamps;
    let acknowledged = if random.percent(70) { other.sent } else { other.acknowledged };
    let flags =
        *random.pick(&[0x10u16, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x18, 0x18, 0x11, 0x02, 0x04, 0x30, 0]);
    Spec {
        sequence: near(random, own.sent),
        acknowledged: near(random, acknowledged),
        window: *random.pick(&[0, 400, 65_535]),
        flags,
        stamp: random.percent(if stamps { 95 } else { 20 }).then(|| near(random, own.timestamp)),
        length: *random.pick(&[0, 0, 1, 100, 100]),
    }
}

fn numbers(random: &mut Random) -> CacheNumbers {
    let mut side = || {
        let sent = *random.pick(&[0u32, 1_000, 0x7fff_ff00, 0x8000_0000, 0xffff_ff00]);
        let acknowledged = sent.wrapping_sub(*random.pick(&[0, 0, 100]));
        let edge = sent.wrapping_add(*random.pick(&[50, 1_000, 60_000]));
        let timestamp = *random.pick(&[1, 5_000, 0x7fff_fff0, 0xffff_fff0]);
        WindowSide { sent, timestamp, acknowledged, edge, scale: *random.pick(&[0, 3, 14]) }
    };
    let sides = [side(), side()];
    let state = *random.pick(&[
        TcpState::Established,
        TcpState::Established,
        TcpState::Established,
        TcpState::SynRecv,
        TcpState::CloseWait,
    ]);
    CacheNumbers { windows: Windows { sides, timestamps: random.percent(50) }, state, noted: [false; 2] }
}

fn control(random: &mut Random) -> EntryControl {
    let check = *random.pick(&[
        SegmentCheck::Compare,
        SegmentCheck::Compare,
        SegmentCheck::Compare,
        SegmentCheck::Note,
        SegmentCheck::Nothing,
    ]);
    let other = *random.pick(&[
        EntryAction::Forward,
        EntryAction::Drop(Reason::SfwState),
        EntryAction::Drop(Reason::ALL[Reason::ALL.len() - 1]),
        EntryAction::Redirect(0x5a),
    ]);
    EntryControl {
        decides: random.percent(75),
        action: if check == SegmentCheck::Compare { EntryAction::Forward } else { other },
        check,
        only_from: random.percent(15).then(|| random.percent(50)),
        generation: if random.percent(5) { GENERATION ^ 0x80 } else { GENERATION },
        follows: random.percent(60),
        client_is_high: random.percent(50),
    }
}

/// Rules that leave the stateful firewall on the path, or nothing, or do not match.
fn policy() -> Policy {
    let of = |port, path: u32, verdict| PolicyRule {
        rule: HeaderRule { destination_ports: bartizan_classify::Range::one(port), ..HeaderRule::default() },
        path: Path(path),
        verdict,
    };
    let both = 1 << PFW | 1 << SFW;
    let tenants = vec![common_tenant(Some(7), None, 5), common_tenant(None, Some(9), 6)];
    let mut rules = vec![
        of(80, both, Verdict::Continue),
        of(1000, both, Verdict::Continue),
        of(81, 1 << SFW, Verdict::Continue),
        of(VXLAN_PORT, 1 << PFW, Verdict::Continue),
    ];
    // On the other link the packet around goes up, and what is inside moves no connection on.
    rules[3].rule.link = Some(LinkId(0));
    Policy { rules, tenants }
}

fn common_tenant(vni: Option<u32>, vlan: Option<u16>, tenant: u16) -> bartizan_rtl::driver::TenantEntry {
    bartizan_rtl::driver::TenantEntry { vni, vlan, tenant, ..Default::default() }
}

/// A device with conversations in its flow cache, beside the expected one.
struct World {
    device: Device,
    reference: Reference,
    talks: Vec<(Talk, u8)>,
    places: HashMap<CacheKey, usize>,
}

impl World {
    fn new(configuration: Configuration, random: &mut Random, keys: [bool; 2]) -> Self {
        let mut device = Device::new(configuration, random.draw() as u32, &policy());
        device.driver.set_flow_keys(keys[0], keys[1]).unwrap();
        let ipv6 = device.driver.capabilities().ipv6;
        let mut reference = Reference::new(policy(), ipv6);
        reference.keys = keys;
        let talks = (0..60).map(|_| (Talk::new(random, ipv6), random.below(4) as u8)).collect();
        World { device, reference, talks, places: HashMap::new() }
    }

    /// Makes an entry for a frame's innermost flow.
    fn insert(&mut self, frame: &[u8], ingress: u8, control: EntryControl, numbers: CacheNumbers) {
        let Some(key) = self.reference.key_of(ingress, frame) else { return };
        match self.device.driver.insert_flow(&key, &control, &numbers) {
            Ok(place) => {
                assert_eq!(self.places.insert(key, place), None);
                let counts = EntryCounts::default();
                self.reference.flows.insert(key, CachedFlow { control, numbers, counts });
            }
            Err(DriverError::FlowExists) => assert!(self.places.contains_key(&key)),
            Err(DriverError::BucketFull) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// A frame of a conversation, by what the expected device has of it.
    fn frame(&mut self, random: &mut Random, number: u64) -> (Vec<u8>, u8) {
        let (talk, first) = *random.pick(&self.talks);
        let to_client = random.percent(50);
        let ingress = if random.percent(90) { first ^ u8::from(to_client) } else { random.below(4) as u8 };
        let plain = Spec { sequence: 0, acknowledged: 0, window: 1, flags: 16, stamp: None, length: 0 };
        let mut spec = plain;
        if talk.tcp
            && let Some(key) = self.reference.key_of(ingress, &talk.frame(Some(&plain), to_client, 0))
            && let Some(flow) = self.reference.flows.get(&key)
        {
            let from = if to_client { talk.server } else { talk.client };
            let to = if to_client { talk.client } else { talk.server };
            spec = segment(random, &flow.numbers, usize::from(from > to));
        }
        (talk.frame(talk.tcp.then_some(&spec), to_client, number), ingress)
    }

    /// Compares all entries of the device with the expected ones.
    fn check(&mut self) {
        let driver = &mut self.device.driver;
        let mut touched = Vec::new();
        driver.touched_flows(&mut |place| touched.push(place)).unwrap();
        let mut expected = Vec::new();
        for (key, flow) in &self.reference.flows {
            let place = self.places[key];
            let reading = driver.read_flow(place).unwrap();
            let context = format!("{key:?} {:?}", flow.control);
            let counts = EntryCounts { last_seen: reading.counts.last_seen, ..flow.counts };
            assert_eq!(reading.counts, counts, "{context}");
            for (seen, packets) in counts.last_seen.iter().zip(counts.packets) {
                assert_eq!(*seen > 0, packets > 0, "{context}");
            }
            let (mut found, mut numbers) = (reading.numbers, flow.numbers);
            for numbers in [&mut found, &mut numbers] {
                numbers.windows.timestamps = false;
                numbers.windows.sides.iter_mut().for_each(|side| side.scale = 0);
                // Only a judged connection's is kept.
                if flow.control.check == SegmentCheck::Compare {
                    numbers.noted = [false; 2];
                }
            }
            assert_eq!(found, numbers, "{context}");
            if flow.counts.packets != [0; 2] {
                expected.push(place);
            }
        }
        touched.sort_unstable();
        expected.sort_unstable();
        assert_eq!(touched, expected, "entries with a packet since the last look");
        driver.touched_flows(&mut |place| panic!("{place} is shown twice")).unwrap();
    }
}

fn run(configuration: Configuration, seed: u64, count: usize) {
    let mut random = Random::new(seed);
    let keys = *random.pick(&[[true, true], [false, true], [true, false]]);
    let mut world = World::new(configuration, &mut random, keys);
    for (talk, ingress) in world.talks.clone() {
        let plain = Spec { sequence: 0, acknowledged: 0, window: 1, flags: 16, stamp: None, length: 0 };
        let frame = talk.frame(talk.tcp.then_some(&plain), false, 0);
        let (control, numbers) = (control(&mut random), numbers(&mut random));
        world.insert(&frame, ingress, control, numbers);
    }
    // The tunnel's own flow decides from one side only, on one of the links.
    let outside =
        packet::udp((packet::address(false, 201), 40_000), (packet::address(false, 202), VXLAN_PORT), b"")
            .frame();
    world.insert(&outside, 0, EntryControl::forward(GENERATION), CacheNumbers::default());
    let mut ledger = Ledger::new(world.device.rules);
    let mut out = Vec::new();
    for pace in PACES {
        world.device.driver.bus().set_pace(pace);
        for _ in 0..count {
            let number = ledger.frames.len();
            let (frame, ingress) = world.frame(&mut random, number as u64);
            let expected = world.reference.judge(ingress, &frame);
            world.device.driver.bus().send(ingress, frame.clone());
            ledger.add_from(ingress, frame, expected);
        }
        let simulation = world.device.driver.bus();
        assert!(simulation.drain(10_000_000, 20_000), "frames do not go in");
        assert_eq!(simulation.fault(), None);
        out.extend(simulation.take());
        // The host has judged some segments itself, and brings the numbers forward.
        for (key, flow) in
            world.reference.flows.iter_mut().filter(|(key, _)| world.places[key].is_multiple_of(2))
        {
            let mut numbers = flow.numbers;
            for side in &mut numbers.windows.sides {
                side.sent = side.sent.wrapping_add(10);
                side.acknowledged = side.acknowledged.wrapping_sub(10);
            }
            world.device.driver.publish_flow(world.places[key], &numbers).unwrap();
            flow.numbers.windows.sides.iter_mut().for_each(|side| side.sent = side.sent.wrapping_add(10));
        }
    }
    ledger.check(&out);
    ledger.check_counters(&mut world.device);
    world.check();
    let flows = ledger.share(|end| *end == End::Up(FrameDisposition::UpFlow));
    let port = ledger.share(|end| *end == End::ToPort);
    let opened = world.reference.flows.values().filter(|flow| flow.control.follows);
    println!("{configuration:?}: to ports {port:.3}, up by their flow {flows:.3}, {} follow", opened.count());
    assert!(port > 0.1 && flows > 0.05, "both ends are met");
    assert!(ledger.share(|end| matches!(end, End::Drop(_))) > 0.01, "and refusals");
}

/// Runs of several seeds; BARTIZAN_RTL_SEEDS sets how many.
fn all(configuration: Configuration) {
    let seeds = std::env::var("BARTIZAN_RTL_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    for seed in 1..=seeds {
        run(configuration, seed, 600);
    }
}

#[test]
fn entries_decide_as_the_host_would_at_64_bits() {
    all(Configuration::Narrow);
}

#[test]
fn entries_decide_as_the_host_would_at_128_bits() {
    all(Configuration::Middle);
}

#[test]
fn entries_decide_as_the_host_would_at_512_bits() {
    all(Configuration::Wide);
}

/// Entries come, are marked and go while their flows' frames pass at full rate: each frame leaves by a port
/// and is counted once, or goes up and is not counted.
#[test]
fn each_packet_is_counted_at_one_level_while_entries_come_and_go() {
    for (configuration, pace) in [
        (Configuration::Narrow, StreamPace::default()),
        (Configuration::Wide, StreamPace { idle: 0, cpu_busy: 40, port_busy: 40 }),
    ] {
        let mut random = Random::new(5);
        let mut device = Device::new(configuration, 3, &Policy::default());
        device.driver.bus().set_pace(pace);
        let mut reference = Reference::new(Policy::default(), device.driver.capabilities().ipv6);
        reference.keys = [false; 2];
        device.driver.set_flow_keys(false, false).unwrap();
        let frame = |flow: u16| {
            let (from, to) = (packet::address(false, 1), packet::address(false, 2));
            packet::udp((from, 1000 + flow), (to, 2000), b"").frame()
        };
        let keys: Vec<CacheKey> = (0..8).map(|flow| reference.key_of(0, &frame(flow)).unwrap()).collect();
        let mut places: Vec<Option<usize>> = vec![None; keys.len()];
        let (mut sent, mut counted) = (0u64, 0u64);
        for _ in 0..150 {
            while device.driver.bus().waiting() < 400 {
                device.driver.bus().send(0, frame(random.below(keys.len()) as u16));
                sent += 1;
            }
            let at = random.below(keys.len());
            match places[at].take() {
                Some(place) if random.percent(30) => {
                    device.driver.mark_flow(place).unwrap();
                    let before = device.driver.read_flow(place).unwrap();
                    device.driver.bus().run(300);
                    let after = device.driver.remove_flow(place).unwrap();
                    assert_eq!(after, before, "nothing is counted behind the mark");
                    counted += after.counts.packets[0];
                }
                Some(place) => counted += device.driver.remove_flow(place).unwrap().counts.packets[0],
                None => {
                    let control = EntryControl::forward(GENERATION);
                    let numbers = CacheNumbers::default();
                    places[at] = Some(device.driver.insert_flow(&keys[at], &control, &numbers).unwrap());
                }
            }
        }
        assert!(device.driver.bus().drain(1_000_000, 5_000));
        for place in places.into_iter().flatten() {
            counted += device.driver.remove_flow(place).unwrap().counts.packets[0];
        }
        let out = device.driver.bus().take();
        let left = out.iter().filter(|out| matches!(out, FrameOut::ToPort { .. })).count() as u64;
        assert_eq!(out.len() as u64, sent);
        assert_eq!(left, counted);
        assert!(left > sent / 5 && left < sent * 4 / 5, "{left} of {sent}");
    }
}

/// Segments of one connection in cycles that follow each other directly: each is compared with the numbers
/// after the one before.
#[test]
fn segments_of_a_connection_follow_each_other_without_a_gap() {
    let mut device = Device::new(Configuration::Wide, 3, &Policy::default());
    device.driver.set_flow_keys(false, false).unwrap();
    let mut reference = Reference::new(Policy::default(), false);
    reference.keys = [false; 2];
    let talk = Talk {
        client: (packet::address(false, 1), 1000),
        server: (packet::address(false, 2), 80),
        tcp: true,
        vlan: None,
        vni: None,
    };
    let at = |sequence| Spec { sequence, acknowledged: 1, window: 9, flags: 16, stamp: None, length: 1 };
    let side = |sent, edge| WindowSide { sent, timestamp: 0, acknowledged: sent, edge, scale: 0 };
    let numbers = CacheNumbers {
        windows: Windows { sides: [side(0, 200), side(1, 10)], timestamps: false },
        state: TcpState::Established,
        noted: [false; 2],
    };
    let key = reference.key_of(0, &talk.frame(Some(&at(0)), false, 0)).unwrap();
    let control = EntryControl { check: SegmentCheck::Compare, ..EntryControl::forward(GENERATION) };
    let place = device.driver.insert_flow(&key, &control, &numbers).unwrap();
    // A pure ACK is plain only at its sender's progress: between each two segments one that is not.
    for number in 0..100 {
        device.driver.bus().send(0, talk.frame(Some(&at(number)), false, 0));
        device.driver.bus().send(0, talk.frame(Some(&Spec { length: 0, ..at(number + 1) }), false, 0));
        device.driver.bus().send(0, talk.frame(Some(&Spec { length: 0, ..at(number + 2) }), false, 0));
    }
    assert!(device.driver.bus().drain(10_000, 500));
    let out = device.driver.bus().take();
    let up = out.iter().filter(|out| matches!(out, FrameOut::ToCpu { .. })).count();
    assert_eq!((out.len(), up), (300, 100));
    let reading = device.driver.read_flow(place).unwrap();
    assert_eq!(reading.numbers.windows.sides[0].sent, 100);
    assert_eq!(reading.counts.packets, [200, 0]);
}

/// The ACK of the handshake opens a connection where the entry lets the state change; data before it goes up.
#[test]
fn the_clients_ack_opens_a_connection() {
    for (follows, client_is_high) in [(true, false), (true, true), (false, false)] {
        let mut device = Device::new(Configuration::Narrow, 3, &Policy::default());
        device.driver.set_flow_keys(false, false).unwrap();
        let mut reference = Reference::new(Policy::default(), true);
        reference.keys = [false; 2];
        let (low, high) = ((packet::address(false, 1), 1000), (packet::address(false, 2), 80));
        let (client, server) = if client_is_high { (high, low) } else { (low, high) };
        let talk = Talk { client, server, tcp: true, vlan: None, vni: None };
        let side = |sent| WindowSide { sent, timestamp: 0, acknowledged: sent, edge: sent + 1_000, scale: 0 };
        let (of_client, of_server) = (side(500), side(9_000));
        let sides = if client_is_high { [of_server, of_client] } else { [of_client, of_server] };
        let windows = Windows { sides, timestamps: false };
        let numbers = CacheNumbers { windows, state: TcpState::SynRecv, noted: [false; 2] };
        let control = EntryControl {
            check: SegmentCheck::Compare,
            follows,
            client_is_high,
            ..EntryControl::forward(GENERATION)
        };
        let at = |sequence, acknowledged, length| Spec {
            sequence,
            acknowledged,
            window: 900,
            flags: 16,
            stamp: None,
            length,
        };
        let key = reference.key_of(0, &talk.frame(Some(&at(0, 0, 0)), false, 0)).unwrap();
        let place = device.driver.insert_flow(&key, &control, &numbers).unwrap();
        let mut pass = |spec: Spec, to_client| {
            let frame = talk.frame(Some(&spec), to_client, 0);
            matches!(device.driver.bus().pass(0, &frame).unwrap(), Some(FrameOut::ToPort { .. }))
        };
        let opened = [
            // The server's data, data at another place, and what acknowledges less.
            pass(at(9_000, 500, 10), true),
            pass(at(501, 9_000, 10), false),
            pass(at(500, 8_999, 0), false),
            // The ACK, with data, and what follows.
            pass(at(500, 9_000, 10), false),
            pass(at(9_000, 510, 10), true),
            pass(at(510, 9_010, 0), false),
        ];
        let open = follows;
        assert_eq!(opened, [false, false, false, open, open, open], "{follows} {client_is_high}");
        let state = device.driver.read_flow(place).unwrap().numbers.state;
        assert_eq!(state, if open { TcpState::Established } else { TcpState::SynRecv });
    }
}
