// SPDX-License-Identifier: Apache-2.0
//! Advancing the application layer with what a packet made readable.

use crate::packet::FlowParts;
use crate::record::{Occasion, Recorder};
use crate::worker::Worker;
use bartizan_applayer::flow::{Advance, AppLayer, FlowInfo};
use bartizan_applayer::protocol::{Input, Transport as AppTransport};
use bartizan_base::{Direction, FlowId, PerDirection};
use bartizan_flow::stream::{AppChunk, StreamPair};
use bartizan_flow::tcp::Outcome;
use bartizan_packet::Transport;

/// Runs the parsers on new data. `true`: detection found that the flow is the wrong way round, and it was turned.
pub(crate) fn advance(
    worker: &mut Worker,
    occasion: &Occasion<'_>,
    id: FlowId,
    parts: &mut FlowParts,
    tcp: Option<&Outcome>,
    recorder: &mut dyn Recorder,
) -> bool {
    let Some(entry) = worker.flows.get(id) else { return false };
    let info = FlowInfo {
        now: occasion.now,
        ports: PerDirection::new(entry.key().destination_port(), entry.key().source_port()),
        transport: AppTransport::Tcp,
    };
    match (&occasion.packet.decoded().transport, tcp) {
        (Transport::Tcp(_), Some(outcome)) => {
            if outcome.readable.to_server || outcome.readable.to_client {
                return stream(worker, occasion, id, parts, outcome.readable, info, recorder);
            }
            false
        }
        (Transport::Udp(_), _) => {
            let payload = occasion.packet.payload();
            if payload.is_empty()
                || occasion.packet.decoded().flags.contains(bartizan_packet::PacketFlags::HAS_INNER)
            {
                return false;
            }
            let info = FlowInfo { transport: AppTransport::Udp, ..info };
            let app = parts.app.get_or_insert_default();
            let engine = &worker.engine;
            if app.datagram(engine, occasion.direction, payload, &info).reverse {
                app.turn();
                let turned =
                    FlowInfo { ports: PerDirection::new(info.ports.to_client, info.ports.to_server), ..info };
                app.datagram(engine, occasion.direction.flip(), payload, &turned);
                return true;
            }
            false
        }
        _ => false,
    }
}

/// Reads both directions as far as they go.
pub(crate) fn stream(
    worker: &mut Worker,
    occasion: &Occasion<'_>,
    id: FlowId,
    parts: &mut FlowParts,
    mut readable: PerDirection<bool>,
    info: FlowInfo,
    recorder: &mut dyn Recorder,
) -> bool {
    let mut pair = parts.streams.take();
    let mut reversed = false;
    if let Some(pair) = pair.as_deref_mut() {
        // The other direction first: passively, a packet acknowledges what its receiver sent before.
        let first = occasion.direction.flip();
        let mut rounds = 0u8;
        let mut direction = first;
        while (readable.to_server || readable.to_client) && rounds < 8 {
            rounds += 1;
            if readable[direction] {
                readable[direction] = false;
                let own = if direction == occasion.direction { occasion.packet.payload() } else { &[] };
                let app = parts.app.get_or_insert_default();
                let did = read(worker, app, pair, direction, own, &info);
                readable[direction.flip()] |= did.other_side_ready;
                if did.reverse {
                    reversed = true;
                    break;
                }
                if did.switched {
                    crate::transactions::before_switch(worker, occasion, id, parts, recorder);
                    readable[direction] = true;
                }
            }
            direction = direction.flip();
        }
    }
    parts.streams = pair;
    reversed
}

/// What came of reading one direction.
#[derive(Default)]
struct Did {
    other_side_ready: bool,
    reverse: bool,
    switched: bool,
}

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
        let ended = pair.stream(direction).ended();
        let right = pair.stream(direction).right_edge();
        let stream = pair.stream_mut(direction);
        let advance = match stream.app(own) {
            Some(AppChunk::Data { offset, bytes }) => {
                let eof = ended && offset.saturating_add(bytes.len() as u64) >= right;
                let advance = app.stream(engine, direction, Input { data: bytes, offset, eof }, info);
                let all = advance.consumed >= bytes.len();
                let consumed = advance.consumed as u64;
                stream.app_consume(consumed);
                if !all && advance.needed > 0 {
                    stream.app_need(u32::try_from(advance.needed).unwrap_or(u32::MAX));
                }
                if app.take_switched() {
                    did.switched = true;
                    return did;
                }
                if advance.consumed > 0 {
                    stream_trigger(stream)
                }
                if !all && consumed > 0 && advance.needed == 0 { continue_or(advance) } else { advance }
            }
            Some(AppChunk::Gap { len, .. }) => {
                app.gap(engine, direction, len, info);
                stream.app_consume(len);
                continue;
            }
            None => {
                if ended && !app.ended(direction) {
                    let at = stream.app_progress();
                    let advance =
                        app.stream(engine, direction, Input { data: &[], offset: at, eof: true }, info);
                    app.set_ended(direction);
                    did.other_side_ready |= advance.other_side_ready;
                }
                break;
            }
        };
        did.other_side_ready |= advance.other_side_ready;
        if advance.reverse {
            did.reverse = true;
            break;
        }
        if advance.finished {
            pair.stream_mut(Direction::ToServer).app_stop();
            pair.stream_mut(Direction::ToClient).app_stop();
            break;
        }
        if advance.consumed == 0 {
            break;
        }
    }
    did
}

/// A parser took bytes in: detection looks at what is there, however little.
fn stream_trigger(stream: &mut bartizan_flow::stream::Stream) {
    stream.raw_trigger();
}

const fn continue_or(advance: Advance) -> Advance {
    advance
}
