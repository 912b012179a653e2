// SPDX-License-Identifier: Apache-2.0
//! Literals of one or two bytes at fixed offsets, by their bytes.

use core::ops::Range;

/// Longest key, in bytes.
pub(crate) const KEY_MAX: usize = 2;

/// The keys of one offset and length.
#[derive(Default)]
pub(crate) struct FixedPlace {
    /// Offset from the beginning of the data.
    pub offset: usize,
    /// Length of the keys, in bytes.
    pub length: usize,
    /// Heads of all rules, sorted.
    pub heads: Vec<u32>,
    /// Keys as big-endian numbers, sorted, with their part of `rules`.
    pub keys: Vec<(u16, Range<usize>)>,
    /// Numbers of rules.
    pub rules: Vec<u32>,
}

/// All fixed places of some rules.
#[derive(Default)]
pub struct FixedPlaces(pub(crate) Vec<FixedPlace>);

impl FixedPlaces {
    /// Whether there are no rules.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
