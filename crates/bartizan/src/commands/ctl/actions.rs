// SPDX-License-Identifier: Apache-2.0
//! The commands to a controller, made of its table of routes: a resource and what is done with it (`policies put`), the names in the path as
//! arguments, the parameters of the query and what is plain in the body as options. A new route is a new command by itself.
//!
//! The resource is the last part of a path that is a list of its own; what follows it, or else the first word of the
//! operation, is what is done.

use bartizan_controller::resources;
use bartizan_controller::rest::route::{Parameter, ParameterKind};
use bartizan_controller::rest::{Method, Route, openapi};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::Value;
use std::sync::OnceLock;

/// Something that can be asked of a controller.
pub struct Action {
    /// The resource: a list of the API.
    pub resource: String,
    /// What is done with it.
    pub verb: String,
    /// The routes that do it: one, or one for each number of names that are given.
    pub routes: Vec<Route>,
    /// What is plain in the body.
    pub flags: Vec<Flag>,
    /// The resource alone means this: a log, of which there is only a list.
    pub direct: bool,
}

/// A key of a body that an option can give.
pub struct Flag {
    /// The key.
    pub key: String,
    about: String,
    /// What it takes.
    pub kind: FlagKind,
}

/// What an option of a body takes.
pub enum FlagKind {
    /// A text.
    Text,
    /// A number.
    Number,
    /// A number or a text.
    Either,
    /// Nothing: it is `true`.
    Yes,
    /// One of these.
    Word(Vec<String>),
    /// Texts with commas between.
    List,
    /// `name=value`, with commas between.
    Pairs,
}

/// Other words for what is done.
const ALIASES: &[(&str, &str)] = &[("begin", "start"), ("make", "create"), ("revoke", "delete")];
/// The document.
pub const FILE: &str = "FILE";
/// Steps of a roll-out.
pub const PERCENT: &str = "percent";
/// Goes on with a log.
pub const FOLLOW: &str = "follow";
/// Only if it is still this.
pub const IF_MATCH: &str = "if-match";
/// Only if it is not there.
pub const NEW: &str = "new";

/// The argument of a name in the path, a parameter of the query, or a key of the body.
pub fn id(of: &str, name: &str) -> String {
    format!("{of}:{name}")
}

impl Action {
    /// The names in the paths: of the longest first.
    pub fn names(&self) -> Vec<&str> {
        let names = self.routes.iter().map(names);
        names.max_by_key(Vec::len).unwrap_or_default()
    }

    /// Whether the name is that of the content: nobody has to say it.
    pub fn named_by_content(&self) -> bool {
        self.routes
            .iter()
            .any(|route| route.method == Method::Put && route.body.is_some_and(|body| body.schema.is_none()))
    }

    /// Whether it only reads.
    pub fn reads(&self) -> bool {
        self.routes.iter().all(|route| route.method == Method::Get)
    }

    /// Whether it is a list in pages, which are turned here. Other answers that have pages are shown one by one.
    pub fn lists(&self) -> bool {
        self.routes.iter().any(|route| route.operation.starts_with("list-"))
    }

