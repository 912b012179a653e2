// SPDX-License-Identifier: Apache-2.0
//! QUIC up to its hellos: versions 1 and 2 (RFC 9000, RFC 9001, RFC 9369), their last drafts, and Google's Q043
//! to Q046.
//!
//! Initial packets are encrypted with keys that anybody can derive, so the hellos in them are read as those of
//! TLS. Each packet with a long header is a transaction of its own, as in Suricata 8, until the hello of its
//! direction is known; what follows is encrypted, and costs no more than a flow without a parser.
//!
//! - `header`: headers; `keys`: keys of Initial packets; `frames`: their frames; `stream`: the bytes of CRYPTO
//!   frames; `hello`: hellos; `google`: Google's handshake messages;
//! - `parser`: the state of a flow; `tx`, `buffers`: data for rules and records.
//!
//! Settings (below `app-layer.protocols.quic`): `ja3-fingerprints`, `ja4-fingerprints` (`no`: neither rules nor
//! records have them).
//!
//! Where Suricata is odd, its records count: a hello over two packets gives a bare record first; a version
//! negotiation has the version `0`; JA3 contains GREASE, and records show it as extension 64250; the version in
//! JA4 comes from the extension "supported versions" alone.
//!
//! Not supported: what follows the Initial packets; encrypted client hellos (the outer hello is read); a
//! connection that moves to other addresses.

mod buffers;
mod connection;
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
mod testing;
#[cfg(test)]
mod tests;
mod tx;

use crate::event::{EventCode, UNEXPECTED_PROTOCOL};
use crate::protocol::{
    CounterSpec, Parser, ParserFactory, Probe, ProbePort, ProtocolSpec, RecordSpec, Transport,
};
use bartizan_base::{Direction, PerDirection, SettingError, SettingsMap};
use header::PacketHeader;
use hello::Fingerprints;

pub use tx::QuicTransaction;

/// Progress of a finished transaction.
const COMPLETE: u8 = 1;

/// Limit of transactions held for a flow. They are freed once they are inspected and recorded, so only many
/// packets in one datagram reach it.
const MAX_HELD: usize = 512;

/// Limit of connections of a flow that no server has answered yet, in prevention.
const MAX_CONNECTIONS: usize = 32;

/// Names of the events. As in Suricata, `error_on_header` has a name and is never raised: such a packet has no
/// transaction.
const EVENTS: &[&str] = &[
    "failed_decrypt",
    "error_on_data",
    "error_on_header",
    "crypto_frag_too_long",
    "flooded",
    "crypto_data_changed",
];

const FAILED_DECRYPT: EventCode = 0;
const ERROR_ON_DATA: EventCode = 1;
const CRYPTO_FRAG_TOO_LONG: EventCode = 3;
const FLOODED: EventCode = 4;
/// Handshake bytes differ from those that an earlier frame has at the same place.
const CRYPTO_DATA_CHANGED: EventCode = 5;

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
    records: RecordSpec { progress: false, by_message: true, ..RecordSpec::PLAIN },
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
    events: EVENTS,
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
