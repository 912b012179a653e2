// SPDX-License-Identifier: Apache-2.0
//! Strict mode and holding: refused fragments, waiting frames, and frames that leave.

use super::*;
use bartizan_base::{PacketDuration, TenantId};
use bartizan_testkit::packet::{Ip, IpFixed, Piece};
use core::net::IpAddr;

const T0: Timestamp = Timestamp::from_parts(1_000, 0);

fn after(seconds: u64) -> Timestamp {
    T0 + PacketDuration::from_secs(seconds)
}

fn key(v6: bool, id: u32) -> FragmentKey {
    let address = |n: u8| if v6 { IpAddr::from([n; 16]) } else { IpAddr::from([n; 4]) };
    FragmentKey {
        tenant: TenantId(0),
        link: None,
        vlans: [0; 3],
        tunnel: 0,
        src: address(1),
        dst: address(2),
        id,
        protocol: 17,
        recursion: 0,
    }
}

/// A fragment by its parts, to be changed by tests.
#[derive(Clone, Debug)]
struct TestFragment {
    offset: u16,
    more: bool,
    /// Type of service or traffic class.
    tos: u8,
    /// Flags of IPv4.
    flags: u8,
    checksum_error: u16,
    /// Options of IPv4; extension headers of IPv6 before the fragment header, the last of which names that.
    options: Vec<u8>,
    /// The header that IPv6's fixed header names, where there are extension headers.
    first_extension: u8,
    next_header: u8,
    reserved: bool,
    hop_limit: u8,
    path: [u64; 2],
    payload: Vec<u8>,
}

fn part(offset: u16, more: bool, len: usize) -> TestFragment {
    TestFragment {
        offset,
        more,
        tos: 0,
        flags: 0,
        checksum_error: 0,
        options: Vec::new(),
        first_extension: 60,
        next_header: 17,
        reserved: false,
        hop_limit: 64,
        path: [7, 0],
        payload: vec![b'x'; len],
    }
}

impl TestFragment {
    fn header(&self, v6: bool) -> Vec<u8> {
        if v6 {
            let next = if self.options.is_empty() { 44 } else { self.first_extension };
            let ip = Ip::new([1; 16].into(), [2; 16].into(), next);
            // The bytes after the fixed header are not part of a header.
            let fixed = IpFixed { len: Some(0), ..IpFixed::default() };
            return Ip { tos: self.tos, ttl: self.hop_limit, fixed, ..ip }.packet(&self.options, None);
        }
        let flags = self.flags >> 5 | u8::from(self.more);
        let fixed = IpFixed { len: Some(0), flags: Some(flags), ..IpFixed::default() };
        let piece = Piece { offset: self.offset.into(), more: self.more };
        let ip = Ip::new([1; 4].into(), [2; 4].into(), 17);
        let ip = Ip { tos: self.tos, ttl: self.hop_limit, id: 9, options: self.options.clone(), fixed, ..ip };
        let mut header = ip.packet(&[], Some(piece));
        header[10] ^= (self.checksum_error >> 8) as u8;
        header[11] ^= self.checksum_error as u8;
        header
    }
}

fn strict(hold: bool) -> Defragmenter {
    Defragmenter::new(DefragConfig { max_trackers: 4, strict: true, hold, ..DefragConfig::default() })
}

fn insert(d: &mut Defragmenter, key: &FragmentKey, at: Timestamp, part: &TestFragment) -> DefragOutcome {
    let header = part.header(!key.is_ipv4());
    let fragment = Fragment {
        offset: part.offset,
        more: part.more,
        header: &header,
        hop_limit: part.hop_limit,
        path: part.path,
        reserved: part.reserved,
        next_header: part.next_header,
        payload: &part.payload,
    };
    d.insert(key, &fragment, OverlapPolicy::Linux, at, &mut Vec::new())
}

/// Inserts a fragment; returns its result, or the reason of its drop.
fn send(
    d: &mut Defragmenter,
    key: &FragmentKey,
    at: Timestamp,
    part: &TestFragment,
) -> Result<DefragResult, DropReason> {
    match insert(d, key, at, part).result {
        DefragResult::Dropped(reason) => Err(reason),
        result => Ok(result),
    }
}

