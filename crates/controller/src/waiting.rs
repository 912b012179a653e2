// SPDX-License-Identifier: Apache-2.0
//! Waiting for devices: a change may be answered once those that it concerns have answered it.
//!
//! Who waits has a thread, so there are places, and nobody gets all of them: a tenant's tokens together have a share, and so has each other
//! token.

use crate::device::{DeviceStatus, State, TookReport};
use crate::kept::HeldBack;
use crate::model::Model;
use crate::render::TENANTS;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Requests that wait at one time: each has one of the server's threads, half of them at most.
pub const WAITING_MAX: usize = 32;
/// Of these, requests of one tenant, or of one token that has none.
pub const SHARE_MAX: usize = WAITING_MAX / 4;
/// Seconds that a request may wait.
pub const SECONDS_MAX: u64 = 60;

/// Rings when something has changed.
#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<u64>,
    heard: Condvar,
    waiting: AtomicUsize,
    /// How many of each wait; only those of whom some do.
    of: Mutex<BTreeMap<String, usize>>,
}

impl Bell {
    /// Something has changed, and can be seen.
    pub fn ring(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            *self.rung.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            self.heard.notify_all();
        }
    }

    /// A place among those that wait, for somebody; `None` if all are taken, or as many as one may have.
    pub fn place(&self, whose: &str) -> Option<Place<'_>> {
        let mut of = self.of();
        let own = of.get(whose).copied().unwrap_or(0);
        if own >= SHARE_MAX || of.values().sum::<usize>() >= WAITING_MAX {
            return None;
        }
        of.insert(whose.to_owned(), own + 1);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        Some(Place { bell: self, whose: whose.to_owned() })
    }

    fn of(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
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
pub struct Place<'b> {
    bell: &'b Bell,
    whose: String,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.bell.waiting.fetch_sub(1, Ordering::SeqCst);
        let mut of = self.bell.of();
        if let Some(own) = of.get_mut(&self.whose) {
            *own = own.saturating_sub(1);
        }
        of.retain(|_, own| *own > 0);
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
    /// Tenants whose changes it does not take, for who may see all of them; a tenant is told of its own as `refused`.
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
        let DeviceStatus { state, running, took, diagnostics, held_back, .. } = status;
        DeviceAnswer { state, running, took, diagnostics, held_back }
    }

    /// Leaves what concerns a tenant: whether its own documents run there, and if not, what is said of them. That others are held back is
    /// not for it to see.
    pub fn only_of(&mut self, model: &Model, tenant: &str) {
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

/// Leaves of diagnostics what is said of a tenant's own documents, and names no other tenant: a device that serves several may refuse a
/// generation whole, and says of all of them why.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_all_places() {
        let bell = Bell::default();
        let mut held: Vec<_> = (0..SHARE_MAX).map(|_| bell.place("acme").expect("a place")).collect();
        assert!(bell.place("acme").is_none(), "as many as one may have");
        held.pop();
        held.push(bell.place("acme").expect("given back"));
        for other in ["beta", "gamma", "delta"] {
            held.extend((0..SHARE_MAX).map(|_| bell.place(other).expect("others have theirs")));
        }
        assert!(bell.place("epsilon").is_none(), "all are taken");
        held.clear();
        assert!(bell.place("epsilon").is_some() && bell.of().is_empty());
    }
}
