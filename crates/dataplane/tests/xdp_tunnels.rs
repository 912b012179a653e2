// SPDX-License-Identifier: Apache-2.0
//! Packets in tunnels at the XDP level: the program finds both flows of a frame by the host's keys for them,
//! counts as the host does, and handles no tunnelled packet with a decode event at the host.
//!
//! The kernel runs the program on each frame, in a network namespace that ends with the test.

use crate::xdp_program;

use bartizan_base::Reason;
use bartizan_packet::{Decoded, DecoderConfig, PacketFlags, TunnelPorts, VxlanReservedBits};
use bartizan_testkit::layers;
use bartizan_testkit::namespace::{inside, number};
use bartizan_testkit::packet::{Datagram, FIN, Layer, Packet, Piece, RST, SYN, TCP, UDP, udp};
use bartizan_testkit::random::Random;
use bartizan_testkit::tunnels::Tunnel;
use bartizan_xdp::{FlowSlotControl, Key, Tables, XdpFlowAction, XdpProgram, boot_time};
use xdp_program::{
    PASS, REDIRECT, Setting, attach, config, decode, decode_by, endpoint, key, packet, program, spoil,
};

const FORWARD: FlowSlotControl = FlowSlotControl { action: XdpFlowAction::Forward, generation: 0 };
const SETTING: Setting = Setting { sides: true, vlans: true };
/// Slots of the outer and of the inner flow.
const OUTER: u32 = 0;
const INNER: u32 = 1;

/// A random packet that no tunnel carries tags of.
fn carried(random: &mut Random) -> Packet {
    let mut packet = packet(random);
    packet.ip.tags.clear();
    packet
}

/// A packet in a random tunnel, by some tags.
fn tunnelled(random: &mut Random) -> Packet {
    let inner = carried(random);
    let v6 = random.percent(50);
    let ends = (endpoint(random, v6), endpoint(random, v6));
    let number = random.draw() as u32 & 0xff_ffff;
    let tunnel = match *random.pick(&Tunnel::ALL) {
        Tunnel::Ip => Tunnel::Ip,
        Tunnel::Vxlan(_) => Tunnel::Vxlan(number),
        Tunnel::Geneve(_, options) => Tunnel::Geneve(number, options),
        Tunnel::GeneveBridge(_) => Tunnel::GeneveBridge(number),
        Tunnel::Gtp(_, sequence, extensions) => Tunnel::Gtp(random.draw() as u32, sequence, extensions),
    };
    let mut outer = tunnel.around(ends, inner.ip.src.is_ipv6(), &inner.bytes());
    outer.ip.tags = (0..random.below(4)).map(|_| random.draw() as u16).collect();
    outer.ip.trailer = random.below(6);
    if let (Layer::Udp(datagram), true) = (&mut outer.layer, random.percent(50)) {
        datagram.chksum = Some(0);
    }
    outer
}

fn keys(decoded: &[Decoded], second: bool) -> Vec<Key> {
    decoded.iter().filter_map(|packet| Some(*key(packet, SETTING, second, 0)?.words())).collect()
}

/// Puts flows there, in slots 0, 1, ... Of two flows with one key the first has it.
fn install(tables: &Tables, keys: &[Key]) {
    for (slot, key) in (0..).zip(keys) {
        assert!(tables.clear(slot) && tables.set_control(slot, FORWARD));
        let _ = tables.insert(key, slot);
    }
}

fn remove(tables: &Tables, keys: &[Key]) {
    for key in keys {
        tables.remove(key);
    }
}

/// Packets and bytes that a slot has counted.
fn counted(tables: &Tables, slot: u32) -> ([u64; 2], [u64; 2]) {
    let counts = tables.counts(slot, boot_time()).unwrap();
    (counts.packets, counts.bytes)
}

/// Packets and bytes that the host counts for a packet.
fn expected(packet: &Decoded, second: bool) -> ([u64; 2], [u64; 2]) {
    let from_high = usize::from(key(packet, SETTING, second, 0).unwrap().is_reversed());
    let (mut packets, mut bytes) = ([0; 2], [0; 2]);
    (packets[from_high], bytes[from_high]) = (1, packet.length().into());
    (packets, bytes)
}

