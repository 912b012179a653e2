// SPDX-License-Identifier: Apache-2.0
//! Sets of literals, the rules behind each, and the rules that a scan finds worth evaluating.

use crate::compile::groups::Group;
use crate::model::content::Literal;
use crate::model::signature::Member;
use bartizan_pattern::{BuildError, Compiler, Matches, Pattern, PatternSet, Scratch};
use std::collections::BTreeMap;

/// Literals of one buffer and the rules behind each.
pub struct Set {
    set: PatternSet,
    /// Rules of each literal, by its number in the set.
    rules: Vec<Vec<u32>>,
    /// The heads of all these rules, a bit each; none: they are not known.
    heads: Vec<u64>,
}

impl Set {
    /// Compiles literals, each with its caselessness and the rules behind it.
    pub(crate) fn new(
        literals: BTreeMap<(Vec<u8>, bool), Vec<u32>>,
        compiler: &Compiler,
    ) -> Result<Self, BuildError> {
        let patterns: Vec<Pattern<'_>> = literals
            .keys()
            .enumerate()
            .map(|(number, (bytes, nocase))| Pattern { id: number as u32, bytes, nocase: *nocase })
            .collect();
        let set = compiler.pattern_set(&patterns, Matches::First)?;
        Ok(Set { set, rules: literals.into_values().collect(), heads: Vec::new() })
    }

    /// Whether a flow of this group can meet the head of one of the rules; without a group, yes. If not, a scan is for nothing.
    #[must_use]
    pub fn is_met(&self, group: Option<Group<'_>>) -> bool {
        let Some(group) = group.filter(|_| !self.heads.is_empty()) else { return true };
        (0..).zip(&self.heads).any(|(word, heads)| group.word(word) & heads != 0)
    }

    /// Adds the rules whose literal occurs to `candidates`.
    pub fn scan(&self, scratch: &mut Scratch, data: &[u8], candidates: &mut Candidates) {
        if !self.literals_in(scratch, data, |literal| candidates.extend(self.rules_of(literal))) {
            self.every_rule(candidates);
        }
    }

    /// Calls `found` with each literal that occurs, by its number in the set. `false`: the scan failed (no scratch
    /// memory), and in order not to lose rules every one is a candidate.
    pub(crate) fn literals_in(&self, scratch: &mut Scratch, data: &[u8], mut found: impl FnMut(u32)) -> bool {
        let scanned = self.set.scan(scratch, data, |literal, _end| {
            found(literal);
            true
        });
        scanned.is_ok()
    }

    /// The rules behind a literal.
    pub(crate) fn rules_of(&self, literal: u32) -> &[u32] {
        self.rules.get(literal as usize).map_or(&[], Vec::as_slice)
    }

    /// Adds all rules to `candidates`.
    pub(crate) fn every_rule(&self, candidates: &mut Candidates) {
        self.rules.iter().for_each(|rules| candidates.extend(rules));
    }

    /// Length of the longest literal: how far a scan of a growing value must reach back.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.set.longest()
    }
}

/// Rules worth evaluating, each once, in the order of evaluation after [`Candidates::sorted`].
#[derive(Debug, Default)]
pub struct Candidates {
    list: Vec<u32>,
    /// Those of them that are to be evaluated.
    kept: Vec<u32>,
    seen: Vec<u64>,
}

impl Candidates {
    /// Makes room for so many rules.
    pub fn reserve(&mut self, rules: usize) {
        self.seen.resize(rules.div_ceil(64), 0);
        self.list.reserve(64);
        self.kept.reserve(64);
    }

    /// Adds a rule.
    pub fn add(&mut self, rule: u32) {
        let word = (rule / 64) as usize;
        let bit = 1u64 << (rule % 64);
        if let Some(word) = self.seen.get_mut(word)
            && *word & bit == 0
        {
            *word |= bit;
            self.list.push(rule);
        }
    }

    /// Adds rules.
    pub fn extend(&mut self, rules: &[u32]) {
        for rule in rules {
            self.add(*rule);
        }
    }

