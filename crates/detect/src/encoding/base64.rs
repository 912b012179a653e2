// SPDX-License-Identifier: Apache-2.0
//! Base64 as receivers read it, not as it should be written.

/// Value of a base64 symbol.
fn sextet(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

/// How strictly to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// RFC 2045: characters outside of the alphabet are skipped.
    #[default]
    Rfc2045,
    /// RFC 4648: the first character outside of the alphabet ends the text. One symbol alone behind the last whole group is no byte, and what
    /// ends so is no base64: nothing is decoded, as in Suricata.
    Rfc4648,
    /// Anything but complete, padded text is nothing.
    Strict,
}

/// Encodes, with padding.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    const SYMBOLS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let group = at(0) << 16 | at(1) << 8 | at(2);
        for index in 0..4u32 {
            let sextet = (group >> (18 - 6 * index)) & 0x3f;
            let symbol = SYMBOLS.get(sextet as usize).copied().unwrap_or(b'=');
            out.push(if index as usize <= chunk.len() { char::from(symbol) } else { '=' });
        }
    }
    out
}

/// Decodes with blanks skipped, up to the first other foreign character.
pub fn decode_lenient(text: &[u8], out: &mut Vec<u8>) {
    let mut group = [0u8; 4];
    let mut filled = 0usize;
    for byte in text {
        if byte.is_ascii_whitespace() {
            continue;
        }
        let Some(value) = sextet(*byte) else { break };
        push(&mut group, &mut filled, value, out);
    }
    flush(group, filled, out);
}

/// Decodes in a mode. `false`: the text is not base64 in this mode; `out` is then empty.
pub fn decode(text: &[u8], mode: Mode, out: &mut Vec<u8>) -> bool {
    let mut group = [0u8; 4];
    let mut filled = 0usize;
    let mut padding = 0usize;
    for byte in text {
        match sextet(*byte) {
            Some(_) if padding > 0 && mode == Mode::Strict => return fail(out),
            Some(_) if padding > 0 => break,
            Some(value) => push(&mut group, &mut filled, value, out),
            None if *byte == b'=' => padding += 1,
            None => match mode {
                Mode::Rfc2045 => {}
                Mode::Rfc4648 => break,
                Mode::Strict => return fail(out),
            },
        }
    }
    if mode == Mode::Strict && !(filled + padding).is_multiple_of(4) {
        return fail(out);
    }
    if mode == Mode::Rfc4648 && filled == 1 {
        return fail(out);
    }
    flush(group, filled, out);
    true
}

fn fail(out: &mut Vec<u8>) -> bool {
    out.clear();
    false
}

fn push(group: &mut [u8; 4], filled: &mut usize, value: u8, out: &mut Vec<u8>) {
    if let Some(slot) = group.get_mut(*filled) {
        *slot = value;
    }
    *filled += 1;
    if *filled == 4 {
        flush(*group, 4, out);
        *filled = 0;
    }
}

/// Writes the whole bytes of a group of up to four symbols.
fn flush(group: [u8; 4], filled: usize, out: &mut Vec<u8>) {
    let mut padded = [0u8; 4];
    for (to, from) in padded.iter_mut().zip(group.iter().take(filled)) {
        *to = *from;
    }
    let [a, b, c, d] = padded.map(u32::from);
    let [_, x, y, z] = (a << 18 | b << 12 | c << 6 | d).to_be_bytes();
    match filled {
        2 => out.push(x),
        3 => out.extend_from_slice(&[x, y]),
        4 => out.extend_from_slice(&[x, y, z]),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding() {
        for (bytes, text) in
            [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("abc", "YWJj"), ("google.com", "Z29vZ2xlLmNvbQ==")]
        {
            assert_eq!(encode(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn modes() {
        let get = |text: &[u8], mode| {
            let mut out = Vec::new();
            decode(text, mode, &mut out).then_some(out)
        };
        assert_eq!(get(b"SGVs bG8=", Mode::Rfc2045), Some(b"Hello".to_vec()));
        assert_eq!(get(b"SGVs bG8=", Mode::Rfc4648), Some(b"Hel".to_vec()));
        assert_eq!(get(b"SGVs bG8=", Mode::Strict), None);
        // One symbol is no byte, and what ends with one is nothing.
        assert_eq!(get(b"ajabab255 evi", Mode::Rfc4648), None);
        assert_eq!(get(b"ajabab25", Mode::Rfc4648).map(|bytes| bytes.len()), Some(6));
        assert_eq!(get(b"ajabab255", Mode::Rfc2045).map(|bytes| bytes.len()), Some(6));
        assert_eq!(get(b"SGVsbG8=", Mode::Strict), Some(b"Hello".to_vec()));
        let mut out = Vec::new();
        decode_lenient(b"SGVs\r\nbG8-x", &mut out);
        assert_eq!(out, b"Hello");
    }
}
