// SPDX-License-Identifier: Apache-2.0
//! A round: frames that go to all workers together; and the reader's half of a worker, which fills rounds.
//!
//! Not done: decoding in the workers (the reader decodes, since it must know owners and reassemble
//! fragments).

use super::moves::{Crossing, FlowLocations};
use crate::handover::Owners;
use crate::walk::{DatagramRoom, FramePosition, Visitor, Walk};
use crate::worker::Worker;
use bartizan_base::{Decision, FunctionId, LinkId, Reason, Timestamp, Verdict, WorkerId};
use bartizan_flow::FlowKey;
use bartizan_packet::{DecodeOutput, Decoded, LinkType, PacketView, TransportLayer};
use bartizan_stages::chain::Chains;
use bartizan_stages::frame::{Frame, MAX_DEPTH, OuterHeader, PacketPosition};
use bartizan_stages::intake::fragment::Fragmented;
use bartizan_stages::intake::joined::Joined;
use bartizan_stages::normaliser::Rewrite;
use bartizan_stages::settings::{ChecksumMode, EngineSettings};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

/// Frames that go to all workers together.
pub(super) struct Round {
    pub(super) chains: Arc<Chains>,
    pub(super) capture: Option<Arc<str>>,
    pub(super) frames: Vec<RoundFrame>,
    pub(super) parts: Vec<RoundPacket>,
    pub(super) bytes: Vec<u8>,
    /// Number of the round in the run.
    pub(super) number: u64,
    /// Flows that move before the first frame.
    pub(super) moves: Vec<Crossing>,
    /// Flows away from home that had ended at the end of the round.
    pub(super) ended: Mutex<Vec<FlowKey>>,
}

/// A frame of a round, or a tick of the clock alone.
pub(super) struct RoundFrame {
    pub(super) now: Timestamp,
    pub(super) wire_len: u32,
    pub(super) link_type: LinkType,
    pub(super) link: LinkId,
    pub(super) number: Option<u64>,
    pub(super) begin: usize,
    pub(super) end: usize,
    /// End index of the frame's parts.
    pub(super) parts: usize,
    /// Whether checksums count at this point of the capture.
    pub(super) checksums: ChecksumMode,
    pub(super) is_frame: bool,
    /// Prevention: datagrams that the frame completed; they share the frame's decision.
    pub(super) joined: Option<Box<Joined>>,
}

/// A packet of a frame, in the order in which packets are handled.
pub(super) struct RoundPacket {
    pub(super) owner: WorkerId,
    /// Key of the packet's flow, if the owner is not its home.
    pub(super) guest: Option<FlowKey>,
    pub(super) begin: usize,
    pub(super) end: usize,
    /// Position of the packet, without its outer packet.
    pub(super) place: PacketPosition<'static>,
    pub(super) around: Option<OuterHeader>,
    pub(super) packet: Decoded,
    /// [`UNDECIDED`], or the verdict, with reason + 1 in the higher byte; written by the owner.
    pub(super) decision: AtomicU16,
}

/// A value that is no verdict.
const UNDECIDED: u16 = 0xff;

impl RoundPacket {
    /// The owner's decision. `None`: none yet.
    pub(super) fn decided(&self) -> Option<Decision> {
        let code = self.decision.load(Ordering::Relaxed);
        (code != UNDECIDED).then(|| unpack(code))
    }
}

pub(super) const fn pack(decision: &Decision) -> u16 {
    let reason = match decision.reason {
        Some(reason) => reason as u16 + 1,
        None => 0,
    };
    decision.verdict as u16 | reason << 8
}

fn unpack(code: u16) -> Decision {
    let verdict = match code & 0xff {
        1 => Verdict::Pass,
        2 => Verdict::Drop,
        3 => Verdict::Reject,
        _ => Verdict::Continue,
    };
    let reason = usize::from(code >> 8).checked_sub(1).and_then(|index| Reason::ALL.get(index)).copied();
    Decision { verdict, reason, function: FunctionId(0), ..Decision::CONTINUE }
}

