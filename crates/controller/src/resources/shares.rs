// SPDX-License-Identifier: Apache-2.0
//! Checks a tenant's share of the products that devices bound (pairs of members of both sides, combinations
//! of the packet filter's rules), counted and reported as the policy reader on a device does, before it does.

use super::document::Context;
use super::policies::{TenantNames, moved, parse};
use crate::problem::Fault;
use crate::render;
use bartizan_config::policy::shares::{TENANT_COMBINATIONS_MAX, TENANT_PAIRS_MAX};
use serde_json::{Map, Value, json};

/// The function whose rules form combinations.
const FILTER: &str = "pfw";
/// Keys of a policy that determine its products.
const COUNTED: [&str; 4] = ["from", "to", "link", FILTER];

/// Fault if the tenant's policies, with the one that is written, exceed a tenant's share.
///
/// Most tenants are far below the bounds, which an estimate
/// shows without counting the members of each group.
pub(super) fn too_many(context: &Context<'_>, names: TenantNames<'_>) -> Vec<Fault> {
    let prefix = format!("{}/", context.tenant);
    let own = context.model.list(render::POLICIES, &prefix, None);
    let others = own.filter_map(|document| Some((document.id.strip_prefix(&prefix)?, &document.body)));
    let others = others.filter(|(name, _)| *name != context.name);
    // The policy of the request comes last, so that it is the one at fault.
    let all: Vec<(&str, &Value)> = others.chain([(context.name, context.body)]).collect();
    if is_plain(names.groups, &all) {
        return Vec::new();
    }
    let counted: Vec<(String, Value)> =
        all.iter().map(|(name, body)| ((*name).to_owned(), reduce_to_counted(body))).collect();
    let counted: Vec<(String, &Value)> = counted.iter().map(|(name, body)| (name.clone(), body)).collect();
    let written = format!("/policies/{}", counted.len().saturating_sub(1));
    let wrong = parse(context, names, &counted).err().unwrap_or_default();
    wrong.iter().map(|problem| moved(problem, &written, "/policy")).collect()
}

/// A policy reduced to the keys that are counted.
fn reduce_to_counted(body: &Value) -> Value {
    let said = |key: &str| Some((key.to_owned(), body.get("policy")?.get(key)?.clone()));
    let mut policy: Map<String, Value> = COUNTED.into_iter().filter_map(said).collect();
    let chain = if policy.contains_key(FILTER) { json!([FILTER]) } else { json!([]) };
    policy.insert("chain".to_owned(), chain);
    json!({ "policy": policy })
}

/// Whether an estimate shows that the bounds hold: a name on a side has at most the members of all groups.
fn is_plain(groups: &Map<String, Value>, policies: &[(&str, &Value)]) -> bool {
    let of_groups = groups.values().fold(0usize, |sum, members| sum.saturating_add(items(members)));
    let side = |said: Option<&Value>| said.map_or(1, items).saturating_add(of_groups);
    let (mut pairs, mut combinations) = (0usize, 0usize);
    for policy in policies.iter().filter_map(|(_, body)| body.get("policy")) {
        let own = (side(policy.get("from")), side(policy.get("to")));
        let links = policy.get("link").map_or(1, items);
        pairs = pairs.saturating_add(own.0.saturating_mul(own.1).saturating_mul(links));
        let rules = policy.get(FILTER).and_then(|filter| filter.get("rules")?.as_array());
        for rule in rules.into_iter().flatten().filter_map(Value::as_object) {
            let at_most = rule.iter().filter(|(key, _)| !matches!(key.as_str(), "from" | "to"));
            let side = |key: &str, own: usize| rule.get(key).map_or(own, |said| side(Some(said)));
            let sides = side("from", own.0).saturating_mul(side("to", own.1));
            let of_rule = at_most.map(|(_, said)| items(said)).fold(sides, usize::saturating_mul);
            combinations = combinations.saturating_add(of_rule);
        }
    }
    pairs <= TENANT_PAIRS_MAX && combinations <= TENANT_COMBINATIONS_MAX
}

/// Items of a list; a single value counts as one.
fn items(said: &Value) -> usize {
    said.as_array().map_or(1, Vec::len)
}
