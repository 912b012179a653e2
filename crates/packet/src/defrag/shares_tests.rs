// SPDX-License-Identifier: Apache-2.0
//! The choice of the datagram to evict when a bound is met: floods of first fragments that are never
//! completed, beside datagrams of others that must become whole.

use super::*;
use bartizan_base::{PacketDuration, TenantId};
use bartizan_testkit::packet::{Ip, IpFixed, Piece};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const T0: Timestamp = Timestamp::from_parts(1_000, 0);
/// Data of a fragment that fills a frame of 1,500 bytes.
const FULL: usize = 1_440;

/// The treatment of fragments: passive, prevention over captures, live prevention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FragmentMode {
    Passive,
    Strict,
    Hold,
}

fn defragmenter(mode: FragmentMode, memory: usize) -> Defragmenter {
    let (strict, hold) = (mode != FragmentMode::Passive, mode == FragmentMode::Hold);
    Defragmenter::new(DefragConfig { memory, strict, hold, hash_seed: 7, ..DefragConfig::default() })
}

/// A source: in IPv6 each has a /64 of its own.
fn source(v6: bool, n: u32) -> IpAddr {
    if v6 {
        Ipv6Addr::from(0x2001_0db8 << 96 | u128::from(n) << 64 | 1).into()
    } else {
        Ipv4Addr::from(0x0a00_0000 | n).into()
    }
}

fn key(tenant: u16, src: IpAddr, id: u32) -> FragmentKey {
    let v6 = src.is_ipv6();
    FragmentKey {
        tenant: TenantId(tenant),
        link: None,
        vlans: [0; 3],
        tunnel: 0,
        src,
        dst: source(v6, 1 << 20),
        id,
        protocol: 17,
        recursion: 0,
    }
}

/// Sends a fragment as live prevention handles its frame: it waits, and leaves with its datagram. Returns
/// whether the datagram is whole.
fn send(d: &mut Defragmenter, key: &FragmentKey, offset: u16, more: bool, len: usize, at: Timestamp) -> bool {
    let payload = vec![0x61; len];
    let v6 = key.src.is_ipv6();
    let header = if v6 {
        let ip = Ip::new([1; 16].into(), [2; 16].into(), 44);
        Ip { fixed: IpFixed { len: Some(0), ..IpFixed::default() }, ..ip }.packet(&[], None)
    } else {
        let fixed = IpFixed { len: Some(0), flags: Some(u8::from(more)), ..IpFixed::default() };
        let ip = Ip { id: 9, fixed, ..Ip::new([1; 4].into(), [2; 4].into(), 17) };
        ip.packet(&[], Some(Piece { offset: offset.into(), more }))
    };
    let fragment = Fragment {
        offset,
        more,
        header: &header,
        hop_limit: 64,
        path: [0; 2],
        reserved: false,
        next_header: 17,
        payload: &payload,
    };
    let outcome = d.insert(key, &fragment, OverlapPolicy::Linux, at, &mut Vec::new());
    if let Some(id) = outcome.datagram {
        if outcome.result == DefragResult::Complete {
            return d.pass(id, at);
        }
        if d.config.hold {
            let _ = d.attach(id, b"note", &vec![0; len + 34], at);
        }
    }
    let mut out = Vec::new();
    while d.pop_outgoing(&mut out).is_some() {}
    while d.pop_evicted(&mut out).is_some() {}
    while d.pop_discarded(&mut out).is_some() {}
    outcome.result == DefragResult::Complete
}

/// Sends others' datagrams of 3,000 bytes beside a flood: the three fragments of each with 40 of the flood's
/// between them. Returns the number that become whole, and the number of all.
fn beside(
    d: &mut Defragmenter,
    v6: bool,
    tenant: u16,
    mut flood: impl FnMut(&mut Defragmenter),
) -> (u32, u32) {
    let (mut whole, mut all) = (0, 0);
    for round in 0..100 {
        let ping = key(tenant, source(v6, 0x0f_0000 + round % 5), round);
        for (part, more) in [(0, true), (1, true), (2, false)] {
            for _ in 0..40 {
                flood(d);
            }
            let len = if more { FULL } else { 120 };
            whole += u32::from(send(d, &ping, part * FULL as u16, more, len, T0));
        }
        all += 1;
    }
    (whole, all)
}

const MODES: [FragmentMode; 3] = [FragmentMode::Passive, FragmentMode::Strict, FragmentMode::Hold];

