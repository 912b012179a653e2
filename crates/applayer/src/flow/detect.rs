// SPDX-License-Identifier: Apache-2.0
//! Detection of a stream's protocol, with the data that waits for it.

use super::{Advance, AppLayer, DetectedProtocol, OPEN_LIMIT, SWITCHED_LIMIT};
use crate::detection::{self, Detected, Likely};
use crate::engine::Engine;
use crate::event;
use crate::flow::FlowInfo;
use crate::protocol::{Input, Transport};
use bartizan_base::Direction;
use std::ops::ControlFlow;

impl AppLayer {
    /// Detects the protocol of a stream. `None`: continue with parsing. `Some`: return this; the data is
    /// held, unless detection has ended.
    pub(super) fn detect_stream(
        &mut self,
        engine: &Engine,
        direction: Direction,
        input: Input<'_>,
        flow: &FlowInfo,
    ) -> Option<Advance> {
        self.prevents = flow.prevents;
        if self.by_direction[direction] == DetectedProtocol::Pending
            && let ControlFlow::Break(result) = self.detect_side(engine, direction, &input, flow)
        {
            return result;
        }
        self.unlikely[direction] |= !flow.prevents;
        if self.protocol == DetectedProtocol::Pending && !self.unlikely[direction] {
            match engine.detector.likely(Transport::Tcp, direction, flow.ports, input.data, input.eof) {
                Likely::Yes(id) => {
                    self.by_direction[direction] = DetectedProtocol::Failed;
                    self.set_protocol(engine, id, flow.transport);
                    return self.other_side_first(direction);
                }
                Likely::More => {}
                Likely::No => self.unlikely[direction] = true,
            }
        }
        // In the known protocols the client sends first, and the server answers in the same protocol: if the
        // server has sent something else, nothing is held. After a switch that may be the rest of a response.
        let begins = !flow.may_turn && self.original.is_none();
        self.unlikely.to_server |= begins && self.is_foreign(Direction::ToClient);
        if self.protocol == DetectedProtocol::Pending
            && Direction::BOTH.iter().all(|direction| self.is_foreign(*direction))
        {
            return Some(self.fail_detection(false));
        }
        if self.protocol == DetectedProtocol::Pending
            && self.original.is_some()
            && (input.eof || input.data.len() as u64 >= SWITCHED_LIMIT)
        {
            return Some(self.fail_detection(false));
        }
        Some(self.keep(direction, input))
    }

