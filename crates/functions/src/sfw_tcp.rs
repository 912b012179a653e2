// SPDX-License-Identifier: Apache-2.0
//! Which class a segment is of, for the stateful firewall's table ([`crate::sfw_table`]): the part that has
//! to be code.
//!
//! Sources: RFC 9293 sections 3.4 to 3.10 (states, windows, RST), RFC 7323 section 5 (timestamps). The
//! tracking says what a segment meant ([`Outcome`]); the table refuses every segment that the receiver's
//! state would not take. Old data that a sender may have had under way ([`TcpSession::oldest`]) goes on: its
//! sender waits for the ACK that it provokes.

use crate::sfw_table::{self, KINDS, Kind, Place, SegmentClass, Transition};
use bartizan_base::Direction;
use bartizan_flow::tcp::{Outcome, Seq, StreamEvent, TcpSession, TcpState};
use bartizan_packet::{Tcp, TcpFlags};

/// Before anything is acknowledged a quoted segment may be this far behind what was sent: the largest
/// unscaled window.
const OLD_WINDOW: u32 = 65_535;
/// A quoted segment may be this far behind what is acknowledged.
const QUOTED_BEHIND: u32 = 1 << 20;

/// What a policy wants of TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    /// Numbers lie in the window.
    pub window_check: bool,
    /// Connections have a beginning that was seen.
    pub beginning: bool,
    /// One-sided connections are only inspected.
    pub one_sided_inspected: bool,
}

bitflags::bitflags! {
    /// What was compared or is known of a segment and its connection.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Facts: u16 {
        /// The checksum is wrong.
        const UNREAD = 1;
        /// There is a connection, behind the segment.
        const CONNECTION = 1 << 1;
        /// It was picked up in the middle.
        const MIDSTREAM = 1 << 2;
        /// Only one direction of it is seen.
        const ASYNC = 1 << 3;
        /// It is one-sided for a policy: one direction of what goes on is not seen.
        const ONE_SIDED = 1 << 4;
        /// Tracking does not take the segment.
        const REJECTED = 1 << 5;
        /// It is data that was acknowledged before.
        const OLD = 1 << 6;
        /// Tracking finds its numbers wrong.
        const NUMBERS = 1 << 7;
        /// Its data ends before all that its sender may have under way.
        const TOO_OLD = 1 << 8;
        /// It is data of the server in the place of the client's ACK.
        const INJECTED = 1 << 9;
        /// It is what an ended connection leaves behind.
        const REST = 1 << 10;
        /// It brings no data.
        const BARE = 1 << 11;
        /// It changes the connection's state.
        const MOVES = 1 << 12;
    }
}

/// A segment, as far as its class depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Input {
    /// By its flags.
    pub kind: Kind,
    /// State before it.
    pub previous: TcpState,
    /// Who sent it.
    pub direction: Direction,
    /// What is known.
    pub facts: Facts,
}

/// A segment that tracking has seen, with what it said.
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
    /// What the table says of it.
    #[inline]
    pub(crate) fn cell(&self, wants: Wants) -> Transition {
        if self.is_plain() {
            return sfw_table::transition(TcpState::Established, plain(self.direction));
        }
        let input = Input::new(self);
        sfw_table::transition(input.previous, input.class(wants))
    }

    /// Whether it plainly goes on with an established connection, as nearly all segments do: its class is
    /// known without its facts.
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

/// The class of such segments.
pub(crate) const fn plain(direction: Direction) -> SegmentClass {
    SegmentClass::taken(Kind::Ack, Place::Stays, direction)
}

/// What a segment is by its flags.
pub(crate) fn kind(flags: TcpFlags) -> Kind {
    let bits = flags.bits();
    // FIN, SYN and RST are the lowest bits; ACK is bit 4.
    let place = bits & 7 | (bits & TcpFlags::ACK.bits()) >> 1;
    KINDS.get(usize::from(place)).copied().unwrap_or(Kind::Broken)
}

