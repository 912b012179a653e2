// SPDX-License-Identifier: Apache-2.0
//! The program's handling of single frames: each reason to go up, each action, each counter. The kernel
//! runs the very program on frames of the testkit (BPF_PROG_TEST_RUN).

use crate::common;

use bartizan_base::Reason;
use bartizan_packet::DecoderConfig;
use bartizan_packet::sizes::SIZE_BOUNDS;
use bartizan_packet::windows::DataEnd;
use bartizan_testkit::layers;
use bartizan_testkit::packet::{
    ACK, FIN, Ip, Layer, Packet, Piece, RST, SYN, TCP, UDP, sum_ipv4_header, udp,
};
use bartizan_xdp::{
    FlowInsertError, FlowSlotControl, Key, Mode, ModeChoice, PortSetup, Tables, XdpError, XdpFlowAction,
    XdpOptions, XdpProgram,
};
use common::{
    DROP, KINDS, PASS, REDIRECT, datagram, ends, header, in_namespace, key, level, number, plain, ports,
    program, segment, stay_on, wires,
};

const FORWARD: FlowSlotControl = FlowSlotControl { action: XdpFlowAction::Forward, generation: 0 };

/// Installs a flow.
fn install(tables: &Tables, slot: u32, key: &Key, control: FlowSlotControl) {
    assert!(tables.clear(slot) && tables.set_control(slot, control));
    tables.insert(key, slot).unwrap();
}

/// Installs the flows of all plain packets, in slots 0 to 3.
fn install_all(tables: &Tables, control: FlowSlotControl) {
    for (slot, (v6, protocol)) in KINDS.into_iter().enumerate() {
        let [low, high] = ends(v6);
        install(tables, slot as u32, &key(protocol, low, high, [0; 3]), control);
    }
}

fn result(program: &mut XdpProgram, frame: &[u8]) -> u32 {
    program.run_on(frame, number("lan"), 1).unwrap().result
}

/// Checks that the frame goes up, and that no flow's counters change.
fn goes_up(program: &mut XdpProgram, tables: &Tables, frame: &[u8], why: &str) {
    let before: Vec<_> = (0..4).map(|slot| tables.counts(slot, bartizan_xdp::boot_time())).collect();
    let (seen, up) = (tables.port_counters(4).unwrap().frames, tables.port_counters(4).unwrap().up);
    assert_eq!(result(program, frame), PASS, "{why}");
    let after: Vec<_> = (0..4).map(|slot| tables.counts(slot, bartizan_xdp::boot_time())).collect();
    assert_eq!(before, after, "{why}");
    let counters = tables.port_counters(4).unwrap();
    assert_eq!((counters.frames, counters.up), (seen + 1, up + 1), "{why}");
}

#[test]
fn plain_packets_are_forwarded_and_counted_by_direction() {
    in_namespace(|| {
        let (mut program, tables) = level(16, 1500);
        install_all(&tables, FORWARD);
        for (slot, (v6, protocol)) in KINDS.into_iter().enumerate() {
            let frame = plain(v6, protocol).frame();
            for _ in 0..3 {
                assert_eq!(result(&mut program, &frame), REDIRECT);
            }
            let mut answer = plain(v6, protocol);
            std::mem::swap(&mut answer.ip.src, &mut answer.ip.dst);
            if protocol == TCP {
                let segment = segment(&mut answer);
                (segment.sport, segment.dport) = (segment.dport, segment.sport);
            } else {
                let datagram = datagram(&mut answer);
                (datagram.sport, datagram.dport) = (datagram.dport, datagram.sport);
            }
            answer.ip.trailer = 30;
            let back = answer.frame();
            // The answer comes by the other side: by this one it would be somebody else's, in its name.
            assert_eq!(result(&mut program, &back), PASS);
            assert_eq!(program.run_on(&back, number("wan"), 2).unwrap().result, REDIRECT);
            let counts = tables.counts(slot as u32, bartizan_xdp::boot_time()).unwrap();
            assert_eq!(counts.packets, [3, 2], "{v6} {protocol}");
            assert_eq!(counts.bytes, [3 * frame.len() as u64, 2 * back.len() as u64]);
            assert!(counts.last_seen[0] > 0 && counts.last_seen[1] >= counts.last_seen[0]);
        }
    });
}

#[test]
fn times_become_those_of_packets() {
    in_namespace(|| {
        let (mut program, tables) = level(16, 1500);
        install_all(&tables, FORWARD);
        let now =
            || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i64;
        let before = now();
        assert_eq!(result(&mut program, &plain(false, UDP).frame()), REDIRECT);
        let after = now();
        let seen = tables.counts(1, bartizan_xdp::boot_time()).unwrap().last_seen[0] as i64
            + bartizan_xdp::boot_to_real();
        // They are counted in units of a millisecond.
        assert!((before - 2_100_000..=after + 1_000_000).contains(&seen), "{before} {seen} {after}");
    });
}

