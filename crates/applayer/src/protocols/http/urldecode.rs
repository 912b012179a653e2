// SPDX-License-Identifier: Apache-2.0
//! Percent decoding of paths and queries, UTF-8 to one byte per character, dot segments.
//!
//! Sources: RFC 3986 section 5.2.4 (dot segments), the behaviour of servers as libhtp (Rust port, 8.0) models
//! it: `%uXXXX`, overlong UTF-8, best-fit look-alikes, invalid encodings.

use super::bestfit::bestfit;
use super::bytes::after;
use super::settings::{InvalidEncoding, UriSettings};

/// Meaning of the text after a percent sign.
enum Percent {
    /// A byte, and the number of characters used after the sign.
    Byte(u8, usize),
    /// The sign stands for itself.
    Sign,
    /// The sign is removed.
    Nothing,
}

const fn nibble(digit: u8) -> u8 {
    // Also computes a value for characters that are no digits, as some servers do.
    if digit >= b'A' { (digit & 0xdf).wrapping_sub(b'A').wrapping_add(10) } else { digit.wrapping_sub(b'0') }
}

const fn two_digits(high: u8, low: u8) -> u8 {
    nibble(high).wrapping_mul(16).wrapping_add(nibble(low))
}

fn invalid(settings: &UriSettings, decoded: Option<(u8, usize)>) -> Percent {
    match (settings.invalid, decoded) {
        (InvalidEncoding::Remove, _) => Percent::Nothing,
        (InvalidEncoding::Decode, Some((byte, used))) => Percent::Byte(byte, used),
        _ => Percent::Sign,
    }
}

fn u_byte(digits: [u8; 4], settings: &UriSettings) -> u8 {
    let [a, b, c, d] = digits;
    let (high, low) = (two_digits(a, b), two_digits(c, d));
    if high == 0 {
        return low;
    }
    bestfit(u32::from(high) << 8 | u32::from(low)).unwrap_or(settings.replacement)
}

fn percent(rest: &[u8], settings: &UriSettings) -> Percent {
    match rest {
        [b'u' | b'U', tail @ ..] => {
            if !settings.decode_u {
                return Percent::Sign;
            }
            match tail {
                [a, b, c, d, ..] => {
                    let digits = [*a, *b, *c, *d];
                    let byte = u_byte(digits, settings);
                    if digits.iter().all(u8::is_ascii_hexdigit) {
                        Percent::Byte(byte, 5)
                    } else {
                        invalid(settings, Some((byte, 5)))
                    }
                }
                _ => invalid(settings, None),
            }
        }
        [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => Percent::Byte(two_digits(*a, *b), 2),
        [a, b, ..] => invalid(settings, Some((two_digits(*a, *b), 2))),
        _ => invalid(settings, None),
    }
}

/// Decodes a path: percent encodings, backslashes, repeated separators.
pub(super) fn decode_path(input: &[u8], settings: &UriSettings) -> Vec<u8> {
    let mut out = Vec::with_capacity(input.len());
    let mut rest = input;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        let mut byte = *byte;
        if byte == b'%' {
            match percent(tail, settings) {
                Percent::Byte(0, _) if settings.encoded_nul_ends => break,
                Percent::Byte(found, used) => {
                    let separator = found == b'/' || (settings.backslash_to_slash && found == b'\\');
                    // Encodings of separators by `%u` are decoded in any case.
                    if !(separator && !settings.decode_separators && used == 2) {
                        byte = found;
                        rest = after(tail, used);
                    }
                }
                Percent::Sign => {}
                Percent::Nothing => continue,
            }
        } else if byte == 0 && settings.raw_nul_ends {
            break;
        }
        if byte == b'\\' && settings.backslash_to_slash {
            byte = b'/';
        }
        if settings.lowercase {
            byte = byte.to_ascii_lowercase();
        }
        if byte == b'/' && settings.compress_separators && out.last() == Some(&b'/') {
            continue;
        }
        out.push(byte);
    }
    out
}

