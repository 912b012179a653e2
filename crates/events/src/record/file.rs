// SPDX-License-Identifier: Apache-2.0
//! Files in transactions: the object `fileinfo`, and the items of an alert's `files`.

use super::common::Common;
use super::object::object;
use crate::JsonWriter;
use crate::config::HeaderOptions;

/// The state of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileRecordState {
    /// Still open.
    #[default]
    Unknown,
    /// Complete.
    Closed,
    /// Cut short: by a limit, a gap or the end of the flow.
    Truncated,
    /// The parser failed.
    Error,
}

impl FileRecordState {
    /// EVE's spelling.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            FileRecordState::Unknown => "UNKNOWN",
            FileRecordState::Closed => "CLOSED",
            FileRecordState::Truncated => "TRUNCATED",
            FileRecordState::Error => "ERROR",
        }
    }
}

/// One file.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileInfo<'a> {
    /// Name in the traffic; `None` if the file has none.
    pub filename: Option<&'a [u8]>,
    /// Rules that store the file.
    pub sids: &'a [u32],
    /// Type of the content, in words.
    pub magic: Option<&'a str>,
    /// Whether data is missing.
    pub gaps: bool,
    /// State of the file.
    pub state: FileRecordState,
    /// MD5; written for complete files only.
    pub md5: Option<[u8; 16]>,
    /// SHA-1; written for complete files only.
    pub sha1: Option<[u8; 20]>,
    /// SHA-256: of a complete file, or the name of a stored one.
    pub sha256: Option<[u8; 32]>,
    /// Number of the stored file; `None` if it was not stored.
    pub file_id: Option<u32>,
    /// A rule requested storing the file, and it is not complete yet.
    pub storing: bool,
    /// Bytes seen.
    pub size: u64,
    /// First and last byte, for a part of a larger file.
    pub range: Option<(u64, u64)>,
    /// Transaction of the file.
    pub tx_id: u64,
}

object! {
    /// A file.
    pub(crate) struct FileFields<'a> = "fileinfo", list "files": "Files of the transaction, in alerts." {
        /// Name as in the traffic.
        filename: Option<&'a [u8]>,
        /// Rules that store the file.
        sid: &'a [u32],
        /// Kind of content.
        magic: Option<&'a str>,
        /// Whether data is missing.
        gaps: bool,
        /// CLOSED, TRUNCATED, ERROR or UNKNOWN.
        state: &'a str,
        /// MD5 of the content.
        md5: Option<&'a [u8; 16]>,
        /// SHA-1 of the content.
        sha1: Option<&'a [u8; 20]>,
        /// SHA-256 of the content, of a whole file; of one that is kept and is not whole, of the part that
        /// came.
        sha256: Option<&'a [u8; 32]>,
        /// Whether it was stored.
        stored: bool,
        /// Number of the stored file.
        file_id: Option<u32>,
        /// It is being stored.
        storing: Option<bool>,
        /// Bytes seen.
        size: u64,
        /// First byte, for a part of a larger file.
        start: Option<u64>,
        /// Last byte, for a part of a larger file.
        end: Option<u64>,
        /// Transaction it came in.
        tx_id: u64,
    }
}

impl FileInfo<'_> {
    /// The fields of the object `fileinfo`, and of an item of `files`.
    pub(crate) fn fields(&self) -> FileFields<'_> {
        let whole = self.state == FileRecordState::Closed;
        FileFields {
            filename: self.filename,
            sid: self.sids,
            magic: self.magic,
            gaps: self.gaps,
            state: self.state.name(),
            md5: self.md5.as_ref().filter(|_| whole),
            sha1: self.sha1.as_ref().filter(|_| whole),
            sha256: self.sha256.as_ref(),
            stored: self.file_id.is_some(),
            file_id: self.file_id,
            storing: (self.storing && self.file_id.is_none()).then_some(true),
            size: self.size,
            start: self.range.map(|(start, _)| start),
            end: self.range.map(|(_, end)| end),
            tx_id: self.tx_id,
        }
    }
}

/// `fileinfo`: a file that is complete or cannot be completed.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileRecord<'a> {
    /// Application protocol that carried it.
    pub app_proto: Option<&'a str>,
    /// The file.
    pub file: FileInfo<'a>,
    /// Address for which a proxy forwarded, in mode `extra-data`.
    pub xff: Option<&'a str>,
}

impl FileRecord<'_> {
    /// Writes the event; `app_layer` writes the transaction's objects (`http`, `smtp` and `email`, ...).
    pub fn write(
        &self,
        w: &mut JsonWriter,
        options: &HeaderOptions,
        common: &Common<'_>,
        app_layer: impl FnOnce(&mut JsonWriter),
    ) {
        common.begin_packet_event(w, options, "fileinfo");
        app_layer(w);
        if let Some(name) = self.app_proto {
            w.str("app_proto", name);
        }
        self.file.fields().write_object(w);
        if let Some(xff) = self.xff {
            w.str("xff", xff);
        }
        common.finish(w, options);
    }
}
