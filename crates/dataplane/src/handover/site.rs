// SPDX-License-Identifier: Apache-2.0
//! The walk of a frame from owner to owner.

use super::away::Away;
use super::{Owners, Parcel};
use crate::walk::{At, Stop, Visitor, Walk};
use crate::worker::{Frame, Handler, Worker};
use bartizan_base::{Decision, WorkerId};
use bartizan_flow::FlowKey;
use bartizan_packet::{DecodeOutput, Decoded};
use bartizan_stages::chain::Chains;
use bartizan_stages::frame::Place;
use bartizan_stages::guests::Guest;
use bartizan_stages::intake::fragment::Fragmented;
use bartizan_stages::intake::joined::Joined;
use bartizan_stages::normaliser::Rewrite;
use bartizan_stages::record::Recorder;
use bartizan_stages::settings::EngineSettings;
use std::sync::Arc;

/// A packet on its way from its flow's home to where the flow is.
pub(super) struct Directed {
    pub(super) key: FlowKey,
    pub(super) guest: Guest,
}

/// A walk that several workers go on with.
#[derive(Default)]
pub(super) struct Journey {
    pub(super) walk: Walk,
    /// The generation of the packets that other workers have handled, or in which a flow's home has looked at
    /// the next one.
    chains: Option<Arc<Chains>>,
    /// The next packet was sent on by its flow's home: its flow is where the frame goes now.
    pub(super) directed: Option<Directed>,
}

/// Where a walk is: a worker, and what it knows of who owns what.
pub(super) struct Site<'s> {
    pub(super) me: WorkerId,
    pub(super) owners: &'s Owners,
    pub(super) away: &'s Away<Box<Parcel>>,
}

/// A worker that handles the packets of a frame that it owns.
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

    fn leads_to(&self, frame: &Frame<'_>, packet: &Decoded, kept: bool) -> Option<Stop> {
        // What its flow's home has sent here is handled here.
        if self.directed.is_some() || kept {
            return None;
        }
        let Site { me, owners, away } = self.site;
        let owner = owners.of_packet(frame.link, packet);
        if owner != *me {
            return Some(Stop::At(owner));
        }
        away.key_of(self.handler.worker, frame, packet).map(Stop::Moved)
    }

    fn defragment(
        &mut self,
        at: At<'_>,
        packet: &mut Decoded,
        datagram: (&mut Vec<u8>, &mut DecodeOutput),
        joined: &mut Joined,
    ) -> Fragmented {
        self.handler.defragment(at, packet, datagram, joined)
    }

    fn packet(&mut self, at: At<'_>, packet: &Decoded, place: &Place<'_>) -> (Decision, Option<Rewrite>) {
        let handled = self.handler.packet(at, packet, place);
        if let Some(Directed { key, guest }) = self.directed.take() {
            self.handler.worker.note_guest(&key, guest);
        }
        handled
    }
}

impl Journey {
    /// Begins with what was decoded of a frame; the memory that `output` gets in exchange can be used again.
    pub(super) fn begin(&mut self, output: &mut DecodeOutput, number: Option<u64>) {
        (self.chains, self.directed) = (None, None);
        self.walk.begin(output, number);
    }

    /// Handles packets until one belongs to somebody else, all in the generation of the first.
    pub(super) fn run(
        &mut self,
        site: &Site<'_>,
        worker: &mut Worker,
        frame: &Frame<'_>,
        recorder: &mut dyn Recorder,
    ) -> Stop {
        let (walk, directed) = (&mut self.walk, self.directed.take());
        let go = |worker: &mut Worker| {
            let handler = Handler { worker, recorder };
            walk.go(site.me, &mut Owner { site, handler, directed }, frame)
        };
        let stop = match self.chains.clone() {
            Some(chains) => worker.in_generation(&chains, go),
            None => go(worker),
        };
        match stop {
            // Nobody is to be kept from freeing it by a parcel that is empty.
            Stop::Done => self.chains = None,
            Stop::At(_) if self.walk.has_begun() && self.chains.is_none() => {
                self.chains = Some(Arc::clone(worker.chains()))
            }
            Stop::At(_) => {}
            // Whose flow it is was asked in this generation.
            Stop::Moved(_) => {
                self.chains.get_or_insert_with(|| Arc::clone(worker.chains()));
            }
        }
        stop
    }
}
