// SPDX-License-Identifier: Apache-2.0
//! The end of a session: FIN, and later packets (RFC 9293 section 3.6). `fin_wait1` means that the server
//! closed first, `close_wait` that the client did.

use super::session::{SessionFlags, WINDOW_SLACK};
use super::step::{HandlerResult, Rejected, SegmentStep};
use super::{StreamEvent, TcpFlags, TcpState};

const FIN_ACK: TcpFlags = TcpFlags::FIN.union(TcpFlags::ACK);

impl SegmentStep<'_, '_> {
    /// RST in every closing state.
    fn closing_rst(&mut self) -> HandlerResult {
        if let Err(refused) = self.validate_rst() {
            return if self.is_rst_that_is_not_believed() { Ok(()) } else { Err(refused) };
        }
        self.close_by_rst();
        self.finish_rst(self.segment.seq);
        Ok(())
    }

    fn closing_timestamp(&mut self) -> HandlerResult {
        if self.is(SessionFlags::TIMESTAMP) { self.validate_timestamp() } else { Ok(()) }
    }

    /// Whether, with real receivers, a segment of a closing connection ends before the receiver's position.
    /// The receiver answers it with an acknowledgement and ignores it, including its acknowledgement and
    /// timestamp (RFC 9293 section 3.10.7.4, first step). An honest sender may have had it in flight: so it
    /// is forwarded without effect.
    pub(crate) fn is_behind(&self) -> Result<bool, Rejected> {
        let state = self.session.state;
        let closing = state > TcpState::Established && state != TcpState::Closed;
        let end = self.segment.end().plus(u32::from(self.has(TcpFlags::FIN)));
        let behind = closing
            && self.session.sees_all(self.config)
            && !self.segment.flags.intersects(TcpFlags::SYN.union(TcpFlags::RST))
            && end.before(self.snd().last_ack);
        if behind && end.before(self.session.oldest(self.direction)) { Err(Rejected) } else { Ok(behind) }
    }

    /// Whether a FIN begins where the sender's window allows, at most `slack` before the expected number.
    /// With real receivers no FIN is accepted after data that has not arrived yet: it may be forged, and does
    /// not end the data that its receiver still expects. (Once acknowledged, the FIN counts.)
    fn fin_fits(&self, slack: u32) -> bool {
        let snd = self.snd();
        let leads = self.session.sees_all(self.config)
            && self.segment.seq.after(snd.next_seq)
            && self.segment.seq.after(snd.last_ack);
        self.segment.seq.at_least(snd.next_seq.minus(slack)) && self.begins_in_the_window() && !leads
    }

    /// The state after the last acknowledgement. If FINs count only once they are acknowledged, `note_ends`
    /// decides this after the acknowledgement.
    fn closes(&self) -> Option<TcpState> {
        (!self.session.sees_all(self.config)).then_some(TcpState::Closed)
    }

    /// Whether a segment begins in the sender's current window, or in one that it had when it sent.
    fn begins_in_the_window(&self) -> bool {
        let snd = self.snd();
        self.segment.seq.at_most(snd.last_ack.plus(snd.window)) || self.segment.seq.at_most(snd.next_win)
    }

    /// A retransmitted FIN; its acknowledgement may be a later one.
    fn is_fin_again(&self) -> bool {
        self.segment.seq == self.snd().next_seq.minus(1)
    }

    /// Forwards, without effect, a packet beside the last steps of a close, if its receiver may accept it.
    fn forward_unchanged(&mut self, event: StreamEvent) -> HandlerResult {
        if self.session.sees_all(self.config) { self.validate_ack_or(event) } else { Ok(()) }
    }

    /// Refuses a packet that a state does not expect, unless an honest host sends it: after losses before the
    /// observer, and with FINs that cross or are retransmitted, numbers differ from those that the state
    /// expects, but the receiver still accepts them or answers with an ACK (RFC 9293 section 3.10.7.4). Such
    /// a packet passes and changes no state.
    fn refuse(&mut self, event: StreamEvent) -> HandlerResult {
        if !self.is_near_the_window() || !self.has(TcpFlags::ACK) || !self.ack_is_acceptable() {
            return self.reject(event);
        }
        self.handle_timestamp();
        self.update_last_ack();
        self.update_sack_and_edge();
        self.accept();
        Ok(())
    }

    /// Whether a segment is in the sender's window or, as a retransmission, shortly before it.
    fn is_near_the_window(&self) -> bool {
        let snd = self.snd();
        let before = snd.last_ack.minus(snd.window.max(WINDOW_SLACK));
        self.segment.seq.at_least(before)
            && (self.in_window() || self.segment.end().at_most(snd.last_ack.plus(snd.window)))
    }

    pub(crate) fn fin_wait1(&mut self) -> HandlerResult {
        if self.has(TcpFlags::RST) {
            self.closing_rst()
        } else if self.has(FIN_ACK) {
            self.closing_timestamp()?;
            self.fin_wait1_fin_ack()
        } else if self.has(TcpFlags::FIN) {
            self.closing_timestamp()?;
            self.fin_wait1_fin()
        } else if self.has(TcpFlags::SYN) {
            self.refuse_syn(StreamEvent::ShutdownSynResend)
        } else if self.has(TcpFlags::ACK) {
            self.closing_timestamp()?;
            self.fin_wait1_ack()
        } else {
            Ok(())
        }
    }

