// SPDX-License-Identifier: Apache-2.0
//! Bytes of a flow in the latest seconds: flows above a rate are elephant flows. Source: Suricata 8's
//! `flow.rate-tracking` and `flow.elephant`; seconds are those of the packet clock, as in Suricata.

use bartizan_base::{Direction, PerDirection, Timestamp};

/// The rate above which a flow is an elephant flow, by direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Bytes within an interval.
    pub bytes: u64,
    /// The interval, in seconds, from 1 to [`RateLimit::INTERVAL_MAX`].
    pub interval: u16,
}

impl RateLimit {
    /// The longest interval, in seconds; the state of a flow takes 16 bytes per second.
    pub const INTERVAL_MAX: u16 = 3_600;
}

/// Bytes of a flow in the latest seconds, by direction.
#[derive(Clone, Debug)]
pub struct FlowRate {
    /// Bytes of each second, at its number modulo the interval.
    seconds: Box<[PerDirection<u64>]>,
    /// Sum over all seconds.
    sum: PerDirection<u64>,
    /// The latest second.
    latest: u64,
}

impl FlowRate {
    /// The rate of a flow without packets so far.
    #[must_use]
    pub fn new(limit: RateLimit) -> Self {
        let interval = usize::from(limit.interval.clamp(1, RateLimit::INTERVAL_MAX));
        FlowRate {
            seconds: vec![PerDirection::default(); interval].into_boxed_slice(),
            sum: PerDirection::default(),
            latest: 0,
        }
    }

    /// Swaps the directions of a reversed flow.
    pub fn turn(&mut self) {
        self.sum.swap();
        self.seconds.iter_mut().for_each(PerDirection::swap);
    }

    /// Counts a packet and returns the bytes of its direction in the interval that ends with its second. A
    /// packet older than the latest one counts in the latest one's second.
    pub fn add(&mut self, direction: Direction, bytes: u32, now: Timestamp) -> u64 {
        let second = now.as_secs();
        let passed = second.saturating_sub(self.latest);
        let interval = self.seconds.len() as u64;
        if passed >= interval {
            self.seconds.fill(PerDirection::default());
            self.sum = PerDirection::default();
        } else {
            for over in 1..=passed {
                let at = ((self.latest + over) % interval) as usize;
                let Some(place) = self.seconds.get_mut(at) else { continue };
                for side in Direction::BOTH {
                    self.sum[side] -= place[side];
                }
                *place = PerDirection::default();
            }
        }
        self.latest = self.latest.max(second);
        if let Some(place) = self.seconds.get_mut((self.latest % interval) as usize) {
            place[direction] += u64::from(bytes);
        }
        self.sum[direction] += u64::from(bytes);
        self.sum[direction]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_testkit::random::Random;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_parts(seconds, 0)
    }

    #[test]
    fn seconds_leave_one_by_one() {
        let mut rate = FlowRate::new(RateLimit { bytes: 1, interval: 3 });
        let mut sum = |second, bytes| rate.add(Direction::ToServer, bytes, at(second));
        assert_eq!([sum(100, 1), sum(101, 10), sum(102, 100)], [1, 11, 111]);
        assert_eq!(sum(103, 1_000), 1_110);
        assert_eq!(sum(105, 10_000), 11_000);
        assert_eq!(sum(108, 5), 5, "all of it is over");
        assert_eq!(sum(107, 5), 10, "what comes late counts with the latest");
    }

    #[test]
    fn directions_are_counted_apart() {
        let mut rate = FlowRate::new(RateLimit { bytes: 1, interval: 1 });
        assert_eq!(rate.add(Direction::ToServer, 7, at(1)), 7);
        assert_eq!(rate.add(Direction::ToClient, 2, at(1)), 2);
        assert_eq!(rate.add(Direction::ToServer, 1, at(2)), 1);
        assert_eq!(rate.add(Direction::ToClient, 1, at(2)), 1);
    }

    #[test]
    fn it_equals_a_plain_sum() {
        // The sum over a list of all packets is the model.
        let (mut random, mut second) = (Random::new(7), 0);
        let mut rate = FlowRate::new(RateLimit { bytes: 1, interval: 5 });
        let mut all: Vec<(u64, Direction, u64)> = Vec::new();
        for _ in 0..5_000 {
            second += random.below(20).saturating_sub(13) as u64;
            let direction = *random.pick(&Direction::BOTH);
            let bytes = random.below(1_500) as u64;
            all.push((second, direction, bytes));
            let sum =
                all.iter().filter(|(s, d, _)| *d == direction && s + 5 > second).map(|p| p.2).sum::<u64>();
            assert_eq!(rate.add(direction, bytes as u32, at(second)), sum);
        }
    }
}
