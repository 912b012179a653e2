// SPDX-License-Identifier: Apache-2.0
//! Recognises first bytes that a lenient server takes for a request, beyond known methods at the very
//! beginning.
//!
//! Servers skip empty lines before a request line (RFC 9112 section 2.2), some of them any white space,
//! without limit. Only some of them know methods by a list; others take any bytes for one. Some servers
//! accept a request without a version (HTTP/0.9) as well, whatever its method, once its line is followed by a
//! field or by the end of the headers.

use super::bytes::{after, before, is_blank, is_token, is_wide_space, span, trim, trim_line_end};
use super::patterns::PATTERNS;
use super::proxy::{self, ProxyHeader};
use crate::protocol::{Probe, Transport};
use crate::protocols::http2::PREFACE;
use bartizan_base::Direction;

/// Number of white space bytes, with line ends among them, that only make sense for a server which skips
/// empty lines.
pub(super) const BLANK_MAX: usize = 256;
/// A line of white space beyond this length is no empty line to any server, but other data.
const BLANK_LINE_MAX: usize = 16 << 10;
/// Limit of a first word of any printable bytes, in bytes: the longest of the registered methods (RFC 9110
/// section 18.2) has 17 letters. A longer word, which servers without a list of methods accept, must be a
/// token.
pub(super) const WORD_MAX: usize = 32;
/// Limit of a request line in which a version is searched, in bytes; most servers accept 8 to 64 KB. A longer
/// line is a request by its target alone.
pub(super) const LINE_MAX: usize = 32 << 10;

/// Inspects a client's first bytes.
pub(super) fn likely(_transport: Transport, direction: Direction, data: &[u8]) -> Probe {
    if direction != Direction::ToServer {
        return Probe::No;
    }
    match proxy::header(data) {
        // The preface of HTTP/2 at the very beginning is not ours.
        ProxyHeader::No if data.starts_with(PREFACE) => Probe::No,
        ProxyHeader::No if PREFACE.starts_with(data) => Probe::More,
        ProxyHeader::No => request(data, direction),
        _ => proxy::behind(data).map_or(Probe::More, |behind| request(behind, direction)),
    }
}

fn request(data: &[u8], direction: Direction) -> Probe {
    let (blank, rest) = span(data, is_wide_space);
    let lines = blank.contains(&b'\n');
    if lines && blank.len() > BLANK_MAX {
        return Probe::Yes(direction);
    }
    if !lines && blank.len() > BLANK_LINE_MAX {
        return Probe::No;
    }
    if rest.is_empty() {
        return Probe::More;
    }
    if is_known_method(rest) {
        return Probe::Yes(direction);
    }
    match is_request(rest) {
        Some(true) => Probe::Yes(direction),
        Some(false) => Probe::No,
        None => Probe::More,
    }
}

/// Whether the text begins with a method that has a pattern, and white space after it that does not end the
/// line.
fn is_known_method(text: &[u8]) -> bool {
    let mut patterns = PATTERNS.iter().filter(|p| p.direction == Direction::ToServer);
    patterns.any(|p| {
        let Some((_, method)) = p.bytes.split_last() else { return false };
        let Some((head, behind)) = text.split_at_checked(method.len()) else { return false };
        let gap = behind.first().is_some_and(|b| is_wide_space(*b) && !matches!(b, b'\r' | b'\n'));
        gap && head.eq_ignore_ascii_case(method)
    })
}

/// Whether a line consists of method, target and version, or is, by the text after it, a request whose
/// version the server does not read. `None`: more bytes are needed.
fn is_request(text: &[u8]) -> Option<bool> {
    let (method, rest) = span(text, |b| !is_wide_space(b));
    if method.is_empty() || method.len() > LINE_MAX {
        return Some(false);
    }
    let graphic = method.iter().all(u8::is_ascii_graphic);
    if graphic && method.len() > WORD_MAX && !method.iter().all(|b| is_token(*b)) {
        return Some(false);
    }
    let (gap, target) = span(rest, |b| is_wide_space(b) && b != b'\n');
    if gap.is_empty() {
        // More may follow; otherwise it is a line of one word, or no text at all.
        return (!rest.is_empty()).then_some(false);
    }
    let all = before(target, LINE_MAX);
    let end = memchr::memchr(b'\n', all);
    let line = before(all, end.unwrap_or(LINE_MAX));
    if has_version(line) {
        return Some(true);
    }
    let Some(end) = end else { return (all.len() == LINE_MAX).then_some(graphic && is_long_target(all)) };
    if graphic && has_any_version(line) || is_versionless(method, line) {
        begins_fields(after(target, end + 1))
    } else {
        Some(false)
    }
}

