// SPDX-License-Identifier: Apache-2.0
//! The parser of a connection: messages of NetBIOS (RFC 1002 section 4.3), and those of SMB in them.
//!
//! Messages are read when they are whole; those that carry a piece of a file are read as they come, so that
//! a piece needs no memory.

use super::session::{Session, Surroundings};
use super::smb1::{self, Head1, unnamed1};
use super::smb2::{self, Head2, unnamed2};
use super::tables::{
    MALFORMED_DATA, MESSAGE_MAX, RECORD_OVERFLOW, REQUEST_TO_CLIENT, RESPONSE_TO_SERVER, SmbConfig,
};
use super::{SESSION_LAST, SESSION_MESSAGE, SESSION_REQUEST, is_magic};
use crate::frames::{Notes, ProtocolFrameNote};
use crate::protocol::{Input, ParseContext, Parser, Progress};
use crate::transaction::listed_transactions;
use bartizan_base::{Direction, PerDirection};

/// Length of NetBIOS's header.
const BEFORE: usize = 4;
/// Bytes of a longer message with a piece that are awaited, as in Suricata, before it is read.
const ENOUGH: usize = 508;
/// Length of the header of an encrypted message ([MS-SMB2] section 2.2.41).
const TRANSFORM: u64 = 52;

const NBSS_FRAMES: u8 = 1;
const SMB1_FRAMES: u8 = 4;
const SMB2_FRAMES: u8 = 7;
const SMB3_FRAMES: u8 = 10;

/// State of a direction's bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Reader {
    /// Bytes of the NetBIOS message that were not read.
    message: u64,
    /// Bytes of the message of SMB that are passed over before its piece.
    before: u64,
    /// Bytes of the piece.
    piece: u64,
    /// Bytes of the message of SMB that are passed over.
    skip: u64,
    /// Where messages begin is not known, after a gap.
    is_lost: bool,
    /// The message at the front is one whose frames were noted.
    noted: bool,
}

/// The result of reading the front of the data.
enum SmbStep {
    /// Number of bytes that were consumed.
    Taken(usize),
    /// Number of bytes that are needed from here.
    Needs(usize),
}

/// The way in which a message of SMB is read.
enum SmbPlan {
    /// The bytes that have come are read at once, the rest is passed over.
    Whole,
    /// A piece of a file begins at an offset.
    Piece { at: usize, length: u64 },
}

/// The header of a message of SMB.
enum SmbHead {
    One(Head1),
    Two(Head2),
    /// Encrypted, compressed, or broken: it is passed over.
    Other,
}

/// The parser of a connection.
pub(super) struct SmbParser {
    session: Session,
    readers: PerDirection<Reader>,
    frames: Notes,
}

/// A message of SMB.
#[derive(Clone, Copy)]
struct SmbMessage<'a> {
    /// The bytes that have come.
    data: &'a [u8],
    /// Length of the message.
    length: u64,
    direction: Direction,
    /// Offset in the stream.
    at: u64,
}

impl SmbParser {
    pub(super) fn new(config: SmbConfig) -> Self {
        SmbParser {
            session: Session::new(config),
            readers: PerDirection::default(),
            frames: Notes::default(),
        }
    }

    /// Notes the frames of a message: whole, header, data.
    fn note(&mut self, direction: Direction, first: u8, at: u64, head: u64, length: u64) {
        let head = head.min(length);
        let mut add = |kind, at, len| {
            self.frames.add(direction, ProtocolFrameNote::Whole { kind, at, len, tx: None });
        };
        add(first, at, length);
        add(first.saturating_add(1), at, head);
        add(first.saturating_add(2), at.saturating_add(head), length.saturating_sub(head));
    }

    /// Reads the header of a NetBIOS message.
    fn envelope(&mut self, direction: Direction, data: &[u8], at: u64) -> SmbStep {
        let [kind, a, b, c, ..] = data else { return SmbStep::Needs(BEFORE) };
        let length = u64::from(u32::from_be_bytes([0, *a, *b, *c]));
        self.session.end_piece(direction);
        match *kind {
            SESSION_MESSAGE => {
                self.readers[direction].message = length;
                self.readers[direction].noted = false;
            }
            SESSION_REQUEST..=SESSION_LAST => self.readers[direction].skip = length,
            _ => {
                self.session.raise(MALFORMED_DATA);
                // Some servers pass over as many bytes as this message says to have.
                self.session.disagree();
                self.readers[direction].is_lost = true;
                return SmbStep::Taken(1);
            }
        }
        let head = BEFORE as u64;
        self.note(direction, NBSS_FRAMES, at, head, head.saturating_add(length));
        SmbStep::Taken(BEFORE)
    }

