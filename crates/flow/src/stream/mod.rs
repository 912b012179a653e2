// SPDX-License-Identifier: Apache-2.0
//! Stream reassembly: from segments to ordered bytes, per direction.
//!
//! A [`Stream`] has two independent readers. **app** feeds the protocol parser: it takes bytes in order, may
//! ask for more before it continues, and is notified of gaps. **raw** feeds the detection engine's inspection
//! of the plain stream: it sees chunks of a minimal size, with an overlap of bytes that it has seen, so that
//! nothing hides on a boundary. Bytes are freed when both readers have passed them and, inline, the receiver
//! has acknowledged them.
//!
//! **Passive** ([`StreamMode::Passive`]): bytes become readable when the receiver acknowledges them,
//! and the receiver's host policy resolves overlaps. **Inline**: bytes become readable at once, so the caller
//! holds a segment that closes a gap until the readers have seen everything that becomes readable; the bytes
//! inspected first count, and a retransmission that differs is rewritten or dropped. A segment beyond a gap
//! may leave at once: its receiver cannot read it yet.
//!
//! Data that arrives in order while nothing is held is read from the packet itself. After the readers have
//! run, [`StreamPair::end_packet`] keeps the bytes that are still needed and copies nothing else. Every
//! reading call therefore takes the packet's payload.
//!
//! Offsets are absolute: the first byte after the SYN is 0, and they never wrap.

mod blocks;
mod budget;
mod export;
mod feed;
mod in_order;
mod overlap;
mod pair;
#[cfg(test)]
mod properties;
mod read;
#[cfg(test)]
mod tests;
mod urgent;

pub use budget::MemoryBudget;
pub use in_order::{Duplex, InOrder};
pub use pair::StreamPair;
pub use read::{AppChunk, RawChunk};

use crate::tcp::{COOKIE_REACH, HostPolicy, Peer, ReassemblyConfig, Seq, StreamConfig, StreamMode, TcpState};
use bitflags::bitflags;
use blocks::Blocks;
use overlap::Spans;
use urgent::UrgentBytes;

/// Least distance between islands of data that count as separate regions (Suricata's).
const REGION_GAP: u64 = 256 << 10;
/// Bytes of a one-sided flow that are kept inline after inspection, for comparison with retransmissions.
pub(crate) const ONE_SIDED_KEPT: u64 = 1 << 20;
/// Window assumed in the search for late overlaps while the real one is unknown.
const ASSUMED_WINDOW: u64 = 4096;

bitflags! {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct StreamFlags: u32 {
        /// The beginning of the sequence space is fixed.
        const ANCHORED = 1;
        /// Bytes have been seen.
        const SEEN_DATA = 1 << 1;
        /// The app reader is done.
        const APP_OFF = 1 << 2;
        /// The raw reader is done.
        const RAW_OFF = 1 << 3;
        /// The raw reader takes the available bytes and no more.
        const RAW_LAST = 1 << 4;
        /// The raw reader takes the available bytes, however few.
        const RAW_TRIGGER = 1 << 5;
        /// The raw reader is at work on this packet.
        const RAW_OPEN = 1 << 6;
        /// The depth is reached.
        const DEPTH = 1 << 7;
        /// Nothing is reassembled any more.
        const DEAD = 1 << 8;
        /// The application layer was notified of a gap.
        const GAP = 1 << 9;
        /// Unacknowledged bytes are readable too: the flow ends.
        const ALL_READABLE = 1 << 10;
        /// No more data will come.
        const ENDED = 1 << 11;
        /// The session is past the first FIN: an acknowledgement may count the FIN.
        const FIN_COUNTS = 1 << 12;
        /// The session is past `time_wait`: raw inspection does not wait for more data.
        const CLOSING = 1 << 13;
        /// Inline.
        const INLINE = 1 << 14;
        /// Late overlaps with different data are detected.
        const CHECK_OVERLAP = 1 << 15;
        /// The flow is over after an orderly close: no more data will arrive.
        const FINAL = 1 << 16;
        /// The receiver's acknowledgements do not pass: a part of the inspected data is kept for comparison.
        const ONE_SIDED = 1 << 17;
        /// Data is compared before real receivers: the first bytes are kept as long as there are no more.
        const KEEPS_FIRST = 1 << 18;
    }
}

