// SPDX-License-Identifier: Apache-2.0
//! Bodies as JSON. A duplicate key in one object is refused, in JSON and in YAML.

use crate::problem::{Fault, Refusal};
use bartizan_api::json::{self, NotTaken};
use bartizan_config::policy::read;
use bartizan_config::yaml;
use serde_json::Value;

/// Parses a JSON body.
///
/// # Errors
/// The body is not JSON (with line and column), or a key is duplicate (with its pointer).
pub fn json(bytes: &[u8]) -> Result<Value, Refusal> {
    let value = json::read(bytes).map_err(|error| match error {
        NotTaken::Json(error) => Refusal::Malformed(format!("the body is not JSON: {error}")),
        NotTaken::Twice { pointer, message } => Refusal::wrong(pointer, message),
    })?;
    bounded(value)
}

/// Checks that integers are in the range of `int64`, as the OpenAPI document states.
fn bounded(value: Value) -> Result<Value, Refusal> {
    match beyond(&value) {
        Some(pointer) => Err(Refusal::wrong(pointer, format!("a number may be {} at most", i64::MAX))),
        None => Ok(value),
    }
}

/// The JSON pointer to the first integer beyond the range.
fn beyond(value: &Value) -> Option<String> {
    let below = |name: &str, value: &Value| Some(format!("/{name}{}", beyond(value)?));
    match value {
        Value::Number(number) => (number.is_u64() && !number.is_i64()).then(String::new),
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(place, item)| below(&place.to_string(), item))
        }
        Value::Object(object) => {
            object.iter().find_map(|(key, item)| below(&key.replace('~', "~0").replace('/', "~1"), item))
        }
        _ => None,
    }
}

/// Parses a YAML body.
///
/// # Errors
/// As for [`json()`].
pub fn from_yaml(bytes: &[u8]) -> Result<Value, Refusal> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Refusal::Malformed(format!("the body is not UTF-8: {error}")))?;
    let node =
        yaml::parse(text).map_err(|error| Refusal::Malformed(format!("the body is not YAML: {error}")))?;
    match read::unfit(&node) {
        Some(problem) => Err(Refusal::Wrong(vec![Fault::of("", &problem)])),
        None => Ok(read::to_json(&node)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_is_read_as_it_is_and_keys_stand_once() {
        let text = r#"{"a": [1, -2, 2.5, true, null, "x", {"b": {}}]}"#;
        assert_eq!(json(text.as_bytes()), Ok(json!({"a": [1, -2, 2.5, true, null, "x", {"b": {}}]})));
        for (read, text) in [
            (json as fn(&[u8]) -> Result<Value, Refusal>, r#"{"a": [0, {"x/y": 1, "b": 1, "x/y": 2}]}"#),
            (from_yaml, "a: [0, {x/y: 1, b: 1, x/y: 2}]"),
        ] {
            let message = "the key `x/y` occurs twice; remove one";
            assert_eq!(read(text.as_bytes()), Err(Refusal::wrong("/a/1/x~1y", message)), "{text}");
        }
        for text in ["", "{", "{\"a\": 1} x", "[1,]", "{\"a\": 1e999}", "\u{feff}{}"] {
            assert!(matches!(json(text.as_bytes()), Err(Refusal::Malformed(_))), "{text}");
        }
        let wrong = Refusal::wrong("/a/1/x~1y", "a number may be 9223372036854775807 at most");
        assert_eq!(json(br#"{"a": [1, {"x/y": 9223372036854775808}]}"#), Err(wrong));
        assert_eq!(json(b"[9223372036854775807, 1e30]"), Ok(json!([i64::MAX, 1e30])));
        let deep = "[".repeat(100_000);
        assert!(matches!(json(deep.as_bytes()), Err(Refusal::Malformed(_))));
    }
}
