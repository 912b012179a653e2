// SPDX-License-Identifier: Apache-2.0
//! Trains: segments of a stream that came together are inspected together.
//!
//! Who sends much hands out full segments one directly behind the other, and so they lie in a batch. Each is decoded,
//! tracked, counted and judged by header functions by itself; then it waits, its bytes in the stream, until the last of the
//! train shows payload functions the bytes of all ([`bartizan_function::Together`] says which functions allow that). What is
//! decided of the bytes is decided of all segments of the train, none of which has left: a batch leaves as a whole, so
//! nothing waits longer than without trains. Only inline: passively, Suricata's stream engine waits by itself.
//!
//! Small segments (commands, one behind the other) are no train: rules that count matches count them one by one.

use crate::functions::Looks;
use crate::parts::FlowParts;
use crate::pseudo;
use crate::record::{Fate, Occasion, Recorder};
use crate::standing::Course;
use crate::streams;
use crate::worker::{Frame, Worker};
use bartizan_base::{Decision, Direction, Fid, FlowId, FunctionId, Path, PerDirection, Reason, Verdict};
use bartizan_flow::stream::Stream;
use bartizan_flow::tcp::{Advice, Outcome, TcpState};
use bartizan_function::Together;
use bartizan_packet::{DecodeOutput, PacketFlags, PacketSource, PacketView};

/// Bytes of payload that a segment has at least when another one may follow it in a train.
const LEAST: usize = 512;
/// Bytes of payload that wait in a train at most: what is near at hand when they are shown.
pub(crate) const MOST: u32 = 32 << 10;

/// The train of a worker: one at a time, as its segments lie one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Train {
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
    pub(crate) fn begin(&mut self, follows: bool) {
        (self.follows, self.took) = (follows, false);
    }

    /// Whether the frame in hand waits: nothing is decided of it yet.
    pub(crate) const fn took(&self) -> bool {
        self.took
    }

    /// Whether segments wait.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Whether segments of a flow wait whose bytes were not shown.
    pub(crate) fn waits_in(&self, id: FlowId) -> Option<Direction> {
        let (flow, direction) = self.flow?;
        (self.waiting > 0 && self.decision.is_none() && flow == id).then_some(direction)
    }

    /// The bytes of those that wait were shown.
    pub(crate) fn decided(&mut self, decision: Decision) {
        self.decision = Some(decision);
    }
}

impl Worker {
    /// Whether the segment in hand may wait for those behind it.
    pub(crate) fn may_wait(
        &self,
        occasion: &Occasion<'_>,
        id: FlowId,
        tcp: Option<&Outcome>,
        looks: Looks,
        parts: &FlowParts,
    ) -> bool {
        let reads = |outcome: &Outcome| outcome.stored && outcome.readable[occasion.direction];
        self.train.follows
            && steady(occasion, tcp, looks).is_some_and(reads)
            && self.has_room(occasion, parts)
            && self.chains.together(self.path_of(id)) != Together::Apart
    }

    /// Whether a segment is an acknowledgement and no more: without data, event, or news for a reader, and nothing of the
    /// application layer waits for a packet of its direction. Functions that want to see of a train only the last need not see it.
    pub(crate) fn brings_nothing(
        &self,
        occasion: &Occasion<'_>,
        id: FlowId,
        tcp: Option<&Outcome>,
        looks: Looks,
        parts: &FlowParts,
    ) -> bool {
        let reads = |o: &Outcome| o.stored || o.readable.to_server || o.readable.to_client;
        let open = || parts.app.as_deref().is_some_and(|app| app.has_uninspected(occasion.direction));
        self.forms_trains()
            && occasion.packet.payload().is_empty()
            && steady(occasion, tcp, looks).is_some_and(|outcome| !reads(outcome))
            && self.train.waits_in(id).is_none()
            && self.chains.together(self.path_of(id)) == Together::Joined
            && !open()
    }

    /// Whether the segment in hand and one like it behind it may wait. Where the stream would have to move what waits, because
    /// readers see it in one piece, the train ends: after it was shown there is little to move.
    fn has_room(&self, occasion: &Occasion<'_>, parts: &FlowParts) -> bool {
        let len = payload_len(occasion.packet);
        let waiting = if self.train.is_waiting() { self.train.bytes } else { 0 };
        let stream = parts.streams.as_deref().map(|pair| pair.stream(occasion.direction));
        let room = stream.map_or(0, Stream::room);
        waiting.saturating_add(len) <= MOST && room >= (len as usize).saturating_mul(2)
    }

    /// The path of a flow.
    pub(crate) fn path_of(&self, id: FlowId) -> Path {
        self.flows.get(id).map(|entry| entry.path).unwrap_or_default()
    }

    /// Lets the segment in hand wait: its bytes go into the stream.
    pub(crate) fn wait(&mut self, occasion: &Occasion<'_>, id: FlowId, mut parts: FlowParts) {
        if let Some(pair) = parts.streams.as_deref_mut() {
            pair.settle(occasion.direction, occasion.packet.payload(), &mut self.budget);
        }
        if let Some(entry) = self.flows.get_mut(id) {
            parts.put_back(&mut entry.ext);
        }
        self.account(id);
        let train = &mut self.train;
        if train.waiting == 0 {
            (train.bytes, train.decision) = (0, None);
        }
        train.flow = Some((id, occasion.direction));
        (train.took, train.fid) = (true, self.fid);
        train.waiting += 1;
        train.bytes += payload_len(occasion.packet);
    }

