// SPDX-License-Identifier: Apache-2.0
//! Rate limits per source: a burst of actions at once, then one action per refill interval. The limit of one
//! source never delays another source.

use std::collections::HashMap;
use std::hash::Hash;

/// A rate: the size of the burst and the refill interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Actions that a source may take at once.
    pub burst: u64,
    /// Microseconds until one more.
    pub refill: u64,
}

impl Rate {
    /// Microseconds by which one more action of a source is too early; `None`: the source may act now.
    /// `until` is the time at which the source has its full burst again.
    fn over(self, until: u64, now: u64) -> Option<u64> {
        let after = until.max(now).saturating_add(self.refill);
        let over = (after - now).saturating_sub(self.burst.saturating_mul(self.refill));
        (over > 0).then_some(over)
    }
}

/// Rate of failed authentications per source.
pub const FAILED: Rate = Rate { burst: 10, refill: 6_000_000 };
/// Rate at which the tokens of one tenant may change the tenant's documents: the burst covers all policies
/// and groups of the default quota, the refill is so slow that one tenant cannot push the history of others
/// out within a day.
pub const WRITES: Rate = Rate { burst: 2_000, refill: 5_000_000 };
/// Most sources that are remembered; beyond, the source whose burst is full first is forgotten.
pub const SOURCES_MAX: usize = 4096;

/// Limits the actions of many sources by one rate.
#[derive(Debug)]
pub struct Limiter<K> {
    rate: Rate,
    /// Time at which each source has its full burst again.
    until: HashMap<K, u64>,
}

impl<K: Hash + Eq + Clone> Limiter<K> {
    /// A limiter that has seen no source.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Limiter { rate, until: HashMap::new() }
    }

    /// Seconds until the source may take one more action; counts nothing.
    #[must_use]
    pub fn wait(&self, source: &K, now: u64) -> Option<u64> {
        let until = self.until.get(source).copied().unwrap_or(now);
        self.rate.over(until, now).map(|over| over.div_ceil(1_000_000))
    }

    /// Counts one action at `now` (microseconds of a monotonic clock); returns the seconds to wait if the
    /// source had no action left.
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
    pub fn refund(&mut self, source: &K) {
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
            limiter.refund(&1);
        }
        (0..FAILED.burst).for_each(|_| assert_eq!(limiter.take(&1, 1_000), None));
        assert!(limiter.take(&1, 1_000).is_some());
        limiter.refund(&1);
        assert_eq!(limiter.take(&1, 1_000), None);
        assert!(limiter.take(&1, 1_000).is_some(), "no more than were taken");
        limiter.refund(&2);
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
