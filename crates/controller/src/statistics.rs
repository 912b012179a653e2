// SPDX-License-Identifier: Apache-2.0
//! Devices' counters of tenants' traffic: a line of status for each tenant and device, so that a report
//! rewrites only counters that rose, and a tenant's sums are read without those of others.
//!
//! Devices name counters of policies `tenant/TENANT/POLICY/WHAT`, and counters of tenants
//! `tenant/TENANT/@refused/FUNCTION/REASON` (`@would-refuse`). Tenants' sums continue over restarts of
//! agents: each report is added once.

use crate::device::DeviceSpec;
use crate::model::Model;
use crate::render::TENANTS;
use crate::store::Status;
use bartizan_api::southbound::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// The status kind of a device's own counters.
pub const STATISTICS: &str = "statistics";
/// The status kind of a tenant's counters on a device, by tenant and device.
pub const KIND: &str = "tenant-statistics";
/// Most policies of a tenant with sums of their own per device; further ones count in the tenant's total
/// only.
pub const POLICIES_MAX: usize = 2_048;
/// Most pairs of function and reason with counts of their own; further ones count in the total only.
pub const REASONS_MAX: usize = 256;
/// Most letters of a counter's name: tenant, policy and counter.
pub const COUNTER_LETTERS: usize = 256;

/// Prefix of tenants' counters.
const OWNED: &str = "tenant/";
/// Dropped packets, by function and reason.
const REFUSED: &str = "@refused";
/// Packets that staged policies or detection would have dropped.
const WOULD_REFUSE: &str = "@would-refuse";

/// Counters of packets, bytes and flows of a part of the traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
#[schemars(rename = "Sums")]
pub struct TrafficSums {
    /// Flows opened.
    pub flows: u64,
    /// Packets seen.
    pub packets: u64,
    /// Captured bytes of these packets.
    pub bytes: u64,
    /// Packets dropped.
    pub refused: u64,
    /// Packets that staged policies, or detection without prevention, would have dropped.
    pub would_refuse: u64,
    /// Alerts raised.
    pub alerts: u64,
}

impl TrafficSums {
    fn of(&mut self, what: &str) -> Option<&mut u64> {
        Some(match what {
            "flows" => &mut self.flows,
            "packets" => &mut self.packets,
            "bytes" => &mut self.bytes,
            "refused" => &mut self.refused,
            "would-refuse" => &mut self.would_refuse,
            "alerts" => &mut self.alerts,
            _ => return None,
        })
    }

    /// Names and values of the counters that are not 0.
    fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let TrafficSums { flows, packets, bytes, refused, would_refuse, alerts } = *self;
        let all = [
            ("flows", flows),
            ("packets", packets),
            ("bytes", bytes),
            ("refused", refused),
            ("would-refuse", would_refuse),
            ("alerts", alerts),
        ];
        all.into_iter().filter(|(_, value)| *value > 0)
    }
}

impl AddAssign for TrafficSums {
    fn add_assign(&mut self, other: TrafficSums) {
        for (name, value) in other.named() {
            if let Some(sum) = self.of(name) {
                *sum = sum.saturating_add(value);
            }
        }
    }
}

/// Counters of a tenant's policies, from one device or from all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct TenantSums {
    /// Sums over all policies of the tenant.
    pub total: TrafficSums,
    /// Packets dropped, by `FUNCTION/REASON`.
    pub refused_by: BTreeMap<String, u64>,
    /// Packets that would have been dropped, by `FUNCTION/REASON`.
    pub would_refuse_by: BTreeMap<String, u64>,
    /// Counters by policy, removed policies included.
    pub policies: BTreeMap<String, TrafficSums>,
}

impl TenantSums {
    /// Adds an increment to a counter; `name` is the part after the tenant. Returns `false` if the name is
    /// unknown, or has no counter of its own because a bound is reached.
    fn add(&mut self, name: &str, by: u64) -> bool {
        let Some((owner, what)) = name.split_once('/') else { return false };
        let reasons = match owner {
            REFUSED => Some(&mut self.refused_by),
            WOULD_REFUSE => Some(&mut self.would_refuse_by),
            _ => None,
        };
        if let Some(reasons) = reasons {
            return add(reasons, what, by);
        }
        let Some(sum) = self.total.of(what) else { return false };
        *sum = sum.saturating_add(by);
        if !self.policies.contains_key(owner) && self.policies.len() >= POLICIES_MAX {
            return false;
        }
        let policy = self.policies.entry(owner.to_owned()).or_default();
        if let Some(sum) = policy.of(what) {
            *sum = sum.saturating_add(by);
        }
        true
    }

    /// The counters under the names that devices use.
    fn counters(&self, tenant: &str) -> Vec<(String, u64)> {
        let name = |owner: &str, what: &str| format!("{OWNED}{tenant}/{owner}/{what}");
        let policies = self.policies.iter();
        let mut all: Vec<(String, u64)> = policies
            .flat_map(|(policy, sums)| sums.named().map(move |(what, value)| (name(policy, what), value)))
            .collect();
        for (owner, reasons) in [(REFUSED, &self.refused_by), (WOULD_REFUSE, &self.would_refuse_by)] {
            all.extend(reasons.iter().map(|(what, value)| (name(owner, what), *value)));
        }
        all
    }
}

