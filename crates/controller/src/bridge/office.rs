// SPDX-License-Identifier: Apache-2.0
//! The backend of southbound sessions: turns messages of devices into status, alerts and statistics of the
//! controller, and answers their requests. Runs in the listener's thread.

use super::own::{Own, TlsMaterial};
use super::shelf::{Old, Olds, PartCache};
use super::stands;
use crate::access::Principal;
use crate::controller::{Controller, Draft};
use crate::counters::count;
use crate::device::{
    self, Acknowledgement, ContentReport, DeviceSpec, DeviceStatus, FUNCTIONS, FunctionHealth,
    FunctionStatus, HEALTH, LevelReport, Received, SESSIONS, SessionStatus, TookReport, WorkerReport,
};
use crate::held::{self, Accused};
use crate::interfaces::{DeviceInterfaces, INTERFACES};
use crate::kept::{Keeps, OlderParts};
use crate::model::Model;
use crate::numbers;
use crate::parts;
use crate::problem::Refusal;
use crate::render;
use crate::southbound::enrolment::{Enroller, Revocations};
use crate::southbound::listener::ListenerHandle;
use crate::southbound::{Backend, DeviceRecord, EnrolRefusal, Unavailable, Wanted};
use crate::statistics::{self, STATISTICS};
use crate::store::{self, Status};
use bartizan_api::southbound::{
    AlertAggregate, ApplyTimings, Delta, DeviceId, Enrol, Enrolled, FunctionState, GenerationAck,
    GenerationRefusal as NotTaken, GenerationRefusalCode, Hello, INTERFACES_SINCE, Interfaces, Now,
    PolicyDiagnostic, WorkerRuns, limits,
};
use bartizan_channel::ChannelError;
use bartizan_channel::tls::HandshakeClock;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

/// Validity of devices' certificates, in days.
const DEVICE_DAYS: u64 = 30;
/// Bytes kept of a text that a device sent.
const TEXT_MAX: usize = 2_048;
/// Most workers that are kept of a device, and most levels of its links.
const WORKERS_MAX: usize = 1_024;
/// Microseconds in which two programs with one device's identity are reported at most once, however often
/// they displace each other.
const TWINS_APART: u64 = 60_000_000;
/// Milliseconds between two checks of the own certificate and the authority.
const CHECK_INTERVAL_MS: u64 = 5_000;

/// The set sent last to a device: made anew only when number, generation, tenants or kept parts change.
#[derive(Clone)]
struct Given {
    number: u64,
    generation: u64,
    tenants: Vec<String>,
    kept: Keeps,
    wanted: Arc<Wanted>,
}

/// Data that the store has to provide before a device's set can be made.
enum Missing {
    /// An older generation that a roll-out chose for the device.
    Generation(u64),
    /// A tenant's documents in an older generation.
    Tenant(String, u64),
}

/// The controller as the sessions see it.
pub struct DeviceBackend {
    controller: Arc<Controller>,
    shelf: RefCell<PartCache>,
    given: RefCell<HashMap<DeviceId, Given>>,
    /// The older generation read last; cached because a roll-out has many devices.
    old: RefCell<Option<(u64, Model)>>,
    /// Older documents of tenants that devices keep, by tenant and generation.
    keeping: RefCell<BTreeMap<(String, u64), Arc<Model>>>,
    /// Time of the last report of two programs with one device's identity, in microseconds of a monotonic
    /// clock.
    twins: HashMap<DeviceId, u64>,
    enroller: Enroller,
    revocations: Revocations,
    own: Own,
    presented: TlsMaterial,
    clock: HandshakeClock,
    last_check: u64,
    listener: Arc<OnceLock<ListenerHandle>>,
    log: fn(&str),
}

impl DeviceBackend {
    /// A backend for a controller. `listener` is set once the listener exists: it gets new TLS settings when
    /// certificates change. `log` gets messages for the operator.
    ///
    /// # Errors
    /// Certificates cannot be read.
    pub fn new(
        controller: Arc<Controller>,
        own: Own,
        revocations: Revocations,
        clock: HandshakeClock,
        listener: Arc<OnceLock<ListenerHandle>>,
        say: fn(&str),
    ) -> Result<Self, ChannelError> {
        let (enroller, shown) =
            (Enroller::new(own.authority.clone(), DEVICE_DAYS), own.tls_material(clock())?);
        let (shelf, given, old) = (RefCell::default(), RefCell::default(), RefCell::default());
        let keeping = RefCell::default();
        Ok(DeviceBackend {
            controller,
            shelf,
            given,
            old,
            keeping,
            twins: HashMap::new(),
            enroller,
            revocations,
            own,
            presented: shown,
            clock,
            last_check: 0,
            listener,
            log: say,
        })
    }

