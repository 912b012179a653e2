// SPDX-License-Identifier: Apache-2.0
//! Classification of segments for the stateful firewall's table ([`crate::sfw_table`]): the part that has to
//! be code.
//!
//! Sources: RFC 9293 sections 3.4 to 3.10 (states, windows, RST), RFC 7323 section 5 (timestamps). Tracking
//! reports the meaning of a segment ([`Outcome`]); the table refuses every segment that the receiver's state
//! would not accept. Old data that a sender may have had in flight ([`TcpSession::oldest`]) is forwarded: its
//! sender waits for the ACK that it provokes.

use crate::sfw_table::{self, KINDS, SegmentClass, SegmentKind, SegmentPosition, Transition};
use bartizan_base::Direction;
use bartizan_flow::tcp::{Outcome, Seq, StreamEvent, TcpSession, TcpState};
use bartizan_packet::{Tcp, TcpFlags};

/// Largest distance of a quoted segment before the sent data until there is an acknowledgement: the largest
/// unscaled window.
const OLD_WINDOW: u32 = 65_535;
/// Largest distance of a quoted segment before the acknowledged data.
const QUOTED_BEHIND: u32 = 1 << 20;

/// A policy's checks of TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    /// Numbers must be in the window.
    pub window_check: bool,
    /// The beginning of a connection must have been seen.
    pub beginning: bool,
    /// Whether one-sided connections are inspected without being enforced.
    pub one_sided_inspected: bool,
}

bitflags::bitflags! {
    /// Properties of a segment and its connection.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Facts: u16 {
        /// The checksum is wrong.
        const UNREAD = 1;
        /// There is a connection after the segment.
        const CONNECTION = 1 << 1;
        /// It was picked up in the middle.
        const MIDSTREAM = 1 << 2;
        /// Only one direction of it is visible.
        const ASYNC = 1 << 3;
        /// It is one-sided for a policy: one direction of forwarded packets is not visible.
        const ONE_SIDED = 1 << 4;
        /// Tracking rejects the segment.
        const REJECTED = 1 << 5;
        /// It is data that was acknowledged before.
        const OLD = 1 << 6;
        /// Tracking finds its numbers wrong.
        const NUMBERS = 1 << 7;
        /// Its data ends before all data that its sender may have in flight.
        const TOO_OLD = 1 << 8;
        /// It is data of the server in the place of the client's ACK.
        const INJECTED = 1 << 9;
        /// It is a leftover of an ended connection.
        const REST = 1 << 10;
        /// It brings no data.
        const BARE = 1 << 11;
        /// It changes the connection's state.
        const MOVES = 1 << 12;
    }
}

/// The inputs of a segment's classification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentInputs {
    /// Kind by its flags.
    pub kind: SegmentKind,
    /// State before it.
    pub previous: TcpState,
    /// The sender.
    pub direction: Direction,
    /// The segment's properties.
    pub facts: Facts,
}

/// A segment with the result of tracking.
#[derive(Clone, Copy)]
pub(crate) struct Tracked<'t> {
    pub outcome: &'t Outcome,
    pub session: &'t TcpSession,
    pub segment: &'t Tcp,
    pub payload_len: u32,
    pub direction: Direction,
    /// The flow counts as established.
    pub established: bool,
}

impl Tracked<'_> {
    /// The table's decision on it.
    #[inline]
    pub(crate) fn cell(&self, wants: Wants) -> Transition {
        if self.is_plain() {
            return sfw_table::transition(TcpState::Established, plain(self.direction));
        }
        let input = SegmentInputs::new(self);
        sfw_table::transition(input.previous, input.class(wants))
    }

    /// Whether it is a plain segment of an established connection, as nearly all are: its class is known
    /// without its properties.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        let Tracked { outcome, session, segment, payload_len, direction, .. } = *self;
        let flags = segment.flags & (TcpFlags::FIN | TcpFlags::SYN | TcpFlags::RST | TcpFlags::ACK);
        flags == TcpFlags::ACK
            && outcome.previous == TcpState::Established
            && outcome.state == TcpState::Established
            && !outcome.rejected
            && !outcome.checksum_invalid
            && outcome.events.is_empty()
            && !session.is_midstream()
            && !session.is_async()
            && !Seq(segment.seq).plus(payload_len).before(session.oldest(direction))
    }
}

