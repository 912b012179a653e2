// SPDX-License-Identifier: Apache-2.0
//! Reading foreign bytes without a way to panic.

/// A reader over foreign bytes. A read of more bytes than are left returns `None` and does not advance;
/// numbers are big endian (network order) unless the name says otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    rest: &'a [u8],
    total: usize,
}

impl<'a> Cursor<'a> {
    /// Starts at the first byte.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, total: bytes.len() }
    }

    /// Bytes read so far.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.total - self.rest.len()
    }

    /// The remaining bytes, without taking them.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Number of remaining bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.rest.len()
    }

    /// Whether nothing is left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes `n` bytes.
    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(n)?;
        self.rest = tail;
        Some(head)
    }

    /// Takes a fixed number of bytes.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.rest.split_first_chunk::<N>()?;
        self.rest = tail;
        Some(*head)
    }

    /// Skips `n` bytes.
    pub fn skip(&mut self, n: usize) -> Option<()> {
        self.take(n).map(|_| ())
    }

    /// Takes one byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[b]| b)
    }

    /// Takes a 16-bit number.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Takes a 24-bit number.
    pub fn u24(&mut self) -> Option<u32> {
        self.array::<3>().map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]))
    }

    /// Takes a 32-bit number.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Takes a 64-bit number.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Takes a little-endian 16-bit number.
    pub fn u16_le(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Takes a little-endian 32-bit number.
    pub fn u32_le(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_read_moves_nothing() {
        let mut c = Cursor::new(&[1, 2, 3]);
        assert_eq!(c.u16(), Some(0x0102));
        assert_eq!(c.u16(), None);
        assert_eq!(c.position(), 2);
        assert_eq!(c.u8(), Some(3));
        assert_eq!(c.u8(), None);
        assert!(c.is_empty());
    }
}
