// SPDX-License-Identifier: Apache-2.0
//! Handshake messages (RFC 5246 section 7.4): assembled from records, then passed to their parsers.
//!
//! Records may have any length and cut a message anywhere, also in its head (RFC 8446 section 5.1). Not
//! supported: messages after the change of the cipher (they are encrypted).

use super::certificate;
use super::events;
use super::hello::{self, HelloKind};
use super::tx::{ClientState, ServerState, TlsFlags, TlsTx};
use crate::memory::Held as _;
use bartizan_base::{Cursor, Direction};

/// Limit of an assembled message, in bytes; a longer message is skipped with an event.
pub(super) const MESSAGE_MAX: usize = 1 << 18;

const HELLO_REQUEST: u8 = 0;
pub(super) const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
const NEW_SESSION_TICKET: u8 = 4;
const CERTIFICATE: u8 = 11;
const SERVER_KEY_EXCHANGE: u8 = 12;
const CERTIFICATE_REQUEST: u8 = 13;
const SERVER_HELLO_DONE: u8 = 14;
const CERTIFICATE_VERIFY: u8 = 15;
const CLIENT_KEY_EXCHANGE: u8 = 16;
const FINISHED: u8 = 20;
const CERTIFICATE_URL: u8 = 21;
const CERTIFICATE_STATUS: u8 = 22;

/// Length of a message's head (type and length), in bytes.
pub(super) const HEAD: usize = 4;

/// An incomplete message.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    /// The head, as far as it has come.
    head: smallvec::SmallVec<[u8; HEAD]>,
    /// The type of the incomplete message, if there is one.
    kind: Option<u8>,
    /// Bytes of the message that have not come yet.
    missing: usize,
    data: Vec<u8>,
    /// The message is too long: its bytes are only counted.
    discard: bool,
}

impl Assembly {
    /// Whether a message has begun and is not complete.
    pub(super) fn is_open(&self) -> bool {
        self.kind.is_some() || !self.head.is_empty()
    }

    /// Adds bytes of a head. Returns type and length once the head is complete.
    fn take_head(&mut self, cursor: &mut Cursor<'_>) -> Option<(u8, usize)> {
        let missing = HEAD.saturating_sub(self.head.len());
        self.head.extend_from_slice(cursor.take(missing.min(cursor.len())).unwrap_or_default());
        let [kind, high, middle, low] = *self.head.as_slice() else { return None };
        self.head.clear();
        let length = u32::from_be_bytes([0, high, middle, low]);
        Some((kind, usize::try_from(length).unwrap_or(usize::MAX)))
    }

    /// Bytes of memory held outside of the structure itself.
    pub(super) fn held(&self) -> usize {
        self.data.held()
    }
}

const fn known(kind: u8) -> bool {
    matches!(
        kind,
        HELLO_REQUEST
            | CLIENT_HELLO
            | SERVER_HELLO
            | NEW_SESSION_TICKET
            | CERTIFICATE
            | SERVER_KEY_EXCHANGE
            | CERTIFICATE_REQUEST
            | SERVER_HELLO_DONE
            | CERTIFICATE_VERIFY
            | CLIENT_KEY_EXCHANGE
            | FINISHED
            | CERTIFICATE_URL
            | CERTIFICATE_STATUS
    )
}

/// Handles a whole handshake record. An error ends the parsing of the flow.
pub(super) fn record(
    tx: &mut TlsTx,
    assembly: &mut Assembly,
    direction: Direction,
    body: &[u8],
) -> Result<(), u8> {
    let mut cursor = Cursor::new(body);
    while !cursor.is_empty() {
        if let Some(kind) = assembly.kind {
            let take = assembly.missing.min(cursor.len());
            let piece = cursor.take(take).unwrap_or_default();
            assembly.missing = assembly.missing.saturating_sub(take);
            if !assembly.discard && assembly.data.len().saturating_add(piece.len()) > MESSAGE_MAX {
                tx.event(events::INVALID_HANDSHAKE_MESSAGE);
                assembly.data = Vec::new();
                assembly.discard = true;
            }
            if !assembly.discard {
                assembly.data.extend_from_slice(piece);
            }
            if assembly.missing == 0 {
                let whole = core::mem::take(assembly);
                if !whole.discard {
                    message(tx, direction, kind, &whole.data)?;
                }
            }
            continue;
        }
        let Some((kind, length)) = assembly.take_head(&mut cursor) else { break };
        if !known(kind) {
            let _ = cursor.take(length.min(cursor.len()));
            let encrypted = match direction {
                Direction::ToServer => TlsFlags::CLIENT_CHANGE_CIPHER_SPEC,
                Direction::ToClient => TlsFlags::SERVER_CHANGE_CIPHER_SPEC,
            };
            if !tx.flags.contains(encrypted) {
                tx.event(events::INVALID_HANDSHAKE_MESSAGE);
            }
            continue;
        }
        match cursor.take(length) {
            Some(body) => message(tx, direction, kind, body)?,
            None => {
                // The declared length may be false: the limit applies to the bytes that come.
                let rest = cursor.take(cursor.len()).unwrap_or_default();
                *assembly = Assembly {
                    head: smallvec::SmallVec::new(),
                    kind: Some(kind),
                    missing: length.saturating_sub(rest.len()),
                    data: rest.to_vec(),
                    discard: false,
                };
            }
        }
    }
    Ok(())
}

/// Handles a message. An error ends the parsing of the flow.
fn message(tx: &mut TlsTx, direction: Direction, kind: u8, body: &[u8]) -> Result<(), u8> {
    let repeated =
        kind == CLIENT_HELLO && direction == Direction::ToServer && tx.flags.contains(TlsFlags::CLIENT_HELLO);
    if repeated {
        tx.flags.remove(TlsFlags::RETRY);
        // A second hello may not name another server (RFC 8446 section 4.1.2), but OpenSSL uses the last
        // name.
        if hello::offered_name(body) != tx.sides.to_server.server_name.as_deref() {
            return Err(events::MULTIPLE_SNI_EXTENSIONS);
        }
        // Suricata ignores the message there, and records must be the same.
        if tx.is_behind_the_change() {
            return Ok(());
        }
    }
    match kind {
        CLIENT_HELLO | SERVER_HELLO => {
            let (kind, flag) = if kind == CLIENT_HELLO {
                (HelloKind::Client, TlsFlags::CLIENT_HELLO)
            } else {
                (HelloKind::Server, TlsFlags::SERVER_HELLO)
            };
            tx.current = flag;
            if hello::decode(tx, direction, kind, body) {
                match direction {
                    Direction::ToServer => tx.client_at(ClientState::HelloDone),
                    Direction::ToClient => tx.server_at(ServerState::Hello),
                }
            }
        }
        SERVER_KEY_EXCHANGE => tx.current = TlsFlags::SERVER_KEY_EXCHANGE,
        CLIENT_KEY_EXCHANGE => tx.current = TlsFlags::CLIENT_KEY_EXCHANGE,
        CERTIFICATE => {
            certificate::decode(tx, direction, body);
            match direction {
                Direction::ToServer => tx.client_at(ClientState::CertificateDone),
                Direction::ToClient => tx.server_at(ServerState::CertificateDone),
            }
        }
        CERTIFICATE_REQUEST if direction == Direction::ToClient => {
            tx.current = TlsFlags::CLIENT_CERTIFICATE_WANTED;
        }
        SERVER_HELLO_DONE if direction == Direction::ToClient => tx.server_at(ServerState::HelloDone),
        _ => {}
    }
    let current = tx.current;
    tx.flags.insert(current);
    Ok(())
}
