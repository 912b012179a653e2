// SPDX-License-Identifier: Apache-2.0
//! Lookups without vector units: of a block of headers, one stage at a time, so that reads of different
//! headers are in flight together (the oracle of the vector forms), and of one header.
//!
//! In a block no branch depends on loaded data: it would be unpredictable, and each misprediction costs
//! more than the read that it saves.

use super::aggregate::{Aggregate, AggregateLayout, BASE_MASK, CHECK_SHIFT, NONE8, NONE16, PATTERN_SHIFT};
use super::pool::GroupPool;
use super::search::Search4;
use super::tables::{AddressWords, Bundle, PortWords, Searches, SplitTables};
use crate::flat::{FlatV4, FlatV6};
use bartizan_base::at::IndexOrDefault;

/// The headers of a block.
pub(crate) const BLOCK: usize = 64;

/// The result of the field stage for a header: leaf of source and destination, index of the port words.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FieldLeaves {
    pub source: u32,
    pub destination: u32,
    pub ports: u32,
}

/// The result of the field stage for a block.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub source: [u32; BLOCK],
    pub destination: [u32; BLOCK],
    pub ports: [u32; BLOCK],
}

impl Default for Stage {
    fn default() -> Self {
        Stage { source: [0; BLOCK], destination: [0; BLOCK], ports: [0; BLOCK] }
    }
}

/// The words of a block.
struct BlockWords {
    source: [u64; BLOCK],
    destination: [u64; BLOCK],
    ports: [u64; BLOCK],
}

/// The fields of a header besides the addresses.
#[derive(Clone, Copy)]
struct Small {
    source_port: u16,
    destination_port: u16,
    protocol: u8,
    tenant: u16,
    link: u8,
}

impl From<&FlatV4> for Small {
    #[inline(always)]
    fn from(h: &FlatV4) -> Self {
        Small {
            source_port: h.source_port,
            destination_port: h.destination_port,
            protocol: h.protocol,
            tenant: h.tenant,
            link: h.link,
        }
    }
}

impl From<&FlatV6> for Small {
    #[inline(always)]
    fn from(h: &FlatV6) -> Self {
        Small {
            source_port: h.source_port,
            destination_port: h.destination_port,
            protocol: h.protocol,
            tenant: h.tenant,
            link: h.link,
        }
    }
}

impl SplitTables {
    #[inline(always)]
    fn port_index(&self, s: Small) -> u32 {
        let values = [
            u32::from(s.source_port),
            u32::from(s.destination_port),
            u32::from(s.protocol),
            u32::from(s.tenant),
            u32::from(s.link),
        ];
        let mut index = 0;
        for ((table, value), stride) in self.ports.iter().zip(values).zip(self.strides) {
            index += table.class(value) * stride;
        }
        index
    }

    /// Field stage of at most [`BLOCK`] IPv4 headers.
    #[inline(always)]
    pub(crate) fn stage_v4(&self, headers: &[FlatV4], stage: &mut Stage) {
        let Searches::V4([source, destination]) = &self.searches else { return };
        find_all(source, headers, |h| h.source, &mut stage.source);
        find_all(destination, headers, |h| h.destination, &mut stage.destination);
        for (header, out) in headers.iter().zip(&mut stage.ports) {
            *out = self.port_index(header.into());
        }
    }

    /// Field stage of at most [`BLOCK`] IPv6 headers.
    #[inline(always)]
    pub(crate) fn stage_v6(&self, headers: &[FlatV6], stage: &mut Stage) {
        let Searches::V6([source, destination]) = &self.searches else { return };
        for (header, out) in headers.iter().zip(&mut stage.source) {
            *out = source.find(header.source);
        }
        for (header, out) in headers.iter().zip(&mut stage.destination) {
            *out = destination.find(header.destination);
        }
        self.stage_v6_ports(headers, stage);
    }

