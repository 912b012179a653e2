// SPDX-License-Identifier: Apache-2.0
//! The path of a segment through a session: checks before the state's handler, the handler, reassembly, and
//! the advice.

use super::config::COOKIE_REACH;
use super::peer::PeerFlags;
use super::session::{SessionFlags, WINDOW_SLACK};
use super::step::SegmentStep;
use super::{
    Advice, Arrival, Outcome, PacketKind, Segment, Seq, SessionPhase, StreamConfig, StreamContext,
    StreamCounters, StreamEvent, TcpFlags, TcpSession, TcpState, UrgentPolicy,
};
use crate::stream::{Stream, StreamPair};
use bartizan_base::{Direction, Reason};

/// The flags that distinguish the kinds of opening segments.
const OPENING: TcpFlags = TcpFlags::SYN.union(TcpFlags::ACK).union(TcpFlags::RST).union(TcpFlags::FIN);

/// [`COOKIE_REACH`], with a margin, for a connection whose beginning is unacknowledged.
const COOKIE_SLACK: u32 = 8;

/// Most data of a segment that may get bytes in front: with them it fits every link of IPv6 (1,280 bytes).
pub(crate) const COMPLETED_MOST: u32 = 1280 - 40 - 60 - COOKIE_SLACK;

/// Largest distance of data beyond the known window.
const SLACK_MAX: u32 = 1 << 29;

/// The error for a segment that a receiver may read in another way than it would be inspected.
struct Differs;

/// Result of the checks of a segment before the session's states see it.
struct Entrance {
    /// It has data at another beginning than the current one.
    foreign: bool,
    /// The change that it needs before a real receiver.
    change: Advice,
}

impl TcpSession {
    /// Handles one segment. `streams` is the flow's reassembly, absent while no function needs payloads.
    ///
    /// Afterwards the caller runs the readers of the directions in [`Outcome::readable`] and then
    /// [`StreamPair::end_packet`]. A packet with [`Outcome::reuse`] was not handled: it belongs to a new
    /// flow.
    pub fn handle(
        &mut self,
        segment: &Segment<'_>,
        arrival: Arrival,
        streams: Option<&mut StreamPair>,
        context: &mut StreamContext<'_>,
        out: &mut Outcome,
    ) {
        *out = Outcome { previous: self.state, state: self.state, ..Outcome::default() };
        count_flags(segment, context.counters);
        if context.config.checksum_validation && !segment.checksum_ok {
            context.counters.invalid_checksum = context.counters.invalid_checksum.wrapping_add(1);
            out.checksum_invalid = true;
            return;
        }
        if self.is_reused_by(segment, arrival.direction, context.config)
            || self.begins_elsewhere(segment, arrival.direction, streams.as_deref(), context.config)
        {
            out.reuse = true;
            return;
        }
        self.note_flags(segment, arrival.direction);
        if !segment.has(TcpFlags::ACK) && segment.ack != Seq(0) {
            out.events.push(StreamEvent::PktBrokenAck);
        }
        if segment.has(TcpFlags::URG)
            && context.config.inline()
            && context.config.reassembly.urgent == UrgentPolicy::Drop
        {
            out.advice = Advice::Drop(Reason::StreamError);
            return;
        }

        let foreign =
            context.config.inline() && self.is_data_of_another_beginning(segment, arrival.direction);
        let mut entrance = Entrance { foreign, change: Advice::Forward };
        if context.config.strict && context.config.inline() {
            let (direction, streams) = (arrival.direction, streams.as_deref());
            match self.before_real_receivers(segment, direction, streams, foreign, context.config, out) {
                Ok(needed) => entrance.change = needed,
                Err(Differs) => {
                    out.rejected = true;
                    out.advice = Advice::Drop(Reason::StreamError);
                    return;
                }
            }
        }
        self.step(segment, arrival, streams, entrance, context, out);
    }

