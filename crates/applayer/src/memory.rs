// SPDX-License-Identifier: Apache-2.0
//! Memory of values on the heap, as far as an allocation's size can be known from outside.
//!
//! Parsers report the memory that they hold ([`crate::protocol::Parser::held`]), so that the caller can keep
//! the sum of all parsers within a limit. This happens with each packet: its cost depends on the changes
//! since the last call, never on the memory held.

/// Memory that an allocation of `bytes` takes: allocators have size classes, mimalloc four from one power of
/// two to the next.
#[must_use]
pub const fn allocated(bytes: usize) -> usize {
    const SMALLEST: usize = 16;
    if bytes == 0 {
        return 0;
    }
    if bytes <= SMALLEST * 4 {
        return bytes.next_multiple_of(SMALLEST);
    }
    let step = 1usize << ((bytes - 1).ilog2() - 2);
    // No allocation is so large that this overflows.
    bytes.saturating_add(step - 1) / step * step
}

/// A value that holds memory outside of itself.
pub trait Held {
    /// Bytes of memory held outside of the value itself.
    fn held(&self) -> usize;
}

impl<T> Held for Vec<T> {
    fn held(&self) -> usize {
        allocated(self.capacity().saturating_mul(size_of::<T>()))
    }
}

impl<T> Held for std::collections::VecDeque<T> {
    fn held(&self) -> usize {
        allocated(self.capacity().saturating_mul(size_of::<T>()))
    }
}

impl<T, const N: usize> Held for smallvec::SmallVec<[T; N]>
where
    [T; N]: smallvec::Array<Item = T>,
{
    fn held(&self) -> usize {
        if self.spilled() { allocated(self.capacity().saturating_mul(size_of::<T>())) } else { 0 }
    }
}

impl Held for String {
    fn held(&self) -> usize {
        allocated(self.capacity())
    }
}

impl<T: Held> Held for Option<T> {
    fn held(&self) -> usize {
        self.as_ref().map_or(0, Held::held)
    }
}

/// Appends to a window that may grow large. The capacity doubles, so that a byte is moved once on average, up
/// to the `usual` size; a larger window grows by a quarter at a time, since doubling would leave half of it
/// unused in each of many flows.
pub(crate) fn extend(window: &mut Vec<u8>, data: &[u8], usual: usize) {
    const LARGE: usize = 128 << 10;
    let held = window.len();
    let needed = held.saturating_add(data.len());
    if needed > window.capacity() {
        let grown = if held < LARGE { held.saturating_mul(2) } else { held.saturating_add(held / 4) };
        let size = if needed <= usual { grown.min(usual) } else { grown };
        window.reserve_exact(size.max(needed) - held);
    }
    window.extend_from_slice(data);
}

/// Appends to a window of `keep` bytes, of which up to twice as many are held: a byte is moved at most once
/// on average. Returns the number of bytes dropped at the front. Whole windows are dropped, so that the
/// content depends on the bytes alone, not on the pieces in which they came. The memory of a window that was
/// much larger before is given back.
pub(crate) fn slide(window: &mut Vec<u8>, data: &[u8], keep: usize) -> u64 {
    extend(window, data, keep);
    let windows = (window.len() / keep.max(1)).saturating_sub(1);
    let excess = windows.saturating_mul(keep).min(window.len());
    window.drain(..excess);
    if excess > 0 && window.capacity() / 4 > keep {
        window.shrink_to(keep.saturating_mul(2));
    }
    excess as u64
}

#[cfg(test)]
mod tests {
    use super::{allocated, extend};

    #[test]
    fn windows_grow_with_little_to_spare_and_seldom() {
        for usual in [0, 100_000, 1 << 20] {
            let (mut window, mut moved) = (Vec::new(), 0);
            for n in 1..=400usize {
                let before = (window.capacity(), window.len());
                extend(&mut window, &[b'x'; 1000], usual);
                moved += if window.capacity() == before.0 { 0 } else { before.1 };
                let (len, capacity) = (window.len(), window.capacity());
                assert!(
                    len == n * 1000 && capacity <= len * 2 && (len > usual || capacity <= usual.max(len))
                );
                assert!(len < 257_000 || capacity <= len * 5 / 4 + 1000, "{len}: {capacity}");
                assert!(len > 128_000 || moved <= len * 3, "{len}: {moved}");
            }
            assert!(moved < 5 * window.len(), "{moved}");
        }
    }

    #[test]
    fn sizes_are_those_of_the_allocator() {
        let want =
            [(0, 0), (1, 16), (17, 32), (64, 64), (65, 80), (81, 96), (128, 128), (129, 160), (1000, 1024)];
        for (bytes, size) in want {
            assert_eq!(allocated(bytes), size, "{bytes}");
        }
        for bytes in 1..100_000 {
            let size = allocated(bytes);
            assert!(size >= bytes && (bytes < 64 || size <= bytes + bytes / 4), "{bytes}: {size}");
        }
        assert_eq!(allocated(131_072), 131_072);
    }
}
