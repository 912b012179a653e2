// SPDX-License-Identifier: Apache-2.0
//! Early drops of the XDP level against the host's decisions: random policies and packets, the program as the
//! kernel runs it (BPF_PROG_TEST_RUN, in a network namespace of the test's own; needs root), and two workers,
//! one without a level.

mod policies;

use crate::common;

use bartizan_base::{Decision, Generation, LinkId, Reason, SettingsMap, Spread, Timestamp, Verdict};
use bartizan_classify::early::{EarlyKey, EarlyLevel, EarlyReach, Protocol, outcome};
use bartizan_dataplane::worker::{Frame, Worker};
use bartizan_offload::FlowManager;
use bartizan_packet::{DecoderConfig, LinkType, VlanIds};
use bartizan_stages::chain::Chains;
use bartizan_testkit::namespace::{inside, number, ports, run};
use bartizan_testkit::packet::{
    ACK, Datagram, End, FIN, ICMP, ICMPV6, Ip, Layer, PSH, Packet, Piece, RST, SYN, Segment, TCP, UDP, icmp,
};
use bartizan_testkit::random::Random;
use bartizan_testkit::tunnels::Tunnel;
use bartizan_testkit_worker::Nothing;
use bartizan_xdp::XdpDevice;
use bartizan_xdp::{
    EarlyMode, EarlyOptions, Fail, ModeChoice, PortSetup, PortSide, Watch, XdpOptions, XdpProgram,
    monotonic_time,
};
use policies::{address, policy};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

const DROP: u32 = 1;
const PASS: u32 = 2;
const REDIRECT: u32 = 4;
const LINKS: [&str; 2] = ["one", "two"];
/// Most flows on the level.
const ENTRIES: u32 = 64;

/// The program on two links, with early drops.
struct Level {
    program: XdpProgram,
    interfaces: [[u32; 2]; 2],
    generation: u64,
}

impl Level {
    fn new() -> Self {
        Self::with(None, None)
    }

    fn with(drop_samples: Option<u8>, watch: Option<Watch>) -> Self {
        let names = [["one-a", "one-b"], ["two-a", "two-b"]];
        let early = Some(EarlyOptions { links: 2, flows: 1 << 14 });
        let (mode, tunnels) = (ModeChoice::Auto, DecoderConfig::default());
        let mut program =
            XdpProgram::load(&XdpOptions { flows: 2 * ENTRIES, mode, tunnels, workers: 1, early, seed: 77 })
                .unwrap();
        for (link, names) in (0..).zip(names) {
            ports(names);
            for (side, name) in (0..).zip(names) {
                let port = PortSetup {
                    ifindex: number(name),
                    link: LinkId(link.into()),
                    side: if side == 0 { PortSide::First } else { PortSide::Second },
                    index: 2 * link + side,
                    pair: 2 * link + 1 - side,
                    vlans_in_key: true,
                    drop_samples,
                    early: Some(EarlyMode::Always(link)),
                    watch,
                };
                program.attach(&port).unwrap();
            }
        }
        Level { program, interfaces: names.map(|names| names.map(number)), generation: 0 }
    }

    /// Whether the program drops a frame that comes by a side of a link.
    fn refuses(&mut self, frame: &[u8], (link, side): (usize, usize)) -> bool {
        match self.program.run_on(frame, self.interfaces[link][side], 1).unwrap().result {
            PASS => false,
            DROP => true,
            other => panic!("the program returned {other}"),
        }
    }
}

/// A worker's decision on a frame that comes by a side of a link.
fn hand_in(worker: &mut Worker, now: Timestamp, frame: &[u8], (link, side): (usize, usize)) -> Decision {
    worker.arrives_by(side as u32);
    let frame = Frame {
        now,
        bytes: frame,
        wire_len: frame.len() as u32,
        link_type: LinkType::ETHERNET,
        link: LinkId(link as u16),
        number: None,
    };
    worker.frame(&frame, &mut Nothing).expect("it does not wait")
}

/// A host with the level, and one without.
struct Hosts {
    with: Worker,
    without: Worker,
    chains: Arc<Chains>,
    words: Vec<u64>,
    clock: Timestamp,
}

impl Hosts {
    fn new(level: &mut Level, policy: &str, settings: &SettingsMap) -> Self {
        level.generation += 1;
        let chains = || {
            let mut agent = common::agent();
            agent.set_early(true);
            let file = common::read(&agent, policy);
            let mut chains = agent
                .prepare(&file, &common::links(&LINKS))
                .unwrap_or_else(|e| panic!("{e}\n{policy}"))
                .chains;
            chains.generation = Generation(level.generation);
            Arc::new(chains)
        };
        let worker = |chains: &Arc<Chains>| {
            let (settings, engine) = common::engine(settings);
            let mut settings = settings.for_real_receivers(true).for_live_links();
            // The same settings as the level's.
            (settings.side_in_key, settings.vlan_in_key) = (true, true);
            Worker::new(settings, engine, Arc::clone(chains)).unwrap()
        };
        let (chains, other) = (chains(), chains());
        let tables = level.program.tables();
        let early = chains.early.as_ref().unwrap();
        let links = [LinkId(0), LinkId(1)];
        let outcomes = tables.early().unwrap().outcomes();
        let table = early.rules.table(EarlyLevel { links: &links, outcomes, tunnels: true });
        let all = EarlyReach { rules: early.rules.len(), tenants: true, tunnels: true };
        assert_eq!((table.reach, early.origins.len()), (all, early.rules.len()), "{policy}");
        assert!(tables.early().unwrap().write(level.generation as u8, &table.words));
        let mut with = worker(&chains);
        tables.set_tunnel_ports(with.decoder_config()).unwrap();
        // One link's counts are enough to be compared; the other's device gives none.
        let device = XdpDevice::new(Arc::clone(&tables), 0, ENTRIES).with_early(0, true);
        with.set_level(FlowManager::new(Box::new(device), chains.generation));
        let clock = Timestamp::from_parts(1_000_000, 0);
        Hosts { with, without: worker(&other), chains, words: table.words, clock }
    }

