// SPDX-License-Identifier: Apache-2.0
//! Frames by the kind of their destination address, as RFC 2863 counts them.

/// Names of the kinds, as metrics have them.
pub const CAST_NAMES: [&str; 3] = ["unicast", "multicast", "broadcast"];

/// Numbers of frames by the kind of their destination, in the order of [`CAST_NAMES`].
pub type Casts = [u64; 3];

/// The kind of an Ethernet frame's destination. One that breaks off in its address has a station's.
#[inline]
#[must_use]
pub const fn cast_of(frame: &[u8]) -> usize {
    match frame.first_chunk::<6>() {
        Some([0xff, 0xff, 0xff, 0xff, 0xff, 0xff]) => 2,
        // The group bit (IEEE 802).
        Some([first, ..]) if *first & 1 != 0 => 1,
        _ => 0,
    }
}

/// Adds the counters of others.
pub fn add_casts(sum: &mut Casts, part: &Casts) {
    sum.iter_mut().zip(part).for_each(|(sum, part)| *sum = sum.wrapping_add(*part));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_bit_tells_and_all_ones_are_everybody() {
        for (address, kind) in [
            ([0x02, 0, 0, 0, 0, 1], "unicast"),
            ([0xfe, 0xff, 0xff, 0xff, 0xff, 0xff], "unicast"),
            ([0x01, 0, 0x5e, 0, 0, 1], "multicast"),
            ([0x33, 0x33, 0, 0, 0, 1], "multicast"),
            ([0xff, 0xff, 0xff, 0xff, 0xff, 0xfe], "multicast"),
            ([0xff; 6], "broadcast"),
        ] {
            let frame = [&address[..], &[0; 8]].concat();
            assert_eq!(CAST_NAMES[cast_of(&frame)], kind, "{address:x?}");
        }
        assert_eq!(cast_of(&[0xff; 5]), 0);
    }
}
