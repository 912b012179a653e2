// SPDX-License-Identifier: Apache-2.0
//! Resources that are documents: listed, read, written as a whole, removed. A kind has its own type and
//! checks; pages, tags against lost updates, dry runs and quotas are implemented here for all kinds.

use crate::access::{Need, Principal};
use crate::controller::{ChangeOutcome, Difference, Draft, Settings, redact};
use crate::device::{self, Touched};
use crate::interfaces::INTERFACES;
use crate::model::Model;
use crate::problem::{Fault, Refusal};
use crate::rest::http::{Method, Reply};
use crate::rest::route::{
    BODY_MAX, Body, CURSOR, Call, DRY_RUN, LIMIT, Route, WAIT, first_page, read_as, schema,
};
use crate::rest::tags::{self, Comparison};
use crate::sections::Sections;
use crate::store::Status;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::cell::RefCell;

/// A kind of document.
pub trait DocumentKind: 'static {
    /// Name of the kind in the store.
    const KIND: &'static str;
    /// Path of the list; documents of tenants have `{tenant}` in it.
    const PATH: &'static str;
    /// The singular, in paths and names of operations.
    const ONE: &'static str;
    /// The permission to read.
    const READ: Need;
    /// The permission to write.
    const WRITE: Need;
    /// The type of the body.
    type Spec: DeserializeOwned + JsonSchema;
    /// The type of the status that is shown.
    type Status: Serialize + JsonSchema;

    /// Parses the body.
    ///
    /// # Errors
    /// All faults of the body's form.
    fn read(body: &Value) -> Result<Self::Spec, Refusal> {
        read_as(body)
    }

    /// Faults of a document that is to be written.
    fn check(context: &Context<'_>, spec: &Self::Spec) -> Vec<Fault>;

    /// Checks that one more document is within the quota.
    ///
    /// # Errors
    /// The quota is used up.
    fn room(_context: &Context<'_>) -> Result<(), Refusal> {
        Ok(())
    }

    /// Checks that a document may be removed.
    ///
    /// # Errors
    /// Another document needs it.
    fn free(_context: &Context<'_>) -> Result<(), Refusal> {
        Ok(())
    }

    /// The tenants whose traffic a change of the document concerns.
    fn touched(context: &Context<'_>) -> Touched;

    /// Notes on a change beside its differences; `removed`: the document is removed.
    fn notes(_context: &Context<'_>, _removed: bool) -> Vec<String> {
        Vec::new()
    }

    /// Status that is written with the document.
    fn also(_context: &Context<'_>) -> Vec<Status> {
        Vec::new()
    }

    /// The status of a document.
    fn status(_model: &Model, _id: &str) -> Option<Self::Status> {
        None
    }
}

/// The input of checks.
pub struct Context<'c> {
    /// The current model.
    pub model: &'c Model,
    /// The functions that chains may name.
    pub functions: &'c [String],
    /// The functions' checks of their policy sections.
    pub sections: &'c Sections,
    /// The caller.
    pub who: &'c Principal,
    /// The tenant of the path; empty without one.
    pub tenant: &'c str,
    /// The name in the path.
    pub name: &'c str,
    /// The body as received.
    pub body: &'c Value,
    /// Warnings that a check has found, for the notes.
    pub warnings: RefCell<Vec<String>>,
}

/// No status.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NoStatus {}

/// A document with its status.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "{S}Item")]
pub struct DocumentItem<S, T> {
    /// The document's name.
    pub name: String,
    /// The generation that wrote it.
    pub generation: u64,
    /// The body of the document.
    pub spec: S,
    /// The status beside the document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<T>,
}

/// A page of a list.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "{T}Page")]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// The value of `cursor` for the next page; null on the last page.
    pub next: Option<String>,
}

/// The four routes of a kind.
#[must_use]
pub fn routes<K: DocumentKind>() -> Vec<Route> {
    let one = format!("{}/{{{}}}", K::PATH, K::ONE);
    let route = |method: Method, path: &str, verb: &str, about: &str| Route {
        method,
        path: path.to_owned(),
        operation: format!("{verb}-{}", K::ONE),
        about: about.replace("ONE", &K::ONE.replace('-', " ")),
        need: if method == Method::Get { K::READ } else { K::WRITE },
        query: &[],
        body: None,
        tagged: true,
        statuses: &[200],
        answer: Some(schema::<ChangeOutcome>()),
        handler: list::<K>,
    };
    vec![
        Route {
            query: &[LIMIT, CURSOR],
            tagged: false,
            answer: Some(schema::<Page<DocumentItem<K::Spec, K::Status>>>()),
            ..route(Method::Get, K::PATH, "list", "Every ONE, in the order of their names.")
        },
        Route {
            answer: Some(schema::<DocumentItem<K::Spec, K::Status>>()),
            handler: get::<K>,
            ..route(Method::Get, &one, "get", "One ONE.")
        },
        Route {
            query: &[DRY_RUN, WAIT],
            body: Some(Body { schema: Some(schema::<K::Spec>()), max: BODY_MAX }),
            statuses: &[200, 201],
            handler: put::<K>,
            ..route(Method::Put, &one, "put", "Makes or replaces a ONE.")
        },
        Route {
            query: &[DRY_RUN, WAIT],
            handler: delete::<K>,
            ..route(Method::Delete, &one, "delete", "Removes a ONE.")
        },
    ]
}

