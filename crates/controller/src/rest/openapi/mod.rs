// SPDX-License-Identifier: Apache-2.0
//! The OpenAPI 3.0 document, made from the table of routes and the types. docs/reference/openapi.json is its
//! committed output.
//!
//! Version 3.0, because client generators agree on it; nothing here needs 3.1.

mod dialect;

use super::http::{Method, Problem};
use super::route::{
    CURSOR_PATTERN, FILE_NAME_PATTERN, NAME_PATTERN, NUMBER_CURSOR_PATTERN, Parameter, ParameterKind, Route,
    schema,
};
use crate::access::Need;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// Semantic version of the API. Until the first release, the minor number rises when existing clients break,
/// the patch number when something is added. After that, an incompatible change gets a new path (`/v2`).
pub const VERSION: &str = "0.2.0";

/// The document for a table of routes.
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
    let problem = schema::<Problem>()(&mut generator).to_value();
    let schemas = dialect::write(generator.take_definitions(true), &mut paths);
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": "Bartizan controller",
            "version": VERSION,
            "description": "Tenants, policies, devices, rule libraries, roll-outs. Every change is a new generation.",
            "license": { "name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0" },
        },
        "servers": [{
            "url": "https://{host}:{port}",
            "description": "A controller.",
            "variables": { "host": { "default": "localhost" }, "port": { "default": "9443" } },
        }],
        "tags": tags(routes),
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {
                "Problem": {
                    "description": "The reason of the refusal (RFC 9457).",
                    "content": { "application/problem+json": { "schema": problem } },
                },
            },
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
        "security": [{ "token": [] }],
    })
}

/// The tag of a route: the first part of its path after the version.
fn tag(route: &Route) -> &str {
    let part = route.path.split('/').nth(2).unwrap_or_default();
    part.split('.').next().unwrap_or(part)
}

fn tags(routes: &[Route]) -> Vec<Value> {
    let mut names: Vec<&str> = Vec::new();
    for route in routes {
        let name = tag(route);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.into_iter().map(|name| json!({ "name": name })).collect()
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut operation = json!({
        "operationId": route.operation,
        "tags": [tag(route)],
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
            // Bytes come first: not every generator supports text bodies.
            None => json!({
                "application/octet-stream": { "schema": { "type": "string", "format": "binary" } },
                "text/plain": { "schema": { "type": "string" } },
            }),
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
        Need::Known => "anyone with a token",
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
            ParameterKind::Number(from, to) => {
                json!({ "type": "integer", "format": "int64", "minimum": from, "maximum": to })
            }
            ParameterKind::Cursor => json!({ "type": "string", "pattern": CURSOR_PATTERN }),
            ParameterKind::NumberCursor => json!({ "type": "string", "pattern": NUMBER_CURSOR_PATTERN }),
            ParameterKind::Name => json!({ "type": "string", "pattern": NAME_PATTERN }),
            ParameterKind::FileName => json!({ "type": "string", "pattern": FILE_NAME_PATTERN }),
        };
        json!({
            "name": parameter.name, "in": "query", "required": false, "description": parameter.about,
            "schema": schema,
        })
    };
    let mut all: Vec<Value> = names.map(name).chain(route.query.iter().map(query)).collect();
    let fields: &[(&str, &str)] = match route.method {
        Method::Get => {
            &[("If-None-Match", "The `ETag` of an earlier answer: if it still applies, the answer is 304.")]
        }
        _ if route.tagged => &[
            ("If-Match", "Only if it still has this `ETag`; `*` for any."),
            ("If-None-Match", "`*`: only if it does not exist yet."),
        ],
        _ => &[],
    };
    for (field, about) in fields {
        all.push(json!({
            "name": field, "in": "header", "required": false, "description": about,
            "schema": { "type": "string" },
        }));
    }
    all
}

fn responses(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let content = match route.answer {
        Some(of) => json!({ "application/json": { "schema": of(generator).to_value() } }),
        None => json!({ "text/plain": { "schema": { "type": "string" } } }),
    };
    let field = |about: &str| json!({ "description": about, "schema": { "type": "string" } });
    let mut all = Map::new();
    for status in route.statuses {
        let mut fields = Map::new();
        if route.method == Method::Get || route.tagged && route.method == Method::Put {
            fields.insert("ETag".to_owned(), field("For `If-Match` and `If-None-Match`."));
        }
        if *status == 201 {
            fields.insert("Location".to_owned(), field("The address of the new resource."));
        }
        let about = match status {
            201 => "Made.",
            202 => "Accepted; ask for the result later.",
            _ => "Done.",
        };
        let mut answer = json!({ "description": about, "content": content });
        if let Some(object) = answer.as_object_mut().filter(|_| !fields.is_empty()) {
            object.insert("headers".to_owned(), Value::Object(fields));
        }
        all.insert(status.to_string(), answer);
    }
    if route.method == Method::Get {
        all.insert("304".to_owned(), json!({ "description": "It is what `If-None-Match` names." }));
    }
    for class in ["4XX", "5XX"] {
        all.insert(class.to_owned(), json!({ "$ref": "#/components/responses/Problem" }));
    }
    Value::Object(all)
}
