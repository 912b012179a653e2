// SPDX-License-Identifier: Apache-2.0
//! Writes JSON text straight into a byte buffer.
//!
//! EVE needs two things that a general serializer does not have: the field order of Suricata's records, and
//! its form of bytes that are not UTF-8 (each such byte as the text `\xHH`). A buffer is reused from event to
//! event, so writing an event does not allocate.

use crate::harmless::is_control;
use crate::text::{push_address, push_hex, push_mac, push_timestamp};
use bartizan_base::Timestamp;
use std::net::IpAddr;

/// Writes one JSON value into a reused buffer.
///
/// Keys and values are written in the order of the calls; objects and arrays that were opened must
/// be closed. A key whose value would be null is not written at all (EVE is never null).
#[derive(Debug, Default)]
pub struct JsonWriter {
    out: Vec<u8>,
    /// Whether the next key or item needs a comma before it.
    comma: bool,
}

impl JsonWriter {
    /// An empty writer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Clears the text and keeps the memory.
    pub fn clear(&mut self) {
        self.out.clear();
        self.comma = false;
    }

    /// The text written so far.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.out
    }

    /// A position to return to with [`JsonWriter::rewind`]; for objects that may turn out empty.
    #[must_use]
    pub fn mark(&self) -> JsonMark {
        JsonMark { length: self.out.len(), comma: self.comma }
    }

    /// Removes everything written since the mark.
    pub fn rewind(&mut self, mark: JsonMark) {
        self.out.truncate(mark.length);
        self.comma = mark.comma;
    }

    /// Opens an object as the value of the last `key` or as an array item.
    pub fn begin_object(&mut self) {
        self.separate();
        self.out.push(b'{');
        self.comma = false;
    }

    /// Closes an object.
    pub fn end_object(&mut self) {
        self.out.push(b'}');
        self.comma = true;
    }

    /// Opens an array as the value of the last `key` or as an array item.
    pub fn begin_array(&mut self) {
        self.separate();
        self.out.push(b'[');
        self.comma = false;
    }

    /// Closes an array.
    pub fn end_array(&mut self) {
        self.out.push(b']');
        self.comma = true;
    }

    /// Writes a key; the value must follow.
    pub fn key(&mut self, key: &str) {
        self.separate();
        escape_into(&mut self.out, key.as_bytes());
        self.out.push(b':');
        self.comma = false;
    }

    /// Opens an object under a key.
    pub fn object(&mut self, key: &str) {
        self.key(key);
        self.begin_object();
    }

    /// Opens an array under a key.
    pub fn array(&mut self, key: &str) {
        self.key(key);
        self.begin_array();
    }

    /// A string field.
    pub fn str(&mut self, key: &str, value: &str) {
        self.key(key);
        self.item_str(value);
    }

    /// A string field of foreign bytes: valid UTF-8 unchanged, otherwise every byte from 0x80 on as the text
    /// `\xHH`.
    pub fn text(&mut self, key: &str, value: &[u8]) {
        self.key(key);
        self.item_text(value);
    }

    /// A string field of lower-case hexadecimal digits.
    pub fn hex(&mut self, key: &str, value: &[u8]) {
        self.key(key);
        self.separate();
        self.out.push(b'"');
        for byte in value {
            push_hex(&mut self.out, *byte);
        }
        self.out.push(b'"');
        self.comma = true;
    }

    /// A string field in base64 (RFC 4648 section 4).
    pub fn base64(&mut self, key: &str, value: &[u8]) {
        self.key(key);
        self.separate();
        self.out.push(b'"');
        base64_into(&mut self.out, value);
        self.out.push(b'"');
        self.comma = true;
    }

    /// A number field.
    pub fn num(&mut self, key: &str, value: impl itoa::Integer) {
        self.key(key);
        self.item_num(value);
    }

    /// A boolean field.
    pub fn bool(&mut self, key: &str, value: bool) {
        self.key(key);
        self.separate();
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
        self.comma = true;
    }

    /// A number with a fraction. Nothing is written for infinities and not-a-number, which JSON lacks.
    pub fn float(&mut self, key: &str, value: f64) {
        if value.is_finite() {
            self.key(key);
            self.separate();
            self.out.extend_from_slice(value.to_string().as_bytes());
            self.comma = true;
        }
    }

    /// A string field with a packet-clock time: `2018-10-10T09:24:31.516380+0000`.
    pub fn time(&mut self, key: &str, at: Timestamp) {
        self.plain(key, |out| push_timestamp(out, at));
    }

    /// A string field with an address; IPv6 in full, eight groups of four digits.
    pub fn address(&mut self, key: &str, address: IpAddr) {
        self.plain(key, |out| push_address(out, address));
    }

    /// A string field with an Ethernet address.
    pub fn mac(&mut self, key: &str, mac: [u8; 6]) {
        self.plain(key, |out| push_mac(out, mac));
    }

    /// An Ethernet address as an array item.
    pub fn item_mac(&mut self, mac: [u8; 6]) {
        self.item_plain(|out| push_mac(out, mac));
    }

    /// A string field of foreign bytes with a dot in place of all but printable ASCII and line ends, as
    /// Suricata writes payloads and variables.
    pub fn printable(&mut self, key: &str, value: &[u8]) {
        self.plain(key, |out| {
            for byte in value {
                match byte {
                    b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
                    b'\n' => out.extend_from_slice(b"\\n"),
                    b'\r' => out.extend_from_slice(b"\\r"),
                    0x20..=0x7e => out.push(*byte),
                    _ => out.push(b'.'),
                }
            }
        });
    }

    /// A string field whose text needs no escaping, written in place.
    pub(crate) fn plain(&mut self, key: &str, write: impl FnOnce(&mut Vec<u8>)) {
        self.key(key);
        self.item_plain(write);
    }

    fn item_plain(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.separate();
        self.out.push(b'"');
        write(&mut self.out);
        self.out.push(b'"');
        self.comma = true;
    }

    /// A string item of an array (or the value of a key just written).
    pub fn item_str(&mut self, value: &str) {
        self.separate();
        escape_into(&mut self.out, value.as_bytes());
        self.comma = true;
    }

    /// An item of foreign bytes; see [`JsonWriter::text`].
    pub fn item_text(&mut self, value: &[u8]) {
        self.separate();
        if core::str::from_utf8(value).is_ok() {
            escape_into(&mut self.out, value);
        } else {
            self.out.push(b'"');
            for byte in value {
                match byte {
                    b'"' | b'\\' => self.out.extend_from_slice(&[b'\\', *byte]),
                    b'\n' => self.out.extend_from_slice(b"\\n"),
                    b'\r' => self.out.extend_from_slice(b"\\r"),
                    b'\t' => self.out.extend_from_slice(b"\\t"),
                    0x20..=0x7e => self.out.push(*byte),
                    control @ (0..=0x1f | 0x7f) => {
                        self.out.extend_from_slice(b"\\u00");
                        push_hex(&mut self.out, *control);
                    }
                    other => {
                        self.out.extend_from_slice(b"\\\\x");
                        push_hex(&mut self.out, *other);
                    }
                }
            }
            self.out.push(b'"');
        }
        self.comma = true;
    }

    /// A number item of an array (or the value of a key just written).
    pub fn item_num(&mut self, value: impl itoa::Integer) {
        self.separate();
        self.out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        self.comma = true;
    }

    /// JSON text made elsewhere (by another writer or a serializer), as the value of `key`.
    pub fn raw(&mut self, key: &str, json: &[u8]) {
        self.key(key);
        self.item_raw(json);
    }

    /// JSON text made elsewhere, as an array item or the value of a key just written.
    pub fn item_raw(&mut self, json: &[u8]) {
        self.separate();
        self.out.extend_from_slice(json);
        self.comma = true;
    }

    fn separate(&mut self) {
        if self.comma {
            self.out.push(b',');
        }
        self.comma = false;
    }
}

