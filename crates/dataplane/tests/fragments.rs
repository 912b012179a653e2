// SPDX-License-Identifier: Apache-2.0
//! Prevention and fragments: a receiver never completes a datagram that was not inspected as a whole, and
//! gets every good one.

use crate::common;

use bartizan_base::{Decision, Reason, Timestamp, Verdict};
use bartizan_dataplane::handover::{Handled, connect};
use bartizan_dataplane::worker::Worker;
use bartizan_packet::{Checksums, DecodeOutput, Decoder, LinkType, PacketView};
use bartizan_stages::normaliser::{NormaliserCounters, rewrite};
use bartizan_testkit::packet::{Datagram, sum_ipv4_header};
use common::{Captured, Nothing, bench, ethernet, fragments, gre, header, ip, tcp, udp};
use std::sync::Arc;

const SYN: u8 = 2;
const ACK: u8 = 16;

/// Outcome of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Became {
    Held,
    /// It left, after this number of held frames, which were not altered.
    Left(usize),
    /// It has to be changed before it leaves.
    Changed,
    Refused(Decision),
}

/// Decides on a frame; gives the frames that had been held and leave before it.
type Decide = dyn FnMut(&Captured) -> (Became, Vec<Vec<u8>>);

/// Something that decides on frames, one after the other.
struct Engine {
    decide: Box<Decide>,
    millis: u64,
    /// Frames that left, with their link header.
    left: Vec<Vec<u8>>,
}

fn outcome(worker: &mut Worker, decision: Option<Decision>) -> (Became, Vec<Vec<u8>>) {
    let (mut frame, mut released) = (Vec::new(), Vec::new());
    while worker.take_released(&mut frame).is_some() {
        released.push(frame.clone());
    }
    let became = match decision {
        None => Became::Held,
        Some(decision) if !decision.verdict.forwards() => {
            assert!(decision.reason.is_some());
            Became::Refused(decision)
        }
        Some(_) if worker.take_rewrite().is_some() => Became::Changed,
        Some(_) => Became::Left(released.len()),
    };
    (became, released)
}

impl Engine {
    /// One worker, or a station that owns everything: both have to decide alike.
    fn both() -> [Engine; 2] {
        let bench = bench(true, "no");
        let worker = || {
            let settings = bench.engine_settings.clone().for_real_receivers(true);
            Worker::new(settings, Arc::clone(&bench.engine), Arc::clone(&bench.chains)).unwrap()
        };
        let mut alone = worker();
        let mut station = connect(vec![worker()], &bench.engine_settings, 8).pop().unwrap();
        let plain = move |frame: &Captured| {
            let decision = alone.frame(&frame.frame(1), &mut Nothing);
            outcome(&mut alone, decision)
        };
        let stationed = move |frame: &Captured| {
            let decision = match station.frame(&frame.frame(1), 0, &mut Nothing) {
                Handled::Here(decision) => Some(decision),
                Handled::Held => None,
                Handled::Away(_) => panic!("there is nobody else"),
            };
            outcome(station.worker_mut(), decision)
        };
        let new = |decide| Engine { decide, millis: 0, left: Vec::new() };
        [new(Box::new(plain)), new(Box::new(stationed))]
    }

    fn raw(&mut self, bytes: Vec<u8>) -> Became {
        self.millis += 1;
        let now = Timestamp::from_nanos(1_000_000_000 + self.millis * 1_000_000);
        let (became, released) = (self.decide)(&Captured { now, bytes: bytes.clone() });
        self.left.extend(released);
        if matches!(became, Became::Left(_)) {
            self.left.push(bytes);
        }
        became
    }

    fn frame(&mut self, v6: bool, bytes: &[u8]) -> Became {
        self.raw(ethernet(v6, bytes))
    }

    fn reason(&mut self, v6: bool, bytes: &[u8]) -> Option<Reason> {
        match self.frame(v6, bytes) {
            Became::Refused(decision) => decision.reason,
            _ => None,
        }
    }
}

const ENDS: (u8, u8) = (1, 2);