    /// Parameters of the query, but for where a page begins.
    pub fn parameters(&self) -> Vec<&'static Parameter> {
        let mut all: Vec<&'static Parameter> = Vec::new();
        for parameter in self.routes.iter().flat_map(|route| route.query) {
            if !all.iter().any(|known| known.name == parameter.name) {
                all.push(parameter);
            }
        }
        all
    }

    /// Whether a log goes on: the newest come first, with a number each.
    pub fn follows(&self) -> bool {
        self.direct && self.resource == "alerts"
    }

    fn arguments(&'static self) -> Vec<Arg> {
        let mut all = Vec::new();
        for name in self.names().into_iter().filter(|_| !self.named_by_content()) {
            let always = self.routes.iter().all(|route| names(route).contains(&name));
            let about = format!("Name of the {}", name.replace('-', " "));
            let shown = name.to_ascii_uppercase();
            all.push(Arg::new(leak(id("name", name))).value_name(leak(shown)).required(always).help(about));
        }
        all.extend(self.parameters().into_iter().filter_map(|of| parameter(of, self.lists())));
        if let Some(body) = self.routes.first().and_then(|route| route.body) {
            let about = match body.schema {
                Some(_) => "The document, YAML or JSON; `-` for standard input",
                None => "The file; `-` for standard input",
            };
            all.push(Arg::new(FILE).help(about).required(self.flags.is_empty()));
            all.extend(self.flags.iter().map(Flag::argument));
        }
        if self.resource == "rollouts" && self.verb == "begin" {
            let about = "So many of the devices, step by step: 10,50,100";
            let range = value_parser!(u8).range(1..=100);
            all.push(Arg::new(PERCENT).long(PERCENT).value_delimiter(',').value_parser(range).help(about));
        }
        if self.follows() {
            let about = "Go on with those that come in";
            all.push(Arg::new(FOLLOW).long(FOLLOW).short('f').action(ArgAction::SetTrue).help(about));
        }
        if !self.reads() && self.routes.iter().any(|route| route.tagged) {
            let about = "Only if the document is still the one of this generation";
            all.push(Arg::new(IF_MATCH).long(IF_MATCH).value_name("GENERATION").help(about));
            let about = "Only if it is not there yet";
            all.push(Arg::new(NEW).long(NEW).action(ArgAction::SetTrue).conflicts_with(IF_MATCH).help(about));
        }
        all
    }

    fn about(&self) -> String {
        let about = self.routes.first().map_or("", |route| route.about.as_str());
        about.trim_end_matches('.').to_owned()
    }
}

/// The names in the path of a route.
pub fn names(route: &Route) -> Vec<&str> {
    route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect()
}

/// The command line is made once: what its texts need stays.
fn leak(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

/// A parameter as an option. `turned`: pages are turned here.
fn parameter(parameter: &'static Parameter, turned: bool) -> Option<Arg> {
    let arg = Arg::new(leak(id("query", parameter.name))).long(parameter.name).help(parameter.about);
    match parameter.kind {
        ParameterKind::Flag => Some(arg.action(ArgAction::SetTrue)),
        ParameterKind::Number(from, to) => {
            let to = i64::try_from(to).unwrap_or(i64::MAX);
            let range = value_parser!(i64).range(i64::try_from(from).unwrap_or(0)..=to);
            Some(arg.value_name("NUMBER").value_parser(range))
        }
        ParameterKind::Name => Some(arg.value_name("NAME")),
        ParameterKind::Cursor | ParameterKind::NumberCursor => (!turned).then(|| arg.value_name("TEXT")),
    }
}

impl Flag {
    fn argument(&'static self) -> Arg {
        let arg = Arg::new(leak(id("body", &self.key))).long(self.key.as_str()).help(self.about.as_str());
        match &self.kind {
            FlagKind::Text | FlagKind::Either => arg.value_name("TEXT"),
            FlagKind::Number => arg.value_name("NUMBER").value_parser(value_parser!(u64)),
            FlagKind::Yes => arg.action(ArgAction::SetTrue),
            FlagKind::Word(words) => arg
                .value_name("WORD")
                .value_parser(PossibleValuesParser::new(words.iter().map(String::as_str))),
            FlagKind::List => arg.value_name("TEXT,...").value_delimiter(','),
            FlagKind::Pairs => arg.value_name("NAME=VALUE,...").value_delimiter(','),
        }
    }
}

/// All of them, in the order of the table.
pub fn all() -> &'static [Action] {
    static ALL: OnceLock<Vec<Action>> = OnceLock::new();
    ALL.get_or_init(|| of(resources::routes()))
}

