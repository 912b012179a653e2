// SPDX-License-Identifier: Apache-2.0
//! The source of a direction's bytes in order, for parsers: TCP reassembly, or any other ordered source (two
//! ends of a pipe, as the stream path will have them).

use super::{AppChunk, Stream, StreamPair};
use bartizan_base::Direction;

/// The bytes of one direction, in order. A source that has every byte from the first on needs only the
/// methods without a body.
pub trait InOrder {
    /// The next bytes, or nothing for now. `own`: payload of the current packet, if it goes this direction
    /// and the source keeps no bytes of it itself.
    fn next<'a>(&'a mut self, own: &'a [u8]) -> Option<AppChunk<'a>>;

    /// Advances the reader by `len` consumed bytes, or by a gap of that length.
    fn consume(&mut self, len: u64);

    /// Suspends the reader until `len` bytes from its position on are available.
    fn need(&mut self, len: u32);

    /// Ends reading.
    fn stop(&mut self);

    /// Offset of the reader: bytes since the beginning.
    fn position(&self) -> u64;

    /// Offset after the last known byte.
    fn end(&self) -> u64;

    /// Whether the sender has finished.
    fn is_over(&self) -> bool;

    /// Notes that a message was parsed: other readers get the bytes available so far.
    fn prompt(&mut self) {}

    /// Whether the reader is at a hole with data after it.
    fn is_before_hole(&self) -> bool {
        false
    }

    /// The data after that hole.
    fn behind_hole<'a>(&'a self, own: &'a [u8]) -> &'a [u8] {
        let _ = own;
        &[]
    }

    /// Whether bytes that were given up directly follow an offset.
    fn gap_follows(&self, offset: u64) -> bool {
        let _ = offset;
        false
    }

    /// Whether the rest of the direction is not inspected.
    fn is_at_depth(&self) -> bool {
        false
    }
}

/// Both directions of a connection.
pub trait Duplex {
    /// The type of one direction.
    type Source: InOrder;

    /// The bytes of a direction.
    fn source(&mut self, direction: Direction) -> &mut Self::Source;
}

impl InOrder for Stream {
    #[inline]
    fn next<'a>(&'a mut self, own: &'a [u8]) -> Option<AppChunk<'a>> {
        self.app(own)
    }

    #[inline]
    fn consume(&mut self, len: u64) {
        self.app_consume(len);
    }

    #[inline]
    fn need(&mut self, len: u32) {
        self.app_need(len);
    }

    #[inline]
    fn stop(&mut self) {
        self.app_stop();
    }

    #[inline]
    fn position(&self) -> u64 {
        self.app_progress()
    }

    #[inline]
    fn end(&self) -> u64 {
        self.right_edge()
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.over()
    }

    #[inline]
    fn prompt(&mut self) {
        self.raw_trigger();
    }

    #[inline]
    fn is_before_hole(&self) -> bool {
        self.before_hole()
    }

    #[inline]
    fn behind_hole<'a>(&'a self, own: &'a [u8]) -> &'a [u8] {
        Stream::behind_hole(self, own)
    }

    #[inline]
    fn gap_follows(&self, offset: u64) -> bool {
        Stream::gap_follows(self, offset)
    }

    #[inline]
    fn is_at_depth(&self) -> bool {
        self.depth_reached()
    }
}

impl Duplex for StreamPair {
    type Source = Stream;

    #[inline]
    fn source(&mut self, direction: Direction) -> &mut Stream {
        self.stream_mut(direction)
    }
}
