// SPDX-License-Identifier: Apache-2.0
//! Counters and problems of sinks: the part shared by all sinks, the part visible to other threads, and the
//! messages for the operator.

use super::lines::timestamp_of;
use super::patience::{Patience, Wait};
use crate::output::Unfit;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A problem of an output, for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkProblem {
    /// The output.
    pub path: PathBuf,
    /// Kind of the problem.
    pub what: Incident,
}

/// A change in an output's condition. Each is reported once, until the output works again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incident {
    /// The output stopped taking events. They count as lost until it works again.
    Lost {
        /// Error of the system.
        error: String,
        /// Advice for the operator.
        advice: &'static str,
    },
    /// A file could not be rotated; events continue in the old one.
    NotPutAside {
        /// Error of the system.
        error: String,
        /// Advice for the operator.
        advice: &'static str,
    },
    /// The output takes events again.
    Works {
        /// Number of events lost since it stopped.
        lost: u64,
    },
    /// Rotation works again.
    PutAside,
}

impl SinkProblem {
    /// Whether the change is for the worse.
    #[must_use]
    pub const fn is_error(&self) -> bool {
        matches!(self.what, Incident::Lost { .. } | Incident::NotPutAside { .. })
    }
}

impl core::fmt::Display for SinkProblem {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let path = self.path.display();
        match &self.what {
            Incident::Lost { error, advice } => write!(
                f,
                "events are lost: cannot write to {path}: {error}; {advice}; lost events are counted and noted in the \
                 output when it works again"
            ),
            Incident::NotPutAside { error, advice } => {
                write!(
                    f,
                    "{path} cannot be put aside for a new file: {error}; {advice}; events go on into the old file"
                )
            }
            Incident::Works { lost } => write!(f, "{path} takes events again; {lost} were lost before"),
            Incident::PutAside => write!(f, "{path} was put aside for a new file again"),
        }
    }
}

/// Counters of a sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkCounters {
    /// Events that the system took.
    pub written: u64,
    /// Events that were lost. After a flush `written + lost` is the number of all events.
    pub lost: u64,
    /// Bytes that the system took.
    pub bytes: u64,
    /// Number of rotations.
    pub rotations: u64,
    /// Number of times that the output stopped working.
    pub problems: u64,
}

/// Limit of problems that are not reported yet; beyond it the oldest are dropped.
pub(crate) const TOLD_MAX: usize = 16;

/// State of an output for other threads: counters by relaxed atomics, and problems, each once.
#[derive(Debug, Default)]
pub struct SinkWatch {
    path: PathBuf,
    written: AtomicU64,
    lost: AtomicU64,
    /// Events that were lost before they reached the output.
    missed: AtomicU64,
    /// The output is to be opened again.
    reopen: AtomicBool,
    problems: Mutex<VecDeque<SinkProblem>>,
}

impl SinkWatch {
    /// The output.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Events that the system took.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Events that were lost, in the output or before it.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.failed() + self.missed.load(Ordering::Relaxed)
    }

    /// Events that were lost because the output did not take them.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Counts events that were lost before they reached the output.
    pub(super) fn add_missed(&self, events: u64) {
        self.missed.fetch_add(events, Ordering::Relaxed);
    }

    /// The first problem that is not reported yet; each goes to one caller.
    #[must_use]
    pub fn take_problem(&self) -> Option<SinkProblem> {
        self.problems.lock().ok()?.pop_front()
    }

    /// Requests that the file be opened again under its name (logrotate's way): earlier events go into the
    /// old one. The writer does so with the next event, or when it is idle. No effect on other outputs.
    pub fn request_reopen(&self) {
        self.reopen.store(true, Ordering::Relaxed);
    }

    pub(super) fn reopen_asked(&self) -> bool {
        self.reopen.load(Ordering::Relaxed) && self.reopen.swap(false, Ordering::Relaxed)
    }

    fn report(&self, what: Incident) {
        if let Ok(mut problems) = self.problems.lock() {
            if problems.len() >= TOLD_MAX {
                problems.pop_front();
            }
            problems.push_back(SinkProblem { path: self.path.clone(), what });
        }
    }
}

/// Advice for the operator about an error of the system; `file`: the output is a file, not a socket.
pub(super) fn advice(error: &std::io::Error, file: bool) -> &'static str {
    use std::io::ErrorKind;
    if let Some(unfit) = Unfit::of(error) {
        return unfit.advice();
    }
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory if file => "create the folder or choose another",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "free space on that disk or choose another folder"
        }
        ErrorKind::FileTooLarge => "set rotate-size for this output",
        ErrorKind::PermissionDenied => "give this program the right to write there or choose another path",
        ErrorKind::NotFound => "create the folder, or start the program that listens on the socket",
        ErrorKind::ConnectionRefused | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
            "start the program that reads the events"
        }
        ErrorKind::WouldBlock => {
            "the program that reads the events is too slow; give it more time or log less"
        }
        ErrorKind::ReadOnlyFilesystem => "choose a folder that can be written to",
        ErrorKind::IsADirectory => "give the name of a file, not of a folder",
        _ => "check the output's path and the system's log",
    }
}