#[test]
fn a_packet_in_a_tunnel_and_the_one_around_it_are_counted_for_both_flows() {
    if !inside("a_packet_in_a_tunnel_and_the_one_around_it_are_counted_for_both_flows") {
        return;
    }
    let mut program = program();
    attach(&mut program, SETTING);
    let (tables, mut random) = (program.tables(), Random::new(30));
    let interfaces = [number("lan"), number("wan")];
    for round in 0..2_000 {
        let (frame, second) = (tunnelled(&mut random).frame(), random.percent(50));
        let decoded = decode(&frame);
        let [outer, inner] = decoded.as_slice() else { panic!("{round}: {decoded:?}") };
        let both = keys(&decoded, second);
        let mut result = || program.run_on(&frame, interfaces[usize::from(second)], 1).unwrap().result;
        install(&tables, &both[..1]);
        assert_eq!(result(), PASS, "{round}: nobody has decided on what is inside {outer:?}");
        assert_eq!(counted(&tables, OUTER), Default::default());
        install(&tables, &both);
        assert_eq!(result(), REDIRECT, "{round}: {inner:?} in {outer:?}");
        assert_eq!(counted(&tables, OUTER), expected(outer, second), "{round}: {outer:?}");
        assert_eq!(counted(&tables, INNER), expected(inner, second), "{round}: {inner:?} in {outer:?}");
        assert!(tables.remove(&both[0]));
        assert_eq!(result(), PASS, "{round}: nobody has decided on what is around");
        assert!(tables.remove(&both[1]));
    }
}

/// Packets and bytes that a slot's entry has dropped because of their payload.
fn refused_inside(tables: &Tables, slot: u32) -> (u64, u64) {
    tables.counts(slot, boot_time()).unwrap().refused_inside
}

/// A frame whose inner flow is refused is dropped for both, and the flow around says why. Whatever else the
/// two entries say, the host decides.
#[test]
fn a_packet_that_is_refused_in_a_tunnel_is_dropped_with_the_one_around_it() {
    if !inside("a_packet_that_is_refused_in_a_tunnel_is_dropped_with_the_one_around_it") {
        return;
    }
    const DROP: FlowSlotControl =
        FlowSlotControl { action: XdpFlowAction::Drop(Reason::PfwRule), generation: 0 };
    const AWAY: FlowSlotControl = FlowSlotControl { action: XdpFlowAction::Redirect(1), generation: 0 };
    const COMPARE: FlowSlotControl = FlowSlotControl { action: XdpFlowAction::Compare, generation: 0 };
    const OLD: FlowSlotControl =
        FlowSlotControl { action: XdpFlowAction::Drop(Reason::PfwRule), generation: 1 };
    let mut program = program();
    attach(&mut program, SETTING);
    let (tables, mut random) = (program.tables(), Random::new(34));
    let interfaces = [number("lan"), number("wan")];
    for round in 0..1_000 {
        let (frame, second) = (tunnelled(&mut random).frame(), random.percent(50));
        let decoded = decode(&frame);
        let [outer, inner] = decoded.as_slice() else { panic!("{round}: {decoded:?}") };
        let both = keys(&decoded, second);
        let mut result = || program.run_on(&frame, interfaces[usize::from(second)], 1).unwrap().result;
        install(&tables, &both);
        // Those around are forwarded, redirected, refused themselves, compared, of another generation; so are
        // those inside.
        for (around, within) in [
            (AWAY, DROP),
            (DROP, DROP),
            (COMPARE, DROP),
            (OLD, DROP),
            (FORWARD, AWAY),
            (FORWARD, OLD),
            (DROP, FORWARD),
        ] {
            assert!(tables.set_control(OUTER, around) && tables.set_control(INNER, within));
            assert_eq!(result(), PASS, "{round}: {within:?} in {around:?}");
        }
        for slot in [OUTER, INNER] {
            assert_eq!(
                (counted(&tables, slot), refused_inside(&tables, slot)),
                Default::default(),
                "{round}"
            );
        }
        assert!(tables.set_control(OUTER, FORWARD) && tables.set_control(INNER, DROP));
        assert_eq!(result(), xdp_program::DROP, "{round}: {inner:?} in {outer:?}");
        let (packets, bytes) = expected(outer, second);
        assert_eq!(counted(&tables, OUTER), (packets, bytes), "{round}: {outer:?}");
        assert_eq!(refused_inside(&tables, OUTER), (1, bytes.iter().sum()), "{round}");
        assert_eq!(counted(&tables, INNER), expected(inner, second), "{round}: {inner:?} in {outer:?}");
        // What is let through does not change what was said of those that were not.
        assert!(tables.set_control(INNER, FORWARD));
        assert_eq!(result(), REDIRECT, "{round}");
        let all = |counts: ([u64; 2], [u64; 2])| counts.0.iter().sum::<u64>();
        assert_eq!((all(counted(&tables, OUTER)), refused_inside(&tables, OUTER).0), (2, 1), "{round}");
        remove(&tables, &both);
    }
}

