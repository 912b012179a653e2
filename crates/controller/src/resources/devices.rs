// SPDX-License-Identifier: Apache-2.0
//! Devices: the list, desired and running generations, the policy of each, and reports by REST.

use super::document::{Context, DocumentKind};
use super::effects;
use crate::access::{Need, Principal};
use crate::controller::{Controller, Draft, Settings, TOKENS};
use crate::device::{
    self, ALL, Acknowledgement, DeviceSpec, DeviceStatus, FUNCTIONS, Follow, FunctionHealth, FunctionStatus,
    HEALTH, SESSIONS, SessionStatus, Touched,
};
use crate::interfaces::{self, InterfacesView};
use crate::model::Model;
use crate::problem::{Fault, Refusal};
use crate::render;
use crate::rest::http::{Method, Reply};
use crate::rest::route::{BODY_MAX, Body, Call, Parameter, ParameterKind, Route, read_as, schema};
use crate::statistics;
use crate::store::Alert;
use bartizan_api::southbound::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// Most bytes of an alert's key.
const KEY_MAX: usize = 2_048;

/// The resource of devices.
pub struct Devices;

impl DocumentKind for Devices {
    const KIND: &'static str = device::KIND;
    const PATH: &'static str = "/v1/devices";
    const ONE: &'static str = "device";
    const READ: Need = Need::ReadDevice;
    const WRITE: Need = Need::Admin;
    type Spec = DeviceSpec;
    type Status = DeviceView;

    fn check(context: &Context<'_>, spec: &DeviceSpec) -> Vec<Fault> {
        let known = |name: &str| name == ALL || context.model.get(render::TENANTS, name).is_some();
        let unknown = spec.tenants.iter().enumerate().filter(|(_, name)| !known(name));
        let unknown = unknown.map(|(index, name)| {
            let message = format!("there is no tenant `{name}`; make it first, or write `*` for all");
            Fault::new(format!("/tenants/{index}"), message)
        });
        unknown.chain(interfaces::unservable(context.model, context.name, spec)).collect()
    }

    fn notes(context: &Context<'_>, removed: bool) -> Vec<String> {
        match removed {
            true => effects::of_device_gone(context),
            false => effects::of_device(context),
        }
    }

    fn free(context: &Context<'_>) -> Result<(), Refusal> {
        let own = |token: &Value| token.get("device").and_then(Value::as_str) == Some(context.name);
        if context.model.all(TOKENS).any(|token| own(&token.body)) {
            // The tokens would be valid for a later device of the same name.
            return Err(Refusal::Conflict("the device still has tokens; revoke them first".to_owned()));
        }
        Ok(())
    }

    fn touched(context: &Context<'_>) -> Touched {
        // A device that serves other tenants gets a new set. Other devices may get the generation as well,
        // with an unchanged set, which costs nothing.
        match DeviceSpec::deserialize(context.body) {
            Ok(spec) if spec.tenants.iter().any(|tenant| tenant == ALL) => Touched::All,
            Ok(spec) => Touched::Tenants(spec.tenants.into_iter().collect()),
            Err(_) => Touched::All,
        }
    }

    fn status(model: &Model, id: &str) -> Option<DeviceView> {
        Some(DeviceView::of(model, id))
    }

    fn also(context: &Context<'_>) -> Vec<crate::store::Status> {
        // A new device, or one that begins to follow, is not among the following devices of the model before.
        let Ok(spec) = DeviceSpec::deserialize(context.body) else { return Vec::new() };
        match spec.follow {
            Follow::Auto => {
                let status = DeviceStatus::of(context.model, context.name);
                // The served tenants may have changed: all documents are tried anew.
                vec![status.follow(context.model.generation + 1, &Touched::All).line(context.name)]
            }
            Follow::Manual => Vec::new(),
        }
    }
}

impl Controller {
    /// Makes a device of this name unless it exists: a new one serves all tenants and follows changes.
    ///
    /// # Errors
    /// The store failed.
    pub fn has_device(&self, name: &str) -> Result<(), Refusal> {
        let body = json!({ "tenants": [ALL] });
        let draft = |model: &Model| {
            if model.get(device::KIND, name).is_some() {
                return Ok(Draft::default());
            }
            let Settings { functions, sections, .. } = &self.settings;
            let who = &Principal::controller();
            let warnings = Default::default();
            let context =
                Context { model, functions, sections, who, tenant: "", name, body: &body, warnings };
            let draft = Draft::one(device::KIND, name, Some(body.clone()), Devices::touched(&context));
            Ok(Draft { status: Devices::also(&context), ..draft })
        };
        self.change(&Principal::controller(), "put", false, draft).map(drop)
    }
}

