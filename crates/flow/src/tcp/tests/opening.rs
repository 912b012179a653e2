// SPDX-License-Identifier: Apache-2.0
//! Rare valid handshakes: data in the SYN/ACK, a SYN/ACK with an unknown echo, simultaneous open, excessive
//! window scales.

use super::*;

/// Passive, over captures with `--ips`, before real receivers.
fn modes() -> [StreamConfig; 3] {
    [StreamConfig::default(), inline(), StreamConfig { strict: true, ..inline() }]
}

fn stamped(flags: TcpFlags, seq: u32, ack: u32, payload: &[u8], ts: (u32, u32)) -> Segment<'_> {
    let mut segment = segment(flags, seq, ack, payload);
    segment.options.ts = Some(ts);
    segment
}

/// Checks that a segment passes without an event.
fn passes(rig: &mut Rig, direction: Direction, segment: &Segment<'_>, what: &str) -> Outcome {
    let out = rig.handle(direction, segment);
    let told: Vec<_> =
        out.events.iter().filter(|e| *e != StreamEvent::ThreeWaySynackTfoDataIgnored).collect();
    assert!(
        !out.rejected && out.advice == Advice::Forward && told.is_empty(),
        "{what}: {segment:?}: {out:?}"
    );
    out
}

/// The client accepts all, a part or none of the data of a SYN/ACK, and the server all, a part or none of the
/// SYN's data: data that is not accepted is retransmitted.
#[test]
fn data_of_a_syn_ack_is_the_beginning_of_the_stream() {
    let (asked, greeted) = (&b"question"[..], &b"220 ready"[..]);
    for config in modes() {
        for (fast_open, brings) in [(false, false), (false, true), (true, true), (true, false)] {
            // Passively, data of a SYN without the option is not read.
            let read = brings && (fast_open || config.inline());
            for had in if read { vec![0, 3, 8] } else { vec![0] } {
                for took in [0, 4, 9] {
                    let what = format!(
                        "{:?}, strict {}, fast open {fast_open}, SYN {brings} {had}, {took}",
                        config.mode, config.strict
                    );
                    let mut rig = Rig::new(config);
                    let mut syn = segment(S, 100, 0, if brings { asked } else { b"" });
                    syn.options.fast_open = fast_open;
                    passes(&mut rig, ToServer, &syn, &what);
                    let (next, ack) = (101 + had as u32, 501 + took as u32);
                    passes(&mut rig, ToClient, &segment(SA, 500, next, greeted), &what);
                    passes(&mut rig, ToServer, &segment(A, next, ack, b""), &what);
                    assert_eq!(rig.session.state(), TcpState::Established, "{what}");
                    if took < greeted.len() {
                        passes(&mut rig, ToClient, &segment(A, ack, next, &greeted[took..]), &what);
                        passes(&mut rig, ToServer, &segment(A, next, 510, b""), &what);
                    }
                    if had < asked.len() {
                        passes(&mut rig, ToServer, &segment(A, next, 510, &asked[had..]), &what);
                    }
                    passes(&mut rig, ToClient, &segment(A, 510, 109, b", and more"), &what);
                    passes(&mut rig, ToServer, &segment(A, 109, 520, b""), &what);
                    assert_eq!(
                        rig.read,
                        PerDirection::new("question".into(), "220 ready, and more".into()),
                        "{what}"
                    );
                }
            }
        }
    }
}

/// The client's first packet acknowledges it together with data, or with its FIN, or follows the server's
/// next data (Fast Open).
#[test]
fn data_of_a_syn_ack_is_acknowledged_with_the_next_packet() {
    for config in modes() {
        for flags in [A, FA] {
            let mut rig = Rig::new(config);
            passes(&mut rig, ToServer, &segment(S, 100, 0, b""), "SYN");
            passes(&mut rig, ToClient, &segment(SA, 500, 101, b"220 ready"), "SYN/ACK");
            passes(&mut rig, ToServer, &segment(flags, 101, 510, b"QUIT"), "data");
            passes(
                &mut rig,
                ToClient,
                &segment(A, 510, if flags == A { 105 } else { 106 }, b"221"),
                "answer",
            );
            passes(&mut rig, ToServer, &segment(A, if flags == A { 105 } else { 106 }, 513, b""), "ACK");
            assert_eq!(rig.read, PerDirection::new("QUIT".into(), "220 ready221".into()));
        }
        let mut rig = Rig::new(config);
        let mut syn = segment(S, 100, 0, b"hello");
        syn.options.fast_open = true;
        passes(&mut rig, ToServer, &syn, "SYN");
        passes(&mut rig, ToClient, &segment(SA, 500, 106, b"220 "), "SYN/ACK");
        passes(&mut rig, ToClient, &segment(A, 505, 106, b"ready"), "behind it");
        passes(&mut rig, ToServer, &segment(A, 106, 510, b""), "ACK");
        assert_eq!(rig.read, PerDirection::new("hello".into(), "220 ready".into()));
    }
}

