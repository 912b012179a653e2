// SPDX-License-Identifier: Apache-2.0
//! Undoing content encodings: gzip, deflate (raw and zlib), brotli, LZMA, one after the other.
//!
//! Browsers take what a server sends whatever its header says, so a decoder that fails before it gave anything is followed by
//! the next one (gzip, raw deflate, zlib, in turn), and when all fail the bytes pass as they are (libhtp does the same). Checksums
//! are not compared for the same reason.

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use flate2::{Decompress, FlushDecompress, Status};
use std::io::Write as _;

use super::bytes::after;

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
/// Undecoded bytes kept at most for another decoder to try.
const HOLD: usize = 1 << 16;
/// Decoders tried after the first.
const RESTARTS: u8 = 3;

/// The receiver refused more: a limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop;

/// Memory that LZMA may ask for, in bytes.
const LZMA_MEMORY: usize = 1 << 20;

type Lzma = lzma_rs::decompress::Stream<Vec<u8>>;
type Brotli = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

enum Codec {
    /// Header bytes so far; the body follows them.
    GzipHeader(Vec<u8>),
    /// Raw deflate or zlib.
    Inflate(Box<Decompress>),
    Brotli(Box<Brotli>),
    Lzma(Box<Lzma>),
    /// All that follows the end of the encoded data is ignored.
    Ended,
}

