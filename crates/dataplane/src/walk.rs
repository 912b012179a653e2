// SPDX-License-Identifier: Apache-2.0
//! The walk over the packets of a frame: innermost first, a datagram before the last of its fragments. All
//! walks use this one: a worker walks its own frames, a frame whose packets several workers own stops at each
//! owner ([`crate::handover`]), and the reader of captures distributes packets ([`crate::workers`]). The
//! [`Visitor`] defines the action at a packet.

use bartizan_base::{Decision, Reason, WorkerId};
use bartizan_flow::FlowKey;
use bartizan_packet::{DecodeOutput, Decoded};
use bartizan_stages::frame::{Frame, MAX_DEPTH, OuterHeader, PacketPosition};
use bartizan_stages::intake::fragment::{Fragmented, refused_as_it_is};
use bartizan_stages::intake::joined::Joined;
use bartizan_stages::normaliser::Rewrite;
use bartizan_stages::settings::EngineSettings;

/// Reason why a walk stopped.
pub(crate) enum WalkStop {
    /// All packets are handled.
    Done,
    /// The next packet belongs to this worker.
    At(WorkerId),
    /// The next packet's flow has its home here and another owner.
    Moved(FlowKey),
}

/// A position in a frame.
#[derive(Clone, Copy)]
pub(crate) struct FramePosition<'f> {
    pub(crate) frame: &'f Frame<'f>,
    /// The bytes of the frame, or of a reassembled datagram.
    pub(crate) bytes: &'f [u8],
    /// 0 in the frame itself, one more in each datagram.
    pub(crate) depth: usize,
}

/// Room for a datagram that its last fragment completes.
pub(crate) struct DatagramRoom<'r> {
    /// Its bytes.
    pub(crate) bytes: &'r mut Vec<u8>,
    /// Its packets.
    pub(crate) output: &'r mut DecodeOutput,
}

/// The actions of a walk at the packets of a frame.
pub(crate) trait Visitor {
    /// The settings that name the packets refused without inspection.
    fn settings(&self) -> &EngineSettings;

    /// The worker that keeps the fragments of a frame with this outermost packet. `None`: the worker that
    /// received the frame, as with a single worker.
    fn keeper(&self, frame: &Frame<'_>, outermost: Option<&Decoded>) -> Option<WorkerId> {
        let _ = (frame, outermost);
        None
    }

    /// The stop at which the frame must continue before this packet is handled. `None`: the packet is handled
    /// here, as with a single worker. `kept`: the packet's fragments are kept here.
    fn stop_before(&self, frame: &Frame<'_>, packet: &Decoded, kept: bool) -> Option<WalkStop> {
        let _ = (frame, packet, kept);
        None
    }

    /// Adds a fragment to its datagram, and decodes the datagram if it is complete.
    fn defragment(
        &mut self,
        at: FramePosition<'_>,
        packet: &mut Decoded,
        datagram: DatagramRoom<'_>,
        joined: &mut Joined,
    ) -> Fragmented;

    /// Handles a packet: returns its decision, and the change that the frame needs before it leaves.
    fn packet(
        &mut self,
        at: FramePosition<'_>,
        packet: &Decoded,
        place: &PacketPosition<'_>,
    ) -> (Decision, Option<Rewrite>);
}

/// The packet of a frame with a single whole packet that is not refused without inspection: the usual case.
/// It needs no walk, and nothing is copied.
#[inline]
pub(crate) fn only_packet<'o>(settings: &EngineSettings, output: &'o DecodeOutput) -> Option<&'o Decoded> {
    let [packet] = output.packets() else { return None };
    (!packet.is_fragment() && refused_as_it_is(settings, packet).is_none()).then_some(packet)
}

/// The packets of a frame, or of a datagram reassembled from one of them.
#[derive(Default)]
struct Layer {
    /// The datagram's bytes; empty for the frame itself, whose bytes are elsewhere.
    datagram: Vec<u8>,
    output: DecodeOutput,
    /// Number of packets still to be handled: those below this index.
    left: usize,
    /// The current packet is a fragment and was added to its datagram.
    fragment_done: bool,
    /// Reason why the current packet must not be forwarded.
    refused: Option<Reason>,
    /// The outer packets that events name: of the layer as a whole, and of a packet within another one of the
    /// layer.
    outermost: Option<OuterHeader>,
    first: Option<OuterHeader>,
}

impl Layer {
    /// Begins with the packets of `output`.
    fn begin(&mut self, outermost: Option<OuterHeader>, number: Option<u64>) {
        self.left = self.output.packets().len();
        (self.fragment_done, self.refused) = (false, None);
        self.outermost = outermost;
        self.first = outermost.or_else(|| OuterHeader::of(self.output.packets().first()?, number));
    }
}

