// SPDX-License-Identifier: Apache-2.0
//! The program's handling of segments that it compares with a connection's numbers: it applies the rule of
//! `bartizan_packet::windows`, segment by segment, also with both directions on processors of their own.
//! The kernel runs the very program (BPF_PROG_TEST_RUN).

use crate::common;

use bartizan_packet::TunnelKind;
use bartizan_packet::slots::FLIGHT_MAX;
use bartizan_packet::windows::{Line, WINDOW_WORDS, WindowSegment as Compared, WindowSide, Windows};
use bartizan_testkit::packet::{ACK, FIN, PSH, Packet, RST, SYN, TCP, URG};
use bartizan_testkit::random::Random;
use bartizan_testkit::tunnels::Tunnel;
use bartizan_xdp::{FlowSlotControl, Key, ProgramRunner, Tables, XdpFlowAction};
use common::{PASS, REDIRECT, ends, in_namespace, key, level, number, plain, segment, stay_on};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

const COMPARE: FlowSlotControl = FlowSlotControl { action: XdpFlowAction::Compare, generation: 0 };
const SLOT: u32 = 3;

/// The slot of the outer flow of a connection in a tunnel.
const AROUND: u32 = 5;
/// IPv4, in no tunnel.
const OUTSIDE: (bool, bool) = (false, false);
const FORWARD: FlowSlotControl = FlowSlotControl { action: XdpFlowAction::Forward, generation: 0 };

/// The keys of a connection, and of its outer flow.
fn keys(v6: bool, in_tunnel: bool) -> (Key, Option<Key>) {
    let [low, high] = ends(v6);
    let mut own = key(TCP, low, high, [0; 3]);
    if !in_tunnel {
        return (own, None);
    }
    // IP in IP has no number.
    own[4] = (TunnelKind::Ip as u64) << 32;
    own[6] |= 1 << 8;
    (own, Some(key(if v6 { 41 } else { 4 }, (low.0, 0), (high.0, 0), [0; 3])))
}

fn install(tables: &Tables, (v6, in_tunnel): (bool, bool), windows: &Windows) {
    let (own, around) = keys(v6, in_tunnel);
    if let Some(around) = around {
        assert!(tables.clear(AROUND) && tables.set_control(AROUND, FORWARD));
        tables.insert(&around, AROUND).unwrap();
    }
    assert!(tables.clear(SLOT) && tables.set_windows(SLOT, windows) && tables.set_control(SLOT, COMPARE));
    tables.insert(&own, SLOT).unwrap();
}

/// A segment of an endpoint as a frame, and the interface of its arrival.
fn frame((v6, in_tunnel): (bool, bool), from_high: bool, compared: &Compared) -> (Vec<u8>, u32) {
    let mut packet: Packet = plain(v6, TCP);
    if from_high {
        std::mem::swap(&mut packet.ip.src, &mut packet.ip.dst);
    }
    let segment = segment(&mut packet);
    if from_high {
        (segment.sport, segment.dport) = (segment.dport, segment.sport);
    }
    (segment.seq, segment.ack, segment.window) = (compared.sequence, compared.acknowledged, compared.window);
    segment.load = vec![7; compared.end.wrapping_sub(compared.sequence) as usize];
    segment.flags = ACK | PSH | if compared.urgent { URG } else { 0 };
    if let Some(own) = compared.timestamp {
        segment.raw_options = [&[1, 1, 8, 10][..], &own.to_be_bytes(), &[0, 0, 0, 9]].concat();
    }
    if in_tunnel {
        let hosts = ((packet.ip.src, 0), (packet.ip.dst, 0));
        packet = Tunnel::Ip.around(hosts, v6, &packet.bytes());
    }
    (packet.frame(), number(if from_high { "wan" } else { "lan" }))
}

fn goes_on(runner: &ProgramRunner, where_it_is: (bool, bool), from_high: bool, compared: &Compared) -> bool {
    let (frame, interface) = frame(where_it_is, from_high, compared);
    match runner.run_on(&frame, interface, 1).unwrap().result {
        REDIRECT => true,
        PASS => false,
        other => panic!("{other}"),
    }
}

fn side(random: &mut Random) -> WindowSide {
    let sent = if random.percent(30) { u32::MAX - random.below(3_000) as u32 } else { random.draw() as u32 };
    WindowSide {
        sent,
        timestamp: if random.percent(20) { u32::MAX - random.below(5) as u32 } else { random.draw() as u32 },
        acknowledged: sent.wrapping_sub(random.below(3_000) as u32),
        edge: sent.wrapping_add(random.below(4_000) as u32),
        scale: random.below(15) as u8,
    }
}

/// A number near the expected one, and sometimes anywhere.
fn near(random: &mut Random, number: u32) -> u32 {
    let far = [1, 3, 2_000, 1 << 20, FLIGHT_MAX, FLIGHT_MAX + 1, 1 << 29, (1 << 29) + 1, 1 << 30, 1 << 31];
    match random.below(10) {
        0 => number.wrapping_add(*random.pick(&far)),
        1 => number.wrapping_sub(*random.pick(&far)),
        2 => random.draw() as u32,
        _ => number,
    }
}

