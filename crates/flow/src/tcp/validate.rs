// SPDX-License-Identifier: Apache-2.0
//! Whether an acknowledgement, a RST or a timestamp is acceptable to the receiver.
//!
//! RST: RFC 9293 section 3.10.7 and the behaviour of operating systems (Novak, "Target-Based TCP Stream
//! Reassembly", 2007). Timestamps: PAWS, RFC 7323 section 5.

use super::peer::PeerFlags;
use super::session::{SessionFlags, WINDOW_SLACK};
use super::step::{Rejected, SegmentStep};
use super::{HostPolicy, Peer, Seq, StreamEvent, TcpFlags, TcpState};

/// PAWS: a timestamp older than 24 days is no longer comparable.
const TIMESTAMP_LIFETIME: u32 = 24 * 24 * 60 * 60;

/// A quarter of the distance at which a timestamp looks old again, in the sender's ticks.
const TIMESTAMP_FAR_AHEAD: i32 = bartizan_packet::slots::TIMESTAMP_FAR_AHEAD.cast_signed();

/// The changes by a timestamp check.
#[derive(Clone, Copy, Default)]
struct TimestampUpdate {
    last_ts: Option<u32>,
    last_pkt_ts: Option<u32>,
    stop: bool,
    clear_zero: bool,
}

impl SegmentStep<'_, '_> {
    /// Checks the packet's acknowledgement against the data that the packet's receiver has sent.
    pub(crate) fn validate_ack(&mut self) -> Result<(), Rejected> {
        if self.ack_is_acceptable() { Ok(()) } else { self.reject(StreamEvent::PktInvalidAck) }
    }

    /// Whether the packet acknowledges data that its receiver may have sent, or nothing.
    pub(crate) fn ack_is_acceptable(&self) -> bool {
        if !self.has(TcpFlags::ACK) {
            return true;
        }
        let ack = self.segment.ack;
        let rcv = self.rcv();
        if ack.before(rcv.last_ack) {
            // After a RST no acknowledgement advances.
            let overtaken = if self.has(TcpFlags::RST) { 0 } else { rcv.overtaken() };
            // A window that is small or closed now was larger when an older segment left.
            let largest = rcv.window.max(rcv.window_max).max(overtaken);
            // Before the end of the handshake there are no acknowledgements of data.
            let known = self.session.sees_all(self.config) && self.session.is_under_way();
            let unknown = rcv.window == 0 && !known;
            return unknown || ack.at_least(rcv.last_ack.minus(largest));
        }
        // With one side invisible, no further check is possible.
        if ack.at_most(self.acknowledged_at_most()) || ack == rcv.last_ack || self.is(SessionFlags::ASYNC) {
            return true;
        }
        // A RST of the server that answers the SYN acknowledges it before there is a window.
        self.session.state == TcpState::SynSent
            && !self.to_server()
            && self.has(TcpFlags::RST)
            && ack == rcv.isn.plus(1)
    }

    /// The highest number that the packet's receiver can have sent. If all its packets passed here, the
    /// number is known: a higher acknowledgement is forged, and no receiver accepts it (RFC 5961 section 5).
    /// Believed, it would acknowledge later data. Otherwise the window bounds it.
    fn acknowledged_at_most(&self) -> Seq {
        let rcv = self.rcv();
        let known = self.session.sees_all(self.config) && self.session.state >= TcpState::SynRecv;
        if known { self.end_of(rcv) } else { rcv.next_win }
    }

    /// Whether the packet lacks all flags without which a receiver with the connection drops it (RFC 9293
    /// section 3.10.7.4, fifth step): otherwise a bare FIN would be accepted at any number and with any
    /// acknowledgement.
    pub(crate) fn is_taken_by_nobody(&self) -> bool {
        let needs = TcpFlags::ACK.union(TcpFlags::SYN).union(TcpFlags::RST);
        self.session.sees_all(self.config)
            && self.session.state >= TcpState::SynRecv
            && !self.segment.flags.intersects(needs)
    }

    /// As [`SegmentStep::validate_ack`], with the event of the state.
    pub(crate) fn validate_ack_or(&mut self, event: StreamEvent) -> Result<(), Rejected> {
        if self.validate_ack().is_err() {
            return self.reject(event);
        }
        Ok(())
    }

