// SPDX-License-Identifier: Apache-2.0
//! Frames by their size.

/// Upper bounds of the classes of frames by size, in bytes with the 4 of a frame's checksum (RFC 2819 section
/// 3, and two more classes for jumbo frames). The last class has none.
pub const SIZE_BOUNDS: [u32; 7] = [64, 127, 255, 511, 1023, 1518, 9216];

/// Names of the classes, as metrics have them.
pub const SIZE_NAMES: [&str; 8] =
    ["64", "65-127", "128-255", "256-511", "512-1023", "1024-1518", "1519-9216", "9217-"];

/// The numbers of frames by size class.
pub type Sizes = [u64; 8];

/// The class of a frame of this number of bytes, without its checksum.
#[inline]
#[must_use]
pub const fn size_class(length: usize) -> usize {
    match length.saturating_add(4) {
        ..=64 => 0,
        // One class for each power of two.
        size @ 65..=1023 => size.ilog2() as usize - 5,
        1024..=1518 => 5,
        1519..=9216 => 6,
        _ => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_end_at_their_bounds() {
        for length in (0..10_000usize).chain([usize::MAX]) {
            let size = length.saturating_add(4);
            let class = SIZE_BOUNDS.iter().filter(|bound| size > **bound as usize).count();
            assert_eq!(size_class(length), class, "{length}");
        }
        assert_eq!(SIZE_NAMES.len(), SIZE_BOUNDS.len() + 1);
        for (name, bound) in SIZE_NAMES.iter().zip(SIZE_BOUNDS) {
            assert!(name.ends_with(&bound.to_string()), "{name}");
        }
    }
}