#[test]
fn how_far_a_connection_has_come_is_known() {
    in_namespace(|| {
        let (mut program, tables) = level(16, 1500);
        install_all(&tables, FORWARD);
        for (slot, (v6, _)) in (0..).zip(KINDS).filter(|(_, (_, protocol))| *protocol == TCP) {
            let mut send = |seq: u32, ack: u32, length: usize| {
                let mut packet = plain(v6, TCP);
                let tcp = segment(&mut packet);
                (tcp.seq, tcp.ack, tcp.load) = (seq, ack, vec![7; length]);
                assert_eq!(result(&mut program, &packet.frame()), REDIRECT);
                let counts = tables.counts(slot, bartizan_xdp::boot_time()).unwrap();
                assert_eq!(counts.progress[1], None);
                counts.progress[0].map(|progress| (progress.sent, progress.acknowledged)).unwrap()
            };
            assert_eq!(send(4_000_000_000, 70, 100), (4_000_000_100, 70));
            assert_eq!(send(4_000_000_100, 75, 1_000), (4_000_001_100, 75));
            // Sent again, or overtaken.
            assert_eq!(send(4_000_000_000, 70, 100), (4_000_001_100, 75));
            assert_eq!(send(4_000_001_100, 60, 0), (4_000_001_100, 75));
            // Round.
            assert_eq!(send(300_000_000, 400_000_000, 10), (300_000_010, 400_000_000));
            // A number further back than any retransmission has wrapped around.
            assert_eq!(send(200_000_000, 400_000_001, 10), (200_000_010, 400_000_001));
        }
    });
}

#[test]
fn a_fin_that_plainly_ends_what_came_is_forwarded_and_noted() {
    in_namespace(|| {
        // Where a side's segments have ended is known to the processor that had them.
        stay_on(0);
        let (mut program, tables) = level(16, 1500);
        for (slot, (v6, _)) in (0..).zip(KINDS).filter(|(_, (_, protocol))| *protocol == TCP) {
            install_all(&tables, FORWARD);
            let now = bartizan_xdp::boot_time;
            let mut send = |flags, seq: u32, length: usize| {
                let mut packet = plain(v6, TCP);
                let tcp = segment(&mut packet);
                (tcp.seq, tcp.flags, tcp.load) = (seq, flags, vec![7; length]);
                let result = result(&mut program, &packet.frame());
                (result, tables.counts(slot, now()).unwrap().ends[0])
            };
            let end = |number| Some(DataEnd { number, second: false });
            assert_eq!(send(FIN | ACK, 100, 0), (PASS, None), "nothing of it came");
            assert_eq!(send(ACK, 100, 50), (REDIRECT, None));
            assert_eq!(send(FIN | ACK, 149, 0), (PASS, None), "before");
            assert_eq!(send(FIN | ACK, 151, 0), (PASS, None), "behind a hole");
            assert_eq!(send(FIN, 150, 0), (PASS, None));
            assert_eq!(send(FIN | RST | ACK, 150, 0), (PASS, None));
            assert_eq!(send(FIN | SYN | ACK, 150, 0), (PASS, None));
            assert_eq!(send(FIN | ACK, 150, 20), (REDIRECT, end(171)));
            let counts = tables.counts(slot, now()).unwrap();
            assert_eq!((counts.packets, counts.progress[0].unwrap().sent), ([2, 0], 171));
            assert_eq!(send(FIN | ACK, 150, 20), (REDIRECT, end(171)), "again");
            assert_eq!(send(FIN | ACK, 170, 0), (REDIRECT, end(171)), "without its data");
            assert_eq!(send(FIN | ACK, 171, 0), (PASS, end(171)), "another one");
            assert_eq!(send(ACK, 171, 0), (REDIRECT, end(171)), "what follows goes on");
            assert_eq!(send(SYN, 9_000, 0), (PASS, end(171)), "another connection");
            let [low, high] = ends(v6);
            tables.remove(&key(TCP, low, high, [0; 3]));
            assert!(tables.clear(slot));
            assert_eq!(tables.counts(slot, now()).unwrap().ends, [None, None]);
            for slot in 0..4 {
                let (v6, protocol) = KINDS[slot as usize];
                let [low, high] = ends(v6);
                tables.remove(&key(protocol, low, high, [0; 3]));
            }
        }
        // Who refuses a connection, or follows it, is to see its end.
        for action in
            [XdpFlowAction::Drop(Reason::IdsRule), XdpFlowAction::Compare, XdpFlowAction::Redirect(5)]
        {
            install_all(&tables, FlowSlotControl { action, generation: 0 });
            for (v6, _) in KINDS.into_iter().filter(|(_, protocol)| *protocol == TCP) {
                let mut packet = plain(v6, TCP);
                result(&mut program, &packet.frame());
                let tcp = segment(&mut packet);
                (tcp.seq, tcp.flags) = (tcp.seq.wrapping_add(tcp.load.len() as u32), FIN | ACK);
                tcp.load.clear();
                assert_eq!(result(&mut program, &packet.frame()), PASS, "{action:?}");
            }
            for (v6, protocol) in KINDS {
                let [low, high] = ends(v6);
                tables.remove(&key(protocol, low, high, [0; 3]));
            }
        }
    });
}

