// SPDX-License-Identifier: Apache-2.0
//! Roll-outs: bring a generation to devices in steps. A step ends when all of its devices run the generation;
//! the first refusal stops the roll-out.

use crate::device::{self, Acknowledgement, DeviceSpec, DeviceStatus, State};
use crate::model::Model;
use crate::store::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The document kind.
pub const KIND: &str = "rollouts";
/// Most steps of a roll-out.
pub const STEPS_MAX: usize = 100;
/// Most roll-outs that are kept, the newest included.
pub const ROLLOUTS_MAX: usize = 1_000;

/// The devices of a step; exactly one of the two keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Step")]
pub struct RolloutStep {
    /// The share of all devices of the roll-out, in per cent, earlier steps included.
    #[serde(default)]
    #[schemars(range(min = 1, max = 100))]
    pub percent: Option<u8>,
    /// The devices with all of these labels.
    #[serde(default)]
    pub labels: Option<BTreeMap<String, String>>,
}

/// A request for a roll-out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RolloutRequest {
    /// The generation; the newest unless given. An older one is a roll-back.
    #[serde(default)]
    pub generation: Option<u64>,
    /// Limits the roll-out to devices with all of these labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The steps; one step with all devices unless given.
    #[serde(default)]
    pub steps: Vec<RolloutStep>,
}

/// The state of a roll-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RolloutState {
    /// Some devices of the step have not answered.
    Running,
    /// All devices run the generation.
    Done,
    /// A device refused the whole generation: no further step begins.
    Stopped,
    /// An operator cancelled the roll-out.
    Cancelled,
    /// An operator reverted the roll-out: its devices get back their earlier desired generations.
    Reverted,
}

/// A roll-out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Rollout {
    /// The generation.
    pub generation: u64,
    /// The state.
    pub state: RolloutState,
    /// The current step, from 0.
    pub step: usize,
    /// The devices of each step.
    pub plan: Vec<Vec<String>>,
    /// The earlier desired generation of each device.
    pub before: BTreeMap<String, u64>,
    /// Reasons of devices that refused the generation, or some tenants' documents in it.
    pub refusals: BTreeMap<String, Vec<String>>,
}

fn has(spec: &DeviceSpec, labels: &BTreeMap<String, String>) -> bool {
    labels.iter().all(|(name, value)| spec.labels.get(name) == Some(value))
}

/// The devices of each step, by name.
#[must_use]
pub fn plan(model: &Model, request: &RolloutRequest) -> Vec<Vec<String>> {
    let specs: Vec<(String, DeviceSpec)> = model
        .all(device::KIND)
        .filter_map(|d| Some((d.id.clone(), DeviceSpec::deserialize(&d.body).ok()?)))
        .filter(|(_, spec)| has(spec, &request.labels))
        .collect();
    let everything = [RolloutStep { percent: Some(100), labels: None }];
    let steps = if request.steps.is_empty() { &everything[..] } else { &request.steps[..] };
    let mut left: Vec<&(String, DeviceSpec)> = specs.iter().collect();
    let mut plan = Vec::new();
    for step in steps {
        let taken: Vec<String> = match &step.labels {
            Some(labels) => left.iter().filter(|(_, s)| has(s, labels)).map(|(id, _)| id.clone()).collect(),
            None => {
                let so_far = specs.len() - left.len();
                let until = (specs.len() * usize::from(step.percent.unwrap_or(100))).div_ceil(100);
                left.iter().take(until.saturating_sub(so_far)).map(|(id, _)| id.clone()).collect()
            }
        };
        left.retain(|(id, _)| !taken.contains(id));
        plan.push(taken);
    }
    plan
}

impl Rollout {
    /// A new roll-out, at its first step that has devices.
    #[must_use]
    pub fn new(model: &Model, generation: u64, plan: Vec<Vec<String>>) -> Self {
        let before =
            plan.iter().flatten().map(|id| (id.clone(), DeviceStatus::of(model, id).wanted)).collect();
        let state = RolloutState::Running;
        Rollout { generation, state, step: 0, plan, before, refusals: BTreeMap::new() }
    }

    /// The devices of the current step.
    #[must_use]
    pub fn devices(&self) -> &[String] {
        self.plan.get(self.step).map_or(&[], Vec::as_slice)
    }

    /// Advances while all devices of the current step run the generation. `status`: the current status of a
    /// device. Returns the new status of devices.
    pub fn advance(&mut self, status: impl Fn(&str) -> DeviceStatus) -> Vec<Status> {
        let mut lines = Vec::new();
        while self.state == RolloutState::Running {
            if self.step >= self.plan.len() {
                self.state = RolloutState::Done;
                self.step = self.plan.len().saturating_sub(1);
                break;
            }
            let mut waits = false;
            for id in self.devices() {
                let now = status(id);
                waits |= now.running != self.generation;
                if now.wanted != self.generation || now.state == State::Refused {
                    lines.push(now.want(self.generation).line(id));
                }
            }
            if waits {
                break;
            }
            self.step += 1;
        }
        lines
    }

    /// Records a device's answer; see [`Rollout::advance`].
    pub fn answered(
        &mut self,
        id: &str,
        answer: &Acknowledgement,
        status: impl Fn(&str) -> DeviceStatus,
    ) -> Vec<Status> {
        let begun = self.plan.iter().take(self.step + 1).flatten().any(|device| device == id);
        if !begun || answer.generation != self.generation || self.state != RolloutState::Running {
            return Vec::new();
        }
        if !answer.accepted {
            self.state = RolloutState::Stopped;
            self.refusals.insert(id.to_owned(), answer.diagnostics.clone());
            return Vec::new();
        }
        self.advance(status)
    }

    /// Records a device that runs the generation without the documents of some tenants, which it refused.
    /// The roll-out continues: otherwise one tenant could block it for all others.
    pub fn held_back(&mut self, id: &str, answer: &Acknowledgement) -> Vec<Status> {
        if answer.generation == self.generation && self.state == RolloutState::Running {
            self.refusals.entry(id.to_owned()).or_default().extend(answer.diagnostics.iter().cloned());
        }
        Vec::new()
    }

    /// Gives its devices back their earlier desired generations.
    pub fn revert(&mut self, status: impl Fn(&str) -> DeviceStatus) -> Vec<Status> {
        self.state = RolloutState::Reverted;
        let begun = self.plan.iter().take(self.step + 1).flatten();
        begun
            .filter(|id| status(id).wanted == self.generation)
            .map(|id| status(id).want(self.before.get(id).copied().unwrap_or(0)).line(id))
            .collect()
    }
}

/// The running roll-out, if there is one.
#[must_use]
pub fn under_way(model: &Model) -> Option<(String, Rollout)> {
    let all = model.all(KIND).filter_map(|d| Some((d.id.clone(), Rollout::deserialize(&d.body).ok()?)));
    all.into_iter().find(|(_, rollout)| rollout.state == RolloutState::Running)
}
