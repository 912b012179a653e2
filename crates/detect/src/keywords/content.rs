// SPDX-License-Identifier: Apache-2.0
//! `content`: bytes that must, or must not, be in the buffer.

use crate::builder::SignatureBuilder;
use crate::content::{Item, Literal};
use crate::keyword::{Argument, Keyword, KeywordError, Role};

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
