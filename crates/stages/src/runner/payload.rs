// SPDX-License-Identifier: Apache-2.0
//! Runs the payload halves of a path's functions: once for each new piece of the stream, and at least once
//! for a packet.

use super::Runner;
use super::columns::{FlowColumns, JudgedFlow, slot_of};
use super::facts::facts_of;
use super::in_hand::{Detection, PacketInspection, PayloadScope, is_shown_early};
use super::lifecycle::{Checkpoint, FailedFunction, clear, decision_without, would_be_of};
use crate::context::FrameContext;
use crate::record::{Entry, EventContext};
use crate::standing::ChainCompletion;
use bartizan_applayer::flow::AppLayer;
use bartizan_base::Path;
use bartizan_flow::stream::{RawChunk, StreamPair};
use bartizan_flow::tcp::{PacketKind, Seq, TcpState};
use bartizan_function::contain::contained;
use bartizan_function::{ChainResults, PacketContext, PacketFacts, StreamNews, TransactionRound};
use bartizan_packet::{Tcp, TcpFlags};

/// The relation of a packet to its stream.
#[derive(Clone, Copy)]
struct Reading {
    /// Functions inspect the stream.
    streams: bool,
    /// The packet's payload is part of the stream.
    stored: bool,
    /// The packet itself has not been inspected yet.
    first: bool,
}

/// Input of a path's functions in one round.
struct InspectionRound<'r> {
    app: Option<&'r AppLayer>,
    transactions: &'r TransactionRound,
    /// The transactions were inspected before, and accompany another piece.
    again: bool,
    /// The piece of the stream.
    news: Option<StreamNews<'r>>,
}

/// A piece of the stream, and its end if inspecting the piece advances the reader.
type StreamPiece<'a> = (StreamNews<'a>, Option<u64>);

impl Runner {
    /// Runs the payload halves, in the order of the path.
    pub(super) fn run_payload(
        &mut self,
        cx: &mut FrameContext<'_>,
        entry: &mut Entry,
        hand: &mut PacketInspection<'_, '_>,
        detection: &Detection,
    ) {
        let FlowColumns { streams: mut pair, mut app, mut judged } = FlowColumns::of(entry);
        let mut reading = self.reading(cx, hand);
        let mut joined = core::mem::take(&mut self.joined);
        // Transactions are inspected with the first piece and accompany the others. Includes the functions
        // that saw them.
        let mut shown: Option<(TransactionRound, Path)> = None;
        loop {
            let mut piece: Option<StreamPiece<'_>> = pair
                .as_deref_mut()
                .filter(|_| reading.streams)
                .and_then(|pair| pair.stream_mut(hand.occasion.direction).raw(hand.occasion.payload()))
                .map(|chunk| (stream_news(&chunk, false), Some(chunk.end())));
            if piece.is_none() && reading.first && reading.streams && reading.stored {
                piece = about(pair.as_deref(), hand.occasion, &mut joined);
            }
            if !reading.first && piece.is_none() {
                break;
            }
            let news = piece.map(|piece| piece.0);
            let direction = hand.occasion.direction;
            let (showing, looked) = match shown.take() {
                Some((showing, looked)) => (showing, Some(looked)),
                None => match app.as_deref_mut().filter(|_| hand.scope.shows_stream()) {
                    Some(app) => (TransactionRound::begin(app, direction), None),
                    None => (TransactionRound::empty(direction), None),
                },
            };
            let again = looked.is_some();
            let round = InspectionRound { app: app.as_deref(), transactions: &showing, again, news };
            let functions = self.show(cx, &mut judged, hand, &round, reading, detection);
            shown = Some((showing, looked.unwrap_or(functions)));
            reading.first = false;
            let Some(end) = piece.and_then(|piece| piece.1) else { break };
            let Some(pair) = pair.as_deref_mut() else { break };
            let stream = pair.stream_mut(hand.occasion.direction);
            let before = stream.raw_progress();
            stream.raw_consume(end);
            // Each round advances or is the last; a round that reaches the end of the data is the last, too.
            if stream.raw_progress() == before || stream.raw_progress() == stream.right_edge() {
                break;
            }
        }
        if let Some(((showing, looked), app)) = shown.zip(app) {
            cx.account.memory.counters.holds_refused += showing.end(app, looked, &mut self.marks);
        }
        self.joined = joined;
        hand.effects.bypassed |= *judged.path == Path::EMPTY && hand.notes.decision.verdict.forwards();
    }

    /// The relation of a packet to its stream.
    fn reading(&self, cx: &FrameContext<'_>, hand: &PacketInspection<'_, '_>) -> Reading {
        let PacketInspection { occasion, tcp, scope, .. } = hand;
        // Before the handshake is complete, rules look at packets, not at the stream. Data with a SYN that
        // leaves may be read at once by its server: no later packet could be refused.
        let shown = tcp.is_some_and(|o| is_shown_early(cx.settings, occasion, o));
        // The session ignores a packet that its receiver discards: the stream waits for the next one.
        let counts = tcp.is_none_or(|o| !o.checksum_invalid);
        let streams =
            scope.shows_stream() && counts && (shown || tcp.is_none_or(|o| o.state >= TcpState::Established));
        let early = segment_of(occasion).is_some_and(|tcp| tcp.options.fast_open.is_some());
        // The byte of a keep-alive was read before: rules see the packet as one that is no part of the
        // stream.
        let keep_alive = tcp.is_some_and(|o| o.kind.contains(PacketKind::KEEP_ALIVE));
        let stored = (streams || early || *scope == PayloadScope::Packet)
            && *scope != PayloadScope::Headers
            && !keep_alive
            && tcp.is_some_and(|o| o.stored);
        Reading { streams, stored, first: *scope != PayloadScope::Stream }
    }

