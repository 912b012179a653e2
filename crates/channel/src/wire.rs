// SPDX-License-Identifier: Apache-2.0
//! A non-blocking socket with TLS, driven by its poller.

use crate::ChannelError;
use crate::certificate::{Facts, facts};
use crate::tls::controller_name;
use mio::net::TcpStream;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use std::io::{self, Read, Write};
use std::sync::Arc;

/// Most bytes read in one turn, so that other connections get turns.
const TURN: usize = 256 << 10;

/// Most bytes that wait for the socket, beyond one message.
const WAITING: usize = 64 << 10;

/// Most bytes of messages that share one TLS record, which holds at most 16 KiB.
const TOGETHER: usize = 8 << 10;

/// A connection.
#[derive(Debug)]
pub struct Wire {
    /// The socket, to be registered with a poll for both directions.
    pub socket: TcpStream,
    tls: Connection,
}

/// The result of a turn of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireReadOutcome {
    /// All available data was read.
    Drained,
    /// More data may be available: read again without polling.
    More,
    /// The peer has closed the connection regularly.
    Ended,
}

impl Wire {
    /// The controller's side of an accepted connection.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn accepted(socket: TcpStream, config: Arc<ServerConfig>) -> Result<Self, ChannelError> {
        let tls = ServerConnection::new(config)
            .map_err(|error| ChannelError::Certificate(format!("the TLS handshake cannot begin: {error}")))?;
        Ok(Wire::of(socket, tls.into()))
    }

    /// The agent's side of a connection.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn dialled(socket: TcpStream, config: Arc<ClientConfig>) -> Result<Self, ChannelError> {
        let tls = ClientConnection::new(config, controller_name()?)
            .map_err(|error| ChannelError::Certificate(format!("the TLS handshake cannot begin: {error}")))?;
        Ok(Wire::of(socket, tls.into()))
    }

    fn of(socket: TcpStream, mut tls: Connection) -> Self {
        // Messages have any length; the caller checks `has_room` before writing.
        tls.set_buffer_limit(None);
        Wire { socket, tls }
    }

    /// Whether the handshake is in progress.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// The facts in the peer's certificate, if it presented one; call after the handshake.
    ///
    /// # Errors
    /// The certificate cannot be parsed.
    pub fn peer(&self) -> Result<Option<Facts>, ChannelError> {
        self.tls.peer_certificates().and_then(|chain| chain.first()).map(|first| facts(first)).transpose()
    }

    /// Appends available data to `bytes`.
    ///
    /// # Errors
    /// The connection is lost, or the peer's TLS is refused; an alert is sent if possible.
    pub fn read(&mut self, bytes: &mut Vec<u8>) -> io::Result<WireReadOutcome> {
        let mut read = 0;
        while read < TURN {
            match self.tls.read_tls(&mut self.socket) {
                Ok(0) => return Ok(WireReadOutcome::Ended),
                Ok(number) => read += number,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(WireReadOutcome::Drained);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            let state = self.tls.process_new_packets().map_err(|error| {
                // Sends the alert with the error.
                let _ = self.tls.write_tls(&mut self.socket);
                io::Error::new(io::ErrorKind::InvalidData, error)
            })?;
            let plain = state.plaintext_bytes_to_read();
            if plain > 0 {
                let at = bytes.len();
                bytes.resize(at + plain, 0);
                self.tls.reader().read_exact(bytes.get_mut(at..).unwrap_or_default())?;
            }
            if state.peer_has_closed() {
                return Ok(WireReadOutcome::Ended);
            }
        }
        Ok(WireReadOutcome::More)
    }

    /// Whether there is room for another message.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.tls.is_handshaking() && !self.tls.wants_write()
    }

    /// Takes bytes to send with [`Wire::flush`].
    ///
    /// # Errors
    /// TLS refuses them.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(WAITING) {
            self.tls.writer().write_all(piece)?;
        }
        Ok(())
    }

    /// Writes pending data while the socket has room. Returns whether all was written.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn flush(&mut self) -> io::Result<bool> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Writes messages one by one while the socket has room; short ones that are available together share a
    /// record. Returns whether all were written.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn send(&mut self, mut next: impl FnMut() -> Option<Vec<u8>>) -> io::Result<bool> {
        let mut all = self.flush()?;
        while all && self.has_room() {
            let Some(mut bytes) = next() else { break };
            while bytes.len() < TOGETHER
                && let Some(more) = next()
            {
                bytes.extend_from_slice(&more);
            }
            self.write(&bytes)?;
            all = self.flush()?;
        }
        Ok(all)
    }

    /// Sends a close notification, and closes.
    pub fn close(mut self) {
        self.tls.send_close_notify();
        let _ = self.flush();
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
    }
}
