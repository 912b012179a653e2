// SPDX-License-Identifier: Apache-2.0
//! From the objects of a controller's generation to the policy file that they are parts of, and from what is wrong in that file back to
//! the object.
//!
//! The text of a policy object is JSON, by the object's name: `@tenant`, `@group/NAME`, `@default`, `@library/NAME`, and any other name for
//! a policy. Tenants and policies come in the order of their `order`, then of their names. Rule files are rule groups, which libraries
//! name by id. Nothing is read or built here.

use crate::session::Held;
use bartizan_api::southbound::{Diagnostic, Object, ObjectKey, Policy, RuleGroup, Rules};
use bartizan_config::policy::Problem;
use bartizan_rules::library::{Choice, choose};
use bartizan_rules::{RuleFile, parse_file};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Diagnostics kept: whoever sees so many corrects some first.
const DIAGNOSTICS_MAX: usize = 1_000;

/// The order of a part that does not say one.
const ORDER: u64 = 100;

const fn usual_order() -> u64 {
    ORDER
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TenantPart {
    tenant: Map<String, Value>,
    #[serde(default = "usual_order")]
    order: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyPart {
    policy: Map<String, Value>,
    #[serde(default = "usual_order")]
    order: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupPart {
    groups: Map<String, Value>,
    #[serde(default)]
    labels: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DnsPart {
    dns: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DefaultPart {
    default: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LibraryPart {
    library: LibraryText,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LibraryText {
    files: Vec<FileText>,
    #[serde(default)]
    choose: Vec<Choice>,
    #[serde(default)]
    except: BTreeSet<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    group: u32,
    sha256: String,
}

/// A rule library as it came: files and what is chosen of them. Equal ones come to the same rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// What messages call each file, and its lines.
    files: Vec<(String, Arc<Object>)>,
    choose: Vec<Choice>,
    except: BTreeSet<u32>,
}

impl Library {
    /// Its rules, file by file, with their places.
    #[must_use]
    pub fn rules(&self) -> Vec<RuleFile> {
        let read = |(name, object): &(String, Arc<Object>)| match object.as_ref() {
            Object::Group(RuleGroup { rules: Rules::Raw(lines), .. }) => {
                parse_file(lines.join("\n").into_bytes(), name)
            }
            _ => parse_file(Vec::new(), name),
        };
        let mut files: Vec<RuleFile> = self.files.iter().map(read).collect();
        choose(&mut files, &self.choose, &self.except);
        files
    }
}

/// A policy file made of a generation's objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Joined {
    /// The controller's number of the generation.
    pub generation: u64,
    /// The file, as JSON.
    pub file: Value,
    /// The controller's numbers of the tenants, by name.
    pub tenants: Vec<(String, u16)>,
    /// The libraries, by the names of the rule files that the policy file has for them.
    pub libraries: BTreeMap<String, Library>,
    /// Where its parts come from.
    places: Places,
}

/// The objects that the parts of a file come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Places {
    tenants: Vec<ObjectKey>,
    policies: Vec<ObjectKey>,
    groups: BTreeMap<String, ObjectKey>,
    libraries: BTreeMap<String, ObjectKey>,
    default: Option<ObjectKey>,
    dns: Option<ObjectKey>,
}

/// A part with what its place in the file depends on.
struct Placed {
    order: u64,
    name: String,
    key: ObjectKey,
    value: Value,
    tenant: u16,
}

#[derive(Default)]
struct Joining {
    tenants: Vec<Placed>,
    policies: Vec<Placed>,
    groups: Map<String, Value>,
    labels: Map<String, Value>,
    libraries: BTreeMap<String, Library>,
    default: Option<Value>,
    dns: Option<Value>,
    places: Places,
    wrong: Vec<Diagnostic>,
}

/// Joins the objects of a generation. Without `@default` what no policy names is dropped.
///
/// # Errors
/// All parts that are none, each with its object and place.
pub fn join(held: &Held) -> Result<Joined, Vec<Diagnostic>> {
    let mut joining = Joining::default();
    for object in held.objects.values() {
        if let Object::Policy(policy) = object.as_ref() {
            joining.part(&object.key(), policy, &held.objects);
        }
    }
    joining.check_owners();
    joining.finish(held.generation)
}

impl Joining {
    fn wrong(&mut self, key: &ObjectKey, pointer: &str, message: impl Into<String>) {
        self.note(key, pointer, (0, 0), message.into());
    }

    fn note(&mut self, key: &ObjectKey, pointer: &str, (line, column): (usize, usize), message: String) {
        if self.wrong.len() < DIAGNOSTICS_MAX {
            let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
            self.wrong.push(Diagnostic {
                object: key.clone(),
                pointer: pointer.to_owned(),
                line: number(line),
                column: number(column),
                message,
            });
        }
    }

    /// A part's text as its type. What cannot be read has its line and column.
    fn read<T: DeserializeOwned>(&mut self, key: &ObjectKey, policy: &Policy) -> Option<T> {
        match serde_json::from_str(&policy.text) {
            Ok(part) => Some(part),
            Err(error) => {
                let message = format!("this is no such part of a policy file: {error}");
                self.note(key, "", (error.line(), error.column()), message);
                None
            }
        }
    }

    fn part(&mut self, key: &ObjectKey, policy: &Policy, all: &BTreeMap<ObjectKey, Arc<Object>>) {
        let everybodys =
            matches!(policy.name.as_str(), "@default" | "@dns") || policy.name.starts_with("@library/");
        if everybodys != (policy.tenant == 0) {
            let whose = if everybodys { "it is of tenant 0" } else { "tenant 0 has none of its own" };
            self.wrong(key, "", format!("`{}` cannot be of tenant {}: {whose}", policy.name, policy.tenant));
            return;
        }
        match policy.name.split_once('/') {
            _ if policy.name == "@default" => {
                self.default = self.read::<DefaultPart>(key, policy).map(|part| part.default);
                self.places.default = Some(key.clone());
            }
            _ if policy.name == "@dns" => {
                self.dns = self.read::<DnsPart>(key, policy).map(|part| part.dns);
                self.places.dns = Some(key.clone());
            }
            _ if policy.name == "@tenant" => self.tenant(key, policy),
            Some(("@group", _)) => self.group(key, policy),
            Some(("@library", name)) => self.library(key, name, policy, all),
            _ if policy.name.starts_with('@') => {
                let known = "`@default`, `@dns`, `@tenant`, `@group/NAME`, `@library/NAME` and policies";
                self.wrong(
                    key,
                    "",
                    format!("`{}` is no part that is known here; there are {known}", policy.name),
                );
            }
            _ => self.policy(key, policy),
        }
    }

    fn tenant(&mut self, key: &ObjectKey, policy: &Policy) {
        let Some(TenantPart { tenant, order }) = self.read(key, policy) else { return };
        let Some(name) = tenant.get("name").and_then(Value::as_str).map(str::to_owned) else {
            return self.wrong(key, "/tenant/name", "a tenant has a name; add it");
        };
        if self.tenants.iter().any(|known| known.name == name) {
            return self.wrong(key, "/tenant/name", format!("another tenant is called `{name}`; rename one"));
        }
        let value = Value::Object(tenant);
        self.tenants.push(Placed { order, name, key: key.clone(), value, tenant: policy.tenant });
    }

    fn policy(&mut self, key: &ObjectKey, policy: &Policy) {
        let Some(PolicyPart { policy: said, order }) = self.read(key, policy) else { return };
        let Some(name) = said.get("name").and_then(Value::as_str).map(str::to_owned) else {
            return self.wrong(key, "/policy/name", "a policy has a name; add it");
        };
        let value = Value::Object(said);
        self.policies.push(Placed { order, name, key: key.clone(), value, tenant: policy.tenant });
    }

    fn group(&mut self, key: &ObjectKey, policy: &Policy) {
        let Some(GroupPart { groups, labels }) = self.read(key, policy) else { return };
        for (name, labels) in labels {
            if groups.contains_key(&name) {
                self.labels.insert(name, labels);
            } else {
                let pointer = format!("/labels/{}", escaped(&name));
                self.wrong(
                    key,
                    &pointer,
                    format!("`{name}` is no group of this part; only its own carry labels"),
                );
            }
        }
        for (name, members) in groups {
            if self.places.groups.insert(name.clone(), key.clone()).is_some() {
                let pointer = format!("/groups/{}", escaped(&name));
                self.wrong(key, &pointer, format!("another group is called `{name}`; rename one"));
            }
            self.groups.insert(name, members);
        }
    }

    fn library(
        &mut self,
        key: &ObjectKey,
        name: &str,
        policy: &Policy,
        all: &BTreeMap<ObjectKey, Arc<Object>>,
    ) {
        let Some(LibraryPart { library }) = self.read(key, policy) else { return };
        let mut files = Vec::new();
        for (index, file) in library.files.into_iter().enumerate() {
            let pointer = format!("/library/files/{index}/group");
            match all.get(&ObjectKey::group(file.group)) {
                Some(object) if is_rule_file(object) => files.push((file.sha256, Arc::clone(object))),
                Some(_) => {
                    self.wrong(key, &pointer, format!("group {} is no rule file of tenant 0", file.group));
                }
                None => self.wrong(key, &pointer, format!("there is no group {}; send it first", file.group)),
            }
        }
        let library = Library { files, choose: library.choose, except: library.except };
        self.libraries.insert(rule_file(name), library);
        self.places.libraries.insert(name.to_owned(), key.clone());
    }

    /// Who says something is the one whom it is about.
    fn check_owners(&mut self) {
        let names: BTreeMap<u16, String> = self.tenants.iter().map(|t| (t.tenant, t.name.clone())).collect();
        let mut wrong = Vec::new();
        for Placed { key, value, tenant, .. } in &self.policies {
            let said = value.get("tenant").and_then(Value::as_array).map(Vec::as_slice);
            let own = names.get(tenant);
            if !matches!((said, own), (Some([Value::String(said)]), Some(own)) if said == own) {
                let own =
                    own.map_or_else(|| format!("{tenant}, which is not there"), |own| format!("`{own}`"));
                wrong.push((
                    key.clone(),
                    "/policy/tenant".to_owned(),
                    format!("a policy of tenant {own} is about that one alone"),
                ));
            }
        }
        for (name, key) in &self.places.groups {
            let owner = key.policy_name().and_then(|(tenant, _)| names.get(&tenant));
            let said = name.rsplit_once('@').map(|(_, tenant)| tenant);
            if said.is_none() || said != owner.map(String::as_str) {
                let message = format!("group `{name}` has to have the name of its tenant behind `@`");
                wrong.push((key.clone(), format!("/groups/{}", escaped(name)), message));
            }
        }
        wrong.into_iter().for_each(|(key, pointer, message)| self.wrong(&key, &pointer, message));
    }

    fn finish(mut self, generation: u64) -> Result<Joined, Vec<Diagnostic>> {
        if !self.wrong.is_empty() {
            return Err(self.wrong);
        }
        let in_order =
            |parts: &mut Vec<Placed>| parts.sort_by(|a, b| (a.order, &a.name).cmp(&(b.order, &b.name)));
        in_order(&mut self.tenants);
        in_order(&mut self.policies);
        let mut places = self.places;
        let numbers = self.tenants.iter().map(|t| (t.name.clone(), t.tenant)).collect();
        places.tenants = self.tenants.iter().map(|t| t.key.clone()).collect();
        places.policies = self.policies.iter().map(|p| p.key.clone()).collect();
        let values = |parts: Vec<Placed>| parts.into_iter().map(|part| part.value).collect::<Vec<_>>();
        let rule_groups: Map<String, Value> =
            places.libraries.keys().map(|name| (name.clone(), json!([rule_file(name)]))).collect();
        let mut file = Map::new();
        file.insert("groups".to_owned(), Value::Object(self.groups));
        if !self.labels.is_empty() {
            file.insert("labels".to_owned(), Value::Object(self.labels));
        }
        self.dns.into_iter().for_each(|dns| drop(file.insert("dns".to_owned(), dns)));
        file.insert("rule-groups".to_owned(), Value::Object(rule_groups));
        file.insert("tenants".to_owned(), Value::Array(values(self.tenants)));
        file.insert("policies".to_owned(), Value::Array(values(self.policies)));
        file.insert("default".to_owned(), self.default.unwrap_or_else(|| json!({"action": "drop"})));
        Ok(Joined {
            generation,
            file: Value::Object(file),
            tenants: numbers,
            libraries: self.libraries,
            places,
        })
    }
}

/// What the policy file calls the rules of a library.
fn rule_file(library: &str) -> String {
    format!("{library}.rules")
}

fn is_rule_file(object: &Object) -> bool {
    matches!(object, Object::Group(RuleGroup { tenant: 0, rules: Rules::Raw(_), .. }))
}

/// A key in a JSON pointer (RFC 6901).
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

impl Joined {
    /// What is wrong in the file, as something wrong in the object that it comes from. What comes from none is said of the default, which is
    /// nobody's: a tenant that is blamed is held back.
    #[must_use]
    pub fn diagnostic(&self, problem: &Problem) -> Diagnostic {
        let path = problem.path.trim_end_matches('/');
        let mut parts = path.splitn(3, '/');
        let (kind, which, rest) = (parts.next().unwrap_or(""), parts.next(), parts.next());
        let at = |keys: &[ObjectKey]| {
            which.and_then(|n| n.parse::<usize>().ok()).and_then(|n| keys.get(n).cloned())
        };
        let below = |head: &str, rest: Option<&str>| match rest {
            Some(rest) => format!("{head}/{}", rest.replace('~', "~0")),
            None => head.to_owned(),
        };
        let places = &self.places;
        let found = match (kind, which) {
            ("tenants", _) => at(&places.tenants).map(|key| (key, below("/tenant", rest))),
            ("policies", _) => at(&places.policies).map(|key| (key, below("/policy", rest))),
            ("groups", Some(name)) => {
                let head = format!("/groups/{}", escaped(name));
                places.groups.get(name).map(|key| (key.clone(), below(&head, rest)))
            }
            ("labels", Some(name)) => {
                let head = format!("/labels/{}", escaped(name));
                places.groups.get(name).map(|key| (key.clone(), below(&head, rest)))
            }
            ("dns", _) => {
                let rest = path.split_once('/').map(|(_, rest)| rest);
                places.dns.clone().map(|key| (key, below("/dns", rest)))
            }
            ("rule-groups", Some(name)) => {
                places.libraries.get(name).map(|key| (key.clone(), "/library".to_owned()))
            }
            ("default", _) => {
                let rest = path.split_once('/').map(|(_, rest)| rest);
                places.default.clone().map(|key| (key, below("/default", rest)))
            }
            _ => None,
        };
        let (object, pointer) = found.unwrap_or_else(|| {
            let default = places.default.clone();
            (default.unwrap_or_else(|| ObjectKey::policy(0, "@default")), String::new())
        });
        Diagnostic { object, pointer, line: 0, column: 0, message: problem.message.clone() }
    }
}

#[cfg(test)]
mod tests;
