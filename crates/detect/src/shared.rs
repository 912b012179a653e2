// SPDX-License-Identifier: Apache-2.0
//! State of detection that outlives a generation and belongs to no flow.

use crate::dataset::{Datasets, Reputation, ReputationError};
use crate::state::Names;
use bartizan_base::Settings;
use std::sync::{Arc, RwLock};

/// Names, thresholds, host bits, datasets; one for the whole program, shared by all workers.
#[derive(Debug, Default)]
pub struct Shared {
    /// Interned names.
    pub names: Names,
    /// Sets that rules look values up in.
    pub datasets: Datasets,
    reputation: RwLock<Option<Arc<Reputation>>>,
}

impl Shared {
    /// Reputations of addresses, read when they are first asked for.
    ///
    /// # Errors
    /// None are configured, or their files cannot be read or understood.
    pub fn reputation(&self, settings: &Settings) -> Result<Arc<Reputation>, ReputationError> {
        if let Ok(known) = self.reputation.read()
            && let Some(reputation) = known.as_ref()
        {
            return Ok(Arc::clone(reputation));
        }
        let reputation = Arc::new(Reputation::load(settings)?);
        if let Ok(mut known) = self.reputation.write() {
            *known = Some(Arc::clone(&reputation));
        }
        Ok(reputation)
    }

    /// Before rules are loaded anew: what was only read from files is read again.
    pub fn begin_load(&self) {
        self.datasets.forget_loaded();
        if let Ok(mut known) = self.reputation.write() {
            *known = None;
        }
    }
}
