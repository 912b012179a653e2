// SPDX-License-Identifier: Apache-2.0
//! What of a change cannot run on the devices that it is for, as far as it is known here: links that they do not have, more rules than the
//! tenant may have. What is known only there they refuse themselves (`held`).

use crate::device::{self, DeviceSpec, DeviceStatus, SESSIONS};
use crate::model::Model;
use crate::problem::Fault;
use crate::render::POLICIES;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;

/// Links that a device which serves a tenant does not have, at a pointer. What devices have is known while their sessions stand.
pub(super) fn links<'l>(
    model: &Model,
    tenant: &str,
    names: impl IntoIterator<Item = &'l String>,
    pointer: &str,
) -> Vec<Fault> {
    let mut names = names.into_iter().enumerate().peekable();
    if names.peek().is_none() {
        return Vec::new();
    }
    let devices: Vec<(&str, BTreeSet<String>)> =
        model.all(device::KIND).filter_map(|document| links_of(model, &document.id, tenant)).collect();
    let lacks =
        |name: &str| devices.iter().find(|(_, links)| !links.contains(name)).map(|(device, _)| *device);
    names
        .filter_map(|(index, name)| {
            let message = format!(
                "the device `{}`, which serves this tenant, has no link `{name}`; name one that its host file has, or leave it out",
                lacks(name)?
            );
            Some(Fault::new(format!("{pointer}/{index}"), message))
        })
        .collect()
}

/// The links of a device that serves a tenant and is connected, once it has said them.
fn links_of<'m>(model: &'m Model, device: &'m str, tenant: &str) -> Option<(&'m str, BTreeSet<String>)> {
    let spec = DeviceSpec::deserialize(&model.get(device::KIND, device)?.body).ok()?;
    let connected = model.status(SESSIONS, device)?.get("connected")? == true;
    let links: BTreeSet<String> =
        DeviceStatus::of(model, device).workers.into_iter().map(|worker| worker.link).collect();
    (connected && spec.serves(tenant) && !links.is_empty()).then_some((device, links))
}

/// Whether the filters of a tenant have more rules than the tenant may have, with one policy as it is to be. Rules of libraries count as well, on
/// devices: how many of them can be used is known there.
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
        format!("the filters of the tenant have {rules} rules, and it may have {most} (`quotas/rules`)")
    })
}

/// The rules of a policy's filter.
fn filter_rules(body: &Value) -> u64 {
    let has_filter = match body.pointer("/policy/chain") {
        Some(Value::Array(chain)) => chain.iter().any(|function| function == "pfw"),
        Some(one) => one == "pfw",
        None => false,
    };
    match body.pointer("/policy/pfw/rules") {
        Some(Value::Array(rules)) if has_filter => rules.len() as u64,
        // One that was written without brackets.
        Some(Value::Object(_)) if has_filter => 1,
        _ => 0,
    }
}
