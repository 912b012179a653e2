// SPDX-License-Identifier: Apache-2.0
//! One group of rules of one set: from address classes to lists of rules.
//!
//! A cell is a pair of classes in which some rule of the group may match; it refers to the list of those
//! rules, best first, without rules that an earlier one covers. Rows are the classes of one address,
//! columns those of the other. Cells are found row by row: the rules of a row and of the prefixes around it
//! are ranges of columns, one inside the other or disjoint, because prefixes are.

use super::ports::{Bits, Combination, has};
use super::prefix::{AddressPrefix, Prefixes};
use bartizan_base::at::IndexOrDefault;
use foldhash::fast::FixedState;
use std::collections::HashMap;

/// A rule in the builder's form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrefixRule {
    /// The rule's place in its set; the lowest that matches wins.
    pub rank: u32,
    pub source: AddressPrefix,
    pub destination: AddressPrefix,
    /// The number of the rule's combination.
    pub combination: u32,
}

/// Bounds of building a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub cells: usize,
    /// Rules in the lists of all rows together: the time to build.
    pub work: usize,
    /// Entries of lists, and bytes of the position table.
    pub table: usize,
}

/// A run of columns of a row with the same list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnRun {
    pub first: u32,
    pub end: u32,
    pub list: u32,
    /// The number of the list that includes the covered rules.
    pub full: u32,
}

/// Groups as built, before they are packed into tables.
#[derive(Clone, Debug)]
pub(crate) struct SplitGroup {
    pub set: u8,
    /// Whether rows are source classes.
    pub rows_are_source: bool,
    pub rows: Prefixes,
    pub columns: Prefixes,
    /// For each row its runs.
    pub runs: Vec<Vec<ColumnRun>>,
    pub cells: usize,
    /// Ranks of each list, best first.
    pub lists: Vec<Vec<u32>>,
    /// The ranks of each full list, one after the other, and the beginning of each (one more at the end).
    pub full: Vec<u32>,
    pub full_starts: Vec<u32>,
    /// Pattern of each list: its combinations in order.
    pub pattern: Vec<u32>,
    pub patterns: Vec<Vec<u32>>,
    /// For each kind of the ports (see [`super::ports::CombinationSets::kinds`]) its column in the tables.
    pub port_class: Vec<u16>,
    /// For each port class the combinations it satisfies.
    pub port_classes: Vec<Bits>,
}

/// The cost of a group, without building it: (upper bound of cells, lower bound of work).
pub(crate) fn estimate(rules: &[PrefixRule]) -> (u64, u64) {
    let sources = Prefixes::new(rules.iter().map(|r| r.source));
    let destinations = Prefixes::new(rules.iter().map(|r| r.destination));
    let all = sources.len() as u64 * destinations.len() as u64;
    let (mut cells, mut by_source, mut by_destination) = (0, 0, 0);
    for rule in rules {
        let s = u64::from(sources.inside(sources.number(rule.source)));
        let d = u64::from(destinations.inside(destinations.number(rule.destination)));
        cells += s * d;
        by_source += s;
        by_destination += d;
    }
    (all.min(cells), by_source.min(by_destination))
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// 128 pseudo-random bits of a rule: their sums identify sets of rules.
fn mark(rule: u32) -> u128 {
    let a = mix(u64::from(rule) + 0x9e37_79b9_7f4a_7c15);
    let b = mix(a ^ 0x2545_f491_4f6c_dd1d ^ u64::from(rule) << 32);
    u128::from(a) << 64 | u128::from(b)
}

/// A rule with its range of columns.
#[derive(Clone, Copy)]
struct ColumnSpan {
    first: u32,
    end: u32,
    rule: u32,
}

struct GroupBuilder<'a> {
    rules: &'a [PrefixRule],
    combinations: &'a [Combination],
    bounds: Bounds,
    lists: Vec<Vec<u32>>,
    by_mark: HashMap<u128, (u32, u32), FixedState>,
    by_content: HashMap<Vec<u32>, u32, FixedState>,
    full: Vec<u32>,
    full_starts: Vec<u32>,
    entries: usize,
    cells: usize,
}

