// SPDX-License-Identifier: Apache-2.0
//! SMTP (RFC 5321) with its extensions PIPELINING (RFC 2920), CHUNKING (RFC 3030) and STARTTLS (RFC 3207),
//! and the message that it carries (RFC 5322, MIME).
//!
//! A transaction is an envelope with its message. It is complete when the server has answered the message,
//! RSET, QUIT, or an EHLO that begins the session anew.
//!
//! - `parser`: commands, replies, the lines of a message; `replies`: which reply belongs to which command;
//! - `tables`: names and numbers; `config`: settings;
//! - `tx`, `log`: the transaction and its records; the message: `content::mime::message`.
//!
//! Settings (below `app-layer.protocols.smtp`): `raw-extraction`, `mime.decode-mime`, `mime.decode-base64`,
//! `mime.decode-quoted-printable`, `mime.header-value-depth`, `mime.extract-urls`,
//! `mime.extract-urls-schemes`, `mime.log-url-scheme`, `mime.body-md5`,
//! `inspected-tracker.content-inspect-min-size`; its other keys are read and have no effect, since a file is
//! inspected whole.
//!
//! Not supported: messages in chunks (BDAT) are skipped in passive mode, as in Suricata; a message after an
//! end of data that not all servers accept (a line feed alone).

mod config;
mod log;
mod parser;
mod replies;
mod tables;
#[cfg(test)]
mod tests;
mod tx;

use crate::content::mime::message;
use crate::event::UNEXPECTED_PROTOCOL;
use crate::protocol::{
    CounterSpec, DetectionPattern, Parser, ParserFactory, Probe, ProbePort, ProtocolSpec, RecordSpec,
    Transport,
};
use crate::protocols::first_line;
use bartizan_base::limit::LimitTrace::{Event, Nothing};
use bartizan_base::limit::{LimitSpec, bytes, count};
use bartizan_base::{Direction, PerDirection, SettingError, SettingsMap, limits};
use config::SmtpConfig;
use std::sync::Arc;
use tables::{BUFFERS, COMPLETE, EVENTS};

/// SMTP's entry in the table of protocols.
pub static SPEC: ProtocolSpec = ProtocolSpec {
    name: "smtp",
    aliases: &[],
    family: None,
    carries: None,
    exact_name: "smtp",
    eve_name: "smtp",
    eve_type: Some("smtp"),
    records: RecordSpec { tx_id: true, ..RecordSpec::PLAIN },
    counters: CounterSpec::PLAIN,
    transports: &[Transport::Tcp],
    patterns: PATTERNS,
    ports: &[port(25), port(465)],
    probe: Some(probe),
    likely: Some(likely),
    enabled_by_default: true,
    complete: PerDirection::new(COMPLETE, COMPLETE),
    states: PerDirection {
        to_server: &["request_started", "request_data", "request_complete"],
        to_client: &["response_started", "response_data", "response_complete"],
    },
    buffers: BUFFERS,
    numbers: &[],
    encrypted: None,
    frames: &["stream", "command_line", "data", "response_line"],
    events: EVENTS,
    absent: UNEXPECTED_PROTOCOL,
    has_trailing_bytes: false,
    limits: LIMITS,
    configure,
};

const fn port(port: u16) -> ProbePort {
    ProbePort { transport: Transport::Tcp, port, min_depth: 5, max_depth: 5 }
}

const fn first(bytes: &'static [u8]) -> DetectionPattern {
    DetectionPattern {
        transport: Transport::Tcp,
        direction: Direction::ToServer,
        bytes,
        nocase: true,
        offset: 0,
        depth: 4,
    }
}

/// First commands of clients, on any port.
const PATTERNS: &[DetectionPattern] = &[first(b"EHLO"), first(b"HELO"), first(b"QUIT")];

/// Bounds of this protocol.
pub(crate) const LIMITS: &[LimitSpec] = limits! {
    Protocol "SMTP, FTP: first lines of a client by which prevention knows the protocol" = "{}"
        [bytes(first_line::BYTES_MAX)] in ["applayer/protocols/first_line.rs"], "the bytes belong to none of the two", [Nothing];
    Protocol "SMTP: line of a command or a reply" = "{}" [bytes(parser::LINE_MAX)] in ["applayer/protocols/smtp/parser.rs"],
        "event, the rest of the line is skipped; longer lines of a message are read in pieces", [Event("smtp.truncated_line")];
    Protocol "SMTP: envelopes held for a flow" = "{}" [count(parser::TX_MAX)] in ["applayer/protocols/smtp/parser.rs"],
        "the oldest are let go of", [Event("smtp.flooded")];
    Protocol "SMTP: commands that wait for a reply" = "{}" [count(replies::WAITING_MAX)] in ["applayer/protocols/smtp/replies.rs"],
        "the oldest are forgotten", [Nothing];
    Protocol "SMTP: recipients of an envelope" = "{}" [count(tx::RECIPIENTS_MAX)] in ["applayer/protocols/smtp/tx.rs"],
        "event, further ones are left out", [Event("smtp.flooded")];
    Protocol "Mail: header fields of a message, nested parts" = "{}, {}" [bytes(message::HEADERS_MAX), count(message::BOUNDARIES_MAX)]
        in ["applayer/content/mime/message.rs"], "event, further ones are left out", [Event("smtp.mime_malformed_msg")];
    Protocol "Mail: URLs, and names of attachments, of a message" = "{} each" [count(message::NAMES_MAX)]
        in ["applayer/content/mime/message.rs"], "further ones are left out", [Nothing];
};

/// Matches a client's first command on any port, and a greeting at SMTP's ports: other protocols have the
/// same code.
fn probe(_transport: Transport, direction: Direction, data: &[u8]) -> Probe {
    if direction == Direction::ToClient {
        let head = data.get(..3).unwrap_or(data);
        let is_code = b"220".starts_with(head) && matches!(data.get(3), None | Some(b' ' | b'-'));
        return match is_code {
            true if memchr::memchr(b'\n', data).is_some() => Probe::Yes(direction),
            true => Probe::More,
            false => Probe::No,
        };
    }
    let mut found = Probe::No;
    for pattern in PATTERNS {
        let begin = data.get(..pattern.bytes.len()).unwrap_or(data);
        if pattern.bytes.get(..begin.len()).is_some_and(|bytes| bytes.eq_ignore_ascii_case(begin)) {
            if begin.len() == pattern.bytes.len() {
                return Probe::Yes(direction);
            }
            found = Probe::More;
        }
    }
    found
}

/// Matches first lines that servers take on any port, in prevention.
fn likely(_transport: Transport, direction: Direction, data: &[u8]) -> Probe {
    first_line::SMTP.likely(direction, data)
}

fn configure(settings: &SettingsMap) -> Result<Box<dyn ParserFactory>, SettingError> {
    Ok(Box::new(SmtpFactory { config: Arc::new(SmtpConfig::read(settings)?) }))
}

struct SmtpFactory {
    config: Arc<SmtpConfig>,
}

impl ParserFactory for SmtpFactory {
    fn make(&self) -> Box<dyn Parser> {
        Box::new(parser::SmtpParser::new(Arc::clone(&self.config)))
    }
}
