// SPDX-License-Identifier: Apache-2.0
//! The schema of events: one table of fields, and from it the JSON schema, the reference page and the check
//! that tests apply to every event.
//!
//! The tables ([`tables`]) have every field that this crate writes: [`TABLES`], and the rows of each declared
//! event. The crates of the parsers describe the
//! objects of application protocols and pass their own tables to the same functions; as long as no table
//! names fields below an object of kind [`EventFieldType::Open`], any field is valid there.

pub mod field;
mod fields;

pub use field::{EventField, EventFieldType};
pub use fields::TABLES;

use crate::record::DECLARED;
use serde_json::{Map, Value, json};

/// The tables of this crate: those of all fields, and one for each declared event.
#[must_use]
pub fn tables() -> Vec<&'static [EventField]> {
    TABLES.iter().copied().chain(DECLARED.iter().map(|spec| spec.fields)).collect()
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

/// Checks an event against this crate's tables.
///
/// # Errors
/// One text per faulty field: an unknown key, a wrong type, a null.
pub fn check(event: &Value) -> Result<(), Vec<String>> {
    check_with(&tables(), event)
}

/// Checks an event against tables.
///
/// # Errors
/// One text per faulty field: an unknown key, a wrong type, a null.
pub fn check_with(tables: &[&[EventField]], event: &Value) -> Result<(), Vec<String>> {
    let mut faults = Vec::new();
    let Some(map) = event.as_object() else { return Err(vec!["the event is not an object".to_owned()]) };
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
        let all: Vec<_> = tables().into_iter().flatten().collect();
        for (index, field) in all.iter().enumerate() {
            assert!(!all[index + 1..].iter().any(|other| other.path == field.path), "{} twice", field.path);
            assert!(field.description.ends_with('.'), "{}: a sentence", field.path);
            assert!(!field.description.contains('|'), "{}: breaks the page", field.path);
            if let Some((parent, _)) = field.path.rsplit_once('.') {
                let parent =
                    find(&tables(), parent).unwrap_or_else(|| panic!("{} has no parent", field.path));
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
