// SPDX-License-Identifier: Apache-2.0
//! The small languages inside option values: negation and quotes, lists at commas, escapes, whole numbers.
//! Each keyword interprets its argument itself. Semantics follow Suricata 8's user guide ("Rules Format") and
//! its observed behaviour.

use core::ops::Range;
use std::borrow::Cow;

use thiserror::Error;

/// An error in an argument with its place: byte offsets counted from the argument's start.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ArgumentError {
    /// Description of the error, complete enough to be shown alone.
    pub message: String,
    /// First byte of the place.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl ArgumentError {
    /// An error in a range of the argument.
    pub fn new(message: impl Into<String>, range: Range<usize>) -> Self {
        Self { message: message.into(), start: range.start, end: range.end.max(range.start) }
    }

    /// The error with its place in a text in which this argument begins at `offset`.
    #[must_use]
    pub fn shifted(mut self, offset: usize) -> Self {
        self.start = self.start.saturating_add(offset);
        self.end = self.end.saturating_add(offset);
        self
    }
}

/// An option's value without quotes and negation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionValue<'a> {
    /// A `!` preceded the value.
    pub negated: bool,
    /// The value had double quotes.
    pub quoted: bool,
    /// The remaining text, with its escapes.
    pub text: &'a [u8],
    /// Offset of `text` in the value.
    pub start: usize,
}

/// Whether a byte is a space or tab, which Suricata skips around values and list items.
#[must_use]
pub(crate) const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Removes quotes from a value, and a `!` before them if the keyword can be negated.
///
/// # Errors
/// Nothing is left, or a quote is not closed (as after a missing semicolon).
pub fn unwrap_value(value: &[u8], can_negate: bool) -> Result<OptionValue<'_>, ArgumentError> {
    let mut start = skip_blanks(value, 0);
    let mut end = value.len();
    while end > start && value.get(end - 1).copied().is_some_and(is_blank) {
        end -= 1;
    }
    let mut negated = false;
    if can_negate && value.get(start) == Some(&b'!') {
        negated = true;
        start = skip_blanks(value, start + 1);
    }
    if start >= end {
        return Err(ArgumentError::new("the argument is empty", 0..value.len()));
    }
    let mut quoted = false;
    if value.get(start) == Some(&b'"') {
        if end - start < 2 || value.get(end - 1) != Some(&b'"') {
            let message = "the quote is not closed (is a semicolon missing before it ends?)";
            return Err(ArgumentError::new(message, start..end));
        }
        quoted = true;
        start += 1;
        end -= 1;
        if start == end {
            return Err(ArgumentError::new("the quotes are empty", start - 1..end + 1));
        }
    }
    Ok(OptionValue { negated, quoted, text: value.get(start..end).unwrap_or_default(), start })
}

fn skip_blanks(bytes: &[u8], from: usize) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    from + rest.iter().take_while(|b| is_blank(**b)).count()
}

/// One item of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgumentItem<'a> {
    /// The item without blanks around it, with its escapes.
    pub text: &'a [u8],
    /// Offset of `text` in the list.
    pub start: usize,
}

impl<'a> ArgumentItem<'a> {
    /// The item as text; `None` if it is no UTF-8.
    #[must_use]
    pub fn str(&self) -> Option<&'a str> {
        core::str::from_utf8(self.text).ok()
    }

    /// The item's range of bytes in the list.
    #[must_use]
    pub const fn range(&self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }

    /// Splits at the first run of blanks: `depth 4` to `depth` and `4` (empty without one).
    #[must_use]
    pub fn word(&self) -> (ArgumentItem<'a>, ArgumentItem<'a>) {
        let at = self.text.iter().position(|b| is_blank(*b)).unwrap_or(self.text.len());
        let (head, tail) = self.text.split_at_checked(at).unwrap_or((self.text, &[]));
        let rest = trimmed(tail, self.start + at);
        (ArgumentItem { text: head, start: self.start }, rest)
    }
}

fn trimmed(bytes: &[u8], start: usize) -> ArgumentItem<'_> {
    let lead = skip_blanks(bytes, 0);
    let mut text = bytes.get(lead..).unwrap_or_default();
    while let [head @ .., last] = text {
        if !is_blank(*last) {
            break;
        }
        text = head;
    }
    ArgumentItem { text, start: start + lead }
}

/// The items of a list, split at each `separator` without a backslash before it and outside of double quotes.
/// An empty list has one empty item, as `a,` has an empty second one.
pub fn split_list(list: &[u8], separator: u8) -> impl Iterator<Item = ArgumentItem<'_>> {
    let mut from = Some(0usize);
    core::iter::from_fn(move || {
        let start = from?;
        let mut escaped = false;
        let mut open = false;
        let rest = list.get(start..).unwrap_or_default();
        let at = rest.iter().position(|byte| {
            if escaped {
                escaped = false;
                return false;
            }
            match byte {
                b'\\' => escaped = true,
                b'"' => open = !open,
                b if *b == separator => return !open,
                _ => {}
            }
            false
        });
        from = at.map(|at| start + at + 1);
        let piece = at.map_or(rest, |at| rest.get(..at).unwrap_or_default());
        Some(trimmed(piece, start))
    })
}

/// The items of a list between commas; see [`split_list`].
pub fn split_commas(list: &[u8]) -> impl Iterator<Item = ArgumentItem<'_>> {
    split_list(list, b',')
}

