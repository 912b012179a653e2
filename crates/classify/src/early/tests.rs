// SPDX-License-Identifier: Apache-2.0
//! Tables against the list that they are made from.

use super::{EarlyRules, Protocol, Question, Unknown, outcome};
use crate::header::{Header, HeaderRule, NameId, Net, Range};
use bartizan_base::{LinkId, TenantId};
use bartizan_testkit::random::Random;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::num::NonZeroU32;

const LINKS: [LinkId; 2] = [LinkId(3), LinkId(0)];

fn address(random: &mut Random, v6: bool) -> IpAddr {
    // Few networks, so that rules overlap.
    let (a, b) = (random.below(3) as u8, random.below(4) as u8 * 64 + random.below(2) as u8);
    if v6 {
        let mut bytes = [0; 16];
        (bytes[0], bytes[7], bytes[8], bytes[15]) = (0x20, a, a, b);
        IpAddr::V6(Ipv6Addr::from(bytes))
    } else {
        IpAddr::V4(Ipv4Addr::new(10, a, 0, b))
    }
}

fn net(random: &mut Random, v6: bool) -> Net {
    let lengths: &[u8] = if v6 { &[0, 8, 60, 64, 70, 121, 128] } else { &[0, 8, 15, 16, 24, 26, 32] };
    Net { address: address(random, v6), length: *random.pick(lengths) }
}

fn ports(random: &mut Random) -> Range {
    match random.below(4) {
        0 | 1 => Range::ANY,
        2 => Range::one(random.below(4) as u16),
        _ => Range { first: 2, last: *random.pick(&[2, 3, 65_535]) },
    }
}

fn rule(random: &mut Random, tenants: bool) -> HeaderRule {
    let v6 = random.percent(40);
    let side = |random: &mut Random| random.percent(70).then(|| net(random, v6));
    HeaderRule {
        tenant: (tenants && random.percent(15)).then_some(TenantId(1)),
        link: random.percent(20).then(|| LinkId(random.below(4) as u16)),
        source: side(random),
        destination: side(random),
        protocol: random.percent(60).then(|| *random.pick(&[6, 17, 1, 132])),
        source_ports: ports(random),
        destination_ports: ports(random),
        destination_name: (tenants && random.percent(10)).then_some(NameId(NonZeroU32::MIN)),
        ..HeaderRule::default()
    }
}

struct Listed {
    within: Vec<HeaderRule>,
    alternatives: Vec<HeaderRule>,
    outcome: Option<u32>,
}

/// What the first rule says that surely matches; nothing where one before it may match.
fn expected(list: &[Listed], header: &Header) -> Option<u32> {
    let sure = |rules: &[HeaderRule]| rules.iter().any(|rule| rule.tenant.is_none() && rule.matches(header));
    let may = |rules: &[HeaderRule]| {
        rules.iter().any(|rule| HeaderRule { tenant: None, destination_name: None, ..*rule }.matches(header))
    };
    for listed in list {
        if sure(&listed.within) && sure(&listed.alternatives) {
            return listed.outcome;
        }
        if may(&listed.within) && may(&listed.alternatives) {
            return None;
        }
    }
    None
}

fn header(random: &mut Random) -> Header {
    let v6 = random.percent(40);
    Header {
        tenant: TenantId(0),
        link: *random.pick(&LINKS),
        source: address(random, v6),
        destination: address(random, v6),
        protocol: *random.pick(&[6, 17, 1, 58]),
        source_port: *random.pick(&[0, 1, 2, 3, 4, 65_535]),
        destination_port: *random.pick(&[0, 1, 2, 3, 4, 65_535]),
    }
}

fn question(header: &Header) -> Question {
    Question {
        link: LINKS.iter().position(|link| *link == header.link).unwrap() as u32,
        source: header.source,
        destination: header.destination,
        protocol: Protocol::of(header.protocol).unwrap(),
        ports: (header.source_port, header.destination_port),
    }
}

