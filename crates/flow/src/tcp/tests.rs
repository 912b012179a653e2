// SPDX-License-Identifier: Apache-2.0
//! Tables of the state machine: the effects of packets on a session, and the events that they raise.

mod attacker;
mod closing;
mod handshakes;
mod host;
mod opening;
mod overtaken;
mod resets;

use super::*;
use crate::stream::{AppChunk, MemoryBudget, StreamPair};
use bartizan_base::Direction::{ToClient, ToServer};
use bartizan_base::{Direction, PerDirection, Reason, Timestamp};

const S: TcpFlags = TcpFlags::SYN;
const A: TcpFlags = TcpFlags::ACK;
const SA: TcpFlags = TcpFlags::SYN.union(TcpFlags::ACK);
const FA: TcpFlags = TcpFlags::FIN.union(TcpFlags::ACK);
const R: TcpFlags = TcpFlags::RST;
const RA: TcpFlags = TcpFlags::RST.union(TcpFlags::ACK);

/// A session with its streams, and the data that the app readers have got.
pub(crate) struct Rig {
    pub(crate) session: TcpSession,
    pub(crate) pair: StreamPair,
    pub(crate) config: StreamConfig,
    pub(crate) counters: StreamCounters,
    pub(crate) budget: MemoryBudget,
    pub(crate) policy: HostPolicy,
    pub(crate) seconds: u64,
    pub(crate) read: PerDirection<String>,
}

pub(crate) fn segment(flags: TcpFlags, seq: u32, ack: u32, payload: &[u8]) -> Segment<'_> {
    Segment {
        seq: Seq(seq),
        ack: Seq(ack),
        flags,
        window: 8192,
        payload,
        checksum_ok: true,
        ..Segment::default()
    }
}

impl Rig {
    pub(crate) fn new(config: StreamConfig) -> Self {
        Self {
            session: TcpSession::default(),
            pair: StreamPair::default(),
            config,
            counters: StreamCounters::default(),
            budget: MemoryBudget::new(config.reassembly.memcap),
            policy: HostPolicy::Bsd,
            seconds: 1000,
            read: PerDirection::default(),
        }
    }

    /// An open session: client 100, server 500; the next bytes are 101 and 501.
    fn open(config: StreamConfig) -> Self {
        let mut rig = Rig::new(config);
        rig.put(ToServer, S, 100, 0, b"");
        rig.put(ToClient, SA, 500, 101, b"");
        rig.put(ToServer, A, 101, 501, b"");
        assert_eq!(rig.session.state(), TcpState::Established);
        rig
    }

    pub(crate) fn handle(&mut self, direction: Direction, segment: &Segment<'_>) -> Outcome {
        let arrival = Arrival { direction, now: Timestamp::from_parts(self.seconds, 0), policy: self.policy };
        let mut context =
            StreamContext { config: &self.config, counters: &mut self.counters, budget: &mut self.budget };
        let mut out = Outcome::default();
        self.session.handle(segment, arrival, Some(&mut self.pair), &mut context, &mut out);
        self.drain(direction, segment.payload);
        out
    }

    fn put(&mut self, direction: Direction, flags: TcpFlags, seq: u32, ack: u32, payload: &[u8]) -> Outcome {
        self.handle(direction, &segment(flags, seq, ack, payload))
    }

    fn drain(&mut self, direction: Direction, payload: &[u8]) {
        for which in Direction::BOTH {
            let packet = if which == direction { payload } else { &[] };
            let stream = self.pair.stream_mut(which);
            loop {
                let len = match stream.app(packet) {
                    Some(AppChunk::Data { bytes, .. }) => {
                        self.read[which].push_str(&String::from_utf8_lossy(bytes));
                        bytes.len() as u64
                    }
                    Some(AppChunk::Gap { len, .. }) => {
                        self.read[which].push_str(&format!("<{len}>"));
                        len
                    }
                    None => break,
                };
                stream.app_consume(len);
            }
            while let Some(end) = stream.raw(packet).map(|chunk| chunk.end()) {
                stream.raw_consume(end);
            }
        }
        self.pair.end_packet(direction, payload, &mut self.budget);
    }

    pub(crate) fn end(&mut self) -> Outcome {
        let mut context =
            StreamContext { config: &self.config, counters: &mut self.counters, budget: &mut self.budget };
        let out = self.session.end(&mut self.pair, &mut context);
        self.drain(ToServer, &[]);
        self.pair.release(&mut self.budget);
        self.session.release(&mut self.counters);
        assert_eq!(self.budget.used(), 0);
        out
    }
}

fn inline() -> StreamConfig {
    StreamConfig { mode: StreamMode::Inline, ..StreamConfig::default() }
}

fn midstream() -> StreamConfig {
    StreamConfig { midstream: true, ..StreamConfig::default() }
}

type SegmentRow<'a> = (Direction, TcpFlags, u32, u32, &'a [u8], TcpState, Option<StreamEvent>);

