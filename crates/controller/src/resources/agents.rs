// SPDX-License-Identifier: Apache-2.0
//! Devices' agents: their enrolment, and orders to functions. Both use the controller's listener for agents.

use crate::access::Need;
use crate::device::{self, FUNCTIONS, FunctionStatus, SESSIONS};
use crate::fleet::{NoWay, Order};
use crate::model::Model;
use crate::problem::Refusal;
use crate::rest::http::{Method, Reply};
use crate::rest::route::{BODY_MAX, Body, Call, Route, read_as, schema};
use crate::store::Status;
use bartizan_api::southbound::FunctionOrder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The data for a device's enrolment.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EnrolmentToken {
    /// The token, for `bartizan ca enrol` on the device; it is not shown again.
    pub token: String,
    /// Expiry of the token, in microseconds since 1970.
    pub expires: u64,
    /// Port of the controller's listener for agents.
    pub port: u16,
}

/// Certificates and tokens of a device that were revoked.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Revoked {
    /// Number of certificates.
    pub revoked: u64,
    /// Number of one-time tokens for a certificate.
    pub tokens: u64,
}

/// The kind of order to a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OrderKind {
    /// Start the function.
    Start,
    /// Stop the function: chains run without it.
    Stop,
    /// Stop the function and start it again.
    Restart,
    /// Give the function settings.
    Configure,
    /// Report the function's health.
    Health,
}

impl OrderKind {
    const fn on_the_wire(self) -> (FunctionOrder, &'static str) {
        match self {
            OrderKind::Start => (FunctionOrder::Start, "start"),
            OrderKind::Stop => (FunctionOrder::Stop, "stop"),
            OrderKind::Restart => (FunctionOrder::Restart, "restart"),
            OrderKind::Configure => (FunctionOrder::Configure, "configure"),
            OrderKind::Health => (FunctionOrder::Health, "health"),
        }
    }
}

/// An order to a function.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FunctionRequest {
    /// The kind of order.
    pub order: OrderKind,
    /// Settings by name, for `configure` only.
    #[serde(default)]
    pub settings: Map<String, Value>,
}

/// The routes of this resource.
pub(super) fn routes() -> Vec<Route> {
    let route = |method, path: &str, operation: &str, about: &str| Route {
        method,
        path: format!("/v1/devices/{{device}}/{path}"),
        operation: operation.to_owned(),
        about: about.to_owned(),
        need: Need::Admin,
        query: &[],
        body: None,
        tagged: false,
        statuses: &[201],
        answer: Some(schema::<EnrolmentToken>()),
        handler: enrol,
    };
    vec![
        route(
            Method::Post,
            "enrolment",
            "enrol-device",
            "Makes a one-time token for a device's first certificate. It is good for an hour.",
        ),
        Route {
            statuses: &[200],
            answer: Some(schema::<Revoked>()),
            handler: revoke,
            ..route(
                Method::Delete,
                "enrolment",
                "revoke-device",
                "Revokes all certificates of a device, and its one-time tokens; its session ends within a second.",
            )
        },
        Route {
            statuses: &[202],
            body: Some(Body { schema: Some(schema::<FunctionRequest>()), max: BODY_MAX }),
            answer: Some(schema::<FunctionStatus>()),
            handler: order,
            ..route(
                Method::Post,
                "functions/{function}",
                "order-function",
                "Orders a function of a connected device to start, stop or restart. The device's status has the result.",
            )
        },
    ]
}

impl From<NoWay> for Refusal {
    fn from(error: NoWay) -> Refusal {
        Refusal::Conflict(error.to_string())
    }
}

fn there(model: &Model, name: &str) -> Result<(), Refusal> {
    match model.get(device::KIND, name) {
        Some(_) => Ok(()),
        None => Err(Refusal::NotFound(format!("there is no device `{name}`"))),
    }
}

fn enrol(call: &Call<'_>) -> Result<Reply, Refusal> {
    let name = call.name("device");
    there(&call.controller.model(), name)?;
    call.controller.note(&call.principal(), "enrol", device::KIND, name)?;
    let invitation = call.controller.fleet().invite(name)?;
    // Times of the API are in microseconds, times of certificates in seconds.
    let expires = invitation.expires.saturating_mul(1_000_000);
    let made = EnrolmentToken { token: invitation.token, expires, port: invitation.port };
    Ok(Reply::created(&made, call.location()).with("cache-control", "no-store".to_owned()))
}

fn revoke(call: &Call<'_>) -> Result<Reply, Refusal> {
    let name = call.name("device");
    // Also for a removed device: its key may still exist.
    call.controller.note(&call.principal(), "revoke", device::KIND, name)?;
    let revoked = call.controller.fleet().revoke(name)?;
    Ok(Reply::json(200, &Revoked { revoked: revoked.certificates as u64, tokens: revoked.tokens as u64 }))
}

fn order(call: &Call<'_>) -> Result<Reply, Refusal> {
    let request: FunctionRequest = read_as(&call.json()?)?;
    let (name, function) = (call.name("device"), call.name("function"));
    let (order, word) = request.order.on_the_wire();
    if !request.settings.is_empty() && order != FunctionOrder::Configure {
        return Err(Refusal::wrong("/settings", "only `configure` takes settings; remove them"));
    }
    {
        let model = call.controller.model();
        there(&model, name)?;
        let connected = model.status(SESSIONS, name).and_then(|session| session.get("connected"));
        if connected != Some(&Value::Bool(true)) {
            let message = format!("`{name}` is not connected; orders are not kept for later");
            return Err(Refusal::Conflict(message));
        }
    }
    let id = format!("{name}/{function}");
    call.controller.note(&call.principal(), &format!("{word} function"), FUNCTIONS, &id)?;
    let (number, asked) = (call.controller.next_request(), call.controller.now());
    let status =
        FunctionStatus { request: number, order: word.to_owned(), asked, ..FunctionStatus::default() };
    // Shown before it is sent: the answer may come at once.
    let body = serde_json::to_value(&status).ok();
    call.controller.show(&[Status { kind: FUNCTIONS.to_owned(), id, body }]);
    let (function, settings) = (function.to_owned(), request.settings);
    call.controller.fleet().order(name, Order { request: number, order, function, settings })?;
    Ok(Reply::json(202, &status))
}