    /// The verdict on a frame without a level and with one, and whether the level dropped it.
    fn fates(&mut self, level: &mut Level, frame: &[u8], way: (usize, usize)) -> (Decision, Verdict, bool) {
        self.clock = Timestamp::from_nanos(self.clock.as_nanos() + 1_000_000);
        let early = level.refuses(frame, way);
        let told = hand_in(&mut self.without, self.clock, frame, way);
        let verdict =
            if early { Verdict::Drop } else { hand_in(&mut self.with, self.clock, frame, way).verdict };
        (told, verdict, early)
    }

    /// Offloads the flows of outer packets, each by frames of its own.
    fn know_around(&mut self, level: &mut Level, tunnels: [Tunnel; 2]) {
        for side in [0, 1, 0, 1] {
            for (tunnel, inside) in tunnels.into_iter().zip(["198.51.100.1", "2001:db8:7::1"]) {
                let ends = [(inside.parse().unwrap(), 7), (inside.parse().unwrap(), 8)];
                for v6 in [false, true] {
                    self.fates(level, &around(tunnel, v6, &datagram(ends[0], ends[1])), (0, side));
                }
            }
        }
        self.turn();
        self.turn();
    }

    fn turn(&mut self) {
        self.clock = Timestamp::from_nanos(self.clock.as_nanos() + 2_000_000_000);
        self.with.drive_level(self.clock, &mut Nothing);
    }
}

/// Counters of the packet filter's rules and of the gate, and the number of dropped packets.
fn counted(worker: &Worker) -> BTreeMap<String, u64> {
    let mut counted = BTreeMap::new();
    worker.visit_functions_by_name(&mut |function, name, value| {
        if function == "gate" && name == "refused" {
            counted.insert(format!("{function} {name}"), value);
        }
    });
    worker.visit_rules(&mut |function, rule| {
        counted.insert(format!("{function} {:?}", rule.name), rule.packets);
    });
    // Reasons may differ: for a segment that no connection sends, the host's engine decides first.
    let below: u64 = worker.level_counters().map_or(0, |level| level.dropped.iter().map(|d| d.packets).sum());
    counted.insert("refused".to_owned(), worker.counters().refused.iter().sum::<u64>() + below);
    counted
}

/// An ICMP message: a query, an answer, an error about no existing flow, or a message between neighbours.
/// Each is of another flow: its source has a number of its own.
fn message(random: &mut Random, (from, number): End, to: IpAddr) -> Vec<u8> {
    let from = match from {
        IpAddr::V4(v4) => {
            IpAddr::V4(Ipv4Addr::from(u32::from(v4) & !0xff00 | u32::from(number / 150 % 256) << 8))
        }
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from(u128::from(v6) | u128::from(number) << 64)),
    };
    let kinds =
        (*random.pick(&[8, 8, 0, 13, 14, 17, 18, 3, 11, 5]), *random.pick(&[128, 128, 129, 1, 3, 135]));
    let code = u8::from(random.percent(10));
    icmp(from, to, kinds, code, &random.bytes(20)).frame()
}

fn packet(random: &mut Random, from: End, to: End, answers: bool) -> Vec<u8> {
    if random.percent(15) {
        return message(random, from, to.0);
    }
    let protocol = if random.percent(60) { TCP } else { UDP };
    let mut ip = Ip::new(from.0, to.0, protocol);
    if random.percent(30) {
        ip.tags = random.pick(&[vec![7], vec![9], vec![9, 7], vec![8, 9], vec![5, 5, 11]]).clone();
    }
    let load = random.letters(random.clone().below(40));
    if protocol == UDP {
        let mut datagram = Datagram::new((from.1, to.1), &load);
        datagram.chksum = random.percent(3).then_some(0x1234);
        return Packet { ip, layer: Layer::Udp(datagram), piece: None }.frame();
    }
    let flags = *random.pick(&[SYN, SYN, SYN, ACK, PSH | ACK, RST, RST | ACK, FIN | ACK, 0, SYN | FIN]);
    let flags = if answers && random.percent(30) { SYN | ACK } else { flags };
    let mut segment =
        Segment::new((from.1, to.1), (random.draw() as u32, random.draw() as u32), flags, &load);
    match random.below(8) {
        0..3 => segment.options = vec![(2, vec![5, 0xb4]), (1, vec![]), (3, vec![7]), (4, vec![])],
        3 => segment.raw_options = random.bytes(8),
        4 => segment.dataofs = Some(*random.pick(&[0, 4, 5, 15])),
        5 => segment.chksum_error = 1,
        _ => {}
    }
    Packet { ip, layer: Layer::Tcp(segment), piece: None }.frame()
}