/// One direction of a flow: reassembly and its two readers.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    flags: StreamFlags,
    /// Most islands of data at a time; 0 until data was seen.
    regions: u8,
    /// A sequence number and its outer offset, which includes urgent bytes.
    anchor: (Seq, u64),
    /// End of the freed bytes.
    left: u64,
    /// The highest offset seen.
    right: u64,
    /// Offset up to which bytes are acknowledged.
    acked: u64,
    /// Window of the sender.
    window: u32,
    app: u64,
    /// Number of bytes that the app reader wants at once.
    need: u32,
    raw: u64,
    raw_overlap: u32,
    raw_chunk: u32,
    /// Offset up to which gaps are reported.
    gaps_to: u64,
    blocks: Blocks,
    spans: Spans,
    urgent: UrgentBytes,
    /// Bytes of the current packet that are read from the packet: offset, length.
    direct: Option<(u64, usize)>,
}

/// The last `len` bytes of a packet, as those before them are freed already.
fn fresh_part(payload: &[u8], len: usize) -> &[u8] {
    payload.len().checked_sub(len).and_then(|skip| payload.get(skip..)).unwrap_or_default()
}

impl Stream {
    pub(crate) fn is(&self, flags: StreamFlags) -> bool {
        self.flags.intersects(flags)
    }

    /// Sequence number up to which bytes are freed; none while nothing is reassembled.
    pub(crate) fn held_from(&self, peer: &Peer) -> Option<Seq> {
        self.reassembles(peer).then(|| self.seq_of(self.left))
    }

    /// Sequence number up to which bytes arrived without a hole; none while nothing is reassembled.
    pub(crate) fn held_to(&self, peer: &Peer) -> Option<Seq> {
        self.reassembles(peer).then(|| self.seq_of(self.contiguous()))
    }

    /// Sequence number after the last byte that arrived, even beyond a hole; none while nothing is
    /// reassembled.
    pub(crate) fn reached(&self, peer: &Peer) -> Option<Seq> {
        self.reassembles(peer).then(|| self.seq_of(self.right))
    }

    fn reassembles(&self, peer: &Peer) -> bool {
        self.is(StreamFlags::ANCHORED) && !self.is(StreamFlags::DEAD) && !self.is_of_another_syn(peer)
    }

    /// Sequence number of an offset near the anchor, at most a window before or after it.
    fn seq_of(&self, offset: u64) -> Seq {
        let (seq, anchor) = self.anchor;
        let outer = self.urgent.outer(offset);
        match anchor.checked_sub(outer) {
            Some(back) => seq.minus(u32::try_from(back).unwrap_or(0)),
            None => seq.plus(u32::try_from(outer.saturating_sub(anchor)).unwrap_or(0)),
        }
    }

    /// Offset of a sequence number; none before the beginning of the stream.
    pub(crate) fn offset(&self, seq: Seq) -> Option<u64> {
        self.urgent_offset(seq).map(|outer| self.urgent.inner(outer))
    }

    /// Outer offset of a sequence number, which includes urgent bytes.
    fn urgent_offset(&self, seq: Seq) -> Option<u64> {
        let (anchor, offset) = self.anchor;
        offset.checked_add_signed(i64::from(seq.since(anchor)))
    }

    /// Whether the held data came with a SYN other than the one that was answered, and so is no part of the
    /// stream. (Far into a stream the beginning is not compared any more, as it no longer changes.)
    pub(crate) fn is_of_another_syn(&self, peer: &Peer) -> bool {
        self.is(StreamFlags::SEEN_DATA)
            && self.anchor.1 < 1 << 30
            && self.urgent_offset(peer.base()) != Some(0)
    }

