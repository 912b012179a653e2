// SPDX-License-Identifier: Apache-2.0
//! Back-off between connection attempts: doubling times with jitter, so that a thousand agents do not connect
//! at once.

/// The first time, in milliseconds.
pub(super) const FIRST: u64 = 500;

/// The longest time, in milliseconds.
pub(super) const LONGEST: u64 = 60_000;

/// Times between attempts. The same seed gives the same times.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    attempts: u32,
    state: u64,
}

impl Backoff {
    pub(super) fn new(seed: u64) -> Self {
        Backoff { attempts: 0, state: seed }
    }

    /// Begins with the first time again, after a session was established.
    pub(super) fn reset(&mut self) {
        self.attempts = 0;
    }

    /// Milliseconds until the next attempt: random in the upper half of a doubling span.
    pub(super) fn next(&mut self) -> u64 {
        let span = FIRST.checked_shl(self.attempts.min(32)).unwrap_or(LONGEST).min(LONGEST);
        self.attempts = self.attempts.saturating_add(1);
        span / 2 + self.random() % (span / 2 + 1)
    }

    /// splitmix64 (Steele, Lea, Flood 2014).
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_double_to_a_bound_and_differ_by_seed() {
        let times = |seed| {
            let mut backoff = Backoff::new(seed);
            (0..20).map(|_| backoff.next()).collect::<Vec<_>>()
        };
        let first = times(1);
        for (attempt, time) in first.iter().enumerate() {
            let span = (FIRST << attempt).min(LONGEST);
            assert!((span / 2..=span).contains(time), "{attempt}: {time}");
        }
        assert_eq!(first, times(1));
        assert_ne!(first, times(2));
        let mut again = Backoff::new(3);
        for _ in 0..9 {
            again.next();
        }
        again.reset();
        assert!(again.next() <= FIRST);
    }
}
