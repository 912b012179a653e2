// SPDX-License-Identifier: Apache-2.0
//! Base64 as receivers decode it, which is more lenient than the specification.

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

/// Strictness of decoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Base64Mode {
    /// RFC 2045: characters outside of the alphabet are skipped; only whole groups are decoded.
    #[default]
    Rfc2045,
    /// RFC 4648: the first character outside of the alphabet ends the text. A single symbol after the last
    /// whole group makes no byte, and a text that ends so is no base64: nothing is decoded.
    Rfc4648,
    /// Only complete, padded text is decoded.
    Strict,
}

/// Encodes bytes, with padding.
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

/// Decodes text up to the first foreign character; blanks are skipped.
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

/// Decodes text with the alphabet of URLs (RFC 4648 section 5), or the usual one.
#[must_use]
pub fn decode_url(text: &[u8]) -> Vec<u8> {
    let usual = |byte: &u8| match *byte {
        b'-' => b'+',
        b'_' => b'/',
        other => other,
    };
    let text: Vec<u8> = text.iter().map(usual).collect();
    let mut out = Vec::new();
    decode_lenient(&text, &mut out);
    out
}

/// Decodes in a mode, a group of four symbols at a time, as Suricata 8.0.8 does: `=` is a symbol in the last
/// two places of a group, and text continues after a padded group. `false`: the text is not base64 in this
/// mode; `out` is then empty.
pub fn decode(text: &[u8], mode: Base64Mode, out: &mut Vec<u8>) -> bool {
    if mode == Base64Mode::Strict && !is_strict(text) {
        return fail(out);
    }
    let mut group = Base64Group::default();
    for byte in text {
        let symbol = match sextet(*byte) {
            Some(value) => Symbol::Value(value),
            None if *byte == b'=' => Symbol::Padding,
            None if mode == Base64Mode::Rfc2045 => continue,
            None => break,
        };
        if !group.push(symbol, out) {
            return fail(out);
        }
    }
    // An incomplete last group is padded, except where foreign characters are skipped: more could follow.
    while mode == Base64Mode::Rfc4648 && group.filled > 0 {
        if !group.push(Symbol::Padding, out) {
            return fail(out);
        }
    }
    true
}

/// Whether a text consists of whole groups of symbols, of which the last may be padded.
fn is_strict(text: &[u8]) -> bool {
    let symbols = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    text.len().is_multiple_of(4) && symbols.iter().all(|byte| sextet(*byte).is_some())
}

#[derive(Clone, Copy, Debug, Default)]
enum Symbol {
    Value(u8),
    #[default]
    Padding,
}

/// Up to four symbols, which are three bytes.
#[derive(Debug, Default)]
struct Base64Group {
    symbols: [Symbol; 4],
    filled: usize,
}

impl Base64Group {
    /// Adds a symbol and writes the group when it is complete. `false`: padding stands in place of a value.
    fn push(&mut self, symbol: Symbol, out: &mut Vec<u8>) -> bool {
        if let Some(place) = self.symbols.get_mut(self.filled) {
            *place = symbol;
        }
        self.filled += 1;
        if self.filled < self.symbols.len() {
            return true;
        }
        self.filled = 0;
        match self.symbols {
            [Symbol::Value(a), Symbol::Value(b), Symbol::Padding, _] => flush([a, b, 0, 0], 2, out),
            [Symbol::Value(a), Symbol::Value(b), Symbol::Value(c), Symbol::Padding] => {
                flush([a, b, c, 0], 3, out)
            }
            [Symbol::Value(a), Symbol::Value(b), Symbol::Value(c), Symbol::Value(d)] => {
                flush([a, b, c, d], 4, out)
            }
            _ => return false,
        }
        true
    }
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
        assert_eq!(get(b"SGVs bG8=", Base64Mode::Rfc2045), Some(b"Hello".to_vec()));
        assert_eq!(get(b"SGVs bG8=", Base64Mode::Rfc4648), Some(b"Hel".to_vec()));
        assert_eq!(get(b"SGVs bG8=", Base64Mode::Strict), None);
        // A single symbol is no byte, and a text that ends with one decodes to nothing.
        assert_eq!(get(b"ajabab255 evi", Base64Mode::Rfc4648), None);
        assert_eq!(get(b"ajabab25", Base64Mode::Rfc4648).map(|bytes| bytes.len()), Some(6));
        assert_eq!(get(b"ajabab255", Base64Mode::Rfc2045).map(|bytes| bytes.len()), Some(6));
        assert_eq!(get(b"SGVsbG8=", Base64Mode::Strict), Some(b"Hello".to_vec()));
        for text in [&b"SGVsbG8"[..], b"SG=sbG8h", b"SGVs===="] {
            assert_eq!(get(text, Base64Mode::Strict), None);
        }
    }

    /// Suricata 8.0.8 gives the same results.
    #[test]
    fn text_goes_on_behind_padding() {
        let get = |text: &[u8], mode| {
            let mut out = Vec::new();
            decode(text, mode, &mut out).then_some(out)
        };
        for mode in [Base64Mode::Rfc2045, Base64Mode::Rfc4648] {
            assert_eq!(get(b"SGV=bG8h", mode), Some(b"Helo!".to_vec()));
            assert_eq!(get(b"SG=sbG8h", mode), Some(b"Hlo!".to_vec()));
            assert_eq!(get(b"bar=abc=", mode), Some(b"m\xaai\xb7".to_vec()));
            // Padding in place of a value: none of the text is base64.
            for text in [&b"SGVs=bG8"[..], b"SGVs====", b"=SGV", b"S=GV"] {
                assert_eq!(get(text, mode), None);
            }
        }
        assert_eq!(get(b"SGVsbG", Base64Mode::Rfc2045), Some(b"Hel".to_vec()));
        assert_eq!(get(b"SGVsbG", Base64Mode::Rfc4648), Some(b"Hell".to_vec()));
        let mut out = Vec::new();
        decode_lenient(b"SGVs\r\nbG8-x", &mut out);
        assert_eq!(out, b"Hello");
    }
}
