// SPDX-License-Identifier: Apache-2.0
//! SMB 1, 2 and 3 ([MS-CIFS], [MS-SMB], [MS-SMB2]) over TCP (port 445) and over NetBIOS (RFC 1002, port 139),
//! with the remote procedure calls in its pipes ([MS-RPCE]).
//!
//! A transaction is a request with its response, a file from its first piece to its CLOSE, or a call in a
//! pipe from its first fragment to the last of its answer.
//!
//! - `parser`: messages and their pieces; `session`: what a connection remembers; `smb1`, `smb2`: requests
//!   and responses; `pipe`: calls; `file`: pieces of files in any order; `secblob`: who logs in;
//! - `tables`: names, bounds, settings; `names`: names in records; `tx`, `log`: the transaction.
//!
//! Settings (below `app-layer.protocols.smb`): `max-tx`, `max-read-size`, `max-write-size`,
//! `max-read-queue-size`, `max-read-queue-cnt`, `max-write-queue-size`, `max-write-queue-cnt`,
//! `max-guid-cache-size`, `max-read-offset-cache-size`, `max-tree-cache-size`, `max-session-cache-size`,
//! `max-dcerpc-frag-cache-size`, `dcerpc.max-stub-size`.
//!
//! Not supported: what is encrypted (SMB3's transform header); what is compressed; raw reads and writes of
//! SMB1; names in UTF-16 beyond ASCII are shown as Suricata shows them.

mod bytes;
mod cache;
mod file;
mod handle;
mod image;
mod log;
mod names;
mod parser;
mod pipe;
mod secblob;
mod session;
mod smb1;
mod smb2;
mod tables;
#[cfg(test)]
mod tests;
mod tx;

use crate::event::UNEXPECTED_PROTOCOL;
use crate::protocol::{
    CounterSpec, DetectionPattern, Parser, ParserFactory, Probe, ProbePort, ProtocolSpec, RecordSpec,
    Transport,
};
use bartizan_base::limit::LimitTrace::{Event, Nothing};
use bartizan_base::limit::{LimitSpec, bytes, count};
use bartizan_base::{Direction, PerDirection, SettingError, SettingsMap, limits};
use tables::{BUFFERS, COMPLETE, EVENTS, FRAMES, NUMBERS, STATES, SmbConfig};

/// SMB's entry in the table of protocols.
pub static SPEC: ProtocolSpec = ProtocolSpec {
    name: "smb",
    aliases: &[],
    family: None,
    carries: Some(&["dcerpc"]),
    exact_name: "smb",
    eve_name: "smb",
    eve_type: Some("smb"),
    records: RecordSpec { tx_id: true, ..RecordSpec::PLAIN },
    counters: CounterSpec::PLAIN,
    transports: &[Transport::Tcp],
    patterns: PATTERNS,
    ports: &[port(445), port(139)],
    probe: Some(probe),
    likely: Some(likely),
    enabled_by_default: true,
    complete: PerDirection::new(COMPLETE, COMPLETE),
    states: STATES,
    buffers: BUFFERS,
    numbers: NUMBERS,
    encrypted: None,
    frames: FRAMES,
    events: EVENTS,
    absent: UNEXPECTED_PROTOCOL,
    has_trailing_bytes: false,
    limits: LIMITS,
    configure,
};

/// Length of the smallest header, with that of NetBIOS.
const LEAST: u16 = 36;

const fn port(port: u16) -> ProbePort {
    ProbePort { transport: Transport::Tcp, port, min_depth: LEAST, max_depth: LEAST }
}

const fn magic(direction: Direction, bytes: &'static [u8]) -> DetectionPattern {
    DetectionPattern { transport: Transport::Tcp, direction, bytes, nocase: false, offset: 4, depth: 8 }
}

/// First bytes of messages: SMB1, SMB2 and SMB3, encrypted ones.
const PATTERNS: &[DetectionPattern] = &[
    magic(Direction::ToServer, b"\xffSMB"),
    magic(Direction::ToClient, b"\xffSMB"),
    magic(Direction::ToServer, b"\xfeSMB"),
    magic(Direction::ToClient, b"\xfeSMB"),
    magic(Direction::ToServer, b"\xfdSMB"),
    magic(Direction::ToClient, b"\xfdSMB"),
];

