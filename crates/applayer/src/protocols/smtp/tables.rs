// SPDX-License-Identifier: Apache-2.0
//! Progress values, buffers and events of SMTP.

use crate::event::EventCode;
use crate::protocol::{BufferKind, BufferSpec, buffer};

/// Progress from the acceptance of DATA on.
pub(super) const DATA: u8 = 1;
/// Progress of an envelope that is over.
pub(super) const COMPLETE: u8 = 2;

pub(super) const HELO: u16 = 0;
pub(super) const MAIL_FROM: u16 = 1;
pub(super) const RCPT_TO: u16 = 2;
pub(super) const FILE_DATA: u16 = 3;
pub(super) const FILE_NAME: u16 = 4;
pub(super) const FILE_MAGIC: u16 = 5;
pub(super) const EMAIL_URL: u16 = 6;
pub(super) const EMAIL_BODY_MD5: u16 = 7;
pub(super) const EMAIL_RECEIVED: u16 = 8;
/// The buffers of single header fields have numbers from here on, in the order of [`FIELDS`].
pub(super) const EMAIL_FIELDS: u16 = 9;

/// Header fields that are buffers with one value.
pub(super) const FIELDS: [&str; 7] = ["from", "subject", "to", "cc", "date", "message-id", "x-mailer"];

pub(super) const BUFFERS: &[BufferSpec] = &[
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

/// A part of the message, as far as it has come.
const fn email(id: u16, name: &'static str, kind: BufferKind) -> BufferSpec {
    buffer(id, name, true, false, COMPLETE, kind).from(DATA).of_state(DATA)
}

/// Names of the events, as Suricata's records and rules have them.
pub(super) const EVENTS: &[&str] = &[
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
pub(super) const INVALID_REPLY: EventCode = 0;
pub(super) const INVALID_PIPELINED_SEQUENCE: EventCode = 4;
pub(super) const NO_SERVER_WELCOME_MESSAGE: EventCode = 6;
pub(super) const TLS_REJECTED: EventCode = 7;
pub(super) const DATA_COMMAND_REJECTED: EventCode = 8;
pub(super) const MIME_MALFORMED_MSG: EventCode = 11;
pub(super) const MIME_INVALID_BASE64: EventCode = 12;
pub(super) const MIME_INVALID_QP: EventCode = 13;
pub(super) const MIME_LONG_LINE: EventCode = 14;
pub(super) const MIME_LONG_ENC_LINE: EventCode = 15;
pub(super) const MIME_LONG_HEADER_NAME: EventCode = 16;
pub(super) const MIME_LONG_HEADER_VALUE: EventCode = 17;
pub(super) const MIME_LONG_BOUNDARY: EventCode = 18;
pub(super) const MIME_LONG_FILENAME: EventCode = 19;
pub(super) const DUPLICATE_FIELDS: EventCode = 20;
pub(super) const UNPARSABLE_CONTENT: EventCode = 21;
pub(super) const TRUNCATED_LINE: EventCode = 22;
pub(super) const INVALID_BDAT: EventCode = 23;
pub(super) const FLOODED: EventCode = 24;
