// SPDX-License-Identifier: Apache-2.0
//! Checks a change against what is known of its devices: links and ports that they lack, and more rules than
//! the tenant's quota. A device itself refuses faults that only it can find (`held`).

use super::document::{Context, DocumentKind};
use super::tenants::TenantSpec;
use crate::interfaces::{self, InterfaceCheck, InterfaceKind};
use crate::model::Model;
use crate::problem::Fault;
use crate::render::{DEFAULT, POLICIES, SETTINGS, TENANTS};
use bartizan_config::policy::OneOrMany;
use serde_json::Value;
use std::collections::BTreeSet;

/// Checks the links and ports that a document names against the devices that it goes to. A tenant's token is
/// shown only those names of a device that the tenant may use.
pub(super) fn named<K: DocumentKind>(context: &Context<'_>) -> InterfaceCheck {
    let names = interfaces::named(K::KIND, context.body);
    let tenant = match K::KIND {
        TENANTS => Some(context.name),
        POLICIES => Some(context.tenant),
        _ => None,
    };
    let own = context.who.tenant.as_deref().map(|tenant| own(context.model, tenant));
    interfaces::check(context.model, tenant, &names, |named| match (&own, named.kind) {
        (None, _) => true,
        (Some((links, _)), InterfaceKind::Link) => links.contains(&named.name),
        (Some((_, ports)), InterfaceKind::Port) => ports.contains(&named.name),
    })
}

/// Notes on restored documents that name links or ports which devices lack. A roll-back is not refused for
/// them: it must not be blocked by one document.
pub(super) fn notes_of_restored<'d>(
    model: &Model,
    documents: impl Iterator<Item = (&'d str, &'d str, &'d Value)>,
) -> Vec<String> {
    let mut notes = BTreeSet::new();
    for (kind, id, body) in documents {
        let tenant = match kind {
            TENANTS => Some(id),
            POLICIES => id.split_once('/').map(|(tenant, _)| tenant),
            SETTINGS if id == DEFAULT => None,
            _ => continue,
        };
        let checked = interfaces::check(model, tenant, &interfaces::named(kind, body), |_| true);
        let of = |fault: Fault| format!("{kind} `{id}` {}: {}", fault.pointer, fault.message);
        notes.extend(checked.faults.into_iter().map(of).chain(checked.notes));
    }
    notes.into_iter().take(NOTES_MAX).collect()
}

/// Most notes on one change.
const NOTES_MAX: usize = 64;

/// The links of a tenant's selector, and the ports that administrators granted to the tenant.
fn own(model: &Model, tenant: &str) -> (Vec<String>, Vec<String>) {
    let spec = model.read::<TenantSpec>(TENANTS, tenant);
    let of = |spec: TenantSpec| {
        let names = |list: Option<OneOrMany<String>>| list.map(|names| names.0).unwrap_or_default();
        (names(spec.select.link), names(spec.ports))
    };
    spec.map(of).unwrap_or_default()
}

/// Fault if a tenant's filters have more rules than its quota, counted with one policy as it will be. Rules
/// of libraries count as well, but only devices know how many of them are usable.
pub(super) fn too_many_rules(
    model: &Model,
    tenant: &str,
    most: Option<u64>,
    changed: Option<(&str, &Value)>,
) -> Option<String> {
    let most = most?;
    let prefix = format!("{tenant}/");
    let others = model.list(POLICIES, &prefix, None);
    let others = others
        .filter(|document| changed.is_none_or(|(name, _)| document.id.strip_prefix(&prefix) != Some(name)));
    let all = others.map(|document| &document.body).chain(changed.map(|(_, body)| body));
    let rules: u64 = all.map(filter_rules).sum();
    (rules > most).then(|| {
        format!("the filters of the tenant have {rules} rules, more than the tenant's quota of {most} (`quotas/rules`)")
    })
}

/// Number of rules in a policy's filter.
fn filter_rules(body: &Value) -> u64 {
    let has_filter = match body.pointer("/policy/chain") {
        Some(Value::Array(chain)) => chain.iter().any(|function| function == "pfw"),
        Some(one) => one == "pfw",
        None => false,
    };
    match body.pointer("/policy/pfw/rules") {
        Some(Value::Array(rules)) if has_filter => rules.len() as u64,
        // A single rule written without brackets.
        Some(Value::Object(_)) if has_filter => 1,
        _ => 0,
    }
}
