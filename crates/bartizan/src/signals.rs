// SPDX-License-Identifier: Apache-2.0
//! Signals as flags: SIGINT and SIGTERM end, SIGHUP loads rules and policy anew.
//!
//! `unsafe` is needed because the standard library cannot install signal handlers; each handler only stores to an
//! atomic, which is async-signal-safe.

use std::sync::atomic::{AtomicBool, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);
static RELOAD: AtomicBool = AtomicBool::new(false);

extern "C" fn on_stop(_signal: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

extern "C" fn on_reload(_signal: libc::c_int) {
    RELOAD.store(true, Ordering::Relaxed);
}

/// Installs the handlers.
pub fn install() {
    let handlers: [(libc::c_int, extern "C" fn(libc::c_int)); 3] =
        [(libc::SIGINT, on_stop), (libc::SIGTERM, on_stop), (libc::SIGHUP, on_reload)];
    for (signal, handler) in handlers {
        // SAFETY: the handlers have the type that `signal` wants and only store to an atomic.
        unsafe { libc::signal(signal, handler as *const () as libc::sighandler_t) };
    }
}

/// From here on the program ends when nobody reads its results any more (`bartizan check FILE | head`), as others do; until
/// then a closed pipe is an error of an output like others.
pub fn end_with_the_pipe() {
    // SAFETY: the default action runs no code of this program.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Whether the end was asked for.
pub fn stop_asked() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Whether a reload was asked for since the last call.
pub fn reload_asked() -> bool {
    RELOAD.swap(false, Ordering::Relaxed)
}
