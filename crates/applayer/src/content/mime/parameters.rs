// SPDX-License-Identifier: Apache-2.0
//! Parameters of MIME header fields (RFC 2045 section 5.1), with continuations and character sets (RFC 2231).

/// Limit of the sections of one parameter.
const SECTIONS_MAX: usize = 64;

/// A piece of a parameter, as RFC 2231 numbers them.
struct Section<'a> {
    number: usize,
    /// The piece has percent signs for bytes; the first one begins with character set and language.
    is_encoded: bool,
    value: &'a [u8],
}

/// The value of a parameter, decoded. `name` is in lower case.
pub(crate) fn parameter_value(field: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    let mut rest = split_at_semicolon(field).1;
    while let Some(text) = rest.filter(|text| !text.is_empty()) {
        let (part, behind) = split_at_semicolon(text);
        rest = behind;
        let Some(equals) = memchr::memchr(b'=', part) else { continue };
        let (attribute, value) = part.split_at_checked(equals).unwrap_or_default();
        let value = unquoted(value.get(1..).unwrap_or_default());
        let Some(section) = section_of(attribute.trim_ascii(), name) else { continue };
        let (number, is_encoded) = section;
        if sections.len() < SECTIONS_MAX && !sections.iter().any(|other| other.number == number) {
            sections.push(Section { number, is_encoded, value });
        }
    }
    sections.sort_by_key(|section| section.number);
    let mut value = Vec::new();
    for (index, section) in sections.iter().enumerate() {
        if !section.is_encoded {
            value.extend_from_slice(section.value);
            continue;
        }
        let text = if index == 0 { behind_language(section.value) } else { section.value };
        percent_decode(text, &mut value);
    }
    (!sections.is_empty()).then_some(value)
}

/// Number and encoding of a parameter's section, if the attribute is one: `name`, `name*`, `name*1`,
/// `name*1*`.
fn section_of(attribute: &[u8], name: &[u8]) -> Option<(usize, bool)> {
    let (begin, rest) = attribute.split_at_checked(name.len())?;
    if !begin.eq_ignore_ascii_case(name) {
        return None;
    }
    match rest {
        [] => Some((0, false)),
        b"*" => Some((0, true)),
        [b'*', digits @ .., b'*'] => Some((number(digits)?, true)),
        [b'*', digits @ ..] => Some((number(digits)?, false)),
        _ => None,
    }
}

fn number(digits: &[u8]) -> Option<usize> {
    core::str::from_utf8(digits).ok()?.parse().ok()
}

/// Splits at the first semicolon outside of quotes.
fn split_at_semicolon(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (index, byte) in text.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b';' if !is_quoted => return (text.get(..index).unwrap_or(text), text.get(index + 1..)),
            _ => {}
        }
    }
    (text, None)
}

/// A value without blanks and quotes around it.
fn unquoted(value: &[u8]) -> &[u8] {
    let value = value.trim_ascii();
    let Some(inner) = value.strip_prefix(b"\"") else { return value };
    memchr::memrchr(b'"', inner).and_then(|end| inner.get(..end)).unwrap_or(inner)
}

/// The text after `charset'language'`.
fn behind_language(text: &[u8]) -> &[u8] {
    let mut quotes = memchr::memchr_iter(b'\'', text);
    quotes.nth(1).and_then(|at| text.get(at + 1..)).unwrap_or(text)
}

fn percent_decode(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        let decoded = match (first, behind) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        out.push(decoded.unwrap_or(*first));
        rest = if decoded.is_some() { behind.get(2..).unwrap_or_default() } else { behind };
    }
}

/// The value of a hexadecimal digit.
pub(crate) const fn hex(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found() {
        for (field, value) in [
            ("attachment; filename=\"a b.txt\"", Some("a b.txt")),
            ("attachment; FileName=x.exe ; size=3", Some("x.exe")),
            ("attachment; filename=\"a;b\\\"c\"; x=y", Some("a;b\\\"c")),
            ("attachment; filename*=utf-8''%C3%9Cbersicht.pdf", Some("Übersicht.pdf")),
            ("attachment; filename*1*=%20c.txt; filename*0*=us-ascii'en'a%2fb", Some("a/b c.txt")),
            ("attachment; filename*0=\"one\"; filename*1=\".two\"", Some("one.two")),
            ("attachment; filename=\"open", Some("open")),
            ("attachment; filename=50%.txt", Some("50%.txt")),
            ("attachment", None),
            ("filename=x", None),
            ("attachment; filenames=x", None),
            ("attachment; filename*x=1", None),
            ("", None),
        ] {
            let expected = value.map(|value| value.as_bytes().to_vec());
            assert_eq!(parameter_value(field.as_bytes(), b"filename"), expected, "{field}");
        }
    }
}
