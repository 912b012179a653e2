// SPDX-License-Identifier: Apache-2.0
//! Checks whether every index that a lookup can form is in bounds. The vector forms rely on this; see
//! [`super::Checked`].

use super::super::aggregate::{
    Aggregate, AggregateLayout, BASE_MASK, CHECK_SHIFT, EMPTY, NONE8, PATTERN_SHIFT,
};
use super::super::field::BitField;
use super::super::pool::GroupPool;
use super::super::search::{Level4, NODE, Search4, Search6};
use super::super::tables::{AddressWords, Bundle, PortTable, PortWords, Searches, SplitTables};
use bartizan_base::at::IndexOrDefault;

/// The number of values of each port field.
const VALUES: [usize; 5] = [1 << 16, 1 << 16, 1 << 8, 1 << 16, 1 << 8];

/// Whether all indices of the tables are in bounds.
pub(super) fn in_bounds(tables: &SplitTables) -> bool {
    let top = match &tables.searches {
        Searches::V4([source, destination]) => [top_leaf4(source), top_leaf4(destination)],
        Searches::V6([source, destination]) => [top_leaf6(source), top_leaf6(destination)],
    };
    let [Some(source), Some(destination)] = top else { return false };
    let Some(ports) = top_port_index(tables) else { return false };
    tables.bundles.iter().all(|b| bundle(b, source, destination, ports))
}

/// The largest leaf, if every node is in the table and no path is longer than the number of levels.
fn top_leaf4(search: &Search4) -> Option<usize> {
    let top = top_below(search, search.nodes.get(..1 << 16)?, search.levels())?;
    (top < NODE).then_some(top as usize)
}

/// The largest leaf among these entries and all below.
fn top_below(search: &Search4, entries: &[u32], levels: &[Level4]) -> Option<u32> {
    let Some((level, below)) = levels.split_first() else {
        return entries.iter().copied().max();
    };
    entries.iter().try_fold(0, |top, entry| {
        if entry & NODE == 0 {
            return Some(top.max(*entry));
        }
        let start = (entry & !NODE) as usize;
        let node = search.nodes.get(start..=start + level.mask as usize)?;
        Some(top.max(top_below(search, node, below)?))
    })
}

fn top_leaf6(search: &Search6) -> Option<usize> {
    let roots = &search.roots;
    let keys = search.keys.len();
    let grow = roots.len() == (1 << 16) + 1 && roots.iter().all(|r| *r as usize <= keys);
    if !grow || keys == 0 || search.values.len() != keys || search.skip > 48 || keys > NODE as usize {
        return None;
    }
    search.leaves().max().map(|top| top as usize)
}

fn top_port_index(tables: &SplitTables) -> Option<usize> {
    let mut top = 0;
    for ((table, values), stride) in tables.ports.iter().zip(VALUES).zip(tables.strides) {
        let class = match table {
            PortTable::One => 0,
            // Reads take four bytes.
            PortTable::Narrow(of) if of.len() >= values + 3 => usize::from(of.iter().max().copied()?),
            PortTable::Wide(of) if of.len() > values => usize::from(of.iter().max().copied()?),
            _ => return None,
        };
        top += class * stride as usize;
    }
    (top < NODE as usize).then_some(top)
}

fn bundle(bundle: &Bundle, source: usize, destination: usize, ports: usize) -> bool {
    let inside = |words: &AddressWords, top: usize| match words {
        AddressWords::Leaf => true,
        AddressWords::Table(words) => top < words.len(),
    };
    let words: Box<dyn Fn(usize) -> u64> = match &bundle.ports {
        PortWords::Narrow(words) if ports < words.len() => Box::new(|i| u64::from(words.at(i))),
        PortWords::Wide(words) if ports < words.len() => Box::new(|i| words.at(i)),
        _ => return false,
    };
    inside(&bundle.source, source)
        && inside(&bundle.destination, destination)
        && bundle.aggregates.iter().all(|a| {
            let top = (0..=ports).map(|i| a.port.of(words(i))).max().unwrap_or(0);
            aggregate(a, top as usize)
        })
        && bundle.pools.iter().all(|p| {
            let top = |of: BitField| (0..=ports).map(|i| of.of(words(i))).max().unwrap_or(0);
            pool(p, |number| p.parts.get(number).map_or(0, |part| top(part.port) as usize))
        })
}

/// Whether a field is in one half of a word.
fn in_half(field: BitField) -> bool {
    field.mask < 1 << 24 && field.shift % 32 + field.mask.trailing_ones() <= 32 && field.shift < 64
}

/// `port` returns the largest port class that a header can have, for each part.
fn pool(pool: &GroupPool, port: impl Fn(usize) -> usize) -> bool {
    let half = i16::MAX as u32;
    // The fields' masks bound all classes that the words can have. Factors are multiplied as signed halves.
    let top = u64::from(pool.destination.mask) * u64::from(pool.width) + u64::from(pool.source.mask);
    if !in_half(pool.source) || !in_half(pool.destination) || pool.parts.len() > 2 {
        return false;
    }
    if top >= pool.cells.len() as u64 || pool.destination.mask > half || pool.width > half {
        return false;
    }
    pool.parts.iter().enumerate().all(|(number, part)| {
        let list = pool.cells.iter().map(|cell| cell >> (16 * number) & 0xffff).max().unwrap_or(0);
        // Reads take two entries.
        let top = list as usize * part.columns as usize + port(number) + 2;
        in_half(part.port) && list <= half && part.columns <= half && top <= part.ranks.len()
    })
}

/// `port` is the largest port class that a header can have.
fn aggregate(aggregate: &Aggregate, port: usize) -> bool {
    let fields = [aggregate.row, aggregate.column, aggregate.port];
    let halves = fields.into_iter().all(in_half);
    // An empty slot's check is all ones, which is no row's number.
    if !halves || !aggregate.slots.len().is_power_of_two() || aggregate.slots.len() > 1 << 24 {
        return false;
    }
    if aggregate.row.mask >= (EMPTY >> CHECK_SHIFT) as u32 {
        return false;
    }
    let filled = || aggregate.slots.iter().filter(|s| **s != EMPTY);
    let base = |slot: u64| (slot as u32 & BASE_MASK) as usize;
    match &aggregate.form {
        // Reads take two entries.
        AggregateLayout::Direct(ranks) => filled().all(|slot| base(*slot) + port + 2 <= ranks.len()),
        AggregateLayout::Positions { positions, columns, ranks } => {
            let tops: Vec<Option<usize>> = positions
                .chunks_exact((*columns as usize).max(1))
                .map(|row| row.iter().filter(|p| **p != NONE8).max().map(|p| usize::from(*p)))
                .collect();
            port < *columns as usize
                && positions.len() < NODE as usize
                && filled().all(|slot| {
                    let pattern = (slot >> PATTERN_SHIFT) as usize & 0xffff;
                    pattern * *columns as usize + port + 4 <= positions.len()
                        && tops.get(pattern).is_some_and(|t| t.is_none_or(|t| base(*slot) + t < ranks.len()))
                })
        }
    }
}
