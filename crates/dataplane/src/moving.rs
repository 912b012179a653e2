// SPDX-License-Identifier: Apache-2.0
//! A flow leaves a worker and comes to another one, with all that is kept of it: entry and TCP session, streams, application layer, what functions
//! remember, what it is counted with. Who may move what when, and how packets follow, is told in docs/design/0016-moving-flows.md; the protocol of
//! live workers is [`crate::handover`]'s, that of captures [`crate::workers`]'.
//!
//! Amounts that a worker *holds* (flows, sessions, buffers of streams, memory of application layers) go along: released here, charged there, so that
//! their sums over all workers stay exact. What a worker has *counted* (packets, flows made, flows ended, transactions) stays where it was counted;
//! what of a flow has been counted stands in the flow, so that nothing is counted twice. What functions keep of a flow is their own boxed state, plain
//! data without a word about the worker; what they keep for the worker stays with it.
//!
//! Not moved: flows that ever sank to a level below the host, and none while segments wait in a train.

use crate::flow_ext::FlowExt;
use crate::guests::Guest;
use crate::record::Recorder;
use crate::worker::Worker;
use bartizan_base::{FlowId, Timestamp};
use bartizan_flow::stream::StreamPair;
use bartizan_flow::table::moving::Moved;
use bartizan_flow::tcp::TcpSession;
use bartizan_flow::{EndReason, Find, FlowKey, FlowTable};

pub use crate::guests::{Chance, NotMoved};

/// A flow between two workers. Who has it gives it to one of them: it has not ended.
#[must_use = "who lets go of it loses a flow that has not ended"]
pub struct MovedFlow {
    flow: Moved<FlowExt>,
    /// Bytes of its application layer and of what functions remember.
    held: u64,
}

impl MovedFlow {
    /// Its identity.
    #[must_use]
    pub const fn key(&self) -> &FlowKey {
        self.flow.key()
    }
}

impl Worker {
    /// The flow of a key, whether its timeout has passed or not.
    pub(crate) fn flow_of_key(&self, key: &FlowKey) -> Option<FlowId> {
        // Before all timeouts.
        match self.flows.find(key, Timestamp::ZERO) {
            Find::Found { id, .. } | Find::Stale { id } => Some(id),
            Find::Missing => None,
        }
    }

    /// All flows by their place in the run: one that came from another worker stands last in the table, and may have begun first.
    pub(crate) fn flows_as_they_began(&self) -> Vec<FlowId> {
        let mut ids = self.flows.ids();
        ids.sort_by_key(|id| self.flows.get(*id).map_or(0, |flow| flow.ext.began));
        ids
    }

    /// Gives a flow away, to be called between batches; it is no matter of this worker's any more. `keeps_room`: it may come back
    /// ([`Worker::take_home`]).
    ///
    /// # Errors
    /// It cannot be moved (now).
    pub(crate) fn give(&mut self, id: FlowId, keeps_room: bool) -> Result<Box<MovedFlow>, NotMoved> {
        if self.train.is_waiting() {
            return Err(NotMoved::Waits);
        }
        self.flows.get(id).ok_or(NotMoved::NoFlow)?;
        let mut flow = self.flows.take(id, keeps_room)?;
        let of = flow.entry().tenant();
        let ext = &mut flow.entry_mut().ext;
        ext.session.leave(&mut self.stream_counters);
        if let Some(pair) = ext.streams.as_deref() {
            pair.leave(&mut self.budget);
        }
        let held = ext.memory.held.app;
        self.discharge_moved(id, of, &mut ext.memory);
        Ok(Box::new(MovedFlow { flow, held }))
    }

    /// Takes a flow in that another worker gave away.
    ///
    /// # Errors
    /// Table, sessions, streams or application layers have no room for it: it is given back as it came. Nobody gives way for it.
    pub(crate) fn adopt(&mut self, moved: Box<MovedFlow>) -> Result<FlowId, Box<MovedFlow>> {
        let ext = &moved.flow.entry().ext;
        let fits = |pair: &StreamPair| pair.fits(&self.budget);
        let (used, limit) = (self.app_memory.used(), self.app_memory.limit());
        let has_room = ext.streams.as_deref().is_none_or(fits)
            && (!ext.session.exists() || TcpSession::has_room(&self.settings.stream, &self.stream_counters))
            && (limit == 0 || used.saturating_add(moved.held) <= limit);
        if has_room { self.join(moved, FlowTable::take_in) } else { Err(moved) }
    }

    /// Takes a flow in whose room this worker has kept. What it holds counts here whatever the bounds say, which were passed meanwhile at most by that; flows
    /// give way then with the next packet.
    ///
    /// # Errors
    /// There is a flow of its key.
    pub(crate) fn take_home(&mut self, moved: Box<MovedFlow>) -> Result<FlowId, Box<MovedFlow>> {
        self.join(moved, FlowTable::take_back)
    }

    /// Takes a flow in that cannot go back. Where the table is full, the flow ends that is nearest to its timeout.
    pub(crate) fn take_in_for_good(&mut self, moved: Box<MovedFlow>, recorder: &mut dyn Recorder) {
        if self.flows.len() as u64 >= u64::from(self.flows.capacity())
            && let Some(id) = self.flows.nearest_to_its_end(self.clock)
        {
            self.end_flow(id, EndReason::Forced, recorder);
        }
        // There is room, and no flow of its key: its packets come here only with it.
        let not_taken = self.join(moved, FlowTable::take_in).is_err();
        self.counters.no_flow += u64::from(not_taken);
    }

    fn join(
        &mut self,
        moved: Box<MovedFlow>,
        put: impl FnOnce(&mut FlowTable<FlowExt>, Moved<FlowExt>) -> Result<FlowId, Moved<FlowExt>>,
    ) -> Result<FlowId, Box<MovedFlow>> {
        let MovedFlow { flow, held } = *moved;
        let id = put(&mut self.flows, flow).map_err(|flow| Box::new(MovedFlow { flow, held }))?;
        if let Some(entry) = self.flows.get(id) {
            entry.ext.session.join(&mut self.stream_counters);
            if let Some(pair) = entry.ext.streams.as_deref() {
                pair.join(&mut self.budget);
            }
        }
        self.account(id);
        self.guests.taken_in += 1;
        Ok(id)
    }

    /// A packet was handled whose flow is a guest here.
    pub(crate) fn note_guest(&mut self, key: &FlowKey, guest: Guest) {
        self.guests.insert(*key, guest);
        // It opened none, or has ended its flow.
        if self.flow_of_key(key).is_none() {
            self.guests.may_have_ended(*key);
        }
    }

    /// A flow is about to be removed: asked of each, so it looks first whether there are guests at all.
    #[inline]
    pub(crate) fn note_end(&mut self, id: FlowId) {
        if !self.guests.is_empty()
            && let Some(key) = self.flows.get(id).map(|entry| *entry.key())
            && self.guests.contains(&key)
        {
            self.guests.may_have_ended(key);
        }
    }

    /// The next guest of which nothing is here any more.
    pub(crate) fn next_ended_guest(&mut self) -> Option<(FlowKey, Guest)> {
        while let Some(key) = self.guests.next_that_may_have_ended() {
            if self.guests.contains(&key)
                && self.flow_of_key(&key).is_none()
                && let Some(guest) = self.guests.remove(&key)
            {
                return Some((key, guest));
            }
        }
        None
    }
}
