// SPDX-License-Identifier: Apache-2.0
//! Schemas in the dialect of OpenAPI 3.0, in forms that generators of clients read alike.
//!
//! The types give JSON Schema 2020. The output has to suit client generators of four languages (`make
//! clients`): no lists of types, no enumerations as `oneOf` of constants, no defaults that are objects or
//! lists, no siblings of a `$ref`, and no number format that a generator takes for 32 bits where 64 are
//! needed.
//!
//! Source: OpenAPI 3.0.3, "Schema Object".

use serde_json::{Map, Value, json};

/// Writes the schemas of a document. Enumerations are inlined at their uses: as named schemas, their words
/// would collide with others in languages with a single namespace.
pub fn write(definitions: Map<String, Value>, paths: &mut Map<String, Value>) -> Map<String, Value> {
    let mut enumerations = Map::new();
    for (name, definition) in &definitions {
        let mut schema = definition.clone();
        rewrite(&mut schema);
        if schema.get("enum").is_some() {
            enumerations.insert(format!("#/components/schemas/{name}"), schema);
        }
    }
    let mut schemas = Map::new();
    for (name, mut schema) in definitions {
        if enumerations.contains_key(&format!("#/components/schemas/{name}")) {
            continue;
        }
        inline(&mut schema, &enumerations);
        rewrite(&mut schema);
        let more = named(&name, &mut schema);
        schemas.insert(name, schema);
        schemas.extend(more);
    }
    paths.values_mut().for_each(|path| in_operations(path, &enumerations));
    let unions: Map<String, Value> = schemas
        .iter()
        .filter_map(|(name, schema)| {
            Some((format!("#/components/schemas/{name}"), schema.get("oneOf")?.clone()))
        })
        .collect();
    schemas.values_mut().for_each(|schema| flatten(schema, &unions));
    schemas
}

/// Replaces a union within a union by its alternatives: some generators cannot read nested unions.
fn flatten(value: &mut Value, unions: &Map<String, Value>) {
    if let Some(Value::Array(all)) = value.get_mut("oneOf") {
        // Nested unions are expanded until none is left; no union contains itself.
        let mut open: Vec<Value> = std::mem::take(all).into_iter().rev().collect();
        while let Some(one) = open.pop() {
            let name = one.get("$ref").and_then(Value::as_str);
            match name.and_then(|name| unions.get(name)?.as_array()) {
                Some(inner) => open.extend(inner.iter().rev().cloned()),
                None => all.push(one),
            }
        }
        // Some generators cannot read a list of unions among alternatives: it becomes any value, as the
        // description states.
        let is_list_of_unions = |one: &Value| {
            let items = one.get("items").and_then(|items| items.get("$ref")).and_then(Value::as_str);
            items.is_some_and(|name| unions.contains_key(name))
        };
        if all.iter().any(is_list_of_unions)
            && let Some(object) = value.as_object_mut()
        {
            object.retain(|key, _| key == "description");
        }
    }
    match value {
        Value::Object(object) => object.values_mut().for_each(|below| flatten(below, unions)),
        Value::Array(items) => items.iter_mut().for_each(|item| flatten(item, unions)),
        _ => {}
    }
}

