// SPDX-License-Identifier: Apache-2.0
//! The handshake (RFC 9293 section 3.5), simultaneous open, Fast Open (RFC 7413).

use super::peer::PeerFlags;
use super::pickup::note_first_timestamp;
use super::queued::Queued;
use super::session::SessionFlags;
use super::step::{HandlerResult, SegmentStep};
use super::{HostPolicy, StreamEvent, TcpFlags, TcpState, WSCALE_MAX};
use bartizan_base::Direction;

pub(crate) const SYN_ACK: TcpFlags = TcpFlags::SYN.union(TcpFlags::ACK);

impl SegmentStep<'_, '_> {
    pub(crate) fn syn_sent(&mut self) -> HandlerResult {
        if self.has(SYN_ACK) {
            return if self.to_server() { self.four_way_syn_ack() } else { self.syn_ack() };
        }
        if self.takes_doubted_syn_ack() {
            return self.syn_recv();
        }
        if !self.echo_is_plausible() {
            if self.is_rest_of_an_earlier_connection() {
                self.note_challenge();
                return Ok(());
            }
            return self.reject(StreamEvent::PktInvalidTimestamp);
        }
        if self.has(TcpFlags::RST) {
            self.rst_of_syn()
        } else if self.has(TcpFlags::FIN) {
            Ok(())
        } else if self.has(TcpFlags::SYN) {
            if self.to_server() {
                self.syn_again()
            } else {
                self.simultaneous_syn()
            }
            Ok(())
        } else if self.has(TcpFlags::ACK) && self.config.tracks_one_sided() && self.may_be_one_sided() {
            self.one_sided_ack()
        } else {
            self.note_challenge();
            Ok(())
        }
    }

    /// Notes the acknowledgement by which a server that still has an earlier connection of these ports
    /// answers the SYN (a challenge ACK). The client's RST in reply has its number.
    fn note_challenge(&mut self) {
        if self.has(TcpFlags::ACK) && !self.has(TcpFlags::FIN) && !self.to_server() {
            self.session.challenge = Some(self.segment.ack);
        }
    }

    fn syn_ack(&mut self) -> HandlerResult {
        let ack = self.segment.ack;
        let echo = self.segment.options.ts.map(|(_, echo)| echo);
        if !self.session.answers_syn(ack) {
            // The SYN/ACK may answer an earlier SYN.
            match self.session.find_syn(ack, None) {
                Some(syn) => self.session.apply_syn(&syn),
                None => return self.reject(StreamEvent::ThreeWaySynackWithWrongAck),
            }
        }
        if !self.echo_is_plausible() {
            match self.session.find_syn(ack, echo) {
                Some(syn) => self.session.apply_syn(&syn),
                None => return self.doubt_syn_ack(),
            }
        }
        if self.segment.options.fast_open {
            self.session.flags |= SessionFlags::FAST_OPEN;
        }
        // Inline, data at a doubtful beginning is not inspected.
        let in_doubt = self.config.inline() && self.is(SessionFlags::FOUR_WAY);
        let syn_ack = Queued::syn_ack(self.segment, self.now);
        self.apply_syn_ack(&syn_ack);
        if !self.segment.is_empty() && !in_doubt {
            // The data of a SYN/ACK is the beginning of the server's stream, if the client accepts it (RFC
            // 9293 section 3.10.7.3).
            self.accept_as(Direction::ToClient);
        }
        Ok(())
    }

    /// Queues a SYN/ACK that echoes a timestamp which was not seen. Some clients answer it with a RST, others
    /// continue: the client's next segment shows which ([`SegmentStep::takes_doubted_syn_ack`]). Until then
    /// the SYN is unanswered, and another SYN/ACK can be the true one. Inline, such a SYN/ACK must not carry
    /// data, whose stream would be unknown.
    fn doubt_syn_ack(&mut self) -> HandlerResult {
        if self.config.inline() && !self.segment.is_empty() {
            return self.reject(StreamEvent::PktInvalidTimestamp);
        }
        let doubted = Queued::syn_ack(self.segment, self.now);
        match self.session.queue_syn_ack(doubted, self.config) {
            Ok(()) => Ok(()),
            Err(event) => self.reject(event),
        }
    }