#[test]
fn nothing_is_handled_in_a_tunnel_that_the_host_finds_odd() {
    if !inside("nothing_is_handled_in_a_tunnel_that_the_host_finds_odd") {
        return;
    }
    let mut program = program();
    attach(&mut program, SETTING);
    let (tables, mut random, lan) = (program.tables(), Random::new(31), number("lan"));
    let (mut handled, mut odd) = (0, 0);
    // Teredo on any port; reserved bits that make no VXLAN; one port for two kinds; no GTP-U.
    let usual = config();
    let any = DecoderConfig { gtp: usual.gtp, ..DecoderConfig::built_in() };
    let strict = DecoderConfig { vxlan_reserved: VxlanReservedBits::Strict, ..usual };
    let both = DecoderConfig { gtp: TunnelPorts::on(&[4789, 2152]), ..usual };
    let configs = [usual, any, strict, both, DecoderConfig::default()];
    for round in 0..50_000 {
        let config = configs[round / 10_000];
        if round % 10_000 == 0 {
            tables.set_tunnel_ports(&config).unwrap();
        }
        let mut frame = tunnelled(&mut random).frame();
        spoil(&mut random, &mut frame);
        let decoded = decode_by(config, &frame);
        // Now and then what is inside has no entry: then nothing that has an inside may be handled.
        let known = if random.percent(90) { decoded.as_slice() } else { &decoded[..1] };
        let keys = keys(known, false);
        install(&tables, &keys);
        let result = program.run_on(&frame, lan, 1).unwrap().result;
        let plain = |packet: &Decoded| {
            let flags = PacketFlags::UNREADABLE | PacketFlags::FRAGMENT;
            packet.wants_flow() && !packet.is_invalid() && !packet.flags.intersects(flags)
        };
        let fine = decoded.len() <= 2 && known.len() == decoded.len() && decoded.iter().all(plain);
        if result == REDIRECT {
            assert!(fine, "{round}: {decoded:?}\n{frame:02x?}");
            for (slot, packet) in (0..).zip(&decoded) {
                assert_eq!(counted(&tables, slot), expected(packet, false), "{round}: {decoded:?}");
            }
        }
        handled += usize::from(result == REDIRECT && decoded.len() == 2);
        odd += usize::from(!fine);
        remove(&tables, &keys);
    }
    assert!(handled > 10_000 && odd > 5_000, "{handled} were handled, {odd} were odd");
}

/// Plain packets of a tunnel's ends and of the hosts inside.
struct Sample {
    tunnel: Tunnel,
    v6: bool,
    inner: Packet,
}

impl Sample {
    fn all() -> Vec<Sample> {
        let mut all = Vec::new();
        for tunnel in Tunnel::ALL {
            for (v6, v6_inside, protocol) in
                [(false, false, TCP), (false, true, UDP), (true, false, UDP), (true, true, TCP)]
            {
                let [from, to] = ends(v6_inside, 1);
                let inner = match protocol {
                    TCP => bartizan_testkit::packet::tcp(from, to, (7, 8), 0x18, b"load"),
                    _ => udp(from, to, b"load"),
                };
                all.push(Sample { tunnel, v6, inner });
            }
        }
        all
    }

