// SPDX-License-Identifier: Apache-2.0
//! The parser of an SSH flow: identification lines (RFC 4253 section 4.2), then packets (section 6).
//!
//! A server may send other lines before its identification line. Prevention skips them, with the event that
//! Suricata raises when it stops there; passively parsing ends there, as in Suricata.

use super::hassh::Hassh;
use super::tx::{SshSide, SshState, SshTransaction};
use super::{INVALID_BANNER, INVALID_RECORD, LONG_BANNER, LONG_KEX_RECORD, PREFIX, SshConfig};
use crate::frames::{Notes, ProtocolFrameNote};
use crate::protocol::{Input, ParseContext, Parser, Progress};
use crate::transaction::{single_held, single_transaction};
use crate::worklist::Worklist;
use bartizan_base::{Direction, PerDirection};

/// Length, in bytes, of the longest identification line that prevention reads to its end, and of a line
/// before it: that of OpenSSH.
pub(super) const LINE_MAX: usize = 8_192;
/// Length, in bytes, from which on a line is too long (RFC 4253 section 4.2), and passively not read further.
pub(super) const LINE_USUAL: usize = 256;
/// Limit of the lines that a server sends before its identification line: that of OpenSSH.
pub(super) const LINES_MAX: usize = 1_024;
/// Length of the longest SSH_MSG_KEXINIT of which a fingerprint is made, in bytes.
pub(super) const KEX_MAX: usize = 65_535;
/// Length of the first fields of a packet: length, length of padding, number of the message.
const HEAD: usize = 6;
/// Number of these bytes that the length field counts.
const COUNTED: usize = 2;

const KEXINIT: u8 = 20;
const NEWKEYS: u8 = 21;

const HEAD_FRAME: u8 = 1;
const DATA_FRAME: u8 = 2;
const PDU_FRAME: u8 = 3;

/// State of one direction's bytes.
#[derive(Debug, Default)]
struct SshReader {
    /// Number of bytes of a packet that are to be skipped.
    skip: u64,
    /// Number of lines so far.
    lines: usize,
    /// The frames of the first packet were noted.
    noted: bool,
    /// The packets' lengths mean nothing any more: nothing is read.
    blind: bool,
}

/// The result of reading the front of the data.
enum SshStep {
    /// Number of bytes that were consumed.
    Taken(usize),
    /// Number of bytes that are needed from here.
    Needs(usize),
    /// The data is not SSH.
    Invalid,
}

/// The parser of an SSH flow.
#[derive(Debug)]
pub(super) struct SshParser {
    tx: Option<SshTransaction>,
    readers: PerDirection<SshReader>,
    /// An identification line was read since the last call of [`Parser::wants_raw`].
    identified: PerDirection<bool>,
    work: Worklist,
    frames: Notes,
}

impl SshParser {
    pub(super) fn new(config: SshConfig) -> Self {
        SshParser {
            tx: Some(SshTransaction::new(config)),
            readers: PerDirection::default(),
            identified: PerDirection::default(),
            work: Worklist::default(),
            frames: Notes::default(),
        }
    }
}

impl Parser for SshParser {
    fn is_encrypted(&self) -> bool {
        self.tx.as_ref().is_some_and(SshTransaction::is_encrypted)
    }

    fn parse(&mut self, direction: Direction, input: Input<'_>, context: &mut ParseContext<'_>) -> Progress {
        let Some(tx) = self.tx.as_mut() else { return Progress::Done };
        let reader = &mut self.readers[direction];
        // Behind the keys of both sides nothing is read any more but the lengths of packets.
        let was_silent = tx.encrypted_seen;
        tx.encrypted_seen |= tx.is_encrypted() && !input.data.is_empty();
        if was_silent {
            self.work.parsed_on(0);
        } else {
            self.work.changed(0);
        }
        let mut rest = input.data;
        while !rest.is_empty() {
            let consumed = input.data.len().saturating_sub(rest.len());
            let at = input.offset.saturating_add(consumed as u64);
            let step = if tx.sides[direction].state < SshState::BannerDone {
                self.identified[direction] = true;
                line(tx, reader, LineOrigin { direction, prevents: context.prevents }, rest)
            } else {
                packet(tx, reader, direction, rest, PacketNotes { notes: &mut self.frames, at })
            };
            match step {
                SshStep::Taken(length) => rest = rest.get(length..).unwrap_or_default(),
                SshStep::Needs(needed) => return Progress::Incomplete { consumed, needed },
                SshStep::Invalid => return Progress::Error,
            }
        }
        if tx.config.bypass && tx.is_encrypted() {
            return Progress::Stop { bypass: true };
        }
        Progress::Done
    }

    fn gap(&mut self, direction: Direction, missing: u64, _context: &mut ParseContext<'_>) -> bool {
        // Bytes that are skipped anyway may be missing.
        let reader = &mut self.readers[direction];
        if reader.blind {
            return true;
        }
        let is_known = missing <= reader.skip;
        reader.skip = reader.skip.saturating_sub(missing);
        is_known
    }

    fn wants_raw(&mut self, direction: Direction) -> bool {
        core::mem::take(&mut self.identified[direction])
    }

    single_transaction!();

    fn frames(&mut self) -> Option<&mut Notes> {
        Some(&mut self.frames)
    }

    fn held(&mut self) -> usize {
        size_of::<Self>().saturating_add(single_held(self.tx.as_mut(), &mut self.work))
    }

    fn end(&mut self, direction: Direction, _context: &mut ParseContext<'_>) {
        if let Some(tx) = self.tx.as_mut() {
            tx.common.ended[direction] = true;
            self.work.changed(0);
        }
    }
}

