// SPDX-License-Identifier: Apache-2.0
//! Where a direction breaks off: bytes that are missing, and its end.

use super::{AppLayer, Disruption, Engine, FlowInfo, Known, OPEN_LIMIT, context};
use crate::detection::Likely;
use crate::event;
use crate::protocol::Transport;
use bartizan_base::{Direction, PerDirection};

impl AppLayer {
    /// `missing` bytes of a direction did not come: its receiver has bytes that nobody saw; `behind`: what
    /// lies behind them. `true`: the reader goes on there. While no protocol is known it stays before the
    /// hole, as in Suricata: what fills it late is read with what lies behind it, should the other side tell
    /// the protocol. `ended`: nothing will fill it.
    pub fn gap(
        &mut self,
        engine: &Engine,
        direction: Direction,
        missing: u64,
        behind: &[u8],
        ended: bool,
        flow: &FlowInfo,
    ) -> bool {
        self.holes[direction] = true;
        let waits = self.protocol == Known::Pending && self.original.is_none();
        if waits && !ended && !self.finished && !self.stopped[direction] {
            return self.stand_before(engine, direction, missing, behind, flow);
        }
        if core::mem::take(&mut self.stands[direction]) {
            // It is told now.
            self.missing[direction] = 0;
            if self.protocol == Known::Pending {
                self.by_direction[direction] = Known::Pending;
            }
        }
        self.pass_over(engine, direction, missing, flow);
        true
    }

    /// A hole in what came before the protocol was known. `true`: it is passed.
    fn stand_before(
        &mut self,
        engine: &Engine,
        direction: Direction,
        missing: u64,
        behind: &[u8],
        flow: &FlowInfo,
    ) -> bool {
        // First bytes are missing: what follows tells nothing, unless a receiver would act on it.
        self.by_direction[direction] = Known::Failed;
        self.headless[direction] = !flow.prevents;
        let other_failed = self.by_direction[direction.flip()] == Known::Failed;
        // Passively the flow is given up when the other side is looked at again, as in Suricata.
        if other_failed && flow.prevents || behind.len() as u64 > OPEN_LIMIT {
            self.give_up(!other_failed);
            return true;
        }
        let likely = flow
            .prevents
            .then(|| engine.detector.likely(Transport::Tcp, direction, flow.ports, behind, false));
        self.unlikely[direction] = matches!(likely, None | Some(Likely::No));
        if let Some(Likely::Yes(id)) = likely {
            self.stands[direction] = false;
            self.missing[direction] = missing;
            self.settle(engine, id, flow.transport);
            return true;
        }
        self.first_data.get_or_insert(direction);
        self.stands[direction] = true;
        self.missing[direction] = missing;
        self.waiting[direction] = true;
        false
    }

    /// `missing` bytes of a direction went by while nobody asked to read it.
    pub fn pass_over(&mut self, engine: &Engine, direction: Direction, missing: u64, flow: &FlowInfo) {
        if self.finished || self.stopped[direction] {
            return;
        }
        if self.by_direction[direction] == Known::Pending {
            // First bytes are missing: what follows cannot be told.
            self.by_direction[direction] = Known::Failed;
            self.headless[direction] = !flow.prevents;
            self.missing[direction] = self.missing[direction].saturating_add(missing);
            match self.by_direction[direction.flip()] {
                Known::Protocol(_) => {}
                Known::Failed => {
                    self.give_up(false);
                    return;
                }
                Known::Pending => return,
            }
        }
        self.seen[direction] = self.seen[direction].saturating_add(missing);
        let Some(parser) = self.parser.as_deref_mut() else { return };
        let files = engine.files();
        let goes_on = parser.gap(direction, missing, &mut context(flow, &files, &mut self.events));
        if let (Some(frames), Some(notes)) = (self.frames.as_deref_mut(), parser.frames()) {
            frames.take(notes);
        }
        if !goes_on {
            self.lost(engine, direction, flow);
        }
    }

