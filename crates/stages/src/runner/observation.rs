// SPDX-License-Identifier: Apache-2.0
//! Functions of the running chains with observers around them. The states that functions keep stay as they
//! are.

use super::Runner;
use crate::observers::{Observation, Observers};
use bartizan_base::WorkerId;

impl Runner {
    /// Puts observers around functions, in the place of those that were there. To be called between frames.
    pub fn observe(&mut self, observers: Observers, worker: WorkerId) {
        self.pause_observation();
        self.observation = match observers.is_empty() {
            true => None,
            false => Some(Box::new(Observation { observers, worker, plain: None })),
        };
        self.resume_observation();
    }

    /// Runs the chains without observers until [`Runner::resume_observation`]. To be called between frames.
    pub fn pause_observation(&mut self) {
        if let Some(plain) = self.observation.as_mut().and_then(|observation| observation.plain.take()) {
            self.chains = plain;
        }
    }

    /// Puts the observers around functions of the running chains again.
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
