// SPDX-License-Identifier: Apache-2.0
//! Streams that another program reads: Unix stream sockets, pipes, and standard output if it is one of these
//! or a terminal.
//!
//! Without [`Patience`] nothing here waits for that program: a stream holds a limited number of bytes back,
//! and a thread of its own connects to a socket (a full backlog would block the writer).

use super::channel::{Address, Channel};
use super::ledger::Ledger;
use super::lines::BUFFER_BYTES;
use super::patience::{Patience, until_writable};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::Duration;

/// Limit of bytes that a stream holds back for a slow reader.
pub(crate) const HELD_BYTES: usize = 1 << 20;
/// Longest wait for a connection when an output opens; connecting continues after it.
const FIRST_CONNECT: Duration = Duration::from_millis(200);
/// Limit of flushes between two attempts to connect.
const MAX_PAUSE: u32 = 64;
/// Interval of attempts to connect during the wait for an absent reader.
pub(super) const RETRY: Duration = Duration::from_millis(20);

/// A stream's connection: connected, in progress, or none.
#[derive(Debug)]
enum StreamConnection {
    Down {
        pause: u32,
        next_pause: u32,
    },
    Connecting {
        answer: Receiver<io::Result<Channel>>,
        next_pause: u32,
    },
    Up(Channel),
    /// The reader is gone and cannot come back: standard output.
    Gone,
}

impl StreamConnection {
    fn connect(address: Address, next_pause: u32) -> Self {
        let (sender, answer) = channel();
        // The send fails if the sink has been dropped meanwhile.
        let connect = move || _ = sender.send(address.connect());
        match std::thread::Builder::new().name("eve-connect".to_owned()).spawn(connect) {
            Ok(_) => StreamConnection::Connecting { answer, next_pause },
            Err(_) => StreamConnection::down(next_pause),
        }
    }

    fn down(pause: u32) -> Self {
        StreamConnection::Down { pause, next_pause: (pause * 2).clamp(1, MAX_PAUSE) }
    }
}

/// A held-back line of a stream.
#[derive(Clone, Copy, Debug)]
struct StreamLine {
    length: usize,
    /// Losses that the line reports; `None` for an event.
    losses: Option<u64>,
}

/// An output to a stream; see the module.
#[derive(Debug)]
pub(super) struct Stream {
    address: Address,
    link: StreamConnection,
    /// The held-back lines, without gaps.
    bytes: Vec<u8>,
    lines: VecDeque<StreamLine>,
    /// Bytes of the first line that the reader already has.
    sent: usize,
    /// The reason why there is no reader.
    absence: Option<io::Error>,
    ledger: Ledger,
}

impl Stream {
    /// Opens a socket. A socket without a listener is no error.
    pub(super) fn open(path: PathBuf) -> Self {
        let address = Address::Socket(path.clone());
        let mut stream =
            Stream::new(address.clone(), StreamConnection::connect(address, 1), Ledger::new(path, false));
        if let StreamConnection::Connecting { answer, .. } = &stream.link {
            match answer.recv_timeout(FIRST_CONNECT) {
                Ok(result) => stream.connected(result, 1),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => stream.link = StreamConnection::down(1),
            }
        }
        stream
    }

    /// A stream over an open channel; `address`: the place where another reader may be found.
    pub(super) fn of(path: PathBuf, address: Address, channel: Channel) -> Self {
        Stream::new(address, StreamConnection::Up(channel), Ledger::new(path, true))
    }

    fn new(address: Address, link: StreamConnection, ledger: Ledger) -> Self {
        let (bytes, lines) = (Vec::new(), VecDeque::new());
        Stream { address, link, bytes, lines, sent: 0, absence: None, ledger }
    }

    pub(super) fn wait_for_reader(&mut self, patience: Patience) {
        self.ledger.wait_for_reader(patience);
    }