impl GroupBuilder<'_> {
    /// The list of the open rules, which are unordered.
    fn list(&mut self, open: &[(ColumnSpan, u128)]) -> (u32, u32) {
        let mark = open.last().map_or(0, |(_, mark)| *mark);
        if let Some(list) = self.by_mark.get(&mark) {
            return *list;
        }
        let mut all: Vec<u32> = open.iter().map(|(span, _)| span.rule).collect();
        all.sort_unstable();
        let full = self.full_starts.len() as u32 - 1;
        self.full.extend_from_slice(&all);
        self.full_starts.push(self.full.len() as u32);
        self.entries += all.len();
        let kept = self.uncovered(all);
        let next = self.lists.len() as u32;
        let list = *self.by_content.entry(kept).or_insert_with_key(|kept| {
            self.lists.push(kept.clone());
            self.entries += kept.len();
            next
        });
        self.by_mark.insert(mark, (list, full));
        (list, full)
    }

    /// The rules among some that no earlier one covers, best first.
    fn uncovered(&self, rules: Vec<u32>) -> Vec<u32> {
        let mut kept = Vec::with_capacity(rules.len());
        // A rule of one tenant covers no other tenant's, and a thousand tenants may have the same addresses.
        let mut of_all: Vec<Combination> = Vec::new();
        let mut of_one: HashMap<u16, Vec<Combination>, FixedState> = HashMap::default();
        for rule in rules {
            let what = self.combination(rule);
            let covers = |kept: &Combination| kept.covers(&what);
            let tenant = what.one_tenant();
            let covered = of_all.iter().any(covers)
                || match tenant {
                    Some(tenant) => of_one.get(&tenant).is_some_and(|own| own.iter().any(covers)),
                    None => of_one.values().flatten().any(covers),
                };
            if covered {
                continue;
            }
            kept.push(rule);
            match tenant {
                Some(tenant) => of_one.entry(tenant).or_default().push(what),
                None => of_all.push(what),
            }
        }
        kept
    }

    fn combination(&self, rule: u32) -> Combination {
        let number = self.rules.get(rule as usize).map_or(0, |r| r.combination);
        self.combinations.get(number as usize).copied().unwrap_or(Combination {
            source_ports: (1, 0),
            destination_ports: (1, 0),
            protocol: (1, 0),
            tenant: (1, 0),
            link: (1, 0),
        })
    }

    /// The runs of a row with these rules; `spans` are sorted by (first, largest end).
    fn row(&mut self, spans: &[ColumnSpan]) -> Option<Vec<ColumnRun>> {
        let mut runs: Vec<ColumnRun> = Vec::new();
        let mut open: Vec<(ColumnSpan, u128)> = Vec::new();
        let mut at = 0;
        let mut emit = |builder: &mut Self, open: &[(ColumnSpan, u128)], at: &mut u32, to: u32| {
            if *at < to && !open.is_empty() {
                let (list, full) = builder.list(open);
                builder.cells += (to - *at) as usize;
                match runs.last_mut() {
                    Some(run) if run.full == full && run.end == *at => run.end = to,
                    _ => runs.push(ColumnRun { first: *at, end: to, list, full }),
                }
            }
            *at = to.max(*at);
        };
        for span in spans {
            while let Some((top, _)) = open.last().copied()
                && top.end <= span.first
            {
                emit(self, &open, &mut at, top.end);
                open.pop();
            }
            emit(self, &open, &mut at, span.first);
            let below = open.last().map_or(0, |(_, mark)| *mark);
            open.push((*span, below.wrapping_add(mark(span.rule))));
        }
        while let Some((top, _)) = open.last().copied() {
            emit(self, &open, &mut at, top.end);
            open.pop();
        }
        let fits = self.cells <= self.bounds.cells && self.entries <= self.bounds.table;
        fits.then_some(runs)
    }
}

