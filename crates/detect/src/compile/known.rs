// SPDX-License-Identifier: Apache-2.0
//! Cache of compiled rules, shared between generations.
//!
//! Most rules of a new generation are those of the previous one. Both generations share them, so a reload
//! takes time and memory only for new rules. The cache holds a rule as long as some generation has it.
//!
//! Generations share only what depends on the rule's text and on inputs that are the same at all loads. A
//! rule compiled with other inputs (a dataset, a file, reputations) is compiled again at each load
//! ([`crate::compile::builder::Environment::outside`]); properties of the rule set (head, thresholds of a
//! file, position) are in [`crate::model::signature::Member`].

use crate::model::signature::Signature;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, Weak};

/// Compiled rules by their text. All loads that use one cache have the same settings, variables, classes,
/// reference systems and shared state.
#[derive(Default)]
pub struct RuleCache {
    hasher: RandomState,
    rules: Mutex<HashMap<u64, Weak<Signature>>>,
}

impl RuleCache {
    /// The rule with exactly this text, if some generation has it.
    pub(crate) fn find(&self, text: &[u8]) -> Option<Arc<Signature>> {
        let rules = self.rules.lock().ok()?;
        let known = rules.get(&self.hasher.hash_one(text))?.upgrade()?;
        (known.info.text.as_bytes() == text).then_some(known)
    }

    /// Adds a rule; the cache does not keep the rule alive.
    pub(crate) fn add(&self, text: &[u8], signature: &Arc<Signature>) {
        if let Ok(mut rules) = self.rules.lock() {
            rules.insert(self.hasher.hash_one(text), Arc::downgrade(signature));
        }
    }

    /// Removes rules that no generation has any more. Called after a generation is freed; otherwise the next
    /// load removes them.
    pub fn tidy(&self) {
        if let Ok(mut rules) = self.rules.lock() {
            rules.retain(|_, rule| rule.strong_count() > 0);
        }
    }
}
