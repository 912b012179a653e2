// SPDX-License-Identifier: Apache-2.0
//! `app-layer-state`: the progress of a transaction.

use super::number::text;
use crate::compile::builder::SignatureBuilder;
use crate::compile::hook::{self, Hook};
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::condition::{Answer, ConditionContext, TxCondition};
use bartizan_applayer::protocols;
use bartizan_applayer::transaction::Transaction;
use bartizan_base::{Direction, PerDirection};
use bartizan_rules::suggest;

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "app-layer-state",
    aliases: &[],
    summary: "The transaction is in a state, before or after it: `app-layer-state:>request_line;`.",
    argument: Argument::Required,
    role: Role::Condition,
    syntax: "app-layer-state:[<|>]STATE",
    example: r#"alert http1 any any -> any any (msg:"state"; app-layer-state:>request_line; sid:1;)"#,
    note: "The rule's head names one protocol (`http1`, not `http`). `<` and `>` match once for a transaction; a state by itself is a hook, \
           like one in the head.",
    parse: app_layer_state,
}];

/// Whether the transaction must be before or after the state.
#[derive(Clone, Copy)]
enum StateRelation {
    Before,
    Behind,
}

struct Compared {
    hook: Hook,
    complete: u8,
    side: StateRelation,
}

impl TxCondition for Compared {
    fn matches(&self, tx: &dyn Transaction, _direction: Direction, _scene: &ConditionContext<'_>) -> Answer {
        let now = hook::progress(tx, self.hook.direction);
        match self.side {
            StateRelation::Before => Answer::from(now < self.hook.state),
            StateRelation::Behind if now > self.hook.state => Answer::Yes,
            StateRelation::Behind if now < self.complete => Answer::NotYet,
            StateRelation::Behind => Answer::No,
        }
    }
}

fn app_layer_state(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let written = text(argument)?;
    let Some((protocol, spec)) = hook::single(builder).and_then(|id| Some((id, protocols::spec(id)?))) else {
        return Err(KeywordError::context(
            "`app-layer-state` needs one application protocol in the rule's head",
        )
        .help("write `http1` for the first versions of HTTP"));
    };
    let (side, name) = match written.as_bytes().first() {
        Some(b'<') => (Some(StateRelation::Before), written.get(1..).unwrap_or_default()),
        Some(b'>') => (Some(StateRelation::Behind), written.get(1..).unwrap_or_default()),
        _ => (None, written),
    };
    let Some(hook) = hook::find_own(protocol, spec, name) else {
        let error = KeywordError::argument(format!("`{}` has unknown state `{name}`", spec.name));
        return Err(
            match suggest(name, spec.states.to_server.iter().chain(spec.states.to_client).copied()) {
                Some(near) => error.help(format!("did you mean `{near}`?")),
                None => error,
            },
        );
    };
    let Some(side) = side else {
        builder.flags_set += 1;
        return hook::set(builder, hook);
    };
    builder.hooked = true;
    hook::narrow(builder, hook.direction)?;
    let mut directions = PerDirection::default();
    directions[hook.direction] = true;
    let complete = spec.complete[hook.direction];
    let condition = Box::new(Compared { hook, complete, side });
    builder.push_tx(protocol, "app-layer-state", directions, None, condition)
}