/// The origin of a line.
#[derive(Clone, Copy)]
struct LineOrigin {
    direction: Direction,
    /// The line has not reached its receiver yet.
    prevents: bool,
}

/// Reads an identification line, the rest of one that was too long, or a line before it.
fn line(tx: &mut SshTransaction, reader: &mut SshReader, origin: LineOrigin, data: &[u8]) -> SshStep {
    let LineOrigin { direction, prevents } = origin;
    let max = if prevents { LINE_MAX } else { LINE_USUAL };
    let end = memchr::memchr(b'\n', data).filter(|end| !prevents || *end < max);
    let side = &mut tx.sides[direction];
    if side.state == SshState::BannerWaitEol {
        let Some(end) = memchr::memchr(b'\n', data) else { return SshStep::Taken(data.len()) };
        side.state = SshState::BannerDone;
        return SshStep::Taken(end.saturating_add(1));
    }
    let (text, length) = match end {
        Some(end) => (data.get(..end), end.saturating_add(1)),
        None if data.len() < max => return SshStep::Needs(data.len().saturating_add(1)),
        None if prevents => (data.get(..max), max),
        None => (Some(data), data.len()),
    };
    let text = text.unwrap_or_default();
    if prevents && end.is_none() {
        // Receivers read on, and the software that rules look for may be in the rest.
        tx.common.events.set(LONG_BANNER);
        return SshStep::Invalid;
    }
    if identify(side, text, prevents) {
        side.state = if end.is_some() { SshState::BannerDone } else { SshState::BannerWaitEol };
        if text.len() >= LINE_USUAL {
            tx.common.events.set(LONG_BANNER);
        }
        return SshStep::Taken(length);
    }
    tx.common.events.set(INVALID_BANNER);
    reader.lines = reader.lines.saturating_add(1);
    let is_line = end.is_some() && reader.lines <= LINES_MAX;
    let may_precede = prevents && direction == Direction::ToClient && is_line;
    if may_precede { SshStep::Taken(length) } else { SshStep::Invalid }
}

/// Reads versions of protocol and software: `SSH-protoversion-softwareversion SP comments CR LF`. `false`:
/// the line is none of identification.
fn identify(side: &mut SshSide, text: &[u8], strict: bool) -> bool {
    let Some(rest) = text.strip_prefix(PREFIX) else { return false };
    let Some(dash) = memchr::memchr(b'-', rest).filter(|dash| *dash > 0) else { return false };
    let (version, rest) = rest.split_at_checked(dash).unwrap_or_default();
    let rest = rest.strip_prefix(b"-").unwrap_or(rest);
    // Receivers take software after a blank for that of the client.
    let rest = if strict { rest.trim_ascii_start() } else { rest };
    let end = rest.iter().position(|byte| matches!(byte, b' ' | b'\r')).unwrap_or(rest.len());
    side.version = version.to_vec();
    side.software = rest.get(..end).unwrap_or_default().to_vec();
    true
}

/// Notes of the frames of a packet at an offset.
struct PacketNotes<'n> {
    notes: &'n mut Notes,
    at: u64,
}

impl PacketNotes<'_> {
    /// Notes a packet whose message, without its number, has this length.
    fn packet(&mut self, direction: Direction, body: u64) {
        let head = HEAD as u64;
        let mut add = |kind, at, len| {
            self.notes.add(direction, ProtocolFrameNote::Whole { kind, at, len, tx: Some(0) });
        };
        add(HEAD_FRAME, self.at, head);
        add(DATA_FRAME, self.at.saturating_add(head), body);
        add(PDU_FRAME, self.at, head.saturating_add(body));
    }
}

/// Reads a packet, or skips the rest of one.
fn packet(
    tx: &mut SshTransaction,
    reader: &mut SshReader,
    direction: Direction,
    data: &[u8],
    mut notes: PacketNotes<'_>,
) -> SshStep {
    if reader.blind {
        return SshStep::Taken(data.len());
    }
    if reader.skip > 0 {
        let length = usize::try_from(reader.skip).unwrap_or(usize::MAX).min(data.len());
        reader.skip = reader.skip.saturating_sub(length as u64);
        return SshStep::Taken(length);
    }
    let [a, b, c, d, _padding, message, body @ ..] = data else { return SshStep::Needs(HEAD) };
    let length = u32::from_be_bytes([*a, *b, *c, *d]);
    let side = &mut tx.sides[direction];
    let counted = usize::try_from(length).ok().and_then(|length| length.checked_sub(COUNTED));
    let Some(length) = counted else {
        if side.state == SshState::Finished {
            // The length itself is encrypted.
            reader.blind = true;
            return SshStep::Taken(data.len());
        }
        tx.common.events.set(INVALID_RECORD);
        return SshStep::Invalid;
    };
    if !core::mem::replace(&mut reader.noted, true) {
        notes.packet(direction, length as u64);
    }
    let is_wanted = *message == KEXINIT && tx.config.hassh && side.hassh.is_none();
    if is_wanted && side.state < SshState::Finished {
        if length < KEX_MAX {
            let Some(body) = body.get(..length) else { return SshStep::Needs(HEAD.saturating_add(length)) };
            side.hassh = Hassh::of(body, direction);
        } else {
            tx.common.events.set(LONG_KEX_RECORD);
        }
    }
    if *message == NEWKEYS {
        tx.sides[direction].state = SshState::Finished;
    }
    reader.noted = false;
    reader.skip = length as u64;
    SshStep::Taken(HEAD)
}
