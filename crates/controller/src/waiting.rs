// SPDX-License-Identifier: Apache-2.0
//! Waiting for devices: a change can be answered after the devices that it concerns have answered it.
//!
//! Each waiting request occupies a thread, so its number of places is bounded, with a share for each tenant's
//! tokens together and for each token without a tenant.

use crate::device::{ContentReport, DeviceStatus, State, TookReport};
use crate::kept::HeldBack;
use crate::model::Model;
use crate::render::TENANTS;
use crate::shares::Shares;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

/// Most requests that wait at once: at most half of the server's threads.
pub const WAITING_MAX: usize = 32;
/// Most waiting requests of one tenant, or of one token without a tenant.
pub const SHARE_MAX: usize = WAITING_MAX / 4;
/// Longest wait of a request, in seconds.
pub const SECONDS_MAX: u64 = 60;

/// Wakes waiting requests when something has changed.
#[derive(Debug)]
pub struct Bell {
    rung: Mutex<u64>,
    heard: Condvar,
    /// Places of waiting requests.
    pub(crate) places: Shares,
}

impl Default for Bell {
    fn default() -> Self {
        Bell { rung: Mutex::default(), heard: Condvar::new(), places: Shares::new(SHARE_MAX, WAITING_MAX) }
    }
}

impl Bell {
    /// Wakes waiting requests, after a change has become visible.
    pub fn ring(&self) {
        if !self.places.are_free() {
            *self.rung.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            self.heard.notify_all();
        }
    }

    /// Calls `found` after each ring, until it returns `true` or the time is over.
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

/// A device's answer to a change.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct DeviceAnswer {
    /// The state of the device: `waiting` or `new` if it has not answered in time.
    pub state: State,
    /// The generation that it runs.
    pub running: u64,
    /// Durations of the change to that generation; null if not reported.
    pub took: Option<TookReport>,
    /// Content hashes of the running generation; null if not reported, and for a tenant's token, because they
    /// cover other tenants' policies.
    pub content: Option<ContentReport>,
    /// Reasons of a refusal, or of differences from the desired state.
    pub diagnostics: Vec<String>,
    /// Tenants whose changes the device refused, for callers that may see all of them; a tenant's token sees
    /// its own as `refused`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(default)]
    pub held_back: BTreeMap<String, HeldBack>,
}

/// The text for a tenant in place of diagnostics about other tenants.
const OTHERS: &str =
    "for a reason that lies outside this tenant; an administrator sees it in the device's diagnostics";

impl DeviceAnswer {
    /// The whole answer, for callers that may see all of it.
    #[must_use]
    pub fn of(status: DeviceStatus) -> Self {
        let DeviceStatus { state, running, took, content, diagnostics, held_back, .. } = status;
        DeviceAnswer { state, running, took, content, diagnostics, held_back }
    }

    /// Reduces the answer to what a tenant may see: whether its own documents run there, and the diagnostics
    /// about them. It does not show that other tenants are held back.
    pub fn only_of(&mut self, model: &Model, tenant: &str) {
        self.content = None;
        let own = std::mem::take(&mut self.held_back).remove(tenant);
        match (self.state, own) {
            (State::Partial, None) => self.state = State::Running,
            (State::Partial, Some(own)) => {
                (self.state, self.running) = (State::Refused, own.runs);
                self.diagnostics.extend(own.diagnostics);
            }
            _ => {}
        }
        only_of(&mut self.diagnostics, model, tenant);
    }
}

/// Keeps only diagnostics about a tenant's own documents that name no other tenant: a device may refuse a
/// generation whole, and then reports on all tenants.
pub(crate) fn only_of(lines: &mut Vec<String>, model: &Model, tenant: &str) {
    let own = format!("{tenant}/");
    let names = |line: &str, other: &str| {
        line.match_indices(other).any(|(at, _)| {
            let before = line.get(..at).and_then(|text| text.chars().next_back());
            let behind = line.get(at + other.len()..).and_then(|text| text.chars().next());
            let apart = |c: Option<char>| c.is_none_or(|c| !(c.is_ascii_alphanumeric() || "-_.".contains(c)));
            apart(before) && apart(behind)
        })
    };
    let others = |line: &str| model.all(TENANTS).any(|t| t.id != tenant && names(line, &t.id));
    let before = lines.len();
    // Only the text after the place is searched: a tenant's name may equal a key in the place.
    let says = |line: &str| line.split_once(": ").map_or(String::new(), |(_, says)| says.to_owned());
    lines.retain(|line| line.starts_with(&own) && !others(&says(line)));
    if lines.len() < before {
        lines.push(OTHERS.to_owned());
    }
}
