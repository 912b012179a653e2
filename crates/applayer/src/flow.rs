// SPDX-License-Identifier: Apache-2.0
//! The application layer of one flow: detects the protocol, drives its parser, holds its transactions.

use crate::detection::{self, Detected, Likely};
pub use crate::engine::Engine;
use crate::event::{self, Events};
use crate::expectation::{Expectation, ExpectedConnection};
use crate::frames::Frames;
use crate::memory::Held as _;
use crate::protocol::{Input, Parser, Progress, ProtocolId, Transport};
use crate::protocols;
use crate::transaction::TxId;
use crate::worklist::Look;
use bartizan_base::{Direction, PacketDuration, Path, PerDirection, Timestamp};

mod breaks;
mod context;
mod detect;
mod known;
mod readers;
mod rivals;

use context::context;
pub use known::{AppSummary, DetectedProtocol};
pub use readers::{HOLDS_MAX, HOLDS_SPAN};
use rivals::Rivals;

/// Limit of one side's held bytes, after which detection of its protocol is given up (Suricata's number).
pub(crate) const OPEN_LIMIT: u64 = 100_000;
/// This limit after a switch of protocols, where the end of a side is enough, too (Suricata's number).
pub(crate) const SWITCHED_LIMIT: u64 = 4_096;

/// The reason why a direction is not parsed any more although the flow continues
/// (docs/design/0010-streams-that-end-early.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disruption {
    /// The depth of reassembly is reached.
    Depth,
    /// Bytes are missing, and the parser cannot continue after them.
    Gap,
    /// The parser failed.
    Error,
    /// No function inspects the flow any more.
    Bypass,
    /// The memory limit of the application layer is reached, and this flow was chosen to release its memory.
    Memory,
}

/// The result of handing in data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advance {
    /// Number of bytes that are consumed and need not be handed in again.
    pub consumed: usize,
    /// Number of bytes beyond the consumed ones that the next call needs (0: any).
    pub needed: usize,
    /// The flow's directions are exchanged: the caller turns flow and session, calls [`AppLayer::turn`], then
    /// hands the data in again.
    pub reverse: bool,
    /// Data of the *other* direction that was held for detection can now be parsed: hand it in.
    pub other_side_ready: bool,
    /// The other direction's data came before this: hand it in first, then this once more.
    pub other_side_first: bool,
    /// No more data of this flow needs to be handed in.
    pub finished: bool,
    /// The parser permits a bypass for the rest of the flow.
    pub bypass: bool,
    /// A parser consumed data after which the raw stream should be inspected.
    pub parsed: bool,
}

/// Limits of holding bytes whose protocol is not detected yet; the first one reached counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldBounds {
    /// Number of bytes of a direction; 0: nothing is held.
    pub bytes: u32,
    /// Time from the first byte that is held in the flow.
    pub time: PacketDuration,
}

/// The decision of [`AppLayer::hold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldDecision {
    /// The data is not held.
    No,
    /// The data is held.
    Yes,
    /// A limit was reached by this call.
    Over,
}

