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
        let over = self.is_over(config);
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

    /// Whether who opens these ports anew means a new connection.
    ///
    /// Suricata lets a SYN replace a connection as soon as it is closing. Before real receivers a SYN, which anybody can make up, ends none that
    /// one of them still has: a FIN may be made up as well, or be lost behind the observer and sent again. An honest SYN loses little. The server
    /// answers it with an acknowledgement, upon which the client resets (RFC 9293 section 3.10.7.4), or as a new one, if it has forgotten the
    /// connection; the next SYN replaces it.
    fn is_over(&self, config: &StreamConfig) -> bool {
        if self.sees_all(config) && self.is_under_way() {
            let given_up = self.flags.intersects(SessionFlags::CLOSED_BY_RST | SessionFlags::FORGOTTEN);
            return given_up || self.ends_are_acknowledged();
        }
        let server_sends = !self.has_closed(Direction::ToClient);
        let half_open = config.compares() && self.state == TcpState::CloseWait && server_sends;
        // Of one that was picked up in the middle a FIN may not have been seen.
        self.state >= TcpState::LastAck && !half_open
            || self.state == TcpState::None
            || config.compares() && self.state == TcpState::TimeWait
    }
}
