// SPDX-License-Identifier: Apache-2.0
//! Tokens: made and shown once, listed without their secrets, revoked.

use super::document::Page;
use crate::access::{Need, Scope, Secret};
use crate::clock::WrittenTime;
use crate::controller::{ChangeOutcome, Draft, TOKENS, administers};
use crate::device::{self, Touched};
use crate::model::Model;
use crate::problem::{Fault, Refusal};
use crate::render;
use crate::rest::http::{Method, Reply};
use crate::rest::route::{BODY_MAX, Body, CURSOR, Call, LIMIT, Route, first_page, read_as, schema};
use crate::store::Document;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A request for a token.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TokenRequest {
    /// The token's holder, for people.
    pub name: String,
    /// The scope of the token.
    pub scope: Scope,
    /// The tenant of an operator; of a reader that may read this tenant only.
    #[serde(default)]
    pub tenant: Option<String>,
    /// The device of a device's token.
    #[serde(default)]
    pub device: Option<String>,
    /// Expiry: RFC 3339 (`2027-01-31T12:00:00Z`), or microseconds since 1970; never unless given.
    #[serde(default)]
    pub expires: Option<WrittenTime>,
}

/// A token without its secret.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TokenItem {
    /// The token's id, as in the audit log.
    pub id: String,
    /// The token's holder.
    pub name: String,
    /// The scope of the token.
    pub scope: Scope,
    /// The tenant of the token.
    pub tenant: Option<String>,
    /// The device of the token.
    pub device: Option<String>,
    /// Expiry, in microseconds since 1970.
    pub expires: Option<u64>,
    /// Creation, in microseconds since 1970.
    pub created: Option<u64>,
}

/// A new token.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NewToken {
    /// The token's id.
    pub id: String,
    /// The token; it is not shown again.
    pub token: String,
    /// The generation that made it.
    pub generation: u64,
}

/// The routes of this resource.
pub(super) fn routes() -> Vec<Route> {
    let route = |method, path: &str, operation: &str, about: &str| Route {
        method,
        path: path.to_owned(),
        operation: operation.to_owned(),
        about: about.to_owned(),
        need: Need::Admin,
        query: &[],
        body: None,
        tagged: false,
        statuses: &[200],
        answer: None,
        handler: list,
    };
    vec![
        Route {
            query: &[LIMIT, CURSOR],
            answer: Some(schema::<Page<TokenItem>>()),
            ..route(Method::Get, "/v1/tokens", "list-tokens", "Every token, without its secret.")
        },
        Route {
            answer: Some(schema::<TokenItem>()),
            handler: get,
            ..route(Method::Get, "/v1/tokens/{id}", "get-token", "One token, without its secret.")
        },
        Route {
            need: Need::MakeTokens,
            statuses: &[201],
            body: Some(Body { schema: Some(schema::<TokenRequest>()), max: BODY_MAX }),
            answer: Some(schema::<NewToken>()),
            handler: make,
            ..route(
                Method::Post,
                "/v1/tokens",
                "make-token",
                "Makes a token. With the bootstrap token: the first administrator's, after which that one is gone.",
            )
        },
        Route {
            answer: Some(schema::<ChangeOutcome>()),
            handler: revoke,
            ..route(Method::Delete, "/v1/tokens/{id}", "revoke-token", "Revokes a token, at once.")
        },
    ]
}

fn list(call: &Call<'_>) -> Result<Reply, Refusal> {
    let (model, cursor, limit) = (call.controller.model(), call.cursor()?, call.limit());
    let items =
        model.list(TOKENS, "", cursor.as_deref()).map(|document| (document.id.clone(), item(document)));
    Ok(first_page(items, limit))
}

fn item(document: &Document) -> Value {
    let of = |key: &str| document.body.get(key).cloned().unwrap_or(Value::Null);
    json!({
        "id": document.id, "name": of("name"), "scope": of("scope"), "tenant": of("tenant"),
        "device": of("device"), "expires": of("expires"), "created": of("created"),
    })
}

fn missing(id: &str) -> Refusal {
    Refusal::NotFound(format!("there is no token `{id}`"))
}

fn get(call: &Call<'_>) -> Result<Reply, Refusal> {
    let (model, id) = (call.controller.model(), call.name("id"));
    Ok(Reply::json(200, &item(model.get(TOKENS, id).ok_or_else(|| missing(id))?)))
}

