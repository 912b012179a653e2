// SPDX-License-Identifier: Apache-2.0
//! HTTP/2 in clear text (RFC 9113), by prior knowledge or after an upgrade of HTTP/1.
//!
//! A transaction is a stream, or a frame of the connection (stream 0), as in Suricata.
//!
//! - `parser`: the preface and frames; `frame`: their headers and payloads; `message`: blocks of fields, and
//!   data; `strict`: messages that prevention refuses;
//! - `hpack`, `huffman`: compressed fields (RFC 7541);
//! - `tx`: transactions; `body`: data as files, without content encodings; `buffers`, `log`: data for rules
//!   and records;
//! - `settings`: `max-streams`, `max-table-size`, `max-reassembly-size`, `max-frames`,
//!   `compression-bomb-limit` below `app-layer.protocols.http2`.
//!
//! Messages of DNS in streams (RFC 8484, `doh`) turn the protocol of the flow into `doh2`, as in Suricata: a
//! protocol of its own for rules and records, with this parser.
//!
//! Not supported: files put together from ranges over several flows; parsing after a gap.

mod body;
mod buffers;
mod doh;
mod events;
mod frame;
mod hpack;
mod huffman;
mod log;
mod message;
mod parser;
mod settings;
mod strict;
#[cfg(test)]
mod tests;
mod tx;

pub use frame::{ERROR_CODES, FRAME_TYPES, FramePayload, HttpFrame, HttpFrames, SETTING_NAMES, Setting};
pub use hpack::{FieldStatus, HeaderField};

use crate::event::UNEXPECTED_PROTOCOL;
use crate::protocol::{
    CounterSpec, DetectionPattern, Parser, ParserFactory, Probe, ProtocolSpec, RecordSpec, Transport,
};
use bartizan_base::limit::LimitTrace::{Event, Nothing};
use bartizan_base::limit::{LimitSpec, bytes, count};
use bartizan_base::{Direction, PerDirection, limits};
use frame::{HEAD, SETTINGS};
use settings::Http2Settings;

/// The connection preface of a client (RFC 9113 section 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Names of the states between the beginning and the end of a stream, which have none of their own.
const STARTED: &str = "request_started";
const ANSWERED: &str = "response_started";

/// HTTP/2.
pub static SPEC: ProtocolSpec = ProtocolSpec {
    name: "http2",
    aliases: &[],
    family: Some("http"),
    carries: None,
    exact_name: "http2",
    eve_name: "http2",
    eve_type: Some("http"),
    records: RecordSpec { progress: false, forwarded: true, listed_as: Some("http2"), ..RecordSpec::PLAIN },
    counters: CounterSpec::PLAIN,
    transports: &[Transport::Tcp],
    patterns: &[DetectionPattern {
        transport: Transport::Tcp,
        direction: Direction::ToServer,
        bytes: b"PRI * HTTP/2.0\r\n",
        nocase: false,
        offset: 0,
        depth: 17,
    }],
    ports: &[],
    probe: Some(probe),
    likely: None,
    enabled_by_default: true,
    complete: PerDirection::new(tx::COMPLETE, tx::COMPLETE),
    states: PerDirection {
        to_server: &[STARTED, STARTED, STARTED, STARTED, "request_complete"],
        to_client: &[ANSWERED, ANSWERED, ANSWERED, ANSWERED, "response_complete"],
    },
    buffers: buffers::SPECS,
    numbers: &[],
    encrypted: None,
    frames: &["stream", "hdr", "data", "pdu"],
    events: events::NAMES,
    absent: UNEXPECTED_PROTOCOL,
    has_trailing_bytes: false,
    limits: LIMITS,
    configure: |settings| Ok(Box::new(Http2Factory { settings: Http2Settings::read(settings)? })),
};

/// DNS over HTTP/2: a flow of HTTP/2 in which a message of DNS was seen.
pub static DOH2: ProtocolSpec = ProtocolSpec {
    name: "doh2",
    aliases: &[],
    family: None,
    carries: Some(&["http2", "dns"]),
    exact_name: "doh2",
    eve_name: "doh2",
    eve_type: Some("http"),
    records: RecordSpec { progress: false, forwarded: true, listed_as: Some("doh2"), ..RecordSpec::PLAIN },
    counters: CounterSpec::PLAIN,
    transports: &[Transport::Tcp],
    patterns: &[],
    ports: &[],
    probe: None,
    likely: None,
    enabled_by_default: true,
    complete: PerDirection::new(tx::COMPLETE, tx::COMPLETE),
    states: PerDirection {
        to_server: &[STARTED, STARTED, STARTED, STARTED, "request_complete"],
        to_client: &[ANSWERED, ANSWERED, ANSWERED, ANSWERED, "response_complete"],
    },
    buffers: &buffers::WITH_DNS,
    numbers: &[],
    encrypted: None,
    frames: &["stream", "hdr", "data", "pdu"],
    events: events::NAMES,
    absent: UNEXPECTED_PROTOCOL,
    has_trailing_bytes: false,
    limits: &[],
    configure: |settings| Ok(Box::new(Http2Factory { settings: Http2Settings::read(settings)? })),
};