/// The receiver has not seen a dropped segment: a session that advanced by it would regard the next segment
/// at the true place as a retransmission.
#[test]
fn what_is_dropped_moves_no_connection_on() {
    in_namespace(|| {
        // Each processor has numbers of its own.
        stay_on(0);
        let (mut program, tables) = level(16, 1500);
        install_all(&tables, FORWARD);
        for (slot, (v6, _)) in (0..).zip(KINDS).filter(|(_, (_, protocol))| *protocol == TCP) {
            let mut send = |(seq, ack): (u32, u32), expected: u32| {
                let mut packet = plain(v6, TCP);
                let tcp = segment(&mut packet);
                (tcp.seq, tcp.ack, tcp.load) = (seq, ack, vec![7; 50]);
                assert_eq!(result(&mut program, &packet.frame()), expected, "{seq}");
                let counts = tables.counts(slot, bartizan_xdp::boot_time()).unwrap();
                let of = |progress: bartizan_xdp::XdpProgress| (progress.sent, progress.acknowledged);
                (counts.packets[0], counts.progress[0].map(of).unwrap())
            };
            assert_eq!(send((100, 70), REDIRECT), (1, (150, 70)));
            let refuse = FlowSlotControl { action: XdpFlowAction::Drop(Reason::PfwRule), generation: 0 };
            assert!(tables.set_control(slot, refuse));
            let far = [(150, 75), (5_000, 70), (150 + (1 << 30), 70 + (1 << 30)), (0x9000_0000, 0x9000_0000)];
            for (packets, numbers) in (2..).zip(far) {
                assert_eq!(send(numbers, DROP), (packets, (150, 70)), "{numbers:?}");
            }
            assert!(tables.set_control(slot, FORWARD));
            assert_eq!(send((150, 75), REDIRECT), (6, (200, 75)));
        }
    });
}

/// Packets of one endpoint are dropped; those of the other go up, since they may open the flow.
#[test]
fn one_endpoint_can_be_refused_alone() {
    in_namespace(|| {
        stay_on(0);
        let (mut program, tables) = level(16, 1500);
        install_all(&tables, FORWARD);
        for (slot, (v6, protocol)) in (0..).zip(KINDS) {
            // These come from the lower endpoint.
            for (from_high, expected) in [(true, PASS), (false, DROP)] {
                let action = XdpFlowAction::DropFrom(Reason::PfwRule, from_high);
                assert!(tables.set_control(slot, FlowSlotControl { action, generation: 0 }));
                assert_eq!(result(&mut program, &plain(v6, protocol).frame()), expected, "{v6} {protocol}");
            }
            assert_eq!(tables.counts(slot, bartizan_xdp::boot_time()).unwrap().packets, [1, 0]);
        }
    });
}

/// A FIN that goes up is the host's: if it were noted as well, it would end a connection whose end has not
/// left.
#[test]
fn a_fin_that_does_not_leave_is_not_noted() {
    in_namespace(|| {
        stay_on(0);
        let (mut program, tables) = level(16, 1500);
        install_all(&tables, FORWARD);
        for (slot, (v6, _)) in (0..).zip(KINDS).filter(|(_, (_, protocol))| *protocol == TCP) {
            let send = |program: &mut XdpProgram, flags, seq: u32, length: usize| {
                let mut packet = plain(v6, TCP);
                let tcp = segment(&mut packet);
                (tcp.seq, tcp.flags, tcp.load) = (seq, flags, vec![7; length]);
                let result = result(program, &packet.frame());
                (result, tables.counts(slot, bartizan_xdp::boot_time()).unwrap().ends[0])
            };
            assert_eq!(send(&mut program, ACK, 100, 50), (REDIRECT, None));
            // Longer than what may leave by the other port; then there is no other port.
            assert_eq!(send(&mut program, FIN | ACK, 150, 1_480), (PASS, None));
            program.detach(9).unwrap();
            assert_eq!(send(&mut program, FIN | ACK, 150, 20), (PASS, None));
            assert!(program.attach(&ports()[1]).unwrap().enabled);
            let end = Some(DataEnd { number: 171, second: false });
            assert_eq!(send(&mut program, FIN | ACK, 150, 20), (REDIRECT, end));
        }
    });
}

/// Two workers enter generations one after the other, and one may be late: decisions of the generation that
/// it enters must not act again on frames of workers that are further.
#[test]
fn the_level_never_goes_back_to_a_generation() {
    in_namespace(|| {
        let (mut program, tables) = level(16, 1500);
        let frame = plain(false, TCP).frame();
        install_all(&tables, FlowSlotControl { action: XdpFlowAction::Forward, generation: 255 });
        tables.enter_generation(255);
        assert_eq!(result(&mut program, &frame), REDIRECT);
        // The low bits go round.
        for generation in [256, 255, 0, 254] {
            tables.enter_generation(generation);
            goes_up(&mut program, &tables, &frame, "it was decided before");
        }
        assert!(tables.set_control(0, FlowSlotControl { action: XdpFlowAction::Forward, generation: 256 }));
        assert_eq!(result(&mut program, &frame), REDIRECT);
        // An entry that was not removed since acts in no later generation.
        for generation in [257, 511, 512, 513, 256 + (1 << 16), 256 + (1 << 31)] {
            tables.enter_generation(generation);
            goes_up(&mut program, &tables, &frame, "it was decided before");
        }
    });
}