/// The state of a device: desired and running generations, and its connection.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct DeviceView {
    /// Desired and running generations.
    #[serde(flatten)]
    pub status: DeviceStatus,
    /// The session of its agent; null if there was none since the controller started.
    pub session: Option<SessionStatus>,
    /// The links and ports of the device, from its last session; null if not reported.
    pub interfaces: Option<InterfacesView>,
    /// Functions that are failed or stopped, as the device reports; running ones are not listed.
    pub health: BTreeMap<String, FunctionHealth>,
    /// The last order to each function, with its result, since the controller started.
    pub functions: BTreeMap<String, FunctionStatus>,
}

impl DeviceView {
    fn of(model: &Model, id: &str) -> Self {
        let session = model.status(SESSIONS, id).and_then(|body| SessionStatus::deserialize(body).ok());
        let prefix = format!("{id}/");
        let functions = model
            .statuses(FUNCTIONS, &prefix)
            .filter_map(|(id, body)| {
                let name = id.strip_prefix(&prefix)?;
                Some((name.to_owned(), FunctionStatus::deserialize(body).ok()?))
            })
            .collect();
        let health = model
            .statuses(HEALTH, &prefix)
            .filter_map(|(id, body)| {
                Some((id.strip_prefix(&prefix)?.to_owned(), FunctionHealth::deserialize(body).ok()?))
            })
            .collect();
        let interfaces = InterfacesView::of(model, id);
        DeviceView { status: DeviceStatus::of(model, id).explained(), session, interfaces, health, functions }
    }
}

/// The policy of a device.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DevicePolicy {
    /// The generation.
    pub generation: u64,
    /// The policy file of that generation, with the tenants that the device serves.
    pub policy: Map<String, Value>,
}

/// An alert of a device.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AlertReport {
    /// The tenant of the traffic; null or left out: no tenant.
    #[serde(default)]
    pub tenant: Option<String>,
    /// The fields that equal alerts share: signature, addresses, ports.
    pub key: String,
    /// Number of equal alerts.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 4294967295u32))]
    pub count: NonZeroU32,
    /// The event, as EVE JSON.
    pub event: Map<String, Value>,
}

fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

/// Alerts of a device.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AlertReports {
    /// The alerts, oldest first.
    pub alerts: Vec<AlertReport>,
}

/// Number of alerts that were taken.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Taken")]
pub struct AlertReceipt {
    /// Alerts taken; the others belong to tenants that the device does not serve.
    pub taken: u64,
}

/// Counters of a device.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Counts")]
pub struct DeviceCounts {
    /// Counters by name; a tenant's counters as `tenant/TENANT/POLICY/packets`.
    pub counters: BTreeMap<String, u64>,
}

/// Stored counters of a device.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Statistics")]
pub struct DeviceStatistics {
    /// Counters by name; null before the device has reported any.
    pub counters: Option<Map<String, Value>>,
    /// Whether more counters exist than are listed.
    pub more: bool,
}

/// The query parameter with the generation.
const GENERATION: Parameter = Parameter {
    name: "generation",
    about: "The generation; by default the one that the device should run.",
    kind: ParameterKind::Number(0, u64::MAX >> 1),
};

/// The routes beside those of the documents.
pub(super) fn routes() -> Vec<Route> {
    let route = |method, path: &str, operation: &str, about: &str| Route {
        method,
        path: format!("/v1/devices/{{device}}/{path}"),
        operation: operation.to_owned(),
        about: about.to_owned(),
        need: if method == Method::Get { Need::ReadDevice } else { Need::Report },
        query: &[],
        body: None,
        tagged: false,
        statuses: &[200],
        answer: None,
        handler: policy,
    };
    let body = |schema| Some(Body { schema: Some(schema), max: BODY_MAX });
    vec![
        Route {
            query: &[GENERATION],
            answer: Some(schema::<DevicePolicy>()),
            ..route(Method::Get, "policy", "get-device-policy", "The documents that a device is sent.")
        },
        Route {
            body: body(schema::<Acknowledgement>()),
            answer: Some(schema::<DeviceStatus>()),
            handler: acknowledge,
            ..route(Method::Post, "acknowledgements", "acknowledge", "A device's answer to a generation.")
        },
        Route {
            body: body(schema::<AlertReports>()),
            answer: Some(schema::<AlertReceipt>()),
            handler: alerts,
            ..route(Method::Post, "alerts", "report-alerts", "Alerts that a device saw.")
        },
        Route {
            answer: Some(schema::<DeviceStatistics>()),
            handler: get_statistics,
            ..route(
                Method::Get,
                "statistics",
                "get-statistics",
                "A device's counters: sums since its agent started.",
            )
        },
        Route {
            body: body(schema::<DeviceCounts>()),
            answer: Some(schema::<DeviceStatistics>()),
            handler: put_statistics,
            ..route(Method::Put, "statistics", "put-statistics", "A device's counters.")
        },
    ]
}

