// SPDX-License-Identifier: Apache-2.0
//! Builds the search for rule heads by address: the heads it covers and their address ranges
//! ([`crate::model::addresses`]).

use crate::model::addresses::{ByAddress, EndpointRanges, HeadRanges, OfTenant};
use crate::model::heads::{Heads, RuleHead};
use bartizan_rules::{AddressSet, Bound, Ranges as SetRanges};
use std::collections::{BTreeSet, HashMap};

/// With fewer heads, two searches for each flow cost more than comparing the heads one by one.
pub(crate) const HEADS_MIN: usize = 32;
/// An address set that more heads name is left to the groups, which handle the few sets of this kind.
const NAMED_MAX: usize = 8;
/// A set with more than one in this many IPv4 addresses excludes too few flows.
const SHARE: u64 = 16;
/// Limit of heads, summed over all different lists. Beyond it, every flow is compared with each head.
pub(crate) const ENTRIES_MAX: usize = 1 << 22;

/// The end (source or destination) by whose address a head is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Source,
    Destination,
}

/// Builds the search by address for those of the `wanted` heads that have a small address set of their own.
pub(crate) fn build(heads: &Heads, wanted: &BTreeSet<u32>) -> ByAddress {
    let mut named: HashMap<&AddressSet, usize> = HashMap::new();
    for head in heads.common().iter().flatten() {
        for set in [&head.source, &head.destination].into_iter().flatten() {
            *named.entry(set).or_default() += 1;
        }
    }
    let is_small = |set: &AddressSet| {
        let addresses = set.v4.as_slice().iter().map(|(low, high)| u64::from(high - low) + 1).sum::<u64>();
        addresses <= (1 << 32) / SHARE && named.get(set).is_some_and(|count| *count <= NAMED_MAX)
    };
    let by = |head: &RuleHead| match (&head.source, &head.destination) {
        (Some(set), _) if is_small(set) => Some(By::Source),
        (_, Some(set)) if is_small(set) => Some(By::Destination),
        _ => None,
    };
    let get = |number: u32| heads.common().get(number as usize).and_then(Option::as_ref);
    let chosen: Vec<(u32, By)> =
        wanted.iter().filter_map(|number| Some((*number, by(get(*number)?)?))).collect();
    if chosen.len() < HEADS_MIN {
        return ByAddress::default();
    }
    let mut lists = Lists::default();
    let common = lists.of_tenant(&chosen, heads.common());
    let of_tenants = heads.tenants().map(|tenant| (tenant, lists.of_tenant(&chosen, heads.of(tenant))));
    let of_tenants = of_tenants.collect();
    if lists.entries > ENTRIES_MAX {
        return ByAddress::default();
    }
    let mut bits = vec![0u64; heads.len().div_ceil(64)];
    for (number, _) in &chosen {
        if let Some(word) = bits.get_mut((number / 64) as usize) {
            *word |= 1 << (number % 64);
        }
    }
    ByAddress { heads: bits, lists: lists.lists, common, of_tenants }
}

/// Different lists of heads, each once.
struct Lists {
    lists: Vec<Vec<u32>>,
    numbers: HashMap<Vec<u32>, u32>,
    /// Number of heads in all lists.
    entries: usize,
}

impl Default for Lists {
    fn default() -> Self {
        Self { lists: vec![Vec::new()], numbers: HashMap::from([(Vec::new(), 0)]), entries: 0 }
    }
}

impl Lists {
    fn number(&mut self, heads: &BTreeSet<u32>) -> u32 {
        let list: Vec<u32> = heads.iter().copied().collect();
        if let Some(number) = self.numbers.get(&list) {
            return *number;
        }
        let number = u32::try_from(self.lists.len()).unwrap_or(u32::MAX);
        self.entries = self.entries.saturating_add(list.len());
        self.lists.push(list.clone());
        self.numbers.insert(list, number);
        number
    }

    fn of_tenant(&mut self, chosen: &[(u32, By)], heads: &[Option<RuleHead>]) -> OfTenant {
        let mut end = |end: By| {
            let all = AddressSet::all();
            let mut sets: Vec<(u32, &AddressSet)> = Vec::new();
            for (number, by) in chosen {
                let Some(head) = heads.get(*number as usize).and_then(Option::as_ref) else { continue };
                let set = match by {
                    By::Source => &head.source,
                    By::Destination => &head.destination,
                };
                if *by == end || head.bidirectional {
                    // With a tenant's variables the set may contain any address.
                    sets.push((*number, set.as_deref().unwrap_or(&all)));
                }
            }
            let v4 = self.ranges(sets.iter().map(|(head, set)| (*head, &set.v4)));
            EndpointRanges { v4, v6: self.ranges(sets.iter().map(|(head, set)| (*head, &set.v6))) }
        };
        OfTenant { source: end(By::Source), destination: end(By::Destination) }
    }

