// SPDX-License-Identifier: Apache-2.0
//! The pace of a body: a grace period, then a minimum rate. A large body over a slow link is accepted; a
//! client that sends a byte now and then cannot hold its connection.

use std::time::{Duration, Instant};

/// The time limit of a body, which grows with the bytes received.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    begun: Instant,
    grace: Duration,
    /// Minimum rate in bytes a second.
    floor: u64,
    received: u64,
}

impl Pace {
    /// The pace of a body that begins at `begun`.
    pub const fn new(begun: Instant, grace: Duration, floor: u64) -> Self {
        Pace { begun, grace, floor, received: 0 }
    }

    /// Counts received bytes.
    pub const fn received(&mut self, bytes: usize) {
        self.received = self.received.saturating_add(bytes as u64);
    }

    /// The time by which the next piece must arrive.
    pub fn deadline(&self) -> Instant {
        let floor = self.floor.max(1);
        let (whole, rest) = (self.received / floor, self.received % floor);
        let micros = u128::from(rest) * 1_000_000 / u128::from(floor);
        let earned = Duration::from_secs(whole) + Duration::from_micros(u64::try_from(micros).unwrap_or(0));
        self.begun + self.grace + earned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a body is accepted that arrives in pieces of a size, one per interval.
    fn comes_in(piece: usize, every: Duration, bytes: usize) -> bool {
        let begun = Instant::now();
        let mut pace = Pace::new(begun, Duration::from_secs(20), 64 * 1024);
        let mut at = begun;
        for _ in 0..bytes.div_ceil(piece) {
            at += every;
            if at > pace.deadline() {
                return false;
            }
            pace.received(piece);
        }
        true
    }

    #[test]
    fn a_slow_link_is_waited_for_and_a_dripping_client_is_not() {
        let second = Duration::from_secs(1);
        assert!(comes_in(1_200_000, second, 48 << 20), "1.2 MB/s, a large rule file");
        assert!(comes_in(64 * 1024, second, 48 << 20), "the floor itself");
        assert!(comes_in(1, second / 100, 1_000), "a small body within the grace period");
        assert!(!comes_in(32 * 1024, second, 48 << 20), "below the floor");
        assert!(!comes_in(1, second, 1 << 20), "a byte a second");
        assert!(!comes_in(1 << 20, second * 60, 48 << 20), "a large piece once a minute");
    }
}
