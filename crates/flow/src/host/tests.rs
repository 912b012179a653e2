// SPDX-License-Identifier: Apache-2.0
//! Tests of the host table: against a map, its bounds, its slots, and from several threads.

use super::*;
use core::net::{Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;
use std::collections::HashMap;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_parts(1_000_000 + seconds, 0)
}

fn address(v6: bool, n: u8) -> IpAddr {
    if v6 { Ipv6Addr::from(0xfe80 << 112 | u128::from(n)).into() } else { Ipv4Addr::new(10, 1, 2, n).into() }
}

fn table(capacity: u32, shards: u16, when_full: WhenHostsFull) -> HostTable<HostState> {
    HostTable::new(&HostTableConfig { capacity, shards, hasher: FlowHasher::new([1, 9]), when_full })
}

const BIT: BitScope = BitScope::XBit;

#[test]
fn keys_of_different_kinds_and_tenants_are_different() {
    let (a, b) = (address(false, 1), address(false, 2));
    let t = TenantId(1);
    let rule = RuleKey { gid: 1, sid: 7 };
    let mapped = |n: u8| IpAddr::V6(Ipv6Addr::from(u128::from(u32::from(Ipv4Addr::new(10, 1, 2, n)))));
    let keys = [
        HostKey::host(t, a),
        HostKey::host(TenantId(2), a),
        HostKey::host(t, b),
        HostKey::host(t, mapped(1)),
        HostKey::pair(t, a, b),
        HostKey::pair(t, a, a),
        HostKey::pair(t, mapped(1), mapped(2)),
        HostKey::net(t, a, 32),
        HostKey::net(t, a, 24),
        HostKey::net(t, a, 0),
        HostKey::net(t, mapped(1), 128),
        HostKey::rule(t, rule),
        HostKey::rule(t, RuleKey { gid: 7, sid: 1 }),
    ];
    for (i, x) in keys.iter().enumerate() {
        for y in keys.iter().skip(i + 1) {
            assert_ne!(x, y);
            assert_ne!(x.words(), y.words());
        }
    }
    assert_eq!(HostKey::pair(t, a, b), HostKey::pair(t, b, a));
    for v6 in [false, true] {
        let bits = if v6 { 112 } else { 24 };
        assert_eq!(HostKey::net(t, address(v6, 1), bits), HostKey::net(t, address(v6, 200), bits));
        let all = if v6 { 128 } else { 32 };
        assert_ne!(HostKey::net(t, address(v6, 1), all), HostKey::net(t, address(v6, 200), all));
        assert_eq!(
            HostKey::net(t, address(v6, 1), 255),
            HostKey::net(t, address(v6, 1), if v6 { 128 } else { 32 })
        );
    }
}

#[test]
fn tenants_with_equal_addresses_never_meet() {
    for v6 in [false, true] {
        let t = table(8, 2, WhenHostsFull::Refuse);
        let one = HostKey::host(TenantId(1), address(v6, 1));
        let two = HostKey::host(TenantId(2), address(v6, 1));
        t.with(&one, at(0), |s| s.set(BIT, 3, at(0), at(60))).unwrap().unwrap();
        assert_eq!(t.if_there(&two, at(0), |s| s.is_set(BIT, 3, at(0))), None);
        assert_eq!(t.if_there(&one, at(0), |s| s.is_set(BIT, 3, at(0))), Some(true));
    }
}

#[test]
fn an_entry_without_content_leaves_at_once_and_expired_content_is_not_seen() {
    let t = table(8, 1, WhenHostsFull::Refuse);
    let key = HostKey::host(TenantId(0), address(true, 1));
    t.with(&key, at(0), |_| ()).unwrap();
    assert_eq!(t.counters().active, 0);
    t.with(&key, at(0), |s| s.set(BIT, 1, at(0), at(10))).unwrap().unwrap();
    t.with(&key, at(5), |s| s.set(BIT, 2, at(5), at(30))).unwrap().unwrap();
    let seen = t.if_there(&key, at(10), |s| (s.is_set(BIT, 1, at(10)), s.is_set(BIT, 2, at(10))));
    assert_eq!(seen, Some((false, true)));
    assert_eq!(t.expire(at(29), 100), 0);
    assert_eq!(t.expire(at(31), 100), 1);
    let c = t.counters();
    assert_eq!((c.active, c.created, c.ended), (0, 2, 2));
}

#[test]
fn a_bit_that_is_set_keeps_its_time_and_one_that_is_over_gets_a_new_one() {
    let t = table(8, 1, WhenHostsFull::Refuse);
    let key = HostKey::host(TenantId(0), address(false, 1));
    t.with(&key, at(0), |s| {
        s.set(BIT, 1, at(0), at(10)).unwrap();
        s.set(BIT, 1, at(5), at(15)).unwrap();
        assert!(s.is_set(BIT, 1, at(9)));
        assert!(!s.is_set(BIT, 1, at(10)));
        s.set(BIT, 1, at(10), at(20)).unwrap();
        assert!(s.is_set(BIT, 1, at(19)));
    })
    .unwrap();
}

