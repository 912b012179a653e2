// SPDX-License-Identifier: Apache-2.0
//! `bsize`: the length of the current buffer; `absent`: the buffer is missing.

use super::text;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::content::Item;
use crate::model::signature::Absent;
use bartizan_rules::UintMatch;

/// The keywords.
pub const KEYWORDS: &[Keyword] = &[
    Keyword {
        name: "bsize",
        aliases: &[],
        summary: "Length of the current sticky buffer: `bsize:10;`, `bsize:>5;`, `bsize:3<>9;`.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "bsize:[<|>|!]N or N<>M",
        example: r#"alert http any any -> any any (msg:"bsize"; http.uri; bsize:>100; sid:1;)"#,
        note: "",
        parse: bsize,
    },
    Keyword {
        name: "absent",
        aliases: &[],
        summary: "The current sticky buffer is missing; with `or_else`: missing, or the next conditions match.",
        argument: Argument::Optional,
        role: Role::Condition,
        syntax: "absent[:or_else]",
        example: r#"alert http any any -> any any (msg:"absent"; http.referer; absent; sid:1;)"#,
        note: "A body or a file is absent when its message ends without one; another value is absent when the part of the message that would contain it ends. In a message that was not parsed to that point, no value is absent.",
        parse: absent,
    },
];

fn bsize(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    if !builder.is_sticky() {
        return Err(KeywordError::context("`bsize` needs a sticky buffer before it")
            .help("use `dsize` for the payload of a packet"));
    }
    let check = UintMatch::parse(argument)?;
    builder.push_item(Item::Size { check, uri: false })
}

fn absent(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    match text::utf8(argument)? {
        "" => builder.set_absent(Absent::Only),
        "or_else" => builder.set_absent(Absent::OrElse),
        other => Err(KeywordError::argument(format!("`{other}` is not `or_else`"))),
    }
}
