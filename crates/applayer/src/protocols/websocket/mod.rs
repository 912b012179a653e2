// SPDX-License-Identifier: Apache-2.0
//! WebSocket (RFC 6455), with compressed messages (RFC 7692): what follows an HTTP/1 upgrade that the server
//! accepted.
//!
//! One transaction per frame. Rules see the payload of the frame without its mask; that of a message's last
//! frame is the whole message, without its compression.
//!
//! - `frame`: headers, masks; `inflate`: compressed messages; `message`: messages in several frames;
//!   `parser`: frames; `tx`: the transaction; `tables`: numbers and names.
//!
//! Settings (below `app-layer.protocols.websocket`): `max-payload-size`.
//!
//! Not supported: other extensions.

pub mod frame;
mod inflate;
mod message;
mod parser;
mod tables;
#[cfg(test)]
mod tests;
mod tx;

use crate::event::UNEXPECTED_PROTOCOL;
use crate::protocol::{
    CounterSpec, Parser, ParserFactory, Probe, ProtocolSpec, RecordSource, RecordSpec, Transport,
};
use crate::transaction::Bodies;
use bartizan_base::limit::LimitTrace::Event;
use bartizan_base::limit::{LimitSpec, bytes, count};
use bartizan_base::{Direction, PerDirection, SettingError, SettingsMap, limits};
use tables::{BUFFERS, COMPLETE, EVENTS, NUMBERS, PAYLOAD_MAX, STATES, TX_MAX, WebSocketConfig};

/// WebSocket's entry in the table of protocols.
pub static SPEC: ProtocolSpec = ProtocolSpec {
    name: "websocket",
    aliases: &[],
    family: None,
    carries: None,
    exact_name: "websocket",
    eve_name: "websocket",
    eve_type: Some("websocket"),
    records: RecordSpec {
        progress: false,
        source: RecordSource::Packet,
        bodies: Some(|alert| Bodies {
            base64: alert.websocket_payload,
            printable: alert.websocket_payload_printable,
        }),
        ..RecordSpec::PLAIN
    },
    counters: CounterSpec::PLAIN,
    transports: &[Transport::Tcp],
    patterns: &[],
    ports: &[],
    probe: Some(probe),
    likely: None,
    enabled_by_default: true,
    complete: PerDirection::new(COMPLETE, COMPLETE),
    states: STATES,
    buffers: BUFFERS,
    numbers: NUMBERS,
    encrypted: None,
    frames: &["stream", "header", "pdu", "data"],
    events: EVENTS,
    absent: UNEXPECTED_PROTOCOL,
    has_trailing_bytes: false,
    limits: LIMITS,
    configure,
};

/// Bounds of this protocol.
pub(crate) const LIMITS: &[LimitSpec] = limits! {
    Protocol "WebSocket: payload of a frame, of a message in several frames, of a compressed message (`max-payload-size`)"
        = "{}; none in prevention, which inspects payloads as they come" [bytes(PAYLOAD_MAX)]
        in ["applayer/protocols/websocket/tables.rs"], "the rest is skipped, with the event",
        [Event("websocket.skip_end_of_payload"), Event("websocket.reassembly_limit_reached"),
            Event("websocket.decompression_limit_reached")];
    Protocol "WebSocket, in prevention: bytes of a message that rules see together" = "{}, and {} of what came before them"
        [bytes(message::WINDOW), bytes(message::OVERLAP)]
        in ["applayer/protocols/websocket/message.rs"], "rules see the message in parts that overlap",
        [bartizan_base::limit::LimitTrace::Nothing];
    Protocol "WebSocket: output of one part of a compressed message" = "{}" [bytes(inflate::OUTPUT_MAX)]
        in ["applayer/protocols/websocket/inflate.rs"],
        "event, later compressed messages stay as they are; in prevention the flow's parser fails",
        [Event("websocket.decompression_limit_reached")];
    Protocol "WebSocket: frames of a flow that are inspected together" = "{}" [count(TX_MAX)]
        in ["applayer/protocols/websocket/tables.rs"],
        "event, the oldest are dropped; in prevention the flow's parser fails", [Event("websocket.flooded")];
};

/// Matches the first byte of a frame: the reserved bits that have no meaning are 0. It says little, so it is
/// asked only where an upgrade was accepted.
fn probe(_transport: Transport, direction: Direction, data: &[u8]) -> Probe {
    match data.first() {
        None => Probe::More,
        Some(first) if first & frame::RESERVED == 0 => Probe::Yes(direction),
        Some(_) => Probe::No,
    }
}

fn configure(settings: &SettingsMap) -> Result<Box<dyn ParserFactory>, SettingError> {
    let key = "max-payload-size";
    let payload_max = match settings.get(key) {
        None => PAYLOAD_MAX,
        Some(text) => bartizan_base::parse_size(text)
            .and_then(|size| u32::try_from(size).ok())
            .and_then(|size| usize::try_from(size).ok())
            .ok_or_else(|| SettingError {
                key: format!("app-layer.protocols.websocket.{key}"),
                value: text.to_owned(),
                expected: "a size below 4 GiB such as 64 KiB",
            })?,
    };
    Ok(Box::new(WebSocketFactory { config: WebSocketConfig { payload_max } }))
}

struct WebSocketFactory {
    config: WebSocketConfig,
}

impl ParserFactory for WebSocketFactory {
    fn make(&self) -> Box<dyn Parser> {
        Box::new(parser::WebSocketParser::new(self.config))
    }
}
