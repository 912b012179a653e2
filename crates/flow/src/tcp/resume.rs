// SPDX-License-Identifier: Apache-2.0
//! A session whose packets a level below the host has handled for a while; the level reports the progress of
//! both sides.
//!
//! Neither side is believed about itself. The receiver determines its own position by its acknowledgements;
//! it cannot have more than was sent, so this bounds it. The sender's own claim only determines which
//! acknowledgements can be true: it may send one segment far ahead, which no receiver reads, so that later
//! data at the true place passes for a retransmission.
//!
//! State that numbers do not show (that the client has answered the SYN/ACK, that a side has ended, and that
//! the other one knows) is replayed by the segments as they passed below, without their data
//! ([`TcpSession::next_unreplayed`]).

use super::session::{FLIGHT_MAX, SEQUENCE_BACK, SessionFlags};
use super::{Segment, SegmentOptions, Seq, TcpFlags, TcpSession, TcpState, WSCALE_MAX};
use bartizan_base::{Direction, PerDirection};

const FIN_ACK: TcpFlags = TcpFlags::FIN.union(TcpFlags::ACK);

/// The progress of one side of a connection, as handled by a level below the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpProgress {
    /// The sequence number after the last byte that the side has sent.
    pub sent: Seq,
    /// The side's latest acknowledgement.
    pub acknowledged: Seq,
    /// The side's FIN, if it has sent one.
    pub fin: Option<Fin>,
}

/// The end of a side's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fin {
    /// The sequence number after the side's FIN.
    pub number: Seq,
    /// Whether the other side had ended before.
    pub second: bool,
}

impl TcpProgress {
    /// The number after its data: a FIN is replayed by itself, and nothing follows it.
    fn data_sent(&self) -> Seq {
        self.fin.map_or(self.sent, |fin| fin.number.minus(1))
    }
}

/// The later of two numbers: `now` counts unless it is a little before `had`, as for retransmitted or
/// overtaken segments. (A number far before has wrapped.)
pub(super) fn later(had: Seq, now: Seq) -> Seq {
    if had.0.wrapping_sub(now.0) < SEQUENCE_BACK { had } else { now }
}

impl TcpSession {
    /// Takes over the progress of both sides below, by sender; `None` for a side without handled packets.
    /// Numbers only advance.
    ///
    /// The next reader of the streams begins at each receiver's position.
    pub fn resume(&mut self, below: &PerDirection<Option<TcpProgress>>) {
        if !self.is_under_way() {
            return;
        }
        for direction in Direction::BOTH {
            let (sender, receiver) = (below[direction], below[direction.flip()]);
            if sender.is_none() && receiver.is_none() {
                continue;
            }
            let peer = &mut self.peers[direction];
            // The session's own state stands: a FIN has a number that was acknowledged before it counts as
            // sent.
            let sent = sender.map_or(peer.next_seq, |sender| later(peer.next_seq, sender.data_sent()));
            // The acknowledgement of a FIN is replayed by itself as well.
            let bound =
                sender.filter(|sender| sender.fin.is_some()).map_or(sent, |sender| sender.data_sent());
            let acknowledged = receiver.map_or(peer.last_ack, |receiver| {
                let most = if receiver.acknowledged.after(bound) { bound } else { receiver.acknowledged };
                later(peer.last_ack, most)
            });
            // A FIN that the host has handled, and that was acknowledged below.
            receiver.iter().for_each(|receiver| peer.note_end(receiver.acknowledged));
            // The receiver's current window is unknown, only its largest possible size. Data beyond it cannot
            // have been received.
            let largest = u32::from(u16::MAX) << peer.wscale.min(WSCALE_MAX);
            let edge = acknowledged.plus(largest);
            // Acknowledgements below have overtaken those that reach the host, by as much as was in flight
            // meanwhile: an earlier one is not too old (RFC 5961 section 5.2 tolerates the largest window).
            peer.window = largest.max(FLIGHT_MAX);
            peer.next_seq = later(peer.next_seq, if sent.after(edge) { edge } else { sent });
            if acknowledged != peer.last_ack {
                peer.last_ack = acknowledged;
                peer.sack = Default::default();
            }
            peer.next_win = later(peer.next_win, edge);
            // More data may have passed than was counted, and its acknowledgement may follow.
            peer.sent = later(peer.sent, edge);
        }
        self.queue.clear();
    }

