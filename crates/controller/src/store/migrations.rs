// SPDX-License-Identifier: Apache-2.0
//! Tables of the SQLite store, version by version. A released version never changes: a change adds a version.

/// The statements that turn version n - 1 into version n, from 1.
pub(super) const MIGRATIONS: &[&str] = &["
CREATE TABLE generations (
    generation INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    who TEXT NOT NULL,
    action TEXT NOT NULL
) STRICT;
CREATE TABLE documents (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    body TEXT,
    PRIMARY KEY (kind, id, generation)
) STRICT, WITHOUT ROWID;
CREATE TABLE current (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE status (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE audit (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    generation INTEGER NOT NULL,
    at INTEGER NOT NULL,
    who TEXT NOT NULL,
    action TEXT NOT NULL,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    before TEXT,
    after TEXT
) STRICT;
CREATE TABLE alerts (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    count INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX alerts_by_key ON alerts (tenant, key);
CREATE INDEX alerts_by_tenant ON alerts (tenant, number);
", "
-- Bodies outside the tree of names: where they are in it a comparison with the name of a rule file of 20 MB reads all of it, and each
-- change of some other document compares with it.
CREATE TABLE documents_beside (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    body TEXT,
    PRIMARY KEY (kind, id, generation)
) STRICT;
INSERT INTO documents_beside SELECT kind, id, generation, body FROM documents;
DROP TABLE documents;
ALTER TABLE documents_beside RENAME TO documents;
CREATE TABLE status_beside (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (kind, id)
) STRICT;
INSERT INTO status_beside SELECT kind, id, body FROM status;
DROP TABLE status;
ALTER TABLE status_beside RENAME TO status;
", "
-- The name of a token at the time: a token that is revoked has none any more.
ALTER TABLE audit ADD COLUMN name TEXT;
"];