    fn fin_wait1_fin_ack(&mut self) -> HandlerResult {
        let mut again = self.is_retransmission();
        if !again && !self.to_server() && self.is_fin_again() {
            self.mark_retransmission();
            again = true;
        } else if !again && !self.fin_fits(1) {
            return self.refuse(StreamEvent::Fin1FinWrongSeq);
        }
        self.validate_ack_or(StreamEvent::Fin1InvalidAck)?;
        if !again {
            self.set_state(TcpState::TimeWait);
            self.update_window();
        }
        self.handle_timestamp();
        if self.to_server() || !again {
            self.catch_up_receiver(1);
            let expected = self.snd().next_seq.minus(u32::from(!self.to_server()));
            self.advance_sender(expected);
        }
        self.update_last_ack();
        self.update_sack_and_edge();
        self.accept();
        Ok(())
    }

    fn fin_wait1_fin(&mut self) -> HandlerResult {
        let again = self.is_retransmission();
        if !again && !self.fin_fits(1) {
            return self.refuse(StreamEvent::Fin1FinWrongSeq);
        }
        self.validate_ack_or(StreamEvent::Fin1InvalidAck)?;
        if !again {
            self.set_state(TcpState::Closing);
            self.update_window();
        }
        self.handle_timestamp();
        self.catch_up_receiver(1);
        let expected = self.snd().next_seq.minus(1);
        self.advance_sender(expected);
        self.update_last_ack();
        self.update_sack_and_edge();
        self.accept();
        Ok(())
    }

    fn fin_wait1_ack(&mut self) -> HandlerResult {
        let again = self.is_retransmission();
        self.validate_ack_or(StreamEvent::Fin1InvalidAck)?;
        let (seq, ack) = (self.segment.seq, self.segment.ack);
        // The client's ACK advances the session only when it covers the server's FIN.
        let covers = !self.to_server() || ack == self.rcv().next_seq;
        if !again && covers {
            if !self.in_window() {
                return self.reject(StreamEvent::Fin1AckWrongSeq);
            }
            let expected = self.snd().next_seq.minus(u32::from(!self.to_server()));
            if seq == expected {
                self.set_state(TcpState::FinWait2);
            }
            self.update_window();
        }
        self.handle_timestamp();
        self.catch_up_receiver(1);
        let expected = self.snd().next_seq.minus(u32::from(!self.to_server()));
        self.advance_sender(expected);
        self.update_last_ack();
        self.update_sack_and_edge();
        self.accept();
        Ok(())
    }

    pub(crate) fn fin_wait2(&mut self) -> HandlerResult {
        if self.has(TcpFlags::RST) {
            self.closing_rst()
        } else if self.has(TcpFlags::FIN) {
            self.closing_timestamp()?;
            self.fin_wait2_fin()
        } else if self.has(TcpFlags::SYN) {
            self.refuse_syn(StreamEvent::ShutdownSynResend)
        } else if self.has(TcpFlags::ACK) {
            self.closing_timestamp()?;
            self.fin_wait2_ack()
        } else {
            Ok(())
        }
    }

    fn fin_wait2_fin(&mut self) -> HandlerResult {
        let again = if self.is_fin_again() {
            self.mark_retransmission();
            true
        } else {
            self.is_retransmission()
        };
        if !again && !self.fin_fits(0) {
            return self.refuse(StreamEvent::Fin2FinWrongSeq);
        }
        self.validate_ack_or(StreamEvent::Fin2InvalidAck)?;
        if !again {
            self.set_state(TcpState::TimeWait);
            if self.to_server() {
                let expected = self.snd().next_seq;
                self.advance_sender(expected);
            }
            self.update_window();
        }
        self.handle_timestamp();
        self.catch_up_receiver(0);
        self.update_last_ack();
        self.update_sack_and_edge();
        self.accept();
        Ok(())
    }

    fn fin_wait2_ack(&mut self) -> HandlerResult {
        let again = self.is_retransmission();
        self.validate_ack_or(StreamEvent::Fin2InvalidAck)?;
        if !again {
            if !self.in_window() {
                return self.reject(StreamEvent::Fin2AckWrongSeq);
            }
            self.update_window();
        }
        self.handle_timestamp();
        let expected = self.snd().next_seq;
        self.advance_sender(expected);
        self.update_last_ack();
        self.update_sack_and_edge();
        self.accept();
        Ok(())
    }

    pub(crate) fn closing(&mut self) -> HandlerResult {
        if self.has(TcpFlags::RST) {
            return self.closing_rst();
        }
        if self.has(TcpFlags::SYN) {
            return self.refuse_syn(StreamEvent::ShutdownSynResend);
        }
        if !self.has(TcpFlags::ACK) {
            return Ok(());
        }
        self.closing_timestamp()?;
        let again = self.is_retransmission();
        if self.segment.seq != self.snd().next_seq {
            return self.refuse(StreamEvent::ClosingAckWrongSeq);
        }
        self.validate_ack_or(StreamEvent::ClosingInvalidAck)?;
        self.finish_ack(again, Some(TcpState::TimeWait));
        Ok(())
    }

