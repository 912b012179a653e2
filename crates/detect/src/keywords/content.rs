// SPDX-License-Identifier: Apache-2.0
//! `content`: bytes that the buffer must, or must not, contain.

use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::content::{Item, Literal};

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "content",
    aliases: &[],
    summary: "Bytes to find in the payload or the current buffer: `content:\"GET |20|\";`, `content:!\"x\";`.",
    argument: Argument::Required,
    role: Role::Condition,
    syntax: r#"content:[!]"BYTES""#,
    example: r#"alert tcp any any -> any any (msg:"content"; content:"GET |20|"; sid:1;)"#,
    note: "",
    parse,
}];

fn parse(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let pattern = bartizan_rules::parse_content(argument)?;
    builder.push_item(Item::Literal(Literal::new(&pattern.bytes, pattern.negated)))
}
