// SPDX-License-Identifier: Apache-2.0
//! Moves of flows between stations. docs/design/0016-moving-flows.md gives the reasons.
//!
//! A flow's *home* is the worker that the hash of its addresses and ports selects. All packets of the flow
//! reach its home first, wherever the flow is: only the home knows the owner ([`Away`]). All messages about a
//! move go through the rings of the frames, so their order with the frames is kept:
//!
//! | message of the home | to | effect at the home |
//! |---|---|---|
//! | `Flow`: take it | the guest's worker | holds the flow's packets |
//! | `Recall`: give it back | the guest's worker | holds the flow's packets |
//!
//! | answer of the guest's worker | condition | effect at the home |
//! |---|---|---|
//! | `Arrived` | the flow was taken | hands on the held packets and all later ones |
//! | `Back` | no room, or recalled | takes the flow, or sends it on; then continues the held packets |
//! | `Stays` | it cannot be given back | hands on the held packets and all later ones |
//! | `Ended` (number of the last packet) | the flow has ended | forgets the move unless it sent a later packet |
//!
//! Every `Flow` and `Recall` has one answer; an answer that finds a ring full is queued (`answers`). A move
//! that cannot begin, because a table or a ring is full, is refused and counted, without any effect.

use super::away::{AWAY_MAX, MoveState};
use super::site::Directed;
use super::{Decided, Parcel, Station, StationMessage};
use bartizan_base::{Decision, FlowId, WorkerId};
use bartizan_flow::FlowKey;
use bartizan_stages::guests::{Guest, NotMoved};
use bartizan_stages::moving::MovedFlow;
use bartizan_stages::record::Recorder;
use std::collections::VecDeque;

impl Station {
    /// Moves a flow whose home is here ([`Owners::home`](super::Owners::home)) to another worker, from there
    /// to yet another one, or home. Called between batches. The move is over when `flow.moved` or
    /// `flow.moves_refused` has counted it; the flow's packets are held until then.
    ///
    /// # Errors
    /// The move does not begin; it is counted as refused.
    pub fn move_flow(&mut self, key: &FlowKey, to: WorkerId) -> Result<(), NotMoved> {
        let begun = self.begin_move(key, to);
        self.counters.moves_refused += u64::from(begun.is_err());
        begun
    }

    fn begin_move(&mut self, key: &FlowKey, to: WorkerId) -> Result<(), NotMoved> {
        if self.closed {
            return Err(NotMoved::Ending);
        }
        if to.0 >= self.owners.workers() {
            return Err(NotMoved::NoWorker);
        }
        let home = self.owners.home(key).ok_or(NotMoved::Kind)?;
        if home != self.me {
            return Err(NotMoved::NotHome(home));
        }
        if let Some(stay) = self.away.get_mut(key) {
            let at = stay.at;
            match stay.state {
                MoveState::There if at == to => return Err(NotMoved::There),
                MoveState::There => {}
                MoveState::Going | MoveState::Coming(_) => return Err(NotMoved::UnderWay),
            }
            self.send_message(at, StationMessage::Recall(Box::new(*key))).map_err(|_| NotMoved::Ring)?;
            if let Some(stay) = self.away.get_mut(key) {
                stay.state = MoveState::Coming(Some(to).filter(|to| *to != self.me));
            }
        } else {
            let id = self.worker.flow_of_key(key).ok_or(NotMoved::NoFlow)?;
            if to == self.me {
                return Err(NotMoved::There);
            }
            if self.away.len() >= AWAY_MAX {
                return Err(NotMoved::Full);
            }
            if !self.has_ring_room(to) {
                return Err(NotMoved::Ring);
            }
            let flow = self.worker.release_flow(id, true)?;
            if let Err(StationMessage::Flow(flow)) = self.send_message(to, StationMessage::Flow(flow)) {
                // Unreachable, as there was room; handled so that the flow is not lost.
                self.is_home(flow);
                return Err(NotMoved::Ring);
            }
            self.away.note_sent(*key, to);
        }
        self.ledger.move_begins(self.me);
        Ok(())
    }