    /// Finds the next message after a gap.
    fn resume(&mut self, direction: Direction, data: &[u8], at: u64) -> SmbStep {
        for found in memchr::memmem::find_iter(data, b"SMB") {
            let Some(start) = found.checked_sub(BEFORE + 1) else { continue };
            let is_message = data.get(start) == Some(&SESSION_MESSAGE)
                && data.get(start.saturating_add(BEFORE)..).and_then(is_magic) == Some(true);
            if is_message {
                self.readers[direction].is_lost = false;
                return if start > 0 { SmbStep::Taken(start) } else { self.envelope(direction, data, at) };
            }
        }
        // The beginning of a message may be at the end.
        match data.len().saturating_sub(BEFORE + 3) {
            0 => SmbStep::Needs(BEFORE + 4),
            passed => SmbStep::Taken(passed),
        }
    }

    /// Reads the front of a direction's data.
    fn step(&mut self, direction: Direction, data: &[u8], at: u64, around: &Surroundings<'_>) -> SmbStep {
        let reader = &mut self.readers[direction];
        if reader.is_lost {
            return self.resume(direction, data, at);
        }
        let count = |left: &mut u64| {
            let count = usize::try_from(*left).unwrap_or(usize::MAX).min(data.len());
            *left = left.saturating_sub(count as u64);
            count
        };
        if reader.before > 0 {
            return SmbStep::Taken(count(&mut reader.before));
        }
        if reader.piece > 0 {
            let count = count(&mut reader.piece);
            self.session.piece(direction, data.get(..count).unwrap_or_default());
            return SmbStep::Taken(count);
        }
        if reader.skip > 0 {
            return SmbStep::Taken(count(&mut reader.skip));
        }
        if reader.message == 0 {
            return self.envelope(direction, data, at);
        }
        let message = SmbMessage { data, length: reader.message, direction, at };
        self.message(message, around)
    }

    /// Reads the header of a message of SMB. `None`: more bytes are needed.
    fn head(message: &SmbMessage<'_>) -> Result<(SmbHead, u64), usize> {
        let least = |count: usize| usize::try_from(message.length).unwrap_or(usize::MAX).min(count);
        let needs = |count: usize| if message.data.len() < least(count) { Err(least(count)) } else { Ok(()) };
        needs(4)?;
        let other = Ok((SmbHead::Other, message.length));
        match message.data.first().filter(|_| is_magic(message.data) == Some(true)) {
            Some(0xff) => {
                // With the first word, which says whether another command follows.
                needs(smb1::HEAD + 2)?;
                Head1::read(message.data).map_or(other, |head| Ok((SmbHead::One(head), message.length)))
            }
            Some(0xfe) => {
                needs(smb2::HEAD)?;
                let Some(head) = Head2::read(message.data) else { return other };
                let next = (head.next as u64).max(smb2::HEAD as u64);
                let length = if head.next == 0 { message.length } else { next.min(message.length) };
                Ok((SmbHead::Two(head), length))
            }
            _ => other,
        }
    }

