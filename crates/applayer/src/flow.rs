// SPDX-License-Identifier: Apache-2.0
//! The application layer of one flow: detects the protocol, drives its parser, holds its transactions.

use crate::detection::{self, Detected, Likely};
pub use crate::engine::Engine;
use crate::event::{self, Events};
use crate::file::FileSettings;
use crate::frames::Frames;
use crate::memory::Held as _;
use crate::protocol::{Input, ParseContext, Parser, Progress, ProtocolId, Transport};
use crate::protocols;
use crate::transaction::TxId;
use crate::worklist::Look;
use bartizan_base::{Direction, PacketDuration, Path, PerDirection, Timestamp};

mod breaks;
mod known;
mod readers;
mod rivals;

pub use known::{AppSummary, Known};
pub use readers::{HOLDS_MAX, HOLDS_SPAN};
use rivals::Rivals;

/// After this many bytes of one side an undetected protocol is given up (Suricata's number): so many wait at
/// most.
pub(crate) const OPEN_LIMIT: u64 = 100_000;
/// The same behind a switch of protocols, where the end of a side is enough, too (Suricata's number).
pub(crate) const SWITCHED_LIMIT: u64 = 4_096;

/// Why a direction cannot be read on although the flow goes on (docs/design/0010-streams-that-end-early.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disruption {
    /// The depth of reassembly is reached.
    Depth,
    /// Bytes are missing, and the parser cannot go on behind them.
    Gap,
    /// The parser gave up.
    Error,
    /// Nobody looks at the flow any more.
    Bypass,
    /// Memory for the application layer is used up, and this flow gives way.
    Memory,
}

/// What came of handing data in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advance {
    /// Bytes that are taken in and will not be shown again.
    pub consumed: usize,
    /// Bytes wanted beyond the consumed ones before the next call makes sense (0: any).
    pub needed: usize,
    /// The flow's directions are the wrong way round: the caller turns flow and session and calls
    /// [`AppLayer::turn`], then hands the data in again.
    pub reverse: bool,
    /// Data of the *other* direction that waited for detection can now be parsed: hand it in.
    pub other_side_ready: bool,
    /// That data came before this: hand it in first, then this once more.
    pub other_side_first: bool,
    /// No more data of this flow needs to be handed in.
    pub finished: bool,
    /// The parser says that the rest of the flow may be bypassed.
    pub bypass: bool,
    /// A parser took something in that is worth a look at the raw stream.
    pub parsed: bool,
}

/// How long bytes are held whose protocol is open: whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldBounds {
    /// Bytes of a direction; 0: nothing is held.
    pub bytes: u32,
    /// Time from the first byte that is held in the flow.
    pub time: PacketDuration,
}

/// What [`AppLayer::hold`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Nothing is to be held.
    No,
    /// It is to be held.
    Yes,
    /// A bound was reached just now.
    Over,
}

