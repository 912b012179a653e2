// SPDX-License-Identifier: Apache-2.0
//! Tenants: selectors of traffic, quotas and grants. No packet may match two tenants of the same order.

use super::document::{Context, DocumentKind};
use super::{effects, inventory};
use crate::access::Need;
use crate::controller::TOKENS;
use crate::device::Touched;
use crate::held::HeldStatus;
use crate::interfaces;
use crate::model::Model;
use crate::parts;
use crate::problem::{Fault, Refusal};
use crate::render;
use crate::rest::route::read_lenient;
use bartizan_config::policy::hidden as hidden_selectors;
use bartizan_config::policy::{self, OneOrMany, PolicyError, Prefix, Select, Size, Target, Vars, read};
use core::num::NonZeroU64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Quotas of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
#[schemars(rename = "Quotas")]
pub struct TenantQuotas {
    /// Most policies.
    pub policies: u32,
    /// Most groups.
    pub groups: u32,
    /// Most concurrent flows on each device; no bound for a single tenant unless given, as for the following.
    pub flows: Option<NonZeroU64>,
    /// Most rules of the tenant's policies; a device refuses a generation with more.
    pub rules: Option<u64>,
    /// Most alerts per second on each device; those beyond are only counted.
    pub alerts_per_second: Option<u32>,
    /// Most bytes of streams, application layers and functions for the tenant's flows on each device.
    pub state_bytes: Option<Size>,
}

impl Default for TenantQuotas {
    fn default() -> Self {
        let (flows, rules, alerts_per_second, state_bytes) = (None, None, None, None);
        TenantQuotas { policies: 1000, groups: 1000, flows, rules, alerts_per_second, state_bytes }
    }
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TenantSpec {
    /// The tenant's description, for people.
    #[serde(default)]
    pub description: String,
    /// The selector of the tenant's traffic; a packet must match all given keys.
    pub select: Select,
    /// Tenants of lower order are tried first; 100 unless given.
    #[serde(default = "order")]
    #[schemars(range(min = 0, max = 65535))]
    pub order: u16,
    /// The tenant's own variables of detection rules.
    #[serde(default)]
    pub vars: Option<Vars>,
    /// The tenant's quotas.
    #[serde(default)]
    pub quotas: Option<TenantQuotas>,
    /// Resolvers, by address or network, trusted for the DNS names of the tenant's groups, in addition to
    /// those of the setting `dns`. They count for the tenant's own traffic only.
    #[serde(default)]
    pub resolvers: Option<OneOrMany<Prefix>>,
    /// Ports of devices' host files that policies written with the tenant's tokens may redirect to
    /// (`egress`); none unless given.
    #[serde(default)]
    pub ports: Option<OneOrMany<String>>,
}

fn order() -> u16 {
    render::ORDER as u16
}

/// The resource of tenants.
pub struct Tenants;

impl DocumentKind for Tenants {
    const KIND: &'static str = render::TENANTS;
    const PATH: &'static str = "/v1/tenants";
    const ONE: &'static str = "tenant";
    const READ: Need = Need::ReadTenant;
    const WRITE: Need = Need::Admin;
    type Spec = TenantSpec;
    type Status = HeldStatus;

    fn read(body: &Value) -> Result<TenantSpec, Refusal> {
        read_lenient(body)
    }

    fn check(context: &Context<'_>, spec: &TenantSpec) -> Vec<Fault> {
        let file = json!({
            "tenants": [render::tenant(context.name, context.body)],
            "default": { "action": "drop" },
        });
        let mut faults = match policy::from_node("tenant", read::from_json(&file), &[]) {
            Ok(_) => Vec::new(),
            Err(PolicyError::Wrong { problems, .. }) => problems.iter().map(fault).collect(),
            Err(other) => vec![Fault::new("", other.to_string())],
        };
        if faults.is_empty() {
            faults.extend(conflict(context, spec));
            faults.extend(hidden(context, spec));
            faults.extend(inventory::named::<Self>(context).faults);
            let ports = spec.ports.as_ref().map_or(&[][..], |ports| &ports.0);
            faults.extend(interfaces::permitted_nowhere(context.model, context.name, ports));
            let most = spec.quotas.as_ref().and_then(|quotas| quotas.rules);
            let rules = inventory::too_many_rules(context.model, context.name, most, None);
            faults.extend(rules.map(|said| {
                Fault::new("/quotas/rules", format!("{said}; raise it, or have the tenant use fewer first"))
            }));
        }
        let long = parts::unsendable(context.model, Self::KIND, context.name, context.body);
        faults.extend(long.map(|message| Fault::new("", message)));
        faults
    }