    /// The common part of the ACKs of the last states.
    fn finish_ack(&mut self, again: bool, next: Option<TcpState>) {
        if !again {
            if let Some(state) = next {
                self.set_state(state);
            }
            self.update_window();
        }
        self.handle_timestamp();
        self.catch_up_receiver(0);
        self.update_last_ack();
        self.update_sack_and_edge();
        self.accept();
    }

    pub(crate) fn close_wait(&mut self) -> HandlerResult {
        if self.has(TcpFlags::RST) {
            self.closing_rst()
        } else if self.has(TcpFlags::FIN) {
            self.closing_timestamp()?;
            let again = self.is_retransmission();
            if !again && !self.fin_fits(0) {
                return self.refuse(StreamEvent::ClosewaitFinOutOfWindow);
            }
            self.validate_ack_or(StreamEvent::ClosewaitInvalidAck)?;
            // Only the server's FIN is the second one.
            let next = (!self.to_server()).then_some(TcpState::LastAck);
            if !again && next.is_some() {
                // The end of this segment may arrive again: the next acknowledgement closes the session, even
                // one of data before the FIN.
                let end = self.segment.end().plus(1);
                if end.after(self.snd().next_seq) {
                    self.snd_mut().next_seq = end;
                }
            }
            self.finish_ack(again, next);
            Ok(())
        } else if self.has(TcpFlags::SYN) {
            self.refuse_syn(StreamEvent::ShutdownSynResend)
        } else if self.has(TcpFlags::ACK) {
            self.closing_timestamp()?;
            self.close_wait_ack()
        } else {
            Ok(())
        }
    }

    fn close_wait_ack(&mut self) -> HandlerResult {
        let again = self.is_retransmission();
        let end = self.segment.end();
        let snd = self.snd();
        if !self.segment.is_empty() && end.at_most(snd.last_ack) {
            return self.refuse(StreamEvent::ClosewaitPktBeforeLastAck);
        }
        if !self.begins_in_the_window() {
            return self.reject(StreamEvent::ClosewaitAckOutOfWindow);
        }
        self.validate_ack_or(StreamEvent::ClosewaitInvalidAck)?;
        if !again {
            self.update_window();
        }
        self.handle_timestamp();
        self.catch_up_receiver(0);
        let expected = self.snd().next_seq;
        self.advance_sender(expected);
        self.update_last_ack();
        // A side that has closed continues to read: the other side's window advances.
        self.update_sack_and_edge();
        self.accept();
        Ok(())
    }

    pub(crate) fn last_ack_state(&mut self) -> HandlerResult {
        if self.has(TcpFlags::RST) {
            return self.closing_rst();
        }
        if self.has(TcpFlags::FIN) {
            return self.forward_unchanged(StreamEvent::LastackInvalidAck);
        }
        if self.has(TcpFlags::SYN) {
            return self.refuse_syn(StreamEvent::ShutdownSynResend);
        }
        if !self.has(TcpFlags::ACK) {
            return Ok(());
        }
        self.closing_timestamp()?;
        if !self.to_server() {
            return self.forward_unchanged(StreamEvent::LastackInvalidAck);
        }
        let again = self.is_retransmission();
        self.validate_ack_or(StreamEvent::LastackInvalidAck)?;
        let seq = self.segment.seq;
        let next = self.snd().next_seq;
        let over = !again && !seq.before(next);
        if over && seq != next && seq != next.plus(1) {
            return self.refuse(StreamEvent::LastackAckWrongSeq);
        }
        let closed = self.closes();
        if closed.is_none() {
            self.advance_sender(next);
        }
        self.finish_ack(again, closed.filter(|_| over));
        Ok(())
    }

    pub(crate) fn time_wait(&mut self) -> HandlerResult {
        if self.has(TcpFlags::RST) {
            return self.closing_rst();
        }
        if self.has(TcpFlags::FIN) {
            return self.forward_unchanged(StreamEvent::TimewaitInvalidAck);
        }
        if self.has(TcpFlags::SYN) {
            return self.refuse_syn(StreamEvent::ShutdownSynResend);
        }
        if !self.has(TcpFlags::ACK) {
            return Ok(());
        }
        self.closing_timestamp()?;
        let again = self.is_retransmission();
        let seq = self.segment.seq;
        let next = self.snd().next_seq;
        let fin = if self.to_server() { next.plus(1) } else { next.minus(1) };
        if !again && seq != next && seq != fin {
            if !self.to_server() && !self.segment.is_empty() && seq == self.snd().last_ack {
                return self.forward_unchanged(StreamEvent::TimewaitInvalidAck);
            }
            return self.refuse(StreamEvent::TimewaitAckWrongSeq);
        }
        self.validate_ack_or(StreamEvent::TimewaitInvalidAck)?;
        let closed = self.closes();
        if closed.is_none() {
            self.advance_sender(next);
        }
        self.finish_ack(again, closed);
        Ok(())
    }
}
