// SPDX-License-Identifier: Apache-2.0
//! Signals as flags, with Suricata's meanings: SIGINT and SIGTERM end a run in order, SIGHUP opens outputs again under their names,
//! SIGUSR2 loads rules and policy anew.
//!
//! `unsafe` is needed because the standard library cannot install signal handlers; each handler only stores to an
//! atomic, which is async-signal-safe. Waiting for a pipe needs it for poll(2).

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static STOP: AtomicBool = AtomicBool::new(false);
static RELOAD: AtomicBool = AtomicBool::new(false);
static REOPEN: AtomicBool = AtomicBool::new(false);

extern "C" fn on_stop(_signal: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

extern "C" fn on_reload(_signal: libc::c_int) {
    RELOAD.store(true, Ordering::Relaxed);
}

extern "C" fn on_reopen(_signal: libc::c_int) {
    REOPEN.store(true, Ordering::Relaxed);
}

/// Installs the handlers.
pub fn install() {
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
}

/// From here on the program ends when nobody reads its results any more (`bartizan check FILE | head`), as others do; until
/// then a closed pipe is an error of an output like others.
pub fn end_with_the_pipe() {
    // SAFETY: the default action runs no code of this program.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Whether the program ends when nobody reads its standard output.
static ENDS_WITH_OUTPUT: AtomicBool = AtomicBool::new(false);

/// As [`end_with_the_pipe`], for commands that talk to others: a connection that its peer has closed is an
/// error like others, since what the peer said before is still to be read.
pub fn end_with_the_output() {
    ENDS_WITH_OUTPUT.store(true, Ordering::Relaxed);
}

/// Nobody reads standard output any more.
pub fn output_closed() {
    if ENDS_WITH_OUTPUT.load(Ordering::Relaxed) {
        end_with_the_pipe();
        // SAFETY: it takes a number.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
}

/// Whether the end was asked for.
pub fn stop_asked() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Set once the end was asked for.
pub const fn stop_flag() -> &'static AtomicBool {
    &STOP
}

/// Whether a reload was asked for since the last call.
pub fn reload_asked() -> bool {
    RELOAD.load(Ordering::Relaxed) && RELOAD.swap(false, Ordering::Relaxed)
}

/// Whether outputs are to be opened again, since the last call.
pub fn reopen_asked() -> bool {
    REOPEN.load(Ordering::Relaxed) && REOPEN.swap(false, Ordering::Relaxed)
}

/// Waits until there is something to read (or the other end is closed, or failed), but no longer than `limit`. Files are always ready.
pub fn wait_readable(from: BorrowedFd<'_>, limit: Duration) -> bool {
    let mut wanted = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let limit = libc::c_int::try_from(limit.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: `wanted` is one `pollfd` that lives through the call, and its descriptor is open for as long as it is borrowed.
    unsafe { libc::poll(&raw mut wanted, 1, limit) != 0 && wanted.revents != 0 }
}

/// Whether the other end of a socket is closed, in both directions: nobody is there to be answered.
pub fn is_hung_up(socket: BorrowedFd<'_>) -> bool {
    let mut wanted = libc::pollfd { fd: socket.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: `wanted` is one `pollfd` that lives through the call, and its descriptor is open for as long as
    // it is borrowed.
    unsafe { libc::poll(&raw mut wanted, 1, 0) > 0 && wanted.revents != 0 }
}
