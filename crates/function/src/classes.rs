// SPDX-License-Identifier: Apache-2.0
//! A function's sections of a generation's policies, with the fids to which each applies.
//!
//! The agent passes them as JSON: the part that classes share ([`RuleSource::common`]), `{"tenants": {name:
//! id}, "ports": {name: number}, "groups": {name: [member]}, "labels": {group: {key: value}}}`, and each
//! class ([`RuleSource::classes`]), `{"policy", "fids", "from", "to", "one-sided"}` with the policy's
//! section ([`RulePart::section`]). The result of reading a part is kept with it. A member is a prefix, or
//! `name/NUMBER`: the addresses that currently have the name of this number
//! ([`NameTable`](bartizan_classify::NameTable)). Errors carry the path of the key
//! (`classes/0/rules/rules/2/to-ports`), by which the agent finds line and column.

use crate::{RulePart, RuleSource, RulesError};
use bartizan_base::{Fid, PortIndex, TenantId};
use bartizan_classify::{NameId, Net};
use bartizan_config::policy::read::{self, from_json};
use bartizan_config::policy::values::{Labels, carries};
use bartizan_config::policy::{OneSided, Prefix, Target, did_you_mean};
use bartizan_config::yaml::Node;
use core::net::IpAddr;
use core::str::FromStr;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A policy's section for a function, and the classes of flows to which it applies.
#[derive(Clone, Debug)]
pub struct PolicyClass<T> {
    /// Name of the policy.
    pub policy: String,
    /// Classes: one for each tenant and service level of the policy.
    pub fids: Arc<[Fid]>,
    /// One side of the policy.
    pub from: Vec<AddressMember>,
    /// The other side.
    pub to: Vec<AddressMember>,
    /// The treatment of flows with only one visible direction.
    pub one_sided: OneSided,
    /// The section, read once for all that look at it.
    pub rules: Arc<T>,
}

/// A class with the function's compiled form.
#[derive(Clone, Debug)]
pub struct CompiledClass<T, M> {
    /// The class.
    pub class: PolicyClass<T>,
    /// The compiled form.
    pub made: M,
    /// The names with which it was compiled.
    names: Arc<SectionNames>,
}

/// The classes of a function, in their order, and the names that their sections may use.
pub type Classes<T, M> = (Arc<SectionNames>, Vec<Arc<CompiledClass<T, M>>>);

/// Path of the section of a class, by its place in the list, for errors.
#[must_use]
pub fn path(index: usize) -> String {
    format!("classes/{index}/rules")
}

/// Names that sections may use.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SectionNames {
    #[serde(default)]
    tenants: BTreeMap<String, u16>,
    #[serde(default)]
    groups: BTreeMap<String, Vec<AddressMember>>,
    #[serde(default)]
    labels: BTreeMap<String, Labels>,
    /// `None` without a host: then every named port exists.
    ports: Option<BTreeMap<String, u8>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct ClassHead {
    policy: String,
    fids: Vec<u32>,
    #[serde(default)]
    from: Vec<AddressMember>,
    #[serde(default)]
    to: Vec<AddressMember>,
    #[serde(default)]
    one_sided: OneSided,
}

/// A member of one side of a policy or rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressMember {
    /// The addresses of a prefix.
    Prefix(Prefix),
    /// The addresses that currently have a name.
    Name(NameId),
}

impl FromStr for AddressMember {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("name/") {
            Some(number) => match number.parse() {
                Ok(number) => Ok(AddressMember::Name(NameId(number))),
                Err(_) => Err(format!("`{text}` is not the number of a DNS name")),
            },
            None => text.parse().map(AddressMember::Prefix),
        }
    }
}

impl<'de> Deserialize<'de> for AddressMember {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl AddressMember {
    /// Whether an address with these names is a member.
    #[must_use]
    pub fn is(&self, address: IpAddr, names: &[NameId]) -> bool {
        match self {
            AddressMember::Prefix(prefix) => prefix.contains(address),
            AddressMember::Name(name) => names.contains(name),
        }
    }
}

/// A rule's condition on the address of one side; `None` matches any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideCondition {
    /// The network of the address.
    pub net: Option<Net>,
    /// A name that the address currently has.
    pub name: Option<NameId>,
}

