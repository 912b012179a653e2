// SPDX-License-Identifier: Apache-2.0
//! The bytes of a capture: decompressed if need be, seen through one reused window.
//!
//! The window is small enough to stay in a core's second-level cache and grows only for a record that
//! does not fit, which the formats bound. Records are handed out as slices of it.

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufRead, BufReader, Read};

/// Size of the window at the start.
const WINDOW: usize = 256 * 1024;

/// What a capture is compressed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// gzip, one or several members.
    Gzip,
    /// Zstandard, one or several frames.
    Zstd,
}

impl Compression {
    /// Name of the format and of its usual program.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
        }
    }
}

/// Why no more bytes come, other than the end.
#[derive(Debug)]
pub(super) enum Stop {
    Read(io::Error),
    Decompress(io::Error),
}

type Reader = Box<dyn Read + Send>;

/// The file itself: gives back the bytes looked at for the magic, and remembers whether it ended or
/// failed, so that "the compressed data is damaged" and "the file is cut" are told apart.
struct File {
    head: Vec<u8>,
    given: usize,
    inner: Reader,
    ended: bool,
    failed: bool,
}

impl Read for File {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let head = self.head.get(self.given..).unwrap_or_default();
        if !head.is_empty() {
            let n = head.len().min(out.len());
            for (to, from) in out.iter_mut().zip(head) {
                *to = *from;
            }
            self.given += n;
            return Ok(n);
        }
        match self.inner.read(out) {
            Ok(0) if !out.is_empty() => {
                self.ended = true;
                Ok(0)
            }
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                self.failed = true;
                Err(error)
            }
            other => other,
        }
    }
}

/// Zstandard with several frames and skippable frames, which the library leaves to its caller.
struct ZstdFrames {
    decoder: FrameDecoder,
    file: BufReader<File>,
    in_frame: bool,
    cut: bool,
}

impl ZstdFrames {
    fn new(file: File) -> Self {
        Self {
            decoder: FrameDecoder::new(),
            file: BufReader::with_capacity(64 * 1024, file),
            in_frame: false,
            cut: false,
        }
    }

    /// Starts the next frame; false at the end of the file.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.file.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.file) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    if io::copy(&mut self.file.by_ref().take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

impl Read for ZstdFrames {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.in_frame {
                if self.decoder.can_collect() > 0 {
                    return self.decoder.read(out);
                }
                if self.cut {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                if self.decoder.is_finished() {
                    self.in_frame = false;
                    continue;
                }
                let block = self.decoder.decode_blocks(&mut self.file, BlockDecodingStrategy::UptoBlocks(1));
                if let Err(error) = block {
                    if !self.file.get_ref().ended {
                        return Err(io::Error::other(error));
                    }
                    // The file is cut. The decoder still holds back a window of good bytes; an empty
                    // last block (and a checksum that nobody compares) makes it give them.
                    self.cut = true;
                    let last: &[u8] = &[1, 0, 0, 0, 0, 0, 0];
                    if self.decoder.decode_blocks(last, BlockDecodingStrategy::All).is_err() {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
            } else if self.next_frame()? {
                self.in_frame = true;
            } else {
                return Ok(0);
            }
        }
    }
}

enum Source {
    Plain(File),
    Gzip(Box<MultiGzDecoder<File>>),
    Zstd(Box<ZstdFrames>),
}

impl Source {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Source::Plain(file) => file.read(out),
            Source::Gzip(gzip) => gzip.read(out),
            Source::Zstd(zstd) => zstd.read(out),
        }
    }

    fn file(&self) -> &File {
        match self {
            Source::Plain(file) => file,
            Source::Gzip(gzip) => gzip.get_ref(),
            Source::Zstd(zstd) => zstd.file.get_ref(),
        }
    }
}

/// The window.
pub(super) struct Input {
    source: Source,
    window: Vec<u8>,
    start: usize,
    end: usize,
    /// Position in the stream of `start`.
    offset: u64,
    at_end: bool,
    cut: bool,
}

