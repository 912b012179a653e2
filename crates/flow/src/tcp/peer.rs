// SPDX-License-Identifier: Apache-2.0
//! One side of a session: its sequence space as seen from the wire.

use super::Seq;
use bitflags::bitflags;

bitflags! {
    /// Facts about one side.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct PeerFlags: u8 {
        /// A keep-alive probe of this side is unanswered.
        const KEEP_ALIVE = 1;
        /// This side was the target of a RST that may be forged.
        const RST_RECEIVED = 1 << 1;
        /// Its SYN carried a timestamp.
        const TIMESTAMP = 1 << 2;
        /// Its first timestamp was zero.
        const ZERO_TIMESTAMP = 1 << 3;
        /// It sent a FIN that its receiver may have accepted: the number fits, and the FIN was not refused.
        const FIN_TAKEN = 1 << 4;
        /// The other side has acknowledged that FIN.
        const FIN_ACKNOWLEDGED = 1 << 5;
        /// It has sent data in the place of that FIN: an acknowledgement of one may be for the other.
        const FIN_DOUBTED = 1 << 6;
    }
}

/// Most SACK ranges kept for a side; dropping further ones only makes the window estimate smaller.
const SACK_RANGES: usize = 4;

/// One side of a session. "Sent" means sent by this side; windows and acknowledgements are those of the other
/// side for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peer {
    /// Initial sequence number.
    pub(crate) isn: Seq,
    /// Next sequence number expected.
    pub(crate) next_seq: Seq,
    /// Highest acknowledgement of this side's data.
    pub(crate) last_ack: Seq,
    /// Right edge of the window into which this side may send.
    pub(crate) next_win: Seq,
    /// Highest number after the data of this side that was forwarded to its receiver: only a FIN's
    /// acknowledgement exceeds this. If another level has forwarded its segments, an upper bound.
    pub(crate) sent: Seq,
    /// Number after its FIN, if [`PeerFlags::FIN_TAKEN`] is set.
    pub(crate) fin: Seq,
    /// Window that the other side offers, scaled.
    pub(crate) window: u32,
    /// The largest window that the other side has offered: its older segments may acknowledge this much less
    /// (RFC 5961 section 5.2, MAX.SND.WND).
    pub(crate) window_max: u32,
    /// Last timestamp value sent.
    pub(crate) last_ts: u32,
    /// Second of the packet clock in which it was sent.
    pub(crate) last_pkt_ts: u32,
    /// Shift of the windows that the other side offers.
    pub(crate) wscale: u8,
    /// Flags of all packets that this side sent.
    pub(crate) tcp_flags: u8,
    pub(crate) flags: PeerFlags,
    /// Bound on the acknowledgements that another path has advanced meanwhile, as an exponent of 2
    /// ([`TcpSession::take_over`](super::TcpSession::take_over)); 0 for none. Not exported: a flow that moves
    /// has no packets under way.
    pub(crate) overtaken: u8,
    /// Ranges acknowledged selectively; empty ones are free.
    pub(crate) sack: [(Seq, Seq); SACK_RANGES],
}

impl Peer {
    /// Sets the initial sequence number, by which reassembly begins.
    pub(crate) fn set_isn(&mut self, isn: Seq) {
        self.isn = isn;
        self.sent = self.base();
    }

    /// Sequence number at which reassembly of this side's data begins.
    pub(crate) fn base(&self) -> Seq {
        self.isn.plus(1)
    }

    /// Notes the end of data forwarded to its receiver.
    pub(crate) fn note_sent(&mut self, end: Seq) {
        if end.after(self.sent) {
            self.sent = end;
        }
    }

    /// Notes that data up to `end` was forwarded, and doubts a FIN in its place: no honest sender sends both.
    pub(crate) fn doubt_fin_before(&mut self, end: Seq) {
        let ended = self.flags.contains(PeerFlags::FIN_TAKEN) && end.at_least(self.fin);
        if ended && !self.flags.contains(PeerFlags::FIN_ACKNOWLEDGED) {
            self.flags |= PeerFlags::FIN_DOUBTED;
        }
    }

    /// Advances the acknowledgement, never back.
    pub(crate) fn update_last_ack(&mut self, ack: Seq) {
        if ack.after(self.last_ack) {
            self.last_ack = ack;
            self.prune_sack();
        }
    }

    /// Advances the window's right edge, never back.
    pub(crate) fn update_next_win(&mut self) {
        self.note_window();
        let edge = self.last_ack.plus(self.window).plus(self.sacked());
        if edge.after(self.next_win) {
            self.next_win = edge;
        }
    }

