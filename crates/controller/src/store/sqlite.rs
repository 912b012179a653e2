// SPDX-License-Identifier: Apache-2.0
//! The store in an SQLite file: write-ahead log with `synchronous=FULL`, so that a change is on the disk
//! before its answer.
//!
//! The file is locked while the store is open: a second controller on the same state is refused. Numbers are
//! SQLite's signed 64 bits, which generations and microseconds do not reach.

use super::migrations::MIGRATIONS;
use super::{
    Alert, AlertBounds, AuditRow, Change, Document, DocumentKey, DocumentPage, Forgotten, KeptAlert, Status,
    Store, StoreContent, StoreError, hash, superfluous,
};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, Transaction, params};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// A store in a file; see the module.
#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
    path: String,
    /// Set once the system did not report whether a change is on the disk.
    doubt: Option<String>,
    /// Number of alerts; `None` if they have to be counted.
    alerts: Option<u64>,
}

impl SqliteStore {
    /// Opens the file, makes it if it does not exist, and migrates its tables.
    ///
    /// # Errors
    /// The file cannot be opened, another controller has it, it is not a store, or a newer program made it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let name = path.display().to_string();
        let unusable =
            |error: rusqlite::Error| StoreError::Unusable { path: name.clone(), message: advice(&error) };
        let connection = Connection::open(path).map_err(unusable)?;
        let mut store = SqliteStore { connection, path: name.clone(), doubt: None, alerts: None };
        store.set_up().map_err(unusable)?;
        store.migrate()?;
        Ok(store)
    }

    fn set_up(&self) -> rusqlite::Result<()> {
        // Waiting does not help against another controller.
        self.connection.busy_timeout(Duration::ZERO)?;
        // Exclusive before the log is opened: no second process, and no shared-memory file.
        self.connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        self.connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        self.connection.pragma_update(None, "synchronous", "FULL")?;
        self.connection.pragma_update(None, "foreign_keys", "ON")?;
        self.connection.set_prepared_statement_cache_capacity(64);
        // Takes the lock now, not at the first change.
        self.connection.execute_batch("BEGIN IMMEDIATE; COMMIT")
    }

    fn migrate(&mut self) -> Result<(), StoreError> {
        let unusable = |path: &str, message: String| StoreError::Unusable { path: path.to_owned(), message };
        let version: i64 = self
            .connection
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .map_err(|e| unusable(&self.path, advice(&e)))?;
        let done = usize::try_from(version).unwrap_or(usize::MAX);
        if done > MIGRATIONS.len() {
            let message = format!(
                "is of version {version}, this program knows up to {}: use the newer program, or a backup from before it",
                MIGRATIONS.len()
            );
            return Err(unusable(&self.path, message));
        }
        for (index, step) in MIGRATIONS.iter().enumerate().skip(done) {
            let apply = |connection: &mut Connection| {
                let transaction = connection.transaction()?;
                transaction.execute_batch(step)?;
                transaction.pragma_update(None, "user_version", index as i64 + 1)?;
                transaction.commit()
            };
            apply(&mut self.connection).map_err(|e| unusable(&self.path, advice(&e)))?;
        }
        Ok(())
    }

    fn failed(&mut self, error: &rusqlite::Error) -> StoreError {
        if code(error) == Some(ErrorCode::DiskFull) {
            return StoreError::Full;
        }
        let message = error.to_string();
        self.doubt = Some(message.clone());
        StoreError::Doubt(message)
    }

    fn unread(&self, error: &rusqlite::Error) -> StoreError {
        StoreError::Unusable { path: self.path.clone(), message: advice(error) }
    }

    fn write<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        if let Some(doubt) = &self.doubt {
            return Err(StoreError::Doubt(doubt.clone()));
        }
        let attempt = || {
            let transaction = self.connection.transaction()?;
            let done = work(&transaction)?;
            transaction.commit()?;
            Ok(done)
        };
        let result: rusqlite::Result<T> = attempt();
        result.map_err(|error| self.failed(&error))
    }

    fn rows<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let all = || {
            let mut statement = self.connection.prepare_cached(sql)?;
            statement.query_map(params, read)?.collect()
        };
        let result: rusqlite::Result<Vec<T>> = all();
        result.map_err(|error| self.unread(&error))
    }
}

