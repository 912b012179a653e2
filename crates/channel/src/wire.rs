// SPDX-License-Identifier: Apache-2.0
//! A socket with its TLS, which never blocks: whoever polls it moves it on.

use crate::ChannelError;
use crate::certificate::{Facts, facts};
use crate::tls::controller_name;
use mio::net::TcpStream;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use std::io::{self, Read, Write};
use std::sync::Arc;

/// Bytes that one turn reads at most: others have their turn too.
const TURN: usize = 256 << 10;

/// Bytes that wait for the socket at most, beyond one message.
const WAITING: usize = 64 << 10;

/// Bytes of messages that travel together, in one record of TLS, which takes no more than 16 KiB.
const TOGETHER: usize = 8 << 10;

/// A connection.
#[derive(Debug)]
pub struct Wire {
    /// The socket, to be registered with a poll for both directions.
    pub socket: TcpStream,
    tls: Connection,
}

/// What a turn of reading came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// All that was there has been read.
    Drained,
    /// There is more: come again without waiting.
    More,
    /// The peer has ended, in order.
    Ended,
}

impl Wire {
    /// The controller's side of a connection that came.
    ///
    /// # Errors
    /// TLS cannot begin.
    pub fn accepted(socket: TcpStream, config: Arc<ServerConfig>) -> Result<Self, ChannelError> {
        let tls = ServerConnection::new(config)
            .map_err(|error| ChannelError::Certificate(format!("TLS cannot begin: {error}")))?;
        Ok(Wire::of(socket, tls.into()))
    }

    /// The agent's side of a connection.
    ///
    /// # Errors
    /// TLS cannot begin.
    pub fn dialled(socket: TcpStream, config: Arc<ClientConfig>) -> Result<Self, ChannelError> {
        let tls = ClientConnection::new(config, controller_name()?)
            .map_err(|error| ChannelError::Certificate(format!("TLS cannot begin: {error}")))?;
        Ok(Wire::of(socket, tls.into()))
    }

    fn of(socket: TcpStream, mut tls: Connection) -> Self {
        // A message is as long as it is; who fills this asks `has_room` first.
        tls.set_buffer_limit(None);
        Wire { socket, tls }
    }

    /// Whether the handshake is still under way.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// What the peer's certificate says, if it showed one; behind the handshake.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn peer(&self) -> Result<Option<Facts>, ChannelError> {
        self.tls.peer_certificates().and_then(|chain| chain.first()).map(|first| facts(first)).transpose()
    }

    /// Reads what is there, behind `bytes`.
    ///
    /// # Errors
    /// The connection is lost, or the peer's TLS is not taken: what was wrong is told to it if it can be.
    pub fn read(&mut self, bytes: &mut Vec<u8>) -> io::Result<Turn> {
        let mut read = 0;
        while read < TURN {
            match self.tls.read_tls(&mut self.socket) {
                Ok(0) => return Ok(Turn::Ended),
                Ok(number) => read += number,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Turn::Drained),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            let state = self.tls.process_new_packets().map_err(|error| {
                // The alert that says what was wrong.
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
                return Ok(Turn::Ended);
            }
        }
        Ok(Turn::More)
    }

    /// Whether there is room for another message.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.tls.is_handshaking() && !self.tls.wants_write()
    }

    /// Takes bytes, to be sent with [`Wire::flush`].
    ///
    /// # Errors
    /// TLS does not take them.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(WAITING) {
            self.tls.writer().write_all(piece)?;
        }
        Ok(())
    }

    /// Hands what waits to the socket, as far as it takes it. Whether all of it went.
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

    /// Hands messages to the socket one by one while it has room; short ones that are there at the same time
    /// travel together. Whether all went.
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

    /// Says that nothing more comes, and closes.
    pub fn close(mut self) {
        self.tls.send_close_notify();
        let _ = self.flush();
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
    }
}
