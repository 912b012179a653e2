// SPDX-License-Identifier: Apache-2.0
//! Where finished events go: files, standard output, Unix sockets.
//!
//! A sink never stops its caller. What it cannot take is counted; the reason is handed out once per
//! incident ([`Sink::take_problem`]) in words that say what to do; when the output works again a record of
//! type `bartizan` tells its readers how many events are missing before it. The only module of this crate
//! with I/O; it runs on the writer's thread, rings between workers and writer are not its business. Other threads
//! (metrics, whoever talks to the operator) see what it does by a [`SinkWatch`].
//!
//! Not done: compression of old files, syslog, Redis.

mod buffered;
mod file;
mod name;
mod socket;

use crate::config::Destination;
use crate::output::Unfit;
use buffered::Buffered;
use file::FileMedium;
use socket::{DatagramSocket, StreamSocket};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 64 * 1024;

/// An output that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the event output {path}: {source}; {advice}")]
pub struct OpenError {
    /// The output.
    pub path: PathBuf,
    /// What the system said.
    pub source: std::io::Error,
    /// What to do.
    pub advice: &'static str,
}

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
const TOLD_MAX: usize = 16;

/// What other threads may know of an output while it works: counters by relaxed atomics, and what happened to it, each once.
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

    /// Counts events that were lost on the way to the output; its readers are told by who lost them.
    pub fn add_missed(&self, events: u64) {
        self.missed.fetch_add(events, Ordering::Relaxed);
    }

    /// What happened first of what was not told yet, for who asks first.
    #[must_use]
    pub fn take_problem(&self) -> Option<SinkProblem> {
        self.problems.lock().ok()?.pop_front()
    }

    /// Asks for the file to be opened again under its name (logrotate's way): what was given so far goes into the old one. Whoever
    /// writes does it with the next event, or when it is idle. Nothing for other outputs.
    pub fn ask_reopen(&self) {
        self.reopen.store(true, Ordering::Relaxed);
    }

    fn reopen_asked(&self) -> bool {
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

/// One output.
#[derive(Debug)]
pub struct Sink {
    kind: Kind,
    /// What stands before each event, for readers who want that.
    prefix: Box<[u8]>,
    /// An event with its prefix.
    line: Vec<u8>,
}

#[derive(Debug)]
enum Kind {
    File(Buffered<FileMedium>),
    Stdout(Buffered<std::io::Stdout>),
    Stream(StreamSocket),
    Datagram(DatagramSocket),
}

impl Sink {
    /// Opens an output; relative paths are below `folder`. A socket that nobody listens on yet is no
    /// error: it is tried again.
    ///
    /// # Errors
    /// A file that cannot be opened for writing.
    pub fn open(destination: &Destination, folder: &Path) -> Result<Sink, OpenError> {
        let kind = match destination {
            Destination::File(file) => {
                let medium = FileMedium::open(file.clone(), folder, file::wall_clock)
                    .map_err(|(path, source)| OpenError { advice: advice(&source, true), path, source })?;
                Kind::File(Buffered::new(medium.path().to_owned(), medium))
            }
            Destination::Stdout => {
                Kind::Stdout(Buffered::new(PathBuf::from("standard output"), std::io::stdout()))
            }
            Destination::UnixStream(path) => Kind::Stream(StreamSocket::open(folder.join(path))),
            Destination::UnixDatagram(path) => Kind::Datagram(DatagramSocket::open(folder.join(path))),
        };
        Ok(Sink { kind, prefix: Box::default(), line: Vec::new() })
    }

    /// Each event has this before it from here on.
    #[must_use]
    pub fn with_prefix(mut self, prefix: &str) -> Sink {
        self.prefix = prefix.as_bytes().into();
        let ledger = match &mut self.kind {
            Kind::File(file) => file.ledger_mut(),
            Kind::Stdout(stdout) => stdout.ledger_mut(),
            Kind::Stream(socket) => socket.ledger_mut(),
            Kind::Datagram(socket) => socket.ledger_mut(),
        };
        ledger.prefix = self.prefix.clone();
        self
    }

    /// Takes one event, without its line end. It may be written later; see [`Sink::flush`].
    pub fn write_event(&mut self, event: &[u8]) {
        let event = if self.prefix.is_empty() {
            event
        } else {
            self.line.clear();
            self.line.extend_from_slice(&self.prefix);
            self.line.extend_from_slice(event);
            &self.line
        };
        match &mut self.kind {
            Kind::File(file) => file.write_event(event),
            Kind::Stdout(stdout) => stdout.write_event(event),
            Kind::Stream(socket) => socket.write_event(event),
            Kind::Datagram(socket) => socket.write_event(event),
        }
    }

    /// Hands everything gathered to the system, as far as it takes it.
    pub fn flush(&mut self) {
        match &mut self.kind {
            Kind::File(file) => file.flush(),
            Kind::Stdout(stdout) => stdout.flush(),
            Kind::Stream(socket) => socket.flush(),
            Kind::Datagram(socket) => socket.flush(),
        }
    }

    /// Puts the file aside (`eve.json.1` and so on) and begins a new one. Nothing for other outputs.
    pub fn rotate(&mut self) {
        if let Kind::File(file) = &mut self.kind {
            file.rotate();
        }
    }

    /// Opens the file again under its name, after another program has moved it. Nothing for other outputs.
    pub fn reopen(&mut self) {
        if let Kind::File(file) = &mut self.kind {
            file.reopen();
        }
    }

    /// Writes what it can and closes the output; what a slow or absent reader did not take is counted
    /// as lost.
    #[must_use]
    pub fn close(mut self) -> (SinkCounters, Vec<SinkProblem>) {
        self.flush();
        if let Kind::Stream(socket) = &mut self.kind {
            socket.give_up();
        }
        (self.counters(), std::iter::from_fn(|| self.take_problem()).collect())
    }

    /// What happened first of what was not told yet, once.
    pub fn take_problem(&mut self) -> Option<SinkProblem> {
        self.ledger().watch.take_problem()
    }

    /// What was written and lost so far.
    #[must_use]
    pub fn counters(&self) -> SinkCounters {
        self.ledger().counters
    }

    /// For other threads: what this output does.
    #[must_use]
    pub fn watch(&self) -> Arc<SinkWatch> {
        Arc::clone(&self.ledger().watch)
    }

    fn ledger(&self) -> &Ledger {
        match &self.kind {
            Kind::File(file) => file.ledger(),
            Kind::Stdout(stdout) => stdout.ledger(),
            Kind::Stream(socket) => socket.ledger(),
            Kind::Datagram(socket) => socket.ledger(),
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.flush();
    }
}

/// What an operator can do about an error of the system; `file`: the output is a file, not a socket.
fn advice(error: &std::io::Error, file: bool) -> &'static str {
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
struct Ledger {
    path: PathBuf,
    counters: SinkCounters,
    /// Losses that no record in the output tells of yet.
    unreported: u64,
    failing: bool,
    /// Losses that had been counted when it began to fail.
    lost_before: u64,
    not_put_aside: bool,
    /// What stands before each line.
    prefix: Box<[u8]>,
    /// A file, not a socket.
    file: bool,
    watch: Arc<SinkWatch>,
}

impl Ledger {
    fn new(path: PathBuf, file: bool) -> Self {
        let watch = Arc::new(SinkWatch { path: path.clone(), ..SinkWatch::default() });
        Ledger { path, watch, file, ..Ledger::default() }
    }

    fn lose(&mut self, events: u64) {
        self.counters.lost += events;
        self.unreported += events;
        self.watch.lost.store(self.counters.lost, Ordering::Relaxed);
    }

    /// Events are with the system.
    fn took(&mut self, events: u64) {
        self.counters.written += events;
        self.watch.written.store(self.counters.written, Ordering::Relaxed);
    }

    /// Notes an error; only the first of an incident is told.
    fn fail(&mut self, error: &std::io::Error) {
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
    fn works(&mut self) {
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
    fn fail_to_put_aside(&mut self, error: &std::io::Error) {
        if !core::mem::replace(&mut self.not_put_aside, true) {
            self.counters.problems += 1;
            let advice = advice(error, self.file);
            self.watch.tell(Incident::NotPutAside { error: error.to_string(), advice });
        }
    }

    fn put_aside(&mut self) {
        if core::mem::take(&mut self.not_put_aside) {
            self.watch.tell(Incident::PutAside);
        }
    }

    /// The line that tells of the losses, if there are any; `next` is the event that follows it.
    fn loss_line(&self, next: &[u8]) -> Option<Vec<u8>> {
        if self.unreported == 0 {
            return None;
        }
        let mut w = crate::JsonWriter::new();
        let output = self.path.to_string_lossy();
        let record = crate::record::LossRecord {
            timestamp: timestamp_of(next.strip_prefix(&*self.prefix).unwrap_or(next)),
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

/// The time text of an event; every event begins with it.
fn timestamp_of(event: &[u8]) -> &str {
    let text = event.strip_prefix(br#"{"timestamp":""#).and_then(|rest| {
        let end = rest.iter().position(|byte| *byte == b'"')?;
        core::str::from_utf8(rest.get(..end)?).ok()
    });
    text.unwrap_or("1970-01-01T00:00:00.000000+0000")
}

/// Seconds since the epoch of an event's time text, `2018-10-10T09:24:31.516380+0200`; `None` for anything else.
fn seconds_of(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let zone = text.len().checked_sub(5)?;
    let sign = if text.get(zone..=zone)? == "-" { -1 } else { 1 };
    let offset = sign * (number(zone + 1, zone + 3)? * 3600 + number(zone + 3, zone + 5)? * 60);
    // Days since 1970-01-01 in the proleptic Gregorian calendar, years beginning in March.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 306 + 5) / 10 + day - 1 - 719_468;
    u64::try_from(days * 86_400 + hour * 3600 + minute * 60 + second - offset).ok()
}

/// Number of line ends.
fn lines(bytes: &[u8]) -> u64 {
    // Pieces whose count fits a byte: added up many at once by the processor.
    let in_piece = |piece: &[u8]| piece.iter().map(|byte| u8::from(*byte == b'\n')).sum::<u8>();
    bytes.chunks(192).map(|piece| u64::from(in_piece(piece))).sum()
}

#[cfg(test)]
mod tests;
