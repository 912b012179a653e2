// SPDX-License-Identifier: Apache-2.0
//! Tests of defragmentation: the published overlap sequence, evasions, bounds, and random fragmentations
//! against the original or against a byte map.

use super::*;
use bartizan_base::{LinkId, PacketDuration, TenantId};
use bartizan_testkit::packet::{Ip, IpFixed, sum};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;

const T0: Timestamp = Timestamp::from_parts(1_000, 0);

fn key(v6: bool, id: u32) -> FragmentKey {
    let (src, dst) = if v6 {
        (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)), IpAddr::V6(Ipv6Addr::LOCALHOST))
    } else {
        (IpAddr::V4(Ipv4Addr::new(1, 1, 1, 1)), IpAddr::V4(Ipv4Addr::new(2, 2, 2, 2)))
    };
    FragmentKey {
        tenant: TenantId(0),
        link: None,
        vlans: [0; 3],
        tunnel: 0,
        src,
        dst,
        id,
        protocol: 1,
        recursion: 0,
    }
}

/// The defaults of the tests' fragments.
const PLAIN: Fragment<'static> = Fragment {
    offset: 0,
    more: true,
    header: &[],
    hop_limit: 64,
    path: [0; 2],
    reserved: false,
    next_header: 58,
    payload: &[],
};

