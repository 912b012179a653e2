// SPDX-License-Identifier: Apache-2.0
//! Files within transactions: names, content windows, hashes, states.
//!
//! The parser that finds a file feeds it here; detection (`file.data`, `filename`, `filemd5`, ...) and the
//! `fileinfo` record read it.

use crate::magic::{self, FileMagic, Magic};
use crate::memory::{Held as _, slide};
use md5::Digest as _;
use std::sync::Arc;

/// Settings of file tracking, from the configuration and from the needs of the loaded rules.
#[derive(Clone, Debug)]
pub struct FileSettings {
    /// Compute MD5 (for a rule or `force-hash`).
    pub md5: bool,
    /// Compute SHA-1.
    pub sha1: bool,
    /// Compute SHA-256.
    pub sha256: bool,
    /// Truncated files and files with gaps get a name in the file store: the SHA-256 of the part that came.
    pub names_parts: bool,
    /// Every file is stored (`file-store.force-filestore`).
    pub store_all: bool,
    /// Limit of a stored file, in bytes, instead of the protocol's own limit; 0 for none.
    pub store_depth: Option<u64>,
    /// Determines the type of a file when a rule needs it.
    pub magic: Option<Arc<Magic>>,
    /// Records contain the type, too (`force-magic`).
    pub tell_magic: bool,
    /// Limit of the content held per file for inspection, in bytes; older bytes are dropped, and counted by
    /// `offset`.
    pub window: usize,
}

impl FileSettings {
    /// Bytes of content that are held if rules decide later whether a file is stored.
    pub const STORE_WINDOW: usize = 16 << 20;
}

impl Default for FileSettings {
    fn default() -> Self {
        FileSettings {
            md5: false,
            sha1: false,
            sha256: false,
            names_parts: false,
            store_all: false,
            store_depth: None,
            magic: None,
            tell_magic: false,
            window: 1 << 20,
        }
    }
}

/// State of a file, as in EVE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileState {
    /// Data is still coming.
    #[default]
    Open,
    /// Complete.
    Closed,
    /// Part of the file was not seen (limit, end of flow).
    Truncated,
    /// A gap made it unusable.
    Error,
}

impl FileState {
    /// EVE's `fileinfo.state`.
    #[must_use]
    pub const fn eve_name(self) -> &'static str {
        match self {
            FileState::Open => "UNKNOWN",
            FileState::Truncated => "TRUNCATED",
            FileState::Closed => "CLOSED",
            FileState::Error => "ERROR",
        }
    }
}

/// Limit of the matching rules that are recorded for one file.
pub(crate) const SIDS_MAX: usize = 64;

/// One file.
pub struct FileTrack {
    /// Number within the flow, from 0; EVE's `file_id` where that is written.
    pub id: u32,
    /// Name (path of the URI, name of an attachment).
    pub name: Vec<u8>,
    /// State.
    pub state: FileState,
    /// Number of bytes seen.
    pub size: u64,
    /// Offset of the first byte, when the transfer is a range of a larger file.
    pub start: Option<u64>,
    /// Last offset of the range.
    pub end: Option<u64>,
    /// Bytes within the file are missing.
    pub gaps: bool,
    /// A `fileinfo` record was written.
    pub logged: bool,
    /// A rule (`filestore`) requested storing the file.
    pub store: bool,
    /// The file was stored.
    pub stored: bool,
    /// Number under which the file is being stored; 0 for none.
    pub store_id: u32,
    /// Bytes of the content that were passed to the file store.
    pub kept: u64,
    /// MD5 of the content; of a whole file only.
    pub md5: Option<[u8; 16]>,
    /// SHA-1 of the content; of a whole file only.
    pub sha1: Option<[u8; 20]>,
    /// SHA-256 of the content; of a whole file only.
    pub sha256: Option<[u8; 32]>,
    /// Sids of the `filestore` rules and others that matched the file (EVE `sid`).
    pub sids: Vec<u32>,
    /// SHA-256 of the part that came of an incomplete file.
    part_name: Option<[u8; 32]>,
    names_parts: bool,
    content: Vec<u8>,
    content_offset: u64,
    window: usize,
    kind: FileMagic,
    tell_magic: bool,
    hash_md5: Option<md5::Md5>,
    hash_sha1: Option<sha1::Sha1>,
    hash_sha256: Option<sha2::Sha256>,
}

impl FileTrack {
    /// Opens a file.
    #[must_use]
    pub fn open(id: u32, name: &[u8], settings: &FileSettings) -> Self {
        FileTrack {
            id,
            name: name.to_vec(),
            state: FileState::Open,
            size: 0,
            start: None,
            end: None,
            gaps: false,
            logged: false,
            store: settings.store_all,
            stored: false,
            store_id: 0,
            kept: 0,
            md5: None,
            sha1: None,
            sha256: None,
            sids: Vec::new(),
            part_name: None,
            names_parts: settings.names_parts,
            content: Vec::new(),
            content_offset: 0,
            window: settings.window,
            kind: FileMagic::new(settings.magic.clone()),
            tell_magic: settings.tell_magic,
            hash_md5: settings.md5.then(md5::Md5::new),
            hash_sha1: settings.sha1.then(sha1::Sha1::new),
            hash_sha256: settings.sha256.then(sha2::Sha256::new),
        }
    }

