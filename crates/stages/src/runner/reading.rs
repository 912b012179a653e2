// SPDX-License-Identifier: Apache-2.0
//! Advances the application layer by the bytes that a packet made readable.

use super::Runner;
use super::effects::Judgement;
use super::reader::read;
use super::transactions::log;
use crate::class;
use crate::context::FrameContext;
use crate::expectations;
use crate::flow_ext::FlowExt;
use crate::record::{Entry, EventContext};
use crate::settings::EngineSettings;
use bartizan_applayer::flow::FlowInfo;
use bartizan_applayer::protocol::Transport as AppTransport;
use bartizan_base::{Path, PerDirection, Timestamp};
use bartizan_packet::{PacketFlags, PacketView, TransportLayer};

/// Most reads of a flow's directions for one packet: enough for a protocol that switches twice and for a flow
/// whose sides are swapped.
const ROUNDS_MAX: u32 = 12;

/// The outcome of reading a flow's streams.
#[derive(Default)]
pub(super) struct StreamReading {
    /// A parser allows to bypass the rest of the flow.
    pub bypass: bool,
    /// The judgement of the transactions before switches of protocols that the bytes caused.
    pub before_switch: Judgement,
}

impl Runner {
    /// Runs the parsers on new data; `readable`: the directions of a TCP session with new data. If detection
    /// finds that client and server are swapped, the flow and the direction of the occasion are reversed.
    pub(super) fn advance(
        &mut self,
        cx: &mut FrameContext<'_>,
        entry: &mut Entry,
        occasion: &mut EventContext<'_>,
        readable: Option<PerDirection<bool>>,
    ) -> StreamReading {
        let Some(packet) = occasion.arrived() else { return StreamReading::default() };
        match (&packet.decoded().transport, readable) {
            (TransportLayer::Tcp(_), Some(readable)) if readable.to_server || readable.to_client => {
                self.read_stream(cx, entry, occasion, readable)
            }
            (TransportLayer::Udp(_), _) => {
                let carries_packet = packet.decoded().flags.contains(PacketFlags::HAS_INNER);
                if packet.is_payload_cut() && !carries_packet {
                    // Parsers would call a message without its end malformed.
                    cx.account.counters.cut_unparsed += 1;
                } else if !cx.checksums.is_thrown_away(cx.settings, packet) {
                    self.read_datagram(cx.settings, entry, packet, occasion);
                }
                StreamReading::default()
            }
            _ => StreamReading::default(),
        }
    }

    fn read_datagram(
        &self,
        settings: &EngineSettings,
        entry: &mut Entry,
        packet: &PacketView<'_>,
        occasion: &mut EventContext<'_>,
    ) {
        let payload = packet.payload();
        let carries_packet = packet.decoded().flags.contains(PacketFlags::HAS_INNER);
        let info = info_of(settings, entry, occasion.now, AppTransport::Udp);
        let app = entry.ext.app.get_or_insert_default();
        if payload.is_empty() || carries_packet {
            app.pass_datagram();
            return;
        }
        let turns = app.datagram(&self.engine, occasion.direction, payload, &info).reverse;
        // With real receivers the content of a datagram does not make its sender the server: rules on the
        // other side of the flow would not apply to its next datagrams. A flow whose first datagram was not
        // seen keeps its direction.
        if turns && !settings.has_real_receivers() {
            class::turn(&self.chains, entry);
            occasion.direction = occasion.direction.flip();
            let info = info_of(settings, entry, occasion.now, AppTransport::Udp);
            let app = entry.ext.app.get_or_insert_default();
            app.datagram(&self.engine, occasion.direction, payload, &info);
        }
    }

    /// Reads both directions as far as possible.
    pub(super) fn read_stream(
        &mut self,
        cx: &mut FrameContext<'_>,
        entry: &mut Entry,
        occasion: &mut EventContext<'_>,
        mut readable: PerDirection<bool>,
    ) -> StreamReading {
        let mut reading = StreamReading::default();
        if entry.ext.streams.is_none() {
            return reading;
        }
        let unseen = entry.ext.session.unseen();
        if unseen.is_none()
            && let Some(app) = entry.ext.app.as_deref_mut()
        {
            app.rejoin();
        }
        // The other direction comes first: passively, a packet acknowledges data that its receiver has sent
        // before.
        let mut direction = occasion.direction.flip();
        let mut turned = false;
        for _ in 0..ROUNDS_MAX {
            if !readable.to_server && !readable.to_client {
                break;
            }
            if !core::mem::take(&mut readable[direction]) {
                direction = direction.flip();
                continue;
            }
            let info = info_of(cx.settings, entry, occasion.now, AppTransport::Tcp);
            let own = if direction == occasion.direction { occasion.payload() } else { &[] };
            expectations::begin(&self.engine, entry, occasion.now);
            let FlowExt { streams: Some(pair), app: Some(app), .. } = &mut entry.ext else { break };
            let did = read(&self.engine, app, &mut **pair, direction, own, &info);
            expectations::pass_on(&self.engine, entry, &info);
            readable[direction.flip()] |= did.other_side_ready;
            // The earlier data of the other side comes first, then this direction once more.
            readable[direction] |= did.again;
            reading.bypass |= did.bypass;
            if did.reverse && !turned {
                // All state by direction is swapped; then the same data is read again.
                turned = true;
                class::turn(&self.chains, entry);
                occasion.direction = occasion.direction.flip();
                readable.swap();
                direction = direction.flip();
                readable[direction] = true;
                continue;
            }
            if did.switched {
                let judged = self.finish_protocol(cx, entry, occasion);
                reading.before_switch.join(judged);
                readable[direction] = true;
            }
            direction = direction.flip();
        }
        // Computed again, since the flow may have been reversed.
        let unseen = unseen.and(entry.ext.session.unseen());
        if let (Some(direction), Some(app)) = (unseen, entry.ext.app.as_deref_mut()) {
            app.leave_out(direction);
        }
        reading
    }

    /// Finishes a protocol that another one replaces: its transactions are inspected and recorded before the
    /// new parser starts. The current packet caused the switch, so the decision on these transactions applies
    /// to the packet too.
    fn finish_protocol(
        &mut self,
        cx: &mut FrameContext<'_>,
        entry: &mut Entry,
        occasion: &EventContext<'_>,
    ) -> Judgement {
        if let Some(app) = entry.ext.app.as_deref_mut() {
            app.end_transactions();
            let original = app.original();
            // Findings belong to the old protocol, and the flow has no new one yet.
            app.turn_switch();
            entry.ext.rare_mut().switched_from = original;
        }
        // The findings of the current packet are kept apart.
        let found = (core::mem::take(&mut self.findings), core::mem::take(&mut self.edits));
        let judged = self.inspect_what_is_there(cx, entry);
        (self.findings, self.edits) = found;
        log(entry, occasion, Path::EMPTY, cx.recorder);
        if let Some(app) = entry.ext.app.as_deref_mut() {
            app.turn_switch();
        }
        judged
    }
}

/// The properties of a flow that the application layer needs.
pub fn info_of(
    settings: &EngineSettings,
    entry: &Entry,
    now: Timestamp,
    transport: AppTransport,
) -> FlowInfo {
    let ports = PerDirection::new(entry.key().destination_port(), entry.key().source_port());
    // With real receivers the content of a stream does not make its sender the server, as with datagrams.
    let may_turn = entry.ext.session.began_with_data() && !settings.has_real_receivers();
    FlowInfo { now, ports, transport, prevents: settings.prevention, may_turn }
}
