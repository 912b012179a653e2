// SPDX-License-Identifier: Apache-2.0
//! The controller: one writer and one model in memory, and the consequences of each change.
//!
//! A change is checked against the current model, committed to the store, and only then shown to readers and
//! to the fleet, so that an answered request is durable.

mod waits;

use crate::access::limiter::{FAILED, WRITES};
use crate::access::{Limiter, Principal, Rate, Scope, Secret};
use crate::clock::Clock;
use crate::counters::{Counters, count};
use crate::device::{self, Acknowledgement, DeviceSpec, DeviceStatus, State, Touched};
use crate::fleet::Fleet;
use crate::held::{self, Accused};
use crate::history::{self, Written};
use crate::model::{Model, ModelStep};
use crate::numbers;
use crate::problem::Refusal;
use crate::queue::{Ahead, Group, Queue};
use crate::render::{RULE_TEXTS, TENANTS};
use crate::rollout;
use crate::sections::Sections;
use crate::shares::{SharePermit, Shares};
use crate::statistics::{self, STATISTICS};
use crate::store::{
    self, Alert, AlertBounds, Change, Document, Status, Store, StoreContent, StoreError, Write,
};
use crate::waiting::{Bell, DeviceAnswer};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

/// The document kind of tokens.
pub const TOKENS: &str = "tokens";

/// Documents of an older generation that one store query reads.
const PART: usize = 256;

/// Most concurrent checks of dry runs and of large tenants' changes: each check occupies a thread of the
/// server while it runs.
pub const CHECKS_MAX: usize = 8;

/// Most concurrent checks of one tenant, or of one token without a tenant.
pub const CHECKS_SHARE: usize = 2;

/// Settings that the program gives its controller.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The functions that chains may name, in the order in which they run; if empty, any name is allowed.
    pub functions: Vec<String>,
    /// Bounds of the stored alerts; equal alerts are stored once, with a count.
    pub alerts_max: AlertBounds,
    /// The functions' checks of their policy sections.
    pub sections: Sections,
    /// Most generations whose documents are kept, and most rows of the audit log.
    pub history: (u64, u64),
    /// Rate at which all tokens of one tenant together may make changes.
    pub writes: Rate,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            functions: Vec::new(),
            alerts_max: AlertBounds { of_tenant: 100_000, of_all: 500_000 },
            sections: Sections::default(),
            history: (history::GENERATIONS_MAX, history::ROWS_MAX),
            writes: WRITES,
        }
    }
}

/// The content of a change; see [`Controller::change`].
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Kind, name and new body of each document; `None` removes the document.
    pub writes: Vec<(String, String, Option<Value>)>,
    /// Status that is written with the documents.
    pub status: Vec<Status>,
    /// The tenants whose traffic the change concerns.
    pub touched: Touched,
    /// Whether the device repeats this status if the machine dies; see [`Change::repeats`].
    pub repeats: bool,
    /// Notes for the operator, beside the differences.
    pub notes: Vec<String>,
}

impl Draft {
    /// A draft that writes or removes one document.
    #[must_use]
    pub fn one(kind: &str, id: &str, body: Option<Value>, touched: Touched) -> Self {
        Draft { writes: vec![(kind.to_owned(), id.to_owned(), body)], touched, ..Draft::default() }
    }
}

/// The difference that a change makes to one document.
#[derive(Clone, Debug, PartialEq, serde::Serialize, JsonSchema)]
pub struct Difference {
    /// The kind of resource.
    pub kind: String,
    /// The document's name.
    pub id: String,
    /// The body before; null if the document did not exist.
    pub before: Option<Value>,
    /// The body after; null if the document is removed.
    pub after: Option<Value>,
    /// SHA-256 of the body after, as in the audit log (for a rule file's text: its name); null if the
    /// document is removed.
    pub hash: Option<String>,
}

