// SPDX-License-Identifier: Apache-2.0
//! Signals as requests, with Suricata's meanings: SIGINT and SIGTERM end a run in order, SIGHUP reopens
//! outputs under their names, SIGUSR2 reloads rules and policy.
//!
//! `unsafe` is needed because the standard library cannot install signal handlers; each handler only stores
//! to an atomic, which is async-signal-safe.

use bartizan_runtime::requests::Requests;
use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTS: Requests = Requests::new();

extern "C" fn on_stop(_signal: libc::c_int) {
    REQUESTS.stop();
}

extern "C" fn on_reload(_signal: libc::c_int) {
    REQUESTS.reload();
}

extern "C" fn on_reopen(_signal: libc::c_int) {
    REQUESTS.reopen();
}

/// Installs the handlers; returns the requests that they set.
pub fn install() -> &'static Requests {
    let handlers: [(libc::c_int, extern "C" fn(libc::c_int)); 4] = [
        (libc::SIGINT, on_stop),
        (libc::SIGTERM, on_stop),
        (libc::SIGUSR2, on_reload),
        (libc::SIGHUP, on_reopen),
    ];
    for (signal, handler) in handlers {
        // SAFETY: the handlers have the type that `signal` wants and only store to an atomic.
        unsafe { libc::signal(signal, handler as *const () as libc::sighandler_t) };
    }
    &REQUESTS
}

/// From this call on, the program ends when the reader of its results closes the pipe (`bartizan check FILE
/// | head`), as other programs do; until then a closed pipe is an ordinary error of an output.
pub fn end_with_the_pipe() {
    // SAFETY: the default action runs no code of this program.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Whether the program ends when the reader of its standard output has gone.
static ENDS_WITH_OUTPUT: AtomicBool = AtomicBool::new(false);

/// As [`end_with_the_pipe`], for commands with a connection: a connection closed by its peer is an ordinary
/// error, since bytes that the peer sent before are still to be read.
pub fn end_with_the_output() {
    ENDS_WITH_OUTPUT.store(true, Ordering::Relaxed);
}

/// The reader of standard output has gone.
pub fn output_closed() {
    if ENDS_WITH_OUTPUT.load(Ordering::Relaxed) {
        end_with_the_pipe();
        // SAFETY: it takes a number.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
}
