// SPDX-License-Identifier: Apache-2.0
//! New sessions on the tuple of an old one: packets that open one, and packets that a server could take for
//! its opening.

use super::handshake::SYN_ACK;
use super::peer::Peer;
use super::queued::OpeningSyn;
use super::session::SessionFlags;
use super::{Segment, StreamConfig, StreamCounters, TcpFlags, TcpSession, TcpState};
use crate::stream::Stream;
use bartizan_base::Direction;

impl TcpSession {
    /// Whether this packet begins another session, so that the flow has to be replaced. Without a session so
    /// far (no SYN, no memory) only the caller knows whether the flow has seen packets before, and uses
    /// [`TcpSession::starts_anew`].
    pub(crate) fn is_reused_by(
        &self,
        segment: &Segment<'_>,
        direction: Direction,
        config: &StreamConfig,
    ) -> bool {
        self.exists() && self.starts_anew(segment, direction, config)
            || self.is_reopened_by(segment, direction, config)
    }

    /// As `is_reused_by`, for which a flow without a session counts as replaceable too. For a
    /// flow's second and later packets.
    #[must_use]
    pub fn starts_anew(&self, segment: &Segment<'_>, direction: Direction, config: &StreamConfig) -> bool {
        if segment.flags.intersects(TcpFlags::RST | TcpFlags::FIN) || !segment.has(TcpFlags::SYN) {
            return false;
        }
        let over = self.is_over(config);
        if !segment.has(TcpFlags::ACK) {
            return match direction {
                Direction::ToServer if !self.exists() => true,
                Direction::ToServer => {
                    // Inline, a late SYN is not another one.
                    self.flags.contains(SessionFlags::FAST_OPEN_DATA_IGNORED) && !config.inline()
                        || (self.client().isn != segment.seq && over)
                }
                Direction::ToClient => over,
            };
        }
        if !(config.midstream || config.tracks_one_sided()) {
            return false;
        }
        match direction {
            Direction::ToClient => self.exists() && self.server().isn != segment.seq && over,
            Direction::ToServer => over,
        }
    }

    /// Whether a SYN on these ports means a new connection.
    ///
    /// Suricata lets a SYN replace a connection as soon as it is closing. Before real receivers a SYN, which
    /// anybody can make up, ends none that one of them still has: a FIN may be made up as well, or be lost
    /// behind the observer and sent again. An honest SYN loses little. The server answers it with an
    /// acknowledgement, upon which the client resets (RFC 9293 section 3.10.7.4), or as a new one, if it has
    /// forgotten the connection: that answer replaces it ([`TcpSession::is_reopened_by`]).
    fn is_over(&self, config: &StreamConfig) -> bool {
        if self.sees_all(config) && self.is_under_way() {
            return self.closed_by_rst() || self.ends_are_acknowledged();
        }
        let server_sends = !self.has_closed(Direction::ToClient);
        let half_open = config.compares() && self.state == TcpState::CloseWait && server_sends;
        // The FIN of a connection that was picked up in the middle may not have been seen.
        self.state >= TcpState::LastAck && !half_open
            || self.state == TcpState::None
            || config.compares() && self.state == TcpState::TimeWait
    }

    /// Whether a segment is the server's answer to a SYN that the client sent in the middle of the
    /// connection: neither side has that any more, and another one has begun with the SYN.
    fn is_reopened_by(&self, segment: &Segment<'_>, direction: Direction, config: &StreamConfig) -> bool {
        let answers = segment.has(SYN_ACK) && !segment.flags.intersects(TcpFlags::RST | TcpFlags::FIN);
        let syn = self.reopening.as_ref().filter(|_| answers && direction == Direction::ToClient);
        config.compares() && syn.is_some_and(|syn| syn.0.seq.plus(1) == segment.ack)
    }

    /// Whether a SYN of the client was forwarded within the open connection and the server has sent nothing
    /// since: its next segment shows which connection it has.
    #[must_use]
    pub const fn awaits_reopening(&self) -> bool {
        self.reopening.is_some()
    }

    /// The SYN that began another connection, if the segment with [`super::Outcome::reuse`] answers it.
    pub fn take_opening_syn(&mut self, segment: &Segment<'_>) -> Option<OpeningSyn> {
        if segment.has(SYN_ACK) {
            self.reopening.take_if(|syn| syn.0.seq.plus(1) == segment.ack)
        } else {
            None
        }
    }

    /// Begins a session with a SYN that was forwarded earlier, if there is memory for it. The flow's
    /// packets are counted from the answer on.
    pub fn begin(&mut self, syn: &OpeningSyn, config: &StreamConfig, counters: &mut StreamCounters) {
        if !TcpSession::has_room(config, counters) {
            return;
        }
        *self = TcpSession { state: TcpState::SynSent, ..TcpSession::default() };
        self.apply_syn(&syn.0);
        self.client_mut().tcp_flags = TcpFlags::SYN.bits();
        counters.sessions = counters.sessions.wrapping_add(1);
        self.join(counters);
    }

    /// Whether the server may have forgotten a connection that was seen whole: it has closed its side, a RST
    /// has passed, believed or not, or the session is over. Its SYN cookie is valid for two minutes, and an
    /// ACK that fits opens a connection at the server whose beginning was not seen here.
    pub(crate) fn server_may_forget(&self, config: &StreamConfig) -> bool {
        let reset = |peer: &Peer| TcpFlags::from_bits_retain(peer.tcp_flags).contains(TcpFlags::RST);
        let ended = self.state == TcpState::Closed
            || self.has_closed(Direction::ToClient)
            || Direction::BOTH.iter().any(|direction| reset(&self.peers[*direction]));
        ended && self.state >= TcpState::SynRecv && self.sees_all(config)
    }

    /// The number of bytes at the front of a segment to such a server that are acknowledged and cannot be
    /// compared: they were freed, the whole segment is old, or they are before the beginning. If the segment
    /// opens a connection, these bytes are read without inspection; a server that has the connection has them
    /// already. In a connection that is over, no receiver accepts any. A SYN opens a connection with its data
    /// (Fast Open), which follows its number.
    pub(crate) fn uncompared_in_front(
        &self,
        segment: &Segment<'_>,
        direction: Direction,
        stream: &Stream,
        config: &StreamConfig,
    ) -> u32 {
        let client = self.client();
        let first = segment.seq.plus(u32::from(segment.has(TcpFlags::SYN)));
        let held = stream.held_from(client);
        let compared = held.filter(|_| segment.has(TcpFlags::SYN) || segment.end().after(client.last_ack));
        let from = compared.unwrap_or(client.last_ack);
        let over = self.state == TcpState::Closed;
        let asked = direction == Direction::ToServer
            && (over || first.before(from))
            && !segment.is_empty()
            && !segment.has(TcpFlags::RST);
        if !asked || !self.server_may_forget(config) {
            0
        } else if over {
            segment.len()
        } else {
            segment.len().min(from.since(first).unsigned_abs())
        }
    }
}
