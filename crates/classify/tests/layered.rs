// SPDX-License-Identifier: Apache-2.0
//! Generations of rule sets that share tables give the results of the linear search of their own lists,
//! whatever their history.

use bartizan_base::{Fid, LinkId, TenantId};
use bartizan_classify::{
    Auto, Classifier, Header, HeaderRule, Layered, Linear, List, Net, Range, RankedRule,
};
use bartizan_testkit::random::Random;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const BUDGET: usize = 4 << 20;

/// A generator of rules.
type Kind = fn(&mut Random) -> HeaderRule;

/// An address of few distinct ones, so that rules and headers meet.
fn address(random: &mut Random, v6: bool) -> IpAddr {
    let number = random.below(16) as u32;
    match v6 {
        false => Ipv4Addr::from(0x0a00_0000 | number << 12 | number).into(),
        true => Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(number) << 64 | u128::from(number)).into(),
    }
}

fn rule(random: &mut Random) -> HeaderRule {
    let v6 = random.below(4) == 0;
    let net = |random: &mut Random| {
        let lengths: &[u8] = if v6 { &[32, 62, 64, 128] } else { &[8, 18, 20, 32] };
        let length = lengths[random.below(4)];
        (random.below(4) > 0).then(|| Net { address: address(random, v6), length })
    };
    let range = |random: &mut Random| match random.below(3) {
        0 => Range::ANY,
        1 => Range::one(random.below(8) as u16),
        _ => Range { first: random.below(4) as u16, last: 4 + random.below(4) as u16 },
    };
    HeaderRule {
        tenant: (random.below(2) == 0).then(|| TenantId(random.below(3) as u16)),
        // Headers of links beyond 255 are looked up by another way.
        link: (random.below(4) == 0).then(|| LinkId(299 + random.below(2) as u16)),
        source: net(random),
        destination: net(random),
        protocol: (random.below(2) == 0).then(|| random.below(2) as u8),
        source_ports: range(random),
        destination_ports: range(random),
        ..HeaderRule::default()
    }
}

fn header(random: &mut Random) -> Header {
    let v6 = random.below(4) == 0;
    Header {
        tenant: TenantId(random.below(3) as u16),
        link: LinkId(if random.below(4) == 0 { 299 + random.below(2) as u16 } else { 0 }),
        source: address(random, v6),
        destination: address(random, v6),
        protocol: random.below(2) as u8,
        source_port: random.below(10) as u16,
        destination_port: random.below(10) as u16,
    }
}

/// Rules in order as entries: numbered consecutively, some with a common number like those of one policy.
fn list(rules: &[HeaderRule], shift: u32) -> List {
    let entry = |(place, rule): (u32, &HeaderRule)| RankedRule {
        fid: Fid(shift + place / 2 * 3),
        priority: shift / 2 + place / 2,
        rule: *rule,
    };
    (0u32..).zip(rules).map(entry).collect()
}

/// Rules that leave tables too many to search: each has ports of its own.
fn odd_rule(random: &mut Random) -> HeaderRule {
    let first = random.below(9) as u16;
    let destination_ports = Range { first, last: first + 20 + random.below(20_000) as u16 };
    HeaderRule { destination_ports, ..rule(random) }
}

/// Inserts, removes, alters or moves some of the rules.
fn change(random: &mut Random, rules: &mut Vec<HeaderRule>, rule: Kind) {
    for _ in 0..1 + random.below(3) {
        let place = |random: &mut Random, rules: &Vec<HeaderRule>| random.below(rules.len());
        match random.below(5) {
            0 => {
                let (at, new) = (place(random, rules), rule(random));
                rules.insert(at, new);
            }
            1 => drop(rules.remove(place(random, rules))),
            2 => {
                let at = place(random, rules);
                rules[at] = rule(random);
            }
            3 => {
                let (from, to) = (place(random, rules), place(random, rules));
                let moved = rules.remove(from);
                rules.insert(to, moved);
            }
            // Another with the same rule.
            _ => {
                let (from, to) = (place(random, rules), place(random, rules));
                rules.insert(to, rules[from]);
            }
        }
    }
}

