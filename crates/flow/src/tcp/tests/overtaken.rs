// SPDX-License-Identifier: Apache-2.0
//! What comes late: a host sends from several processors, so its later packets, its FIN among them, may come by first. Whatever the
//! session has seen meanwhile, an acknowledgement that says nothing new goes on, and data that was sent again before it came by.

use super::*;

/// One packet of an honest conversation.
#[derive(Clone, Copy, Debug)]
struct Packet {
    direction: Direction,
    flags: TcpFlags,
    seq: u32,
    ack: u32,
    len: u32,
    window: u16,
    ts: (u32, u32),
}

/// How the conversation ends.
#[derive(Clone, Copy, Debug)]
enum End {
    SenderFirst,
    ReceiverFirst,
    SenderResets,
    ReceiverResets,
}

/// A side sends 10 segments of 3,000 bytes; the other acknowledges each while its window gets smaller and larger, as it is read
/// from. Everything counts from the sender's place; `sender` says who that is.
fn conversation(sender: Direction, end: End) -> Vec<Packet> {
    const LEN: u32 = 3000;
    let receiver = sender.flip();
    let next = |direction| if direction == ToServer { 101 } else { 501 };
    let (mut sent, mut got, mut time) = (next(sender), next(receiver), 100);
    let mut packets = Vec::new();
    let mut put = |direction, flags, seq, ack, len, window| {
        time += 1;
        packets.push(Packet { direction, flags, seq, ack, len, window, ts: (time, time - 1) });
    };
    for n in 0..10_u16 {
        put(sender, A, sent, got, LEN, 8192);
        sent += LEN;
        put(receiver, A, got, sent, 0, [9000, 4000, 7000, 3100][usize::from(n % 4)]);
    }
    let (first, second) = match end {
        End::SenderFirst | End::SenderResets => (sender, receiver),
        End::ReceiverFirst | End::ReceiverResets => (receiver, sender),
    };
    if matches!(end, End::SenderResets | End::ReceiverResets) {
        let (seq, ack) = if first == sender { (sent, got) } else { (got, sent) };
        put(first, RA, seq, ack, 0, 0);
        return packets;
    }
    for (n, side) in [first, second].into_iter().enumerate() {
        let (seq, ack) = if side == sender { (sent, got) } else { (got, sent) };
        put(side, FA, seq, ack, 0, 8192);
        if side == sender {
            sent += 1;
        } else {
            got += 1;
        }
        let (other_seq, other_ack) = if side == sender { (got, sent) } else { (sent, got) };
        if n == 1 {
            put(side.flip(), A, other_seq, other_ack, 0, 8192);
        }
    }
    packets
}

fn play(config: StreamConfig, stamps: bool, packets: &[Packet], what: &str) {
    let mut rig = Rig::new(config);
    let stamped = |mut s: Segment<'static>, ts| {
        s.options.ts = stamps.then_some(ts);
        s
    };
    rig.handle(ToServer, &stamped(segment(S, 100, 0, b""), (90, 0)));
    rig.handle(ToClient, &stamped(segment(SA, 500, 101, b""), (91, 90)));
    rig.handle(ToServer, &stamped(segment(A, 101, 501, b""), (92, 91)));
    assert_eq!(rig.session.state(), TcpState::Established);
    for (n, packet) in packets.iter().enumerate() {
        let body = vec![b'x'; packet.len as usize];
        let mut s = segment(packet.flags, packet.seq, packet.ack, &body);
        s.window = packet.window;
        s.options.ts = stamps.then_some(packet.ts);
        let out = rig.handle(packet.direction, &s);
        assert_eq!(
            out.advice,
            Advice::Forward,
            "{what}: packet {n}, {packet:?}, in {:?}: {:?}",
            out.previous,
            out.events
        );
    }
}

/// Whether the sender knows of the window that it sends into: acknowledgements reach it no earlier than they come by.
fn is_possible(packets: &[Packet], sender: Direction) -> bool {
    let mut edge = 0;
    packets.iter().all(|p| {
        let known = p.direction != sender || p.seq + p.len <= edge.max(8192);
        if p.direction != sender && p.flags == A {
            edge = edge.max(p.ack + u32::from(p.window));
        }
        known
    })
}

