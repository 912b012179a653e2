// SPDX-License-Identifier: Apache-2.0
//! Adds a segment's data to a stream.

use super::blocks::BlockRefusal;
use super::overlap::{SegmentSpan, new_bytes_count};
use super::{REGION_GAP, Stream, StreamFlags};
use crate::tcp::{EventList, HostPolicy, Segment, Seq, StreamContext, StreamEvent, TcpFlags, UrgentPolicy};

/// The result of adding a segment's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fed {
    /// It is part of the stream.
    Stored,
    /// The data is not needed: before the held data, beyond the depth, or without a reader.
    Nothing,
    /// The data differs from inspected data (inline).
    Differs,
    /// The data could not be kept.
    Failed,
    /// Too many urgent bytes, and the policy drops such packets (inline).
    Urgent,
    /// The segment fills a hole that was given up: the parser has continued without these bytes (inline,
    /// before real receivers).
    Late,
}

/// The treatment of the byte that the urgent pointer marks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Urgent {
    /// The byte stays in the stream, or there is none.
    Stays,
    /// The byte was taken out.
    Out,
    /// The byte is left out at this outer offset, as if lost.
    Missing(u64),
    /// The packet is dropped.
    Drop,
}

impl Stream {
    /// Adds a segment's payload to the stream.
    pub(crate) fn feed(
        &mut self,
        segment: &Segment<'_>,
        policy: HostPolicy,
        context: &mut StreamContext<'_>,
        events: &mut EventList,
    ) -> Fed {
        // An unsettled packet is gone; its bytes count as lost.
        self.direct = None;
        if self.is(StreamFlags::APP_OFF) && self.is(StreamFlags::RAW_OFF | StreamFlags::RAW_LAST) {
            return Fed::Nothing;
        }
        // Fast Open: the data of a SYN begins after the SYN.
        let seq = segment.seq.plus(u32::from(segment.has(TcpFlags::SYN)));
        if !self.within_depth(seq, segment.len(), context) {
            events.push(StreamEvent::ReassemblyDepthReached);
            context.counters.stream_depth_reached = context.counters.stream_depth_reached.wrapping_add(1);
            return Fed::Nothing;
        }
        let Some((outer, payload)) = self.clip(seq, segment.payload) else {
            events.push(StreamEvent::ReassemblySegmentBeforeBaseSeq);
            return Fed::Nothing;
        };
        self.flags |= StreamFlags::SEEN_DATA;
        let skipped = segment.payload.len().saturating_sub(payload.len());
        let mut missing = None;
        if segment.has(TcpFlags::URG) {
            match self.mark_urgent(segment, outer, skipped, context, events) {
                Urgent::Stays | Urgent::Out => {}
                Urgent::Missing(at) => missing = Some(at),
                Urgent::Drop => return Fed::Urgent,
            }
        }
        self.feed_pieces(outer, payload, missing, policy, context, events)
    }

    /// Whether the data is within the reassembly depth.
    fn within_depth(&mut self, seq: Seq, len: u32, context: &StreamContext<'_>) -> bool {
        let depth = u64::from(context.config.reassembly.depth);
        if depth == 0 {
            return true;
        }
        let end = self.offset(seq.plus(len)).unwrap_or(0);
        if end <= depth || self.is(StreamFlags::DEPTH) {
            return !self.is(StreamFlags::DEPTH);
        }
        // A segment that crosses the depth is left out as a whole, as in Suricata. Inline this ends the
        // stream only when nothing before it is missing: missing bytes have yet to be inspected.
        let missing =
            self.is(StreamFlags::INLINE) && self.offset(seq).is_none_or(|start| start > self.contiguous());
        if !missing {
            self.flags |= StreamFlags::DEPTH;
        }
        false
    }

