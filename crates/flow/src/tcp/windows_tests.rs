// SPDX-License-Identifier: Apache-2.0
//! Segments that pass a comparison at another level pass at the host as well, for any session and segment;
//! and the return of numbers.

use super::super::tests::{Rig, segment};
use super::*;
use crate::tcp::{
    Advice, Arrival, HostPolicy, Outcome, PacketKind, Segment, SegmentOptions, StreamConfig, StreamContext,
    StreamEvent, StreamMode, TcpFlags,
};
use bartizan_base::Direction::{ToClient, ToServer};
use bartizan_packet::windows::{self as rule, Line, WINDOW_WORDS, Windows};
use bartizan_testkit::random::Random;
use core::sync::atomic::AtomicU64;

const S: TcpFlags = TcpFlags::SYN;
const A: TcpFlags = TcpFlags::ACK;
const SA: TcpFlags = TcpFlags::SYN.union(TcpFlags::ACK);

fn strict() -> StreamConfig {
    StreamConfig { mode: StreamMode::Inline, strict: true, ..StreamConfig::default() }
}

/// A session without readers, as one whose functions are done with its payload.
struct Watched {
    rig: Rig,
    timestamps: bool,
    clock: [u32; 2],
}

impl Watched {
    fn open(random: &mut Random, policy: HostPolicy) -> Self {
        let mut rig = Rig::new(strict());
        rig.policy = policy;
        let timestamps = random.percent(60);
        let clock = [random.draw() as u32 | 1, random.draw() as u32 | 1];
        let mut watched = Watched { rig, timestamps, clock };
        let [client, server] = [random.draw() as u32, u32::MAX - random.below(9_000) as u32];
        let shift = |random: &mut Random| Some(random.below(15) as u8);
        let scales = [shift(random), shift(random)];
        for (direction, flags, seq, ack) in [
            (ToServer, S, client, 0),
            (ToClient, SA, server, client.wrapping_add(1)),
            (ToServer, A, client.wrapping_add(1), server.wrapping_add(1)),
        ] {
            let mut opening = segment(flags, seq, ack, b"");
            opening.options = watched.options(direction, 0);
            if flags.contains(S) {
                opening.options.wscale = scales[usize::from(direction == ToClient)];
            }
            watched.handle(direction, &opening);
        }
        assert!(watched.rig.session.windows().is_some());
        watched
    }

    fn options(&mut self, direction: Direction, back: u32) -> SegmentOptions<'static> {
        let clock = &mut self.clock[usize::from(direction == ToClient)];
        *clock = clock.wrapping_add(1);
        SegmentOptions {
            ts: self.timestamps.then(|| (clock.wrapping_sub(back), 0)),
            ..SegmentOptions::default()
        }
    }

    fn handle(&mut self, direction: Direction, segment: &Segment<'_>) -> Outcome {
        let Rig { session, config, counters, budget, policy, seconds, .. } = &mut self.rig;
        let arrival = Arrival { direction, now: Timestamp::from_parts(*seconds, 0), policy: *policy };
        let mut context = StreamContext { config, counters, budget };
        let mut out = Outcome::default();
        session.handle(segment, arrival, None, &mut context, &mut out);
        out
    }
}

fn compared(segment: &Segment<'_>) -> rule::WindowSegment {
    rule::WindowSegment {
        sequence: segment.seq.0,
        end: segment.end().0,
        acknowledged: segment.ack.0,
        window: segment.window,
        timestamp: segment.options.ts.map(|(own, _)| own),
        urgent: segment.has(TcpFlags::URG),
    }
}

/// The session's line; the client is the lower endpoint.
fn line_of(session: &TcpSession) -> Option<[AtomicU64; WINDOW_WORDS]> {
    let SharedWindows { sides, timestamps } = session.windows()?;
    let words: [AtomicU64; WINDOW_WORDS] = Default::default();
    Line::new(&words).write(&Windows { sides: [sides.to_server, sides.to_client], timestamps });
    Some(words)
}

/// Whether the stateful firewall forwards a plain segment of an established connection, by the result of
/// tracking.
fn is_taken(session: &TcpSession, direction: Direction, segment: &Segment<'_>, out: &Outcome) -> bool {
    let old = out.events.iter().any(|event| event == StreamEvent::EstPktBeforeLastAck);
    let telling = |event| {
        use StreamEvent as E;
        // The firewall ignores these.
        !matches!(event, E::EstPktBeforeLastAck | E::PktSpuriousRetransmission | E::PktBadWindowUpdate)
    };
    out.state == TcpState::Established
        && out.advice == Advice::Forward
        && (!out.rejected || old)
        && !out.events.iter().any(telling)
        && segment.end().at_least(session.oldest(direction))
}

