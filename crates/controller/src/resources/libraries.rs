// SPDX-License-Identifier: Apache-2.0
//! Rule libraries: rule files by the hash of their content, and selections of their rules by id, category or
//! metadata.

use super::document::{Context, DocumentKind, NoStatus, Page};
use crate::access::Need;
use crate::controller::{ChangeOutcome, Draft};
use crate::device::Touched;
use crate::parts;
use crate::problem::{Fault, Refusal};
use crate::render;
use crate::rest::http::{Method, Reply};
use crate::rest::route::{
    Body, CURSOR, Call, LIMIT, NUMBER_CURSOR, Parameter, ParameterKind, Route, first_page, schema,
};
use crate::store::{Document, hex};
use bartizan_api::southbound::limits;
use bartizan_rules::library::{RuleSelector, takes};
use bartizan_rules::{Rule, parse_file};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// The document kind of rule files' descriptions.
pub const FILES: &str = render::RULE_FILES;
/// The document kind of rule files' texts.
pub const TEXTS: &str = render::RULE_TEXTS;
/// Most bytes of a rule file.
pub const FILE_MAX: usize = 48 << 20;

/// Most bytes of a line of a rule file: with any escaping, such a line fits a message.
pub const LINE_MAX: usize = 128 << 10;

/// A library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LibrarySpec {
    /// The purpose of the library, for people.
    #[serde(default)]
    pub description: String,
    /// Rule files, by the SHA-256 of their content.
    pub files: Vec<String>,
    /// Selectors of rules: a rule that any of them matches is in the library; all rules unless given.
    #[serde(default)]
    pub choose: Vec<RuleSelector>,
    /// Ids of rules that are left out nevertheless.
    #[serde(default)]
    #[schemars(with = "Vec<u32>")]
    pub except: BTreeSet<u32>,
}

/// The resource of libraries.
pub struct Libraries;

impl DocumentKind for Libraries {
    const KIND: &'static str = render::LIBRARIES;
    const PATH: &'static str = "/v1/libraries";
    const ONE: &'static str = "library";
    const READ: Need = Need::Read;
    const WRITE: Need = Need::Admin;
    type Spec = LibrarySpec;
    type Status = NoStatus;

    fn check(context: &Context<'_>, spec: &LibrarySpec) -> Vec<Fault> {
        let unknown =
            spec.files.iter().enumerate().filter(|(_, hash)| context.model.get(FILES, hash).is_none());
        let mut faults: Vec<Fault> = unknown
            .map(|(index, _)| {
                Fault::new(format!("/files/{index}"), "there is no such rule file; upload it first")
            })
            .collect();
        if context.name == "none" {
            faults.push(Fault::new("", "`none` means no rules; give the library another name"));
        }
        let empty = |choice: &RuleSelector| {
            choice.sids.is_none() && choice.category.is_none() && choice.metadata.is_empty()
        };
        for (index, _) in spec.choose.iter().enumerate().filter(|(_, choice)| empty(choice)) {
            let message = "add `sids`, `category` or `metadata`; without `choose` the library has all rules";
            faults.push(Fault::new(format!("/choose/{index}"), message));
        }
        let long = parts::unsendable(context.model, Self::KIND, context.name, context.body);
        faults.extend(long.map(|message| Fault::new("", message)));
        faults
    }

    fn free(context: &Context<'_>) -> Result<(), Refusal> {
        let level = |body: &Value| {
            let level = body.pointer("/policy/ids/level").and_then(Value::as_str);
            level == Some(context.name)
        };
        let by = |what: &str| Err(Refusal::Conflict(format!("{what} uses it; change that first")));
        if let Some(policy) = context.model.all(render::POLICIES).find(|policy| level(&policy.body)) {
            return by(&format!("policy `{}`", policy.id));
        }
        match render::library_of(&render::default(context.model)) == Some(context.name) {
            true => by(&format!("the setting `{}`", render::DEFAULT)),
            false => Ok(()),
        }
    }

    fn touched(_: &Context<'_>) -> Touched {
        Touched::All
    }
}

/// A rule file.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct RuleFileItem {
    /// SHA-256 of its content.
    pub name: String,
    /// The original name of the file; null without one.
    pub file_name: Option<String>,
    /// Size in bytes.
    pub bytes: u64,
    /// Number of rules that can be parsed.
    pub rules: u64,
    /// Number of rules that cannot be parsed.
    pub refused: u64,
}

