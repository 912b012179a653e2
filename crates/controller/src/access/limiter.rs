// SPDX-License-Identifier: Apache-2.0
//! How often one source may fail: so many at once, then one every so often. Those that are good are never held up by others' failures.

use std::collections::HashMap;
use std::hash::Hash;

/// Failures that a source may have at once.
pub const BURST: u64 = 10;
/// Microseconds until it may have one more.
pub const REFILL_MICROS: u64 = 6_000_000;
/// Sources that are remembered; beyond, the one that failed longest ago is forgotten.
pub const SOURCES_MAX: usize = 4096;

/// Failures by source.
#[derive(Debug)]
pub struct Limiter<K> {
    /// Of each source when its failures are all forgiven.
    until: HashMap<K, u64>,
    /// The latest time seen: a clock that jumps back forgives nothing and punishes nobody.
    now: u64,
}

impl<K> Default for Limiter<K> {
    fn default() -> Self {
        Limiter { until: HashMap::new(), now: 0 }
    }
}

impl<K: Hash + Eq + Clone> Limiter<K> {
    /// Counts a failure at a time (microseconds); the seconds to wait when there were too many.
    pub fn fail(&mut self, source: &K, now: u64) -> Option<u64> {
        self.now = self.now.max(now);
        let now = self.now;
        if !self.until.contains_key(source) && self.until.len() >= SOURCES_MAX {
            self.forget(now);
        }
        let until = self.until.entry(source.clone()).or_insert(now);
        let after = (*until).max(now).saturating_add(REFILL_MICROS);
        let over = (after - now).saturating_sub(BURST * REFILL_MICROS);
        if over > 0 {
            return Some(over.div_ceil(1_000_000));
        }
        *until = after;
        None
    }

    fn forget(&mut self, now: u64) {
        self.until.retain(|_, until| *until > now);
        if self.until.len() >= SOURCES_MAX {
            let oldest = self.until.iter().min_by_key(|(_, until)| **until).map(|(source, _)| source.clone());
            if let Some(oldest) = oldest {
                self.until.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_bounded_and_come_back_with_time_only() {
        let mut limiter = Limiter::default();
        for _ in 0..BURST {
            assert_eq!(limiter.fail(&1, 1_000), None);
        }
        assert_eq!(limiter.fail(&1, 1_000), Some(6));
        assert_eq!(limiter.fail(&2, 1_000), None, "another source");
        assert_eq!(limiter.fail(&1, 0), Some(6), "the clock jumps back");
        assert_eq!(limiter.fail(&1, 1_000 + REFILL_MICROS), None);
        assert_eq!(limiter.fail(&1, 1_000 + REFILL_MICROS), Some(6));
    }

    #[test]
    fn sources_are_bounded() {
        let mut limiter = Limiter::default();
        for source in 0..3 * SOURCES_MAX {
            let _ = limiter.fail(&source, source as u64);
        }
        assert_eq!(limiter.until.len(), SOURCES_MAX);
    }
}
