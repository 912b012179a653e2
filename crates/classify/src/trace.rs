// SPDX-License-Identifier: Apache-2.0
//! Header traces drawn from a rule set, seeded: the same letter and rules give the same trace.
//!
//! The random source is splitmix64 (Steele, Lea, Flood: OOPSLA 2014), seeded with 0x5eed0000 + the letter.
//! `Pareto` follows ClassBench's trace generator. Rules of both IP versions are drawn; a rule without
//! addresses gives IPv4.

use crate::header::{Header, HeaderRule, Net, Range};
use bartizan_base::{LinkId, TenantId};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The distribution that headers are drawn by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// `U`: a rule, and a point inside it, both uniformly.
    Uniform,
    /// `C`: a random corner of a rule.
    Corner,
    /// `P`: a random corner, repeated by Pareto's law (a = 1, b = 0.1).
    Pareto,
    /// `Z`: Zipf's law (exponent 1) over a pool of ten headers a rule.
    Zipf,
    /// `X`: source from one rule, destination from a second, ports and protocol from a third.
    Cross,
}

impl Draw {
    /// The letter of the distribution.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Draw::Uniform => 'U',
            Draw::Corner => 'C',
            Draw::Pareto => 'P',
            Draw::Zipf => 'Z',
            Draw::Cross => 'X',
        }
    }

    /// The distribution of a letter.
    #[must_use]
    pub const fn from_letter(letter: char) -> Option<Self> {
        Some(match letter {
            'U' => Draw::Uniform,
            'C' => Draw::Corner,
            'P' => Draw::Pareto,
            'Z' => Draw::Zipf,
            'X' => Draw::Cross,
            _ => return None,
        })
    }
}

/// splitmix64.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.bits()) * end as u128) >> 64) as usize
    }

    /// A number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A trace of `count` headers; empty if there are no rules.
#[must_use]
pub fn draw(rules: &[HeaderRule], how: Draw, count: usize) -> Vec<Header> {
    draw_seeded(rules, how, count, 0x5eed_0000 + how.letter() as u64)
}

/// As [`draw`], from another seed.
#[must_use]
pub fn draw_seeded(rules: &[HeaderRule], how: Draw, count: usize, seed: u64) -> Vec<Header> {
    let mut random = Random(seed);
    let mut trace = Vec::with_capacity(count);
    if how == Draw::Zipf {
        return zipf(rules, count, &mut random);
    }
    while trace.len() < count {
        let Some(rule) = rules.get(random.below(rules.len())) else { break };
        match how {
            Draw::Uniform | Draw::Zipf => trace.push(inside(rule, &mut random)),
            Draw::Corner => trace.push(corner(rule, &mut random)),
            Draw::Pareto => {
                let header = corner(rule, &mut random);
                let times = (0.1 / (1.0 - random.unit())).ceil() as usize;
                trace.extend(std::iter::repeat_n(header, times.clamp(1, count - trace.len())));
            }
            Draw::Cross => {
                let mut header = inside(rule, &mut random);
                if let Some(second) = rules.get(random.below(rules.len())) {
                    let other = inside(second, &mut random);
                    if other.destination.is_ipv4() == header.source.is_ipv4() {
                        header.destination = other.destination;
                    }
                }
                if let Some(third) = rules.get(random.below(rules.len())) {
                    let other = inside(third, &mut random);
                    (header.source_port, header.destination_port) =
                        (other.source_port, other.destination_port);
                    header.protocol = other.protocol;
                }
                trace.push(header);
            }
        }
    }
    trace
}

fn zipf(rules: &[HeaderRule], count: usize, random: &mut Random) -> Vec<Header> {
    let mut pool: Vec<Header> =
        rules.iter().flat_map(|r| (0..10).map(move |_| r)).map(|r| inside(r, random)).collect();
    // Shuffled, so that rank and rule are independent.
    for i in (1..pool.len()).rev() {
        let j = random.below(i + 1);
        pool.swap(i, j);
    }
    let mut sums = Vec::with_capacity(pool.len());
    let mut sum = 0.0;
    for rank in 1..=pool.len() {
        sum += 1.0 / rank as f64;
        sums.push(sum);
    }
    let mut one = || {
        let at = random.unit() * sum;
        pool.get(sums.partition_point(|s| *s <= at)).or(pool.last()).copied()
    };
    std::iter::from_fn(&mut one).take(count).collect()
}

fn is_v6(rule: &HeaderRule) -> bool {
    [rule.source, rule.destination].into_iter().flatten().any(|n| !n.address.is_ipv4())
}

fn address(net: Option<Net>, v6: bool, bits: u128) -> IpAddr {
    let any = if v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
    let (version, first, last) = net.unwrap_or(Net { address: any, length: 0 }).range();
    let number = first | bits & (last ^ first);
    if version { IpAddr::V6(number.into()) } else { IpAddr::V4(Ipv4Addr::from(number as u32)) }
}

fn point(rule: &HeaderRule, random: &mut Random, corner: bool) -> Header {
    let mut bits = || match corner {
        true if random.bits() & 1 == 0 => 0,
        true => u128::MAX,
        false => u128::from(random.bits()) << 64 | u128::from(random.bits()),
    };
    let v6 = is_v6(rule);
    let (source, destination) = (address(rule.source, v6, bits()), address(rule.destination, v6, bits()));
    let mut port = |range: Range| match corner {
        true if random.bits() & 1 == 0 => range.first,
        true => range.last,
        false => range.first + random.below(usize::from(range.last - range.first) + 1) as u16,
    };
    let (source_port, destination_port) = (port(rule.source_ports), port(rule.destination_ports));
    let protocol = rule.protocol.unwrap_or_else(|| match random.below(4) {
        1 => 17,
        3 => 1,
        _ => 6,
    });
    Header {
        tenant: rule.tenant.unwrap_or(TenantId(0)),
        link: rule.link.unwrap_or(LinkId(0)),
        source,
        destination,
        protocol,
        source_port,
        destination_port,
    }
}

/// A uniformly random header that the rule matches.
#[must_use]
pub fn inside(rule: &HeaderRule, random: &mut Random) -> Header {
    point(rule, random, false)
}

/// A random corner of the rule: each field at its first or last value.
#[must_use]
pub fn corner(rule: &HeaderRule, random: &mut Random) -> Header {
    point(rule, random, true)
}
