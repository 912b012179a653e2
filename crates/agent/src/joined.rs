// SPDX-License-Identifier: Apache-2.0
//! Joins the objects of a controller's generation to a policy file, and maps problems in that file back to
//! the objects.
//!
//! The text of a policy object is JSON; the object's name gives its kind: `@tenant`, `@group/NAME`,
//! `@default`, `@library/NAME`, and any other name for a policy. Tenants and policies are ordered by `order`,
//! then by name. Rule files are rule groups, which libraries name by id. An object that is unchanged since
//! the previous generation is not parsed again ([`Joiner`]). Nothing is compiled here.

use crate::session::ControllerGeneration;
use bartizan_api::southbound::{
    GroupRules, Hash, Object, ObjectKey, Policy, PolicyDiagnostic, RuleGroup, RuleType,
};
use bartizan_config::policy::{ConfigProblem, Parts, PolicyText};
use bartizan_rules::library::{RuleSelector, choose};
use bartizan_rules::{RuleFile, parse_file};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most diagnostics that are kept: enough for an author to begin with.
const DIAGNOSTICS_MAX: usize = 1_000;

/// The order of a part without one.
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
    choose: Vec<RuleSelector>,
    #[serde(default)]
    except: BTreeSet<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    group: u32,
    sha256: String,
}

/// A rule library as received: its files and the selection of rules. Equal libraries give equal rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// The files: name in messages (the SHA-256 of its text), and lines.
    files: Vec<(String, Arc<Object>)>,
    choose: Vec<RuleSelector>,
    except: BTreeSet<u32>,
}

impl Library {
    /// The selected rules, file by file, with their places.
    #[must_use]
    pub fn rules(&self) -> Vec<RuleFile> {
        let mut files = self.files();
        choose(&mut files, &self.choose, &self.except);
        files
    }

    /// The files, with all rules.
    #[must_use]
    pub fn files(&self) -> Vec<RuleFile> {
        let read = |(name, object): &(String, Arc<Object>)| match object.as_ref() {
            Object::Group(RuleGroup { rules: GroupRules::Raw(lines), .. }) => {
                parse_file(lines.join("\n").into_bytes(), name)
            }
            _ => parse_file(Vec::new(), name),
        };
        self.files.iter().map(read).collect()
    }

    /// Name and content hash of each file.
    pub fn hashes(&self) -> impl Iterator<Item = (&str, Hash)> {
        // A file whose name is not a SHA-256 is identified by the hash of its object.
        self.files.iter().map(|(name, object)| {
            (name.as_str(), Hash::try_from(name.clone()).unwrap_or_else(|_| object.hash()))
        })
    }

    /// The selectors of rules; empty: all rules.
    #[must_use]
    pub fn choices(&self) -> &[RuleSelector] {
        &self.choose
    }

    /// Ids of rules that are excluded from the selection.
    #[must_use]
    pub const fn except(&self) -> &BTreeSet<u32> {
        &self.except
    }

    /// Whether another library selects from the same files.
    #[must_use]
    pub fn has_files_of(&self, other: &Library) -> bool {
        self.files == other.files
    }
}

/// A policy file made of a generation's objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JoinedPolicy {
    /// The controller's number of the generation.
    pub generation: u64,
    /// The hash of its manifest.
    pub manifest: Hash,
    /// The policy file. Unchanged parts are the same by address from generation to generation.
    pub parts: Parts,
    /// The controller's numbers of the tenants, with their names.
    pub tenants: Arc<[(String, u16)]>,
    /// The libraries, by the names of their rule files in the policy file.
    pub libraries: Arc<BTreeMap<String, Library>>,
    /// The objects that its parts come from.
    places: Arc<PartObjects>,
    /// The objects of the policies, in order.
    policies: Vec<Arc<ObjectKey>>,
}

/// The objects of a file's parts, except policies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PartObjects {
    tenants: Vec<ObjectKey>,
    groups: BTreeMap<String, ObjectKey>,
    libraries: BTreeMap<String, ObjectKey>,
    default: Option<ObjectKey>,
    dns: Option<ObjectKey>,
}

/// A part with its sort keys in the file.
struct Placed {
    order: u64,
    name: String,
    key: ObjectKey,
    value: Value,
    tenant: u16,
}

/// The parts that policies share, joined.
#[derive(Debug)]
struct JoinedParts {
    file: Arc<Value>,
    tenants: Arc<[(String, u16)]>,
    /// Names of tenants by number.
    names: BTreeMap<u16, String>,
    libraries: Arc<BTreeMap<String, Library>>,
    places: Arc<PartObjects>,
}

/// A policy with its object.
#[derive(Debug)]
struct PolicyOf {
    key: Arc<ObjectKey>,
    tenant: u16,
    text: Arc<PolicyText>,
}

