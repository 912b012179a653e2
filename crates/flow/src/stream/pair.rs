// SPDX-License-Identifier: Apache-2.0
//! Both directions of a flow.

use super::{MemoryBudget, Stream, StreamFlags};
use crate::tcp::session::SEQUENCE_BACK;
use crate::tcp::{
    Advice, Arrival, ExceptionTarget, Outcome, OverlapAction, Peer, Segment, Seq, StreamConfig,
    StreamContext, StreamEvent, TcpFlags, TcpSession, TcpState,
};
use bartizan_base::{Direction, PerDirection, Reason};

use super::feed::Fed;

/// The streams of a flow. Memory goes back to the budget by [`StreamPair::release`], not by dropping.
#[derive(Clone, Debug, Default)]
pub struct StreamPair {
    to_server: Stream,
    to_client: Stream,
}

impl StreamPair {
    /// The stream of a direction.
    #[must_use]
    pub fn stream(&self, direction: Direction) -> &Stream {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }

    /// The stream of a direction, to read from.
    pub fn stream_mut(&mut self, direction: Direction) -> &mut Stream {
        match direction {
            Direction::ToServer => &mut self.to_server,
            Direction::ToClient => &mut self.to_client,
        }
    }

    /// Bytes of memory that both take from the budget.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.to_server.held().saturating_add(self.to_client.held())
    }

    /// Bytes of the stream memory that no reader has consumed yet.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.to_server.waiting().saturating_add(self.to_client.waiting())
    }

    /// Whether a budget has room for the memory that both hold of another one.
    #[must_use]
    pub fn fits(&self, budget: &MemoryBudget) -> bool {
        budget.fits(usize::try_from(self.held()).unwrap_or(usize::MAX))
    }

    /// Takes the flow's memory off the budget of the worker that it leaves.
    pub fn leave(&self, budget: &mut MemoryBudget) {
        budget.discharge(usize::try_from(self.held()).unwrap_or(usize::MAX));
    }

    /// Charges the flow's memory to the budget of the worker to which it moves, whether it fits
    /// ([`StreamPair::fits`]) or not.
    pub fn join(&self, budget: &mut MemoryBudget) {
        budget.charge(usize::try_from(self.held()).unwrap_or(usize::MAX));
    }

    /// Ends the handling of a packet after the readers have run: keeps the bytes of its payload that are
    /// still needed and frees everything else. Called once per packet that was handled with this pair.
    pub fn end_packet(&mut self, direction: Direction, payload: &[u8], budget: &mut MemoryBudget) {
        self.stream_mut(direction).end_packet(payload, budget);
        self.stream_mut(direction.flip()).end_packet(&[], budget);
    }

    /// Streams for an established session whose path gets a payload function late: they begin at the
    /// position of each receiver, with the offset of its next byte. The sender may have sent data far ahead
    /// that the receiver has not read or will never read; the data at the receiver's position is inspected.
    /// Passively, where no data is withheld, the streams begin with the bytes that the session expects
    /// next.
    #[must_use]
    pub fn attached(session: &TcpSession, config: &StreamConfig) -> Self {
        let mut pair = StreamPair::default();
        for direction in Direction::BOTH {
            let stream = pair.stream_mut(direction);
            stream.configure(config);
            let peer = &session.peers[direction];
            stream.begin_at(beginning(peer, config), peer);
        }
        pair
    }

    /// Ends reassembly and returns its memory, when no reader is left. The fields for records stay.
    pub fn stop(&mut self, budget: &mut MemoryBudget) {
        self.to_server.kill(budget);
        self.to_client.kill(budget);
    }

    /// Drops the overlap of inspected bytes, when no more data will arrive. Unread bytes stay.
    pub fn drop_overlap(&mut self, budget: &mut MemoryBudget) {
        self.to_server.drop_overlap(budget);
        self.to_client.drop_overlap(budget);
    }

    /// Starts reading again after [`StreamPair::stop`], or for the first time in an established session, as
    /// in [`StreamPair::attached`]. Returns the number of bytes missed since the readers stopped (modulo 4
    /// GB).
    pub fn resume(&mut self, session: &TcpSession, config: &StreamConfig) -> PerDirection<u64> {
        let mut attached = StreamPair::attached(session, config);
        let mut missed = PerDirection::default();
        for direction in Direction::BOTH {
            let (old, new) = (self.stream(direction), attached.stream_mut(direction));
            let bytes = (new.app_progress() as u32).wrapping_sub(old.app_progress() as u32);
            let read = 0u32.wrapping_sub(bytes);
            // Bytes that were read are not read again, acknowledged or not.
            if read < SEQUENCE_BACK && old.is(StreamFlags::SEEN_DATA) {
                let peer = &session.peers[direction];
                new.begin_at(beginning(peer, config).plus(read), peer);
            } else {
                missed[direction] = u64::from(bytes);
            }
            new.keep_records(old);
        }
        *self = attached;
        missed
    }

    /// Drops the unread data of a direction whose receiver has discarded it.
    pub(crate) fn forget(&mut self, direction: Direction, budget: &mut MemoryBudget) {
        self.stream_mut(direction).release(budget);
    }

    /// Returns all memory.
    pub fn release(&mut self, budget: &mut MemoryBudget) {
        self.to_server.release(budget);
        self.to_client.release(budget);
    }

    /// Ends raw inspection of both directions, since the current packet shows that what follows is
    /// encrypted. The bytes that have arrived are still inspected: those of `direction` with this packet,
    /// others with the next packet of their side.
    pub fn raw_finish(&mut self, direction: Direction) {
        self.stream_mut(direction).raw_finish();
        let other = self.stream_mut(direction.flip());
        if other.is_raw_at_end() { other.raw_stop() } else { other.raw_finish() }
    }

    /// Whether raw inspection of both directions has ended, or ends with bytes that have arrived.
    #[must_use]
    pub fn is_raw_finished(&self) -> bool {
        Direction::BOTH.into_iter().all(|direction| self.stream(direction).is_raw_finished())
    }

    /// Swaps both directions, for a flow that is reversed after the fact.
    pub fn reverse(&mut self) {
        core::mem::swap(&mut self.to_server, &mut self.to_client);
    }

    /// Whether readers saw a stream that begins elsewhere than the session now determines.
    pub(crate) fn was_read_from_elsewhere(&self, session: &TcpSession) -> bool {
        Direction::BOTH.iter().any(|d| self.stream(*d).is_of_another_syn(&session.peers[*d]))
    }

    fn sync(&mut self, session: &TcpSession, context: &mut StreamContext<'_>) {
        for direction in Direction::BOTH {
            let chunk = context.config.reassembly.chunk_size(direction);
            let peer = &session.peers[direction];
            let one_sided = session.is_async() && context.config.compares();
            let stream = self.stream_mut(direction);
            let state = session.state_for_readers(context.config);
            stream.sync(peer, state, context.config, chunk, context.budget);
            stream.flags.set(StreamFlags::ONE_SIDED, one_sided);
        }
    }

    /// Takes an accepted segment; `direction` is that of its stream.
    pub(crate) fn feed(
        &mut self,
        session: &TcpSession,
        segment: &Segment<'_>,
        direction: Direction,
        arrival: Arrival,
        context: &mut StreamContext<'_>,
        out: &mut Outcome,
    ) {
        self.sync(session, context);
        let stream = self.stream_mut(direction);
        // Data in a RST is not part of the stream (RFC 9293 section 3.5.2). Inline it counts, since some
        // receivers may read it.
        let is_data = !segment.flags.contains(TcpFlags::RST) || context.config.inline();
        let carries = !segment.payload.is_empty() && is_data;
        if carries && !stream.is(StreamFlags::DEAD) {
            let fed = stream.feed(segment, arrival.policy, context, &mut out.events);
            apply(fed, context, out);
        }
        let own = stream.is(StreamFlags::DEPTH) && !stream.is(StreamFlags::DEAD);
        // In a one-sided session no acknowledgement will arrive to make the data readable later.
        let own = own || session.is_async();
        let update = Update::of(session.state(), segment.flags, context.config.inline(), own);
        // The acknowledged side comes first, as requests precede replies.
        for (wanted, direction) in [(update.opposing, direction.flip()), (update.own, direction)] {
            if wanted {
                self.refresh(direction, context, out);
            }
        }
        out.bypass = context.config.bypass && Direction::BOTH.iter().any(|d| self.stream(*d).depth_reached());
    }

    /// Marks a direction for its readers if they have data.
    fn refresh(&mut self, direction: Direction, context: &mut StreamContext<'_>, out: &mut Outcome) {
        let stream = self.stream_mut(direction);
        let gaps = stream.find_gaps();
        if gaps > 0 {
            out.events.push(StreamEvent::ReassemblySeqGap);
            context.counters.reassembly_gap = context.counters.reassembly_gap.wrapping_add(gaps);
        }
        out.readable[direction] |= stream.has_news();
    }

    /// Ends a direction at the end of the flow.
    pub(crate) fn end(
        &mut self,
        session: &TcpSession,
        direction: Direction,
        unacknowledged: bool,
        context: &mut StreamContext<'_>,
        out: &mut Outcome,
    ) {
        self.sync(session, context);
        let stream = self.stream_mut(direction);
        stream.flags |= StreamFlags::ENDED;
        stream.flags.set(StreamFlags::ALL_READABLE, unacknowledged);
        stream.flags.set(StreamFlags::FINAL, session.state() == TcpState::Closed);
        self.refresh(direction, context, out);
    }
}