/// Each row of the receiver's acknowledgements comes behind each later packet, its FIN or RST among them.
#[test]
fn late_acknowledgements_go_on_in_every_state() {
    let config = StreamConfig { strict: true, ..inline() };
    let mut plays = 0;
    for sender in Direction::BOTH {
        for end in [End::SenderFirst, End::ReceiverFirst, End::SenderResets, End::ReceiverResets] {
            let whole = conversation(sender, end);
            let late = |p: &Packet| p.direction != sender && p.flags == A;
            let rows = whole.iter().enumerate().filter(|(_, p)| late(p)).map(|(at, _)| at);
            for (first, last) in
                rows.clone().flat_map(|a| rows.clone().map(move |b| (a, b))).filter(|(a, b)| a <= b)
            {
                for behind in last..whole.len() {
                    let (row, others): (Vec<_>, Vec<_>) = whole[first..=last].iter().partition(|p| late(p));
                    let packets =
                        [&whole[..first], &others, &whole[last + 1..=behind], &row, &whole[behind + 1..]]
                            .concat();
                    if is_possible(&packets, sender) {
                        plays += 1;
                        for stamps in [false, true] {
                            let what = format!(
                                "{sender:?}, {end:?}, stamps {stamps}: {first} to {last} behind {behind}"
                            );
                            play(config, stamps, &packets, &what);
                        }
                    }
                }
            }
        }
    }
    assert!(plays > 1000, "only {plays}");
}

/// Each data segment was sent again, and the copy comes first: the original comes behind each later packet, with the timestamp that it was
/// sent with.
#[test]
fn data_that_its_own_retransmission_overtook_goes_on() {
    let config = StreamConfig { strict: true, ..inline() };
    let mut plays = 0;
    for sender in Direction::BOTH {
        for end in [End::SenderFirst, End::ReceiverFirst] {
            let whole = conversation(sender, end);
            for (at, sent) in whole.iter().enumerate().filter(|(_, p)| p.direction == sender && p.len > 0) {
                let original = Packet { ts: (sent.ts.0 - 8, sent.ts.1 - 8), ..*sent };
                for behind in at..whole.len() {
                    let packets = [&whole[..=behind], &[original], &whole[behind + 1..]].concat();
                    plays += 1;
                    for stamps in [false, true] {
                        let what = format!("{sender:?}, {end:?}, stamps {stamps}: {at} behind {behind}");
                        play(config, stamps, &packets, &what);
                    }
                }
            }
        }
    }
    assert!(plays > 200, "only {plays}");
}

/// An original with other bytes than its retransmission, or with some that did not come yet, is what an attacker sends: the
/// first leaves with the bytes that were inspected, the second not at all.
#[test]
fn late_data_says_nothing_new() {
    for sender in Direction::BOTH {
        let mut rig = Rig::new(StreamConfig { strict: true, ..inline() });
        let stamped = |flags, seq, ack, payload, ts| {
            let mut s = segment(flags, seq, ack, payload);
            s.options.ts = Some(ts);
            s
        };
        rig.handle(ToServer, &stamped(S, 100, 0, b"", (50, 0)));
        rig.handle(ToClient, &stamped(SA, 500, 101, b"", (50, 50)));
        rig.handle(ToServer, &stamped(A, 101, 501, b"", (51, 50)));
        let (seq, ack) = if sender == ToServer { (101, 501) } else { (501, 101) };
        rig.handle(sender, &stamped(A, seq, ack, b"0123", (52, 51)));
        rig.handle(sender.flip(), &stamped(A, ack, seq + 4, b"", (53, 52)));
        let seq = seq + 4;
        rig.handle(sender, &stamped(A, seq, ack, b"abcd", (70, 53)));
        let late = |from: u32, payload| stamped(A, seq + from, ack, payload, (60, 51));
        assert_eq!(rig.handle(sender, &late(0, b"abcd")).advice, Advice::Forward);
        let other = rig.handle(sender, &late(1, b"XYZ")).advice;
        assert_eq!(other, Advice::Rewrite, "other bytes than were inspected");
        for (from, payload) in [(0, &b"abcde"[..]), (4, b"e"), (6, b"g")] {
            assert_eq!(rig.handle(sender, &late(from, payload)).advice, Advice::Drop(Reason::StreamError));
        }
        // Behind a hole: what fills it comes with a timestamp of its own.
        rig.handle(sender, &stamped(A, seq + 6, ack, b"gh", (80, 51)));
        assert_eq!(rig.handle(sender, &late(4, b"ef")).advice, Advice::Drop(Reason::StreamError));
        assert_eq!(rig.handle(sender, &stamped(A, seq + 4, ack, b"ef", (81, 51))).advice, Advice::Forward);
        assert_eq!(rig.handle(sender, &late(4, b"efgh")).advice, Advice::Forward);
        let new = stamped(A, seq, ack + 1, b"ab", (60, 51));
        assert_eq!(
            rig.handle(sender, &new).advice,
            Advice::Drop(Reason::StreamError),
            "acknowledges something"
        );
    }
}
