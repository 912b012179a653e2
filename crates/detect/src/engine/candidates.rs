// SPDX-License-Identifier: Apache-2.0
//! The rules that a scan finds worth evaluating.

use crate::compile::groups::HeadGroup;
use crate::model::prefilter::Set;
use bartizan_pattern::Scratch;

impl Set {
    /// Whether a flow of this group can meet the head of one of the rules; without a group, yes. If not, the
    /// scan can be skipped.
    #[must_use]
    pub fn is_met(&self, group: Option<HeadGroup<'_>>) -> bool {
        let Some(group) = group.filter(|_| !self.heads.is_empty()) else { return true };
        (0..).zip(&self.heads).any(|(word, heads)| group.word(word) & heads != 0)
    }

    /// Adds the rules whose literal occurs to `candidates`.
    pub fn scan(&self, scratch: &mut Scratch, data: &[u8], candidates: &mut Candidates) {
        if !self.literals_in(scratch, data, |literal| candidates.extend(self.rules_of(literal))) {
            self.every_rule(candidates);
        }
    }

    /// Calls `found` with the number of each literal that occurs. Returns `false` if the scan failed (no
    /// scratch memory); then every rule is a candidate, so that none is missed.
    pub(crate) fn literals_in(&self, scratch: &mut Scratch, data: &[u8], mut found: impl FnMut(u32)) -> bool {
        let scanned = self.set.scan(scratch, data, |literal, _end| {
            found(literal);
            true
        });
        scanned.is_ok()
    }

    /// The rules that need a literal.
    pub(crate) fn rules_of(&self, literal: u32) -> &[u32] {
        self.rules.get(literal as usize).map_or(&[], Vec::as_slice)
    }

    /// Adds all rules to `candidates`.
    pub(crate) fn every_rule(&self, candidates: &mut Candidates) {
        self.rules.iter().for_each(|rules| candidates.extend(rules));
    }
}

/// Rules worth evaluating, each once, in the order of evaluation after [`Candidates::sorted`].
#[derive(Debug, Default)]
pub struct Candidates {
    list: Vec<u32>,
    /// Candidates that are to be evaluated.
    kept: Vec<u32>,
    seen: Vec<u64>,
}

impl Candidates {
    /// Reserves memory for a number of rules.
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

    /// Whether a rule is a candidate.
    #[must_use]
    pub fn contains(&self, rule: u32) -> bool {
        self.seen.get((rule / 64) as usize).is_some_and(|w| w & 1 << (rule % 64) != 0)
    }

    /// The candidates for which `keep` holds, in the order of evaluation.
    pub fn sorted(&mut self, keep: impl Fn(u32) -> bool) -> impl Iterator<Item = u32> {
        self.kept.clear();
        self.kept.extend(self.list.iter().copied().filter(|rule| keep(*rule)));
        self.kept.sort_unstable();
        self.kept.iter().copied()
    }

    /// Removes all candidates.
    pub fn clear(&mut self) {
        for rule in self.list.drain(..) {
            if let Some(word) = self.seen.get_mut((rule / 64) as usize) {
                *word = 0;
            }
        }
    }
}
