// SPDX-License-Identifier: Apache-2.0
//! SSL 2.0 to TLS 1.3 (RFC 5246, RFC 8446), as far as they are visible without keys.
//!
//! The semantics are those of Suricata 8, since alerts and records must agree with it: one transaction per
//! flow, states per direction, the conditions and the time of a record.
//!
//! - `parser`: records; `handshake`: messages; `hello`, `certificate`, `heartbeat`, `sslv2`: their contents;
//! - `tx`: the transaction; `buffers`, `log`: data for rules and records; `ja3`, `ja4`: fingerprints.
//!
//! Settings (below `app-layer.protocols.tls`): `ja3-fingerprints` (`auto`: available to rules and not in
//! records; the loader of rules that need it sets `yes`), `ja4-fingerprints`, `encryption-handling`
//! (`track-only`, its old name `default`, `bypass`, `full`), `no-reassemble` (the older form of `bypass`).
//!
//! Not supported: DTLS, STARTTLS (a matter of the protocols that have it).

mod buffers;
mod certificate;
mod config;
mod events;
mod handshake;
mod heartbeat;
pub(crate) mod hello;
pub(crate) mod ja3;
pub(crate) mod ja4;
pub(super) mod likely;
pub(crate) mod limits;
mod log;
mod parser;
mod sslv2;
#[cfg(test)]
mod tests;
mod transaction;
mod tx;
pub(crate) mod version;

use crate::event::NO_TLS_AFTER_STARTTLS;
use crate::protocol::{
    CounterSpec, DetectionPattern, Parser, ParserFactory, Probe, ProbePort, ProtocolSpec, RecordSpec,
    Transport,
};
use bartizan_base::{Direction, PerDirection, SettingError, SettingsMap};
use config::TlsParserConfig;
use std::sync::Arc;

pub use tx::TlsTx;

/// TLS's entry in the table of protocols.
pub static SPEC: ProtocolSpec = ProtocolSpec {
    name: "tls",
    aliases: &["ssl"],
    family: None,
    carries: None,
    exact_name: "tls",
    eve_name: "tls",
    eve_type: Some("tls"),
    records: RecordSpec { from_proto: true, ..RecordSpec::PLAIN },
    counters: CounterSpec::PLAIN,
    transports: &[Transport::Tcp],
    patterns: PATTERNS,
    ports: &[ProbePort { transport: Transport::Tcp, port: 443, min_depth: 3, max_depth: 3 }],
    probe: Some(probe),
    likely: Some(likely::likely),
    enabled_by_default: true,
    complete: PerDirection {
        to_server: tx::ClientState::Finished as u8,
        to_client: tx::ServerState::Finished as u8,
    },
    states: PerDirection { to_server: tx::CLIENT_STATES, to_client: tx::SERVER_STATES },
    buffers: buffers::SPECS,
    numbers: buffers::NUMBERS,
    encrypted: Some(buffers::ENCRYPTED),
    frames: &["stream", "pdu", "hdr", "data", "alert", "heartbeat", "ssl2.hdr", "ssl2.pdu"],
    events: events::NAMES,
    absent: NO_TLS_AFTER_STARTTLS,
    has_trailing_bytes: false,
    limits: limits::LIMITS,
    configure,
};

const fn first(direction: Direction, bytes: &'static [u8]) -> DetectionPattern {
    DetectionPattern { transport: Transport::Tcp, direction, bytes, nocase: false, offset: 0, depth: 3 }
}

/// Beginnings of a direction: a hello in a record, a bare hello, and records that a server may visibly send
/// first.
const PATTERNS: &[DetectionPattern] = &[
    DetectionPattern {
        transport: Transport::Tcp,
        direction: Direction::ToServer,
        bytes: &[1, 0, 2],
        nocase: false,
        offset: 2,
        depth: 5,
    },
    first(Direction::ToServer, &[0x01, 3, 0]),
    first(Direction::ToServer, &[0x16, 3, 0]),
    first(Direction::ToServer, &[0x01, 3, 1]),
    first(Direction::ToServer, &[0x16, 3, 1]),
    first(Direction::ToServer, &[0x01, 3, 2]),
    first(Direction::ToServer, &[0x16, 3, 2]),
    first(Direction::ToServer, &[0x01, 3, 3]),
    first(Direction::ToServer, &[0x16, 3, 3]),
    first(Direction::ToClient, &[0x15, 3, 0]),
    first(Direction::ToClient, &[0x16, 3, 0]),
    first(Direction::ToClient, &[0x17, 3, 0]),
    first(Direction::ToClient, &[0x15, 3, 1]),
    first(Direction::ToClient, &[0x16, 3, 1]),
    first(Direction::ToClient, &[0x17, 3, 1]),
    first(Direction::ToClient, &[0x15, 3, 2]),
    first(Direction::ToClient, &[0x16, 3, 2]),
    first(Direction::ToClient, &[0x17, 3, 2]),
    first(Direction::ToClient, &[0x15, 3, 3]),
    first(Direction::ToClient, &[0x16, 3, 3]),
    first(Direction::ToClient, &[0x17, 3, 3]),
];

/// Runs on port 443, and again for each pattern that matches: recognises a hello of SSL 2.0, or one of the
/// patterns.
fn probe(_transport: Transport, direction: Direction, data: &[u8]) -> Probe {
    let [first, second, third, ..] = data else { return begins(direction, data) };
    let yes = match direction {
        Direction::ToServer => {
            (first & 0x80 != 0 && *third == 1) || matches!([first, second, third], [0x01 | 0x16, 3, 0..=3])
        }
        Direction::ToClient => matches!([first, second, third], [0x15..=0x17, 3, 0..=3]),
    };
    if yes { Probe::Yes(direction) } else { Probe::No }
}

/// The answer to one or two bytes.
fn begins(direction: Direction, data: &[u8]) -> Probe {
    let may = match (direction, data) {
        (Direction::ToServer, [0x80..=0xff, ..]) | (_, []) => true,
        (Direction::ToServer, [0x01 | 0x16, rest @ ..]) | (Direction::ToClient, [0x15..=0x17, rest @ ..]) => {
            matches!(rest, [] | [3])
        }
        _ => false,
    };
    if may { Probe::More } else { Probe::No }
}

fn configure(settings: &SettingsMap) -> Result<Box<dyn ParserFactory>, SettingError> {
    Ok(Box::new(TlsFactory { config: Arc::new(TlsParserConfig::read(settings)?) }))
}

struct TlsFactory {
    config: Arc<TlsParserConfig>,
}

impl ParserFactory for TlsFactory {
    fn make(&self) -> Box<dyn Parser> {
        Box::new(parser::TlsParser::new(Arc::clone(&self.config)))
    }
}
