// SPDX-License-Identifier: Apache-2.0
//! Rows with few cells in one table: row displacement.
//!
//! Source: Tarjan and Yao, "Storing a sparse table" (CACM 1979). Every row is shifted by a displacement of
//! its own so that no two cells collide; a cell carries its row's number as a check. Positions are taken
//! modulo the size, a power of two.

use super::group::ColumnRun;
use bartizan_base::at::IndexOrDefault;

/// The most slots: a check has 24 bits, and the last displacement means no row.
pub(crate) const SLOTS_MAX: usize = 1 << 23;
/// The first holes to try for a row, before holes elsewhere, and then the place after all rows.
const TRIES: usize = 256;
/// Holes to try all over the table, `STEP` slots apart.
const ANYWHERE: usize = 2048;
const STEP: usize = 40_503;

/// The displacements of the rows.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    /// For each row its displacement; rows without cells have the last one, which no other row has.
    pub rows: Vec<u32>,
    /// Slots: a power of two.
    pub size: usize,
}

struct DisplacementTable {
    taken: Vec<u64>,
    used: Vec<u64>,
    mask: usize,
}

fn bit(bits: &[u64], at: usize) -> bool {
    bits.at(at / 64) >> (at % 64) & 1 == 1
}

fn set(bits: &mut [u64], at: usize) {
    if let Some(word) = bits.get_mut(at / 64) {
        *word |= 1 << (at % 64);
    }
}

impl DisplacementTable {
    /// The next free slot at or after `from`, in at most one round.
    fn free(&self, from: usize) -> Option<usize> {
        let words = self.taken.len();
        let mut index = (from & self.mask) / 64;
        let mut word = self.taken.at(index) | !(u64::MAX << (from % 64));
        for _ in 0..=words {
            if word != u64::MAX {
                return Some(index * 64 + word.trailing_ones() as usize);
            }
            index = (index + 1) % words;
            word = self.taken.at(index);
        }
        None
    }

    fn fits(&self, runs: &[ColumnRun], displacement: usize) -> bool {
        !bit(&self.used, displacement)
            && runs.iter().all(|run| {
                (run.first..run.end)
                    .all(|column| !bit(&self.taken, (displacement + column as usize) & self.mask))
            })
    }
}

/// Places rows of `columns` columns; `None` if that takes too many slots.
pub(crate) fn place(rows: &[Vec<ColumnRun>], columns: usize, cells: usize) -> Option<Placement> {
    let mut order: Vec<(u32, u32)> = rows
        .iter()
        .enumerate()
        .map(|(row, runs)| (runs.iter().map(|r| r.end - r.first).sum(), row as u32))
        .filter(|(cells, _)| *cells > 0)
        .collect();
    order.sort_unstable_by_key(|(cells, row)| (u32::MAX - cells, *row));
    let least = (cells + 2).max(columns).max(order.len() + 2).max(64);
    let mut size = least.next_power_of_two();
    while size <= SLOTS_MAX {
        if let Some(rows) = try_place(rows, &order, size) {
            return Some(Placement { rows, size });
        }
        size *= 2;
    }
    None
}

fn try_place(rows: &[Vec<ColumnRun>], order: &[(u32, u32)], size: usize) -> Option<Vec<u32>> {
    let words = size / 64;
    let mut table = DisplacementTable { taken: vec![0; words], used: vec![0; words], mask: size - 1 };
    set(&mut table.used, size - 1);
    let mut out = vec![size as u32 - 1; rows.len()];
    let mut lowest = 0;
    // All slots from here on are free, except those of rows that wrapped around.
    let mut top = 0;
    for (_, row) in order {
        let runs = rows.get(*row as usize)?;
        let first = runs.first()?.first as usize;
        lowest = table.free(lowest)?;
        let mut slot = lowest;
        let mut tries = 0;
        let displacement = loop {
            let displacement = slot.wrapping_sub(first) & table.mask;
            if table.fits(runs, displacement) {
                break displacement;
            }
            tries += 1;
            slot = match tries {
                ..TRIES => table.free(slot + 1)?,
                // Anywhere: large rows may have left large holes.
                TRIES..ANYWHERE => table.free((tries * STEP) & table.mask)?,
                ANYWHERE => top,
                _ => table.free(slot + 1)?,
            };
            if slot >= size || tries > ANYWHERE + TRIES {
                return None;
            }
        };
        let last = runs.last().map_or(first, |r| r.end as usize);
        top = top.max((slot + last - first).min(size));
        set(&mut table.used, displacement);
        for run in runs {
            for column in run.first..run.end {
                set(&mut table.taken, (displacement + column as usize) & table.mask);
            }
        }
        *out.get_mut(*row as usize)? = displacement as u32;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_do_not_meet() {
        let run = |first, end| ColumnRun { first, end, list: 0, full: 0 };
        let rows: Vec<Vec<ColumnRun>> = (0..500u32)
            .map(|r| match r % 5 {
                0 => vec![],
                1 => vec![run(r, r + 1)],
                2 => vec![run(0, 7), run(r + 9, r + 11)],
                3 => vec![run(0, 100)],
                _ => vec![run(600, 603)],
            })
            .collect();
        let cells = rows.iter().flatten().map(|r| (r.end - r.first) as usize).sum();
        let placed = place(&rows, 700, cells).unwrap();
        let mut owner = vec![None; placed.size];
        for (row, runs) in rows.iter().enumerate() {
            for column in runs.iter().flat_map(|r| r.first..r.end) {
                let slot = (placed.rows[row] as usize + column as usize) & (placed.size - 1);
                assert_eq!(owner[slot].replace(row), None);
            }
        }
        let mut used: Vec<u32> =
            rows.iter().zip(&placed.rows).filter(|(r, _)| !r.is_empty()).map(|(_, d)| *d).collect();
        used.sort_unstable();
        assert!(used.windows(2).all(|w| w[0] != w[1]) && !used.contains(&(placed.size as u32 - 1)));
    }
}
