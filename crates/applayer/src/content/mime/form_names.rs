// SPDX-License-Identifier: Apache-2.0
//! Reads forms in prevention as receivers do: the boundary, the lines that receivers take for one, and each
//! name that one of them takes for a file's.
//!
//! Receivers differ over folded lines, quotes, escapes, repeated parameters and those of RFC 2231
//! (`filename*=`). Rules see each name that some receiver reads.

use crate::content::bytes::{after, before, find_nocase, is_blank, is_token, span, starts_nocase};

/// Limit of a boundary, in bytes; Go reads 4,096.
pub(crate) const MAX_BOUNDARY: usize = 8192;
/// Limit of the names in the header of a part.
pub(crate) const MAX_NAMES: usize = 16;
/// Limit of white space after a boundary on its line, in bytes.
const MAX_PADDING: usize = 1024;

/// The text after a boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// The end of its line: number of bytes up to and including the line end, and whether that is CR LF.
    Line(usize, bool),
    /// The mark that no part follows, then the end of the line: number of bytes up to and including it.
    Last(usize),
    /// The line continues: it is no boundary.
    Other,
    /// More bytes are needed. `true`: if none come, no part follows.
    Need(bool),
}

/// Classifies the text after a boundary (RFC 2046 section 5.1.1).
pub(crate) fn tail(text: &[u8]) -> Tail {
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

/// A form's boundary in its content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Boundary<'a> {
    /// There is no boundary.
    None,
    /// All receivers that find a boundary find this one.
    Plain(&'a [u8]),
    /// Receivers find different boundaries.
    Odd,
}

/// The boundary that a content type names. Receivers differ over several boundaries, over one in pieces or
/// encoded (RFC 2231), over escapes, white space and commas in one, and over the text after a quoted one.
pub(crate) fn boundary(content_type: &[u8]) -> Boundary<'_> {
    let mut all = occurrences(content_type, b"boundary");
    let Some((_, mark, value)) = all.next() else { return Boundary::None };
    if all.next().is_some() || !mark.is_empty() {
        return Boundary::Odd;
    }
    let (found, behind) = match value {
        [b'"', quoted @ ..] => {
            let (found, behind) = span(quoted, |b| b != b'"');
            let Some(behind) = behind.strip_prefix(b"\"") else { return Boundary::Odd };
            (found, span(behind, is_blank).1)
        }
        bare => {
            let (found, behind) = span(bare, |b| b != b';');
            (found.trim_ascii_end(), behind)
        }
    };
    let quoted = value.first() == Some(&b'"');
    let plain = |b: &u8| {
        b.is_ascii_graphic() && !matches!(b, b'"' | b'\\') && (quoted || *b != b',') || quoted && *b == b' '
    };
    match found {
        [] if behind.is_empty() => Boundary::None,
        [b'\'' | b'<' | b' ', ..] | [.., b' '] | [] => Boundary::Odd,
        _ if found.len() > MAX_BOUNDARY || !matches!(behind, [] | [b';', ..]) => Boundary::Odd,
        _ if found.iter().all(plain) => Boundary::Plain(found),
        _ => Boundary::Odd,
    }
}

/// Whether all receivers read the header of a part alike, as far as it has come: lines that all end in CR LF,
/// or all in LF, each a field or the continuation of one, of a file that is neither encoded nor a form itself
/// (RFC 7578 sections 4.3 and 4.7). `whole`: the header is complete.
pub(crate) fn is_plain_header(header: &[u8], crlf: bool, whole: bool) -> bool {
    let mut rest = header;
    let mut first = true;
    while !rest.is_empty() {
        let end = memchr::memchr(b'\n', rest);
        let line = before(rest, end.unwrap_or(rest.len()));
        rest = end.map_or(&[][..], |end| after(rest, end + 1));
        let over = end.is_some() || whole;
        let text = match line.strip_suffix(b"\r") {
            // The end of the last line may not have come yet.
            Some(text) if crlf && (end.is_some() || !whole) => text,
            _ if crlf && end.is_some() => return false,
            _ => line,
        };
        if text.iter().any(|b| is_odd_control(*b)) || over && !is_plain_line(text, first) {
            return false;
        }
        first = false;
    }
    let header = unfold(header);
    !whole || !fields(&header).any(|(name, value)| is_encoded(name, value) || is_form(name, value))
}

