// SPDX-License-Identifier: Apache-2.0
//! Cases of reassembly; the properties are in `properties.rs`.

use super::*;
use crate::tcp::*;
use bartizan_base::Direction::{ToClient, ToServer};
use bartizan_base::{Direction, Reason, Timestamp};

pub(super) const ACK: TcpFlags = TcpFlags::ACK;

/// An established session with its streams, and the data that both readers of the client's stream have got.
pub(super) struct Rig {
    pub(super) session: TcpSession,
    pub(super) pair: StreamPair,
    pub(super) config: StreamConfig,
    pub(super) counters: StreamCounters,
    pub(super) budget: MemoryBudget,
    pub(super) policy: HostPolicy,
    pub(super) app: Vec<u8>,
    pub(super) raw: Vec<(u64, Vec<u8>)>,
    /// Raw chunks: offset of the fresh bytes, number of bytes before them.
    pub(super) shown_again: Vec<(u64, usize)>,
    pub(super) gaps: Vec<(u64, u64)>,
    pub(super) events: Vec<StreamEvent>,
}

pub(super) fn segment(flags: TcpFlags, seq: Seq, ack: Seq, payload: &[u8]) -> Segment<'_> {
    Segment { seq, ack, flags, window: 65_535, payload, checksum_ok: true, ..Segment::default() }
}

impl Rig {
    /// An established session; the client's first byte is `isn` + 1, the server's 1.
    pub(super) fn open(config: StreamConfig, isn: u32) -> Self {
        let mut rig = Rig {
            session: TcpSession::default(),
            pair: StreamPair::default(),
            config,
            counters: StreamCounters::default(),
            budget: MemoryBudget::new(config.reassembly.memcap),
            policy: HostPolicy::Bsd,
            app: Vec::new(),
            raw: Vec::new(),
            shown_again: Vec::new(),
            gaps: Vec::new(),
            events: Vec::new(),
        };
        let first = Seq(isn).plus(1);
        rig.handle(ToServer, &segment(TcpFlags::SYN, Seq(isn), Seq(0), b""));
        rig.handle(ToClient, &segment(TcpFlags::SYN | ACK, Seq(0), first, b""));
        rig.handle(ToServer, &segment(ACK, first, Seq(1), b""));
        rig.handle(ToClient, &segment(ACK, Seq(1), first, b""));
        assert_eq!(rig.session.state(), TcpState::Established);
        rig
    }

    pub(super) fn context(&mut self) -> (&mut TcpSession, &mut StreamPair, StreamContext<'_>) {
        let context =
            StreamContext { config: &self.config, counters: &mut self.counters, budget: &mut self.budget };
        (&mut self.session, &mut self.pair, context)
    }

    /// Handles a segment without running the readers.
    pub(super) fn feed(&mut self, direction: Direction, segment: &Segment<'_>) -> Outcome {
        let arrival = Arrival { direction, now: Timestamp::from_parts(1000, 0), policy: self.policy };
        let (session, pair, mut context) = self.context();
        let mut out = Outcome::default();
        session.handle(segment, arrival, Some(pair), &mut context, &mut out);
        self.events.extend(out.events.iter());
        out
    }

    pub(super) fn handle(&mut self, direction: Direction, segment: &Segment<'_>) -> Outcome {
        let out = self.feed(direction, segment);
        self.drain(if direction == ToServer { segment.payload } else { &[] });
        self.pair.end_packet(direction, segment.payload, &mut self.budget);
        out
    }

    pub(super) fn client(&mut self, isn: u32, offset: u32, payload: &[u8]) -> Outcome {
        let first = Seq(isn).plus(1);
        self.handle(ToServer, &segment(ACK, first.plus(offset), Seq(1), payload))
    }

    pub(super) fn acknowledge(&mut self, isn: u32, offset: u32) -> Outcome {
        let first = Seq(isn).plus(1);
        self.handle(ToClient, &segment(ACK, Seq(1), first.plus(offset), b""))
    }

    pub(super) fn drain(&mut self, packet: &[u8]) {
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
        while let Some(chunk) = stream.raw(packet) {
            self.raw.push((chunk.offset + chunk.seen as u64, chunk.bytes[chunk.seen..].to_vec()));
            self.shown_again.push((chunk.offset + chunk.seen as u64, chunk.seen));
            let end = chunk.end();
            stream.raw_consume(end);
        }
    }

    pub(super) fn end(&mut self) {
        let (session, pair, mut context) = self.context();
        session.end(pair, &mut context);
        self.drain(&[]);
        self.pair.end_packet(ToServer, &[], &mut self.budget);
    }