fn near(random: &mut Random, number: u32) -> u32 {
    let far = [1, 2, 100, 9_000, 70_000, 1 << 24, (1 << 24) + 1, 1 << 29, 1 << 30, 1 << 31];
    match random.below(12) {
        0 => number.wrapping_add(*random.pick(&far)),
        1 => number.wrapping_sub(*random.pick(&far)),
        2 => random.draw() as u32,
        _ => number,
    }
}

#[test]
fn what_goes_on_elsewhere_goes_on_here_whatever_came_before() {
    use HostPolicy as P;
    let policies =
        [P::Bsd, P::Linux, P::OldLinux, P::Solaris, P::Hpux11, P::Windows, P::Windows2k3, P::Vista];
    let (mut went, mut stayed) = (0u32, 0u32);
    for seed in 0..2_000 {
        let mut random = Random::new(seed);
        let mut watched = Watched::open(&mut random, policies[seed as usize % policies.len()]);
        let load = vec![b'x'; 1_400];
        for step in 0..60 {
            let direction = if random.percent(50) { ToServer } else { ToClient };
            let session = &watched.rig.session;
            let (own, other) = (&session.peers[direction], &session.peers[direction.flip()]);
            let at = if random.percent(70) { own.next_seq.0 } else { own.last_ack.0 };
            let ack = if random.percent(60) { other.next_seq.0 } else { other.last_ack.0 };
            let seq = near(&mut random, at);
            let ack = near(&mut random, ack);
            let length = if random.percent(40) { 0 } else { random.below(load.len()) };
            let window = *random.pick(&[0, 1, 100, 8_192, u16::MAX]);
            let back = if random.percent(90) { 0 } else { near(&mut random, 1) };
            let mut segment = Segment { window, ..segment(A, seq, ack, &load[..length]) };
            segment.options = watched.options(direction, back);
            if random.percent(3) {
                segment.options.ts = None;
            }
            let Some(words) = line_of(&watched.rig.session) else { break };
            let line = Line::new(&words);
            let goes = line.advance(direction == ToClient, &compared(&segment));
            let out = watched.handle(direction, &segment);
            let case = format!("seed {seed} step {step}: {direction:?} {seq} {ack} {out:?}");
            if !goes {
                stayed += 1;
                continue;
            }
            went += 1;
            assert!(is_taken(&watched.rig.session, direction, &segment, &out), "{case}");
            let odd = out.events.iter().any(|event| event == StreamEvent::PktBadWindowUpdate);
            if odd || out.kind.contains(PacketKind::ZERO_WINDOW_PROBE) {
                // It is forwarded without effect.
                continue;
            }
            // The session is at the line's numbers, or ahead (acknowledged blocks, probes).
            let Some(now) = watched.rig.session.windows() else { panic!("{case}") };
            for (here, there) in [now.sides.to_server, now.sides.to_client].iter().zip(line.read().sides) {
                let least = |a: u32, b: u32| Seq(a).at_least(Seq(b));
                assert!(least(here.sent, there.sent), "{case}: {here:?} {there:?}");
                assert!(least(here.acknowledged, there.acknowledged), "{case}: {here:?} {there:?}");
                assert!(least(here.edge, there.edge), "{case}: {here:?} {there:?}");
            }
            watched.rig.seconds += 1;
        }
    }
    assert!(went > 20_000 && stayed > 10_000, "{went} {stayed}");
}

fn open() -> Rig {
    let mut rig = Rig::new(strict());
    rig.handle(ToServer, &segment(S, 100, 0, b""));
    rig.handle(ToClient, &segment(SA, 500, 101, b""));
    rig.handle(ToServer, &segment(A, 101, 501, b""));
    rig
}

fn side(sent: u32, acknowledged: u32, window: u32) -> WindowSide {
    let edge = acknowledged.wrapping_add(window);
    WindowSide { sent, acknowledged, edge, timestamp: 0, scale: 0 }
}

fn later_by(bytes: u32) -> SharedWindows {
    let at = |begin: u32| side(begin.wrapping_add(bytes), begin.wrapping_add(bytes), 8_192);
    SharedWindows { sides: PerDirection::new(at(101), at(501)), timestamps: false }
}

