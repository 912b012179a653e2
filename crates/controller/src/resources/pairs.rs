// SPDX-License-Identifier: Apache-2.0
//! Pairs of members of the two sides of a tenant's policies, counted as a device counts them, before it does: with the words of the policy reader.

use super::document::Context;
use super::policies::{moved, parse};
use crate::problem::Fault;
use crate::render;
use bartizan_config::policy::shares::TENANT_PAIRS_MAX;
use serde_json::{Map, Value, json};

/// What of a policy says how many pairs it has.
const COUNTED: [&str; 3] = ["from", "to", "link"];

/// What is wrong if the tenant's policies have more pairs together than a tenant may, with the one that is written.
///
/// `names`: the tenant's groups and the labels that they carry. Most tenants have so few that it is plain without counting each group's members.
pub(super) fn too_many(
    context: &Context<'_>,
    names: (&Map<String, Value>, &Map<String, Value>),
) -> Vec<Fault> {
    let prefix = format!("{}/", context.tenant);
    let own = context.model.list(render::POLICIES, &prefix, None);
    let others = own.filter_map(|document| Some((document.id.strip_prefix(&prefix)?, &document.body)));
    let others = others.filter(|(name, _)| *name != context.name);
    // Whoever comes last is said to be too much.
    let all: Vec<(&str, &Value)> = others.chain([(context.name, context.body)]).collect();
    if is_plain(names.0, &all) {
        return Vec::new();
    }
    let counted: Vec<(String, Value)> =
        all.iter().map(|(name, body)| ((*name).to_owned(), what_counts(body))).collect();
    let counted: Vec<(String, &Value)> = counted.iter().map(|(name, body)| (name.clone(), body)).collect();
    let written = format!("/policies/{}", counted.len().saturating_sub(1));
    let wrong = parse(context, names, &counted).err().unwrap_or_default();
    wrong.iter().map(|problem| moved(problem, &written, "/policy")).collect()
}

/// A policy with what is counted of it and nothing else.
fn what_counts(body: &Value) -> Value {
    let said = |key: &str| Some((key.to_owned(), body.get("policy")?.get(key)?.clone()));
    let mut policy: Map<String, Value> = COUNTED.into_iter().filter_map(said).collect();
    policy.insert("chain".to_owned(), json!([]));
    json!({ "policy": policy })
}

/// Whether it is plain that there are not too many: each name of a side has at most the members of all groups.
fn is_plain(groups: &Map<String, Value>, policies: &[(&str, &Value)]) -> bool {
    let items = |said: Option<&Value>| said.and_then(Value::as_array).map_or(1, Vec::len);
    let of_groups = groups.values().fold(0usize, |sum, members| sum.saturating_add(items(Some(members))));
    let side = |said: Option<&Value>| items(said).saturating_add(of_groups);
    let pairs = policies.iter().filter_map(|(_, body)| body.get("policy")).map(|policy| {
        let sides = side(policy.get("from")).saturating_mul(side(policy.get("to")));
        sides.saturating_mul(items(policy.get("link")))
    });
    pairs.fold(0usize, usize::saturating_add) <= TENANT_PAIRS_MAX
}
