// SPDX-License-Identifier: Apache-2.0
//! Devices' counters of a tenant's traffic: sums over all devices, and for each device.

use crate::access::Need;
use crate::device::{self, DeviceSpec};
use crate::problem::Refusal;
use crate::render::TENANTS;
use crate::rest::http::{Method, Reply};
use crate::rest::route::{CURSOR, Call, LIMIT, Route, cursor_behind, schema};
use crate::statistics::{self, TenantSums};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One device's counters of a tenant's traffic.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct OfDevice {
    /// The device.
    pub device: String,
    /// Time of its first report with this tenant, in microseconds since 1970; null if there is none.
    pub since: Option<u64>,
    /// Time of its newest report.
    pub newest: Option<u64>,
    /// The sums; null without a report.
    pub sums: Option<TenantSums>,
}

/// Counters of the traffic of a tenant's policies, from the devices that serve the tenant.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct TenantStatistics {
    /// Sums over all devices that serve the tenant.
    pub sums: TenantSums,
    /// Time of the newest report, in microseconds since 1970; null if there is none.
    pub newest: Option<u64>,
    /// Number of devices that have reported.
    pub reporting: u64,
    /// Number of devices that have not reported.
    pub silent: u64,
    /// A page of devices, by name; the sums include all devices.
    pub devices: Vec<OfDevice>,
    /// Whether more devices follow.
    pub more: bool,
    /// The value of `cursor` for the next page; null on the last page.
    pub next: Option<String>,
}

/// The routes of this resource.
pub(super) fn routes() -> Vec<Route> {
    vec![Route {
        method: Method::Get,
        path: "/v1/tenants/{tenant}/statistics".to_owned(),
        operation: "get-tenant-statistics".to_owned(),
        about: "The devices' counters of a tenant's policies: sums of all, and device by device.".to_owned(),
        need: Need::ReadTenant,
        query: &[LIMIT, CURSOR],
        body: None,
        tagged: false,
        statuses: &[200],
        answer: Some(schema::<TenantStatistics>()),
        handler: get,
    }]
}

fn get(call: &Call<'_>) -> Result<Reply, Refusal> {
    let (model, tenant) = (call.controller.model(), call.name("tenant"));
    if model.get(TENANTS, tenant).is_none() {
        return Err(Refusal::NotFound(format!("there is no tenant `{tenant}`")));
    }
    let serves =
        |body: &serde_json::Value| DeviceSpec::deserialize(body).is_ok_and(|spec| spec.serves(tenant));
    let mut all = TenantStatistics {
        sums: TenantSums::default(),
        newest: None,
        reporting: 0,
        silent: 0,
        devices: Vec::new(),
        more: false,
        next: None,
    };
    let (behind, limit) = (call.cursor()?, call.limit());
    for document in model.all(device::KIND).filter(|document| serves(&document.body)) {
        let kept = statistics::of(&model, tenant, &document.id);
        if let Some(kept) = &kept {
            all.sums += &kept.sums;
            all.newest = all.newest.max(Some(kept.newest));
            all.reporting += 1;
        } else {
            all.silent += 1;
        }
        if behind.as_ref().is_some_and(|behind| document.id <= *behind) {
            continue;
        }
        all.more = all.devices.len() >= limit;
        if !all.more {
            let (since, newest) =
                (kept.as_ref().map(|kept| kept.since), kept.as_ref().map(|kept| kept.newest));
            let (device, sums) = (document.id.clone(), kept.map(|kept| kept.sums));
            all.devices.push(OfDevice { device, since, newest, sums });
        }
    }
    let last = all.devices.last().filter(|_| all.more);
    all.next = last.map(|last| cursor_behind(&last.device));
    Ok(Reply::json(200, &all))
}
