// SPDX-License-Identifier: Apache-2.0
//! Settings of the whole: what traffic gets that no policy names.

use super::document::{Context, Kind, NoStatus};
use crate::access::Need;
use crate::device::Touched;
use crate::problem::{Fault, Refusal};
use crate::render;
use bartizan_config::policy::{self, DefaultPolicy, PolicyError, read};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// `default` of a policy file. The functions' sections are read by its reader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Setting(Map<String, Value>);

impl JsonSchema for Setting {
    fn schema_name() -> Cow<'static, str> {
        "Setting".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = DefaultPolicy::json_schema(generator);
        schema.remove("additionalProperties");
        // A key with nothing behind it says nothing, where what it stands for has keys itself.
        let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
        for (_, of) in
            properties.into_iter().flatten().filter(|(key, _)| *key == "overload" || *key == "bypass")
        {
            *of = json!({ "anyOf": [of.clone(), { "type": "null" }] });
        }
        schema
    }
}

/// The kind.
pub struct SettingKind;

impl Kind for SettingKind {
    const KIND: &'static str = render::SETTINGS;
    const PATH: &'static str = "/v1/settings";
    const ONE: &'static str = "setting";
    const READ: Need = Need::Read;
    const WRITE: Need = Need::Admin;
    type Spec = Setting;
    type Status = NoStatus;

    fn check(context: &Context<'_>, _: &Setting) -> Vec<Fault> {
        let file = json!({ "default": context.body });
        let functions: Vec<&str> = context.functions.iter().map(String::as_str).collect();
        match policy::from_node("default", read::from_json(&file), &functions) {
            Ok(_) => Vec::new(),
            Err(PolicyError::Wrong { problems, .. }) => {
                let own = |problem| {
                    let fault = Fault::of("", problem);
                    let pointer = fault.pointer.strip_prefix("/default").unwrap_or_default().to_owned();
                    Fault { pointer, ..fault }
                };
                problems.iter().map(own).collect()
            }
            Err(other) => vec![Fault::new("", other.to_string())],
        }
    }

    fn room(context: &Context<'_>) -> Result<(), Refusal> {
        if context.name == render::DEFAULT {
            return Ok(());
        }
        let message = format!("there is no setting `{}`; there is `{}`", context.name, render::DEFAULT);
        Err(Refusal::NotFound(message))
    }

    fn touched(_: &Context<'_>) -> Touched {
        Touched::All
    }
}