    /// The part of the payload that is not before the held data, with its outer offset.
    fn clip<'p>(&self, seq: Seq, payload: &'p [u8]) -> Option<(u64, &'p [u8])> {
        let held = self.urgent.outer(self.left);
        let (anchor, at) = self.anchor;
        let start = i64::try_from(at).ok()?.checked_add(i64::from(seq.since(anchor)))?;
        let skip = i64::try_from(held).ok()?.saturating_sub(start).max(0);
        let rest = payload.get(usize::try_from(skip).ok()?..).filter(|rest| !rest.is_empty())?;
        u64::try_from(start.saturating_add(skip)).ok().map(|outer| (outer, rest))
    }

    /// Takes the urgent byte out of the stream, if policy and room allow.
    fn mark_urgent(
        &mut self,
        segment: &Segment<'_>,
        outer: u64,
        skipped: usize,
        context: &mut StreamContext<'_>,
        events: &mut EventList,
    ) -> Urgent {
        let config = &context.config.reassembly;
        // The pointer counts from the segment's first byte and marks the byte before it.
        let place = usize::from(segment.urgent).checked_sub(1).and_then(|n| n.checked_sub(skipped));
        let Some(place) = place.filter(|n| skipped.saturating_add(*n) < segment.payload.len()) else {
            return Urgent::Stays;
        };
        let outer = outer.saturating_add(place as u64);
        let mut policy = config.urgent;
        if policy == UrgentPolicy::OutOfBand {
            if self.urgent.contains(outer) {
                return Urgent::Out;
            }
            if !self.urgent.has_room() {
                events.push(StreamEvent::ReassemblyUrgentOobLimitReached);
                policy = config.urgent_limit;
            }
        }
        match policy {
            UrgentPolicy::OutOfBand => self.take_out(outer, context, events),
            UrgentPolicy::Gap => Urgent::Missing(outer),
            UrgentPolicy::Drop if context.config.inline() => Urgent::Drop,
            UrgentPolicy::Drop | UrgentPolicy::Inline => Urgent::Stays,
        }
    }

    fn take_out(&mut self, outer: u64, context: &mut StreamContext<'_>, events: &mut EventList) -> Urgent {
        let inner = self.urgent.inner(outer);
        if self.blocks.touches(inner, inner.saturating_add(1)) {
            // The byte arrived before, without the flag, and is part of the stream.
            return Urgent::Stays;
        }
        self.urgent.insert(outer);
        self.blocks.close_up(inner);
        self.spans.close_up(inner);
        self.right = self.right.saturating_sub(u64::from(self.right > inner));
        context.counters.urgent_oob_data = context.counters.urgent_oob_data.wrapping_add(1);
        if self.urgent.total() == u16::MAX {
            events.push(StreamEvent::ReassemblyUrgentOobLimitReached);
        }
        Urgent::Out
    }

    /// Adds the data between urgent bytes.
    fn feed_pieces(
        &mut self,
        mut outer: u64,
        mut payload: &[u8],
        missing: Option<u64>,
        policy: HostPolicy,
        context: &mut StreamContext<'_>,
        events: &mut EventList,
    ) -> Fed {
        let whole = missing.is_none() && self.urgent.next(outer).is_none();
        let mut result = Fed::Nothing;
        while !payload.is_empty() {
            let hole = self.urgent.next(outer).into_iter().chain(missing.filter(|m| *m >= outer)).min();
            let until = hole.map_or(u64::MAX, |place| place.saturating_sub(outer));
            let len = payload.len().min(usize::try_from(until).unwrap_or(usize::MAX));
            let (piece, rest) = payload.split_at_checked(len).unwrap_or((payload, &[]));
            if !piece.is_empty() {
                let start = self.urgent.inner(outer);
                match self.feed_piece(start, piece, whole, policy, context, events) {
                    Fed::Failed => return Fed::Failed,
                    Fed::Late => return Fed::Late,
                    Fed::Differs => result = Fed::Differs,
                    Fed::Stored if result == Fed::Nothing => result = Fed::Stored,
                    _ => {}
                }
            }
            outer = outer.saturating_add(len as u64);
            payload = rest;
            if let Some((_, after)) = payload.split_first() {
                // The urgent byte itself.
                payload = after;
                outer = outer.saturating_add(1);
            }
        }
        result
    }

    fn feed_piece(
        &mut self,
        start: u64,
        bytes: &[u8],
        whole: bool,
        policy: HostPolicy,
        context: &mut StreamContext<'_>,
        events: &mut EventList,
    ) -> Fed {
        let new = SegmentSpan { start, end: start.saturating_add(bytes.len() as u64) };
        let inline = self.is(StreamFlags::INLINE);
        // The receiver has acknowledged these bytes and ignores them; a receiver that does not would read
        // bytes that no parser saw.
        if inline
            && context.config.strict
            && self.brings_what_was_missing(new, self.app, StreamFlags::APP_OFF)
        {
            return Fed::Late;
        }
        let given_up = inline && self.brings_what_was_missing(new, self.raw, StreamFlags::RAW_OFF);
        let overlaps = self.blocks.touches(new.start, new.end);
        if overlaps {
            context.counters.overlap = context.counters.overlap.wrapping_add(1);
        }
        let stored = if overlaps {
            self.feed_overlapping(new, bytes, policy, context, events)
        } else {
            self.feed_plain(new, bytes, whole, context)
        };
        match stored {
            Ok(fed) => {
                if given_up {
                    // These bytes are inspected before they leave, together with those after them.
                    self.raw = new.start;
                }
                self.note_regions();
                self.right = self.right.max(new.end);
                fed
            }
            Err(refused) => {
                let counters = &mut *context.counters;
                let count = if overlaps {
                    &mut counters.insert_data_overlap_fail
                } else {
                    &mut counters.insert_data_normal_fail
                };
                *count = count.wrapping_add(1);
                if refused == BlockRefusal::Memory {
                    counters.segment_memcap_drop = counters.segment_memcap_drop.wrapping_add(1);
                    events.push(StreamEvent::ReassemblyInsertMemcap);
                } else {
                    events.push(StreamEvent::ReassemblyInsertLimit);
                }
                Fed::Failed
            }
        }
    }

    /// Whether data fills a hole that a reader has skipped.
    fn brings_what_was_missing(&self, new: SegmentSpan, reader: u64, off: StreamFlags) -> bool {
        if self.is(off) || new.start >= reader {
            return false;
        }
        self.run_end(new.start) < new.end.min(reader)
    }

    /// Adds data that overlaps nothing.
    fn feed_plain(
        &mut self,
        new: SegmentSpan,
        bytes: &[u8],
        whole: bool,
        context: &mut StreamContext<'_>,
    ) -> Result<Fed, BlockRefusal> {
        let config = &context.config.reassembly;
        // In order, and nothing is held: read it from the packet. The offset of the payload's end has to be
        // that of the packet, so a packet with an urgent byte is copied.
        if whole && self.blocks.is_empty() && new.start == self.left && self.left == self.right {
            let size = super::MemoryBudget::size_for(bytes.len());
            if !context.budget.fits(size) {
                return Err(BlockRefusal::Memory);
            }
            self.direct = Some((new.start, bytes.len()));
            return Ok(Fed::Stored);
        }
        if !self.within_regions(config, new.start) {
            return Err(BlockRefusal::Limit);
        }
        if !self.is(StreamFlags::INLINE) && !self.spans.insert(new, context.budget) {
            return Err(BlockRefusal::Limit);
        }
        self.blocks.write(new.start, bytes, config.flow_limit, context.budget)?;
        Ok(Fed::Stored)
    }

    /// Adds data that overlaps held data.
    fn feed_overlapping(
        &mut self,
        new: SegmentSpan,
        bytes: &[u8],
        policy: HostPolicy,
        context: &mut StreamContext<'_>,
        events: &mut EventList,
    ) -> Result<Fed, BlockRefusal> {
        let config = &context.config.reassembly;
        let inline = self.is(StreamFlags::INLINE);
        let check = config.check_overlap_different_data;
        let differs = (inline || check) && self.blocks.differs(new.start, bytes);
        // Inline the comparison is needed in any case; Suricata compares as soon as a rule uses the event.
        if differs {
            events.push(StreamEvent::ReassemblyOverlapDifferentData);
        }
        if differs && check {
            context.counters.overlap_diff_data = context.counters.overlap_diff_data.wrapping_add(1);
        }
        let mut merged = bytes.to_vec();
        let policy = self.overlap_policy(policy);
        if policy == HostPolicy::First {
            self.blocks.read_over(new.start, &mut merged);
        } else {
            for old in self.spans.overlapping(new) {
                if new_bytes_count(policy, old, new) {
                    continue;
                }
                // The old bytes stay where both overlap.
                let from = old.start.max(new.start);
                let part =
                    |offset: u64| usize::try_from(offset.saturating_sub(new.start)).unwrap_or(usize::MAX);
                if let Some(kept) = merged.get_mut(part(from)..part(old.end.min(new.end))) {
                    self.blocks.read_over(from, kept);
                }
            }
        }
        if !inline && !self.spans.insert(new, context.budget) {
            return Err(BlockRefusal::Limit);
        }
        self.blocks.write(new.start, &merged, config.flow_limit, context.budget)?;
        Ok(if inline && differs { Fed::Differs } else { Fed::Stored })
    }

    fn note_regions(&mut self) {
        if self.blocks.end().is_some_and(|end| end.saturating_sub(self.left) > REGION_GAP) {
            let regions = u8::try_from(self.blocks.regions(REGION_GAP)).unwrap_or(u8::MAX);
            self.regions = self.regions.max(regions);
        }
    }
}
