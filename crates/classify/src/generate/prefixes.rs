// SPDX-License-Identifier: Apache-2.0
//! The branching of prefixes along their trie: measured, and prefixes drawn that branch alike.
//!
//! The prefixes below a node of the trie pass through it. For each node with two or more of them, the share
//! of the prefixes of each length that takes either branch is measured. A drawn node branches like one
//! measured at its depth with the same most frequent length and about as many prefixes. Thus the number of
//! distinct prefixes, their nesting by length, and its depth, follow the measured set.

use crate::trace::Random;
use std::collections::BTreeMap;

/// The most that the numbers of prefixes of two similar measured nodes may differ, as a factor.
const ALIKE: usize = 2;

/// Leading bits of an address, from the most significant bit of the number on, as many as its length.
#[derive(Clone, Copy, Debug)]
pub(super) struct SyntheticPrefix {
    pub bits: u128,
    pub length: u8,
}

/// The kind of the drawn addresses, and the mapping of measured lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PrefixMapping {
    /// Lengths stay as they are.
    Same,
    /// IPv6 from IPv4: /8 becomes /32 (a provider), /16 /48 (a site), /24 /64 (a network), /32 /128 (a host).
    Widened,
}

/// The leading bits of all global unicast addresses of IPv6, and their number.
const GLOBAL: (u128, u8) = (0b001 << 125, 3);

impl PrefixMapping {
    pub fn length(self, length: u8) -> u8 {
        match (self, length) {
            (PrefixMapping::Same, _) | (_, 0) => length,
            (PrefixMapping::Widened, 1..=24) => 16 + 2 * length,
            (PrefixMapping::Widened, _) => 64 + 8 * (length.min(32) - 24),
        }
    }
}

/// The branching of the prefixes of a node.
#[derive(Clone, Debug)]
struct PrefixNode {
    /// The length that most of its prefixes have.
    main: u8,
    prefixes: usize,
    /// The share of prefixes that take the branch of ones.
    share: f64,
    /// That share for each length.
    shares: Vec<(u8, f64)>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Splits {
    /// Measured nodes by depth, each level sorted by most frequent length and number of prefixes.
    levels: Vec<Vec<PrefixNode>>,
}

/// The number of prefixes of each length.
fn count(lengths: impl Iterator<Item = u8>) -> BTreeMap<u8, usize> {
    lengths.fold(BTreeMap::new(), |mut counts, length| {
        *counts.entry(length).or_default() += 1;
        counts
    })
}

/// The most frequent length.
fn main_of(counts: &BTreeMap<u8, usize>) -> u8 {
    counts.iter().max_by_key(|(_, count)| **count).map_or(0, |(length, _)| *length)
}

/// Bits at positions `from..to`, counted from the most significant.
fn between(bits: u128, from: u8, to: u8) -> u128 {
    let below = |place: u8| u128::MAX.checked_shr(u32::from(place)).unwrap_or(0);
    bits & below(from) & !below(to)
}

fn random_bits(random: &mut Random) -> u128 {
    u128::from(random.bits()) << 64 | u128::from(random.bits())
}

impl Splits {
    pub fn measure(prefixes: Vec<SyntheticPrefix>) -> Self {
        let longest = prefixes.iter().map(|p| usize::from(p.length)).max().unwrap_or(0);
        let mut levels: Vec<Vec<PrefixNode>> = vec![Vec::new(); longest];
        let mut nodes = vec![(0u8, prefixes)];
        while let Some((level, prefixes)) = nodes.pop() {
            let below = prefixes.into_iter().filter(|p| p.length > level);
            let (zeros, ones): (Vec<_>, Vec<_>) = below.partition(|p| between(p.bits, level, level + 1) == 0);
            let total = zeros.len() + ones.len();
            if total < 2 {
                continue;
            }
            let all = count(zeros.iter().chain(&ones).map(|p| p.length));
            let taken = count(ones.iter().map(|p| p.length));
            let share = |(length, of): (&u8, &usize)| {
                (*length, taken.get(length).copied().unwrap_or(0) as f64 / *of as f64)
            };
            if let Some(nodes) = levels.get_mut(usize::from(level)) {
                nodes.push(PrefixNode {
                    main: main_of(&all),
                    prefixes: total,
                    share: ones.len() as f64 / total as f64,
                    shares: all.iter().map(share).collect(),
                });
            }
            nodes.extend([zeros, ones].into_iter().filter(|n| n.len() > 1).map(|n| (level + 1, n)));
        }
        levels.iter_mut().for_each(|nodes| nodes.sort_by_key(|n| (n.main, n.prefixes)));
        Splits { levels }
    }