/// Whether some server takes a line for a request line, without inspecting the text after it.
pub(super) fn is_request_line(line: &[u8]) -> bool {
    let (method, rest) = span(span(line, is_wide_space).1, |b| !is_wide_space(b));
    let (_, target) = span(rest, is_wide_space);
    let target = trim_line_end(target);
    let graphic = method.iter().all(u8::is_ascii_graphic);
    has_version(target) || graphic && has_any_version(target) || is_versionless(method, target)
}

/// Whether a line that begins with the target ends after it, and some server accepts this: with any method a
/// path, with a method without small letters any word.
fn is_versionless(method: &[u8], line: &[u8]) -> bool {
    let target = trim(line);
    let capital = method.iter().all(|b| is_token(*b) && !b.is_ascii_lowercase());
    let graphic = method.iter().all(u8::is_ascii_graphic);
    !target.is_empty()
        && target.iter().all(|b| !is_wide_space(*b) && !b.is_ascii_control())
        && (capital && method.iter().any(u8::is_ascii_uppercase) || graphic && is_path(target))
}

/// Whether a line that begins with the target has a version after it. `line`: without its line end, or as far
/// as it has come.
fn has_version(line: &[u8]) -> bool {
    memchr::memchr_iter(b'/', line).any(|slash| is_version(line, slash))
}

/// Whether the slash at this place follows `HTTP`, which follows white space and a target, and precedes a
/// digit. Node's server accepts the versions of two other protocols as well; genuine messages of those have
/// targets of another form.
fn is_version(line: &[u8], slash: usize) -> bool {
    let Some((head, tail)) = line.split_at_checked(slash) else { return false };
    let digit = tail.get(1).is_some_and(u8::is_ascii_digit);
    let (before_name, name) = span_back(head, |b| b.is_ascii_alphabetic());
    let behind_space = before_name.last().is_some_and(|b| is_wide_space(*b));
    let ours = name.eq_ignore_ascii_case(b"HTTP");
    let odd = [&b"RTSP"[..], b"ICE"].iter().any(|other| name.eq_ignore_ascii_case(other));
    let path = line.first() == Some(&b'/') || before(line, 4).eq_ignore_ascii_case(b"http");
    digit && behind_space && (ours || odd && path)
}

/// Splits a text before its final run of bytes of a class.
fn span_back(text: &[u8], class: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    let at = text.iter().rposition(|b| !class(*b)).map_or(0, |last| last + 1);
    text.split_at_checked(at).unwrap_or((text, &[]))
}

/// Whether a line that begins with the target has text after it, so that a server which ignores the version
/// accepts the line: the target is a path, alone or after a scheme.
fn has_any_version(line: &[u8]) -> bool {
    let (target, rest) = span(line, |b| b != b' ');
    is_path(target)
        && !rest.is_empty()
        && line.iter().all(|b| *b == b'\r' || *b == b' ' || b.is_ascii_graphic())
}

/// Whether a target is a path, alone or after a scheme that is not another protocol's.
fn is_path(target: &[u8]) -> bool {
    let (scheme, path) = span(target, is_token);
    let foreign = [&b"rtsp"[..], b"rtspu", b"sip"].iter().any(|other| scheme.eq_ignore_ascii_case(other));
    let behind_scheme = !scheme.is_empty() && !foreign && path.starts_with(b":/");
    target.first() == Some(&b'/') || behind_scheme
}

/// Whether the beginning of a target can still be one beyond the limit: Go's server reads up to 1 MiB.
fn is_long_target(target: &[u8]) -> bool {
    is_path(target) && !target.iter().any(|b| is_wide_space(*b) || b.is_ascii_control())
}

