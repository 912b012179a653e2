// SPDX-License-Identifier: Apache-2.0
//! SMTP (RFC 5321) with its extensions PIPELINING (RFC 2920), CHUNKING (RFC 3030) and STARTTLS (RFC 3207), and
//! the message that it carries (RFC 5322, MIME).
//!
//! A transaction is an envelope with its message. It is complete when the server has answered the message,
//! RSET, QUIT, or an EHLO that begins the session anew.
//!
//! - `parser`: commands, replies, the lines of a message; `replies`: which reply belongs to which command;
//! - `tx`: the transaction; `config`: settings; the message: `content::mime::message`.
//!
//! Settings (below `app-layer.protocols.smtp`): `raw-extraction`, `mime.decode-mime`, `mime.decode-base64`,
//! `mime.decode-quoted-printable`, `mime.header-value-depth`, `mime.extract-urls`,
//! `mime.extract-urls-schemes`, `mime.log-url-scheme`, `mime.body-md5`, `inspected-tracker.content-limit` (read, and without
//! effect: a file is inspected whole).
//!
//! Not supported: messages in chunks (BDAT) are skipped, as in Suricata; a message after an end of data that
//! not all servers accept (a line feed alone).

mod config;
mod log;
mod parser;
mod replies;
#[cfg(test)]
mod tests;
mod tx;

use crate::content::mime::message;
use crate::event::{EventCode, UNEXPECTED_PROTOCOL};
use crate::protocol::{
    BufferKind, BufferSpec, CounterSpec, DetectionPattern, Parser, ParserFactory, Probe, ProbePort,
    ProtocolSpec, RecordSpec, Transport, buffer,
};
use bartizan_base::limit::LimitTrace::{Event, Nothing};
use bartizan_base::limit::{LimitSpec, bytes, count};
use bartizan_base::{Direction, PerDirection, SettingError, SettingsMap, limits};
use config::SmtpConfig;
use std::sync::Arc;

/// Progress from the acceptance of DATA on.
const DATA: u8 = 1;
/// Progress of an envelope that is over.
const COMPLETE: u8 = 2;

const HELO: u16 = 0;
const MAIL_FROM: u16 = 1;
const RCPT_TO: u16 = 2;
const FILE_DATA: u16 = 3;
const FILE_NAME: u16 = 4;
const FILE_MAGIC: u16 = 5;
const EMAIL_URL: u16 = 6;
const EMAIL_BODY_MD5: u16 = 7;
const EMAIL_RECEIVED: u16 = 8;
/// The buffers of single header fields have numbers from here on, in the order of [`FIELDS`].
const EMAIL_FIELDS: u16 = 9;

/// Header fields that are buffers with one value.
const FIELDS: [&str; 7] = ["from", "subject", "to", "cc", "date", "message-id", "x-mailer"];

const BUFFERS: &[BufferSpec] = &[
    early(HELO, "smtp.helo", BufferKind::Single),
    early(MAIL_FROM, "smtp.mail_from", BufferKind::Single),
    early(RCPT_TO, "smtp.rcpt_to", BufferKind::Multi),
    buffer(FILE_DATA, "file.data", true, false, COMPLETE, BufferKind::Files).of_state(DATA),
    buffer(FILE_NAME, "file.name", true, false, COMPLETE, BufferKind::Multi).of_state(DATA).from(DATA),
    buffer(FILE_MAGIC, "file.magic", true, false, COMPLETE, BufferKind::Multi).of_state(DATA).from(DATA),
    email(EMAIL_URL, "email.url", BufferKind::Multi),
    email(EMAIL_BODY_MD5, "email.body_md5", BufferKind::Single),
    email(EMAIL_RECEIVED, "email.received", BufferKind::Multi),
    email(EMAIL_FIELDS, "email.from", BufferKind::Single),
    email(EMAIL_FIELDS + 1, "email.subject", BufferKind::Single),
    email(EMAIL_FIELDS + 2, "email.to", BufferKind::Single),
    email(EMAIL_FIELDS + 3, "email.cc", BufferKind::Single),
    email(EMAIL_FIELDS + 4, "email.date", BufferKind::Single),
    email(EMAIL_FIELDS + 5, "email.message_id", BufferKind::Single),
    email(EMAIL_FIELDS + 6, "email.x_mailer", BufferKind::Single),
];