#[test]
fn numbers_are_taken_over_as_they_are_and_once() {
    for bytes in [5_000, 900_000_000, 3_000_000_000, 4_200_000_000] {
        let mut rig = open();
        let now = Timestamp::from_parts(1_000, 0);
        rig.session.take_over(&later_by(bytes), now);
        assert_eq!(rig.session.windows(), Some(later_by(bytes)), "{bytes}");
        // A repeated report, and a slightly older one: nothing moves.
        let before = rig.session.windows();
        rig.session.take_over(&later_by(bytes), now);
        rig.session.take_over(&later_by(bytes - 1_000), now);
        assert_eq!(rig.session.windows(), before);
        // A RST is judged by the current window.
        let (client, server) = (101u32.wrapping_add(bytes), 501u32.wrapping_add(bytes));
        for policy in [HostPolicy::Bsd, HostPolicy::Linux] {
            rig.policy = policy;
            let out = rig.handle(ToServer, &segment(TcpFlags::RST, client.wrapping_add(9_000), 0, b""));
            assert_eq!(out.state, TcpState::Established, "{bytes}");
        }
        let out = rig.handle(ToServer, &segment(TcpFlags::RST, client, server, b""));
        assert_eq!(out.state, TcpState::Closed, "{bytes}");
    }
}

/// A FIN was queued in the ring while segments with its sender's acknowledgements passed below.
#[test]
fn what_was_overtaken_may_acknowledge_as_much_less_but_for_a_rst() {
    let fin = TcpFlags::FIN.union(A);
    for (behind, taken) in [(5_000, true), (200_000, true), (2_000_000, false)] {
        let mut rig = open();
        rig.session.take_over(&later_by(200_000), Timestamp::ZERO);
        let (client, server) = (101 + 200_000u32, 501 + 200_000u32);
        let rst = TcpFlags::RST.union(A);
        let out = rig.handle(ToServer, &segment(rst, client, server.wrapping_sub(behind.max(9_000)), b""));
        assert_eq!(out.state, TcpState::Established, "{behind}");
        let out = rig.handle(ToServer, &segment(fin, client, server.wrapping_sub(behind), b""));
        assert_eq!(out.state == TcpState::CloseWait, taken, "{behind}");
    }
}

/// The server's FIN is queued in one ring, while the server's later acknowledgements pass below; the client's
/// FIN is handled before it.
#[test]
fn a_fin_that_was_overtaken_by_its_own_number_still_closes() {
    for (asked, load) in [(false, &b""[..]), (true, b""), (true, b"the last bytes")] {
        let mut rig = open();
        let fin = TcpFlags::FIN.union(A);
        rig.handle(ToServer, &segment(fin, 101, 501, b""));
        assert_eq!(rig.session.state(), TcpState::CloseWait);
        let mut windows = later_by(0);
        windows.sides.to_client.sent = 502 + load.len() as u32;
        rig.session.take_over(&windows, Timestamp::ZERO);
        let last = segment(fin, 501, 102, load);
        if asked {
            rig.session.put_fin_first(&last, ToClient);
        }
        rig.handle(ToClient, &last);
        assert_eq!(rig.session.state() == TcpState::LastAck, asked);
        // After the FIN has arrived nothing is put back.
        let next = rig.session.next_seq(ToClient);
        rig.session.put_fin_first(&last, ToClient);
        assert_eq!(rig.session.next_seq(ToClient), next);
    }
}

#[test]
fn of_what_numbers_do_not_tell_there_are_none() {
    let mut rig = Rig::new(StreamConfig { midstream: true, ..strict() });
    rig.handle(ToServer, &segment(A, 101, 501, b"data"));
    assert!(rig.session.exists() && rig.session.windows().is_none(), "picked up in the middle");
    let mut rig = open();
    rig.handle(ToServer, &segment(TcpFlags::FIN.union(A), 101, 501, b""));
    assert!(rig.session.windows().is_none(), "it closes");
    assert!(TcpSession::default().windows().is_none());
    let mut rig = Rig::new(strict());
    for (direction, flags, seq, ack) in
        [(ToServer, S, 100, 0), (ToClient, SA, 500, 101), (ToServer, A, 101, 501)]
    {
        let mut zero = segment(flags, seq, ack, b"");
        zero.options.ts = Some((0, 0));
        rig.handle(direction, &zero);
    }
    let zero = rig.session.flags.contains(SessionFlags::TIMESTAMP);
    assert!(!zero || rig.session.windows().is_none(), "timestamps that begin at 0");
}

/// Bare segments far beyond the window are easily forged: they must not decide which RST is believed.
#[test]
fn a_bare_segment_beyond_the_window_drags_no_number() {
    let mut rig = open();
    for far in [10_000u32, 1 << 20, 1 << 30] {
        let out = rig.handle(ToServer, &segment(A, 101 + far, 501, b""));
        assert!(out.rejected, "{far}");
        assert_eq!(rig.session.next_seq(ToServer), Seq(101), "{far}");
    }
    let out = rig.handle(ToServer, &segment(TcpFlags::RST, 101, 0, b""));
    assert_eq!(out.state, TcpState::Closed, "the true one");
}