    fn spec(&self, model: &Model, device: &DeviceId) -> Option<DeviceSpec> {
        DeviceSpec::deserialize(&model.get(device::KIND, device.as_str())?.body).ok()
    }

    /// Renews the own certificate in time, and loads authorities after a rotation.
    fn renew_credentials(&mut self) -> Result<(), ChannelError> {
        let now = (self.clock)();
        // A failed renewal does not keep rotated authorities from being loaded.
        let renewed = self.own.renew(now);
        if let Ok(Some(said)) = &renewed {
            (self.log)(said);
        }
        let shown = self.own.tls_material(now)?;
        if shown != self.presented
            && let Some(listener) = self.listener.get()
        {
            listener.set_tls(shown.tls(&self.clock, &self.revocations)?);
            self.presented = shown;
        }
        renewed.map(|_| ())
    }

    /// The set that a device is to run; or the older data that has to be read for it first.
    fn make(&self, device: &DeviceId) -> Option<Result<Given, Missing>> {
        let model = self.controller.model();
        let (spec, status) = (self.spec(&model, device)?, DeviceStatus::of(&model, device.as_str()));
        let number = status.number();
        if number == 0 {
            return None;
        }
        let (generation, kept) = (status.wanted, status.keeps());
        let fits = |given: &&Given| {
            (given.number, given.generation) == (number, generation)
                && given.tenants == spec.tenants
                && given.kept == kept
        };
        // A set made for another device fits as well: equal generation, tenants and kept parts give equal
        // sets.
        let known = self.given.borrow();
        if let Some(given) = known.get(device).filter(fits).or_else(|| known.values().find(fits)) {
            return Some(Ok(given.clone()));
        }
        drop(known);
        let (old, keeping) = (self.old.borrow(), self.keeping.borrow());
        // A device that follows changes gets the current model: any later change of its tenants would have
        // raised its desired generation.
        let follows = !status.chosen && spec.follow == device::Follow::Auto;
        let chosen = match old.as_ref() {
            _ if status.wanted == model.generation || follows => &*model,
            Some((known, old)) if *known == generation => old,
            _ => return Some(Err(Missing::Generation(generation))),
        };
        let old_of = |tenant: &str, generation: u64| match keeping.get(&(tenant.to_owned(), generation)) {
            Some(old) => Ok(Some(old.clone())),
            None if generation == 0 => Ok(None),
            None => Err(Missing::Tenant(tenant.to_owned(), generation)),
        };
        let of = |(tenant, kept): (&String, &OlderParts)| {
            let policies = old_of(tenant, kept.generation)?;
            let own = kept.tenant.map(|generation| old_of(tenant, generation)).transpose()?;
            Ok((tenant.clone(), Old { policies, tenant: own }))
        };
        let olds: Olds = match kept.iter().map(of).collect() {
            Ok(olds) => olds,
            Err(missing) => return Some(Err(missing)),
        };
        let wanted = Arc::new(self.shelf.borrow_mut().wanted(chosen, &model, &spec, number, &olds));
        Some(Ok(Given { number, generation, tenants: spec.tenants, kept, wanted }))
    }

    /// Reads missing data from the store. No lock is held meanwhile.
    fn fetch(&self, missing: Missing) -> Result<(), Refusal> {
        match missing {
            Missing::Generation(generation) => {
                let model = self.controller.model_at(generation)?;
                *self.old.borrow_mut() = Some((generation, model));
            }
            Missing::Tenant(tenant, generation) => {
                let old = Arc::new(held::old(&self.controller.model_at(generation)?, &tenant));
                self.keeping.borrow_mut().insert((tenant, generation), old);
            }
        }
        Ok(())
    }

