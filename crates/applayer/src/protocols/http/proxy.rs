// SPDX-License-Identifier: Apache-2.0
//! The header that a proxy puts before the first request to name the client (PROXY protocol, versions 1 and
//! 2, as HAProxy describes them). Servers that are configured to expect it read the request after it, so
//! prevention does too.

use super::bytes::{after, before};

/// Limit of a header of version 1 with its line end, in bytes.
const V1_MAX: usize = 107;
/// Beginnings of version 1, up to the family.
const V1: [&[u8]; 3] = [b"PROXY TCP4 ", b"PROXY TCP6 ", b"PROXY UNKNOWN"];
/// Beginning of version 2.
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of version 2 up to and including the length of the rest.
const V2_HEAD: usize = 16;

/// The classification of a connection's first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxyHeader {
    /// A header of this many bytes, not all of which need to have come.
    Length(usize),
    /// Possibly the beginning of a header.
    Need,
    No,
}

/// Classifies the first bytes of a connection.
pub(super) fn header(data: &[u8]) -> ProxyHeader {
    if let Some(rest) = data.strip_prefix(V2) {
        let [command, _, high, low, ..] = rest else {
            let known = rest.first().is_none_or(|command| command >> 4 == 2);
            return if known { ProxyHeader::Need } else { ProxyHeader::No };
        };
        if command >> 4 != 2 {
            return ProxyHeader::No;
        }
        return ProxyHeader::Length(V2_HEAD + usize::from(u16::from_be_bytes([*high, *low])));
    }
    if V1.iter().any(|start| data.starts_with(start)) {
        return match memchr::memchr(b'\n', before(data, V1_MAX)) {
            Some(end) => ProxyHeader::Length(end + 1),
            None if data.len() < V1_MAX => ProxyHeader::Need,
            None => ProxyHeader::No,
        };
    }
    let begins = |start: &[u8]| start.starts_with(data);
    if begins(V2) || V1.iter().any(|start| begins(start)) { ProxyHeader::Need } else { ProxyHeader::No }
}

/// The bytes after the header, if there is one and it is complete.
pub(super) fn behind(data: &[u8]) -> Option<&[u8]> {
    match header(data) {
        ProxyHeader::Length(length) if length <= data.len() => Some(after(data, length)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_known_however_much_is_there() {
        let v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x01\x02\x03\x04\x05\x06\x07\x08\x03\xe8\0\x50";
        for whole in [&b"PROXY TCP4 1.2.3.4 5.6.7.8 1000 80\r\n"[..], b"PROXY UNKNOWN\r\n", v2] {
            assert_eq!(header(whole), ProxyHeader::Length(whole.len()));
            for end in 0..whole.len() {
                let seen = header(before(whole, end));
                let known = end >= V2_HEAD && seen == ProxyHeader::Length(whole.len());
                assert!(seen == ProxyHeader::Need || known, "{end}");
                assert_eq!(behind(before(whole, end)), None);
            }
            assert_eq!(behind(&[whole, b"GET"].concat()), Some(&b"GET"[..]));
        }
        for other in [&b"PROXY x"[..], b"PROXYTCP4", b"GET /", b"\r\n\r\nGET", b"\r\n\r\n\0\r\nQUIT\n\x11"] {
            assert_eq!(header(other), ProxyHeader::No, "{}", other.escape_ascii());
        }
        let long = [&b"PROXY TCP4 "[..], &[b'1'; V1_MAX]].concat();
        assert_eq!(header(&long), ProxyHeader::No);
    }
}
