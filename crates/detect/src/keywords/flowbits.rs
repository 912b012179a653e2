// SPDX-License-Identifier: Apache-2.0
//! `flowbits`: marks that rules set on a flow and test.
//!
//! Without a flow neither `isset` nor `isnotset` holds.

use super::text;
use crate::compile::builder::{SignatureBuilder, Use};
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::condition::{ConditionContext, Effect, PacketCondition};
use crate::state::FlowRuleState;
use bartizan_base::RuleId;

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "flowbits",
    aliases: &[],
    summary: "Sets or tests a mark on the flow: `flowbits:set,x;`, `flowbits:isset,x|y;`, `flowbits:noalert;`.",
    argument: Argument::Required,
    role: Role::Effect,
    syntax: "flowbits:set|unset|isset|isnotset|toggle,NAME[|NAME...] or flowbits:noalert",
    example: r#"alert tcp any any -> any any (msg:"flowbits"; flowbits:set,seen; sid:1;)"#,
    note: "A flow has at most 256 bits. A rule that tests a bit that no rule sets loads with a warning. A rule with `isnotset` is skipped if a rule that sets the bit was left out; the same applies to `xbits`, `hostbits` and `flowint`.",
    parse,
}];

#[derive(Clone, Copy)]
enum FlowbitAction {
    Set,
    Unset,
    Toggle,
}

/// `isset`, `isnotset`: one of the bits is, or is not, set.
struct FlowbitCondition {
    names: Vec<u32>,
    set: bool,
}

impl PacketCondition for FlowbitCondition {
    fn matches(&self, scene: &ConditionContext<'_>) -> bool {
        if scene.facts.flow.is_none() {
            return false;
        }
        let Some(state) = scene.state else { return false };
        self.names.iter().any(|name| state.bit(*name) == self.set)
    }

    fn needs_flow(&self) -> bool {
        true
    }
}

struct FlowbitEffect {
    name: u32,
    change: FlowbitAction,
}

impl Effect for FlowbitEffect {
    fn apply(&self, _: RuleId, _: &ConditionContext<'_>, state: Option<&mut FlowRuleState>) -> bool {
        let Some(state) = state else { return true };
        match self.change {
            FlowbitAction::Set => state.set_bit(self.name),
            FlowbitAction::Unset => state.clear_bit(self.name),
            FlowbitAction::Toggle if state.bit(self.name) => state.clear_bit(self.name),
            FlowbitAction::Toggle => state.set_bit(self.name),
        }
        true
    }

    fn is_ip_only(&self) -> bool {
        matches!(self.change, FlowbitAction::Set)
    }
}

fn parse(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let argument = text::utf8(argument)?;
    let (command, name) = match argument.split_once(',') {
        Some((command, name)) => (command.trim(), Some(name.trim())),
        None => (argument, None),
    };
    if command == "noalert" {
        if name.is_some() {
            return Err(KeywordError::argument("`flowbits:noalert` takes no name"));
        }
        builder.silence();
        return Ok(());
    }
    let name = name
        .filter(|n| !n.is_empty())
        .ok_or_else(|| KeywordError::argument(format!("`flowbits:{command}` needs the name of a bit")))?;
    let change = match command {
        "set" => Some(FlowbitAction::Set),
        "unset" => Some(FlowbitAction::Unset),
        "toggle" => Some(FlowbitAction::Toggle),
        "isset" | "isnotset" => None,
        other => {
            return Err(KeywordError::argument(format!("unknown command `{other}` of `flowbits`"))
                .help("commands are set, unset, toggle, isset, isnotset, noalert"));
        }
    };
    let list: Vec<&str> = name.split('|').map(str::trim).collect();
    if list.iter().any(|n| n.is_empty() || n.contains(|c: char| c.is_ascii_whitespace())) {
        return Err(KeywordError::argument(format!("`{name}`: the name of a bit is one word")));
    }
    let names = builder.environment.names();
    let numbers: Vec<u32> = list.iter().map(|n| names.intern(n)).collect();
    match change {
        None => {
            builder.packet.push(Box::new(FlowbitCondition { names: numbers, set: command == "isset" }));
            builder.ordering.flowbits = builder.ordering.flowbits.and(Use::Read);
        }
        Some(change) => {
            let [name] = numbers.as_slice() else {
                return Err(KeywordError::argument(
                    "`|` is for isset and isnotset: a rule sets one bit at a time",
                ));
            };
            builder.effects.push(Box::new(FlowbitEffect { name: *name, change }));
            builder.ordering.flowbits = builder.ordering.flowbits.and(Use::Write);
            builder.ordering.sets_flowbit |= command == "set";
        }
    }
    Ok(())
}
