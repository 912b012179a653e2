// SPDX-License-Identifier: Apache-2.0
//! Numbers and strings of SMB: little endian, at offsets that the message itself names.

/// Limit of a name that is kept, in bytes; longer ones are cut.
pub(super) const NAME_MAX: usize = 4_096;

/// The bytes from an offset on, or as many of them as there are.
pub(super) fn part(data: &[u8], at: usize, length: usize) -> &[u8] {
    let rest = data.get(at..).unwrap_or_default();
    rest.get(..length).unwrap_or(rest)
}

/// A fixed number of bytes at an offset.
pub(super) fn array<const N: usize>(data: &[u8], at: usize) -> Option<[u8; N]> {
    data.get(at..)?.first_chunk::<N>().copied()
}

/// A 16-bit number at an offset.
pub(super) fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    array(data, at).map(u16::from_le_bytes)
}

/// A 16-bit number at an offset, as a length or an offset.
pub(super) fn size16_at(data: &[u8], at: usize) -> Option<usize> {
    u16_at(data, at).map(usize::from)
}

/// A 32-bit number at an offset.
pub(super) fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    array(data, at).map(u32::from_le_bytes)
}

/// A 32-bit number at an offset, as a length or an offset.
pub(super) fn size32_at(data: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32_at(data, at)?).ok()
}

/// A 64-bit number at an offset.
pub(super) fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    array(data, at).map(u64::from_le_bytes)
}

/// A name as rules and records have it: without zero bytes, as in Suricata, so that UTF-16 of ASCII letters
/// reads as ASCII.
pub(super) fn name(text: &[u8]) -> Vec<u8> {
    text.iter().copied().filter(|byte| *byte != 0).take(NAME_MAX).collect()
}

/// Seconds since 1970 of a time in steps of 100 ns since 1601; 0 for earlier times.
pub(super) const fn unix_seconds(time: u64) -> u64 {
    (time / 10_000_000).saturating_sub(11_644_473_600)
}

/// Strings one after the other, each with a zero character at its end.
#[derive(Clone, Copy)]
pub(super) struct Strings<'a> {
    rest: &'a [u8],
    /// Offset of the rest in the message: UTF-16 begins at an even one.
    at: usize,
    is_wide: bool,
}

impl<'a> Strings<'a> {
    /// Strings that begin at an offset of a message.
    pub(super) const fn new(rest: &'a [u8], at: usize, is_wide: bool) -> Self {
        Strings { rest, at, is_wide }
    }

    /// Passes over a number of bytes.
    pub(super) fn skip(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
        self.at = self.at.saturating_add(count);
    }

    /// Takes a string of bytes.
    pub(super) fn narrow(&mut self) -> &'a [u8] {
        let end = memchr::memchr(0, self.rest).unwrap_or(self.rest.len());
        let text = self.rest.get(..end).unwrap_or_default();
        self.skip(end.saturating_add(1));
        text
    }

    /// Takes a string.
    pub(super) fn next(&mut self) -> Vec<u8> {
        if !self.is_wide {
            return name(self.narrow());
        }
        if self.at % 2 == 1 {
            self.skip(1);
        }
        let end = self.rest.chunks_exact(2).position(|unit| unit == [0, 0]);
        let length = end.map_or(self.rest.len(), |units| units.saturating_mul(2));
        let text = self.rest.get(..length).unwrap_or_default();
        self.skip(length.saturating_add(2));
        name(text)
    }
}
