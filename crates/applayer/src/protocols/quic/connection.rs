// SPDX-License-Identifier: Apache-2.0
//! The state of a connection: keys and handshake bytes of its Initial packets.

use super::events::{CRYPTO_DATA_CHANGED, CRYPTO_FRAG_TOO_LONG};
use super::frames::{FrameReader, QuicFrame};
use super::google::GoogleMessage;
use super::header::{PacketHeader, is_google};
use super::keys::{InitialKeys, is_retry_of};
use super::stream::{Added, CryptoStream};
use super::tx::QuicTransaction;
use crate::memory::allocated;
use bartizan_base::{Direction, PerDirection};

/// The state of a connection.
#[derive(Default)]
pub(super) struct QuicConnection {
    pub(super) keys: Option<Box<InitialKeys>>,
    pub(super) streams: PerDirection<CryptoStream>,
    /// The direction's hello is known.
    pub(super) hello: PerDirection<bool>,
    /// The server's last hello requests another one of the client (RFC 8446 section 4.1.4).
    pub(super) asked_again: bool,
    /// The largest packet number of Initial packets.
    largest: PerDirection<Option<u64>>,
    /// A Retry packet came. A client accepts one (RFC 9000 section 17.2.5.2).
    retried: bool,
    /// The connection id of the client's first packet.
    first_id: Box<[u8]>,
}

/// The result of reading frames.
pub(super) struct FramesRead {
    /// A frame could not be read.
    pub(super) broken: bool,
    /// Whether all handshake bytes were added.
    pub(super) added: Added,
}

impl QuicConnection {
    /// A connection that a client's packet to this connection id begins. `None`: the version's keys are not
    /// known.
    pub(super) fn new(version: u32, destination: &[u8]) -> Option<Self> {
        let keys = InitialKeys::new(version, destination)?;
        Some(QuicConnection {
            keys: Some(Box::new(keys)),
            first_id: destination.into(),
            ..QuicConnection::default()
        })
    }

    /// Bytes of memory held outside of the structure itself.
    pub(super) fn held(&self) -> usize {
        let keys = self.keys.as_deref().map_or(0, |keys| allocated(size_of_val(keys)));
        let PerDirection { to_server, to_client } = &self.streams;
        let keys = keys.saturating_add(allocated(self.first_id.len()));
        keys.saturating_add(to_server.held()).saturating_add(to_client.held())
    }

    /// Whether both hellos are known, so that nothing readable follows.
    pub(super) fn is_complete(&self) -> bool {
        self.hello.to_server && self.hello.to_client && !self.asked_again
    }

    /// Whether the client's hello of this connection no longer matters: the server has read it, or has asked
    /// for it in another connection.
    pub(super) fn is_answered(&self) -> bool {
        self.is_complete() || self.retried
    }

    /// Notes a Retry packet that answers this connection.
    pub(super) fn note_retry(&mut self, version: u32, packet: &[u8]) {
        if !self.is_answered() {
            self.retried = is_retry_of(version, packet, &self.first_id);
        }
    }

    /// Handles a Retry packet: the client repeats its hello, with keys of the new connection id.
    pub(super) fn retry(&mut self) {
        if self.keys.is_some() && !self.retried {
            self.keys = None;
            self.retried = true;
            self.hello.to_server = false;
        }
    }

    /// Decrypts an Initial packet at the front of `bytes`; its frames.
    pub(super) fn open(
        &mut self,
        direction: Direction,
        bytes: &[u8],
        header: &PacketHeader<'_>,
    ) -> Option<Vec<u8>> {
        let packet = bytes.get(..header.length.checked_add(header.payload.len())?)?;
        let largest = &mut self.largest[direction];
        let opened = self.keys.as_deref()?.open(direction, packet, header.length, *largest)?;
        *largest = (*largest).max(Some(opened.number));
        Some(opened.frames)
    }

    /// Reads the frames of a packet.
    pub(super) fn read(&mut self, tx: &mut QuicTransaction, mut frames: FrameReader<'_>) -> FramesRead {
        let mut added = Added::Yes;
        for frame in frames.by_ref() {
            match frame {
                QuicFrame::Crypto { offset, data } => {
                    let now = self.streams[tx.direction].add(offset, data);
                    match now {
                        Added::Yes => continue,
                        Added::TooLong => tx.common.events.set(CRYPTO_FRAG_TOO_LONG),
                        Added::Contradiction => tx.common.events.set(CRYPTO_DATA_CHANGED),
                    }
                    added = now;
                }
                QuicFrame::Google(data) => google(tx, data),
                QuicFrame::Other => {}
            }
        }
        FramesRead { broken: frames.broken, added }
    }
}

/// Reads a handshake message of Google's versions.
fn google(tx: &mut QuicTransaction, data: &[u8]) {
    let version = tx.version.unwrap_or_default();
    let Some(message) = GoogleMessage::read(data) else { return };
    let names = message.names();
    if let Some(name) = names.server {
        tx.server_name = Some(name.into());
    }
    if let Some(agent) = names.agent {
        tx.user_agent = Some(agent.into());
    }
    if is_google(version) {
        tx.cyu.extend(message.cyu(version));
    }
}