/// The prefix of the names of a tenant's documents in the store.
#[must_use]
pub fn prefix(call: &Call<'_>) -> String {
    match call.name("tenant") {
        "" => String::new(),
        tenant => format!("{tenant}/"),
    }
}

fn exists(call: &Call<'_>, model: &Model) -> Result<(), Refusal> {
    match call.names.iter().find(|(key, _)| key == "tenant") {
        Some((_, tenant)) if model.get("tenants", tenant).is_none() => {
            Err(Refusal::NotFound(format!("there is no tenant `{tenant}`")))
        }
        _ => Ok(()),
    }
}

fn item<K: DocumentKind>(
    model: &Model,
    id: &str,
    generation: u64,
    body: &Value,
) -> DocumentItem<Value, K::Status> {
    let name = id.rsplit('/').next().unwrap_or(id).to_owned();
    DocumentItem { name, generation, spec: redact(K::KIND, body), status: K::status(model, id) }
}

fn list<K: DocumentKind>(call: &Call<'_>) -> Result<Reply, Refusal> {
    let (model, prefix, cursor, limit) =
        (call.controller.model(), own::<K>(call), call.cursor()?, call.limit());
    exists_if::<K>(call, &model)?;
    let items = model.list(K::KIND, &prefix, cursor.as_deref()).map(|document| {
        let item = item::<K>(&model, &document.id, document.generation, &document.body);
        (document.id.clone(), serde_json::to_value(item).unwrap_or_default())
    });
    Ok(first_page(items, limit))
}

/// The prefix of a kind's names: the tenant for documents of tenants; empty for others.
fn own<K: DocumentKind>(call: &Call<'_>) -> String {
    if K::PATH.contains("{tenant}") { prefix(call) } else { String::new() }
}

fn exists_if<K: DocumentKind>(call: &Call<'_>, model: &Model) -> Result<(), Refusal> {
    if K::PATH.contains("{tenant}") { exists(call, model) } else { Ok(()) }
}

fn id<K: DocumentKind>(call: &Call<'_>) -> String {
    format!("{}{}", own::<K>(call), call.name(K::ONE))
}

fn missing<K: DocumentKind>(call: &Call<'_>) -> Refusal {
    Refusal::NotFound(format!("there is no {} `{}`", K::ONE.replace('-', " "), call.name(K::ONE)))
}

fn get<K: DocumentKind>(call: &Call<'_>) -> Result<Reply, Refusal> {
    let model = call.controller.model();
    exists_if::<K>(call, &model)?;
    let document = model.get(K::KIND, &id::<K>(call)).ok_or_else(|| missing::<K>(call))?;
    let item = item::<K>(&model, &document.id, document.generation, &document.body);
    Ok(Reply::json(200, &item).with("etag", tags::of_document(document.generation, item.status.as_ref())))
}

/// Checks the document against the client's tag.
fn unchanged(call: &Call<'_>, stands: Option<u64>) -> Result<(), Refusal> {
    let now = stands.map(tags::of_generation);
    let names = |field, comparison| stands.is_some_and(|now| tags::names_generation(field, now, comparison));
    if let Some(wanted) = call.head.field("if-match")
        && !names(wanted, Comparison::Strong)
    {
        let message = match (now, wanted.trim()) {
            (_, "") => "`If-Match` is empty; give the `ETag` that was read, or remove the header".to_owned(),
            (None, _) => {
                "the document does not exist, but `If-Match` requires it; remove the header to create it"
                    .to_owned()
            }
            (Some(now), wanted) => {
                let wanted: String = wanted.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
                format!("the document is at {now}, not at {wanted}; read it again")
            }
        };
        return Err(Refusal::Precondition(message));
    }
    if let (Some(unwanted), Some(now)) = (call.head.field("if-none-match"), &now)
        && names(unwanted, Comparison::Weak)
    {
        return Err(Refusal::Precondition(format!("the document already exists, at {now}")));
    }
    Ok(())
}

