// SPDX-License-Identifier: Apache-2.0
//! Tenants: whose traffic is whose. No packet may fit two tenants of the same order.

use super::document::{Context, Kind};
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
use bartizan_config::policy::{self, List, PolicyError, Prefix, Select, Size, Target, Vars, read};
use core::num::NonZeroU64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// How much a tenant may have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Quotas {
    /// Policies.
    pub policies: u32,
    /// Groups.
    pub groups: u32,
    /// Flows at a time on each device; without a bound of its own unless given, as the following.
    pub flows: Option<NonZeroU64>,
    /// Rules of its policies; a device refuses a generation with more.
    pub rules: Option<u64>,
    /// Alerts of one second on each device; those beyond are counted.
    pub alerts_per_second: Option<u32>,
    /// Bytes that streams, application layers and functions of a device keep of its flows.
    pub state_bytes: Option<Size>,
}

impl Default for Quotas {
    fn default() -> Self {
        let (flows, rules, alerts_per_second, state_bytes) = (None, None, None, None);
        Quotas { policies: 1000, groups: 1000, flows, rules, alerts_per_second, state_bytes }
    }
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TenantSpec {
    /// What it is, for people.
    #[serde(default)]
    pub description: String,
    /// What its traffic has in common; where several keys are given, all have to hold.
    pub select: Select,
    /// Tenants of lower order are tried first; 100 unless given.
    #[serde(default = "order")]
    #[schemars(range(min = 0, max = 65535))]
    pub order: u16,
    /// Variables of detection rules that the tenant has for itself.
    #[serde(default)]
    pub vars: Option<Vars>,
    /// How much it may have.
    #[serde(default)]
    pub quotas: Option<Quotas>,
    /// Resolvers, by address or network, whose answers say which addresses DNS names of its groups have;
    /// beside those of the setting `dns`. They count for its own traffic only.
    #[serde(default)]
    pub resolvers: Option<List<Prefix>>,
    /// Ports of its devices' host files that policies written with its own tokens may redirect to (`egress`);
    /// none unless given.
    #[serde(default)]
    pub ports: Option<List<String>>,
}

fn order() -> u16 {
    render::ORDER as u16
}

/// The kind.
pub struct Tenants;

impl Kind for Tenants {
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
        Err(Refusal::Conflict(format!("the tenant has {} yet; remove them first", held.join(", "))))
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

fn fault(problem: &policy::Problem) -> Fault {
    let fault = Fault::of("", problem);
    let pointer = fault.pointer.strip_prefix("/tenants/0").unwrap_or(&fault.pointer).to_owned();
    Fault { pointer, ..fault }
}

/// Another tenant of the same order that some packet fits as well.
fn conflict(context: &Context<'_>, spec: &TenantSpec) -> Option<Fault> {
    let others = context.model.all(render::TENANTS).filter(|document| document.id != context.name);
    for other in others {
        // Of all others, for each tenant that is written: only what is needed of them is read.
        if render::order(&other.body) != u64::from(spec.order) {
            continue;
        }
        let select = other.body.get("select").map(read::from_json);
        let Some(Ok(select)) = select.map(|select| read::read::<Select>(&select)) else { continue };
        if meet(&select, &spec.select) {
            let message = format!(
                "a packet can fit this tenant and `{}`; choose what they do not share, or give one of them another `order`: \
                 the lower is tried first",
                other.id
            );
            return Some(Fault::new("/select", message));
        }
    }
    None
}

/// What of this tenant's selector never matches, since a tenant of a lower order has its traffic, or of
/// another one's, since this one has.
fn hidden(context: &Context<'_>, spec: &TenantSpec) -> Option<Fault> {
    let others = context.model.all(render::TENANTS).filter(|document| document.id != context.name);
    let mut all: Vec<(u64, &str, Select)> = others
        .filter_map(|other| {
            let order = render::order(&other.body);
            // Of the same order they share nothing.
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

/// Can a packet fit both? Of a key that only one of them has, nothing is known. A packet between the prefixes
/// of two tenants is not meant: it fits both whatever they say, and the first by order and name gets it.
fn meet(a: &Select, b: &Select) -> bool {
    fn common<T>(a: Option<&List<T>>, b: Option<&List<T>>, same: impl Fn(&T, &T) -> bool) -> bool {
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