/// Removes the backslash from every escaped byte (as for `msg`).
#[must_use]
pub fn unescape(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'\\') {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut escaped = false;
    for byte in text {
        if !escaped && *byte == b'\\' {
            escaped = true;
        } else {
            escaped = false;
            out.push(*byte);
        }
    }
    Cow::Owned(out)
}

/// A whole number, decimal or with `0x` hexadecimal, with an optional sign and nothing around it.
///
/// # Errors
/// No number, or one outside `i64`.
pub fn integer(text: &[u8]) -> Result<i64, ArgumentError> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let all = 0..text.len();
    let value = unsigned_digits(digits).ok_or_else(|| not_a_number(text))?;
    let value = if negative { -i128::from(value) } else { i128::from(value) };
    i64::try_from(value).map_err(|_| ArgumentError::new("the number does not fit into 64 bits", all))
}

/// A whole number without sign, decimal or with `0x` hexadecimal, with nothing around it, at most
/// `max`.
///
/// # Errors
/// No number, or one above `max`.
pub fn unsigned(text: &[u8], max: u64) -> Result<u64, ArgumentError> {
    let value = unsigned_digits(text).ok_or_else(|| not_a_number(text))?;
    if value > max {
        return Err(ArgumentError::new(format!("the number is above {max}"), 0..text.len()));
    }
    Ok(value)
}

fn unsigned_digits(text: &[u8]) -> Option<u64> {
    let (digits, radix) = match text {
        [b'0', b'x' | b'X', rest @ ..] => (rest, 16),
        _ => (text, 10),
    };
    if !digits.first()?.is_ascii_hexdigit() {
        return None;
    }
    u64::from_str_radix(core::str::from_utf8(digits).ok()?, radix).ok()
}

/// A size: decimal digits and `kb`, `mb`, `gb` or `kib`, `mib`, `gib` in any letter case, all of which count
/// in steps of 1024 (as in Suricata), with optional blanks before the unit.
///
/// # Errors
/// No number, an unknown unit, or a size outside 64 bits.
pub fn size(text: &[u8]) -> Result<u64, ArgumentError> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let (number, unit) = text.split_at_checked(digits).unwrap_or((text, &[]));
    let number = unsigned_digits(number).ok_or_else(|| not_a_number(text))?;
    let unit = trimmed(unit, digits);
    let Some(factor) = unit_factor(unit.text) else {
        return Err(ArgumentError::new("unknown unit; kb, mb and gb are known", unit.range()));
    };
    number
        .checked_mul(factor)
        .ok_or_else(|| ArgumentError::new("the size does not fit into 64 bits", 0..text.len()))
}

/// Number of bytes of a unit; 1 for none.
pub(crate) fn unit_factor(unit: &[u8]) -> Option<u64> {
    let is = |names: [&[u8]; 2]| names.iter().any(|n| unit.eq_ignore_ascii_case(n));
    Some(match unit {
        [] => 1,
        _ if is([b"kb", b"kib"]) => 1 << 10,
        _ if is([b"mb", b"mib"]) => 1 << 20,
        _ if is([b"gb", b"gib"]) => 1 << 30,
        _ => return None,
    })
}

fn not_a_number(text: &[u8]) -> ArgumentError {
    ArgumentError::new(format!("`{}` is not a number", text.escape_ascii()), 0..text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_around_values() {
        let a = unwrap_value(b" ! \"a\\\"b\" ", true).unwrap();
        assert_eq!((a.negated, a.quoted, a.text, a.start), (true, true, b"a\\\"b".as_slice(), 4));
        let a = unwrap_value(b"!x", false).unwrap();
        assert_eq!((a.negated, a.text), (false, b"!x".as_slice()));
        for bad in [b"".as_slice(), b" ", b"!", b"\"", b"\"a", b"\"\""] {
            assert!(unwrap_value(bad, true).is_err(), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn lists_keep_places() {
        let items: Vec<_> = split_commas(b"a, b\\,c ,\"d,e\",").map(|i| (i.text, i.start)).collect();
        let want: Vec<(&[u8], usize)> = vec![(b"a", 0), (b"b\\,c", 3), (b"\"d,e\"", 9), (b"", 15)];
        assert_eq!(items, want);
        assert_eq!(split_commas(b"").count(), 1);
        let item = split_commas(b" depth  4 ").next().unwrap();
        let (word, rest) = item.word();
        assert_eq!((word.text, rest.text, rest.start), (b"depth".as_slice(), b"4".as_slice(), 8));
    }

    #[test]
    fn numbers() {
        assert_eq!(integer(b"-12"), Ok(-12));
        assert_eq!(integer(b"0x10"), Ok(16));
        assert_eq!(integer(b"-9223372036854775808"), Ok(i64::MIN));
        for bad in [b"".as_slice(), b"-", b"1 ", b"--1", b"0x", b"9223372036854775808", b"1a"] {
            assert!(integer(bad).is_err(), "{}", bad.escape_ascii());
        }
        assert_eq!(unsigned(b"255", 255), Ok(255));
        assert!(unsigned(b"256", 255).is_err());
        assert_eq!(size(b"10kb"), Ok(10240));
        assert_eq!(size(b"2 MiB"), Ok(2 << 20));
        assert!(size(b"1tb").is_err());
        assert!(size(b"99999999999999999gb").is_err());
    }

    #[test]
    fn escapes() {
        assert_eq!(&*unescape(br#"a\;b\"c\\d\w"#), br#"a;b"c\dw"#);
    }
}
