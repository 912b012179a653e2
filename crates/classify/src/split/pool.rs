// SPDX-License-Identifier: Apache-2.0
//! Small groups with a cell for every pair of classes. Up to two groups of a set are a pool: they share the
//! classes of their addresses, so that their words are short and one read gives the lists of both.
//!
//! A lookup takes no branch and needs no check: a cell that no rule matches has the number of an empty list.

use super::aggregate::{Aggregate, AggregateLayout, NONE, NONE16};
use super::field::{BitField, bits};
use super::group::SplitGroup;
use super::prefix::Prefixes;
use bartizan_base::at::IndexOrDefault;

/// The most cells of a pool.
const CELLS_MAX: usize = 1 << 16;
/// Bytes that cells may always take; more, if displaced rows would take a quarter of them.
const BYTES_MIN: usize = 32 << 10;
/// The largest factor: 15 bits, since vector units multiply signed halves.
const FACTOR_MAX: usize = i16::MAX as usize;

/// One group of a pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolGroup {
    pub port: BitField,
    /// The number of port classes.
    pub columns: u32,
    /// A rank for each list and port class; the last list is empty.
    pub ranks: Vec<u16>,
    /// The port class for each kind of header; empty once words are made.
    pub port_class: Vec<u16>,
    /// For each cell its full list, for the case that the best rule was deleted.
    full_of: Vec<u32>,
    full: Vec<u32>,
    full_starts: Vec<u32>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct GroupPool {
    pub set: u8,
    pub source: BitField,
    pub destination: BitField,
    /// The number of source classes, which is the number of cells of a destination class.
    pub width: u32,
    /// For each destination and source class the list of the first part in the low half, of the second in the
    /// high half.
    pub cells: Vec<u32>,
    pub parts: Vec<PoolGroup>,
    /// Classes of source and destination; one each once words are made.
    pub prefixes: [Prefixes; 2],
}

/// Takes the small groups out of `groups` and makes pools of them.
pub(crate) fn take_pools(groups: &mut Vec<(SplitGroup, Aggregate)>) -> Vec<GroupPool> {
    let mut pools = Vec::new();
    let mut number = 0;
    while let Some(first) = groups.get(number) {
        let set = first.0.set;
        let second = (number + 1..groups.len()).find_map(|other| {
            let second = groups.get(other).filter(|(group, _)| group.set == set)?;
            Some((other, GroupPool::new(&[first, second])?))
        });
        if let Some((other, pool)) = second {
            pools.push(pool);
            groups.remove(other);
            groups.remove(number);
        } else if let Some(pool) = GroupPool::new(&[first]) {
            pools.push(pool);
            groups.remove(number);
        } else {
            number += 1;
        }
    }
    pools
}

impl GroupPool {
    /// Makes a pool of one or two groups; `None` if they have too many cells.
    fn new(groups: &[&(SplitGroup, Aggregate)]) -> Option<Self> {
        let prefixes = [true, false].map(|source| {
            Prefixes::new(groups.iter().flat_map(|(group, _)| &group.prefixes(source).list).copied())
        });
        let [sources, destinations] = &prefixes;
        let width = sources.len();
        // As many as the fields of the words can select.
        let cells = ((1usize << bits(destinations.len())) - 1) * width + (1 << bits(width));
        let displaced: usize = groups.iter().map(|(_, aggregate)| aggregate.slots.len() * 8).sum();
        if cells > CELLS_MAX || cells * 4 > BYTES_MIN.max(displaced * 4) || width > FACTOR_MAX {
            return None;
        }
        let mut pool = GroupPool {
            set: groups.first()?.0.set,
            source: BitField::default(),
            destination: BitField::default(),
            width: width as u32,
            cells: vec![0; cells],
            parts: Vec::with_capacity(groups.len()),
            prefixes: prefixes.clone(),
        };
        for (number, (group, aggregate)) in groups.iter().enumerate() {
            pool.add(number, group, aggregate, [sources, destinations])?;
        }
        Some(pool)
    }

