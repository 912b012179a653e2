// SPDX-License-Identifier: Apache-2.0
//! Who owns a packet, and the walk of a frame from owner to owner.

use crate::identity::flow_key;
use crate::normaliser::Rewrite;
use crate::packet::defragment;
use crate::record::Recorder;
use crate::worker::{Frame, Worker};
use bartizan_base::{Decision, WorkerId};
use bartizan_flow::{FlowHash, FlowHasher};
use bartizan_packet::{DecodeOutput, Decoded, Network};
use core::net::IpAddr;

/// Datagrams inside datagrams that are put together at most: as in [`Worker`].
pub(crate) const MAX_DEPTH: u8 = 4;

/// Says who owns what. The same in every worker of an instance.
#[derive(Clone, Copy, Debug)]
pub struct Owners {
    hasher: FlowHasher,
    workers: u16,
}

impl Owners {
    /// For so many workers, with the instance's secret seed.
    #[must_use]
    pub fn new(seed: [u64; 2], workers: u16) -> Self {
        Owners { hasher: FlowHasher::new(seed), workers: workers.max(1) }
    }

    /// Number of workers.
    #[must_use]
    pub const fn workers(&self) -> u16 {
        self.workers
    }

    /// The owner of a packet: its flow's, or one by its addresses if it has none.
    pub(crate) fn of_packet(&self, worker: &Worker, frame: &Frame<'_>, packet: &Decoded) -> WorkerId {
        if packet.wants_flow()
            && !packet.is_invalid()
            && let Some(key) = flow_key(worker, frame, packet)
        {
            return WorkerId(self.hasher.hash(&key).owner(self.workers));
        }
        self.of_fragment(worker, frame, packet)
    }

    /// The owner of a fragment until it is part of a datagram: by tenant, link, addresses and id.
    pub(crate) fn of_fragment(&self, worker: &Worker, frame: &Frame<'_>, packet: &Decoded) -> WorkerId {
        let id = match &packet.network {
            Network::Ipv4(ip) => u32::from(ip.id),
            Network::Ipv6(ip) => ip.fragment.map_or(0, |part| part.id),
            _ => 0,
        };
        let [a, b] = address_words(packet.src());
        let [c, d] = address_words(packet.dst());
        let scope = u64::from(worker.tenant_of(frame, packet).0) | u64::from(frame.link.0) << 16;
        // What the flow's key has beyond these is left out: two datagrams of one owner do no harm.
        let words = [a, b, c, d, scope, u64::from(id), 0];
        WorkerId(FlowHash(self.hasher.hash_words(&words)).owner(self.workers))
    }
}

fn address_words(address: Option<IpAddr>) -> [u64; 2] {
    let number = match address {
        Some(IpAddr::V4(v4)) => u128::from(u32::from(v4)),
        Some(IpAddr::V6(v6)) => u128::from(v6),
        None => 0,
    };
    [(number >> 64) as u64, number as u64]
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
    pub(super) fn begin(&mut self, output: &mut DecodeOutput) {
        while let Some(layer) = self.layers.pop() {
            self.spare.push(layer);
        }
        self.decision = Decision::CONTINUE;
        self.rewrite = None;
        let mut layer = self.spare.pop().unwrap_or_default();
        layer.datagram.clear();
        layer.fragment_done = false;
        core::mem::swap(&mut layer.output, output);
        layer.left = layer.output.packets().len();
        self.layers.push(layer);
    }

    /// Handles packets until one belongs to somebody else.
    pub(super) fn run(
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
                let owner = owners.of_fragment(worker, frame, packet);
                if owner != me {
                    return Stop::At(owner);
                }
                let mut inner = self.spare.pop().unwrap_or_default();
                let whole = defragment(worker, frame, bytes, packet, &mut inner.datagram);
                layer.fragment_done = true;
                if whole {
                    decode_datagram(worker, packet, &inner.datagram, &mut inner.output);
                    inner.left = inner.output.packets().len();
                    inner.fragment_done = false;
                    self.layers.push(inner);
                } else {
                    self.spare.push(inner);
                }
                continue;
            }
            let owner = owners.of_packet(worker, frame, packet);
            if owner != me {
                return Stop::At(owner);
            }
            let made = depth > 1 || packet.recursion > 0;
            let decision = worker.packet(frame, bytes, packet, made, recorder);
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

/// Counts what became of a frame, as [`Worker::frame`] does.
pub(crate) fn count_decision(worker: &mut Worker, decision: &Decision) {
    match (decision.verdict.forwards(), decision.reason) {
        (false, Some(reason)) => {
            if let Some(count) = worker.counters.refused.get_mut(reason as usize) {
                *count += 1;
            }
        }
        _ => worker.counters.forwarded += 1,
    }
}
