// SPDX-License-Identifier: Apache-2.0
//! Decomposition with rules split by prefix length: the structure for large sets.
//!
//! Source: the field stage that all sets share is that of Qi et al., "Towards System-level Optimization for
//! High Performance Unified Threat Management" (IPP); aggregation tables per set, as in that paper, but
//! over groups of rules whose prefixes are alike in length, so that cross products stay near one cell per
//! rule (docs/design/0006-classification.md).
//!
//! Not done here: inserts and deletes (see `crate::live`); this is the compiled form of a set of rules.

mod aggregate;
pub(crate) mod displace;
mod field;
mod group;
mod plan;
mod pool;
mod portable;
mod ports;
mod prefix;
mod search;
mod tables;
// Gathers read without bounds checks; the argument is in the module.
#[allow(unsafe_code)]
mod vector;

pub(crate) use aggregate::NONE;
pub(crate) use portable::BLOCK;
pub use vector::InstructionSet;

use crate::flat::{FlatV4, FlatV6};
use crate::header::HeaderRule;
use aggregate::Aggregate;
use foldhash::fast::FixedState;
use group::{PrefixRule, SplitGroup};
use plan::{GroupPlan, GroupPlanInput};
use portable::FieldLeaves;
use ports::{Combination, CombinationSets};
use prefix::{AddressPrefix, Prefixes};
use std::collections::HashMap;
use tables::SplitTables;
use vector::Checked;

/// The most cells of the table of port classes.
pub(crate) const PORT_CELLS: u64 = 1 << 19;

/// Options of compilation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes that tables may take; rules beyond it are searched linearly.
    pub budget: usize,
    /// Whether to look for the fastest form (longer to build).
    pub fast: bool,
}

/// A rule that is in no table.
#[derive(Clone, Copy, Debug)]
struct RestRule {
    rank: u32,
    rule: HeaderRule,
}

/// The tables of one IP version.
#[derive(Clone, Debug)]
struct Half {
    tables: Checked,
    level: InstructionSet,
    /// For each set the rules that are searched linearly, in their order.
    rest: Vec<Vec<RestRule>>,
    summary: Vec<String>,
}

/// Compiled rule sets.
#[derive(Clone, Debug)]
pub struct Compiled {
    sets: usize,
    v4: Half,
    v6: Half,
    /// The rules of each set, shared with the caller that compiled them.
    rules: Vec<Vec<HeaderRule>>,
}

impl Compiled {
    /// Compiles rule sets; the rules of a set are in order, the first that matches wins.
    #[must_use]
    pub fn new(sets: &[Vec<HeaderRule>], options: Options) -> Self {
        let half = |v6| Half::new(sets, options, v6);
        Compiled { sets: sets.len(), v4: half(false), v6: half(true), rules: sets.to_vec() }
    }

