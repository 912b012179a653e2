// SPDX-License-Identifier: Apache-2.0
//! HTTP/1 (RFC 9110, RFC 9112), and whatever servers and browsers take for it.
//!
//! An attacker hides from an inspector in the difference between what the inspector reads and what the victim reads. So this
//! parser follows the victims' leniency, in the semantics of libhtp (the Rust port in Suricata 8), since alerts and records are
//! to agree with Suricata's: request line variants, personalities for URIs, header scanning with three kinds of line ends,
//! bodies that are chunked or encoded in other ways than announced.
//!
//! - `request`, `response` and their bodies and lines: the two state machines; `parser`: both over one table of
//!   transactions (`tx`);
//! - `headers`, `fields`: header blocks and the values in them; `uri`, `urldecode`, `bestfit`: URIs;
//! - `body`, `codec`, `decompress`, `encodings`, `multipart`, `ranges`: bodies and the files in them;
//! - `buffers`, `log`: what rules and records see.
//!
//! Not done: files put together from ranges over several flows, settings by server address, flash decompression,
//! frames.

mod bestfit;
mod body;
mod buffers;
mod bytes;
mod codec;
#[cfg(test)]
mod cut_tests;
mod decompress;
mod encodings;
mod events;
mod feed;
mod fields;
mod form_names;
mod gzip_header;
mod headers;
mod likely;
mod log;
mod multipart;
mod parser;
mod proxy;
mod ranges;
mod request;
mod request_body;
mod request_message;
mod response;
mod response_body;
mod settings;
#[cfg(test)]
mod tests;
mod tx;
mod uri;
mod urldecode;

use std::sync::Arc;

use crate::protocol::{DetectionPattern, Parser, ParserFactory, ProtocolSpec, Transport};
use bartizan_base::{Direction, PerDirection, SettingError, Settings};

pub use tx::HttpTx;

/// HTTP/1's entry in the table of protocols.
pub static SPEC: ProtocolSpec = ProtocolSpec {
    name: "http",
    aliases: &["http1"],
    eve_name: "http",
    eve_type: Some("http"),
    eve_tx_id: true,
    transports: &[Transport::Tcp],
    patterns: PATTERNS,
    ports: &[],
    probe: None,
    likely: Some(likely::likely),
    enabled_by_default: true,
    complete: PerDirection { to_server: tx::COMPLETE, to_client: tx::COMPLETE },
    states: PerDirection {
        to_server: &[
            "request_started",
            "request_line",
            "request_headers",
            "request_body",
            "request_trailer",
            "request_complete",
        ],
        to_client: &[
            "response_started",
            "response_line",
            "response_headers",
            "response_body",
            "response_trailer",
            "response_complete",
        ],
    },
    buffers: buffers::SPECS,
    frames: &["stream", "request", "response"],
    events: events::NAMES,
    configure,
};

const fn request_pattern(bytes: &'static [u8]) -> DetectionPattern {
    let depth = bytes.len() as u16;
    DetectionPattern {
        transport: Transport::Tcp,
        direction: Direction::ToServer,
        bytes,
        nocase: true,
        offset: 0,
        depth,
    }
}

const fn response_pattern(bytes: &'static [u8]) -> DetectionPattern {
    let depth = bytes.len() as u16;
    DetectionPattern {
        transport: Transport::Tcp,
        direction: Direction::ToClient,
        bytes,
        nocase: true,
        offset: 0,
        depth,
    }
}

macro_rules! patterns {
    ($($method:literal)+) => {
        &[
            $(request_pattern(concat!($method, " ").as_bytes()), request_pattern(concat!($method, "\t").as_bytes()),)+
            response_pattern(b"HTTP/0.9"),
            response_pattern(b"HTTP/1.0"),
            response_pattern(b"HTTP/1.1"),
        ]
    };
}

/// First bytes of requests and responses.
static PATTERNS: &[DetectionPattern] = patterns!(
    "GET" "PUT" "POST" "HEAD" "TRACE" "OPTIONS" "CONNECT" "DELETE" "PATCH" "PROPFIND" "PROPPATCH" "MKCOL" "COPY" "MOVE"
    "LOCK" "UNLOCK" "CHECKOUT" "UNCHECKOUT" "CHECKIN" "UPDATE" "LABEL" "REPORT" "MKWORKSPACE" "MKACTIVITY" "MERGE"
    "INVALID" "VERSION-CONTROL" "BASELINE-CONTROL"
);

struct Factory {
    settings: Arc<settings::HttpSettings>,
}

impl ParserFactory for Factory {
    fn make(&self) -> Box<dyn Parser> {
        Box::new(parser::HttpParser::new(Arc::clone(&self.settings)))
    }
}

fn configure(settings: &Settings) -> Result<Box<dyn ParserFactory>, SettingError> {
    Ok(Box::new(Factory { settings: Arc::new(settings::HttpSettings::read(settings)?) }))
}
