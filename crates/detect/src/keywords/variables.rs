// SPDX-License-Identifier: Apache-2.0
//! `flowvar`, `pktvar`: whether a captured variable contains some bytes. Source: Suricata 8's keyword list,
//! and the expressions that set the variables (`pcre`).

use crate::compile::builder::{SignatureBuilder, Use};
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::condition::{ConditionContext, PacketCondition};
use crate::model::left::{AlertContext, LeftKind};
use memchr::memmem;

/// The keywords.
pub const KEYWORDS: &[Keyword] = &[
    Keyword {
        name: "flowvar",
        aliases: &[],
        summary: "A variable of the flow, captured by `pcre`, contains this: `flowvar:user,\"root\";`.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: r#"flowvar:NAME,[!]"TEXT""#,
        example: r#"alert tcp any any -> any any (msg:"flowvar"; flowvar:user,"root"; sid:1;)"#,
        note: "A condition on an unset variable never matches, negated or not.",
        parse: flowvar,
    },
    Keyword {
        name: "pktvar",
        aliases: &[],
        summary: "A variable that another rule captured by `pcre` from this packet contains this: `pktvar:user,\"root\";`.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: r#"pktvar:NAME,"TEXT""#,
        example: r#"alert tcp any any -> any any (msg:"pktvar"; pktvar:user,"root"; sid:1;)"#,
        note: "Rules that capture are evaluated before rules that read. The quotes are optional.",
        parse: pktvar,
    },
];

struct Contains {
    name: u32,
    text: Vec<u8>,
    negated: bool,
}

impl PacketCondition for Contains {
    fn matches(&self, scene: &ConditionContext<'_>) -> bool {
        let value = scene.state.and_then(|state| state.variable(self.name));
        value.is_some_and(|value| memmem::find(value, &self.text).is_some() != self.negated)
    }

    fn needs_flow(&self) -> bool {
        true
    }
}

struct PacketContains {
    name: u32,
    text: Vec<u8>,
}

impl PacketCondition for PacketContains {
    fn matches(&self, scene: &ConditionContext<'_>) -> bool {
        let found = |left: &AlertContext| {
            left.kind == LeftKind::PacketVariable
                && left.name == self.name
                && memmem::find(&left.value, &self.text).is_some()
        };
        scene.left.iter().any(found)
    }
}

fn flowvar(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let (name, text) = parts(argument)?;
    let pattern = bartizan_rules::parse_content(text.trim_ascii())?;
    let name = builder.environment.names().intern(name);
    builder.ordering.flowvars = builder.ordering.flowvars.and(Use::Read);
    builder.packet.push(Box::new(Contains { name, text: pattern.bytes, negated: pattern.negated }));
    Ok(())
}

fn pktvar(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let (name, text) = parts(argument)?;
    let quoted = [b"\"", text, b"\""].concat();
    let pattern = bartizan_rules::parse_content(if text.starts_with(b"\"") { text } else { &quoted })?;
    let name = builder.environment.names().intern(name);
    builder.ordering.pktvars = builder.ordering.pktvars.and(Use::Read);
    builder.packet.push(Box::new(PacketContains { name, text: pattern.bytes }));
    Ok(())
}

/// Splits an argument into name and text.
fn parts(argument: &[u8]) -> Result<(&str, &[u8]), KeywordError> {
    let comma = argument.iter().position(|b| *b == b',');
    let Some((name, text)) = comma.and_then(|at| Some((argument.get(..at)?, argument.get(at + 1..)?))) else {
        return Err(KeywordError::argument("a name and a text are expected").help(r#"write `name,"text"`"#));
    };
    let name = core::str::from_utf8(name.trim_ascii())
        .ok()
        .filter(|name| !name.is_empty())
        .ok_or_else(|| KeywordError::argument("the variable has no name"))?;
    Ok((name, text))
}
