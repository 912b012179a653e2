// SPDX-License-Identifier: Apache-2.0
//! `base64_decode`, `base64_data`: matching decoded bytes; `pkt_data`: back to the payload.

use super::text;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::content::{Item, Program};
use std::sync::Arc;

/// The keywords.
pub const KEYWORDS: &[Keyword] = &[
    Keyword {
        name: "base64_decode",
        aliases: &[],
        summary: "Decodes base64 at a place of the buffer: `base64_decode:bytes 20,offset 4,relative;`.",
        argument: Argument::Optional,
        role: Role::Condition,
        syntax: "base64_decode[:bytes N[, offset N][, relative]]",
        example: r#"alert tcp any any -> any any (msg:"base64_decode"; content:"Basic "; base64_decode:bytes 20, relative; base64_data; content:"admin"; sid:1;)"#,
        note: "",
        parse: decode,
    },
    Keyword {
        name: "base64_data",
        aliases: &[],
        summary: "The next conditions inspect the bytes that `base64_decode` has decoded.",
        argument: Argument::None,
        role: Role::Buffer,
        syntax: "base64_data",
        example: r#"alert tcp any any -> any any (msg:"base64_data"; base64_decode; base64_data; content:"admin"; sid:1;)"#,
        note: "",
        parse: data,
    },
    Keyword {
        name: "pkt_data",
        aliases: &[],
        summary: "The next conditions inspect the payload again.",
        argument: Argument::None,
        role: Role::Buffer,
        syntax: "pkt_data",
        example: r#"alert http any any -> any any (msg:"pkt_data"; http.uri; content:"/x"; pkt_data; content:"y"; sid:1;)"#,
        note: "",
        parse: pkt_data,
    },
];

fn decode(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let (mut bytes, mut offset, mut relative) = (0u32, 0u32, false);
    let mut last = 0;
    for item in text::items(argument)?.into_iter().filter(|i| !i.is_empty()) {
        let place = match text::word(item) {
            // 0 means all data, as without the option.
            ("bytes", n) => {
                bytes = text::within("bytes", n, 0..=65_535)?;
                1
            }
            ("offset", n) => {
                offset = text::within("offset", n, 0..=u32::MAX)?;
                2
            }
            ("relative", "") => {
                relative = true;
                3
            }
            _ => return Err(KeywordError::argument(format!("unknown option `{item}`"))),
        };
        if place <= last {
            return Err(KeywordError::argument(format!("`{item}` is in the wrong place"))
                .help("the order is `bytes N, offset N, relative`, each once at most"));
        }
        last = place;
    }
    builder.push_positional(Item::Base64 { bytes, offset, relative, inner: Arc::new(Program::default()) })
}

fn data(builder: &mut SignatureBuilder<'_>, _: &[u8]) -> Result<(), KeywordError> {
    builder.enter_base64()
}

fn pkt_data(builder: &mut SignatureBuilder<'_>, _: &[u8]) -> Result<(), KeywordError> {
    builder.payload()
}