    /// Whether the client continues with a SYN/ACK whose echo was doubtful: then that one answers the SYN,
    /// and the current packet completes the handshake.
    fn takes_doubted_syn_ack(&mut self) -> bool {
        let goes_on = self.to_server()
            && self.has(TcpFlags::ACK)
            && !self.segment.flags.intersects(TcpFlags::SYN | TcpFlags::RST);
        let Some(syn_ack) = self.session.find_syn_ack(self.segment).filter(|_| goes_on) else { return false };
        if !self.session.answers_syn(syn_ack.ack)
            && let Some(syn) = self.session.find_syn(syn_ack.ack, None)
        {
            self.session.apply_syn(&syn);
        }
        self.apply_syn_ack(&syn_ack);
        self.out.previous = TcpState::SynRecv;
        true
    }

    /// Applies the reply to the SYN: the amount of the SYN's data that the server has accepted, and the
    /// reply's fields.
    fn apply_syn_ack(&mut self, syn_ack: &Queued) {
        let client = self.session.client();
        let (base, next) = (client.base(), client.next_seq);
        if self.is(SessionFlags::FAST_OPEN) {
            if syn_ack.ack == base && next != base {
                self.event(StreamEvent::ThreeWaySynackTfoDataIgnored);
                self.session.flags |= SessionFlags::FAST_OPEN_DATA_IGNORED;
            }
            self.set_state(TcpState::Established);
        }
        // Data that the server has not accepted is retransmitted.
        self.session.client_mut().next_seq = syn_ack.ack;
        self.session.forget_syns();
        self.take_over_syn_ack(syn_ack);
    }

    /// Takes over the fields of a SYN/ACK.
    fn take_over_syn_ack(&mut self, syn_ack: &Queued) {
        self.set_state(TcpState::SynRecv);
        let client_ts = self.session.client().flags.contains(PeerFlags::TIMESTAMP);
        let scaled = self.is(SessionFlags::SERVER_WSCALE);
        let sack_ok = self.is(SessionFlags::CLIENT_SACK_OK) && syn_ack.sack_ok;
        let server = self.session.server_mut();
        server.set_isn(syn_ack.seq);
        server.next_seq = syn_ack.seq.plus(1);
        server.last_ack = syn_ack.seq.plus(1);
        server.reset_next_win();
        match syn_ack.ts {
            Some(ts) if client_ts => {
                note_first_timestamp(server, ts, syn_ack.pkt_ts);
                self.session.flags |= SessionFlags::TIMESTAMP;
            }
            _ => {
                server.last_ts = 0;
                let client = self.session.client_mut();
                client.last_ts = 0;
                client.flags.remove(PeerFlags::ZERO_TIMESTAMP);
            }
        }
        let client = self.session.client_mut();
        client.last_ack = syn_ack.ack;
        client.window = u32::from(syn_ack.window);
        client.wscale = if scaled { syn_ack.wscale.unwrap_or(0) } else { 0 };
        client.reset_next_win();
        self.session.flags.set(SessionFlags::SACK_OK, sack_ok);
        self.session.flags.remove(SessionFlags::FOUR_WAY);
    }

    fn four_way_syn_ack(&mut self) -> HandlerResult {
        if !self.is(SessionFlags::FOUR_WAY) {
            return self.reject(StreamEvent::ThreeWaySynackInWrongDirection);
        }
        let segment = self.segment;
        if segment.ack != self.session.server().isn.plus(1) {
            return self.reject(StreamEvent::FourWaySynackWithWrongAck);
        }
        if segment.seq != self.session.client().isn {
            return self.reject(StreamEvent::FourWaySynackWithWrongSyn);
        }
        self.set_state(TcpState::SynRecv);
        let now = self.now;
        let server_ts = self.session.server().flags.contains(PeerFlags::TIMESTAMP);
        let scaled = self.is(SessionFlags::SERVER_WSCALE);
        let client = self.session.client_mut();
        client.set_isn(segment.seq);
        client.next_seq = segment.seq.plus(1);
        client.last_ack = segment.seq.plus(1);
        client.reset_next_win();
        match segment.options.ts {
            Some((ts, _)) if server_ts => {
                note_first_timestamp(client, ts, now);
                self.session.flags |= SessionFlags::TIMESTAMP;
            }
            _ => {
                client.last_ts = 0;
                let server = self.session.server_mut();
                server.last_ts = 0;
                server.flags.remove(PeerFlags::ZERO_TIMESTAMP);
            }
        }
        let server = self.session.server_mut();
        server.window = u32::from(segment.window);
        server.last_ack = segment.ack;
        server.wscale = if scaled { segment.wscale().unwrap_or(0) } else { 0 };
        server.reset_next_win();
        if self.is(SessionFlags::CLIENT_SACK_OK) && segment.options.sack_ok {
            self.session.flags |= SessionFlags::SACK_OK;
        }
        Ok(())
    }