fn settings(random: &mut Random) -> SettingsMap {
    let mut settings = bartizan_config::suricata::shipped();
    settings.set("flow.memcap", "4mb");
    settings.set("decoder.gtp.enabled", "yes");
    if random.percent(50) {
        settings.set("stream.midstream-policy", "ignore");
        settings.set("stream.drop-invalid", "no");
    }
    if random.percent(30) {
        settings.set("stream.midstream", "true");
    }
    settings
}

/// Counts of the cases that the test has met.
#[derive(Debug, Default)]
struct Met {
    early: u32,
    refused_at_host: u32,
    forwarded: u32,
    rejected: u32,
    by_others: u32,
    answers: u32,
    /// ICMP messages among the frames dropped early.
    messages: u32,
    /// Drops by rules where the packet filter is the first function: at the level, at the host. Then the part
    /// for tenants, and the part in tunnels.
    by_rule: [u32; 2],
    of_tenants: [u32; 2],
    in_tunnels: BTreeMap<String, [u32; 2]>,
    /// The mark of another flow, or a checksum that looks unfinished: both occur by chance.
    unlucky: u32,
}

/// Packets, each of another flow: the host drops every packet that the level drops, and the level drops every
/// packet that the host drops by rules of a policy's first function.
fn first_packets(level: &mut Level, random: &mut Random, met: &mut Met) {
    let (text, settings, answers) = (policy(random), settings(random), random.percent(30));
    let mut hosts = Hosts::new(level, &text, &settings);
    let kinds = *random.pick(&TUNNELS);
    hosts.know_around(level, kinds);
    for port in 0..250u16 {
        let v6 = random.percent(40);
        let ends = [
            (address(random, v6), 1024 + port * 150),
            (address(random, v6), *random.pick(&[22, 80, 443, 8080])),
        ];
        let mut frame = packet(random, ends[0], ends[1], answers);
        // Counters are compared on one link.
        let way = (0, random.below(2));
        let is_tagged = frame[12..14] == [0x81, 0];
        let in_tunnel = !is_tagged && random.percent(25);
        let tunnel = *random.pick(&kinds);
        if in_tunnel {
            frame = around(tunnel, random.percent(50), &frame);
        }
        let (told, verdict, early) = hosts.fates(level, &frame, way);
        let said = || format!("{told:?} {verdict:?} early {early} {ends:?} {frame:02x?}\n{text}");
        assert_eq!(told.verdict, verdict, "{}", said());
        assert!(!early || told.verdict == Verdict::Drop, "{}", said());
        met.early += u32::from(early);
        met.forwarded += u32::from(told.verdict.forwards());
        met.rejected += u32::from(told.verdict == Verdict::Reject);
        let listed =
            !in_tunnel && question(&frame, ends).is_some_and(|asked| outcome(&hosts.words, &asked).is_some());
        met.messages += u32::from(early && matches!(frame_protocol(&frame), Some(ICMP | ICMPV6)));
        // The host takes the receiver of a SYN/ACK for the opener, if it picks up connections.
        met.answers += u32::from(listed && told.verdict.forwards());
        let by_rule =
            matches!(told.reason, Some(Reason::PfwRule | Reason::PfwDefault | Reason::PolicyDefault));
        if told.verdict == Verdict::Drop && by_rule && !text.contains("portscan") {
            let at = usize::from(!early);
            met.by_rule[at] += 1;
            met.of_tenants[at] += u32::from(text.contains("tenant: ["));
            if in_tunnel {
                met.in_tunnels.entry(format!("{:?}", tunnel.port())).or_default()[at] += 1;
            }
        }
        if told.verdict == Verdict::Drop && by_rule && !early {
            met.refused_at_host += 1;
            // Packets that the level can judge are dropped there.
            met.unlucky += u32::from(listed && !answers);
        }
        met.by_others += u32::from(told.verdict == Verdict::Drop && !by_rule);
    }
    hosts.turn();
    if !answers && !text.contains("portscan") {
        // Refused by exception policies, of the stream, is another reason; so these are left out.
        if settings.get("stream.midstream-policy") == Some("ignore") {
            assert_eq!(counted(&hosts.with), counted(&hosts.without), "{text}");
        }
    }
    // The flows around are known no more.
    hosts.with.shutdown(&mut Nothing);
    drop(hosts.chains);
}

/// Two tunnels of each kind, which may belong to two tenants.
const TUNNELS: [[Tunnel; 2]; 6] = [
    [Tunnel::Vxlan(5), Tunnel::Vxlan(6)],
    [Tunnel::Vxlan(5), Tunnel::Vxlan(7)],
    [Tunnel::Geneve(5, 1), Tunnel::Geneve(6, 1)],
    [Tunnel::GeneveBridge(5), Tunnel::GeneveBridge(6)],
    [Tunnel::Gtp(5, false, 0), Tunnel::Gtp(6, false, 0)],
    [Tunnel::Ip, Tunnel::Ip],
];