    /// Appends content.
    pub fn append(&mut self, data: &[u8]) {
        self.append_fresh(data, 0);
    }

    /// Appends content, of which at least the latest `fresh` bytes stay, whatever the window.
    pub(crate) fn append_fresh(&mut self, data: &[u8], fresh: usize) {
        if self.state != FileState::Open {
            return;
        }
        self.size = self.size.saturating_add(data.len() as u64);
        if let Some(hash) = &mut self.hash_md5 {
            hash.update(data);
        }
        if let Some(hash) = &mut self.hash_sha1 {
            hash.update(data);
        }
        if let Some(hash) = &mut self.hash_sha256 {
            hash.update(data);
        }
        if self.content_offset == 0 && self.content.len().saturating_add(data.len()) > self.window {
            self.kind.keep(&self.content, data);
        }
        let gone = slide(&mut self.content, data, self.window.max(fresh));
        self.content_offset = self.content_offset.saturating_add(gone);
    }

    /// The type of the file in words, once enough content has come and if its settings have a
    /// [`FileSettings::magic`]. The first call takes a millisecond.
    #[must_use]
    pub fn magic(&self) -> Option<&str> {
        let enough = self.content_offset > 0 || self.content.len() >= magic::ENOUGH;
        (enough || self.state != FileState::Open).then(|| self.kind.of(&self.content))?
    }

    /// The type for the file's record: always if records are to contain it, else if a rule has needed it, as
    /// in Suricata.
    #[must_use]
    pub fn magic_to_tell(&self) -> Option<&str> {
        if self.tell_magic { self.magic() } else { self.kind.known() }
    }

    /// Raises the limit of held content to at least `window` bytes.
    pub(crate) fn widen(&mut self, window: usize) {
        self.window = self.window.max(window);
    }

    /// Records that `missing` bytes will never come.
    pub fn gap(&mut self, missing: u64) {
        self.gaps = true;
        self.size = self.size.saturating_add(missing);
        self.hash_md5 = None;
        self.hash_sha1 = None;
        if !self.names_parts {
            self.hash_sha256 = None;
        }
    }

    /// Ends the content; `state`: the final state.
    pub fn close(&mut self, state: FileState) {
        if self.state != FileState::Open {
            return;
        }
        self.state = state;
        let hashes = (self.hash_md5.take(), self.hash_sha1.take(), self.hash_sha256.take());
        let sha256 = hashes.2.map(|h| h.finalize().into());
        match state {
            FileState::Closed => {
                self.md5 = hashes.0.map(|h| h.finalize().into());
                self.sha1 = hashes.1.map(|h| h.finalize().into());
                self.sha256 = sha256;
            }
            FileState::Truncated if self.names_parts => self.part_name = sha256,
            FileState::Truncated | FileState::Open | FileState::Error => {}
        }
    }

    /// The SHA-256 that names the file in the file store: of the content, or of the part that came.
    #[must_use]
    pub fn store_name(&self) -> Option<[u8; 32]> {
        self.sha256.or(self.part_name)
    }

    /// Bytes of memory held outside of the structure itself.
    #[must_use]
    pub(crate) fn held(&self) -> usize {
        self.name
            .held()
            .saturating_add(self.content.held())
            .saturating_add(self.sids.held())
            .saturating_add(self.kind.held())
    }

    /// Records that a rule on files matched the file.
    pub fn note_rule(&mut self, sid: u32) {
        if self.sids.len() < SIDS_MAX && !self.sids.contains(&sid) {
            self.sids.push(sid);
        }
    }

    /// Content that was not passed to the file store yet. `None`: some of it is dropped already.
    #[must_use]
    pub fn unkept(&self) -> Option<&[u8]> {
        let from = usize::try_from(self.kept.checked_sub(self.content_offset)?).ok()?;
        self.content.get(from..)
    }

    /// The content held, with the offset of its first byte in the file.
    #[must_use]
    pub fn content(&self) -> (&[u8], u64) {
        (&self.content, self.content_offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(names_parts: bool, state: FileState, gap: bool) -> FileTrack {
        let settings =
            FileSettings { md5: true, sha1: true, sha256: true, names_parts, ..FileSettings::default() };
        let mut file = FileTrack::open(0, b"f", &settings);
        file.append(b"abc");
        if gap {
            file.gap(2);
        }
        file.close(state);
        file
    }

    #[test]
    fn only_what_is_whole_has_hashes() {
        let whole = file(false, FileState::Closed, false);
        assert!(whole.md5.is_some() && whole.sha1.is_some() && whole.sha256.is_some());
        assert_eq!(whole.store_name(), whole.sha256);
        for (gap, state) in
            [(false, FileState::Truncated), (true, FileState::Truncated), (false, FileState::Error)]
        {
            for names_parts in [false, true] {
                let part = file(names_parts, state, gap);
                assert_eq!((part.md5, part.sha1, part.sha256), (None, None, None), "{state:?}");
                // The file store names the file by the part that came.
                let is_named = names_parts && state == FileState::Truncated;
                assert_eq!(part.store_name(), whole.sha256.filter(|_| is_named), "{state:?}");
            }
        }
    }
}
