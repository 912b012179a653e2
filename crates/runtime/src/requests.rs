// SPDX-License-Identifier: Apache-2.0
//! Requests to a run from outside, with Suricata's meanings: end in order, reload rules and policy, reopen
//! outputs. Handlers of signals set their flags ([`Requests::flags`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

/// A flag that a handler may share, made at its first use, so that requests can be a static.
type SharedFlag = LazyLock<Arc<AtomicBool>>;

/// The flags of requests, for handlers of signals.
#[derive(Clone, Debug)]
pub struct RequestFlags {
    /// See [`Requests::stop`].
    pub stop: Arc<AtomicBool>,
    /// See [`Requests::reload`].
    pub reload: Arc<AtomicBool>,
    /// See [`Requests::reopen`].
    pub reopen: Arc<AtomicBool>,
}

/// Requests to one or several runs. A request to end applies to all of them; each other request is taken by
/// the run that sees it first.
#[derive(Debug)]
pub struct Requests {
    stop: SharedFlag,
    reload: SharedFlag,
    reopen: SharedFlag,
}

impl Default for Requests {
    fn default() -> Self {
        Self::new()
    }
}

impl Requests {
    /// No requests.
    pub const fn new() -> Self {
        Requests {
            stop: LazyLock::new(Arc::default),
            reload: LazyLock::new(Arc::default),
            reopen: LazyLock::new(Arc::default),
        }
    }

    /// The flags behind the requests: setting one makes the request.
    pub fn flags(&self) -> RequestFlags {
        RequestFlags {
            stop: Arc::clone(&self.stop),
            reload: Arc::clone(&self.reload),
            reopen: Arc::clone(&self.reopen),
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
    pub fn stop_flag(&self) -> &AtomicBool {
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
        requests.flags().reload.store(true, Ordering::Relaxed);
        assert!(requests.take_reload() && !requests.take_reload() && !requests.take_reopen());
    }
}