/// Inspected data counts: a SYN/ACK, or data after it, with other bytes leaves with the first ones.
/// Passively, the client's ACK shows which data it has.
#[test]
fn other_bytes_in_the_place_of_a_syn_acks_data_do_not_leave() {
    let strict = StreamConfig { strict: true, ..inline() };
    let mut rig = Rig::new(strict);
    rig.put(ToServer, S, 100, 0, b"");
    rig.put(ToClient, SA, 500, 101, b"good");
    assert_eq!(rig.put(ToClient, SA, 500, 101, b"evil").advice, Advice::Rewrite);
    rig.put(ToServer, A, 101, 501, b"");
    assert_eq!(rig.put(ToClient, A, 501, 101, b"evil").advice, Advice::Rewrite);
    let mut rig = Rig::new(StreamConfig::default());
    rig.put(ToServer, S, 100, 0, b"");
    rig.put(ToClient, SA, 500, 101, b"good");
    rig.put(ToServer, A, 101, 501, b"");
    rig.put(ToClient, A, 501, 101, b"evil");
    rig.put(ToServer, A, 101, 505, b"");
    assert_eq!(rig.read[ToClient], "evil");
    for config in modes() {
        let mut rig = Rig::new(config);
        rig.put(ToServer, S, 100, 0, b"");
        rig.put(ToClient, SA, 500, 101, b"good");
        let out = rig.put(ToServer, A, 101, 506, b"");
        assert!(
            out.rejected && out.events.contains(StreamEvent::ThreeWayRightSeqWrongAckEvasion),
            "never sent"
        );
    }
}

/// A SYN/ACK echoes a timestamp that the SYN did not have: some clients continue, others reset and wait for
/// the true one.
#[test]
fn what_the_client_sends_tells_whether_it_took_a_syn_ack_with_a_foreign_echo() {
    let requests: [(TcpFlags, &[u8]); 3] = [(A, b""), (A, b"GET"), (FA, b"GET")];
    for config in modes() {
        for (flags, data) in requests {
            let what = format!("{:?}, strict {}, {flags:?} {data:?}", config.mode, config.strict);
            let mut rig = Rig::new(config);
            passes(&mut rig, ToServer, &stamped(S, 100, 0, b"", (1000, 0)), &what);
            passes(&mut rig, ToClient, &stamped(SA, 500, 101, b"", (9000, 4711)), &what);
            assert_eq!(rig.session.state(), TcpState::SynSent, "{what}");
            let out = passes(&mut rig, ToServer, &stamped(flags, 101, 501, data, (1001, 9000)), &what);
            assert_eq!(out.previous, TcpState::SynRecv, "{what}");
            assert!(rig.session.is_under_way(), "{what}");
            let next = 101 + data.len() as u32 + u32::from(flags == FA);
            passes(&mut rig, ToClient, &stamped(A, 501, next, b"200", (9001, 1001)), &what);
            passes(&mut rig, ToServer, &stamped(A, next, 504, b"", (1002, 9001)), &what);
            assert_eq!(
                rig.read,
                PerDirection::new(String::from_utf8_lossy(data).into(), "200".into()),
                "{what}"
            );
        }
        // The client resets, and accepts the next one; or it accepts the first although others arrived.
        for takes in [500, 7000, 8000] {
            let what = format!("{:?}, strict {}, {takes}", config.mode, config.strict);
            let mut rig = Rig::new(config);
            passes(&mut rig, ToServer, &stamped(S, 100, 0, b"", (1000, 0)), &what);
            passes(&mut rig, ToClient, &stamped(SA, 500, 101, b"", (9000, 4711)), &what);
            passes(&mut rig, ToServer, &segment(R, 101, 0, b""), &what);
            passes(&mut rig, ToClient, &stamped(SA, 7000, 101, b"", (9000, 1)), &what);
            passes(&mut rig, ToClient, &stamped(SA, 8000, 101, b"", (9000, 1000)), &what);
            passes(&mut rig, ToServer, &stamped(A, 101, takes + 1, b"GET", (1001, 9000)), &what);
            passes(&mut rig, ToClient, &stamped(A, takes + 1, 104, b"200", (9001, 1001)), &what);
            passes(&mut rig, ToServer, &stamped(A, 104, takes + 4, b"", (1002, 9001)), &what);
            assert_eq!(rig.read, PerDirection::new("GET".into(), "200".into()), "{what}");
        }
    }
}

#[test]
fn nobody_reads_what_a_doubted_syn_ack_brings_and_only_so_many_are_kept() {
    let mut rig = Rig::new(StreamConfig { strict: true, ..inline() });
    rig.handle(ToServer, &stamped(S, 100, 0, b"", (1000, 0)));
    let out = rig.handle(ToClient, &stamped(SA, 500, 101, b"data", (9000, 4711)));
    assert_eq!(out.advice, Advice::Drop(Reason::StreamError));
    for n in 0..7 {
        let out = rig.handle(ToClient, &stamped(SA, 600 + n, 101, b"", (9000, 4711)));
        assert_eq!(out.rejected, n >= u32::from(rig.config.max_synack_queued), "{n}");
    }
    // The server must not send data before the client has replied.
    let out = rig.handle(ToClient, &stamped(A, 601, 101, b"data", (9000, 1000)));
    assert_eq!(out.advice, Advice::Drop(Reason::StreamError));
    assert_eq!(rig.read[ToClient], "");
}