    fn free(context: &Context<'_>) -> Result<(), Refusal> {
        let prefix = format!("{}/", context.name);
        let has = |kind: &str| context.model.list(kind, &prefix, None).next().is_some();
        let tokens = context
            .model
            .all(TOKENS)
            .any(|token| token.body.get("tenant").and_then(Value::as_str) == Some(context.name));
        let held: Vec<&str> =
            [(has(render::POLICIES), "policies"), (has(render::GROUPS), "groups"), (tokens, "tokens")]
                .into_iter()
                .filter_map(|(has, what)| has.then_some(what))
                .collect();
        if held.is_empty() {
            return Ok(());
        }
        Err(Refusal::Conflict(format!("the tenant still has {}; remove them first", held.join(", "))))
    }

    fn notes(context: &Context<'_>, removed: bool) -> Vec<String> {
        match removed {
            true => effects::of_tenant_gone(context),
            false => inventory::named::<Self>(context).notes,
        }
    }

    fn touched(context: &Context<'_>) -> Touched {
        Touched::Tenants(BTreeSet::from([context.name.to_owned()]))
    }

    fn status(model: &Model, id: &str) -> Option<HeldStatus> {
        HeldStatus::of(model, id)
    }
}

fn fault(problem: &policy::ConfigProblem) -> Fault {
    let fault = Fault::of("", problem);
    let pointer = fault.pointer.strip_prefix("/tenants/0").unwrap_or(&fault.pointer).to_owned();
    Fault { pointer, ..fault }
}

/// Fault if another tenant of the same order matches some packet as well.
fn conflict(context: &Context<'_>, spec: &TenantSpec) -> Option<Fault> {
    let others = context.model.all(render::TENANTS).filter(|document| document.id != context.name);
    for other in others {
        // Runs over all tenants at each write, so it reads only the keys it needs.
        if render::order(&other.body) != u64::from(spec.order) {
            continue;
        }
        let select = other.body.get("select").map(read::from_json);
        let Some(Ok(select)) = select.map(|select| read::read::<Select>(&select)) else { continue };
        if overlap(&select, &spec.select) {
            let message = format!(
                "a packet can match this tenant and `{}`; choose selectors that do not overlap, or give one of them another `order`: the lower is tried first",
                other.id
            );
            return Some(Fault::new("/select", message));
        }
    }
    None
}

/// Fault if this tenant's selector can never match because a tenant of a lower order takes its traffic, or if
/// this tenant does that to another.
fn hidden(context: &Context<'_>, spec: &TenantSpec) -> Option<Fault> {
    let others = context.model.all(render::TENANTS).filter(|document| document.id != context.name);
    let mut all: Vec<(u64, &str, Select)> = others
        .filter_map(|other| {
            let order = render::order(&other.body);
            // Tenants of equal order share no packet.
            let select = other.body.get("select").filter(|_| order != u64::from(spec.order))?;
            Some((order, other.id.as_str(), read::read::<Select>(&read::from_json(select)).ok()?))
        })
        .collect();
    all.push((u64::from(spec.order), context.name, spec.select.clone()));
    all.sort_by_key(|(order, name, _)| (*order, *name));
    let own = all.iter().position(|(_, name, _)| *name == context.name)?;
    let tenants: Vec<(&str, &Select)> = all.iter().map(|(_, name, select)| (*name, select)).collect();
    let prefixes = |targets: &[Target]| -> Vec<Prefix> {
        let prefix = |target: &Target| if let Target::Prefix(prefix) = target { Some(*prefix) } else { None };
        targets.iter().filter_map(prefix).collect()
    };
    let found = hidden_selectors(&tenants, prefixes);
    let fault = found.into_iter().find(|hidden| hidden.tenant == own || hidden.by == own)?;
    let pointer = if fault.tenant == own { format!("/select/{}", fault.path) } else { "/select".to_owned() };
    Some(Fault::new(pointer, fault.message))
}

/// Whether some packet matches both selectors. A key in only one of them does not separate them. A packet
/// between the prefixes of two tenants does not count: it always matches both, and order and name decide.
fn overlap(a: &Select, b: &Select) -> bool {
    fn common<T>(a: Option<&OneOrMany<T>>, b: Option<&OneOrMany<T>>, same: impl Fn(&T, &T) -> bool) -> bool {
        let (Some(a), Some(b)) = (a, b) else { return true };
        a.iter().any(|x| b.iter().any(|y| same(x, y)))
    }
    common(a.vni.as_ref(), b.vni.as_ref(), |x, y| x == y)
        && common(a.vlan.as_ref(), b.vlan.as_ref(), |x, y| x == y)
        && common(a.link.as_ref(), b.link.as_ref(), |x, y| x == y)
        && common(a.prefixes.as_ref(), b.prefixes.as_ref(), touch)
}

fn touch(a: &Target, b: &Target) -> bool {
    match (a, b) {
        (Target::Prefix(a), Target::Prefix(b)) => {
            let shorter = a.length.min(b.length);
            a.address.is_ipv4() == b.address.is_ipv4()
                && Prefix::new(a.address, shorter) == Prefix::new(b.address, shorter)
        }
        _ => true,
    }
}
