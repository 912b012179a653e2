// SPDX-License-Identifier: Apache-2.0
//! Requests to a run from outside of it, with Suricata's meanings: end in order, load rules and policy anew,
//! open outputs again.
//! Storing one is async-signal-safe, so handlers of signals may do it.

use std::sync::atomic::{AtomicBool, Ordering};

/// Requests to one or several runs. A request to end holds for all of them; the others are taken by the run
/// that sees them first.
#[derive(Debug, Default)]
pub struct Requests {
    stop: AtomicBool,
    reload: AtomicBool,
    reopen: AtomicBool,
}

impl Requests {
    /// None so far.
    pub const fn new() -> Self {
        Requests {
            stop: AtomicBool::new(false),
            reload: AtomicBool::new(false),
            reopen: AtomicBool::new(false),
        }
    }

    /// Ends runs in order.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Has rules and policy loaded anew.
    pub fn reload(&self) {
        self.reload.store(true, Ordering::Relaxed);
    }

    /// Has outputs opened again under their names.
    pub fn reopen(&self) {
        self.reopen.store(true, Ordering::Relaxed);
    }

    /// Whether the end was requested.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Set once the end was requested.
    pub const fn stop_flag(&self) -> &AtomicBool {
        &self.stop
    }

    /// Whether a reload was requested since the last call.
    pub fn take_reload(&self) -> bool {
        self.reload.load(Ordering::Relaxed) && self.reload.swap(false, Ordering::Relaxed)
    }

    /// Whether outputs are to be opened again, since the last call.
    pub fn take_reopen(&self) -> bool {
        self.reopen.load(Ordering::Relaxed) && self.reopen.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_holds_and_the_others_are_taken_once() {
        let requests = Requests::new();
        assert!(!requests.is_stopped() && !requests.take_reload() && !requests.take_reopen());
        requests.stop();
        requests.reload();
        requests.reopen();
        assert!(requests.is_stopped() && requests.is_stopped());
        assert!(requests.take_reload() && !requests.take_reload());
        assert!(requests.take_reopen() && !requests.take_reopen());
    }
}