    /// Whether it is certain, without compiling, that more than `rest_max` of these rules would be in no
    /// table, because they have too many different ports.
    pub fn leaves<'r>(rules: impl Iterator<Item = &'r HeaderRule> + Clone, rest_max: usize) -> bool {
        [false, true].into_iter().any(|v6| CombinationUsage::of(rules.clone(), v6).beyond > rest_max)
    }

    /// As [`Compiled::new`], unless more than `rest_max` rules would be in no table: this is found out before
    /// most of the tables are built.
    #[must_use]
    pub fn within(sets: &[Vec<HeaderRule>], options: Options, rest_max: usize) -> Option<Self> {
        let v4 = Half::within(sets, options, false, rest_max)?;
        let v6 = Half::within(sets, options, true, rest_max.saturating_sub(left(&v4.rest)))?;
        Some(Compiled { sets: sets.len(), v4, v6, rules: sets.to_vec() })
    }

    /// Bytes of all tables.
    #[must_use]
    pub fn memory(&self) -> usize {
        [&self.v4, &self.v6]
            .iter()
            .map(|h| {
                h.tables.tables().bytes()
                    + h.rest.iter().map(|r| r.len() * size_of::<RestRule>()).sum::<usize>()
            })
            .sum::<usize>()
            + self.rules.iter().map(|r| r.len() * size_of::<HeaderRule>()).sum::<usize>()
    }

    /// The number of rules that are in no table, of both IP versions.
    #[must_use]
    pub fn rest(&self) -> usize {
        left(&self.v4.rest) + left(&self.v6.rest)
    }

    /// A description of the tables, a line for each group.
    pub fn summary(&self) -> impl Iterator<Item = &str> {
        self.v4.summary.iter().chain(&self.v6.summary).map(String::as_str)
    }

    /// The instruction set of lookups.
    #[must_use]
    pub fn level(&self) -> InstructionSet {
        self.v4.level
    }

    /// Lowers the instruction set, for comparisons: one that this machine lacks, or a higher one, changes
    /// nothing.
    pub fn set_level(&mut self, level: InstructionSet) {
        for half in [&mut self.v4, &mut self.v6] {
            if level < half.level && level.is_here() {
                half.level = level;
            }
        }
    }

    /// Looks IPv4 headers up: for each set (in order) and header the number of the first rule that matches,
    /// or `u32::MAX`. `results` has `headers.len()` places for each set.
    pub fn lookup_v4(&self, headers: &[FlatV4], results: &mut [u32]) {
        self.blocks(headers, results, |block, best| self.block_v4(block, best));
    }

    /// As [`Compiled::lookup_v4`], for IPv6.
    pub fn lookup_v6(&self, headers: &[FlatV6], results: &mut [u32]) {
        self.blocks(headers, results, |block, best| self.block_v6(block, best));
    }

    /// Looks at most [`BLOCK`] IPv4 headers up: lowers the numbers in `best`, [`BLOCK`] for each set.
    #[inline(always)]
    pub(crate) fn block_v4(&self, headers: &[FlatV4], best: &mut [[u32; BLOCK]]) {
        self.v4.tables.block_v4(self.v4.level, headers, best);
        self.v4.search_rest(headers, best);
    }

    /// As [`Compiled::block_v4`], for IPv6.
    #[inline(always)]
    pub(crate) fn block_v6(&self, headers: &[FlatV6], best: &mut [[u32; BLOCK]]) {
        self.v6.tables.block_v6(self.v6.level, headers, best);
        self.v6.search_rest(headers, best);
    }

    /// Looks one IPv4 header up: lowers the numbers in `best`, one for each set. It reads only needed data,
    /// without stages: a block's vectors would be nearly empty.
    pub(crate) fn first_v4(&self, header: &FlatV4, best: &mut [u32]) {
        let tables = self.v4.tables.tables();
        tables.find(tables.leaves_v4(header), best);
        self.v4.search_rest_for(header, best);
    }

    /// As [`Compiled::first_v4`], for IPv6.
    pub(crate) fn first_v6(&self, header: &FlatV6, best: &mut [u32]) {
        let tables = self.v6.tables.tables();
        tables.find(tables.leaves_v6(header), best);
        self.v6.search_rest_for(header, best);
    }

    /// The first rule of a set after `rank` that matches and is `valid`: for the case that `rank` was
    /// deleted.
    pub(crate) fn next_v4(&self, header: &FlatV4, set: u8, rank: u32, valid: impl Fn(u32) -> bool) -> u32 {
        let leaves = self.v4.tables.tables().leaves_v4(header);
        self.v4.next(&self.rules, leaves, &header.into(), set, rank, valid)
    }

    /// As [`Compiled::next_v4`].
    pub(crate) fn next_v6(&self, header: &FlatV6, set: u8, rank: u32, valid: impl Fn(u32) -> bool) -> u32 {
        let leaves = self.v6.tables.tables().leaves_v6(header);
        self.v6.next(&self.rules, leaves, &header.into(), set, rank, valid)
    }

    fn blocks<H>(&self, headers: &[H], results: &mut [u32], find: impl Fn(&[H], &mut [[u32; BLOCK]])) {
        for (number, block) in headers.chunks(BLOCK).enumerate() {
            let mut best = [[NONE; BLOCK]; crate::SETS_MAX as usize];
            let best = best.get_mut(..self.sets).unwrap_or_default();
            find(block, best);
            for (out, best) in results.chunks_exact_mut(headers.len()).zip(best) {
                let out = out.get_mut(number * BLOCK..).unwrap_or_default();
                for (out, best) in out.iter_mut().zip(best).take(block.len()) {
                    *out = *best;
                }
            }
        }
    }
}

