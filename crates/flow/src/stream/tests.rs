// SPDX-License-Identifier: Apache-2.0
//! Reassembly against models that were written without it: the original bytes, a byte map per host
//! policy, receivers behind an inline engine.

use super::*;
use crate::tcp::*;
use bartizan_base::Direction::{ToClient, ToServer};
use bartizan_base::{Direction, Timestamp};
use proptest::prelude::*;

const ACK: TcpFlags = TcpFlags::ACK;

struct Rig {
    session: TcpSession,
    pair: StreamPair,
    config: StreamConfig,
    counters: StreamCounters,
    budget: MemoryBudget,
    policy: HostPolicy,
    app: Vec<u8>,
    raw: Vec<(u64, Vec<u8>)>,
    gaps: Vec<(u64, u64)>,
    events: Vec<StreamEvent>,
}

fn segment(flags: TcpFlags, seq: Seq, ack: Seq, payload: &[u8]) -> Segment<'_> {
    Segment { seq, ack, flags, window: 65_535, payload, checksum_ok: true, ..Segment::default() }
}

impl Rig {
    /// An established session; the client's first byte is `isn` + 1, the server's 1.
    fn open(config: StreamConfig, isn: u32) -> Self {
        let mut rig = Rig {
            session: TcpSession::default(),
            pair: StreamPair::default(),
            config,
            counters: StreamCounters::default(),
            budget: MemoryBudget::new(config.reassembly.memcap),
            policy: HostPolicy::Bsd,
            app: Vec::new(),
            raw: Vec::new(),
            gaps: Vec::new(),
            events: Vec::new(),
        };
        let first = Seq(isn).plus(1);
        rig.handle(ToServer, &segment(TcpFlags::SYN, Seq(isn), Seq(0), b""));
        rig.handle(ToClient, &segment(TcpFlags::SYN | ACK, Seq(0), first, b""));
        rig.handle(ToServer, &segment(ACK, first, Seq(1), b""));
        assert_eq!(rig.session.state(), TcpState::Established);
        rig
    }

    fn context(&mut self) -> (&mut TcpSession, &mut StreamPair, StreamContext<'_>) {
        let context =
            StreamContext { config: &self.config, counters: &mut self.counters, budget: &mut self.budget };
        (&mut self.session, &mut self.pair, context)
    }

    /// Handles a segment and leaves the readers alone.
    fn feed(&mut self, direction: Direction, segment: &Segment<'_>) -> Outcome {
        let arrival = Arrival { direction, now: Timestamp::from_parts(1000, 0), policy: self.policy };
        let (session, pair, mut context) = self.context();
        let out = session.handle(segment, arrival, Some(pair), &mut context);
        self.events.extend(out.events.iter());
        out
    }

    fn handle(&mut self, direction: Direction, segment: &Segment<'_>) -> Outcome {
        let out = self.feed(direction, segment);
        self.drain(if direction == ToServer { segment.payload } else { &[] });
        self.pair.settle(direction, segment.payload, &mut self.budget);
        out
    }

    fn client(&mut self, isn: u32, offset: u32, payload: &[u8]) -> Outcome {
        let first = Seq(isn).plus(1);
        self.handle(ToServer, &segment(ACK, first.plus(offset), Seq(1), payload))
    }

    fn acknowledge(&mut self, isn: u32, offset: u32) -> Outcome {
        let first = Seq(isn).plus(1);
        self.handle(ToClient, &segment(ACK, Seq(1), first.plus(offset), b""))
    }

    fn drain(&mut self, packet: &[u8]) {
        let stream = self.pair.stream_mut(ToServer);
        loop {
            let len = match stream.app(packet) {
                Some(AppChunk::Data { bytes, .. }) => {
                    self.app.extend_from_slice(bytes);
                    bytes.len() as u64
                }
                Some(AppChunk::Gap { offset, len }) => {
                    self.gaps.push((offset, len));
                    len
                }
                None => break,
            };
            stream.app_consume(len);
        }
        loop {
            let Some(chunk) = stream.raw(packet) else { break };
            self.raw.push((chunk.offset + chunk.seen as u64, chunk.bytes[chunk.seen..].to_vec()));
            let end = chunk.end();
            stream.raw_consume(end);
        }
    }

