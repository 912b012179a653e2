// SPDX-License-Identifier: Apache-2.0
//! A session whose segments another level compares with its numbers for a while: the numbers that the level
//! needs, and the numbers that it returns (docs/design/0019-windows-below.md).
//!
//! The level has compared both sides' numbers with each other before it forwarded segments, so they are taken
//! over unchanged. (Without comparison: [`TcpSession::resume`].)

use super::peer::PeerFlags;
use super::resume::later;
use super::session::{FLIGHT_MAX, SessionFlags};
use super::{Peer, Segment, Seq, TcpFlags, TcpSession, TcpState, WSCALE_MAX};
use bartizan_base::{Direction, PerDirection, Timestamp};
use bartizan_packet::windows::WindowSide;

/// The TCP window state of a connection (sequence and acknowledgement numbers, windows), by sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedWindows {
    /// The window state of each side.
    pub sides: PerDirection<WindowSide>,
    /// Both sides send timestamps.
    pub timestamps: bool,
}

impl Peer {
    /// The side's numbers. `scale`: shift of the windows that this side offers.
    fn shared(&self, scale: u8) -> WindowSide {
        // A number beyond the window may be that of a refused segment, though it is noted; an acknowledged
        // number was sent, even if it was not seen.
        let within = if self.next_seq.after(self.next_win) { self.next_win } else { self.next_seq };
        let sent = if self.last_ack.after(within) { self.last_ack } else { within };
        WindowSide {
            sent: sent.0,
            timestamp: self.last_ts,
            acknowledged: self.last_ack.0,
            edge: self.next_win.0,
            scale: scale.min(WSCALE_MAX),
        }
    }

    /// Takes over a side's sent number and the acknowledgement of it. Returns whether either has advanced.
    fn take_over(&mut self, side: &WindowSide, now: u32) -> (bool, bool) {
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
            // An honest receiver never withdraws an edge that it has shown: so this is its window.
            self.window = u32::try_from(edge.since(acknowledged)).unwrap_or(0);
            self.note_window();
        }
        (has_sent, was_told)
    }

    /// Notes that acknowledgements have advanced on another path by `bytes`: a queued one may be that much
    /// older.
    fn note_overtaken(&mut self, bytes: u32) {
        let bits = u32::BITS - bytes.min(FLIGHT_MAX).leading_zeros();
        self.overtaken = self.overtaken.max(bits as u8);
    }

    /// Largest distance of an overtaken acknowledgement before the latest one.
    pub(crate) const fn overtaken(&self) -> u32 {
        let most = 1u32.wrapping_shl(self.overtaken as u32);
        if self.overtaken == 0 { 0 } else { most }
    }
}

impl TcpSession {
    /// The window state with which another level can compare segments of the connection, so that it forwards
    /// nothing that [`TcpSession::handle`] would refuse. `None`: comparison does not suffice, as the
    /// connection is not established, or the meaning of its segments depends on more.
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

    /// Takes over the progress by segments that were compared at another level. Numbers only advance, so
    /// repeated or older reports have no effect.
    pub fn take_over(&mut self, windows: &SharedWindows, now: Timestamp) {
        if !self.is_under_way() {
            return;
        }
        let now = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
        for direction in Direction::BOTH {
            let (has_sent, was_told) = self.peers[direction].take_over(&windows.sides[direction], now);
            // The server reports the client's numbers, and vice versa.
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

    /// Prepares a FIN that was queued while segments with its sender's later acknowledgements passed at
    /// another level: those segments have the number after the FIN, which counts once the FIN has arrived.
    /// For FINs of a connection that was at another level.
    pub fn put_fin_first(&mut self, segment: &Segment<'_>, direction: Direction) {
        let waited = segment.has(TcpFlags::FIN)
            && self.is_under_way()
            && !self.has_closed(direction)
            && segment.end().plus(1) == self.peers[direction].next_seq;
        if waited {
            // Its acknowledgement was queued as well.
            self.peers[direction].next_seq = segment.seq;
        }
    }
}

#[cfg(test)]
#[path = "windows_tests.rs"]
mod tests;
