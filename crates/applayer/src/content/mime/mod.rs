// SPDX-License-Identifier: Apache-2.0
//! MIME: parameters of header values, and messages in parts.

mod agreement;
pub(crate) mod form_names;
pub(crate) mod message;
pub(crate) mod multipart;
pub(crate) mod parameters;

use crate::content::bytes::{after, before, is_space, span, starts_nocase};

/// A parameter (`filename=`, `boundary=`) of a header value, without quotes. `name` is in lower case and
/// includes the equals sign.
pub(crate) fn parameter<'a>(value: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (_, line) = span(value, is_space);
    let mut quotes = 0usize;
    let mut start = 0usize;
    let mut previous = *line.first()?;
    let last = line.len().checked_sub(1)?;
    let mut skip_to = 0usize;
    for (index, byte) in line.iter().enumerate().skip(1) {
        if index < skip_to {
            continue;
        }
        // After skipping, the previous byte is white space and no backslash.
        let escaped = previous == b'\\';
        previous = *byte;
        if !escaped && *byte == b'"' {
            quotes += 1;
        }
        if ((!escaped && *byte == b';') || index == last) && quotes.is_multiple_of(2) {
            let end = if index == last { index + 1 } else { index };
            let token = before(after(line, start), end.saturating_sub(start));
            let (blanks, _) = span(after(line, index + 1), is_space);
            start = index + 1 + blanks.len();
            skip_to = start;
            if token.len() > name.len() && starts_nocase(token, name) {
                let mut found = after(token, name.len());
                found = found.strip_prefix(b"\"").unwrap_or(found);
                found = found.strip_suffix(b"\"").unwrap_or(found);
                return Some(found);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters() {
        assert_eq!(parameter(b"attachment; filename=\"a b.txt\"", b"filename="), Some(&b"a b.txt"[..]));
        assert_eq!(parameter(b"form-data; name=\"x;y\"; FileName=z", b"filename="), Some(&b"z"[..]));
        assert_eq!(parameter(b"multipart/form-data; boundary=AaB03x", b"boundary="), Some(&b"AaB03x"[..]));
        assert_eq!(parameter(b"text/html", b"boundary="), None);
        assert_eq!(parameter(b"", b"boundary="), None);
    }
}