    fn end(&mut self) {
        let (session, pair, mut context) = self.context();
        session.end(pair, &mut context);
        self.drain(&[]);
        self.pair.settle(ToServer, &[], &mut self.budget);
    }

    fn raw_bytes(&self) -> Vec<u8> {
        self.raw.iter().flat_map(|(_, bytes)| bytes.clone()).collect()
    }

    fn release(mut self) {
        self.pair.release(&mut self.budget);
        assert_eq!(self.budget.used(), 0);
    }
}

fn config(mode: StreamMode) -> StreamConfig {
    StreamConfig { mode, ..StreamConfig::default() }
}

/// Pieces of `len` bytes in a random order, some of them more than once and cut differently, that
/// together cover everything.
fn deliveries(len: usize) -> impl Strategy<Value = Vec<(usize, usize)>> {
    (
        proptest::collection::vec(1..40usize, 1..40),
        proptest::collection::vec((0..len, 1..60usize), 0..20),
        any::<u64>(),
    )
        .prop_map(move |(cuts, extra, seed)| {
            let mut pieces = Vec::new();
            let (mut at, mut n) = (0, 0);
            while at < len {
                let size = cuts[n % cuts.len()].min(len - at);
                pieces.push((at, at + size));
                at += size;
                n += 1;
            }
            pieces.extend(extra.into_iter().map(|(start, size)| (start, (start + size).min(len))));
            // A shuffle of its own, so that the seed alone decides.
            let mut state = seed | 1;
            for i in (1..pieces.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                pieces.swap(i, (state >> 33) as usize % (i + 1));
            }
            pieces
        })
}

/// What a receiver has, byte by byte.
struct Receiver {
    bytes: Vec<Option<u8>>,
    keeps_first: bool,
    /// Bytes the application has read cannot change any more.
    read: usize,
}

impl Receiver {
    fn new(len: usize, keeps_first: bool) -> Self {
        Self { bytes: vec![None; len], keeps_first, read: 0 }
    }

    fn receive(&mut self, start: usize, payload: &[u8]) {
        for (n, byte) in payload.iter().enumerate() {
            let at = start + n;
            if at >= self.read && !(self.keeps_first && self.bytes[at].is_some()) {
                self.bytes[at] = Some(*byte);
            }
        }
        while self.bytes.get(self.read).is_some_and(Option::is_some) {
            self.read += 1;
        }
    }