    /// Whether a session may become one-sided. Inline, only segments of the visible side count: a client that
    /// opened the session, or a server whose SYN/ACK came first. Otherwise a client could forge the server's
    /// acknowledgements.
    fn may_be_one_sided(&self) -> bool {
        !self.config.inline() || self.to_server() != self.is(SessionFlags::MIDSTREAM_SYN_ACK)
    }

    /// Whether a segment of the server, before it has answered the SYN, is left over from an earlier
    /// connection of these ports: a FIN or an ACK without data, whose echo is an old timestamp. It is
    /// forwarded without effect.
    fn is_rest_of_an_earlier_connection(&self) -> bool {
        self.config.inline()
            && !self.to_server()
            && self.segment.is_empty()
            && self.has(TcpFlags::ACK)
            && !self.segment.flags.intersects(TcpFlags::SYN | TcpFlags::RST)
    }

    fn rst_of_syn(&mut self) -> HandlerResult {
        let challenged = self.session.challenge == Some(self.segment.seq);
        if self.to_server() && challenged && self.segment.is_empty() {
            // It ends the connection that the server still has, so that this one can begin.
            return Ok(());
        }
        if let Err(refused) = self.validate_rst() {
            return if self.is_rst_for_an_earlier_connection() { Ok(()) } else { Err(refused) };
        }
        let isn = self.session.client().isn;
        let segment = self.segment;
        let counts =
            !self.to_server() || (segment.seq == isn && segment.window == 0 && segment.ack == isn.plus(1));
        if counts {
            self.rcv_mut().flags |= PeerFlags::RST_RECEIVED;
            self.close_by_rst();
            self.session.clear_queue();
        }
        Ok(())
    }

    fn syn_again(&mut self) {
        let again = Queued::syn(self.segment, self.now);
        if again != self.session.last_syn()
            && let Err(event) = self.session.queue_syn(self.config)
        {
            self.event(event);
        }
        // The latest SYN is the most likely one to be answered.
        self.session.apply_syn(&again);
    }

    /// Handles a SYN of the server: simultaneous open, or an evasion that ends in a four-way handshake.
    fn simultaneous_syn(&mut self) {
        let segment = self.segment;
        let now = self.now;
        self.session.flags |= SessionFlags::FOUR_WAY | SessionFlags::CROSSED;
        let scaled = self.is(SessionFlags::SERVER_WSCALE);
        let server = self.session.server_mut();
        server.set_isn(segment.seq);
        server.next_seq = segment.seq.plus(1);
        if let Some((ts, _)) = segment.options.ts {
            note_first_timestamp(server, ts, now);
            server.flags |= PeerFlags::TIMESTAMP;
        }
        let client = self.session.client_mut();
        client.window = u32::from(segment.window);
        client.wscale = if scaled { segment.wscale().unwrap_or(0) } else { 0 };
    }

    pub(crate) fn syn_recv(&mut self) -> HandlerResult {
        if self.has(TcpFlags::RST) {
            if let Err(refused) = self.validate_rst() {
                let stray = self.is_rst_that_is_not_believed() || self.is_rst_for_an_earlier_connection();
                return if stray { Ok(()) } else { Err(refused) };
            }
            // After a wrong ACK in the handshake these ignore the RST.
            let ignored = self.is(SessionFlags::EVASION_ATTEMPT)
                && matches!(self.policy, HostPolicy::Linux | HostPolicy::OldLinux | HostPolicy::Solaris);
            if !ignored {
                self.close_by_rst();
                self.handle_timestamp();
            }
            Ok(())
        } else if self.has(TcpFlags::FIN) {
            if self.is(SessionFlags::TIMESTAMP) {
                self.validate_timestamp()?;
            }
            self.first_fin()
        } else if self.has(SYN_ACK) {
            self.syn_ack_again()
        } else if self.has(TcpFlags::SYN) {
            if !self.to_server() {
                return self.reject(StreamEvent::ThreeWaySynToclientOnSynRecv);
            }
            if self.segment.seq != self.session.client().isn {
                return self.reject(StreamEvent::ThreeWaySynResendDiffSeqOnSynRecv);
            }
            Ok(())
        } else if self.has(TcpFlags::ACK) {
            self.last_ack_of_handshake()
        } else {
            Ok(())
        }
    }

