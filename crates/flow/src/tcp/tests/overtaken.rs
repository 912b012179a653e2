// SPDX-License-Identifier: Apache-2.0
//! Acknowledgements that come late: a host sends them from several processors, so its later packets, its FIN among them, may come by
//! first. Whatever the session has seen meanwhile, an acknowledgement that says nothing new goes on.

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
