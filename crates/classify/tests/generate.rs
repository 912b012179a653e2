// SPDX-License-Identifier: Apache-2.0
//! Generated rule sets have the statistics of their source, load, and are found like any other.
//!
//! The statistics are counted here separately, not taken from the generator. Tolerances: the distribution of
//! (source length, destination length) differs in at most 10 % of the rules from that of the source, wild
//! fields in 5 % of the rules; distinct prefixes per rule by a factor of 2, nesting depth by 1 on average (in
//! a set ten times as large, where short prefixes contain more others by chance, up to 4 deeper); all port
//! ranges but one in ten are present, and none is new.

use bartizan_base::Fid;
use bartizan_classify::generate::{GenerateError, RuleSetStatistics};
use bartizan_classify::trace::{Draw, Random, draw};
use bartizan_classify::{Auto, Classifier, HeaderRule, Linear, Live, Net, Range, RankedRule, classbench};
use bartizan_testkit_golden::classbench as sets;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// First address from the most significant bit on, length.
type Prefix = (u128, u8);

fn prefix(net: Option<Net>) -> Prefix {
    let Some(net) = net else { return (0, 0) };
    let bits = match net.address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)) << 96,
        IpAddr::V6(v6) => u128::from(v6),
    };
    (bits & !u128::MAX.checked_shr(net.length.into()).unwrap_or(0), net.length)
}

/// The statistics that are compared.
#[derive(Debug)]
struct Shape {
    rules: f64,
    lengths: BTreeMap<(u8, u8), f64>,
    /// Shares of rules: source, destination, source port, destination port, protocol.
    wild: [f64; 5],
    ports: [BTreeSet<(u16, u16)>; 2],
    /// Per rule: sources, destinations, pairs.
    distinct: [f64; 3],
    /// The shorter prefixes, other than /0, that contain a prefix.
    nesting: [f64; 2],
}

fn nesting(prefixes: &HashSet<Prefix>) -> f64 {
    let depth = |(bits, length): &Prefix| {
        let above =
            |l: &u8| prefixes.contains(&(bits & !u128::MAX.checked_shr((*l).into()).unwrap_or(0), *l));
        (1..*length).filter(above).count()
    };
    prefixes.iter().map(depth).sum::<usize>() as f64 / prefixes.len() as f64
}

fn shape(rules: &[HeaderRule]) -> Shape {
    // Without the last, which matches everything.
    let rules = &rules[..rules.len() - 1];
    let count = rules.len() as f64;
    let sources: Vec<Prefix> = rules.iter().map(|r| prefix(r.source)).collect();
    let destinations: Vec<Prefix> = rules.iter().map(|r| prefix(r.destination)).collect();
    let mut lengths: BTreeMap<(u8, u8), f64> = BTreeMap::new();
    for (s, d) in sources.iter().zip(&destinations) {
        *lengths.entry((s.1, d.1)).or_default() += 1.0 / count;
    }
    let share = |wild: &dyn Fn(usize) -> bool| (0..rules.len()).filter(|i| wild(*i)).count() as f64 / count;
    let pairs: HashSet<_> = sources.iter().zip(&destinations).collect();
    let range = |r: Range| (r.first, r.last);
    let (source_set, destination_set): (HashSet<_>, HashSet<_>) =
        (sources.iter().copied().collect(), destinations.iter().copied().collect());
    Shape {
        rules: count,
        lengths,
        wild: [
            share(&|i| sources[i].1 == 0),
            share(&|i| destinations[i].1 == 0),
            share(&|i| rules[i].source_ports == Range::ANY),
            share(&|i| rules[i].destination_ports == Range::ANY),
            share(&|i| rules[i].protocol.is_none()),
        ],
        ports: [
            rules.iter().map(|r| range(r.source_ports)).collect(),
            rules.iter().map(|r| range(r.destination_ports)).collect(),
        ],
        distinct: [source_set.len(), destination_set.len(), pairs.len()].map(|n| n as f64 / count),
        nesting: [nesting(&source_set), nesting(&destination_set)],
    }
}

