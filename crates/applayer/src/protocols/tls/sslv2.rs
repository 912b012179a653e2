// SPDX-License-Identifier: Apache-2.0
//! SSL 2.0 records ("The SSL Protocol", Hickman 1995; RFC 5246 appendix E.2), as far as a hello in the old
//! form needs them.
//!
//! Not supported: certificates and cipher lists of SSL 2.0 hellos.

use super::events;
use super::tx::{ClientState, ServerState, TlsFlags, TlsTx};
use bartizan_base::{Cursor, Direction};

const ERROR: u8 = 0;
const CLIENT_HELLO: u8 = 1;
const CLIENT_MASTER_KEY: u8 = 2;
const CLIENT_FINISHED: u8 = 3;
const SERVER_HELLO: u8 = 4;
const SERVER_VERIFY: u8 = 5;
const SERVER_FINISHED: u8 = 6;
const REQUEST_CERTIFICATE: u8 = 7;
const CLIENT_CERTIFICATE: u8 = 8;

/// Whether a record that begins with this byte is of SSL 2.0.
pub(super) const fn begins(first: u8) -> bool {
    first & 0xc0 != 0
}

/// Length of the head and of the rest of a record; `None`: more bytes are needed.
pub(super) fn lengths(data: &[u8]) -> Option<(usize, usize)> {
    match data {
        [first, second, ..] if first & 0x80 != 0 => {
            Some((2, usize::from(u16::from_be_bytes([first & 0x7f, *second]))))
        }
        [first, second, _padding, ..] => Some((3, usize::from(u16::from_be_bytes([first & 0x3f, *second])))),
        _ => None,
    }
}

/// Handles a whole record (without its head). An error ends the parsing of the flow.
pub(super) fn record(tx: &mut TlsTx, direction: Direction, body: &[u8]) -> Result<(), u8> {
    let mut cursor = Cursor::new(body);
    let Some(kind) = cursor.u8() else {
        tx.event(events::INVALID_SSLV2_HEADER);
        return Err(events::INVALID_SSL_RECORD);
    };
    match kind {
        ERROR => tx.event(events::ERROR_MESSAGE_ENCOUNTERED),
        CLIENT_HELLO => {
            let (Some(version), Some(_ciphers), Some(session)) = (cursor.u16(), cursor.u16(), cursor.u16())
            else {
                return Err(events::INVALID_SSL_RECORD);
            };
            tx.current = TlsFlags::CLIENT_HELLO | TlsFlags::SSL2_CLIENT_HELLO;
            tx.client_at(ClientState::HelloDone);
            tx.sides[direction].version = version;
            if session == 0 {
                tx.current.insert(TlsFlags::SSL2_NO_SESSION);
            }
        }
        CLIENT_MASTER_KEY => tx.current = TlsFlags::SSL2_MASTER_KEY,
        SERVER_HELLO => {
            tx.current = TlsFlags::SERVER_HELLO | TlsFlags::SSL2_SERVER_HELLO;
            tx.server_at(ServerState::Hello);
        }
        CLIENT_CERTIFICATE => {
            if direction == Direction::ToServer {
                tx.current = TlsFlags::CLIENT_KEY_EXCHANGE;
            }
            tx.server_at(ServerState::CertificateDone);
            encryption(tx, direction);
        }
        SERVER_VERIFY | SERVER_FINISHED | CLIENT_FINISHED | REQUEST_CERTIFICATE => encryption(tx, direction),
        _ => {}
    }
    let current = tx.current;
    tx.flags.insert(current);
    Ok(())
}

/// Handles a message after its sender has started to encrypt.
fn encryption(tx: &mut TlsTx, direction: Direction) {
    if !tx.flags.contains(TlsFlags::SSL2_CLIENT_HELLO | TlsFlags::SSL2_SERVER_HELLO) {
        return;
    }
    match direction {
        Direction::ToServer if tx.flags.contains(TlsFlags::SSL2_NO_SESSION) => {
            tx.current.insert(TlsFlags::SSL2_CLIENT_ENCRYPTS);
        }
        Direction::ToServer if tx.flags.contains(TlsFlags::SSL2_MASTER_KEY) => {
            tx.current = TlsFlags::SSL2_CLIENT_ENCRYPTS;
        }
        Direction::ToServer => {}
        Direction::ToClient => tx.current = TlsFlags::SSL2_SERVER_ENCRYPTS,
    }
    if tx.flags.contains(TlsFlags::SSL2_CLIENT_ENCRYPTS | TlsFlags::SSL2_SERVER_ENCRYPTS) {
        tx.encrypted = true;
    }
}