    /// Runs a segment through the session's states, and feeds its data to its stream.
    fn step(
        &mut self,
        segment: &Segment<'_>,
        arrival: Arrival,
        streams: Option<&mut StreamPair>,
        Entrance { foreign, change }: Entrance,
        context: &mut StreamContext<'_>,
        out: &mut Outcome,
    ) {
        let stream = streams.as_deref().map(|pair| pair.stream(arrival.direction));
        let before = self.if_shown_early(streams.as_deref(), context.config);
        let reached = self.reached(segment, arrival.direction, stream);
        let mut step = SegmentStep::new(self, segment, arrival, context, &mut *out, stream);
        let rejected = step.run();
        let untaken = step.is_data_that_nobody_takes();
        // A SYN that arrives while another one is open is not refused in a replay, but its data is not
        // inspected either.
        let unread = untaken || foreign && step.session.state < TcpState::Established;
        let uncounted = !unread && step.accept_what_leaves(rejected);
        let refused = rejected.is_err() && !step.is_late_ack();
        let mut reassemble = step.finish();
        if let Some(before) = before
            && streams.as_deref().is_some_and(|pair| pair.was_read_from_elsewhere(self))
        {
            // Data that readers saw keeps its position: a segment that would move the beginning is refused.
            *self = before;
            let (previous, state) = (self.state, self.state);
            *out = Outcome { previous, state, events: out.events, rejected: true, ..Outcome::default() };
            out.advice = Advice::Drop(Reason::StreamError);
            return;
        }
        if untaken {
            out.rejected = true;
            out.advice = Advice::Drop(Reason::StreamError);
            reassemble = None;
        }
        if refused {
            out.rejected = true;
            if context.config.inline() && context.config.drop_invalid {
                out.advice = Advice::Drop(Reason::StreamError);
            }
        }
        if !out.rejected {
            let (expected, data) = reached;
            self.note_ends(segment, arrival.direction, expected, data, out.previous, context.config);
        }
        self.write_state(out);
        if let (Some(direction), Some(pair)) = (reassemble, streams) {
            let overlap = context.counters.overlap;
            self.reassemble(pair, segment, direction, arrival, context, out);
            if uncounted {
                context.counters.overlap = overlap;
            }
        }
        if change != Advice::Forward {
            out.advice = changed(out.advice, change, segment);
        }
        if !matches!(out.advice, Advice::Drop(_)) {
            self.note_sent(segment, arrival.direction);
        }
    }

    /// The change that a segment needs before a real receiver: bytes are put in front, so that a server that
    /// takes the segment for the beginning reads the inspected stream, or bytes that cannot be compared any
    /// more are trimmed.
    ///
    /// # Errors The receiver may read the segment in another way than it would be inspected.
    fn before_real_receivers(
        &mut self,
        segment: &Segment<'_>,
        direction: Direction,
        streams: Option<&StreamPair>,
        foreign: bool,
        config: &StreamConfig,
        out: &mut Outcome,
    ) -> Result<Advice, Differs> {
        self.note_beginning(segment, direction);
        let far = self.is_far_away(segment, direction);
        if far {
            out.events.push(StreamEvent::EstPacketOutOfWindow);
        }
        let stream = streams.map(|pair| pair.stream(direction));
        // Without a reader there is no inspected stream to differ from.
        let trimmed = stream.map_or(0, |stream| self.uncompared_in_front(segment, direction, stream, config));
        let moves = stream.and_then(|_| self.may_move_the_beginning(segment, direction, trimmed, config));
        let missing = moves.and_then(|away| u8::try_from(away).ok());
        let held = |len: u8| stream.is_some_and(|stream| stream.holds_beginning(usize::from(len)));
        // A one-sided flow has no acknowledgements: the receiver may not have the bytes that cannot be
        // compared any more.
        let old = self.is_async()
            && !segment.is_empty()
            && stream
                .and_then(|stream| stream.held_from(&self.peers[direction]))
                .is_some_and(|from| segment.seq.before(from));
        let completes = segment.len() <= COMPLETED_MOST && missing.is_some_and(held);
        // Some receivers treat such a segment as a SYN, others do not.
        let torn = segment.has(TcpFlags::SYN) && segment.flags.intersects(TcpFlags::FIN | TcpFlags::RST);
        let reopens = segment.has(TcpFlags::SYN) && trimmed > 0;
        if far || old || foreign || torn || reopens || moves.is_some() && !completes {
            return Err(Differs);
        }
        Ok(match missing {
            Some(missing) => Advice::Complete(missing),
            None if trimmed > 0 => Advice::Trim(trimmed),
            None => Advice::Forward,
        })
    }