    pub(super) fn raw_bytes(&self) -> Vec<u8> {
        self.raw.iter().flat_map(|(_, bytes)| bytes.clone()).collect()
    }

    pub(super) fn release(mut self) {
        self.pair.release(&mut self.budget);
        assert_eq!(self.budget.used(), 0);
    }
}

pub(super) fn config(mode: StreamMode) -> StreamConfig {
    StreamConfig { mode, ..StreamConfig::default() }
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
    // No more data, and the event is counted once.
    rig.client(9, 13, b"more");
    assert_eq!((rig.app.as_slice(), rig.counters.stream_depth_reached), (&b"01234567"[..], 1));
}

#[test]
fn a_gap_before_the_depth_does_not_end_inspection() {
    let mut config = config(StreamMode::Inline);
    config.reassembly.depth = 10;
    let mut rig = Rig::open(config, 9);
    rig.client(9, 5, b"56789");
    let out = rig.client(9, 10, b"beyond");
    assert!(out.events.contains(StreamEvent::ReassemblyDepthReached));
    // The bytes missing before the depth are still inspected: a segment ahead cannot end inspection.
    assert!(!rig.pair.stream(ToServer).is_dead());
    rig.client(9, 0, b"01234");
    assert_eq!(rig.app, b"0123456789");
    rig.client(9, 10, b"beyond");
    assert!(rig.pair.stream(ToServer).is_dead());
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
    // The needed length will not become available.
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
    rig.pair.end_packet(ToServer, evil.payload, &mut rig.budget);
    rig.config.reassembly.overlap_action = OverlapAction::Drop;
    let out = rig.client(9, 0, b"GET /evil!");
    assert_eq!(out.advice, Advice::Drop(bartizan_base::Reason::StreamOverlap));
    // Rules may use the event without the setting.
    rig.config.reassembly.check_overlap_different_data = false;
    let out = rig.client(9, 0, b"GET /evil!");
    assert!(out.events.contains(StreamEvent::ReassemblyOverlapDifferentData));
    assert_eq!(rig.counters.overlap_diff_data, 2, "counted as configured");
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
        // A retransmission without the flag.
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
    // Data that arrived before the urgent byte closes up after its removal.
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
    assert_eq!(out.advice, Advice::Drop(bartizan_base::Reason::StreamReassembly));
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

#[test]
fn streams_can_join_a_session_late() {
    let mut rig = Rig::open(config(StreamMode::Passive), 9);
    let (session, _, mut context) = rig.context();
    let arrival = |direction| Arrival { direction, now: Timestamp::ZERO, policy: HostPolicy::Bsd };
    let mut out = Outcome::default();
    session.handle(
        &segment(ACK, Seq(10), Seq(1), b"unseen"),
        arrival(ToServer),
        None,
        &mut context,
        &mut out,
    );
    session.handle(&segment(ACK, Seq(1), Seq(16), b""), arrival(ToClient), None, &mut context, &mut out);
    rig.pair = StreamPair::attached(&rig.session, &rig.config);
    rig.client(9, 6, b"seen");
    rig.acknowledge(9, 10);
    assert_eq!((rig.app.as_slice(), rig.gaps.len()), (&b"seen"[..], 0));
    assert_eq!(rig.pair.stream(ToServer).app_progress(), 10);
}

/// Fast Open with two SYNs: data that readers saw of the first stays; another SYN begins another session.
#[test]
fn what_came_with_a_syn_stays_or_the_session_is_another() {
    let mut config = config(StreamMode::Inline);
    config.drop_invalid = true;
    let mut rig = Rig::open(config, 9);
    rig.session = TcpSession::default();
    rig.pair = StreamPair::default();
    let (first, second) = (Seq(0xf000_0000), Seq(77));
    let syn = |seq, payload| {
        let mut syn = segment(TcpFlags::SYN, seq, Seq(0), payload);
        syn.options.fast_open = true;
        syn
    };
    rig.feed(ToServer, &syn(first, b"one"));
    rig.pair.end_packet(ToServer, b"one", &mut rig.budget);
    let out = rig.handle(ToServer, &syn(second, b"other"));
    assert_eq!(out.advice, Advice::Drop(Reason::StreamError));
    assert!(rig.handle(ToServer, &syn(second, b"")).reuse);
    rig.feed(ToServer, &syn(first, b""));
    rig.feed(ToClient, &segment(TcpFlags::SYN | ACK, Seq(5), first.plus(1), b""));
    rig.pair.end_packet(ToClient, b"", &mut rig.budget);
    let out = rig.handle(ToServer, &segment(ACK, first.plus(1), Seq(6), b"fresh"));
    assert_eq!(out.advice, Advice::Rewrite);
    assert_eq!(rig.raw_bytes(), b"onesh");
    // Before its SYN/ACK nothing of the server's is acknowledged, whatever the numbers.
    assert_eq!(rig.pair.stream(ToServer).acked(), 0);
    rig.release();
}

/// A receiver acknowledges data that was not seen yet and that arrives then: inline it is inspected before it
/// leaves; a real receiver that was believed does not get data that no parser saw.
#[test]
fn what_fills_a_hole_that_was_given_up_is_inspected_or_refused() {
    for strict in [false, true] {
        let mut config = config(StreamMode::Inline);
        config.strict = strict;
        config.reassembly.raw_overlap = 16;
        let mut rig = Rig::open(config, 9);
        // The bytes passed before inspection began; otherwise such an acknowledgement is forged.
        rig.session.peers[ToServer].note_sent(Seq(9 + 1 + 4));
        rig.acknowledge(9, 4);
        rig.client(9, 4, b"late");
        assert_eq!((rig.gaps.as_slice(), rig.app.as_slice()), (&[(0, 4)][..], &b"late"[..]), "given up");
        rig.raw.clear();
        let out = rig.client(9, 0, b"evil");
        if strict {
            assert_eq!(out.advice, Advice::Drop(Reason::StreamError));
            assert!(rig.raw.is_empty());
        } else {
            assert_eq!(out.advice, Advice::Forward);
            assert_eq!(rig.raw, [(0, b"evillate".to_vec())]);
        }
        rig.release();
    }
}

/// Data that is not new for the raw reader is inspected with the held data around it, and does not advance
/// the reader.
#[test]
fn inline_a_packet_is_shown_with_what_is_about_it() {
    let mut config = config(StreamMode::Inline);
    config.reassembly.raw_overlap = 4;
    let mut rig = Rig::open(config, 9);
    let about = |rig: &Rig, offset: u32, payload: &'static [u8]| {
        let mut joined = Vec::new();
        let chunk = rig.pair.stream(ToServer).raw_about(Seq(10).plus(offset), payload, &mut joined)?;
        Some((chunk.offset, chunk.bytes.to_vec(), chunk.seen, chunk.after_gap))
    };
    rig.client(9, 0, b"abcdefgh");
    // A retransmission: in the middle both sides share the room, at an edge the other side has all of it.
    assert_eq!(about(&rig, 3, b"de"), Some((1, b"bcdefg".to_vec(), 0, false)));
    assert_eq!(about(&rig, 0, b"ab"), Some((0, b"abcdef".to_vec(), 0, false)));
    assert_eq!(about(&rig, 6, b"gh"), Some((2, b"cdefgh".to_vec(), 0, false)));
    // After a hole.
    rig.client(9, 10, b"kl");
    rig.client(9, 12, b"mn");
    assert_eq!(about(&rig, 12, b"mn"), Some((10, b"klmn".to_vec(), 0, true)));
    assert_eq!(rig.raw_bytes(), b"abcdefgh");
    // Half of the range is held: the packet by itself.
    assert_eq!(about(&rig, 7, b"hij"), Some((7, b"hij".to_vec(), 0, true)));
    // Data that arrived before the data that precedes it.
    for (offset, bytes) in [(30, b"EF"), (34, b"IJ"), (32, b"GH"), (28, b"CD"), (26, b"AB")] {
        rig.client(9, offset, bytes);
    }
    assert_eq!(about(&rig, 28, b"CD"), Some((26, b"ABCDEF".to_vec(), 0, true)));
    assert_eq!(about(&rig, 26, b"AB"), Some((26, b"ABCDEF".to_vec(), 0, true)));
    assert_eq!(about(&rig, 27, b"BCDEFGH"), Some((26, b"ABCDEFGHIJ".to_vec(), 0, true)), "in pieces");
    assert_eq!(about(&rig, 25, b"@AB"), Some((25, b"@AB".to_vec(), 0, true)), "a part of it is held");
    rig.client(9, 8, b"ij");
    assert_eq!(rig.raw_bytes(), b"abcdefghijklmn");
    rig.pair.stream_mut(ToServer).raw_stop();
    assert_eq!(about(&rig, 0, b"ab"), None);
}
