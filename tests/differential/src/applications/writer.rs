// SPDX-License-Identifier: Apache-2.0
//! Binary messages, in either byte order.

/// A message in the making.
#[derive(Clone, Debug, Default)]
pub(super) struct Writer {
    pub bytes: Vec<u8>,
    /// Numbers are big-endian.
    pub is_big: bool,
}

impl Writer {
    pub fn new(is_big: bool) -> Self {
        Writer { bytes: Vec::new(), is_big }
    }

    pub fn u8(&mut self, number: u8) -> &mut Self {
        self.bytes.push(number);
        self
    }

    pub fn u16(&mut self, number: u16) -> &mut Self {
        self.put(if self.is_big { number.to_be_bytes() } else { number.to_le_bytes() })
    }

    pub fn u32(&mut self, number: u32) -> &mut Self {
        self.put(if self.is_big { number.to_be_bytes() } else { number.to_le_bytes() })
    }

    pub fn u64(&mut self, number: u64) -> &mut Self {
        self.put(if self.is_big { number.to_be_bytes() } else { number.to_le_bytes() })
    }

    pub fn put(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.bytes.extend_from_slice(bytes.as_ref());
        self
    }

    /// Zero bytes.
    pub fn zero(&mut self, count: usize) -> &mut Self {
        self.bytes.resize(self.bytes.len() + count, 0);
        self
    }
}

/// Text in UTF-16, little-endian.
pub(super) fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// Text in UTF-16 with a zero at its end.
pub(super) fn wide_z(text: &str) -> Vec<u8> {
    [wide(text), vec![0, 0]].concat()
}
