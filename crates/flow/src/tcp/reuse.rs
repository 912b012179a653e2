// SPDX-License-Identifier: Apache-2.0
//! Whether a packet opens a new session on the tuple of an old one.

use super::session::SessionFlags;
use super::{Segment, StreamConfig, TcpFlags, TcpSession, TcpState};
use bartizan_base::Direction;

impl TcpSession {
    /// Whether this packet begins another session, so that the flow has to be replaced. Where none came to be yet (no SYN, no
    /// memory) only the caller knows whether the flow has seen packets before: it asks [`TcpSession::starts_anew`].
    pub(crate) fn is_reused_by(
        &self,
        segment: &Segment<'_>,
        direction: Direction,
        config: &StreamConfig,
    ) -> bool {
        self.exists() && self.starts_anew(segment, direction, config)
    }

    /// The same, where a flow without a session counts as replaceable too. To be asked on a
    /// flow's second and later packets.
    #[must_use]
    pub fn starts_anew(&self, segment: &Segment<'_>, direction: Direction, config: &StreamConfig) -> bool {
        if segment.flags.intersects(TcpFlags::RST | TcpFlags::FIN) || !segment.has(TcpFlags::SYN) {
            return false;
        }
        // Suricata lets a SYN replace a connection whose client alone has closed. Its server still sends: before real receivers a SYN, which
        // anybody can make up, does not end it. The server answers an honest one with an acknowledgement, upon which the client resets
        // (RFC 9293 3.10.7.4).
        // A FIN that was refused ends nothing: anybody can make one up as well.
        let server_sends = !self.has_closed(Direction::ToClient);
        let half_open = config.compares() && self.state == TcpState::CloseWait && server_sends;
        let over = self.state >= TcpState::LastAck && !half_open
            || self.state == TcpState::None
            // Both sides have said that they send no more: who opens anew means a new connection.
            || config.compares() && self.state == TcpState::TimeWait;
        if !segment.has(TcpFlags::ACK) {
            return match direction {
                Direction::ToServer if !self.exists() => true,
                Direction::ToServer => {
                    // Strictly, a SYN that is only late is no other one.
                    self.flags.contains(SessionFlags::FAST_OPEN_DATA_IGNORED) && !config.compares()
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
}