    /// Takes over the session's state of this direction.
    pub(crate) fn sync(
        &mut self,
        peer: &Peer,
        state: TcpState,
        config: &StreamConfig,
        chunk: u64,
        budget: &mut MemoryBudget,
    ) {
        if self.is_of_another_syn(peer) {
            self.blocks.clear(budget);
            self.spans.clear(budget);
            *self = Stream::default();
        }
        if !self.is(StreamFlags::SEEN_DATA) {
            self.anchor = (peer.base(), 0);
            self.flags |= StreamFlags::ANCHORED;
            self.configure(config);
            self.acked = 0;
        }
        self.raw_chunk = u32::try_from(chunk).unwrap_or(u32::MAX);
        self.flags.set(StreamFlags::FIN_COUNTS, state >= TcpState::FinWait1);
        self.flags.set(StreamFlags::CLOSING, state > TcpState::TimeWait);
        if state == TcpState::Closed {
            self.flags |= StreamFlags::ENDED;
        }
        self.window = peer.window;
        // Before the SYN/ACK nothing is acknowledged.
        if let Some(outer) = self.urgent_offset(peer.last_ack).filter(|_| state >= TcpState::SynRecv) {
            self.acked = self.acked.max(self.urgent.inner(outer));
            // The anchor follows, so that no distance ever reaches half the sequence space.
            if outer > self.anchor.1 {
                self.anchor = (peer.last_ack, outer);
            }
        }
    }

    /// Begins in the middle of a stream; earlier bytes are ignored.
    fn begin_at(&mut self, begin: Seq, peer: &Peer) {
        // Offsets are modulo 4 GB, since the session does not count its bytes. A slightly negative distance
        // counts as 0.
        let offset = match begin.since(peer.base()) {
            -0xffff..=0 => 0,
            distance => u64::from(distance.cast_unsigned()),
        };
        self.anchor = (begin, offset);
        self.flags |= StreamFlags::ANCHORED | StreamFlags::SEEN_DATA;
        for place in [&mut self.left, &mut self.right, &mut self.acked, &mut self.app, &mut self.raw] {
            *place = offset;
        }
        self.gaps_to = offset;
    }

    /// Keeps the fields for records of a stream that is begun anew.
    fn keep_records(&mut self, before: &Stream) {
        self.regions = before.regions;
        self.flags.set(StreamFlags::GAP, before.has_gap());
    }

    /// Takes over the configuration.
    fn configure(&mut self, config: &StreamConfig) {
        self.flags.set(StreamFlags::RAW_OFF, !config.reassembly.raw);
        self.flags.set(StreamFlags::CHECK_OVERLAP, config.reassembly.check_overlap_different_data);
        self.flags.set(StreamFlags::INLINE, config.mode == StreamMode::Inline);
        self.flags.set(StreamFlags::KEEPS_FIRST, config.compares());
        self.raw_overlap = self.raw_overlap.max(config.reassembly.raw_overlap);
    }

    /// Offset up to which bytes are readable.
    pub(crate) fn limit(&self) -> u64 {
        if self.is(StreamFlags::INLINE | StreamFlags::ALL_READABLE) { u64::MAX } else { self.acked }
    }

    /// Offset from which readers see bytes.
    fn seen_from(&self) -> u64 {
        let app = (!self.is(StreamFlags::APP_OFF)).then_some(self.app);
        let overlap = u64::from(self.raw_overlap);
        let raw = (!self.is(StreamFlags::RAW_OFF)).then(|| self.raw.saturating_sub(overlap));
        app.into_iter().chain(raw).min().unwrap_or(self.right)
    }

    /// Offset from which bytes are needed.
    fn needed_from(&self) -> u64 {
        let mut left = self.seen_from();
        if self.is(StreamFlags::ONE_SIDED) {
            left = left.saturating_sub(ONE_SIDED_KEPT);
        } else if self.is(StreamFlags::INLINE) {
            left = left.min(self.acked);
            if left <= u64::from(COOKIE_REACH) && self.is(StreamFlags::KEEPS_FIRST) {
                left = 0;
            }
        } else if self.is(StreamFlags::CHECK_OVERLAP) {
            let window = if self.window == 0 { ASSUMED_WINDOW } else { u64::from(self.window) };
            left = left.saturating_sub(window);
        }
        left.max(self.left)
    }

    /// Whether an active reader has not reached the end of the available data.
    #[must_use]
    pub fn unread(&self) -> bool {
        let reads =
            !self.is(StreamFlags::DEAD) && !self.flags.contains(StreamFlags::APP_OFF | StreamFlags::RAW_OFF);
        reads && self.app.min(self.raw) < self.right
    }