/// The sort key of policies: order, name, object.
type PolicyRank = (u64, String, Arc<ObjectKey>);

/// Joins successive generations.
#[derive(Debug, Default)]
pub struct Joiner {
    /// The objects joined last, with the ranks of policies.
    objects: BTreeMap<ObjectKey, (Arc<Object>, Option<PolicyRank>)>,
    policies: BTreeMap<PolicyRank, PolicyOf>,
    common: Option<JoinedParts>,
}

/// An object that was changed or removed (`None`).
type Changed = (ObjectKey, Option<Arc<Object>>);

#[derive(Default)]
struct Joining {
    tenants: Vec<Placed>,
    tenant_names: BTreeSet<String>,
    groups: Map<String, Value>,
    labels: Map<String, Value>,
    libraries: BTreeMap<String, Library>,
    default: Option<Value>,
    dns: Option<Value>,
    places: PartObjects,
    wrong: Vec<PolicyDiagnostic>,
}

/// Joins the objects of a generation. Without `@default`, traffic that no policy matches is dropped.
///
/// # Errors
/// All invalid parts, each with its object and place.
pub fn join(held: &ControllerGeneration) -> Result<JoinedPolicy, Vec<PolicyDiagnostic>> {
    Joiner::default().join(held, held.manifest().hash())
}

impl Joiner {
    /// As [`join`], for the successor of the generation that was joined last. `manifest`: the hash of its
    /// manifest.
    ///
    /// # Errors
    /// As [`join`]. The next generation is then joined from scratch.
    pub fn join(
        &mut self,
        held: &ControllerGeneration,
        manifest: Hash,
    ) -> Result<JoinedPolicy, Vec<PolicyDiagnostic>> {
        let joined = self.joined(held, manifest);
        if joined.is_err() {
            *self = Joiner::default();
        }
        joined
    }

    fn joined(
        &mut self,
        held: &ControllerGeneration,
        manifest: Hash,
    ) -> Result<JoinedPolicy, Vec<PolicyDiagnostic>> {
        let mut joining = Joining::default();
        let mut new = Vec::new();
        for (key, object) in self.changed(held) {
            new.extend(self.take(key, object, &mut joining));
        }
        let is_kept = self.common.is_some();
        let common = match self.common.take() {
            Some(common) => common,
            None => joining.common(held),
        };
        for rank in self.policies.keys().filter(|_| !is_kept).chain(new.iter().filter(|_| is_kept)) {
            if let Some(policy) = self.policies.get(rank) {
                joining.check_owner(policy, &common.names);
            }
        }
        if !joining.wrong.is_empty() {
            return Err(joining.wrong);
        }
        let of = |policy: &PolicyOf| (Arc::clone(&policy.text), Arc::clone(&policy.key));
        let (texts, policies) = self.policies.values().map(of).unzip();
        let joined = JoinedPolicy {
            generation: held.generation,
            manifest,
            parts: Parts { common: Arc::clone(&common.file), policies: texts },
            tenants: Arc::clone(&common.tenants),
            libraries: Arc::clone(&common.libraries),
            places: Arc::clone(&common.places),
            policies,
        };
        self.common = Some(common);
        Ok(joined)
    }

    /// The objects that differ by address: a pass over both maps is cheaper than a record of changes.
    fn changed(&self, held: &ControllerGeneration) -> Vec<Changed> {
        let mut changed: Vec<Changed> = Vec::new();
        let mut before = self.objects.iter().peekable();
        for (key, object) in &held.objects {
            while let Some((gone, _)) = before.next_if(|(known, _)| *known < key) {
                changed.push((gone.clone(), None));
            }
            let known = before.next_if(|(known, _)| *known == key);
            if !known.is_some_and(|(_, (known, _))| Arc::ptr_eq(known, object)) {
                changed.push((key.clone(), Some(Arc::clone(object))));
            }
        }
        changed.extend(before.map(|(gone, _)| (gone.clone(), None)));
        changed
    }

    /// Replaces an object. Returns the rank of the new one, if it is a policy.
    fn take(
        &mut self,
        key: ObjectKey,
        object: Option<Arc<Object>>,
        joining: &mut Joining,
    ) -> Option<PolicyRank> {
        match self.objects.remove(&key) {
            Some((_, Some(rank))) => drop(self.policies.remove(&rank)),
            Some((_, None)) => self.common = None,
            None => {}
        }
        let object = object?;
        let mut rank = None;
        match own_policy(&object) {
            Some(policy) => {
                let (known, of) = joining.policy(&key, policy)?;
                self.policies.insert(known.clone(), of);
                rank = Some(known);
            }
            None => self.common = None,
        }
        self.objects.insert(key, (object, rank.clone()));
        rank
    }
}

