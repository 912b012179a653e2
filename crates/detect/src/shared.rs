// SPDX-License-Identifier: Apache-2.0
//! State of detection that outlives a generation and belongs to no flow.

use crate::state::Names;
use bartizan_flow::FlowHasher;
use bartizan_flow::host::{HostState, HostTable, HostTableConfig, WhenHostsFull};

/// Names, thresholds, host bits, tags; one for the whole program, shared by all workers.
#[derive(Debug)]
pub struct Shared {
    /// Interned names.
    pub names: Names,
    /// State per host, pair and rule: `xbits`, `hostbits`, `threshold`, `tag`.
    pub hosts: HostTable<HostState>,
}

/// Entries of the host table unless a size is given.
const HOSTS: u32 = 16_384;

impl Shared {
    /// With a host table of a given size.
    #[must_use]
    pub fn new(hosts: &HostTableConfig) -> Self {
        Shared { names: Names::default(), hosts: HostTable::new(hosts) }
    }
}

impl Default for Shared {
    /// A host table of moderate size with a known hash seed: for captures and tests. What faces live traffic gives
    /// [`Shared::new`] a secret one.
    fn default() -> Self {
        Self::new(&HostTableConfig {
            capacity: HOSTS,
            shards: 8,
            hasher: FlowHasher::new([0x6261_7274_697a_616e, 0x686f_7374_7461_626c]),
            when_full: WhenHostsFull::Evict,
        })
    }
}
