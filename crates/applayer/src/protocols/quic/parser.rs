// SPDX-License-Identifier: Apache-2.0
//! The parser of a QUIC flow: packets of datagrams, until the hellos are known.
//!
//! Passively a flow is one connection whose packets are read as Suricata reads them. In prevention the client
//! may begin further connections between the same ports, and a datagram may not reach its receiver: each
//! connection is known by its keys, and a packet that changes handshake bytes of an earlier one is refused.

use super::connection::QuicConnection;
use super::events::{ERROR_ON_DATA, FAILED_DECRYPT, FLOODED};
use super::frames::FrameReader;
use super::header::{PacketHeader, PacketKind, is_protected};
use super::hello::{Fingerprints, QuicHello, is_retry_request};
use super::keys::{InitialKeys, has_keys};
use super::limits::{MAX_CONNECTIONS, MAX_HELD};
use super::stream::Added;
use super::tx::QuicTransaction;
use crate::event::EventCode;
use crate::memory::Held as _;
use crate::protocol::{Input, ParseContext, Parser, Progress};
use crate::transaction::{Transaction, TxList, listed_transactions};
use bartizan_base::{Direction, PerDirection};

/// The parser of a QUIC flow.
pub(super) struct QuicParser {
    fingerprints: Fingerprints,
    /// Connections in the order of their beginning. Passively there is one, as in Suricata.
    connections: Vec<QuicConnection>,
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
    /// Prevention cannot know what the receiver reads.
    Refused,
}

/// The result of decrypting a packet.
enum Opened {
    /// The position of its connection, and its frames.
    Frames(usize, Vec<u8>),
    /// It belongs to no connection.
    Unreadable,
    /// It begins a connection, and too many others have no answer.
    Full,
}

impl QuicParser {
    pub(super) fn new(fingerprints: Fingerprints) -> Self {
        QuicParser { fingerprints, connections: Vec::new(), held: TxList::default() }
    }

    /// Passively: adds a transaction, and lets go of the oldest if there are too many.
    fn push(&mut self, tx: QuicTransaction) {
        self.held.push(tx);
        if self.held.len() > MAX_HELD {
            let oldest = self.held.range().start;
            self.held.free(oldest);
            self.raise(FLOODED);
        }
    }

    /// In prevention: adds a transaction. One without a hello is left out if there are too many: none that
    /// rules have not seen goes. `false`: there are too many for a hello.
    fn push_inline(&mut self, tx: QuicTransaction) -> bool {
        let is_full = self.held.len() >= MAX_HELD;
        let is_refused = is_full && tx.hello.is_some();
        if is_full {
            self.raise(FLOODED);
        } else {
            self.held.push(tx);
        }
        !is_refused
    }

    /// Raises an event of the newest transaction.
    fn raise(&mut self, event: EventCode) {
        if let Some(newest) = self.held.last_mut() {
            newest.common_mut().events.set(event);
        }
    }

    fn fail(&mut self, mut tx: QuicTransaction, event: EventCode) -> PacketStep {
        tx.common.events.set(event);
        self.push(tx);
        PacketStep::Failed
    }

    /// Whether a direction's hello is known.
    fn has_hello(&self, direction: Direction) -> bool {
        self.connections.iter().any(|connection| connection.hello[direction])
    }

    /// Parses a packet as Suricata does.
    fn packet(&mut self, direction: Direction, bytes: &[u8], header: &PacketHeader<'_>) -> PacketStep {
        if self.has_hello(direction) || header.kind == PacketKind::Short {
            return PacketStep::Last;
        }
        if self.connections.is_empty() {
            self.connections.push(QuicConnection::default());
        }
        let Some(connection) = self.connections.first_mut() else { return PacketStep::Last };
        let version = header.version.unwrap_or_default();
        if header.kind == PacketKind::Initial {
            if connection.keys.is_none() {
                connection.keys = InitialKeys::new(version, header.destination).map(Box::new);
            }
        } else if header.kind == PacketKind::Retry && direction == Direction::ToClient {
            connection.retry();
        }
        let mut tx = QuicTransaction::new(direction, header.version);
        if header.kind != PacketKind::Initial {
            // Nothing but the version is readable.
            self.push(tx);
            return PacketStep::Next;
        }
        let decrypted;
        let frames = if connection.keys.is_some() && !header.payload.is_empty() {
            let Some(frames) = connection.open(direction, bytes, header) else {
                return self.fail(tx, FAILED_DECRYPT);
            };
            decrypted = frames;
            decrypted.as_slice()
        } else {
            header.payload
        };
        let read = connection.read(&mut tx, FrameReader::new(frames, false));
        if read.broken {
            return self.fail(tx, ERROR_ON_DATA);
        }
        if let Some((kind, body)) = connection.streams[direction].message() {
            let Some(hello) = hello(self.fingerprints, direction, kind, body) else {
                return self.fail(tx, ERROR_ON_DATA);
            };
            tx.hello = Some(hello);
            connection.hello[direction] = true;
            connection.streams[direction].clear();
        }
        self.push(tx);
        PacketStep::Next
    }