    /// Passively: whether the client completes the handshake without acknowledging the data of the SYN/ACK.
    /// It has discarded this data, and reads data that arrives in its place. (Inline, the inspected data
    /// counts.)
    fn declines_data_of_syn_ack(
        &self,
        segment: &Segment<'_>,
        arrival: Arrival,
        out: &Outcome,
        config: &StreamConfig,
    ) -> bool {
        let server = self.server();
        !config.inline()
            && out.previous == TcpState::SynRecv
            && out.state >= TcpState::Established
            && arrival.direction == Direction::ToServer
            && segment.ack == server.base()
            && server.sent.after(server.base())
    }

    /// Writes the session's state to the outcome.
    fn write_state(&self, out: &mut Outcome) {
        out.state = self.state;
        let phase = self.state.flow_state();
        if phase == SessionPhase::Closed && out.previous.flow_state() != phase {
            out.flow_state = Some(phase);
        }
        if out.previous != out.state {
            out.kind |= PacketKind::STATE_UPDATE;
        }
    }

    /// Feeds a segment's data to the stream of a direction.
    fn reassemble(
        &mut self,
        pair: &mut StreamPair,
        segment: &Segment<'_>,
        direction: Direction,
        arrival: Arrival,
        context: &mut StreamContext<'_>,
        out: &mut Outcome,
    ) {
        if self.declines_data_of_syn_ack(segment, arrival, out, context.config) {
            pair.forget(Direction::ToClient, context.budget);
        }
        pair.feed(self, segment, direction, arrival, context, out);
        if self.is_async() && context.config.compares() {
            // Inspected and freed data takes the place of the missing acknowledgement.
            let sender = &mut self.peers[direction];
            if let Some(from) = pair.stream(direction).held_from(sender) {
                sender.update_last_ack(from);
            }
        }
    }

    /// Whether data is so far beyond or before the receiver's window that no receiver accepts it and no
    /// honest sender sends it. Kept, it would use up the depth, the regions and the memory that the stream
    /// itself needs.
    fn is_far_away(&self, segment: &Segment<'_>, direction: Direction) -> bool {
        let snd = &self.peers[direction];
        let known = self.state >= TcpState::Established
            && !self.flags.intersects(SessionFlags::MIDSTREAM | SessionFlags::ASYNC);
        // The receiver may have opened its window further than its segments have shown so far. (Twice the
        // largest window is half the sequence space.)
        let edge = snd.next_win.plus(snd.window.clamp(WINDOW_SLACK, SLACK_MAX));
        known
            && !segment.is_empty()
            && (segment.end().after(edge) || segment.end().before(self.oldest(direction)))
    }

    /// Notes that the server has the connection and knows the beginning of the client's stream.
    fn note_beginning(&mut self, segment: &Segment<'_>, direction: Direction) {
        let client = self.client();
        // A FIN takes a number of its own.
        let fin = u32::from(self.has_closed(Direction::ToServer));
        let answer = direction == Direction::ToClient
            && segment.has(TcpFlags::ACK)
            && !segment.has(TcpFlags::RST)
            && segment.ack.at_most(client.next_seq.plus(fin));
        let begun = if segment.has(TcpFlags::SYN) {
            // Fast Open: the server has accepted data already.
            self.state == TcpState::SynSent && segment.ack.after(client.base())
        } else {
            self.state >= TcpState::Established && segment.ack.at_least(client.base())
        };
        if answer && begun {
            self.flags |= SessionFlags::BEGUN;
        }
    }