impl SplitGroup {
    /// Builds a group; `rules` in the order of their ranks. `None` if it would exceed the bounds.
    pub fn new(
        set: u8,
        rules: &[PrefixRule],
        combinations: &[Combination],
        kinds: &[Bits],
        bounds: Bounds,
    ) -> Option<Self> {
        let sources = Prefixes::new(rules.iter().map(|r| r.source));
        let destinations = Prefixes::new(rules.iter().map(|r| r.destination));
        let numbers: Vec<(u32, u32)> =
            rules.iter().map(|r| (sources.number(r.source), destinations.number(r.destination))).collect();
        let by_source: u64 = numbers.iter().map(|(s, _)| u64::from(sources.inside(*s))).sum();
        let by_destination: u64 = numbers.iter().map(|(_, d)| u64::from(destinations.inside(*d))).sum();
        let rows_are_source = by_source <= by_destination;
        if by_source.min(by_destination) > bounds.work as u64 {
            return None;
        }
        let (rows, columns) = if rows_are_source { (sources, destinations) } else { (destinations, sources) };
        let mut own: Vec<Vec<ColumnSpan>> = vec![Vec::new(); rows.len()];
        for (rule, (s, d)) in numbers.iter().enumerate() {
            let (row, column) = if rows_are_source { (*s, *d) } else { (*d, *s) };
            if let Some(own) = own.get_mut(row as usize) {
                own.push(ColumnSpan {
                    first: column,
                    end: columns.end.at(column as usize),
                    rule: rule as u32,
                });
            }
        }
        let mut builder = GroupBuilder {
            rules,
            combinations,
            bounds,
            lists: Vec::new(),
            by_mark: HashMap::default(),
            by_content: HashMap::default(),
            full: Vec::new(),
            full_starts: vec![0],
            entries: 0,
            cells: 0,
        };
        let mut runs = Vec::with_capacity(rows.len());
        let mut spans: Vec<ColumnSpan> = Vec::new();
        for row in 0..rows.len() {
            spans.clear();
            let mut at = row;
            loop {
                spans.extend(own.get(at).into_iter().flatten());
                if at == 0 {
                    break;
                }
                at = rows.parent.at(at) as usize;
            }
            spans.sort_unstable_by_key(|s| (s.first, u32::MAX - s.end));
            runs.push(builder.row(&spans)?);
        }
        let GroupBuilder { lists, cells, mut full, full_starts, .. } = builder;
        for rule in &mut full {
            *rule = rules.get(*rule as usize).map_or(u32::MAX, |r| r.rank);
        }
        let mut group = SplitGroup {
            set,
            rows_are_source,
            rows,
            columns,
            runs,
            cells,
            lists,
            full,
            full_starts,
            pattern: Vec::new(),
            patterns: Vec::new(),
            port_class: Vec::new(),
            port_classes: Vec::new(),
        };
        group.classify_ports(rules, kinds);
        group.find_patterns(rules);
        Some(group)
    }

    /// Classes of the source or of the destination.
    pub fn prefixes(&self, source: bool) -> &Prefixes {
        if self.rows_are_source == source { &self.rows } else { &self.columns }
    }

    /// Finds this group's port classes.
    fn classify_ports(&mut self, rules: &[PrefixRule], kinds: &[Bits]) {
        let mut own = vec![0u64; kinds.first().map_or(0, Vec::len)];
        for rule in rules {
            if let Some(word) = own.get_mut(rule.combination as usize / 64) {
                *word |= 1 << (rule.combination % 64);
            }
        }
        let mut numbers: HashMap<Bits, u16, FixedState> = HashMap::default();
        for kind in kinds {
            let bits: Bits = kind.iter().zip(&own).map(|(a, b)| a & b).collect();
            let next = self.port_classes.len() as u16;
            let class = *numbers.entry(bits).or_insert_with_key(|bits| {
                self.port_classes.push(bits.clone());
                next
            });
            self.port_class.push(class);
        }
    }

    /// Finds the patterns of the lists; replaces rule numbers in the lists by ranks.
    fn find_patterns(&mut self, rules: &[PrefixRule]) {
        let mut numbers: HashMap<Vec<u32>, u32, FixedState> = HashMap::default();
        for list in &mut self.lists {
            let of = |r: &u32| rules.get(*r as usize).map_or(0, |r| r.combination);
            let pattern: Vec<u32> = list.iter().map(of).collect();
            let next = self.patterns.len() as u32;
            let number = *numbers.entry(pattern).or_insert_with_key(|pattern| {
                self.patterns.push(pattern.clone());
                next
            });
            self.pattern.push(number);
            for rule in list {
                *rule = rules.get(*rule as usize).map_or(u32::MAX, |r| r.rank);
            }
        }
    }

    /// The position of the first combination of a pattern that each port class satisfies; `None` is after its
    /// end.
    pub fn positions(&self, pattern: &[u32]) -> impl Iterator<Item = Option<usize>> {
        self.port_classes.iter().map(|bits| pattern.iter().position(|c| has(bits, *c)))
    }
}
