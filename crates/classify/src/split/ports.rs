// SPDX-License-Identifier: Apache-2.0
//! The fields besides the addresses: ports, protocol, tenant, link.
//!
//! Rule sets use few different combinations of these, so each value has a class in its field, and each
//! combination of classes the set of rule combinations that it satisfies.

use crate::header::{HeaderRule, Range};
use bartizan_base::at::IndexOrDefault;
use foldhash::fast::FixedState;
use std::collections::{HashMap, HashSet};

/// The conditions of a rule on everything but the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Combination {
    pub source_ports: (u16, u16),
    pub destination_ports: (u16, u16),
    pub protocol: (u8, u8),
    pub tenant: (u16, u16),
    pub link: (u8, u8),
}

impl Combination {
    /// The combination of a rule; `None` if no flat header can match: an empty range, a link beyond 8 bits.
    pub fn new(rule: &HeaderRule) -> Option<Self> {
        let ports = |range: Range| (range.first <= range.last).then_some((range.first, range.last));
        let link = match rule.link {
            Some(link) => {
                let link = u8::try_from(link.0).ok()?;
                (link, link)
            }
            None => (0, u8::MAX),
        };
        Some(Combination {
            source_ports: ports(rule.source_ports)?,
            destination_ports: ports(rule.destination_ports)?,
            protocol: rule.protocol.map_or((0, u8::MAX), |p| (p, p)),
            tenant: rule.tenant.map_or((0, u16::MAX), |t| (t.0, t.0)),
            link,
        })
    }

    /// The single tenant of the combination, if it has one.
    pub fn one_tenant(&self) -> Option<u16> {
        (self.tenant.0 == self.tenant.1).then_some(self.tenant.0)
    }

    /// Whether every header that satisfies `other` satisfies this.
    pub fn covers(&self, other: &Combination) -> bool {
        fn wider<T: PartialOrd>(a: (T, T), b: (T, T)) -> bool {
            a.0 <= b.0 && b.1 <= a.1
        }
        wider(self.source_ports, other.source_ports)
            && wider(self.destination_ports, other.destination_ports)
            && wider(self.protocol, other.protocol)
            && wider(self.tenant, other.tenant)
            && wider(self.link, other.link)
    }
}

/// A set of combinations.
pub(crate) type Bits = Vec<u64>;

pub(crate) fn has(bits: &[u64], bit: u32) -> bool {
    bits.at(bit as usize / 64) >> (bit % 64) & 1 == 1
}

/// The classes of one field.
#[derive(Clone, Debug)]
pub(crate) struct FieldClasses {
    /// Class of each value.
    pub of: Vec<u16>,
    /// The combinations that each class satisfies in this field.
    pub sets: Vec<Bits>,
}

impl FieldClasses {
    fn new(ranges: &[(u32, u32)], values: u32) -> Self {
        let mut starts: Vec<u32> = ranges.iter().flat_map(|r| [r.0, r.1 + 1]).chain([0]).collect();
        starts.sort_unstable();
        starts.dedup();
        starts.retain(|s| *s < values);
        let words = ranges.len().div_ceil(64);
        let mut of = Vec::with_capacity(values as usize);
        let mut numbers: HashMap<Bits, u16, FixedState> = HashMap::default();
        let mut sets = Vec::new();
        for (index, start) in starts.iter().enumerate() {
            let end = starts.get(index + 1).copied().unwrap_or(values);
            let mut bits = vec![0u64; words];
            for (bit, range) in ranges.iter().enumerate() {
                if range.0 <= *start
                    && *start <= range.1
                    && let Some(word) = bits.get_mut(bit / 64)
                {
                    *word |= 1 << (bit % 64);
                }
            }
            let next = sets.len() as u16;
            let class = *numbers.entry(bits).or_insert_with_key(|bits| {
                sets.push(bits.clone());
                next
            });
            of.resize(end as usize, class);
        }
        FieldClasses { of, sets }
    }

    pub fn count(&self) -> usize {
        self.sets.len()
    }
}

