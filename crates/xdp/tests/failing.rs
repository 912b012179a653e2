// SPDX-License-Identifier: Apache-2.0
//! Frames while the workers that would serve them give no sign of life, and the program of a process that
//! is gone.

use crate::common;

use bartizan_base::LinkId;
use bartizan_base::Reason;
use bartizan_base::spread::{Spread, SpreadPorts, VirtualNetwork};
use bartizan_testkit::layers;
use bartizan_testkit::packet::{FIN, Ip, Layer, Packet, Piece, TCP, UDP, tcp, udp};
use bartizan_xdp::{
    Fail, FlowSlotControl, PINS, StalePrograms, Tables, Watch, XdpError, XdpFlowAction, XdpProgram,
    boot_time, monotonic_time, pinned, remove_left,
};
use common::{
    DROP, PASS, REDIRECT, Wire, ends, in_namespace, key, number, plain, ports, program, segment, wires,
    with_bpf_file_system,
};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const FORWARD: FlowSlotControl = FlowSlotControl { action: XdpFlowAction::Forward, generation: 0 };
const REFUSE: FlowSlotControl =
    FlowSlotControl { action: XdpFlowAction::Drop(Reason::IdsRule), generation: 0 };
const STALE: Duration = Duration::from_secs(5);
/// The longest wait for a frame, and the wait for one that must not come, in milliseconds.
const PATIENCE: i32 = 10_000;
const SILENCE: i32 = 200;

fn watch(fail: Fail, workers: u16) -> Watch {
    Watch { fail, stale: STALE, spread: Spread::new([7, 8], workers).of_link(LinkId(5)), first: 0 }
}

/// Attaches a program to both ports of the link, with a watch.
fn attach(program: &mut XdpProgram, watch: Watch) -> Result<bool, XdpError> {
    let mut waits = false;
    for mut port in ports() {
        port.watch = Some(watch);
        waits |= program.attach(&port)?.waits;
    }
    Ok(waits)
}

/// A program on a new link, with a watch.
fn watched(watch: Watch) -> (XdpProgram, Arc<Tables>) {
    wires(1500);
    let mut program = program(16);
    attach(&mut program, watch).unwrap_or_else(|error| panic!("{error}"));
    // Its workers live.
    assert_eq!(program.waits(), watch.fail == Fail::Open);
    program.take_over().unwrap_or_else(|error| panic!("{error}"));
    assert!(!program.waits());
    let tables = program.tables();
    (program, tables)
}

/// Writes a sign of life of a worker so long ago.
fn heard(tables: &Tables, worker: u32, ago: Duration) {
    assert!(tables.beat(worker, monotonic_time() - ago.as_nanos() as u64));
}

fn install(tables: &Tables, slot: u32, v6: bool, protocol: u8, control: FlowSlotControl) {
    let [low, high] = ends(v6);
    assert!(tables.clear(slot) && tables.set_control(slot, control));
    tables.insert(&key(protocol, low, high, [0; 3]), slot).unwrap();
}

fn result(program: &mut XdpProgram, frame: &[u8]) -> u32 {
    program.run_on(frame, number("lan"), 1).unwrap().result
}

/// The pin of an interface of this namespace.
fn pin(interface: &str) -> PathBuf {
    use std::os::unix::fs::MetadataExt as _;
    let namespace = std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
    PathBuf::from(format!("{PINS}/net{namespace}_if{}", number(interface)))
}