/// The conditions for a list of members. The whole space of both versions is no condition at all.
#[must_use]
pub fn sides(members: &[AddressMember]) -> Vec<SideCondition> {
    let is_all = |m: &AddressMember, v4| matches!(m, AddressMember::Prefix(p) if p.length == 0 && p.address.is_ipv4() == v4);
    let everything = |v4: bool| members.iter().any(|m| is_all(m, v4));
    if everything(true) && everything(false) {
        return vec![SideCondition::default()];
    }
    let side = |member: &AddressMember| match member {
        AddressMember::Prefix(p) => {
            SideCondition { net: Some(Net { address: p.address, length: p.length }), name: None }
        }
        AddressMember::Name(name) => SideCondition { net: None, name: Some(*name) },
    };
    members.iter().map(side).collect()
}

/// An error at a path.
#[must_use]
pub fn error(function: &'static str, path: impl Into<String>, message: impl Into<String>) -> RulesError {
    RulesError { function, place: path.into(), message: message.into() }
}

/// A function's classes, each with the value of its section.
///
/// # Errors
/// Every problem, each with its path.
pub fn read<T: DeserializeOwned + Send + Sync + 'static>(
    function: &'static str,
    source: &RuleSource<'_>,
) -> Result<Classes<T, ()>, Vec<RulesError>> {
    read_and_make(function, source, |_, _, _| Ok(()))
}

/// As [`read()`], and compiles each class with the names that it may use and its path: once, for as long as
/// the class and the names stay.
///
/// # Errors As [`read()`], and the errors of `make`.
pub fn read_and_make<T, M>(
    function: &'static str,
    source: &RuleSource<'_>,
    make: impl Fn(&PolicyClass<T>, &SectionNames, &str) -> Result<M, Vec<RulesError>>,
) -> Result<Classes<T, M>, Vec<RulesError>>
where
    T: DeserializeOwned + Send + Sync + 'static,
    M: Send + Sync + 'static,
{
    let mut errors = Vec::new();
    let names = names(function, source.common).unwrap_or_else(|found| {
        errors.extend(found);
        Arc::default()
    });
    let mut all = Vec::with_capacity(source.classes.len());
    for (index, part) in source.classes.iter().enumerate() {
        if let Some(known) =
            part.made::<CompiledClass<T, M>>().filter(|known| Arc::ptr_eq(&known.names, &names))
        {
            all.push(known);
            continue;
        }
        let made = class(function, part, index).and_then(|class| {
            Ok(CompiledClass { made: make(&class, &names, &path(index))?, class, names: Arc::clone(&names) })
        });
        match made.map(Arc::new) {
            Ok(made) => {
                part.keep(&made);
                all.push(made);
            }
            Err(found) => errors.extend(found),
        }
    }
    if errors.is_empty() { Ok((names, all)) } else { Err(errors) }
}

/// The mapping reduced to some keys.
fn some(json: &Value, keys: &[&str]) -> Node {
    let wanted = |key: &&str| Some(((*key).to_owned(), json.get(*key)?.clone()));
    from_json(&Value::Object(keys.iter().filter_map(wanted).collect()))
}

fn errors_of(function: &'static str, problems: Vec<read::ConfigProblem>) -> Vec<RulesError> {
    problems.into_iter().map(|p| error(function, p.path, p.message)).collect()
}

fn names(function: &'static str, common: &RulePart) -> Result<Arc<SectionNames>, Vec<RulesError>> {
    if let Some(known) = common.made::<SectionNames>() {
        return Ok(known);
    }
    let names = read::read::<SectionNames>(&some(common.json(), &["tenants", "groups", "labels", "ports"]));
    let names = Arc::new(names.map_err(|problems| errors_of(function, problems))?);
    common.keep(&names);
    Ok(names)
}

fn class<T: DeserializeOwned + Send + Sync + 'static>(
    function: &'static str,
    part: &RulePart,
    index: usize,
) -> Result<PolicyClass<T>, Vec<RulesError>> {
    let head = read::read_at::<ClassHead>(&from_json(part.json()), &format!("classes/{index}"));
    let rules = part.section().value::<T>();
    match (head, rules) {
        (Ok(ClassHead { policy, fids, from, to, one_sided }), Ok(rules)) => {
            let fids = fids.into_iter().map(Fid).collect();
            Ok(PolicyClass { policy, fids, from, to, one_sided, rules })
        }
        (head, rules) => {
            let mut errors = errors_of(function, head.err().unwrap_or_default());
            for problem in rules.err().iter().flat_map(|problems| problems.iter()) {
                let place = match problem.path.as_str() {
                    "" => path(index),
                    within => format!("{}/{within}", path(index)),
                };
                errors.push(error(function, place, problem.message.clone()));
            }
            Err(errors)
        }
    }
}