fn same(layered: &Layered, lists: &[List], headers: &[Header]) {
    let mut linear = Linear::new(lists.len() as u8);
    lists.iter().enumerate().for_each(|(set, list)| linear.insert(set as u8, &list.to_vec()).unwrap());
    for header in headers {
        let (mut a, mut b) = ([None; 3], [None; 3]);
        linear.lookup(header, &mut a);
        layered.lookup(header, &mut b);
        assert_eq!(a, b, "{header:?}");
    }
}

/// A chain of generations with compactions at random; earlier generations stay unchanged.
fn chain(seed: u64, rule: Kind, counts: [usize; 3]) -> (usize, usize) {
    let mut random = Random::new(seed);
    let mut rules: [Vec<HeaderRule>; 3] = counts.map(|count| (0..count).map(|_| rule(&mut random)).collect());
    let headers: Vec<Header> = (0..200).map(|_| header(&mut random)).collect();
    let lists_of = |rules: &[Vec<HeaderRule>; 3], shift: u32| -> Vec<List> {
        rules.iter().map(|rules| list(rules, shift)).collect()
    };
    let mut lists = lists_of(&rules, 0);
    let mut now = Layered::new(lists.clone(), BUDGET).unwrap();
    let odd = rule as usize == odd_rule as Kind as usize;
    assert_eq!(now.has_bit_vectors(), odd);
    let (mut shared, mut compiled) = (0, 0);
    for step in 0..60 {
        let set = random.below(3);
        if rules[set].len() < 3 {
            rules[set].extend((0..5).map(|_| rule(&mut random)));
        }
        change(&mut random, &mut rules[set], rule);
        let new = lists_of(&rules, random.below(5) as u32);
        let next = match now.next(&new, BUDGET).unwrap() {
            Some(next) => {
                assert!(next.shares_tables(&now));
                shared += 1;
                next
            }
            None => {
                compiled += 1;
                Layered::new(new.clone(), BUDGET).unwrap()
            }
        };
        same(&next, &new, &headers);
        assert_eq!(next.lists(), new);
        if step % 20 == 7 {
            next.compact();
            assert!(next.is_compact() && next.added() == 0 && next.has_bit_vectors() == odd);
            same(&next, &new, &headers);
        }
        // The one before is looked up by packets that are under way.
        same(&now, &lists, &headers);
        (now, lists) = (next, new);
    }
    (shared, compiled)
}

#[test]
fn generations_answer_as_their_own_lists_do() {
    for seed in 0..24 {
        assert_eq!(chain(seed, rule, [30, 120, 5]), (60, 0), "seed {seed}");
    }
}

#[test]
fn generations_over_bit_vectors_do_so_too() {
    for seed in 0..4 {
        assert_eq!(chain(seed, odd_rule, [30, 800, 5]), (60, 0), "seed {seed}");
    }
}

/// Once tables have proved unfit they are not tried with each generation, but are with clearly fewer rules.
#[test]
fn tables_are_tried_again_with_fewer_rules() {
    let mut random = Random::new(11);
    let odd: Vec<HeaderRule> = (0..800).map(|_| odd_rule(&mut random)).collect();
    let plain: Vec<HeaderRule> = (0..400).map(|_| rule(&mut random)).collect();
    let headers: Vec<Header> = (0..200).map(|_| header(&mut random)).collect();
    let after = |before: &Layered, rules: &[HeaderRule]| {
        let lists = vec![list(rules, 0)];
        let next = before.after(lists.clone(), BUDGET).unwrap();
        same(&next, &lists, &headers);
        next
    };
    let first = Layered::new(vec![list(&odd, 0)], BUDGET).unwrap();
    assert!(first.has_bit_vectors());
    // Too many that differ to share them.
    let second = after(&first, &[&odd[..500], &plain[..300]].concat());
    assert!(second.has_bit_vectors() && !second.shares_tables(&first));
    let third = after(&second, &plain[..300]);
    assert!(third.shares_tables(&second));
    third.compact();
    same(&third, &[list(&plain[..300], 0)], &headers);
    assert!(!third.has_bit_vectors() && third.is_compact());
    // Bit vectors beyond the budget: what tables have no place for is searched.
    let tight = Layered::new(vec![list(&odd, 0)], 100_000).unwrap();
    assert!(!tight.has_bit_vectors() && tight.rest() > 64);
    let next = tight.after(vec![list(&odd[1..], 0)], 100_000).unwrap();
    assert!(next.shares_tables(&tight));
    next.compact();
    assert!(!next.has_bit_vectors() && next.is_compact());
    same(&next, &[list(&odd[1..], 0)], &headers);
}

