// SPDX-License-Identifier: Apache-2.0
//! `urilen`: the length of HTTP's URI, normalised (`norm`, the default) or as sent (`raw`).

use super::number::text;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::content::Item;
use bartizan_rules::UintMatch;

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "urilen",
    aliases: &[],
    summary: "The length of the URI in bytes; `,raw` for the URI as sent, `,norm` for the normalised one (the default).",
    argument: Argument::Required,
    role: Role::Condition,
    syntax: "urilen:[<|>|!]N or N<>M[,raw|norm]",
    example: r#"alert http any any -> any any (msg:"urilen"; urilen:>100; sid:1;)"#,
    note: "",
    parse: urilen,
}];

fn urilen(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let (check, buffer) = parse(argument)?;
    builder.push_aside(buffer, Item::Size { check, uri: true })
}

fn parse(argument: &[u8]) -> Result<(UintMatch<u64>, &'static str), KeywordError> {
    let argument = text(argument)?;
    let (length, which) = argument.split_once(',').unwrap_or((argument, "norm"));
    let buffer = match which.trim() {
        "norm" => "http.uri",
        "raw" => "http.uri.raw",
        other => {
            return Err(KeywordError::argument(format!("`{other}` is neither `norm` nor `raw`")));
        }
    };
    // Suricata's lengths have 16 bits: larger numbers are refused there, too.
    let narrow = UintMatch::<u16>::parse(length.as_bytes())?;
    Ok((widened(narrow), buffer))
}

fn widened(check: UintMatch<u16>) -> UintMatch<u64> {
    use UintMatch as M;
    let w = u64::from;
    match check {
        M::Equal(a) => M::Equal(w(a)),
        M::NotEqual(a) => M::NotEqual(w(a)),
        M::Less(a) => M::Less(w(a)),
        M::LessEqual(a) => M::LessEqual(w(a)),
        M::Greater(a) => M::Greater(w(a)),
        M::GreaterEqual(a) => M::GreaterEqual(w(a)),
        M::Between(a, b) => M::Between(w(a), w(b)),
        M::NotBetween(a, b) => M::NotBetween(w(a), w(b)),
        M::Masked(a, b) => M::Masked(w(a), w(b)),
        M::NotMasked(a, b) => M::NotMasked(w(a), w(b)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::keyword::RefusalCode;

    #[test]
    fn forms() {
        for (argument, check, buffer) in [
            ("16", UintMatch::Equal(16), "http.uri"),
            ("<70", UintMatch::Less(70), "http.uri"),
            ("3<>20", UintMatch::Between(3, 20), "http.uri"),
            ("17,raw", UintMatch::Equal(17), "http.uri.raw"),
            ("15 , norm", UintMatch::Equal(15), "http.uri"),
        ] {
            assert_eq!(parse(argument.as_bytes()), Ok((check, buffer)), "{argument}");
        }
        for argument in ["1<>2", "5,both", "65536", "x", "5,"] {
            assert_eq!(parse(argument.as_bytes()).unwrap_err().code, RefusalCode::BadArgument, "{argument}");
        }
    }
}
