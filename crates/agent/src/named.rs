// SPDX-License-Identifier: Apache-2.0
//! A classifier for rule sets in which some rules have conditions on DNS names of addresses.
//!
//! A classifier matches headers, which do not contain the current names of their addresses. Rules with names
//! are therefore in a second classifier, in which the link field holds a number for the conditions beyond the
//! header: names of source and destination, and the link. A header is looked up there once for each number
//! whose conditions hold, which is none for addresses without names. The lowest rule of all lookups is the
//! result, as with one list of all rules. When an address gets or loses a name, nothing is compiled and
//! nothing grows.

use bartizan_base::LinkId;
use bartizan_classify::list::Placed;
use bartizan_classify::{
    Auto, Chosen, Header, HeaderNames, InsertError, Layered, List, Match, NameId, RankedRule, SETS_MAX,
};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// A rule's conditions beyond the header's fields: link, source name, destination name.
type Asks = (Option<LinkId>, Option<NameId>, Option<NameId>);

/// The rules with names.
#[derive(Debug)]
struct DnsNamedRules {
    classifier: Chosen,
    numbers: HashMap<Asks, LinkId>,
    /// The conditions that each number stands for.
    asks: HashMap<LinkId, Asks>,
}

/// A classifier for rules with and without names; see the module.
#[derive(Debug)]
pub(crate) struct NamedClassifier {
    plain: Chosen,
    named: Option<DnsNamedRules>,
    /// Whether both classifiers keep to the budget without long linear searches.
    pub(crate) fits: bool,
}

impl NamedClassifier {
    /// Builds a classifier from rule sets, each in order. Tables take about `budget` bytes, twice that if
    /// rules have names. `before`: the classifier of the previous generation, whose tables are shared where
    /// possible.
    ///
    /// # Errors
    /// The tables cannot be built.
    pub(crate) fn new(
        before: Option<&NamedClassifier>,
        lists: Vec<List>,
        budget: usize,
    ) -> Result<Self, InsertError> {
        let before_plain = before.map(|before| &before.plain);
        if !lists.iter().any(List::is_named) {
            let plain = Auto::after(before_plain, lists, budget)?;
            let fits = plain.fits;
            return Ok(NamedClassifier { plain, named: None, fits });
        }
        let before = before.and_then(|before| before.named.as_ref());
        let numbers = numbers(before, &lists)?;
        let (mut plain, mut named) = (Vec::new(), Vec::new());
        for list in &lists {
            plain.push(without_names(list));
            let is_named = |entry: &RankedRule| entry.rule.is_named();
            named.push(
                list.iter().filter(is_named).filter_map(|entry| as_numbered(entry, &numbers)).collect(),
            );
        }
        let asks = numbers.iter().map(|(asks, number)| (*number, *asks)).collect();
        let plain = Auto::after(before_plain, plain, budget)?;
        let classifier = Auto::after(before.map(|before| &before.classifier), named, budget)?;
        let fits = plain.fits && classifier.fits;
        Ok(NamedClassifier { plain, named: Some(DnsNamedRules { classifier, numbers, asks }), fits })
    }

    /// Whether it was made of one rule set with these entries.
    pub(crate) fn is_of(&self, entries: &List) -> bool {
        matches!(self.all_entries().as_slice(), [own] if own.iter().copied().eq(entries.iter()))
    }

    /// The tables that other classifiers may share.
    pub(crate) fn layers(&self) -> impl Iterator<Item = &Arc<Layered>> {
        [Some(&self.plain), self.named.as_ref().map(|named| &named.classifier)]
            .into_iter()
            .flatten()
            .filter_map(Chosen::layered)
    }

    /// Looks up a header whose addresses have these names.
    pub(crate) fn lookup(&self, header: &Header, names: &HeaderNames, results: &mut [Option<Match>]) {
        self.plain.lookup(header, results);
        if let Some(named) = self.named.as_ref().filter(|_| !names.is_empty()) {
            named.lookup(header, names, results);
        }
    }

    /// All entries, each set in its original order.
    pub(crate) fn all_entries(&self) -> Vec<Vec<RankedRule>> {
        let mut sets = self.plain.all_entries();
        let Some(named) = &self.named else { return sets };
        for (set, more) in sets.iter_mut().zip(named.classifier.all_entries()) {
            set.extend(more.into_iter().map(|entry| named.as_given(entry)));
            set.sort_by_key(|entry| entry.priority);
        }
        sets
    }
}

/// Numbers for all conditions of rules; those that had a number keep it.
fn numbers(before: Option<&DnsNamedRules>, lists: &[List]) -> Result<HashMap<Asks, LinkId>, InsertError> {
    let mut numbers = HashMap::new();
    let mut new = Vec::new();
    let mut seen = HashSet::new();
    let pieces = lists.iter().flat_map(|list| list.pieces()).filter(|placed| placed.piece.is_named());
    for rule in pieces.flat_map(|placed| placed.piece.rules()).filter(|rule| rule.is_named()) {
        let asks = (rule.link, rule.source_name, rule.destination_name);
        if !seen.insert(asks) {
            continue;
        }
        match before.and_then(|before| before.numbers.get(&asks)) {
            Some(number) => drop(numbers.insert(asks, *number)),
            None => new.push(asks),
        }
    }
    let taken: BTreeSet<LinkId> = numbers.values().copied().collect();
    let mut free = (0..u16::MAX).map(LinkId).filter(|number| !taken.contains(number));
    for asks in new {
        numbers.insert(asks, free.next().ok_or(InsertError::Names(seen.len()))?);
    }
    Ok(numbers)
}