/// Inlines enumerations in all values of `schema`.
fn in_operations(value: &mut Value, enumerations: &Map<String, Value>) {
    match value {
        Value::Object(object) => {
            for (key, below) in object.iter_mut() {
                if key == "schema" {
                    inline(below, enumerations);
                    rewrite(below);
                } else {
                    in_operations(below, enumerations);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| in_operations(item, enumerations)),
        _ => {}
    }
}

/// Replaces references to enumerations by the enumerations.
fn inline(value: &mut Value, enumerations: &Map<String, Value>) {
    match value {
        Value::Object(object) => {
            let name = object.get("$ref").and_then(Value::as_str);
            if let Some(Value::Object(enumeration)) = name.and_then(|name| enumerations.get(name)) {
                object.remove("$ref");
                merge(object, enumeration.clone());
            }
            object.values_mut().for_each(|below| inline(below, enumerations));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| inline(item, enumerations)),
        _ => {}
    }
}

/// Adds the keys of a schema to the schema that replaces it; joins both descriptions.
fn merge(object: &mut Map<String, Value>, other: Map<String, Value>) {
    for (key, value) in other {
        match (object.get_mut(&key), &value) {
            (Some(Value::String(own)), Value::String(more)) if key == "description" => {
                *own = format!("{own}\n\n{more}");
            }
            (Some(_), _) => {}
            (None, _) => _ = object.insert(key, value),
        }
    }
}

/// Keywords whose value is a schema.
const ONE: &[&str] = &["items", "additionalProperties", "not"];
/// Keywords whose value is a list of schemas.
const LISTS: &[&str] = &["anyOf", "oneOf", "allOf"];

/// Rewrites a schema with its subschemas.
fn rewrite(schema: &mut Value) {
    if *schema == Value::Bool(true) {
        *schema = json!({});
    }
    let Some(object) = schema.as_object_mut() else { return };
    for key in ONE {
        // `additionalProperties` may be a boolean.
        object.get_mut(*key).filter(|below| below.is_object()).into_iter().for_each(rewrite);
    }
    for key in LISTS {
        object.get_mut(*key).and_then(Value::as_array_mut).into_iter().flatten().for_each(rewrite);
    }
    if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(rewrite);
    }
    if let Some(value) = object.remove("const") {
        object.insert("enum".to_owned(), json!([value]));
    }
    enumeration(object);
    types(object);
    alternatives(object);
    number(object);
    defaults(object);
    if object.len() > 1
        && let Some(reference) = object.remove("$ref")
    {
        object.insert("allOf".to_owned(), json!([{ "$ref": reference }]));
    }
}

/// Turns a `oneOf` of constants into an enumeration; the description lists the meanings.
fn enumeration(object: &mut Map<String, Value>) {
    let Some(Value::Array(all)) = object.get("oneOf") else { return };
    let words = |one: &Value| one.get("enum").and_then(Value::as_array).cloned();
    let Some(words): Option<Vec<Vec<Value>>> = all.iter().map(words).collect() else { return };
    if !words.iter().flatten().all(Value::is_string) {
        return;
    }
    let meaning = |one: &Value| {
        let word = one.pointer("/enum/0")?.as_str()?;
        let about = one.get("description")?.as_str()?;
        Some(format!("\n* `{word}`: {about}"))
    };
    let meanings: String = all.iter().filter_map(meaning).collect();
    let own = object.get("description").and_then(Value::as_str).unwrap_or_default();
    let description = if meanings.is_empty() { own.to_owned() } else { format!("{own}\n{meanings}") };
    object.remove("oneOf");
    object.insert("type".to_owned(), json!("string"));
    object.insert("enum".to_owned(), Value::Array(words.concat()));
    object.insert("description".to_owned(), Value::from(description.trim().to_owned()));
}

/// Turns a list of types into one nullable type, or into alternatives.
fn types(object: &mut Map<String, Value>) {
    let Some(Value::Array(all)) = object.get("type") else { return };
    let others: Vec<Value> = all.iter().filter(|name| **name != "null").cloned().collect();
    if others.len() < all.len() {
        object.insert("nullable".to_owned(), Value::Bool(true));
    }
    match others.as_slice() {
        [one] => {
            object.insert("type".to_owned(), one.clone());
        }
        several => {
            let several = several.iter().map(|name| json!({ "type": name })).collect();
            object.remove("type");
            object.insert("anyOf".to_owned(), Value::Array(several));
        }
    }
}

/// Turns `anyOf` into `oneOf`, from which generators make unions: null becomes `nullable`, nested
/// alternatives join the list, and a single alternative replaces the list.
fn alternatives(object: &mut Map<String, Value>) {
    let Some(Value::Array(all)) = object.remove("anyOf") else { return };
    let mut left = Vec::new();
    for one in all {
        let is_null = one.get("type") == Some(&json!("null"));
        let nested = one.get("oneOf").and_then(Value::as_array);
        if is_null || one.get("nullable") == Some(&Value::Bool(true)) && nested.is_some() {
            object.insert("nullable".to_owned(), Value::Bool(true));
        }
        match nested {
            _ if is_null => {}
            Some(nested) => left.extend(nested.iter().cloned()),
            None => left.push(one),
        }
    }
    if left.iter().any(is_map) {
        // Some generators have no union with a map in it: it becomes any value, as the description states.
        object.retain(|key, _| key == "description");
        return;
    }
    // An object without required keys cannot be told from other objects, so `anyOf` stays.
    let is_object = |one: &&Value| one.get("properties").is_some();
    let is_any = |one: &Value| is_object(&one) && one.get("required").is_none();
    let overlap = left.iter().filter(is_object).count() > 1 && left.iter().any(is_any);
    let key = if overlap { "anyOf" } else { "oneOf" };
    match left.as_mut_slice() {
        [Value::Object(one)] => merge(object, std::mem::take(one)),
        _ => _ = object.insert(key.to_owned(), Value::Array(left)),
    }
}

/// Whether a schema is of a map: an object whose keys are alike.
fn is_map(schema: &Value) -> bool {
    schema.get("additionalProperties").is_some_and(Value::is_object) && schema.get("properties").is_none()
}

/// Moves alternatives that are objects to schemas with names, since each generator would invent names of its
/// own. `name`: that of the schema with the alternatives; returns the new schemas.
fn named(name: &str, schema: &mut Value) -> Vec<(String, Value)> {
    let mut added = Vec::new();
    let key = if schema.get("anyOf").is_some() { "anyOf" } else { "oneOf" };
    let alternatives = schema.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten();
    for one in alternatives {
        let keys = one.get("properties").and_then(Value::as_object);
        let Some(key) = keys.and_then(|keys| keys.keys().next()) else { continue };
        let mut letters = key.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        let own = format!("{name}With{}", first.into_iter().chain(letters).collect::<String>());
        let reference = json!({ "$ref": format!("#/components/schemas/{own}") });
        added.push((own, std::mem::replace(one, reference)));
    }
    added
}

/// Keeps a default only if value and type are scalar; otherwise moves it to the description.
fn defaults(object: &mut Map<String, Value>) {
    let is_plain = object.contains_key("type");
    let default = object.get("default").filter(|default| !(is_plain && is_scalar(default)));
    let Some(default) = default.cloned() else { return };
    object.remove("default");
    if is_scalar(&default) {
        let shown = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
        let own = object.get("description").and_then(Value::as_str).unwrap_or_default();
        let text = format!("{own} `{shown}` unless given.").trim().to_owned();
        object.insert("description".to_owned(), Value::from(text));
    }
}

fn is_scalar(value: &Value) -> bool {
    value.is_string() || value.is_number() || value.is_boolean()
}

/// Replaces number formats by those of OpenAPI; unsigned numbers get a format with enough bits.
fn number(object: &mut Map<String, Value>) {
    let (format, most) = match object.get("format").and_then(Value::as_str) {
        Some("uint8") => ("int32", Some(u64::from(u8::MAX))),
        Some("uint16") => ("int32", Some(u64::from(u16::MAX))),
        Some("uint32") => ("int64", Some(u64::from(u32::MAX))),
        Some("uint" | "uint64") => ("int64", None),
        _ => return,
    };
    object.insert("format".to_owned(), Value::from(format));
    if let Some(most) = most {
        object.entry("maximum").or_insert(Value::from(most));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_have_the_forms_that_generators_read() {
        for (from, to) in [
            (json!(true), json!({})),
            (
                json!({ "type": ["string", "null"], "default": null }),
                json!({ "type": "string", "nullable": true }),
            ),
            (
                json!({ "type": ["string", "integer"], "description": "x" }),
                json!({ "description": "x", "oneOf": [{ "type": "string" }, { "type": "integer" }] }),
            ),
            (
                json!({ "description": "A.", "oneOf": [
                    { "type": "string", "enum": ["a", "b"] },
                    { "type": "string", "const": "c", "description": "Sea." },
                ] }),
                json!({ "description": "A.\n\n* `c`: Sea.", "type": "string", "enum": ["a", "b", "c"] }),
            ),
            (json!({ "$ref": "#/x" }), json!({ "$ref": "#/x" })),
            (
                json!({ "$ref": "#/x", "default": "auto", "description": "x" }),
                json!({ "description": "x `auto` unless given.", "allOf": [{ "$ref": "#/x" }] }),
            ),
            (
                json!({ "anyOf": [{ "$ref": "#/x" }, { "type": "null" }], "description": "x" }),
                json!({ "description": "x", "nullable": true, "allOf": [{ "$ref": "#/x" }] }),
            ),
            (
                json!({ "anyOf": [{ "anyOf": [{ "type": "string" }, { "$ref": "#/x" }] }, { "type": "null" }] }),
                json!({ "nullable": true, "oneOf": [{ "type": "string" }, { "$ref": "#/x" }] }),
            ),
            (
                json!({ "properties": { "a": { "default": {}, "additionalProperties": true } }, "default": [] }),
                json!({ "properties": { "a": { "additionalProperties": true } } }),
            ),
            (
                json!({ "anyOf": [{ "type": "string" }, { "type": "object", "additionalProperties": { "type": "string" } }], "description": "x" }),
                json!({ "description": "x" }),
            ),
            (
                json!({ "type": "integer", "format": "uint32", "minimum": 0 }),
                json!({ "type": "integer", "format": "int64", "minimum": 0, "maximum": 4_294_967_295u32 }),
            ),
        ] {
            let mut schema = from.clone();
            rewrite(&mut schema);
            assert_eq!(schema, to, "{from}");
        }
    }

    #[test]
    fn enumerations_stand_where_they_are_used() {
        let words = json!({ "description": "Words.", "oneOf": [{ "const": "a" }, { "const": "b" }] });
        let user = json!({ "properties": {
            "one": { "$ref": "#/components/schemas/Words", "default": "a", "description": "One." },
            "perhaps": { "anyOf": [{ "$ref": "#/components/schemas/Words" }, { "type": "null" }] },
        } });
        let Value::Object(definitions) = json!({ "Words": words, "User": user }) else { return };
        let Value::Object(mut paths) =
            json!({ "/x": { "schema": { "$ref": "#/components/schemas/Words" } } })
        else {
            return;
        };
        let schemas = write(definitions, &mut paths);
        let expected = json!({ "User": { "properties": {
            "one": { "default": "a", "description": "One.\n\nWords.", "type": "string", "enum": ["a", "b"] },
            "perhaps": { "nullable": true, "description": "Words.", "type": "string", "enum": ["a", "b"] },
        } } });
        assert_eq!(Value::Object(schemas), expected);
        let expected = json!({ "description": "Words.", "type": "string", "enum": ["a", "b"] });
        assert_eq!(paths.get("/x").and_then(|path| path.get("schema")), Some(&expected));
    }

    #[test]
    fn a_union_of_unions_is_one() {
        let Value::Object(definitions) = json!({
            "Target": { "anyOf": [{ "type": "string" }, { "type": "integer" }] },
            "Group": { "description": "x", "anyOf": [
                { "type": "boolean" },
                { "type": "array", "items": { "$ref": "#/components/schemas/Target" } },
            ] },
            "Member": { "anyOf": [{ "$ref": "#/components/schemas/Target" }, { "type": "array" }] },
        }) else {
            return;
        };
        let schemas = write(definitions, &mut Map::new());
        let expected = json!([{ "type": "string" }, { "type": "integer" }, { "type": "array" }]);
        assert_eq!(schemas.get("Group"), Some(&json!({ "description": "x" })));
        assert_eq!(schemas.get("Member").and_then(|member| member.get("oneOf")), Some(&expected));
    }

    #[test]
    fn alternatives_that_are_objects_have_names() {
        let object = json!({ "type": "object", "properties": { "label": { "type": "string" } } });
        let mut schema = json!({ "oneOf": [{ "type": "string" }, object] });
        assert_eq!(named("Target", &mut schema), [("TargetWithLabel".to_owned(), object)]);
        assert_eq!(
            schema,
            json!({ "oneOf": [{ "type": "string" }, { "$ref": "#/components/schemas/TargetWithLabel" }] })
        );
    }
}