/// Options of TCP that are broken, or rare at the opening of connections.
const ODD_OPTIONS: [&[u8]; 12] = [
    &[1, 1, 1, 1],
    &[1, 1, 8, 10],
    &[1, 1, 8, 10, 0, 0, 0, 1],
    &[1, 1, 8, 11, 0, 0, 0, 1, 0, 0, 0, 2],
    &[8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1],
    &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1, 1, 1],
    &[1, 1, 5, 2],
    &[1, 1, 5, 10, 0, 0, 0, 1],
    &[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0],
    &[1, 1, 5, 14, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0],
    &[1, 1, 19, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    &[2, 4, 5, 180],
];

#[test]
fn options_that_open_connections_have_are_no_matter() {
    in_namespace(|| {
        let (mut program, tables) = level(16, 1500);
        install_all(&tables, FORWARD);
        for v6 in [false, true] {
            for timestamps in [false, true] {
                for blocks in 0..=if timestamps { 3 } else { 4 } {
                    let mut packet = plain(v6, TCP);
                    let options = &mut segment(&mut packet).raw_options;
                    if timestamps {
                        options.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
                    }
                    if blocks > 0 {
                        options.extend([1, 1, 5, 2 + 8 * blocks]);
                        options.extend(vec![3; 8 * usize::from(blocks)]);
                    }
                    let frame = packet.frame();
                    assert_eq!(result(&mut program, &frame), REDIRECT, "{timestamps} {blocks}");
                }
            }
        }
    });
}

fn odd_segments() -> Vec<(String, Packet)> {
    let mut all = Vec::new();
    for v6 in [false, true] {
        let mut add = |what: &str, change: &dyn Fn(&mut Packet)| {
            let mut packet = plain(v6, TCP);
            change(&mut packet);
            all.push((format!("{what}, IPv6 {v6}"), packet));
        };
        add("SYN", &|p| segment(p).flags = SYN);
        add("SYN and ACK", &|p| segment(p).flags = SYN | ACK);
        add("FIN", &|p| segment(p).flags = FIN | ACK);
        add("RST", &|p| segment(p).flags = RST | ACK);
        add("no flags", &|p| segment(p).flags = 0);
        add("a header of 16 bytes", &|p| segment(p).dataofs = Some(4));
        add("a header longer than the packet", &|p| segment(p).dataofs = Some(15));
        add("a header that ends behind the packet, in the frame's trailer", &|p| {
            let head = if p.ip.src.is_ipv4() { 40 } else { 20 };
            p.ip.fixed.len = Some(head);
            segment(p).load.clear();
            segment(p).raw_options = vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        });
        for options in ODD_OPTIONS {
            add(&format!("options {options:?}"), &|p| segment(p).raw_options = options.to_vec());
        }
        add("another flow's port", &|p| segment(p).sport = 4001);
    }
    all
}

fn odd_datagrams() -> Vec<(String, Packet)> {
    let mut all = Vec::new();
    for v6 in [false, true] {
        let mut add = |what: &str, change: &dyn Fn(&mut Packet)| {
            let mut packet = plain(v6, UDP);
            change(&mut packet);
            all.push((format!("{what}, IPv6 {v6}"), packet));
        };
        add("shorter than the packet", &|p| datagram(p).len = Some(17));
        add("longer than the packet", &|p| datagram(p).len = Some(19));
        add("shorter than its header", &|p| datagram(p).len = Some(7));
    }
    all
}

fn odd_headers() -> Vec<(String, Packet)> {
    let mut all = Vec::new();
    for (v6, protocol) in KINDS {
        let mut add = |what: &str, change: &dyn Fn(&mut Packet)| {
            let mut packet = plain(v6, protocol);
            change(&mut packet);
            all.push((format!("{what}, IPv6 {v6}, protocol {protocol}"), packet));
        };
        add("another version", &|p| p.ip.fixed.version = Some(5));
        add("longer than the frame", &|p| p.ip.fixed.len = Some(200));
        add("an unknown protocol", &|p| p.ip.fixed.proto = Some(132));
        add("ICMP", &|p| p.ip.fixed.proto = Some(if p.ip.src.is_ipv6() { 58 } else { 1 }));
        add("IP in IP", &|p| p.ip.fixed.proto = Some(4));
        add("GRE", &|p| p.ip.fixed.proto = Some(47));
        add("a first fragment", &|p| p.piece = Some(Piece { offset: 0, more: true }));
        add("a last fragment", &|p| p.piece = Some(Piece { offset: 8, more: false }));
        add("four tags", &|p| p.ip.tags = vec![1, 2, 3, 4]);
        add("a tag, where the flow has none", &|p| p.ip.tags = vec![7]);
        if v6 {
            add("an extension header", &|p| p.ip.extensions.push((60, vec![0, 1, 4, 0, 0, 0, 0])));
        } else {
            add("options", &|p| p.ip.options = vec![1, 1, 1, 1]);
            add("a wrong checksum", &|p| p.ip.fixed.chksum = Some(0x1234));
            add("the reserved flag", &|p| p.ip.fixed.flags = Some(4));
            add("shorter than its header", &|p| p.ip.fixed.len = Some(19));
            add("a header of 16 bytes", &|p| p.ip.fixed.ihl = Some(4));
        }
    }
    all
}

