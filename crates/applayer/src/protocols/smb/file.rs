// SPDX-License-Identifier: Apache-2.0
//! A file that a connection reads or writes in pieces, which may come in another order than they stand in.

use super::handle::FileId;
use crate::content::files::{FileContext, FileList};
use crate::file::{FileSettings, FileState, FileTrack};
use crate::memory::{Held as _, allocated};
use bartizan_base::Direction;
use std::collections::BTreeMap;

/// Bounds of the pieces that wait for earlier ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueLimits {
    /// Bytes; 0 for no bound.
    pub(super) bytes: u64,
    /// Pieces; 0 for no bound.
    pub(super) pieces: usize,
}

/// The place of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    /// The piece continues the file, after so many bytes that came before.
    Next { skip: u64 },
    /// The piece waits; it begins at this offset.
    Waits { at: u64 },
    /// The piece is left out.
    Out,
}

/// The result of the beginning of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceStart {
    /// The piece is taken.
    Taken,
    /// Some of its bytes came before.
    Overlaps,
    /// Too many bytes wait.
    TooManyBytes,
    /// Too many pieces wait.
    TooManyPieces,
}

/// A transfer.
pub(super) struct FileTransfer {
    pub(super) id: FileId,
    pub(super) share: Vec<u8>,
    pub(super) sender: Direction,
    pub(super) files: FileList,
    name: Vec<u8>,
    /// Offset of the first byte that has not come.
    tracked: u64,
    waiting: BTreeMap<u64, Vec<u8>>,
    waiting_bytes: u64,
    piece: Piece,
}

impl FileTransfer {
    /// A transfer without a byte.
    pub(super) fn new(id: FileId, name: Vec<u8>, share: Vec<u8>, sender: Direction) -> Self {
        FileTransfer {
            id,
            share,
            sender,
            files: FileList::default(),
            name,
            tracked: 0,
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            piece: Piece::Out,
        }
    }

