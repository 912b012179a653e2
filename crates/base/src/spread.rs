// SPDX-License-Identifier: Apache-2.0
//! The assignment of flows to workers: a keyed, symmetric hash of link, virtual network, addresses and ports
//! that a kernel filter computes as well, so that a packet of a plain flow arrives at the worker that owns
//! its flow.
//!
//! Multiply and add under secret odd factors (universal hashing, Dietzfelbinger et al. 1997), all in 32-bit
//! arithmetic that classic BPF has. Source and destination are added before the multiplication, which makes
//! the hash equal for both directions. The tenant's number is not part of it, since a filter cannot know it
//! and it changes with policies; the properties that select tenants are: link, VLAN ids, a tunnel's number,
//! addresses. So flows of equal addresses and ports in two tenants usually have different workers, and a flow
//! keeps its worker if its tenant changes.
//!
//! All workers have equal weights.

use crate::LinkId;
use core::net::IpAddr;

/// Most workers of an instance.
pub const WORKERS_MAX: u16 = 256;

/// Assigns flows to workers. Equal in all workers and filters of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    factors: Factors,
    workers: u16,
    /// The link's part of the sum.
    start: u32,
}

/// The factors of the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factors {
    /// For the words of source plus destination address; IPv4 uses the first.
    pub address: [u32; 4],
    /// Multiplier for the sum of source and destination port.
    pub ports: u32,
    /// Multiplier of the last step, which spreads low bits to high ones.
    pub last: u32,
    /// For the sum of VLAN ids; 0 if they are ignored.
    pub vlans: u32,
    /// For the tunnel's number, both halves added; 0 if it is ignored. Filters do not look into tunnels.
    pub tunnel: u32,
    /// For the link.
    link: u32,
}

/// The virtual network of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VirtualNetwork {
    /// VLAN ids, 0 for a missing one; their order does not matter.
    pub vlans: [u16; 3],
    /// Kind and number of the innermost tunnel; 0: none.
    pub tunnel: u64,
}

/// The part of a packet that the hash uses besides its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpreadPorts {
    /// Source and destination port.
    Ports(u16, u16),
    /// Nothing: it has no ports, or is a fragment, which may lack them. So all fragments between two hosts
    /// have one worker, and stay in order.
    Nothing,
}

impl Spread {
    /// An assignment to `workers` workers (at least one, at most [`WORKERS_MAX`]), with the instance's secret
    /// seed, for link 0, with VLANs and tunnels.
    #[must_use]
    pub fn new(seed: [u64; 2], workers: u16) -> Self {
        let [mut state, other] = seed;
        state ^= other.rotate_left(32);
        // SplitMix64 (Steele, Lea, Flood 2014); odd factors lose nothing.
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 32) as u32 | 1
        };
        let factors = Factors {
            address: [next(), next(), next(), next()],
            ports: next(),
            last: next(),
            vlans: next(),
            tunnel: next(),
            link: next(),
        };
        Spread { factors, workers: workers.clamp(1, WORKERS_MAX), start: 0 }
    }

    /// This assignment for another link.
    #[must_use]
    pub const fn of_link(mut self, link: LinkId) -> Self {
        self.start = self.factors.link.wrapping_mul(link.0 as u32);
        self
    }

    /// This assignment without VLANs or tunnels: if they are not part of flows' keys, packets of one flow can
    /// have several.
    #[must_use]
    pub const fn counting(mut self, vlans: bool, tunnels: bool) -> Self {
        if !vlans {
            self.factors.vlans = 0;
        }
        if !tunnels {
            self.factors.tunnel = 0;
        }
        self
    }

    /// Number of workers.
    #[must_use]
    pub const fn workers(&self) -> u16 {
        self.workers
    }

    /// The factors, for other implementations: see [`Spread::worker_in`].
    #[must_use]
    pub const fn factors(&self) -> &Factors {
        &self.factors
    }

    /// The link's part of the sum, for other implementations.
    #[must_use]
    pub const fn start(&self) -> u32 {
        self.start
    }

    /// [`Spread::worker_in`] of a packet outside of VLANs and tunnels.
    #[must_use]
    pub fn worker(&self, source: IpAddr, destination: IpAddr, part: SpreadPorts) -> u16 {
        self.worker_in(VirtualNetwork::default(), source, destination, part)
    }

    /// The worker of a packet, from 0. All arithmetic is modulo 2^32: h = link factor x link, plus VLAN
    /// factor x sum of ids, plus tunnel factor x (upper + lower half of its number), plus sum of address
    /// factor x (source word + destination word), plus ports factor x (source + destination port); h ^= h >>
    /// 15; h *= last factor; worker = ((h >> 16) x workers) >> 16.
    #[must_use]
    pub fn worker_in(
        &self,
        network: VirtualNetwork,
        source: IpAddr,
        destination: IpAddr,
        part: SpreadPorts,
    ) -> u16 {
        let factors = &self.factors;
        let vlans = network.vlans.iter().fold(0, |sum, id| sum + u32::from(*id));
        let tunnel = (network.tunnel as u32).wrapping_add((network.tunnel >> 32) as u32);
        let start = self
            .start
            .wrapping_add(vlans.wrapping_mul(factors.vlans))
            .wrapping_add(tunnel.wrapping_mul(factors.tunnel));
        let pairs = words(source).into_iter().zip(words(destination));
        let mut hash = pairs
            .zip(factors.address)
            .fold(start, |sum, ((a, b), factor)| sum.wrapping_add(a.wrapping_add(b).wrapping_mul(factor)));
        let more = match part {
            SpreadPorts::Ports(a, b) => (u32::from(a) + u32::from(b)).wrapping_mul(factors.ports),
            SpreadPorts::Nothing => 0,
        };
        hash = hash.wrapping_add(more);
        hash ^= hash >> 15;
        hash = hash.wrapping_mul(factors.last);
        (((hash >> 16) * u32::from(self.workers)) >> 16) as u16
    }
}

