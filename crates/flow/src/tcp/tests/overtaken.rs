// SPDX-License-Identifier: Apache-2.0
//! Late packets: a host sends from several processors, so its later packets, including its FIN, may arrive
//! first. In any state of the session, acknowledgements without news and data whose retransmission arrived
//! earlier are forwarded.

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

/// The end of the conversation.
#[derive(Clone, Copy, Debug)]
enum ConversationEnd {
    SenderFirst,
    ReceiverFirst,
    SenderResets,
    ReceiverResets,
}

/// A side sends 10 segments of 3,000 bytes; the other acknowledges each, with a window that shrinks and grows
/// as its application reads. All timing is at the sender; `sender` is its direction.
fn conversation(sender: Direction, end: ConversationEnd) -> Vec<Packet> {
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
        ConversationEnd::SenderFirst | ConversationEnd::SenderResets => (sender, receiver),
        ConversationEnd::ReceiverFirst | ConversationEnd::ReceiverResets => (receiver, sender),
    };
    if matches!(end, ConversationEnd::SenderResets | ConversationEnd::ReceiverResets) {
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

/// Whether a segment is forwarded with all the data that its receiver does not have: the receiver has
/// everything before `taken`.
pub(super) fn goes_on(advice: Advice, segment: &Segment<'_>, taken: Seq) -> bool {
    match advice {
        Advice::Forward => true,
        Advice::Trim(front) => front <= segment.len() && segment.seq.plus(front).at_most(taken),
        _ => false,
    }
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
        let acknowledged = rig.session.peers[packet.direction].last_ack;
        let out = rig.handle(packet.direction, &s);
        assert!(
            goes_on(out.advice, &s, acknowledged),
            "{what}: packet {n}, {packet:?}, in {:?}: {:?}",
            out.previous,
            out.events
        );
    }
}

/// Whether the sender may know the window into which it sends: acknowledgements do not reach it before they
/// pass here.
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