    /// Notes a FIN. A FIN before the receiver's acknowledgement is ignored. Among several the first counts,
    /// unless the receiver has acknowledged data beyond it: then it was not the end.
    pub(crate) fn note_fin(&mut self, fin: Seq) {
        if self.flags.contains(PeerFlags::FIN_ACKNOWLEDGED) || fin.before(self.last_ack) {
            return;
        }
        let stands = self.flags.contains(PeerFlags::FIN_TAKEN)
            && self.fin.at_least(self.last_ack)
            && self.fin.before(fin);
        if !stands {
            self.fin = fin;
        }
        self.flags |= PeerFlags::FIN_TAKEN;
    }

    /// Notes an acknowledgement of the other side, which never exceeds the FIN.
    pub(crate) fn note_end(&mut self, acknowledged: Seq) {
        if self.flags.contains(PeerFlags::FIN_TAKEN) && acknowledged == self.fin {
            self.flags |= PeerFlags::FIN_ACKNOWLEDGED;
        }
    }

    /// Notes the size of the window.
    pub(crate) fn note_window(&mut self) {
        self.window_max = self.window_max.max(self.window);
    }

    /// Sets the window's right edge from the last acknowledgement.
    pub(crate) fn reset_next_win(&mut self) {
        self.note_window();
        self.next_win = self.last_ack.plus(self.window);
    }

    /// Takes the blocks of a SACK option for this side's data, up to `most`.
    pub(crate) fn update_sack(&mut self, mut blocks: &[u8], most: Seq) {
        while let Some((block, rest)) = blocks.split_first_chunk::<8>() {
            blocks = rest;
            let [a, b, c, d, e, f, g, h] = *block;
            let left = Seq(u32::from_be_bytes([a, b, c, d]));
            let right = Seq(u32::from_be_bytes([e, f, g, h]));
            // Only blocks between the acknowledgement and the window's edge can be true.
            if left.after(self.last_ack)
                && right.after(left)
                && right.at_most(self.next_win)
                && right.at_most(most)
            {
                self.insert_sack(left, right);
            }
        }
    }

    /// Whether the blocks of a SACK option are all known.
    pub(crate) fn sack_is_outdated(&self, mut blocks: &[u8]) -> bool {
        while let Some((block, rest)) = blocks.split_first_chunk::<8>() {
            blocks = rest;
            let [a, b, c, d, e, f, g, h] = *block;
            let left = Seq(u32::from_be_bytes([a, b, c, d]));
            let right = Seq(u32::from_be_bytes([e, f, g, h]));
            let known = right.at_most(self.last_ack)
                || self.sack.iter().any(|(l, r)| l != r && l.at_most(left) && r.at_least(right));
            if !known {
                return false;
            }
        }
        true
    }

    /// Bytes that were acknowledged selectively.
    pub(crate) fn sacked(&self) -> u32 {
        self.sack.iter().fold(0u32, |sum, (l, r)| sum.saturating_add(r.0.wrapping_sub(l.0)))
    }

    fn insert_sack(&mut self, mut left: Seq, mut right: Seq) {
        for (l, r) in &mut self.sack {
            if *l != *r && l.at_most(right) && r.at_least(left) {
                if l.before(left) {
                    left = *l;
                }
                if r.after(right) {
                    right = *r;
                }
                (*l, *r) = (Seq(0), Seq(0));
            }
        }
        if let Some(free) = self.sack.iter_mut().find(|(l, r)| l == r) {
            *free = (left, right);
        }
    }

    fn prune_sack(&mut self) {
        for (l, r) in &mut self.sack {
            if *l == *r {
                continue;
            }
            if r.at_most(self.last_ack) {
                (*l, *r) = (Seq(0), Seq(0));
            } else if l.before(self.last_ack) {
                *l = self.last_ack;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(left: u32, right: u32) -> Vec<u8> {
        [left.to_be_bytes(), right.to_be_bytes()].concat()
    }

    #[test]
    fn sack_ranges_merge_and_are_pruned_by_the_ack() {
        let mut peer = Peer { last_ack: Seq(100), next_win: Seq(10_000), ..Peer::default() };
        peer.update_sack(&block(200, 300), Seq(10_000));
        peer.update_sack(&block(400, 500), Seq(10_000));
        assert_eq!(peer.sacked(), 200);
        peer.update_sack(&block(250, 450), Seq(10_000));
        assert_eq!(peer.sacked(), 300);
        assert!(peer.sack_is_outdated(&block(220, 480)));
        assert!(!peer.sack_is_outdated(&block(220, 580)));
        peer.update_last_ack(Seq(350));
        assert_eq!(peer.sacked(), 150);
        peer.update_last_ack(Seq(600));
        assert_eq!(peer.sacked(), 0);
        // Beyond the window, or before the acknowledgement: ignored.
        peer.update_sack(&block(20_000, 20_100), Seq(10_000));
        peer.update_sack(&block(500, 550), Seq(10_000));
        assert_eq!(peer.sacked(), 0);
    }
}
