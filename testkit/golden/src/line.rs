// SPDX-License-Identifier: Apache-2.0
//! Ands of bit vectors, a cache line at a time.

use bartizan_base::at::IndexOrDefault;
use core::ops::Range;

/// 512 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct Line([u64; 8]);

impl Line {
    pub fn set(&mut self, bit: usize) {
        if let Some(word) = self.0.get_mut(bit / 64) {
            *word |= 1 << (bit % 64);
        }
    }

    pub fn clear(&mut self, bit: usize) {
        if let Some(word) = self.0.get_mut(bit / 64) {
            *word &= !(1 << (bit % 64));
        }
    }
}

/// The first bit in `range` (of lines) that is valid and set in every vector; `starts` has the beginning of
/// each vector.
#[inline]
pub(crate) fn first_bit(
    valid: &[Line],
    lines: &[Line],
    starts: &[usize],
    range: Range<usize>,
) -> Option<usize> {
    for line in range {
        let mut left = valid.at(line).0;
        for start in starts {
            let other = lines.at(start + line).0;
            for (left, other) in left.iter_mut().zip(other) {
                *left &= other;
            }
        }
        if let Some((index, word)) = left.iter().enumerate().find(|(_, word)| **word != 0) {
            return Some(line * 512 + index * 64 + word.trailing_zeros() as usize);
        }
    }
    None
}
