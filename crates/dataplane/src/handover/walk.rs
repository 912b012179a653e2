// SPDX-License-Identifier: Apache-2.0
//! Who owns a packet, and the walk of a frame from owner to owner.

use crate::chain::Chains;
use crate::fragment::{Fragmented, defragment, permit_datagram, refuse_datagram};
use crate::normaliser::Rewrite;
use crate::packet::Place;
use crate::record::{Around, Recorder};
use crate::worker::{Frame, MAX_DEPTH, Worker, around};
use bartizan_base::spread::Part;
use bartizan_base::{Decision, Reason, Spread, Verdict, WorkerId};
use bartizan_packet::{DecodeOutput, Decoded, PacketView};
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

    /// The owner of a packet: its flow's; a fragment's, until it is part of a datagram, by its addresses. What else is in the flow's key (tenant,
    /// link, tunnel, VLANs) is left out: two flows of one owner do no harm.
    pub(crate) fn of_packet(&self, packet: &Decoded) -> WorkerId {
        let (Some(source), Some(destination)) = (packet.src(), packet.dst()) else { return WorkerId(0) };
        let (source, destination, ports) = match packet.about() {
            _ if packet.is_fragment() => (source, destination, None),
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
    /// Its datagram is refused until other workers have decided on it.
    suspended: bool,
    /// What is told of the packets around: of the layer as a whole, and of a packet in another one of it.
    outermost: Option<Around>,
    first: Option<Around>,
}

impl Layer {
    /// Begins with the packets of `output`.
    fn begin(&mut self, outermost: Option<Around>, number: Option<u64>) {
        self.left = self.output.packets().len();
        (self.fragment_done, self.refused, self.suspended) = (false, None, false);
        self.outermost = outermost;
        self.first = outermost.or_else(|| around(self.output.packets().first()?, number));
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
            let Some(layer) = self.layers.last_mut() else { return Stop::Done };
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
                let owner = owners.of_packet(packet);
                if owner != me {
                    return Stop::At(owner);
                }
                let mut inner = self.spare.pop().unwrap_or_default();
                let fragmented = defragment(worker, frame, bytes, packet, &mut inner.datagram);
                layer.fragment_done = true;
                if let Fragmented::Refused(reason) = fragmented {
                    layer.refused = Some(reason);
                }
                if fragmented == Fragmented::Whole {
                    decode_datagram(worker, packet, &inner.datagram, &mut inner.output);
                    // While others decide, nothing of it that comes again may go past them.
                    layer.suspended = inner.output.packets().iter().any(|p| owners.of_packet(p) != me);
                    if layer.suspended {
                        refuse_datagram(worker, frame, &PacketView::new(bytes, packet));
                    }
                    inner.begin(layer.outermost.or_else(|| around(packet, frame.number)), frame.number);
                    self.layers.push(inner);
                } else {
                    self.spare.push(inner);
                }
                continue;
            }
            let owner = owners.of_packet(packet);
            if owner != me {
                return Stop::At(owner);
            }
            if packet.is_fragment() && !layer.fragment_done && worker.settings.prevention {
                layer.refused = Some(Reason::Defrag);
            }
            let place = Place {
                made: depth > 1 || packet.recursion > 0,
                around: if index > 0 { layer.first } else { layer.outermost },
                inner_refused: !self.decision.verdict.forwards(),
                refused: layer.refused.take(),
            };
            if core::mem::take(&mut layer.suspended) && !place.inner_refused {
                permit_datagram(worker, frame, &PacketView::new(bytes, packet));
            }
            self.begun = true;
            let decision = worker.packet(frame, bytes, packet, place, recorder);
            self.decision = self.decision.strictest(decision);
            self.rewrite = worker.take_rewrite().or(self.rewrite.take());
            layer.left = index;
            layer.fragment_done = false;
        }
    }
}

/// Decodes a datagram that has been put together.
pub(crate) fn decode_datagram(
    worker: &mut Worker,
    fragment: &Decoded,
    datagram: &[u8],
    output: &mut DecodeOutput,
) {
    worker.decoder.decode_reassembled(fragment, datagram, output);
}

/// Counts what became of a frame, and gives what is done with it: in detection every frame goes on.
pub(crate) fn count_decision(worker: &mut Worker, decision: &Decision) -> Decision {
    worker.counters.rejected += u64::from(decision.verdict == Verdict::Reject);
    let acts = worker.settings.prevention;
    match (decision.verdict.forwards(), decision.reason) {
        (false, Some(reason)) => {
            if let Some(count) = worker.counters.refused.get_mut(reason as usize) {
                *count += 1;
            }
            worker.counters.let_go += u64::from(!acts);
        }
        _ => worker.counters.forwarded += 1,
    }
    if acts { *decision } else { Decision::CONTINUE }
}
