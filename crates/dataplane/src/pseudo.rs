// SPDX-License-Identifier: Apache-2.0
//! The end of a flow: what is held is inspected and recorded, then the flow's own record is written.
//!
//! As in Suricata, the rest of a TCP stream is inspected by packets that the engine makes: a header of the flow's
//! tuple without payload, in each direction.

use crate::functions::Looks;
use crate::parts::FlowParts;
use crate::record::{Entry, Occasion, Recorder};
use crate::standing::Course;
use crate::streams;
use crate::worker::Worker;
use bartizan_applayer::flow::AppLayer;
use bartizan_applayer::protocol::Transport as AppTransport;
use bartizan_base::{Decision, Direction, FlowId, Path, PerDirection, Timestamp};
use bartizan_flow::EndReason;
use bartizan_flow::tcp::{StreamContext, TcpState};
use bartizan_packet::{Decoder, MadePacket, PacketSource};

impl Worker {
    /// Ends a flow.
    pub(crate) fn end_flow(&mut self, id: FlowId, reason: EndReason, recorder: &mut dyn Recorder) {
        self.finish_inspection(id, recorder);
        self.discharge(id);
        self.count_end(id);
        if let Some(entry) = self.flows.get_mut(id) {
            // The record shows what the streams know of gaps, regions and urgent bytes.
            recorder.flow(entry, reason, self.clock);
            if let Some(pair) = entry.ext.streams.as_deref_mut() {
                pair.release(&mut self.budget);
            }
        }
        self.note_end(id);
        if let Some(mut ext) = self.flows.remove(id, reason) {
            ext.session.release(&mut self.stream_counters);
        }
    }

    /// Ends a flow that a packet found when its time was over.
    pub(crate) fn end_stale(&mut self, id: FlowId, recorder: &mut dyn Recorder) {
        self.flows.counters_mut().wrk_evicted += 1;
        self.end_flow(id, EndReason::Timeout, recorder);
    }

    /// Counts a flow that ends by what only its extension knows.
    fn count_end(&mut self, id: FlowId) {
        let Some(entry) = self.flows.get_mut(id) else { return };
        let protocol = entry.key().protocol();
        self.app_stats.note(protocol, &mut entry.ext);
        let [sources, destinations] = Direction::BOTH.map(|side| entry.ext.macs[side].len() as u64);
        let session = &entry.ext.session;
        if let Some(state) = session.exists().then(|| session.state()) {
            self.flows.counters_mut().ended_tcp(state);
        }
        let decoder = self.decoder.counters_mut();
        decoder.max_mac_addrs_src = decoder.max_mac_addrs_src.max(sources);
        decoder.max_mac_addrs_dst = decoder.max_mac_addrs_dst.max(destinations);
    }

    /// Inspects what is left of a flow.
    fn finish_inspection(&mut self, id: FlowId, recorder: &mut dyn Recorder) {
        let Some(entry) = self.flows.get_mut(id) else { return };
        let course = entry.ext.standing.course(entry.state());
        let settled = matches!(course, Course::Refused(_) | Course::Bypassed);
        if settled || entry.ext.ended || entry.ext.streams.is_none() && entry.ext.app.is_none() {
            return;
        }
        entry.ext.ended = true;
        let tcp = entry.key().protocol() == 6;
        let now = entry.last_seen;
        let both_seen = entry.both_seen();
        let inspect = course == Course::Judged;
        let mut parts = FlowParts::take(&mut entry.ext);
        let state = entry.ext.session.state();
        let readers = self.chains.payload_part(entry.path);
        let due = PerDirection::new(
            is_due(state, &parts, readers, Direction::ToServer),
            is_due(state, &parts, readers, Direction::ToClient),
        );
        let outcome = parts.streams.as_deref_mut().map(|pair| {
            let mut context = StreamContext {
                config: &self.settings.stream,
                counters: &mut self.stream_counters,
                budget: &mut self.budget,
            };
            entry.ext.session.end(pair, &mut context)
        });
        if !tcp && !self.end_datagrams(id, now, &mut parts) {
            if let Some(entry) = self.flows.get_mut(id) {
                parts.put_back(&mut entry.ext);
            }
            return;
        }
        let last = if due.to_client { Direction::ToClient } else { Direction::ToServer };
        let mut over = !tcp;
        // What is left is looked at by the functions of now.
        self.renew_class(id);
        // A direction of which nothing is left comes last: with its packet transactions are freed that the other one has yet to look at.
        let mut order = Direction::BOTH;
        if !due.to_server && due.to_client {
            order.reverse();
        }
        for direction in order {
            let Some(entry) = self.flows.get(id) else { return };
            let made = made_of(entry, direction, PacketSource::FlowTimeout);
            let view = made.view();
            let generation = self.chains.generation;
            let mut occasion = Occasion {
                packet: &view,
                number: None,
                now,
                generation,
                direction,
                around: None,
                variables: &[],
            };
            // What is left of a direction is read and inspected with its own packet, the last one that looks sees the rest.
            let all = direction == last;
            let mut outcome = outcome;
            if let Some(outcome) = &mut outcome {
                outcome.readable[direction.flip()] &= all;
            }
            if !over {
                over = all;
                if let Some(outcome) = &outcome {
                    streams::stream(self, &mut occasion, id, &mut parts, outcome.readable, recorder);
                }
                if let Some(app) = parts.app.as_deref_mut()
                    && let Some(info) = streams::info_of(self, id, now, AppTransport::Tcp)
                {
                    if all && order.first() == Some(&direction) {
                        app.end(&self.engine, &info);
                    } else {
                        app.end_direction(&self.engine, direction, &info);
                    }
                    if all {
                        app.end_detection();
                        app.end_transactions();
                    }
                }
            }
            let Some(entry) = self.flows.get_mut(id) else { return };
            let established = outcome.is_some_and(|o| o.established) || !tcp && both_seen;
            parts.put_back(&mut entry.ext);
            let inspect = inspect && tcp && due[direction];
            let looks = Looks { inspect, spared: true, established, related: None, restored: false };
            self.functions(&occasion, id, outcome.as_ref(), &[], looks, recorder);
            let Some(entry) = self.flows.get_mut(id) else { return };
            parts = FlowParts::take(&mut entry.ext);
        }
        if let Some(entry) = self.flows.get_mut(id) {
            parts.put_back(&mut entry.ext);
        }
    }