    /// Whether the receiver accepts the RST.
    pub(crate) fn validate_rst(&mut self) -> Result<(), Rejected> {
        if self.is(SessionFlags::TIMESTAMP) {
            self.validate_timestamp()?;
        }
        if !self.segment.is_empty() {
            self.event(StreamEvent::RstWithData);
        }
        if self.has(TcpFlags::ACK) && self.segment.ack.0 != 0 {
            self.validate_ack_or(StreamEvent::RstInvalidAck)?;
        }
        // A signature cannot be verified by an observer: later packets show whether the sender continues.
        if self.segment.options.signed {
            self.rcv_mut().flags |= PeerFlags::RST_RECEIVED;
        }
        let segment = self.segment;
        let snd = self.snd();
        let valid = if self.is(SessionFlags::ASYNC) {
            segment.seq.at_least(snd.next_seq)
        } else {
            match self.policy {
                // Current real receivers believe only the number that they expect (RFC 5961 section 3). An
                // older receiver, which would believe another RST, does not get it.
                _ if self.session.sees_all(self.config) => self.answers_syn() || self.is_expected_rst(),
                HostPolicy::Hpux11 => segment.seq.at_least(snd.next_seq),
                HostPolicy::OldLinux | HostPolicy::Linux | HostPolicy::Solaris => {
                    segment.end().at_least(snd.last_ack) && segment.seq.before(snd.next_seq.plus(snd.window))
                }
                _ => self.is_expected_rst(),
            }
        };
        if valid { Ok(()) } else { Err(Rejected) }
    }

    /// Whether the server acknowledges the client's SYN, which is unanswered so far: the client has no number
    /// of the server yet, and so needs no more of a RST (RFC 9293 section 3.10.7.3).
    fn answers_syn(&self) -> bool {
        self.session.state == TcpState::SynSent && !self.to_server() && self.has(TcpFlags::ACK)
    }

    /// Whether a RST has the expected number: in a closing connection, where overtaking data is not counted,
    /// the number after all data.
    fn is_expected_rst(&self) -> bool {
        let behind_all = self.session.sees_all(self.config) && self.segment.seq == self.end_of(self.snd());
        self.segment.seq == self.snd().next_seq || behind_all || self.follows_own_fin()
    }

    /// The number after everything that a side has sent, if all of it passed here. A FIN counts after all
    /// data, even if the first FIN was earlier: that may be forged, or arrive before the data.
    fn end_of(&self, peer: &Peer) -> Seq {
        let fin = TcpFlags::from_bits_retain(peer.tcp_flags).contains(TcpFlags::FIN);
        peer.sent.plus(u32::from(fin))
    }

    /// Whether an honest host may have sent a RST that its receiver does not believe now. A receiver believes
    /// RCV.NXT only (RFC 5961 section 3):
    ///
    /// * A host that has closed a socket answers each segment in flight with a RST whose number is that
    ///   segment's acknowledgement, which was used before, maybe by its FIN (RFC 9293 section 3.10.7.4).
    /// * After data that was lost on the way the number is in the receiver's window, and the receiver answers
    ///   with an acknowledgement, upon which the sender resets with the exact number (RFC 5961 section 3.2).
    ///   Without that, a receiver that sends nothing itself waits forever.
    ///
    /// Such a RST is forwarded without effect: data that its receiver still accepts is inspected as before.
    /// Receivers ignore a RST beyond the window.
    pub(crate) fn is_rst_that_is_not_believed(&self) -> bool {
        let snd = self.snd();
        let furthest = [snd.last_ack, snd.next_seq, snd.next_win];
        let oldest = snd.last_ack.minus(snd.window.max(WINDOW_SLACK));
        self.config.inline()
            && self.session.state >= TcpState::SynRecv
            && !self.is(SessionFlags::MIDSTREAM | SessionFlags::ASYNC)
            && self.has(TcpFlags::RST)
            && !self.segment.flags.intersects(TcpFlags::SYN | TcpFlags::FIN)
            && self.segment.is_empty()
            && (!self.has(TcpFlags::ACK) || self.segment.ack.0 == 0 || self.ack_is_acceptable())
            && self.segment.seq.at_least(oldest)
            && furthest.iter().any(|number| self.segment.seq.at_most(*number))
    }

