// SPDX-License-Identifier: Apache-2.0
//! The grouping of rules by prefix length, chosen by estimated cost.
//!
//! Rules that are wild in one address and rules that are wild in the other must not share a group, or their
//! cross product is its table. So rules are split by whether each prefix is long; then groups are merged
//! again as long as the model estimates one larger table as cheaper than two. Rules that fit into no group
//! are searched linearly.

use super::aggregate::{Aggregate, AggregateLayout};
use super::group::{Bounds, PrefixRule, SplitGroup, estimate};
use super::ports::{Bits, Combination};

/// The input of a plan.
pub(crate) struct GroupPlanInput<'a> {
    pub set: u8,
    /// The rules in the order of their ranks.
    pub rules: &'a [PrefixRule],
    pub combinations: &'a [Combination],
    pub kinds: &'a [Bits],
    pub v6: bool,
    /// The bytes that the tables of this set may take.
    pub budget: usize,
    /// Whether groups are merged for speed.
    pub merge: bool,
}

/// A group with its tables.
pub(crate) struct GroupTables {
    pub rules: Vec<PrefixRule>,
    pub group: SplitGroup,
    pub aggregate: Aggregate,
}

/// The groups, and the rules that are in none.
pub(crate) struct GroupPlan {
    pub parts: Vec<GroupTables>,
    pub rest: Vec<PrefixRule>,
}

/// Nanoseconds of a read from a table of so many bytes, with others in flight (measured on server cores,
/// rounded).
fn read(bytes: usize) -> f64 {
    match bytes {
        0..=0x8000 => 0.3,
        0x8001..=0x8_0000 => 0.45,
        0x8_0001..=0x20_0000 => 0.7,
        0x20_0001..=0x200_0000 => 1.3,
        _ => 2.5,
    }
}

/// Nanoseconds that a group costs a lookup.
fn cost(aggregate: &Aggregate) -> f64 {
    let follow = match &aggregate.form {
        AggregateLayout::Direct(ranks) => read(ranks.len() * 2),
        AggregateLayout::Positions { positions, ranks, .. } => read(positions.len()) + read(ranks.len() * 4),
    };
    0.3 + read(aggregate.cells * 8) + follow
}

/// Splits rules by whether source and destination are at least so long.
fn split(rules: &[PrefixRule], cut: u8) -> [Vec<PrefixRule>; 4] {
    let mut out: [Vec<PrefixRule>; 4] = Default::default();
    for rule in rules {
        let [both, source, destination, neither] = &mut out;
        match (rule.source.length >= cut, rule.destination.length >= cut) {
            (true, true) => both,
            (true, false) => source,
            (false, true) => destination,
            (false, false) => neither,
        }
        .push(*rule);
    }
    out
}

/// The length to split at with the fewest cells.
fn choose_cut(input: &GroupPlanInput<'_>) -> u8 {
    let cuts: &[u8] = if input.v6 { &[1, 17, 33, 41, 49] } else { &[9, 1, 5, 17] };
    let mut best = (u64::MAX, 0);
    for cut in cuts {
        let cells = split(input.rules, *cut).iter().map(|r| estimate(r).0).sum::<u64>();
        best = best.min((cells, *cut));
        // Good enough: further search costs more than it can save.
        if cells <= 3 * input.rules.len() as u64 + 4096 {
            break;
        }
    }
    best.1
}

impl GroupPlan {
    pub fn new(input: &GroupPlanInput<'_>) -> Self {
        let mut plan = GroupPlan { parts: Vec::new(), rest: Vec::new() };
        if input.rules.is_empty() {
            return plan;
        }
        let cut = choose_cut(input);
        for rules in split(input.rules, cut) {
            plan.add(input, rules, 4);
        }
        if input.merge {
            plan.merge(input);
        }
        plan.keep_budget(input.budget);
        plan.rest.sort_unstable_by_key(|r| r.rank);
        plan
    }

    fn build(
        input: &GroupPlanInput<'_>,
        rules: &[PrefixRule],
        bounds: Bounds,
    ) -> Option<(SplitGroup, Aggregate)> {
        let group = SplitGroup::new(input.set, rules, input.combinations, input.kinds, bounds)?;
        let aggregate = Aggregate::new(&group)?;
        Some((group, aggregate))
    }

