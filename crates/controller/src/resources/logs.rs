// SPDX-License-Identifier: Apache-2.0
//! Read-only resources: alerts, the audit log, counters of the controller.

use super::document::Page;
use crate::access::Need;
use crate::controller::name_of;
use crate::problem::Refusal;
use crate::rest::http::{Method, Reply};
use crate::rest::route::{Call, LIMIT, NUMBER_CURSOR, Route, page, schema};
use crate::store::{AuditRow, KeptAlert};
use bartizan_events::metrics::{CONTROLLER_GENERATION, CONTROLLER_REQUESTS, DEFAULT_SERIES, Exposition};
use serde::Serialize;

/// The routes of this resource.
pub(super) fn routes() -> Vec<Route> {
    let route = |path: &str, operation: &str, about: &str, need| Route {
        method: Method::Get,
        path: path.to_owned(),
        operation: operation.to_owned(),
        about: about.to_owned(),
        need,
        query: &[LIMIT, NUMBER_CURSOR],
        body: None,
        tagged: false,
        statuses: &[200],
        answer: Some(schema::<Page<KeptAlert>>()),
        handler: alerts,
    };
    vec![
        route("/v1/alerts", "list-alerts", "The alerts of all tenants, newest first.", Need::Read),
        route(
            "/v1/tenants/{tenant}/alerts",
            "list-tenant-alerts",
            "The alerts of a tenant, newest first.",
            Need::ReadTenant,
        ),
        Route {
            answer: Some(schema::<Page<AuditRow>>()),
            handler: audit,
            ..route("/v1/audit", "list-audit", "Who changed what, oldest first.", Need::Admin)
        },
        Route {
            query: &[],
            answer: None,
            handler: metrics,
            ..route("/v1/metrics", "get-metrics", "The controller's counters, for Prometheus.", Need::Read)
        },
    ]
}

fn values(rows: &[impl Serialize]) -> Vec<serde_json::Value> {
    rows.iter().map(|row| serde_json::to_value(row).unwrap_or_default()).collect()
}

fn alerts(call: &Call<'_>) -> Result<Reply, Refusal> {
    let below = call.number_cursor()?.unwrap_or(u64::MAX);
    let (tenant, limit) = (call.name("tenant"), call.limit());
    if !tenant.is_empty() && call.controller.model().get("tenants", tenant).is_none() {
        return Err(Refusal::NotFound(format!("there is no tenant `{tenant}`")));
    }
    let tenant = (!tenant.is_empty()).then_some(tenant);
    // One row more than the page shows whether another page follows.
    let mut rows = call.controller.query(|store| store.alerts(tenant, below, limit + 1))?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|row| row.number.to_string());
    Ok(page(values(&rows), next.as_deref()))
}

fn audit(call: &Call<'_>) -> Result<Reply, Refusal> {
    let (behind, limit) = (call.number_cursor()?.unwrap_or(0), call.limit());
    let mut rows = call.controller.query(|store| store.audit(behind, limit + 1))?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let model = call.controller.model();
    // Older rows have no name: the token may still exist.
    for row in rows.iter_mut().filter(|row| row.name.is_none()) {
        row.name = name_of(&model, &row.who);
    }
    let next = rows.last().filter(|_| more).map(|row| row.row.to_string());
    Ok(page(values(&rows), next.as_deref()))
}

fn metrics(call: &Call<'_>) -> Result<Reply, Refusal> {
    let mut page = Exposition::new(DEFAULT_SERIES);
    for (what, count) in call.controller.counters.rows() {
        page.add(&CONTROLLER_REQUESTS, &[what], count);
    }
    for (what, count) in call.controller.fleet().counters() {
        page.add(&CONTROLLER_REQUESTS, &[what.as_str()], count);
    }
    page.add(&CONTROLLER_GENERATION, &[], call.controller.model().generation);
    Ok(Reply::metrics(page.text()))
}
