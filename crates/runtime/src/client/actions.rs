// SPDX-License-Identifier: Apache-2.0
//! The operations of a controller by resource and verb (`policies put`), derived from its table of routes, so
//! that a new route needs no code here.
//!
//! The resource is the last part of a path that is a list of its own; the verb is the rest of the path, or
//! else the first word of the operation.

use bartizan_controller::resources;
use bartizan_controller::rest::route::Parameter;
use bartizan_controller::rest::{Method, Route, openapi};
use serde_json::Value;
use std::sync::OnceLock;

/// An operation.
pub struct ResourceAction {
    /// The resource: a list of the API.
    pub resource: String,
    /// The verb of the command line.
    pub verb: String,
    /// The routes of the operation: one, or one for each number of given names.
    pub routes: Vec<Route>,
    /// The options of the body.
    pub flags: Vec<Flag>,
    /// The resource alone means this operation: a log, which has only a list.
    pub direct: bool,
}

/// A key of a body that an option can give.
pub struct Flag {
    /// The key.
    pub key: String,
    /// The key's description.
    pub about: String,
    /// The key's kind of value.
    pub kind: FlagKind,
}

/// The value of an option of a body.
pub enum FlagKind {
    /// A text.
    Text,
    /// A number.
    Number,
    /// A number or a text.
    Either,
    /// No value: the key is `true`.
    Yes,
    /// One of these.
    Word(Vec<String>),
    /// Texts separated by commas.
    List,
    /// Pairs `name=value`, separated by commas.
    Pairs,
}

impl ResourceAction {
    /// The names in the path; of several routes, in the longest path.
    pub fn names(&self) -> Vec<&str> {
        let names = self.routes.iter().map(names);
        names.max_by_key(Vec::len).unwrap_or_default()
    }

    /// Whether the name is part of the content, so that it need not be given.
    pub fn named_by_content(&self) -> bool {
        self.routes
            .iter()
            .any(|route| route.method == Method::Put && route.body.is_some_and(|body| body.schema.is_none()))
    }

    /// Whether the operation only reads.
    pub fn reads(&self) -> bool {
        self.routes.iter().all(|route| route.method == Method::Get)
    }

    /// Whether the answer is a paged list, whose pages are joined here. Other paged answers are shown page by
    /// page.
    pub fn lists(&self) -> bool {
        self.routes.iter().any(|route| route.operation.starts_with("list-"))
    }

    /// Parameters of the query, except for the start of a page.
    pub fn parameters(&self) -> Vec<&'static Parameter> {
        let mut all: Vec<&'static Parameter> = Vec::new();
        for parameter in self.routes.iter().flat_map(|route| route.query) {
            if !all.iter().any(|known| known.name == parameter.name) {
                all.push(parameter);
            }
        }
        all
    }

    /// Whether the operation can follow a log: the newest items come first, with a number each.
    pub fn follows(&self) -> bool {
        self.direct && self.resource == "alerts"
    }

    /// The operation's description.
    pub fn about(&self) -> String {
        let about = self.routes.first().map_or("", |route| route.about.as_str());
        about.trim_end_matches('.').to_owned()
    }
}

/// The names in the path of a route.
pub fn names(route: &Route) -> Vec<&str> {
    route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect()
}

/// All operations, in the order of the route table.
pub fn all() -> &'static [ResourceAction] {
    static ALL: OnceLock<Vec<ResourceAction>> = OnceLock::new();
    ALL.get_or_init(|| of(resources::routes()))
}

fn of(routes: Vec<Route>) -> Vec<ResourceAction> {
    let document = openapi::document(&routes);
    let mut actions: Vec<ResourceAction> = Vec::new();
    for route in &routes {
        let (resource, verb) = words(route, &routes);
        match actions.iter_mut().find(|action| action.resource == resource && action.verb == verb) {
            Some(action) => action.routes.push(route.clone()),
            None => {
                let flags = flags(route, &document);
                let beginning = format!("/{resource}/{{");
                let direct = route.method == Method::Get
                    && !routes.iter().any(|other| other.path.contains(&beginning))
                    && !actions.iter().any(|action| action.resource == resource && action.direct);
                actions.push(ResourceAction { resource, verb, routes: vec![route.clone()], flags, direct });
            }
        }
    }
    actions
}

