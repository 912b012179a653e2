// SPDX-License-Identifier: Apache-2.0
//! The beginning of a session: at a SYN, picked up in the middle, or with one visible side only.

use super::handshake::SYN_ACK;
use super::peer::PeerFlags;
use super::session::SessionFlags;
use super::step::{HandlerResult, Rejected, SegmentStep};
use super::{ExceptionTarget, Peer, StreamEvent, TcpFlags, TcpSession, TcpState, WSCALE_MAX};
use bartizan_base::Direction;

impl SegmentStep<'_, '_> {
    /// Handles a packet without a session.
    pub(crate) fn no_session(&mut self) -> HandlerResult {
        if self.has(TcpFlags::RST) {
            self.reject(StreamEvent::RstButNoSession)
        } else if self.has(TcpFlags::FIN) {
            self.midstream_exception();
            if !self.config.midstream || self.segment.is_empty() || !self.config.may_pick_up() {
                return self.reject(StreamEvent::FinButNoSession);
            }
            self.pick_up(TcpState::FinWait1)
        } else if self.has(SYN_ACK) && self.config.one_sided && !self.config.midstream {
            // If the client's packets take another path, this is the beginning.
            self.pick_up_syn_ack()
        } else if self.has(SYN_ACK) {
            self.midstream_exception();
            let wanted = self.config.midstream || self.config.async_oneside;
            if wanted && self.config.may_pick_up() { self.pick_up_syn_ack() } else { Ok(()) }
        } else if self.has(TcpFlags::SYN) {
            self.first_syn()
        } else if self.has(TcpFlags::ACK) {
            self.midstream_exception();
            if self.config.midstream && self.config.may_pick_up() {
                self.pick_up(TcpState::Established)
            } else {
                Ok(())
            }
        } else {
            Ok(())
        }
    }

    fn midstream_exception(&mut self) {
        self.exception(ExceptionTarget::Midstream, self.config.midstream_policy);
    }

    /// Makes the session, if memory allows.
    fn create(&mut self, midstream: bool) -> HandlerResult {
        let memory = TcpSession::memory();
        if !TcpSession::has_room(self.config, self.counters) {
            self.counters.ssn_memcap_drop = self.counters.ssn_memcap_drop.wrapping_add(1);
            self.exception(ExceptionTarget::SessionMemory, self.config.memcap_policy);
            return Err(Rejected);
        }
        *self.session = TcpSession::default();
        self.counters.hold(memory);
        self.counters.sessions = self.counters.sessions.wrapping_add(1);
        self.counters.active_sessions = self.counters.active_sessions.saturating_add(1);
        if midstream {
            self.counters.midstream_pickups = self.counters.midstream_pickups.wrapping_add(1);
            self.session.flags |= SessionFlags::MIDSTREAM;
        }
        if self.config.tracks_one_sided() {
            self.session.flags |= SessionFlags::ASYNC;
        }
        self.out.created = true;
        let flags = self.segment.flags.bits();
        self.snd_mut().tcp_flags = flags;
        Ok(())
    }

    fn first_syn(&mut self) -> HandlerResult {
        self.create(false)?;
        self.set_state(TcpState::SynSent);
        let segment = self.segment;
        let now = self.now;
        // The sender of the SYN is the client, whatever the flow's direction was.
        let client = self.session.client_mut();
        client.set_isn(segment.seq);
        client.next_seq = segment.seq.plus(1);
        if let Some((ts, _)) = segment.options.ts {
            note_first_timestamp(client, ts, now);
            client.flags |= PeerFlags::TIMESTAMP;
        }
        self.session.server_mut().window = u32::from(segment.window);
        if let Some(shift) = segment.wscale() {
            self.session.flags |= SessionFlags::SERVER_WSCALE;
            self.session.server_mut().wscale = shift;
        }
        self.session.flags.set(SessionFlags::CLIENT_SACK_OK, segment.options.sack_ok);
        // Servers can be configured to accept data of any SYN.
        if segment.options.fast_open || self.config.inline() && !segment.is_empty() {
            self.session.flags |= SessionFlags::FAST_OPEN;
            if !segment.is_empty() {
                let next = self.session.client().next_seq.plus(segment.len());
                self.set_next_seq(Direction::ToServer, next);
                self.accept_as(Direction::ToServer);
            }
        }
        Ok(())
    }

