// SPDX-License-Identifier: Apache-2.0
//! Devices: the operator's document of a device, and the device's own reports.

use crate::kept::{HeldBack, Keeps};
use crate::model::Model;
use crate::store::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The kind of the document and of the status.
pub const KIND: &str = "devices";
/// The entry of `tenants` that means all tenants.
pub const ALL: &str = "*";

/// The way in which a device gets its generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Follow {
    /// The controller gives it every change that concerns a tenant it serves, at once.
    #[default]
    Auto,
    /// Only roll-outs give it a generation.
    Manual,
}

/// A host with an agent, as the operator declares it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DeviceSpec {
    /// The purpose of the device, for people.
    #[serde(default)]
    pub description: String,
    /// Labels by which roll-outs select devices.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Names of the tenants that the device serves; `*` for all.
    pub tenants: Vec<String>,
    /// The way in which the device gets its generation.
    #[serde(default)]
    pub follow: Follow,
}

impl DeviceSpec {
    /// Whether the device serves a tenant.
    #[must_use]
    pub fn serves(&self, tenant: &str) -> bool {
        self.tenants.iter().any(|own| own == tenant || own == ALL)
    }
}

/// The generation that one worker runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct WorkerReport {
    /// The worker's link.
    #[serde(default)]
    pub link: String,
    /// The worker's number.
    pub worker: u32,
    /// The generation that the worker runs.
    pub generation: u64,
}

/// The state of a level on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "LevelState")]
pub enum DeviceLevelState {
    /// The device does not report it.
    #[default]
    Unknown,
    /// The level handles packets.
    On,
    /// The level handles no packets for now: they go to the host, if the link has its interfaces.
    Off,
    /// The program that serves the link shows no sign of life, and the link fails open: packets pass
    /// uninspected.
    Open,
    /// The program that serves the link shows no sign of life, and the link fails closed: packets are
    /// dropped.
    Closed,
}

/// A rule that is not evaluated, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RuleReport {
    /// The rule: `acme/web: rule 3 of pfw`; for a library's rule, its file, line and id.
    pub rule: String,
    /// The feature that is missing, or the error in the rule.
    pub why: String,
}

/// Summary of rules that are not evaluated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LeftOutReport {
    /// Number of the rules that are left out.
    pub count: u64,
    /// The first of the rules that are left out, at most eight.
    pub first: Vec<RuleReport>,
}

/// A level's evaluation of header rules on packets without a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LevelRules {
    /// Whether the level drops packets without a flow only while it is open; if true, such packets otherwise
    /// go up to the host.
    pub while_open: bool,
    /// Number of rules that the level evaluates itself, by function; a policy's default counts as one.
    pub evaluates: BTreeMap<String, u64>,
    /// Rules that the level does not evaluate: packets that match them go up to the host.
    pub left_out: LeftOutReport,
}

/// The generation and state of a level on a link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LevelReport {
    /// The link; empty for all links of the device, if the device reports no links.
    #[serde(default)]
    pub link: String,
    /// `host`, `xdp` or `rtl`.
    pub level: String,
    /// The generation in force at the level; 0 for none.
    pub generation: u64,
    /// The state of the level.
    #[serde(default)]
    pub state: DeviceLevelState,
    /// Why the level is not in its intended state; empty if it is.
    #[serde(default)]
    pub reason: String,
    /// The level's evaluation of header rules; null if it evaluates none and only handles flows that the host
    /// has decided.
    #[serde(default)]
    pub rules: Option<LevelRules>,
}

/// Durations of a device's change to the generation it runs, from when it had received all of it;
/// microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TookReport {
    /// Building the generation beside the running one, without the time of `store`, which runs in parallel.
    pub build: u64,
    /// Storing the generation on the device's disk.
    pub store: u64,
    /// Swapping, until all workers run the generation.
    pub swap: u64,
}

/// Content hashes of a device's running generation: SHA-256, in hexadecimal digits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct ContentReport {
    /// Hash of the policies and rule files that the device was sent; `bartizan ctl controller` on the
    /// device shows it.
    pub manifest: String,
    /// Hash of the lists that the device's rules read, as `bartizan ctl status` shows it; null if not
    /// reported.
    pub lists: Option<String>,
    /// Hash of the device's host file and settings, as `bartizan ctl status` shows it; null if not
    /// reported.
    pub settings: Option<String>,
}

