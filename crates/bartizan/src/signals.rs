// SPDX-License-Identifier: Apache-2.0
//! Signals as requests, with Suricata's meanings: SIGINT and SIGTERM end a run in order, SIGHUP reopens
//! outputs under their names, SIGUSR2 reloads rules and policy.
use bartizan_runtime::error::Failure;
use bartizan_runtime::requests::Requests;
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use std::io::Read as _;
use std::os::unix::net::UnixStream;
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

/// Passes signals on to a child from now on, in threads of their own. A terminal sends SIGINT and SIGQUIT
/// to the child itself; this process continues until the child has ended.
///
/// # Errors
/// The system accepts no handler, or has no descriptors or threads left.
pub fn pass_on_to(child: u32) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::stopped(format!("cannot pass signals on to the command: {error}; stop other programs"))
    };
    let pid = i32::try_from(child).ok().and_then(rustix::process::Pid::from_raw);
    for signal in [SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGINT, SIGQUIT] {
        let (mut ours, handlers) = UnixStream::pair().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, handlers).map_err(failed)?;
        let (Some(pid), Some(passed)) = (pid, rustix::process::Signal::from_named_raw(signal)) else {
            continue;
        };
        let thread = std::thread::Builder::new().name(format!("signal-{signal}"));
        let started = thread.spawn(move || {
            while matches!(ours.read(&mut [0]), Ok(1)) {
                if !matches!(signal, SIGINT | SIGQUIT) {
                    // The child may have ended meanwhile.
                    let _ = rustix::process::kill_process(pid, passed);
                }
            }
        });
        started.map_err(failed)?;
    }
    Ok(())
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

/// Whether the reader of standard output has closed it.
pub fn output_closed() {
    if ENDS_WITH_OUTPUT.load(Ordering::Relaxed) {
        let _ = signal_hook::low_level::emulate_default_handler(SIGPIPE);
    }
}
