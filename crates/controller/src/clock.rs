// SPDX-License-Identifier: Apache-2.0
//! The controller's clock: the wall's, or one that a test or simulation turns.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Tells the time. It may jump either way: what is stored is ordered by generations, never by times.
pub trait Clock: Send + Sync {
    /// Microseconds since 1970.
    fn now(&self) -> u64;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> u64 {
        // A clock before 1970 is as good as none.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}

/// A clock that stands until it is set.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// Sets the time, forwards or backwards, in microseconds since 1970.
    pub fn set(&self, now: u64) {
        self.0.store(now, Ordering::Release);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
