// SPDX-License-Identifier: Apache-2.0
//! The controller's clocks: the wall's, and one that never goes back; or those that a test or simulation turns.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Tells the time. It may jump either way: what is stored is ordered by generations, never by times.
pub trait Clock: Send + Sync {
    /// Microseconds since 1970.
    fn now(&self) -> u64;

    /// Microseconds of a clock that never goes back, and that nobody sets: how long something took, or has to wait.
    fn steady(&self) -> u64;
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

    fn steady(&self) -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        u64::try_from(START.get_or_init(Instant::now).elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// A clock that stands until it is set: of the wall, and the steady one beside it.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64, AtomicU64);

impl ManualClock {
    /// Sets the time of the wall, forwards or backwards, in microseconds since 1970.
    pub fn set(&self, now: u64) {
        self.0.store(now, Ordering::Release);
    }

    /// So many microseconds pass, by both clocks.
    pub fn pass(&self, micros: u64) {
        self.0.fetch_add(micros, Ordering::AcqRel);
        self.1.fetch_add(micros, Ordering::AcqRel);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn steady(&self) -> u64 {
        self.1.load(Ordering::Acquire)
    }
}