    /// Writes the held bytes of the stream before an offset, up to `most` bytes; `packet` is the current
    /// packet's payload. Holes are shown by their length, as in Suricata's records.
    pub fn write_held(&self, packet: &[u8], end: u64, most: usize, out: &mut Vec<u8>) {
        let direct = self.direct.map(|(start, len)| (start, fresh_part(packet, len)));
        let blocks = self.blocks.iter().map(|b| (b.start(), b.bytes()));
        let mut at = self.left;
        for (start, bytes) in blocks.chain(direct) {
            if out.len() >= most || start >= end {
                break;
            }
            let here = usize::try_from(end - start).unwrap_or(usize::MAX);
            let bytes = bytes.get(..here).unwrap_or(bytes);
            if let Some(hole) = start.checked_sub(at).filter(|hole| *hole > 0) {
                out.extend_from_slice(format!("[{hole} bytes missing]").as_bytes());
            }
            out.extend_from_slice(bytes);
            at = start.saturating_add(bytes.len() as u64);
        }
        out.truncate(most);
    }

    /// Whether the application layer was notified of a gap (EVE's `ts_gap`, `tc_gap`).
    #[must_use]
    pub fn has_gap(&self) -> bool {
        self.is(StreamFlags::GAP)
    }

    /// Most islands of data at a time (EVE's `ts_max_regions`, `tc_max_regions`).
    #[must_use]
    pub fn max_regions(&self) -> u8 {
        self.regions.max(1)
    }

    /// Urgent bytes taken out of the stream (EVE's `ts_urgent_oob_data`, `tc_urgent_oob_data`).
    #[must_use]
    pub fn urgent_out_of_band(&self) -> u16 {
        self.urgent.total()
    }

    /// Whether the reassembly depth is reached: no more data is taken.
    #[must_use]
    pub fn depth_reached(&self) -> bool {
        self.is(StreamFlags::DEPTH)
    }

