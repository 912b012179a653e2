// SPDX-License-Identifier: Apache-2.0
//! How far back is remembered what was said: documents by generation, and rows of the audit log. What devices
//! run, are to run or may have to go back to is remembered however old it is.

use crate::device::{self, DeviceStatus};
use crate::model::Model;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// Generations whose documents are kept.
pub const GENERATIONS_MAX: u64 = 10_000;
/// Rows of the audit log that are kept.
pub const ROWS_MAX: u64 = 100_000;
/// It is forgotten in portions: so much more than the bound, as a part of it, may be there.
pub const PORTIONS: u64 = 16;

/// When it is time to forget.
#[derive(Debug, Default)]
pub struct Written(AtomicU64);

impl Written {
    /// So many rows of the audit log were written. Whether a portion is full, which is asked once.
    pub fn add(&self, rows: usize, bound: u64) -> bool {
        let before = self.0.fetch_add(rows as u64, Ordering::Relaxed);
        let full = before.saturating_add(rows as u64) > bound / PORTIONS;
        if full {
            self.0.store(0, Ordering::Relaxed);
        }
        full
    }
}

/// Generations of which devices have something, or are to have.
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