impl Difference {
    /// The difference between two bodies of a document, with the hash of the later one.
    #[must_use]
    pub fn new(kind: &str, id: &str, before: Option<&Value>, after: Option<&Value>) -> Self {
        let hash = after.map(|body| match kind {
            // The name of a rule text is already the hash of its megabytes.
            RULE_TEXTS => id.to_owned(),
            _ => store::hash(body),
        });
        let body = |body: Option<&Value>| body.map(|body| redact(kind, body));
        Difference {
            kind: kind.to_owned(),
            id: id.to_owned(),
            before: body(before),
            after: body(after),
            hash,
        }
    }
}

/// The outcome of a change, made or tried.
#[derive(Clone, Debug, PartialEq, serde::Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Outcome")]
pub struct ChangeOutcome {
    /// The generation after the change.
    pub generation: u64,
    /// The documents that differ; empty if the change alters nothing.
    pub changes: Vec<Difference>,
    /// The devices whose desired set the change alters at once.
    pub devices: Vec<String>,
    /// Notes on the change: checks that could not be made and why, and traffic that another policy judges
    /// from now on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub notes: Vec<String>,
    /// The devices' answers, if the request waited for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answers: Option<BTreeMap<String, DeviceAnswer>>,
}

/// The controller.
pub struct Controller {
    store: Mutex<Box<dyn Store>>,
    model: RwLock<Model>,
    queue: Queue,
    clock: Arc<dyn Clock>,
    fleet: Arc<dyn Fleet>,
    /// The program's settings.
    pub settings: Settings,
    /// The controller's counters.
    pub counters: Counters,
    failures: Mutex<Limiter<IpAddr>>,
    refusals: Mutex<Limiter<String>>,
    writes: Mutex<Limiter<String>>,
    requests: AtomicU32,
    checks: Shares,
    written: Written,
    /// Rings after each change.
    pub(crate) bell: Bell,
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves no half-done change: the store has transactions, and limiters hold only
    // numbers.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Controller {
    /// A controller with the content of a store; notifies the fleet of each device's desired generation.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn new(
        mut store: Box<dyn Store>,
        clock: Arc<dyn Clock>,
        fleet: Arc<dyn Fleet>,
        settings: Settings,
    ) -> Result<Self, StoreError> {
        let mut model = Model::of(store.load()?);
        // A store of an older program has documents without numbers. If no numbers are left, the documents
        // still load, so that they can be removed.
        let status = numbers::missing(&model).unwrap_or_default();
        if !status.is_empty() {
            let (at, who) = (clock.now(), Principal::controller().id);
            let change = Change { at, who, action: "number".to_owned(), status, ..Change::default() };
            store.commit(&change)?;
            model.set(&change.status);
        }
        for device in model.all(device::KIND) {
            let status = DeviceStatus::of(&model, &device.id);
            if status.wanted > 0 {
                fleet.wanted(&device.id, status.wanted);
            }
        }
        Ok(Controller {
            store: Mutex::new(store),
            queue: Queue::new(model.clone()),
            model: RwLock::new(model),
            clock,
            fleet,
            writes: Mutex::new(Limiter::new(settings.writes)),
            settings,
            counters: Counters::default(),
            failures: Mutex::new(Limiter::new(FAILED)),
            refusals: Mutex::new(Limiter::new(FAILED)),
            bell: Bell::default(),
            requests: AtomicU32::new(0),
            checks: Shares::new(CHECKS_SHARE, CHECKS_MAX),
            written: Written::default(),
        })
    }

    /// The current model.
    pub fn model(&self) -> RwLockReadGuard<'_, Model> {
        self.model.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time, in microseconds since 1970.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Monotonic time in microseconds, for waits.
    #[must_use]
    pub fn steady(&self) -> u64 {
        self.clock.steady()
    }

    /// Checks whether a tenant's token may make a change now, without counting one: a change of any tenant
    /// costs everybody a generation, a place in the history and one in the audit log. Tokens of no tenant
    /// belong to administrators or devices and have no limit. A request is checked when its head has arrived,
    /// and counted once, when the change is made.
    ///
    /// # Errors
    /// The tenant has used up its changes; the refusal has the seconds to wait.
    pub fn may_write(&self, who: &Principal) -> Result<(), Refusal> {
        let wait = |tenant: &String| lock(&self.writes).wait(tenant, self.clock.steady());
        who.tenant.as_ref().and_then(wait).map_or(Ok(()), |seconds| Err(Refusal::Often(seconds)))
    }

    /// Counts a change of a tenant's token.
    ///
    /// # Errors
    /// As [`Controller::may_write`].
    pub fn count_write(&self, who: &Principal) -> Result<(), Refusal> {
        let take = |tenant: &String| lock(&self.writes).take(tenant, self.clock.steady());
        who.tenant.as_ref().and_then(take).map_or(Ok(()), |seconds| Err(Refusal::Often(seconds)))
    }

    /// Takes back that a change of a tenant's token was counted: it changed nothing.
    pub fn uncount_write(&self, who: &Principal) {
        who.tenant.iter().for_each(|tenant| lock(&self.writes).refund(tenant));
    }

    /// Runs a query on the store.
    ///
    /// # Errors
    /// Errors of the query.
    pub fn query<T>(
        &self,
        question: impl FnOnce(&mut dyn Store) -> Result<T, StoreError>,
    ) -> Result<T, Refusal> {
        question(lock(&self.store).as_mut()).map_err(Refusal::from)
    }

    /// The documents of a generation.
    ///
    /// # Errors
    /// The generation does not exist or is forgotten, or the store cannot be read.
    pub fn model_at(&self, generation: u64) -> Result<Model, Refusal> {
        let newest = self.model().generation;
        if generation > newest {
            let message = format!("there is no generation {generation}; the newest is {newest}");
            return Err(Refusal::NotFound(message));
        }
        self.remembers(generation)?;
        let (mut documents, mut behind) = (Vec::new(), None);
        loop {
            let part = self.query(|store| store.at_part(generation, behind.as_ref(), PART))?;
            documents.extend(part.documents);
            behind = part.next;
            if behind.is_none() {
                break;
            }
            // Lets waiting changes have the store first.
            std::thread::yield_now();
        }
        // The generation may have been forgotten meanwhile, and the documents be incomplete.
        self.remembers(generation)?;
        Ok(Model::of(StoreContent { generation, documents, status: Vec::new() }))
    }

    /// Checks that the documents of a generation are still kept.
    ///
    /// # Errors
    /// They are not, or the store cannot be read.
    pub fn remembers(&self, generation: u64) -> Result<(), Refusal> {
        match self.query(|store| store.keeps(generation))? {
            true => Ok(()),
            false => Err(self.forgotten(generation)),
        }
    }

    fn forgotten(&self, generation: u64) -> Refusal {
        let (most, _) = self.settings.history;
        Refusal::NotFound(format!(
            "the documents of generation {generation} are no longer kept: only those of the last {most} generations and of generations that devices run are kept; choose a newer one"
        ))
    }

    /// Removes history beyond the bounds from the store, a portion at a time.
    fn forget(&self, store: &mut dyn Store, rows: usize) {
        let (generations, most) = self.settings.history;
        if !self.written.add(rows, generations.min(most)) {
            return;
        }
        let (before, held) = {
            let ahead = self.queue.lock();
            (ahead.model.generation.saturating_sub(generations), history::held_by_devices(&ahead.model))
        };
        // A disk that refuses this refuses changes too, and their authors get the error; the next portion
        // tries again.
        let forgotten = store.forget(before, &held, most).unwrap_or_default();
        self.counters.generations_forgotten.fetch_add(forgotten.generations, Ordering::Relaxed);
        self.counters.audit_forgotten.fetch_add(forgotten.rows, Ordering::Relaxed);
    }

    /// Makes a change that `draft` derives from the current model, or only computes its outcome (`dry`). No
    /// other change comes between draft and queueing. Returns, also with a refusal, once everything that the
    /// draft was derived from is on the disk.
    ///
    /// # Errors
    /// Errors of the draft, and of the store.
    pub fn change(
        &self,
        who: &Principal,
        action: &str,
        dry: bool,
        draft: impl FnOnce(&Model) -> Result<Draft, Refusal>,
    ) -> Result<ChangeOutcome, Refusal> {
        if dry {
            return self.try_out(who, action, draft);
        }
        let (drafted, awaited) = {
            let mut ahead = self.queue.lock();
            let drafted =
                draft(&ahead.model).and_then(|draft| self.compose(&ahead.model, who, action, draft));
            let drafted = drafted.map(|(change, outcome)| {
                if !change.writes.is_empty() || !change.status.is_empty() {
                    self.show_early(&ahead, &change);
                    ahead.add(outcome.generation, change);
                }
                outcome
            });
            (drafted, ahead.awaited())
        };
        if let Some(group) = awaited {
            self.commit_group(&group)?;
        }
        drafted
    }

    /// Computes the outcome of a change to the model on the disk. May take long; other changes go on
    /// meanwhile.
    fn try_out(
        &self,
        who: &Principal,
        action: &str,
        draft: impl FnOnce(&Model) -> Result<Draft, Refusal>,
    ) -> Result<ChangeOutcome, Refusal> {
        let _place = self.check_place(who)?;
        let model = self.model().clone();
        let (_, outcome) = self.compose(&model, who, action, draft(&model)?)?;
        Ok(outcome)
    }

    /// Reserves a place for a check that runs beside changes.
    ///
    /// # Errors
    /// All places are taken, or all that one tenant or token may have.
    pub(crate) fn check_place(&self, who: &Principal) -> Result<SharePermit<'_>, Refusal> {
        self.checks.take(who.tenant.as_ref().unwrap_or(&who.id)).ok_or_else(|| {
            Refusal::Busy(format!(
                "too many dry runs and changes of large tenants at one time (at most {CHECKS_SHARE} of a tenant or token, {CHECKS_MAX} in all); nothing was changed: try again"
            ))
        })
    }

    /// Shows a device's report to readers before it is stored, if everything that it was drafted from is on
    /// the disk: a lost report is repeated by the device, and requests that wait for the device end sooner.
    fn show_early(&self, ahead: &Ahead, change: &Change) {
        if !change.is_repeated()
            || ahead.awaited().is_some()
            || !wanted(&ahead.model, &change.status).is_empty()
        {
            return;
        }
        self.model.write().unwrap_or_else(PoisonError::into_inner).set(&change.status);
        self.bell.ring();
    }

    /// Waits until a group of changes is on the disk. The first thread at the store commits all changes that
    /// are queued by then.
    fn commit_group(&self, group: &Group) -> Result<(), StoreError> {
        let mut store = lock(&self.store);
        if let Some(result) = group.result() {
            return result;
        }
        let taken = self.queue.take();
        match store.commit_all(&taken.changes) {
            Ok(_) => {
                self.publish(&taken.steps);
                self.queue.done(&taken);
                let rows = |change: &Change| change.writes.len() + usize::from(change.remark.is_some());
                self.forget(store.as_mut(), taken.changes.iter().map(rows).sum());
            }
            Err(error) => {
                self.queue.failed(&taken, &error, || self.model().clone());
            }
        }
        // The group was queued, so this commit included it.
        group.result().unwrap_or_else(|| Err(StoreError::Doubt("a writer thread failed".to_owned())))
    }

    /// Shows committed changes to readers and the fleet. Only the writer calls this, so that the fleet gets
    /// generations in order.
    fn publish(&self, steps: &[ModelStep]) {
        let (mut told, mut changed) = (Vec::new(), Vec::new());
        {
            let mut model = self.model.write().unwrap_or_else(PoisonError::into_inner);
            for step in steps {
                let wanted = wanted(&model, step.status());
                // Also by the writer only, so that the fleet gets generations in order.
                let devices =
                    step.changed(device::KIND).filter(|id| !wanted.iter().any(|(device, _)| device == id));
                changed.extend(devices.map(str::to_owned));
                told.extend(wanted);
                model.apply(step);
            }
        }
        for (device, generation) in told {
            self.fleet.wanted(&device, generation);
        }
        for device in changed {
            self.fleet.changed(&device);
        }
        self.bell.ring();
    }

    fn compose(
        &self,
        model: &Model,
        who: &Principal,
        action: &str,
        draft: Draft,
    ) -> Result<(Change, ChangeOutcome), Refusal> {
        let mut writes = Vec::new();
        for (kind, id, after) in draft.writes {
            let before = model.get(&kind, &id).map(|document| document.body.clone());
            if before != after {
                writes.push(Write { kind, id, before, after });
            }
        }
        let generation = model.generation + u64::from(!writes.is_empty());
        let (mut status, repeats, notes) = (draft.status, draft.repeats, draft.notes);
        let new = writes.iter().filter(|write| write.after.is_some());
        let new: Vec<(&str, &str)> = new.map(|write| (write.kind.as_str(), write.id.as_str())).collect();
        status.extend(numbers::assign(model, &new)?);
        // A new tenant with the name of a removed one finds nothing of the removed one.
        let gone = writes.iter().filter(|write| write.kind == TENANTS && write.after.is_none());
        let forgets: Vec<String> = gone.map(|write| write.id.clone()).collect();
        status.extend(forgets.iter().flat_map(|tenant| statistics::of_tenant_gone(model, tenant)));
        let mut devices: Vec<String> = wanted(model, &status).into_iter().map(|(device, _)| device).collect();
        if !writes.is_empty() {
            for id in device::following(model, &draft.touched) {
                if !devices.contains(&id) {
                    status.push(DeviceStatus::of(model, &id).follow(generation, &draft.touched).line(&id));
                    devices.push(id);
                }
            }
        }
        let changes = writes
            .iter()
            .map(|write| Difference::new(&write.kind, &write.id, write.before.as_ref(), write.after.as_ref()))
            .collect();
        let outcome = ChangeOutcome { generation, changes, devices, notes, answers: None };
        let (name, action) = (name_of(model, &who.id), action.to_owned());
        let who = who.id.clone();
        let remark = None;
        Ok((Change { at: self.now(), who, name, action, writes, status, forgets, remark, repeats }, outcome))
    }

    /// Notes in the audit log that a change was refused. Each token has a limit of notes; further ones are
    /// only counted.
    pub fn note_refusal(&self, who: &Principal, action: &str, path: &str) {
        if lock(&self.refusals).take(&who.id, self.clock.steady()).is_some() {
            return;
        }
        let change = Change {
            at: self.now(),
            who: who.id.clone(),
            name: name_of(&self.model(), &who.id),
            action: format!("refused: {action}"),
            remark: Some(("requests".to_owned(), without_tokens(path))),
            ..Change::default()
        };
        // A disk that refuses this remark refuses changes too, and their authors get the error.
        let mut store = lock(&self.store);
        let _ = store.commit(&change);
        self.forget(store.as_mut(), 1);
    }

    /// Authenticates a caller by the text after `Bearer`.
    ///
    /// # Errors
    /// The token is unknown or expired; for a source with too many such failures, only that it has to wait. A
    /// valid token is never delayed by failures of others at the same address.
    pub fn authenticate(&self, token: Option<&str>, source: IpAddr) -> Result<Option<Principal>, Refusal> {
        let Some(text) = token else { return Ok(None) };
        let now = self.now();
        if let Some(principal) = Secret::parse(text).and_then(|secret| self.known(&secret, now)) {
            return Ok(Some(principal));
        }
        match lock(&self.failures).take(&source, self.clock.steady()) {
            Some(seconds) => Err(Refusal::Limited(seconds)),
            None => Err(Refusal::Unknown(
                "the token is unknown or has expired; ask an administrator for another".to_owned(),
            )),
        }
    }

    fn known(&self, secret: &Secret, now: u64) -> Option<Principal> {
        let model = self.model();
        let body = &model.get(TOKENS, secret.id())?.body;
        let text = |key: &str| body.get(key).and_then(Value::as_str);
        if !secret.fits(text("hash")?) || is_over(body, now) {
            return None;
        }
        let scope = Scope::deserialize(body.get("scope")?).ok()?;
        let own = |key| text(key).map(str::to_owned);
        Some(Principal { id: secret.id().to_owned(), scope, tenant: own("tenant"), device: own("device") })
    }

    /// Records a device's answer to a generation; it may continue or stop a roll-out.
    ///
    /// # Errors
    /// The device does not exist, or the store failed.
    pub fn acknowledge(&self, who: &Principal, id: &str, answer: &Acknowledgement) -> Result<(), Refusal> {
        self.answer(who, id, None, answer, None).map(drop)
    }

    /// Records a device's answer over its session, by the number of the set. The device repeats it with each
    /// session.
    ///
    /// # Errors
    /// The device does not exist, or the store failed.
    pub fn answered(
        &self,
        who: &Principal,
        id: &str,
        number: u64,
        answer: &Acknowledgement,
    ) -> Result<(), Refusal> {
        self.answer(who, id, Some(number), answer, None).map(drop)
    }

    /// Records that a device refused a numbered set because of some tenants' documents. The device gets the
    /// set again with these tenants' older documents; see [`DeviceStatus::hold_back`]. `accused`: the tenants
    /// that may be the cause. Returns the tenants held back now.
    ///
    /// # Errors
    /// The device does not exist, or the store failed.
    pub fn not_taken(
        &self,
        who: &Principal,
        id: &str,
        number: u64,
        answer: &Acknowledgement,
        accused: &Accused,
    ) -> Result<Vec<String>, Refusal> {
        let held = self.answer(who, id, Some(number), answer, Some(accused))?;
        held.iter().for_each(|_| count(&self.counters.held_back));
        Ok(held)
    }

    fn answer(
        &self,
        who: &Principal,
        id: &str,
        number: Option<u64>,
        answer: &Acknowledgement,
        accused: Option<&Accused>,
    ) -> Result<Vec<String>, Refusal> {
        let now = self.now();
        let mut held = Vec::new();
        let draft = |model: &Model| {
            let Some(document) = model.get(device::KIND, id) else {
                return Err(Refusal::NotFound(format!("there is no device `{id}`")));
            };
            if answer.generation > model.generation {
                let message = format!(
                    "there is no generation {}; the newest is {}",
                    answer.generation, model.generation
                );
                return Err(Refusal::wrong("/generation", message));
            }
            let spec = DeviceSpec::deserialize(&document.body).unwrap_or_default();
            let mut own = DeviceStatus::of(model, id).answered(answer, number, now);
            if answer.accepted && matches!(own.state, State::Running | State::Partial) {
                own.runs_tenants = Some(spec.tenants.clone());
            }
            if let Some(accused) = accused {
                let blame = held::blamed(model, &spec, &own, accused, &answer.diagnostics);
                if let Some(less) = own.clone().hold_back(&blame, now) {
                    own = less;
                    held.extend(blame.into_keys());
                }
            }
            let mut lines = BTreeMap::from([(id.to_owned(), own.line(id))]);
            let mut draft = Draft { repeats: number.is_some(), ..Draft::default() };
            if let Some((name, mut rollout)) = rollout::under_way(model) {
                let status = |device: &str| match device == id {
                    true => own.clone(),
                    false => DeviceStatus::of(model, device),
                };
                let more = match held.is_empty() {
                    true => rollout.answered(id, answer, status),
                    false => rollout.held_back(id, answer),
                };
                lines.extend(more.into_iter().map(|line| (line.id.clone(), line)));
                draft.writes.push((rollout::KIND.to_owned(), name, serde_json::to_value(&rollout).ok()));
            }
            draft.status = lines.into_values().collect();
            Ok(draft)
        };
        self.change(who, "acknowledge", false, draft)?;
        Ok(held)
    }

    /// Shows status that is not stored: it ends with this process.
    pub fn show(&self, status: &[Status]) {
        // The model for drafts first: its status must not be older than what readers see.
        let mut ahead = self.queue.lock();
        ahead.model.set(status);
        self.model.write().unwrap_or_else(PoisonError::into_inner).set(status);
    }

    /// Notes in the audit log an action that changes no document; call before the action.
    ///
    /// # Errors
    /// The store did not take the note; then do not act.
    pub fn note(&self, who: &Principal, action: &str, kind: &str, id: &str) -> Result<(), Refusal> {
        let remark = Some((kind.to_owned(), id.to_owned()));
        let (at, name, action) = (self.now(), name_of(&self.model(), &who.id), action.to_owned());
        let change = Change { at, who: who.id.clone(), name, action, remark, ..Change::default() };
        let mut store = lock(&self.store);
        store.commit(&change)?;
        self.forget(store.as_mut(), 1);
        Ok(())
    }

    /// The next number for an order; numbers restart with the process, as sessions do.
    pub fn next_request(&self) -> u32 {
        self.requests.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// The fleet: the way to the devices.
    #[must_use]
    pub fn fleet(&self) -> &dyn Fleet {
        self.fleet.as_ref()
    }

    /// Stores a device's alerts and, in the same transaction, `status`. Alerts of tenants that the device
    /// does not serve are counted and left out; alerts of no tenant are all taken. Returns how many were
    /// taken.
    ///
    /// # Errors
    /// The device does not exist, or the store failed.
    pub fn alerts(&self, id: &str, alerts: &[Alert], status: &[Status]) -> Result<u64, Refusal> {
        let bound = self.settings.alerts_max;
        let (taken, forgotten) = {
            // The store's lock is held from the check to the commit: a tenant that is removed between them
            // would leave its alerts to the next tenant of that name.
            let mut store = lock(&self.store);
            let taken = self.served(id, alerts)?;
            let forgotten = store.keep_alerts(&taken, bound, status)?;
            self.show(status);
            (taken, forgotten)
        };
        for _ in taken.len()..alerts.len() {
            count(&self.counters.alerts_unknown);
        }
        for _ in 0..forgotten {
            count(&self.counters.alerts_forgotten);
        }
        Ok(taken.len() as u64)
    }

    /// The alerts that the device may report.
    fn served(&self, id: &str, alerts: &[Alert]) -> Result<Vec<Alert>, Refusal> {
        let model = self.model();
        let Some(device) = model.get(device::KIND, id) else {
            return Err(Refusal::NotFound(format!("there is no device `{id}`")));
        };
        let spec = DeviceSpec::deserialize(&device.body).unwrap_or_default();
        let serves = |tenant: &String| spec.serves(tenant) && model.get(TENANTS, tenant).is_some();
        Ok(alerts.iter().filter(|alert| alert.tenant.as_ref().is_none_or(serves)).cloned().collect())
    }

    /// Stores a device's counters; the newest replace the older ones.
    ///
    /// # Errors
    /// The device does not exist, or the store failed.
    pub fn statistics(
        &self,
        who: &Principal,
        id: &str,
        counters: BTreeMap<String, u64>,
    ) -> Result<(), Refusal> {
        let now = self.now();
        let mut refused = 0;
        let draft = |model: &Model| {
            let Some(document) = model.get(device::KIND, id) else {
                return Err(Refusal::NotFound(format!("there is no device `{id}`")));
            };
            let spec = DeviceSpec::deserialize(&document.body).unwrap_or_default();
            let seen = DeviceStatus { seen: now, ..DeviceStatus::of(model, id) };
            let taken = statistics::take(model, id, &spec, counters, now, true);
            refused = taken.refused;
            let own = taken.own.into_iter().map(|(name, value)| (name, Value::from(value))).collect();
            let line =
                Status { kind: STATISTICS.to_owned(), id: id.to_owned(), body: Some(Value::Object(own)) };
            let status = [line, seen.line(id)].into_iter().chain(taken.lines).collect();
            Ok(Draft { status, ..Draft::default() })
        };
        let done = self.change(who, "statistics", false, draft).map(|_| ());
        (0..refused).for_each(|_| count(&self.counters.counters_refused));
        done
    }

    /// Makes the bootstrap token, which makes one administrator's token: with an empty store, when no valid
    /// administrator's token is left, or when the operator who starts the controller requests one (`anyway`),
    /// because the tokens are lost. `keep` writes the token to where its holder finds it, before it becomes
    /// valid. `None` if no token is needed, or one exists already.
    ///
    /// # Errors
    /// The store failed, or there are no random numbers.
    pub fn bootstrap<T, E>(
        &self,
        anyway: bool,
        keep: impl FnOnce(&Secret) -> Result<T, E>,
    ) -> Result<Option<Result<T, E>>, Refusal> {
        let now = self.now();
        let good = |token: &Document| administers(&token.body, now) || bootstraps(&token.body);
        if !anyway && self.model().all(TOKENS).any(good) {
            return Ok(None);
        }
        let secret = Secret::random().map_err(|e| Refusal::Internal(e.to_string()))?;
        let kept = keep(&secret);
        if kept.is_ok() {
            let body =
                serde_json::json!({ "name": "bootstrap", "scope": "bootstrap", "hash": secret.hash() });
            let draft = |model: &Model| {
                let mut draft = Draft::one(TOKENS, secret.id(), Some(body), Touched::Nothing);
                // Replaces an earlier bootstrap token: the file holds one.
                let before = model.all(TOKENS).filter(|token| bootstraps(&token.body));
                draft.writes.extend(before.map(|token| (TOKENS.to_owned(), token.id.clone(), None)));
                Ok(draft)
            };
            self.change(&Principal::controller(), "bootstrap", false, draft)?;
        }
        Ok(Some(kept))
    }

    /// Whether a bootstrap token exists.
    #[must_use]
    pub fn bootstraps(&self) -> bool {
        self.model().all(TOKENS).any(|token| bootstraps(&token.body))
    }
}