/// The application layer of a flow.
#[derive(Default)]
pub struct AppLayer {
    protocol: Known,
    by_direction: PerDirection<Known>,
    /// The protocol before a switch (STARTTLS, CONNECT, upgrade).
    original: Option<ProtocolId>,
    /// The protocol that a switch announced.
    expected: Option<ProtocolId>,
    /// A switch is under way: detection looks at bytes from these stream offsets on.
    detect_from: PerDirection<u64>,
    seen: PerDirection<u64>,
    /// Bytes were shown and not taken in, since the protocol is not known yet.
    waiting: PerDirection<bool>,
    /// Bytes that wait are read in the protocol that the other side has told; whether they show it is seen
    /// then.
    unproven: PerDirection<bool>,
    /// Since when bytes are held that detection cannot tell yet, and a rule may.
    held: Option<Timestamp>,
    /// A bound of holding was reached: bytes left, and count as of no protocol for as long as detection,
    /// which goes on, knows none.
    overdue: PerDirection<bool>,
    /// More bytes of the direction cannot make it likely that it speaks a protocol of ours.
    unlikely: PerDirection<bool>,
    parser: Option<Box<dyn Parser>>,
    /// The direction's parser gave up, or needs no more.
    stopped: PerDirection<bool>,
    first_data: Option<Direction>,
    /// Events that belong to no transaction.
    pub events: Events,
    /// How many of `events` were reported as anomaly records.
    pub events_logged: usize,
    finished: bool,
    /// Parsing failed in this flow.
    pub failed_parsing: bool,
    /// A parser could not go on behind missing bytes.
    pub lost_at_gap: bool,
    /// A switch of protocols was just begun.
    switched: bool,
    /// What was known before it, or what is known behind it while [`AppLayer::turn_switch`] shows the time
    /// before.
    beyond_switch: (Known, PerDirection<Known>, Option<ProtocolId>),
    /// The end of the direction's stream was told to the parser.
    ended: PerDirection<bool>,
    /// The direction cannot be read on.
    disrupted: PerDirection<Option<Disruption>>,
    /// Nothing of the direction is seen on this link.
    unseen: PerDirection<bool>,
    /// The parser was shown something of the direction since payload functions were shown its transactions.
    parsed: PerDirection<bool>,
    /// Detection of the direction's protocol had ended with a packet: [`AppLayer::take_detected`].
    detected: PerDirection<bool>,
    /// The direction's next packet is to be told so as well.
    detected_again: PerDirection<bool>,
    /// Frames, while somebody asks for them.
    frames: Option<Box<Frames>>,
    /// With transactions before these payload functions are done in the direction, or they are gone.
    done_to: PerDirection<TxId>,
    /// The payload functions that transactions had to wait for when records were last written.
    readers: Path,
    /// Transactions that functions hold, in the order in which they asked for it. Some may be gone.
    held_tx: Vec<TxId>,
    /// See [`FlowInfo::prevents`].
    prevents: bool,
    /// First bytes of the direction that did not come: they were given up before the protocol was known.
    missing: PerDirection<u64>,
    /// The reader stands before them: they may come yet.
    stands: PerDirection<bool>,
    /// Bytes of the direction were lost, not left unread.
    holes: PerDirection<bool>,
    /// First bytes of the direction were lost: passively nothing tells its protocol, nor that it has none.
    headless: PerDirection<bool>,
    /// Answers of receivers of other protocols to the client's first bytes.
    rivals: Rivals,
    /// Offset up to which the parser wants the client's bytes, while those receivers are shown more.
    wanted: u64,
}

/// What the caller tells about a flow with each call.
#[derive(Clone, Copy, Debug)]
pub struct FlowInfo {
    /// Packet clock.
    pub now: Timestamp,
    /// Ports: of the server (`to_server`) and of the client (`to_client`).
    pub ports: PerDirection<u16>,
    /// Transport.
    pub transport: Transport,
    /// What is handed in has not reached its receiver yet, and does not if rules say so: the protocol has to
    /// be known before the receiver acts, not from its answer ([`crate::detection::Detector::likely`]).
    pub prevents: bool,
    /// The flow's beginning was not seen, and what it says may show which side is the server; passively such
    /// a flow is of the protocol that the client's side tells, or of none.
    pub may_turn: bool,
}

impl AppLayer {
    /// What is known of the protocol, as plain values.
    #[must_use]
    pub fn summary(&self) -> AppSummary {
        let mut by_direction = self.by_direction();
        // What one direction cannot tell the other one may: passively nothing is decided before it has. Who
        // prevents cannot wait for it.
        if self.protocol == Known::Pending && !self.prevents {
            for direction in Direction::BOTH {
                if by_direction[direction] == Known::Failed {
                    by_direction[direction] = Known::Pending;
                }
            }
        }
        AppSummary { protocol: self.protocol, by_direction, original: self.original }
    }

    /// The flow's protocol.
    #[must_use]
    pub fn protocol(&self) -> Known {
        self.protocol
    }

