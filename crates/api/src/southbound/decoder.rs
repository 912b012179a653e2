// SPDX-License-Identifier: Apache-2.0
//! Decodes the messages of a connection, however its bytes are split.

use super::error::DecodeError;
use super::head::{FIRST_VERSION, HEAD, MessageHead};
use super::message::SouthboundMessage;

/// Decodes messages from bytes. Holds at most one incomplete message, and what came in one piece with it.
#[derive(Debug)]
pub struct MessageDecoder {
    version: u8,
    bytes: Vec<u8>,
    /// Number of bytes already decoded.
    done: usize,
    failed: Option<DecodeError>,
}

impl Default for MessageDecoder {
    fn default() -> Self {
        MessageDecoder { version: FIRST_VERSION, bytes: Vec::new(), done: 0, failed: None }
    }
}

impl MessageDecoder {
    /// Sets the version of all further messages.
    pub fn agree(&mut self, version: u8) {
        self.version = version;
    }

    /// Takes bytes of the connection. Take all messages before the next piece: the rest is held.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        self.bytes.drain(..self.done);
        self.done = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete message.
    ///
    /// # Errors
    /// A malformed message. All further calls return the same error: the connection has to end.
    pub fn next_message(&mut self) -> Result<Option<SouthboundMessage>, DecodeError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let read = self.read();
        if let Err(error) = &read {
            self.failed = Some(error.clone());
            self.bytes = Vec::new();
            self.done = 0;
        }
        read
    }

    fn read(&mut self) -> Result<Option<SouthboundMessage>, DecodeError> {
        let held = self.bytes.get(self.done..).unwrap_or_default();
        let Some((head, rest)) = held.split_first_chunk::<HEAD>() else { return Ok(None) };
        let head = MessageHead::read(*head, self.version)?;
        let Some(bytes) = rest.get(..head.length) else { return Ok(None) };
        let message = SouthboundMessage::decode(head, bytes)?;
        self.done += HEAD + head.length;
        Ok(Some(message))
    }

    /// Number of held bytes.
    #[must_use]
    pub fn held(&self) -> usize {
        self.bytes.len() - self.done
    }
}