#[test]
fn nothing_of_a_refused_datagram_leaves() {
    for engine in &mut Engine::both() {
        for v6 in [false, true] {
            let bad = fragments(v6, ENDS, 17, 77, &udp((9, 10), b"please drop this one"), 16);
            let good = fragments(v6, ENDS, 17, 77, &udp((9, 10), b"please keep this one"), 16);
            for order in [[0, 1], [1, 0]] {
                assert_eq!(engine.frame(v6, &bad[order[0]]), Became::Held);
                assert_eq!(engine.reason(v6, &bad[order[1]]), Some(Reason::PfwRule));
            }
            assert!(engine.left.is_empty());
            // Nothing of it waits at the receiver, so the id stands for the next one.
            assert_eq!(engine.frame(v6, &good[0]), Became::Held);
            assert_eq!(engine.frame(v6, &good[1]), Became::Left(1));
            assert_eq!(engine.left, [ethernet(v6, &good[0]), ethernet(v6, &good[1])]);
            engine.left.clear();
            // What left may wait there: its id is not taken again.
            assert!(good.iter().chain(&bad).all(|f| engine.reason(v6, f) == Some(Reason::Defrag)));
            let other = fragments(v6, ENDS, 17, 78, &udp((9, 10), b"please keep this one"), 16);
            assert!(other.iter().all(|f| engine.reason(v6, f).is_none()));
            engine.left.clear();
        }
    }
}

/// IPv4's header checksum made right.
fn summed(mut header: Vec<u8>) -> Vec<u8> {
    sum_ipv4_header(&mut header);
    header
}

/// Heads that Linux or others throw away, made of a good one: frames.
fn decoys(v6: bool, head: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let plain = |bytes: Vec<u8>| ethernet(v6, &bytes);
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = head.to_vec();
        change(&mut bytes);
        if v6 { bytes } else { summed(bytes) }
    };
    let mut foreign = ethernet(v6, head);
    foreign[5] = 99;
    let tagged = |id: u8| [&ethernet(v6, head)[..12], &[0x81, 0, 0, id], &ethernet(v6, head)[12..]].concat();
    let mut all = vec![
        ("a foreign hardware address", foreign),
        ("a priority tag", tagged(0)),
        ("another VLAN", tagged(5)),
        ("another hop limit", plain(changed(&|b| b[if v6 { 7 } else { 8 }] = 1))),
        ("too long for its frame", plain(changed(&|b| b[if v6 { 5 } else { 3 }] += 8))),
    ];
    if v6 {
        // Before the fragment header, in the order given: what each names, and its bytes behind the next
        // header field.
        let extended = |first: u8, extensions: &[u8]| {
            let mut bytes = head.to_vec();
            let length = u16::from_be_bytes([bytes[4], bytes[5]]) + extensions.len() as u16;
            bytes[4..6].copy_from_slice(&length.to_be_bytes());
            bytes[6] = first;
            bytes.splice(40..40, extensions.iter().copied());
            plain(bytes)
        };
        let routing = |kind: u8| [&[44, 2, kind, 1, 0, 0, 0, 0][..], &[0xfd; 16]].concat();
        all.extend([
            ("hop-by-hop options, discard", extended(0, &[44, 0, 0x80, 4, 0, 0, 0, 0])),
            ("destination options, discard", extended(60, &[44, 0, 0x9e, 4, 0, 0, 0, 0])),
            ("routing header 0", extended(43, &routing(0))),
            ("routing header 2", extended(43, &routing(2))),
            ("hop-by-hop out of place", extended(60, &[0, 0, 1, 4, 0, 0, 0, 0, 44, 0, 1, 4, 0, 0, 0, 0])),
            ("an option beyond its header", extended(60, &[44, 0, 7, 9, 0, 0, 0, 0])),
            ("a jumbo option", extended(0, &[44, 0, 0xc2, 4, 0, 1, 0, 0])),
            ("two fragment headers", extended(44, &[44, 0, 0, 0, 0, 0, 0, 9])),
            ("another next header", plain(changed(&|b| b[40] = 58))),
            ("a reserved bit", plain(changed(&|b| b[43] |= 4))),
            ("a header chain that goes on", plain(changed(&|b| (b[40], b[49]) = (60, 30)))),
            ("ECN-capable", plain(changed(&|b| b[1] |= 0x30))),
        ]);
    } else {
        let optioned = |options: &[u8]| {
            let mut bytes = head.to_vec();
            bytes[0] += options.len() as u8 / 4;
            let length = u16::from_be_bytes([bytes[2], bytes[3]]) + options.len() as u16;
            bytes[2..4].copy_from_slice(&length.to_be_bytes());
            bytes.splice(20..20, options.iter().copied());
            plain(summed(bytes))
        };
        let mut unsummed = head.to_vec();
        unsummed[10] ^= 1;
        all.extend([
            ("a bad checksum", plain(unsummed)),
            ("a broken record route", optioned(&[7, 7, 9, 0, 0, 0, 0, 0])),
            ("a loose source route", optioned(&[0x83, 7, 4, 10, 0, 0, 9, 0])),
            ("a strict source route", optioned(&[0x89, 7, 4, 10, 0, 0, 9, 0])),
            ("an option of length 0", optioned(&[7, 0, 0, 0])),
            ("an option beyond the header", optioned(&[7, 40, 4, 0])),
            ("a broken timestamp", optioned(&[0x44, 8, 1, 0, 0, 0, 0, 0])),
            ("a router alert", optioned(&[0x94, 4, 0, 0])),
            ("padding", optioned(&[1, 1, 1, 1])),
            ("do not fragment", plain(changed(&|b| b[6] |= 0x40))),
            ("the reserved bit", plain(changed(&|b| b[6] |= 0x80))),
            ("ECN-capable", plain(changed(&|b| b[1] |= 3))),
        ]);
    }
    all
}