    fn syn_ack_again(&mut self) -> HandlerResult {
        if self.to_server() {
            let crosses = self.is(SessionFlags::CROSSED)
                && self.segment.seq == self.session.client().isn
                && self.segment.ack == self.session.server().base();
            if crosses {
                // Both sides have opened, and the server's SYN/ACK came first: either side's ACK completes
                // the handshake (RFC 9293 section 3.5).
                self.session.flags |= SessionFlags::FOUR_WAY;
                return Ok(());
            }
            return self.reject(StreamEvent::ThreeWaySynackToserverOnSynRecv);
        }
        if self.segment.ack != self.session.client().last_ack {
            return self.reject(StreamEvent::ThreeWaySynackResendWithDifferentAck);
        }
        if self.segment.seq != self.session.server().isn {
            let entry = Queued::syn_ack(self.segment, self.now);
            if let Err(event) = self.session.queue_syn_ack(entry, self.config) {
                return self.reject(event);
            }
        }
        Ok(())
    }

    fn last_ack_of_handshake(&mut self) -> HandlerResult {
        if let Some(syn_ack) = self.session.find_syn_ack(self.segment) {
            self.take_over_syn_ack(&syn_ack);
        }
        if self.is(SessionFlags::TIMESTAMP) {
            self.validate_timestamp()?;
        }
        if self.is(SessionFlags::FOUR_WAY) && !self.to_server() {
            return self.four_way_ack();
        }
        let mut missed_ack = false;
        if !self.to_server() && !self.is(SessionFlags::MIDSTREAM_SYN_ACK | SessionFlags::FAST_OPEN) {
            // Inline, every packet is seen, so this is not a loss but perhaps an injection.
            if self.config.inline() {
                let fits = self.segment.ack == self.session.client().last_ack
                    && self.segment.seq == self.session.server().next_seq;
                let event = if !self.segment.is_empty() && fits {
                    StreamEvent::ThreeWayAckDataInject
                } else {
                    StreamEvent::ThreeWayAckInWrongDir
                };
                return self.reject(event);
            }
            missed_ack = true;
        }
        self.complete_handshake(missed_ack)
    }

    fn four_way_ack(&mut self) -> HandlerResult {
        if self.segment.seq != self.session.server().next_seq {
            return self.reject(StreamEvent::FourWayWrongSeq);
        }
        self.validate_ack_or(StreamEvent::FourWayInvalidAck)?;
        self.handle_timestamp();
        self.update_last_ack();
        let next = self.session.server().next_seq.plus(self.segment.len());
        self.set_next_seq(Direction::ToClient, next);
        self.update_window();
        self.session.client_mut().reset_next_win();
        self.set_state(TcpState::Established);
        self.accept();
        Ok(())
    }

