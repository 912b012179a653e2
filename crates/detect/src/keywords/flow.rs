// SPDX-License-Identifier: Apache-2.0
//! `flow`: direction and state of the flow.

use super::text;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::signature::FlowNeeds;

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "flow",
    aliases: &[],
    summary: "Direction and state of the flow: `flow:established,to_server;`.",
    argument: Argument::Required,
    role: Role::Condition,
    syntax: "flow:[to_server|to_client][,established|not_established|stateless][,only_stream|no_stream][,only_frag|no_frag]",
    example: r#"alert tcp any any -> any any (msg:"flow"; flow:established,to_server; content:"x"; sid:1;)"#,
    note: "",
    parse,
}];

/// Options that exclude each other, by group.
const GROUPS: &[FlowNeeds] = &[
    FlowNeeds::TO_SERVER.union(FlowNeeds::TO_CLIENT),
    FlowNeeds::ESTABLISHED.union(FlowNeeds::NOT_ESTABLISHED).union(FlowNeeds::STATELESS),
    FlowNeeds::ONLY_STREAM.union(FlowNeeds::NO_STREAM),
    FlowNeeds::ONLY_FRAGMENT.union(FlowNeeds::NO_FRAGMENT),
];

fn option(name: &str) -> Option<FlowNeeds> {
    Some(match name.to_ascii_lowercase().as_str() {
        "to_server" | "from_client" => FlowNeeds::TO_SERVER,
        "to_client" | "from_server" => FlowNeeds::TO_CLIENT,
        "established" => FlowNeeds::ESTABLISHED,
        "not_established" => FlowNeeds::NOT_ESTABLISHED,
        "stateless" => FlowNeeds::STATELESS,
        "only_stream" => FlowNeeds::ONLY_STREAM,
        "no_stream" => FlowNeeds::NO_STREAM,
        "only_frag" => FlowNeeds::ONLY_FRAGMENT,
        "no_frag" => FlowNeeds::NO_FRAGMENT,
        _ => return None,
    })
}

fn parse(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    if builder.seen.contains(&"flow") {
        return Err(KeywordError::context("`flow` is given twice").help("put all options into one"));
    }
    let mut needs = FlowNeeds::empty();
    for name in text::items(argument)? {
        let need = option(name)
            .ok_or_else(|| KeywordError::argument(format!("unknown option `{name}` of `flow`")))?;
        if needs.contains(need) {
            return Err(KeywordError::argument(format!("`{name}` is given twice")));
        }
        let rivals = GROUPS.iter().find(|g| g.contains(need)).copied().unwrap_or_default();
        if needs.intersects(rivals) {
            return Err(KeywordError::argument(format!("`{name}` contradicts another option of `flow`")));
        }
        needs |= need;
    }
    let direction = FlowNeeds::TO_SERVER | FlowNeeds::TO_CLIENT;
    if needs.intersects(direction) && builder.flow.intersects(direction) && !builder.flow.intersects(needs) {
        return Err(KeywordError::context("the direction contradicts that of the rule's hook"));
    }
    builder.flow |= needs;
    Ok(())
}
