// SPDX-License-Identifier: Apache-2.0
//! Reading where an index is in bounds if nothing is wrong.

/// Reading a slice where an index out of bounds is a mistake of the builder: the default then, never a panic.
pub trait At<T> {
    /// The element at an index, or the default.
    fn at(&self, index: usize) -> T;
}

impl<T: Copy + Default> At<T> for [T] {
    #[inline(always)]
    fn at(&self, index: usize) -> T {
        self.get(index).copied().unwrap_or_default()
    }
}
