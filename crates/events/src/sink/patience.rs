// SPDX-License-Identifier: Apache-2.0
//! Limits of an output's wait for a reader that takes nothing.
//!
//! Live traffic never waits for a reader: an output without [`Patience`] gives up at once. Over captures, and
//! at the ordered end of a run, nothing depends on the output: it waits as long as the reader takes
//! something, and gives up a reader that takes nothing for a stated time. The output waits again for a reader
//! that resumes.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Over captures: longest time that a reader may take nothing.
pub(crate) const CAPTURES_QUIET: Duration = Duration::from_secs(60);
/// At the end of a run: longest time that a reader may take nothing.
pub(crate) const END_QUIET: Duration = Duration::from_secs(10);
/// Longest time that a reader may be absent, over captures and at the end of a run.
pub(crate) const ABSENT: Duration = Duration::from_secs(10);
/// Longest time that the end of a run waits for all readers together; less than the 90 seconds after which
/// systemd kills a service that does not stop.
pub(crate) const END_TOTAL: Duration = Duration::from_secs(60);
/// Longest single wait, and so the longest delay until a request to stop is noticed.
const SLICE: Duration = Duration::from_millis(100);

/// The bounds on an output's wait for its reader.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Longest time that a connected reader may take nothing.
    quiet: Duration,
    /// Longest time that a reader may be absent.
    absent: Duration,
    /// The end of the wait, whatever the reader does.
    until: Option<Instant>,
    /// Set when the run is to stop: the limits of the end apply then.
    stop: Option<&'static AtomicBool>,
}

impl Patience {
    /// Patience over captures: without a total limit, until `stop` is set.
    #[must_use]
    pub const fn over_captures(stop: &'static AtomicBool) -> Self {
        Patience { quiet: CAPTURES_QUIET, absent: ABSENT, until: None, stop: Some(stop) }
    }

    /// Patience at the end of a run that begins to end now.
    #[must_use]
    pub fn at_the_end() -> Self {
        let until = Instant::now().checked_add(END_TOTAL);
        Patience { quiet: END_QUIET, absent: ABSENT, until, stop: None }
    }

    /// Patience with other limits, for tests.
    #[cfg(test)]
    pub(super) fn of(quiet: Duration, total: Duration) -> Self {
        Patience { quiet, absent: quiet, until: Instant::now().checked_add(total), stop: None }
    }
}

/// The wait of one output.
#[derive(Debug, Default)]
pub(super) struct Wait {
    patience: Option<Patience>,
    /// Time since which the output takes nothing.
    stalled: Option<Instant>,
}

impl Wait {
    pub(super) const fn set(&mut self, patience: Patience) {
        self.patience = Some(patience);
    }

    /// Records that the output took something.
    pub(super) const fn note_progress(&mut self) {
        self.stalled = None;
    }

    /// Records that the output takes nothing now. Returns the time until the next attempt; `None`: the wait
    /// is given up.
    pub(super) fn next(&mut self, absent: bool) -> Option<Duration> {
        let now = Instant::now();
        let since = *self.stalled.get_or_insert(now);
        let patience = self.patience.as_mut()?;
        if patience.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            *patience = Patience::at_the_end();
        }
        let bound = if absent { patience.absent.min(patience.quiet) } else { patience.quiet };
        let left = bound.saturating_sub(now.saturating_duration_since(since));
        let total = patience.until.map_or(left, |until| until.saturating_duration_since(now));
        let wait = left.min(total).min(SLICE);
        (!wait.is_zero()).then_some(wait)
    }
}

/// Waits until `output` takes bytes, but no longer than `most`.
pub(super) fn until_writable(output: impl AsFd, most: Duration) {
    let mut wanted = [PollFd::new(&output, PollFlags::OUT)];
    let limit = Timespec::try_from(most).ok();
    if poll(&mut wanted, limit.as_ref()).is_err() {
        // A signal, or the system has no memory: avoids a busy loop in both cases.
        std::thread::sleep(most.min(Duration::from_millis(1)));
    }
}

#[cfg(test)]
mod tests;
