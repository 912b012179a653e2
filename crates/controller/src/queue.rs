// SPDX-License-Identifier: Apache-2.0
//! Group commit: changes that arrive during an fsync are queued, and committed together with one fsync.
//!
//! Each change is drafted from the model with all earlier changes, queued ones included; so it is checked
//! against exactly the state that it changes. Results drafted from uncommitted changes are answered only
//! after their commit. If the disk refuses a group, none of its changes is stored, and everything drafted
//! from it is void.

use crate::model::{Model, ModelStep};
use crate::store::{Change, StoreError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Changes that are committed together. Their number is bounded by the threads that wait for them: those of
/// requests and of devices.
#[derive(Debug, Default)]
pub struct Group(OnceLock<Result<(), StoreError>>);

impl Group {
    /// The result of the commit; `None` until there is one.
    pub fn result(&self) -> Option<Result<(), StoreError>> {
        self.0.get().cloned()
    }

    fn end(&self, result: Result<(), StoreError>) {
        // The first result stays: a group ends once.
        let _ = self.0.set(result);
    }
}

/// Changes that a leader takes to the disk.
pub struct CommitBatch {
    group: Arc<Group>,
    /// The changes, in order.
    pub changes: Vec<Change>,
    /// The step of each change.
    pub steps: Vec<ModelStep>,
}

/// The model with all queued changes; see the module.
pub struct Ahead {
    /// The model.
    pub model: Model,
    group: Arc<Group>,
    changes: Vec<Change>,
    steps: Vec<ModelStep>,
    /// The newest group with changes, queued or being committed.
    newest: Option<Arc<Group>>,
}

impl Ahead {
    /// Adds a change that was drafted from this model; `generation` is the one after the change.
    pub fn add(&mut self, generation: u64, change: Change) {
        let step = ModelStep::new(generation, &change.writes, &change.status);
        self.model.apply(&step);
        self.changes.push(change);
        self.steps.push(step);
        self.newest = Some(Arc::clone(&self.group));
    }

    /// The group that must be committed before results from this model may be answered; `None`: all is on the
    /// disk.
    #[must_use]
    pub fn awaited(&self) -> Option<Arc<Group>> {
        self.newest.clone()
    }
}

/// The queue of changes.
pub struct Queue(Mutex<Ahead>);

impl Queue {
    /// A queue without changes.
    #[must_use]
    pub fn new(model: Model) -> Self {
        let (group, changes, steps) = (Arc::default(), Vec::new(), Vec::new());
        Queue(Mutex::new(Ahead { model, group, changes, steps, newest: None }))
    }

    /// Locks the queue for a draft: no other change is added meanwhile.
    pub fn lock(&self) -> MutexGuard<'_, Ahead> {
        // A change is added as a whole; a panic elsewhere leaves none half added.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the queued changes, for the one thread that writes to the disk.
    pub fn take(&self) -> CommitBatch {
        let mut ahead = self.lock();
        let group = std::mem::take(&mut ahead.group);
        let changes = std::mem::take(&mut ahead.changes);
        CommitBatch { group, changes, steps: std::mem::take(&mut ahead.steps) }
    }

    /// Ends a group whose changes are on the disk and visible to readers.
    pub fn done(&self, taken: &CommitBatch) {
        taken.group.end(Ok(()));
        let mut ahead = self.lock();
        if ahead.newest.as_ref().is_some_and(|newest| Arc::ptr_eq(newest, &taken.group)) {
            ahead.newest = None;
        }
    }

    /// Ends a group of changes that could not be written to the disk: changes drafted after it fail as well.
    /// `stands`: the model that is on the disk.
    pub fn failed(&self, taken: &CommitBatch, error: &StoreError, stands: impl FnOnce() -> Model) {
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