/// Whether a byte is a control character that some receiver takes for white space or the end of a line. Names
/// in ISO 2022 contain an escape.
const fn is_odd_control(byte: u8) -> bool {
    byte.is_ascii_control() && !matches!(byte, b'\t' | 0x1b)
}

/// Whether a line is a field, or the continuation of one.
fn is_plain_line(line: &[u8], first: bool) -> bool {
    let (name, rest) = span(line, is_token);
    match line {
        [b' ' | b'\t', ..] => !first && !line.trim_ascii().is_empty(),
        _ => !name.is_empty() && rest.first() == Some(&b':'),
    }
}

/// The fields of a header with complete lines: names and values.
fn fields(header: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let lines = header.split(|b| *b == b'\n');
    lines.filter_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        Some((before(line, colon), after(line, colon + 1).trim_ascii()))
    })
}

/// Whether a field declares that a part has parts itself.
fn is_form(name: &[u8], value: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"content-type") && boundary(value) != Boundary::None
}

/// Whether a field declares that the content of a part is encoded.
fn is_encoded(name: &[u8], value: &[u8]) -> bool {
    let is_one_of = |words: &[&str]| words.iter().any(|word| value.eq_ignore_ascii_case(word.as_bytes()));
    name.eq_ignore_ascii_case(b"content-transfer-encoding") && !is_one_of(&["7bit", "8bit", "binary"])
        || name.eq_ignore_ascii_case(b"content-encoding") && !is_one_of(&["identity"])
}

/// Every occurrence of a word with an equals sign after it: position of the value, text between word and
/// sign, and the text from the value on.
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

/// The file name in the disposition of a part, as Suricata and most receivers read it: the first parameter
/// `filename` or `filename*` (RFC 8187) that has a value, else the pieces of RFC 2231. Empty: the user chose
/// no file. `None`: the part is no file.
pub(crate) fn name(disposition: &[u8]) -> Option<Vec<u8>> {
    let mut is_file = false;
    let mut pieces: Vec<(u32, Vec<u8>)> = Vec::new();
    let mut rest = disposition;
    loop {
        rest = span(rest, |b| is_blank(b) || b == b';').1;
        let (key, behind) = span(rest, |b| !matches!(b, b'=' | b';'));
        let Some((sign, behind)) = behind.split_first() else { break };
        rest = behind;
        if *sign == b';' {
            continue;
        }
        let (value, behind) = quoted_or_bare(behind);
        rest = behind;
        let Some(mark) = key.get("filename".len()..).filter(|_| starts_nocase(key, b"filename")) else {
            continue;
        };
        let (mark, blanks) = span(mark, |b| !is_blank(b));
        if !blanks.iter().all(|b| is_blank(*b)) {
            continue;
        }
        match ParameterSuffix::read(mark) {
            Some(ParameterSuffix::Plain) if !value.is_empty() => return Some(value),
            Some(mark @ ParameterSuffix::Extended(None)) => match mark.decode(value) {
                text if text.is_empty() => is_file = true,
                text => return Some(text),
            },
            Some(mark @ (ParameterSuffix::Piece(number) | ParameterSuffix::Extended(Some(number)))) => {
                is_file = true;
                pieces.push((number, mark.decode(value)));
            }
            Some(ParameterSuffix::Plain) => is_file = true,
            None => {}
        }
    }
    pieces.sort_by_key(|(number, _)| *number);
    is_file.then(|| pieces.into_iter().flat_map(|(_, text)| text).collect())
}

/// Text between the name of a parameter and the equals sign (RFC 2231 sections 3 and 4, RFC 8187).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParameterSuffix {
    /// No text.
    Plain,
    /// `*0`: a piece of the value.
    Piece(u32),
    /// `*`: the value is percent-encoded after a character set and a language; `*0*`: a piece of such a
    /// value.
    Extended(Option<u32>),
}

