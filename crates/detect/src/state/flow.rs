// SPDX-License-Identifier: Apache-2.0
//! State of rules per flow, and interned names.
//!
//! State that outlives a generation is keyed by interned name or gid:sid, never by position in a rule set.

use bartizan_applayer::memory::Held as _;
use bartizan_base::{Direction, Timestamp};
use bartizan_flow::host::{RuleKey, Tags};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::RwLock;

/// Interned names of flowbits, flowints, xbits and hostbits. The table lives as long as the program and only
/// grows, when rules are loaded.
#[derive(Debug, Default)]
pub struct Names {
    table: RwLock<InternTable>,
}

/// Numbers by name, names by number.
type InternTable = (HashMap<Box<str>, u32>, Vec<Box<str>>);

impl Names {
    /// The number of a name; assigns one if the name is new.
    pub fn intern(&self, name: &str) -> u32 {
        if let Ok(table) = self.table.read()
            && let Some(number) = table.0.get(name)
        {
            return *number;
        }
        let Ok(mut table) = self.table.write() else { return u32::MAX };
        if let Some(number) = table.0.get(name) {
            return *number;
        }
        let number = table.1.len() as u32;
        table.0.insert(name.into(), number);
        table.1.push(name.into());
        number
    }

    /// The name of a number.
    #[must_use]
    pub fn name(&self, number: u32) -> Option<String> {
        let table = self.table.read().ok()?;
        table.1.get(number as usize).map(|n| n.to_string())
    }
}

/// Limit of flow variables of one kind per flow; further variables are not set, and counted.
pub const VARIABLES_PER_FLOW_MAX: usize = 256;

/// State of a threshold that is tracked by flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCount {
    /// The rule.
    pub rule: RuleKey,
    /// Number of the tracking, which distinguishes the thresholds of a rule.
    pub part: u32,
    /// Matches counted; 0 for a new entry.
    pub count: u32,
    /// Start of the counting interval.
    pub started: Timestamp,
    /// Time since which a rate filter acts; zero if it does not.
    pub acting: Timestamp,
    /// Count at which a `backoff` reports next.
    pub next: u32,
}

/// State that rules keep for one flow.
#[derive(Clone, Debug, Default)]
pub struct FlowRuleState {
    /// Bits that are set, by interned name.
    bits: SmallVec<[u32; 4]>,
    /// Integers, by interned name.
    integers: SmallVec<[(u32, u32); 2]>,
    /// Captured values, by interned name.
    variables: Vec<(u32, Vec<u8>)>,
    /// Entropies, by interned name of the buffer.
    measures: Vec<(u32, f64)>,
    /// Bytes of memory that `variables` holds beside its entries.
    variables_held: usize,
    /// State of thresholds by flow.
    counts: Vec<FlowCount>,
    /// Active `tag:session`.
    pub tags: Tags,
    /// Number of variables that were not set for lack of room.
    pub refused: u64,
    /// Files of the flow are stored, by direction (`filestore` with the scope `flow`).
    pub store: bartizan_base::PerDirection<bool>,
    /// Sides whose certificates a rule requested (`tls.store`), until the request is passed to the flow's
    /// transaction.
    pub certificates: bartizan_base::PerDirection<bool>,
    /// A rule raised an alert in this flow.
    pub alerted: bool,
    /// The pass rule with flow scope that lets all further packets pass detection; in force as long as the
    /// rule exists.
    pub passed: Option<bartizan_base::RuleId>,
    /// The rule with which the firewall accepted the whole flow, or number 0 for a policy; in force as long
    /// as the rule exists.
    pub accepted: Option<bartizan_base::RuleId>,
    /// The rule that drops the rest of the flow; in force as long as the rule exists.
    pub dropped: Option<bartizan_base::RuleId>,
}

impl FlowRuleState {
    /// Whether a bit is set.
    #[must_use]
    pub fn bit(&self, name: u32) -> bool {
        self.bits.contains(&name)
    }

