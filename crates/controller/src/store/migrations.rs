// SPDX-License-Identifier: Apache-2.0
//! The tables of the SQLite store, version by version. A version that was released is never changed: a change is one more.

/// What makes version n of version n - 1, from 1.
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
"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Change, SqliteStore, Status, Store, Write};
    use serde_json::json;

    #[test]
    fn what_the_first_version_kept_is_there() {
        let folder = std::env::temp_dir().join(format!("bartizan-migrations-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("controller.db");
        let old = rusqlite::Connection::open(&path).unwrap();
        old.execute_batch(MIGRATIONS[0]).unwrap();
        old.execute_batch(
            "INSERT INTO generations VALUES (1, 0, 'me', 'put'), (2, 0, 'me', 'put');
             INSERT INTO documents VALUES ('tenants', 'acme', 1, '{\"a\":1}'), ('tenants', 'acme', 2, '{\"a\":2}');
             INSERT INTO current VALUES ('tenants', 'acme', 2);
             INSERT INTO status VALUES ('devices', 'edge', '{\"wanted\":2}');",
        )
        .unwrap();
        old.pragma_update(None, "user_version", 1).unwrap();
        drop(old);
        let mut store = SqliteStore::open(&path).unwrap();
        let loaded = store.load().unwrap();
        assert_eq!((loaded.generation, loaded.documents[0].body.clone()), (2, json!({ "a": 2 })));
        assert_eq!(loaded.status[0].body, Some(json!({ "wanted": 2 })));
        assert_eq!(store.at(1).unwrap()[0].body, json!({ "a": 1 }));
        // And goes on: a line is written in place of the one that was there.
        let line = |wanted: u64| Status {
            kind: "devices".to_owned(),
            id: "edge".to_owned(),
            body: Some(json!({ "wanted": wanted })),
        };
        let write = Write { kind: "tenants".into(), id: "b".into(), before: None, after: Some(json!({})) };
        let change = Change { writes: vec![write], status: vec![line(3)], ..Change::default() };
        assert_eq!(store.commit(&change).unwrap(), 3);
        let loaded = store.load().unwrap();
        assert_eq!((loaded.documents.len(), loaded.status), (2, vec![line(3)]));
        drop(store);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
