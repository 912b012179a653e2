// SPDX-License-Identifier: Apache-2.0
//! State of functions per host: values of a type of the function's own, for all flows, workers and
//! generations.
//!
//! A function declares them in its [`FunctionSpec`] (version of their layout, maximum size) and gets its
//! table when it installs rules ([`RuleSource::hosts`](crate::RuleSource)). The owner of the tables also
//! makes the generations, so a table outlives them: a reload finds it again as long as type and version are
//! the same. The table is a [`HostTable`]: shared by the workers, in shards with a lock each, keyed with the
//! tenant, bounded, accessed only when the function needs it. By [`HostKeeper`], the data plane lets values
//! expire by the packet clock and exports the counters.
//!
//! Tables can be exported and imported; no caller does so yet.

use crate::spec::FunctionSpec;
use bartizan_base::{Cursor, Timestamp};
use bartizan_flow::FlowHasher;
use bartizan_flow::host::{
    HostCounters, HostImportError, HostKey, HostRefused, HostTable, HostTableConfig, HostValue,
    WhenHostsFull, export_key, import_key,
};
use core::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

/// A function's declaration of its values per host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSlot {
    /// Version of their layout, exported with them: values of another version are not imported.
    pub version: u16,
    /// Most bytes that a value allocates, beside its own size.
    pub held_max: usize,
}

/// A function's value for a host. It determines its expiry ([`HostValue`]), and is removed when it expires.
pub trait HostData: HostValue + Send + 'static {
    /// Appends the value as plain data.
    fn export(&self, out: &mut Vec<u8>);

    /// Reads the form that `export` of the same version wrote; `None`: it is damaged.
    fn import(bytes: &[u8]) -> Option<Self>;
}

/// A table of values per host for the data plane, which does not know the values.
pub trait HostKeeper: Send + Sync {
    /// Removes expired values, checking at most `budget` timers. Returns the number of removed values.
    fn expire(&self, now: Timestamp, budget: u32) -> u32;

    /// The counters of the table.
    fn counters(&self) -> HostCounters;
}

impl<V: HostValue + Send> HostKeeper for HostTable<V> {
    fn expire(&self, now: Timestamp, budget: u32) -> u32 {
        HostTable::expire(self, now, budget)
    }

    fn counters(&self) -> HostCounters {
        HostTable::counters(self)
    }
}

/// Bounds of the tables.
#[derive(Clone, Copy, Debug)]
pub struct HostTablesConfig {
    /// Maximum bytes of the values that one function stores.
    pub memory: u64,
    /// The instance's secret hash.
    pub hasher: FlowHasher,
}

/// Default for the bytes of one function's values.
pub const HOST_MEMORY: u64 = 32 << 20;
/// Bytes of a table per lock, and the most locks.
const PER_LOCK: u64 = 256 << 10;
const LOCKS_MAX: u64 = 64;
/// Upper bound of the bytes of an entry's timer, index and key, and of a shard's timer wheel.
const PER_ENTRY: usize = 160;
const PER_PART: u64 = 4 << 10;

impl Default for HostTablesConfig {
    /// With a known hash: for captures and tests. Code that faces live traffic passes a secret one.
    fn default() -> Self {
        HostTablesConfig { memory: HOST_MEMORY, hasher: FlowHasher::new([0x6675_6e63, 0x686f_7374]) }
    }
}

/// The values of one function.
#[derive(Debug)]
pub struct HostValues<T> {
    function: &'static str,
    version: u16,
    held_max: u64,
    table: HostTable<T>,
}

/// Format of [`HostValues::export`].
const FORMAT: u8 = 1;

impl<T: HostData> HostValues<T> {
    fn new(function: &'static str, slot: HostSlot, config: &HostTablesConfig) -> Self {
        let each = (size_of::<T>() + slot.held_max + PER_ENTRY) as u64;
        let parts = 1 << (config.memory / PER_LOCK).clamp(1, LOCKS_MAX).ilog2();
        // Entries of each shard; rounded down, so that all shards stay within the memory.
        let entries =
            (config.memory.saturating_sub(parts * PER_PART) / each / parts).clamp(1, (1 << 24) / parts);
        let table = HostTable::new(&HostTableConfig {
            capacity: (entries * parts) as u32,
            shards: parts as u16,
            hasher: config.hasher,
            when_full: WhenHostsFull::Evict,
        });
        HostValues { function, version: slot.version, held_max: slot.held_max as u64, table }
    }

    /// Runs `f` on the value of a host, which is made if it does not exist. A value without room evicts one
    /// of the tenant that has most: the one nearest to its expiry.
    ///
    /// # Errors
    /// [`HostRefused`], counted, when there is no room; `f` was not run.
    pub fn with<R>(
        &self,
        key: &HostKey,
        now: Timestamp,
        f: impl FnOnce(&mut T) -> R,
    ) -> Result<R, HostRefused> {
        self.table.with(key, now, f)
    }