fn code(error: &rusqlite::Error) -> Option<ErrorCode> {
    error.sqlite_error_code()
}

fn advice(error: &rusqlite::Error) -> String {
    match code(error) {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "another controller has it open; stop that one, or give this one another folder".to_owned()
        }
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            format!("{error}: it is damaged or something else; restore a backup, or give another folder")
        }
        Some(ErrorCode::DiskFull) => "the disk is full; make room and start again".to_owned(),
        _ => format!("{error}; check that the folder exists and can be written"),
    }
}

const NEWEST: &str = "SELECT coalesce(max(generation), 0) FROM generations";

fn commit(transaction: &Transaction<'_>, change: &Change) -> rusqlite::Result<u64> {
    let mut generation: i64 = transaction.prepare_cached(NEWEST)?.query_row([], |row| row.get(0))?;
    let at = i64::try_from(change.at).unwrap_or(i64::MAX);
    if !change.writes.is_empty() {
        generation += 1;
        transaction.prepare_cached("INSERT INTO generations VALUES (?, ?, ?, ?)")?.execute(params![
            generation,
            at,
            change.who,
            change.action
        ])?;
    }
    let mut audit = transaction.prepare_cached(
        "INSERT INTO audit (generation, at, who, name, action, kind, id, before, after) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?;
    for write in &change.writes {
        let text = write.after.as_ref().map(Value::to_string);
        transaction
            .prepare_cached("INSERT INTO documents VALUES (?, ?, ?, ?)")?
            .execute(params![write.kind, write.id, generation, text])?;
        if text.is_some() {
            transaction
                .prepare_cached("INSERT OR REPLACE INTO current VALUES (?, ?, ?)")?
                .execute(params![write.kind, write.id, generation])?;
        } else {
            transaction
                .prepare_cached("DELETE FROM current WHERE kind = ? AND id = ?")?
                .execute(params![write.kind, write.id])?;
        }
        let (before, after) = (write.before.as_ref().map(hash), write.after.as_ref().map(hash));
        audit.execute(params![
            generation,
            at,
            change.who,
            change.name,
            change.action,
            write.kind,
            write.id,
            before,
            after
        ])?;
    }
    if let Some((kind, id)) = &change.remark {
        let none: Option<String> = None;
        audit.execute(params![
            generation,
            at,
            change.who,
            change.name,
            change.action,
            kind,
            id,
            none,
            none
        ])?;
    }
    for tenant in &change.forgets {
        transaction.prepare_cached("DELETE FROM alerts WHERE tenant = ?")?.execute([tenant])?;
    }
    put_status(transaction, &change.status)?;
    Ok(generation.unsigned_abs())
}

fn commit_each(transaction: &Transaction<'_>, changes: &[Change]) -> rusqlite::Result<u64> {
    let stands = transaction.prepare_cached(NEWEST)?.query_row([], |row| number(row, 0))?;
    changes.iter().try_fold(stands, |_, change| commit(transaction, change))
}

fn put_status(transaction: &Transaction<'_>, lines: &[Status]) -> rusqlite::Result<()> {
    for status in lines {
        match &status.body {
            Some(body) => transaction
                .prepare_cached("INSERT OR REPLACE INTO status VALUES (?, ?, ?)")?
                .execute(params![status.kind, status.id, body.to_string()])?,
            None => transaction
                .prepare_cached("DELETE FROM status WHERE kind = ? AND id = ?")?
                .execute(params![status.kind, status.id])?,
        };
    }
    Ok(())
}

/// The tenant of alerts as the table's column has it: an empty text is no tenant's name.
fn column(tenant: Option<&str>) -> &str {
    tenant.unwrap_or_default()
}

/// Stores an alert. Returns whether it is a new row.
fn keep(transaction: &Transaction<'_>, alert: &Alert) -> rusqlite::Result<bool> {
    let tenant = column(alert.tenant.as_deref());
    let last = i64::try_from(alert.last).unwrap_or(i64::MAX);
    let count = i64::try_from(alert.count).unwrap_or(i64::MAX);
    let known: Option<(i64, i64)> = transaction
        .prepare_cached("DELETE FROM alerts WHERE tenant = ? AND key = ? RETURNING count, first")?
        .query_row(params![tenant, alert.key], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let new = known.is_none();
    let (before, first) = known.unwrap_or((0, last));
    transaction
        .prepare_cached(
            "INSERT INTO alerts (tenant, key, count, first, last, body) VALUES (?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            tenant,
            alert.key,
            before.saturating_add(count),
            first,
            last,
            alert.body.to_string()
        ])?;
    Ok(new)
}

/// Stores alerts within their bounds. `known` is the number of alerts before, if it is known. Returns the new
/// number, and how many were removed.
fn keep_all(
    transaction: &Transaction<'_>,
    alerts: &[Alert],
    bounds: AlertBounds,
    known: Option<u64>,
) -> rusqlite::Result<(u64, u64)> {
    let before = match known {
        Some(known) => known,
        None => {
            transaction.prepare_cached("SELECT count(*) FROM alerts")?.query_row([], |row| number(row, 0))?
        }
    };
    let mut all = before;
    for alert in alerts {
        all += u64::from(keep(transaction, alert)?);
    }
    let of_tenant = i64::try_from(bounds.of_tenant).unwrap_or(i64::MAX);
    let tenants: BTreeSet<&str> = alerts.iter().map(|alert| column(alert.tenant.as_deref())).collect();
    let mut forgotten = 0;
    for tenant in tenants {
        forgotten += forget(transaction, tenant, of_tenant)?;
    }
    let beyond = all.saturating_sub(forgotten).saturating_sub(bounds.of_all);
    if beyond > 0 {
        forgotten += transaction
            .prepare_cached(
                "DELETE FROM alerts WHERE number IN (SELECT number FROM alerts ORDER BY number LIMIT ?)",
            )?
            .execute([i64::try_from(beyond).unwrap_or(i64::MAX)])? as u64;
    }
    Ok((all.saturating_sub(forgotten), forgotten))
}

/// Removes a tenant's oldest alerts beyond a number.
fn forget(transaction: &Transaction<'_>, tenant: &str, keep: i64) -> rusqlite::Result<u64> {
    let forgotten = transaction
        .prepare_cached(
            "DELETE FROM alerts WHERE number IN
                (SELECT number FROM alerts WHERE tenant = ? ORDER BY number DESC LIMIT -1 OFFSET ?)",
        )?
        .execute(params![tenant, keep])?;
    Ok(forgotten as u64)
}

/// Removes versions of documents from before a generation, except those of some other generations.
fn forget_versions(transaction: &Transaction<'_>, before: u64, but: &BTreeSet<u64>) -> rusqlite::Result<()> {
    let at: BTreeSet<u64> = but.iter().copied().filter(|kept| *kept < before).chain([before]).collect();
    let mut select = transaction.prepare_cached(
        "SELECT kind, id, generation, body IS NULL FROM documents WHERE generation <= ? ORDER BY kind, id, generation",
    )?;
    let before = i64::try_from(before).unwrap_or(i64::MAX);
    let all = select.query_map([before], |row| {
        Ok(((row.get::<_, String>(0)?, row.get::<_, String>(1)?), (number(row, 2)?, row.get::<_, bool>(3)?)))
    })?;
    let mut versions: BTreeMap<(String, String), Vec<(u64, bool)>> = BTreeMap::new();
    for version in all {
        let (name, version) = version?;
        versions.entry(name).or_default().push(version);
    }
    let mut delete =
        transaction.prepare_cached("DELETE FROM documents WHERE kind = ? AND id = ? AND generation = ?")?;
    for ((kind, id), versions) in versions {
        for generation in superfluous(&versions, &at) {
            delete.execute(params![kind, id, i64::try_from(generation).unwrap_or(i64::MAX)])?;
        }
    }
    Ok(())
}

/// Removes the rows of generations, which state that their documents are kept.
fn forget_generations(
    transaction: &Transaction<'_>,
    before: u64,
    but: &BTreeSet<u64>,
) -> rusqlite::Result<u64> {
    let before = i64::try_from(before).unwrap_or(i64::MAX);
    let mut select = transaction.prepare_cached("SELECT generation FROM generations WHERE generation < ?")?;
    let old: Vec<u64> = select.query_map([before], |row| number(row, 0))?.collect::<rusqlite::Result<_>>()?;
    let mut delete = transaction.prepare_cached("DELETE FROM generations WHERE generation = ?")?;
    let mut forgotten = 0;
    for generation in old.into_iter().filter(|generation| !but.contains(generation)) {
        delete.execute([i64::try_from(generation).unwrap_or(i64::MAX)])?;
        forgotten += 1;
    }
    Ok(forgotten)
}

/// Reads a column of JSON.
fn json(row: &Row<'_>, column: usize) -> rusqlite::Result<Value> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(error))
    })
}

