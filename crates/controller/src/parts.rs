// SPDX-License-Identifier: Apache-2.0
//! Parts: each document becomes one part of a policy file, and the device joins the parts
//! (docs/southbound.md). The joined file equals `render::policy_file`.
//!
//! A part depends on its document alone: any value in the place of a group's name is taken as a group of its
//! tenant, since nothing else is accepted there. So a document's name and generation identify its part, which
//! is made and hashed once for all generations and devices.

use crate::model::Model;
use crate::numbers;
use crate::render;
use crate::store::Document;
use bartizan_api::southbound::{
    GroupRules, Hash, Object, ObjectKey, Policy, PolicyMessage, RuleGroup, RuleType, SouthboundMessage,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The tenant number of objects that every device may read.
pub const EVERYBODY: u16 = 0;
/// Name of the part with the default for traffic that no policy matches.
pub const DEFAULT: &str = "@default";
/// Name of the part with the resolvers that are trusted for DNS names.
pub const DNS: &str = "@dns";
/// Prefix of the names of libraries' parts.
pub const LIBRARY: &str = "@library/";

/// An object with its key, hash and dependencies.
#[derive(Debug)]
pub struct DocumentPart {
    /// The object's key.
    pub key: ObjectKey,
    /// The object.
    pub object: Arc<Object>,
    /// The object's hash.
    pub hash: Hash,
    /// The library that a policy names, or the rule files of a library.
    pub needs: Vec<String>,
}

impl DocumentPart {
    fn new(object: Object, needs: Vec<String>) -> Self {
        DocumentPart { key: object.key(), hash: object.hash(), object: Arc::new(object), needs }
    }

    fn policy(tenant: u16, name: String, document: &Value, needs: Vec<String>) -> Self {
        DocumentPart::new(Object::Policy(Policy { name, tenant, text: document.to_string() }), needs)
    }
}

/// The part of a tenant.
#[must_use]
pub fn tenant(number: u16, document: &Document) -> DocumentPart {
    let says = json!({
        "tenant": render::tenant(&document.id, &document.body), "order": render::order(&document.body),
    });
    DocumentPart::policy(number, "@tenant".to_owned(), &says, Vec::new())
}

/// The part of a tenant's group; `groups`: all groups of the tenant, in the form of the policy file.
#[must_use]
pub fn group(
    number: u16,
    owner: &str,
    document: &Document,
    groups: &BTreeMap<String, Value>,
) -> DocumentPart {
    let name = own_name(document);
    let full = render::group_name(owner, name);
    let members = groups.get(&full).cloned().unwrap_or_default();
    let mut says = json!({ "groups": { &full: members } });
    if let (Some(labels), Some(says)) = (render::own_labels(owner, &document.body), says.as_object_mut()) {
        says.insert("labels".to_owned(), json!({ full: labels }));
    }
    DocumentPart::policy(number, format!("@group/{name}"), &says, Vec::new())
}

/// The part of a tenant's policy.
#[must_use]
pub fn policy(
    number: u16,
    owner: &str,
    document: &Document,
    groups: &BTreeMap<String, Value>,
) -> DocumentPart {
    let policy = render::policy(owner, &document.id, &document.body, groups);
    let needs = render::library_of(&policy).map(str::to_owned).into_iter().collect();
    let says = json!({ "policy": policy, "order": render::order(&document.body) });
    DocumentPart::policy(number, own_name(document).to_owned(), &says, needs)
}

/// The part with the default for traffic that no policy matches.
#[must_use]
pub fn default(model: &Model) -> DocumentPart {
    default_of(&render::default(model))
}

/// The part of a default as written.
fn default_of(document: &Value) -> DocumentPart {
    let needs = render::library_of(document).map(str::to_owned).into_iter().collect();
    DocumentPart::policy(EVERYBODY, DEFAULT.to_owned(), &json!({ "default": document }), needs)
}

/// The part with the resolvers that are trusted for DNS names.
#[must_use]
pub fn dns(document: &Document) -> DocumentPart {
    DocumentPart::policy(EVERYBODY, DNS.to_owned(), &json!({ "dns": document.body }), Vec::new())
}

/// The part with a library's choice of rules; `numbered` has the numbers of rule files.
#[must_use]
pub fn library(numbered: &Model, document: &Document) -> DocumentPart {
    let of = |key: &str| document.body.get(key).cloned().unwrap_or_else(|| json!([]));
    let hashes: Vec<String> = match of("files") {
        Value::Array(all) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    let file = |hash: &String| json!({ "group": numbers::rule_file(numbered, hash), "sha256": hash });
    let files: Vec<Value> = hashes.iter().map(file).collect();
    let says = json!({ "library": { "files": files, "choose": of("choose"), "except": of("except") } });
    DocumentPart::policy(EVERYBODY, format!("{LIBRARY}{}", document.id), &says, hashes)
}

/// The part of a rule file, split at line feeds, so that joining restores every byte.
#[must_use]
pub fn rule_file(number: u32, document: &Document) -> DocumentPart {
    let text = document.body.get("text").and_then(Value::as_str).unwrap_or_default();
    let rules = GroupRules::Raw(text.split('\n').map(str::to_owned).collect());
    DocumentPart::new(
        Object::Group(RuleGroup { id: number, tenant: EVERYBODY, rule_type: RuleType::Ids, rules }),
        Vec::new(),
    )
}

/// Why a part cannot be sent: it is larger than a message.
#[must_use]
pub fn too_long(part: &DocumentPart) -> Option<String> {
    let Object::Policy(policy) = part.object.as_ref() else { return None };
    let message = SouthboundMessage::Policy(u64::MAX, PolicyMessage::Put(policy.clone()));
    let error = message.encode(1).err()?;
    Some(format!("it is too long for devices: {error}; split it"))
}

/// Why a tenant, library or setting with this body cannot be sent; `None` if it can.
#[must_use]
pub fn unsendable(model: &Model, kind: &str, id: &str, body: &Value) -> Option<String> {
    let document = Document { kind: kind.to_owned(), id: id.to_owned(), generation: 0, body: body.clone() };
    too_long(&match (kind, id) {
        (render::LIBRARIES, _) => library(model, &document),
        (render::SETTINGS, render::DEFAULT) => default_of(body),
        (render::SETTINGS, _) => dns(&document),
        _ => tenant(u16::MAX, &document),
    })
}

fn own_name(document: &Document) -> &str {
    document.id.rsplit('/').next().unwrap_or(&document.id)
}
