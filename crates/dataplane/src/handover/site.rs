// SPDX-License-Identifier: Apache-2.0
//! The walk of a frame from owner to owner.

use super::away::Away;
use super::{Owners, Parcel};
use crate::walk::{DatagramRoom, FramePosition, Visitor, Walk, WalkStop};
use crate::worker::{Frame, Handler, Worker};
use bartizan_base::{Decision, WorkerId};
use bartizan_flow::FlowKey;
use bartizan_packet::{DecodeOutput, Decoded};
use bartizan_stages::chain::Chains;
use bartizan_stages::frame::PacketPosition;
use bartizan_stages::guests::Guest;
use bartizan_stages::intake::fragment::Fragmented;
use bartizan_stages::intake::joined::Joined;
use bartizan_stages::normaliser::Rewrite;
use bartizan_stages::record::Recorder;
use bartizan_stages::settings::EngineSettings;
use std::sync::Arc;

/// A packet that its flow's home has sent on to the flow's worker.
pub(super) struct Directed {
    pub(super) key: FlowKey,
    pub(super) guest: Guest,
}

/// A frame's walk over several workers.
#[derive(Default)]
pub(super) struct Journey {
    pub(super) walk: Walk,
    /// The generation in which other workers have handled packets of the frame, or in which a flow's home has
    /// looked the next one up.
    chains: Option<Arc<Chains>>,
    /// Set when the next packet's home has sent the frame on to the worker that owns the flow.
    pub(super) directed: Option<Directed>,
}

/// Position of a walk: the worker, and its map of owners.
pub(super) struct Site<'s> {
    pub(super) me: WorkerId,
    pub(super) owners: &'s Owners,
    pub(super) away: &'s Away<Box<Parcel>>,
}

/// The visitor of a worker that handles the packets it owns.
struct Owner<'s> {
    site: &'s Site<'s>,
    handler: Handler<'s>,
    directed: Option<Directed>,
}

impl Visitor for Owner<'_> {
    fn settings(&self) -> &EngineSettings {
        self.handler.settings()
    }

    fn keeper(&self, frame: &Frame<'_>, outermost: Option<&Decoded>) -> Option<WorkerId> {
        Some(outermost.map_or(WorkerId(0), |packet| self.site.owners.of_fragments(frame.link, packet)))
    }

    fn stop_before(&self, frame: &Frame<'_>, packet: &Decoded, kept: bool) -> Option<WalkStop> {
        // A packet sent on by its flow's home is handled by this worker.
        if self.directed.is_some() || kept {
            return None;
        }
        let Site { me, owners, away } = self.site;
        let owner = owners.of_packet(frame.link, packet);
        if owner != *me {
            return Some(WalkStop::At(owner));
        }
        away.key_of(self.handler.worker, frame, packet).map(WalkStop::Moved)
    }

    fn defragment(
        &mut self,
        at: FramePosition<'_>,
        packet: &mut Decoded,
        datagram: DatagramRoom<'_>,
        joined: &mut Joined,
    ) -> Fragmented {
        self.handler.defragment(at, packet, datagram, joined)
    }

    fn packet(
        &mut self,
        at: FramePosition<'_>,
        packet: &Decoded,
        place: &PacketPosition<'_>,
    ) -> (Decision, Option<Rewrite>) {
        let handled = self.handler.packet(at, packet, place);
        if let Some(Directed { key, guest }) = self.directed.take() {
            self.handler.worker.note_guest(&key, guest);
        }
        handled
    }
}

impl Journey {
    /// Begins with the decoded packets of a frame; `output` receives memory in exchange that can be reused.
    pub(super) fn begin(&mut self, output: &mut DecodeOutput, number: Option<u64>) {
        (self.chains, self.directed) = (None, None);
        self.walk.begin(output, number);
    }

    /// Handles packets up to the first that another worker owns, all in the generation of the first packet.
    pub(super) fn run(
        &mut self,
        site: &Site<'_>,
        worker: &mut Worker,
        frame: &Frame<'_>,
        recorder: &mut dyn Recorder,
    ) -> WalkStop {
        let (walk, directed) = (&mut self.walk, self.directed.take());
        let go = |worker: &mut Worker| {
            let handler = Handler { worker, recorder };
            walk.run(site.me, &mut Owner { site, handler, directed }, frame)
        };
        let stop = match self.chains.clone() {
            Some(chains) => worker.in_generation(&chains, go),
            None => go(worker),
        };
        match stop {
            // An empty parcel must not keep the generation from being freed.
            WalkStop::Done => self.chains = None,
            WalkStop::At(_) if self.walk.has_begun() && self.chains.is_none() => {
                self.chains = Some(Arc::clone(worker.chains()))
            }
            WalkStop::At(_) => {}
            // The flow's key was determined in this generation.
            WalkStop::Moved(_) => {
                self.chains.get_or_insert_with(|| Arc::clone(worker.chains()));
            }
        }
        stop
    }
}
