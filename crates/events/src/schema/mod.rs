// SPDX-License-Identifier: Apache-2.0
//! The schema of events: one table of fields, and from it the JSON schema, the reference page and the check
//! that tests apply to every event.
//!
//! The table ([`FIELDS`]) has every field that this crate writes. The crates of the parsers describe the
//! objects of application protocols and pass their own tables to the same functions; as long as no table
//! names fields below an object of kind [`EventFieldType::Open`], any field is valid there.

mod fields;

pub use fields::FIELDS;

use serde_json::{Map, Value, json};

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

    fn schema(self) -> Value {
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

    fn fits(self, value: &Value) -> bool {
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

/// JSON schema (draft 2020-12) of all events that the tables describe.
#[must_use]
pub fn json_schema(tables: &[&[EventField]]) -> Value {
    let mut root = Map::new();
    for field in tables.iter().flat_map(|table| table.iter()) {
        let mut properties = &mut root;
        let mut parts = field.path.split('.').peekable();
        while let Some(part) = parts.next() {
            let entry = properties.entry(part).or_insert_with(|| EventFieldType::Object.schema());
            if parts.peek().is_none() {
                merge(entry, field);
                break;
            }
            let object = if entry.get("items").is_some() { entry.get_mut("items") } else { Some(entry) };
            let Some(inner) = object.and_then(Value::as_object_mut) else { break };
            let inner = inner.entry("properties").or_insert_with(|| json!({}));
            let Some(next) = inner.as_object_mut() else { break };
            properties = next;
        }
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Bartizan event",
        "description": "One line of the event log. Names and types are Suricata's; Bartizan's own fields are under `bartizan`. A value that is not known is left out, never null.",
        "type": "object",
        "required": ["timestamp", "event_type"],
        "additionalProperties": false,
        "properties": root,
    })
}

/// Sets type and description; keeps properties that were described before their object.
fn merge(entry: &mut Value, field: &EventField) {
    let inner = entry.get("properties").cloned();
    *entry = field.kind.schema();
    if let (Some(map), Some(inner)) = (entry.as_object_mut(), inner)
        && field.kind == EventFieldType::Object
    {
        map.insert("properties".to_owned(), inner);
    }
    if let Some(map) = entry.as_object_mut() {
        map.insert("description".to_owned(), field.description.into());
    }
}

/// The reference page: every field with type and meaning, in the table's order.
#[must_use]
pub fn reference_page(tables: &[&[EventField]]) -> String {
    let mut page = String::from(
        "# Fields of events\n\n\
         <!-- Generated from the table of fields in crate events; do not edit. -->\n\n\
         Every line of the event log is a JSON object. Names and types are Suricata's; Bartizan's own fields are\n\
         under `bartizan`. A value that is not known is left out, never null. Machine-readable: `eve-schema.json`.\n\n\
         | field | type | meaning |\n|---|---|---|\n",
    );
    for field in tables.iter().flat_map(|table| table.iter()) {
        page.push_str(&format!("| `{}` | {} | {} |\n", field.path, field.kind.name(), field.description));
    }
    page
}

/// Checks an event against this crate's table.
///
/// # Errors
/// One text per faulty field: an unknown key, a wrong type, a null.
pub fn check(event: &Value) -> Result<(), Vec<String>> {
    check_with(&[FIELDS], event)
}

/// Checks an event against tables.
///
/// # Errors
/// One text per faulty field: an unknown key, a wrong type, a null.
pub fn check_with(tables: &[&[EventField]], event: &Value) -> Result<(), Vec<String>> {
    let mut faults = Vec::new();
    let Some(map) = event.as_object() else { return Err(vec!["the event is no object".to_owned()]) };
    for key in ["timestamp", "event_type"] {
        if !map.contains_key(key) {
            faults.push(format!("`{key}` is missing"));
        }
    }
    check_object(tables, "", map, false, &mut faults);
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

fn find(tables: &[&[EventField]], path: &str) -> Option<EventField> {
    tables.iter().flat_map(|table| table.iter()).find(|field| field.path == path).copied()
}

fn check_object(
    tables: &[&[EventField]],
    prefix: &str,
    map: &Map<String, Value>,
    open: bool,
    faults: &mut Vec<String>,
) {
    for (key, value) in map {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        check_value(tables, &path, value, open, faults);
    }
}

fn check_value(tables: &[&[EventField]], path: &str, value: &Value, open: bool, faults: &mut Vec<String>) {
    if value.is_null() {
        faults.push(format!("`{path}` is null"));
        return;
    }
    let kind = match find(tables, path) {
        Some(field) if !field.kind.fits(value) => {
            faults.push(format!("`{path}` is {value}, not of type {}", field.kind.name()));
            return;
        }
        Some(field) => Some(field.kind),
        None if open => None,
        None => {
            faults.push(format!("`{path}` is not in the table of fields"));
            return;
        }
    };
    let free = !matches!(kind, Some(EventFieldType::Object | EventFieldType::Objects));
    match value {
        Value::Object(map) => check_object(tables, path, map, free, faults),
        Value::Array(items) => {
            for item in items {
                match item {
                    Value::Object(map) => check_object(tables, path, map, free, faults),
                    Value::Null => faults.push(format!("`{path}` has a null item")),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_field_once_below_an_object() {
        for (index, field) in FIELDS.iter().enumerate() {
            assert!(
                !FIELDS[index + 1..].iter().any(|other| other.path == field.path),
                "{} twice",
                field.path
            );
            assert!(field.description.ends_with('.'), "{}: a sentence", field.path);
            assert!(!field.description.contains('|'), "{}: breaks the page", field.path);
            if let Some((parent, _)) = field.path.rsplit_once('.') {
                let parent =
                    find(&[FIELDS], parent).unwrap_or_else(|| panic!("{} has no parent", field.path));
                assert!(
                    matches!(
                        parent.kind,
                        EventFieldType::Object | EventFieldType::Objects | EventFieldType::Open
                    ),
                    "{} below a {}",
                    field.path,
                    parent.kind.name()
                );
            }
        }
    }

    #[test]
    fn faults_are_found() {
        let good = json!({"timestamp": "2018-10-10T09:24:31.516380+0000", "event_type": "flow", "vlan": [6]});
        assert_eq!(check(&good), Ok(()));
        for (key, value, fault) in [
            ("flow_id", json!("1"), "not of type integer"),
            ("flow_id", json!(-1), "not of type integer"),
            ("src_ip", Value::Null, "is null"),
            ("surprise", json!(1), "not in the table"),
            ("flow", json!({"surprise": 1}), "`flow.surprise` is not in the table"),
            ("alert", json!({"metadata": {"tag": null}}), "`alert.metadata.tag` is null"),
            ("files", json!([{"size": "1"}]), "`files.size`"),
            ("timestamp", json!("2018-10-10"), "not of type time"),
        ] {
            let mut event = good.clone();
            event[key] = value;
            let faults = check(&event).unwrap_err();
            assert!(faults[0].contains(fault), "{faults:?}");
        }
        assert!(check(&json!({})).unwrap_err().len() == 2);
    }

    #[test]
    fn another_table_closes_an_open_object() {
        let http = [
            EventField { path: "http", kind: EventFieldType::Object, description: "HTTP." },
            EventField { path: "http.status", kind: EventFieldType::Integer, description: "Status." },
        ];
        let own = [EventField { path: "http", kind: EventFieldType::Open, description: "HTTP." }];
        let schema = json_schema(&[&own, &http]);
        assert_eq!(schema["properties"]["http"]["properties"]["status"]["type"], "integer");
        assert_eq!(schema["properties"]["http"]["additionalProperties"], false);
    }
}
