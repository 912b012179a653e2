// SPDX-License-Identifier: Apache-2.0
//! What handling a segment needs besides the session.

use super::{StreamConfig, StreamCounters};
use crate::stream::MemoryBudget;

/// What handling a segment needs besides the session: settings, counts and memory of the worker.
#[derive(Debug)]
pub struct StreamContext<'a> {
    /// Settings.
    pub config: &'a StreamConfig,
    /// Counters of this worker.
    pub counters: &'a mut StreamCounters,
    /// Reassembly memory of this worker.
    pub budget: &'a mut MemoryBudget,
}