/// Reads a column with a number that is not negative.
fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(column)?.unsigned_abs())
}

fn document(row: &Row<'_>) -> rusqlite::Result<Document> {
    Ok(Document { kind: row.get(0)?, id: row.get(1)?, generation: number(row, 2)?, body: json(row, 3)? })
}

fn audit_row(row: &Row<'_>) -> rusqlite::Result<AuditRow> {
    Ok(AuditRow {
        row: number(row, 0)?,
        generation: number(row, 1)?,
        at: number(row, 2)?,
        who: row.get(3)?,
        name: row.get(4)?,
        action: row.get(5)?,
        kind: row.get(6)?,
        id: row.get(7)?,
        before: row.get(8)?,
        after: row.get(9)?,
    })
}

fn kept_alert(row: &Row<'_>) -> rusqlite::Result<KeptAlert> {
    Ok(KeptAlert {
        number: number(row, 0)?,
        tenant: Some(row.get::<_, String>(1)?).filter(|tenant| !tenant.is_empty()),
        count: number(row, 2)?,
        first: number(row, 3)?,
        last: number(row, 4)?,
        event: json(row, 5)?,
    })
}

impl Store for SqliteStore {
    fn load(&mut self) -> Result<StoreContent, StoreError> {
        let generation = self.rows(NEWEST, [], |row| number(row, 0))?.first().copied().unwrap_or(0);
        let documents = self.rows(
            "SELECT kind, id, generation, body FROM current JOIN documents USING (kind, id, generation) ORDER BY kind, id",
            [],
            document,
        )?;
        let status = self.rows("SELECT kind, id, body FROM status ORDER BY kind, id", [], |row| {
            Ok(Status { kind: row.get(0)?, id: row.get(1)?, body: Some(json(row, 2)?) })
        })?;
        Ok(StoreContent { generation, documents, status })
    }

