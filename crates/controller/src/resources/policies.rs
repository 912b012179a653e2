// SPDX-License-Identifier: Apache-2.0
//! Policies and groups of a tenant: their format is that of the policy file, checked by its reader.

use super::document::{Context, DocumentKind, NoStatus};
use super::tenants::{TenantQuotas, TenantSpec};
use super::{effects, inventory, order, shares};
use crate::access::Need;
use crate::device::Touched;
use crate::held::HeldStatus;
use crate::model::Model;
use crate::parts;
use crate::problem::{Fault, Refusal};
use crate::render;
use crate::rest::route::read_lenient;
use crate::sections::SectionFindings;
use crate::store::Document;
use bartizan_config::policy::sections::{IdsSection, PfwSection, SfwSection};
use bartizan_config::policy::{
    self, ConfigProblem, FunctionSection, GroupMember, Labels, OneOrMany, PolicyError, PolicyFile,
    SectionType, Target, read, section_of,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A policy of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PolicySpec {
    /// The purpose of the policy, for people.
    #[serde(default)]
    pub description: String,
    /// Policies of lower order are tried first, policies of equal order by name; 100 unless given.
    #[serde(default = "order")]
    #[schemars(range(min = 0, max = 4294967295u32))]
    pub order: u32,
    /// The policy as in a policy file, without `name` and `tenant`: `from`, `to`, `link`, `chain`, `staged`,
    /// ..., and the sections of the chain's functions. Groups are those of the tenant; `ids.level` names a
    /// rule library.
    pub policy: Map<String, Value>,
}

fn order() -> u32 {
    render::ORDER as u32
}

/// A group of addresses of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct GroupSpec {
    /// The purpose of the group, for people.
    #[serde(default)]
    pub description: String,
    /// Addresses, networks, DNS names (`dns: NAME`), and other groups of the tenant.
    pub members: OneOrMany<GroupMember>,
    /// Labels of the group: policies of the tenant can select all groups with a label (`from: {label: {role:
    /// web}}`).
    #[serde(default)]
    pub labels: Labels,
}

/// Most labels of a group.
pub const LABELS_MAX: usize = 32;
/// Most characters of a label's key, and of its value.
pub const LABEL_MAX: usize = 64;

/// The resource of policies.
pub struct PoliciesResource;
/// The resource of groups.
pub struct GroupsResource;

impl DocumentKind for PoliciesResource {
    const KIND: &'static str = render::POLICIES;
    const PATH: &'static str = "/v1/tenants/{tenant}/policies";
    const ONE: &'static str = "policy";
    const READ: Need = Need::ReadTenant;
    const WRITE: Need = Need::WriteTenant;
    type Spec = PolicySpec;
    type Status = HeldStatus;

    fn check(context: &Context<'_>, spec: &PolicySpec) -> Vec<Fault> {
        let mut faults: Vec<Fault> = ["name", "tenant"]
            .into_iter()
            .filter(|key| spec.policy.contains_key(*key))
            .map(|key| Fault::new(format!("/policy/{key}"), format!("the path gives it; remove `{key}`")))
            .collect();
        let one = [(context.name.to_owned(), context.body)];
        let (groups, labels) = (raw_groups(context, None), raw_labels(context, None));
        let names = TenantNames { groups: &groups, labels: &labels };
        match parse(context, names, &one) {
            Ok(file) => {
                faults.extend(sections(context, &file, "/policy").into_iter().map(|(_, fault)| fault));
                faults.extend(file.policies.iter().flat_map(|p| chain(context, &p.chain, "/policy/chain")));
                let foreign = foreign_ports(context, &file);
                // A tenant must not find out a device's ports by trying names.
                let asked = |fault: &Fault| !foreign.iter().any(|other| other.pointer == fault.pointer);
                faults.extend(inventory::named::<Self>(context).faults.into_iter().filter(asked));
                faults.extend(foreign);
                context.warnings.borrow_mut().extend(order::hidden(context, &file));
                faults.extend(too_many_rules(context));
                faults.extend(shares::too_many(context, names));
                faults.extend(too_long(context, Self::KIND));
            }
            Err(problems) => faults.extend(problems.iter().map(|p| moved(p, "/policies/0", "/policy"))),
        }
        faults
    }

