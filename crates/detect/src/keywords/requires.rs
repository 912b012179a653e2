// SPDX-License-Identifier: Apache-2.0
//! `requires`: skips the rule unless the engine has the version and the features that the keyword names.
//!
//! The version is that of the Suricata whose rules this engine reads. Unknown requirements count as not met.

use super::text;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, RefusalCode, Role};

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "requires",
    aliases: &[],
    summary: "A requirement of the rule; without it the rule is skipped: `requires:version >= 8.0.0, keyword absent;`.",
    argument: Argument::Required,
    role: Role::Gate,
    syntax: "requires:version OPERATOR N.N.N[, feature NAME][, keyword NAME]",
    example: r#"alert ip any any -> any any (msg:"requires"; requires:version >= 8.0.0; sid:1;)"#,
    note: "An unknown requirement is not met, and the rule is counted as skipped.",
    parse,
}];

/// Version of the language: major, minor, patch.
pub const VERSION: [u32; 3] = [8, 0, 8];

/// Features, by Suricata's names, that the engine has.
const FEATURES: &[&str] = &["ja3", "ja4", "output::file-store"];

fn unmet(message: String) -> KeywordError {
    KeywordError::new(RefusalCode::RequirementUnmet, message)
}

fn parse(_: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    for item in text::items(argument)? {
        match text::word(item) {
            ("version", range) => {
                if !version_holds(range)? {
                    return Err(unmet(format!("the rule needs version {range}")));
                }
            }
            ("feature", name) => {
                if !FEATURES.contains(&name) {
                    return Err(unmet(format!("the rule needs the feature `{name}`")));
                }
            }
            ("keyword", name) => {
                if super::find(name).is_none() {
                    return Err(unmet(format!("the rule needs the keyword `{name}`")));
                }
            }
            _ => return Err(unmet(format!("the rule has the unknown requirement `{item}`"))),
        }
    }
    Ok(())
}

/// Whether a version condition such as `>= 7.0.4 < 8 | >= 8.0.3` holds: all parts of one alternative.
fn version_holds(range: &str) -> Result<bool, KeywordError> {
    let mut any = false;
    for alternative in range.split('|') {
        let mut all = true;
        let mut rest = alternative.trim();
        if rest.is_empty() {
            return Err(KeywordError::argument("a version is compared: `version >= 8.0.0`"));
        }
        while !rest.is_empty() {
            let digits = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
            let (operator, tail) = rest.split_at_checked(digits).unwrap_or((rest, ""));
            let end = tail.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(tail.len());
            let (number, tail) = tail.split_at_checked(end).unwrap_or((tail, ""));
            rest = tail.trim();
            let wanted = version(number)?;
            all &= match operator.trim() {
                ">=" => VERSION >= wanted,
                ">" => VERSION > wanted,
                "<=" => VERSION <= wanted,
                "<" => VERSION < wanted,
                "=" | "==" => VERSION == wanted,
                other => {
                    return Err(KeywordError::argument(format!("unknown comparison `{other}` of versions")));
                }
            };
        }
        any |= all;
    }
    Ok(any)
}

fn version(text: &str) -> Result<[u32; 3], KeywordError> {
    let mut version = [0; 3];
    let mut parts = text.split('.');
    for (slot, part) in version.iter_mut().zip(&mut parts) {
        *slot = part.parse().map_err(|_| KeywordError::argument(format!("`{text}` is not a version")))?;
    }
    match parts.next() {
        None => Ok(version),
        Some(_) => Err(KeywordError::argument(format!("`{text}` is not a version"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (range, holds) in [
            (">= 8", true),
            (">= 8.0.8", true),
            (">= 8.0.9", false),
            (">= 9", false),
            ("< 9", true),
            (">= 7.0.3 < 8", false),
            (">= 7.0.3 < 8 | >= 8.0.3", true),
            (">=8.0.0 <9", true),
        ] {
            assert_eq!(version_holds(range), Ok(holds), "{range}");
        }
        for bad in ["", "8", ">= x", "~ 8", ">= 8.0.0.0", ">= 8 |"] {
            assert!(version_holds(bad).is_err(), "{bad}");
        }
    }
}