/// Whether the text begins with a header field or the end of the headers, after optional white space. `None`:
/// more bytes are needed.
fn begins_fields(text: &[u8]) -> Option<bool> {
    let text = before(text, LINE_MAX);
    let full = text.len() == LINE_MAX;
    let (_, line) = span(text, is_blank);
    let (name, rest) = span(line, is_token);
    match (name, rest) {
        ([], [b'\n', ..] | [b'\r', b'\n', ..]) => Some(true),
        ([], [] | [b'\r']) | (_, []) => full.then_some(false),
        (_, [b':', ..]) => Some(!name.is_empty()),
        _ => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(text: &[u8]) -> Probe {
        likely(Transport::Tcp, Direction::ToServer, text)
    }

    /// White space without line ends is no request, and parsing it as one would refuse the connection.
    #[test]
    fn white_space_without_lines_is_data() {
        for byte in [b' ', b'\t', b'\r'] {
            assert_eq!(look(&[byte; 300]), Probe::More);
            assert_eq!(look(&[byte; 20_000]), Probe::No);
        }
        assert_eq!(look(&[b'\n'; 300]), Probe::Yes(Direction::ToServer));
        let late = [&[b' '; 300][..], b"FOO /x HTTP/1.1\r\n"].concat();
        assert_eq!(look(&late), Probe::Yes(Direction::ToServer));
    }

    #[test]
    fn requests_that_servers_take_are_known_when_they_are_whole() {
        let yes = Probe::Yes(Direction::ToServer);
        for request in [
            &b"\r\nGET /evil.php HTTP/1.1"[..],
            b"\nGET /evil",
            b"\n\r\n\n \tget /evil",
            b"FOO /evil.php HTTP/1.1",
            b"foo\t/evil\thttp/1.0",
            b"FOO \x0c/evil HTTP/01.1",
            b"FOO /a b/c HTTP/1.1",
            b"FOO\r/evil HTTP/1.1",
            b"PRI /evil HTTP/1.1",
            b"PRI * HTTP/1.1",
            b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA /evil HTTP/1.1",
            b"SOURCE /evil ICE/1.0",
            b"SETUP /evil RTSP/1.0",
            b"SETUP http://a/evil RTSP/1.0",
            b"GET\xa0/evil\xa0HTTP/1.1",
            b"GET\x1f/evil",
            b"FOO\x85/evil\x1cHTTP/1.1",
            b"\xa0\x1dFOO /evil HTTP/1.1",
            b"FOO /evil X\r\n\r\n",
            b"FOO x:/evil \nHost:",
            b"SEARCH /evil\r\n\r\n",
            b"search\t/evil\r\nHost:",
            b"SEARCH evil\n x:",
            b"\0GET /evil HTTP/1.1",
            b"\x16\x03\x01\x02\0\x01 /evil HTTP/1.1",
            b"PROXY TCP4 1.2.3.4 5.6.7.8 1000 80\r\nFOO /evil HTTP/1.1",
            b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0GET /evil",
        ] {
            assert_eq!(look(request), yes, "{}", request.escape_ascii());
            for end in 0..request.len() {
                let seen = look(&request[..end]);
                assert!(seen == yes || seen == Probe::More, "{}", request[..end].escape_ascii());
            }
        }
        assert_eq!(look(&[b'\n'; BLANK_MAX + 1]), yes);
        assert_eq!(likely(Transport::Tcp, Direction::ToClient, b"\nGET / HTTP/1.1"), Probe::No);
    }

    #[test]
    fn other_protocols_are_refused_with_their_first_line() {
        for other in [
            &b"EHLO example.org\r\nMAIL FROM:<a>\r\n"[..],
            b"auth secret\n\n",
            b"Action: Login\r\nUsername: a\r\n",
            b"SSH-2.0-OpenSSH_9.2\r\n",
            b"*1\r\n$4\r\nPING\r\n",
            b"\0\0\0\x08\x04\xd2\x16\x2f\n",
            b"\x16\x03\x01\x02\0\x01\x0a",
            b"INVITE sip:a@b SIP/2.0\r\n",
            b"DESCRIBE rtsp://a/HTTP/1 RTSP/1.0\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n",
            b"AMQP\0\0\x09\x01\n",
            b"SETUP rtsp://a/evil RTSP/1.0\r\n",
            b"incr /key 1\r\nget other\r\n",
            b"set key /value x\r\n\r\n",
            b"SET /key value\r\nSET other value\r\n",
            b"LIST\r\n/a b\r\n",
            b"PROXY TCP4 1.2.3.4 5.6.7.8 1000 80\r\n\x16\x03\x01\x02\n",
            b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0\x16\x03\x01\x02\n",
        ] {
            assert_eq!(look(other), Probe::No, "{}", other.escape_ascii());
        }
        assert_eq!(look(&[b'/'; WORD_MAX + 1]), Probe::No);
        assert_eq!(look(&[b'A'; LINE_MAX + 1]), Probe::No);
        assert_eq!(look(&[b"FOO /a b".as_slice(), &[b'a'; LINE_MAX]].concat()), Probe::No);
        assert_eq!(look(&[b"FOO a".as_slice(), &[b'a'; LINE_MAX]].concat()), Probe::No);
    }

    /// Go reads request lines of a megabyte.
    #[test]
    fn a_long_target_makes_a_request() {
        let long = [b"FOO /".as_slice(), &[b'a'; LINE_MAX]].concat();
        assert_eq!(look(&long), Probe::Yes(Direction::ToServer));
        assert_eq!(look(&long[..LINE_MAX]), Probe::More);
    }
}