/// The construction of one IP version's tables.
struct Making<'s> {
    sets: &'s [Vec<HeaderRule>],
    options: Options,
    v6: bool,
    chosen: PortCombinations,
    ports: CombinationSets,
    groups: Vec<(SplitGroup, Aggregate)>,
    rest: Vec<Vec<RestRule>>,
    summary: Vec<String>,
}

impl<'s> Making<'s> {
    fn new(sets: &'s [Vec<HeaderRule>], options: Options, v6: bool, chosen: PortCombinations) -> Self {
        let ports = CombinationSets::new(&chosen.combinations);
        let (groups, summary) = (Vec::new(), Vec::new());
        Making { sets, options, v6, chosen, ports, groups, rest: vec![Vec::new(); sets.len()], summary }
    }

    /// Groups the rules of a set.
    fn add(&mut self, set: usize) {
        let list = self.sets.get(set).map(Vec::as_slice).unwrap_or_default();
        let mut rest = Vec::new();
        let mut rules = Vec::with_capacity(list.len());
        for (rank, rule) in (0u32..).zip(list).filter(|(_, rule)| concerns(rule, self.v6)) {
            match Combination::new(rule).map(|c| self.chosen.numbers.get(&c)) {
                Some(Some(combination)) => rules.push(PrefixRule {
                    rank,
                    source: AddressPrefix::new(rule.source),
                    destination: AddressPrefix::new(rule.destination),
                    combination: *combination,
                }),
                // Its ports do not fit into the port table.
                Some(None) => rest.push(RestRule { rank, rule: *rule }),
                // No flat header can match it.
                None => {}
            }
        }
        let plan = GroupPlan::new(&GroupPlanInput {
            set: set as u8,
            rules: &rules,
            combinations: &self.chosen.combinations,
            kinds: &self.ports.kinds,
            v6: self.v6,
            budget: self.options.budget / self.sets.len().max(1),
            merge: self.options.fast,
        });
        let left = plan.rest.iter().filter_map(|r| Some((r.rank, *list.get(r.rank as usize)?)));
        rest.extend(left.map(|(rank, rule)| RestRule { rank, rule }));
        rest.sort_by_key(|r| r.rank);
        if !rest.is_empty() {
            self.summary.push(format!("set {set}: {} rules in no table", rest.len()));
        }
        self.rest.iter_mut().skip(set).take(1).for_each(|own| *own = std::mem::take(&mut rest));
        for part in plan.parts {
            self.summary.push(describe(set, self.v6, &part));
            self.groups.push((part.group, part.aggregate));
        }
    }

    fn finish(self) -> Half {
        let Making { options, v6, ports, groups, rest, mut summary, .. } = self;
        let prefixes = [true, false].map(|source| {
            Prefixes::new(groups.iter().flat_map(|(group, _)| &group.prefixes(source).list).copied())
        });
        let (tables, level) = Checked::new(SplitTables::new(v6, options.fast, &ports, groups, &prefixes));
        for pool in tables.tables().bundles.iter().flat_map(|b| &b.pools) {
            let (set, groups, cells) = (pool.set, pool.parts.len(), pool.cells.len());
            let version = if v6 { " IPv6" } else { "" };
            summary.push(format!("set {set}{version}: pool of {groups} of these groups: {cells} cells"));
        }
        Half { tables, level, rest, summary }
    }
}

