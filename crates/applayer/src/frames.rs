// SPDX-License-Identifier: Apache-2.0
//! Protocol frames: named pieces of a direction's bytes (`http1.request`, `tls.pdu`) as they are on the wire.
//! Source: Suricata 8's guide for developers, "Application Layer Frame Support".
//!
//! Parsers record where frames begin and end; the bytes are kept here while a frame is open or not inspected
//! yet. All of this happens only while rules or an output need frames.

use crate::memory::Held as _;
use crate::transaction::TxId;
use bartizan_base::{Direction, PerDirection};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Number of the frame that covers a direction's whole stream, in each protocol's list.
pub const STREAM: u8 = 0;
/// Limit of a direction's bytes that are kept; rules see the latest bytes of longer frames.
pub(crate) const WINDOW: u64 = 64 << 10;
/// Limit of a direction's frames that are kept; the oldest are dropped.
pub(crate) const FRAMES_MAX: usize = 256;
/// Number of new bytes after which an open frame is inspected before its end (as for the raw stream).
const WORTH: u64 = 2_560;

/// A parser's note about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolFrameNote {
    /// A frame begins at an offset of the stream; its end is recorded when it is known.
    Begin {
        /// Index into the protocol's list.
        kind: u8,
        /// Offset in the stream.
        at: u64,
        /// The transaction of the frame.
        tx: Option<TxId>,
    },
    /// The last frame of a kind ends before this offset.
    End {
        /// Index into the protocol's list.
        kind: u8,
        /// Offset in the stream.
        at: u64,
    },
    /// A frame with its length; not all of its bytes need to have come.
    Whole {
        /// Index into the protocol's list.
        kind: u8,
        /// Offset in the stream.
        at: u64,
        /// Length in bytes.
        len: u64,
        /// The transaction of the frame.
        tx: Option<TxId>,
    },
}

/// Notes of a parser, until they are taken.
#[derive(Debug, Default)]
pub struct Notes {
    /// Rules or outputs need frames.
    pub on: bool,
    list: Vec<(Direction, ProtocolFrameNote)>,
}

impl Notes {
    /// Adds a note, if frames are needed.
    pub fn add(&mut self, direction: Direction, note: ProtocolFrameNote) {
        if self.on {
            self.list.push((direction, note));
        }
    }
}

/// A frame.
#[derive(Debug)]
pub struct ProtocolFrame {
    /// Number in its direction, from 1.
    pub id: u64,
    /// Index into the protocol's list.
    pub kind: u8,
    /// Stream offset of the first byte.
    pub start: u64,
    /// Length, once it is known.
    pub len: Option<u64>,
    /// The frame's transaction.
    pub tx: Option<TxId>,
    /// Rules that have matched this protocol frame.
    pub matched: SmallVec<[u32; 2]>,
    /// Bytes before this offset were inspected.
    inspected_to: u64,
    /// The frame is complete.
    ended: bool,
}

impl ProtocolFrame {
    /// Records that a rule matched the frame. Returns `false` if it had matched before.
    pub fn note(&mut self, rule: u32) -> bool {
        let new = !self.matched.contains(&rule);
        if new {
            self.matched.push(rule);
        }
        new
    }
}

/// Contiguous bytes of a direction.
#[derive(Debug, Default)]
struct DirectionPiece {
    start: u64,
    bytes: Vec<u8>,
}

impl DirectionPiece {
    fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes.len() as u64)
    }
}

/// A contiguous part of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Offset of the first byte in the frame.
    pub offset: u64,
    /// The part reaches to the frame's end.
    pub last: bool,
}

/// Frames of a direction.
#[derive(Debug, Default)]
struct DirectionFrames {
    frames: VecDeque<ProtocolFrame>,
    pieces: VecDeque<DirectionPiece>,
    /// Bytes before this offset were handed in.
    end: u64,
    next: u64,
    /// The bytes are datagrams: there is no stream that would have number 1.
    datagrams: bool,
    over: bool,
}

/// Frames of a flow.
#[derive(Debug, Default)]
pub struct Frames {
    sides: PerDirection<DirectionFrames>,
    /// Rules or outputs need the frame of the whole stream.
    streams: bool,
}