    /// The next segment that passed below and changes the connection's state, to be handled now: the
    /// acknowledgement of the SYN/ACK (before [`TcpSession::resume`]); the end of a side, and the other
    /// side's acknowledgement of it (after). The caller repeats this after handling the segment, until there
    /// is none, or the same one again, which was refused.
    #[must_use]
    pub fn next_unreplayed(
        &self,
        below: &PerDirection<Option<TcpProgress>>,
    ) -> Option<(Direction, Segment<'static>)> {
        if self.state == TcpState::SynRecv {
            return self.unreplayed_opening(below);
        }
        if !self.is_under_way() {
            return None;
        }
        let server_first = match below[Direction::ToServer].and_then(|client| client.fin) {
            Some(fin) => fin.second,
            None => true,
        };
        let first = if server_first { Direction::ToClient } else { Direction::ToServer };
        [first, first.flip()].into_iter().find_map(|direction| self.unreplayed_end(direction, below))
    }

    fn unreplayed_opening(
        &self,
        below: &PerDirection<Option<TcpProgress>>,
    ) -> Option<(Direction, Segment<'static>)> {
        let client = below[Direction::ToServer]?;
        let (seq, ack) = (self.peers[Direction::ToServer].next_seq, self.peers[Direction::ToClient].next_seq);
        let answers = client.acknowledged.at_least(ack) && client.sent.at_least(seq);
        answers.then(|| (Direction::ToServer, self.bare(Direction::ToServer, TcpFlags::ACK, seq, ack)))
    }

    fn unreplayed_end(
        &self,
        direction: Direction,
        below: &PerDirection<Option<TcpProgress>>,
    ) -> Option<(Direction, Segment<'static>)> {
        let (own, other) = (below[direction]?, below[direction.flip()]);
        let fin = own.fin?;
        if !self.has_closed(direction) {
            let known = later(self.peers[direction.flip()].last_ack, own.acknowledged);
            // The acknowledgement of the other side's end is replayed by itself.
            let most = match other.and_then(|other| other.fin) {
                Some(end) if !self.has_closed(direction.flip()) => end.number.minus(1),
                _ => known,
            };
            let ack = if known.after(most) { most } else { known };
            return Some((direction, self.bare(direction, FIN_ACK, fin.number.minus(1), ack)));
        }
        let answered = other.is_some_and(|other| other.acknowledged.at_least(fin.number))
            && self.peers[direction].last_ack.before(fin.number);
        let closed = self.has_closed(direction.flip());
        let end = other.and_then(|other| other.fin).filter(|_| closed).map(|end| end.number);
        let seq = end.unwrap_or(self.peers[direction.flip()].next_seq);
        answered.then(|| (direction.flip(), self.bare(direction.flip(), TcpFlags::ACK, seq, fin.number)))
    }

    /// A segment without data, with the largest possible window (as in [`TcpSession::resume`]).
    fn bare(&self, direction: Direction, flags: TcpFlags, seq: Seq, ack: Seq) -> Segment<'static> {
        let stamps = (self.peers[direction].last_ts, self.peers[direction.flip()].last_ts);
        let ts = self.flags.contains(SessionFlags::TIMESTAMP).then_some(stamps);
        let options = SegmentOptions { ts, ..SegmentOptions::default() };
        Segment { seq, ack, flags, window: u16::MAX, options, checksum_ok: true, ..Segment::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Rig, segment};
    use super::*;
    use crate::tcp::{StreamConfig, StreamEvent, TcpFlags, TcpState};
    use bartizan_base::Direction::{ToClient, ToServer};

    const A: TcpFlags = TcpFlags::ACK;
    const FA: TcpFlags = TcpFlags::FIN.union(TcpFlags::ACK);

    fn open() -> Rig {
        let mut rig = Rig::new(StreamConfig::default());
        rig.handle(ToServer, &segment(TcpFlags::SYN, 100, 0, b""));
        rig.handle(ToClient, &segment(TcpFlags::SYN.union(A), 500, 101, b""));
        rig.handle(ToServer, &segment(A, 101, 501, b""));
        rig
    }

    fn side(sent: u32, acknowledged: u32) -> Option<TcpProgress> {
        Some(TcpProgress { sent: Seq(sent), acknowledged: Seq(acknowledged), fin: None })
    }

    fn below(client: Option<TcpProgress>, server: Option<TcpProgress>) -> PerDirection<Option<TcpProgress>> {
        PerDirection::new(client, server)
    }

    #[test]
    fn the_ends_of_a_connection_are_seen_whose_middle_went_below() {
        // More than half the sequence space between two updates, too.
        for bytes in [900_000_000u32, 3_000_000_000, 4_200_000_000] {
            let mut rig = open();
            let (far, other) = (101u32.wrapping_add(bytes), 501 + 70_000);
            rig.session.resume(&below(side(far, other), side(other, far)));
            rig.handle(ToServer, &segment(FA, far, other, b""));
            assert!(rig.session.has_closed(ToServer), "{bytes}");
            rig.handle(ToClient, &segment(FA, other, far.wrapping_add(1), b""));
            rig.handle(ToServer, &segment(A, far.wrapping_add(1), other + 1, b""));
            assert!(rig.session.has_closed(ToClient));
            let state = rig.session.state();
            assert!(matches!(state, TcpState::TimeWait | TcpState::Closed), "{state:?}");
        }
    }

