// SPDX-License-Identifier: Apache-2.0
//! Sends one command's request to a controller, and shows the answer.

use super::access::Whom;
use super::actions::{self, FILE, FOLLOW, IF_MATCH, NEW, PERCENT};
use super::show;
use bartizan_controller::client::Client;
use bartizan_controller::rest::Route;
use bartizan_controller::rest::route::{PAGE_MAX, ParameterKind};
use bartizan_controller::store::hex;
use bartizan_runtime::client::actions::{FlagKind, ResourceAction, names};
use bartizan_runtime::client::apply::file_name;
use bartizan_runtime::client::document::{self, LocalDocument};
use bartizan_runtime::client::request::{ClientRequest, JSON, items, newer, number, path_part, send_request};
use bartizan_runtime::error::{Exit, Failure};
use clap::ArgMatches;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::time::Duration;

/// The interval at which `--follow` looks at a log.
const PAUSE: Duration = Duration::from_millis(500);

/// The arguments of a command, as typed.
struct Typed<'m>(&'m ArgMatches);

impl Typed<'_> {
    fn text(&self, id: &str) -> Option<&str> {
        self.0.try_get_one::<String>(id).ok().flatten().map(String::as_str)
    }

    fn flag(&self, id: &str) -> bool {
        self.0.try_get_one::<bool>(id).ok().flatten().copied().unwrap_or(false)
    }

    fn texts(&self, id: &str) -> Option<Vec<&str>> {
        Some(self.0.try_get_many::<String>(id).ok()??.map(String::as_str).collect())
    }
}

/// Runs the command.
pub fn run(action: &ResourceAction, matches: &ArgMatches, whom: &Whom, json: bool) -> Result<Exit, Failure> {
    let typed = Typed(matches);
    let (route, mut path) = route(action, &typed)?;
    let document =
        typed.text(FILE).filter(|_| !action.named_by_content()).map(LocalDocument::read).transpose()?;
    let body = body(action, route, &typed, document.as_ref())?;
    if let (true, Some((bytes, _))) = (action.named_by_content(), &body) {
        path = path.replace("{rule-file}", &hex(&Sha256::digest(bytes)));
    }
    let mut client = whom.client()?;
    if action.lists() {
        return list(action, &mut client, &path, &typed, json);
    }
    let mut query = query(action, &typed);
    let is_named = query.iter().any(|pair| pair.starts_with("file-name="));
    if let Some(name) = typed
        .text(FILE)
        .filter(|_| action.named_by_content() && !is_named)
        .and_then(|file| file_name(Path::new(file)))
    {
        query.push(format!("file-name={name}"));
    }
    if !query.is_empty() {
        path = format!("{path}?{}", query.join("&"));
    }
    let mut fields = Vec::new();
    if let Some(generation) = typed.text(IF_MATCH) {
        fields.push(("if-match", format!("\"{}\"", generation.trim_matches('"'))));
    }
    if typed.flag(NEW) {
        fields.push(("if-none-match", "*".to_owned()));
    }
    let of = document.as_ref().map(|document| (document, ""));
    let answer = send_request(&mut client, ClientRequest { method: route.method, path, body, fields, of })?;
    print_outcome(&answer.body, action, typed.flag(&actions::id("query", "dry-run")), json);
    Ok(Exit::Done)
}

fn print_outcome(body: &Value, action: &ResourceAction, dry: bool, json: bool) {
    let text = match body {
        Value::String(text) => text.clone(),
        body if json => format!("{body:#}"),
        body if body.get("changes").is_some() && !action.reads() => show::outcome(body, dry),
        body => show::document(body),
    };
    println!("{}", text.trim_end_matches('\n'));
}

/// The route for the names given, and its path.
fn route<'a>(action: &'a ResourceAction, typed: &Typed<'_>) -> Result<(&'a Route, String), Failure> {
    let given = |name: &&str| action.named_by_content() || typed.text(&actions::id("name", name)).is_some();
    let fits = |route: &&Route| names(route).iter().all(given);
    let longest = action.routes.iter().filter(fits).max_by_key(|route| names(route).len());
    let route = longest.ok_or_else(|| Failure::usage("a name is missing; see --help"))?;
    let mut path = route.path.clone();
    for name in names(route) {
        if let Some(value) = typed.text(&actions::id("name", name)) {
            path = path.replace(&format!("{{{name}}}"), &path_part(value));
        }
    }
    Ok((route, path))
}