/// The application layer of a flow.
#[derive(Default)]
pub struct AppLayer {
    protocol: DetectedProtocol,
    by_direction: PerDirection<DetectedProtocol>,
    /// The protocol before a switch (STARTTLS, CONNECT, upgrade).
    original: Option<ProtocolId>,
    /// The protocol that a switch announced.
    expected: Option<ProtocolId>,
    /// A switch is in progress: detection inspects bytes from these stream offsets on.
    detect_from: PerDirection<u64>,
    seen: PerDirection<u64>,
    /// Bytes were handed in and not consumed, since the protocol is not known yet.
    waiting: PerDirection<bool>,
    /// Held bytes are to be parsed as the protocol that the other side revealed, and checked for a match
    /// then.
    unproven: PerDirection<bool>,
    /// Time since which bytes are held while their protocol is open, for rules on the result.
    held: Option<Timestamp>,
    /// A limit of holding was reached: bytes left, and the direction counts as having no protocol for as long
    /// as detection, which continues, finds none.
    overdue: PerDirection<bool>,
    /// More bytes of the direction cannot make a known protocol likely.
    unlikely: PerDirection<bool>,
    parser: Option<Box<dyn Parser>>,
    /// The direction's parser failed, or needs no more data.
    stopped: PerDirection<bool>,
    first_data: Option<Direction>,
    /// Events that belong to no transaction.
    pub events: Events,
    /// Number of `events` that were reported as anomaly records.
    pub events_logged: usize,
    finished: bool,
    /// Parsing failed in this flow.
    pub failed_parsing: bool,
    /// A parser could not continue after missing bytes.
    pub lost_at_gap: bool,
    /// A switch of protocols was just begun.
    switched: bool,
    /// Results of detection before the switch, or after it during [`AppLayer::turn_switch`].
    beyond_switch: (DetectedProtocol, PerDirection<DetectedProtocol>, Option<ProtocolId>),
    /// The parser was informed of the end of the direction's stream.
    ended: PerDirection<bool>,
    /// The reason why the direction is not parsed any more, if it is not.
    disrupted: PerDirection<Option<Disruption>>,
    /// This link sees no packets of the direction.
    unseen: PerDirection<bool>,
    /// The parser got data of the direction since payload functions last saw its transactions.
    parsed: PerDirection<bool>,
    /// Detection of the direction's protocol ended with an earlier packet: [`AppLayer::take_detected`].
    detected: PerDirection<bool>,
    /// Rules on the result of detection are evaluated on the direction's next packet as well.
    detected_again: PerDirection<bool>,
    /// Frames, while rules or outputs need them.
    frames: Option<Box<Frames>>,
    /// By direction: all payload functions have finished with transactions before this one, or those are
    /// freed.
    done_to: PerDirection<TxId>,
    /// The payload functions on the path when records were last written.
    readers: Path,
    /// Transactions that functions hold, in the order of the requests. Some may be freed.
    held_tx: Vec<TxId>,
    /// See [`FlowInfo::prevents`].
    prevents: bool,
    /// Number of first bytes of the direction that are missing, given up before the protocol was known.
    missing: PerDirection<u64>,
    /// The reader stays before the missing bytes, which may still come.
    stands: PerDirection<bool>,
    /// Bytes of the direction were lost, not skipped.
    holes: PerDirection<bool>,
    /// First bytes of the direction were lost: in passive mode they leave its protocol open.
    headless: PerDirection<bool>,
    /// Answers of probes of other protocols to the client's first bytes.
    rivals: Rivals,
    /// Offset up to which the parser needs the client's bytes, while those probes get more data.
    wanted: u64,
}

/// Facts about a flow that the caller passes with each call.
#[derive(Clone, Copy, Debug)]
pub struct FlowInfo {
    /// Packet clock.
    pub now: Timestamp,
    /// Ports of the server (`to_server`) and of the client (`to_client`).
    pub ports: PerDirection<u16>,
    /// Transport.
    pub transport: Transport,
    /// The data has not reached its receiver yet, and does not if rules refuse it: the protocol must be known
    /// before the receiver acts, not from its response ([`crate::detection::Detector::likely`]).
    pub prevents: bool,
    /// The flow's beginning was not seen, and its data may reveal which side is the server. In passive mode
    /// such a flow has the protocol that the client's side reveals, or none.
    pub may_turn: bool,
}

impl AppLayer {
    /// Results of detection, as plain values.
    #[must_use]
    pub fn summary(&self) -> AppSummary {
        let mut by_direction = self.by_direction();
        // The other direction may reveal a protocol that this one does not: in passive mode nothing is
        // decided before it has. Prevention cannot wait for it.
        if self.protocol == DetectedProtocol::Pending && !self.prevents {
            for direction in Direction::BOTH {
                if by_direction[direction] == DetectedProtocol::Failed {
                    by_direction[direction] = DetectedProtocol::Pending;
                }
            }
        }
        AppSummary { protocol: self.protocol, by_direction, original: self.original }
    }

    /// The flow's protocol.
    #[must_use]
    pub fn protocol(&self) -> DetectedProtocol {
        self.protocol
    }

