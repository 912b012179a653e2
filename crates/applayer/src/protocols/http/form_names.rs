// SPDX-License-Identifier: Apache-2.0
//! What receivers read of a form in prevention: its boundary, the lines that are one, and each name that one of them takes for a file's.
//!
//! Receivers differ over folded lines, quotes, escapes, repeated parameters and those of RFC 2231 (`filename*=`). Where one of them sees a
//! name, so do rules.

use super::bytes::{after, before, find_nocase, is_blank, span};

/// Longest boundary that is followed; Go reads 4,096 bytes.
pub(super) const MAX_BOUNDARY: usize = 8192;
/// Names that the header of a part may give.
pub(super) const MAX_NAMES: usize = 16;
/// White space behind a boundary in its line.
const MAX_PADDING: usize = 1024;

/// What stands behind a boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// The end of its line: bytes up to there, and whether that is CR LF.
    Line(usize, bool),
    /// The same behind the mark that says that no part follows.
    Last(usize),
    /// The line goes on: it is no boundary.
    Other,
    /// More bytes are needed. True: if none come, no part follows.
    Need(bool),
}

/// Looks at what stands behind a boundary (RFC 2046 section 5.1.1).
pub(super) fn tail(text: &[u8]) -> Tail {
    let rest = text.strip_prefix(b"--").unwrap_or(text);
    let last = rest.len() < text.len();
    let (padding, rest) = span(rest, |b| matches!(b, b' ' | b'\t'));
    let length = text.len() - rest.len();
    let line = |end: usize| if last { Tail::Last(length + end) } else { Tail::Line(length + end, end == 2) };
    match rest {
        _ if padding.len() > MAX_PADDING => Tail::Other,
        [b'\n', ..] => line(1),
        [b'\r', b'\n', ..] => line(2),
        [] | [b'\r'] => Tail::Need(last),
        [b'-'] if text.len() == 1 => Tail::Need(false),
        _ => Tail::Other,
    }
}

/// How many parameters `boundary` a content type has, in whatever spelling. Where there are several receivers go by different ones.
pub(super) fn boundaries(content_type: &[u8]) -> usize {
    occurrences(content_type, b"boundary").count()
}

/// The boundary as the most lenient receivers take it.
pub(super) fn boundary(content_type: &[u8]) -> Option<&[u8]> {
    let (_, _, value) = occurrences(content_type, b"boundary").next()?;
    let found = match value {
        [b'"', quoted @ ..] => span(quoted, |b| b != b'"').0,
        // Some end it at a comma; a boundary that begins another one is found where that one stands.
        bare => span(bare, |b| !matches!(b, b';' | b',' | b'"') && !is_blank(b)).0,
    };
    Some(found).filter(|found| !found.is_empty())
}

/// Every place where a word and, behind it, a sign of equality stand: where the value begins, what stands between both, the value and what
/// follows it.
fn occurrences<'a>(text: &'a [u8], word: &'static [u8]) -> impl Iterator<Item = (usize, &'a [u8], &'a [u8])> {
    let mut at = 0;
    core::iter::from_fn(move || {
        loop {
            at += find_nocase(after(text, at), word)? + word.len();
            let (mark, rest) = span(after(text, at), |b| matches!(b, b'*' | b'0'..=b'9'));
            let (_, rest) = span(rest, is_blank);
            if let [b'=', value @ ..] = rest {
                let (_, value) = span(value, is_blank);
                return Some((text.len() - value.len(), mark, value));
            }
        }
    })
}

/// The names of a file that the header of a part gives, as one receiver or another reads them. `None`: nobody means so many.
pub(super) fn names(header: &[u8]) -> Option<Vec<Vec<u8>>> {
    let header = unfold(header);
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut add = |name: Vec<u8>| {
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    };
    let mut pieces: Vec<(u32, Vec<u8>)> = Vec::new();
    for (count, (_, mark, text)) in occurrences(&header, b"filename").enumerate() {
        if count >= MAX_NAMES {
            return None;
        }
        let raw = value(text);
        let plain = unescape(raw);
        let Some(mark) = mark.strip_prefix(b"*") else {
            add(raw.to_vec());
            add(plain);
            continue;
        };
        let (digits, extended) = span(mark, |b| b.is_ascii_digit());
        let number = core::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
        let text = if number.is_none_or(|n| n == 0) && (!extended.is_empty() || digits.is_empty()) {
            // The character set and the language stand before the first piece.
            let mut parts = plain.splitn(3, |b| *b == b'\'');
            let last = parts.nth(2).map(<[u8]>::to_vec);
            last.unwrap_or(plain)
        } else {
            plain
        };
        let text = if extended.is_empty() && number.is_some() { text } else { percent(&text) };
        match number {
            Some(number) => pieces.push((number, text)),
            None => add(text),
        }
    }
    pieces.sort_by_key(|(number, _)| *number);
    add(pieces.into_iter().flat_map(|(_, text)| text).collect());
    Some(names)
}