    fn commit_all(&mut self, changes: &[Change]) -> Result<u64, StoreError> {
        if changes.iter().any(|change| !change.forgets.is_empty()) {
            self.alerts = None;
        }
        if !changes.iter().all(Change::is_repeated) {
            return self.write(|transaction| commit_each(transaction, changes));
        }
        // The change is in the log now, and on the disk with the next durable change.
        let level = |store: &Self, level: &str| store.connection.pragma_update(None, "synchronous", level);
        level(self, "NORMAL").map_err(|error| self.failed(&error))?;
        let done = self.write(|transaction| commit_each(transaction, changes));
        // With this level, later changes would be answered too early: on failure, the store takes no more
        // changes.
        level(self, "FULL").map_err(|error| self.failed(&error))?;
        done
    }

    fn at(&mut self, generation: u64) -> Result<Vec<Document>, StoreError> {
        let generation = i64::try_from(generation).unwrap_or(i64::MAX);
        self.rows(
            "SELECT d.kind, d.id, d.generation, d.body FROM documents d JOIN
                (SELECT kind, id, max(generation) AS newest FROM documents WHERE generation <= ? GROUP BY kind, id) n
                ON d.kind = n.kind AND d.id = n.id AND d.generation = n.newest
                WHERE d.body IS NOT NULL ORDER BY d.kind, d.id",
            [generation],
            document,
        )
    }