    /// The parser cannot go on behind what is missing. Where it is a hole prevention has no more inspection
    /// to offer (`app-layer.error-policy`), wherever it lies; passively, and where nobody asked before, the
    /// other direction is read on.
    pub(super) fn lost(&mut self, engine: &Engine, direction: Direction, flow: &FlowInfo) {
        self.lost_at_gap = true;
        self.disrupt(engine, direction, Disruption::Gap, flow);
        if flow.prevents && self.holes[direction] {
            self.failed_parsing = true;
            self.disrupt(engine, direction.flip(), Disruption::Gap, flow);
        }
    }

    /// The flow is over: what is open becomes complete.
    pub fn end(&mut self, engine: &Engine, flow: &FlowInfo) {
        Direction::BOTH.into_iter().for_each(|direction| self.end_direction(engine, direction, flow));
        self.end_transactions();
    }

    /// Nothing comes in a direction any more, since the flow is over: what is open there becomes complete.
    pub fn end_direction(&mut self, engine: &Engine, direction: Direction, flow: &FlowInfo) {
        let Some(parser) = self.parser.as_deref_mut() else { return };
        self.parsed[direction] = true;
        let files = engine.files();
        let mut context = context(flow, &files, &mut self.events);
        // The parser of a protocol that gave way to one that is not known has come to its end before.
        let gave_way = self.original.is_some() && self.protocol.protocol().is_none();
        if !gave_way {
            parser.end(direction, &mut context);
        }
        if let Some(frames) = self.frames.as_deref_mut() {
            if let Some(notes) = parser.frames() {
                frames.take(notes);
            }
            frames.end(direction);
        }
        for id in parser.tx_range() {
            if let Some(tx) = parser.tx_mut(id) {
                tx.common_mut().ended[direction] = true;
                parser.worklist_mut().changed(id);
            }
        }
    }

    /// Whether the end of a direction's stream was told.
    #[must_use]
    pub fn ended(&self, direction: Direction) -> bool {
        self.ended[direction]
    }

    /// The end of a direction's stream was told. With both ends told nothing comes any more: what is open is
    /// over.
    pub fn set_ended(&mut self, direction: Direction) {
        self.ended[direction] = true;
        self.end_open_detection(direction);
        if self.ended == PerDirection::new(true, true) {
            self.end_transactions();
        }
    }

    /// Ends the detection of a direction that has ended. Passively an open direction takes the protocol of
    /// the flow, as in Suricata; rules on the result of detection are not asked.
    fn end_open_detection(&mut self, direction: Direction) {
        let open = self.by_direction[direction] == Known::Pending && !self.prevents;
        if open && matches!(self.protocol, Known::Protocol(_)) {
            self.by_direction[direction] = self.protocol;
            self.detected[direction] = true;
        }
    }

    /// The flow is over. No protocol came where a switch had announced one, nor what prevention waited for
    /// though no side can speak a
    /// protocol by what is known of it.
    pub fn end_detection(&mut self) {
        let is_switched = self.original.is_some();
        let failed = self.by_direction == PerDirection::new(Known::Failed, Known::Failed);
        if self.protocol == Known::Pending && (is_switched || failed) {
            if is_switched && self.expected.is_some() {
                self.events.set(event::UNEXPECTED_PROTOCOL);
            }
            self.give_up(false);
        }
    }

    /// A datagram came that has nothing for detection to look at: it is empty, or carries a packet. Unless
    /// another one tells, the flow
    /// speaks no protocol of ours.
    pub fn pass_datagram(&mut self) {
        if self.protocol == Known::Pending {
            self.protocol = Known::Failed;
        }
    }

    /// All transactions are over: the flow ends, or its protocol gives way to another.
    pub fn end_transactions(&mut self) {
        let Some(parser) = self.parser.as_deref_mut() else { return };
        for id in parser.tx_range() {
            if let Some(tx) = parser.tx_mut(id) {
                tx.common_mut().ended = PerDirection::new(true, true);
                parser.worklist_mut().changed(id);
            }
        }
    }
}