    /// Drops older documents that no device keeps any more.
    fn forget(&self) {
        *self.old.borrow_mut() = None;
        let mut keeping = self.keeping.borrow_mut();
        if keeping.is_empty() {
            return;
        }
        let model = self.controller.model();
        let all = model.all(device::KIND).flat_map(|device| DeviceStatus::of(&model, &device.id).keeps());
        let both = |(tenant, kept): (String, OlderParts)| {
            [kept.generation, kept.tenant.unwrap_or(0)].map(|generation| (tenant.clone(), generation))
        };
        let kept: BTreeSet<(String, u64)> = all.flat_map(both).collect();
        keeping.retain(|key, _| kept.contains(key));
    }

    /// Passes a result of the controller on; reports why a device's message could not be stored.
    fn report_refusal<T>(&self, what: Result<T, Refusal>) -> Result<T, Unavailable> {
        what.map_err(|refusal| {
            (self.log)(&format!("cannot store a device's report: {refusal}"));
            Unavailable
        })
    }
}

/// Cuts a text of a device to the bytes that are kept.
pub(super) fn cut(mut text: String) -> String {
    if let Some((at, _)) = text.char_indices().find(|(at, letter)| at + letter.len_utf8() > TEXT_MAX) {
        text.truncate(at);
    }
    text
}

fn show(kind: &str, id: String, body: &impl serde::Serialize) -> [Status; 1] {
    [Status { kind: kind.to_owned(), id, body: serde_json::to_value(body).ok() }]
}

/// Content hashes of the running generation.
fn content_of(running: &GenerationAck) -> ContentReport {
    let own = running.stands.as_ref().and_then(|stands| stands.content);
    ContentReport {
        manifest: running.manifest.to_string(),
        lists: own.map(|own| own.lists.to_string()),
        settings: own.map(|own| own.settings.to_string()),
    }
}

/// The principal of changes that follow from device messages.
fn controller_principal() -> Principal {
    Principal::controller()
}

impl Backend for DeviceBackend {
    fn tick(&mut self, now: Now) {
        // If the revocation register cannot be read, the revocations read before still apply.
        let _ = self.revocations.refresh();
        if now.ms >= self.last_check.saturating_add(CHECK_INTERVAL_MS) {
            self.last_check = now.ms;
            self.forget();
            if let Err(error) = self.renew_credentials() {
                (self.log)(&format!("cannot renew the certificate for agents: {error}"));
            }
        }
    }

    fn device(&self, device: &DeviceId) -> Option<DeviceRecord> {
        let model = self.controller.model();
        let spec = self.spec(&model, device)?;
        let mut tenants: std::collections::BTreeSet<u16> = held::served(&model, &spec)
            .into_iter()
            .filter_map(|name| numbers::tenant(&model, name))
            .collect();
        tenants.insert(parts::EVERYBODY);
        Some(DeviceRecord { tenants })
    }

    fn wanted(&self, device: &DeviceId) -> Option<Arc<Wanted>> {
        let given = loop {
            match self.make(device)? {
                Ok(given) => break given,
                // Data read stays until the next tick, so that each round has one thing less to read.
                Err(missing) => {
                    if let Err(refusal) = self.fetch(missing) {
                        (self.log)(&format!("cannot read the generation for `{device}`: {refusal}"));
                        return None;
                    }
                }
            }
        };
        let wanted = given.wanted.clone();
        self.given.borrow_mut().insert(device.clone(), given);
        Some(wanted)
    }

    fn began(&mut self, device: &DeviceId, hello: &Hello, source: &str) {
        let (since, address) = (self.controller.now(), source.to_owned());
        // Removes the function health that an earlier start of the agent reported; this start reports its
        // own.
        let prefix = format!("{device}/");
        let told: Vec<String> = {
            let model = self.controller.model();
            model.statuses(HEALTH, &prefix).map(|(id, _)| id.to_owned()).collect()
        };
        let gone = |id| Status { kind: HEALTH.to_owned(), id, body: None };
        self.controller.show(&told.into_iter().map(gone).collect::<Vec<_>>());
        let session =
            SessionStatus { connected: true, since, address, software: cut(hello.software.clone()) };
        self.controller.show(&show(SESSIONS, device.to_string(), &session));
        let is_known = self.controller.model().status(INTERFACES, device.as_str()).is_some();
        if is_known && !hello.versions.contains(&INTERFACES_SINCE) {
            // An older agent replaced one that reported its links and ports: they may differ now.
            let gone = Status { kind: INTERFACES.to_owned(), id: device.to_string(), body: None };
            let draft = |_: &Model| Ok(Draft { status: vec![gone], ..Draft::default() });
            let _ = self.report_refusal(self.controller.change(
                &controller_principal(),
                "interfaces",
                false,
                draft,
            ));
        }
    }

