// SPDX-License-Identifier: Apache-2.0
//! The part of a rule set that a policy sees.
//!
//! Rules are compiled once for all tenants. A tenant that has chosen other rules of the same files sees a
//! part of the set: a bit for each rule, which is tested before a rule is evaluated. This costs kilobytes per
//! tenant and no compilation.

use crate::model::signature::Member;
use core::sync::atomic::{AtomicU64, Ordering};

/// Next number for a rule set or a part of one; 0 is never given.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// A number that is unique in the process, for a rule set or its visible part.
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
    /// The part of the rules, in their order, for which `sees` holds.
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

    /// Whether a rule is visible, by its position in the set.
    #[inline]
    #[must_use]
    pub fn has(&self, rule: u32) -> bool {
        self.seen.get(rule as usize / 64).is_some_and(|word| word >> (rule % 64) & 1 == 1)
    }

    /// Number of visible rules.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// The part's unique number.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }
}