impl ParameterSuffix {
    fn read(mark: &[u8]) -> Option<Self> {
        let Some(mark) = mark.strip_prefix(b"*") else {
            return mark.is_empty().then_some(ParameterSuffix::Plain);
        };
        let (digits, extended) = span(mark, |b| b.is_ascii_digit());
        if !matches!(extended, b"" | b"*") {
            return None;
        }
        let number = core::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
        match number {
            Some(number) if extended.is_empty() => Some(ParameterSuffix::Piece(number)),
            None if !extended.is_empty() => None,
            number => Some(ParameterSuffix::Extended(number)),
        }
    }

    /// Decodes a value with this mark.
    fn decode(self, value: Vec<u8>) -> Vec<u8> {
        let ParameterSuffix::Extended(number) = self else { return value };
        if number.is_some_and(|number| number > 0) {
            return percent(&value);
        }
        // The character set and the language precede the text.
        percent(value.splitn(3, |b| *b == b'\'').nth(2).unwrap_or(&value))
    }
}

/// The value of a parameter at the beginning of a text, without quotes and escapes, and the text after it. A
/// quote without a closing one is a part of the value.
fn quoted_or_bare(text: &[u8]) -> (Vec<u8>, &[u8]) {
    let text = span(text, is_blank).1;
    if let Some(quoted) = text.strip_prefix(b"\"") {
        let mut escaped = false;
        let end = quoted.iter().position(|b| {
            let ends = *b == b'"' && !escaped;
            escaped = *b == b'\\' && !escaped;
            ends
        });
        if let Some(end) = end {
            return (unescape(before(quoted, end)), after(quoted, end + 1));
        }
    }
    let (bare, rest) = span(text, |b| b != b';');
    let end = bare.iter().rposition(|b| !is_blank(*b)).map_or(0, |last| last + 1);
    (before(bare, end).to_vec(), rest)
}

/// The file names in the header of a part, as the different receivers read them; folded lines count as one.
/// `None`: there are more names than a legitimate sender writes.
pub(crate) fn names(header: &[u8]) -> Option<Vec<Vec<u8>>> {
    names_of(header, b"filename")
}