#[test]
fn a_full_table_refuses_or_evicts_and_counts_it() {
    let key = |n| HostKey::host(TenantId(0), address(false, n));
    let t = table(3, 1, WhenHostsFull::Refuse);
    for n in 0..3 {
        t.with(&key(n), at(0), |s| s.set(BIT, 1, at(0), at(10 + u64::from(n)))).unwrap().unwrap();
    }
    assert_eq!(t.with(&key(9), at(1), |_| ()), Err(HostRefused));
    assert_eq!(t.counters().refused, 1);
    // An expired entry makes room nevertheless.
    t.with(&key(9), at(10), |s| s.set(BIT, 1, at(10), at(100))).unwrap().unwrap();
    assert_eq!((t.counters().active, t.counters().ended, t.counters().evicted), (3, 1, 0));

    let t = table(3, 1, WhenHostsFull::Evict);
    for n in 0..3 {
        t.with(&key(n), at(0), |s| s.set(BIT, 1, at(0), at(30 - u64::from(n) * 10))).unwrap().unwrap();
    }
    t.with(&key(9), at(1), |s| s.set(BIT, 1, at(1), at(100))).unwrap().unwrap();
    assert_eq!(t.if_there(&key(2), at(1), |_| ()), None, "nearest to its end");
    assert_eq!((t.counters().active, t.counters().evicted), (3, 1));
    let mut kept = Vec::new();
    t.for_each(|key, _| kept.push(*key));
    assert_eq!(kept.len(), 3);
}

#[test]
fn invented_hosts_of_one_tenant_push_out_no_other_tenants_hosts() {
    const CAPACITY: u32 = 4_096;
    let (flooding, other) = (TenantId(1), TenantId(2));
    for v6 in [false, true] {
        for shards in [1, 16] {
            let t = table(CAPACITY, shards, WhenHostsFull::Evict);
            let set = |tenant, n: u32, second: u64, lasts: u64| {
                let address: IpAddr = if v6 {
                    Ipv6Addr::from(0x2001_0db8 << 96 | u128::from(n)).into()
                } else {
                    Ipv4Addr::from(0x0a00_0000 | n).into()
                };
                let key = HostKey::host(tenant, address);
                t.with(&key, at(second), |s| s.set(BIT, 1, at(second), at(second + lasts))).unwrap().unwrap();
                key
            };
            // The other tenant's hosts end long before the flood's, and would be the first to leave.
            let kept: Vec<_> = (0..100).map(|n| set(other, n, 0, 60)).collect();
            for n in 0..4 * CAPACITY {
                set(flooding, n, 1, 600);
            }
            let held = kept.iter().filter(|key| t.if_there(key, at(2), |_| ()).is_some()).count();
            assert_eq!(held, kept.len(), "{shards} shards");
            let c = t.counters();
            assert_eq!((c.refused, c.evicted_for_others), (0, 0));
            assert_eq!(c.active + c.evicted, u64::from(4 * CAPACITY) + 100);
            // Newcomers of a tenant that holds less find room as well.
            let more: Vec<_> = (100..400).map(|n| set(other, n, 2, 60)).collect();
            assert!(more.iter().all(|key| t.if_there(key, at(3), |_| ()).is_some()));
            assert!(t.counters().evicted_for_others >= 300 - 16, "{:?}", t.counters());
        }
    }
}

#[test]
fn tenants_that_both_flood_hold_the_same() {
    let t = table(64, 1, WhenHostsFull::Evict);
    for n in 0..1_000_u32 {
        // One tenant adds hosts four times as fast.
        let tenant = TenantId(1 + u16::from(n % 5 == 0));
        let key = HostKey::host(tenant, Ipv4Addr::from(n).into());
        t.with(&key, at(0), |s| s.set(BIT, 1, at(0), at(60))).unwrap().unwrap();
    }
    let mut held = HashMap::new();
    t.for_each(|key, _| *held.entry(key.tenant).or_insert(0) += 1);
    assert_eq!((held[&TenantId(1)], held[&TenantId(2)]), (32, 32));
    assert_eq!(t.expire(at(61), u32::MAX), 64);
    assert_eq!(t.counters().active, 0);
}

#[test]
fn of_a_tenant_the_host_nearest_to_its_end_leaves_though_its_timer_is_late() {
    let t = table(3, 1, WhenHostsFull::Evict);
    let key = |n| HostKey::host(TenantId(1), address(true, n));
    let keep = |n, second, until| {
        t.with(&key(n), at(second), |s| {
            s.threshold(RuleKey { gid: 1, sid: 1 }, 0).map(|t| t.until = at(until))
        })
        .unwrap()
        .unwrap();
    };
    keep(0, 0, 10);
    keep(1, 0, 20);
    keep(2, 0, 30);
    // The entry expires later now, which its timer does not reflect yet.
    keep(0, 1, 100);
    keep(3, 2, 100);
    assert_eq!(t.if_there(&key(1), at(2), |_| ()), None);
    assert!([0, 2, 3].iter().all(|n| t.if_there(&key(*n), at(2), |_| ()).is_some()));
}

