// SPDX-License-Identifier: Apache-2.0
//! ClassBench sets: every structure gives the golden results. The data is not part of the project; if it is
//! missing, the tests print so.

use bartizan_classify::{Compiled, Flat, FlatV4, InstructionSet, Options, trace};
use bartizan_testkit_golden::classbench::{SETS, load};

fn flat(headers: &[bartizan_classify::Header]) -> Vec<FlatV4> {
    headers
        .iter()
        .map(|h| match Flat::new(h) {
            Some(Flat::V4(flat)) => flat,
            _ => panic!("the sets are IPv4"),
        })
        .collect()
}

#[test]
fn compiled_sets_give_the_golden_answers_at_every_level() {
    for set in SETS {
        let Some((rules, golden)) = load(set) else { continue };
        let headers: Vec<_> = golden.iter().map(|(h, _)| *h).collect();
        let flat = flat(&headers);
        for fast in [false, true] {
            let mut compiled =
                Compiled::new(std::slice::from_ref(&rules), Options { budget: 64 << 20, fast });
            for level in [InstructionSet::Avx512, InstructionSet::Avx2, InstructionSet::Portable] {
                compiled.set_level(level);
                let mut answers = vec![0; flat.len()];
                compiled.lookup_v4(&flat, &mut answers);
                let wrong = golden
                    .iter()
                    .zip(&answers)
                    .filter(|((_, right), a)| right.unwrap_or(u32::MAX) != **a)
                    .count();
                assert_eq!(wrong, 0, "{set} fast={fast} {level:?}");
            }
        }
    }
}

#[test]
fn without_the_last_rule_there_are_misses() {
    let Some((mut rules, golden)) = load("fw1_1k") else { return };
    rules.pop();
    let last = rules.len() as u32;
    let headers: Vec<_> = golden.iter().map(|(h, _)| *h).collect();
    let compiled = Compiled::new(&[rules], Options { budget: 64 << 20, fast: true });
    let mut answers = vec![0; headers.len()];
    compiled.lookup_v4(&flat(&headers), &mut answers);
    let right = golden.iter().map(|(_, r)| r.filter(|r| *r != last).unwrap_or(u32::MAX));
    assert!(answers.iter().copied().eq(right));
    assert!(answers.contains(&u32::MAX));
}

#[test]
fn traces_are_as_asked_for() {
    let Some((rules, _)) = load("acl1_1k") else { return };
    for how in "UCPZX".chars().filter_map(trace::Draw::from_letter) {
        let trace = trace::draw(&rules, how, 1000);
        assert_eq!(trace.len(), 1000);
        assert_eq!(trace, trace::draw(&rules, how, 1000));
        if how != trace::Draw::Cross {
            assert!(trace.iter().all(|h| rules.iter().any(|r| r.matches(h))));
        }
    }
}

/// The golden results hold for the same rules and headers in IPv6, at whatever position of the 32 bits.
#[test]
fn the_same_in_ipv6() {
    use bartizan_classify::{FlatV6, HeaderRule, Net};
    use std::net::{IpAddr, Ipv6Addr};
    for set in ["acl1_1k", "fw1_1k", "ipc1_10k"] {
        let Some((rules, golden)) = load(set) else { continue };
        // Below 2001:db8::/32, across the middle of the address, at its end.
        for before in [32u8, 48, 96] {
            let place = |address: IpAddr| match address {
                IpAddr::V4(v4) => {
                    let top = 0x2001_0db8_0000_0000_0000_0001_u128 << 32;
                    let kept =
                        if before == 32 { top >> 96 << 96 } else { top >> (128 - before) << (128 - before) };
                    Ipv6Addr::from(kept | u128::from(u32::from(v4)) << (96 - before))
                }
                IpAddr::V6(v6) => v6,
            };
            let net = |n: Net| Net { address: place(n.address).into(), length: n.length + before };
            let six = |r: &HeaderRule| HeaderRule {
                source: r.source.map(net),
                destination: r.destination.map(net),
                ..*r
            };
            let rules: Vec<HeaderRule> = rules.iter().map(six).collect();
            let headers: Vec<FlatV6> = golden
                .iter()
                .map(|(h, _)| {
                    let (source, destination) = (place(h.source).into(), place(h.destination).into());
                    match Flat::new(&bartizan_classify::Header { source, destination, ..*h }) {
                        Some(Flat::V6(flat)) => flat,
                        _ => panic!("IPv6"),
                    }
                })
                .collect();
            let mut compiled = Compiled::new(&[rules], Options { budget: 64 << 20, fast: true });
            for level in [InstructionSet::Avx512, InstructionSet::Portable] {
                compiled.set_level(level);
                let mut answers = vec![0; headers.len()];
                compiled.lookup_v6(&headers, &mut answers);
                let right = golden.iter().map(|(_, r)| r.unwrap_or(u32::MAX));
                assert_eq!(
                    right.zip(&answers).filter(|(r, a)| r != *a).count(),
                    0,
                    "{set} {before} {level:?}"
                );
            }
        }
    }
}