/// An address as words; IPv4 has only the first.
fn words(address: IpAddr) -> [u32; 4] {
    match address {
        IpAddr::V4(v4) => [u32::from(v4), 0, 0, 0],
        IpAddr::V6(v6) => {
            let n = u128::from(v6);
            [(n >> 96) as u32, (n >> 64) as u32, (n >> 32) as u32, n as u32]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(v6: bool, host: u32) -> IpAddr {
        let tail = host.to_be_bytes();
        if v6 {
            let mut octets = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            octets[12..].copy_from_slice(&tail);
            IpAddr::from(octets)
        } else {
            IpAddr::from([10, tail[1], tail[2], tail[3]])
        }
    }

    #[test]
    fn both_directions_have_one_worker() {
        let spread = Spread::new([1, 2], 7);
        for v6 in [false, true] {
            for n in 0..500u16 {
                let (a, b) = (address(v6, u32::from(n) * 77), address(v6, 9));
                let there = spread.worker(a, b, SpreadPorts::Ports(n, 443));
                assert_eq!(there, spread.worker(b, a, SpreadPorts::Ports(443, n)));
                assert!(there < 7);
            }
        }
    }

    #[test]
    fn link_and_virtual_network_choose_the_worker_as_far_as_they_count() {
        let spread = Spread::new([1, 2], 16);
        let (a, b, ports) = (address(true, 1), address(true, 9), SpreadPorts::Ports(7, 443));
        let of = |spread: &Spread, vlans: [u16; 3], tunnel: u64| {
            let network = VirtualNetwork { vlans, tunnel };
            let there = spread.worker_in(network, a, b, ports);
            assert_eq!(there, spread.worker_in(network, b, a, SpreadPorts::Ports(443, 7)));
            there
        };
        assert_eq!(of(&spread, [0; 3], 0), spread.worker(a, b, ports));
        assert_eq!(spread.of_link(LinkId(0)), spread);
        let plain = of(&spread, [0; 3], 0);
        let changes: [&dyn Fn(u16) -> u16; 5] = [
            &|n| of(&spread.of_link(LinkId(n)), [0; 3], 0),
            &|n| of(&spread, [n, 0, 0], 0),
            &|n| of(&spread, [5, n, 0], 0),
            &|n| of(&spread, [0; 3], 3 << 56 | u64::from(n)),
            &|n| of(&spread, [0; 3], u64::from(n) << 32),
        ];
        for change in changes {
            // By chance one in 16 stays.
            assert!((1..=200).filter(|n| change(*n) != plain).count() > 160);
        }
        let deaf = spread.counting(false, false);
        assert!((1..200).all(|n| of(&deaf, [n, 1, 2], u64::from(n)) == plain));
        assert!((1..200).filter(|n| of(&deaf.of_link(LinkId(*n)), [0; 3], 0) != plain).count() > 160);
    }

    #[test]
    fn shares_are_even_whatever_changes() {
        for seed in [[0, 0], [1, 2], [u64::MAX, 7]] {
            for v6 in [false, true] {
                let spread = Spread::new(seed, 4);
                type Flow = (u32, SpreadPorts);
                let cases: [fn(u16) -> Flow; 3] = [
                    |n| (1, SpreadPorts::Ports(20_000 + n, 443)),
                    |n| (u32::from(n), SpreadPorts::Ports(20_000, 443)),
                    |n| (u32::from(n) << 3, SpreadPorts::Nothing),
                ];
                for case in cases {
                    let mut shares = [0u32; 4];
                    for n in 0..4_000 {
                        let (host, part) = case(n);
                        let worker = spread.worker(address(v6, host), address(v6, 1 << 20), part);
                        shares[usize::from(worker)] += 1;
                    }
                    assert!(shares.iter().all(|n| (700..1_300).contains(n)), "{seed:?} {v6} {shares:?}");
                }
            }
        }
    }

    #[test]
    fn one_worker_gets_all_and_another_seed_shares_otherwise() {
        let alone = Spread::new([3, 4], 0);
        assert_eq!(alone.workers(), 1);
        let (a, b) = (address(false, 1), address(true, 1));
        assert_eq!(alone.worker(a, a, SpreadPorts::Nothing), 0);
        let (one, two) = (Spread::new([3, 4], 16), Spread::new([3, 5], 16));
        let differ = (0..100).filter(|n| {
            one.worker(b, b, SpreadPorts::Ports(*n, 1)) != two.worker(b, b, SpreadPorts::Ports(*n, 1))
        });
        assert!(differ.count() > 50);
    }
}
