// SPDX-License-Identifier: Apache-2.0
//! `pcre`: a regular expression, `"/expression/flags"`, with captures into variables.
//!
//! Flags: of the expression `i m s x A E G`; `R` relative to the match before; `B` accepted; `O` with the
//! match limits of the settings; letters that move it to a buffer of HTTP. Captures are named groups
//! `(?P<flow_name>...)` (also `pkt_`, `alert_`) or a list after the flags, `, flow:name, pkt:name`, in the
//! order of the groups. Not supported: pairs of captures that name a key and its value.

use crate::compile::builder::{SignatureBuilder, Use};
use crate::compile::keyword::{Argument, Keyword, KeywordError, RefusalCode, Role};
use crate::model::content::{Capture, Item, RegexItem};
use bartizan_pattern::{JitMode, Limits, Regex, RegexFlags};
use std::sync::Arc;

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "pcre",
    aliases: &[],
    summary: "A regular expression that must, or must not, match: `pcre:\"/^GET\\s/i\";`.",
    argument: Argument::Required,
    role: Role::Condition,
    syntax: r#"pcre:[!]"/EXPRESSION/FLAGS""#,
    example: r#"alert http any any -> any any (msg:"pcre"; pcre:"/^GET\s/i"; sid:1;)"#,
    note: "",
    parse,
}];

/// Letters that move the expression to a buffer.
const BUFFERS: &[(u8, &str)] = &[
    (b'U', "http.uri"),
    (b'I', "http.uri.raw"),
    (b'P', "http.request_body"),
    (b'Q', "file.data"),
    (b'H', "http.header"),
    (b'D', "http.header.raw"),
    (b'M', "http.method"),
    (b'C', "http.cookie"),
    (b'S', "http.stat_code"),
    (b'Y', "http.stat_msg"),
    (b'V', "http.user_agent"),
    (b'W', "http.host"),
    (b'Z', "http.host.raw"),
];

/// Expression, flags and capture list of an argument.
struct PcreArgument<'a> {
    expression: &'a [u8],
    flags: &'a [u8],
    captures: &'a [u8],
}

/// Parsed flags.
#[derive(Default)]
struct PcreFlags {
    regex: RegexFlags,
    relative: bool,
    raw: bool,
    limits_of_settings: bool,
    buffer: Option<&'static str>,
}

fn parse(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let value = bartizan_rules::unwrap_value(argument, true)?;
    let parts = split(value.text)?;
    let flags = read_flags(parts.flags)?;
    if flags.buffer == Some("http.host")
        && !flags.regex.contains(RegexFlags::CASELESS)
        && has_upper_case(parts.expression)
    {
        return Err(KeywordError::context(
            "the host is in lower case, the expression has upper case letters",
        )
        .help("write the expression in lower case or use the flag `Z`"));
    }
    let settings = builder.environment.settings;
    let mut limits = Limits::default();
    if flags.limits_of_settings {
        let setting = |key, default| {
            settings.number(key, default).map_err(|error| KeywordError::argument(error.to_string()))
        };
        limits.matches = setting("pcre.match-limit", limits.matches)?;
        limits.depth = setting("pcre.match-limit-recursion", limits.depth)?;
    }
    // Groups are removed by compilation unless something refers to them, by number or by the capture list.
    let compile = |more| Regex::new(parts.expression, flags.regex | more, limits, JitMode::Lazy);
    let regex = if parts.captures.is_empty() {
        compile(RegexFlags::NO_AUTO_CAPTURE).or_else(|_| compile(RegexFlags::empty()))
    } else {
        compile(RegexFlags::empty())
    };
    let regex = regex.map_err(|e| {
        KeywordError::new(
            RefusalCode::BadPattern,
            format!("the regular expression is wrong at its byte {}: {}", e.offset, e.message),
        )
    })?;
    let captures = captures(builder, &regex, parts.captures)?;
    let item = Item::Regex(RegexItem {
        regex: Arc::new(regex),
        relative: flags.relative,
        negated: value.negated,
        anchors: false,
        captures,
    });
    place(builder, item, &flags)
}