    /// Replays all pending segments to a session.
    fn catch_up(rig: &mut Rig, below: &PerDirection<Option<TcpProgress>>) {
        let tell = |rig: &mut Rig, most| {
            let mut last = None;
            for _ in 0..most {
                let Some((direction, segment)) = rig.session.next_unreplayed(below) else { return };
                let said = Some((direction, segment.seq, segment.ack, segment.flags));
                assert_ne!(said, last, "it was refused");
                last = said;
                rig.handle(direction, &segment);
            }
        };
        tell(rig, usize::from(rig.session.state() == TcpState::SynRecv));
        rig.session.resume(below);
        tell(rig, 5);
        assert!(rig.session.next_unreplayed(below).is_none());
    }

    #[test]
    fn ends_that_came_below_are_told() {
        let end = |sent: u32, acknowledged, second| {
            let fin = Some(Fin { number: Seq(sent), second });
            side(sent, acknowledged).map(|progress| TcpProgress { fin, ..progress })
        };
        let (c, s) = (101 + 5_000, 501 + 90_000);
        for (client, server, state) in [
            (end(c + 1, s, false), side(s, c), TcpState::CloseWait),
            (end(c + 1, s, false), side(s, c + 1), TcpState::CloseWait),
            (end(c + 1, s + 1, false), end(s + 1, c + 1, true), TcpState::Closed),
            (end(c + 1, s + 1, true), end(s + 1, c + 1, false), TcpState::Closed),
            (end(c + 1, s, false), end(s + 1, c + 1, true), TcpState::LastAck),
            (side(c, s), end(s + 1, c, false), TcpState::FinWait1),
            (side(c, s + 1), end(s + 1, c, false), TcpState::FinWait2),
        ] {
            let mut rig = open();
            catch_up(&mut rig, &below(client, server));
            assert_eq!(rig.session.state(), state, "{client:?} {server:?}");
        }
    }

    /// The ports are reused at once: the server's FIN for the client's RST, which crossed it, arrives after
    /// the new SYN.
    #[test]
    fn what_an_earlier_connection_left_under_way_ends_no_later_one() {
        let strict =
            StreamConfig { strict: true, mode: crate::tcp::StreamMode::Inline, ..StreamConfig::default() };
        // The new connection's numbers: before the old FIN, and after it.
        for (isn, left) in [(500, 7_000), (7_000, 500), (500, 502), (500, 501)] {
            let mut rig = Rig::new(strict);
            rig.handle(ToServer, &segment(TcpFlags::SYN, 100, 0, b""));
            let out = rig.handle(ToClient, &segment(FA, left, 70, b""));
            assert!(!rig.session.has_closed(ToClient), "{isn} {left}");
            assert_eq!(out.state, TcpState::SynSent);
            rig.handle(ToClient, &segment(TcpFlags::SYN.union(A), isn, 101, b""));
            rig.handle(ToServer, &segment(A, 101, isn + 1, b""));
            let end = |sent, acknowledged, second| {
                let fin = Some(Fin { number: Seq(sent), second });
                side(sent, acknowledged).map(|progress| TcpProgress { fin, ..progress })
            };
            catch_up(&mut rig, &below(end(110, isn + 2, true), end(isn + 2, 110, false)));
            assert_eq!(rig.session.state(), TcpState::Closed, "{isn} {left}");
            let out = rig.handle(ToServer, &segment(TcpFlags::SYN, 90_000, 0, b""));
            assert!(out.reuse, "the ports may be used once more: {isn} {left}");
        }
    }

    #[test]
    fn what_opens_a_connection_below_is_told() {
        let mut rig = Rig::new(StreamConfig::default());
        rig.handle(ToServer, &segment(TcpFlags::SYN, 100, 0, b""));
        rig.handle(ToClient, &segment(TcpFlags::SYN.union(A), 500, 101, b""));
        catch_up(&mut rig, &below(None, side(501, 101)));
        assert_eq!(rig.session.state(), TcpState::SynRecv, "the client has not answered");
        catch_up(&mut rig, &below(side(101, 400), None));
        assert_eq!(rig.session.state(), TcpState::SynRecv, "it acknowledges something else");
        catch_up(&mut rig, &below(side(101 + 20, 501 + 70), side(501 + 70, 121)));
        assert_eq!(rig.session.state(), TcpState::Established);
        assert_eq!(rig.session.peers[ToClient].next_seq, Seq(571));
    }

