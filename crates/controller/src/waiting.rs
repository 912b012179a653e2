// SPDX-License-Identifier: Apache-2.0
//! Waiting for devices: a change may be answered once those that it concerns have answered it.
//!
//! Who waits has a thread, so there are places, and nobody gets all of them: a tenant's tokens together have
//! a share, and so has each other token.

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

/// Requests that wait at one time: each has one of the server's threads, half of them at most.
pub const WAITING_MAX: usize = 32;
/// Of these, requests of one tenant, or of one token that has none.
pub const SHARE_MAX: usize = WAITING_MAX / 4;
/// Seconds that a request may wait.
pub const SECONDS_MAX: u64 = 60;

/// Rings when something has changed.
#[derive(Debug)]
pub struct Bell {
    rung: Mutex<u64>,
    heard: Condvar,
    /// Places of requests that wait.
    pub(crate) places: Shares,
}

impl Default for Bell {
    fn default() -> Self {
        Bell { rung: Mutex::default(), heard: Condvar::new(), places: Shares::new(SHARE_MAX, WAITING_MAX) }
    }
}

impl Bell {
    /// Something has changed, and can be seen.
    pub fn ring(&self) {
        if !self.places.are_free() {
            *self.rung.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            self.heard.notify_all();
        }
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
    /// Content hashes of what it runs; null if it does not say, and for a tenant: other tenants' policies are
    /// in them.
    pub content: Option<ContentReport>,
    /// Why not, or what is not as wanted.
    pub diagnostics: Vec<String>,
    /// Tenants whose changes it does not take, for who may see all of them; a tenant is told of its own as
    /// `refused`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(default)]
    pub held_back: BTreeMap<String, HeldBack>,
}

/// What a tenant is told where a device says something of others.
const OTHERS: &str =
    "for a reason that lies outside this tenant; an administrator sees it in the device's diagnostics";

impl DeviceAnswer {
    /// What a device says, for who may see all of it.
    #[must_use]
    pub fn of(status: DeviceStatus) -> Self {
        let DeviceStatus { state, running, took, content, diagnostics, held_back, .. } = status;
        DeviceAnswer { state, running, took, content, diagnostics, held_back }
    }

    /// Leaves what concerns a tenant: whether its own documents run there, and if not, what is said of them.
    /// That others are held back is not for it to see.
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

/// Leaves of diagnostics what is said of a tenant's own documents, and names no other tenant: a device that
/// serves several may refuse a generation whole, and says of all of them why.
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
    // Behind its place: a tenant may be called as a key in it.
    let says = |line: &str| line.split_once(": ").map_or(String::new(), |(_, says)| says.to_owned());
    lines.retain(|line| line.starts_with(&own) && !others(&says(line)));
    if lines.len() < before {
        lines.push(OTHERS.to_owned());
    }
}
