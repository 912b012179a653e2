// SPDX-License-Identifier: Apache-2.0
//! Moves of flows between workers of a capture: at the beginning of a round, so that all packets of a flow up
//! to a round are handled by one worker and all later ones by another. The reader alone knows the owners
//! ([`FlowLocations`]); the workers concerned learn of a move with the round ([`Crossing`]).
//!
//! A worker gives all its leaving flows before it waits for an arriving one, and giving waits for no other
//! worker; so some worker always makes progress. Giving and adopting are separate steps in the order of turns
//! ([`bartizan_base::turns`]): a worker that waits for its turn to change shared state while it gives does
//! not wait for those that wait for its flows.

use super::patience::wait_until;
use crate::handover::AWAY_MAX;
use crate::handover::Owners;
use crate::handover::away::moved_key;
use crate::worker::{Frame, Worker};
use bartizan_base::WorkerId;
use bartizan_flow::FlowKey;
use bartizan_packet::Decoded;
use bartizan_stages::guests::{Chance, NotMoved};
use bartizan_stages::moving::MovedFlow;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most flows that move at random with a round, and the number of candidates.
const AT_RANDOM: usize = 4;

/// A move of a flow from one worker to another.
pub(super) struct Crossing {
    pub(super) key: FlowKey,
    pub(super) from: WorkerId,
    pub(super) to: WorkerId,
    /// Whether the flow goes home.
    pub(super) is_home: bool,
    flow: Mutex<Option<Box<MovedFlow>>>,
    given: AtomicBool,
}

impl Crossing {
    /// Deposits the flow, if it exists.
    pub(super) fn deposit(&self, flow: Option<Box<MovedFlow>>) {
        if let Ok(mut place) = self.flow.lock() {
            *place = flow;
        }
        self.given.store(true, Ordering::Release);
    }

    /// Waits for the flow. `is_gone`: the giving worker has failed. `None`: the flow does not exist.
    pub(super) fn take(&self, is_gone: impl Fn() -> bool) -> Option<Box<MovedFlow>> {
        wait_until(|| self.given.load(Ordering::Acquire) || is_gone());
        self.flow.lock().ok()?.take()
    }
}

/// Location of a flow that is not at home.
struct FlowLocation {
    at: WorkerId,
    /// The last round with a packet of the flow, or in which it moved.
    used: u64,
}

/// Locations of the flows that are not at home, kept by the reader, by their whole key.
#[derive(Default)]
pub(super) struct FlowLocations {
    flows: HashMap<FlowKey, FlowLocation>,
    /// The round that is being filled.
    round: u64,
    draws: Option<Draws>,
}

impl FlowLocations {
    /// The locations; with a seed, flows move at random.
    pub(super) fn by_chance(seed: Option<u64>) -> Self {
        let draws = seed.map(|seed| Draws { chance: Chance(seed), seen: 0, keys: Vec::new() });
        FlowLocations { draws, ..FlowLocations::default() }
    }

    /// The owner of a packet whose flow has the home `home`, and the flow's key if another worker has the
    /// flow.
    #[inline]
    pub(super) fn owner(
        &mut self,
        worker: &Worker,
        frame: &Frame<'_>,
        packet: &Decoded,
        home: WorkerId,
    ) -> (WorkerId, Option<FlowKey>) {
        if self.flows.is_empty() && self.draws.is_none() || packet.is_fragment() || !packet.can_have_flow() {
            return (home, None);
        }
        if let Some(draws) = &mut self.draws
            && packet.about().is_none()
            && let Some(key) = worker.own_key(frame, packet)
        {
            draws.see(key);
        }
        let key = moved_key(worker, frame, packet, |key| self.flows.contains_key(key));
        let Some(place) = key.and_then(|key| self.flows.get_mut(&key)) else { return (home, None) };
        place.used = self.round;
        (place.at, key)
    }

    /// Sets the round that is being filled.
    pub(super) fn begin_round(&mut self, round: u64) {
        self.round = round;
    }

    /// The random moves at the beginning of a round.
    pub(super) fn draw(&mut self, workers: u16) -> Vec<(FlowKey, WorkerId)> {
        self.draws.as_mut().map(|draws| draws.draw(workers)).unwrap_or_default()
    }

    /// Moves a flow to a worker, with the round that begins.
    pub(super) fn move_flow(
        &mut self,
        owners: &Owners,
        key: &FlowKey,
        to: WorkerId,
    ) -> Result<Crossing, NotMoved> {
        if to.0 >= owners.workers() {
            return Err(NotMoved::NoWorker);
        }
        let home = owners.home(key).ok_or(NotMoved::Kind)?;
        let from = self.flows.get(key).map_or(home, |place| place.at);
        let is_home = to == home;
        if from == to {
            return Err(NotMoved::There);
        }
        if is_home {
            self.flows.remove(key);
        } else if self.flows.len() >= AWAY_MAX && !self.flows.contains_key(key) {
            return Err(NotMoved::Full);
        } else {
            self.flows.insert(*key, FlowLocation { at: to, used: self.round });
        }
        let (flow, given) = (Mutex::new(None), AtomicBool::new(false));
        Ok(Crossing { key: *key, from, to, is_home, flow, given })
    }

    /// Notes that these flows, away from home, had ended at the end of a round: unless packets came since,
    /// later flows with the keys begin at home.
    pub(super) fn have_ended(&mut self, keys: &[FlowKey], round: u64) {
        for key in keys {
            if self.flows.get(key).is_some_and(|place| place.used <= round) {
                self.flows.remove(key);
            }
        }
    }
}

/// Chooses random flows of a round.
struct Draws {
    chance: Chance,
    seen: u64,
    keys: Vec<FlowKey>,
}

impl Draws {
    /// Samples a few flows among all packets, each packet with equal chance (reservoir sampling, Vitter
    /// 1985).
    fn see(&mut self, key: FlowKey) {
        self.seen += 1;
        if self.keys.len() < AT_RANDOM {
            self.keys.push(key);
            return;
        }
        let at = self.chance.draw() % self.seen;
        if let Some(place) = usize::try_from(at).ok().and_then(|at| self.keys.get_mut(at)) {
            *place = key;
        }
    }

    fn draw(&mut self, workers: u16) -> Vec<(FlowKey, WorkerId)> {
        self.seen = 0;
        let keys = core::mem::take(&mut self.keys);
        let to = |chance: u64| WorkerId((chance % u64::from(workers.max(1))) as u16);
        keys.into_iter().map(|key| (key, to(self.chance.draw() >> 8))).collect()
    }
}
