// SPDX-License-Identifier: Apache-2.0
//! Values within messages: protocol versions, status codes, lengths, host and port, authorization schemes,
//! parameters of header values, content ranges. As lenient as libhtp (Rust port, 8.0).

use super::bytes::{after, find, is_blank, span, starts_nocase};
use core::str::FromStr as _;

/// A protocol version, ordered for comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HttpVersion {
    /// The text is no version.
    Invalid,
    /// No text was seen yet.
    #[default]
    Unknown,
    V09,
    V10,
    V11,
}

/// Reads `HTTP/1.1` and the spellings that servers accept. Also returns whether the spelling is unusual.
pub(super) fn version(text: &[u8]) -> (HttpVersion, bool) {
    let space = |b: u8| b.is_ascii_whitespace();
    let (_, rest) = span(text, space);
    if !starts_nocase(rest, b"http") {
        return (HttpVersion::Invalid, false);
    }
    let (before_slash, rest) = span(after(rest, 4), space);
    let [b'/', rest @ ..] = rest else { return (HttpVersion::Invalid, false) };
    let (padding, rest) = span(rest, |b| space(b) || b == b'0');
    let (version, rest) = match rest {
        [b'.', b'9', rest @ ..] => (HttpVersion::V09, rest),
        [b'1', b'.', b'0', rest @ ..] => (HttpVersion::V10, rest),
        [b'1', b'.', b'1', rest @ ..] => (HttpVersion::V11, rest),
        _ => return (HttpVersion::Invalid, false),
    };
    if !span(rest, space).1.is_empty() {
        return (HttpVersion::Invalid, false);
    }
    // `HTTP/0.9` is read as padding `0` and `.9`, and so counts as unusual.
    (version, !before_slash.is_empty() || !padding.is_empty())
}

/// A status code from 100 to 999.
pub(super) fn status(text: &[u8]) -> Option<u16> {
    let (_, rest) = span(text, is_blank);
    let (digits, rest) = span(rest, |b| b.is_ascii_digit());
    if digits.is_empty() || !span(rest, is_blank).1.is_empty() {
        return None;
    }
    let code: u16 = core::str::from_utf8(digits).ok()?.parse().ok()?;
    (100..=999).contains(&code).then_some(code)
}

/// A `Content-Length`, and whether bytes before or after the number were skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContentLength {
    pub length: Option<u64>,
    pub junk_before: bool,
    pub junk_after: bool,
}

/// Reads the first number in the value.
pub(super) fn content_length(value: &[u8]) -> ContentLength {
    let (_, rest) = span(value, is_blank);
    let (junk, rest) = span(rest, |b| !b.is_ascii_digit());
    let (digits, rest) = span(rest, |b| b.is_ascii_digit());
    if digits.is_empty() {
        return ContentLength { length: None, junk_before: false, junk_after: false };
    }
    let length = core::str::from_utf8(digits).ok().and_then(|d| d.parse().ok());
    let junk_after = !span(rest, is_blank).1.is_empty();
    ContentLength { length, junk_before: !junk.is_empty(), junk_after }
}

/// Whether all receivers read the same length in this value (RFC 9110 section 8.6): digits, possibly repeated
/// as a list of the same digits. A sign, a word or two numbers are skipped by some receivers and read as a
/// part of the number by others, and for some the message then ends with the connection.
pub(super) fn is_plain_content_length(value: &[u8]) -> bool {
    let mut numbers = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let is_number = |number: &[u8]| !number.is_empty() && number.iter().all(u8::is_ascii_digit);
    let Some(first) = numbers.next() else { return false };
    is_number(first) && numbers.all(|number| number == first)
}

/// Registered transfer codings (RFC 9112 section 7) beside `chunked`.
const CODINGS: [&str; 8] =
    ["gzip", "x-gzip", "deflate", "x-deflate", "compress", "x-compress", "br", "identity"];

/// Whether all receivers read chunks with this value: `chunked` stands at the end and only there, after
/// registered codings.
pub(super) fn is_plain_chunked(value: &[u8]) -> bool {
    let mut words = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let is_named = |word: &[u8]| CODINGS.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()));
    words.next_back().is_some_and(|last| last.eq_ignore_ascii_case(b"chunked")) && words.all(is_named)
}

/// A line with a chunk's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkLine {
    /// The length, and whether an extension follows.
    Length(u64, bool),
    /// A length above any limit, or no length at all.
    Unusable,
    /// Not a chunk line.
    Invalid,
}

/// Whether a byte may precede a chunk's length.
pub(super) const fn is_chunk_filler(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n' | b' ' | b'\t' | 0x0b | 0x0c)
}

/// Reads a chunk's length.
pub(super) fn chunk_line(line: &[u8]) -> ChunkLine {
    let (_, rest) = span(line, is_chunk_filler);
    let (digits, rest) = span(rest, |b| b.is_ascii_hexdigit());
    let (_, rest) = span(rest, is_blank);
    if digits.is_empty() && rest.is_empty() {
        return ChunkLine::Unusable;
    }
    let parsed = core::str::from_utf8(digits).ok().and_then(|d| u64::from_str_radix(d, 16).ok());
    match parsed {
        None => ChunkLine::Invalid,
        Some(length) if length > i32::MAX as u64 => ChunkLine::Unusable,
        Some(length) => ChunkLine::Length(length, rest.contains(&b';')),
    }
}

