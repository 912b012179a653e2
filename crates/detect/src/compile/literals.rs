// SPDX-License-Identifier: Apache-2.0
//! Collects the literals of a buffer with the rules that need them, and compiles the literals to sets.

use crate::model::content::Literal;
use crate::model::prefilter::Set;
use crate::model::signature::Member;
use bartizan_pattern::{BuildError, Compiler, Matches, Pattern};
use std::collections::BTreeMap;

impl Set {
    /// Compiles literals, each with its caselessness and its rules.
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
}

/// Literals of at most this many bytes may be searched for apart from longer ones.
pub(crate) const BRIEF: usize = 2;
/// A set of fewer literals is searched one by one or by an automaton, byte by byte
/// ([`bartizan_pattern::Config`]).
const APART_MIN: usize = 8;
/// So few literals are searched one by one, which is quick.
const FEW: usize = 4;

/// A rule's number and the number of its head.
pub(crate) type RuleAndHead = (u32, u32);

/// Collects the literals of one buffer.
#[derive(Default)]
pub(crate) struct LiteralCollector {
    /// Literal (bytes, nocase) to rules.
    literals: BTreeMap<(Vec<u8>, bool), Vec<RuleAndHead>>,
}

impl LiteralCollector {
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

    /// Adds all literals of another collector.
    pub(crate) fn add_all(&mut self, other: &LiteralCollector) {
        for (literal, rules) in &other.literals {
            self.literals.entry(literal.clone()).or_default().extend(rules);
        }
    }

    /// Whether the collector has no literals.
    pub(crate) fn is_empty(&self) -> bool {
        self.literals.is_empty()
    }

    /// Compiles the literals. `None`: there are none.
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

    /// Compiles the literals into one set, or into two with the shortest literals apart: short literals slow
    /// down the search for all others, and their rules often concern few flows ([`Set::is_met`]).
    pub(crate) fn build_by_length(mut self, compiler: &Compiler) -> Result<Vec<Set>, BuildError> {
        let (brief, longer): (BTreeMap<_, _>, _) =
            self.literals.into_iter().partition(|((bytes, _), _)| bytes.len() <= BRIEF);
        let apart = longer.len() >= APART_MIN && (brief.len() <= FEW || brief.len() >= APART_MIN);
        let parts = if apart {
            vec![LiteralCollector { literals: longer }, LiteralCollector { literals: brief }]
        } else {
            self.literals = brief.into_iter().chain(longer).collect();
            vec![self]
        };
        let sets = parts.into_iter().filter_map(|part| part.build(compiler).transpose());
        sets.collect()
    }
}
