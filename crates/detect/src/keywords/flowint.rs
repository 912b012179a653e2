// SPDX-License-Identifier: Apache-2.0
//! `flowint`: whole numbers of 32 bits that rules keep per flow.
//!
//! Tests (`isset`, comparisons) are conditions; changes (`=`, `+`, `-`) happen after the match. The
//! right-hand side is a number or the name of another variable. Addition to an unset variable starts at zero.

use super::text;
use crate::compile::builder::{SignatureBuilder, Use};
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::condition::{ConditionContext, Effect, PacketCondition};
use crate::state::FlowRuleState;
use bartizan_base::RuleId;

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "flowint",
    aliases: &[],
    summary: "A number kept per flow: `flowint:count,+,1;`, `flowint:count,>,5;`, `flowint:count,notset;`.",
    argument: Argument::Required,
    role: Role::Effect,
    syntax: "flowint:NAME,OPERATOR,VALUE or flowint:NAME,isset|notset",
    example: r#"alert tcp any any -> any any (msg:"flowint"; flowint:count,+,1; sid:1;)"#,
    note: "256 integers a flow.",
    parse,
}];

/// Right-hand side.
#[derive(Clone, Copy)]
enum Operand {
    Number(u32),
    Variable(u32),
}

impl Operand {
    fn value(self, state: &FlowRuleState) -> Option<u32> {
        match self {
            Operand::Number(n) => Some(n),
            Operand::Variable(name) => state.integer(name),
        }
    }
}

#[derive(Clone, Copy)]
enum FlowintOperation {
    Set,
    Add,
    Subtract,
}

struct FlowintEffect {
    name: u32,
    change: FlowintOperation,
    operand: Operand,
}

impl Effect for FlowintEffect {
    fn apply(&self, _: RuleId, _: &ConditionContext<'_>, state: Option<&mut FlowRuleState>) -> bool {
        let Some(state) = state else { return true };
        let Some(operand) = self.operand.value(state) else { return true };
        let before = state.integer(self.name);
        let after = match self.change {
            FlowintOperation::Set => Some(operand),
            FlowintOperation::Add => Some(before.unwrap_or(0).wrapping_add(operand)),
            FlowintOperation::Subtract => before.map(|b| b.wrapping_sub(operand)),
        };
        if let Some(after) = after {
            state.set_integer(self.name, after);
        }
        true
    }

    fn is_ip_only(&self) -> bool {
        false
    }
}

#[derive(Clone, Copy)]
enum FlowintTest {
    Set(bool),
    Compared(fn(&u32, &u32) -> bool, Operand),
}

struct FlowintCondition {
    name: u32,
    test: FlowintTest,
}

impl PacketCondition for FlowintCondition {
    fn matches(&self, scene: &ConditionContext<'_>) -> bool {
        if scene.facts.flow.is_none() {
            return false;
        }
        let Some(state) = scene.state else { return false };
        let value = state.integer(self.name);
        match self.test {
            FlowintTest::Set(wanted) => value.is_some() == wanted,
            FlowintTest::Compared(holds, operand) => {
                value.zip(operand.value(state)).is_some_and(|(a, b)| holds(&a, &b))
            }
        }
    }

    fn needs_flow(&self) -> bool {
        true
    }
}

fn parse(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let items = text::items(argument)?;
    let (name, operator, right) = match items.as_slice() {
        [name, operator] => (*name, *operator, None),
        [name, operator, right] => (*name, *operator, Some(*right)),
        _ => return Err(KeywordError::argument("flowint is written `name,operator[,value]`")),
    };
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-');
    if !text::is_name(name) || !name.chars().all(good) {
        return Err(KeywordError::argument(format!("`{name}` is not the name of a variable")));
    }
    let names = builder.environment.names();
    let operand = match right {
        None | Some("") => None,
        Some(right) if text::is_name(right) => Some(Operand::Variable(names.intern(right))),
        Some(right) => Some(Operand::Number(text::within("flowint", right, 0..=u32::MAX)?)),
    };
    let name = names.intern(name);
    let needed = || {
        operand.ok_or_else(|| {
            KeywordError::argument(format!("`{operator}` needs a number or a variable after it"))
        })
    };
    let compared = |holds| needed().map(|operand| FlowintTest::Compared(holds, operand));
    let change = |change| needed().map(|operand| FlowintEffect { name, change, operand });
    let asked = match operator {
        "=" => return write(builder, change(FlowintOperation::Set)?),
        "+" => return write(builder, change(FlowintOperation::Add)?),
        "-" => return write(builder, change(FlowintOperation::Subtract)?),
        "isset" => FlowintTest::Set(true),
        "notset" | "isnotset" => FlowintTest::Set(false),
        "==" => compared(u32::eq)?,
        "!=" => compared(u32::ne)?,
        "<" => compared(u32::lt)?,
        "<=" => compared(u32::le)?,
        ">" => compared(u32::gt)?,
        ">=" => compared(u32::ge)?,
        other => {
            return Err(KeywordError::argument(format!("unknown operator `{other}` of `flowint`"))
                .help("operators are = + - == != < <= > >= isset notset"));
        }
    };
    builder.packet.push(Box::new(FlowintCondition { name, test: asked }));
    builder.ordering.flowints = builder.ordering.flowints.and(Use::Read);
    Ok(())
}

fn write(builder: &mut SignatureBuilder<'_>, effect: FlowintEffect) -> Result<(), KeywordError> {
    builder.effects.push(Box::new(effect));
    builder.ordering.flowints = builder.ordering.flowints.and(Use::Write);
    Ok(())
}
