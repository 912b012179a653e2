// SPDX-License-Identifier: Apache-2.0
//! Modifiers after a `content`: letter case, place, choice as fast pattern, replacement.

use super::text;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::condition::{ConditionContext, PacketCondition};
use crate::model::content::{Literal, Number};

/// Largest absolute value of `distance` and `within`, in bytes.
const RELATIVE_MAX: i64 = 1024 * 1024;
/// Largest `offset` and `depth`, in bytes.
const ABSOLUTE_MAX: i64 = 65_535;

/// The keywords.
pub const KEYWORDS: &[Keyword] = &[
    Keyword {
        name: "nocase",
        aliases: &[],
        summary: "The content before this keyword matches in any letter case.",
        argument: Argument::None,
        role: Role::Modifier,
        syntax: "nocase",
        example: r#"alert tcp any any -> any any (msg:"nocase"; content:"x"; nocase; sid:1;)"#,
        note: "",
        parse: nocase,
    },
    Keyword {
        name: "offset",
        aliases: &[],
        summary: "The first position of the buffer at which the content may begin.",
        argument: Argument::Required,
        role: Role::Modifier,
        syntax: "offset:N",
        example: r#"alert tcp any any -> any any (msg:"offset"; content:"x"; offset:4; sid:1;)"#,
        note: "",
        parse: offset,
    },
    Keyword {
        name: "depth",
        aliases: &[],
        summary: "The number of bytes from `offset` that must contain the content.",
        argument: Argument::Required,
        role: Role::Modifier,
        syntax: "depth:N",
        example: r#"alert tcp any any -> any any (msg:"depth"; content:"x"; depth:4; sid:1;)"#,
        note: "",
        parse: depth,
    },
    Keyword {
        name: "distance",
        aliases: &[],
        summary: "The smallest distance in bytes from the end of the previous match to the content; may be negative.",
        argument: Argument::Required,
        role: Role::Modifier,
        syntax: "distance:N",
        example: r#"alert tcp any any -> any any (msg:"distance"; content:"x"; content:"y"; distance:4; sid:1;)"#,
        note: "",
        parse: distance,
    },
    Keyword {
        name: "within",
        aliases: &[],
        summary: "The number of bytes after the end of the previous match (plus `distance`) that must contain the content.",
        argument: Argument::Required,
        role: Role::Modifier,
        syntax: "within:N",
        example: r#"alert tcp any any -> any any (msg:"within"; content:"x"; content:"y"; within:4; sid:1;)"#,
        note: "",
        parse: within,
    },
    Keyword {
        name: "startswith",
        aliases: &[],
        summary: "The content is at the start of the buffer.",
        argument: Argument::None,
        role: Role::Modifier,
        syntax: "startswith",
        example: r#"alert tcp any any -> any any (msg:"startswith"; content:"x"; startswith; sid:1;)"#,
        note: "",
        parse: startswith,
    },
    Keyword {
        name: "endswith",
        aliases: &[],
        summary: "The content ends where the buffer ends.",
        argument: Argument::None,
        role: Role::Modifier,
        syntax: "endswith",
        example: r#"alert tcp any any -> any any (msg:"endswith"; content:"x"; endswith; sid:1;)"#,
        note: "",
        parse: endswith,
    },
    Keyword {
        name: "rawbytes",
        aliases: &[],
        summary: "Has no effect: conditions match raw bytes.",
        argument: Argument::None,
        role: Role::Hint,
        syntax: "rawbytes",
        example: r#"alert tcp any any -> any any (msg:"rawbytes"; content:"x"; rawbytes; sid:1;)"#,
        note: "The payload is not decoded before it is matched, as in Suricata.",
        parse: rawbytes,
    },
    Keyword {
        name: "fast_pattern",
        aliases: &[],
        summary: "The prefilter searches for the content before this keyword: `fast_pattern`, `:only`, `:offset,length`.",
        argument: Argument::Optional,
        role: Role::Modifier,
        syntax: "fast_pattern[:only|:OFFSET,LENGTH]",
        example: r#"alert tcp any any -> any any (msg:"fast_pattern"; content:"xyz"; fast_pattern; sid:1;)"#,
        note: "",
        parse: fast_pattern,
    },
    Keyword {
        name: "replace",
        aliases: &[],
        summary: "Inline: replaces the bytes of the content before it by these, of the same length.",
        argument: Argument::Required,
        role: Role::Effect,
        syntax: r#"replace:"BYTES""#,
        example: r#"alert tcp any any -> any any (msg:"replace"; content:"abc"; replace:"xyz"; sid:1;)"#,
        note: "Has an effect inline, on received packets and on chunks of the stream path. A reassembled datagram or a packet in a tunnel is not rewritten, and is counted in `normaliser.not_replaced`. The stream engine and other rules see the original bytes.",
        parse: replace,
    },
];

fn twice(keyword: &str) -> KeywordError {
    KeywordError::context(format!("`{keyword}` is given twice for one content"))
}

fn mixed(keyword: &str) -> KeywordError {
    KeywordError::context(format!(
        "`{keyword}` cannot be combined with the position keywords that the content already has"
    ))
    .help("offset, depth, startswith count from the buffer's start; distance, within from the match before")
}

fn has_absolute(literal: &Literal) -> bool {
    literal.place.offset.is_some() || literal.place.depth.is_some()
}

fn nocase(builder: &mut SignatureBuilder<'_>, _: &[u8]) -> Result<(), KeywordError> {
    let literal = builder.last_literal("nocase")?;
    if literal.nocase {
        return Err(twice("nocase"));
    }
    literal.set_nocase();
    Ok(())
}