fn random_segment(random: &mut Random, windows: &Windows, from_high: bool) -> Compared {
    let [own, other] = if from_high { [windows.sides[1], windows.sides[0]] } else { windows.sides };
    let sequence = if random.percent(70) { own.sent } else { own.acknowledged };
    let sequence = near(random, sequence);
    let length = if random.percent(40) { 0 } else { random.below(1_300) as u32 };
    let stamped = if windows.timestamps { random.percent(95) } else { random.percent(20) };
    let acknowledged = if random.percent(60) { other.sent } else { other.acknowledged };
    let acknowledged = near(random, acknowledged);
    let later = own.timestamp.wrapping_add(random.below(3) as u32);
    Compared {
        sequence,
        end: sequence.wrapping_add(length),
        acknowledged,
        window: if random.percent(20) { 0 } else { random.draw() as u16 },
        timestamp: stamped.then(|| if random.percent(3) { 0 } else { near(random, later) }),
        urgent: random.percent(2),
    }
}

#[test]
fn the_program_has_the_rule_that_is_written_in_rust() {
    in_namespace(|| {
        let (mut program, tables) = level(16, 1500);
        let runner = program.runner().unwrap();
        let (mut went, mut stayed) = (0u32, 0u32);
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let v6 = random.percent(50);
            let where_it_is = (v6, random.percent(50));
            let begin =
                Windows { sides: [side(&mut random), side(&mut random)], timestamps: random.percent(60) };
            install(&tables, where_it_is, &begin);
            let words: [AtomicU64; WINDOW_WORDS] = Default::default();
            let line = Line::new(&words);
            line.write(&begin);
            for step in 0..60 {
                let from_high = random.percent(50);
                let compared = random_segment(&mut random, &line.read(), from_high);
                let rule = line.advance(from_high, &compared);
                let case =
                    format!("seed {seed} step {step}: {compared:?} of {from_high} in {:?}", line.read());
                assert_eq!(goes_on(&runner, where_it_is, from_high, &compared), rule, "{case}");
                assert_eq!(tables.windows(SLOT), Some(line.read()), "{case}");
                went += u32::from(rule);
                stayed += u32::from(!rule);
                if random.percent(5) {
                    // The host has judged one by itself.
                    let mut windows = line.read();
                    windows.sides[0].sent = windows.sides[0].sent.wrapping_add(100);
                    windows.sides[1].edge = windows.sides[1].edge.wrapping_sub(100);
                    line.publish(&windows);
                    assert!(tables.publish_windows(SLOT, &windows));
                }
            }
            let counts = tables.counts(SLOT, bartizan_xdp::boot_time()).unwrap();
            assert!(counts.packets.iter().sum::<u64>() <= 60);
            let (own, around) = keys(v6, where_it_is.1);
            assert!(tables.remove(&own));
            if let Some(around) = around {
                let frames = tables.counts(AROUND, bartizan_xdp::boot_time()).unwrap().packets;
                assert_eq!(frames, counts.packets, "one of each in a frame");
                assert!(tables.remove(&around));
            }
        }
        assert!(went > 3_000 && stayed > 3_000, "{went} {stayed}");
    });
}

/// A connection whose lower endpoint is at 1,000 and whose higher one is at 5,000.
fn open(timestamps: bool) -> Windows {
    let side =
        |at: u32| WindowSide { sent: at, timestamp: 70, acknowledged: at, edge: at + 60_000, scale: 7 };
    Windows { sides: [side(1_000), side(5_000)], timestamps }
}

#[test]
fn what_opens_ends_or_is_not_of_tcp_goes_up_and_moves_nothing() {
    in_namespace(|| {
        let (mut program, tables) = level(16, 1500);
        let runner = program.runner().unwrap();
        install(&tables, OUTSIDE, &open(false));
        let plain =
            Compared { sequence: 1_000, end: 1_000, acknowledged: 5_000, window: 500, ..Compared::default() };
        for flags in [0, SYN, SYN | ACK, FIN | ACK, RST, RST | ACK, ACK | URG] {
            let mut packet = common::plain(false, TCP);
            let tcp = segment(&mut packet);
            (tcp.seq, tcp.ack, tcp.flags) = (1_000, 5_000, flags);
            assert_eq!(runner.run_on(&packet.frame(), number("lan"), 1).unwrap().result, PASS, "{flags}");
        }
        assert_eq!(tables.windows(SLOT), Some(open(false)));
        assert!(goes_on(&runner, OUTSIDE, false, &plain));
        // Another generation, and an entry that is about to go.
        tables.enter_generation(1);
        assert!(!goes_on(&runner, OUTSIDE, false, &plain));
        assert!(tables.set_control(SLOT, FlowSlotControl { action: XdpFlowAction::Compare, generation: 1 }));
        assert!(tables.mark(SLOT));
        assert!(!goes_on(&runner, OUTSIDE, false, &Compared { end: 1_100, ..plain }));
        assert_eq!(tables.windows(SLOT).unwrap().sides[0].sent, 1_000);
        // No slot has this line.
        assert!(!tables.set_windows(16, &open(false)) && tables.windows(16).is_none());
    });
}