    /// A frame that does not wait was handled: what waits was shown with it, or is shown now.
    pub(crate) fn close_train(&mut self, recorder: &mut dyn Recorder) {
        if let Some((id, direction)) = self.train.flow.filter(|_| self.train.is_waiting())
            && self.train.decision.is_none()
        {
            // What cannot be inspected does not go on.
            let none = Decision::refuse(Verdict::Drop, Reason::StreamReassembly, FunctionId::ENGINE);
            let decision = self.show_waiting(id, direction, recorder).unwrap_or(none);
            self.train.decided(decision);
        }
    }

    /// Shows the payload functions what waits, with a packet that the engine makes: the segment that would have been the last
    /// took another way.
    fn show_waiting(
        &mut self,
        id: FlowId,
        direction: Direction,
        recorder: &mut dyn Recorder,
    ) -> Option<Decision> {
        let entry = self.flows.get(id)?;
        let inspect = match entry.ext.standing.course(entry.state()) {
            Course::Refused(refused) => return Some(refused),
            Course::Bypassed => return Some(Decision::CONTINUE),
            Course::Uninspected => false,
            Course::Judged => true,
        };
        let now = entry.last_seen;
        let made = pseudo::made_of(entry, direction, PacketSource::StreamFlush);
        let mut parts = FlowParts::take(&mut self.flows.get_mut(id)?.ext);
        let view = made.view();
        let generation = self.chains.generation;
        let mut occasion = Occasion {
            packet: &view,
            number: None,
            now,
            generation,
            direction,
            around: None,
            variables: &[],
        };
        let all = PerDirection::new(true, true);
        streams::stream(self, &mut occasion, id, &mut parts, all, recorder);
        parts.put_back(&mut self.flows.get_mut(id)?.ext);
        let looks = Looks { inspect, spared: true, established: true, related: None, restored: false };
        let fid = self.fid;
        let decision = self.functions(&occasion, id, None, &[], looks, recorder);
        self.fid = fid;
        Some(decision)
    }

    /// Frames that wait for a decision: those directly before the one that was handled last, once that is decided. Each is to be
    /// given to [`Worker::release`], in their order, before the next frame is handled.
    #[must_use]
    pub fn waiting(&self) -> usize {
        if self.train.took { 0 } else { self.train.waiting as usize }
    }

    /// Whether segments may form trains at all: inline, and some function takes them together. Else nobody needs to ask what
    /// follows what.
    #[must_use]
    pub fn forms_trains(&self) -> bool {
        self.settings.prevention && self.chains.takes_together()
    }

    /// Counts and records what was decided of a frame that waited, and says it.
    pub fn release(&mut self, frame: &Frame<'_>, recorder: &mut dyn Recorder) -> Decision {
        self.train.waiting = self.train.waiting.saturating_sub(1);
        let decision = self.train.decision.unwrap_or_default();
        let length = u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX);
        self.tally.count(self.train.fid, &decision, length, self.settings.prevention);
        if !decision.verdict.forwards() {
            self.record_released(frame, &decision, recorder);
        }
        crate::handover::walk::count_decision(self, &decision)
    }

    fn record_released(&mut self, frame: &Frame<'_>, decision: &Decision, recorder: &mut dyn Recorder) {
        let Some((id, direction)) = self.train.flow else { return };
        let mut output = DecodeOutput::new();
        // It was counted when it came.
        pseudo::uncounted(&mut self.decoder, |decoder| {
            decoder.decode(frame.link_type, frame.bytes, frame.wire_len, &mut output);
        });
        let Some(packet) = output.outer() else { return };
        let occasion = Occasion {
            packet: &PacketView::new(frame.bytes, packet),
            number: frame.number,
            now: frame.now,
            generation: self.chains.generation,
            direction,
            around: None,
            variables: &[],
        };
        let fate = Fate { decision: *decision, reject: None };
        recorder.refused(&occasion, self.flows.get(id), &fate, &[]);
    }
}

/// The outcome of a segment that payload functions are to look at and that is as it came, if it leaves its session as it was.
fn steady<'o>(occasion: &Occasion<'_>, tcp: Option<&'o Outcome>, looks: Looks) -> Option<&'o Outcome> {
    let is_steady = |outcome: &&Outcome| is_plain(occasion) && is_quiet(outcome);
    tcp.filter(|_| looks.inspect && !looks.spared).filter(is_steady)
}

/// Whether a packet is as it came, and by itself in its frame.
fn is_plain(occasion: &Occasion<'_>) -> bool {
    let packet = occasion.packet.decoded();
    packet.source == PacketSource::Wire
        && packet.recursion == 0
        && !packet.flags.intersects(PacketFlags::REBUILT | PacketFlags::CHECKSUM_PENDING)
        && packet.events.as_slice().is_empty()
}

/// Whether a segment leaves its session as it was, and nothing is to be said of it.
fn is_quiet(outcome: &Outcome) -> bool {
    outcome.previous == TcpState::Established
        && outcome.state == TcpState::Established
        && outcome.advice == Advice::Forward
        && outcome.events.iter().next().is_none()
        && outcome.exception.is_none()
        && !(outcome.reverse || outcome.rejected || outcome.bypass)
}

fn payload_len(packet: &PacketView<'_>) -> u32 {
    u32::try_from(packet.payload().len()).unwrap_or(u32::MAX)
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
    /// Of an Ethernet frame with up to two VLAN tags and IP without options or fragments; a segment with no flag but ACK and PSH.
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

fn two(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().map(u16::from_be_bytes).ok()
}

/// Whether a frame's full TCP segment is directly followed by the next frame's, which is of the same connection. To be asked of two
/// Ethernet frames that lie one behind the other in a batch.
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