impl<'a> Fragment<'a> {
    fn with(self, next_header: u8, payload: &'a [u8]) -> Fragment<'a> {
        Fragment { next_header, payload, header: &[], ..self }
    }
}

/// A header as a fragment has it; IPv6 with a destination options header in front of the fragment header.
fn header(v6: bool, offset: u16, more: bool, len: usize) -> Vec<u8> {
    let len = Some((len + 24) as u16);
    if v6 {
        let ip = Ip::new([0xaa; 16].into(), [0xaa; 16].into(), 44);
        let options = (60, [&[1, 1, 12][..], &[0; 12]].concat());
        Ip { extensions: vec![options], fixed: IpFixed { len, ..IpFixed::default() }, ..ip }.packet(&[], None)
    } else {
        let fixed = IpFixed { len, flags: Some(more.into()), frag: Some(offset / 8), ..IpFixed::default() };
        let ip = Ip::new([1; 4].into(), [2; 4].into(), 1);
        Ip { id: 0x1234, options: vec![1, 1, 1, 0], fixed, ..ip }.packet(&[], None)
    }
}

/// Sends a fragment; returns the payload of the datagram when it is complete.
fn send(
    d: &mut Defragmenter,
    key: &FragmentKey,
    policy: OverlapPolicy,
    at: Timestamp,
    offset: u16,
    more: bool,
    payload: &[u8],
) -> (DefragOutcome, Option<Vec<u8>>) {
    let v6 = !key.is_ipv4();
    let header = header(v6, offset, more, payload.len());
    let mut out = Vec::new();
    let fragment = Fragment { offset, more, header: &header, ..PLAIN.with(58, payload) };
    let outcome = d.insert(key, &fragment, policy, at, &mut out);
    let whole = (outcome.result == DefragResult::Complete).then(|| {
        let head = header.len();
        if v6 {
            assert_eq!(usize::from(u16::from_be_bytes([out[4], out[5]])), out.len() - 40);
            assert_eq!((out[6], out[40], out[41]), (60, 58, 1));
        } else {
            assert_eq!(usize::from(u16::from_be_bytes([out[2], out[3]])), out.len());
            assert_eq!((out[6], out[7], !sum(0, &out[..head])), (0, 0, 0));
        }
        out[head..].to_vec()
    });
    (outcome, whole)
}

fn small() -> Defragmenter {
    Defragmenter::new(DefragConfig { max_trackers: 64, ..DefragConfig::default() })
}

/// Offset, more, byte, length.
type FragmentSpec = (u16, bool, u8, usize);

/// Runs a sequence through a fresh instance.
fn run(v6: bool, policy: OverlapPolicy, sequence: &[FragmentSpec]) -> (Option<Vec<u8>>, Vec<DefragOutcome>) {
    let mut d = small();
    let mut outcomes = Vec::new();
    for (offset, more, byte, len) in sequence {
        let (outcome, whole) = send(&mut d, &key(v6, 7), policy, T0, *offset, *more, &vec![*byte; *len]);
        outcomes.push(outcome);
        if whole.is_some() {
            assert_eq!((d.waiting(), d.fragments()), (0, 0));
            return (whole, outcomes);
        }
    }
    (None, outcomes)
}

/// One letter for each eight bytes.
fn letters(bytes: &[u8]) -> String {
    bytes.chunks(8).map(|chunk| char::from(chunk[0])).collect()
}

/// The sequence of Novak's paper, with a letter for each fragment.
const NOVAK: [FragmentSpec; 17] = [
    (0, true, b'A', 24),
    (32, true, b'B', 16),
    (48, true, b'C', 24),
    (80, true, b'D', 8),
    (104, true, b'E', 16),
    (120, true, b'F', 24),
    (144, true, b'G', 16),
    (160, true, b'H', 16),
    (176, true, b'I', 8),
    (8, true, b'J', 32),
    (48, true, b'K', 24),
    (72, true, b'L', 24),
    (96, true, b'M', 24),
    (128, true, b'N', 8),
    (152, true, b'O', 8),
    (160, true, b'P', 8),
    (176, false, b'Q', 16),
];

#[test]
fn the_published_sequence_gives_each_policys_datagram() {
    for (policy, expected) in [
        (OverlapPolicy::Bsd, "AAAJJBCCCLLLMMMFFFGGHHIQ"),
        (OverlapPolicy::Linux, "AAAJJBKKKLLLMMMFFFGGPHQQ"),
        (OverlapPolicy::Windows, "AAAJBBCCCLLLMEEFFFGGHHIQ"),
        (OverlapPolicy::Solaris, "AAAJBBCCCLLLMMMFFFGGHHIQ"),
        (OverlapPolicy::First, "AAAJBBCCCLDLMEEFFFGGHHIQ"),
        (OverlapPolicy::Last, "AJJJJBKKKLLLMMMFNFGOPHQQ"),
        (OverlapPolicy::BsdRight, "AJJJBBKKKLDLMEEFNFGOPHQQ"),
    ] {
        for v6 in [false, true] {
            let (whole, outcomes) = run(v6, policy, &NOVAK);
            let whole = whole.unwrap_or_default();
            assert_eq!(letters(&whole), expected, "{policy:?}");
            assert_eq!(whole.len(), 192);
            let overlap = if v6 { DefragEvent::Ipv6FragOverlap } else { DefragEvent::Ipv4FragOverlap };
            assert!(outcomes[..9].iter().all(|o| o.events.is_empty()));
            assert!(outcomes[9..].iter().any(|o| o.events.contains(overlap)));
        }
    }
}

#[test]
fn further_known_sequences() {
    let (bsd, linux) = (OverlapPolicy::Bsd, OverlapPolicy::Linux);
    let cases: [(OverlapPolicy, &[FragmentSpec], Option<&str>); 7] = [
        // Three overlapping fragments under Linux.
        (
            linux,
            &[(0, true, b'A', 24), (40, true, b'B', 48), (24, true, b'C', 48), (88, false, b'D', 14)],
            Some("AAACCCCCCBBDD"),
        ),
        // The last fragment comes first and is overlapped.
        (
            bsd,
            &[(24, false, b'A', 16), (8, true, b'B', 16), (16, true, b'C', 16), (0, true, b'D', 8)],
            Some("DBBCA"),
        ),
        (bsd, &[(8, false, b'E', 24), (0, true, b'M', 24)], Some("MMME")),
        (
            bsd,
            &[(16, true, b'A', 16), (8, true, b'B', 16), (0, true, b'Z', 8), (32, false, b'D', 8)],
            Some("ZBBAD"),
        ),
        // A gap stays a gap.
        (
            bsd,
            &[
                (16, true, b'A', 16),
                (40, true, b'B', 8),
                (8, true, b'C', 16),
                (0, true, b'Z', 8),
                (48, false, b'D', 8),
            ],
            None,
        ),
        // Data after the last fragment does not belong to the datagram.
        (bsd, &[(16, true, b'C', 8), (0, true, b'A', 8), (8, false, b'B', 8)], Some("AB")),
        // In reverse order.
        (bsd, &[(16, false, b'C', 3), (8, true, b'B', 8), (0, true, b'A', 8)], Some("ABC")),
    ];
    for (policy, sequence, expected) in cases {
        for v6 in [false, true] {
            let whole = run(v6, policy, sequence).0.map(|whole| letters(&whole));
            assert_eq!(whole.as_deref(), expected, "{sequence:?}");
        }
    }
}

#[test]
fn a_ping_of_death_and_empty_or_lone_fragments_are_dropped_with_their_reason() {
    for v6 in [false, true] {
        let mut d = small();
        let mut go = |offset, more, payload: &[u8]| {
            send(&mut d, &key(v6, 1), OverlapPolicy::Bsd, T0, offset, more, payload).0
        };
        let large = go(65_528, false, &[0; 9]);
        assert_eq!(large.result, DefragResult::Dropped(DropReason::TooLarge));
        let event = if v6 { DefragEvent::Ipv6FragPktTooLarge } else { DefragEvent::Ipv4FragPktTooLarge };
        assert_eq!(large.events.iter().collect::<Vec<_>>(), [event]);
        assert_eq!(go(8, false, &[]).result, DefragResult::Dropped(DropReason::Empty));
        assert_eq!(go(0, false, &[1; 8]).result, DefragResult::Dropped(DropReason::NotAFragment));
        assert_eq!((d.waiting(), d.fragments()), (0, 0));
        assert_eq!(d.counters().dropped(DropReason::TooLarge), 1);
    }
    // The header makes the whole too long although no fragment is.
    let mut d = small();
    let k = key(false, 1);
    assert_eq!(send(&mut d, &k, OverlapPolicy::Bsd, T0, 0, true, &[1; 65_512]).0.result, DefragResult::Held);
    let (outcome, _) = send(&mut d, &k, OverlapPolicy::Bsd, T0, 65_512, false, &[1; 3]);
    assert_eq!(outcome.result, DefragResult::Dropped(DropReason::TooLarge));
    assert_eq!((d.waiting(), d.fragments()), (0, 0));
}

#[test]
fn a_header_that_is_none_is_refused() {
    let mut d = small();
    let mut out = Vec::new();
    let v6 = header(true, 0, true, 8);
    for (v6_key, header) in [
        (false, &v6[..]),
        (true, &header(false, 0, true, 8)[..]),
        (true, &v6[..48]),
        (true, &v6[..41]),
        (false, &[]),
        (false, &[0x45; 19]),
    ] {
        let fragment = Fragment { offset: 0, more: true, header, ..PLAIN.with(6, &[0; 8]) };
        let outcome = d.insert(&key(v6_key, 1), &fragment, OverlapPolicy::First, T0, &mut out);
        assert_eq!(outcome.result, DefragResult::Dropped(DropReason::BadHeader));
    }
}

#[test]
fn teardrop_and_duplicate_last_fragments_do_no_harm() {
    for policy in OverlapPolicy::ALL {
        for v6 in [false, true] {
            // The second one is inside the first.
            let (whole, _) = run(v6, policy, &[(0, true, b'A', 32), (24, false, b'B', 4)]);
            assert!(whole.is_none_or(|whole| whole.len() <= 32));
            let (whole, _) = run(v6, policy, &[(8, false, b'B', 8), (8, false, b'C', 8), (0, true, b'A', 8)]);
            assert_eq!(whole.unwrap().len(), 16);
            let (whole, _) =
                run(v6, policy, &[(8, false, b'B', 8), (16, false, b'C', 8), (0, true, b'A', 8)]);
            assert_eq!(letters(&whole.unwrap()), "AB");
        }
    }
}

#[test]
fn an_id_is_free_again_after_completion() {
    let mut d = small();
    let k = key(false, 9);
    for round in 0..3_u8 {
        assert!(send(&mut d, &k, OverlapPolicy::Linux, T0, 0, true, &[round; 8]).1.is_none());
        let whole = send(&mut d, &k, OverlapPolicy::Linux, T0, 8, false, &[round; 5]).1.unwrap();
        assert_eq!(whole, [round; 13]);
    }
    assert_eq!(d.counters().ipv4, VersionCounters { fragments: 6, reassembled: 3 });
}

#[test]
fn whatever_tells_datagrams_apart_keeps_them_apart() {
    for v6 in [false, true] {
        let a = key(v6, 5);
        let (src, dst) = (a.src, a.dst);
        let mut others = vec![
            FragmentKey { tenant: TenantId(1), ..a },
            FragmentKey { link: Some(LinkId(0)), ..a },
            FragmentKey { vlans: [0, 0, 4], ..a },
            FragmentKey { tunnel: 1, ..a },
            FragmentKey { src: dst, dst: src, ..a },
            FragmentKey { id: 6, ..a },
            FragmentKey { recursion: 1, ..a },
        ];
        let other_protocol = FragmentKey { protocol: 17, ..a };
        if !v6 {
            others.push(other_protocol);
        }
        let mut d = small();
        assert!(send(&mut d, &a, OverlapPolicy::Bsd, T0, 0, true, &[1; 8]).1.is_none());
        for other in others {
            assert!(send(&mut d, &other, OverlapPolicy::Bsd, T0, 8, false, &[2; 8]).1.is_none(), "{other:?}");
        }
        let rest = if v6 { other_protocol } else { a };
        assert!(send(&mut d, &rest, OverlapPolicy::Bsd, T0, 8, false, &[2; 8]).1.is_some());
    }
}

#[test]
fn datagrams_time_out_on_the_packet_clock() {
    let mut d = small();
    let (k, other) = (key(true, 1), key(false, 2));
    let later = |s| T0 + PacketDuration::from_secs(s);
    send(&mut d, &k, OverlapPolicy::Bsd, T0, 0, true, &[1; 8]);
    send(&mut d, &k, OverlapPolicy::Bsd, later(60), 16, true, &[1; 8]);
    // Each fragment restarts the time, and an earlier clock ends nothing.
    assert!(send(&mut d, &k, OverlapPolicy::Bsd, later(120), 24, false, &[1; 8]).1.is_none());
    assert!(send(&mut d, &k, OverlapPolicy::Bsd, T0, 8, true, &[1; 8]).1.is_some());
    send(&mut d, &other, OverlapPolicy::Bsd, later(200), 0, true, &[1; 8]);
    assert_eq!(d.expire_some(later(260), 10), 0);
    assert_eq!(d.expire_some(later(261), 10), 1);
    assert_eq!((d.waiting(), d.fragments(), d.counters().manager_timeouts), (0, 0, 1));
    // A host's own, shorter time.
    let fragment = Fragment {
        offset: 0,
        more: true,
        header: &header(false, 0, true, 8),
        hop_limit: 64,
        next_header: 0,
        path: [0; 2],
        reserved: false,
        payload: &[1; 8],
    };
    let host = HostSettings { policy: OverlapPolicy::Bsd, timeout: Some(PacketDuration::from_secs(1)) };
    let mut out = Vec::new();
    send(&mut d, &key(false, 3), OverlapPolicy::Bsd, later(300), 0, true, &[1; 8]);
    d.insert(&other, &fragment, host, later(300), &mut out);
    assert!(send(&mut d, &other, OverlapPolicy::Bsd, later(302), 8, false, &[2; 8]).1.is_none());
    assert_eq!(d.counters().worker_timeouts, 1);
}

#[test]
fn when_full_the_datagram_that_waited_longest_is_given_up() {
    let mut d = small();
    for id in 0..100 {
        send(&mut d, &key(false, id), OverlapPolicy::Bsd, T0, 0, true, &[1; 8]);
    }
    assert_eq!(
        (d.waiting(), d.counters().tracker_hard_reuse, d.counters().max_trackers_reached),
        (64, 36, 36)
    );
    assert!(send(&mut d, &key(false, 99), OverlapPolicy::Bsd, T0, 8, false, &[1; 8]).1.is_some());
    assert!(send(&mut d, &key(false, 36), OverlapPolicy::Bsd, T0, 8, false, &[1; 8]).1.is_some());
    assert!(send(&mut d, &key(false, 35), OverlapPolicy::Bsd, T0, 8, false, &[1; 8]).1.is_none());
}

#[test]
fn fragments_and_memory_are_bounded_whatever_comes() {
    for (memory, max_fragments) in [(1 << 20, 65_535), (32 << 20, 100), (40_000, 65_535), (0, 65_535)] {
        let config = DefragConfig { memory, max_fragments, max_trackers: 5_000, ..DefragConfig::default() };
        let mut d = Defragmenter::new(config);
        for n in 0..4_000_u32 {
            // First and last fragment of each, never the middle (the rose attack), then one large one.
            send(&mut d, &key(n % 2 == 0, n), OverlapPolicy::Last, T0, 0, true, &[1; 8]);
            send(&mut d, &key(n % 2 == 0, n), OverlapPolicy::Last, T0, 64_800, false, &[1; 200]);
            send(
                &mut d,
                &key(true, 1 << 20),
                OverlapPolicy::BsdRight,
                T0,
                (n % 900 * 8 + 8) as u16,
                true,
                &[1; 1_400],
            );
            assert!(d.memory_used() <= memory.max(8_192), "{} of {memory}", d.memory_used());
            assert!(d.fragments() <= max_fragments);
        }
        let fits = send(&mut d, &key(false, 77), OverlapPolicy::Bsd, T0, 0, true, &[1; 8]).0.result;
        let expected =
            if memory == 0 { DefragResult::Dropped(DropReason::Memory) } else { DefragResult::Held };
        assert_eq!(fits, expected);
    }
}

#[test]
fn one_datagram_cannot_hold_all_fragments() {
    let mut d = Defragmenter::new(DefragConfig { max_datagram_fragments: 10, ..DefragConfig::default() });
    let k = key(true, 1);
    for n in 0..20 {
        let (outcome, _) = send(&mut d, &k, OverlapPolicy::BsdRight, T0, 8, true, &[n; 8]);
        let refused = DefragResult::Dropped(DropReason::DatagramFragments);
        assert_eq!(outcome.result, if n < 10 { DefragResult::Held } else { refused });
        assert_eq!(outcome.events.contains(DefragEvent::Ipv6FragIgnored), n >= 10);
    }
}

#[test]
fn counters_have_the_names_of_eve() {
    let mut names = Vec::new();
    DefragCounters::default().for_each(|name, _| names.push(name));
    assert!(names.contains(&"defrag.ipv6.reassembled") && names.contains(&"defrag.mgr.tracker_timeout"));
    assert_eq!(names.len(), 10 + DropReason::COUNT);
    assert_eq!(DefragEvent::Ipv6FragIgnored.name(), "ipv6.frag_ignored");
}

/// Cuts a payload at multiples of eight and sends the parts in the order of `shuffle`.
fn parts(len: usize, cuts: &[usize], shuffle: &[u32]) -> Vec<(usize, usize)> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut * 8 % len.max(1) / 8 * 8).chain([0, len]).collect();
    at.sort_unstable();
    at.dedup();
    let mut parts: Vec<_> = at.windows(2).map(|w| (w[0], w[1])).collect();
    let rank = |part: &(usize, usize)| shuffle.get(part.0 / 8 % shuffle.len().max(1)).copied();
    parts.sort_by_key(rank);
    parts
}

