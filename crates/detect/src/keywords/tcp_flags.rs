// SPDX-License-Identifier: Apache-2.0
//! `tcp.flags` (`flags`): the flags of the TCP header (RFC 9293, 3.1), with a modifier and a mask of flags to
//! ignore.

use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::condition::{ConditionContext, PacketCondition};
use bartizan_packet::TcpFlags;

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "tcp.flags",
    aliases: &["flags"],
    summary: "The TCP flags are exactly these; `+` these and more, `*` one of these, `!` not all of these; flags after a comma are ignored.",
    argument: Argument::Required,
    role: Role::Condition,
    syntax: "tcp.flags:[+|*|!]FSRPAUCE[,MASK]",
    example: r#"alert tcp any any -> any any (msg:"tcp.flags"; tcp.flags:S,CE; sid:1;)"#,
    note: "",
    parse: flags,
}];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Modifier {
    Exactly,
    AndMore,
    AnyOf,
    NotAllOf,
}

struct TcpFlagsCondition {
    modifier: Modifier,
    wanted: u8,
    /// Mask of the flags that count.
    mask: u8,
}

impl PacketCondition for TcpFlagsCondition {
    fn matches(&self, scene: &ConditionContext<'_>) -> bool {
        let Some(tcp) = scene.facts.packet.and_then(|p| p.decoded().transport.tcp()) else { return false };
        let all = tcp.flags.bits();
        // `flags:0` compares all flags, whatever the mask ignores.
        if self.wanted == 0 && all != 0 {
            return self.modifier == Modifier::NotAllOf;
        }
        let have = all & self.mask;
        match self.modifier {
            Modifier::Exactly => have == self.wanted,
            Modifier::AndMore => have & self.wanted == self.wanted,
            Modifier::AnyOf => have & self.wanted != 0,
            Modifier::NotAllOf => have & self.wanted != self.wanted,
        }
    }

    fn needs_packet(&self) -> bool {
        true
    }
}

fn flag(letter: u8) -> Option<u8> {
    Some(match letter {
        b'F' => TcpFlags::FIN,
        b'S' => TcpFlags::SYN,
        b'R' => TcpFlags::RST,
        b'P' => TcpFlags::PSH,
        b'A' => TcpFlags::ACK,
        b'U' => TcpFlags::URG,
        b'C' | b'1' => TcpFlags::CWR,
        b'E' | b'2' => TcpFlags::ECE,
        _ => return None,
    })
    .map(|f| f.bits())
}

fn flags(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let mut modifier = Modifier::Exactly;
    let (mut wanted, mut mask, mut named) = (0, 0xff, false);
    let mut parts = argument.split(|b| *b == b',');
    for letter in parts.next().unwrap_or_default().trim_ascii() {
        let changed = match letter {
            b'!' => Modifier::NotAllOf,
            b'+' => Modifier::AndMore,
            b'*' => Modifier::AnyOf,
            b' ' => continue,
            b'0' => {
                (wanted, named) = (0, true);
                continue;
            }
            _ => {
                wanted |= flag(*letter).ok_or_else(|| unknown(*letter))?;
                named = true;
                continue;
            }
        };
        if modifier != Modifier::Exactly {
            return Err(KeywordError::argument("only one of ! + * is possible"));
        }
        modifier = changed;
    }
    if !named {
        return Err(
            KeywordError::argument("no flag is named").help("flags are F S R P A U C E, or 0 for none")
        );
    }
    if let Some(ignored) = parts.next() {
        let ignored = ignored.trim_ascii();
        if ignored.is_empty() {
            return Err(KeywordError::argument("there is no flag after the comma"));
        }
        for letter in ignored {
            mask &= !flag(*letter).ok_or_else(|| unknown(*letter))?;
        }
    }
    if parts.next().is_some() {
        return Err(KeywordError::argument("only one comma is possible"));
    }
    builder.packet.push(Box::new(TcpFlagsCondition { modifier, wanted, mask }));
    Ok(())
}

fn unknown(letter: u8) -> KeywordError {
    KeywordError::argument(format!("`{}` is not a TCP flag", char::from(letter)))
        .help("flags are F S R P A U, C or 1 (CWR), E or 2 (ECE), or 0 for none")
}

#[cfg(test)]
mod tests {
    use crate::compile::keyword::RefusalCode;
    use crate::keywords::testing::{both, matches, refused, tcp, udp};

    #[test]
    fn forms() {
        const SYN: u8 = 2;
        const SYN_ACK: u8 = 0x12;
        for (argument, flags, holds) in [
            ("S", SYN, true),
            ("S", SYN_ACK, false),
            ("SA", SYN_ACK, true),
            ("S,12", SYN | 0xc0, true),
            ("S,CE", SYN | 0x40, true),
            ("S", SYN | 0xc0, false),
            ("+S", SYN_ACK, true),
            ("A+", SYN_ACK, true),
            ("*SF", SYN_ACK, true),
            ("*RF", SYN_ACK, false),
            ("!SA", SYN, true),
            ("!SA", SYN_ACK, false),
            ("0", 0, true),
            ("0", SYN, false),
            ("!0", SYN, true),
            ("R, A", 0x14, true),
            ("R,A", 0x04, true),
            ("CE", 0xc0, true),
        ] {
            for packet in both(6, &tcp(flags, 1, 0, 100, b"")) {
                assert_eq!(matches("flags", argument, &packet), holds, "flags:{argument} of {flags:#x}");
            }
        }
        for packet in both(17, &udp(b"x")) {
            assert!(!matches("tcp.flags", "!S", &packet));
        }
    }

    #[test]
    fn what_is_refused() {
        for argument in ["", "X", "+*S", "!", "S,", "S,A,P", "S,0"] {
            assert_eq!(refused("flags", argument), Some(RefusalCode::BadArgument), "flags:{argument}");
        }
    }
}