impl AddAssign<&TenantSums> for TenantSums {
    fn add_assign(&mut self, other: &TenantSums) {
        self.total += other.total;
        for (sums, more) in
            [(&mut self.refused_by, &other.refused_by), (&mut self.would_refuse_by, &other.would_refuse_by)]
        {
            more.iter().for_each(|(name, by)| _ = add(sums, name, *by));
        }
        for (policy, sums) in &other.policies {
            if self.policies.contains_key(policy) || self.policies.len() < POLICIES_MAX {
                *self.policies.entry(policy.clone()).or_default() += *sums;
            }
        }
    }
}

fn add(sums: &mut BTreeMap<String, u64>, name: &str, by: u64) -> bool {
    if !sums.contains_key(name) && sums.len() >= REASONS_MAX {
        return false;
    }
    let sum = sums.entry(name.to_owned()).or_default();
    *sum = sum.saturating_add(by);
    true
}

/// A tenant's counters from one device, as stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredCounts {
    /// Time of the first report, in microseconds since 1970.
    pub since: u64,
    /// Time of the newest report, in microseconds since 1970.
    pub newest: u64,
    /// The sums.
    pub sums: TenantSums,
}

/// The id of a line of status.
fn id(tenant: &str, device: &str) -> String {
    format!("{tenant}/{device}")
}

/// The stored counters of a tenant on a device; `None` before the first report.
#[must_use]
pub fn of(model: &Model, tenant: &str, device: &str) -> Option<StoredCounts> {
    StoredCounts::deserialize(model.status(KIND, &id(tenant, device))?).ok()
}

/// Whether a counter's name is short enough to be stored.
fn fits(name: &str) -> bool {
    name.len() <= COUNTER_LETTERS
}

/// The counters of a report, sorted by owner.
pub struct OwnerCounters {
    /// Tenants' counters, as lines of status.
    pub lines: Vec<Status>,
    /// The device's own counters.
    pub own: Vec<(String, u64)>,
    /// Number of counters that are not stored: their tenant does not exist or is not served by the device,
    /// their name is unknown, or a bound is reached.
    pub refused: u64,
}

/// Sorts the counters of a device's report. `begins`: they replace the stored ones; otherwise they are added.
pub fn take(
    model: &Model,
    device: &str,
    spec: &DeviceSpec,
    counters: impl IntoIterator<Item = (String, u64)>,
    now: u64,
    begins: bool,
) -> OwnerCounters {
    let mut taken = OwnerCounters { lines: Vec::new(), own: Vec::new(), refused: 0 };
    let mut tenants: BTreeMap<String, StoredCounts> = BTreeMap::new();
    for (name, by) in counters {
        let Some(rest) = name.strip_prefix(OWNED) else {
            taken.own.push((name, by));
            continue;
        };
        let (tenant, what) = rest.split_once('/').unwrap_or((rest, ""));
        let known = fits(&name) && spec.serves(tenant) && model.get(TENANTS, tenant).is_some();
        let added = known && {
            let kept = tenants.entry(tenant.to_owned()).or_insert_with(|| {
                let before = of(model, tenant, device).filter(|_| !begins);
                before.unwrap_or(StoredCounts { since: now, ..StoredCounts::default() })
            });
            kept.newest = now;
            kept.sums.add(what, by)
        };
        taken.refused += u64::from(!added);
    }
    let line = |(tenant, kept): (String, StoredCounts)| Status {
        kind: KIND.to_owned(),
        id: id(&tenant, device),
        body: serde_json::to_value(kept).ok(),
    };
    if begins {
        let said =
            |line: &Status| line.id.split_once('/').is_some_and(|(tenant, _)| tenants.contains_key(tenant));
        taken.lines = of_device_gone(model, device).into_iter().filter(|line| !said(line)).collect();
    }
    taken.lines.extend(tenants.into_iter().map(line));
    taken
}

/// The counters of a device and of the tenants that it serves; and whether there are more than are listed.
#[must_use]
pub fn of_device(model: &Model, device: &str, spec: &DeviceSpec) -> Option<(Map<String, Value>, bool)> {
    let own = model.status(STATISTICS, device).and_then(Value::as_object);
    let mut all: Option<Map<String, Value>> = own.cloned();
    let mut more = false;
    let tenants = model.all(TENANTS).filter(|tenant| spec.serves(&tenant.id));
    for tenant in tenants {
        let Some(kept) = of(model, &tenant.id, device) else { continue };
        let all = all.get_or_insert_default();
        for (name, value) in kept.sums.counters(&tenant.id) {
            if all.len() >= limits::COUNTERS {
                more = true;
                break;
            }
            all.insert(name, Value::from(value));
        }
    }
    Some((all?, more))
}

/// Removals of the lines of a removed tenant.
#[must_use]
pub fn of_tenant_gone(model: &Model, tenant: &str) -> Vec<Status> {
    let prefix = format!("{tenant}/");
    deletions(model.statuses(KIND, &prefix).map(|(id, _)| id))
}

/// The changes that remove the statistics rows of a removed device.
#[must_use]
pub fn of_device_gone(model: &Model, device: &str) -> Vec<Status> {
    let own = |id: &&str| id.split_once('/').is_some_and(|(_, of)| of == device);
    deletions(model.statuses(KIND, "").map(|(id, _)| id).filter(own))
}

fn deletions<'a>(ids: impl Iterator<Item = &'a str>) -> Vec<Status> {
    ids.map(|id| Status { kind: KIND.to_owned(), id: id.to_owned(), body: None }).collect()
}
