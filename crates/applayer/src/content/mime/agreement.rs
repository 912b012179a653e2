// SPDX-License-Identifier: Apache-2.0
//! Whether readers of mail read a message alike, for prevention.
//!
//! Readers have their own rules for boundaries and parameters that are not plain, repeated fields, lines of a
//! header that are no fields, and padding within base64 (RFC 2045, RFC 2046, RFC 5322). A message in which
//! their rules lead to different parts is refused; names of files are read in each way that some reader does.

use super::form_names::{self, Boundary, Tail};
use super::message::{MessageLine, TransferEncoding};
use super::parameters::hex;
use crate::content::base64::{self, Base64Mode};
use crate::content::bytes::{is_token, span};
use crate::memory::Held as _;

/// Limit of the boundaries of parts that are over which are remembered.
const CLOSED_MAX: usize = 32;

/// State of the comparison of readers.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    /// The end of the message's first line.
    usual_end: Option<&'static [u8]>,
    /// The newest line ended otherwise.
    follows_odd_end: bool,
    /// A line of a header was read.
    has_begun: bool,
    /// Boundaries after which no part follows.
    closed: Vec<Vec<u8>>,
    /// Padding has ended the part's base64.
    is_padded: bool,
    /// Readers read the message in several ways.
    pub(super) differs: bool,
}

impl Agreement {
    /// Bytes of memory held outside of the structure itself.
    pub(super) fn held(&self) -> usize {
        self.closed.iter().fold(self.closed.held(), |sum, text| sum.saturating_add(text.held()))
    }

    /// Reads a line, before the message does. `boundaries`: those of open parts, `--` included. Returns the
    /// index of the boundary that the line is.
    pub(super) fn line(&mut self, line: &MessageLine<'_>, boundaries: &[Vec<u8>]) -> Option<usize> {
        // A piece of a long line has no end.
        let ends = !line.end.is_empty();
        let has_odd_end = ends && *self.usual_end.get_or_insert(line.end) != line.end;
        let follows_odd_end = core::mem::replace(&mut self.follows_odd_end, has_odd_end);
        let begins =
            |text: &[u8]| boundaries.iter().chain(&self.closed).any(|boundary| text.starts_with(boundary));
        // Some readers take a carriage return for the end of a line.
        let hidden = |at| line.text.get(at..).is_some_and(begins);
        self.differs |= memchr::memchr_iter(b'\r', line.text).any(|at: usize| hidden(at.saturating_add(1)));
        if !line.is_first || !begins(line.text) {
            return None;
        }
        let is_exact = |boundary: &Vec<u8>| {
            let rest = line.text.strip_prefix(boundary.as_slice());
            let tail = rest.map(|rest| form_names::tail(&[rest, b"\n"].concat()));
            matches!(tail, Some(Tail::Line(..) | Tail::Last(_)))
        };
        let found = boundaries.iter().rposition(is_exact);
        self.differs |= found.is_none() || line.end.is_empty() || has_odd_end || follows_odd_end;
        found
    }

    /// Reads a line of a header. `opens`: it is the first one of a part.
    pub(super) fn header_line(&mut self, line: &MessageLine<'_>, opens: bool) {
        let is_first_of_all = !core::mem::replace(&mut self.has_begun, true);
        let is_odd = |byte: &u8| byte.is_ascii_control() && !matches!(byte, b'\t' | 0x1b);
        self.differs |= line.text.iter().any(is_odd) || self.follows_odd_end;
        if !line.is_first || line.text.is_empty() {
            return;
        }
        let (name, rest) = span(line.text, is_token);
        let is_field = !name.is_empty() && rest.first() == Some(&b':');
        let folds = matches!(line.text, [b' ' | b'\t', ..]);
        // The line that mailboxes have before a message.
        let separates = is_first_of_all && line.text.starts_with(b"From ");
        self.differs |= if folds { opens } else { !is_field && !separates };
    }

    /// Notes a boundary after which no part follows.
    pub(super) fn close(&mut self, boundary: Vec<u8>) {
        if self.closed.len() < CLOSED_MAX {
            self.closed.push(boundary);
        } else {
            self.differs = true;
        }
    }

    /// Begins the body of a part.
    pub(super) fn begin_body(&mut self) {
        self.is_padded = false;
    }

    /// Reads groups of symbols of base64.
    pub(super) fn base64(&mut self, groups: &[u8]) {
        for group in groups.chunks(4) {
            let padding = memchr::memchr(b'=', group);
            let is_sound = padding.is_none_or(|at| {
                at >= 2 && group.get(at..).is_some_and(|rest| rest.iter().all(|byte| *byte == b'='))
            });
            // Some readers end at padding, others go on.
            self.differs |= !is_sound || self.is_padded;
            self.is_padded |= padding.is_some();
        }
    }
}

/// The boundary of a part that has parts; `Err`: readers differ.
pub(super) fn boundary(content_type: &[u8]) -> Result<Option<&[u8]>, ()> {
    let kind = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let is_multipart = kind.get(..9).is_some_and(|begin| begin.eq_ignore_ascii_case(b"multipart"));
    let found = form_names::boundary(content_type);
    if !is_multipart {
        return if found == Boundary::None { Ok(None) } else { Err(()) };
    }
    let (_, subtype) = span(kind.get(9..).unwrap_or_default(), |byte| byte == b'/');
    let is_plain = kind.get(9) == Some(&b'/')
        && !subtype.is_empty()
        && subtype.iter().all(|byte| is_token(*byte))
        && !has_comment(content_type);
    match found {
        Boundary::Plain(boundary) if is_plain => Ok(Some(boundary)),
        _ => Err(()),
    }
}