#[test]
fn a_decoy_does_not_make_room_for_another_fragment() {
    for engine in &mut Engine::both() {
        for v6 in [false, true] {
            let text =
                |word: &str| udp((9, 10), format!("please {word} this text, it is long enough").as_bytes());
            let evil = fragments(v6, ENDS, 17, 5, &text("drop"), 24);
            let good = fragments(v6, ENDS, 17, 5, &text("keep"), 24);
            for (what, decoy) in decoys(v6, &good[0]) {
                // Tail first, then the decoy, then the true head.
                engine.left.clear();
                for tail in &evil[1..] {
                    assert_eq!(engine.frame(v6, tail), Became::Held, "{what}");
                }
                let became = engine.raw(decoy.clone());
                assert!(
                    matches!(became, Became::Held)
                        || matches!(&became, Became::Refused(d) if d.reason == Some(Reason::Defrag)),
                    "{what}: {became:?}"
                );
                // Inspected with what the receiver has of it.
                let head = engine.frame(v6, &evil[0]);
                assert_eq!(refused(&head).reason, Some(Reason::PfwRule), "{what}");
                assert!(engine.left.is_empty(), "{what}");
                // The decoy first: the good rest is another datagram, or none.
                let first = engine.raw(decoy);
                for part in evil[1..].iter().chain(&evil[..1]) {
                    engine.frame(v6, part);
                }
                assert!(engine.left.is_empty(), "{what}: {first:?}");
                // What waits runs out of time.
                engine.millis += 62_000;
                let other = fragments(v6, ENDS, 17, 70_000, &text("keep"), 24);
                engine.frame(v6, &other[0]);
                engine.millis += 62_000;
            }
        }
    }
}