/// A position in the text; see [`JsonWriter::mark`]. Two marks are equal when nothing was written in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonMark {
    length: usize,
    comma: bool,
}

/// Writes the text in quotes. Characters that a terminal would not just display are written as `\u009b`, too,
/// which is the same text for a parser: events go to standard output, and people read the files. Suricata
/// writes DEL and C1 unescaped.
fn escape_into(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    let mut rest = text;
    // Nearly all text needs no escape, so it is copied in runs.
    while let Some((plain, special)) = rest.split_at_checked(plain_run(rest)) {
        out.extend_from_slice(plain);
        let Some((byte, after)) = special.split_first() else { break };
        rest = special;
        let mut next = after;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            0..=0x1f | 0x7f => {
                out.extend_from_slice(b"\\u00");
                push_hex(out, *byte);
            }
            0xc2 | 0xd8 | 0xe2 => match control(rest) {
                Some((code, length)) => {
                    out.extend_from_slice(b"\\u");
                    let [high, low] = code.to_be_bytes();
                    push_hex(out, high);
                    push_hex(out, low);
                    next = rest.get(length..).unwrap_or_default();
                }
                None => out.push(*byte),
            },
            other => out.push(*other),
        }
        rest = next;
    }
    out.push(b'"');
}

/// Number of bytes at the beginning of `text` that need no escape.
fn plain_run(text: &[u8]) -> usize {
    let (words, rest) = text.as_chunks::<8>();
    let run = 8 * words.iter().take_while(|word| is_plain(u64::from_le_bytes(**word))).count();
    if run == text.len() - rest.len() {
        // The remaining bytes, together with some earlier ones.
        let last = match (text.last_chunk::<8>(), text.first_chunk::<4>(), text.last_chunk::<4>()) {
            _ if rest.is_empty() => return text.len(),
            (Some(last), ..) => Some(u64::from_le_bytes(*last)),
            (None, Some(first), Some(last)) => {
                Some(u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last)))
            }
            _ => None,
        };
        if last.is_some_and(is_plain) {
            return text.len();
        }
    }
    let more = text.get(run..).and_then(|rest| rest.iter().position(|byte| is_special(*byte)));
    more.map_or(text.len(), |more| run + more)
}

