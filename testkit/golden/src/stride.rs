// SPDX-License-Identifier: Apache-2.0
//! StrideBV: bit vectors per stride of the header's bits.
//!
//! Source: Ganegedara, Jiang, Prasanna, "A Scalable and Modular Architecture for High-Performance Packet
//! Classification" (TPDS 2014). The key is the header as a row of bits; each stride of four bits has, for
//! each of its 16 values, a vector with a bit for every ternary entry that matches. A lookup ands one vector
//! per stride; the first bit left is the match.
//!
//! The twin of the RTL's table: entries are [`Ternary`], key and mask in the order source, destination,
//! source port, destination port, protocol, link, tenant, most significant bit first; port ranges become
//! prefixes, so a rule may take several entries, and each entry has a valid bit. Memory is 2 bytes per stride
//! and entry, whatever the rules are. Strides without a condition of any entry are left out. Meant for some
//! 1,000 entries.
//!
//! Inserts rebuild the vectors; deletes clear valid bits.

use crate::line::{Line, first_bit};
use bartizan_base::Fid;
use bartizan_base::at::IndexOrDefault;
use bartizan_classify::{
    Classifier, Flat, Header, HeaderRule, InsertError, Match, Net, Range, RankedRule, SETS_MAX,
};

/// Bits of a line.
const LINE: usize = 512;
/// Values of a stride.
const VALUES: usize = 16;
/// Bytes of a key: IPv4 and IPv6.
const KEYS: [usize; 2] = [16, 40];

/// An entry as hardware holds it: the mask of significant bits, and their values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ternary {
    /// The values that the bits must have; zero where they do not count.
    pub key: Vec<u8>,
    /// The significant bits.
    pub mask: Vec<u8>,
}

impl Ternary {
    /// The entries of a rule for one IP version; none if no header of it can match.
    #[must_use]
    pub fn of(rule: &HeaderRule, v6: bool) -> Vec<Self> {
        let (Some(source), Some(destination)) = (address(rule.source, v6), address(rule.destination, v6))
        else {
            return Vec::new();
        };
        let link = match rule.link.map(|l| u8::try_from(l.0)) {
            None => (0, 0),
            Some(Ok(link)) => (link, 0xff),
            Some(Err(_)) => return Vec::new(),
        };
        let protocol = rule.protocol.map_or((0, 0), |p| (p, 0xff));
        let tenant: (u16, u16) = rule.tenant.map_or((0, 0), |t| (t.0, 0xffff));
        let mut out = Vec::new();
        for source_port in prefixes(rule.source_ports) {
            for destination_port in prefixes(rule.destination_ports) {
                let mut new = Ternary { key: Vec::new(), mask: Vec::new() };
                new.push(&source.0, &source.1);
                new.push(&destination.0, &destination.1);
                for (key, mask) in [source_port, destination_port] {
                    new.push(&key.to_be_bytes(), &mask.to_be_bytes());
                }
                new.push(&[protocol.0, link.0], &[protocol.1, link.1]);
                new.push(&tenant.0.to_be_bytes(), &tenant.1.to_be_bytes());
                out.push(new);
            }
        }
        out
    }

    fn push(&mut self, key: &[u8], mask: &[u8]) {
        self.key.extend_from_slice(key);
        self.mask.extend_from_slice(mask);
    }
}

/// Key and mask of an address.
fn address(net: Option<Net>, v6: bool) -> Option<(Vec<u8>, Vec<u8>)> {
    let bytes = if v6 { 16 } else { 4 };
    let Some(net) = net else { return Some((vec![0; bytes], vec![0; bytes])) };
    let (version, first, last) = net.range();
    let low = |number: u128| number.to_be_bytes().into_iter().skip(16 - bytes).collect::<Vec<u8>>();
    (version == v6).then(|| (low(first), low(!(first ^ last))))
}

/// A range as values with masks.
fn prefixes(range: Range) -> Vec<(u16, u16)> {
    let mut out = Vec::new();
    let (mut at, last) = (u32::from(range.first), u32::from(range.last));
    while at <= last {
        // The largest aligned block that begins here and does not go beyond the end.
        let mut bits = at.trailing_zeros().min(16);
        while at + (1 << bits) - 1 > last {
            bits -= 1;
        }
        out.push((at as u16, !((1u32 << bits) - 1) as u16));
        at += 1 << bits;
    }
    out
}