#[test]
fn what_is_odd_goes_up() {
    in_namespace(|| {
        let (mut program, tables) = level(16, 1500);
        install_all(&tables, FORWARD);
        let odd = [odd_segments(), odd_datagrams(), odd_headers()].concat();
        assert!(odd.len() > 60);
        for (why, packet) in odd {
            goes_up(&mut program, &tables, &packet.frame(), &why);
        }
        for kind in [0x0806, 0x8847, 0x8864, 0x9100, 0x88b5] {
            let mut frame = plain(false, TCP).frame();
            frame[12..14].copy_from_slice(&u16::to_be_bytes(kind));
            goes_up(&mut program, &tables, &frame, "an EtherType that is not looked into");
        }
        // The tests above fail for their own reasons only: the same frames unchanged are forwarded.
        for (v6, protocol) in KINDS {
            assert_eq!(result(&mut program, &plain(v6, protocol).frame()), REDIRECT);
        }
    });
}

#[test]
fn a_checksum_that_was_left_open_is_the_hosts_to_fill_in() {
    in_namespace(|| {
        let (mut program, tables) = level(16, 1500);
        install_all(&tables, FORWARD);
        for (v6, protocol) in KINDS {
            for length in [0, 1, 9, 700] {
                let mut packet = plain(v6, protocol);
                if protocol == TCP {
                    segment(&mut packet).load = vec![7; length];
                    let open = packet.ip.pseudo_sum(TCP, 20 + length);
                    assert_eq!(result(&mut program, &packet.frame()), REDIRECT);
                    segment(&mut packet).chksum = Some(open);
                } else {
                    datagram(&mut packet).load = vec![7; length];
                    let open = packet.ip.pseudo_sum(UDP, 8 + length);
                    assert_eq!(result(&mut program, &packet.frame()), REDIRECT);
                    datagram(&mut packet).chksum = Some(open);
                }
                goes_up(
                    &mut program,
                    &tables,
                    &packet.frame(),
                    &format!("open, IPv6 {v6}, {protocol}, {length}"),
                );
            }
        }
    });
}

#[test]
fn a_frame_that_is_cut_off_goes_up() {
    in_namespace(|| {
        let (mut program, tables) = level(16, 1500);
        install_all(&tables, FORWARD);
        for (v6, protocol) in KINDS {
            let frame = plain(v6, protocol).frame();
            for length in 14..frame.len() {
                goes_up(&mut program, &tables, &frame[..length], &format!("{length} bytes of it"));
            }
        }
    });
}

#[test]
fn every_ipv4_checksum_is_judged_as_the_sum_says() {
    in_namespace(|| {
        let (mut program, tables) = level(16, 1500);
        install_all(&tables, FORWARD);
        let mut random = bartizan_testkit::random::Random::new(4);
        for round in 0..500 {
            let mut packet = plain(false, TCP);
            packet.ip.id = random.draw() as u32 & 0xffff;
            packet.ip.tos = random.draw() as u8;
            packet.ip.ttl = random.draw() as u8;
            let mut frame = packet.frame();
            assert_eq!(result(&mut program, &frame), REDIRECT, "{round}");
            let right: [u8; 2] = frame[24..26].try_into().unwrap();
            let wrong = u16::from_be_bytes(right) ^ 1 << random.below(16);
            frame[24..26].copy_from_slice(&wrong.to_be_bytes());
            assert_eq!(result(&mut program, &frame), PASS, "{round}");
            let mut packet = frame[14..].to_vec();
            sum_ipv4_header(&mut packet);
            assert_eq!(packet[10..12], right);
        }
    });
}

#[test]
fn what_the_host_may_take_for_a_tunnel_goes_up() {
    in_namespace(|| {
        let (mut program, tables) = level(64, 1500);
        let mut config = DecoderConfig::default();
        config.gtp.enabled = true;
        tables.set_tunnel_ports(&config).unwrap();
        let mut slot = 0;
        for v6 in [false, true] {
            let [low, high] = ends(v6);
            let inner = plain(true, TCP).bytes();
            let origin = [&[0, 0, 1, 2, 3, 4, 5, 6], inner.as_slice()].concat();
            let longer = [inner.as_slice(), &[0]].concat();
            let cases: [(u16, &[u8], u32); 10] = [
                (4789, b"anything", PASS),
                (6081, b"anything", PASS),
                (2152, b"anything", PASS),
                (4790, b"anything", REDIRECT),
                (3544, b"no IPv6 packet", REDIRECT),
                (3544, &inner, PASS),
                (3544, &origin, PASS),
                (3544, &longer, REDIRECT),
                (3545, &inner, REDIRECT),
                (3544, &[], REDIRECT),
            ];
            for (port, load, expected) in cases {
                let ends = (low, (high.0, port));
                let key = key(UDP, ends.0, ends.1, [0; 3]);
                tables.remove(&key);
                install(&tables, slot, &key, FORWARD);
                assert_eq!(
                    result(&mut program, &udp(ends.0, ends.1, load).frame()),
                    expected,
                    "{port} {load:?}"
                );
                let back = udp(ends.1, ends.0, load).frame();
                assert_eq!(program.run_on(&back, number("wan"), 1).unwrap().result, expected, "{port} back");
                slot += 1;
            }
        }
        // Any port may carry Teredo where a configuration says nothing.
        tables.set_tunnel_ports(&DecoderConfig::built_in()).unwrap();
        let [low, high] = ends(false);
        let far = (high.0, 3545);
        assert_eq!(result(&mut program, &udp(low, far, &plain(true, TCP).bytes()).frame()), PASS);
        assert_eq!(result(&mut program, &udp(low, far, b"no IPv6 packet").frame()), REDIRECT);
    });
}

