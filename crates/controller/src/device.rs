// SPDX-License-Identifier: Apache-2.0
//! Devices: what an operator says of one, and what it says of itself.

use crate::kept::{HeldBack, Keeps};
use crate::model::Model;
use crate::store::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
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
    /// Its link.
    #[serde(default)]
    pub link: String,
    /// The worker.
    pub worker: u32,
    /// The generation that it runs.
    pub generation: u64,
}

/// How a level of a link stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LevelState {
    /// The device does not say.
    #[default]
    Unknown,
    /// It handles packets.
    On,
    /// It handles none for now: packets go to the host, if the link has its interfaces.
    Off,
    /// Somebody who is to serve its link gives no sign of life: packets go on uninspected.
    Open,
    /// The same: packets are dropped.
    Closed,
}

/// A rule, and why it is not evaluated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RuleReport {
    /// Which: `acme/web: rule 3 of pfw`; of a library its file, line and id.
    pub rule: String,
    /// What it asks for, or what is wrong with it.
    pub why: String,
}

/// Rules that are not evaluated somewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LeftOutReport {
    /// How many.
    pub count: u64,
    /// The first of them, eight at most.
    pub first: Vec<RuleReport>,
}

/// What becomes of rules on headers at a level that asks them of packets without a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LevelRules {
    /// Only while the level is open; else such packets go up to the host.
    pub while_open: bool,
    /// Rules that it evaluates itself, by function; a policy's default counts as one.
    pub evaluates: BTreeMap<String, u64>,
    /// Rules that it does not: what they match goes up to the host, which evaluates them.
    pub left_out: LeftOutReport,
}

/// What a level of a link runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LevelReport {
    /// The link; empty for all links of the device, if it does not say more.
    #[serde(default)]
    pub link: String,
    /// `host`, `xdp` or `rtl`.
    pub level: String,
    /// The generation that acts there; 0 for none.
    pub generation: u64,
    /// How it stands.
    #[serde(default)]
    pub state: LevelState,
    /// Why it does not stand as it should; empty if it does.
    #[serde(default)]
    pub reason: String,
    /// What it makes of rules on headers; null where it is asked for none: there it handles flows of which
    /// the host has decided.
    #[serde(default)]
    pub rules: Option<LevelRules>,
}

/// How long a device took with a generation that it runs, from when it had all of it; microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TookReport {
    /// Building it beside the one that ran: what that took beyond `store`, which goes on beside it.
    pub build: u64,
    /// Storing it: the device's disk.
    pub store: u64,
    /// Until all workers ran it.
    pub swap: u64,
}

/// Content hashes of what a device runs: SHA-256, in hexadecimal digits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct ContentReport {
    /// Over the policies and rule files that it was sent; `bartizan ctl controller` shows the same there.
    pub manifest: String,
    /// Over the lists that its rules read, as `bartizan ctl status` shows it there; null if it does not say.
    pub lists: Option<String>,
    /// Over its host file and settings, as `bartizan ctl status` shows it there; null if it does not say.
    pub settings: Option<String>,
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
    /// Rules of libraries that the device does not evaluate at all; null if it does not say.
    #[serde(default)]
    pub rules_left_out: Option<LeftOutReport>,
    /// Why not, or what is not as wanted.
    #[serde(default)]
    pub diagnostics: Vec<String>,
    /// How long it took, if the device says so.
    #[serde(default)]
    pub took: Option<TookReport>,
    /// Hashes of what it runs, as its session says.
    #[serde(skip)]
    pub content: Option<ContentReport>,
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
    /// Nothing was given to it: it runs what its own host file says, and lets nothing through where that says
    /// nothing.
    Unassigned,
    /// It runs what it is to run, but for what some tenants say, which it refused: `held-back` has them.
    Partial,
}

/// A generation on its way to a device. The numbers that a device is sent only grow, whatever generation it
/// is: an older one that is wanted again goes out under a new number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sent {
    /// The number that the device knows it by.
    pub number: u64,
    /// The generation.
    pub generation: u64,
    /// Tenants whose policies in it are those of an older generation.
    #[serde(default, skip_serializing_if = "Keeps::is_empty")]
    pub kept: Keeps,
}

/// The diagnostic of a device that nothing was given to.
const UNASSIGNED: &str = "nothing was given to it (`follow: manual`, and no roll-out has reached it): it drops everything on its inline links, unless its own \
                          host file has `policy` or `rules`; begin a roll-out, or let it `follow: auto`";

