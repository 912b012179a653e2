// SPDX-License-Identifier: Apache-2.0
//! The tables of one group: from a slot to a list, and with a port class to a rule.

use super::displace::{Placement, place};
use super::field::BitField;
use super::group::SplitGroup;
use bartizan_base::at::IndexOrDefault;

/// No rule.
pub(crate) const NONE: u32 = u32::MAX;
/// In a table of 16-bit ranks: no rule.
pub(crate) const NONE16: u16 = u16::MAX;
/// In a table of positions: no rule.
pub(crate) const NONE8: u8 = u8::MAX;
/// The most bytes of a table of ranks with which it is preferred to a table of positions.
const DIRECT_MAX: usize = 384 << 10;
/// The most bytes of a table of positions.
pub(crate) const POSITIONS_MAX: usize = 16 << 20;

/// The stage after a list.
#[derive(Clone, Debug)]
pub(crate) enum AggregateLayout {
    /// A rank for each list and port class.
    Direct(Vec<u16>),
    /// For each pattern and port class the position in the list; for each list its ranks.
    Positions { positions: Vec<u8>, columns: u32, ranks: Vec<u32> },
}

/// A slot's parts: 24 bits of check, 16 of pattern, 24 of base.
pub(crate) const CHECK_SHIFT: u32 = 40;
pub(crate) const PATTERN_SHIFT: u32 = 24;
pub(crate) const BASE_MASK: u32 = (1 << 24) - 1;
/// A slot that no row matches.
pub(crate) const EMPTY: u64 = u64::MAX << CHECK_SHIFT;

/// The tables of a group.
#[derive(Clone, Debug)]
pub(crate) struct Aggregate {
    pub set: u8,
    pub rows_are_source: bool,
    pub row: BitField,
    pub column: BitField,
    pub port: BitField,
    pub slots: Vec<u64>,
    pub form: AggregateLayout,
    /// The number of rules in it.
    pub cells: usize,
    pub lists: usize,
    /// The number of port classes.
    pub columns: usize,
    /// The displacements of the rows; empty once words are made.
    pub(super) placement: Vec<u32>,
    /// For each slot its full list, for the case that the best rule was deleted.
    full_of: Vec<u32>,
    full: Vec<u32>,
    full_starts: Vec<u32>,
}

impl Aggregate {
    /// Builds the tables; `None` if one would be too large.
    pub fn new(group: &SplitGroup) -> Option<Self> {
        let columns = group.port_classes.len();
        let Placement { rows, size } = place(&group.runs, group.columns.len(), group.cells)?;
        let top = group.lists.iter().flatten().max().copied().unwrap_or(0);
        let direct = top < u32::from(NONE16) && group.lists.len() * columns * 2 <= DIRECT_MAX;
        let (form, bases) = if direct { direct_form(group) } else { position_form(group)? };
        let mut slots = vec![EMPTY; size];
        let mut full_of = vec![0; size];
        for (runs, displacement) in group.runs.iter().zip(&rows) {
            for run in runs {
                let base = bases.at(run.list as usize);
                let pattern = if direct { 0 } else { group.pattern.at(run.list as usize) };
                if base > BASE_MASK || pattern > 0xffff {
                    return None;
                }
                let slot = u64::from(*displacement) << CHECK_SHIFT
                    | u64::from(pattern) << PATTERN_SHIFT
                    | u64::from(base);
                for column in run.first..run.end {
                    let index = (displacement + column) as usize & (size - 1);
                    if let (Some(at), Some(full)) = (slots.get_mut(index), full_of.get_mut(index)) {
                        (*at, *full) = (slot, run.full);
                    }
                }
            }
        }
        Some(Aggregate {
            set: group.set,
            rows_are_source: group.rows_are_source,
            row: BitField::default(),
            column: BitField::default(),
            port: BitField::default(),
            slots,
            form,
            cells: group.cells,
            lists: group.lists.len(),
            columns,
            placement: rows,
            full_of,
            full: group.full.clone(),
            full_starts: group.full_starts.clone(),
        })
    }

    pub fn bytes(&self) -> usize {
        self.slots.len() * 12
            + self.form_bytes()
            + (self.placement.len() + self.full.len() + self.full_starts.len()) * 4
    }

