// SPDX-License-Identifier: Apache-2.0
//! The header of gzip data (RFC 1952 section 2.3), parsed byte by byte and not kept: its parts may have any
//! length, as receivers allow. Reserved flags and the header's checksum are ignored.

use super::bytes::after;

const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
/// Length of the fixed part, in bytes: magic, flags, time, two more.
const FIXED: u8 = 10;

bitflags::bitflags! {
    /// Parts after the fixed one.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct GzipHeaderFlags: u8 {
        const CHECKSUM = 1 << 1;
        const EXTRA = 1 << 2;
        const NAME = 1 << 3;
        const COMMENT = 1 << 4;
    }
}

/// The part that is being parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GzipHeaderState {
    /// The fixed part, with the number of bytes parsed so far.
    Fixed(u8),
    /// The length of the extra field, with its first byte once that has come.
    ExtraLength(Option<u8>),
    /// The extra field or the checksum, with the number of bytes left.
    Skip(u16),
    /// A text that ends with a NUL.
    Text,
    Over,
}

/// Progress of parsing a header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GzipHeader {
    at: GzipHeaderState,
    /// Parts that have not come yet.
    left: GzipHeaderFlags,
}

/// The bytes are no header of gzip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoHeader;

impl GzipHeader {
    /// A header before its first byte.
    pub(crate) const fn new() -> Self {
        GzipHeader { at: GzipHeaderState::Fixed(0), left: GzipHeaderFlags::empty() }
    }

    /// Whether no byte was parsed yet.
    pub(crate) fn is_at_start(&self) -> bool {
        self.at == GzipHeaderState::Fixed(0)
    }

    /// Parses further bytes. Returns the bytes after the header, or `None` while the header continues.
    ///
    /// # Errors
    /// The bytes are no header.
    pub(crate) fn read<'d>(&mut self, mut data: &'d [u8]) -> Result<Option<&'d [u8]>, NoHeader> {
        while self.at != GzipHeaderState::Over {
            data = match self.at {
                GzipHeaderState::Skip(left) => {
                    let skipped = data.len().min(usize::from(left));
                    self.at = GzipHeaderState::Skip(left - skipped as u16);
                    if self.at == GzipHeaderState::Skip(0) {
                        self.next_part();
                    }
                    after(data, skipped)
                }
                GzipHeaderState::Text => match memchr::memchr(0, data) {
                    Some(end) => {
                        self.next_part();
                        after(data, end + 1)
                    }
                    None => &[],
                },
                _ => {
                    let Some((byte, rest)) = data.split_first() else { return Ok(None) };
                    self.byte(*byte)?;
                    rest
                }
            };
            if data.is_empty() && self.at != GzipHeaderState::Over {
                return Ok(None);
            }
        }
        Ok(Some(data))
    }

    /// Parses a byte of the fixed part or of a length.
    fn byte(&mut self, byte: u8) -> Result<(), NoHeader> {
        match self.at {
            GzipHeaderState::Fixed(read) => {
                if MAGIC.get(usize::from(read)).is_some_and(|magic| *magic != byte) {
                    return Err(NoHeader);
                }
                if read == 3 {
                    self.left = GzipHeaderFlags::from_bits_truncate(byte);
                }
                self.at = GzipHeaderState::Fixed(read + 1);
                if read + 1 == FIXED {
                    self.next_part();
                }
            }
            GzipHeaderState::ExtraLength(None) => self.at = GzipHeaderState::ExtraLength(Some(byte)),
            GzipHeaderState::ExtraLength(Some(low)) => match u16::from_le_bytes([low, byte]) {
                0 => self.next_part(),
                length => self.at = GzipHeaderState::Skip(length),
            },
            GzipHeaderState::Skip(_) | GzipHeaderState::Text | GzipHeaderState::Over => {}
        }
        Ok(())
    }

    /// Begins the next part that the flags name; the two texts follow each other.
    fn next_part(&mut self) {
        let order = [
            (GzipHeaderFlags::EXTRA, GzipHeaderState::ExtraLength(None)),
            (GzipHeaderFlags::NAME, GzipHeaderState::Text),
            (GzipHeaderFlags::COMMENT, GzipHeaderState::Text),
            (GzipHeaderFlags::CHECKSUM, GzipHeaderState::Skip(2)),
        ];
        let next = order.into_iter().find(|(part, _)| self.left.contains(*part));
        self.at = next.map_or(GzipHeaderState::Over, |(part, at)| {
            self.left.remove(part);
            at
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Length of the header at the beginning of `data`, parsed in pieces of `size` bytes.
    fn length(data: &[u8], size: usize) -> Result<Option<usize>, NoHeader> {
        let mut header = GzipHeader::new();
        let mut read = 0;
        for piece in data.chunks(size) {
            read += piece.len();
            if let Some(rest) = header.read(piece)? {
                return Ok(Some(read - rest.len()));
            }
        }
        Ok(None)
    }

    #[test]
    fn headers_end_where_their_parts_do_however_they_are_cut() {
        let all = b"\x1f\x8b\x08\x1e\0\0\0\0\0\0\x05\0extraname\0comment\0\x34\x12body";
        let long =
            [&b"\x1f\x8b\x08\x0c\0\0\0\0\0\0\xff\xff"[..], &[7; 65_535], &[b'n'; 70_000], b"\0body"].concat();
        for size in [1, 2, 3, 7, 1_000, 1 << 20] {
            assert_eq!(length(all, size), Ok(Some(32)), "{size}");
            assert_eq!(length(&all[..31], size), Ok(None), "{size}");
            assert_eq!(length(&long, size), Ok(Some(long.len() - 4)), "{size}");
            assert_eq!(length(b"\x1f\x8b\x08\0\0\0\0\0\0\x03body", size), Ok(Some(10)), "{size}");
            assert_eq!(length(b"\x1f\x8b\x08\x04\0\0\0\0\0\x03\0\0body", size), Ok(Some(12)), "{size}");
            assert_eq!(length(b"\x1f\x8c", size), Err(NoHeader), "{size}");
        }
        assert!(GzipHeader::new().is_at_start());
    }
}