    /// Cuts the addresses at the bounds of all sets.
    fn ranges<'s, T: Bound + 's>(
        &mut self,
        sets: impl Iterator<Item = (u32, &'s SetRanges<T>)>,
    ) -> HeadRanges<T> {
        // Addresses at which the set of a head begins or ends.
        let mut bounds: Vec<(T, u32, bool)> = Vec::new();
        for (head, set) in sets {
            for (low, high) in set.as_slice() {
                bounds.push((*low, head, true));
                bounds.extend(high.next().map(|behind| (behind, head, false)));
            }
        }
        bounds.sort_unstable();
        let mut ranges = HeadRanges { starts: Vec::new(), lists: Vec::new() };
        let mut here = BTreeSet::new();
        for at in bounds.chunk_by(|(one, ..), (other, ..)| one == other) {
            // Ranges of one set never touch, so no head begins and ends at the same address.
            for (_, head, begins) in at {
                if *begins {
                    here.insert(*head)
                } else {
                    here.remove(head)
                };
            }
            if self.entries > ENTRIES_MAX {
                break;
            }
            if let Some((start, ..)) = at.first() {
                ranges.starts.push(*start);
                ranges.lists.push(self.number(&here));
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ends::Ends;
    use bartizan_base::TenantId;
    use core::net::IpAddr;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn set(v4: &[(u32, u32)], v6: &[(u128, u128)]) -> Option<Arc<AddressSet>> {
        Some(Arc::new(AddressSet { v4: SetRanges::new(v4.to_vec()), v6: SetRanges::new(v6.to_vec()) }))
    }

    fn end() -> impl Strategy<Value = Vec<(u32, u32)>> {
        proptest::collection::vec((0u32..60, 0u32..6), 1..4)
            .prop_map(|list| list.into_iter().map(|(low, more)| (low, low + more)).collect())
    }

    fn heads() -> impl Strategy<Value = Vec<Option<RuleHead>>> {
        let head = (any::<bool>(), any::<bool>(), end(), end()).prop_map(|(source, both, a, b)| {
            let wide: Vec<(u128, u128)> = a.iter().map(|(l, h)| (u128::from(*l), u128::from(*h))).collect();
            let (a, b) = (set(&a, &wide), source.then(|| set(&b, &[])).flatten());
            let (source, destination) = if source { (a, b) } else { (None, a) };
            Some(RuleHead { source, destination, bidirectional: both, ..RuleHead::default() })
        });
        proptest::collection::vec(head, HEADS_MIN..HEADS_MIN + 20)
    }

    proptest! {
        /// The search misses no head that holds, also for tenants with variables of their own, and every head
        /// that it finds names the searched end.
        #[test]
        fn heads_that_hold_are_found(common in heads(), own in heads(), source in 0u32..70, destination in 0u32..70, six in any::<bool>()) {
            let own: Vec<_> = own.into_iter().chain(core::iter::repeat(None)).take(common.len()).collect();
            let heads = Heads { common, of_tenants: [(TenantId(7), own)].into() };
            let wanted: BTreeSet<u32> = (0..heads.len() as u32).collect();
            let found = build(&heads, &wanted);
            let address = |n: u32| if six { IpAddr::V6(u128::from(n).into()) } else { IpAddr::V4(n.into()) };
            let ends = Ends {
                source: Some((address(source), Some(1))),
                destination: Some((address(destination), Some(2))),
            };
            for tenant in [TenantId(0), TenantId(7)] {
                let lists = found.find(tenant, ends);
                for number in wanted.iter().filter(|n| found.has(**n)) {
                    let holds = heads.get(tenant, *number).is_some_and(|head| head.holds(ends));
                    let listed = lists.iter().any(|list| list.contains(number));
                    prop_assert!(!holds || listed, "{tenant:?} {number}");
                }
                prop_assert!(lists.iter().all(|list| list.is_sorted() && list.iter().all(|n| found.has(*n))));
            }
        }
    }

    #[test]
    fn what_many_heads_name_and_what_is_large_is_left_to_the_groups() {
        let own = |n: u32| RuleHead { source: set(&[(n * 10, n * 10 + 3)], &[]), ..RuleHead::default() };
        let shared = RuleHead { source: set(&[(7, 8)], &[]), ..RuleHead::default() };
        let large = RuleHead { destination: set(&[(0, 1 << 30)], &[]), ..RuleHead::default() };
        let mut common: Vec<Option<RuleHead>> = (100..100 + HEADS_MIN as u32).map(|n| Some(own(n))).collect();
        common.extend(vec![Some(shared); NAMED_MAX + 1]);
        common.push(Some(large));
        let heads = Heads { common, ..Heads::default() };
        let wanted: BTreeSet<u32> = (0..heads.len() as u32).collect();
        let found = build(&heads, &wanted);
        let chosen: Vec<u32> = wanted.iter().copied().filter(|n| found.has(*n)).collect();
        assert_eq!(chosen, (0..HEADS_MIN as u32).collect::<Vec<_>>());
        let from = |n: u32| Ends { source: Some((IpAddr::V4(n.into()), None)), destination: None };
        let by_source = |n| found.find(TenantId(0), from(n))[0].to_vec();
        assert_eq!(
            (by_source(1000), by_source(1003), by_source(1004), by_source(7)),
            (vec![0], vec![0], vec![], vec![])
        );
        assert!(!build(&heads, &wanted.into_iter().skip(1).collect()).has(5), "too few to be worth it");
    }
}
