// SPDX-License-Identifier: Apache-2.0
//! Sets of literals, the rules behind each, and the rules that a scan finds worth evaluating.

use crate::content::Literal;
use crate::signature::Signature;
use bartizan_pattern::{BuildError, Compiler, Matches, Pattern, PatternSet, Scratch};
use std::collections::BTreeMap;

/// Literals of one buffer and the rules behind each.
pub struct Set {
    set: PatternSet,
    /// Rules of each literal, by its number in the set.
    rules: Vec<Vec<u32>>,
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
        Ok(Set { set, rules: literals.into_values().collect() })
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

/// Literals of one buffer while they are collected.
#[derive(Default)]
pub(crate) struct Collector {
    /// Literal (bytes, nocase) to rules.
    literals: BTreeMap<(Vec<u8>, bool), Vec<u32>>,
}

impl Collector {
    /// Adds a rule by its fast pattern.
    pub(crate) fn add(&mut self, signature: &Signature, index: u32) {
        if let Some(fast) = &signature.fast_pattern {
            self.literals.entry((fast.bytes.to_vec(), fast.nocase)).or_default().push(index);
        }
    }

    /// Adds a rule by another literal that must occur.
    pub(crate) fn add_literal(&mut self, literal: &Literal, index: u32) {
        self.literals.entry((literal.bytes.to_vec(), literal.nocase)).or_default().push(index);
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
        Set::new(self.literals, compiler).map(Some)
    }
}