/// The packet of a frame without tags, in a tunnel between two hosts.
fn around(tunnel: Tunnel, v6: bool, frame: &[u8]) -> Vec<u8> {
    let ends = if v6 { ["2001:db8::1", "2001:db8::2"] } else { ["192.0.2.1", "192.0.2.2"] };
    let [from, to]: [IpAddr; 2] = ends.map(|end| end.parse().unwrap());
    tunnel.around(((from, 50_000), (to, 0)), frame[12] == 0x86, &frame[14..]).frame()
}

/// The protocol of an IPv4 or IPv6 packet without tags.
fn frame_protocol(frame: &[u8]) -> Option<u8> {
    match (frame.get(12..14)?, frame.get(23), frame.get(20)) {
        ([8, 0], Some(protocol), _) | ([0x86, 0xdd], _, Some(protocol)) => Some(*protocol),
        _ => None,
    }
}

/// The table's query for a frame with intact headers. (Tags do not matter, but the parser of this test does
/// not skip them.)
fn question(frame: &[u8], ends: [End; 2]) -> Option<EarlyKey> {
    let protocol = Protocol::of(frame_protocol(frame).filter(|_| is_plain(frame))?)?;
    let ports = match (protocol, frame[12]) {
        (Protocol::Icmp, _) => (frame[34].into(), frame[35].into()),
        (Protocol::Icmpv6, _) => (frame[54].into(), frame[55].into()),
        _ => (ends[0].1, ends[1].1),
    };
    let source = match frame[12] {
        8 => IpAddr::from(<[u8; 4]>::try_from(&frame[26..30]).unwrap()),
        _ => IpAddr::from(<[u8; 16]>::try_from(&frame[22..38]).unwrap()),
    };
    let (vlans, tunnel) = (VlanIds::default(), None);
    Some(EarlyKey { link: 0, source, destination: ends[1].0, protocol, ports, vlans, tunnel })
}

/// Whether a frame has intact headers and no tags.
fn is_plain(frame: &[u8]) -> bool {
    let Some(protocol) = frame_protocol(frame) else { return false };
    let at = if frame[12] == 8 { 34 } else { 54 };
    match protocol {
        UDP => return true,
        ICMP => return frame[35] == 0 && matches!(frame[34], 0 | 8 | 13..=18),
        ICMPV6 => return frame[55] == 0 && matches!(frame[54], 128 | 129),
        _ => {}
    }
    let length = usize::from(frame[at + 12] >> 4) * 4;
    length >= 20 && at + length <= frame.len()
}

#[test]
fn the_level_refuses_what_the_host_would_and_nothing_else() {
    if !inside("the_level_refuses_what_the_host_would_and_nothing_else") {
        return;
    }
    let (mut level, mut met) = (Level::new(), Met::default());
    for seed in 0..120 {
        first_packets(&mut level, &mut Random::of(22, &[seed]), &mut met);
    }
    eprintln!("{met:?}");
    assert!(met.early > 5_000 && met.forwarded > 5_000 && met.rejected > 500, "{met:?}");
    assert!(met.refused_at_host > 500 && met.by_others > 500, "{met:?}");
    assert!(met.unlucky < met.early / 50 && met.messages > 500, "{met:?}");
    // The level drops most of the possible packets: the others are answers, or not plain.
    for ([early, at_host], some) in [(met.by_rule, 4_000), (met.of_tenants, 1_000)] {
        assert!(early > some && early > 3 * at_host, "{met:?}");
    }
    // Of GTP-U neither SYN nor ICMP.
    for (port, [early, at_host]) in &met.in_tunnels {
        assert!(*early > 30 && (port.contains("2152") || early > at_host), "{port}: {met:?}");
    }
}

/// Inside may open connections, outside may not.
const INSIDE_OPENS: &str = "policies: [{name: all, from: any, to: any, chain: [pfw], pfw: {default: drop, rules: [{allow: any, from: [\"10.1.0.0/16\", \"fd01::/16\"]}]}}]\ndefault: {action: drop}\n";

fn segment(from: End, to: End, flags: u16) -> Vec<u8> {
    Packet::tcp(&Ip::new(from.0, to.0, TCP), Segment::new((from.1, to.1), (1000, 2000), flags, &[])).frame()
}

fn datagram(from: End, to: End) -> Vec<u8> {
    let layer = Layer::Udp(Datagram::new((from.1, to.1), b"hello"));
    Packet { ip: Ip::new(from.0, to.0, UDP), layer, piece: None }.frame()
}

