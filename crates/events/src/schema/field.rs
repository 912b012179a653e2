// SPDX-License-Identifier: Apache-2.0
//! A field of an event: its path, type and meaning.

use serde_json::{Value, json};

/// The type of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventFieldType {
    /// A whole number.
    Integer,
    /// A number, possibly with a fraction.
    Number,
    /// Text.
    Text,
    /// A time: `2018-10-10T09:24:31.516380+0000`.
    Time,
    /// True or false.
    Boolean,
    /// An object whose fields are in the table.
    Object,
    /// An object whose fields are not in the table (yet), or whose names come from traffic or rules.
    Open,
    /// An object with free names and whole numbers as values.
    Integers,
    /// A list of texts.
    Texts,
    /// A list of whole numbers.
    IntegerList,
    /// A list of objects whose fields are in the table.
    Objects,
    /// A list of objects with free names.
    OpenObjects,
}

/// One field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventField {
    /// Dotted path; items of lists have their list's path.
    pub path: &'static str,
    /// Type of the value.
    pub kind: EventFieldType,
    /// Meaning of the field.
    pub description: &'static str,
}

impl EventFieldType {
    /// Name of the type on the reference page.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            EventFieldType::Integer => "integer",
            EventFieldType::Number => "number",
            EventFieldType::Text => "string",
            EventFieldType::Time => "time",
            EventFieldType::Boolean => "boolean",
            EventFieldType::Object | EventFieldType::Open | EventFieldType::Integers => "object",
            EventFieldType::Texts => "list of strings",
            EventFieldType::IntegerList => "list of integers",
            EventFieldType::Objects | EventFieldType::OpenObjects => "list of objects",
        }
    }

    pub(super) fn schema(self) -> Value {
        match self {
            EventFieldType::Integer => json!({"type": "integer", "minimum": 0}),
            EventFieldType::Number => json!({"type": "number"}),
            EventFieldType::Text => json!({"type": "string"}),
            EventFieldType::Time => json!({
                "type": "string",
                "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}[+-]\d{4}$",
            }),
            EventFieldType::Boolean => json!({"type": "boolean"}),
            EventFieldType::Object => {
                json!({"type": "object", "additionalProperties": false, "properties": {}})
            }
            EventFieldType::Open => json!({"type": "object"}),
            EventFieldType::Integers => {
                json!({"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}})
            }
            EventFieldType::Texts => json!({"type": "array", "items": {"type": "string"}}),
            EventFieldType::IntegerList => {
                json!({"type": "array", "items": {"type": "integer", "minimum": 0}})
            }
            EventFieldType::Objects => json!({"type": "array", "items": EventFieldType::Object.schema()}),
            EventFieldType::OpenObjects => json!({"type": "array", "items": EventFieldType::Open.schema()}),
        }
    }

    pub(super) fn fits(self, value: &Value) -> bool {
        let all = |test: fn(&Value) -> bool| value.as_array().is_some_and(|items| items.iter().all(test));
        match self {
            EventFieldType::Integer => value.is_u64(),
            EventFieldType::Number => value.is_number(),
            EventFieldType::Text => value.is_string(),
            EventFieldType::Time => value.as_str().is_some_and(is_time),
            EventFieldType::Boolean => value.is_boolean(),
            EventFieldType::Object | EventFieldType::Open => value.is_object(),
            EventFieldType::Integers => value.as_object().is_some_and(|map| map.values().all(Value::is_u64)),
            EventFieldType::Texts => all(Value::is_string),
            EventFieldType::IntegerList => all(Value::is_u64),
            EventFieldType::Objects | EventFieldType::OpenObjects => all(Value::is_object),
        }
    }
}

fn is_time(text: &str) -> bool {
    let shape = "dddd-dd-ddTdd:dd:dd.dddddd+dddd";
    text.len() == shape.len()
        && text.bytes().zip(shape.bytes()).all(|(byte, wanted)| match wanted {
            b'd' => byte.is_ascii_digit(),
            b'+' => byte == b'+' || byte == b'-',
            other => byte == other,
        })
}