/// Whether none of a word's bytes is special, tested for all at once: all are ASCII, and none is a control
/// character, a quotation mark or a backslash. Source: "Bit Twiddling Hacks", Sean Eron Anderson, bytes less
/// than n in a word.
const fn is_plain(word: u64) -> bool {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES << 7;
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    let marks = (quote.wrapping_sub(ONES) & !quote) | (backslash.wrapping_sub(ONES) & !backslash);
    let beyond = word | word.wrapping_add(ONES);
    (control | marks | beyond) & HIGH == 0
}

/// Whether [`escape_into`] has to inspect a byte.
const fn is_special(byte: u8) -> bool {
    byte < 0x20 || matches!(byte, b'"' | b'\\' | 0x7f | 0xc2 | 0xd8 | 0xe2)
}

/// The control character at the beginning of UTF-8 text, and its length. Beyond ASCII only characters with
/// the first byte 0xc2 (C1), 0xd8 or 0xe2 (direction of text) can be one.
fn control(text: &[u8]) -> Option<(u16, usize)> {
    let (code, length) = match *text {
        [first @ (0xc2 | 0xd8), second, ..] => (u16::from(first & 0x1f) << 6 | u16::from(second & 0x3f), 2),
        [0xe2, second, third, ..] => (0x2000 | u16::from(second & 0x3f) << 6 | u16::from(third & 0x3f), 3),
        _ => return None,
    };
    char::from_u32(code.into()).filter(|c| is_control(*c)).map(|_| (code, length))
}

