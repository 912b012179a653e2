// SPDX-License-Identifier: Apache-2.0
//! Progress values, bounds, buffers, numbers, events and settings of FTP.

use crate::event::EventCode;
use crate::protocol::{BufferKind, BufferSpec, NumberId, NumberSpec, buffer};
use bartizan_base::PerDirection;

/// Progress of a command with a final reply.
pub(super) const COMPLETE: u8 = 1;
/// Default of `max-line-length`, in bytes.
pub(super) const LINE_MAX: usize = 4_096;
/// Default of `max-tx`.
pub(super) const TX_MAX: usize = 1_024;
/// Limit of the bytes of one transaction's replies.
pub(super) const REPLIES_MAX: usize = 64 << 10;

pub(super) const COMMAND: u16 = 0;
pub(super) const COMMAND_DATA: u16 = 1;
pub(super) const REPLY: u16 = 2;
pub(super) const COMPLETION_CODE: u16 = 3;

pub(super) const BUFFERS: &[BufferSpec] = &[
    buffer(COMMAND, "ftp.command", true, false, 0, BufferKind::Single),
    buffer(COMMAND_DATA, "ftp.command_data", true, false, 0, BufferKind::Single),
    buffer(REPLY, "ftp.reply", false, true, COMPLETE, BufferKind::Multi),
    buffer(COMPLETION_CODE, "ftp.completion_code", false, true, COMPLETE, BufferKind::Multi),
];

/// The port of the data connection that command and reply agree on.
pub(super) const DYNAMIC_PORT: NumberId = 0;
/// The number of the mode ([`MODES`]).
pub(super) const MODE: NumberId = 1;
/// 1 once a final reply has come.
pub(super) const REPLY_RECEIVED: NumberId = 2;

pub(super) const NUMBERS: &[NumberSpec] = &[
    NumberSpec { id: DYNAMIC_PORT, name: "ftp.dynamic_port" },
    NumberSpec { id: MODE, name: "ftp.mode" },
    NumberSpec { id: REPLY_RECEIVED, name: "ftp.reply_received" },
];

pub(super) const EVENTS: &[&str] = &[
    "request_command_too_long",
    "response_command_too_long",
    "flooded",
    "file_before_port",
    "file_without_name",
];
pub(super) const REQUEST_TOO_LONG: EventCode = 0;
pub(super) const RESPONSE_TOO_LONG: EventCode = 1;
pub(super) const FLOODED: EventCode = 2;
pub(super) const FILE_BEFORE_PORT: EventCode = 3;
pub(super) const FILE_WITHOUT_NAME: EventCode = 4;

/// States of protocols without names of their own.
pub(super) const STATES: PerDirection<&[&str]> = PerDirection {
    to_server: &["request_started", "request_complete"],
    to_client: &["response_started", "response_complete"],
};

/// Settings that all flows share.
#[derive(Clone, Copy, Debug)]
pub(super) struct FtpConfig {
    pub(super) max_line: usize,
    pub(super) max_tx: usize,
}
