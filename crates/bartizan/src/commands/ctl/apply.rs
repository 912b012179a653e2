// SPDX-License-Identifier: Apache-2.0
//! `bartizan ctl apply`: documents of files, put in an order that works. What differs is shown first; what stands already is left alone.
//!
//! Nothing is removed: what a controller has and the files do not stays. Not done: all of it as one change.

use super::access::Whom;
use super::act::file_name;
use super::ask::{self, JSON, Request, ask, ask_if_there};
use super::document::{self, Document};
use super::show;
use bartizan_controller::client::Client;
use bartizan_controller::rest::Method;
use bartizan_controller::store::hex;
use bartizan_events::harmless_line;
use bartizan_runtime::error::{Exit, Failure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The name of the command.
pub const NAME: &str = "apply";

/// Put a file, or a folder of files, with documents of kind, name and spec; shows what differs first.
#[derive(clap::Args)]
#[command(after_help = FORM)]
pub struct Args {
    /// File or folder with documents (*.yaml, *.yml, *.json); may be repeated.
    #[arg(short, long = "file", value_name = "PATH", required = true)]
    file: Vec<PathBuf>,
    /// Only show what differs.
    #[arg(long)]
    dry_run: bool,
}

const FORM: &str = "\
A document:
  kind: policy            # tenant, library, group, policy, device, setting
  tenant: acme            # of groups and policies
  name: web
  spec:                   # as `bartizan ctl policies get acme web` prints it
    order: 10
    policy: {from: lan, chain: [pfw], pfw: {default: drop}}
Files of a library may be named by their paths, seen from the document; they are put first.";

/// Kinds of documents, in the order in which they are put, each with its path.
const KINDS: &[(&str, &str)] = &[
    ("tenant", "/v1/tenants/{name}"),
    ("library", "/v1/libraries/{name}"),
    ("group", "/v1/tenants/{tenant}/groups/{name}"),
    ("policy", "/v1/tenants/{tenant}/policies/{name}"),
    ("device", "/v1/devices/{name}"),
    ("setting", "/v1/settings/{name}"),
];

/// A document that is to be put.
pub struct Wanted {
    document: Document,
    order: usize,
    path: String,
    /// Its tenant, if its kind has one.
    pub tenant: Option<String>,
    /// Its kind.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// What it is to say.
    pub spec: Value,
    /// Rule files that it names by their paths, by their hashes.
    rule_files: BTreeMap<String, PathBuf>,
}

/// The documents of files and folders, in an order that works.
pub fn read(paths: &[PathBuf]) -> Result<Vec<Wanted>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        files.extend(files_of(path)?);
    }
    let mut wanted = Vec::new();
    for file in files {
        for document in Document::all(&file.to_string_lossy())? {
            wanted.push(Wanted::of(document)?);
        }
    }
    in_order(wanted)
}

fn files_of(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let unreadable = |error| Failure::input(format!("cannot read {}: {error}", path.display()));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?.path();
        let kind = entry.extension().and_then(|kind| kind.to_str());
        if entry.is_dir() {
            files.extend(files_of(&entry)?);
        } else if matches!(kind, Some("yaml" | "yml" | "json")) {
            files.push(entry);
        }
    }
    files.sort();
    Ok(files)
}

impl Wanted {
    fn of(document: Document) -> Result<Self, Failure> {
        let text = |key: &str| document.body.get(key).and_then(Value::as_str).map(str::to_owned);
        let missing = |key: &str| {
            document.wrong("", &format!("`{key}` is missing; `bartizan ctl apply --help` shows the form"))
        };
        let is_policy_file = ["policies", "default"].iter().any(|key| document.body.get(*key).is_some());
        if document.body.get("kind").is_none() && is_policy_file {
            let message = "this is a policy file as a host has it; a controller takes its tenants, groups and policies as documents, each with \
                           `kind`, `name` and `spec` (`bartizan ctl apply --help`)";
            return Err(document.wrong("", message));
        }
        let kind = text("kind").ok_or_else(|| missing("kind"))?;
        let found = KINDS.iter().enumerate().find(|(_, (known, _))| *known == kind);
        let Some((order, (kind, path))) = found else {
            let known = KINDS.iter().map(|(kind, _)| *kind).collect::<Vec<_>>().join(", ");
            return Err(document.wrong("/kind", &format!("there is no kind `{kind}`; there are {known}")));
        };
        let name = text("name").ok_or_else(|| missing("name"))?;
        let tenant = text("tenant");
        let own = path.contains("{tenant}");
        if own != tenant.is_some() {
            return Err(match own {
                true => missing("tenant"),
                false => document.wrong("/tenant", &format!("a {kind} has no tenant; leave it out")),
            });
        }
        for key in document.body.as_object().into_iter().flatten().map(|(key, _)| key) {
            if !["kind", "name", "tenant", "spec"].contains(&key.as_str()) {
                let message =
                    format!("there is no key `{key}` here; a document has kind, name, tenant and spec");
                return Err(document.wrong(&format!("/{key}"), &message));
            }
        }
        let spec = document.body.get("spec").cloned().ok_or_else(|| missing("spec"))?;
        let path = path.replace("{name}", &ask::part(&name));
        let path = path.replace("{tenant}", &ask::part(tenant.as_deref().unwrap_or_default()));
        let mut wanted =
            Wanted { document, order, path, tenant, kind, name, spec, rule_files: BTreeMap::new() };
        wanted.find_rule_files()?;
        Ok(wanted)
    }