impl DirectionFrames {
    fn open(&mut self, kind: u8, start: u64, len: Option<u64>, tx: Option<TxId>) {
        if self.frames.len() >= FRAMES_MAX {
            self.frames.pop_front();
        }
        // The stream has number 1, whether or not its frame is needed.
        let first = if self.datagrams { 0 } else { 1 };
        let id = if kind == STREAM { 1 } else { self.next.max(first).saturating_add(1) };
        self.next = self.next.max(id);
        self.frames.push_back(ProtocolFrame {
            id,
            kind,
            start,
            len,
            tx,
            matched: SmallVec::new(),
            inspected_to: start,
            ended: self.over,
        });
    }

    fn show(&mut self, offset: u64, bytes: &[u8]) {
        let known = usize::try_from(self.end.saturating_sub(offset)).unwrap_or(usize::MAX);
        let Some(fresh) = bytes.get(known..).filter(|fresh| !fresh.is_empty()) else { return };
        let start = offset.max(self.end);
        match self.pieces.back_mut() {
            Some(piece) if piece.end() == start => piece.bytes.extend_from_slice(fresh),
            _ => self.pieces.push_back(DirectionPiece { start, bytes: fresh.to_vec() }),
        }
        self.end = start.saturating_add(fresh.len() as u64);
    }

    fn is_complete(&self, frame: &ProtocolFrame) -> bool {
        frame.ended || frame.len.is_some_and(|len| frame.start.saturating_add(len) <= self.end)
    }

    /// Whether a frame is to be inspected: it is complete, or has enough new bytes.
    fn is_due(&self, frame: &ProtocolFrame, at_once: bool) -> bool {
        let fresh = self.end.saturating_sub(frame.inspected_to.max(frame.start));
        self.is_complete(frame) || fresh >= if at_once { 1 } else { WORTH }
    }

    fn chunks<'a>(&'a self, frame: &ProtocolFrame) -> impl Iterator<Item = Chunk<'a>> + use<'a> {
        let start = frame.start;
        let end = frame.len.map_or(self.end, |len| start.saturating_add(len).min(self.end));
        let complete = self.is_complete(frame);
        self.pieces.iter().filter_map(move |piece| {
            let from = piece.start.max(start);
            let to = piece.end().min(end);
            let skip = usize::try_from(from.checked_sub(piece.start)?).ok()?;
            let count = usize::try_from(to.checked_sub(from)?).ok().filter(|count| *count > 0)?;
            let bytes = piece.bytes.get(skip..)?.get(..count)?;
            Some(Chunk { bytes, offset: from.saturating_sub(start), last: complete && to == end })
        })
    }

    fn take(&mut self, note: ProtocolFrameNote) {
        match note {
            ProtocolFrameNote::Begin { kind, at, tx } => self.open(kind, at, None, tx),
            ProtocolFrameNote::Whole { kind, at, len, tx } => self.open(kind, at, Some(len), tx),
            ProtocolFrameNote::End { kind, at } => {
                let open = self.frames.iter_mut().rev().find(|f| f.kind == kind && f.len.is_none());
                if let Some(frame) = open {
                    frame.len = Some(at.saturating_sub(frame.start));
                }
            }
        }
    }

    /// Drops bytes that no frame needs, and the oldest ones beyond the limit.
    fn trim(&mut self) {
        let oldest = self.frames.iter().map(|f| f.start).min().unwrap_or(self.end);
        let from = oldest.max(self.end.saturating_sub(WINDOW));
        while let Some(piece) = self.pieces.front_mut() {
            if piece.end() <= from {
                self.pieces.pop_front();
                continue;
            }
            // The buffer moves by halves of the window, so that each byte is moved only once or twice.
            let gone = from.saturating_sub(piece.start);
            if gone >= WINDOW / 2
                && let Ok(gone) = usize::try_from(gone)
                && gone <= piece.bytes.len()
            {
                piece.bytes.drain(..gone);
                piece.start = from;
            }
            break;
        }
    }

    fn held(&self) -> usize {
        let bytes: usize = self.pieces.iter().map(|piece| piece.bytes.held()).sum();
        bytes.saturating_add(self.frames.held()).saturating_add(self.pieces.held())
    }
}

impl Frames {
    /// Frames of a new flow; `streams`: including the frame of the whole stream.
    #[must_use]
    pub fn new(streams: bool) -> Self {
        Frames { streams, ..Frames::default() }
    }

    /// Records that the parser gets bytes of a stream.
    pub(crate) fn show(&mut self, direction: Direction, offset: u64, bytes: &[u8]) {
        let side = &mut self.sides[direction];
        if self.streams && side.next == 0 {
            side.open(STREAM, offset, None, None);
        }
        side.show(offset, bytes);
    }

