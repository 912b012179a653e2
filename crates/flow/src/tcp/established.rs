// SPDX-License-Identifier: Apache-2.0
//! The established session: data, acknowledgements, and packets that do not belong to it.

use super::queued::OpeningSyn;
use super::session::SessionFlags;
use super::step::{HandlerResult, SegmentStep};
use super::{PacketKind, Seq, StreamEvent, TcpFlags, TcpState};

impl SegmentStep<'_, '_> {
    pub(crate) fn established(&mut self) -> HandlerResult {
        let syn_ack = TcpFlags::SYN.union(TcpFlags::ACK);
        if self.has(TcpFlags::RST) {
            self.established_rst()
        } else if self.has(TcpFlags::FIN) {
            if self.is(SessionFlags::TIMESTAMP) {
                self.validate_timestamp()?;
            }
            self.first_fin()
        } else if self.has(syn_ack) {
            self.established_syn_ack()
        } else if self.has(TcpFlags::SYN) {
            let event = if !self.to_server() {
                StreamEvent::EstSynToclient
            } else if self.segment.seq != self.session.client().isn {
                StreamEvent::EstSynResendDiffSeq
            } else {
                StreamEvent::EstSynResend
            };
            self.refuse_syn(event)
        } else if self.has(TcpFlags::ACK) {
            if self.is(SessionFlags::TIMESTAMP) {
                self.validate_timestamp()?;
            }
            if !self.to_server() {
                self.session.flags |= SessionFlags::CONFIRMED;
            }
            // A refused segment raises an event and is, passively, not reassembled; but the packet is not
            // dropped for it (as in Suricata), since losses before the observer look the same.
            let handled = self.established_ack();
            if self.is_made_up() {
                return handled;
            }
            self.out.rejected = handled.is_err();
            Ok(())
        } else {
            Ok(())
        }
    }

    /// Whether a segment is forged, where no packet is lost before the observer: it acknowledges unsent data,
    /// or brings data beyond the advertised window. Its receiver discards it (RFC 9293 section 3.10.7.4, RFC
    /// 5961 section 5), so its data must not take the place of later data.
    fn is_made_up(&self) -> bool {
        let beyond = self.stream.is_some()
            && !self.segment.is_empty()
            && self.out.events.contains(StreamEvent::EstPacketOutOfWindow);
        self.session.sees_all(self.config) && (beyond || self.out.events.contains(StreamEvent::EstInvalidAck))
    }

    /// Refuses a misplaced SYN. Inline, an empty one of the client is forwarded: a receiver with the
    /// connection answers with an ACK and ignores the SYN, and a client that has lost its state learns from
    /// the answer to reset the connection before it opens another (RFC 5961 section 4, RFC 9293 section
    /// 3.5.1).
    pub(crate) fn refuse_syn(&mut self, event: StreamEvent) -> HandlerResult {
        let plain = !self.has(TcpFlags::ACK) && self.segment.is_empty();
        if self.config.compares() && self.to_server() && plain {
            self.event(event);
            self.session.reopening = Some(OpeningSyn::new(self.segment, self.now));
            return Ok(());
        }
        self.reject(event)
    }

    fn established_rst(&mut self) -> HandlerResult {
        if let Err(refused) = self.validate_rst() {
            let stray = self.is_rst_that_is_not_believed() || self.is_rst_for_an_earlier_connection();
            return if stray { Ok(()) } else { Err(refused) };
        }
        self.close_by_rst();
        let (seq, ack, end) = (self.segment.seq, self.segment.ack, self.segment.end());
        self.rcv_mut().next_seq = ack;
        let fin_like = u32::from(!self.to_server());
        let window = u32::from(self.segment.window) << self.snd().wscale;
        let snd = self.snd_mut();
        snd.next_seq = end.plus(fin_like);
        snd.window = window;
        self.finish_rst(seq);
        Ok(())
    }

    /// The common part of every accepted RST, after the change of state.
    pub(crate) fn finish_rst(&mut self, seq: Seq) {
        if self.has(TcpFlags::ACK) && self.validate_ack().is_ok() {
            self.update_last_ack();
        }
        // The sender's position at its reset is the receiver's position, unless the sender lies: inline, only
        // the receiver's acknowledgement counts, since a gap before the RST could otherwise be filled unseen.
        if !self.config.inline() {
            self.snd_mut().update_last_ack(seq);
        }
        self.handle_timestamp();
        self.accept();
    }

    pub(crate) fn close_by_rst(&mut self) {
        self.session.flags |= SessionFlags::CLOSED_BY_RST;
        self.set_state(TcpState::Closed);
    }

    fn established_syn_ack(&mut self) -> HandlerResult {
        if self.to_server() {
            return self.reject(StreamEvent::EstSynackToserver);
        }
        if self.segment.ack != self.session.client().last_ack {
            return self.reject(StreamEvent::EstSynackResendWithDifferentAck);
        }
        if self.segment.seq != self.session.server().isn {
            return self.reject(StreamEvent::EstSynackResendWithDiffSeq);
        }
        if self.is(SessionFlags::CONFIRMED) {
            return self.reject(StreamEvent::EstSynackResend);
        }
        // The server has probably not received the last ACK of the handshake.
        Ok(())
    }

