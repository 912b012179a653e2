// SPDX-License-Identifier: Apache-2.0
//! The exchange of a worker's source, or of one port of it, while the worker runs.
//!
//! With several links the end of one is not the end of the others: its workers let go of their sources and
//! live on, with their flows and counters. The supervisor opens the interfaces again when they are back and
//! offers new sources by a [`Slot`]. Between two batches a worker looks at two flags, one load each.

use bartizan_ports::PortError;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Where a worker and its supervisor exchange a source (or a port).
///
/// Memory ordering: the supervisor puts a source under a lock and then sets the flag (`Release`); a worker
/// that sees the flag (`Acquire`) finds the source.
pub struct Slot<T> {
    leave: AtomicBool,
    is_empty: AtomicBool,
    has_offer: AtomicBool,
    offer: Mutex<Option<T>>,
    why: Mutex<Option<PortError>>,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Slot {
            leave: AtomicBool::new(false),
            is_empty: AtomicBool::new(false),
            has_offer: AtomicBool::new(false),
            offer: Mutex::new(None),
            why: Mutex::new(None),
        }
    }
}

impl<T> Slot<T> {
    /// Asks the worker to let go of its source. It does so between two batches, ten times a second if nothing
    /// arrives.
    pub fn clear(&self) {
        self.leave.store(true, Ordering::Release);
    }

    /// Whether the worker has let go of its source.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.is_empty.load(Ordering::Acquire)
    }

    /// The reason why the worker has let go of its source, if it was not asked to; once.
    pub fn take_failure(&self) -> Option<PortError> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Gives a worker without a source a new one. A failure of the one before is dropped.
    pub fn offer(&self, source: T) {
        self.take_failure();
        *self.offer.lock().unwrap_or_else(PoisonError::into_inner) = Some(source);
        self.leave.store(false, Ordering::Relaxed);
        // Before the worker can report anything else.
        self.is_empty.store(false, Ordering::Relaxed);
        self.has_offer.store(true, Ordering::Release);
    }

    /// Whether the worker is asked to let go of its source.
    pub(crate) fn is_to_be_left(&self) -> bool {
        self.leave.load(Ordering::Acquire)
    }

    /// The worker has let go of its source; `why`, if it was not asked to.
    pub(crate) fn left(&self, why: Option<PortError>) {
        if why.is_some() {
            *self.why.lock().unwrap_or_else(PoisonError::into_inner) = why;
        }
        self.is_empty.store(true, Ordering::Release);
    }

    /// The new source, if one is offered.
    pub(crate) fn take(&self) -> Option<T> {
        if !self.has_offer.load(Ordering::Acquire) {
            return None;
        }
        self.has_offer.store(false, Ordering::Relaxed);
        self.offer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