/// A device's answer to a generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Acknowledgement {
    /// The generation that the answer is about.
    pub generation: u64,
    /// Whether the device runs the generation; if not, the previous one stays in force.
    pub accepted: bool,
    /// The generation of each worker.
    #[serde(default)]
    pub workers: Vec<WorkerReport>,
    /// The generation and state of each level.
    #[serde(default)]
    pub levels: Vec<LevelReport>,
    /// Rules of libraries that the device does not evaluate at all; null if not reported.
    #[serde(default)]
    pub rules_left_out: Option<LeftOutReport>,
    /// Reasons of a refusal, or of differences from the desired state.
    #[serde(default)]
    pub diagnostics: Vec<String>,
    /// Durations of the change, if the device reports them.
    #[serde(default)]
    pub took: Option<TookReport>,
    /// Content hashes of the running generation, from the device's session.
    #[serde(skip)]
    pub content: Option<ContentReport>,
}

/// The state of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The device has not reported yet.
    #[default]
    New,
    /// The device runs its desired generation.
    Running,
    /// The device has not answered yet to its desired generation.
    Waiting,
    /// The device refused its desired generation.
    Refused,
    /// The device has no desired generation: it runs the policy of its own host file, and drops everything if
    /// that has none.
    Unassigned,
    /// The device runs its desired generation except some tenants' documents, which it refused: `held-back`
    /// lists them.
    Partial,
}

/// A generation sent to a device. The numbers that a device is sent only grow: an older generation that
/// becomes desired again is sent under a new number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sent {
    /// The number under which the device knows the generation.
    pub number: u64,
    /// The generation.
    pub generation: u64,
    /// Tenants whose policies are those of an older generation.
    #[serde(default, skip_serializing_if = "Keeps::is_empty")]
    pub kept: Keeps,
}

/// The diagnostic of a device without a desired generation.
const UNASSIGNED: &str = "nothing was given to it (`follow: manual`, and no roll-out has reached it): it drops everything on its inline links, unless its own \
                          host file has `policy` or `rules`; begin a roll-out, or let it `follow: auto`";

/// Most entries of `sent` that are remembered.
const SENT_MAX: usize = 8;

/// The status of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct DeviceStatus {
    /// The desired generation.
    pub wanted: u64,
    /// The generation that the device reports to run; 0 for none.
    pub running: u64,
    /// The state of the device.
    pub state: State,
    /// Time of the last report, in microseconds since 1970.
    pub seen: u64,
    /// The generation of each worker.
    pub workers: Vec<WorkerReport>,
    /// The generation and state of each level of each link.
    pub levels: Vec<LevelReport>,
    /// Rules of libraries that the device does not evaluate at all: their keywords or protocols are missing,
    /// or they are malformed; null if not reported.
    pub rules_left_out: Option<LeftOutReport>,
    /// Reasons of a refusal, or of differences from the desired state.
    pub diagnostics: Vec<String>,
    /// Durations of the change to the running generation; null if not reported, or if the generation was
    /// built at start.
    pub took: Option<TookReport>,
    /// Content hashes of the running generation; null if not reported.
    pub content: Option<ContentReport>,
    /// Generations sent over the session, the newest last.
    pub sent: Vec<Sent>,
    /// The number that the device last reported to run.
    pub held: u64,
    /// Whether a roll-out chose `wanted`; if false, the device follows changes.
    pub chosen: bool,
    /// Tenants whose changes the device refused: the documents that it runs instead, and the reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub held_back: BTreeMap<String, HeldBack>,
    /// The tenants that the device served with its running generation; null if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs_tenants: Option<Vec<String>>,
}

impl DeviceStatus {
    /// The stored status of a device; the default if there is none.
    #[must_use]
    pub fn of(model: &Model, device: &str) -> Self {
        let known = model.status(KIND, device);
        known.and_then(|body| DeviceStatus::deserialize(body).ok()).unwrap_or_default()
    }

    /// The number under which the desired generation is sent; 0 if there is none.
    #[must_use]
    pub fn number(&self) -> u64 {
        let last = self.sent.last().filter(|sent| sent.generation == self.wanted);
        last.map_or(self.wanted, |sent| sent.number)
    }

    /// Tenants of the desired set whose documents are of an older generation.
    #[must_use]
    pub fn keeps(&self) -> Keeps {
        let last = self.sent.last().filter(|sent| sent.generation == self.wanted);
        last.map(|sent| sent.kept.clone()).unwrap_or_default()
    }

    /// The older documents that remain when the device follows a change: those of touched tenants are tried
    /// anew.
    fn keeps_untouched(&self, touched: &Touched) -> Keeps {
        let mut keeps = self.keeps();
        keeps.retain(|tenant, _| !touched.has(tenant));
        keeps
    }