/// Bounds of this protocol.
pub(crate) const LIMITS: &[LimitSpec] = limits! {
    Protocol "SMB: message that is read whole" = "{}" [bytes(tables::MESSAGE_MAX)] in ["applayer/protocols/smb/tables.rs"],
        "of longer ones the first part is read; pieces of files have no such bound", [Event("smb.record_overflow")];
    Protocol "SMB: transactions of a flow without an end (`max-tx`)" = "{}" [count(tables::TX_MAX)] in ["applayer/protocols/smb/tables.rs"],
        "event, the flow is parsed no further, as in Suricata", [Event("smb.too_many_transactions")];
    Protocol "SMB: names of open files, and of files to be opened (`max-guid-cache-size`, `max-session-cache-size`)" = "{}, {}"
        [count(tables::NAMES_MAX), count(tables::TREES_MAX)] in ["applayer/protocols/smb/tables.rs"], "the oldest are forgotten", [Nothing];
    Protocol "SMB: connected shares, reads without an answer, answers of pipes in parts (`max-tree-cache-size`, `max-read-offset-cache-size`, `max-dcerpc-frag-cache-size`)"
        = "{}, {}, {}" [count(tables::TREES_MAX), count(tables::READS_MAX), count(tables::PARTS_MAX)]
        in ["applayer/protocols/smb/tables.rs"], "the oldest are forgotten", [Nothing];
    Protocol "SMB: transactions since the oldest one that is open" = "{} times `max-tx`" [count(tables::SPAN)] in ["applayer/protocols/smb/tables.rs"],
        "the oldest is ended; what follows of its file is a transfer of its own", [Nothing];
    Protocol "SMB: reads, and closings of files, without an answer, in prevention" = "{}" [count(tables::READS_STRICT)]
        in ["applayer/protocols/smb/tables.rs"], "what was read is inspected as a file of its own; a file stays open", [Nothing];
    Protocol "SMB: piece of a file that is read or written (`max-read-size`, `max-write-size`)" = "{}" [bytes(tables::PIECE_MAX as usize)]
        in ["applayer/protocols/smb/tables.rs"], "event, the piece is skipped", [Event("smb.read_response_too_large"), Event("smb.write_request_too_large")];
    Protocol "SMB: pieces of a file that wait for earlier ones (`max-read-queue-size`, `max-read-queue-cnt` and those of writing)" = "{}, {}"
        [bytes(tables::QUEUE_MAX as usize), count(tables::QUEUE_PIECES)] in ["applayer/protocols/smb/tables.rs"],
        "event, the piece is skipped", [Event("smb.read_queue_size_exceeded"), Event("smb.write_queue_size_exceeded")];
    Protocol "SMB: parts of a file with gaps between, in prevention; bytes that are inspected on either side of a seam" = "{}, {}"
        [count(image::EXTENTS_MAX), bytes(image::SEAM)] in ["applayer/protocols/smb/image.rs"],
        "the part that was written first is inspected beside no further one", [Nothing];
    Protocol "SMB: bytes of a file, and of a part of it, beside which later pieces are inspected, in prevention" = "{}, {}"
        [bytes(image::IMAGE_BYTES), bytes(image::EXTENT_BYTES)] in ["applayer/protocols/smb/image.rs"],
        "parts that were written first are forgotten, and the middle of a longer part", [Nothing];
    Protocol "SMB: pieces out of order in a transfer, in prevention" = "{}" [count(file::RUNS_MAX)] in ["applayer/protocols/smb/file.rs"],
        "a further one is a transfer of its own", [Nothing];
    Protocol "SMB: arguments of a remote call (`dcerpc.max-stub-size`), interfaces of a connection" = "{}, {}"
        [bytes(tables::STUB_MAX), count(tables::INTERFACES_MAX)] in ["applayer/protocols/smb/tables.rs"],
        "further bytes, and interfaces, are left out", [Nothing];
    Protocol "SMB: name of a file, a share, a user" = "{}" [bytes(self::bytes::NAME_MAX)] in ["applayer/protocols/smb/bytes.rs"],
        "the name is cut", [Nothing];
};

