// SPDX-License-Identifier: Apache-2.0
//! The body of a message: the data of a stream in a direction, without content encodings, as a file.

use super::events;
use crate::content::decompress::{BodyDecoder, CodecStop, Encoding, Pace, split_step, within_bound};
use crate::content::file::FileState;
use crate::content::files::{FRESH_MAX, FileContext, FileList, FreshBytes};
use crate::event::Events;

/// Limit of the content encodings that are removed from a body.
pub(super) const LAYERS_MAX: usize = 2;
/// The body of a message, as far as it has come.
#[derive(Default)]
pub(super) struct StreamBody {
    pub(super) files: FileList,
    decoder: Option<BodyDecoder>,
    /// The decoder has given up: nothing more of the body is read.
    failed: bool,
    fresh: FreshBytes,
    /// Bytes on the wire, without padding.
    pub(super) wire: u64,
    decoded: u64,
    /// The part of a larger file that the body is.
    pub(super) range: Option<BodyRange>,
    /// All of the body has come.
    pub(super) complete: bool,
}

/// The part of a larger file that a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BodyRange {
    pub(super) start: u64,
}

impl StreamBody {
    /// Sets the encodings by the value of `content-encoding`.
    pub(super) fn set_encodings(&mut self, value: &[u8], pace: Pace) {
        let mut encodings = Vec::new();
        for word in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).take(LAYERS_MAX) {
            encodings.extend(if word.eq_ignore_ascii_case(b"gzip") || word.eq_ignore_ascii_case(b"x-gzip") {
                Some(Encoding::Gzip)
            } else if word.eq_ignore_ascii_case(b"deflate") {
                Some(Encoding::Deflate)
            } else if word.eq_ignore_ascii_case(b"br") {
                Some(Encoding::Brotli)
            } else {
                None
            });
        }
        if self.wire == 0 {
            self.decoder = BodyDecoder::new(&encodings, pace);
        }
    }

    /// Whether the first byte of the body has come.
    pub(super) const fn is_begun(&self) -> bool {
        !self.files.list.is_empty()
    }

    /// Opens a file. A body has no name, as in Suricata, but a file that parts were put together to has.
    pub(super) fn open(&mut self, name: &[u8], range: Option<BodyRange>, context: &mut FileContext) {
        // The bound of a name is that of a message's fields.
        let _ = self.files.open(name, context);
        self.range = self.range.or(range);
    }

    /// Handles a piece of the body. `limit`: see [`super::settings::Http2Settings::bomb`].
    /// `false`: a receiver may decode what is not inspected, which prevention refuses.
    pub(super) fn receive(
        &mut self,
        data: &[u8],
        limit: u64,
        context: &FileContext,
        raised: &mut Events,
    ) -> bool {
        if self.failed {
            return !context.strict;
        }
        let Some(mut decoder) = self.decoder.take() else {
            self.wire = self.wire.saturating_add(data.len() as u64);
            self.files.append(data);
            return true;
        };
        let mut rest = data;
        while !rest.is_empty() && !self.failed {
            let (piece, tail) = split_step(self.wire, rest);
            rest = tail;
            let result = decoder.write(piece, &mut |decoded| {
                self.files.fresh = self.fresh.add(decoded.len(), context);
                self.decoded(decoded, limit, raised)
            });
            self.wire = self.wire.saturating_add(piece.len() as u64);
            if result.is_err() {
                self.failed = true;
                if !raised.has(events::COMPRESSION_BOMB) {
                    raised.set(events::FAILED_DECOMPRESSION);
                }
            }
        }
        self.wire = self.wire.saturating_add(rest.len() as u64);
        self.decoder = Some(decoder);
        !(self.failed && context.strict)
    }

    fn decoded(&mut self, data: &[u8], limit: u64, raised: &mut Events) -> Result<(), CodecStop> {
        let taken = within_bound(self.wire, self.decoded, limit, data);
        self.decoded = self.decoded.saturating_add(taken.len() as u64);
        self.files.append(taken);
        if taken.len() < data.len() || self.files.fresh > FRESH_MAX {
            raised.set(events::COMPRESSION_BOMB);
            return Err(CodecStop);
        }
        Ok(())
    }

    /// Ends the body with its last data.
    pub(super) fn finish(&mut self, limit: u64, raised: &mut Events) {
        self.end_decoding(limit, raised);
        self.complete = true;
        self.files.close(FileState::Closed);
    }

    /// Ends the body before its last data.
    pub(super) fn abort(&mut self, limit: u64, raised: &mut Events) {
        self.end_decoding(limit, raised);
        self.complete = true;
        self.files.close(FileState::Truncated);
    }

    fn end_decoding(&mut self, limit: u64, raised: &mut Events) {
        if let Some(mut decoder) = self.decoder.take().filter(|_| !self.failed) {
            let _ = decoder.finish(&mut |decoded| self.decoded(decoded, limit, raised));
        }
    }

    /// Bytes of memory held outside of the structure itself.
    pub(super) fn held(&self) -> usize {
        self.files.held().saturating_add(self.decoder.as_ref().map_or(0, BodyDecoder::held))
    }
}
