// SPDX-License-Identifier: Apache-2.0
//! Decoders of single content encodings: gzip (RFC 1952), raw deflate (RFC 1951), zlib (RFC 1950), brotli
//! (RFC 7932), LZMA.
//!
//! A decoder's output, and the place where it fails, depend on the bytes alone and not on the pieces in which
//! they come. Checksums are not compared: browsers display data before they have seen its checksum.

use brotli_decompressor::{
    BrotliDecoderTakeOutput, BrotliDecompressStream, BrotliResult, BrotliState, SliceWrapper as _,
    StandardAlloc,
};
use flate2::{Decompress, FlushDecompress, Status};
use std::io::Write as _;

use super::bytes::after;
use super::gzip_header::{GzipHeader, NoHeader};
use crate::memory::Held as _;

/// A content encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Gzip,
    Deflate,
    Zlib,
    Brotli,
    Lzma,
}

/// Size of the pieces in which decoded bytes are passed on.
const PIECE: usize = 8192;
/// Limit of the memory for LZMA, in bytes.
pub(crate) const LZMA_MEMORY: usize = 1 << 20;

/// Memory of zlib's decoder, in bytes: its window of 32 KiB twice (so that its content is contiguous), and
/// tables.
const INFLATE_MEMORY: usize = 80 << 10;
/// Memory of brotli's decoder beside its window, in bytes: its state, and tables of codes.
const BROTLI_MEMORY: usize = 64 << 10;

/// The sink accepts no more: a limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CodecStop;

/// Receives decoded bytes.
pub(crate) type Sink<'s> = dyn FnMut(&[u8]) -> Result<(), CodecStop> + 's;

/// The reason why a decoder stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The data is not of this encoding.
    Corrupt,
    Stop,
}

impl From<CodecStop> for Failure {
    fn from(_: CodecStop) -> Self {
        Failure::Stop
    }
}

type Lzma = lzma_rs::decompress::Stream<Vec<u8>>;
type Brotli = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;
/// Number of bytes that brotli's decoder gets at a time.
const STEP: usize = 16;

/// The place of deflated data in a series of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Members {
    /// No member follows.
    One,
    /// The first member of gzip data.
    First,
    /// A later member. A failure in it does not make the first one doubtful.
    Later,
}

/// State between two members of gzip data.
#[derive(Debug)]
pub(crate) struct Between {
    /// Bytes of the member's trailer (checksum, length) that have not come yet.
    trailer: usize,
    /// The next member's header.
    header: GzipHeader,
}

/// Length of a member's trailer, in bytes (RFC 1952 section 2.3.1).
const TRAILER: usize = 8;

/// The time at which a decoder gives its output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pace {
    /// In equal steps, or at the end of the input: broken data gives the same output however it is cut.
    #[default]
    Even,
    /// At once: a receiver may decode it now.
    Prompt,
}

/// A decoder for one encoding, with its state.
pub(crate) enum Codec {
    /// The header of gzip data; raw deflate follows it.
    GzipHeader(GzipHeader),
    /// The bytes of a zlib header so far; raw deflate follows it.
    ZlibHeader(Vec<u8>),
    Inflate(Box<Decompress>, Members),
    /// After a member of gzip data; another one may follow (RFC 1952 section 2.2).
    Between(Box<Decompress>, Between),
    /// Brotli, and input that is not a full step yet.
    Brotli(Box<Brotli>, Vec<u8>, Pace),
    Lzma(Box<Lzma>),
    /// The encoded data has ended; bytes after it are ignored.
    Ended,
}