/// Adds the expression to its buffer.
fn place(builder: &mut SignatureBuilder<'_>, item: Item, flags: &PcreFlags) -> Result<(), KeywordError> {
    let sticky = builder.is_sticky();
    match flags.buffer {
        Some(name) if sticky => {
            let current = builder.environment.buffers.name(builder.current_buffer());
            // The body of a response is a file: Suricata has one buffer for both.
            let same = current == name || (name, current) == ("file.data", "http.response_body");
            if !same {
                return Err(KeywordError::context(format!(
                    "the expression's flag is about `{name}`, but the sticky buffer is `{current}`"
                ))
                .help("write `pkt_data;` before it, or remove the flag"));
            }
            builder.push_item(item)
        }
        Some(name) => builder.push_named(name, item),
        None => {
            if flags.relative && !sticky && !builder.has_anchor() {
                return Err(KeywordError::context("the flag `R` needs a match before it in the same buffer"));
            }
            builder.push_item(item)
        }
    }
}

/// Cuts `/expression/flags, captures` apart.
fn split(text: &[u8]) -> Result<PcreArgument<'_>, KeywordError> {
    let wrong = || {
        KeywordError::argument("a regular expression is written `/expression/flags`")
            .help("a `/` in the expression is written `\\/`")
    };
    let (text, captures) = cut_captures(text);
    let escaped = |at: usize| {
        let before = text.get(..at).unwrap_or_default();
        matches!(before, [b'\\']) || matches!(before, [.., c, b'\\'] if *c != b'\\')
    };
    let slash = |at: &usize| text.get(*at) == Some(&b'/');
    let first =
        (0..text.len()).find(|at| slash(at) && at.checked_sub(1).and_then(|b| text.get(b)) != Some(&b'\\'));
    let first = first.ok_or_else(wrong)?;
    let last = (first + 1..text.len()).rev().find(|at| slash(at) && !escaped(*at)).ok_or_else(wrong)?;
    let expression = text.get(first + 1..last).ok_or_else(wrong)?;
    let flags = text.get(last + 1..).ok_or_else(wrong)?;
    Ok(PcreArgument { expression, flags: flags.trim_ascii(), captures })
}

/// Cuts a list `, flow:a, pkt:b` off the end.
fn cut_captures(text: &[u8]) -> (&[u8], &[u8]) {
    let find = |word: &[u8]| text.windows(word.len()).position(|w| w == word);
    let Some(at) = [b"flow:".as_slice(), b"pkt:", b"alert:"].into_iter().filter_map(find).min() else {
        return (text, &[]);
    };
    let (head, list) = text.split_at_checked(at).unwrap_or((text, &[]));
    let kept = head.iter().rposition(|b| !matches!(b, b',' | b' ')).map_or(0, |last| last + 1);
    if kept == head.len() {
        // No separator before it: part of the expression.
        return (text, &[]);
    }
    (head.get(..kept).unwrap_or(head), list)
}

fn read_flags(letters: &[u8]) -> Result<PcreFlags, KeywordError> {
    let mut flags = PcreFlags::default();
    for letter in letters {
        if let Some(flag) = RegexFlags::from_letter(*letter) {
            flags.regex |= flag;
            continue;
        }
        match letter {
            b'R' => flags.relative = true,
            b'B' => flags.raw = true,
            b'O' => flags.limits_of_settings = true,
            _ => {
                let Some((_, name)) = BUFFERS.iter().find(|(l, _)| l == letter) else {
                    return Err(KeywordError::argument(format!(
                        "unknown flag `{}` of a regular expression",
                        letter.escape_ascii()
                    )));
                };
                if flags.buffer.replace(name).is_some() {
                    return Err(KeywordError::context(
                        "an expression is about one buffer, and several flags select one",
                    ));
                }
            }
        }
        if flags.raw
            && flags
                .buffer
                .is_some_and(|b| !matches!(b, "http.header.raw" | "http.request_body" | "file.data"))
        {
            return Err(KeywordError::context("the flag `B` (raw bytes) contradicts the buffer's flag"));
        }
    }
    Ok(flags)
}

