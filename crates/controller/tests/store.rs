// SPDX-License-Identifier: Apache-2.0
//! All stores behave alike, and confirmed changes of the file store survive closing.

use bartizan_controller::store::{
    Alert, AlertBounds, Change, Forgotten, MemoryStore, SqliteStore, Status, Store, StoreError, Write, hash,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bartizan-store-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
    fn file(&self) -> PathBuf {
        self.0.join("controller.db")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn write(kind: &str, id: &str, before: Option<Value>, after: Option<Value>) -> Write {
    Write { kind: kind.to_owned(), id: id.to_owned(), before, after }
}

fn change(writes: Vec<Write>, status: Vec<Status>) -> Change {
    let (who, action) = ("me".to_owned(), "put".to_owned());
    Change { at: 7, who, action, writes, status, ..Change::default() }
}

/// Both stores, for the same changes.
fn both(folder: &Folder) -> [Box<dyn Store>; 2] {
    [Box::new(MemoryStore::default()), Box::new(SqliteStore::open(&folder.file()).unwrap())]
}

#[test]
fn stores_do_the_same() {
    let folder = Folder::new("same");
    for mut store in both(&folder) {
        assert_eq!(store.load().unwrap().generation, 0);
        let (a, b) = (json!({"v": 1}), json!({"v": 2}));
        assert_eq!(store.commit(&change(vec![write("k", "x", None, Some(a.clone()))], vec![])), Ok(1));
        let both =
            vec![write("k", "x", Some(a.clone()), Some(b.clone())), write("k", "y", None, Some(a.clone()))];
        assert_eq!(store.commit(&change(both, vec![])), Ok(2));
        assert_eq!(store.commit(&change(vec![write("k", "x", Some(b.clone()), None)], vec![])), Ok(3));
        // Status makes no generation.
        let status = Status { kind: "d".to_owned(), id: "one".to_owned(), body: Some(json!({"s": 1})) };
        assert_eq!(store.commit(&change(vec![], vec![status.clone()])), Ok(3));
        let remark = Some(("requests".to_owned(), "/v1/x".to_owned()));
        assert_eq!(store.commit(&Change { remark, ..change(vec![], vec![]) }), Ok(3));

        let loaded = store.load().unwrap();
        let standing: Vec<_> = loaded.documents.iter().map(|d| (d.id.as_str(), d.generation)).collect();
        assert_eq!((loaded.generation, standing), (3, vec![("y", 2)]));
        assert_eq!(loaded.status, std::slice::from_ref(&status));
        let at = |store: &mut Box<dyn Store>, generation| -> Vec<(String, u64, Value)> {
            let all = store.at(generation).unwrap();
            all.into_iter().map(|d| (d.id, d.generation, d.body)).collect()
        };
        assert_eq!(at(&mut store, 0), []);
        assert_eq!(at(&mut store, 1), [("x".to_owned(), 1, a.clone())]);
        assert_eq!(at(&mut store, 2), [("x".to_owned(), 2, b.clone()), ("y".to_owned(), 2, a.clone())]);
        assert_eq!(at(&mut store, 3), [("y".to_owned(), 2, a.clone())]);

        let rows = store.audit(0, 100).unwrap();
        let hashes = |n: usize| (rows[n].before.clone(), rows[n].after.clone());
        assert_eq!(
            rows.iter().map(|r| (r.row, r.generation)).collect::<Vec<_>>(),
            [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)]
        );
        assert_eq!(hashes(1), (Some(hash(&a)), Some(hash(&b))));
        assert_eq!(hashes(3), (Some(hash(&b)), None));
        assert_eq!(hashes(4), (None, None));
        assert_eq!(store.audit(2, 2).unwrap().iter().map(|r| r.row).collect::<Vec<_>>(), [3, 4]);
        // Status that may be lost is stored as well, and later changes are answered as before.
        let again = Status { body: Some(json!({"s": 2})), ..status.clone() };
        let repeats = Change { repeats: true, ..change(vec![], vec![again.clone()]) };
        assert_eq!(store.commit(&repeats), Ok(3));
        assert_eq!(store.load().unwrap().status, [again]);
        // A status line goes, too.
        assert_eq!(store.commit(&change(vec![], vec![Status { body: None, ..status }])), Ok(3));
        assert_eq!(store.load().unwrap().status, []);
    }
}

#[test]
fn what_is_too_old_is_forgotten_but_what_stands_and_what_devices_run() {
    let folder = Folder::new("forget");
    for mut store in both(&folder) {
        let value = |n: u64| json!({"v": n});
        // `a` once, `b` with each change, `c` comes and goes.
        store.commit(&change(vec![write("k", "a", None, Some(value(1)))], vec![])).unwrap();
        for n in 2..=9 {
            let c = if n % 2 == 0 {
                write("k", "c", None, Some(value(n)))
            } else {
                write("k", "c", Some(value(n - 1)), None)
            };
            store.commit(&change(vec![write("k", "b", None, Some(value(n))), c], vec![])).unwrap();
        }
        let at = |store: &mut Box<dyn Store>, generation| -> Vec<(String, u64)> {
            store.at(generation).unwrap().into_iter().map(|d| (d.id, d.generation)).collect()
        };
        let all: Vec<_> = (0..=9).map(|generation| at(&mut store, generation)).collect();
        // Part by part the same, however large the parts are.
        for (generation, limit) in (0..=9).flat_map(|generation| [1, 2, 9].map(|limit| (generation, limit))) {
            let (mut parts, mut behind) = (Vec::new(), None);
            loop {
                let part = store.at_part(generation, behind.as_ref(), limit).unwrap();
                assert!(part.documents.len() <= limit);
                parts.extend(part.documents.into_iter().map(|d| (d.id, d.generation)));
                behind = part.next;
                if behind.is_none() {
                    break;
                }
            }
            assert_eq!(parts, all[generation as usize], "{generation} by {limit}");
        }
        let held = BTreeSet::from([4, 8]);
        assert_eq!(store.forget(7, &held, 5), Ok(Forgotten { generations: 5, rows: 12 }));
        for generation in [0, 4, 7, 8, 9] {
            assert_eq!(at(&mut store, generation), all[generation as usize], "{generation}");
        }
        let kept: Vec<u64> = (0..=9).filter(|generation| store.keeps(*generation).unwrap()).collect();
        assert_eq!(kept, [0, 4, 7, 8, 9]);
        assert_eq!(
            store.audit(0, 100).unwrap().iter().map(|row| row.row).collect::<Vec<_>>(),
            [13, 14, 15, 16, 17]
        );
        assert_eq!(store.load().unwrap().documents.len(), 2);
        // A second removal finds nothing; then the device moves on, and numbers are never reused.
        assert_eq!(store.forget(7, &held, 5), Ok(Forgotten::default()));
        assert_eq!(store.forget(9, &BTreeSet::new(), 5), Ok(Forgotten { generations: 3, rows: 0 }));
        assert_eq!(at(&mut store, 9), all[9]);
        assert_eq!(store.commit(&change(vec![write("k", "d", None, Some(value(0)))], vec![])), Ok(10));
        assert_eq!(store.audit(0, 100).unwrap().last().unwrap().row, 18);
        // Current versions stay, whatever the bounds.
        assert_eq!(store.forget(1_000, &BTreeSet::new(), 0).unwrap().generations, 1);
        assert_eq!(store.load().unwrap().documents.len(), 3);
        assert_eq!(store.audit(0, 100).unwrap(), []);
    }
}

const TWO: AlertBounds = AlertBounds { of_tenant: 2, of_all: 100 };

fn alert(tenant: &str, key: &str, last: u64) -> Alert {
    Alert { tenant: Some(tenant.to_owned()), key: key.to_owned(), last, count: 1, body: json!({"at": last}) }
}

#[test]
fn equal_alerts_are_kept_once_and_the_oldest_go_first() {
    let folder = Folder::new("alerts");
    for mut store in both(&folder) {
        let first = [alert("a", "1", 1), alert("a", "2", 2), alert("b", "1", 3), alert("a", "1", 4)];
        // The received sequence is written in the same transaction.
        let came = Status { kind: "r".to_owned(), id: "d".to_owned(), body: Some(json!(4)) };
        assert_eq!(store.keep_alerts(&first, TWO, std::slice::from_ref(&came)), Ok(0));
        assert_eq!(store.load().unwrap().status, [came]);
        let shown = |store: &mut Box<dyn Store>, tenant, below, limit| -> Vec<(String, u64, u64, u64)> {
            let all = store.alerts(tenant, below, limit).unwrap();
            all.into_iter().map(|a| (a.tenant.unwrap_or_default(), a.count, a.first, a.last)).collect()
        };
        let (a2, a1, b1) = (("a".to_owned(), 1, 2, 2), ("a".to_owned(), 2, 1, 4), ("b".to_owned(), 1, 3, 3));
        assert_eq!(shown(&mut store, Some("a"), u64::MAX, 9), [a1.clone(), a2.clone()]);
        assert_eq!(shown(&mut store, None, u64::MAX, 2), [a1.clone(), b1.clone()]);
        let second = store.alerts(None, u64::MAX, 2).unwrap()[1].number;
        assert_eq!(shown(&mut store, None, second, 9), [a2]);
        assert_eq!(store.keep_alerts(&[alert("a", "3", 5)], TWO, &[]), Ok(1));
        assert_eq!(shown(&mut store, Some("a"), u64::MAX, 9), [("a".to_owned(), 1, 5, 5), a1]);
        assert_eq!(shown(&mut store, Some("b"), u64::MAX, 9), [b1]);
    }
}

#[test]
fn alerts_of_all_are_bounded_and_those_of_no_tenant_go_with_none() {
    let folder = Folder::new("bound");
    let bounds = AlertBounds { of_tenant: 10, of_all: 4 };
    for mut store in both(&folder) {
        let keys = |store: &mut Box<dyn Store>| -> Vec<(Option<String>, u64)> {
            store.alerts(None, u64::MAX, 99).unwrap().into_iter().map(|a| (a.tenant, a.last)).collect()
        };
        let (a, b) = (Some("a".to_owned()), Some("b".to_owned()));
        let nobody = |last| Alert { tenant: None, ..alert("", "1", last) };
        let first = [alert("a", "1", 1), nobody(2), alert("b", "1", 3)];
        assert_eq!(store.keep_alerts(&first, bounds, &[]), Ok(0));
        // An alert equal to a stored one takes no place of its own.
        assert_eq!(store.keep_alerts(&[alert("a", "1", 4), alert("b", "2", 5)], bounds, &[]), Ok(0));
        assert_eq!(keys(&mut store), [(b.clone(), 5), (a.clone(), 4), (b.clone(), 3), (None, 2)]);
        // Removing a tenant's alerts makes room, and alerts of no tenant stay.
        let gone = Change { forgets: vec!["b".to_owned()], ..change(vec![], vec![]) };
        store.commit(&gone).unwrap();
        assert_eq!(keys(&mut store), [(a.clone(), 4), (None, 2)]);
        assert_eq!(store.keep_alerts(&[alert("c", "1", 6), alert("c", "2", 7)], bounds, &[]), Ok(0));
        assert_eq!(store.keep_alerts(&[alert("c", "3", 8), nobody(9)], bounds, &[]), Ok(1));
        let c = Some("c".to_owned());
        assert_eq!(keys(&mut store), [(None, 9), (c.clone(), 8), (c.clone(), 7), (c, 6)]);
    }
}

#[test]
fn a_file_has_what_was_answered_and_one_controller_only() {
    let folder = Folder::new("file");
    let body = json!({"text": "line\nline \u{1F600} \"quoted\""});
    {
        let mut store = SqliteStore::open(&folder.file()).unwrap();
        assert_eq!(store.commit(&change(vec![write("k", "x", None, Some(body.clone()))], vec![])), Ok(1));
        let error = SqliteStore::open(&folder.file()).unwrap_err().to_string();
        assert!(error.contains("another controller has it open"), "{error}");
        // Without an orderly close: a copy of the file on the disk suffices.
        std::mem::forget(store);
    }
    let copy = Folder::new("copy");
    for name in ["controller.db", "controller.db-wal"] {
        std::fs::copy(folder.0.join(name), copy.0.join(name)).unwrap();
    }
    let mut store = SqliteStore::open(&copy.file()).unwrap();
    let loaded = store.load().unwrap();
    assert_eq!((loaded.generation, &loaded.documents[0].body), (1, &body));
    drop(store);
    std::fs::write(copy.0.join("other"), "no database at all, but long enough to look like one".repeat(40))
        .unwrap();
    let error = SqliteStore::open(&copy.0.join("other")).unwrap_err();
    assert!(matches!(&error, StoreError::Unusable { message, .. } if message.contains("backup")), "{error}");
}

#[test]
fn a_state_of_a_newer_program_is_refused() {
    let folder = Folder::new("newer");
    drop(SqliteStore::open(&folder.file()).unwrap());
    // The version is at byte 60 of the file, big endian (SQLite's file format, 1.3).
    let mut bytes = std::fs::read(folder.file()).unwrap();
    bytes[60..64].copy_from_slice(&99u32.to_be_bytes());
    std::fs::write(folder.file(), bytes).unwrap();
    let error = SqliteStore::open(&folder.file()).unwrap_err().to_string();
    assert!(error.contains("version 99") && error.contains("newer program"), "{error}");
}

/// The tables as the first version made them.
const FIRST: &str = "
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
";

#[test]
fn what_the_first_version_kept_is_there() {
    let folder = Folder::new("first-version");
    let path = folder.file();
    let old = rusqlite::Connection::open(&path).unwrap();
    old.execute_batch(FIRST).unwrap();
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
    // The migrated store works: a line replaces the existing one.
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
}
