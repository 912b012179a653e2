// SPDX-License-Identifier: Apache-2.0
//! Where parsers get a direction's bytes from, in their order: TCP reassembly, or whoever else has them so
//! (two ends of a pipe, as the stream path will have them).

use super::{AppChunk, Stream, StreamPair};
use bartizan_base::Direction;

/// The bytes of one direction, in their order. Who has every byte from the first on needs no more than the
/// methods without a body.
pub trait InOrder {
    /// The next bytes, or nothing for now. `own`: payload of the packet in hand, if it goes this direction
    /// and the source keeps no bytes of it itself.
    fn next<'a>(&'a mut self, own: &'a [u8]) -> Option<AppChunk<'a>>;

    /// The reader took so many bytes, or skips a gap of that length.
    fn consume(&mut self, len: u64);

    /// The reader is not to be asked again before so many bytes from its position on are there.
    fn need(&mut self, len: u32);

    /// The reader wants no more.
    fn stop(&mut self);

    /// Offset of the reader: bytes since the beginning.
    fn position(&self) -> u64;

    /// Offset behind the last byte that is known.
    fn end(&self) -> u64;

    /// Whether the sender sends no more.
    fn is_over(&self) -> bool;

    /// A message was parsed: who else looks at the bytes is to be shown what is there.
    fn prompt(&mut self) {}

    /// Whether the reader stands before a hole with data behind it.
    fn is_before_hole(&self) -> bool {
        false
    }

    /// What lies behind that hole.
    fn behind_hole<'a>(&'a self, own: &'a [u8]) -> &'a [u8] {
        let _ = own;
        &[]
    }

    /// Whether bytes that were given up lie right behind an offset.
    fn gap_follows(&self, offset: u64) -> bool {
        let _ = offset;
        false
    }

    /// Whether more of the direction will not be looked at.
    fn is_at_depth(&self) -> bool {
        false
    }
}

/// Both directions of a connection.
pub trait Duplex {
    /// What one of them is.
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
