// SPDX-License-Identifier: Apache-2.0
//! The record layer (RFC 8446 section 5.1) and the parser of a flow.
//!
//! A record is parsed when it is complete, payload as it comes. The flow's one transaction holds its state; a
//! message that spans records is the only further buffer.
//!
//! Not supported: parsing after a gap (Suricata stops there, too).

use super::config::TlsParserConfig;
use super::handshake::{self, Assembly};
use super::sslv2;
use super::tx::{ClientState, ServerState, TlsFlags, TlsTx};
use super::{events, heartbeat, version};
use crate::frames::{Notes, ProtocolFrameNote};
use crate::protocol::{Input, ParseContext, Parser, Progress};
use crate::transaction::{single_held, single_transaction};
use crate::worklist::Worklist;
use bartizan_base::{Direction, PerDirection};
use std::sync::Arc;

const HEAD: usize = 5;
/// Bytes of a record's head up to and including the version.
const VERSIONED: usize = 3;
/// First byte of a record's version, from SSL 3.0 to TLS 1.3.
const MAJOR: u8 = 3;
/// Length of the longest record, in bytes: 16 KB of text, and the additions of compression and encryption
/// (RFC 5246 section 6.2.3).
pub(super) const RECORD_MAX: usize = (1 << 14) + 2048;
/// Limit of successive empty records, as in OpenSSL; more end the parsing.
pub(super) const EMPTY_MAX: u32 = 32;
/// Length, in bytes, below which records are unusual; many of them raise `TOO_MANY_RECORDS_IN_PACKET`.
const RECORD_USUAL: u64 = 6;

pub(super) const CHANGE_CIPHER_SPEC: u8 = 20;
pub(super) const ALERT: u8 = 21;
pub(super) const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
const HEARTBEAT: u8 = 24;

/// State of one direction's record layer.
#[derive(Debug, Default)]
struct Records {
    /// Bytes of a record that are to be skipped.
    skip: usize,
    /// The first record is incomplete and was inspected before.
    partial: bool,
    /// The frames of the first record were recorded.
    noted: bool,
    assembly: Assembly,
    /// Number of records so far.
    count: u64,
    bytes: u64,
    /// Number of empty records since the last one with content.
    empty: u32,
    /// Number of records so far that are no application data.
    messages: u64,
}

/// The parser of a TLS flow.
#[derive(Debug)]
pub(super) struct TlsParser {
    tx: Option<TlsTx>,
    records: PerDirection<Records>,
    work: Worklist,
    frames: Notes,
}

/// The result of parsing the front of the data.
enum TlsParseStep {
    /// Number of bytes that were consumed.
    Taken(usize),
    /// Number of bytes that are needed from here.
    Needs(usize),
}

impl TlsParser {
    pub(super) fn new(config: Arc<TlsParserConfig>) -> Self {
        TlsParser {
            tx: Some(TlsTx::new(config)),
            records: PerDirection::default(),
            work: Worklist::default(),
            frames: Notes::default(),
        }
    }

    /// Parses the records of the input.
    fn records(
        &mut self,
        direction: Direction,
        input: Input<'_>,
        context: &mut ParseContext<'_>,
    ) -> Progress {
        let Some(tx) = self.tx.as_mut() else { return Progress::Done };
        let client_begins =
            context.prevents && direction == Direction::ToServer && self.records.to_client.bytes == 0;
        let records = &mut self.records[direction];
        // The end brings no record: the flags of the last one remain.
        if records.skip == 0 && !records.partial && !input.data.is_empty() {
            tx.current = TlsFlags::empty();
        }
        let was_encrypted = tx.encrypted;
        let mut rest = input.data;
        while !rest.is_empty() {
            let skipped = records.skip;
            let step = if records.skip > 0 {
                let length = records.skip.min(rest.len());
                records.skip = records.skip.saturating_sub(length);
                Ok(TlsParseStep::Taken(length))
            } else if sslv2::begins(*rest.first().unwrap_or(&0)) {
                old_record(tx, records, direction, rest)
            } else {
                let before_hello = client_begins && !tx.flags.contains(TlsFlags::CLIENT_HELLO);
                record(tx, records, direction, rest, before_hello)
            };
            // A record is noted as a frame with the bytes that contain its length.
            if skipped == 0 && self.frames.on && !records.noted {
                let at = input.offset.saturating_add(input.data.len().saturating_sub(rest.len()) as u64);
                records.noted = note(&mut self.frames, direction, at, rest);
            }
            match step {
                Ok(TlsParseStep::Taken(length)) => {
                    records.partial = false;
                    records.noted = false;
                    rest = rest.get(length..).unwrap_or_default();
                }
                Ok(TlsParseStep::Needs(length)) => {
                    records.partial = true;
                    let consumed = input.data.len().saturating_sub(rest.len());
                    if tx.encrypted && !was_encrypted && tx.config.bypass() {
                        break;
                    }
                    return Progress::Incomplete { consumed, needed: length.max(1) };
                }
                Err(event) => {
                    tx.event(event);
                    return Progress::Error;
                }
            }
        }
        tx.piece_done(direction, context.prevents);
        if tx.encrypted && tx.config.bypass() {
            return Progress::Stop { bypass: true };
        }
        Progress::Done
    }
}