/// Whether an overlapping byte is taken from the later fragment, according to the paper.
fn later_wins(policy: OverlapPolicy, old: (usize, usize), new: (usize, usize)) -> bool {
    match policy {
        OverlapPolicy::First => false,
        OverlapPolicy::Last => true,
        OverlapPolicy::Bsd => new.0 < old.0,
        OverlapPolicy::BsdRight => new.0 >= old.0,
        OverlapPolicy::Linux => new.0 <= old.0,
        OverlapPolicy::Solaris => new.0 < old.0 && new.1 >= old.1,
        OverlapPolicy::Windows => new.0 < old.0 && new.1 > old.1,
    }
}

fn any_policy() -> impl Strategy<Value = OverlapPolicy> {
    (0..7_usize).prop_map(|n| OverlapPolicy::ALL[n])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn random_fragments_without_overlap_give_the_original(
        v6 in any::<bool>(), policy in any_policy(), payload in prop::collection::vec(any::<u8>(), 9..3_000),
        cuts in prop::collection::vec(1..400_usize, 1..40), shuffle in prop::collection::vec(any::<u32>(), 64),
    ) {
        let parts = parts(payload.len(), &cuts, &shuffle);
        prop_assume!(parts.len() > 1);
        let mut d = small();
        let mut whole = None;
        for (n, (from, to)) in parts.iter().enumerate() {
            let more = *to != payload.len();
            let (outcome, done) = send(&mut d, &key(v6, 3), policy, T0, *from as u16, more, &payload[*from..*to]);
            prop_assert!(outcome.events.is_empty());
            prop_assert_eq!(done.is_some(), n + 1 == parts.len());
            whole = done;
        }
        prop_assert_eq!(whole.unwrap(), payload);
        prop_assert_eq!((d.waiting(), d.fragments()), (0, 0));
    }

    // Two fragments that overlap anyhow, with the rest of the datagram before or after them.
    #[test]
    fn an_overlap_is_decided_as_the_byte_map_says(
        v6 in any::<bool>(), policy in any_policy(), a in (1..20_usize, 1..20_usize), b in (0..64_usize, 1..20_usize),
        first_early in any::<bool>(), last_early in any::<bool>(),
    ) {
        let old = (a.0 * 8, (a.0 + a.1) * 8);
        // Anywhere that overlaps.
        let earliest = (a.0 + 1).saturating_sub(b.1).max(1);
        let start = earliest + b.0 % (a.0 + a.1 - earliest);
        let new = (start * 8, (start + b.1) * 8);
        let (low, high) = (old.0.min(new.0), old.1.max(new.1));
        let first = (0, low, true, b'f');
        let last = (high + 8, high + 12, false, b'l');
        let mut sequence = Vec::new();
        if first_early { sequence.push(first) }
        if last_early { sequence.push(last) }
        sequence.extend([(old.0, old.1, true, b'o'), (new.0, new.1, true, b'n')]);
        if !first_early { sequence.push(first) }
        if !last_early { sequence.push(last) }
        // Whatever came before, only this fragment completes the datagram.
        sequence.push((high, high + 8, true, b'm'));
        let mut map = vec![0; high + 12];
        map[..low].fill(b'f');
        map[high..high + 8].fill(b'm');
        map[high + 8..].fill(b'l');
        map[old.0..old.1].fill(b'o');
        for byte in &mut map[new.0..new.1] {
            if *byte == 0 || later_wins(policy, old, new) {
                *byte = b'n';
            }
        }
        let mut d = small();
        let mut whole = None;
        for (from, to, more, byte) in sequence {
            let (_, done) = send(&mut d, &key(v6, 3), policy, T0, from as u16, more, &vec![byte; to - from]);
            whole = whole.or(done);
        }
        prop_assert_eq!(whole.unwrap(), map);
    }

    // Any fragments at all: no panic, every byte of a datagram is one that some fragment had there, and no
    // fragment stays held.
    #[test]
    fn any_fragments_give_only_bytes_that_were_sent_there(
        v6 in any::<bool>(), policy in any_policy(),
        fragments in prop::collection::vec((0..16_u16, 0..6_usize, 0..8_usize, prop::bool::weighted(0.8)), 1..40),
    ) {
        let mut d = small();
        let mut sent: Vec<(u16, Vec<u8>)> = Vec::new();
        for (n, (offset, units, odd, more)) in fragments.into_iter().enumerate() {
            let payload = vec![n as u8 + 1; units * 8 + if more { 0 } else { odd }];
            sent.push((offset * 8, payload.clone()));
            let (outcome, whole) = send(&mut d, &key(v6, 3), policy, T0, offset * 8, more, &payload);
            if let Some(whole) = whole {
                for (at, byte) in whole.iter().enumerate() {
                    let from = sent.iter().any(|(offset, data)| {
                        at.checked_sub(usize::from(*offset)).and_then(|at| data.get(at)) == Some(byte)
                    });
                    prop_assert!(from, "byte {at} is {byte}");
                }
                prop_assert_eq!((d.waiting(), d.fragments()), (0, 0));
                sent.clear();
            } else if outcome.result == DefragResult::Held {
                prop_assert!(d.fragments() > 0);
            }
        }
    }

    #[test]
    fn any_header_and_offset_never_panic(
        v6 in any::<bool>(), header in prop::collection::vec(any::<u8>(), 0..90), offset in any::<u16>(), more in any::<bool>(),
        len in 0..70_000_usize,
    ) {
        let mut d = small();
        let mut out = Vec::new();
        let payload = vec![0; len];
        for (offset, more) in [(offset, more), (0, true), (8, false)] {
            let fragment = Fragment { offset, more, header: &header, ..PLAIN.with(17, &payload) };
            d.insert(&key(v6, 1), &fragment, OverlapPolicy::Bsd, T0, &mut out);
        }
    }
}