    /// Opens the file; `number`: the file's number.
    pub(super) fn open(&mut self, number: u32, settings: &FileSettings, is_strict: bool) {
        let mut context = FileContext {
            settings: settings.clone(),
            next_id: number,
            strict: is_strict,
            ..FileContext::default()
        };
        // The name was cut before.
        let _ = self.files.open(&self.name, &mut context);
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    pub(super) fn file(&self, direction: Direction, index: u32) -> Option<&FileTrack> {
        let index = usize::try_from(index).ok()?;
        (direction == self.sender).then(|| self.files.list.get(index))?
    }

    /// Begins a piece of a length.
    pub(super) fn begin(&mut self, offset: u64, length: u64, limits: QueueLimits) -> PieceStart {
        if offset <= self.tracked {
            let skip = self.tracked.saturating_sub(offset);
            self.piece = Piece::Next { skip };
            return if skip > 0 && length > 0 { PieceStart::Overlaps } else { PieceStart::Taken };
        }
        self.piece = Piece::Out;
        if limits.bytes > 0 && self.waiting_bytes.saturating_add(length) > limits.bytes {
            return PieceStart::TooManyBytes;
        }
        if limits.pieces > 0 && self.waiting.len() >= limits.pieces {
            return PieceStart::TooManyPieces;
        }
        if self.waiting.contains_key(&offset) {
            return PieceStart::Overlaps;
        }
        self.waiting.insert(offset, Vec::new());
        self.piece = Piece::Waits { at: offset };
        PieceStart::Taken
    }

    /// Adds bytes of the piece.
    pub(super) fn data(&mut self, data: &[u8]) {
        match self.piece {
            Piece::Next { skip } => {
                let old = usize::try_from(skip).unwrap_or(usize::MAX).min(data.len());
                self.piece = Piece::Next { skip: skip.saturating_sub(old as u64) };
                self.append(data.get(old..).unwrap_or_default());
                self.take_waiting(false);
            }
            Piece::Waits { at } => {
                if let Some(piece) = self.waiting.get_mut(&at) {
                    piece.extend_from_slice(data);
                    self.waiting_bytes = self.waiting_bytes.saturating_add(data.len() as u64);
                }
            }
            Piece::Out => {}
        }
    }

    /// Records that bytes of the piece will never come.
    pub(super) fn gap(&mut self, missing: u64) {
        match self.piece {
            Piece::Next { skip } => {
                let fresh = missing.saturating_sub(skip);
                self.piece = Piece::Next { skip: skip.saturating_sub(missing) };
                if fresh > 0 {
                    self.files.gap(fresh);
                    self.tracked = self.tracked.saturating_add(fresh);
                    self.take_waiting(false);
                }
            }
            Piece::Waits { at } => {
                // The rest of the piece would have no place.
                self.remove_waiting(at);
                self.piece = Piece::Out;
            }
            Piece::Out => {}
        }
    }

    /// Ends the file. Pieces that still wait follow, with gaps before them.
    pub(super) fn close(&mut self, state: FileState) {
        self.piece = Piece::Out;
        self.take_waiting(true);
        self.files.close(state);
    }

    fn append(&mut self, data: &[u8]) {
        self.files.append(data);
        self.tracked = self.tracked.saturating_add(data.len() as u64);
    }

    fn remove_waiting(&mut self, at: u64) -> Vec<u8> {
        let piece = self.waiting.remove(&at).unwrap_or_default();
        self.waiting_bytes = self.waiting_bytes.saturating_sub(piece.len() as u64);
        piece
    }

    /// Appends the waiting pieces that continue the file, or all of them.
    fn take_waiting(&mut self, all: bool) {
        while let Some(at) = self.waiting.keys().next().copied().filter(|at| all || *at <= self.tracked) {
            let piece = self.remove_waiting(at);
            if at > self.tracked {
                self.files.gap(at.saturating_sub(self.tracked));
                self.tracked = at;
            }
            let old = usize::try_from(self.tracked.saturating_sub(at)).unwrap_or(usize::MAX);
            self.append(piece.get(old..).unwrap_or_default());
        }
    }

    /// Bytes of memory held outside of the structure itself.
    pub(super) fn held(&self) -> usize {
        let waiting = usize::try_from(self.waiting_bytes).unwrap_or(usize::MAX);
        // Each piece has an allocation, and a place in the tree.
        let places = self.waiting.len().saturating_mul(64);
        allocated(waiting)
            .saturating_add(places)
            .saturating_add(self.files.held())
            .saturating_add(self.name.held())
            .saturating_add(self.share.held())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: QueueLimits = QueueLimits { bytes: 10, pieces: 2 };

    fn transfer() -> FileTransfer {
        let mut file = FileTransfer::new(FileId::None, b"f".to_vec(), Vec::new(), Direction::ToServer);
        file.open(0, &FileSettings::default(), false);
        file
    }

    fn piece(file: &mut FileTransfer, at: u64, text: &str) -> PieceStart {
        let start = file.begin(at, text.len() as u64, LIMITS);
        for byte in text.as_bytes().chunks(2) {
            file.data(byte);
        }
        start
    }

    fn content(file: &FileTransfer) -> (&[u8], bool) {
        let track = file.file(Direction::ToServer, 0).expect("a file");
        (track.content().0, track.gaps)
    }

    #[test]
    fn pieces_come_in_any_order() {
        let mut file = transfer();
        assert_eq!(piece(&mut file, 3, "def"), PieceStart::Taken);
        assert_eq!(piece(&mut file, 6, "ghi"), PieceStart::Taken);
        assert_eq!(piece(&mut file, 9, "jklmn"), PieceStart::TooManyBytes);
        assert_eq!(piece(&mut file, 9, "j"), PieceStart::TooManyPieces);
        assert_eq!(content(&file), (&b""[..], false));
        assert_eq!(piece(&mut file, 0, "abc"), PieceStart::Taken);
        assert_eq!(content(&file), (&b"abcdefghi"[..], false));
        assert_eq!(piece(&mut file, 8, "ij"), PieceStart::Overlaps);
        file.close(FileState::Closed);
        assert_eq!(content(&file), (&b"abcdefghij"[..], false));
        assert_eq!(file.waiting_bytes, 0);
    }

    #[test]
    fn what_never_comes_is_a_gap() {
        let mut file = transfer();
        piece(&mut file, 0, "ab");
        piece(&mut file, 4, "ef");
        assert_eq!(file.begin(2, 3, LIMITS), PieceStart::Taken);
        file.gap(2);
        assert_eq!(content(&file), (&b"abef"[..], true));
        piece(&mut file, 10, "k");
        file.close(FileState::Closed);
        let track = file.file(Direction::ToServer, 0).expect("a file");
        assert_eq!((track.size, track.state), (11, FileState::Truncated));
    }
}