fn run(mut rig: Rig, name: &str, rows: &[SegmentRow<'_>]) -> Rig {
    for (n, (direction, flags, seq, ack, payload, state, event)) in rows.iter().enumerate() {
        let out = rig.put(*direction, *flags, *seq, *ack, payload);
        assert_eq!(out.state, *state, "{name}: state after row {n}, {:?}", out.events);
        match event {
            Some(event) => assert!(out.events.contains(*event), "{name}: row {n}: {:?}", out.events),
            None => assert!(out.events.is_empty(), "{name}: row {n}: {:?}", out.events),
        }
    }
    rig
}

#[test]
fn a_session_opens_talks_and_closes() {
    use TcpState::{CloseWait, Closed, Established, FinWait1, FinWait2, LastAck, SynRecv, SynSent, TimeWait};
    let rig = run(
        Rig::new(StreamConfig::default()),
        "client closes first",
        &[
            (ToServer, S, 100, 0, b"", SynSent, None),
            (ToClient, SA, 500, 101, b"", SynRecv, None),
            (ToServer, A, 101, 501, b"", Established, None),
            (ToServer, A, 101, 501, b"question", Established, None),
            (ToClient, A, 501, 109, b"answer", Established, None),
            (ToServer, FA, 109, 507, b"", CloseWait, None),
            (ToClient, A, 507, 110, b"", CloseWait, None),
            (ToClient, FA, 507, 110, b"", LastAck, None),
            (ToServer, A, 110, 508, b"", Closed, None),
        ],
    );
    assert_eq!(rig.read, PerDirection::new("question".into(), "answer".into()));
    assert_eq!(rig.counters.sessions, 1);
    assert_eq!(rig.session.tcp_flags(ToServer).bits(), 0x13);
    run(
        Rig::open(StreamConfig::default()),
        "server closes first",
        &[
            (ToClient, FA, 501, 101, b"", FinWait1, None),
            (ToServer, A, 101, 502, b"", FinWait2, None),
            (ToServer, FA, 101, 502, b"", TimeWait, None),
            (ToClient, A, 502, 102, b"", Closed, None),
        ],
    );
    run(
        Rig::open(StreamConfig::default()),
        "both close at once",
        &[(ToClient, FA, 501, 101, b"", FinWait1, None), (ToServer, FA, 101, 501, b"", TimeWait, None)],
    );
}

#[test]
fn a_side_that_has_closed_goes_on_reading_more_than_a_window() {
    for (config, closes) in [(inline(), ToServer), (inline(), ToClient), (StreamConfig::default(), ToServer)]
    {
        let mut rig = Rig::open(config);
        let mut own = if closes == ToServer { 101 } else { 501 };
        let mut other = if closes == ToServer { 501 } else { 101 };
        rig.put(closes, FA, own, other, b"");
        own += 1;
        let data = [b'x'; 1000];
        for _ in 0..50 {
            let out = rig.put(closes.flip(), A, other, own, &data);
            assert!(out.events.is_empty() && out.exception.is_none(), "{:?}", out.events);
            other += 1000;
            let out = rig.put(closes, A, own, other, b"");
            assert!(out.events.is_empty(), "{closes:?}: {:?} at {other}", out.events);
        }
        let out = rig.put(closes.flip(), FA, other, own, b"");
        assert!(out.events.is_empty(), "{:?}", out.events);
        let out = rig.put(closes, A, own, other + 1, b"");
        assert!(out.events.is_empty(), "{:?}", out.events);
        assert_eq!(out.state, TcpState::Closed);
        assert_eq!(rig.read[closes.flip()].len(), 50_000);
    }
}

#[test]
fn handshakes_that_go_wrong() {
    use TcpState::{Closed, Established, SynRecv, SynSent};
    let new = || Rig::new(StreamConfig::default());
    run(
        new(),
        "wrong ack in the SYN/ACK",
        &[
            (ToServer, S, 100, 0, b"", SynSent, None),
            (ToClient, SA, 500, 999, b"", SynSent, Some(StreamEvent::ThreeWaySynackWithWrongAck)),
            (ToClient, SA, 500, 101, b"", SynRecv, None),
        ],
    );
    run(
        new(),
        "SYN/ACK from the client",
        &[
            (ToServer, S, 100, 0, b"", SynSent, None),
            (ToServer, SA, 500, 101, b"", SynSent, Some(StreamEvent::ThreeWaySynackInWrongDirection)),
        ],
    );
    run(
        new(),
        "SYN sent again, with another number; the first is answered",
        &[
            (ToServer, S, 100, 0, b"", SynSent, None),
            (ToServer, S, 100, 0, b"", SynSent, None),
            (ToServer, S, 300, 0, b"", SynSent, None),
            (ToClient, SA, 500, 101, b"", SynRecv, None),
            (ToServer, A, 101, 501, b"", Established, None),
        ],
    );
    run(
        new(),
        "another SYN/ACK is the one that the client believes",
        &[
            (ToServer, S, 100, 0, b"", SynSent, None),
            (ToClient, SA, 500, 101, b"", SynRecv, None),
            (ToClient, SA, 700, 101, b"", SynRecv, None),
            (ToServer, A, 101, 701, b"", Established, None),
        ],
    );
    run(
        new(),
        "resent packets in syn_recv",
        &[
            (ToServer, S, 100, 0, b"", SynSent, None),
            (ToClient, SA, 500, 101, b"", SynRecv, None),
            (ToServer, S, 100, 0, b"", SynRecv, None),
            (ToServer, S, 120, 0, b"", SynRecv, Some(StreamEvent::ThreeWaySynResendDiffSeqOnSynRecv)),
            (ToClient, S, 120, 0, b"", SynRecv, Some(StreamEvent::ThreeWaySynToclientOnSynRecv)),
            (ToServer, SA, 120, 1, b"", SynRecv, Some(StreamEvent::ThreeWaySynackToserverOnSynRecv)),
            (ToClient, SA, 500, 999, b"", SynRecv, Some(StreamEvent::ThreeWaySynackResendWithDifferentAck)),
            (ToServer, A, 101, 999, b"", SynRecv, Some(StreamEvent::ThreeWayRightSeqWrongAckEvasion)),
            (ToServer, A, 90, 999, b"", SynRecv, Some(StreamEvent::ThreeWayWrongSeqWrongAck)),
        ],
    );
    run(
        new(),
        "simultaneous open",
        &[
            (ToServer, S, 100, 0, b"", SynSent, None),
            (ToClient, S, 500, 0, b"", SynSent, None),
            (ToServer, SA, 100, 999, b"", SynSent, Some(StreamEvent::FourWaySynackWithWrongAck)),
            (ToServer, SA, 99, 501, b"", SynSent, Some(StreamEvent::FourWaySynackWithWrongSyn)),
            (ToServer, SA, 100, 501, b"", SynRecv, None),
            (ToClient, A, 501, 101, b"", Established, None),
        ],
    );
    run(
        new(),
        "the answer to a SYN is a RST",
        &[(ToServer, S, 100, 0, b"", SynSent, None), (ToClient, RA, 0, 101, b"", Closed, None)],
    );
}

#[test]
fn queues_are_bounded() {
    let mut rig = Rig::new(StreamConfig::default());
    rig.put(ToServer, S, 100, 0, b"");
    rig.put(ToClient, SA, 500, 101, b"");
    let mut floods = 0;
    for n in 0..20 {
        let out = rig.put(ToClient, SA, 600 + n, 101, b"");
        floods += usize::from(out.events.contains(StreamEvent::ThreeWaySynackFlood));
    }
    assert_eq!((rig.session.queue.len(), floods), (5, 15));
    let mut rig = Rig::new(StreamConfig::default());
    let mut floods = 0;
    for n in 0..30 {
        let out = rig.put(ToServer, S, 100 + n, 0, b"");
        floods += usize::from(out.events.contains(StreamEvent::ThreeWaySynFlood));
    }
    assert_eq!((rig.session.queue.len(), floods), (10, 19));
}

#[test]
fn what_does_not_belong_to_an_established_session() {
    use TcpState::Established as E;
    let far = 101 + 8192;
    run(
        Rig::open(StreamConfig::default()),
        "established",
        &[
            (ToServer, SA, 100, 501, b"", E, Some(StreamEvent::EstSynackToserver)),
            (ToClient, SA, 500, 999, b"", E, Some(StreamEvent::EstSynackResendWithDifferentAck)),
            (ToClient, SA, 499, 101, b"", E, Some(StreamEvent::EstSynackResendWithDiffSeq)),
            (ToClient, SA, 500, 101, b"", E, None),
            (ToServer, S, 100, 0, b"", E, Some(StreamEvent::EstSynResend)),
            (ToServer, S, 90, 0, b"", E, Some(StreamEvent::EstSynResendDiffSeq)),
            (ToClient, S, 500, 0, b"", E, Some(StreamEvent::EstSynToclient)),
            (ToServer, A, 101, 99_999, b"", E, Some(StreamEvent::EstInvalidAck)),
            (ToServer, A, 101, 99_999, b"", E, Some(StreamEvent::PktInvalidAck)),
            (ToServer, A, far, 501, b"x", E, Some(StreamEvent::EstPacketOutOfWindow)),
            (ToServer, TcpFlags::PSH, 101, 7, b"x", E, Some(StreamEvent::PktBrokenAck)),
        ],
    );
    let mut rig = run(
        Rig::open(StreamConfig::default()),
        "before the last ack",
        &[
            (ToServer, A, 101, 501, b"abcdef", E, None),
            (ToClient, A, 501, 107, b"", E, None),
            (ToServer, A, 101, 501, b"abc", E, Some(StreamEvent::PktSpuriousRetransmission)),
            (ToClient, A, 501, 107, b"x", E, None),
            (ToClient, SA, 500, 107, b"", E, Some(StreamEvent::EstSynackResend)),
        ],
    );
    assert_eq!(rig.read.to_server, "abcdef");
    rig.end();
    assert_eq!(rig.read.to_client, "x");
}

#[test]
fn inline_data_of_the_server_instead_of_the_last_ack_is_an_injection() {
    let mut rig = Rig::new(inline());
    rig.put(ToServer, S, 100, 0, b"");
    rig.put(ToClient, SA, 500, 101, b"");
    let out = rig.put(ToClient, A, 501, 101, b"evil");
    assert!(out.rejected && out.events.contains(StreamEvent::ThreeWayAckDataInject));
    assert_eq!(out.advice, Advice::Drop(Reason::StreamError));
    // Passive, the ACK was probably lost.
    let mut rig = Rig::new(StreamConfig::default());
    rig.put(ToServer, S, 100, 0, b"");
    rig.put(ToClient, SA, 500, 101, b"");
    assert_eq!(rig.put(ToClient, A, 501, 101, b"data").state, TcpState::Established);
}

#[test]
fn inline_nothing_leaves_without_comparison() {
    let mut rig = Rig::open(inline());
    rig.put(ToServer, A, 101, 501, b"abc");
    rig.put(ToClient, A, 501, 101, b"");
    // A keep-alive with another byte than before.
    let out = rig.put(ToServer, A, 103, 501, b"X");
    assert!(out.kind.contains(PacketKind::KEEP_ALIVE));
    assert_eq!(out.advice, Advice::Rewrite);
    // A packet that is invalid but, by configuration, not dropped.
    rig.config.drop_invalid = false;
    let out = rig.put(ToServer, A, 104, 99_999, b"def");
    assert!(out.rejected && out.advice == Advice::Forward && out.stored);
    assert_eq!(rig.read.to_server, "abcdef");
    // Data with a SYN that is not Fast Open.
    let mut rig = Rig::new(inline());
    assert!(rig.put(ToServer, S, 100, 0, b"early").stored);
    assert_eq!(rig.read.to_server, "early");
}

#[test]
fn inline_data_that_no_receiver_takes_does_not_leave() {
    let strict = StreamConfig { strict: true, ..inline() };
    let mut rig = Rig::open(strict);
    let refused = Advice::Drop(Reason::StreamError);
    // A server that keeps nothing but a cookie may take these for the first segment.
    for seq in [100, 102, 104] {
        assert_eq!(rig.put(ToServer, A, seq, 501, b"x").advice, refused);
    }
    // A keep-alive may leave.
    assert_eq!(rig.put(ToServer, A, 100, 501, b"").advice, Advice::Forward);
    assert_eq!(rig.put(ToServer, A, 101, 501, b"abc").advice, Advice::Forward);
    rig.put(ToClient, A, 501, 104, b"");
    assert_eq!(rig.put(ToServer, A, 105, 501, b"e").advice, Advice::Forward);
    // Far beyond the window, in a SYN, without an ACK.
    for (flags, seq) in [(A, 2_000_000), (A | S, 104), (S, 103), (TcpFlags::PSH, 104)] {
        assert_eq!(rig.put(ToServer, flags, seq, 501, b"junk").advice, refused, "{flags:?} {seq}");
    }
    assert_eq!(rig.put(ToServer, A, 104, 501, b"d").advice, Advice::Forward);
    assert_eq!(rig.read.to_server, "abcde");
    // Before the SYN/ACK.
    let mut rig = Rig::new(strict);
    rig.put(ToServer, S, 100, 0, b"");
    assert_eq!(rig.put(ToServer, A, 101, 501, b"early").advice, refused);
    assert_eq!(rig.read.to_server, "");
    // Fast Open: the SYN/ACK has taken the data, so the stream has begun.
    let mut rig = Rig::new(strict);
    let mut syn = segment(S, 100, 0, b"abc");
    syn.options.fast_open = true;
    rig.handle(ToServer, &syn);
    rig.put(ToClient, SA, 500, 104, b"");
    assert_eq!(rig.put(ToServer, A, 104, 501, b"").advice, Advice::Forward);
    assert_eq!(rig.put(ToServer, A, 104, 501, b"d").advice, Advice::Forward);
    assert_eq!(rig.read.to_server, "abcd");
}

#[test]
fn inline_no_data_leaves_that_would_open_a_forgotten_connection_anew() {
    let strict = StreamConfig { strict: true, ..inline() };
    let begun = || {
        let mut rig = Rig::open(strict);
        rig.put(ToServer, A, 101, 501, b"abcdefghijkl");
        rig.put(ToClient, A, 501, 113, b"");
        rig
    };
    let ended = |end: &[(Direction, TcpFlags, u32, u32)]| {
        let mut rig = begun();
        for (direction, flags, seq, ack) in end {
            assert_eq!(rig.put(*direction, *flags, *seq, *ack, b"").advice, Advice::Forward);
        }
        rig
    };
    let both = [(ToServer, FA, 113, 501), (ToClient, FA, 501, 114), (ToServer, A, 114, 502)];
    let server = [(ToClient, FA, 501, 113), (ToServer, A, 113, 502)];
    let reset = [(ToClient, RA, 501, 113)];
    // The server believes it, if data was lost before it.
    let doubted = [(ToServer, RA, 107, 501)];
    for end in [&both[..], &server, &server[..1], &reset, &doubted] {
        // A cookie also fits numbers that are a little off, and there may be several segments.
        for (seq, data) in [(101, "ABCDEFGHIJKL"), (101, "A"), (99, "xxABC"), (104, "DEF"), (112, "L")] {
            for flags in [A, FA, A | TcpFlags::PSH] {
                let mut rig = ended(end);
                let advice = rig.put(ToServer, flags, seq, 501, data.as_bytes()).advice;
                assert_eq!(advice, Advice::Trim(data.len() as u32), "{seq} {data} {flags:?} after {end:?}");
                assert_eq!(rig.read.to_server, "abcdefghijkl");
            }
        }
    }
    // While the server has the connection, old data is forwarded unchanged.
    assert_eq!(begun().put(ToServer, A, 101, 501, b"abcdefghijkl").advice, Advice::Forward);
    // A server that has only closed its side accepts new data.
    let mut rig = ended(&server);
    assert_eq!(rig.put(ToServer, A, 101, 502, b"abcdefghijklmno").advice, Advice::Trim(12));
    assert_eq!(rig.put(ToServer, A, 116, 502, b"pq").advice, Advice::Forward);
    assert_eq!(rig.read.to_server, "abcdefghijklmnopq");
    let mut rig = Rig::open(strict);
    rig.put(ToClient, FA, 501, 101, b"");
    rig.put(ToServer, A, 101, 502, b"");
    assert_eq!(rig.put(ToServer, A, 101, 502, b"abc").advice, Advice::Forward);
    assert_eq!(rig.read.to_server, "abc");
    // Another connection would begin with the bytes after the first ones of this connection.
    assert_eq!(rig.put(ToServer, A, 104, 502, b"def").advice, Advice::Complete(3));
    rig.put(ToClient, A, 502, 104, b"");
    assert_eq!(rig.put(ToServer, A, 104, 502, b"").advice, Advice::Forward);
    assert_eq!(rig.put(ToServer, A, 104, 502, b"def").advice, Advice::Complete(3));
    assert_eq!(rig.put(ToServer, A, 101, 502, b"ABCdef").advice, Advice::Rewrite);
    assert_eq!(rig.put(ToServer, A, 99, 502, b"xxabc").advice, Advice::Trim(5));
    assert_eq!(rig.put(ToServer, A, 99, 502, b"xxabcdef").advice, Advice::Trim(2));
    assert_eq!(rig.put(ToServer, A, 92, 492, b"before").advice, Advice::Trim(6));
    assert_eq!(rig.put(ToServer, A, 107, 502, b"ghi").advice, Advice::Forward);
    assert_eq!(rig.read.to_server, "abcdefghi");
}

#[test]
fn which_rst_ends_a_session_depends_on_the_receiver() {
    // The client's next byte is 103, 101 is acknowledged; the window is 8192.
    let table = [
        (HostPolicy::Bsd, 103, true),
        (HostPolicy::Bsd, 104, false),
        (HostPolicy::Vista, 102, false),
        (HostPolicy::Linux, 101, true),
        (HostPolicy::Linux, 102, true),
        (HostPolicy::Linux, 5000, true),
        (HostPolicy::Linux, 50_000, false),
        (HostPolicy::Linux, 90, false),
        (HostPolicy::Hpux11, 50_000, true),
        (HostPolicy::Hpux11, 102, false),
    ];
    for (policy, seq, ends) in table {
        let mut rig = Rig::open(StreamConfig::default());
        rig.policy = policy;
        rig.put(ToServer, A, 101, 501, b"xy");
        let out = rig.put(ToServer, R, seq, 0, b"");
        assert_eq!(out.state == TcpState::Closed, ends, "{policy:?} {seq}");
        assert_eq!(rig.session.closed_by_rst(), ends);
    }
    let mut rig = Rig::open(StreamConfig::default());
    let out = rig.put(ToServer, RA, 101, 99_999, b"");
    assert!(out.rejected && out.events.contains(StreamEvent::RstInvalidAck));
    let out = rig.put(ToServer, RA, 101, 501, b"gone");
    assert!(out.events.contains(StreamEvent::RstWithData) && out.state == TcpState::Closed);
}

#[test]
fn the_rest_of_an_earlier_connection_leaves_and_changes_nothing() {
    let config = StreamConfig { mode: StreamMode::Inline, strict: true, ..StreamConfig::default() };
    // The opening up to each state, then: leftovers of a connection of the same ports, and the rest of the
    // new one.
    for steps in 1..=3 {
        for policy in [HostPolicy::Bsd, HostPolicy::Linux] {
            let mut rig = Rig::new(config);
            rig.policy = policy;
            let mut syn = segment(S, 100_000, 0, b"");
            syn.options.ts = Some((50, 0));
            let mut syn_ack = segment(SA, 500, 100_001, b"");
            syn_ack.options.ts = Some((70, 50));
            let mut ack = segment(A, 100_001, 501, b"");
            ack.options.ts = Some((51, 70));
            let opening = [(ToServer, &syn), (ToClient, &syn_ack), (ToServer, &ack)];
            opening[..steps].iter().for_each(|(direction, segment)| {
                rig.handle(*direction, segment);
            });
            let state = rig.session.state();
            if steps == 1 {
                // The server's last segments, with the client's old timestamp; with data they do not leave.
                for (flags, payload, leaves) in [(FA, &b""[..], true), (A, b"", true), (A, b"old", false)] {
                    let mut old = segment(flags, 90_000, 3_000, payload);
                    old.options.ts = Some((69, 12));
                    let out = rig.handle(ToClient, &old);
                    assert_eq!(out.advice == Advice::Forward, leaves, "{flags:?} {payload:?}");
                }
            }
            // Before the reply the window is unknown.
            let others = if steps > 1 { 3 } else { 1 };
            for (flags, seq, leaves) in
                [(R, 3_000, true), (RA, 3_000, false), (R, 4_000_000, false)].into_iter().take(others)
            {
                let out = rig.put(ToServer, flags, seq, 0, b"");
                assert_eq!(out.advice == Advice::Forward, leaves, "{state:?} {policy:?} {flags:?} {seq}");
                assert_eq!(rig.session.state(), state, "{policy:?} {flags:?} {seq}");
            }
            opening[steps..].iter().for_each(|(direction, segment)| {
                rig.handle(*direction, segment);
            });
            let mut data = segment(A, 100_001, 501, b"still read");
            data.options.ts = Some((52, 70));
            assert_eq!(rig.handle(ToServer, &data).advice, Advice::Forward);
            assert_eq!(rig.read.to_server, "still read", "{state:?}");
        }
    }
}

#[test]
fn traffic_after_a_signed_rst_shows_it_was_forged() {
    let mut rig = Rig::open(StreamConfig::default());
    let mut rst = segment(R, 101, 0, b"");
    rst.options.signed = true;
    assert_eq!(rig.handle(ToServer, &rst).state, TcpState::Closed);
    let out = rig.put(ToServer, A, 101, 501, b"still here");
    assert!(out.events.contains(StreamEvent::SuspectedRstInject), "{:?}", out.events);
    assert_eq!(out.state, TcpState::Established);
}

#[test]
fn without_a_session() {
    let mut rig = Rig::new(StreamConfig::default());
    assert!(rig.put(ToServer, R, 1, 0, b"").events.contains(StreamEvent::RstButNoSession));
    assert!(rig.put(ToServer, FA, 1, 1, b"").events.contains(StreamEvent::FinButNoSession));
    let out = rig.put(ToServer, A, 1, 1, b"data");
    assert_eq!(out.exception, Some((ExceptionTarget::Midstream, ExceptionPolicy::Ignore)));
    assert!(!rig.session.exists() && rig.session.state().eve_name().is_none());
    assert_eq!(rig.session.tcp_flags(ToServer).bits(), 0);
}

#[test]
fn sessions_are_picked_up_in_the_middle() {
    let mut rig = Rig::new(midstream());
    let out = rig.put(ToServer, A, 1000, 2000, b"GET ");
    assert!(out.created && rig.session.is_midstream() && out.state == TcpState::Established);
    rig.put(ToClient, A, 2000, 1004, b"200 OK");
    rig.put(ToServer, A, 1004, 2006, b"");
    assert_eq!(rig.read, PerDirection::new("GET ".into(), "200 OK".into()));
    // At a SYN/ACK the flow turns out to be in the wrong direction.
    let mut rig = Rig::new(midstream());
    let out = rig.put(ToServer, SA, 500, 101, b"");
    assert!(out.reverse && out.state == TcpState::SynRecv);
    assert_eq!(rig.put(ToServer, A, 101, 501, b"").state, TcpState::Established);
    // The policy forbids it.
    let config = StreamConfig { midstream_policy: ExceptionPolicy::DropFlow, ..StreamConfig::default() };
    let mut rig = Rig::new(config);
    let out = rig.put(ToServer, A, 1000, 2000, b"GET ");
    assert_eq!(out.exception, Some((ExceptionTarget::Midstream, ExceptionPolicy::DropFlow)));
    assert!(!rig.session.exists());
}

#[test]
fn one_sided_sessions_read_without_acknowledgement() {
    let config = StreamConfig { async_oneside: true, ..StreamConfig::default() };
    let mut rig = Rig::new(config);
    rig.put(ToServer, S, 100, 0, b"");
    assert_eq!(rig.put(ToServer, A, 101, 501, b"").state, TcpState::Established);
    rig.put(ToServer, A, 101, 501, b"one ");
    rig.put(ToServer, A, 105, 501, b"sided");
    rig.end();
    assert_eq!(rig.read.to_server, "one sided");
}

#[test]
fn fast_open_data_comes_with_the_syn() {
    let mut rig = Rig::new(StreamConfig::default());
    let mut syn = segment(S, 100, 0, b"early ");
    syn.options.fast_open = true;
    assert!(rig.handle(ToServer, &syn).stored);
    let out = rig.put(ToClient, SA, 500, 107, b"");
    assert_eq!(out.flow_state, Some(SessionPhase::Established));
    rig.put(ToServer, A, 107, 501, b"late");
    rig.put(ToClient, A, 501, 111, b"");
    assert_eq!(rig.read.to_server, "early late");
    // The server ignores the data: the client retransmits it.
    let mut rig = Rig::new(StreamConfig::default());
    rig.handle(ToServer, &syn);
    let out = rig.put(ToClient, SA, 500, 101, b"");
    assert!(out.events.contains(StreamEvent::ThreeWaySynackTfoDataIgnored));
}

/// Acknowledgements sent by two processors overtake each other, which receivers tolerate.
#[test]
fn overtaken_acknowledgements_go_on() {
    for strict in [false, true] {
        let config = StreamConfig { strict, ..inline() };
        let stamped = |flags, seq, ack, payload, ts| {
            let mut s = segment(flags, seq, ack, payload);
            s.options.ts = Some(ts);
            s
        };
        let mut rig = Rig::new(config);
        rig.handle(ToServer, &stamped(S, 100, 0, b"", (50, 0)));
        rig.handle(ToClient, &stamped(SA, 500, 101, b"", (70, 50)));
        rig.handle(ToServer, &stamped(A, 101, 501, b"", (51, 70)));
        rig.handle(ToClient, &stamped(A, 501, 101, b"ab", (71, 51)));
        rig.handle(ToClient, &stamped(A, 503, 101, b"cd", (72, 51)));
        assert_eq!(rig.handle(ToServer, &stamped(A, 101, 505, b"", (90, 72))).advice, Advice::Forward);
        let older = rig.handle(ToServer, &stamped(A, 101, 503, b"", (80, 71)));
        assert_eq!(older.advice, Advice::Forward);
        let as_new = rig.handle(ToServer, &stamped(A, 101, 505, b"", (80, 71)));
        assert_eq!((as_new.advice == Advice::Forward, as_new.rejected), (strict, !strict));
        // A segment with data, or with a new acknowledgement, is as old for the receiver.
        rig.handle(ToClient, &stamped(A, 505, 101, b"ef", (91, 90)));
        for old in [stamped(A, 101, 507, b"", (80, 71)), stamped(A, 101, 505, b"x", (80, 71))] {
            assert_eq!(rig.handle(ToServer, &old).advice, Advice::Drop(Reason::StreamError));
        }
        assert_eq!(rig.handle(ToServer, &stamped(A, 101, 507, b"xyz", (92, 91))).advice, Advice::Forward);
        // Data has overtaken this one: its number is the beginning of the data.
        let behind = rig.handle(ToServer, &stamped(A, 101, 507, b"", (80, 71)));
        assert_eq!((behind.advice == Advice::Forward, behind.rejected), (strict, !strict));
        // It has overtaken data that has not arrived yet, and has no effect; no segment of this connection is
        // beyond the window.
        for (seq, leaves) in [(105, strict), (104 + 9_000, false)] {
            let elsewhere = rig.handle(ToServer, &stamped(A, seq, 507, b"", (80, 71)));
            assert_eq!(elsewhere.advice == Advice::Forward, leaves, "{seq}");
            assert_eq!(rig.session.next_seq(ToServer), Seq(104));
        }
    }
}

/// Data sent by two processors overtakes other data: no receiver treats the overtaken data as old (RFC 7323
/// section 4.3).
#[test]
fn overtaken_data_goes_on() {
    let stamped = |flags, seq, ack, payload, ts| {
        let mut s = segment(flags, seq, ack, payload);
        s.options.ts = Some(ts);
        s
    };
    for strict in [false, true] {
        let mut rig = Rig::new(StreamConfig { strict, ..inline() });
        rig.handle(ToServer, &stamped(S, 100, 0, b"", (50, 0)));
        rig.handle(ToClient, &stamped(SA, 500, 101, b"", (70, 50)));
        rig.handle(ToServer, &stamped(A, 101, 501, b"ab", (51, 70)));
        rig.handle(ToClient, &stamped(A, 501, 103, b"", (71, 51)));
        // After a gap, and an acknowledgement that follows it.
        rig.handle(ToServer, &stamped(A, 105, 501, b"efgh", (60, 70)));
        rig.handle(ToServer, &stamped(A, 109, 501, b"", (61, 70)));
        let overtaken = rig.handle(ToServer, &stamped(A, 103, 501, b"cd", (52, 70)));
        assert_eq!(overtaken.advice == Advice::Forward, strict, "{overtaken:?}");
        // Acknowledged, and continued: earlier segments are old.
        rig.handle(ToClient, &stamped(A, 501, 109, b"", (80, 61)));
        rig.handle(ToServer, &stamped(A, 109, 501, b"ij", (90, 80)));
        let old = rig.handle(ToServer, &stamped(A, 111, 501, b"kl", (62, 80)));
        assert_eq!(old.advice == Advice::Drop(Reason::StreamError), strict);
        if !strict {
            continue;
        }
        // The timestamps of a sender whose data is not acknowledged are tracked across the wrap.
        let mut seq = 111;
        for ts in (1_u32..12).map(|n| 90_u32.wrapping_add(n << 29)) {
            let later = rig.handle(ToServer, &stamped(A, seq, 501, b"kl", (ts, 80)));
            assert_eq!(later.advice, Advice::Forward, "{ts}");
            seq += 2;
        }
    }
}

/// A decoy between a SYN without the option and its reply: liberal timestamps apply to the reply only.
#[test]
fn a_decoy_that_echoes_what_was_never_sent_is_refused() {
    for (flags, refused) in [(RA, true), (TcpFlags::FIN | A, true), (A, true), (SA, false)] {
        let mut rig = Rig::new(StreamConfig::default());
        assert!(rig.config.liberal_timestamps);
        rig.handle(ToServer, &segment(S, 100, 0, b""));
        let mut decoy = segment(flags, 500, 101, b"");
        decoy.options.ts = Some((100, 100));
        let out = rig.handle(ToClient, &decoy);
        let told = out.events.contains(StreamEvent::PktInvalidTimestamp);
        assert_eq!((out.rejected, told), (refused, refused), "{flags:?}");
        if refused {
            rig.handle(ToClient, &segment(SA, 500, 101, b""));
        }
        rig.handle(ToServer, &segment(A, 101, 501, b""));
        assert_eq!(rig.session.state(), TcpState::Established, "{flags:?}");
    }
}

#[test]
fn timestamps_are_checked() {
    let stamped = |flags, seq, ack, ts| {
        let mut s = segment(flags, seq, ack, b"");
        s.options.ts = Some(ts);
        s
    };
    let mut rig = Rig::new(StreamConfig::default());
    rig.handle(ToServer, &stamped(S, 100, 0, (1000, 0)));
    let out = rig.handle(ToClient, &stamped(RA, 500, 101, (9000, 77)));
    assert!(out.events.contains(StreamEvent::PktInvalidTimestamp), "echo of what was never sent");
    rig.handle(ToClient, &stamped(SA, 500, 101, (9000, 1000)));
    rig.handle(ToServer, &stamped(A, 101, 501, (1001, 9000)));
    assert_eq!(rig.session.state(), TcpState::Established);
    let out = rig.handle(ToServer, &stamped(A, 101, 501, (900, 9000)));
    assert!(out.rejected && out.events.contains(StreamEvent::PktInvalidTimestamp));
    assert!(!rig.handle(ToServer, &stamped(A, 101, 501, (1000, 9000))).rejected, "one back is tolerated");
    // After 24 days an old timestamp is accepted again.
    rig.seconds += 25 * 24 * 3600;
    assert!(!rig.handle(ToServer, &stamped(A, 101, 501, (900, 9000))).rejected);
}

#[test]
fn packets_that_say_nothing_new() {
    let mut rig = Rig::open(StreamConfig::default());
    rig.put(ToServer, A, 101, 501, b"abc");
    rig.put(ToClient, A, 501, 104, b"");
    assert!(rig.put(ToServer, A, 103, 501, b"").kind.contains(PacketKind::KEEP_ALIVE));
    assert!(rig.put(ToClient, A, 501, 104, b"").kind.contains(PacketKind::KEEP_ALIVE_ACK));
    assert!(rig.put(ToClient, A, 501, 104, b"").kind.contains(PacketKind::DUPLICATE_ACK));
    let mut update = segment(A, 501, 104, b"");
    update.window = 0;
    rig.handle(ToClient, &update);
    let probe = rig.put(ToServer, A, 104, 501, b"z");
    assert!(probe.kind.contains(PacketKind::ZERO_WINDOW_PROBE));
    assert!(rig.handle(ToClient, &update).kind.contains(PacketKind::ZERO_WINDOW_PROBE_ACK));
    update.window = 4000;
    assert!(rig.handle(ToClient, &update).kind.contains(PacketKind::WINDOW_UPDATE));
    // Ahead of the session, with a closing window: ignored, with an event.
    let mut bad = segment(A, 900, 300, b"");
    bad.window = 1;
    let out = rig.handle(ToClient, &bad);
    assert!(out.events.contains(StreamEvent::PktBadWindowUpdate));
    assert_eq!(rig.session.client().window, 4000);
}

#[test]
fn scaled_windows_let_more_in() {
    let mut rig = Rig::new(StreamConfig::default());
    let mut syn = segment(S, 100, 0, b"");
    syn.options.wscale = Some(7);
    let mut syn_ack = segment(SA, 500, 101, b"");
    syn_ack.options.wscale = Some(3);
    rig.handle(ToServer, &syn);
    rig.handle(ToClient, &syn_ack);
    rig.put(ToServer, A, 101, 501, b"");
    rig.put(ToClient, A, 501, 101, b"");
    assert_eq!(rig.session.window_edge(ToServer), Seq(101 + (8192 << 3)));
    assert_eq!(rig.session.window_edge(ToClient), Seq(501 + (8192 << 7)));
    assert!(rig.put(ToServer, A, 60_000, 501, b"x").events.is_empty());
}

#[test]
fn a_tuple_is_used_again() {
    let config = StreamConfig::default();
    let mut rig = Rig::open(config);
    assert!(!rig.put(ToServer, S, 7000, 0, b"").reuse, "the session lives");
    rig.put(ToServer, R, 101, 0, b"");
    assert!(!rig.put(ToServer, S, 100, 0, b"").reuse, "a retransmitted SYN");
    assert!(rig.put(ToServer, S, 7000, 0, b"").reuse);
    assert!(!rig.session.starts_anew(&segment(A, 7000, 0, b""), ToServer, &config));
    assert!(TcpSession::default().starts_anew(&segment(S, 7000, 0, b""), ToServer, &config));
}

#[test]
fn a_wrong_checksum_is_not_looked_at() {
    let mut bad = segment(S, 100, 0, b"");
    bad.checksum_ok = false;
    let mut rig = Rig::new(StreamConfig::default());
    assert!(rig.handle(ToServer, &bad).checksum_invalid && !rig.session.exists());
    assert_eq!(rig.counters.invalid_checksum, 1);
    let mut rig = Rig::new(StreamConfig { checksum_validation: false, ..StreamConfig::default() });
    assert_eq!(rig.handle(ToServer, &bad).state, TcpState::SynSent);
}

#[test]
fn session_memory_is_bounded() {
    let config = StreamConfig {
        memcap: TcpSession::memory(),
        memcap_policy: ExceptionPolicy::DropFlow,
        ..StreamConfig::default()
    };
    let mut rig = Rig::new(config);
    rig.put(ToServer, S, 100, 0, b"");
    let first = core::mem::take(&mut rig.session);
    let out = rig.put(ToServer, S, 100, 0, b"");
    assert_eq!(out.exception, Some((ExceptionTarget::SessionMemory, ExceptionPolicy::DropFlow)));
    assert_eq!(rig.counters.ssn_memcap_drop, 1);
    let mut first = first;
    first.release(&mut rig.counters);
    assert!(rig.put(ToServer, S, 100, 0, b"").created);
}

#[test]
fn sessions_are_small_and_work_without_streams() {
    assert!(size_of::<TcpSession>() <= 256, "{}", size_of::<TcpSession>());
    let config = StreamConfig::default();
    let (mut counters, mut budget) = (StreamCounters::default(), MemoryBudget::new(0));
    let mut context = StreamContext { config: &config, counters: &mut counters, budget: &mut budget };
    let mut session = TcpSession::default();
    let arrival = |direction| Arrival { direction, now: Timestamp::ZERO, policy: HostPolicy::Linux };
    let mut out = Outcome::default();
    session.handle(&segment(S, 100, 0, b""), arrival(ToServer), None, &mut context, &mut out);
    session.handle(&segment(SA, 500, 101, b""), arrival(ToClient), None, &mut context, &mut out);
    session.handle(&segment(A, 101, 501, b"data"), arrival(ToServer), None, &mut context, &mut out);
    assert_eq!(out.flow_state, Some(SessionPhase::Established));
    assert_eq!(session.next_seq(ToServer), Seq(105));
}
