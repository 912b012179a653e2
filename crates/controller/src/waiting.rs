// SPDX-License-Identifier: Apache-2.0
//! Waiting for devices: a change may be answered once those that it concerns have answered it.

use crate::device::{State, TookReport};
use crate::model::Model;
use crate::render::TENANTS;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

/// Requests that wait at one time: each has one of the server's threads, half of them at most.
pub const WAITING_MAX: usize = 32;
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

    /// A place among those that wait; `None` if all are taken.
    pub fn place(&self) -> Option<Place<'_>> {
        let taken = self.waiting.fetch_add(1, Ordering::SeqCst);
        // Given back at once if it is one too many.
        let place = Place(self);
        (taken < WAITING_MAX).then_some(place)
    }

    /// Looks again after each ring, until something is found or the time is over.
    pub fn until(&self, end: Instant, mut found: impl FnMut() -> bool) {
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
    /// How long it took with that; null if it does not say.
    pub took: Option<TookReport>,
    /// Why not, or what is not as wanted.
    pub diagnostics: Vec<String>,
}

/// What a tenant is told where a device says something of others.
const OTHERS: &str =
    "for a reason that lies outside this tenant; an administrator sees it in the device's diagnostics";

impl DeviceAnswer {
    /// Leaves of the diagnostics what is said of a tenant's own documents, and names no other tenant: a device that serves several refuses a
    /// generation whole, and says of all of them why.
    pub fn only_of(&mut self, model: &Model, tenant: &str) {
        let own = format!("{tenant}/");
        let names = |line: &str, other: &str| {
            line.match_indices(other).any(|(at, _)| {
                let before = line.get(..at).and_then(|text| text.chars().next_back());
                let behind = line.get(at + other.len()..).and_then(|text| text.chars().next());
                let apart =
                    |c: Option<char>| c.is_none_or(|c| !(c.is_ascii_alphanumeric() || "-_.".contains(c)));
                apart(before) && apart(behind)
            })
        };
        let others = |line: &str| model.all(TENANTS).any(|t| t.id != tenant && names(line, &t.id));
        let before = self.diagnostics.len();
        // Behind its place: a tenant may be called as a key in it.
        let says = |line: &str| line.split_once(": ").map_or(String::new(), |(_, says)| says.to_owned());
        self.diagnostics.retain(|line| line.starts_with(&own) && !others(&says(line)));
        if self.diagnostics.len() < before {
            self.diagnostics.push(OTHERS.to_owned());
        }
    }
}
