// SPDX-License-Identifier: Apache-2.0
//! Every classifier gives the results of the linear search.

use bartizan_base::{Fid, LinkId, TenantId};
use bartizan_classify::trace::{Draw, draw};
use bartizan_classify::{
    Auto, BitVector, Classifier, Flat, Header, HeaderRule, InsertError, Linear, Live, Match, NO_FID, Net,
    Range, RankedRule, Rebuild, Segments,
};
use bartizan_testkit::random::Random;
use bartizan_testkit_golden::{Hsm, Segmentation, StrideBv};
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

#[derive(Clone, Debug)]
enum Step {
    Insert(u8, Vec<RankedRule>),
    Delete(Fid),
    Begin(bool),
    Finish,
}

fn step() -> impl Strategy<Value = Step> {
    let entry = (0u32..40, 0u32..20, rule()).prop_map(|(fid, priority, rule)| RankedRule {
        fid: Fid(fid),
        priority,
        rule,
    });
    prop_oneof![
        4 => (0..SETS, proptest::collection::vec(entry, 1..90)).prop_map(|(set, entries)| Step::Insert(set, entries)),
        4 => (0u32..40).prop_map(|fid| Step::Delete(Fid(fid))),
        1 => any::<bool>().prop_map(Step::Begin),
        1 => Just(Step::Finish),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn two_rules_together_match_what_both_match(
        rules in proptest::collection::vec(rule(), 12),
        headers in proptest::collection::vec(header(), 48),
    ) {
        for (a, b) in rules.iter().flat_map(|a| rules.iter().map(move |b| (a, b))) {
            let both = a.and(b);
            for header in &headers {
                let matches = both.is_some_and(|both| both.matches(header));
                prop_assert_eq!(matches, a.matches(header) && b.matches(header), "{:?} {:?} {:?}", a, b, header);
            }
        }
    }

    /// Whatever values of its segments a header has, the same rules match it; one step beyond, some rule
    /// begins or ends.
    #[test]
    fn segments_are_as_far_as_no_rule_notices(
        rules in proptest::collection::vec(rule(), 1..16),
        header in header(),
        picks in proptest::collection::vec(any::<bool>(), 7),
    ) {
        let mut segments = Segments::new(&header);
        rules.iter().for_each(|rule| segments.cut(rule));
        let [first, last] = segments.ends();
        let mut other = header;
        let end = |index: usize| if picks[index] { &first } else { &last };
        other.destination_port = end(0).destination_port;
        other.source_port = end(1).source_port;
        other.protocol = end(2).protocol;
        other.tenant = end(3).tenant;
        other.link = end(4).link;
        // Ends have the version of the source.
        if header.source.is_ipv4() == header.destination.is_ipv4() {
            other.destination = end(5).destination;
        }
        other.source = end(6).source;
        let matching = |header: &Header| rules.iter().map(|r| r.matches(header)).collect::<Vec<_>>();
        prop_assert_eq!(matching(&header), matching(&other));
        let edges: Vec<u16> = rules.iter().flat_map(|r| {
            let ports = r.destination_ports;
            [Some(ports.first), ports.last.checked_add(1)]
        }).flatten().collect();
        prop_assert!(first.destination_port == 0 || edges.contains(&first.destination_port));
        let beyond = last.destination_port.checked_add(1);
        prop_assert!(beyond.is_none_or(|beyond| edges.contains(&beyond)));
    }

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
                Step::Begin(_) | Step::Finish => {}
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

/// Compares both forms of lookup with the reference.
fn same(linear: &Linear, live: &Live, headers: &[Header]) {
    let mut flats = (Vec::new(), Vec::new());
    for header in headers {
        let (mut a, mut b) = ([None; 4], [Some(Match { fid: Fid(9), priority: 9 }); 4]);
        linear.lookup(header, &mut a);
        live.lookup(header, &mut b);
        assert_eq!(a, b, "{header:?} {:?}", live.summary());
        match Flat::new(header) {
            Some(Flat::V4(flat)) => flats.0.push(flat),
            Some(Flat::V6(flat)) => flats.1.push(flat),
            None => {}
        }
    }
    let sets = usize::from(SETS);
    let (mut a, mut b) = (vec![None; flats.0.len() * sets], vec![None; flats.0.len() * sets]);
    linear.lookup_v4(&flats.0, &mut a);
    live.lookup_v4(&flats.0, &mut b);
    assert_eq!(a, b);
    let fids = |r: &[Option<Match>]| r.iter().map(|m| m.map_or(NO_FID, |m| m.fid)).collect::<Vec<_>>();
    let mut found = vec![Fid(5); b.len()];
    live.fids_v4(&flats.0, &mut found);
    assert_eq!(fids(&a), found);
    let (mut a, mut b) = (vec![None; flats.1.len() * sets], vec![None; flats.1.len() * sets]);
    linear.lookup_v6(&flats.1, &mut a);
    live.lookup_v6(&flats.1, &mut b);
    assert_eq!(a, b);
}

/// Groups too large for a cell for every pair of classes beside small ones, with half of the rules deleted.
#[test]
fn deletes_in_large_and_small_groups_are_as_the_linear_search() {
    use bartizan_classify::trace::Random;
    for v6 in [false, true] {
        let mut random = Random(11);
        let mut rules = Vec::new();
        for i in 0..1_600u32 {
            let net = |random: &mut Random, lengths: &[u8]| {
                let length = lengths[random.below(lengths.len())];
                let number = random.bits() as u32 & 0x7fff_1f00 | random.below(4) as u32;
                let address: IpAddr = if v6 {
                    Ipv6Addr::from(u128::from(number) << 96 | u128::from(number)).into()
                } else {
                    Ipv4Addr::from(number).into()
                };
                Some(Net { address, length })
            };
            let long: &[u8] = if v6 { &[24, 32, 48, 64, 128] } else { &[16, 20, 24, 28, 32] };
            // Long ones in both addresses are nested: another rule's network, or one in it.
            let (source, destination) = match i % 8 {
                0 => (net(&mut random, &[0, 2, 4]), net(&mut random, long)),
                1 => (net(&mut random, long), None),
                _ => (net(&mut random, long), net(&mut random, long)),
            };
            let destination_ports =
                [Range::ANY, Range::one(80), Range { first: 0, last: 1023 }][i as usize % 3];
            let rule = HeaderRule { source, destination, destination_ports, ..HeaderRule::default() };
            rules.push(rule);
            if i % 4 == 2 {
                // After it, rules that it covers or that cover it.
                let wider = Net { length: 12, ..source.unwrap() };
                rules.push(HeaderRule { source: Some(wider), ..rule });
                rules.push(HeaderRule { destination_ports: Range::ANY, ..rule });
            }
        }
        let entry = |(i, rule): (usize, &HeaderRule)| RankedRule {
            fid: Fid(i as u32),
            priority: i as u32,
            rule: *rule,
        };
        let entries: Vec<RankedRule> = rules.iter().enumerate().map(entry).collect();
        let (mut live, mut linear) = (Live::new(SETS, 64 << 20), Linear::new(SETS));
        live.insert(1, &entries).unwrap();
        linear.insert(1, &entries).unwrap();
        let rebuild = live.begin(true);
        assert!(live.finish(rebuild.run()));
        let headers = [draw(&rules, Draw::Uniform, 700), draw(&rules, Draw::Corner, 300)].concat();
        same(&linear, &live, &headers);
        for fid in (0..rules.len() as u32).step_by(2) {
            assert_eq!((live.delete(Fid(fid)), linear.delete(Fid(fid))), (1, 1));
        }
        same(&linear, &live, &headers);
        let summary = live.summary();
        let lines = |what: &str| summary.iter().filter(|line| line.contains(what)).count();
        let pooled = lines("pool of 1") + 2 * lines("pool of 2");
        assert!(0 < pooled && pooled < lines("group of"), "{summary:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// A single header is looked up without a batch's stages: with a batch's results, however many sets there
    /// are, with rules in tables and in none, deleted and added ones.
    #[test]
    fn one_header_is_found_as_in_a_batch(
        rules in proptest::collection::vec(proptest::collection::vec(rule(), 0..40), 16),
        sets in prop_oneof![Just(1usize), Just(2), Just(3), Just(5), Just(16)],
        headers in proptest::collection::vec(header(), 90),
        budget in prop_oneof![Just(0usize), Just(1 << 14), Just(64 << 20)],
        changed in any::<bool>(),
    ) {
        let mut live = Live::new(sets as u8, budget);
        let mut linear = Linear::new(sets as u8);
        let mut number = 0;
        for (set, rules) in rules.iter().take(sets).enumerate() {
            let entries: Vec<RankedRule> = rules.iter().map(|rule| {
                number += 1;
                RankedRule { fid: Fid(number), priority: number % 50, rule: *rule }
            }).collect();
            live.insert(set as u8, &entries).unwrap();
            linear.insert(set as u8, &entries).unwrap();
        }
        let rebuild = live.begin(true);
        prop_assert!(live.finish(rebuild.run()));
        if changed {
            for fid in (1..=number).step_by(3) {
                prop_assert_eq!(live.delete(Fid(fid)), linear.delete(Fid(fid)));
            }
            for (number, rule) in (5_000..).zip(rules[0].iter().step_by(4)) {
                let entry = RankedRule { fid: Fid(number), priority: number % 50, rule: *rule };
                live.insert(0, &[entry]).unwrap();
                linear.insert(0, &[entry]).unwrap();
            }
        }
        let fids = |found: &[Option<Match>]| found.iter().map(|m| m.map_or(NO_FID, |m| m.fid)).collect::<Vec<_>>();
        let (mut v4, mut v6) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        for header in &headers {
            let (mut right, mut found) = (vec![None; sets], vec![None; sets]);
            linear.lookup(header, &mut right);
            live.lookup(header, &mut found);
            prop_assert_eq!(&right, &found);
            // Fewer places than sets: the first of them.
            let mut few = vec![None; sets / 2];
            live.lookup(header, &mut few);
            prop_assert_eq!(&right[..sets / 2], &few[..]);
            let mut alone = vec![Fid(5); sets];
            match Flat::new(header) {
                Some(Flat::V4(flat)) => {
                    live.fids_v4(&[flat], &mut alone);
                    v4.0.push(flat);
                    v4.1.push(fids(&right));
                }
                Some(Flat::V6(flat)) => {
                    live.fids_v6(&[flat], &mut alone);
                    v6.0.push(flat);
                    v6.1.push(fids(&right));
                }
                None => continue,
            }
            prop_assert_eq!(fids(&right), alone);
        }
        let (mut of_v4, mut of_v6) = (vec![Fid(5); sets * v4.0.len()], vec![Fid(5); sets * v6.0.len()]);
        live.fids_v4(&v4.0, &mut of_v4);
        live.fids_v6(&v6.0, &mut of_v6);
        for set in 0..sets {
            let of = |alone: &[Vec<Fid>]| alone.iter().map(|a| a[set]).collect::<Vec<_>>();
            prop_assert_eq!(&of(&v4.1)[..], &of_v4[set * v4.0.len()..][..v4.0.len()]);
            prop_assert_eq!(&of(&v6.1)[..], &of_v6[set * v6.0.len()..][..v6.0.len()]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn live_answers_as_the_linear_search_through_inserts_deletes_and_rebuilds(
        steps in proptest::collection::vec(step(), 1..16),
        headers in proptest::collection::vec(header(), 80),
    ) {
        let mut linear = Linear::new(SETS);
        let mut live = Live::new(SETS, 64 << 20);
        let mut rebuild: Option<Rebuild> = None;
        let mut gone: Vec<(u8, RankedRule)> = Vec::new();
        let mut all: Vec<(u8, RankedRule)> = Vec::new();
        for step in steps {
            match step {
                Step::Insert(set, entries) => {
                    linear.insert(set, &entries).unwrap();
                    live.insert(set, &entries).unwrap();
                    all.extend(entries.iter().map(|e| (set, *e)));
                }
                Step::Delete(fid) => {
                    // Entries deleted before are inserted again.
                    for (set, entry) in gone.drain(..) {
                        linear.insert(set, &[entry]).unwrap();
                        live.insert(set, &[entry]).unwrap();
                        all.push((set, entry));
                    }
                    prop_assert_eq!(linear.delete(fid), live.delete(fid));
                    gone.extend(all.extract_if(.., |(_, e)| e.fid == fid));
                }
                Step::Begin(fast) => rebuild = Some(live.begin(fast)),
                Step::Finish => {
                    if let Some(rebuild) = rebuild.take() {
                        live.finish(rebuild.run());
                    }
                }
            }
            prop_assert_eq!(linear.len(), live.len());
            same(&linear, &live, &headers);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_structure_answers_as_the_linear_search(
        steps in proptest::collection::vec(step(), 1..6),
        headers in proptest::collection::vec(header(), 32),
    ) {
        let mut linear = Linear::new(SETS);
        let stride = StrideBv::new(SETS, 64 << 20);
        let mut others: Vec<Box<dyn Classifier>> = vec![
            Box::new(Hsm::new(SETS, Segmentation::Separate, 256 << 20)),
            Box::new(Hsm::new(SETS, Segmentation::Integrated, 256 << 20)),
            Box::new(stride),
        ];
        let mut sets: Vec<Vec<RankedRule>> = vec![Vec::new(); usize::from(SETS)];
        for step in steps {
            match step {
                Step::Insert(set, mut entries) => {
                    entries.truncate(12);
                    linear.insert(set, &entries).unwrap();
                    sets[usize::from(set)].extend(&entries);
                    for other in &mut others {
                        other.insert(set, &entries).unwrap();
                    }
                }
                Step::Delete(fid) => {
                    let gone = linear.delete(fid);
                    sets.iter_mut().for_each(|s| s.retain(|e| e.fid != fid));
                    for other in &mut others {
                        prop_assert_eq!(gone, other.delete(fid));
                    }
                }
                Step::Begin(_) | Step::Finish => {}
            }
            let auto = Auto::new(&sets, 1 << 20).unwrap().classifier;
            let small = Auto::new(&sets, 256 << 10).unwrap().classifier;
            let entries = linear.all_entries();
            for other in others.iter().chain([&auto, &small]) {
                prop_assert_eq!(linear.len(), other.len());
                prop_assert_eq!(&entries, &other.all_entries());
                for header in &headers {
                    let (mut a, mut b) = ([None; 4], [Some(Match { fid: Fid(9), priority: 9 }); 4]);
                    linear.lookup(header, &mut a);
                    other.lookup(header, &mut b);
                    prop_assert_eq!(a, b, "{:?}", header);
                }
            }
        }
    }
}

#[test]
fn rules_with_a_port_each_are_found_by_bit_vectors() {
    let entry = |i: u32| RankedRule {
        fid: Fid(i),
        priority: i,
        rule: HeaderRule {
            source: Some(Net { address: Ipv4Addr::from(0xac10_0000 + 64 * i).into(), length: 26 }),
            destination_ports: Range::one(20_000 + i as u16),
            protocol: Some(6),
            ..HeaderRule::default()
        },
    };
    let entries: Vec<RankedRule> = (0..10_000).map(entry).collect();
    let auto = Auto::new(std::slice::from_ref(&entries), 64 << 20).unwrap();
    assert!(auto.why.starts_with("bit vectors: 10000 rules"), "{}", auto.why);
    let mut linear = Linear::new(1);
    linear.insert(0, &entries).unwrap();
    let rules: Vec<HeaderRule> = entries.iter().map(|e| e.rule).collect();
    for header in draw(&rules, Draw::Corner, 500).iter().chain(&draw(&rules, Draw::Cross, 500)) {
        let (mut a, mut b) = ([None], [None]);
        linear.lookup(header, &mut a);
        auto.classifier.lookup(header, &mut b);
        assert_eq!(a, b, "{header:?}");
    }
}

#[test]
fn lookups_go_on_while_entries_come_and_go() {
    use std::sync::atomic::{AtomicBool, Ordering};
    // Rule i matches source 10.i.0.0/16 and one destination port in 20; the catch-all always stays.
    let entry = |i: u32| RankedRule {
        fid: Fid(i),
        priority: i,
        rule: HeaderRule {
            source: Some(Net { address: Ipv4Addr::from(0x0a00_0000 | (i % 256) << 16).into(), length: 16 }),
            destination_ports: Range::one((i / 256) as u16),
            ..HeaderRule::default()
        },
    };
    let any = RankedRule { fid: Fid(99_999), priority: 99_999, rule: HeaderRule::default() };
    let count = 4_000u32;
    let mut live = Live::new(1, 64 << 20);
    let mut entries: Vec<RankedRule> = (0..count).map(entry).collect();
    entries.push(any);
    live.insert(0, &entries).unwrap();
    let mut linear = Linear::new(1);
    linear.insert(0, &entries).unwrap();
    let stop = AtomicBool::new(false);
    let mut n = Random::new(7);
    std::thread::scope(|scope| {
        let (reader, stop) = (live.reader(), &stop);
        let lookups = scope.spawn(move || {
            let mut n = Random::new(5);
            let mut batches = 0u32;
            while !stop.load(Ordering::Relaxed) || batches < 100 {
                let chosen: Vec<u32> = (0..64).map(|_| n.below(count as usize) as u32).collect();
                let flat: Vec<_> = chosen
                    .iter()
                    .map(|i| bartizan_classify::FlatV4 {
                        source: 0x0a00_0001 | (i % 256) << 16,
                        destination_port: (i / 256) as u16,
                        ..Default::default()
                    })
                    .collect();
                let mut results = vec![None; 64];
                reader.version().lookup_v4(&flat, &mut results);
                for (i, found) in chosen.iter().zip(results) {
                    let found: Match = found.expect("the last rule always matches");
                    assert!(found.fid == Fid(*i) || found.fid == any.fid, "{i} {found:?}");
                }
                batches += 1;
            }
        });
        let mut present = vec![true; count as usize];
        for step in 0..30_000u32 {
            let i = n.below(count as usize) as u32;
            if std::mem::replace(&mut present[i as usize], false) {
                assert_eq!(live.delete(Fid(i)), 1);
                linear.delete(Fid(i));
                let header = Header {
                    tenant: TenantId(0),
                    link: LinkId(0),
                    source: Ipv4Addr::from(0x0a00_0001 | (i % 256) << 16).into(),
                    destination: Ipv4Addr::LOCALHOST.into(),
                    protocol: 6,
                    source_port: 1,
                    destination_port: (i / 256) as u16,
                };
                let mut found = [None];
                live.lookup(&header, &mut found);
                assert_eq!(found[0].map(|m| m.fid), Some(any.fid), "a deleted entry is gone at once");
            } else {
                live.insert(0, &[entry(i)]).unwrap();
                linear.insert(0, &[entry(i)]).unwrap();
                present[i as usize] = true;
            }
            if step % 5_000 == 0 {
                let rebuild = live.begin(step % 10_000 == 0);
                assert!(live.finish(rebuild.run()));
            }
        }
        stop.store(true, Ordering::Relaxed);
        lookups.join().unwrap();
    });
    assert_eq!(live.len(), linear.len());
    let headers: Vec<Header> = (0..count)
        .map(|i| Header {
            tenant: TenantId(0),
            link: LinkId(0),
            source: Ipv4Addr::from(0x0a00_0001 | (i % 256) << 16).into(),
            destination: Ipv4Addr::LOCALHOST.into(),
            protocol: 6,
            source_port: 1,
            destination_port: (i / 256) as u16,
        })
        .collect();
    for header in headers {
        let (mut a, mut b) = ([None], [None]);
        linear.lookup(&header, &mut a);
        live.lookup(&header, &mut b);
        assert_eq!(a, b);
    }
}

#[test]
fn ten_thousand_rules_stay_within_their_bound_and_right() {
    let mut n = Random::new(1);
    let mut entries = Vec::new();
    for index in 0..10_000u32 {
        let v4 = |n: &mut Random| Net {
            address: Ipv4Addr::from(0x0a00_0000 | n.below(1 << 20) as u32).into(),
            length: 12 + n.below(21) as u8,
        };
        let rule = HeaderRule {
            source: (n.below(4) != 0).then(|| v4(&mut n)),
            destination: (n.below(4) != 0).then(|| v4(&mut n)),
            protocol: (n.below(3) != 0).then_some(6),
            destination_ports: if n.below(3) == 0 { Range::ANY } else { Range::one(n.below(500) as u16) },
            ..HeaderRule::default()
        };
        entries.push(RankedRule { fid: Fid(index), priority: index, rule });
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
            source: Ipv4Addr::from(0x0a00_0000 | n.below(1 << 20) as u32).into(),
            destination: Ipv4Addr::from(0x0a00_0000 | n.below(1 << 20) as u32).into(),
            protocol: if n.below(2) == 0 { 6 } else { 17 },
            source_port: 40_000,
            destination_port: n.below(500) as u16,
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
        RankedRule { fid: Fid(n), priority: n, rule: HeaderRule { source, ..HeaderRule::default() } }
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

#[test]
fn every_structure_refuses_a_set_that_is_not_there_and_the_fid_of_no_match() {
    let entry = |fid| RankedRule { fid, priority: 0, rule: HeaderRule::default() };
    let structures: [Box<dyn Classifier>; 5] = [
        Box::new(Linear::new(1)),
        Box::new(BitVector::new(1, 1 << 20)),
        Box::new(Hsm::new(1, Segmentation::Integrated, 1 << 20)),
        Box::new(StrideBv::new(1, 1 << 20)),
        Box::new(Live::new(1, 1 << 20)),
    ];
    for mut structure in structures {
        let missing = Err(InsertError::NoSuchSet { set: 1, sets: 1 });
        assert_eq!(structure.insert(1, &[entry(Fid(1))]), missing, "{structure:?}");
        let reserved = structure.insert(0, &[entry(Fid(1)), entry(NO_FID)]);
        assert_eq!(reserved, Err(InsertError::ReservedFid), "{structure:?}");
        assert!(structure.is_empty(), "{structure:?}");
    }
}