    /// Detects the protocol of a direction whose detection is not complete. `Break`: the result of
    /// [`Self::detect_stream`].
    fn detect_side(
        &mut self,
        engine: &Engine,
        direction: Direction,
        input: &Input<'_>,
        flow: &FlowInfo,
    ) -> ControlFlow<Option<Advance>> {
        let other = self.by_direction[direction.flip()];
        // In passive mode the end of a stream decides nothing, as in Suricata; in prevention it does. If
        // the other side has revealed the protocol, held data is parsed in any case.
        let eof = input.eof && (flow.prevents || self.protocol.protocol().is_some());
        // As in Suricata, such data ends no detection that is still open.
        let stays_open = eof && !flow.prevents && {
            let now = engine.detector.detect(Transport::Tcp, direction, flow.ports, input.data, false);
            now == Detected::Pending && !detection::shows_any(self.protocol.protocol(), direction, input.data)
        };
        if stays_open {
            return ControlFlow::Break(None);
        }
        let found = self.find_protocol(engine, direction, input, eof, flow);
        match found {
            Detected::Protocol(_, shown)
                if shown != direction && other == DetectedProtocol::Pending && self.parser.is_none() =>
            {
                return ControlFlow::Break(Some(Advance { reverse: true, ..Advance::default() }));
            }
            Detected::Protocol(id, _) => {
                self.by_direction[direction] = DetectedProtocol::Protocol(id);
                // The other side's detection ends here, too: rules on the result are evaluated for it
                // again.
                self.detected[direction.flip()] &= other != DetectedProtocol::Failed;
                match self.protocol {
                    DetectedProtocol::Protocol(before) if before != id => {
                        self.events.set(event::MISMATCH_PROTOCOL_BOTH_DIRECTIONS);
                    }
                    // The client was likely to have this protocol, but did not match it. A server's greeting
                    // matches no pattern, and says as much in its own words.
                    DetectedProtocol::Protocol(_)
                        if other == DetectedProtocol::Failed && direction == Direction::ToClient =>
                    {
                        self.events.set(event::DETECT_PROTOCOL_ONLY_ONE_DIRECTION);
                    }
                    DetectedProtocol::Protocol(_) if other == DetectedProtocol::Failed => {}
                    _ => self.set_protocol(engine, id, flow.transport),
                }
                return ControlFlow::Break(self.other_side_first(direction));
            }
            Detected::Pending | Detected::Unknown
                if flow.may_turn
                    && other == DetectedProtocol::Pending
                    && self.parser.is_none()
                    && engine.detector.is_the_other_way(direction, input.data) =>
            {
                return ControlFlow::Break(Some(Advance { reverse: true, ..Advance::default() }));
            }
            Detected::Pending
                if !flow.prevents || engine.detector.is_open(direction, flow.ports, input.data) => {}
            Detected::Pending | Detected::Unknown => {
                self.by_direction[direction] = DetectedProtocol::Failed;
                if self.protocol != DetectedProtocol::Pending {
                    self.events.set(event::DETECT_PROTOCOL_ONLY_ONE_DIRECTION);
                    return ControlFlow::Break(None);
                }
                // Suricata would take the rest of a request for a complete one.
                if direction == Direction::ToServer && flow.may_turn && !flow.prevents {
                    return ControlFlow::Break(Some(self.fail_detection(false)));
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// The protocol that a direction's bytes show: by themselves, or as both sides have agreed.
    fn find_protocol(
        &mut self,
        engine: &Engine,
        direction: Direction,
        input: &Input<'_>,
        eof: bool,
        flow: &FlowInfo,
    ) -> Detected {
        let found = engine.detector.detect(Transport::Tcp, direction, flow.ports, input.data, eof);
        // After a switch either side may be the first to speak the protocol that was agreed on.
        if let (Some(id), DetectedProtocol::Pending) = (self.expected, self.protocol)
            && (matches!(found, Detected::Pending | Detected::Unknown)
                || self.prevents && detection::is_by_agreement(id))
            && engine.detector.shows_expected(id, direction, input.data, self.prevents)
        {
            // Passively rules on this protocol are due with the side's next packet, and those that are still
            // due on the protocol before the switch are not evaluated on this one.
            self.detected_again[direction.flip()] &= self.prevents;
            self.detected_again[direction] |= !self.prevents;
            return Detected::Protocol(id, direction);
        }
        // Data without a known pattern may be a response in the protocol that the other side revealed, and a
        // pattern may be one of two protocols (`USER` of FTP and POP3).
        if let DetectedProtocol::Protocol(id) = self.protocol
            && (matches!(found, Detected::Pending | Detected::Unknown) || self.original.is_none())
            && detection::shows(id, direction, input.data)
        {
            return Detected::Protocol(id, direction);
        }
        found
    }

    /// Whether a direction's bytes belong to no known protocol.
    fn is_foreign(&self, direction: Direction) -> bool {
        self.by_direction[direction] == DetectedProtocol::Failed && self.unlikely[direction]
    }

    /// Holds the data until the protocol is known, or gives detection up at the limit.
    fn keep(&mut self, direction: Direction, input: Input<'_>) -> Advance {
        let held = input.data.len() as u64;
        if self.protocol == DetectedProtocol::Pending && held > OPEN_LIMIT {
            return self.fail_detection(true);
        }
        self.waiting[direction] = true;
        // More bytes of a side that can reveal nothing any more are not needed.
        let silent = self.is_foreign(direction);
        let needed = if silent { OPEN_LIMIT.saturating_add(1) } else { held.saturating_add(1) };
        Advance { needed: usize::try_from(needed).unwrap_or(usize::MAX), ..Advance::default() }
    }

    /// Once the protocol is known, data that the other side sent earlier goes first, so that a request is
    /// parsed before its response.
    fn other_side_first(&mut self, direction: Direction) -> Option<Advance> {
        let other = direction.flip();
        // In passive mode a side whose detection is open waits for more data.
        let held = self.seen[other].saturating_sub(self.detect_from[other]);
        let is_open = !self.prevents
            && self.by_direction[other] == DetectedProtocol::Pending
            && held < detection::LITERALS_END[other] as u64;
        if !self.waiting[other]
            || is_open
            || self.first_data != Some(other)
            || self.parser.is_none()
            || self.missing[other] > 0
        {
            return None;
        }
        // The other side's bytes are parsed as this side's protocol.
        if !matches!(self.by_direction[other], DetectedProtocol::Protocol(_)) {
            self.by_direction[other] = DetectedProtocol::Failed;
            self.unproven[other] = true;
        }
        self.waiting[direction] = true;
        Some(Advance { other_side_first: true, ..Advance::default() })
    }
}