    fn interfaces(&mut self, device: &DeviceId, said: &Interfaces) -> Result<(), Unavailable> {
        let id = device.as_str();
        let (has, before, missing) = {
            let model = self.controller.model();
            let mut has = DeviceInterfaces::new(said.links.clone(), said.ports.clone());
            let missing = has.find_missing(&model, &self.spec(&model, device).unwrap_or_default());
            (has, DeviceInterfaces::of(&model, id), missing)
        };
        if let Some(first) = missing.first() {
            count(&self.controller.counters.interfaces_missing);
            let more = missing.len() - 1;
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            (self.log)(&format!(
                "`{id}` has no {first}{more}: it cannot run this generation; change the name, or the host file of `{id}`"
            ));
        }
        if before.as_ref() == Some(&has) {
            return Ok(());
        }
        let is_other = before
            .is_some_and(|before| (before.links, before.ports) != (said.links.clone(), said.ports.clone()));
        let draft = |model: &Model| {
            let mut status = vec![has.line(id)];
            let own = DeviceStatus::of(model, id);
            if is_other && !own.held_back.is_empty() {
                status.push(own.tried_anew().line(id));
            }
            Ok(Draft { status, ..Draft::default() })
        };
        self.report_refusal(self.controller.change(&controller_principal(), "interfaces", false, draft))
            .map(drop)
    }

    fn twin(&mut self, device: &DeviceId, before: &str, now: &str) {
        let at = self.controller.steady();
        let last = self.twins.insert(device.clone(), at);
        if last.is_some_and(|last| at < last.saturating_add(TWINS_APART)) {
            return;
        }
        (self.log)(&format!(
            "`{device}` has connected from {now} while another start of its agent had a session from {before}: \
             if it was not restarted just now, two programs use its certificate; revoke it (`bartizan ctl devices`), and enrol the device again"
        ));
        let _ =
            self.controller.note(&controller_principal(), "agent replaced", device::KIND, device.as_str());
    }

    fn ended(&mut self, device: &DeviceId) {
        let known = self.controller.model().status(SESSIONS, device.as_str()).cloned();
        let known = known.and_then(|body| SessionStatus::deserialize(body).ok());
        if let Some(session) = known {
            let session = SessionStatus { connected: false, since: self.controller.now(), ..session };
            self.controller.show(&show(SESSIONS, device.to_string(), &session));
        }
        // A device that is away needs no copy of the set it was sent.
        self.given.borrow_mut().remove(device);
    }

    fn running(
        &mut self,
        device: &DeviceId,
        number: u64,
        running: &GenerationAck,
    ) -> Result<(), Unavailable> {
        let status = DeviceStatus::of(&self.controller.model(), device.as_str());
        let generation_of = |number: u64| status.generation_of(number).unwrap_or(0);
        let rules_left_out = running
            .stands
            .as_ref()
            .map(|stands| stands::left_out_shown(&self.controller.model(), &stands.left_out));
        let mut diagnostics = Vec::new();
        match number {
            // Of a device that is to run nothing its state says so.
            0 if status.wanted == 0 => {}
            0 => diagnostics.push(OWN.to_owned()),
            _ if status.generation_of(number).is_none() => diagnostics.push(unknown(number)),
            _ => {}
        }
        let answer = Acknowledgement {
            generation: generation_of(number),
            accepted: true,
            workers: running
                .workers
                .iter()
                .take(WORKERS_MAX)
                .map(|worker| report(worker, generation_of))
                .collect(),
            levels: match &running.stands {
                Some(stands) => stands
                    .levels
                    .iter()
                    .take(WORKERS_MAX)
                    .map(|level| stands::level(level, generation_of))
                    .collect(),
                None => levels(&running.workers, generation_of),
            },
            rules_left_out,
            diagnostics,
            took: running.took.map(|ApplyTimings { build, store, swap }| TookReport { build, store, swap }),
            content: Some(content_of(running)),
        };
        self.report_refusal(self.controller.answered(
            &controller_principal(),
            device.as_str(),
            number,
            &answer,
        ))
    }

