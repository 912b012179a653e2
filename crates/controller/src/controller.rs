// SPDX-License-Identifier: Apache-2.0
//! The controller itself: one writer, one model, and what follows of a change.
//!
//! A change is checked against what stands, committed to the store, and only then shown: to readers, and to
//! the fleet. Whoever was answered can rely on it.

use crate::access::limiter::{FAILED, WRITES};
use crate::access::{Limiter, Principal, Rate, Scope, Secret};
use crate::clock::Clock;
use crate::counters::{Counters, count};
use crate::device::{self, Acknowledgement, DeviceSpec, DeviceStatus, State, Touched};
use crate::fleet::Fleet;
use crate::held::{self, Accused};
use crate::history::{self, Written};
use crate::model::{Model, Step};
use crate::numbers;
use crate::problem::Refusal;
use crate::queue::{Ahead, Group, Queue};
use crate::render::{RULE_TEXTS, TENANTS};
use crate::rollout;
use crate::sections::Sections;
use crate::shares::{Share, Shares};
use crate::statistics::{self, STATISTICS};
use crate::store::{self, Alert, AlertBounds, Change, Document, Loaded, Status, Store, StoreError, Write};
use crate::waiting::{Bell, DeviceAnswer, SHARE_MAX, WAITING_MAX};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

/// The kind of document of tokens.
pub const TOKENS: &str = "tokens";

/// Documents of an older generation that are read from the store at one time.
const PART: usize = 256;

/// Checks of dry runs and of large tenants' changes at one time: each has one of the server's threads for as
/// long as it takes.
pub const CHECKS_MAX: usize = 8;

/// Most such checks of one tenant, or of one token without a tenant.
pub const CHECKS_SHARE: usize = 2;

/// What the program says to its controller.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The functions that chains may name, in the order in which they run; with none, any.
    pub functions: Vec<String>,
    /// Alerts that are kept, equal ones counted once.
    pub alerts_max: AlertBounds,
    /// What functions say of their sections.
    pub sections: Sections,
    /// Generations whose documents are kept, and rows of the audit log.
    pub history: (u64, u64),
    /// How often a tenant's tokens may change something, all of them together.
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

/// What a change does; see [`Controller::change`].
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Kind, name, and what it says then; `None` removes it.
    pub writes: Vec<(String, String, Option<Value>)>,
    /// Status that goes along.
    pub status: Vec<Status>,
    /// Whose traffic it concerns.
    pub touched: Touched,
    /// Status that comes again if the machine dies; see [`Change::repeats`].
    pub repeats: bool,
    /// Notes for the operator beside the differences.
    pub notes: Vec<String>,
}

impl Draft {
    /// One document.
    #[must_use]
    pub fn one(kind: &str, id: &str, body: Option<Value>, touched: Touched) -> Self {
        Draft { writes: vec![(kind.to_owned(), id.to_owned(), body)], touched, ..Draft::default() }
    }
}

/// A document that a change changed.
#[derive(Clone, Debug, PartialEq, serde::Serialize, JsonSchema)]
pub struct Difference {
    /// The kind of resource.
    pub kind: String,
    /// Its name.
    pub id: String,
    /// What it said; null if it was not there.
    pub before: Option<Value>,
    /// What it says then; null if it is gone.
    pub after: Option<Value>,
    /// SHA-256 of what it says then, as the audit log has it, of a rule file's text its name; null if it is
    /// gone.
    pub hash: Option<String>,
}

impl Difference {
    /// The difference between two states of a document, with the hash of the later one.
    #[must_use]
    pub fn new(kind: &str, id: &str, before: Option<&Value>, after: Option<&Value>) -> Self {
        let hash = after.map(|body| match kind {
            // Its name is the hash of megabytes.
            RULE_TEXTS => id.to_owned(),
            _ => store::hash(body),
        });
        let body = |body: Option<&Value>| body.map(|body| shown(kind, body));
        Difference {
            kind: kind.to_owned(),
            id: id.to_owned(),
            before: body(before),
            after: body(after),
            hash,
        }
    }
}