/// Whether the expression has upper case letters outside of escapes.
fn has_upper_case(expression: &[u8]) -> bool {
    let mut escaped = false;
    expression.iter().any(|byte| {
        if escaped {
            escaped = false;
            return false;
        }
        escaped = *byte == b'\\';
        byte.is_ascii_uppercase()
    })
}

/// Maps capture groups to variables: group number and variable, by name of the group or by the list.
fn captures(
    builder: &mut SignatureBuilder<'_>,
    regex: &Regex,
    list: &[u8],
) -> Result<Vec<(usize, Capture)>, KeywordError> {
    let names = builder.environment.names();
    let mut found = Vec::new();
    if list.is_empty() {
        for (name, number) in regex.group_names() {
            let target = match name.split_once('_') {
                Some(("flow", name)) => Capture::Flow(names.intern(name)),
                Some(("pkt", name)) => Capture::Packet(names.intern(name)),
                Some(("alert", name)) => Capture::Alert(names.intern(name)),
                _ => continue,
            };
            found.push((number as usize, target));
        }
        found.sort_by_key(|(number, _)| *number);
    } else {
        for (index, item) in super::text::items(list)?.into_iter().enumerate() {
            let target = match item.split_once(':').map(|(kind, name)| (kind.trim(), name.trim())) {
                Some(("flow", name)) if !name.is_empty() => Capture::Flow(names.intern(name)),
                Some(("pkt", name)) if !name.is_empty() => Capture::Packet(names.intern(name)),
                Some(("alert", name)) if !name.is_empty() => Capture::Alert(names.intern(name)),
                _ => {
                    return Err(KeywordError::argument(format!("`{item}` is not a capture"))
                        .help("captures are `flow:name`, `pkt:name` or `alert:name`"));
                }
            };
            found.push((index + 1, target));
        }
        if found.len() > regex.group_count() as usize {
            return Err(KeywordError::argument("more captures are named than the expression has groups"));
        }
    }
    let ordering = &mut builder.ordering;
    for (_, target) in &found {
        match target {
            Capture::Flow(_) => ordering.flowvars = ordering.flowvars.and(Use::Write),
            Capture::Packet(_) => ordering.pktvars = ordering.pktvars.and(Use::Write),
            Capture::Alert(_) | Capture::Context(_) | Capture::Replace(_) => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_cut_apart() {
        let cut = |text: &'static str| {
            split(text.as_bytes()).ok().map(|p| {
                let s = |b: &'static [u8]| core::str::from_utf8(b).unwrap();
                (s(p.expression), s(p.flags), s(p.captures))
            })
        };
        assert_eq!(cut("/a/i"), Some(("a", "i", "")));
        assert_eq!(cut(r"/a\/b/"), Some((r"a\/b", "", "")));
        assert_eq!(cut(r"/a\\/U"), Some((r"a\\", "U", "")));
        assert_eq!(cut("/a/b/c/"), Some(("a/b/c", "", "")));
        assert_eq!(cut("/(.*)/R, flow:x,pkt:y"), Some(("(.*)", "R", "flow:x,pkt:y")));
        assert_eq!(cut("/aflow:b/"), Some(("aflow:b", "", "")));
        assert_eq!(cut("abc"), None);
        assert_eq!(cut("/abc"), None);
        assert_eq!(cut(r"/abc\/"), None);
    }

    #[test]
    fn flags() {
        assert!(read_flags(b"ismxAEGRBO").is_ok());
        assert_eq!(read_flags(b"iU").ok().and_then(|f| f.buffer), Some("http.uri"));
        for bad in [b"UH".as_slice(), b"k", b"BU"] {
            assert!(read_flags(bad).is_err());
        }
        assert!(has_upper_case(b"aB") && !has_upper_case(b"a\\Sb"));
    }
}