    fn at_part(
        &mut self,
        generation: u64,
        behind: Option<&DocumentKey>,
        limit: usize,
    ) -> Result<DocumentPage, StoreError> {
        let generation = i64::try_from(generation).unwrap_or(i64::MAX);
        // No kind has an empty name.
        let (kind, id) = behind.map_or(("", ""), |(kind, id)| (kind.as_str(), id.as_str()));
        let rows = self.rows(
            "SELECT d.kind, d.id, d.generation, d.body FROM
                (SELECT kind, id, max(generation) AS newest FROM documents
                    WHERE (kind, id) > (?, ?) AND generation <= ? GROUP BY kind, id ORDER BY kind, id LIMIT ?) n
                JOIN documents d ON d.kind = n.kind AND d.id = n.id AND d.generation = n.newest ORDER BY d.kind, d.id",
            params![kind, id, generation, i64::try_from(limit).unwrap_or(i64::MAX)],
            |row| {
                let key = (row.get::<_, String>(0)?, row.get::<_, String>(1)?);
                // A removed document has no body.
                let removed = matches!(row.get_ref(3)?, ValueRef::Null);
                Ok((key, if removed { None } else { Some(document(row)?) }))
            },
        )?;
        let next = rows.last().filter(|_| rows.len() == limit).map(|(key, _)| key.clone());
        Ok(DocumentPage { documents: rows.into_iter().filter_map(|(_, document)| document).collect(), next })
    }

    fn keeps(&mut self, generation: u64) -> Result<bool, StoreError> {
        let generation = i64::try_from(generation).unwrap_or(i64::MAX);
        let known =
            self.rows("SELECT 1 FROM generations WHERE generation = ?", [generation], |row| number(row, 0))?;
        // Generation 0 is empty.
        Ok(generation == 0 || !known.is_empty())
    }

    fn forget(&mut self, before: u64, but: &BTreeSet<u64>, rows: u64) -> Result<Forgotten, StoreError> {
        self.write(|transaction| {
            let newest = transaction.prepare_cached(NEWEST)?.query_row([], |row| number(row, 0))?;
            let before = before.min(newest);
            forget_versions(transaction, before, but)?;
            let generations = forget_generations(transaction, before, but)?;
            let rows = transaction
                .prepare_cached(
                    "DELETE FROM audit WHERE row <= (SELECT coalesce(max(row), 0) FROM audit) - ?",
                )?
                .execute([i64::try_from(rows).unwrap_or(i64::MAX)])?;
            Ok(Forgotten { generations, rows: rows as u64 })
        })
    }

    fn audit(&mut self, behind: u64, limit: usize) -> Result<Vec<AuditRow>, StoreError> {
        self.rows(
            "SELECT row, generation, at, who, name, action, kind, id, before, after FROM audit WHERE row > ? ORDER BY row LIMIT ?",
            params![i64::try_from(behind).unwrap_or(i64::MAX), i64::try_from(limit).unwrap_or(i64::MAX)],
            audit_row,
        )
    }

    fn keep_alerts(
        &mut self,
        alerts: &[Alert],
        keep: AlertBounds,
        status: &[Status],
    ) -> Result<u64, StoreError> {
        // Counted again after a failure, which leaves the number unknown.
        let known = self.alerts.take();
        let (all, forgotten) = self.write(|transaction| {
            put_status(transaction, status)?;
            keep_all(transaction, alerts, keep, known)
        })?;
        self.alerts = Some(all);
        Ok(forgotten)
    }

    fn alerts(
        &mut self,
        tenant: Option<&str>,
        below: u64,
        limit: usize,
    ) -> Result<Vec<KeptAlert>, StoreError> {
        let below = i64::try_from(below).unwrap_or(i64::MAX);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        const COLUMNS: &str = "SELECT number, tenant, count, first, last, body FROM alerts";
        match tenant {
            Some(tenant) => self.rows(
                &format!("{COLUMNS} WHERE tenant = ? AND number < ? ORDER BY number DESC LIMIT ?"),
                params![tenant, below, limit],
                kept_alert,
            ),
            None => self.rows(
                &format!("{COLUMNS} WHERE number < ? ORDER BY number DESC LIMIT ?"),
                params![below, limit],
                kept_alert,
            ),
        }
    }
}
