// SPDX-License-Identifier: Apache-2.0
//! HTTP/1 (RFC 9110, RFC 9112), as leniently as servers and browsers read it.
//!
//! An attacker hides from an inspector in the difference between the inspector's and the victim's reading. So
//! this parser follows the victims' leniency, in the semantics of libhtp (the Rust port in Suricata 8), since
//! alerts and records must agree with Suricata's: request line variants, personalities for URIs, header
//! scanning with three kinds of line ends, bodies that are chunked or encoded otherwise than declared.
//!
//! - `state`: the state of a flow's parser: a table of transactions (`tx`) and its two sides (`request_side`,
//!   `response_side`); `request`, `connect`, `response` and their bodies and lines: the two state machines
//!   over it; `parser`: both together;
//! - `headers`, `fields`: header blocks and the values in them; `uri`, `urldecode`, `bestfit`: URIs;
//! - `body`, `encodings`, `ranges`: bodies and the files in them, over [`crate::content`];
//! - `buffers`, `log`: data for rules and records.
//!
//! Not supported: files put together from ranges over several flows, settings by server address, flash
//! decompression.

mod bestfit;
mod body;
mod buffers;
mod connect;
#[cfg(test)]
mod cut_tests;
mod encodings;
mod events;
mod feed;
pub(super) mod fields;
mod headers;
mod likely;
pub(crate) mod limits;
mod log;
mod parser;
mod patterns;
#[cfg(test)]
mod prevention_tests;
mod proxy;
pub(super) mod ranges;
mod request;
mod request_body;
mod request_message;
mod request_side;
mod response;
mod response_body;
mod response_side;
mod settings;
mod state;
#[cfg(test)]
mod tests;
mod tx;
mod upgrade;
mod uri;
mod urldecode;

use std::sync::Arc;

use crate::content::bytes;
use crate::event::UNEXPECTED_PROTOCOL;
use crate::protocol::{
    CounterSpec, MemoryCounters, Parser, ParserFactory, ProtocolSpec, RecordSpec, Transport,
};
use crate::transaction::Bodies;
use bartizan_base::{PerDirection, SettingError, SettingsMap};
use bartizan_events::config::AlertOptions;

pub use tx::HttpTx;

/// HTTP/1's entry in the table of protocols.
pub static SPEC: ProtocolSpec = ProtocolSpec {
    name: "http",
    aliases: &["http1"],
    family: Some("http"),
    carries: None,
    exact_name: "http1",
    eve_name: "http",
    eve_type: Some("http"),
    records: RecordSpec { tx_id: true, bodies: Some(alert_bodies), forwarded: true, ..RecordSpec::PLAIN },
    counters: CounterSpec {
        memory: Some(MemoryCounters { used: "http.memuse", limit: "http.memcap" }),
        ..CounterSpec::PLAIN
    },
    transports: &[Transport::Tcp],
    patterns: patterns::PATTERNS,
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
    numbers: buffers::NUMBERS,
    encrypted: None,
    frames: &["stream", "request", "response"],
    events: events::NAMES,
    absent: UNEXPECTED_PROTOCOL,
    has_trailing_bytes: true,
    limits: limits::LIMITS,
    configure,
};

/// The options of an alert that enable bodies in it.
fn alert_bodies(alert: &AlertOptions) -> Bodies {
    Bodies { base64: alert.http_body, printable: alert.http_body_printable }
}

struct HttpFactory {
    settings: Arc<settings::HttpSettings>,
}

impl ParserFactory for HttpFactory {
    fn make(&self) -> Box<dyn Parser> {
        Box::new(state::HttpParser::new(Arc::clone(&self.settings)))
    }
}

fn configure(settings: &SettingsMap) -> Result<Box<dyn ParserFactory>, SettingError> {
    Ok(Box::new(HttpFactory { settings: Arc::new(settings::HttpSettings::read(settings)?) }))
}
