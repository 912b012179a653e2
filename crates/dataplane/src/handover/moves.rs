// SPDX-License-Identifier: Apache-2.0
//! Moving flows between stations. docs/design/0016-moving-flows.md argues for what stands here.
//!
//! A flow's *home* is the worker that the hash of its addresses and ports chooses. All its packets come to
//! its home first, wherever the flow is: only the home knows ([`Away`]), and nobody asks anybody else.
//! Everything that is said of a move goes through the rings in which frames go, so it keeps its place among
//! them:
//!
//! | home says | to | and then |
//! |---|---|---|
//! | `Flow`: take it | the guest's worker | holds the flow's packets |
//! | `Recall`: give it back | the guest's worker | holds the flow's packets |
//!
//! | the guest's worker answers | when | and home |
//! |---|---|---|
//! | `Arrived` | it has taken it | hands on what it held, and what comes |
//! | `Back` | it has no room, or was asked | takes it in, or sends it on; then what it held |
//! | `Stays` | it cannot give it | hands on what it held, and what comes |
//! | `Ended` with the number of the last packet | nothing is there of the flow any more | forgets that it was away, unless it has sent a later packet |
//!
//! Every `Flow` and `Recall` has one answer; an answer that finds a ring full waits (`answers`). Where a move
//! cannot begin, because a table or a ring is full, it is refused and counted; nothing has happened then.

use super::away::{AWAY_MAX, State};
use super::site::Directed;
use super::{Decided, Parcel, Sent, Station};
use bartizan_base::{Decision, FlowId, WorkerId};
use bartizan_flow::FlowKey;
use bartizan_stages::guests::{Guest, NotMoved};
use bartizan_stages::moving::MovedFlow;
use bartizan_stages::record::Recorder;
use std::collections::VecDeque;

