// SPDX-License-Identifier: Apache-2.0
//! Numbers in the header of a WebSocket frame (RFC 6455 section 5.2). The sticky buffer (`websocket.payload`)
//! comes from the table of the protocol.

use super::number::{NumberRef, TxNumber, tx_number};
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use bartizan_applayer::protocols::websocket::frame::{FLAG_NAMES, OPCODES};
use bartizan_base::PerDirection;
use bartizan_rules::UintMatch;

/// The keywords.
pub const KEYWORDS: &[Keyword] = &[
    Keyword {
        name: "websocket.flags",
        aliases: &[],
        summary: "The first four bits of a frame: a number, or names of bits that are set or (with `!`) not set: `fin` (0x80: the last frame of a message), `comp` (0x40: a compressed message).",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "websocket.flags:[!]fin|comp[,[!]fin|comp] or [<|>|!]N or N-M or &MASK=VALUE",
        example: r#"alert websocket any any -> any any (msg:"websocket.flags"; websocket.flags:fin,!comp; sid:1;)"#,
        note: "",
        parse: flags,
    },
    Keyword {
        name: "websocket.mask",
        aliases: &[],
        summary: "The masking key of a frame as a number in network byte order. A frame without one never matches.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "websocket.mask:[<|>|!]N or N-M",
        example: r#"alert websocket any any -> any any (msg:"websocket.mask"; websocket.mask:>0; sid:1;)"#,
        note: "",
        parse: mask,
    },
    Keyword {
        name: "websocket.opcode",
        aliases: &[],
        summary: "The kind of a frame: `continuation`, `text`, `binary`, `close`, `ping`, `pong`, or a number.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "websocket.opcode:[!]NAME or [<|>|!]N or N-M",
        example: r#"alert websocket any any -> any any (msg:"websocket.opcode"; websocket.opcode:text; sid:1;)"#,
        note: "",
        parse: opcode,
    },
];

const FLAGS: &str = "websocket.flags";
const BOTH: PerDirection<bool> = PerDirection { to_server: true, to_client: true };

fn mask(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    tx_number::<u32>(builder, "websocket.mask", argument, BOTH, &[])
}

fn opcode(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    tx_number::<u8>(builder, "websocket.opcode", argument, BOTH, OPCODES)
}

fn flags(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let Some(check) = named_flags(argument) else {
        let names = argument.iter().any(u8::is_ascii_alphabetic) && !argument.starts_with(b"0x");
        return tx_number::<u8>(builder, FLAGS, argument, BOTH, &[]).map_err(|error| {
            if names {
                error.help("names of flags are `fin` and `comp`, in small letters, with commas between them")
            } else {
                error
            }
        });
    };
    let number = NumberRef::named(FLAGS)?;
    builder.push_tx(number.protocol, FLAGS, BOTH, None, Box::new(TxNumber { number, check }))
}

/// Parses names of flags. `None`: one of them is none.
fn named_flags(argument: &[u8]) -> Option<UintMatch<u8>> {
    let (mut mask, mut value) = (0, 0);
    for item in argument.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
        let name = item.strip_prefix(b"!").unwrap_or(item);
        let (_, bit) = FLAG_NAMES.iter().find(|(known, _)| known.as_bytes() == name)?;
        mask |= bit;
        value |= if item == name { *bit } else { 0 };
    }
    Some(UintMatch::Masked(mask, value))
}

#[cfg(test)]
mod tests {
    use super::named_flags;
    use bartizan_rules::UintMatch::Masked;

    #[test]
    fn flags_have_names() {
        for (text, expected) in [
            ("fin", Some(Masked(0x80, 0x80))),
            ("!fin", Some(Masked(0x80, 0))),
            (" fin , comp", Some(Masked(0xc0, 0xc0))),
            ("!fin,comp", Some(Masked(0xc0, 0x40))),
            ("FIN", None),
            ("rsv2", None),
            ("128", None),
            ("", None),
        ] {
            assert_eq!(named_flags(text.as_bytes()), expected, "{text}");
        }
    }
}
