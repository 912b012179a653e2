// SPDX-License-Identifier: Apache-2.0
//! The two readers of a stream.

use super::{Stream, StreamFlags};
use crate::tcp::Seq;

/// A piece of the stream for the app reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppChunk<'a> {
    /// The next bytes. [`Stream::app_consume`] takes the number of bytes consumed; the others come again,
    /// together with those that follow.
    Data {
        /// Offset of the first byte.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Bytes that were not seen and will not arrive. Consume `len` to continue after them.
    Gap {
        /// Offset of the first missing byte.
        offset: u64,
        /// Number of missing bytes.
        len: u64,
    },
}

/// A piece of the stream for the raw reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawChunk<'a> {
    /// Offset of the first byte.
    pub offset: u64,
    /// The bytes: first the overlap, which was seen before, then fresh ones.
    pub bytes: &'a [u8],
    /// Number of bytes at the beginning that were seen before.
    pub seen: usize,
    /// Bytes are missing before this chunk.
    pub after_gap: bool,
}

impl RawChunk<'_> {
    /// Offset after the last byte, for [`Stream::raw_consume`].
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes.len() as u64)
    }
}

fn first(bytes: &[u8], most: u64) -> &[u8] {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    bytes.get(..bytes.len().min(most)).unwrap_or_default()
}

impl Stream {
    /// Contiguous bytes from an offset on, readable or not.
    fn run<'a>(&'a self, offset: u64, packet: &'a [u8]) -> &'a [u8] {
        if let Some((start, len)) = self.direct {
            let fresh = super::fresh_part(packet, len);
            let skip = offset.checked_sub(start).and_then(|n| usize::try_from(n).ok());
            return skip.and_then(|n| fresh.get(n..)).unwrap_or_default();
        }
        self.blocks.run(offset)
    }

    /// The offset at which data begins at or after the given one.
    fn next_data(&self, offset: u64) -> Option<u64> {
        match self.direct {
            Some((start, len)) => (offset < start.saturating_add(len as u64)).then(|| start.max(offset)),
            None => self.blocks.at_or_after(offset).map(|block| block.start().max(offset)),
        }
    }

    /// End of the contiguous data at an offset.
    pub(super) fn run_end(&self, offset: u64) -> u64 {
        if let Some((start, len)) = self.direct {
            let end = start.saturating_add(len as u64);
            return if (start..end).contains(&offset) { end } else { offset };
        }
        let mut end = offset;
        for block in self.blocks.iter().skip_while(|block| block.end() <= offset) {
            if block.start() > end {
                break;
            }
            end = block.end();
        }
        end
    }

    /// End of the data that arrived without a hole.
    pub(crate) fn contiguous(&self) -> u64 {
        self.run_end(self.left.max(self.app.min(self.raw)))
    }

    /// Whether the bytes missing from `at` on, before later data, have to be given up: the receiver has
    /// acknowledged them.
    fn is_gap(&self, at: u64) -> bool {
        self.acked.saturating_sub(u64::from(self.is(StreamFlags::FIN_COUNTS))) > at
    }

    /// Finds the gaps that the app reader will meet; returns the number of new ones.
    pub(crate) fn find_gaps(&mut self) -> u64 {
        // The acknowledged bytes are all before the reader: no gap is ahead of it.
        let from = self.app.max(self.gaps_to);
        if self.is(StreamFlags::APP_OFF | StreamFlags::DEAD) || self.blocks.is_empty() || self.acked <= from {
            return 0;
        }
        let mut gaps = 0u64;
        let mut at = self.run_end(from);
        while let Some(data) = self.next_data(at) {
            let until = data.min(self.limit());
            if until <= at || !self.is_gap(at) {
                break;
            }
            gaps = gaps.saturating_add(1);
            self.flags |= StreamFlags::GAP;
            self.gaps_to = until;
            if until < data {
                break;
            }
            at = self.run_end(data);
        }
        gaps
    }

    /// Whether the readers may have unseen data or an unseen end.
    pub(crate) fn has_news(&self) -> bool {
        let app = !self.is(StreamFlags::APP_OFF)
            && (self.gaps_to > self.app || self.next_data(self.app).is_some_and(|data| data < self.limit()));
        let raw = !self.is(StreamFlags::RAW_OFF) && self.raw < self.right.min(self.limit());
        app || raw || self.ended()
    }