/// The sequence number at which reading begins in a session that is under way.
fn beginning(peer: &Peer, config: &StreamConfig) -> Seq {
    let under_way = peer.next_seq.0.wrapping_sub(peer.last_ack.0);
    // In a direction that is not known yet nothing is acknowledged.
    if config.inline() && under_way < SEQUENCE_BACK { peer.last_ack } else { peer.next_seq }
}

/// The directions that a segment makes readable.
struct Update {
    own: bool,
    opposing: bool,
}

impl Update {
    fn of(state: TcpState, flags: TcpFlags, inline: bool, at_once: bool) -> Self {
        let (own, opposing) = if inline || flags.contains(TcpFlags::RST) {
            (true, false)
        } else if flags.contains(TcpFlags::FIN) && state > TcpState::TimeWait {
            (true, flags.contains(TcpFlags::ACK))
        } else if state == TcpState::Closed {
            (true, true)
        } else {
            (false, true)
        };
        // At the depth the parser learns at once that no more data will arrive.
        Update { own: own || at_once, opposing }
    }
}

/// Adds the result for a segment's data to the outcome.
fn apply(fed: Fed, context: &mut StreamContext<'_>, out: &mut Outcome) {
    match fed {
        Fed::Stored => out.stored = true,
        Fed::Nothing => {}
        Fed::Differs => {
            out.stored = true;
            out.advice = match context.config.reassembly.overlap_action {
                OverlapAction::Rewrite => {
                    context.counters.rewritten = context.counters.rewritten.wrapping_add(1);
                    Advice::Rewrite
                }
                OverlapAction::Drop => Advice::Drop(Reason::StreamOverlap),
            };
        }
        Fed::Urgent | Fed::Late => out.advice = Advice::Drop(Reason::StreamError),
        Fed::Failed => {
            let policy = context.config.reassembly.memcap_policy;
            out.exception = Some((ExceptionTarget::ReassemblyMemory, policy));
            if context.config.inline() && policy.refuses() {
                out.advice = Advice::Drop(Reason::StreamReassembly);
            }
        }
    }
}
