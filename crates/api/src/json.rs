// SPDX-License-Identifier: Apache-2.0
//! JSON without duplicate keys. Parsers differ on which of two values holds (RFC 8259, section 4), so one
//! parser could check what another one then does not use.

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::fmt;

/// Why a text is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// The text is not JSON.
    #[error("it is not JSON: {0}")]
    Json(String),
    /// An object has a duplicate key.
    #[error("{pointer}: {message}")]
    Twice {
        /// JSON pointer (RFC 6901) of the first such key.
        pointer: String,
        /// The fault, and how to correct it.
        message: String,
    },
}

/// Parses a text.
///
/// # Errors
/// [`NotTaken`].
pub fn read(bytes: &[u8]) -> Result<Value, NotTaken> {
    let place = JsonPosition::default();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let read = Once(&place).deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    let value = read.map_err(|error| NotTaken::Json(error.to_string()))?;
    match place.twice.into_inner() {
        Some(twice) => Err(twice),
        None => Ok(value),
    }
}

/// The position of the parser, and the first duplicate key.
#[derive(Default)]
struct JsonPosition {
    path: RefCell<Vec<String>>,
    twice: RefCell<Option<NotTaken>>,
}

impl JsonPosition {
    fn within<T>(&self, part: String, read: impl FnOnce() -> T) -> T {
        self.path.borrow_mut().push(part);
        let done = read();
        self.path.borrow_mut().pop();
        done
    }

    fn note_twice(&self, key: &str) {
        let part = |part: &str| part.replace('~', "~0").replace('/', "~1");
        let path = self.path.borrow();
        let parts = path.iter().map(String::as_str).chain([key]);
        let pointer: String = parts.map(|of| format!("/{}", part(of))).collect();
        let message = format!("the key `{key}` occurs twice; remove one");
        self.twice.borrow_mut().get_or_insert(NotTaken::Twice { pointer, message });
    }
}

/// Parses a value, and notes duplicate keys.
struct Once<'p>(&'p JsonPosition);

impl<'de> DeserializeSeed<'de> for Once<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Once<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_string<E: de::Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        let next = |items: &mut A, at: usize| {
            self.0.within(at.to_string(), || items.next_element_seed(Once(self.0)))
        };
        while let Some(item) = next(&mut items, all.len())? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(key) = pairs.next_key::<String>()? {
            if all.contains_key(&key) {
                self.0.note_twice(&key);
            }
            let value = self.0.within(key.clone(), || pairs.next_value_seed(Once(self.0)))?;
            all.insert(key, value);
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_is_read_as_it_is_and_keys_stand_once() {
        let text = r#"{"a": [1, -2, 2.5, true, null, "x", {"b": {}}]}"#;
        assert_eq!(read(text.as_bytes()), Ok(json!({"a": [1, -2, 2.5, true, null, "x", {"b": {}}]})));
        let twice = r#"{"a": [0, {"x/y": 1, "b": 1, "x/y": 2}]}"#;
        let message = "the key `x/y` occurs twice; remove one".to_owned();
        assert_eq!(read(twice.as_bytes()), Err(NotTaken::Twice { pointer: "/a/1/x~1y".to_owned(), message }));
        // The same key in another spelling.
        assert!(matches!(read(br#"{"a": 1, "\u0061": 2}"#), Err(NotTaken::Twice { .. })));
        assert!(matches!(read(b"{} x"), Err(NotTaken::Json(_))));
    }
}
