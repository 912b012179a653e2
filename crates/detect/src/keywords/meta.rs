// SPDX-License-Identifier: Apache-2.0
//! Keywords that describe a rule. What they say is read by the rule language (`bartizan_rules::Meta`), which also
//! checks them; here they are known, so that they are not called unknown.

use crate::builder::SignatureBuilder;
use crate::keyword::{Argument, Keyword, KeywordError};

macro_rules! described {
    ($(($name:literal, $summary:literal)),* $(,)?) => {
        &[
            $(Keyword {
                name: $name,
                aliases: &[],
                summary: $summary,
                argument: Argument::Required,
                parse: known,
            },)*
            Keyword {
                name: "noalert",
                aliases: &[],
                summary: "The rule acts and sets its variables, but reports nothing.",
                argument: Argument::None,
                parse: noalert,
            },
            Keyword {
                name: "alert",
                aliases: &[],
                summary: "The rule reports, although its action (`pass`) would not.",
                argument: Argument::None,
                parse: alert,
            },
            Keyword {
                name: "bypass",
                aliases: &[],
                summary: "After a match the flow's packets are no longer inspected.",
                argument: Argument::None,
                parse: bypass,
            },
            Keyword {
                name: "prefilter",
                aliases: &[],
                summary: "Accepted: which condition a rule is looked up by is chosen from its contents and properties.",
                argument: Argument::None,
                parse: known,
            },
        ]
    };
}

/// The keywords.
pub const KEYWORDS: &[Keyword] = described![
    ("msg", "What the rule reports."),
    ("sid", "Number of the rule."),
    ("gid", "Number of the rule's generator; 1 unless given."),
    ("rev", "Revision of the rule."),
    ("classtype", "Class of the rule, from the classification file."),
    ("priority", "Priority of the rule, 1 is the most severe; overrides the class."),
    ("reference", "Where more is known: system and identifier."),
    ("metadata", "Keys and values that travel with the alert."),
    ("target", "Which side is attacked: `src_ip` or `dest_ip`."),
];

fn known(_: &mut SignatureBuilder<'_>, _: &[u8]) -> Result<(), KeywordError> {
    Ok(())
}

fn alert(builder: &mut SignatureBuilder<'_>, _: &[u8]) -> Result<(), KeywordError> {
    builder.alert = true;
    builder.noalert = false;
    Ok(())
}

fn noalert(builder: &mut SignatureBuilder<'_>, _: &[u8]) -> Result<(), KeywordError> {
    builder.noalert = true;
    Ok(())
}

fn bypass(builder: &mut SignatureBuilder<'_>, _: &[u8]) -> Result<(), KeywordError> {
    builder.bypass = true;
    Ok(())
}
