// SPDX-License-Identifier: Apache-2.0
//! Changes on their way to the disk. Those that come while another's fsync runs wait, and are committed
//! together: one wait for the disk for all of them.
//!
//! Each change is drafted from what stands with all changes before it, those that wait included; so it is
//! checked against exactly what it changes. What was found with changes that are not on the disk yet is
//! answered only when they are. If the disk does not take a group, nothing of it is there, and nothing that
//! was found with it counts.

use crate::model::{Model, Step};
use crate::store::{Change, StoreError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Changes that are committed together: as many as threads wait for theirs, requests that are worked on and
/// devices.
#[derive(Debug, Default)]
pub struct Group(OnceLock<Result<(), StoreError>>);

impl Group {
    /// What became of it; `None` while it waits.
    pub fn result(&self) -> Option<Result<(), StoreError>> {
        self.0.get().cloned()
    }

    fn end(&self, result: Result<(), StoreError>) {
        // The first word stands: a group ends once.
        let _ = self.0.set(result);
    }
}

/// Changes that a leader has taken to the disk.
pub struct Taken {
    group: Arc<Group>,
    /// The changes, in order.
    pub changes: Vec<Change>,
    /// What each makes of the model.
    pub steps: Vec<Step>,
}

/// What stands with all changes that wait; see the module.
pub struct Ahead {
    /// That model.
    pub model: Model,
    group: Arc<Group>,
    changes: Vec<Change>,
    steps: Vec<Step>,
    /// The newest group that has changes, waiting or on its way.
    newest: Option<Arc<Group>>,
}

impl Ahead {
    /// Adds a change that was drafted from this model; `generation`: the one that stands then.
    pub fn add(&mut self, generation: u64, change: Change) {
        let step = Step::new(generation, &change.writes, &change.status);
        self.model.apply(&step);
        self.changes.push(change);
        self.steps.push(step);
        self.newest = Some(Arc::clone(&self.group));
    }

    /// The group that has to be on the disk before what this model says may be told; `None`: all of it is.
    #[must_use]
    pub fn awaited(&self) -> Option<Arc<Group>> {
        self.newest.clone()
    }
}

/// The queue.
pub struct Queue(Mutex<Ahead>);

impl Queue {
    /// With nothing on its way.
    #[must_use]
    pub fn new(model: Model) -> Self {
        let (group, changes, steps) = (Arc::default(), Vec::new(), Vec::new());
        Queue(Mutex::new(Ahead { model, group, changes, steps, newest: None }))
    }

    /// For a draft: nobody else adds anything in between.
    pub fn lock(&self) -> MutexGuard<'_, Ahead> {
        // A change is added as a whole; a panic elsewhere leaves none half there.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What waits, for the only one who writes to the disk.
    pub fn take(&self) -> Taken {
        let mut ahead = self.lock();
        let group = std::mem::take(&mut ahead.group);
        let changes = std::mem::take(&mut ahead.changes);
        Taken { group, changes, steps: std::mem::take(&mut ahead.steps) }
    }

    /// What was taken is on the disk, and shown to readers.
    pub fn done(&self, taken: &Taken) {
        taken.group.end(Ok(()));
        let mut ahead = self.lock();
        if ahead.newest.as_ref().is_some_and(|newest| Arc::ptr_eq(newest, &taken.group)) {
            ahead.newest = None;
        }
    }

    /// The disk did not take it: what was drafted from it meanwhile is void as well. `stands`: what is on the
    /// disk.
    pub fn failed(&self, taken: &Taken, error: &StoreError, stands: impl FnOnce() -> Model) {
        let mut ahead = self.lock();
        taken.group.end(Err(error.clone()));
        ahead.group.end(Err(error.clone()));
        *ahead = Ahead {
            model: stands(),
            group: Arc::default(),
            changes: Vec::new(),
            steps: Vec::new(),
            newest: None,
        };
    }
}