/// Whether a value has a comment, outside of quotes.
fn has_comment(value: &[u8]) -> bool {
    let mut is_quoted = false;
    value.iter().any(|byte| {
        is_quoted ^= *byte == b'"';
        *byte == b'(' && !is_quoted
    })
}

/// The encoding of a part; `Err`: readers differ, or decode what is not decoded here.
pub(super) fn encoding(value: Option<&[u8]>) -> Result<TransferEncoding, ()> {
    let Some(value) = value.map(<[u8]>::trim_ascii) else { return Ok(TransferEncoding::Plain) };
    if value.eq_ignore_ascii_case(b"base64") {
        return Ok(TransferEncoding::Base64);
    }
    if value.eq_ignore_ascii_case(b"quoted-printable") {
        return Ok(TransferEncoding::QuotedPrintable);
    }
    let lower = value.to_ascii_lowercase();
    let decodes = [&b"base"[..], b"quoted", b"uu", b"yenc", b"binhex"];
    let is_known = decodes.iter().any(|word| memchr::memmem::find(&lower, word).is_some());
    if is_known || !value.iter().all(|byte| is_token(*byte)) { Err(()) } else { Ok(TransferEncoding::Plain) }
}

/// The names of a part's file, as different readers read them; `None`: there are too many.
pub(super) fn file_names(disposition: &[u8], content_type: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for field in [disposition, content_type] {
        for name in form_names::names_of(field, b"name")? {
            let decoded = encoded_words(&name);
            for name in core::iter::once(name).chain(decoded) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
    }
    Some(names)
}

/// A text whose encoded words (RFC 2047) are decoded; `None`: it has none.
fn encoded_words(text: &[u8]) -> Option<Vec<u8>> {
    let (mut out, mut rest, mut found) = (Vec::new(), text, false);
    while let Some(begin) = memchr::memmem::find(rest, b"=?") {
        let word = rest.get(begin.saturating_add(2)..).unwrap_or_default();
        let mut parts = word.splitn(3, |byte| *byte == b'?');
        let (Some(_), Some([encoding]), Some(behind)) = (parts.next(), parts.next(), parts.next()) else {
            break;
        };
        let Some(end) = memchr::memmem::find(behind, b"?=") else { break };
        let (encoded, after_word) = behind.split_at_checked(end).unwrap_or_default();
        // White space between two words is no part of the text.
        let before = rest.get(..begin).unwrap_or_default();
        if !(found && before.trim_ascii().is_empty()) {
            out.extend_from_slice(before);
        }
        match encoding.to_ascii_lowercase() {
            // A broken group does not hide what comes before it.
            b'b' => {
                let _ = base64::decode(encoded, Base64Mode::Rfc2045, &mut out);
            }
            b'q' => decode_q(encoded, &mut out),
            _ => break,
        }
        found = true;
        rest = after_word.get(2..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    found.then_some(out)
}

/// Decodes the encoding `Q` (RFC 2047 section 4.2).
fn decode_q(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        let decoded = match (first, behind) {
            (b'=', [high, low, ..]) => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            (b'_', _) => {
                out.push(b' ');
                rest = behind;
                continue;
            }
            _ => None,
        };
        out.push(decoded.unwrap_or(*first));
        rest = if decoded.is_some() { behind.get(2..).unwrap_or_default() } else { behind };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_words_are_decoded() {
        for (text, expected) in [
            ("=?utf-8?B?ZXZpbA==?=.exe", Some("evil.exe")),
            ("a =?x?q?=65vi=6C_b?= =?x?Q?c?= d", Some("a evil bc d")),
            ("=?x?B?ZXZpbA==", None),
            ("=?x?z?a?=", None),
            ("plain", None),
        ] {
            assert_eq!(encoded_words(text.as_bytes()).as_deref(), expected.map(str::as_bytes), "{text}");
        }
    }

    #[test]
    fn boundaries_that_all_find() {
        assert_eq!(boundary(b"multipart/mixed; boundary=\"a b\""), Ok(Some(&b"a b"[..])));
        assert_eq!(boundary(b"text/plain; charset=utf-8"), Ok(None));
        for odd in [
            "multipart/mixed",
            "multipart; boundary=a",
            "multipart/; boundary=a",
            "text/plain; boundary=a",
            "multipart/mixed; boundary*=us-ascii''a",
            "multipart/mixed; boundary=a; boundary=b",
            "multipart/mixed; (c) boundary=a",
        ] {
            assert_eq!(boundary(odd.as_bytes()), Err(()), "{odd}");
        }
    }

    #[test]
    fn encodings_that_all_decode() {
        assert_eq!(encoding(Some(b" Base64 ")), Ok(TransferEncoding::Base64));
        assert_eq!(encoding(Some(b"QUOTED-PRINTABLE")), Ok(TransferEncoding::QuotedPrintable));
        assert_eq!(
            (encoding(None), encoding(Some(b"8bit"))),
            (Ok(TransferEncoding::Plain), Ok(TransferEncoding::Plain))
        );
        for odd in ["\"base64\"", "base64;", "base64 (c)", "x-uuencode", "7bit, base64"] {
            assert_eq!(encoding(Some(odd.as_bytes())), Err(()), "{odd}");
        }
    }

    #[test]
    fn names_of_both_fields() {
        let names =
            file_names(b"attachment; filename=\"=?x?B?ZXZpbA==?=\"", b"a/b; name=other").expect("few");
        let expected: [&[u8]; 3] = [b"=?x?B?ZXZpbA==?=", b"evil", b"other"];
        assert_eq!(names, expected);
    }
}
