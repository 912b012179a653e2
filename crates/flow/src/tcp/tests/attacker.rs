// SPDX-License-Identifier: Apache-2.0
//! An off-path attacker that knows addresses and ports and guesses numbers (RFC 5961): segments that no
//! current receiver accepts neither end nor move a connection, in any window, and none of their bytes are
//! read.

use super::closing::Host;
use super::*;
use bartizan_testkit::random::Random;

const F: TcpFlags = TcpFlags::FIN;
const EVIL: &[u8] = &[b'e'; 100];

/// Forged segments of a host, which the other one treats as old acknowledgements at most.
pub(super) fn made_up(own: &Host, other: &Host, dice: &mut Random) -> Vec<Segment<'static>> {
    let ahead = |dice: &mut Random| own.nxt + 301 + dice.below(4_000) as u32;
    let window = |dice: &mut Random| own.una + dice.below(8_000) as u32;
    let old = other.una - dice.below(50) as u32;
    // Beyond everything that the other host sends, within its window or not.
    let unsent = other.nxt + 301 + dice.below(6_000) as u32;
    let load = if dice.below(2) == 0 { EVIL } else { b"" };
    match dice.below(10) {
        0 => vec![segment(FA, ahead(dice), old, b"")],
        1 => vec![segment(S, ahead(dice), 0, b"")],
        2 => vec![segment(A, window(dice), unsent, load)],
        3 => vec![segment(FA, window(dice), unsent, load)],
        4 => vec![segment(*dice.pick(&[R, RA]), ahead(dice), old, b"")],
        5 => vec![segment(F, window(dice), 0, load)],
        6 => {
            // One claims its sender's position, the others rely on it.
            let at = ahead(dice);
            vec![segment(A, at, old, b""), segment(R, at, 0, b""), segment(RA, at, old, b"")]
        }
        7 => vec![segment(
            A,
            window(dice),
            other.una.wrapping_sub(100_000 + dice.draw() as u32 % (1 << 30)),
            load,
        )],
        8 => {
            // Acknowledged long ago: a receiver ignores all of it, including its acknowledgement. (The single
            // number after a FIN is not guessed.)
            let gone = own.una.wrapping_sub(101 + dice.draw() as u32 % (1 << 30));
            vec![segment(A, gone, other.nxt - 1, load)]
        }
        _ => {
            let mut closed = segment(A, ahead(dice), old, b"");
            closed.window = 0;
            let ancient = other.una.wrapping_sub(100_000);
            vec![closed, segment(A, window(dice), ancient, EVIL)]
        }
    }
}

fn strict() -> StreamConfig {
    StreamConfig { strict: true, ..inline() }
}

/// A rig in which 1,000 bytes of each side have passed and are acknowledged.
fn under_way() -> Rig {
    let mut rig = Rig::open(strict());
    rig.put(ToServer, A, 101, 501, &[b'x'; 1_000]);
    rig.put(ToClient, A, 501, 1_101, &[b'x'; 1_000]);
    rig.put(ToServer, A, 1_101, 1_501, b"");
    rig
}

/// Checks that the sender's true segments are forwarded and read.
fn goes_on(rig: &mut Rig, direction: Direction, seq: u32, ack: u32, case: &str) {
    let before = rig.read[direction].len();
    let out = rig.put(direction, A, seq, ack, &[b'x'; 500]);
    assert_eq!((out.advice, out.rejected), (Advice::Forward, false), "{case}: {:?}", out.events);
    assert_eq!(&rig.read[direction][before..], "x".repeat(500), "{case}");
}