    /// Reads a message of SMB.
    fn message(&mut self, message: SmbMessage<'_>, around: &Surroundings<'_>) -> SmbStep {
        let (head, length) = match Self::head(&message) {
            Ok(found) => found,
            Err(needed) => return SmbStep::Needs(needed),
        };
        let message = SmbMessage { length, ..message };
        let (frames, head_length) = match &head {
            SmbHead::One(_) => (Some(SMB1_FRAMES), smb1::HEAD as u64),
            SmbHead::Two(_) => (Some(SMB2_FRAMES), smb2::HEAD as u64),
            SmbHead::Other => {
                let is_encrypted = message.data.starts_with(b"\xfdSMB");
                (is_encrypted.then_some(SMB3_FRAMES), TRANSFORM)
            }
        };
        let direction = message.direction;
        let is_noted = core::mem::replace(&mut self.readers[direction].noted, true);
        if let Some(frames) = frames.filter(|_| !is_noted) {
            self.note(direction, frames, message.at, head_length, length);
        }
        let is_response = match &head {
            SmbHead::One(head) => Some(head.is_response),
            SmbHead::Two(head) => Some(head.is_response),
            SmbHead::Other => None,
        };
        let step = match (direction, is_response) {
            (Direction::ToServer, Some(true)) => {
                self.session.raise(RESPONSE_TO_SERVER);
                // A server that does not read the flag takes it for a request.
                self.session.disagree();
                Ok(self.pass(&message))
            }
            (Direction::ToClient, Some(false)) => {
                self.session.raise(REQUEST_TO_CLIENT);
                Ok(self.pass(&message))
            }
            (_, None) => {
                if is_magic(message.data) != Some(true) {
                    self.session.raise(MALFORMED_DATA);
                }
                Ok(self.pass(&message))
            }
            _ => self.read(head, &message, around),
        };
        match step {
            Ok(taken) => {
                let reader = &mut self.readers[direction];
                reader.message = reader.message.saturating_sub(length);
                reader.noted = false;
                SmbStep::Taken(taken)
            }
            Err(needed) => SmbStep::Needs(needed),
        }
    }

    /// Passes over a message.
    fn pass(&mut self, message: &SmbMessage<'_>) -> usize {
        let count = usize::try_from(message.length).unwrap_or(usize::MAX).min(message.data.len());
        self.readers[message.direction].skip = message.length.saturating_sub(count as u64);
        count
    }

    /// Reads a message whose header is known. Returns the number of bytes consumed, or needed.
    fn read(
        &mut self,
        mut head: SmbHead,
        message: &SmbMessage<'_>,
        around: &Surroundings<'_>,
    ) -> Result<usize, usize> {
        if let SmbHead::Two(two) = &mut head {
            *two = self.session.resolve2(*two);
        }
        let head = &head;
        let total = usize::try_from(message.length).unwrap_or(usize::MAX);
        let (is_piece, least) = match head {
            SmbHead::One(head) => (self.has_file_piece1(head, message), smb1::HEAD),
            SmbHead::Two(head) => (self.has_file_piece2(head, total), smb2::HEAD),
            SmbHead::Other => (false, 0),
        };
        let needed = if is_piece { total.min(ENOUGH) } else { total.min(MESSAGE_MAX) };
        if message.data.len() < needed {
            return Err(needed);
        }
        let front = message.data.get(..needed).unwrap_or_default();
        let plan = match head {
            SmbHead::One(head) if is_piece => self.plan1(head, front, around),
            SmbHead::Two(head) if is_piece => self.plan2(head, front, around),
            _ => SmbPlan::Whole,
        };
        match plan {
            SmbPlan::Piece { at, length } => {
                let at = at.max(least);
                let left = message.length.saturating_sub(at as u64);
                let piece = length.min(left);
                let passed = at.min(front.len());
                let reader = &mut self.readers[message.direction];
                reader.before = (at as u64).saturating_sub(passed as u64);
                reader.piece = piece;
                reader.skip = left.saturating_sub(piece);
                Ok(passed)
            }
            SmbPlan::Whole => {
                if !is_piece {
                    if needed < total && self.needs_whole(head) {
                        self.session.raise(RECORD_OVERFLOW);
                    }
                    match head {
                        SmbHead::One(head) if head.is_response => self.session.response1(head, front, around),
                        SmbHead::One(head) => self.session.request1(head, front, around),
                        SmbHead::Two(head) if head.has_piece() => {
                            self.session.whole_piece2(head, front, around)
                        }
                        SmbHead::Two(head) if head.is_response => self.session.response2(head, front),
                        SmbHead::Two(head) => self.session.request2(head, front),
                        SmbHead::Other => {}
                    }
                }
                self.readers[message.direction].skip = message.length.saturating_sub(needed as u64);
                Ok(needed)
            }
        }
    }

    /// Whether the bytes beyond the first of a message matter.
    fn needs_whole(&self, head: &SmbHead) -> bool {
        match head {
            SmbHead::One(head) => self.session.is_pipe1(head),
            SmbHead::Two(head) => self.session.tree(head.key).is_some_and(|tree| tree.is_pipe),
            SmbHead::Other => false,
        }
    }