/// Each row of the receiver's acknowledgements arrives after each later packet, including its FIN or RST.
#[test]
fn late_acknowledgements_go_on_in_every_state() {
    let config = StreamConfig { strict: true, ..inline() };
    let mut plays = 0;
    for sender in Direction::BOTH {
        for end in [
            ConversationEnd::SenderFirst,
            ConversationEnd::ReceiverFirst,
            ConversationEnd::SenderResets,
            ConversationEnd::ReceiverResets,
        ] {
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

/// Each data segment was retransmitted, and the copy arrives first: the original arrives after each later
/// packet, with its own timestamp.
#[test]
fn data_that_its_own_retransmission_overtook_goes_on() {
    let config = StreamConfig { strict: true, ..inline() };
    let mut plays = 0;
    for sender in Direction::BOTH {
        for end in [ConversationEnd::SenderFirst, ConversationEnd::ReceiverFirst] {
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

/// An original with other bytes than its retransmission, or with some that have not arrived yet, comes from
/// an attacker: the first leaves with the inspected bytes, the second is dropped.
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
        // After a hole: data that fills it has a timestamp of its own.
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

/// One host's packets in the order of sending, each with the number of the other host's packets that must
/// pass before.
type SendOrder = Vec<(Packet, usize)>;

/// The six segments of a sender, one of which is lost, its tail-loss probe (RFC 8985 section 7) and its
/// retransmissions, and all acknowledgements. The receiver reads slowly, so that its window closes and opens.
#[derive(Debug)]
struct Recovery {
    /// Index of the lost segment, from 0; `seen`: whether it is lost after the observer.
    lost: usize,
    seen: bool,
    /// Number of acknowledgements after which the receiver sends data, if it does.
    speaks: Option<usize>,
    /// Bytes that its application reads for each segment that arrives.
    reads: u32,
}

const LEN: u32 = 1400;
const SEGMENTS: usize = 6;
/// The receiver's buffer: the six segments just fill it.
const ROOM: u32 = SEGMENTS as u32 * LEN;

impl Recovery {
    /// The packets of both sides; `direction`: the sender's.
    fn packets(&self, direction: Direction) -> PerDirection<SendOrder> {
        let first = |direction| if direction == ToServer { 101 } else { 501 };
        let (own, other) = (first(direction), first(direction.flip()));
        let (mut sent, mut answers): (SendOrder, SendOrder) = (Vec::new(), Vec::new());
        let mut time = 100;
        let mut spoken = 0;
        let (mut got, mut read, mut arrived) = (own, 0, [false; SEGMENTS]);
        // The segments, the probe, the retransmission of the lost one.
        let order = (0..SEGMENTS).chain([SEGMENTS - 1, self.lost]);
        for (n, at) in order.enumerate() {
            let again = n >= SEGMENTS;
            let seq = own + at as u32 * LEN;
            let arrives = again || at != self.lost;
            time += 2;
            if arrives || self.seen {
                let ts = (time, 90 + spoken);
                sent.push((Packet { direction, flags: A, seq, ack: other, len: LEN, window: 8192, ts }, 0));
            }
            if !arrives {
                continue;
            }
            arrived[at] = true;
            let whole = arrived.iter().take_while(|arrived| **arrived).count();
            got = own + whole as u32 * LEN;
            read = (read + self.reads).min(got - own);
            let window = (ROOM + read - (got - own)) as u16;
            let mut answer = |seq, len, flags| {
                let ts = (time + 1, time);
                let packet = Packet { direction: direction.flip(), flags, seq, ack: got, len, window, ts };
                answers.push((packet, sent.len()));
            };
            answer(other + spoken, 0, A);
            if self.speaks == Some(n) {
                answer(other + spoken, 300, A);
                spoken += 300;
            }
        }
        // The receiver probes its own tail as well.
        if spoken > 0 {
            time += 2;
            let packet = Packet {
                direction: direction.flip(),
                flags: A,
                seq: other,
                ack: got,
                len: 300,
                window: (ROOM + read - (got - own)) as u16,
                ts: (time, time - 1),
            };
            answers.push((packet, sent.len()));
        }
        match direction {
            ToServer => PerDirection::new(sent, answers),
            ToClient => PerDirection::new(answers, sent),
        }
    }
}

/// The part of an order that has passed so far, and the engine after it.
struct ArrivalOrder<'a> {
    sent: &'a SendOrder,
    answers: &'a SendOrder,
    stamps: bool,
    seen: std::collections::HashSet<Vec<u8>>,
    refused: Vec<String>,
}

#[derive(Clone)]
struct Reached {
    session: TcpSession,
    pair: StreamPair,
    sent: usize,
    /// Bits of the answers that passed; `furthest`: the last of them; `overtaken`: the latest one that it
    /// overtook.
    came: u32,
    furthest: usize,
    overtaken: usize,
    path: Vec<(Direction, usize)>,
}

impl ArrivalOrder<'_> {
    /// Handles a packet.
    fn step(&mut self, reached: &Reached, packet: &Packet, streams: bool) -> Reached {
        let mut next = reached.clone();
        let config = StreamConfig { strict: true, ..inline() };
        let (mut counters, mut budget) = (StreamCounters::default(), MemoryBudget::new(0));
        let body = vec![b'x'; packet.len as usize];
        let mut s = segment(packet.flags, packet.seq, packet.ack, &body);
        s.window = packet.window;
        s.options.ts = self.stamps.then_some(packet.ts);
        let arrival = Arrival {
            direction: packet.direction,
            now: Timestamp::from_parts(1000, 0),
            policy: HostPolicy::Bsd,
        };
        let mut context = StreamContext { config: &config, counters: &mut counters, budget: &mut budget };
        let mut out = Outcome::default();
        let pair = streams.then_some(&mut next.pair);
        let acknowledged = next.session.peers[packet.direction].last_ack;
        next.session.handle(&s, arrival, pair, &mut context, &mut out);
        for which in Direction::BOTH {
            let own = if which == packet.direction { s.payload } else { &[] };
            let stream = next.pair.stream_mut(which);
            while let Some(AppChunk::Data { bytes, .. }) = stream.app(own) {
                let len = bytes.len() as u64;
                stream.app_consume(len);
            }
            while let Some(end) = stream.raw(own).map(|chunk| chunk.end()) {
                stream.raw_consume(end);
            }
        }
        next.pair.end_packet(packet.direction, s.payload, &mut budget);
        if !goes_on(out.advice, &s, acknowledged) {
            self.refused.push(format!("{packet:?} behind {:?}: {:?}", next.path, out.events));
        }
        next
    }

    /// Plays all orders from here on: the sender's packets in order, the answers by two processors.
    fn all(&mut self, reached: &Reached, streams: bool) {
        let mut key = vec![reached.sent as u8, reached.furthest as u8, reached.overtaken as u8];
        key.extend(reached.came.to_be_bytes());
        reached.session.export(&mut key);
        for which in Direction::BOTH {
            let stream = reached.pair.stream(which);
            for number in [stream.acked(), stream.right_edge(), stream.app_progress(), stream.raw_progress()]
            {
                key.extend(number.to_be_bytes());
            }
        }
        if !self.seen.insert(key) {
            return;
        }
        if let Some((packet, _)) = self.sent.get(reached.sent).copied() {
            let mut next = self.step(reached, &packet, streams);
            next.path.push((packet.direction, reached.sent));
            next.sent += 1;
            self.all(&next, streams);
        }
        let waits = (0..self.answers.len()).find(|n| reached.came & 1 << n == 0);
        for (n, (packet, after)) in self.answers.iter().copied().enumerate() {
            // Packets of one processor stay in order, overtaken ones too.
            let may = Some(n) == waits || n + 1 > reached.furthest;
            if reached.came & 1 << n != 0 || after > reached.sent || !may {
                continue;
            }
            let mut next = self.step(reached, &packet, streams);
            next.path.push((packet.direction, n));
            next.came |= 1 << n;
            if n + 1 > reached.furthest {
                next.furthest = n + 1;
            } else {
                next.overtaken = n + 1;
            }
            self.all(&next, streams);
        }
    }
}

/// Six segments of which one is lost, a tail-loss probe, and acknowledgements by two processors: in every
/// order that the observer can see, no packet of the connection is refused.
#[test]
fn a_connection_that_recovers_a_loss_passes_in_every_order() {
    let (mut orders, mut wrong) = (0, Vec::new());
    // Whether the receiver sends data, the bytes it reads, whether there are timestamps, whether the streams
    // are read.
    let kinds = [(None, 0, true, false), (Some(4), 900, true, true), (Some(0), LEN, false, true)];
    for direction in Direction::BOTH {
        for (lost, seen) in (0..SEGMENTS).flat_map(|lost| [(lost, true), (lost, false)]) {
            // The last kind gives the same result for any loss.
            for (speaks, reads, stamps, streams) in &kinds[..if lost == 0 { 3 } else { 2 }] {
                let recovery = Recovery { lost, seen, speaks: *speaks, reads: *reads };
                let packets = recovery.packets(direction);
                let (sent, answers) = (&packets[direction], &packets[direction.flip()]);
                let stamps = *stamps;
                let mut order =
                    ArrivalOrder { sent, answers, stamps, seen: Default::default(), refused: Vec::new() };
                order.all(&opened(stamps), *streams);
                orders += order.seen.len();
                if let Some(first) = order.refused.first() {
                    let count = order.refused.len();
                    wrong.push(format!(
                        "{direction:?}, {recovery:?}, stamps {stamps}, streams {streams}: {count} refused: {first}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(orders > 10_000, "only {orders}");
}

/// A connection whose windows have room for all the sender's data.
fn opened(stamps: bool) -> Reached {
    let mut rig = Rig::new(StreamConfig { strict: true, ..inline() });
    let stamped = |mut s: Segment<'static>, ts| {
        s.options.ts = stamps.then_some(ts);
        s.window = ROOM as u16;
        s
    };
    rig.handle(ToServer, &stamped(segment(S, 100, 0, b""), (80, 0)));
    rig.handle(ToClient, &stamped(segment(SA, 500, 101, b""), (81, 80)));
    rig.handle(ToServer, &stamped(segment(A, 101, 501, b""), (82, 81)));
    let Rig { session, pair, .. } = rig;
    Reached { session, pair, sent: 0, came: 0, furthest: 0, overtaken: 0, path: Vec::new() }
}
