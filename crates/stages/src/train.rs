// SPDX-License-Identifier: Apache-2.0
//! Trains: adjacent segments of a stream in one batch are inspected together.
//!
//! A bulk sender emits full segments back to back, which arrive adjacent in a batch. Each is decoded,
//! tracked, counted and judged by header functions by itself; then it is queued, with its bytes in the
//! stream, until payload functions inspect the bytes of the whole train with the last segment
//! ([`bartizan_function::Together`] says which functions allow that). The decision on the bytes applies to
//! all segments of the train, none of which has left: a batch leaves as a whole, so no segment is delayed.
//! Only inline: passively, Suricata's stream engine already collects data.
//!
//! Small segments (commands in sequence) form no train: rules that count matches count them one by one.

use bartizan_base::{Decision, Direction, Fid, FlowId};

/// Least payload of a segment that another one may follow in a train, in bytes.
const LEAST: usize = 512;
/// Most payload queued in a train, in bytes: bounded so that it is still in the cache when inspected.
pub const MOST: u32 = 32 << 10;

/// The train of a worker: one at a time, since its segments are adjacent.
#[derive(Debug, Default)]
pub struct Train {
    /// Whether the next frame continues the stream after the current one.
    follows: bool,
    /// The current frame has been queued.
    took: bool,
    /// The flow of the queued segments, and their direction.
    flow: Option<(FlowId, Direction)>,
    fid: Fid,
    /// Number of queued segments.
    waiting: u32,
    /// Payload of the queued segments, in bytes.
    bytes: u32,
    /// The decision on their bytes; `None` until they are inspected.
    decision: Option<Decision>,
}

impl Train {
    /// Begins a frame.
    pub fn begin(&mut self, follows: bool) {
        (self.follows, self.took) = (follows, false);
    }

    /// Whether the current frame is queued, without a decision so far.
    pub const fn is_queued(&self) -> bool {
        self.took
    }

    /// Whether segments are queued.
    pub const fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// The direction of a flow's queued segments whose bytes are not inspected yet.
    pub fn waits_in(&self, id: FlowId) -> Option<Direction> {
        let (flow, direction) = self.flow?;
        (self.waiting > 0 && self.decision.is_none() && flow == id).then_some(direction)
    }

    /// Notes the decision on the bytes of the queued segments.
    pub fn decided(&mut self, decision: Decision) {
        self.decision = Some(decision);
    }

    /// Whether the next frame continues the current segment.
    pub const fn follows(&self) -> bool {
        self.follows
    }

    /// Queued bytes.
    pub const fn bytes(&self) -> u32 {
        if self.waiting > 0 { self.bytes } else { 0 }
    }

    /// The flow of the queued segments, or of the last ones, and their direction.
    pub const fn flow(&self) -> Option<(FlowId, Direction)> {
        self.flow
    }

    /// Queues the current segment, with its number of bytes.
    pub fn take(&mut self, flow: FlowId, direction: Direction, fid: Fid, bytes: u32) {
        if self.waiting == 0 {
            (self.bytes, self.decision) = (0, None);
        }
        self.flow = Some((flow, direction));
        (self.took, self.fid) = (true, fid);
        self.waiting += 1;
        self.bytes += bytes;
    }

    /// The flow and direction of queued segments that are not inspected yet.
    pub fn uninspected(&self) -> Option<(FlowId, Direction)> {
        self.flow.filter(|_| self.waiting > 0 && self.decision.is_none())
    }

    /// Queued frames before the current one: their decision is known when the current frame is done.
    pub const fn waiting(&self) -> usize {
        if self.took { 0 } else { self.waiting as usize }
    }

    /// Takes a frame off the queue, with its class and decision.
    pub fn release(&mut self) -> (Fid, Decision) {
        self.waiting = self.waiting.saturating_sub(1);
        (self.fid, self.decision.unwrap_or_default())
    }
}

/// A full TCP segment of a frame that carries nothing else.
struct FullSegment<'f> {
    /// Everything before the IP header.
    link: &'f [u8],
    addresses: &'f [u8],
    ports: [u8; 4],
    seq: u32,
    payload: usize,
}

impl<'f> FullSegment<'f> {
    /// The segment of an Ethernet frame with up to two VLAN tags and IP without options or fragments, and
    /// with no flag but ACK and PSH.
    fn of(frame: &'f [u8]) -> Option<Self> {
        let mut at = 12;
        let mut kind = two(frame, at)?;
        for _ in 0..2 {
            if matches!(kind, 0x8100 | 0x88a8) {
                at += 4;
                kind = two(frame, at)?;
            }
        }
        let (link, ip) = frame.split_at_checked(at + 2)?;
        let (addresses, tcp, length) = match (kind, ip.first()?) {
            (0x0800, 0x45) => {
                let (header, tcp) = ip.split_first_chunk::<20>()?;
                let [_, _, len, len2, _, _, fragment, fragment2, _, proto, ..] = *header;
                let whole = u16::from_be_bytes([fragment, fragment2]) & 0x3fff == 0;
                let length = usize::from(u16::from_be_bytes([len, len2])).checked_sub(20);
                (header.get(12..)?, tcp, length.filter(|_| proto == 6 && whole)?)
            }
            (0x86dd, first) if first >> 4 == 6 => {
                let (header, tcp) = ip.split_first_chunk::<40>()?;
                let [_, _, _, _, len, len2, proto, ..] = *header;
                let length = usize::from(u16::from_be_bytes([len, len2]));
                (header.get(8..)?, tcp, Some(length).filter(|_| proto == 6)?)
            }
            _ => return None,
        };
        let header = tcp.get(..length)?.first_chunk::<20>()?;
        let [p0, p1, p2, p3, s0, s1, s2, s3, _, _, _, _, size, flags, ..] = *header;
        let size = usize::from(size >> 4) * 4;
        // ACK, with or without PSH.
        if flags & !0x08 != 0x10 || size < 20 {
            return None;
        }
        let payload = length.checked_sub(size)?;
        Some(FullSegment {
            link,
            addresses,
            ports: [p0, p1, p2, p3],
            seq: u32::from_be_bytes([s0, s1, s2, s3]),
            payload,
        })
    }
}

/// As `==`, for a few bytes, without a call.
fn are_equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// Two bytes of a header, in network order; `None`: the header is too short.
pub fn two(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().map(u16::from_be_bytes).ok()
}

/// Whether the next frame's TCP segment directly continues this frame's full segment of the same connection.
/// For two adjacent Ethernet frames of a batch.
#[must_use]
pub fn follows(frame: &[u8], next: &[u8]) -> bool {
    if frame.len() < LEAST || next.len() < 54 {
        return false;
    }
    let (Some(this), Some(next)) = (FullSegment::of(frame), FullSegment::of(next)) else { return false };
    this.payload >= LEAST
        && next.payload > 0
        && next.seq == this.seq.wrapping_add(this.payload as u32)
        && this.ports == next.ports
        && are_equal(this.addresses, next.addresses)
        && are_equal(this.link, next.link)
}