    /// Moves a random flow whose home is here to a random worker: for tests. Allocates.
    ///
    /// # Errors
    /// As [`Station::move_flow`].
    pub fn move_at_random(&mut self, random: u64) -> Result<(), NotMoved> {
        let at_home = |key: &FlowKey| self.owners.home(key) == Some(self.me);
        let flows = self.worker.flows();
        let mut keys: Vec<FlowKey> = flows.iter().map(|(_, entry)| *entry.key()).filter(at_home).collect();
        keys.extend(self.away.keys());
        // The order of a map is not reproducible from a seed.
        keys.sort_unstable_by_key(|key| flows.hash(key).0);
        let index = (random as usize).checked_rem(keys.len()).ok_or(NotMoved::NoFlow)?;
        let to = WorkerId(((random >> 32) % u64::from(self.owners.workers())) as u16);
        let key = keys.get(index).copied().ok_or(NotMoved::NoFlow)?;
        self.move_flow(&key, to)
    }

    /// Hands on, or holds, a packet whose home is here and whose flow is elsewhere. Returns the worker that
    /// has the packet afterwards.
    pub(super) fn follow(
        &mut self,
        mut parcel: Box<Parcel>,
        key: &FlowKey,
        recorder: &mut dyn Recorder,
    ) -> Result<WorkerId, Decision> {
        let Some(stay) = self.away.get_mut(key) else {
            // Unreachable: the walk has just seen the flow in the table.
            self.lose(parcel, recorder);
            return Err(self.refuse());
        };
        if stay.state != MoveState::There {
            stay.held.push_back(parcel);
            return Ok(self.me);
        }
        let (at, number) = (stay.at, stay.sent.saturating_add(1));
        parcel.journey.directed = Some(Directed { key: *key, guest: Guest { home: self.me, number } });
        self.hand_over(parcel, at, recorder)?;
        if let Some(stay) = self.away.get_mut(key) {
            stay.sent = number;
        }
        Ok(at)
    }

    /// Handles a message of another station about a move.
    pub(super) fn handle_message(
        &mut self,
        from: WorkerId,
        sent: StationMessage,
        recorder: &mut dyn Recorder,
        decided: &mut Decided<'_>,
    ) {
        match sent {
            StationMessage::Frame(parcel) => self.resume(parcel, recorder, decided),
            StationMessage::Flow(flow) => {
                let key = *flow.key();
                let answer = match self.worker.adopt(flow) {
                    Ok(_) => {
                        self.worker.guests_mut().insert(key, Guest { home: from, number: 0 });
                        StationMessage::Arrived(Box::new(key))
                    }
                    Err(flow) => StationMessage::Back(flow),
                };
                self.answers.push_back((from, answer));
            }
            StationMessage::Recall(key) => self.is_recalled(from, key),
            StationMessage::Arrived(key) => {
                self.counters.moved += 1;
                self.stays(&key, recorder, decided);
            }
            StationMessage::Stays(key) => {
                self.counters.moves_refused += 1;
                self.stays(&key, recorder, decided);
            }
            StationMessage::Back(flow) => self.accept_returned(flow, recorder, decided),
            StationMessage::Ended(what) => {
                let (key, number) = *what;
                self.has_ended(&key, number, recorder, decided);
            }
        }
    }

    /// Handles a recall: returns the flow to its home.
    fn is_recalled(&mut self, home: WorkerId, key: Box<FlowKey>) {
        // The flow has ended, and `Ended` is on its way home, after the last packet: home takes it for the
        // answer.
        let Some(guest) = self.worker.guests_mut().remove(&key) else { return };
        let answer = match self.worker.flow_of_key(&key).map(|id| self.release(id)) {
            None => StationMessage::Ended(Box::new((*key, guest.number))),
            Some(Ok(flow)) => StationMessage::Back(flow),
            Some(Err(_)) => {
                self.worker.guests_mut().insert(*key, guest);
                StationMessage::Stays(key)
            }
        };
        self.answers.push_back((home, answer));
    }

