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
                summary: "The rule acts and sets its variables, but reports nothing.",
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
                summary: "The rule reports, although its action (`pass`) would not.",
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
                summary: "After a match the flow's packets are no longer inspected.",
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
                summary: "Accepted: which condition a rule is looked up by is chosen from its contents and properties.",
                argument: Argument::None,
                role: Role::Hint,
                syntax: "prefilter",
                example: r#"alert tcp any any -> any any (msg:"prefilter"; ttl:1; prefilter; sid:1;)"#,
                note: "A hint that is not needed here: the loader chooses what a rule is looked up by. Which packets match is the same.",
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
        "What the rule reports.",
        r#"alert ip any any -> any any (msg:"something was seen"; sid:1;)"#
    ),
    ("sid", "sid:N", "Number of the rule.", "alert ip any any -> any any (sid:1;)"),
    (
        "gid",
        "gid:N",
        "Number of the rule's generator; 1 unless given.",
        "alert ip any any -> any any (gid:2; sid:1;)"
    ),
    ("rev", "rev:N", "Revision of the rule.", "alert ip any any -> any any (rev:2; sid:1;)"),
    (
        "classtype",
        "classtype:NAME",
        "Class of the rule, from the classification file.",
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
        "Where more is known: system and identifier.",
        "alert ip any any -> any any (reference:url,example.com; sid:1;)"
    ),
    (
        "metadata",
        "metadata:KEY VALUE[, KEY VALUE...]",
        "Keys and values that travel with the alert.",
        "alert ip any any -> any any (metadata:created_at 2026_01_01; sid:1;)"
    ),
    (
        "target",
        "target:src_ip|dest_ip",
        "Which side is attacked: `src_ip` or `dest_ip`.",
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
