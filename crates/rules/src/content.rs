// SPDX-License-Identifier: Apache-2.0
//! The pattern language of `content` and related keywords: text with hexadecimal runs between bars, `"abc|0d
//! 0a|def"`. `"`, `;`, `:` and `\` need a backslash before them. Errors are those of Suricata 8 (user guide,
//! "Payload Keywords"; odd corners by its observed behaviour).

use crate::argument::{ArgumentError, unwrap_value};

/// A parsed pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ContentPattern {
    /// The bytes to search for; never empty.
    pub bytes: Vec<u8>,
    /// A `!` preceded the pattern.
    pub negated: bool,
}

/// Reads the whole value of `content`: `"..."` or `!"..."`. Quotes are mandatory.
///
/// # Errors
/// Offsets count from the value's start.
pub fn parse_content(value: &[u8]) -> Result<ContentPattern, ArgumentError> {
    let argument = unwrap_value(value, true)?;
    if !argument.quoted {
        return Err(ArgumentError::new("the pattern must be in double quotes", 0..value.len()));
    }
    let bytes = parse_pattern(argument.text).map_err(|e| e.shifted(argument.start))?;
    Ok(ContentPattern { bytes, negated: argument.negated })
}

/// Reads a pattern without its quotes.
///
/// # Errors
/// Offsets count from the pattern's start.
pub fn parse_pattern(text: &[u8]) -> Result<Vec<u8>, ArgumentError> {
    let mut out = Vec::with_capacity(text.len());
    let mut hex_from: Option<usize> = None;
    let mut nibble: Option<u8> = None;
    // A backslash applies to the next byte even across bars, and that byte must be one that needs an escape.
    let mut escaped: Option<usize> = None;
    let mut converted = false;
    for (at, byte) in text.iter().copied().enumerate() {
        if byte == b'|' {
            if nibble.is_some() {
                let message = "half a byte before the bar: hexadecimal digits come in pairs";
                return Err(ArgumentError::new(message, at - 1..at));
            }
            hex_from = if hex_from.is_some() { None } else { Some(at) };
        } else if byte == b'\\' && escaped.is_none() {
            escaped = Some(at);
        } else if hex_from.is_some() {
            let Some(digit) = char::from(byte).to_digit(16) else {
                if matches!(byte, b' ' | b',') {
                    continue;
                }
                let message = format!("`{}` is not a hexadecimal digit", byte.escape_ascii());
                return Err(ArgumentError::new(message, at..at + 1));
            };
            let digit = (digit & 0xf) as u8;
            nibble = match nibble {
                None => Some(digit),
                Some(high) => {
                    out.push(high << 4 | digit);
                    converted = true;
                    None
                }
            };
        } else if let Some(from) = escaped.take() {
            if !matches!(byte, b':' | b';' | b'\\' | b'"') {
                let message = format!(
                    "`{}` cannot be escaped; a backslash itself is written `\\\\` or `|5c|`",
                    byte.escape_ascii()
                );
                return Err(ArgumentError::new(message, from..at + 1));
            }
            out.push(byte);
            converted = true;
        } else if byte == b'"' {
            return Err(ArgumentError::new("write a quote in the pattern as `\\\"`", at..at + 1));
        } else {
            out.push(byte);
        }
    }
    if let Some(from) = hex_from {
        return Err(ArgumentError::new("the bar that ends the hexadecimal run is missing", from..from + 1));
    }
    if !converted {
        // Suricata works in place and shortens the pattern only if an escape or a byte was converted: the
        // bytes of `||` or of a last backslash stay at the end.
        out.extend_from_slice(text.get(out.len()..).unwrap_or_default());
    }
    if out.is_empty() {
        return Err(ArgumentError::new("the pattern is empty", 0..text.len()));
    }
    if out.len() > usize::from(u16::MAX) {
        return Err(ArgumentError::new("the pattern is longer than 65535 bytes", 0..text.len()));
    }
    Ok(out)
}

/// Writes bytes as a pattern without quotes, which parses back to the same bytes.
#[must_use]
pub fn format_pattern(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    let mut hex = false;
    for byte in bytes {
        let plain = matches!(byte, b' '..=b'~') && !matches!(byte, b'|' | b'"' | b';' | b':' | b'\\');
        if plain == hex {
            out.push('|');
        } else if hex {
            out.push(' ');
        }
        hex = !plain;
        if plain {
            out.push(char::from(*byte));
        } else {
            out.push_str(&format!("{byte:02x}"));
        }
    }
    if hex {
        out.push('|');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_and_bytes() {
        let c = parse_content(br#"!"abc|0d 0a|d\"\;\:\\""#).unwrap();
        assert_eq!((c.bytes.as_slice(), c.negated), (b"abc\r\nd\";:\\".as_slice(), true));
        assert_eq!(parse_pattern(b"|0D0a,20|").unwrap(), b"\r\n ");
        assert_eq!(parse_pattern(b"a||b").unwrap(), b"ab|b");
        assert_eq!(parse_pattern(b"ab\\").unwrap(), b"ab\\");
        assert_eq!(parse_pattern(b"|41|b\\").unwrap(), b"Ab");
    }

    #[test]
    fn errors_have_their_place() {
        let at = |t: &[u8]| parse_content(t).map_err(|e| (e.start, e.end)).unwrap_err();
        assert_eq!(at(b"\"a|0|\""), (3, 4));
        assert_eq!(at(b"\"a|0g|\""), (4, 5));
        assert_eq!(at(b"\"a|00\""), (2, 3));
        assert_eq!(at(b"\"a\\n\""), (2, 4));
        assert_eq!(at(b"\"a\"b\""), (2, 3));
        assert_eq!(at(b"abc"), (0, 3));
        assert_eq!(at(b"\"\""), (0, 2));
        assert_eq!(at(b"\"abc"), (0, 4));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse_content(&bytes);
            let _ = parse_pattern(&bytes);
        }

        #[test]
        fn what_is_written_reads_back(bytes in proptest::collection::vec(any::<u8>(), 1..64)) {
            prop_assert_eq!(parse_pattern(format_pattern(&bytes).as_bytes()).unwrap(), bytes);
        }
    }
}