    /// Whether a client that opens these ports anew answers leftovers of an earlier connection (RFC 9293
    /// section 3.10.7.1 and 3.10.7.3): with a bare RST whose number is one of that connection's, before its
    /// own beginning. No host with the new connection believes it, as it is before the window; it ends the
    /// rest of the old one. So it is forwarded without effect: even if it were believed, later data would
    /// still be inspected.
    pub(crate) fn is_rst_for_an_earlier_connection(&self) -> bool {
        self.config.inline()
            && self.to_server()
            && !self.is(SessionFlags::MIDSTREAM | SessionFlags::ASYNC)
            && self.has(TcpFlags::RST)
            && !self.segment.flags.intersects(TcpFlags::ACK | TcpFlags::SYN | TcpFlags::FIN)
            && self.segment.is_empty()
            && self.segment.seq.before(self.session.client().isn)
    }

    /// Whether the packet directly follows the client's FIN, whose number counts only once it is
    /// acknowledged.
    fn follows_own_fin(&self) -> bool {
        self.to_server()
            && self.session.state >= TcpState::FinWait1
            && TcpFlags::from_bits_retain(self.snd().tcp_flags).contains(TcpFlags::FIN)
            && self.segment.seq == self.snd().next_seq.plus(1)
    }

    /// Checks the packet's timestamp without changes.
    pub(crate) fn validate_timestamp(&mut self) -> Result<(), Rejected> {
        match self.check_timestamp() {
            Some(_) => Ok(()),
            None => self.reject(StreamEvent::PktInvalidTimestamp),
        }
    }

    /// Takes over the packet's timestamp when the session uses timestamps.
    pub(crate) fn handle_timestamp(&mut self) {
        if !self.is(SessionFlags::TIMESTAMP) {
            return;
        }
        if self.segment.options.ts.is_none() {
            // Solaris stops using timestamps after a packet without one.
            if self.policy == HostPolicy::Solaris {
                self.session.flags.remove(SessionFlags::TIMESTAMP);
            }
            return;
        }
        let Some(update) = self.check_timestamp() else {
            self.event(StreamEvent::PktInvalidTimestamp);
            return;
        };
        if update.stop {
            self.session.flags.remove(SessionFlags::TIMESTAMP);
        }
        let snd = self.snd_mut();
        if update.clear_zero {
            snd.flags.remove(PeerFlags::ZERO_TIMESTAMP);
        }
        if let Some(ts) = update.last_ts {
            snd.last_ts = ts;
        }
        if let Some(seconds) = update.last_pkt_ts {
            snd.last_pkt_ts = seconds;
        }
    }

    /// The changes by the packet's timestamp; `None` when the receiver refuses the packet.
    fn check_timestamp(&self) -> Option<TimestampUpdate> {
        let mut update = TimestampUpdate::default();
        let Some((ts, _)) = self.segment.options.ts else { return Some(update) };
        let snd = self.snd();
        let expected = self.segment.seq == snd.next_seq;
        let mut check = true;
        if snd.flags.contains(PeerFlags::ZERO_TIMESTAMP) {
            match self.policy {
                // These do not accept a timestamp of zero in the handshake: timestamps are off.
                HostPolicy::Linux | HostPolicy::Windows2k3 => {
                    update.stop = true;
                    check = false;
                }
                // These take the next one.
                HostPolicy::OldLinux | HostPolicy::Windows | HostPolicy::Vista => {
                    update.clear_zero = true;
                    if expected {
                        update.last_ts = Some(ts);
                        check = false;
                    }
                }
                _ => {}
            }
        }
        // HP-UX 11 ignores the timestamps of packets out of order.
        if self.policy == HostPolicy::Hpux11 && !expected {
            check = false;
        }
        let zero_allowed = matches!(
            self.policy,
            HostPolicy::OldLinux
                | HostPolicy::Windows
                | HostPolicy::Windows2k3
                | HostPolicy::Vista
                | HostPolicy::Solaris
        );
        if ts == 0 && !zero_allowed {
            return None;
        }
        if !check {
            return Some(update);
        }
        let slack = u32::from(self.policy == HostPolicy::Linux || self.config.liberal_timestamps);
        let advance = ts.wrapping_sub(snd.last_ts).wrapping_add(slack).cast_signed();
        let last_pkt_ts =
            if snd.last_pkt_ts == 0 && self.is(SessionFlags::MIDSTREAM) { self.now } else { snd.last_pkt_ts };
        let outlived = self.now > last_pkt_ts.saturating_add(TIMESTAMP_LIFETIME);
        let refused = advance < 0 || (snd.last_ts != 0 && outlived);
        if refused && !(expected && outlived) {
            return (self.is_late_ack() || self.is_late_data()).then(TimestampUpdate::default);
        }
        let renews = if self.config.strict { outlived || self.renews_timestamp(advance) } else { expected };
        if renews {
            update.last_ts = Some(ts);
        }
        update.last_pkt_ts = Some(self.now);
        Some(update)
    }

