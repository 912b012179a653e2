// SPDX-License-Identifier: Apache-2.0
//! The Internet checksum (RFC 1071) and the pseudo headers of IPv4 and IPv6.

use core::net::IpAddr;

/// A running Internet checksum. Parts may be added in any number; each but the last has an even length.
#[derive(Clone, Copy, Debug, Default)]
pub struct InternetChecksum(u64);

impl InternetChecksum {
    /// Starts at zero.
    #[must_use]
    pub const fn new() -> Self {
        InternetChecksum(0)
    }

    /// Adds bytes as big-endian 16-bit words; an odd last byte is padded with zero.
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Self {
        // One's complement addition does not depend on the width of the words as long as carries wrap around,
        // nor on the order of bytes until the end: words of 64 bits are added as they are in memory, the
        // upper half of a sum counts the carries, and two sums do not wait for each other.
        let (words, tail) = bytes.as_chunks::<8>();
        let (blocks, rest) = words.as_chunks::<4>();
        let wide = |word: &[u8; 8]| u128::from(u64::from_ne_bytes(*word));
        let (mut even, mut odd) = (0u128, 0u128);
        for [a, b, c, d] in blocks {
            even += wide(a);
            odd += wide(b);
            even += wide(c);
            odd += wide(d);
        }
        for word in rest {
            even += wide(word);
        }
        let mut last = [0u8; 8];
        for (slot, byte) in last.iter_mut().zip(tail) {
            *slot = *byte;
        }
        let sum = even + odd + wide(&last);
        // 2^64 is 1 in one's complement, as is 2^32.
        let (low, carries) = (sum as u64, (sum >> 64) as u64);
        let sum = (low & 0xffff_ffff) + (low >> 32) + carries;
        InternetChecksum(self.0 + u64::from(u16::from_be(InternetChecksum(sum).folded())))
    }

    /// Adds one 16-bit number.
    #[must_use]
    pub const fn with_u16(self, word: u16) -> Self {
        InternetChecksum(self.0 + word as u64)
    }

    /// The folded sum; 0xffff when the added bytes contain their own correct checksum.
    #[must_use]
    pub const fn folded(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// The checksum to put into a header whose checksum field was zero.
    #[must_use]
    pub const fn finish(self) -> u16 {
        !self.folded()
    }

    /// Whether the added bytes contain their own correct checksum.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.folded() == 0xffff
    }
}

/// Sum of the pseudo header of TCP, UDP and ICMPv6 (RFC 9293 3.1, RFC 8200 8.1); `len` is that of transport
/// header and payload. `None` when the addresses are of different versions.
#[must_use]
pub fn pseudo_header(src: IpAddr, dst: IpAddr, proto: u8, len: u32) -> Option<InternetChecksum> {
    let sum = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => u64::from(src.to_bits()) + u64::from(dst.to_bits()),
        (IpAddr::V6(src), IpAddr::V6(dst)) => sum_of_words(src.to_bits()) + sum_of_words(dst.to_bits()),
        _ => return None,
    };
    // 2^16 is 1 in one's complement: numbers of any width may be added before the sum is folded.
    Some(InternetChecksum(sum + u64::from(len) + u64::from(proto)))
}

/// The sum of the four 32-bit words of an address.
fn sum_of_words(address: u128) -> u64 {
    let word = |shift: u32| (address >> shift) as u32 as u64;
    word(0) + word(32) + word(64) + word(96)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slow(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            let word = u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| u32::from(*b));
            sum += word;
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn the_example_of_rfc_1071() {
        let sum = InternetChecksum::new().with(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.folded(), 0xddf2);
    }

    #[test]
    fn pseudo_headers_are_sums_of_their_bytes() {
        let (length, protocol) = (70_000u32, 58u8);
        for (src, dst) in [("192.0.2.255", "255.254.3.4"), ("2001:db8:ffff:1::ffff:2", "ff02::1:ff00:1")] {
            let (src, dst): (IpAddr, IpAddr) = (src.parse().unwrap(), dst.parse().unwrap());
            let octets = |address: IpAddr| match address {
                IpAddr::V4(v4) => v4.octets().to_vec(),
                IpAddr::V6(v6) => v6.octets().to_vec(),
            };
            let bytes =
                [&octets(src)[..], &octets(dst), &length.to_be_bytes(), &[0, 0, 0, protocol]].concat();
            let sum = pseudo_header(src, dst, protocol, length).unwrap();
            assert_eq!(sum.finish(), slow(&bytes));
        }
        assert!(pseudo_header("192.0.2.1".parse().unwrap(), "::1".parse().unwrap(), 6, 20).is_none());
    }

    proptest! {
        #[test]
        fn equals_the_word_by_word_sum(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
            prop_assert_eq!(InternetChecksum::new().with(&bytes).finish(), slow(&bytes));
        }

        #[test]
        fn parts_of_even_length_may_be_split(bytes in proptest::collection::vec(any::<u8>(), 0..100), at in 0usize..50) {
            let at = (at * 2).min(bytes.len() & !1);
            let (a, b) = bytes.split_at(at);
            let whole = InternetChecksum::new().with(&bytes).folded();
            prop_assert_eq!(InternetChecksum::new().with(a).with(b).folded(), whole);
        }
    }
}
