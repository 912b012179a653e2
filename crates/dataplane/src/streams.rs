// SPDX-License-Identifier: Apache-2.0
//! Advancing the application layer with what a packet made readable.

use crate::parts::FlowParts;
use crate::record::{Occasion, Recorder};
use crate::worker::Worker;
use bartizan_applayer::flow::{Advance, AppLayer, Disruption, FlowInfo};
use bartizan_applayer::protocol::{Input, Transport as AppTransport};
use bartizan_base::{Direction, FlowId, PerDirection, Timestamp};
use bartizan_flow::stream::{AppChunk, StreamPair};
use bartizan_packet::Transport;

/// A flow's directions are read at most so often for one packet: enough for a protocol that switches twice and for a
/// flow that is turned round.
const ROUNDS_MAX: u32 = 12;

/// Runs the parsers on new data; `readable`: the directions of a TCP session that have some. When detection finds that the flow is the wrong way round it is turned, and the
/// occasion's direction with it. `true`: a parser says that the rest of the flow may be bypassed.
pub(crate) fn advance(
    worker: &mut Worker,
    occasion: &mut Occasion<'_>,
    id: FlowId,
    parts: &mut FlowParts,
    readable: Option<PerDirection<bool>>,
    recorder: &mut dyn Recorder,
) -> bool {
    match (&occasion.packet.decoded().transport, readable) {
        (Transport::Tcp(_), Some(readable)) => {
            (readable.to_server || readable.to_client)
                && stream(worker, occasion, id, parts, readable, recorder)
        }
        (Transport::Udp(_), _) => {
            if !worker.is_thrown_away(occasion.packet) {
                datagram(worker, occasion, id, parts);
            }
            false
        }
        _ => false,
    }
}

/// What the application layer is told about a flow.
pub(crate) fn info_of(
    worker: &Worker,
    id: FlowId,
    now: Timestamp,
    transport: AppTransport,
) -> Option<FlowInfo> {
    let entry = worker.flows.get(id)?;
    let ports = PerDirection::new(entry.key().destination_port(), entry.key().source_port());
    // Before real receivers what a sender writes does not make it the server, as with datagrams.
    let may_turn = entry.ext.session.began_with_data() && !worker.settings.has_real_receivers();
    Some(FlowInfo { now, ports, transport, prevents: worker.settings.prevention, may_turn })
}

fn datagram(worker: &mut Worker, occasion: &mut Occasion<'_>, id: FlowId, parts: &mut FlowParts) {
    let payload = occasion.packet.payload();
    let carries_packet = occasion.packet.decoded().flags.contains(bartizan_packet::PacketFlags::HAS_INNER);
    if payload.is_empty() || carries_packet {
        return;
    }
    let Some(info) = info_of(worker, id, occasion.now, AppTransport::Udp) else { return };
    let app = parts.app.get_or_insert_default();
    let turns = app.datagram(&worker.engine, occasion.direction, payload, &info).reverse;
    // Before real receivers what a sender writes into a datagram does not make it the server: rules on the other side of the flow would
    // not look at what it sends next. A flow whose first datagram was not seen stays as it was found.
    if turns && !worker.settings.has_real_receivers() {
        app.turn();
        worker.reverse(id);
        occasion.direction = occasion.direction.flip();
        let Some(info) = info_of(worker, id, occasion.now, AppTransport::Udp) else { return };
        app.datagram(&worker.engine, occasion.direction, payload, &info);
    }
}

