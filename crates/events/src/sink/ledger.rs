// SPDX-License-Identifier: Apache-2.0
//! What all sinks count and report, what other threads may know of it, and what an operator is told.

use super::lines::timestamp_of;
use super::patience::{Patience, Wait};
use crate::output::Unfit;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// What happened to an output, to be told to the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkProblem {
    /// The output.
    pub path: PathBuf,
    /// What happened.
    pub what: Incident,
}

/// What happened to an output. Each is told once, until the output works again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incident {
    /// It stopped taking events. They are counted as lost until it works again.
    Lost {
        /// What the system said.
        error: String,
        /// What to do.
        advice: &'static str,
    },
    /// A file could not be put aside or begun anew; events go on into the old one.
    NotPutAside {
        /// What the system said.
        error: String,
        /// What to do.
        advice: &'static str,
    },
    /// It takes events again.
    Works {
        /// Events lost since it stopped.
        lost: u64,
    },
    /// Files are put aside again.
    PutAside,
}

impl SinkProblem {
    /// Whether it is bad news.
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
    /// Events that were lost. `written + lost` is every event given, once flushed.
    pub lost: u64,
    /// Bytes that the system took.
    pub bytes: u64,
    /// Times that a file was put aside.
    pub rotations: u64,
    /// Incidents: times that the output stopped working.
    pub problems: u64,
}

/// Incidents that wait to be told; of more the oldest are forgotten.
pub(crate) const TOLD_MAX: usize = 16;

/// What other threads may know of an output while it works: counters by relaxed atomics, and what happened to
/// it, each once.
#[derive(Debug, Default)]
pub struct SinkWatch {
    path: PathBuf,
    written: AtomicU64,
    lost: AtomicU64,
    /// Events that did not get as far as the output.
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

    /// Events that were lost, here and on the way here.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.failed() + self.missed.load(Ordering::Relaxed)
    }

    /// Events that were lost because the output did not take them.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Counts events that were lost on the way to the output.
    pub(super) fn add_missed(&self, events: u64) {
        self.missed.fetch_add(events, Ordering::Relaxed);
    }

    /// What happened first of what was not told yet, for who asks first.
    #[must_use]
    pub fn take_problem(&self) -> Option<SinkProblem> {
        self.problems.lock().ok()?.pop_front()
    }

    /// Asks for the file to be opened again under its name (logrotate's way): what was given so far goes into
    /// the old one. Whoever writes does it with the next event, or when it is idle. Nothing for other
    /// outputs.
    pub fn ask_reopen(&self) {
        self.reopen.store(true, Ordering::Relaxed);
    }

    pub(super) fn reopen_asked(&self) -> bool {
        self.reopen.load(Ordering::Relaxed) && self.reopen.swap(false, Ordering::Relaxed)
    }

    fn tell(&self, what: Incident) {
        if let Ok(mut problems) = self.problems.lock() {
            if problems.len() >= TOLD_MAX {
                problems.pop_front();
            }
            problems.push_back(SinkProblem { path: self.path.clone(), what });
        }
    }
}

/// What an operator can do about an error of the system; `file`: the output is a file, not a socket.
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

/// What all sinks count and report.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) path: PathBuf,
    pub(super) counters: SinkCounters,
    /// Losses that no record in the output tells of yet.
    pub(super) unreported: u64,
    failing: bool,
    /// Losses that had been counted when it began to fail.
    lost_before: u64,
    not_put_aside: bool,
    /// What stands before each line.
    pub(super) prefix: Box<[u8]>,
    /// A file, not a socket.
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

    /// Has the output wait for its reader from here on. That there is none is no failure yet: it is one when
    /// it is given up.
    pub(super) fn wait_for_reader(&mut self, patience: Patience) {
        self.wait.set(patience);
        if self.counters.lost == self.lost_before {
            self.failing = false;
        }
    }

    /// Notes events that were lost before they came here.
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

    /// Events are with the system.
    pub(super) fn took(&mut self, events: u64) {
        self.counters.written += events;
        self.watch.written.store(self.counters.written, Ordering::Relaxed);
    }

    /// Notes an error; only the first of an incident is told.
    pub(super) fn fail(&mut self, error: &std::io::Error) {
        if self.failing {
            return;
        }
        self.failing = true;
        self.lost_before = self.counters.lost;
        self.counters.problems += 1;
        let advice = advice(error, self.file);
        self.watch.tell(Incident::Lost { error: error.to_string(), advice });
    }

    /// The output has taken something. Tells so if events were lost before.
    pub(super) fn works(&mut self) {
        if !self.failing {
            return;
        }
        self.failing = false;
        let lost = self.counters.lost.saturating_sub(self.lost_before);
        if lost > 0 {
            self.watch.tell(Incident::Works { lost });
        }
    }

    /// A file could not be put aside; only the first time in a row is told.
    pub(super) fn fail_to_put_aside(&mut self, error: &std::io::Error) {
        if !core::mem::replace(&mut self.not_put_aside, true) {
            self.counters.problems += 1;
            let advice = advice(error, self.file);
            self.watch.tell(Incident::NotPutAside { error: error.to_string(), advice });
        }
    }

    pub(super) fn put_aside(&mut self) {
        if core::mem::take(&mut self.not_put_aside) {
            self.watch.tell(Incident::PutAside);
        }
    }

    /// Notes the time of an event.
    pub(super) fn note_time(&mut self, event: &[u8]) {
        let event = event.strip_prefix(&*self.prefix).unwrap_or(event);
        if event.starts_with(br#"{"timestamp":""#) {
            self.time.clear();
            self.time.push_str(timestamp_of(event));
        }
    }

    /// The line that tells of the losses, if there are any; `next` is the event that follows it, and empty
    /// where none does.
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
