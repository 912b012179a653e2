// SPDX-License-Identifier: Apache-2.0
//! What a replay found: a row for each policy, what was said and what is said now; and the flows whose
//! verdict changes, so many of them.

use super::fates::Seen;
use super::outcome::{Amounts, FlowName, Outcome};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Flows whose verdict changes that are listed.
pub const CHANGED_MAX: usize = 1_000;

/// A flow with both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Case {
    /// Which flow.
    #[serde(flatten)]
    pub flow: FlowName,
    /// What became of it, or what the other generation says.
    pub before: Option<Outcome>,
    /// What would become of it.
    pub after: Outcome,
}

impl Case {
    /// Whether the verdict is another one; not where one of the two is not known.
    #[must_use]
    pub fn changes(&self) -> bool {
        let before = self.before.as_ref().and_then(|before| before.fate.goes_on());
        match (before, self.after.fate.goes_on()) {
            (Some(before), Some(after)) => before != after,
            _ => false,
        }
    }
}

/// Flows of which the same was said and is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// What was said.
    pub before: Option<Outcome>,
    /// What is said.
    pub after: Outcome,
    /// How many.
    #[serde(flatten)]
    pub amounts: Amounts,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Report {
    rows: BTreeMap<(Outcome, Option<Outcome>), Amounts>,
    /// All of them.
    pub all: Amounts,
    /// Those whose verdict changes.
    pub changing: Amounts,
    /// Those of which one of the two is not known.
    pub undecided: Amounts,
    /// The first of those whose verdict changes.
    pub changed: Vec<Case>,
    /// Lines that could not be read: why, and how many.
    pub unread: BTreeMap<String, u64>,
    /// Flows that only one of two generations has seen.
    pub unmatched: u64,
}

impl Report {
    /// One more flow.
    pub fn add(&mut self, case: Case, amounts: &Amounts) {
        self.all.add(amounts);
        let known = |outcome: &Outcome| outcome.fate.goes_on().is_some();
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

    /// The flows of two runs over the same captures, or of one.
    pub fn add_runs(&mut self, before: Option<Vec<Seen>>, after: Vec<Seen>) {
        let compared = before.is_some();
        // Flows of one name that began at the same moment are in different networks: in the order of their
        // ends.
        let mut known: HashMap<FlowName, Vec<Outcome>> = HashMap::new();
        for seen in before.into_iter().flatten().rev() {
            known.entry(seen.flow).or_default().push(seen.outcome);
        }
        for Seen { flow, outcome, amounts } in after {
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

    /// A line could not be read.
    pub fn not_read(&mut self, why: &str) {
        *self.unread.entry(why.to_owned()).or_default() += 1;
    }
}