    /// The bytes of the tables after the slots.
    pub fn form_bytes(&self) -> usize {
        match &self.form {
            AggregateLayout::Direct(ranks) => ranks.len() * 2,
            AggregateLayout::Positions { positions, ranks, .. } => positions.len() + ranks.len() * 4,
        }
    }

    /// The ranks of all rules whose addresses match, in order.
    pub fn candidates(&self, source: u64, destination: u64) -> &[u32] {
        let (rows, columns) =
            if self.rows_are_source { (source, destination) } else { (destination, source) };
        let row = self.row.of(rows);
        let index = row.wrapping_add(self.column.of(columns)) as usize & (self.slots.len() - 1);
        if (self.slots.at(index) >> CHECK_SHIFT) as u32 != row {
            return &[];
        }
        let list = self.full_of.at(index) as usize;
        let (from, to) = (self.full_starts.at(list) as usize, self.full_starts.at(list + 1) as usize);
        self.full.get(from..to).unwrap_or_default()
    }

    /// The rank of the best rule, from the words of the fields.
    #[inline]
    pub fn find(&self, source: u64, destination: u64, ports: u64) -> u32 {
        let (rows, columns) =
            if self.rows_are_source { (source, destination) } else { (destination, source) };
        let row = self.row.of(rows);
        let index = row.wrapping_add(self.column.of(columns)) as usize & (self.slots.len() - 1);
        let slot = self.slots.at(index);
        if (slot >> CHECK_SHIFT) as u32 != row {
            return NONE;
        }
        let (base, port) = (slot as u32 & BASE_MASK, self.port.of(ports));
        match &self.form {
            AggregateLayout::Direct(ranks) => match ranks.at((base + port) as usize) {
                NONE16 => NONE,
                rank => u32::from(rank),
            },
            AggregateLayout::Positions { positions, columns, ranks } => {
                let pattern = (slot >> PATTERN_SHIFT) as u32 & 0xffff;
                match positions.at((pattern * columns + port) as usize) {
                    NONE8 => NONE,
                    position => ranks.at((base + u32::from(position)) as usize),
                }
            }
        }
    }
}

fn direct_form(group: &SplitGroup) -> (AggregateLayout, Vec<u32>) {
    let columns = group.port_classes.len();
    let mut ranks = Vec::with_capacity(group.lists.len() * columns + 1);
    let mut by_pattern: Vec<Vec<Option<usize>>> = Vec::with_capacity(group.patterns.len());
    by_pattern.extend(group.patterns.iter().map(|p| group.positions(p).collect()));
    let mut bases = Vec::with_capacity(group.lists.len());
    for (list, pattern) in group.lists.iter().zip(&group.pattern) {
        bases.push(ranks.len() as u32);
        for position in by_pattern.get(*pattern as usize).into_iter().flatten() {
            ranks.push(position.and_then(|p| list.get(p)).map_or(NONE16, |r| *r as u16));
        }
    }
    // Vector reads take 4 bytes at a time.
    ranks.push(NONE16);
    (AggregateLayout::Direct(ranks), bases)
}

fn position_form(group: &SplitGroup) -> Option<(AggregateLayout, Vec<u32>)> {
    let columns = group.port_classes.len();
    if group.patterns.len() * columns > POSITIONS_MAX || group.patterns.len() > 0xffff {
        return None;
    }
    let mut positions = Vec::with_capacity(group.patterns.len() * columns + 3);
    for pattern in &group.patterns {
        if pattern.len() >= usize::from(NONE8) {
            return None;
        }
        positions.extend(group.positions(pattern).map(|p| p.map_or(NONE8, |p| p as u8)));
    }
    positions.extend([NONE8; 3]);
    let mut ranks = Vec::new();
    let mut bases = Vec::with_capacity(group.lists.len());
    for list in &group.lists {
        bases.push(ranks.len() as u32);
        ranks.extend_from_slice(list);
    }
    if ranks.is_empty() {
        ranks.push(NONE);
    }
    Some((AggregateLayout::Positions { positions, columns: columns as u32, ranks }, bases))
}
