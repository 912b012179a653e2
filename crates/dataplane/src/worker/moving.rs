// SPDX-License-Identifier: Apache-2.0
//! Moves of flows: a worker gives flows away and adopts flows of others; see [`bartizan_stages::moving`].

use super::Worker;
use bartizan_base::FlowId;
use bartizan_flow::stream::StreamPair;
use bartizan_flow::table::moving::Moved;
use bartizan_flow::{EndReason, FlowKey, FlowTable};
use bartizan_packet::Decoded;
use bartizan_stages::flow_ext::FlowExt;
use bartizan_stages::frame::Frame;
use bartizan_stages::guests::{ForeignFlows, Guest, NotMoved};
use bartizan_stages::identity::PacketOrigin;
use bartizan_stages::moving::MovedFlow;
use bartizan_stages::record::Recorder;

impl Worker {
    /// Gives a flow away; called between batches. This worker has no part in the flow afterwards.
    /// `keeps_room`: room is kept for its return ([`Worker::readmit`]).
    ///
    /// # Errors
    /// The flow cannot be moved (now).
    pub(crate) fn release_flow(&mut self, id: FlowId, keeps_room: bool) -> Result<Box<MovedFlow>, NotMoved> {
        if self.runner.train.is_waiting() {
            return Err(NotMoved::Waits);
        }
        self.flows.get(id).ok_or(NotMoved::NoFlow)?;
        let mut flow = self.flows.table_mut().take(id, keeps_room)?;
        let of = flow.entry().tenant();
        let ext = &mut flow.entry_mut().ext;
        self.runner.prepare_move(ext);
        ext.session.leave(self.runner.stream_counters_mut());
        if let Some(pair) = ext.streams.as_deref() {
            pair.leave(self.runner.budget_mut());
        }
        let held = ext.memory.held.app;
        self.account.discharge_moved(&mut self.flows, id, of, &mut ext.memory);
        Ok(Box::new(MovedFlow { flow, held }))
    }

    /// Adopts a flow that another worker gave away.
    ///
    /// # Errors
    /// Table, sessions, streams or application layers have no room for the flow: it is returned as it came.
    /// No other flow is closed for it.
    pub(crate) fn adopt(&mut self, moved: Box<MovedFlow>) -> Result<FlowId, Box<MovedFlow>> {
        let ext = &moved.flow.entry().ext;
        let fits = |pair: &StreamPair| pair.fits(self.runner.budget());
        let (used, limit) = (self.account.memory.used(), self.account.memory.limit());
        let has_room = ext.streams.as_deref().is_none_or(fits)
            && (!ext.session.exists() || self.runner.has_session_room(&self.settings))
            && (limit == 0 || used.saturating_add(moved.held) <= limit);
        if has_room { self.join(moved, FlowTable::take_in) } else { Err(moved) }
    }

    /// Takes a flow back whose room was kept. Its memory counts whatever the bounds are, so it may exceed
    /// them by that much; flows are then closed with the next packet.
    ///
    /// # Errors
    /// The table has a flow with the same key.
    pub(crate) fn readmit(&mut self, moved: Box<MovedFlow>) -> Result<FlowId, Box<MovedFlow>> {
        self.join(moved, FlowTable::take_back)
    }

    /// Adopts a flow that cannot go back. If the table is full, the flow nearest to its timeout ends.
    pub(crate) fn take_in_for_good(&mut self, moved: Box<MovedFlow>, recorder: &mut dyn Recorder) {
        let table = self.flows.table_mut();
        if table.len() as u64 >= u64::from(table.capacity())
            && let Some(id) = table.nearest_to_its_end(self.position.clock)
        {
            self.passage(recorder).end_flow(id, EndReason::Forced);
        }
        // There is room, and no flow with the key: packets of the flow arrive here only after the flow.
        let not_taken = self.join(moved, FlowTable::take_in).is_err();
        self.note_not_taken(not_taken);
    }

    fn join(
        &mut self,
        moved: Box<MovedFlow>,
        put: impl FnOnce(&mut FlowTable<FlowExt>, Moved<FlowExt>) -> Result<FlowId, Moved<FlowExt>>,
    ) -> Result<FlowId, Box<MovedFlow>> {
        let MovedFlow { mut flow, held } = *moved;
        self.runner.accept_flow(&mut flow.entry_mut().ext);
        let id = put(self.flows.table_mut(), flow).map_err(|flow| Box::new(MovedFlow { flow, held }))?;
        if let Some(entry) = self.flows.get(id) {
            entry.ext.session.join(self.runner.stream_counters_mut());
            if let Some(pair) = entry.ext.streams.as_deref() {
                pair.join(self.runner.budget_mut());
            }
        }
        self.account.measure(&mut self.flows, id);
        self.flows.note_counted(id);
        self.flows.guests.taken_in += 1;
        Ok(id)
    }

    /// Counts an arriving flow that had no place after all.
    pub(crate) fn note_not_taken(&mut self, not_taken: bool) {
        self.account.counters.no_flow += u64::from(not_taken);
    }

    /// The flow with a key, whether its timeout has passed or not.
    pub(crate) fn flow_of_key(&self, key: &FlowKey) -> Option<FlowId> {
        self.flows.of_key(key)
    }

    /// Notes that a packet of a guest flow was handled.
    pub(crate) fn note_guest(&mut self, key: &FlowKey, guest: Guest) {
        self.flows.note_guest(key, guest);
    }

    /// Flows that other workers gave to this one.
    pub(crate) const fn guests(&self) -> &ForeignFlows {
        &self.flows.guests
    }

    /// The guests, for the code that moves flows.
    pub(crate) const fn guests_mut(&mut self) -> &mut ForeignFlows {
        &mut self.flows.guests
    }

    /// The next guest that has ended here.
    pub(crate) fn next_ended_guest(&mut self) -> Option<(FlowKey, Guest)> {
        self.flows.next_ended_guest()
    }

    /// Frees the room that was kept for a flow which has ended at another worker.
    pub(crate) fn release_room(&mut self) {
        self.flows.table_mut().release_room();
    }

    /// The key of a packet's flow; for an ICMP error, that of the quoted packet's flow.
    pub(crate) fn moved_key(&self, frame: &Frame<'_>, packet: &Decoded) -> Option<FlowKey> {
        let whence = self.packet_origin(frame, packet);
        match packet.about() {
            // An error's own flow is never moved.
            Some(_) => whence.key_about(&self.settings, packet),
            None => whence.key(&self.settings, packet),
        }
    }

    /// The key of a packet's own flow.
    pub(crate) fn own_key(&self, frame: &Frame<'_>, packet: &Decoded) -> Option<FlowKey> {
        self.packet_origin(frame, packet).key(&self.settings, packet)
    }

    fn packet_origin(&self, frame: &Frame<'_>, packet: &Decoded) -> PacketOrigin {
        let chains = self.runner.chains();
        let tenant = chains.classifier.tenant_of(packet, frame.link);
        let (arrived_by, esp_flows) = (self.intake.arrived_by(), chains.esp_flows());
        PacketOrigin { tenant, link: frame.link, arrived_by, esp_flows }
    }
}
