// SPDX-License-Identifier: Apache-2.0
//! Requests to a run from outside, with Suricata's meanings: end in order, reload rules and policy, reopen
//! outputs. Storing one is async-signal-safe, so handlers of signals may do it.

use std::sync::atomic::{AtomicBool, Ordering};

/// Requests to one or several runs. A request to end applies to all of them; each other request is taken by
/// the run that sees it first.
#[derive(Debug, Default)]
pub struct Requests {
    stop: AtomicBool,
    reload: AtomicBool,
    reopen: AtomicBool,
}

impl Requests {
    /// No requests.
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

    /// Requests a reload of rules and policy.
    pub fn reload(&self) {
        self.reload.store(true, Ordering::Relaxed);
    }

    /// Requests that outputs be reopened under their names.
    pub fn reopen(&self) {
        self.reopen.store(true, Ordering::Relaxed);
    }

    /// Whether an end was requested.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Set once an end was requested.
    pub const fn stop_flag(&self) -> &AtomicBool {
        &self.stop
    }

    /// Whether a reload was requested since the last call.
    pub fn take_reload(&self) -> bool {
        self.reload.load(Ordering::Relaxed) && self.reload.swap(false, Ordering::Relaxed)
    }

    /// Whether a reopening was requested since the last call.
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
