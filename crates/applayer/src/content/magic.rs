// SPDX-License-Identifier: Apache-2.0
//! What files are, in words (`file.magic`, `force-magic`): libmagic, when somebody asks.
//!
//! libmagic takes a millisecond for a file, a hundred times as long as all else. So a file's kind is told
//! apart when it is asked for, not because some rule might: most that do have a pattern beside it that is not
//! there.

use crate::ffi_magic;
pub use crate::ffi_magic::MagicError;
use std::cell::OnceCell;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes of a file from which on its kind is looked for before its end (Suricata's number).
pub(crate) const ENOUGH: usize = 512;
/// So many of its first bytes are looked at. What libmagic knows lies in the first 36 KiB, but for the parts
/// of some archives.
pub(crate) const LOOKED_AT: usize = 64 << 10;

/// A way to tell the kinds of files apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Magic {
    database: Option<PathBuf>,
}

impl Magic {
    /// With the database that the setting `magic-file` names, if it does.
    ///
    /// # Errors
    /// As [`Magic::new`].
    pub fn of(setting: &Option<String>) -> Result<Self, MagicError> {
        let file = setting.as_deref().map(str::trim).filter(|file| !file.is_empty());
        Magic::new(file.map(PathBuf::from))
    }

    /// With a database of libmagic's (`magic-file`), or else its default one.
    ///
    /// # Errors
    /// The library or its database cannot be loaded.
    pub fn new(database: Option<PathBuf>) -> Result<Self, MagicError> {
        ffi_magic::identify(b"", database.as_deref())?;
        Ok(Magic { database })
    }

    /// What content is.
    pub(crate) fn identify(&self, content: &[u8]) -> Option<Box<str>> {
        ffi_magic::identify(content, self.database.as_deref()).ok().flatten()
    }
}

/// The kind of one file, told apart when it is first asked for.
#[derive(Default)]
pub(crate) struct Kind {
    magic: Option<Arc<Magic>>,
    /// The file's first bytes, once its content does not begin with them any more.
    beginning: Box<[u8]>,
    name: OnceCell<Option<Box<str>>>,
}

impl Kind {
    /// `None`: nobody will ask.
    pub(crate) fn new(magic: Option<Arc<Magic>>) -> Self {
        Kind { magic, ..Kind::default() }
    }

    /// To be called with all content of a file before some of its beginning goes, and with what comes behind
    /// it.
    pub(crate) fn keep(&mut self, content: &[u8], more: &[u8]) {
        if self.magic.is_some() && self.name.get().is_none() && self.beginning.is_empty() {
            self.beginning = content.iter().chain(more).copied().take(LOOKED_AT).collect();
        }
    }

    /// What the file is, by its content, of which nothing is gone unless [`Kind::keep`] was called before.
    /// `None`: nobody asked for it when the file began, or it has no content or no known kind.
    pub(crate) fn of(&self, content: &[u8]) -> Option<&str> {
        let magic = self.magic.as_ref()?;
        let name = self.name.get_or_init(|| {
            let bytes = if self.beginning.is_empty() { content } else { &self.beginning };
            let bytes = bytes.get(..LOOKED_AT).unwrap_or(bytes);
            (!bytes.is_empty()).then(|| magic.identify(bytes)).flatten()
        });
        name.as_deref()
    }

    /// As [`Kind::of`], if somebody has asked already.
    pub(crate) fn known(&self) -> Option<&str> {
        self.name.get()?.as_deref()
    }

    /// Bytes of memory held beside its own place.
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
        // The kind of a long file is asked for when its beginning is not held any more.
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
