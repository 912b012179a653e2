// SPDX-License-Identifier: Apache-2.0
//! The two readers of a stream.

use super::{Stream, StreamFlags};
use crate::tcp::Seq;

/// What the app reader gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppChunk<'a> {
    /// The next bytes. Say with [`Stream::app_consume`] how many were taken; the rest comes again,
    /// together with what follows.
    Data {
        /// Offset of the first byte.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Bytes that were not seen and will not come. Consume `len` to go on behind them.
    Gap {
        /// Offset of the first missing byte.
        offset: u64,
        /// How many are missing.
        len: u64,
    },
}

/// What the raw reader gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawChunk<'a> {
    /// Offset of the first byte.
    pub offset: u64,
    /// The bytes: those of the overlap, which were seen before, then fresh ones.
    pub bytes: &'a [u8],
    /// How many bytes at the beginning were seen before.
    pub seen: usize,
    /// Bytes are missing before this chunk.
    pub after_gap: bool,
}

impl RawChunk<'_> {
    /// Offset after the last byte: what [`Stream::raw_consume`] takes.
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

    /// Where data begins at or after an offset.
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

    /// End of the data that came without a hole.
    pub(crate) fn contiguous(&self) -> u64 {
        self.run_end(self.left.max(self.app.min(self.raw)))
    }

    /// Whether bytes missing from `at` on have to be given up, when there is data behind them: the
    /// receiver has them, or says so.
    fn is_gap(&self, at: u64) -> bool {
        self.acked.saturating_sub(u64::from(self.is(StreamFlags::FIN_COUNTS))) > at
    }

    /// Finds the gaps that the app reader will meet; returns how many are new.
    pub(crate) fn tell_gaps(&mut self) -> u64 {
        // What is acknowledged lies before the reader: there is no gap before it.
        let from = self.app.max(self.told);
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
            self.told = until;
            if until < data {
                break;
            }
            at = self.run_end(data);
        }
        gaps
    }

    /// Whether the readers have something to look at that they may not have seen.
    pub(crate) fn has_news(&self) -> bool {
        let app = !self.is(StreamFlags::APP_OFF)
            && (self.told > self.app || self.next_data(self.app).is_some_and(|data| data < self.limit()));
        let raw = !self.is(StreamFlags::RAW_OFF) && self.raw < self.right.min(self.limit());
        app || raw || self.ended()
    }

    /// The next thing for the app reader, or nothing for now. `packet` is the payload of the current
    /// packet for the packet's own direction and empty for the other one.
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
            let until = self.told.min(self.next_data(at)?);
            let len = until.checked_sub(at).filter(|len| *len > 0)?;
            return Some(AppChunk::Gap { offset: at, len });
        }
        let wanted = usize::try_from(self.need).unwrap_or(usize::MAX);
        if available < wanted && !self.is(StreamFlags::FINAL) {
            let end = at.saturating_add(available as u64);
            if !self.gap_follows(end) {
                return None;
            }
            // What the reader waits for will not come whole: it gets what is there.
        }
        let bytes = first(self.run(at, packet), available as u64);
        Some(AppChunk::Data { offset: at, bytes })
    }

    /// Whether the app reader stands before a hole with data behind it: what comes next is missing, so this
    /// is not where the sender ended.
    #[must_use]
    pub fn before_hole(&self) -> bool {
        !self.is(StreamFlags::APP_OFF | StreamFlags::DEAD)
            && self.next_data(self.app).is_some_and(|data| data > self.app)
    }

    /// What lies behind the hole that the app reader stands before. `packet` as for [`Stream::app`].
    #[must_use]
    pub fn behind_hole<'a>(&'a self, packet: &'a [u8]) -> &'a [u8] {
        self.next_data(self.app).map_or(&[], |data| self.run(data, packet))
    }

    /// Whether bytes that were given up lie right behind `end`.
    #[must_use]
    pub fn gap_follows(&self, end: u64) -> bool {
        self.told > end && self.next_data(end).is_some_and(|data| data > end)
    }

    /// The app reader took `len` bytes, or skips a gap of that length.
    pub fn app_consume(&mut self, len: u64) {
        self.app = self.app.saturating_add(len).min(self.right.max(self.told));
        self.need = 0;
    }

    /// The app reader is not to be asked again before `len` bytes from its position on are there.
    pub fn app_need(&mut self, len: u32) {
        self.need = len;
    }

    /// The app reader wants no more.
    pub fn app_stop(&mut self) {
        self.flags |= StreamFlags::APP_OFF;
    }

    /// Whether raw inspection has waited long enough.
    fn raw_is_due(&self) -> bool {
        self.is(StreamFlags::INLINE | StreamFlags::ALL_READABLE | StreamFlags::ENDED)
            || self.is(StreamFlags::DEPTH | StreamFlags::RAW_TRIGGER | StreamFlags::RAW_LAST)
            || self.is(StreamFlags::CLOSING)
            || self.acked.saturating_sub(self.raw) >= u64::from(self.raw_chunk)
    }

    /// The next chunk for the raw reader, or nothing for now. Ask again after [`Stream::raw_consume`]:
    /// there is one chunk for each piece between gaps. Passive, to be asked on packets of the
    /// stream's own direction (when Suricata inspects); inline, on every packet with new data.
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
        // Inline the order of bytes is kept: what lies behind a gap waits until it is readable.
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

    /// Inline: the stream about a packet whose bytes are no news for the raw reader: they were sent before,
    /// or lie behind a hole. Rules look at each packet that goes on, with what is held about it, as in
    /// Suricata: all of it counts as unseen, and the raw reader stays where it is. What is behind a hole
    /// comes again with what fills it. To be asked when [`Stream::raw`] has nothing for a packet that was
    /// taken in; `payload` is the packet's, with the inspected bytes. `joined`: where bytes are put together
    /// that are held apart, since they came in another order.
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
            // Only a part of it is held.
            return Some(RawChunk { offset: start, bytes: payload, seen: 0, after_gap: true });
        };
        // As much before as there is room for beside what is behind, which gets half of it at least.
        let (before, behind) = (start.saturating_sub(left), right.saturating_sub(end));
        let behind = behind.min(room.saturating_sub(before).max(room / 2));
        let before = before.min(room.saturating_sub(behind));
        let offset = start.saturating_sub(before);
        let bytes = self.blocks.copied(offset, end.saturating_add(behind), joined);
        Some(RawChunk { offset, bytes, seen: 0, after_gap: start > self.raw })
    }

    /// Bytes before an offset that are held without a hole, at most the overlap.
    fn overlap_before(&self, offset: u64) -> u64 {
        let start = match self.direct {
            Some((start, _)) => start,
            None => self.blocks.at_or_after(offset).map_or(offset, |block| block.start()),
        };
        offset.saturating_sub(start).min(u64::from(self.raw_overlap))
    }

    /// The raw reader has seen everything up to `end`, an absolute offset.
    pub fn raw_consume(&mut self, end: u64) {
        self.raw = self.raw.max(end.min(self.right));
        self.flags.remove(StreamFlags::RAW_TRIGGER);
    }

    /// Nobody looked at the raw stream on this packet: it follows the app reader, at a window's distance.
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

    /// The raw reader gets what is there, however little (a parser has completed a message).
    pub fn raw_trigger(&mut self) {
        self.flags |= StreamFlags::RAW_TRIGGER;
    }

    /// The raw reader gets what is there once more and then nothing (the stream is encrypted from here).
    pub fn raw_finish(&mut self) {
        self.flags |= StreamFlags::RAW_LAST;
    }

    /// The raw reader wants no more.
    pub fn raw_stop(&mut self) {
        self.flags |= StreamFlags::RAW_OFF;
    }

    /// Bytes before the fresh ones that the raw reader sees again; at least this many.
    pub fn raw_set_overlap(&mut self, bytes: u32) {
        self.raw_overlap = self.raw_overlap.max(bytes);
    }
}