fn key(flat: &Flat) -> ([u8; 40], usize) {
    let mut out = [0; 40];
    let mut at = 0;
    let mut push = |bytes: &[u8]| {
        for (to, from) in out.iter_mut().skip(at).zip(bytes) {
            *to = *from;
        }
        at += bytes.len();
    };
    let small = match flat {
        Flat::V4(h) => {
            push(&h.source.to_be_bytes());
            push(&h.destination.to_be_bytes());
            (h.source_port, h.destination_port, h.protocol, h.link, h.tenant)
        }
        Flat::V6(h) => {
            h.source.iter().chain(&h.destination).for_each(|half| push(&half.to_be_bytes()));
            (h.source_port, h.destination_port, h.protocol, h.link, h.tenant)
        }
    };
    push(&small.0.to_be_bytes());
    push(&small.1.to_be_bytes());
    push(&[small.2, small.3]);
    push(&small.4.to_be_bytes());
    (out, at)
}

/// The vectors of one IP version.
#[derive(Clone, Debug, Default)]
struct Planes {
    /// The nibbles of the key with a condition of some entry.
    strides: Vec<u8>,
    /// For each stride and value the lines.
    lines: Vec<Line>,
    valid: Vec<Line>,
    /// The place of each entry in its set's list, by bit.
    ranks: Vec<u32>,
    /// The first line of each set, and the end of the last.
    bounds: Vec<usize>,
}

impl Planes {
    fn new(sets: &[Vec<RankedRule>], v6: bool, limit: usize) -> Option<Self> {
        let mut planes = Planes { bounds: vec![0], ..Planes::default() };
        let mut entries: Vec<Option<Ternary>> = Vec::new();
        for list in sets {
            for (rank, entry) in list.iter().enumerate() {
                for ternary in Ternary::of(&entry.rule, v6) {
                    entries.push(Some(ternary));
                    planes.ranks.push(rank as u32);
                }
                if entries.len() > limit / VALUES {
                    return None;
                }
            }
            entries.resize(entries.len().next_multiple_of(LINE), None);
            planes.ranks.resize(entries.len(), u32::MAX);
            planes.bounds.push(entries.len() / LINE);
        }
        let nibbles = KEYS.at(usize::from(v6)) * 2;
        let nibble = |bytes: &[u8], i: usize| bytes.at(i / 2) >> (4 - i % 2 * 4) & 15;
        planes.strides = (0..nibbles)
            .filter(|i| entries.iter().flatten().any(|e| nibble(&e.mask, *i) != 0))
            .map(|i| i as u8)
            .collect();
        let count = entries.len() / LINE;
        if planes.strides.len() * VALUES * count * size_of::<Line>() > limit {
            return None;
        }
        planes.lines = vec![Line::default(); planes.strides.len() * VALUES * count];
        planes.valid = vec![Line::default(); count];
        for (bit, entry) in entries.iter().enumerate() {
            let Some(entry) = entry else { continue };
            let (line, bit) = (bit / LINE, bit % LINE);
            planes.valid.iter_mut().skip(line).take(1).for_each(|l| l.set(bit));
            for (stride, i) in planes.strides.iter().enumerate() {
                let (key, mask) = (nibble(&entry.key, usize::from(*i)), nibble(&entry.mask, usize::from(*i)));
                for value in (0..VALUES as u8).filter(|v| v & mask == key & mask) {
                    let at = (stride * VALUES + usize::from(value)) * count + line;
                    planes.lines.iter_mut().skip(at).take(1).for_each(|l| l.set(bit));
                }
            }
        }
        Some(planes)
    }

    /// The rank of the first entry of a set that matches.
    fn find(&self, set: usize, key: &[u8]) -> Option<u32> {
        let (from, to) = (self.bounds.at(set), self.bounds.at(set + 1));
        let mut starts = [0usize; 80];
        let count = self.valid.len();
        for (stride, (i, start)) in self.strides.iter().zip(&mut starts).enumerate() {
            let i = usize::from(*i);
            let value = key.at(i / 2) >> (4 - i % 2 * 4) & 15;
            *start = (stride * VALUES + usize::from(value)) * count;
        }
        let starts = starts.get(..self.strides.len()).unwrap_or_default();
        first_bit(&self.valid, &self.lines, starts, from..to).map(|bit| self.ranks.at(bit))
    }