impl Parser for TlsParser {
    fn is_encrypted(&self) -> bool {
        self.tx.as_ref().is_some_and(|tx| tx.encrypted)
    }

    fn parse(&mut self, direction: Direction, input: Input<'_>, context: &mut ParseContext<'_>) -> Progress {
        let before = self.tx.as_ref().map(TlsTx::visible_state);
        let messages = self.records[direction].messages;
        let progress = self.records(direction, input, context);
        let same = self.tx.as_ref().map(TlsTx::visible_state) == before;
        if same && self.is_encrypted() && self.records[direction].messages == messages {
            self.work.parsed_on(0);
        } else {
            self.work.changed(0);
        }
        progress
    }

    fn gap(&mut self, _direction: Direction, _missing: u64, _context: &mut ParseContext<'_>) -> bool {
        false
    }

    single_transaction!();

    fn frames(&mut self) -> Option<&mut Notes> {
        Some(&mut self.frames)
    }

    fn held(&mut self) -> usize {
        let assemblies = self.records.to_server.assembly.held() + self.records.to_client.assembly.held();
        let tx = single_held(self.tx.as_mut(), &mut self.work);
        size_of::<Self>().saturating_add(assemblies).saturating_add(tx)
    }

    fn end(&mut self, direction: Direction, _context: &mut ParseContext<'_>) {
        let Some(tx) = self.tx.as_mut() else { return };
        match direction {
            Direction::ToServer => tx.client_at(ClientState::Finished),
            Direction::ToClient => tx.server_at(ServerState::Finished),
        }
        self.work.changed(0);
    }
}

/// Indexes of the frames in the protocol's list.
const PDU_FRAME: u8 = 1;
const HEAD_FRAME: u8 = 2;
const DATA_FRAME: u8 = 3;
const ALERT_FRAME: u8 = 4;
const HEARTBEAT_FRAME: u8 = 5;
const OLD_HEAD_FRAME: u8 = 6;
const OLD_PDU_FRAME: u8 = 7;

/// Notes the frames of the first record; `false`: its length has not come yet.
fn note(notes: &mut Notes, direction: Direction, at: u64, data: &[u8]) -> bool {
    let mut add = |kind, at, len: usize| {
        notes.add(direction, ProtocolFrameNote::Whole { kind, at, len: len as u64, tx: Some(0) });
    };
    if sslv2::begins(*data.first().unwrap_or(&0)) {
        let Some((head, length)) = sslv2::lengths(data) else { return false };
        add(OLD_HEAD_FRAME, at, head);
        add(OLD_PDU_FRAME, at, head.saturating_add(length));
        return true;
    }
    let [kind, _, _, high, low, ..] = data else { return false };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    let body = at.saturating_add(HEAD as u64);
    add(HEAD_FRAME, at, HEAD);
    add(DATA_FRAME, body, length);
    add(PDU_FRAME, at, HEAD.saturating_add(length));
    match *kind {
        ALERT => add(ALERT_FRAME, body, length),
        HEARTBEAT => add(HEARTBEAT_FRAME, body, length),
        _ => {}
    }
    true
}