/// Compares two shapes; `widened` maps the source's lengths to the new ones.
fn alike(what: &str, source: &Shape, drawn: &Shape, widened: impl Fn(u8) -> u8, deeper: f64) {
    let keys: BTreeSet<(u8, u8)> = source
        .lengths
        .keys()
        .map(|(s, d)| (widened(*s), widened(*d)))
        .chain(drawn.lengths.keys().copied())
        .collect();
    let of: BTreeMap<(u8, u8), f64> =
        source.lengths.iter().map(|((s, d), share)| ((widened(*s), widened(*d)), *share)).collect();
    let at = |map: &BTreeMap<(u8, u8), f64>, key| map.get(key).copied().unwrap_or(0.0);
    let apart: f64 = keys.iter().map(|k| (at(&of, k) - at(&drawn.lengths, k)).abs()).sum::<f64>() / 2.0;
    eprintln!(
        "{what}: {} rules, lengths apart {apart:.3}, wild {:.3?} {:.3?}, distinct {:.3?} {:.3?}, nesting {:.2?} {:.2?}",
        drawn.rules, source.wild, drawn.wild, source.distinct, drawn.distinct, source.nesting, drawn.nesting
    );
    assert!(apart <= 0.1, "{what}: lengths differ in {apart}");
    for (a, b) in source.wild.iter().zip(drawn.wild) {
        assert!((a - b).abs() <= 0.05, "{what}: wild {a} {b}");
    }
    for (a, b) in source.distinct.iter().zip(drawn.distinct) {
        assert!(b / a > 0.5 && b / a < 2.0, "{what}: distinct per rule {a} {b}");
    }
    for (a, b) in source.nesting.iter().zip(drawn.nesting) {
        assert!(b > a - 1.0 && b < a + deeper, "{what}: nesting {a} {b}");
    }
    for (a, b) in source.ports.iter().zip(&drawn.ports) {
        assert!(b.is_subset(a), "{what}: new port ranges");
        assert!(b.len() as f64 >= 0.9 * a.len() as f64, "{what}: {} port ranges of {}", b.len(), a.len());
    }
}

/// A set that needs no data: sites of networks of hosts, some services, some rules with one wild side.
fn made(v6: bool) -> Vec<HeaderRule> {
    let mut random = Random(11);
    let net = |number: u32, length: u8| {
        let address = Ipv4Addr::from(number);
        match v6 {
            false => Net { address: address.into(), length },
            true => {
                let bits = 0x2001_0db8_u128 << 96 | u128::from(number) << 64;
                Net {
                    address: Ipv6Addr::from(bits).into(),
                    length: if length == 0 { 0 } else { 32 + length },
                }
            }
        }
    };
    let mut rules = Vec::new();
    for _ in 0..1_200 {
        let site = (random.below(6) as u32) << 28 | 0x0102_0000;
        let network = site | (random.below(24) as u32) << 10;
        let inner = match random.below(4) {
            0 => net(site, 16),
            1 => net(network, 22),
            _ => net(network | random.below(40) as u32, 32),
        };
        let far = match random.below(3) {
            0 => net(0, 0),
            1 => net((random.below(50) as u32) << 25, 8),
            _ => net(0xc000_0200 | random.below(90) as u32, 32),
        };
        let service = [53, 80, 443, 8_080, 25, 22][random.below(6)];
        let (source, destination) = if random.below(2) == 0 { (inner, far) } else { (far, inner) };
        rules.push(HeaderRule {
            source: Some(source),
            destination: Some(destination),
            protocol: [Some(6), Some(6), Some(17), None][random.below(4)],
            destination_ports: if random.below(5) == 0 {
                Range { first: 1024, last: u16::MAX }
            } else {
                Range::one(service)
            },
            ..HeaderRule::default()
        });
    }
    rules.push(HeaderRule { source: Some(net(0, 0)), destination: Some(net(0, 0)), ..HeaderRule::default() });
    rules
}

/// Checks that every header's first match in `Auto`'s choice and in `Live` is the linear search's.
fn found_alike(rules: &[HeaderRule], headers: usize) {
    let entry =
        |(i, r): (usize, &HeaderRule)| RankedRule { fid: Fid(i as u32), priority: i as u32, rule: *r };
    let entries: Vec<RankedRule> = rules.iter().enumerate().map(entry).collect();
    let mut linear = Linear::new(1);
    linear.insert(0, &entries).unwrap();
    let mut live = Live::new(1, 64 << 20);
    live.insert(0, &entries).unwrap();
    let auto = Auto::new(&[entries], 64 << 20).unwrap().classifier;
    for how in [Draw::Uniform, Draw::Corner, Draw::Cross] {
        for header in draw(rules, how, headers) {
            let (mut a, mut b, mut c) = ([None], [None], [None]);
            linear.lookup(&header, &mut a);
            live.lookup(&header, &mut b);
            auto.lookup(&header, &mut c);
            assert_eq!((a, a), (b, c), "{header:?}");
        }
    }
}

/// As many rules as requested, no rule twice, the last matches everything, and the written file reads back
/// equal.
fn well_formed(rules: &[HeaderRule], count: usize) {
    assert_eq!(rules.len(), count);
    assert_eq!(rules.iter().collect::<HashSet<_>>().len(), count);
    let last = rules.last().unwrap();
    assert_eq!((last.source.map(|n| n.length), last.destination.map(|n| n.length)), (Some(0), Some(0)));
    assert_eq!((last.protocol, last.source_ports, last.destination_ports), (None, Range::ANY, Range::ANY));
    assert_eq!(classbench::rules(&classbench::write(rules)).unwrap(), rules);
}

