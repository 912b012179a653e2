// SPDX-License-Identifier: Apache-2.0
//! Rule sets of any size, drawn from the statistics of a supplied one, seeded: the same seed gives the same
//! set.
//!
//! After ClassBench's filter set generator (Taylor, Turner: INFOCOM 2005), with fewer parameters and all of
//! them measured:
//!
//! - *Pairs of prefixes.* Rules come in pairs of a source and a destination prefix. A pair of the supplied
//!   set gives the two lengths, the number of its rules, and their ports and protocols. All pairs are used
//!   equally often.
//! - *Nesting and skew.* Addresses come from tries that branch as those of the supplied set do: `prefixes`.
//!   Rules beyond the size of the supplied set use further networks of the same kind: prefixes per rule
//!   stay the same.
//! - *Ports.* When a pair is used again, ports and protocol are combined anew, of the same class (any, one
//!   port, low, high, another range) and protocol, as often as a further rule would show an unseen
//!   combination (Good and Turing: the share of the combinations that were seen once).
//! - *Order.* A rule has about the place of the rule that it was drawn from; the last matches everything.
//!
//! No two rules are equal, so the share of rules that are wild in both addresses falls with the size, as it
//! does in ClassBench. Not done: correlation of the two addresses of a rule; tenants and links; port ranges
//! that the supplied set lacks.

mod prefixes;

use crate::header::{HeaderRule, Net, Range};
use crate::trace::Random;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use foldhash::fast::FixedState;
use prefixes::{PrefixMapping, Splits, SyntheticPrefix, shuffle};
use std::collections::{HashMap, HashSet};

/// The number of larger draws when too many rules were equal.
const ROUNDS: usize = 8;

/// The reason why no rule set can be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    /// There are no rules to measure.
    #[error(
        "no rule besides a last one that matches everything: statistics need some; give a set of at least a few dozen rules"
    )]
    Empty,
    /// A set of no rules.
    #[error("0 rules were requested; request at least one, which matches everything")]
    Zero,
    /// IPv6 statistics do not allow drawing IPv4 rules.
    #[error("the supplied rules are IPv6: IPv4 rules cannot be drawn from them; leave the version out")]
    Version,
    /// The statistics do not allow so many rules.
    #[error(
        "{asked} different rules cannot be drawn, about {reached} can: the supplied set is too uniform; request fewer or supply more rules"
    )]
    Uniform {
        /// The number of rules requested.
        asked: usize,
        /// The number of different rules in the last attempt.
        reached: usize,
    },
}

/// The ports and the protocol of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RulePorts {
    source: Range,
    destination: Range,
    protocol: Option<u8>,
}

/// ClassBench's classes of port ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PortClass {
    Any,
    One,
    Low,
    High,
    Other,
}

impl PortClass {
    fn of(range: Range) -> Self {
        match (range.first, range.last) {
            (0, u16::MAX) => PortClass::Any,
            (0, 1023) => PortClass::Low,
            (1024, u16::MAX) => PortClass::High,
            (first, last) if first == last => PortClass::One,
            _ => PortClass::Other,
        }
    }
}

/// The class of both ranges, and the protocol.
type PortClassKey = (PortClass, PortClass, Option<u8>);

impl RulePorts {
    fn kind(&self) -> PortClassKey {
        (PortClass::of(self.source), PortClass::of(self.destination), self.protocol)
    }
}

/// Rules with the same two prefixes.
#[derive(Clone, Debug, Default)]
struct Pair {
    lengths: [u8; 2],
    /// Each with its place in the order, from 0 to 1.
    rules: Vec<(RulePorts, f64)>,
}

/// The measured statistics of a rule set, from which sets of any size are drawn.
#[derive(Clone, Debug)]
pub struct RuleSetStatistics {
    v6: bool,
    rules: usize,
    pairs: Vec<Pair>,
    /// Ports and protocols of the rules of a kind.
    kinds: HashMap<PortClassKey, Vec<RulePorts>, FixedState>,
    /// The probability that a further rule has a combination of ports and protocol that was not seen.
    unseen: f64,
    /// Those of sources and of destinations.
    splits: [Splits; 2],
}

