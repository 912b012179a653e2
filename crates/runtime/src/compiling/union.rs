// SPDX-License-Identifier: Apache-2.0
//! One rule set for all libraries that choose from the same files: it has every rule that one of them takes,
//! and each library sees its part.
//!
//! Choices are compared as text, except for the ids that they leave out: a tenant that leaves out other rules
//! than earlier tenants has a rule set at once.

use super::CompiledRuleSet;
use bartizan_agent::joined::Library;
use bartizan_detect::ruleset::VisibleRules;
use bartizan_detect::visibility::Visibility;
use bartizan_rules::RuleFile;
use bartizan_rules::library::{Places, RuleSelector, keep, places};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A set is kept while it has at most twice the rules that are taken, and this many more.
const SPARE: usize = 1_000;

/// The rules of one list of choices.
struct LibrarySelection {
    choices: Vec<RuleSelector>,
    /// The chosen rules, including those that are left out by id.
    places: Places,
    /// Ids that all libraries with these choices leave out: not in the set, unless other choices take them.
    left_out: BTreeSet<u32>,
}

/// The rules to be compiled for some libraries.
pub(super) struct UnionPlan {
    chosen: Vec<LibrarySelection>,
    /// Choices that take another rule under an id that is in use: their libraries do not share the set.
    apart: Vec<Vec<RuleSelector>>,
    has: Places,
}

impl UnionPlan {
    /// A plan for a library, and for all siblings that can share a set with it. `files`: their files, with
    /// all rules.
    pub(super) fn new(files: &[RuleFile], library: &Library, siblings: &[&Library]) -> Self {
        let mut plan = UnionPlan { chosen: Vec::new(), apart: Vec::new(), has: Places::new() };
        let mut left_out: Vec<(&[RuleSelector], BTreeSet<u32>)> = Vec::new();
        for one in [library].iter().chain(siblings) {
            match left_out.iter_mut().find(|(choices, _)| *choices == one.choices()) {
                Some((_, ids)) => ids.retain(|id| one.except().contains(id)),
                None => left_out.push((one.choices(), one.except().clone())),
            }
        }
        for (choices, left_out) in left_out {
            plan.add(LibrarySelection {
                choices: choices.to_vec(),
                places: places(files, choices),
                left_out,
            });
        }
        plan
    }

    fn add(&mut self, chosen: LibrarySelection) {
        let taken = || chosen.places.iter().filter(|(id, _)| !chosen.left_out.contains(id));
        if taken().any(|(id, place)| self.has.get(id).is_some_and(|other| other != place)) {
            self.apart.push(chosen.choices);
            return;
        }
        self.has.extend(taken());
        self.chosen.push(chosen);
    }

    /// Reduces files to the rules to be compiled.
    pub(super) fn keep(&self, files: &mut [RuleFile]) {
        keep(files, &self.has, self.chosen.iter().any(|chosen| chosen.choices.is_empty()));
    }
}

/// A rule set of several libraries.
pub(super) struct Union {
    /// One of the libraries, which stands for the files of all.
    of: Library,
    variables: Value,
    chosen: Vec<LibrarySelection>,
    apart: Vec<Vec<RuleSelector>>,
    pub(super) compiled: CompiledRuleSet,
}

impl Union {
    pub(super) fn new(of: Library, variables: Value, plan: UnionPlan, compiled: CompiledRuleSet) -> Self {
        Union { of, variables, chosen: plan.chosen, apart: plan.apart, compiled }
    }

    /// Whether the set has the files of a library, with these variables of tenants.
    pub(super) fn is_of(&self, library: &Library, variables: &Value) -> bool {
        self.of.has_files_of(library) && self.variables == *variables
    }

    /// Index in `chosen` of a library's choices.
    fn place(&self, library: &Library) -> Option<usize> {
        let fits = |chosen: &LibrarySelection| {
            chosen.choices == library.choices() && chosen.left_out.is_subset(library.except())
        };
        self.chosen.iter().position(fits)
    }

    fn chosen(&self, library: &Library) -> Option<&LibrarySelection> {
        self.place(library).and_then(|place| self.chosen.get(place))
    }

    /// Whether the set has all rules that a library takes.
    pub(super) fn has(&self, library: &Library) -> bool {
        self.chosen(library).is_some()
    }

    /// Whether the set suits these libraries: it has the rules of all that can share it, and is not much
    /// larger than necessary.
    pub(super) fn is_for(&self, libraries: &[&Library]) -> bool {
        let (mut used, mut needed) = (BTreeSet::new(), 0usize);
        for library in libraries {
            match self.place(library) {
                Some(place) if !used.insert(place) => {}
                Some(place) => needed += self.chosen.get(place).map_or(0, |chosen| chosen.places.len()),
                None if self.apart.iter().any(|choices| choices == library.choices()) => {}
                None => return false,
            }
        }
        let rules = self.compiled.rules.signatures.len();
        rules <= needed.saturating_mul(2).saturating_add(SPARE)
    }

    /// The part of the set that a library sees. `None`: the set lacks rules that the library takes.
    pub(super) fn seen(&self, library: &Library) -> Option<VisibleRules> {
        let chosen = self.chosen(library)?;
        let rules = &self.compiled.rules;
        let sees = |sid: &u32| chosen.places.contains_key(sid) && !library.except().contains(sid);
        let visible = Visibility::of(&rules.signatures, |rule| sees(&rule.id.sid));
        let visible = (visible.count() < rules.signatures.len()).then(|| Arc::new(visible));
        Some(VisibleRules { rules: Arc::clone(rules), visible })
    }
}
