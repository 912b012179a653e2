// SPDX-License-Identifier: Apache-2.0
//! HSM with separate or integrated segmentation.
//!
//! Source: Xu, Jiang, Li, "HSM: A Fast Packet Classification Algorithm" (AINA 2005), and Qi et al., "Towards
//! System-level Optimization for High Performance Unified Threat Management" (IPP). Every field is cut into
//! segments, found by binary search; a segment has a class for each rule set. Classes are combined pair by
//! pair in tables (addresses: AMT; ports and the rest: PMT; both: PLT), the last of which holds the rule.
//! Integrated: one segmentation of each field for all sets and tables for each set apart, so that the
//! searches are done once.
//!
//! Exact and readable, for sets of a few thousand rules: where rules that are wild in one address cross rules
//! that are wild in the other, the tables grow with their product, and [`Hsm::insert`] refuses beyond its
//! limit. Inserts and deletes rebuild all tables.

use bartizan_base::Fid;
use bartizan_base::at::IndexOrDefault;
use bartizan_classify::{Classifier, Header, HeaderRule, InsertError, Match, Net, RankedRule, SETS_MAX};
use foldhash::fast::FixedState;
use std::collections::HashMap;
use std::net::IpAddr;

/// No rule.
const NONE: u32 = u32::MAX;
/// Fields: source, destination, source port, destination port, protocol, tenant, link.
const FIELDS: usize = 7;

/// The segmentation of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segmentation {
    /// For each set separately.
    Separate,
    /// For all sets together.
    Integrated,
}

/// Rules as bits.
type Bits = Vec<u64>;

/// The values of a field that a rule matches; `None`: the rule is of the other IP version.
fn span(rule: &HeaderRule, field: usize, v6: bool) -> Option<(u128, u128)> {
    let bits = if v6 { 128 } else { 32 };
    let all = (0, u128::MAX >> (128 - bits));
    let net = |net: Option<Net>| match net.map(Net::range) {
        None => Some(all),
        Some((version, first, last)) => (version == v6).then_some((first, last)),
    };
    let one = |value: Option<u16>| Some(value.map_or((0, 0xffff), |v| (v.into(), v.into())));
    match field {
        0 => net(rule.source),
        1 => net(rule.destination),
        2 => Some((rule.source_ports.first.into(), rule.source_ports.last.into())),
        3 => Some((rule.destination_ports.first.into(), rule.destination_ports.last.into())),
        4 => Some(rule.protocol.map_or((0, 0xff), |p| (p.into(), p.into()))),
        5 => one(rule.tenant.map(|t| t.0)),
        _ => one(rule.link.map(|l| l.0)),
    }
}

fn values(header: &Header) -> [u128; FIELDS] {
    [
        number(header.source),
        number(header.destination),
        header.source_port.into(),
        header.destination_port.into(),
        header.protocol.into(),
        header.tenant.0.into(),
        header.link.0.into(),
    ]
}

/// Segments of a field: the beginning of each, and its class for each set.
#[derive(Clone, Debug, Default)]
struct Segments {
    starts: Vec<u128>,
    classes: Vec<u16>,
    sets: usize,
}

impl Segments {
    fn find(&self, value: u128) -> &[u16] {
        let at = self.starts.partition_point(|s| *s <= value).saturating_sub(1);
        self.classes.get(at * self.sets..(at + 1) * self.sets).unwrap_or_default()
    }

    /// The most 32-bit words that a search reads: one for each probe (four for an IPv6 address), and the
    /// classes, two sets to a word.
    fn words(&self, per_probe: usize) -> usize {
        if self.starts.len() <= 1 {
            return 0;
        }
        let probes = usize::BITS - (self.starts.len() - 1).leading_zeros();
        probes as usize * per_probe + self.sets.div_ceil(2)
    }

    fn bytes(&self, per_start: usize) -> usize {
        self.starts.len() * per_start + self.classes.len() * 2
    }
}

/// Combines two classes.
#[derive(Clone, Debug, Default)]
struct Cross {
    columns: u32,
    cells: Vec<u32>,
}

