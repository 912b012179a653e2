// SPDX-License-Identifier: Apache-2.0
//! What a function is given of a generation's policies: its section of each policy, with the fids that it holds for.
//!
//! The agent hands it over as JSON ([`RuleSource::rules`]):
//! `{"tenants": {name: id}, "groups": {name: [prefix]}, "classes": [{"policy", "fids", "from", "to", "one-sided", "rules"}]}`.
//! Errors carry the path of the key (`classes/0/rules/rules/2/to-ports`), from which the agent finds line and column.

use bartizan_base::{Fid, TenantId};
use bartizan_config::policy::read::{self, from_json};
use bartizan_config::policy::{OneSided, Prefix, Target, did_you_mean};
use bartizan_function::{RuleSource, RulesError};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;

/// A policy's section for a function, and the classes of flows that it holds for.
#[derive(Clone, Debug)]
pub struct Class<T> {
    /// Name of the policy.
    pub policy: String,
    /// Classes: one for each tenant and service level of the policy.
    pub fids: Vec<Fid>,
    /// One side of the policy.
    pub from: Vec<Prefix>,
    /// The other side.
    pub to: Vec<Prefix>,
    /// What is done with flows of which one direction is not seen.
    pub one_sided: OneSided,
    /// The section.
    pub rules: T,
    /// Path of the section, for errors.
    pub path: String,
}

/// Names that sections may use.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Names {
    #[serde(default)]
    tenants: BTreeMap<String, u16>,
    #[serde(default)]
    groups: BTreeMap<String, Vec<Prefix>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Head {
    policy: String,
    fids: Vec<u32>,
    #[serde(default)]
    from: Vec<Prefix>,
    #[serde(default)]
    to: Vec<Prefix>,
    #[serde(default)]
    one_sided: OneSided,
}

/// An error at a path.
#[must_use]
pub fn error(function: &'static str, path: impl Into<String>, message: impl Into<String>) -> RulesError {
    RulesError { function, place: path.into(), message: message.into() }
}

/// Reads a function's sections.
///
/// # Errors
/// Every problem, each with its path.
pub fn read<T: DeserializeOwned>(
    function: &'static str,
    source: &RuleSource<'_>,
) -> Result<(Names, Vec<Class<T>>), Vec<RulesError>> {
    let mut errors = Vec::new();
    let part = |json: &Value, keys: &[&str]| {
        let mut object = json.as_object().cloned().unwrap_or_default();
        object.retain(|key, _| keys.contains(&key.as_str()));
        from_json(&Value::Object(object))
    };
    let mut fail = |problems: Vec<read::Problem>| {
        errors.extend(problems.into_iter().map(|p| error(function, p.path, p.message)));
    };
    let names = read::read(&part(source.rules, &["tenants", "groups"])).unwrap_or_else(|p| {
        fail(p);
        Names::default()
    });
    let mut classes = Vec::new();
    let listed = source.rules.get("classes").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for (index, json) in listed.iter().enumerate() {
        let path = format!("classes/{index}");
        let head = read::read_at::<Head>(&part(json, &["policy", "fids", "from", "to", "one-sided"]), &path);
        let path = format!("{path}/rules");
        let rules = read::read_at::<T>(&from_json(json.get("rules").unwrap_or(&Value::Null)), &path);
        match (head, rules) {
            (Ok(Head { policy, fids, from, to, one_sided }), Ok(rules)) => {
                let fids = fids.into_iter().map(Fid).collect();
                classes.push(Class { policy, fids, from, to, one_sided, rules, path });
            }
            (head, rules) => {
                head.err().map(&mut fail);
                rules.err().map(&mut fail);
            }
        }
    }
    if errors.is_empty() { Ok((names, classes)) } else { Err(errors) }
}

/// The schema of a section, to stand within that of policy files.
#[must_use]
pub fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::default().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

impl Names {
    /// Prefixes of a list of targets; `any` gives both versions' whole space.
    ///
    /// # Errors
    /// A group does not exist.
    pub fn prefixes(&self, targets: &[Target]) -> Result<Vec<Prefix>, String> {
        let mut all = Vec::new();
        for target in targets {
            match target {
                Target::Any => {
                    all.extend(["0.0.0.0/0", "::/0"].iter().filter_map(|p| p.parse::<Prefix>().ok()))
                }
                Target::Prefix(prefix) => all.push(*prefix),
                Target::Group(name) => match self.groups.get(name) {
                    Some(prefixes) => all.extend(prefixes),
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

    /// Number of a tenant.
    ///
    /// # Errors
    /// It does not exist.
    pub fn tenant(&self, name: &str) -> Result<TenantId, String> {
        self.tenants.get(name).map(|id| TenantId(*id)).ok_or_else(|| {
            let hint = did_you_mean(name, self.tenants.keys().map(String::as_str).collect::<Vec<_>>());
            format!("there is no tenant `{name}`; {hint}")
        })
    }
}

/// Finds what belongs to a fid by its number: fids are the smallest free ones, so the table is dense.
#[derive(Clone, Debug, Default)]
pub struct ByFid {
    index: Vec<u32>,
}

impl ByFid {
    /// The place of each class in a list, by its fids.
    #[must_use]
    pub fn new<T>(classes: &[Class<T>]) -> Self {
        let mut index = Vec::new();
        for (place, class) in classes.iter().enumerate() {
            for fid in &class.fids {
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