    /// Whether a rule is among them.
    #[must_use]
    pub fn contains(&self, rule: u32) -> bool {
        self.seen.get((rule / 64) as usize).is_some_and(|w| w & 1 << (rule % 64) != 0)
    }

    /// The rules that `keep` keeps, in the order of evaluation.
    pub fn sorted(&mut self, keep: impl Fn(u32) -> bool) -> impl Iterator<Item = u32> {
        self.kept.clear();
        self.kept.extend(self.list.iter().copied().filter(|rule| keep(*rule)));
        self.kept.sort_unstable();
        self.kept.iter().copied()
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        for rule in self.list.drain(..) {
            if let Some(word) = self.seen.get_mut((rule / 64) as usize) {
                *word = 0;
            }
        }
    }
}

/// Literals of so many bytes may be searched for apart from longer ones.
const BRIEF: usize = 2;
/// A set of fewer literals is searched for one by one or by an automaton, byte by byte ([`bartizan_pattern::Config`]).
const APART_MIN: usize = 8;
/// So few are searched for one by one, which is quick.
const FEW: usize = 4;

/// A rule's number and its head's.
type RuleAndHead = (u32, u32);

/// Literals of one buffer while they are collected.
#[derive(Default)]
pub(crate) struct Collector {
    /// Literal (bytes, nocase) to rules.
    literals: BTreeMap<(Vec<u8>, bool), Vec<RuleAndHead>>,
}

impl Collector {
    /// Adds a rule by its fast pattern.
    pub(crate) fn add(&mut self, signature: &Member, index: u32) {
        if let Some(fast) = &signature.fast_pattern {
            let rules = self.literals.entry((fast.bytes.to_vec(), fast.nocase)).or_default();
            rules.push((index, signature.head));
        }
    }

    /// Adds a rule by another literal that must occur.
    pub(crate) fn add_literal(&mut self, literal: &Literal, signature: &Member, index: u32) {
        let rules = self.literals.entry((literal.bytes.to_vec(), literal.nocase)).or_default();
        rules.push((index, signature.head));
    }

    /// Adds all that another one has.
    pub(crate) fn add_all(&mut self, other: &Collector) {
        for (literal, rules) in &other.literals {
            self.literals.entry(literal.clone()).or_default().extend(rules);
        }
    }

    /// Whether it has none.
    pub(crate) fn is_empty(&self) -> bool {
        self.literals.is_empty()
    }

    /// Compiles them. `None`: there are none.
    pub(crate) fn build(self, compiler: &Compiler) -> Result<Option<Set>, BuildError> {
        if self.literals.is_empty() {
            return Ok(None);
        }
        let mut heads = Vec::new();
        for (_, head) in self.literals.values().flatten() {
            let word = (head / 64) as usize;
            if heads.len() <= word {
                heads.resize(word + 1, 0u64);
            }
            if let Some(word) = heads.get_mut(word) {
                *word |= 1 << (head % 64);
            }
        }
        let numbers = |rules: Vec<RuleAndHead>| rules.into_iter().map(|(number, _)| number).collect();
        let literals = self.literals.into_iter().map(|(literal, rules)| (literal, numbers(rules))).collect();
        Ok(Some(Set { heads, ..Set::new(literals, compiler)? }))
    }

    /// Compiles them into one set, or into two, with the shortest literals apart: those make a search of all others slower, and
    /// the rules behind them often concern few flows ([`Set::is_met`]).
    pub(crate) fn build_by_length(mut self, compiler: &Compiler) -> Result<Vec<Set>, BuildError> {
        let (brief, longer): (BTreeMap<_, _>, _) =
            self.literals.into_iter().partition(|((bytes, _), _)| bytes.len() <= BRIEF);
        let apart = longer.len() >= APART_MIN && (brief.len() <= FEW || brief.len() >= APART_MIN);
        let parts = if apart {
            vec![Collector { literals: longer }, Collector { literals: brief }]
        } else {
            self.literals = brief.into_iter().chain(longer).collect();
            vec![self]
        };
        let sets = parts.into_iter().filter_map(|part| part.build(compiler).transpose());
        sets.collect()
    }
}