#[test]
fn too_many_changes_are_compiled() {
    let mut random = Random::new(7);
    let mut new = |count: usize| -> Vec<HeaderRule> { (0..count).map(|_| rule(&mut random)).collect() };
    let (first, few, many) = (new(2_000), new(256), new(257));
    let with = |more: &[HeaderRule]| vec![list(&[more, first.as_slice()].concat(), 0)];
    let before = Layered::new(with(&[]), BUDGET).unwrap();
    assert_eq!(before.next(&with(&few), BUDGET).unwrap().unwrap().added(), 256);
    assert!(before.next(&with(&many), BUDGET).unwrap().is_none());
    assert!(before.next(&with(&[]), BUDGET / 2).unwrap().is_none());
    assert!(before.next(&[with(&[]), with(&[])].concat(), BUDGET).unwrap().is_none());
    // Of rules that are gone half of the tables and a thousand may stay.
    assert!(before.next(&[list(&first[..100], 0)], BUDGET).unwrap().is_some());
    let large = Layered::new(vec![list(&[&first[..], &many, &few, &first].concat(), 0)], BUDGET).unwrap();
    assert!(large.next(&[list(&first[..100], 0)], BUDGET).unwrap().is_none());
}

/// A policy that alternates: the tables keep earlier rules, and nothing grows.
#[test]
fn what_comes_back_is_in_the_tables_again() {
    let mut random = Random::new(3);
    let first: Vec<HeaderRule> = (0..500).map(|_| rule(&mut random)).collect();
    let mut now = Layered::new(vec![list(&first, 0)], BUDGET).unwrap();
    let mut memory = Vec::new();
    for turn in 0..200u16 {
        let mut rules = first.clone();
        if turn % 2 == 0 {
            let odd = HeaderRule { destination_ports: Range::one(9_000 + turn), ..first[250] };
            rules[250] = odd;
        }
        now = now.next(&[list(&rules, u32::from(turn))], BUDGET).unwrap().unwrap();
        assert_eq!(now.added(), usize::from(turn % 2 == 0));
        memory.push(now.memory());
    }
    assert!(memory.iter().all(|bytes| *bytes == memory[0]));
}

#[test]
fn what_is_chosen_for_a_generation_follows_the_one_before() {
    let mut random = Random::new(5);
    let rules: Vec<HeaderRule> = (0..300).map(|_| rule(&mut random)).collect();
    let few = Auto::after(None, vec![list(&rules[..4], 0)], BUDGET).unwrap();
    assert!(few.layered().is_none());
    // Lists come in any order.
    let mut mixed = list(&rules, 0).to_vec();
    mixed.reverse();
    let first = Auto::after(Some(&few), vec![mixed.into_iter().collect()], BUDGET).unwrap();
    let second = Auto::after(Some(&first), vec![list(&rules[1..], 0)], BUDGET).unwrap();
    let (a, b) = (first.layered().unwrap(), second.layered().unwrap());
    assert!(a.shares_tables(b));
    assert_eq!(second.all_entries(), [list(&rules[1..], 0).to_vec()]);
    let headers: Vec<Header> = (0..200).map(|_| header(&mut random)).collect();
    same(b, &[list(&rules[1..], 0)], &headers);
    let mut reversed = list(&rules, 0).to_vec();
    reversed.reverse();
    reversed.sort_by_key(|entry| entry.priority);
    same(a, &[reversed.into_iter().collect()], &headers);
}
