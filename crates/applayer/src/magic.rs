// SPDX-License-Identifier: Apache-2.0
//! What files are, in words (`file.magic`, `force-magic`): libmagic, when somebody asks.

use crate::ffi_magic;
pub use crate::ffi_magic::MagicError;
use std::path::PathBuf;

/// Bytes of a file from which on its kind is looked for before its end (Suricata's number).
pub(crate) const ENOUGH: usize = 512;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{FileSettings, FileState, FileTrack};
    use std::sync::Arc;

    #[test]
    fn files_are_told_apart_where_the_library_is() {
        let missing = Magic::new(Some(PathBuf::from("/nonexistent/magic.mgc")));
        assert!(missing.is_err());
        // Where libmagic is not installed there is nothing to test: the error says so.
        let Ok(magic) = Magic::new(None) else { return };
        let settings = FileSettings { magic: Some(Arc::new(magic)), ..FileSettings::default() };
        let mut file = FileTrack::open(0, b"a", &settings);
        file.append(b"%PDF-1.5\n");
        assert_eq!(file.magic, None, "too little yet");
        file.append(&[b'%'; 600]);
        assert!(file.magic.as_deref().is_some_and(|m| m.starts_with("PDF document")), "{:?}", file.magic);
        let mut small = FileTrack::open(0, b"b", &settings);
        small.append(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0");
        small.close(FileState::Closed);
        assert!(small.magic.as_deref().is_some_and(|m| m.starts_with("PNG image data")), "{:?}", small.magic);
        let mut other = FileTrack::open(0, b"c", &FileSettings::default());
        other.append(b"%PDF-1.5\n");
        other.close(FileState::Closed);
        assert_eq!(other.magic, None, "nobody asks");
    }
}
