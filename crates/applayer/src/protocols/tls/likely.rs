// SPDX-License-Identifier: Apache-2.0
//! Recognises first bytes that a TLS server takes for a client's hello, beyond those that match Suricata's
//! patterns.
//!
//! Servers check the version of the first records differently: OpenSSL requires the major version 3, GnuTLS
//! none above it, Go anything below 0x1000, Java nothing at all. They assemble the hello from records of any
//! length. OpenSSL skips empty records (up to 32 of them); Go, Java and BoringSSL skip alerts that are
//! warnings (Go up to 16 of them, Java without limit); servers that skip a change of the cipher for the sake
//! of middle boxes do so at any time (RFC 8446 appendix D.4). OpenSSL also accepts a hello in the form of SSL
//! 2.0 (RFC 5246 appendix E.2).
//!
//! So neither types nor versions of the first records decide. The head of a hello inside of them makes them
//! TLS.

use super::handshake::{CLIENT_HELLO, HEAD};
use super::parser::{ALERT, CHANGE_CIPHER_SPEC, HANDSHAKE};
use crate::protocol::{Probe, Transport};
use bartizan_base::{Cursor, Direction};

/// Limit of records that are inspected: skipped ones, empty ones and pieces of the hello's head.
const RECORDS_MAX: usize = 64;
/// Length of an alert (level and description), in bytes.
const ALERT_LENGTH: u16 = 2;
/// Length of a change of the cipher, in bytes.
const CHANGE_LENGTH: u16 = 1;
/// Length of the longest record, in bytes (RFC 5246 section 6.2.3).
const RECORD_MAX: u16 = (1 << 14) + 2048;
/// Length of the shortest hello, in bytes: version, random number, and the lengths of a session id, of
/// ciphers and of compressions, with one of each of the latter.
const HELLO_MIN: u32 = 41;
/// Length of the longest hello, in bytes: no server accepts longer ones.
const HELLO_MAX: u32 = super::handshake::MESSAGE_MAX as u32;

/// Inspects a client's first bytes.
pub(crate) fn likely(_transport: Transport, direction: Direction, data: &[u8]) -> Probe {
    if direction != Direction::ToServer {
        return Probe::No;
    }
    match in_records(data).and_then(|yes| if yes { Some(true) } else { in_old_form(data) }) {
        Some(true) => Probe::Yes(direction),
        Some(false) => Probe::No,
        None => Probe::More,
    }
}

/// Whether records contain the head of a hello, after nothing but data that servers skip. `None`: more bytes
/// are needed.
fn in_records(data: &[u8]) -> Option<bool> {
    let mut cursor = Cursor::new(data);
    let mut head: u32 = 0;
    let mut there = 0;
    let mut skipped = false;
    for _ in 0..RECORDS_MAX {
        // Byte by byte, so that data which is no record is recognised as early as possible.
        let kind = cursor.u8()?;
        let lengths = match kind {
            HANDSHAKE => 0..=RECORD_MAX,
            ALERT => ALERT_LENGTH..=ALERT_LENGTH,
            CHANGE_CIPHER_SPEC => CHANGE_LENGTH..=CHANGE_LENGTH,
            _ => return Some(false),
        };
        let _version = cursor.u16()?;
        let high = *cursor.rest().first()?;
        if u16::from(high) > lengths.end() >> 8 {
            return Some(false);
        }
        let length = cursor.u16()?;
        if !lengths.contains(&length) {
            return Some(false);
        }
        if kind != HANDSHAKE {
            skipped = true;
            cursor.take(usize::from(length))?;
            continue;
        }
        for _ in 0..length {
            let byte = cursor.u8()?;
            head = head << 8 | u32::from(byte);
            there += 1;
            if there == 1 && byte != CLIENT_HELLO || there == 2 && u32::from(byte) > HELLO_MAX >> 16 {
                return Some(false);
            }
            if there == HEAD {
                return Some((HELLO_MIN..=HELLO_MAX).contains(&(head & 0x00ff_ffff)));
            }
        }
    }
    // Too many empty records; other skipped data some servers skip without limit.
    Some(skipped)
}

