// SPDX-License-Identifier: Apache-2.0
//! Whether an acknowledgement, a RST or a timestamp is acceptable to the receiver.
//!
//! RST: RFC 9293 section 3.10.7 and what operating systems do (Novak, "Target-Based TCP Stream
//! Reassembly", 2007). Timestamps: PAWS, RFC 7323 section 5.

use super::peer::PeerFlags;
use super::session::{SessionFlags, WINDOW_SLACK};
use super::step::{Rejected, Step};
use super::{HostPolicy, Peer, Seq, StreamEvent, TcpFlags, TcpState};

/// PAWS: a timestamp older than 24 days is no longer comparable.
const TIMESTAMP_LIFETIME: u32 = 24 * 24 * 60 * 60;

/// A quarter of the way to where a timestamp looks old again, in the sender's ticks.
const TIMESTAMP_FAR_AHEAD: i32 = bartizan_packet::slots::TIMESTAMP_FAR_AHEAD.cast_signed();

/// What a timestamp check would change.
#[derive(Clone, Copy, Default)]
struct TimestampUpdate {
    last_ts: Option<u32>,
    last_pkt_ts: Option<u32>,
    stop: bool,
    clear_zero: bool,
}

impl Step<'_, '_> {
    /// Checks the packet's acknowledgement against what the receiver of the packet has sent.
    pub(crate) fn validate_ack(&mut self) -> Result<(), Rejected> {
        if self.ack_is_acceptable() { Ok(()) } else { self.reject(StreamEvent::PktInvalidAck) }
    }

    /// Whether the packet acknowledges what its receiver may have sent, or nothing.
    pub(crate) fn ack_is_acceptable(&self) -> bool {
        if !self.has(TcpFlags::ACK) {
            return true;
        }
        let ack = self.segment.ack;
        let rcv = self.rcv();
        if ack.before(rcv.last_ack) {
            // Behind a RST nobody acknowledges more.
            let overtaken = if self.has(TcpFlags::RST) { 0 } else { rcv.overtaken() };
            // A window that is small or closed now was larger when an older segment left.
            let largest = rcv.window.max(rcv.window_max).max(overtaken);
            // Before the handshake is over nobody has acknowledged anything.
            let known = self.session.sees_all(self.config) && self.session.is_under_way();
            let unknown = rcv.window == 0 && !known;
            return unknown || ack.at_least(rcv.last_ack.minus(largest));
        }
        // Nothing more can be said when one side is not seen.
        if ack.at_most(self.acknowledged_at_most()) || ack == rcv.last_ack || self.is(SessionFlags::ASYNC) {
            return true;
        }
        // A RST of the server that answers the SYN acknowledges it before there is a window.
        self.session.state == TcpState::SynSent
            && !self.to_server()
            && self.has(TcpFlags::RST)
            && ack == rcv.isn.plus(1)
    }

    /// What the packet's receiver can have sent. Where all of it went by here it is known: who acknowledges
    /// more has made it up, and no receiver takes it (RFC 5961 section 5). Believed, it would count as
    /// acknowledged what is yet to come. Elsewhere the window bounds it.
    fn acknowledged_at_most(&self) -> Seq {
        let rcv = self.rcv();
        let known = self.session.sees_all(self.config) && self.session.state >= TcpState::SynRecv;
        if known { self.end_of(rcv) } else { rcv.next_win }
    }

    /// Whether the packet has none of the flags without which a receiver that has the connection drops it
    /// (RFC 9293 section 3.10.7.4, fifth step): a FIN by itself would be taken wherever it lies, whatever was
    /// sent the other way.
    pub(crate) fn is_taken_by_nobody(&self) -> bool {
        let needs = TcpFlags::ACK.union(TcpFlags::SYN).union(TcpFlags::RST);
        self.session.sees_all(self.config)
            && self.session.state >= TcpState::SynRecv
            && !self.segment.flags.intersects(needs)
    }

    /// The same, with the event of the state.
    pub(crate) fn validate_ack_or(&mut self, event: StreamEvent) -> Result<(), Rejected> {
        if self.validate_ack().is_err() {
            return self.reject(event);
        }
        Ok(())
    }

