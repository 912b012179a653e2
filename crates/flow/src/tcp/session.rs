// SPDX-License-Identifier: Apache-2.0
//! The session: the state of both sides, and queries about it.

use super::peer::{Peer, PeerFlags};
use super::queued::{OpeningSyn, Queued};
use super::{Seq, StreamConfig, StreamCounters, TcpFlags, TcpState};
use bartizan_base::{Direction, PerDirection};
use bitflags::bitflags;

bitflags! {
    /// Facts about a session.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct SessionFlags: u32 {
        /// Picked up in the middle.
        const MIDSTREAM = 1;
        /// Picked up at an ACK: the server's window is not known yet.
        const MIDSTREAM_ESTABLISHED = 1 << 1;
        /// Picked up at a SYN/ACK.
        const MIDSTREAM_SYN_ACK = 1 << 2;
        /// Only one direction is visible.
        const ASYNC = 1 << 3;
        /// Both sides use timestamps.
        const TIMESTAMP = 1 << 4;
        /// The client's SYN had the window scale option.
        const SERVER_WSCALE = 1 << 5;
        /// The client's SYN permitted SACK.
        const CLIENT_SACK_OK = 1 << 6;
        /// Both sides permit SACK.
        const SACK_OK = 1 << 7;
        /// Handshake with a SYN of the server (simultaneous open).
        const FOUR_WAY = 1 << 8;
        /// TCP Fast Open.
        const FAST_OPEN = 1 << 9;
        /// The server did not accept the Fast Open data.
        const FAST_OPEN_DATA_IGNORED = 1 << 10;
        /// A wrong ACK in the handshake: some hosts ignore a later RST.
        const EVASION_ATTEMPT = 1 << 11;
        /// The server has sent an ACK since the handshake.
        const CONFIRMED = 1 << 12;
        /// Closed by RST.
        const CLOSED_BY_RST = 1 << 13;
        /// A zero-window probe to the server is under way.
        const ZERO_WINDOW_PROBE_TO_SERVER = 1 << 14;
        /// A zero-window probe to the client is under way.
        const ZERO_WINDOW_PROBE_TO_CLIENT = 1 << 15;
        /// The server has acknowledged the beginning of the client's stream by more than its SYN/ACK.
        const BEGUN = 1 << 16;
        /// The server has sent a SYN before it answered the client's (simultaneous open).
        const CROSSED = 1 << 17;
    }
}

/// Largest distance of inline data beyond the known window, and of retransmissions before it, in bytes.
pub(crate) const WINDOW_SLACK: u32 = 64 << 10;
/// Window of a connection whose bytes arrive in order, in bytes: an eighth of the sequence space.
pub(crate) const ORDERED_WINDOW: u32 = 1 << 29;
/// Upper bound of the bytes that a sender has in flight.
pub(crate) const FLIGHT_MAX: u32 = bartizan_packet::slots::FLIGHT_MAX;

/// Largest distance of a retransmitted or overtaken number before the latest one, where not all packets are
/// seen.
pub(crate) const SEQUENCE_BACK: u32 = bartizan_packet::slots::SEQUENCE_BACK;

/// A TCP session: plain data, kept in a flow entry.
#[derive(Clone, Debug, Default)]
pub struct TcpSession {
    pub(crate) state: TcpState,
    /// State before the last change, to which a session returns when a RST turns out to be forged.
    pub(crate) previous: TcpState,
    pub(crate) flags: SessionFlags,
    /// Senders: `to_server` is the client, `to_client` the server.
    pub(crate) peers: PerDirection<Peer>,
    pub(crate) queue: Vec<Queued>,
    /// The acknowledgement by which a server that already has a connection of these ports answered the SYN
    /// (RFC 5961 section 4). Not exported: a lost one is sent again.
    pub(crate) challenge: Option<Seq>,
    /// The client's latest SYN that came in the middle of the connection, until the server sends something
    /// else than an answer to it. Not part of the exported form.
    pub(crate) reopening: Option<OpeningSyn>,
}

impl TcpSession {
    /// State.
    #[must_use]
    pub const fn state(&self) -> TcpState {
        self.state
    }