impl Cross {
    fn at(&self, a: u32, b: u32) -> u32 {
        self.cells.at((a * self.columns + b) as usize)
    }

    /// The most 32-bit words of a lookup: a table of one row or column that changes nothing needs no read.
    fn words(&self, rows: usize) -> usize {
        usize::from(rows > 1 && self.columns > 1)
    }
}

/// The tables of one set.
#[derive(Clone, Debug, Default)]
struct Tables {
    /// Addresses; ports; with the protocol; tenant and link; with those; all.
    crosses: [Cross; 6],
    words: usize,
}

/// Sets that share a segmentation.
#[derive(Clone, Debug)]
struct Part {
    segments: [Segments; FIELDS],
    /// Number of the set and its tables.
    tables: Vec<(usize, Tables)>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Hsm {
    segmentation: Segmentation,
    limit: usize,
    sets: Vec<Vec<RankedRule>>,
    /// IPv4, IPv6.
    parts: [Vec<Part>; 2],
}

/// The bytes left for building.
struct Left(usize);

impl Left {
    fn take(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.checked_sub(bytes)?;
        Some(())
    }
}

fn segment(rules: &[Vec<Option<(u128, u128)>>], left: &mut Left) -> Option<(Segments, Vec<Vec<Bits>>)> {
    let mut starts: Vec<u128> = vec![0];
    for (first, last) in rules.iter().flatten().flatten() {
        starts.push(*first);
        starts.extend(last.checked_add(1));
    }
    starts.sort_unstable();
    starts.dedup();
    let mut classes = vec![0u16; starts.len() * rules.len()];
    let mut sets = Vec::new();
    let count = rules.len();
    for (set, rules) in rules.iter().enumerate() {
        let words = rules.len().div_ceil(64);
        let mut numbers: HashMap<Bits, u16, FixedState> = HashMap::default();
        let mut list: Vec<Bits> = Vec::new();
        let mut bits = vec![0u64; words];
        // The beginnings and ends of rules, in order: each segment differs from the one before by these.
        let mut events: Vec<(u128, usize)> = Vec::new();
        for (rule, span) in rules.iter().enumerate() {
            if let Some((first, last)) = span {
                events.push((*first, rule));
                events.extend(last.checked_add(1).map(|end| (end, rule)));
            }
        }
        events.sort_unstable();
        let mut events = events.into_iter().peekable();
        for (index, start) in starts.iter().enumerate() {
            while let Some((_, rule)) = events.next_if(|(at, _)| at == start) {
                if let Some(word) = bits.get_mut(rule / 64) {
                    *word ^= 1 << (rule % 64);
                }
            }
            let number = match numbers.get(&bits) {
                Some(number) => *number,
                None => {
                    left.take(words * 16)?;
                    let number = u16::try_from(list.len()).ok()?;
                    numbers.insert(bits.clone(), number);
                    list.push(bits.clone());
                    number
                }
            };
            if let Some(class) = classes.get_mut(index * count + set) {
                *class = number;
            }
        }
        sets.push(list);
    }
    Some((Segments { starts, classes, sets: rules.len() }, sets))
}

/// Crosses two lists of classes; the last table holds the first rule instead of a class.
fn cross(a: &[Bits], b: &[Bits], last: bool, left: &mut Left) -> Option<(Cross, Vec<Bits>)> {
    left.take(a.len().checked_mul(b.len())?.checked_mul(4)?)?;
    let mut numbers: HashMap<Bits, u32, FixedState> = HashMap::default();
    let mut list: Vec<Bits> = Vec::new();
    let mut cells = Vec::with_capacity(a.len() * b.len());
    for a in a {
        for b in b {
            if last {
                let first = a.iter().zip(b).enumerate().find(|(_, (a, b))| *a & *b != 0);
                cells.push(first.map_or(NONE, |(i, (a, b))| i as u32 * 64 + (a & b).trailing_zeros()));
                continue;
            }
            let both: Bits = a.iter().zip(b).map(|(a, b)| a & b).collect();
            let number = match numbers.get(&both) {
                Some(number) => *number,
                None => {
                    left.take(both.len() * 16)?;
                    let number = list.len() as u32;
                    list.push(both.clone());
                    numbers.insert(both, number);
                    number
                }
            };
            cells.push(number);
        }
    }
    Some((Cross { columns: b.len() as u32, cells }, list))
}

impl Tables {
    /// Builds the tables from the classes of each field.
    fn new(fields: &[Vec<Bits>; FIELDS], left: &mut Left) -> Option<Self> {
        let [source, destination, source_port, destination_port, protocol, tenant, link] = fields;
        let (amt, addresses) = cross(source, destination, false, left)?;
        let (ports, both_ports) = cross(source_port, destination_port, false, left)?;
        let (pmt, with_protocol) = cross(&both_ports, protocol, false, left)?;
        let (scope, scopes) = cross(tenant, link, false, left)?;
        let (rest, rests) = cross(&with_protocol, &scopes, false, left)?;
        let (plt, _) = cross(&addresses, &rests, true, left)?;
        let rows = [
            source.len(),
            source_port.len(),
            both_ports.len(),
            tenant.len(),
            with_protocol.len(),
            addresses.len(),
        ];
        let crosses = [amt, ports, pmt, scope, rest, plt];
        // The last table is always read.
        let words = crosses.iter().zip(rows).take(5).map(|(c, rows)| c.words(rows)).sum::<usize>() + 1;
        Some(Tables { crosses, words })
    }

