// SPDX-License-Identifier: Apache-2.0
//! Compiled tables give the results of the linear search, with every instruction set, for both IP versions
//! and several sets.

use bartizan_base::{LinkId, TenantId};
use bartizan_classify::{
    Compiled, Flat, FlatV4, FlatV6, Header, HeaderRule, InstructionSet, Net, Options, Range,
};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;

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
            ..HeaderRule::default()
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

/// The number of the first rule of each set that matches.
fn right(sets: &[Vec<HeaderRule>], header: &Header) -> Vec<u32> {
    let first =
        |set: &Vec<HeaderRule>| set.iter().position(|r| r.matches(header)).map_or(u32::MAX, |p| p as u32);
    sets.iter().map(first).collect()
}

fn check(sets: &[Vec<HeaderRule>], headers: &[Header], budget: usize) {
    let flat: Vec<Option<Flat>> = headers.iter().map(Flat::new).collect();
    let v4: Vec<FlatV4> =
        flat.iter().filter_map(|f| if let Some(Flat::V4(f)) = f { Some(*f) } else { None }).collect();
    let v6: Vec<FlatV6> =
        flat.iter().filter_map(|f| if let Some(Flat::V6(f)) = f { Some(*f) } else { None }).collect();
    let right_v4: Vec<_> = v4.iter().map(|h| right(sets, &Header::from(h))).collect();
    let right_v6: Vec<_> = v6.iter().map(|h| right(sets, &Header::from(h))).collect();
    for fast in [false, true] {
        let mut compiled = Compiled::new(sets, Options { budget, fast });
        for level in [InstructionSet::Avx512, InstructionSet::Avx2, InstructionSet::Portable] {
            compiled.set_level(level);
            let what = || format!("{level:?} fast={fast} {:?}", compiled.summary().collect::<Vec<_>>());
            let mut answers = vec![7; v4.len() * sets.len()];
            compiled.lookup_v4(&v4, &mut answers);
            for (i, h) in v4.iter().enumerate() {
                let got: Vec<u32> = (0..sets.len()).map(|s| answers[s * v4.len() + i]).collect();
                assert_eq!(got, right_v4[i], "{h:?} {}", what());
            }
            let mut answers = vec![7; v6.len() * sets.len()];
            compiled.lookup_v6(&v6, &mut answers);
            for (i, h) in v6.iter().enumerate() {
                let got: Vec<u32> = (0..sets.len()).map(|s| answers[s * v6.len() + i]).collect();
                assert_eq!(got, right_v6[i], "{h:?} {}", what());
            }
        }
    }
}