#[test]
fn each_action_is_done_and_what_is_not_valid_goes_up() {
    in_namespace(|| {
        let (mut program, tables) = level(16, 1500);
        let frame = plain(false, TCP).frame();
        goes_up(&mut program, &tables, &frame, "no flow");
        install_all(&tables, FlowSlotControl { action: XdpFlowAction::Drop(Reason::PfwRule), generation: 0 });
        assert_eq!(result(&mut program, &frame), DROP);
        let set = |action| assert!(tables.set_control(0, FlowSlotControl { action, generation: 0 }));
        set(XdpFlowAction::Redirect(9));
        assert_eq!(result(&mut program, &frame), REDIRECT);
        set(XdpFlowAction::Redirect(4));
        assert_eq!(result(&mut program, &frame), REDIRECT);
        assert_eq!(tables.counts(0, bartizan_xdp::boot_time()).unwrap().packets, [3, 0]);
        for nowhere in [0, 63, 64, 255] {
            set(XdpFlowAction::Redirect(nowhere));
            goes_up(&mut program, &tables, &frame, "a port that is not there");
        }
        set(XdpFlowAction::Forward);
        tables.enter_generation(7);
        goes_up(&mut program, &tables, &frame, "another generation");
        assert!(tables.set_control(0, FlowSlotControl { action: XdpFlowAction::Forward, generation: 7 }));
        assert_eq!(result(&mut program, &frame), REDIRECT);
        assert!(tables.mark(0));
        goes_up(&mut program, &tables, &frame, "marked");
        assert_eq!(
            tables.counts(0, bartizan_xdp::boot_time()).unwrap().packets,
            [4, 0],
            "marking keeps what was counted"
        );
        assert!(tables.clear(0));
        assert_eq!(tables.counts(0, bartizan_xdp::boot_time()), Some(Default::default()));
        let counters = tables.port_counters(4).unwrap();
        assert_eq!((counters.dropped, counters.forwarded), (1, 3));
        assert_eq!(counters.frames, counters.up + counters.dropped + counters.forwarded);
        let bytes = [counters.dropped_bytes, counters.forwarded_bytes, counters.bytes()];
        assert_eq!(bytes, [1, 3, counters.frames].map(|frames| frames * frame.len() as u64));
    });
}

#[test]
fn one_of_many_packets_that_are_dropped_comes_up() {
    in_namespace(|| {
        wires(1500);
        for (power, expected) in [(None, 0..=0), (Some(0), 4_000..=4_000), (Some(4), 150..=370)] {
            let mut program = program(16);
            for port in ports() {
                program.attach(&PortSetup { drop_samples: power, ..port }).unwrap();
            }
            let tables = program.tables();
            install_all(
                &tables,
                FlowSlotControl { action: XdpFlowAction::Drop(Reason::PfwRule), generation: 0 },
            );
            let frame = plain(false, TCP).frame();
            for _ in 0..4_000 {
                result(&mut program, &frame);
            }
            // What comes up is the host's to count.
            let (counters, counts) =
                (tables.port_counters(4).unwrap(), tables.counts(0, bartizan_xdp::boot_time()).unwrap());
            assert_eq!(counters.up + counters.dropped, 4_000);
            assert_eq!(counts.packets, [counters.dropped, 0]);
            assert!(expected.contains(&counters.up), "{power:?}: {}", counters.up);
            // Only dropped packets are sampled.
            assert!(tables.set_control(0, FlowSlotControl { action: XdpFlowAction::Forward, generation: 0 }));
            assert!((0..100).all(|_| result(&mut program, &frame) == REDIRECT));
        }
    });
}

#[test]
fn vlan_ids_are_part_of_the_key_where_the_port_says_so() {
    in_namespace(|| {
        let (mut program, tables) = level(16, 1500);
        let [low, high] = ends(true);
        let tags = [vec![], vec![0x6abc], vec![0x1001, 0xf002], vec![0x0fff, 5, 0x8fff]];
        for (slot, tags) in tags.iter().enumerate() {
            let ids: [u16; 3] = std::array::from_fn(|at| tags.get(at).map_or(0, |tag| tag & 0xfff));
            install(&tables, slot as u32, &key(TCP, low, high, ids), FORWARD);
        }
        for (slot, tags) in tags.iter().enumerate() {
            let mut packet = plain(true, TCP);
            packet.ip.tags.clone_from(tags);
            let mut frame = packet.frame();
            assert_eq!(result(&mut program, &frame), REDIRECT, "{tags:?}");
            if !tags.is_empty() {
                frame[12..14].copy_from_slice(&[0x88, 0xa8]);
                assert_eq!(result(&mut program, &frame), REDIRECT, "{tags:?}");
            }
            assert_eq!(
                tables.counts(slot as u32, bartizan_xdp::boot_time()).unwrap().packets[0],
                1 + u64::from(!tags.is_empty())
            );
        }
        // A fourth tag goes up, and is not left out: it might lead to a flow of the first three.
        install(&tables, 4, &key(TCP, low, high, [1, 2, 3]), FORWARD);
        let mut packet = plain(true, TCP);
        packet.ip.tags = vec![1, 2, 3];
        assert_eq!(result(&mut program, &packet.frame()), REDIRECT);
        packet.ip.tags = vec![1, 2, 3, 0];
        goes_up(&mut program, &tables, &packet.frame(), "a fourth tag");
        program.detach(4).unwrap();
        let mut lan = ports()[0];
        lan.vlans_in_key = false;
        assert!(program.attach(&lan).unwrap().enabled);
        let mut packet = plain(true, TCP);
        packet.ip.tags = vec![0x0fff, 5, 0x8fff];
        assert_eq!(result(&mut program, &packet.frame()), REDIRECT);
        assert_eq!(
            tables.counts(0, bartizan_xdp::boot_time()).unwrap().packets,
            [2, 0],
            "it is the flow without tags"
        );
    });
}

