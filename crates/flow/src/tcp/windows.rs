// SPDX-License-Identifier: Apache-2.0
//! A session whose segments others compare with its numbers for a while: what they need, and what they give
//! back (docs/design/0019-windows-below.md).
//!
//! Both sides' numbers have been held against each other by whoever has let segments go on, so they are taken
//! over as they are. (Where nobody has compared anything: [`TcpSession::resume`].)

use super::peer::PeerFlags;
use super::resume::later;
use super::session::{FLIGHT_MAX, SessionFlags};
use super::{Peer, Segment, Seq, TcpFlags, TcpSession, TcpState, WSCALE_MAX};
use bartizan_base::{Direction, PerDirection, Timestamp};
use bartizan_packet::windows::Side;

/// A connection's numbers, by sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedWindows {
    /// Of each side.
    pub sides: PerDirection<Side>,
    /// Both sides send timestamps.
    pub timestamps: bool,
}

impl Peer {
    /// `scale`: shift of the windows that this side offers.
    fn shared(&self, scale: u8) -> Side {
        // What lies behind the window may have been refused, though it is noted; what was acknowledged was
        // sent, though nobody may have seen it.
        let within = if self.next_seq.after(self.next_win) { self.next_win } else { self.next_seq };
        let sent = if self.last_ack.after(within) { self.last_ack } else { within };
        Side {
            sent: sent.0,
            timestamp: self.last_ts,
            acknowledged: self.last_ack.0,
            edge: self.next_win.0,
            scale: scale.min(WSCALE_MAX),
        }
    }

    /// Takes over what a side has sent, and what was said of that. Whether either has moved.
    fn take_over(&mut self, side: &Side, now: u32) -> (bool, bool) {
        let sent = later(self.next_seq, Seq(side.sent));
        self.sent = later(self.sent, Seq(side.sent));
        let acknowledged = later(self.last_ack, Seq(side.acknowledged));
        let edge = later(self.next_win, Seq(side.edge));
        self.note_end(acknowledged);
        let newer = side.timestamp.wrapping_sub(self.last_ts).cast_signed() > 0;
        let has_sent = sent != self.next_seq || newer;
        let was_told = acknowledged != self.last_ack || edge != self.next_win;
        if has_sent {
            self.next_seq = sent;
            self.last_ts = if newer { side.timestamp } else { self.last_ts };
            self.last_pkt_ts = now;
            self.flags.remove(PeerFlags::KEEP_ALIVE);
        }
        if was_told {
            self.note_overtaken(acknowledged.0.wrapping_sub(self.last_ack.0));
            if acknowledged != self.last_ack {
                self.sack = Default::default();
            }
            (self.last_ack, self.next_win) = (acknowledged, edge);
            // An honest receiver does not take back the edge that it has shown: so this is the window that it
            // offers.
            self.window = u32::try_from(edge.since(acknowledged)).unwrap_or(0);
            self.note_window();
        }
        (has_sent, was_told)
    }

    /// Acknowledgements have come another way, by so much: one that waited meanwhile may be as much older.
    fn note_overtaken(&mut self, bytes: u32) {
        let bits = u32::BITS - bytes.min(FLIGHT_MAX).leading_zeros();
        self.overtaken = self.overtaken.max(bits as u8);
    }

    /// How far behind the latest acknowledgement one may lie for having been overtaken.
    pub(crate) const fn overtaken(&self) -> u32 {
        let most = 1u32.wrapping_shl(self.overtaken as u32);
        if self.overtaken == 0 { 0 } else { most }
    }
}

impl TcpSession {
    /// What segments of the connection can be compared with elsewhere, so that nothing goes on there that
    /// [`TcpSession::handle`] would refuse. `None`: they cannot, as the connection is not established, or
    /// what its segments mean depends on more.
    #[must_use]
    pub fn windows(&self) -> Option<SharedWindows> {
        let odd = SessionFlags::MIDSTREAM | SessionFlags::ASYNC;
        let timestamps = self.flags.contains(SessionFlags::TIMESTAMP);
        let doubted = if timestamps {
            PeerFlags::RST_RECEIVED | PeerFlags::ZERO_TIMESTAMP
        } else {
            PeerFlags::RST_RECEIVED
        };
        let plain = |peer: &Peer| !peer.flags.intersects(doubted);
        let comparable = self.state == TcpState::Established
            && !self.flags.intersects(odd)
            && !self.awaits_reopening()
            && Direction::BOTH.iter().all(|direction| plain(&self.peers[*direction]));
        let side = |direction: Direction| {
            let scale = self.peers[direction.flip()].wscale;
            self.peers[direction].shared(scale)
        };
        comparable.then(|| SharedWindows {
            sides: PerDirection::new(side(Direction::ToServer), side(Direction::ToClient)),
            timestamps,
        })
    }

    /// Takes over how far segments that were compared elsewhere have moved the connection on. Numbers go
    /// forward only, so it may be told the same again, and what was true before the latest segment here.
    pub fn take_over(&mut self, windows: &SharedWindows, now: Timestamp) {
        if !self.is_under_way() {
            return;
        }
        let now = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
        for direction in Direction::BOTH {
            let (has_sent, was_told) = self.peers[direction].take_over(&windows.sides[direction], now);
            // The client's numbers are told by the server, and the other way round.
            let (server, client) = match direction {
                Direction::ToServer => (was_told, has_sent),
                Direction::ToClient => (has_sent, was_told),
            };
            if server {
                self.flags |= SessionFlags::CONFIRMED | SessionFlags::BEGUN;
                self.flags.remove(SessionFlags::ZERO_WINDOW_PROBE_TO_SERVER);
            }
            if client {
                self.flags.remove(SessionFlags::ZERO_WINDOW_PROBE_TO_CLIENT);
            }
        }
        self.queue.clear();
    }

    /// A FIN comes that waited while what its sender acknowledges since went by elsewhere: those segments
    /// have the number behind it, which counts once it came. To be asked of FINs of a connection that was
    /// elsewhere.
    pub fn put_fin_first(&mut self, segment: &Segment<'_>, direction: Direction) {
        let waited = segment.has(TcpFlags::FIN)
            && self.is_under_way()
            && !self.has_closed(direction)
            && segment.end().plus(1) == self.peers[direction].next_seq;
        if waited {
            // What it brings has waited as well.
            self.peers[direction].next_seq = segment.seq;
        }
    }
}

#[cfg(test)]
#[path = "windows_tests.rs"]
mod tests;