    /// A flow of datagrams ends: what is open of its application layer becomes complete. Whether there is something to be recorded.
    fn end_datagrams(&self, id: FlowId, now: Timestamp, parts: &mut FlowParts) -> bool {
        let Some(app) = parts.app.as_deref_mut() else { return false };
        if let Some(info) = streams::info_of(self, id, now, AppTransport::Udp) {
            app.end(&self.engine, &info);
        }
        app.has_unrecorded()
    }

    /// Shows the functions what is open of a flow, with packets that the engine makes. What they decide of it.
    pub(crate) fn inspect_what_is_there(&mut self, id: FlowId, recorder: &mut dyn Recorder) -> Decision {
        let mut decision = Decision::CONTINUE;
        for direction in Direction::BOTH {
            let Some(entry) = self.flows.get(id) else { break };
            let inspect = !entry.ext.standing.is_passed();
            let looks = Looks { inspect, spared: true, established: true, related: None, restored: false };
            let made = made_of(entry, direction, PacketSource::StreamFlush);
            let view = made.view();
            let (now, generation) = (self.clock, self.chains.generation);
            let occasion = Occasion {
                packet: &view,
                number: None,
                now,
                generation,
                direction,
                around: None,
                variables: &[],
            };
            decision = decision.strictest(self.functions(&occasion, id, None, &[], looks, recorder));
        }
        decision
    }
}

/// Whether something of a direction is left to be inspected by the payload functions of the path when the flow ends.
fn is_due(state: TcpState, parts: &FlowParts, readers: Path, direction: Direction) -> bool {
    if parts.app.as_deref().is_some_and(|app| app.unseen()[direction]) {
        return false;
    }
    let open = state >= TcpState::Established && state != TcpState::Closed;
    let unread = parts.streams.as_deref().is_some_and(|pair| pair.stream(direction).unread());
    let transactions = parts.app.as_deref().and_then(AppLayer::parser).is_some_and(|parser| {
        let open = |done: Path| done.is_empty() || !readers.and_not(done).is_empty();
        parser.tx_range().any(|id| parser.tx(id).is_some_and(|tx| open(tx.common().done[direction])))
    });
    open || unread || transactions
}

/// A packet of a flow that the engine makes, without payload.
pub(crate) fn made_of(entry: &Entry, direction: Direction, source: PacketSource) -> MadePacket {
    let key = entry.key();
    let client = (key.source(), key.source_port());
    let server = (key.destination(), key.destination_port());
    let (from, to) = match direction {
        Direction::ToServer => (client, server),
        Direction::ToClient => (server, client),
    };
    MadePacket::new(from, to, key.protocol(), source).inside(entry.ext.vlan, key.scope().level)
}

/// Decodes without counting.
pub(crate) fn uncounted(decoder: &mut Decoder, decode: impl FnOnce(&mut Decoder)) {
    let counters = decoder.counters().clone();
    decode(decoder);
    *decoder.counters_mut() = counters;
}
