// SPDX-License-Identifier: Apache-2.0
//! Signals as requests, with Suricata's meanings: SIGINT and SIGTERM end a run in order, SIGHUP reopens
//! outputs under their names, SIGUSR2 reloads rules and policy.
use bartizan_runtime::error::Failure;
use bartizan_runtime::requests::Requests;
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM, SIGUSR2};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTS: Requests = Requests::new();

/// Installs the handlers; returns the requests that they set.
///
/// # Errors
/// The system accepts no handler.
pub fn install() -> Result<&'static Requests, Failure> {
    let flags = REQUESTS.flags();
    let handlers =
        [(SIGINT, &flags.stop), (SIGTERM, &flags.stop), (SIGUSR2, &flags.reload), (SIGHUP, &flags.reopen)];
    for (signal, flag) in handlers {
        signal_hook::flag::register(signal, Arc::clone(flag)).map_err(|error| {
            Failure::stopped(format!(
                "cannot handle signal {signal}: {error}; allow `rt_sigaction` where the program runs"
            ))
        })?;
    }
    Ok(&REQUESTS)
}

/// From this call on, the program ends when the reader of its results closes the pipe (`bartizan check FILE
/// | head`), as other programs do; until then a closed pipe is an ordinary error of an output.
pub fn end_with_the_pipe() {
    // Without the handler, a closed pipe stays an error of the output, which is reported.
    let _ = signal_hook::flag::register_conditional_default(SIGPIPE, Arc::new(AtomicBool::new(true)));
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
        let _ = signal_hook::low_level::emulate_default_handler(SIGPIPE);
    }
}