    fn outer(&self) -> Packet {
        let [from, to] = ends(self.v6, 2);
        self.tunnel.around((from, to), self.inner.ip.src.is_ipv6(), &self.inner.bytes())
    }

    fn frame(&self) -> Vec<u8> {
        self.outer().frame()
    }

    fn name(&self) -> String {
        format!("{:?}, IPv6 {}, inside {}", self.tunnel, self.v6, self.inner.ip.src)
    }
}

fn ends(v6: bool, network: u8) -> [bartizan_testkit::packet::End; 2] {
    [1_u16, 2].map(|host| {
        let text = if v6 { format!("fd00:{network}::{host}") } else { format!("10.{network}.0.{host}") };
        (text.parse().unwrap(), 4_000 + host)
    })
}

/// A program with the flows of a sample's frame.
struct Bench {
    program: XdpProgram,
    tables: std::sync::Arc<Tables>,
    lan: u32,
    keys: Vec<Key>,
}

impl Bench {
    fn new() -> Self {
        let mut program = program();
        attach(&mut program, SETTING);
        let tables = program.tables();
        Bench { program, tables, lan: number("lan"), keys: Vec::new() }
    }

    fn run(&mut self, frame: &[u8]) -> u32 {
        self.program.run_on(frame, self.lan, 1).unwrap().result
    }

    /// The flows of this frame are there, and it is handled.
    fn take(&mut self, frame: &[u8], name: &str) {
        remove(&self.tables, &self.keys);
        self.keys = keys(&decode(frame), false);
        assert_eq!(self.keys.len(), 2, "{name}");
        install(&self.tables, &self.keys);
        assert_eq!(self.run(frame), REDIRECT, "{name}");
    }

    /// A frame goes up, and is counted for neither flow, with the flows that the host finds in it and with
    /// those of the one taken before.
    fn goes_up(&mut self, frame: &[u8], why: &str) {
        let more = keys(&decode(frame), false);
        for (slot, key) in (8..).zip(&more) {
            assert!(self.tables.clear(slot) && self.tables.set_control(slot, FORWARD));
            let _ = self.tables.insert(key, slot);
        }
        let all = |tables: &Tables| [0, 1, 8, 9, 10].map(|slot| counted(tables, slot));
        let before = all(&self.tables);
        assert_eq!(self.run(frame), PASS, "{why}");
        assert_eq!(all(&self.tables), before, "{why}");
        for key in more.iter().filter(|key| !self.keys.contains(key)) {
            self.tables.remove(key);
        }
    }
}

#[test]
fn a_frame_with_a_tunnel_that_is_cut_off_goes_up() {
    if !inside("a_frame_with_a_tunnel_that_is_cut_off_goes_up") {
        return;
    }
    let mut bench = Bench::new();
    for sample in Sample::all() {
        let (frame, name) = (sample.frame(), sample.name());
        bench.take(&frame, &name);
        for length in 14..frame.len() {
            bench.goes_up(&frame[..length], &format!("{length} bytes of {name}"));
        }
    }
}

