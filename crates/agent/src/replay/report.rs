// SPDX-License-Identifier: Apache-2.0
//! The report of a replay: a row for each pair of recorded and new outcome; and the first flows whose verdict
//! changes.

use super::fates::ReplayFlow;
use super::outcome::{Amounts, FlowName, ReplayOutcome};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Most flows with changed verdicts that are listed.
pub const CHANGED_MAX: usize = 1_000;

/// A flow with both outcomes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Case {
    /// The flow.
    #[serde(flatten)]
    pub flow: FlowName,
    /// The recorded outcome, or that of the other generation.
    pub before: Option<ReplayOutcome>,
    /// The new outcome.
    pub after: ReplayOutcome,
}

impl Case {
    /// Whether the verdict changes; `false` if one of the two is unknown.
    #[must_use]
    pub fn changes(&self) -> bool {
        let before = self.before.as_ref().and_then(|before| before.verdict.forwards());
        match (before, self.after.verdict.forwards()) {
            (Some(before), Some(after)) => before != after,
            _ => false,
        }
    }
}

/// Flows with the same pair of outcomes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The recorded outcome.
    pub before: Option<ReplayOutcome>,
    /// The new outcome.
    pub after: ReplayOutcome,
    /// Number of flows, packets and bytes.
    #[serde(flatten)]
    pub amounts: Amounts,
}

/// The report; see the module.
#[derive(Debug, Default)]
pub struct ReplayReport {
    rows: BTreeMap<(ReplayOutcome, Option<ReplayOutcome>), Amounts>,
    /// All flows.
    pub all: Amounts,
    /// Flows whose verdict changes.
    pub changing: Amounts,
    /// Flows with an unknown outcome under one of the policies.
    pub undecided: Amounts,
    /// The first flows whose verdict changes.
    pub changed: Vec<Case>,
    /// Unreadable lines, by reason.
    pub unread: BTreeMap<String, u64>,
    /// Flows that only one of two generations has seen.
    pub unmatched: u64,
}

impl ReplayReport {
    /// Adds a flow.
    pub fn add(&mut self, case: Case, amounts: &Amounts) {
        self.all.add(amounts);
        let known = |outcome: &ReplayOutcome| outcome.verdict.forwards().is_some();
        if !known(&case.after) || case.before.as_ref().is_some_and(|before| !known(before)) {
            self.undecided.add(amounts);
        }
        self.rows.entry((case.after.clone(), case.before.clone())).or_default().add(amounts);
        if case.changes() {
            self.changing.add(amounts);
            if self.changed.len() < CHANGED_MAX {
                self.changed.push(case);
            }
        }
    }

    /// Adds the flows of two runs over the same captures, or of one run.
    pub fn add_runs(&mut self, before: Option<Vec<ReplayFlow>>, after: Vec<ReplayFlow>) {
        let compared = before.is_some();
        // Flows with equal identification are in different networks: they are paired in the order of their
        // ends.
        let mut known: HashMap<FlowName, Vec<ReplayOutcome>> = HashMap::new();
        for seen in before.into_iter().flatten().rev() {
            known.entry(seen.flow).or_default().push(seen.outcome);
        }
        for ReplayFlow { flow, outcome, amounts } in after {
            let before = known.get_mut(&flow).and_then(Vec::pop);
            self.unmatched += u64::from(compared && before.is_none());
            self.add(Case { flow, before, after: outcome }, &amounts);
        }
        self.unmatched += known.values().map(|left| left.len() as u64).sum::<u64>();
    }

    /// The rows, by policy.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        self.rows.iter().map(|((after, before), amounts)| Row {
            before: before.clone(),
            after: after.clone(),
            amounts: *amounts,
        })
    }

    /// Counts an unreadable line.
    pub fn not_read(&mut self, why: &str) {
        *self.unread.entry(why.to_owned()).or_default() += 1;
    }
}
