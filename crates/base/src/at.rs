// SPDX-License-Identifier: Apache-2.0
//! Reading at an index that is in bounds unless there is a bug.

/// Reading a slice where an index out of bounds is a bug of the code that built it: gives the default, never
/// a panic.
pub trait IndexOrDefault<T> {
    /// The element at an index, or the default.
    fn at(&self, index: usize) -> T;
}

impl<T: Copy + Default> IndexOrDefault<T> for [T] {
    #[inline(always)]
    fn at(&self, index: usize) -> T {
        self.get(index).copied().unwrap_or_default()
    }
}