impl Codec {
    pub(crate) fn new(encoding: Encoding, pace: Pace) -> Self {
        match encoding {
            Encoding::Gzip => Codec::GzipHeader(GzipHeader::new()),
            Encoding::Zlib => Codec::ZlibHeader(Vec::new()),
            Encoding::Deflate => Codec::inflate_raw(Members::One),
            Encoding::Brotli => {
                let alloc = StandardAlloc::default;
                Codec::Brotli(Box::new(BrotliState::new(alloc(), alloc(), alloc())), Vec::new(), pace)
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

    /// Bytes of memory held outside of the structure itself.
    pub(crate) fn held(&self) -> usize {
        match self {
            Codec::ZlibHeader(seen) => seen.held(),
            Codec::Inflate(..) | Codec::Between(..) => INFLATE_MEMORY,
            Codec::Brotli(state, waiting, _) => {
                let ring = state.ringbuffer.slice().len();
                BROTLI_MEMORY.saturating_add(ring).saturating_add(waiting.held())
            }
            Codec::Lzma(_) => LZMA_MEMORY,
            Codec::GzipHeader(_) | Codec::Ended => 0,
        }
    }

    fn inflate_raw(members: Members) -> Self {
        Codec::Inflate(Box::new(Decompress::new(false)), members)
    }

    /// Whether the encoded data, or a member of it, has ended.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self, Codec::Ended | Codec::Between(..) | Codec::Inflate(_, Members::Later))
    }

    /// Decodes a piece. All output before a failure is passed on.
    pub(crate) fn decode(&mut self, data: &[u8], sink: &mut Sink<'_>) -> Result<(), Failure> {
        match self {
            Codec::GzipHeader(header) => {
                let Some(rest) = header.read(data).map_err(|NoHeader| Failure::Corrupt)? else {
                    return Ok(());
                };
                *self = Codec::inflate_raw(Members::First);
                self.inflate_members(rest, sink)
            }
            Codec::ZlibHeader(seen) => {
                seen.extend_from_slice(data);
                match zlib_header(seen) {
                    ZlibHeader::Need => Ok(()),
                    ZlibHeader::Bad => Err(Failure::Corrupt),
                    ZlibHeader::Length(length) => {
                        let seen = core::mem::take(seen);
                        *self = Codec::inflate_raw(Members::One);
                        self.inflate_members(after(&seen, length), sink)
                    }
                }
            }
            Codec::Inflate(..) | Codec::Between(..) => self.inflate_members(data, sink),
            Codec::Brotli(_, _, Pace::Even) => self.unbrotli(data, STEP, sink),
            Codec::Brotli(_, _, Pace::Prompt) => {
                self.unbrotli(data, STEP, sink)?;
                self.unbrotli(&[], 1, sink)
            }
            Codec::Lzma(_) => self.unlzma(data, sink),
            Codec::Ended => Ok(()),
        }
    }

    /// Ends the input and passes on the output that the decoder has held back.
    pub(crate) fn finish(&mut self, sink: &mut Sink<'_>) -> Result<(), Failure> {
        match core::mem::replace(self, Codec::Ended) {
            Codec::Lzma(stream) => Ok(stream.finish().map_or(Ok(()), |output| sink(&output))?),
            brotli @ Codec::Brotli(..) => {
                *self = brotli;
                self.unbrotli(&[], 1, sink)
            }
            Codec::GzipHeader(_)
            | Codec::ZlibHeader(_)
            | Codec::Inflate(..)
            | Codec::Between(..)
            | Codec::Ended => Ok(()),
        }
    }

    fn inflate_members(&mut self, mut data: &[u8], sink: &mut Sink<'_>) -> Result<(), Failure> {
        while !data.is_empty() {
            *self = match core::mem::replace(self, Codec::Ended) {
                Codec::Inflate(mut decoder, members) => {
                    let (result, rest) = inflate(&mut decoder, data, sink);
                    data = rest;
                    match result {
                        Err(Failure::Corrupt) if members == Members::Later => Codec::Ended,
                        Err(failure) => return Err(failure),
                        Ok(Status::StreamEnd) if members == Members::One => Codec::Ended,
                        Ok(Status::StreamEnd) => {
                            decoder.reset(false);
                            Codec::Between(decoder, Between { trailer: TRAILER, header: GzipHeader::new() })
                        }
                        Ok(_) => Codec::Inflate(decoder, members),
                    }
                }
                Codec::Between(decoder, between) => {
                    let (next, rest) = between.next(decoder, data);
                    data = rest;
                    next
                }
                other => {
                    *self = other;
                    return Ok(());
                }
            };
        }
        Ok(())
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

    /// Decodes brotli in equal steps: when a step fails, the library gives none of that step's output. So
    /// little is lost, and the loss is the same however the data is cut; an incomplete step is decoded with
    /// more data or at the end.
    fn unbrotli(&mut self, data: &[u8], step: usize, sink: &mut Sink<'_>) -> Result<(), Failure> {
        let Codec::Brotli(state, waiting, _) = self else { return Ok(()) };
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

impl Between {
    /// The decoder of the next member, or the state before it, and the remaining bytes. Zeros may pad a
    /// member.
    fn next(mut self, decoder: Box<Decompress>, data: &[u8]) -> (Codec, &[u8]) {
        let skipped = self.trailer.min(data.len());
        self.trailer -= skipped;
        let mut data = after(data, skipped);
        if self.header.is_at_start() {
            data = after(data, data.iter().take_while(|byte| **byte == 0).count());
        }
        match self.header.read(data) {
            Ok(Some(rest)) => (Codec::Inflate(decoder, Members::Later), rest),
            Ok(None) => (Codec::Between(decoder, self), &[]),
            Err(NoHeader) => (Codec::Ended, &[]),
        }
    }
}

/// Inflates a piece. Returns the decoder's status and the remaining bytes.
pub(crate) fn inflate<'d>(
    decoder: &mut Decompress,
    mut data: &'d [u8],
    sink: &mut Sink<'_>,
) -> (Result<Status, Failure>, &'d [u8]) {
    let mut piece = [0u8; PIECE];
    loop {
        let (input, output) = (decoder.total_in(), decoder.total_out());
        let status = decoder.decompress(data, &mut piece, FlushDecompress::None);
        let used = usize::try_from(decoder.total_in().saturating_sub(input)).unwrap_or(data.len());
        let made = usize::try_from(decoder.total_out().saturating_sub(output)).unwrap_or(0);
        if made > 0
            && let Err(stop) = sink(piece.get(..made).unwrap_or_default())
        {
            return (Err(stop.into()), data);
        }
        data = after(data, used);
        match status {
            Err(_) => return (Err(Failure::Corrupt), data),
            Ok(Status::StreamEnd) => return (Ok(Status::StreamEnd), data),
            // No progress: more input is needed.
            Ok(status) if made < PIECE && (data.is_empty() || used == 0) => return (Ok(status), &[]),
            Ok(_) => {}
        }
    }
}

/// Result of parsing a zlib header.
enum ZlibHeader {
    Need,
    Length(usize),
    Bad,
}

/// Length of a zlib header (RFC 1950 section 2.2), if it is one that names no dictionary.
fn zlib_header(data: &[u8]) -> ZlibHeader {
    let [method, flags, ..] = data else {
        let possible = data.iter().all(|method| method & 0x8f == 8);
        return if possible { ZlibHeader::Need } else { ZlibHeader::Bad };
    };
    let check = u16::from_be_bytes([*method, *flags]) % 31;
    if method & 0x8f == 8 && flags & 0x20 == 0 && check == 0 {
        ZlibHeader::Length(2)
    } else {
        ZlibHeader::Bad
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zlib_headers() {
        for (header, good) in
            [(b"\x78\x9c", true), (b"\x78\x9d", false), (b"\x88\x1c", false), (b"\x78\xbb", false)]
        {
            assert_eq!(matches!(zlib_header(header), ZlibHeader::Length(2)), good, "{header:?}");
        }
        assert!(
            matches!(zlib_header(b"\x78"), ZlibHeader::Need)
                && matches!(zlib_header(b"x\0"), ZlibHeader::Bad)
        );
        assert!(matches!(zlib_header(b"\x77"), ZlibHeader::Bad));
    }
}