    /// Picks up a session at a packet with data or an ACK, whose sender counts as the client.
    fn pick_up(&mut self, state: TcpState) -> HandlerResult {
        self.create(true)?;
        self.set_state(state);
        self.session.flags |= SessionFlags::MIDSTREAM_ESTABLISHED | SessionFlags::SACK_OK;
        let segment = self.segment;
        let now = self.now;
        // The negotiation is unknown: assume the largest windows.
        let fin = u32::from(state == TcpState::FinWait1);
        let snd = self.snd_mut();
        snd.wscale = WSCALE_MAX;
        snd.set_isn(segment.seq.minus(1));
        snd.next_seq = segment.end().plus(fin);
        snd.window = u32::from(segment.window) << WSCALE_MAX;
        snd.last_ack = segment.seq;
        snd.reset_next_win();
        let rcv = self.rcv_mut();
        rcv.wscale = WSCALE_MAX;
        rcv.set_isn(segment.ack.minus(1));
        rcv.next_seq = segment.ack;
        rcv.last_ack = segment.ack;
        rcv.next_win = segment.ack;
        if let Some((ts, echo)) = segment.options.ts {
            note_first_timestamp(self.snd_mut(), ts, now);
            self.note_echo(echo);
        }
        self.accept();
        Ok(())
    }

    /// Notes the other side's timestamp by its echo.
    fn note_echo(&mut self, echo: u32) {
        let rcv = self.rcv_mut();
        rcv.last_ts = echo;
        if echo == 0 {
            rcv.flags |= PeerFlags::ZERO_TIMESTAMP;
        }
        self.session.flags |= SessionFlags::TIMESTAMP;
    }

    /// Picks up a session at a SYN/ACK: the flow was made in the wrong direction.
    fn pick_up_syn_ack(&mut self) -> HandlerResult {
        self.create(true)?;
        // A SYN/ACK comes from the server; otherwise the flow is reversed.
        if self.to_server() {
            self.session.reverse();
            self.out.reverse = true;
            self.direction = Direction::ToClient;
        }
        self.set_state(TcpState::SynRecv);
        self.session.flags |= SessionFlags::MIDSTREAM_SYN_ACK;
        self.session.flags.set(SessionFlags::SACK_OK, self.segment.options.sack_ok);
        let segment = self.segment;
        let now = self.now;
        let server = self.session.server_mut();
        server.set_isn(segment.seq);
        server.next_seq = segment.seq.plus(1);
        server.window = u32::from(segment.window);
        server.last_ack = segment.seq;
        server.reset_next_win();
        let client = self.session.client_mut();
        client.set_isn(segment.ack.minus(1));
        client.next_seq = segment.ack;
        client.last_ack = segment.ack;
        // The server replies with the option only if the client's SYN had it.
        if let Some(shift) = segment.wscale() {
            client.wscale = shift;
            self.session.server_mut().wscale = WSCALE_MAX;
        }
        if let Some((ts, echo)) = segment.options.ts {
            note_first_timestamp(self.session.server_mut(), ts, now);
            self.note_echo(echo);
        }
        Ok(())
    }

    /// Handles a client that continues without a visible SYN/ACK: the other side is not visible.
    pub(crate) fn one_sided_ack(&mut self) -> HandlerResult {
        let segment = self.segment;
        if segment.seq != self.session.client().next_seq {
            return self.reject(StreamEvent::ThreeWayAsyncWrongSeq);
        }
        self.session.flags |= SessionFlags::ASYNC;
        self.set_state(TcpState::Established);
        self.session.clear_queue();
        let now = self.now;
        let scaled = self.is(SessionFlags::SERVER_WSCALE);
        let uses_ts =
            segment.options.ts.is_some() && self.session.client().flags.contains(PeerFlags::TIMESTAMP);
        let client = self.session.client_mut();
        client.window = u32::from(segment.window);
        client.last_ack = segment.seq;
        client.reset_next_win();
        if scaled {
            client.wscale = WSCALE_MAX;
        }
        if uses_ts {
            client.flags.remove(PeerFlags::TIMESTAMP);
            client.last_pkt_ts = now;
            self.session.flags |= SessionFlags::TIMESTAMP;
        } else {
            client.last_ts = 0;
            client.flags.remove(PeerFlags::ZERO_TIMESTAMP);
        }
        let server = self.session.server_mut();
        server.set_isn(segment.ack.minus(1));
        server.next_seq = segment.ack;
        server.last_ack = segment.ack;
        server.next_win = segment.ack;
        if self.is(SessionFlags::CLIENT_SACK_OK) {
            self.session.flags |= SessionFlags::SACK_OK;
        }
        self.accept();
        Ok(())
    }
}

/// Takes over the first timestamp of a side.
pub(crate) fn note_first_timestamp(peer: &mut Peer, ts: u32, now: u32) {
    peer.last_ts = ts;
    peer.last_pkt_ts = now;
    if ts == 0 {
        peer.flags |= PeerFlags::ZERO_TIMESTAMP;
    }
}
