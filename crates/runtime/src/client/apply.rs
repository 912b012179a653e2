// SPDX-License-Identifier: Apache-2.0
//! Applies the documents of files, in an order that satisfies their references. Unchanged documents are left
//! alone.
//!
//! Documents of the controller that the files lack are not removed. Not done: all changes as one.

use super::document::{self, LocalDocument};
use super::request::{self, ClientRequest, JSON, send_request};
use crate::error::Failure;
use bartizan_controller::client::Client;
use bartizan_controller::rest::Method;
use bartizan_controller::rest::route::is_file_name;
use bartizan_controller::store::hex;
use bartizan_events::harmless_line;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tracing::info;

/// Kinds of documents, in the order in which they are put, each with its path.
const KINDS: &[(&str, &str)] = &[
    ("tenant", "/v1/tenants/{name}"),
    ("library", "/v1/libraries/{name}"),
    ("group", "/v1/tenants/{tenant}/groups/{name}"),
    ("policy", "/v1/tenants/{tenant}/policies/{name}"),
    ("device", "/v1/devices/{name}"),
    ("setting", "/v1/settings/{name}"),
];

/// A document to be put.
pub struct DesiredDocument {
    document: LocalDocument,
    order: usize,
    path: String,
    /// The document's tenant, if its kind has one.
    pub tenant: Option<String>,
    /// The document's kind.
    pub kind: &'static str,
    /// The document's name.
    pub name: String,
    /// The document's content.
    pub spec: Value,
    /// Rule files that the document names by path, by their hashes.
    rule_files: BTreeMap<String, PathBuf>,
}