pub(crate) fn base64_into(out: &mut Vec<u8>, bytes: &[u8]) {
    let symbol = |sextet: u32| match (sextet & 63) as u8 {
        n @ 0..=25 => b'A' + n,
        n @ 26..=51 => b'a' + (n - 26),
        n @ 52..=61 => b'0' + (n - 52),
        62 => b'+',
        _ => b'/',
    };
    for group in bytes.chunks(3) {
        let mut padded = [0u8; 3];
        for (to, from) in padded.iter_mut().zip(group) {
            *to = *from;
        }
        let [a, b, c] = padded;
        let word = u32::from_be_bytes([0, a, b, c]);
        out.push(symbol(word >> 18));
        out.push(symbol(word >> 12));
        out.push(if group.len() > 1 { symbol(word >> 6) } else { b'=' });
        out.push(if group.len() > 2 { symbol(word) } else { b'=' });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_shows_what_is_written_and_does_nothing_else() {
        for c in (0..=0xffff).filter_map(char::from_u32) {
            let text = format!("a{c}b");
            let mut w = JsonWriter::new();
            w.item_text(text.as_bytes());
            let json = std::str::from_utf8(w.bytes()).unwrap();
            assert!(!json.chars().any(is_control), "{c:?}: {json:?}");
            assert_eq!(serde_json::from_str::<String>(json).unwrap(), text);
            // Nothing else changes.
            assert_eq!(json.contains("\\u"), is_control(c) && !"\n\r\t\u{8}\u{c}".contains(c), "{c:?}");
        }
        let mut w = JsonWriter::new();
        w.item_text(b"\xc2\x9b\xff\x7f\x1b");
        assert_eq!(w.bytes(), br#""\\xc2\\x9b\\xff\u007f\u001b""#);
    }

    #[test]
    fn a_special_byte_is_found_wherever_it_stands() {
        for special in (0..=255).filter(|byte| is_special(*byte)) {
            for length in 1..28 {
                for at in 0..length {
                    let mut text = vec![b'~'; length];
                    text[at] = special;
                    assert_eq!(plain_run(&text), at, "{special:#x} at {at} of {length}");
                }
            }
        }
        for byte in (0..=255).filter(|byte| !is_special(*byte)) {
            for length in 0..28 {
                assert_eq!(plain_run(&vec![byte; length]), length, "{byte:#x}");
            }
        }
    }

    #[test]
    fn what_is_written_is_json() {
        let mut w = JsonWriter::new();
        w.begin_object();
        w.str("a", "x\"\\\n\u{1}é");
        w.text("b", b"ok \xff\"\\\n");
        w.object("c");
        w.num("n", -5i64);
        w.array("l");
        w.item_num(1u8);
        w.item_str("two");
        w.begin_object();
        w.bool("t", true);
        w.end_object();
        w.end_array();
        w.end_object();
        let mark = w.mark();
        w.object("gone");
        w.end_object();
        w.rewind(mark);
        w.base64("d", b"any carnal pleas");
        w.hex("h", &[0, 0xab]);
        w.float("f", 4.137370175000773);
        w.float("never", f64::NAN);
        w.printable("p", b"a\"\\\t\r\n\xff");
        w.end_object();
        let v: serde_json::Value = serde_json::from_slice(w.bytes()).expect("valid JSON");
        assert_eq!(v["a"], "x\"\\\n\u{1}é");
        assert_eq!(v["b"], "ok \\xff\"\\\n");
        assert_eq!(v["c"]["l"][2]["t"], true);
        assert_eq!(v["d"], "YW55IGNhcm5hbCBwbGVhcw==");
        assert_eq!(v["h"], "00ab");
        assert_eq!(v["f"], 4.137370175000773);
        assert!(v.get("never").is_none());
        assert_eq!(v["p"], "a\"\\.\r\n.");
        assert!(v.get("gone").is_none());
    }
}