    /// Whether no more data is taken: the session is closed, the flow ends or the depth is reached.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.is(StreamFlags::ENDED | StreamFlags::DEPTH | StreamFlags::DEAD)
    }

    /// Whether the sender has finished: the session is closed, or the flow ends.
    #[must_use]
    pub fn over(&self) -> bool {
        self.is(StreamFlags::ENDED)
    }

    /// Resumes a direction: the segment that ended it does not reach its receiver.
    pub(crate) fn resume(&mut self) {
        self.flags.remove(StreamFlags::ENDED);
    }

    /// Whether reassembly of this direction is over, and nothing is held.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.is(StreamFlags::DEAD)
    }

    /// The highest offset seen.
    #[must_use]
    pub fn right_edge(&self) -> u64 {
        self.right
    }

    /// Offset up to which bytes are acknowledged.
    #[must_use]
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// Offset of the app reader.
    #[must_use]
    pub fn app_progress(&self) -> u64 {
        self.app
    }

    /// Offset of the raw reader.
    #[must_use]
    pub fn raw_progress(&self) -> u64 {
        self.raw
    }

    /// Bytes of memory that the stream takes from the budget.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.blocks.held().saturating_add(self.spans.held())
    }

    /// Bytes of that memory that no reader has got yet: they are after a hole, unacknowledged (passive), or a
    /// part of the data that the parser waits for.
    fn waiting(&self) -> u64 {
        let readable = self.contiguous().min(self.limit());
        let from = if self.is(StreamFlags::APP_OFF) { readable } else { readable.min(self.app) };
        self.blocks.held_from(from)
    }

    /// Bytes that fit before unread data has to be moved to stay in one piece.
    #[must_use]
    pub fn room(&self) -> usize {
        self.blocks.room()
    }

    /// Restores the inspected bytes in a retransmission, for the normaliser. `payload` is the packet's
    /// payload, `seq` its first sequence number. Returns whether anything changed. Called before
    /// [`StreamPair::end_packet`].
    pub fn restore(&self, seq: Seq, payload: &mut [u8]) -> bool {
        // No receiver takes bytes before the beginning of the stream.
        let (anchor, at) = self.anchor;
        let start = i64::try_from(at).unwrap_or(i64::MAX).saturating_add(i64::from(seq.since(anchor)));
        let before = usize::try_from(start.min(0).unsigned_abs()).unwrap_or(usize::MAX);
        let Some(payload) = payload.get_mut(before..) else { return false };
        let offset = self.urgent.inner(u64::try_from(start).unwrap_or(0));
        if !self.blocks.differs(offset, payload) {
            return false;
        }
        self.blocks.read_over(offset, payload);
        true
    }

    /// Whether the first `len` bytes of the stream are held.
    pub(crate) fn holds_beginning(&self, len: usize) -> bool {
        self.left == 0 && self.urgent.total() == 0 && self.blocks.run(0).len() >= len
    }

    /// Writes the first bytes of the stream. `false`: they are not held, and nothing is written. Called
    /// before [`StreamPair::end_packet`].
    #[must_use]
    pub fn beginning(&self, out: &mut [u8]) -> bool {
        let held = self.holds_beginning(out.len());
        if held {
            self.blocks.read_over(0, out);
        }
        held
    }

    /// Frees the bytes that no reader needs.
    fn trim(&mut self, budget: &mut MemoryBudget) {
        let left = self.needed_from();
        self.blocks.set_seen_from(self.seen_from());
        if left == self.left && self.blocks.is_whole() {
            return;
        }
        self.left = left;
        self.blocks.trim(self.left, budget);
        self.spans.trim(self.left, budget);
        self.urgent.trim(self.left);
    }

    /// Keeps the bytes of the current packet that are still needed and frees the rest.
    pub(crate) fn end_packet(&mut self, payload: &[u8], budget: &mut MemoryBudget) {
        self.flags.remove(StreamFlags::RAW_OPEN);
        // Bytes that the raw reader has not had are left for the next packet of their own direction.
        if self.is(StreamFlags::RAW_LAST) && (self.is_raw_at_end() || !payload.is_empty()) {
            self.flags |= StreamFlags::RAW_OFF;
        }
        if self.is(StreamFlags::DEPTH) {
            self.kill(budget);
        }
        if let Some((start, len)) = self.direct.take()
            && !self.is(StreamFlags::DEAD)
        {
            let from = self.needed_from().max(start);
            let skip = usize::try_from(from.saturating_sub(start)).unwrap_or(usize::MAX);
            let kept = fresh_part(payload, len).get(skip..).unwrap_or_default();
            self.blocks.keep_promised(from, kept, budget);
            if !kept.is_empty() && !self.is(StreamFlags::INLINE) {
                let end = start.saturating_add(len as u64);
                self.spans.insert(overlap::SegmentSpan { start, end }, budget);
            }
        }
        self.trim(budget);
    }

    /// Drops the overlap of bytes that were read so far.
    pub(crate) fn drop_overlap(&mut self, budget: &mut MemoryBudget) {
        if self.direct.is_none() {
            let overlap = core::mem::take(&mut self.raw_overlap);
            self.trim(budget);
            self.raw_overlap = overlap;
        }
    }

    /// Ends reassembly of this direction.
    pub(crate) fn kill(&mut self, budget: &mut MemoryBudget) {
        self.flags |= StreamFlags::DEAD;
        self.direct = None;
        self.blocks.clear(budget);
        self.spans.clear(budget);
    }

    /// Returns all memory. The stream is as new afterwards.
    pub(crate) fn release(&mut self, budget: &mut MemoryBudget) {
        self.blocks.clear(budget);
        self.spans.clear(budget);
        *self = Stream::default();
    }

    fn overlap_policy(&self, policy: HostPolicy) -> HostPolicy {
        if self.is(StreamFlags::INLINE) { HostPolicy::First } else { policy }
    }

    fn within_regions(&self, config: &ReassemblyConfig, start: u64) -> bool {
        let far = self.blocks.end().is_none_or(|end| start.saturating_sub(end) > REGION_GAP);
        config.max_regions == 0
            || self.blocks.is_empty()
            || !far
            || self.blocks.regions(REGION_GAP) < usize::from(config.max_regions)
    }
}
