// SPDX-License-Identifier: Apache-2.0
//! `tftp.opcode`: the operation of a TFTP request (RFC 1350). The sticky buffers (`tftp.file`, `tftp.mode`)
//! come from the table of the protocol.

use super::number::tx_number;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use bartizan_base::PerDirection;

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "tftp.opcode",
    aliases: &[],
    summary: "The operation of a TFTP request: 1 reads a file, 2 writes one.",
    argument: Argument::Required,
    role: Role::Condition,
    syntax: "tftp.opcode:[<|>|!]N or N-M",
    example: r#"alert tftp any any -> any any (msg:"tftp.opcode"; tftp.opcode:2; sid:1;)"#,
    note: "Not compared with Suricata. Only requests are inspected, so other operations never match.",
    parse: opcode,
}];

fn opcode(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    tx_number::<u16>(builder, "tftp.opcode", argument, PerDirection::new(true, false), &[])
}
