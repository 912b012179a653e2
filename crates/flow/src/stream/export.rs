// SPDX-License-Identifier: Apache-2.0
//! Serialised streams, for warm restart and migration: a version, then every field, big endian. Called
//! between packets, after [`StreamPair::end_packet`]. Imported data is untrusted: it is validated, and
//! charged to the budget.

use super::overlap::SegmentSpan;
use super::{MemoryBudget, Stream, StreamFlags, StreamPair};
use crate::tcp::Seq;
use bartizan_base::{Cursor, Direction};

/// Version of the format.
const VERSION: u8 = 1;

impl StreamPair {
    /// Appends both streams.
    pub fn export(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        for direction in Direction::BOTH {
            self.stream(direction).export(out);
        }
    }

    /// Imports both streams; `None` when the bytes are not of this version, or their memory exceeds the
    /// budget.
    #[must_use]
    pub fn import(from: &mut Cursor<'_>, budget: &mut MemoryBudget) -> Option<Self> {
        if from.u8()? != VERSION {
            return None;
        }
        let mut pair = StreamPair::default();
        for direction in Direction::BOTH {
            if pair.stream_mut(direction).import(from, budget).is_none() {
                pair.release(budget);
                return None;
            }
        }
        Some(pair)
    }
}

impl Stream {
    fn export(&self, out: &mut Vec<u8>) {
        out.extend(self.flags.bits().to_be_bytes());
        out.push(self.regions);
        out.extend(self.anchor.0.0.to_be_bytes());
        for offset in [self.anchor.1, self.left, self.right, self.acked, self.app, self.raw, self.gaps_to] {
            out.extend(offset.to_be_bytes());
        }
        for number in [self.window, self.need, self.raw_overlap, self.raw_chunk] {
            out.extend(number.to_be_bytes());
        }
        self.urgent.export(out);
        out.extend(u32::try_from(self.spans.iter().count()).unwrap_or(u32::MAX).to_be_bytes());
        for span in self.spans.iter() {
            out.extend(span.start.to_be_bytes());
            out.extend(span.end.to_be_bytes());
        }
        out.extend(u32::try_from(self.blocks.iter().count()).unwrap_or(u32::MAX).to_be_bytes());
        for block in self.blocks.iter() {
            out.extend(block.start().to_be_bytes());
            out.extend((block.bytes().len() as u64).to_be_bytes());
            out.extend(block.bytes());
        }
    }

    fn import(&mut self, from: &mut Cursor<'_>, budget: &mut MemoryBudget) -> Option<()> {
        self.flags = StreamFlags::from_bits(from.u32()?)?;
        self.regions = from.u8()?;
        self.anchor = (Seq(from.u32()?), from.u64()?);
        for offset in [
            &mut self.left,
            &mut self.right,
            &mut self.acked,
            &mut self.app,
            &mut self.raw,
            &mut self.gaps_to,
        ] {
            *offset = from.u64()?;
        }
        for number in [&mut self.window, &mut self.need, &mut self.raw_overlap, &mut self.raw_chunk] {
            *number = from.u32()?;
        }
        self.urgent.import(from)?;
        for _ in 0..from.u32()? {
            let span = SegmentSpan { start: from.u64()?, end: from.u64()? };
            if span.start >= span.end || span.end > self.right || !self.spans.insert(span, budget) {
                return None;
            }
        }
        for _ in 0..from.u32()? {
            let (start, len) = (from.u64()?, from.u64()?);
            let bytes = from.take(usize::try_from(len).ok()?)?;
            let end = start.checked_add(len)?;
            if start < self.left || end > self.right || bytes.is_empty() {
                return None;
            }
            self.blocks.write(start, bytes, 0, budget).ok()?;
        }
        Some(())
    }
}