    fn room(context: &Context<'_>) -> Result<(), Refusal> {
        room(context, Self::KIND, |quotas| quotas.policies)
    }

    fn notes(context: &Context<'_>, removed: bool) -> Vec<String> {
        match removed {
            true => effects::of_policy_gone(context),
            false => {
                let mut notes = inventory::named::<Self>(context).notes;
                notes.append(&mut context.warnings.borrow_mut());
                notes
            }
        }
    }

    fn touched(context: &Context<'_>) -> Touched {
        Touched::Tenants(BTreeSet::from([context.tenant.to_owned()]))
    }

    fn status(model: &Model, id: &str) -> Option<HeldStatus> {
        HeldStatus::of(model, id.split_once('/').map_or(id, |(tenant, _)| tenant))
    }
}

impl DocumentKind for GroupsResource {
    const KIND: &'static str = render::GROUPS;
    const PATH: &'static str = "/v1/tenants/{tenant}/groups";
    const ONE: &'static str = "group";
    const READ: Need = Need::ReadTenant;
    const WRITE: Need = Need::WriteTenant;
    type Spec = GroupSpec;
    type Status = NoStatus;

    fn read(body: &Value) -> Result<GroupSpec, Refusal> {
        read_lenient(body)
    }

    fn check(context: &Context<'_>, spec: &GroupSpec) -> Vec<Fault> {
        if !context.name.starts_with(|c: char| c.is_ascii_alphabetic()) || context.name == "any" {
            let message = "the name of a group begins with a letter and is not `any`; give it another";
            return vec![Fault::new("", message)];
        }
        let own = format!("/groups/{}", context.name);
        let wrong = with_groups(context, Some(context.body));
        let wrong = wrong.iter().map(|p| moved(p, &own, "/members"));
        wrong.chain(bad_labels(&spec.labels)).chain(too_long(context, Self::KIND)).collect()
    }

    fn room(context: &Context<'_>) -> Result<(), Refusal> {
        room(context, Self::KIND, |quotas| quotas.groups)
    }

    fn free(context: &Context<'_>) -> Result<(), Refusal> {
        match with_groups(context, None).first() {
            Some(problem) => Err(Refusal::Conflict(format!(
                "it is still in use: {} ({}); change that first",
                problem.message, problem.path
            ))),
            None => Ok(()),
        }
    }

    fn touched(context: &Context<'_>) -> Touched {
        Touched::Tenants(BTreeSet::from([context.tenant.to_owned()]))
    }
}

