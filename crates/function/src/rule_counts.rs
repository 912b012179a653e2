// SPDX-License-Identifier: Apache-2.0
//! Counters of rules: a counter belongs to a rule by its name, at any position, and restarts with the rule.

use std::sync::Arc;

/// The name of a rule's counter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleName {
    /// The policy.
    pub policy: String,
    /// The rule's own name, or one made of its content; `default` for packets that no rule of the policy
    /// matches. Unique within the policy.
    pub rule: String,
}

/// The packets that a worker counted for a rule.
#[derive(Clone, Copy, Debug)]
pub struct RuleCount<'c> {
    /// The rule's name, shared with the generation.
    pub name: &'c Arc<RuleName>,
    /// The rule's position in the policy, from 1; 0 for the default.
    pub place: u32,
    /// Packets that the rule decided.
    pub packets: u64,
}