    /// Whether a message carries a piece of a file, and no other command follows.
    fn has_file_piece1(&self, head: &Head1, message: &SmbMessage<'_>) -> bool {
        let carries = match head.command {
            smb1::WRITE_ANDX => !head.is_response,
            smb1::READ_ANDX => head.is_response && head.number == 0,
            _ => false,
        };
        carries
            && message.length >= smb1::PIECE_FIELDS as u64
            && message.data.get(smb1::HEAD + 1) == Some(&smb1::NONE)
            && !self.session.is_pipe1(head)
    }

    /// Whether a message carries a piece of a file. A piece of an unknown share may be of a pipe: if it is
    /// short, it is read whole.
    fn has_file_piece2(&self, head: &Head2, total: usize) -> bool {
        head.has_piece()
            && total >= smb2::PIECE_FIELDS
            && self.session.tree(head.key).map_or(total > MESSAGE_MAX, |tree| !tree.is_pipe)
    }

    fn plan1(&mut self, head: &Head1, front: &[u8], around: &Surroundings<'_>) -> SmbPlan {
        let direction = if head.is_response { Direction::ToClient } else { Direction::ToServer };
        let Some(piece) = self.session.first_piece1(head, front) else { return SmbPlan::Whole };
        self.session.begin_piece(direction, &piece.head, unnamed1(head.command), around);
        SmbPlan::Piece { at: piece.at, length: piece.head.length }
    }

    fn plan2(&mut self, head: &Head2, front: &[u8], around: &Surroundings<'_>) -> SmbPlan {
        let direction = if head.is_response { Direction::ToClient } else { Direction::ToServer };
        let Some(piece) = self.session.piece2(head, front) else { return SmbPlan::Whole };
        self.session.begin_piece(direction, &piece.head, unnamed2(head.command), around);
        SmbPlan::Piece { at: piece.at, length: piece.head.length }
    }
}

impl Parser for SmbParser {
    fn parse(&mut self, direction: Direction, input: Input<'_>, context: &mut ParseContext<'_>) -> Progress {
        let around = Surroundings { files: context.files, prevents: context.prevents };
        self.session.set_strict(context.prevents);
        let mut consumed = 0usize;
        while let Some(rest) = input.data.get(consumed..).filter(|rest| !rest.is_empty()) {
            let at = input.offset.saturating_add(consumed as u64);
            match self.step(direction, rest, at, &around) {
                _ if self.session.is_full || self.session.is_ambiguous => return Progress::Error,
                SmbStep::Taken(count) => consumed = consumed.saturating_add(count),
                SmbStep::Needs(needed) => return Progress::Incomplete { consumed, needed },
            }
        }
        Progress::Done
    }

    fn gap(&mut self, direction: Direction, missing: u64, _context: &mut ParseContext<'_>) -> bool {
        // A gap within a piece, or within bytes that are passed over, leaves the messages in place.
        let reader = &mut self.readers[direction];
        let mut left = missing;
        let before = left.min(reader.before);
        reader.before = reader.before.saturating_sub(before);
        left = left.saturating_sub(before);
        let piece = left.min(reader.piece);
        reader.piece = reader.piece.saturating_sub(piece);
        left = left.saturating_sub(piece);
        let skipped = left.min(reader.skip);
        reader.skip = reader.skip.saturating_sub(skipped);
        left = left.saturating_sub(skipped);
        let is_within = left == 0;
        if !is_within {
            *reader = Reader { is_lost: true, ..Reader::default() };
        }
        if piece > 0 {
            self.session.piece_gap(direction, piece);
        }
        true
    }

    listed_transactions!(session.txs, session);

    fn wants_raw(&mut self, _direction: Direction) -> bool {
        // As in Suricata, rules on the stream see larger pieces than messages.
        false
    }

    fn frames(&mut self) -> Option<&mut Notes> {
        Some(&mut self.frames)
    }

    fn held(&mut self) -> usize {
        size_of::<Self>().saturating_add(self.session.held())
    }

    fn end(&mut self, direction: Direction, _context: &mut ParseContext<'_>) {
        self.session.end(direction);
    }
}
