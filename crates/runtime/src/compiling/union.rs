// SPDX-License-Identifier: Apache-2.0
//! One rule set for all libraries that choose of the same files: it has what any of them takes, and each sees
//! its part of it.
//!
//! Choices are compared as they are written, and what they leave out by id is looked at on its own: a tenant
//! that leaves out other rules than the tenants before has a rule set at once.

use super::Compiled;
use bartizan_agent::joined::Library;
use bartizan_detect::ruleset::Seen;
use bartizan_detect::visibility::Visibility;
use bartizan_rules::RuleFile;
use bartizan_rules::library::{Choice, Places, keep, places};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A set goes on that has twice as many rules as are taken of it, and so many more.
const SPARE: usize = 1_000;

/// What one list of choices brings.
struct Chosen {
    choices: Vec<Choice>,
    /// What it takes, with what is left out by id.
    places: Places,
    /// Ids that all who choose so leave out: not in the set, unless somebody else has chosen them.
    left_out: BTreeSet<u32>,
}

/// What is to be compiled for some libraries.
pub(super) struct Plan {
    chosen: Vec<Chosen>,
    /// Choices that take other rules under an id that is used: they are not among these.
    apart: Vec<Vec<Choice>>,
    has: Places,
}

impl Plan {
    /// For a library, and for all of its siblings that can share a set with it. `files`: theirs, with all
    /// rules.
    pub(super) fn new(files: &[RuleFile], library: &Library, siblings: &[&Library]) -> Self {
        let mut plan = Plan { chosen: Vec::new(), apart: Vec::new(), has: Places::new() };
        let mut left_out: Vec<(&[Choice], BTreeSet<u32>)> = Vec::new();
        for one in [library].iter().chain(siblings) {
            match left_out.iter_mut().find(|(choices, _)| *choices == one.choices()) {
                Some((_, ids)) => ids.retain(|id| one.except().contains(id)),
                None => left_out.push((one.choices(), one.except().clone())),
            }
        }
        for (choices, left_out) in left_out {
            plan.add(Chosen { choices: choices.to_vec(), places: places(files, choices), left_out });
        }
        plan
    }

    fn add(&mut self, chosen: Chosen) {
        let taken = || chosen.places.iter().filter(|(id, _)| !chosen.left_out.contains(id));
        if taken().any(|(id, place)| self.has.get(id).is_some_and(|other| other != place)) {
            self.apart.push(chosen.choices);
            return;
        }
        self.has.extend(taken());
        self.chosen.push(chosen);
    }

    /// Leaves in files what is to be compiled.
    pub(super) fn keep(&self, files: &mut [RuleFile]) {
        keep(files, &self.has, self.chosen.iter().any(|chosen| chosen.choices.is_empty()));
    }
}

/// A rule set of several libraries.
pub(super) struct Union {
    /// One of them, for their files.
    of: Library,
    variables: Value,
    chosen: Vec<Chosen>,
    apart: Vec<Vec<Choice>>,
    pub(super) compiled: Compiled,
}

impl Union {
    pub(super) fn new(of: Library, variables: Value, plan: Plan, compiled: Compiled) -> Self {
        Union { of, variables, chosen: plan.chosen, apart: plan.apart, compiled }
    }

    /// Whether it is of a library's files, and for these variables of tenants.
    pub(super) fn is_of(&self, library: &Library, variables: &Value) -> bool {
        self.of.has_files_of(library) && self.variables == *variables
    }

    /// Which of `chosen` is a library's.
    fn place(&self, library: &Library) -> Option<usize> {
        let fits = |chosen: &Chosen| {
            chosen.choices == library.choices() && chosen.left_out.is_subset(library.except())
        };
        self.chosen.iter().position(fits)
    }

    fn chosen(&self, library: &Library) -> Option<&Chosen> {
        self.place(library).and_then(|place| self.chosen.get(place))
    }

    /// Whether it has all that a library takes.
    pub(super) fn has(&self, library: &Library) -> bool {
        self.chosen(library).is_some()
    }

    /// Whether it is the best set for these libraries: all that can have it do, and it is not much larger
    /// than they need.
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

    /// What a library sees of it. `None`: it does not have all that the library takes.
    pub(super) fn seen(&self, library: &Library) -> Option<Seen> {
        let chosen = self.chosen(library)?;
        let rules = &self.compiled.rules;
        let sees = |sid: &u32| chosen.places.contains_key(sid) && !library.except().contains(sid);
        let visible = Visibility::of(&rules.signatures, |rule| sees(&rule.id.sid));
        let visible = (visible.count() < rules.signatures.len()).then(|| Arc::new(visible));
        Some(Seen { rules: Arc::clone(rules), visible })
    }
}