/// Sequence numbers may begin anywhere: replies to a SYN are accepted, and so are both sides'
/// acknowledgements of the first numbers.
#[test]
fn a_handshake_is_answered_wherever_its_numbers_begin() {
    const PARTS: [u32; 9] =
        [0, 1, 100, 0x4000_0000, 0x7fff_ffff, 0x8000_0000, 0x8000_0001, 0xc000_0000, u32::MAX];
    let policies = [HostPolicy::Bsd, HostPolicy::Linux, HostPolicy::Solaris, HostPolicy::Hpux11];
    for (own, other) in PARTS.iter().flat_map(|own| PARTS.map(|other| (*own, other))) {
        for policy in policies {
            let open = || {
                let mut rig = Rig::new(StreamConfig { strict: true, ..inline() });
                rig.policy = policy;
                rig.put(ToServer, S, own, 0, b"");
                rig
            };
            let next = (own.wrapping_add(1), other.wrapping_add(1));
            let out = open().put(ToClient, RA, 0, next.0, b"");
            assert_eq!((out.advice, out.state), (Advice::Forward, TcpState::Closed), "{own:#x} {policy:?}");
            let mut rig = open();
            for (direction, flags, seq, ack, data) in [
                (ToClient, SA, other, next.0, &b""[..]),
                (ToServer, A, next.0, next.1, b""),
                (ToServer, A, next.0, next.1, b"ask"),
                (ToClient, A, next.1, next.0.wrapping_add(3), b"answer"),
                (ToClient, FA, next.1.wrapping_add(6), next.0.wrapping_add(3), b""),
                (ToServer, FA, next.0.wrapping_add(3), next.1.wrapping_add(7), b""),
                (ToClient, A, next.1.wrapping_add(7), next.0.wrapping_add(4), b""),
            ] {
                let out = rig.put(direction, flags, seq, ack, data);
                let at = format!("{own:#x} {other:#x} {policy:?} {flags:?} {:?}", out.events);
                assert_eq!((out.advice, out.rejected), (Advice::Forward, false), "{at}");
            }
            assert_eq!(rig.session.state(), TcpState::Closed);
            // A server that has opened refuses after all: after its reply, and after the client's.
            for last in 0..2 {
                let mut rig = open();
                rig.put(ToClient, SA, other, next.0, b"");
                if last == 1 {
                    rig.put(ToServer, A, next.0, next.1, b"");
                }
                let out = rig.put(ToClient, RA, next.1, next.0, b"");
                assert_eq!(
                    (out.advice, out.state),
                    (Advice::Forward, TcpState::Closed),
                    "{own:#x} {other:#x}"
                );
            }
        }
    }
}

#[test]
fn who_acknowledges_what_was_not_sent_moves_nothing() {
    for ahead in [1, 500, 8_000] {
        let mut rig = under_way();
        for (seq, window, load) in [(1_101, 8_192, &b""[..]), (1_101, 8_192, EVIL), (1_301, 1_000, EVIL)] {
            let mut beyond = segment(A, seq, 1_501 + ahead, load);
            beyond.window = window;
            let out = rig.handle(ToServer, &beyond);
            assert!(matches!(out.advice, Advice::Drop(_)), "{ahead} {seq} {window}");
        }
        assert_eq!(rig.session.last_ack(ToClient), Seq(1_501));
        goes_on(&mut rig, ToClient, 1_501, 1_101, "acknowledged before it was sent");
        goes_on(&mut rig, ToServer, 1_101, 2_001, "in place of what was made up");
    }
}

#[test]
fn a_reset_counts_where_its_receiver_is() {
    use HostPolicy as P;
    for policy in [P::Bsd, P::Linux, P::OldLinux, P::Solaris, P::Hpux11, P::Windows, P::Vista] {
        for ahead in [1, 500, 8_000] {
            let mut rig = under_way();
            rig.policy = policy;
            for flags in [R, RA] {
                let out = rig.put(ToServer, flags, 1_101 + ahead, if flags == R { 0 } else { 1_501 }, b"");
                // Forwarded: its receiver answers it, and a true sender resets with the right number (RFC
                // 5961 section 3.2).
                let what = format!("{policy:?} {ahead}");
                assert_eq!((out.state, out.advice), (TcpState::Established, Advice::Forward), "{what}");
            }
            goes_on(&mut rig, ToServer, 1_101, 1_501, "behind a RST in the window");
            let out = rig.put(ToServer, R, 1_601, 0, b"");
            assert_eq!(out.state, TcpState::Closed, "{policy:?}: the true one");
        }
    }
}

/// A FIN needs the number of its own stream and one of the other's: one of both is not enough.
#[test]
fn a_fin_without_an_acknowledgement_is_none() {
    for seq in [1_101, 1_102, 5_000] {
        let mut rig = under_way();
        let out = rig.put(ToServer, F, seq, 0, b"");
        assert_eq!((out.state, out.advice), (TcpState::Established, Advice::Drop(Reason::StreamError)));
        assert!(!rig.session.has_closed(ToServer));
        goes_on(&mut rig, ToServer, 1_101, 1_501, "behind a FIN without ACK");
    }
}