/// The IP version of a rule; `None` for rules without addresses, which are of both.
fn version(rule: &HeaderRule) -> Option<bool> {
    [rule.source, rule.destination].into_iter().flatten().next().map(|net| !net.address.is_ipv4())
}

fn prefix(net: Option<Net>) -> SyntheticPrefix {
    let Some(net) = net else { return SyntheticPrefix { bits: 0, length: 0 } };
    let (v6, first, _) = net.range();
    SyntheticPrefix { bits: if v6 { first } else { first << 96 }, length: net.length }
}

fn matches_everything(rule: &HeaderRule) -> bool {
    [rule.source, rule.destination].into_iter().all(|net| net.is_none_or(|n| n.length == 0))
        && rule.protocol.is_none()
        && [rule.source_ports, rule.destination_ports] == [Range::ANY; 2]
}

impl RuleSetStatistics {
    /// Measures the rules of one IP version: IPv4 if there are any.
    ///
    /// # Errors
    /// No rules, or only rules that match everything.
    pub fn measure(rules: &[HeaderRule]) -> Result<Self, GenerateError> {
        let v6 =
            !rules.iter().any(|r| version(r) == Some(false)) && rules.iter().any(|r| version(r).is_some());
        Self::measure_version(rules, v6)
    }

    /// As [`RuleSetStatistics::measure`], for one version.
    ///
    /// # Errors
    /// No rules of that version, or only rules that match everything.
    pub fn measure_version(rules: &[HeaderRule], v6: bool) -> Result<Self, GenerateError> {
        let rules: Vec<&HeaderRule> = rules
            .iter()
            .filter(|r| version(r).is_none_or(|version| version == v6) && !matches_everything(r))
            .collect();
        if rules.is_empty() {
            return Err(GenerateError::Empty);
        }
        let mut pairs: Vec<Pair> = Vec::new();
        let mut places: HashMap<[(u128, u8); 2], usize, FixedState> = HashMap::default();
        let mut ends: [Vec<SyntheticPrefix>; 2] = Default::default();
        let mut kinds: HashMap<PortClassKey, Vec<RulePorts>, FixedState> = HashMap::default();
        let mut seen: HashMap<RulePorts, usize, FixedState> = HashMap::default();
        for (index, rule) in rules.iter().enumerate() {
            let both = [prefix(rule.source), prefix(rule.destination)];
            let place = *places.entry(both.map(|p| (p.bits, p.length))).or_insert_with(|| {
                pairs.push(Pair { lengths: both.map(|p| p.length), rules: Vec::new() });
                ends.iter_mut().zip(both).for_each(|(ends, prefix)| ends.push(prefix));
                pairs.len() - 1
            });
            let ports = RulePorts {
                source: rule.source_ports,
                destination: rule.destination_ports,
                protocol: rule.protocol,
            };
            if let Some(pair) = pairs.get_mut(place) {
                pair.rules.push((ports, index as f64 / rules.len() as f64));
            }
            kinds.entry(ports.kind()).or_default().push(ports);
            *seen.entry(ports).or_default() += 1;
        }
        let once = seen.values().filter(|times| **times == 1).count();
        Ok(RuleSetStatistics {
            v6,
            rules: rules.len(),
            pairs,
            kinds,
            unseen: once as f64 / rules.len() as f64,
            splits: ends.map(Splits::measure),
        })
    }

    /// Whether the measured rules are IPv6.
    #[must_use]
    pub const fn is_v6(&self) -> bool {
        self.v6
    }

