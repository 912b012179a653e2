// SPDX-License-Identifier: Apache-2.0
//! RSTs that their receiver does not believe, but answers (RFC 5961 section 3.2): they must reach it, and
//! have no effect here.

use super::*;

/// The position of each side of an open connection, with a window of 8,192 bytes.
const NEXT: [(Direction, u32, u32); 2] = [(ToServer, 101, 501), (ToClient, 501, 101)];

#[test]
fn a_rst_in_the_window_reaches_its_receiver_and_is_not_believed() {
    for strict in [false, true] {
        for (direction, next, other) in NEXT {
            let put = |rig: &mut Rig, flags, seq, data| rig.put(direction, flags, seq, other, data);
            for (ahead, passes) in [(1, true), (1448, true), (8191, true), (8192, true), (8193, false)] {
                for flags in [R, RA] {
                    let mut rig = Rig::open(StreamConfig { strict, ..inline() });
                    let what = format!("{direction:?}, {ahead} ahead, {flags:?}, strict {strict}");
                    let out = rig.handle(
                        direction,
                        &segment(flags, next + ahead, if flags == R { 0 } else { other }, b""),
                    );
                    assert_eq!(out.advice == Advice::Forward, passes, "{what}: {:?}", out.events);
                    assert_eq!(rig.session.state(), TcpState::Established, "{what}");
                    // The lost data arrives and is read, and the exact RST is believed.
                    assert_eq!(put(&mut rig, A, next, b"lost").advice, Advice::Forward, "{what}");
                    assert_eq!(rig.read[direction], "lost", "{what}");
                    put(&mut rig, R, next + 4, b"");
                    assert_eq!(rig.session.state(), TcpState::Closed, "{what}");
                }
            }
        }
    }
}

#[test]
fn a_rst_in_the_window_that_brings_data_or_acknowledges_what_was_not_sent_stays() {
    for strict in [false, true] {
        let mut rig = Rig::open(StreamConfig { strict, ..inline() });
        for (seq, ack, data) in [(601, 101, &b"data"[..]), (601, 90_000, b"")] {
            let out = rig.put(ToClient, RA, seq, ack, data);
            assert_eq!(out.advice, Advice::Drop(Reason::StreamError), "{seq} {ack}");
        }
        assert_eq!(rig.session.state(), TcpState::Established);
    }
}

/// In every state of a close, and during the handshake.
#[test]
fn it_is_the_same_while_a_connection_opens_and_closes() {
    let config = StreamConfig { strict: true, ..inline() };
    let closes: [&[(Direction, TcpFlags, u32, u32)]; 5] = [
        &[(ToServer, FA, 101, 501)],
        &[(ToServer, FA, 101, 501), (ToClient, A, 501, 102)],
        &[(ToClient, FA, 501, 101)],
        &[(ToClient, FA, 501, 101), (ToServer, A, 101, 502)],
        &[(ToClient, FA, 501, 101), (ToServer, FA, 101, 501)],
    ];
    for rows in closes {
        let mut rig = Rig::open(config);
        rows.iter().for_each(|(direction, flags, seq, ack)| {
            rig.put(*direction, *flags, *seq, *ack, b"");
        });
        let state = rig.session.state();
        for (direction, next) in [(ToServer, 1101), (ToClient, 1501)] {
            let out = rig.put(direction, R, next, 0, b"");
            assert_eq!((out.advice, out.state), (Advice::Forward, state), "{direction:?} in {state:?}");
            let out = rig.put(direction, R, next + 80_000, 0, b"");
            assert_eq!(
                (out.advice, out.state),
                (Advice::Drop(Reason::StreamError), state),
                "{direction:?} in {state:?}"
            );
        }
    }
    let mut rig = Rig::new(config);
    rig.put(ToServer, S, 100, 0, b"");
    rig.put(ToClient, SA, 500, 101, b"");
    let out = rig.put(ToServer, R, 1101, 0, b"");
    assert_eq!((out.advice, out.state), (Advice::Forward, TcpState::SynRecv));
    let out = rig.put(ToServer, R, 101 + 9000, 0, b"");
    assert_eq!((out.advice, out.state), (Advice::Drop(Reason::StreamError), TcpState::SynRecv));
}

/// RSTs are acceptable whatever their timestamp (RFC 7323 section 5.2): an overtaken one is forwarded, too.
#[test]
fn a_rst_with_an_old_timestamp_leaves_and_is_not_believed() {
    let mut rig = Rig::new(StreamConfig { strict: true, ..inline() });
    let stamped = |flags, seq, ack, payload, ts| {
        let mut s = segment(flags, seq, ack, payload);
        s.options.ts = Some(ts);
        s
    };
    rig.handle(ToServer, &stamped(S, 100, 0, b"", (50, 0)));
    rig.handle(ToClient, &stamped(SA, 500, 101, b"", (150, 50)));
    rig.handle(ToServer, &stamped(A, 101, 501, b"", (51, 150)));
    rig.handle(ToClient, &stamped(A, 501, 101, b"abc", (170, 51)));
    let out = rig.handle(ToClient, &stamped(RA, 504, 101, b"", (160, 51)));
    assert_eq!((out.advice, out.state), (Advice::Forward, TcpState::Established));
    let out = rig.handle(ToClient, &stamped(RA, 504, 101, b"", (171, 51)));
    assert_eq!((out.advice, out.state), (Advice::Forward, TcpState::Closed));
}

/// A closed port answers with the number 0, a server that gives up a half-open connection with its own.
#[test]
fn a_rst_that_acknowledges_the_syn_ends_the_connection_whatever_its_number() {
    for (ack, believed) in [(101, true), (100, false), (102, false), (90_000, false)] {
        for seq in [0, 1, 501, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            let mut rig = Rig::new(StreamConfig { strict: true, ..inline() });
            rig.put(ToServer, S, 100, 0, b"");
            let out = rig.put(ToClient, RA, seq, ack, b"");
            let (advice, state) = if believed {
                (Advice::Forward, TcpState::Closed)
            } else {
                (Advice::Drop(Reason::StreamError), TcpState::SynSent)
            };
            assert_eq!((out.advice, out.state), (advice, state), "{seq} {ack}");
        }
    }
}