fn of(routes: Vec<Route>) -> Vec<Action> {
    let document = openapi::document(&routes);
    let mut actions: Vec<Action> = Vec::new();
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
                actions.push(Action { resource, verb, routes: vec![route.clone()], flags, direct });
            }
        }
    }
    actions
}

/// The resource of a route, and what it does with it.
fn words(route: &Route, routes: &[Route]) -> (String, String) {
    let parts: Vec<&str> = route.path.split('/').skip(2).collect();
    let is_list = |part: &str| {
        let (alone, with_one) = (format!("/v1/{part}"), format!("/{part}/{{"));
        !part.starts_with('{')
            && routes.iter().any(|other| other.path == alone || other.path.contains(&with_one))
    };
    let at = parts.iter().rposition(|part| is_list(part)).unwrap_or(0);
    let resource = parts.get(at).copied().unwrap_or_default();
    // A document's form is no part of its name.
    let resource = resource.split('.').next().unwrap_or(resource).to_owned();
    let behind: Vec<&str> =
        parts.iter().skip(at + 1).copied().filter(|part| !part.starts_with('{')).collect();
    let first = route.operation.split('-').next().unwrap_or_default();
    let verb = match (behind.as_slice(), route.method) {
        ([], _) | (_, Method::Post) => first.to_owned(),
        (behind, Method::Get) => behind.join("-"),
        (behind, _) => format!("{first}-{}", behind.join("-")),
    };
    (resource, verb)
}

/// What is plain in the body of a route.
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

/// The schema that a reference names, also a reference with keys beside it, which lies in an `allOf`.
fn resolved<'v>(schema: &'v Value, definitions: &'v Value) -> &'v Value {
    let schema = match schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
        Some([one]) => one,
        _ => schema,
    };
    let name = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
    name.and_then(|name| definitions.get(name)).unwrap_or(schema)
}

/// What an option for a key takes; `None` if it is not plain.
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

/// The resources, in the order of the table.
pub fn resources() -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for action in all() {
        if !names.contains(&action.resource.as_str()) {
            names.push(&action.resource);
        }
    }
    names
}

/// A command for each resource, with one below it for each action.
pub fn commands() -> Vec<Command> {
    let command = |resource: &'static str| {
        let own = all().iter().filter(move |action| action.resource == resource);
        let mut command = Command::new(resource).disable_help_subcommand(true);
        let mut verbs = Vec::new();
        for action in own {
            verbs.push(action.verb.replace('-', " "));
            let alias = ALIASES.iter().filter(|(verb, _)| *verb == action.verb).map(|(_, alias)| *alias);
            let below = Command::new(action.verb.as_str()).about(action.about()).visible_aliases(alias);
            command = command.subcommand(below.args(action.arguments()));
            if action.direct {
                command = command.args(action.arguments()).args_conflicts_with_subcommands(true);
            }
        }
        let direct = all().iter().find(|action| action.resource == resource && action.direct);
        match direct {
            Some(action) => command.about(action.about()),
            None => {
                let about = format!("{}: {}", resource.replace('-', " "), verbs.join(", "));
                command.about(about).subcommand_required(true).arg_required_else_help(true)
            }
        }
    };
    resources().into_iter().map(command).collect()
}

/// The action that was chosen, with its arguments.
pub fn chosen<'m>(resource: &str, matches: &'m ArgMatches) -> Option<(&'static Action, &'m ArgMatches)> {
    let mut own = all().iter().filter(|action| action.resource == resource);
    match matches.subcommand() {
        Some((verb, below)) => {
            let verb =
                ALIASES.iter().find(|(_, alias)| *alias == verb && own.clone().all(|a| a.verb != verb));
            let said = matches.subcommand_name().unwrap_or_default();
            let verb = verb.map_or(said, |(verb, _)| verb);
            own.find(|action| action.verb == verb).map(|action| (action, below))
        }
        None => own.find(|action| action.direct).map(|action| (action, matches)),
    }
}