    /// The field stage without the addresses.
    #[inline(always)]
    pub(crate) fn stage_v6_ports(&self, headers: &[FlatV6], stage: &mut Stage) {
        for (header, out) in headers.iter().zip(&mut stage.ports) {
            *out = self.port_index(header.into());
        }
    }

    /// Aggregation of `count` headers: lowers the ranks in `results`, [`BLOCK`] for each set.
    #[inline(always)]
    pub(crate) fn aggregate(&self, stage: &Stage, count: usize, results: &mut [[u32; BLOCK]]) {
        let mut words = BlockWords { source: [0; BLOCK], destination: [0; BLOCK], ports: [0; BLOCK] };
        for bundle in &self.bundles {
            bundle.words_of_block(stage, count, &mut words);
            for aggregate in &bundle.aggregates {
                if let Some(results) = results.get_mut(usize::from(aggregate.set)) {
                    aggregate.find_all(&words, count, results);
                }
            }
            for pool in &bundle.pools {
                if let Some(results) = results.get_mut(usize::from(pool.set)) {
                    pool.find_all(&words, count, results);
                }
            }
        }
    }
}

/// One header at a time: the plain form of the algorithm, and for lookups without a batch.
impl SplitTables {
    /// Field stage of an IPv4 header.
    #[inline]
    pub(crate) fn leaves_v4(&self, header: &FlatV4) -> FieldLeaves {
        let Searches::V4([source, destination]) = &self.searches else { return FieldLeaves::default() };
        let (source, destination) = (source.find(header.source), destination.find(header.destination));
        FieldLeaves { source, destination, ports: self.port_index(header.into()) }
    }

    /// Field stage of an IPv6 header.
    #[inline]
    pub(crate) fn leaves_v6(&self, header: &FlatV6) -> FieldLeaves {
        let Searches::V6([source, destination]) = &self.searches else { return FieldLeaves::default() };
        let (source, destination) = (source.find(header.source), destination.find(header.destination));
        FieldLeaves { source, destination, ports: self.port_index(header.into()) }
    }

    /// Aggregation: lowers the rank of each set.
    #[inline]
    pub(crate) fn find(&self, leaves: FieldLeaves, ranks: &mut [u32]) {
        for bundle in &self.bundles {
            let [source, destination, ports] = bundle.words(leaves);
            for aggregate in &bundle.aggregates {
                if let Some(rank) = ranks.get_mut(usize::from(aggregate.set)) {
                    *rank = aggregate.find(source, destination, ports).min(*rank);
                }
            }
            for pool in &bundle.pools {
                if let Some(rank) = ranks.get_mut(usize::from(pool.set)) {
                    *rank = pool.find(source, destination, ports).min(*rank);
                }
            }
        }
    }

    /// The ranks of all rules of a set whose addresses match, best first in each slice.
    pub(crate) fn candidates(&self, leaves: FieldLeaves, set: u8) -> impl Iterator<Item = &[u32]> {
        self.bundles.iter().flat_map(move |bundle| {
            let [source, destination, _] = bundle.words(leaves);
            let of_set = bundle.aggregates.iter().filter(move |a| a.set == set);
            let of_pools = bundle.pools.iter().filter(move |p| p.set == set);
            of_set
                .map(move |a| a.candidates(source, destination))
                .chain(of_pools.flat_map(move |p| p.candidates(source, destination)))
        })
    }
}

/// Finds the leaves of addresses, a level of the trie at a time.
#[inline(always)]
fn find_all<H>(search: &Search4, headers: &[H], address: impl Fn(&H) -> u32, out: &mut [u32; BLOCK]) {
    let mut places = [0u32; BLOCK];
    for ((header, place), entry) in headers.iter().zip(&mut places).zip(&mut *out) {
        (*place, *entry) = search.root(address(header));
    }
    for level in search.levels() {
        for ((header, place), entry) in headers.iter().zip(&mut places).zip(&mut *out) {
            (*place, *entry) = search.step(*level, address(header), (*place, *entry));
        }
    }
}

