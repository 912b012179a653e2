// SPDX-License-Identifier: Apache-2.0
//! Fields of the words that a lookup reads.

/// Some bits of a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BitField {
    pub shift: u32,
    pub mask: u32,
}

impl BitField {
    pub fn of(self, word: u64) -> u32 {
        (word >> self.shift) as u32 & self.mask
    }
}

/// The number of bits that distinguish so many values.
pub(crate) fn bits(values: usize) -> u32 {
    usize::BITS - values.saturating_sub(1).leading_zeros()
}