/// Decodes a query, a host, credentials or a fragment.
pub(super) fn decode_component(input: &[u8], settings: &UriSettings) -> Vec<u8> {
    let mut out = Vec::with_capacity(input.len());
    let mut rest = input;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match byte {
            b'%' => match percent(tail, settings) {
                Percent::Byte(0, _) if settings.encoded_nul_ends => break,
                Percent::Byte(found, used) => {
                    out.push(found);
                    rest = after(tail, used);
                }
                Percent::Sign => out.push(b'%'),
                Percent::Nothing => {}
            },
            b'+' if settings.plus_to_space => out.push(b' '),
            0 if settings.raw_nul_ends => break,
            other => out.push(*other),
        }
    }
    out
}

/// Number of continuation bytes that a first byte declares, and its bits; `None`: it cannot begin a
/// character.
const fn announced(first: u8) -> Option<(u32, u32)> {
    match first {
        0xc0..=0xdf => Some((1, (first & 0x1f) as u32)),
        0xe0..=0xef => Some((2, (first & 0x0f) as u32)),
        0xf0..=0xf4 => Some((3, (first & 0x07) as u32)),
        _ => None,
    }
}

/// Turns UTF-8, overlong forms included, into one byte per character; bytes that are no UTF-8 become the
/// replacement byte.
pub(super) fn utf8_to_bytes(input: &[u8], settings: &UriSettings) -> Vec<u8> {
    if input.is_ascii() {
        return input.to_vec();
    }
    let mut out = Vec::with_capacity(input.len());
    let mut index = 0;
    while let Some(first) = input.get(index).copied() {
        if first < 0x80 {
            out.push(first);
            index += 1;
            continue;
        }
        let Some((more, bits)) = announced(first) else {
            out.push(settings.replacement);
            index += 1;
            continue;
        };
        let mut point = bits;
        let mut seen = 1;
        let mut broken = false;
        while seen <= more as usize {
            match input.get(index + seen).copied() {
                Some(byte @ 0x80..=0xbf) if !(seen == 1 && out_of_range(first, byte)) => {
                    point = point << 6 | u32::from(byte & 0x3f);
                    seen += 1;
                }
                Some(_) => {
                    broken = true;
                    break;
                }
                None => {
                    // The input ends within a character: one replacement for each byte but the first.
                    out.extend(core::iter::repeat_n(settings.replacement, seen - 1));
                    return out;
                }
            }
        }
        out.push(if broken {
            settings.replacement
        } else {
            u8::try_from(point).ok().or_else(|| bestfit(point)).unwrap_or(settings.replacement)
        });
        index += seen;
    }
    out
}

/// Whether two bytes begin a surrogate or a code point beyond U+10FFFF.
const fn out_of_range(first: u8, second: u8) -> bool {
    (first == 0xed && second > 0x9f) || (first == 0xf4 && second > 0x8f)
}

