// SPDX-License-Identifier: Apache-2.0
//! Waiting for devices: a change may be answered once those that it concerns have answered it.

use crate::controller::{Controller, Outcome};
use crate::device::{DeviceStatus, State};
use crate::problem::Refusal;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Requests that wait at one time: each has a thread.
pub const WAITING_MAX: usize = 64;
/// Seconds that a request may wait.
pub const SECONDS_MAX: u64 = 60;

/// Rings when something has changed.
#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<u64>,
    heard: Condvar,
    waiting: AtomicUsize,
}

impl Bell {
    /// Something has changed, and can be seen.
    pub fn ring(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            *self.rung.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            self.heard.notify_all();
        }
    }

    /// Looks again after each ring, until something is found or the time is over.
    fn until(&self, end: Instant, mut found: impl FnMut() -> bool) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let before = *rung;
            drop(rung);
            if found() {
                return;
            }
            rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
            while *rung == before {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return;
                }
                rung = self.heard.wait_timeout(rung, left).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

/// A place among those that wait; given back when it is dropped.
pub struct Place<'b>(&'b Bell);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What a device said to a change.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct DeviceAnswer {
    /// Where it stands: `waiting` or `new` if it has not answered in time.
    pub state: State,
    /// The generation that it runs.
    pub running: u64,
    /// Why not, or what is not as wanted.
    pub diagnostics: Vec<String>,
}

impl Controller {
    /// A place among those that wait: to be had before the change, so that nothing is done for a request that is refused.
    ///
    /// # Errors
    /// All are taken.
    pub fn wait_place(&self) -> Result<Place<'_>, Refusal> {
        let taken = self.bell.waiting.fetch_add(1, Ordering::SeqCst);
        let place = Place(&self.bell);
        if taken >= WAITING_MAX {
            return Err(Refusal::Limited(1));
        }
        Ok(place)
    }

    /// Waits until the devices of a change have answered it, or one that came behind it; for some time at most.
    #[must_use]
    pub fn answers(
        &self,
        _place: &Place<'_>,
        outcome: &Outcome,
        most: Duration,
    ) -> BTreeMap<String, DeviceAnswer> {
        let mut answers = BTreeMap::new();
        self.bell.until(Instant::now() + most, || {
            let model = self.model();
            let mut all = true;
            for device in &outcome.devices {
                let status = DeviceStatus::of(&model, device);
                // A refusal is of what is wanted now; who runs a later one runs this change as well.
                let refused = status.state == State::Refused && status.wanted >= outcome.generation;
                all &= refused || status.running >= outcome.generation;
                let DeviceStatus { state, running, diagnostics, .. } = status;
                answers.insert(device.clone(), DeviceAnswer { state, running, diagnostics });
            }
            all
        });
        answers
    }
}