    /// Sets a bit.
    pub fn set_bit(&mut self, name: u32) {
        if !self.bits.contains(&name) {
            if self.bits.len() < VARIABLES_PER_FLOW_MAX {
                self.bits.push(name);
            } else {
                self.refused += 1;
            }
        }
    }

    /// Clears a bit.
    pub fn clear_bit(&mut self, name: u32) {
        self.bits.retain(|b| *b != name);
    }

    /// The bits in the order in which they were set.
    #[must_use]
    pub fn bits(&self) -> &[u32] {
        &self.bits
    }

    /// An integer.
    #[must_use]
    pub fn integer(&self, name: u32) -> Option<u32> {
        self.integers.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
    }

    /// Sets an integer.
    pub fn set_integer(&mut self, name: u32, value: u32) {
        if let Some(entry) = self.integers.iter_mut().find(|(n, _)| *n == name) {
            entry.1 = value;
        } else if self.integers.len() < VARIABLES_PER_FLOW_MAX {
            self.integers.push((name, value));
        } else {
            self.refused += 1;
        }
    }

    /// The integers in the order in which they were first set.
    #[must_use]
    pub fn integers(&self) -> &[(u32, u32)] {
        &self.integers
    }

    /// A captured value.
    #[must_use]
    pub fn variable(&self, name: u32) -> Option<&[u8]> {
        self.variables.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_slice())
    }

    /// Sets a captured value.
    pub fn set_variable(&mut self, name: u32, value: &[u8]) {
        let value = value.to_vec();
        let held = value.held();
        if let Some(entry) = self.variables.iter_mut().find(|(n, _)| *n == name) {
            self.variables_held = self.variables_held.saturating_sub(entry.1.held());
            entry.1 = value;
        } else if self.variables.len() < VARIABLES_PER_FLOW_MAX {
            self.variables.push((name, value));
        } else {
            self.refused += 1;
            return;
        }
        self.variables_held = self.variables_held.saturating_add(held);
    }

    /// Stores a number that was computed from a buffer.
    pub fn set_measure(&mut self, name: u32, value: f64) {
        if let Some(entry) = self.measures.iter_mut().find(|(n, _)| *n == name) {
            entry.1 = value;
        } else if self.measures.len() < VARIABLES_PER_FLOW_MAX {
            self.measures.push((name, value));
        } else {
            self.refused += 1;
        }
    }

    /// Numbers computed from buffers (`entropy`), in the order of their first computation.
    #[must_use]
    pub fn measures(&self) -> &[(u32, f64)] {
        &self.measures
    }

    /// The count of a threshold by flow, created if missing. `None`: the bound is reached, which is counted.
    pub fn count(&mut self, rule: RuleKey, part: u32) -> Option<&mut FlowCount> {
        let place = self.counts.iter().position(|c| c.rule == rule && c.part == part);
        if place.is_none() {
            if self.counts.len() >= VARIABLES_PER_FLOW_MAX {
                self.refused += 1;
                return None;
            }
            self.counts.push(FlowCount { rule, part, ..FlowCount::default() });
        }
        match place {
            Some(place) => self.counts.get_mut(place),
            None => self.counts.last_mut(),
        }
    }

    /// Bytes of memory held outside of the structure itself.
    pub(crate) fn held(&self) -> usize {
        let lists = self.bits.held().saturating_add(self.integers.held()).saturating_add(self.counts.held());
        let values = self.variables.held().saturating_add(self.variables_held);
        lists.saturating_add(values).saturating_add(self.measures.held())
    }

    /// The captured values.
    #[must_use]
    pub fn variables(&self) -> &[(u32, Vec<u8>)] {
        &self.variables
    }

    /// Index of a direction in arrays of two.
    #[must_use]
    pub const fn side(direction: Direction) -> usize {
        direction as usize
    }
}