/// The resource of a route, and its verb.
fn words(route: &Route, routes: &[Route]) -> (String, String) {
    let parts: Vec<&str> = route.path.split('/').skip(2).collect();
    let is_list = |part: &str| {
        let (alone, with_one) = (format!("/v1/{part}"), format!("/{part}/{{"));
        !part.starts_with('{')
            && routes.iter().any(|other| other.path == alone || other.path.contains(&with_one))
    };
    let at = parts.iter().rposition(|part| is_list(part)).unwrap_or(0);
    let resource = parts.get(at).copied().unwrap_or_default();
    // The form of a document is not part of its name.
    let resource = resource.split('.').next().unwrap_or(resource).to_owned();
    let rest: Vec<&str> = parts.iter().skip(at + 1).copied().filter(|part| !part.starts_with('{')).collect();
    let first = route.operation.split('-').next().unwrap_or_default();
    let verb = match (rest.as_slice(), route.method) {
        ([], _) | (_, Method::Post) => first.to_owned(),
        (rest, Method::Get) => rest.join("-"),
        (rest, _) => format!("{first}-{}", rest.join("-")),
    };
    (resource, verb)
}

/// The options of a route's body: its keys with plain values.
fn flags(route: &Route, document: &Value) -> Vec<Flag> {
    const BODY: &str = "/requestBody/content/application~1json/schema";
    let (path, method) = (route.path.replace('/', "~1"), route.method.name().to_ascii_lowercase());
    let Some(body) = document.pointer(&format!("/paths/{path}/{method}{BODY}")) else { return Vec::new() };
    let definitions = document.pointer("/components/schemas").unwrap_or(&Value::Null);
    let body = resolved(body, definitions);
    let keys = body.get("properties").and_then(Value::as_object).into_iter().flatten();
    let flag = |(key, of): (&String, &Value)| {
        let about = of.get("description").and_then(Value::as_str).unwrap_or_default();
        let about = about.trim_end_matches('.').to_owned();
        Some(Flag { key: key.clone(), about, kind: kind(of, definitions)? })
    };
    keys.filter_map(flag).collect()
}

/// The schema that a reference names; a reference with further keys lies in an `allOf`.
fn resolved<'v>(schema: &'v Value, definitions: &'v Value) -> &'v Value {
    let schema = match schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
        Some([one]) => one,
        _ => schema,
    };
    let name = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
    name.and_then(|name| definitions.get(name)).unwrap_or(schema)
}

/// The kind of value for a key; `None` if the value is not plain.
fn kind(schema: &Value, definitions: &Value) -> Option<FlagKind> {
    let schema = resolved(schema, definitions);
    if let Some(words) = words_of(schema) {
        return Some(FlagKind::Word(words));
    }
    let type_of = |schema: &'_ Value| schema.get("type").and_then(Value::as_str).map(str::to_owned);
    let alternatives = schema.get("oneOf").and_then(Value::as_array);
    if let Some(all) = alternatives {
        let plain = |of: &Value| {
            type_of(resolved(of, definitions)).is_some_and(|name| name == "integer" || name == "string")
        };
        return all.iter().all(plain).then_some(FlagKind::Either);
    }
    let name = type_of(schema)?;
    let text = |key: &str| {
        schema
            .get(key)
            .is_some_and(|of| resolved(of, definitions).get("type") == Some(&Value::from("string")))
    };
    match name.as_str() {
        "string" => Some(FlagKind::Text),
        "integer" => Some(FlagKind::Number),
        "boolean" => Some(FlagKind::Yes),
        "array" if text("items") => Some(FlagKind::List),
        "object" if text("additionalProperties") => Some(FlagKind::Pairs),
        _ => None,
    }
}

/// The words of a choice.
fn words_of(schema: &Value) -> Option<Vec<String>> {
    let words = schema.get("enum")?.as_array()?;
    words.iter().map(|word| word.as_str().map(str::to_owned)).collect()
}

/// The resources, in the order of the route table.
pub fn resources() -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for action in all() {
        if !names.contains(&action.resource.as_str()) {
            names.push(&action.resource);
        }
    }
    names
}
