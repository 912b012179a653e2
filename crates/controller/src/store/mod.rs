// SPDX-License-Identifier: Apache-2.0
//! The store: all versions of documents by kind and name, the audit log, status, and alerts.
//!
//! A change is one transaction. A change that writes documents makes a new generation, with a row of the
//! audit log for each document; numbers of generations are never reused. *Status* is what devices report and
//! what they should run: it has no versions and makes no generation.
//!
//! A store has one writer. A change that [`Store::commit`] has answered survives the end of the process and
//! of the machine.

mod memory;
mod migrations;
mod sqlite;

pub use memory::MemoryStore;
pub use sqlite::SqliteStore;

use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// The current version of a document.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The kind of resource.
    pub kind: String,
    /// The document's name within its kind.
    pub id: String,
    /// The generation that wrote it.
    pub generation: u64,
    /// The body.
    pub body: Value,
}

/// A document that a change writes or removes.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// The kind of resource.
    pub kind: String,
    /// The document's name.
    pub id: String,
    /// The body before.
    pub before: Option<Value>,
    /// The new body; `None` removes the document.
    pub after: Option<Value>,
}

/// A line of status that a change writes or removes.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The kind of status.
    pub kind: String,
    /// The line's name.
    pub id: String,
    /// The body; `None` removes the line.
    pub body: Option<Value>,
}

/// One transaction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// Time of the change, in microseconds since 1970, by the controller's clock.
    pub at: u64,
    /// The author: the id of a token, or `controller`.
    pub who: String,
    /// The name of that token; `None` for the controller itself.
    pub name: Option<String>,
    /// The action, in a word or two.
    pub action: String,
    /// Documents; if there are any, the change makes a generation.
    pub writes: Vec<Write>,
    /// Status.
    pub status: Vec<Status>,
    /// Removed tenants, whose alerts are removed too.
    pub forgets: Vec<String>,
    /// A row of the audit log for an event that changes no document: a refused attempt, an order.
    pub remark: Option<(String, String)>,
    /// Whether the status is repeated by its sender if lost: it then survives the end of the process at once,
    /// but the end of the machine only with the next change that is durable. No effect with documents or a
    /// remark.
    pub repeats: bool,
}

impl Change {
    /// Whether the change may be lost with the machine: see [`Change::repeats`].
    #[must_use]
    pub const fn is_repeated(&self) -> bool {
        self.repeats && self.writes.is_empty() && self.remark.is_none()
    }
}

/// A row of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct AuditRow {
    /// Number of the row, from 1.
    pub row: u64,
    /// The generation that the change made; for a refused change, the generation at that time.
    pub generation: u64,
    /// Time, in microseconds since 1970.
    pub at: u64,
    /// The author: the id of a token, or `controller`.
    pub who: String,
    /// The name of the token then; null for the controller itself, and in rows of older controllers.
    pub name: Option<String>,
    /// The action.
    pub action: String,
    /// The kind of resource.
    pub kind: String,
    /// The resource's name.
    pub id: String,
    /// SHA-256 of the body before.
    pub before: Option<String>,
    /// SHA-256 of the body after.
    pub after: Option<String>,
}

/// An alert as a device reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// The tenant of the traffic; `None`: no tenant.
    pub tenant: Option<String>,
    /// The key that equal alerts share.
    pub key: String,
    /// Time of the newest of these alerts, in microseconds since 1970.
    pub last: u64,
    /// Number of equal alerts in the report.
    pub count: u64,
    /// The event.
    pub body: Value,
}

/// An alert as stored: equal alerts once, with a count.
#[derive(Clone, Debug, PartialEq, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct KeptAlert {
    /// The alert's number; newer alerts have higher ones.
    pub number: u64,
    /// The tenant of the traffic; null: no tenant, visible to administrators and to readers without a tenant.
    pub tenant: Option<String>,
    /// Number of equal alerts.
    pub count: u64,
    /// Time of the first of the equal alerts, in microseconds since 1970.
    pub first: u64,
    /// Time of the last of the equal alerts, in microseconds since 1970.
    pub last: u64,
    /// The newest event, as EVE JSON.
    pub event: Value,
}

/// Kind and name of a document.
pub type DocumentKey = (String, String);

/// A part of a generation's documents.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DocumentPage {
    /// The documents, by kind and name.
    pub documents: Vec<Document>,
    /// The key after which the next part begins; `None` if there are no more documents.
    pub next: Option<DocumentKey>,
}

/// Most alerts that are kept; equal alerts count once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlertBounds {
    /// Alerts of one tenant, and of the traffic of no tenant.
    pub of_tenant: u64,
    /// Alerts in total.
    pub of_all: u64,
}

/// Numbers of entries that a store removed from its history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Generations whose documents were removed.
    pub generations: u64,
    /// Rows of the audit log that were removed.
    pub rows: u64,
}

/// The versions of a document that no query needs any more. `versions`: its versions up to a generation,
/// oldest first, each with the generation that wrote it and whether it is a removal. `at`: the generations
/// that can still be queried, that generation last.
fn superfluous(versions: &[(u64, bool)], at: &BTreeSet<u64>) -> Vec<u64> {
    let last = |asked: u64| versions.iter().rev().find(|(written, _)| *written <= asked);
    let mut needed: BTreeMap<u64, bool> = at.iter().filter_map(|asked| last(*asked).copied()).collect();
    // A removal is needed only if an older version would be found instead.
    while let Some(first) = needed.first_entry().filter(|first| *first.get()) {
        first.remove();
    }
    versions.iter().map(|(written, _)| *written).filter(|written| !needed.contains_key(written)).collect()
}