/// A rule of a library.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ChosenRule {
    /// The rule's id.
    pub sid: u32,
    /// The rule's message.
    pub msg: String,
    /// The rule's category.
    pub category: Option<String>,
}

/// The query parameter with the original name of a rule file.
const FILE_NAME: Parameter = Parameter {
    name: render::FILE_NAME,
    about: "The file's name at its origin: devices' reports about its rules are shown with it.",
    kind: ParameterKind::FileName,
};

/// The routes beside those of the documents.
pub(super) fn routes() -> Vec<Route> {
    let route = |method, path: &str, operation: &str, about: &str| Route {
        method,
        path: path.to_owned(),
        operation: operation.to_owned(),
        about: about.to_owned(),
        need: if method == Method::Get { Need::Read } else { Need::Admin },
        query: &[],
        body: None,
        tagged: false,
        statuses: &[200],
        answer: Some(schema::<ChangeOutcome>()),
        handler: list_files,
    };
    let one = "/v1/rule-files/{rule-file}";
    vec![
        Route {
            query: &[LIMIT, CURSOR],
            answer: Some(schema::<Page<RuleFileItem>>()),
            ..route(Method::Get, "/v1/rule-files", "list-rule-files", "Every rule file, without its text.")
        },
        Route {
            answer: None,
            handler: get_file,
            ..route(Method::Get, one, "get-rule-file", "The text of a rule file.")
        },
        Route {
            query: &[FILE_NAME],
            body: Some(Body { schema: None, max: FILE_MAX }),
            statuses: &[200, 201],
            handler: put_file,
            ..route(Method::Put, one, "put-rule-file", "Puts a rule file under the SHA-256 of its content.")
        },
        Route {
            handler: delete_file,
            ..route(Method::Delete, one, "delete-rule-file", "Removes a rule file that no library names.")
        },
        Route {
            query: &[LIMIT, NUMBER_CURSOR],
            answer: Some(schema::<Page<ChosenRule>>()),
            handler: list_rules,
            ..route(
                Method::Get,
                "/v1/libraries/{library}/rules",
                "list-library-rules",
                "The rules that a library chooses, by their ids.",
            )
        },
        Route {
            answer: None,
            handler: get_rules,
            ..route(
                Method::Get,
                "/v1/libraries/{library}/text",
                "get-library-text",
                "The rules that a library chooses, as a rule file.",
            )
        },
    ]
}

fn list_files(call: &Call<'_>) -> Result<Reply, Refusal> {
    let (model, cursor, limit) = (call.controller.model(), call.cursor()?, call.limit());
    let items = model.list(FILES, "", cursor.as_deref()).map(|document| {
        let of = |key: &str| document.body.get(key).cloned().unwrap_or(Value::Null);
        let item = json!({
            "name": document.id, "file-name": of(render::FILE_NAME), "bytes": of("bytes"), "rules": of("rules"), "refused": of("refused"),
        });
        (document.id.clone(), item)
    });
    Ok(first_page(items, limit))
}

fn text(document: &Document) -> &str {
    document.body.get("text").and_then(Value::as_str).unwrap_or_default()
}

fn missing(call: &Call<'_>) -> Refusal {
    Refusal::NotFound(format!("there is no rule file `{}`", call.name("rule-file")))
}

fn get_file(call: &Call<'_>) -> Result<Reply, Refusal> {
    let document = call.controller.model().share(TEXTS, call.name("rule-file"));
    let document = document.ok_or_else(|| missing(call))?;
    Ok(Reply::text(text(&document).to_owned()).with("etag", format!("\"{}\"", document.id)))
}