    /// A measured node similar to one with so many prefixes of each length.
    fn like(&self, level: u8, counts: &BTreeMap<u8, usize>, random: &mut Random) -> Option<&PrefixNode> {
        let nodes = self.levels.get(usize::from(level))?;
        let (main, prefixes) = (main_of(counts), counts.values().sum::<usize>());
        // Among the nodes with this length, or else among all.
        let from = nodes.partition_point(|n| n.main < main);
        let to = nodes.partition_point(|n| n.main <= main);
        let nodes = nodes.get(from..to).filter(|n| !n.is_empty()).unwrap_or(nodes);
        let ratio = |n: &PrefixNode| n.prefixes.max(prefixes) as f64 / n.prefixes.min(prefixes).max(1) as f64;
        let nearest = nodes.iter().min_by(|a, b| ratio(a).total_cmp(&ratio(b)))?.prefixes;
        let alike = nodes.iter().filter(|n| n.prefixes.max(nearest) <= ALIKE * n.prefixes.min(nearest));
        // Among those, the nodes with the most statistics about these lengths.
        let said =
            |n: &PrefixNode| n.shares.iter().filter_map(|(length, _)| counts.get(length)).sum::<usize>();
        let (mut most, mut best) = (0, Vec::new());
        for node in alike {
            let said = said(node);
            if said > most {
                (most, best) = (said, Vec::new());
            }
            if said == most {
                best.push(node);
            }
        }
        best.get(random.below(best.len())).copied()
    }

    /// Draws an address for each of the measured lengths; bits after the length in `form` are zero.
    pub fn draw(&self, lengths: &[u8], form: PrefixMapping, random: &mut Random) -> Vec<u128> {
        let mut out = vec![0u128; lengths.len()];
        let length = &|member: &u32| lengths.get(*member as usize).copied().unwrap_or(0);
        let mut nodes = vec![(0u8, 0u128, (0..lengths.len() as u32).collect::<Vec<_>>())];
        while let Some((level, bits, mut members)) = nodes.pop() {
            members.retain(|member| {
                if length(member) <= level
                    && let Some(place) = out.get_mut(*member as usize)
                {
                    *place = bits;
                }
                length(member) > level
            });
            if let [member] = members.as_slice() {
                let rest = between(random_bits(random), form.length(level), form.length(length(member)));
                if let Some(place) = out.get_mut(*member as usize) {
                    *place = bits | rest;
                }
                continue;
            }
            if members.is_empty() {
                continue;
            }
            let others = self.part(level, &mut members, length, random);
            let (from, to) = (form.length(level), form.length(level + 1));
            let common = bits | between(random_bits(random), from, to);
            if others.is_empty() {
                nodes.push((level + 1, common, members));
                continue;
            }
            // The first bit that differs; where one measured bit became several, each branch draws the bits
            // after it separately.
            let first = if form == PrefixMapping::Widened { from.max(GLOBAL.1) } else { from };
            let at = first + random.below(usize::from(to - first)) as u8;
            let other = between(common ^ u128::MAX, at, at + 1) | between(random_bits(random), at + 1, to);
            nodes.push((level + 1, between(common, 0, at) | other, others));
            if !members.is_empty() {
                nodes.push((level + 1, common, members));
            }
        }
        if form == PrefixMapping::Widened {
            for (place, length) in out.iter_mut().zip(lengths).filter(|(_, length)| **length > 0) {
                *place = between(*place, GLOBAL.1, form.length(*length)) | GLOBAL.0;
            }
        }
        out
    }

    /// Removes the members of a node that take the other branch than those that stay.
    fn part(
        &self,
        level: u8,
        members: &mut Vec<u32>,
        length: &impl Fn(&u32) -> u8,
        random: &mut Random,
    ) -> Vec<u32> {
        let counts = count(members.iter().map(length));
        let like = self.like(level, &counts, random);
        let mut left: Vec<(u8, usize)> = Vec::new();
        for (of, count) in counts {
            let share = like.map_or(0.5, |node| {
                node.shares.iter().find(|(length, _)| *length == of).map_or(node.share, |(_, share)| *share)
            });
            // Rounded at random.
            left.push((of, (share * count as f64 + random.unit()) as usize));
        }
        let all = members.len();
        shuffle(members, all, random);
        members
            .extract_if(.., |member| {
                let of = length(member);
                let left = left.iter_mut().find(|(length, left)| *length == of && *left > 0);
                left.is_some_and(|(_, left)| {
                    *left -= 1;
                    true
                })
            })
            .collect()
    }
}

/// Moves a random choice of `front` elements to the front.
pub(super) fn shuffle<T>(list: &mut [T], front: usize, random: &mut Random) {
    for place in 0..front.min(list.len()) {
        list.swap(place, place + random.below(list.len() - place));
    }
}
