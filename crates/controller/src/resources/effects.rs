// SPDX-License-Identifier: Apache-2.0
//! Notes on effects that a change's differences do not show: which devices lose a document, and what applies
//! to the traffic instead.

use super::document::Context;
use crate::device::{self, ALL, DeviceSpec, DeviceStatus, Follow};
use crate::interfaces::listed;
use crate::model::Model;
use crate::render::{DEFAULT, POLICIES, SETTINGS};
use serde::Deserialize;
use serde_json::Value;

/// Notes on a removed policy: the devices that ran it, and what then applies to its traffic.
pub(super) fn of_policy_gone(context: &Context<'_>) -> Vec<String> {
    let (model, tenant) = (context.model, context.tenant);
    let devices = AffectedDevices::of(model, |spec| spec.serves(tenant));
    let left = model.list(POLICIES, &format!("{tenant}/"), None).count().saturating_sub(1);
    let default = default_of(model);
    let then = match left {
        0 => {
            format!("no policy of tenant `{tenant}` is left: all of its traffic gets the default ({default})")
        }
        1 => format!(
            "its traffic goes to the tenant's other policy, and traffic that this one does not match gets the default ({default})"
        ),
        _ => format!(
            "its traffic goes to the tenant's {left} other policies, and traffic that none of them matches gets the default ({default})"
        ),
    };
    devices.notes(&format!("policy `{tenant}/{}` is removed", context.name), &then, "the policy")
}

/// Notes on a removed tenant.
pub(super) fn of_tenant_gone(context: &Context<'_>) -> Vec<String> {
    let tenant = context.name;
    let devices = AffectedDevices::of(context.model, |spec| spec.serves(tenant));
    let default = default_of(context.model);
    let then = format!(
        "its traffic belongs to another tenant whose selector matches, or gets the default ({default})"
    );
    devices.notes(&format!("tenant `{tenant}` is removed"), &then, "the tenant")
}

/// Notes on a removed setting `default`.
pub(super) fn of_default_gone(context: &Context<'_>) -> Vec<String> {
    let devices = AffectedDevices::of(context.model, |_| true);
    devices.notes("the default is removed", "traffic that no policy names is dropped", "the default")
}

/// Notes on a removed device.
pub(super) fn of_device_gone(context: &Context<'_>) -> Vec<String> {
    let name = context.name;
    let runs = DeviceStatus::of(context.model, name).running;
    let goes_on = match runs {
        0 => "its own host file applies".to_owned(),
        runs => format!("it continues with generation {runs}, also after a restart"),
    };
    vec![format!("device `{name}` is removed: its session ends, nothing new reaches it, and {goes_on}")]
}

/// Notes on a changed device: tenants that it no longer serves.
pub(super) fn of_device(context: &Context<'_>) -> Vec<String> {
    let Some(before) = context.model.get(device::KIND, context.name) else { return Vec::new() };
    let read = |body: &Value| DeviceSpec::deserialize(body).unwrap_or_default();
    let (before, after) = (read(&before.body), read(context.body));
    let gone: Vec<&str> =
        before.tenants.iter().map(String::as_str).filter(|tenant| !after.serves(tenant)).collect();
    if gone.is_empty() {
        return Vec::new();
    }
    let whose = match gone.contains(&ALL) {
        true => "tenants that are no longer named".to_owned(),
        false => listed("tenant", &gone),
    };
    let when = match after.follow {
        Follow::Auto => "",
        Follow::Manual => ", once a roll-out reaches it (`follow: manual`)",
    };
    let (name, default) = (context.name, default_of(context.model));
    vec![format!(
        "device `{name}` no longer serves {whose}{when}: their traffic belongs to another tenant whose selector matches, or gets the default there ({default})"
    )]
}

/// Devices that a change concerns, by how they get it.
struct AffectedDevices<'m> {
    auto: Vec<&'m str>,
    manual: Vec<&'m str>,
}

impl<'m> AffectedDevices<'m> {
    fn of(model: &'m Model, concerned: impl Fn(&DeviceSpec) -> bool) -> Self {
        let mut devices = AffectedDevices { auto: Vec::new(), manual: Vec::new() };
        for document in model.all(device::KIND) {
            let spec = DeviceSpec::deserialize(&document.body).unwrap_or_default();
            if concerned(&spec) {
                let those = match spec.follow {
                    Follow::Auto => &mut devices.auto,
                    Follow::Manual => &mut devices.manual,
                };
                those.push(&document.id);
            }
        }
        devices
    }

    /// Notes on what happens on the devices, and when; `kept`: what devices that follow roll-outs keep
    /// running.
    fn notes(&self, what: &str, then: &str, kept: &str) -> Vec<String> {
        let mut notes = Vec::new();
        match self.auto.is_empty() {
            true if self.manual.is_empty() => notes.push(format!("{what}; no device runs it")),
            true => {}
            false => notes.push(format!("{what} on {}: {then}", listed("device", &self.auto))),
        }
        if !self.manual.is_empty() {
            let (verb, object) = if self.manual.len() == 1 { ("goes", "it") } else { ("go", "them") };
            notes.push(format!(
                "{what}; {} {verb} on with {kept} until a roll-out reaches {object} (`follow: manual`); then {then}",
                listed("device", &self.manual)
            ));
        }
        notes
    }
}

/// Describes the default for traffic that no policy matches.
fn default_of(model: &Model) -> String {
    let Some(default) = model.get(SETTINGS, DEFAULT) else {
        return "dropped: there is no setting `default`".to_owned();
    };
    let chain = default.body.get("chain").and_then(Value::as_array);
    match default.body.get("action").and_then(Value::as_str) {
        Some("allow") if chain.is_some_and(|chain| !chain.is_empty()) => {
            "let through unless the functions of the setting `default` refuse it".to_owned()
        }
        Some("allow") => "let through".to_owned(),
        _ => "dropped".to_owned(),
    }
}