    /// Draws this number of different rules, the last of which matches everything.
    ///
    /// # Errors
    /// `count` is 0; IPv4 from statistics of IPv6; or the statistics do not allow so many different ones.
    pub fn draw(&self, count: usize, v6: bool, seed: u64) -> Result<Vec<HeaderRule>, GenerateError> {
        let wanted = count.checked_sub(1).ok_or(GenerateError::Zero)?;
        let form = match (self.v6, v6) {
            (true, false) => return Err(GenerateError::Version),
            (false, true) => PrefixMapping::Widened,
            _ => PrefixMapping::Same,
        };
        let (mut aim, mut reached) = (wanted, 0);
        for _ in 0..ROUNDS {
            let mut random = Random(seed);
            let mut rules = self.draw_about(aim, form, &mut random);
            if rules.len() >= wanted {
                shuffle(&mut rules, wanted, &mut random);
                rules.truncate(wanted);
                rules.sort_by(|(a, _), (b, _)| a.total_cmp(b));
                let mut rules: Vec<HeaderRule> = rules.into_iter().map(|(_, rule)| rule).collect();
                let net = Some(net(0, 0, v6));
                rules.push(HeaderRule { source: net, destination: net, ..HeaderRule::default() });
                return Ok(rules);
            }
            reached = rules.len() + 1;
            let missing = wanted as f64 / rules.len().max(1) as f64;
            aim = (aim as f64 * (1.02 * missing).clamp(1.1, 4.0)) as usize + 1;
        }
        Err(GenerateError::Uniform { asked: count, reached })
    }

    /// The different rules among about so many drawn ones, with their places.
    fn draw_about(&self, count: usize, form: PrefixMapping, random: &mut Random) -> Vec<(f64, HeaderRule)> {
        let mut chosen: Vec<&Pair> = Vec::new();
        let mut rules = 0;
        let mut pass: Vec<&Pair> = Vec::new();
        while rules < count {
            if pass.is_empty() {
                pass = self.pairs.iter().collect();
                let all = pass.len();
                shuffle(&mut pass, all, random);
            }
            let Some(pair) = pass.pop() else { break };
            rules += pair.rules.len();
            chosen.push(pair);
        }
        let first_pass = self.pairs.len();
        let mut address = |side: usize, splits: &Splits| {
            let lengths: Vec<u8> = chosen.iter().map(|p| p.lengths.get(side).copied().unwrap_or(0)).collect();
            // Rules beyond the measured size use further networks of the same kind.
            let networks = lengths.chunks(self.pairs.len().max(1));
            networks.flat_map(|lengths| splits.draw(lengths, form, random)).collect::<Vec<_>>()
        };
        let [sources, destinations] = &self.splits;
        let (sources, destinations) = (address(0, sources), address(1, destinations));
        let mut different: HashSet<HeaderRule, FixedState> = HashSet::default();
        let mut out = Vec::with_capacity(rules);
        for (index, (pair, (source, destination))) in
            chosen.iter().zip(sources.into_iter().zip(destinations)).enumerate()
        {
            let [source_length, destination_length] = pair.lengths.map(|length| form.length(length));
            let v6 = self.v6 || form == PrefixMapping::Widened;
            for (ports, place) in &pair.rules {
                let ports = if index < first_pass { *ports } else { self.again(ports, random) };
                let rule = HeaderRule {
                    source: Some(net(source, source_length, v6)),
                    destination: Some(net(destination, destination_length, v6)),
                    protocol: ports.protocol,
                    source_ports: ports.source,
                    destination_ports: ports.destination,
                    ..HeaderRule::default()
                };
                if !matches_everything(&rule) && different.insert(rule) {
                    out.push((place + random.unit() / self.rules as f64, rule));
                }
            }
        }
        out
    }

    /// Ports and protocol for a repeated use of a pair.
    fn again(&self, ports: &RulePorts, random: &mut Random) -> RulePorts {
        let alike = self.kinds.get(&ports.kind()).map(Vec::as_slice).unwrap_or_default();
        if random.unit() >= self.unseen {
            return *ports;
        }
        let mut one = || alike.get(random.below(alike.len())).unwrap_or(ports);
        RulePorts { source: one().source, destination: one().destination, protocol: ports.protocol }
    }
}

/// The prefix of bits that start at the most significant one.
fn net(bits: u128, length: u8, v6: bool) -> Net {
    let v4 = Ipv4Addr::from((bits >> 96) as u32);
    let address: IpAddr = if v6 { Ipv6Addr::from(bits).into() } else { v4.into() };
    Net { address, length }
}