/// Bounds of this protocol.
pub(crate) const LIMITS: &[LimitSpec] = limits! {
    Protocol "HTTP/2: transactions that a flow holds (`max-streams`)" = "{}" [count(settings::STREAMS_MAX)]
        in ["applayer/protocols/http2/settings.rs"], "event, the flow is parsed no further, as in Suricata",
        [Event("http2.too_many_streams")];
    Protocol "HTTP/2: table of fields of a side (`max-table-size`)" = "{}" [bytes(settings::TABLE_MAX)]
        in ["applayer/protocols/http2/settings.rs"], "event, the table stays at this size",
        [Event("http2.header_table_overflow")];
    Protocol "HTTP/2: block of fields in several frames (`max-reassembly-size`), fields of a message" = "{}, {}"
        [bytes(settings::BLOCK_MAX), bytes(hpack::LIST_MAX)]
        in ["applayer/protocols/http2/settings.rs", "applayer/protocols/http2/hpack.rs"],
        "event; after the block the flow is parsed no further, further fields of the message are left out",
        [Event("http2.reassembly_limit_reached")];
    Protocol "HTTP/2: frames of a stream in a direction (`max-frames`), those of them that differ" = "{}, {}"
        [count(settings::FRAMES_MAX), count(tx::FRAMES_HELD)]
        in ["applayer/protocols/http2/settings.rs", "applayer/protocols/http2/tx.rs"],
        "event, rules on frames do not see further ones", [Event("http2.too_many_frames")];
    Protocol "HTTP/2: frame that is read whole" = "{}" [bytes(parser::WHOLE_MAX)]
        in ["applayer/protocols/http2/parser.rs"], "event; data of longer ones is read as it comes, others are skipped",
        [Event("http2.long_frame_data")];
    Protocol "HTTP/2: decompressed bytes of a body (`compression-bomb-limit`)" = "{}" [bytes(settings::BOMB_LIMIT)]
        in ["applayer/protocols/http2/settings.rs"], "event at a ratio beyond 2,048, decompression of the body ends",
        [Event("http2.compression_bomb")];
    Protocol "HTTP/2: message of DNS in a stream" = "{}" [bytes(doh::MESSAGE_MAX)]
        in ["applayer/protocols/http2/doh.rs"], "event, what is beyond it is left out",
        [Event("http2.dns_request_too_long"), Event("http2.dns_response_too_long")];
    Protocol "HTTP/2: content encodings of a body" = "{}" [count(body::LAYERS_MAX)]
        in ["applayer/protocols/http2/body.rs"], "the body is inspected as the first ones leave it", [Nothing];
};

/// Matches the client's whole preface, since servers of HTTP/1 read a text that only begins like it as a
/// request, or the first frame of a server.
fn probe(_transport: Transport, direction: Direction, bytes: &[u8]) -> Probe {
    if direction == Direction::ToClient {
        match bytes {
            [0, _, _, SETTINGS, 0 | 1, 0, 0, 0, 0, ..] => Probe::Yes(Direction::ToClient),
            _ if bytes.len() < HEAD => Probe::More,
            _ => Probe::No,
        }
    } else if bytes.starts_with(PREFACE) {
        Probe::Yes(Direction::ToServer)
    } else if PREFACE.starts_with(bytes) {
        Probe::More
    } else {
        Probe::No
    }
}

/// A frame with a header.
fn framed(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length[..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

/// The frame for a whole request without a body, on stream 1.
pub(super) fn request_frame(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        hpack::write_literal(&mut block, name, value);
    }
    framed(frame::HEADERS, frame::END_STREAM | frame::END_HEADERS, 1, &block)
}

/// A frame with settings.
pub(super) fn settings_frame(settings: &[u8]) -> Vec<u8> {
    framed(SETTINGS, 0, 0, settings)
}

struct Http2Factory {
    settings: Http2Settings,
}

impl ParserFactory for Http2Factory {
    fn make(&self) -> Box<dyn Parser> {
        self.make_expected(&[])
    }

    /// `context`: frames of the client that stand for the request of HTTP/1 which asked for the upgrade.
    fn make_expected(&self, context: &[u8]) -> Box<dyn Parser> {
        Box::new(parser::Http2Parser::new(self.settings, context))
    }
}