    /// What a library names by a path gets the hash of its content instead.
    fn find_rule_files(&mut self) -> Result<(), Failure> {
        let folder = Path::new(&self.document.file).parent().unwrap_or(Path::new("")).to_owned();
        let files =
            self.spec.get_mut("files").filter(|_| self.kind == "library").and_then(Value::as_array_mut);
        for file in files.into_iter().flatten() {
            let is_hash = |text: &str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
            let Some(path) = file.as_str().filter(|text| !is_hash(text)).map(|text| folder.join(text)) else {
                continue;
            };
            let hash = hex(&Sha256::digest(document::bytes(&path.to_string_lossy())?));
            self.rule_files.insert(hash.clone(), path);
            *file = Value::from(hash);
        }
        Ok(())
    }

    /// Something that is wrong in it.
    pub fn wrong(&self, message: &str) -> Failure {
        self.document.wrong("/spec", message)
    }

    fn title(&self) -> String {
        let tenant = self.tenant.as_ref().map(|tenant| format!("{tenant}/")).unwrap_or_default();
        format!("{} {tenant}{}", self.kind, self.name)
    }

    /// Groups that it names, if it is one.
    fn members(&self) -> Vec<&str> {
        match self.spec.get("members").filter(|_| self.kind == "group") {
            Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(text)) => vec![text],
            _ => Vec::new(),
        }
    }
}

/// By kind; groups behind those that they name. Two of one name are refused.
fn in_order(mut wanted: Vec<Wanted>) -> Result<Vec<Wanted>, Failure> {
    wanted.sort_by(|a, b| (a.order, &a.path).cmp(&(b.order, &b.path)));
    for pair in wanted.windows(2) {
        if let [a, b] = pair
            && a.path == b.path
        {
            let message = format!("{} is at {} already", b.title(), a.document.place("/name"));
            return Err(b.document.wrong("/name", &message));
        }
    }
    let is_group = |one: &Wanted| one.kind == "group";
    let first = wanted.iter().position(is_group).unwrap_or(wanted.len());
    let count = wanted.iter().filter(|one| is_group(one)).count();
    // Those of a tenant stand together, by their path.
    let groups: Vec<Wanted> = wanted.splice(first..first + count, []).collect();
    let (mut groups, mut ordered) = (groups.into_iter().peekable(), Vec::with_capacity(count));
    while let Some(group) = groups.next() {
        let tenant = group.tenant.clone();
        let mut own = vec![group];
        own.extend(std::iter::from_fn(|| groups.next_if(|other| other.tenant == tenant)));
        ordered.extend(members_first(own));
    }
    wanted.splice(first..first, ordered);
    Ok(wanted)
}

/// The groups of a tenant, each behind those that it names.
fn members_first(mut groups: Vec<Wanted>) -> Vec<Wanted> {
    let mut ordered = Vec::with_capacity(groups.len());
    while !groups.is_empty() {
        let waits = |one: &Wanted| {
            let members = one.members();
            groups.iter().any(|other| other.path != one.path && members.contains(&other.name.as_str()))
        };
        // Groups in a circle are for the controller to refuse, with the reason.
        let next = groups.iter().position(|one| !waits(one)).unwrap_or(0);
        ordered.push(groups.remove(next));
    }
    ordered
}

/// A document with what stands now.
struct Planned {
    wanted: Wanted,
    before: Option<Value>,
    missing_files: Vec<(String, PathBuf)>,
}