/// Faults of a group's labels.
fn bad_labels(labels: &Labels) -> Vec<Fault> {
    let mut faults = Vec::new();
    if labels.len() > LABELS_MAX {
        faults.push(Fault::new("/labels", format!("{} labels; {LABELS_MAX} are allowed", labels.len())));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let good = |text: &str| (1..=LABEL_MAX).contains(&text.len()) && text.chars().all(plain);
    for (key, _) in labels.iter().filter(|(key, value)| !good(key) || !good(value)) {
        let pointer = format!("/labels/{}", key.replace('~', "~0").replace('/', "~1"));
        let message =
            format!("key and value of a label are 1 to {LABEL_MAX} letters, digits, `-`, `_`, `.` and `/`");
        faults.push(Fault::new(pointer, message));
    }
    faults
}

/// Faults of ports that a tenant's token redirects to without an administrator's grant. Ports already in the
/// policy may stay: an administrator wrote them, or withdrew a grant that is in use.
fn foreign_ports(context: &Context<'_>, file: &PolicyFile) -> Vec<Fault> {
    if context.who.tenant.is_none() {
        return Vec::new();
    }
    let tenant = context.model.read::<TenantSpec>(render::TENANTS, context.tenant);
    let mut given: BTreeSet<String> =
        tenant.and_then(|spec| spec.ports).into_iter().flat_map(|ports| ports.0).collect();
    let id = format!("{}/{}", context.tenant, context.name);
    let stands = context.model.get(render::POLICIES, &id).and_then(|d| d.body.pointer("/policy/pfw/rules"));
    let stands = stands.and_then(Value::as_array).into_iter().flatten();
    given.extend(stands.filter_map(|rule| rule.get("egress")?.as_str().map(str::to_owned)));
    let filters = file.policies.iter().filter_map(|policy| section_of::<PfwSection>(&policy.sections)?.ok());
    let foreign = |filter: Arc<PfwSection>| {
        let ports = filter.rules.iter().map(|rule| rule.egress.clone()).enumerate();
        let ports = ports.filter_map(|(at, port)| Some((at, port.filter(|port| !given.contains(port))?)));
        ports.collect::<Vec<_>>()
    };
    let fault = |(at, port): (usize, String)| {
        let message = format!(
            "port `{port}` is not allowed for redirects of this tenant; ask an administrator to add it to `ports` of the tenant"
        );
        Fault::new(format!("/policy/pfw/rules/{at}/egress"), message)
    };
    filters.flat_map(foreign).map(fault).collect()
}

/// Fault if the tenant has more rules with this policy than its quota: devices would refuse it.
fn too_many_rules(context: &Context<'_>) -> Option<Fault> {
    let tenant = context.model.read::<TenantSpec>(render::TENANTS, context.tenant)?;
    let changed = Some((context.name, context.body));
    let said = inventory::too_many_rules(context.model, context.tenant, tenant.quotas?.rules, changed)?;
    Some(Fault::new(
        "/policy/pfw/rules",
        format!("{said}; use fewer, or ask an administrator for a higher quota"),
    ))
}

/// Fault if the part of this document is too large for a message.
fn too_long(context: &Context<'_>, kind: &str) -> Option<Fault> {
    let id = format!("{}/{}", context.tenant, context.name);
    let document = Document { kind: kind.to_owned(), id, generation: 0, body: context.body.clone() };
    let mut groups = render::groups(context.model, context.tenant);
    let part = if kind == render::POLICIES {
        parts::policy(u16::MAX, context.tenant, &document, &groups)
    } else {
        let own = render::group_name(context.tenant, context.name);
        let mut members = context.body.get("members").cloned().unwrap_or_default();
        groups.insert(own.clone(), Value::Null);
        render::qualify(&mut members, context.tenant, &groups, true);
        groups.insert(own, members);
        parts::group(u16::MAX, context.tenant, &document, &groups)
    };
    Some(Fault::new("", parts::too_long(&part)?))
}

fn room(context: &Context<'_>, kind: &str, quota: impl Fn(&TenantQuotas) -> u32) -> Result<(), Refusal> {
    let tenant = context.model.read::<TenantSpec>(render::TENANTS, context.tenant);
    let quotas = tenant.and_then(|spec| spec.quotas);
    let most = quota(&quotas.unwrap_or_default()) as usize;
    if context.model.list(kind, &format!("{}/", context.tenant), None).take(most).count() < most {
        return Ok(());
    }
    Err(Refusal::Quota(format!(
        "the tenant has used up its quota of {most} {kind}; remove some, or ask an administrator for a higher quota"
    )))
}

/// The tenant's groups as written; `but`: the new value of the group in the path, `Some(None)` if it is
/// removed.
fn raw_groups(context: &Context<'_>, but: Option<Option<&Value>>) -> Map<String, Value> {
    let prefix = format!("{}/", context.tenant);
    let members = |body: &Value| body.get("members").cloned().unwrap_or(Value::Null);
    let all = context.model.list(render::GROUPS, &prefix, None);
    let mut groups: Map<String, Value> =
        all.filter_map(|d| Some((d.id.strip_prefix(&prefix)?.to_owned(), members(&d.body)))).collect();
    match but {
        Some(Some(body)) => {
            groups.insert(context.name.to_owned(), members(body));
        }
        Some(None) => {
            groups.remove(context.name);
        }
        None => {}
    }
    groups
}

/// The labels of the tenant's groups; `but`: as for [`raw_groups`].
fn raw_labels(context: &Context<'_>, but: Option<Option<&Value>>) -> Map<String, Value> {
    let prefix = format!("{}/", context.tenant);
    let of = |body: &Value| Value::Object(render::labels(body));
    let all = context.model.list(render::GROUPS, &prefix, None);
    let mut labels: Map<String, Value> =
        all.filter_map(|d| Some((d.id.strip_prefix(&prefix)?.to_owned(), of(&d.body)))).collect();
    match but {
        Some(Some(body)) => drop(labels.insert(context.name.to_owned(), of(body))),
        Some(None) => drop(labels.remove(context.name)),
        None => {}
    }
    labels
}

/// Problems of the tenant's policies and groups if one group is changed or removed.
fn with_groups(context: &Context<'_>, group: Option<&Value>) -> Vec<ConfigProblem> {
    let prefix = format!("{}/", context.tenant);
    let own = context.model.list(render::POLICIES, &prefix, None);
    let policies: Vec<(String, &Value)> = own
        .filter_map(|document| Some((document.id.strip_prefix(&prefix)?.to_owned(), &document.body)))
        .collect();
    let (groups, labels) = (raw_groups(context, Some(group)), raw_labels(context, Some(group)));
    let names = TenantNames { groups: &groups, labels: &labels };
    let wrong = match parse(context, names, &policies) {
        Ok(file) => {
            let all = sections(context, &file, "/policy").into_iter().map(|(policy, fault)| ConfigProblem {
                position: Default::default(),
                path: format!("policies/{policy}{}", fault.pointer),
                message: format!("policy `{policy}`: {}", fault.message),
            });
            return all.collect();
        }
        Err(problems) => problems,
    };
    // Indexes of the list made here mean nothing to the caller: messages name the policy.
    let owner = |path: &str| {
        let index: usize = path.strip_prefix("policies/")?.split('/').next()?.parse().ok()?;
        policies.get(index).map(|(name, _)| name)
    };
    let named = |problem: ConfigProblem| match owner(&problem.path) {
        Some(name) => ConfigProblem { message: format!("policy `{name}`: {}", problem.message), ..problem },
        None => problem,
    };
    wrong.into_iter().map(named).collect()
}

/// The names that a tenant's policies may use.
#[derive(Clone, Copy)]
pub(super) struct TenantNames<'n> {
    /// Groups with their members.
    pub groups: &'n Map<String, Value>,
    /// The groups' labels.
    pub labels: &'n Map<String, Value>,
}

