// SPDX-License-Identifier: Apache-2.0
//! A store in memory, for tests and simulations.

use super::{
    Alert, AlertBounds, AuditRow, Change, Document, Forgotten, KeptAlert, Status, Store, StoreContent,
    StoreError, hash, superfluous,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

type Versions = BTreeMap<(String, String), Vec<(u64, Option<Value>)>>;

/// A store in memory; its content ends with it.
#[derive(Debug, Default)]
pub struct MemoryStore {
    generation: u64,
    versions: Versions,
    status: BTreeMap<(String, String), Value>,
    audit: Vec<AuditRow>,
    /// Generations whose documents were removed.
    gone: BTreeSet<u64>,
    alerts: Vec<(String, KeptAlert)>,
    numbers: u64,
    /// Whether every change fails as on a full disk.
    pub full: bool,
}

/// Hashes of a document before and after a change.
#[derive(Default)]
struct AuditHashes {
    before: Option<String>,
    after: Option<String>,
}

impl MemoryStore {
    fn put_status(&mut self, lines: &[Status]) {
        for status in lines {
            let key = (status.kind.clone(), status.id.clone());
            match &status.body {
                Some(body) => self.status.insert(key, body.clone()),
                None => self.status.remove(&key),
            };
        }
    }

    fn row(&mut self, change: &Change, kind: &str, id: &str, hashes: AuditHashes) {
        self.audit.push(AuditRow {
            row: self.audit.last().map_or(0, |row| row.row) + 1,
            generation: self.generation,
            at: change.at,
            who: change.who.clone(),
            name: change.name.clone(),
            action: change.action.clone(),
            kind: kind.to_owned(),
            id: id.to_owned(),
            before: hashes.before,
            after: hashes.after,
        });
    }

    fn commit_one(&mut self, change: &Change) {
        if !change.writes.is_empty() {
            self.generation += 1;
        }
        for write in &change.writes {
            let key = (write.kind.clone(), write.id.clone());
            self.versions.entry(key).or_default().push((self.generation, write.after.clone()));
            let hashes = AuditHashes {
                before: write.before.as_ref().map(hash),
                after: write.after.as_ref().map(hash),
            };
            self.row(change, &write.kind, &write.id, hashes);
        }
        if let Some((kind, id)) = &change.remark {
            self.row(change, kind, id, AuditHashes::default());
        }
        let gone =
            |tenant: &Option<String>| tenant.as_ref().is_some_and(|name| change.forgets.contains(name));
        self.alerts.retain(|(_, alert)| !gone(&alert.tenant));
        self.put_status(&change.status);
    }
}

impl Store for MemoryStore {
    fn load(&mut self) -> Result<StoreContent, StoreError> {
        let status = self.status.iter().map(|((kind, id), body)| Status {
            kind: kind.clone(),
            id: id.clone(),
            body: Some(body.clone()),
        });
        let status = status.collect();
        Ok(StoreContent { generation: self.generation, documents: self.at(self.generation)?, status })
    }

    fn commit_all(&mut self, changes: &[Change]) -> Result<u64, StoreError> {
        if self.full {
            return Err(StoreError::Full);
        }
        changes.iter().for_each(|change| self.commit_one(change));
        Ok(self.generation)
    }

    fn at(&mut self, generation: u64) -> Result<Vec<Document>, StoreError> {
        let last = |versions: &[(u64, Option<Value>)]| {
            versions.iter().rev().find(|(written, _)| *written <= generation).cloned()
        };
        let standing = self.versions.iter().filter_map(|((kind, id), versions)| {
            let (generation, body) = last(versions)?;
            Some(Document { kind: kind.clone(), id: id.clone(), generation, body: body? })
        });
        Ok(standing.collect())
    }

    fn keeps(&mut self, generation: u64) -> Result<bool, StoreError> {
        Ok(!self.gone.contains(&generation))
    }

    fn forget(&mut self, before: u64, but: &BTreeSet<u64>, rows: u64) -> Result<Forgotten, StoreError> {
        let before = before.min(self.generation);
        let at: BTreeSet<u64> = but.iter().copied().filter(|kept| *kept < before).chain([before]).collect();
        for versions in self.versions.values_mut() {
            let old: Vec<(u64, bool)> = versions
                .iter()
                .filter(|(written, _)| *written <= before)
                .map(|(written, body)| (*written, body.is_none()))
                .collect();
            let gone = superfluous(&old, &at);
            versions.retain(|(written, _)| !gone.contains(written));
        }
        self.versions.retain(|_, versions| !versions.is_empty());
        let gone: Vec<u64> = (1..before)
            .filter(|generation| !but.contains(generation) && !self.gone.contains(generation))
            .collect();
        self.gone.extend(&gone);
        let beyond = (self.audit.len() as u64).saturating_sub(rows);
        let last = self.audit.last().map_or(0, |row| row.row);
        self.audit.retain(|row| row.row.saturating_add(rows) > last);
        Ok(Forgotten { generations: gone.len() as u64, rows: beyond })
    }

    fn audit(&mut self, behind: u64, limit: usize) -> Result<Vec<AuditRow>, StoreError> {
        Ok(self.audit.iter().filter(|row| row.row > behind).take(limit).cloned().collect())
    }

    fn keep_alerts(
        &mut self,
        alerts: &[Alert],
        keep: AlertBounds,
        status: &[Status],
    ) -> Result<u64, StoreError> {
        if self.full {
            return Err(StoreError::Full);
        }
        self.put_status(status);
        let mut forgotten = 0;
        for alert in alerts {
            self.numbers += 1;
            let known = self.alerts.iter().position(|(key, a)| *key == alert.key && a.tenant == alert.tenant);
            let before = known.map(|at| self.alerts.remove(at).1);
            let kept = KeptAlert {
                number: self.numbers,
                tenant: alert.tenant.clone(),
                count: before.as_ref().map_or(0, |b| b.count).saturating_add(alert.count),
                first: before.as_ref().map_or(alert.last, |b| b.first),
                last: alert.last,
                event: alert.body.clone(),
            };
            self.alerts.push((alert.key.clone(), kept));
            let mut own = self.alerts.iter().filter(|(_, a)| a.tenant == alert.tenant);
            let oldest = own.next().map(|(_, a)| a.number);
            if own.count() as u64 >= keep.of_tenant {
                self.alerts.retain(|(_, a)| Some(a.number) != oldest);
                forgotten += 1;
            }
        }
        let beyond = self.alerts.len().saturating_sub(usize::try_from(keep.of_all).unwrap_or(usize::MAX));
        self.alerts.drain(..beyond);
        forgotten += beyond as u64;
        Ok(forgotten)
    }

    fn alerts(
        &mut self,
        tenant: Option<&str>,
        below: u64,
        limit: usize,
    ) -> Result<Vec<KeptAlert>, StoreError> {
        let fits = |a: &KeptAlert| a.number < below && tenant.is_none_or(|t| Some(t) == a.tenant.as_deref());
        Ok(self.alerts.iter().rev().map(|(_, a)| a).filter(|a| fits(a)).take(limit).cloned().collect())
    }
}