#[test]
fn what_answers_a_flow_that_goes_on_is_not_refused() {
    if !inside("what_answers_a_flow_that_goes_on_is_not_refused") {
        return;
    }
    let mut level = Level::new();
    let mut settings = bartizan_config::suricata::shipped();
    settings.set("flow.memcap", "4mb");
    let mut hosts = Hosts::new(&mut level, INSIDE_OPENS, &settings);
    for v6 in [false, true] {
        let inner: IpAddr = if v6 { "fd01::1".parse().unwrap() } else { "10.1.0.1".parse().unwrap() };
        let outer: IpAddr = if v6 { "fd02::2".parse().unwrap() } else { "10.2.0.2".parse().unwrap() };
        for port in 0..40u16 {
            let (client, server) = ((inner, 2000 + port), (outer, 443));
            // No connection was opened: dropped at the level.
            assert!(level.refuses(&datagram(server, client), (0, 1)));
            assert!(level.refuses(&segment(server, client, SYN), (0, 1)));
            assert!(level.refuses(&segment(server, client, ACK), (0, 1)));
            // Datagrams and a simultaneous open are answered from outside.
            for (frame, answer) in [
                (datagram(client, server), datagram(server, client)),
                (segment(client, server, SYN), segment(server, client, SYN)),
                (segment(client, server, SYN), segment(server, client, SYN | ACK)),
            ] {
                let (told, verdict, early) = hosts.fates(&mut level, &frame, (0, 0));
                assert!(told.verdict.forwards() && verdict.forwards() && !early);
                assert!(!level.refuses(&answer, (0, 1)), "it answers a flow");
                let (told, verdict, early) = hosts.fates(&mut level, &answer, (0, 1));
                assert_eq!((told.verdict, early), (verdict, false));
            }
            // Neither by another side of the link nor by another link is it that flow.
            assert!(level.refuses(&datagram(server, client), (0, 0)));
            assert!(level.refuses(&datagram(server, client), (1, 1)));
        }
    }
    // A refused flow that the host has seen is none.
    let (stranger, client): (End, End) =
        (("10.2.0.9".parse().unwrap(), 53), ("10.1.0.9".parse().unwrap(), 777));
    let arrival = datagram(stranger, client);
    assert_eq!(hand_in(&mut hosts.with, hosts.clock, &arrival, (0, 1)).verdict, Verdict::Drop);
    assert!(level.refuses(&arrival, (0, 1)));
    // After the end of flows, packets that answer them are dropped, too.
    hosts.with.shutdown(&mut Nothing);
    for v6 in [false, true] {
        let (inner, outer) = if v6 { ("fd01::1", "fd02::2") } else { ("10.1.0.1", "10.2.0.2") };
        let (inner, outer): (IpAddr, IpAddr) = (inner.parse().unwrap(), outer.parse().unwrap());
        assert!((0..40).all(|port| level.refuses(&datagram((outer, 443), (inner, 2000 + port)), (0, 1))));
    }
}

/// Echo: a forbidden request is dropped at the level, and so is an unsolicited reply; replies to requests go
/// up, and so does every error, whatever it is about.
#[test]
fn answers_to_an_echo_and_errors_are_not_refused() {
    if !inside("answers_to_an_echo_and_errors_are_not_refused") {
        return;
    }
    let mut level = Level::new();
    let mut settings = bartizan_config::suricata::shipped();
    settings.set("flow.memcap", "4mb");
    let mut hosts = Hosts::new(&mut level, INSIDE_OPENS, &settings);
    for (inner, outer) in [("10.1.0.1", "10.2.0.2"), ("fd01::1", "fd02::2")] {
        let (inner, outer): (IpAddr, IpAddr) = (inner.parse().unwrap(), outer.parse().unwrap());
        let ask = |from, to| icmp(from, to, (8, 128), 0, b"\0\x07\0\x01echo").frame();
        let answer = |from, to| icmp(from, to, (0, 129), 0, b"\0\x07\0\x01echo").frame();
        assert!(level.refuses(&ask(outer, inner), (0, 1)));
        assert!(level.refuses(&answer(outer, inner), (0, 1)), "nobody has asked");
        let (told, verdict, early) = hosts.fates(&mut level, &ask(inner, outer), (0, 0));
        assert!(told.verdict.forwards() && verdict.forwards() && !early);
        let (told, verdict, early) = hosts.fates(&mut level, &answer(outer, inner), (0, 1));
        assert!(told.verdict.forwards() && verdict.forwards() && !early, "it answers");
        assert!(level.refuses(&ask(outer, inner), (0, 1)), "asking is another flow");
        assert!(level.refuses(&answer(outer, inner), (1, 1)), "by another link it is no answer");
        // Errors about an existing flow, and about none; other codes and types; truncated ones.
        let about =
            Packet::tcp(&Ip::new(inner, outer, TCP), Segment::new((2000, 443), (1, 0), SYN, &[])).bytes();
        let rest = [&[0; 4], about.as_slice()].concat();
        for (kinds, code, rest) in [
            ((3, 1), 1, rest.as_slice()),
            ((11, 3), 0, &rest),
            ((4, 2), 0, b"\0\0\0\0"),
            ((8, 128), 1, b"\0\x07\0\x01"),
            ((0, 129), 0, b"\0"),
            ((9, 135), 0, b"\0\0\0\0"),
        ] {
            assert!(
                !level.refuses(&icmp(outer, inner, kinds, code, rest).frame(), (0, 1)),
                "{kinds:?} {code}"
            );
        }
    }
    hosts.with.shutdown(&mut Nothing);
    let (inner, outer): (IpAddr, IpAddr) = ("10.1.0.1".parse().unwrap(), "10.2.0.2".parse().unwrap());
    let late = icmp(outer, inner, (0, 129), 0, b"\0\x07\0\x01echo").frame();
    assert!(level.refuses(&late, (0, 1)), "the flow is over");
}

