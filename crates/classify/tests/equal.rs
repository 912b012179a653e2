// SPDX-License-Identifier: Apache-2.0
//! Every classifier answers as the linear search does.

use bartizan_base::{Fid, LinkId, TenantId};
use bartizan_classify::{
    BitVector, Classifier, Entry, Header, HeaderRule, InsertError, Linear, Match, Net, Range,
};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;

const SETS: u8 = 3;

fn address() -> impl Strategy<Value = IpAddr> {
    // Few distinct bits, so that rules and headers meet.
    prop_oneof![
        (0u32..4, 0u32..4).prop_map(|(a, b)| IpAddr::V4(Ipv4Addr::from((a << 30) | (b << 22) | (a * b)))),
        (0u128..4, 0u128..4).prop_map(|(a, b)| IpAddr::V6(Ipv6Addr::from((a << 126) | (b << 62) | (a * b)))),
        Just(IpAddr::V4(Ipv4Addr::BROADCAST)),
        Just(IpAddr::V6(Ipv6Addr::from(u128::MAX))),
    ]
}

fn net() -> impl Strategy<Value = Option<Net>> {
    proptest::option::of(
        (address(), prop_oneof![Just(0u8), Just(2), Just(10), Just(32), Just(66), Just(128)]).prop_map(
            |(address, length)| Net {
                address,
                length: if address.is_ipv4() { length.min(32) } else { length },
            },
        ),
    )
}

fn range() -> impl Strategy<Value = Range> {
    prop_oneof![
        Just(Range::ANY),
        (0u16..8).prop_map(Range::one),
        (0u16..8, 0u16..8).prop_map(|(a, b)| Range { first: a.min(b), last: a.max(b) }),
        (65_530u16..).prop_map(|first| Range { first, last: u16::MAX }),
    ]
}

fn rule() -> impl Strategy<Value = HeaderRule> {
    let small = || proptest::option::of(0u16..3);
    (small(), small(), net(), net(), proptest::option::of(0u8..3), range(), range()).prop_map(
        |(tenant, link, source, destination, protocol, source_ports, destination_ports)| HeaderRule {
            tenant: tenant.map(TenantId),
            link: link.map(LinkId),
            source,
            destination,
            protocol,
            source_ports,
            destination_ports,
        },
    )
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![0u16..8, 65_530u16..]
}

fn header() -> impl Strategy<Value = Header> {
    (0u16..3, 0u16..3, address(), address(), 0u8..3, port(), port()).prop_map(
        |(tenant, link, source, destination, protocol, source_port, destination_port)| Header {
            tenant: TenantId(tenant),
            link: LinkId(link),
            source,
            destination,
            protocol,
            source_port,
            destination_port,
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u8, Vec<Entry>),
    Delete(Fid),
}

fn step() -> impl Strategy<Value = Step> {
    let entry = (0u32..40, 0u32..20, rule()).prop_map(|(fid, priority, rule)| Entry {
        fid: Fid(fid),
        priority,
        rule,
    });
    prop_oneof![
        4 => (0..SETS, proptest::collection::vec(entry, 1..90)).prop_map(|(set, entries)| Step::Insert(set, entries)),
        1 => (0u32..40).prop_map(|fid| Step::Delete(Fid(fid))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn bit_vectors_answer_as_the_linear_search(
        steps in proptest::collection::vec(step(), 1..8),
        headers in proptest::collection::vec(header(), 32),
    ) {
        let mut linear = Linear::new(SETS);
        let mut bits = BitVector::new(SETS, 64 << 20);
        for step in steps {
            match step {
                Step::Insert(set, entries) => {
                    linear.insert(set, &entries).unwrap();
                    bits.insert(set, &entries).unwrap();
                }
                Step::Delete(fid) => prop_assert_eq!(linear.delete(fid), bits.delete(fid)),
            }
            prop_assert_eq!(linear.len(), bits.len());
            for header in &headers {
                let (mut a, mut b) = ([None; 4], [Some(Match { fid: Fid(9), priority: 9 }); 4]);
                linear.lookup(header, &mut a);
                bits.lookup(header, &mut b);
                prop_assert_eq!(a, b);
            }
        }
    }
}

/// A small generator, so that the large test needs no crate and is the same each time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

#[test]
fn ten_thousand_rules_stay_within_their_bound_and_right() {
    let mut n = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut entries = Vec::new();
    for index in 0..10_000u32 {
        let v4 = |n: &mut Numbers| Net {
            address: Ipv4Addr::from(0x0a00_0000 | n.next(1 << 20) as u32).into(),
            length: 12 + n.next(21) as u8,
        };
        let rule = HeaderRule {
            source: (n.next(4) != 0).then(|| v4(&mut n)),
            destination: (n.next(4) != 0).then(|| v4(&mut n)),
            protocol: (n.next(3) != 0).then_some(6),
            destination_ports: if n.next(3) == 0 { Range::ANY } else { Range::one(n.next(500) as u16) },
            ..HeaderRule::default()
        };
        entries.push(Entry { fid: Fid(index), priority: index, rule });
    }
    let mut linear = Linear::new(1);
    let mut bits = BitVector::new(1, 64 << 20);
    linear.insert(0, &entries).unwrap();
    bits.insert(0, &entries).unwrap();
    assert!(bits.memory() <= 68 << 20, "{} bytes", bits.memory());
    let mut found = 0;
    for _ in 0..3_000 {
        let header = Header {
            tenant: TenantId(0),
            link: LinkId(0),
            source: Ipv4Addr::from(0x0a00_0000 | n.next(1 << 20) as u32).into(),
            destination: Ipv4Addr::from(0x0a00_0000 | n.next(1 << 20) as u32).into(),
            protocol: if n.next(2) == 0 { 6 } else { 17 },
            source_port: 40_000,
            destination_port: n.next(500) as u16,
        };
        let (mut a, mut b) = ([None], [None]);
        linear.lookup(&header, &mut a);
        bits.lookup(&header, &mut b);
        assert_eq!(a, b, "{header:?}");
        found += usize::from(a[0].is_some());
    }
    assert!(found > 1_000);
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let mut bits = BitVector::new(1, 4_000);
    let entry = |n: u32| {
        let source = Some(Net { address: Ipv4Addr::from(n << 8).into(), length: 24 });
        Entry { fid: Fid(n), priority: n, rule: HeaderRule { source, ..HeaderRule::default() } }
    };
    bits.insert(0, &[entry(1)]).unwrap();
    let many: Vec<_> = (2..2_000).map(entry).collect();
    assert!(matches!(bits.insert(0, &many), Err(InsertError::Memory { limit: 4_000, .. })));
    assert_eq!(bits.insert(1, &[]), Err(InsertError::NoSuchSet { set: 1, sets: 1 }));
    assert_eq!(bits.len(), 1);
    let header = Header {
        tenant: TenantId(0),
        link: LinkId(0),
        source: Ipv4Addr::from(0x107).into(),
        destination: Ipv4Addr::LOCALHOST.into(),
        protocol: 6,
        source_port: 1,
        destination_port: 1,
    };
    let mut result = [None];
    bits.lookup(&header, &mut result);
    assert_eq!(result, [Some(Match { fid: Fid(1), priority: 1 })]);
}
