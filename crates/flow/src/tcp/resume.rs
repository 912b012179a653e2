// SPDX-License-Identifier: Apache-2.0
//! A session whose packets others have handled for a while: a level below the host, which counts but does not track.

use super::session::WINDOW_SLACK;
use super::{Segment, TcpFlags, TcpSession};
use bartizan_base::Direction;

impl TcpSession {
    /// Takes a session up again with a segment that is about to be handled: what its sender has sent before is taken as sent and acknowledged, what it acknowledges
    /// as sent by the other side. Numbers only go forward. A segment without ACK says nothing of the other side, and a SYN begins something else: both change nothing.
    ///
    /// Who calls this knows that packets are missing which went on rightfully; else it would be a way to move a session.
    pub fn resume(&mut self, segment: &Segment<'_>, direction: Direction) {
        let says = segment.flags.contains(TcpFlags::ACK) && !segment.flags.contains(TcpFlags::SYN);
        if !self.is_under_way() || !says || !segment.checksum_ok {
            return;
        }
        let sender = &mut self.peers[direction];
        if segment.seq.after(sender.next_seq) {
            sender.next_seq = segment.seq;
            sender.last_ack = segment.seq;
            sender.next_win = segment.seq.plus(sender.window.max(WINDOW_SLACK));
            sender.sack = Default::default();
        }
        let receiver = &mut self.peers[direction.flip()];
        if segment.ack.after(receiver.next_seq) {
            receiver.next_seq = segment.ack;
        }
        if segment.ack.after(receiver.last_ack) {
            receiver.last_ack = segment.ack;
            receiver.window = u32::from(segment.window) << receiver.wscale.min(14);
            receiver.sack = Default::default();
            receiver.next_win = segment.ack.plus(receiver.window);
        }
        self.queue.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Rig, segment};
    use super::*;
    use crate::tcp::{StreamConfig, TcpState};
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

    #[test]
    fn the_ends_of_a_connection_are_seen_whose_middle_went_below() {
        let mut rig = open();
        let (far, other) = (101 + 900_000_000, 501 + 70_000);
        let fin = segment(FA, far, other, b"");
        rig.session.resume(&fin, ToServer);
        rig.handle(ToServer, &fin);
        assert!(rig.session.has_closed(ToServer));
        let fin = segment(FA, other + 3_000, far + 1, b"");
        rig.session.resume(&fin, ToClient);
        rig.handle(ToClient, &fin);
        let last = segment(A, far + 1, other + 3_001, b"");
        rig.session.resume(&last, ToServer);
        rig.handle(ToServer, &last);
        assert!(rig.session.has_closed(ToClient));
        assert!(
            matches!(rig.session.state(), TcpState::TimeWait | TcpState::Closed),
            "{:?}",
            rig.session.state()
        );
    }

    #[test]
    fn without_it_the_end_is_out_of_window() {
        let mut rig = open();
        rig.handle(ToServer, &segment(FA, 101 + 900_000_000, 501 + 70_000, b""));
        assert!(!rig.session.has_closed(ToServer));
    }

    #[test]
    fn inspection_goes_on_with_the_segment_that_takes_it_up() {
        let mut rig = open();
        let data = segment(A, 101 + 5_000_000, 501 + 2_000, b"request");
        rig.session.resume(&data, ToServer);
        let out = rig.handle(ToServer, &data);
        assert!(out.events.is_empty(), "{:?}", out.events.iter().collect::<Vec<_>>());
        assert_eq!(rig.session.next_seq(ToServer), crate::tcp::Seq(101 + 5_000_007));
        assert_eq!(rig.session.next_seq(ToClient), crate::tcp::Seq(501 + 2_000));
    }

    #[test]
    fn numbers_do_not_go_back_and_a_syn_or_a_reset_without_ack_says_nothing() {
        let mut rig = open();
        rig.handle(ToServer, &segment(A, 101, 501, b"abc"));
        let before = rig.session.next_seq(ToServer);
        for old in [
            segment(A, 101, 501, b"abc"),
            segment(TcpFlags::SYN, 900_000, 0, b""),
            segment(TcpFlags::SYN.union(A), 900_000, 90_000, b""),
            segment(TcpFlags::RST, 900_000, 0, b""),
            Segment { checksum_ok: false, ..segment(A, 900_000, 900_000, b"") },
        ] {
            rig.session.resume(&old, ToServer);
            assert_eq!(rig.session.next_seq(ToServer), before, "{:?}", old.flags);
        }
        let mut none = TcpSession::default();
        none.resume(&segment(A, 5, 6, b""), ToServer);
        assert!(!none.exists());
    }
}