    fn established_ack(&mut self) -> HandlerResult {
        let probe = self.probe_of_other_side();
        let answers_probe = self.is(probe) && self.segment.ack == self.rcv().next_seq.plus(1);
        self.session.flags.remove(probe);
        if answers_probe {
            self.event(StreamEvent::EstAckZwpData);
            if self.session.sees_all(self.config) {
                // The receiver has accepted the byte: the next probe begins after it.
                self.rcv_mut().next_seq = self.segment.ack;
            }
        } else {
            self.validate_ack_or(StreamEvent::EstInvalidAck)?;
        }
        if !self.to_server() && self.is(SessionFlags::MIDSTREAM_ESTABLISHED) {
            // The first packet of the server after a pick-up gives its window.
            let window = u32::from(self.segment.window) << self.snd().wscale;
            let server = self.snd_mut();
            server.window = window;
            server.reset_next_win();
            self.session.flags.remove(SessionFlags::MIDSTREAM_ESTABLISHED);
        }
        self.check_before_last_ack()?;

        let (seq, end) = (self.segment.seq, self.segment.end());
        if self.segment.len() == 1 && seq == self.snd().next_seq && self.snd().window == 0 {
            self.out.kind |= PacketKind::ZERO_WINDOW_PROBE;
            self.session.flags |= if self.to_server() {
                SessionFlags::ZERO_WINDOW_PROBE_TO_SERVER
            } else {
                SessionFlags::ZERO_WINDOW_PROBE_TO_CLIENT
            };
            self.accept();
            return Ok(());
        }
        // Bare segments, and data beyond the window, are easily forged: they do not show their sender's
        // position.
        let brings = !self.segment.is_empty() || !self.session.sees_all(self.config);
        let says = !self.config.compares() || self.in_window() && brings;
        if says && end.at_least(self.snd().next_seq) {
            self.set_next_seq(self.direction, end);
        }
        if !self.in_window() {
            return self.reject(StreamEvent::EstPacketOutOfWindow);
        }
        self.update_window();
        self.update_last_ack();
        if !self.is(SessionFlags::ASYNC) && self.rcv().last_ack.after(self.rcv().next_seq) {
            self.out.kind |= PacketKind::ACK_UNSEEN_DATA;
            self.counters.ack_unseen_data = self.counters.ack_unseen_data.wrapping_add(1);
        }
        self.handle_timestamp();
        self.update_sack_and_edge();
        self.accept();
        Ok(())
    }

    /// Refuses data that ends before the last acknowledgement, with exceptions.
    fn check_before_last_ack(&mut self) -> HandlerResult {
        let (seq, end) = (self.segment.seq, self.segment.end());
        let snd = self.snd();
        let keep_alive = self.segment.len() <= 1 && seq == snd.next_seq.minus(1);
        if keep_alive || end.at_least(snd.last_ack) {
            return Ok(());
        }
        let picked_up_one_sided =
            self.to_server() && self.config.tracks_one_sided() && self.is(SessionFlags::MIDSTREAM);
        if self.is(SessionFlags::ASYNC) {
            // No acknowledgements arrive: the sender's own position takes their place.
            if self.to_server() {
                self.snd_mut().update_last_ack(seq);
            } else {
                self.snd_mut().last_ack = seq;
            }
            Ok(())
        } else if picked_up_one_sided && (seq == snd.next_seq || snd.last_ack == snd.isn.plus(1)) {
            self.snd_mut().update_last_ack(seq);
            self.session.flags |= SessionFlags::ASYNC;
            Ok(())
        } else if snd.last_ack.after(snd.next_seq) && end.after(snd.next_seq) {
            // Acknowledged data that was not seen before.
            Ok(())
        } else {
            self.reject(StreamEvent::EstPktBeforeLastAck)
        }
    }

    /// The first FIN of a session, in `syn_recv` and `established`.
    pub(crate) fn first_fin(&mut self) -> HandlerResult {
        self.validate_ack_or(StreamEvent::FinInvalidAck)?;
        let (seq, end) = (self.segment.seq, self.segment.end());
        if !(seq.at_least(self.snd().last_ack) && end.at_most(self.snd().next_win)) {
            return self.reject(StreamEvent::FinOutOfWindow);
        }
        if self.to_server() {
            if self.has(TcpFlags::SYN) {
                return self.reject(StreamEvent::FinSyn);
            }
            self.set_state(TcpState::CloseWait);
            self.snd_mut().next_seq = end;
        } else {
            self.set_state(TcpState::FinWait1);
            self.snd_mut().next_seq = end.plus(1);
        }
        self.update_window();
        self.handle_timestamp();
        self.catch_up_receiver(0);
        self.update_last_ack();
        self.update_sack_and_edge();
        self.accept();
        Ok(())
    }
}
