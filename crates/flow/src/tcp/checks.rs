// SPDX-License-Identifier: Apache-2.0
//! Packets without news, and suspicious ones: keep-alives (RFC 9293 section 3.8.4), zero-window probes
//! (3.8.6.1), duplicate and outdated ACKs, window updates, spurious retransmissions, traffic after a RST.
//! They are recognised before the state handlers run.

use super::peer::PeerFlags;
use super::session::SessionFlags;
use super::step::{HandlerResult, SegmentStep};
use super::{PacketKind, StreamEvent, TcpFlags, TcpState};

const OPENS_OR_CLOSES: TcpFlags = TcpFlags::SYN.union(TcpFlags::FIN).union(TcpFlags::RST);

/// Windows larger than this may shrink by up to [`SHRINK_MARGIN`] more than the packet explains.
const SMALL_WINDOW: u32 = 1024;
/// Tolerance for a shrinking window, in bytes.
const SHRINK_MARGIN: u32 = 32;

impl SegmentStep<'_, '_> {
    /// Whether the packet needs no state handler.
    pub(crate) fn handle_early(&mut self) -> bool {
        if self.is_keep_alive() {
            self.snd_mut().flags |= PeerFlags::KEEP_ALIVE;
            self.out.kind |= PacketKind::KEEP_ALIVE;
            // A window probe carries its sender's window, too.
            self.note_offer();
            return true;
        }
        let keep_alive_ack = self.is_keep_alive_ack();
        if keep_alive_ack {
            self.rcv_mut().flags.remove(PeerFlags::KEEP_ALIVE);
            self.out.kind |= PacketKind::KEEP_ALIVE_ACK;
        }
        self.snd_mut().flags.remove(PeerFlags::KEEP_ALIVE);
        if keep_alive_ack {
            return true;
        }
        if self.is_zero_window_probe_ack() {
            self.session.flags.remove(self.probe_of_other_side());
            self.out.kind |= PacketKind::ZERO_WINDOW_PROBE_ACK;
            return true;
        }
        if self.is_duplicate_ack() {
            self.out.kind |= PacketKind::DUPLICATE_ACK;
        }
        if !self.is_final_ack_of_close() {
            if self.is_window_update() {
                self.out.kind |= PacketKind::WINDOW_UPDATE;
            } else if self.is_bad_window_update() {
                self.event(StreamEvent::PktBadWindowUpdate);
                return true;
            } else if self.is_outdated_ack() {
                return true;
            }
        }
        self.is_spurious_retransmission()
    }

    /// The session flag of a zero-window probe that this packet's sender would answer.
    pub(crate) fn probe_of_other_side(&self) -> SessionFlags {
        if self.to_server() {
            SessionFlags::ZERO_WINDOW_PROBE_TO_CLIENT
        } else {
            SessionFlags::ZERO_WINDOW_PROBE_TO_SERVER
        }
    }

    fn is_pure_ack(&self) -> bool {
        self.session.state >= TcpState::Established
            && self.segment.is_empty()
            && self.segment.flags.intersection(TcpFlags::ACK.union(OPENS_OR_CLOSES)) == TcpFlags::ACK
    }

    fn is_keep_alive(&self) -> bool {
        self.segment.len() <= 1
            && !self.segment.flags.intersects(OPENS_OR_CLOSES)
            && self.segment.ack == self.rcv().last_ack
            && self.segment.seq == self.snd().next_seq.minus(1)
    }

    fn is_keep_alive_ack(&self) -> bool {
        self.segment.is_empty()
            && !self.segment.flags.intersects(OPENS_OR_CLOSES)
            && self.segment.window != 0
            && self.offered_window() == self.rcv().window
            && self.rcv().flags.contains(PeerFlags::KEEP_ALIVE)
            && self.segment.ack == self.rcv().last_ack
            && self.segment.seq == self.snd().next_seq
    }

    fn is_zero_window_probe_ack(&self) -> bool {
        self.is_pure_ack()
            && self.is(self.probe_of_other_side())
            && self.segment.window == 0
            && self.rcv().window == 0
            && self.segment.seq == self.snd().next_seq
            && self.segment.ack == self.rcv().last_ack
    }

    fn is_duplicate_ack(&self) -> bool {
        self.is_pure_ack()
            && self.segment.window != 0
            && self.offered_window() == self.rcv().window
            && self.segment.seq == self.snd().next_seq
            && self.segment.ack == self.rcv().last_ack
    }

