// SPDX-License-Identifier: Apache-2.0
//! Where finished events go: files, standard output, Unix sockets.
//!
//! A sink waits for its reader only if it was given [`Patience`]. What it cannot take is counted; the reason
//! is handed out once per incident ([`Sink::take_problem`]) in words that say what to do; when the output
//! works again a record of type `bartizan` tells its readers how many events are missing before it. The only
//! module of this crate with I/O; it runs on the writer's thread, rings between workers and writer are not
//! its business. Other threads (metrics, whoever talks to the operator) see what it does by a [`SinkWatch`].
//!
//! Not done: compression of old files, syslog, Redis.

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
pub struct OpenError {
    /// The output.
    pub path: PathBuf,
    /// What the system said.
    pub source: std::io::Error,
    /// What to do.
    pub advice: &'static str,
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
    Stream(Stream),
    Datagram(DatagramSocket),
}

impl Kind {
    fn file(file: &FileDestination, folder: &Path) -> Result<Kind, OpenError> {
        let failed = |(path, source): (PathBuf, std::io::Error)| OpenError {
            advice: advice(&source, true),
            path,
            source,
        };
        let path = file::name_at(file, folder, file::wall_clock());
        if channel::is_pipe(&path) {
            let address = Address::Pipe(path.clone(), file.clone());
            let channel = address.connect().map_err(|error| failed((path.clone(), error)))?;
            return Ok(Kind::Stream(Stream::of(path, address, channel)));
        }
        let medium = FileMedium::open(file.clone(), folder, file::wall_clock).map_err(failed)?;
        Ok(Kind::File(Buffered::new(medium.path().to_owned(), medium)))
    }

    fn stdout() -> Kind {
        let path = PathBuf::from("standard output");
        match Channel::stdout() {
            Some(channel) => Kind::Stream(Stream::of(path, Address::Stdout, channel)),
            None => Kind::Stdout(Buffered::new(path, std::io::stdout())),
        }
    }
}

impl Sink {
    /// Opens an output; relative paths are below `folder`. A socket that nobody listens on yet is no
    /// error: it is tried again.
    ///
    /// # Errors
    /// A file that cannot be opened for writing.
    pub fn open(destination: &Destination, folder: &Path) -> Result<Sink, OpenError> {
        let kind = match destination {
            Destination::File(file) => Kind::file(file, folder)?,
            Destination::Stdout => Kind::stdout(),
            Destination::UnixStream(path) => Kind::Stream(Stream::open(folder.join(path))),
            Destination::UnixDatagram(path) => Kind::Datagram(DatagramSocket::open(folder.join(path))),
        };
        Ok(Sink { kind, prefix: Box::default(), line: Vec::new() })
    }

    /// Each event has this before it from here on.
    #[must_use]
    pub fn with_prefix(mut self, prefix: &str) -> Sink {
        self.prefix = prefix.as_bytes().into();
        let ledger = self.ledger_mut();
        ledger.prefix = prefix.as_bytes().into();
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

    /// Opens the file again under its name, after another program has moved it. Nothing for sockets and
    /// standard output.
    pub fn reopen(&mut self) {
        match &mut self.kind {
            Kind::File(file) => file.reopen(),
            Kind::Stream(stream) => stream.reopen(),
            Kind::Stdout(_) | Kind::Datagram(_) => {}
        }
    }

    /// Waits for the reader from here on, as long as `patience` lasts. Files are never waited for.
    pub fn wait_for_reader(&mut self, patience: Patience) {
        match &mut self.kind {
            Kind::File(_) | Kind::Stdout(_) => {}
            Kind::Stream(stream) => stream.wait_for_reader(patience),
            Kind::Datagram(socket) => socket.wait_for_reader(patience),
        }
    }

    /// Notes events that were lost on the way here: readers are told of them before the next event.
    pub fn missed(&mut self, events: u64) {
        match &mut self.kind {
            // What was given before them stands before the record in the output.
            Kind::File(file) => file.write_out(),
            Kind::Stdout(stdout) => stdout.write_out(),
            Kind::Stream(_) | Kind::Datagram(_) => {}
        }
        self.ledger_mut().miss(events);
    }

    /// Writes what it can and counts the rest as lost: afterwards `written + lost` is every event given.
    pub fn settle(&mut self) {
        self.flush();
        match &mut self.kind {
            Kind::File(file) => file.settle(),
            Kind::Stdout(stdout) => stdout.settle(),
            Kind::Stream(stream) => stream.settle(),
            Kind::Datagram(socket) => socket.settle(),
        }
    }

    /// Settles and closes the output.
    #[must_use]
    pub fn close(mut self) -> (SinkCounters, Vec<SinkProblem>) {
        self.settle();
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

    const fn ledger_mut(&mut self) -> &mut Ledger {
        match &mut self.kind {
            Kind::File(file) => file.ledger_mut(),
            Kind::Stdout(stdout) => stdout.ledger_mut(),
            Kind::Stream(socket) => socket.ledger_mut(),
            Kind::Datagram(socket) => socket.ledger_mut(),
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