/// Reads both directions as far as they go. `true`: the rest of the flow may be bypassed.
pub(crate) fn stream(
    worker: &mut Worker,
    occasion: &mut Occasion<'_>,
    id: FlowId,
    parts: &mut FlowParts,
    mut readable: PerDirection<bool>,
    recorder: &mut dyn Recorder,
) -> bool {
    let Some(mut pair) = parts.streams.take() else { return false };
    let unseen = worker.flows.get(id).and_then(|entry| entry.ext.session.unseen());
    if unseen.is_none()
        && let Some(app) = parts.app.as_deref_mut()
    {
        app.rejoin();
    }
    let mut bypass = false;
    // The other direction first: passively, a packet acknowledges what its receiver sent before.
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
        let Some(info) = info_of(worker, id, occasion.now, AppTransport::Tcp) else { break };
        let own = if direction == occasion.direction { occasion.packet.payload() } else { &[] };
        let app = parts.app.get_or_insert_default();
        let did = read(worker, app, &mut pair, direction, own, &info);
        readable[direction.flip()] |= did.other_side_ready;
        // What the other side sent before goes first, then this once more.
        readable[direction] |= did.again;
        bypass |= did.bypass;
        if did.reverse && !turned {
            // Everything that is kept by direction changes sides; then the same data is read again.
            turned = true;
            app.turn();
            pair.reverse();
            if let Some(entry) = worker.flows.get_mut(id) {
                entry.ext.session.reverse();
            }
            worker.reverse(id);
            occasion.direction = occasion.direction.flip();
            readable.swap();
            direction = direction.flip();
            readable[direction] = true;
            continue;
        }
        if did.switched {
            crate::transactions::before_switch(worker, occasion, id, parts, recorder);
            readable[direction] = true;
        }
        direction = direction.flip();
    }
    // Asked again: the flow may have been turned.
    let unseen = unseen.and(worker.flows.get(id)).and_then(|entry| entry.ext.session.unseen());
    if let (Some(direction), Some(app)) = (unseen, parts.app.as_deref_mut()) {
        app.leave_out(direction);
    }
    parts.streams = Some(pair);
    bypass
}

/// What came of reading one direction.
#[derive(Default)]
struct Did {
    other_side_ready: bool,
    again: bool,
    reverse: bool,
    switched: bool,
    bypass: bool,
}

/// Reads one direction. Each round of the loop takes bytes in, or is the last.
fn read(
    worker: &Worker,
    app: &mut AppLayer,
    pair: &mut StreamPair,
    direction: Direction,
    own: &[u8],
    info: &FlowInfo,
) -> Did {
    let engine = &worker.engine;
    let mut did = Did::default();
    loop {
        // At its depth a direction is not over: its end is not seen.
        let ended = pair.stream(direction).over();
        let right = pair.stream(direction).right_edge();
        let stream = pair.stream_mut(direction);
        let progress = stream.app_progress();
        let advance = match stream.app(own) {
            Some(AppChunk::Data { offset, bytes }) => {
                let end = offset.saturating_add(bytes.len() as u64);
                let eof = ended && end >= right;
                let advance = app.stream(engine, direction, Input { data: bytes, offset, eof }, info);
                let all = advance.consumed >= bytes.len();
                // What the parser waits for lies in the hole behind: what is there of it is lost as well. While detection waits for it, it may
                // come late: then it is read from its beginning.
                let lost = advance.consumed == 0
                    && !advance.finished
                    && !advance.reverse
                    && app.parser().is_some()
                    && (ended || !app.waits(direction));
                let taken = if lost && stream.gap_follows(end) {
                    end.saturating_sub(offset)
                } else {
                    advance.consumed as u64
                };
                stream.app_consume(taken);
                if !all && advance.needed > 0 {
                    stream.app_need(u32::try_from(advance.needed).unwrap_or(u32::MAX));
                }
                if app.take_switched() {
                    did.switched = true;
                    return did;
                }
                if advance.parsed {
                    // Detection looks at what is there, however little.
                    stream.raw_trigger();
                }
                advance
            }
            Some(AppChunk::Gap { len, .. }) => {
                if !app.gap(engine, direction, len, stream.behind_hole(own), ended, info) {
                    break;
                }
                stream.app_consume(len);
                Advance::default()
            }
            None => {
                if ended && pair.stream(direction).before_hole() {
                    // The end is not here, and what lies before it will not come any more.
                    app.disrupt(engine, direction, Disruption::Gap, info);
                } else if ended && !app.ended(direction) {
                    let input = Input { data: &[], offset: progress, eof: true };
                    let advance = app.stream(engine, direction, input, info);
                    app.set_ended(direction);
                    did.other_side_ready |= advance.other_side_ready;
                }
                if pair.stream(direction).depth_reached() {
                    app.disrupt(engine, direction, Disruption::Depth, info);
                }
                break;
            }
        };
        if advance.other_side_first || advance.other_side_ready {
            // It is to be shown what it has, however little.
            pair.stream_mut(direction.flip()).app_need(0);
            did.other_side_ready = true;
        }
        did.again |= advance.other_side_first;
        did.reverse = advance.reverse;
        did.bypass |= advance.bypass;
        if advance.finished {
            pair.stream_mut(Direction::ToServer).app_stop();
            pair.stream_mut(Direction::ToClient).app_stop();
        }
        if advance.finished || advance.reverse || pair.stream(direction).app_progress() == progress {
            break;
        }
    }
    did
}