/// Reads policies of a tenant as a device does.
pub(super) fn parse(
    context: &Context<'_>,
    names: TenantNames<'_>,
    policies: &[(String, &Value)],
) -> Result<PolicyFile, Vec<ConfigProblem>> {
    let named = policies.iter().map(|(name, body)| render::as_written(context.tenant, name, body));
    let file = json!({
        "groups": names.groups,
        "labels": names.labels,
        "rule-groups": render::rule_groups(context.model),
        "tenants": [{ "name": context.tenant, "select": { "vlan": 1 } }],
        "policies": named.collect::<Vec<_>>(),
        "default": { "action": "drop" },
    });
    let functions: Vec<&str> = context.functions.iter().map(String::as_str).collect();
    match policy::from_node("policy", read::from_json(&file), &functions) {
        // All groups of the file are the tenant's.
        Ok(file) => match file.beyond_a_tenant(context.tenant) {
            wrong if wrong.is_empty() => Ok(file),
            wrong => Err(wrong),
        },
        Err(PolicyError::Wrong { problems, .. }) => Err(problems),
        Err(other) => {
            let message = other.to_string();
            Err(vec![ConfigProblem { position: Default::default(), path: String::new(), message }])
        }
    }
}

/// A fault from a problem, with its path moved from the file to the body of the request.
pub(super) fn moved(problem: &ConfigProblem, from: &str, to: &str) -> Fault {
    let fault = Fault::of("", problem);
    match fault.pointer.strip_prefix(from) {
        Some(rest) => Fault { pointer: format!("{to}{rest}"), ..fault },
        None => Fault { pointer: String::new(), ..fault },
    }
}

/// Faults of the sections of a file's policies, with the policy of each. `under`: the place of a policy in
/// the body.
pub(super) fn sections(context: &Context<'_>, file: &PolicyFile, under: &str) -> Vec<(String, Fault)> {
    let functions = context.sections.of(file);
    let mut all = Vec::new();
    for policy in &file.policies {
        for section in &policy.sections {
            let path = format!("{under}/{}", section.function);
            let mut faults = of_section(context, file, section, &path);
            // The function itself checks more. Rules of detection are checked with their library.
            if faults.is_empty() && section.function != "ids" {
                let SectionFindings { problems, warnings } = functions(policy, &section.function);
                faults.extend(problems.iter().map(|problem| Fault::of(&path, problem)));
                let said = warnings.iter().map(|warning| Fault::of(&path, warning));
                let said = said.map(|Fault { pointer, message, .. }| format!("{pointer}: {message}"));
                context.warnings.borrow_mut().extend(said);
            }
            all.extend(faults.into_iter().map(|fault| (policy.name.clone(), fault)));
        }
    }
    all
}