impl Planned {
    fn of(client: &mut Client, wanted: Wanted) -> Result<Self, Failure> {
        let stands = ask_if_there(client, wanted.path.clone())?;
        let before = stands.and_then(|answer| answer.body.get("spec").cloned());
        let mut missing_files = Vec::new();
        for (hash, path) in &wanted.rule_files {
            if ask_if_there(client, format!("/v1/rule-files/{hash}"))?.is_none() {
                missing_files.push((hash.clone(), path.clone()));
            }
        }
        Ok(Planned { wanted, before, missing_files })
    }

    fn is_change(&self) -> bool {
        self.before.as_ref() != Some(&self.wanted.spec) || !self.missing_files.is_empty()
    }

    fn print(&self) {
        let what = match &self.before {
            None => "new",
            Some(before) if *before == self.wanted.spec => "as it is",
            Some(_) => "changed",
        };
        println!("{}: {what}", self.wanted.title());
        for (hash, path) in &self.missing_files {
            println!("    + rule file {} ({hash})", path.display());
        }
        show::difference(self.before.as_ref(), Some(&self.wanted.spec))
            .iter()
            .for_each(|line| println!("    {line}"));
    }

    /// Puts it, or asks whether it could be put. Returns the generation.
    fn put(&self, client: &mut Client, dry: bool) -> Result<u64, Failure> {
        for (hash, path) in self.missing_files.iter().filter(|_| !dry) {
            let bytes = document::bytes(&path.to_string_lossy())?;
            let body = Some((bytes, "text/plain"));
            let name = file_name(path).map(|name| format!("?file-name={name}")).unwrap_or_default();
            let path = format!("/v1/rule-files/{hash}{name}");
            ask(client, Request { method: Method::Put, path, body, fields: Vec::new(), of: None })?;
        }
        let query = if dry { "?dry-run=true" } else { "" };
        let request = Request {
            method: Method::Put,
            path: format!("{}{query}", self.wanted.path),
            body: Some((self.wanted.spec.to_string().into_bytes(), JSON)),
            fields: Vec::new(),
            of: Some((&self.wanted.document, "/spec")),
        };
        let answer = ask(client, request)?;
        for note in answer.body.get("notes").and_then(Value::as_array).into_iter().flatten() {
            let note = note.as_str().unwrap_or_default();
            eprintln!("note: {}: {}", self.wanted.title(), harmless_line(note));
        }
        Ok(answer.body.get("generation").and_then(Value::as_u64).unwrap_or(0))
    }
}

/// Shows what differs, and puts it.
pub fn run(args: &Args, whom: &Whom, json: bool) -> Result<Exit, Failure> {
    let wanted = read(&args.file)?;
    if wanted.is_empty() {
        return Err(Failure::input(
            "there are no documents; files of a folder are taken by *.yaml, *.yml and *.json",
        ));
    }
    let mut client = whom.client()?;
    let mut planned = Vec::new();
    for one in wanted {
        planned.push(Planned::of(&mut client, one)?);
    }
    if !json {
        planned.iter().filter(|one| one.is_change()).for_each(Planned::print);
    }
    let (mut done, mut generation) = (Vec::new(), None);
    let all: Vec<&Planned> = planned.iter().filter(|one| one.is_change()).collect();
    for (index, one) in all.iter().enumerate() {
        // What needs others that are not there yet cannot be checked before they are.
        if args.dry_run && index > 0 {
            break;
        }
        match one.put(&mut client, args.dry_run) {
            Ok(number) => generation = Some(number),
            Err(failure) if args.dry_run => return Err(failure),
            Err(failure) => {
                let left =
                    all.iter().skip(index).map(|one| one.wanted.title()).collect::<Vec<_>>().join(", ");
                let message =
                    format!("{failure}\n{} of {} are done; not done: {left}", done.len(), all.len());
                return Err(Failure { message, ..failure });
            }
        }
        done.push(one.wanted.title());
    }
    let same = planned.len() - all.len();
    if json {
        let changes: Vec<Value> = all
            .iter()
            .map(|one| json!({ "kind": one.wanted.kind, "tenant": one.wanted.tenant, "name": one.wanted.name, "before": one.before, "after": one.wanted.spec }))
            .collect();
        println!(
            "{:#}",
            json!({ "changes": changes, "same": same, "generation": generation, "dry-run": args.dry_run })
        );
        return Ok(Exit::Done);
    }
    match (all.len(), args.dry_run, generation) {
        (0, ..) => println!("nothing to change: {same} documents are as they stand"),
        (count, true, _) => println!("{count} would change, {same} are as they stand; nothing was changed"),
        (count, false, generation) => {
            let generation = generation.map(|number| format!("; generation {number}")).unwrap_or_default();
            println!("{count} changed, {same} were as they stand{generation}");
        }
    }
    Ok(Exit::Done)
}
