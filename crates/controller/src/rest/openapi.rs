// SPDX-License-Identifier: Apache-2.0
//! The OpenAPI 3.1 document, made of the table of routes and the types. docs/reference/openapi.json is this, committed.

use super::http::{Method, Problem};
use super::route::{
    CURSOR_PATTERN, NAME_PATTERN, NUMBER_CURSOR_PATTERN, Parameter, ParameterKind, Route, SchemaOf, schema,
};
use crate::access::Need;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// The document of a table of routes.
#[must_use]
pub fn document(routes: &[Route]) -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut generator = settings.into_generator();
    let mut paths: Map<String, Value> = Map::new();
    for route in routes {
        let operation = operation(route, &mut generator);
        let entry = paths.entry(route.path.clone()).or_insert_with(|| json!({}));
        if let Some(methods) = entry.as_object_mut() {
            methods.insert(route.method.name().to_ascii_lowercase(), operation);
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Bartizan controller",
            "version": "1",
            "description": "Tenants, policies, devices, rule libraries, roll-outs. Every change is a new generation.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
        "security": [{ "token": [] }],
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut operation = json!({
        "operationId": route.operation,
        "summary": route.about,
        "description": format!("Who may: {}.", need(route.need)),
        "parameters": parameters(route),
        "responses": responses(route, generator),
    });
    let Some(object) = operation.as_object_mut() else { return operation };
    if let Some(body) = route.body {
        let content = match body.schema {
            Some(of) => {
                let schema = of(generator).to_value();
                json!({ "application/json": { "schema": schema }, "application/yaml": { "schema": schema } })
            }
            None => json!({ "text/plain": { "schema": { "type": "string" } } }),
        };
        object.insert("requestBody".to_owned(), json!({ "required": true, "content": content }));
    }
    if route.need == Need::Nothing {
        object.insert("security".to_owned(), json!([]));
    }
    operation
}

const fn need(need: Need) -> &'static str {
    match need {
        Need::Nothing => "anyone",
        Need::Admin => "administrators",
        Need::MakeTokens => "administrators, and once the bootstrap token",
        Need::Read => "administrators, and readers without a tenant",
        Need::ReadTenant => "administrators, readers without a tenant, operators and readers of the tenant",
        Need::WriteTenant => "administrators and operators of the tenant",
        Need::ReadDevice => "administrators, readers without a tenant, and the device",
        Need::Report => "the device, and administrators",
    }
}

fn parameters(route: &Route) -> Vec<Value> {
    let names = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let name = |name: &str| {
        json!({
            "name": name, "in": "path", "required": true,
            "schema": { "type": "string", "pattern": NAME_PATTERN },
        })
    };
    let query = |parameter: &Parameter| {
        let schema = match parameter.kind {
            ParameterKind::Flag => json!({ "type": "boolean" }),
            ParameterKind::Number(from, to) => json!({ "type": "integer", "minimum": from, "maximum": to }),
            ParameterKind::Cursor => json!({ "type": "string", "pattern": CURSOR_PATTERN }),
            ParameterKind::NumberCursor => json!({ "type": "string", "pattern": NUMBER_CURSOR_PATTERN }),
        };
        json!({
            "name": parameter.name, "in": "query", "required": false, "description": parameter.about,
            "schema": schema,
        })
    };
    let mut all: Vec<Value> = names.map(name).chain(route.query.iter().map(query)).collect();
    if route.tagged && route.method != Method::Get {
        for (field, about) in [
            ("If-Match", "Only if it still has this `ETag`; `*` for any."),
            ("If-None-Match", "`*`: only if it is not there yet."),
        ] {
            all.push(json!({
                "name": field, "in": "header", "required": false, "description": about,
                "schema": { "type": "string" },
            }));
        }
    }
    all
}

fn responses(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let content = match route.answer {
        Some(of) => json!({ "application/json": { "schema": of(generator).to_value() } }),
        None => json!({ "text/plain": { "schema": { "type": "string" } } }),
    };
    let mut answer = json!({ "description": "Done.", "content": content });
    if let Some(object) = answer.as_object_mut().filter(|_| route.tagged && route.method != Method::Delete) {
        let tag = json!({ "ETag": { "description": "For `If-Match`.", "schema": { "type": "string" } } });
        object.insert("headers".to_owned(), tag);
    }
    let of: SchemaOf = schema::<Problem>();
    let problem = json!({
        "description": "Why not.",
        "content": { "application/problem+json": { "schema": of(generator).to_value() } },
    });
    let mut all = Map::new();
    all.insert(route.status.to_string(), answer);
    all.insert("default".to_owned(), problem);
    Value::Object(all)
}