#[test]
fn a_table_says_what_the_first_rule_says_that_matches() {
    let mut random = Random::new(22);
    let (mut met, mut refused_whatever) = ([0u32; 2], 0u32);
    for _ in 0..300 {
        let mut list = Vec::new();
        for number in 0..random.below(12) as u32 {
            let some = |most: usize, random: &mut Random| -> Vec<HeaderRule> {
                (0..=random.below(most)).map(|_| rule(random, true)).collect()
            };
            let within = if random.percent(50) { vec![HeaderRule::default()] } else { some(3, &mut random) };
            let alternatives = some(5, &mut random);
            list.push(Listed { within, alternatives, outcome: random.percent(60).then_some(number) });
        }
        let mut rules = EarlyRules::default();
        list.iter().for_each(|listed| rules.push(&listed.within, &listed.alternatives, listed.outcome));
        let table = rules.table(&LINKS, 1 << 14);
        assert_eq!(table.held, list.len());
        for _ in 0..200 {
            let header = header(&mut random);
            let said = outcome(&table.words, &question(&header));
            assert_eq!(said, expected(&list, &header), "{header:?}");
            met[usize::from(said.is_some())] += 1;
            // What is refused whatever it is is refused with each protocol and all ports.
            let whatever = Question { protocol: Protocol::Whatever, ..question(&header) };
            if outcome(&table.words, &whatever).is_some() {
                refused_whatever += 1;
                for (protocol, ports) in [(6, 0), (17, 2), (1, 3), (58, 1), (132, 4), (47, 65_535)] {
                    let other =
                        Header { protocol, source_port: ports, destination_port: 5 - ports.min(5), ..header };
                    assert!(expected(&list, &other).is_some(), "{other:?}");
                }
            }
        }
    }
    assert!(met.iter().all(|count| *count > 5_000), "{met:?}");
    assert!(refused_whatever > 1_000, "{refused_whatever}");
}

#[test]
fn what_has_no_ports_is_refused_by_rules_that_ask_for_none() {
    let whatever = |list: &[(HeaderRule, Option<u32>)]| {
        let mut rules = EarlyRules::default();
        list.iter().for_each(|(rule, outcome)| rules.push(&[HeaderRule::default()], &[*rule], *outcome));
        let (source, destination) = ([11, 0, 1, 9].into(), [5; 4].into());
        let question = Question { link: 0, source, destination, protocol: Protocol::Whatever, ports: (0, 0) };
        outcome(&rules.table(&LINKS, 10).words, &question)
    };
    let host = blocked(1);
    let of = |protocol| HeaderRule { protocol: Some(protocol), ..host };
    let port = HeaderRule { destination_ports: Range::one(53), ..host };
    assert_eq!(whatever(&[(host, Some(0))]), Some(0));
    // A rule that refuses a part of it does not decide, one that lets a part go on does.
    assert_eq!(whatever(&[(of(6), Some(0)), (port, Some(1)), (host, Some(2))]), Some(2));
    assert_eq!(whatever(&[(of(6), Some(0)), (of(17), Some(1)), (of(1), Some(2)), (of(58), Some(3))]), None);
    for exception in [of(6), of(132), port] {
        assert_eq!(whatever(&[(exception, None), (host, Some(1))]), None);
        assert_eq!(whatever(&[(host, Some(1)), (exception, None)]), Some(1));
    }
}

fn blocked(number: u32) -> HeaderRule {
    let address = IpAddr::V4(Ipv4Addr::from(0x0b00_0000 | number << 8));
    HeaderRule { source: Some(Net { address, length: 24 }), ..HeaderRule::default() }
}

#[test]
fn a_rule_of_many_prefixes_and_many_rules_of_one_fit() {
    let everything = [HeaderRule::default()];
    let ask = |words: &[u64], number: u32| {
        let source = IpAddr::V4(Ipv4Addr::from(0x0b00_0007 | number << 8));
        let destination = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
        outcome(words, &Question { link: 0, source, destination, protocol: Protocol::Udp, ports: (1, 2) })
    };
    // Every second network, so that none touches another.
    let prefixes: Vec<HeaderRule> = (0..10_000).map(|number| blocked(number * 2)).collect();
    let mut rules = EarlyRules::default();
    rules.push(&everything, &prefixes, Some(0));
    let table = rules.table(&LINKS, 1 << 14);
    assert_eq!(table.held, 1);
    assert!(table.words.len() < 60_000, "{}", table.words.len());
    let mut rules = EarlyRules::default();
    prefixes.iter().zip(0..).for_each(|(prefix, number)| rules.push(&everything, &[*prefix], Some(number)));
    let each = rules.table(&LINKS, 1 << 14);
    assert_eq!(each.held, 10_000);
    for number in (0..20_000).step_by(7) {
        let hit = number % 2 == 0;
        assert_eq!(ask(&table.words, number), hit.then_some(0));
        assert_eq!(ask(&each.words, number), hit.then_some(number / 2));
    }
    // More outcomes than can be counted: the rest goes up.
    let some = rules.table(&LINKS, 100);
    assert_eq!(some.held, 100);
    assert_eq!((ask(&some.words, 198), ask(&some.words, 200)), (Some(99), None));
}