    /// Records that the parser gets a datagram; earlier datagrams are dropped.
    pub(crate) fn datagram(&mut self, direction: Direction, bytes: &[u8]) {
        let side = &mut self.sides[direction];
        let next = side.next;
        *side = DirectionFrames { next, datagrams: true, ..DirectionFrames::default() };
        side.show(0, bytes);
    }

    /// Adds the notes of the parser.
    pub(crate) fn take(&mut self, notes: &mut Notes) {
        for (direction, note) in notes.list.drain(..) {
            self.sides[direction].take(note);
        }
        for direction in Direction::BOTH {
            self.sides[direction].trim();
        }
    }

    /// Ends a direction: open frames end there.
    pub(crate) fn end(&mut self, direction: Direction) {
        let side = &mut self.sides[direction];
        side.over = true;
        side.frames.iter_mut().for_each(|frame| frame.ended = true);
    }

    /// Ids of the frames of a direction that are due for inspection; `at_once`: with any number of new bytes.
    #[must_use]
    pub fn due(&self, direction: Direction, at_once: bool) -> SmallVec<[u64; 4]> {
        let side = &self.sides[direction];
        side.frames.iter().filter(|f| side.is_due(f, at_once)).map(|f| f.id).collect()
    }

    /// Ids of all frames of a kind.
    #[must_use]
    pub fn of_kind(&self, direction: Direction, kind: u8) -> SmallVec<[u64; 4]> {
        self.sides[direction].frames.iter().filter(|f| f.kind == kind).map(|f| f.id).collect()
    }

    /// A frame.
    #[must_use]
    pub fn get(&self, direction: Direction, id: u64) -> Option<&ProtocolFrame> {
        self.sides[direction].frames.iter().find(|f| f.id == id)
    }

    /// A frame, to record matching rules.
    pub fn get_mut(&mut self, direction: Direction, id: u64) -> Option<&mut ProtocolFrame> {
        self.sides[direction].frames.iter_mut().find(|f| f.id == id)
    }

    /// Whether a frame is complete.
    #[must_use]
    pub fn is_complete(&self, direction: Direction, frame: &ProtocolFrame) -> bool {
        self.sides[direction].is_complete(frame)
    }

    /// Length of a frame as far as it is known.
    #[must_use]
    pub fn length(&self, direction: Direction, frame: &ProtocolFrame) -> Option<u64> {
        let end = self.sides[direction].end;
        frame.len.or_else(|| frame.ended.then(|| end.saturating_sub(frame.start)))
    }

