// SPDX-License-Identifier: Apache-2.0
//! A file that may be compressed: gzip and Zstandard by their magic numbers, with all their members and
//! frames.

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufRead, BufReader, Read};

/// The compression of a capture file.
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

/// The file itself: replays the bytes read for the magic number, and remembers whether it ended or failed,
/// so that errors can tell damaged compressed data from a cut file.
struct File {
    head: Vec<u8>,
    given: usize,
    inner: Box<dyn Read + Send>,
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
                    // The file is cut. The decoder still holds back a window of good bytes; an empty last
                    // block (with a checksum that is not verified) makes it release them.
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

enum CompressionReader {
    Plain(File),
    Gzip(Box<MultiGzDecoder<File>>),
    Zstd(Box<ZstdFrames>),
}

/// The content of a file, decompressed if need be. For cut compressed data it returns all that can be
/// decompressed, then an error.
pub struct Decompressed(CompressionReader);

impl Decompressed {
    /// Reads the first bytes and sets up the decompressor.
    ///
    /// # Errors
    /// Those of reading the first bytes.
    pub fn new(inner: Box<dyn Read + Send>) -> io::Result<Self> {
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
        Ok(Self(match *file.head.as_slice() {
            [0x1f, 0x8b, ..] => CompressionReader::Gzip(Box::new(MultiGzDecoder::new(file))),
            [0x28, 0xb5, 0x2f, 0xfd] => CompressionReader::Zstd(Box::new(ZstdFrames::new(file))),
            [low, 0x2a, 0x4d, 0x18] if low & 0xf0 == 0x50 => {
                CompressionReader::Zstd(Box::new(ZstdFrames::new(file)))
            }
            _ => CompressionReader::Plain(file),
        }))
    }

    /// The compression of the input; `None` if it is plain.
    #[must_use]
    pub const fn compression(&self) -> Option<Compression> {
        match self.0 {
            CompressionReader::Plain(_) => None,
            CompressionReader::Gzip(_) => Some(Compression::Gzip),
            CompressionReader::Zstd(_) => Some(Compression::Zstd),
        }
    }

    /// Whether the file's last byte was read.
    pub(super) fn file_ended(&self) -> bool {
        self.file().ended
    }

    /// Whether the file could not be read.
    pub(super) fn file_failed(&self) -> bool {
        self.file().failed
    }

    fn file(&self) -> &File {
        match &self.0 {
            CompressionReader::Plain(file) => file,
            CompressionReader::Gzip(gzip) => gzip.get_ref(),
            CompressionReader::Zstd(zstd) => zstd.file.get_ref(),
        }
    }
}

impl Read for Decompressed {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            CompressionReader::Plain(file) => file.read(out),
            CompressionReader::Gzip(gzip) => gzip.read(out),
            CompressionReader::Zstd(zstd) => zstd.read(out),
        }
    }
}