    pub(super) fn write_event(&mut self, event: &[u8]) {
        self.reopen_if_asked();
        if !self.has_room(event.len()) {
            self.flush();
        }
        if !self.has_room(event.len()) {
            self.fail();
            self.ledger.lose(1, event);
            return;
        }
        if matches!(self.link, StreamConnection::Up(_)) {
            self.report_losses(event);
        }
        self.bytes.extend_from_slice(event);
        self.bytes.push(b'\n');
        self.lines.push_back(StreamLine { length: event.len() + 1, losses: None });
        if self.bytes.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    /// Whether an event of this size can be held back. An event above the limit is held alone.
    fn has_room(&self, bytes: usize) -> bool {
        self.bytes.is_empty() || self.bytes.len() + bytes < HELD_BYTES
    }

    /// Adds the record of losses before the event `next` to the held-back lines.
    fn report_losses(&mut self, next: &[u8]) {
        if let Some(line) = self.ledger.loss_line(next) {
            self.bytes.extend_from_slice(&line);
            self.lines.push_back(StreamLine { length: line.len(), losses: Some(self.ledger.unreported) });
            self.ledger.unreported = 0;
        }
    }

    /// Records why the reader takes nothing.
    fn fail(&mut self) {
        let slow = ErrorKind::WouldBlock.into();
        self.ledger.fail(self.absence.as_ref().unwrap_or(&slow));
    }

    /// Writes held-back lines: as much as the reader takes at once, and with patience as much as it takes
    /// while that lasts.
    pub(super) fn flush(&mut self) {
        self.reopen_if_asked();
        loop {
            self.advance_link();
            self.write_out();
            if self.bytes.is_empty() || !self.wait() {
                return;
            }
        }
    }

    fn reopen_if_asked(&mut self) {
        if self.ledger.watch.reopen_asked() {
            self.reopen();
        }
    }

    /// Opens a pipe again under its name. No effect on sockets.
    pub(super) fn reopen(&mut self) {
        // In the middle of a line another reader would get its rest.
        if self.sent > 0 || !self.address.is_reopened() {
            return;
        }
        match self.address.connect() {
            Ok(channel) => self.link = StreamConnection::Up(channel),
            Err(error) => self.ledger.fail_to_put_aside(&error),
        }
    }

    /// Waits for the reader. Returns `false` if the wait is given up for now.
    fn wait(&mut self) -> bool {
        if matches!(self.link, StreamConnection::Gone) {
            return false;
        }
        let Some(most) = self.ledger.wait.next(!matches!(self.link, StreamConnection::Up(_))) else {
            return false;
        };
        match &self.link {
            StreamConnection::Up(channel) => until_writable(channel, most),
            _ => std::thread::sleep(most.min(RETRY)),
        }
        true
    }

    /// Writes as much as the reader takes now.
    fn write_out(&mut self) {
        let StreamConnection::Up(channel) = &mut self.link else { return };
        let mut taken = 0usize;
        let error = loop {
            let rest = self.bytes.get(taken..).unwrap_or_default();
            if rest.is_empty() {
                break None;
            }
            match channel.write(rest) {
                Ok(0) => break Some(ErrorKind::BrokenPipe.into()),
                Ok(some) => taken += some.min(rest.len()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break None,
                Err(error) => break Some(error),
            }
        };
        self.forget(taken);
        if let Some(error) = error {
            self.disconnect(error);
        }
    }

    /// Removes bytes that the reader has, and counts the events that are complete with them.
    fn forget(&mut self, taken: usize) {
        self.bytes.drain(..taken);
        self.ledger.counters.bytes += taken as u64;
        if taken > 0 {
            self.ledger.wait.note_progress();
        }
        // Only when the reader has caught up, so that a reader that is always nearly too slow is reported
        // once.
        if taken > 0 && self.bytes.is_empty() {
            self.ledger.works();
        }
        self.sent += taken;
        while let Some(first) = self.lines.front().copied()
            && self.sent >= first.length
        {
            self.sent -= first.length;
            self.lines.pop_front();
            self.ledger.count_written(u64::from(first.losses.is_none()));
        }
    }

    pub(super) const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) const fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// Advances a connection that is not established.
    fn advance_link(&mut self) {
        match &mut self.link {
            StreamConnection::Up(_) | StreamConnection::Gone => {}
            StreamConnection::Down { pause, next_pause } => {
                *pause = pause.saturating_sub(1);
                if *pause == 0 {
                    let next_pause = *next_pause;
                    self.link = StreamConnection::connect(self.address.clone(), next_pause);
                }
            }
            StreamConnection::Connecting { answer, next_pause } => {
                let next_pause = *next_pause;
                match answer.try_recv() {
                    Ok(result) => self.connected(result, next_pause),
                    Err(TryRecvError::Empty) => {}
                    Err(TryRecvError::Disconnected) => self.link = StreamConnection::down(next_pause),
                }
            }
        }
    }

    fn connected(&mut self, result: io::Result<Channel>, next_pause: u32) {
        match result {
            Ok(channel) => {
                self.absence = None;
                self.link = StreamConnection::Up(channel);
            }
            Err(error) => {
                self.link = StreamConnection::down(next_pause);
                self.absent(error);
            }
        }
    }

    /// Records that there is no reader. If the output waits for the reader, this is reported only when the
    /// wait is given up.
    fn absent(&mut self, error: io::Error) {
        if self.ledger.wait.next(true).is_none() {
            self.ledger.fail(&error);
        }
        self.absence = Some(error);
    }

    /// Handles a reader that has gone. A line that it has in part is lost; whole lines are held for the next
    /// reader.
    fn disconnect(&mut self, error: io::Error) {
        self.link =
            if self.address.is_found_again() { StreamConnection::down(1) } else { StreamConnection::Gone };
        if self.sent > 0 {
            self.ledger.fail(&error);
            self.lose_torn();
        }
        self.absent(error);
    }

    /// Counts the line that the reader has in part as lost.
    fn lose_torn(&mut self) {
        let sent = core::mem::take(&mut self.sent);
        let Some(torn) = self.lines.pop_front() else { return };
        let rest = torn.length.saturating_sub(sent).min(self.bytes.len());
        self.bytes.drain(..rest);
        match torn.losses {
            None => self.ledger.lose(1, b""),
            Some(losses) => self.ledger.unreported += losses,
        }
    }

    #[cfg(test)]
    pub(super) fn is_up(&self) -> bool {
        matches!(self.link, StreamConnection::Up(_))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Counts the held-back events as lost, and reports this to the reader if it takes a line now.
    pub(super) fn finish(&mut self) {
        if !self.bytes.is_empty() {
            self.fail();
            self.drop_held();
        }
        if matches!(self.link, StreamConnection::Up(_)) {
            self.report_losses(b"");
            self.write_out();
            self.drop_held();
        }
    }

    /// Counts the held-back events as lost.
    fn drop_held(&mut self) {
        if self.sent > 0 {
            self.lose_torn();
            // The rest of that line never comes, so no other line may follow it on this connection.
            self.link = if self.address.is_found_again() {
                StreamConnection::down(1)
            } else {
                StreamConnection::Gone
            };
        }
        let mut events = 0;
        for line in self.lines.drain(..) {
            match line.losses {
                None => events += 1,
                Some(losses) => self.ledger.unreported += losses,
            }
        }
        if events > 0 {
            let first = core::mem::take(&mut self.bytes);
            self.ledger.lose(events, &first);
        }
        self.bytes.clear();
    }
}