#[test]
fn what_does_not_fit_is_left_out_from_the_end() {
    // Rules that cross in both addresses: as many classes as there are pairs.
    let mut random = Random::new(5);
    let mut rules = EarlyRules::default();
    let mut list = Vec::new();
    for number in 0..3_000u32 {
        let net = |first: u32, random: &mut Random| {
            let address = IpAddr::V4(Ipv4Addr::from(first | (random.draw() as u32 & 0x00ff_ff00)));
            Some(Net { address, length: 24 })
        };
        let source = net(0x0a00_0000, &mut random);
        let destination = net(0x0b00_0000, &mut random);
        let rule = HeaderRule { source, destination, ..HeaderRule::default() };
        rules.push(&[HeaderRule::default()], &[rule], Some(number));
        list.push(rule);
    }
    let table = rules.table(&LINKS[..1], 1 << 14);
    assert!(table.held > 500 && table.held < 3_000, "{}", table.held);
    for (rule, number) in list.iter().zip(0u32..) {
        let (source, destination) = (rule.source.unwrap().address, rule.destination.unwrap().address);
        let said = outcome(
            &table.words,
            &Question { link: 0, source, destination, protocol: Protocol::Tcp, ports: (1, 2) },
        );
        assert_eq!(said, ((number as usize) < table.held).then_some(number));
    }
}

#[test]
fn what_nobody_refuses_needs_no_words() {
    let mut rules = EarlyRules::default();
    assert_eq!(rules.table(&LINKS, 10).words, []);
    rules.push(&[HeaderRule::default()], &[blocked(1)], None);
    assert_eq!((rules.len(), rules.table(&LINKS, 10).words), (1, vec![]));
    let question = Question {
        link: 0,
        source: [1, 2, 3, 4].into(),
        destination: [5; 4].into(),
        protocol: Protocol::Udp,
        ports: (1, 2),
    };
    assert_eq!(outcome(&[], &question), None);
}

#[test]
fn what_is_said_of_rules_is_of_those_that_can_match_on_the_link() {
    let everything = [HeaderRule::default()];
    let (here, there) = (LINKS[0], LINKS[1]);
    let on = |link| HeaderRule { link: Some(link), ..HeaderRule::default() };
    let tenant = HeaderRule { tenant: Some(TenantId(1)), ..HeaderRule::default() };
    let named = HeaderRule { source_name: NonZeroU32::new(1).map(NameId), ..HeaderRule::default() };
    let sctp = HeaderRule { protocol: Some(132), ..HeaderRule::default() };
    let mut rules = EarlyRules::default();
    rules.push(&everything, &[on(there)], Some(0));
    // Of the other link only what is for a tenant.
    rules.push(&everything, &[on(here), HeaderRule { link: Some(there), ..tenant }], Some(1));
    rules.push(&[tenant], &everything, Some(2));
    rules.push(&everything, &[named], Some(3));
    rules.push(&everything, &[sctp], Some(4));
    // Nothing matches both.
    rules.push(&[on(here)], &[on(there)], Some(5));
    rules.push(&everything, &everything, None);
    let said = |link| rules.on(link).map(|of| (of.rule, of.unknown)).collect::<Vec<_>>();
    let behind =
        [(2, Some(Unknown::Tenant)), (3, Some(Unknown::Name)), (4, Some(Unknown::Protocol)), (6, None)];
    assert_eq!(said(here), [&[(1, None)][..], &behind].concat());
    assert_eq!(said(there), [&[(0, None), (1, Some(Unknown::Tenant))][..], &behind].concat());
}
