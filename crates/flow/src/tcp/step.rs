// SPDX-License-Identifier: Apache-2.0
//! One segment on its way through a session: the context of every state handler.

use super::session::SessionFlags;
use super::{
    Arrival, ExceptionPolicy, ExceptionTarget, HostPolicy, Outcome, PacketKind, Peer, Segment, Seq,
    SessionPhase, StreamConfig, StreamContext, StreamCounters, StreamEvent, TcpFlags, TcpSession, TcpState,
};
use crate::stream::Stream;
use bartizan_base::Direction;

/// The error for a packet that does not fit the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rejected;

/// The result of a state handler.
pub(crate) type HandlerResult = Result<(), Rejected>;

pub(crate) struct SegmentStep<'s, 'p> {
    pub(crate) session: &'s mut TcpSession,
    pub(crate) segment: &'s Segment<'p>,
    pub(crate) direction: Direction,
    pub(crate) policy: HostPolicy,
    /// The next number expected from the sender, before this packet.
    pub(crate) expected: Seq,
    /// Second of the packet clock.
    pub(crate) now: u32,
    pub(crate) config: &'s StreamConfig,
    pub(crate) counters: &'s mut StreamCounters,
    pub(crate) out: &'s mut Outcome,
    /// Reassembly of this direction, if it is active.
    pub(crate) stream: Option<&'s Stream>,
    reassemble: Option<Direction>,
}

impl<'s, 'p> SegmentStep<'s, 'p> {
    pub(crate) fn new(
        session: &'s mut TcpSession,
        segment: &'s Segment<'p>,
        arrival: Arrival,
        context: &'s mut StreamContext<'_>,
        out: &'s mut Outcome,
        stream: Option<&'s Stream>,
    ) -> Self {
        Self {
            expected: session.peers[arrival.direction].next_seq,
            session,
            segment,
            direction: arrival.direction,
            policy: arrival.policy,
            now: u32::try_from(arrival.now.as_secs()).unwrap_or(u32::MAX),
            config: context.config,
            counters: context.counters,
            out,
            stream,
            reassemble: None,
        }
    }

    /// The direction whose stream gets the segment.
    pub(crate) fn finish(self) -> Option<Direction> {
        self.reassemble
    }

    /// Runs the segment through the session.
    pub(crate) fn run(&mut self) -> HandlerResult {
        if !self.session.exists() {
            return self.no_session();
        }
        if self.is_taken_by_nobody() {
            return Err(Rejected);
        }
        if !self.handle_early() && !self.is_behind()? {
            self.dispatch(self.session.state)?;
        }
        self.check_traffic_after_rst();
        self.out.established = self.session.state >= TcpState::Established;
        Ok(())
    }

    /// Inline, no payload leaves without comparison and inspection, whatever the state decides on its packet:
    /// a keep-alive's byte can differ from the earlier one. Returns whether the packet goes to reassembly for
    /// this reason alone.
    pub(crate) fn accept_what_leaves(&mut self, handled: HandlerResult) -> bool {
        let leaves = handled.is_ok() || !self.config.drop_invalid;
        // A receiver does not accept again data that it has acknowledged. (It may accept a SYN, if it has
        // forgotten the connection.)
        let taken = self.session.state >= TcpState::SynRecv
            && !self.is(SessionFlags::ASYNC)
            && !self.has(TcpFlags::SYN)
            && self.segment.end().at_most(self.snd().last_ack);
        let needed = self.config.inline()
            && leaves
            && !taken
            && self.reassemble.is_none()
            && !self.segment.is_empty()
            && self.session.exists();
        if needed {
            self.accept();
        }
        needed
    }