    fn complete_handshake(&mut self, missed_ack: bool) -> HandlerResult {
        let segment = self.segment;
        let client = self.session.client();
        let (c_next, c_last, c_edge) = (client.next_seq, client.last_ack, client.next_win);
        let s_next = self.session.server().next_seq;
        let answered = self.session.answers_syn_ack(segment.ack);
        if segment.seq == c_next && answered {
            self.ordinary_ack();
        } else if self.config.tracks_one_sided() && segment.seq == s_next && self.may_be_one_sided() {
            self.one_sided_server();
        } else if segment.seq == c_next {
            self.session.flags |= SessionFlags::EVASION_ATTEMPT;
            return self.reject(StreamEvent::ThreeWayRightSeqWrongAckEvasion);
        } else if !self.to_server()
            && !self.config.inline()
            && segment.seq.after(c_next)
            && segment.ack.after(c_last)
        {
            self.server_after_loss();
        } else if segment.seq.after(c_next) && segment.seq.at_most(c_edge) && answered {
            self.client_after_loss();
        } else if (missed_ack || self.is(SessionFlags::FAST_OPEN))
            && segment.ack == c_last
            && self.session.answers_syn_ack(segment.seq)
        {
            // The server's data came first: the client's ACK was lost, or Fast Open. (After the data of the
            // SYN/ACK, or that data again.)
            let end = segment.end();
            self.set_next_seq(Direction::ToClient, end);
            self.update_window();
            self.session.client_mut().reset_next_win();
            self.set_state(TcpState::Established);
            self.accept_as(Direction::ToClient);
        } else {
            return self.reject(StreamEvent::ThreeWayWrongSeqWrongAck);
        }
        Ok(())
    }

    fn ordinary_ack(&mut self) {
        let segment = self.segment;
        self.handle_timestamp();
        self.take_ack_of_syn_ack();
        let next = self.session.client().next_seq.plus(segment.len());
        self.set_next_seq(Direction::ToServer, next);
        let server = self.session.server_mut();
        server.window = u32::from(segment.window) << server.wscale;
        server.reset_next_win();
        if self.is(SessionFlags::MIDSTREAM) {
            let client = self.session.client_mut();
            client.window = u32::from(segment.window) << client.wscale;
            client.reset_next_win();
            if !self.is(SessionFlags::MIDSTREAM_SYN_ACK) {
                self.assume_largest_windows();
            }
        }
        self.set_state(TcpState::Established);
        // Data that completes the handshake belongs to an established flow: the ACK was lost.
        self.out.established_now = !segment.is_empty();
        self.accept_as(Direction::ToServer);
    }

    /// Notes that the client has the SYN/ACK, and the acknowledged part of its data: the rest is
    /// retransmitted.
    fn take_ack_of_syn_ack(&mut self) {
        let ack = self.segment.ack;
        let server = self.session.server_mut();
        server.update_last_ack(ack);
        if ack.after(server.next_seq) {
            server.next_seq = ack;
        }
    }

    fn one_sided_server(&mut self) {
        let segment = self.segment;
        self.session.flags |= SessionFlags::ASYNC;
        let server = self.session.server_mut();
        server.next_seq = server.next_seq.plus(segment.len());
        server.last_ack = segment.seq;
        let client = self.session.client_mut();
        client.window = u32::from(segment.window) << client.wscale;
        client.last_ack = segment.ack;
        self.handle_timestamp();
        if self.is(SessionFlags::MIDSTREAM) {
            let server = self.session.server_mut();
            server.window = u32::from(segment.window);
            server.reset_next_win();
            self.assume_largest_windows();
        }
        self.set_state(TcpState::Established);
        self.accept_as(Direction::ToClient);
    }

    fn server_after_loss(&mut self) {
        let segment = self.segment;
        self.handle_timestamp();
        let client = self.session.client_mut();
        client.update_last_ack(segment.ack);
        client.window = u32::from(segment.window) << client.wscale;
        client.reset_next_win();
        let server = self.session.server_mut();
        server.next_seq = segment.end();
        server.reset_next_win();
        self.set_state(TcpState::Established);
        self.accept_as(Direction::ToClient);
    }

    fn client_after_loss(&mut self) {
        let segment = self.segment;
        self.handle_timestamp();
        self.session.client_mut().next_seq = segment.end();
        self.take_ack_of_syn_ack();
        let server = self.session.server_mut();
        server.window = u32::from(segment.window) << server.wscale;
        server.reset_next_win();
        if self.is(SessionFlags::MIDSTREAM) {
            self.session.client_mut().window = u32::from(segment.window);
            self.assume_largest_windows();
        }
        self.set_state(TcpState::Established);
        self.accept_as(Direction::ToServer);
    }

    /// Assumes the largest windows for a session picked up in the middle, whose negotiation is unknown.
    fn assume_largest_windows(&mut self) {
        self.session.server_mut().wscale = WSCALE_MAX;
        self.session.client_mut().wscale = WSCALE_MAX;
        self.session.flags |= SessionFlags::SACK_OK;
    }
}
