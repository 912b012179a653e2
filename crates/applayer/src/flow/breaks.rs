// SPDX-License-Identifier: Apache-2.0
//! Interruptions of a direction: missing bytes, and its end.

use super::{AppLayer, DetectedProtocol, Disruption, Engine, FlowInfo, OPEN_LIMIT, context};
use crate::detection::Likely;
use crate::event;
use crate::protocol::Transport;
use bartizan_base::{Direction, PerDirection};

impl AppLayer {
    /// Handles `missing` bytes of a direction that its receiver got and this host did not see; `behind`: the
    /// bytes after them. Returns whether the reader continues after the hole. While no protocol is known it
    /// stays before the hole, as in Suricata: bytes that fill the hole late are parsed together with the
    /// bytes after it, if the other side reveals the protocol. `ended`: nothing will fill the hole.
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
        let waits = self.protocol == DetectedProtocol::Pending && self.original.is_none();
        if waits && !ended && !self.finished && !self.stopped[direction] {
            return self.handle_early_hole(engine, direction, missing, behind, flow);
        }
        if core::mem::take(&mut self.stands[direction]) {
            // The hole is reported to the parser now.
            self.missing[direction] = 0;
            if self.protocol == DetectedProtocol::Pending {
                self.by_direction[direction] = DetectedProtocol::Pending;
            }
        }
        self.pass_over(engine, direction, missing, flow);
        true
    }

    /// Handles a hole that came before the protocol was known. Returns whether the reader continues after it.
    fn handle_early_hole(
        &mut self,
        engine: &Engine,
        direction: Direction,
        missing: u64,
        behind: &[u8],
        flow: &FlowInfo,
    ) -> bool {
        // Without the first bytes the following ones reveal nothing, unless a receiver would act on them.
        self.by_direction[direction] = DetectedProtocol::Failed;
        self.headless[direction] = !flow.prevents;
        let other_failed = self.by_direction[direction.flip()] == DetectedProtocol::Failed;
        // In passive mode the flow is given up at the next data of the other side, as in Suricata.
        if other_failed && flow.prevents || behind.len() as u64 > OPEN_LIMIT {
            self.fail_detection(!other_failed);
            return true;
        }
        let likely = flow
            .prevents
            .then(|| engine.detector.likely(Transport::Tcp, direction, flow.ports, behind, false));
        self.unlikely[direction] = matches!(likely, None | Some(Likely::No));
        if let Some(Likely::Yes(id)) = likely {
            self.stands[direction] = false;
            self.missing[direction] = missing;
            self.set_protocol(engine, id, flow.transport);
            return true;
        }
        self.first_data.get_or_insert(direction);
        self.stands[direction] = true;
        self.missing[direction] = missing;
        self.waiting[direction] = true;
        false
    }

    /// Skips `missing` bytes of a direction that passed while no function needed them.
    pub fn pass_over(&mut self, engine: &Engine, direction: Direction, missing: u64, flow: &FlowInfo) {
        if self.finished || self.stopped[direction] {
            return;
        }
        if self.by_direction[direction] == DetectedProtocol::Pending {
            // Without the first bytes the protocol of the direction cannot be detected.
            self.by_direction[direction] = DetectedProtocol::Failed;
            self.headless[direction] = !flow.prevents;
            self.missing[direction] = self.missing[direction].saturating_add(missing);
            match self.by_direction[direction.flip()] {
                DetectedProtocol::Protocol(_) => {}
                DetectedProtocol::Failed => {
                    self.fail_detection(false);
                    return;
                }
                DetectedProtocol::Pending => return,
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

    /// Handles a parser that cannot continue after missing bytes. If they are a hole, prevention cannot
    /// inspect the flow any more (`app-layer.error-policy`), wherever the hole lies. In passive mode, and for
    /// bytes that no function needed, the other direction is still parsed.
    pub(super) fn lost(&mut self, engine: &Engine, direction: Direction, flow: &FlowInfo) {
        self.lost_at_gap = true;
        self.disrupt(engine, direction, Disruption::Gap, flow);
        if flow.prevents && self.holes[direction] {
            self.failed_parsing = true;
            self.disrupt(engine, direction.flip(), Disruption::Gap, flow);
        }
    }

    /// Ends the flow: open transactions become complete.
    pub fn end(&mut self, engine: &Engine, flow: &FlowInfo) {
        Direction::BOTH.into_iter().for_each(|direction| self.end_direction(engine, direction, flow));
        self.end_transactions();
    }

    /// Ends a direction at the end of the flow: its open transactions become complete.
    pub fn end_direction(&mut self, engine: &Engine, direction: Direction, flow: &FlowInfo) {
        let Some(parser) = self.parser.as_deref_mut() else { return };
        self.parsed[direction] = true;
        let files = engine.files();
        let mut context = context(flow, &files, &mut self.events);
        // After a switch to a protocol that is not known yet, the old protocol's parser has ended already.
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

    /// Whether the end of a direction's stream was reported.
    #[must_use]
    pub fn ended(&self, direction: Direction) -> bool {
        self.ended[direction]
    }

    /// Records the end of a direction's stream. After both ends no more data arrives, and all transactions
    /// end.
    pub fn set_ended(&mut self, direction: Direction) {
        self.ended[direction] = true;
        self.end_open_detection(direction);
        if self.ended == PerDirection::new(true, true) {
            self.end_transactions();
        }
    }

    /// Ends the detection of a direction that has ended. In passive mode an open direction takes the protocol
    /// of the flow, as in Suricata; rules on the result of detection are not evaluated.
    fn end_open_detection(&mut self, direction: Direction) {
        let open = self.by_direction[direction] == DetectedProtocol::Pending && !self.prevents;
        if open && matches!(self.protocol, DetectedProtocol::Protocol(_)) {
            self.by_direction[direction] = self.protocol;
            self.detected[direction] = true;
        }
    }

    /// Ends detection at the end of the flow: after a switch to a protocol that never began, or if both
    /// directions have failed while prevention still kept the flow's protocol open.
    pub fn end_detection(&mut self) {
        let is_switched = self.original.is_some();
        let failed =
            self.by_direction == PerDirection::new(DetectedProtocol::Failed, DetectedProtocol::Failed);
        if self.protocol == DetectedProtocol::Pending && (is_switched || failed) {
            if is_switched && self.expected.is_some() {
                self.events.set(event::UNEXPECTED_PROTOCOL);
            }
            self.fail_detection(false);
        }
    }

    /// Handles a datagram without data for detection: it is empty, or carries a packet. Unless another
    /// datagram reveals a protocol, the flow has none that this engine knows.
    pub fn pass_datagram(&mut self) {
        if self.protocol == DetectedProtocol::Pending {
            self.protocol = DetectedProtocol::Failed;
        }
    }

    /// Ends all transactions: the flow ends, or switches to another protocol.
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
