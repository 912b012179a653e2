// SPDX-License-Identifier: Apache-2.0
//! How often one source may do something (fail, change what it says): so many at once, then one every so
//! often. None is held up by others.

use std::collections::HashMap;
use std::hash::Hash;

/// How often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// So many at once.
    pub burst: u64,
    /// Microseconds until one more.
    pub refill: u64,
}

impl Rate {
    /// The microseconds by which one more would be too early for a source that has all of its burst again at
    /// a time; `None`: it may.
    fn over(self, until: u64, now: u64) -> Option<u64> {
        let after = until.max(now).saturating_add(self.refill);
        let over = (after - now).saturating_sub(self.burst.saturating_mul(self.refill));
        (over > 0).then_some(over)
    }
}

/// How often a source may fail.
pub const FAILED: Rate = Rate { burst: 10, refill: 6_000_000 };
/// How often what is said of a tenant may be changed by its own tokens: at once all policies and groups that
/// it may have unless told otherwise, and so seldom later that the history of others is not pushed out in a
/// day.
pub const WRITES: Rate = Rate { burst: 2_000, refill: 5_000_000 };
/// Sources that are remembered; beyond, the one that comes to rest first is forgotten.
pub const SOURCES_MAX: usize = 4096;

/// What sources did.
#[derive(Debug)]
pub struct Limiter<K> {
    rate: Rate,
    /// Of each source when it has all of its burst again.
    until: HashMap<K, u64>,
}

impl<K: Hash + Eq + Clone> Limiter<K> {
    /// One that has seen nobody.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Limiter { rate, until: HashMap::new() }
    }

    /// The seconds to wait until one more may be taken; nothing is counted.
    #[must_use]
    pub fn wait(&self, source: &K, now: u64) -> Option<u64> {
        let until = self.until.get(source).copied().unwrap_or(now);
        self.rate.over(until, now).map(|over| over.div_ceil(1_000_000))
    }

    /// Counts one at a time (microseconds of a clock that never goes back); the seconds to wait when there
    /// were too many.
    pub fn take(&mut self, source: &K, now: u64) -> Option<u64> {
        if !self.until.contains_key(source) && self.until.len() >= SOURCES_MAX {
            self.forget(now);
        }
        let until = self.until.entry(source.clone()).or_insert(now);
        if let Some(over) = self.rate.over(*until, now) {
            return Some(over.div_ceil(1_000_000));
        }
        *until = (*until).max(now).saturating_add(self.rate.refill);
        None
    }

    /// Gives back one that was taken and not needed.
    pub fn give_back(&mut self, source: &K) {
        if let Some(until) = self.until.get_mut(source) {
            *until = until.saturating_sub(self.rate.refill);
        }
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
        let mut limiter = Limiter::new(FAILED);
        for _ in 0..FAILED.burst {
            assert_eq!(limiter.take(&1, 1_000), None);
        }
        assert_eq!((limiter.wait(&1, 1_000), limiter.wait(&2, 1_000)), (Some(6), None));
        assert_eq!(limiter.take(&1, 1_000), Some(6));
        assert_eq!(limiter.take(&2, 1_000), None, "another source");
        assert_eq!(limiter.wait(&1, 1_000 + FAILED.refill), None, "a look costs nothing");
        assert_eq!(limiter.take(&1, 1_000 + FAILED.refill), None);
        assert_eq!(limiter.take(&1, 1_000 + FAILED.refill), Some(6));
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let mut limiter = Limiter::new(FAILED);
        for _ in 0..3 * FAILED.burst {
            assert_eq!(limiter.take(&1, 1_000), None);
            limiter.give_back(&1);
        }
        (0..FAILED.burst).for_each(|_| assert_eq!(limiter.take(&1, 1_000), None));
        assert!(limiter.take(&1, 1_000).is_some());
        limiter.give_back(&1);
        assert_eq!(limiter.take(&1, 1_000), None);
        assert!(limiter.take(&1, 1_000).is_some(), "no more than were taken");
        limiter.give_back(&2);
        assert_eq!(limiter.until.len(), 1);
    }

    #[test]
    fn sources_are_bounded() {
        let mut limiter = Limiter::new(FAILED);
        for source in 0..3 * SOURCES_MAX {
            let _ = limiter.take(&source, source as u64);
        }
        assert_eq!(limiter.until.len(), SOURCES_MAX);
    }
}