    /// The contiguous parts of a frame that are kept.
    pub fn chunks<'a>(
        &'a self,
        direction: Direction,
        frame: &ProtocolFrame,
    ) -> impl Iterator<Item = Chunk<'a>> + use<'a> {
        self.sides[direction].chunks(frame)
    }

    /// Writes the kept parts of a frame, and holes by their length, as Suricata's records do.
    pub fn write(&self, direction: Direction, frame: &ProtocolFrame, out: &mut Vec<u8>) {
        let mut at = None;
        for chunk in self.chunks(direction, frame) {
            if let Some(hole) = at.and_then(|at| chunk.offset.checked_sub(at)).filter(|hole| *hole > 0) {
                out.extend_from_slice(format!("[{hole} bytes missing]").as_bytes());
            }
            out.extend_from_slice(chunk.bytes);
            at = Some(chunk.offset.saturating_add(chunk.bytes.len() as u64));
        }
    }

    /// Records that rules have inspected the frames so far.
    pub fn mark_inspected(&mut self, direction: Direction, ids: &[u64]) {
        let end = self.sides[direction].end;
        for frame in self.sides[direction].frames.iter_mut().filter(|f| ids.contains(&f.id)) {
            frame.inspected_to = end;
        }
    }

    /// Passes complete frames of a direction to `record`, and drops them.
    pub fn drain(&mut self, direction: Direction, mut record: impl FnMut(&Frames, &ProtocolFrame)) {
        let side = &self.sides[direction];
        if !side.frames.iter().any(|f| side.is_complete(f)) {
            return;
        }
        for frame in side.frames.iter().filter(|f| side.is_complete(f)) {
            record(self, frame);
        }
        let side = &mut self.sides[direction];
        let (end, over) = (side.end, side.over);
        side.frames
            .retain(|f| !(f.ended || over || f.len.is_some_and(|len| f.start.saturating_add(len) <= end)));
        side.trim();
    }

    /// Bytes of memory held.
    pub(crate) fn held(&self) -> usize {
        let sides = self.sides.to_server.held().saturating_add(self.sides.to_client.held());
        sides.saturating_add(size_of::<Self>())
    }

    /// Exchanges the state of both directions.
    pub(crate) fn turn(&mut self) {
        self.sides.swap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const TO: Direction = Direction::ToServer;

    fn notes(list: &[ProtocolFrameNote]) -> Notes {
        Notes { on: true, list: list.iter().map(|note| (TO, *note)).collect() }
    }

    fn text(frames: &Frames, id: u64) -> String {
        let mut out = Vec::new();
        frames.write(TO, frames.get(TO, id).unwrap(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn frames_are_cut_out_of_the_stream() {
        let mut frames = Frames::new(true);
        frames.show(TO, 0, b"GET /1\r\nGE");
        frames.take(&mut notes(&[
            ProtocolFrameNote::Begin { kind: 1, at: 0, tx: Some(0) },
            ProtocolFrameNote::End { kind: 1, at: 8 },
            ProtocolFrameNote::Begin { kind: 1, at: 8, tx: Some(1) },
        ]));
        // The stream has number 1.
        assert_eq!(frames.due(TO, false).as_slice(), [2]);
        assert_eq!(frames.due(TO, true).as_slice(), [1, 2, 3]);
        assert_eq!(text(&frames, 2), "GET /1\r\n");
        frames.mark_inspected(TO, &[1, 2, 3]);
        assert_eq!(frames.due(TO, true).as_slice(), [2]);
        let mut seen = Vec::new();
        frames.drain(TO, |_, frame| seen.push(frame.id));
        assert_eq!(seen, [2]);
        // Handed in again with more bytes after it, then a hole.
        frames.show(TO, 8, b"GET ");
        frames.show(TO, 15, b"end");
        assert_eq!(text(&frames, 3), "GET [3 bytes missing]end");
        let chunks: Vec<_> = frames.chunks(TO, frames.get(TO, 3).unwrap()).collect();
        assert_eq!(chunks.iter().map(|c| (c.offset, c.last)).collect::<Vec<_>>(), [(0, false), (7, false)]);
        frames.end(TO);
        assert_eq!(frames.due(TO, false).as_slice(), [1, 3]);
        assert!(frames.chunks(TO, frames.get(TO, 3).unwrap()).last().unwrap().last);
        assert_eq!(frames.length(TO, frames.get(TO, 1).unwrap()), Some(18));
        frames.drain(TO, |_, _| {});
        assert!(frames.due(TO, true).is_empty());
    }

    #[test]
    fn bytes_and_frames_are_bounded() {
        let mut frames = Frames::new(false);
        let piece = [b'x'; 10_000];
        frames.take(&mut notes(&[ProtocolFrameNote::Begin { kind: 1, at: 0, tx: None }]));
        for at in 0..200u64 {
            frames.show(TO, at * 10_000, &piece);
            frames.take(&mut notes(&[ProtocolFrameNote::Whole {
                kind: 2,
                at: at * 10_000,
                len: 1 << 40,
                tx: None,
            }]));
        }
        assert!(frames.held() < 400_000, "{}", frames.held());
        for at in 0..1_000 {
            frames.take(&mut notes(&[ProtocolFrameNote::Whole { kind: 2, at, len: 1 << 40, tx: None }]));
        }
        assert_eq!(frames.of_kind(TO, 2).len(), FRAMES_MAX);
        // Nothing is recorded unless frames are needed.
        let mut none = Notes::default();
        none.add(TO, ProtocolFrameNote::End { kind: 1, at: 1 });
        assert!(none.list.is_empty());
    }

    #[test]
    fn datagrams_have_frames_of_their_own() {
        let mut frames = Frames::default();
        for text in ["one", "two"] {
            frames.datagram(TO, text.as_bytes());
            frames.take(&mut notes(&[ProtocolFrameNote::Whole { kind: 1, at: 0, len: 3, tx: None }]));
            let due = frames.due(TO, false);
            assert_eq!(due.len(), 1);
            assert_eq!(super::tests::text(&frames, due[0]), text);
        }
    }
}