#[test]
fn nothing_is_handled_until_both_ports_are_there() {
    in_namespace(|| {
        common::wires(1500);
        let mut program = common::program(16);
        let tables = program.tables();
        install_all(&tables, FORWARD);
        let frame = plain(false, TCP).frame();
        assert_eq!(result(&mut program, &frame), PASS);
        let [lan, wan] = ports();
        assert!(!program.attach(&lan).unwrap().enabled);
        assert_eq!(result(&mut program, &frame), PASS);
        assert_eq!(tables.port_counters(4).unwrap(), Default::default());
        assert!(program.attach(&wan).unwrap().enabled);
        assert_eq!(result(&mut program, &frame), REDIRECT);
        program.detach(9).unwrap();
        assert_eq!(result(&mut program, &frame), PASS);
        assert_eq!(tables.port_counters(4).unwrap().frames, 1);
        assert!(program.attach(&wan).unwrap().enabled);
        assert_eq!(result(&mut program, &frame), REDIRECT);
        assert!(tables.port_counters(64).is_none());
    });
}

#[test]
fn what_is_too_long_for_the_way_out_goes_up() {
    in_namespace(|| {
        let (mut program, tables) = level(16, 1500);
        install_all(&tables, FORWARD);
        let [low, high] = ends(false);
        for (load, trailer, expected) in
            [(1472, 0, REDIRECT), (1472, 4, REDIRECT), (1472, 5, PASS), (1477, 0, PASS)]
        {
            let mut packet = udp(low, high, &vec![7; load]);
            packet.ip.trailer = trailer;
            assert_eq!(result(&mut program, &packet.frame()), expected, "{load} {trailer}");
        }
        for end in ["lan", "a", "wan", "b"] {
            common::ip(&format!("link set dev {end} mtu 9000"));
        }
        let frame = udp(low, high, &[7; 8972]).frame();
        assert_eq!(result(&mut program, &frame), PASS);
        program.refresh_mtu(4).unwrap();
        program.refresh_mtu(9).unwrap();
        assert_eq!(result(&mut program, &frame), REDIRECT);
    });
}

#[test]
fn what_lies_in_several_buffers_goes_up_where_the_way_out_cannot_send_it() {
    in_namespace(|| {
        common::wires(9000);
        let _tap = common::tap("tap");
        common::ip("link set dev tap mtu 9000 arp off up");
        common::ethtool("-K tap tx off tso off gso off gro off");
        let mut program = common::program(16);
        let [lan, mut tap] = ports();
        tap.ifindex = number("tap");
        program.attach(&lan).unwrap();
        assert!(program.attach(&tap).unwrap_or_else(|error| panic!("{error}")).enabled);
        let tables = program.tables();
        install_all(&tables, FORWARD);
        let [low, high] = ends(false);
        let mut of = |load: usize, ifindex, back: bool| {
            let frame =
                if back { udp(high, low, &vec![7; load]) } else { udp(low, high, &vec![7; load]) }.frame();
            program.run_on(&frame, ifindex, 1).unwrap().result
        };
        assert_eq!(of(1000, lan.ifindex, false), REDIRECT);
        assert_eq!(of(8000, lan.ifindex, false), PASS, "the kernel would drop it");
        // The other way out can.
        assert_eq!(of(8000, tap.ifindex, true), REDIRECT);
    });
}

#[test]
fn what_a_driver_redirects_leaves_by_ports_that_were_tried() {
    in_namespace(|| {
        let (mut program, tables) = level(16, 1500);
        install_all(&tables, FORWARD);
        for (name, index, pair) in [("one", 1, 2), ("two", 2, 1)] {
            // A driver that runs no programs and takes nothing that is redirected by another one.
            common::ip(&format!("link add {name} type bridge"));
            common::ip(&format!("link set dev {name} up"));
            common::ethtool(&format!("-K {name} tx off tso off gso off gro off"));
            let mut port = ports()[0];
            (port.ifindex, port.index, port.pair) = (number(name), index, pair);
            assert_eq!(program.attach(&port).unwrap_or_else(|error| panic!("{error}")).mode, Mode::Generic);
        }
        assert!([1, 2, 4, 9].iter().all(|index| program.is_enabled(*index)) && !program.is_enabled(3));
        let frame = plain(false, TCP).frame();
        let mut to = |port, ifindex| {
            assert!(
                tables
                    .set_control(0, FlowSlotControl { action: XdpFlowAction::Redirect(port), generation: 0 })
            );
            program.run_on(&frame, ifindex, 1).unwrap().result
        };
        assert_eq!(to(9, number("lan")), REDIRECT);
        assert_eq!(to(1, number("lan")), PASS, "nobody has tried it");
        // The kernel sends what it redirects itself as it sends everything.
        assert_eq!(to(1, number("two")), REDIRECT);
        assert_eq!(to(9, number("two")), REDIRECT);
        program.detach(4).unwrap();
        assert!(!program.is_enabled(9) && program.is_enabled(1));
    });
}

