// SPDX-License-Identifier: Apache-2.0
//! Frames of HTTP/2 (RFC 9113): types, error codes, weights, windows, settings, sizes of tables. The sticky
//! buffers (`http2.header_name`, and those of HTTP/1) come from the table of the protocol.

use super::number::{later, text};
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::condition::{Answer, ConditionContext, TxCondition};
use bartizan_applayer::protocols;
use bartizan_applayer::protocols::http2::{
    ERROR_CODES, FRAME_TYPES, FieldStatus, FramePayload, HttpFrame, SETTING_NAMES,
};
use bartizan_applayer::transaction::Transaction;
use bartizan_base::{Direction, PerDirection};
use bartizan_rules::UintMatch;

const ONCE: &str = "A frame of a stream is inspected if it comes with the stream's first bytes of its direction, as in Suricata; in prevention each frame is.";

const fn keyword(
    name: &'static str,
    summary: &'static str,
    syntax: &'static str,
    example: &'static str,
    parse: fn(&mut SignatureBuilder<'_>, &[u8]) -> Result<(), KeywordError>,
) -> Keyword {
    Keyword {
        name,
        aliases: &[],
        summary,
        argument: Argument::Required,
        role: Role::Condition,
        syntax,
        example,
        note: ONCE,
        parse,
    }
}

/// The keywords.
pub const KEYWORDS: &[Keyword] = &[
    keyword(
        "http2.frametype",
        "The type of a frame, by name (`DATA`, `HEADERS`, `PRIORITY`, `RSTSTREAM`, `SETTINGS`, `PUSHPROMISE`, `PING`, `GOAWAY`, `WINDOWUPDATE`, `CONTINUATION`) or number.",
        "http2.frametype:NAME|N",
        r#"alert http2 any any -> any any (msg:"http2.frametype"; http2.frametype:GOAWAY; sid:1;)"#,
        frame_type,
    ),
    keyword(
        "http2.errorcode",
        "The reason of an error in a RST_STREAM or GOAWAY frame, by name (`NO_ERROR`, `CANCEL`, ...) or number.",
        "http2.errorcode:NAME|N",
        r#"alert http2 any any -> any any (msg:"http2.errorcode"; http2.errorcode:PROTOCOL_ERROR; sid:1;)"#,
        error_code,
    ),
    keyword(
        "http2.priority",
        "The weight in a PRIORITY or HEADERS frame, as it is on the wire: 0 to 255.",
        "http2.priority:[<|>|!]N or N-M",
        r#"alert http2 any any -> any any (msg:"http2.priority"; http2.priority:>100; sid:1;)"#,
        priority,
    ),
    keyword(
        "http2.window",
        "The growth of a window in a WINDOW_UPDATE frame.",
        "http2.window:[<|>|!]N or N-M",
        r#"alert http2 any any -> any any (msg:"http2.window"; http2.window:<4096; sid:1;)"#,
        window,
    ),
    keyword(
        "http2.size_update",
        "The new size of the table of fields, in a block of fields.",
        "http2.size_update:[<|>|!]N or N-M",
        r#"alert http2 any any -> any any (msg:"http2.size_update"; http2.size_update:>65536; sid:1;)"#,
        size_update,
    ),
    keyword(
        "http2.settings",
        "A setting and its value in a SETTINGS frame; the setting by name (`SETTINGS_ENABLE_PUSH`) or number.",
        "http2.settings:NAME|N [<|>|=|!]VALUE",
        r#"alert http2 any any -> any any (msg:"http2.settings"; http2.settings:SETTINGS_MAX_FRAME_SIZE >65536; sid:1;)"#,
        settings,
    ),
];

/// A condition on a frame of a direction.
struct OnFrame<F> {
    holds: F,
    complete: PerDirection<u8>,
}

impl<F: Fn(&HttpFrame) -> bool + Send + Sync> TxCondition for OnFrame<F> {
    fn matches(&self, tx: &dyn Transaction, direction: Direction, scene: &ConditionContext<'_>) -> Answer {
        match tx.http_frames(direction) {
            Some(frames) if frames.list.iter().any(&self.holds) => Answer::Yes,
            Some(frames) if frames.is_final => Answer::No,
            _ => later(tx, direction, self.complete, scene),
        }
    }
}

/// Adds a condition on frames.
fn on_frame(
    builder: &mut SignatureBuilder<'_>,
    keyword: &str,
    holds: impl Fn(&HttpFrame) -> bool + Send + Sync + 'static,
) -> Result<(), KeywordError> {
    let spec = &protocols::http2::SPEC;
    let protocols = protocols::called(spec.name).map(|(id, _)| id).collect();
    let condition = Box::new(OnFrame { holds, complete: spec.complete });
    builder.push_tx_among(protocols, keyword, PerDirection::new(true, true), None, condition)
}

/// Names with their numbers.
fn numbered<T: TryFrom<usize> + Clone>(
    names: &'static [&'static str],
) -> impl Iterator<Item = (&'static str, T)> + Clone {
    names.iter().enumerate().filter_map(|(number, name)| Some((*name, T::try_from(number).ok()?)))
}

