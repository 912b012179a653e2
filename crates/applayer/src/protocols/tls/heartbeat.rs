// SPDX-License-Identifier: Apache-2.0
//! Heartbeats (RFC 6520) and their misuse to read a peer's memory (CVE-2014-0160).
//!
//! In clear text the lengths reveal the misuse; once encrypted, a response longer than its request does.

use super::events;
use super::tx::{TlsFlags, TlsTx};
use bartizan_base::{Cursor, Direction};

/// Length of type and length before the payload, in bytes.
const HEAD: usize = 3;
/// Least padding, in bytes (RFC 6520 section 4).
const PADDING: usize = 16;

/// Handles a heartbeat record. An error ends the parsing of the flow.
pub(super) fn record(tx: &mut TlsTx, direction: Direction, body: &[u8]) -> Result<(), u8> {
    let mut cursor = Cursor::new(body);
    let (Some(kind), Some(payload)) = (cursor.u8(), cursor.u16()) else { return Ok(()) };
    let encrypted = tx.flags.contains(TlsFlags::CHANGE_CIPHER_SPEC);
    if !encrypted && !matches!(kind, 1 | 2) {
        return Err(events::INVALID_HEARTBEAT_MESSAGE);
    }
    let own = match direction {
        Direction::ToServer => TlsFlags::HEARTBEAT_BY_CLIENT,
        Direction::ToClient => TlsFlags::HEARTBEAT_BY_SERVER,
    };
    let pending = TlsFlags::HEARTBEAT_BY_CLIENT | TlsFlags::HEARTBEAT_BY_SERVER;
    if !tx.flags.intersects(pending) {
        tx.flags.insert(own);
        if encrypted {
            tx.heartbeat_length = body.len();
            return Ok(());
        }
        let needed = usize::from(payload).saturating_add(HEAD);
        if needed > body.len() {
            return Err(events::OVERFLOW_HEARTBEAT_MESSAGE);
        }
        if body.len().saturating_sub(needed) < PADDING {
            return Err(events::INVALID_HEARTBEAT_MESSAGE);
        }
        return Ok(());
    }
    if tx.flags.contains(own) {
        // A second request before the response.
        return Err(events::INVALID_HEARTBEAT_MESSAGE);
    }
    tx.flags.remove(pending);
    let asked = core::mem::take(&mut tx.heartbeat_length);
    if encrypted && asked > 0 && asked < body.len() {
        return Err(events::DATALEAK_HEARTBEAT_MISMATCH);
    }
    Ok(())
}