/// The class of plain segments.
pub(crate) const fn plain(direction: Direction) -> SegmentClass {
    SegmentClass::taken(SegmentKind::Ack, SegmentPosition::Unchanged, direction)
}

/// The kind of a segment by its flags.
pub(crate) fn kind(flags: TcpFlags) -> SegmentKind {
    let bits = flags.bits();
    // FIN, SYN and RST are the lowest bits; ACK is bit 4.
    let place = bits & 7 | (bits & TcpFlags::ACK.bits()) >> 1;
    KINDS.get(usize::from(place)).copied().unwrap_or(SegmentKind::Broken)
}

impl SegmentInputs {
    /// The inputs for a segment that tracking has handled.
    pub(crate) fn new(tracked: &Tracked<'_>) -> Self {
        let Tracked { outcome, session, segment, payload_len, direction, established } = *tracked;
        let previous = outcome.previous;
        let (is_async, midstream) = (session.is_async(), session.is_midstream());
        let end = Seq(segment.seq).plus(payload_len);
        let mut facts = Facts::empty();
        facts.set(Facts::UNREAD, outcome.checksum_invalid);
        facts.set(Facts::CONNECTION, session.exists());
        facts.set(Facts::MIDSTREAM, midstream);
        facts.set(Facts::ASYNC, is_async);
        facts.set(Facts::ONE_SIDED, is_async && (established || midstream));
        facts.set(Facts::REJECTED, outcome.rejected);
        // A new connection may begin at any number (RFC 6528); the server answers by its own state (RFC 5961
        // section 4).
        let opens = kind(segment.flags) == SegmentKind::Syn;
        facts.set(Facts::TOO_OLD, !opens && end.before(session.oldest(direction)));
        facts.set(Facts::BARE, payload_len == 0);
        facts.set(Facts::MOVES, outcome.state != previous);
        if previous == TcpState::Closed {
            facts.set(Facts::REST, is_rest(session, segment.seq, payload_len, direction));
        }
        for event in outcome.events.iter() {
            facts.set(Facts::OLD, facts.contains(Facts::OLD) || is_old(event));
            // A RST with an old timestamp that tracking forwards is not believed.
            let numbers =
                is_about_numbers(event) && (outcome.rejected || event != StreamEvent::PktInvalidTimestamp);
            facts.set(Facts::NUMBERS, facts.contains(Facts::NUMBERS) || numbers);
            let injected = event == StreamEvent::ThreeWayAckDataInject;
            facts.set(Facts::INJECTED, facts.contains(Facts::INJECTED) || injected);
        }
        SegmentInputs { kind: kind(segment.flags), previous, direction, facts }
    }

    /// The class, by a policy's checks. Checks come before states: a check's result is the same in every
    /// state.
    pub(crate) fn class(&self, wants: Wants) -> SegmentClass {
        let has = |fact| self.facts.contains(fact);
        if wants.one_sided_inspected && has(Facts::ONE_SIDED) {
            return SegmentClass::ONE_SIDED;
        }
        if self.kind == SegmentKind::Broken {
            return SegmentClass::BROKEN;
        }
        if has(Facts::UNREAD) {
            return SegmentClass::UNREAD;
        }
        if !has(Facts::CONNECTION) || (wants.beginning && has(Facts::MIDSTREAM)) {
            return SegmentClass::NO_CONNECTION;
        }
        if has(Facts::REJECTED) && !has(Facts::OLD) {
            // A RST that the receiver would not accept is refused without an event.
            let numbers =
                has(Facts::NUMBERS) || (self.kind == SegmentKind::Rst && self.previous != TcpState::None);
            return match (numbers, wants.window_check) {
                (true, true) => SegmentClass::OUT_OF_WINDOW,
                (true, false) => SegmentClass::UNCHECKED,
                (false, _) => SegmentClass::REFUSED,
            };
        }
        let known = self.previous >= TcpState::Established && !has(Facts::ASYNC);
        if wants.window_check && (has(Facts::NUMBERS) || (known && has(Facts::TOO_OLD))) {
            return SegmentClass::OUT_OF_WINDOW;
        }
        if has(Facts::INJECTED) {
            return SegmentClass::INJECTED;
        }
        SegmentClass::taken(self.kind, self.place(), self.direction)
    }