/// The value of a parameter at the beginning, without its quotes.
fn value(text: &[u8]) -> &[u8] {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        return span(text, |b| !matches!(b, b';' | b'\r' | b'\n') && !is_blank(b)).0;
    };
    let mut escaped = false;
    let end = quoted.iter().position(|b| {
        let ends = *b == b'"' && !escaped;
        escaped = *b == b'\\' && !escaped;
        ends || *b == b'\r' || *b == b'\n'
    });
    before(quoted, end.unwrap_or(quoted.len()))
}

fn unescape(text: &[u8]) -> Vec<u8> {
    let mut escaped = false;
    let keep = |b: &&u8| {
        escaped = **b == b'\\' && !escaped;
        !escaped
    };
    text.iter().filter(keep).copied().collect()
}

fn percent(text: &[u8]) -> Vec<u8> {
    let digit = |b: u8| char::from(b).to_digit(16).and_then(|n| u8::try_from(n).ok());
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, behind @ ..] = rest {
        let code = match behind {
            [high, low, ..] if *first == b'%' => digit(*high).zip(digit(*low)),
            _ => None,
        };
        out.push(code.map_or(*first, |(high, low)| high << 4 | low));
        rest = if code.is_some() { after(behind, 2) } else { behind };
    }
    out
}

/// Folded lines as one (RFC 5322 section 2.2.3), with a space between them.
fn unfold(header: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(header.len());
    for line in header.split_inclusive(|b| *b == b'\n') {
        if let [b' ' | b'\t', ..] = line {
            while matches!(out.last(), Some(b'\r' | b'\n')) {
                out.pop();
            }
        }
        out.extend_from_slice(line);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_receivers_read() {
        for (header, want) in [
            ("Content-Disposition: form-data; name=\"f\"; filename=\"a b.exe\"", &["a b.exe"][..]),
            ("Content-Disposition: form-data; name=\"f\";\r\n filename=\"evil.exe\"", &["evil.exe"]),
            ("Content-Disposition: form-data;\r\n\tFileName\r\n = evil.exe;x=y", &["evil.exe"]),
            ("Content-Disposition: form-data; filename*=utf-8''%65vil.exe", &["evil.exe"]),
            ("Content-Disposition: form-data; filename*=evil.exe", &["evil.exe"]),
            ("A: b; filename*1=\"l.exe\"; filename*0=\"evi\"", &["evil.exe"]),
            ("A: b; filename*0*=''%65v; filename*1*=%69l; filename*2=%2e", &["evil%2e"]),
            ("A: b; filename=good.txt; filename=evil.exe", &["good.txt", "evil.exe"]),
            ("A: b; filename=\"ev\\il.exe\"", &["ev\\il.exe", "evil.exe"]),
            (
                "A: b; filename=\"a\\\"; filename=evil",
                &["a\\\"; filename=evil", "a\"; filename=evil", "evil"],
            ),
            ("A: b; name=\"x\"\r\nContent-Type: text/plain", &[]),
            ("A: b; filename=\"\"", &[]),
        ] {
            let found = names(header.as_bytes()).expect("few");
            let got: Vec<_> = found.into_iter().map(|n| String::from_utf8(n).expect("text")).collect();
            assert_eq!(got, want, "{header}");
        }
    }

    #[test]
    fn boundaries_and_their_lines() {
        assert_eq!(boundary(b"multipart/form-data; x=y; Boundary = BB;z"), Some(&b"BB"[..]));
        assert_eq!(boundary(b"multipart/form-data; boundary=\"B, B\""), Some(&b"B, B"[..]));
        assert_eq!(boundary(b"multipart/form-data; boundary=AA,BB"), Some(&b"AA"[..]));
        assert_eq!(boundary(b"multipart/form-data; boundary="), None);
        assert_eq!(boundaries(b"multipart/form-data; boundary=----WebKitFormBoundaryAbC"), 1);
        assert_eq!(boundaries(b"multipart/form-data; x-boundary=A; boundary=B"), 2);
        assert_eq!(tail(b" \r\nA"), Tail::Line(3, true));
        assert_eq!(tail(b"\nA"), Tail::Line(1, false));
        assert_eq!(tail(b"--\r\n"), Tail::Last(4));
        assert_eq!(tail(b"--"), Tail::Need(true));
        assert_eq!(tail(b"-"), Tail::Need(false));
        for other in [&b"x\r\n"[..], b"-x", b"--x", b"\rx", &[b' '; MAX_PADDING + 1]] {
            assert_eq!(tail(other), Tail::Other);
        }
    }
}
