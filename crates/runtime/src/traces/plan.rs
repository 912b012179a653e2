// SPDX-License-Identifier: Apache-2.0
//! The rule of a trace in a generation: the rule set that has it, and the classes of flows that use it.

use crate::load;
use bartizan_base::{Generation, SettingsMap};
use bartizan_detect::builder::Origin;
use bartizan_detect::explain::trace::{AppliedRule, TracedRule};
use bartizan_detect::ruleset::{RuleSet, origins};
use bartizan_detect::signature::Member;
use bartizan_function::{PacketContext, RuleInfo};
use bartizan_functions::ids_kind::{SetInUse, SetsInUse};
use bartizan_rules::parse_file;
use bartizan_stages::chain::Chains;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A rule as operators name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleNumber {
    /// Group of the rule; `None`: any group with the sid.
    pub gid: Option<u32>,
    /// Number of the rule within its group.
    pub sid: u32,
}

impl core::fmt::Display for RuleNumber {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.gid {
            Some(gid) => write!(f, "{gid}:{}", self.sid),
            None => write!(f, "{}", self.sid),
        }
    }
}

/// A traced rule, as answers show it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RuleLabel {
    /// gid:sid:rev.
    pub rule: String,
    /// `msg`.
    pub message: String,
}

/// Reasons why a rule cannot be traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoRule {
    /// No chain has detection.
    NoDetection,
    /// No rule set has the rule: the number of rules, and the nearest sid.
    Unknown(usize, Option<u32>),
    /// Several gids have the sid.
    Ambiguous(Vec<String>),
}

/// The configuration with which traced rules are compiled.
pub struct Keywords {
    /// The base that rules are compiled with.
    pub base: Arc<load::Base>,
    /// The settings that rules are compiled with.
    pub settings: SettingsMap,
}

impl Keywords {
    /// The keywords that a rule's conditions come from. Empty if the rule needs a tenant's own variables.
    fn origins(&self, info: &RuleInfo) -> Vec<Origin> {
        let file = parse_file(info.text.as_bytes(), "the traced rule");
        file.rules
            .first()
            .map(|rule| origins(rule, &self.base.input(&self.settings, &[])))
            .unwrap_or_default()
    }
}

/// The traced rule of each rule set of a generation.
pub struct TracePlan {
    /// The requested rule.
    pub wanted: RuleNumber,
    /// The generation.
    pub generation: Generation,
    sets: SetsInUse,
    /// Traced rules by rule set.
    rules: Vec<Option<Arc<TracedRule>>>,
}

impl TracePlan {
    /// Finds the rule in the rule sets of a generation.
    pub fn new(chains: &Chains, rule: RuleNumber, keywords: &Keywords) -> Result<Self, NoRule> {
        let sets = chains.functions.iter().find_map(|function| SetsInUse::of(function.as_ref()));
        let sets = sets.ok_or(NoRule::NoDetection)?;
        let (mut found, mut gids) = (Vec::new(), BTreeSet::new());
        let mut rules = Vec::with_capacity(sets.sets().len());
        for set in sets.sets() {
            rules.push(traced(set, rule, &mut found, &mut gids, keywords));
        }
        match gids.len() {
            0 => {
                let (count, nearest) = nearest(sets.sets(), rule.sid);
                Err(NoRule::Unknown(count, nearest))
            }
            1 => Ok(TracePlan { wanted: rule, generation: chains.generation, sets, rules }),
            _ => Err(NoRule::Ambiguous(gids.iter().map(|gid| format!("{gid}:{}", rule.sid)).collect())),
        }
    }

    /// The rule to evaluate on a packet.
    pub fn rule(&self, context: &PacketContext<'_>) -> Option<AppliedRule<'_>> {
        let place = self.sets.place(context.notes.fid, context.facts.flow.is_some())?;
        let rule = self.rules.get(place)?.as_deref()?;
        let detect_only = self.sets.sets().get(place).is_some_and(|set| set.detect_only);
        Some(AppliedRule { rule, prevention: context.facts.prevention && !detect_only })
    }

    /// Labels of the rules, each once.
    pub fn labels(&self) -> BTreeSet<RuleLabel> {
        let signatures = self.rules.iter().flatten().filter_map(|rule| rule.signature());
        signatures.map(|s| RuleLabel { rule: s.id.to_string(), message: s.info.message.clone() }).collect()
    }
}

/// The rules with the number in a rule set that several classes may share, by their indices.
struct Candidates {
    rules: Arc<RuleSet>,
    places: Vec<usize>,
    /// The plans that are ready, with their indices.
    ready: Vec<(usize, Arc<TracedRule>)>,
}

/// The first rule with the number that a set shows. `gids`: the groups of all such rules.
fn traced(
    set: &SetInUse,
    rule: RuleNumber,
    found: &mut Vec<Candidates>,
    gids: &mut BTreeSet<u32>,
    keywords: &Keywords,
) -> Option<Arc<TracedRule>> {
    let rules = &set.seen.rules;
    let known = found.iter().position(|found| Arc::ptr_eq(&found.rules, rules));
    let at = known.unwrap_or_else(|| {
        let is_it = |signature: &Member| {
            signature.id.sid == rule.sid && rule.gid.is_none_or(|gid| signature.id.gid == gid)
        };
        let all = rules.signatures.iter().enumerate();
        let places = all.filter(|(_, signature)| is_it(signature)).map(|(place, _)| place).collect();
        found.push(Candidates { rules: Arc::clone(rules), places, ready: Vec::new() });
        found.len() - 1
    });
    let found = found.get_mut(at)?;
    let shows =
        |place: usize| set.seen.visible.as_ref().is_none_or(|v| u32::try_from(place).is_ok_and(|p| v.has(p)));
    let shown = found.places.iter().copied().filter(|place| shows(*place));
    gids.extend(
        shown.clone().filter_map(|place| rules.signatures.get(place)).map(|signature| signature.id.gid),
    );
    let place = shown.clone().next()?;
    if let Some((_, ready)) = found.ready.iter().find(|(of, _)| *of == place) {
        return Some(Arc::clone(ready));
    }
    let origins = keywords.origins(&rules.signatures.get(place)?.info);
    let ready = Arc::new(TracedRule::at(Arc::clone(rules), place, origins));
    found.ready.push((place, Arc::clone(&ready)));
    Some(ready)
}

/// The number of rules of the sets, each set once, and the sid nearest to one.
fn nearest(sets: &[SetInUse], sid: u32) -> (usize, Option<u32>) {
    let mut looked: Vec<&Arc<RuleSet>> = Vec::new();
    let (mut count, mut nearest) = (0, None);
    for SetInUse { seen, .. } in sets {
        if looked.iter().any(|rules| Arc::ptr_eq(rules, &seen.rules)) {
            continue;
        }
        looked.push(&seen.rules);
        count += seen.rules.signatures.len();
        let own = seen.rules.signatures.iter().map(|signature| signature.id.sid);
        nearest = nearest.into_iter().chain(own).min_by_key(|own: &u32| own.abs_diff(sid));
    }
    (count, nearest)
}
