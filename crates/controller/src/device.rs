// SPDX-License-Identifier: Apache-2.0
//! Devices: what an operator says of one, and what it says of itself.

use crate::model::Model;
use crate::store::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The kind of document, and of status.
pub const KIND: &str = "devices";
/// In `tenants`: all of them.
pub const ALL: &str = "*";

/// How a device comes to a generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Follow {
    /// Each change that concerns a tenant it serves is wanted of it at once.
    #[default]
    Auto,
    /// Only roll-outs bring it one.
    Manual,
}

/// A host with an agent: what an operator says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DeviceSpec {
    /// What it is for, for people.
    #[serde(default)]
    pub description: String,
    /// Labels, by which roll-outs choose.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The tenants that it serves, by name; `*` for all.
    pub tenants: Vec<String>,
    /// How it comes to a generation.
    #[serde(default)]
    pub follow: Follow,
}

impl DeviceSpec {
    /// Whether it serves a tenant.
    #[must_use]
    pub fn serves(&self, tenant: &str) -> bool {
        self.tenants.iter().any(|own| own == tenant || own == ALL)
    }
}

/// What one worker runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct WorkerReport {
    /// The worker.
    pub worker: u32,
    /// The generation that it runs.
    pub generation: u64,
}

/// What one level below the host runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LevelReport {
    /// `host`, `xdp` or `rtl`.
    pub level: String,
    /// The generation that it runs.
    pub generation: u64,
}

/// A device's answer to a generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Acknowledgement {
    /// The generation that it is about.
    pub generation: u64,
    /// Whether it runs it; if not, what ran before runs on.
    pub accepted: bool,
    /// What it runs, worker by worker.
    #[serde(default)]
    pub workers: Vec<WorkerReport>,
    /// What runs at which level.
    #[serde(default)]
    pub levels: Vec<LevelReport>,
    /// Why not, or what is not as wanted.
    #[serde(default)]
    pub diagnostics: Vec<String>,
}

/// Where a device stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It has not said anything yet.
    #[default]
    New,
    /// It runs what it is to run.
    Running,
    /// It is to run another generation, and has not answered yet.
    Waiting,
    /// It refused what it is to run.
    Refused,
}

/// What is known of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct DeviceStatus {
    /// The generation that it is to run.
    pub wanted: u64,
    /// The generation that it runs, as it says; 0 for none.
    pub running: u64,
    /// Where it stands.
    pub state: State,
    /// When it last said something, in microseconds since 1970.
    pub seen: u64,
    /// Worker by worker.
    pub workers: Vec<WorkerReport>,
    /// Level by level.
    pub levels: Vec<LevelReport>,
    /// Why not, or what is not as wanted.
    pub diagnostics: Vec<String>,
}

impl DeviceStatus {
    /// What is known of a device.
    #[must_use]
    pub fn of(model: &Model, device: &str) -> Self {
        let known = model.status(KIND, device);
        known.and_then(|body| DeviceStatus::deserialize(body).ok()).unwrap_or_default()
    }

    /// It is to run a generation.
    #[must_use]
    pub fn want(mut self, generation: u64) -> Self {
        self.wanted = generation;
        self.state = match (self.seen, self.running == generation) {
            (0, _) => State::New,
            (_, true) => State::Running,
            (_, false) => State::Waiting,
        };
        self
    }

    /// It answered.
    #[must_use]
    pub fn answered(mut self, answer: &Acknowledgement, now: u64) -> Self {
        self.seen = now;
        if answer.accepted {
            self.running = answer.generation;
        }
        self.state = match (answer.generation == self.wanted, answer.accepted) {
            (true, true) => State::Running,
            (true, false) => State::Refused,
            (false, _) => State::Waiting,
        };
        self.workers.clone_from(&answer.workers);
        self.levels.clone_from(&answer.levels);
        self.diagnostics.clone_from(&answer.diagnostics);
        self
    }

    /// As a line of status.
    #[must_use]
    pub fn line(&self, device: &str) -> Status {
        let body = serde_json::to_value(self).ok();
        Status { kind: KIND.to_owned(), id: device.to_owned(), body }
    }
}

/// Whose traffic a change concerns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Touched {
    /// Nobody's: nothing that devices run.
    #[default]
    Nothing,
    /// That of some tenants.
    Tenants(BTreeSet<String>),
    /// Everybody's.
    All,
}

/// The devices that follow changes by themselves and are concerned by one.
#[must_use]
pub fn following(model: &Model, touched: &Touched) -> Vec<String> {
    let concerned = |spec: &DeviceSpec| match touched {
        Touched::Nothing => false,
        Touched::All => true,
        Touched::Tenants(tenants) => tenants.iter().any(|tenant| spec.serves(tenant)),
    };
    if *touched == Touched::Nothing {
        return Vec::new();
    }
    let specs = model.all(KIND).filter_map(|d| Some((&d.id, DeviceSpec::deserialize(&d.body).ok()?)));
    specs.filter(|(_, s)| s.follow == Follow::Auto && concerned(s)).map(|(id, _)| id.clone()).collect()
}
