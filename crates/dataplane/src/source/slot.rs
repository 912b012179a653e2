// SPDX-License-Identifier: Apache-2.0
//! The exchange of a worker's source, or of one port of it, while the worker runs.
//!
//! With several links the end of one is not the end of the others: its workers release their sources and live
//! on, with their flows and counters. The supervisor reopens the interfaces when they are back and offers new
//! sources through a [`Slot`]. Between two batches a worker checks two flags, one load each.

use bartizan_ports::PortError;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The exchange of a source (or of a port) between a worker and its supervisor.
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
    /// Requests that the worker release its source, which happens between two batches, or within a tenth of a
    /// second if nothing arrives.
    pub fn clear(&self) {
        self.leave.store(true, Ordering::Release);
    }

    /// Whether the worker has released its source.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.is_empty.load(Ordering::Acquire)
    }

    /// The reason why the worker has released its source without a request; returned once.
    pub fn take_failure(&self) -> Option<PortError> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Offers a new source to a worker without one. A failure of the previous source is dropped.
    pub fn offer(&self, source: T) {
        self.take_failure();
        *self.offer.lock().unwrap_or_else(PoisonError::into_inner) = Some(source);
        self.leave.store(false, Ordering::Relaxed);
        // Before the flag, so that the worker's next report is not overwritten.
        self.is_empty.store(false, Ordering::Relaxed);
        self.has_offer.store(true, Ordering::Release);
    }

    /// Whether the worker is requested to release its source.
    pub(crate) fn is_to_be_left(&self) -> bool {
        self.leave.load(Ordering::Acquire)
    }

    /// Notes that the worker has released its source; `why`: the failure, if it was not requested.
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
