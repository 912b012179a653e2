// SPDX-License-Identifier: Apache-2.0
//! The OpenAPI document of this program. Any valid token may read it: it reveals nothing of the controller's
//! documents, only the version of the program, which callers without a token must not learn.

use super::routes as all_routes;
use crate::access::Need;
use crate::problem::Refusal;
use crate::rest::http::{Method, Reply};
use crate::rest::openapi::document;
use crate::rest::route::{Call, Route, schema};
use serde_json::{Map, Value};
use std::sync::OnceLock;

/// The routes of this resource.
pub(super) fn routes() -> Vec<Route> {
    vec![Route {
        method: Method::Get,
        path: "/v1/openapi.json".to_owned(),
        operation: "get-openapi".to_owned(),
        about: "The OpenAPI document of this API.".to_owned(),
        need: Need::Known,
        query: &[],
        body: None,
        tagged: false,
        statuses: &[200],
        answer: Some(schema::<Map<String, Value>>()),
        handler: get,
    }]
}

fn get(_: &Call<'_>) -> Result<Reply, Refusal> {
    // Made once: it does not change while the program runs.
    static REPLY: OnceLock<Reply> = OnceLock::new();
    Ok(REPLY.get_or_init(|| Reply::json(200, &document(&all_routes()))).clone())
}