impl Round {
    pub(super) fn new(chains: Arc<Chains>) -> Self {
        Round {
            chains,
            capture: None,
            frames: Vec::new(),
            parts: Vec::new(),
            bytes: Vec::new(),
            number: 0,
            moves: Vec::new(),
            ended: Mutex::default(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.parts.clear();
        self.bytes.clear();
        self.moves.clear();
    }

    /// Counts the decisions on the frames, and applies them to the datagrams that the frames completed, once
    /// all workers have finished.
    fn apply_decisions(&self, front: &mut Worker) {
        let mut first = 0;
        for head in &self.frames {
            let parts = self.parts.get(first..head.parts).unwrap_or_default();
            first = head.parts;
            if head.is_frame {
                let decision = parts
                    .iter()
                    .filter_map(RoundPacket::decided)
                    .fold(Decision::CONTINUE, Decision::strictest);
                front.decided(&decision);
                if let Some(joined) = &head.joined {
                    front.intake.decide_datagrams(joined, &decision, head.now);
                }
            }
        }
    }
}

/// The reader's half of a worker: decoder, defragmenter, checksum sample.
pub(super) struct Front {
    pub(super) worker: Worker,
    pub(super) owners: Owners,
    pub(super) places: FlowLocations,
    walk: Walk,
    /// The round with a frame that completed datagrams and is not decided yet; at most one frame is.
    undecided: Option<u64>,
}

impl Front {
    pub(super) fn new(worker: Worker, owners: Owners, places: FlowLocations) -> Self {
        Front { worker, owners, places, walk: Walk::default(), undecided: None }
    }

    /// The round with a completed datagram that is not decided yet.
    pub(super) const fn undecided(&self) -> Option<u64> {
        self.undecided
    }

    /// Takes a round back that all workers have finished.
    pub(super) fn complete_round(&mut self, round: &mut Round) {
        round.apply_decisions(&mut self.worker);
        self.undecided = self.undecided.filter(|undecided| *undecided != round.number);
        if let Ok(ended) = round.ended.get_mut() {
            self.places.have_ended(ended, round.number);
            ended.clear();
        }
    }

    /// Counts and decodes a frame.
    pub(super) fn read(&mut self, frame: &Frame<'_>) -> DecodeOutput {
        self.worker.read(frame);
        self.worker.intake.decode(frame)
    }

    /// Whether these packets contain a fragment while a datagram is not decided yet: whether a fragment is
    /// refused depends on the decision on its datagram.
    pub(super) fn waits_for_decision(&self, output: &DecodeOutput) -> bool {
        self.undecided.is_some() && output.packets().iter().any(Decoded::is_fragment)
    }

    /// Adds the decoded packets of a frame to the round, each with its owner.
    pub(super) fn split(&mut self, frame: &Frame<'_>, mut output: DecodeOutput, round: &mut Round) {
        let begin = round.bytes.len();
        round.bytes.extend_from_slice(frame.bytes);
        let mut walk = core::mem::take(&mut self.walk);
        walk.begin(&mut output, frame.number);
        self.worker.intake.done(output);
        let begins = [begin; MAX_DEPTH as usize + 1];
        walk.run(WorkerId(0), &mut Splitter { front: self, round, begins }, frame);
        let checksums =
            if self.worker.checksums.checks() { ChecksumMode::Check } else { ChecksumMode::Ignore };
        let joined = core::mem::take(&mut walk.joined);
        self.walk = walk;
        let joined = (!joined.is_empty()).then(|| Box::new(joined));
        if joined.is_some() {
            self.undecided = Some(round.number);
        }
        round.frames.push(RoundFrame {
            now: frame.now,
            wire_len: frame.wire_len,
            link_type: frame.link_type,
            link: frame.link,
            number: frame.number,
            begin,
            end: begin.saturating_add(frame.bytes.len()),
            parts: round.parts.len(),
            checksums,
            is_frame: true,
            joined,
        });
    }

    pub(super) fn tick(&mut self, now: Timestamp, round: &mut Round) {
        self.worker.pass_time(now);
        let at = round.bytes.len();
        round.frames.push(RoundFrame {
            now,
            wire_len: 0,
            link_type: LinkType::default(),
            link: LinkId::default(),
            number: None,
            begin: at,
            end: at,
            parts: round.parts.len(),
            checksums: self.worker.checksums.mode(),
            is_frame: false,
            joined: None,
        });
    }

    /// Samples the checksums of all packets in order, until the sample decides whether checksums count.
    fn sample_checksum(&mut self, bytes: &[u8], packet: &Decoded) {
        if self.worker.checksums.mode() == ChecksumMode::Auto
            && matches!(packet.transport, TransportLayer::Tcp(_))
            && packet.wants_flow()
        {
            let right = PacketView::new(bytes, packet).l4_checksum_ok().unwrap_or(true);
            self.worker.checksums.result(right);
        }
    }
}

/// The visitor that assigns each packet of a frame to its owner.
struct Splitter<'r> {
    front: &'r mut Front,
    round: &'r mut Round,
    /// Offsets of the frame's bytes, and of the datagrams' in it, within the round.
    begins: [usize; MAX_DEPTH as usize + 1],
}

impl Visitor for Splitter<'_> {
    fn settings(&self) -> &EngineSettings {
        &self.front.worker.settings
    }

    fn defragment(
        &mut self,
        at: FramePosition<'_>,
        packet: &mut Decoded,
        datagram: DatagramRoom<'_>,
        joined: &mut Joined,
    ) -> Fragmented {
        let DatagramRoom { bytes, output } = datagram;
        let fragmented =
            self.front.worker.defragment(at, packet, DatagramRoom { bytes: &mut *bytes, output }, joined);
        if fragmented == Fragmented::Whole {
            if let Some(begin) = self.begins.get_mut(at.depth + 1) {
                *begin = self.round.bytes.len();
            }
            self.round.bytes.extend_from_slice(bytes);
        }
        fragmented
    }

    fn packet(
        &mut self,
        at: FramePosition<'_>,
        packet: &Decoded,
        place: &PacketPosition<'_>,
    ) -> (Decision, Option<Rewrite>) {
        let front = &mut *self.front;
        front.sample_checksum(at.bytes, packet);
        let home = front.owners.of_packet(at.frame.link, packet);
        let (owner, guest) = front.places.owner(&front.worker, at.frame, packet, home);
        let begin = self.begins.get(at.depth).copied().unwrap_or_default();
        self.round.parts.push(RoundPacket {
            owner,
            guest,
            begin,
            end: begin.saturating_add(at.bytes.len()),
            // The decisions on inner packets come from the parts before this one.
            place: PacketPosition { around: None, ..*place },
            around: place.around.copied(),
            packet: packet.clone(),
            decision: AtomicU16::new(UNDECIDED),
        });
        // The owner decides later.
        (Decision::CONTINUE, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_survive_packing() {
        assert_eq!(unpack(pack(&Decision::CONTINUE)), Decision::CONTINUE);
        for verdict in [Verdict::Continue, Verdict::Pass, Verdict::Drop, Verdict::Reject] {
            for reason in Reason::ALL {
                let decision = Decision::refuse(verdict, *reason, FunctionId(0));
                assert_eq!(unpack(pack(&decision)), decision);
                assert_ne!(pack(&decision), UNDECIDED);
            }
        }
    }
}