/// Changes of a frame in place, for all kinds of tunnels.
type Change = (&'static str, fn(&mut Sample));

const INSIDE: [Change; 9] = [
    ("a SYN inside", |s| flags(s, SYN as u8)),
    ("a FIN inside", |s| flags(s, FIN as u8 | 0x10)),
    ("a RST inside", |s| flags(s, RST as u8 | 0x10)),
    ("a fragment inside", |s| s.inner.piece = Some(Piece { offset: 0, more: true })),
    ("another version inside", |s| s.inner.ip.fixed.version = Some(5)),
    ("longer than the tunnel", |s| s.inner.ip.fixed.len = Some(300)),
    ("ICMP inside", |s| s.inner.ip.fixed.proto = Some(if s.inner.ip.src.is_ipv6() { 58 } else { 1 })),
    ("GRE inside", |s| s.inner.ip.fixed.proto = Some(47)),
    ("options or extension headers inside", |s| {
        if s.inner.ip.src.is_ipv6() {
            s.inner.ip.extensions.push((60, vec![0, 1, 4, 0, 0, 0, 0]));
        } else {
            s.inner.ip.options = vec![1, 1, 1, 1];
        }
    }),
];

fn flags(sample: &mut Sample, flags: u8) {
    let [from, to] = ends(sample.inner.ip.src.is_ipv6(), 1);
    sample.inner = bartizan_testkit::packet::tcp(from, to, (7, 8), flags, b"load");
}

#[test]
fn what_is_odd_inside_of_a_tunnel_goes_up() {
    if !inside("what_is_odd_inside_of_a_tunnel_goes_up") {
        return;
    }
    let mut bench = Bench::new();
    for (why, change) in INSIDE {
        for mut sample in Sample::all() {
            bench.take(&sample.frame(), &sample.name());
            change(&mut sample);
            bench.goes_up(&sample.frame(), &format!("{why}: {}", sample.name()));
        }
    }
    for sample in Sample::all() {
        let name = sample.name();
        bench.take(&sample.frame(), &name);
        let mut outer = sample.outer();
        outer.piece = Some(Piece { offset: 0, more: true });
        bench.goes_up(&outer.frame(), &format!("a fragment around: {name}"));
        if let Layer::Tcp(segment) = &sample.inner.layer {
            // Its last bytes would be in the frame, but not in the tunnel.
            let head = if sample.inner.ip.src.is_ipv6() { 20 } else { 40 };
            let mut longer = Sample { inner: sample.inner.clone(), ..sample };
            longer.inner.ip.fixed.len = Some(head + segment.load.len() as u16 + 2);
            let mut outer = longer.outer();
            outer.ip.trailer = 4;
            bench.goes_up(&outer.frame(), &format!("longer than the tunnel, not than the frame: {name}"));
        }
        if !sample.inner.ip.src.is_ipv6() {
            let mut wrong = Sample { inner: sample.inner.clone(), ..sample };
            wrong.inner.ip.fixed.chksum = Some(0x1234);
            bench.goes_up(&wrong.frame(), &format!("a wrong checksum inside: {name}"));
        }
    }
}

#[test]
fn a_checksum_inside_of_a_tunnel_that_was_left_open_is_the_hosts_to_fill_in() {
    if !inside("a_checksum_inside_of_a_tunnel_that_was_left_open_is_the_hosts_to_fill_in") {
        return;
    }
    let mut bench = Bench::new();
    for mut sample in Sample::all() {
        bench.take(&sample.frame(), &sample.name());
        let ip = sample.inner.ip.clone();
        match &mut sample.inner.layer {
            Layer::Tcp(segment) => {
                segment.chksum = Some(ip.pseudo_sum(TCP, 20 + segment.load.len()));
            }
            Layer::Udp(datagram) => datagram.chksum = Some(ip.pseudo_sum(UDP, 8 + datagram.load.len())),
            Layer::Part(_) => panic!(),
        }
        bench.goes_up(&sample.frame(), &sample.name());
    }
}

#[test]
fn a_tunnel_in_a_tunnel_goes_up() {
    if !inside("a_tunnel_in_a_tunnel_goes_up") {
        return;
    }
    let mut bench = Bench::new();
    for sample in Sample::all() {
        for outside in Tunnel::ALL {
            let [from, to] = ends(!sample.v6, 3);
            let outer = outside.around((from, to), sample.v6, &sample.outer().bytes());
            bench.goes_up(&outer.frame(), &format!("{outside:?} around {}", sample.name()));
        }
        // Teredo, which has no port of its own to the program.
        let [from, to] = ends(sample.v6, 2);
        let teredo = udp(from, (to.0, 3544), &udp_in_ipv6().bytes());
        let carried = sample.tunnel.around((from, to), sample.v6, &teredo.bytes());
        bench.goes_up(&carried.frame(), &format!("Teredo in {}", sample.name()));
    }
}

fn udp_in_ipv6() -> Packet {
    let [from, to] = ends(true, 4);
    udp(from, to, b"load")
}

/// Payloads of datagrams to a tunnel's port that are no such tunnel as is read here, though a packet is in
/// them.
fn odd_headers() -> Vec<(&'static str, u16, Vec<u8>)> {
    let [from, to] = ends(false, 1);
    let packet = udp(from, to, b"load").bytes();
    let frame = layers::ethernet(0x0800, &packet);
    let tagged = layers::ethernet(0x8100, &layers::vlan(5, 0x0800, &packet));
    let vxlan = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut load = layers::vxlan(5, &frame);
        change(&mut load);
        load
    };
    let geneve = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut load = layers::geneve(5, 0x0800, &[1, 2, 3, 0], &packet);
        change(&mut load);
        load
    };
    let gtp = |flags: u8, optional: &[u8]| layers::gtp(5, flags, optional, &packet);
    let mut all = vec![
        ("no VNI", 4789, vxlan(&|l| l[0] = 0)),
        ("a reserved flag", 4789, vxlan(&|l| l[0] = 9)),
        ("reserved bytes", 4789, vxlan(&|l| l[2] = 1)),
        ("the reserved byte behind the VNI", 4789, vxlan(&|l| l[7] = 1)),
        ("ARP", 4789, vxlan(&|l| l[20..22].copy_from_slice(&[8, 6]))),
        ("a tag inside", 4789, layers::vxlan(5, &tagged)),
        ("version 1 of GENEVE", 6081, geneve(&|l| l[0] |= 0x40)),
        ("a reserved flag of GENEVE", 6081, geneve(&|l| l[1] = 1)),
        ("the reserved byte of GENEVE", 6081, geneve(&|l| l[7] = 1)),
        ("an option that is longer than all options", 6081, geneve(&|l| l[11] = 1)),
        ("options that are longer than the datagram", 6081, geneve(&|l| l[0] = 0x3f)),
        ("five options", 6081, layers::geneve(5, 0x0800, &[1, 2, 3, 0].repeat(5), &packet)),
        ("a tag inside of GENEVE", 6081, layers::geneve(5, 0x6558, &[], &tagged)),
        ("MPLS in GENEVE", 6081, layers::geneve(5, 0x8847, &[], &packet)),
        ("version 2 of GTP", 2152, gtp(0, &[])),
        ("an echo request of GTP", 2152, gtp(0, &[])),
        ("GTP'", 2152, gtp(0, &[])),
        ("an extension header of no length", 2152, gtp(4, &[0, 1, 0, 0x85, 0, 7, 7, 0])),
        ("three extension headers", 2152, gtp(4, &[0, 1, 0, 5, 1, 7, 7, 5, 1, 7, 7, 5, 1, 7, 7, 0])),
        ("shorter than its datagram", 2152, [gtp(0, &[]), vec![0]].concat()),
        ("no IP packet", 2152, layers::gtp(5, 0, &[], b"\x50 is of no version that is known here")),
    ];
    let at = all.iter().position(|(why, ..)| *why == "version 2 of GTP").unwrap();
    all[at].2[0] = 0x50;
    all[at + 1].2[1] = 1;
    all[at + 2].2[0] = 0x20;
    all
}

