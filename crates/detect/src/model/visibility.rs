// SPDX-License-Identifier: Apache-2.0
//! Which rules of a set a policy sees.
//!
//! Rules are compiled once for all tenants. One that has chosen other rules of the same files sees a part of
//! the set: a bit for each rule, which is asked where a rule is about to be evaluated. It costs a tenant
//! kilobytes, and its policies nothing to compile.

use crate::model::signature::Member;
use core::sync::atomic::{AtomicU64, Ordering};

/// Numbers of what flows may be inspected with; 0 is nobody's.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// A number that nothing else in the process has: of a rule set, or of what is seen of one.
pub(crate) fn number() -> u64 {
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

/// A part of a rule set.
#[derive(Debug)]
pub struct Visibility {
    number: u64,
    /// A bit for each rule, by its position.
    seen: Box<[u64]>,
    count: usize,
}

impl Visibility {
    /// Of these rules, in their order, those that `sees` says.
    #[must_use]
    pub fn of(rules: &[Member], sees: impl Fn(&Member) -> bool) -> Self {
        let mut seen = vec![0u64; rules.len().div_ceil(64)].into_boxed_slice();
        let mut count = 0;
        for (index, _) in rules.iter().enumerate().filter(|(_, rule)| sees(rule)) {
            if let Some(word) = seen.get_mut(index / 64) {
                *word |= 1 << (index % 64);
                count += 1;
            }
        }
        Visibility { number: number(), seen, count }
    }

    /// Whether a rule is seen, by its position in the set.
    #[inline]
    #[must_use]
    pub fn has(&self, rule: u32) -> bool {
        self.seen.get(rule as usize / 64).is_some_and(|word| word >> (rule % 64) & 1 == 1)
    }

    /// How many are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Its own number.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }
}