    fn add(
        &mut self,
        number: usize,
        group: &SplitGroup,
        aggregate: &Aggregate,
        [sources, destinations]: [&Prefixes; 2],
    ) -> Option<()> {
        let AggregateLayout::Direct(of_lists) = &aggregate.form else { return None };
        let (lists, columns) = (group.lists.len(), aggregate.columns);
        if lists > FACTOR_MAX || columns > FACTOR_MAX {
            return None;
        }
        // Lists of the group's own cells; the empty one if there is no run.
        let own_width = group.columns.len();
        let mut own = vec![(lists as u32, u32::MAX); group.rows.len() * own_width];
        for (runs, row) in group.runs.iter().zip(own.chunks_exact_mut(own_width)) {
            for run in runs {
                row.get_mut(run.first as usize..run.end as usize)?.fill((run.list, run.full));
            }
        }
        let of_source = sources.project(group.prefixes(true));
        let of_destination = destinations.project(group.prefixes(false));
        let mut full_of = Vec::with_capacity(sources.len() * destinations.len());
        let rows = self.cells.chunks_exact_mut(sources.len());
        for (destination, cells) in of_destination.iter().zip(rows) {
            for (source, cell) in of_source.iter().zip(cells) {
                let (row, column) =
                    if group.rows_are_source { (source, destination) } else { (destination, source) };
                let (list, full) = own.at(*row as usize * own_width + *column as usize);
                *cell |= list << (16 * number);
                full_of.push(full);
            }
        }
        let mut ranks = of_lists.get(..lists * columns)?.to_vec();
        // The empty list, and one more: vector reads take 4 bytes at a time.
        ranks.resize((lists + 1) * columns + 1, NONE16);
        self.parts.push(PoolGroup {
            port: BitField::default(),
            columns: columns as u32,
            ranks,
            port_class: group.port_class.clone(),
            full_of,
            full: group.full.clone(),
            full_starts: group.full_starts.clone(),
        });
        Some(())
    }

    /// Drops the data that words were made from.
    pub fn finish(&mut self) {
        self.prefixes = [Prefixes::default(), Prefixes::default()];
        for part in &mut self.parts {
            part.port_class = Vec::new();
        }
    }

    /// Index of the cell, from the words of the addresses.
    #[inline(always)]
    pub fn index(&self, source: u64, destination: u64) -> u32 {
        self.destination.of(destination) * self.width + self.source.of(source)
    }

    /// Rank of the best rule, from the words of the fields.
    #[inline(always)]
    pub fn find(&self, source: u64, destination: u64, ports: u64) -> u32 {
        let mut cell = self.cells.at(self.index(source, destination) as usize);
        let mut best = NONE;
        for part in &self.parts {
            best = best.min(part.rank(cell & 0xffff, ports));
            cell >>= 16;
        }
        best
    }

    /// For each part, the ranks of all its rules whose addresses match, in order.
    pub fn candidates(&self, source: u64, destination: u64) -> impl Iterator<Item = &[u32]> {
        let index = self.index(source, destination) as usize;
        self.parts.iter().map(move |part| {
            // An empty cell's list is the last one, which has no entries.
            let list = part.full_of.get(index).copied().unwrap_or(u32::MAX) as usize;
            let (from, to) = (part.full_starts.at(list), part.full_starts.at(list + 1));
            part.full.get(from as usize..to as usize).unwrap_or_default()
        })
    }

    /// Bytes of all tables.
    pub fn bytes(&self) -> usize {
        let part =
            |p: &PoolGroup| p.ranks.len() * 2 + (p.full_of.len() + p.full.len() + p.full_starts.len()) * 4;
        self.cells.len() * 4 + self.parts.iter().map(part).sum::<usize>()
    }
}

impl PoolGroup {
    /// The rank of the best rule of a list, from the word of the ports.
    #[inline(always)]
    fn rank(&self, list: u32, ports: u64) -> u32 {
        match self.ranks.at((list * self.columns + self.port.of(ports)) as usize) {
            NONE16 => NONE,
            rank => u32::from(rank),
        }
    }
}