/// A receiver with a closed window does not accept very old acknowledgements either (RFC 5961 section 5.2).
#[test]
fn while_a_window_is_closed_old_acknowledgements_are_none() {
    for back in [100_000, 1 << 20, 1 << 30] {
        let mut rig = under_way();
        let mut full = segment(A, 1_501, 1_101, b"");
        full.window = 0;
        rig.handle(ToClient, &full);
        let out = rig.put(ToClient, A, 1_501, 1_101u32.wrapping_sub(back), &[b'e'; 500]);
        assert!(matches!(out.advice, Advice::Drop(_)), "{back}: {:?}", out.advice);
        goes_on(&mut rig, ToClient, 1_501, 1_101, "in place of what was made up");
    }
}

/// Data beyond the window does not leave, and none of it is kept for later data.
#[test]
fn what_lies_beyond_the_window_stands_for_nothing() {
    for away in [8_192 - 100, 8_192, 20_000, 60_000] {
        let mut rig = under_way();
        let out = rig.put(ToClient, A, 1_501 + away, 1_101, &[b'e'; 500]);
        assert!(matches!(out.advice, Advice::Drop(_)), "{away}: {:?}", out.advice);
        let mut at = 1_501;
        while at < 70_000 {
            goes_on(&mut rig, ToClient, at, 1_101, "up to what was made up");
            at += 500;
            rig.put(ToServer, A, 1_101, at, b"");
        }
    }
}

#[test]
fn acknowledged_blocks_of_what_was_not_sent_widen_no_window() {
    let mut rig = under_way();
    rig.session.flags |= crate::tcp::session::SessionFlags::SACK_OK;
    let before = rig.session.window_edge(ToClient);
    for step in 0..8u32 {
        let blocks =
            [(1_601 + step).to_be_bytes(), (rig.session.window_edge(ToClient).0).to_be_bytes()].concat();
        let mut made_up = segment(A, 1_101, 1_501, b"");
        made_up.options.sack = &blocks;
        rig.handle(ToServer, &made_up);
    }
    assert_eq!(rig.session.window_edge(ToClient), before);
}

/// A server that has the connection shows it; a forged reply to the SYN after that has no effect.
#[test]
fn a_server_that_goes_on_has_not_forgotten_its_connection() {
    let mut rig = under_way();
    rig.put(ToServer, S, 7_000, 0, b"");
    rig.put(ToClient, A, 1_501, 1_101, b"");
    let out = rig.put(ToClient, SA, 9_000, 7_001, b"");
    assert_eq!((out.state, out.advice), (TcpState::Established, Advice::Drop(Reason::StreamError)));
    goes_on(&mut rig, ToServer, 1_101, 1_501, "behind a made-up answer");
}

/// A server that has lost a connection answers the SYN of the next one, which begins with that answer. A SYN
/// that is sent again meanwhile has a newer timestamp; the server echoes the first one's.
#[test]
fn a_server_that_forgot_begins_the_next_connection_with_its_answer() {
    // Of the SYN that is sent again, of the echo. The client goes on with it, whatever it is.
    for (again, echo) in [
        (6_000, 5_000),
        (6_000, 6_000),
        (5_000_u32.wrapping_add(127_000_000), 5_000),
        (400, 400_u32.wrapping_sub(1_000)),
        (6_000, 6_001),
        (6_000, 6_000_u32.wrapping_sub(127_000_001)),
    ] {
        let opens = |ts| {
            let mut syn = segment(S, 70_000, 0, b"");
            syn.options.ts = Some((ts, 0));
            syn
        };
        let answer = |echo| {
            let mut syn_ack = segment(SA, 9_000, 70_001, b"");
            syn_ack.options.ts = Some((77, echo));
            syn_ack
        };
        for sent in [&[echo][..], &[echo, again]] {
            let mut rig = stamped(None);
            for ts in sent {
                assert_eq!(rig.handle(ToServer, &opens(*ts)).advice, Advice::Forward);
            }
            assert!(rig.session.take_opening_syn(&segment(SA, 9_000, 70_002, b"")).is_none());
            assert!(rig.handle(ToClient, &answer(echo)).reuse, "a new flow");
            let syn = rig.session.take_opening_syn(&answer(echo)).unwrap();
            rig = Rig::new(rig.config);
            rig.session.begin(&syn, &rig.config, &mut rig.counters);
            let out = rig.handle(ToClient, &answer(echo));
            assert_eq!(out.advice, Advice::Forward, "{again} {echo}");
            let mut last = segment(A, 70_001, 9_001, b"");
            last.options.ts = Some((sent[sent.len() - 1].wrapping_add(1), 77));
            let out = rig.handle(ToServer, &last);
            assert_eq!(out.state, TcpState::Established, "{again} {echo}");
        }
    }
}

