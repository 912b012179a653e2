// SPDX-License-Identifier: Apache-2.0
//! Properties: reassembly against independent models: the original bytes, a byte map per host policy,
//! receivers behind an inline engine.

use super::tests::{Rig, config, segment};
use super::*;
use crate::tcp::*;
use bartizan_base::Direction::{ToClient, ToServer};
use bartizan_base::{Cursor, Direction};
use bartizan_testkit::random::Random;
use core::ops::Range;
use proptest::prelude::*;

/// Pieces of `len` bytes in a random order, some of them repeated and cut differently, that together cover
/// everything.
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
            // A shuffle that depends on the seed alone.
            Random::new(seed).shuffle(&mut pieces);
            pieces
        })
}

/// The bytes of a receiver.
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
            prop_assert!(rig.app.len() <= receiver.read, "no data is readable before the receiver has it");
            prop_assert!(!inline || rig.app.len() == receiver.read);
        }
        rig.end();
        prop_assert_eq!(&rig.app, &data);
        prop_assert_eq!(rig.raw_bytes(), data);
        prop_assert!(rig.gaps.is_empty());
        prop_assert!(!rig.events.contains(&StreamEvent::ReassemblyOverlapDifferentData));
        rig.release();
    }

    /// A sender that is far ahead, inline: the held data fills several buffers, readers get every byte once
    /// with its overlap, and every retransmission is compared with the inspected bytes.
    #[test]
    fn what_is_held_is_held_whole(
        sizes in proptest::collection::vec(1..1460usize, 20..60),
        acknowledges in prop_oneof![1..40usize, 150..500usize],
        again in proptest::collection::vec((any::<u32>(), 2..3000usize), 12),
        overlap in prop_oneof![Just(0u32), Just(2560u32)],
    ) {
        const LEN: usize = 230_000;
        let data: Vec<u8> = (0..LEN as u32).map(|n| (n * 7 + n / 251 + n / 65_521) as u8).collect();
        let mut config = config(StreamMode::Inline);
        config.reassembly.raw_overlap = overlap;
        let mut rig = Rig::open(config, 9);
        // The server's window is large enough for all of it.
        rig.session.peers[ToClient].window = LEN as u32;
        let (mut at, mut acked, mut n) = (0, 0, 0);
        while at < LEN {
            let len = sizes[n % sizes.len()].min(LEN - at);
            rig.client(9, at as u32, &data[at..at + len]);
            at += len;
            prop_assert_eq!(rig.app.len(), at);
            if n % acknowledges == 0 {
                // Acknowledges half of the bytes in flight.
                acked += (at - acked) / 2;
                rig.acknowledge(9, acked as u32);
                rig.session.peers[ToClient].window = LEN as u32;
            }
            let (place, size) = again[n % again.len()];
            if n % 7 == 0 && at > acked + 2 {
                let from = acked + place as usize % (at - acked - 1);
                let to = (from + size).min(at);
                let mut other: Vec<u8> = data[from..to].iter().map(|b| b ^ 0x55).collect();
                let first = Seq(10).plus(from as u32);
                let out = rig.feed(ToServer, &segment(TcpFlags::ACK, first, Seq(1), &other));
                rig.drain(&other);
                prop_assert_eq!(out.advice, Advice::Rewrite, "{}..{} of {}..{}", from, to, acked, at);
                prop_assert!(rig.pair.stream(ToServer).restore(first, &mut other));
                prop_assert_eq!(&other, &data[from..to]);
                rig.pair.end_packet(ToServer, &other, &mut rig.budget);
                let same = data[from..to].to_vec();
                let out = rig.client(9, from as u32, &same);
                prop_assert_eq!(out.advice, Advice::Forward);
            }
            n += 1;
        }
        prop_assert_eq!(&rig.app, &data);
        prop_assert_eq!(rig.raw_bytes(), data);
        for (offset, again) in &rig.shown_again {
            prop_assert_eq!(*again as u64, u64::from(overlap).min(*offset), "before {}", offset);
        }
        rig.release();
    }

    /// Conflicting overlaps (of more than a byte, which could be a keep-alive) are resolved as by a byte map
    /// per host policy.
    #[test]
    fn conflicts_follow_the_host_policy(
        segments in proptest::collection::vec((0..60usize, 2..24usize, any::<u8>()), 1..14),
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
                let kept = seen.iter().any(|(s, e)| (*s..*e).contains(&at) && !takes_new(policy, *s..*e, start..end));
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

    /// Inline, for any sender, receivers of both kinds read the inspected bytes, and never before inspection.
    #[test]
    fn receivers_read_what_was_inspected(
        segments in proptest::collection::vec(
            (0..80usize, 1..30usize, any::<u8>(), prop_oneof![4 => Just(0x10u8), 1 => 0..0x20u8]),
            1..40,
        ),
        loses_acks in any::<bool>(),
        drop_invalid in any::<bool>(),
    ) {
        let mut config = config(StreamMode::Inline);
        config.drop_invalid = drop_invalid;
        let mut rig = Rig::open(config, 77);
        let mut receivers = [Receiver::new(120, true), Receiver::new(120, false)];
        for (start, len, salt, flags) in segments {
            let mut payload: Vec<u8> = (0..len).map(|n| salt.wrapping_mul(n as u8)).collect();
            let original = payload.clone();
            let flags = TcpFlags::from_bits_retain(flags);
            // A SYN takes the number before its data.
            let first = Seq(78).plus(start as u32);
            let seq = first.minus(u32::from(flags.contains(TcpFlags::SYN)));
            let out = rig.feed(ToServer, &segment(flags, seq, Seq(1), &original));
            if out.reuse {
                continue;
            }
            rig.drain(&original);
            match out.advice {
                Advice::Rewrite => prop_assert!(rig.pair.stream(ToServer).restore(first, &mut payload)),
                Advice::Forward => {
                    prop_assert!(!rig.pair.stream(ToServer).restore(first, &mut payload));
                }
                // Only a session that handles segments strictly gives these.
                Advice::Complete(_) | Advice::Trim(_) | Advice::Drop(_) => {}
            }
            rig.pair.end_packet(ToServer, &original, &mut rig.budget);
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

    /// A flow that is exported and imported between any two packets continues as before.
    #[test]
    fn a_moved_flow_goes_on(pieces in deliveries(300), inline in any::<bool>(), junk in proptest::collection::vec(any::<u8>(), 0..200)) {
        let data: Vec<u8> = (0..300u32).map(|n| (n * 3 + n / 100) as u8).collect();
        let mut rig = Rig::open(config(if inline { StreamMode::Inline } else { StreamMode::Passive }), 5);
        let mut receiver = Receiver::new(data.len(), true);
        for (start, end) in pieces {
            rig.client(5, start as u32, &data[start..end]);
            receiver.receive(start, &data[start..end]);
            rig.acknowledge(5, receiver.read as u32);
            let mut bytes = Vec::new();
            rig.session.export(&mut bytes);
            rig.pair.export(&mut bytes);
            rig.pair.release(&mut rig.budget);
            prop_assert_eq!(rig.budget.used(), 0);
            let mut from = Cursor::new(&bytes);
            rig.session = TcpSession::import(&mut from).unwrap();
            rig.pair = StreamPair::import(&mut from, &mut rig.budget).unwrap();
            prop_assert!(from.is_empty());
            // A part of the export is refused and leaves nothing.
            let before = rig.budget.used();
            let cut = bytes.len().saturating_sub(1);
            let mut from = Cursor::new(&bytes[..cut]);
            if TcpSession::import(&mut from).is_some() {
                prop_assert!(StreamPair::import(&mut from, &mut rig.budget).is_none());
            }
            prop_assert_eq!(rig.budget.used(), before);
        }
        rig.end();
        prop_assert_eq!(&rig.app, &data);
        rig.release();
        let _ = TcpSession::import(&mut Cursor::new(&junk));
        let mut budget = MemoryBudget::new(0);
        if let Some(mut pair) = StreamPair::import(&mut Cursor::new(&junk), &mut budget) {
            pair.release(&mut budget);
        }
        prop_assert_eq!(budget.used(), 0);
    }

    /// For any packets, nothing panics and memory stays within its bounds.
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
            rig.pair.end_packet(direction, packet.payload, &mut rig.budget);
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

/// The byte map's own model of the policies, from the paper's cases.
fn takes_new(policy: HostPolicy, old: Range<usize>, new: Range<usize>) -> bool {
    use HostPolicy::*;
    let begins_before = new.start < old.start;
    let begins_equal = new.start == old.start;
    let ends_beyond = new.end > old.end;
    let covers = new.start <= old.start && new.end >= old.end;
    match policy {
        Last => true,
        First | Vista => false,
        Bsd | Hpux10 | Irix | Windows | Windows2k3 | Macos => begins_before,
        Linux => begins_before || (begins_equal && ends_beyond),
        OldLinux => begins_before || (begins_equal && new.end >= old.end),
        Solaris | Hpux11 => covers || ends_beyond,
    }
}
