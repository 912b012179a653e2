// SPDX-License-Identifier: Apache-2.0
//! Sinks for finished events: files, standard output, Unix sockets.
//!
//! A sink waits for its reader only if it has [`Patience`]. Events that it cannot take are counted; the cause
//! is reported once per incident ([`Sink::take_problem`]) with advice; when the output works again, a record
//! of type `bartizan` informs its readers of the number of missing events. This is the only module of the
//! crate with I/O; it runs on the writer's thread and knows nothing of the rings between workers and writer.
//! Other threads (metrics, messages to the operator) observe it by a [`SinkWatch`].
//!
//! Not supported: compression of old files, syslog, Redis.

mod buffered;
mod channel;
mod datagram;
pub(crate) mod file;
pub(crate) mod ledger;
mod lines;
mod name;
pub(crate) mod patience;
pub(crate) mod stream;

pub use ledger::{Incident, SinkCounters, SinkProblem, SinkWatch};
pub use name::expand as expand_time;
pub use patience::Patience;

use crate::config::{Destination, FileDestination};
use buffered::Buffered;
use channel::{Address, Channel};
use datagram::DatagramSocket;
use file::FileMedium;
use ledger::{Ledger, advice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stream::Stream;

/// An output that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the event output {path}: {source}; {advice}")]
pub struct OutputOpenError {
    /// The output.
    pub path: PathBuf,
    /// Error of the system.
    pub source: std::io::Error,
    /// Advice for the operator.
    pub advice: &'static str,
}

/// One output.
#[derive(Debug)]
pub struct Sink {
    kind: SinkKind,
    /// Text before each event.
    prefix: Box<[u8]>,
    /// An event with its prefix.
    line: Vec<u8>,
}

#[derive(Debug)]
enum SinkKind {
    File(Buffered<FileMedium>),
    Stdout(Buffered<std::io::Stdout>),
    Stream(Stream),
    Datagram(DatagramSocket),
}

impl SinkKind {
    fn file(file: &FileDestination, folder: &Path) -> Result<SinkKind, OutputOpenError> {
        let failed = |(path, source): (PathBuf, std::io::Error)| OutputOpenError {
            advice: advice(&source, true),
            path,
            source,
        };
        let path = file::name_at(file, folder, file::wall_clock());
        if channel::is_pipe(&path) {
            let address = Address::Pipe(path.clone(), file.clone());
            let channel = address.connect().map_err(|error| failed((path.clone(), error)))?;
            return Ok(SinkKind::Stream(Stream::of(path, address, channel)));
        }
        let medium = FileMedium::open(file.clone(), folder, file::wall_clock).map_err(failed)?;
        Ok(SinkKind::File(Buffered::new(medium.path().to_owned(), medium)))
    }

    fn stdout() -> SinkKind {
        let path = PathBuf::from("standard output");
        match Channel::stdout() {
            Some(channel) => SinkKind::Stream(Stream::of(path, Address::Stdout, channel)),
            None => SinkKind::Stdout(Buffered::new(path, std::io::stdout())),
        }
    }
}

impl Sink {
    /// Opens an output; relative paths are below `folder`. A socket without a listener is no error:
    /// connecting is tried again.
    ///
    /// # Errors
    /// A file that cannot be opened for writing.
    pub fn open(destination: &Destination, folder: &Path) -> Result<Sink, OutputOpenError> {
        let kind = match destination {
            Destination::File(file) => SinkKind::file(file, folder)?,
            Destination::Stdout => SinkKind::stdout(),
            Destination::UnixStream(path) => SinkKind::Stream(Stream::open(folder.join(path))),
            Destination::UnixDatagram(path) => SinkKind::Datagram(DatagramSocket::open(folder.join(path))),
        };
        Ok(Sink { kind, prefix: Box::default(), line: Vec::new() })
    }

    /// Puts this text before each event from now on.
    #[must_use]
    pub fn with_prefix(mut self, prefix: &str) -> Sink {
        self.prefix = prefix.as_bytes().into();
        let ledger = self.ledger_mut();
        ledger.prefix = prefix.as_bytes().into();
        self
    }

    /// Takes one event, without its line end. The event may be written later; see [`Sink::flush`].
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
            SinkKind::File(file) => file.write_event(event),
            SinkKind::Stdout(stdout) => stdout.write_event(event),
            SinkKind::Stream(socket) => socket.write_event(event),
            SinkKind::Datagram(socket) => socket.write_event(event),
        }
    }

    /// Writes all collected events, as far as the system takes them.
    pub fn flush(&mut self) {
        match &mut self.kind {
            SinkKind::File(file) => file.flush(),
            SinkKind::Stdout(stdout) => stdout.flush(),
            SinkKind::Stream(socket) => socket.flush(),
            SinkKind::Datagram(socket) => socket.flush(),
        }
    }

    /// Rotates the file (`eve.json.1` and so on). No effect on other outputs.
    pub fn rotate(&mut self) {
        if let SinkKind::File(file) = &mut self.kind {
            file.rotate();
        }
    }

    /// Opens the file again under its name, after another program has moved it. No effect on sockets and
    /// standard output.
    pub fn reopen(&mut self) {
        match &mut self.kind {
            SinkKind::File(file) => file.reopen(),
            SinkKind::Stream(stream) => stream.reopen(),
            SinkKind::Stdout(_) | SinkKind::Datagram(_) => {}
        }
    }

    /// Waits for the reader from now on, as long as `patience` lasts. Files need no wait.
    pub fn wait_for_reader(&mut self, patience: Patience) {
        match &mut self.kind {
            SinkKind::File(_) | SinkKind::Stdout(_) => {}
            SinkKind::Stream(stream) => stream.wait_for_reader(patience),
            SinkKind::Datagram(socket) => socket.wait_for_reader(patience),
        }
    }

    /// Counts events that were lost before they reached the sink: readers are informed before the next event.
    pub fn missed(&mut self, events: u64) {
        match &mut self.kind {
            // Earlier events precede the record in the output.
            SinkKind::File(file) => file.write_out(),
            SinkKind::Stdout(stdout) => stdout.write_out(),
            SinkKind::Stream(_) | SinkKind::Datagram(_) => {}
        }
        self.ledger_mut().miss(events);
    }

    /// Writes as many events as possible and counts the rest as lost: afterwards `written + lost` is the
    /// number of all events.
    pub fn finish(&mut self) {
        self.flush();
        match &mut self.kind {
            SinkKind::File(file) => file.finish(),
            SinkKind::Stdout(stdout) => stdout.finish(),
            SinkKind::Stream(stream) => stream.finish(),
            SinkKind::Datagram(socket) => socket.finish(),
        }
    }

    /// Settles and closes the output.
    #[must_use]
    pub fn close(mut self) -> (SinkCounters, Vec<SinkProblem>) {
        self.finish();
        (self.counters(), std::iter::from_fn(|| self.take_problem()).collect())
    }

    /// The first problem that is not reported yet.
    pub fn take_problem(&mut self) -> Option<SinkProblem> {
        self.ledger().watch.take_problem()
    }

    /// Counters so far.
    #[must_use]
    pub fn counters(&self) -> SinkCounters {
        self.ledger().counters
    }

    /// State of this output for other threads.
    #[must_use]
    pub fn watch(&self) -> Arc<SinkWatch> {
        Arc::clone(&self.ledger().watch)
    }

    fn ledger(&self) -> &Ledger {
        match &self.kind {
            SinkKind::File(file) => file.ledger(),
            SinkKind::Stdout(stdout) => stdout.ledger(),
            SinkKind::Stream(socket) => socket.ledger(),
            SinkKind::Datagram(socket) => socket.ledger(),
        }
    }

    const fn ledger_mut(&mut self) -> &mut Ledger {
        match &mut self.kind {
            SinkKind::File(file) => file.ledger_mut(),
            SinkKind::Stdout(stdout) => stdout.ledger_mut(),
            SinkKind::Stream(socket) => socket.ledger_mut(),
            SinkKind::Datagram(socket) => socket.ledger_mut(),
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests;