    fn readable(&self) -> Vec<u8> {
        self.bytes[..self.read].iter().map(|byte| byte.unwrap()).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// However the same bytes are cut, ordered and repeated, both readers get them once, in order.
    #[test]
    fn the_same_bytes_come_out(
        pieces in deliveries(700),
        isn in prop_oneof![any::<u32>(), Just(u32::MAX), Just(u32::MAX - 300)],
        inline in any::<bool>(),
        overlap in 0..64u32,
    ) {
        let data: Vec<u8> = (0..700u32).map(|n| (n * 7 + n / 251) as u8).collect();
        let mut config = config(if inline { StreamMode::Inline } else { StreamMode::Passive });
        config.reassembly.raw_overlap = overlap;
        config.reassembly.toserver_chunk_size = 100;
        config.reassembly.check_overlap_different_data = true;
        let mut rig = Rig::open(config, isn);
        let mut receiver = Receiver::new(data.len(), true);
        for (start, end) in pieces {
            rig.client(isn, start as u32, &data[start..end]);
            receiver.receive(start, &data[start..end]);
            rig.acknowledge(isn, receiver.read as u32);
            prop_assert!(rig.app.len() <= receiver.read, "nothing is readable before the receiver has it");
            prop_assert!(!inline || rig.app.len() == receiver.read);
        }
        rig.end();
        prop_assert_eq!(&rig.app, &data);
        prop_assert_eq!(rig.raw_bytes(), data);
        prop_assert!(rig.gaps.is_empty());
        prop_assert!(!rig.events.contains(&StreamEvent::ReassemblyOverlapDifferentData));
        rig.release();
    }

    /// Conflicting overlaps are resolved as a byte map per host policy says.
    #[test]
    fn conflicts_follow_the_host_policy(
        segments in proptest::collection::vec((0..60usize, 1..24usize, any::<u8>()), 1..14),
        policy in prop_oneof![
            Just(HostPolicy::Bsd), Just(HostPolicy::First), Just(HostPolicy::Last), Just(HostPolicy::Linux),
            Just(HostPolicy::OldLinux), Just(HostPolicy::Solaris), Just(HostPolicy::Hpux10),
            Just(HostPolicy::Hpux11), Just(HostPolicy::Irix), Just(HostPolicy::Macos),
            Just(HostPolicy::Windows), Just(HostPolicy::Windows2k3), Just(HostPolicy::Vista),
        ],
    ) {
        let mut rig = Rig::open(config(StreamMode::Passive), 9);
        rig.policy = policy;
        let mut model: Vec<Option<u8>> = vec![None; 100];
        let mut seen: Vec<(usize, usize)> = Vec::new();
        for (start, len, salt) in segments {
            let end = start + len;
            let payload: Vec<u8> = (0..len).map(|n| salt.wrapping_add(n as u8)).collect();
            rig.client(9, start as u32, &payload);
            for (n, byte) in payload.iter().enumerate() {
                let at = start + n;
                let kept = seen.iter().any(|(s, e)| (*s..*e).contains(&at) && !takes_new(policy, (*s, *e), (start, end)));
                if !kept {
                    model[at] = Some(*byte);
                }
            }
            seen.push((start, end));
        }
        rig.end();
        let expected: Vec<u8> = model.iter().map_while(|byte| *byte).collect();
        prop_assert_eq!(&rig.app[..expected.len().min(rig.app.len())], &expected[..]);
        rig.release();
    }

    /// Inline, whatever a sender tries, receivers of both kinds read what was inspected, and
    /// never before it was.
    #[test]
    fn receivers_read_what_was_inspected(
        segments in proptest::collection::vec((0..80usize, 1..30usize, any::<u8>()), 1..40),
        loses_acks in any::<bool>(),
    ) {
        let mut rig = Rig::open(config(StreamMode::Inline), 77);
        let mut receivers = [Receiver::new(120, true), Receiver::new(120, false)];
        for (start, len, salt) in segments {
            let mut payload: Vec<u8> = (0..len).map(|n| salt.wrapping_mul(n as u8)).collect();
            let original = payload.clone();
            let seq = Seq(78).plus(start as u32);
            let out = rig.feed(ToServer, &segment(ACK, seq, Seq(1), &original));
            rig.drain(&original);
            match out.advice {
                Advice::Rewrite => prop_assert!(rig.pair.stream(ToServer).restore(seq, &mut payload)),
                Advice::Forward => {
                    prop_assert!(!rig.pair.stream(ToServer).restore(seq, &mut payload));
                }
                Advice::Drop(_) => {}
            }
            rig.pair.settle(ToServer, &original, &mut rig.budget);
            if !matches!(out.advice, Advice::Drop(_)) {
                for receiver in &mut receivers {
                    receiver.receive(start, &payload);
                }
            }
            for receiver in &receivers {
                prop_assert!(rig.app.starts_with(&receiver.readable()));
            }
            if !loses_acks {
                let read = receivers[0].read as u32;
                rig.acknowledge(77, read);
            }
        }
        prop_assert_eq!(receivers[0].readable(), receivers[1].readable());
        rig.release();
    }

    /// Whatever comes, nothing panics and memory stays within its bounds.
    #[test]
    fn memory_is_bounded(
        packets in proptest::collection::vec(
            (any::<bool>(), any::<u8>(), 0..200_000u32, 0..100_000u32, 0..3000usize, any::<u16>()),
            1..200,
        ),
        inline in any::<bool>(),
        midstream in any::<bool>(),
        reads in any::<bool>(),
    ) {
        let mut config = config(if inline { StreamMode::Inline } else { StreamMode::Passive });
        config.midstream = midstream;
        config.async_oneside = midstream;
        config.reassembly.memcap = 50_000;
        config.reassembly.flow_limit = 30_000;
        let mut rig = Rig::open(config, 5);
        let bytes = vec![b'x'; 3000];
        for (to_server, flags, seq, ack, len, window) in packets {
            let direction = if to_server { ToServer } else { ToClient };
            let mut packet = segment(TcpFlags::from_bits_retain(flags), Seq(seq), Seq(ack), &bytes[..len]);
            packet.window = window;
            packet.urgent = window % 4000;
            packet.options.fast_open = flags & 0x40 != 0;
            rig.feed(direction, &packet);
            if reads {
                rig.drain(if to_server { packet.payload } else { &[] });
            }
            rig.pair.settle(direction, packet.payload, &mut rig.budget);
            let records = (2 * 2048 * 16 + 2 * 1024 * 48) as u64;
            prop_assert!(rig.budget.used() <= 50_000 + 2 * 65_536 + records);
            for direction in Direction::BOTH {
                prop_assert!(rig.pair.stream(direction).held() <= 30_000 + 65_536);
            }
        }
        rig.end();
        rig.release();
    }
}

/// The byte map's own idea of the policies, written down from the paper's cases.
fn takes_new(policy: HostPolicy, old: (usize, usize), new: (usize, usize)) -> bool {
    use HostPolicy::*;
    let begins_before = new.0 < old.0;
    let begins_equal = new.0 == old.0;
    let ends_beyond = new.1 > old.1;
    let covers = new.0 <= old.0 && new.1 >= old.1;
    match policy {
        Last => true,
        First | Vista => false,
        Bsd | Hpux10 | Irix | Windows | Windows2k3 | Macos => begins_before,
        Linux => begins_before || (begins_equal && ends_beyond),
        OldLinux => begins_before || (begins_equal && new.1 >= old.1),
        Solaris | Hpux11 => covers || ends_beyond,
    }
}

#[test]
fn in_order_data_is_read_from_the_packet_and_not_kept() {
    let mut config = config(StreamMode::Passive);
    config.reassembly.raw = false;
    config.async_oneside = true;
    config.midstream = true;
    let mut rig = Rig::open(config, 9);
    // One-sided: everything is readable at once.
    rig.session = TcpSession::default();
    rig.pair = StreamPair::default();
    for n in 0..10u32 {
        rig.handle(ToServer, &segment(ACK, Seq(1000 + n * 100), Seq(1), &[n as u8; 100]));
        if n == 0 {
            // The packet that opens the session does not acknowledge itself.
            continue;
        }
        assert_eq!(rig.budget.used(), 0);
        if n == 1 {
            rig.budget = MemoryBudget::new(0);
        }
        assert_eq!(rig.budget.peak(), 0, "nothing is copied from here on");
    }
    assert_eq!(rig.app.len(), 1000);
}

#[test]
fn passive_bytes_wait_for_the_acknowledgement() {
    let mut rig = Rig::open(config(StreamMode::Passive), 9);
    assert!(!rig.client(9, 0, b"hello world").readable.to_server);
    assert!(rig.app.is_empty());
    assert!(rig.acknowledge(9, 5).readable.to_server);
    assert_eq!(rig.app, b"hello");
    rig.end();
    assert_eq!(rig.app, b"hello world");
}

#[test]
fn a_gap_is_told_when_the_receiver_has_the_bytes() {
    let mut rig = Rig::open(config(StreamMode::Passive), 9);
    rig.client(9, 0, b"abc");
    rig.client(9, 6, b"ghi");
    rig.acknowledge(9, 3);
    assert!(rig.gaps.is_empty());
    let out = rig.acknowledge(9, 9);
    assert!(out.events.contains(StreamEvent::ReassemblySeqGap));
    assert_eq!((rig.app.as_slice(), rig.gaps.as_slice()), (&b"abcghi"[..], &[(3, 3)][..]));
    assert!(rig.pair.stream(ToServer).has_gap());
    assert_eq!(rig.counters.reassembly_gap, 1);
}

#[test]
fn the_depth_ends_reassembly() {
    let mut config = config(StreamMode::Passive);
    config.reassembly.depth = 10;
    config.bypass = true;
    let mut rig = Rig::open(config, 9);
    rig.client(9, 0, b"01234567");
    rig.acknowledge(9, 8);
    let out = rig.client(9, 8, b"89abc");
    assert!(out.events.contains(StreamEvent::ReassemblyDepthReached) && out.bypass);
    assert!(out.readable.to_server, "the parser is told");
    let stream = rig.pair.stream(ToServer);
    assert!(stream.depth_reached() && stream.is_dead() && stream.held() == 0);
    // Nothing more, and counted once.
    rig.client(9, 13, b"more");
    assert_eq!((rig.app.as_slice(), rig.counters.stream_depth_reached), (&b"01234567"[..], 1));
}

#[test]
fn a_gap_at_the_depth_holds_nothing() {
    let mut config = config(StreamMode::Inline);
    config.reassembly.depth = 10;
    let mut rig = Rig::open(config, 9);
    rig.client(9, 5, b"56789");
    let out = rig.client(9, 10, b"beyond");
    assert!(out.events.contains(StreamEvent::ReassemblyDepthReached));
    assert_eq!(rig.budget.used(), 0);
}

#[test]
fn a_parser_waits_for_what_it_needs() {
    let mut rig = Rig::open(config(StreamMode::Inline), 9);
    rig.pair.stream_mut(ToServer).app_need(6);
    rig.client(9, 0, b"abc");
    assert!(rig.app.is_empty());
    rig.client(9, 3, b"def");
    assert_eq!(rig.app, b"abcdef");
    // What is needed will not come whole.
    rig.pair.stream_mut(ToServer).app_need(6);
    rig.client(9, 6, b"gh");
    rig.client(9, 10, b"kl");
    assert_eq!(rig.app.len(), 6);
    rig.acknowledge(9, 12);
    rig.client(9, 12, b"m");
    assert_eq!((rig.app.as_slice(), rig.gaps.as_slice()), (&b"abcdefghklm"[..], &[(8, 2)][..]));
}

#[test]
fn raw_inspection_waits_for_a_chunk_and_sees_an_overlap() {
    let mut config = config(StreamMode::Passive);
    config.reassembly.toserver_chunk_size = 8;
    config.reassembly.raw_overlap = 3;
    let mut rig = Rig::open(config, 9);
    rig.client(9, 0, b"abcde");
    rig.acknowledge(9, 5);
    assert!(rig.raw.is_empty());
    rig.client(9, 5, b"fghij");
    rig.acknowledge(9, 10);
    assert_eq!(rig.raw_bytes(), b"abcdefghij");
    rig.client(9, 10, b"kl");
    rig.pair.stream_mut(ToServer).raw_trigger();
    rig.feed(ToClient, &segment(ACK, Seq(1), Seq(22), b""));
    let chunk = rig.pair.stream_mut(ToServer).raw(&[]).unwrap();
    assert_eq!((chunk.offset, chunk.bytes, chunk.seen, chunk.after_gap), (7, &b"hijkl"[..], 3, false));
}

#[test]
fn differing_retransmissions_are_told_and_inline_undone() {
    let mut config = config(StreamMode::Inline);
    config.reassembly.check_overlap_different_data = true;
    let mut rig = Rig::open(config, 9);
    rig.client(9, 0, b"GET /good");
    let evil = segment(ACK, Seq(10), Seq(1), b"GET /evil!");
    let out = rig.feed(ToServer, &evil);
    assert_eq!(out.advice, Advice::Rewrite);
    assert!(out.events.contains(StreamEvent::ReassemblyOverlapDifferentData));
    rig.drain(evil.payload);
    let mut packet = *b"GET /evil!";
    assert!(rig.pair.stream(ToServer).restore(Seq(10), &mut packet));
    assert_eq!((&packet, rig.app.as_slice()), (b"GET /good!", &b"GET /good!"[..]));
    assert_eq!((rig.counters.overlap_diff_data, rig.counters.rewritten), (1, 1));
    rig.pair.settle(ToServer, evil.payload, &mut rig.budget);
    rig.config.reassembly.overlap_action = OverlapAction::Drop;
    let out = rig.client(9, 0, b"GET /evil!");
    assert_eq!(out.advice, Advice::Drop(bartizan_base::Reason::StreamOverlap));
}

fn urgent(rig: &mut Rig, offset: u32, pointer: u16, payload: &[u8]) -> Outcome {
    let mut packet = segment(ACK | TcpFlags::URG, Seq(10).plus(offset), Seq(1), payload);
    packet.urgent = pointer;
    rig.handle(ToServer, &packet)
}

#[test]
fn urgent_bytes_go_by_policy() {
    for (policy, expected) in [
        (UrgentPolicy::OutOfBand, &b"abdefgh"[..]),
        (UrgentPolicy::Inline, b"abcdefgh"),
        (UrgentPolicy::Drop, b"abcdefgh"),
        (UrgentPolicy::Gap, b"abdefgh"),
    ] {
        let mut config = config(StreamMode::Passive);
        config.reassembly.urgent = policy;
        let mut rig = Rig::open(config, 9);
        urgent(&mut rig, 0, 3, b"abcd");
        // Sent again, without the flag.
        rig.client(9, 2, b"cdef");
        rig.client(9, 6, b"gh");
        rig.acknowledge(9, 8);
        if policy != UrgentPolicy::Gap {
            assert_eq!(rig.app, expected, "{policy:?}");
            assert!(rig.gaps.is_empty());
        }
        let out_of_band = u16::from(policy == UrgentPolicy::OutOfBand);
        assert_eq!(rig.pair.stream(ToServer).urgent_out_of_band(), out_of_band);
        rig.release();
    }
    // What came before the urgent byte closes up behind it.
    let mut rig = Rig::open(config(StreamMode::Passive), 9);
    rig.client(9, 4, b"efgh");
    urgent(&mut rig, 0, 4, b"abcd");
    rig.acknowledge(9, 8);
    assert_eq!(rig.app, b"abcefgh");
    // Inline, such packets can be dropped.
    let mut config = config(StreamMode::Inline);
    config.reassembly.urgent = UrgentPolicy::Drop;
    let mut rig = Rig::open(config, 9);
    assert!(matches!(urgent(&mut rig, 0, 1, b"x").advice, Advice::Drop(_)));
}

#[test]
fn regions_are_counted_and_limited() {
    let mut config = config(StreamMode::Inline);
    config.midstream = true;
    config.reassembly.max_regions = 2;
    let mut rig = Rig::open(config, 9);
    rig.session = TcpSession::default();
    rig.pair = StreamPair::default();
    let at = |n: u32| Seq(1000 + n * 300_000);
    rig.handle(ToServer, &segment(ACK, at(0), Seq(1), b"a"));
    rig.handle(ToServer, &segment(ACK, at(1), Seq(1), b"b"));
    assert_eq!(rig.pair.stream(ToServer).max_regions(), 2);
    let out = rig.handle(ToServer, &segment(ACK, at(2), Seq(1), b"c"));
    assert!(out.events.contains(StreamEvent::ReassemblyInsertLimit), "{:?}", out.events);
}

#[test]
fn used_up_memory_is_told_and_goes_by_policy() {
    let mut config = config(StreamMode::Inline);
    config.reassembly.memcap = 4096;
    config.reassembly.memcap_policy = ExceptionPolicy::DropPacket;
    let mut rig = Rig::open(config, 9);
    rig.client(9, 100, &[1; 2000]);
    let out = rig.client(9, 5000, &[1; 2000]);
    assert!(out.events.contains(StreamEvent::ReassemblyInsertMemcap), "{:?}", out.events);
    assert_eq!(out.advice, Advice::Drop(bartizan_base::Reason::StreamMemory));
    assert_eq!(out.exception, Some((ExceptionTarget::ReassemblyMemory, ExceptionPolicy::DropPacket)));
    assert_eq!((rig.counters.segment_memcap_drop, rig.counters.insert_data_normal_fail), (1, 1));
}

#[test]
fn long_streams_pass_the_wrap_many_times_over() {
    // Offsets do not wrap and sequence numbers do: the anchor has to follow.
    let mut config = config(StreamMode::Passive);
    config.reassembly.raw = false;
    let mut rig = Rig::open(config, u32::MAX - 5);
    let chunk = vec![7u8; 60_000];
    let mut at = 0u64;
    for _ in 0..200 {
        let seq = Seq(u32::MAX - 4).plus(at as u32);
        rig.handle(ToServer, &segment(ACK, seq, Seq(1), &chunk));
        at += chunk.len() as u64;
        rig.handle(ToClient, &segment(ACK, Seq(1), Seq(u32::MAX - 4).plus(at as u32), b""));
        assert_eq!(rig.pair.stream(ToServer).app_progress(), at);
        rig.app.clear();
    }
    assert_eq!(rig.pair.stream(ToServer).right_edge(), at);
}
