// SPDX-License-Identifier: Apache-2.0
//! What the controller keeps: documents by kind and name, every version of them, who changed what, and the
//! alerts.
//!
//! A change is one transaction. One that writes documents makes a new generation, and a row of the audit log
//! for each document; the number of a generation is never used again. *Status* is what devices report and
//! what they are to run: it has no versions and makes no generation.
//!
//! A store has one writer. What [`Store::commit`] has answered survives the end of the process and of the
//! machine.

mod memory;
mod migrations;
mod sqlite;

pub use memory::MemoryStore;
pub use sqlite::SqliteStore;

use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// A document as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The kind of resource.
    pub kind: String,
    /// Its name among those of its kind.
    pub id: String,
    /// The generation that wrote it.
    pub generation: u64,
    /// What it says.
    pub body: Value,
}

/// A document that a change writes, or removes.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// The kind of resource.
    pub kind: String,
    /// Its name.
    pub id: String,
    /// What it said before.
    pub before: Option<Value>,
    /// What it says then; `None` removes it.
    pub after: Option<Value>,
}

/// A line of status that a change writes, or removes.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The kind of thing.
    pub kind: String,
    /// Its name.
    pub id: String,
    /// What is known of it; `None` removes it.
    pub body: Option<Value>,
}

/// One transaction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// When, in microseconds since 1970, by the controller's clock.
    pub at: u64,
    /// Who: the id of a token, or `controller`.
    pub who: String,
    /// The name of that token; none for the controller itself.
    pub name: Option<String>,
    /// What was done, in a word or two.
    pub action: String,
    /// Documents; with any, the change is a generation.
    pub writes: Vec<Write>,
    /// Status.
    pub status: Vec<Status>,
    /// Tenants that are gone: their alerts go with them.
    pub forgets: Vec<String>,
    /// A row of the audit log for what changes no document: a refused attempt, an order.
    pub remark: Option<(String, String)>,
    /// Whoever said it says it again: status that survives the end of the process at once, that of the
    /// machine only with the next change that does. Of no effect with documents or a remark.
    pub repeats: bool,
}

impl Change {
    /// Whether it comes again if the machine dies: see [`Change::repeats`].
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
    /// The generation that the change made, or that stood when it was refused.
    pub generation: u64,
    /// When, in microseconds since 1970.
    pub at: u64,
    /// Who: the id of a token, or `controller`.
    pub who: String,
    /// The name that the token had; null for the controller itself, and in rows of a controller that did not
    /// note it.
    pub name: Option<String>,
    /// What was done.
    pub action: String,
    /// The kind of resource.
    pub kind: String,
    /// Its name.
    pub id: String,
    /// SHA-256 of what it said before.
    pub before: Option<String>,
    /// SHA-256 of what it said then.
    pub after: Option<String>,
}

/// An alert as a device tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// Whose traffic; `None`: no tenant's.
    pub tenant: Option<String>,
    /// What equal alerts have in common.
    pub key: String,
    /// When the newest of them was, in microseconds since 1970.
    pub last: u64,
    /// How many are told at once.
    pub count: u64,
    /// The event.
    pub body: Value,
}

/// An alert as it is kept: equal ones once, counted.
#[derive(Clone, Debug, PartialEq, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct KeptAlert {
    /// Its number; newer alerts have higher ones.
    pub number: u64,
    /// Whose traffic; null: that of no tenant, which administrators see and readers of the whole.
    pub tenant: Option<String>,
    /// How many equal ones there were.
    pub count: u64,
    /// When the first of them was, in microseconds since 1970.
    pub first: u64,
    /// When the last was.
    pub last: u64,
    /// The newest event, as EVE JSON.
    pub event: Value,
}

/// Kind and name of a document.
pub type Key = (String, String);

/// Some of the documents of a generation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// The documents, by kind and name.
    pub documents: Vec<Document>,
    /// Behind what the next ones are; `None` if there are no more.
    pub next: Option<Key>,
}

/// How many alerts are kept, equal ones counted once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlertBounds {
    /// Of a tenant, and of the traffic of none.
    pub of_tenant: u64,
    /// Of all.
    pub of_all: u64,
}

/// How much was forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Generations whose documents are no longer there.
    pub generations: u64,
    /// Rows of the audit log.
    pub rows: u64,
}

/// Of the versions of a document up to a generation, oldest first (the generation that wrote each, and
/// whether it is a removal), those that nobody asks for any more. `at`: the generations in which it is still
/// asked what stood; the last of them is that generation.
fn superfluous(versions: &[(u64, bool)], at: &BTreeSet<u64>) -> Vec<u64> {
    let last = |asked: u64| versions.iter().rev().find(|(written, _)| *written <= asked);
    let mut needed: BTreeMap<u64, bool> = at.iter().filter_map(|asked| last(*asked).copied()).collect();
    // A removal says something only where something older could be found in its place.
    while let Some(first) = needed.first_entry().filter(|first| *first.get()) {
        first.remove();
    }
    versions.iter().map(|(written, _)| *written).filter(|written| !needed.contains_key(written)).collect()
}