/// The progress of a frame's walk.
#[derive(Default)]
pub(crate) struct Walk {
    layers: Vec<Layer>,
    /// Used layers, kept for their memory.
    spare: Vec<Layer>,
    pub(crate) decision: Decision,
    /// The change that the frame needs before it may leave; it travels with the frame.
    pub(crate) rewrite: Option<Rewrite>,
    /// The worker that keeps the frame's fragments, once one was found, and the datagrams that they were
    /// added to.
    keeper: Option<WorkerId>,
    pub(crate) joined: Joined,
    /// Whether a packet was handled.
    begun: bool,
}

impl Walk {
    /// Begins with the decoded packets of a frame; `output` receives memory in exchange that can be reused.
    pub(crate) fn begin(&mut self, output: &mut DecodeOutput, number: Option<u64>) {
        while let Some(layer) = self.layers.pop() {
            self.spare.push(layer);
        }
        self.decision = Decision::CONTINUE;
        self.rewrite = None;
        self.begun = false;
        (self.keeper, self.joined) = (None, Joined::default());
        let mut layer = self.spare.pop().unwrap_or_default();
        layer.datagram.clear();
        core::mem::swap(&mut layer.output, output);
        layer.begin(None, number);
        self.layers.push(layer);
    }

    /// Whether a packet was handled.
    pub(crate) const fn has_begun(&self) -> bool {
        self.begun
    }

    /// The worker that keeps fragments of the frame, if one was found.
    pub(crate) const fn keeper(&self) -> Option<WorkerId> {
        self.keeper
    }

    /// Handles packets until one must be handled elsewhere. `me`: the present worker.
    pub(crate) fn run<V: Visitor>(&mut self, me: WorkerId, visitor: &mut V, frame: &Frame<'_>) -> WalkStop {
        loop {
            let depth = self.layers.len();
            let keeper = self.fragment_keeper(me, visitor, frame);
            let Some(layer) = self.layers.last_mut() else {
                // The worker that keeps the fragments settles the frame.
                let keeper = self.keeper.filter(|keeper| *keeper != me && !self.joined.is_empty());
                return keeper.map_or(WalkStop::Done, WalkStop::At);
            };
            let Some(index) = layer.left.checked_sub(1) else {
                self.spare.extend(self.layers.pop());
                continue;
            };
            let bytes = if depth == 1 { frame.bytes } else { layer.datagram.as_slice() };
            let at = FramePosition { frame, bytes, depth: depth.saturating_sub(1) };
            let count = layer.output.packets().len();
            let Some(packet) = layer.output.packets_mut().get_mut(index) else {
                layer.left = index;
                continue;
            };
            if let Some(keeper) = keeper
                && !layer.fragment_done
                && depth <= usize::from(MAX_DEPTH)
            {
                if keeper != me {
                    return WalkStop::At(keeper);
                }
                self.keeper = Some(me);
                let mut inner = self.spare.pop().unwrap_or_default();
                let room = DatagramRoom { bytes: &mut inner.datagram, output: &mut inner.output };
                let fragmented = visitor.defragment(at, packet, room, &mut self.joined);
                layer.fragment_done = true;
                if let Fragmented::Refused(reason) = fragmented {
                    layer.refused = Some(reason);
                }
                if fragmented == Fragmented::Whole {
                    inner.begin(
                        layer.outermost.or_else(|| OuterHeader::of(packet, frame.number)),
                        frame.number,
                    );
                    self.layers.push(inner);
                } else {
                    self.spare.push(inner);
                }
                continue;
            }
            if let Some(keeper) = keeper.filter(|keeper| *keeper != me) {
                return WalkStop::At(keeper);
            }
            if let Some(stop) = visitor.stop_before(frame, packet, keeper.is_some()) {
                return stop;
            }
            // A fragment's own refusal was determined when it was added to its datagram.
            if !layer.fragment_done {
                layer.refused = refused_as_it_is(visitor.settings(), packet);
            }
            let place = PacketPosition {
                made: depth > 1 || packet.recursion > 0,
                around: if index > 0 { layer.first.as_ref() } else { layer.outermost.as_ref() },
                carries: index + 1 < count,
                inside: self.decision.into(),
                refused: layer.refused.take(),
            };
            self.begun = true;
            let (decision, rewrite) = visitor.packet(at, packet, &place);
            self.decision = self.decision.strictest(decision);
            self.rewrite = rewrite.or(self.rewrite.take());
            layer.left = index;
            layer.fragment_done = false;
        }
    }

    /// The worker that keeps the fragments of this frame, if the next packet is a fragment.
    fn fragment_keeper<V: Visitor>(&self, me: WorkerId, visitor: &V, frame: &Frame<'_>) -> Option<WorkerId> {
        let Layer { output, left, .. } = self.layers.last()?;
        output.packets().get(left.checked_sub(1)?).filter(|packet| packet.is_fragment())?;
        let outermost = self.layers.first().and_then(|layer| layer.output.outer());
        Some(visitor.keeper(frame, outermost).unwrap_or(me))
    }
}