    fn release(&mut self, id: FlowId) -> Result<Box<MovedFlow>, NotMoved> {
        self.worker.release_flow(id, false)
    }

    /// The flow is with its new worker: hands on the packets held for it.
    fn stays(&mut self, key: &FlowKey, recorder: &mut dyn Recorder, decided: &mut Decided<'_>) {
        let Some(stay) = self.away.get_mut(key) else { return };
        stay.state = MoveState::There;
        let held = core::mem::take(&mut stay.held);
        self.ledger.move_ends(self.me);
        self.resume_held(held, recorder, decided);
    }

    /// Takes in a flow that another worker gave back.
    fn accept_returned(
        &mut self,
        flow: Box<MovedFlow>,
        recorder: &mut dyn Recorder,
        decided: &mut Decided<'_>,
    ) {
        let key = *flow.key();
        let state = self.away.get_mut(&key).map(|stay| stay.state);
        let mut home = Some(flow);
        if let Some(MoveState::Coming(Some(to))) = state
            && let Some(flow) = home.take()
        {
            match self.send_message(to, StationMessage::Flow(flow)) {
                Ok(()) => {
                    if let Some(stay) = self.away.get_mut(&key) {
                        (stay.at, stay.state, stay.sent) = (to, MoveState::Going, 0);
                    }
                    return;
                }
                Err(StationMessage::Flow(flow)) => home = Some(flow),
                Err(_) => {}
            }
        }
        // `wanted`: recalled home. Otherwise the new worker refused the flow, or the flow was on its way to
        // another one.
        let wanted = state == Some(MoveState::Coming(None));
        self.counters.moved += u64::from(wanted);
        self.counters.moves_refused += u64::from(!wanted);
        if let Some(flow) = home {
            self.is_home(flow);
        }
        let held = self.away.is_back(&key);
        self.ledger.move_ends(self.me);
        self.resume_held(held, recorder, decided);
    }

    /// Takes in a flow whose room was kept.
    fn is_home(&mut self, flow: Box<MovedFlow>) {
        // No flow with the key can be in the table: its packets were handed on or held.
        let not_taken = self.worker.readmit(flow).is_err();
        self.worker.note_not_taken(not_taken);
    }

    /// Handles `Ended` for a flow that was away.
    fn has_ended(
        &mut self,
        key: &FlowKey,
        number: u64,
        recorder: &mut dyn Recorder,
        decided: &mut Decided<'_>,
    ) {
        // A later packet is on its way and opens a flow with its new worker, whose end is reported as well.
        let Some(stay) = self.away.get_mut(key).filter(|stay| stay.sent == number) else { return };
        if matches!(stay.state, MoveState::Coming(_)) {
            self.counters.moves_refused += 1;
            self.ledger.move_ends(self.me);
        }
        let held = self.away.is_back(key);
        self.worker.release_room();
        self.resume_held(held, recorder, decided);
    }

    /// Continues held packets, in the order of their arrival.
    fn resume_held(
        &mut self,
        held: VecDeque<Box<Parcel>>,
        recorder: &mut dyn Recorder,
        decided: &mut Decided<'_>,
    ) {
        for parcel in held {
            self.resume(parcel, recorder, decided);
        }
    }

    /// Sends queued answers to homes, as far as rings have room.
    pub(super) fn answer(&mut self) {
        while let Some((key, guest)) = self.worker.next_ended_guest() {
            self.answers.push_back((guest.home, StationMessage::Ended(Box::new((key, guest.number)))));
        }
        // Each home receives its answers in order: if one waits, all later ones do.
        let mut full: smallvec::SmallVec<[WorkerId; 8]> = smallvec::SmallVec::new();
        for _ in 0..self.answers.len() {
            let Some((to, answer)) = self.answers.pop_front() else { break };
            let not_said =
                if full.contains(&to) { Some(answer) } else { self.send_message(to, answer).err() };
            if let Some(answer) = not_said {
                full.push(to);
                self.answers.push_back((to, answer));
            }
        }
    }
}
