// SPDX-License-Identifier: Apache-2.0
//! The list of flows. It is a function of the seed, and each prefix of the list has the shares of the whole:
//! a run plays only as many flows as its rate reaches.

use crate::flows::{CLASSES, Flow, LONGEST, SHORTEST, SMALLEST};
use crate::talk;
use bartizan_testkit::random::Random;

/// TCP's share of the bytes in the cited text.
pub const TCP_SHARE: f64 = 0.88;

/// One flow in this many is long.
const LONG: usize = 10;
/// Mean number of packets beyond the shortest flow, of short and of long flows: 0.9 * 1 + 0.1 * 31 makes a
/// mean of 15.
const BEYOND: (f64, f64) = (1.0, 31.0);

/// Parameters of the list.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of flows in the list.
    pub flows: usize,
    /// Share of the bytes in flows that can be bypassed, 0 to 1. TCP flows are bypassable first; UDP flows
    /// only beyond TCP's own share.
    pub bypassable: f64,
    /// Share of the flows over IPv6, 0 to 1.
    pub v6: f64,
    /// Sizes of full frames in bytes, each with its weight among flows.
    pub sizes: Vec<(u16, u32)>,
    /// Seed of all other choices.
    pub seed: u64,
}

impl Plan {
    /// The share of the bytes that each class is to have.
    #[must_use]
    pub fn shares(&self) -> [f64; 4] {
        let tcp = self.bypassable.min(TCP_SHARE);
        let udp = self.bypassable - tcp;
        [TCP_SHARE - tcp, tcp, 1.0 - TCP_SHARE - udp, udp]
    }

    /// Generates the list. Each flow belongs to the class that is furthest below its share of the bytes; its
    /// other properties do not depend on the class.
    #[must_use]
    pub fn list(&self) -> Vec<Flow> {
        let mut seeds = Random::new(self.seed);
        let weights: u32 = self.sizes.iter().map(|(_, weight)| weight).sum();
        let shares = self.shares();
        let classes: Vec<usize> = (0..CLASSES.len()).filter(|class| shares[*class] > 1e-9).collect();
        let (mut bytes, mut all) = ([0.0; CLASSES.len()], 0.0);
        let one = |_| {
            // A separate generator for each flow: no flow depends on how many numbers another one has drawn.
            let mut random = Random::new(seeds.draw());
            let packets = length(&mut random);
            let v6 = unit(&mut random) < self.v6;
            let size = pick(&self.sizes, random.below(weights as usize) as u32);
            let behind = |class: usize| shares[class] * all - bytes[class];
            let furthest = classes.iter().copied().max_by(|a, b| behind(*a).total_cmp(&behind(*b)));
            let class = furthest.unwrap_or(0);
            let flow = Flow { packets, size, class: class as u8, v6 };
            let of_flow = f64::from(talk::bytes(&flow));
            bytes[class] += of_flow;
            all += of_flow;
            flow
        };
        (0..self.flows).map(one).collect()
    }
}

/// A uniform number in [0, 1).
fn unit(random: &mut Random) -> f64 {
    (random.draw() >> 11) as f64 / (1_u64 << 53) as f64
}

fn pick(sizes: &[(u16, u32)], mut at: u32) -> u16 {
    for (size, weight) in sizes {
        if at < *weight {
            return *size;
        }
        at -= weight;
    }
    sizes.last().map_or(SMALLEST.1, |(size, _)| *size)
}

/// Number of packets of a flow: most flows are short, one in ten is long; geometric beyond the shortest.
fn length(random: &mut Random) -> u16 {
    let mean = if random.below(LONG) == 0 { BEYOND.1 } else { BEYOND.0 };
    // A geometric distribution on 0, 1, ... with this mean.
    let beyond = ((1.0 - unit(random)).ln() / (mean / (1.0 + mean)).ln()).floor();
    (f64::from(SHORTEST) + beyond).min(f64::from(LONGEST)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(bypassable: f64, sizes: &[(u16, u32)]) -> Plan {
        Plan { flows: 100_000, bypassable, v6: 0.25, sizes: sizes.to_vec(), seed: 7 }
    }

    #[test]
    fn the_list_follows_from_the_seed() {
        let sizes = [(64, 7), (594, 4), (1500, 1)];
        let (list, again) = (plan(0.7, &sizes).list(), plan(0.7, &sizes).list());
        assert_eq!(list, again);
        assert_ne!(list, Plan { seed: 8, ..plan(0.7, &sizes) }.list());
        // The prefix of a longer list is the same.
        let longer = Plan { flows: 120_000, ..plan(0.7, &sizes) }.list();
        assert_eq!(list, longer[..list.len()]);
    }

    #[test]
    fn each_beginning_has_the_shares_of_bytes_within_half_a_percent() {
        for share in [0.0, 0.5, 0.7, 0.88, 0.9, 0.99, 1.0] {
            for sizes in [&[(64, 1)][..], &[(9000, 1)], &[(64, 7), (594, 4), (1500, 1)]] {
                let list = plan(share, sizes).list();
                for count in [20_000, list.len()] {
                    let mut bytes = [0.0; 4];
                    list[..count]
                        .iter()
                        .for_each(|f| bytes[usize::from(f.class)] += f64::from(talk::bytes(f)));
                    let all: f64 = bytes.iter().sum();
                    let near = |got: f64, wanted: f64| (got / all - wanted).abs() < 0.005;
                    assert!(near(bytes[0] + bytes[1], TCP_SHARE), "TCP: {bytes:?} of {share}");
                    assert!(near(bytes[1] + bytes[3], share), "bypassable: {bytes:?} of {share}");
                    for (got, wanted) in bytes.iter().zip(plan(share, sizes).shares()) {
                        assert!(wanted > 0.0 || *got == 0.0, "a class of no share: {bytes:?} of {share}");
                    }
                }
            }
        }
    }

    #[test]
    fn flows_have_fifteen_packets_and_classes_are_alike() {
        let sizes = [(64, 7), (594, 4), (1500, 1)];
        let list = plan(0.7, &sizes).list();
        let mean = |of: &dyn Fn(&&Flow) -> bool, what: &dyn Fn(&Flow) -> f64| {
            let chosen: Vec<_> = list.iter().filter(of).collect();
            chosen.iter().map(|flow| what(flow)).sum::<f64>() / chosen.len() as f64
        };
        let packets = |flow: &Flow| f64::from(flow.packets);
        assert!((mean(&|_| true, &packets) - 15.0).abs() < 0.2, "{}", mean(&|_| true, &packets));
        assert!((mean(&|_| true, &|flow| f64::from(u8::from(flow.v6))) - 0.25).abs() < 0.01);
        let [kept, gone] = [0, 1].map(|class| {
            let of = move |flow: &&Flow| flow.class == class;
            (mean(&of, &packets), mean(&of, &|flow| f64::from(talk::bytes(flow))))
        });
        assert!(
            (kept.0 / gone.0 - 1.0).abs() < 0.03 && (kept.1 / gone.1 - 1.0).abs() < 0.05,
            "{kept:?} {gone:?}"
        );
        assert!(list.iter().all(|flow| (SHORTEST..=LONGEST).contains(&flow.packets)));
    }
}