/// Whether all receivers read the same chunk length in this line (RFC 9112 section 7.1): digits, blanks,
/// possibly an extension after a semicolon. Other text is skipped by some receivers and read as a part of the
/// number by others (`0x10`, `1_0`), and for some it is the next request.
pub(super) fn is_plain_chunk_line(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (digits, rest) = span(line, |b| b.is_ascii_hexdigit());
    let (_, rest) = span(rest, is_blank);
    !digits.is_empty() && matches!(rest, [] | [b';', ..]) && !rest.contains(&b'\r')
}

/// Whether these bytes, with or without their line end, are or can become a plain chunk line; `bare`: without
/// an extension.
pub(super) fn may_be_plain_chunk_line(data: &[u8], bare: bool) -> bool {
    let (digits, rest) = span(data, |b| b.is_ascii_hexdigit());
    let (_, rest) = span(rest, is_blank);
    let ends = matches!(rest, b"" | b"\r" | b"\n" | b"\r\n") && (!digits.is_empty() || data.is_empty());
    ends || !bare && !digits.is_empty() && rest.first() == Some(&b';')
}

/// Whether these bytes are or can become the whole text between a chunk's data and the next chunk's length.
pub(super) fn may_be_chunk_end(data: &[u8]) -> bool {
    matches!(data, b"" | b"\r" | b"\r\n" | b"\n")
}

/// Whether these bytes, without a line end yet, can become a chunk line.
pub(super) fn may_be_chunk_line(data: &[u8]) -> bool {
    let (_, rest) = span(data, is_chunk_filler);
    rest.first().is_none_or(u8::is_ascii_hexdigit)
}

/// Host and port in a `Host` header or a CONNECT request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostPort<'a> {
    pub host: &'a [u8],
    /// Text and number of the port; the number is `None` if the text is no number.
    pub port: Option<(&'a [u8], Option<u16>)>,
    pub valid: bool,
}

/// Splits host and port; `None`: the text has no possible host.
pub(super) fn host_port(text: &[u8]) -> Option<HostPort<'_>> {
    let (host, rest) = host(text)?;
    let mut valid = valid_host(host);
    let port = port(rest).map(|(port, _)| (port, port_number(port)));
    match port {
        Some((_, None)) => valid = false,
        None if !rest.is_empty() => valid = false,
        _ => {}
    }
    Some(HostPort { host, port, valid })
}

/// The host at the beginning of a text, and the rest.
pub(super) fn host(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b"//").unwrap_or(text);
    if text.first() == Some(&b'/') {
        return None;
    }
    let (_, text) = span(text, |b| b == b' ');
    let (mut host, rest) = match ipv6_literal(text) {
        Some(length) => text.split_at_checked(length)?,
        None => span(text, |b| !matches!(b, b'/' | b'?' | b'#' | b':')),
    };
    if host.is_empty() {
        return None;
    }
    while let [shorter @ .., b' '] = host {
        host = shorter;
    }
    Some((host, rest))
}

fn ipv6_literal(text: &[u8]) -> Option<usize> {
    let inner = text.strip_prefix(b"[")?;
    let (address, rest) = span(inner, |b| !matches!(b, b'/' | b'?' | b'#' | b']'));
    (!address.is_empty()).then_some(1 + address.len() + usize::from(rest.first() == Some(&b']')))
}

/// The port at the beginning of a text (`:80`), and the rest.
pub(super) fn port(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = text.strip_prefix(b":")?;
    let (_, rest) = span(rest, |b| b == b' ');
    let (port, rest) = span(rest, |b| !matches!(b, b'/' | b'?' | b'#'));
    let (port, _) = span(port, |b| b != b' ');
    (!port.is_empty()).then_some((port, rest))
}

/// A port's number; 0 is no port.
pub(super) fn port_number(text: &[u8]) -> Option<u16> {
    core::str::from_utf8(text).ok()?.parse::<u16>().ok().filter(|n| *n != 0)
}

/// Whether a host name or address is valid; underscores are allowed.
pub(super) fn valid_host(host: &[u8]) -> bool {
    if host.is_empty() || host.len() > 255 {
        return false;
    }
    if let Some(inner) = host.strip_prefix(b"[") {
        let (address, rest) = span(inner, |b| !matches!(b, b'/' | b'?' | b'#' | b']'));
        if !address.is_empty() && rest.first() == Some(&b']') {
            return core::str::from_utf8(address).is_ok_and(|a| core::net::Ipv6Addr::from_str(a).is_ok());
        }
    }
    if host.starts_with(b".") || find(host, b"..").is_some() {
        return false;
    }
    host.split(|b| *b == b'.').all(|label| {
        label.len() <= 63
            && label.iter().all(|b| matches!(b, b'-' | b'_') || char::from(*b).is_alphanumeric())
    })
}

