// SPDX-License-Identifier: Apache-2.0
//! Ands of bit vectors, a cache line at a time, compiled for each level: plain code, which the compiler vectorises.

use super::super::at::At;
use super::Level;
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

/// The first bit in `range` (of lines) that is valid and set in every vector; a vector begins at each of `starts`.
#[inline]
pub(crate) fn first_bit(
    level: Level,
    valid: &[Line],
    lines: &[Line],
    starts: &[usize],
    range: Range<usize>,
) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    match level {
        // SAFETY: who has the level has found it on this machine.
        Level::Avx512 => return unsafe { avx512(valid, lines, starts, range) },
        // SAFETY: as above.
        Level::Avx2 => return unsafe { avx2(valid, lines, starts, range) },
        Level::Portable => {}
    }
    let _ = level;
    portable(valid, lines, starts, range)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1")]
fn avx512(valid: &[Line], lines: &[Line], starts: &[usize], range: Range<usize>) -> Option<usize> {
    portable(valid, lines, starts, range)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1")]
fn avx2(valid: &[Line], lines: &[Line], starts: &[usize], range: Range<usize>) -> Option<usize> {
    portable(valid, lines, starts, range)
}

#[inline(always)]
fn portable(valid: &[Line], lines: &[Line], starts: &[usize], range: Range<usize>) -> Option<usize> {
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