    /// Whether data is at a place where no receiver accepts it: data before the handshake is complete, data
    /// in a SYN after it, data without an ACK (RFC 9293 section 3.10.7). Inline and strict, such data does
    /// not leave: it would be inspected as part of the stream, in the place of other bytes.
    pub(crate) fn is_data_that_nobody_takes(&self) -> bool {
        if !self.config.strict || !self.config.inline() || self.segment.is_empty() {
            return false;
        }
        let (state, now) = (self.out.previous, self.session.state);
        // If a RST answered the SYN, the numbers of the other side are unknown.
        let never_open = now == TcpState::Closed && self.session.previous == TcpState::SynSent;
        if self.session.exists() && (now < TcpState::Established || never_open) {
            return !self.has(TcpFlags::SYN) && !self.has(TcpFlags::RST);
        }
        // A server may retransmit its SYN/ACK with the data that it had.
        let again = state == TcpState::SynRecv && !self.to_server() && self.has(TcpFlags::ACK);
        state >= TcpState::SynRecv
            && (self.has(TcpFlags::SYN) && !again || !self.has(TcpFlags::ACK) && !self.has(TcpFlags::RST))
    }

    /// Calls the handler of a state.
    pub(crate) fn dispatch(&mut self, state: TcpState) -> HandlerResult {
        match state {
            TcpState::None => Ok(()),
            TcpState::SynSent => self.syn_sent(),
            TcpState::SynRecv => self.syn_recv(),
            TcpState::Established => self.established(),
            TcpState::FinWait1 => self.fin_wait1(),
            TcpState::FinWait2 => self.fin_wait2(),
            TcpState::Closing => self.closing(),
            TcpState::CloseWait => self.close_wait(),
            TcpState::LastAck => self.last_ack_state(),
            TcpState::TimeWait => self.time_wait(),
            TcpState::Closed => self.closed(),
        }
    }

    pub(crate) fn to_server(&self) -> bool {
        self.direction == Direction::ToServer
    }

    /// The number from which reassembly of this direction holds data, if it is active.
    pub(crate) fn held_from(&self) -> Option<Seq> {
        self.stream.and_then(|stream| stream.held_from(self.snd()))
    }

    /// The side that sent the packet.
    pub(crate) fn snd(&self) -> &Peer {
        &self.session.peers[self.direction]
    }

    /// The side that sent the packet.
    pub(crate) fn snd_mut(&mut self) -> &mut Peer {
        &mut self.session.peers[self.direction]
    }

    /// The side that receives the packet.
    pub(crate) fn rcv(&self) -> &Peer {
        &self.session.peers[self.direction.flip()]
    }

    /// The side that receives the packet.
    pub(crate) fn rcv_mut(&mut self) -> &mut Peer {
        &mut self.session.peers[self.direction.flip()]
    }

    pub(crate) fn has(&self, flags: TcpFlags) -> bool {
        self.segment.has(flags)
    }

    pub(crate) fn is(&self, flags: SessionFlags) -> bool {
        self.session.flags.intersects(flags)
    }

    pub(crate) fn event(&mut self, event: StreamEvent) {
        self.out.events.push(event);
    }

    pub(crate) fn reject(&mut self, event: StreamEvent) -> HandlerResult {
        self.event(event);
        Err(Rejected)
    }

    pub(crate) fn set_state(&mut self, state: TcpState) {
        if state != self.session.state {
            self.session.previous = self.session.state;
            self.session.state = state;
            // A flow does not become new again (Fast Open passes two states at once).
            let flow = state.flow_state();
            if flow != SessionPhase::New && flow != self.out.previous.flow_state() {
                self.out.flow_state = Some(flow);
            }
        }
    }

    /// Assigns the packet's payload to its own direction's stream.
    pub(crate) fn accept(&mut self) {
        self.reassemble = Some(self.direction);
    }

    /// Assigns the packet's payload to the given direction's stream.
    pub(crate) fn accept_as(&mut self, direction: Direction) {
        self.reassemble = Some(direction);
    }

    /// The window that the packet offers, scaled.
    pub(crate) fn offered_window(&self) -> u32 {
        u32::from(self.segment.window) << self.rcv().wscale.min(super::WSCALE_MAX)
    }

    /// Takes over the window that the packet offers.
    pub(crate) fn update_window(&mut self) {
        let window = self.offered_window();
        self.rcv_mut().window = window;
    }

