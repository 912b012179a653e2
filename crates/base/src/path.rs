// SPDX-License-Identifier: Apache-2.0
//! The chain of a flow as a bitmap.

use crate::FunctionId;

/// The functions that a flow's packets still visit: bit *n* is function *n*, run lowest bit first.
///
/// Source: UniSec, "path" of the packet metadata. The order of bits is the order of execution, so the
/// registry assigns function numbers in an order that satisfies every runs-before/after constraint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Path(pub u32);

impl Path {
    /// No function: packets of such a flow are only forwarded and counted.
    pub const EMPTY: Path = Path(0);

    /// Every possible function.
    pub const ALL: Path = Path(u32::MAX);

    /// Whether no function is left.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether function `id` is on the path.
    #[inline]
    #[must_use]
    pub const fn contains(self, id: FunctionId) -> bool {
        id.0 < 32 && self.0 & (1 << id.0) != 0
    }

    /// This path with function `id` (no effect for ids above 31, which do not exist).
    #[must_use]
    pub const fn with(self, id: FunctionId) -> Self {
        if id.0 < 32 { Path(self.0 | 1 << id.0) } else { self }
    }

    /// This path without function `id`: that function is done with the flow.
    #[must_use]
    pub const fn without(self, id: FunctionId) -> Self {
        if id.0 < 32 { Path(self.0 & !(1 << id.0)) } else { self }
    }

    /// The functions on both paths.
    #[inline]
    #[must_use]
    pub const fn and(self, other: Path) -> Path {
        Path(self.0 & other.0)
    }

    /// The functions on either path.
    #[inline]
    #[must_use]
    pub const fn or(self, other: Path) -> Path {
        Path(self.0 | other.0)
    }

    /// The functions that are not on the other path.
    #[inline]
    #[must_use]
    pub const fn and_not(self, other: Path) -> Path {
        Path(self.0 & !other.0)
    }

    /// The functions in the order in which they run.
    pub fn functions(self) -> impl Iterator<Item = FunctionId> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let lowest = left.trailing_zeros() as u8;
            left &= left - 1;
            Some(FunctionId(lowest))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_come_lowest_bit_first() {
        let path = Path::EMPTY.with(FunctionId(5)).with(FunctionId(0)).with(FunctionId(31));
        let order: Vec<u8> = path.functions().map(|f| f.0).collect();
        assert_eq!(order, [0, 5, 31]);
        assert!(!path.without(FunctionId(5)).contains(FunctionId(5)));
        assert_eq!(path.with(FunctionId(32)), path);
    }
}
