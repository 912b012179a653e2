// SPDX-License-Identifier: Apache-2.0
//! The override table of a home: flows of its that are with other workers, or on their way, by their whole
//! key (tenant, link, tunnel and VLANs included). It is the home's own and read by nobody else, so it needs
//! no lock; as long as no flow is away, a packet costs one look at its length.

use crate::worker::{Frame, Worker};
use bartizan_base::WorkerId;
use bartizan_flow::FlowKey;
use bartizan_packet::Decoded;
use std::collections::{HashMap, VecDeque};

/// Flows of one worker that are with others at one time.
pub const AWAY_MAX: usize = 1024;

/// How far a move has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The flow was sent, and has not arrived: its packets wait here.
    Going,
    /// It is there: its packets are handed on.
    There,
    /// It was asked for; it goes on to another worker, or stays here. Its packets wait here.
    Coming(Option<WorkerId>),
}

/// Where a flow is that is not at home. `P`: what waits for it.
pub(super) struct Stay<P> {
    pub(super) at: WorkerId,
    pub(super) state: State,
    /// Packets sent to it: each has its number, from 1.
    pub(super) sent: u64,
    /// Packets in the order in which they came here.
    pub(super) held: VecDeque<P>,
}

/// See the module.
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

    /// A flow was sent to a worker.
    pub(super) fn goes(&mut self, key: FlowKey, at: WorkerId) {
        self.flows.insert(key, Stay { at, state: State::Going, sent: 0, held: VecDeque::new() });
    }

    /// A flow is at home again, or has ended. What waited for it.
    pub(super) fn is_back(&mut self, key: &FlowKey) -> VecDeque<P> {
        self.flows.remove(key).map(|stay| stay.held).unwrap_or_default()
    }

    /// The flow of a packet that is at home here, if it is away. An ICMP error goes where the flow is that it
    /// is about.
    #[inline]
    pub(super) fn key_of(&self, worker: &Worker, frame: &Frame<'_>, packet: &Decoded) -> Option<FlowKey> {
        if self.flows.is_empty() || !packet.can_have_flow() {
            return None;
        }
        moved_key(worker, frame, packet, |key| self.flows.contains_key(key))
    }
}

/// The key by which a packet is looked for among flows that were moved, if `is_moved` knows it.
pub(crate) fn moved_key(
    worker: &Worker,
    frame: &Frame<'_>,
    packet: &Decoded,
    is_moved: impl Fn(&FlowKey) -> bool,
) -> Option<FlowKey> {
    worker.moved_key(frame, packet).filter(is_moved)
}