/// The name of a token, if the token exists.
pub(crate) fn name_of(model: &Model, token: &str) -> Option<String> {
    model.get(TOKENS, token)?.body.get("name")?.as_str().map(str::to_owned)
}

/// Whether a token has expired.
fn is_over(token: &Value, now: u64) -> bool {
    token.get("expires").and_then(Value::as_u64).is_some_and(|expires| expires <= now)
}

fn is_of(token: &Value, scope: &str) -> bool {
    token.get("scope").and_then(Value::as_str) == Some(scope)
}

/// Whether a token is the bootstrap token.
fn bootstraps(token: &Value) -> bool {
    is_of(token, "bootstrap")
}

/// Whether a token is an administrator's and valid at `now`.
#[must_use]
pub fn administers(token: &Value, now: u64) -> bool {
    is_of(token, "admin") && !is_over(token, now)
}

/// Masks tokens in a path where somebody put one instead of its id: logs hold no secrets.
fn without_tokens(path: &str) -> String {
    let part = |part: &str| if part.starts_with("btz_") { "btz_...".to_owned() } else { part.to_owned() };
    path.split('/').map(part).collect::<Vec<_>>().join("/").chars().take(200).collect()
}

/// The body of a document as shown to readers: without hashes of tokens, and with the length instead of a
/// long text.
#[must_use]
pub fn redact(kind: &str, body: &Value) -> Value {
    let mut body = body.clone();
    if let Some(object) = body.as_object_mut() {
        if kind == TOKENS {
            object.remove("hash");
        }
        if let Some(text) = object.get_mut("text") {
            *text = Value::from(text.as_str().map_or(0, str::len));
        }
    }
    body
}

/// The devices whose desired set these lines of status change, with the new number.
fn wanted(model: &Model, status: &[Status]) -> Vec<(String, u64)> {
    let lines = status.iter().filter(|line| line.kind == device::KIND);
    let told = |line: &Status| {
        let then = DeviceStatus::deserialize(line.body.as_ref()?).ok()?;
        let now = DeviceStatus::of(model, &line.id);
        let other = (now.wanted, now.number()) != (then.wanted, then.number());
        other.then(|| (line.id.clone(), then.wanted))
    };
    lines.filter_map(told).collect()
}