/// Rules with codes judge each message by itself: a message that is dropped does not remove its flow's mark.
#[test]
fn a_message_that_is_refused_for_its_code_leaves_its_flow_known() {
    if !inside("a_message_that_is_refused_for_its_code_leaves_its_flow_known") {
        return;
    }
    let codes = INSIDE_OPENS.replace("rules: [", "rules: [{drop: [icmp, icmpv6], type: [8, 128], code: 1}, ");
    let mut level = Level::new();
    let mut settings = bartizan_config::suricata::shipped();
    settings.set("flow.memcap", "4mb");
    let mut hosts = Hosts::new(&mut level, &codes, &settings);
    let (inner, outer): (IpAddr, IpAddr) = ("10.1.0.1".parse().unwrap(), "10.2.0.2".parse().unwrap());
    let ask = |code| icmp(inner, outer, (8, 128), code, b"\0\x07\0\x01echo").frame();
    let answer = icmp(outer, inner, (0, 129), 0, b"\0\x07\0\x01echo").frame();
    assert!(level.refuses(&answer, (0, 1)), "nobody has asked");
    for (frame, way, goes_on) in
        [(ask(0), 0, true), (answer.clone(), 1, true), (ask(1), 0, false), (answer.clone(), 1, true)]
    {
        let (told, verdict, early) = hosts.fates(&mut level, &frame, (0, way));
        assert_eq!((told.verdict.forwards(), verdict.forwards(), early), (goes_on, goes_on, false));
    }
}

#[test]
fn a_generation_is_judged_by_its_own_table_or_none() {
    if !inside("a_generation_is_judged_by_its_own_table_or_none") {
        return;
    }
    let mut level = Level::new();
    let tables = level.program.tables();
    let early = tables.early().unwrap();
    let settings = bartizan_config::suricata::shipped();
    let hosts = Hosts::new(&mut level, INSIDE_OPENS, &settings);
    let (from, to): (End, End) = (("10.2.0.9".parse().unwrap(), 53), ("10.1.0.9".parse().unwrap(), 777));
    let frame = datagram(from, to);
    assert!(level.refuses(&frame, (0, 1)));
    // A new generation without a table: all packets go up. With its table the results are the same; an empty
    // table drops nothing.
    tables.enter_generation(2);
    assert!(!level.refuses(&frame, (0, 1)));
    assert!(early.write(2, &hosts.words));
    assert!(level.refuses(&frame, (0, 1)));
    // Nor is one judged by the table of the same parity that was written two generations ago.
    tables.enter_generation(3);
    assert!(!level.refuses(&frame, (0, 1)));
    assert!(early.write(3, &hosts.words));
    assert!(level.refuses(&frame, (0, 1)));
    assert!(early.write(5, &[]));
    for generation in [3, 5] {
        tables.enter_generation(generation);
        assert!(!level.refuses(&frame, (0, 1)));
    }
    assert!(!early.write(4, &vec![0; (1 << 20) + 1]), "there is no room");
    // Drops are counted by table.
    let count = |odd| {
        let of = |outcome| early.counted(odd, 0, outcome).packets;
        (0..early.outcomes()).map(of).sum::<u64>()
    };
    assert_eq!([count(false), count(true)], [1, 2]);
}

/// A past time of the kernel's clock, which begins at boot; at least 1.
fn seconds_ago(seconds: u64) -> u64 {
    monotonic_time().saturating_sub(seconds * 1_000_000_000).max(1)
}

#[test]
fn samples_come_up_and_a_failed_worker_is_not_spoken_for() {
    if !inside("samples_come_up_and_a_failed_worker_is_not_spoken_for") {
        return;
    }
    // Longer than all of this takes, and no longer than a machine has been up that has just begun.
    let stale = std::time::Duration::from_secs(30);
    let watch = Watch { fail: Fail::Closed, stale, spread: Spread::new([1, 2], 1), first: 0 };
    let mut level = Level::with(Some(3), Some(watch));
    let settings = bartizan_config::suricata::shipped();
    let hosts = Hosts::new(&mut level, INSIDE_OPENS, &settings);
    let (from, to): (End, End) = (("10.2.0.9".parse().unwrap(), 53), ("10.1.0.9".parse().unwrap(), 777));
    let frame = datagram(from, to);
    let refused = (0..8_000).filter(|_| level.refuses(&frame, (0, 1))).count();
    assert!((6_600..7_400).contains(&refused), "one of eight comes up: {refused}");
    let tables = level.program.tables();
    let counters = tables.port_counters(1).unwrap();
    assert_eq!((counters.early, counters.up, counters.dropped), (refused as u64, 8_000 - refused as u64, 0));
    // The worker is silent, so the flows are unknown; other tests cover the outcome of its frames.
    assert!(tables.beat(0, seconds_ago(40)));
    assert!((0..100).all(|_| level.refuses(&frame, (0, 1))), "it fails closed");
    let now = tables.port_counters(1).unwrap();
    assert_eq!((now.early, now.closed), (counters.early, 100));
    drop(hosts);
}

