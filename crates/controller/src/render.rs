// SPDX-License-Identifier: Apache-2.0
//! What a device is given: the documents of a generation as a policy file, of the tenants that it serves
//! only.
//!
//! Names of policies and groups have their tenant in them (policy `acme/web`, group `lan@acme`), so that
//! tenants cannot meet by a name. Nothing is translated here: which rules come of it is for the agent to say.

use crate::model::Model;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The kinds of documents that a policy file is made of.
pub const TENANTS: &str = "tenants";
/// Policies.
pub const POLICIES: &str = "policies";
/// Groups of addresses.
pub const GROUPS: &str = "groups";
/// Rule libraries.
pub const LIBRARIES: &str = "libraries";
/// Rule files: what is in them.
pub const RULE_FILES: &str = "rule-files";
/// The key of a rule file's name where it came from.
pub const FILE_NAME: &str = "file-name";
/// Their texts.
pub const RULE_TEXTS: &str = "rule-texts";
/// Settings of the whole: what traffic gets that no policy names.
pub const SETTINGS: &str = "settings";
/// The name of that setting.
pub const DEFAULT: &str = "default";
/// The setting that says whose answers tell which addresses DNS names have.
pub const DNS: &str = "dns";

/// The order of a tenant or policy that does not say one.
pub const ORDER: u64 = 100;

/// The label that says whose a group is: what a policy asks for by labels is among its own tenant's groups.
/// No label of a tenant begins so.
pub(crate) const OWNER: &str = "@tenant";

/// Keys whose values name groups.
const TARGETS: &[&str] = &["from", "to"];

/// In which order it is tried.
pub(crate) fn order(body: &Value) -> u64 {
    body.get("order").and_then(Value::as_u64).unwrap_or(ORDER)
}

/// A tenant's group as the file calls it: a name that begins as a group's has to, with a sign that no name
/// here has.
pub(crate) fn group_name(tenant: &str, name: &str) -> String {
    format!("{name}@{tenant}")
}

