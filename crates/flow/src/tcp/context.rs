// SPDX-License-Identifier: Apache-2.0
//! The worker's state for handling a segment, besides the session.

use super::{StreamConfig, StreamCounters};
use crate::stream::MemoryBudget;

/// The worker's state for handling a segment, besides the session: settings, counters and memory.
#[derive(Debug)]
pub struct StreamContext<'a> {
    /// Settings.
    pub config: &'a StreamConfig,
    /// Counters of this worker.
    pub counters: &'a mut StreamCounters,
    /// Reassembly memory of this worker.
    pub budget: &'a mut MemoryBudget,
}