/// What a change did, or would do.
#[derive(Clone, Debug, PartialEq, serde::Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Outcome {
    /// The generation that stands then.
    pub generation: u64,
    /// What differs; nothing if all of it stood already.
    pub changes: Vec<Difference>,
    /// The devices that are to run it at once.
    pub devices: Vec<String>,
    /// Notes on the change: checks that could not be made and why, and traffic that another policy judges
    /// from now on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub notes: Vec<String>,
    /// What they said to it, where the request waited for that.
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
    /// What the program says.
    pub settings: Settings,
    /// What is counted.
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
    // A panic elsewhere leaves no half-done change: the store has transactions, limiters only numbers.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Controller {
    /// Starts with what a store holds, and tells the fleet what is wanted.
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
        // An older program gave no numbers. If there are none left, the documents are still there to be
        // removed.
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

    /// What stands.
    pub fn model(&self) -> RwLockReadGuard<'_, Model> {
        self.model.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time, in microseconds since 1970.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    /// A time that never goes back, in microseconds: how long something has to wait.
    #[must_use]
    pub fn steady(&self) -> u64 {
        self.clock.steady()
    }

    /// Whether a tenant's token may change something now: what one tenant says costs all a generation, a
    /// place in the history and one in the audit log. Tokens of no tenant are an administrator's, or report
    /// for a device. Nothing is counted: a change is looked at when its head has come, and counted once, when
    /// it is made.
    ///
    /// # Errors
    /// It may not, for some seconds.
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
        who.tenant.iter().for_each(|tenant| lock(&self.writes).give_back(tenant));
    }

    /// Asks the store.
    ///
    /// # Errors
    /// Those of the question.
    pub fn ask<T>(
        &self,
        question: impl FnOnce(&mut dyn Store) -> Result<T, StoreError>,
    ) -> Result<T, Refusal> {
        question(lock(&self.store).as_mut()).map_err(Refusal::from)
    }

    /// What stood in a generation.
    ///
    /// # Errors
    /// There is none, or the store cannot be read.
    pub fn model_at(&self, generation: u64) -> Result<Model, Refusal> {
        let newest = self.model().generation;
        if generation > newest {
            let message = format!("there is no generation {generation}; the newest is {newest}");
            return Err(Refusal::NotFound(message));
        }
        self.remembers(generation)?;
        let (mut documents, mut behind) = (Vec::new(), None);
        loop {
            let part = self.ask(|store| store.at_part(generation, behind.as_ref(), PART))?;
            documents.extend(part.documents);
            behind = part.next;
            if behind.is_none() {
                break;
            }
            // Who waits for the store comes first: it is what all changes go through.
            std::thread::yield_now();
        }
        // It may have been forgotten meanwhile, and some of it is missing.
        self.remembers(generation)?;
        Ok(Model::of(Loaded { generation, documents, status: Vec::new() }))
    }

    /// Whether it is still known what stood in a generation.
    ///
    /// # Errors
    /// It is not, or the store cannot be read.
    pub fn remembers(&self, generation: u64) -> Result<(), Refusal> {
        match self.ask(|store| store.keeps(generation))? {
            true => Ok(()),
            false => Err(self.forgotten(generation)),
        }
    }

    fn forgotten(&self, generation: u64) -> Refusal {
        let (most, _) = self.settings.history;
        Refusal::NotFound(format!(
            "what stood in generation {generation} is not kept any more: the last {most} are, and those that devices run; take a newer one"
        ))
    }

    /// Forgets what is too old, now and then.
    fn forget(&self, store: &mut dyn Store, rows: usize) {
        let (generations, most) = self.settings.history;
        if !self.written.add(rows, generations.min(most)) {
            return;
        }
        let (before, held) = {
            let ahead = self.queue.lock();
            (ahead.model.generation.saturating_sub(generations), history::held_by_devices(&ahead.model))
        };
        // A disk that does not take this takes no change either, and says so to whoever makes one; it is
        // tried again.
        let forgotten = store.forget(before, &held, most).unwrap_or_default();
        self.counters.generations_forgotten.fetch_add(forgotten.generations, Ordering::Relaxed);
        self.counters.audit_forgotten.fetch_add(forgotten.rows, Ordering::Relaxed);
    }

    /// Does a change that is drafted from what stands, or only says what it would do (`dry`). Nobody else
    /// changes anything in between, unless nothing is to be done. Answered, also with a refusal, when all
    /// that it was drafted from is on the disk.
    ///
    /// # Errors
    /// Those of the draft, and of the store.
    pub fn change(
        &self,
        who: &Principal,
        action: &str,
        dry: bool,
        draft: impl FnOnce(&Model) -> Result<Draft, Refusal>,
    ) -> Result<Outcome, Refusal> {
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
            self.settle(&group)?;
        }
        drafted
    }

    /// Says what a change would do to what is on the disk. It may take as long as its checks do, and keeps
    /// nobody from changing something meanwhile.
    fn try_out(
        &self,
        who: &Principal,
        action: &str,
        draft: impl FnOnce(&Model) -> Result<Draft, Refusal>,
    ) -> Result<Outcome, Refusal> {
        let _place = self.check_place(who)?;
        let model = self.model().clone();
        let (_, outcome) = self.compose(&model, who, action, draft(&model)?)?;
        Ok(outcome)
    }

    /// A place for checks beside what others change.
    ///
    /// # Errors
    /// All are taken, or as many as one may have.
    pub(crate) fn check_place(&self, who: &Principal) -> Result<Share<'_>, Refusal> {
        self.checks.take(who.tenant.as_ref().unwrap_or(&who.id)).ok_or_else(|| {
            Refusal::Busy(format!(
                "{CHECKS_SHARE} dry runs and changes of large tenants by one tenant or token, and {CHECKS_MAX} of all, may be checked at one time; \
                 nothing was changed: try again"
            ))
        })
    }

    /// Shows what a device says before it is stored, where it was drafted from nothing that is not on the
    /// disk: if it is lost the device says it again, and who waits for it has it sooner.
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

    /// Waits until a group is on the disk: whoever comes to the store first takes all that wait there with
    /// it.
    fn settle(&self, group: &Group) -> Result<(), StoreError> {
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
        // It waited, so it was what was taken.
        group.result().unwrap_or_else(|| Err(StoreError::Doubt("a writer broke off".to_owned())))
    }

    /// Shows to readers and the fleet what is on the disk now. By the only writer, so that the fleet hears of
    /// generations in their order.
    fn publish(&self, steps: &[Step]) {
        let (mut told, mut changed) = (Vec::new(), Vec::new());
        {
            let mut model = self.model.write().unwrap_or_else(PoisonError::into_inner);
            for step in steps {
                let wanted = wanted(&model, step.status());
                // Still as the only writer, so that the fleet hears of generations in their order.
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
    ) -> Result<(Change, Outcome), Refusal> {
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
        status.extend(numbers::give(model, &new)?);
        // Who comes by the name of a tenant that is gone finds nothing of it.
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
        let outcome = Outcome { generation, changes, devices, notes, answers: None };
        let (name, action) = (name_of(model, &who.id), action.to_owned());
        let who = who.id.clone();
        let remark = None;
        Ok((Change { at: self.now(), who, name, action, writes, status, forgets, remark, repeats }, outcome))
    }

    /// Notes in the audit log that someone was refused a change; of each token so many at once only, the rest
    /// is counted.
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
        // A disk that takes no remark takes no change either, and says so to whoever tries one.
        let mut store = lock(&self.store);
        let _ = store.commit(&change);
        self.forget(store.as_mut(), 1);
    }

    /// Who asks, by the text behind `Bearer`.
    ///
    /// # Errors
    /// The token is not known or its time is over; from a source with many such failures only that it has to
    /// wait. A good token is never held up by the failures of others at the same address.
    pub fn authenticate(&self, token: Option<&str>, source: IpAddr) -> Result<Option<Principal>, Refusal> {
        let Some(text) = token else { return Ok(None) };
        let now = self.now();
        if let Some(principal) = Secret::parse(text).and_then(|secret| self.known(&secret, now)) {
            return Ok(Some(principal));
        }
        match lock(&self.failures).take(&source, self.clock.steady()) {
            Some(seconds) => Err(Refusal::Limited(seconds)),
            None => Err(Refusal::Unknown(
                "this token is not known here, or its time is over; ask an administrator for another"
                    .to_owned(),
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

    /// A device answered to a generation; a roll-out may go on or stop by it.
    ///
    /// # Errors
    /// There is no such device, or the store did not do it.
    pub fn acknowledge(&self, who: &Principal, id: &str, answer: &Acknowledgement) -> Result<(), Refusal> {
        self.answer(who, id, None, answer, None).map(drop)
    }

    /// The same over its session, to what it was sent under a number. It says so again with each session.
    ///
    /// # Errors
    /// There is no such device, or the store did not do it.
    pub fn answered(
        &self,
        who: &Principal,
        id: &str,
        number: u64,
        answer: &Acknowledgement,
    ) -> Result<(), Refusal> {
        self.answer(who, id, Some(number), answer, None).map(drop)
    }

    /// Over its session it refused what it was sent under a number: what some tenants say. It is sent the
    /// same without that; see [`DeviceStatus::hold_back`]. `accused`: whom it may be due to. Says who is held
    /// back now.
    ///
    /// # Errors
    /// There is no such device, or the store did not do it.
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

    /// Shows status that is not in the store: it ends with this process.
    pub fn show(&self, status: &[Status]) {
        // Where changes are drafted first: what they say of it is newer than what is read.
        let mut ahead = self.queue.lock();
        ahead.model.set(status);
        self.model.write().unwrap_or_else(PoisonError::into_inner).set(status);
    }

    /// Does something that changes no document, and notes it in the audit log first.
    ///
    /// # Errors
    /// The store did not take the note; then it is not done.
    pub fn note(&self, who: &Principal, action: &str, kind: &str, id: &str) -> Result<(), Refusal> {
        let remark = Some((kind.to_owned(), id.to_owned()));
        let (at, name, action) = (self.now(), name_of(&self.model(), &who.id), action.to_owned());
        let change = Change { at, who: who.id.clone(), name, action, remark, ..Change::default() };
        let mut store = lock(&self.store);
        store.commit(&change)?;
        self.forget(store.as_mut(), 1);
        Ok(())
    }

    /// A number for an order; numbers begin anew with the process, as sessions do.
    pub fn next_request(&self) -> u32 {
        self.requests.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// The way to the devices.
    #[must_use]
    pub fn fleet(&self) -> &dyn Fleet {
        self.fleet.as_ref()
    }

    /// A device tells alerts; those of tenants that it does not serve are counted and left out. `status` is
    /// written along, all of it or nothing. Returns how many were taken. Of the traffic of no tenant all are.
    ///
    /// # Errors
    /// There is no such device, or the store did not do it.
    pub fn alerts(&self, id: &str, alerts: &[Alert], status: &[Status]) -> Result<u64, Refusal> {
        let bound = self.settings.alerts_max;
        let (taken, forgotten) = {
            // The store is held: no tenant goes between the look at it and its alerts, which would be read by
            // whoever comes by its name.
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

    /// Of alerts those that a device may tell.
    fn served(&self, id: &str, alerts: &[Alert]) -> Result<Vec<Alert>, Refusal> {
        let model = self.model();
        let Some(device) = model.get(device::KIND, id) else {
            return Err(Refusal::NotFound(format!("there is no device `{id}`")));
        };
        let spec = DeviceSpec::deserialize(&device.body).unwrap_or_default();
        let serves = |tenant: &String| spec.serves(tenant) && model.get(TENANTS, tenant).is_some();
        Ok(alerts.iter().filter(|alert| alert.tenant.as_ref().is_none_or(serves)).cloned().collect())
    }

    /// A device tells its counters; the newest are kept.
    ///
    /// # Errors
    /// There is no such device, or the store did not do it.
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
            let taken = statistics::take(model, (id, &spec), counters, (now, true));
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

    /// The token that makes an administrator's, once: with an empty store, where no administrator's token is
    /// good any more, and where those who start the controller ask for it (`anyway`), since theirs are lost.
    /// `keep` puts it where its holder finds it, before it is known here. `None` when none is needed, or one
    /// is there already.
    ///
    /// # Errors
    /// The store did not do it, or there are no random numbers.
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
                // Its file has one.
                let before = model.all(TOKENS).filter(|token| bootstraps(&token.body));
                draft.writes.extend(before.map(|token| (TOKENS.to_owned(), token.id.clone(), None)));
                Ok(draft)
            };
            self.change(&Principal::controller(), "bootstrap", false, draft)?;
        }
        Ok(Some(kept))
    }

    /// Whether the bootstrap token is there yet.
    #[must_use]
    pub fn bootstraps(&self) -> bool {
        self.model().all(TOKENS).any(|token| bootstraps(&token.body))
    }
}

/// The name of a token that is there.
pub(crate) fn name_of(model: &Model, token: &str) -> Option<String> {
    model.get(TOKENS, token)?.body.get("name")?.as_str().map(str::to_owned)
}

/// Whether the time of a token is over.
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

/// Whether a token is an administrator's, and still good.
#[must_use]
pub fn administers(token: &Value, now: u64) -> bool {
    is_of(token, "admin") && !is_over(token, now)
}

/// A path without the tokens that somebody put there instead of their ids: logs keep no secrets.
fn without_tokens(path: &str) -> String {
    let part = |part: &str| if part.starts_with("btz_") { "btz_...".to_owned() } else { part.to_owned() };
    path.split('/').map(part).collect::<Vec<_>>().join("/").chars().take(200).collect()
}

/// What is shown of a document: not the hashes of tokens, and of long texts the length only.
#[must_use]
pub fn shown(kind: &str, body: &Value) -> Value {
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

/// The devices that are to run something else by these lines of status, or the same under another number.
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

impl Controller {
    /// A place among those that wait: to be had before the change, so that nothing is done for a request that
    /// is refused.
    ///
    /// # Errors
    /// All are taken.
    pub fn wait_place(&self, who: &Principal) -> Result<Share<'_>, Refusal> {
        self.bell.places.take(who.tenant.as_ref().unwrap_or(&who.id)).ok_or_else(|| {
            Refusal::Busy(format!(
                "{SHARE_MAX} requests of a tenant, and {WAITING_MAX} of all, may wait for devices at one time; \
                 nothing was changed: try again, or ask without `wait`"
            ))
        })
    }

    /// Waits until the devices of a change have answered it, or one that came behind it; for some time at
    /// most. Of what they say `who` is told what is of its own tenant ([`DeviceAnswer::only_of`]).
    #[must_use]
    pub fn answers(
        &self,
        _place: &Share<'_>,
        who: &Principal,
        outcome: &Outcome,
        most: Duration,
    ) -> BTreeMap<String, DeviceAnswer> {
        let mut answers = BTreeMap::new();
        self.bell.until(Instant::now() + most, || {
            let model = self.model();
            let mut all = true;
            for device in &outcome.devices {
                let status = DeviceStatus::of(&model, device);
                // A refusal is of what is wanted now; who runs a later one runs this change as well.
                let refused = status.state == State::Refused && status.wanted >= outcome.generation;
                all &= refused || status.running >= outcome.generation;
                let mut answer = DeviceAnswer::of(status);
                if let Some(tenant) = &who.tenant {
                    answer.only_of(&model, tenant);
                }
                answers.insert(device.clone(), answer);
            }
            all
        });
        answers
    }
}