/// Sends a fragment with a frame of one byte, which waits or leaves with it; returns the frames that leave,
/// in order.
fn hold(
    d: &mut Defragmenter,
    key: &FragmentKey,
    at: Timestamp,
    part: &TestFragment,
    frame: u8,
) -> Result<Vec<u8>, DropReason> {
    let outcome = insert(d, key, at, part);
    let id = outcome.datagram;
    match outcome.result {
        DefragResult::Dropped(reason) => return Err(reason),
        DefragResult::Held => {
            assert_eq!(d.attach(id.unwrap(), b"note", &[frame], at), Ok(Attached::Waits));
            return Ok(vec![]);
        }
        DefragResult::Complete => assert!(d.pass(id.unwrap(), at)),
    }
    let mut left = frames(d, Defragmenter::pop_outgoing);
    left.push(frame);
    Ok(left)
}

fn frames(d: &mut Defragmenter, pop: fn(&mut Defragmenter, &mut Vec<u8>) -> Option<usize>) -> Vec<u8> {
    let (mut out, mut all) = (Vec::new(), Vec::new());
    while let Some(note) = pop(d, &mut out) {
        assert_eq!(&out[..note], b"note");
        all.extend_from_slice(&out[note..]);
    }
    all
}

#[test]
fn strict_refuses_what_receivers_treat_differently() {
    for v6 in [false, true] {
        let k = key(v6, 5);
        for (bad, reason) in [
            (part(0, true, 8), DropReason::Overlapped),
            (part(8, true, 16), DropReason::Overlapped),
            (part(0, true, 64), DropReason::Length),
            (TestFragment { hop_limit: 63, ..part(8, true, 8) }, DropReason::HopLimit),
            (part(8, true, 7), DropReason::Length),
            (part(8, false, 8), DropReason::Length),
            (part(32, true, 8), DropReason::Length),
            (part(8, true, 0), DropReason::Empty),
            (part(65_528, false, 100), DropReason::TooLarge),
        ] {
            for hold in [false, true] {
                let mut d = strict(hold);
                assert_eq!(send(&mut d, &k, T0, &part(0, true, 8)), Ok(DefragResult::Held));
                assert_eq!(send(&mut d, &k, T0, &part(16, false, 8)), Ok(DefragResult::Held));
                assert_eq!(send(&mut d, &k, T0, &bad), Err(reason), "{bad:?}");
                // No byte of it was kept: the fragment that fits completes the datagram.
                assert_eq!(send(&mut d, &k, T0, &part(8, true, 8)), Ok(DefragResult::Complete), "{bad:?}");
            }
        }
    }
}

