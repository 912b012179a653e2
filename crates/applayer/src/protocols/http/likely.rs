// SPDX-License-Identifier: Apache-2.0
//! Which first bytes a lenient server takes for a request, beyond those of known methods at the very beginning.
//!
//! Servers skip empty lines before a request line (RFC 9112 section 2.2), some of them any white space, and as many as come;
//! what a method is only some of them know from a list. A request without a version (HTTP/0.9) they take of known methods only.

use super::PATTERNS;
use super::bytes::{before, is_space, span};
use crate::protocol::{Probe, Transport};
use bartizan_base::Direction;

/// Who sends so much white space with line ends in it and nothing else can only mean a server that skips empty lines.
const BLANK_MAX: usize = 256;
/// A line of white space that goes on beyond this is no empty line to any server, but somebody's data.
const BLANK_LINE_MAX: usize = 16 << 10;
/// Longest method: the longest of the registered ones (RFC 9110 section 18.2) has 17 letters.
const METHOD_MAX: usize = 32;
/// Longest request line; servers take 8 to 16 KB.
const LINE_MAX: usize = 32 << 10;

/// The method of HTTP/2's preface (RFC 9113 section 3.4): not ours.
const HTTP2: &[u8] = b"PRI";

/// Looks at a client's first bytes.
pub(super) fn likely(_transport: Transport, direction: Direction, data: &[u8]) -> Probe {
    if direction != Direction::ToServer {
        return Probe::No;
    }
    let (blank, rest) = span(data, is_space);
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
    match has_version(rest) {
        Some(true) => Probe::Yes(direction),
        Some(false) => Probe::No,
        None => Probe::More,
    }
}

/// Whether a method that has a pattern stands here, and white space behind it.
fn is_known_method(text: &[u8]) -> bool {
    let mut patterns = PATTERNS.iter().filter(|p| p.direction == Direction::ToServer);
    patterns.any(|p| text.get(..p.bytes.len()).is_some_and(|head| head.eq_ignore_ascii_case(p.bytes)))
}

/// Whether a line is a method, a target and a version. `None`: more bytes are needed.
fn has_version(text: &[u8]) -> Option<bool> {
    let (method, rest) = span(text, |b| b.is_ascii_graphic());
    if method.is_empty() || method.len() > METHOD_MAX {
        return Some(false);
    }
    let (gap, target) = span(rest, |b| is_space(b) && b != b'\n');
    if gap.is_empty() {
        // More may follow; else it is a line of one word, or no text at all.
        return (!rest.is_empty()).then_some(false);
    }
    if method.eq_ignore_ascii_case(HTTP2) {
        return Some(false);
    }
    let target = before(target, LINE_MAX);
    let end = memchr::memchr(b'\n', target);
    let line = before(target, end.unwrap_or(LINE_MAX));
    if memchr::memchr_iter(b'/', line).any(|slash| is_version(line, slash)) {
        return Some(true);
    }
    (end.is_some() || target.len() == LINE_MAX).then_some(false)
}

/// Whether `HTTP`, behind white space and a target, stands before a slash, and a digit behind it.
fn is_version(line: &[u8], slash: usize) -> bool {
    let Some((head, tail)) = line.split_at_checked(slash) else { return false };
    let digit = tail.get(1).is_some_and(u8::is_ascii_digit);
    let Some((target, name)) = head.split_last_chunk::<4>() else { return false };
    digit && name.eq_ignore_ascii_case(b"HTTP") && target.last().is_some_and(|b| is_space(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(text: &[u8]) -> Probe {
        likely(Transport::Tcp, Direction::ToServer, text)
    }

    /// Data of white space alone is nobody's request, and parsing it as one would refuse the connection.
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
    fn other_protocols_are_refused_at_once() {
        for other in [
            &b"EHLO example.org\r\n"[..],
            b"SSH-2.0-OpenSSH_9.2\r\n",
            b"*1\r\n$4\r\nPING\r\n",
            b"\0\0\0\x08\x04\xd2\x16\x2f",
            b"\x16\x03\x01\x02\0\x01",
            b"INVITE sip:a@b SIP/2.0\r\n",
            b"DESCRIBE rtsp://a/HTTP/1 RTSP/1.0\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n",
            b"AMQP\0\0\x09\x01",
        ] {
            assert_eq!(look(other), Probe::No, "{}", other.escape_ascii());
        }
        assert_eq!(look(&[b'A'; METHOD_MAX + 1]), Probe::No);
        assert_eq!(look(&[b"FOO /".as_slice(), &[b'a'; LINE_MAX]].concat()), Probe::No);
    }
}