/// The policy in an object, unless the object is another part of the file.
fn own_policy(object: &Object) -> Option<&Policy> {
    match object {
        Object::Policy(policy) if !policy.name.starts_with('@') => Some(policy),
        _ => None,
    }
}

impl Joining {
    fn wrong(&mut self, key: &ObjectKey, pointer: &str, message: impl Into<String>) {
        self.note(key, pointer, 0, 0, message.into());
    }

    fn note(&mut self, key: &ObjectKey, pointer: &str, line: usize, column: usize, message: String) {
        if self.wrong.len() < DIAGNOSTICS_MAX {
            let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
            self.wrong.push(PolicyDiagnostic {
                object: key.clone(),
                pointer: pointer.to_owned(),
                line: number(line),
                column: number(column),
                message,
            });
        }
    }

    /// Deserializes a part's text; reports errors with line and column.
    fn read<T: DeserializeOwned>(&mut self, key: &ObjectKey, policy: &Policy) -> Option<T> {
        match serde_json::from_str(&policy.text) {
            Ok(part) => Some(part),
            Err(error) => {
                let message = format!("the part cannot be read: {error}");
                self.note(key, "", error.line(), error.column(), message);
                None
            }
        }
    }

    /// Checks that a part belongs to a tenant, or to none, as its name requires.
    fn is_of_owner(&mut self, key: &ObjectKey, policy: &Policy) -> bool {
        let everybodys =
            matches!(policy.name.as_str(), "@default" | "@dns") || policy.name.starts_with("@library/");
        if everybodys != (policy.tenant == 0) {
            let whose = if everybodys { "it belongs to tenant 0" } else { "tenant 0 has no such part" };
            self.wrong(key, "", format!("`{}` cannot be of tenant {}: {whose}", policy.name, policy.tenant));
        }
        everybodys == (policy.tenant == 0)
    }

    fn part(&mut self, key: &ObjectKey, policy: &Policy, all: &BTreeMap<ObjectKey, Arc<Object>>) {
        if !self.is_of_owner(key, policy) {
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
            _ => {
                let known = "`@default`, `@dns`, `@tenant`, `@group/NAME`, `@library/NAME` and policies";
                self.wrong(key, "", format!("`{}` is not a known part; parts are {known}", policy.name));
            }
        }
    }

    fn tenant(&mut self, key: &ObjectKey, policy: &Policy) {
        let Some(TenantPart { tenant, order }) = self.read(key, policy) else { return };
        let Some(name) = tenant.get("name").and_then(Value::as_str).map(str::to_owned) else {
            return self.wrong(key, "/tenant/name", "the tenant has no name; add it");
        };
        if !self.tenant_names.insert(name.clone()) {
            return self.wrong(key, "/tenant/name", format!("another tenant is called `{name}`; rename one"));
        }
        let value = Value::Object(tenant);
        self.tenants.push(Placed { order, name, key: key.clone(), value, tenant: policy.tenant });
    }