    fn find(&self, c: [u16; FIELDS]) -> u32 {
        let [source, destination, source_port, destination_port, protocol, tenant, link] = c.map(u32::from);
        let [amt, ports, pmt, scope, rest, plt] = &self.crosses;
        let addresses = amt.at(source, destination);
        let ports = pmt.at(ports.at(source_port, destination_port), protocol);
        plt.at(addresses, rest.at(ports, scope.at(tenant, link)))
    }

    fn bytes(&self) -> usize {
        self.crosses.iter().map(|c| c.cells.len() * 4).sum()
    }
}

impl Part {
    fn new(sets: &[(usize, &[RankedRule])], v6: bool, left: &mut Left) -> Option<Self> {
        let mut segments: [Segments; FIELDS] = Default::default();
        let mut classes: Vec<[Vec<Bits>; FIELDS]> = vec![Default::default(); sets.len()];
        for (field, out) in segments.iter_mut().enumerate() {
            let spans: Vec<Vec<_>> = sets
                .iter()
                .map(|(_, entries)| entries.iter().map(|e| span(&e.rule, field, v6)).collect())
                .collect();
            let (found, lists) = segment(&spans, left)?;
            *out = found;
            for (classes, list) in classes.iter_mut().zip(lists) {
                if let Some(place) = classes.get_mut(field) {
                    *place = list;
                }
            }
        }
        let mut tables = Vec::with_capacity(sets.len());
        for ((set, _), classes) in sets.iter().zip(&classes) {
            tables.push((*set, Tables::new(classes, left)?));
        }
        Some(Part { segments, tables })
    }

    fn words(&self, v6: bool) -> usize {
        let address = if v6 { 4 } else { 1 };
        let search = self.segments.iter().enumerate().map(|(f, s)| s.words(if f < 2 { address } else { 1 }));
        search.sum::<usize>() + self.tables.iter().map(|(_, t)| t.words).sum::<usize>()
    }

    fn bytes(&self, v6: bool) -> usize {
        let address = if v6 { 16 } else { 4 };
        let search = self.segments.iter().enumerate().map(|(f, s)| s.bytes(if f < 2 { address } else { 4 }));
        search.sum::<usize>() + self.tables.iter().map(|(_, t)| t.bytes()).sum::<usize>()
    }
}

impl Hsm {
    /// A classifier of so many rule sets, at most [`SETS_MAX`], that uses about `limit` bytes at most.
    #[must_use]
    pub fn new(sets: u8, segmentation: Segmentation, limit: usize) -> Self {
        let sets = vec![Vec::new(); usize::from(sets.min(SETS_MAX))];
        let mut new = Hsm { segmentation, limit, sets, parts: [Vec::new(), Vec::new()] };
        if let Some(parts) = new.build(&new.sets) {
            new.parts = parts;
        }
        new
    }