/// The documents of files and folders, in an order that satisfies their references.
///
/// # Errors
/// A file cannot be read, a document lacks something, or two have one name.
pub fn read(paths: &[PathBuf]) -> Result<Vec<DesiredDocument>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        files.extend(files_of(path)?);
    }
    let mut wanted = Vec::new();
    for file in files {
        for document in LocalDocument::all(&file.to_string_lossy())? {
            wanted.push(DesiredDocument::of(document)?);
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

impl DesiredDocument {
    fn of(document: LocalDocument) -> Result<Self, Failure> {
        let text = |key: &str| document.body.get(key).and_then(Value::as_str).map(str::to_owned);
        let missing = |key: &str| {
            document.wrong("", &format!("`{key}` is missing; `bartizan ctl apply --help` shows the form"))
        };
        let is_policy_file = ["policies", "default"].iter().any(|key| document.body.get(*key).is_some());
        if document.body.get("kind").is_none() && is_policy_file {
            let message = "this is a policy file of a host; a controller expects tenants, groups and \
                 policies as documents, each with `kind`, `name` and `spec` (`bartizan ctl apply --help`)";
            return Err(document.wrong("", message));
        }
        let kind = text("kind").ok_or_else(|| missing("kind"))?;
        let found = KINDS.iter().enumerate().find(|(_, (known, _))| *known == kind);
        let Some((order, (kind, path))) = found else {
            let known = KINDS.iter().map(|(kind, _)| *kind).collect::<Vec<_>>().join(", ");
            return Err(document.wrong("/kind", &format!("there is no kind `{kind}`; kinds are {known}")));
        };
        let name = text("name").ok_or_else(|| missing("name"))?;
        let tenant = text("tenant");
        let own = path.contains("{tenant}");
        if own != tenant.is_some() {
            return Err(match own {
                true => missing("tenant"),
                false => document.wrong("/tenant", &format!("a {kind} has no tenant; remove `tenant`")),
            });
        }
        for key in document.body.as_object().into_iter().flatten().map(|(key, _)| key) {
            if !["kind", "name", "tenant", "spec"].contains(&key.as_str()) {
                let message =
                    format!("the key `{key}` is not known; a document has kind, name, tenant and spec");
                return Err(document.wrong(&format!("/{key}"), &message));
            }
        }
        let spec = document.body.get("spec").cloned().ok_or_else(|| missing("spec"))?;
        let path = path.replace("{name}", &request::path_part(&name));
        let path = path.replace("{tenant}", &request::path_part(tenant.as_deref().unwrap_or_default()));
        let mut wanted =
            DesiredDocument { document, order, path, tenant, kind, name, spec, rule_files: BTreeMap::new() };
        wanted.find_rule_files()?;
        Ok(wanted)
    }

    /// Replaces each path that a library names by the hash of the file's content.
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

    /// A failure caused by the document, with its place.
    pub fn wrong(&self, message: &str) -> Failure {
        self.document.wrong("/spec", message)
    }

    /// Kind, tenant and name.
    pub fn title(&self) -> String {
        let tenant = self.tenant.as_ref().map(|tenant| format!("{tenant}/")).unwrap_or_default();
        format!("{} {tenant}{}", self.kind, self.name)
    }

    /// Groups that the document names, if it is a group.
    fn members(&self) -> Vec<&str> {
        match self.spec.get("members").filter(|_| self.kind == "group") {
            Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(text)) => vec![text],
            _ => Vec::new(),
        }
    }
}

/// Sorts by kind; groups follow those that they name. Two documents with one name are refused.
fn in_order(mut wanted: Vec<DesiredDocument>) -> Result<Vec<DesiredDocument>, Failure> {
    wanted.sort_by(|a, b| (a.order, &a.path).cmp(&(b.order, &b.path)));
    for pair in wanted.windows(2) {
        if let [a, b] = pair
            && a.path == b.path
        {
            let message = format!("{} is already at {}", b.title(), a.document.place("/name"));
            return Err(b.document.wrong("/name", &message));
        }
    }
    let is_group = |one: &DesiredDocument| one.kind == "group";
    let first = wanted.iter().position(is_group).unwrap_or(wanted.len());
    let count = wanted.iter().filter(|one| is_group(one)).count();
    // The groups of a tenant are adjacent, since they are sorted by path.
    let groups: Vec<DesiredDocument> = wanted.splice(first..first + count, []).collect();
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

/// The groups of a tenant, each after those that it names.
fn members_first(mut groups: Vec<DesiredDocument>) -> Vec<DesiredDocument> {
    let mut ordered = Vec::with_capacity(groups.len());
    while !groups.is_empty() {
        let waits = |one: &DesiredDocument| {
            let members = one.members();
            groups.iter().any(|other| other.path != one.path && members.contains(&other.name.as_str()))
        };
        // The controller refuses circular groups, with the reason.
        let next = groups.iter().position(|one| !waits(one)).unwrap_or(0);
        ordered.push(groups.remove(next));
    }
    ordered
}

/// A desired document, with the controller's present one.
pub struct PlannedDocument {
    /// The document.
    pub wanted: DesiredDocument,
    /// Content of the present document.
    pub before: Option<Value>,
    /// Rule files that the controller lacks, by their hashes.
    pub missing_files: Vec<(String, PathBuf)>,
}

impl PlannedDocument {
    fn of(client: &mut Client, wanted: DesiredDocument) -> Result<Self, Failure> {
        let stands = request::find(client, wanted.path.clone())?;
        let before = stands.and_then(|answer| answer.body.get("spec").cloned());
        let mut missing_files = Vec::new();
        for (hash, path) in &wanted.rule_files {
            if request::find(client, format!("/v1/rule-files/{hash}"))?.is_none() {
                missing_files.push((hash.clone(), path.clone()));
            }
        }
        Ok(PlannedDocument { wanted, before, missing_files })
    }

    /// Whether the document differs.
    pub fn is_change(&self) -> bool {
        self.before.as_ref() != Some(&self.wanted.spec) || !self.missing_files.is_empty()
    }

    /// Puts the document; `dry`: only checks whether it could be put. Returns the generation.
    fn put(&self, client: &mut Client, dry: bool) -> Result<u64, Failure> {
        for (hash, path) in self.missing_files.iter().filter(|_| !dry) {
            let bytes = document::bytes(&path.to_string_lossy())?;
            let body = Some((bytes, "text/plain"));
            let name = file_name(path).map(|name| format!("?file-name={name}")).unwrap_or_default();
            let path = format!("/v1/rule-files/{hash}{name}");
            send_request(
                client,
                ClientRequest { method: Method::Put, path, body, fields: Vec::new(), of: None },
            )?;
        }
        let query = if dry { "?dry-run=true" } else { "" };
        let request = ClientRequest {
            method: Method::Put,
            path: format!("{}{query}", self.wanted.path),
            body: Some((self.wanted.spec.to_string().into_bytes(), JSON)),
            fields: Vec::new(),
            of: Some((&self.wanted.document, "/spec")),
        };
        let answer = send_request(client, request)?;
        for note in answer.body.get("notes").and_then(Value::as_array).into_iter().flatten() {
            let note = note.as_str().unwrap_or_default();
            info!("note: {}: {}", self.wanted.title(), harmless_line(note));
        }
        Ok(answer.body.get("generation").and_then(Value::as_u64).unwrap_or(0))
    }
}

/// Desired documents, with the controller's present ones.
pub struct Plan {
    documents: Vec<PlannedDocument>,
}

impl Plan {
    /// Reads the present documents.
    ///
    /// # Errors
    /// The controller refuses, or does not answer.
    pub fn of(client: &mut Client, wanted: Vec<DesiredDocument>) -> Result<Self, Failure> {
        let documents = wanted.into_iter().map(|one| PlannedDocument::of(client, one));
        Ok(Plan { documents: documents.collect::<Result<_, _>>()? })
    }

    /// The documents that differ, in the order in which they are put.
    pub fn changes(&self) -> Vec<&PlannedDocument> {
        self.documents.iter().filter(|one| one.is_change()).collect()
    }

    /// Number of unchanged documents.
    pub fn same(&self) -> usize {
        self.documents.len() - self.changes().len()
    }

    /// Puts the changes; `dry_run`: checks whether the first one could be put. Returns the generation.
    ///
    /// # Errors
    /// The controller refuses a document; the message names those that were not put.
    pub fn put(&self, client: &mut Client, dry_run: bool) -> Result<Option<u64>, Failure> {
        let changes = self.changes();
        let mut generation = None;
        for (index, one) in changes.iter().enumerate() {
            // A document that needs others cannot be checked before those exist.
            if dry_run && index > 0 {
                break;
            }
            match one.put(client, dry_run) {
                Ok(number) => generation = Some(number),
                Err(failure) if dry_run => return Err(failure),
                Err(failure) => {
                    let left = changes.iter().skip(index).map(|one| one.wanted.title());
                    let left = left.collect::<Vec<_>>().join(", ");
                    let message = format!(
                        "{failure}\n{index} of {} documents are applied; not applied: {left}",
                        changes.len()
                    );
                    return Err(Failure { message, ..failure });
                }
            }
        }
        Ok(generation)
    }
}

/// The name of a rule file at the controller. `None` for standard input, or if the name is not allowed.
pub fn file_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    is_file_name(name).then(|| name.to_owned())
}