/// Puts the tenant behind the names of groups, wherever targets stand. A name that is no group of the tenant
/// stays, so that whoever reads the file says that it is not known.
pub(crate) fn qualify(value: &mut Value, tenant: &str, groups: &BTreeMap<String, Value>, target: bool) {
    match value {
        Value::String(text) if target => {
            let own = group_name(tenant, text);
            if groups.contains_key(&own) {
                *text = own;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| qualify(item, tenant, groups, target)),
        Value::Object(pairs) => {
            if target && let Some(asked) = pairs.get_mut("label").and_then(Value::as_object_mut) {
                asked.insert(OWNER.to_owned(), json!(tenant));
            }
            // What labels are called is nobody's group.
            for (key, value) in pairs.iter_mut().filter(|(key, _)| !(target && *key == "label")) {
                qualify(value, tenant, groups, TARGETS.contains(&key.as_str()));
            }
        }
        _ => {}
    }
}

/// The groups of a tenant as the file has them.
#[must_use]
pub fn groups(model: &Model, tenant: &str) -> BTreeMap<String, Value> {
    let prefix = format!("{tenant}/");
    let raw = |body: &Value| body.get("members").cloned().unwrap_or(Value::Array(Vec::new()));
    let named = |id: &str| group_name(tenant, id.strip_prefix(&prefix).unwrap_or(id));
    let own = model.list(GROUPS, &prefix, None);
    let all: BTreeMap<_, _> = own.map(|document| (named(&document.id), raw(&document.body))).collect();
    let mut qualified = all.clone();
    for members in qualified.values_mut() {
        qualify(members, tenant, &all, true);
    }
    qualified
}

/// The labels that a group carries as it was written; nothing if it carries none.
pub(crate) fn labels(body: &Value) -> Map<String, Value> {
    body.get("labels").and_then(Value::as_object).cloned().unwrap_or_default()
}

/// The labels of a group of a tenant as the file has them.
pub(crate) fn own_labels(tenant: &str, body: &Value) -> Option<Value> {
    let mut labels = labels(body);
    if labels.is_empty() {
        return None;
    }
    labels.insert(OWNER.to_owned(), json!(tenant));
    Some(Value::Object(labels))
}

/// What devices keep of a tenant's quotas; the others are the controller's.
const DEVICE_QUOTAS: &[&str] = &["flows", "rules", "alerts-per-second", "state-bytes"];

/// A tenant as the file has it.
#[must_use]
pub fn tenant(id: &str, body: &Value) -> Value {
    let mut tenant = json!({ "name": id, "select": body.get("select").cloned().unwrap_or(Value::Null) });
    for key in ["vars", "resolvers"] {
        if let (Some(said), Some(object)) = (body.get(key).filter(|v| !v.is_null()), tenant.as_object_mut()) {
            object.insert(key.to_owned(), said.clone());
        }
    }
    let said = body.get("quotas").and_then(Value::as_object).into_iter().flatten();
    let own: Map<String, Value> = said
        .filter(|(name, value)| DEVICE_QUOTAS.contains(&name.as_str()) && !value.is_null())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if let (false, Some(object)) = (own.is_empty(), tenant.as_object_mut()) {
        object.insert("quotas".to_owned(), Value::Object(own));
    }
    tenant
}

/// A policy as the file has it: what it says, with its name and tenant.
#[must_use]
pub fn policy(owner: &str, id: &str, body: &Value, groups: &BTreeMap<String, Value>) -> Value {
    let mut policy = as_written(owner, id, body);
    qualify(&mut policy, owner, groups, false);
    policy
}

/// The same, its groups called as the tenant calls them.
pub(crate) fn as_written(owner: &str, id: &str, body: &Value) -> Value {
    let mut policy = body.get("policy").cloned().unwrap_or(Value::Null);
    if let Some(object) = policy.as_object_mut() {
        object.insert("name".to_owned(), json!(id));
        object.insert("tenant".to_owned(), json!([owner]));
    }
    policy
}

/// What traffic gets that no policy names, unless a document says something else: nothing goes on.
pub(crate) fn default(model: &Model) -> Value {
    let said = model.get(SETTINGS, DEFAULT).map(|document| document.body.clone());
    said.unwrap_or_else(|| json!({ "action": "drop" }))
}

/// Whose answers say which addresses DNS names have, if that was said.
pub(crate) fn dns(model: &Model) -> Option<Value> {
    model.get(SETTINGS, DNS).map(|document| document.body.clone())
}

/// The rule groups that policies can name: one for each library, its file beside the policy file.
#[must_use]
pub fn rule_groups(model: &Model) -> Map<String, Value> {
    let group = |id: &String| (id.clone(), json!([format!("{id}.rules")]));
    model.all(LIBRARIES).map(|document| group(&document.id)).collect()
}

/// The library that a policy, or the default, names.
pub(crate) fn library_of(policy: &Value) -> Option<&str> {
    policy.pointer("/ids/level").and_then(Value::as_str).filter(|level| *level != "none")
}

/// The policy file of a generation for a device that serves some tenants.
#[must_use]
pub fn policy_file(model: &Model, serves: impl Fn(&str) -> bool) -> Value {
    let mut tenants: Vec<_> = model.all(TENANTS).filter(|document| serves(&document.id)).collect();
    tenants.sort_by_key(|document| (order(&document.body), &document.id));
    let (mut all_groups, mut labels) = (Map::new(), Map::new());
    let mut policies = Vec::new();
    for owner in &tenants {
        let groups = groups(model, &owner.id);
        let prefix = format!("{}/", owner.id);
        let own: Vec<_> = model.list(POLICIES, &prefix, None).collect();
        policies.extend(
            own.iter().map(|p| (order(&p.body), p.id.clone(), policy(&owner.id, &p.id, &p.body, &groups))),
        );
        all_groups.extend(groups);
        for group in model.list(GROUPS, &prefix, None) {
            let name = group_name(&owner.id, group.id.strip_prefix(&prefix).unwrap_or(&group.id));
            labels.extend(own_labels(&owner.id, &group.body).map(|carried| (name, carried)));
        }
    }
    let default = default(model);
    let levels = policies.iter().map(|(.., policy)| policy).chain([&default]).filter_map(library_of);
    let named: BTreeSet<String> = levels.map(str::to_owned).collect();
    let mut libraries = rule_groups(model);
    libraries.retain(|name, _| named.contains(name));
    policies.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    let policies: Vec<Value> = policies.into_iter().map(|(.., policy)| policy).collect();
    let tenants: Vec<Value> = tenants.iter().map(|document| tenant(&document.id, &document.body)).collect();
    let mut file = json!({
        "groups": all_groups,
        "rule-groups": libraries,
        "tenants": tenants,
        "policies": policies,
        "default": default,
    });
    // What says nothing is left out: devices of before know no such keys.
    let labels = (!labels.is_empty()).then_some(Value::Object(labels));
    for (key, said) in [("labels", labels), ("dns", dns(model))] {
        if let (Some(said), Some(file)) = (said, file.as_object_mut()) {
            file.insert(key.to_owned(), said);
        }
    }
    file
}

/// The name of a rule file for people: the name it came with, else the beginning of its hash and the
/// libraries that have it.
#[must_use]
pub fn file_shown(model: &Model, hash: &str) -> String {
    const DIGITS: usize = 12;
    let name = model.get(RULE_FILES, hash).and_then(|file| file.body.get(FILE_NAME)?.as_str());
    if let Some(name) = name {
        return name.to_owned();
    }
    let has = |body: &Value| {
        body.get("files").and_then(Value::as_array).is_some_and(|files| files.iter().any(|file| file == hash))
    };
    let libraries = model.all(LIBRARIES).filter(|library| has(&library.body));
    let libraries: Vec<String> = libraries.take(4).map(|library| format!("`{}`", library.id)).collect();
    let digits = hash.get(..DIGITS).unwrap_or(hash);
    match libraries.is_empty() {
        true => format!("{digits}..."),
        false => format!("{digits}... of {}", libraries.join(", ")),
    }
}

/// A text of a device in which rule files are called by their hashes, with what they are called for people.
#[must_use]
pub fn with_files_shown(model: &Model, text: &str) -> String {
    const HASH: usize = 64;
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.as_bytes().windows(HASH).position(|bytes| bytes.iter().all(is_digit)) {
        // All of it are digits: these are the bounds of letters.
        let (Some(before), Some(hash), Some(behind)) =
            (rest.get(..at), rest.get(at..at + HASH), rest.get(at + HASH..))
        else {
            break;
        };
        shown.push_str(before);
        match model.get(RULE_FILES, hash) {
            Some(_) => shown.push_str(&file_shown(model, hash)),
            None => shown.push_str(hash),
        }
        rest = behind;
    }
    shown + rest
}