/// Describes a group.
fn describe(set: usize, v6: bool, part: &plan::GroupTables) -> String {
    format!(
        "set {set}{}: group of {} rules: {} cells in {} slots, {} lists, {} patterns, {} port classes, {} bytes behind ({})",
        if v6 { " IPv6" } else { "" },
        part.rules.len(),
        part.aggregate.cells,
        part.aggregate.slots.len(),
        part.aggregate.lists,
        part.group.patterns.len(),
        part.aggregate.columns,
        part.aggregate.form_bytes(),
        match part.aggregate.form {
            aggregate::AggregateLayout::Direct(_) => "ranks",
            aggregate::AggregateLayout::Positions { .. } => "positions",
        }
    )
}

/// The number of rules of all sets that are in no table.
fn left(rest: &[Vec<RestRule>]) -> usize {
    rest.iter().map(Vec::len).sum()
}

impl Half {
    fn new(sets: &[Vec<HeaderRule>], options: Options, v6: bool) -> Self {
        let mut making =
            Making::new(sets, options, v6, CombinationUsage::of(sets.iter().flatten(), v6).chosen());
        (0..sets.len()).for_each(|set| making.add(set));
        making.finish()
    }

    /// Compiles one IP version. `None`: more than `rest_max` rules would be in no table.
    fn within(sets: &[Vec<HeaderRule>], options: Options, v6: bool, rest_max: usize) -> Option<Self> {
        let chosen = CombinationUsage::of(sets.iter().flatten(), v6).chosen();
        if chosen.beyond > rest_max {
            return None;
        }
        let mut making = Making::new(sets, options, v6, chosen);
        for set in 0..sets.len() {
            making.add(set);
            if left(&making.rest) > rest_max {
                return None;
            }
        }
        Some(making.finish())
    }

    fn next(
        &self,
        rules: &[Vec<HeaderRule>],
        leaves: FieldLeaves,
        header: &crate::Header,
        set: u8,
        rank: u32,
        valid: impl Fn(u32) -> bool,
    ) -> u32 {
        let rules = rules.get(usize::from(set)).map(Vec::as_slice).unwrap_or_default();
        let matches = |r: u32| valid(r) && rules.get(r as usize).is_some_and(|rule| rule.matches(header));
        let mut best = NONE;
        for list in self.tables.tables().candidates(leaves, set) {
            let from = list.partition_point(|r| *r <= rank);
            let next = list.iter().skip(from).take_while(|r| **r < best).find(|r| matches(**r));
            best = next.copied().unwrap_or(best);
        }
        let rest = self.rest.get(usize::from(set)).map(Vec::as_slice).unwrap_or_default();
        let next = rest.iter().map(|r| r.rank).filter(|r| *r > rank && *r < best).find(|r| matches(*r));
        next.unwrap_or(best)
    }

    /// Searches the rules that are in no table, for a block.
    #[inline(always)]
    fn search_rest<H>(&self, headers: &[H], best: &mut [[u32; BLOCK]])
    where
        crate::Header: for<'a> From<&'a H>,
    {
        for (rest, best) in self.rest.iter().zip(best).filter(|(rest, _)| !rest.is_empty()) {
            for (header, best) in headers.iter().zip(best) {
                lower(rest, &header.into(), best);
            }
        }
    }

    /// As [`Half::search_rest`], for one header.
    #[inline]
    fn search_rest_for<H>(&self, header: &H, best: &mut [u32])
    where
        crate::Header: for<'a> From<&'a H>,
    {
        for (rest, best) in self.rest.iter().zip(best).filter(|(rest, _)| !rest.is_empty()) {
            lower(rest, &header.into(), best);
        }
    }
}

/// Linear search for a better rule.
fn lower(rest: &[RestRule], header: &crate::Header, best: &mut u32) {
    let better = rest.iter().take_while(|r| r.rank < *best).find(|r| r.rule.matches(header));
    *best = better.map_or(*best, |r| r.rank);
}

/// Whether the rule can match headers of this IP version.
fn concerns(rule: &HeaderRule, v6: bool) -> bool {
    [rule.source, rule.destination].into_iter().flatten().all(|n| n.address.is_ipv6() == v6)
}