fn is_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

/// Both directions of a connection at full rate, each on a processor of its own, with an attacker in each: a
/// segment that was legal by its sender's knowledge passes or goes up, one that no order makes legal never
/// passes, and no number goes back.
#[test]
fn both_directions_on_processors_of_their_own_keep_what_is_promised() {
    const ROUNDS: u32 = 30_000;
    in_namespace(|| {
        let (mut program, tables) = level(16, 1500);
        let near_the_end = u32::MAX - 200_000;
        let side = |at: u32| WindowSide {
            sent: at,
            timestamp: 0,
            acknowledged: at,
            edge: at.wrapping_add(60_000),
            scale: 0,
        };
        install(&tables, OUTSIDE, &Windows { sides: [side(near_the_end), side(5_000)], timestamps: false });
        let runners = [program.runner().unwrap(), program.runner().unwrap()];
        // What each side has been heard to send: its receiver acknowledges that, and nothing else.
        let heard = [AtomicU32::new(near_the_end), AtomicU32::new(5_000)];
        let (over, watched) = (AtomicBool::new(false), AtomicU32::new(0));
        let (interfaces, processors) =
            ([number("lan"), number("wan")], std::thread::available_parallelism().unwrap().get());
        let run = |own: usize, runner: &ProgramRunner| {
            stay_on(own % processors);
            let (mut at, mut below, mut up) = (heard[own].load(Ordering::Relaxed), 0u32, 0u32);
            let send = |compared: &Compared| {
                let (frame, _) = frame(OUTSIDE, own == 1, compared);
                runner.run_on(&frame, interfaces[own], 1).unwrap().result == REDIRECT
            };
            for round in 0..ROUNDS {
                let acknowledged = heard[1 - own].load(Ordering::Acquire);
                let edge = tables.windows(SLOT).unwrap().sides[own].edge;
                let length = if round % 4 == 3 || is_after(at.wrapping_add(50), edge) { 0 } else { 50 };
                let end = at.wrapping_add(length);
                let legal = Compared {
                    sequence: at,
                    end,
                    acknowledged,
                    window: 60_000,
                    timestamp: None,
                    urgent: false,
                };
                if send(&legal) {
                    below += 1;
                } else {
                    // The host judges it, and says so.
                    let mut windows = tables.windows(SLOT).unwrap();
                    windows.sides[own].sent = end;
                    windows.sides[1 - own].acknowledged = acknowledged;
                    windows.sides[1 - own].edge = acknowledged.wrapping_add(60_000);
                    assert!(tables.publish_windows(SLOT, &windows));
                    up += 1;
                }
                at = end;
                heard[own].store(end, Ordering::Release);
                // The edge is at most one window before the highest number that the other side can ever
                // acknowledge, which is the end of the data sent here.
                let beyond = at.wrapping_add(60_001);
                let forged = [
                    Compared { sequence: beyond, end: beyond, ..legal },
                    Compared { acknowledged: acknowledged.wrapping_add(1 << 24), ..legal },
                    Compared { sequence: at.wrapping_sub(1 << 25), end: at.wrapping_sub(1 << 25), ..legal },
                ];
                let forged = &forged[round as usize % 3];
                assert!(!send(forged), "{forged:?}");
            }
            over.store(true, Ordering::Relaxed);
            (below, up)
        };
        let watch = || {
            let mut before = tables.windows(SLOT).unwrap();
            while !over.load(Ordering::Relaxed) {
                let now = tables.windows(SLOT).unwrap();
                for (before, now) in before.sides.iter().zip(&now.sides) {
                    assert!(!is_after(before.sent, now.sent) && !is_after(before.edge, now.edge));
                    assert!(!is_after(before.acknowledged, now.acknowledged));
                }
                before = now;
                watched.fetch_add(1, Ordering::Relaxed);
                std::thread::yield_now();
            }
        };
        let results = std::thread::scope(|scope| {
            let run = &run;
            let sides = [0, 1].map(|own| {
                scope.spawn({
                    let runner = &runners[own];
                    move || run(own, runner)
                })
            });
            scope.spawn(watch);
            sides.map(|side| side.join().unwrap())
        });
        let now = tables.windows(SLOT).unwrap();
        for (own, (below, up)) in results.into_iter().enumerate() {
            println!("side {own}: {below} below, {up} up");
            assert_eq!(below + up, ROUNDS);
            // Each acknowledges only what it has heard, so nothing legal is in doubt; but for what looks as
            // if its checksum were open, one of 65,536.
            assert!(up < 20, "side {own}: {up}");
            assert_eq!(now.sides[own].sent, heard[own].load(Ordering::Relaxed));
        }
        let counts = tables.counts(SLOT, bartizan_xdp::boot_time()).unwrap();
        assert_eq!(counts.packets, results.map(|(below, _)| u64::from(below)));
        assert!(watched.load(Ordering::Relaxed) > 0);
    });
}
