// SPDX-License-Identifier: Apache-2.0
//! Who owns a packet, and the walk of a frame from owner to owner.

use crate::chain::Chains;
use crate::frame::{Around, Frame, MAX_DEPTH, Place};
use crate::intake::fragment::{Fragmented, refused_as_it_is};
use crate::intake::joined::Joined;
use crate::normaliser::Rewrite;
use crate::record::Recorder;
use crate::worker::Worker;
use bartizan_base::spread::Part;
use bartizan_base::{Decision, Reason, Spread, WorkerId};
use bartizan_packet::{DecodeOutput, Decoded};
use std::sync::Arc;

/// Says who owns what. The same in every worker of an instance.
#[derive(Clone, Copy, Debug)]
pub struct Owners {
    spread: Spread,
}

impl Owners {
    /// Owners as flows are spread.
    #[must_use]
    pub const fn new(spread: Spread) -> Self {
        Owners { spread }
    }

    /// Number of workers.
    #[must_use]
    pub const fn workers(&self) -> u16 {
        self.spread.workers()
    }

    /// The owner of all fragments in frames with this outermost packet: by its addresses. So the fragments of a datagram in a tunnel meet those of
    /// the datagrams that carry them, whose frames wait with them.
    fn of_fragments(&self, outermost: &Decoded) -> WorkerId {
        let (Some(source), Some(destination)) = (outermost.src(), outermost.dst()) else {
            return WorkerId(0);
        };
        WorkerId(self.spread.worker(source, destination, Part::Nothing))
    }

    /// The owner of a packet: its flow's; a fragment's, until it is part of a datagram, by its addresses. What else is in the flow's key (tenant,
    /// link, tunnel, VLANs) is left out: two flows of one owner do no harm.
    pub(crate) fn of_packet(&self, packet: &Decoded) -> WorkerId {
        let (Some(source), Some(destination)) = (packet.src(), packet.dst()) else { return WorkerId(0) };
        let (source, destination, ports) = match packet.about() {
            _ if packet.is_fragment() => return self.of_fragments(packet),
            // The flow that an ICMP error is about has its owner, whoever sent the error.
            Some(quoted) => (quoted.src, quoted.dst, quoted.ports),
            None => (source, destination, packet.ports()),
        };
        let part = ports.map_or(Part::Nothing, |(a, b)| Part::Ports(a, b));
        WorkerId(self.spread.worker(source, destination, part))
    }
}

/// The packets of a frame, or of a datagram that was put together from one of them.
#[derive(Default)]
struct Layer {
    /// Empty for the frame itself, whose bytes stand elsewhere.
    datagram: Vec<u8>,
    output: DecodeOutput,
    /// Packets that are still to be handled: those below this index.
    left: usize,
    /// The packet in hand is a fragment and has been put to its datagram.
    fragment_done: bool,
    /// It must not go on.
    refused: Option<Reason>,
    /// What is told of the packets around: of the layer as a whole, and of a packet in another one of it.
    outermost: Option<Around>,
    first: Option<Around>,
}

impl Layer {
    /// Begins with the packets of `output`.
    fn begin(&mut self, outermost: Option<Around>, number: Option<u64>) {
        self.left = self.output.packets().len();
        (self.fragment_done, self.refused) = (false, None);
        self.outermost = outermost;
        self.first = outermost.or_else(|| Around::of(self.output.packets().first()?, number));
    }
}

/// How far a frame has got.
#[derive(Default)]
pub(super) struct Walk {
    layers: Vec<Layer>,
    /// Used layers, for their memory.
    spare: Vec<Layer>,
    pub(super) decision: Decision,
    /// The change that the frame needs before it may leave: travels with it.
    pub(super) rewrite: Option<Rewrite>,
    /// Who keeps the frame's fragments, once it has met one, and the datagrams that they were put to.
    keeper: Option<WorkerId>,
    pub(super) joined: Joined,
    /// Some packet was handled.
    begun: bool,
    /// The generation of the packets that other workers have handled.
    chains: Option<Arc<Chains>>,
}

/// Where a walk stopped.
pub(super) enum Stop {
    /// All packets are handled.
    Done,
    /// The next packet is this worker's.
    At(WorkerId),
}

