// SPDX-License-Identifier: Apache-2.0
//! `dsize`: the length of the packet's payload in bytes (not of the reassembled stream).

use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::condition::{ConditionContext, PacketCondition};
use bartizan_rules::UintMatch;

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "dsize",
    aliases: &[],
    summary: "The length of the packet's payload in bytes.",
    argument: Argument::Required,
    role: Role::Condition,
    syntax: "dsize:[<|>|!]N or N<>M",
    example: r#"alert udp any any -> any any (msg:"dsize"; dsize:>1000; sid:1;)"#,
    note: "",
    parse: dsize,
}];

fn dsize(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    if builder.seen.contains(&"dsize") {
        return Err(KeywordError::context("`dsize` is given twice").help("write a range such as `5<>10`"));
    }
    let check = UintMatch::parse(argument)?;
    builder.packet.push(Box::new(Length { check }));
    Ok(())
}

/// A condition on the length of the payload.
struct Length {
    check: UintMatch<u16>,
}

impl PacketCondition for Length {
    fn matches(&self, scene: &ConditionContext<'_>) -> bool {
        // Longer payloads (segmentation offload) count as 65,535 bytes. A cut packet counts with its length
        // on the wire.
        let length = |packet: &bartizan_packet::PacketView<'_>| {
            u16::try_from(packet.decoded().payload_len).unwrap_or(u16::MAX)
        };
        scene.facts.packet.is_some_and(|packet| {
            let is_cut_off = packet.payload().is_empty() && packet.is_payload_cut();
            let has_data = scene.facts.stream.is_some() || !scene.payload.is_empty() || is_cut_off;
            // Rules on payloads do not apply to a payload that is hidden from them.
            let hidden = scene.payload.is_empty() && !packet.payload().is_empty();
            if hidden && !matches!(self.check, UintMatch::Less(_)) {
                return false;
            }
            // As in Suricata, "not N bytes" applies to packets that have a payload or bring stream data, and
            // "0 bytes" to packets that have neither.
            let fits = match self.check {
                UintMatch::NotEqual(_) => has_data,
                UintMatch::Equal(0) => !has_data,
                _ => true,
            };
            fits && self.check.matches(length(packet))
        })
    }

    fn needs_packet(&self) -> bool {
        true
    }

    fn longest_payload(&self) -> Option<usize> {
        // 65,535 stands for longer payloads, too.
        self.check
            .most()
            .filter(|most| *most < u64::from(u16::MAX))
            .and_then(|most| usize::try_from(most).ok())
    }

    fn room_for_contents(&self) -> Option<i64> {
        match self.check {
            UintMatch::Equal(most) | UintMatch::Less(most) | UintMatch::Between(_, most) => Some(most.into()),
            // "Not N bytes" has no upper bound. Suricata takes N as the bound here as well, and refuses rules
            // that can match.
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::compile::keyword::RefusalCode;
    use crate::keywords::testing::{both, build, matches, on_changed_scene, refused, refused_all, tcp, udp};
    use bartizan_function::StreamNews;

    #[test]
    fn lengths() {
        let all =
            both(17, &udp(b"0123456789")).into_iter().chain(both(6, &tcp(0x18, 1, 1, 9, b"0123456789")));
        for packet in all {
            for (argument, holds) in
                [("10", true), ("!10", false), ("<11", true), (">10", false), ("9<>11", true)]
            {
                assert_eq!(matches("dsize", argument, &packet), holds, "dsize:{argument}");
            }
        }
        for packet in both(6, &tcp(2, 1, 1, 9, b"")) {
            for (argument, holds, beside_stream) in [
                ("0", true, false),
                ("<1", true, true),
                ("!5", false, true),
                ("!0", false, false),
                ("!4-6", true, true),
            ] {
                assert_eq!(matches("dsize", argument, &packet), holds, "dsize:{argument}");
                let built = build("ip", &[("dsize", argument)]).unwrap();
                let stream = StreamNews { bytes: b"1", offset: 0, seen: 0, about_packet: false };
                let holds = on_changed_scene(
                    &packet,
                    |facts| facts.stream = Some(stream),
                    |scene| built.packet[0].matches(scene),
                );
                assert_eq!(holds, beside_stream, "dsize:{argument} where the stream is shown");
            }
        }
    }

    #[test]
    fn what_is_refused() {
        for argument in ["65536", "10<>10", "many", ">65535"] {
            assert_eq!(refused("dsize", argument), Some(RefusalCode::BadArgument), "dsize:{argument}");
        }
        assert_eq!(refused_all(&[("dsize", ">1"), ("dsize", "<9")]), Some(RefusalCode::BadContext));
    }
}
