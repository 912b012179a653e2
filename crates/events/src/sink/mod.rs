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
pub(crate) mod file;
pub(crate) mod ledger;
mod lines;
mod name;
pub(crate) mod socket;

pub use ledger::{Incident, SinkCounters, SinkProblem, SinkWatch};

use crate::config::Destination;
use buffered::Buffered;
use file::FileMedium;
use ledger::{Ledger, advice};
use socket::{DatagramSocket, StreamSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

#[cfg(test)]
mod tests;
