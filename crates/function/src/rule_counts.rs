// SPDX-License-Identifier: Apache-2.0
//! Counters of rules: they belong to a rule by its name, wherever it stands, and begin anew with it.

use std::sync::Arc;

/// The name of a rule's counter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleName {
    /// The policy.
    pub policy: String,
    /// The rule's own name, or one that is made of what it says; `default` for what no rule of the policy
    /// matches. One within the policy.
    pub rule: String,
}

/// The packets that a worker counted for a rule.
#[derive(Clone, Copy, Debug)]
pub struct RuleCount<'c> {
    /// Its name, shared with the generation.
    pub name: &'c Arc<RuleName>,
    /// Its place in the policy, from 1; 0 for the default.
    pub place: u32,
    /// Packets that it decided.
    pub packets: u64,
}