fn offset(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let number = text::number(builder, "offset", text::utf8(argument)?, 0..=ABSOLUTE_MAX)?;
    let literal = builder.last_literal("offset")?;
    if literal.startswith || literal.is_relative() {
        return Err(mixed("offset"));
    }
    if literal.place.offset.replace(number).is_some() {
        return Err(twice("offset"));
    }
    Ok(())
}

fn depth(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let number = text::number(builder, "depth", text::utf8(argument)?, 0..=ABSOLUTE_MAX)?;
    let literal = builder.last_literal("depth")?;
    if literal.startswith || literal.is_relative() {
        return Err(mixed("depth"));
    }
    fits("depth", number, literal)?;
    if literal.place.depth.replace(number).is_some() {
        return Err(twice("depth"));
    }
    Ok(())
}

/// Checks that a constant `depth` or `within` leaves room for the content.
fn fits(keyword: &str, room: Number, literal: &Literal) -> Result<(), KeywordError> {
    let length = literal.bytes.len();
    match room {
        Number::Constant(room) if usize::try_from(room).map_or(true, |room| room < length) => {
            Err(KeywordError::argument(format!(
                "{keyword} {room} is smaller than the content of {length} bytes: the content can never match"
            )))
        }
        _ => Ok(()),
    }
}

fn distance(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let number = text::number(builder, "distance", text::utf8(argument)?, -RELATIVE_MAX..=RELATIVE_MAX)?;
    let literal = builder.last_literal("distance")?;
    if has_absolute(literal) {
        return Err(mixed("distance"));
    }
    if literal.place.distance.replace(number).is_some() {
        return Err(twice("distance"));
    }
    Ok(())
}

fn within(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let number = text::number(builder, "within", text::utf8(argument)?, -RELATIVE_MAX..=RELATIVE_MAX)?;
    let literal = builder.last_literal("within")?;
    if has_absolute(literal) {
        return Err(mixed("within"));
    }
    fits("within", number, literal)?;
    if literal.place.within.replace(number).is_some() {
        return Err(twice("within"));
    }
    Ok(())
}

fn startswith(builder: &mut SignatureBuilder<'_>, _: &[u8]) -> Result<(), KeywordError> {
    let literal = builder.last_literal("startswith")?;
    if literal.startswith {
        return Err(twice("startswith"));
    }
    if has_absolute(literal) || literal.is_relative() {
        return Err(mixed("startswith"));
    }
    literal.startswith = true;
    literal.place.depth = i64::try_from(literal.bytes.len()).ok().map(Number::Constant);
    Ok(())
}

fn endswith(builder: &mut SignatureBuilder<'_>, _: &[u8]) -> Result<(), KeywordError> {
    let literal = builder.last_literal("endswith")?;
    if literal.endswith {
        return Err(twice("endswith"));
    }
    literal.endswith = true;
    Ok(())
}

fn rawbytes(builder: &mut SignatureBuilder<'_>, _: &[u8]) -> Result<(), KeywordError> {
    if builder.is_sticky() {
        return Err(
            KeywordError::context("`rawbytes` cannot be used in a sticky buffer").help("leave it out")
        );
    }
    builder.last_literal("rawbytes").map(|_| ())
}

fn fast_pattern(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let literal = builder.last_literal("fast_pattern")?;
    if literal.fast_pattern || literal.fast_pattern_only {
        return Err(twice("fast_pattern"));
    }
    match text::utf8(argument)? {
        "" => literal.fast_pattern = true,
        "only" => {
            if literal.negated {
                return Err(KeywordError::context("a negated content cannot be `fast_pattern:only`"));
            }
            literal.fast_pattern_only = true;
        }
        part => {
            let parsed = part.split_once(',').and_then(|(offset, length)| {
                Some((offset.trim().parse::<u16>().ok()?, length.trim().parse::<u16>().ok()?))
            });
            let Some((offset, length)) = parsed else {
                return Err(KeywordError::argument(format!(
                    "`{part}` is neither `only` nor `offset,length`"
                )));
            };
            let end = usize::from(offset).saturating_add(usize::from(length));
            if length == 0 || end > literal.bytes.len() {
                return Err(KeywordError::argument(format!(
                    "the part {offset},{length} does not lie in the content of {} bytes",
                    literal.bytes.len()
                )));
            }
            literal.fast_pattern = true;
            literal.fast_pattern_chop = Some((offset, length));
        }
    }
    Ok(())
}

/// Limits a rule with `replace` to single packets, which must contain the replaced bytes.
struct InPacket;

impl PacketCondition for InPacket {
    fn matches(&self, _: &ConditionContext<'_>) -> bool {
        true
    }

    fn needs_packet(&self) -> bool {
        true
    }

    /// Bytes that arrive in order and without a packet are replaced as well.
    fn needs_real_packet(&self) -> bool {
        false
    }
}

fn replace(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let pattern = bartizan_rules::parse_content(argument)?;
    if builder.is_sticky() {
        return Err(KeywordError::context("`replace` works on the payload of packets, not on a buffer"));
    }
    let literal = builder.last_literal("replace")?;
    if literal.negated || pattern.negated {
        return Err(KeywordError::context("a negated content has no bytes to replace"));
    }
    if literal.replace.is_some() {
        return Err(twice("replace"));
    }
    if literal.bytes.len() != pattern.bytes.len() {
        return Err(KeywordError::argument(format!(
            "the replacement has {} bytes, the content {}: both must be equally long",
            pattern.bytes.len(),
            literal.bytes.len()
        )));
    }
    literal.replace = Some(pattern.bytes.into());
    builder.packet.push(Box::new(InPacket));
    Ok(())
}