/// Whether this is a hello in a record of SSL 2.0 that offers a later version: its lengths fit each other.
fn in_old_form(data: &[u8]) -> Option<bool> {
    let mut cursor = Cursor::new(data);
    let high = cursor.u8()?;
    if high & 0x80 == 0 {
        return Some(false);
    }
    let length = u16::from_be_bytes([high & 0x7f, cursor.u8()?]);
    if cursor.u8()? != CLIENT_HELLO || cursor.u8()? != 3 || cursor.u8()? > 4 {
        return Some(false);
    }
    let (ciphers, session, challenge) = (cursor.u16()?, cursor.u16()?, cursor.u16()?);
    let sum = [9, ciphers, session, challenge].into_iter().try_fold(0u16, u16::checked_add);
    Some(ciphers % 3 == 0 && sum == Some(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(data: &[u8]) -> Probe {
        likely(Transport::Tcp, Direction::ToServer, data)
    }

    #[test]
    fn hellos_that_servers_take_are_known_when_their_head_is_there() {
        let old = [0x80, 21, 1, 3, 1, 0, 6, 0, 0, 0, 6];
        let hellos: [&[u8]; 16] = [
            &[22, 3, 4, 2, 0, 1, 0, 1, 0],
            &[22, 3, 0xff, 0, 4, 1, 0, 0, 41],
            &[22, 3, 4, 0, 1, 1, 22, 3, 4, 0, 3, 0, 1, 0],
            &[22, 3, 5, 0, 0, 22, 3, 3, 0, 0, 22, 3, 1, 0, 1, 1, 22, 3, 4, 0, 0, 22, 3, 4, 0, 9, 2, 0, 0],
            &[22, 3, 4, 0x48, 0, 1, 3, 0xff, 0xff],
            // Versions that Go and Java do not check.
            &[22, 2, 0, 2, 0, 1, 0, 1, 0xfc],
            &[22, 0, 0, 0, 60, 1, 0, 0, 56],
            &[22, 4, 4, 0, 60, 1, 0, 0, 56],
            &[22, 0x0f, 0x0f, 0, 60, 1, 0, 0, 56],
            &[22, 0xfe, 0xff, 0, 60, 1, 0, 0, 56],
            &[22, 3, 1, 0, 2, 1, 0, 22, 9, 9, 0, 60, 0, 56],
            // Alerts and a change of the cipher before it.
            &[21, 3, 0, 0, 2, 1, 0x5a, 22, 3, 1, 0, 60, 1, 0, 0, 56],
            &[21, 2, 0, 0, 2, 1, 0, 21, 3, 3, 0, 2, 1, 0x5a, 22, 3, 1, 0, 60, 1, 0, 0, 56],
            &[20, 3, 3, 0, 1, 1, 22, 3, 1, 0, 60, 1, 0, 0, 56],
            // Between pieces of the hello's head.
            &[22, 3, 1, 0, 1, 1, 21, 3, 1, 0, 2, 1, 0x5a, 22, 3, 1, 0, 60, 0, 0, 56],
            &old,
        ];
        for hello in hellos {
            assert_eq!(look(hello), Probe::Yes(Direction::ToServer), "{hello:?}");
            for end in 0..hello.len() {
                let seen = look(&hello[..end]);
                assert!(seen == Probe::More || matches!(seen, Probe::Yes(_)), "{:?}", &hello[..end]);
            }
        }
    }

    #[test]
    fn others_are_refused_as_early_as_can_be() {
        let others: [&[u8]; 15] = [
            &[0],
            b"G",
            &[22, 4, 4, 0x49],
            &[22, 2, 0, 0, 4, 2],
            // No hello is as short, or as long.
            &[22, 3, 1, 0, 60, 1, 0, 0, 40],
            &[22, 9, 9, 0, 60, 1, 5],
            &[21, 3, 1, 0, 3],
            &[21, 3, 1, 1],
            &[20, 3, 1, 0, 0],
            &[22, 3, 4, 0x49],
            &[22, 3, 1, 0, 4, 2],
            &[22, 3, 4, 0, 4, 1, 9],
            &[23, 3, 3, 0, 4],
            &[0x80, 21, 4],
            &[0x80, 21, 1, 3, 1, 0, 6, 0, 0, 0, 7],
        ];
        for other in others {
            assert_eq!(look(other), Probe::No, "{other:?}");
        }
        let empty: Vec<u8> = [22, 3, 3, 0, 0].repeat(RECORDS_MAX);
        assert_eq!(look(&empty), Probe::No);
        // Java skips any number of alerts.
        let alerts: Vec<u8> = [21, 3, 3, 0, 2, 1, 0x5a].repeat(RECORDS_MAX);
        assert_eq!(look(&alerts), Probe::Yes(Direction::ToServer));
    }

    #[test]
    fn random_bytes_are_no_hello() {
        let mut random = bartizan_testkit::random::Random::new(1);
        let mut taken = 0;
        for first in [20, 21, 22] {
            for _ in 0..100_000 {
                let mut data = random.bytes(40);
                data[0] = first;
                // Of a plausible length, too.
                data[3] = 0;
                taken += usize::from(look(&data) == Probe::Yes(Direction::ToServer));
            }
        }
        // Two bytes are fixed here, so that about one of 50 million random connections would match.
        assert!(taken < 20, "{taken}");
    }
}