/// RFC 9293 section 3.5, figure 8: both SYNs cross, then both replies, in either order; either side's ACK or
/// data completes the handshake.
#[test]
fn both_sides_open_at_once() {
    for config in modes() {
        for (scaled, stamps) in [(false, false), (true, true)] {
            let make = |flags: TcpFlags, seq, ack, payload, ts| {
                let mut segment = segment(flags, seq, ack, payload);
                segment.options.wscale = Some(7).filter(|_| scaled && flags.contains(S));
                segment.options.ts = Some(ts).filter(|_| stamps);
                segment
            };
            let answers = [
                (ToServer, make(SA, 100, 501, b"", (11, 20))),
                (ToClient, make(SA, 500, 101, b"", (21, 10))),
            ];
            let acks =
                [(ToServer, make(A, 101, 501, b"", (12, 21))), (ToClient, make(A, 501, 101, b"", (22, 11)))];
            for first in [0, 1] {
                // One reply of both sides, in both orders, or none.
                for (ack, both) in [(0, false), (1, false), (0, true), (1, true)] {
                    let what = format!(
                        "{:?}, strict {}, scaled {scaled}, answer of {first}, ACK of {ack}",
                        config.mode, config.strict
                    );
                    let mut rig = Rig::new(config);
                    passes(&mut rig, ToServer, &make(S, 100, 0, b"", (10, 0)), &what);
                    passes(&mut rig, ToClient, &make(S, 500, 0, b"", (20, 0)), &what);
                    for (direction, segment) in [&answers[first], &answers[1 - first]] {
                        passes(&mut rig, *direction, segment, &what);
                    }
                    let own = [&acks[ack], &acks[1 - ack]];
                    for (direction, segment) in &own[..1 + usize::from(both)] {
                        passes(&mut rig, *direction, segment, &what);
                    }
                    assert_eq!(rig.session.state(), TcpState::Established, "{what}");
                    let shift = if scaled { 7 } else { 0 };
                    for side in Direction::BOTH {
                        assert_eq!(rig.session.peers[side].wscale, shift, "{what}");
                    }
                    passes(&mut rig, ToServer, &make(A, 101, 501, b"CLIENT", (30, 21)), &what);
                    passes(&mut rig, ToClient, &make(A, 501, 107, b"", (40, 30)), &what);
                    passes(&mut rig, ToClient, &make(A, 501, 107, b"SERVER", (41, 30)), &what);
                    passes(&mut rig, ToServer, &make(A, 107, 507, b"", (31, 41)), &what);
                    assert_eq!(rig.read, PerDirection::new("CLIENT".into(), "SERVER".into()), "{what}");
                }
            }
        }
    }
}

/// A client whose SYN was not crossed does not answer a SYN/ACK with a SYN/ACK.
#[test]
fn a_syn_ack_of_the_client_needs_a_syn_of_the_server() {
    let mut rig = Rig::new(StreamConfig { strict: true, ..inline() });
    rig.put(ToServer, S, 100, 0, b"");
    rig.put(ToClient, SA, 500, 101, b"");
    let out = rig.put(ToServer, SA, 100, 501, b"");
    assert!(out.events.contains(StreamEvent::ThreeWaySynackToserverOnSynRecv) && out.rejected);
}

/// RFC 7323 section 2.3: a shift above 14 counts as 14.
#[test]
fn a_window_is_scaled_by_fourteen_at_most() {
    for config in modes() {
        for shift in [14, 15, 255] {
            let mut rig = Rig::new(config);
            let scaled = |flags, seq, ack| {
                let mut segment = segment(flags, seq, ack, b"");
                segment.options.wscale = Some(shift);
                segment
            };
            rig.handle(ToServer, &scaled(S, 100, 0));
            rig.handle(ToClient, &scaled(SA, 500, 101));
            rig.put(ToServer, A, 101, 501, b"");
            rig.put(ToClient, A, 501, 101, b"");
            for direction in Direction::BOTH {
                let next = rig.session.next_seq(direction);
                assert_eq!(
                    rig.session.window_edge(direction),
                    next.plus(8192 << 14),
                    "{direction:?} {shift}"
                );
            }
            let shared = rig.session.windows().map(|windows| windows.sides[ToServer].scale);
            assert_eq!(shared, Some(14));
            let out = rig.put(ToServer, A, 101 + (8191 << 14), 501, b"far");
            assert!(!out.events.contains(StreamEvent::EstPacketOutOfWindow), "{shift}: {:?}", out.events);
        }
    }
}
