// SPDX-License-Identifier: Apache-2.0
//! Events in EVE's form: one JSON object a line.

use serde_json::Value;
use std::path::Path;

/// The events of a text.
///
/// # Panics
/// A line is no JSON.
#[must_use]
pub fn parse(text: &str) -> Vec<Value> {
    let event = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text.lines().map(event).collect()
}

/// The events of a file.
///
/// # Panics
/// It cannot be read, or a line is no JSON.
#[must_use]
pub fn read(path: &Path) -> Vec<Value> {
    parse(&std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

/// The events of one type.
pub fn of_type<'e>(events: &'e [Value], kind: &'e str) -> impl Iterator<Item = &'e Value> {
    events.iter().filter(move |event| event["event_type"] == kind)
}

/// The first event of a type.
///
/// # Panics
/// There is none.
#[must_use]
pub fn first<'e>(events: &'e [Value], kind: &'e str) -> &'e Value {
    of_type(events, kind).next().unwrap_or_else(|| panic!("no event of type {kind} among {}", events.len()))
}

/// The text of an event without the number of its flow, which differs between runs.
#[must_use]
pub fn without_flow_id(event: &Value) -> String {
    let mut event = event.clone();
    if let Some(fields) = event.as_object_mut() {
        fields.remove("flow_id");
        // That there is a parent counts, its number does not.
        if let Some(parent) = fields.get_mut("parent_id") {
            *parent = Value::Bool(true);
        }
    }
    event.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_by_their_type() {
        let text = r#"{"event_type":"flow","n":1}
{"event_type":"alert","alert":{"signature_id":7}}
{"event_type":"flow","n":2}
"#;
        let events = parse(text);
        assert_eq!(of_type(&events, "flow").count(), 2);
        assert_eq!(first(&events, "flow")["n"], 1);
        let numbered = parse(r#"{"flow_id":5,"event_type":"flow"}"#);
        assert_eq!(without_flow_id(&numbered[0]), r#"{"event_type":"flow"}"#);
    }
}