impl Station {
    /// Moves a flow that is at home here ([`Owners::home`](super::Owners::home)) to another worker, or from
    /// there to yet another one, or home. To be called between batches. The move is over when `flow.moved` or
    /// `flow.moves_refused` has counted it; its packets wait until then.
    ///
    /// # Errors
    /// The move does not begin; counted as refused.
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
                State::There if at == to => return Err(NotMoved::There),
                State::There => {}
                State::Going | State::Coming(_) => return Err(NotMoved::UnderWay),
            }
            self.say(at, Sent::Recall(Box::new(*key))).map_err(|_| NotMoved::Ring)?;
            if let Some(stay) = self.away.get_mut(key) {
                stay.state = State::Coming(Some(to).filter(|to| *to != self.me));
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
            let flow = self.worker.give(id, true)?;
            if let Err(Sent::Flow(flow)) = self.say(to, Sent::Flow(flow)) {
                // Ruled out, as there was room; handled so that the flow is not lost.
                self.is_home(flow);
                return Err(NotMoved::Ring);
            }
            self.away.goes(*key, to);
        }
        self.ledger.move_begins(self.me);
        Ok(())
    }

    /// Moves one of the flows that are at home here, which and where to by chance: for tests. Allocates.
    ///
    /// # Errors
    /// As [`Station::move_flow`].
    pub fn move_at_random(&mut self, random: u64) -> Result<(), NotMoved> {
        let at_home = |key: &FlowKey| self.owners.home(key) == Some(self.me);
        let flows = self.worker.flows();
        let mut keys: Vec<FlowKey> = flows.iter().map(|(_, entry)| *entry.key()).filter(at_home).collect();
        keys.extend(self.away.keys());
        // A map has no order that a seed could count on.
        keys.sort_unstable_by_key(|key| flows.hash(key).0);
        let index = (random as usize).checked_rem(keys.len()).ok_or(NotMoved::NoFlow)?;
        let to = WorkerId(((random >> 32) % u64::from(self.owners.workers())) as u16);
        let key = keys.get(index).copied().ok_or(NotMoved::NoFlow)?;
        self.move_flow(&key, to)
    }

    /// A packet's flow is not here though its home is: hands the packet on, or holds it. Gives who has it
    /// now.
    pub(super) fn follow(
        &mut self,
        mut parcel: Box<Parcel>,
        key: &FlowKey,
        recorder: &mut dyn Recorder,
    ) -> Result<WorkerId, Decision> {
        let Some(stay) = self.away.get_mut(key) else {
            // Ruled out: the walk has just seen it there.
            self.lose(parcel, recorder);
            return Err(self.refuse());
        };
        if stay.state != State::There {
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

    /// What another station says about a move.
    pub(super) fn hears(
        &mut self,
        from: WorkerId,
        sent: Sent,
        recorder: &mut dyn Recorder,
        decided: &mut Decided<'_>,
    ) {
        match sent {
            Sent::Frame(parcel) => self.resume(parcel, recorder, decided),
            Sent::Flow(flow) => {
                let key = *flow.key();
                let answer = match self.worker.adopt(flow) {
                    Ok(_) => {
                        self.worker.guests_mut().insert(key, Guest { home: from, number: 0 });
                        Sent::Arrived(Box::new(key))
                    }
                    Err(flow) => Sent::Back(flow),
                };
                self.answers.push_back((from, answer));
            }
            Sent::Recall(key) => self.is_recalled(from, key),
            Sent::Arrived(key) => {
                self.counters.moved += 1;
                self.stays(&key, recorder, decided);
            }
            Sent::Stays(key) => {
                self.counters.moves_refused += 1;
                self.stays(&key, recorder, decided);
            }
            Sent::Back(flow) => self.comes_back(flow, recorder, decided),
            Sent::Ended(what) => {
                let (key, number) = *what;
                self.has_ended(&key, number, recorder, decided);
            }
        }
    }

    /// Home asks for its flow.
    fn is_recalled(&mut self, home: WorkerId, key: Box<FlowKey>) {
        // It has ended, and that is on its way home: behind the last packet, so home takes it for the answer.
        let Some(guest) = self.worker.guests_mut().remove(&key) else { return };
        let answer = match self.worker.flow_of_key(&key).map(|id| self.give_back(id)) {
            None => Sent::Ended(Box::new((*key, guest.number))),
            Some(Ok(flow)) => Sent::Back(flow),
            Some(Err(_)) => {
                self.worker.guests_mut().insert(*key, guest);
                Sent::Stays(key)
            }
        };
        self.answers.push_back((home, answer));
    }

    fn give_back(&mut self, id: FlowId) -> Result<Box<MovedFlow>, NotMoved> {
        self.worker.give(id, false)
    }

    /// The flow is with its guest's worker: what waited for that goes there.
    fn stays(&mut self, key: &FlowKey, recorder: &mut dyn Recorder, decided: &mut Decided<'_>) {
        let Some(stay) = self.away.get_mut(key) else { return };
        stay.state = State::There;
        let held = core::mem::take(&mut stay.held);
        self.ledger.move_ends(self.me);
        self.go_on(held, recorder, decided);
    }

    /// A flow has come back from a worker.
    fn comes_back(&mut self, flow: Box<MovedFlow>, recorder: &mut dyn Recorder, decided: &mut Decided<'_>) {
        let key = *flow.key();
        let state = self.away.get_mut(&key).map(|stay| stay.state);
        let mut home = Some(flow);
        if let Some(State::Coming(Some(to))) = state
            && let Some(flow) = home.take()
        {
            match self.say(to, Sent::Flow(flow)) {
                Ok(()) => {
                    if let Some(stay) = self.away.get_mut(&key) {
                        (stay.at, stay.state, stay.sent) = (to, State::Going, 0);
                    }
                    return;
                }
                Err(Sent::Flow(flow)) => home = Some(flow),
                Err(_) => {}
            }
        }
        // Refused there, or on its way from one to another; or it was to come.
        let wanted = state == Some(State::Coming(None));
        self.counters.moved += u64::from(wanted);
        self.counters.moves_refused += u64::from(!wanted);
        if let Some(flow) = home {
            self.is_home(flow);
        }
        let held = self.away.is_back(&key);
        self.ledger.move_ends(self.me);
        self.go_on(held, recorder, decided);
    }

    /// Takes a flow in whose room was kept.
    fn is_home(&mut self, flow: Box<MovedFlow>) {
        // No flow of its key can be here: its packets were handed on or held.
        let not_taken = self.worker.take_home(flow).is_err();
        self.worker.note_not_taken(not_taken);
    }

    /// A flow has ended that was away, as far as is known there.
    fn has_ended(
        &mut self,
        key: &FlowKey,
        number: u64,
        recorder: &mut dyn Recorder,
        decided: &mut Decided<'_>,
    ) {
        // A later packet is on its way there, and opens a flow there: that one's end will be told as well.
        let Some(stay) = self.away.get_mut(key).filter(|stay| stay.sent == number) else { return };
        if matches!(stay.state, State::Coming(_)) {
            self.counters.moves_refused += 1;
            self.ledger.move_ends(self.me);
        }
        let held = self.away.is_back(key);
        self.worker.let_room_go();
        self.go_on(held, recorder, decided);
    }

    /// Packets that waited, in the order in which they came here.
    fn go_on(&mut self, held: VecDeque<Box<Parcel>>, recorder: &mut dyn Recorder, decided: &mut Decided<'_>) {
        for parcel in held {
            self.resume(parcel, recorder, decided);
        }
    }

    /// Tells homes what they wait for, as far as rings have room.
    pub(super) fn answer(&mut self) {
        while let Some((key, guest)) = self.worker.next_ended_guest() {
            self.answers.push_back((guest.home, Sent::Ended(Box::new((key, guest.number)))));
        }
        // Each home hears its answers in their order: where one waits, those behind it do.
        let mut full: smallvec::SmallVec<[WorkerId; 8]> = smallvec::SmallVec::new();
        for _ in 0..self.answers.len() {
            let Some((to, answer)) = self.answers.pop_front() else { break };
            let not_said = if full.contains(&to) { Some(answer) } else { self.say(to, answer).err() };
            if let Some(answer) = not_said {
                full.push(to);
                self.answers.push_back((to, answer));
            }
        }
    }
}