/// The combinations of all rules, and the sets of them that headers satisfy.
#[derive(Clone, Debug)]
pub(crate) struct CombinationSets {
    /// Source port, destination port, protocol, tenant, link.
    pub fields: [FieldClasses; 5],
    /// For each combination of classes (the last field varies fastest) its number in `kinds`.
    pub kind: Vec<u32>,
    /// The different sets of combinations that headers can satisfy.
    pub kinds: Vec<Bits>,
}

/// The ranges of each field.
fn ranges(combinations: &[Combination]) -> [Vec<(u32, u32)>; 5] {
    let of = |f: &dyn Fn(&Combination) -> (u32, u32)| combinations.iter().map(f).collect();
    [
        of(&|c| (c.source_ports.0.into(), c.source_ports.1.into())),
        of(&|c| (c.destination_ports.0.into(), c.destination_ports.1.into())),
        of(&|c| (c.protocol.0.into(), c.protocol.1.into())),
        of(&|c| (c.tenant.0.into(), c.tenant.1.into())),
        of(&|c| (c.link.0.into(), c.link.1.into())),
    ]
}

/// The number of values of each field.
const VALUES: [u32; 5] = [1 << 16, 1 << 16, 1 << 8, 1 << 16, 1 << 8];

impl CombinationSets {
    /// The number of cells of the table of `combinations`.
    pub fn cells(combinations: &[Combination]) -> u64 {
        let fields = ranges(combinations).into_iter().zip(VALUES);
        fields.map(|(ranges, values)| count_classes(&ranges, values)).fold(1, u64::saturating_mul)
    }

    pub fn new(combinations: &[Combination]) -> Self {
        let mut lists = ranges(combinations).into_iter().zip(VALUES);
        let fields: [FieldClasses; 5] = std::array::from_fn(|_| {
            let (ranges, values) = lists.next().unwrap_or_default();
            FieldClasses::new(&ranges, values)
        });
        let mut ports = CombinationSets { fields, kind: Vec::new(), kinds: Vec::new() };
        let mut numbers: HashMap<Bits, u32, FixedState> = HashMap::default();
        let everything = vec![u64::MAX; combinations.len().div_ceil(64)];
        let mut kind = Vec::new();
        let mut kinds = Vec::new();
        fill(&ports.fields, &everything, &mut |bits| {
            let number = match numbers.get(bits) {
                Some(number) => *number,
                None => {
                    numbers.insert(bits.to_vec(), kinds.len() as u32);
                    kinds.push(bits.to_vec());
                    kinds.len() as u32 - 1
                }
            };
            kind.push(number);
        });
        (ports.kind, ports.kinds) = (kind, kinds);
        ports
    }
}

/// The number of classes of a field. The ranges that contain a value are identified by the sum of a random
/// number for each of them: two different sums are two classes, and equal sums of different sets
/// practically do not happen (2^-38 for 8,192 classes); then the table would only be a little larger.
fn count_classes(ranges: &[(u32, u32)], values: u32) -> u64 {
    let mut changes = vec![(0, 0)];
    for (number, (first, last)) in (1u64..).zip(ranges) {
        // splitmix64 (Steele, Lea, Flood: OOPSLA 2014).
        let mut id = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        id = (id ^ id >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        id = (id ^ id >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        id ^= id >> 31;
        changes.extend([(*first, id), (last + 1, id.wrapping_neg())]);
    }
    changes.sort_unstable();
    let mut sum = 0u64;
    let mut sums = HashSet::new();
    for at in changes.chunk_by(|a, b| a.0 == b.0) {
        sum = at.iter().fold(sum, |sum, (_, id)| sum.wrapping_add(*id));
        if at.first().is_some_and(|(start, _)| *start < values) {
            sums.insert(sum);
        }
    }
    sums.len() as u64
}

/// Calls `each` with the combinations that every combination of classes satisfies.
fn fill(fields: &[FieldClasses], so_far: &[u64], each: &mut impl FnMut(&[u64])) {
    let Some((first, rest)) = fields.split_first() else {
        return each(so_far);
    };
    let mut bits = vec![0; so_far.len()];
    for set in &first.sets {
        for ((bit, a), b) in bits.iter_mut().zip(so_far).zip(set) {
            *bit = a & b;
        }
        fill(rest, &bits, each);
    }
}