    #[test]
    fn it_may_be_told_the_same_again_while_the_connection_ends() {
        let mut rig = open();
        let (far, other) = (101 + 1_000_000, 501 + 1_000_000);
        let sides = below(side(far, other), side(other, far));
        for (direction, segment) in [
            (ToServer, segment(FA, far, other, b"")),
            (ToClient, segment(A, other, far + 1, b"")),
            (ToClient, segment(FA, other, far + 1, b"")),
            (ToServer, segment(A, far + 1, other + 1, b"")),
        ] {
            rig.session.resume(&sides);
            let out = rig.handle(direction, &segment);
            let gap_alone = |event| event == StreamEvent::ReassemblySeqGap;
            assert!(out.events.iter().all(gap_alone), "{:?}", out.events.iter().collect::<Vec<_>>());
        }
        let state = rig.session.state();
        assert!(matches!(state, TcpState::TimeWait | TcpState::Closed), "{state:?}");
    }

    #[test]
    fn without_it_the_end_is_out_of_window() {
        let mut rig = open();
        rig.handle(ToServer, &segment(FA, 101 + 900_000_000, 501 + 70_000, b""));
        assert!(!rig.session.has_closed(ToServer));
    }

    #[test]
    fn a_receiver_is_where_it_says_and_what_is_under_way_may_still_be_acknowledged() {
        let mut rig = open();
        // 3,000 bytes are in flight; the server's window is unknown.
        let (sent, had) = (101 + 5_003_000, 101 + 5_000_000);
        rig.session.resume(&below(side(sent, 501 + 2_000), side(501 + 2_000, had)));
        assert_eq!(rig.session.last_ack(ToServer), Seq(had));
        assert_eq!(rig.session.next_seq(ToServer), Seq(sent));
        let out = rig.handle(ToServer, &segment(A, sent, 501 + 2_000, b"more"));
        assert!(out.events.is_empty(), "{:?}", out.events.iter().collect::<Vec<_>>());
        let out = rig.handle(ToClient, &segment(A, 501 + 2_000, sent, b""));
        let gap_alone = |event| event == StreamEvent::ReassemblySeqGap;
        assert!(out.events.iter().all(gap_alone), "{:?}", out.events.iter().collect::<Vec<_>>());
        assert_eq!(rig.session.last_ack(ToServer), Seq(sent));
    }

    #[test]
    fn neither_side_moves_the_other_by_a_lie() {
        let mut rig = open();
        let window = 0xffff << rig.session.peers[ToServer].wscale;
        // The client claims to have sent far ahead, and to have read unsent data of the server.
        rig.session.resume(&below(side(101 + 50_000_000, 501 + 9_000), side(501 + 1_000, 101 + 10)));
        assert_eq!(rig.session.last_ack(ToServer), Seq(101 + 10), "reading goes on where the server is");
        assert_eq!(rig.session.next_seq(ToServer), Seq(101 + 10 + window));
        assert_eq!(rig.session.last_ack(ToClient), Seq(501 + 1_000));
    }

    #[test]
    fn a_fin_that_later_acknowledgements_have_overtaken_is_taken() {
        let mut rig = open();
        // The server has closed its side with 501 + 1,000, and has acknowledged a megabyte since; its FIN was
        // queued.
        rig.session.resume(&below(side(101 + 1_000_000, 501 + 1_000), side(501 + 1_000, 101 + 1_000_000)));
        let out = rig.handle(ToClient, &segment(FA, 501 + 1_000, 101 + 20_000, b""));
        let gap_alone = |event| event == StreamEvent::ReassemblySeqGap;
        assert!(out.events.iter().all(gap_alone), "{:?}", out.events.iter().collect::<Vec<_>>());
        assert!(rig.session.has_closed(ToClient));
    }

    #[test]
    fn numbers_do_not_go_back_and_one_side_alone_says_what_it_can() {
        let mut rig = open();
        rig.handle(ToServer, &segment(A, 101, 501, b"abc"));
        rig.handle(ToClient, &segment(A, 501, 104, b""));
        let before = [rig.session.next_seq(ToServer), rig.session.last_ack(ToServer)];
        for old in [below(None, None), below(side(102, 501), side(501, 101))] {
            rig.session.resume(&old);
            assert_eq!([rig.session.next_seq(ToServer), rig.session.last_ack(ToServer)], before);
        }
        rig.session.resume(&below(side(1_104, 501), None));
        assert_eq!(rig.session.next_seq(ToServer), Seq(1_104));
        assert_eq!(rig.session.last_ack(ToServer), Seq(104));
        let mut none = TcpSession::default();
        none.resume(&below(side(5, 6), side(6, 5)));
        assert!(!none.exists());
    }
}