/// Removes dot segments. As in servers, and unlike in the RFC, the result has no slash in place of a final
/// `/.` or `/..`.
pub(super) fn remove_dot_segments(path: &[u8]) -> Vec<u8> {
    #[derive(PartialEq)]
    enum DotSegmentState {
        Start,
        Dot,
        DotDot,
        Slash,
        SlashDot,
        SlashDotDot,
        AfterDots,
        Within,
    }
    fn up(out: &mut Vec<u8>) {
        let keep = out.iter().rposition(|b| *b == b'/').unwrap_or(0);
        out.truncate(keep);
    }
    let mut out: Vec<u8> = Vec::with_capacity(path.len());
    let mut at = DotSegmentState::Start;
    for byte in path.iter().copied() {
        let pending: &[u8] = match (&at, byte) {
            (DotSegmentState::Start, b'.') => {
                at = DotSegmentState::Dot;
                continue;
            }
            (DotSegmentState::Dot, b'.') => {
                at = DotSegmentState::DotDot;
                continue;
            }
            (DotSegmentState::Start | DotSegmentState::Within, b'/') => {
                at = DotSegmentState::Slash;
                continue;
            }
            (DotSegmentState::Dot | DotSegmentState::DotDot, b'/') => {
                at = DotSegmentState::Start;
                continue;
            }
            (DotSegmentState::Slash | DotSegmentState::AfterDots, b'.') => {
                at = DotSegmentState::SlashDot;
                continue;
            }
            (DotSegmentState::SlashDot, b'.') => {
                at = DotSegmentState::SlashDotDot;
                continue;
            }
            (DotSegmentState::SlashDot, b'/') => {
                at = DotSegmentState::AfterDots;
                continue;
            }
            (DotSegmentState::SlashDotDot, b'/') => {
                up(&mut out);
                at = DotSegmentState::AfterDots;
                continue;
            }
            (DotSegmentState::Start | DotSegmentState::Within, _) => b"",
            (DotSegmentState::Dot, _) => b".",
            (DotSegmentState::DotDot, _) => b"..",
            (DotSegmentState::Slash | DotSegmentState::AfterDots, _) => b"/",
            (DotSegmentState::SlashDot, _) => b"/.",
            (DotSegmentState::SlashDotDot, _) => b"/..",
        };
        out.extend_from_slice(pending);
        out.push(byte);
        at = DotSegmentState::Within;
    }
    match at {
        DotSegmentState::Slash => out.push(b'/'),
        DotSegmentState::SlashDotDot => up(&mut out),
        _ => {}
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> UriSettings {
        UriSettings {
            backslash_to_slash: true,
            decode_separators: true,
            compress_separators: true,
            decode_u: true,
            utf8_bestfit: true,
            ..UriSettings::default()
        }
    }

    #[test]
    fn paths() {
        for (input, expected) in [
            ("/a%2f..%2Fb/%u0041", "/a/../b/A"),
            ("/one\\\\/two\\/%5cthree", "/one/two/three"),
            ("/%", "/%"),
            ("/%4", "/%4"),
            ("/%zz", "/%zz"),
            ("/%u12", "/%u12"),
            ("/%uff0f", "/"),
            ("/%00x", "/\0x"),
            ("/%2541", "/%41"),
        ] {
            assert_eq!(decode_path(input.as_bytes(), &ids()), expected.as_bytes(), "{input}");
        }
        let remove = UriSettings { invalid: InvalidEncoding::Remove, ..ids() };
        assert_eq!(decode_path(b"/%zz%", &remove), b"/zz");
        let nul = UriSettings { encoded_nul_ends: true, ..ids() };
        assert_eq!(decode_path(b"/a%00b", &nul), b"/a");
        let keep = UriSettings { decode_separators: false, ..ids() };
        assert_eq!(decode_path(b"/a%2fb", &keep), b"/a%2fb");
    }

    #[test]
    fn components() {
        assert_eq!(decode_component(b"a+b%20c%", &ids()), b"a+b c%");
        let plus = UriSettings { plus_to_space: true, ..ids() };
        assert_eq!(decode_component(b"a+b", &plus), b"a b");
    }

    #[test]
    fn utf8() {
        for (input, expected) in [
            (&b"\xf1.\xf1\xef\xbd\x9dabcd"[..], &b"?.?}abcd"[..]),
            (b"\xf0\x90\x8d\xff", b"??"),
            (b"\xe2\x82", b"?"),
            (b"\xc2\xff\xf0", b"??"),
            (b"\xf0\x90\x28\xbc", b"?(?"),
            (b"\xc0\xaf", b"/"),
            (b"\xc3\xa9", b"\xe9"),
        ] {
            assert_eq!(utf8_to_bytes(input, &ids()), expected, "{input:?}");
        }
    }

    #[test]
    fn dots() {
        for (input, expected) in [
            ("/a/b/c/./../../g", "/a/g"),
            ("mid/content=5/../6", "mid/6"),
            ("./one", "one"),
            ("../one", "one"),
            (".", ""),
            ("..", ""),
            ("one/.", "one"),
            ("one/..", ""),
            ("/", "/"),
            ("one/../", ""),
            ("/../../../images.gif", "/images.gif"),
            ("/..a/.b", "/..a/.b"),
        ] {
            assert_eq!(remove_dot_segments(input.as_bytes()), expected.as_bytes(), "{input}");
        }
    }
}