    fn is_window_update(&self) -> bool {
        self.session.state >= TcpState::Established
            && self.segment.is_empty()
            && !self.segment.flags.intersects(OPENS_OR_CLOSES)
            && self.segment.window != 0
            && self.offered_window() != self.rcv().window
            && self.segment.ack == self.rcv().last_ack
            && self.segment.seq == self.snd().next_seq
    }

    /// The ACK that ends an orderly close.
    fn is_final_ack_of_close(&self) -> bool {
        matches!(self.session.state, TcpState::TimeWait | TcpState::CloseWait | TcpState::LastAck)
            && self.segment.flags == TcpFlags::ACK
            && self.segment.is_empty()
            && self.segment.seq == self.snd().next_seq.plus(1)
            && self.segment.ack == self.rcv().next_seq.plus(1)
    }

    /// A packet ahead of the session (data and acknowledgement beyond the bytes seen) that shrinks the window
    /// so far that the expected packets would be out of window. Does not apply where the engine sees all
    /// packets: the state refuses acknowledgements of unsent data.
    fn is_bad_window_update(&self) -> bool {
        let state = self.session.state;
        if state < TcpState::Established
            || self.session.sees_all(self.config)
            || state == TcpState::Closed
            || self.segment.flags.intersects(OPENS_OR_CLOSES)
        {
            return false;
        }
        let offered = self.offered_window();
        let Some(shrink) = self.rcv().window.checked_sub(offered).filter(|shrink| *shrink > 0) else {
            return false;
        };
        if shrink <= self.segment.len()
            || !self.segment.ack.after(self.rcv().next_seq)
            || !self.segment.seq.after(self.snd().next_seq)
        {
            return false;
        }
        let acknowledged = self.segment.ack.0.wrapping_sub(self.rcv().last_ack.0);
        if offered > SMALL_WINDOW {
            shrink > acknowledged.wrapping_add(SHRINK_MARGIN)
        } else {
            shrink > acknowledged
        }
    }

    /// An ACK that a later one has overtaken.
    fn is_outdated_ack(&self) -> bool {
        self.is_pure_ack()
            && self.segment.seq == self.snd().next_seq
            && self.segment.ack.before(self.rcv().last_ack)
            && self.rcv().sack_is_outdated(self.segment.options.sack)
    }

    /// Data that is acknowledged already; `true` when reassembly has freed it as well.
    fn is_spurious_retransmission(&mut self) -> bool {
        if self.segment.is_empty() {
            return false;
        }
        let end = self.segment.end();
        let let_go = self.held_from().is_some_and(|from| end.at_most(from));
        if let_go || end.at_most(self.snd().last_ack) {
            self.out.kind |= PacketKind::SPURIOUS_RETRANSMISSION;
            self.event(StreamEvent::PktSpuriousRetransmission);
        }
        let_go
    }

    /// Traffic of a side after its RST: the RST was probably forged.
    pub(crate) fn check_traffic_after_rst(&mut self) {
        if self.has(TcpFlags::RST) {
            return;
        }
        if self.rcv().flags.contains(PeerFlags::RST_RECEIVED) {
            self.rcv_mut().flags.remove(PeerFlags::RST_RECEIVED);
            self.session.flags.remove(SessionFlags::CLOSED_BY_RST);
            self.event(StreamEvent::SuspectedRstInject);
        }
    }

    /// Handles a closed session, in which only traffic that shows a RST to be forged matters.
    pub(crate) fn closed(&mut self) -> HandlerResult {
        if self.has(TcpFlags::RST) {
            return Ok(());
        }
        if self.config.inline() && self.session.previous == TcpState::SynSent && self.has(TcpFlags::SYN) {
            // Whoever goes on with the handshake has not believed the RST, or tries again at once (over
            // captures as well: the firewall would refuse the connection that comes of it). What follows
            // needs the numbers of both sides.
            self.session.flags.remove(SessionFlags::CLOSED_BY_RST);
            self.session.state = TcpState::SynSent;
            return self.dispatch(TcpState::SynSent);
        }
        let syn_ack = self.has(TcpFlags::SYN.union(TcpFlags::ACK));
        if self.config.compares() && syn_ack && self.segment.seq != self.snd().isn {
            // A client that believes it would read a stream that begins elsewhere.
            return self.reject(StreamEvent::ShutdownSynResend);
        }
        let (own, other) = (self.direction, self.direction.flip());
        if !self.session.rst_received(own) && self.session.rst_received(other) {
            let before = self.session.previous;
            if before != TcpState::Closed {
                self.dispatch(before)?;
            }
            if self.session.state == TcpState::Closed {
                self.session.state = self.session.previous;
            }
        }
        Ok(())
    }
}
