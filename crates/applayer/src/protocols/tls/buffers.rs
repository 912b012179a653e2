// SPDX-License-Identifier: Apache-2.0
//! The pieces of a TLS flow that rules inspect.
//!
//! A buffer with both directions has, in each direction, the value of the sending side.

use super::config::JA3;
use super::ja4;
use super::tx::TlsTx;
use crate::protocol::{BufferKind, BufferSpec, NumberId, NumberSpec, ValueForm, buffer};
use crate::transaction::BufferQuery;
use bartizan_base::Direction;

/// Progress at which a hello is complete, in both directions.
pub(super) const HELLO: u8 = 1;
/// Progress at which the certificates are complete, in both directions.
pub(super) const CERTIFICATE: u8 = 2;

const SERVER_NAME: u16 = 0;
const SUBJECT: u16 = 1;
const ISSUER: u16 = 2;
const SERIAL: u16 = 3;
const FINGERPRINT: u16 = 4;
const CERTIFICATES: u16 = 5;
const ALTERNATIVE_NAMES: u16 = 6;
const ALPN: u16 = 7;
const RANDOM: u16 = 8;
const RANDOM_TIME: u16 = 9;
const RANDOM_BYTES: u16 = 10;
const JA3_HASH: u16 = 11;
const JA3_STRING: u16 = 12;
const JA3S_HASH: u16 = 13;
const JA3S_STRING: u16 = 14;
const JA4_HASH: u16 = 15;

/// Version of this direction's side, as on the wire (SSL 2.0: 0x0200).
pub(super) const VERSION: NumberId = 0;
/// Seconds since 1970 from which this side's certificate is valid, two's complement (`as i64`).
pub(super) const NOT_BEFORE: NumberId = 1;
/// Seconds since 1970 up to which this side's certificate is valid, two's complement (`as i64`).
pub(super) const NOT_AFTER: NumberId = 2;
/// Number of certificates that this side sent.
pub(super) const CHAIN_LENGTH: NumberId = 3;
/// Bits of the last handshake message: client hello 1, server hello 2, client key exchange 4, server key
/// exchange 8.
pub(super) const STATE: NumberId = 4;
/// 1 once encrypted payload was seen and `encryption-handling` is not `full`.
pub(super) const ENCRYPTED: NumberId = 5;

/// The table for [`crate::protocol::ProtocolSpec::numbers`].
pub(super) const NUMBERS: &[NumberSpec] = &[
    NumberSpec { id: VERSION, name: "tls.version" },
    NumberSpec { id: NOT_BEFORE, name: "tls.not_before" },
    NumberSpec { id: NOT_AFTER, name: "tls.not_after" },
    NumberSpec { id: CHAIN_LENGTH, name: "tls.chain_len" },
    NumberSpec { id: STATE, name: "ssl.state" },
    NumberSpec { id: ENCRYPTED, name: "tls.encrypted" },
];

/// A digest of 16 bytes.
const MD5: ValueForm = ValueForm::Digest { length: 32, colons: 0 };
/// A digest of 20 bytes, with colons between them.
const SHA1: ValueForm = ValueForm::Digest { length: 59, colons: 19 };

/// The table for [`crate::protocol::ProtocolSpec::buffers`].
pub(super) const SPECS: &[BufferSpec] = &[
    buffer(SERVER_NAME, "tls.sni", true, false, HELLO, BufferKind::Single),
    buffer(SUBJECT, "tls.cert_subject", true, true, CERTIFICATE, BufferKind::Single),
    buffer(ISSUER, "tls.cert_issuer", true, true, CERTIFICATE, BufferKind::Single),
    buffer(SERIAL, "tls.cert_serial", true, true, CERTIFICATE, BufferKind::Single).of_form(ValueForm::Number),
    buffer(FINGERPRINT, "tls.cert_fingerprint", true, true, CERTIFICATE, BufferKind::Single).of_form(SHA1),
    buffer(CERTIFICATES, "tls.certs", true, true, CERTIFICATE, BufferKind::Multi),
    buffer(ALTERNATIVE_NAMES, "tls.subjectaltname", false, true, CERTIFICATE, BufferKind::Multi),
    buffer(ALPN, "tls.alpn", true, true, HELLO, BufferKind::Multi),
    // In Suricata this buffer belongs to the state before.
    buffer(RANDOM, "tls.random", true, true, HELLO, BufferKind::Single).of_state(0),
    buffer(RANDOM_TIME, "tls.random_time", true, true, HELLO, BufferKind::Single),
    buffer(RANDOM_BYTES, "tls.random_bytes", true, true, HELLO, BufferKind::Single),
    buffer(JA3_HASH, "ja3.hash", true, false, HELLO, BufferKind::Single).computed_by(JA3).of_form(MD5),
    buffer(JA3_STRING, "ja3.string", true, false, HELLO, BufferKind::Single).computed_by(JA3),
    buffer(JA3S_HASH, "ja3s.hash", false, true, HELLO, BufferKind::Single).computed_by(JA3).of_form(MD5),
    buffer(JA3S_STRING, "ja3s.string", false, true, HELLO, BufferKind::Single).computed_by(JA3),
    buffer(JA4_HASH, "ja4.hash", true, false, HELLO, BufferKind::Single),
];

/// A value of a buffer.
pub(super) fn get<'a>(tx: &'a TlsTx, query: BufferQuery, scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    let side = &tx.sides[query.direction];
    let certificate = side.certificate.as_deref();
    let index = usize::try_from(query.index).ok()?;
    match query.id {
        CERTIFICATES => return side.chain.get(index),
        ALTERNATIVE_NAMES => return certificate?.names.get(index).map(String::as_bytes),
        ALPN => return side.hello.alpns().nth(index),
        _ if index > 0 => return None,
        _ => {}
    }
    let client = &tx.sides[Direction::ToServer];
    let server = &tx.sides[Direction::ToClient];
    match query.id {
        SERVER_NAME => client.server_name.as_deref(),
        SUBJECT => certificate.map(|c| c.subject.as_bytes()),
        ISSUER => certificate.map(|c| c.issuer.as_bytes()),
        SERIAL => certificate.map(|c| c.serial.as_bytes()),
        FINGERPRINT => certificate.map(|c| c.fingerprint.as_bytes()),
        RANDOM => side.random.as_ref().map(|r| r.as_slice()),
        RANDOM_TIME => side.random.as_ref()?.get(..4),
        RANDOM_BYTES => side.random.as_ref()?.get(4..),
        JA3_HASH => client.ja3.hash().map(str::as_bytes),
        JA3_STRING => client.ja3.text().map(str::as_bytes),
        JA3S_HASH => server.ja3.hash().map(str::as_bytes),
        JA3S_STRING => server.ja3.text().map(str::as_bytes),
        JA4_HASH if tx.config.ja4 && write_ja4(tx, scratch) => Some(scratch),
        _ => None,
    }
}

/// Appends the JA4 of the client's hello to `out`. `false`: no hello was read.
pub(super) fn write_ja4(tx: &TlsTx, out: &mut Vec<u8>) -> bool {
    let client = &tx.sides.to_server;
    let was_read = client.random.is_some();
    if was_read {
        ja4::write(&client.hello, false, out);
    }
    was_read
}