/// The schema of a section, for inclusion in that of policy files.
#[must_use]
pub fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::default().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

impl SectionNames {
    /// Members of a list of targets; `any` gives both versions' whole space.
    ///
    /// # Errors
    /// A group does not exist.
    pub fn members(&self, targets: &[Target]) -> Result<Vec<AddressMember>, String> {
        let mut all = Vec::new();
        for target in targets {
            match target {
                Target::Any => {
                    all.extend(["0.0.0.0/0", "::/0"].iter().filter_map(|p| p.parse::<AddressMember>().ok()))
                }
                Target::Prefix(prefix) => all.push(AddressMember::Prefix(*prefix)),
                Target::Label(asked) => {
                    let meant = self.labels.iter().filter(|(_, carried)| carries(carried, asked));
                    let mut meant = meant.filter_map(|(name, _)| self.groups.get(name)).peekable();
                    if meant.peek().is_none() {
                        return Err(format!("no group has the label {target}; add it under `labels`"));
                    }
                    all.extend(meant.flatten());
                }
                Target::Group(name) => match self.groups.get(name) {
                    Some(members) => all.extend(members),
                    None => {
                        let hint =
                            did_you_mean(name, self.groups.keys().map(String::as_str).collect::<Vec<_>>());
                        return Err(format!("there is no group `{name}`; {hint}"));
                    }
                },
            }
        }
        Ok(all)
    }

    /// Number of a named port. Without a host, all names map to the first port.
    ///
    /// # Errors The host has no such port.
    pub fn port(&self, name: &str) -> Result<PortIndex, String> {
        let Some(ports) = &self.ports else { return Ok(PortIndex(0)) };
        ports.get(name).map(|port| PortIndex(*port)).ok_or_else(|| {
            let hint = match ports.is_empty() {
                true => "it has none: give it `ports: [{name: ..., interface: ...}]`".to_owned(),
                false => did_you_mean(name, ports.keys().map(String::as_str).collect::<Vec<_>>()),
            };
            format!("the host file has no port `{name}`; {hint}")
        })
    }

    /// Number of a tenant.
    ///
    /// # Errors
    /// The tenant does not exist.
    pub fn tenant(&self, name: &str) -> Result<TenantId, String> {
        self.tenants.get(name).map(|id| TenantId(*id)).ok_or_else(|| {
            let hint = did_you_mean(name, self.tenants.keys().map(String::as_str).collect::<Vec<_>>());
            format!("there is no tenant `{name}`; {hint}")
        })
    }
}

/// A table by fid: fids are the smallest free numbers, so the table is dense.
#[derive(Clone, Debug, Default)]
pub struct ByFid {
    index: Vec<u32>,
}

impl ByFid {
    /// The place of each class in a list, by its fids.
    #[must_use]
    pub fn new<T, M>(classes: &[Arc<CompiledClass<T, M>>]) -> Self {
        ByFid::of(classes.iter().enumerate().map(|(place, of)| (place, &*of.class.fids)))
    }

    /// The index for each of some fids.
    pub fn of<'f>(fids: impl Iterator<Item = (usize, &'f [Fid])>) -> Self {
        let mut index = Vec::new();
        for (place, fids) in fids {
            for fid in fids {
                let fid = fid.0 as usize;
                if index.len() <= fid {
                    index.resize(fid + 1, u32::MAX);
                }
                if let (Some(slot), Ok(place)) = (index.get_mut(fid), u32::try_from(place)) {
                    *slot = place;
                }
            }
        }
        ByFid { index }
    }

    /// The place of a fid's class.
    #[must_use]
    pub fn get(&self, fid: Fid) -> Option<usize> {
        self.index.get(fid.0 as usize).filter(|i| **i != u32::MAX).map(|i| *i as usize)
    }
}
