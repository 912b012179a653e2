// SPDX-License-Identifier: Apache-2.0
//! Messages of netlink: one request, one answer, attributes.
//!
//! Source: netlink(7), Linux `include/uapi/linux/netlink.h`. Numbers are in the machine's own order. Not
//! done: answers of several messages.

use crate::sys::{self, Netlink};
use std::io;

/// Length of a message's header.
const HEADER: usize = 16;
/// The bits of a type that name it; the highest two describe its encoding.
const TYPE: u16 = 0x3fff;
const REQUEST: u16 = 1;
const ERROR: u16 = 2;

/// An attribute: its length, its type, its value, padded to a multiple of four.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = u16::try_from(value.len() + 4).unwrap_or(u16::MAX).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Sends a request; returns the body of the answer.
pub(crate) fn query(family: Netlink, kind: u16, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut request = Vec::with_capacity(HEADER + body.len());
    request.extend(u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX).to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(REQUEST.to_ne_bytes());
    request.extend([0; 8]); // sequence, port: no other request uses this socket
    request.extend(body);
    read(&sys::query_netlink(family, &request)?).map(<[u8]>::to_vec)
}

/// The body of an answer.
pub(crate) fn read(answer: &[u8]) -> io::Result<&[u8]> {
    if u16_at(answer, 4).ok_or_else(cut_off)? == ERROR {
        let code = u32_at(answer, HEADER).ok_or_else(cut_off)? as i32;
        return Err(io::Error::from_raw_os_error(code.saturating_neg()));
    }
    answer.get(HEADER..).ok_or_else(cut_off)
}

/// The error of an answer that is too short.
pub(crate) fn cut_off() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is cut off")
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    number(bytes, at).map(u64::from_ne_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    number(bytes, at).map(u32::from_ne_bytes)
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    number(bytes, at).map(u16::from_ne_bytes)
}

/// The attributes of a message: type and value. A cut attribute ends them.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (length, kind) = (usize::from(u16_at(bytes, 0)?), u16_at(bytes, 2)?);
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & TYPE, value))
    })
}

/// The value of the first attribute of a type.
pub(crate) fn find(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}
