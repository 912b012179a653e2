// SPDX-License-Identifier: Apache-2.0
//! Progress values, bounds, buffers, numbers, events and settings of SMB.

use super::file::QueueLimits;
use crate::event::EventCode;
use crate::protocol::{BufferKind, BufferSpec, NumberId, NumberSpec, buffer};
use bartizan_base::{PerDirection, SettingError, SettingsMap};

/// Progress of a direction that is complete.
pub(super) const COMPLETE: u8 = 1;

/// States of protocols without names of their own.
pub(super) const STATES: PerDirection<&[&str]> = PerDirection {
    to_server: &["request_started", "request_complete"],
    to_client: &["response_started", "response_complete"],
};

pub(super) const NAMED_PIPE: u16 = 0;
pub(super) const SHARE: u16 = 1;
pub(super) const NTLM_USER: u16 = 2;
pub(super) const NTLM_DOMAIN: u16 = 3;
pub(super) const STUB: u16 = 4;
pub(super) const FILE_DATA: u16 = 5;
pub(super) const FILE_NAME: u16 = 6;
pub(super) const FILE_MAGIC: u16 = 7;

pub(super) const BUFFERS: &[BufferSpec] = &[
    buffer(NAMED_PIPE, "smb.named_pipe", true, false, COMPLETE, BufferKind::Single).of_state(0).from(0),
    buffer(SHARE, "smb.share", true, false, COMPLETE, BufferKind::Single).of_state(0).from(0),
    buffer(NTLM_USER, "smb.ntlmssp_user", true, false, COMPLETE, BufferKind::Single).of_state(0),
    buffer(NTLM_DOMAIN, "smb.ntlmssp_domain", true, false, COMPLETE, BufferKind::Single).of_state(0),
    buffer(STUB, "dcerpc.stub_data", true, true, COMPLETE, BufferKind::Single).of_state(0),
    buffer(FILE_DATA, "file.data", true, true, COMPLETE, BufferKind::Files).of_state(0),
    buffer(FILE_NAME, "file.name", true, true, COMPLETE, BufferKind::Multi).of_state(0).from(0),
    buffer(FILE_MAGIC, "file.magic", true, true, COMPLETE, BufferKind::Multi).of_state(0).from(0),
];

/// 1, or 2 for SMB2 and SMB3.
pub(super) const VERSION: NumberId = 0;

pub(super) const NUMBERS: &[NumberSpec] = &[NumberSpec { id: VERSION, name: "smb.version" }];

pub(super) const EVENTS: &[&str] = &[
    "internal_error",
    "malformed_data",
    "record_overflow",
    "malformed_ntlmssp_request",
    "malformed_ntlmssp_response",
    "duplicate_negotiate",
    "negotiate_malformed_dialects",
    "file_overlap",
    "request_to_client",
    "response_to_server",
    "negotiate_max_read_size_too_large",
    "negotiate_max_write_size_too_large",
    "read_request_too_large",
    "read_response_too_large",
    "read_queue_size_exceeded",
    "read_queue_cnt_exceeded",
    "write_request_too_large",
    "write_queue_size_exceeded",
    "write_queue_cnt_exceeded",
    "too_many_transactions",
];
pub(super) const MALFORMED_DATA: EventCode = 1;
pub(super) const RECORD_OVERFLOW: EventCode = 2;
pub(super) const MALFORMED_NTLMSSP: EventCode = 3;
pub(super) const DUPLICATE_NEGOTIATE: EventCode = 5;
pub(super) const MALFORMED_DIALECTS: EventCode = 6;
pub(super) const FILE_OVERLAP: EventCode = 7;
pub(super) const REQUEST_TO_CLIENT: EventCode = 8;
pub(super) const RESPONSE_TO_SERVER: EventCode = 9;
pub(super) const MAX_READ_TOO_LARGE: EventCode = 10;
pub(super) const MAX_WRITE_TOO_LARGE: EventCode = 11;
pub(super) const READ_REQUEST_TOO_LARGE: EventCode = 12;
/// Events of a direction's pieces: too large, too many bytes wait, too many wait.
pub(super) const PIECE_EVENTS: PerDirection<[EventCode; 3]> =
    PerDirection { to_server: [16, 17, 18], to_client: [13, 14, 15] };
pub(super) const TOO_MANY_TRANSACTIONS: EventCode = 19;