/// The IPv6 length for an IPv4 length, as the documentation says.
fn widened(length: u8) -> u8 {
    match length {
        0 => 0,
        1..=24 => 16 + 2 * length,
        _ => 64 + 8 * (length - 24),
    }
}

#[test]
fn drawn_sets_have_the_statistics_of_their_source() {
    for v6 in [false, true] {
        let source = made(v6);
        let statistics = RuleSetStatistics::measure(&source).unwrap();
        assert_eq!(statistics.is_v6(), v6);
        for (count, deeper) in [(source.len(), 1.0), (10 * source.len(), 4.0)] {
            let drawn = statistics.draw(count, v6, 7).unwrap();
            well_formed(&drawn, count);
            alike(&format!("made, v6 {v6}"), &shape(&source), &shape(&drawn), |l| l, deeper);
        }
    }
}

#[test]
fn ipv6_sets_are_drawn_from_ipv4_statistics() {
    let source = made(false);
    let drawn = RuleSetStatistics::measure(&source).unwrap().draw(source.len(), true, 7).unwrap();
    well_formed(&drawn, source.len());
    alike("widened", &shape(&source), &shape(&drawn), widened, 1.0);
    let global: Net = Net { address: "2000::".parse().unwrap(), length: 3 };
    for net in drawn.iter().flat_map(|r| [r.source, r.destination]).flatten().filter(|n| n.length > 0) {
        assert!(global.contains(net.address), "{net:?}");
    }
    found_alike(&drawn, 300);
}

#[test]
fn classbench_sets_are_drawn_with_their_statistics() {
    for set in ["acl1_1k", "fw1_1k", "ipc1_1k", "acl1_10k", "fw1_10k", "ipc1_10k"] {
        let Some((source, _)) = sets::load(set) else { continue };
        let statistics = RuleSetStatistics::measure(&source).unwrap();
        let of = shape(&source);
        let drawn = statistics.draw(source.len(), false, 3).unwrap();
        well_formed(&drawn, source.len());
        alike(set, &of, &shape(&drawn), |l| l, 1.0);
        let drawn = statistics.draw(source.len(), true, 3).unwrap();
        alike(&format!("{set} as IPv6"), &of, &shape(&drawn), widened, 1.0);
        if set.ends_with("_1k") {
            // Ten times as many: the prefixes grow with the rules.
            let drawn = statistics.draw(10_000, false, 3).unwrap();
            well_formed(&drawn, 10_000);
            alike(&format!("{set} to 10k"), &of, &shape(&drawn), |l| l, 4.0);
        }
    }
}

#[test]
fn drawn_sets_are_found_as_the_linear_search_finds_them() {
    for v6 in [false, true] {
        found_alike(&RuleSetStatistics::measure(&made(v6)).unwrap().draw(3_000, v6, 5).unwrap(), 400);
    }
    for set in ["acl1_1k", "fw1_1k", "ipc1_1k"] {
        let Some((source, _)) = sets::load(set) else { continue };
        let statistics = RuleSetStatistics::measure(&source).unwrap();
        for v6 in [false, true] {
            found_alike(&statistics.draw(2_000, v6, 5).unwrap(), 300);
        }
    }
}

#[test]
fn a_seed_gives_one_set() {
    let statistics = RuleSetStatistics::measure(&made(false)).unwrap();
    let one = statistics.draw(500, false, 1).unwrap();
    assert_eq!(one, statistics.draw(500, false, 1).unwrap());
    assert_ne!(one, statistics.draw(500, false, 2).unwrap());
    well_formed(&statistics.draw(1, false, 1).unwrap(), 1);
    well_formed(&statistics.draw(2, true, 1).unwrap(), 2);
}

#[test]
fn what_cannot_be_drawn_is_refused() {
    let source = made(false);
    assert_eq!(RuleSetStatistics::measure(&[]).unwrap_err(), GenerateError::Empty);
    assert_eq!(RuleSetStatistics::measure(&source[1_200..]).unwrap_err(), GenerateError::Empty);
    assert_eq!(RuleSetStatistics::measure_version(&source[..9], true).unwrap_err(), GenerateError::Empty);
    let statistics = RuleSetStatistics::measure(&source).unwrap();
    assert_eq!(statistics.draw(0, false, 1).unwrap_err(), GenerateError::Zero);
    let v6 = RuleSetStatistics::measure(&made(true)).unwrap();
    assert_eq!(v6.draw(10, false, 1).unwrap_err(), GenerateError::Version);
    // A single rule for any addresses leaves nothing that could differ.
    let one = HeaderRule { protocol: Some(6), ..HeaderRule::default() };
    let uniform = RuleSetStatistics::measure(&[one]).unwrap().draw(10, false, 1).unwrap_err();
    assert_eq!(uniform, GenerateError::Uniform { asked: 10, reached: 2 });
}
