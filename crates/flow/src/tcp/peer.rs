// SPDX-License-Identifier: Apache-2.0
//! One side of a session: what its sequence space looks like from the wire.

use super::Seq;
use bitflags::bitflags;

bitflags! {
    /// Facts about one side.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct PeerFlags: u8 {
        /// A keep-alive probe of this side waits for its answer.
        const KEEP_ALIVE = 1;
        /// This side was sent a RST that may have been forged.
        const RST_RECEIVED = 1 << 1;
        /// Its SYN carried a timestamp.
        const TIMESTAMP = 1 << 2;
        /// Its first timestamp was zero.
        const ZERO_TIMESTAMP = 1 << 3;
        /// It sent a FIN that its receiver may have taken: one whose number fits, and which was not refused.
        const FIN_TAKEN = 1 << 4;
        /// The other side has acknowledged that FIN.
        const FIN_ACKNOWLEDGED = 1 << 5;
        /// It has sent data in the place of that FIN: who acknowledges the one may have the other.
        const FIN_DOUBTED = 1 << 6;
    }
}

/// SACK ranges kept for a side; more are forgotten, which makes the window estimate smaller only.
const SACK_RANGES: usize = 4;

/// One side of a session. "Sent" means sent by this side; windows and acknowledgements are those
/// that the other side gave for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peer {
    /// Initial sequence number.
    pub(crate) isn: Seq,
    /// Next sequence number expected.
    pub(crate) next_seq: Seq,
    /// Highest acknowledgement of what this side sent.
    pub(crate) last_ack: Seq,
    /// Right edge of the window this side may send into.
    pub(crate) next_win: Seq,
    /// Highest number behind the data of this side that went on to its receiver: nobody acknowledges more,
    /// but a FIN. Where others have let its segments go on, as far as they may have.
    pub(crate) sent: Seq,
    /// Number behind its FIN, where [`PeerFlags::FIN_TAKEN`] says that there is one.
    pub(crate) fin: Seq,
    /// Window that the other side offers, scaled.
    pub(crate) window: u32,
    /// The largest one that it has offered: what it has sent before that may acknowledge as much less (RFC
    /// 5961 section 5.2, MAX.SND.WND).
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
    /// Acknowledgements of what it sent have come another way, by less than 2 to the power of this
    /// ([`TcpSession::take_over`](super::TcpSession::take_over)); 0 for none. Not part of the exported form:
    /// who moves takes nothing along that is under way.
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

    /// Sequence number at which reassembly of what this side sent begins.
    pub(crate) fn base(&self) -> Seq {
        self.isn.plus(1)
    }

    /// Notes what has gone on to its receiver.
    pub(crate) fn note_sent(&mut self, end: Seq) {
        if end.after(self.sent) {
            self.sent = end;
        }
    }

    /// Data up to `end` has gone on. No honest sender puts any where its FIN is.
    pub(crate) fn doubt_fin_before(&mut self, end: Seq) {
        let ended = self.flags.contains(PeerFlags::FIN_TAKEN) && end.at_least(self.fin);
        if ended && !self.flags.contains(PeerFlags::FIN_ACKNOWLEDGED) {
            self.flags |= PeerFlags::FIN_DOUBTED;
        }
    }

    /// Moves the acknowledgement forward, never back.
    pub(crate) fn update_last_ack(&mut self, ack: Seq) {
        if ack.after(self.last_ack) {
            self.last_ack = ack;
            self.prune_sack();
        }
    }

    /// Moves the window's right edge forward, never back.
    pub(crate) fn update_next_win(&mut self) {
        self.note_window();
        let edge = self.last_ack.plus(self.window).plus(self.sacked());
        if edge.after(self.next_win) {
            self.next_win = edge;
        }
    }

    /// Notes a FIN. One that stands before what its receiver has acknowledged was none. Of several the first
    /// counts, unless the receiver has gone beyond it: then nothing ended there.
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

    /// Notes an acknowledgement of the other side, which nobody gives of more than the FIN.
    pub(crate) fn note_end(&mut self, acknowledged: Seq) {
        if self.flags.contains(PeerFlags::FIN_TAKEN) && acknowledged == self.fin {
            self.flags |= PeerFlags::FIN_ACKNOWLEDGED;
        }
    }

    /// Notes how large the window is.
    pub(crate) fn note_window(&mut self) {
        self.window_max = self.window_max.max(self.window);
    }

    /// Sets the window's right edge from the last acknowledgement.
    pub(crate) fn reset_next_win(&mut self) {
        self.note_window();
        self.next_win = self.last_ack.plus(self.window);
    }

    /// Takes in the blocks of a SACK option that speaks about this side's data, up to `most`.
    pub(crate) fn update_sack(&mut self, mut blocks: &[u8], most: Seq) {
        while let Some((block, rest)) = blocks.split_first_chunk::<8>() {
            blocks = rest;
            let [a, b, c, d, e, f, g, h] = *block;
            let left = Seq(u32::from_be_bytes([a, b, c, d]));
            let right = Seq(u32::from_be_bytes([e, f, g, h]));
            // Only what lies between the acknowledgement and the window's edge can be true.
            if left.after(self.last_ack)
                && right.after(left)
                && right.at_most(self.next_win)
                && right.at_most(most)
            {
                self.insert_sack(left, right);
            }
        }
    }

    /// Whether the blocks of a SACK option say nothing new.
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
        // Beyond the window, or before the acknowledgement: a lie.
        peer.update_sack(&block(20_000, 20_100), Seq(10_000));
        peer.update_sack(&block(500, 550), Seq(10_000));
        assert_eq!(peer.sacked(), 0);
    }
}
