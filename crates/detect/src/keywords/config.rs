// SPDX-License-Identifier: Apache-2.0
//! `config`: the change that a rule with the action `config` makes. As in Suricata 8, only `logging disable`
//! for a transaction or flow exists. The transaction carries the mark, and the writers of records read it.

use super::number::text;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, RefusalCode, Role};
use crate::model::request::Request;

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "config",
    aliases: &[],
    summary: "`logging disable, type tx, scope tx`: no record is written for a transaction that the rule matches.",
    argument: Argument::Required,
    role: Role::Effect,
    syntax: "config:logging disable, type tx, scope tx",
    example: r#"config dns any any -> any any (dns.query; content:"example.com"; config:logging disable, type tx, scope tx; sid:1;)"#,
    note: "`scope flow` is refused: Suricata 8 accepts it without any effect.",
    parse: config,
}];

fn config(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    check(argument)?;
    builder.requests.push(Request::DisableLogging);
    Ok(())
}

fn check(argument: &[u8]) -> Result<(), KeywordError> {
    let argument = text(argument)?;
    let mut parts = argument.split(',').map(|part| part.split_whitespace().collect::<Vec<_>>());
    let pair = |part: Option<Vec<&str>>, key: &str| -> Result<String, KeywordError> {
        match part.as_deref() {
            Some([name, value]) if *name == key => Ok((*value).to_owned()),
            _ => Err(KeywordError::argument(format!("`{key} ...` is expected"))
                .help("write `logging disable, type tx, scope tx`")),
        }
    };
    let what = pair(parts.next(), "logging")?;
    let (kind, scope) = (pair(parts.next(), "type")?, pair(parts.next(), "scope")?);
    if parts.next().is_some() {
        return Err(KeywordError::argument("nothing can follow the scope"));
    }
    if what != "disable" {
        return Err(KeywordError::argument(format!("logging can only be disabled, not `{what}`")));
    }
    match (kind.as_str(), scope.as_str()) {
        ("tx", "tx") => Ok(()),
        ("tx" | "flow", "flow") => Err(KeywordError::new(
            RefusalCode::UnsupportedKeyword,
            "logging can be disabled for single transactions only",
        )
        .help("write `scope tx`")),
        _ => Err(KeywordError::argument(format!("no type `{kind}` with scope `{scope}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keywords::testing::{build, refused};

    #[test]
    fn forms() {
        assert!(build("ip", &[("config", "logging disable, type tx, scope tx")]).is_ok());
        for (argument, code) in [
            ("logging enable, type tx, scope tx", RefusalCode::BadArgument),
            ("logging disable", RefusalCode::BadArgument),
            ("logging disable, type tx, scope packet", RefusalCode::BadArgument),
            ("logging disable, type flow, scope flow", RefusalCode::UnsupportedKeyword),
        ] {
            assert_eq!(refused("config", argument), Some(code), "config:{argument}");
        }
    }
}
