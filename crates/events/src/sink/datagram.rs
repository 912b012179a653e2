// SPDX-License-Identifier: Apache-2.0
//! A Unix datagram socket: one datagram per event. Without patience a datagram that does not fit is lost.

use super::ledger::Ledger;
use super::patience::{Patience, until_writable};
use super::stream::RETRY;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

/// A Unix datagram socket.
#[derive(Debug)]
pub(super) struct DatagramSocket {
    socket: Option<UnixDatagram>,
    line: Vec<u8>,
    ledger: Ledger,
}

impl DatagramSocket {
    pub(super) fn open(path: PathBuf) -> Self {
        let mut socket = DatagramSocket { socket: None, line: Vec::new(), ledger: Ledger::new(path, false) };
        if let Err(error) = socket.connect() {
            socket.ledger.fail(&error);
        }
        socket
    }

    pub(super) fn wait_for_reader(&mut self, patience: Patience) {
        self.ledger.wait_for_reader(patience);
    }

    fn connect(&mut self) -> io::Result<()> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(&self.ledger.path)?;
        socket.set_nonblocking(true)?;
        self.socket = Some(socket);
        Ok(())
    }

    pub(super) fn write_event(&mut self, event: &[u8]) {
        let mut line = core::mem::take(&mut self.line);
        line.clear();
        line.extend_from_slice(event);
        line.push(b'\n');
        match self.deliver(event, &line) {
            Ok(()) => {
                self.ledger.count_written(1);
                self.ledger.works();
            }
            Err(error) => {
                self.ledger.fail(&error);
                self.ledger.lose(1, event);
            }
        }
        self.line = line;
    }

    /// Sends an event, after the record of earlier losses; waits for the reader as long as patience lasts.
    fn deliver(&mut self, event: &[u8], line: &[u8]) -> io::Result<()> {
        loop {
            let sent = match self.socket {
                Some(_) => self.report_losses(event).and_then(|()| self.send(line)),
                None => Err(ErrorKind::NotConnected.into()),
            };
            let Err(error) = sent else {
                self.ledger.wait.note_progress();
                return Ok(());
            };
            let absent = is_absence(&error);
            if absent {
                self.socket = None;
            } else if error.kind() != ErrorKind::WouldBlock {
                // An event too large for a datagram, or a failure of the system: waiting does not help.
                return Err(error);
            }
            let Some(most) = self.ledger.wait.next(absent) else { return Err(error) };
            match &self.socket {
                Some(socket) => until_writable(socket, most),
                None => {
                    std::thread::sleep(most.min(RETRY));
                    // The next attempt reports why there is no reader.
                    let _ = self.connect();
                }
            }
        }
    }

    fn report_losses(&mut self, next: &[u8]) -> io::Result<()> {
        let Some(line) = self.ledger.loss_line(next) else { return Ok(()) };
        self.send(&line)?;
        self.ledger.unreported = 0;
        Ok(())
    }

    fn send(&mut self, line: &[u8]) -> io::Result<()> {
        let Some(socket) = &self.socket else { return Err(ErrorKind::NotConnected.into()) };
        let sent = socket.send(line)?;
        self.ledger.counters.bytes += sent as u64;
        Ok(())
    }

    /// Connects to a reader that has come back. Datagrams are sent at once, so there is nothing else to
    /// flush.
    pub(super) fn flush(&mut self) {
        if self.socket.is_none()
            && let Err(error) = self.connect()
        {
            self.ledger.fail(&error);
        }
    }

    /// Reports losses at the end, without an event after them, if the reader takes a datagram now.
    pub(super) fn finish(&mut self) {
        // If the reader does not, the losses stay counted.
        let _ = self.report_losses(b"");
    }

    pub(super) const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) const fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }
}

/// Whether an error means that no program has the socket open. A slow reader leaves the connection unchanged.
fn is_absence(error: &io::Error) -> bool {
    let gone = [
        ErrorKind::ConnectionRefused,
        ErrorKind::ConnectionReset,
        ErrorKind::NotConnected,
        ErrorKind::NotFound,
        ErrorKind::BrokenPipe,
    ];
    gone.contains(&error.kind())
}