    fn build(&self, sets: &[Vec<RankedRule>]) -> Option<[Vec<Part>; 2]> {
        let mut left = Left(self.limit);
        let numbered: Vec<(usize, &[RankedRule])> = sets.iter().map(Vec::as_slice).enumerate().collect();
        let size = match self.segmentation {
            Segmentation::Separate => 1,
            Segmentation::Integrated => numbered.len().max(1),
        };
        let mut build =
            |v6| numbered.chunks(size).map(|sets| Part::new(sets, v6, &mut left)).collect::<Option<Vec<_>>>();
        Some([build(false)?, build(true)?])
    }

    fn replace(&mut self, sets: Vec<Vec<RankedRule>>) -> Result<(), InsertError> {
        let rules = sets.iter().map(Vec::len).sum();
        self.parts = self.build(&sets).ok_or(InsertError::Memory { rules, limit: self.limit })?;
        self.sets = sets;
        Ok(())
    }

    /// The most 32-bit words that an IPv4 lookup in all sets reads.
    #[must_use]
    pub fn words(&self) -> usize {
        let [v4, _] = &self.parts;
        v4.iter().map(|p| p.words(false)).sum()
    }

    /// Bytes of the tables that IPv4 lookups read.
    #[must_use]
    pub fn bytes_v4(&self) -> usize {
        let [v4, _] = &self.parts;
        v4.iter().map(|p| p.bytes(false)).sum()
    }
}

impl Classifier for Hsm {
    fn insert(&mut self, set: u8, entries: &[RankedRule]) -> Result<(), InsertError> {
        InsertError::check(set, self.sets.len(), entries)?;
        let mut sets = self.sets.clone();
        if let Some(list) = sets.get_mut(usize::from(set)) {
            list.extend_from_slice(entries);
            list.sort_by_key(|e| e.priority);
        }
        self.replace(sets)
    }

    fn delete(&mut self, fid: Fid) -> usize {
        let before = self.len();
        let mut sets = self.sets.clone();
        sets.iter_mut().for_each(|list| list.retain(|e| e.fid != fid));
        // Fewer rules can need more memory only close to the limit; then the tables stay, and the rules too.
        if self.replace(sets).is_err() {
            return 0;
        }
        before - self.len()
    }

    fn lookup(&self, header: &Header, results: &mut [Option<Match>]) {
        results.fill(None);
        let v6 = header.source.is_ipv6();
        if v6 != header.destination.is_ipv6() {
            // Headers of mixed versions have no table.
            for (list, result) in self.sets.iter().zip(results) {
                let found = list.iter().find(|e| e.rule.matches(header));
                *result = found.map(|e| Match { fid: e.fid, priority: e.priority });
            }
            return;
        }
        let [v4_parts, v6_parts] = &self.parts;
        let values = values(header);
        for part in if v6 { v6_parts } else { v4_parts } {
            let mut found = part.segments.iter().zip(values).map(|(segments, value)| segments.find(value));
            let found: [&[u16]; FIELDS] = std::array::from_fn(|_| found.next().unwrap_or_default());
            for (index, (set, tables)) in part.tables.iter().enumerate() {
                let rank = tables.find(found.map(|classes| classes.at(index)));
                let entry = self.sets.get(*set).and_then(|list| list.get(rank as usize));
                if let Some(result) = results.get_mut(*set) {
                    *result = entry.map(|e| Match { fid: e.fid, priority: e.priority });
                }
            }
        }
    }

    fn all_entries(&self) -> Vec<Vec<RankedRule>> {
        self.sets.clone()
    }

    fn sets(&self) -> usize {
        self.sets.len()
    }

    fn len(&self) -> usize {
        self.sets.iter().map(Vec::len).sum()
    }

    fn memory(&self) -> usize {
        let [v4, v6] = &self.parts;
        let tables = v4.iter().map(|p| p.bytes(false)).chain(v6.iter().map(|p| p.bytes(true))).sum::<usize>();
        tables + self.len() * size_of::<RankedRule>()
    }
}

/// An address as a number.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u32::from(v4).into(),
        IpAddr::V6(v6) => v6.into(),
    }
}
