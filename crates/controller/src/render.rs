// SPDX-License-Identifier: Apache-2.0
//! Renders the policy file of a device: the documents of a generation, of the tenants that the device serves.
//!
//! Names of policies and groups contain their tenant (policy `acme/web`, group `lan@acme`), so that names of
//! different tenants never collide. Nothing is translated here: agents derive the rules.

use crate::model::Model;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The document kind of tenants.
pub const TENANTS: &str = "tenants";
/// The document kind of policies.
pub const POLICIES: &str = "policies";
/// The document kind of groups of addresses.
pub const GROUPS: &str = "groups";
/// The document kind of rule libraries.
pub const LIBRARIES: &str = "libraries";
/// The document kind of rule files' descriptions.
pub const RULE_FILES: &str = "rule-files";
/// The key of the original name of a rule file.
pub const FILE_NAME: &str = "file-name";
/// The document kind of rule files' texts.
pub const RULE_TEXTS: &str = "rule-texts";
/// The document kind of settings.
pub const SETTINGS: &str = "settings";
/// The setting for traffic that no policy matches.
pub const DEFAULT: &str = "default";
/// The setting with the resolvers that are trusted for DNS names.
pub const DNS: &str = "dns";

/// The order of a tenant or policy without one.
pub const ORDER: u64 = 100;

/// The label with the tenant of a group: label selectors of a policy match groups of its own tenant only. No
/// label of a tenant begins with `@`.
pub(crate) const OWNER: &str = "@tenant";

/// Keys whose values name groups.
const TARGETS: &[&str] = &["from", "to"];

/// The order in which a tenant or policy is tried.
pub(crate) fn order(body: &Value) -> u64 {
    body.get("order").and_then(Value::as_u64).unwrap_or(ORDER)
}

/// A tenant's group name in the policy file: it begins with a letter, as group names must, and contains a
/// character that no name of the API has.
pub(crate) fn group_name(tenant: &str, name: &str) -> String {
    format!("{name}@{tenant}")
}

/// Adds the tenant to names of groups, wherever targets occur. A name that is no group of the tenant stays,
/// so that the reader of the file reports it as unknown.
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
            // Names of labels are not groups.
            for (key, value) in pairs.iter_mut().filter(|(key, _)| !(target && *key == "label")) {
                qualify(value, tenant, groups, TARGETS.contains(&key.as_str()));
            }
        }
        _ => {}
    }
}

/// The groups of a tenant, in the form of the policy file.
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

/// The labels of a group as written; empty without any.
pub(crate) fn labels(body: &Value) -> Map<String, Value> {
    body.get("labels").and_then(Value::as_object).cloned().unwrap_or_default()
}

/// The labels of a tenant's group, in the form of the policy file.
pub(crate) fn own_labels(tenant: &str, body: &Value) -> Option<Value> {
    let mut labels = labels(body);
    if labels.is_empty() {
        return None;
    }
    labels.insert(OWNER.to_owned(), json!(tenant));
    Some(Value::Object(labels))
}

/// Quotas of a tenant that devices enforce; the controller enforces the others.
const DEVICE_QUOTAS: &[&str] = &["flows", "rules", "alerts-per-second", "state-bytes"];

/// A tenant in the form of the policy file.
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

/// A policy in the form of the policy file, with its name and tenant.
#[must_use]
pub fn policy(owner: &str, id: &str, body: &Value, groups: &BTreeMap<String, Value>) -> Value {
    let mut policy = as_written(owner, id, body);
    qualify(&mut policy, owner, groups, false);
    policy
}

/// A policy with its name and tenant, and groups under the tenant's own names.
pub(crate) fn as_written(owner: &str, id: &str, body: &Value) -> Value {
    let mut policy = body.get("policy").cloned().unwrap_or(Value::Null);
    if let Some(object) = policy.as_object_mut() {
        object.insert("name".to_owned(), json!(id));
        object.insert("tenant".to_owned(), json!([owner]));
    }
    policy
}

/// The default for traffic that no policy matches; drop, if no document sets one.
pub(crate) fn default(model: &Model) -> Value {
    let said = model.get(SETTINGS, DEFAULT).map(|document| document.body.clone());
    said.unwrap_or_else(|| json!({ "action": "drop" }))
}

/// The setting of resolvers that are trusted for DNS names, if there is one.
pub(crate) fn dns(model: &Model) -> Option<Value> {
    model.get(SETTINGS, DNS).map(|document| document.body.clone())
}

/// The rule groups that policies can name: one for each library; its rule file lies beside the policy file.
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
    // Empty keys are left out: older devices do not know them.
    let labels = (!labels.is_empty()).then_some(Value::Object(labels));
    for (key, said) in [("labels", labels), ("dns", dns(model))] {
        if let (Some(said), Some(file)) = (said, file.as_object_mut()) {
            file.insert(key.to_owned(), said);
        }
    }
    file
}

/// The display name of a rule file: its original name, or the beginning of its hash and the libraries that
/// contain it.
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

/// Replaces hashes of rule files in a device's text by their display names.
#[must_use]
pub fn with_files_shown(model: &Model, text: &str) -> String {
    const HASH: usize = 64;
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.as_bytes().windows(HASH).position(|bytes| bytes.iter().all(is_digit)) {
        // All of these bytes are digits, so the bounds are character boundaries.
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