impl Walk {
    /// Begins with what was decoded of a frame; the memory that `output` gets in exchange can be used again.
    pub(super) fn begin(&mut self, output: &mut DecodeOutput, number: Option<u64>) {
        while let Some(layer) = self.layers.pop() {
            self.spare.push(layer);
        }
        self.decision = Decision::CONTINUE;
        self.rewrite = None;
        self.begun = false;
        (self.keeper, self.joined) = (None, Joined::default());
        self.chains = None;
        let mut layer = self.spare.pop().unwrap_or_default();
        layer.datagram.clear();
        core::mem::swap(&mut layer.output, output);
        layer.begin(None, number);
        self.layers.push(layer);
    }

    /// Handles packets until one belongs to somebody else, all in the generation of the first.
    pub(super) fn run(
        &mut self,
        me: WorkerId,
        owners: &Owners,
        worker: &mut Worker,
        frame: &Frame<'_>,
        recorder: &mut dyn Recorder,
    ) -> Stop {
        let stop = match self.chains.clone() {
            Some(chains) => {
                worker.in_generation(&chains, |worker| self.go(me, owners, worker, frame, recorder))
            }
            None => self.go(me, owners, worker, frame, recorder),
        };
        match stop {
            // Nobody is to be kept from freeing it by a parcel that is empty.
            Stop::Done => self.chains = None,
            Stop::At(_) if self.begun && self.chains.is_none() => {
                self.chains = Some(Arc::clone(worker.chains()))
            }
            Stop::At(_) => {}
        }
        stop
    }

    fn go(
        &mut self,
        me: WorkerId,
        owners: &Owners,
        worker: &mut Worker,
        frame: &Frame<'_>,
        recorder: &mut dyn Recorder,
    ) -> Stop {
        loop {
            let depth = self.layers.len();
            let keeper = self.fragment_owner(owners);
            let Some(layer) = self.layers.last_mut() else {
                // Who keeps its fragments settles it.
                let keeper = self.keeper.filter(|keeper| *keeper != me && !self.joined.is_empty());
                return keeper.map_or(Stop::Done, Stop::At);
            };
            let Some(index) = layer.left.checked_sub(1) else {
                self.spare.extend(self.layers.pop());
                continue;
            };
            let bytes = if depth == 1 { frame.bytes } else { layer.datagram.as_slice() };
            let Some(packet) = layer.output.packets_mut().get_mut(index) else {
                layer.left = index;
                continue;
            };
            if packet.is_fragment() && !layer.fragment_done && depth <= usize::from(MAX_DEPTH) {
                if keeper != me {
                    return Stop::At(keeper);
                }
                self.keeper = Some(me);
                let mut inner = self.spare.pop().unwrap_or_default();
                let fragmented =
                    worker.defragment(frame, bytes, packet, &mut inner.datagram, &mut self.joined);
                layer.fragment_done = true;
                if let Fragmented::Refused(reason) = fragmented {
                    layer.refused = Some(reason);
                }
                if fragmented == Fragmented::Whole {
                    worker.intake.decode_datagram(packet, &inner.datagram, &mut inner.output);
                    inner.begin(layer.outermost.or_else(|| Around::of(packet, frame.number)), frame.number);
                    self.layers.push(inner);
                } else {
                    self.spare.push(inner);
                }
                continue;
            }
            let owner = if packet.is_fragment() { keeper } else { owners.of_packet(packet) };
            if owner != me {
                return Stop::At(owner);
            }
            // What became of a fragment was said when it was put to its datagram.
            if !layer.fragment_done {
                layer.refused = refused_as_it_is(&worker.settings, packet);
            }
            let place = Place {
                made: depth > 1 || packet.recursion > 0,
                around: if index > 0 { layer.first.as_ref() } else { layer.outermost.as_ref() },
                inner_refused: !self.decision.verdict.forwards(),
                refused: layer.refused.take(),
            };
            self.begun = true;
            let decision = worker.packet(frame, bytes, packet, &place, recorder);
            self.decision = self.decision.strictest(decision);
            self.rewrite = worker.take_rewrite().or(self.rewrite.take());
            layer.left = index;
            layer.fragment_done = false;
        }
    }
}

impl Walk {
    /// Who keeps fragments of the frame, if it has met any.
    pub(super) const fn keeper(&self) -> Option<WorkerId> {
        self.keeper
    }

    /// Who keeps the fragments of this frame, if there are any.
    fn fragment_owner(&self, owners: &Owners) -> WorkerId {
        let outermost = self.layers.first().and_then(|layer| layer.output.outer());
        outermost.map_or(WorkerId(0), |packet| owners.of_fragments(packet))
    }
}
