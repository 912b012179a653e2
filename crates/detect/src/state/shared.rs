// SPDX-License-Identifier: Apache-2.0
//! State of detection that outlives a generation and belongs to no flow.

use crate::state::Names;
use crate::state::dataset::{Datasets, ListFile, Reputation, ReputationError, SkippedEntries};
use crate::state::locations::{LocationError, Locations};
use bartizan_base::{Settings, Timestamp};
use bartizan_flow::FlowHasher;
use bartizan_flow::host::HostCounters;
use bartizan_flow::host::{HostKey, HostState, HostTable, HostTableConfig, Tag, WhenHostsFull};
use bartizan_function::{HostKeeper, VariableNames};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

/// Names, thresholds, host bits, tags, datasets; one for the whole program, shared by all workers.
#[derive(Debug)]
pub struct Shared {
    /// Interned names.
    pub names: Names,
    /// State per host, pair and rule: `xbits`, `hostbits`, `threshold`, `tag`.
    pub hosts: HostTable<HostState>,
    /// Sets that rules look values up in.
    pub datasets: Datasets,
    /// Some rule tags hosts.
    tags_hosts: AtomicBool,
    /// Some host was tagged: until then nobody has to ask the host table about the packets' hosts.
    host_tags: AtomicBool,
    reputation: RwLock<Option<Arc<Reputation>>>,
    locations: RwLock<Option<Arc<Locations>>>,
}

/// Entries of the host table unless a size is given.
const HOSTS: u32 = 16_384;

impl Shared {
    /// With a host table of a given size.
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

    /// Tags a host. What finds no room is counted by the host table.
    pub fn tag_host(&self, host: &HostKey, tag: Tag, now: Timestamp) {
        // Before the tag is there: a worker that finds it has to be told first.
        self.host_tags.store(true, Ordering::Relaxed);
        let _ = self.hosts.with(host, now, |state| state.tag(tag));
    }

    /// A rule tags hosts.
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

    /// Reputations of addresses, read when they are first asked for.
    ///
    /// # Errors
    /// None are configured, or their files cannot be read.
    pub fn reputation(&self, settings: &Settings) -> Result<Arc<Reputation>, ReputationError> {
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

    /// Countries of addresses, read when they are first asked for.
    ///
    /// # Errors
    /// No database is configured, or it cannot be read or understood.
    pub fn locations(&self, settings: &Settings) -> Result<Arc<Locations>, LocationError> {
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

    /// Keeps what was left out of a list until it is reported.
    pub fn note_skipped(&self, entries: SkippedEntries) {
        self.datasets.note_skipped(entries);
    }

    /// Takes what was left out of lists since the last call.
    #[must_use]
    pub fn take_skipped(&self) -> SkippedEntries {
        self.datasets.take_skipped()
    }

    /// Keeps that a list was read until it is asked for.
    pub fn note_read(&self, list: ListFile) {
        self.datasets.note_read(list);
    }

    /// Takes the lists that were read since the last call: of a load, when it has ended.
    #[must_use]
    pub fn take_read(&self) -> Vec<ListFile> {
        self.datasets.take_read()
    }

    /// Before rules are loaded anew: what was only read from files is read again.
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
    /// A host table of moderate size with a known hash seed: for captures and tests. What faces live traffic
    /// gives [`Shared::new`] a secret one.
    fn default() -> Self {
        Self::new(&HostTableConfig {
            capacity: HOSTS,
            shards: 8,
            hasher: FlowHasher::new([0x6261_7274_697a_616e, 0x686f_7374_7461_626c]),
            when_full: WhenHostsFull::Evict,
        })
    }
}
