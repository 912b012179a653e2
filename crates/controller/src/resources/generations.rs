// SPDX-License-Identifier: Apache-2.0
//! Generations: the newest, the differences between two, and the roll-back to an older one.

use super::inventory;
use crate::access::Need;
use crate::controller::{ChangeOutcome, Difference, Draft, TOKENS};
use crate::device::{self, Touched};
use crate::model::Model;
use crate::problem::Refusal;
use crate::render;
use crate::rest::http::{Method, Reply};
use crate::rest::route::{Call, DRY_RUN, Parameter, ParameterKind, Route, WAIT, schema};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;

/// The kinds that a roll-back restores: all that devices run. Revoked tokens stay revoked; devices and
/// roll-outs stay as they are.
const RESTORED: &[&str] = &[
    render::TENANTS,
    render::POLICIES,
    render::GROUPS,
    render::LIBRARIES,
    render::SETTINGS,
    super::libraries::FILES,
    super::libraries::TEXTS,
];

/// The newest generation.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Newest {
    /// The generation's number.
    pub generation: u64,
}

/// The differences between two generations.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Differences {
    /// The older.
    pub from: u64,
    /// The newer.
    pub to: u64,
    /// Differing documents, by kind and name; at most `limit`.
    pub changes: Vec<Difference>,
    /// Whether there are more differences.
    pub more: bool,
}

const FROM: Parameter = Parameter {
    name: "from",
    about: "The older generation; the one before unless given.",
    kind: ParameterKind::Number(0, u64::MAX >> 1),
};

/// The routes of this resource.
pub(super) fn routes() -> Vec<Route> {
    let route = |method, path: &str, operation: &str, about: &str| Route {
        method,
        path: path.to_owned(),
        operation: operation.to_owned(),
        about: about.to_owned(),
        need: Need::Read,
        query: &[],
        body: None,
        tagged: false,
        statuses: &[200],
        answer: Some(schema::<Newest>()),
        handler: newest,
    };
    vec![
        route(Method::Get, "/v1/generations", "get-newest-generation", "The newest generation."),
        Route {
            query: &[FROM],
            answer: Some(schema::<Differences>()),
            handler: diff,
            ..route(
                Method::Get,
                "/v1/generations/{generation}/diff",
                "diff-generations",
                "The differences between two generations.",
            )
        },
        Route {
            need: Need::Admin,
            query: &[DRY_RUN, WAIT],
            answer: Some(schema::<ChangeOutcome>()),
            handler: restore,
            ..route(
                Method::Post,
                "/v1/generations/{generation}/restore",
                "restore-generation",
                "Rolls back: a new generation with the documents of an old one. Tokens, devices and roll-outs stay.",
            )
        },
    ]
}

fn newest(call: &Call<'_>) -> Result<Reply, Refusal> {
    Ok(Reply::json(200, &Newest { generation: call.controller.model().generation }))
}

fn generation(call: &Call<'_>) -> Result<u64, Refusal> {
    let text = call.name("generation");
    // The store holds no generation above this number.
    text.parse().ok().filter(|number| *number <= u64::MAX >> 1).ok_or_else(|| {
        Refusal::NotFound(format!("there is no generation `{}`; give its number", text.escape_debug()))
    })
}

/// A document that differs between two generations, in stored form.
struct Differing {
    kind: String,
    id: String,
    before: Option<Value>,
    after: Option<Value>,
}

/// All documents that differ.
fn differences(from: &Model, to: &Model, kinds: impl Fn(&str) -> bool) -> Vec<Differing> {
    let both = from.documents().chain(to.documents()).filter(|document| kinds(&document.kind));
    let names: BTreeSet<(&str, &str)> = both.map(|d| (d.kind.as_str(), d.id.as_str())).collect();
    let body = |model: &Model, kind: &str, id: &str| model.get(kind, id).map(|d| d.body.clone());
    names
        .into_iter()
        .map(|(kind, id)| Differing {
            kind: kind.to_owned(),
            id: id.to_owned(),
            before: body(from, kind, id),
            after: body(to, kind, id),
        })
        .filter(|difference| difference.before != difference.after)
        .collect()
}

fn diff(call: &Call<'_>) -> Result<Reply, Refusal> {
    let to = generation(call)?;
    let from = call.number("from").unwrap_or(to.saturating_sub(1));
    let (older, newer) = (call.controller.model_at(from)?, call.controller.model_at(to)?);
    let mut all = differences(&older, &newer, |kind| kind != TOKENS);
    let limit = crate::rest::route::PAGE_MAX;
    let more = all.len() > limit;
    all.truncate(limit);
    let told = |one: &Differing| Difference::new(&one.kind, &one.id, one.before.as_ref(), one.after.as_ref());
    let changes = all.iter().map(told).collect();
    Ok(Reply::json(200, &Differences { from, to, changes, more }))
}

fn restore(call: &Call<'_>) -> Result<Reply, Refusal> {
    let number = generation(call)?;
    let old = call.controller.model_at(number)?;
    let draft = |model: &Model| {
        let changes = differences(model, &old, |kind| RESTORED.contains(&kind));
        held(model, &old)?;
        let restored = changes
            .iter()
            .filter_map(|change| Some((change.kind.as_str(), change.id.as_str(), change.after.as_ref()?)));
        let notes = inventory::notes_of_restored(model, restored);
        let writes = changes.into_iter().map(|change| (change.kind, change.id, change.after)).collect();
        Ok(Draft { writes, touched: Touched::All, notes, ..Draft::default() })
    };
    let action = format!("restore {number}");
    let outcome = call.waiting(|| call.controller.change(&call.principal(), &action, call.dry(), draft))?;
    Ok(Reply::json(200, &outcome))
}

/// Refuses a roll-back that would remove a tenant which tokens or devices name.
fn held(model: &Model, old: &Model) -> Result<(), Refusal> {
    for tenant in model.all(render::TENANTS).filter(|t| old.get(render::TENANTS, &t.id).is_none()) {
        let named = |body: &serde_json::Value| {
            let one = body.get("tenant").and_then(serde_json::Value::as_str);
            let many = body.get("tenants").and_then(serde_json::Value::as_array);
            one == Some(&tenant.id) || many.is_some_and(|all| all.iter().any(|name| *name == tenant.id))
        };
        let holders = model.all(TOKENS).chain(model.all(device::KIND));
        if let Some(holder) = holders.into_iter().find(|document| named(&document.body)) {
            return Err(Refusal::Conflict(format!(
                "the tenant `{}` did not exist then, and `{}` of {} names it; remove that first",
                tenant.id, holder.id, holder.kind
            )));
        }
    }
    Ok(())
}