/// The last byte of data that is overtaken while a connection closes is known: a RST after it is the true
/// one.
#[test]
fn a_reset_behind_what_overtook_counts_while_one_side_has_closed() {
    let mut rig = under_way();
    rig.put(ToServer, FA, 1_101, 1_501, b"");
    rig.put(ToClient, A, 2_001, 1_102, &[b'x'; 500]);
    let out = rig.put(ToClient, R, 2_400, 0, b"");
    assert_eq!((out.state, out.advice), (TcpState::CloseWait, Advice::Forward));
    let out = rig.put(ToClient, R, 2_501, 0, b"");
    assert_eq!(out.state, TcpState::Closed);
}

/// A connection with timestamps, at 1,000 for the client and 2,000 for the server; `closing`: the side that
/// has closed.
fn stamped(closing: Option<Direction>) -> Rig {
    let mut rig = Rig::new(strict());
    let mut put = |direction, flags, seq, ack, load, ts| {
        let mut sent = segment(flags, seq, ack, load);
        sent.options.ts = Some(ts);
        rig.handle(direction, &sent)
    };
    put(ToServer, S, 100, 0, b"", (1_000, 0));
    put(ToClient, SA, 500, 101, b"", (2_000, 1_000));
    put(ToServer, A, 101, 501, b"", (1_000, 2_000));
    put(ToClient, A, 501, 101, &[b'x'; 3_000], (2_000, 1_000));
    put(ToServer, A, 101, 3_501, &[b'x'; 3_000], (1_000, 2_000));
    put(ToClient, A, 3_501, 3_101, b"", (2_000, 1_000));
    match closing {
        Some(ToServer) => {
            put(ToServer, FA, 3_101, 3_501, b"", (1_000, 2_000));
            put(ToClient, A, 3_501, 3_102, b"", (2_000, 1_000));
        }
        Some(ToClient) => {
            put(ToClient, FA, 3_501, 3_101, b"", (2_000, 1_000));
            put(ToServer, A, 3_101, 3_502, b"", (1_000, 2_000));
        }
        None => {}
    }
    rig
}

/// A receiver remembers the timestamp of segments at its position only (RFC 7323 section 4.3): one from far
/// ahead, at any other number, does not make the sender's segments look old.
#[test]
fn a_timestamp_from_the_future_counts_only_where_the_receiver_is() {
    for closing in [None, Some(ToServer), Some(ToClient)] {
        for away in [-2_000_000_000i32, -100_000, -2_000, -1_400, 700, 4_000] {
            for ahead in [1_000u32, 1 << 28, 1 << 30, (1 << 31) - 100] {
                for (direction, own, other, clock) in
                    [(ToServer, 3_101u32, 3_501, 1_000), (ToClient, 3_501, 3_101, 2_000u32)]
                {
                    if closing == Some(direction) {
                        continue;
                    }
                    let fin = u32::from(closing == Some(direction.flip()));
                    let mut rig = stamped(closing);
                    let mut bare = segment(A, own.wrapping_add_signed(away), other + fin, b"");
                    bare.options.ts = Some((clock + ahead, 0));
                    rig.handle(direction, &bare);
                    let mut true_one = segment(A, own, other + fin, &[b'x'; 500]);
                    true_one.options.ts = Some((clock + 1, 0));
                    let out = rig.handle(direction, &true_one);
                    let case = format!("{closing:?} {away} {ahead} {direction:?}");
                    assert_eq!(
                        (out.advice, out.rejected),
                        (Advice::Forward, false),
                        "{case} {:?}",
                        out.events
                    );
                    assert_eq!(rig.read[direction].len(), 3_500, "{case}");
                }
            }
        }
    }
}

