// SPDX-License-Identifier: Apache-2.0
//! `vlan.id`, `vlan.layers`: 802.1Q tags.

use super::number::{packet_number, text};
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::condition::{ConditionContext, PacketCondition};
use bartizan_packet::VlanIds;
use bartizan_rules::UintMatch;

/// The keywords.
pub const KEYWORDS: &[Keyword] = &[
    Keyword {
        name: "vlan.id",
        aliases: &[],
        summary: "A VLAN id: of any tag, of `all` tags, or of the tag at an index (0 the outermost, -1 the innermost).",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "vlan.id:[<|>|!]N[,any|all|INDEX]",
        example: r#"alert ip any any -> any any (msg:"vlan.id"; vlan.id:200; sid:1;)"#,
        note: "The layer after the innermost tag has the id 0, as in Suricata: `!20,1` matches a packet with one tag.",
        parse: id,
    },
    Keyword {
        name: "vlan.layers",
        aliases: &[],
        summary: "The number of VLAN tags of the packet.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "vlan.layers:[<|>|!]N",
        example: r#"alert ip any any -> any any (msg:"vlan.layers"; vlan.layers:2; sid:1;)"#,
        note: "",
        parse: layers,
    },
];

#[derive(Clone, Copy)]
enum Which {
    Any,
    All,
    At(i8),
}

struct Id {
    check: UintMatch<u16>,
    which: Which,
}

impl PacketCondition for Id {
    fn matches(&self, scene: &ConditionContext<'_>) -> bool {
        let Some(packet) = scene.facts.packet else { return false };
        let ids = packet.decoded().vlan.as_slice();
        match self.which {
            Which::Any => ids.iter().any(|id| self.check.matches(*id)),
            // Untagged packets do not match.
            Which::All => !ids.is_empty() && ids.iter().all(|id| self.check.matches(*id)),
            Which::At(index) => {
                let index =
                    if index < 0 { ids.len() as isize + isize::from(index) } else { isize::from(index) };
                let Ok(index) = usize::try_from(index) else { return false };
                // As in Suricata, the tag after a packet's innermost one has the id 0.
                let behind = (index == ids.len() && !ids.is_empty()).then_some(0);
                ids.get(index).copied().or(behind).is_some_and(|id| self.check.matches(id))
            }
        }
    }

    fn needs_packet(&self) -> bool {
        true
    }
}

const fn largest(check: UintMatch<u16>) -> u16 {
    match check {
        UintMatch::Equal(a)
        | UintMatch::NotEqual(a)
        | UintMatch::Less(a)
        | UintMatch::LessEqual(a)
        | UintMatch::Greater(a)
        | UintMatch::GreaterEqual(a) => a,
        UintMatch::Between(a, b)
        | UintMatch::NotBetween(a, b)
        | UintMatch::Masked(a, b)
        | UintMatch::NotMasked(a, b) => {
            if a > b {
                a
            } else {
                b
            }
        }
    }
}

fn id(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let mut parts = argument.split(|b| *b == b',');
    let check = UintMatch::<u16>::parse(parts.next().unwrap_or_default())?;
    if largest(check) > 0xfff {
        return Err(KeywordError::argument("a VLAN id is at most 4095"));
    }
    let which = match parts.next() {
        None => Which::Any,
        Some(part) => match text(part)? {
            "any" => Which::Any,
            "all" => Which::All,
            index => match index.parse::<i8>() {
                Ok(index @ -3..=2) => Which::At(index),
                _ => {
                    return Err(KeywordError::argument(format!("`{index}` is not a layer"))
                        .help("use any, all, 0 to 2 from the outermost tag or -1 to -3 from the innermost"));
                }
            },
        },
    };
    if parts.next().is_some() {
        return Err(KeywordError::argument("write an id and at most one layer"));
    }
    builder.packet.push(Box::new(Id { check, which }));
    Ok(())
}

fn layers(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let check = UintMatch::<u16>::parse(argument)?;
    if usize::from(largest(check)) > VlanIds::CAPACITY {
        return Err(KeywordError::argument("at most 3 VLAN tags are inspected"));
    }
    packet_number::<u8>(builder, argument, |packet| u8::try_from(packet.decoded().vlan.len()).ok())
}

#[cfg(test)]
mod tests {
    use crate::compile::keyword::RefusalCode;
    use crate::keywords::testing::{ethernet, matches, refused};

    #[test]
    fn ids() {
        let tagged = ethernet(&[300, 200]);
        for (argument, holds) in [
            ("300", true),
            ("300,any", true),
            ("300,0", true),
            ("200,0", false),
            ("200,1", true),
            ("200,-1", true),
            ("300,-2", true),
            ("300,2", false),
            ("300,-3", false),
            ("!500,all", true),
            (">250,all", false),
            ("100-600,1", true),
            ("0x12C,0", true),
        ] {
            assert_eq!(matches("vlan.id", argument, &tagged), holds, "vlan.id:{argument}");
        }
        assert!(!matches("vlan.id", "!500,all", &ethernet(&[])));
        let once = ethernet(&[300]);
        for (argument, holds) in
            [("!20,1", true), ("<20,1", true), ("!20,2", false), ("20,1", false), ("!20,-2", false)]
        {
            assert_eq!(matches("vlan.id", argument, &once), holds, "vlan.id:{argument}");
            assert!(!matches("vlan.id", argument, &ethernet(&[])), "vlan.id:{argument}");
        }
        assert!(matches("vlan.layers", "2", &tagged) && matches("vlan.layers", "0", &ethernet(&[])));
    }

    #[test]
    fn what_is_refused() {
        for argument in ["4096", "200abc", "600,abc", "600,100", "123,-4", "1,2,3"] {
            assert_eq!(refused("vlan.id", argument), Some(RefusalCode::BadArgument), "vlan.id:{argument}");
        }
        assert_eq!(refused("vlan.layers", "4"), Some(RefusalCode::BadArgument));
    }
}