    fn bytes(&self) -> usize {
        (self.lines.len() + self.valid.len()) * size_of::<Line>() + self.ranks.len() * 4
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct StrideBv {
    limit: usize,
    sets: Vec<Vec<RankedRule>>,
    /// Entries deleted since the vectors were made, by set and place.
    gone: Vec<Vec<bool>>,
    planes: [Planes; 2],
}

impl StrideBv {
    /// A classifier of so many rule sets, at most [`SETS_MAX`], that uses about `limit` bytes at most.
    #[must_use]
    pub fn new(sets: u8, limit: usize) -> Self {
        let sets = vec![Vec::new(); usize::from(sets.min(SETS_MAX))];
        let planes = [false, true].map(|v6| Planes::new(&sets, v6, limit).unwrap_or_default());
        StrideBv { limit, gone: vec![Vec::new(); sets.len()], sets, planes }
    }

    /// The ternary entries of both versions.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.planes.iter().flat_map(|p| &p.ranks).filter(|r| **r != u32::MAX).count()
    }

    fn live(&self) -> Vec<Vec<RankedRule>> {
        let of = |(list, gone): (&Vec<RankedRule>, &Vec<bool>)| {
            list.iter().zip(gone).filter(|(_, gone)| !**gone).map(|(e, _)| *e).collect()
        };
        self.sets.iter().zip(&self.gone).map(of).collect()
    }
}

impl Classifier for StrideBv {
    fn insert(&mut self, set: u8, entries: &[RankedRule]) -> Result<(), InsertError> {
        InsertError::check(set, self.sets.len(), entries)?;
        let mut sets = self.live();
        if let Some(list) = sets.get_mut(usize::from(set)) {
            list.extend_from_slice(entries);
            list.sort_by_key(|e| e.priority);
        }
        let rules = sets.iter().map(Vec::len).sum();
        let build =
            |v6| Planes::new(&sets, v6, self.limit).ok_or(InsertError::Memory { rules, limit: self.limit });
        self.planes = [build(false)?, build(true)?];
        self.gone = sets.iter().map(|s| vec![false; s.len()]).collect();
        self.sets = sets;
        Ok(())
    }

    fn delete(&mut self, fid: Fid) -> usize {
        let mut count = 0;
        for (set, (list, gone)) in self.sets.iter().zip(&mut self.gone).enumerate() {
            for (entry, gone) in list.iter().zip(gone.iter_mut()) {
                if entry.fid == fid && !*gone {
                    *gone = true;
                    count += 1;
                }
            }
            for planes in &mut self.planes {
                let (from, to) = (planes.bounds.at(set) * LINE, planes.bounds.at(set + 1) * LINE);
                for (bit, rank) in planes.ranks.iter().enumerate().take(to).skip(from) {
                    if gone.at(*rank as usize) {
                        planes.valid.iter_mut().skip(bit / LINE).take(1).for_each(|l| l.clear(bit % LINE));
                    }
                }
            }
        }
        count
    }

    fn lookup(&self, header: &Header, results: &mut [Option<Match>]) {
        results.fill(None);
        let flat = Flat::new(header);
        let [v4, v6] = &self.planes;
        let planes = if header.source.is_ipv4() { v4 } else { v6 };
        let key = flat.as_ref().map(key);
        for (set, (list, gone)) in self.sets.iter().zip(&self.gone).enumerate() {
            let entry = match &key {
                Some((key, length)) => {
                    let key = key.get(..*length).unwrap_or_default();
                    planes.find(set, key).and_then(|rank| list.get(rank as usize))
                }
                // A rule without a flat form is in no vector.
                None => {
                    list.iter().zip(gone).find(|(e, gone)| !**gone && e.rule.matches(header)).map(|(e, _)| e)
                }
            };
            if let Some(result) = results.get_mut(set) {
                *result = entry.map(|e| Match { fid: e.fid, priority: e.priority });
            }
        }
    }

    fn all_entries(&self) -> Vec<Vec<RankedRule>> {
        self.live()
    }

    fn sets(&self) -> usize {
        self.sets.len()
    }

    fn len(&self) -> usize {
        self.gone.iter().flatten().filter(|gone| !**gone).count()
    }

    fn memory(&self) -> usize {
        self.planes.iter().map(Planes::bytes).sum::<usize>()
            + self.sets.iter().map(|s| s.len() * (size_of::<RankedRule>() + 1)).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_become_prefixes() {
        assert_eq!(prefixes(Range::ANY), [(0, 0)]);
        assert_eq!(prefixes(Range::one(65_535)), [(65_535, 65_535)]);
        assert_eq!(prefixes(Range { first: 1, last: 65_534 }).len(), 30);
        for (first, last) in [(0, 0), (0, 1023), (1024, 65_535), (5, 77)] {
            let list = prefixes(Range { first, last });
            for port in 0..=u16::MAX {
                let matches = list.iter().filter(|(key, mask)| port & mask == *key).count();
                assert_eq!(matches, usize::from((first..=last).contains(&port)));
            }
        }
    }
}