    fn place(&self) -> SegmentPosition {
        let has = |fact| self.facts.contains(fact);
        if has(Facts::MOVES) {
            return SegmentPosition::Moves;
        }
        let expected = match self.previous {
            // The reply of a server that has an older connection of these ports (RFC 5961 section 4);
            // one-sided connections have no such reply.
            TcpState::SynSent => {
                has(Facts::ASYNC) || (self.direction == Direction::ToClient && has(Facts::BARE))
            }
            TcpState::Closed => has(Facts::REST),
            _ => false,
        };
        if expected { SegmentPosition::Expected } else { SegmentPosition::Unchanged }
    }
}

fn is_about_numbers(event: StreamEvent) -> bool {
    let name = event.rule_name();
    event != StreamEvent::PktBadWindowUpdate
        && ["window", "wrong_seq", "diff_seq", "_ack", "timestamp"].iter().any(|part| name.contains(part))
        && !matches!(
            event,
            StreamEvent::EstPktBeforeLastAck
                | StreamEvent::ClosewaitPktBeforeLastAck
                | StreamEvent::EstAckZwpData
                | StreamEvent::PktBrokenAck
                // Tracking forwards or refuses it.
                | StreamEvent::EstSynResendDiffSeq
                | StreamEvent::ThreeWayAckInWrongDir
                | StreamEvent::ThreeWayAckDataInject
        )
}

/// Whether the event is about data that was acknowledged before; its distance decides.
const fn is_old(event: StreamEvent) -> bool {
    matches!(event, StreamEvent::EstPktBeforeLastAck | StreamEvent::ClosewaitPktBeforeLastAck)
}

/// Whether a segment is a leftover of an ended connection. After both FINs: data sent before, because the
/// last acknowledgement was lost. After a RST: data in flight when it passed, at most the window offered
/// then, which no longer moves; both ends discard it, and the stream engine still inspects it in case one of
/// them does not.
fn is_rest(session: &TcpSession, seq: u32, payload_len: u32, direction: Direction) -> bool {
    let end = Seq(seq).plus(payload_len);
    if session.closed_by_rst() {
        // A side that has sent a RST sends nothing new.
        let has_reset = session.tcp_flags(direction).bits() & TcpFlags::RST.bits() != 0;
        let edge = if has_reset { session.next_seq(direction) } else { session.window_edge(direction) };
        return end.at_most(edge) && end.at_least(session.last_ack(direction).minus(QUOTED_BEHIND));
    }
    payload_len == 0 || end.at_most(session.next_seq(direction))
}

/// Whether a sequence number quoted by an ICMP error is one that the side has sent recently (RFC 5927 section
/// 4.1).
pub(crate) fn was_sent(session: &TcpSession, direction: Direction, seq: u32) -> bool {
    let seq = Seq(seq);
    let (next, acknowledged) = (session.next_seq(direction), session.last_ack(direction));
    // Before the first ACK of the other side there is no lower bound.
    let known = session.state() >= TcpState::Established;
    seq.at_most(next)
        && (if known {
            seq.at_least(acknowledged.minus(QUOTED_BEHIND))
        } else {
            seq.at_least(next.minus(OLD_WINDOW))
        })
}
