// SPDX-License-Identifier: Apache-2.0
//! Keywords that describe a rule. The rule language reads and checks them (`bartizan_rules::Meta`); their
//! entries here only keep them from being reported as unknown.

use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};

macro_rules! described {
    ($(($name:literal, $syntax:literal, $summary:literal, $example:literal)),* $(,)?) => {
        &[
            $(Keyword {
                name: $name,
                aliases: &[],
                summary: $summary,
                argument: Argument::Required,
                role: Role::Description,
                syntax: $syntax,
                example: $example,
                note: "",
                parse: known,
            },)*
            Keyword {
                name: "noalert",
                aliases: &[],
                summary: "The rule acts and sets its variables without an alert.",
                argument: Argument::None,
                role: Role::Effect,
                syntax: "noalert",
                example: r#"alert ip any any -> any any (msg:"noalert"; noalert; sid:1;)"#,
                note: "",
                parse: noalert,
            },
            Keyword {
                name: "alert",
                aliases: &[],
                summary: "The rule writes an alert although its action (`pass`) does not.",
                argument: Argument::None,
                role: Role::Effect,
                syntax: "alert",
                example: r#"alert ip any any -> any any (msg:"alert"; alert; sid:1;)"#,
                note: "",
                parse: alert,
            },
            Keyword {
                name: "bypass",
                aliases: &[],
                summary: "The flow's packets are no longer inspected after a match.",
                argument: Argument::None,
                role: Role::Effect,
                syntax: "bypass",
                example: r#"alert tcp any any -> any any (msg:"bypass"; flow:established; bypass; sid:1;)"#,
                note: "",
                parse: bypass,
            },
            Keyword {
                name: "prefilter",
                aliases: &[],
                summary: "Has no effect: the prefilter of a rule is chosen from its contents and properties.",
                argument: Argument::None,
                role: Role::Hint,
                syntax: "prefilter",
                example: r#"alert tcp any any -> any any (msg:"prefilter"; ttl:1; prefilter; sid:1;)"#,
                note: "A hint that this engine does not need: the loader chooses the prefilter. The same packets match.",
                parse: known,
            },
        ]
    };
}

/// The keywords.
pub const KEYWORDS: &[Keyword] = described![
    (
        "msg",
        r#"msg:"TEXT""#,
        "The message of the rule's alerts.",
        r#"alert ip any any -> any any (msg:"something was seen"; sid:1;)"#
    ),
    ("sid", "sid:N", "The number of the rule (signature id).", "alert ip any any -> any any (sid:1;)"),
    (
        "gid",
        "gid:N",
        "The number of the rule's generator; by default 1.",
        "alert ip any any -> any any (gid:2; sid:1;)"
    ),
    ("rev", "rev:N", "Revision of the rule.", "alert ip any any -> any any (rev:2; sid:1;)"),
    (
        "classtype",
        "classtype:NAME",
        "The class of the rule, from the classification file.",
        "alert ip any any -> any any (classtype:trojan-activity; sid:1;)"
    ),
    (
        "priority",
        "priority:N",
        "Priority of the rule, 1 is the most severe; overrides the class.",
        "alert ip any any -> any any (priority:1; sid:1;)"
    ),
    (
        "reference",
        "reference:SYSTEM,ID",
        "A reference to further information: system and identifier.",
        "alert ip any any -> any any (reference:url,example.com; sid:1;)"
    ),
    (
        "metadata",
        "metadata:KEY VALUE[, KEY VALUE...]",
        "Keys and values that the alert contains.",
        "alert ip any any -> any any (metadata:created_at 2026_01_01; sid:1;)"
    ),
    (
        "target",
        "target:src_ip|dest_ip",
        "The attacked side: `src_ip` or `dest_ip`.",
        "alert ip any any -> any any (target:dest_ip; sid:1;)"
    ),
];

fn known(_: &mut SignatureBuilder<'_>, _: &[u8]) -> Result<(), KeywordError> {
    Ok(())
}

fn alert(builder: &mut SignatureBuilder<'_>, _: &[u8]) -> Result<(), KeywordError> {
    builder.alert = true;
    builder.flags_set += 1;
    builder.noalert = false;
    Ok(())
}

fn noalert(builder: &mut SignatureBuilder<'_>, _: &[u8]) -> Result<(), KeywordError> {
    builder.silence();
    Ok(())
}

fn bypass(builder: &mut SignatureBuilder<'_>, _: &[u8]) -> Result<(), KeywordError> {
    builder.bypass = true;
    builder.flags_set += 1;
    Ok(())
}