    /// Whether later packets are compared with this packet's timestamp, as receivers do: only if it begins at
    /// or before the last acknowledged byte, so that data overtaken by later data does not count as old (RFC
    /// 7323 section 4.3). Since acknowledgements lag behind here, a timestamp far ahead counts at once: the
    /// clock of a busy sender must not wrap unnoticed.
    fn renews_timestamp(&self, advance: i32) -> bool {
        let snd = self.snd();
        // Receivers ignore segments that end before it.
        let current = self.segment.seq.at_most(snd.last_ack) && self.segment.end().at_least(snd.last_ack);
        let leads = self.segment.seq == self.expected;
        current || leads && advance > TIMESTAMP_FAR_AHEAD
    }

    /// Whether the packet is an acknowledgement overtaken by other ones, by data or by the FIN of its sender
    /// (which sends from several processors), or one that has itself overtaken data: it has no data and no
    /// new acknowledgement, in any state of the session. Receivers accept or discard it without a difference,
    /// so strict prevention forwards it; it has no effect either.
    pub(crate) fn is_late_ack(&self) -> bool {
        let others = TcpFlags::SYN | TcpFlags::FIN | TcpFlags::RST;
        self.config.strict
            && self.config.inline()
            && self.out.previous >= TcpState::Established
            && self.segment.is_empty()
            && self.segment.has(TcpFlags::ACK)
            && !self.segment.flags.intersects(others)
            && (self.segment.seq.at_most(self.snd().next_seq) || self.in_window())
            && self.segment.seq.at_least(self.session.oldest(self.direction))
            && self.acknowledges_nothing_new()
    }

    fn acknowledges_nothing_new(&self) -> bool {
        self.segment.ack.at_most(self.rcv().last_ack)
            && self.segment.ack.at_least(self.session.oldest(self.direction.flip()))
    }

    /// Whether the packet is data that its sender has retransmitted meanwhile, and that the retransmission
    /// has overtaken: its timestamp is old, and all its bytes have passed before. Receivers discard it, so it
    /// may leave; if one accepts it, the data has been compared with the inspected data, as every
    /// retransmission is. (Data with an old timestamp that would fill a hole is refused: no receiver accepts
    /// it, and its bytes would take the place of later data.)
    fn is_late_data(&self) -> bool {
        let others = TcpFlags::SYN | TcpFlags::FIN | TcpFlags::RST;
        let snd = self.snd();
        // Without a reader, the sender's position counts.
        let came = match self.stream.filter(|stream| !stream.ended()) {
            Some(stream) => stream.held_to(snd).unwrap_or(snd.last_ack),
            None => snd.next_seq,
        };
        self.config.strict
            && self.config.inline()
            && self.out.previous >= TcpState::Established
            && !self.is(SessionFlags::ASYNC)
            && !self.segment.is_empty()
            && self.segment.has(TcpFlags::ACK)
            && !self.segment.flags.intersects(others)
            && (self.segment.end().at_most(came) || self.segment.end().at_most(snd.last_ack))
            && self.segment.seq.at_least(self.session.oldest(self.direction))
            && self.acknowledges_nothing_new()
    }

    /// Whether the echo in the reply to a SYN is a timestamp that the client sent.
    pub(crate) fn echo_is_plausible(&self) -> bool {
        if self.to_server() {
            return true;
        }
        let Some((_, echo)) = self.segment.options.ts else { return true };
        let client = self.session.client();
        if client.flags.contains(PeerFlags::TIMESTAMP) {
            client.last_ts == 0 || echo == 0 || echo == client.last_ts
        } else {
            // Some middleboxes remove the option from SYNs, and some servers echo any value in their reply.
            // Other segments with such an echo (a RST, a FIN) are forged.
            let answers = self.has(super::handshake::SYN_ACK);
            answers && self.config.liberal_timestamps || client.last_ts != 0 || echo == 0
        }
    }
}
