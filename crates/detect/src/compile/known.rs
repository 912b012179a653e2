// SPDX-License-Identifier: Apache-2.0
//! Rules that are compiled already.
//!
//! A new generation has most rules as the one before had them. Those are not compiled again: both generations
//! share them, so a reload takes the time and the memory of what is new. A rule is kept here as long as a
//! generation has it.
//!
//! Only what comes of the rule's text, and of what is the same at all loads, is shared: a rule that was
//! compiled with something from outside (a dataset, a file, reputations) is compiled anew each time
//! ([`crate::compile::builder::Environment::outside`]), and what belongs to a set (its head, thresholds of a
//! file, its place) is no part of it ([`crate::model::signature::Member`]).

use crate::model::signature::Signature;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, Weak};

/// Compiled rules by their text. For loads with the same settings, variables, classes, reference systems and
/// shared state.
#[derive(Default)]
pub struct Known {
    hasher: RandomState,
    rules: Mutex<HashMap<u64, Weak<Signature>>>,
}

impl Known {
    /// The rule with exactly this text, if some generation has it.
    pub(crate) fn find(&self, text: &[u8]) -> Option<Arc<Signature>> {
        let rules = self.rules.lock().ok()?;
        let known = rules.get(&self.hasher.hash_one(text))?.upgrade()?;
        (known.info.text.as_bytes() == text).then_some(known)
    }

    /// Keeps a rule for as long as it lives.
    pub(crate) fn add(&self, text: &[u8], signature: &Arc<Signature>) {
        if let Ok(mut rules) = self.rules.lock() {
            rules.insert(self.hasher.hash_one(text), Arc::downgrade(signature));
        }
    }

    /// Lets go of rules that no generation has any more. For who frees a generation; otherwise the next load
    /// does it.
    pub fn tidy(&self) {
        if let Ok(mut rules) = self.rules.lock() {
            rules.retain(|_, rule| rule.strong_count() > 0);
        }
    }
}