/// Counts a record. Too many very short ones end the parsing.
fn count(tx: &mut TlsTx, records: &mut Records, length: usize) -> Result<(), u8> {
    records.count = records.count.saturating_add(1);
    records.bytes = records.bytes.saturating_add(length as u64);
    if records.count > records.bytes / RECORD_USUAL + 1 && records.count > 2 {
        tx.event(events::TOO_MANY_RECORDS_IN_PACKET);
        return Err(events::TOO_MANY_RECORDS_IN_PACKET);
    }
    Ok(())
}

/// Parses a record of SSL 2.0.
fn old_record(
    tx: &mut TlsTx,
    records: &mut Records,
    direction: Direction,
    data: &[u8],
) -> Result<TlsParseStep, u8> {
    let Some((head, length)) = sslv2::lengths(data) else { return Ok(TlsParseStep::Needs(3)) };
    tx.sides[direction].version = version::SSL2;
    records.messages = records.messages.wrapping_add(1);
    let whole = head.saturating_add(length);
    let Some(body) = data.get(head..whole) else { return Ok(TlsParseStep::Needs(whole)) };
    sslv2::record(tx, direction, body)?;
    count(tx, records, whole)?;
    Ok(TlsParseStep::Taken(whole))
}

/// Parses a record of SSL 3.0 or TLS. `before_hello`: the record precedes the client's hello, and data that a
/// lenient server skips or does not check is neither an error nor a step of the handshake (see
/// [`super::likely`]).
fn record(
    tx: &mut TlsTx,
    records: &mut Records,
    direction: Direction,
    data: &[u8],
    before_hello: bool,
) -> Result<TlsParseStep, u8> {
    let hello = match direction {
        Direction::ToServer => TlsFlags::CLIENT_HELLO,
        Direction::ToClient => TlsFlags::SERVER_HELLO,
    };
    let [kind, major, minor, high, low, rest @ ..] = data else {
        return Ok(TlsParseStep::Needs(part_of_a_head(tx, direction, hello, data)));
    };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    let side = &mut tx.sides[direction];
    if side.version == version::SSL2 {
        side.version = version::UNKNOWN;
    }
    let before = side.version;
    // The hello's version precedes the record's.
    let current = if tx.flags.contains(hello) && before != version::UNKNOWN {
        before
    } else {
        u16::from_be_bytes([*major, *minor])
    };
    if !(CHANGE_CIPHER_SPEC..=HEARTBEAT).contains(kind) {
        if !matches!(before, 0x0301 | 0x0302) {
            return Err(events::INVALID_RECORD_TYPE);
        }
        // TLS 1.0 and 1.1 let implementations ignore unknown records.
        tx.event(events::INVALID_RECORD_TYPE);
        records.skip = length;
        return Ok(TlsParseStep::Taken(HEAD));
    }
    // Before any event about its length: a head that comes in parts gave its version, too (`part_of_a_head`).
    if version::is_valid(current) {
        tx.sides[direction].version = current;
    }
    if length == 0 {
        // Receivers continue after it.
        tx.event(events::INVALID_RECORD_LENGTH);
        records.empty = records.empty.saturating_add(1);
        return if records.empty > EMPTY_MAX {
            Err(events::INVALID_RECORD_LENGTH)
        } else {
            Ok(TlsParseStep::Taken(HEAD))
        };
    }
    records.empty = 0;
    if !version::is_valid(current) {
        // Servers check the major version only, some of them not even that.
        if *major != MAJOR && !before_hello {
            return Err(events::INVALID_RECORD_VERSION);
        }
        tx.event(events::INVALID_RECORD_VERSION);
    }
    if length > RECORD_MAX {
        // For a completely invalid head the version, which comes first, is reported.
        let is_version = version::is_valid(current);
        return Err(if is_version { events::INVALID_RECORD_LENGTH } else { events::INVALID_RECORD_VERSION });
    }
    tx.sides[direction].version = current;
    if *kind == APPLICATION_DATA {
        if rest.is_empty() {
            return Ok(TlsParseStep::Needs(HEAD + 1));
        }
        application_data(tx, direction);
        records.skip = length;
        count(tx, records, HEAD.saturating_add(length))?;
        return Ok(TlsParseStep::Taken(HEAD));
    }
    let whole = HEAD.saturating_add(length);
    let Some(body) = rest.get(..length) else { return Ok(TlsParseStep::Needs(whole)) };
    records.messages = records.messages.wrapping_add(1);
    content(tx, records, direction, *kind, body, before_hello)?;
    count(tx, records, whole)?;
    Ok(TlsParseStep::Taken(whole))
}