fn frame_type(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let check = UintMatch::<u8>::parse_or_name(argument, numbered(&FRAME_TYPES))?;
    on_frame(builder, "http2.frametype", move |frame| check.matches(frame.kind))
}

fn error_code(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let check = UintMatch::<u32>::parse_or_name(argument, numbered(&ERROR_CODES))?;
    on_frame(
        builder,
        "http2.errorcode",
        // As in Suricata, a code without a name matches nothing.
        move |frame| {
            let FramePayload::Error(code) = frame.payload else { return false };
            usize::try_from(code).is_ok_and(|code| code < ERROR_CODES.len()) && check.matches(code)
        },
    )
}

fn priority(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let check = UintMatch::<u8>::parse(argument)?;
    on_frame(builder, "http2.priority", move |frame| match frame.payload {
        FramePayload::Priority(weight) | FramePayload::Fields { weight: Some(weight), .. } => {
            check.matches(weight)
        }
        _ => false,
    })
}

fn window(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let check = UintMatch::<u32>::parse(argument)?;
    on_frame(
        builder,
        "http2.window",
        move |frame| matches!(frame.payload, FramePayload::Window(growth) if check.matches(growth)),
    )
}

fn size_update(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let check = UintMatch::<u64>::parse(argument)?;
    on_frame(builder, "http2.size_update", move |frame| {
        let FramePayload::Fields { fields, .. } = &frame.payload else { return false };
        fields
            .iter()
            .any(|field| matches!(field.status, FieldStatus::SizeUpdate(size) if check.matches(size)))
    })
}

fn settings(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let argument = text(argument)?.trim();
    let end = argument.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(argument.len());
    let (name, value) = argument.split_at_checked(end).unwrap_or((argument, ""));
    let is_named = |known: &&str| !name.is_empty() && known.eq_ignore_ascii_case(name);
    let named = SETTING_NAMES.iter().position(is_named);
    let number = named.and_then(|place| u16::try_from(place.checked_add(1)?).ok());
    let Some(wanted) = number.or_else(|| name.parse().ok()) else {
        return Err(KeywordError::argument(format!("`{name}` is no setting of HTTP/2")).help(format!(
            "write one of {}, or its number",
            SETTING_NAMES.iter().filter(|name| !name.is_empty()).copied().collect::<Vec<_>>().join(", ")
        )));
    };
    let value = value.trim();
    let check = UintMatch::<u32>::parse(value.strip_prefix('=').unwrap_or(value).trim().as_bytes())?;
    on_frame(builder, "http2.settings", move |frame| {
        let FramePayload::Settings(list) = &frame.payload else { return false };
        list.iter().any(|setting| setting.id == wanted && check.matches(setting.value))
    })
}

#[cfg(test)]
mod tests {
    use crate::compile::keyword::RefusalCode;
    use crate::keywords::testing::{build, refused_in};

    #[test]
    fn arguments() {
        for (keyword, argument) in [
            ("http2.frametype", "WINDOWUPDATE"),
            ("http2.frametype", "4"),
            ("http2.errorcode", "NO_ERROR"),
            ("http2.priority", ">250"),
            ("http2.window", "1-10"),
            ("http2.size_update", ">0"),
            ("http2.settings", "SETTINGS_INITIAL_WINDOW_SIZE >1000"),
            ("http2.settings", "SETTINGS_ENABLE_PUSH=0"),
        ] {
            assert!(build("http2", &[(keyword, argument)]).is_ok(), "{keyword}:{argument}");
        }
        for (keyword, argument) in [
            ("http2.frametype", "WINDOW_UPDATE"),
            ("http2.frametype", "256"),
            ("http2.errorcode", "NOERROR"),
            ("http2.priority", "256"),
            ("http2.window", "x"),
            ("http2.size_update", ""),
            ("http2.settings", "SETTINGS_NONE >1"),
            ("http2.settings", "SETTINGS_ENABLE_PUSH"),
        ] {
            let refused = refused_in("http2", &[(keyword, argument)]);
            assert_eq!(refused, Some(RefusalCode::BadArgument), "{keyword}:{argument}");
        }
        assert_eq!(refused_in("ssh", &[("http2.window", "1")]), Some(RefusalCode::BadContext));
    }
}
