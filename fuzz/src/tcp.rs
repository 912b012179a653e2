// SPDX-License-Identifier: Apache-2.0
//! Segments of one connection: per segment direction, flags, numbers close to each other, and bytes.

use crate::planted::planted;
use crate::take::Take;
use bartizan_base::{Direction, Timestamp};
use bartizan_flow::stream::{AppChunk, MemoryBudget, StreamPair};
use bartizan_flow::tcp::{
    Advice, Arrival, HostPolicy, Outcome, Segment, SegmentOptions, Seq, StreamConfig, StreamContext,
    StreamCounters, StreamMode, TcpFlags, TcpSession,
};

const POLICIES: &[HostPolicy] = &[
    HostPolicy::Bsd,
    HostPolicy::First,
    HostPolicy::Last,
    HostPolicy::Linux,
    HostPolicy::OldLinux,
    HostPolicy::Solaris,
    HostPolicy::Hpux11,
    HostPolicy::Irix,
    HostPolicy::Windows,
    HostPolicy::Windows2k3,
    HostPolicy::Vista,
];

/// Tracks and reassembles the segments; readers only move forward, and no memory stays in use.
pub fn run(data: &[u8]) {
    let mut take = Take(data);
    let (mode, policy) = (take.byte(), take.byte());
    let mut config = StreamConfig {
        mode: if mode & 1 == 1 { StreamMode::Inline } else { StreamMode::Passive },
        midstream: mode & 2 != 0,
        async_oneside: mode & 4 != 0,
        drop_invalid: mode & 8 != 0,
        ..StreamConfig::default()
    };
    config.reassembly.check_overlap_different_data = mode & 16 != 0;
    config.reassembly.depth = if mode & 32 == 0 { 0 } else { 1000 };
    config.reassembly.memcap = if mode & 64 == 0 { 64 << 20 } else { 8 << 10 };
    config.reassembly.raw_overlap = u32::from(mode >> 7) * 16;
    let policy = POLICIES[usize::from(policy) % POLICIES.len()];
    let (mut counters, mut budget) = (StreamCounters::default(), MemoryBudget::new(config.reassembly.memcap));
    let (mut session, mut pair) = (TcpSession::default(), StreamPair::default());
    let mut passed = [0u64; 2];
    let mut now = 1_000_000_000u64;
    while !take.is_empty() {
        let (kind, flags) = (take.byte(), take.byte());
        let direction = if kind & 1 == 0 { Direction::ToServer } else { Direction::ToClient };
        now += u64::from(kind >> 4) * 100_000_000;
        let bases = if kind & 2 == 0 { [1000u32, 9000] } else { [u32::MAX - 50, 9000] };
        let (own, other) =
            if direction == Direction::ToServer { (bases[0], bases[1]) } else { (bases[1], bases[0]) };
        // Mostly near the expected number; rarely anywhere.
        let near = |base: u32, take: &mut Take<'_>| base.wrapping_add(u32::from(take.byte()));
        let seq = if kind & 4 == 0 { near(own, &mut take) } else { take.long() };
        let ack = near(other, &mut take);
        let len = usize::from(take.byte() & 0x3f);
        let payload = take.bytes(len);
        let options = SegmentOptions {
            wscale: (kind & 8 != 0).then_some(flags & 15),
            ts: (kind & 8 != 0).then_some((ack, seq)),
            ..SegmentOptions::default()
        };
        let segment = Segment {
            seq: Seq(seq),
            ack: Seq(ack),
            flags: TcpFlags::from_bits_truncate(flags),
            window: 65_535,
            urgent: u16::from(flags & 0x20 != 0) * 3,
            options,
            payload,
            payload_len_on_wire: payload.len() as u32,
            checksum_ok: true,
        };
        let mut context = StreamContext { config: &config, counters: &mut counters, budget: &mut budget };
        let mut outcome = Outcome::default();
        session.handle(
            &segment,
            Arrival { direction, now: Timestamp::from_nanos(now), policy },
            Some(&mut pair),
            &mut context,
            &mut outcome,
        );
        if outcome.advice == Advice::Rewrite {
            let mut copy = payload.to_vec();
            let _ = pair.stream(direction).restore(segment.seq, &mut copy);
        }
        for (which, done) in [Direction::ToServer, Direction::ToClient].into_iter().zip(&mut passed) {
            let packet = if which == direction { payload } else { &[] };
            drain(&mut pair, which, packet, done);
        }
        pair.end_packet(direction, payload, &mut budget);
        planted(passed[0] > 20 && passed[1] > 3 && outcome.advice == Advice::Rewrite);
        planted(passed[0] > 20 && payload.ends_with(b"PL"));
    }
    let mut context = StreamContext { config: &config, counters: &mut counters, budget: &mut budget };
    let _ = session.end(&mut pair, &mut context);
    let mut out = Vec::new();
    pair.export(&mut out);
    pair.release(&mut budget);
    assert_eq!(budget.used(), 0, "memory is left over");
}

fn drain(pair: &mut StreamPair, which: Direction, packet: &[u8], passed: &mut u64) {
    let stream = pair.stream_mut(which);
    let mut turns = 0;
    while let Some(chunk) = stream.app(packet) {
        let len = match chunk {
            AppChunk::Data { bytes, .. } => bytes.len() as u64,
            AppChunk::Gap { len, .. } => len,
        };
        stream.app_consume(len);
        *passed += len;
        turns += 1;
        assert!(turns < 10_000, "the app reader does not end");
    }
    while let Some(chunk) = stream.raw(packet) {
        let end = chunk.end();
        stream.raw_consume(end);
        turns += 1;
        assert!(turns < 10_000, "the raw reader does not end");
    }
}
