// SPDX-License-Identifier: Apache-2.0
//! Inspection of a flow's remaining data without a packet: once in each direction. Rules that need a header
//! do not match then, as in Suricata, where they require a real packet.

use super::Runner;
use super::effects::{Effects, Judgement};
use super::in_hand::PacketHandling;
use super::reading::info_of;
use crate::context::FrameContext;
use crate::flow_ext::FlowExt;
use crate::record::{Cause, Entry, EventContext};
use crate::settings::EngineSettings;
use crate::settled;
use crate::standing::PacketDisposition;
use bartizan_applayer::flow::AppLayer;
use bartizan_applayer::protocol::Transport as AppTransport;
use bartizan_base::{Decision, Direction, Path, PerDirection, Timestamp};
use bartizan_flow::stream::StreamPair;
use bartizan_flow::tcp::{StreamContext, TcpState};

impl Runner {
    /// Inspects the remaining data of a flow.
    pub fn finish_inspection(&mut self, cx: &mut FrameContext<'_>, entry: &mut Entry) -> Effects {
        let mut effects = Effects::NONE;
        let course = entry.ext.standing.course(entry.state());
        let settled = matches!(course, PacketDisposition::Refused(_) | PacketDisposition::Bypassed);
        if settled || entry.ext.ended || entry.ext.streams.is_none() && entry.ext.app.is_none() {
            return effects;
        }
        entry.ext.ended = true;
        let tcp = entry.key().protocol() == 6;
        let now = entry.last_seen;
        let both_seen = entry.both_seen();
        let inspect = course == PacketDisposition::Judged;
        let readers = self.chains.payload_part(entry.path);
        let FlowExt { session, streams, app, .. } = &mut entry.ext;
        let is_due = |side| is_due(session.state(), streams.as_deref(), app.as_deref(), readers, side);
        let due = PerDirection::new(is_due(Direction::ToServer), is_due(Direction::ToClient));
        let outcome = streams.as_deref_mut().map(|pair| {
            let mut context = StreamContext {
                config: &cx.settings.stream,
                counters: &mut self.stream_counters,
                budget: &mut self.budget,
            };
            session.end(pair, &mut context)
        });
        if !tcp && !self.end_datagrams(cx.settings, entry, now) {
            return effects;
        }
        let last = if due.to_client { Direction::ToClient } else { Direction::ToServer };
        let mut over = !tcp;
        // The functions of the running generation inspect the remaining data. The flow was not bypassed, so
        // it keeps its state. Its headers are not judged any more.
        let before = entry.ext.standing;
        let _ = settled::renew(entry, &self.chains);
        entry.ext.standing.keep_allowed(&before);
        // A direction without remaining data comes last: it frees transactions that the other direction still
        // has to inspect.
        let mut order = Direction::BOTH;
        if !due.to_server && due.to_client {
            order.reverse();
        }
        for direction in order {
            let mut occasion = self.without_packet(Cause::FlowEnd, now).with_direction(direction);
            // The remaining data of each direction is parsed and inspected by itself; the last direction
            // includes everything else.
            let all = direction == last;
            let mut outcome = outcome;
            if let Some(outcome) = &mut outcome {
                outcome.readable[direction.flip()] &= all;
            }
            if !over {
                over = all;
                if let Some(outcome) = &outcome {
                    let reading = self.read_stream(cx, entry, &mut occasion, outcome.readable);
                    // Nothing can be refused any more.
                    effects |= reading.before_switch.effects;
                }
                let info = info_of(cx.settings, entry, now, AppTransport::Tcp);
                if let Some(app) = entry.ext.app.as_deref_mut() {
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
            let established = outcome.is_some_and(|o| o.established) || !tcp && both_seen;
            let inspect = inspect && tcp && due[direction];
            let handling = PacketHandling { inspect, ..PacketHandling::of_what_is_left(established) };
            effects |= self.functions(cx, entry, &occasion, outcome.as_ref(), &[], handling).effects;
        }
        effects
    }

    /// Drops the stream data kept for rules that look back, if both sides of the connection have acknowledged
    /// each other's end and no data is left to inspect. (Not after a reset, which its receiver may not have
    /// accepted: the connection may continue.)
    pub fn drop_overlap_if_over(&mut self, entry: &mut Entry) -> Effects {
        let readers = self.chains.payload_part(entry.path);
        let FlowExt { session, streams, app, .. } = &mut entry.ext;
        let left =
            |direction| is_due(session.state(), streams.as_deref(), app.as_deref(), readers, direction);
        if !session.ends_are_acknowledged() || Direction::BOTH.into_iter().any(left) {
            return Effects::NONE;
        }
        let Some(pair) = streams.as_deref_mut() else { return Effects::NONE };
        pair.drop_overlap(&mut self.budget);
        Effects::TOUCHED
    }

    /// Completes the open part of a datagram flow's application layer at the end of the flow. Returns whether
    /// there is something to record.
    fn end_datagrams(&self, settings: &EngineSettings, entry: &mut Entry, now: Timestamp) -> bool {
        let info = info_of(settings, entry, now, AppTransport::Udp);
        let Some(app) = entry.ext.app.as_deref_mut() else { return false };
        app.end(&self.engine, &info);
        app.has_unrecorded()
    }

    /// Runs the functions on the open data of a flow, without a packet.
    pub fn inspect_what_is_there(&mut self, cx: &mut FrameContext<'_>, entry: &mut Entry) -> Judgement {
        let mut judgement = Judgement::of(Decision::CONTINUE);
        for direction in Direction::BOTH {
            let inspect = !entry.ext.standing.is_passed();
            let handling = PacketHandling { inspect, ..PacketHandling::of_what_is_left(true) };
            let occasion = self.without_packet(Cause::Flush, cx.position.clock).with_direction(direction);
            judgement.join(self.functions(cx, entry, &occasion, None, &[], handling));
        }
        judgement
    }

    /// Runs the payload functions on the bytes of queued segments, without a packet, if the segment that was
    /// to end the train is not inspected with it.
    pub fn show_waiting(
        &mut self,
        cx: &mut FrameContext<'_>,
        entry: &mut Entry,
        direction: Direction,
    ) -> Judgement {
        let inspect = match entry.ext.standing.course(entry.state()) {
            PacketDisposition::Refused(refused) => return Judgement::of(refused),
            PacketDisposition::Bypassed => return Judgement::of(Decision::CONTINUE),
            PacketDisposition::Uninspected => false,
            PacketDisposition::Judged => true,
        };
        let now = entry.last_seen;
        let mut occasion = self.without_packet(Cause::Flush, now).with_direction(direction);
        let all = PerDirection::new(true, true);
        let reading = self.read_stream(cx, entry, &mut occasion, all);
        let handling = PacketHandling { inspect, ..PacketHandling::of_what_is_left(true) };
        let fid = cx.account.fid;
        let mut judgement = self.functions(cx, entry, &occasion, None, &[], handling);
        judgement.join(reading.before_switch);
        cx.account.fid = fid;
        judgement
    }

    fn without_packet(&self, cause: Cause<'static>, now: Timestamp) -> EventContext<'static> {
        EventContext::by_itself(cause, now, self.chains.generation)
    }
}

/// Whether data of a direction is left for the payload functions of the path when the flow ends.
fn is_due(
    state: TcpState,
    streams: Option<&StreamPair>,
    app: Option<&AppLayer>,
    readers: Path,
    direction: Direction,
) -> bool {
    if app.is_some_and(|app| app.unseen()[direction]) {
        return false;
    }
    let open = state >= TcpState::Established && state != TcpState::Closed;
    let unread = streams.is_some_and(|pair| pair.stream(direction).unread());
    let transactions = app.and_then(AppLayer::parser).is_some_and(|parser| {
        let open = |done: Path| done.is_empty() || !readers.and_not(done).is_empty();
        parser.tx_range().any(|id| parser.tx(id).is_some_and(|tx| open(tx.common().done[direction])))
    });
    open || unread || transactions
}