/// A part of the envelope, which is there before the message.
const fn early(id: u16, name: &'static str, kind: BufferKind) -> BufferSpec {
    buffer(id, name, true, false, COMPLETE, kind).from(0).of_state(0)
}

/// A part of the message.
const fn email(id: u16, name: &'static str, kind: BufferKind) -> BufferSpec {
    buffer(id, name, true, false, COMPLETE, kind)
}

/// Names of the events, as Suricata's records and rules have them.
const EVENTS: &[&str] = &[
    "INVALID_REPLY",
    "UNABLE_TO_MATCH_REPLY_WITH_REQUEST",
    "MAX_COMMAND_LINE_LEN_EXCEEDED",
    "MAX_REPLY_LINE_LEN_EXCEEDED",
    "INVALID_PIPELINED_SEQUENCE",
    "BDAT_CHUNK_LEN_EXCEEDED",
    "NO_SERVER_WELCOME_MESSAGE",
    "TLS_REJECTED",
    "DATA_COMMAND_REJECTED",
    "FAILED_PROTOCOL_CHANGE",
    "MIME_PARSE_FAILED",
    "MIME_MALFORMED_MSG",
    "MIME_INVALID_BASE64",
    "MIME_INVALID_QP",
    "MIME_LONG_LINE",
    "MIME_LONG_ENC_LINE",
    "MIME_LONG_HEADER_NAME",
    "MIME_LONG_HEADER_VALUE",
    "MIME_LONG_BOUNDARY",
    "MIME_LONG_FILENAME",
    "DUPLICATE_FIELDS",
    "UNPARSABLE_CONTENT",
    "TRUNCATED_LINE",
    "INVALID_BDAT",
    "FLOODED",
];
const INVALID_REPLY: EventCode = 0;
const INVALID_PIPELINED_SEQUENCE: EventCode = 4;
const NO_SERVER_WELCOME_MESSAGE: EventCode = 6;
const TLS_REJECTED: EventCode = 7;
const DATA_COMMAND_REJECTED: EventCode = 8;
const MIME_MALFORMED_MSG: EventCode = 11;
const MIME_INVALID_BASE64: EventCode = 12;
const MIME_INVALID_QP: EventCode = 13;
const MIME_LONG_LINE: EventCode = 14;
const MIME_LONG_ENC_LINE: EventCode = 15;
const MIME_LONG_HEADER_NAME: EventCode = 16;
const MIME_LONG_HEADER_VALUE: EventCode = 17;
const MIME_LONG_BOUNDARY: EventCode = 18;
const MIME_LONG_FILENAME: EventCode = 19;
const DUPLICATE_FIELDS: EventCode = 20;
const UNPARSABLE_CONTENT: EventCode = 21;
const TRUNCATED_LINE: EventCode = 22;
const INVALID_BDAT: EventCode = 23;
const FLOODED: EventCode = 24;

/// SMTP's entry in the table of protocols.
pub static SPEC: ProtocolSpec = ProtocolSpec {
    name: "smtp",
    aliases: &[],
    family: None,
    exact_name: "smtp",
    eve_name: "smtp",
    eve_type: Some("smtp"),
    records: RecordSpec { tx_id: true, ..RecordSpec::PLAIN },
    counters: CounterSpec::PLAIN,
    transports: &[Transport::Tcp],
    patterns: PATTERNS,
    ports: &[port(25), port(465)],
    probe: Some(probe),
    likely: None,
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
