// SPDX-License-Identifier: Apache-2.0
//! Unix sockets that another program reads from. Nothing here waits for that program: a stream holds a
//! bounded amount back, a datagram that does not fit is lost, and connecting to a stream happens on a
//! thread of its own (a full backlog would block it).

use super::ledger::Ledger;
use super::lines::BUFFER_BYTES;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::Duration;

/// Bytes that a stream holds back for a slow reader.
pub(crate) const HELD_BYTES: usize = 1 << 20;
/// How long opening waits for a connection; after that it goes on by itself.
const FIRST_CONNECT: Duration = Duration::from_millis(200);
/// Most flushes that pass between two attempts to connect.
const MAX_PAUSE: u32 = 64;

/// A connected stream, one on its way, or none.
#[derive(Debug)]
enum Link {
    Down { pause: u32, next_pause: u32 },
    Connecting { answer: Receiver<io::Result<UnixStream>>, next_pause: u32 },
    Up(UnixStream),
}

impl Link {
    fn connect(path: PathBuf, next_pause: u32) -> Self {
        let (sender, answer) = channel();
        let connect = move || {
            let connected = UnixStream::connect(path).and_then(|stream| {
                stream.set_nonblocking(true)?;
                Ok(stream)
            });
            // Nobody listens any more when the sink is gone.
            let _ = sender.send(connected);
        };
        match std::thread::Builder::new().name("eve-connect".to_owned()).spawn(connect) {
            Ok(_) => Link::Connecting { answer, next_pause },
            Err(_) => Link::down(next_pause),
        }
    }

    fn down(pause: u32) -> Self {
        Link::Down { pause, next_pause: (pause * 2).clamp(1, MAX_PAUSE) }
    }
}

/// A line that waits in a stream.
#[derive(Clone, Copy, Debug)]
struct Held {
    length: usize,
    /// Losses that the line tells of; `None` for an event.
    losses: Option<u64>,
}

/// A Unix stream socket.
#[derive(Debug)]
pub(super) struct StreamSocket {
    link: Link,
    /// Lines that wait, without gaps.
    bytes: Vec<u8>,
    lines: VecDeque<Held>,
    /// Bytes of the first line that the reader has already.
    sent: usize,
    ledger: Ledger,
}

impl StreamSocket {
    pub(super) fn open(path: PathBuf) -> Self {
        let mut socket = StreamSocket {
            link: Link::connect(path.clone(), 1),
            bytes: Vec::new(),
            lines: VecDeque::new(),
            sent: 0,
            ledger: Ledger::new(path, false),
        };
        if let Link::Connecting { answer, .. } = &socket.link {
            match answer.recv_timeout(FIRST_CONNECT) {
                Ok(result) => socket.connected(result, 1),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => socket.link = Link::down(1),
            }
        }
        socket
    }

    pub(super) fn write_event(&mut self, event: &[u8]) {
        if !self.has_room(event.len()) {
            self.flush();
        }
        if !self.has_room(event.len()) {
            self.ledger.fail(&ErrorKind::WouldBlock.into());
            self.ledger.lose(1);
            return;
        }
        if matches!(self.link, Link::Up(_))
            && let Some(line) = self.ledger.loss_line(event)
        {
            self.bytes.extend_from_slice(&line);
            self.lines.push_back(Held { length: line.len(), losses: Some(self.ledger.unreported) });
            self.ledger.unreported = 0;
        }
        self.bytes.extend_from_slice(event);
        self.bytes.push(b'\n');
        self.lines.push_back(Held { length: event.len() + 1, losses: None });
        if self.bytes.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.bytes.len() + bytes < HELD_BYTES
    }

    pub(super) fn flush(&mut self) {
        self.advance_link();
        let Link::Up(stream) = &mut self.link else { return };
        let mut taken = 0usize;
        let error = loop {
            let rest = self.bytes.get(taken..).unwrap_or_default();
            if rest.is_empty() {
                break None;
            }
            match stream.write(rest) {
                Ok(0) => break Some(ErrorKind::BrokenPipe.into()),
                Ok(some) => taken += some.min(rest.len()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break None,
                Err(error) => break Some(error),
            }
        };
        self.settle(taken);
        if let Some(error) = error {
            self.disconnect(&error);
        }
    }

    /// Forgets bytes that the reader has, and counts the events that are complete with them.
    fn settle(&mut self, taken: usize) {
        self.bytes.drain(..taken);
        self.ledger.counters.bytes += taken as u64;
        // Not before the reader has caught up: one that is always nearly too slow is told of once.
        if taken > 0 && self.bytes.is_empty() {
            self.ledger.works();
        }
        self.sent += taken;
        while let Some(first) = self.lines.front().copied()
            && self.sent >= first.length
        {
            self.sent -= first.length;
            self.lines.pop_front();
            self.ledger.took(u64::from(first.losses.is_none()));
        }
    }

    pub(super) const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) const fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// Looks after a connection that is not there.
    fn advance_link(&mut self) {
        match &mut self.link {
            Link::Up(_) => {}
            Link::Down { pause, next_pause } => {
                *pause = pause.saturating_sub(1);
                if *pause == 0 {
                    let next_pause = *next_pause;
                    self.link = Link::connect(self.ledger.path.clone(), next_pause);
                }
            }
            Link::Connecting { answer, next_pause } => {
                let next_pause = *next_pause;
                match answer.try_recv() {
                    Ok(result) => self.connected(result, next_pause),
                    Err(TryRecvError::Empty) => {}
                    Err(TryRecvError::Disconnected) => self.link = Link::down(next_pause),
                }
            }
        }
    }