/// Counters and problems of one sink.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) path: PathBuf,
    pub(super) counters: SinkCounters,
    /// Losses without a record in the output yet.
    pub(super) unreported: u64,
    failing: bool,
    /// Losses that had been counted when the output began to fail.
    lost_before: u64,
    not_put_aside: bool,
    /// Text before each line.
    pub(super) prefix: Box<[u8]>,
    /// The output is a file, not a socket.
    file: bool,
    /// Time text of an event near the latest loss.
    time: String,
    /// The wait for its reader.
    pub(super) wait: Wait,
    pub(super) watch: Arc<SinkWatch>,
}

impl Ledger {
    pub(super) fn new(path: PathBuf, file: bool) -> Self {
        let watch = Arc::new(SinkWatch { path: path.clone(), ..SinkWatch::default() });
        Ledger { path, watch, file, ..Ledger::default() }
    }

    /// Makes the output wait for its reader from now on. A missing reader is no failure until the wait is
    /// given up.
    pub(super) fn wait_for_reader(&mut self, patience: Patience) {
        self.wait.set(patience);
        if self.counters.lost == self.lost_before {
            self.failing = false;
        }
    }

    /// Counts events that were lost before they reached this output.
    pub(super) fn miss(&mut self, events: u64) {
        self.unreported += events;
        self.watch.add_missed(events);
    }

    /// Counts lost events; `near` is one of them or the next one, for the time of their record.
    pub(super) fn lose(&mut self, events: u64, near: &[u8]) {
        self.note_time(near);
        self.counters.lost += events;
        self.unreported += events;
        self.watch.lost.store(self.counters.lost, Ordering::Relaxed);
    }

    /// Counts events that the system took.
    pub(super) fn count_written(&mut self, events: u64) {
        self.counters.written += events;
        self.watch.written.store(self.counters.written, Ordering::Relaxed);
    }

    /// Records an error; only the first of an incident is reported.
    pub(super) fn fail(&mut self, error: &std::io::Error) {
        if self.failing {
            return;
        }
        self.failing = true;
        self.lost_before = self.counters.lost;
        self.counters.problems += 1;
        let advice = advice(error, self.file);
        self.watch.report(Incident::Lost { error: error.to_string(), advice });
    }

    /// Records that the output took something, and reports it if events were lost before.
    pub(super) fn works(&mut self) {
        if !self.failing {
            return;
        }
        self.failing = false;
        let lost = self.counters.lost.saturating_sub(self.lost_before);
        if lost > 0 {
            self.watch.report(Incident::Works { lost });
        }
    }

    /// Records a failed rotation; only the first in a row is reported.
    pub(super) fn fail_to_put_aside(&mut self, error: &std::io::Error) {
        if !core::mem::replace(&mut self.not_put_aside, true) {
            self.counters.problems += 1;
            let advice = advice(error, self.file);
            self.watch.report(Incident::NotPutAside { error: error.to_string(), advice });
        }
    }

    pub(super) fn report_rotated(&mut self) {
        if core::mem::take(&mut self.not_put_aside) {
            self.watch.report(Incident::PutAside);
        }
    }

    /// Stores the time of an event.
    pub(super) fn note_time(&mut self, event: &[u8]) {
        let event = event.strip_prefix(&*self.prefix).unwrap_or(event);
        if event.starts_with(br#"{"timestamp":""#) {
            self.time.clear();
            self.time.push_str(timestamp_of(event));
        }
    }

    /// The record of the losses, if there are any; `next` is the event after it, or empty.
    pub(super) fn loss_line(&self, next: &[u8]) -> Option<Vec<u8>> {
        if self.unreported == 0 {
            return None;
        }
        let mut w = crate::JsonWriter::new();
        let output = self.path.to_string_lossy();
        let known = next.is_empty() && !self.time.is_empty();
        let next = timestamp_of(next.strip_prefix(&*self.prefix).unwrap_or(next));
        let record = crate::record::LossRecord {
            timestamp: if known { &self.time } else { next },
            output: &output,
            lost_events: self.unreported,
        };
        record.write(&mut w);
        let mut line = self.prefix.to_vec();
        line.extend_from_slice(w.bytes());
        line.push(b'\n');
        Some(line)
    }
}