    /// Whether what follows is encrypted, so that nothing of it can be read.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.parser.as_deref().is_some_and(Parser::is_encrypted)
    }

    /// What is known by direction (EVE's `app_proto_ts`, `app_proto_tc` where they differ).
    #[must_use]
    pub fn by_direction(&self) -> PerDirection<Known> {
        let mut by_direction = self.by_direction;
        for direction in Direction::BOTH {
            if self.overdue[direction] && by_direction[direction] == Known::Pending {
                by_direction[direction] = Known::Failed;
            }
            // As in Suricata, the other side's protocol is the only answer.
            let told_by_the_other = matches!(self.protocol, Known::Protocol(_));
            if self.headless[direction] && told_by_the_other && by_direction[direction] == Known::Failed {
                by_direction[direction] = Known::Pending;
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
            Known::Protocol(now) => now == id || self.parser.as_deref().and_then(Parser::begun) == Some(id),
            Known::Pending => self.expected == Some(id),
            Known::Failed => false,
        }
    }

    /// The protocol announced by a switch, when another one came.
    #[must_use]
    pub fn expected(&self) -> Option<ProtocolId> {
        self.expected
    }

    /// The flow's frames, if somebody asks for frames.
    #[must_use]
    pub fn frames(&self) -> Option<&Frames> {
        self.frames.as_deref()
    }

    /// The flow's frames, to note what was looked at.
    pub fn frames_mut(&mut self) -> Option<&mut Frames> {
        self.frames.as_deref_mut()
    }

    /// Shows what was known of the protocol before the switch that was just begun; called once more, what is
    /// known behind it.
    pub fn turn_switch(&mut self) {
        let now = (self.protocol, self.by_direction, self.original);
        (self.protocol, self.by_direction, self.original) = core::mem::replace(&mut self.beyond_switch, now);
    }

    /// With a packet of this direction: whether rules on the result of detection are asked. As in Suricata,
    /// that is with the packet with which detection of its direction ends, and with the direction's next one
    /// (once more behind a switch). A datagram, and the packet with which detection is given up, end it for
    /// both directions. Passively a segment is read when it is acknowledged: only the next packet is asked.
    pub fn take_detected(&mut self, direction: Direction, datagram: bool) -> bool {
        let again = core::mem::take(&mut self.detected_again[direction]);
        let known = self.summary().by_direction;
        let mut ended = PerDirection::<bool>::default();
        for side in Direction::BOTH {
            ended[side] =
                known[side] != Known::Pending && !core::mem::replace(&mut self.detected[side], true);
        }
        if (datagram || self.protocol == Known::Failed) && (ended.to_server || ended.to_client) {
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

    /// Whether transactions that were begun or changed wait to be inspected in a direction.
    #[must_use]
    pub fn has_uninspected(&self, direction: Direction) -> bool {
        let frames = self.frames.as_deref().is_some_and(|frames| !frames.due(direction, false).is_empty());
        frames || self.parser().is_some_and(|parser| parser.worklist().waits(Look::Inspect, direction))
    }

    /// Whether something waits for who writes records: events, frames, transactions.
    #[must_use]
    pub fn has_unrecorded(&self) -> bool {
        let waits = |parser: &dyn Parser| {
            Direction::BOTH.iter().any(|direction| parser.worklist().waits(Look::Record, *direction))
        };
        self.events.as_slice().len() > self.events_logged
            || self.frames.is_some()
            || self.parser().is_some_and(waits)
    }

    /// Whether with a packet of this direction there is nothing to be recorded, and nothing to be freed.
    #[must_use]
    pub fn is_recorded(&self, direction: Direction) -> bool {
        self.events.as_slice().len() == self.events_logged
            && self.frames.is_none()
            && self.parser().is_none_or(|parser| !parser.worklist().waits(Look::Record, direction))
    }

    /// Whether the parser was shown something of a direction since payload functions were shown its
    /// transactions.
    #[must_use]
    pub fn is_parsed(&self, direction: Direction) -> bool {
        self.parsed[direction]
    }

    /// The same; payload functions are shown them now.
    pub fn take_parsed(&mut self, direction: Direction) -> bool {
        core::mem::take(&mut self.parsed[direction])
    }

    /// Why a direction cannot be read on, if it cannot.
    #[must_use]
    pub fn disrupted(&self, direction: Direction) -> Option<Disruption> {
        self.disrupted[direction]
    }

    /// A direction cannot be read on: its open transactions, and all that begin later, count as ended there.
    /// Where the protocol is not known yet this direction will not tell it.
    pub fn disrupt(&mut self, engine: &Engine, direction: Direction, cause: Disruption, flow: &FlowInfo) {
        if self.disrupted[direction].is_some() {
            return;
        }
        if self.waiting[direction] && cause == Disruption::Depth {
            // What waits for the protocol lies before the depth: it is read first, should the other side
            // tell.
            self.unlikely[direction] = true;
            self.by_direction[direction] = match self.by_direction[direction] {
                Known::Pending => Known::Failed,
                known => known,
            };
            if self.protocol == Known::Pending && self.by_direction[direction.flip()] == Known::Failed {
                self.give_up(false);
            }
            return;
        }
        self.disrupted[direction] = Some(cause);
        self.stopped[direction] = true;
        self.parsed[direction] = true;
        if self.by_direction[direction] == Known::Pending {
            self.by_direction[direction] = Known::Failed;
            match self.by_direction[direction.flip()] {
                Known::Failed => drop(self.give_up(false)),
                Known::Protocol(_) | Known::Pending => {}
            }
        }
        self.finished |= self.stopped[direction.flip()];
        if let Some(parser) = self.parser.as_deref_mut() {
            let files = engine.files();
            parser.disrupt(direction, &mut context(flow, &files, &mut self.events));
        }
    }

    /// Nothing of a direction is seen on this link (`stream.async-oneside`), and the other one has been read:
    /// its transactions wait for no answer. The direction is read as ever should something come, which
    /// [`AppLayer::rejoin`] is told of.
    pub fn leave_out(&mut self, direction: Direction) {
        if self.unseen[direction] || self.parser.is_none() {
            return;
        }
        self.unseen[direction] = true;
        if let Some(parser) = self.parser.as_deref_mut() {
            parser.leave_out(direction);
        }
    }

    /// Both directions are seen after all.
    pub fn rejoin(&mut self) {
        for direction in Direction::BOTH {
            if core::mem::take(&mut self.unseen[direction])
                && let Some(parser) = self.parser.as_deref_mut()
            {
                parser.rejoin(direction);
            }
        }
    }

    /// Directions of which nothing is seen.
    #[must_use]
    pub fn unseen(&self) -> PerDirection<bool> {
        self.unseen
    }

    /// The parser, to mark and free transactions.
    pub fn parser_mut(&mut self) -> Option<&mut (dyn Parser + 'static)> {
        self.parser.as_deref_mut()
    }

    /// Whether the last call began a switch to another protocol; asking forgets it. The caller records and
    /// frees the old protocol's transactions before it hands in more data.
    pub fn take_switched(&mut self) -> bool {
        core::mem::take(&mut self.switched)
    }

    /// Whether bytes of a direction were shown that no parser has seen, since the protocol is not known.
    #[must_use]
    pub fn waits(&self, direction: Direction) -> bool {
        self.waiting[direction]
    }

    /// Whether no more data needs to be handed in.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.finished
    }

    /// Bytes of memory that parser and transactions hold; costs what was changed since it was asked last.
    pub fn held(&mut self) -> usize {
        let frames = self.frames.as_deref().map_or(0, Frames::held);
        let holds = self.held_tx.held().saturating_add(self.rivals.held());
        self.parser.as_deref_mut().map_or(0, Parser::held).saturating_add(frames).saturating_add(holds)
    }

    /// The application layer is given up for the rest of the flow: parser and transactions go. What they know
    /// is to be recorded before. The protocol stays known.
    pub fn close(&mut self, engine: &Engine, flow: &FlowInfo) {
        for direction in Direction::BOTH {
            self.disrupt(engine, direction, Disruption::Memory, flow);
        }
        self.finished = true;
        self.parser = None;
    }

    /// The flow was the wrong way round: exchanges what is kept by direction.
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
                Known::Protocol(id) if detection::shows(id, direction, input.data) => {
                    self.by_direction[direction] = self.protocol;
                }
                _ => self.events.set(event::DETECT_PROTOCOL_ONLY_ONE_DIRECTION),
            }
        }
        self.seen[direction] = input.offset.saturating_add(input.data.len() as u64);
        if !input.data.is_empty() && core::mem::take(&mut self.stands[direction]) {
            // What was missing came late. Suricata asks the other side what it is; who prevents asks what
            // came.
            self.missing[direction] = 0;
            if flow.prevents && self.protocol == Known::Pending {
                self.unlikely[direction] = false;
                self.by_direction[direction] = Known::Pending;
            }
        }
        if self.protocol == Known::Pending || self.by_direction[direction] == Known::Pending {
            if input.data.is_empty() {
                return Advance::default();
            }
            if let Some(early) = self.detect_stream(engine, direction, input, flow) {
                return early;
            }
        }
        self.waiting[direction] = false;
        if let Known::Protocol(id) = self.protocol
            && self.is_contested(engine, (direction, id), &input, flow)
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

    /// Detection for streams. `None`: go on and parse. Some: return that; what was shown is kept, unless
    /// detection is over.
    fn detect_stream(
        &mut self,
        engine: &Engine,
        direction: Direction,
        input: Input<'_>,
        flow: &FlowInfo,
    ) -> Option<Advance> {
        self.prevents = flow.prevents;
        let other = self.by_direction[direction.flip()];
        if self.by_direction[direction] == Known::Pending {
            // Passively the end of a stream settles nothing, as in Suricata; who prevents wants to know.
            // Where the other side has told the protocol, what waits is parsed in any case.
            let eof = input.eof && (flow.prevents || self.protocol.protocol().is_some());
            let mut found = engine.detector.detect(Transport::Tcp, direction, flow.ports, input.data, eof);
            // What nothing tells by itself may be an answer in the protocol that the other side has told.
            if let (Detected::Pending | Detected::Unknown, Known::Protocol(id)) = (found, self.protocol)
                && detection::shows(id, direction, input.data)
            {
                found = Detected::Protocol(id, direction);
            }
            match found {
                Detected::Protocol(_, shown)
                    if shown != direction && other == Known::Pending && self.parser.is_none() =>
                {
                    return Some(Advance { reverse: true, ..Advance::default() });
                }
                Detected::Protocol(id, _) => {
                    self.by_direction[direction] = Known::Protocol(id);
                    // The other side's detection ends here, too: rules on the result are asked of it again.
                    self.detected[direction.flip()] &= other != Known::Failed;
                    match self.protocol {
                        Known::Protocol(before) if before != id => {
                            self.events.set(event::MISMATCH_PROTOCOL_BOTH_DIRECTIONS);
                        }
                        // The other side was likely to speak it, but did not say so.
                        Known::Protocol(_) if other == Known::Failed => {
                            self.events.set(event::DETECT_PROTOCOL_ONLY_ONE_DIRECTION);
                        }
                        _ => self.settle(engine, id, flow.transport),
                    }
                    return self.other_side_first(direction);
                }
                Detected::Pending | Detected::Unknown
                    if flow.may_turn
                        && other == Known::Pending
                        && self.parser.is_none()
                        && engine.detector.is_the_other_way(direction, input.data) =>
                {
                    return Some(Advance { reverse: true, ..Advance::default() });
                }
                Detected::Pending
                    if !flow.prevents || engine.detector.is_open(direction, flow.ports, input.data) => {}
                Detected::Pending | Detected::Unknown => {
                    self.by_direction[direction] = Known::Failed;
                    if self.protocol != Known::Pending {
                        self.events.set(event::DETECT_PROTOCOL_ONLY_ONE_DIRECTION);
                        return None;
                    }
                    // Suricata would take what is left of a request for one.
                    if direction == Direction::ToServer && flow.may_turn && !flow.prevents {
                        return Some(self.give_up(false));
                    }
                }
            }
        }
        self.unlikely[direction] |= !flow.prevents;
        if self.protocol == Known::Pending && !self.unlikely[direction] {
            match engine.detector.likely(Transport::Tcp, direction, flow.ports, input.data, input.eof) {
                Likely::Yes(id) => {
                    self.by_direction[direction] = Known::Failed;
                    self.settle(engine, id, flow.transport);
                    return self.other_side_first(direction);
                }
                Likely::More => {}
                Likely::No => self.unlikely[direction] = true,
            }
        }
        // A client of a protocol of ours speaks first, and is answered in it: where the server has said
        // something else, nothing is waited for.
        // Behind a switch that may be what is left of an answer.
        let begins = !flow.may_turn && self.original.is_none();
        self.unlikely.to_server |= begins && self.is_foreign(Direction::ToClient);
        if self.protocol == Known::Pending
            && Direction::BOTH.iter().all(|direction| self.is_foreign(*direction))
        {
            return Some(self.give_up(false));
        }
        if self.protocol == Known::Pending
            && self.original.is_some()
            && (input.eof || input.data.len() as u64 >= SWITCHED_LIMIT)
        {
            return Some(self.give_up(false));
        }
        Some(self.keep(direction, input))
    }

    /// Whether a direction's bytes are of no protocol of ours.
    fn is_foreign(&self, direction: Direction) -> bool {
        self.by_direction[direction] == Known::Failed && self.unlikely[direction]
    }

    /// Keeps what was shown until the protocol is known; or gives it up where that takes too much.
    fn keep(&mut self, direction: Direction, input: Input<'_>) -> Advance {
        let held = input.data.len() as u64;
        if self.protocol == Known::Pending && held > OPEN_LIMIT {
            return self.give_up(true);
        }
        self.waiting[direction] = true;
        // More bytes of a side that can tell nothing any more need not be shown.
        let silent = self.is_foreign(direction);
        let needed = if silent { OPEN_LIMIT.saturating_add(1) } else { held.saturating_add(1) };
        Advance { needed: usize::try_from(needed).unwrap_or(usize::MAX), ..Advance::default() }
    }

    /// The protocol is known now: what the other side sent before goes first, so that a request is parsed
    /// before its answer.
    fn other_side_first(&mut self, direction: Direction) -> Option<Advance> {
        let other = direction.flip();
        if !self.waiting[other]
            || self.first_data != Some(other)
            || self.parser.is_none()
            || self.missing[other] > 0
        {
            return None;
        }
        // Its bytes are taken for what this side says.
        if !matches!(self.by_direction[other], Known::Protocol(_)) {
            self.by_direction[other] = Known::Failed;
            self.unproven[other] = true;
        }
        self.waiting[direction] = true;
        Some(Advance { other_side_first: true, ..Advance::default() })
    }

    /// Whether what a direction sent must not go on yet: detection has seen it and can only tell with more of
    /// it. At the bounds it goes: what came counts as of no protocol, and rules may say what becomes of it.
    /// Detection of the direction goes on with what follows, as where nothing is held: the bytes stay, and
    /// are parsed once the protocol is known.
    pub fn hold(&mut self, direction: Direction, now: Timestamp, bounds: &HoldBounds) -> Hold {
        if self.protocol != Known::Pending
            || self.by_direction[direction] != Known::Pending
            || !self.waiting[direction]
            || self.overdue[direction]
        {
            return Hold::No;
        }
        let since = *self.held.get_or_insert(now);
        let bytes = self.seen[direction].saturating_sub(self.detect_from[direction]);
        if now.since(since) < bounds.time && bytes <= u64::from(bounds.bytes) {
            return Hold::Yes;
        }
        self.overdue[direction] = true;
        Hold::Over
    }

    fn give_up(&mut self, skipped: bool) -> Advance {
        if skipped {
            self.events.set(event::PROTO_DETECTION_SKIPPED);
        }
        self.protocol = Known::Failed;
        self.by_direction = PerDirection::new(Known::Failed, Known::Failed);
        self.finished = true;
        Advance { finished: true, ..Advance::default() }
    }

    /// A protocol is known: makes its parser, unless one is there.
    fn settle(&mut self, engine: &Engine, id: ProtocolId, transport: Transport) {
        if self.protocol.protocol() == Some(id) && self.parser.is_some() {
            return;
        }
        self.protocol = Known::Protocol(id);
        self.parser = engine.make(id, transport);
        if let Some(notes) = self.parser.as_deref_mut().and_then(Parser::frames) {
            self.frames = engine.frames();
            notes.on = self.frames.is_some();
        }
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

    fn parse(&mut self, engine: &Engine, direction: Direction, input: Input<'_>, flow: &FlowInfo) -> Advance {
        let all = Advance { consumed: input.data.len(), ..Advance::default() };
        let Some(parser) = self.parser.as_deref_mut() else {
            self.finished = self.protocol != Known::Pending;
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
        let worth = parser.wants_raw(direction);
        if input.eof && !matches!(progress, Progress::Switch { .. } | Progress::Error) {
            parser.end(direction, &mut context);
        }
        match progress {
            Progress::Done => Advance { parsed: !input.data.is_empty() && worth, ..all },
            Progress::Incomplete { consumed, needed } => {
                let consumed = consumed.min(input.data.len());
                Advance { consumed, needed, parsed: consumed > 0 && worth, ..Advance::default() }
            }
            Progress::Error if flow.transport == Transport::Udp => Advance { parsed: worth, ..all },
            Progress::Error => {
                self.failed_parsing = true;
                for direction in Direction::BOTH {
                    self.disrupt(engine, direction, Disruption::Error, flow);
                }
                self.finished = true;
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

    /// From `offset` on the flow speaks another protocol. The old parser stays until the new one is known, so
    /// that its transactions can still be logged; the caller logs them before it hands in more data.
    fn begin_switch(&mut self, direction: Direction, offset: u64, to: Option<&str>) {
        self.beyond_switch = (self.protocol, self.by_direction, self.original);
        self.original = self.protocol.protocol();
        self.expected = to.and_then(protocols::by_name).map(|(id, _)| id);
        self.protocol = Known::Pending;
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

    /// Whether a direction's datagrams are asked once more what they are. Who prevents cannot tell which of
    /// them the receiver throws away (hops run out, another hardware address, an option), so none decides for
    /// those behind it: not that there is no protocol, and not which, nor whose direction it is, unless the
    /// other side has answered in it.
    fn asks_again(&self, direction: Direction, flow: &FlowInfo) -> bool {
        let is_known = |known: Known| known.protocol().is_some();
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
        let again = self.asks_again(direction, flow);
        if data.is_empty() || self.finished && !again {
            return Advance { consumed: data.len(), finished: self.finished, ..Advance::default() };
        }
        if self.by_direction[direction] == Known::Pending || again {
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
                    let open = other == Known::Pending || again && other == Known::Failed;
                    if shown != direction && open {
                        return Advance { reverse: true, ..Advance::default() };
                    }
                    self.finished = false;
                    self.by_direction[direction] = Known::Protocol(id);
                    match other {
                        Known::Protocol(before) if before != id => {
                            self.events.set(event::MISMATCH_PROTOCOL_BOTH_DIRECTIONS);
                        }
                        _ => self.settle(engine, id, Transport::Udp),
                    }
                }
                // It may be one that the receiver throws away.
                Detected::Pending | Detected::Unknown
                    if self.by_direction[direction].protocol().is_some() => {}
                Detected::Pending | Detected::Unknown => match other {
                    Known::Protocol(_) => self.by_direction[direction] = other,
                    Known::Failed => {
                        self.by_direction[direction] = Known::Failed;
                        self.protocol = Known::Failed;
                        self.finished = true;
                    }
                    Known::Pending => {
                        self.by_direction[direction] = Known::Failed;
                        self.protocol = Known::Failed;
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

/// What a parser may ask of the flow.
fn context<'c>(flow: &FlowInfo, files: &'c FileSettings, events: &'c mut Events) -> ParseContext<'c> {
    ParseContext {
        now: flow.now,
        server_port: flow.ports.to_server,
        client_port: flow.ports.to_client,
        transport: flow.transport,
        files,
        prevents: flow.prevents,
        events,
    }
}

impl core::fmt::Debug for AppLayer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("AppLayer")
            .field("protocol", &self.protocol)
            .field("by_direction", &self.by_direction)
            .field("finished", &self.finished)
            .finish_non_exhaustive()
    }
}
