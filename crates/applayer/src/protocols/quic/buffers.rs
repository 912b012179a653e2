// SPDX-License-Identifier: Apache-2.0
//! The pieces of a QUIC transaction that rules inspect.

use crate::protocol::{BufferKind, BufferSpec, ValueForm, buffer};

/// Progress of a finished transaction, in both directions.
pub(super) const COMPLETE: u8 = 1;

pub(super) const VERSION: u16 = 0;
pub(super) const SNI: u16 = 1;
pub(super) const UA: u16 = 2;
pub(super) const CYU_HASH: u16 = 3;
pub(super) const CYU_STRING: u16 = 4;
pub(super) const JA3_HASH: u16 = 5;
pub(super) const JA3_STRING: u16 = 6;
pub(super) const JA3S_HASH: u16 = 7;
pub(super) const JA3S_STRING: u16 = 8;
pub(super) const JA4_HASH: u16 = 9;

/// A digest of 16 bytes.
const MD5: ValueForm = ValueForm::Digest { length: 32, colons: 0 };

/// The table for [`crate::protocol::ProtocolSpec::buffers`].
pub(super) const SPECS: &[BufferSpec] = &[
    buffer(VERSION, "quic.version", true, true, COMPLETE, BufferKind::Single),
    buffer(SNI, "quic.sni", true, false, COMPLETE, BufferKind::Single),
    buffer(UA, "quic.ua", true, false, COMPLETE, BufferKind::Single),
    buffer(CYU_HASH, "quic.cyu.hash", true, false, COMPLETE, BufferKind::Multi).of_form(MD5),
    buffer(CYU_STRING, "quic.cyu.string", true, false, COMPLETE, BufferKind::Multi),
    buffer(JA3_HASH, "ja3.hash", true, false, COMPLETE, BufferKind::Single).of_form(MD5),
    buffer(JA3_STRING, "ja3.string", true, false, COMPLETE, BufferKind::Single),
    buffer(JA3S_HASH, "ja3s.hash", false, true, COMPLETE, BufferKind::Single).of_form(MD5),
    buffer(JA3S_STRING, "ja3s.string", false, true, COMPLETE, BufferKind::Single),
    buffer(JA4_HASH, "ja4.hash", true, false, COMPLETE, BufferKind::Single),
];
