// SPDX-License-Identifier: Apache-2.0
//! Conditions on unsigned numbers, the language that most of Suricata 8's numeric keywords share: `5`, `=5`,
//! `!5`, `!=5`, `<5`, `<=5`, `>5`, `>=5`, `1-3`, `1<>3`, `!1-3`, `&0xf0=0x30`, `&1!=1`; numbers are decimal
//! with a unit (`10kb`) or hexadecimal with `0x`. A condition that no number or every number meets is
//! refused, as in Suricata. Source: its user guide, "Integer Keywords".

use core::fmt;
use core::ops::BitAnd;

use crate::argument::{ArgumentError, unit_factor};

/// A width of numbers in conditions.
pub trait Uint: Copy + Ord + fmt::Display + fmt::Debug + BitAnd<Output = Self> {
    /// The largest value.
    const MAX: Self;
    /// Zero.
    const ZERO: Self;
    /// From 64 bits, if it fits.
    fn from_u64(value: u64) -> Option<Self>;
    /// To 64 bits.
    fn to_u64(self) -> u64;
}

macro_rules! widths {
    ($($t:ty),*) => {$(
        impl Uint for $t {
            const MAX: Self = <$t>::MAX;
            const ZERO: Self = 0;
            fn from_u64(value: u64) -> Option<Self> {
                Self::try_from(value).ok()
            }
            fn to_u64(self) -> u64 {
                u64::from(self)
            }
        }
    )*};
}
widths!(u8, u16, u32, u64);

/// A condition on an unsigned number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UintMatch<T> {
    /// Equal.
    Equal(T),
    /// Not equal.
    NotEqual(T),
    /// Below.
    Less(T),
    /// Below or equal.
    LessEqual(T),
    /// Above.
    Greater(T),
    /// Above or equal.
    GreaterEqual(T),
    /// Strictly between the two.
    Between(T, T),
    /// Not strictly between the two.
    NotBetween(T, T),
    /// Under the mask (first) equal to the second.
    Masked(T, T),
    /// Under the mask (first) not equal to the second.
    NotMasked(T, T),
}

impl<T: Uint> UintMatch<T> {
    /// Whether a number meets the condition.
    #[must_use]
    pub fn matches(&self, value: T) -> bool {
        match *self {
            Self::Equal(a) => value == a,
            Self::NotEqual(a) => value != a,
            Self::Less(a) => value < a,
            Self::LessEqual(a) => value <= a,
            Self::Greater(a) => value > a,
            Self::GreaterEqual(a) => value >= a,
            Self::Between(a, b) => value > a && value < b,
            Self::NotBetween(a, b) => value <= a || value >= b,
            Self::Masked(mask, b) => value & mask == b,
            Self::NotMasked(mask, b) => value & mask != b,
        }
    }

    /// The largest number that meets the condition, if the condition has an upper bound.
    #[must_use]
    pub fn most(&self) -> Option<u64> {
        match *self {
            Self::Equal(n) | Self::LessEqual(n) => Some(n.to_u64()),
            Self::Less(n) | Self::Between(_, n) => Some(n.to_u64().saturating_sub(1)),
            _ => None,
        }
    }

    /// Parses a condition; ranges exclude both ends (`1-4` is 2 and 3).
    ///
    /// # Errors
    /// The text is no condition, a number is too large for the width, or no number or every number meets the
    /// condition.
    pub fn parse(text: &[u8]) -> Result<Self, ArgumentError> {
        Self::read(text, false)
    }

    /// Parses a condition of a keyword whose ranges include both ends (`1-4` is 1 to 4), without masks.
    ///
    /// # Errors
    /// As [`UintMatch::parse`].
    pub fn parse_inclusive(text: &[u8]) -> Result<Self, ArgumentError> {
        Self::read(text, true)
    }