    /// The next piece for the app reader, or nothing for now. `packet` is the payload of the current packet
    /// for the packet's own direction and empty for the other one.
    pub fn app<'a>(&'a mut self, packet: &'a [u8]) -> Option<AppChunk<'a>> {
        if self.is(StreamFlags::APP_OFF | StreamFlags::DEAD) {
            return None;
        }
        let at = self.app;
        let available = {
            let run = self.run(at, packet);
            first(run, self.limit().saturating_sub(at)).len()
        };
        if available == 0 {
            let until = self.gaps_to.min(self.next_data(at)?);
            let len = until.checked_sub(at).filter(|len| *len > 0)?;
            return Some(AppChunk::Gap { offset: at, len });
        }
        let wanted = usize::try_from(self.need).unwrap_or(usize::MAX);
        if available < wanted && !self.is(StreamFlags::FINAL) {
            let end = at.saturating_add(available as u64);
            if !self.gap_follows(end) {
                return None;
            }
            // The length that the reader wants will not become available: it gets the available bytes.
        }
        let bytes = first(self.run(at, packet), available as u64);
        Some(AppChunk::Data { offset: at, bytes })
    }

    /// Whether the app reader is at a hole with data after it: the next bytes are missing, so this is not the
    /// sender's end.
    #[must_use]
    pub fn before_hole(&self) -> bool {
        !self.is(StreamFlags::APP_OFF | StreamFlags::DEAD)
            && self.next_data(self.app).is_some_and(|data| data > self.app)
    }

    /// The data after the hole at which the app reader is. `packet` as for [`Stream::app`].
    #[must_use]
    pub fn behind_hole<'a>(&'a self, packet: &'a [u8]) -> &'a [u8] {
        self.next_data(self.app).map_or(&[], |data| self.run(data, packet))
    }

    /// Whether bytes that were given up directly follow `end`.
    #[must_use]
    pub fn gap_follows(&self, end: u64) -> bool {
        self.gaps_to > end && self.next_data(end).is_some_and(|data| data > end)
    }

    /// Advances the app reader by `len` consumed bytes, or by a gap of that length.
    pub fn app_consume(&mut self, len: u64) {
        self.app = self.app.saturating_add(len).min(self.right.max(self.gaps_to));
        self.need = 0;
    }

    /// Suspends the app reader until `len` bytes from its position on are available.
    pub fn app_need(&mut self, len: u32) {
        self.need = len;
    }

    /// Ends the app reader.
    pub fn app_stop(&mut self) {
        self.flags |= StreamFlags::APP_OFF;
    }

    /// Whether raw inspection is due.
    fn raw_is_due(&self) -> bool {
        self.is(StreamFlags::INLINE | StreamFlags::ALL_READABLE | StreamFlags::ENDED)
            || self.is(StreamFlags::DEPTH | StreamFlags::RAW_TRIGGER | StreamFlags::RAW_LAST)
            || self.is(StreamFlags::CLOSING)
            || self.acked.saturating_sub(self.raw) >= u64::from(self.raw_chunk)
    }

    /// The next chunk for the raw reader, or nothing for now. Called again after [`Stream::raw_consume`]:
    /// there is one chunk for each piece between gaps. Passively, called on packets of the stream's own
    /// direction (when Suricata inspects); inline, on every packet with new data.
    pub fn raw<'a>(&'a mut self, packet: &'a [u8]) -> Option<RawChunk<'a>> {
        if self.is(StreamFlags::RAW_OFF | StreamFlags::DEAD) {
            return None;
        }
        if !self.is(StreamFlags::RAW_OPEN) {
            if !self.raw_is_due() {
                return None;
            }
            self.flags |= StreamFlags::RAW_OPEN;
        }
        let data = self.next_data(self.raw)?;
        // Inline, the order of bytes is kept: data after a gap waits until it is readable.
        let inline = self.is(StreamFlags::INLINE);
        if data > self.raw && (inline && !self.is_gap(self.raw)) {
            return None;
        }
        let limit = self.limit();
        if data >= limit {
            return None;
        }
        let after_gap = data > self.raw;
        let fresh = first(self.run(data, packet), limit.saturating_sub(data)).len();
        if fresh == 0 {
            return None;
        }
        let overlap = if after_gap { 0 } else { self.overlap_before(data) };
        let offset = data.saturating_sub(overlap);
        let bytes = first(self.run(offset, packet), overlap.saturating_add(fresh as u64));
        let seen = usize::try_from(overlap).unwrap_or(0);
        Some(RawChunk { offset, bytes, seen, after_gap })
    }