#[test]
fn frames_fail_as_the_policy_says_while_nobody_serves_them() {
    with_bpf_file_system(|| {
        for (fail, expected) in [(Fail::Closed, DROP), (Fail::Open, REDIRECT)] {
            let (mut program, tables) = watched(watch(fail, 1));
            let frame = plain(false, UDP).frame();
            // A worker whose port was just attached has its full time.
            assert_eq!(result(&mut program, &frame), PASS);
            heard(&tables, 0, STALE - Duration::from_secs(1));
            assert_eq!(result(&mut program, &frame), PASS);
            heard(&tables, 0, STALE + Duration::from_millis(1));
            assert_eq!(result(&mut program, &frame), expected);
            // Also what no level would handle: frames without IP, SYN, fragments.
            let mut arp = vec![0xff; 60];
            arp[12..14].copy_from_slice(&[8, 6]);
            assert_eq!(result(&mut program, &arp), expected);
            let counters = tables.port_counters(4).unwrap();
            let failed = if fail == Fail::Open { (2, 0) } else { (0, 2) };
            assert_eq!((counters.open, counters.closed), failed);
            assert_eq!((counters.frames, counters.up, counters.forwarded, counters.dropped), (4, 2, 0, 0));
            // The ARP frame is to all stations.
            let left = if fail == Fail::Open { [1, 0, 1] } else { [0; 3] };
            assert_eq!((counters.casts(), tables.port_counters(9).unwrap().out_casts()), ([3, 0, 1], left));
            let both = (frame.len() + arp.len()) as u64;
            let failed = if fail == Fail::Open { (both, 0) } else { (0, both) };
            assert_eq!((counters.open_bytes, counters.closed_bytes), failed);
            assert_eq!(counters.up_bytes, 2 * frame.len() as u64);
            // It works again.
            heard(&tables, 0, Duration::ZERO);
            assert_eq!(result(&mut program, &frame), PASS);
            // The clock of another processor may be behind.
            assert!(tables.beat(0, monotonic_time() + 1_000_000_000));
            assert_eq!(result(&mut program, &frame), PASS);
            // An end that is wanted is no failure.
            heard(&tables, 0, 2 * STALE);
            program.end_watch().unwrap();
            assert_eq!(result(&mut program, &frame), PASS);
            drop(program);
            common::ip("link del dev a");
            common::ip("link del dev b");
        }
    });
}

/// A start takes time: rules, recorders, threads. No packet passes uninspected because of it, and a run
/// that never served leaves no program.
#[test]
fn a_watch_begins_with_the_first_sign_of_life() {
    with_bpf_file_system(|| {
        for fail in [Fail::Open, Fail::Closed] {
            wires(1500);
            let mut program = common::program_for(16, 2);
            let short = Watch { stale: Duration::from_millis(20), ..watch(fail, 2) };
            attach(&mut program, short).unwrap_or_else(|error| panic!("{error}"));
            let tables = program.tables();
            std::thread::sleep(Duration::from_millis(100));
            let frames: Vec<Vec<u8>> =
                (0..32).flat_map(|host| kinds(false, host)).map(|(frame, ..)| frame).collect();
            let passed = |program: &mut XdpProgram| {
                frames.iter().filter(|frame| result(program, frame) == PASS).count()
            };
            assert_eq!(passed(&mut program), frames.len(), "they wait for workers that have not begun");
            assert_eq!((tables.last_beat(0), tables.last_beat(1)), (None, None));
            assert!(!pin("lan").exists(), "nothing outlives a process that has served nobody");
            // Each one's watch begins by itself.
            heard(&tables, 0, Duration::from_secs(1));
            let of_others = passed(&mut program);
            assert!(of_others > 0 && of_others < frames.len(), "{of_others}");
            heard(&tables, 1, Duration::from_secs(1));
            assert_eq!(passed(&mut program), 0);
            // Ports that are attached again, of workers that have begun: these have their time.
            for index in [4, 9] {
                program.detach(index).unwrap();
            }
            heard(&tables, 0, Duration::from_secs(1));
            let long = Watch { stale: STALE, ..short };
            attach(&mut program, long).unwrap_or_else(|error| panic!("{error}"));
            let now = boot_time();
            assert!(tables.last_beat(0).is_some_and(|seen| now - seen < STALE.as_nanos() as u64 / 2));
            drop(program);
            common::ip("link del dev a");
            common::ip("link del dev b");
        }
    });
}

#[test]
fn what_is_decided_stays_decided_while_nobody_serves() {
    with_bpf_file_system(|| {
        for fail in [Fail::Open, Fail::Closed] {
            let (mut program, tables) = watched(watch(fail, 1));
            install(&tables, 0, false, UDP, FORWARD);
            install(&tables, 1, true, UDP, REFUSE);
            install(&tables, 2, false, TCP, REFUSE);
            install(&tables, 3, true, TCP, FORWARD);
            heard(&tables, 0, 2 * STALE);
            assert_eq!(result(&mut program, &plain(false, UDP).frame()), REDIRECT);
            assert_eq!(result(&mut program, &plain(true, UDP).frame()), DROP);
            assert_eq!(result(&mut program, &plain(false, TCP).frame()), DROP);
            assert_eq!(result(&mut program, &plain(true, TCP).frame()), REDIRECT);
            let packets = |slot| tables.counts(slot, boot_time()).unwrap().packets[0];
            assert_eq!([0, 1, 2, 3].map(packets), [1; 4]);
            // A packet of a kind that goes up is of a refused flow all the same.
            let mut fin = plain(false, TCP);
            segment(&mut fin).flags |= FIN;
            assert_eq!(result(&mut program, &fin.frame()), DROP);
            let mut odd = plain(false, TCP);
            segment(&mut odd).raw_options = vec![2, 4, 5, 180];
            assert_eq!(result(&mut program, &odd.frame()), DROP);
            // And so are all of them when the process ended while a generation began.
            tables.enter_generation(1);
            assert_eq!(result(&mut program, &plain(false, TCP).frame()), DROP);
            let others = if fail == Fail::Open { REDIRECT } else { DROP };
            assert_eq!(result(&mut program, &plain(true, TCP).frame()), others);
            let mut fin = plain(true, TCP);
            segment(&mut fin).flags |= FIN;
            assert_eq!(result(&mut program, &fin.frame()), others);
            let counters = tables.port_counters(4).unwrap();
            let failed = if fail == Fail::Open { (2, 3) } else { (0, 5) };
            assert_eq!((counters.open, counters.closed), failed);
            assert_eq!((counters.forwarded, counters.dropped, counters.up), (2, 2, 0));
            drop(program);
            common::ip("link del dev a");
            common::ip("link del dev b");
        }
    });
}