impl Bundle {
    /// The words of a header: source, destination, ports.
    #[inline(always)]
    fn words(&self, leaves: FieldLeaves) -> [u64; 3] {
        [self.source.of(leaves.source), self.destination.of(leaves.destination), self.ports.of(leaves.ports)]
    }

    #[inline(always)]
    fn words_of_block(&self, stage: &Stage, count: usize, out: &mut BlockWords) {
        for (leaf, out) in stage.source.iter().zip(&mut out.source).take(count) {
            *out = self.source.of(*leaf);
        }
        for (leaf, out) in stage.destination.iter().zip(&mut out.destination).take(count) {
            *out = self.destination.of(*leaf);
        }
        for (index, out) in stage.ports.iter().zip(&mut out.ports).take(count) {
            *out = self.ports.of(*index);
        }
    }
}

impl AddressWords {
    #[inline(always)]
    fn of(&self, leaf: u32) -> u64 {
        match self {
            AddressWords::Leaf => u64::from(leaf),
            AddressWords::Table(words) => words.at(leaf as usize),
        }
    }
}

impl PortWords {
    #[inline(always)]
    fn of(&self, index: u32) -> u64 {
        match self {
            PortWords::Narrow(words) => u64::from(words.at(index as usize)),
            PortWords::Wide(words) => words.at(index as usize),
        }
    }
}

impl Aggregate {
    /// As [`Aggregate::find`], for a block: a header without a rule reads the end of a table, which means no
    /// rule.
    #[inline(always)]
    fn find_all(&self, words: &BlockWords, count: usize, results: &mut [u32; BLOCK]) {
        let (rows, columns) = if self.rows_are_source {
            (&words.source, &words.destination)
        } else {
            (&words.destination, &words.source)
        };
        // The slot of each header, and all ones if the slot is its row's.
        let mut slots = [(0u64, 0u32); BLOCK];
        let last = self.slots.len().wrapping_sub(1);
        for ((row, column), out) in rows.iter().zip(columns).zip(&mut slots).take(count) {
            let row = self.row.of(*row);
            let slot = self.slots.at(row.wrapping_add(self.column.of(*column)) as usize & last);
            *out = (slot, ones((slot >> CHECK_SHIFT) as u32 == row));
        }
        let with_ports = slots.iter().zip(&words.ports).zip(results).take(count);
        match &self.form {
            AggregateLayout::Direct(ranks) => {
                let none = ranks.len() as u32 - 1;
                for (((slot, hit), ports), result) in with_ports {
                    let index = (*slot as u32 & BASE_MASK) + self.port.of(*ports);
                    let rank = ranks.at((index & hit | none & !hit) as usize);
                    *result = (*result).min(u32::from(rank) | ones(rank == NONE16));
                }
            }
            AggregateLayout::Positions { positions, columns, ranks } => {
                let none = positions.len() as u32 - 1;
                for (((slot, hit), ports), result) in with_ports {
                    let pattern = (slot >> PATTERN_SHIFT) as u32 & 0xffff;
                    let index = pattern * columns + self.port.of(*ports);
                    let position = positions.at((index & hit | none & !hit) as usize);
                    let missing = ones(position == NONE8);
                    let index = (*slot as u32 & BASE_MASK) + u32::from(position);
                    let rank = ranks.at((index & !missing) as usize);
                    *result = (*result).min(rank | missing);
                }
            }
        }
    }
}

/// All bits or none. By arithmetic: a choice between two values would become a branch.
#[inline(always)]
fn ones(condition: bool) -> u32 {
    u32::from(condition).wrapping_neg()
}

impl GroupPool {
    /// As [`GroupPool::find`], for a block.
    #[inline(always)]
    fn find_all(&self, words: &BlockWords, count: usize, results: &mut [u32; BLOCK]) {
        let words = words.source.iter().zip(&words.destination).zip(&words.ports);
        for (((source, destination), ports), result) in words.zip(results).take(count) {
            *result = self.find(*source, *destination, *ports).min(*result);
        }
    }
}