fn query(action: &ResourceAction, typed: &Typed<'_>) -> Vec<String> {
    let said = action.parameters().into_iter().filter_map(|parameter| {
        let id = actions::id("query", parameter.name);
        match parameter.kind {
            ParameterKind::Flag => typed.flag(&id).then(|| format!("{}=true", parameter.name)),
            ParameterKind::Number(..) => {
                let number = typed.0.try_get_one::<i64>(&id).ok().flatten()?;
                Some(format!("{}={number}", parameter.name))
            }
            ParameterKind::Cursor
            | ParameterKind::NumberCursor
            | ParameterKind::Name
            | ParameterKind::FileName => {
                typed.text(&id).map(|cursor| format!("{}={}", parameter.name, path_part(cursor)))
            }
        }
    });
    said.collect()
}

/// The body of the request: the document, with the values of options in it.
fn body(
    action: &ResourceAction,
    route: &Route,
    typed: &Typed<'_>,
    document: Option<&LocalDocument>,
) -> Result<Option<(Vec<u8>, &'static str)>, Failure> {
    let Some(of) = route.body else { return Ok(None) };
    if of.schema.is_none() {
        let Some(file) = typed.text(FILE) else { return Ok(None) };
        return Ok(Some((document::bytes(file)?, "text/plain")));
    }
    let mut value = document.map_or_else(|| json!({}), |document| document.body.clone());
    let options = options(action, typed)?;
    if let Some(pairs) = value.as_object_mut() {
        pairs.extend(options);
    } else if let (false, Some(document)) = (options.is_empty(), document) {
        return Err(document.wrong("", "options set keys of a document, and this document has no keys"));
    }
    Ok(Some((value.to_string().into_bytes(), JSON)))
}

fn options(action: &ResourceAction, typed: &Typed<'_>) -> Result<Map<String, Value>, Failure> {
    let mut said = Map::new();
    for flag in &action.flags {
        let id = actions::id("body", &flag.key);
        let value = match &flag.kind {
            FlagKind::Text | FlagKind::Word(_) => typed.text(&id).map(Value::from),
            FlagKind::Either => {
                typed.text(&id).map(|text| text.parse::<u64>().map_or(Value::from(text), Value::from))
            }
            FlagKind::Number => typed.0.try_get_one::<u64>(&id).ok().flatten().map(|n| Value::from(*n)),
            FlagKind::Yes => typed.flag(&id).then_some(Value::Bool(true)),
            FlagKind::List => typed.texts(&id).map(Value::from),
            FlagKind::Pairs => typed.texts(&id).map(|texts| pairs(&flag.key, &texts)).transpose()?,
        };
        said.extend(value.map(|value| (flag.key.clone(), value)));
    }
    if let Ok(Some(steps)) = typed.0.try_get_many::<u8>(PERCENT) {
        let steps: Vec<Value> = steps.map(|percent| json!({ "percent": percent })).collect();
        said.insert("steps".to_owned(), Value::Array(steps));
    }
    Ok(said)
}

fn pairs(key: &str, texts: &[&str]) -> Result<Value, Failure> {
    let pair = |text: &&str| {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("--{key} `{text}`: write NAME=VALUE")))?;
        Ok((name.to_owned(), Value::from(value)))
    };
    texts.iter().map(pair).collect::<Result<Map<_, _>, Failure>>().map(Value::Object)
}

/// Prints a list: all of it unless a number is given; of a log, one page.
fn list(
    action: &ResourceAction,
    client: &mut Client,
    path: &str,
    typed: &Typed<'_>,
    json: bool,
) -> Result<Exit, Failure> {
    let limit = typed.0.try_get_one::<i64>(&actions::id("query", "limit")).ok().flatten();
    let limit = limit.and_then(|limit| usize::try_from(*limit).ok());
    let most = limit.or(action.follows().then_some(PAGE_MAX));
    let mut items = items(client, path, most)?;
    if !(action.follows() && typed.flag(FOLLOW)) {
        print_items(action, &items, json, true);
        return Ok(Exit::Done);
    }
    items.reverse();
    print_items(action, &items, json, true);
    let mut last = items.last().and_then(number).unwrap_or(0);
    loop {
        std::thread::sleep(PAUSE);
        let mut new = newer(client, path, last)?;
        new.reverse();
        last = new.last().and_then(number).unwrap_or(last);
        if !new.is_empty() {
            print_items(action, &new, json, false);
        }
    }
}

fn print_items(action: &ResourceAction, items: &[Value], json: bool, begin: bool) {
    if json && action.follows() {
        // A line each, so that a reader of the output sees each item as it comes.
        items.iter().for_each(|item| println!("{item}"));
    } else if json {
        println!("{:#}", Value::from(items));
    } else {
        // The items of a library are rules, not libraries: no table of libraries.
        let resource = if action.verb == "list" { action.resource.as_str() } else { "" };
        let text = show::table(resource, items, begin);
        if !text.is_empty() {
            println!("{}", text.trim_end());
        }
    }
}
