// SPDX-License-Identifier: Apache-2.0
//! The list of flows. It follows from the seed, and each beginning of it has the shares of the whole: a run plays only as many as its rate
//! reaches.

use crate::talk;
use bartizan_testkit::packet::End;
use bartizan_testkit::random::Random;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A class of flows: what carries it, and whether a rule on ports bypasses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// For people and programs.
    pub name: &'static str,
    /// TCP, else UDP.
    pub tcp: bool,
    /// The rule of the bench is meant for it.
    pub bypassable: bool,
    /// The servers' port, by which rules and counters tell classes apart.
    pub port: u16,
}

/// All classes. The rule of the text bypasses TCP beside some ports, of which 80 is one.
pub const CLASSES: [Class; 4] = [
    Class { name: "tcp-kept", tcp: true, bypassable: false, port: 80 },
    Class { name: "tcp-bypassable", tcp: true, bypassable: true, port: 8443 },
    Class { name: "udp-kept", tcp: false, bypassable: false, port: 9000 },
    Class { name: "udp-bypassable", tcp: false, bypassable: true, port: 9001 },
];

/// TCP's share of the bytes, of the text.
pub const TCP_SHARE: f64 = 0.88;

/// Flows have at least so many packets, so that the shortest frames carry a request, an answer, handshake and end.
pub const SHORTEST: u16 = 11;
/// And at most so many.
pub const LONGEST: u16 = 256;
/// One flow in so many is long.
const LONG: usize = 10;
/// Packets beyond the shortest, on average, of short flows and of long ones: 0.9 * 1 + 0.1 * 31 makes a mean of 15.
const BEYOND: (f64, f64) = (1.0, 31.0);

/// Frames have at least so many bytes (without the frame check sequence), so that TCP over IPv4 and over IPv6 carries ten.
pub const SMALLEST: (u16, u16) = (64, 84);
/// And at most so many.
pub const LARGEST: u16 = 9000;

/// A flow of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Packets.
    pub packets: u16,
    /// Bytes of its full frames.
    pub size: u16,
    /// Index in [`CLASSES`].
    pub class: u8,
    /// IPv6, else IPv4.
    pub v6: bool,
}

impl Flow {
    /// Its class.
    #[must_use]
    pub fn class(&self) -> Class {
        CLASSES[usize::from(self.class)]
    }
}

/// What the list is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Flows in the list.
    pub flows: usize,
    /// Share of the bytes in flows that can be bypassed, 0 to 1. TCP's first: UDP's only beyond TCP's own share.
    pub bypassable: f64,
    /// Share of the flows that speak IPv6, 0 to 1.
    pub v6: f64,
    /// Sizes of full frames, each with its weight among flows.
    pub sizes: Vec<(u16, u32)>,
    /// All else follows from it.
    pub seed: u64,
}

impl Plan {
    /// The share of the bytes that each class shall have.
    #[must_use]
    pub fn shares(&self) -> [f64; 4] {
        let tcp = self.bypassable.min(TCP_SHARE);
        let udp = self.bypassable - tcp;
        [TCP_SHARE - tcp, tcp, 1.0 - TCP_SHARE - udp, udp]
    }

    /// The list. Each flow is of the class that is furthest behind its share of the bytes; what else it is does not depend on that.
    #[must_use]
    pub fn list(&self) -> Vec<Flow> {
        let mut seeds = Random::new(self.seed);
        let weights: u32 = self.sizes.iter().map(|(_, weight)| weight).sum();
        let shares = self.shares();
        let classes: Vec<usize> = (0..CLASSES.len()).filter(|class| shares[*class] > 1e-9).collect();
        let (mut bytes, mut all) = ([0.0; CLASSES.len()], 0.0);
        let one = |_| {
            // A generator of its own: no flow depends on how much another has drawn.
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

/// From 0 to 1, 1 not included.
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

/// Packets of a flow: most are short, one in ten is long; geometric beyond the shortest.
fn length(random: &mut Random) -> u16 {
    let mean = if random.below(LONG) == 0 { BEYOND.1 } else { BEYOND.0 };
    // A geometric distribution on 0, 1, ... of this mean.
    let beyond = ((1.0 - unit(random)).ln() / (mean / (1.0 + mean)).ln()).floor();
    (f64::from(SHORTEST) + beyond).min(f64::from(LONGEST)) as u16
}

/// Both ends of the flow with this number, client first. No two numbers below 115 million have the same.
///
/// Addresses are those that are set aside for measuring (RFC 2544, RFC 5180) but for IPv4's clients, who are in 10.0.0.0/8: rules
/// speak of a home network.
#[must_use]
pub fn ends(number: u64, flow: &Flow) -> (End, End) {
    const CLIENTS: u64 = 4096;
    const FIRST_PORT: u64 = 32_768;
    const PORTS: u64 = 28_232;
    let (client, port) = (number % CLIENTS, FIRST_PORT + number / CLIENTS % PORTS);
    let server = (number ^ (number >> 12)) % 250 + 1;
    let [high, low] = (client as u16 + 256).to_be_bytes();
    let ends: (IpAddr, IpAddr) = if flow.v6 {
        let of = |net: u16, host: u64| Ipv6Addr::new(0x2001, 2, 0, net, 0, 0, 0, host as u16);
        (of(1, client + 1).into(), of(2, server).into())
    } else {
        (Ipv4Addr::new(10, 18, high, low).into(), Ipv4Addr::new(198, 18, 0, server as u8).into())
    };
    ((ends.0, port as u16), (ends.1, flow.class().port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn plan(bypassable: f64, sizes: &[(u16, u32)]) -> Plan {
        Plan { flows: 100_000, bypassable, v6: 0.25, sizes: sizes.to_vec(), seed: 7 }
    }

    #[test]
    fn the_list_follows_from_the_seed() {
        let sizes = [(64, 7), (594, 4), (1500, 1)];
        let (list, again) = (plan(0.7, &sizes).list(), plan(0.7, &sizes).list());
        assert_eq!(list, again);
        assert_ne!(list, Plan { seed: 8, ..plan(0.7, &sizes) }.list());
        // Of a longer list the beginning is the same.
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

    #[test]
    fn no_two_flows_have_the_same_ends() {
        let list = plan(0.7, &[(64, 1)]).list();
        let ends: HashSet<_> = (0..300_000).map(|n| ends(n, &list[n as usize % list.len()])).collect();
        assert_eq!(ends.len(), 300_000);
    }
}