    /// The distance of a segment from the beginning of the stream, if a server with SYN cookies could take
    /// the segment for the beginning. Such a server keeps no number of the client: it takes that of the first
    /// segment that fits the cookie, and Linux's cookies also fit a number that is a little off. The stream
    /// that it reads would begin elsewhere than the inspected one. So until the stream has begun, a segment
    /// with data a little off the beginning does not leave unchanged: it gets the bytes before it in front
    /// ([`Advice::Complete`]), or is dropped. A FIN without data ends a stream of which nothing was read, and
    /// may leave; an ACK without data would begin a stream, but before the beginning it may leave (a
    /// keep-alive): the byte that would fill its place does not.
    ///
    /// This also applies once a server may have forgotten the connection, as the cookie outlives it; an ACK
    /// without data may leave then: it belongs to the close. `trimmed`: number of data bytes of the segment
    /// that do not leave.
    fn may_move_the_beginning(
        &self,
        segment: &Segment<'_>,
        direction: Direction,
        trimmed: u32,
        config: &StreamConfig,
    ) -> Option<i32> {
        // Whatever such a segment opens, no data is read there.
        if trimmed > 0 && trimmed == segment.len() || self.state == TcpState::Closed {
            return None;
        }
        let empty = segment.is_empty();
        let begun = self.flags.contains(SessionFlags::BEGUN);
        let unknown = direction == Direction::ToServer
            && self.state >= TcpState::SynRecv
            && !self.flags.intersects(SessionFlags::MIDSTREAM | SessionFlags::ASYNC)
            && (!begun || !empty && self.server_may_forget(config))
            && !segment.flags.intersects(TcpFlags::SYN | TcpFlags::RST);
        let base = self.client().base();
        let away = segment.seq.plus(trimmed).since(base);
        // No data precedes the beginning; a cookie also fits if both numbers are off by the same distance.
        let covers = away < 0 && !empty;
        let reach = if begun { COOKIE_REACH } else { COOKIE_SLACK };
        let near = covers || away != 0 && away.unsigned_abs() <= reach;
        let harmless = empty && (away < 0 || segment.has(TcpFlags::FIN));
        (unknown && near && !harmless).then_some(away)
    }

    /// Inline, whether a client begins anew (another SYN, before any reply) after readers saw data of its
    /// first SYN: this is a connection of its own, since data of the first must not be taken for the
    /// beginning of the second.
    fn begins_elsewhere(
        &self,
        segment: &Segment<'_>,
        direction: Direction,
        streams: Option<&StreamPair>,
        config: &StreamConfig,
    ) -> bool {
        let flags = segment.flags.intersection(OPENING);
        config.inline()
            && self.state == TcpState::SynSent
            && direction == Direction::ToServer
            && flags == TcpFlags::SYN
            && segment.seq != self.client().isn
            && segment.is_empty()
            && streams.is_some_and(|pair| pair.stream(direction).right_edge() > 0)
    }

    /// Whether a segment has data at another beginning than the current one: of a second SYN with another
    /// number, of a SYN against the flow's direction, of another SYN/ACK. Later segments show which one the
    /// receiver believes, and readers can see one beginning only: strictly, such a segment does not leave. No
    /// honest sender sends it: a new Fast Open uses another port, or retransmits the SYN without data.
    fn is_data_of_another_beginning(&self, segment: &Segment<'_>, direction: Direction) -> bool {
        if segment.is_empty() || !segment.has(TcpFlags::SYN) || !self.exists() {
            return false;
        }
        let in_force = match (direction, segment.has(TcpFlags::ACK)) {
            (Direction::ToServer, false) => segment.seq == self.client().isn,
            // The first SYN/ACK, or its retransmission.
            (Direction::ToClient, true) => match self.state {
                TcpState::SynSent => !self.flags.contains(SessionFlags::FOUR_WAY),
                _ => segment.seq == self.server().isn,
            },
            _ => false,
        };
        !in_force
    }

    /// A copy of the session, if the current packet could move a beginning that readers have read.
    fn if_shown_early(&self, streams: Option<&StreamPair>, config: &StreamConfig) -> Option<TcpSession> {
        let opening = self.state < TcpState::Established || self.state == TcpState::Closed;
        let shown = |pair: &StreamPair| Direction::BOTH.iter().any(|d| pair.stream(*d).right_edge() > 0);
        (config.inline() && opening && self.exists() && streams.is_some_and(shown)).then(|| self.clone())
    }

    /// Handles the end of the flow (timeout, shutdown, eviction): held data becomes readable in both
    /// directions, acknowledged or not. Afterwards the caller runs the readers, then
    /// [`StreamPair::end_packet`] and `release`.
    pub fn end(&mut self, streams: &mut StreamPair, context: &mut StreamContext<'_>) -> Outcome {
        context.counters.ended = context.counters.ended.wrapping_add(1);
        let mut out = Outcome { previous: self.state, state: self.state, ..Outcome::default() };
        out.established = self.state >= TcpState::Established;
        // After an orderly close all valid data is acknowledged, the rest was refused.
        let unacknowledged = self.state < TcpState::Closed || self.closed_by_rst();
        for direction in Direction::BOTH {
            streams.end(self, direction, unacknowledged, context, &mut out);
        }
        out
    }

