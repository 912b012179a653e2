// SPDX-License-Identifier: Apache-2.0
//! Byte-level helpers for text protocols: the classes of white space on which receivers differ, trimming, and
//! case-insensitive searches.

/// White space by `isspace` of the C locale.
pub(crate) const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c)
}

/// White space by Python's `str.split`, with which Python servers split request lines.
pub(crate) const fn is_wide_space(byte: u8) -> bool {
    is_space(byte) || matches!(byte, 0x1c..=0x1f | 0x85 | 0xa0)
}

/// Space and tab only.
pub(crate) const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// A byte of a header name (RFC 2616 section 2.2, `token`).
pub(crate) const fn is_token(byte: u8) -> bool {
    matches!(byte, 0x21 | 0x23..=0x27 | b'*' | b'+' | b'-' | b'.' | b'0'..=b'9' | b'A'..=b'Z' | b'^'..=b'z' | b'|' | b'~')
}

/// The text without white space ([`is_space`]) at both ends.
pub(crate) fn trim(mut text: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = text
        && is_space(*first)
    {
        text = rest;
    }
    while let [rest @ .., last] = text
        && is_space(*last)
    {
        text = rest;
    }
    text
}

/// The line without CRs and LFs at its end.
pub(crate) fn trim_line_end(mut line: &[u8]) -> &[u8] {
    while let [rest @ .., b'\r' | b'\n'] = line {
        line = rest;
    }
    line
}

/// Splits before the first byte that is not in the class.
pub(crate) fn span(text: &[u8], class: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    let end = text.iter().position(|b| !class(*b)).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, &[]))
}

/// Bytes from `from` on; empty if there are fewer.
pub(crate) fn after(text: &[u8], from: usize) -> &[u8] {
    text.get(from..).unwrap_or_default()
}

/// The first `to` bytes, or all if there are fewer.
pub(crate) fn before(text: &[u8], to: usize) -> &[u8] {
    text.get(..to).unwrap_or(text)
}

/// Position of a literal.
pub(crate) fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, what)
}

/// A line with its LF and what follows it; `None` while there is no LF.
pub(crate) fn line_to_lf(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(b'\n', text)?;
    text.split_at_checked(end + 1)
}

/// Position of an ASCII literal, ignoring letter case.
pub(crate) fn find_nocase(text: &[u8], what: &[u8]) -> Option<usize> {
    if what.is_empty() {
        return Some(0);
    }
    text.windows(what.len()).position(|w| w.eq_ignore_ascii_case(what))
}

/// Whether both are equal, ignoring letter case, and NUL bytes in `text`: some browsers drop them from names
/// and values. `what` has none.
pub(crate) fn equals_nocase_nonul(text: &[u8], what: &[u8]) -> bool {
    if text.len() <= what.len() {
        return text.eq_ignore_ascii_case(what);
    }
    let begins = |with: &u8| what.first().is_none_or(|first| *with == 0 || with.eq_ignore_ascii_case(first));
    if !text.first().is_some_and(begins) {
        return false;
    }
    memchr::memchr(0, text).is_some()
        && text
            .iter()
            .filter(|b| **b != 0)
            .map(u8::to_ascii_lowercase)
            .eq(what.iter().map(u8::to_ascii_lowercase))
}

/// Whether `what` occurs, ignoring letter case, and NUL bytes in `text`.
pub(crate) fn contains_nocase_nonul(text: &[u8], what: &[u8]) -> bool {
    if memchr::memchr(0, text).is_none() {
        return find_nocase(text, what).is_some();
    }
    let clean: Vec<u8> = text.iter().copied().filter(|b| *b != 0).collect();
    find_nocase(&clean, what).is_some()
}

/// Whether `text` begins with `what`, ignoring letter case.
pub(crate) fn starts_nocase(text: &[u8], what: &[u8]) -> bool {
    text.get(..what.len()).is_some_and(|head| head.eq_ignore_ascii_case(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_and_searches() {
        for byte in 0..=255u8 {
            let separator = b"()<>@,;:\\\"/[]?={} \t".contains(&byte);
            assert_eq!(is_token(byte), (32..=126).contains(&byte) && !separator, "{byte}");
        }
        assert_eq!(trim(b" \t a b\r\n"), b"a b");
        assert_eq!(trim_line_end(b"a\r\r\n"), b"a");
        assert!(equals_nocase_nonul(b"G\0ZIP", b"gzip"));
        assert!(!equals_nocase_nonul(b"gzip2", b"gzip") && !equals_nocase_nonul(b"gzi\0", b"gzip"));
        assert!(equals_nocase_nonul(b"\0g\0zip\0", b"gzip") && equals_nocase_nonul(b"\0", b""));
        assert!(contains_nocase_nonul(b"x Ch\0unked", b"chunked"));
        assert_eq!(line_to_lf(b"a\nb"), Some((&b"a\n"[..], &b"b"[..])));
    }
}