#[test]
fn headers_of_tunnels_that_are_not_as_usual_go_up() {
    if !inside("headers_of_tunnels_that_are_not_as_usual_go_up") {
        return;
    }
    let mut bench = Bench::new();
    for v6 in [false, true] {
        let [from, to] = ends(v6, 2);
        for (why, port, load) in odd_headers() {
            // The flow that is inside has an entry.
            let usual = [Tunnel::Vxlan(5), Tunnel::Geneve(5, 0), Tunnel::Gtp(5, false, 0)];
            let usual = usual.into_iter().find(|tunnel| tunnel.port() == Some(port)).unwrap();
            let [inner_from, inner_to] = ends(false, 1);
            let inner = udp(inner_from, inner_to, b"load").bytes();
            bench.take(&usual.around((from, to), false, &inner).frame(), "as usual");
            bench.goes_up(&udp(from, (to.0, port), &load).frame(), why);
        }
        // A datagram that is shorter than its packet, and ports of two kinds of tunnels.
        for tunnel in [Tunnel::Vxlan(5), Tunnel::Geneve(5, 0), Tunnel::Gtp(5, false, 0)] {
            let inner = udp_in_ipv6().bytes();
            let mut outer = tunnel.around((from, to), true, &inner);
            bench.take(&outer.frame(), "as usual");
            let Layer::Udp(datagram) = &outer.layer else { panic!() };
            let short = Datagram { len: Some(8 + datagram.load.len() as u16 - 1), ..datagram.clone() };
            let other = if tunnel.port() == Some(6081) { 2152 } else { 6081 };
            let of_two = Datagram { sport: other, ..datagram.clone() };
            outer.layer = Layer::Udp(short);
            bench.goes_up(&outer.frame(), &format!("a short datagram: {tunnel:?}"));
            outer.layer = Layer::Udp(of_two);
            bench.goes_up(&outer.frame(), &format!("from the port of another kind: {tunnel:?}"));
        }
    }
}