/// Type of a NetBIOS message that carries SMB (RFC 1002 section 4.3.1).
const SESSION_MESSAGE: u8 = 0;
/// Types of NetBIOS's other messages: requests of a session and answers to them, signs of life.
const SESSION_REQUEST: u8 = 0x81;
const SESSION_LAST: u8 = 0x85;

/// Whether bytes begin a message of SMB; `None`: there are too few.
fn is_magic(data: &[u8]) -> Option<bool> {
    let head = data.get(..4).unwrap_or(data);
    let is_same = |magic: &[u8; 4]| magic.starts_with(head);
    let fits = [b"\xffSMB", b"\xfeSMB", b"\xfdSMB", b"\xfcSMB"].into_iter().any(is_same);
    if !fits {
        return Some(false);
    }
    (head.len() == 4).then_some(true)
}

/// The side that sends a message, by a flag of its header.
fn sender(message: &[u8]) -> Option<Direction> {
    let is_response = match message.first()? {
        0xff => message.get(9)? & 0x80 != 0,
        0xfe => message.get(16)? & 1 != 0,
        // Nothing in the header of an encrypted message tells.
        _ => return None,
    };
    Some(if is_response { Direction::ToClient } else { Direction::ToServer })
}

/// Limit of a NetBIOS message before the first of SMB, in bytes.
const BEFORE_MAX: usize = 256;

/// Matches a message of SMB, or one that opens a NetBIOS session before it.
fn probe(_transport: Transport, direction: Direction, data: &[u8]) -> Probe {
    let [kind, rest @ ..] = data else { return Probe::More };
    match *kind {
        SESSION_MESSAGE => {}
        SESSION_REQUEST..=SESSION_LAST => {
            let Some((length, rest)) = rest.split_first_chunk::<3>() else { return Probe::More };
            let [a, b, c] = *length;
            let length = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap_or(usize::MAX);
            if length >= BEFORE_MAX {
                return Probe::No;
            }
            let Some([SESSION_MESSAGE, _, _, _, message @ ..]) = rest.get(length..) else {
                return if rest.len() <= length { Probe::More } else { Probe::No };
            };
            return match is_magic(message) {
                Some(true) => Probe::Yes(direction),
                Some(false) => Probe::No,
                None => Probe::More,
            };
        }
        _ => return Probe::No,
    }
    let Some(message) = rest.get(3..) else { return Probe::More };
    match is_magic(message) {
        Some(false) => Probe::No,
        None => Probe::More,
        Some(true) if message.len() < usize::from(LEAST) - 4 => Probe::More,
        Some(true) => Probe::Yes(sender(message).unwrap_or(direction)),
    }
}

/// Limit of the bytes before the first message of SMB, in prevention.
const PASSED_MAX: usize = 4_096;

/// Matches the first message of SMB on any port, in prevention: after any messages of NetBIOS, and empty
/// ones, over which servers pass.
fn likely(_transport: Transport, direction: Direction, data: &[u8]) -> Probe {
    let mut rest = data;
    loop {
        let [kind, length @ ..] = rest else { return Probe::More };
        if !matches!(*kind, SESSION_MESSAGE | SESSION_REQUEST..=SESSION_LAST) {
            return Probe::No;
        }
        let Some(([a, b, c], message)) = length.split_first_chunk::<3>() else { return Probe::More };
        let length = usize::try_from(u32::from_be_bytes([0, *a, *b, *c])).unwrap_or(usize::MAX);
        if *kind == SESSION_MESSAGE && length > 0 {
            return match is_magic(message) {
                Some(true) => Probe::Yes(direction),
                Some(false) => Probe::No,
                None => Probe::More,
            };
        }
        let passed = data.len().saturating_sub(message.len()).saturating_add(length);
        if passed > PASSED_MAX {
            return Probe::No;
        }
        match message.get(length..) {
            Some(behind) => rest = behind,
            None => return Probe::More,
        }
    }
}

fn configure(settings: &SettingsMap) -> Result<Box<dyn ParserFactory>, SettingError> {
    Ok(Box::new(SmbFactory { config: SmbConfig::read(settings)? }))
}

struct SmbFactory {
    config: SmbConfig,
}

impl ParserFactory for SmbFactory {
    fn make(&self) -> Box<dyn Parser> {
        Box::new(parser::SmbParser::new(self.config))
    }
}