/// Of what was sent to a device, so many are remembered beside what it runs.
const SENT_MAX: usize = 8;

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
    /// Level by level of each link.
    pub levels: Vec<LevelReport>,
    /// Rules of libraries that it does not evaluate at all: with keywords or protocols that it does not have,
    /// or no rules; null if it does not say.
    pub rules_left_out: Option<LeftOutReport>,
    /// Why not, or what is not as wanted.
    pub diagnostics: Vec<String>,
    /// How long it took with what it runs; null if it does not say, or has built that with its start.
    pub took: Option<TookReport>,
    /// Content hashes of what it runs; null if it does not say.
    pub content: Option<ContentReport>,
    /// What was sent to it over its session, the newest last.
    pub sent: Vec<Sent>,
    /// The number that it said last that it runs.
    pub held: u64,
    /// Whether a roll-out chose `wanted`, or the changes that it follows.
    pub chosen: bool,
    /// Tenants whose changes it does not take: what it runs of them instead, and why.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub held_back: BTreeMap<String, HeldBack>,
    /// The tenants that it served with what it runs; null if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs_tenants: Option<Vec<String>>,
}

impl DeviceStatus {
    /// What is known of a device.
    #[must_use]
    pub fn of(model: &Model, device: &str) -> Self {
        let known = model.status(KIND, device);
        known.and_then(|body| DeviceStatus::deserialize(body).ok()).unwrap_or_default()
    }

    /// The number under which it is sent what it is to run; 0 for nothing.
    #[must_use]
    pub fn number(&self) -> u64 {
        let last = self.sent.last().filter(|sent| sent.generation == self.wanted);
        last.map_or(self.wanted, |sent| sent.number)
    }

    /// What is older in what it is to run.
    #[must_use]
    pub fn keeps(&self) -> Keeps {
        let last = self.sent.last().filter(|sent| sent.generation == self.wanted);
        last.map(|sent| sent.kept.clone()).unwrap_or_default()
    }

    /// What is still older when it follows a change of some tenants: they are tried anew.
    fn keeps_untouched(&self, touched: &Touched) -> Keeps {
        let mut keeps = self.keeps();
        keeps.retain(|tenant, _| !touched.has(tenant));
        keeps
    }

    /// What is older in what it runs.
    #[must_use]
    pub fn runs_keeps(&self) -> Keeps {
        let sent = self.sent.iter().rev().find(|sent| sent.number == self.held);
        sent.map(|sent| sent.kept.clone()).unwrap_or_default()
    }

    /// The generation that it was sent under a number, if that is remembered.
    #[must_use]
    pub fn generation_of(&self, number: u64) -> Option<u64> {
        self.sent.iter().rev().find(|sent| sent.number == number).map(|sent| sent.generation)
    }

    /// It runs something under a number that is not below the newest: only a higher one reaches it.
    #[must_use]
    pub fn beyond(mut self, number: u64) -> Self {
        if self.wanted > 0 {
            self.send(number, self.keeps());
            self.state = State::Waiting;
        }
        self
    }

    /// Gives what is wanted a number that no other had, above `floor`.
    pub(crate) fn send(&mut self, floor: u64, kept: Keeps) {
        let last = self.sent.last().map_or(0, |sent| sent.number).max(self.held).max(floor);
        let number = self.wanted.max(last.saturating_add(1));
        self.sent.push(Sent { number, generation: self.wanted, kept });
        while self.sent.len() > SENT_MAX {
            let at = self.sent.iter().position(|sent| sent.number != self.held).unwrap_or(0);
            self.sent.remove(at);
        }
    }

    /// It follows a change, which concerns some tenants.
    #[must_use]
    pub fn follow(self, generation: u64, touched: &Touched) -> Self {
        let keeps = self.keeps_untouched(touched);
        DeviceStatus { chosen: false, ..self.wants(generation, keeps) }
    }

    /// Has held-back tenants tried anew, since the device has other links or ports than when it refused them.
    #[must_use]
    pub fn tried_anew(self) -> Self {
        let (wanted, chosen) = (self.wanted, self.chosen);
        DeviceStatus { chosen, ..self.want(wanted) }
    }

    /// It is to run a generation, all of it.
    #[must_use]
    pub fn want(self, generation: u64) -> Self {
        self.wants(generation, Keeps::new())
    }