/// What a store holds when it is opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loaded {
    /// The newest generation; 0 before the first change.
    pub generation: u64,
    /// All documents.
    pub documents: Vec<Document>,
    /// All status.
    pub status: Vec<Status>,
}

/// Why a store did not do it. Nothing of the change is there, but for [`StoreError::Doubt`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No room is left.
    #[error("the disk of the controller's state is full; nothing was changed: make room and try again")]
    Full,
    /// The system could not say whether a change is on the disk.
    #[error(
        "the controller's state could not be written ({0}), and whether this change is there is not known: nothing more is \
         changed until the controller is started again, which reads what is there"
    )]
    Doubt(String),
    /// It cannot be opened or read.
    #[error("the controller's state in {path}: {message}")]
    Unusable {
        /// The file.
        path: String,
        /// What is wrong and what to do.
        message: String,
    },
}

/// A store; see the module.
pub trait Store: Send {
    /// Everything that stands.
    ///
    /// # Errors
    /// It cannot be read.
    fn load(&mut self) -> Result<Loaded, StoreError>;

    /// Does changes in their order, all of them or nothing, and returns the generation that stands then. Each
    /// that writes documents is a generation of its own; together they wait for the disk once.
    ///
    /// # Errors
    /// The disk is full, or fails.
    fn commit_all(&mut self, changes: &[Change]) -> Result<u64, StoreError>;

    /// Does one change; see [`Store::commit_all`].
    ///
    /// # Errors
    /// The disk is full, or fails.
    fn commit(&mut self, change: &Change) -> Result<u64, StoreError> {
        self.commit_all(std::slice::from_ref(change))
    }

    /// The documents as they stood in a generation, by kind and name.
    ///
    /// # Errors
    /// It cannot be read.
    fn at(&mut self, generation: u64) -> Result<Vec<Document>, StoreError>;

    /// The next of them behind a kind and name, `limit` at most, and where to go on: for those who let others
    /// have the store in between. All of them are right if the generation is kept when the last has come.
    ///
    /// # Errors
    /// It cannot be read.
    fn at_part(&mut self, generation: u64, behind: Option<&Key>, limit: usize) -> Result<Part, StoreError> {
        let key = |document: &Document| (document.kind.clone(), document.id.clone());
        let mut documents = self.at(generation)?;
        documents.retain(|document| behind.is_none_or(|behind| key(document) > *behind));
        let more = documents.len() > limit;
        documents.truncate(limit);
        let next = documents.last().filter(|_| more).map(key);
        Ok(Part { documents, next })
    }

    /// Whether the documents of a generation are still kept ([`Store::forget`]); the newest always are.
    ///
    /// # Errors
    /// It cannot be read.
    fn keeps(&mut self, generation: u64) -> Result<bool, StoreError>;

    /// Forgets what documents said before a generation, but for what stood in some others (`but`); and rows
    /// of the audit log beyond the newest so many. What stands is never forgotten.
    ///
    /// # Errors
    /// The disk fails.
    fn forget(&mut self, before: u64, but: &BTreeSet<u64>, rows: u64) -> Result<Forgotten, StoreError>;

    /// Up to `limit` rows of the audit log behind a row, oldest first.
    ///
    /// # Errors
    /// It cannot be read.
    fn audit(&mut self, behind: u64, limit: usize) -> Result<Vec<AuditRow>, StoreError>;

    /// Keeps alerts, equal ones once, and no more than these many, the newest; returns how many it forgot for
    /// that. `status` is written along, all of it or nothing: what has come, so that no alert is counted
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

    /// Up to `limit` alerts with lower numbers than `below`, newest first; of one tenant if named.
    ///
    /// # Errors
    /// It cannot be read.
    fn alerts(
        &mut self,
        tenant: Option<&str>,
        below: u64,
        limit: usize,
    ) -> Result<Vec<KeptAlert>, StoreError>;
}

/// SHA-256 of a body, in hex: what the audit log says of it.
#[must_use]
pub fn hash(body: &Value) -> String {
    hex(&Sha256::digest(body.to_string().as_bytes()))
}

/// Bytes in hex.
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
        // Removed: nothing of it is left, unless an older generation has it.
        assert_eq!(of(&[(1, false), (4, true)], &[9]), [1, 4]);
        assert_eq!(of(&[(1, false), (4, true)], &[2, 9]), NONE);
        assert_eq!(of(&[(1, false), (4, true), (6, false), (8, true)], &[5, 9]), [1, 4, 6, 8]);
        assert_eq!(of(&[(1, false), (4, true), (6, false), (8, true)], &[5, 7, 9]), [1, 4]);
        assert_eq!(of(&[], &[9]), NONE);
    }
}