    /// Whether all later data is encrypted and cannot be parsed.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.parser.as_deref().is_some_and(Parser::is_encrypted)
    }

    /// Whether rules do not see later data passively: it is encrypted, and the settings do not ask to inspect
    /// it (`encryption-handling`).
    #[must_use]
    pub fn hides_payload(&self) -> bool {
        let Some(parser) = self.parser.as_deref().filter(|parser| parser.is_encrypted()) else {
            return false;
        };
        let protocol = self.protocol.protocol().or(self.original);
        let number = protocol.and_then(protocols::spec).and_then(|spec| spec.encrypted);
        let transaction = parser.tx_range().find_map(|id| parser.tx(id));
        number.zip(transaction).is_some_and(|(number, tx)| tx.number(number, Direction::ToServer) == Some(1))
    }

    /// Results of detection by direction (EVE's `app_proto_ts`, `app_proto_tc` where they differ).
    #[must_use]
    pub fn by_direction(&self) -> PerDirection<DetectedProtocol> {
        let mut by_direction = self.by_direction;
        for direction in Direction::BOTH {
            if self.overdue[direction] && by_direction[direction] == DetectedProtocol::Pending {
                by_direction[direction] = DetectedProtocol::Failed;
            }
            // As in Suricata, only the other side's protocol counts.
            let told_by_the_other = matches!(self.protocol, DetectedProtocol::Protocol(_));
            if self.headless[direction]
                && told_by_the_other
                && by_direction[direction] == DetectedProtocol::Failed
            {
                by_direction[direction] = DetectedProtocol::Pending;
            }
        }
        by_direction
    }

    /// The protocol before a switch.
    #[must_use]
    pub fn original(&self) -> Option<ProtocolId> {
        self.original
    }

    /// Whether the flow speaks a protocol, has agreed to speak it next, or its client has begun to.
    #[must_use]
    pub fn is_or_becomes(&self, id: ProtocolId) -> bool {
        match self.protocol {
            DetectedProtocol::Protocol(now) => {
                now == id || self.parser.as_deref().and_then(Parser::begun) == Some(id)
            }
            DetectedProtocol::Pending => self.expected == Some(id),
            DetectedProtocol::Failed => false,
        }
    }

    /// The protocol that a switch announced, if another one came.
    #[must_use]
    pub fn expected(&self) -> Option<ProtocolId> {
        self.expected
    }

    /// The flow's frames, if rules or outputs need frames.
    #[must_use]
    pub fn frames(&self) -> Option<&Frames> {
        self.frames.as_deref()
    }

    /// The flow's frames, to record which were inspected.
    pub fn frames_mut(&mut self) -> Option<&mut Frames> {
        self.frames.as_deref_mut()
    }

    /// Shows the results of detection before the switch that just began; a second call shows those after it.
    pub fn turn_switch(&mut self) {
        let now = (self.protocol, self.by_direction, self.original);
        (self.protocol, self.by_direction, self.original) = core::mem::replace(&mut self.beyond_switch, now);
    }

    /// Whether rules on the result of detection are evaluated with a packet of this direction. As in
    /// Suricata, they are with the packet that ends detection of its direction, and with the direction's next
    /// one (once more after a switch). A datagram, and the packet that ends detection without result, end it
    /// for both directions. In passive mode a segment is parsed when it is acknowledged, so only the next
    /// packet counts.
    pub fn take_detected(&mut self, direction: Direction, datagram: bool) -> bool {
        let again = core::mem::take(&mut self.detected_again[direction]);
        if self.detected.to_server && self.detected.to_client {
            return again;
        }
        let known = self.summary().by_direction;
        let mut ended = PerDirection::<bool>::default();
        for side in Direction::BOTH {
            ended[side] = known[side] != DetectedProtocol::Pending
                && !core::mem::replace(&mut self.detected[side], true);
        }
        if (datagram || self.protocol == DetectedProtocol::Failed) && (ended.to_server || ended.to_client) {
            ended = PerDirection::new(true, true);
        }
        for side in Direction::BOTH {
            self.detected_again[side] |= ended[side];
        }
        ended[direction] && (datagram || self.prevents) || again
    }

    /// The parser, which holds the transactions.
    #[must_use]
    pub fn parser(&self) -> Option<&dyn Parser> {
        self.parser.as_deref()
    }

    /// Whether new or changed transactions of a direction still need inspection.
    #[must_use]
    pub fn has_uninspected(&self, direction: Direction) -> bool {
        let frames = self.frames.as_deref().is_some_and(|frames| !frames.due(direction, false).is_empty());
        frames || self.parser().is_some_and(|parser| parser.worklist().waits(Look::Inspect, direction))
    }

    /// Whether the recorder has something to write: events, frames, transactions.
    #[must_use]
    pub fn has_unrecorded(&self) -> bool {
        let waits = |parser: &dyn Parser| {
            Direction::BOTH.iter().any(|direction| parser.worklist().waits(Look::Record, *direction))
        };
        self.events.as_slice().len() > self.events_logged
            || self.frames.is_some()
            || self.parser().is_some_and(waits)
    }

    /// Whether a packet of this direction leaves nothing to record and nothing to free.
    #[must_use]
    pub fn is_recorded(&self, direction: Direction) -> bool {
        self.events.as_slice().len() == self.events_logged
            && self.frames.is_none()
            && self.parser().is_none_or(|parser| !parser.worklist().waits(Look::Record, direction))
    }

    /// Whether the parser got data of a direction since payload functions last saw its transactions.
    #[must_use]
    pub fn is_parsed(&self, direction: Direction) -> bool {
        self.parsed[direction]
    }

    /// Returns [`AppLayer::is_parsed`] and resets it: payload functions see the transactions now.
    pub fn take_parsed(&mut self, direction: Direction) -> bool {
        core::mem::take(&mut self.parsed[direction])
    }

    /// The reason why a direction is not parsed any more, if it is not.
    #[must_use]
    pub fn disrupted(&self, direction: Direction) -> Option<Disruption> {
        self.disrupted[direction]
    }

    /// Stops parsing a direction: its open transactions, and all that begin later, count as ended in it. If
    /// the protocol is not known yet, this direction will not reveal it.
    pub fn disrupt(&mut self, engine: &Engine, direction: Direction, cause: Disruption, flow: &FlowInfo) {
        if self.disrupted[direction].is_some() {
            return;
        }
        if self.waiting[direction] && cause == Disruption::Depth {
            // Data that is held for the protocol lies before the depth: it is parsed first, if the other side
            // reveals the protocol.
            self.unlikely[direction] = true;
            self.by_direction[direction] = match self.by_direction[direction] {
                DetectedProtocol::Pending => DetectedProtocol::Failed,
                known => known,
            };
            if self.protocol == DetectedProtocol::Pending
                && self.by_direction[direction.flip()] == DetectedProtocol::Failed
            {
                self.fail_detection(false);
            }
            return;
        }
        self.disrupted[direction] = Some(cause);
        self.stopped[direction] = true;
        self.parsed[direction] = true;
        if self.by_direction[direction] == DetectedProtocol::Pending {
            self.by_direction[direction] = DetectedProtocol::Failed;
            match self.by_direction[direction.flip()] {
                DetectedProtocol::Failed => drop(self.fail_detection(false)),
                DetectedProtocol::Protocol(_) | DetectedProtocol::Pending => {}
            }
        }
        self.finished |= self.stopped[direction.flip()];
        if let Some(parser) = self.parser.as_deref_mut() {
            let files = engine.files();
            parser.disrupt(direction, &mut context(flow, &files, &mut self.events));
        }
    }

    /// Records that this link sees no packets of a direction (`stream.async-oneside`) although the other one
    /// was parsed: its transactions do not wait for a response. Data that comes nevertheless is parsed as
    /// usual, after a call of [`AppLayer::rejoin`].
    pub fn leave_out(&mut self, direction: Direction) {
        if self.unseen[direction] || self.parser.is_none() {
            return;
        }
        self.unseen[direction] = true;
        if let Some(parser) = self.parser.as_deref_mut() {
            parser.leave_out(direction);
        }
    }

    /// Records that this link sees both directions after all.
    pub fn rejoin(&mut self) {
        for direction in Direction::BOTH {
            if core::mem::take(&mut self.unseen[direction])
                && let Some(parser) = self.parser.as_deref_mut()
            {
                parser.rejoin(direction);
            }
        }
    }

    /// Directions without packets on this link.
    #[must_use]
    pub fn unseen(&self) -> PerDirection<bool> {
        self.unseen
    }

    /// The parser, to mark and free transactions.
    pub fn parser_mut(&mut self) -> Option<&mut (dyn Parser + 'static)> {
        self.parser.as_deref_mut()
    }

    /// Whether the last call began a switch to another protocol; resets the mark. The caller records and
    /// frees the old protocol's transactions before it hands in more data.
    pub fn take_switched(&mut self) -> bool {
        core::mem::take(&mut self.switched)
    }

    /// Whether bytes of a direction were handed in that no parser has seen, since the protocol is not known.
    #[must_use]
    pub fn waits(&self, direction: Direction) -> bool {
        self.waiting[direction]
    }

    /// Whether no more data needs to be handed in.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.finished
    }

    /// Bytes of memory of parser and transactions. The cost depends on the changes since the last call.
    pub fn held(&mut self) -> usize {
        let frames = self.frames.as_deref().map_or(0, Frames::held);
        let holds = self.held_tx.held().saturating_add(self.rivals.held());
        self.parser.as_deref_mut().map_or(0, Parser::held).saturating_add(frames).saturating_add(holds)
    }

    /// Gives the application layer up for the rest of the flow and frees parser and transactions, whose
    /// records must be written before. The protocol stays known.
    pub fn close(&mut self, engine: &Engine, flow: &FlowInfo) {
        for direction in Direction::BOTH {
            self.disrupt(engine, direction, Disruption::Memory, flow);
        }
        self.finished = true;
        self.parser = None;
    }

    /// Exchanges the state of both directions, since the flow's sides were exchanged.
    pub fn turn(&mut self) {
        self.by_direction.swap();
        self.detect_from.swap();
        self.seen.swap();
        self.stopped.swap();
        self.disrupted.swap();
        self.unseen.swap();
        self.waiting.swap();
        self.unproven.swap();
        self.overdue.swap();
        self.unlikely.swap();
        self.parsed.swap();
        self.missing.swap();
        self.stands.swap();
        self.holes.swap();
        self.headless.swap();
        if let Some(frames) = self.frames.as_deref_mut() {
            frames.turn();
        }
        (self.rivals, self.wanted) = (Rivals::Unasked, 0);
        self.first_data = self.first_data.map(Direction::flip);
    }

    /// Hands in stream data of a direction: all bytes that were not consumed before.
    pub fn stream(
        &mut self,
        engine: &Engine,
        direction: Direction,
        input: Input<'_>,
        flow: &FlowInfo,
    ) -> Advance {
        if self.finished || self.stopped[direction] {
            return Advance { consumed: input.data.len(), finished: self.finished, ..Advance::default() };
        }
        self.first_data.get_or_insert(direction);
        if core::mem::take(&mut self.unproven[direction]) {
            match self.protocol {
                DetectedProtocol::Protocol(id) if detection::shows(id, direction, input.data) => {
                    self.by_direction[direction] = self.protocol;
                }
                _ => self.events.set(event::DETECT_PROTOCOL_ONLY_ONE_DIRECTION),
            }
        }
        self.seen[direction] = input.offset.saturating_add(input.data.len() as u64);
        if !input.data.is_empty() && core::mem::take(&mut self.stands[direction]) {
            // Missing bytes came late. Suricata then takes the other side's protocol; prevention detects it
            // from these bytes.
            self.missing[direction] = 0;
            if flow.prevents && self.protocol == DetectedProtocol::Pending {
                self.unlikely[direction] = false;
                self.by_direction[direction] = DetectedProtocol::Pending;
            }
        }
        if self.protocol == DetectedProtocol::Pending
            || self.by_direction[direction] == DetectedProtocol::Pending
        {
            if input.data.is_empty() {
                return Advance::default();
            }
            if let Some(early) = self.detect_stream(engine, direction, input, flow) {
                return early;
            }
        }
        self.waiting[direction] = false;
        if let DetectedProtocol::Protocol(id) = self.protocol
            && self.is_contested(engine, direction, id, &input, flow)
        {
            return Advance {
                consumed: input.data.len(),
                finished: true,
                parsed: true,
                ..Advance::default()
            };
        }
        let mut advance = match self.still_wanted(direction, &input) {
            0 => self.parse(engine, direction, input, flow),
            needed => Advance { needed, ..Advance::default() },
        };
        self.show_rivals(direction, &input, &mut advance);
        advance.other_side_ready = self.parser.is_some() && self.waiting[direction.flip()];
        advance
    }

    /// Whether a direction's data must not be forwarded yet: detection has seen it and needs more for an
    /// answer. At the limits it is forwarded: the direction counts as having no protocol, and rules may
    /// decide on it. Detection continues with later data as if nothing were held: the bytes stay, and are
    /// parsed once the protocol is known.
    pub fn hold(&mut self, direction: Direction, now: Timestamp, bounds: &HoldBounds) -> HoldDecision {
        if self.protocol != DetectedProtocol::Pending
            || self.by_direction[direction] != DetectedProtocol::Pending
            || !self.waiting[direction]
            || self.overdue[direction]
        {
            return HoldDecision::No;
        }
        let since = *self.held.get_or_insert(now);
        let bytes = self.seen[direction].saturating_sub(self.detect_from[direction]);
        if now.since(since) < bounds.time && bytes <= u64::from(bounds.bytes) {
            return HoldDecision::Yes;
        }
        self.overdue[direction] = true;
        HoldDecision::Over
    }

    fn fail_detection(&mut self, skipped: bool) -> Advance {
        if skipped {
            self.events.set(event::PROTO_DETECTION_SKIPPED);
        }
        self.protocol = DetectedProtocol::Failed;
        self.by_direction = PerDirection::new(DetectedProtocol::Failed, DetectedProtocol::Failed);
        self.finished = true;
        Advance { finished: true, ..Advance::default() }
    }

    /// Gives the flow the protocol of a connection that another flow announced. Call it before the first
    /// data.
    pub fn expect(&mut self, engine: &Engine, connection: &ExpectedConnection) {
        let id = connection.protocol;
        self.protocol = DetectedProtocol::Protocol(id);
        self.by_direction = PerDirection::new(self.protocol, self.protocol);
        self.parser = engine.make_expected(id, &connection.context);
        self.attach_frames(engine);
    }

    /// Ends the detection of an expected connection that carries nothing, as Suricata does: the flow has no
    /// protocol, its directions have the expected one.
    pub fn expect_nothing(&mut self, connection: &ExpectedConnection) {
        let known = DetectedProtocol::Protocol(connection.protocol);
        self.events.set(event::WRONG_DIRECTION_FIRST_DATA);
        self.fail_detection(false);
        self.by_direction = PerDirection::new(known, known);
    }

    /// Refuses the rest of the flow as one whose parser has failed: what it agrees on cannot be inspected.
    pub fn refuse(&mut self, engine: &Engine, flow: &FlowInfo) {
        self.failed_parsing = true;
        for direction in Direction::BOTH {
            self.disrupt(engine, direction, Disruption::Error, flow);
        }
        self.finished = true;
    }

    /// Takes the connections that the parser expects.
    pub fn take_expectations(&mut self) -> Vec<Expectation> {
        self.parser.as_deref_mut().and_then(Parser::expectations).map(core::mem::take).unwrap_or_default()
    }

    /// Sets the flow's protocol and makes its parser, unless there is one.
    fn set_protocol(&mut self, engine: &Engine, id: ProtocolId, transport: Transport) {
        if self.protocol.protocol() == Some(id) && self.parser.is_some() {
            return;
        }
        self.protocol = DetectedProtocol::Protocol(id);
        // The parser of the protocol before a switch is still there.
        let before = self.parser.as_deref().filter(|_| self.expected == Some(id));
        self.parser = match before.map(Parser::switch_context).filter(|context| !context.is_empty()) {
            Some(context) => engine.make_expected(id, &context),
            None => engine.make(id, transport),
        };
        self.attach_frames(engine);
        self.done_to = PerDirection::default();
        self.held_tx.clear();
        if let Some(parser) = self.parser.as_deref_mut() {
            for direction in Direction::BOTH {
                if self.disrupted[direction].is_some() {
                    parser.worklist_mut().disrupt(direction);
                }
                if self.unseen[direction] {
                    parser.leave_out(direction);
                }
            }
        }
        if let Some(expected) = self.expected
            && expected != id
        {
            let absent = protocols::spec(expected).map_or(event::UNEXPECTED_PROTOCOL, |spec| spec.absent);
            self.events.set(absent);
        }
    }

    /// Keeps protocol frames from here on, if the parser has some and rules or outputs need them.
    fn attach_frames(&mut self, engine: &Engine) {
        if let Some(notes) = self.parser.as_deref_mut().and_then(Parser::frames) {
            self.frames = engine.frames();
            notes.on = self.frames.is_some();
        }
    }

    fn parse(&mut self, engine: &Engine, direction: Direction, input: Input<'_>, flow: &FlowInfo) -> Advance {
        let all = Advance { consumed: input.data.len(), ..Advance::default() };
        let Some(parser) = self.parser.as_deref_mut() else {
            self.finished = self.protocol != DetectedProtocol::Pending;
            return Advance { finished: self.finished, ..all };
        };
        self.parsed[direction] = true;
        let missing = core::mem::take(&mut self.missing[direction]);
        if missing > 0 {
            let files = engine.files();
            if !parser.gap(direction, missing, &mut context(flow, &files, &mut self.events)) {
                self.lost(engine, direction, flow);
                return all;
            }
        }
        if let Some(frames) = self.frames.as_deref_mut() {
            match flow.transport {
                Transport::Tcp => frames.show(direction, input.offset, input.data),
                Transport::Udp => frames.datagram(direction, input.data),
            }
        }
        let files = engine.files();
        let mut context = context(flow, &files, &mut self.events);
        let progress = parser.parse(direction, input, &mut context);
        if let (Some(frames), Some(notes)) = (self.frames.as_deref_mut(), parser.frames()) {
            frames.take(notes);
            if input.eof {
                frames.end(direction);
            }
        }
        if let Some((id, _)) = parser.refined_protocol().and_then(protocols::by_name)
            && self.protocol != DetectedProtocol::Protocol(id)
        {
            self.original = self.protocol.protocol();
            self.protocol = DetectedProtocol::Protocol(id);
            for direction in Direction::BOTH {
                if self.by_direction[direction] != DetectedProtocol::Failed {
                    self.by_direction[direction] = self.protocol;
                }
            }
        }
        let worth = parser.wants_raw(direction);
        if input.eof && !matches!(progress, Progress::Switch { .. } | Progress::Error | Progress::Refuse) {
            parser.end(direction, &mut context);
        }
        match progress {
            Progress::Done => Advance { parsed: !input.data.is_empty() && worth, ..all },
            Progress::Incomplete { consumed, needed } => {
                let consumed = consumed.min(input.data.len());
                Advance { consumed, needed, parsed: consumed > 0 && worth, ..Advance::default() }
            }
            Progress::Error if flow.transport == Transport::Udp => {
                // Prevention does not give up a flow for a datagram that its receiver discards.
                self.failed_parsing |= !flow.prevents;
                Advance { parsed: worth, ..all }
            }
            Progress::Error | Progress::Refuse => {
                self.refuse(engine, flow);
                Advance { finished: true, parsed: true, ..all }
            }
            Progress::Switch { consumed, to } => {
                let consumed = consumed.min(input.data.len());
                self.begin_switch(direction, input.offset.saturating_add(consumed as u64), to);
                Advance { consumed, ..Advance::default() }
            }
            Progress::Stop { bypass } => {
                self.finished = true;
                Advance { finished: true, bypass, parsed: true, ..all }
            }
        }
    }

    /// Begins a switch to another protocol from `offset` on. The old parser stays until the new protocol is
    /// known; the caller records its transactions before it hands in more data.
    fn begin_switch(&mut self, direction: Direction, offset: u64, to: Option<&str>) {
        self.beyond_switch = (self.protocol, self.by_direction, self.original);
        self.original = self.protocol.protocol();
        self.expected = to.and_then(protocols::by_name).map(|(id, _)| id);
        self.protocol = DetectedProtocol::Pending;
        self.by_direction = PerDirection::default();
        self.detected = PerDirection::default();
        self.detect_from[direction] = offset;
        let other = direction.flip();
        self.detect_from[other] = self.seen[other];
        self.first_data = None;
        self.waiting = PerDirection::default();
        self.unproven = PerDirection::default();
        self.held = None;
        self.overdue = PerDirection::default();
        self.unlikely = PerDirection::default();
        (self.rivals, self.wanted) = (Rivals::Unasked, 0);
        self.switched = true;
    }

    /// Whether detection runs again for a direction's datagrams. Prevention cannot know which datagrams the
    /// receiver discards (hop limit, another hardware address, an option), so no datagram decides for later
    /// ones: not that there is no protocol, nor which one it is, nor its direction, unless the other side has
    /// answered in it.
    fn repeats_detection(&self, direction: Direction, flow: &FlowInfo) -> bool {
        let is_known = |known: DetectedProtocol| known.protocol().is_some();
        flow.prevents
            && !(is_known(self.by_direction[direction]) && is_known(self.by_direction[direction.flip()]))
    }

    /// Hands in a datagram.
    pub fn datagram(
        &mut self,
        engine: &Engine,
        direction: Direction,
        data: &[u8],
        flow: &FlowInfo,
    ) -> Advance {
        let again = self.repeats_detection(direction, flow);
        if data.is_empty() || self.finished && !again {
            return Advance { consumed: data.len(), finished: self.finished, ..Advance::default() };
        }
        if self.by_direction[direction] == DetectedProtocol::Pending || again {
            let other = self.by_direction[direction.flip()];
            let mut found = engine.detector.detect(Transport::Udp, direction, flow.ports, data, true);
            if flow.prevents
                && !matches!(found, Detected::Protocol(..))
                && let Likely::Yes(id) =
                    engine.detector.likely(Transport::Udp, direction, flow.ports, data, true)
            {
                found = Detected::Protocol(id, direction);
            }
            match found {
                Detected::Protocol(id, shown) => {
                    let open =
                        other == DetectedProtocol::Pending || again && other == DetectedProtocol::Failed;
                    if shown != direction && open {
                        return Advance { reverse: true, ..Advance::default() };
                    }
                    self.finished = false;
                    self.by_direction[direction] = DetectedProtocol::Protocol(id);
                    match other {
                        DetectedProtocol::Protocol(before) if before != id => {
                            self.events.set(event::MISMATCH_PROTOCOL_BOTH_DIRECTIONS);
                        }
                        _ => self.set_protocol(engine, id, Transport::Udp),
                    }
                }
                // The receiver may discard this datagram.
                Detected::Pending | Detected::Unknown
                    if self.by_direction[direction].protocol().is_some() => {}
                Detected::Pending | Detected::Unknown => match other {
                    DetectedProtocol::Protocol(_) => self.by_direction[direction] = other,
                    DetectedProtocol::Failed => {
                        self.by_direction[direction] = DetectedProtocol::Failed;
                        self.protocol = DetectedProtocol::Failed;
                        self.finished = true;
                    }
                    DetectedProtocol::Pending => {
                        self.by_direction[direction] = DetectedProtocol::Failed;
                        self.protocol = DetectedProtocol::Failed;
                    }
                },
            }
        }
        if self.parser.is_none() || self.finished {
            return Advance { consumed: data.len(), finished: self.finished, ..Advance::default() };
        }
        self.parse(engine, direction, Input { data, offset: 0, eof: false }, flow)
    }
}