    /// Inline: the stream around a packet whose bytes are not new for the raw reader, since they were sent
    /// before or are after a hole. Rules inspect each forwarded packet with the held data around it, as in
    /// Suricata: all of it counts as unseen, and the raw reader stays at its position. Data after a hole
    /// comes again together with the data that fills the hole. Called when [`Stream::raw`] has nothing for a
    /// packet that was accepted; `payload` is the packet's, with the inspected bytes. `joined`: buffer for
    /// bytes that are held in several blocks, since they arrived out of order.
    #[must_use]
    pub fn raw_about<'a>(
        &'a self,
        seq: Seq,
        payload: &'a [u8],
        joined: &'a mut Vec<u8>,
    ) -> Option<RawChunk<'a>> {
        let off = StreamFlags::RAW_OFF | StreamFlags::RAW_LAST | StreamFlags::DEAD;
        if !self.is(StreamFlags::INLINE) || self.is(off) || payload.is_empty() {
            return None;
        }
        let start = self.offset(seq)?;
        let end = self.offset(seq.plus(u32::try_from(payload.len()).ok()?))?;
        let room = u64::from(self.raw_overlap);
        let Some((left, right)) = self.blocks.island(start, end, room) else {
            // Only a part of the range is held.
            return Some(RawChunk { offset: start, bytes: payload, seen: 0, after_gap: true });
        };
        // As much before the packet as fits beside the bytes after it, which get at least half of the room.
        let (before, behind) = (start.saturating_sub(left), right.saturating_sub(end));
        let behind = behind.min(room.saturating_sub(before).max(room / 2));
        let before = before.min(room.saturating_sub(behind));
        let offset = start.saturating_sub(before);
        let bytes = self.blocks.copied(offset, end.saturating_add(behind), joined);
        Some(RawChunk { offset, bytes, seen: 0, after_gap: start > self.raw })
    }

    /// Number of bytes before an offset that are held without a hole, at most the overlap.
    fn overlap_before(&self, offset: u64) -> u64 {
        let start = match self.direct {
            Some((start, _)) => start,
            None => self.blocks.at_or_after(offset).map_or(offset, |block| block.start()),
        };
        offset.saturating_sub(start).min(u64::from(self.raw_overlap))
    }

    /// Advances the raw reader to `end`, an absolute offset.
    pub fn raw_consume(&mut self, end: u64) {
        self.raw = self.raw.max(end.min(self.right));
        self.flags.remove(StreamFlags::RAW_TRIGGER);
    }

    /// Advances the raw reader on a packet without raw inspection: it follows the app reader at a window's
    /// distance.
    pub fn raw_skip(&mut self) {
        let target = if self.is(StreamFlags::APP_OFF) {
            self.right.saturating_sub(u64::from(self.window))
        } else if self.is(StreamFlags::RAW_TRIGGER) {
            self.app
        } else {
            self.app.saturating_sub(u64::from(self.window))
        };
        self.raw = self.raw.max(target.min(self.right));
        self.flags.remove(StreamFlags::RAW_TRIGGER);
    }

    /// Lets the raw reader have the available bytes, however few (a parser has completed a message).
    pub fn raw_trigger(&mut self) {
        self.flags |= StreamFlags::RAW_TRIGGER;
    }

    /// Lets the raw reader have the available bytes once more, and none after that (the stream is encrypted
    /// from here).
    pub fn raw_finish(&mut self) {
        self.flags |= StreamFlags::RAW_LAST;
    }

    /// Ends the raw reader.
    pub fn raw_stop(&mut self) {
        self.flags |= StreamFlags::RAW_OFF;
    }

    /// Whether the raw reader has ended, or ends with the available bytes.
    pub(crate) const fn is_raw_finished(&self) -> bool {
        self.flags.intersects(StreamFlags::RAW_LAST.union(StreamFlags::RAW_OFF))
    }

    /// Whether the raw reader has read all bytes that arrived.
    pub(crate) const fn is_raw_at_end(&self) -> bool {
        self.raw >= self.right
    }

    /// Sets the number of bytes before the fresh ones that the raw reader sees again; it never decreases.
    pub fn raw_set_overlap(&mut self, bytes: u32) {
        self.raw_overlap = self.raw_overlap.max(bytes);
    }
}