impl Codec {
    fn new(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Gzip => Codec::GzipHeader(Vec::new()),
            Encoding::Deflate => Codec::Inflate(Box::new(Decompress::new(false))),
            Encoding::Zlib => Codec::Inflate(Box::new(Decompress::new(true))),
            Encoding::Brotli => {
                let alloc = StandardAlloc::default;
                Codec::Brotli(Box::new(BrotliState::new(alloc(), alloc(), alloc())))
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
}

/// Why a decoder stopped.
enum Failure {
    /// The data is not of this encoding.
    Corrupt,
    Stop,
}

impl From<Stop> for Failure {
    fn from(_: Stop) -> Self {
        Failure::Stop
    }
}

/// A decoder that may turn into another.
struct Layer {
    encoding: Encoding,
    codec: Codec,
    /// Input since the last output, for the next decoder to try.
    held: Vec<u8>,
    /// Output of this decoder that was not handed on.
    pending: Vec<u8>,
    restarts: u8,
    /// Some output was handed on; within the present call.
    produced: bool,
    produced_now: bool,
    through: bool,
    dead: bool,
}

/// What a layer wants done beyond its output.
enum After {
    Nothing,
    /// These bytes pass undecoded from here on, through the layers behind as well.
    PassThrough(Vec<u8>),
}

type Sink<'s> = dyn FnMut(&[u8]) -> Result<(), Stop> + 's;

impl Layer {
    fn new(encoding: Encoding) -> Self {
        Layer {
            encoding,
            through: false,
            codec: Codec::new(encoding),
            held: Vec::new(),
            pending: Vec::new(),
            restarts: 0,
            produced: false,
            produced_now: false,
            dead: false,
        }
    }

    fn decode(&mut self, data: &[u8], sink: &mut Sink<'_>) -> Result<After, Stop> {
        if self.dead {
            return Err(Stop);
        }
        self.produced_now = false;
        if self.produced {
            self.held.clear();
        }
        if self.held.len() < HOLD {
            self.held.extend_from_slice(data);
        }
        let mut result = self.feed(data, sink);
        loop {
            match result {
                Ok(()) => {
                    self.flush(sink)?;
                    return Ok(After::Nothing);
                }
                Err(Failure::Stop) => {
                    self.dead = true;
                    return Err(Stop);
                }
                Err(Failure::Corrupt) => {}
            }
            if self.restarts == 0 {
                // What the decoder of the announced encoding gave before it failed is real.
                self.flush(sink)?;
            }
            self.pending.clear();
            if self.produced_now {
                self.dead = true;
                return Err(Stop);
            }
            let held = core::mem::take(&mut self.held);
            let Some(codec) = self.next_codec() else {
                self.through = true;
                return Ok(After::PassThrough(held));
            };
            self.codec = codec;
            result = self.feed(&held, sink);
            self.held = held;
        }
    }

    fn next_codec(&mut self) -> Option<Codec> {
        if self.restarts >= RESTARTS {
            return None;
        }
        self.restarts += 1;
        self.encoding = match self.encoding {
            Encoding::Gzip | Encoding::Brotli | Encoding::Lzma => Encoding::Deflate,
            Encoding::Deflate => Encoding::Zlib,
            Encoding::Zlib => Encoding::Gzip,
        };
        Some(Codec::new(self.encoding))
    }

    /// No more input: what the decoder holds back comes out.
    fn finish(&mut self, sink: &mut Sink<'_>) -> Result<(), Stop> {
        if let Codec::Lzma(stream) = core::mem::replace(&mut self.codec, Codec::Ended)
            && let Ok(mut output) = stream.finish()
        {
            self.pending.append(&mut output);
        }
        self.flush(sink)
    }

    fn flush(&mut self, sink: &mut Sink<'_>) -> Result<(), Stop> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.produced = true;
        self.produced_now = true;
        let pending = core::mem::take(&mut self.pending);
        let result = sink(&pending);
        self.pending = pending;
        self.pending.clear();
        self.dead |= result.is_err();
        result
    }

    fn feed(&mut self, data: &[u8], sink: &mut Sink<'_>) -> Result<(), Failure> {
        let header;
        let mut data = data;
        if let Codec::GzipHeader(seen) = &mut self.codec {
            seen.extend_from_slice(data);
            match gzip_header(seen) {
                GzipHeader::Need if seen.len() < HOLD => return Ok(()),
                GzipHeader::Length(length) => {
                    header = core::mem::take(seen);
                    data = after(&header, length);
                    self.codec = Codec::Inflate(Box::new(Decompress::new(false)));
                }
                _ => return Err(Failure::Corrupt),
            }
        }
        match &self.codec {
            Codec::Inflate(_) => self.inflate(data, sink),
            Codec::Brotli(_) => self.unbrotli(data, sink),
            Codec::Lzma(_) => self.unlzma(data, sink),
            Codec::GzipHeader(_) | Codec::Ended => Ok(()),
        }
    }

    fn inflate(&mut self, mut data: &[u8], sink: &mut Sink<'_>) -> Result<(), Failure> {
        loop {
            let Codec::Inflate(decoder) = &mut self.codec else { return Ok(()) };
            let (input, output) = (decoder.total_in(), decoder.total_out());
            let mut piece = [0u8; PIECE];
            let status = decoder.decompress(data, &mut piece, FlushDecompress::None);
            let used = usize::try_from(decoder.total_in().saturating_sub(input)).unwrap_or(data.len());
            let made = usize::try_from(decoder.total_out().saturating_sub(output)).unwrap_or(0);
            self.pending.extend_from_slice(piece.get(..made).unwrap_or_default());
            data = after(data, used);
            match status {
                Err(_) => return Err(Failure::Corrupt),
                Ok(Status::StreamEnd) => {
                    self.codec = Codec::Ended;
                    return Ok(());
                }
                // Nothing moved: more input is needed.
                Ok(_) if made < PIECE && (data.is_empty() || used == 0) => return Ok(()),
                Ok(_) => {}
            }
            if self.pending.len() >= PIECE {
                self.flush(sink)?;
            }
        }
    }

    fn unlzma(&mut self, data: &[u8], sink: &mut Sink<'_>) -> Result<(), Failure> {
        for piece in data.chunks(PIECE) {
            let Codec::Lzma(stream) = &mut self.codec else { return Ok(()) };
            let result = stream.write_all(piece);
            if let Some(output) = stream.get_output_mut() {
                self.pending.append(output);
            }
            if result.is_err() {
                return Err(Failure::Corrupt);
            }
            if self.pending.len() >= PIECE {
                self.flush(sink)?;
            }
        }
        Ok(())
    }

    fn unbrotli(&mut self, data: &[u8], sink: &mut Sink<'_>) -> Result<(), Failure> {
        let mut left = data.len();
        let mut offset = 0;
        loop {
            let Codec::Brotli(state) = &mut self.codec else { return Ok(()) };
            let mut piece = [0u8; PIECE];
            let (mut room, mut made, mut total) = (PIECE, 0, 0);
            let result = BrotliDecompressStream(
                &mut left,
                &mut offset,
                data,
                &mut room,
                &mut made,
                &mut piece,
                &mut total,
                state,
            );
            self.pending.extend_from_slice(piece.get(..made).unwrap_or_default());
            match result {
                BrotliResult::ResultFailure => return Err(Failure::Corrupt),
                BrotliResult::NeedsMoreInput => return Ok(()),
                BrotliResult::ResultSuccess => {
                    self.codec = Codec::Ended;
                    return Ok(());
                }
                BrotliResult::NeedsMoreOutput => self.flush(sink)?,
            }
        }
    }
}

enum GzipHeader {
    Need,
    Length(usize),
    Bad,
}

/// Length of a gzip header (RFC 1952 section 2.3); reserved flags and header checksums are ignored.
fn gzip_header(data: &[u8]) -> GzipHeader {
    const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
    if data.iter().zip(MAGIC).any(|(have, want)| *have != want) {
        return GzipHeader::Bad;
    }
    let Some(flags) = data.get(3).copied().filter(|_| data.len() >= 10) else { return GzipHeader::Need };
    let mut length = 10;
    if flags & 4 != 0 {
        let [low, high, ..] = after(data, length) else { return GzipHeader::Need };
        length += 2 + usize::from(u16::from_le_bytes([*low, *high]));
    }
    for flag in [8, 16] {
        if flags & flag != 0 {
            let Some(end) = memchr::memchr(0, after(data, length)) else { return GzipHeader::Need };
            length += end + 1;
        }
    }
    if flags & 2 != 0 {
        length += 2;
    }
    if length > data.len() { GzipHeader::Need } else { GzipHeader::Length(length) }
}

/// The encodings of a body, undone in turn.
pub(super) struct Decoder {
    /// The first is applied to what comes in.
    layers: Vec<Layer>,
}

impl Decoder {
    /// A decoder for encodings in the order in which the sender applied them; `None` if there are none.
    pub(super) fn new(encodings: &[Encoding]) -> Option<Self> {
        let layers: Vec<Layer> = encodings.iter().rev().map(|e| Layer::new(*e)).collect();
        (!layers.is_empty()).then_some(Decoder { layers })
    }

    /// Decodes a piece of the body. An error means that the rest is lost: it could not be decoded, or the sink refused it.
    pub(super) fn write(&mut self, data: &[u8], sink: &mut Sink<'_>) -> Result<(), Stop> {
        run(&mut self.layers, data, sink)
    }

    /// The body has ended.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) -> Result<(), Stop> {
        let mut layers = self.layers.as_mut_slice();
        while let Some((layer, behind)) = layers.split_first_mut() {
            layer.finish(&mut |decoded| run(behind, decoded, sink))?;
            layers = behind;
        }
        Ok(())
    }
}

fn run(layers: &mut [Layer], data: &[u8], sink: &mut Sink<'_>) -> Result<(), Stop> {
    let Some((layer, behind)) = layers.split_first_mut() else { return sink(data) };
    if layer.through {
        return run(behind, data, sink);
    }
    match layer.decode(data, &mut |decoded| run(behind, decoded, sink))? {
        After::Nothing => Ok(()),
        After::PassThrough(held) => {
            for layer in behind.iter_mut() {
                layer.through = true;
            }
            sink(&held)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deflate(data: &[u8], zlib: bool) -> Vec<u8> {
        if zlib {
            let mut e = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
            e.write_all(data).expect("vec");
            return e.finish().expect("vec");
        }
        let mut e = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        e.write_all(data).expect("vec");
        e.finish().expect("vec")
    }

    pub(super) fn gzip(data: &[u8]) -> Vec<u8> {
        let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        e.write_all(data).expect("vec");
        e.finish().expect("vec")
    }

    fn decode(encodings: &[Encoding], data: &[u8], step: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let mut decoder = Decoder::new(encodings).expect("layers");
        for piece in data.chunks(step) {
            let _ = decoder.write(piece, &mut |d| {
                out.extend_from_slice(d);
                Ok(())
            });
        }
        let _ = decoder.finish(&mut |d| {
            out.extend_from_slice(d);
            Ok(())
        });
        out
    }

    #[test]
    fn announced_and_other_encodings_decode() {
        let text: Vec<u8> = (0..50_000u32).flat_map(|n| n.to_string().into_bytes()).collect();
        for step in [1, 7, 1460, usize::MAX >> 1] {
            for encoding in [Encoding::Gzip, Encoding::Deflate, Encoding::Zlib, Encoding::Brotli] {
                for data in [gzip(&text), deflate(&text, true), deflate(&text, false)] {
                    assert!(decode(&[encoding], &data, step) == text, "{encoding:?} by {step}");
                }
            }
            let twice = gzip(&deflate(&text, false));
            assert!(decode(&[Encoding::Deflate, Encoding::Gzip], &twice, step) == text);
        }
    }

    #[test]
    fn what_is_not_encoded_passes() {
        for encoding in [Encoding::Gzip, Encoding::Deflate, Encoding::Zlib] {
            assert_eq!(
                decode(&[encoding], b"X5O!P%@AP[4 plain text here", 100),
                b"X5O!P%@AP[4 plain text here"
            );
        }
    }

    #[test]
    fn lzma_decodes() {
        let text = b"lzma lzma lzma lzma lzma".repeat(100);
        let mut data = Vec::new();
        lzma_rs::lzma_compress(&mut &text[..], &mut data).expect("vec");
        for step in [1, 50, 10_000] {
            assert!(decode(&[Encoding::Lzma], &data, step) == text, "by {step}");
        }
    }

    #[test]
    fn truncated_and_trailing_data() {
        let data = gzip(b"hello hello hello hello");
        let cut = &data[..data.len() - 9];
        assert!(decode(&[Encoding::Gzip], cut, 3).starts_with(b"hello"));
        let mut more = data.clone();
        more.extend_from_slice(b"rubbish");
        assert_eq!(decode(&[Encoding::Gzip], &more, 5), b"hello hello hello hello");
    }

    #[test]
    fn gzip_headers() {
        let length = |h: &[u8]| match gzip_header(h) {
            GzipHeader::Length(n) => n as i64,
            GzipHeader::Need => -1,
            GzipHeader::Bad => -2,
        };
        assert_eq!(length(b"\x1f\x8b\x08\x1e\0\0\0\0\0\0\x05\0extraname\0comment\0\x34\x12"), 32);
        assert_eq!(length(b"\x1f\x8b\x08\x1e\0\0\0\0\0\0\x05\0extraname\0comment\0\x34"), -1);
        assert_eq!(length(b"\x1f\x8b\x08\0\0\0\0\0\0"), -1);
        assert_eq!(length(b"\x1f\x8c"), -2);
    }
}