/// A host with midstream pick-up takes the receiver of a SYN/ACK for the initiator.
#[test]
fn who_may_have_opened_unseen_is_asked_as_well() {
    if !inside("who_may_have_opened_unseen_is_asked_as_well") {
        return;
    }
    let mut level = Level::new();
    let mut settings = bartizan_config::suricata::shipped();
    for (key, value) in [("stream.midstream", "yes"), ("stream.midstream-policy", "ignore")] {
        settings.set(key, value);
    }
    let mut hosts = Hosts::new(&mut level, INSIDE_OPENS, &settings);
    let ends =
        |from: &str, to: &str| -> (End, End) { ((from.parse().unwrap(), 443), (to.parse().unwrap(), 777)) };
    let (outer, inner) = ends("10.2.0.9", "10.1.0.9");
    let (told, verdict, early) = hosts.fates(&mut level, &segment(outer, inner, SYN | ACK), (0, 1));
    assert_eq!((told.verdict, verdict, early), (Verdict::Continue, Verdict::Continue, false));
    // If neither side may open, the query is not needed.
    let (outer, other) = ends("10.2.0.9", "10.3.0.9");
    let (told, verdict, early) = hosts.fates(&mut level, &segment(outer, other, SYN | ACK), (0, 1));
    assert_eq!((told.verdict, verdict, early), (Verdict::Drop, Verdict::Drop, true));
}

/// Prints the cost of a search.
#[test]
fn ten_thousand_prefixes_cost_two_searches() {
    if !inside("ten_thousand_prefixes_cost_two_searches") {
        return;
    }
    let mut level = Level::new();
    let settings = bartizan_config::suricata::shipped();
    let cost = |level: &mut Level, frame: &[u8]| {
        let mut nanos: Vec<u32> = (0..9)
            .map(|_| level.program.run_on(frame, level.interfaces[0][1], 20_000).unwrap().nanoseconds)
            .collect();
        nanos.sort_unstable();
        nanos[4]
    };
    let (from, to): (End, End) = (("11.5.7.9".parse().unwrap(), 53), ("10.1.0.9".parse().unwrap(), 777));
    let (frame, other) = (datagram(from, to), datagram(("12.0.0.1".parse().unwrap(), 53), to));
    let before = cost(&mut level, &frame);
    let list: Vec<String> =
        (0..10_000u32).map(|n| format!("{}/24", Ipv4Addr::from(0x0b00_0100 + n * 512))).collect();
    let policy = format!(
        "policies: [{{name: all, from: any, to: any, chain: [pfw], pfw: {{default: allow, rules: [{{drop: any, from: [{}]}}]}}}}]\ndefault: {{action: drop}}\n",
        list.join(", ")
    );
    let hosts = Hosts::new(&mut level, &policy, &settings);
    let (refused, up) = (cost(&mut level, &frame), cost(&mut level, &other));
    assert!(level.refuses(&frame, (0, 1)) && !level.refuses(&other, (0, 1)));
    eprintln!(
        "of no flow, ns: without a table {before}, refused by one of 10,000 prefixes {refused}, by none {up}; {} words",
        hosts.words.len()
    );
    // The same list for a tenant, after the lists of 99 others.
    let tenants: Vec<String> =
        (1..=100).map(|n| format!("{{name: t{n}, select: {{vlan: [{n}]}}}}")).collect();
    let of_tenant = format!(
        "tenants: [{}]\n{}",
        tenants.join(", "),
        policy.replace("name: all,", "name: all, tenant: [t100],")
    );
    let mut packet = bartizan_testkit::packet::udp(from, to, b"hello");
    let [own, other_tenants] = [100, 99].map(|tag| {
        packet.ip.tags = vec![tag];
        packet.frame()
    });
    drop(hosts);
    let hosts = Hosts::new(&mut level, &of_tenant, &settings);
    let told = cost(&mut level, &own);
    assert!(level.refuses(&own, (0, 1)), "the tenant's");
    // Of the others the default refuses all.
    assert!(level.refuses(&other_tenants, (0, 1)));
    eprintln!(
        "of no flow, ns: refused by a tenant's rule of 10,000 prefixes, with a tag {told}; {} words",
        hosts.words.len()
    );
}

/// Whether the program drops a frame on an open link.
fn holds_back(level: &mut Level, frame: &[u8], side: usize) -> bool {
    match level.program.run_on(frame, level.interfaces[0][side], 1).unwrap().result {
        REDIRECT => false,
        DROP => true,
        other => panic!("the program returned {other}"),
    }
}

/// A packet in one of its possible encapsulations.
fn dressed(random: &mut Random, mut packet: Packet) -> Vec<u8> {
    let v6 = packet.ip.src.is_ipv6();
    match random.below(4) {
        0 if v6 => {
            packet.ip.extensions = vec![(0, vec![0, 1, 4, 0, 0, 0, 0]), (60, vec![0, 1, 4, 0, 0, 0, 0])]
        }
        0 => packet.ip.options = vec![1; 8],
        1 => {
            let bytes = packet.bytes();
            let load = bytes[if v6 { 40 } else { 20 }..].to_vec();
            let load = load.get(..24).map_or(load.clone(), <[u8]>::to_vec);
            packet =
                Packet { layer: Layer::Part(load), piece: Some(Piece { offset: 0, more: true }), ..packet };
        }
        _ => {}
    }
    packet.frame()
}

