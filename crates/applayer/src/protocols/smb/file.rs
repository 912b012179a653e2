// SPDX-License-Identifier: Apache-2.0
//! A file that a connection reads or writes in pieces, which may come in another order than they stand in.
//!
//! In prevention a piece leaves with its message, so none waits: one that does not continue the bytes
//! before is a file of the list of its own, of the same name. The receiver puts the pieces together, so such
//! a file begins with the last bytes before its place, and where it meets bytes that came earlier, both sides
//! of the seam are a file, too: what lies across it is found within [`SEAM`](super::image::SEAM) bytes on
//! either side, in however many pieces these came ([`FileImage`]).

use super::handle::FileId;
use super::image::FileImage;
use crate::content::files::{FileContext, FileList};
use crate::file::{FileSettings, FileState, FileTrack};
use crate::memory::{Held as _, allocated};
use bartizan_base::Direction;
use std::collections::BTreeMap;

/// Limit of the files of a transfer, in prevention.
pub(super) const RUNS_MAX: usize = 64;

/// The place of the transfer, in prevention.
#[derive(Debug, Default)]
struct FileRuns {
    image: FileImage,
    /// Number of files that were opened.
    opened: usize,
    /// Offset behind the last byte; `None` before the first one, and where other bytes follow: what comes
    /// then is inspected as a file of its own.
    at: Option<u64>,
}

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
    /// In prevention: the runs.
    runs: Option<FileRuns>,
    /// Bytes of the piece that have not come.
    left: u64,
    context: FileContext,
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
            runs: None,
            left: 0,
            context: FileContext::default(),
        }
    }

    /// Opens the file; `number`: the file's number; `image`: in prevention, what is known of it.
    pub(super) fn open(&mut self, number: u32, settings: &FileSettings, image: Option<FileImage>) {
        self.context = FileContext {
            settings: settings.clone(),
            next_id: number,
            strict: image.is_some(),
            ..FileContext::default()
        };
        self.runs = image.map(|image| FileRuns { image, opened: 1, at: None });
        // The name was cut before.
        let _ = self.files.open(&self.name, &mut self.context);
    }

    /// Whether there are as many files as one transfer has: the next one needs a transfer of its own.
    pub(super) fn is_full_at(&self, offset: u64) -> bool {
        self.runs.as_ref().is_some_and(|runs| runs.opened >= RUNS_MAX && runs.at != Some(offset))
    }

    /// Ends the transfer, and makes another one for what follows of the file.
    pub(super) fn renew(&mut self) -> Self {
        let image = self.take_image();
        self.close(FileState::Truncated);
        let (name, share) = (self.name.clone(), self.share.clone());
        let mut next = FileTransfer::new(self.id, name, share, self.sender);
        next.tracked = self.tracked;
        next.open(self.context.next_id, &self.context.settings, image);
        next
    }

    /// Takes what is known of the file, for a further transfer of it.
    pub(super) fn take_image(&mut self) -> Option<FileImage> {
        self.runs.as_mut().map(|runs| core::mem::take(&mut runs.image))
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
        if let Some(runs) = self.runs.as_mut() {
            if runs.at != Some(offset) && length > 0 {
                let before = runs.image.before(offset);
                let is_new = |file: &FileTrack| file.state == FileState::Open && file.size == 0 && !file.gaps;
                if !self.files.list.last().is_some_and(is_new) {
                    runs.opened = runs.opened.saturating_add(1);
                    let _ = self.files.open(&self.name, &mut self.context);
                }
                self.files.append(before);
                runs.at = Some(offset);
            }
            self.piece = Piece::Next { skip: 0 };
            self.left = length;
            return PieceStart::Taken;
        }
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
        if let Some(runs) = self.runs.as_mut() {
            let at = runs.at.unwrap_or_default();
            runs.image.write(at, data);
            runs.at = Some(at.saturating_add(data.len() as u64));
            self.append(data);
            self.left = self.left.saturating_sub(data.len() as u64);
            return self.close_seam();
        }
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

    /// Inspects the place where a complete piece meets bytes that came earlier.
    fn close_seam(&mut self) {
        let Some(runs) = self.runs.as_mut().filter(|_| self.left == 0) else { return };
        let Some(at) = runs.at else { return };
        let after = runs.image.after(at);
        if after.is_empty() {
            return;
        }
        runs.at = None;
        runs.opened = runs.opened.saturating_add(1);
        let before = runs.image.before(at);
        let _ = self.files.open(&self.name, &mut self.context);
        self.files.append(before);
        self.files.append(after);
    }

    /// Records that bytes of the piece will never come.
    pub(super) fn gap(&mut self, missing: u64) {
        if let Some(runs) = self.runs.as_mut() {
            let at = runs.at.unwrap_or_default();
            runs.image.forget(at, missing);
            runs.at = Some(at.saturating_add(missing));
            self.files.gap(missing);
            self.left = self.left.saturating_sub(missing);
            return self.close_seam();
        }
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
        // What is read behind the end of a file that has grown since is inspected, too.
        if let Some(runs) = self.runs.as_mut() {
            runs.at = None;
        }
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
            .saturating_add(self.runs.as_ref().map_or(0, |runs| runs.image.held()))
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
        file.open(0, &FileSettings::default(), None);
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
    fn prevention_inspects_pieces_as_they_come() {
        let mut file = FileTransfer::new(FileId::None, b"f".to_vec(), Vec::new(), Direction::ToServer);
        file.open(0, &FileSettings::default(), Some(FileImage::default()));
        for (at, text) in [(0, "abc"), (3, "de"), (10, "kl"), (5, "fghij"), (0, "ABC"), (12, "m")] {
            assert_eq!(piece(&mut file, at, text), PieceStart::Taken);
        }
        let found: Vec<_> = file.files.list.iter().map(|track| track.content().0).collect();
        // What stands before a run, and what it meets, are inspected with it.
        let expected: [&[u8]; 7] =
            [b"abcde", b"kl", b"abcdefghij", b"abcdefghijkl", b"ABC", b"ABCdefghijkl", b"ABCdefghijklm"];
        assert_eq!(found, expected);
        assert!(!file.is_full_at(1));
        for at in 6..RUNS_MAX as u64 {
            piece(&mut file, at * 10, "x");
        }
        assert!(file.is_full_at(1) && !file.is_full_at((RUNS_MAX as u64 - 1) * 10 + 1));
    }

    #[test]
    fn words_in_many_pieces_of_any_order_are_found() {
        let mut file = FileTransfer::new(FileId::None, b"f".to_vec(), Vec::new(), Direction::ToServer);
        file.open(0, &FileSettings::default(), Some(FileImage::default()));
        for (at, text) in [(6, "i"), (2, " "), (7, "l"), (4, "v"), (3, "e"), (5, "-"), (8, " "), (5, "")] {
            piece(&mut file, at, text);
        }
        let found = |file: &FileTransfer, text: &[u8]| {
            file.files.list.iter().any(|track| memchr::memmem::find(track.content().0, text).is_some())
        };
        assert!(found(&file, b" ev-il "));
        // In a further transfer of the same file.
        let image = file.take_image();
        let mut next = FileTransfer::new(FileId::None, b"f".to_vec(), Vec::new(), Direction::ToServer);
        next.open(1, &FileSettings::default(), image);
        piece(&mut next, 9, "now");
        piece(&mut next, 1, "!");
        assert!(found(&next, b"ev-il now") && found(&next, b"! ev-il now"));
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