fn put_file(call: &Call<'_>) -> Result<Reply, Refusal> {
    let name = call.name("rule-file");
    let hash = hex(&Sha256::digest(&call.body));
    if name != hash {
        let message = format!("the content's SHA-256 is {hash}; upload it under that name");
        return Err(Refusal::wrong("", message));
    }
    let text = std::str::from_utf8(&call.body)
        .map_err(|error| Refusal::wrong("", format!("rule files are UTF-8; this one is not: {error}")))?;
    if let Some(message) = unsendable(text) {
        return Err(Refusal::wrong("", message));
    }
    let file = parse_file(call.body.as_slice(), name);
    let (rules, refused) = (file.rules.len(), file.refused.len());
    let mut what = json!({ "bytes": call.body.len(), "rules": rules, "refused": refused });
    let outcome = call.controller.change(&call.principal(), "put", false, |model| {
        // A file that is sent again without a name keeps its name.
        let known = model.get(FILES, &hash).and_then(|file| file.body.get(render::FILE_NAME)).cloned();
        let file_name = call.parameter(FILE_NAME.name).map(Value::from).or(known);
        if let (Some(file_name), Some(what)) = (file_name, what.as_object_mut()) {
            what.insert(render::FILE_NAME.to_owned(), file_name);
        }
        let write = |kind: &str, body| (kind.to_owned(), hash.clone(), Some(body));
        let writes = vec![write(FILES, what), write(TEXTS, json!({ "text": text }))];
        // A file that no library names affects no device.
        Ok(Draft { writes, ..Draft::default() })
    })?;
    match outcome.changes.iter().any(|change| change.before.is_none()) {
        true => Ok(Reply::created(&outcome, call.location())),
        false => Ok(Reply::json(200, &outcome)),
    }
}

/// Why a rule file cannot be sent to devices.
fn unsendable(text: &str) -> Option<String> {
    let (mut lines, most) = (0usize, usize::try_from(limits::GROUP_RULES).unwrap_or(usize::MAX));
    for line in text.split('\n') {
        lines += 1;
        if line.len() > LINE_MAX {
            return Some(format!("line {lines} has {} bytes; {LINE_MAX} are allowed", line.len()));
        }
    }
    (lines > most).then(|| format!("the file has {lines} lines; {most} are allowed: split it"))
}

fn delete_file(call: &Call<'_>) -> Result<Reply, Refusal> {
    let name = call.name("rule-file");
    let outcome = call.controller.change(&call.principal(), "delete", false, |model| {
        if model.get(FILES, name).is_none() {
            return Err(missing(call));
        }
        let names = |body: &Value| {
            body.get("files").and_then(Value::as_array).is_some_and(|files| files.iter().any(|f| f == name))
        };
        if let Some(library) = model.all(render::LIBRARIES).find(|library| names(&library.body)) {
            let message = format!("library `{}` uses it; change that first", library.id);
            return Err(Refusal::Conflict(message));
        }
        let write = |kind: &str| (kind.to_owned(), name.to_owned(), None);
        Ok(Draft { writes: vec![write(FILES), write(TEXTS)], ..Draft::default() })
    })?;
    Ok(Reply::json(200, &outcome))
}

/// The rules that a library selects, by id; of two rules with one id, that of the file named first. Parsing
/// takes long: no lock is held meanwhile.
fn chosen(call: &Call<'_>) -> Result<BTreeMap<u32, Rule>, Refusal> {
    let library = call.name("library");
    let (spec, texts) = {
        let model = call.controller.model();
        let missing = || Refusal::NotFound(format!("there is no library `{library}`"));
        let spec: LibrarySpec = model.read(render::LIBRARIES, library).ok_or_else(missing)?;
        let texts: Vec<_> = spec.files.iter().filter_map(|hash| model.share(TEXTS, hash)).collect();
        (spec, texts)
    };
    let wanted = |rule: &Rule| takes(&spec.choose, &spec.except, rule);
    let mut rules = BTreeMap::new();
    for file in &texts {
        for rule in parse_file(text(file).as_bytes(), &file.id).rules.into_iter().filter(wanted) {
            rules.entry(rule.meta.id.sid).or_insert(rule);
        }
    }
    Ok(rules)
}

fn list_rules(call: &Call<'_>) -> Result<Reply, Refusal> {
    let behind = call.number_cursor()?;
    let rules = chosen(call)?;
    let left = rules.iter().filter(|(sid, _)| behind.is_none_or(|behind| u64::from(**sid) > behind));
    let items = left.map(|(sid, rule)| {
        let msg = String::from_utf8_lossy(&rule.msg()).into_owned();
        (sid.to_string(), json!({ "sid": sid, "msg": msg, "category": rule.classtype() }))
    });
    Ok(first_page(items, call.limit()))
}

fn get_rules(call: &Call<'_>) -> Result<Reply, Refusal> {
    let rules = chosen(call)?;
    let mut text = String::new();
    for rule in rules.values() {
        text.push_str(&String::from_utf8_lossy(&rule.print()));
        text.push('\n');
    }
    Ok(Reply::text(text))
}