    fn refused(&mut self, device: &DeviceId, number: u64, refusal: &NotTaken) -> Result<(), Unavailable> {
        if refusal.code == GenerationRefusalCode::Manifest {
            // Something was lost on the way: the set is sent again, and if that does not help the session
            // ends.
            return Ok(());
        }
        let (status, mut diagnostics, accused) = {
            let model = self.controller.model();
            let spec = self.spec(&model, device).unwrap_or_default();
            let names: HashMap<u16, &str> = held::served(&model, &spec)
                .into_iter()
                .filter_map(|name| Some((numbers::tenant(&model, name)?, name)))
                .collect();
            let file = |group| numbers::file_of(&model, group);
            let shown = |group| file(group).map(|hash| render::file_shown(&model, &hash));
            let lines =
                refusal.diagnostics.iter().map(|found| place(found, &names, shown)).collect::<Vec<_>>();
            let tenant = |number: u16| names.get(&number).map(|name| (*name).to_owned());
            let accused = Accused::of(&model, &refusal.diagnostics, &lines, tenant, file);
            (DeviceStatus::of(&model, device.as_str()), lines, accused)
        };
        if diagnostics.is_empty() {
            diagnostics.push(reason(refusal.code).to_owned());
        }
        if refusal.more > 0 {
            diagnostics.push(format!("and {} more", refusal.more));
        }
        let answer = Acknowledgement {
            generation: status.generation_of(number).unwrap_or(0),
            accepted: false,
            // A refusal does not change what the device runs.
            workers: status.workers,
            levels: status.levels,
            rules_left_out: status.rules_left_out,
            diagnostics,
            took: None,
            content: None,
        };
        if !matches!(refusal.code, GenerationRefusalCode::Policy | GenerationRefusalCode::Limit) {
            // The refusal is no tenant's fault.
            return self.report_refusal(self.controller.answered(
                &controller_principal(),
                device.as_str(),
                number,
                &answer,
            ));
        }
        let held =
            self.controller.not_taken(&controller_principal(), device.as_str(), number, &answer, &accused);
        for tenant in self.report_refusal(held)? {
            (self.log)(&format!(
                "`{device}` refuses the part of tenant `{tenant}` in generation {}, and keeps running its previous part: {}",
                answer.generation,
                answer.diagnostics.join("; ")
            ));
        }
        Ok(())
    }

    fn ahead(&mut self, device: &DeviceId, number: u64) {
        let draft = |model: &Model| {
            let status = DeviceStatus::of(model, device.as_str()).beyond(number);
            Ok(Draft { status: vec![status.line(device.as_str())], ..Draft::default() })
        };
        (self.log)(&format!(
            "`{device}` runs other content than was sent under number {number}: was the controller's state restored from a backup? The device gets its generation under a higher number"
        ));
        // Noted in the audit log for operators who look later.
        let noted =
            self.controller.note(&controller_principal(), "device ahead", device::KIND, device.as_str());
        let done =
            noted.and_then(|()| self.controller.change(&controller_principal(), "ahead", false, draft));
        if let Err(refusal) = done {
            (self.log)(&format!("cannot send `{device}` its generation: {refusal}"));
        }
    }

    fn received(&self, device: &DeviceId, instance: u64) -> (u64, u64) {
        let received = Received::of(&self.controller.model(), device.as_str(), instance);
        (received.statistics, received.alerts)
    }