    /// Whether the receiver takes the RST.
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
        // A signature cannot be verified from outside: go on watching whether the sender goes on.
        if self.segment.options.signed {
            self.rcv_mut().flags |= PeerFlags::RST_RECEIVED;
        }
        let segment = self.segment;
        let snd = self.snd();
        let valid = if self.is(SessionFlags::ASYNC) {
            segment.seq.at_least(snd.next_seq)
        } else {
            match self.policy {
                // Of real receivers the ones of today believe the number that they wait for, and no other
                // (RFC 5961 section 3). Where an older one would have believed this RST, it does not get it.
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

    /// Whether the server acknowledges the client's SYN, which nobody else has answered: the client has no
    /// number of the server yet, so it asks for no more of a RST (RFC 9293 section 3.10.7.3).
    fn answers_syn(&self) -> bool {
        self.session.state == TcpState::SynSent && !self.to_server() && self.has(TcpFlags::ACK)
    }

    /// Whether a RST has the number that is expected next: of a connection that closes, which does not count
    /// what overtakes, the one behind all data.
    fn is_expected_rst(&self) -> bool {
        let behind_all = self.session.sees_all(self.config) && self.segment.seq == self.end_of(self.snd());
        self.segment.seq == self.snd().next_seq || behind_all || self.follows_own_fin()
    }

    /// The number behind all that a side has sent, where all of it went by here. A FIN has one behind all
    /// data, wherever the first of them lay: that may be made up, or come before the data.
    fn end_of(&self, peer: &Peer) -> Seq {
        let fin = TcpFlags::from_bits_retain(peer.tcp_flags).contains(TcpFlags::FIN);
        peer.sent.plus(u32::from(fin))
    }

    /// Whether an honest host may have sent the RST although its receiver does not believe it now. A receiver
    /// believes RCV.NXT only (RFC 5961 section 3):
    ///
    /// * Who has closed a socket answers each segment that was under way with a RST whose number is what that
    ///   segment acknowledges, so it was used before, maybe by its FIN (RFC 9293 section 3.10.7.4).
    /// * Behind data that was lost on the way the number lies in the receiver's window, and the receiver
    ///   answers with an acknowledgement, upon which the sender resets with the exact one (RFC 5961 section
    ///   3.2). Without that a receiver that sends nothing itself waits for ever.
    ///
    /// Such a RST leaves and changes nothing: what its receiver still takes is inspected as before. What lies
    /// beyond the window no receiver looks at.
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

    /// Whether a client that opens these ports anew answers what an earlier connection of them has left under
    /// way (RFC 9293 section 3.10.7.1 and 3.10.7.3): with a bare RST whose number is one of that
    /// connection's, before its own beginning. Nobody who has the new connection believes it, as it lies
    /// before the window; it ends what is left of the old one. So it leaves and changes nothing: were it
    /// believed all the same, what comes behind it would still be inspected.
    pub(crate) fn is_rst_for_an_earlier_connection(&self) -> bool {
        self.config.inline()
            && self.to_server()
            && !self.is(SessionFlags::MIDSTREAM | SessionFlags::ASYNC)
            && self.has(TcpFlags::RST)
            && !self.segment.flags.intersects(TcpFlags::ACK | TcpFlags::SYN | TcpFlags::FIN)
            && self.segment.is_empty()
            && self.segment.seq.before(self.session.client().isn)
    }

    /// Whether the packet stands right behind the client's FIN, which has a number of its own that is counted
    /// only once it is acknowledged.
    fn follows_own_fin(&self) -> bool {
        self.to_server()
            && self.session.state >= TcpState::FinWait1
            && TcpFlags::from_bits_retain(self.snd().tcp_flags).contains(TcpFlags::FIN)
            && self.segment.seq == self.snd().next_seq.plus(1)
    }

    /// Checks the packet's timestamp and changes nothing.
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
            // Solaris stops using timestamps once a packet comes without one.
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

    /// What the packet's timestamp changes; nothing when the receiver refuses the packet.
    fn check_timestamp(&self) -> Option<TimestampUpdate> {
        let mut update = TimestampUpdate::default();
        let Some((ts, _)) = self.segment.options.ts else { return Some(update) };
        let snd = self.snd();
        let expected = self.segment.seq == snd.next_seq;
        let mut check = true;
        if snd.flags.contains(PeerFlags::ZERO_TIMESTAMP) {
            match self.policy {
                // These do not allow a timestamp of zero in the handshake: timestamps are off.
                HostPolicy::Linux | HostPolicy::Windows2k3 => {
                    update.stop = true;
                    check = false;
                }
                // These take over the next one.
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

    /// Whether a packet's timestamp is the one that later packets are measured by, as receivers do it: only
    /// of what begins at or before the last byte acknowledged, so that what is overtaken by data behind it is
    /// not taken for old (RFC 7323 section 4.3). Since acknowledgements lag behind here, one that is far
    /// ahead counts at once: the clock of a busy sender must not go round unnoticed.
    fn renews_timestamp(&self, advance: i32) -> bool {
        let snd = self.snd();
        // What ends before it is not taken at all.
        let current = self.segment.seq.at_most(snd.last_ack) && self.segment.end().at_least(snd.last_ack);
        let leads = self.segment.seq == self.expected;
        current || leads && advance > TIMESTAMP_FAR_AHEAD
    }

    /// Whether the packet is an acknowledgement that others of its sender have overtaken, or data, or its FIN
    /// (they leave by several processors), or that has itself overtaken data: it brings nothing and
    /// acknowledges nothing new, in whatever state that finds the session. Receivers take it or throw it
    /// away, which is the same, so strict prevention lets it go on; it changes nothing here either.
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

    /// Whether the packet is data that its sender has sent again meanwhile, and the second copy has overtaken
    /// the first: its timestamp is old, all of its bytes have come by before. Receivers throw it away, so it
    /// may leave; where they would not, it has been compared with what was inspected, as every retransmission
    /// is. (What would fill a hole with an old timestamp is refused: no receiver takes it, and its bytes
    /// would stand for those that are to come.)
    fn is_late_data(&self) -> bool {
        let others = TcpFlags::SYN | TcpFlags::FIN | TcpFlags::RST;
        let snd = self.snd();
        // Where nobody reads (any more), what counts is how far the sender is.
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

    /// The echo in the answer to a SYN has to be a timestamp that the client sent.
    pub(crate) fn echo_is_plausible(&self) -> bool {
        if self.to_server() {
            return true;
        }
        let Some((_, echo)) = self.segment.options.ts else { return true };
        let client = self.session.client();
        if client.flags.contains(PeerFlags::TIMESTAMP) {
            client.last_ts == 0 || echo == 0 || echo == client.last_ts
        } else {
            // Some middleboxes take the option out of SYNs, and some servers echo what they like in their
            // answer. What comes in its place (a RST, a FIN) is made up.
            let answers = self.has(super::handshake::SYN_ACK);
            answers && self.config.liberal_timestamps || client.last_ts != 0 || echo == 0
        }
    }
}