/// Conditions on both entries for a frame to be handled.
#[test]
fn both_flows_have_to_be_forwarded_by_this_generation() {
    if !inside("both_flows_have_to_be_forwarded_by_this_generation") {
        return;
    }
    let mut bench = Bench::new();
    for sample in Sample::all() {
        let (frame, name) = (sample.frame(), sample.name());
        bench.take(&frame, &name);
        for slot in [OUTER, INNER] {
            for action in
                [XdpFlowAction::Drop(Reason::IdsRule), XdpFlowAction::Redirect(1), XdpFlowAction::Redirect(0)]
            {
                // That is done by itself: see the test of what is refused in a tunnel.
                if slot == INNER && matches!(action, XdpFlowAction::Drop(_)) {
                    continue;
                }
                assert!(bench.tables.set_control(slot, FlowSlotControl { action, generation: 0 }));
                bench.goes_up(&frame, &format!("{action:?} of {slot}: {name}"));
            }
            assert!(bench.tables.set_control(slot, FlowSlotControl { generation: 1, ..FORWARD }));
            bench.goes_up(&frame, &format!("another generation of {slot}: {name}"));
            assert!(bench.tables.mark(slot));
            bench.goes_up(&frame, &format!("{slot} is marked: {name}"));
            assert!(bench.tables.set_control(slot, FORWARD));
        }
        assert_eq!(bench.run(&frame), REDIRECT);
    }
}

/// Equal addresses and ports in two tunnels are two flows: an entry of one of them does nothing to the other.
#[test]
fn an_entry_of_one_tunnel_is_not_found_by_another() {
    if !inside("an_entry_of_one_tunnel_is_not_found_by_another") {
        return;
    }
    let mut bench = Bench::new();
    let [from, to] = ends(false, 1);
    let inner = udp(from, to, b"load");
    let outer = |tunnel: Tunnel| tunnel.around(ends(true, 2).into(), false, &inner.bytes()).frame();
    let numbered =
        |number| [Tunnel::Vxlan(number), Tunnel::Geneve(number, 0), Tunnel::GeneveBridge(number), Tunnel::Ip];
    for here in numbered(7) {
        for there in numbered(8) {
            bench.take(&outer(here), "here");
            // The flow around is there as well, where it is another one.
            let around = *key(&decode(&outer(there))[0], SETTING, false, 0).unwrap().words();
            assert!(bench.tables.set_control(20, FORWARD));
            let _ = bench.tables.insert(&around, 20);
            let found = bench.run(&outer(there)) == REDIRECT;
            assert_eq!(found, here == Tunnel::Ip && there == Tunnel::Ip, "{here:?} {there:?}");
            if !bench.keys.contains(&around) {
                bench.tables.remove(&around);
            }
        }
    }
    // Nor by the same packet without a tunnel.
    bench.take(&outer(Tunnel::Vxlan(7)), "in the tunnel");
    assert_eq!(bench.run(&inner.frame()), PASS);
}
