// SPDX-License-Identifier: Apache-2.0
//! Swaps of generations on a worker: the worker enters a generation between two frames, and can finish a
//! frame that another worker began in another generation, in that generation.
//!
//! Functions keep counters in their state of the generation; the counts outlive the state.
//!
//! A worker that leaves a generation frees its own states, never the chains, which live as long as a worker
//! runs them or a frame under way holds them.

use super::Runner;
use crate::chain::Chains;
use crate::tally::Tally;
use bartizan_base::{FunctionId, Timestamp};
use bartizan_function::contain::{contained, drop_contained};
use bartizan_function::{RuleCount, RuleName, WorkerState};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Weak};

/// Counters by function and name.
type FunctionCounterMap = BTreeMap<(&'static str, &'static str), u64>;

/// Packets counted for rules, by function and name, without rules that counted none. Their number is that of
/// the operators' rules, so a lookup must not visit all.
#[derive(Default)]
struct CountedRules(BTreeMap<&'static str, HashMap<Arc<RuleName>, u64>>);

impl CountedRules {
    fn add(&mut self, function: &'static str, name: &Arc<RuleName>, packets: u64) {
        if packets > 0 {
            let sum = self.0.entry(function).or_default().entry(Arc::clone(name)).or_default();
            *sum = sum.saturating_add(packets);
        }
    }

    fn of(&self, function: &str, name: &RuleName) -> u64 {
        self.0.get(function).and_then(|rules| rules.get(name)).copied().unwrap_or(0)
    }
}

/// Counts and states of earlier generations.
#[derive(Default)]
pub struct OldGenerations {
    /// Counters of states that no longer exist.
    counters: FunctionCounterMap,
    /// Counters of rules from states that no longer exist; once a generation is entered, only of its rules.
    rules: CountedRules,
    /// States of another generation, for frames that other workers began in that generation.
    visited: Option<(Weak<Chains>, Vec<WorkerState>)>,
    /// The worker is working in another generation.
    visiting: bool,
}

/// A worker's own generation, while it works in another one.
pub struct HomeGeneration {
    chains: Arc<Chains>,
    states: Vec<WorkerState>,
    /// Counts of the other generation's states at the beginning of the visit.
    before: FunctionCounterMap,
    before_rules: CountedRules,
}

impl OldGenerations {
    fn add(&mut self, function: &'static str, name: &'static str, value: u64) {
        // Most rules never count anything.
        if value > 0 {
            let sum = self.counters.entry((function, name)).or_default();
            *sum = sum.saturating_add(value);
        }
    }

    /// Drops the counts of rules that the generation does not have: a rule that returns starts at 0.
    fn forget_rules(&mut self, chains: &Chains, states: &[WorkerState]) {
        if self.rules.0.is_empty() {
            return;
        }
        let mut there = HashSet::new();
        visit_rules(chains, states, &mut |function, count| {
            there.insert((function, Arc::clone(count.name)));
        });
        for (function, rules) in &mut self.rules.0 {
            rules.retain(|name, _| there.contains(&(*function, Arc::clone(name))));
        }
    }

    /// Whether the worker works in another generation than its own.
    pub(super) const fn is_visiting(&self) -> bool {
        self.visiting
    }

    /// Replaces a function's state for the other generation, as the function is started anew.
    pub(super) fn forget_visited(&mut self, id: FunctionId) {
        let Some((of, states)) = &mut self.visited else { return };
        let made =
            of.upgrade().and_then(|chains| contained(|| chains.function(id).map(|f| f.worker())).ok()?);
        if let Some(state) = states.get_mut(usize::from(id.0)) {
            drop_contained(core::mem::replace(state, made.unwrap_or_else(|| Box::new(()))));
        }
    }

    fn get(&self, function: &'static str, name: &'static str) -> u64 {
        self.counters.get(&(function, name)).copied().unwrap_or(0)
    }
}

/// Each counter of the functions: function, counter, value.
fn visit(chains: &Chains, states: &[WorkerState], each: &mut dyn FnMut(&'static str, &'static str, u64)) {
    for function in &chains.functions {
        if let Some(state) = states.get(usize::from(function.id().0)) {
            let of = function.spec().name;
            // A function that panics here reports nothing.
            let _ = contained(|| function.log(state, &mut |name, value| each(of, name, value)));
        }
    }
}

/// Each counter of the functions' rules.
fn visit_rules(chains: &Chains, states: &[WorkerState], each: &mut dyn FnMut(&'static str, RuleCount<'_>)) {
    for function in &chains.functions {
        if let Some(state) = states.get(usize::from(function.id().0)) {
            let of = function.spec().name;
            let _ = contained(|| function.log_rules(state, &mut |count| each(of, count)));
        }
    }
}

impl Runner {
    /// Enters another generation. Called between frames.
    pub fn enter_generation(&mut self, chains: Arc<Chains>, now: Timestamp, tally: &mut Tally) {
        let past = &mut self.past;
        visit(&self.chains, &self.states, &mut |function, name, value| past.add(function, name, value));
        visit_rules(&self.chains, &self.states, &mut |function, rule| {
            past.rules.add(function, rule.name, rule.packets);
        });
        tally.leave(&self.chains, &self.states);
        tally.enter(&chains);
        let states = core::mem::replace(&mut self.states, chains.worker_states());
        self.past.visited = Some((Arc::downgrade(&self.chains), states));
        self.chains = chains;
        self.past.forget_rules(&self.chains, &self.states);
        self.begin_generation(now, tally);
    }

    /// Keeps the counts of a function's state, which is freed afterwards.
    pub(super) fn keep_counts_of(&mut self, id: FunctionId, tally: &mut Tally) {
        let chains = Arc::clone(&self.chains);
        let state = self.states.get(usize::from(id.0));
        let (Some(function), Some(state)) = (chains.function(id), state) else { return };
        let (of, past) = (function.spec().name, &mut self.past);
        let _ = contained(|| function.log(state, &mut |name, value| past.add(of, name, value)));
        let _ = contained(|| {
            function.log_rules(state, &mut |rule| past.rules.add(of, rule.name, rule.packets));
        });
        let _ = contained(|| tally.leave_one(function.as_ref(), state));
    }

    /// Works in another generation until [`Runner::end_visit`]. `None`: that generation is running already.
    pub fn begin_visit(&mut self, chains: &Arc<Chains>, tally: &mut Tally) -> Option<HomeGeneration> {
        if chains.generation == self.chains.generation {
            return None;
        }
        let states = match self.past.visited.take() {
            Some((of, states)) if Weak::as_ptr(&of) == Arc::as_ptr(chains) => states,
            _ => chains.worker_states(),
        };
        // The counts so far are part of the past, or 0.
        let mut before = FunctionCounterMap::new();
        visit(chains, &states, &mut |function, name, value| {
            if value > 0 {
                before.entry((function, name)).or_insert(value);
            }
        });
        let mut before_rules = CountedRules::default();
        visit_rules(chains, &states, &mut |function, rule| {
            before_rules.add(function, rule.name, rule.packets);
        });
        tally.enter(chains);
        tally.discount(chains, &states);
        self.past.visiting = true;
        Some(HomeGeneration {
            before,
            before_rules,
            chains: core::mem::replace(&mut self.chains, Arc::clone(chains)),
            states: core::mem::replace(&mut self.states, states),
        })
    }

    /// Returns to the worker's own generation.
    pub fn end_visit(&mut self, own: HomeGeneration, tally: &mut Tally) {
        self.past.visiting = false;
        let chains = core::mem::replace(&mut self.chains, own.chains);
        let states = core::mem::replace(&mut self.states, own.states);
        tally.leave(&chains, &states);
        tally.enter(&self.chains);
        let (before, before_rules) = (own.before, own.before_rules);
        let past = &mut self.past;
        visit(&chains, &states, &mut |function, name, value| {
            let known = before.get(&(function, name)).copied().unwrap_or(0);
            past.add(function, name, value.saturating_sub(known));
        });
        visit_rules(&chains, &states, &mut |function, rule| {
            let known = before_rules.of(function, rule.name);
            past.rules.add(function, rule.name, rule.packets.saturating_sub(known));
        });
        self.past.visited = Some((Arc::downgrade(&chains), states));
    }

    /// Frees the states for frames of another generation once no such frame can exist. Called between
    /// batches.
    pub fn forget_generation(&mut self) {
        if self.past.visited.as_ref().is_some_and(|(of, _)| of.strong_count() == 0) {
            self.past.visited = None;
        }
    }

    /// Counters of the functions, over all generations.
    pub fn visit_functions(&self, each: &mut dyn FnMut(&'static str, u64)) {
        self.visit_functions_by_name(&mut |_, name, value| each(name, value));
    }

    /// Counters of the functions with the function's name, over all generations.
    pub fn visit_functions_by_name(&self, each: &mut dyn FnMut(&'static str, &'static str, u64)) {
        let past = &self.past.counters;
        let mut told = BTreeSet::new();
        visit(&self.chains, &self.states, &mut |function, name, value| {
            if past.contains_key(&(function, name)) {
                told.insert((function, name));
            }
            each(function, name, value.saturating_add(self.past.get(function, name)));
        });
        for (&(function, name), value) in past.iter().filter(|(key, _)| !told.contains(*key)) {
            each(function, name, *value);
        }
    }

    /// Counters of the rules of the running generation with the function's name, over all generations since
    /// the rule exists.
    pub fn visit_rules(&self, each: &mut dyn FnMut(&'static str, RuleCount<'_>)) {
        visit_rules(&self.chains, &self.states, &mut |function, rule| {
            let past = self.past.rules.of(function, rule.name);
            each(function, RuleCount { packets: rule.packets.saturating_add(past), ..rule });
        });
    }
}
