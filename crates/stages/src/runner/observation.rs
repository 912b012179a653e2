// SPDX-License-Identifier: Apache-2.0
//! Observers around the functions of the running chains. The states of the functions stay unchanged.

use super::Runner;
use crate::observers::{Observation, Observers};
use bartizan_base::WorkerId;

impl Runner {
    /// Installs observers around functions, in place of earlier ones. Called between frames.
    pub fn observe(&mut self, observers: Observers, worker: WorkerId) {
        self.pause_observation();
        self.observation = match observers.is_empty() {
            true => None,
            false => Some(Box::new(Observation { observers, worker, plain: None })),
        };
        self.resume_observation();
    }

    /// Runs the chains without observers until [`Runner::resume_observation`]. Called between frames.
    pub fn pause_observation(&mut self) {
        if let Some(plain) = self.observation.as_mut().and_then(|observation| observation.plain.take()) {
            self.chains = plain;
        }
    }

    /// Installs the observers around functions of the running chains again.
    pub fn resume_observation(&mut self) {
        let Some(observation) = self.observation.as_mut().filter(|observation| observation.plain.is_none())
        else {
            return;
        };
        if let Some(observed) = observation.observers.around(&self.chains, observation.worker) {
            observation.plain = Some(core::mem::replace(&mut self.chains, observed));
        }
    }
}
