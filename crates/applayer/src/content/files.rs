// SPDX-License-Identifier: Apache-2.0
//! The files that one direction of a transaction transfers, one after the other.

use crate::content::bytes::before;
use crate::content::file::{FileSettings, FileState, FileTrack};
use crate::content::mime::multipart::MultipartFinding;
use crate::memory::Held as _;

/// Limit of a file name, in bytes; longer names are cut.
pub(crate) const MAX_NAME: usize = 4096;
/// Limit of tracked files in one direction of a transaction.
pub(crate) const MAX_FILES: usize = 256;
/// Limit of tracked files in prevention, where further files are refused: Go reads 1,000 parts of a form,
/// other servers fewer.
pub(crate) const MAX_FILES_STRICT: usize = 1024;

/// State that the files of a flow share.
#[derive(Debug, Default)]
pub(crate) struct FileContext {
    pub settings: FileSettings,
    pub next_id: u32,
    /// Number of bodies in the flow that decompressed to far too many bytes.
    pub bombs: u32,
    /// Prevention is on: all of a file must be inspected.
    pub strict: bool,
    /// Number of calls of the flow's parser: what came with one of them is inspected after it.
    pub calls: u64,
}

impl FileContext {
    /// Begins a call of the parser.
    pub(crate) fn begin_call(&mut self, settings: &FileSettings) {
        self.settings = settings.clone();
        self.calls = self.calls.wrapping_add(1);
    }
}

/// Limit of the decoded bytes that one call of the parser brings, in prevention: 64 KiB of deflate, of which
/// each byte stands for 1,032 at most.
pub(crate) const FRESH_MAX: usize = 72 << 20;

/// In prevention: counts the decoded bytes of a body that came with the current call of the parser. Rules see
/// them after the call, so windows must hold all of them; a receiver gets them with the packet.
#[derive(Default)]
pub(crate) struct FreshBytes {
    call: u64,
    count: usize,
}

impl FreshBytes {
    /// Adds bytes; returns the number of all of the call, or 0 without prevention.
    pub(crate) fn add(&mut self, length: usize, context: &FileContext) -> usize {
        if !context.strict {
            return 0;
        }
        let before = if self.call == context.calls { self.count } else { 0 };
        (self.call, self.count) = (context.calls, before.saturating_add(length));
        self.count
    }
}

/// The files of a direction.
#[derive(Default)]
pub(crate) struct FileList {
    pub list: Vec<FileTrack>,
    /// The last file is still being filled.
    open: bool,
    /// Memory of all files but the last one, in bytes.
    held: usize,
    /// Names that some receivers read instead of a file's own.
    pub aliases: Vec<Vec<u8>>,
    /// The limit of prevention was exceeded.
    too_many: bool,
    /// Number of the latest bytes that were not inspected and must be held, whatever the window.
    pub fresh: usize,
}

impl FileList {
    /// Opens a file, unless too many are tracked. Returns whether its name exceeds [`MAX_NAME`].
    #[must_use]
    pub(crate) fn open(&mut self, name: &[u8], context: &mut FileContext) -> bool {
        self.close(FileState::Truncated);
        let most = if context.strict { MAX_FILES_STRICT } else { MAX_FILES };
        if self.list.len() >= most {
            self.too_many |= context.strict;
            return false;
        }
        // Receivers read longer names; their length has a limit elsewhere.
        let kept = before(name, if context.strict { usize::MAX } else { MAX_NAME });
        self.held = self.held.saturating_add(self.list.last().map_or(0, FileTrack::held));
        self.list.push(FileTrack::open(context.next_id, kept, &context.settings));
        context.next_id = context.next_id.wrapping_add(1);
        self.open = true;
        name.len() > MAX_NAME
    }

    /// Bytes of memory held outside of the structure itself.
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

    /// Whether the number of files exceeded the limit of prevention.
    pub(crate) const fn has_too_many(&self) -> bool {
        self.too_many
    }

    /// Adds a file, or a piece of one, that was found in a form. Returns whether a name exceeds [`MAX_NAME`].
    #[must_use]
    pub(crate) fn take(&mut self, found: MultipartFinding<'_>, context: &mut FileContext) -> bool {
        match found {
            MultipartFinding::Open(name, others) => {
                let is_long = self.open(name, context);
                self.too_many |= self.list.len() + self.aliases.len() + others.len() > MAX_FILES_STRICT;
                if !self.too_many {
                    self.aliases.extend_from_slice(others);
                }
                return is_long;
            }
            MultipartFinding::Data(data) => self.append(data),
            MultipartFinding::Close => self.close(FileState::Closed),
            MultipartFinding::Odd(_) => {}
        }
        false
    }

    /// Marks the open file as a piece of a larger one: offsets of its first and last byte.
    pub(crate) fn set_range(&mut self, start: Option<u64>, end: Option<u64>) {
        if let Some(file) = self.list.last_mut().filter(|_| self.open) {
            file.start = start;
            file.end = end;
        }
    }

    /// Appends content to the open file.
    pub(crate) fn append(&mut self, data: &[u8]) {
        if self.open
            && let Some(file) = self.list.last_mut()
        {
            file.append_fresh(data, self.fresh);
        }
    }

    /// Whether the open file is to be stored.
    pub(crate) fn is_kept(&self) -> bool {
        self.open && self.list.last().is_some_and(|file| file.store)
    }

    /// Records that `missing` bytes of the open file will never come.
    pub(crate) fn gap(&mut self, missing: u64) {
        if self.open
            && let Some(file) = self.list.last_mut()
        {
            file.gap(missing);
        }
    }

    /// Closes the open file.
    pub(crate) fn close(&mut self, state: FileState) {
        if self.open
            && let Some(file) = self.list.last_mut()
        {
            // A file with gaps was not seen completely.
            let state = if file.gaps && state == FileState::Closed { FileState::Truncated } else { state };
            file.close(state);
        }
        self.open = false;
    }
}
