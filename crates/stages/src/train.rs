// SPDX-License-Identifier: Apache-2.0
//! Trains: segments of a stream that came together are inspected together.
//!
//! Who sends much hands out full segments one directly behind the other, and so they lie in a batch. Each is
//! decoded, tracked, counted and judged by header functions by itself; then it waits, its bytes in the
//! stream, until the last of the train shows payload functions the bytes of all
//! ([`bartizan_function::Together`] says which functions allow that). What is decided of the bytes is decided
//! of all segments of the train, none of which has left: a batch leaves as a whole, so nothing waits longer
//! than without trains. Only inline: passively, Suricata's stream engine waits by itself.
//!
//! Small segments (commands, one behind the other) are no train: rules that count matches count them one by
//! one.

use bartizan_base::{Decision, Direction, Fid, FlowId};

/// Bytes of payload that a segment has at least when another one may follow it in a train.
const LEAST: usize = 512;
/// Bytes of payload that wait in a train at most: what is near at hand when they are shown.
pub const MOST: u32 = 32 << 10;

/// The train of a worker: one at a time, as its segments lie one behind the other.
#[derive(Debug, Default)]
pub struct Train {
    /// The frame behind the one in hand goes on where this one ends.
    follows: bool,
    /// The frame in hand has come to wait.
    took: bool,
    /// Whose segments wait, and in which direction they go.
    flow: Option<(FlowId, Direction)>,
    fid: Fid,
    /// How many wait.
    waiting: u32,
    /// Their bytes.
    bytes: u32,
    /// What was decided of their bytes; `None` until they were shown.
    decision: Option<Decision>,
}

impl Train {
    /// Begins with a frame.
    pub fn begin(&mut self, follows: bool) {
        (self.follows, self.took) = (follows, false);
    }

    /// Whether the frame in hand waits: nothing is decided of it yet.
    pub const fn took(&self) -> bool {
        self.took
    }

    /// Whether segments wait.
    pub const fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Whether segments of a flow wait whose bytes were not shown.
    pub fn waits_in(&self, id: FlowId) -> Option<Direction> {
        let (flow, direction) = self.flow?;
        (self.waiting > 0 && self.decision.is_none() && flow == id).then_some(direction)
    }

    /// The bytes of those that wait were shown.
    pub fn decided(&mut self, decision: Decision) {
        self.decision = Some(decision);
    }

    /// Whether the frame behind the one in hand goes on with its segment.
    pub const fn follows(&self) -> bool {
        self.follows
    }

    /// Bytes that wait.
    pub const fn bytes(&self) -> u32 {
        if self.waiting > 0 { self.bytes } else { 0 }
    }

    /// The flow whose segments wait, or waited last, and their direction.
    pub const fn flow(&self) -> Option<(FlowId, Direction)> {
        self.flow
    }

    /// The segment in hand waits, with so many bytes.
    pub fn take(&mut self, flow: (FlowId, Direction), fid: Fid, bytes: u32) {
        if self.waiting == 0 {
            (self.bytes, self.decision) = (0, None);
        }
        self.flow = Some(flow);
        (self.took, self.fid) = (true, fid);
        self.waiting += 1;
        self.bytes += bytes;
    }

    /// The flow whose segments wait and were not shown, and their direction.
    pub fn unshown(&self) -> Option<(FlowId, Direction)> {
        self.flow.filter(|_| self.waiting > 0 && self.decision.is_none())
    }

    /// Frames that wait for a decision that is known, or will be when the frame in hand is done.
    pub const fn waiting(&self) -> usize {
        if self.took { 0 } else { self.waiting as usize }
    }

    /// A frame that waited goes, with its class and what was decided of it.
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
    /// Of an Ethernet frame with up to two VLAN tags and IP without options or fragments; a segment with no
    /// flag but ACK and PSH.
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

/// Two bytes of a header, in network order; `None`: they are not there.
pub fn two(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().map(u16::from_be_bytes).ok()
}

/// Whether a frame's full TCP segment is directly followed by the next frame's, which is of the same
/// connection. To be asked of two Ethernet frames that lie one behind the other in a batch.
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