    /// Tenants of the running set whose documents are of an older generation.
    #[must_use]
    pub fn runs_keeps(&self) -> Keeps {
        let sent = self.sent.iter().rev().find(|sent| sent.number == self.held);
        sent.map(|sent| sent.kept.clone()).unwrap_or_default()
    }

    /// The generation sent under a number, if it is remembered.
    #[must_use]
    pub fn generation_of(&self, number: u64) -> Option<u64> {
        self.sent.iter().rev().find(|sent| sent.number == number).map(|sent| sent.generation)
    }

    /// Handles a device that runs an unknown number not below the newest: gives the desired set a higher one,
    /// which the device accepts.
    #[must_use]
    pub fn beyond(mut self, number: u64) -> Self {
        if self.wanted > 0 {
            self.send(number, self.keeps());
            self.state = State::Waiting;
        }
        self
    }

    /// Sends the desired generation under a new number above `floor` and all earlier ones.
    pub(crate) fn send(&mut self, floor: u64, kept: Keeps) {
        let last = self.sent.last().map_or(0, |sent| sent.number).max(self.held).max(floor);
        let number = self.wanted.max(last.saturating_add(1));
        self.sent.push(Sent { number, generation: self.wanted, kept });
        while self.sent.len() > SENT_MAX {
            let at = self.sent.iter().position(|sent| sent.number != self.held).unwrap_or(0);
            self.sent.remove(at);
        }
    }

    /// Makes the generation of a change desired on a device that follows changes.
    #[must_use]
    pub fn follow(self, generation: u64, touched: &Touched) -> Self {
        let keeps = self.keeps_untouched(touched);
        DeviceStatus { chosen: false, ..self.wants(generation, keeps) }
    }

    /// Offers the changes of held-back tenants again: the device has other links or ports than when it
    /// refused them.
    #[must_use]
    pub fn tried_anew(self) -> Self {
        let (wanted, chosen) = (self.wanted, self.chosen);
        DeviceStatus { chosen, ..self.want(wanted) }
    }

    /// Makes a generation desired, without older documents of any tenant.
    #[must_use]
    pub fn want(self, generation: u64) -> Self {
        self.wants(generation, Keeps::new())
    }

    fn wants(mut self, generation: u64, keeps: Keeps) -> Self {
        // A refused set is tried again, which needs a new number.
        let refused = self.state == State::Refused || keeps != self.keeps();
        let again = self.wanted != generation || refused || self.sent.is_empty();
        (self.wanted, self.chosen) = (generation, true);
        self.held_back.retain(|tenant, _| keeps.contains_key(tenant));
        if again && generation > 0 {
            self.send(0, keeps.clone());
        }
        self.state = match (self.seen, self.running == generation && keeps == self.runs_keeps()) {
            (0, _) => State::New,
            (_, true) => self.runs_it(),
            (_, false) => State::Waiting,
        };
        self
    }

    /// The state of a device that runs its desired generation.
    fn runs_it(&self) -> State {
        if self.held_back.is_empty() { State::Running } else { State::Partial }
    }

    /// Records an answer of the device; `number`: that of the set, if the answer came over the session.
    #[must_use]
    pub fn answered(mut self, answer: &Acknowledgement, number: Option<u64>, now: u64) -> Self {
        self.seen = now;
        if answer.accepted {
            self.running = answer.generation;
            self.took = answer.took;
            self.content.clone_from(&answer.content);
            self.held = number.unwrap_or(self.held);
        }
        let newest = number.is_none_or(|number| number == self.number());
        if answer.accepted && !newest && self.state == State::Refused {
            // The device repeats its running state because a link or level changed: the refusal of the
            // desired set, and its reasons, stay.
            self.apply_status(answer);
            return self;
        }
        self.state = match (newest && answer.generation == self.wanted, answer.accepted) {
            (true, true) if self.wanted == 0 => State::Unassigned,
            (true, true) => self.runs_it(),
            (true, false) => State::Refused,
            (false, _) => State::Waiting,
        };
        self.apply_status(answer);
        self.diagnostics.clone_from(&answer.diagnostics);
        self
    }

    /// Takes workers, levels and rules from an answer.
    fn apply_status(&mut self, answer: &Acknowledgement) {
        self.workers.clone_from(&answer.workers);
        self.levels.clone_from(&answer.levels);
        self.rules_left_out.clone_from(&answer.rules_left_out);
    }

