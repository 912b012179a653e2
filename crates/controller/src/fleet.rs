// SPDX-License-Identifier: Apache-2.0
//! What the controller needs of the way to its devices: it says what a device is to run. What devices say comes in by
//! `Controller::acknowledge`, `alerts` and `statistics`.

use std::sync::{Mutex, PoisonError};

/// The way to the devices. A call must not wait for a device: it notes what is wanted, and the device is told when it listens. Only
/// the newest generation of a device counts; one that was missed in between is not needed.
pub trait Fleet: Send + Sync {
    /// A device is to run a generation. Called once more after a restart of the controller.
    fn wanted(&self, device: &str, generation: u64);
}

/// A fleet that only notes what is wanted: for tests, and for devices that ask by REST.
#[derive(Debug, Default)]
pub struct MemoryFleet(Mutex<Vec<(String, u64)>>);

/// Calls that are kept for [`MemoryFleet::take`].
const KEPT_MAX: usize = 4096;

impl MemoryFleet {
    /// What was wanted since the last call, in order.
    pub fn take(&self) -> Vec<(String, u64)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Fleet for MemoryFleet {
    fn wanted(&self, device: &str, generation: u64) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.len() < KEPT_MAX {
            calls.push((device.to_owned(), generation));
        }
    }
}