#[test]
fn frames_are_counted_by_size() {
    in_namespace(|| {
        let (mut program, tables) = level(16, 9000);
        let mut expected = [0; 8];
        let mut bytes = 0;
        for (class, bound) in SIZE_BOUNDS.into_iter().enumerate() {
            // Sizes are with the checksum of a frame, which no program sees.
            for (size, class) in [(bound, class), (bound + 1, class + 1)] {
                let mut frame = plain(false, TCP).frame();
                frame.resize(size as usize - 4, 0);
                assert_eq!(result(&mut program, &frame), PASS);
                expected[class] += 1;
                bytes += frame.len() as u64;
            }
        }
        let counters = tables.port_counters(4).unwrap();
        assert_eq!((counters.sizes, counters.frames, counters.bytes()), (expected, 14, bytes));
        assert_eq!(counters.up_bytes, bytes);
    });
}

#[test]
fn flows_come_and_go() {
    in_namespace(|| {
        let mut program = common::program(1000);
        let tables = program.tables();
        assert_eq!(tables.slots(), 1000);
        let [low, _] = ends(false);
        let of = |number: u16| key(TCP, low, ("10.9.9.9".parse().unwrap(), number), [0; 3]);
        tables.insert(&of(0), 0).unwrap();
        assert!(matches!(tables.insert(&of(0), 1), Err(FlowInsertError::Exists)));
        assert!(matches!(
            tables.insert(&of(1), 1000),
            Err(FlowInsertError::NoSlot { slot: 1000, slots: 1000 })
        ));
        assert!(
            !tables.set_control(1000, FORWARD)
                && !tables.clear(1000)
                && tables.counts(1000, bartizan_xdp::boot_time()).is_none()
        );
        for number in 1..1000 {
            tables.insert(&of(number), u32::from(number)).unwrap();
        }
        assert!(tables.remove(&of(17)) && !tables.remove(&of(17)) && !tables.remove(&of(2000)));
        assert!(matches!(tables.insert(&of(18), 17), Err(FlowInsertError::Exists)));
        tables.insert(&of(2000), 17).unwrap();
        assert!(
            (0..1000).all(|number| tables.remove(&of(number)) != (number == 17)) && tables.remove(&of(2000))
        );
        drop(tables);
        assert!(program.run_on(&[0; 14], 1, 1).is_ok());
    });
}

#[test]
fn tables_outlive_the_program() {
    in_namespace(|| {
        let (program, tables) = level(16, 1500);
        install_all(&tables, FORWARD);
        drop(program);
        assert!(tables.mark(0) && tables.counts(0, bartizan_xdp::boot_time()).is_some());
        assert!(tables.remove(&key(TCP, ends(false)[0], ends(false)[1], [0; 3])));
    });
}

#[test]
fn who_has_no_rights_is_told_which() {
    common::without_rights(|| {
        let options = XdpOptions {
            flows: 16,
            mode: ModeChoice::Auto,
            tunnels: DecoderConfig::default(),
            workers: 2,
            early: None,
            seed: 77,
        };
        let error = XdpProgram::load(&options).unwrap_err();
        assert!(matches!(error, XdpError::NoPermission { .. }), "{error}");
        assert!(error.to_string().contains("setcap cap_bpf"), "{error}");
    });
}

#[test]
fn too_many_flows_are_refused() {
    let load = |flows| {
        XdpProgram::load(&XdpOptions {
            flows,
            mode: ModeChoice::Only(Mode::Native),
            tunnels: DecoderConfig::default(),
            workers: 2,
            early: None,
            seed: 77,
        })
    };
    for flows in [0, u32::MAX] {
        let error = load(flows).unwrap_err();
        assert!(matches!(error, XdpError::Flows { .. }), "{error}");
    }
}

#[test]
fn tunnels_by_protocol_go_up_with_their_packets() {
    in_namespace(|| {
        let (mut program, tables) = level(16, 1500);
        install_all(&tables, FORWARD);
        for v6 in [false, true] {
            for protocol in [4, 41, 47, 50, 51, 115, 132] {
                let ip: Ip = header(v6, protocol);
                let inner = plain(v6, TCP).bytes();
                let load = if protocol == 47 { layers::gre(v6, &inner) } else { inner };
                let packet = Packet { ip, layer: Layer::Part(load), piece: None };
                goes_up(&mut program, &tables, &packet.frame(), &format!("protocol {protocol}"));
            }
        }
    });
}