/// Headers that rules match, besides random ones.
fn meeting(sets: &[Vec<HeaderRule>], headers: &mut Vec<Header>) {
    use bartizan_classify::trace::{Draw, draw};
    for set in sets {
        for how in [Draw::Corner, Draw::Uniform, Draw::Cross] {
            headers.extend(draw(set, how, 40));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn compiled_is_linear(
        sets in proptest::collection::vec(proptest::collection::vec(rule(), 0..60), 1..5),
        headers in proptest::collection::vec(header(), 100),
        budget in prop_oneof![Just(0usize), Just(4096), Just(1 << 16), Just(64 << 20)],
    ) {
        let mut headers = headers;
        meeting(&sets, &mut headers);
        check(&sets, &headers, budget);
    }
}

/// Rules over the whole space, many lengths, many ports: shapes that no supplied set has.
#[test]
fn random_sets_of_all_shapes() {
    use bartizan_classify::trace::Random;
    for seed in 0..12u64 {
        let mut random = Random(seed);
        let sets: Vec<Vec<HeaderRule>> = (0..1 + seed % 3)
            .map(|_| {
                (0..300)
                    .map(|_| {
                        let v6 = random.below(2) == 0;
                        let net = |random: &mut Random| {
                            let (a, b) = (random.bits(), random.bits());
                            let few = random.bits() & 0x0f00_0103_0000_0301;
                            let address: IpAddr = match (v6, seed % 2) {
                                (true, 0) => Ipv6Addr::from(u128::from(a) << 64 | u128::from(b)).into(),
                                (true, _) => Ipv6Addr::from(u128::from(few) << 64 | u128::from(few)).into(),
                                (false, 0) => Ipv4Addr::from(a as u32).into(),
                                (false, _) => Ipv4Addr::from((few >> 32 | few) as u32).into(),
                            };
                            let length = random.below(if v6 { 129 } else { 33 }) as u8;
                            (random.below(5) != 0).then_some(Net { address, length })
                        };
                        let (source, destination) = (net(&mut random), net(&mut random));
                        let mut range = || match random.below(4) {
                            0 => Range::ANY,
                            1 => Range::one(random.bits() as u16),
                            2 => Range { first: random.bits() as u16, last: u16::MAX },
                            _ => {
                                let (a, b) = (random.bits() as u16, random.bits() as u16);
                                Range { first: a.min(b), last: a.max(b) }
                            }
                        };
                        let (source_ports, destination_ports) = (range(), range());
                        HeaderRule {
                            source,
                            destination,
                            source_ports,
                            destination_ports,
                            protocol: [None, Some(6), Some(17), Some(255)][random.below(4)],
                            tenant: [None, None, None, Some(TenantId(3))][random.below(4)],
                            link: [None, None, None, Some(LinkId(255)), Some(LinkId(256))][random.below(5)],
                            ..HeaderRule::default()
                        }
                    })
                    .collect()
            })
            .collect();
        let mut headers = Vec::new();
        meeting(&sets, &mut headers);
        for budget in [1 << 14, 64 << 20] {
            check(&sets, &headers, budget);
        }
    }
}

/// Every rule crosses every other: long sources with wild destinations and the other way round, nested, with
/// ranges of ports that all overlap. This may cost speed, but no memory.
#[test]
fn adversarial_sets_stay_within_their_budget() {
    use bartizan_classify::trace::{Draw, Random, draw};
    let mut random = Random(3);
    let rules: Vec<HeaderRule> = (0..6_000u32)
        .map(|i| {
            let a = random.bits() as u32;
            let net = |length: u8| Some(Net { address: IpAddr::V4(Ipv4Addr::from(a)), length });
            let (long, short) = (net(1 + (i % 32) as u8), net((i % 7) as u8));
            let (source, destination) = if i % 2 == 0 { (long, short) } else { (short, long) };
            let first = (i % 300) as u16 * 100;
            HeaderRule {
                source,
                destination,
                source_ports: Range { first, last: u16::MAX - first },
                destination_ports: Range { first: first / 2, last: u16::MAX - first / 3 },
                ..HeaderRule::default()
            }
        })
        .collect();
    let budget = 16 << 20;
    for fast in [false, true] {
        let start = std::time::Instant::now();
        let compiled = Compiled::new(std::slice::from_ref(&rules), Options { budget, fast });
        eprintln!(
            "fast={fast}: {:?}, {} bytes, {} rules in no table",
            start.elapsed(),
            compiled.memory(),
            compiled.rest()
        );
        // Tries, port tables and the rules themselves stand beside the budget.
        assert!(compiled.memory() < budget + (24 << 20), "{} bytes", compiled.memory());
        let headers: Vec<FlatV4> = draw(&rules, Draw::Cross, 500)
            .iter()
            .filter_map(|h| if let Some(Flat::V4(f)) = Flat::new(h) { Some(f) } else { None })
            .collect();
        let mut answers = vec![0; headers.len()];
        compiled.lookup_v4(&headers, &mut answers);
        for (header, answer) in headers.iter().zip(&answers) {
            assert_eq!(right(std::slice::from_ref(&rules), &Header::from(header)), [*answer]);
        }
    }
}

/// The headers of an intrusion detection's rules: many source ports, many destination ports, few pairs of
/// both. The number of classes of the ports counts, not that of bounds.
#[test]
fn rules_of_many_ports_on_either_side_fit_tables() {
    let one = |port| Range { first: port, last: port };
    let to_client = (0..90u16).map(|n| HeaderRule { source_ports: one(n * 11), ..HeaderRule::default() });
    let to_server =
        (0..250u16).map(|n| HeaderRule { destination_ports: one(n * 7), ..HeaderRule::default() });
    let rules: Vec<HeaderRule> = to_client
        .chain(to_server)
        .zip([6, 17, 1].into_iter().cycle())
        .map(|(rule, protocol)| HeaderRule { protocol: Some(protocol), ..rule })
        .collect();
    let sets = [rules];
    let compiled = Compiled::new(&sets, Options { budget: 64 << 20, fast: true });
    assert_eq!(compiled.rest(), 0);
    let ports = || (0..300u16).step_by(7).flat_map(|n| [n * 7, n * 11]);
    let pairs = ports().flat_map(|source| ports().map(move |destination| (source, destination)));
    let headers: Vec<Header> = pairs
        .zip([6, 17, 1, 2].into_iter().cycle())
        .map(|((source_port, destination_port), protocol)| Header {
            tenant: TenantId(0),
            link: LinkId(0),
            source: IpAddr::V4(Ipv4Addr::LOCALHOST),
            destination: IpAddr::V4(Ipv4Addr::BROADCAST),
            protocol,
            source_port,
            destination_port,
        })
        .collect();
    check(&sets, &headers, 64 << 20);
    assert!(headers.iter().filter(|h| right(&sets, h)[0] != u32::MAX).count() > 100);
}