    /// Adds diagnostics of the state that the device cannot report itself.
    #[must_use]
    pub fn explained(mut self) -> Self {
        if self.wanted == 0 && matches!(self.state, State::Running | State::Unassigned) {
            // The store of an older controller may have another state.
            self.state = State::Unassigned;
            self.diagnostics.push(UNASSIGNED.to_owned());
        }
        self
    }

    /// The status as a line of the store.
    #[must_use]
    pub fn line(&self, device: &str) -> Status {
        let body = serde_json::to_value(self).ok();
        Status { kind: KIND.to_owned(), id: device.to_owned(), body }
    }
}

/// The session of a device's agent. Not stored: it ends with the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct SessionStatus {
    /// Whether the session is open.
    pub connected: bool,
    /// Since when it is open, or closed, in microseconds since 1970.
    pub since: u64,
    /// Source address of the session.
    pub address: String,
    /// Name and version of the agent, as it reports them.
    pub software: String,
}

/// The status kind of sessions.
pub const SESSIONS: &str = "sessions";

/// An order to a function of a device, and its result. Not stored: an order belongs to a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct FunctionStatus {
    /// The order's number.
    pub request: u32,
    /// The name of the order.
    pub order: String,
    /// When the order was given, in microseconds since 1970.
    pub asked: u64,
    /// When the order was answered; null until then.
    pub answered: Option<u64>,
    /// Whether the order was carried out.
    pub done: bool,
    /// `running`, `stopped`, `failed` or `unknown`.
    pub state: String,
    /// Reason of the state, or of the failure.
    pub reason: String,
}

/// A failed or stopped function, as the device reports without a request. Not stored: the device repeats it
/// with each session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FunctionHealth {
    /// `failed` or `stopped`, on at least one worker.
    pub state: String,
    /// The workers concerned, and the reason.
    pub reason: String,
    /// Since when, in microseconds since 1970.
    pub since: u64,
}

/// The status kind of failed and stopped functions, by device and function.
pub const HEALTH: &str = "health";
/// The status kind of orders to functions, by device and function.
pub const FUNCTIONS: &str = "functions";
/// The status kind of the last sequences received from a device's agent.
pub const RECEIVED: &str = "received";

/// The last sequences received from one start of a device's agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// The identifier of the agent's start.
    pub instance: u64,
    /// The last sequence of statistics.
    pub statistics: u64,
    /// The last sequence of alerts.
    pub alerts: u64,
}

impl Received {
    /// The sequences received from a start of a device's agent; zero if the stored ones are of another start.
    #[must_use]
    pub fn of(model: &Model, device: &str, instance: u64) -> Self {
        let known = model.status(RECEIVED, device).and_then(|body| Received::deserialize(body).ok());
        known
            .filter(|known| known.instance == instance)
            .unwrap_or(Received { instance, ..Received::default() })
    }

    /// The sequences as a line of status.
    #[must_use]
    pub fn line(&self, device: &str) -> Status {
        let body = serde_json::to_value(self).ok();
        Status { kind: RECEIVED.to_owned(), id: device.to_owned(), body }
    }
}

/// The tenants whose traffic a change concerns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Touched {
    /// None: devices run nothing of it.
    #[default]
    Nothing,
    /// Some tenants.
    Tenants(BTreeSet<String>),
    /// All tenants.
    All,
}

impl Touched {
    /// Whether the change concerns a tenant.
    #[must_use]
    pub fn has(&self, tenant: &str) -> bool {
        match self {
            Touched::Nothing => false,
            Touched::Tenants(tenants) => tenants.contains(tenant),
            Touched::All => true,
        }
    }
}

/// The devices that follow changes and serve a tenant that the change concerns.
#[must_use]
pub fn following(model: &Model, touched: &Touched) -> Vec<String> {
    // Runs for all devices at every change, so it reads the JSON directly, by the rules of `DeviceSpec`.
    let serves = |body: &Value, tenants: &BTreeSet<String>| {
        let own = body.get("tenants").and_then(Value::as_array).into_iter().flatten();
        own.filter_map(Value::as_str).any(|own| own == ALL || tenants.contains(own))
    };
    let concerned = |body: &Value| match touched {
        Touched::Nothing => false,
        Touched::All => true,
        Touched::Tenants(tenants) => serves(body, tenants),
    };
    let follows = |body: &Value| body.get("follow").is_none_or(|follow| follow == "auto");
    let all = model.all(KIND).filter(|device| follows(&device.body) && concerned(&device.body));
    all.map(|device| device.id.clone()).collect()
}