    /// Parses a condition or, if that fails, one of these names (in any letter case), negated by `!`.
    ///
    /// # Errors
    /// As [`UintMatch::parse`]; for text that is no name either, the error lists the names.
    pub fn parse_or_name<'n>(
        text: &[u8],
        names: impl Iterator<Item = (&'n str, T)> + Clone,
    ) -> Result<Self, ArgumentError> {
        Self::parse(text).or_else(|error| {
            let (negated, name) = match text {
                [b'!', rest @ ..] => (true, rest),
                _ => (false, text),
            };
            let wanted = name.trim_ascii();
            match names.clone().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(wanted)) {
                Some((_, value)) if negated => Ok(Self::NotEqual(value)),
                Some((_, value)) => Ok(Self::Equal(value)),
                // A text that begins like a number is an invalid number.
                None if !wanted.first().is_some_and(u8::is_ascii_alphabetic) => Err(error),
                None => Err(no_name(name, text.len(), names.map(|(known, _)| known))),
            }
        })
    }

    fn read(text: &[u8], inclusive: bool) -> Result<Self, ArgumentError> {
        let mut input = UintReader { text, at: 0 };
        input.spaces();
        let start = input.at;
        let condition = if !inclusive && input.skip_literal(b"&") {
            masked(&mut input)?
        } else if let Some(operator) = operator(&mut input) {
            compared(&mut input, operator, inclusive, start)?
        } else {
            ranged(&mut input, false, inclusive, start)?
        };
        input.spaces();
        match input.text.len() - input.at {
            0 => Ok(condition),
            _ => Err(ArgumentError::new("unexpected text after the number", input.at..text.len())),
        }
    }
}

/// The error for a word that is none of the names, at the end of a text of this length.
fn no_name<'n>(word: &[u8], length: usize, names: impl Iterator<Item = &'n str> + Clone) -> ArgumentError {
    const SHOWN: usize = 40;
    let place = length.saturating_sub(word.len())..length;
    let word = String::from_utf8_lossy(word);
    let count = names.clone().count();
    if count == 0 {
        return ArgumentError::new(format!("`{word}` is not a number, and the keyword has no names"), place);
    }
    let near = crate::suggest(&word, names.clone())
        .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    let shown = names.take(SHOWN).collect::<Vec<_>>().join(", ");
    let more = if count > SHOWN { format!(" and {} more", count - SHOWN) } else { String::new() };
    ArgumentError::new(format!("`{word}` is neither a number nor one of {shown}{more}{near}"), place)
}

#[derive(Clone, Copy, PartialEq)]
enum Operator {
    Equal,
    Not,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// Parses an operator; the longer ones first.
fn operator(input: &mut UintReader<'_>) -> Option<Operator> {
    const TABLE: [(&[u8], Operator); 7] = [
        (b">=", Operator::GreaterEqual),
        (b"<=", Operator::LessEqual),
        (b"!=", Operator::NotEqual),
        (b">", Operator::Greater),
        (b"<", Operator::Less),
        (b"!", Operator::Not),
        (b"=", Operator::Equal),
    ];
    TABLE.iter().find(|(text, _)| input.skip_literal(text)).map(|(_, operator)| *operator)
}

fn compared<T: Uint>(
    input: &mut UintReader<'_>,
    operator: Operator,
    inclusive: bool,
    start: usize,
) -> Result<UintMatch<T>, ArgumentError> {
    if operator == Operator::Not {
        // `!5` and `!1-3`; the range allows no blank after the `!`.
        let blank = input.peek() == Some(b' ');
        input.spaces();
        return if blank {
            Ok(UintMatch::NotEqual(input.number()?))
        } else {
            ranged(input, true, inclusive, start)
        };
    }
    input.spaces();
    let value: T = input.number()?;
    let limit = match operator {
        Operator::Less | Operator::GreaterEqual => Some(T::ZERO),
        Operator::LessEqual | Operator::Greater => Some(T::MAX),
        _ => None,
    };
    if limit == Some(value) {
        let what = if matches!(operator, Operator::Less | Operator::Greater) { "no" } else { "every" };
        return Err(ArgumentError::new(format!("{what} number meets this condition"), start..input.at));
    }
    Ok(match operator {
        Operator::Equal => UintMatch::Equal(value),
        Operator::Not | Operator::NotEqual => UintMatch::NotEqual(value),
        Operator::Less => UintMatch::Less(value),
        Operator::LessEqual => UintMatch::LessEqual(value),
        Operator::Greater => UintMatch::Greater(value),
        Operator::GreaterEqual => UintMatch::GreaterEqual(value),
    })
}

/// Parses a single number, or two with `-` or `<>` in between.
fn ranged<T: Uint>(
    input: &mut UintReader<'_>,
    negated: bool,
    inclusive: bool,
    start: usize,
) -> Result<UintMatch<T>, ArgumentError> {
    let low: T = input.number()?;
    let after = input.at;
    input.spaces();
    if !(input.skip_literal(b"-") || input.skip_literal(b"<>")) {
        input.at = after;
        return Ok(if negated { UintMatch::NotEqual(low) } else { UintMatch::Equal(low) });
    }
    input.spaces();
    let high: T = input.number()?;
    let all = start..input.at;
    if high <= low {
        return Err(ArgumentError::new("the range's end is not above its start", all));
    }
    let (low, high) = if inclusive {
        let widened = |value: u64| T::from_u64(value).filter(|_| low > T::ZERO && high < T::MAX);
        match (widened(low.to_u64().saturating_sub(1)), widened(high.to_u64().saturating_add(1))) {
            (Some(low), Some(high)) => (low, high),
            _ => {
                let message = "the range reaches the end of the numbers; write `<` or `>` instead";
                return Err(ArgumentError::new(message, all));
            }
        }
    } else if high.to_u64() - low.to_u64() > 1 {
        (low, high)
    } else {
        return Err(ArgumentError::new(
            "no number lies between the two (the ends are not in the range)",
            all,
        ));
    };
    Ok(if negated { UintMatch::NotBetween(low, high) } else { UintMatch::Between(low, high) })
}

/// Parses the text after `&`: mask, `=` or `!=`, value.
fn masked<T: Uint>(input: &mut UintReader<'_>) -> Result<UintMatch<T>, ArgumentError> {
    input.spaces();
    let start = input.at;
    let mask: T = input.number()?;
    input.spaces();
    let negated = input.skip_literal(b"!");
    if !input.skip_literal(b"=") {
        return Err(ArgumentError::new("`=` or `!=` is missing after the mask", input.at..input.at));
    }
    input.spaces();
    let value: T = input.number()?;
    if value & mask != value {
        return Err(ArgumentError::new("the value has bits outside the mask", start..input.at));
    }
    Ok(if negated { UintMatch::NotMasked(mask, value) } else { UintMatch::Masked(mask, value) })
}

struct UintReader<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> UintReader<'a> {
    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    fn skip_literal(&mut self, text: &[u8]) -> bool {
        let found = self.rest().starts_with(text);
        if found {
            self.at += text.len();
        }
        found
    }