/// As [`names`], for parameters whose name ends with `word`.
pub(crate) fn names_of(header: &[u8], word: &'static [u8]) -> Option<Vec<Vec<u8>>> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut add = |name: Vec<u8>| {
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    };
    let mut pieces: Vec<(u32, Vec<u8>)> = Vec::new();
    for (count, (_, mark, text)) in occurrences(header, word).enumerate() {
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
            // The character set and the language precede the first piece.
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

/// The value of a parameter at the beginning of a text, without its quotes.
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

/// Joins folded lines (RFC 5322 section 2.2.3) with a space between them.
pub(crate) fn unfold(header: &[u8]) -> Vec<u8> {
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
            let found = names(&unfold(header.as_bytes())).expect("few");
            let got: Vec<_> = found.into_iter().map(|n| String::from_utf8(n).expect("text")).collect();
            assert_eq!(got, want, "{header}");
        }
    }

    #[test]
    fn headers_of_parts_that_all_read_alike() {
        for (header, crlf) in [
            ("Content-Disposition: form-data; name=f; filename=\"a b\"\r\nContent-Type: text/plain", true),
            ("Content-Disposition: form-data;\r\n name=f\r\nX:", true),
            ("A: b; filename=\"boundary=B\"\nContent-Transfer-Encoding: Binary\nC:\td", false),
        ] {
            for end in 0..=header.len() {
                assert!(
                    is_plain_header(&header.as_bytes()[..end], crlf, end == header.len()),
                    "{header} to {end}"
                );
            }
        }
        for (header, crlf) in [
            ("A: b\nC: d", true),
            ("A: b\rC: d", true),
            ("A: b\r\r\nC: d", true),
            ("A: b\r", true),
            ("A: b\r\nC: d", false),
            ("A: b\r\n \t\r\nC: d", true),
            (" A: b", true),
            ("nocolon\r\nA: b", true),
            (": b", true),
            ("A : b", true),
            ("A: b\x0bC: d", true),
            ("A: b\0", true),
            ("Content-Transfer-Encoding: base64", true),
            ("Content-Transfer-Encoding:\r\n quoted-printable", true),
            ("A: b\r\ncontent-encoding: gzip", true),
            ("Content-Type: multipart/mixed; boundary=B", true),
        ] {
            assert!(!is_plain_header(header.as_bytes(), crlf, true), "{header:?}");
        }
    }

    #[test]
    fn the_name_of_a_part_is_suricatas() {
        for (disposition, want) in [
            // RFC 8187: character sets and languages, quotes around all of it, none of both.
            ("filename*=UTF-8''a%20b.exe", Some("a b.exe")),
            ("filename*=utf-8'en'a%20b.exe", Some("a b.exe")),
            ("filename*=iso-8859-1'en'rates%2E", Some("rates.")),
            ("filename*=\"UTF-8''q.exe\"", Some("q.exe")),
            ("filename*=a.exe", Some("a.exe")),
            ("filename*=UTF-8''a%zz%4", Some("a%zz%4")),
            // Both: the first that has a value.
            ("filename=x.txt; filename*=UTF-8''y.exe", Some("x.txt")),
            ("filename*=UTF-8''y.exe; filename=x.txt", Some("y.exe")),
            ("filename=\"\"; filename*=UTF-8''z.exe", Some("z.exe")),
            ("filename=z.exe; filename*=UTF-8''", Some("z.exe")),
            // RFC 2231: pieces.
            ("filename*0=ev; filename*1=il.exe", Some("evil.exe")),
            ("filename*1*=%69l.exe; filename*0*=UTF-8''%65v", Some("evil.exe")),
            // Quotes and escapes.
            ("filename=\"a\\\"b.exe\"", Some("a\"b.exe")),
            ("filename=\"C:\\\\dir\\\\b.exe\"", Some("C:\\dir\\b.exe")),
            ("filename=\"a\\\"; x=\"b\"", Some("a\"; x=")),
            ("filename=\"a;b\"", Some("a;b")),
            ("filename=a\\\"b.exe", Some("a\\\"b.exe")),
            ("filename=\"open.exe", Some("\"open.exe")),
            ("filename=a b.exe ; x=y", Some("a b.exe")),
            ("FileName = z", Some("z")),
            // The user chose no file.
            ("filename=\"\"", Some("")),
            ("filename=", Some("")),
            ("filename*=UTF-8''", Some("")),
            // No file.
            ("name=\"x; filename=in.exe\"", None),
            ("xfilename=x", None),
            ("filename2=x", None),
            ("filename", None),
            ("", None),
        ] {
            let found = name(format!("form-data; name=\"f\"; {disposition}").as_bytes());
            assert_eq!(found.as_deref(), want.map(str::as_bytes), "{disposition}");
        }
    }

    #[test]
    fn boundaries_and_their_lines() {
        for (parameter, found) in [
            ("x=y; Boundary = BB;z", "BB"),
            ("boundary=BB ; x=y", "BB"),
            ("boundary=\"BB\"", "BB"),
            ("boundary=\"B, B\" ;", "B, B"),
            ("boundary=----WebKitFormBoundaryAbC", "----WebKitFormBoundaryAbC"),
        ] {
            let content_type = format!("multipart/form-data; {parameter}");
            let seen = boundary(content_type.as_bytes());
            assert_eq!(seen, Boundary::Plain(found.as_bytes()), "{parameter}");
        }
        for odd in [
            "x-boundary=A; boundary=B",
            "boundary=;boundary=B",
            "boundary*=utf-8''B",
            "boundary*0=A; boundary*1=B",
            "boundary=A B",
            "boundary=A,B",
            "boundary=A\"B\"",
            "boundary=A\\B",
            "boundary=\"A\\B\"",
            "boundary=\"AB",
            "boundary=\"AB\"C",
            "boundary=\"AB \"",
            "boundary=\" AB\"",
            "boundary='AB'",
            "boundary=<AB>",
            "boundary=A\x0bB",
        ] {
            let content_type = format!("multipart/form-data; {odd}");
            assert_eq!(boundary(content_type.as_bytes()), Boundary::Odd, "{odd}");
        }
        assert_eq!(boundary(b"multipart/form-data; boundary="), Boundary::None);
        assert_eq!(boundary(b"multipart/form-data"), Boundary::None);
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
