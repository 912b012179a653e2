// SPDX-License-Identifier: Apache-2.0
//! A session whose packets others have handled for a while: a level below the host, which says how far both sides have come.
//!
//! Neither side is believed about itself. Where a receiver is says the receiver, which acknowledges; it cannot have more than what was sent, so it is held to that.
//! What a sender says it has sent only says which acknowledgements can be true: it may send one segment far ahead, which nobody reads, to have what
//! follows at the true place taken for sent again.

use super::session::{FLIGHT_MAX, SEQUENCE_BACK};
use super::{Seq, TcpSession, WSCALE_MAX};
use bartizan_base::{Direction, PerDirection};

/// How far one side of a connection has come, by what a level below the host has handled of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The number behind all that it has sent.
    pub sent: Seq,
    /// Its latest acknowledgement.
    pub acknowledged: Seq,
}

/// A number that was learnt later than another one: it counts unless it lies a little behind, as what is sent again or overtaken does. (One that lies far
/// behind has gone round.)
pub(super) fn later(had: Seq, now: Seq) -> Seq {
    if had.0.wrapping_sub(now.0) < SEQUENCE_BACK { had } else { now }
}

impl TcpSession {
    /// Takes over how far both sides have come below, by sender; `None` for one of which nothing was handled there. Numbers go forward only.
    ///
    /// Who reads the streams next begins where each receiver is.
    pub fn resume(&mut self, below: &PerDirection<Option<Progress>>) {
        if !self.is_under_way() {
            return;
        }
        for direction in Direction::BOTH {
            let (sender, receiver) = (below[direction], below[direction.flip()]);
            if sender.is_none() && receiver.is_none() {
                continue;
            }
            let peer = &mut self.peers[direction];
            // What the session knows itself stands: a FIN has a number that was acknowledged before it counts as sent.
            let sent = sender.map_or(peer.next_seq, |sender| later(peer.next_seq, sender.sent));
            let acknowledged = receiver.map_or(peer.last_ack, |receiver| {
                let most = if receiver.acknowledged.after(sent) { sent } else { receiver.acknowledged };
                later(peer.last_ack, most)
            });
            // The window that the receiver offers now is not known, but how large it can be. What was sent beyond it nobody has.
            let largest = u32::from(u16::MAX) << peer.wscale.min(WSCALE_MAX);
            let edge = acknowledged.plus(largest);
            // Acknowledgements that came below have overtaken what comes up, by as much as was on its way meanwhile: an earlier one is none that
            // is too old (RFC 5961 section 5.2 goes back by the largest window).
            peer.window = largest.max(FLIGHT_MAX);
            peer.next_seq = later(peer.next_seq, if sent.after(edge) { edge } else { sent });
            if acknowledged != peer.last_ack {
                peer.last_ack = acknowledged;
                peer.sack = Default::default();
            }
            peer.next_win = later(peer.next_win, edge);
        }
        self.queue.clear();
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

    fn side(sent: u32, acknowledged: u32) -> Option<Progress> {
        Some(Progress { sent: Seq(sent), acknowledged: Seq(acknowledged) })
    }

    fn below(client: Option<Progress>, server: Option<Progress>) -> PerDirection<Option<Progress>> {
        PerDirection::new(client, server)
    }

    #[test]
    fn the_ends_of_a_connection_are_seen_whose_middle_went_below() {
        // Half the circle of numbers and more between two looks, too.
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
        // 3,000 bytes are under way; the server's window is not known.
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
        // The client claims to have sent far ahead, and to have read what the server has not sent.
        rig.session.resume(&below(side(101 + 50_000_000, 501 + 9_000), side(501 + 1_000, 101 + 10)));
        assert_eq!(rig.session.last_ack(ToServer), Seq(101 + 10), "reading goes on where the server is");
        assert_eq!(rig.session.next_seq(ToServer), Seq(101 + 10 + window));
        assert_eq!(rig.session.last_ack(ToClient), Seq(501 + 1_000));
    }

    #[test]
    fn a_fin_that_later_acknowledgements_have_overtaken_is_taken() {
        let mut rig = open();
        // The server has closed its side with 501 + 1,000, and has acknowledged a megabyte since; its FIN waited to be looked at.
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
