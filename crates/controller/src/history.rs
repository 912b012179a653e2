// SPDX-License-Identifier: Apache-2.0
//! Bounds of the history: documents by generation, and rows of the audit log. Generations that devices run,
//! are to run or may return to are kept regardless of age.

use crate::device::{self, DeviceStatus};
use crate::model::Model;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// Generations whose documents are kept.
pub const GENERATIONS_MAX: u64 = 10_000;
/// Rows of the audit log that are kept.
pub const ROWS_MAX: u64 = 100_000;
/// History is removed in portions: the kept rows may exceed the bound by this fraction of it.
pub const PORTIONS: u64 = 16;

/// Rows written since the last removal.
#[derive(Debug, Default)]
pub struct Written(AtomicU64);

impl Written {
    /// Adds written rows. Returns whether a portion is full; true once per portion.
    pub fn add(&self, rows: usize, bound: u64) -> bool {
        let before = self.0.fetch_add(rows as u64, Ordering::Relaxed);
        let full = before.saturating_add(rows as u64) > bound / PORTIONS;
        if full {
            self.0.store(0, Ordering::Relaxed);
        }
        full
    }
}

/// Generations that a device runs, should run, or may return to.
#[must_use]
pub fn held_by_devices(model: &Model) -> BTreeSet<u64> {
    let mut held = BTreeSet::new();
    for device in model.all(device::KIND) {
        let status = DeviceStatus::of(model, &device.id);
        held.extend([status.wanted, status.running]);
        held.extend(status.held_back.values().map(|held| held.runs));
        for sent in status.sent {
            held.insert(sent.generation);
            held.extend(sent.kept.values().flat_map(|kept| [kept.generation, kept.tenant.unwrap_or(0)]));
        }
    }
    held.remove(&0);
    held
}
