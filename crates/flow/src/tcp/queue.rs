// SPDX-License-Identifier: Apache-2.0
//! The queue of SYNs and SYN/ACKs that differ from those in force: later segments show which of them the
//! other side believes. The queue is bounded by configuration and empty in every normal session.

use super::peer::PeerFlags;
use super::queued::Queued;
use super::session::{SessionFlags, TcpSession};
use super::{Segment, Seq, StreamConfig, StreamEvent};

impl TcpSession {
    /// The session's state of the latest SYN, as an entry of the queue.
    pub(crate) fn last_syn(&self) -> Queued {
        let (client, server) = (self.client(), self.server());
        Queued {
            seq: client.isn,
            ack: Seq(0),
            window: u16::try_from(server.window).unwrap_or(u16::MAX),
            wscale: self.flags.contains(SessionFlags::SERVER_WSCALE).then_some(server.wscale),
            ts: client.flags.contains(PeerFlags::TIMESTAMP).then_some(client.last_ts),
            sack_ok: self.flags.contains(SessionFlags::CLIENT_SACK_OK),
            pkt_ts: client.last_pkt_ts,
            answers: false,
        }
    }

    /// Queues a SYN/ACK that differs from the one in force.
    pub(crate) fn queue_syn_ack(&mut self, entry: Queued, config: &StreamConfig) -> Result<(), StreamEvent> {
        if self.queue.iter().any(|known| known.same_syn_ack(&entry)) {
            return Ok(());
        }
        if self.queued(true) >= usize::from(config.max_synack_queued) {
            return Err(StreamEvent::ThreeWaySynackFlood);
        }
        self.queue.push(entry);
        Ok(())
    }

    /// The queued SYN/ACK that the final ACK of the handshake acknowledges. The latest one wins.
    pub(crate) fn find_syn_ack(&self, segment: &Segment<'_>) -> Option<Queued> {
        let (seq, ack) = (segment.ack.minus(1), segment.seq);
        let answered = |known: &&Queued| known.answers && known.seq == seq && known.ack == ack;
        self.queue.iter().rev().find(answered).copied()
    }

    /// Queues the session's state of an earlier SYN.
    pub(crate) fn queue_syn(&mut self, config: &StreamConfig) -> Result<(), StreamEvent> {
        let entry = self.last_syn();
        if self.queue.iter().any(|known| !known.answers && known.seq == entry.seq && known.ts == entry.ts) {
            return Ok(());
        }
        if self.queued(false) >= usize::from(config.max_syn_queued) {
            return Err(StreamEvent::ThreeWaySynFlood);
        }
        self.queue.push(entry);
        Ok(())
    }

    /// The queued SYN that a SYN/ACK with this acknowledgement and echo answers. The latest one wins.
    pub(crate) fn find_syn(&self, ack: Seq, echo: Option<u32>) -> Option<Queued> {
        let answered = |known: &&Queued| {
            !known.answers && known.seq.plus(1) == ack && (echo.is_none() || known.ts == echo)
        };
        self.queue.iter().rev().find(answered).copied()
    }

    /// Puts a SYN in force.
    pub(crate) fn apply_syn(&mut self, syn: &Queued) {
        let client = self.client_mut();
        if client.isn != syn.seq {
            client.set_isn(syn.seq);
            client.next_seq = syn.seq.plus(1);
        }
        if let Some(ts) = syn.ts {
            client.last_pkt_ts = syn.pkt_ts;
            client.last_ts = ts;
            client.flags |= PeerFlags::TIMESTAMP;
        }
        self.flags.set(SessionFlags::SERVER_WSCALE, syn.wscale.is_some());
        self.flags.set(SessionFlags::CLIENT_SACK_OK, syn.sack_ok);
        let server = self.server_mut();
        server.wscale = syn.wscale.unwrap_or(0);
        server.window = u32::from(syn.window);
    }

    /// Number of queued SYN/ACKs, or SYNs.
    fn queued(&self, answers: bool) -> usize {
        self.queue.iter().filter(|known| known.answers == answers).count()
    }

    /// Drops the SYNs: one of them is answered. The true answer may still be open.
    pub(crate) fn forget_syns(&mut self) {
        self.queue.retain(|known| known.answers);
        if self.queue.is_empty() {
            self.clear_queue();
        }
    }

    /// Drops the queue: the handshake is decided.
    pub(crate) fn clear_queue(&mut self) {
        self.queue = Vec::new();
    }
}
