// SPDX-License-Identifier: Apache-2.0
//! Files in transactions: the object `fileinfo`, and the items of an alert's `files`.

use super::common::Common;
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

impl FileInfo<'_> {
    /// Writes the fields into an object that is open.
    pub(crate) fn write_fields(&self, w: &mut JsonWriter) {
        if let Some(name) = self.filename {
            w.text("filename", name);
        }
        if !self.sids.is_empty() {
            w.array("sid");
            for sid in self.sids {
                w.item_num(*sid);
            }
            w.end_array();
        }
        if let Some(magic) = self.magic {
            w.str("magic", magic);
        }
        w.bool("gaps", self.gaps);
        w.str("state", self.state.name());
        if self.state == FileRecordState::Closed {
            if let Some(md5) = &self.md5 {
                w.hex("md5", md5);
            }
            if let Some(sha1) = &self.sha1 {
                w.hex("sha1", sha1);
            }
        }
        if let Some(sha256) = &self.sha256 {
            w.hex("sha256", sha256);
        }
        w.bool("stored", self.file_id.is_some());
        match self.file_id {
            Some(id) => w.num("file_id", id),
            None if self.storing => w.bool("storing", true),
            None => {}
        }
        w.num("size", self.size);
        if let Some((start, end)) = self.range {
            w.num("start", start);
            w.num("end", end);
        }
        w.num("tx_id", self.tx_id);
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
        w.object("fileinfo");
        self.file.write_fields(w);
        w.end_object();
        if let Some(xff) = self.xff {
            w.str("xff", xff);
        }
        common.finish(w, options);
    }
}