    /// Parses a packet as its receiver does, whichever of the packets before it the receiver got.
    fn packet_inline(&mut self, direction: Direction, bytes: &[u8], header: &PacketHeader<'_>) -> PacketStep {
        let mut tx = QuicTransaction::new(direction, header.version);
        let version = header.version.unwrap_or_default();
        if header.kind == PacketKind::Short {
            return PacketStep::Last;
        }
        if header.kind != PacketKind::Initial {
            if header.kind == PacketKind::Retry && direction == Direction::ToClient {
                self.connections.iter_mut().for_each(|connection| connection.note_retry(version, bytes));
            }
            if !self.has_hello(direction) {
                self.push_inline(tx);
            }
            return PacketStep::Next;
        }
        if !has_keys(version) {
            if QuicConnection::default().read(&mut tx, FrameReader::new(header.payload, false)).broken {
                tx.common.events.set(ERROR_ON_DATA);
            }
            self.push_inline(tx);
            return PacketStep::Next;
        }
        let (index, frames) = match self.open(direction, bytes, header) {
            Opened::Frames(index, frames) => (index, frames),
            Opened::Unreadable => {
                // A receiver discards the packet and reads the next one.
                tx.common.events.set(FAILED_DECRYPT);
                self.push_inline(tx);
                return PacketStep::Next;
            }
            Opened::Full => {
                tx.common.events.set(FLOODED);
                self.push_inline(tx);
                return PacketStep::Refused;
            }
        };
        let fingerprints = self.fingerprints;
        let Some(connection) = self.connections.get_mut(index) else { return PacketStep::Next };
        if connection.is_complete() {
            return PacketStep::Next;
        }
        let read = connection.read(&mut tx, FrameReader::new(&frames, true));
        if read.added != Added::Yes {
            self.push_inline(tx);
            return PacketStep::Refused;
        }
        let mut is_shown = connection.hello[direction];
        let mut shown = Vec::new();
        while let Some((kind, body)) = connection.streams[direction].next_message() {
            let mut tx = QuicTransaction::new(direction, header.version);
            tx.hello = hello(fingerprints, direction, kind, body);
            if tx.hello.is_none() {
                tx.common.events.set(ERROR_ON_DATA);
            } else {
                connection.hello[direction] = true;
                connection.asked_again = direction == Direction::ToClient && is_retry_request(body);
            }
            shown.push(tx);
        }
        if connection.is_complete() {
            // The server has read all of the client's hello.
            connection.streams = PerDirection::default();
        }
        if read.broken {
            tx.common.events.set(ERROR_ON_DATA);
            is_shown = false;
        } else if !shown.is_empty() {
            is_shown = true;
        }
        let mut is_kept = true;
        for tx in shown {
            is_kept &= self.push_inline(tx);
        }
        if !is_shown {
            self.push_inline(tx);
        }
        if is_kept { PacketStep::Next } else { PacketStep::Refused }
    }

    /// Decrypts a packet with the keys of a known connection, or of a new one that the packet begins.
    fn open(&mut self, direction: Direction, bytes: &[u8], header: &PacketHeader<'_>) -> Opened {
        for (index, connection) in self.connections.iter_mut().enumerate().rev() {
            if let Some(frames) = connection.open(direction, bytes, header) {
                return Opened::Frames(index, frames);
            }
        }
        let version = header.version.filter(|_| direction == Direction::ToServer);
        let Some(mut connection) =
            version.and_then(|version| QuicConnection::new(version, header.destination))
        else {
            return Opened::Unreadable;
        };
        let Some(frames) = connection.open(direction, bytes, header) else { return Opened::Unreadable };
        if self.connections.len() >= MAX_CONNECTIONS {
            let Some(answered) = self.connections.iter().position(QuicConnection::is_answered) else {
                return Opened::Full;
            };
            self.connections.remove(answered);
        }
        self.connections.push(connection);
        Opened::Frames(self.connections.len().saturating_sub(1), frames)
    }

    /// Whether nothing but encrypted packets follows.
    fn is_complete(&self) -> bool {
        self.connections.iter().any(QuicConnection::is_complete)
            && self.connections.iter().all(QuicConnection::is_answered)
    }
}

/// Reads a handshake message. Server hellos have no JA4, nor have client hellos that a server sends.
fn hello(
    mut fingerprints: Fingerprints,
    direction: Direction,
    kind: u8,
    body: &[u8],
) -> Option<Box<QuicHello>> {
    fingerprints.ja4 &= direction == Direction::ToServer;
    QuicHello::read(kind, body, fingerprints).map(Box::new)
}

impl Parser for QuicParser {
    fn parse(&mut self, direction: Direction, input: Input<'_>, context: &mut ParseContext<'_>) -> Progress {
        let prevents = context.prevents;
        if let [first, ..] = input.data
            && prevents
            && is_protected(*first)
        {
            return Progress::Done;
        }
        let mut bytes = input.data;
        while !bytes.is_empty() {
            let Some(header) = PacketHeader::read(bytes, prevents) else { return Progress::Error };
            let step = if prevents {
                self.packet_inline(direction, bytes, &header)
            } else {
                self.packet(direction, bytes, &header)
            };
            match step {
                PacketStep::Next => bytes = header.rest,
                PacketStep::Last => break,
                PacketStep::Failed => return Progress::Error,
                PacketStep::Refused => return Progress::Refuse,
            }
        }
        // A new connection may follow: prevention reads on.
        if !prevents && self.is_complete() { Progress::Stop { bypass: false } } else { Progress::Done }
    }

    fn gap(&mut self, _direction: Direction, _missing: u64, _context: &mut ParseContext<'_>) -> bool {
        // Datagrams have none.
        false
    }

    fn is_encrypted(&self) -> bool {
        self.is_complete()
    }

    listed_transactions!(held);

    fn held(&mut self) -> usize {
        let connections = self
            .connections
            .iter()
            .fold(self.connections.held(), |sum: usize, connection| sum.saturating_add(connection.held()));
        size_of::<Self>().saturating_add(connections).saturating_add(self.held.held())
    }

    fn end(&mut self, _direction: Direction, _context: &mut ParseContext<'_>) {
        // Every transaction is complete from its beginning.
    }
}