    fn policy(&mut self, key: &ObjectKey, policy: &Policy) -> Option<(PolicyRank, PolicyOf)> {
        if !self.is_of_owner(key, policy) {
            return None;
        }
        let PolicyPart { policy: said, order } = self.read(key, policy)?;
        let Some(name) = said.get("name").and_then(Value::as_str).map(str::to_owned) else {
            self.wrong(key, "/policy/name", "the policy has no name; add it");
            return None;
        };
        let key = Arc::new(key.clone());
        let text = Arc::new(PolicyText::new(Value::Object(said)));
        let of = PolicyOf { key: Arc::clone(&key), tenant: policy.tenant, text };
        Some(((order, name, key), of))
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
                    format!("`{name}` is not a group of this part; labels belong to groups of the same part"),
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
                    let what = "is not a rule file; a rule file has rules as text, type ids and tenant 0";
                    self.wrong(key, &pointer, format!("group {} {what}", file.group));
                }
                None => self.wrong(key, &pointer, format!("there is no group {}; send it first", file.group)),
            }
        }
        let library = Library { files, choose: library.choose, except: library.except };
        self.libraries.insert(rule_file(name), library);
        self.places.libraries.insert(name.to_owned(), key.clone());
    }

    /// Checks that a policy applies to the tenant that owns it.
    fn check_owner(&mut self, PolicyOf { key, tenant, text }: &PolicyOf, names: &BTreeMap<u16, String>) {
        let said = text.json().get("tenant").and_then(Value::as_array).map(Vec::as_slice);
        let own = names.get(tenant);
        if !matches!((said, own), (Some([Value::String(said)]), Some(own)) if said == own) {
            let own = own.map_or_else(|| format!("{tenant}, which does not exist"), |own| format!("`{own}`"));
            let message = format!("a policy of tenant {own} must name this tenant and no other");
            self.wrong(key, "/policy/tenant", message);
        }
    }

    /// Checks that the names of groups contain their owner.
    fn check_groups(&mut self, names: &BTreeMap<u16, String>) {
        let mut wrong = Vec::new();
        for (name, key) in &self.places.groups {
            let owner = key.policy_name().and_then(|(tenant, _)| names.get(&tenant));
            let said = name.rsplit_once('@').map(|(_, tenant)| tenant);
            if said.is_none() || said != owner.map(String::as_str) {
                let message = format!("group `{name}` must have the name of its tenant after `@`");
                wrong.push((key.clone(), format!("/groups/{}", escaped(name)), message));
            }
        }
        wrong.into_iter().for_each(|(key, pointer, message)| self.wrong(&key, &pointer, message));
    }

    /// Checks that every rule group is a file of some library: a group that nothing runs must not be
    /// acknowledged.
    fn check_rule_groups(&mut self, held: &ControllerGeneration) {
        let files = self.libraries.values().flat_map(|library| &library.files);
        let used: BTreeSet<ObjectKey> = files.map(|(_, object)| object.key()).collect();
        let groups = held.objects.iter().filter(|(_, object)| matches!(object.as_ref(), Object::Group(_)));
        let unused: Vec<ObjectKey> =
            groups.filter(|(key, _)| !used.contains(*key)).map(|(key, _)| key.clone()).collect();
        for key in unused {
            let message = "no library of this generation has this rule group, so no function would run it; name it in the `files` of a library, or remove it";
            self.wrong(&key, "", message);
        }
    }

    /// Joins all parts other than policies.
    fn common(&mut self, held: &ControllerGeneration) -> JoinedParts {
        for (key, object) in &held.objects {
            match object.as_ref() {
                Object::Policy(policy) if own_policy(object).is_none() => {
                    self.part(key, policy, &held.objects);
                }
                _ => {}
            }
        }
        self.check_rule_groups(held);
        let mut tenants = core::mem::take(&mut self.tenants);
        let names = tenants.iter().map(|t| (t.tenant, t.name.clone())).collect();
        self.check_groups(&names);
        tenants.sort_by(|a, b| (a.order, &a.name).cmp(&(b.order, &b.name)));
        let mut places = core::mem::take(&mut self.places);
        let numbers = tenants.iter().map(|t| (t.name.clone(), t.tenant)).collect();
        places.tenants = tenants.iter().map(|t| t.key.clone()).collect();
        let rule_groups: Map<String, Value> =
            places.libraries.keys().map(|name| (name.clone(), json!([rule_file(name)]))).collect();
        let mut file = Map::new();
        file.insert("groups".to_owned(), Value::Object(core::mem::take(&mut self.groups)));
        if !self.labels.is_empty() {
            file.insert("labels".to_owned(), Value::Object(core::mem::take(&mut self.labels)));
        }
        self.dns.take().into_iter().for_each(|dns| drop(file.insert("dns".to_owned(), dns)));
        file.insert("rule-groups".to_owned(), Value::Object(rule_groups));
        file.insert("tenants".to_owned(), tenants.into_iter().map(|tenant| tenant.value).collect());
        let default = self.default.take().unwrap_or_else(|| json!({"action": "drop"}));
        file.insert("default".to_owned(), default);
        JoinedParts {
            file: Arc::new(Value::Object(file)),
            tenants: numbers,
            names,
            libraries: Arc::new(core::mem::take(&mut self.libraries)),
            places: Arc::new(places),
        }
    }
}

/// Name of a library's rule file in the policy file.
fn rule_file(library: &str) -> String {
    format!("{library}.rules")
}

fn is_rule_file(object: &Object) -> bool {
    matches!(
        object,
        Object::Group(RuleGroup { tenant: 0, rule_type: RuleType::Ids, rules: GroupRules::Raw(_), .. })
    )
}

/// Escapes a key for a JSON pointer (RFC 6901).
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

impl JoinedPolicy {
    /// Maps a problem in the file to its object. A problem without an object is reported on the default,
    /// which belongs to no tenant: the change of an accused tenant would be held back.
    #[must_use]
    pub fn diagnostic(&self, problem: &ConfigProblem) -> PolicyDiagnostic {
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
            ("policies", Some(n)) => {
                let key = n.parse::<usize>().ok().and_then(|n| self.policies.get(n));
                key.map(|key| (ObjectKey::clone(key), below("/policy", rest)))
            }
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
        PolicyDiagnostic { object, pointer, line: 0, column: 0, message: problem.message.clone() }
    }
}

#[cfg(test)]
mod tests;