/// Changes a document. The checks of a tenant's own documents may run beside changes of others.
fn change<K: DocumentKind>(
    call: &Call<'_>,
    who: &Principal,
    action: &str,
    body: Option<&Value>,
    draft: impl Fn(&Model) -> Result<Draft, Refusal>,
) -> Result<ChangeOutcome, Refusal> {
    match K::PATH.contains("{tenant}") {
        true => {
            let tenant = call.name("tenant");
            call.controller.change_of_tenant(who, action, call.dry(), tenant, body, draft)
        }
        false => call.controller.change(who, action, call.dry(), draft),
    }
}

fn put<K: DocumentKind>(call: &Call<'_>) -> Result<Reply, Refusal> {
    let body = call.json()?;
    let spec = K::read(&body)?;
    let id = id::<K>(call);
    let who = call.principal();
    let there = |faults: Vec<Fault>| Refusal::Wrong(faults.into_iter().map(|f| f.within(&body)).collect());
    let draft = |model: &Model| {
        exists_if::<K>(call, model)?;
        let stands = model.get(K::KIND, &id).map(|document| document.generation);
        let Settings { functions, sections, .. } = &call.controller.settings;
        let (tenant, name) = (call.name("tenant"), call.name(K::ONE));
        let warnings = RefCell::default();
        let context = Context { model, functions, sections, who: &who, tenant, name, body: &body, warnings };
        let faults = K::check(&context, &spec);
        if !faults.is_empty() {
            return Err(there(faults));
        }
        if stands.is_none() {
            K::room(&context)?;
        }
        // The precondition is last: only a request that would otherwise succeed evaluates it (RFC 9110,
        // 13.2.1).
        unchanged(call, stands)?;
        let draft = Draft::one(K::KIND, &id, Some(body.clone()), K::touched(&context));
        // A write that changes nothing writes no status either.
        let same = model.get(K::KIND, &id).is_some_and(|document| document.body == body);
        let status = if same { Vec::new() } else { K::also(&context) };
        Ok(Draft { status, notes: K::notes(&context, false), ..draft })
    };
    let outcome = call.waiting(|| change::<K>(call, &who, "put", Some(&body), draft))?;
    let is_new = |change: &Difference| change.kind == K::KIND && change.id == id && change.before.is_none();
    call.changes_nothing.set(!call.dry() && outcome.changes.is_empty());
    let created = !call.dry() && outcome.changes.iter().any(is_new);
    let generation = match outcome.changes.is_empty() {
        true => call.controller.model().get(K::KIND, &id).map_or(outcome.generation, |d| d.generation),
        false => outcome.generation,
    };
    let reply = if created { Reply::created(&outcome, call.location()) } else { Reply::json(200, &outcome) };
    Ok(reply.with("etag", tags::of_generation(generation)))
}

fn delete<K: DocumentKind>(call: &Call<'_>) -> Result<Reply, Refusal> {
    let (id, who) = (id::<K>(call), call.principal());
    let draft = |model: &Model| {
        exists_if::<K>(call, model)?;
        let document = model.get(K::KIND, &id).ok_or_else(|| missing::<K>(call))?;
        unchanged(call, Some(document.generation))?;
        let (Settings { functions, sections, .. }, body) = (&call.controller.settings, &document.body);
        let (tenant, name) = (call.name("tenant"), call.name(K::ONE));
        let warnings = RefCell::default();
        let context = Context { model, functions, sections, who: &who, tenant, name, body, warnings };
        K::free(&context)?;
        let mut draft = Draft::one(K::KIND, &id, None, K::touched(&context));
        draft.notes = K::notes(&context, true);
        if K::KIND == device::KIND {
            let gone = |kind: &str| Status { kind: kind.to_owned(), id: id.clone(), body: None };
            let kinds =
                [K::KIND, crate::statistics::STATISTICS, device::RECEIVED, device::SESSIONS, INTERFACES];
            draft.status = kinds.into_iter().map(gone).collect();
            draft.status.extend(crate::statistics::of_device_gone(model, &id));
            let below = format!("{id}/");
            for kind in [device::FUNCTIONS, device::HEALTH] {
                let own = model.statuses(kind, &below).map(|(name, _)| name.to_owned());
                draft.status.extend(own.map(|id| Status { kind: kind.to_owned(), id, body: None }));
            }
        }
        Ok(draft)
    };
    let outcome = call.waiting(|| change::<K>(call, &who, "delete", None, draft))?;
    Ok(Reply::json(200, &outcome))
}
