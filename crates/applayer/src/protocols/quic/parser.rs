// SPDX-License-Identifier: Apache-2.0
//! The parser of a QUIC flow: packets of datagrams, until both hellos are known.

use super::frames::{FrameReader, QuicFrame};
use super::google::GoogleMessage;
use super::header::{PacketHeader, PacketKind, is_google};
use super::hello::{Fingerprints, QuicHello};
use super::keys::InitialKeys;
use super::stream::{Added, CryptoStream};
use super::tx::QuicTransaction;
use super::{CRYPTO_FRAG_TOO_LONG, ERROR_ON_DATA, FAILED_DECRYPT, FLOODED, MAX_HELD};
use crate::event::EventCode;
use crate::memory::allocated;
use crate::protocol::{Input, ParseContext, Parser, Progress};
use crate::transaction::{Transaction, TxId, TxList};
use crate::worklist::Worklist;
use bartizan_base::{Direction, PerDirection};

/// The state of a connection.
#[derive(Default)]
struct Connection {
    keys: Option<Box<InitialKeys>>,
    streams: PerDirection<CryptoStream>,
    /// The direction's hello is known.
    hello: PerDirection<bool>,
    /// The largest packet number of Initial packets.
    largest: PerDirection<Option<u64>>,
}

/// The parser of a QUIC flow.
pub(super) struct QuicParser {
    fingerprints: Fingerprints,
    connection: Connection,
    held: TxList<QuicTransaction>,
}

/// The result of a packet.
enum PacketStep {
    /// The next packet of the datagram follows.
    Next,
    /// The rest of the datagram is not of interest.
    Last,
    /// The packet is broken.
    Failed,
}

impl QuicParser {
    pub(super) fn new(fingerprints: Fingerprints) -> Self {
        QuicParser { fingerprints, connection: Connection::default(), held: TxList::default() }
    }

    fn push(&mut self, tx: QuicTransaction) {
        self.held.push(tx);
        if self.held.len() > MAX_HELD {
            let oldest = self.held.range().start;
            self.held.free(oldest);
            if let Some(newest) = self.held.last_mut() {
                newest.common_mut().events.set(FLOODED);
            }
        }
    }

    fn fail(&mut self, mut tx: QuicTransaction, event: EventCode) -> PacketStep {
        tx.common.events.set(event);
        self.push(tx);
        PacketStep::Failed
    }

    /// Parses a packet.
    fn packet(&mut self, direction: Direction, bytes: &[u8], header: &PacketHeader<'_>) -> PacketStep {
        let connection = &mut self.connection;
        if connection.hello[direction] || header.kind == PacketKind::Short {
            return PacketStep::Last;
        }
        let version = header.version.unwrap_or_default();
        if header.kind == PacketKind::Initial {
            if connection.keys.is_none() {
                connection.keys = InitialKeys::new(version, header.destination).map(Box::new);
            }
        } else if header.kind == PacketKind::Retry
            && direction == Direction::ToClient
            && connection.keys.is_some()
        {
            // The client repeats its hello, with keys of the new connection id.
            connection.keys = None;
            connection.hello.to_server = false;
        }
        let tx = QuicTransaction::new(direction, header.version);
        if header.kind != PacketKind::Initial {
            // Nothing but the version is readable.
            self.push(tx);
            return PacketStep::Next;
        }
        let decrypted;
        let frames = match &connection.keys {
            Some(keys) if !header.payload.is_empty() => {
                let end = header.length.saturating_add(header.payload.len());
                let packet = bytes.get(..end).unwrap_or(bytes);
                let largest = &mut connection.largest[direction];
                let Some(opened) = keys.open(direction, packet, header.length, *largest) else {
                    return self.fail(tx, FAILED_DECRYPT);
                };
                *largest = (*largest).max(Some(opened.number));
                decrypted = opened.frames;
                decrypted.as_slice()
            }
            _ => header.payload,
        };
        self.frames(tx, version, frames)
    }

