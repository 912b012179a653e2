// SPDX-License-Identifier: Apache-2.0
//! Decoders of single content encodings: gzip (RFC 1952), raw deflate (RFC 1951), zlib (RFC 1950), brotli (RFC 7932), LZMA.
//!
//! What a decoder gives, and where it fails, depends on the bytes alone and not on the pieces in which they come. Checksums are
//! not compared: browsers show what they read before they have seen them.

use brotli_decompressor::{
    BrotliDecoderTakeOutput, BrotliDecompressStream, BrotliResult, BrotliState, SliceWrapper as _,
    StandardAlloc,
};
use flate2::{Decompress, FlushDecompress, Status};
use std::io::Write as _;

use super::bytes::after;
use crate::memory::Held as _;

/// An encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Gzip,
    Deflate,
    Zlib,
    Brotli,
    Lzma,
}

/// Decoded bytes are handed on in pieces of this size.
const PIECE: usize = 8192;
/// Longest gzip header.
pub(super) const MAX_HEADER: usize = 1 << 16;
/// Memory that LZMA may ask for, in bytes.
const LZMA_MEMORY: usize = 1 << 20;

/// Memory of zlib's decoder: its window of 32 KiB twice (what is behind is read in one piece), and tables.
const INFLATE_MEMORY: usize = 80 << 10;
/// Memory of brotli's decoder beside its window: its state, and tables of codes.
const BROTLI_MEMORY: usize = 64 << 10;

/// The receiver refused more: a limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop;

/// Takes decoded bytes.
pub(super) type Sink<'s> = dyn FnMut(&[u8]) -> Result<(), Stop> + 's;

/// Why a decoder stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The data is not of this encoding.
    Corrupt,
    Stop,
}

impl From<Stop> for Failure {
    fn from(_: Stop) -> Self {
        Failure::Stop
    }
}

type Lzma = lzma_rs::decompress::Stream<Vec<u8>>;
type Brotli = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;
/// Bytes that brotli is given at a time.
const STEP: usize = 16;

/// A decoder.
pub(super) enum Codec {
    /// Bytes of the header so far (gzip, zlib); raw deflate follows it.
    Header(Encoding, Vec<u8>),
    Inflate(Box<Decompress>),
    /// And input that is not a full step yet.
    Brotli(Box<Brotli>, Vec<u8>),
    Lzma(Box<Lzma>),
    /// All that follows the end of the encoded data is ignored.
    Ended,
}

impl Codec {
    pub(super) fn new(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Gzip | Encoding::Zlib => Codec::Header(encoding, Vec::new()),
            Encoding::Deflate => Codec::inflate_raw(),
            Encoding::Brotli => {
                let alloc = StandardAlloc::default;
                Codec::Brotli(Box::new(BrotliState::new(alloc(), alloc(), alloc())), Vec::new())
            }
            Encoding::Lzma => {
                let options = lzma_rs::decompress::Options {
                    memlimit: Some(LZMA_MEMORY),
                    allow_incomplete: true,
                    ..lzma_rs::decompress::Options::default()
                };
                Codec::Lzma(Box::new(Lzma::new_with_options(&options, Vec::new())))
            }
        }
    }

    /// Bytes of memory held beside its own place.
    pub(super) fn held(&self) -> usize {
        match self {
            Codec::Header(_, seen) => seen.held(),
            Codec::Inflate(_) => INFLATE_MEMORY,
            Codec::Brotli(state, waiting) => {
                let ring = state.ringbuffer.slice().len();
                BROTLI_MEMORY.saturating_add(ring).saturating_add(waiting.held())
            }
            Codec::Lzma(_) => LZMA_MEMORY,
            Codec::Ended => 0,
        }
    }

    fn inflate_raw() -> Self {
        Codec::Inflate(Box::new(Decompress::new(false)))
    }

    /// Whether the encoded data is over.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self, Codec::Ended)
    }

    /// Decodes a piece. All that comes before a failure is handed on.
    pub(super) fn decode(&mut self, data: &[u8], sink: &mut Sink<'_>) -> Result<(), Failure> {
        if let Codec::Header(encoding, seen) = self {
            seen.extend_from_slice(data);
            let header = match encoding {
                Encoding::Zlib => zlib_header(seen),
                _ => gzip_header(seen),
            };
            return match header {
                Header::Need if seen.len() < MAX_HEADER => Ok(()),
                Header::Length(length) => {
                    let seen = core::mem::take(seen);
                    *self = Codec::inflate_raw();
                    self.inflate(after(&seen, length), sink)
                }
                _ => Err(Failure::Corrupt),
            };
        }
        match self {
            Codec::Inflate(_) => self.inflate(data, sink),
            Codec::Brotli(..) => self.unbrotli(data, STEP, sink),
            Codec::Lzma(_) => self.unlzma(data, sink),
            Codec::Header(..) | Codec::Ended => Ok(()),
        }
    }

    /// No more input: what the decoder holds back comes out.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) -> Result<(), Failure> {
        match core::mem::replace(self, Codec::Ended) {
            Codec::Lzma(stream) => Ok(stream.finish().map_or(Ok(()), |output| sink(&output))?),
            brotli @ Codec::Brotli(..) => {
                *self = brotli;
                self.unbrotli(&[], 1, sink)
            }
            Codec::Header(..) | Codec::Inflate(_) | Codec::Ended => Ok(()),
        }
    }

    fn inflate(&mut self, mut data: &[u8], sink: &mut Sink<'_>) -> Result<(), Failure> {
        let mut piece = [0u8; PIECE];
        loop {
            let Codec::Inflate(decoder) = self else { return Ok(()) };
            let (input, output) = (decoder.total_in(), decoder.total_out());
            let status = decoder.decompress(data, &mut piece, FlushDecompress::None);
            let used = usize::try_from(decoder.total_in().saturating_sub(input)).unwrap_or(data.len());
            let made = usize::try_from(decoder.total_out().saturating_sub(output)).unwrap_or(0);
            if made > 0 {
                sink(piece.get(..made).unwrap_or_default())?;
            }
            data = after(data, used);
            match status {
                Err(_) => return Err(Failure::Corrupt),
                Ok(Status::StreamEnd) => {
                    *self = Codec::Ended;
                    return Ok(());
                }
                // Nothing moved: more input is needed.
                Ok(_) if made < PIECE && (data.is_empty() || used == 0) => return Ok(()),
                Ok(_) => {}
            }
        }
    }

    fn unlzma(&mut self, data: &[u8], sink: &mut Sink<'_>) -> Result<(), Failure> {
        for piece in data.chunks(PIECE) {
            let Codec::Lzma(stream) = self else { return Ok(()) };
            let result = stream.write_all(piece);
            if let Some(output) = stream.get_output_mut().filter(|output| !output.is_empty()) {
                let output = core::mem::take(output);
                sink(&output)?;
            }
            if result.is_err() {
                return Err(Failure::Corrupt);
            }
        }
        Ok(())
    }

    /// In equal steps: when it fails, the library gives nothing of what it has decoded since it was called. So what is lost is
    /// little, and the same however the data is cut; what is no full step waits for more, or for the end.
    fn unbrotli(&mut self, data: &[u8], step: usize, sink: &mut Sink<'_>) -> Result<(), Failure> {
        let Codec::Brotli(state, waiting) = self else { return Ok(()) };
        waiting.extend_from_slice(data);
        let mut input = waiting.as_slice();
        while let Some((head, tail)) = input.split_at_checked(step) {
            input = tail;
            let (mut left, mut offset) = (head.len(), 0);
            loop {
                let (mut room, mut made, mut total) = (0, 0, 0);
                let result = BrotliDecompressStream(
                    &mut left,
                    &mut offset,
                    head,
                    &mut room,
                    &mut made,
                    &mut [],
                    &mut total,
                    state,
                );
                let mut any = 0;
                let output = BrotliDecoderTakeOutput(state, &mut any);
                if !output.is_empty() {
                    sink(output)?;
                }
                match result {
                    BrotliResult::ResultFailure => return Err(Failure::Corrupt),
                    BrotliResult::NeedsMoreInput => break,
                    BrotliResult::ResultSuccess => {
                        *self = Codec::Ended;
                        return Ok(());
                    }
                    BrotliResult::NeedsMoreOutput => {}
                }
            }
        }
        let used = waiting.len() - input.len();
        waiting.drain(..used);
        Ok(())
    }
}

