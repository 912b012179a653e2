// SPDX-License-Identifier: Apache-2.0
//! `isdataat`: whether data exists at a position.

use super::text;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::content::{Item, Number};

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "isdataat",
    aliases: &[],
    summary: "Data exists, or with `!` does not exist, at a position: `isdataat:10;`, `isdataat:!1,relative;`.",
    argument: Argument::Required,
    role: Role::Condition,
    syntax: "isdataat:[!]N[,relative]",
    example: r#"alert udp any any -> any any (msg:"isdataat"; isdataat:10; sid:1;)"#,
    note: "Directly after a negated content, `isdataat:!1,relative` means that this content must not be at the end.",
    parse,
}];

fn parse(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let items = text::items(argument)?;
    let [at, options @ ..] = items.as_slice() else {
        return Err(KeywordError::argument("isdataat is written `[!]position[,relative[,rawbytes]]`"));
    };
    let (negated, at) = match at.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, *at),
    };
    let at = if text::is_name(at) {
        text::number(builder, "isdataat", at, 0..=65_535)?
    } else {
        Number::Constant(text::within("isdataat", at, 0i64..=65_535)?)
    };
    let mut relative = false;
    for option in options {
        match *option {
            "relative" => relative = true,
            "rawbytes" if relative => {}
            other => return Err(KeywordError::argument(format!("unknown option `{other}`"))),
        }
    }
    // As in Suricata: after a negated content `isdataat:!1,relative` acts as its `endswith`, since that
    // content has no end to count from.
    let ends = relative && negated && at == Number::Constant(1);
    if ends && builder.end_negated_literal() {
        return Ok(());
    }
    builder.push_positional(Item::DataAt { at, relative, negated })
}
