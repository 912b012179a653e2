// SPDX-License-Identifier: Apache-2.0
//! Parsers that the arguments of several keywords share: numbers with ranges, variables, words.

use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::KeywordError;
use crate::model::content::Number;

/// The argument as text.
pub fn utf8(argument: &[u8]) -> Result<&str, KeywordError> {
    core::str::from_utf8(argument)
        .map(str::trim)
        .map_err(|_| KeywordError::argument("the argument is not text").help("write it in ASCII"))
}

/// The items of a list between commas, without blanks around them.
pub fn items(argument: &[u8]) -> Result<Vec<&str>, KeywordError> {
    Ok(utf8(argument)?.split(',').map(str::trim).collect())
}

/// Splits an item into its first word and the rest: `track by_src`.
pub fn word(item: &str) -> (&str, &str) {
    match item.split_once(|c: char| c.is_ascii_whitespace()) {
        Some((word, rest)) => (word, rest.trim()),
        None => (item, ""),
    }
}

/// A number as `strtoull` reads it with base 0: `0x` hexadecimal, `0` octal, else decimal.
pub fn unsigned(text: &str) -> Option<u64> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    match (hex, text.strip_prefix('0')) {
        (Some(digits), _) => u64::from_str_radix(digits, 16).ok(),
        (None, Some(digits)) if !digits.is_empty() => u64::from_str_radix(digits, 8).ok(),
        _ => text.parse().ok(),
    }
}

/// A signed number, in the notation of [`unsigned`].
pub fn signed(text: &str) -> Option<i64> {
    match text.strip_prefix('-') {
        Some(digits) => unsigned(digits).and_then(|n| 0i64.checked_sub_unsigned(n)),
        None => unsigned(text.strip_prefix('+').unwrap_or(text)).and_then(|n| i64::try_from(n).ok()),
    }
}

/// A decimal number in a range.
pub fn within<T>(name: &str, text: &str, range: core::ops::RangeInclusive<T>) -> Result<T, KeywordError>
where
    T: core::str::FromStr + PartialOrd + core::fmt::Display,
{
    text.parse().ok().filter(|n| range.contains(n)).ok_or_else(|| {
        KeywordError::argument(format!(
            "`{text}` is not a value for {name}: it takes a number from {} to {}",
            range.start(),
            range.end()
        ))
    })
}

/// Whether a text looks like the name of a variable.
pub fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
}

/// A number in a range, or a variable that an earlier keyword of the rule set.
pub fn number(
    builder: &mut SignatureBuilder<'_>,
    name: &str,
    text: &str,
    range: core::ops::RangeInclusive<i64>,
) -> Result<Number, KeywordError> {
    if is_name(text) {
        return builder.variable(text, false).map(Number::Variable);
    }
    match signed(text) {
        Some(value) if range.contains(&value) => Ok(Number::Constant(value)),
        _ => Err(KeywordError::argument(format!(
            "`{text}` is not a value for {name}: it takes a number from {} to {} or a variable",
            range.start(),
            range.end()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_strtoull_reads_them() {
        assert_eq!(unsigned("0x1f"), Some(31));
        assert_eq!(unsigned("017"), Some(15));
        assert_eq!(unsigned("0"), Some(0));
        assert_eq!(unsigned("-1"), None);
        assert_eq!(signed("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(signed("-9223372036854775809"), None);
        assert_eq!(signed("+5"), Some(5));
        assert_eq!(signed(""), None);
        assert!(within("x", "7", 1u16..=6).is_err());
    }
}
