// SPDX-License-Identifier: Apache-2.0
//! The files that one direction of a transaction transfers, one after the other.

use crate::content::bytes::before;
use crate::content::file::{FileSettings, FileState, FileTrack};
use crate::content::mime::multipart::Found;
use crate::memory::Held as _;

/// Longest file name kept, in bytes.
pub(crate) const MAX_NAME: usize = 4096;
/// Files of one direction of a transaction that are tracked.
pub(crate) const MAX_FILES: usize = 256;
/// The same in prevention, where more are refused: Go reads 1,000 parts of a form, others fewer.
pub(crate) const MAX_FILES_STRICT: usize = 1024;

/// What the files of a flow share.
#[derive(Debug, Default)]
pub(crate) struct FileContext {
    pub settings: FileSettings,
    pub next_id: u32,
    /// Bodies of the flow that became far too many bytes.
    pub bombs: u32,
    /// Receivers are real: nothing of a file may stay unseen.
    pub strict: bool,
}

/// The files of a direction.
#[derive(Default)]
pub(crate) struct FileList {
    pub list: Vec<FileTrack>,
    /// The last one is still being filled.
    open: bool,
    /// Memory of all but the last one, in bytes.
    held: usize,
    /// Names that some receiver reads instead of a file's own.
    pub aliases: Vec<Vec<u8>>,
    /// There were more than prevention looks at.
    too_many: bool,
}

impl FileList {
    /// Opens a file, unless too many are tracked. Returns whether its name is longer than what is kept of
    /// names.
    #[must_use]
    pub(crate) fn open(&mut self, name: &[u8], context: &mut FileContext) -> bool {
        self.close(FileState::Truncated);
        let most = if context.strict { MAX_FILES_STRICT } else { MAX_FILES };
        if self.list.len() >= most {
            self.too_many |= context.strict;
            return false;
        }
        // Receivers read on; what it stood in has a limit.
        let kept = before(name, if context.strict { usize::MAX } else { MAX_NAME });
        self.held = self.held.saturating_add(self.list.last().map_or(0, FileTrack::held));
        self.list.push(FileTrack::open(context.next_id, kept, &context.settings));
        context.next_id = context.next_id.wrapping_add(1);
        self.open = true;
        name.len() > MAX_NAME
    }

    /// Bytes of memory held beside its own place.
    pub(crate) fn held(&self) -> usize {
        let last = self.list.last().map_or(0, FileTrack::held);
        let aliases =
            self.aliases.iter().fold(self.aliases.held(), |sum, name| sum.saturating_add(name.held()));
        self.held.saturating_add(aliases).saturating_add(last).saturating_add(self.list.held())
    }

    /// Whether a file is being filled.
    pub(crate) const fn is_open(&self) -> bool {
        self.open
    }

    /// Whether there were more than prevention looks at.
    pub(crate) const fn has_too_many(&self) -> bool {
        self.too_many
    }

    /// Takes a file, or a piece of one, that was found in a form. Returns whether a name was longer than what
    /// is kept.
    #[must_use]
    pub(crate) fn take(&mut self, found: Found<'_>, context: &mut FileContext) -> bool {
        match found {
            Found::Open(name, others) => {
                let is_long = self.open(name, context);
                self.too_many |= self.list.len() + self.aliases.len() + others.len() > MAX_FILES_STRICT;
                if !self.too_many {
                    self.aliases.extend_from_slice(others);
                }
                return is_long;
            }
            Found::Data(data) => self.append(data),
            Found::Close => self.close(FileState::Closed),
            Found::Odd(_) => {}
        }
        false
    }

    /// Marks the file just opened as a piece of a larger one: offsets of its first and last byte.
    pub(crate) fn set_range(&mut self, start: Option<u64>, end: Option<u64>) {
        if let Some(file) = self.list.last_mut().filter(|_| self.open) {
            file.start = start;
            file.end = end;
        }
    }

    /// Adds content to the file being filled.
    pub(crate) fn append(&mut self, data: &[u8]) {
        if self.open
            && let Some(file) = self.list.last_mut()
        {
            file.append(data);
        }
    }

    /// Whether the file being filled is to be kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.open && self.list.last().is_some_and(|file| file.store)
    }

    /// `missing` bytes of the file being filled will never come.
    pub(crate) fn gap(&mut self, missing: u64) {
        if self.open
            && let Some(file) = self.list.last_mut()
        {
            file.gap(missing);
        }
    }

    /// Ends the file being filled.
    pub(crate) fn close(&mut self, state: FileState) {
        if self.open
            && let Some(file) = self.list.last_mut()
        {
            // Not all of a file with gaps was seen.
            let state = if file.gaps && state == FileState::Closed { FileState::Truncated } else { state };
            file.close(state);
        }
        self.open = false;
    }
}