    /// Runs `f` on the value of a host if it exists.
    pub fn if_there<R>(&self, key: &HostKey, now: Timestamp, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.table.if_there(key, now, f)
    }

    /// Appends all values: format u8, name of the function (length u8), version of the layout u16, number of
    /// values u32, then for each: length u32, key, value. Little endian.
    pub fn export(&self, out: &mut Vec<u8>) {
        out.push(FORMAT);
        let name = self.function.as_bytes();
        let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
        out.push(length);
        out.extend(name.iter().take(usize::from(length)));
        out.extend(self.version.to_le_bytes());
        let (mut count, mut values) = (0u32, Vec::new());
        self.table.for_each(|key, value| {
            let mut entry = Vec::new();
            export_key(key, &mut entry);
            value.export(&mut entry);
            values.extend((entry.len() as u32).to_le_bytes());
            values.extend(entry);
            count += 1;
        });
        out.extend(count.to_le_bytes());
        out.extend(values);
    }

    /// Imports values, replacing existing ones of the same hosts. Returns the number of imported values; 0
    /// for another function or another version of the layout.
    ///
    /// # Errors [`HostImportError`] when the bytes are cut off or damaged; the values before that place are
    /// imported.
    pub fn import(&self, bytes: &[u8], now: Timestamp) -> Result<u32, HostImportError> {
        let mut cursor = Cursor::new(bytes);
        let format = cursor.u8().ok_or(HostImportError::Short)?;
        if format != FORMAT {
            return Err(HostImportError::Version { found: format });
        }
        let length = cursor.u8().ok_or(HostImportError::Short)?;
        let name = cursor.take(usize::from(length)).ok_or(HostImportError::Short)?;
        let version = cursor.u16_le().ok_or(HostImportError::Short)?;
        if name != self.function.as_bytes() || version != self.version {
            return Ok(0);
        }
        let count = cursor.u32_le().ok_or(HostImportError::Short)?;
        let mut taken = 0;
        for _ in 0..count {
            let length = cursor.u32_le().ok_or(HostImportError::Short)?;
            let entry = cursor.take(length as usize).ok_or(HostImportError::Short)?;
            let (key, used) = import_key(entry)?;
            let value = entry.get(used..).and_then(T::import);
            let value = value.ok_or(HostImportError::Field { field: "value" })?;
            taken += u32::from(self.table.with(&key, now, |place| *place = value).is_ok());
        }
        Ok(taken)
    }
}

impl<T: HostData> HostKeeper for HostValues<T> {
    fn expire(&self, now: Timestamp, budget: u32) -> u32 {
        self.table.expire(now, budget)
    }

    /// Memory is that of full values: their allocations are counted as if all had the maximum size.
    fn counters(&self) -> HostCounters {
        let counters = self.table.counters();
        let memuse = counters.memuse.saturating_add(counters.active.saturating_mul(self.held_max));
        let (per, own) = (self.held_max, counters.memcap);
        let entries = self.table.capacity();
        HostCounters { memuse, memcap: own.saturating_add(per.saturating_mul(entries)), ..counters }
    }
}

/// The tables of all functions; they outlive generations.
pub struct HostTables {
    config: HostTablesConfig,
    tables: Mutex<Vec<StoredTable>>,
}

struct StoredTable {
    function: &'static str,
    version: u16,
    table: Arc<dyn Any + Send + Sync>,
}

impl core::fmt::Debug for HostTables {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("HostTables").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Default for HostTables {
    fn default() -> Self {
        HostTables::new(HostTablesConfig::default())
    }
}

impl HostTables {
    /// An empty set of tables; each is made when its function first requests it.
    #[must_use]
    pub const fn new(config: HostTablesConfig) -> Self {
        HostTables { config, tables: Mutex::new(Vec::new()) }
    }

    /// The table of a function: that of earlier generations if type and version of the values are equal, else
    /// a new one. `None`: the function declares no values.
    pub fn of<T: HostData>(&self, spec: &FunctionSpec) -> Option<Arc<HostValues<T>>> {
        let slot = spec.host_slot?;
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let known = tables.iter().find(|kept| kept.function == spec.name && kept.version == slot.version);
        if let Some(table) = known.and_then(|kept| Arc::clone(&kept.table).downcast().ok()) {
            return Some(table);
        }
        let table = Arc::new(HostValues::<T>::new(spec.name, slot, &self.config));
        tables.retain(|kept| kept.function != spec.name);
        let (function, version) = (spec.name, slot.version);
        tables.push(StoredTable {
            function,
            version,
            table: Arc::clone(&table) as Arc<dyn Any + Send + Sync>,
        });
        Some(table)
    }
}

#[cfg(test)]
mod tests;
