// SPDX-License-Identifier: Apache-2.0
//! QUIC up to its hellos: versions 1 and 2 (RFC 9000, RFC 9001, RFC 9369), their last drafts, and Google's
//! Q043 to Q046.
//!
//! Initial packets are encrypted with keys that anybody can derive, so the hellos in them are read as those
//! of TLS. Each packet with a long header is a transaction of its own, as in Suricata 8, until the hello of
//! its direction is known; what follows is encrypted, and costs no more than a flow without a parser.
//!
//! - `header`: headers; `keys`: keys of Initial packets; `frames`: their frames; `stream`: the bytes of
//!   CRYPTO frames; `hello`: hellos; `google`: Google's handshake messages;
//! - `connection`: the state of a connection; `parser`: that of a flow;
//! - `tx`, `names`, `buffers`: data for rules and records.
//!
//! Settings (below `app-layer.protocols.quic`): `ja3-fingerprints`, `ja4-fingerprints` (`no`: neither rules
//! nor records have them).
//!
//! Where Suricata is odd, its records count: a hello over two packets gives a bare record first; a version
//! negotiation has the version `0`; JA3 contains GREASE, and records show it as extension 64250; the version
//! in JA4 comes from the extension "supported versions" alone.
//!
//! Not supported: what follows the Initial packets; encrypted client hellos (the outer hello is read); a
//! connection that moves to other addresses.

mod buffers;
mod connection;
mod events;
mod frames;
mod google;
mod header;
mod hello;
mod keys;
pub(crate) mod limits;
mod names;
mod parser;
mod stream;
#[cfg(test)]
mod tests;
mod tx;

use crate::event::UNEXPECTED_PROTOCOL;
use crate::protocol::{
    CounterSpec, Parser, ParserFactory, Probe, ProbePort, ProtocolSpec, RecordSource, RecordSpec, Transport,
};
use bartizan_base::{Direction, PerDirection, SettingError, SettingsMap};
use buffers::COMPLETE;
use header::PacketHeader;
use hello::Fingerprints;

pub use tx::QuicTransaction;

/// QUIC.
pub const SPEC: ProtocolSpec = ProtocolSpec {
    name: "quic",
    aliases: &[],
    family: None,
    carries: None,
    exact_name: "quic",
    eve_name: "quic",
    eve_type: Some("quic"),
    // As in Suricata, alerts do not contain the progress.
    records: RecordSpec { progress: false, source: RecordSource::Message, ..RecordSpec::PLAIN },
    counters: CounterSpec::PLAIN,
    transports: &[Transport::Udp],
    patterns: &[],
    ports: &[
        ProbePort { transport: Transport::Udp, port: 443, min_depth: 0, max_depth: 16 },
        ProbePort { transport: Transport::Udp, port: 80, min_depth: 0, max_depth: 16 },
    ],
    probe: Some(probe),
    likely: None,
    enabled_by_default: true,
    complete: PerDirection::new(COMPLETE, COMPLETE),
    states: PerDirection {
        to_server: &["request_started", "request_complete"],
        to_client: &["response_started", "response_complete"],
    },
    buffers: buffers::SPECS,
    numbers: &[],
    encrypted: None,
    frames: &[],
    events: events::NAMES,
    absent: UNEXPECTED_PROTOCOL,
    has_trailing_bytes: false,
    limits: limits::LIMITS,
    configure,
};

/// Recognises a readable header, as Suricata does at its ports.
fn probe(_transport: Transport, direction: Direction, bytes: &[u8]) -> Probe {
    if PacketHeader::read(bytes, false).is_some() { Probe::Yes(direction) } else { Probe::No }
}

fn configure(settings: &SettingsMap) -> Result<Box<dyn ParserFactory>, SettingError> {
    Ok(Box::new(QuicFactory(Fingerprints {
        ja3: settings.bool("ja3-fingerprints", true)?,
        ja4: settings.bool("ja4-fingerprints", true)?,
    })))
}

struct QuicFactory(Fingerprints);

impl ParserFactory for QuicFactory {
    fn make(&self) -> Box<dyn Parser> {
        Box::new(parser::QuicParser::new(self.0))
    }
}