    /// Collects flags; packets of both sides end the one-sidedness of a session.
    fn note_flags(&mut self, segment: &Segment<'_>, direction: Direction) {
        if !self.exists() {
            return;
        }
        self.peers[direction].tcp_flags |= segment.flags.bits();
        if self.is_async() && Direction::BOTH.iter().all(|d| self.peers[*d].tcp_flags != 0) {
            self.flags.remove(SessionFlags::ASYNC);
        }
    }

    /// The position of a segment's sender before a FIN: the next expected number (FINs count, even forged
    /// ones), and the end of the last data that arrived, if the stream is read.
    fn reached(
        &self,
        segment: &Segment<'_>,
        direction: Direction,
        stream: Option<&Stream>,
    ) -> (Seq, Option<Seq>) {
        let sender = &self.peers[direction];
        let data = stream.filter(|_| segment.has(TcpFlags::FIN)).and_then(|stream| stream.reached(sender));
        (sender.next_seq, data)
    }

    /// Notes the end of a forwarded segment's data. (Data of a SYN within a connection is not accepted by any
    /// receiver.)
    fn note_sent(&mut self, segment: &Segment<'_>, direction: Direction) {
        let sender = &mut self.peers[direction];
        let opens = segment.has(TcpFlags::SYN);
        if !segment.is_empty() && !segment.has(TcpFlags::RST) && (!opens || segment.seq == sender.isn) {
            let end = segment.end().plus(u32::from(opens));
            sender.note_sent(end);
            sender.doubt_fin_before(end);
        }
    }

    /// Notes the effect of an accepted segment on the ends of both streams. With real receivers the session
    /// is closed when both ends are acknowledged, and not before: until then one of them may be forged, and
    /// the sender of the true one still waits.
    fn note_ends(
        &mut self,
        segment: &Segment<'_>,
        direction: Direction,
        expected: Seq,
        data: Option<Seq>,
        before: TcpState,
        config: &StreamConfig,
    ) {
        // Before the SYN is answered, a FIN belongs to an earlier connection of these ports, or is forged.
        if segment.has(TcpFlags::FIN) && before != TcpState::SynSent {
            let sender = &mut self.peers[direction];
            let known = sender.flags.contains(PeerFlags::FIN_TAKEN).then_some(sender.fin);
            sender.note_fin(segment.end().plus(1));
            if known.is_none() {
                sender.doubt_fin_before(expected);
            }
            if let Some(data) = data.filter(|_| known != Some(sender.fin)) {
                sender.doubt_fin_before(data);
            }
        }
        if segment.has(TcpFlags::ACK) && !segment.has(TcpFlags::RST) {
            self.peers[direction.flip()].note_end(segment.ack);
        }
        // One step at a time: the table of the stateful firewall covers direct transitions to other states.
        let waits = matches!(
            self.state,
            TcpState::FinWait2 | TcpState::CloseWait | TcpState::LastAck | TcpState::TimeWait
        );
        let stays = waits && self.state == before && !segment.has(TcpFlags::FIN);
        if stays && self.sees_all(config) && self.ends_are_acknowledged() {
            self.previous = self.state;
            self.state = TcpState::Closed;
        }
    }
}

/// The advice for a segment that needs another beginning.
fn changed(advice: Advice, change: Advice, segment: &Segment<'_>) -> Advice {
    let without_data = change == Advice::Trim(segment.len());
    match advice {
        Advice::Forward => change,
        Advice::Rewrite if without_data => change,
        // One change at a time: the sender retransmits the segment.
        Advice::Rewrite | Advice::Complete(_) | Advice::Trim(_) => Advice::Drop(Reason::StreamOverlap),
        drop @ Advice::Drop(_) => drop,
    }
}

fn count_flags(segment: &Segment<'_>, counters: &mut StreamCounters) {
    if segment.has(TcpFlags::SYN) {
        let count = if segment.has(TcpFlags::ACK) { &mut counters.synack } else { &mut counters.syn };
        *count = count.wrapping_add(1);
    }
    if segment.has(TcpFlags::RST) {
        counters.rst = counters.rst.wrapping_add(1);
    }
    if segment.has(TcpFlags::URG) {
        counters.urg = counters.urg.wrapping_add(1);
    }
}