/// Faults of a section that the controller can find: it knows the sections of the built-in functions.
fn of_section(context: &Context<'_>, file: &PolicyFile, section: &FunctionSection, path: &str) -> Vec<Fault> {
    let content = &section.content;
    let found = match section.function.as_str() {
        PfwSection::FUNCTION => content.value::<PfwSection>().map(|filter| filter_names(file, &filter, path)),
        SfwSection::FUNCTION => content.value::<SfwSection>().map(|_| Vec::new()),
        IdsSection::FUNCTION => content.value::<IdsSection>().map(|ids| rules(context, &ids, path)),
        _ => Ok(Vec::new()),
    };
    found.unwrap_or_else(|problems| problems.iter().map(|problem| Fault::of(path, problem)).collect())
}

/// Faults of a chain of known functions: a device would refuse the whole generation for them, with the
/// changes of other tenants.
pub(super) fn chain(context: &Context<'_>, chain: &[String], path: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut numbers = Vec::new();
    for (index, name) in chain.iter().enumerate() {
        let Some(number) = context.functions.iter().position(|known| known == name) else { continue };
        if numbers.contains(&number) {
            let message = format!("the chain has `{name}` twice; remove one");
            faults.push(Fault::new(format!("{path}/{index}"), message));
        }
        numbers.push(number);
    }
    if faults.is_empty() && !numbers.is_sorted() {
        numbers.sort_unstable();
        let right: Vec<&str> =
            numbers.iter().filter_map(|at| context.functions.get(*at)).map(String::as_str).collect();
        let message = format!("these functions run in another order; write `chain: [{}]`", right.join(", "));
        faults.push(Fault::new(path, message));
    }
    faults
}

/// Faults of groups and tenants in a filter: groups must exist, and tenants are not allowed.
fn filter_names(file: &PolicyFile, filter: &PfwSection, path: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (index, rule) in filter.rules.iter().enumerate() {
        if rule.tenant.is_some() {
            let message = "a policy belongs to the tenant of its path; remove `tenant`";
            faults.push(Fault::new(format!("{path}/rules/{index}/tenant"), message));
        }
        for (key, targets) in [("from", &rule.from), ("to", &rule.to)] {
            for (item, target) in targets.iter().flat_map(|list| list.iter()).enumerate() {
                if let Target::Group(name) = target
                    && !file.groups.contains_key(name)
                {
                    let hint = policy::did_you_mean(name, file.groups.keys().map(String::as_str));
                    let pointer = format!("{path}/rules/{index}/{key}/{item}");
                    faults.push(Fault::new(pointer, format!("there is no group `{name}`; {hint}")));
                }
                if let Target::Label(asked) = target
                    && !file.labels.values().any(|carried| policy::carries(carried, asked))
                {
                    let pointer = format!("{path}/rules/{index}/{key}/{item}");
                    let message =
                        format!("no group has the label {target}; give it to a group, or correct it");
                    faults.push(Fault::new(pointer, message));
                }
            }
        }
    }
    faults
}

/// Faults of an `ids` section: tenants take rules from libraries, not from files of a device.
fn rules(context: &Context<'_>, ids: &IdsSection, path: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    if !ids.rules.is_empty() {
        let message =
            "a controller has rule files in libraries; name a library by `level`, and remove `rules`";
        faults.push(Fault::new(format!("{path}/rules"), message));
    }
    if let Some(level) = ids.level.as_deref().filter(|level| *level != "none") {
        let known = || context.model.all(render::LIBRARIES).map(|document| document.id.as_str());
        if !known().any(|name| name == level) {
            let names: Vec<&str> = known().chain(["none"]).collect();
            let hint = policy::did_you_mean(level, names);
            faults
                .push(Fault::new(format!("{path}/level"), format!("there is no library `{level}`; {hint}")));
        }
    }
    faults
}