#[test]
fn one_source_that_fills_the_bound_takes_no_room_from_others() {
    for mode in MODES {
        for v6 in [false, true] {
            // Full after some hundreds; full frames, and the shortest possible fragments.
            for len in [FULL, 8] {
                let mut d = defragmenter(mode, 1 << 20);
                let mut id = 0;
                let mut flood = |d: &mut Defragmenter| {
                    id += 1;
                    send(d, &key(0, source(v6, 1), 1 << 24 | id), 0, true, len, T0);
                };
                (0..10_000).for_each(|_| flood(&mut d));
                let (whole, all) = beside(&mut d, v6, 0, flood);
                assert_eq!(whole, all, "{mode:?} IPv6 {v6} {len}: {:?}", d.counters());
                assert!(d.counters().dropped(DropReason::Evicted) > 5_000, "{:?}", d.counters());
                assert_eq!(d.counters().dropped(DropReason::Memory), 0);
                assert!(d.memory_used() <= 1 << 20);
            }
        }
    }
}

#[test]
fn invented_sources_leave_the_time_that_it_takes_to_fill_the_bound_once() {
    for mode in MODES {
        for v6 in [false, true] {
            let mut d = defragmenter(mode, 2 << 20);
            let mut n = 0;
            let mut flood = |d: &mut Defragmenter| {
                n += 1;
                send(d, &key(0, source(v6, n), n), 0, true, FULL, T0);
            };
            (0..10_000).for_each(|_| flood(&mut d));
            let (whole, all) = beside(&mut d, v6, 0, flood);
            assert_eq!(whole, all, "{mode:?} IPv6 {v6}: {:?}", d.counters());
            // A datagram whose parts are further apart than that is evicted.
            let late = key(0, source(v6, 0x0f_0000), 1 << 20);
            send(&mut d, &late, 0, true, FULL, T0);
            for n in 0..5_000 {
                send(&mut d, &key(0, source(v6, n), 1 << 21 | n), 0, true, FULL, T0);
            }
            assert!(!send(&mut d, &late, FULL as u16, false, 120, T0));
        }
    }
}

#[test]
fn a_tenants_flood_takes_no_room_from_another_tenant() {
    for mode in MODES {
        for v6 in [false, true] {
            for spoofed in [false, true] {
                let mut d = defragmenter(mode, 1 << 20);
                let waiting = key(2, source(v6, 5), 1);
                send(&mut d, &waiting, 0, true, FULL, T0);
                let mut n = 0;
                let flood = |d: &mut Defragmenter| {
                    n += 1;
                    let from = source(v6, if spoofed { n } else { 1 });
                    send(d, &key(1, from, n), 0, true, FULL, T0);
                };
                let (whole, all) = beside(&mut d, v6, 2, flood);
                assert_eq!(whole, all, "{mode:?} IPv6 {v6} spoofed {spoofed}");
                // One that has waited for all that time keeps its place, and the same address in the other
                // tenant is another source.
                let late = T0 + PacketDuration::from_secs(59);
                assert!(send(&mut d, &waiting, FULL as u16, false, 120, late), "{mode:?} IPv6 {v6}");
            }
        }
    }
}

#[test]
fn a_prefix_of_ipv6_is_one_source() {
    let mut d = defragmenter(FragmentMode::Hold, 1 << 20);
    let mut n = 0_u32;
    let flood = |d: &mut Defragmenter| {
        n += 1;
        let from = IpAddr::V6(Ipv6Addr::from(0x2001_0db8_0000_0001 << 64 | u128::from(n)));
        send(d, &key(0, from, n), 0, true, FULL, T0);
    };
    let own = key(0, source(true, 9), 1);
    send(&mut d, &own, 0, true, FULL, T0);
    let (whole, all) = beside(&mut d, true, 0, flood);
    assert_eq!(whole, all);
    // A datagram that waits from before the flood is kept: the whole prefix is one source.
    assert!(send(&mut d, &own, FULL as u16, false, 120, T0));
}

#[test]
fn a_datagram_larger_than_the_bound_evicts_no_other_source() {
    let mut d = defragmenter(FragmentMode::Passive, 64 << 10);
    let other = key(0, source(false, 2), 1);
    send(&mut d, &other, 0, true, FULL, T0);
    let large = key(0, source(false, 1), 1);
    for part in 0..40 {
        send(&mut d, &large, part * FULL as u16, true, FULL, T0);
    }
    assert!(d.counters().dropped(DropReason::Memory) > 0);
    assert!(send(&mut d, &other, FULL as u16, false, 120, T0));
}

#[test]
fn shares_are_gone_with_what_they_held() {
    for mode in MODES {
        let mut d = defragmenter(mode, 1 << 20);
        for n in 0..3_000_u32 {
            let (v6, tenant) = (n % 2 == 0, (n % 7) as u16);
            send(&mut d, &key(tenant, source(v6, n % 500), n), 0, true, 8 + (n % 100) as usize * 8, T0);
            assert!(d.memory_used() <= 1 << 20, "{}", d.memory_used());
        }
        d.expire_some(T0 + PacketDuration::from_secs(100), usize::MAX);
        d.clear();
        let mut out = Vec::new();
        while d.pop_discarded(&mut out).is_some() {}
        assert_eq!((d.waiting(), d.fragments()), (0, 0));
        assert!(d.budget.is_empty(), "{mode:?}");
    }
}