/// First fragments that some receiver discards, in the place of a good one.
fn decoys(v6: bool) -> Vec<(&'static str, TestFragment, DropReason)> {
    use DropReason::{Unlike, Unsound};
    let head = || part(0, true, 16);
    let options = |options: &[u8]| TestFragment { options: options.to_vec(), ..head() };
    let mut all = vec![
        ("another hardware address", TestFragment { path: [8, 0], ..head() }, Unlike),
        ("another tag", TestFragment { path: [7, 1], ..head() }, Unlike),
        ("a reserved bit", TestFragment { reserved: true, ..head() }, Unsound),
        ("ECN-capable beside others that are not", TestFragment { tos: 3, ..head() }, Unlike),
    ];
    if v6 {
        let hop_by_hop = |options: &[u8]| TestFragment { first_extension: 0, ..self::decoy_options(options) };
        fn decoy_of(first: u8, bytes: &[u8]) -> TestFragment {
            TestFragment { first_extension: first, options: bytes.to_vec(), ..part(0, true, 16) }
        }
        all.extend([
            ("hop-by-hop options, discard", hop_by_hop(&[44, 0, 0x80, 4, 0, 0, 0, 0]), Unlike),
            ("destination options, discard", decoy_of(60, &[44, 0, 0xc0, 4, 0, 0, 0, 0]), Unlike),
            ("padding only", decoy_of(60, &[44, 0, 1, 4, 0, 0, 0, 0]), Unlike),
            (
                "routing header 0",
                decoy_of(43, &[44, 2, 0, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
                Unlike,
            ),
            (
                "routing header 2",
                decoy_of(43, &[44, 2, 2, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
                Unlike,
            ),
            (
                "hop-by-hop out of place",
                decoy_of(60, &[0, 0, 1, 4, 0, 0, 0, 0, 44, 0, 1, 4, 0, 0, 0, 0]),
                Unlike,
            ),
            ("another next header", TestFragment { next_header: 58, ..head() }, Unlike),
            ("no whole TCP header", TestFragment { next_header: 6, ..head() }, Unsound),
            (
                "a header chain beyond the fragment",
                TestFragment {
                    next_header: 60,
                    payload: vec![17, 9, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1],
                    ..head()
                },
                Unsound,
            ),
        ]);
    } else {
        all.extend([
            ("a bad checksum", TestFragment { checksum_error: 1, ..head() }, Unsound),
            ("record route", options(&[7, 7, 4, 0, 0, 0, 0, 0]), Unlike),
            ("broken record route", options(&[7, 7, 9, 0, 0, 0, 0, 0]), Unlike),
            ("loose source route", options(&[0x83, 7, 4, 1, 1, 1, 1, 0]), Unlike),
            ("strict source route", options(&[0x89, 7, 4, 1, 1, 1, 1, 0]), Unlike),
            ("router alert", options(&[0x94, 4, 0, 0]), Unlike),
            ("do not fragment", TestFragment { flags: 0x40, ..head() }, Unlike),
        ]);
    }
    all
}

fn decoy_options(options: &[u8]) -> TestFragment {
    TestFragment { options: options.to_vec(), ..part(0, true, 16) }
}

#[test]
fn a_decoy_that_a_receiver_throws_away_is_no_part_of_a_datagram() {
    for v6 in [false, true] {
        let k = key(v6, 5);
        for (what, decoy, reason) in decoys(v6) {
            let mut d = strict(true);
            assert_eq!(hold(&mut d, &k, T0, &part(16, false, 8), 1), Ok(vec![]));
            assert_eq!(hold(&mut d, &k, T0, &decoy, 2), Err(reason), "{what}");
            // The true first fragment: judged with the tail that the receiver has.
            assert_eq!(hold(&mut d, &k, T0, &part(0, true, 16), 3), Ok(vec![1, 3]), "{what}");
            // If the decoy comes first, no datagram becomes whole with fragments that differ from it, and
            // none leaves.
            let mut d = strict(true);
            let first = hold(&mut d, &k, T0, &decoy, 1);
            let tail = hold(&mut d, &k, T0, &part(16, false, 8), 2);
            let head = hold(&mut d, &k, T0, &part(0, true, 16), 3);
            if first.is_ok() {
                assert!(tail.is_err() && head.is_err(), "{what}: {tail:?} {head:?}");
                assert_eq!(frames(&mut d, Defragmenter::pop_outgoing), []);
            } else {
                assert_eq!(head, Ok(vec![2, 3]), "{what}");
            }
        }
    }
}

#[test]
fn fragments_that_differ_in_what_no_receiver_asks_for_are_one_datagram() {
    for v6 in [false, true] {
        let k = key(v6, 5);
        // Congestion on the way, another code point, all with the same option.
        let option = if v6 { vec![44, 0, 1, 4, 0, 0, 0, 0] } else { vec![0x94, 4, 0, 0] };
        let marked = |tos, p: TestFragment| TestFragment { tos, options: option.clone(), ..p };
        let mut d = strict(true);
        assert_eq!(hold(&mut d, &k, T0, &marked(2, part(16, false, 5)), 1), Ok(vec![]));
        assert_eq!(hold(&mut d, &k, T0, &marked(3, part(0, true, 8)), 2), Ok(vec![]));
        assert_eq!(hold(&mut d, &k, T0, &marked(0x2a, part(8, true, 8)), 3), Ok(vec![1, 2, 3]));
        assert_eq!((d.waiting(), d.fragments()), (0, 0));
    }
}

#[test]
fn frames_wait_until_their_datagram_has_passed() {
    for v6 in [false, true] {
        let (a, b) = (key(v6, 1), key(v6, 2));
        let mut d = strict(true);
        assert_eq!(hold(&mut d, &a, T0, &part(0, true, 8), 1), Ok(vec![]));
        assert_eq!(hold(&mut d, &b, T0, &part(8, false, 3), 2), Ok(vec![]));
        assert_eq!(hold(&mut d, &a, T0, &part(16, false, 3), 3), Ok(vec![]));
        assert_eq!(hold(&mut d, &a, T0, &part(8, true, 8), 4), Ok(vec![1, 3, 4]));
        // A refused datagram leaves nothing; its id is free, since no part of it has left.
        let outcome = insert(&mut d, &b, T0, &part(0, true, 8));
        assert_eq!(outcome.result, DefragResult::Complete);
        d.refuse(outcome.datagram.unwrap());
        assert_eq!(frames(&mut d, Defragmenter::pop_outgoing), []);
        assert_eq!(frames(&mut d, Defragmenter::pop_discarded), [2]);
        assert_eq!((d.waiting(), d.fragments()), (0, 0));
        // A datagram that never becomes whole is discarded.
        assert_eq!(hold(&mut d, &b, T0, &part(0, true, 8), 5), Ok(vec![]));
        assert_eq!(d.expire_some(after(60), 9), 0);
        assert_eq!(d.expire_some(after(61), 9), 1);
        assert_eq!(frames(&mut d, Defragmenter::pop_discarded), [5]);
        assert_eq!(d.counters().dropped(DropReason::Incomplete), 1);
        // Frames that still wait at the end are discarded, too.
        assert_eq!(hold(&mut d, &b, after(61), &part(0, true, 8), 6), Ok(vec![]));
        d.clear();
        assert_eq!(frames(&mut d, Defragmenter::pop_discarded), [6]);
        assert_eq!((d.waiting(), d.fragments()), (0, 0));
    }
}

#[test]
fn frames_that_are_settled_late_go_the_way_of_their_datagram() {
    for passes in [false, true] {
        let k = key(false, 1);
        let mut d = strict(true);
        let first = insert(&mut d, &k, T0, &part(0, true, 8)).datagram.unwrap();
        let second = insert(&mut d, &k, T0, &part(8, true, 8)).datagram.unwrap();
        assert_eq!(d.attach(second, b"note", &[2], T0), Ok(Attached::Waits));
        let last = insert(&mut d, &k, T0, &part(16, false, 8)).datagram.unwrap();
        if passes {
            assert!(d.pass(last, T0));
            assert_eq!(d.attach(first, b"note", &[1], T0), Ok(Attached::Passed));
            assert_eq!(frames(&mut d, Defragmenter::pop_outgoing), [2]);
            assert_eq!(send(&mut d, &k, T0, &part(0, true, 8)), Err(DropReason::Reused));
        } else {
            d.refuse(last);
            assert_eq!(send(&mut d, &k, T0, &part(0, true, 8)), Err(DropReason::Refused));
            assert_eq!(d.attach(first, b"note", &[1], T0), Err(DropReason::Refused));
            assert_eq!(frames(&mut d, Defragmenter::pop_discarded), [2]);
        }
        assert_eq!((d.waiting(), d.fragments()), (0, 0));
        // An old id is invalid, also when its place is used again.
        assert_eq!(send(&mut d, &key(false, 2), T0, &part(0, true, 8)), Ok(DefragResult::Held));
        assert_eq!(d.attach(first, b"note", &[9], T0), Err(DropReason::Refused));
        assert!(!d.pass(last, T0));
    }
}

#[test]
fn a_datagram_inside_another_takes_its_frames_along() {
    let (outer, inner) = (key(false, 1), key(true, 2));
    let mut d = strict(true);
    assert_eq!(hold(&mut d, &outer, T0, &part(0, true, 8), 1), Ok(vec![]));
    let whole = insert(&mut d, &outer, T0, &part(8, false, 8));
    assert_eq!(whole.result, DefragResult::Complete);
    // The outer datagram carries a fragment: both its frames wait for the inner one.
    let carried = insert(&mut d, &inner, T0, &part(0, true, 8)).datagram.unwrap();
    d.join(whole.datagram.unwrap(), carried, T0);
    assert_eq!(d.attach(carried, b"note", &[2], T0), Ok(Attached::Waits));
    assert_eq!(hold(&mut d, &inner, T0, &part(8, false, 8), 3), Ok(vec![1, 2, 3]));
    assert_eq!((d.waiting(), d.fragments()), (0, 0));
}

#[test]
fn an_id_is_not_taken_again_too_soon() {
    for hold_frames in [false, true] {
        for v6 in [false, true] {
            let config =
                DefragConfig { strict: true, hold: hold_frames, remember: 8, ..DefragConfig::default() };
            let whole = |d: &mut Defragmenter, id, at| {
                let head = insert(d, &key(v6, id), at, &part(0, true, 8));
                if let DefragResult::Dropped(reason) = head.result {
                    return Err(reason);
                }
                if hold_frames {
                    d.attach(head.datagram.unwrap(), b"note", &[1], at)?;
                }
                let outcome = insert(d, &key(v6, id), at, &part(8, false, 8));
                assert!(d.pass(outcome.datagram.unwrap(), at));
                Ok(())
            };
            let mut d = Defragmenter::new(config);
            assert_eq!(whole(&mut d, 0, T0), Ok(()));
            assert_eq!(send(&mut d, &key(v6, 0), after(60), &part(8, false, 8)), Err(DropReason::Reused));
            assert_eq!(send(&mut d, &key(v6, 0), after(61), &part(8, false, 8)), Ok(DefragResult::Held));
            // A sender that returns to the same id.
            let mut d = Defragmenter::new(config);
            for id in 0..=8 {
                assert_eq!(whole(&mut d, id, T0), Ok(()));
            }
            assert_eq!(whole(&mut d, 0, T0), Ok(()));
            assert_eq!(whole(&mut d, 8, T0), Err(DropReason::Reused));
        }
    }
}

#[test]
fn strict_takes_up_nothing_of_what_was_evicted_or_refused() {
    let mut d = strict(false);
    for id in 0..4 {
        assert_eq!(send(&mut d, &key(false, id), T0, &part(0, true, 8)), Ok(DefragResult::Held));
    }
    // One more of the same source: its oldest is evicted, and since its first fragment has left already, no
    // other half is accepted for it.
    assert_eq!(send(&mut d, &key(false, 9), T0, &part(0, true, 8)), Ok(DefragResult::Held));
    assert_eq!(d.counters().dropped(DropReason::Evicted), 1);
    assert_eq!(send(&mut d, &key(false, 0), T0, &part(8, false, 8)), Err(DropReason::Reused));
    let outcome = insert(&mut d, &key(false, 1), T0, &part(8, false, 8));
    assert_eq!(outcome.result, DefragResult::Complete);
    // Its first fragment has left already, as frames are not held.
    d.refuse(outcome.datagram.unwrap());
    assert_eq!(send(&mut d, &key(false, 1), after(59), &part(8, false, 8)), Err(DropReason::Refused));
    // Refused fragments do not prolong the time; afterwards the id belongs to another datagram.
    assert_eq!(send(&mut d, &key(false, 1), after(61), &part(8, false, 8)), Ok(DefragResult::Held));
    assert_eq!(d.counters().dropped(DropReason::Refused), 1);
}

#[test]
fn what_waits_is_bounded_and_an_evicted_datagram_goes_nowhere() {
    let memory = 128 << 10;
    let mut d = Defragmenter::new(DefragConfig { hold: true, memory, ..DefragConfig::default() });
    let (mut attached, mut gone) = (0, 0);
    for id in 0..200 {
        let datagram = insert(&mut d, &key(false, id), T0, &part(0, true, 1_000)).datagram.unwrap();
        gone += frames(&mut d, Defragmenter::pop_evicted).len() / 1_034;
        assert_eq!(d.attach(datagram, b"note", &[0; 1_034], T0), Ok(Attached::Waits));
        attached += 1;
        gone += frames(&mut d, Defragmenter::pop_evicted).len() / 1_034;
        assert!(d.memory_used() <= memory, "{}", d.memory_used());
    }
    assert!(gone > 100 && d.waiting() > 20, "{gone} {}", d.waiting());
    assert_eq!(d.waiting() + gone, attached, "evicted ones are forgotten");
    assert_eq!(d.counters().dropped(DropReason::Evicted), gone as u64);
    assert_eq!(frames(&mut d, Defragmenter::pop_discarded), []);
}
