// SPDX-License-Identifier: Apache-2.0
//! JA4, the fingerprint of a client hello that is independent of the order of its parts.
//!
//! Source: the technical details at <https://github.com/FoxIO-LLC/ja4> (JA4 alone is BSD-3-Clause). Where
//! Suricata 8 differs, its form is used: the second part of the hash text always begins with `_`, even
//! without algorithms.
//!
//! Not supported: JA4S, JA4H and the rest of JA4+ (another licence).

use super::hello::HelloFields;
use super::version::is_grease;
use core::fmt::Write as _;
use sha2::{Digest as _, Sha256};

const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;

/// Appends the JA4 of the fields (always 36 bytes of ASCII) to `out`.
pub(crate) fn write(fields: &HelloFields, quic: bool, out: &mut Vec<u8>) {
    let version = match fields.version {
        Some(0x0304) => "13",
        Some(0x0303) => "12",
        Some(0x0302) => "11",
        Some(0x0301) => "10",
        Some(0x0300) => "s3",
        _ => "00",
    };
    let server_name = if fields.extensions.contains(&SERVER_NAME) { 'd' } else { 'i' };
    let [first, last] = alpn_characters(fields.alpns().next());
    let head = format!(
        "{}{version}{server_name}{:02}{:02}",
        if quic { 'q' } else { 't' },
        fields.ciphers.len().min(99),
        fields.extensions.len().min(99),
    );
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(&[first, last, b'_']);

    let mut ciphers = fields.ciphers.clone();
    ciphers.sort_unstable();
    push_hash(&list(&ciphers), out);
    out.push(b'_');

    let mut extensions: Vec<u16> =
        fields.extensions.iter().copied().filter(|e| !matches!(*e, SERVER_NAME | ALPN)).collect();
    extensions.sort_unstable();
    let mut text = list(&extensions);
    text.push('_');
    text.push_str(&list(&fields.signature_algorithms));
    push_hash(&text, out);
}

/// First and last character of the first protocol name, or of its hexadecimal form if one of them is not
/// alphanumeric.
fn alpn_characters(name: Option<&[u8]>) -> [u8; 2] {
    let (Some(first), Some(last)) = (name.and_then(<[u8]>::first), name.and_then(<[u8]>::last)) else {
        return *b"00";
    };
    if name.is_some_and(|n| n.len() == 2) && is_grease(u16::from_be_bytes([*first, *last])) {
        return *b"00";
    }
    if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        return [*first, *last];
    }
    let digit = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'a' + (nibble - 10) };
    [digit(first >> 4), digit(last & 15)]
}

fn list(values: &[u16]) -> String {
    let mut text = String::with_capacity(values.len().saturating_mul(5));
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "{value:04x}");
    }
    text
}

fn push_hash(text: &str, out: &mut Vec<u8>) {
    let digest = Sha256::digest(text.as_bytes());
    for byte in digest.iter().take(6) {
        out.extend_from_slice(format!("{byte:02x}").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(fields: &HelloFields, quic: bool) -> String {
        let mut out = Vec::new();
        write(fields, quic, &mut out);
        assert_eq!(out.len(), 36);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn example_of_the_description() {
        // Chrome's hello from the technical details of JA4.
        let mut f = HelloFields::default();
        f.set_version(0x0303);
        f.set_version(0x0304);
        for c in [
            0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013, 0xc014, 0x009c,
            0x009d, 0x002f, 0x0035, 0x2a2a,
        ] {
            f.add_cipher(c);
        }
        for e in [
            0x001b, 0x0000, 0x0033, 0x0010, 0x4469, 0x0017, 0x002d, 0x000d, 0x0005, 0x0023, 0x0012, 0x002b,
            0xff01, 0x000b, 0x000a, 0x0015, 0xdada,
        ] {
            f.add_extension(e);
        }
        for a in [0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601] {
            f.add_signature_algorithm(a);
        }
        f.add_alpn(b"h2");
        assert_eq!(text(&f, false), "t13d1516h2_8daaf6152771_e5627efa2ab1");
    }

    #[test]
    fn empty_and_capped() {
        assert_eq!(text(&HelloFields::default(), false), "t00i000000_e3b0c44298fc_d2e2adf7177b");
        let mut f = HelloFields::default();
        for v in 1..200 {
            f.add_cipher(v);
            f.add_extension(v + 0x4000);
        }
        f.add_alpn(b"\xab");
        assert!(text(&f, true).starts_with("q00i9999ab_"));
    }

    #[test]
    fn alpn_forms() {
        assert_eq!(alpn_characters(None), *b"00");
        assert_eq!(alpn_characters(Some(b"h")), *b"hh");
        assert_eq!(alpn_characters(Some(b"http/1.1")), *b"h1");
        assert_eq!(alpn_characters(Some(&[0x0a, 0x0a])), *b"00");
        assert_eq!(alpn_characters(Some(&[0x30, 0xab])), *b"3b");
        assert_eq!(alpn_characters(Some(&[0xab, 0xcd])), *b"ad");
    }
}