/// The most combinations of one port table.
const COMBINATIONS_MAX: usize = 4096;

/// The combinations of most rules, as many as may be in one port table.
struct CombinationUsage {
    list: Vec<Combination>,
    /// The number of rules with other combinations, and of rules for each of these.
    beyond: usize,
    uses: Vec<u32>,
}

/// The combinations for the port table.
struct PortCombinations {
    combinations: Vec<Combination>,
    numbers: HashMap<Combination, u32, FixedState>,
    /// The number of rules with other combinations.
    beyond: usize,
}

impl CombinationUsage {
    fn of<'r>(rules: impl Iterator<Item = &'r HeaderRule>, v6: bool) -> Self {
        let mut uses: HashMap<Combination, u32, FixedState> = HashMap::default();
        for rule in rules.filter(|r| concerns(r, v6)) {
            if let Some(combination) = Combination::new(rule) {
                *uses.entry(combination).or_default() += 1;
            }
        }
        let mut list: Vec<(u32, Combination)> = uses.into_iter().map(|(c, n)| (n, c)).collect();
        list.sort_unstable_by(|a, b| b.cmp(a));
        let beyond = list.iter().skip(COMBINATIONS_MAX).map(|(uses, _)| *uses as usize).sum();
        list.truncate(COMBINATIONS_MAX);
        let (uses, list) = list.into_iter().unzip();
        CombinationUsage { list, beyond, uses }
    }

    /// The most used combinations, as many as the port table can hold.
    fn chosen(self) -> PortCombinations {
        let CombinationUsage { mut list, mut beyond, uses } = self;
        let (mut fits, mut not) = (0, list.len() + 1);
        while fits + 1 < not {
            // The whole list first: it nearly always fits.
            let middle = if not > list.len() { list.len() } else { (fits + not) / 2 };
            let some = list.get(..middle).unwrap_or_default();
            if CombinationSets::cells(some) <= PORT_CELLS {
                fits = middle
            } else {
                not = middle
            }
            if fits == list.len() {
                break;
            }
        }
        list.truncate(fits);
        beyond += uses.iter().skip(fits).map(|uses| *uses as usize).sum::<usize>();
        let numbers = (0u32..).zip(&list).map(|(number, combination)| (*combination, number)).collect();
        PortCombinations { combinations: list, numbers, beyond }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Range;

    const OPTIONS: Options = Options { budget: 64 << 20, fast: true };

    /// So many rules, each with a port of its own; all with one address, or each with its own.
    fn rules(count: u16, apart: bool) -> Vec<Vec<HeaderRule>> {
        let rule = |port: u16| {
            let address = [10, 0, (port >> 8) as u8, port as u8].map(|byte| if apart { byte } else { 10 });
            HeaderRule {
                source: Some(crate::header::Net { address: address.into(), length: 32 }),
                destination_ports: Range::one(port),
                ..HeaderRule::default()
            }
        };
        vec![(0..count).map(rule).collect(), Vec::new()]
    }

    #[test]
    fn what_tables_leave_is_said_as_it_is() {
        for (count, apart) in [(10, false), (500, true), (4_096, false), (4_200, false), (5_000, true)] {
            let sets = rules(count, apart);
            let rest = Compiled::new(&sets, OPTIONS).rest();
            for rest_max in [0, 64, rest.saturating_sub(1), rest, rest + 1] {
                let within = Compiled::within(&sets, OPTIONS, rest_max);
                assert_eq!(within.map(|tables| tables.rest()), (rest <= rest_max).then_some(rest), "{count}");
                let leaves = Compiled::leaves(sets.iter().flatten(), rest_max);
                assert!(!leaves || rest > rest_max, "{count}");
            }
            assert_eq!(
                Compiled::leaves(sets.iter().flatten(), 64),
                usize::from(count) > COMBINATIONS_MAX + 64,
                "{count}"
            );
        }
    }
}