    fn statistics(
        &mut self,
        device: &DeviceId,
        instance: u64,
        sequence: u64,
        delta: Delta,
    ) -> Result<(), Unavailable> {
        let (id, now) = (device.as_str(), self.controller.now());
        let mut foreign = 0;
        let draft = |model: &Model| {
            let Some(spec) = self.spec(model, device) else {
                return Err(Refusal::NotFound(format!("there is no device `{id}`")));
            };
            let received = Received::of(model, id, instance);
            // Sums belong to one start of the agent.
            let begins = received.statistics == 0;
            let known = model.status(STATISTICS, id).filter(|_| !begins).and_then(Value::as_object);
            let mut sums = known.cloned().unwrap_or_default();
            let taken = statistics::take(model, id, &spec, delta.counters, now, false);
            foreign = taken.refused + add(&mut sums, taken.own);
            let line =
                Status { kind: STATISTICS.to_owned(), id: id.to_owned(), body: Some(Value::Object(sums)) };
            let seen = DeviceStatus { seen: now, ..DeviceStatus::of(model, id) }.line(id);
            let received = Received { statistics: sequence, ..received }.line(id);
            let status = [line, received, seen].into_iter().chain(taken.lines).collect();
            Ok(Draft { status, ..Draft::default() })
        };
        let done = self.controller.change(&controller_principal(), "statistics", false, draft);
        (0..foreign).for_each(|_| count(&self.controller.counters.counters_refused));
        self.report_refusal(done).map(drop)
    }

    fn alerts(
        &mut self,
        device: &DeviceId,
        instance: u64,
        sequence: u64,
        alerts: Vec<AlertAggregate>,
        lost: u64,
    ) -> Result<(), Unavailable> {
        let came = alerts.len();
        let (kept, received) = {
            let model = self.controller.model();
            let spec = self.spec(&model, device).ok_or(Unavailable)?;
            let names: BTreeMap<u16, &str> = held::served(&model, &spec)
                .into_iter()
                .filter_map(|name| Some((numbers::tenant(&model, name)?, name)))
                .collect();
            let owner = |tenant: u16| match tenant {
                parts::EVERYBODY => Some(None),
                tenant => names.get(&tenant).map(|name| Some((*name).to_owned())),
            };
            let of = |alert: AlertAggregate| Some(kept(owner(alert.tenant)?, alert));
            let kept: Vec<store::Alert> = alerts.into_iter().filter_map(of).collect();
            (kept, Received { alerts: sequence, ..Received::of(&model, device.as_str(), instance) })
        };
        // Counts alerts of tenants that were removed since the session looked.
        (kept.len()..came).for_each(|_| count(&self.controller.counters.alerts_unknown));
        if lost > 0 {
            count(&self.controller.counters.alerts_lost);
        }
        let done = self.controller.alerts(device.as_str(), &kept, &[received.line(device.as_str())]);
        self.report_refusal(done).map(drop)
    }

    fn health(&mut self, device: &DeviceId, state: FunctionState) {
        // Only functions that chains may name are taken; a device cannot make up others.
        if !self.controller.settings.functions.contains(&state.function) {
            return;
        }
        let id = format!("{device}/{}", state.function);
        let known = self.controller.model().status(HEALTH, &id).cloned();
        let known = known.and_then(|body| FunctionHealth::deserialize(body).ok());
        let (word, reason) = (cut(state.state), cut(state.reason));
        let line = if word == "running" {
            Status { kind: HEALTH.to_owned(), id, body: None }
        } else {
            let since = known.filter(|known| known.state == word).map(|known| known.since);
            let since = since.unwrap_or_else(|| self.controller.now());
            let body = serde_json::to_value(FunctionHealth { state: word, reason, since }).ok();
            Status { kind: HEALTH.to_owned(), id, body }
        };
        self.controller.show(&[line]);
    }

    fn function(&mut self, device: &DeviceId, request: u32, state: FunctionState) {
        let id = format!("{device}/{}", state.function);
        let known = self.controller.model().status(FUNCTIONS, &id).cloned();
        let known = known.and_then(|body| FunctionStatus::deserialize(body).ok());
        // Ignores the answer to an order that a newer order replaced.
        let Some(asked) = known.filter(|known| known.request == request) else { return };
        let (answered, done) = (Some(self.controller.now()), state.done);
        let (state, reason) = (cut(state.state), cut(state.reason));
        self.controller.show(&show(
            FUNCTIONS,
            id,
            &FunctionStatus { answered, done, state, reason, ..asked },
        ));
    }

    fn enrol(
        &mut self,
        now: Now,
        source: &str,
        enrol: &Enrol,
        certified: Option<&DeviceId>,
    ) -> Result<Enrolled, EnrolRefusal> {
        self.enroller.enrol(now, source, enrol, certified)
    }

    fn is_revoked(&self, serial: &str) -> bool {
        self.revocations.has(serial)
    }
}

