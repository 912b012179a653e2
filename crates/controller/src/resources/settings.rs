// SPDX-License-Identifier: Apache-2.0
//! Settings of all devices: the default for traffic that no policy matches, and the resolvers that are
//! trusted for DNS names.

use super::document::{Context, DocumentKind, NoStatus};
use super::policies::{chain, sections};
use super::{effects, inventory};
use crate::access::Need;
use crate::device::Touched;
use crate::parts;
use crate::problem::{Fault, Refusal};
use crate::render;
use bartizan_config::policy::{self, DefaultPolicy, DnsSection, PolicyError, PolicyFile, read};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// The body is `default` or `dns` of a policy file. Its reader checks the functions' sections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Setting(Map<String, Value>);

impl JsonSchema for Setting {
    fn schema_name() -> Cow<'static, str> {
        "SettingSpec".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = DefaultPolicy::json_schema(generator);
        schema.remove("additionalProperties");
        // A key without a value is ignored where the value would be an object.
        let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
        for (_, of) in
            properties.into_iter().flatten().filter(|(key, _)| *key == "overload" || *key == "bypass")
        {
            *of = json!({ "anyOf": [of.clone(), { "type": "null" }] });
        }
        let dns = DnsSection::json_schema(generator);
        json_schema!({
            "description": "For the setting `default`: the action for traffic that no policy matches. For `dns`: the resolvers whose answers determine the addresses of DNS names.",
            "anyOf": [schema, dns],
        })
    }
}

/// Faults of the functions' sections in the default: the faults of a policy that names no groups.
fn default_sections(context: &Context<'_>, functions: &[&str]) -> Vec<Fault> {
    let mut policy = context.body.clone();
    if let Some(policy) = policy.as_object_mut() {
        policy.remove("action");
        policy.insert("name".to_owned(), json!(render::DEFAULT));
        policy.entry("chain").or_insert_with(|| json!([]));
    }
    let file = json!({
        "rule-groups": render::rule_groups(context.model),
        "policies": [policy],
        "default": { "action": "drop" },
    });
    // The keys of the default itself were checked before.
    let file = policy::from_node("settings", read::from_json(&file), functions).ok();
    let of = |file: &PolicyFile| sections(context, file, "").into_iter().map(|(_, fault)| fault).collect();
    file.as_ref().map(of).unwrap_or_default()
}

/// The names of settings.
const NAMES: &[&str] = &[render::DEFAULT, render::DNS];

/// The resource of settings.
pub struct SettingKind;

impl DocumentKind for SettingKind {
    const KIND: &'static str = render::SETTINGS;
    const PATH: &'static str = "/v1/settings";
    const ONE: &'static str = "setting";
    const READ: Need = Need::Read;
    const WRITE: Need = Need::Admin;
    type Spec = Setting;
    type Status = NoStatus;

    fn check(context: &Context<'_>, _: &Setting) -> Vec<Fault> {
        let own = format!("/{}", context.name);
        let mut file = json!({ "default": { "action": "drop" } });
        if let Some(file) = file.as_object_mut() {
            file.insert(context.name.to_owned(), context.body.clone());
        }
        let functions: Vec<&str> = context.functions.iter().map(String::as_str).collect();
        if !NAMES.contains(&context.name) {
            // `room` refuses other names, with the list of settings.
            return Vec::new();
        }
        match policy::from_node("settings", read::from_json(&file), &functions) {
            Ok(file) => {
                let mut faults = chain(context, &file.default.chain, "/chain");
                if context.name == render::DEFAULT {
                    faults.extend(default_sections(context, &functions));
                    faults.extend(inventory::named::<Self>(context).faults);
                }
                let long = parts::unsendable(context.model, Self::KIND, context.name, context.body);
                faults.extend(long.map(|message| Fault::new("", message)));
                faults
            }
            Err(PolicyError::Wrong { problems, .. }) => {
                let moved = |problem| {
                    let fault = Fault::of("", problem);
                    let pointer = fault.pointer.strip_prefix(&own).unwrap_or_default().to_owned();
                    Fault { pointer, ..fault }
                };
                problems.iter().map(moved).collect()
            }
            Err(other) => vec![Fault::new("", other.to_string())],
        }
    }

    fn room(context: &Context<'_>) -> Result<(), Refusal> {
        if NAMES.contains(&context.name) {
            return Ok(());
        }
        let message = format!("there is no setting `{}`; there are `{}`", context.name, NAMES.join("`, `"));
        Err(Refusal::NotFound(message))
    }

    fn notes(context: &Context<'_>, removed: bool) -> Vec<String> {
        match (removed, context.name) {
            (false, render::DEFAULT) => inventory::named::<Self>(context).notes,
            (true, render::DEFAULT) => effects::of_default_gone(context),
            _ => Vec::new(),
        }
    }

    fn touched(_: &Context<'_>) -> Touched {
        Touched::All
    }
}