    /// Counts all that a side has sent as acknowledged, with the largest window for what follows: a source of
    /// bytes in order has delivered it, and bounds by itself what it takes.
    pub fn acknowledge(&mut self, direction: Direction) {
        let sender = &mut self.peers[direction];
        sender.update_last_ack(sender.next_seq);
        sender.window = ORDERED_WINDOW;
        sender.update_next_win();
    }

    /// Whether there is a session.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.state != TcpState::None
    }

    /// Whether the handshake is over: the kind of a session does not change any more.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        self.state >= TcpState::Established
    }

    /// Whether either side has sent beyond the beginning of its stream.
    #[must_use]
    pub fn has_brought_data(&self) -> bool {
        let beyond = |peer: &Peer| peer.next_seq.after(peer.base());
        self.exists() && Direction::BOTH.iter().any(|direction| beyond(&self.peers[*direction]))
    }

    /// Whether the session was picked up in the middle.
    #[must_use]
    pub const fn is_midstream(&self) -> bool {
        self.flags.contains(SessionFlags::MIDSTREAM)
    }

    /// Whether it was picked up at data: not even the SYN/ACK was seen, which would identify the server.
    #[must_use]
    pub const fn began_with_data(&self) -> bool {
        self.is_midstream() && !self.flags.contains(SessionFlags::MIDSTREAM_SYN_ACK)
    }

    /// Whether only one direction is visible.
    #[must_use]
    pub const fn is_async(&self) -> bool {
        self.flags.contains(SessionFlags::ASYNC)
    }

    /// The state by which readers learn that no more data will arrive. Strictly, a RST does not count: its
    /// receiver may discard it (hops run out, another hardware address, an option), and then continue. Held
    /// data is readable inline in any case, and the end of the flow ends the streams.
    pub(crate) fn state_for_readers(&self, config: &StreamConfig) -> TcpState {
        let doubted = self.state == TcpState::Closed && self.closed_by_rst();
        if doubted && config.inline() && config.strict { self.previous } else { self.state }
    }

    /// Whether a RST ended the session.
    #[must_use]
    pub const fn closed_by_rst(&self) -> bool {
        self.flags.contains(SessionFlags::CLOSED_BY_RST)
    }

    /// Flags of all packets of a direction (EVE's `tcp_flags_ts` and `tcp_flags_tc`).
    #[must_use]
    pub fn tcp_flags(&self, direction: Direction) -> TcpFlags {
        TcpFlags::from_bits_retain(self.peers[direction].tcp_flags)
    }

    /// The next sequence number expected in a direction.
    #[must_use]
    pub fn next_seq(&self, direction: Direction) -> Seq {
        self.peers[direction].next_seq
    }

    /// Number of sequence numbers that a direction has used, including its SYN; its FIN as in Suricata's
    /// `stream_size`: a server's second FIN once it is acknowledged.
    #[must_use]
    pub fn sequence_used(&self, direction: Direction) -> u32 {
        let peer = &self.peers[direction];
        let open = self.state() == TcpState::LastAck
            && direction == Direction::ToClient
            && peer.last_ack.before(peer.next_seq);
        peer.next_seq.minus(u32::from(open)).since(peer.isn).cast_unsigned()
    }

    /// Highest acknowledged sequence number of a direction.
    #[must_use]
    pub fn last_ack(&self, direction: Direction) -> Seq {
        self.peers[direction].last_ack
    }

    /// Right edge of the window into which a direction may send.
    #[must_use]
    pub fn window_edge(&self, direction: Direction) -> Seq {
        self.peers[direction].next_win
    }

    /// The lowest number from which a direction may still send, before its acknowledged data. After a
    /// spurious timeout a sender retransmits all of its flight, however small the window has become since;
    /// lower numbers belong to another connection.
    #[must_use]
    pub fn oldest(&self, direction: Direction) -> Seq {
        let sender = &self.peers[direction];
        sender.last_ack.minus(sender.window.max(FLIGHT_MAX))
    }

    /// Whether a SYN/ACK with this acknowledgement answers the SYN in force: it acknowledges all, some or
    /// none of the SYN's data. Servers do not accept unread data of a SYN (passively, without Fast Open), as
    /// in Suricata.
    pub(crate) fn answers_syn(&self, ack: Seq) -> bool {
        let base = self.client().base();
        let takes_data = self.flags.contains(SessionFlags::FAST_OPEN) && ack.at_most(self.client().sent);
        ack == base || ack.after(base) && takes_data
    }

    /// Whether a number acknowledges the SYN/ACK, and all, some or none of its data.
    pub(crate) fn answers_syn_ack(&self, ack: Seq) -> bool {
        ack.at_least(self.server().base()) && ack.at_most(self.server().sent)
    }

    pub(crate) fn client(&self) -> &Peer {
        &self.peers.to_server
    }

    pub(crate) fn server(&self) -> &Peer {
        &self.peers.to_client
    }

    pub(crate) fn client_mut(&mut self) -> &mut Peer {
        &mut self.peers.to_server
    }

    pub(crate) fn server_mut(&mut self) -> &mut Peer {
        &mut self.peers.to_client
    }

    /// Takes the session off the worker's count. Called once, when the flow ends.
    pub fn release(&mut self, counters: &mut StreamCounters) {
        self.leave(counters);
        *self = TcpSession::default();
    }

    /// Takes the session, which moves to another worker, off this worker's count.
    pub fn leave(&self, counters: &mut StreamCounters) {
        if self.exists() {
            counters.active_sessions = counters.active_sessions.saturating_sub(1);
            counters.memuse = counters.memuse.saturating_sub(Self::memory());
        }
    }

    /// Adds a session that has moved here to this worker's count.
    pub fn join(&self, counters: &mut StreamCounters) {
        if self.exists() {
            counters.active_sessions = counters.active_sessions.saturating_add(1);
            counters.hold(Self::memory());
        }
    }

    /// Bytes of a session that count against `stream.memcap`.
    pub(crate) const fn memory() -> u64 {
        size_of::<TcpSession>() as u64
    }

    /// Whether `stream.memcap` has room for another session.
    #[must_use]
    pub const fn has_room(config: &StreamConfig, counters: &StreamCounters) -> bool {
        config.memcap == 0 || counters.memuse.saturating_add(Self::memory()) <= config.memcap
    }

    /// Whether a side has sent a FIN that was not refused.
    pub(crate) fn has_closed(&self, direction: Direction) -> bool {
        self.peers[direction].flags.contains(PeerFlags::FIN_TAKEN)
    }

    /// Whether both sides have sent a FIN and the other side has acknowledged it, without doubt.
    #[must_use]
    pub fn ends_are_acknowledged(&self) -> bool {
        let over = PeerFlags::FIN_TAKEN | PeerFlags::FIN_ACKNOWLEDGED;
        let mut flags = Direction::BOTH.iter().map(|direction| self.peers[*direction].flags);
        flags.all(|flags| flags.contains(over) && !flags.contains(PeerFlags::FIN_DOUBTED))
    }

    /// Whether the engine has seen all packets of the session: with real receivers, and both sides visible
    /// from the beginning. Then segments that no receiver would accept are refused, and FINs count only once
    /// they are acknowledged.
    pub(crate) fn sees_all(&self, config: &StreamConfig) -> bool {
        config.compares() && !self.flags.intersects(SessionFlags::MIDSTREAM | SessionFlags::ASYNC)
    }

    /// The direction without packets, in an established one-sided session.
    #[must_use]
    pub fn unseen(&self) -> Option<Direction> {
        let one_sided = self.is_async() && self.state >= TcpState::Established;
        Direction::BOTH.into_iter().find(|direction| one_sided && self.peers[*direction].tcp_flags == 0)
    }

    /// Swaps both sides, for a flow that is reversed after the fact.
    pub fn reverse(&mut self) {
        self.peers.swap();
    }

    /// Whether a side was the target of a RST that may be forged.
    pub(crate) fn rst_received(&self, direction: Direction) -> bool {
        self.peers[direction].flags.contains(PeerFlags::RST_RECEIVED)
    }
}