/// The diagnostic of a device that runs nothing of its controller, and is to.
const OWN: &str = "it runs no generation of this controller yet: its own host file applies until it has one";

fn unknown(number: u64) -> String {
    format!(
        "it runs generation number {number}, which was never sent to it or is no longer kept: its content is unknown"
    )
}

fn report(worker: &WorkerRuns, generation_of: impl Fn(u64) -> u64) -> WorkerReport {
    // A worker runs what its lowest level has of the host's generation; levels are reported separately.
    let number = worker.levels.get("host").or_else(|| worker.levels.values().min()).copied().unwrap_or(0);
    let generation = generation_of(number);
    WorkerReport { link: worker.link.clone(), worker: u32::from(worker.worker), generation }
}

/// The generation at each level, for an agent that reports no levels itself: the oldest that any worker has
/// there.
fn levels(workers: &[WorkerRuns], generation_of: impl Fn(u64) -> u64) -> Vec<LevelReport> {
    let mut oldest: BTreeMap<&str, u64> = BTreeMap::new();
    for (level, number) in workers.iter().flat_map(|worker| &worker.levels) {
        let known = oldest.entry(level).or_insert(*number);
        *known = (*known).min(*number);
    }
    let report = |(level, number): (&str, u64)| LevelReport {
        level: level.to_owned(),
        generation: generation_of(number),
        ..LevelReport::default()
    };
    oldest.into_iter().map(report).collect()
}

fn reason(code: GenerationRefusalCode) -> &'static str {
    match code {
        GenerationRefusalCode::Stale => "the device already runs a newer generation",
        GenerationRefusalCode::Manifest => "an object was lost in transfer",
        GenerationRefusalCode::Limit => "the generation is larger than a device can hold",
        GenerationRefusalCode::Policy => "the device cannot build the generation, and names no place",
        GenerationRefusalCode::Store => "the device cannot store it: is its disk full?",
    }
}

/// Formats a diagnostic with its place: `acme/web /policy/chain/0: ...`.
fn place(
    found: &PolicyDiagnostic,
    names: &HashMap<u16, &str>,
    file: impl Fn(u32) -> Option<String>,
) -> String {
    let object = match (found.object.policy_name(), found.object.group_id()) {
        (Some((parts::EVERYBODY, name)), _) => name.to_owned(),
        (Some((tenant, name)), _) => format!("{}/{name}", names.get(&tenant).unwrap_or(&"?")),
        (None, Some(group)) => {
            format!("rule file {}", file(group).unwrap_or_else(|| format!("number {group}")))
        }
        (None, None) => found.object.as_str().to_owned(),
    };
    let pointer = if found.pointer.is_empty() { String::new() } else { format!(" {}", found.pointer) };
    let line = match (found.line, found.column) {
        (0, _) => String::new(),
        (line, 0) => format!(" line {line}"),
        (line, column) => format!(" line {line}, column {column}"),
    };
    cut(format!("{object}{pointer}{line}: {}", found.message))
}

/// An alert in its stored form.
fn kept(tenant: Option<String>, alert: AlertAggregate) -> store::Alert {
    let body = if alert.event.is_empty() {
        // Without an event from the agent, the alert still names its rule.
        let mut ids = alert.rule.split(':').map(|part| part.parse::<u64>().unwrap_or(0));
        let mut next = || ids.next().unwrap_or(0);
        let (gid, sid, rev) = (next(), next(), next());
        json!({ "alert": { "gid": gid, "signature_id": sid, "rev": rev, "signature": alert.message } })
    } else {
        Value::Object(alert.event)
    };
    let last = alert.last / 1_000;
    store::Alert { tenant, key: cut(alert.key), last, count: alert.count, body }
}

/// Adds a device's counter increments to its sums. Returns how many counters did not fit the bound.
fn add(sums: &mut Map<String, Value>, counters: Vec<(String, u64)>) -> u64 {
    let mut refused = 0;
    for (name, rose) in counters {
        let known = sums.get(&name).and_then(Value::as_u64);
        let room = known.is_some() || sums.len() < limits::COUNTERS;
        if room && name.len() <= limits::NAME_LETTERS {
            sums.insert(name, Value::from(known.unwrap_or(0).saturating_add(rose)));
        } else {
            refused += 1;
        }
    }
    refused
}
