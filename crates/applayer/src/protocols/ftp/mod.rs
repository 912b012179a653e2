// SPDX-License-Identifier: Apache-2.0
//! FTP (RFC 959, RFC 1123 section 4.1, RFC 2228, RFC 2428): control connections, and the data connections
//! that they announce.
//!
//! A transaction of a control connection is a command with its replies. PORT, EPRT, PASV and EPSV with the
//! transfer that follows make an expectation ([`crate::expectation`]), by which the data connection is known,
//! whichever worker has it. After `234` to AUTH TLS the connection is TLS.
//!
//! - `tables`: names and numbers; `commands`: commands, announced addresses;
//! - `parser`, `tx`: the control connection; [`data`]: the data connection.
//!
//! Settings (below `app-layer.protocols.ftp`): `max-line-length`, `max-tx`.
//!
//! Not supported: transfers without an announced port (RFC 959 section 3.2), MLSD's data connection, modes
//! other than stream (RFC 959 section 3.4).

mod commands;
pub mod data;
mod parser;
mod tables;
#[cfg(test)]
mod tests;
mod tx;

use crate::event::UNEXPECTED_PROTOCOL;
use crate::protocol::{
    CounterSpec, DetectionPattern, MemoryCounters, Parser, ParserFactory, Probe, ProbePort, ProtocolSpec,
    RecordSpec, Transport,
};
use crate::protocols::first_line;
use bartizan_base::limit::LimitTrace::Event;
use bartizan_base::limit::{LimitSpec, bytes, count};
use bartizan_base::{Direction, PerDirection, SettingError, SettingsMap, limits};

use tables::{BUFFERS, COMPLETE, EVENTS, FtpConfig, LINE_MAX, NUMBERS, REPLIES_MAX, STATES, TX_MAX};
pub use tx::{FtpTransaction, MODES};

/// FTP's entry in the table of protocols.
pub static SPEC: ProtocolSpec = ProtocolSpec {
    name: "ftp",
    aliases: &[],
    family: None,
    carries: None,
    exact_name: "ftp",
    eve_name: "ftp",
    eve_type: Some("ftp"),
    records: RecordSpec { progress: false, ..RecordSpec::PLAIN },
    counters: CounterSpec {
        memory: Some(MemoryCounters { used: "ftp.memuse", limit: "ftp.memcap" }),
        ..CounterSpec::PLAIN
    },
    transports: &[Transport::Tcp],
    patterns: PATTERNS,
    ports: &[ProbePort { transport: Transport::Tcp, port: 21, min_depth: 5, max_depth: 5 }],
    probe: Some(probe),
    likely: Some(likely),
    enabled_by_default: true,
    complete: PerDirection::new(COMPLETE, COMPLETE),
    states: STATES,
    buffers: BUFFERS,
    numbers: NUMBERS,
    encrypted: None,
    frames: &["stream"],
    events: EVENTS,
    absent: UNEXPECTED_PROTOCOL,
    has_trailing_bytes: false,
    limits: LIMITS,
    configure,
};

const fn first(direction: Direction, bytes: &'static [u8], depth: u16) -> DetectionPattern {
    DetectionPattern { transport: Transport::Tcp, direction, bytes, nocase: true, offset: 0, depth }
}

/// Greetings and first commands, on any port.
const PATTERNS: &[DetectionPattern] = &[
    first(Direction::ToClient, GREETING, 5),
    first(Direction::ToServer, b"FEAT", 4),
    first(Direction::ToServer, b"USER ", 5),
    first(Direction::ToServer, b"PASS ", 5),
    first(Direction::ToServer, b"PORT ", 5),
];

/// A greeting that other protocols do not have.
const GREETING: &[u8] = b"220 (";

/// Bounds of this protocol.
pub(crate) const LIMITS: &[LimitSpec] = limits! {
    Protocol "FTP: line (`max-line-length`)" = "{}" [bytes(LINE_MAX)] in ["applayer/protocols/ftp/tables.rs"],
        "event, the rest of the line is skipped", [Event("ftp.request_command_too_long"), Event("ftp.response_command_too_long")];
    Protocol "FTP: commands without an answer (`max-tx`)" = "{}" [count(TX_MAX)] in ["applayer/protocols/ftp/tables.rs"],
        "the oldest are let go of", [Event("ftp.flooded")];
    Protocol "FTP: replies to one command" = "{}" [bytes(REPLIES_MAX)] in ["applayer/protocols/ftp/tables.rs"],
        "event, further lines are left out", [Event("ftp.response_command_too_long")];
};

/// Matches a client's first command, on any port, and a server's greeting, at FTP's port only: other
/// protocols have the same code.
fn probe(_transport: Transport, direction: Direction, data: &[u8]) -> Probe {
    let begins = |pattern: &DetectionPattern| {
        let begin = data.get(..pattern.bytes.len()).unwrap_or(data);
        let same = pattern.bytes.get(..begin.len()).is_some_and(|bytes| bytes.eq_ignore_ascii_case(begin));
        same.then_some(begin.len() == pattern.bytes.len())
    };
    let mut may = false;
    for pattern in PATTERNS.iter().filter(|pattern| pattern.direction == direction) {
        match begins(pattern) {
            Some(true) => return Probe::Yes(direction),
            Some(false) => may = true,
            None => {}
        }
    }
    if direction == Direction::ToClient {
        let head = data.get(..3).unwrap_or(data);
        let code = b"220".starts_with(head) && matches!(data.get(3), None | Some(b' ' | b'-'));
        return match code {
            true if memchr::memchr(b'\n', data).is_some() => Probe::Yes(direction),
            true => Probe::More,
            false => Probe::No,
        };
    }
    if may { Probe::More } else { Probe::No }
}

/// Matches first lines that servers take on any port, in prevention.
fn likely(_transport: Transport, direction: Direction, data: &[u8]) -> Probe {
    first_line::FTP.likely(direction, data)
}

fn configure(settings: &SettingsMap) -> Result<Box<dyn ParserFactory>, SettingError> {
    let size = settings.size("max-line-length", LINE_MAX as u64)?;
    let max_line = usize::try_from(size).unwrap_or(usize::MAX).clamp(16, 1 << 20);
    let max_tx = settings.number("max-tx", TX_MAX)?.max(1);
    Ok(Box::new(FtpFactory { config: FtpConfig { max_line, max_tx } }))
}

struct FtpFactory {
    config: FtpConfig,
}

impl ParserFactory for FtpFactory {
    fn make(&self) -> Box<dyn Parser> {
        Box::new(parser::FtpParser::new(self.config))
    }
}