/// A server that has closed its own side only still reads. The client forges a FIN that is lost on its way,
/// and sends data in its place, before or after: the server acknowledges the data, which looks like an
/// acknowledgement of the FIN. The connection stays open.
#[test]
fn data_in_the_place_of_a_made_up_fin_keeps_a_connection_open() {
    let (fin, data) = ((FA, b"".as_slice()), (A, b"x".as_slice()));
    for sent in [vec![fin, data], vec![data, fin], vec![fin, data, fin], vec![fin]] {
        let mut rig = under_way();
        rig.put(ToClient, FA, 1_501, 1_101, b"");
        rig.put(ToServer, A, 1_101, 1_502, b"");
        for (flags, load) in &sent {
            let out = rig.put(ToServer, *flags, 1_101, 1_502, load);
            assert_eq!(out.advice, Advice::Forward, "{flags:?}");
        }
        let out = rig.put(ToClient, A, 1_502, 1_102, b"");
        let over = sent.len() == 1;
        assert_eq!(out.state == TcpState::Closed, over, "{sent:?}");
        assert_eq!(rig.put(ToServer, S, 90_000, 0, b"").reuse, over, "{sent:?}");
        if over {
            continue;
        }
        let out = rig.put(ToServer, A, 1_102, 1_502, b"more");
        assert_eq!((out.advice, out.stored), (Advice::Forward, true), "{sent:?}");
        assert_ne!(rig.put(ToClient, A, 1_502, 1_106, b"").state, TcpState::Closed, "{sent:?}");
    }
}

/// As before, with more than one FIN, or with data that arrives out of order.
#[test]
fn data_where_one_of_several_fins_was_keeps_a_connection_open() {
    let out_of_order = vec![(A, 1_102, "b"), (A, 1_101, "a"), (FA, 1_102, "")];
    let moved = vec![(FA, 2_000, ""), (A, 1_101, "a"), (FA, 1_101, "")];
    let honest = vec![(FA, 1_102, ""), (A, 1_101, "a"), (FA, 1_102, "")];
    for (sent, acknowledged, over) in
        [(out_of_order, 1_103, false), (moved, 1_102, false), (honest, 1_103, true)]
    {
        let mut rig = under_way();
        rig.put(ToClient, FA, 1_501, 1_101, b"");
        rig.put(ToServer, A, 1_101, 1_502, b"");
        for (flags, seq, load) in &sent {
            rig.put(ToServer, *flags, *seq, 1_502, load.as_bytes());
        }
        let out = rig.put(ToClient, A, 1_502, acknowledged, b"");
        assert_eq!(out.state == TcpState::Closed, over, "{sent:?}");
        assert_eq!(rig.put(ToServer, S, 90_000, 0, b"").reuse, over, "{sent:?}");
    }
}

/// A server that answered with a cookie may take the number before the client's first for the beginning. Data
/// from further before covers that place.
#[test]
fn data_that_begins_before_a_stream_does_not_move_its_beginning() {
    for (before, load) in
        [(9, "xxxxxxxxxGET /"), (9, "xxxxxxxxGET /"), (300, &"x".repeat(310)), (1, "xGET /")]
    {
        let mut rig = Rig::new(strict());
        rig.put(ToServer, S, 100, 0, b"");
        rig.put(ToClient, SA, 500, 101, b"");
        assert_eq!(rig.put(ToServer, A, 100, 501, b"").advice, Advice::Forward, "as one that keeps alive");
        rig.put(ToServer, A, 101, 501, b"");
        let out = rig.put(ToServer, A, 101u32.wrapping_sub(before), 501, load.as_bytes());
        assert_eq!((out.advice, out.stored), (Advice::Drop(Reason::StreamError), false), "{before}");
        assert_eq!(rig.put(ToServer, A, 101, 501, b"GET /").advice, Advice::Forward);
        assert_eq!(rig.put(ToClient, A, 501, 106, b"").advice, Advice::Forward);
        // With both sides established, a retransmission has no effect.
        assert_eq!(rig.put(ToServer, A, 101, 501, b"GET /").advice, Advice::Forward);
    }
}

/// A receiver without room accepts the byte of a probe nevertheless and acknowledges it: the next probe
/// follows that byte.
#[test]
fn who_takes_the_bytes_of_probes_is_asked_again() {
    let mut rig = under_way();
    let mut full = segment(A, 1_501, 1_101, b"");
    full.window = 0;
    rig.handle(ToClient, &full);
    for taken in 0..5 {
        let out = rig.put(ToServer, A, 1_101 + taken, 1_501, b"z");
        assert_eq!((out.advice, out.rejected), (Advice::Forward, false), "{taken}");
        full.ack = Seq(1_102 + taken);
        assert_eq!(rig.handle(ToClient, &full).advice, Advice::Forward, "{taken}");
    }
    full.window = 8_192;
    rig.handle(ToClient, &full);
    let out = rig.put(ToServer, A, 1_106, 1_501, b"there is room");
    assert_eq!((out.advice, out.stored), (Advice::Forward, true));
}