/// Ways to send a datagram or segment that no entry handles: name, frame, whether it passes if its flow is
/// not refused.
fn wrapped(v6: bool, protocol: u8) -> Vec<(&'static str, Vec<u8>, bool)> {
    let plain = plain(v6, protocol);
    let with = |change: &dyn Fn(&mut Packet)| {
        let mut packet = plain.clone();
        change(&mut packet);
        packet.frame()
    };
    let whole = plain.bytes();
    let load = whole[if v6 { 40 } else { 20 }..].to_vec();
    let part = |range: std::ops::Range<usize>, more| Packet {
        ip: plain.ip.clone(),
        layer: Layer::Part(load[range.clone()].to_vec()),
        piece: Some(Piece { offset: range.start, more }),
    };
    let mut all = vec![("a first fragment", part(0..8, true).frame(), true)];
    let mut tunnel = |name, bytes: &[u8], protocol| {
        let ip = Ip::new("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap(), protocol);
        all.push((name, Packet { ip, layer: Layer::Part(bytes.to_vec()), piece: None }.frame(), true));
    };
    tunnel("IP in IP", &whole, if v6 { 41 } else { 4 });
    let mut fragmented = part(0..8, true);
    fragmented.ip.options.extend((!v6).then_some([1; 4]).into_iter().flatten());
    tunnel("a fragment in IP in IP", &fragmented.bytes(), if v6 { 41 } else { 4 });
    let vxlan = layers::vxlan(5, &layers::ethernet_ip(v6, &whole));
    let outer = |last: u8, port: u16| (IpAddr::from([192, 0, 2, last]), port);
    all.push(("VXLAN", udp(outer(1, 4000), outer(2, 4789), &vxlan).frame(), true));
    // Its end reassembles it: what counts is whether the first fragment has the ports inside.
    let first_of = |whole: Packet, length: usize| {
        let load = whole.bytes()[20..].to_vec();
        let piece = Some(Piece { offset: 0, more: true });
        Packet { ip: whole.ip, layer: Layer::Part(load[..length].to_vec()), piece }.frame()
    };
    let ports = [8 + 8 + 14 + if v6 { 40 } else { 20 } + 4usize].map(|end| end.next_multiple_of(8))[0];
    for (name, length, passes) in [
        ("VXLAN's first fragment", ports, true),
        ("too little of VXLAN", ports - 8, false),
        ("nothing of VXLAN", 8, false),
    ] {
        all.push((name, first_of(udp(outer(1, 4000), outer(2, 4789), &vxlan), length), passes));
    }
    for (name, options, passes) in [("GENEVE", 4, true), ("GENEVE with too many options", 5, false)] {
        let option = [1, 2, 3, 0].repeat(options);
        let geneve = layers::geneve(5, if v6 { 0x86dd } else { 0x0800 }, &option, &whole);
        all.push((name, udp(outer(1, 4000), outer(2, 6081), &geneve).frame(), passes));
    }
    for (name, extensions, passes) in [("GTP", 2, true), ("GTP with too many extensions", 3, false)] {
        let optional = [&[0, 7, 0][..], &[0x85, 1, 0, 0].repeat(extensions), &[0]].concat();
        let gtp = layers::gtp(5, 4, &optional, &whole);
        all.push((name, udp(outer(1, 4000), outer(2, 2152), &gtp).frame(), passes));
        let cut = 8 + 8 + optional.len() + if v6 { 44 } else { 24 };
        let first = first_of(udp(outer(1, 4000), outer(2, 2152), &gtp), cut.next_multiple_of(8));
        all.push((
            if passes { "GTP's first fragment" } else { "a first fragment of GTP with too many" },
            first,
            passes,
        ));
    }
    // Receivers take off any number of tags.
    all.push(("four tags", tagged(&plain.frame(), 4), false));
    if v6 {
        let extensions = |kinds: &[u8]| {
            with(&|packet| {
                packet.ip.extensions = kinds.iter().map(|kind| (*kind, vec![0, 1, 4, 0, 0, 0, 0])).collect()
            })
        };
        all.push(("hop-by-hop options", extensions(&[0]), true));
        all.push(("five extension headers", extensions(&[0, 60, 43, 60, 60]), true));
        all.push(("more extension headers than are read", extensions(&[60; 9]), false));
        all.push((
            "options and a fragment",
            {
                let mut first = part(0..8, true);
                first.ip.extensions = vec![(0, vec![0, 1, 4, 0, 0, 0, 0])];
                first.frame()
            },
            true,
        ));
    } else {
        all.push(("options", with(&|packet| packet.ip.options = vec![1; 12]), true));
        let mut broken = plain.frame();
        broken[24] ^= 1;
        all.push(("a wrong checksum", broken, true));
        let mut cut = plain.frame();
        cut[17] = 22;
        cut.truncate(36);
        all.push(("half of its ports", cut, false));
    }
    all
}

/// The tunnel of a packet of [`wrapped`], as in its key: kind and number.
fn tunnel_of(name: &str) -> Option<u64> {
    match name {
        "VXLAN" | "VXLAN's first fragment" => Some(7 << 32 | 5),
        "GENEVE" => Some(8 << 32 | 5),
        "GTP" | "GTP's first fragment" => Some(9 << 32),
        name if name.contains("IP in IP") => Some(1 << 32),
        _ => None,
    }
}

#[test]
fn what_is_refused_stays_refused_however_it_is_wrapped() {
    with_bpf_file_system(|| {
        let (mut program, tables) = watched(watch(Fail::Open, 1));
        heard(&tables, 0, 2 * STALE);
        for (v6, protocol) in common::KINDS {
            for (name, frame, passes) in wrapped(v6, protocol) {
                let expected = if passes { REDIRECT } else { DROP };
                assert_eq!(
                    result(&mut program, &frame),
                    expected,
                    "{name} {v6} {protocol}: nobody refused it"
                );
                let [low, high] = ends(v6);
                let mut key = key(protocol, low, high, [0; 3]);
                if let Some(tunnel) = tunnel_of(name) {
                    key[4] = tunnel;
                    key[6] |= 1 << 8;
                }
                assert!(tables.clear(0) && tables.set_control(0, REFUSE));
                tables.insert(&key, 0).unwrap();
                assert_eq!(result(&mut program, &frame), DROP, "{name} {v6} {protocol}");
                tables.remove(&key);
            }
        }
        // Without the first fragment, which is dropped, it is no datagram.
        let [low, high] = ends(false);
        tables.insert(&key(UDP, low, high, [0; 3]), 0).unwrap();
        let piece = Some(Piece { offset: 8, more: false });
        let ip = Ip::new(low.0, high.0, UDP);
        let later = Packet { ip, layer: Layer::Part(vec![7; 8]), piece }.frame();
        assert_eq!(result(&mut program, &later), REDIRECT);
    });
}

/// A sample goes up for the host to drop it. While no worker serves, it would pass: so none is sampled.
#[test]
fn what_is_refused_in_a_tunnel_is_no_sample_while_nobody_serves() {
    /// VXLAN's number among kinds of tunnels, and a VNI.
    const TUNNEL: u64 = 7 << 32 | 5;
    /// A packet in one tunnel.
    const IN_TUNNEL: u64 = 1 << 8;
    with_bpf_file_system(|| {
        wires(1500);
        let mut program = program(16);
        for mut port in ports() {
            // Each packet is one.
            (port.watch, port.drop_samples) = (Some(watch(Fail::Open, 1)), Some(0));
            program.attach(&port).unwrap_or_else(|error| panic!("{error}"));
        }
        let tables = program.tables();
        for (v6, inside) in [(false, TCP), (true, UDP)] {
            let [low, high] = ends(v6);
            let inner = layers::vxlan(5, &layers::ethernet_ip(v6, &plain(v6, inside).bytes()));
            let frame = udp(low, (high.0, 4789), &inner).frame();
            let around = key(UDP, low, (high.0, 4789), [0; 3]);
            let mut within = key(inside, low, high, [0; 3]);
            within[4] = TUNNEL;
            within[6] |= IN_TUNNEL;
            for (slot, key, control) in [(0, around, FORWARD), (1, within, REFUSE)] {
                assert!(tables.clear(slot) && tables.set_control(slot, control));
                tables.insert(&key, slot).unwrap();
            }
            let packets = || [0, 1].map(|slot| tables.counts(slot, boot_time()).unwrap().packets[0]);
            heard(&tables, 0, Duration::ZERO);
            assert_eq!(result(&mut program, &frame), PASS, "somebody is there");
            assert_eq!(packets(), [0, 0]);
            heard(&tables, 0, 2 * STALE);
            assert_eq!(result(&mut program, &frame), DROP);
            assert_eq!(packets(), [1, 1]);
            tables.remove(&around);
        }
        let counters = tables.port_counters(4).unwrap();
        assert_eq!((counters.up, counters.dropped, counters.open), (2, 2, 0));
    });
}

#[test]
fn what_may_not_leave_goes_up_whoever_serves() {
    with_bpf_file_system(|| {
        let (mut program, tables) = watched(watch(Fail::Open, 1));
        heard(&tables, 0, 2 * STALE);
        let [low, high] = ends(false);
        let long = |bytes: usize| udp(low, high, &vec![1; bytes]).frame();
        assert_eq!(result(&mut program, &long(1472)), REDIRECT);
        assert_eq!(result(&mut program, &long(1477)), PASS);
        let counters = tables.port_counters(4).unwrap();
        assert_eq!((counters.open, counters.up), (1, 1));
    });
}

/// A frame with so many VLAN tags.
fn tagged(frame: &[u8], tags: usize) -> Vec<u8> {
    let mut bytes = frame[..12].to_vec();
    for id in [7, 0x123, 9, 10].into_iter().take(tags) {
        bytes.extend([0x81, 0, 0xa0 | (id >> 8) as u8, id as u8]);
    }
    bytes.extend(&frame[12..]);
    bytes
}

/// Packets of many hosts, of the kinds that the sockets' filter distinguishes, and the parts that decide in
/// addition to the addresses.
fn kinds(v6: bool, host: u8) -> Vec<(Vec<u8>, IpAddr, IpAddr, SpreadPorts)> {
    let address = |last: u8| -> IpAddr {
        if v6 {
            IpAddr::from([0xfd09, 0x0807, 0x0605, 0x0403, 0x1234, 0, 0x0102, 0x0300 | u16::from(last)])
        } else {
            IpAddr::from([10, 1, last ^ 0x5a, last])
        }
    };
    let (source, destination) = (address(host), address(255));
    let (one, other) = ((source, 40_000 + u16::from(host)), (destination, 443));
    let ported = SpreadPorts::Ports(one.1, other.1);
    let mut all = vec![
        (tcp(one, other, (7, 8), 0x10, b"load").frame(), ported),
        (tcp(one, other, (7, 8), 0x02, b"").frame(), ported),
        (udp(one, other, b"load").frame(), ported),
        (udp(one, other, &[]).frame(), ported),
    ];
    let part = |ip: Ip, load: &[u8]| Packet { ip, layer: Layer::Part(load.to_vec()), piece: None }.frame();
    let bytes = [&one.1.to_be_bytes()[..], &other.1.to_be_bytes(), &[9; 12]].concat();
    all.push((part(Ip::new(source, destination, 132), &bytes), ported));
    let echo = if v6 { 58 } else { 1 };
    all.push((part(Ip::new(source, destination, echo), &bytes), SpreadPorts::Nothing));
    if v6 {
        // After an extension header the filter sees no ports.
        let hops = [&[17, 0, 1, 4, 0, 0, 0, 0][..], &bytes].concat();
        all.push((part(Ip::new(source, destination, 0), &hops), SpreadPorts::Nothing));
    } else {
        let options = Ip { options: vec![1; 8], ..Ip::new(source, destination, 17) };
        all.push((part(options, &bytes), ported));
        let mut fragment = part(Ip::new(source, destination, 17), &bytes);
        fragment[20..22].copy_from_slice(&[0x20, 0]);
        all.push((fragment, SpreadPorts::Nothing));
    }
    all.into_iter().map(|(frame, part)| (frame, source, destination, part)).collect()
}

#[test]
fn only_frames_of_the_worker_that_failed_fail() {
    with_bpf_file_system(|| {
        for workers in [2, 3] {
            let failing = Watch { first: 1, ..watch(Fail::Open, workers) };
            wires(1500);
            let mut program = common::program_for(16, 1 + u32::from(workers));
            attach(&mut program, failing).unwrap_or_else(|error| panic!("{error}"));
            let tables = program.tables();
            // Workers of other links do not count.
            heard(&tables, 0, 2 * STALE);
            let mut seen = [0, 0];
            for failed in 0..workers {
                for worker in 0..workers {
                    let ago = if worker == failed { 2 * STALE } else { Duration::ZERO };
                    heard(&tables, 1 + u32::from(worker), ago);
                }
                for (v6, host) in (0..40).flat_map(|host| [(false, host), (true, host)]) {
                    for (frame, source, destination, part) in kinds(v6, host) {
                        for tags in 0..=3 {
                            let vlans = [if tags > 0 { 7 } else { 0 }, if tags > 1 { 0x123 } else { 0 }, 0];
                            let network = VirtualNetwork { vlans, tunnel: 0 };
                            let fails =
                                failing.spread.worker_in(network, source, destination, part) == failed;
                            // After a third tag the filter reads nothing: the first worker gets the frame.
                            let fails = if tags == 3 { failed == 0 } else { fails };
                            let expected = if fails { REDIRECT } else { PASS };
                            let frame = tagged(&frame, tags);
                            assert_eq!(result(&mut program, &frame), expected, "{failed} {tags} {frame:x?}");
                            seen[usize::from(fails)] += 1;
                        }
                    }
                }
                let mut other = vec![0xff; 60];
                other[12..14].copy_from_slice(&[0x88, 0xcc]);
                assert_eq!(result(&mut program, &other), if failed == 0 { REDIRECT } else { PASS });
            }
            assert!(seen.iter().all(|count| *count > 500), "{seen:?}");
            drop(program);
            common::ip("link del dev a");
            common::ip("link del dev b");
        }
    });
}

/// So many datagrams of a flow between both ends.
fn frames(v6: bool, count: u16) -> Vec<Vec<u8>> {
    let [low, high] = ends(v6);
    (0..count).map(|number| udp(low, high, &number.to_be_bytes()).frame()).collect()
}

/// Checks that so many datagrams arrive.
fn arrive(a: &Wire, b: &Wire, v6: bool, count: u16) {
    for frame in frames(v6, count) {
        a.send(&frame);
        assert_eq!(b.next(PATIENCE), Some(frame));
    }
}

/// Checks that so many datagrams do not arrive.
fn vanish(a: &Wire, b: &Wire, v6: bool, count: u16) {
    frames(v6, count).iter().for_each(|frame| a.send(frame));
    quiet(b);
}

fn quiet(wire: &Wire) {
    assert!(wire.next(SILENCE).is_none());
}

#[test]
fn what_is_to_fail_open_outlives_its_process_until_the_next_one_takes_over() {
    with_bpf_file_system(|| {
        let (program, tables) = watched(watch(Fail::Open, 1));
        let (a, b) = (Wire::open("a"), Wire::open("b"));
        for interface in ["lan", "wan"] {
            assert!(pin(interface).exists() && is_promiscuous(interface));
        }
        install(&tables, 0, false, UDP, REFUSE);
        heard(&tables, 0, 2 * STALE);
        // As if it were killed.
        program.leave();
        drop(tables);
        // Undecided packets pass; refused ones do not.
        arrive(&a, &b, true, 20);
        vanish(&a, &b, false, 3);
        // The next one.
        let mut next = program_of_next();
        assert!(attach(&mut next, watch(Fail::Open, 1)).unwrap_or_else(|error| panic!("{error}")));
        assert!(next.waits());
        // The old one goes on until the next one works.
        arrive(&a, &b, true, 20);
        vanish(&a, &b, false, 3);
        let host = Wire::open("lan");
        let left = next.take_over().unwrap();
        let length = udp(ends(false)[0], ends(false)[1], &[0; 2]).frame().len() as u64;
        let mut expected =
            StalePrograms { programs: 1, entries: 1, open: left.open, ..StalePrograms::default() };
        (expected.dropped.frames, expected.dropped.bytes) = (6, 6 * length);
        assert_eq!(left, expected);
        assert_eq!(left.open.frames, 40);
        assert!(left.open.bytes >= 40 * 60, "{left:?}");
        assert!(!next.waits());
        // Now all go up: the left entries do not act.
        heard(&next.tables(), 0, Duration::ZERO);
        for v6 in [false, true] {
            arrive(&a, &host, v6, 10);
        }
        quiet(&b);
        assert_eq!(next.tables().port_counters(4).unwrap().up, 20);
        // An end that was wanted takes all away.
        drop(next);
        for interface in ["lan", "wan"] {
            assert!(!pin(interface).exists() && !is_promiscuous(interface));
        }
        arrive(&a, &host, true, 1);
        quiet(&b);
    });
}

fn program_of_next() -> XdpProgram {
    common::program_for(64, 1)
}

fn is_promiscuous(interface: &str) -> bool {
    let output = std::process::Command::new("ip").args(["-o", "link", "show", interface]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).contains("PROMISC")
}

#[test]
fn one_that_does_not_begin_leaves_what_it_found() {
    with_bpf_file_system(|| {
        let (program, tables) = watched(watch(Fail::Open, 1));
        let (a, b) = (Wire::open("a"), Wire::open("b"));
        heard(&tables, 0, 2 * STALE);
        program.leave();
        common::ethtool("-K wan tx on");
        let mut next = program_of_next();
        let error = attach(&mut next, watch(Fail::Open, 1)).unwrap_err();
        assert!(matches!(error, XdpError::Offloads { .. }), "{error}");
        drop(next);
        arrive(&a, &b, true, 5);
        assert!(pin("lan").exists() && is_promiscuous("lan"));
    });
}

#[test]
fn what_was_left_goes_with_a_run_that_ends_before_it_has_taken_over() {
    with_bpf_file_system(|| {
        let (program, tables) = watched(watch(Fail::Open, 1));
        let (a, b, host) = (Wire::open("a"), Wire::open("b"), Wire::open("lan"));
        heard(&tables, 0, 2 * STALE);
        program.leave();
        let mut next = program_of_next();
        assert!(attach(&mut next, watch(Fail::Open, 1)).unwrap());
        arrive(&a, &b, true, 3);
        next.end();
        assert!(!pin("lan").exists() && !is_promiscuous("lan"));
        arrive(&a, &host, true, 3);
        quiet(&b);
    });
}

#[test]
fn what_was_left_goes_where_the_link_is_not_to_fail_open_now() {
    with_bpf_file_system(|| {
        for level in [true, false] {
            let (program, tables) = watched(watch(Fail::Open, 1));
            let (a, b, host) = (Wire::open("a"), Wire::open("b"), Wire::open("lan"));
            heard(&tables, 0, 2 * STALE);
            program.leave();
            arrive(&a, &b, true, 3);
            let next = level.then(|| {
                let mut next = program_of_next();
                assert!(!attach(&mut next, watch(Fail::Closed, 1)).unwrap());
                assert!(next.waits(), "what it had handled is to be told");
                assert_eq!((next.take_over().unwrap().open.frames, next.waits()), (3, false));
                next
            });
            if !level {
                for interface in ["lan", "wan"] {
                    assert!(remove_left(number(interface)).unwrap());
                    assert!(!remove_left(number(interface)).unwrap(), "there is none any more");
                }
            }
            assert!(!pin("lan").exists() && !is_promiscuous("lan"));
            arrive(&a, &host, true, 3);
            quiet(&b);
            drop(next);
            common::ip("link del dev a");
            common::ip("link del dev b");
        }
    });
}

#[test]
fn a_pin_of_an_interface_that_is_gone_is_no_harm() {
    with_bpf_file_system(|| {
        let (program, _) = watched(watch(Fail::Open, 1));
        program.leave();
        let old = pin("lan");
        common::ip("link del dev a");
        common::ip("link del dev b");
        wires(1500);
        // As if the new interface had got the old one's number.
        std::fs::rename(&old, pin("lan")).unwrap();
        let mut next = program_of_next();
        assert!(!attach(&mut next, watch(Fail::Open, 1)).unwrap_or_else(|error| panic!("{error}")));
        assert_eq!(next.take_over().unwrap(), StalePrograms::default());
    });
}

/// A program on an interface that is no port of the next run is found by its pin.
#[test]
fn what_was_left_is_found_wherever_it_is() {
    with_bpf_file_system(|| {
        assert!(pinned().unwrap().is_empty());
        let (program, tables) = watched(watch(Fail::Open, 1));
        heard(&tables, 0, 2 * STALE);
        let names = || pinned().unwrap().into_iter().map(|pinned| pinned.name).collect::<Vec<_>>();
        let mut expected = vec!["lan", "wan"];
        expected.sort_by_key(|name| number(name));
        assert_eq!(names(), expected, "also of one that lives");
        program.leave();
        let (a, b, host) = (Wire::open("a"), Wire::open("b"), Wire::open("lan"));
        arrive(&a, &b, true, 3);
        let mut next = program_of_next();
        assert!(next.remove_left(number("lan")).unwrap() && !next.remove_left(number("lan")).unwrap());
        assert_eq!(names(), ["wan"]);
        arrive(&a, &host, true, 3);
        quiet(&b);
        assert_eq!((next.waits(), next.take_over().unwrap().open.frames), (true, 3));
        // One whose interface is gone is no more.
        let gone = pin("wan");
        common::ip("link del dev b");
        assert!(gone.exists() && pinned().unwrap().is_empty() && !gone.exists());
    });
}

#[test]
fn what_others_may_have_pinned_is_not_taken_for_ours() {
    with_bpf_file_system(|| {
        use std::os::unix::fs::PermissionsExt as _;
        let (program, _) = watched(watch(Fail::Open, 1));
        program.leave();
        std::fs::set_permissions(PINS, std::fs::Permissions::from_mode(0o775)).unwrap();
        for fail in [Fail::Open, Fail::Closed] {
            let error = attach(&mut program_of_next(), watch(fail, 1)).unwrap_err();
            assert!(matches!(error, XdpError::OpenFolder), "{error}");
        }
        assert!(matches!(remove_left(number("lan")), Err(XdpError::OpenFolder)));
        assert!(matches!(pinned(), Err(XdpError::OpenFolder)));
        assert!(pin("lan").exists() && pin("wan").exists());
        // A program of somebody else, in a folder that is ours again.
        std::fs::set_permissions(PINS, std::fs::Permissions::from_mode(0o700)).unwrap();
        assert!(remove_left(number("lan")).unwrap());
        let other = common::attach_other(number("lan"));
        common::pin(&other, &pin("lan"));
        for fail in [Fail::Open, Fail::Closed] {
            let error = attach(&mut program_of_next(), watch(fail, 1)).unwrap_err();
            assert!(matches!(error, XdpError::ForeignPin { .. }), "{error}");
            assert!(error.to_string().contains("`somebody`"), "{error}");
        }
        assert!(matches!(remove_left(number("lan")), Err(XdpError::ForeignPin { .. })));
        assert!(matches!(pinned(), Err(XdpError::ForeignPin { .. })));
    });
}

#[test]
fn a_program_that_was_taken_away_is_noticed() {
    with_bpf_file_system(|| {
        let (mut program, _) = watched(watch(Fail::Open, 1));
        assert!(program.is_attached(4) && program.is_attached(9) && !program.is_attached(5));
        common::detach_pinned(&pin("lan"));
        assert!(!program.is_attached(4) && program.is_attached(9));
        // It can be attached again.
        program.detach(4).unwrap();
        let mut port = ports()[0];
        port.watch = Some(watch(Fail::Open, 1));
        assert!(program.attach(&port).unwrap().enabled && program.waits());
        program.take_over().unwrap();
        assert!(program.is_attached(4) && pin("lan").exists());
    });
}

#[test]
fn somebody_elses_program_is_not_taken_for_one_that_was_left() {
    with_bpf_file_system(|| {
        wires(1500);
        let mut other = program(16);
        for port in ports() {
            other.attach(&port).unwrap();
        }
        let mut next = program_of_next();
        let error = attach(&mut next, watch(Fail::Open, 1)).unwrap_err();
        assert!(matches!(error, XdpError::HookTaken { .. }), "{error}");
        assert!(!remove_left(number("lan")).unwrap());
    });
}

#[test]
fn without_a_bpf_file_system_only_what_fails_closed_runs() {
    in_namespace(|| {
        common::without_bpf_file_system();
        wires(1500);
        let mut program = program(16);
        let error = attach(&mut program, watch(Fail::Open, 1)).unwrap_err();
        assert!(matches!(error, XdpError::NoFileSystem), "{error}");
        assert!(error.to_string().contains("`mount -t bpf bpf /sys/fs/bpf`"), "{error}");
        assert!(!is_promiscuous("lan"));
        attach(&mut program, watch(Fail::Closed, 1)).unwrap_or_else(|error| panic!("{error}"));
    });
}

#[test]
fn a_folder_of_others_is_not_used() {
    with_bpf_file_system(|| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::create_dir(PINS).unwrap();
        std::fs::set_permissions(PINS, std::fs::Permissions::from_mode(0o755)).unwrap();
        wires(1500);
        let error = attach(&mut program(16), watch(Fail::Open, 1)).unwrap_err();
        assert!(matches!(error, XdpError::OpenFolder), "{error}");
    });
}

#[test]
fn links_without_a_watch_pass_up_whatever_happens() {
    in_namespace(|| {
        let (mut program, tables) = common::level(16, 1500);
        heard(&tables, 0, 100 * STALE);
        assert_eq!(result(&mut program, &plain(false, UDP).frame()), PASS);
    });
}
