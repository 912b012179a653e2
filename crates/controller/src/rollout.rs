// SPDX-License-Identifier: Apache-2.0
//! Roll-outs: a generation goes to devices in steps; each step waits until all of its devices run it, and the
//! first refusal stops it.

use crate::device::{self, Acknowledgement, DeviceSpec, DeviceStatus, State};
use crate::model::Model;
use crate::store::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The kind of document.
pub const KIND: &str = "rollouts";
/// Steps of a roll-out at most.
pub const STEPS_MAX: usize = 100;
/// Roll-outs that are kept, with the newest.
pub const ROLLOUTS_MAX: usize = 1_000;

/// Which devices come next. Exactly one of the two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Step {
    /// So many of all devices of the roll-out, in per cent, those of steps before counted in.
    #[serde(default)]
    #[schemars(range(min = 1, max = 100))]
    pub percent: Option<u8>,
    /// Those that have all of these labels.
    #[serde(default)]
    pub labels: Option<BTreeMap<String, String>>,
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RolloutRequest {
    /// The generation; the newest unless given. An older one rolls back.
    #[serde(default)]
    pub generation: Option<u64>,
    /// Only devices that have all of these labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The steps; all devices at once unless given.
    #[serde(default)]
    pub steps: Vec<Step>,
}

/// Where a roll-out stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RolloutState {
    /// Devices of the step have not all answered.
    Running,
    /// All devices run it.
    Done,
    /// A device refused all of it: steps that had not begun do not.
    Stopped,
    /// An operator ended it.
    Cancelled,
    /// An operator took it back: its devices are to run what they were to run before.
    Reverted,
}

/// A roll-out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Rollout {
    /// The generation that goes out.
    pub generation: u64,
    /// Where it stands.
    pub state: RolloutState,
    /// The step that it is in, from 0.
    pub step: usize,
    /// The devices of each step.
    pub plan: Vec<Vec<String>>,
    /// What its devices were to run before.
    pub before: BTreeMap<String, u64>,
    /// Who refused it, or a part of it that some tenant says, and why.
    pub refusals: BTreeMap<String, Vec<String>>,
}

fn has(spec: &DeviceSpec, labels: &BTreeMap<String, String>) -> bool {
    labels.iter().all(|(name, value)| spec.labels.get(name) == Some(value))
}

/// The devices of each step, in the order of their names.
#[must_use]
pub fn plan(model: &Model, request: &RolloutRequest) -> Vec<Vec<String>> {
    let specs: Vec<(String, DeviceSpec)> = model
        .all(device::KIND)
        .filter_map(|d| Some((d.id.clone(), DeviceSpec::deserialize(&d.body).ok()?)))
        .filter(|(_, spec)| has(spec, &request.labels))
        .collect();
    let everything = [Step { percent: Some(100), labels: None }];
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
    /// A new one, in its first step that has devices.
    #[must_use]
    pub fn new(model: &Model, generation: u64, plan: Vec<Vec<String>>) -> Self {
        let before =
            plan.iter().flatten().map(|id| (id.clone(), DeviceStatus::of(model, id).wanted)).collect();
        let state = RolloutState::Running;
        Rollout { generation, state, step: 0, plan, before, refusals: BTreeMap::new() }
    }

    /// The devices of the step that it is in.
    #[must_use]
    pub fn devices(&self) -> &[String] {
        self.plan.get(self.step).map_or(&[], Vec::as_slice)
    }

    /// Goes on as far as devices have answered: from step to step while all of its devices run the
    /// generation. `status`: that of a device as it is now. Returns what becomes of devices' status.
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

    /// A device answered; see [`Rollout::advance`].
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

    /// A device runs it but for what some tenants say, which it refuses: noted, and it goes on, or one of
    /// them could keep it from all others.
    pub fn held_back(&mut self, id: &str, answer: &Acknowledgement) -> Vec<Status> {
        if answer.generation == self.generation && self.state == RolloutState::Running {
            self.refusals.entry(id.to_owned()).or_default().extend(answer.diagnostics.iter().cloned());
        }
        Vec::new()
    }

    /// Its devices are to run what they were to run before.
    pub fn revert(&mut self, status: impl Fn(&str) -> DeviceStatus) -> Vec<Status> {
        self.state = RolloutState::Reverted;
        let begun = self.plan.iter().take(self.step + 1).flatten();
        begun
            .filter(|id| status(id).wanted == self.generation)
            .map(|id| status(id).want(self.before.get(id).copied().unwrap_or(0)).line(id))
            .collect()
    }
}

/// The roll-out that is under way, if one is.
#[must_use]
pub fn under_way(model: &Model) -> Option<(String, Rollout)> {
    let all = model.all(KIND).filter_map(|d| Some((d.id.clone(), Rollout::deserialize(&d.body).ok()?)));
    all.into_iter().find(|(_, rollout)| rollout.state == RolloutState::Running)
}