    fn wants(mut self, generation: u64, keeps: Keeps) -> Self {
        // What it refused it is to try again, which it does with a new number only.
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

    /// Where it stands when it runs what it is to run.
    fn runs_it(&self) -> State {
        if self.held_back.is_empty() { State::Running } else { State::Partial }
    }

    /// It answered; over its session, to what it was sent under a number.
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
            // It says again what runs since a link or level changed: that it refused what is wanted, and why,
            // stands.
            self.stands_as(answer);
            return self;
        }
        self.state = match (newest && answer.generation == self.wanted, answer.accepted) {
            (true, true) if self.wanted == 0 => State::Unassigned,
            (true, true) => self.runs_it(),
            (true, false) => State::Refused,
            (false, _) => State::Waiting,
        };
        self.stands_as(answer);
        self.diagnostics.clone_from(&answer.diagnostics);
        self
    }

    /// What runs where, as it says.
    fn stands_as(&mut self, answer: &Acknowledgement) {
        self.workers.clone_from(&answer.workers);
        self.levels.clone_from(&answer.levels);
        self.rules_left_out.clone_from(&answer.rules_left_out);
    }

    /// Diagnostics of a device's state beside those that it reports itself.
    #[must_use]
    pub fn explained(mut self) -> Self {
        if self.wanted == 0 && matches!(self.state, State::Running | State::Unassigned) {
            // Of an older controller's store as well.
            self.state = State::Unassigned;
            self.diagnostics.push(UNASSIGNED.to_owned());
        }
        self
    }

    /// As a line of status.
    #[must_use]
    pub fn line(&self, device: &str) -> Status {
        let body = serde_json::to_value(self).ok();
        Status { kind: KIND.to_owned(), id: device.to_owned(), body }
    }
}

/// The connection of a device's agent. Not in the store: it ends with the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct SessionStatus {
    /// Whether it stands.
    pub connected: bool,
    /// Since when it stands, or stands no more, in microseconds since 1970.
    pub since: u64,
    /// Where it comes from.
    pub address: String,
    /// What the agent says that it is.
    pub software: String,
}

/// The kind of status of sessions.
pub const SESSIONS: &str = "sessions";

/// An order to a function of a device, and what became of it. Not in the store: an order belongs to a
/// connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct FunctionStatus {
    /// The order's number.
    pub request: u32,
    /// The order.
    pub order: String,
    /// When it was given, in microseconds since 1970.
    pub asked: u64,
    /// When it was answered; null while it is not.
    pub answered: Option<u64>,
    /// Whether it was carried out.
    pub done: bool,
    /// `running`, `stopped`, `failed` or `unknown`.
    pub state: String,
    /// Why it is so, or why not.
    pub reason: String,
}

/// A function that is not as it should be, as the device says by itself. Not in the store: the device says it
/// again with each session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FunctionHealth {
    /// `failed` or `stopped`, on some worker at least.
    pub state: String,
    /// Where and why.
    pub reason: String,
    /// Since when, in microseconds since 1970.
    pub since: u64,
}

/// The kind of status of functions that are not as they should be, by device and function.
pub const HEALTH: &str = "health";
/// The kind of status of orders to functions, by device and function.
pub const FUNCTIONS: &str = "functions";
/// The kind of status of what came from a device's agent: the last sequences.
pub const RECEIVED: &str = "received";

/// What came from one start of a device's agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// The start of the agent.
    pub instance: u64,
    /// The last sequence of statistics.
    pub statistics: u64,
    /// The last sequence of alerts.
    pub alerts: u64,
}

impl Received {
    /// What came from a start of a device's agent; nothing of another start than the last.
    #[must_use]
    pub fn of(model: &Model, device: &str, instance: u64) -> Self {
        let known = model.status(RECEIVED, device).and_then(|body| Received::deserialize(body).ok());
        known
            .filter(|known| known.instance == instance)
            .unwrap_or(Received { instance, ..Received::default() })
    }

    /// As a line of status.
    #[must_use]
    pub fn line(&self, device: &str) -> Status {
        let body = serde_json::to_value(self).ok();
        Status { kind: RECEIVED.to_owned(), id: device.to_owned(), body }
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

impl Touched {
    /// Whether it concerns that of a tenant.
    #[must_use]
    pub fn has(&self, tenant: &str) -> bool {
        match self {
            Touched::Nothing => false,
            Touched::Tenants(tenants) => tenants.contains(tenant),
            Touched::All => true,
        }
    }
}

/// The devices that follow changes by themselves and are concerned by one.
#[must_use]
pub fn following(model: &Model, touched: &Touched) -> Vec<String> {
    // With every change, for all devices: it looks at what they say as it is, as `DeviceSpec` reads it.
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