/// Names of kinds of records (`types` of the output).
pub(super) const RECORD_TYPES: [&str; 10] = [
    "generic",
    "negotiate",
    "session_setup",
    "tree_connect",
    "create",
    "file",
    "ioctl",
    "rename",
    "set_file_path_info",
    "dcerpc",
];

/// Names of frames; the stream's own is the first.
pub(super) const FRAMES: &[&str] = &[
    "stream",
    "nbss.pdu",
    "nbss.hdr",
    "nbss.data",
    "smb1.pdu",
    "smb1.hdr",
    "smb1.data",
    "smb2.pdu",
    "smb2.hdr",
    "smb2.data",
    "smb3.pdu",
    "smb3.hdr",
    "smb3.data",
];

/// Limit of a message that is read whole, in bytes; of longer ones the first part is read. Pieces of files
/// have no such limit.
pub(super) const MESSAGE_MAX: usize = 68 << 10;
/// Default of `max-tx`.
pub(super) const TX_MAX: usize = 1_024;
/// Default of `max-guid-cache-size`.
pub(super) const NAMES_MAX: usize = 1_024;
/// Default of `max-read-offset-cache-size`.
pub(super) const READS_MAX: usize = 128;
/// Limit of the reads, and of the closings, of which a place is kept in prevention: the credits that servers
/// give a client ([MS-SMB2] section 3.3.1.2).
pub(super) const READS_STRICT: usize = 8_192;
/// Limit of the transactions since the oldest open one, as a multiple of `max-tx`.
pub(super) const SPAN: usize = 2;
/// Default of `max-tree-cache-size`, and of `max-session-cache-size`.
pub(super) const TREES_MAX: usize = 512;
/// Default of `max-dcerpc-frag-cache-size`.
pub(super) const PARTS_MAX: usize = 128;
/// Default of `dcerpc.max-stub-size`.
pub(super) const STUB_MAX: usize = 1 << 20;
/// Default of `max-read-size` and `max-write-size`.
pub(super) const PIECE_MAX: u64 = 16 << 20;
/// Default of `max-read-queue-size` and `max-write-queue-size`.
pub(super) const QUEUE_MAX: u64 = 64 << 20;
/// Default of `max-read-queue-cnt` and `max-write-queue-cnt`.
pub(super) const QUEUE_PIECES: usize = 64;
/// Limit of the interfaces of a connection.
pub(super) const INTERFACES_MAX: usize = 256;

/// Settings that all flows share.
#[derive(Clone, Copy, Debug)]
pub(super) struct SmbConfig {
    pub(super) max_tx: usize,
    pub(super) names: usize,
    pub(super) reads: usize,
    pub(super) trees: usize,
    pub(super) sessions: usize,
    pub(super) parts: usize,
    pub(super) stub: usize,
    /// Limit of a piece that a direction's messages carry; 0 for no bound.
    pub(super) piece: PerDirection<u64>,
    pub(super) queue: PerDirection<QueueLimits>,
}

impl SmbConfig {
    pub(super) fn read(settings: &SettingsMap) -> Result<Self, SettingError> {
        let queue = |kind: &str| {
            Ok(QueueLimits {
                bytes: settings.size(&format!("max-{kind}-queue-size"), QUEUE_MAX)?,
                pieces: settings.number(&format!("max-{kind}-queue-cnt"), QUEUE_PIECES)?,
            })
        };
        let stub = settings.size("dcerpc.max-stub-size", STUB_MAX as u64)?;
        Ok(SmbConfig {
            max_tx: settings.number("max-tx", TX_MAX)?.max(1),
            names: settings.number("max-guid-cache-size", NAMES_MAX)?,
            reads: settings.number("max-read-offset-cache-size", READS_MAX)?,
            trees: settings.number("max-tree-cache-size", TREES_MAX)?,
            sessions: settings.number("max-session-cache-size", TREES_MAX)?,
            parts: settings.number("max-dcerpc-frag-cache-size", PARTS_MAX)?,
            stub: usize::try_from(stub).unwrap_or(usize::MAX),
            piece: PerDirection {
                to_server: settings.size("max-write-size", PIECE_MAX)?,
                to_client: settings.size("max-read-size", PIECE_MAX)?,
            },
            queue: PerDirection { to_server: queue("write")?, to_client: queue("read")? },
        })
    }
}