    fn spaces(&mut self) {
        self.at += self.rest().iter().take_while(|b| **b == b' ').count();
    }

    fn run(&mut self, accept: impl Fn(&u8) -> bool) -> &'a [u8] {
        let rest = self.rest();
        let n = rest.iter().take_while(|b| accept(b)).count();
        self.at += n;
        rest.get(..n).unwrap_or_default()
    }

    fn number<T: Uint>(&mut self) -> Result<T, ArgumentError> {
        let start = self.at;
        if self.skip_literal(b"0x") {
            let digits = self.run(u8::is_ascii_hexdigit);
            return self.scaled(digits, 16, 1, start);
        }
        let digits = self.run(u8::is_ascii_digit);
        let end = self.at;
        match unit_factor(self.run(u8::is_ascii_alphabetic)) {
            Some(factor) => self.scaled(digits, 10, factor, start),
            None if digits.is_empty() => Err(self.no_number(start)),
            None => Err(ArgumentError::new("unknown unit; kb, mb and gb are known", end..self.at)),
        }
    }

    /// The error for text in place of a number.
    fn no_number(&self, start: usize) -> ArgumentError {
        let rest = self.text.get(start..).unwrap_or_default();
        let word = rest.split(|b| matches!(b, b' ' | b'<' | b'>' | b'=' | b',')).next().unwrap_or_default();
        if word.is_empty() {
            return ArgumentError::new("a number is missing", start..self.at.max(start));
        }
        let message = format!(
            "`{}` is not a number; numbers are written 5, 0x5 or 10kb, conditions on them 5, !5, <5, >=5, 5<>10",
            String::from_utf8_lossy(word)
        );
        ArgumentError::new(message, start..start + word.len())
    }

    fn scaled<T: Uint>(
        &self,
        digits: &[u8],
        radix: u32,
        factor: u64,
        start: usize,
    ) -> Result<T, ArgumentError> {
        if digits.is_empty() {
            return Err(self.no_number(start));
        }
        core::str::from_utf8(digits)
            .ok()
            .and_then(|digits| u64::from_str_radix(digits, radix).ok())
            .and_then(|n| n.checked_mul(factor))
            .and_then(T::from_u64)
            .ok_or_else(|| {
                ArgumentError::new(format!("the number is too large (at most {})", T::MAX), start..self.at)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use UintMatch as M;

    fn p(text: &str) -> Option<M<u16>> {
        M::parse(text.as_bytes()).ok()
    }

    #[test]
    fn every_form() {
        assert_eq!(p("5"), Some(M::Equal(5)));
        assert_eq!(p(" = 5 "), Some(M::Equal(5)));
        assert_eq!(p("!5"), Some(M::NotEqual(5)));
        assert_eq!(p("! 5"), Some(M::NotEqual(5)));
        assert_eq!(p("!=5"), Some(M::NotEqual(5)));
        assert_eq!(p("<5"), Some(M::Less(5)));
        assert_eq!(p("<= 5"), Some(M::LessEqual(5)));
        assert_eq!(p(">5"), Some(M::Greater(5)));
        assert_eq!(p(">=5"), Some(M::GreaterEqual(5)));
        assert_eq!(p("1-3"), Some(M::Between(1, 3)));
        assert_eq!(p("1 <> 3"), Some(M::Between(1, 3)));
        assert_eq!(p("!1-3"), Some(M::NotBetween(1, 3)));
        assert_eq!(p("& 0xf0 = 0x30"), Some(M::Masked(0xf0, 0x30)));
        assert_eq!(p("&1!=1"), Some(M::NotMasked(1, 1)));
        assert_eq!(p(">1kb"), Some(M::Greater(1024)));
        assert_eq!(p("63KiB"), Some(M::Equal(63 * 1024)));
        assert_eq!(M::<u64>::parse(b"3GB").ok(), Some(M::Equal(3 << 30)));
        assert_eq!(M::<u16>::parse_inclusive(b"1-3").ok(), Some(M::Between(0, 4)));
    }

    #[test]
    fn what_is_refused() {
        for bad in [
            "", " ", "a", "5a", "-1", "1-2", "3-1", "1-", "<0", ">65535", ">=0", "<=65535", "65536", "64kb",
            "1tb", "0x", "0x10000", "&1", "&1=2", "5 5", "! 1-3", "!!5", "=", "1--3", "= 1-3",
        ] {
            assert_eq!(p(bad), None, "{bad}");
        }
        assert!(M::<u16>::parse_inclusive(b"0-3").is_err());
        assert!(M::<u16>::parse_inclusive(b"1-65535").is_err());
        assert!(M::<u8>::parse(b"1kb").is_err());
        let e = M::<u8>::parse(b">300").unwrap_err();
        assert_eq!((e.start, e.end), (1, 4));
    }

    #[test]
    fn matching_follows_the_words() {
        let m = |t: &str, v| p(t).unwrap().matches(v);
        assert!(m("1-4", 2) && m("1-4", 3) && !m("1-4", 1) && !m("1-4", 4));
        assert!(!m("!1-4", 2) && m("!1-4", 4));
        assert!(m("&0xf0=0x30", 0x3f) && !m("&0xf0=0x30", 0x40) && m("&0xf0!=0x30", 0x40));
        assert!(m("<=5", 5) && m(">=5", 5) && !m("<5", 5) && !m(">5", 5));
    }

    #[test]
    fn names() {
        let read = |text: &str| M::parse_or_name(text.as_bytes(), [("ack", 7u8), ("get", 9)].into_iter());
        assert_eq!(read("!ack"), Ok(M::NotEqual(7)));
        assert_eq!(read("Ack"), Ok(M::Equal(7)));
        assert_eq!(read(">3"), Ok(M::Greater(3)));
        let error = read("!ackk").unwrap_err();
        assert_eq!(
            (error.message.as_str(), error.start, error.end),
            ("`ackk` is neither a number nor one of ack, get; did you mean `ack`?", 1, 5)
        );
        assert!(read("5tb").unwrap_err().message.contains("unit"));
        let error = M::<u8>::parse(b"1<>abc").unwrap_err();
        assert!(error.message.starts_with("`abc` is not a number"), "{error}");
        assert_eq!((error.start, error.end), (3, 6));
        assert_eq!(M::<u8>::parse(b">").unwrap_err().message, "a number is missing");
    }
}