fn faults(model: &Model, request: &TokenRequest, now: u64) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut wrong = |pointer: &str, message: &str| faults.push(Fault::new(pointer, message));
    if request.name.is_empty() || request.name.chars().count() > 200 {
        wrong("/name", "the name must have 1 to 200 characters; name the token's owner");
    }
    match (&request.tenant, request.scope) {
        (None, Scope::Operator) => wrong("/tenant", "an operator's token needs a tenant; add `tenant`"),
        (Some(_), Scope::Admin | Scope::Device | Scope::Bootstrap) => {
            wrong("/tenant", "only tokens of operators and readers have a tenant; remove `tenant`");
        }
        (Some(name), _) if model.get(render::TENANTS, name).is_none() => {
            wrong("/tenant", &format!("there is no tenant `{}`; make it first", name.escape_debug()));
        }
        _ => {}
    }
    match (&request.device, request.scope) {
        (None, Scope::Device) => wrong("/device", "a device's token needs a device; add `device`"),
        (Some(name), Scope::Device) if model.get(device::KIND, name).is_none() => {
            wrong("/device", &format!("there is no device `{}`; make it first", name.escape_debug()));
        }
        (Some(_), scope) if scope != Scope::Device => {
            wrong("/device", "only a device's token has a device; remove `device`");
        }
        _ => {}
    }
    if request.expires.is_some_and(|WrittenTime(expires)| expires < now) {
        wrong(
            "/expires",
            "the time is in the past; write a later one, in RFC 3339 or in microseconds since 1970",
        );
    }
    if request.scope == Scope::Bootstrap {
        wrong("/scope", "the only bootstrap token is made with the state; ask for `admin`");
    }
    faults
}

fn make(call: &Call<'_>) -> Result<Reply, Refusal> {
    let request: TokenRequest = read_as(&call.json()?)?;
    let who = call.principal();
    let bootstraps = who.scope == Scope::Bootstrap;
    if bootstraps && request.scope != Scope::Admin {
        return Err(Refusal::wrong(
            "/scope",
            "the bootstrap token can only make an `admin` token; ask for that",
        ));
    }
    let secret = Secret::random().map_err(|error| Refusal::Internal(error.to_string()))?;
    let body = json!({
        "name": request.name, "scope": request.scope, "tenant": request.tenant, "device": request.device,
        "expires": request.expires.map(|WrittenTime(at)| at), "created": call.controller.now(), "hash": secret.hash(),
    });
    let outcome = call.controller.change(&who, "make token", false, |model| {
        // Checked within the draft, where nothing else changes: a token must not outlive its tenant or
        // device.
        let faults = faults(model, &request, call.controller.now());
        if !faults.is_empty() {
            return Err(Refusal::Wrong(faults));
        }
        let mut draft = Draft::one(TOKENS, secret.id(), Some(body.clone()), Touched::Nothing);
        if bootstraps {
            // Another request may have used the bootstrap token at the same time.
            if model.get(TOKENS, &who.id).is_none() {
                return Err(Refusal::Unknown(
                    "the bootstrap token has been used; use the administrator's token".to_owned(),
                ));
            }
            draft.writes.push((TOKENS.to_owned(), who.id.clone(), None));
        }
        Ok(draft)
    })?;
    let (id, token) = (secret.id().to_owned(), secret.reveal());
    let made = NewToken { id, token, generation: outcome.generation };
    let location = format!("{}/{}", call.location(), made.id);
    Ok(Reply::created(&made, location).with("cache-control", "no-store".to_owned()))
}

fn revoke(call: &Call<'_>) -> Result<Reply, Refusal> {
    let id = call.name("id");
    let outcome = call.controller.change(&call.principal(), "revoke token", false, |model| {
        if model.get(TOKENS, id).is_none() {
            return Err(missing(id));
        }
        let now = call.controller.now();
        let others = model.all(TOKENS).any(|token| token.id != id && administers(&token.body, now));
        if !others {
            let message =
                "it is the last valid token of an administrator; make another one first, since only an administrator can make tokens";
            return Err(Refusal::Conflict(message.to_owned()));
        }
        Ok(Draft::one(TOKENS, id, None, Touched::Nothing))
    })?;
    Ok(Reply::json(200, &outcome))
}
