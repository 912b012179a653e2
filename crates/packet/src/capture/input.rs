// SPDX-License-Identifier: Apache-2.0
//! The bytes of a capture: decompressed if need be, seen through one reused window.
//!
//! The window is small enough to stay in a core's second-level cache and grows only for a record that
//! does not fit, which the formats bound. Records are handed out as slices of it.

use super::compressed::{Compression, Decompressed};
use std::io::{self, Read};

/// Size of the window at the start.
const WINDOW: usize = 256 * 1024;

/// The reason why reading stopped, other than the end.
#[derive(Debug)]
pub(super) enum Stop {
    Read(io::Error),
    Decompress(io::Error),
}

/// The window.
pub(super) struct InputWindow {
    source: Decompressed,
    window: Vec<u8>,
    start: usize,
    end: usize,
    /// Position in the stream of `start`.
    offset: u64,
    at_end: bool,
    cut: bool,
}

impl InputWindow {
    /// Reads the first bytes and sets up the decompressor.
    pub(super) fn new(inner: Box<dyn Read + Send>) -> io::Result<Self> {
        let source = Decompressed::new(inner)?;
        Ok(Self { source, window: vec![0; WINDOW], start: 0, end: 0, offset: 0, at_end: false, cut: false })
    }

    pub(super) fn compression(&self) -> Option<Compression> {
        self.source.compression()
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

    /// `len` bytes from `at`; empty when they are not in the window (callers load them by `want`).
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
                    if self.compression().is_none() || self.source.file_failed() {
                        return Err(Stop::Read(error));
                    }
                    if !self.source.file_ended() {
                        return Err(Stop::Decompress(error));
                    }
                    self.at_end = true;
                    self.cut = true;
                }
            }
        }
        Ok(self.end >= n)
    }

    /// Skips `n` bytes that are in the window.
    pub(super) fn advance(&mut self, n: usize) {
        let n = n.min(self.available());
        self.start += n;
        self.offset = self.offset.saturating_add(n as u64);
    }

    /// Skips `n` bytes wherever they are; false when the stream ends before.
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
