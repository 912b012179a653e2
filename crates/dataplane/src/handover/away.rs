// SPDX-License-Identifier: Apache-2.0
//! The override table of a home: the flows of this home that other workers own, or that are moving, by their
//! whole key (tenant, link, tunnel and VLANs included). Only the home reads the table, so it needs no lock;
//! while no flow is away, a packet costs one check of the table's length.

use crate::worker::{Frame, Worker};
use bartizan_base::WorkerId;
use bartizan_flow::FlowKey;
use bartizan_packet::Decoded;
use std::collections::{HashMap, VecDeque};

/// Most flows of one worker that are with others at a time.
pub const AWAY_MAX: usize = 1024;

/// Progress of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveState {
    /// The flow was sent and has not arrived: its packets are held by the home.
    Going,
    /// The flow has arrived: its packets are handed on.
    There,
    /// The flow was recalled; it goes on to another worker, or stays at home (`None`). The home holds its
    /// packets.
    Coming(Option<WorkerId>),
}

/// Location of a flow that is not at home. `P`: the packets held for it.
pub(super) struct Stay<P> {
    pub(super) at: WorkerId,
    pub(super) state: MoveState,
    /// Packets sent to the flow's worker; each has its number, from 1.
    pub(super) sent: u64,
    /// Held packets in the order of their arrival.
    pub(super) held: VecDeque<P>,
}

/// The table; see the module.
pub(super) struct Away<P> {
    flows: HashMap<FlowKey, Stay<P>>,
}

impl<P> Default for Away<P> {
    fn default() -> Self {
        Away { flows: HashMap::new() }
    }
}

impl<P> Away<P> {
    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &FlowKey> {
        self.flows.keys()
    }

    pub(super) fn get_mut(&mut self, key: &FlowKey) -> Option<&mut Stay<P>> {
        self.flows.get_mut(key)
    }

    /// Notes that a flow was sent to a worker.
    pub(super) fn note_sent(&mut self, key: FlowKey, at: WorkerId) {
        self.flows.insert(key, Stay { at, state: MoveState::Going, sent: 0, held: VecDeque::new() });
    }

    /// Notes that a flow is at home again, or has ended. Returns the packets held for it.
    pub(super) fn is_back(&mut self, key: &FlowKey) -> VecDeque<P> {
        self.flows.remove(key).map(|stay| stay.held).unwrap_or_default()
    }

    /// The key of a packet's flow, if this worker is its home and the flow is away. An ICMP error follows the
    /// flow that it quotes.
    #[inline]
    pub(super) fn key_of(&self, worker: &Worker, frame: &Frame<'_>, packet: &Decoded) -> Option<FlowKey> {
        if self.flows.is_empty() || !packet.can_have_flow() {
            return None;
        }
        moved_key(worker, frame, packet, |key| self.flows.contains_key(key))
    }
}

/// The key by which a packet's flow is in a table of moved flows, if `is_moved` has it.
pub(crate) fn moved_key(
    worker: &Worker,
    frame: &Frame<'_>,
    packet: &Decoded,
    is_moved: impl Fn(&FlowKey) -> bool,
) -> Option<FlowKey> {
    worker.moved_key(frame, packet).filter(is_moved)
}
