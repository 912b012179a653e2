// SPDX-License-Identifier: Apache-2.0
//! State of detection that outlives a generation and belongs to no flow.

use crate::state::Names;
use crate::state::dataset::{Datasets, ListFile, Reputation, ReputationError, SkippedEntries};
use crate::state::locations::{LocationError, Locations};
use bartizan_base::{SettingsMap, Timestamp};
use bartizan_flow::FlowHasher;
use bartizan_flow::host::HostCounters;
use bartizan_flow::host::{HostKey, HostState, HostTable, HostTableConfig, Tag, WhenHostsFull};
use bartizan_function::{HostKeeper, VariableNames};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

/// Names, thresholds, host bits, tags, datasets. All workers of the program share one.
#[derive(Debug)]
pub struct Shared {
    /// Interned names.
    pub names: Names,
    /// State per host, pair and rule: `xbits`, `hostbits`, `threshold`, `tag`.
    pub hosts: HostTable<HostState>,
    /// Sets in which rules look values up.
    pub datasets: Datasets,
    /// Some rule tags hosts.
    tags_hosts: AtomicBool,
    /// Some host was tagged; until then no packet needs a look-up in the host table.
    host_tags: AtomicBool,
    reputation: RwLock<Option<Arc<Reputation>>>,
    locations: RwLock<Option<Arc<Locations>>>,
}

/// Default number of entries in the host table.
const HOSTS: u32 = 16_384;

impl Shared {
    /// Makes the state with a host table of a given size.
    #[must_use]
    pub fn new(hosts: &HostTableConfig) -> Self {
        Shared {
            names: Names::default(),
            hosts: HostTable::new(hosts),
            datasets: Datasets::default(),
            tags_hosts: AtomicBool::new(false),
            host_tags: AtomicBool::new(false),
            reputation: RwLock::default(),
            locations: RwLock::default(),
        }
    }

    /// Tags a host. The host table counts tags for which it has no room.
    pub fn tag_host(&self, host: &HostKey, tag: Tag, now: Timestamp) {
        // Set before the tag exists, so that workers look for the tag from its start.
        self.host_tags.store(true, Ordering::Relaxed);
        let _ = self.hosts.with(host, now, |state| state.tag(tag));
    }

    /// Records that a rule tags hosts.
    pub fn note_host_tags(&self) {
        self.tags_hosts.store(true, Ordering::Relaxed);
    }

    /// Whether some host was tagged since the start.
    #[must_use]
    pub fn has_host_tags(&self) -> bool {
        if !self.tags_hosts.load(Ordering::Relaxed) {
            return false;
        }
        bartizan_base::turns::wait_for_turn();
        self.host_tags.load(Ordering::Relaxed)
    }

    /// Reputations of addresses, read at the first call.
    ///
    /// # Errors
    /// The settings name none, or the files cannot be read.
    pub fn reputation(&self, settings: &SettingsMap) -> Result<Arc<Reputation>, ReputationError> {
        if let Ok(known) = self.reputation.read()
            && let Some(reputation) = known.as_ref()
        {
            return Ok(Arc::clone(reputation));
        }
        let mut skipped = SkippedEntries::default();
        let mut lists = Vec::new();
        let reputation = Reputation::load(settings, &mut skipped, &mut lists);
        self.datasets.note_skipped(skipped);
        lists.into_iter().for_each(|list| self.note_read(list));
        let reputation = Arc::new(reputation?);
        if let Ok(mut known) = self.reputation.write() {
            *known = Some(Arc::clone(&reputation));
        }
        Ok(reputation)
    }

    /// Countries of addresses, read at the first call.
    ///
    /// # Errors
    /// The settings name no database, or it cannot be read or understood.
    pub fn locations(&self, settings: &SettingsMap) -> Result<Arc<Locations>, LocationError> {
        if let Ok(known) = self.locations.read()
            && let Some(locations) = known.as_ref()
        {
            return Ok(Arc::clone(locations));
        }
        let (locations, list) = Locations::load(settings)?;
        self.note_read(list);
        let locations = Arc::new(locations);
        if let Ok(mut known) = self.locations.write() {
            *known = Some(Arc::clone(&locations));
        }
        Ok(locations)
    }

    /// Stores entries that were left out of a list until they are reported.
    pub fn note_skipped(&self, entries: SkippedEntries) {
        self.datasets.note_skipped(entries);
    }

    /// Returns and clears the entries that were left out of lists since the last call.
    #[must_use]
    pub fn take_skipped(&self) -> SkippedEntries {
        self.datasets.take_skipped()
    }

    /// Records that a list was read.
    pub fn note_read(&self, list: ListFile) {
        self.datasets.note_read(list);
    }

    /// Returns and clears the lists that were read since the last call; called when a load has ended.
    #[must_use]
    pub fn take_read(&self) -> Vec<ListFile> {
        self.datasets.take_read()
    }

    /// Prepares a load of rules: state that was only read from files is read again.
    pub fn begin_load(&self) {
        self.datasets.forget_loaded();
        let _ = (self.take_skipped(), self.take_read());
        if let Ok(mut known) = self.reputation.write() {
            *known = None;
        }
        if let Ok(mut known) = self.locations.write() {
            *known = None;
        }
    }
}

impl VariableNames for Shared {
    fn name(&self, number: u32) -> Option<String> {
        self.names.name(number)
    }
}

impl HostKeeper for Shared {
    fn expire(&self, now: Timestamp, budget: u32) -> u32 {
        self.hosts.expire(now, budget)
    }

    fn counters(&self) -> HostCounters {
        self.hosts.counters()
    }
}

impl Default for Shared {
    /// A host table of moderate size with a known hash seed, for captures and tests. For live traffic,
    /// [`Shared::new`] gets a secret seed.
    fn default() -> Self {
        Self::new(&HostTableConfig {
            capacity: HOSTS,
            shards: 8,
            hasher: FlowHasher::new([0x6261_7274_697a_616e, 0x686f_7374_7461_626c]),
            when_full: WhenHostsFull::Evict,
        })
    }
}