/// Whether an `Authorization` value has a scheme other than basic, digest and bearer.
pub(super) fn is_unknown_authorization(value: &[u8]) -> bool {
    ![b"basic".as_slice(), b"digest", b"bearer"].iter().any(|scheme| starts_nocase(value, scheme))
}

/// A `Content-Range`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::protocols) struct ContentRange {
    pub start: Option<u64>,
    pub end: Option<u64>,
    pub size: Option<u64>,
}

/// Reads `bytes 0-9/100`, `bytes 0-9/*`, `bytes */100`.
pub(in crate::protocols) fn content_range(value: &[u8]) -> Option<ContentRange> {
    let text = core::str::from_utf8(value).ok()?.trim_start_matches(' ');
    let text = text.strip_prefix("bytes")?.trim_start_matches(' ');
    let (range, size) = text.split_once('/')?;
    let number = |digits: &str| -> Option<u64> {
        let end = digits.bytes().take_while(u8::is_ascii_digit).count();
        digits.get(..end)?.parse::<u64>().ok().filter(|n| i64::try_from(*n).is_ok())
    };
    if range == "*" {
        return Some(ContentRange { size: Some(number(size)?), ..ContentRange::default() });
    }
    let (start, end) = range.split_once('-')?;
    let (start, end) = (Some(number(start)?), Some(number(end)?));
    let size = if size.starts_with('*') { None } else { Some(number(size)?) };
    Some(ContentRange { start, end, size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(version(b"HTTP/1.1"), (HttpVersion::V11, false));
        assert_eq!(version(b"http / 01.0 "), (HttpVersion::V10, true));
        assert_eq!(version(b"HTTP/0.9"), (HttpVersion::V09, true));
        assert_eq!(version(b"HTTP/1.2"), (HttpVersion::Invalid, false));
        assert_eq!(version(b"HTTP/1.10"), (HttpVersion::Invalid, false));
        assert!(HttpVersion::Invalid < HttpVersion::V11 && HttpVersion::Unknown < HttpVersion::V09);
    }

    #[test]
    fn lengths() {
        let plain = |n| ContentLength { length: Some(n), junk_before: false, junk_after: false };
        assert_eq!(content_length(b"  \t134    "), plain(134));
        assert_eq!(content_length(b"abcd134 "), ContentLength { junk_before: true, ..plain(134) });
        assert_eq!(content_length(b"12,13"), ContentLength { junk_after: true, ..plain(12) });
        assert_eq!(content_length(b"none").length, None);
        assert_eq!(content_length(b"99999999999999999999").length, None);
        assert_eq!(chunk_line(b"12a5;ext=value\r\n"), ChunkLine::Length(0x12a5, true));
        assert_eq!(chunk_line(b" \t12a5 \r\n"), ChunkLine::Length(0x12a5, false));
        assert_eq!(chunk_line(b"80000000"), ChunkLine::Unusable);
        assert_eq!(chunk_line(b"  "), ChunkLine::Unusable);
        assert_eq!(chunk_line(b"zz"), ChunkLine::Invalid);
        assert_eq!(chunk_line(b"ffffffffffffffffff\n"), ChunkLine::Invalid);
        assert!(may_be_chunk_line(b"\r\n 6") && !may_be_chunk_line(b"X5O"));
        assert_eq!(status(b" 404 "), Some(404));
        assert_eq!(status(b"99"), None);
        assert_eq!(status(b"200a"), None);
    }

    #[test]
    fn hosts() {
        let hp = host_port(b" www.example.com :  8001 ").expect("host");
        assert_eq!(
            (hp.host, hp.port, hp.valid),
            (&b"www.example.com"[..], Some((&b"8001"[..], Some(8001))), true)
        );
        for (text, valid) in [
            ("www.example.com.", true),
            ("www.example.com:", false),
            ("www.example.com:0", false),
            ("[::1]:8080", true),
            ("[::1]x", false),
            ("[::1", false),
            ("www..example.com", false),
            ("www example com", false),
            ("exa_mple-1.com", true),
        ] {
            assert_eq!(host_port(text.as_bytes()).map(|h| h.valid), Some(valid), "{text}");
        }
        assert!(host_port(b"/x").is_none());
        assert!(host_port(b"").is_none());
    }

    #[test]
    fn ranges_and_authorizations() {
        let range = content_range(b"bytes 500-1000/146515").expect("range");
        assert_eq!((range.start, range.end, range.size), (Some(500), Some(1000), Some(146_515)));
        assert_eq!(content_range(b"bytes */12").and_then(|r| r.size), Some(12));
        assert_eq!(
            content_range(b"bytes 1-2/*"),
            Some(ContentRange { start: Some(1), end: Some(2), size: None })
        );
        assert_eq!(content_range(b"nonsense"), None);
        assert!(is_unknown_authorization(b"NTLM x") && !is_unknown_authorization(b"Bearer x"));
    }
}