/// The table's results for a packet and for one that answers it.
fn both_ways(
    words: &[u64],
    (ends, vlans): ([End; 2], VlanIds),
    protocol: Protocol,
    ports: [(u16, u16); 2],
) -> [bool; 2] {
    let ask = |from: End, to: End, ports| {
        let (source, destination) = (from.0, to.0);
        let question = EarlyKey { link: 0, source, destination, protocol, ports, vlans, tunnel: None };
        outcome(words, &question).is_some()
    };
    [ask(ends[0], ends[1], ports[0]), ask(ends[1], ends[0], ports[1])]
}

/// While a link is open, flows are unknown: packets that rules drop in both directions are dropped, and so is
/// every packet that does not answer one that has left.
#[test]
fn an_open_link_drops_what_rules_refuse_and_no_answers() {
    if !inside("an_open_link_drops_what_rules_refuse_and_no_answers") {
        return;
    }
    run("mount", "-t bpf bpf /sys/fs/bpf");
    let watch = Watch {
        fail: Fail::Open,
        stale: std::time::Duration::from_secs(1),
        spread: Spread::new([1, 2], 1),
        first: 0,
    };
    let mut level = Level::with(None, Some(watch));
    let settings = bartizan_config::suricata::shipped();
    let mut met = [0; 5];
    for seed in 0..60 {
        let random = &mut Random::of(23, &[seed]);
        // Some where only one side may open.
        let text = if seed % 6 == 0 { INSIDE_OPENS.to_owned() } else { policy(random) };
        let hosts = Hosts::new(&mut level, &text, &settings);
        let tables = level.program.tables();
        tables.enter_generation(level.generation);
        assert!(tables.beat(0, seconds_ago(60)));
        for port in 0..150u16 {
            let v6 = random.percent(40);
            let ends = [
                (address(random, v6), 1024 + port * 150),
                (address(random, v6), *random.pick(&[22, 80, 443])),
            ];
            if ends[0].0 == ends[1].0 {
                continue;
            }
            let kind = random.below(3);
            let tags = random.pick(&[vec![], vec![], vec![7], vec![9], vec![8, 11]]).clone();
            let mut vlans = VlanIds::default();
            tags.iter().for_each(|tag| assert!(vlans.push(*tag)));
            let flags = [SYN, ACK, SYN | ACK, SYN][random.below(4)];
            let make = |back: bool, random: &mut Random| {
                let (from, to) = if back { (ends[1], ends[0]) } else { (ends[0], ends[1]) };
                let flags = if back { ACK } else { flags };
                let mut packet = match kind {
                    0 => Packet {
                        ip: Ip::new(from.0, to.0, UDP),
                        layer: Layer::Udp(Datagram::new((from.1, to.1), b"hello, you there")),
                        piece: None,
                    },
                    1 => Packet::tcp(
                        &Ip::new(from.0, to.0, TCP),
                        Segment::new((from.1, to.1), (1000, 2000), flags, b"more"),
                    ),
                    _ => icmp(
                        from.0,
                        to.0,
                        if back { (0, 129) } else { (8, 128) },
                        0,
                        b"\0\x07\0\x01echo, echo, echo",
                    ),
                };
                packet.ip.tags.clone_from(&tags);
                dressed(random, packet)
            };
            let (protocol, ports) = match kind {
                0 => (Protocol::Udp, [(ends[0].1, ends[1].1), (ends[1].1, ends[0].1)]),
                1 => (Protocol::Tcp, [(ends[0].1, ends[1].1), (ends[1].1, ends[0].1)]),
                _ if v6 => (Protocol::Icmpv6, [(128, 0), (129, 0)]),
                _ => (Protocol::Icmp, [(8, 0), (0, 0)]),
            };
            let [own, answer] = both_ways(&hosts.words, (ends, vlans), protocol, ports);
            let said = |what: &str| format!("{what}: {own} {answer} {kind} {flags:x} {ends:?}\n{text}");
            let frame = make(false, random);
            // The flow is unknown, so the packet answers nothing. (ICMP flows have no ports: an earlier one
            // may be equal.)
            let first = holds_back(&mut level, &frame, 0);
            if kind != 2 {
                assert_eq!(first, own, "{}", said("a first packet"));
            } else {
                assert!(first <= own && (first || !(own && answer)), "{}", said("a first message"));
            }
            let frame = make(true, random);
            let second = holds_back(&mut level, &frame, 1);
            if !first {
                assert_eq!(second, own && answer, "{}", said("an answer"));
            } else if kind != 2 {
                assert_eq!(second, answer, "{}", said("an answer to what did not leave"));
            }
            let piece = Some(Piece { offset: 24, more: false });
            let mut ip = Ip::new(ends[0].0, ends[1].0, [UDP, TCP, UDP][kind]);
            ip.tags.clone_from(&tags);
            let later = Packet { ip, layer: Layer::Part(vec![7; 8]), piece }.frame();
            let whatever = both_ways(&hosts.words, (ends, vlans), Protocol::Whatever, [(0, 0); 2]);
            let dropped = holds_back(&mut level, &later, 0);
            assert_eq!(dropped, whatever == [true, true], "{}", said("a later fragment"));
            let of = usize::from(own) * 2 + usize::from(answer);
            met[of] += 1;
            met[4] += u32::from(dropped);
        }
        drop(hosts);
    }
    assert!(met.iter().all(|count| *count > 40), "{met:?}");
}