/// Parses the content of a complete record of this kind.
fn content(
    tx: &mut TlsTx,
    records: &mut Records,
    direction: Direction,
    kind: u8,
    body: &[u8],
    before_hello: bool,
) -> Result<(), u8> {
    match kind {
        CHANGE_CIPHER_SPEC | ALERT if before_hello && !tx.encrypted => tx.event(events::INVALID_RECORD_TYPE),
        CHANGE_CIPHER_SPEC => change_cipher_spec(tx, direction),
        ALERT => alert(tx, body)?,
        HEARTBEAT => heartbeat::record(tx, direction, body)?,
        HANDSHAKE if encrypted_handshake(tx, &records.assembly, direction, body) => {}
        _ => handshake::record(tx, &mut records.assembly, direction, body)?,
    }
    Ok(())
}

/// Handles an incomplete head and returns the number of bytes needed. As in Suricata, the version of a record
/// takes effect before its length is known.
fn part_of_a_head(tx: &mut TlsTx, direction: Direction, hello: TlsFlags, data: &[u8]) -> usize {
    let [kind, major, minor, ..] = data else { return VERSIONED };
    let version = u16::from_be_bytes([*major, *minor]);
    let side = &mut tx.sides[direction];
    let known = tx.flags.contains(hello) && !matches!(side.version, version::UNKNOWN | version::SSL2);
    if (CHANGE_CIPHER_SPEC..=HEARTBEAT).contains(kind) && version::is_valid(version) && !known {
        side.version = version;
    }
    HEAD
}

/// Whether a handshake record is encrypted, as records after a change of the cipher are. A client of TLS 1.3
/// may send the change for the sake of middle boxes (RFC 8446 appendix D.4) and then another hello, and no
/// side encrypts before the first hello.
fn encrypted_handshake(tx: &TlsTx, assembly: &Assembly, direction: Direction, body: &[u8]) -> bool {
    let is_hello = assembly.is_open() || body.first() == Some(&handshake::CLIENT_HELLO);
    let comes_first = direction == Direction::ToServer && !tx.flags.contains(TlsFlags::CLIENT_HELLO);
    let is_asked_for = direction == Direction::ToServer && tx.flags.contains(TlsFlags::RETRY);
    tx.is_behind_the_change() && !(is_hello && (comes_first || is_asked_for))
}

fn change_cipher_spec(tx: &mut TlsTx, direction: Direction) {
    tx.flags.insert(TlsFlags::CHANGE_CIPHER_SPEC);
    match direction {
        Direction::ToServer => {
            tx.flags.insert(TlsFlags::CLIENT_CHANGE_CIPHER_SPEC);
            tx.client_at(ClientState::HandshakeDone);
        }
        Direction::ToClient => tx.flags.insert(TlsFlags::SERVER_CHANGE_CIPHER_SPEC),
    }
}

fn alert(tx: &mut TlsTx, body: &[u8]) -> Result<(), u8> {
    match body {
        [] | [_] => return Err(events::INVALID_ALERT_MESSAGE),
        // Longer alerts are encrypted. A fatal one ends the session.
        [2, _] => tx.finish(),
        _ => {}
    }
    Ok(())
}

fn application_data(tx: &mut TlsTx, direction: Direction) {
    // Early data precedes the end of the handshake (RFC 8446 section 2.3).
    if tx.flags.contains(TlsFlags::EARLY_DATA) && !tx.flags.contains(TlsFlags::SERVER_HELLO) {
        return;
    }
    match direction {
        Direction::ToServer => tx.client_at(ClientState::HandshakeDone),
        Direction::ToClient => tx.server_at(ServerState::HandshakeDone),
    }
    tx.encrypted = true;
}