/// The content of a store when it is opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreContent {
    /// The newest generation; 0 before the first change.
    pub generation: u64,
    /// All documents, in their current versions.
    pub documents: Vec<Document>,
    /// All status documents.
    pub status: Vec<Status>,
}

/// Why the store failed. The change is not stored, except that after [`StoreError::Doubt`] it may be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The disk is full.
    #[error("the disk of the controller's state is full; nothing was changed: make room and try again")]
    Full,
    /// The system did not report whether a change is on the disk.
    #[error(
        "the controller's state could not be written ({0}), and it is unknown whether this change was stored: no further change is accepted until a restart of the controller, which reads the stored state"
    )]
    Doubt(String),
    /// The file cannot be opened or read.
    #[error("the controller's state in {path}: {message}")]
    Unusable {
        /// The file.
        path: String,
        /// The error, and what to do.
        message: String,
    },
}

/// The store of the controller's documents, generations and audit log.
pub trait Store: Send {
    /// Loads the current documents and all status.
    ///
    /// # Errors
    /// The store cannot be read.
    fn load(&mut self) -> Result<StoreContent, StoreError>;

    /// Commits changes in order, all or none, and returns the generation after them. Each change that writes
    /// documents is a generation of its own; all of them share one fsync.
    ///
    /// # Errors
    /// The disk is full, or fails.
    fn commit_all(&mut self, changes: &[Change]) -> Result<u64, StoreError>;

    /// Commits one change; see [`Store::commit_all`].
    ///
    /// # Errors
    /// The disk is full, or fails.
    fn commit(&mut self, change: &Change) -> Result<u64, StoreError> {
        self.commit_all(std::slice::from_ref(change))
    }

    /// The documents of a generation, by kind and name.
    ///
    /// # Errors
    /// The store cannot be read.
    fn at(&mut self, generation: u64) -> Result<Vec<Document>, StoreError>;

    /// Up to `limit` documents of a generation after a key, and where to go on, for callers that let others
    /// use the store between parts. All parts are consistent if the generation is still kept after the last
    /// one.
    /// # Errors
    /// The store cannot be read.
    fn at_part(
        &mut self,
        generation: u64,
        behind: Option<&DocumentKey>,
        limit: usize,
    ) -> Result<DocumentPage, StoreError> {
        let key = |document: &Document| (document.kind.clone(), document.id.clone());
        let mut documents = self.at(generation)?;
        documents.retain(|document| behind.is_none_or(|behind| key(document) > *behind));
        let more = documents.len() > limit;
        documents.truncate(limit);
        let next = documents.last().filter(|_| more).map(key);
        Ok(DocumentPage { documents, next })
    }

    /// Whether the documents of a generation are still kept ([`Store::forget`]); the newest always is.
    ///
    /// # Errors
    /// The store cannot be read.
    fn keeps(&mut self, generation: u64) -> Result<bool, StoreError>;

    /// Removes versions of documents from before a generation, except those of the generations in `but`; and
    /// rows of the audit log beyond the newest `rows`. Current versions are never removed.
    ///
    /// # Errors
    /// The disk fails.
    fn forget(&mut self, before: u64, but: &BTreeSet<u64>, rows: u64) -> Result<Forgotten, StoreError>;

    /// Up to `limit` rows of the audit log after a row, oldest first.
    ///
    /// # Errors
    /// The store cannot be read.
    fn audit(&mut self, behind: u64, limit: usize) -> Result<Vec<AuditRow>, StoreError>;

    /// Stores alerts, equal ones once, keeps the newest within the bounds, and returns how many it removed
    /// for that. `status` is written in the same transaction: the received sequence, so that no alert counts
    /// twice.
    ///
    /// # Errors
    /// The disk is full, or fails.
    fn keep_alerts(
        &mut self,
        alerts: &[Alert],
        keep: AlertBounds,
        status: &[Status],
    ) -> Result<u64, StoreError>;

    /// Up to `limit` alerts with numbers below `below`, newest first; of one tenant if given.
    ///
    /// # Errors
    /// The store cannot be read.
    fn alerts(
        &mut self,
        tenant: Option<&str>,
        below: u64,
        limit: usize,
    ) -> Result<Vec<KeptAlert>, StoreError>;
}

/// SHA-256 of a body, in hex, as in the audit log.
#[must_use]
pub fn hash(body: &Value) -> String {
    hex(&Sha256::digest(body.to_string().as_bytes()))
}

/// Formats bytes in hex.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        use std::fmt::Write as _;
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_go_that_no_generation_is_asked_for() {
        const NONE: [u64; 0] = [];
        let of = |versions: &[(u64, bool)], at: &[u64]| superfluous(versions, &at.iter().copied().collect());
        assert_eq!(of(&[(1, false), (4, false), (7, false)], &[9]), [1, 4]);
        assert_eq!(of(&[(1, false), (4, false), (7, false)], &[3, 9]), [4]);
        assert_eq!(of(&[(4, false), (7, false)], &[3, 6, 9]), NONE);
        // Removed: no version is left, unless an older generation needs one.
        assert_eq!(of(&[(1, false), (4, true)], &[9]), [1, 4]);
        assert_eq!(of(&[(1, false), (4, true)], &[2, 9]), NONE);
        assert_eq!(of(&[(1, false), (4, true), (6, false), (8, true)], &[5, 9]), [1, 4, 6, 8]);
        assert_eq!(of(&[(1, false), (4, true), (6, false), (8, true)], &[5, 7, 9]), [1, 4]);
        assert_eq!(of(&[], &[9]), NONE);
    }
}