    fn connected(&mut self, result: io::Result<UnixStream>, next_pause: u32) {
        match result {
            Ok(stream) => self.link = Link::Up(stream),
            Err(error) => {
                self.link = Link::down(next_pause);
                self.ledger.fail(&error);
            }
        }
    }

    /// The reader is gone. A line that it has in part is lost; whole ones wait for the next reader.
    fn disconnect(&mut self, error: &io::Error) {
        self.ledger.fail(error);
        self.link = Link::down(1);
        if self.sent == 0 {
            return;
        }
        if let Some(torn) = self.lines.pop_front() {
            let rest = torn.length.saturating_sub(self.sent).min(self.bytes.len());
            self.bytes.drain(..rest);
            match torn.losses {
                None => self.ledger.lose(1),
                Some(losses) => self.ledger.unreported += losses,
            }
        }
        self.sent = 0;
    }

    #[cfg(test)]
    pub(super) fn is_up(&self) -> bool {
        matches!(self.link, Link::Up(_))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Counts what still waits as lost: nobody will send it any more.
    pub(super) fn give_up(&mut self) {
        let events = self.lines.iter().filter(|line| line.losses.is_none()).count();
        self.ledger.lose(events as u64);
        self.lines.clear();
        self.bytes.clear();
        self.sent = 0;
    }
}

/// A Unix datagram socket: one datagram per event.
#[derive(Debug)]
pub(super) struct DatagramSocket {
    socket: Option<UnixDatagram>,
    line: Vec<u8>,
    ledger: Ledger,
}

impl DatagramSocket {
    pub(super) fn open(path: PathBuf) -> Self {
        let mut socket = DatagramSocket { socket: None, line: Vec::new(), ledger: Ledger::new(path, false) };
        socket.connect();
        socket
    }

    fn connect(&mut self) {
        let connected = UnixDatagram::unbound().and_then(|socket| {
            socket.connect(&self.ledger.path)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        match connected {
            Ok(socket) => self.socket = Some(socket),
            Err(error) => self.ledger.fail(&error),
        }
    }

    pub(super) fn write_event(&mut self, event: &[u8]) {
        if self.socket.is_none() {
            self.ledger.lose(1);
            return;
        }
        if let Some(line) = self.ledger.loss_line(event) {
            match self.send(&line) {
                Ok(()) => self.ledger.unreported = 0,
                Err(error) => return self.failed(&error),
            }
        }
        let mut line = core::mem::take(&mut self.line);
        line.clear();
        line.extend_from_slice(event);
        line.push(b'\n');
        match self.send(&line) {
            Ok(()) => {
                self.ledger.took(1);
                self.ledger.works();
            }
            Err(error) => self.failed(&error),
        }
        self.line = line;
    }

    fn send(&mut self, line: &[u8]) -> io::Result<()> {
        let Some(socket) = &self.socket else { return Err(ErrorKind::NotConnected.into()) };
        let sent = socket.send(line)?;
        self.ledger.counters.bytes += sent as u64;
        Ok(())
    }

    fn failed(&mut self, error: &io::Error) {
        self.ledger.fail(error);
        self.ledger.lose(1);
        // A slow reader or an event too large for a datagram leaves the connection as it is.
        let gone = [ErrorKind::ConnectionRefused, ErrorKind::ConnectionReset, ErrorKind::NotConnected];
        if gone.contains(&error.kind()) || error.kind() == ErrorKind::NotFound {
            self.socket = None;
        }
    }

    /// Datagrams are sent at once; a flush is the time to look for a reader that is back.
    pub(super) fn flush(&mut self) {
        if self.socket.is_none() {
            self.connect();
        }
    }

    pub(super) const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) const fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }
}