fn spec(call: &Call<'_>) -> Result<DeviceSpec, Refusal> {
    let model = call.controller.model();
    let name = call.name("device");
    let missing = || Refusal::NotFound(format!("there is no device `{name}`"));
    let document = model.get(device::KIND, name).ok_or_else(missing)?;
    Ok(DeviceSpec::deserialize(&document.body).unwrap_or_default())
}

fn policy(call: &Call<'_>) -> Result<Reply, Refusal> {
    let spec = spec(call)?;
    let (wanted, newest) = {
        let model = call.controller.model();
        (DeviceStatus::of(&model, call.name("device")).wanted, model.generation)
    };
    let generation = call.number("generation").unwrap_or(wanted);
    let policy = match generation == newest {
        true => render::policy_file(&call.controller.model(), |tenant| spec.serves(tenant)),
        false => render::policy_file(&call.controller.model_at(generation)?, |tenant| spec.serves(tenant)),
    };
    Ok(Reply::json(200, &json!({ "generation": generation, "policy": policy })))
}

fn acknowledge(call: &Call<'_>) -> Result<Reply, Refusal> {
    let answer: Acknowledgement = read_as(&call.json()?)?;
    let name = call.name("device");
    call.controller.acknowledge(&call.principal(), name, &answer)?;
    Ok(Reply::json(200, &DeviceStatus::of(&call.controller.model(), name)))
}

/// Faults of an alert that exceeds the bounds: reports by REST have the same bounds as reports over sessions,
/// since both are stored alike.
fn beyond(index: usize, report: &AlertReport) -> Vec<Fault> {
    let event = serde_json::to_vec(&report.event).map_or(usize::MAX, |bytes| bytes.len());
    let bounds = [("key", report.key.len(), KEY_MAX), ("event", event, limits::EVENT_BYTES)];
    let over = bounds.into_iter().filter(|(_, bytes, most)| bytes > most);
    over.map(|(of, bytes, most)| {
        let message = format!("{bytes} bytes; {most} are allowed, counted as JSON: shorten it");
        Fault::new(format!("/alerts/{index}/{of}"), message)
    })
    .collect()
}

fn alerts(call: &Call<'_>) -> Result<Reply, Refusal> {
    let reports: AlertReports = read_as(&call.json()?)?;
    let faults: Vec<Fault> =
        reports.alerts.iter().enumerate().flat_map(|(index, report)| beyond(index, report)).collect();
    if !faults.is_empty() {
        return Err(Refusal::Wrong(faults));
    }
    let last = call.controller.now();
    let alert = |report: AlertReport| Alert {
        tenant: report.tenant,
        key: report.key,
        last,
        count: u64::from(report.count.get()),
        body: Value::Object(report.event),
    };
    let alerts: Vec<Alert> = reports.alerts.into_iter().map(alert).collect();
    let taken = call.controller.alerts(call.name("device"), &alerts, &[])?;
    Ok(Reply::json(200, &AlertReceipt { taken }))
}

fn get_statistics(call: &Call<'_>) -> Result<Reply, Refusal> {
    let spec = spec(call)?;
    let told = statistics::of_device(&call.controller.model(), call.name("device"), &spec);
    let (counters, more) = told.map_or((None, false), |(counters, more)| (Some(counters), more));
    Ok(Reply::json(200, &DeviceStatistics { counters, more }))
}

fn put_statistics(call: &Call<'_>) -> Result<Reply, Refusal> {
    let counts: DeviceCounts = read_as(&call.json()?)?;
    call.controller.statistics(&call.principal(), call.name("device"), counts.counters)?;
    get_statistics(call)
}
