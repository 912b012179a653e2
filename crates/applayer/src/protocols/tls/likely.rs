// SPDX-License-Identifier: Apache-2.0
//! Which first bytes a TLS server takes for a client's hello, beyond those that Suricata's patterns know.
//!
//! Servers look at the major version of the first records only, skip empty records (OpenSSL up to 32 of them), and put the hello
//! together from records of any length. OpenSSL also takes a hello in the form of SSL 2.0 (RFC 5246 appendix E.2).

use crate::protocol::{Probe, Transport};
use bartizan_base::{Cursor, Direction};

/// Records that are looked through: empty ones and pieces of the hello's head.
const RECORDS_MAX: usize = 64;
/// Longest record (RFC 5246 section 6.2.3).
const RECORD_MAX: u16 = (1 << 14) + 2048;
/// Most that the first byte of a hello's length says: no server takes hellos of more than 256 KB.
const LENGTH_HIGH_MAX: u8 = 3;

/// Looks at a client's first bytes.
pub(super) fn likely(_transport: Transport, direction: Direction, data: &[u8]) -> Probe {
    if direction != Direction::ToServer {
        return Probe::No;
    }
    match in_records(data).and_then(|yes| if yes { Some(true) } else { in_old_form(data) }) {
        Some(true) => Probe::Yes(direction),
        Some(false) => Probe::No,
        None => Probe::More,
    }
}

/// Whether handshake records begin with the type of a hello and the first byte of its length. `None`: more bytes are needed.
fn in_records(data: &[u8]) -> Option<bool> {
    let mut cursor = Cursor::new(data);
    let mut head = 0;
    for _ in 0..RECORDS_MAX {
        // Byte by byte, so that what is no record shows as early as can be.
        if cursor.u8()? != super::parser::HANDSHAKE || cursor.u8()? != 3 {
            return Some(false);
        }
        cursor.u8()?;
        if cursor.rest().first().is_some_and(|high| *high > (RECORD_MAX >> 8) as u8) {
            return Some(false);
        }
        for _ in 0..cursor.u16()? {
            let byte = cursor.u8()?;
            match head {
                0 if byte != super::handshake::CLIENT_HELLO => return Some(false),
                0 => head = 1,
                _ => return Some(byte <= LENGTH_HIGH_MAX),
            }
        }
    }
    Some(false)
}

/// Whether this is a hello in a record of SSL 2.0 that offers a later version: its lengths fit each other.
fn in_old_form(data: &[u8]) -> Option<bool> {
    let mut cursor = Cursor::new(data);
    let high = cursor.u8()?;
    if high & 0x80 == 0 {
        return Some(false);
    }
    let length = u16::from_be_bytes([high & 0x7f, cursor.u8()?]);
    if cursor.u8()? != super::handshake::CLIENT_HELLO || cursor.u8()? != 3 || cursor.u8()? > 4 {
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
        let hellos: [&[u8]; 6] = [
            &[22, 3, 4, 2, 0, 1, 0, 1],
            &[22, 3, 0xff, 0, 4, 1, 0],
            &[22, 3, 4, 0, 1, 1, 22, 3, 4, 0, 1, 0],
            &[22, 3, 5, 0, 0, 22, 3, 3, 0, 0, 22, 3, 1, 0, 1, 1, 22, 3, 4, 0, 0, 22, 3, 4, 0, 9, 2],
            &[22, 3, 4, 0x48, 0, 1, 0],
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
        let others: [&[u8]; 9] = [
            &[0],
            b"G",
            &[22, 4],
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
    }
}