    /// Takes over the packet's acknowledgement, if it has one.
    pub(crate) fn update_last_ack(&mut self) {
        if self.has(TcpFlags::ACK) {
            let ack = self.segment.ack;
            self.rcv_mut().update_last_ack(ack);
        }
    }

    /// Counts data that the receiver has acknowledged and the engine missed as sent.
    pub(crate) fn catch_up_receiver(&mut self, slack: u32) {
        if !self.has(TcpFlags::ACK) {
            return;
        }
        let ack = self.segment.ack;
        let rcv = self.rcv_mut();
        if rcv.next_seq.minus(slack).before(ack) {
            rcv.next_seq = ack;
        }
    }

    /// Sets the next expected number of a side; one-sided sessions acknowledge themselves, unless reassembly
    /// tracks the inspected and freed data.
    pub(crate) fn set_next_seq(&mut self, direction: Direction, seq: Seq) {
        let one_sided =
            self.is(SessionFlags::ASYNC) && !(self.config.compares() && self.held_from().is_some());
        let peer = &mut self.session.peers[direction];
        peer.next_seq = seq;
        if one_sided && seq.after(peer.last_ack) {
            peer.last_ack = seq;
        }
    }

    /// Advances the sender to the packet's end if the packet begins at the expected number.
    pub(crate) fn advance_sender(&mut self, expected: Seq) {
        if self.segment.seq == expected {
            let end = self.segment.end();
            self.set_next_seq(self.direction, end);
        }
    }

    /// Takes the SACK option and advances the receiver's window edge.
    pub(crate) fn update_sack_and_edge(&mut self) {
        let sack = self.segment.options.sack;
        let permitted = self.is(SessionFlags::SACK_OK);
        let all = self.session.sees_all(self.config);
        let most = if all { self.rcv().sent } else { self.rcv().next_win };
        let rcv = self.rcv_mut();
        if permitted {
            rcv.update_sack(sack, most);
        }
        rcv.update_next_win();
        if !self.to_server() {
            // The server has the connection: a later SYN/ACK does not answer a SYN within the connection.
            self.session.reopening = None;
        }
        self.note_offer();
    }

    /// Notes the packet's own window offer, even if its window is not taken over (a FIN or retransmitted data
    /// can bring a later acknowledgement): an honest receiver never withdraws an edge that it has shown.
    pub(crate) fn note_offer(&mut self) {
        // An overtaken packet offers nothing new.
        let latest = self.has(TcpFlags::ACK) && self.segment.ack == self.rcv().last_ack;
        if !latest {
            return;
        }
        let edge = self.segment.ack.plus(self.offered_window());
        let rcv = self.rcv_mut();
        if edge.after(rcv.next_win) {
            rcv.next_win = edge;
        }
    }

    /// Whether the packet ends within the sender's window, or the window cannot be known.
    pub(crate) fn in_window(&self) -> bool {
        self.segment.end().at_most(self.snd().next_win)
            || self.is(SessionFlags::MIDSTREAM | SessionFlags::ASYNC)
    }

    /// Whether the data was sent before; sets the event and the packet's kind.
    pub(crate) fn is_retransmission(&mut self) -> bool {
        let end = self.segment.end();
        let snd = self.snd();
        let again = !self.segment.is_empty()
            && ((self.segment.seq.before(snd.last_ack) && end.after(snd.last_ack))
                || end.at_most(snd.last_ack)
                || end.at_most(snd.next_seq));
        if again {
            self.event(StreamEvent::PktRetransmission);
            self.mark_retransmission();
        }
        again
    }

    pub(crate) fn mark_retransmission(&mut self) {
        self.out.kind |= PacketKind::RETRANSMISSION;
    }

    /// Reports an exception policy, which the caller applies.
    pub(crate) fn exception(&mut self, target: ExceptionTarget, policy: ExceptionPolicy) {
        self.out.exception = Some((target, policy));
    }
}