#[test]
fn slots_are_bounded_and_what_does_not_fit_is_counted() {
    let t = table(8, 4, WhenHostsFull::Refuse);
    let key = HostKey::rule(TenantId(0), RuleKey { gid: 1, sid: 1 });
    let rule = |sid| RuleKey { gid: 1, sid };
    t.with(&key, at(0), |s| {
        for n in 0..MAX_BITS as u32 + 1 {
            assert_eq!(s.set(BIT, n, at(0), at(5)).is_ok(), (n as usize) < MAX_BITS);
        }
        for n in 0..MAX_THRESHOLDS as u32 + 1 {
            let made = s.threshold(rule(n), 0).map(|t| t.until = at(9));
            assert_eq!(made.is_ok(), (n as usize) < MAX_THRESHOLDS);
        }
        for n in 0..MAX_TAGS as u32 + 1 {
            let packets = u32::from(n > 0);
            let tag =
                Tag { rule: rule(n), packets, bytes: 9, until: at(9), seen: at(0), fresh: false, matches: 0 };
            assert_eq!(s.tag(tag).is_ok(), (n as usize) < MAX_TAGS);
        }
    })
    .unwrap();
    assert_eq!(t.counters().slot_refused, 3);
    t.with(&key, at(6), |s| {
        assert!(!s.is_set(BIT, 0, at(6)));
        s.set(BIT, 99, at(6), at(7)).unwrap();
        s.threshold(rule(3), 0).unwrap().count += 1;
        assert_eq!(s.threshold(rule(3), 0).unwrap().count, 1);
        assert!(s.tags_mut().count(1, at(6), false));
    })
    .unwrap();
    t.with(&key, at(6), |s| assert_eq!(s.tags_mut().iter().count(), MAX_TAGS - 1, "one was used up"))
        .unwrap();
    t.with(&key, at(8), |s| assert!(!s.tags_mut().count(1, at(8), false))).unwrap();
    t.with(&key, at(8), |s| assert_eq!(s.tags_mut().iter().count(), 0)).unwrap();
}

#[test]
fn bits_toggle_and_connections_keep_an_entry() {
    let t = table(8, 1, WhenHostsFull::Refuse);
    let key = HostKey::pair(TenantId(0), address(true, 1), address(true, 2));
    t.with(&key, at(0), |s| {
        assert_eq!(s.toggle(BIT, 1, at(0), at(9)), Ok(true));
        assert!(!s.is_set(BitScope::HostBit, 1, at(0)), "names of another family");
        assert_eq!(s.toggle(BIT, 1, at(0), at(9)), Ok(false));
        assert!(!s.unset(BIT, 1));
        s.connections += 1;
    })
    .unwrap();
    assert_eq!(t.expire(at(1_000_000), 100), 0);
    t.with(&key, at(1_000_000), |s| s.connections -= 1).unwrap();
    assert_eq!(t.counters().active, 0);
}

#[test]
fn workers_share_it() {
    let t = table(64, 8, WhenHostsFull::Refuse);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..4_000_u32 {
                    let key = HostKey::host(TenantId(0), address(n % 2 == 0, (n % 16) as u8));
                    t.with(&key, at(0), |s| s.connections += 1).unwrap();
                }
            });
        }
    });
    let mut sum = 0;
    t.for_each(|_, state| sum += state.connections);
    assert_eq!(sum, 16_000);
}

proptest! {
    #[test]
    fn behaves_like_a_map(steps in prop::collection::vec((0_u8..30, 0_u32..3, 0_u64..40, 0_u64..8), 1..300)) {
        let t = table(64, 2, WhenHostsFull::Refuse);
        let mut model: HashMap<(u8, u32), u64> = HashMap::new();
        let mut now = 0;
        for (host, name, keep, wait) in steps {
            now += wait;
            let key = HostKey::host(TenantId(0), address(host % 2 == 0, host));
            if keep % 5 == 4 {
                t.expire(at(now), keep as u32);
            }
            let was = t.if_there(&key, at(now), |s| s.is_set(BIT, name, at(now))).unwrap_or(false);
            prop_assert_eq!(was, model.get(&(host, name)).is_some_and(|until| *until > now));
            t.with(&key, at(now), |s| s.set(BIT, name, at(now), at(now + keep))).unwrap().unwrap();
            if !was {
                // A bit that is set keeps its time.
                model.insert((host, name), now + keep);
            }
        }
        now += 100;
        t.expire(at(now), u32::MAX);
        let c = t.counters();
        prop_assert_eq!((c.active, c.created), (0, c.ended));
    }
}