fn refused(became: &Became) -> Decision {
    match became {
        Became::Refused(decision) => *decision,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_broken_in_a_fragment_does_not_leave_as_something_else() {
    for engine in &mut Engine::both() {
        // Broken options: for the decoder no IP packet at all.
        let parts = fragments(false, ENDS, 17, 5, &udp((9, 10), b"some text that is long enough"), 16);
        for part in parts {
            let mut bytes = part;
            bytes[0] += 1;
            let length = u16::from_be_bytes([bytes[2], bytes[3]]) + 4;
            bytes[2..4].copy_from_slice(&length.to_be_bytes());
            bytes.splice(20..20, [7, 40, 4, 0]);
            assert_eq!(engine.reason(false, &summed(bytes)), Some(Reason::Defrag));
        }
        // A fragment behind an "atomic" fragment header.
        for part in fragments(true, ENDS, 17, 5, &udp((9, 10), b"some text that is long enough"), 16) {
            let mut bytes = part;
            bytes[5] += 8;
            bytes.splice(40..40, [44, 0, 0, 0, 0, 0, 0, 9]);
            assert_eq!(engine.reason(true, &bytes), Some(Reason::Defrag), "{bytes:02x?}");
        }
        assert!(engine.left.is_empty());
    }
}

#[test]
fn fragments_on_which_receivers_differ_are_refused() {
    for engine in &mut Engine::both() {
        for v6 in [false, true] {
            let whole = fragments(v6, ENDS, 17, 5, &udp((9, 10), b"harmless text that is long enough"), 16);
            let other = fragments(v6, ENDS, 17, 5, &udp((9, 10), b"drop ful text that is long enough"), 16);
            assert_eq!(engine.reason(v6, &whole[0]), None);
            assert_eq!(engine.reason(v6, &other[0]), Some(Reason::Defrag), "overlap");
            assert_eq!(engine.reason(v6, &whole[0]), Some(Reason::Defrag), "the same again");
            assert!(whole[1..].iter().all(|f| engine.reason(v6, f).is_none()));
            assert_eq!(engine.left, whole.iter().map(|f| ethernet(v6, f)).collect::<Vec<_>>());
            engine.left.clear();
        }
    }
}

#[test]
fn good_datagrams_leave_as_they_came_whatever_their_order() {
    for engine in &mut Engine::both() {
        for v6 in [false, true] {
            for (id, (length, size)) in
                (300u32..).zip([(20_008, 1_480), (60_000, 1_232), (1_281, 1_272), (9_000, 8), (17, 16)])
            {
                let body = udp((9, 10), &vec![b'.'; length - 8]);
                let mut parts = fragments(v6, ENDS, 17, id, &body, size);
                match id % 3 {
                    0 => parts.reverse(),
                    1 => parts.rotate_left(1),
                    _ => {}
                }
                let frames: Vec<_> = parts.iter().map(|part| ethernet(v6, part)).collect();
                for (at, frame) in frames.iter().enumerate() {
                    let expected = if at + 1 == frames.len() { Became::Left(at) } else { Became::Held };
                    assert_eq!(engine.raw(frame.clone()), expected, "{length} {size}");
                }
                assert!(engine.left == frames, "{length} {size}");
                engine.left.clear();
            }
        }
    }
}

#[test]
fn fragments_in_a_fragmented_tunnel_leave_together() {
    for engine in &mut Engine::both() {
        for v6 in [false, true] {
            let inner = fragments(v6, (3, 4), 17, 8, &udp((9, 10), &[b'.'; 60]), 32);
            let outer: Vec<Vec<Vec<u8>>> = (0u32..)
                .zip(&inner)
                .map(|(n, part)| fragments(v6, ENDS, 47, 90 + n, &gre(v6, part), 48))
                .collect();
            let frames: Vec<_> = outer.iter().flatten().map(|part| ethernet(v6, part)).collect();
            assert!(frames.len() > 3);
            for (at, frame) in frames.iter().enumerate() {
                let expected = if at + 1 == frames.len() { Became::Left(at) } else { Became::Held };
                assert_eq!(engine.raw(frame.clone()), expected, "{at}");
            }
            // Those of the outer datagram that made the inner one whole come first.
            engine.left.sort();
            let mut frames = frames;
            frames.sort();
            assert_eq!(engine.left, frames);
            engine.left.clear();
        }
    }
}

/// A retransmission that differs leaves with the inspected bytes, where one frame holds it; in a fragmented
/// tunnel it is refused, with all its fragments, since those before the last one cannot be changed any more.
#[test]
fn a_differing_retransmission_in_a_fragmented_tunnel_does_not_leave() {
    for engine in &mut Engine::both() {
        for v6 in [false, true] {
            let segment = |ends: (u8, u8), ports, numbers: (u32, u32), flags, load: &[u8]| {
                gre(v6, &ip(v6, ends, 6, &tcp(ports, numbers.0, numbers.1, flags, load)))
            };
            let (up, down, ports) = ((3, 4), (4, 3), (1_024, 80));
            let whole = |ends, body: &[u8]| ip(v6, ends, 47, body);
            let to_server = |numbers, flags, load: &[u8]| segment(up, ports, numbers, flags, load);
            let handshake = [
                whole(ENDS, &to_server((99, 0), SYN, b"")),
                whole((2, 1), &segment(down, (80, 1_024), (499, 100), SYN | ACK, b"")),
                whole(ENDS, &to_server((100, 500), ACK, b"")),
            ];
            for packet in &handshake {
                assert_eq!(engine.frame(v6, packet), Became::Left(0));
            }
            let good = to_server((100, 500), ACK, &[b'a'; 80]);
            let bad = to_server((100, 500), ACK, &[b'b'; 80]);
            // The second segment, before the first one was acknowledged.
            assert_eq!(engine.frame(v6, &whole(ENDS, &good)), Became::Left(0));
            assert_eq!(engine.frame(v6, &whole(ENDS, &bad)), Became::Changed);
            engine.left.clear();
            for (id, body) in [(90, &bad), (91, &good)] {
                let parts = fragments(v6, ENDS, 47, id, body, 64);
                let (last, first) = parts.split_last().unwrap();
                for part in first {
                    assert_eq!(engine.frame(v6, part), Became::Held);
                }
                if id == 90 {
                    assert_eq!(engine.reason(v6, last), Some(Reason::StreamOverlap));
                    assert!(engine.left.is_empty());
                } else {
                    assert_eq!(engine.frame(v6, last), Became::Left(first.len()));
                }
            }
            engine.left.clear();
        }
    }
}

/// Linux leaves the checksum of a tunnel over UDP to the device also when what is inside is a fragment, which
/// has none that could be left.
#[test]
fn fragments_in_a_tunnel_whose_checksum_is_due_leave_with_it() {
    let bench = bench(true, "no");
    let settings = bench.engine_settings.clone().for_real_receivers(true);
    let mut worker = Worker::new(settings, Arc::clone(&bench.engine), Arc::clone(&bench.chains)).unwrap();
    worker.arrives_with(Checksums::Pending);
    for v6 in [false, true] {
        let proto = 17;
        let around = |part: &Vec<u8>| {
            let vxlan = [&[8, 0, 0, 0, 0, 0, 5, 0][..], &ethernet(v6, part)].concat();
            let around = header(v6, ENDS, proto);
            let datagram = Datagram::new((12_345, 4_789), &vxlan).left_to_device(&around);
            ethernet(v6, &around.packet(&datagram, None))
        };
        let parts = fragments(v6, (3, 4), 17, 8, &udp((9, 10), &[b'.'; 100]), 32);
        let frames: Vec<_> = parts.iter().map(around).collect();
        let mut left = Vec::new();
        for (number, bytes) in (0u64..).zip(&frames) {
            let now = Timestamp::from_nanos(1_000_000_000 + number * 1_000_000);
            let frame = Captured { now, bytes: bytes.clone() };
            let decision = worker.frame(&frame.frame(1), &mut Nothing);
            let mut released = Vec::new();
            while worker.take_released(&mut released).is_some() {
                left.push(released.clone());
            }
            assert_eq!(decision.is_none(), number + 1 < frames.len() as u64, "{number}");
            if let Some(decision) = decision {
                assert!(decision.verdict.forwards(), "{decision:?}");
                let (mut last, mut longer) = (frame.bytes, Vec::new());
                let change = worker.take_rewrite().expect("the last one's is due, too");
                assert!(rewrite(&mut last, &change, &[], &mut longer, &mut NormaliserCounters::default()));
                left.push(last);
            }
        }
        assert_eq!(worker.take_normalised().checksums, frames.len() as u64 - 1);
        assert_eq!(left.len(), frames.len());
        let field = 14 + if v6 { 40 } else { 20 } + 6;
        for (frame, left) in frames.iter().zip(&left) {
            let mut output = DecodeOutput::new();
            Decoder::default().decode(LinkType::ETHERNET, left, left.len() as u32, &mut output);
            let outer = PacketView::new(left, output.outer().unwrap());
            assert_eq!(outer.l4_checksum_ok(), Some(true));
            assert_eq!((&frame[..field], &frame[field + 2..]), (&left[..field], &left[field + 2..]));
        }
    }
}

#[test]
fn other_content_in_a_datagram_put_together_refuses_it() {
    for engine in Engine::both().iter_mut() {
        for v6 in [false, true] {
            let port = 4000 + u16::from(v6);
            let client = |seq, flags, data: &[u8]| tcp((port, 80), seq, 500, flags, data);
            let segment = |body: &[u8]| ip(v6, ENDS, 6, body);
            let back = |flags| ip(v6, (2, 1), 6, &tcp((80, port), 499, 100, flags, b""));
            assert_eq!(engine.reason(v6, &segment(&tcp((port, 80), 99, 0, SYN, b""))), None);
            assert_eq!(engine.reason(v6, &back(SYN | ACK)), None);
            assert_eq!(engine.reason(v6, &segment(&client(100, ACK, b""))), None);
            assert_eq!(engine.reason(v6, &segment(&client(100, ACK, b"the text that was inspected"))), None);
            // In one frame, other content is put right.
            assert_eq!(
                engine.frame(v6, &segment(&client(100, ACK, b"the text THAT was inspected"))),
                Became::Changed
            );
            // In fragments it cannot be.
            let parts = fragments(v6, ENDS, 6, 9, &client(100, ACK, b"the text that WAS inspected"), 24);
            assert_eq!(engine.frame(v6, &parts[0]), Became::Held);
            let decision = refused(&engine.frame(v6, &parts[1]));
            assert_eq!((decision.verdict, decision.reason), (Verdict::Drop, Some(Reason::StreamOverlap)));
        }
    }
}

#[test]
fn what_waits_is_counted_when_its_time_is_over_and_at_the_end() {
    for v6 in [false, true] {
        let bench = bench(true, "no");
        let settings = bench.engine_settings.clone().for_real_receivers(true);
        let mut worker = Worker::new(settings, Arc::clone(&bench.engine), Arc::clone(&bench.chains)).unwrap();
        let counted = |worker: &Worker| {
            let c = worker.counters();
            (c.packets, c.forwarded, c.refused[Reason::Defrag as usize])
        };
        let parts = |id| fragments(v6, ENDS, 17, id, &udp((9, 10), &[b'.'; 60]), 16);
        for id in 0..3 {
            for part in &parts(id)[1..] {
                let frame = Captured { now: Timestamp::from_parts(10, 0), bytes: ethernet(v6, part) };
                assert_eq!(worker.frame(&frame.frame(1), &mut Nothing), None);
            }
        }
        assert_eq!(counted(&worker), (12, 0, 0));
        worker.idle(Timestamp::from_parts(70, 0), &mut Nothing);
        assert_eq!(counted(&worker), (12, 0, 0));
        worker.idle(Timestamp::from_parts(71, 0), &mut Nothing);
        assert_eq!(counted(&worker), (12, 0, 12));
        for part in &parts(4)[1..] {
            let frame = Captured { now: Timestamp::from_parts(72, 0), bytes: ethernet(v6, part) };
            worker.frame(&frame.frame(1), &mut Nothing);
        }
        worker.shutdown(&mut Nothing);
        assert_eq!(counted(&worker), (16, 0, 16));
    }
}

#[test]
fn a_flood_of_first_fragments_makes_room_of_its_own_and_every_frame_is_counted() {
    for v6 in [false, true] {
        let bench = bench(true, "no");
        let mut settings = bench.engine_settings.clone().for_real_receivers(true);
        settings.defrag.memory = 1 << 20;
        let mut worker = Worker::new(settings, Arc::clone(&bench.engine), Arc::clone(&bench.chains)).unwrap();
        let mut see = |bytes: &[u8]| {
            let frame = Captured { now: Timestamp::from_parts(10, 0), bytes: bytes.to_vec() };
            let decision = worker.frame(&frame.frame(1), &mut Nothing);
            outcome(&mut worker, decision)
        };
        let (mut sent, mut left) = (0, 0);
        for id in 0..40 {
            // Of one that nobody completes, between the fragments of a ping of 3,000 bytes.
            let ping: Vec<_> = fragments(v6, ENDS, 17, id, &udp((9, 10), &[b'.'; 3_000]), 1_232)
                .iter()
                .map(|part| ethernet(v6, part))
                .collect();
            for (at, frame) in ping.iter().enumerate() {
                for n in 0..50 {
                    let flood =
                        &fragments(v6, (5, 2), 17, 1_000 + sent + n, &udp((9, 10), &[b'.'; 2_000]), 1_232);
                    assert_eq!(see(&ethernet(v6, &flood[0])).0, Became::Held);
                }
                sent += 51;
                let (became, released) = see(frame);
                let last = at + 1 == ping.len();
                assert_eq!(became, if last { Became::Left(at) } else { Became::Held }, "{id}");
                assert!(!last || released == ping[..at]);
                left += usize::from(last) * ping.len();
            }
        }
        worker.shutdown(&mut Nothing);
        let c = worker.counters();
        let refused = [Reason::Defrag, Reason::DefragMemory].map(|reason| c.refused[reason as usize]);
        assert_eq!((c.packets, c.forwarded), (u64::from(sent), left as u64));
        assert_eq!(refused.iter().sum::<u64>(), c.packets - c.forwarded);
        assert!(refused[1] > 4_000, "{refused:?}");
    }
}