    /// Parses the frames of an Initial packet.
    fn frames(&mut self, mut tx: QuicTransaction, version: u32, frames: &[u8]) -> PacketStep {
        let direction = tx.direction;
        let mut reader = FrameReader::new(frames, false);
        let mut crypto = false;
        for frame in reader.by_ref() {
            match frame {
                QuicFrame::Crypto { offset, data } => {
                    crypto = true;
                    if self.connection.streams[direction].add(offset, data) == Added::TooLong {
                        tx.common.events.set(CRYPTO_FRAG_TOO_LONG);
                    }
                }
                QuicFrame::Google(data) => google(&mut tx, version, data),
                QuicFrame::Other => {}
            }
        }
        if reader.broken {
            return self.fail(tx, ERROR_ON_DATA);
        }
        let mut fingerprints = self.fingerprints;
        fingerprints.ja4 &= direction == Direction::ToServer;
        if crypto && let Some((kind, body)) = self.connection.streams[direction].message() {
            let Some(hello) = QuicHello::read(kind, body, fingerprints) else {
                return self.fail(tx, ERROR_ON_DATA);
            };
            tx.hello = Some(Box::new(hello));
            self.connection.hello[direction] = true;
            self.connection.streams[direction].clear();
        }
        self.push(tx);
        PacketStep::Next
    }

    fn is_complete(&self) -> bool {
        self.connection.hello.to_server && self.connection.hello.to_client
    }
}

/// Reads a handshake message of Google's versions.
fn google(tx: &mut QuicTransaction, version: u32, data: &[u8]) {
    let Some(message) = GoogleMessage::read(data) else { return };
    if let Some(name) = message.server_name() {
        tx.server_name = Some(name.into());
    }
    if let Some(agent) = message.user_agent() {
        tx.user_agent = Some(agent.into());
    }
    if is_google(version) {
        tx.cyu.extend(message.cyu(version));
    }
}

impl Parser for QuicParser {
    fn parse(&mut self, direction: Direction, input: Input<'_>, _context: &mut ParseContext<'_>) -> Progress {
        let mut bytes = input.data;
        while !bytes.is_empty() {
            let Some(header) = PacketHeader::read(bytes, false) else { return Progress::Error };
            match self.packet(direction, bytes, &header) {
                PacketStep::Next => bytes = header.rest,
                PacketStep::Last => break,
                PacketStep::Failed => return Progress::Error,
            }
        }
        Progress::Done
    }

    fn gap(&mut self, _direction: Direction, _missing: u64, _context: &mut ParseContext<'_>) -> bool {
        // Datagrams have none.
        false
    }

    fn is_encrypted(&self) -> bool {
        self.is_complete()
    }

    fn tx_range(&self) -> core::ops::Range<TxId> {
        self.held.range()
    }

    fn tx(&self, id: TxId) -> Option<&dyn Transaction> {
        self.held.get(id).map(|tx| tx as &dyn Transaction)
    }

    fn tx_mut(&mut self, id: TxId) -> Option<&mut dyn Transaction> {
        self.held.mark_mut(id).map(|tx| tx as &mut dyn Transaction)
    }

    fn free_tx(&mut self, id: TxId) {
        self.held.free(id);
    }

    fn worklist(&self) -> &Worklist {
        self.held.worklist()
    }

    fn worklist_mut(&mut self) -> &mut Worklist {
        self.held.worklist_mut()
    }

    fn held(&mut self) -> usize {
        let keys = self.connection.keys.as_deref().map_or(0, |keys| allocated(size_of_val(keys)));
        let PerDirection { to_server, to_client } = &self.connection.streams;
        let streams = to_server.held().saturating_add(to_client.held());
        size_of::<Self>().saturating_add(keys).saturating_add(streams).saturating_add(self.held.held())
    }

    fn end(&mut self, _direction: Direction, _context: &mut ParseContext<'_>) {
        // Every transaction is complete from its beginning.
    }
}