impl Input {
    /// Looks at the first bytes and sets up the decompressor.
    pub(super) fn new(inner: Reader) -> io::Result<Self> {
        let mut file = File { head: vec![0; 4], given: 0, inner, ended: false, failed: false };
        let mut have = 0;
        while let Some(rest) = file.head.get_mut(have..).filter(|rest| !rest.is_empty()) {
            match file.inner.read(rest) {
                Ok(0) => break,
                Ok(n) => have += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        file.head.truncate(have);
        let source = match *file.head.as_slice() {
            [0x1f, 0x8b, ..] => Source::Gzip(Box::new(MultiGzDecoder::new(file))),
            [0x28, 0xb5, 0x2f, 0xfd] => Source::Zstd(Box::new(ZstdFrames::new(file))),
            [low, 0x2a, 0x4d, 0x18] if low & 0xf0 == 0x50 => Source::Zstd(Box::new(ZstdFrames::new(file))),
            _ => Source::Plain(file),
        };
        Ok(Self { source, window: vec![0; WINDOW], start: 0, end: 0, offset: 0, at_end: false, cut: false })
    }

    pub(super) fn compression(&self) -> Option<Compression> {
        match self.source {
            Source::Plain(_) => None,
            Source::Gzip(_) => Some(Compression::Gzip),
            Source::Zstd(_) => Some(Compression::Zstd),
        }
    }

    /// Position in the (decompressed) stream of the window's start.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Position up to which the stream was read.
    pub(super) fn read_offset(&self) -> u64 {
        self.offset.saturating_add(self.available() as u64)
    }

    /// Bytes in the window.
    pub(super) fn available(&self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// Whether the compressed data ended before its end mark.
    pub(super) fn broke_off(&self) -> bool {
        self.cut
    }

    pub(super) fn window(&self) -> &[u8] {
        self.window.get(self.start..self.end).unwrap_or_default()
    }

    /// `len` bytes from `at`; empty when they are not in the window (callers have asked with `want`).
    pub(super) fn bytes(&self, at: usize, len: usize) -> &[u8] {
        let from = self.start.saturating_add(at);
        self.window.get(from..from.saturating_add(len)).unwrap_or_default()
    }

    pub(super) fn peek<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.window().get(at..)?.first_chunk().copied()
    }

    /// Makes `n` bytes available; false when the stream ends before.
    pub(super) fn want(&mut self, n: usize) -> Result<bool, Stop> {
        if self.available() >= n { Ok(true) } else { self.fill(n) }
    }

    #[cold]
    fn fill(&mut self, n: usize) -> Result<bool, Stop> {
        self.window.copy_within(self.start..self.end, 0);
        self.end = self.available();
        self.start = 0;
        if self.window.len() < n {
            self.window.resize(n, 0);
        }
        while self.end < n && !self.at_end {
            let Some(room) = self.window.get_mut(self.end..) else { break };
            match self.source.read(room) {
                Ok(0) => self.at_end = true,
                Ok(got) => self.end += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let file = self.source.file();
                    if matches!(self.source, Source::Plain(_)) || file.failed {
                        return Err(Stop::Read(error));
                    }
                    if !file.ended {
                        return Err(Stop::Decompress(error));
                    }
                    self.at_end = true;
                    self.cut = true;
                }
            }
        }
        Ok(self.end >= n)
    }

    /// Goes past `n` bytes that are in the window.
    pub(super) fn advance(&mut self, n: usize) {
        let n = n.min(self.available());
        self.start += n;
        self.offset = self.offset.saturating_add(n as u64);
    }

    /// Goes past `n` bytes wherever they are; false when the stream ends before.
    pub(super) fn skip(&mut self, mut n: u64) -> Result<bool, Stop> {
        loop {
            let here = (self.available() as u64).min(n);
            self.advance(here as usize);
            n -= here;
            if n == 0 {
                return Ok(true);
            }
            if !self.want(1)? {
                return Ok(false);
            }
        }
    }
}