    /// The payload functions of a path for a round, and those among them that look at it. One that is away
    /// refuses the packet, or counts as done with the data.
    fn inspecting_functions(
        &mut self,
        cx: &FrameContext<'_>,
        judged: &JudgedFlow<'_>,
        hand: &mut PacketInspection<'_, '_>,
        round: &InspectionRound<'_>,
    ) -> (Path, Path) {
        let chains = &self.chains;
        let all = chains.payload_part(*judged.path);
        let functions = if hand.scope == PayloadScope::Packet { chains.each_part(all) } else { all };
        let away = functions.and(self.lifecycle.away());
        if !away.is_empty() {
            let mut refusing = away.and(self.refusing_now(cx, hand, judged.fid)).functions();
            if let Some(first) = refusing.next() {
                hand.notes.decision = hand.notes.decision.strictest(self.for_want_of(first));
            }
        }
        let idle = chains.idle_part(functions).or(away);
        // Transactions are not done with a packet whose checksum is wrong.
        let shown = round.app.filter(|_| hand.scope.shows_stream());
        if let Some(layer) = shown.filter(|_| hand.tcp.is_some_and(|tcp| tcp.checksum_invalid)) {
            idle.functions().for_each(|bit| round.transactions.view(layer, bit, &mut self.marks).later());
        }
        (functions, functions.and_not(idle))
    }

    /// Runs the functions of the path on one piece, with the transactions or, if these were inspected before,
    /// beside them. Returns the functions that ran.
    fn show(
        &mut self,
        cx: &FrameContext<'_>,
        judged: &mut JudgedFlow<'_>,
        hand: &mut PacketInspection<'_, '_>,
        round: &InspectionRound<'_>,
        reading: Reading,
        detection: &Detection,
    ) -> Path {
        let (functions, looking) = self.inspecting_functions(cx, judged, hand, round);
        if looking.is_empty() {
            return functions;
        }
        let InspectionRound { app, transactions: showing, again, news } = *round;
        let PacketInspection { occasion, events, handling, notes, reject, scope, payload_hidden, .. } = hand;
        let shown = app.filter(|_| scope.shows_stream());
        let (chains, mut path) = (&self.chains, *judged.path);
        let view = judged.view(app, handling.established);
        let facts = PacketFacts {
            flow: Some(&view),
            stream: news,
            payload_in_stream: reading.stored,
            headers_only: *scope == PayloadScope::Headers,
            payload_hidden: *payload_hidden,
            stream_events: if reading.first { events } else { &[] },
            app_events: if reading.first { detection.events.as_slice() } else { &[] },
            again: !reading.first,
            detection_done: reading.first && detection.done,
            ..facts_of(occasion, occasion.packet(), cx.settings.prevention)
        };
        let (mut done, mut would_be) = (ChainCompletion::default(), None);
        let mut noted = ChainResults { matches: judged.matches, ..*notes };
        for bit in looking.functions() {
            let Some(function) = chains.function(bit) else { continue };
            let Some(worker) = self.states.get_mut(usize::from(bit.0)) else { continue };
            let Some(slot) = slot_of(judged.slots, bit) else { continue };
            let said = Checkpoint::before(&self.findings, &self.edits, *reject);
            let mut context = PacketContext {
                facts: &facts,
                app: shown.map(|layer| match again {
                    true => showing.view_again(layer, bit, &mut self.marks),
                    false => showing.view(layer, bit, &mut self.marks),
                }),
                notes: &noted,
                worker,
                slot: &mut slot.own,
                staged: &mut slot.staged,
                reject,
                findings: &mut self.findings,
                edits: &mut self.edits,
            };
            let called = contained(|| function.payload(&mut context));
            let fell = called.is_err();
            let decision = called.unwrap_or_else(|panicked| {
                said.restore(&mut self.findings, &mut self.edits, reject);
                clear(slot);
                self.marks.forget(bit);
                self.lifecycle.leave(bit);
                // At the end of a flow nothing can be refused any more.
                let refuses = facts.prevention && !facts.flow_ends;
                let fate = decision_without(chains, bit, refuses, judged.fid);
                self.fallen.push(FailedFunction::new(bit, panicked, &noted.decision, &fate));
                fate
            });
            if decision.done && decision.verdict.forwards() {
                path = path.without(bit);
                if !fell {
                    done.note(bit, decision);
                }
            }
            if !facts.flow_ends {
                would_be = would_be_of(&noted.decision, decision, *reject).or(would_be);
            }
            noted.decision = noted.decision.strictest(decision);
        }
        notes.decision = noted.decision;
        *judged.path = path;
        judged.standing.note_round(&done, would_be);
        functions
    }
}

/// The TCP header of the current packet.
fn segment_of<'a>(occasion: &EventContext<'a>) -> Option<&'a Tcp> {
    occasion.decoded()?.transport.tcp()
}

/// The stream around a packet that brought nothing new for rules.
fn about<'a>(
    pair: Option<&'a StreamPair>,
    occasion: &EventContext<'a>,
    joined: &'a mut Vec<u8>,
) -> Option<StreamPiece<'a>> {
    let tcp = segment_of(occasion)?;
    // Data of a SYN begins one number after it.
    let seq = Seq(tcp.seq).plus(u32::from(tcp.flags.contains(TcpFlags::SYN)));
    let chunk = pair?.stream(occasion.direction).raw_about(seq, occasion.payload(), joined)?;
    Some((stream_news(&chunk, true), None))
}

/// A piece of the stream as payload functions see it.
fn stream_news<'a>(chunk: &RawChunk<'a>, about_packet: bool) -> StreamNews<'a> {
    StreamNews { bytes: chunk.bytes, offset: chunk.offset, seen: chunk.seen, about_packet }
}