impl Input {
    /// Looks at a segment that tracking has seen.
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
        // Who opens anew begins anywhere (RFC 6528); the server answers it by what it has (RFC 5961 section
        // 4).
        let opens = kind(segment.flags) == Kind::Syn;
        facts.set(Facts::TOO_OLD, !opens && end.before(session.oldest(direction)));
        facts.set(Facts::BARE, payload_len == 0);
        facts.set(Facts::MOVES, outcome.state != previous);
        if previous == TcpState::Closed {
            facts.set(Facts::REST, is_rest(session, segment.seq, payload_len, direction));
        }
        for event in outcome.events.iter() {
            facts.set(Facts::OLD, facts.contains(Facts::OLD) || is_old(event));
            // A RST with an old timestamp that tracking lets go on is not believed.
            let numbers =
                is_about_numbers(event) && (outcome.rejected || event != StreamEvent::PktInvalidTimestamp);
            facts.set(Facts::NUMBERS, facts.contains(Facts::NUMBERS) || numbers);
            let injected = event == StreamEvent::ThreeWayAckDataInject;
            facts.set(Facts::INJECTED, facts.contains(Facts::INJECTED) || injected);
        }
        Input { kind: kind(segment.flags), previous, direction, facts }
    }

    /// The class, by a policy's wishes. Checks come before states: what one of them decides is the same in
    /// every state.
    pub(crate) fn class(&self, wants: Wants) -> SegmentClass {
        let has = |fact| self.facts.contains(fact);
        if wants.one_sided_inspected && has(Facts::ONE_SIDED) {
            return SegmentClass::ONE_SIDED;
        }
        if self.kind == Kind::Broken {
            return SegmentClass::BROKEN;
        }
        if has(Facts::UNREAD) {
            return SegmentClass::UNREAD;
        }
        if !has(Facts::CONNECTION) || (wants.beginning && has(Facts::MIDSTREAM)) {
            return SegmentClass::NO_CONNECTION;
        }
        if has(Facts::REJECTED) && !has(Facts::OLD) {
            // A RST that the receiver would not take is refused without an event.
            let numbers = has(Facts::NUMBERS) || (self.kind == Kind::Rst && self.previous != TcpState::None);
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

    fn place(&self) -> Place {
        let has = |fact| self.facts.contains(fact);
        if has(Facts::MOVES) {
            return Place::Moves;
        }
        let expected = match self.previous {
            // The answer of a server that has an older connection of these ports (RFC 5961 section 4);
            // one-sided connections have none to show.
            TcpState::SynSent => {
                has(Facts::ASYNC) || (self.direction == Direction::ToClient && has(Facts::BARE))
            }
            TcpState::Closed => has(Facts::REST),
            _ => false,
        };
        if expected { Place::Expected } else { Place::Stays }
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
                // Tracking lets it go on, or refuses it.
                | StreamEvent::EstSynResendDiffSeq
                | StreamEvent::ThreeWayAckInWrongDir
                | StreamEvent::ThreeWayAckDataInject
        )
}

/// Data that was acknowledged before; how far before decides.
const fn is_old(event: StreamEvent) -> bool {
    matches!(event, StreamEvent::EstPktBeforeLastAck | StreamEvent::ClosewaitPktBeforeLastAck)
}

/// Whether a segment is what an ended connection leaves behind. After both FINs: what was sent before,
/// because the last acknowledgement was lost. After a RST: what was under way when it passed, at most the
/// window that was offered then, which no longer moves; both ends throw it away, and the stream engine shows
/// it to its readers as before, should one of them not.
fn is_rest(session: &TcpSession, seq: u32, payload_len: u32, direction: Direction) -> bool {
    let end = Seq(seq).plus(payload_len);
    if session.closed_by_rst() {
        // Who has sent a RST sends nothing new.
        let has_reset = session.tcp_flags(direction).bits() & TcpFlags::RST.bits() != 0;
        let edge = if has_reset { session.next_seq(direction) } else { session.window_edge(direction) };
        return end.at_most(edge) && end.at_least(session.last_ack(direction).minus(QUOTED_BEHIND));
    }
    payload_len == 0 || end.at_most(session.next_seq(direction))
}

/// Whether a sequence number that an ICMP error quotes is one that the side has sent lately (RFC 5927 section
/// 4.1).
pub(crate) fn was_sent(session: &TcpSession, direction: Direction, seq: u32) -> bool {
    let seq = Seq(seq);
    let (next, acknowledged) = (session.next_seq(direction), session.last_ack(direction));
    // Before the first ACK of the other side there is nothing to compare the lower end with.
    let known = session.state() >= TcpState::Established;
    seq.at_most(next)
        && (if known {
            seq.at_least(acknowledged.minus(QUOTED_BEHIND))
        } else {
            seq.at_least(next.minus(OLD_WINDOW))
        })
}
