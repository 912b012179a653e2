// SPDX-License-Identifier: Apache-2.0
//! Bytes with enough repetition for near misses, and their notation in rules.

use bartizan_testkit::random::Random;

/// Words that begin with each other and occur more than once.
const WORDS: &[&[u8]] = &[
    b"ab",
    b"abc",
    b"abab",
    b"bar",
    b"Bar",
    b"tok",
    b"toto",
    b"evil",
    b"EVIL",
    b"x",
    b"zz",
    b"12",
    b"007",
    b"255",
    b"\x00\x05",
    b"\x01\x02\x03",
    b"\xff\xfe",
    b"\r\n",
    b" ",
    b"/",
    b"=",
    b"a;b",
    b"\"q\"",
    b"end",
];

/// Random bytes for a payload.
#[must_use]
pub fn data(random: &mut Random, words: usize) -> Vec<u8> {
    let mut data = Vec::new();
    for _ in 0..words {
        match random.below(10) {
            0 => data.extend(random.bytes(3)),
            1 => {
                let fill = random.within(1, 12);
                data.extend(random.letters(fill));
            }
            _ => data.extend_from_slice(WORDS[random.below(WORDS.len())]),
        }
    }
    data
}

/// Random letters and digits for a name.
#[must_use]
pub fn name(random: &mut Random, words: usize) -> String {
    const PARTS: &[&str] = &["ab", "abc", "Bar", "tok", "evil", "x", "007", "a1", "end", "Toto"];
    (0..words).map(|_| *random.pick(PARTS)).collect()
}

/// A random place in bytes: offset and length; not empty unless the bytes are.
#[must_use]
pub fn place(random: &mut Random, data: &[u8], longest: usize) -> (usize, usize) {
    let length = random.within(1, longest.min(data.len()).max(1));
    let from = random.below(data.len().saturating_sub(length) + 1);
    (from, length.min(data.len()))
}

/// The bytes of a place; two other bytes if it is empty.
#[must_use]
pub fn at(data: &[u8], place: (usize, usize)) -> Vec<u8> {
    match data.get(place.0..place.0 + place.1) {
        Some(bytes) if !bytes.is_empty() => bytes.to_vec(),
        _ => b"zz".to_vec(),
    }
}

/// The number, or sometimes a neighbour of it.
#[must_use]
pub fn near(random: &mut Random, number: usize) -> i64 {
    number as i64 + *random.pick(&[0, 0, 0, 0, -1, 1])
}

/// The number, or sometimes a neighbour of it, but never negative.
#[must_use]
pub fn near_positive(random: &mut Random, number: usize) -> i64 {
    near(random, number).max(0)
}

/// Bytes in a rule's notation between quotation marks.
#[must_use]
pub fn quoted(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut hex = false;
    for byte in bytes {
        let plain = byte.is_ascii_alphanumeric()
            || matches!(byte, b' ' | b'/' | b'=' | b'.' | b'-' | b'_' | b'&' | b'?');
        if plain == hex {
            text.push('|');
            hex = !hex;
        } else if hex {
            text.push(' ');
        }
        if plain {
            text.push(char::from(*byte));
        } else {
            text.push_str(&format!("{byte:02x}"));
        }
    }
    if hex {
        text.push('|');
    }
    text
}

/// Bytes in the notation of a regular expression.
#[must_use]
pub fn expression(bytes: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b' ';
    bytes
        .iter()
        .map(|byte| if plain(byte) { char::from(*byte).to_string() } else { format!("\\x{byte:02x}") })
        .collect()
}

/// The letters with swapped case.
#[must_use]
pub fn other_case(bytes: &[u8]) -> Vec<u8> {
    bytes
        .iter()
        .map(
            |byte| {
                if byte.is_ascii_uppercase() { byte.to_ascii_lowercase() } else { byte.to_ascii_uppercase() }
            },
        )
        .collect()
}

/// A `content` option.
#[must_use]
pub fn content(bytes: &[u8]) -> String {
    format!("content:\"{}\"", quoted(bytes))
}

/// The bytes that a `content` option searches; `None` for another option, and for negated content.
#[must_use]
pub fn looked_for(option: &str) -> Option<Vec<u8>> {
    let (text, _) = option.strip_prefix("content:\"")?.split_once('"')?;
    let mut bytes = Vec::new();
    for (at, piece) in text.split('|').enumerate() {
        if at % 2 == 0 {
            bytes.extend_from_slice(piece.as_bytes());
        } else {
            bytes.extend(piece.split(' ').filter_map(|byte| u8::from_str_radix(byte, 16).ok()));
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_rules_write_them() {
        assert_eq!(quoted(b"ab\r\ncd\0"), "ab|0d 0a|cd|00|");
        assert_eq!(quoted(b"\xffa"), "|ff|a");
        assert_eq!(looked_for(&content(b"ab\r\ncd\0\"")).unwrap(), b"ab\r\ncd\0\"");
        assert_eq!(looked_for("content:\"|ff|a\"; http_uri").unwrap(), b"\xffa");
        assert!(looked_for("content:!\"a\"").is_none() && looked_for("depth:3").is_none());
        assert_eq!(expression(b"a/b"), "a\\x2fb");
        assert_eq!(other_case(b"aB1"), b"Ab1");
    }
}
