// SPDX-License-Identifier: Apache-2.0
//! Types of files in words (`file.magic`, `force-magic`), determined by libmagic on request.
//!
//! libmagic takes a millisecond for a file, far longer than all other inspection. So a file's type is
//! determined when a rule evaluates it, not because some rule might: most rules with such a condition also
//! have a pattern that the file lacks.

use crate::ffi_magic;
pub use crate::ffi_magic::MagicError;
use std::cell::OnceCell;
use std::path::PathBuf;
use std::sync::Arc;

/// Size, in bytes, from which on a file's type is determined before its end (Suricata's number).
pub(crate) const ENOUGH: usize = 512;
/// Limit of a file's beginning that libmagic gets, in bytes. libmagic's patterns lie in the first 36 KiB,
/// except for parts of some archives.
pub(crate) const LOOKED_AT: usize = 64 << 10;

/// Determines types of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Magic {
    database: Option<PathBuf>,
}

impl Magic {
    /// Loads libmagic with the database of the setting `magic-file`, if there is one.
    ///
    /// # Errors
    /// As [`Magic::new`].
    pub fn of(setting: &Option<String>) -> Result<Self, MagicError> {
        let file = setting.as_deref().map(str::trim).filter(|file| !file.is_empty());
        Magic::new(file.map(PathBuf::from))
    }

    /// Loads libmagic with a database (`magic-file`), or else with its default one.
    ///
    /// # Errors
    /// The library or its database cannot be loaded.
    pub fn new(database: Option<PathBuf>) -> Result<Self, MagicError> {
        ffi_magic::identify(b"", database.as_deref())?;
        Ok(Magic { database })
    }

    /// The type of some content.
    pub(crate) fn identify(&self, content: &[u8]) -> Option<Box<str>> {
        ffi_magic::identify(content, self.database.as_deref()).ok().flatten()
    }
}

/// The type of one file, determined at the first request.
#[derive(Default)]
pub(crate) struct FileMagic {
    magic: Option<Arc<Magic>>,
    /// The file's first bytes, once its held content does not include them any more.
    beginning: Box<[u8]>,
    name: OnceCell<Option<Box<str>>>,
}

impl FileMagic {
    /// `None`: the type is never determined.
    pub(crate) fn new(magic: Option<Arc<Magic>>) -> Self {
        FileMagic { magic, ..FileMagic::default() }
    }

    /// Keeps the file's beginning. Called before some of it is dropped, with all held content and the bytes
    /// after it.
    pub(crate) fn keep(&mut self, content: &[u8], more: &[u8]) {
        if self.magic.is_some() && self.name.get().is_none() && self.beginning.is_empty() {
            self.beginning = content.iter().chain(more).copied().take(LOOKED_AT).collect();
        }
    }

    /// The type of the file, from its content, which must be complete unless [`FileMagic::keep`] was called
    /// before. `None`: the file has no [`Magic`], no content or no known type.
    pub(crate) fn of(&self, content: &[u8]) -> Option<&str> {
        let magic = self.magic.as_ref()?;
        let name = self.name.get_or_init(|| {
            let bytes = if self.beginning.is_empty() { content } else { &self.beginning };
            let bytes = bytes.get(..LOOKED_AT).unwrap_or(bytes);
            (!bytes.is_empty()).then(|| magic.identify(bytes)).flatten()
        });
        name.as_deref()
    }

    /// The type of the file, if it was determined already.
    pub(crate) fn known(&self) -> Option<&str> {
        self.name.get()?.as_deref()
    }

    /// Bytes of memory held outside of the structure itself.
    pub(crate) fn held(&self) -> usize {
        self.beginning.len().saturating_add(self.known().map_or(0, str::len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{FileSettings, FileState, FileTrack};

    #[test]
    fn files_are_told_apart_where_the_library_is() {
        let missing = Magic::new(Some(PathBuf::from("/nonexistent/magic.mgc")));
        assert!(missing.is_err());
        // Where libmagic is not installed there is nothing to test: the error says so.
        let Ok(magic) = Magic::new(None) else { return };
        let settings = FileSettings { magic: Some(Arc::new(magic)), ..FileSettings::default() };
        let mut file = FileTrack::open(0, b"a", &settings);
        file.append(b"%PDF-1.5\n");
        assert_eq!(file.magic(), None, "too little yet");
        file.append(&[b'%'; 600]);
        assert_eq!(file.magic_to_tell(), None, "nobody has asked yet");
        let is_pdf = |file: &FileTrack| file.magic().is_some_and(|m| m.starts_with("PDF document"));
        assert!(is_pdf(&file), "{:?}", file.magic());
        assert_eq!(file.magic_to_tell(), file.magic());
        let mut small = FileTrack::open(0, b"b", &settings);
        small.append(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0");
        small.close(FileState::Closed);
        assert!(small.magic().is_some_and(|m| m.starts_with("PNG image data")), "{:?}", small.magic());
        // The type of a long file is requested when its beginning is not held any more.
        let narrow = FileSettings { window: 700, ..settings.clone() };
        for pieces in [1, 100, 699, 5000] {
            let mut long = FileTrack::open(0, b"d", &narrow);
            let content = [b"%PDF-1.5\n".as_slice(), &[b'%'; 9000]].concat();
            content.chunks(pieces).for_each(|piece| long.append(piece));
            assert!(long.content().1 > 0 && is_pdf(&long), "{pieces}: {:?}", long.magic());
            assert!(long.held() >= long.content().0.len() + narrow.window, "{} are held", long.held());
        }
        let told = FileSettings { tell_magic: true, ..settings };
        let mut told = FileTrack::open(0, b"e", &told);
        told.append(&[b"%PDF-1.5\n".as_slice(), &[b'%'; 600]].concat());
        assert!(told.magic_to_tell().is_some_and(|m| m.starts_with("PDF document")), "for its record");
        let mut other = FileTrack::open(0, b"c", &FileSettings::default());
        other.append(b"%PDF-1.5\n");
        other.close(FileState::Closed);
        assert_eq!(other.magic(), None, "nobody asks");
    }
}