/// What is known of a header.
enum Header {
    Need,
    Length(usize),
    Bad,
}

/// Length of a gzip header (RFC 1952 section 2.3); reserved flags and header checksums are ignored.
fn gzip_header(data: &[u8]) -> Header {
    const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
    if data.iter().zip(MAGIC).any(|(have, want)| *have != want) {
        return Header::Bad;
    }
    let Some(flags) = data.get(3).copied().filter(|_| data.len() >= 10) else { return Header::Need };
    let mut length = 10;
    if flags & 4 != 0 {
        let [low, high, ..] = after(data, length) else { return Header::Need };
        length += 2 + usize::from(u16::from_le_bytes([*low, *high]));
    }
    for flag in [8, 16] {
        if flags & flag != 0 {
            let Some(end) = memchr::memchr(0, after(data, length)) else { return Header::Need };
            length += end + 1;
        }
    }
    if flags & 2 != 0 {
        length += 2;
    }
    if length > data.len() { Header::Need } else { Header::Length(length) }
}

/// Length of a zlib header (RFC 1950 section 2.2), if it is one that names no dictionary.
fn zlib_header(data: &[u8]) -> Header {
    let [method, flags, ..] = data else {
        let possible = data.iter().all(|method| method & 0x8f == 8);
        return if possible { Header::Need } else { Header::Bad };
    };
    let check = u16::from_be_bytes([*method, *flags]) % 31;
    if method & 0x8f == 8 && flags & 0x20 == 0 && check == 0 { Header::Length(2) } else { Header::Bad }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_headers() {
        let length = |h: &[u8]| match gzip_header(h) {
            Header::Length(n) => n as i64,
            Header::Need => -1,
            Header::Bad => -2,
        };
        assert_eq!(length(b"\x1f\x8b\x08\x1e\0\0\0\0\0\0\x05\0extraname\0comment\0\x34\x12"), 32);
        assert_eq!(length(b"\x1f\x8b\x08\x1e\0\0\0\0\0\0\x05\0extraname\0comment\0\x34"), -1);
        assert_eq!(length(b"\x1f\x8b\x08\0\0\0\0\0\0"), -1);
        assert_eq!(length(b"\x1f\x8c"), -2);
    }

    #[test]
    fn zlib_headers() {
        for (header, good) in
            [(b"\x78\x9c", true), (b"\x78\x9d", false), (b"\x88\x1c", false), (b"\x78\xbb", false)]
        {
            assert_eq!(matches!(zlib_header(header), Header::Length(2)), good, "{header:?}");
        }
        assert!(matches!(zlib_header(b"\x78"), Header::Need) && matches!(zlib_header(b"x\0"), Header::Bad));
        assert!(matches!(zlib_header(b"\x77"), Header::Bad));
    }
}
