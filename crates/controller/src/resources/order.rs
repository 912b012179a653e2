// SPDX-License-Identifier: Apache-2.0
//! The place of a policy among those of its tenant, and policies that are never reached for it.

use super::document::Context;
use crate::render;
use bartizan_config::policy::shadow::{PolicyHeaders, hidden_policy};
use bartizan_config::policy::{OneOrMany, PolicyFile, Target, read};
use serde_json::Value;

/// The sides and links of a policy as it was written.
struct Written {
    order: (u64, String),
    from: OneOrMany<Target>,
    to: OneOrMany<Target>,
    link: Option<OneOrMany<String>>,
}

impl Written {
    /// None if it cannot be read.
    fn of(name: &str, body: &Value) -> Option<Self> {
        let said = |key: &str| body.get("policy")?.get(key).filter(|value| !value.is_null());
        let side = |key: &str| match said(key) {
            Some(value) => read::read::<OneOrMany<Target>>(&read::from_json(value)).ok(),
            None => Some(OneOrMany(vec![Target::Any])),
        };
        let link = match said("link") {
            Some(value) => Some(read::read::<OneOrMany<String>>(&read::from_json(value)).ok()?),
            None => None,
        };
        let order = (render::order(body), name.to_owned());
        Some(Written { order, from: side("from")?, to: side("to")?, link })
    }

    fn headers(&self) -> PolicyHeaders<'_> {
        PolicyHeaders { from: &self.from, to: &self.to, tenant: &[], link: self.link.as_deref() }
    }
}

/// Warnings of policies that are never reached once the policy of a context stands: itself, or later ones.
/// `file`: has the tenant's groups.
pub(super) fn hidden(context: &Context<'_>, file: &PolicyFile) -> Vec<String> {
    let prefix = format!("{}/", context.tenant);
    let own = context.model.list(render::POLICIES, &prefix, None);
    let others = own.filter_map(|document| Some((document.id.strip_prefix(&prefix)?, &document.body)));
    let others = others.filter(|(name, _)| *name != context.name);
    let all = others.chain([(context.name, context.body)]);
    let mut all: Vec<Written> = all.filter_map(|(name, body)| Written::of(name, body)).collect();
    all.sort_by(|a, b| a.order.cmp(&b.order));
    let Some(at) = all.iter().position(|policy| policy.order.1 == context.name) else { return Vec::new() };
    let headers: Vec<PolicyHeaders<'_>> = all.iter().map(Written::headers).collect();
    let name = |at: usize| all.get(at).map_or("", |policy| policy.order.1.as_str());
    let found = file.hidden_among(&headers, &(at..at + 1));
    found.into_iter().map(|hidden| hidden_policy(name(hidden.item), name(hidden.by))).collect()
}