    /// Adds rules as a group, or in halves, or to the rest.
    fn add(&mut self, input: &GroupPlanInput<'_>, rules: Vec<PrefixRule>, halvings: u32) {
        if rules.is_empty() {
            return;
        }
        let bounds = Bounds {
            cells: (input.budget / 16).min(super::displace::SLOTS_MAX / 2),
            work: 1 << 22,
            table: (input.budget / 16).min(1 << 24),
        };
        match GroupPlan::build(input, &rules, bounds) {
            Some((group, aggregate)) => self.parts.push(GroupTables { rules, group, aggregate }),
            None if halvings > 0 && rules.len() > 64 => {
                // Longer and shorter sources cross the least.
                let mut lengths: Vec<(u8, u8)> =
                    rules.iter().map(|r| (r.source.length, r.destination.length)).collect();
                let middle = lengths.len() / 2;
                let (_, middle, _) = lengths.select_nth_unstable(middle);
                let middle = *middle;
                let (mut short, mut long): (Vec<PrefixRule>, Vec<PrefixRule>) =
                    rules.iter().partition(|r| (r.source.length, r.destination.length) < middle);
                if short.is_empty() || long.is_empty() {
                    long.extend(short);
                    long.sort_unstable_by_key(|r| r.rank);
                    short = long.split_off(long.len() / 2);
                }
                self.add(input, short, halvings - 1);
                self.add(input, long, halvings - 1);
            }
            None => self.rest.extend(rules),
        }
    }

    /// Merges the pair that saves the most, as long as one does.
    fn merge(&mut self, input: &GroupPlanInput<'_>) {
        // The saving of every pair, and the merged group; pairs without a saving are not tried again.
        let mut pairs: Vec<(f64, usize, usize, GroupTables)> = Vec::new();
        let mut parts: Vec<Option<GroupTables>> =
            std::mem::take(&mut self.parts).into_iter().map(Some).collect();
        let mut fresh = 0;
        loop {
            for (j, b) in parts.iter().enumerate().skip(fresh) {
                for (i, a) in parts.iter().enumerate().take(j) {
                    if let (Some(a), Some(b)) = (a, b)
                        && let Some((saved, part)) = try_merge(input, a, b)
                    {
                        pairs.push((saved, i, j, part));
                    }
                }
            }
            fresh = parts.len();
            pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
            let Some((_, i, j, part)) = pairs.pop() else { break };
            pairs.retain(|(_, a, b, _)| ![*a, *b].iter().any(|x| [i, j].contains(x)));
            for gone in [i, j] {
                if let Some(slot) = parts.get_mut(gone) {
                    *slot = None;
                }
            }
            parts.push(Some(part));
        }
        self.parts = parts.into_iter().flatten().collect();
    }

    /// Dissolves the largest groups until the others fit.
    fn keep_budget(&mut self, budget: usize) {
        self.parts.sort_by_key(|p| p.aggregate.bytes());
        while self.parts.iter().map(|p| p.aggregate.bytes()).sum::<usize>() > budget {
            let Some(part) = self.parts.pop() else { break };
            self.rest.extend(part.rules);
        }
    }
}

/// The merged group, with its saving, if there is one.
fn try_merge(input: &GroupPlanInput<'_>, a: &GroupTables, b: &GroupTables) -> Option<(f64, GroupTables)> {
    let bounds = Bounds { cells: 1 << 18, work: 1 << 18, table: 1 << 19 };
    let rules = merged(&a.rules, &b.rules);
    if estimate(&rules).1 > bounds.work as u64 {
        return None;
    }
    let (group, aggregate) = GroupPlan::build(input, &rules, bounds)?;
    let saved = cost(&a.aggregate) + cost(&b.aggregate) - cost(&aggregate);
    (saved > 0.0).then_some((saved, GroupTables { rules, group, aggregate }))
}

/// The rules of both, in the order of their ranks.
fn merged(a: &[PrefixRule], b: &[PrefixRule]) -> Vec<PrefixRule> {
    let mut all = [a, b].concat();
    all.sort_unstable_by_key(|r| r.rank);
    all
}