/// A list without rules that have names. Pieces without such rules are shared.
fn without_names(list: &List) -> List {
    let without = |placed: &Placed| match placed.piece.is_named() {
        false => placed.clone(),
        true => placed.only(|rule| !rule.is_named()),
    };
    List::new(list.pieces().iter().map(without).collect())
}

/// Replaces the names of a rule by their number in the link field.
fn as_numbered(mut entry: RankedRule, numbers: &HashMap<Asks, LinkId>) -> Option<RankedRule> {
    let asks = (entry.rule.link, entry.rule.source_name, entry.rule.destination_name);
    entry.rule.link = Some(*numbers.get(&asks)?);
    (entry.rule.source_name, entry.rule.destination_name) = (None, None);
    Some(entry)
}

impl DnsNamedRules {
    fn as_given(&self, mut entry: RankedRule) -> RankedRule {
        let asks = entry.rule.link.and_then(|number| self.asks.get(&number));
        if let Some((link, source, destination)) = asks {
            entry.rule.link = *link;
            (entry.rule.source_name, entry.rule.destination_name) = (*source, *destination);
        }
        entry
    }

    fn lookup(&self, header: &Header, names: &HeaderNames, results: &mut [Option<Match>]) {
        let or_none = |ids: &[NameId]| -> Vec<Option<NameId>> {
            core::iter::once(None).chain(ids.iter().copied().map(Some)).collect()
        };
        let destinations = or_none(&names.destination);
        for source in or_none(&names.source) {
            for destination in &destinations {
                for link in [None, Some(header.link)] {
                    let Some(number) = self.numbers.get(&(link, source, *destination)) else { continue };
                    self.add(&Header { link: *number, ..*header }, results);
                }
            }
        }
    }

    /// Looks a header up again; of two matches of a set, the first in order stays.
    fn add(&self, header: &Header, results: &mut [Option<Match>]) {
        let mut found = [None; SETS_MAX as usize];
        let sets = results.len().min(found.len());
        self.classifier.lookup(header, found.get_mut(..sets).unwrap_or_default());
        for (result, found) in results.iter_mut().zip(found) {
            if let Some(found) = found
                && result.is_none_or(|known| found.priority < known.priority)
            {
                *result = Some(found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_base::{Fid, TenantId};
    use bartizan_classify::{HeaderRule, NameTable, Net, Range};
    use core::net::{IpAddr, Ipv4Addr};
    use proptest::prelude::*;

    fn address(number: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))
    }

    /// A rule of small fields, so that rules overlap.
    fn rule(ids: &[NameId], n: (u8, u8, u8, u8, u8, u8)) -> HeaderRule {
        let net = |n: u8| (n < 4).then(|| Net { address: address(n & 2), length: 31 });
        let name = |n: u8| ids.get(usize::from(n)).copied();
        HeaderRule {
            link: (n.0 < 2).then_some(LinkId(u16::from(n.0))),
            source: net(n.1),
            destination: net(n.2),
            destination_ports: if n.3 < 2 { Range::one(u16::from(n.3)) } else { Range::ANY },
            source_name: name(n.4),
            destination_name: name(n.5),
            ..HeaderRule::default()
        }
    }

    proptest! {
        /// With and without names, two sets, any links: the result is that of a linear search.
        #[test]
        fn the_same_as_one_list(
            rules in proptest::collection::vec((0u8..4, 0u8..8, 0u8..8, 0u8..4, 0u8..6, 0u8..6), 1..60),
            headers in proptest::collection::vec((0u16..3, 0u8..5, 0u8..5, 0u16..3, 0u8..8, 0u8..8), 1..40),
        ) {
            let lease = Arc::new(NameTable::default()).lease(["a", "b", "c"]).unwrap();
            let ids: Vec<NameId> = ["a", "b", "c"].iter().filter_map(|n| lease.id(n)).collect();
            let mut sets = vec![Vec::new(), Vec::new()];
            for (place, n) in rules.into_iter().enumerate() {
                let number = place as u32;
                sets[place % 2].push(RankedRule { fid: Fid(number), priority: number, rule: rule(&ids, n) });
            }
            let lists = |sets: &[Vec<RankedRule>]| -> Vec<List> {
                sets.iter().map(|set| set.iter().copied().collect()).collect()
            };
            // Built after a classifier with some of the rules, whose conditions have numbers already.
            let some: Vec<Vec<RankedRule>> = sets.iter().map(|set| set.iter().step_by(2).copied().collect()).collect();
            let before = NamedClassifier::new(None, lists(&some), 1 << 20).unwrap();
            let classifier = NamedClassifier::new(Some(&before), lists(&sets), 1 << 20).unwrap();
            prop_assert_eq!(&classifier.all_entries(), &sets);
            let of = |mask: u8| ids.iter().enumerate().filter(|(n, _)| mask & 1 << n != 0).map(|(_, id)| *id).collect();
            for (link, source, destination, port, a, b) in headers {
                let header = Header {
                    tenant: TenantId(0),
                    link: LinkId(link),
                    source: address(source),
                    destination: address(destination),
                    protocol: 6,
                    source_port: 9,
                    destination_port: port,
                };
                let names = HeaderNames { source: of(a), destination: of(b) };
                let mut found = [None; 2];
                classifier.lookup(&header, &names, &mut found);
                for (set, found) in sets.iter().zip(found) {
                    let want = set.iter().find(|e| e.rule.matches_named(&header, &names)).map(|e| e.fid);
                    prop_assert_eq!(found.map(|m| m.fid), want);
                }
            }
        }
    }
}
